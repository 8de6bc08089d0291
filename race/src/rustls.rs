//! rustls over AWS-LC.

use std::hint::black_box;
use std::io::{BufRead, Write};
use std::sync::Arc;

use dunlin::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use dunlin_tests::{KeyType, Leaf, Pki};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, cipher_suite, kx_group};
use rustls::server::NoServerSessionStorage;
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, Connection, HandshakeKind, RootCertStore, ServerConfig};

use crate::handshake::Handshake;
use crate::stack::{End, Maker};

impl End for Connection {
    fn take(&mut self, mut bytes: &[u8]) -> usize {
        let mut came = 0;
        while !bytes.is_empty() {
            self.read_tls(&mut bytes).unwrap();
            if self.process_new_packets().unwrap().plaintext_bytes_to_read() > 0 {
                let mut reader = self.reader();
                while let Ok(n @ 1..) = reader.fill_buf().map(|data| black_box(data).len()) {
                    came += n;
                    reader.consume(n);
                }
            }
        }
        came
    }

    fn give(&mut self, out: &mut Vec<u8>) {
        while self.wants_write() {
            self.write_tls(out).unwrap();
        }
    }

    fn send(&mut self, data: &[u8]) {
        self.writer().write_all(data).unwrap();
    }

    fn is_connected(&self) -> bool {
        !self.is_handshaking()
    }

    fn is_resumed(&self) -> bool {
        self.handshake_kind() == Some(HandshakeKind::Resumed)
    }
}

/// Returns `None` for pre-shared keys, which rustls does not support.
pub(crate) fn makers(handshake: Handshake) -> Option<(Maker, Maker)> {
    let pki = Pki::shared(handshake.keys());
    let resumed = handshake == Handshake::Resumed;
    let (version, suite) = match handshake {
        Handshake::Full(_) | Handshake::Resumed => (&TLS13, cipher_suite::TLS13_AES_128_GCM_SHA256),
        Handshake::Tls12(KeyType::Rsa2048) => (&TLS12, cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
        Handshake::Tls12(_) => (&TLS12, cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
        // rustls has no plain PSK and no DTLS.
        Handshake::Tls12Psk | Handshake::Dtls(..) | Handshake::DtlsResumed(_) => return None,
    };
    let provider = Arc::new(CryptoProvider {
        cipher_suites: vec![suite],
        kx_groups: vec![kx_group::SECP256R1],
        ..aws_lc_rs::default_provider()
    });
    let mut roots = RootCertStore::empty();
    roots.add(pki.root.clone()).unwrap();
    let roots = Arc::new(roots);
    let key = |leaf: &Leaf| PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(leaf.key.clone()));
    let verifier =
        rustls::server::WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
    let mut server = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[version])
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(pki.server.chain.clone(), key(&pki.server))
        .unwrap();
    server.send_tls13_tickets = usize::from(resumed);
    if !resumed {
        server.session_storage = Arc::new(NoServerSessionStorage {});
    }
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(pki.client.chain.clone(), key(&pki.client))
        .unwrap();
    if !resumed {
        client.resumption = rustls::client::Resumption::disabled();
    }
    let client = Arc::new(client);
    let server = Arc::new(server);
    let name = ServerName::try_from("localhost").unwrap();
    Some((
        Box::new(move || {
            let connection = rustls::ClientConnection::new(client.clone(), name.clone()).unwrap();
            Box::new(Connection::from(connection))
        }),
        Box::new(move || Box::new(Connection::from(rustls::ServerConnection::new(server.clone()).unwrap()))),
    ))
}
