//! The record layer of an association that continues elsewhere: in another process, or after a planned
//! restart.

use alloc::collections::VecDeque;
use core::net::{IpAddr, SocketAddr, SocketAddrV6};
use core::time::Duration;

use super::connection_id::{OwnIds, PeerIds};
use super::epoch::Kind;
use super::{Datagram, HANDSHAKE_EPOCH};
use crate::address::{Local, Path};
use crate::crypto::SecureRandom;
use crate::error::{Error, Misuse};
use crate::flight::RecordNumber;
use crate::protocol::{Protocol, Side};
use crate::resume::SettingsDigest;
use crate::settings::{ConnectionIds, DatagramSettings};
use crate::sync::Arc;
use crate::time::Instant;
use crate::wire::{ExtensionType, Field, Reader, Writer};

/// How far record numbers skip ahead. So they differ from the numbers of records that were sealed before the
/// association was frozen, or by a process that went on after freezing. They do not differ between two thaws
/// of the same bytes.
///
/// RFC 9147 §4.2.2: the peer reconstructs a number from its lower 16 bits, so several skips in a row, whose
/// records were all lost, must stay below 2^15.
pub(super) const SKIP: u64 = 1 << 10;

/// The caller's part of a thawed connection.
pub(crate) struct Thawing<'a> {
    pub(crate) side: Side,
    pub(crate) protocol: Protocol,
    pub(crate) settings: &'a DatagramSettings,
    pub(crate) issuer: Option<Arc<dyn ConnectionIds>>,
    pub(crate) random: Arc<dyn SecureRandom>,
    /// The settings under which the handshake has authenticated the peer.
    pub(crate) digest: SettingsDigest,
    pub(crate) kind: Kind,
    pub(crate) now: Instant,
    /// How long nothing authentic had arrived then.
    pub(crate) silent: Duration,
}

impl Datagram {
    /// Checks that no message is on its way.
    ///
    /// # Errors
    /// [`Misuse::FlightWaits`] in three cases: output waits; a message of this side waits for its ACK, and
    /// the thawed connection could not repeat it; or a message of the peer is incomplete, and the peer does
    /// not repeat the part that was acknowledged. [`Misuse::NotSupported`] for an association with a port of
    /// its own ([`crate::PortScheme`]), which belongs to this process.
    pub(crate) fn check_settled(&mut self) -> Result<(), Error> {
        if !self.ports.are_portable() {
            return Err(Misuse::NotSupported(Field::Extension(ExtensionType::ASSOCIATION_PORT)).into());
        }
        if self.sender.is_settled() && self.receiver.is_settled() {
            Ok(())
        } else {
            Err(Misuse::FlightWaits.into())
        }
    }

    /// The settings under which the handshake has authenticated the peer.
    pub(crate) const fn settings(&self) -> Option<SettingsDigest> {
        self.settings
    }

    /// The length of all connection IDs that [`Self::freeze`] writes, with their own lengths.
    pub(crate) fn ids_len(&self) -> usize {
        let own = &self.receiver.ids;
        let peer = &self.sender.ids;
        let own = own.iter().chain([own.latest()]);
        own.chain(peer.spare()).chain([peer.present()]).map(|id| 1 + id.len()).sum()
    }

    /// Lets this issue further connection IDs of this side.
    pub(crate) fn set_issuer(&mut self, issuer: Arc<dyn ConnectionIds>) {
        self.receiver.ids.set_issuer(issuer);
    }

    /// Writes the state of both directions, and ends them here, without a word to the peer.
    pub(crate) fn freeze(&mut self, w: &mut Writer) {
        write_path(w, self.paths.present());
        w.u8(self.paths.are_checked().into());
        self.ports.freeze(w);
        self.receiver.freeze(w);
        self.sender.freeze(w);
        self.receiver.end_silently();
        self.sender.end_silently();
        self.timers = Default::default();
    }

    /// Continues with the output of [`Self::freeze`].
    pub(crate) fn thaw(r: &mut Reader<'_>, thawing: Thawing<'_>) -> Result<Self, Error> {
        let Thawing { side, protocol, settings, issuer, random, digest, kind, now, silent } = thawing;
        let path = read_path(r)?;
        let is_checked = r.u8()? == 1;
        let mut datagram = Self::new(side, settings, path);
        (datagram.now, datagram.used_at) = (now, now);
        datagram.settings = Some(digest);
        datagram.ports.thaw(r, side)?;
        datagram.receiver.thaw(r, protocol, issuer, kind, (now, silent))?;
        datagram.sender.thaw(r, protocol, kind)?;
        if is_checked {
            datagram.receiver.are_paths_checked = true;
            datagram.paths.agree(random);
        }
        datagram.is_address_proven = true;
        datagram.complete = true;
        datagram.retransmit.has_acknowledged = true;
        Ok(datagram)
    }
}

fn write_path(w: &mut Writer, Path { local, source, peer }: Path) {
    w.u32(local.0);
    write_ip(w, source);
    write_ip(w, Some(peer.ip()));
    w.u16(peer.port());
    let (flow, scope) = match peer {
        SocketAddr::V4(_) => (0, 0),
        SocketAddr::V6(peer) => (peer.flowinfo(), peer.scope_id()),
    };
    w.u32(flow);
    w.u32(scope);
}

