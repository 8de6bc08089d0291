//! The JSON objects of `dunlin client`, `dunlin server` and `dunlin-lab up` (docs/json.md): one type for all
//! three.

use std::net::SocketAddr;

use base64ct::{Base64, Encoding};
use dunlin::{HandshakeKind, MessageSize, Side as TlsSide};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::error::{Code, Error, Explanation};

/// One object in one line. `event` names its kind.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A server listens.
    Listening {
        /// Where.
        address: SocketAddr,
    },
    /// A handshake is complete.
    Connection(Box<Connection>),
    /// Another handshake within a TLS 1.2 connection is complete.
    Renegotiation(Box<Connection>),
    /// The peer has accepted this side. It follows a `connection` with `accepted: false`.
    Accepted(At),
    /// A client has received data.
    Data(Data),
    /// A connection of a client has ended without a failure.
    Closed(Closed),
    /// A server has accepted a TCP connection, or a client of DTLS has proven its address.
    Incoming(At),
    /// A handshake message on a server's connection.
    Message(AtMessage),
    /// A connection of a server has ended.
    Ended(Ended),
    /// The peer of a DTLS association is at another address now, which the event has.
    PeerMoved(At),
    /// A DTLS association sends over another interface or from another address now.
    PathChanged(PathChanged),
    /// A server has read these files again, and uses their new content.
    Reloaded {
        /// Their names.
        files: Vec<String>,
    },
    /// A server has read files again, and continues with their previous content.
    NotReloaded {
        /// Why.
        why: String,
    },
    /// A server could not accept a TCP connection.
    NotAccepted {
        /// Why.
        why: String,
    },
    /// A connection of a server was frozen.
    Paused(At),
    /// A server has frozen its associations.
    Frozen(Frozen),
    /// A server continues associations that another process has frozen.
    Thawed(Frozen),
    /// A connection, or the command, has failed.
    Failure(Failure),
    /// The reader of a server's log was too slow, so lines are missing.
    Lost {
        /// How many.
        lines: u64,
    },
}

impl Event {
    /// The line, without its end.
    pub fn line(&self) -> String {
        // Only maps with keys other than text can fail, and there are none.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// A side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The client.
    Client,
    /// The server.
    Server,
}

impl Side {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

impl From<TlsSide> for Side {
    fn from(side: TlsSide) -> Self {
        match side {
            TlsSide::Client => Self::Client,
            TlsSide::Server => Self::Server,
        }
    }
}

/// A side of a connection, and its peer.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct At {
    /// The side that reports.
    pub side: Side,
    /// The address of its peer.
    pub address: SocketAddr,
}

impl At {
    /// A side, and the address of its peer.
    pub const fn new(side: Side, address: SocketAddr) -> Self {
        Self { side, address }
    }
}

/// The end of a client's connection.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Closed {
    /// The side, and its peer.
    #[serde(flatten)]
    pub at: At,
    /// Whether the server's close_notify came.
    pub answered: bool,
}

/// A complete handshake.
#[derive(Clone, Debug, Serialize)]
pub struct Connection {
    /// The side, and its peer.
    #[serde(flatten)]
    pub at: At,
    /// Only for `up`.
    #[serde(flatten)]
    pub device: Option<Device>,
    /// The result of the handshake.
    #[serde(flatten)]
    pub handshake: Handshake,
    /// Only for `up`.
    #[serde(flatten)]
    pub exchange: Option<Exchange>,
    /// Only for `up`.
    #[serde(flatten)]
    pub chosen: Option<Chosen>,
}

impl Connection {
    /// The event of a client or a server.
    pub const fn new(at: At, handshake: Handshake) -> Self {
        Self { at, device: None, handshake, exchange: None, chosen: None }
    }
}

