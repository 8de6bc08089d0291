//! An association with one peer, after its handshake.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use dunlin::error::Misuse;
use dunlin::places::GivesWay;
use dunlin::wire::AlertDescription;
use dunlin::{
    Answer, Association, AssociationId, Discarded, DtlsConnection, Ended, Event, MessageSize, Negotiated,
    NoPort, PathChange, PathChecks, PortScheme, Side,
};

use super::shared::Owned;
use crate::clock::now;
use crate::error::from_tls;
use crate::stream::HandshakeBytes;
use crate::stream::OnMessage;

/// An event on the path of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathEvent {
    /// The peer's address has changed to this one ([`Event::PeerMoved`]).
    PeerMoved(SocketAddr),
    /// This side sends over another interface, or from another address ([`Event::PathChanged`]).
    Changed {
        /// The addresses of the sockets before and after the change, if they are known.
        sockets: [Option<SocketAddr>; 2],
        /// The kind of change.
        change: PathChange,
    },
    /// The system cannot send to the server for lack of a route or an address. Data is lost until it can. A
    /// client's association reports this once until a datagram leaves again.
    Unreachable(io::ErrorKind),
}

pub(super) type OnPath = dyn Fn(&PathEvent) + Send + Sync;

/// Reports handshake messages and paths to functions of the application.
pub(super) struct Reporter {
    on_message: Option<Arc<OnMessage>>,
    on_path: Option<Arc<OnPath>>,
    reported: AtomicUsize,
    /// The application knows that the system cannot send to the peer.
    is_outage_reported: AtomicBool,
}

impl Reporter {
    pub(super) const fn new(on_message: Option<Arc<OnMessage>>, on_path: Option<Arc<OnPath>>) -> Self {
        let is_outage_reported = AtomicBool::new(false);
        Self { on_message, on_path, reported: AtomicUsize::new(0), is_outage_reported }
    }

    /// Returns the event of an outage that the application does not know yet.
    fn outage(&self, outage: Option<io::ErrorKind>) -> Option<PathEvent> {
        let is_known = self.is_outage_reported.swap(outage.is_some(), Ordering::Relaxed);
        outage.filter(|_| !is_known).map(PathEvent::Unreachable)
    }

    /// Reports changes of paths.
    fn report_paths(&self, events: &[PathEvent]) {
        self.on_path.iter().for_each(|on_path| events.iter().for_each(|event| on_path(event)));
    }

    /// Reports the messages that are new.
    pub(super) fn report(&self, owned: &Owned) {
        let Some(on_message) = &self.on_message else { return };
        let new: Vec<MessageSize> = owned.shared().read(|state| {
            let association = state.endpoint.association(owned.id);
            let messages = association.map_or(&[][..], |association| association.connection().messages());
            let reported = self.reported.swap(messages.len(), Ordering::Relaxed);
            messages.get(reported..).unwrap_or_default().to_vec()
        });
        new.iter().for_each(|message| on_message(message));
    }
}

/// An association that its endpoint has ended, inside an [`io::Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssociationEnded(pub Ended);

impl AssociationEnded {
    /// Why the endpoint has ended the association, if that is what this error says.
    pub fn of(error: &io::Error) -> Option<Ended> {
        error.get_ref()?.downcast_ref().map(|Self(reason)| *reason)
    }

    const fn kind(self) -> io::ErrorKind {
        match self.0 {
            Ended::Superseded => io::ErrorKind::ConnectionReset,
            Ended::Anonymous => io::ErrorKind::PermissionDenied,
            Ended::Idle | Ended::GaveWay(GivesWay::Silent) => io::ErrorKind::TimedOut,
            _ => io::ErrorKind::ConnectionAborted,
        }
    }
}

