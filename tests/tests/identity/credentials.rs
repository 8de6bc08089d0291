//! Handshakes with verifiable credentials and the verifier of `dunlin-identity`: the accepted credentials,
//! and the alert for each refusal.

mod kept;
mod members;
mod resolution;
mod stapled_status;

use std::sync::Arc;
use std::time::Duration;

use base64ct::{Base64UrlUnpadded, Encoding};
use dunlin::auth::{
    Acceptance, AskAgain, Belief, DidProofs, KnownRegistry, OtherIdentity, PrivateKey, Trust,
    VerifiableCredential, Verified, Verifiers,
};
use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
use dunlin::crypto::SigningKey;
use dunlin::error::{AuthenticationFailure, PeerMisbehaved};
use dunlin::pki_types::CertificateDer;
use dunlin::resume::Tickets;
use dunlin::wire::{AlertDescription as Alert, CertificateType, DidMethod, SignatureScheme};
use dunlin::{
    Answer, ClientAuth, ClientConfig, Credential, DtlsConnection, Error, Negotiated, PeerIdentity, Profile,
    ProfileBuilder, Question, ServerConfig,
};
use dunlin_identity::credential::status::{
    Bitstring, DEFAULT_STATUS_AGE, StatusEntry, StatusList, StatusLists, StatusPurpose,
};
use dunlin_identity::credential::{CREDENTIALS_V2, Context, Contexts, Issuer, Seconds, Verifier};
use dunlin_identity::handshake::{
    CredentialIdentity, CredentialVerifier, DocumentCache, Holding, ListedIssuer, ListedIssuers,
    MAX_SHOWN_DID, PinnedDocuments, Refusal, Resolution, ResolveError, Resolver, Stapled,
};
use dunlin_identity::key::PublicKey;
use dunlin_identity::method::dunlin::first_document;
use dunlin_identity::method::{JWK, KEY, Method};
use dunlin_identity::transparency::Staple;
use dunlin_identity::{Did, DidDocument, DidUrl, Members, Relationship, Sha256Hash, TrustList};
use dunlin_pki::{KeyPair, KeyType};
use dunlin_sim::{CLIENT_ADDRESS, SERVER_ADDRESS};
use dunlin_store::{MemoryClientCache, MemoryClientSessions, MemoryServerCache, RotatingTickets};
use dunlin_tests::{NOW, Pair, Pki, awslc, localhost};
use serde_json::{Value, json};

/// The time of the tests: 2026-01-01T00:00:00Z.
const NOW_S: Seconds = 1_767_225_600;
/// `validUntil` of the tests' credentials: 2026-02-01T00:00:00Z.
const UNTIL_S: u64 = 1_769_904_000;
const LIST: &str = "https://issuer.example/status/1";

fn key(typ: KeyType) -> Arc<dyn SigningKey> {
    KeyPair::generate(typ).unwrap().signing_key(&awslc()).unwrap()
}

fn public(key: &Arc<dyn SigningKey>) -> PublicKey {
    PublicKey::from_spki(key.public_key()).unwrap()
}

/// A party with a DID.
struct Party {
    key: Arc<dyn SigningKey>,
    document: DidDocument,
}

impl Party {
    /// With a `did:key`.
    fn new(typ: KeyType) -> Self {
        Self::of_method(&KEY, typ)
    }

    fn of_method(method: &dyn Method, typ: KeyType) -> Self {
        let key = key(typ);
        let did = method.create(&public(&key)).unwrap();
        Self { key, document: method.resolve(&did).unwrap() }
    }

    /// With a DID that does not follow from the key.
    fn named(did: &str) -> Self {
        let key = key(KeyType::P256);
        let document = DidDocument::of_key(&did.parse().unwrap(), "key-1", &public(&key)).unwrap();
        Self { key, document }
    }

    fn did(&self) -> &Did {
        self.document.id()
    }

    fn method(&self) -> DidUrl {
        let own = public(&self.key);
        let mut keys = self.document.keys(Relationship::AssertionMethod);
        keys.find(|(_, key)| **key == own).unwrap().0.clone()
    }

    fn issue_as(&self, form: u8, subject: &str, change: impl FnOnce(&mut Value)) -> Vec<u8> {
        let mut credential = json!({
            "@context": [CREDENTIALS_V2],
            "type": ["VerifiableCredential"],
            "issuer": self.did().as_str(),
            "validFrom": "2025-12-01T00:00:00Z",
            "validUntil": "2026-02-01T00:00:00Z",
            "credentialSubject": {"id": subject, "role": "sensor"},
        });
        change(&mut credential);
        let provider = awslc();
        let method = self.method();
        let issuer = Issuer { provider: &provider, signer: &*self.key, method: &method };
        match form {
            b'{' => issuer.issue(&credential, &Contexts::default(), NOW_S).unwrap().into_bytes(),
            b'e' => issuer.issue_jwt(&credential, &Contexts::default()).unwrap().into_bytes(),
            _ => issuer.issue_compact(&credential, &Contexts::default()).unwrap(),
        }
    }

