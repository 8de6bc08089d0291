//! Dunlin on blocking sockets.

use std::fmt::Display;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread;

use dunlin::auth::{RawKeyTrust, X509Trust};
use dunlin::cache::DEFAULT_MAX_AGE;
use dunlin::crypto::Tls12CipherSuite;
use dunlin::resume::Tickets;
use dunlin::wire::{ProtocolVersion, SignatureScheme};
use dunlin::{
    ClientAuth, ClientConfig, Negotiated, Profile, ServerAddress, ServerConfig, Side, TlsConnection, Trust,
};
use dunlin_awslc::tls12::{
    TLS12_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS12_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
};
use dunlin_pki::KeyType;
use dunlin_store::{MemoryClientCache, MemoryClientSessions, MemoryServerCache, MemoryServerSessions};
use nix::libc::MSG_MORE;
use nix::sys::socket::{MsgFlags, send};
use pki_types::PrivateKeyDer;

use super::case::{CONNECTIONS, Case, Credential, End, Handshake, Mode, PATIENCE, Protocol};
use super::{ANSWER, QUESTION, SERVER_NAME, Stack, datagrams};
use crate::Error;
use crate::net::{Ground, Pair};

/// More than the payload of the largest TCP segment.
const BUFFER: usize = 1 << 16;

pub(super) struct Dunlin;

impl Stack for Dunlin {
    fn name(&self) -> &'static str {
        "dunlin"
    }

    fn has(&self, _: &Case<'_>, _: u16) -> bool {
        true
    }

    fn connect(&self, _: &Ground, pair: &Pair, case: &Case<'_>, mtu: u16) -> Result<(), Error> {
        if case.protocol.is_over_datagrams() {
            return datagrams::connect(pair, case, mtu);
        }
        let (client, server) = (Arc::new(client(case)?), Arc::new(server(case)?));
        let listener = pair.server.run(|| TcpListener::bind((Pair::SERVER, 0)))?.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        thread::scope(|scope| {
            let serving = scope
                .spawn(|| pair.server.run(|| CONNECTIONS.iter().try_for_each(|_| serve(&listener, &server))));
            let connecting = pair.client.run(|| {
                case.mode.handshakes().into_iter().try_for_each(|handshake| ask(address, &client, handshake))
            });
            if connecting.as_ref().is_ok_and(Result::is_ok) {
                serving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))??;
            } else {
                // The server waits for a connection that does not come.
                drop(TcpStream::connect(address));
            }
            connecting?
        })
    }
}

pub(super) fn client(case: &Case<'_>) -> Result<ClientConfig, Error> {
    let config =
        ClientConfig::new(profile(case, &case.keys.client, &case.keys.server)?).with_server_name_sent(false);
    let config = match case.mode {
        Mode::Resumption | Mode::ResumptionWithCache(_) => {
            config.with_sessions(Arc::new(MemoryClientSessions::new(1, 1)))
        }
        Mode::Vanilla | Mode::Cache(_) => config,
    };
    Ok(match case.mode {
        Mode::Vanilla | Mode::Resumption => config,
        Mode::Cache(mode) | Mode::ResumptionWithCache(mode) => {
            config.with_handshake_cache(mode, Arc::new(MemoryClientCache::new(1)), DEFAULT_MAX_AGE)
        }
    })
}

pub(super) fn server(case: &Case<'_>) -> Result<ServerConfig, Error> {
    let config = ServerConfig::new(profile(case, &case.keys.server, &case.keys.client)?).map_err(failed)?;
    let config = config.with_client_auth(ClientAuth::Required).map_err(failed)?;
    let config = match case.mode {
        Mode::Resumption | Mode::ResumptionWithCache(_) => {
            config.with_tickets(Tickets::stateful(Arc::new(MemoryServerSessions::new(CONNECTIONS.len()))))
        }
        Mode::Vanilla | Mode::Cache(_) => config,
    };
    Ok(match case.mode {
        Mode::Vanilla | Mode::Resumption => config,
        Mode::Cache(mode) | Mode::ResumptionWithCache(mode) => {
            let store = Arc::new(MemoryServerCache::new(1));
            config.with_handshake_cache(mode, store, DEFAULT_MAX_AGE).map_err(failed)?
        }
    })
}

