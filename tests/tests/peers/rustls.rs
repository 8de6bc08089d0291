//! rustls as the peer, in both roles, also with raw public keys. It runs in this process, without a socket.

use std::io::{Read, Write};
use std::sync::Arc;

use dunlin::early::NoEarlyData;
use dunlin::error::PeerIncompatible;
use dunlin::pki_types::{
    CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use dunlin::wire::{AlertDescription, CertificateCompressionAlgorithm, NamedGroup};
use dunlin::{EarlyDataOutcome, EarlyDataProtocols, Event, ProfileBuilder, ServerConfig, TlsConnection};
use dunlin_tests::ends::{
    KEYS, MIB, client, client_profile, client_with, server_config, server_config_with, server_profile,
    with_sessions,
};
use dunlin_tests::peer::{now, text};
use dunlin_tests::{KeyType, Leaf, Pki, ends};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs::{self, kx_group, sign};
use rustls::crypto::{CryptoProvider, SupportedKxGroup, verify_tls13_signature_with_raw_key};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{CipherSuite, DigitallySignedStruct, DistinguishedName, HandshakeKind, SignatureScheme};

/// The groups that both sides support.
const GROUPS: [(NamedGroup, &dyn SupportedKxGroup); 3] = [
    (NamedGroup::X25519, kx_group::X25519),
    (NamedGroup::SECP256R1, kx_group::SECP256R1),
    (NamedGroup::SECP384R1, kx_group::SECP384R1),
];

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn with_groups(groups: &[&'static dyn SupportedKxGroup]) -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider { kx_groups: groups.to_vec(), ..aws_lc_rs::default_provider() })
}

fn roots(typ: KeyType) -> Arc<rustls::RootCertStore> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(Pki::shared(typ).root.clone()).unwrap();
    Arc::new(roots)
}

fn key(leaf: &Leaf) -> PrivateKeyDer<'static> {
    PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(leaf.key.clone()))
}

/// A rustls server with X.509 of this kind that requires a client certificate.
fn their_server(typ: KeyType, provider: Arc<CryptoProvider>) -> rustls::ServerConfig {
    let leaf = &Pki::shared(typ).server;
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(typ), provider.clone()).build().unwrap();
    rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(leaf.chain.clone(), key(leaf))
        .unwrap()
}

/// A rustls client with X.509 of this kind.
fn their_client(typ: KeyType, provider: Arc<CryptoProvider>) -> rustls::ClientConfig {
    let leaf = &Pki::shared(typ).client;
    let verifier = WebPkiServerVerifier::builder_with_provider(roots(typ), provider.clone()).build().unwrap();
    rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_webpki_verifier(verifier)
        .with_client_auth_cert(leaf.chain.clone(), key(leaf))
        .unwrap()
}

/// A side of each stack.
struct Pair {
    ours: TlsConnection,
    theirs: rustls::Connection,
    /// The data that each side has received.
    at_ours: Vec<u8>,
    at_theirs: Vec<u8>,
    early_at_ours: Vec<u8>,
    events: Vec<Event>,
    they_saw_the_end: bool,
}

impl Pair {
    fn new(ours: TlsConnection, theirs: impl Into<rustls::Connection>) -> Self {
        let mut theirs = theirs.into();
        theirs.set_buffer_limit(None);
        let (at_ours, at_theirs, early_at_ours, events) = Default::default();
        Self { ours, theirs, at_ours, at_theirs, early_at_ours, events, they_saw_the_end: false }
    }

    fn with_their_server(ours: TlsConnection, config: &Arc<rustls::ServerConfig>) -> Self {
        Self::new(ours, rustls::ServerConnection::new(config.clone()).unwrap())
    }

    fn with_their_client(config: &Arc<ServerConfig>, theirs: &Arc<rustls::ClientConfig>) -> Self {
        let name = ServerName::try_from("localhost").unwrap();
        let theirs = rustls::ClientConnection::new(theirs.clone(), name).unwrap();
        Self::new(TlsConnection::server(config, now()), theirs)
    }

    /// Carries bytes both ways until neither side has more to send. Returns each side's result.
    fn run(&mut self) -> (Result<(), dunlin::Error>, Result<(), rustls::Error>) {
        let mut ours = Ok(());
        let mut theirs = Ok(());
        loop {
            let to_theirs = self.ours.transmit().to_vec();
            self.ours.transmitted(to_theirs.len());
            if let (Ok(()), Err(e)) = (&theirs, self.give_theirs(&to_theirs)) {
                theirs = Err(e);
            }
            let mut to_ours = Vec::new();
            while self.theirs.wants_write() {
                self.theirs.write_tls(&mut to_ours).unwrap();
            }
            if let (Ok(()), Err(e)) = (&ours, self.give_ours(&to_ours)) {
                ours = Err(e);
            }
            if to_theirs.is_empty() && to_ours.is_empty() {
                return (ours, theirs);
            }
        }
    }

