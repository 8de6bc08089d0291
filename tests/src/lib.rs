//! Shared by all tests: identities of every kind, and both sides of a connection in one process.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

pub mod datagram;
pub mod echo;
pub mod ends;
pub mod generated;
pub mod mounts;
pub mod peer;
pub mod place;
pub mod tamper;

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use dunlin::auth::X509Trust;
use dunlin::crypto::{
    CryptoError, CryptoProvider, SecureRandom, SigningKey, Tls12Authentication, Tls12CipherSuite,
    Tls12KeyExchange,
};
use dunlin::error::AuthenticationFailure;
use dunlin::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer,
};
use dunlin::wire::{AlertDescription, CipherSuite, SignatureScheme};
use dunlin::{
    ClientAuth, ClientConfig, Credential, Error, Event, Now, ProfileBuilder, Question, QuestionId,
    ServerAddress, ServerConfig, TlsConnection, Trust,
};
use dunlin_pki::{Identity, LeafSpec, Tree, TreeSpec, Validity};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// A moment within the validity of the test certificates: 2026-01-01T00:00:00Z.
pub const NOW: Now = Now::from_unix_ms(1_767_225_600_000);

/// The kind of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyType {
    /// RSA with 2048 bits.
    Rsa2048,
    /// ECDSA on P-256.
    P256,
    /// ECDSA on P-384.
    P384,
    /// ECDSA on P-521.
    P521,
    /// Ed25519.
    Ed25519,
    /// ML-DSA-44.
    MlDsa44,
    /// ML-DSA-65.
    MlDsa65,
    /// RSA-PSS with 2048 bits.
    RsaPss2048,
}

/// Every kind of key that the providers verify by default.
pub const KEY_TYPES: [KeyType; 5] =
    [KeyType::Rsa2048, KeyType::P256, KeyType::P384, KeyType::Ed25519, KeyType::MlDsa44];

/// The kinds of key for [`full_providers`] only.
pub const OTHER_KEY_TYPES: [KeyType; 3] = [KeyType::P521, KeyType::MlDsa65, KeyType::RsaPss2048];

/// A chain of three with leaves for a server and a client.
#[derive(Debug)]
pub struct Pki {
    /// The root.
    pub root: CertificateDer<'static>,
    /// For "localhost" and 127.0.0.1.
    pub server: Leaf,
    /// For "device-1".
    pub client: Leaf,
}

/// A leaf with its intermediate.
#[derive(Debug)]
pub struct Leaf {
    /// Leaf and intermediate.
    pub chain: Vec<CertificateDer<'static>>,
    /// The key, in PKCS#8.
    pub key: Vec<u8>,
    /// The public key.
    pub public_key: SubjectPublicKeyInfoDer<'static>,
}

fn key_pair(typ: KeyType) -> KeyPair {
    match typ {
        KeyType::Rsa2048 => KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256),
        KeyType::P256 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
        KeyType::P384 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
        KeyType::P521 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P521_SHA512),
        KeyType::Ed25519 => KeyPair::generate_for(&rcgen::PKCS_ED25519),
        KeyType::MlDsa44 => KeyPair::generate_for(&rcgen::PKCS_ML_DSA_44),
        KeyType::MlDsa65 => KeyPair::generate_for(&rcgen::PKCS_ML_DSA_65),
        KeyType::RsaPss2048 => panic!("rcgen does not support RSA-PSS keys"),
    }
    .expect("key generation")
}

fn params(name: &str, ca: bool, usage: Option<ExtendedKeyUsagePurpose>) -> CertificateParams {
    let names = if ca { vec![] } else { vec![name.to_owned()] };
    let mut params = CertificateParams::new(names).expect("names");
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = rcgen::date_time_ymd(2025, 1, 1);
    params.not_after = rcgen::date_time_ymd(2035, 1, 1);
    if ca {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    }
    params.extended_key_usages.extend(usage);
    params
}

/// The validity of the test certificates: ten years from 2025 on.
pub fn validity() -> Validity {
    let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
    Validity::new(at(1_735_689_600), at(2_051_222_400)).expect("validity")
}

impl Pki {
    /// Makes a new chain with keys of one kind.
    pub fn new(typ: KeyType) -> Self {
        match typ {
            KeyType::RsaPss2048 => Self::with_rsa_pss(),
            _ => Self::mixed(typ, typ),
        }
    }

