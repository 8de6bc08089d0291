//! Stands for `ports.rs` in a build without the feature `association-ports`: no association has a port of its
//! own.
#![allow(
    dead_code,
    clippy::unused_self,
    clippy::unnecessary_wraps,
    reason = "the interface of ports.rs without its content"
)]

use super::receive::ReceivedRecord;
use super::{Datagram, Side};
use crate::address::{Local, Path};
use crate::error::{Error, PeerMisbehaved};
use crate::settings::{NoPort, PortScheme};
use crate::time::Instant;
use crate::wire::{ContentType, Field, Reader, Writer};

/// A port of a server's pool. In this build there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PoolPort {}

/// The claim of a server's connection on the endpoint's pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    Nothing,
    Port(Local),
    Missing(NoPort),
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ports;

impl Ports {
    pub(super) const fn new(_side: Side, _scheme: Option<PortScheme>) -> Self {
        Self
    }

    pub(super) const fn give_up(&mut self) {}

    pub(super) const fn are_portable(&self) -> bool {
        true
    }

    pub(super) fn freeze(&self, w: &mut Writer) {
        w.u16(0);
    }

    /// Refuses an association that another build has frozen while its client was between two ports.
    pub(super) fn thaw(&mut self, r: &mut Reader<'_>, _side: Side) -> Result<(), Error> {
        match r.u16()? {
            0 => Ok(()),
            _ => Err(r.bad_value().into()),
        }
    }

    pub(super) const fn admits(&self, _path: Path, _present: Path) -> bool {
        false
    }

    pub(super) const fn old(&self, _present: Path) -> Option<Path> {
        None
    }
}

impl Datagram {
    pub(crate) const fn offer_port(&mut self, _port: Result<PoolPort, NoPort>) {}

    pub(crate) const fn port_claim(&self) -> Claim {
        Claim::Nothing
    }

    pub(crate) const fn association_port(&self) -> Option<(PortScheme, u16)> {
        None
    }

    pub(crate) const fn old_port(&self) -> Option<u16> {
        None
    }

    pub(super) const fn begin_to_move(&mut self) -> Result<(), Error> {
        Ok(())
    }

    pub(super) const fn await_server(&mut self, _now: Instant) {}

    pub(super) const fn move_again(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// No peer has agreed to another port.
    pub(super) fn about_port(&mut self, _path: Path, _is_newest: bool, _content: &[u8]) -> Result<(), Error> {
        Err(PeerMisbehaved::UnexpectedRecord(Field::Record(ContentType::ASSOCIATION_PORT)).into())
    }

    pub(super) const fn heard_at_port(&mut self, _heard: &ReceivedRecord) -> bool {
        false
    }
}
