//! Handshakes with the verifiers of `dunlin-identity` in messages of their own: every mode of the paper with
//! each of its types of keys, and the verdicts of the verifier of bare DIDs.

use std::sync::Arc;

use dunlin::auth::{Acceptance, AskAgain, Trust, Verifiers};
use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin::error::AuthenticationFailure;
use dunlin::pki_types::CertificateDer;
use dunlin::resume::Tickets;
use dunlin::wire::{AlertDescription as Alert, CertificateType, DidMethod};
use dunlin::{
    Answer, ClientAuth, ClientConfig, Credential, Error, PeerIdentity, Profile, ProfileBuilder, Question,
    ServerConfig, Side, SsiMessages,
};
use dunlin_identity::credential::{CREDENTIALS_V2, Contexts, Issuer, Seconds};
use dunlin_identity::handshake::{
    CredentialIdentity, CredentialVerifier, DocumentCache, Holding, IdentifierIdentity, IdentifierVerifier,
};
use dunlin_identity::key::PublicKey;
use dunlin_identity::method::dunlin::first_document;
use dunlin_identity::method::{KEY, Method};
use dunlin_identity::{Did, DidDocument, DidUrl, Relationship, Sha256Hash, TrustList};
use dunlin_store::{MemoryClientSessions, RotatingTickets};
use dunlin_tests::{KeyType, Leaf, NOW, Pair, Pki, awslc, providers};
use serde_json::json;

use crate::wallet::{DID, TRANSPORTS, VC, negotiated, negotiated_over, types};

/// The time of the tests.
const NOW_S: Seconds = 1_767_225_600;
const X509: CertificateType = CertificateType::X509;

/// A party with a DID, whose key is a leaf's.
struct Party {
    key: Arc<dyn SigningKey>,
    document: DidDocument,
}

impl Party {
    /// With a `did:key`.
    fn new(leaf: &Leaf) -> Self {
        let key = leaf.signing_key(&awslc());
        let did = KEY.create(&PublicKey::from_spki(key.public_key()).unwrap()).unwrap();
        Self { key, document: KEY.resolve(&did).unwrap() }
    }

    /// With a `did:dunlin`.
    fn registered(leaf: &Leaf) -> Self {
        let key = leaf.signing_key(&awslc());
        let public = PublicKey::from_spki(key.public_key()).unwrap();
        let [next, recovery] = [1, 2].map(|byte| Sha256Hash::from_bytes([byte; 32]));
        let document = first_document(&awslc(), "registry.example", &public, next, recovery).unwrap();
        Self { key, document }
    }

    fn did(&self) -> &Did {
        self.document.id()
    }

    fn method(&self) -> DidUrl {
        self.document.keys(Relationship::Authentication).next().unwrap().0.clone()
    }

    /// The party's credential: its DID, or a credential by this issuer.
    fn shows(&self, issuer: Option<&Self>) -> Credential {
        let holding = match issuer {
            None => Holding::of_did(self.key.clone(), self.method()),
            Some(issuer) => {
                let credential = json!({
                    "@context": [CREDENTIALS_V2],
                    "type": ["VerifiableCredential"],
                    "issuer": issuer.did().as_str(),
                    "credentialSubject": {"id": self.did().as_str()},
                });
                let provider = awslc();
                let method = issuer.method();
                let issuer = Issuer { provider: &provider, signer: &*issuer.key, method: &method };
                let text = issuer.issue(&credential, &Contexts::default(), NOW_S).unwrap();
                let contexts = Contexts::default();
                Holding::of_credential(self.key.clone(), self.method(), text.into_bytes(), &contexts).unwrap()
            }
        };
        holding.to_tls(&awslc()).unwrap()
    }

    /// Trust in this DID alone.
    fn trusted(&self) -> IdentifierVerifier {
        IdentifierVerifier::new(awslc(), TrustList::new([self.did().clone()]))
    }
}

fn profile(trust: Verifiers, own: Vec<Credential>) -> ProfileBuilder {
    Profile::builder(awslc()).trust(trust).credentials(own)
}

fn alone(trust: Verifiers, own: Vec<Credential>) -> ProfileBuilder {
    profile(trust, own).ssi_messages(SsiMessages::Alone)
}

fn client(profile: ProfileBuilder) -> Arc<ClientConfig> {
    Arc::new(ClientConfig::new(profile.build().unwrap()))
}

fn server(profile: ProfileBuilder, auth: ClientAuth) -> Arc<ServerConfig> {
    Arc::new(ServerConfig::new(profile.build().unwrap()).unwrap().with_client_auth(auth).unwrap())
}

/// The DID of a peer that has shown a credential or its DID.
fn did_of(peer: &PeerIdentity) -> Option<Did> {
    let by_credential = CredentialIdentity::of(peer).map(|peer| peer.did);
    by_credential.or_else(|| IdentifierIdentity::of(peer).map(|peer| peer.did))
}