    /// Makes a new chain with RSA-PSS keys, which rcgen does not support.
    fn with_rsa_pss() -> Self {
        let spec = TreeSpec {
            validity: validity(),
            ..TreeSpec::new(dunlin_pki::KeyType::RsaPss2048, 1).expect("specification")
        };
        let tree = Tree::generate(&spec).expect("tree");
        // The names of a certificate come from its subject alternative names.
        let client = LeafSpec {
            names: vec!["device-1".parse().expect("name")],
            ..LeafSpec::client(spec.client.clone(), spec.validity)
        };
        let key = dunlin_pki::KeyPair::generate(spec.key_type).expect("key");
        let client = tree.intermediate.issue(&client, key).expect("leaf");
        let leaf = |identity: Identity| Leaf {
            key: identity.key.to_pkcs8().expect("key").to_vec(),
            public_key: identity.key.public_key().clone(),
            chain: identity.chain,
        };
        Self { root: tree.root.certificate().clone(), server: leaf(tree.server), client: leaf(client) }
    }

    /// Makes a new chain whose authorities have keys of one kind, and whose leaves have keys of another.
    pub fn mixed(authorities: KeyType, leaves: KeyType) -> Self {
        // Each PKI has its own names, so that a foreign chain has an unknown issuer rather than a wrong
        // signature.
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let root_key = key_pair(authorities);
        let root_params = params(&format!("Test root {number}"), true, None);
        let root = root_params.self_signed(&root_key).expect("root").der().clone();
        let root = (root, Issuer::new(root_params, root_key));
        let intermediate_key = key_pair(authorities);
        let intermediate_params = params(&format!("Test intermediate {number}"), true, None);
        let intermediate =
            intermediate_params.signed_by(&intermediate_key, &root.1).expect("intermediate").der().clone();
        let issuer = Issuer::new(intermediate_params, intermediate_key);
        let leaf = |name: &str, usage| {
            let key = key_pair(leaves);
            let leaf = params(name, false, Some(usage)).signed_by(&key, &issuer).expect("leaf").der().clone();
            let public_key =
                SubjectPublicKeyInfoDer::from(rcgen::PublicKeyData::subject_public_key_info(&key));
            Leaf { chain: vec![leaf, intermediate.clone()], key: key.serialize_der(), public_key }
        };
        let server = leaf("localhost", ExtendedKeyUsagePurpose::ServerAuth);
        let client = leaf("device-1", ExtendedKeyUsagePurpose::ClientAuth);
        Self { root: root.0, server, client }
    }

    /// The PKI of this kind that all tests share.
    pub fn shared(typ: KeyType) -> &'static Self {
        static ALL: OnceLock<Mutex<HashMap<KeyType, &'static Pki>>> = OnceLock::new();
        let mut all = ALL.get_or_init(Mutex::default).lock().expect("lock");
        all.entry(typ).or_insert_with(|| Box::leak(Box::new(Self::new(typ))))
    }

    /// The root in PEM.
    pub fn root_pem(&self) -> String {
        pem::encode(&pem::Pem::new("CERTIFICATE", self.root.to_vec()))
    }

    /// Trust in its root.
    pub fn trust(&self) -> X509Trust {
        X509Trust::anchors([self.root.clone()]).expect("anchor")
    }
}

impl Leaf {
    /// The key, loaded.
    pub fn signing_key(&self, provider: &CryptoProvider) -> Arc<dyn SigningKey> {
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.key.clone()));
        provider.key_loader.load(&der).expect("key")
    }

    /// Leaf and intermediate in PEM.
    pub fn chain_pem(&self) -> String {
        self.chain.iter().map(|c| pem::encode(&pem::Pem::new("CERTIFICATE", c.to_vec()))).collect()
    }

    /// The key in PEM; for Ed25519 without the public key, which older peers cannot read (RFC 8410 §7).
    pub fn key_pem(&self) -> String {
        const ED25519: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
        let key = &self.key;
        let key = match key.windows(5).position(|w| w == [6, 3, 0x2b, 0x65, 0x70]) {
            Some(at) => [&ED25519[..], &key[at + 9..at + 41]].concat(),
            None => key.clone(),
        };
        pem::encode(&pem::Pem::new("PRIVATE KEY", key))
    }

    /// The public key in PEM.
    pub fn public_key_pem(&self) -> String {
        pem::encode(&pem::Pem::new("PUBLIC KEY", self.public_key.to_vec()))
    }

    /// As an X.509 credential.
    pub fn x509(&self, provider: &CryptoProvider) -> Credential {
        Credential::x509(self.chain.clone(), self.signing_key(provider))
    }

    /// As a raw public key.
    pub fn raw_key(&self, provider: &CryptoProvider) -> Credential {
        Credential::raw_key(self.signing_key(provider))
    }
}