    fn issue(&self, subject: &Self, change: impl FnOnce(&mut Value)) -> Vec<u8> {
        self.issue_as(0xd2, subject.did().as_str(), change)
    }

    /// The credential, as the engine shows it.
    fn shows(&self, credential: Vec<u8>) -> Credential {
        let holding =
            Holding::of_credential(self.key.clone(), self.method(), credential, &Contexts::default());
        holding.unwrap().to_tls(&awslc()).unwrap()
    }

    /// Any bytes as a credential of a `did:key`.
    fn claims(&self, bytes: &[u8]) -> Credential {
        let credential = VerifiableCredential::new(bytes.to_vec(), DidMethod::KEY);
        Credential::Verifiable { credential, key: PrivateKey::Here(self.key.clone()) }
    }

    fn verifier(&self) -> CredentialVerifier {
        CredentialVerifier::new(awslc(), [self.document.clone()])
    }

    /// The status list, of this age, with one bit, as the issuer publishes it.
    fn published_list(&self, url: &str, revoked: bool, age: Seconds) -> Vec<u8> {
        let mut bits = Bitstring::default();
        bits.set(7, revoked).unwrap();
        let made = NOW_S - age;
        let credential = bits.credential(self.did(), url, StatusPurpose::Revocation, made, made + 400_000);
        let provider = awslc();
        let method = self.method();
        let issuer = Issuer { provider: &provider, signer: &*self.key, method: &method };
        issuer.issue_jwt(&credential.unwrap(), &Contexts::default()).unwrap().into_bytes()
    }

    /// The same list after all checks.
    fn list(&self, revoked: bool, age: Seconds) -> StatusList {
        let list = self.published_list(LIST, revoked, age);
        let verifier = Verifier::new([self.document.clone()]);
        StatusList::verify(&verifier, &awslc(), &list, LIST, NOW_S).unwrap()
    }
}

/// Whether a verifier still believes an earlier verdict.
fn belief(verifier: &CredentialVerifier, verified: &Verified) -> Belief {
    dunlin::auth::Verifier::still_believes(verifier, &verified.identity, NOW)
}

fn unchanged(_: &mut Value) {}

fn with_status(credential: &mut Value) {
    let entry = StatusEntry { list: LIST.to_owned(), index: 7, purpose: StatusPurpose::Revocation };
    credential["credentialStatus"] = entry.to_value();
}

fn lists(list: StatusList) -> StatusLists {
    let mut lists = StatusLists::default();
    lists.insert(list).unwrap();
    lists
}

fn profile(trust: impl Into<Verifiers>, own: Vec<Credential>) -> ProfileBuilder {
    Profile::builder(awslc()).trust(trust.into()).credentials(own)
}

fn trust(verifier: CredentialVerifier) -> Verifiers {
    Verifiers::default().with(Arc::new(verifier))
}

fn client(profile: ProfileBuilder) -> Arc<ClientConfig> {
    Arc::new(ClientConfig::new(profile.build().unwrap()))
}

fn server(profile: ProfileBuilder) -> Arc<ServerConfig> {
    let server = ServerConfig::new(profile.build().unwrap()).unwrap();
    Arc::new(server.with_client_auth(ClientAuth::Required).unwrap())
}

fn peers(pair: &Pair) -> [CredentialIdentity; 2] {
    [&pair.client, &pair.server].map(|end| {
        let negotiated = end.negotiated().unwrap();
        CredentialIdentity::of(negotiated.peer.as_ref().unwrap()).unwrap()
    })
}

/// The error with which a server refuses a client, after it has checked that a client refuses such a server
/// in the same way.
fn refusal(own: &Credential, verifier: impl Fn() -> CredentialVerifier) -> Error {
    let pki = Pki::shared(dunlin_tests::KeyType::P256);
    let x509 = || Verifiers::from(Trust { x509: Some(pki.trust()), raw_key: None });
    let server_with = |trust, own| server(profile(trust, vec![own]));
    let refuse = |client: &Arc<ClientConfig>, server: &Arc<ServerConfig>, by_client: bool| {
        let mut pair = Pair::new(client, server);
        let error = pair.run().unwrap_err();
        let (judge, peer) =
            if by_client { (&pair.client, &pair.server) } else { (&pair.server, &pair.client) };
        assert_eq!(judge.error(), Some(&error));
        assert_eq!(peer.error(), Some(&Error::AlertReceived(error.alert().unwrap())));
        error
    };
    let by_server = refuse(
        &client(profile(x509(), vec![own.clone()])),
        &server_with(trust(verifier()), pki.server.x509(&awslc())),
        false,
    );
    let by_client = refuse(
        &client(profile(trust(verifier()), vec![pki.client.x509(&awslc())])),
        &server_with(x509(), own.clone()),
        true,
    );
    assert_eq!(by_server, by_client);
    by_server
}

