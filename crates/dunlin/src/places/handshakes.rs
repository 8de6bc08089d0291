//! Handshakes in progress, whose clients have proven nothing but their address.

use alloc::collections::{BTreeMap, BTreeSet};
use core::cmp::Reverse;

use super::Host;

/// A limit on handshakes in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeLimit {
    /// The most handshakes of all hosts.
    All,
    /// The most handshakes of one host.
    PerHost,
}

/// A network with more than this part of all handshakes gives way before the others. A smaller part would
/// make honest clients behind one address the first victims of a flood that has one handshake at each of many
/// addresses; a larger one would leave more places to a single site.
const SHARE: usize = 16;

/// No network with as few handshakes gives way before the others, however few there are in all.
const MIN_SHARE: usize = 2;

/// The handshakes in progress of a server, by numbers that grow with time.
///
/// If there are too many, the oldest of all gives way, unless a network of 48 bits has more than a sixteenth
/// of them, and more than two. Then one of the network with the most gives way, there one of the host with
/// the most, and there the oldest. (An IPv4 address is a network of its own.) So a flood displaces its own
/// handshakes, from however many addresses of one site it comes; and a flood from many sites does not
/// displace the handshakes of a site with a few clients before their turn. Of several networks or hosts with
/// as many, the one with the oldest handshake counts.
#[derive(Debug, Default)]
pub struct Handshakes {
    /// The numbers of all handshakes, the oldest first.
    all: BTreeSet<u64>,
    networks: Groups<u64>,
    hosts: Groups<Host>,
}

impl Handshakes {
    /// No handshake is in progress.
    pub const fn new() -> Self {
        Self { all: BTreeSet::new(), networks: Groups::new(), hosts: Groups::new() }
    }

    /// The number of handshakes.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there is no handshake.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The number of handshakes with a host.
    pub fn of_host(&self, host: Host) -> usize {
        self.hosts.counts.get(&host).map_or(0, |count| *count as usize)
    }

    /// The oldest handshake with a host.
    pub fn oldest_of(&self, host: Host) -> Option<u64> {
        self.hosts.oldest(host)
    }

    /// The handshake that gives way next.
    pub fn gives_way(&self) -> Option<u64> {
        let (network, count) = self.networks.largest(0)?;
        if count as usize <= MIN_SHARE.max(self.len() / SHARE) {
            return self.all.first().copied();
        }
        self.oldest_of(self.hosts.largest(network)?.0)
    }

    /// Counts a handshake that has begun. Its number is greater than all earlier ones.
    pub fn begin(&mut self, host: Host, number: u64) {
        self.all.insert(number);
        self.networks.change(0, host.network(), |members, network| members.insert((network, number)));
        self.hosts.change(host.network(), host, |members, host| members.insert((host, number)));
    }

    /// A handshake has ended. Returns whether it was counted.
    pub fn end(&mut self, host: Host, number: u64) -> bool {
        self.networks.change(0, host.network(), |members, network| members.remove(&(network, number)));
        let is_counted =
            self.hosts.change(host.network(), host, |members, host| members.remove(&(host, number)));
        is_counted && self.all.remove(&number)
    }
}

/// Handshakes by group. Each group belongs to a larger one.
#[derive(Debug)]
struct Groups<K> {
    /// The handshakes of each group, the oldest first.
    members: BTreeSet<(K, u64)>,
    counts: BTreeMap<K, u32>,
    /// The groups of a larger one by their size. Of those with the same size, the one with the oldest
    /// handshake comes last.
    ranks: BTreeMap<Rank, K>,
}

/// The number of the larger group, the size, and the oldest handshake.
type Rank = (u64, u32, Reverse<u64>);

impl<K> Groups<K> {
    const fn new() -> Self {
        Self { members: BTreeSet::new(), counts: BTreeMap::new(), ranks: BTreeMap::new() }
    }
}

impl<K> Default for Groups<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Copy + Ord> Groups<K> {
    fn oldest(&self, key: K) -> Option<u64> {
        self.members.range((key, 0)..=(key, u64::MAX)).next().map(|(_, number)| *number)
    }