fn read_path(r: &mut Reader<'_>) -> Result<Path, Error> {
    let local = Local(r.u32()?);
    let source = read_ip(r)?;
    let ip = read_ip(r)?.ok_or_else(|| r.bad_length())?;
    let port = r.u16()?;
    let flow = r.u32()?;
    let scope = r.u32()?;
    let peer = match ip {
        IpAddr::V4(_) => SocketAddr::new(ip, port),
        IpAddr::V6(ip) => SocketAddrV6::new(ip, port, flow, scope).into(),
    };
    Ok(Path { local, source, peer })
}

/// Writes an address; an empty one stands for none.
fn write_ip(w: &mut Writer, ip: Option<IpAddr>) {
    w.vec8(|w| match ip {
        None => {}
        Some(IpAddr::V4(ip)) => w.put(&ip.octets()),
        Some(IpAddr::V6(ip)) => w.put(&ip.octets()),
    });
}

fn read_ip(r: &mut Reader<'_>) -> Result<Option<IpAddr>, Error> {
    let ip = r.vec8(0)?;
    match (ip.first_chunk::<4>(), ip.first_chunk::<16>(), ip.len()) {
        (_, _, 0) => Ok(None),
        (Some(ip), _, 4) => Ok(Some(IpAddr::from(*ip))),
        (_, Some(ip), 16) => Ok(Some(IpAddr::from(*ip))),
        _ => Err(r.bad_length().into()),
    }
}

/// Writes the number of a record.
pub(super) fn write_number(w: &mut Writer, RecordNumber { epoch, sequence }: RecordNumber) {
    w.u64(epoch);
    w.u64(sequence);
}

pub(super) fn read_number(r: &mut Reader<'_>) -> Result<RecordNumber, Error> {
    Ok(RecordNumber { epoch: r.u64()?, sequence: r.u64()? })
}

/// Checks that an epoch can carry application data in this protocol.
pub(super) fn check_epoch(r: &Reader<'_>, protocol: Protocol, epoch: u64) -> Result<u64, Error> {
    let fits = if protocol.changes_cipher_spec() { epoch == 1 } else { epoch > HANDSHAKE_EPOCH };
    if fits { Ok(epoch) } else { Err(r.bad_value().into()) }
}

impl OwnIds {
    pub(super) fn freeze(&self, w: &mut Writer) {
        w.u8(u8::try_from(self.len()).unwrap_or(u8::MAX));
        w.vec16(|w| self.iter().for_each(|id| w.put(id)));
        w.vec8(|w| w.put(self.latest()));
        // Otherwise the thawed side would drop IDs that the peer still uses before those that it has left.
        w.vec8(|w| self.left().for_each(|at| w.u8(u8::try_from(at).unwrap_or(u8::MAX))));
    }

    pub(super) fn thaw(r: &mut Reader<'_>, issuer: Option<Arc<dyn ConnectionIds>>) -> Result<Self, Error> {
        let len = usize::from(r.u8()?);
        let ids = r.vec16(0)?;
        let latest = r.vec8(0)?.to_vec();
        if ids.len().checked_rem(len).unwrap_or(ids.len()) != 0 {
            return Err(r.bad_length().into());
        }
        r.limit(ids.len().checked_div(len).unwrap_or(0), super::connection_id::MAX_OWN_IDS + 1)?;
        let ids: VecDeque<_> = ids.chunks_exact(len.max(1)).map(<[u8]>::to_vec).collect();
        let left = Reader::items(r.vec8(0)?, Field::FrozenAssociation, |r| {
            ids.get(usize::from(r.u8()?)).cloned().ok_or_else(|| Error::from(r.bad_value()))
        })?;
        r.limit(left.len(), ids.len())?;
        // A configuration with IDs of another length issues none for this association.
        Ok(Self::thawed(issuer.filter(|issuer| issuer.id_len() == len), len, ids, latest, left))
    }
}

impl PeerIds {
    pub(super) fn freeze(&self, w: &mut Writer) {
        w.vec8(|w| w.put(self.present()));
        w.vec16(|w| self.spare().for_each(|id| w.vec8(|w| w.put(id))));
    }

    pub(super) fn thaw(r: &mut Reader<'_>) -> Result<Self, Error> {
        let present = r.vec8(0)?.to_vec();
        let spare = Reader::items(r.vec16(0)?, Field::FrozenAssociation, |r| {
            r.vec8(0).map(<[u8]>::to_vec).map_err(Error::from)
        })?;
        r.limit(spare.len(), super::connection_id::MAX_SPARE_IDS)?;
        Ok(Self::thawed(present, spare))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_survives_with_its_source_address() {
        let peers = ["192.0.2.1:5684", "[2001:db8::1]:5684", "[fe80::1%7]:5684"];
        for (peer, source) in peers.into_iter().zip([Some("192.0.2.9"), Some("2001:db8::9"), None]) {
            let peer: SocketAddr = peer.parse().unwrap();
            let path = Path { source: source.map(|ip| ip.parse().unwrap()), ..peer.into() };
            let mut w = Writer::new();
            write_path(&mut w, path);
            let bytes = w.finish().unwrap();
            assert_eq!(Reader::all(&bytes, Field::FrozenAssociation, read_path).unwrap(), path);
        }
        // An address of five bytes, and no address of the peer.
        for bytes in [&[0, 0, 0, 0, 5, 1, 2, 3, 4, 5, 4, 1, 2, 3, 4][..], &[0, 0, 0, 0, 0, 0]] {
            let bytes = [bytes, &[0; 10]].concat();
            assert!(Reader::all(&bytes, Field::FrozenAssociation, read_path).is_err());
        }
    }
}
