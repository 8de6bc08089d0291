//! Several machines that serve the same clients: each passes on datagrams that belong to associations of
//! another one.

use dunlin::{Local, Path};

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
    /// that the client has asked ([`Path::source`]), to [`receive_over`](super::DtlsEndpoint::receive_over) at that node, or lost
    /// it.
    fn take(&self, path: Path, datagram: &[u8]) -> bool;

    /// Lets this node send a datagram to a client whose datagrams arrive there ([`send_as_is`](super::DtlsEndpoint::send_as_is)
    /// at that node), from the address that the client has asked. `false` if there is no such node; then the
    /// endpoint sends the datagram itself.
    fn send_over(&self, node: u16, path: Path, datagram: &[u8]) -> bool;
}

/// The number by which the engine knows a node.
pub(super) const fn local(node: u16) -> Local {
    Local(NODES + node as u32)
}

/// The node that the engine knows by this number.
pub(super) fn node(local: Local) -> Option<u16> {
    local.0.checked_sub(NODES).and_then(|node| node.try_into().ok())
}
