//! Associations that leave an endpoint for another process, and those that come from one.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use dunlin::error::Misuse;
use dunlin::{DtlsConnection, EndpointLimits};
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
    /// The peers of the other ones, and why each could not be frozen. They continue here until the application closes them.
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
    /// Freezes all associations ([`dunlin::Endpoint::freeze`]), and passes the bytes of each to `write`, which seals and stores them. The
    /// endpoint accepts no more clients. Calls of frozen associations report [`dunlin::error::Misuse::Frozen`], and nothing is sent for
    /// them any more.
    ///
    /// It returns when `write` has taken everything, and occupies the endpoint meanwhile. Call it where blocking is allowed, for example
    /// in [`tokio::task::spawn_blocking`].
    ///
    /// # Errors
    /// The first error of `write`, after which no further association is frozen. Those that were frozen before are lost.
    pub fn freeze(&self, mut write: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<Frozen> {
        self.handle.0.act_at_rest(|state| {
            let (now, mut frozen) = (now(), Frozen::default());
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
                        write(&bytes)?;
                        frozen.associations += 1;
                    }
                    Some(Err(error)) => frozen.left.push((peer, error)),
                    None => {}
                }
            }
            Ok(frozen)
        })
    }

    /// An endpoint on this socket that continues connections which were thawed ([`DtlsConnection::thaw_server`],
    /// [`DtlsConnection::thaw_client`]). It takes all of them in before it receives the first datagram, so a caller that binds the socket
    /// before it thaws loses no record. At most 256 of the refused ones send a close_notify, so `limits` should have room for all.
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
        let (mut adopted, mut refused) = (Vec::new(), Vec::new());
        shared.act(|state| {
            for connection in connections {
                let peer = connection.peer_address();
                let Some(negotiated) = connection.negotiated().cloned() else {
                    refused.push((peer, Misuse::HandshakeNotComplete.into()));
                    continue;
                };
                match state.adopt(connection) {
                    Ok(id) => adopted.push((id, peer, negotiated)),
                    Err(error) => refused.push((peer, error)),
                }
            }
        });
        tokio::spawn(Arc::clone(&shared).drive());
        let handle = Arc::new(Handle(shared));
        let associations = adopted.into_iter().map(|(id, peer, negotiated)| {
            let owned = Owned { handle: Arc::clone(&handle), id, peer };
            DtlsAssociation::new(owned, negotiated, HandshakeBytes::default(), Reporter::new(None, None))
        });
        let associations = associations.collect();
        Ok(Resumed { endpoint: Self { handle }, associations, refused })
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