impl fmt::Display for AssociationEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Ended::Superseded => "the peer has connected again from the same address",
            Ended::Displaced(_) => {
                "too many handshakes are incomplete: a newer one took the place of this one"
            }
            Ended::Anonymous => {
                "the client has no identity, unlike the peer of the association with the same address"
            }
            Ended::Idle => "nothing arrived from the peer for too long",
            Ended::GaveWay(GivesWay::Anonymous) => {
                "all places are taken, and the client gave way to one with an identity"
            }
            Ended::GaveWay(GivesWay::Double) => {
                "all places are taken, and the client gave way because its identity has a newer association"
            }
            Ended::GaveWay(GivesWay::Share) => {
                "all places are taken, and the client gave way because its network has the most"
            }
            Ended::GaveWay(GivesWay::Silent) => {
                "nothing arrived from the client for long, and a newer client took the place of this one"
            }
            Ended::Refused(_) => "all places are taken, and no other client gave way",
            _ => "the endpoint has ended the association",
        })
    }
}

impl std::error::Error for AssociationEnded {}

/// The error of an association that the endpoint has ended.
pub(super) fn ended(reason: Ended) -> io::Error {
    let ended = AssociationEnded(reason);
    io::Error::new(ended.kind(), ended)
}

/// The error of an association that does not exist any more.
fn gone() -> io::Error {
    io::Error::from(io::ErrorKind::NotConnected)
}

/// A DTLS association with one peer, after its handshake.
///
/// * Data keeps the borders of the records in which it was sent. It can be lost or reordered on the way.
/// * Several tasks may send and receive at the same time. They may drop futures at any point: no received
///   data is lost.
/// * The engine keeps up to 64 kB of received data. As with a UDP socket, further data is lost until the
///   application has read some.
/// * Dropping the association sends close_notify, unless it has failed or this side has closed it.
///
/// Protocol errors are a [`dunlin::Error`] inside an [`io::Error`].
pub struct DtlsAssociation {
    owned: Owned,
    negotiated: Negotiated,
    handshake_bytes: HandshakeBytes,
    reporter: Reporter,
}

impl DtlsAssociation {
    pub(super) const fn new(
        owned: Owned,
        negotiated: Negotiated,
        handshake_bytes: HandshakeBytes,
        reporter: Reporter,
    ) -> Self {
        Self { owned, negotiated, handshake_bytes, reporter }
    }

    /// The peer's address, which changes as [`dunlin::Migration`] says.
    pub fn peer_address(&self) -> SocketAddr {
        self.read(|association| association.connection().peer_address()).unwrap_or(self.owned.peer)
    }

    /// The address of the socket over which this side sends now. It changes if the endpoint has several
    /// interfaces.
    pub fn local_address(&self) -> Option<SocketAddr> {
        let local = self.read(|association| association.connection().path().local)?;
        self.owned.shared().read(|state| state.address(local))
    }

    /// The address of this machine that the peer asks, if the socket is bound to all of them and the system
    /// tells. It changes if the peer asks another one.
    pub fn asked_address(&self) -> Option<IpAddr> {
        self.read(|association| association.connection().path().source).flatten()
    }

    /// The number of checks of the peer's address so far, by outcome.
    pub fn path_checks(&self) -> PathChecks {
        self.read(|association| association.connection().path_checks()).unwrap_or_default()
    }

    /// The scheme and the server's port of this association, if it has a port of its own
    /// ([`dunlin::DtlsConnection::association_port`]).
    pub fn association_port(&self) -> Option<(PortScheme, u16)> {
        self.read(|association| association.connection().association_port()).flatten()
    }

    /// Why this is an ordinary association, although it was to have a port of its own.
    pub fn lacks_port(&self) -> Option<NoPort> {
        self.read(Association::lacks_port).flatten()
    }

    /// The name of the association at its endpoint.
    pub const fn id(&self) -> AssociationId {
        self.owned.id
    }

    /// Which side this is.
    pub fn side(&self) -> Side {
        self.read(|association| association.connection().side()).unwrap_or(Side::Client)
    }

