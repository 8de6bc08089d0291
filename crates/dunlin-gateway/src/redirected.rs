//! Clients that were redirected from plain HTTP and have not come yet.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};

use dunlin::places::Host;
use hashlink::LinkedHashMap;

use crate::config::Join;
use crate::policy::Client;

/// How many redirected clients have not come yet, for each policy.
const MAX_PENDING: usize = 16_384;

/// How many of these may have come from one host, so that a few hosts cannot take all names or ports.
const MAX_PENDING_PER_HOST: usize = 4;

/// The clients that were redirected and have not come yet.
#[derive(Default)]
pub(crate) struct Redirects {
    /// By their one-time names.
    names: Mutex<Waiting<String>>,
    /// By listener and port.
    ports: Mutex<Waiting<(String, u16)>>,
}

/// A client that was redirected.
pub(crate) struct Pending {
    pub(crate) client: Client,
    /// The address of the request.
    pub(crate) from: IpAddr,
    pub(crate) until_s: u64,
}

/// Clients that wait for a connection. The oldest makes room; a host with [`MAX_PENDING_PER_HOST`] loses its
/// own oldest one.
struct Waiting<K> {
    clients: LinkedHashMap<K, Pending>,
    /// The keys of each host, the oldest first.
    of_hosts: HashMap<Host, VecDeque<K>>,
}

