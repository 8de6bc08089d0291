//! The gateway's memory of the clients of a policy.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;

use crate::policy::{AddressTable, Blacklist, Blocked, HandshakeTable, NftMirror, NftSets, Offence, Policy};
use crate::redirected::Redirects;

/// The number of addresses that are remembered for each policy, some 500 bytes each.
const MAX_ADDRESSES: usize = 65_536;

/// The number of connections whose handshakes are remembered for each policy.
const MAX_HANDSHAKES: usize = 65_536;

/// How long the handshakes of a connection are remembered, in seconds. They are forgotten earlier when the
/// connection ends.
const HANDSHAKES_LIFETIME_S: u64 = 24 * 3600;

/// A gateway's memory of the clients of a policy. It outlives reloads.
pub(crate) struct Memory {
    pub(crate) addresses: AddressTable,
    pub(crate) handshakes: HandshakeTable,
    pub(crate) redirects: Redirects,
    blacklist: ArcSwapOption<Blacklist>,
    /// The blacklist in nftables.
    pub(crate) kernel: NftMirror,
    /// Whether a task will bring it to the present blacklist.
    pub(crate) is_kernel_due: AtomicBool,
    /// The policy in force. Also the lock of a change.
    policy: Mutex<Option<Arc<Policy>>>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            addresses: AddressTable::new(MAX_ADDRESSES),
            handshakes: HandshakeTable::new(MAX_HANDSHAKES, HANDSHAKES_LIFETIME_S),
            redirects: Redirects::default(),
            blacklist: ArcSwapOption::empty(),
            kernel: NftMirror::default(),
            is_kernel_due: AtomicBool::new(false),
            policy: Mutex::default(),
        }
    }
}

impl Memory {
    /// The longest time for which a profile of the policy remembers an address.
    pub(crate) fn max_address_lifetime_s(&self) -> u64 {
        let policy = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        let profiles = policy.iter().flat_map(|policy| policy.profiles());
        profiles.map(|profile| profile.address_lifetime_s.into()).max().unwrap_or(0)
    }

    /// Replaces the blacklist if its limits change.
    fn replace_blacklist(&self, policy: &Policy) {
        let limits = policy.blacklist().map(|settings| &settings.limits);
        let next = match (self.blacklist.load_full(), limits) {
            (Some(current), Some(limits)) if current.limits() == limits => return,
            (Some(current), Some(limits)) => Some(Arc::new(current.with_limits(limits.clone()))),
            (None, limits) => limits.map(|limits| Arc::new(Blacklist::new(limits.clone()))),
            (Some(_), None) => None,
        };
        self.blacklist.store(next);
    }

    /// Puts a policy in force, unless its file `is_retired`. The blacklist keeps the networks that its limits
    /// still block. Returns the previous policy, if there was one.
    pub(crate) fn adopt(&self, policy: &Arc<Policy>, is_retired: &AtomicBool) -> Option<Adopted> {
        let mut in_force = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        if is_retired.load(Ordering::Relaxed) {
            return None;
        }
        self.replace_blacklist(policy);
        Some(Adopted { previous: in_force.replace(policy.clone()) })
    }

    pub(crate) fn blacklist(&self) -> Option<Arc<Blacklist>> {
        self.blacklist.load_full()
    }

    /// The network of this address, if it is on the blacklist.
    pub(crate) fn blocked(&self, address: IpAddr, now_s: u64) -> Option<Blocked> {
        self.blacklist.load().as_ref()?.blocked(address, now_s)
    }

    /// Counts an offence of a client. Returns its network if the blacklist has it since then.
    pub(crate) fn report(&self, address: IpAddr, offence: Offence, now_s: u64) -> Option<Blocked> {
        self.blacklist.load().as_ref()?.report(address, offence, now_s)
    }

    /// The sets of nftables for the blacklist, and the networks that they should have.
    pub(crate) fn for_kernel(&self, now_s: u64) -> (Option<NftSets>, Vec<Blocked>) {
        let policy = self.policy.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let settings = policy.as_ref().and_then(|policy| policy.blacklist());
        let sets = settings.and_then(|settings| settings.kernel.clone());
        let list = if sets.is_some() { self.blacklist() } else { None };
        (sets, list.map_or(vec![], |list| list.first(usize::MAX, now_s).1))
    }
}

/// A policy has come into force.
pub(crate) struct Adopted {
    pub(crate) previous: Option<Arc<Policy>>,
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::config::Join;
    use crate::policy::{Client, parse};
    use crate::redirected::Pending;

    const POLICY: &str = "[profile.low]\nrank = 20\nclient = \"certificate\"\naddress_lifetime = \"48h\"\n\
                          [blacklist]\nfailed = 3\nforeign = 0\nwindow = \"60s\"\nblocked = \"24h\"\n";

    /// Ten years in virtual time: 24 devices that wake once a day, a host that comes back with false
    /// identities whenever it is free again, and redirected clients that come too late.
    #[test]
    fn ten_years_leave_nothing_behind() {
        const HOUR_S: u64 = 3600;
        let policy = Arc::new(parse("policy.toml", POLICY).unwrap_or_else(|faults| panic!("{faults}")));
        let memory = Memory::default();
        memory.adopt(&policy, &AtomicBool::new(false)).unwrap();
        let client = Client::of_kind("x509");
        let low = policy.profile("low").unwrap();
        let join = Join::Name("example.com".into());
        let stranger = IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]);
        let mut blocks = 0;
        let hours = 10 * 365 * 24;
        for hour in 0..hours {
            let now_s = hour * HOUR_S;
            let home = IpAddr::from([10, 0, 0, (hour % 24) as u8]);
            assert_eq!(memory.blocked(home, now_s), None);
            assert_eq!(memory.addresses.claim(home, now_s).is_some(), hour >= 24);
            let peer = SocketAddr::new(home, 4000);
            memory.handshakes.begin(peer, now_s);
            memory.addresses.remember(home, &client, low, now_s);
            memory.handshakes.ended(peer);
            // A device may fail once in a while.
            assert_eq!(memory.report(home, Offence::Failed, now_s), None);
            let come = |hour: u64, now_s| {
                let name = format!("{hour}.example.com");
                memory.redirects.find(&join, "web", Some(&name), None, home, now_s)
            };
            let pending = Pending { client: client.clone(), from: home, until_s: now_s + 60 };
            memory.redirects.expect(hour.to_string(), pending);
            let late = hour % 2 * 60;
            assert_eq!(come(hour, now_s + late).is_some(), late == 0);
            if memory.blocked(stranger, now_s).is_none() {
                let offences = (now_s..now_s + 3).map(|at_s| memory.report(stranger, Offence::Failed, at_s));
                blocks += offences.flatten().count() as u64;
            }
        }
        // It is free again after a day and two seconds, which it notices an hour later.
        assert_eq!(blocks, hours.div_ceil(25));
        assert_eq!(memory.addresses.len(), 24);
        let end_s = (hours + 48) * HOUR_S;
        assert_eq!(memory.handshakes.latest(1, end_s).0, 0);
        assert_eq!(memory.blacklist().unwrap().first(1, end_s).0, 0);
    }
}