    fn give_theirs(&mut self, mut bytes: &[u8]) -> Result<(), rustls::Error> {
        while !bytes.is_empty() {
            self.theirs.read_tls(&mut bytes).unwrap();
            let state = self.theirs.process_new_packets()?;
            self.they_saw_the_end |= state.peer_has_closed();
            let mut data = vec![0; state.plaintext_bytes_to_read()];
            self.theirs.reader().read_exact(&mut data).unwrap();
            self.at_theirs.extend(data);
        }
        Ok(())
    }

    fn give_ours(&mut self, mut bytes: &[u8]) -> Result<(), dunlin::Error> {
        while !bytes.is_empty() {
            let taken = self.ours.receive(now(), bytes)?;
            bytes = &bytes[taken..];
            while let Some(mut early) = self.ours.early_data()
                && !early.received().is_empty()
            {
                self.early_at_ours.extend_from_slice(early.received());
                early.consume(now(), usize::MAX)?;
            }
            while !self.ours.received().is_empty() {
                let n = self.ours.received().len();
                self.at_ours.extend_from_slice(self.ours.received());
                self.ours.consume(now(), n)?;
            }
        }
        self.events.extend(std::iter::from_fn(|| self.ours.poll_event()));
        Ok(())
    }

    /// Continues the connection and expects no error.
    fn go_on(&mut self) {
        assert_eq!(self.run(), (Ok(()), Ok(())));
    }

    /// Completes the handshake.
    fn connect(mut self) -> Self {
        self.go_on();
        assert!(
            self.ours.negotiated().is_some() && !self.theirs.is_handshaking(),
            "the handshake stands still"
        );
        self
    }

    /// Sends data in both directions.
    fn exchange(&mut self, data: &[u8]) {
        self.at_ours.clear();
        self.at_theirs.clear();
        let mut sent = 0;
        while sent < data.len() {
            sent += self.ours.send(&data[sent..]).unwrap();
            self.go_on();
        }
        self.theirs.writer().write_all(data).unwrap();
        self.go_on();
        assert!(self.at_theirs == data && self.at_ours == data, "data changed on the way");
    }

    /// Closes both sides.
    fn close(mut self) {
        self.ours.close();
        self.go_on();
        assert!(self.they_saw_the_end);
        assert!(!self.saw(|e| matches!(e, Event::PeerClosed)));
        self.theirs.send_close_notify();
        self.go_on();
        assert!(self.saw(|e| matches!(e, Event::PeerClosed)));
    }

    fn saw(&self, is_it: impl Fn(&Event) -> bool) -> bool {
        self.events.iter().any(is_it)
    }

    fn peer(&self) -> String {
        self.ours.negotiated().unwrap().peer.as_ref().unwrap().to_string()
    }

    fn resumed(&self) -> bool {
        let resumed = self.ours.negotiated().unwrap().is_resumed();
        assert_eq!(self.theirs.handshake_kind() == Some(HandshakeKind::Resumed), resumed);
        resumed
    }
}

/// A pair for each role, first with Dunlin's client.
fn both(typ: KeyType) -> [Pair; 2] {
    [
        Pair::with_their_server(client(typ, |c| c), &Arc::new(their_server(typ, provider()))),
        Pair::with_their_client(&server_config(typ, |s| s), &Arc::new(their_client(typ, provider()))),
    ]
}

#[test]
fn exchanges_a_mebibyte_under_mutual_x509() {
    for typ in KEYS.into_iter().chain([KeyType::P521]) {
        for (mut pair, peer, chain) in
            both(typ).into_iter().zip(["localhost", "device-1"]).map(|(p, name)| {
                let pki = Pki::shared(typ);
                let chain = if name == "localhost" { &pki.client.chain } else { &pki.server.chain };
                (p.connect(), name, chain)
            })
        {
            assert_eq!(pair.peer(), format!("X.509 {peer}"));
            assert_eq!(pair.theirs.peer_certificates(), Some(&chain[..]));
            assert_eq!(pair.ours.negotiated().unwrap().server_name.as_deref(), Some("localhost"));
            if let rustls::Connection::Server(theirs) = &pair.theirs {
                assert_eq!(theirs.server_name(), Some("localhost"));
            }
            pair.exchange(&text(MIB));
            pair.close();
        }
    }
}