    /// The result of the handshake.
    pub const fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// The connection IDs that this side receives, the oldest first ([`DtlsConnection::connection_ids`]).
    pub fn connection_ids(&self) -> Vec<Vec<u8>> {
        let ids = |association: &Association| {
            association.connection().connection_ids().map(<[u8]>::to_vec).collect()
        };
        self.read(ids).unwrap_or_default()
    }

    /// The connection ID that this side sends; empty without one.
    pub fn peer_connection_id(&self) -> Vec<u8> {
        self.read(|association| association.connection().peer_connection_id().to_vec()).unwrap_or_default()
    }

    /// The bytes of the handshake's datagrams up to the last Finished, as the peer counts them, too. A server
    /// does not count those before the client returned its cookie ([`Self::request_bytes`] of the client).
    pub const fn handshake_bytes(&self) -> HandshakeBytes {
        self.handshake_bytes
    }

    /// The part of a client's [`Self::handshake_bytes`] up to the server's HelloVerifyRequest or
    /// HelloRetryRequest. A server that demands a cookie keeps nothing of it, so it does not count it.
    pub fn request_bytes(&self) -> HandshakeBytes {
        let (read, written) = self.read(Association::request_bytes).unwrap_or_default();
        HandshakeBytes { read, written }
    }

    /// The handshake messages so far, in order, with their sizes. A server leaves out those before the client
    /// returned its cookie.
    pub fn messages(&self) -> Vec<MessageSize> {
        self.read(|association| association.connection().messages().to_vec()).unwrap_or_default()
    }

    /// The bytes of the peer's datagrams so far, authentic or not.
    pub fn bytes_received(&self) -> u64 {
        self.read(Association::bytes_received).unwrap_or_default()
    }

    /// The bytes of the datagrams sent so far.
    pub fn bytes_sent(&self) -> u64 {
        self.read(Association::bytes_sent).unwrap_or_default()
    }

    /// Counts of what the connection has discarded.
    pub fn discarded(&self) -> Discarded {
        self.read(|association| association.connection().discarded()).unwrap_or_default()
    }

    /// The longest data that fits into one record and one datagram, in bytes.
    pub fn max_data(&self) -> usize {
        self.read(|association| association.connection().max_data()).unwrap_or_default()
    }

    /// Receives the data of the next record. `None` after the peer's close_notify. The caller can drop the
    /// future without loss.
    ///
    /// # Errors
    /// The association failed, or the endpoint has ended it ([`AssociationEnded`]).
    pub async fn recv(&self) -> io::Result<Option<Vec<u8>>> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// Does the same as [`Self::recv`] without waiting: registers the task of `cx` if there is no data.
    ///
    /// # Errors
    /// The errors of [`Self::recv`].
    pub fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Vec<u8>>>> {
        let mut paths = Vec::new();
        let received = self.owned.shared().act(|state| {
            let data = state.endpoint.update(self.owned.id, |connection| {
                paths = hear(connection);
                connection.read()
            });
            for path in &mut paths {
                if let PathEvent::Changed { sockets, change } = path {
                    *sockets = [change.from, change.to].map(|path| state.address(path.local));
                }
            }
            paths.extend(self.reporter.outage(state.outage(self.owned.peer, self.owned.id)));
            if let Some(data) = data.flatten() {
                return Poll::Ready(Ok(Some(data)));
            }
            match state.endpoint.association(self.owned.id) {
                Some(association) => match end(association) {
                    Some(end) => Poll::Ready(end.map(|()| None)),
                    None => {
                        state.wait(self.owned.id, cx);
                        Poll::Pending
                    }
                },
                None => Poll::Ready(Ok(None)),
            }
        });
        self.reporter.report(&self.owned);
        self.reporter.report_paths(&paths);
        received
    }

    /// Sends `data` in one record and one datagram. It waits while too many datagrams wait for the socket.
    ///
    /// # Errors
    /// `data` is longer than [`Self::max_data`], this side has closed, or the association has failed.
    pub async fn send(&self, data: &[u8]) -> io::Result<()> {
        poll_fn(|cx| self.poll_send(cx, data)).await
    }

