//! The pool of a server's ports for associations without connection IDs (docs/association-ports.md). Each
//! port belongs to one association at most.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

use super::AssociationId;
use super::limits::PortCounts;
use crate::address::Local;
use crate::error::{Error, Misuse};
use crate::places::Host;
use crate::record::datagram::PoolPort;
use crate::settings::NoPort;

/// The most ports of an endpoint's pool. Each is a socket of the caller.
pub(super) const MAX_PORTS: usize = 16_384;

/// The user of a port.
struct UsedPort {
    port: u16,
    user: Option<AssociationId>,
}

/// The pool.
pub(super) struct Pool {
    places: BTreeMap<Local, UsedPort>,
    /// The free ports; the one that has been free for longest is first.
    free: VecDeque<PoolPort>,
    /// How many ports each host has.
    hosts: BTreeMap<Host, usize>,
    pub(super) counts: PortCounts,
}

impl Pool {
    pub(super) const fn new() -> Self {
        let counts = PortCounts::NONE;
        Self { places: BTreeMap::new(), free: VecDeque::new(), hosts: BTreeMap::new(), counts }
    }

    /// Adds ports and the sockets that are bound to them.
    pub(super) fn add(&mut self, ports: impl IntoIterator<Item = (Local, u16)>) -> Result<(), Error> {
        let misuse = |why| Err(Misuse::Config(why).into());
        let mut added = BTreeMap::new();
        let mut numbers: BTreeSet<u16> = self.places.values().map(|place| place.port).collect();
        for (local, port) in ports {
            if port == 0 || local == Local::default() {
                return misuse(alloc::format!(
                    "port {port} of socket {} cannot be in a pool: 0 stands for the welcome port's socket and for no port",
                    local.0
                ));
            }
            let is_twice = !numbers.insert(port);
            if is_twice || added.contains_key(&local) || self.places.contains_key(&local) {
                return misuse(alloc::format!("port {port} of socket {} is in the pool twice", local.0));
            }
            if self.places.len() + added.len() >= MAX_PORTS {
                return misuse(alloc::format!("a pool has at most {MAX_PORTS} ports"));
            }
            added.insert(local, UsedPort { port, user: None });
        }
        if added.is_empty() {
            return misuse("an empty pool of ports: name at least one port".into());
        }
        self.free.extend(added.iter().map(|(local, place)| PoolPort { local: *local, port: place.port }));
        self.places.append(&mut added);
        self.counts.ports = self.places.len();
        Ok(())
    }

    /// Whether the socket belongs to the pool, and the association that has it.
    pub(super) fn user(&self, local: Local) -> Option<Option<AssociationId>> {
        self.places.get(&local).map(|place| place.user)
    }

    /// The next port for a client of this host, which may have `limit` of them.
    pub(super) fn next(&self, host: Host, limit: usize) -> Result<PoolPort, NoPort> {
        match self.free.front() {
            None => Err(NoPort::Empty),
            Some(_) if self.hosts.get(&host).is_some_and(|ports| *ports >= limit) => Err(NoPort::HostLimit),
            Some(_) if limit == 0 => Err(NoPort::HostLimit),
            Some(port) => Ok(*port),
        }
    }

    /// Gives the port to an association of a client of this host.
    pub(super) fn take(&mut self, local: Local, host: Host, id: AssociationId) {
        if let Some(place) = self.places.get_mut(&local) {
            if let Some(at) = self.free.iter().position(|port| port.local == local) {
                self.free.remove(at);
            }
            place.user = Some(id);
            *self.hosts.entry(host).or_default() += 1;
            self.counts.used += 1;
            self.counts.given += 1;
        }
    }

    /// Takes the port back.
    pub(super) fn release(&mut self, local: Local, host: Host) {
        let Some(place) = self.places.get_mut(&local) else { return };
        if place.user.take().is_none() {
            return;
        }
        self.free.push_back(PoolPort { local, port: place.port });
        self.counts.used = self.counts.used.saturating_sub(1);
        if let Some(ports) = self.hosts.get_mut(&host) {
            *ports = ports.saturating_sub(1);
            if *ports == 0 {
                self.hosts.remove(&host);
            }
        }
    }

    /// Counts an association without a port.
    pub(super) const fn refuse(&mut self, why: NoPort) {
        match why {
            NoPort::Empty => self.counts.empty += 1,
            NoPort::HostLimit => self.counts.host_limit += 1,
            NoPort::NoCookie => self.counts.no_cookie += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(n: u8) -> Host {
        Host::of([192, 0, 2, n].into())
    }

    #[test]
    fn a_pool_without_ports_or_with_one_twice_is_refused() {
        let mut pool = Pool::new();
        let mut add = |ports: &[(u32, u16)]| {
            pool.add(ports.iter().map(|(local, port)| (Local(*local), *port)).collect::<alloc::vec::Vec<_>>())
        };
        for ports in [&[][..], &[(1, 0)], &[(0, 7)], &[(1, 7), (1, 8)], &[(1, 7), (2, 7)]] {
            assert!(matches!(add(ports), Err(Error::Misuse(Misuse::Config(_)))), "{ports:?}");
        }
        add(&[(1, 7)]).unwrap();
        assert!(add(&[(2, 7)]).is_err() && add(&[(1, 8)]).is_err());
        let many: alloc::vec::Vec<_> = (2..=MAX_PORTS as u32 + 1).map(|n| (n, 1000 + n as u16)).collect();
        assert!(add(&many).is_err());
        assert_eq!(pool.counts.ports, 1);
    }

    #[test]
    fn a_port_that_was_just_given_back_is_the_last_to_be_used_again() {
        let mut pool = Pool::new();
        pool.add([(Local(1), 11), (Local(2), 12)]).unwrap();
        let id = AssociationId::FIRST;
        assert_eq!(pool.next(host(1), 1), Ok(PoolPort { local: Local(1), port: 11 }));
        pool.take(Local(1), host(1), id);
        assert_eq!(
            (pool.user(Local(1)), pool.user(Local(2)), pool.user(Local(3))),
            (Some(Some(id)), Some(None), None)
        );
        assert_eq!(pool.next(host(1), 1), Err(NoPort::HostLimit));
        pool.release(Local(1), host(1));
        assert_eq!(pool.next(host(1), 1).map(|port| port.port), Ok(12));
        pool.take(Local(2), host(2), id);
        pool.take(Local(1), host(2), id);
        assert_eq!(pool.next(host(1), 1), Err(NoPort::Empty));
        assert_eq!((pool.counts.used, pool.counts.given), (2, 3));
        // A port is given back once.
        pool.release(Local(1), host(2));
        pool.release(Local(1), host(2));
        assert_eq!((pool.counts.used, pool.free.len()), (1, 1));
    }
}