fn profile(case: &Case<'_>, own: &End, peer: &End) -> Result<Profile, Error> {
    let provider = Arc::new(dunlin_awslc::provider());
    let der = own.identity.key.to_pkcs8().map_err(failed)?;
    let key = provider.key_loader.load(&PrivateKeyDer::Pkcs8(der.as_slice().into())).map_err(failed)?;
    let (credential, trust) = match case.keys.credential {
        Credential::X509(_) | Credential::Mixed { .. } => {
            let x509 = X509Trust::anchors([peer.root.clone()]).map_err(failed)?;
            let credential = dunlin::Credential::x509(own.identity.chain.clone(), key);
            (credential, Trust { x509: Some(x509), raw_key: None })
        }
        Credential::RawKey(_) => {
            let raw_key = RawKeyTrust::Keys(vec![peer.identity.key.public_key().clone()]);
            (dunlin::Credential::raw_key(key), Trust { x509: None, raw_key: Some(raw_key) })
        }
    };
    let profile = Profile::builder(provider).compatibility_mode(false).groups(vec![dunlin_awslc::SECP256R1]);
    let profile = match case.protocol {
        Protocol::Tls13 | Protocol::Dtls13 => {
            profile.cipher_suites(vec![&dunlin_awslc::TLS13_AES_256_GCM_SHA384])
        }
        Protocol::Tls12 | Protocol::Dtls12 => {
            profile.cipher_suites(vec![]).tls12_cipher_suites(vec![suite(case.keys.credential)])
        }
    };
    let profile = profile.signature_schemes(schemes(case)).credentials(vec![credential]).trust(trust);
    profile.build().map_err(failed)
}

/// The TLS 1.2 suite for these keys.
const fn suite(credential: Credential) -> &'static Tls12CipherSuite {
    match credential.key_type(Side::Server) {
        KeyType::Rsa2048 | KeyType::Rsa3072 | KeyType::Rsa4096 => &TLS12_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        // RFC 8422 §5.10: Ed25519 has no suites of its own.
        _ => &TLS12_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    }
}

/// The signature schemes of handshakes and certificates. If the sides' keys differ, both are RSA keys.
fn schemes(case: &Case<'_>) -> Vec<SignatureScheme> {
    match (case.keys.credential.key_type(Side::Server), case.protocol) {
        (KeyType::P256, _) => vec![SignatureScheme::ECDSA_SECP256R1_SHA256],
        (KeyType::P384, _) => vec![SignatureScheme::ECDSA_SECP384R1_SHA384],
        (KeyType::P521, _) => vec![SignatureScheme::ECDSA_SECP521R1_SHA512],
        (KeyType::Ed25519, _) => vec![SignatureScheme::ED25519],
        (KeyType::MlDsa44, _) => vec![SignatureScheme::MLDSA44],
        (KeyType::MlDsa65, _) => vec![SignatureScheme::MLDSA65],
        (KeyType::RsaPss2048 | KeyType::RsaPss3072 | KeyType::RsaPss4096, _) => {
            vec![SignatureScheme::RSA_PSS_PSS_SHA256]
        }
        (_, Protocol::Tls12 | Protocol::Dtls12) => vec![SignatureScheme::RSA_PKCS1_SHA256],
        // RFC 8446 §4.2.3: RSASSA-PKCS1-v1_5 signs certificates, but not handshakes.
        (_, _) => vec![SignatureScheme::RSA_PSS_RSAE_SHA256, SignatureScheme::RSA_PKCS1_SHA256],
    }
}

/// One connection of the client.
fn ask(address: SocketAddr, config: &Arc<ClientConfig>, handshake: Handshake) -> Result<(), Error> {
    let tcp = TcpStream::connect(address).map_err(failed)?;
    let server = ServerAddress::parse(SERVER_NAME, address.port()).map_err(failed)?;
    let connection = TlsConnection::client(config, server, dunlin_tokio::now()).map_err(failed)?;
    let mut tls = Tls::new(tcp, connection)?;
    // The last flight is sent with the first data.
    while tls.connection.negotiated().is_none() {
        tls.flush()?;
        tls.receive()?;
    }
    expect(Side::Client, tls.connection.negotiated(), handshake)?;
    tls.say(QUESTION)?;
    tls.flush()?;
    tls.hear(ANSWER)?;
    tls.close()?;
    tls.hear_end()
}