/// The result of a handshake. Protocol names are spelled as in IANA's registries; texts are for people, codes
/// for programs.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Handshake {
    /// The version.
    pub version: Option<String>,
    /// The cipher suite.
    pub cipher_suite: Option<String>,
    /// The group of the key exchange.
    pub group: Option<String>,
    /// The application protocol.
    pub alpn: Option<String>,
    /// The name that the client asked for.
    pub server_name: Option<String>,
    /// The identity of the peer.
    pub peer: Option<String>,
    /// The serial number of the peer's certificate, in hexadecimal.
    pub peer_serial: Option<String>,
    /// The digest of the certificate.
    pub peer_sha256: Option<String>,
    /// The peer's DID.
    pub peer_did: Option<String>,
    /// The issuer's DID.
    pub peer_issuer: Option<String>,
    /// The claims about the peer.
    pub peer_claims: Option<Map<String, Value>>,
    /// The scheme of the peer's signature.
    pub peer_signature: Option<String>,
    /// The scheme of this side's signature.
    pub own_signature: Option<String>,
    /// How it authenticated the sides.
    #[serde(rename = "handshake")]
    pub kind: Kind,
    /// Whether it resumed a session.
    pub resumed: bool,
    /// Whether the server omitted its certificates.
    pub server_certificate_cached: bool,
    /// Whether the client omitted its certificates.
    pub client_certificate_cached: bool,
    /// The result of the handshake cache; `null` if this side has none.
    pub cache: Option<String>,
    /// The same as a code.
    pub cache_code: Option<CacheCode>,
    /// The bytes of its own certificates that this side omitted because of the cache.
    pub saved_bytes: usize,
    /// Whether the server asked for another ClientHello.
    pub hello_retry_request: bool,
    /// The connection ID that this side receives, in hexadecimal.
    pub connection_id: Option<String>,
    /// The connection ID that this side sends.
    pub peer_connection_id: Option<String>,
    /// The association's own port at the server.
    pub association_port: Option<u16>,
    /// The outcome of early data.
    pub early_data: Option<String>,
    /// The same as a code.
    pub early_data_code: Option<&'static str>,
    /// Whether the peer is known to have accepted this side.
    pub accepted: bool,
    /// Bytes of the handshake that this side read.
    pub handshake_bytes_read: u64,
    /// Bytes of the handshake that this side wrote.
    pub handshake_bytes_written: u64,
    /// The read part that a server with cookies does not count.
    pub request_bytes_read: u64,
    /// The written part.
    pub request_bytes_written: u64,
    /// All messages in order.
    pub messages: Vec<Message>,
}

/// How the handshake authenticated the sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// With all certificates and signatures.
    #[default]
    Full,
    /// With signatures, but at least one side omitted its certificates because the other had cached them.
    Cached,
    /// By resuming an earlier session.
    Resumed,
}

impl From<HandshakeKind> for Kind {
    fn from(kind: HandshakeKind) -> Self {
        match kind {
            HandshakeKind::Cached { .. } => Self::Cached,
            HandshakeKind::Resumed => Self::Resumed,
            _ => Self::Full,
        }
    }
}

/// The result of the handshake cache, and why certificates were sent nevertheless.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheCode {
    /// Every certificate of this handshake was omitted.
    Complete,
    /// The server's was omitted; the client sent no ticket for its own.
    NoTicket,
    /// The server's was omitted; the server does not know the client's ticket, or its entry is out of date.
    TicketNotUsed,
    /// Only the client's was omitted.
    ServerNotCached,
    /// The handshake resumed a session, which needs no certificates.
    Resumed,
    /// A pre-shared key authenticates the connection, without certificates.
    Psk,
    /// The cache cannot be used in this handshake.
    NotUsable,
    /// The peer has no cache, or one of another mode.
    NotAnswered,
    /// The client has no entry for the server yet, or the server none that the client named.
    Unknown,
    /// The entry is out of date.
    OutOfDate,
    /// The previous handshake with this server failed, so this one is full.
    Suspended,
    /// The client has an entry for the server, but the server did not confirm it.
    NotConfirmed,
}

/// A handshake message.
#[derive(Clone, Debug, Serialize)]
pub struct Message {
    /// Whether this side sent it.
    pub sent: bool,
    /// Its name.
    pub name: String,
    /// Including the header of 4 bytes.
    pub bytes: usize,
}

impl Message {
    /// A message as the engine reports it.
    pub fn new(message: &MessageSize) -> Self {
        let name = dunlin_explain::names::message(message.typ, message.is_retry);
        Self { sent: message.sent, name, bytes: message.len }
    }
}

