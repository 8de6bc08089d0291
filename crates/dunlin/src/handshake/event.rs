//! What an application hears of a handshake and of the connection after it.

use alloc::vec::Vec;

use super::question::{Question, QuestionId};
use crate::early::EarlyDataOutcome;
use crate::resume::Session;
use crate::wire::HandshakeType;

/// What happened, in order.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// The handshake is complete: the peer is who [`Negotiated::peer`] says, data may be sent.
    Connected,
    /// Something must be known to go on; give it to [`crate::Connection::answer`].
    Question(QuestionId, Question),
    /// A ticket came and was given to the client's store.
    TicketReceived,
    /// This session is to be kept under this name ([`crate::resume::Tickets::ask`]).
    NewSession(Vec<u8>, Session),
    /// The session under this name was resumed, or a fatal alert has ended its connection: forget it
    /// ([`crate::resume::Tickets::ask`]). TLS 1.2 does not say so of what was resumed: there a session may be resumed again, until
    /// it expires.
    SessionUsed(Vec<u8>),
    /// Early data was offered and taken, or refused: what was sent of it is lost then. On a server that takes it, it
    /// comes from [`crate::Connection::early_data`], and the handshake goes on as it is consumed.
    EarlyData(EarlyDataOutcome),
    /// The peer replaced its sending keys.
    PeerUpdatedKeys,
    /// Another handshake within a connection of TLS 1.2 is complete; [`Negotiated`] is that of this one.
    Renegotiated,
    /// The peer does not want the handshake that [`crate::Connection::renegotiate`] asked for: it sent no_renegotiation.
    /// The connection goes on as before.
    RenegotiationRefused,
    /// The peer will send no more data: close_notify. Data can still be sent.
    PeerClosed,
}

/// A handshake message that was sent or received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageSize {
    /// Whether it was sent.
    pub sent: bool,
    /// Its type.
    pub typ: HandshakeType,
    /// Whether it is a HelloRetryRequest, which has the type of a ServerHello.
    pub is_retry: bool,
    /// Its length with its header of 4 bytes, in bytes.
    pub len: usize,
}