#[track_caller]
fn refused(own: &Credential, verifier: impl Fn() -> CredentialVerifier, alert: Alert, why: &str) {
    let error = refusal(own, verifier);
    assert_eq!(error.alert(), Some(alert), "{error}");
    let Error::Authentication(AuthenticationFailure::RejectedWith(_, text)) = &error else {
        panic!("{error}");
    };
    assert!(text.contains(why), "{text}");
}

/// Every form, with every type of key, over streams.
#[test]
fn authenticates_both_sides_by_credentials_of_every_form() {
    for typ in [KeyType::Ed25519, KeyType::P256, KeyType::P384, KeyType::Rsa2048] {
        let issuer = Party::new(typ);
        let parties = [Party::new(typ), Party::of_method(&JWK, typ)];
        for form in [b'{', b'e', 0xd2] {
            let [device, hub] = [0, 1].map(|at| {
                let party: &Party = &parties[at];
                party.shows(issuer.issue_as(form, party.did().as_str(), unchanged))
            });
            let client = client(profile(trust(issuer.verifier()), vec![device]));
            let server = server(profile(trust(issuer.verifier()), vec![hub]));
            let mut pair = Pair::new(&client, &server);
            pair.connect().unwrap();
            pair.echo(b"hello").unwrap();
            for (peer, party) in peers(&pair).iter().zip([&parties[1], &parties[0]]) {
                assert_eq!((&peer.did, &peer.issuer), (party.did(), issuer.did()));
                assert_eq!(peer.claims.as_ref().unwrap(), json!({"role": "sensor"}).as_object().unwrap());
                assert_eq!((peer.sequence, peer.resolved), (0, NOW_S));
                assert_eq!(peer.valid_until.map(i64::cast_unsigned), Some(UNTIL_S));
                let text = party.document.canonical();
                assert_eq!(peer.document, Sha256Hash::of(&awslc(), text.as_bytes()).unwrap());
            }
        }
    }
}

#[test]
fn authenticates_over_datagrams_and_after_a_retry() {
    let issuer = Party::new(KeyType::P256);
    let device = Party::new(KeyType::Ed25519);
    let hub = Party::new(KeyType::P256);
    let own = |party: &Party| vec![party.shows(issuer.issue(party, unchanged))];
    let config = ClientConfig::new(profile(trust(issuer.verifier()), own(&device)).build().unwrap());
    // Without shares, the server must send a HelloRetryRequest.
    let client = Arc::new(config.with_key_shares(vec![]).unwrap());
    let server = server(profile(trust(issuer.verifier()), own(&hub)));
    let client = DtlsConnection::client(&client, localhost(), SERVER_ADDRESS, NOW).unwrap();
    let server = DtlsConnection::server(&server, CLIENT_ADDRESS, NOW);
    let mut pair = dunlin_sim::Pair::new(client, server, NOW, Duration::from_millis(20));
    pair.run().unwrap();
    for (end, party) in [(&pair.client, &hub), (&pair.server, &device)] {
        let negotiated = end.negotiated().unwrap();
        assert!(negotiated.retried);
        let peer = CredentialIdentity::of(negotiated.peer.as_ref().unwrap()).unwrap();
        assert_eq!(peer.did, *party.did());
    }
}

/// Rule 3 of the wire format: the issuer's key comes from the list of trusted issuers.
#[test]
fn refuses_other_issuers() {
    let issuer = Party::new(KeyType::P256);
    let other = Party::new(KeyType::P256);
    let device = Party::new(KeyType::P256);
    let own = device.shows(other.issue(&device, unchanged));
    refused(&own, || issuer.verifier(), Alert::UNKNOWN_CA, "is not trusted");
    // One that says it is by the trusted issuer.
    let forged = other.issue_as(b'{', device.did().as_str(), unchanged);
    let forged = String::from_utf8(forged).unwrap().replace(other.did().as_str(), issuer.did().as_str());
    let own = device.claims(forged.as_bytes());
    refused(&own, || issuer.verifier(), Alert::BAD_CERTIFICATE, "has no verification method");
    let nobody = CredentialVerifier::new(awslc(), Vec::<DidDocument>::new());
    let refused = profile(trust(nobody), vec![]).build().unwrap_err();
    assert!(refused.to_string().contains("no issuers"), "{refused}");
}

#[test]
fn refuses_credentials_outside_their_time() {
    let issuer = Party::new(KeyType::P256);
    let device = Party::new(KeyType::P256);
    for (name, time, why) in [
        ("validUntil", "2025-12-31T23:59:59Z", "it has expired"),
        ("validFrom", "2026-01-01T00:00:01Z", "not valid yet"),
    ] {
        let own = device.shows(issuer.issue(&device, |credential| credential[name] = time.into()));
        refused(&own, || issuer.verifier(), Alert::CERTIFICATE_EXPIRED, why);
    }
}

