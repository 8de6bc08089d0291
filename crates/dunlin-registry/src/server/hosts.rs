//! What each host uses: connections, and operations.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hashlink::LruCache;

use super::{Limits, Shared};

/// The most hosts whose operations the server counts. It forgets the one that has been silent for longest.
const MAX_HOSTS: usize = 16 * 1024;

/// The host of an address: an IPv4 address, or the first 64 bits of an IPv6 address, of which a client has all others.
pub(super) fn host(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64)).into(),
    }
}

/// The hosts of a server.
pub(super) struct Hosts {
    limits: Limits,
    connections: Mutex<HashMap<IpAddr, usize>>,
    /// When each host will have its whole allowance of operations again.
    writes: Mutex<LruCache<IpAddr, Instant>>,
}

impl Hosts {
    pub(super) fn new(limits: Limits) -> Self {
        Self { limits, connections: Mutex::default(), writes: Mutex::new(LruCache::new(MAX_HOSTS)) }
    }

    /// Takes a place for a connection of this host; `None` if it has too many.
    pub(super) fn connect(shared: &Arc<Shared>, from: IpAddr) -> Option<Connected> {
        let hosts = &shared.hosts;
        let mut connections = hosts.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let count = connections.entry(from).or_insert(0);
        if *count >= hosts.limits.connections_per_host {
            return None;
        }
        *count += 1;
        Some(Connected { shared: Arc::clone(shared), from })
    }

    /// Counts an operation of this host, and says how long it must wait if that is one too many.
    pub(super) fn write(&self, from: IpAddr, now: Instant) -> Result<(), Duration> {
        let Limits { writes_per_minute, write_burst, .. } = self.limits;
        let each = Duration::from_secs(60) / writes_per_minute.max(1);
        let mut writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        // A host that has its whole allowance waits for nothing.
        let whole = writes.get(&from).copied().map_or(now, |whole| whole.max(now)) + each;
        let ahead = whole - now;
        let most = each.saturating_mul(write_burst);
        if ahead > most {
            return Err(ahead - most);
        }
        writes.insert(from, whole);
        Ok(())
    }
}

/// The place of a connection, which is free again when this value is dropped.
pub(super) struct Connected {
    shared: Arc<Shared>,
    from: IpAddr,
}

impl Drop for Connected {
    fn drop(&mut self) {
        let connections = &self.shared.hosts.connections;
        let mut connections = connections.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = connections.get_mut(&self.from) {
            *count -= 1;
            if *count == 0 {
                connections.remove(&self.from);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_an_address_or_a_network_of_64_bits() {
        let of = |address: &str| host(address.parse().unwrap()).to_string();
        assert_eq!([of("192.0.2.1"), of("::ffff:192.0.2.1")], ["192.0.2.1"; 2]);
        assert_eq!([of("2001:db8::1"), of("2001:db8::2:3:4:5")], ["2001:db8::"; 2]);
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8::1"));
    }

    #[test]
    fn a_host_submits_a_burst_and_then_at_its_rate() {
        let hosts = Hosts::new(Limits { writes_per_minute: 30, write_burst: 3, ..Limits::default() });
        let [one, two] = ["192.0.2.1", "192.0.2.2"].map(|address| address.parse().unwrap());
        let (begin, second) = (Instant::now(), Duration::from_secs(1));
        for _ in 0..3 {
            assert_eq!(hosts.write(one, begin), Ok(()));
        }
        assert_eq!(hosts.write(one, begin), Err(2 * second));
        assert_eq!(hosts.write(one, begin + second), Err(second));
        assert_eq!(hosts.write(two, begin), Ok(()));
        assert_eq!(hosts.write(one, begin + 2 * second), Ok(()));
        assert_eq!(hosts.write(one, begin + 2 * second), Err(2 * second));
        // Silence fills the allowance again, but not beyond the burst.
        let later = begin + 1000 * second;
        assert_eq!([(); 4].map(|()| hosts.write(one, later).is_ok()), [true, true, true, false]);
    }

    #[test]
    fn the_longest_silent_host_is_forgotten_first() {
        let hosts = Hosts::new(Limits { writes_per_minute: 1, write_burst: 1, ..Limits::default() });
        let (now, first) = (Instant::now(), IpAddr::from([10, 0, 0, 0]));
        assert!(hosts.write(first, now).is_ok() && hosts.write(first, now).is_err());
        for number in 1..=u32::try_from(MAX_HOSTS).unwrap() {
            let [_, a, b, c] = number.to_be_bytes();
            assert!(hosts.write(IpAddr::from([10, a, b, c]), now).is_ok());
        }
        assert!(hosts.write(first, now).is_ok());
    }
}