/// A key object that claims a foreign public key, as the thief of a certificate must.
#[derive(Debug)]
pub struct ForeignKey {
    claims: SubjectPublicKeyInfoDer<'static>,
    own: Arc<dyn SigningKey>,
}

impl ForeignKey {
    /// A chain, leaf first, with the public key of its leaf and another private key.
    pub fn x509(
        chain: Vec<CertificateDer<'static>>,
        claims: SubjectPublicKeyInfoDer<'static>,
        own: Arc<dyn SigningKey>,
    ) -> Credential {
        Credential::x509(chain, Arc::new(Self { claims, own }))
    }
}

/// The public key of a certificate.
pub fn public_key(certificate: &CertificateDer<'_>) -> SubjectPublicKeyInfoDer<'static> {
    webpki::EndEntityCert::try_from(certificate)
        .expect("a certificate")
        .subject_public_key_info()
        .into_owned()
}

impl SigningKey for ForeignKey {
    fn schemes(&self) -> &[SignatureScheme] {
        self.own.schemes()
    }

    fn public_key(&self) -> &SubjectPublicKeyInfoDer<'static> {
        &self.claims
    }

    fn sign(
        &self,
        scheme: SignatureScheme,
        message: &[u8],
        random: &dyn SecureRandom,
    ) -> Result<Vec<u8>, CryptoError> {
        self.own.sign(scheme, message, random)
    }
}

/// The providers under test.
pub fn providers() -> [Arc<CryptoProvider>; 2] {
    [awslc(), Arc::new(dunlin_rustcrypto::provider(Arc::new(dunlin_rustcrypto::OsRandom)))]
}

/// Both providers, with every signature algorithm that they have, and with P-521.
pub fn full_providers() -> [Arc<CryptoProvider>; 2] {
    let rustcrypto = dunlin_rustcrypto::provider(Arc::new(dunlin_rustcrypto::OsRandom));
    let mut rustcrypto = CryptoProvider { signatures: dunlin_rustcrypto::ALL_SIGNATURES, ..rustcrypto };
    rustcrypto.groups.push(dunlin_rustcrypto::SECP521R1);
    [full_awslc(), Arc::new(rustcrypto)]
}

/// The first of [`full_providers`].
pub fn full_awslc() -> Arc<CryptoProvider> {
    let mut provider = dunlin_awslc::provider();
    provider.signatures = dunlin_awslc::ALL_SIGNATURES;
    provider.groups.push(dunlin_awslc::SECP521R1);
    Arc::new(provider)
}

/// The provider for tests that need only one.
pub fn awslc() -> Arc<CryptoProvider> {
    Arc::new(dunlin_awslc::provider())
}

/// A TLS 1.2 suite with a pre-shared key and without real cryptography.
pub fn null_psk_suite() -> &'static Tls12CipherSuite {
    static SUITE: OnceLock<Tls12CipherSuite> = OnceLock::new();
    SUITE.get_or_init(|| {
        let like = CipherSuite::TLS_CHACHA20_POLY1305_SHA256;
        let like = dunlin_null::null_provider().suite(like).expect("a suite");
        Tls12CipherSuite {
            id: CipherSuite::TLS_PSK_WITH_CHACHA20_POLY1305_SHA256,
            hash: like.hash,
            aead: like.aead,
            key_exchange: Tls12KeyExchange::Psk,
            authentication: Tls12Authentication::Psk,
        }
    })
}

/// The server that the test certificates are for.
pub fn localhost() -> ServerAddress {
    ServerAddress::new(ServerName::try_from("localhost").expect("name"), 4433)
}

/// Both sides of one connection, without a transport.
pub struct Pair {
    /// The client.
    pub client: TlsConnection,
    /// The server.
    pub server: TlsConnection,
    /// The time for both sides.
    pub now: Now,
    /// The number of bytes that the client sent.
    pub client_sent: usize,
    /// The number of bytes that the server sent.
    pub server_sent: usize,
    /// The client's events.
    pub client_events: Vec<Event>,
    /// The server's events.
    pub server_events: Vec<Event>,
}

