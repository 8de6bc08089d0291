//! Associations that leave an endpoint for another process, and those that come from one.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use dunlin::error::Misuse;
use dunlin::{AssociationId, DtlsConnection, EndpointLimits, Negotiated};
use tokio::net::UdpSocket;

use super::association::{DtlsAssociation, Reporter};
use super::endpoint::DtlsEndpoint;
use super::shared::{Handle, Owned, Shared};
use crate::clock::now;
use crate::stream::HandshakeBytes;

/// The associations that [`DtlsEndpoint::freeze`] has frozen and left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frozen {
    /// The number of frozen associations.
    pub associations: usize,
    /// Associations that could not be frozen: the peer's address and the reason. They continue here until the
    /// application closes them.
    pub left: Vec<(SocketAddr, dunlin::Error)>,
}

/// An endpoint with associations that another process has frozen.
#[non_exhaustive]
pub struct Resumed {
    /// The endpoint.
    pub endpoint: DtlsEndpoint,
    /// Its associations, for the application to serve.
    pub associations: Vec<DtlsAssociation>,
    /// The peers of connections that the endpoint did not take in, and why ([`dunlin::Endpoint::adopt`]).
    pub refused: Vec<(SocketAddr, dunlin::Error)>,
}

impl DtlsEndpoint {
    /// Freezes all associations ([`dunlin::Endpoint::freeze`]), and passes the bytes of each to `write`,
    /// which seals and stores them. The endpoint accepts no more clients, whatever
    /// [`DtlsEndpoint::set_server`] says later. Calls of frozen associations report
    /// [`dunlin::error::Misuse::Frozen`], and nothing is sealed for them any more. At most 32 datagrams that
    /// the socket has not taken yet still leave.
    ///
    /// It returns when `write` has taken everything, and occupies the endpoint meanwhile. Call it where
    /// blocking is allowed, for example in [`tokio::task::spawn_blocking`].
    ///
    /// # Errors
    /// The first error of `write`, after which no further association is frozen. Those that were frozen
    /// before are lost.
    pub fn freeze(&self, mut write: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<Frozen> {
        self.freeze_each(|_, bytes| write(bytes))
    }

    /// Does the same, and names each association ([`DtlsAssociation::id`]) for an application that stores
    /// more about it. A further call freezes those that the previous one has left and that can be frozen now.
    ///
    /// # Errors
    /// Those of [`Self::freeze`].
    pub fn freeze_each(
        &self,
        mut write: impl FnMut(AssociationId, &[u8]) -> io::Result<()>,
    ) -> io::Result<Frozen> {
        self.handle.0.act_at_rest(|state| {
            state.is_frozen = true;
            let now = now();
            let mut frozen = Frozen::default();
            let ids: Vec<_> = state.endpoint.associations().collect();
            for id in ids {
                let Some(association) = state.endpoint.association(id) else { continue };
                let connection = association.connection();
                let has_ended = association.ended().is_some() || connection.error().is_some();
                if has_ended || connection.has_closed() && connection.peer_has_closed() {
                    continue;
                }
                let peer = connection.peer_address();
                match state.endpoint.freeze(now, id) {
                    Some(Ok(bytes)) => {
                        write(id, &bytes)?;
                        frozen.associations += 1;
                    }
                    Some(Err(error)) => frozen.left.push((peer, error)),
                    None => {}
                }
            }
            Ok(frozen)
        })
    }

    /// An endpoint on this socket that continues connections which were thawed
    /// ([`DtlsConnection::thaw_server`], [`DtlsConnection::thaw_client`]). It takes all of them in before it
    /// receives the first datagram, so a caller that binds the socket before it thaws loses no record. The
    /// peers of the refused ones get a close_notify, as far as the socket takes it: once its buffer is full,
    /// 256 more wait, and further ones are lost. So `limits` should have room for all.
    ///
    /// # Errors
    /// The socket has no address.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn resume(
        socket: UdpSocket,
        limits: EndpointLimits,
        connections: impl IntoIterator<Item = DtlsConnection>,
    ) -> io::Result<Resumed> {
        let shared = Arc::new(Shared::new(socket, limits)?);
        let mut adopted = Vec::new();
        let mut refused = Vec::new();
        for connection in connections {
            let peer = connection.peer_address();
            match adopt(&shared, connection) {
                Ok(one) => adopted.push(one),
                Err(error) => refused.push((peer, error)),
            }
        }
        let endpoint = Self::run(shared);
        let associations = adopted.into_iter().map(|adopted| adopted.association(&endpoint.handle)).collect();
        Ok(Resumed { endpoint, associations, refused })
    }
}

/// A thawed association whose endpoint's task does not run yet.
pub(super) struct Adopted {
    id: AssociationId,
    peer: SocketAddr,
    negotiated: Negotiated,
}

/// Takes a thawed connection in. If it is refused, what it has to send leaves at once.
pub(super) fn adopt(shared: &Shared, connection: DtlsConnection) -> Result<Adopted, dunlin::Error> {
    let peer = connection.peer_address();
    let negotiated = connection.negotiated().cloned().ok_or(Misuse::HandshakeNotComplete)?;
    let id = shared.act(|state| state.adopt(connection))?;
    Ok(Adopted { id, peer, negotiated })
}

impl Adopted {
    /// The association at its endpoint.
    pub(super) fn association(self, handle: &Arc<Handle>) -> DtlsAssociation {
        let owned = Owned { handle: Arc::clone(handle), id: self.id, peer: self.peer };
        DtlsAssociation::new(owned, self.negotiated, HandshakeBytes::default(), Reporter::new(None, None))
    }
}

impl fmt::Debug for Resumed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoint, associations, refused } = self;
        f.debug_struct("Resumed")
            .field("endpoint", endpoint)
            .field("associations", &associations.len())
            .field("refused", refused)
            .finish()
    }
}
