//! Places for connections and handshakes, of which there are as many as the configuration says.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::metrics::Limit;

/// The hosts of a listener, and its handshakes.
#[derive(Debug, Default)]
pub(crate) struct Places {
    hosts: Mutex<HashMap<IpAddr, Host>>,
    handshakes: Arc<AtomicUsize>,
}

/// How many connections a host has, and how many handshakes of them are in progress.
#[derive(Debug, Default)]
struct Host {
    connections: usize,
    handshakes: usize,
}

/// A place for something that is counted. It is free again when the value is dropped.
pub(crate) struct Place<F: Fn()>(F);

impl<F: Fn()> Drop for Place<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Takes a place of at most `max`.
pub(crate) fn take(
    count: &Arc<AtomicUsize>,
    max: usize,
    limit: Limit,
) -> Result<Place<impl Fn() + use<>>, Limit> {
    let add = |n: usize| (n < max).then_some(n + 1);
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).map_err(|_| limit)?;
    let count = count.clone();
    Ok(Place(move || {
        count.fetch_sub(1, Ordering::Relaxed);
    }))
}

impl Places {
    /// Takes a place for a connection from this address.
    pub(crate) fn connection(
        self: &Arc<Self>,
        address: IpAddr,
        max_per_host: usize,
    ) -> Result<Place<impl Fn() + use<>>, Limit> {
        self.of_host(address, max_per_host, Limit::ConnectionsPerHost, |host| &mut host.connections)
    }

    /// Takes a place for a handshake with this address. One host cannot take all places.
    pub(crate) fn handshake(
        self: &Arc<Self>,
        address: IpAddr,
        max_per_host: usize,
        max: usize,
    ) -> Result<Place<impl Fn() + use<>>, Limit> {
        let of_host =
            self.of_host(address, max_per_host, Limit::HandshakesPerHost, |host| &mut host.handshakes)?;
        let of_all = take(&self.handshakes, max, Limit::Handshakes)?;
        Ok(Place(move || {
            let _ = (&of_host, &of_all);
        }))
    }

    fn of_host(
        self: &Arc<Self>,
        address: IpAddr,
        max: usize,
        limit: Limit,
        counter: fn(&mut Host) -> &mut usize,
    ) -> Result<Place<impl Fn() + use<>>, Limit> {
        let address = host(address);
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counter(hosts.entry(address).or_default());
        if *count >= max {
            return Err(limit);
        }
        *count += 1;
        let places = self.clone();
        Ok(Place(move || places.leave(address, counter)))
    }

    fn leave(&self, address: IpAddr, counter: fn(&mut Host) -> &mut usize) {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut host) = hosts.entry(address) {
            let count = counter(host.get_mut());
            *count = count.saturating_sub(1);
            if let Host { connections: 0, handshakes: 0 } = host.get() {
                host.remove();
            }
        }
    }
}

/// The host behind an address. A host with IPv6 usually has a whole network of 64 bits.
pub(crate) fn host(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) >> 64 << 64).into()),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_has_its_places_only() {
        let places = Arc::new(Places::default());
        let [a, same, other] =
            ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"].map(|text| text.parse::<IpAddr>().unwrap());
        let first = places.connection(a, 2).ok().unwrap();
        let second = places.connection(same, 2).ok().unwrap();
        assert_eq!(places.connection(a, 2).err(), Some(Limit::ConnectionsPerHost));
        assert!(places.connection(other, 2).is_ok());
        drop(first);
        assert!(places.connection(a, 2).is_ok());
        drop(second);
        assert!(places.hosts.lock().unwrap().is_empty());
    }

    #[test]
    fn a_host_cannot_take_all_handshakes() {
        let places = Arc::new(Places::default());
        let [greedy, other] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse::<IpAddr>().unwrap());
        let take = |address| places.handshake(address, 2, 3);
        let mut taken = vec![take(greedy).ok().unwrap(), take(greedy).ok().unwrap()];
        assert_eq!(take(greedy).err(), Some(Limit::HandshakesPerHost));
        taken.push(take(other).ok().unwrap());
        assert_eq!(take(other).err(), Some(Limit::Handshakes));
        taken.remove(0);
        taken.push(take(greedy).ok().unwrap());
        drop(taken);
        assert_eq!(places.handshakes.load(Ordering::Relaxed), 0);
        assert!(places.hosts.lock().unwrap().is_empty());
    }

    #[test]
    fn an_ipv4_host_is_the_same_on_an_ipv6_socket() {
        let places = Arc::new(Places::default());
        let [plain, mapped] = ["192.0.2.1", "::ffff:192.0.2.1"].map(|text| text.parse::<IpAddr>().unwrap());
        let _first = places.connection(plain, 1).ok().unwrap();
        assert_eq!(places.connection(mapped, 1).err(), Some(Limit::ConnectionsPerHost));
    }
}
