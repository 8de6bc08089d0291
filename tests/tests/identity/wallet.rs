//! A verifier that knows who is who, and identities for it, so that tests see what the engine does with
//! decentralised identities.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin::auth::{
    Belief, Claim, DidProofs, Identifier, KnownRegistry, OtherIdentity, PrivateKey, Trust, Validity, Verdict,
    VerifiableCredential, Verified, Verifier, Verifiers,
};
use dunlin::error::AuthenticationFailure;
use dunlin::wire::{CertificateType, DidMethod, ExtensionType, HandshakeType};
use dunlin::{
    ClientAuth, ClientConfig, Credential, DtlsConnection, Error, Negotiated, Now, PeerIdentity, Profile,
    ProfileBuilder, ServerConfig, TlsConnection,
};
use dunlin_sim::{CLIENT_ADDRESS, SERVER_ADDRESS};
use dunlin_tests::tamper::{Secrets, message, rewrite};
use dunlin_tests::{KeyType, Leaf, NOW, Pair, Pki, awslc, localhost};

pub(crate) const VC: CertificateType = CertificateType::VERIFIABLE_CREDENTIAL;
pub(crate) const DID: CertificateType = CertificateType::DECENTRALISED_IDENTIFIER;

/// A registry, and a proof that it accepts.
pub(crate) const REGISTRY: KnownRegistry = KnownRegistry { key_id: *b"registry", oldest_size: 7 };
pub(crate) const PROOF: &[u8] = b"a proof of the current document";

pub(crate) fn pki() -> &'static Pki {
    Pki::shared(KeyType::P256)
}

/// The server's error when a client sends this entry as its certificate, with this extension beside it.
pub(crate) fn server_gets_beside(
    [of_client, of_server]: [Verifiers; 2],
    own: Credential,
    entry: &[u8],
    (extension, content): (ExtensionType, &[u8]),
) -> Error {
    let secrets = Arc::new(Secrets::default());
    let client = client(profile(of_client, vec![own]).key_log(Some(secrets.clone())));
    let server = server(profile(of_server, vec![pki().server.x509(&awslc())]), ClientAuth::Required);
    let mut pair = Pair::new(&client, &server);
    let hello = take(&mut pair.client);
    pair.server.receive(NOW, &hello).unwrap();
    let flight = take(&mut pair.server);
    pair.client.receive(NOW, &flight).unwrap();
    let flight = take(&mut pair.client);
    let vector = |size: usize, body: &[u8]| [&body.len().to_be_bytes()[8 - size..], body].concat();
    let beside = [&extension.0.to_be_bytes()[..], &vector(2, content)].concat();
    let list = vector(3, &[vector(3, entry), vector(2, &beside)].concat());
    let secret = secrets.get("CLIENT_HANDSHAKE_TRAFFIC_SECRET");
    let flight = rewrite(&awslc(), awslc().cipher_suites[0].id, &secret, &flight, |mut messages| {
        messages[0] = message(HandshakeType::CERTIFICATE.0, &[&[0], &*list].concat());
        messages
    });
    pair.server.receive(NOW, &flight).unwrap_err()
}

/// Believes every identity that contains a key of the tests: a credential is `name NUL key`, an identifier
/// ends with the key in hexadecimal.
#[derive(Debug)]
pub(crate) struct Wallet {
    pub(crate) typ: CertificateType,
    pub(crate) methods: Vec<DidMethod>,
    pub(crate) registries: Vec<KnownRegistry>,
    /// The names of issuers in certificate_authorities.
    pub(crate) issuers: Vec<Vec<u8>>,
    /// How often the engine has asked for lists, if each answer differs from the previous one.
    pub(crate) changes: Option<AtomicU64>,
    pub(crate) believes: AtomicBool,
    /// Whether the caller decides.
    pub(crate) asks: bool,
    pub(crate) validity: Validity,
    /// The proofs of DIDs that came with identities.
    pub(crate) seen: Mutex<Vec<Option<Vec<u8>>>>,
    pub(crate) accepts_status: bool,
    /// The status lists that came with identities.
    pub(crate) seen_status: Mutex<Vec<Option<Vec<u8>>>>,
}

