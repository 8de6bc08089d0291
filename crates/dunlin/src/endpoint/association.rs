//! One association of an endpoint.

use crate::connection::DtlsConnection;
use crate::protocol::Side;
use crate::time::Instant;

/// The name of an association. An endpoint never uses a name twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AssociationId(pub(super) u64);

/// A connection of an [`crate::Endpoint`], and what the endpoint knows of it.
pub struct Association {
    pub(super) connection: DtlsConnection,
    /// The random of the client's ClientHello, if this side is the server and has seen it.
    pub(super) random: Option<[u8; 32]>,
    /// The deadline under which the endpoint has filed the association.
    pub(super) deadline: Option<Instant>,
    /// Whether it counts as half open.
    pub(super) is_half_open: bool,
    /// Whether it is in the queue of those that may have output.
    pub(super) is_sending: bool,
    /// Whether an event announces a change that the caller has not seen yet.
    pub(super) is_announced: bool,
    pub(super) is_superseded: bool,
    pub(super) bytes_received: u64,
    pub(super) bytes_sent: u64,
}

impl Association {
    pub(super) const fn new(connection: DtlsConnection, random: Option<[u8; 32]>) -> Self {
        let is_half_open = matches!(connection.side(), Side::Server);
        Self {
            connection,
            random,
            deadline: None,
            is_half_open,
            is_sending: false,
            is_announced: false,
            is_superseded: false,
            bytes_received: 0,
            bytes_sent: 0,
        }
    }

    /// The connection.
    pub const fn connection(&self) -> &DtlsConnection {
        &self.connection
    }

    /// Whether the peer has completed a newer handshake from the same address, so that this association has ended (RFC 9147 §5.11,
    /// RFC 6347 §4.2.8). Data that it received before remains readable.
    pub const fn is_superseded(&self) -> bool {
        self.is_superseded
    }

    /// The bytes of the peer's datagrams, without those that a server answered before it kept anything. Datagrams that are not
    /// authentic count, too.
    pub const fn bytes_received(&self) -> u64 {
        self.bytes_received
    }

    /// The bytes of the datagrams that were taken out for the peer, likewise.
    pub const fn bytes_sent(&self) -> u64 {
        self.bytes_sent
    }

    /// Whether neither side sends anything more.
    pub(super) const fn has_ended(&self) -> bool {
        let connection = &self.connection;
        self.is_superseded
            || connection.error().is_some()
            || connection.has_closed() && connection.peer_has_closed()
    }
}
