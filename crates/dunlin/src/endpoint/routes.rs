//! The indexes of associations: by the peer's address, and by the connection IDs that this side has given.

use alloc::collections::{BTreeMap, BTreeSet};
use core::net::SocketAddr;

use super::AssociationId;
use crate::record::datagram;
use crate::settings::MAX_CONNECTION_ID;

/// The most associations that a datagram is given to because of its connection ID. IDs are random, and a
/// server does not admit a client with the first ID of another. So more than one has the same ID only by
/// chance.
const MAX_NAMESAKES: usize = 2;

/// The associations with one address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Route {
    /// The one whose handshake is complete, or that this side has begun as a client.
    pub(super) live: Option<AssociationId>,
    /// Incomplete handshakes, the oldest and the newest; the one that completes replaces `live`. There are
    /// two, so that a handshake that an attacker begins in the client's name does not end the client's own.
    pub(super) next: [Option<AssociationId>; 2],
}

impl Route {
    pub(super) const fn is_empty(self) -> bool {
        self.live.is_none() && matches!(self.next, [None, None])
    }

    pub(super) fn ids(self) -> impl Iterator<Item = AssociationId> {
        self.live.into_iter().chain(self.next.into_iter().flatten())
    }

    /// The same without an association.
    fn without(self, id: AssociationId) -> Self {
        let keep = |other: Option<AssociationId>| other.filter(|other| *other != id);
        let [older, newer] = self.next.map(keep);
        Self { live: keep(self.live), next: if older.is_none() { [newer, None] } else { [older, newer] } }
    }

    /// The same with another handshake. There is room for it beside the oldest one.
    pub(super) const fn with_next(self, id: AssociationId) -> Self {
        let next = match self.next {
            [None, _] => [Some(id), None],
            [older, _] => [older, Some(id)],
        };
        Self { next, ..self }
    }
}

/// An address in few bytes, which are quickly compared: both halves of the IPv6 form, and the scope, the port
/// and a flag. An IPv4 address in its IPv6 form (RFC 4291 §2.5.5.2) would be another peer, so the flag tells
/// it apart. The flow label of IPv6 names no peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Address {
    low: u64,
    rest: u64,
    high: u64,
}

impl Address {
    fn of(address: SocketAddr) -> Self {
        let (ip, scope) = match address {
            SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), 0),
            SocketAddr::V6(v6) => (*v6.ip(), v6.scope_id()),
        };
        let [high, low] = [ip.to_bits() >> 64, ip.to_bits() & u128::from(u64::MAX)].map(|half| half as u64);
        let port = u64::from(address.port()) << 1 | u64::from(address.is_ipv4());
        Self { low, rest: u64::from(scope) << 32 | port, high }
    }
}

/// A connection ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    len: u8,
    bytes: [u8; MAX_CONNECTION_ID],
}

impl Key {
    /// `None` for an ID that is empty or too long.
    pub(super) fn new(id: &[u8]) -> Option<Self> {
        let mut bytes = [0; MAX_CONNECTION_ID];
        bytes.get_mut(..id.len())?.copy_from_slice(id);
        Some(Self { len: u8::try_from(id.len()).ok().filter(|len| *len > 0)?, bytes })
    }
}

pub(super) struct Routes {
    /// [`Route::live`] by address, of almost all associations.
    live: BTreeMap<Address, AssociationId>,
    /// [`Route::next`] by address.
    next: BTreeMap<Address, [Option<AssociationId>; 2]>,
    ids: BTreeSet<(Key, AssociationId)>,
    /// The number of IDs of each length, since a record does not say how long its ID is.
    lengths: BTreeMap<u8, usize>,
}

impl Routes {
    pub(super) const fn new() -> Self {
        Self { live: BTreeMap::new(), next: BTreeMap::new(), ids: BTreeSet::new(), lengths: BTreeMap::new() }
    }

    pub(super) fn get(&self, address: SocketAddr) -> Route {
        let address = Address::of(address);
        let next = self.next.get(&address).copied().unwrap_or_default();
        Route { live: self.live.get(&address).copied(), next }
    }

