//! Events that the engine reports to the application during and after a handshake.

use alloc::vec::Vec;
use core::net::SocketAddr;

use pki_types::CertificateDer;

use super::question::{Question, QuestionId};
use crate::address::PathChange;
use crate::early::EarlyDataOutcome;
use crate::resume::Session;
use crate::wire::HandshakeType;

/// An event of a connection. The caller receives events in the order in which they happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// The handshake is complete. The peer has proven the identity in [`crate::Negotiated::peer`], and the
    /// application may send data.
    Connected,
    /// The handshake needs information from the caller. Pass it to [`crate::Connection::answer`].
    Question(QuestionId, Question),
    /// This side refuses the peer, whose chain begins with this certificate. The error that ends the
    /// handshake says why. The peer has not proven that the certificate is its own.
    PeerRefused(CertificateDer<'static>),
    /// The client received a ticket and gave it to its store, if it has one.
    TicketReceived,
    /// The caller must keep this session under this name ([`crate::resume::Tickets::ask`]).
    NewSession(Vec<u8>, Session),
    /// The caller must forget the session under this name ([`crate::resume::Tickets::ask`]): it was resumed,
    /// or a fatal alert ended its connection. In TLS 1.2 resumption does not cause this event, since a
    /// session can be resumed until it expires.
    SessionUsed(Vec<u8>),
    /// The server accepted or rejected offered early data. Rejected early data is lost. On a server that
    /// accepted it, [`crate::Connection::early_data`] returns the data, and the handshake continues as the
    /// caller consumes it.
    EarlyData(EarlyDataOutcome),
    /// The peer replaced its sending keys.
    PeerUpdatedKeys,
    /// A TLS 1.2 renegotiation is complete. [`crate::Negotiated`] now describes the new handshake.
    Renegotiated,
    /// The peer answered [`crate::Connection::renegotiate`] with no_renegotiation. The connection continues
    /// unchanged.
    RenegotiationRefused,
    /// The peer's address over datagrams has changed to this one, under the rules of [`crate::Migration`].
    PeerMoved(SocketAddr),
    /// This side sends over another of its interfaces, or from another address, under the rules of
    /// [`crate::Multihoming`].
    PathChanged(PathChange),
    /// The peer sent close_notify and will send no more data. This side can still send.
    PeerClosed,
}

/// The size of a handshake message that was sent or received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageSize {
    /// Whether this side sent it.
    pub sent: bool,
    /// Its type.
    pub typ: HandshakeType,
    /// Whether it is a HelloRetryRequest, which has the type of a ServerHello.
    pub is_retry: bool,
    /// Its length in bytes, including its header of 4 bytes.
    pub len: usize,
}