#[test]
fn refuses_revoked_credentials_and_those_of_unknown_status() {
    let issuer = Party::new(KeyType::P256);
    let device = Party::new(KeyType::P256);
    let own = device.shows(issuer.issue(&device, with_status));
    let verifier = |revoked, age| issuer.verifier().with_status(lists(issuer.list(revoked, age)));
    refused(&own, || verifier(true, 0), Alert::CERTIFICATE_REVOKED, "has revoked");
    refused(&own, || issuer.verifier(), Alert::BAD_CERTIFICATE, "is not at hand");
    refused(&own, || verifier(false, DEFAULT_STATUS_AGE + 1), Alert::CERTIFICATE_EXPIRED, "is too old");
    let server = server(profile(trust(verifier(false, 0)), vec![own.clone()]));
    Pair::new(&client(profile(trust(verifier(false, 0)), vec![own])), &server).connect().unwrap();
}

/// The signed content is changed, in each form.
#[test]
fn refuses_tampered_credentials() {
    let issuer = Party::new(KeyType::Ed25519);
    let device = Party::new(KeyType::P256);
    for form in [b'{', 0xd2] {
        let mut bytes = issuer.issue_as(form, device.did().as_str(), unchanged);
        let at = bytes.windows(6).position(|window| window == b"sensor").unwrap();
        bytes[at..at + 6].copy_from_slice(b"sender");
        refused(
            &device.claims(&bytes),
            || issuer.verifier(),
            Alert::BAD_CERTIFICATE,
            "the signature is wrong",
        );
    }
    let mut jwt = issuer.issue_as(b'e', device.did().as_str(), unchanged);
    // A character inside the signature.
    let at = jwt.len() - 40;
    jwt[at] = if jwt[at] == b'A' { b'B' } else { b'A' };
    refused(&device.claims(&jwt), || issuer.verifier(), Alert::BAD_CERTIFICATE, "the signature is wrong");
}

/// Rule 4: the metadata of a proof is signed, too.
#[test]
fn refuses_proofs_with_tampered_metadata() {
    let issuer = Party::new(KeyType::P256);
    let device = Party::new(KeyType::P256);
    let signed = issuer.issue_as(b'{', device.did().as_str(), unchanged);
    let with = |name: &str, value: Option<&str>| {
        let mut credential: Value = serde_json::from_slice(&signed).unwrap();
        match value {
            Some(value) => credential["proof"][name] = value.into(),
            None => drop(credential["proof"].as_object_mut().unwrap().remove(name)),
        }
        credential.to_string().into_bytes()
    };
    let wrong = "the signature is wrong";
    for (name, value, why) in [
        ("created", Some("2025-12-31T00:00:00Z"), wrong),
        ("created", None, wrong),
        ("expires", Some("2026-02-01T00:00:00Z"), wrong),
        ("domain", Some("hub.example"), wrong),
        ("id", Some("urn:uuid:7578af3b-d52d-4ff5-9b82-52a4c0a7e1d1"), wrong),
        ("proofPurpose", Some("authentication"), "assertionMethod"),
    ] {
        refused(&device.claims(&with(name, value)), || issuer.verifier(), Alert::BAD_CERTIFICATE, why);
    }
    // The header of a JWT.
    let jwt = String::from_utf8(issuer.issue_as(b'e', device.did().as_str(), unchanged)).unwrap();
    let (header, rest) = jwt.split_once('.').unwrap();
    let mut header: Value = serde_json::from_slice(&Base64UrlUnpadded::decode_vec(header).unwrap()).unwrap();
    header.as_object_mut().unwrap().remove("cty").unwrap();
    let tampered = format!("{}.{rest}", Base64UrlUnpadded::encode_string(header.to_string().as_bytes()));
    refused(&device.claims(tampered.as_bytes()), || issuer.verifier(), Alert::BAD_CERTIFICATE, wrong);
}

/// Rule 4: the DID in the credential is that whose key signs the handshake.
#[test]
fn refuses_the_credential_of_somebody_else() {
    let issuer = Party::new(KeyType::P256);
    let device = Party::new(KeyType::P256);
    let thief = Party::new(KeyType::P256);
    let stolen = issuer.issue(&device, unchanged);
    let error = refusal(&thief.claims(&stolen), || issuer.verifier());
    assert_eq!(error, PeerMisbehaved::BadSignature.into());
    assert_eq!(error.alert(), Some(Alert::DECRYPT_ERROR));
    assert!(error.to_string().contains("the signature over the handshake does not verify"), "{error}");
    // A subject without a DID has no key.
    let unnamed = issuer.issue_as(b'{', "https://device.example", unchanged);
    refused(&thief.claims(&unnamed), || issuer.verifier(), Alert::BAD_CERTIFICATE, "credentialSubject");
}

