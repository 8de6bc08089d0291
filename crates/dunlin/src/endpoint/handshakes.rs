//! The incomplete handshakes of a server, by host.

use alloc::collections::BTreeSet;

use super::AssociationId;
use crate::places::Host;

/// The incomplete handshakes of a server's clients.
pub(super) struct Handshakes {
    /// By host, the oldest first: names grow with time.
    half_open: BTreeSet<(Host, AssociationId)>,
    /// The same of all hosts.
    oldest: BTreeSet<AssociationId>,
}

impl Handshakes {
    pub(super) const fn new() -> Self {
        Self { half_open: BTreeSet::new(), oldest: BTreeSet::new() }
    }

    /// The number of incomplete handshakes of all hosts.
    pub(super) fn len(&self) -> usize {
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

    /// Counts an association whose handshake has begun.
    pub(super) fn begin(&mut self, host: Host, id: AssociationId) {
        self.half_open.insert((host, id));
        self.oldest.insert(id);
    }

    /// The handshake of an association has ended.
    pub(super) fn end(&mut self, host: Host, id: AssociationId) {
        self.half_open.remove(&(host, id));
        self.oldest.remove(&id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_oldest_handshake_of_a_host_beyond_its_limit() {
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|address| Host::of(address.parse().unwrap()));
        let mut handshakes = Handshakes::new();
        let first = AssociationId::FIRST;
        let names = [first, first.next(), first.next().next()];
        for (host, name) in [other, one, one].into_iter().zip(names) {
            handshakes.begin(host, name);
        }
        assert_eq!((handshakes.excess_of(one, 3), handshakes.excess_of(one, 2)), (None, Some(names[1])));
        assert_eq!((handshakes.excess(4), handshakes.excess(3)), (None, Some(names[0])));
        handshakes.end(one, names[1]);
        assert_eq!((handshakes.excess_of(one, 2), handshakes.len()), (None, 2));
        names[1..].iter().for_each(|name| handshakes.end(one, *name));
        assert_eq!(handshakes.len(), 1);
    }
}
