//! Stands for `ports.rs` in a build without the feature `association-ports`: a pool without ports.
#![allow(clippy::unused_self, reason = "the interface of ports.rs without its content")]

use super::AssociationId;
use super::limits::PortCounts;
use crate::address::Local;
use crate::error::Error;
use crate::places::Host;
use crate::record::datagram::PoolPort;
use crate::settings::{NoPort, PortScheme};

pub(super) struct Pool {
    pub(super) counts: PortCounts,
}

impl Pool {
    pub(super) const fn new() -> Self {
        Self { counts: PortCounts::NONE }
    }

    pub(super) fn add(&mut self, _ports: impl IntoIterator<Item = (Local, u16)>) -> Result<(), Error> {
        Err(PortScheme::unavailable())
    }

    pub(super) const fn user(&self, _local: Local) -> Option<Option<AssociationId>> {
        None
    }

    pub(super) const fn next(&self, _host: Host, _limit: usize) -> Result<PoolPort, NoPort> {
        Err(NoPort::Empty)
    }

    pub(super) const fn take(&mut self, _local: Local, _host: Host, _id: AssociationId) {}

    pub(super) const fn release(&mut self, _local: Local, _host: Host) {}

    pub(super) const fn refuse(&mut self, _why: NoPort) {}
}
