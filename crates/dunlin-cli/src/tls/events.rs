//! The JSON objects of `dunlin client`, `dunlin server` and `dunlin up` (docs/json.md): one type for all
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
pub(crate) enum Event {
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
    pub(crate) fn line(&self) -> String {
        // Only maps with keys other than text can fail, and there are none.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// A side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Side {
    Client,
    Server,
}

impl Side {
    /// Its name.
    pub(crate) const fn name(self) -> &'static str {
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
pub(crate) struct At {
    /// The side that reports.
    pub(crate) side: Side,
    /// The address of its peer.
    pub(crate) address: SocketAddr,
}

impl At {
    pub(crate) const fn new(side: Side, address: SocketAddr) -> Self {
        Self { side, address }
    }
}

/// The end of a client's connection.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Closed {
    #[serde(flatten)]
    pub(crate) at: At,
    /// Whether the server's close_notify came.
    pub(crate) answered: bool,
}

/// A complete handshake.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Connection {
    #[serde(flatten)]
    pub(crate) at: At,
    /// Only for `up`.
    #[serde(flatten)]
    pub(crate) device: Option<Device>,
    #[serde(flatten)]
    pub(crate) handshake: Handshake,
    /// Only for `up`.
    #[serde(flatten)]
    pub(crate) exchange: Option<Exchange>,
    /// Only for `up`.
    #[serde(flatten)]
    pub(crate) chosen: Option<Chosen>,
}

impl Connection {
    /// The event of a client or a server.
    pub(crate) const fn new(at: At, handshake: Handshake) -> Self {
        Self { at, device: None, handshake, exchange: None, chosen: None }
    }
}

/// The result of a handshake. Protocol names are spelled as in IANA's registries; texts are for people, codes
/// for programs.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Handshake {
    pub(crate) version: Option<String>,
    pub(crate) cipher_suite: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) alpn: Option<String>,
    pub(crate) server_name: Option<String>,
    pub(crate) peer: Option<String>,
    /// From the peer's certificate, in hexadecimal.
    pub(crate) peer_serial: Option<String>,
    pub(crate) peer_sha256: Option<String>,
    /// From the peer's verifiable credential.
    pub(crate) peer_did: Option<String>,
    pub(crate) peer_issuer: Option<String>,
    pub(crate) peer_claims: Option<Map<String, Value>>,
    pub(crate) peer_signature: Option<String>,
    pub(crate) own_signature: Option<String>,
    #[serde(rename = "handshake")]
    pub(crate) kind: Kind,
    pub(crate) resumed: bool,
    pub(crate) server_certificate_cached: bool,
    pub(crate) client_certificate_cached: bool,
    /// The result of the handshake cache; `null` if this side has none.
    pub(crate) cache: Option<String>,
    pub(crate) cache_code: Option<CacheCode>,
    /// The bytes of its own certificates that this side omitted because of the cache.
    pub(crate) saved_bytes: usize,
    pub(crate) hello_retry_request: bool,
    /// The connection IDs that this side receives and sends, in hexadecimal.
    pub(crate) connection_id: Option<String>,
    pub(crate) peer_connection_id: Option<String>,
    /// The association's own port at the server.
    pub(crate) association_port: Option<u16>,
    pub(crate) early_data: Option<String>,
    pub(crate) early_data_code: Option<&'static str>,
    /// Whether the peer is known to have accepted this side.
    pub(crate) accepted: bool,
    pub(crate) handshake_bytes_read: u64,
    pub(crate) handshake_bytes_written: u64,
    /// The part of them that a server with cookies does not count.
    pub(crate) request_bytes_read: u64,
    pub(crate) request_bytes_written: u64,
    pub(crate) messages: Vec<Message>,
}

/// How the handshake authenticated the sides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
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
pub(crate) enum CacheCode {
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
pub(crate) struct Message {
    pub(crate) sent: bool,
    pub(crate) name: String,
    /// Including the header of 4 bytes.
    pub(crate) bytes: usize,
}

impl Message {
    pub(crate) fn new(message: &MessageSize) -> Self {
        let name = dunlin_explain::names::message(message.typ, message.is_retry);
        Self { sent: message.sent, name, bytes: message.len }
    }
}

/// A handshake message of one of several connections.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct AtMessage {
    #[serde(flatten)]
    pub(crate) at: At,
    #[serde(flatten)]
    pub(crate) message: Message,
}

/// The end of a server's connection.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Ended {
    #[serde(flatten)]
    pub(crate) at: At,
    /// Bytes on the transport.
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
    /// Whether close_notify ended it.
    pub(crate) orderly: bool,
}

/// Associations that outlive a process.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Frozen {
    /// Their file.
    pub(crate) file: String,
    pub(crate) associations: usize,
    /// The number of associations that could not be frozen or thawed.
    pub(crate) others: usize,
    /// How long it took.
    pub(crate) ms: u128,
}

/// Another path of a DTLS association.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct PathChanged {
    #[serde(flatten)]
    pub(crate) at: At,
    /// The addresses of the sockets, if they are known.
    pub(crate) from: Option<SocketAddr>,
    pub(crate) to: Option<SocketAddr>,
    /// Records of data that are sent again, and those that may be lost.
    pub(crate) repeated_records: usize,
    pub(crate) unrepeated_records: usize,
}

/// Received data: a record or a part of one.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Data {
    pub(crate) bytes: usize,
    pub(crate) base64: String,
}

impl Data {
    pub(crate) fn new(data: &[u8]) -> Self {
        Self { bytes: data.len(), base64: Base64::encode_string(data) }
    }
}

/// A device of `up`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Device {
    /// Its name.
    pub(crate) device: String,
    /// How it authenticates.
    pub(crate) way: &'static str,
    /// The protocol within TLS or DTLS.
    pub(crate) speaks: &'static str,
    /// The number of the connection, from 1.
    pub(crate) number: u64,
}

/// A device's result of a connection of `up`.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Exchange {
    /// The device's identity as the server behind the gateway saw it.
    pub(crate) client_identity: String,
    /// The duration of the handshake in microseconds, without TCP's.
    pub(crate) handshake_us: u64,
    /// The length of the echoed message.
    pub(crate) echoed_bytes: usize,
    /// The address to which the device has moved meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) moved_to: Option<SocketAddr>,
    /// How often a device with a DID has rotated its key before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key_version: Option<u64>,
}

/// The choice of the gateway's policy for a device of `up`.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Chosen {
    /// The name of the profile.
    pub(crate) profile: Option<String>,
    /// The name of the rule; `default` if none matches.
    pub(crate) rule: Option<String>,
    /// Whether the connection has come to the profile by renegotiation.
    pub(crate) renegotiated: bool,
}

/// A failure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Failure {
    /// The side that detected it.
    pub(crate) side: Side,
    /// The peer's address, if there is a peer.
    pub(crate) address: Option<SocketAddr>,
    #[serde(flatten)]
    pub(crate) device: Option<Device>,
    #[serde(flatten)]
    pub(crate) code: Code,
    /// The subject of the failure: a server, a file, an option.
    pub(crate) what: Option<String>,
    pub(crate) why: String,
    pub(crate) advice: Option<String>,
}

impl Failure {
    /// The failure of a connection.
    pub(crate) fn of_peer(At { side, address }: At, explanation: Explanation) -> Self {
        let Explanation { why, advice, code } = explanation;
        Self { side, address: Some(address), device: None, code, what: None, why, advice: Some(advice) }
    }

    /// The error that ends a command.
    pub(crate) fn of_command(side: Side, error: &Error) -> Self {
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