/// A handshake message of one of several connections.
#[derive(Clone, Debug, Serialize)]
pub struct AtMessage {
    /// The side, and its peer.
    #[serde(flatten)]
    pub at: At,
    /// The message.
    #[serde(flatten)]
    pub message: Message,
}

/// The end of a server's connection.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Ended {
    /// The side, and its peer.
    #[serde(flatten)]
    pub at: At,
    /// Read bytes on the transport.
    pub bytes_read: u64,
    /// Written bytes.
    pub bytes_written: u64,
    /// Whether close_notify ended it.
    pub orderly: bool,
}

/// Associations that outlive a process.
#[derive(Clone, Debug, Serialize)]
pub struct Frozen {
    /// Their file.
    pub file: String,
    /// The number of associations.
    pub associations: usize,
    /// The number of associations that could not be frozen or thawed.
    pub others: usize,
    /// How long it took.
    pub ms: u128,
}

/// Another path of a DTLS association.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PathChanged {
    /// The side, and its peer.
    #[serde(flatten)]
    pub at: At,
    /// The earlier address of the socket, if it is known.
    pub from: Option<SocketAddr>,
    /// The present one.
    pub to: Option<SocketAddr>,
    /// Records of data that are sent again.
    pub repeated_records: usize,
    /// Records of data that may be lost.
    pub unrepeated_records: usize,
}

/// Received data: a record or a part of one.
#[derive(Clone, Debug, Serialize)]
pub struct Data {
    /// Its length.
    pub bytes: usize,
    /// The data.
    pub base64: String,
}

impl Data {
    /// Received bytes.
    pub fn new(data: &[u8]) -> Self {
        Self { bytes: data.len(), base64: Base64::encode_string(data) }
    }
}

/// A device of `up`.
#[derive(Clone, Debug, Serialize)]
pub struct Device {
    /// Its name.
    pub device: String,
    /// How it authenticates.
    pub way: &'static str,
    /// The protocol within TLS or DTLS.
    pub speaks: &'static str,
    /// The number of the connection, from 1.
    pub number: u64,
}

/// A device's result of a connection of `up`.
#[derive(Clone, Debug, Serialize)]
pub struct Exchange {
    /// The device's identity as the server behind the gateway saw it.
    pub client_identity: String,
    /// The duration of the handshake in microseconds, without TCP's.
    pub handshake_us: u64,
    /// The length of the echoed message.
    pub echoed_bytes: usize,
    /// The address to which the device has moved meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved_to: Option<SocketAddr>,
    /// How often a device with a DID has rotated its key before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key_version: Option<u64>,
}

/// The choice of the gateway's policy for a device of `up`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Chosen {
    /// The name of the profile.
    pub profile: Option<String>,
    /// The name of the rule; `default` if none matches.
    pub rule: Option<String>,
    /// Whether the connection has come to the profile by renegotiation.
    pub renegotiated: bool,
}

/// A failure.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// The side that detected it.
    pub side: Side,
    /// The peer's address, if there is a peer.
    pub address: Option<SocketAddr>,
    /// Only for `up`.
    #[serde(flatten)]
    pub device: Option<Device>,
    /// The class of the failure.
    #[serde(flatten)]
    pub code: Code,
    /// The subject of the failure: a server, a file, an option.
    pub what: Option<String>,
    /// The reason.
    pub why: String,
    /// The advice to the user.
    pub advice: Option<String>,
}

impl Failure {
    /// The failure of a connection.
    pub fn of_peer(At { side, address }: At, explanation: Explanation) -> Self {
        let Explanation { why, advice, code } = explanation;
        Self { side, address: Some(address), device: None, code, what: None, why, advice: Some(advice) }
    }

    /// The error that ends a command.
    pub fn of_command(side: Side, error: &Error) -> Self {
        let [what, why, advice] = error.parts();
        let text = |text: &str| Some(text.to_owned());
        Self {
            side,
            address: None,
            device: None,
            code: error.code(),
            what: text(what),
            why: why.to_owned(),
            advice: text(advice),
        }
    }
}
