//! Several machines that serve the same clients: each passes on datagrams that belong to associations of
//! another one.

use std::io;
use std::sync::{Arc, Weak};

use dunlin::{Local, Path, Transmit};

use super::endpoint::DtlsEndpoint;
use super::shared::{Handle, State};
use crate::clock::now;

/// The first number by which the engine knows another node. Those of sockets are far below it.
const NODES: u32 = 1 << 16;

/// The other nodes: machines that serve the same clients as this endpoint, each with associations of its own.
/// A client's datagrams may arrive at any of them. Its connection ID names the node that has its association
/// ([`dunlin::NodeMask`]).
///
/// The endpoint calls these functions while it is locked, so they must neither block nor use it.
pub trait OtherNodes: Send + Sync {
    /// Offers a datagram without a connection ID of an association of this endpoint. Returns whether it
    /// belongs to another node. Then the callee has passed it on with the client's address and the address
    /// that the client has asked ([`Path::source`]), to [`DtlsEndpoint::receive_over`] at that node, or lost
    /// it.
    fn take(&self, path: Path, datagram: &[u8]) -> bool;

    /// Lets this node send a datagram to a client whose datagrams arrive there ([`DtlsEndpoint::send_as_is`]
    /// at that node), from the address that the client has asked. `false` if there is no such node; then the
    /// endpoint sends the datagram itself.
    fn send_over(&self, node: u16, path: Path, datagram: &[u8]) -> bool;
}

/// The number by which the engine knows a node.
const fn local(node: u16) -> Local {
    Local(NODES + node as u32)
}

/// The node that the engine knows by this number.
pub(super) fn node(local: Local) -> Option<u16> {
    local.0.checked_sub(NODES).and_then(|node| node.try_into().ok())
}

/// An endpoint that this value does not keep open.
#[derive(Clone)]
pub struct WeakDtlsEndpoint(Weak<Handle>);

impl WeakDtlsEndpoint {
    /// The endpoint, unless all that keeps it open is gone: its handles and associations.
    pub fn upgrade(&self) -> Option<DtlsEndpoint> {
        self.0.upgrade().map(|handle| DtlsEndpoint { handle })
    }
}

impl std::fmt::Debug for WeakDtlsEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WeakDtlsEndpoint").finish_non_exhaustive()
    }
}

impl DtlsEndpoint {
    /// Passes datagrams that belong to other nodes on to them.
    pub fn set_other_nodes(&self, nodes: Arc<dyn OtherNodes>) {
        self.handle.0.act(|state| state.nodes = Some(nodes));
    }

    /// Processes a datagram that another node has received over this path. The endpoint answers over this
    /// node, because a load balancer or NAT expects answers from where it has sent the datagram. To the
    /// association, it is another path to its client, and the client's address counts only after a check
    /// ([`dunlin::Migration`]) unless it is the present one.
    ///
    /// Returns whether the datagram has the connection ID of an association here. Any other one is discarded.
    pub fn receive_over(&self, node: u16, path: Path, datagram: &[u8]) -> bool {
        self.handle.0.act(|state| {
            let is_here = state.endpoint.has_id_of(datagram);
            if is_here {
                state.endpoint.receive(now(), Path { local: local(node), ..path }, datagram);
            }
            is_here
        })
    }

    /// Sends a datagram from this endpoint's socket as it is, for an association of another node.
    ///
    /// # Errors
    /// The socket does not take it now, or the endpoint has none.
    pub fn send_as_is(&self, path: Path, datagram: &[u8]) -> io::Result<()> {
        let Path { source, peer: to, .. } = path;
        let transmit = Transmit { local: Local::default(), source, to, datagram: datagram.to_vec() };
        self.handle.0.read(|state| state.send_now(&transmit))
    }

    /// This endpoint, as a value that does not keep it open.
    pub fn downgrade(&self) -> WeakDtlsEndpoint {
        WeakDtlsEndpoint(Arc::downgrade(&self.handle))
    }
}

impl State {
    /// Sends these datagrams over another node, if `local` is one and still there.
    pub(super) fn send_over_node(&self, local: Local, datagrams: &[Transmit]) -> bool {
        let (Some(node), Some(nodes)) = (node(local), &self.nodes) else { return false };
        datagrams.iter().all(|transmit| {
            let path = Path { source: transmit.source, ..transmit.to.into() };
            nodes.send_over(node, path, &transmit.datagram)
        })
    }
}