/// Rule 1: a side accepts only what it has asked for.
#[test]
fn refuses_a_did_and_other_bytes_where_it_asked_for_a_credential() {
    let issuer = Party::new(KeyType::P256);
    let device = Party::new(KeyType::P256);
    let did = device.did().as_str().as_bytes();
    for (bytes, why) in [
        (did, "neither JSON, a JWT nor COSE"),
        (b"{\"id\": ".as_slice(), "line 1"),
        (b"eyJ".as_slice(), "malformed JWT"),
        (b"\xd2\x84".as_slice(), "COSE"),
    ] {
        refused(&device.claims(bytes), || issuer.verifier(), Alert::DECODE_ERROR, why);
    }
}

#[test]
fn refuses_what_it_does_not_support() {
    let issuer = Party::new(KeyType::P256);
    let device = Party::new(KeyType::P256);
    let unsupported = Alert::UNSUPPORTED_CERTIFICATE;
    // A member that the issuer's own check refuses to sign, and an unknown cryptosuite.
    let signed = String::from_utf8(issuer.issue_as(b'{', device.did().as_str(), unchanged)).unwrap();
    for (from, to, why) in [
        (
            "\"type\":[\"VerifiableCredential\"]",
            "\"termsOfUse\":1,\"type\":[\"VerifiableCredential\"]",
            "termsOfUse",
        ),
        ("ecdsa-jcs-2019", "ecdsa-rdfc-2019", "unknown cryptosuite"),
        (CREDENTIALS_V2, "https://example.org/v1", "unknown context"),
    ] {
        assert!(signed.contains(from), "{signed}");
        refused(&device.claims(signed.replace(from, to).as_bytes()), || issuer.verifier(), unsupported, why);
    }
    // Another method than the peer has named.
    let web = Party::named("did:web:device.example");
    let credential = issuer.issue(&web, unchanged);
    refused(&web.claims(&credential), || issuer.verifier(), unsupported, "its method is not supported");
    // A profile without signatures by the issuer's type of key, and one without its hash.
    let device = Party::new(KeyType::Ed25519);
    let own = device.shows(issuer.issue(&device, unchanged));
    for accepted in [SignatureScheme::ED25519, SignatureScheme::ECDSA_SECP384R1_SHA384] {
        let judge = profile(trust(issuer.verifier()), vec![own.clone()]);
        let judge = server(judge.certificate_signature_schemes(Some(vec![accepted])));
        let client = client(profile(trust(issuer.verifier()), vec![own.clone()]));
        let error = Pair::new(&client, &judge).run().unwrap_err();
        assert_eq!(error.alert(), Some(unsupported), "{error}");
        assert!(error.to_string().contains("the issuer has signed with ecdsa_secp256r1_sha256"), "{error}");
    }
}

#[test]
fn accepts_only_the_peers_on_its_list() {
    let issuer = Party::new(KeyType::P256);
    let device = Party::new(KeyType::P256);
    let own = device.shows(issuer.issue(&device, unchanged));
    let only = |dids: Vec<Did>| issuer.verifier().with_peers(TrustList::new(dids));
    let other = Party::new(KeyType::P256).did().clone();
    refused(&own, || only(vec![other.clone()]), Alert::UNKNOWN_CA, "not on the list");
    refused(&own, || only(vec![]), Alert::UNKNOWN_CA, "not on the list");
    let listed = || only(vec![other.clone(), device.did().clone()]);
    let server = server(profile(trust(listed()), vec![own.clone()]));
    Pair::new(&client(profile(trust(listed()), vec![own])), &server).connect().unwrap();
}

