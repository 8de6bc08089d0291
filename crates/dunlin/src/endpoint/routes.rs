//! The index of associations by the peer's address. Connection IDs will be a second index beside it.

use alloc::collections::BTreeMap;
use core::net::SocketAddr;

use super::AssociationId;

/// The associations with one address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Route {
    /// The one whose handshake is complete, or that this side has begun as a client.
    pub(super) live: Option<AssociationId>,
    /// The handshake of a client that will replace it.
    pub(super) next: Option<AssociationId>,
}

impl Route {
    pub(super) const fn is_empty(self) -> bool {
        self.live.is_none() && self.next.is_none()
    }

    pub(super) fn ids(self) -> impl Iterator<Item = AssociationId> {
        [self.live, self.next].into_iter().flatten()
    }
}

pub(super) struct Routes(BTreeMap<SocketAddr, Route>);

impl Routes {
    pub(super) const fn new() -> Self {
        Self(BTreeMap::new())
    }

    pub(super) fn get(&self, address: SocketAddr) -> Route {
        self.0.get(&address).copied().unwrap_or_default()
    }

    pub(super) fn set(&mut self, address: SocketAddr, route: Route) {
        match route.is_empty() {
            true => drop(self.0.remove(&address)),
            false => drop(self.0.insert(address, route)),
        }
    }

    /// Removes an association, and only it, from the route of its address.
    pub(super) fn remove(&mut self, address: SocketAddr, id: AssociationId) {
        let Route { live, next } = self.get(address);
        self.set(address, Route { live: live.filter(|l| *l != id), next: next.filter(|n| *n != id) });
    }
}