    /// Does the same as [`Self::send`] without waiting: registers the task of `cx` if there is no room.
    ///
    /// # Errors
    /// The errors of [`Self::send`].
    pub fn poll_send(&self, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<()>> {
        self.owned.shared().act(|state| {
            let reason = state.endpoint.association(self.owned.id).and_then(Association::ended);
            if let Some(reason) = reason {
                return Poll::Ready(Err(ended(reason)));
            }
            match state.endpoint.update(self.owned.id, |connection| connection.send(data)) {
                Some(Err(dunlin::Error::Misuse(Misuse::OutputFull))) => {
                    state.wait_for_room(cx);
                    Poll::Pending
                }
                Some(Err(e)) => Poll::Ready(Err(from_tls(e))),
                Some(Ok(())) => Poll::Ready(Ok(())),
                None => Poll::Ready(Err(gone())),
            }
        })
    }

    /// Replaces this side's sending keys ([`dunlin::Connection::update_keys`]). With `both`, asks the peer to
    /// replace its keys, too.
    ///
    /// # Errors
    /// The errors of [`dunlin::Connection::update_keys`].
    pub fn update_keys(&self, both: bool) -> io::Result<()> {
        let updated = self
            .owned
            .shared()
            .act(|state| state.endpoint.update(self.owned.id, |connection| connection.update_keys(both)));
        updated.unwrap_or(Ok(())).map_err(from_tls)
    }

    /// Exports keying material for another protocol into `out` ([`dunlin::Connection::export`]).
    ///
    /// # Errors
    /// The errors of [`dunlin::Connection::export`].
    pub fn export(&self, label: &[u8], context: Option<&[u8]>, out: &mut [u8]) -> Result<(), dunlin::Error> {
        let exported = self.read(|association| association.connection().export(label, context, out));
        // A caller that ignores the error must not use the previous content of `out`.
        exported.unwrap_or(Err(Misuse::Aborted.into()))
    }

    /// Sends close_notify, after which this side sends no more data. The peer may still send. The
    /// close_notify can be lost.
    pub fn close(&self) {
        self.owned.shared().act(|state| state.endpoint.update(self.owned.id, DtlsConnection::close));
    }

    /// Ends the association with a fatal alert ([`dunlin::DtlsConnection::abort`]), which can be lost.
    pub fn abort(&self, alert: AlertDescription) {
        let abort = |connection: &mut DtlsConnection| connection.abort(alert);
        self.owned.shared().act(|state| state.endpoint.update(self.owned.id, abort));
    }

    fn read<R>(&self, f: impl FnOnce(&Association) -> R) -> Option<R> {
        self.owned.shared().read(|state| state.endpoint.association(self.owned.id).map(f))
    }
}

/// Handles the events of a connection after its handshake, and returns those about paths. No handshake
/// follows, so there are no questions to answer.
fn hear(connection: &mut DtlsConnection) -> Vec<PathEvent> {
    let mut paths = Vec::new();
    while let Some(event) = connection.poll_event() {
        match event {
            Event::Question(id, _) => {
                // The connection keeps its error.
                let _ = connection.answer(now(), id, Answer::Failed);
            }
            Event::PeerMoved(address) => paths.push(PathEvent::PeerMoved(address)),
            Event::PathChanged(change) => paths.push(PathEvent::Changed { sockets: [None; 2], change }),
            _ => {}
        }
    }
    paths
}

/// How the peer's direction has ended, if it has.
fn end(association: &Association) -> Option<io::Result<()>> {
    let connection = association.connection();
    match (association.ended(), connection.error(), connection.peer_has_closed()) {
        (Some(reason), _, _) => Some(Err(ended(reason))),
        (None, Some(error), _) => Some(Err(from_tls(error.clone()))),
        (None, None, true) => Some(Ok(())),
        (None, None, false) => None,
    }
}

impl fmt::Debug for DtlsAssociation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DtlsAssociation").field("peer_address", &self.owned.peer).finish_non_exhaustive()
    }
}