impl<K> Default for Waiting<K> {
    fn default() -> Self {
        Self { clients: LinkedHashMap::new(), of_hosts: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash> Waiting<K> {
    /// Makes room for another client of the host with this address.
    fn make_room(&mut self, from: IpAddr) {
        while let Some(keys) =
            self.of_hosts.get(&Host::of(from)).filter(|keys| keys.len() >= MAX_PENDING_PER_HOST)
        {
            let Some(oldest) = keys.front().cloned() else { return };
            self.remove(&oldest);
        }
        while self.clients.len() >= MAX_PENDING {
            let Some(oldest) = self.clients.front().map(|(key, _)| key.clone()) else { return };
            self.remove(&oldest);
        }
    }

    fn insert(&mut self, key: K, client: Pending) {
        self.remove(&key);
        self.make_room(client.from);
        self.of_hosts.entry(Host::of(client.from)).or_default().push_back(key.clone());
        self.clients.insert(key, client);
    }

    fn remove(&mut self, key: &K) -> Option<Pending> {
        let client = self.clients.remove(key)?;
        if let Entry::Occupied(mut keys) = self.of_hosts.entry(Host::of(client.from)) {
            keys.get_mut().retain(|other| other != key);
            if keys.get().is_empty() {
                keys.remove();
            }
        }
        Some(client)
    }
}

impl Redirects {
    /// Expects this client under `name`.
    pub(crate) fn expect(&self, name: String, client: Pending) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).insert(name, client);
    }

    /// The client that was redirected to this name. A name works once.
    fn take(&self, name: &String, now_s: u64) -> Option<Client> {
        let mut pending = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        pending.remove(name).filter(|pending| pending.until_s > now_s).map(|pending| pending.client)
    }

    /// Expects this client at one of these ports, if one is free.
    pub(crate) fn expect_at(
        &self,
        listener: &str,
        mut ports: RangeInclusive<u16>,
        client: Pending,
        now_s: u64,
    ) -> Option<u16> {
        let mut pending = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        pending.make_room(client.from);
        let key = |port| (listener.to_owned(), port);
        let is_free =
            |port: &u16| pending.clients.get(&key(*port)).is_none_or(|other| other.until_s <= now_s);
        let port = ports.find(is_free)?;
        pending.insert(key(port), client);
        Some(port)
    }

    /// The client that was redirected to this port and comes from the same address. It counts once.
    fn take_at(&self, listener: &str, port: u16, from: IpAddr, now_s: u64) -> Option<Client> {
        let mut pending = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (listener.to_owned(), port);
        // The pool's socket may be for IPv4, and the request's socket for both.
        if pending.clients.get(&key)?.from.to_canonical() != from.to_canonical() {
            return None;
        }
        pending.remove(&key).filter(|pending| pending.until_s > now_s).map(|pending| pending.client)
    }

    /// The client that was redirected to this server name of a ClientHello at the listener, or to this port of
    /// the pool.
    pub(crate) fn find(
        &self,
        join: &Join,
        listener: &str,
        server_name: Option<&str>,
        port: Option<u16>,
        from: IpAddr,
        now_s: u64,
    ) -> Option<Client> {
        let domain = match join {
            Join::Name(domain) => domain,
            Join::Port(_) => return self.take_at(listener, port?, from, now_s),
        };
        let (label, rest) = server_name?.split_once('.')?;
        let is_below = rest.eq_ignore_ascii_case(domain);
        self.take(&label.to_ascii_lowercase(), now_s).filter(|_| is_below)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn a_name_works_once_and_for_a_while() {
        let redirects = Redirects::default();
        let (client, from) = (|| Client::of_kind("x509"), IpAddr::from([192, 0, 2, 1]));
        let pending = || Pending { client: client(), from, until_s: 100 };
        let take = |name: &str, now_s| redirects.take(&name.to_owned(), now_s);
        redirects.expect("a".into(), pending());
        redirects.expect("b".into(), pending());
        assert_eq!([take("a", 99), take("a", 99), take("b", 100)], [Some(client()), None, None]);
        for i in 0..=MAX_PENDING {
            let from = Ipv4Addr::from_bits(u32::try_from(i).unwrap()).into();
            redirects.expect(i.to_string(), Pending { from, ..pending() });
        }
        assert_eq!([take("0", 0), take("1", 0)], [None, Some(client())]);
    }

    #[test]
    fn a_host_replaces_only_what_it_waits_for_itself() {
        let redirects = Redirects::default();
        let client = || Client::of_kind("x509");
        let pending = |from: &str| Pending { client: client(), from: from.parse().unwrap(), until_s: 100 };
        redirects.expect("other".into(), pending("2001:db8:0:1::1"));
        for i in 0..=MAX_PENDING_PER_HOST {
            redirects.expect(i.to_string(), pending(&format!("2001:db8::{i}")));
        }
        let take = |name: &str| redirects.take(&name.to_owned(), 0).is_some();
        assert_eq!([take("0"), take("1"), take("4"), take("other")], [false, true, true, true]);

        let lease = |from: &str| redirects.expect_at("web", 9000..=9031, pending(from), 0);
        assert_eq!(lease("192.0.2.2"), Some(9000));
        for _ in 0..32 {
            assert!(lease("192.0.2.1").is_some());
        }
        let take = |port, from: &str| redirects.take_at("web", port, from.parse().unwrap(), 0).is_some();
        assert_eq!(lease("192.0.2.3"), Some(9005));
        assert!(take(9000, "192.0.2.2"));
        let left = (9001..=9031).filter(|port| take(*port, "192.0.2.1")).count();
        assert_eq!(left, MAX_PENDING_PER_HOST);
        assert!(redirects.ports.lock().unwrap().of_hosts.len() == 1);
    }

    #[test]
    fn a_port_waits_for_the_address_of_the_request() {
        let redirects = Redirects::default();
        let [from, other] = [1, 2].map(|last| IpAddr::from([192, 0, 2, last]));
        let client = || Client::of_kind("x509");
        let lease = |now_s| {
            let pending = Pending { client: client(), from, until_s: now_s + 10 };
            redirects.expect_at("web", 9000..=9001, pending, now_s)
        };
        assert_eq!([lease(0), lease(0), lease(0)], [Some(9000), Some(9001), None]);
        assert_eq!(redirects.take_at("web", 9000, other, 1), None);
        assert_eq!(redirects.take_at("other", 9000, from, 1), None);
        assert_eq!(redirects.take_at("web", 9000, from, 1), Some(client()));
        assert_eq!(redirects.take_at("web", 9000, from, 1), None);
        // The same host at a socket for IPv4 and IPv6.
        assert_eq!(lease(1), Some(9000));
        let mapped = "::ffff:192.0.2.1".parse().unwrap();
        assert_eq!(redirects.take_at("web", 9000, mapped, 1), Some(client()));
        // A port is free again when its client has come, or not come in time.
        assert_eq!([lease(1), lease(1)], [Some(9000), None]);
        assert_eq!(redirects.take_at("web", 9001, from, 10), None);
        assert_eq!([lease(11), lease(11), lease(11)], [Some(9000), Some(9001), None]);
    }
}