/// Rule 5: a first document alone counts only for a DID that is pinned to it.
#[test]
fn accepts_a_pinned_document_of_did_dunlin() {
    let provider = awslc();
    let hash_of_key = || Sha256Hash::of_key(&provider, &public(&key(KeyType::P256))).unwrap();
    let dunlin = || {
        let key = key(KeyType::P256);
        let document =
            first_document(&provider, "registry.example", &public(&key), hash_of_key(), hash_of_key());
        Party { key, document: document.unwrap() }
    };
    let issuer = dunlin();
    let device = dunlin();
    let other = dunlin();
    let pin = |party: &Party| {
        let text = party.document.canonical();
        format!("{} {}\n", party.did(), Sha256Hash::of(&provider, text.as_bytes()).unwrap())
    };
    let list = TrustList::read(&format!("{}{}", pin(&issuer), pin(&device))).unwrap();
    let documents = [issuer.document.clone(), device.document.clone()];
    let pinned = || Arc::new(PinnedDocuments::new(&provider, &list, documents.clone()).unwrap());
    let of_issuer = TrustList::new([issuer.did().clone()]);
    let issuers = ListedIssuers::of(&provider, &of_issuer, &[pinned()], &[], NOW_S).unwrap().resolved;
    let verifier = || CredentialVerifier::new(provider.clone(), issuers.clone()).with_resolver(pinned());
    let own = device.shows(issuer.issue(&device, unchanged));
    let server = server(profile(trust(verifier()), vec![own.clone()]));
    Pair::new(&client(profile(trust(verifier()), vec![own.clone()])), &server).connect().unwrap();

    let unpinned = other.shows(issuer.issue(&other, unchanged));
    refused(&unpinned, verifier, Alert::BAD_CERTIFICATE, "is not at hand");
    let unknown = ListedIssuers::of(&provider, &of_issuer, &[], &[], NOW_S).unwrap_err();
    assert_eq!(unknown, ResolveError::Unsupported(issuer.did().clone()));
    let not_pinned = |list: &str, document: &DidDocument| {
        PinnedDocuments::new(&provider, &TrustList::read(list).unwrap(), [document.clone()]).unwrap_err()
    };
    let did = other.did().clone();
    assert_eq!(not_pinned(&did.to_string(), &other.document), ResolveError::NotPinned(did.clone()));
    let hash = pin(&device).split_once(' ').unwrap().1.to_owned();
    assert_eq!(not_pinned(&format!("{did} {hash}"), &other.document), ResolveError::NotPinned(did.clone()));
    // A made-up document for the DID.
    let mut forged = device.document.value().clone();
    forged["id"] = did.as_str().into();
    let forged = serde_json::to_string(&forged).unwrap().replace(device.did().as_str(), did.as_str());
    let forged = DidDocument::read(forged.as_bytes(), &did).unwrap();
    let hash = Sha256Hash::of(&provider, forged.canonical().as_bytes()).unwrap();
    let not_first = not_pinned(&format!("{did} {hash}"), &forged);
    assert!(matches!(not_first, ResolveError::NotFirst(_)), "{not_first}");

    // A pinned issuer counts until a registry says otherwise.
    let registry = Arc::new(DocumentCache::new(awslc(), vec![DidMethod::DUNLIN], 3600));
    registry.deactivate(issuer.did().clone());
    let knows = || verifier().with_resolver(registry.clone());
    refused(&own, knows, Alert::CERTIFICATE_REVOKED, "no longer the latest");
}

fn cache() -> Arc<DocumentCache> {
    Arc::new(DocumentCache::new(awslc(), vec![DidMethod::WEB], 3600))
}

/// Both with a handshake cache, or with sessions.
fn remembering(
    client: &ClientConfig,
    server: &ServerConfig,
    cached: bool,
) -> (Arc<ClientConfig>, Arc<ServerConfig>) {
    let client = client.clone();
    let server = server.clone();
    if !cached {
        let client = client.with_sessions(Arc::new(MemoryClientSessions::new(8, 8)));
        let seal = Arc::new(RotatingTickets::new(awslc()).unwrap());
        return (Arc::new(client), Arc::new(server.with_tickets(Tickets::stateless(seal))));
    }
    let ours = Arc::new(MemoryClientCache::default());
    let theirs = Arc::new(MemoryServerCache::new(8));
    let client = client.with_handshake_cache(CacheMode::Compact, ours, DEFAULT_MAX_AGE);
    let server = server.with_handshake_cache(CacheMode::Compact, theirs, DEFAULT_MAX_AGE);
    (Arc::new(client), Arc::new(server.unwrap()))
}