impl Pair {
    /// Makes both sides at [`NOW`].
    pub fn new(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> Self {
        Self::at(client, server, NOW)
    }

    /// Makes both sides at another time.
    pub fn at(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>, now: Now) -> Self {
        Self {
            client: TlsConnection::client(client, localhost(), now).expect("client"),
            server: TlsConnection::server(server, now),
            now,
            client_sent: 0,
            server_sent: 0,
            client_events: Vec::new(),
            server_events: Vec::new(),
        }
    }

    /// Carries bytes in both directions until neither side has more, or one fails. The peer also gets the
    /// alert.
    pub fn run(&mut self) -> Result<(), Error> {
        let mut result = Ok(());
        loop {
            let (to_server, a) = carry(&mut self.client, &mut self.server, self.now);
            let (to_client, b) = carry(&mut self.server, &mut self.client, self.now);
            self.client_sent += to_server;
            self.server_sent += to_client;
            result = result.and(a).and(b);
            self.client_events.extend(std::iter::from_fn(|| self.client.poll_event()));
            self.server_events.extend(std::iter::from_fn(|| self.server.poll_event()));
            if to_server == 0 && to_client == 0 {
                return result;
            }
        }
    }

    /// Runs until both sides are connected.
    pub fn connect(&mut self) -> Result<(), Error> {
        self.run()?;
        assert!(
            !self.client.is_handshaking() && !self.server.is_handshaking(),
            "the handshake does not continue"
        );
        Ok(())
    }

    /// Sends data to the server and back.
    pub fn echo(&mut self, data: &[u8]) -> Result<(), Error> {
        let there = transfer(&mut self.client, &mut self.server, self.now, data)?;
        let back = transfer(&mut self.server, &mut self.client, self.now, data)?;
        assert!(there == data && back == data, "data changed on the way");
        Ok(())
    }

    /// Returns the server's open question, if its last event is one.
    pub fn server_question(&mut self) -> Option<(QuestionId, Question)> {
        match self.server_events.pop() {
            Some(Event::Question(id, question)) => Some((id, question)),
            other => {
                self.server_events.extend(other);
                None
            }
        }
    }

    /// Returns the client's open question, if its last event is one.
    pub fn client_question(&mut self) -> Option<(QuestionId, Question)> {
        match self.client_events.pop() {
            Some(Event::Question(id, question)) => Some((id, question)),
            other => {
                self.client_events.extend(other);
                None
            }
        }
    }
}

/// Passes all output of `from` to `to`. Returns the number of bytes, and the result of `to`.
pub fn carry(from: &mut TlsConnection, to: &mut TlsConnection, now: Now) -> (usize, Result<(), Error>) {
    let bytes = from.transmit().to_vec();
    from.transmitted(bytes.len());
    if to.error().is_some() || bytes.is_empty() {
        return (bytes.len(), Ok(()));
    }
    (bytes.len(), to.receive(now, &bytes).map(|_| ()))
}

/// Sends all of `data` and returns the received data.
pub fn transfer(
    from: &mut TlsConnection,
    to: &mut TlsConnection,
    now: Now,
    data: &[u8],
) -> Result<Vec<u8>, Error> {
    let mut sent = 0;
    let mut received = Vec::new();
    let mut wire = Vec::new();
    while received.len() < data.len() {
        sent += from.send(&data[sent..])?;
        wire.extend_from_slice(from.transmit());
        let n = from.transmit().len();
        from.transmitted(n);
        let taken = to.receive(now, &wire)?;
        wire.drain(..taken);
        let n = to.received().len();
        received.extend_from_slice(to.received());
        to.consume(now, n)?;
    }
    Ok(received)
}

/// Checks that a server demands a client's certificate as its configuration says. `profile` has the versions
/// to test, and `missing` is the alert that a client without a certificate receives.
pub fn check_client_authentication(profile: ProfileBuilder, missing: AlertDescription) {
    let provider = awslc();
    let pki = Pki::shared(KeyType::P256);
    let profile = profile.trust(Trust { x509: Some(pki.trust()), raw_key: None });
    let run = |auth, with_certificate: bool| {
        let credentials = if with_certificate { vec![pki.client.x509(&provider)] } else { vec![] };
        let client = profile.clone().credentials(credentials).build().unwrap();
        let server = profile.clone().credentials(vec![pki.server.x509(&provider)]).build().unwrap();
        let server = ServerConfig::new(server).unwrap().with_client_auth(auth).unwrap();
        let mut pair = Pair::new(&Arc::new(ClientConfig::new(client)), &Arc::new(server));
        let result = pair.run();
        (result, pair.server.negotiated().and_then(|n| n.peer.clone()).is_some(), pair)
    };
    for (auth, with, known) in [
        (ClientAuth::None, true, false),
        (ClientAuth::Optional, true, true),
        (ClientAuth::Optional, false, false),
        (ClientAuth::Required, true, true),
    ] {
        let (result, peer, _) = run(auth, with);
        assert_eq!((result, peer), (Ok(()), known), "{auth:?} {with}");
    }
    let (result, _, pair) = run(ClientAuth::Required, false);
    assert_eq!(result, Err(AuthenticationFailure::NoCertificate.into()));
    assert_eq!(pair.client.error(), Some(&Error::AlertReceived(missing)));
}