#[test]
fn connects_with_every_cipher_suite() {
    for suite in aws_lc_rs::ALL_CIPHER_SUITES.iter().filter(|s| s.tls13().is_some()) {
        let only = CryptoProvider { cipher_suites: vec![*suite], ..aws_lc_rs::default_provider() };
        let only = Arc::new(only);
        for pair in [
            Pair::with_their_server(
                client(KeyType::P256, |c| c),
                &Arc::new(their_server(KeyType::P256, only.clone())),
            ),
            Pair::with_their_client(
                &server_config(KeyType::P256, |s| s),
                &Arc::new(their_client(KeyType::P256, only.clone())),
            ),
        ] {
            let mut pair = pair.connect();
            let chosen = pair.ours.negotiated().unwrap().cipher_suite.unwrap();
            assert_eq!(CipherSuite::from(chosen.0), suite.suite());
            pair.exchange(b"data");
        }
    }
}

#[test]
fn connects_with_every_group_and_after_a_retry() {
    let typ = KeyType::P256;
    for (group, theirs) in GROUPS {
        // A list that begins with another group makes the client's first share useless.
        for (other, their_other) in GROUPS {
            let retried = other != group;
            let config = Arc::new(their_server(typ, with_groups(&[theirs])));
            let ours = client(typ, |c| c.with_key_shares(vec![other]).unwrap());
            let at_client = Pair::with_their_server(ours, &config).connect();

            let ours = server_profile(typ).groups(vec![dunlin_tests::awslc().group(group).unwrap()]);
            let their_groups = if retried { vec![their_other, theirs] } else { vec![theirs] };
            let config = Arc::new(their_client(typ, with_groups(&their_groups)));
            let at_server = Pair::with_their_client(&server_config_with(ours, |s| s), &config).connect();

            for mut pair in [at_client, at_server] {
                let negotiated = pair.ours.negotiated().unwrap();
                assert_eq!((negotiated.group, negotiated.retried), (Some(group), retried), "{other}");
                assert_eq!(pair.theirs.negotiated_key_exchange_group().unwrap().name(), theirs.name());
                pair.exchange(b"data");
            }
        }
    }
}

#[test]
fn connects_with_post_quantum_signatures() {
    use dunlin::wire::SignatureScheme;
    for (typ, scheme) in
        [(KeyType::MlDsa44, SignatureScheme::MLDSA44), (KeyType::MlDsa65, SignatureScheme::MLDSA65)]
    {
        for pair in both(typ) {
            let mut pair = pair.connect();
            let negotiated = pair.ours.negotiated().unwrap();
            assert_eq!([negotiated.own_signature, negotiated.peer_signature], [Some(scheme); 2]);
            pair.exchange(b"data");
        }
    }
}

/// A side without the hybrid uses the share of its curve, which the client offers separately.
#[test]
fn connects_with_the_hybrid_or_its_curve() {
    let typ = KeyType::P256;
    let x25519 = dunlin_awslc::X25519;
    let hybrid = dunlin_awslc::X25519MLKEM768;
    let p256 = dunlin_awslc::SECP256R1;
    let nist = dunlin_awslc::SECP256R1MLKEM768;
    let their_hybrid: &[&dyn SupportedKxGroup] = &[kx_group::X25519MLKEM768, kx_group::X25519];
    let their_nist: &[&dyn SupportedKxGroup] = &[kx_group::SECP256R1MLKEM768, kx_group::SECP256R1];
    for (ours, theirs, group) in [
        (vec![hybrid, x25519], their_hybrid, NamedGroup::X25519MLKEM768),
        (vec![hybrid, x25519], &[kx_group::X25519], NamedGroup::X25519),
        (vec![x25519], their_hybrid, NamedGroup::X25519),
        (vec![nist, p256], their_nist, NamedGroup::SECP256R1MLKEM768),
        (vec![nist, p256], &[kx_group::SECP256R1], NamedGroup::SECP256R1),
        (vec![p256], their_nist, NamedGroup::SECP256R1),
    ] {
        let client = client_with(client_profile(typ).groups(ours.clone()), |c| c);
        let server = server_config_with(server_profile(typ).groups(ours), |s| s);
        for pair in [
            Pair::with_their_server(client, &Arc::new(their_server(typ, with_groups(theirs)))),
            Pair::with_their_client(&server, &Arc::new(their_client(typ, with_groups(theirs)))),
        ] {
            let mut pair = pair.connect();
            let negotiated = pair.ours.negotiated().unwrap();
            assert_eq!((negotiated.group, negotiated.retried), (Some(group), false));
            pair.exchange(b"data");
        }
    }
}