/// The sides of a test: a device and a hub with keys of one type, the issuer of both, and the provider of
/// each.
struct Cast {
    pki: &'static Pki,
    issuer: Party,
    device: Party,
    hub: Party,
    providers: [Arc<CryptoProvider>; 2],
}

impl Cast {
    fn new(typ: KeyType, providers: [Arc<CryptoProvider>; 2]) -> Self {
        let pki = Pki::shared(typ);
        // The issuer's key must differ from those of the holders.
        let issuer = Party::new(&Pki::new(typ).server);
        let party = |leaf: &Leaf, provider: &_| Party { key: leaf.signing_key(provider), ..Party::new(leaf) };
        let [device, hub] = [party(&pki.client, &providers[0]), party(&pki.server, &providers[1])];
        Self { pki, issuer, device, hub, providers }
    }

    /// The credential of a side.
    fn shows(&self, typ: CertificateType, side: Side) -> Credential {
        let (party, leaf) = match side {
            Side::Client => (&self.device, &self.pki.client),
            Side::Server => (&self.hub, &self.pki.server),
        };
        match typ {
            VC => party.shows(Some(&self.issuer)),
            DID => party.shows(None),
            _ => leaf.x509(self.provider(side)),
        }
    }

    fn provider(&self, side: Side) -> &Arc<CryptoProvider> {
        &self.providers[usize::from(side == Side::Server)]
    }

    /// A side's trust in identities of these types.
    fn trusts(&self, types: &[CertificateType], side: Side) -> Verifiers {
        let provider = self.provider(side);
        let x509 = types.contains(&X509).then(|| self.pki.trust());
        let mut trust = Verifiers::from(Trust { x509, raw_key: None });
        if types.contains(&VC) {
            let issuers = [self.issuer.document.clone()];
            trust = trust.with(Arc::new(CredentialVerifier::new(provider.clone(), issuers)));
        }
        if types.contains(&DID) {
            let dids = [&self.device, &self.hub].map(|party| party.did().clone());
            trust = trust.with(Arc::new(IdentifierVerifier::new(provider.clone(), TrustList::new(dids))));
        }
        trust
    }

    /// A side that trusts identities of these types and shows these.
    fn side(&self, side: Side, trusts: &[CertificateType], own: Vec<Credential>) -> ProfileBuilder {
        let profile = Profile::builder(self.provider(side).clone()).trust(self.trusts(trusts, side));
        profile.credentials(own).ssi_messages(SsiMessages::Alone)
    }

    /// Checks what both sides learn: certificates, or DIDs.
    fn check(
        &self,
        client: &Arc<ClientConfig>,
        server: &Arc<ServerConfig>,
        learnt: [Option<CertificateType>; 2],
        what: &str,
    ) {
        for over in TRANSPORTS {
            let ends = negotiated_over(over, client, server, NOW);
            assert_eq!(types(&ends), learnt, "{what}, {over:?}");
            for ((end, party), typ) in ends.iter().zip([&self.hub, &self.device]).zip(learnt) {
                let did = end.peer.as_ref().and_then(did_of);
                let expected = typ.filter(|typ| *typ != X509).map(|_| party.did().clone());
                assert_eq!(did, expected, "{what}, {over:?}");
            }
        }
    }
}

const PAPERS_KEYS: [KeyType; 3] = [KeyType::Rsa2048, KeyType::P256, KeyType::Ed25519];

/// Figures 1 and 2 of the paper: each side shows a certificate, a credential or a DID; the client may also
/// show nothing.
#[test]
fn every_pair_of_identities_authenticates_with_every_type_of_key() {
    let [awslc, rustcrypto] = providers();
    for key in PAPERS_KEYS {
        for (providers, names) in [
            ([&awslc, &awslc], "AWS-LC alone"),
            ([&awslc, &rustcrypto], "a server with RustCrypto"),
            ([&rustcrypto, &awslc], "a client with RustCrypto"),
        ] {
            let cast = Cast::new(key, providers.map(Arc::clone));
            for of_server in [X509, VC, DID] {
                for of_client in [None, Some(X509), Some(VC), Some(DID)] {
                    let own = of_client.map(|typ| cast.shows(typ, Side::Client)).into_iter().collect();
                    let auth = if of_client.is_some() { ClientAuth::Required } else { ClientAuth::None };
                    let trusts: Vec<_> = of_client.into_iter().collect();
                    let client = client(cast.side(Side::Client, &[of_server], own));
                    let own = vec![cast.shows(of_server, Side::Server)];
                    let server = server(cast.side(Side::Server, &trusts, own), auth);
                    let what = format!("{key:?}, {names}: {of_server}, {of_client:?}");
                    cast.check(&client, &server, [Some(of_server), of_client], &what);
                }
            }
        }
    }
}