impl Wallet {
    pub(crate) fn of(methods: &[DidMethod]) -> Self {
        Self {
            typ: VC,
            methods: methods.to_vec(),
            registries: Vec::new(),
            issuers: Vec::new(),
            changes: None,
            believes: AtomicBool::new(true),
            asks: false,
            validity: Validity::ALWAYS,
            seen: Mutex::default(),
            accepts_status: false,
            seen_status: Mutex::default(),
        }
    }

    pub(crate) fn accepting_status() -> Self {
        Self { accepts_status: true, ..Self::asking_for_proofs() }
    }

    pub(crate) fn asking_for_proofs() -> Self {
        Self { registries: vec![REGISTRY], ..Self::of(&[DidMethod::DUNLIN]) }
    }

    /// The same for another type of identity.
    pub(crate) fn for_type(self, typ: CertificateType) -> Self {
        Self { typ, ..self }
    }

    /// A number that differs in each answer, if they shall differ.
    fn change(&self) -> u64 {
        self.changes.as_ref().map_or(0, |count| count.fetch_add(1, Ordering::Relaxed))
    }

    fn peer(&self, entry: &[u8]) -> Option<Box<Verified>> {
        let (name, key) = match self.typ {
            DID => {
                let (_, key) = std::str::from_utf8(entry).ok()?.rsplit_once(':')?;
                let digits: Vec<_> = key.chars().map(|c| c.to_digit(16)).collect::<Option<_>>()?;
                (entry, digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect())
            }
            _ => {
                let at = entry.iter().position(|byte| *byte == 0)?;
                (&entry[..at], entry[at + 1..].to_vec())
            }
        };
        let identity = OtherIdentity::new(self.typ, name, String::from_utf8_lossy(name)).unwrap();
        let identity = PeerIdentity::Other(identity.with_details(b"sequence 3".to_vec()).unwrap());
        Some(Verified::new(key.into(), identity, self.validity))
    }
}

impl Verifier for Wallet {
    fn certificate_type(&self) -> CertificateType {
        self.typ
    }

    fn settings(&self, add: &mut dyn FnMut(&[u8])) {
        add(b"everybody in the tests");
    }

    fn did_methods(&self) -> Vec<DidMethod> {
        let unknown = DidMethod(0x7f00 | self.change() as u16);
        self.methods.iter().copied().chain(self.changes.as_ref().map(|_| unknown)).collect()
    }

    fn registries(&self) -> Vec<KnownRegistry> {
        let newer = |known: &KnownRegistry| KnownRegistry {
            oldest_size: known.oldest_size + self.change(),
            ..*known
        };
        self.registries.iter().map(newer).collect()
    }

    fn accepts_status(&self) -> bool {
        self.accepts_status
    }

    fn authorities(&self) -> Vec<Vec<u8>> {
        let other = self.changes.as_ref().map(|_| self.change().to_be_bytes().to_vec());
        self.issuers.iter().cloned().chain(other).collect()
    }

    fn still_believes(&self, identity: &PeerIdentity, _: Now) -> Belief {
        let PeerIdentity::Other(id) = identity else { return Belief::Ended };
        // A session and a cache entry keep what the verifier has added.
        assert_eq!(id.details(), b"sequence 3");
        if self.believes.load(Ordering::Relaxed) { Belief::Holds } else { Belief::Ended }
    }

    fn verify(&self, claim: &Claim<'_>) -> Result<Verdict, AuthenticationFailure> {
        self.seen.lock().unwrap().push(claim.did_proof.map(<[u8]>::to_vec));
        self.seen_status.lock().unwrap().push(claim.credential_status.map(<[u8]>::to_vec));
        if self.asks { Ok(Verdict::Ask) } else { self.read(claim).map(Verdict::Accepted) }
    }

    fn read(&self, claim: &Claim<'_>) -> Result<Box<Verified>, AuthenticationFailure> {
        let [entry] = claim.entries else { panic!("{} entries", claim.entries.len()) };
        self.peer(entry).ok_or(AuthenticationFailure::BadEncoding)
    }
}

/// The source of a proof, for [`REGISTRY`] alone.
#[derive(Debug)]
pub(crate) struct Prover(pub(crate) Vec<u8>);

impl DidProofs for Prover {
    fn latest(&self, accepted: &[KnownRegistry]) -> Option<Vec<u8>> {
        accepted.contains(&REGISTRY).then(|| self.0.clone())
    }
}

