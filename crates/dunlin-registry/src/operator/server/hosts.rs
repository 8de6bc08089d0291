//! The operations of each host, against its limits.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use dunlin::places::Host;
use hashlink::LruCache;

use super::Limits;

/// The most hosts and sites whose operations the server counts. It forgets the one that has been silent for
/// longest.
const MAX_HOSTS: usize = 16 * 1024;

/// How many hosts an IPv6 network of 48 bits counts as, which is what a site gets (RFC 6177 §2). It has
/// 65,536 networks of 64 bits.
pub(super) const SITE_HOSTS: u32 = 4;

/// Hosts that have a limit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Group {
    Host(Host),
    Site(u64),
}

impl Group {
    /// The host with this address, and its site if it has one; each with the number of hosts that it counts
    /// as.
    fn of(from: IpAddr) -> impl Iterator<Item = (Self, u32)> {
        let host = Host::of(from);
        [(Self::Host(host), 1)].into_iter().chain(host.site().map(|site| (Self::Site(site), SITE_HOSTS)))
    }
}

/// The hosts of a server.
pub(super) struct Hosts {
    limits: Limits,
    /// When each group will have its whole allowance of operations again.
    writes: Mutex<LruCache<Group, Instant>>,
    /// When all hosts together will have their whole allowance again.
    appended: Mutex<Option<Instant>>,
}

/// The time that one operation takes of an allowance of `per_minute` operations.
fn share(per_minute: u32) -> Duration {
    Duration::from_secs(60) / per_minute.max(1)
}

/// When an allowance will be whole again if one more operation is counted, and how long that operation must
/// wait.
fn counted(whole: Option<Instant>, now: Instant, per_minute: u32, burst: u32) -> (Instant, Duration) {
    // An allowance that is whole waits for nothing.
    let whole = whole.map_or(now, |whole| whole.max(now)) + share(per_minute);
    (whole, (whole - now).saturating_sub(share(per_minute).saturating_mul(burst)))
}

impl Hosts {
    pub(super) fn new(limits: Limits) -> Self {
        let writes = Mutex::new(LruCache::new(MAX_HOSTS));
        Self { limits, writes, appended: Mutex::default() }
    }

    pub(super) const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Counts an operation of this host, whatever becomes of it, and says how long it must wait if that is
    /// one too many of the host or its site.
    pub(super) fn write(&self, from: IpAddr, now: Instant) -> Result<(), Duration> {
        let Limits { writes_per_minute, write_burst, .. } = &self.limits;
        let mut writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut groups = Vec::new();
        let mut longest = Duration::ZERO;
        for (group, hosts) in Group::of(from) {
            let per_minute = writes_per_minute.saturating_mul(hosts);
            let burst = write_burst.saturating_mul(hosts);
            let (whole, wait) = counted(writes.get(&group).copied(), now, per_minute, burst);
            longest = longest.max(wait);
            groups.push((group, whole));
        }
        if longest > Duration::ZERO {
            return Err(longest);
        }
        for (group, whole) in groups {
            writes.insert(group, whole);
        }
        Ok(())
    }

    /// Counts an operation that shall be appended, and says how long it must wait if that is one too many of
    /// all hosts together.
    pub(super) fn append(&self, now: Instant) -> Result<(), Duration> {
        let per_minute = self.limits.all_writes_per_minute;
        let mut appended = self.appended.lock().unwrap_or_else(PoisonError::into_inner);
        let (whole, wait) = counted(*appended, now, per_minute, per_minute);
        if wait > Duration::ZERO {
            return Err(wait);
        }
        *appended = Some(whole);
        Ok(())
    }

    /// Takes back the count of [`Self::append`], since the operation was refused. Otherwise an attacker that
    /// sends invalid operations from many hosts would keep all other clients out.
    pub(super) fn refused(&self) {
        let mut appended = self.appended.lock().unwrap_or_else(PoisonError::into_inner);
        *appended = appended.and_then(|whole| whole.checked_sub(share(self.limits.all_writes_per_minute)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_submits_a_burst_and_then_at_its_rate() {
        let hosts = Hosts::new(Limits { writes_per_minute: 30, write_burst: 3, ..Limits::default() });
        let [one, two] = ["192.0.2.1", "192.0.2.2"].map(|address| address.parse().unwrap());
        let begin = Instant::now();
        let second = Duration::from_secs(1);
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
    fn a_site_counts_as_few_hosts() {
        let hosts = Hosts::new(Limits { writes_per_minute: 30, write_burst: 3, ..Limits::default() });
        let host = |network: u16| IpAddr::from([0x2001, 0xdb8, 0, network, 0, 0, 0, 1]);
        let now = Instant::now();
        for network in 0..4 {
            assert_eq!([(); 4].map(|()| hosts.write(host(network), now).is_ok()), [true, true, true, false]);
        }
        // Four times the rate of a host.
        assert_eq!(hosts.write(host(4), now), Err(Duration::from_millis(500)));
        let elsewhere = IpAddr::from([0x2001, 0xdb8, 1, 0, 0, 0, 0, 1]);
        assert_eq!(hosts.write(elsewhere, now), Ok(()));
    }

    #[test]
    fn all_hosts_have_a_limit_together() {
        let hosts = Hosts::new(Limits { all_writes_per_minute: 10, ..Limits::default() });
        let now = Instant::now();
        let six = Duration::from_secs(6);
        for _ in 0..10 {
            assert_eq!(hosts.append(now), Ok(()));
        }
        assert_eq!(hosts.append(now), Err(six));
        // An operation that was refused makes room for another one.
        hosts.refused();
        assert_eq!([hosts.append(now), hosts.append(now)], [Ok(()), Err(six)]);
        assert_eq!([hosts.append(now + six), hosts.append(now + six)], [Ok(()), Err(six)]);
    }

    #[test]
    fn the_longest_silent_host_is_forgotten_first() {
        let hosts = Hosts::new(Limits { writes_per_minute: 1, write_burst: 1, ..Limits::default() });
        let now = Instant::now();
        let first = IpAddr::from([10, 0, 0, 0]);
        assert!(hosts.write(first, now).is_ok() && hosts.write(first, now).is_err());
        for number in 1..=u32::try_from(MAX_HOSTS).unwrap() {
            let [_, a, b, c] = number.to_be_bytes();
            assert!(hosts.write(IpAddr::from([10, a, b, c]), now).is_ok());
        }
        assert!(hosts.write(first, now).is_ok());
    }
}