/// §III.D of the paper: sides without ssi_parameters, without a common method, and without a DID fall back to
/// certificates.
#[test]
fn falls_back_to_certificates_with_every_type_of_key() {
    for key in PAPERS_KEYS {
        let cast = Cast::new(key, [awslc(), awslc()]);
        for typ in [VC, DID] {
            let both = |side| vec![cast.shows(typ, side), cast.shows(X509, side)];
            let x509 = |side| vec![cast.shows(X509, side)];
            let side = |side, trusts: &[_], own| cast.side(side, trusts, own);
            let required = |profile| server(profile, ClientAuth::Required);
            let c = Side::Client;
            let s = Side::Server;
            let full_client = client(side(c, &[typ, X509], both(c)));
            let full_server = required(side(s, &[typ, X509], both(s)));
            let check = |client: &_, server: &_, learnt, what| {
                cast.check(client, server, learnt, &format!("{key:?}, {typ}: {what}"));
            };
            let neither = [Some(X509); 2];

            let original = required(side(s, &[X509], x509(s)).ssi_messages(SsiMessages::Off));
            check(&full_client, &original, neither, "a server without ssi_parameters");
            let original = client(side(c, &[X509], x509(c)).ssi_messages(SsiMessages::Off));
            check(&original, &full_server, neither, "a client without ssi_parameters");

            let registered = Party::registered(&cast.pki.server).shows((typ == VC).then_some(&cast.issuer));
            let other = required(side(s, &[X509], vec![registered, cast.shows(X509, s)]));
            check(&full_client, &other, neither, "no common method for the server");
            let registered = Party::registered(&cast.pki.client).shows((typ == VC).then_some(&cast.issuer));
            let other = client(side(c, &[typ], vec![registered, cast.shows(X509, c)]));
            check(&other, &full_server, [Some(typ), Some(X509)], "no common method for the client");

            let without = required(side(s, &[typ], x509(s)));
            check(&full_client, &without, [Some(X509), Some(typ)], "a server without a DID");
            let without = client(side(c, &[typ], x509(c)));
            check(&without, &full_server, [Some(typ), Some(X509)], "a client without a DID");
            let nothing = client(side(c, &[typ], vec![]));
            let optional = server(side(s, &[typ], both(s)), ClientAuth::Optional);
            check(&nothing, &optional, [Some(typ), None], "a client with nothing to show");
        }
    }
}

fn cache() -> Arc<DocumentCache> {
    Arc::new(DocumentCache::new(awslc(), vec![DidMethod::DUNLIN], 3600))
}

/// The error with which a client refuses a server with this DID.
fn refusal(own: Credential, verifier: IdentifierVerifier) -> Error {
    let client = client(alone(Verifiers::default().with(Arc::new(verifier)), vec![]));
    let server = server(alone(Verifiers::default(), vec![own]), ClientAuth::None);
    let mut pair = Pair::new(&client, &server);
    let error = pair.run().unwrap_err();
    assert_eq!(pair.client.error(), Some(&error));
    error
}

#[track_caller]
fn refused(own: Credential, verifier: IdentifierVerifier, alert: Alert, why: &str) {
    let error = refusal(own, verifier);
    assert_eq!(error.alert(), Some(alert), "{error}");
    let Error::Authentication(AuthenticationFailure::RejectedWith(_, text)) = &error else {
        panic!("{error}");
    };
    assert!(text.contains(why), "{text}");
}

#[test]
fn refuses_dids_that_are_not_trusted_or_not_resolved() {
    let pki = Pki::shared(KeyType::P256);
    let hub = Party::new(&pki.server);
    let other = Party::new(&pki.client);
    refused(hub.shows(None), other.trusted(), Alert::UNKNOWN_CA, "is not on the list of trusted DIDs");
    let registered = Party::registered(&pki.server);
    let with = |known: Arc<DocumentCache>| registered.trusted().with_resolver(known);
    refused(registered.shows(None), with(cache()), Alert::BAD_CERTIFICATE, "is not at hand");
    let ended = cache();
    ended.deactivate(registered.did().clone());
    refused(registered.shows(None), with(ended), Alert::CERTIFICATE_REVOKED, "is deactivated");
    // The document has another key than the server.
    let thief = Party { key: other.key.clone(), document: hub.document.clone() };
    assert_eq!(refusal(thief.shows(None), hub.trusted()).alert(), Some(Alert::DECRYPT_ERROR));
}