pub(crate) fn credential(name: &str, leaf: &Leaf) -> VerifiableCredential {
    let bytes = [name.as_bytes(), &[0], &*leaf.public_key].concat();
    VerifiableCredential::new(bytes, DidMethod::DUNLIN)
}

pub(crate) fn own(credential: VerifiableCredential, leaf: &Leaf) -> Credential {
    Credential::Verifiable { credential, key: PrivateKey::Here(leaf.signing_key(&awslc())) }
}

pub(crate) fn vc(name: &str, leaf: &Leaf) -> Credential {
    own(credential(name, leaf), leaf)
}

pub(crate) fn stapled(name: &str, leaf: &Leaf, proof: &[u8]) -> Credential {
    let proofs: Arc<dyn DidProofs> = Arc::new(Prover(proof.to_vec()));
    own(VerifiableCredential { proofs: Some(proofs), ..credential(name, leaf) }, leaf)
}

/// The identifier of a leaf's key, of this method.
pub(crate) fn identifier(method: DidMethod, leaf: &Leaf) -> Identifier {
    let key: String = leaf.public_key.iter().map(|byte| format!("{byte:02x}")).collect();
    Identifier::new(format!("{method}:{key}"), method)
}

pub(crate) fn did(method: DidMethod, leaf: &Leaf) -> Credential {
    let key = PrivateKey::Here(leaf.signing_key(&awslc()));
    Credential::Identifier { identifier: identifier(method, leaf), key }
}

pub(crate) fn trust(wallet: &Arc<Wallet>) -> Verifiers {
    Verifiers::default().with(wallet.clone())
}

pub(crate) fn x509() -> Verifiers {
    Verifiers::from(Trust { x509: Some(pki().trust()), raw_key: None })
}

pub(crate) fn profile(trust: impl Into<Verifiers>, own: Vec<Credential>) -> ProfileBuilder {
    Profile::builder(awslc()).trust(trust.into()).credentials(own)
}

pub(crate) fn client(profile: ProfileBuilder) -> Arc<ClientConfig> {
    Arc::new(ClientConfig::new(profile.build().unwrap()))
}

pub(crate) fn server(profile: ProfileBuilder, auth: ClientAuth) -> Arc<ServerConfig> {
    Arc::new(ServerConfig::new(profile.build().unwrap()).unwrap().with_client_auth(auth).unwrap())
}

pub(crate) fn negotiated(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> [Negotiated; 2] {
    negotiated_over(Transport::Stream, client, server, NOW)
}

/// Which of the two protocols a handshake has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Stream,
    Datagrams,
}

pub(crate) const TRANSPORTS: [Transport; 2] = [Transport::Stream, Transport::Datagrams];

pub(crate) fn negotiated_over(
    transport: Transport,
    client: &Arc<ClientConfig>,
    server: &Arc<ServerConfig>,
    now: Now,
) -> [Negotiated; 2] {
    if transport == Transport::Datagrams {
        let client = DtlsConnection::client(client, localhost(), SERVER_ADDRESS, now).unwrap();
        let server = DtlsConnection::server(server, CLIENT_ADDRESS, now);
        // A later handshake at the same time must not come before this one's ticket.
        let mut pair = dunlin_sim::Pair::new(client, server, now, Duration::ZERO);
        pair.run().unwrap();
        return [&pair.client, &pair.server].map(|end| end.negotiated().unwrap().clone());
    }
    let mut pair = Pair::at(client, server, now);
    pair.connect().unwrap();
    pair.echo(b"hello").unwrap();
    [&pair.client, &pair.server].map(|end| end.negotiated().unwrap().clone())
}

pub(crate) fn failure(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> Error {
    Pair::new(client, server).run().unwrap_err()
}

pub(crate) fn types(ends: &[Negotiated; 2]) -> [Option<CertificateType>; 2] {
    [0, 1].map(|end| ends[end].peer.as_ref().and_then(PeerIdentity::certificate_type))
}

/// Takes the bytes that a side would transmit.
pub(crate) fn take(from: &mut TlsConnection) -> Vec<u8> {
    let bytes = from.transmit().to_vec();
    from.transmitted(bytes.len());
    bytes
}
