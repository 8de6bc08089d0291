//! The JSON objects of `dunlin client`, `dunlin server` and `dunlin up` (docs/json.md): one type for all three.

use std::net::SocketAddr;

use base64ct::{Base64, Encoding};
use dunlin::{HandshakeKind, MessageSize, Side as TlsSide};
use serde::Serialize;

use crate::error::{Code, Error, Explanation};
use crate::tls::report::Report;

/// One object, which stands in one line. `event` names its kind.
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
    /// The peer has accepted this side: sent after a `connection` with `accepted: false`.
    Accepted(At),
    /// A client has received data.
    Data(Data),
    /// A connection has ended in an orderly way.
    Closed(At),
    /// A server has accepted a TCP connection.
    Incoming(At),
    /// A handshake message on a server's connection.
    Message(AtMessage),
    /// A connection of a server has ended.
    Ended(Ended),
    /// A server has read these files again, and uses their content.
    Reloaded {
        /// Their names.
        files: Vec<String>,
    },
    /// A server has read files again, and goes on with their previous content.
    NotReloaded {
        /// Why.
        why: String,
    },
    /// A server could not accept a TCP connection.
    NotAccepted {
        /// Why.
        why: String,
    },
    /// A connection, or the command, has failed.
    Failure(Failure),
    /// A server's reader was too slow: these lines are missing.
    Lost {
        /// How many.
        lines: u64,
    },
}

impl Event {
    /// The line, without its end.
    pub(crate) fn line(&self) -> String {
        // Maps with keys that are not text are the only thing that fails, and there are none.
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
    /// The side that speaks.
    pub(crate) side: Side,
    /// The address of its peer.
    pub(crate) address: SocketAddr,
}

impl At {
    pub(crate) const fn new(side: Side, address: SocketAddr) -> Self {
        Self { side, address }
    }
}

/// A handshake that is complete.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Connection {
    #[serde(flatten)]
    pub(crate) at: At,
    /// Of `up` alone.
    #[serde(flatten)]
    pub(crate) device: Option<Device>,
    #[serde(flatten)]
    pub(crate) handshake: Handshake,
    /// Of `up` alone.
    #[serde(flatten)]
    pub(crate) exchange: Option<Exchange>,
}

impl Connection {
    /// Of a client or a server.
    pub(crate) fn new(at: At, report: &Report<'_>) -> Self {
        Self { at, device: None, handshake: report.handshake(), exchange: None }
    }
}

/// What a handshake came to. Names of the protocol are spelled as in IANA's lists; texts are for people, codes for programs.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Handshake {
    pub(crate) version: Option<String>,
    pub(crate) cipher_suite: Option<String>,
    pub(crate) group: Option<String>,
    pub(crate) alpn: Option<String>,
    pub(crate) server_name: Option<String>,
    pub(crate) peer: Option<String>,
    /// Of the peer's certificate, in hexadecimal.
    pub(crate) peer_serial: Option<String>,
    pub(crate) peer_sha256: Option<String>,
    pub(crate) peer_signature: Option<String>,
    pub(crate) own_signature: Option<String>,
    #[serde(rename = "handshake")]
    pub(crate) kind: Kind,
    pub(crate) resumed: bool,
    pub(crate) server_certificate_cached: bool,
    pub(crate) client_certificate_cached: bool,
    /// What became of the handshake cache; `null` where this side has none.
    pub(crate) cache: Option<String>,
    pub(crate) cache_code: Option<CacheCode>,
    /// What this side did not send of its own certificates because of the cache.
    pub(crate) saved_bytes: usize,
    pub(crate) hello_retry_request: bool,
    pub(crate) early_data: Option<String>,
    pub(crate) early_data_code: Option<&'static str>,
    /// Whether this side knows that the peer has accepted it.
    pub(crate) accepted: bool,
    pub(crate) handshake_bytes_read: u64,
    pub(crate) handshake_bytes_written: u64,
    pub(crate) messages: Vec<Message>,
}

/// What a handshake sent to prove who the two sides are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Everything.
    Full,
    /// Signatures, but not all certificates: at least one side had those of the other in its cache.
    Cached,
    /// Nothing: an earlier session was resumed.
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

/// What became of the handshake cache, and why certificates were sent all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CacheCode {
    /// Every certificate of this handshake was left out.
    Complete,
    /// The server's was left out; the client has shown no ticket for its own.
    NoTicket,
    /// The server's was left out; the client's ticket is not known, or what it stands for is out of date.
    TicketNotUsed,
    /// Only the client's was left out.
    ServerNotCached,
    /// A session was resumed: there were no certificates.
    Resumed,
    /// The connection is by a pre-shared key: there were no certificates.
    Psk,
    /// The cache does not work with this handshake.
    NotUsable,
    /// The peer has no cache, or one of another mode.
    NotAnswered,
    /// The client knows nothing of the server yet, or the server nothing of what the client names.
    Unknown,
    /// What was kept is out of date.
    OutOfDate,
    /// The previous handshake with this server failed, so this one was full.
    Suspended,
    /// The client knows the server, which did not use that.
    NotConfirmed,
}

/// A handshake message.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Message {
    pub(crate) sent: bool,
    pub(crate) name: String,
    /// With its header of 4 bytes.
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
    /// On the transport.
    pub(crate) bytes_read: u64,
    pub(crate) bytes_written: u64,
    /// Whether a close_notify ended it.
    pub(crate) orderly: bool,
}

/// Data that came, a record or a part of one.
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
    /// Which of its connections, from 1.
    pub(crate) number: u64,
}

/// What a device of `up` says of its connection.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Exchange {
    /// Who the device was for the server.
    pub(crate) client_identity: String,
    /// How long the handshake took, in microseconds; without TCP's own.
    pub(crate) handshake_us: u64,
    /// The bytes of the message that came back.
    pub(crate) echoed_bytes: usize,
}

/// Something failed.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Failure {
    /// The side that found it.
    pub(crate) side: Side,
    /// The peer's address, where there is a peer.
    pub(crate) address: Option<SocketAddr>,
    #[serde(flatten)]
    pub(crate) device: Option<Device>,
    #[serde(flatten)]
    pub(crate) code: Code,
    /// What failed: a server, a file, an option.
    pub(crate) what: Option<String>,
    pub(crate) why: String,
    pub(crate) advice: Option<String>,
}

impl Failure {
    /// What ended a connection.
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