#[test]
fn compresses_certificates_in_both_directions() {
    for typ in KEYS {
        let with_zlib = |profile: ProfileBuilder| {
            profile
                .certificate_compressors(vec![dunlin::compression::ZLIB_COMPRESSOR])
                .certificate_decompressors(vec![dunlin::compression::ZLIB_DECOMPRESSOR])
        };
        let client = client_with(with_zlib(client_profile(typ)), |c| c);
        let server = server_config_with(with_zlib(server_profile(typ)), |s| s);
        for pair in [
            Pair::with_their_server(client, &Arc::new(their_server(typ, provider()))),
            Pair::with_their_client(&server, &Arc::new(their_client(typ, provider()))),
        ] {
            let mut pair = pair.connect();
            let negotiated = pair.ours.negotiated().unwrap();
            let zlib = Some(CertificateCompressionAlgorithm::ZLIB);
            assert_eq!(negotiated.own_certificate_compression, zlib, "{typ:?}");
            assert_eq!(negotiated.peer_certificate_compression, zlib, "{typ:?}");
            pair.exchange(b"data");
        }
    }
}

#[test]
fn sends_a_cookie_to_its_client() {
    let config = Arc::new(their_client(KeyType::P256, provider()));
    let ours = server_config(KeyType::P256, |s| s.with_cookies(true));
    let pair = Pair::with_their_client(&ours, &config).connect();
    assert!(pair.ours.negotiated().unwrap().retried);
    assert_eq!(pair.theirs.handshake_kind(), Some(HandshakeKind::FullWithHelloRetryRequest));
}

#[test]
fn resumes_with_its_server() {
    let typ = KeyType::P256;
    let by_name = their_server(typ, provider());
    let mut sealed = their_server(typ, provider());
    sealed.ticketer = aws_lc_rs::Ticketer::new().unwrap();
    for config in [by_name, sealed].map(Arc::new) {
        let sessions = with_sessions();
        for resumed in [false, true, true] {
            let ours = client(typ, |c| c.with_sessions(sessions.clone()));
            let mut pair = Pair::with_their_server(ours, &config).connect();
            assert_eq!(pair.resumed(), resumed);
            assert_eq!(pair.peer(), "X.509 localhost");
            assert!(pair.saw(|e| matches!(e, Event::TicketReceived)));
            pair.exchange(b"data");
            pair.close();
        }
    }
}

#[test]
fn resumes_with_its_client() {
    for tickets in ends::tickets() {
        let config = Arc::new(their_client(KeyType::P256, provider()));
        let ours = server_config(KeyType::P256, |s| s.with_tickets(tickets));
        for resumed in [false, true, true] {
            let mut pair = Pair::with_their_client(&ours, &config).connect();
            assert_eq!(pair.resumed(), resumed);
            assert_eq!(pair.peer(), "X.509 device-1");
            pair.exchange(b"data");
            pair.close();
        }
    }
}

#[test]
fn sends_early_data_to_its_server() {
    let mut config = their_server(KeyType::P256, provider());
    config.max_early_data_size = 1000;
    let config = Arc::new(config);
    let sessions = with_sessions();
    let ours = || {
        client(KeyType::P256, |c| {
            c.with_sessions(sessions.clone()).with_early_data(EarlyDataProtocols::unnamed())
        })
    };
    Pair::with_their_server(ours(), &config).connect().close();
    for _ in 0..2 {
        let mut pair = Pair::with_their_server(ours(), &config);
        let mut early = pair.ours.early_data().unwrap();
        assert_eq!((early.room(), early.send(&[7; 2000])), (Some(1000), Ok(1000)));
        let mut pair = pair.connect();
        assert_eq!(pair.ours.negotiated().unwrap().early_data, EarlyDataOutcome::Accepted);
        let rustls::Connection::Server(theirs) = &mut pair.theirs else { panic!() };
        let mut data = Vec::new();
        theirs.early_data().unwrap().read_to_end(&mut data).unwrap();
        assert_eq!(data, [7; 1000]);
        pair.exchange(b"data");
        pair.close();
    }
    // rustls's server has lost its sessions.
    let mut other = their_server(KeyType::P256, provider());
    other.max_early_data_size = 1000;
    let mut pair = Pair::with_their_server(ours(), &Arc::new(other));
    pair.ours.early_data().unwrap().send(b"lost").unwrap();
    let mut pair = pair.connect();
    let refused = EarlyDataOutcome::Rejected(NoEarlyData::NotResumed);
    assert_eq!(pair.ours.negotiated().unwrap().early_data, refused);
    assert!(pair.at_theirs.is_empty() && pair.saw(|e| matches!(e, Event::EarlyData(o) if *o == refused)));
    pair.exchange(b"data");
    pair.close();
}