    pub(super) fn set(&mut self, address: SocketAddr, Route { live, next }: Route) {
        let address = Address::of(address);
        match live {
            None => drop(self.live.remove(&address)),
            Some(live) => drop(self.live.insert(address, live)),
        }
        match next {
            [None, None] => drop(self.next.remove(&address)),
            next => drop(self.next.insert(address, next)),
        }
    }

    /// Removes an association, and only it, from the route of its address.
    pub(super) fn remove(&mut self, address: SocketAddr, id: AssociationId) {
        self.set(address, self.get(address).without(id));
    }

    /// The associations that have the connection ID in the first record of a datagram. Almost always there is
    /// at most one.
    pub(super) fn with_id_of(&self, datagram: &[u8]) -> [Option<AssociationId>; MAX_NAMESAKES] {
        let mut found = [None; MAX_NAMESAKES];
        let keys = self
            .lengths
            .keys()
            .filter_map(|len| datagram::connection_id(datagram, usize::from(*len)).and_then(Key::new));
        for (place, id) in found.iter_mut().zip(keys.flat_map(|key| self.with_key(key))) {
            *place = Some(id);
        }
        found
    }

    /// The associations with this connection ID.
    pub(super) fn with_key(&self, key: Key) -> impl Iterator<Item = AssociationId> {
        self.ids.range((key, AssociationId::FIRST)..=(key, AssociationId::LAST)).map(|(_, id)| *id)
    }

    pub(super) fn insert_key(&mut self, key: Key, id: AssociationId) {
        if self.ids.insert((key, id)) {
            *self.lengths.entry(key.len).or_default() += 1;
        }
    }

    pub(super) fn remove_key(&mut self, key: Key, id: AssociationId) {
        if self.ids.remove(&(key, id))
            && let Some(count) = self.lengths.get_mut(&key.len)
        {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.lengths.remove(&key.len);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of DTLS 1.3 with this connection ID.
    fn record(id: &[u8]) -> alloc::vec::Vec<u8> {
        [&[0b0011_0011][..], id, &[0; 20]].concat()
    }

    #[test]
    fn a_route_keeps_the_oldest_and_the_newest_handshake() {
        let one = AssociationId::FIRST;
        let two = one.next();
        let three = one.next().next();
        let route = Route::default().with_next(one).with_next(two);
        assert_eq!(route.next, [Some(one), Some(two)]);
        assert_eq!(route.with_next(three).next, [Some(one), Some(three)]);
        assert_eq!(route.without(one).with_next(three).next, [Some(two), Some(three)]);
        assert!(route.without(one).without(two).is_empty());
    }

    #[test]
    fn finds_ids_of_every_length() {
        let mut routes = Routes::new();
        let ids: [&[u8]; 3] = [&[7], &[7, 8], &[9; MAX_CONNECTION_ID]];
        let first = AssociationId::FIRST;
        let names = [first, first.next(), first.next().next()];
        for (name, id) in names.into_iter().zip(ids) {
            routes.insert_key(Key::new(id).unwrap(), name);
        }
        assert_eq!(routes.with_id_of(&record(&[7, 1])), [Some(names[0]), None]);
        assert_eq!(routes.with_id_of(&record(&[7, 8])), [Some(names[0]), Some(names[1])]);
        assert_eq!(routes.with_id_of(&record(&[9; MAX_CONNECTION_ID])), [Some(names[2]), None]);
        assert_eq!(routes.with_id_of(&record(&[8])), [None; 2]);
        assert_eq!(routes.with_id_of(&[0b0010_0011, 7, 8]), [None; 2], "a record without an ID");
        for (name, id) in names.into_iter().zip(ids) {
            routes.remove_key(Key::new(id).unwrap(), name);
        }
        assert!(routes.ids.is_empty() && routes.lengths.is_empty());
        assert!(Key::new(&[]).is_none() && Key::new(&[1; MAX_CONNECTION_ID + 1]).is_none());
    }
}