/// Checks the kind of the handshake on this side.
pub(super) fn expect(side: Side, negotiated: Option<&Negotiated>, wanted: Handshake) -> Result<(), Error> {
    let seen = negotiated.map(|all| {
        let (own, peer) = (all.is_own_cached(), all.is_peer_cached());
        match side {
            Side::Client => [all.is_resumed(), peer, own],
            Side::Server => [all.is_resumed(), own, peer],
        }
    });
    match seen == Some(wanted.parts()) {
        true => Ok(()),
        false => Err(failed(format_args!("a handshake is not {wanted:?}, as it should be"))),
    }
}

/// One connection of the server.
fn serve(listener: &TcpListener, config: &Arc<ServerConfig>) -> Result<(), Error> {
    let (tcp, _) = listener.accept().map_err(failed)?;
    let mut tls = Tls::new(tcp, TlsConnection::server(config, dunlin_tokio::now()))?;
    while tls.connection.negotiated().is_none() {
        tls.flush()?;
        tls.receive()?;
    }
    if tls.connection.negotiated().is_some_and(|all| all.version == Some(ProtocolVersion::TLS1_2)) {
        // RFC 5246 §7.3: the client waits for this side's Finished.
        tls.flush()?;
    }
    // In TLS 1.3 the ticket is sent with the answer.
    tls.hear(QUESTION)?;
    tls.say(ANSWER)?;
    tls.flush()?;
    tls.hear_end()?;
    tls.close()
}

/// A connection and its socket. Output waits for a flush, so that it can share a segment with later output.
struct Tls {
    tcp: TcpStream,
    connection: TlsConnection,
    buffer: Vec<u8>,
}

impl Tls {
    fn new(tcp: TcpStream, connection: TlsConnection) -> Result<Self, Error> {
        tcp.set_nodelay(true).and_then(|()| tcp.set_read_timeout(Some(PATIENCE))).map_err(failed)?;
        Ok(Self { tcp, connection, buffer: vec![0; BUFFER] })
    }

    /// Sends all waiting output.
    fn flush(&mut self) -> Result<(), Error> {
        let waiting = self.connection.transmit();
        self.tcp.write_all(waiting).map_err(failed)?;
        let sent = waiting.len();
        self.connection.transmitted(sent);
        Ok(())
    }

    /// Receives bytes; returns false at the end of TCP.
    fn receive(&mut self) -> Result<bool, Error> {
        let len = self.tcp.read(&mut self.buffer).map_err(failed)?;
        let received = self.buffer.get(..len).unwrap_or_default();
        let taken = match len {
            0 => self.connection.receive_end().map(|()| 0),
            _ => self.connection.receive(dunlin_tokio::now(), received),
        };
        match taken {
            Ok(taken) if taken == len => Ok(len > 0),
            // `receive` stops at unread data or a question; neither occurs here.
            Ok(_) => Err(failed("more came than was agreed")),
            Err(error) => {
                // The peer gets an alert. If it does not, this side's reason is still the better one.
                let _ = self.flush();
                Err(failed(error))
            }
        }
    }

    /// Seals a message.
    fn say(&mut self, message: &[u8]) -> Result<(), Error> {
        match self.connection.send(message).map_err(failed)? {
            len if len == message.len() => Ok(()),
            _ => Err(failed("a short message does not fit")),
        }
    }

    /// Waits for this message.
    fn hear(&mut self, message: &[u8]) -> Result<(), Error> {
        while self.connection.received().len() < message.len() {
            if !self.receive()? {
                return Err(failed("the peer closed before it said anything"));
            }
        }
        if self.connection.received() != message {
            return Err(failed("the peer said something else"));
        }
        self.connection.consume(dunlin_tokio::now(), message.len()).map_err(failed)
    }

    /// Waits until the peer has closed.
    fn hear_end(&mut self) -> Result<(), Error> {
        while self.receive()? {}
        Ok(())
    }

    /// Sends close_notify and, in the same segment, FIN.
    fn close(&mut self) -> Result<(), Error> {
        self.connection.close();
        let waiting = self.connection.transmit();
        match send(self.tcp.as_raw_fd(), waiting, MsgFlags::from_bits_retain(MSG_MORE)) {
            Ok(sent) if sent == waiting.len() => {}
            Ok(_) => return Err(failed("a short message does not fit")),
            Err(errno) => return Err(failed(io::Error::from(errno))),
        }
        let sent = waiting.len();
        self.connection.transmitted(sent);
        self.tcp.shutdown(Shutdown::Write).map_err(failed)
    }
}

pub(super) fn failed(why: impl Display) -> Error {
    Error::new("dunlin", why, "run it again; if it stays, this is a fault in dunlin")
}