#[test]
fn accepts_early_data_of_its_client() {
    for tickets in ends::tickets() {
        let mut config = their_client(KeyType::P256, provider());
        config.enable_early_data = true;
        let config = Arc::new(config);
        let early = |s: ServerConfig| s.with_early_data(EarlyDataProtocols::unnamed(), 1000).unwrap();
        let ours = server_config(KeyType::P256, |s| early(s.with_tickets(tickets)));
        Pair::with_their_client(&ours, &config).connect().close();
        for _ in 0..2 {
            let mut pair = Pair::with_their_client(&ours, &config);
            let rustls::Connection::Client(theirs) = &mut pair.theirs else { panic!() };
            let mut early = theirs.early_data().unwrap();
            assert_eq!(early.write(&[7; 2000]).unwrap(), 1000);
            let mut pair = pair.connect();
            assert_eq!(pair.ours.negotiated().unwrap().early_data, EarlyDataOutcome::Accepted);
            let rustls::Connection::Client(theirs) = &mut pair.theirs else { panic!() };
            assert!(theirs.is_early_data_accepted());
            assert_eq!(pair.early_at_ours, [7; 1000]);
            assert!(pair.at_ours.is_empty());
            pair.exchange(b"data");
            pair.close();
        }
    }
}

#[test]
fn updates_keys() {
    for pair in both(KeyType::P256) {
        let mut pair = pair.connect();
        pair.ours.update_keys(false).unwrap();
        pair.exchange(b"after ours");
        assert!(!pair.saw(|e| matches!(e, Event::PeerUpdatedKeys)));
        // The update requests an answer.
        pair.ours.update_keys(true).unwrap();
        pair.exchange(b"after theirs too");
        assert!(pair.saw(|e| matches!(e, Event::PeerUpdatedKeys)));
        pair.events.clear();
        pair.theirs.refresh_traffic_keys().unwrap();
        pair.exchange(b"after theirs, and ours in answer");
        assert!(pair.saw(|e| matches!(e, Event::PeerUpdatedKeys)));
        pair.exchange(&text(MIB));
        pair.close();
    }
}

#[test]
fn agrees_on_alpn() {
    let ours = || vec![b"ours".to_vec(), b"common".to_vec(), b"second".to_vec()];
    let pair = |theirs: &[&[u8]]| {
        let theirs: Vec<_> = theirs.iter().map(|p| p.to_vec()).collect();
        let mut at_server = their_server(KeyType::P256, provider());
        let mut at_client = their_client(KeyType::P256, provider());
        (at_server.alpn_protocols, at_client.alpn_protocols) = (theirs.clone(), theirs);
        let client = client_with(client_profile(KeyType::P256).alpn(ours()), |c| c);
        let server = server_config_with(server_profile(KeyType::P256).alpn(ours()), |s| s);
        [
            Pair::with_their_server(client, &Arc::new(at_server)),
            Pair::with_their_client(&server, &Arc::new(at_client)),
        ]
    };
    for pair in pair(&[b"theirs", b"common"]).map(Pair::connect) {
        assert_eq!(pair.ours.negotiated().unwrap().alpn.as_deref(), Some(&b"common"[..]));
        assert_eq!(pair.theirs.alpn_protocol(), Some(&b"common"[..]));
    }
    let [mut client, mut server] = pair(&[b"theirs"]);
    let alert = AlertDescription::NO_APPLICATION_PROTOCOL;
    assert_eq!(
        client.run(),
        (Err(dunlin::Error::AlertReceived(alert)), Err(rustls::Error::NoApplicationProtocol))
    );
    let received = rustls::Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol);
    assert_eq!(server.run(), (Err(PeerIncompatible::ApplicationProtocol.into()), Err(received)));
}