/// Rule 7: sessions and cache entries end when this side hears of a rotation, a deactivation or a revocation,
/// or the credential ends.
#[test]
fn resumes_only_as_long_as_nothing_has_changed() {
    type Change = fn(&CredentialVerifier, &DocumentCache, &Party, &Party);
    let rotated: Change = |_, known, _, device| {
        let key = Party::named(device.did().as_str());
        known.insert(key.document, 2, NOW_S).unwrap();
    };
    let deactivated: Change = |_, known, _, device| known.deactivate(device.did().clone());
    let revoked: Change = |verifier, _, issuer, _| {
        verifier.update_status(|lists| lists.insert(issuer.list(true, 0))).unwrap();
    };
    for cached in [false, true] {
        for (change, alert) in [
            (rotated, Alert::DECRYPT_ERROR),
            (deactivated, Alert::CERTIFICATE_REVOKED),
            (revoked, Alert::CERTIFICATE_REVOKED),
        ] {
            let issuer = Party::new(KeyType::P256);
            let device = Party::named("did:web:device.example");
            let known = cache();
            let hub = Party::new(KeyType::P256);
            known.insert(device.document.clone(), 1, NOW_S).unwrap();
            let verifier = issuer.verifier().with_resolver(known.clone());
            let verifier = Arc::new(verifier.with_status(lists(issuer.list(false, 100))));
            let trusts = Verifiers::default().with(verifier.clone());
            let own = device.shows(issuer.issue(&device, with_status));
            // The server asks for DIDs of the methods that both sides resolve.
            let resolves = issuer.verifier().with_resolver(cache());
            let client = client(profile(trust(resolves), vec![own]));
            let own = hub.shows(issuer.issue(&hub, unchanged));
            let (client, server) = remembering(&client, &server(profile(trusts, vec![own])), cached);
            let connected = || {
                let mut pair = Pair::new(&client, &server);
                pair.connect().unwrap();
                pair.echo(b"hello").unwrap();
                let end: Negotiated = pair.server.negotiated().unwrap().clone();
                // The facts that the verdict rests on outlive the credential.
                let peer = CredentialIdentity::of(end.peer.as_ref().unwrap()).unwrap();
                assert_eq!((&peer.did, peer.sequence, peer.statuses.len()), (device.did(), 1, 1));
                if cached { end.is_peer_cached() } else { end.is_resumed() }
            };
            assert_eq!([connected(), connected()], [false, true]);
            change(&verifier, &known, &issuer, &device);
            let mut pair = Pair::new(&client, &server);
            let error = pair.run().unwrap_err();
            assert_eq!(pair.server.error().and_then(Error::alert), Some(alert), "{cached} {error}");
        }
    }
}

/// Rule 7: the verdict ends with the credential, the status list or the resolution, whichever is first.
#[test]
fn a_verdict_ends_with_the_first_thing_that_it_rests_on() {
    let issuer = Party::new(KeyType::P256);
    let device = Party::named("did:web:device.example");
    let judged = |resolved_s: Seconds, made_ago: Seconds, change: fn(&mut Value)| {
        let known = cache();
        known.insert(device.document.clone(), 1, resolved_s).unwrap();
        let verifier = issuer.verifier().with_resolver(known);
        let verifier = verifier.with_status(lists(issuer.list(false, made_ago)));
        let entry = CertificateDer::from(issuer.issue(&device, change));
        let provider = awslc();
        let verified = verifier.judge(&[entry], Stapled::default(), provider.signatures.all, NOW_S).unwrap();
        let validity = verified.validity;
        // 2025-12-01T00:00:00Z.
        assert_eq!(validity.from_s(), 1_764_547_200);
        (validity.until_s(), validity.reason())
    };
    let at = |seconds: Seconds| u64::try_from(NOW_S + seconds).unwrap();
    assert_eq!(judged(NOW_S, 0, with_status), (at(3600), AskAgain::Resolution));
    assert_eq!(judged(NOW_S, 85_400, with_status), (at(1000), AskAgain::Status));
    let soon = |credential: &mut Value| {
        with_status(credential);
        credential["validUntil"] = "2026-01-01T00:10:00Z".into();
    };
    assert_eq!(judged(NOW_S, 0, soon), (at(600), AskAgain::Expiry));
    // did:key never changes, and this credential has no status.
    let device = Party::new(KeyType::P256);
    let entry = CertificateDer::from(issuer.issue(&device, unchanged));
    let verified =
        issuer.verifier().judge(&[entry], Stapled::default(), awslc().signatures.all, NOW_S).unwrap();
    assert_eq!((verified.validity.until_s(), verified.validity.reason()), (UNTIL_S, AskAgain::Expiry));
}

/// Another list of issuers, other contexts, another list of peers and another age are other settings, to
/// which sessions are not bound.
#[test]
fn sessions_are_bound_to_the_trust() {
    use dunlin::auth::Verifier as _;
    let issuer = Party::new(KeyType::P256);
    let other = Party::new(KeyType::P256);
    let digest = |verifier: &CredentialVerifier| {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        verifier.settings(&mut |part| parts.push(part.to_vec()));
        parts
    };
    let peers = |did: &Did| issuer.verifier().with_peers(TrustList::new([did.clone()]));
    let context = |sha256: &str| Context { url: "https://example.org/v1".into(), sha256: sha256.into() };
    let with_contexts = |contexts| {
        let issuers = Verifier::new([issuer.document.clone()]).with_contexts(contexts);
        CredentialVerifier::of(awslc(), issuers)
    };
    let all = [
        issuer.verifier(),
        other.verifier(),
        CredentialVerifier::new(awslc(), [issuer.document.clone(), other.document.clone()]),
        with_contexts(Contexts::default().with(context("1"))),
        with_contexts(Contexts::default().with(context("2"))),
        peers(other.did()),
        peers(issuer.did()),
        issuer.verifier().with_peers(TrustList::default()),
        issuer.verifier().with_status(StatusLists::new(60, 1)),
        issuer.verifier().with_resolver(cache()),
        issuer.verifier().with_resolver(Arc::new(DocumentCache::new(awslc(), vec![DidMethod::WEB], 60))),
        issuer.verifier().with_resolver(Arc::new(DocumentCache::new(awslc(), vec![DidMethod::DUNLIN], 60))),
    ];
    for (at, one) in all.iter().enumerate() {
        for another in &all[at + 1..] {
            assert_ne!(digest(one), digest(another));
        }
    }
    // A newer list is no other setting: the verifier asks it before each resumption.
    let newer = issuer.verifier().with_status(lists(issuer.list(true, 0)));
    assert_eq!(digest(&newer), digest(&issuer.verifier()));
}

