//! How many associations and incomplete handshakes each host has at a server.

use alloc::collections::{BTreeMap, BTreeSet};
use core::net::{IpAddr, SocketAddr};

use super::AssociationId;

/// A host, as the limits count it. An IPv6 host can have every address of its network, so the first 64 bits name it
/// (RFC 4291 §2.5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Host {
    V4([u8; 4]),
    V6([u8; 8]),
}

impl Host {
    pub(super) fn of(address: SocketAddr) -> Self {
        match address.ip().to_canonical() {
            IpAddr::V4(ip) => Self::V4(ip.octets()),
            IpAddr::V6(ip) => {
                let [a, b, c, d, e, f, g, h, ..] = ip.octets();
                Self::V6([a, b, c, d, e, f, g, h])
            }
        }
    }
}

/// The clients of a server by host. It keeps nothing of a host without associations.
pub(super) struct Hosts {
    associations: BTreeMap<Host, usize>,
    /// The incomplete handshakes by host, the oldest first: names grow with time.
    half_open: BTreeSet<(Host, AssociationId)>,
    /// The same of all hosts.
    oldest: BTreeSet<AssociationId>,
}

impl Hosts {
    pub(super) const fn new() -> Self {
        Self { associations: BTreeMap::new(), half_open: BTreeSet::new(), oldest: BTreeSet::new() }
    }

    /// The number of associations of a host.
    pub(super) fn associations(&self, host: Host) -> usize {
        self.associations.get(&host).copied().unwrap_or(0)
    }

    /// The number of incomplete handshakes of all hosts.
    pub(super) fn half_open(&self) -> usize {
        self.oldest.len()
    }

    /// The oldest incomplete handshake, if there are at least `limit`.
    pub(super) fn excess(&self, limit: usize) -> Option<AssociationId> {
        self.oldest.first().copied().filter(|_| self.oldest.len() >= limit)
    }

    /// The oldest incomplete handshake of a host, if it has at least `limit`.
    pub(super) fn excess_of(&self, host: Host, limit: usize) -> Option<AssociationId> {
        let all = (host, AssociationId::FIRST)..=(host, AssociationId::LAST);
        let mut of_host = self.half_open.range(all).map(|(_, id)| *id);
        let oldest = of_host.next()?;
        (1 + of_host.take(limit).count() >= limit).then_some(oldest)
    }

    /// Counts an association whose handshake is complete.
    pub(super) fn add(&mut self, host: Host) {
        *self.associations.entry(host).or_default() += 1;
    }

    /// Counts an association whose handshake has begun.
    pub(super) fn begin(&mut self, host: Host, id: AssociationId) {
        self.add(host);
        self.half_open.insert((host, id));
        self.oldest.insert(id);
    }

    /// The handshake of an association has ended.
    pub(super) fn end_handshake(&mut self, host: Host, id: AssociationId) {
        self.half_open.remove(&(host, id));
        self.oldest.remove(&id);
    }

    /// An association was removed.
    pub(super) fn remove(&mut self, host: Host, id: AssociationId) {
        self.end_handshake(host, id);
        if let Some(count) = self.associations.get_mut(&host) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.associations.remove(&host);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(address: &str) -> Host {
        Host::of(address.parse().unwrap())
    }

    #[test]
    fn counts_an_ipv6_network_as_one_host() {
        assert_eq!(host("[2001:db8::1]:1"), host("[2001:db8::ffff:1]:2"));
        assert_ne!(host("[2001:db8::1]:1"), host("[2001:db8:0:1::1]:1"));
        assert_eq!(host("192.0.2.1:1"), host("[::ffff:192.0.2.1]:2"));
        assert_ne!(host("192.0.2.1:1"), host("192.0.2.2:1"));
    }

    #[test]
    fn names_the_oldest_handshake_of_a_host_beyond_its_limit() {
        let (one, other) = (host("192.0.2.1:1"), host("192.0.2.2:1"));
        let mut hosts = Hosts::new();
        let first = AssociationId::FIRST;
        let names = [first, first.next(), first.next().next()];
        for (host, name) in [other, one, one].into_iter().zip(names) {
            hosts.begin(host, name);
        }
        assert_eq!((hosts.excess_of(one, 3), hosts.excess_of(one, 2)), (None, Some(names[1])));
        assert_eq!((hosts.excess(4), hosts.excess(3)), (None, Some(names[0])));
        hosts.end_handshake(one, names[1]);
        assert_eq!((hosts.excess_of(one, 2), hosts.associations(one), hosts.half_open()), (None, 2, 2));
        names[1..].iter().for_each(|name| hosts.remove(one, *name));
        assert_eq!((hosts.associations(one), hosts.half_open()), (0, 1));
        assert!(!hosts.associations.contains_key(&one));
    }
}