#[test]
fn exporters_agree() {
    for pair in both(KeyType::P256).map(Pair::connect) {
        let label = &b"EXPORTER-of-a-test"[..];
        let mut ours = [0; 100];
        for context in [&b""[..], b"context"] {
            pair.ours.export(label, Some(context), &mut ours).unwrap();
            let theirs = pair.theirs.export_keying_material([0; 100], label, Some(context)).unwrap();
            assert_eq!(ours, theirs);
            assert_ne!(ours, [0; 100]);
        }
    }
}

/// Trusts one raw public key.
#[derive(Debug)]
struct OneKey(SubjectPublicKeyInfoDer<'static>);

impl OneKey {
    fn verify(&self, key: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        let unknown = rustls::CertificateError::UnknownIssuer;
        if key[..] == self.0[..] { Ok(()) } else { Err(unknown.into()) }
    }
}

/// The methods that rustls's two traits share.
macro_rules! verifies_raw_keys {
    () => {
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Err(rustls::Error::General("TLS 1.2".into()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            key: &CertificateDer<'_>,
            signature: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            let key = SubjectPublicKeyInfoDer::from(&key[..]);
            let algorithms = &provider().signature_verification_algorithms;
            verify_tls13_signature_with_raw_key(message, &key, signature, algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            provider().signature_verification_algorithms.supported_schemes()
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for OneKey {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verify(key).map(|()| ServerCertVerified::assertion())
    }

    verifies_raw_keys!();
}

impl ClientCertVerifier for OneKey {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        key: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.verify(key).map(|()| ClientCertVerified::assertion())
    }

    verifies_raw_keys!();
}

/// A raw public key as a rustls credential.
fn raw_key(leaf: &Leaf) -> Arc<CertifiedKey> {
    let public_key = vec![CertificateDer::from(leaf.public_key.to_vec())];
    Arc::new(CertifiedKey::new(public_key, sign::any_supported_type(&key(leaf)).unwrap()))
}

#[test]
fn connects_with_raw_public_keys_in_both_directions() {
    for typ in KEYS {
        let pki = Pki::shared(typ);
        let their_server = rustls::ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_client_cert_verifier(Arc::new(OneKey(pki.client.public_key.clone())))
            .with_cert_resolver(Arc::new(rustls::server::AlwaysResolvesServerRawPublicKeys::new(raw_key(
                &pki.server,
            ))));
        let their_client = rustls::ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(OneKey(pki.server.public_key.clone())))
            .with_client_cert_resolver(Arc::new(rustls::client::AlwaysResolvesClientRawPublicKeys::new(
                raw_key(&pki.client),
            )));
        let name = ServerName::try_from("localhost").unwrap();
        let their_client = rustls::ClientConnection::new(Arc::new(their_client), name).unwrap();
        for pair in [
            Pair::with_their_server(ends::raw_client(typ), &Arc::new(their_server)),
            Pair::new(ends::raw_server(typ), their_client),
        ] {
            let mut pair = pair.connect();
            assert!(pair.peer().starts_with("raw key "), "{typ:?}");
            pair.exchange(&text(MIB));
            pair.close();
        }
    }
}

#[test]
fn each_side_reports_a_refusal() {
    let ours = KeyType::P256;
    let theirs = KeyType::Ed25519;
    // A server and a client of rustls that Dunlin does not trust; each receives the reason.
    let mut pair = Pair::with_their_server(client(ours, |c| c), &Arc::new(their_server(theirs, provider())));
    let unknown = rustls::Error::AlertReceived(rustls::AlertDescription::UnknownCA);
    let (own, peer) = pair.run();
    assert!(matches!(own, Err(dunlin::Error::Authentication(_))), "{own:?}");
    assert_eq!(peer, Err(unknown));
    // A Dunlin server that rustls does not trust.
    let mut pair =
        Pair::with_their_client(&server_config(ours, |s| s), &Arc::new(their_client(theirs, provider())));
    let (own, peer) = pair.run();
    assert_eq!(own, Err(dunlin::Error::AlertReceived(AlertDescription::UNKNOWN_CA)));
    assert!(matches!(peer, Err(rustls::Error::InvalidCertificate(_))), "{peer:?}");
    // A Dunlin client without certificate.
    let anonymous = ends::anonymous_client(ours);
    let mut pair = Pair::with_their_server(anonymous, &Arc::new(their_server(ours, provider())));
    let (own, peer) = pair.run();
    assert_eq!(own, Err(dunlin::Error::AlertReceived(AlertDescription::CERTIFICATE_REQUIRED)));
    assert_eq!(peer, Err(rustls::Error::NoCertificatesPresented));
}
