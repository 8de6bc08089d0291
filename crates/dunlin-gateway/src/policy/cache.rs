//! The handshake cache as a policy allows its use: entries have no certificate, which some rules look at.

use std::sync::Arc;

use dunlin::cache::{CachedPeer, ServerCache, Ticket};

use super::{Client, Policy};

/// A store that hides clients whose certificate a rule needs, so that they present it again.
#[derive(Debug)]
pub(super) struct JudgedCache {
    pub(super) store: Arc<dyn ServerCache>,
    pub(super) policy: Arc<Policy>,
    /// The rank of the profile that uses the store.
    pub(super) rank: i32,
    /// The seconds since 1970.
    pub(super) clock: fn() -> u64,
}

impl ServerCache for JudgedCache {
    fn find(&self, ticket: &Ticket) -> Option<CachedPeer> {
        let peer = self.store.find(ticket)?;
        let client = Client::of(peer.identity());
        (!self.policy.needs_certificate(&client, self.rank, (self.clock)())).then_some(peer)
    }

    fn put(&self, ticket: Ticket, client: CachedPeer, proven: Option<Ticket>) {
        self.store.put(ticket, client, proven);
    }
}