/// Rule 9: of several credentials, the one by an issuer that the peer names comes first.
#[test]
fn shows_the_credential_by_an_issuer_that_the_peer_names() {
    let first = Party::new(KeyType::P256);
    let second = Party::new(KeyType::P256);
    let hub = Party::new(KeyType::P256);
    let own: Vec<_> = [&first, &second].map(|issuer| hub.shows(issuer.issue(&hub, unchanged))).into();
    let server = ServerConfig::new(profile(Verifiers::default(), own).build().unwrap()).unwrap();
    let client = client(profile(trust(second.verifier()), vec![]).send_authorities(true));
    let mut pair = Pair::new(&client, &Arc::new(server));
    pair.connect().unwrap();
    let peer = pair.client.negotiated().unwrap().peer.as_ref().and_then(CredentialIdentity::of).unwrap();
    assert_eq!(peer.issuer, *second.did());
}

/// Rule 1: without trust anchors, certificates are no substitute for a credential.
#[test]
fn certificates_do_not_replace_credentials() {
    let issuer = Party::new(KeyType::P256);
    let pki = Pki::shared(dunlin_tests::KeyType::P256);
    let x509 = || Verifiers::from(Trust { x509: Some(pki.trust()), raw_key: None });
    let server_of = |trust| server(profile(trust, vec![pki.server.x509(&awslc())]));
    let client_of = |trust| client(profile(trust, vec![pki.client.x509(&awslc())]));
    let error = Pair::new(&client_of(trust(issuer.verifier())), &server_of(x509())).run().unwrap_err();
    assert_eq!(error.alert(), Some(Alert::UNSUPPORTED_CERTIFICATE), "{error}");
    let error = Pair::new(&client_of(x509()), &server_of(trust(issuer.verifier()))).run().unwrap_err();
    assert_eq!(error.alert(), Some(Alert::UNSUPPORTED_CERTIFICATE), "{error}");
    // With anchors for the peer, they may.
    let both = || x509().with(Arc::new(issuer.verifier()));
    let mut pair = Pair::new(&client_of(both()), &server_of(both()));
    pair.connect().unwrap();
    let peer = pair.client.negotiated().unwrap().peer.as_ref().unwrap();
    assert_eq!(peer.certificate_type(), Some(CertificateType::X509));
}

#[test]
fn long_claims_are_not_kept_and_long_identifiers_are_cut_in_logs() {
    let issuer = Party::new(KeyType::P256);
    let device = Party::of_method(&JWK, KeyType::Rsa2048);
    let identity = |len: usize| {
        let credential = issuer.issue(&device, |credential| {
            credential["credentialSubject"]["note"] = "n".repeat(len).into();
        });
        let provider = awslc();
        let entries = [CertificateDer::from(credential)];
        issuer
            .verifier()
            .judge(&entries, Stapled::default(), provider.signatures.all, NOW_S)
            .unwrap()
            .identity
    };
    for (len, kept) in [(10, true), (2048, false)] {
        let identity = identity(len);
        let peer = CredentialIdentity::of(&identity).unwrap();
        assert_eq!((peer.claims.is_some(), &peer.did, &peer.issuer), (kept, device.did(), issuer.did()));
        let shown = identity.to_string();
        assert_eq!(shown, format!("VC {}…", &device.did().as_str()[..MAX_SHOWN_DID]));
    }
    let other = OtherIdentity::new(CertificateType(225), *b"id", "text").unwrap();
    assert_eq!(CredentialIdentity::of(&PeerIdentity::Other(other)), None);
}

#[test]
fn refusals_say_what_can_be_looked_up() {
    let issuer = Party::new(KeyType::P256);
    let device = Party::new(KeyType::P256);
    let entry = CertificateDer::from(issuer.issue(&device, with_status));
    let provider = awslc();
    let judge = |entries: &[CertificateDer<'_>]| {
        issuer.verifier().judge(entries, Stapled::default(), provider.signatures.all, NOW_S).unwrap_err()
    };
    assert!(judge(std::slice::from_ref(&entry)).is_missing());
    let several = judge(&[entry.clone(), entry]);
    assert_eq!((several.is_missing(), several.alert()), (false, Alert::DECODE_ERROR));
    assert_eq!(several, Refusal::Entries);
}