/// The engine compares the method with the text of a DID, so a malformed one has a known method.
#[test]
fn refuses_what_is_no_did() {
    let hub = Party::new(&Pki::shared(KeyType::P256).server);
    let judge = |entries: &[CertificateDer<'_>]| hub.trusted().judge(entries, None, NOW_S).unwrap_err();
    let entry = |bytes: &[u8]| CertificateDer::from(bytes.to_vec());
    for bytes in [&b"did:key:"[..], b"did:key:z6Mk#key", b"did:key:\xff", b"{}"] {
        assert_eq!(judge(&[entry(bytes)]).alert(), Alert::DECODE_ERROR, "{bytes:?}");
    }
    assert_eq!(judge(&[entry(b"did:key:z1"), entry(b"did:key:z1")]).alert(), Alert::DECODE_ERROR);
    let nobody = IdentifierVerifier::new(awslc(), TrustList::default());
    let refused = alone(Verifiers::default().with(Arc::new(nobody)), vec![]).build().unwrap_err();
    assert!(refused.to_string().contains("no decentralised identifiers are trusted"), "{refused}");
}

#[test]
fn asks_for_the_document_of_a_did() {
    let hub = Party::registered(&Pki::shared(KeyType::Ed25519).server);
    let known = cache();
    let verifier = Arc::new(hub.trusted().with_resolver(known.clone()).asking());
    let client = client(alone(Verifiers::default().with(verifier.clone()), vec![]));
    let server = server(alone(Verifiers::default(), vec![hub.shows(None)]), ClientAuth::None);
    let mut pair = Pair::new(&client, &server);
    pair.run().unwrap();
    let (id, question) = pair.client_question().unwrap();
    let Question::Verify { certificates, did_proof, .. } = question else { panic!("{question:?}") };
    assert!(verifier.judge(&certificates, did_proof.as_deref(), NOW_S).unwrap_err().is_missing());
    known.insert(hub.document.clone(), 0, NOW_S).unwrap();
    let verified = verifier.judge(&certificates, did_proof.as_deref(), NOW_S).unwrap();
    let until = u64::try_from(NOW_S + 3600).unwrap();
    assert_eq!((verified.validity.until_s(), verified.validity.reason()), (until, AskAgain::Resolution));
    let answer = Acceptance::within(verified.validity).with_peer(verified);
    pair.client.answer(NOW, id, Answer::Verified(Ok(answer))).unwrap();
    pair.connect().unwrap();
    let peer = pair.client.negotiated().unwrap().peer.clone().unwrap();
    let peer = IdentifierIdentity::of(&peer).unwrap();
    let hash = Sha256Hash::of(&awslc(), hub.document.canonical().as_bytes()).unwrap();
    assert_eq!((&peer.did, peer.document, peer.sequence, peer.resolved), (hub.did(), hash, 0, NOW_S));
}

/// A session keeps what its verdict rests on, and is not resumed when the DID has ended.
#[test]
fn resumes_a_did_until_it_is_deactivated() {
    let hub = Party::registered(&Pki::shared(KeyType::P256).server);
    let known = cache();
    known.insert(hub.document.clone(), 0, NOW_S).unwrap();
    let verifier = hub.trusted().with_resolver(known.clone());
    let config = (*client(alone(Verifiers::default().with(Arc::new(verifier)), vec![]))).clone();
    let client = Arc::new(config.with_sessions(Arc::new(MemoryClientSessions::new(8, 8))));
    let seal = Arc::new(RotatingTickets::new(awslc()).unwrap());
    let server = (*server(alone(Verifiers::default(), vec![hub.shows(None)]), ClientAuth::None)).clone();
    let server = Arc::new(server.with_tickets(Tickets::stateless(seal)));
    for resumed in [false, true] {
        let [end, _] = negotiated(&client, &server);
        assert_eq!(end.is_resumed(), resumed);
        assert_eq!(did_of(end.peer.as_ref().unwrap()).as_ref(), Some(hub.did()));
    }
    known.deactivate(hub.did().clone());
    let mut pair = Pair::new(&client, &server);
    let error = pair.run().unwrap_err();
    assert_eq!(pair.client.error().and_then(Error::alert), Some(Alert::CERTIFICATE_REVOKED), "{error}");
}

/// Sessions are bound to the list and to the resolvers.
#[test]
fn another_list_is_another_setting() {
    use dunlin::auth::Verifier as _;
    let pki = Pki::shared(KeyType::P256);
    let hub = Party::new(&pki.server);
    let device = Party::new(&pki.client);
    let digest = |verifier: &IdentifierVerifier| {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        verifier.settings(&mut |part| parts.push(part.to_vec()));
        parts
    };
    let all = [hub.trusted(), device.trusted(), hub.trusted().with_resolver(cache())];
    for (at, one) in all.iter().enumerate() {
        for another in &all[at + 1..] {
            assert_ne!(digest(one), digest(another));
        }
    }
}