    fn rank(&self, outer: u64, key: K) -> Option<Rank> {
        Some((outer, *self.counts.get(&key)?, Reverse(self.oldest(key)?)))
    }

    /// The group with the most handshakes in this larger one, and their number.
    fn largest(&self, outer: u64) -> Option<(K, u32)> {
        let mut ranks = self.ranks.range((outer, 0, Reverse(u64::MAX))..=(outer, u32::MAX, Reverse(0)));
        ranks.next_back().map(|((_, count, _), key)| (*key, *count))
    }

    /// Adds a handshake to a group or removes it. Returns whether that has changed anything.
    fn change(
        &mut self,
        outer: u64,
        key: K,
        change: impl FnOnce(&mut BTreeSet<(K, u64)>, K) -> bool,
    ) -> bool {
        let before = self.members.len();
        let rank = self.rank(outer, key);
        if !change(&mut self.members, key) {
            return false;
        }
        if let Some(rank) = rank {
            self.ranks.remove(&rank);
        }
        let count = self.counts.entry(key).or_default();
        *count = if self.members.len() > before { count.saturating_add(1) } else { count.saturating_sub(1) };
        if *count == 0 {
            self.counts.remove(&key);
        }
        if let Some(rank) = self.rank(outer, key) {
            self.ranks.insert(rank, key);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::vec::Vec;

    fn host(address: &str) -> Host {
        Host::of(address.parse().unwrap())
    }

    /// Handshakes with these addresses, the oldest first, and their hosts.
    fn begun(addresses: &[&str]) -> (Handshakes, Vec<Host>) {
        let mut handshakes = Handshakes::new();
        let hosts: Vec<_> = addresses.iter().map(|address| host(address)).collect();
        hosts.iter().zip(0..).for_each(|(host, number)| handshakes.begin(*host, number));
        (handshakes, hosts)
    }

    /// The numbers in the order in which handshakes give way.
    fn order(handshakes: &mut Handshakes, hosts: &[Host]) -> Vec<u64> {
        core::iter::from_fn(|| {
            let number = handshakes.gives_way()?;
            assert!(handshakes.end(hosts[number as usize], number));
            Some(number)
        })
        .collect()
    }

    #[test]
    fn the_largest_network_gives_way_then_its_largest_host_then_the_oldest() {
        let (mut handshakes, hosts) = begun(&[
            "192.0.2.2",        // 0: the oldest of all
            "192.0.2.1",        // 1
            "2001:db8::1",      // 2
            "2001:db8:0:1::1",  // 3
            "2001:db8:0:1::2",  // 4: the same host as 3
            "2001:db8:0:2::1",  // 5: another host of the same network
            "2001:db8:1::1",    // 6: another network
            "::ffff:192.0.2.1", // 7: the same host as 1
            "192.0.2.1",        // 8
        ]);
        assert_eq!((handshakes.len(), handshakes.of_host(hosts[3]), handshakes.of_host(hosts[2])), (9, 2, 1));
        // Once no network has more than two, the oldest gives way.
        assert_eq!(order(&mut handshakes, &hosts), [3, 1, 2, 0, 4, 5, 6, 7, 8]);
        assert!(handshakes.is_empty() && handshakes.gives_way().is_none());
    }

    /// A network that has a sixteenth of all handshakes keeps them as long as the others keep theirs; with
    /// one more, it loses its oldest.
    #[test]
    fn a_network_gives_way_before_others_only_beyond_a_sixteenth() {
        let many = host("192.0.2.1");
        let mut handshakes = Handshakes::new();
        for number in 0..160 {
            let other = host(&format!("2001:db8:{number:x}::1"));
            handshakes.begin(if (100..110).contains(&number) { many } else { other }, number);
        }
        assert_eq!(handshakes.gives_way(), Some(0));
        handshakes.begin(many, 160);
        assert_eq!(handshakes.gives_way(), Some(100));
    }

    /// A flood from many networks, each with one handshake, does not single out a network with a few.
    #[test]
    fn a_flood_from_many_networks_displaces_others_only_in_their_turn() {
        const MOST: u64 = 100;
        let mut handshakes = Handshakes::new();
        let honest = [50, 51, 52];
        let host = |number| {
            if honest.contains(&number) {
                host("192.0.2.1")
            } else {
                host(&format!("2001:db8:{number:x}::1"))
            }
        };
        (0..MOST).for_each(|number| handshakes.begin(host(number), number));
        for number in MOST..10 * MOST {
            let oldest = number - MOST;
            assert_eq!(handshakes.gives_way(), Some(oldest));
            assert!(handshakes.end(host(oldest), oldest));
            handshakes.begin(host(number), number);
        }
    }

    #[test]
    fn a_flood_from_one_site_displaces_only_itself() {
        const MOST: usize = 100;
        let mut handshakes = Handshakes::new();
        let honest = [host("2001:db8:1::1"), host("192.0.2.1"), host("2001:db8:0:ff::1")];
        honest.iter().zip(0..).for_each(|(host, number)| handshakes.begin(*host, number));
        let mut flood = BTreeMap::new();
        for number in 3..10_000 {
            // A network of 60 bits in the one of 48 bits in which the last of the others is, too.
            let host = host(&format!("2001:db8:0:{:x}::1", number % 16));
            if handshakes.len() >= MOST {
                let gone = handshakes.gives_way().unwrap();
                assert!(handshakes.end(flood.remove(&gone).unwrap(), gone));
            }
            handshakes.begin(host, number);
            flood.insert(number, host);
        }
        honest.iter().for_each(|host| assert_eq!(handshakes.of_host(*host), 1));
    }

    #[test]
    fn names_the_oldest_handshake_of_a_host() {
        let (mut handshakes, hosts) = begun(&["192.0.2.2", "192.0.2.1", "192.0.2.1"]);
        assert_eq!(handshakes.oldest_of(hosts[1]), Some(1));
        assert!(handshakes.end(hosts[1], 1) && !handshakes.end(hosts[1], 1));
        assert_eq!((handshakes.oldest_of(hosts[1]), handshakes.of_host(hosts[1])), (Some(2), 1));
        assert!(handshakes.end(hosts[1], 2) && handshakes.oldest_of(hosts[1]).is_none());
    }

    /// Random histories, compared with a search among all handshakes.
    #[test]
    fn random_histories_name_the_same_handshake_as_a_search() {
        let mut state = 1_u64;
        let mut random = move |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        let (mut handshakes, mut all) = (Handshakes::new(), BTreeMap::<u64, Host>::new());
        for number in 0..1_000 {
            let gone = all.keys().copied().nth(random(40) as usize).filter(|_| random(2) == 0);
            if let Some(gone) = gone {
                assert!(handshakes.end(all.remove(&gone).unwrap(), gone));
            } else {
                let host = host(&format!("2001:db8:{:x}:{}::1", random(24), random(3)));
                handshakes.begin(host, number);
                all.insert(number, host);
            }
            let of = |is_same: &dyn Fn(&Host) -> bool| all.values().filter(|host| is_same(host)).count();
            let key = |(number, host): &(&u64, &Host)| {
                let network = of(&|other| other.network() == host.network());
                let oldest = |is_same: &dyn Fn(&Host) -> bool| {
                    all.iter().find(|(_, host)| is_same(host)).map(|(number, _)| Reverse(*number))
                };
                let oldest_of_network = oldest(&|other| other.network() == host.network());
                let oldest_of_host = oldest(&|other| *other == **host);
                (network, oldest_of_network, of(&|other| *other == **host), oldest_of_host, Reverse(**number))
            };
            let largest = all.iter().max_by_key(key).filter(|of| key(of).0 > 2.max(all.len() / 16));
            let expected = largest.or(all.iter().next()).map(|(number, _)| *number);
            assert_eq!(handshakes.gives_way(), expected);
        }
        let Handshakes { networks, hosts, .. } = &mut handshakes;
        all.iter().for_each(|(number, host)| {
            networks.change(0, host.network(), |members, key| members.remove(&(key, *number)));
            hosts.change(host.network(), *host, |members, key| members.remove(&(key, *number)));
        });
        assert!(networks.counts.is_empty() && networks.ranks.is_empty() && networks.members.is_empty());
        assert!(hosts.counts.is_empty() && hosts.ranks.is_empty() && hosts.members.is_empty());
    }
}
