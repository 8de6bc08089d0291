//! The system's OpenSSL.

use std::cell::RefCell;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use dunlin_tests::{KeyType, Leaf, Pki};
use openssl::pkey::PKey;
use openssl::ssl::{
    ErrorCode, ShutdownState, Ssl, SslContext, SslContextBuilder, SslMethod, SslMode, SslOptions, SslRef,
    SslSession, SslSessionCacheMode, SslStream, SslVerifyMode, SslVersion,
};
use openssl::x509::X509;

use crate::handshake::{Handshake, PSK, PSK_IDENTITY};
use crate::stack::{End, Maker};

/// Input and output in memory. All clients share one, and all servers another: it is empty between turns, and
/// does not count as memory of a connection.
#[derive(Clone, Default)]
struct Wire(Rc<RefCell<Buffers>>);

#[derive(Default)]
struct Buffers {
    incoming: Vec<u8>,
    read: usize,
    outgoing: Vec<u8>,
    /// The buffer for received data.
    data: Vec<u8>,
}

impl Read for Wire {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut wire = self.0.borrow_mut();
        let n = (&wire.incoming[wire.read..]).read(buf)?;
        wire.read += n;
        if n == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(n) }
    }
}

impl Write for Wire {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().outgoing.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct OpenSslEnd {
    stream: SslStream<Wire>,
    wire: Wire,
}

impl OpenSslEnd {
    fn new(ssl: Ssl, wire: &Wire) -> Self {
        Self { stream: SslStream::new(ssl, wire.clone()).unwrap(), wire: wire.clone() }
    }

    /// Continues the handshake as far as possible.
    fn advance(&mut self) {
        if let Err(e) = self.stream.do_handshake() {
            assert_eq!(e.code(), ErrorCode::WANT_READ, "{e}");
        }
    }
}

/// OpenSSL forgets the session of a connection that was not closed, so close it.
impl Drop for OpenSslEnd {
    fn drop(&mut self) {
        self.stream.set_shutdown(ShutdownState::SENT | ShutdownState::RECEIVED);
    }
}

impl End for OpenSslEnd {
    fn take(&mut self, bytes: &[u8]) -> usize {
        let mut data = {
            let mut wire = self.wire.0.borrow_mut();
            wire.incoming.clear();
            wire.incoming.extend_from_slice(bytes);
            wire.read = 0;
            std::mem::take(&mut wire.data)
        };
        data.resize(16 * 1024, 0);
        if !self.is_connected() {
            self.advance();
        }
        let mut came = 0;
        if self.is_connected() {
            came = loop {
                match self.stream.ssl_read(&mut data) {
                    Ok(n) => came += black_box(&data[..n]).len(),
                    Err(e) => {
                        assert_eq!(e.code(), ErrorCode::WANT_READ, "{e}");
                        break came;
                    }
                }
            };
        }
        self.wire.0.borrow_mut().data = data;
        came
    }

    fn give(&mut self, out: &mut Vec<u8>) {
        out.append(&mut self.wire.0.borrow_mut().outgoing);
    }

    fn send(&mut self, data: &[u8]) {
        self.stream.write_all(data).unwrap();
    }

    fn is_connected(&self) -> bool {
        self.stream.ssl().is_init_finished()
    }

