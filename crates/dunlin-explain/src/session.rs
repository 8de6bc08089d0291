//! The version, suite and secrets of a connection, from its hellos and the key logs.

use dunlin::Side;
use dunlin::crypto::Tls13CipherSuite;
use dunlin::wire::{CipherSuite, HandshakeType, ProtocolVersion};

use crate::content;
use crate::keylog::{KeyLog, Label};
use crate::message::{self, Dialect, ServerHello};
use crate::names;
use crate::tls12::{self, Protection};

/// One connection of TLS or DTLS.
pub(crate) struct Session<'k> {
    random: Option<[u8; 32]>,
    hello: Option<ServerHello>,
    /// The lengths of the connection IDs in the hellos of client and server.
    ids: [Option<usize>; 2],
    is_datagram: bool,
    key_logs: &'k [&'k KeyLog],
}

impl<'k> Session<'k> {
    /// Reads the hellos in the unencrypted handshake bytes of both directions.
    pub(crate) fn new(is_datagram: bool, plain: &[Vec<u8>; 2], key_logs: &'k [&'k KeyLog]) -> Self {
        let mut session = Self { random: None, hello: None, ids: [None; 2], is_datagram, key_logs };
        for (typ, body) in plain.iter().flat_map(|plain| content::messages(plain)) {
            match typ {
                HandshakeType::CLIENT_HELLO => session.client_hello(body),
                HandshakeType::SERVER_HELLO => session.server_hello(body),
                _ => {}
            }
        }
        session
    }

    pub(crate) fn client_hello(&mut self, body: &[u8]) {
        self.random = self.random.or_else(|| message::client_random(body));
        let id = message::connection_id(HandshakeType::CLIENT_HELLO, body, self.is_datagram);
        self.ids[0] = self.ids[0].or(id);
    }

    pub(crate) fn server_hello(&mut self, body: &[u8]) {
        // Only a HelloRetryRequest is followed by another ServerHello. A later one belongs to a
        // renegotiation.
        if self.hello.is_none_or(|hello| hello.is_retry) {
            self.hello = ServerHello::read(body).or(self.hello);
            let id = message::connection_id(HandshakeType::SERVER_HELLO, body, self.is_datagram);
            self.ids[1] = self.ids[1].or(id);
        }
    }

    /// Whether the hellos have no ServerHello but perhaps a HelloRetryRequest.
    pub(crate) fn awaits_server_hello(&self) -> bool {
        self.hello.is_none_or(|hello| hello.is_retry)
    }

    /// The length of the connection IDs in the records of this side, in bytes: those that its peer wants to
    /// receive. 0 without them.
    pub(crate) fn id_len(&self, side: Side) -> usize {
        match self.ids {
            [Some(client), Some(server)] => {
                if side == Side::Client {
                    server
                } else {
                    client
                }
            }
            _ => 0,
        }
    }

    pub(crate) fn version(&self) -> Option<ProtocolVersion> {
        self.hello.map(|hello| hello.version)
    }

    pub(crate) fn is_13(&self) -> bool {
        matches!(self.version(), Some(ProtocolVersion::TLS1_3 | ProtocolVersion::DTLS1_3))
    }

    pub(crate) fn dialect(&self) -> Dialect {
        Dialect { is_datagram: self.is_datagram, is_13: self.is_13() }
    }

    pub(crate) fn suite_name(&self) -> Option<String> {
        self.hello.map(|hello| names::cipher_suite(hello.suite))
    }

    /// How many bytes protection adds to a TLS 1.2 record, if its suite adds a constant number.
    pub(crate) fn overhead12(&self) -> Option<usize> {
        self.hello.and_then(|hello| Protection::of(hello.suite)).map(Protection::overhead)
    }

    /// The logged TLS 1.3 secrets of a direction in the order of their use, with their DTLS epochs (RFC 9147
    /// §6.1). Missing secrets are left out.
    pub(crate) fn secrets(&self, side: Side) -> Vec<(&'static Tls13CipherSuite, u64, &'k [u8])> {
        let labels: &[(u64, Label)] = match side {
            Side::Client => &[
                (1, Label::ClientEarlyTraffic),
                (2, Label::ClientHandshakeTraffic),
                (3, Label::ClientTraffic0),
            ],
            Side::Server => &[(2, Label::ServerHandshakeTraffic), (3, Label::ServerTraffic0)],
        };
        let Some(suite) = self.hello.filter(|_| self.is_13()).and_then(|hello| suite(hello.suite)) else {
            return Vec::new();
        };
        labels.iter().filter_map(|(epoch, label)| Some((suite, *epoch, self.secret(*label)?))).collect()
    }

    /// The TLS 1.2 or DTLS 1.2 keys of a direction, if a key log has the master secret.
    pub(crate) fn keys12(&self, side: Side) -> Option<tls12::Keys> {
        let hello = self.hello.filter(|_| !self.is_13())?;
        let master = self.secret(Label::ClientRandom)?;
        tls12::Keys::new(hello.suite, side, master, self.random.as_ref()?, &hello.random)
    }

    fn secret(&self, label: Label) -> Option<&'k [u8]> {
        let random = self.random.as_ref()?;
        self.key_logs.iter().find_map(|log| log.secret(random, label))
    }

    /// Why records of a direction were not decrypted; `None` without a key log, where the reason is plain.
    pub(crate) fn why_sealed(&self, side: Side) -> Option<&'static str> {
        if self.key_logs.is_empty() {
            return None;
        }
        let (handshake, traffic) = match side {
            Side::Client => (Label::ClientHandshakeTraffic, Label::ClientTraffic0),
            Side::Server => (Label::ServerHandshakeTraffic, Label::ServerTraffic0),
        };
        let hello = match (self.random, self.hello) {
            (None, _) => {
                return Some("the capture lacks the ClientHello, which identifies the connection's secrets");
            }
            (_, None) => return Some("the capture lacks the ServerHello, which names the cipher suite"),
            (Some(_), Some(hello)) => hello,
        };
        if !self.is_13() {
            return Some(match self.secret(Label::ClientRandom) {
                _ if !tls12::is_known(hello.suite) => "decrypting their cipher suite is not supported",
                None => "the key log has no secret of this connection",
                Some(_) => "the secret in the key log does not decrypt them",
            });
        }
        Some(match (suite(hello.suite), self.secret(handshake), self.secret(traffic)) {
            (None, _, _) => "decrypting their cipher suite is not supported",
            (_, Some(_), Some(_)) => "the secrets in the key log do not decrypt them",
            (_, None, None) => "the key log has no secrets of this connection",
            (_, None, Some(_)) => "the key log has no handshake traffic secret of this connection",
            (_, Some(_), None) => "the key log has no application traffic secret of this connection",
        })
    }
}

/// The TLS 1.3 suite with this number, if decrypting it is supported.
fn suite(id: CipherSuite) -> Option<&'static Tls13CipherSuite> {
    [
        &dunlin_awslc::TLS13_AES_128_GCM_SHA256,
        &dunlin_awslc::TLS13_AES_256_GCM_SHA384,
        &dunlin_awslc::TLS13_CHACHA20_POLY1305_SHA256,
        &dunlin_awslc::TLS13_AES_128_CCM_SHA256,
        &dunlin_awslc::TLS13_AES_128_CCM_8_SHA256,
    ]
    .into_iter()
    .find(|suite| suite.id == id)
}
