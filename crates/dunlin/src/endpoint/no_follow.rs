//! Stands for `follow.rs` in a build without the feature `association-ports`: no client follows its server.
#![allow(clippy::unused_self, reason = "the interface of follow.rs without its content")]

use core::net::SocketAddr;
use core::time::Duration;

use super::{AssociationId, Endpoint};
use crate::address::Path;
use crate::time::{Instant, Now};

pub(super) struct Following;

impl Following {
    pub(super) const fn new(_welcome: SocketAddr, _first_timeout: Duration) -> Self {
        Self
    }

    pub(super) const fn deadline(&self, _heard_at: Instant) -> Option<Instant> {
        None
    }
}

impl Endpoint {
    pub(super) const fn follower(&self, _from: SocketAddr, _datagram: &[u8]) -> Option<AssociationId> {
        None
    }

    pub(super) const fn follow(&mut self, _now: Now, _from: Path, _id: AssociationId, _datagram: &[u8]) {}

    pub(super) const fn check_attempt(&mut self, _id: AssociationId, _now: Option<Now>) {}

    pub(super) const fn stop_following(&mut self, _id: AssociationId) {}
}