    fn is_resumed(&self) -> bool {
        self.stream.ssl().session_reused()
    }
}

/// Sets version and cipher suite.
fn context(handshake: Handshake) -> SslContextBuilder {
    let mut builder = SslContext::builder(SslMethod::tls()).unwrap();
    let (version, suite) = match handshake {
        Handshake::Tls12(KeyType::Rsa2048) => (SslVersion::TLS1_2, "ECDHE-RSA-AES128-GCM-SHA256"),
        Handshake::Tls12(_) => (SslVersion::TLS1_2, "ECDHE-ECDSA-AES128-GCM-SHA256"),
        Handshake::Tls12Psk => (SslVersion::TLS1_2, "PSK-AES128-GCM-SHA256"),
        _ => (SslVersion::TLS1_3, "TLS_AES_128_GCM_SHA256"),
    };
    builder.set_min_proto_version(Some(version)).unwrap();
    builder.set_max_proto_version(Some(version)).unwrap();
    if version == SslVersion::TLS1_3 {
        builder.set_ciphersuites(suite).unwrap()
    } else {
        builder.set_cipher_list(suite).unwrap()
    }
    builder.set_groups_list("P-256").unwrap();
    // Otherwise idle connections keep buffers of 16 KiB.
    builder.set_mode(SslMode::RELEASE_BUFFERS);
    builder
}

fn with_certificates(
    mut builder: SslContextBuilder,
    pki: &Pki,
    leaf: &Leaf,
    verify: SslVerifyMode,
) -> SslContextBuilder {
    builder.set_verify(verify);
    builder.cert_store_mut().add_cert(X509::from_der(&pki.root).unwrap()).unwrap();
    let [certificate, intermediate] = &leaf.chain[..] else { panic!("leaf and intermediate") };
    builder.set_certificate(&X509::from_der(certificate).unwrap()).unwrap();
    builder.add_extra_chain_cert(X509::from_der(intermediate).unwrap()).unwrap();
    builder.set_private_key(&PKey::private_key_from_pem(leaf.key_pem().as_bytes()).unwrap()).unwrap();
    builder
}

fn certificate_contexts(handshake: Handshake) -> (SslContextBuilder, SslContextBuilder) {
    let pki = Pki::shared(handshake.keys());
    let demanded = SslVerifyMode::PEER | SslVerifyMode::FAIL_IF_NO_PEER_CERT;
    (
        with_certificates(context(handshake), pki, &pki.client, SslVerifyMode::PEER),
        with_certificates(context(handshake), pki, &pki.server, demanded),
    )
}

fn psk_contexts(handshake: Handshake) -> (SslContextBuilder, SslContextBuilder) {
    let mut client = context(handshake);
    let mut server = context(handshake);
    client.set_psk_client_callback(|_, _, identity, key| {
        identity[..PSK_IDENTITY.len()].copy_from_slice(PSK_IDENTITY.as_bytes());
        identity[PSK_IDENTITY.len()] = 0;
        key[..PSK.len()].copy_from_slice(&PSK);
        Ok(PSK.len())
    });
    server.set_psk_server_callback(|_, identity, key| {
        if identity != Some(PSK_IDENTITY.as_bytes()) {
            return Ok(0);
        }
        key[..PSK.len()].copy_from_slice(&PSK);
        Ok(PSK.len())
    });
    (client, server)
}

pub(crate) fn makers(handshake: Handshake) -> Option<(Maker, Maker)> {
    // OpenSSL has no DTLS 1.3.
    if handshake.mtu().is_some() {
        return None;
    }
    let resumed = handshake == Handshake::Resumed;
    let (mut client, mut server) = match handshake {
        Handshake::Tls12Psk => psk_contexts(handshake),
        _ => certificate_contexts(handshake),
    };
    server.set_num_tickets(usize::from(resumed)).unwrap();
    server.set_session_id_context(b"race").unwrap();
    // Use stateful tickets, as the other competitors do.
    server.set_options(SslOptions::NO_TICKET);
    if !resumed {
        server.set_session_cache_mode(SslSessionCacheMode::OFF);
    }
    let session: Arc<Mutex<Option<SslSession>>> = Arc::default();
    if resumed {
        let newest = session.clone();
        client.set_session_cache_mode(SslSessionCacheMode::CLIENT | SslSessionCacheMode::NO_INTERNAL);
        client.set_new_session_callback(move |_: &mut SslRef, session| {
            *newest.lock().unwrap() = Some(session);
        });
    }
    let client = client.build();
    let server = server.build();
    let client_wire = Wire::default();
    let server_wire = Wire::default();
    Some((
        Box::new(move || {
            let mut ssl = Ssl::new(&client).unwrap();
            ssl.set_hostname("localhost").unwrap();
            ssl.param_mut().set_host("localhost").unwrap();
            if let Some(session) = session.lock().unwrap().take() {
                #[expect(unsafe_code, reason = "the binding has no safe way to resume")]
                // SAFETY: the session was made under the same context.
                unsafe {
                    ssl.set_session(&session).unwrap();
                }
            }
            ssl.set_connect_state();
            let mut end = OpenSslEnd::new(ssl, &client_wire);
            end.advance();
            Box::new(end)
        }),
        Box::new(move || {
            let mut ssl = Ssl::new(&server).unwrap();
            ssl.set_accept_state();
            Box::new(OpenSslEnd::new(ssl, &server_wire))
        }),
    ))
}
