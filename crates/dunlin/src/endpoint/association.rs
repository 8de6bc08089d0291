//! One association of an endpoint.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::SocketAddr;

use super::follow::Following;
use super::routes::Key;
use super::table::Table;
use super::tally::Tally;
use crate::address::Local;
use crate::auth::PeerIdentity;
use crate::connection::DtlsConnection;
use crate::places::{GivesWay, HandshakeLimit, Holder, Holders, Host, Place, PlaceLimit};
use crate::protocol::Side;
use crate::settings::NoPort;
use crate::time::Instant;

/// Why an endpoint has ended an association itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// The peer has completed a newer handshake from the same address (RFC 9147 §5.11, RFC 6347 §4.2.8). Data
    /// that arrived before remains readable.
    Superseded,
    /// There were too many incomplete handshakes, of all clients or of this host, and a newer one took the
    /// place of this one.
    Displaced(HandshakeLimit),
    /// A client completed a handshake without an identity at the address of an association whose peer has
    /// one. The older association continues.
    Anonymous,
    /// Nothing authentic arrived from the peer for [`crate::EndpointLimits::idle`].
    Idle,
    /// A limit of the endpoint was reached, and this client gave way to another one, for this reason
    /// ([`crate::places`]).
    GaveWay(GivesWay),
    /// The client's handshake was complete, but this limit of the endpoint was reached, and no other client
    /// gave way.
    Refused(PlaceLimit),
}

/// A connection of an [`crate::Endpoint`], and what the endpoint knows of it.
pub struct Association {
    pub(super) connection: DtlsConnection,
    /// The address under which the endpoint has filed the association.
    pub(super) address: SocketAddr,
    /// The peer's port that it has left and still keeps, under which it is filed, too.
    pub(super) old_port: Option<u16>,
    /// The socket of its own port.
    pub(super) port: Option<Local>,
    /// Why it has no port of its own, although it was to have one.
    pub(super) lacks_port: Option<NoPort>,
    /// The state of a client that follows its server to another port.
    pub(super) following: Option<Box<Following>>,
    /// The host of a client, as the limits count it. It stays if the client moves.
    pub(super) host: Option<Host>,
    /// The connection IDs under which the endpoint has filed the association.
    pub(super) keys: Vec<Key>,
    /// The number of IDs that the connection had issued then.
    pub(super) keys_issued: u32,
    /// The deadline under which the endpoint has filed the association.
    pub(super) deadline: Option<Instant>,
    /// Whether this deadline may come too early.
    pub(super) is_lazy: bool,
    /// The place of a client whose handshake is complete.
    pub(super) place: Option<Place>,
    /// Whether it counts as half open.
    pub(super) is_half_open: bool,
    /// Whether it is in the queue of those that may have output.
    pub(super) is_sending: bool,
    /// Whether an event announces a change that the caller has not seen yet.
    pub(super) is_announced: bool,
    pub(super) ended: Option<Ended>,
    pub(super) tally: Tally,
}

impl Association {
    pub(super) fn new(connection: DtlsConnection) -> Self {
        let is_half_open = connection.side() == Side::Server;
        let address = connection.peer_address();
        Self {
            tally: Tally::new(&connection),
            connection,
            address,
            old_port: None,
            port: None,
            lacks_port: None,
            following: None,
            host: is_half_open.then(|| Host::of(address.ip())),
            keys: Vec::new(),
            keys_issued: 0,
            deadline: None,
            is_lazy: false,
            place: None,
            is_half_open,
            is_sending: false,
            is_announced: false,
            ended: None,
        }
    }

    /// The connection.
    pub const fn connection(&self) -> &DtlsConnection {
        &self.connection
    }

    /// Why the endpoint has ended this association, if it has. Without a reason, [`Self::connection`] tells
    /// whether it has ended.
    pub const fn ended(&self) -> Option<Ended> {
        self.ended
    }

    /// Why the association is an ordinary one, although it was to have a port of its own
    /// ([`crate::PortScheme`]).
    pub const fn lacks_port(&self) -> Option<NoPort> {
        self.lacks_port
    }

    /// The bytes of the peer's datagrams, without those that a server answered before it kept anything.
    /// Datagrams that are not authentic count, too.
    pub const fn bytes_received(&self) -> u64 {
        self.tally.received
    }

    /// The bytes of the datagrams that were taken out for the peer, likewise.
    pub const fn bytes_sent(&self) -> u64 {
        self.tally.sent
    }

    /// The bytes of the handshake's datagrams, received and sent, once it is complete and its last datagram
    /// has been taken out. The datagram with the last Finished is the last one, so later tickets and ACKs do
    /// not count. A server does not count what it answered before it kept anything ([`Self::request_bytes`]
    /// of the client).
    pub fn handshake_bytes(&self) -> Option<(u64, u64)> {
        self.tally.handshake()
    }

    /// The part of a client's handshake up to the server's request for another ClientHello: bytes received
    /// and sent. A server that demands a cookie keeps nothing of it.
    pub fn request_bytes(&self) -> (u64, u64) {
        self.tally.request()
    }

    /// Whether this side is the server of a client whose ClientHello had this random.
    pub(super) fn has_random(&self, random: &[u8; 32]) -> bool {
        self.connection.side() == Side::Server && self.connection.client_random() == *random
    }

    /// Whether neither side sends anything more.
    pub(super) const fn has_ended(&self) -> bool {
        let connection = &self.connection;
        self.ended.is_some()
            || connection.error().is_some()
            || connection.has_closed() && connection.peer_has_closed()
    }

    /// Whether the handshake is complete and has proven the peer's identity.
    pub(super) fn is_authenticated(&self) -> bool {
        self.peer().is_some()
    }

    /// The peer's identity, once the handshake is complete and has proven it.
    pub(super) fn peer(&self) -> Option<&PeerIdentity> {
        self.connection.negotiated().and_then(|negotiated| negotiated.peer.as_ref())
    }

    /// The addresses under which the endpoint has filed the association.
    pub(super) fn filed_at(&self) -> impl Iterator<Item = SocketAddr> + use<> {
        let old = self.old_port.map(|port| SocketAddr::new(self.address.ip(), port));
        [Some(self.address), old].into_iter().flatten()
    }

    /// Whether this is an association with `peer`, or neither has proven an identity.
    pub(super) fn is_with(&self, peer: Option<&PeerIdentity>) -> bool {
        match (self.peer(), peer) {
            (Some(own), Some(peer)) => own.is_same(peer),
            (own, peer) => own.is_none() && peer.is_none(),
        }
    }

    /// Whether the peer's datagrams are found without its address: by connection IDs of this side, or by a
    /// port.
    pub(super) fn is_found_anywhere(&self) -> bool {
        self.port.is_some() || self.connection.connection_ids().next().is_some()
    }
}

impl Holders for Table<Association> {
    fn holder(&mut self, number: u32) -> Option<Holder<'_>> {
        let id = self.at(number as usize)?;
        let Association { connection, host, place, .. } = self.get_mut(&id)?;
        Some(Holder { place: place.as_mut()?, host: (*host)?, heard_ms: connection.heard_ms() })
    }
}
