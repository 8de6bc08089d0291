//! What a connection's hellos and a key log say together: version, suite, and the secrets of each direction.

use dunlin::Side;
use dunlin::crypto::Tls13CipherSuite;
use dunlin::wire::{CipherSuite, HandshakeType, ProtocolVersion};

use crate::content;
use crate::keylog::{KeyLog, Label};
use crate::message::{self, Dialect, ServerHello};
use crate::names;
use crate::tls12;

/// One connection of TLS or DTLS.
pub(crate) struct Session<'k> {
    random: Option<[u8; 32]>,
    hello: Option<ServerHello>,
    is_datagram: bool,
    key_logs: &'k [&'k KeyLog],
}

impl<'k> Session<'k> {
    /// By the handshake bytes that are in the clear: those of the client and of the server, or all in one.
    pub(crate) fn new(is_datagram: bool, plain: &[Vec<u8>; 2], key_logs: &'k [&'k KeyLog]) -> Self {
        let mut session = Self { random: None, hello: None, is_datagram, key_logs };
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
    }

    pub(crate) fn server_hello(&mut self, body: &[u8]) {
        // What comes after a ServerHello that is no retry is protected, or another handshake.
        if self.hello.is_none_or(|hello| hello.is_retry) {
            self.hello = ServerHello::read(body).or(self.hello);
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

    /// By how much a record of TLS 1.2 is longer than its content, in bytes, where its suite tells.
    pub(crate) fn overhead12(&self) -> Option<usize> {
        self.hello.and_then(|hello| names::overhead12(hello.suite))
    }

    /// The logged secrets of a direction of TLS 1.3 in the order of their use, with their epochs in DTLS 1.3 (RFC 9147
    /// §6.1). One that is missing is passed over.
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

    /// The keys of a direction of TLS 1.2 or DTLS 1.2, if its master secret is in the log.
    pub(crate) fn keys12(&self, side: Side) -> Option<tls12::Keys> {
        let hello = self.hello.filter(|_| !self.is_13())?;
        let master = self.secret(Label::ClientRandom)?;
        tls12::Keys::new(hello.suite, side, master, self.random.as_ref()?, &hello.random)
    }

    fn secret(&self, label: Label) -> Option<&'k [u8]> {
        let random = self.random.as_ref()?;
        self.key_logs.iter().find_map(|log| log.secret(random, label))
    }

    /// Why records of a direction were not opened, if that was to be expected.
    pub(crate) fn why_sealed(&self, side: Side) -> Option<&'static str> {
        if self.key_logs.is_empty() {
            return None;
        }
        let (handshake, traffic) = match side {
            Side::Client => (Label::ClientHandshakeTraffic, Label::ClientTraffic0),
            Side::Server => (Label::ServerHandshakeTraffic, Label::ServerTraffic0),
        };
        let hello = match (self.random, self.hello) {
            (None, _) => return Some("without the ClientHello their secrets cannot be found in the key log"),
            (_, None) => return Some("without the ServerHello it is not known how to decrypt them"),
            (Some(_), Some(hello)) => hello,
        };
        if !self.is_13() {
            return Some(match self.secret(Label::ClientRandom) {
                _ if !tls12::is_known(hello.suite) => "records of their cipher suite are not decrypted here",
                None => "the key log has no secret of this connection",
                Some(_) => "the secret in the key log does not open them",
            });
        }
        Some(match (suite(hello.suite), self.secret(handshake), self.secret(traffic)) {
            (None, _, _) => "records of their cipher suite are not decrypted here",
            (_, Some(_), Some(_)) => "the secrets in the key log do not open them",
            (_, None, None) => "the key log has no secrets of this connection",
            (_, None, Some(_)) => "the key log has no handshake traffic secret of this connection",
            (_, Some(_), None) => "the key log has no application traffic secret of this connection",
        })
    }
}

/// The suite with this number, of those that records can be opened with.
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
