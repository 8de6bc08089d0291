//! The policy of listeners, and the gateway's memory of its clients.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use tokio::task::spawn_blocking;

use crate::clock::now_s;
use crate::config::{Fault, FileField};
use crate::policy::{
    AddressTable, Blacklist, Blocked, HandshakeTable, LivePolicy, NftMirror, Offence, Policy,
};
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
    kernel: NftMirror,
    /// Whether a task will bring it to the present blacklist.
    is_kernel_due: AtomicBool,
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

    /// Brings the sets of nftables to the present blacklist, in the background.
    fn tell_kernel(self: &Arc<Self>) {
        // The task that waits for its turn will see this change.
        if self.is_kernel_due.swap(true, Ordering::AcqRel) {
            return;
        }
        let memory = self.clone();
        spawn_blocking(move || {
            let now_s = now_s();
            let present = || {
                memory.is_kernel_due.swap(false, Ordering::AcqRel);
                let policy = memory.policy.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let settings = policy.as_ref().and_then(|policy| policy.blacklist());
                let sets = settings.and_then(|settings| settings.kernel.clone());
                let list = memory.blacklist.load_full().filter(|_| sets.is_some());
                (sets, list.map_or(vec![], |list| list.first(usize::MAX, now_s).1))
            };
            if let Err(error) = memory.kernel.update(present, now_s) {
                tracing::error!(%error, "the kernel does not block what the blacklist blocks; correct its sets, or remove other networks with nft");
            }
        });
    }

    /// Puts a policy in force. The blacklist keeps the networks that its limits still block.
    fn adopt(self: &Arc<Self>, file: &PolicyFile, policy: &Arc<Policy>) {
        let mut in_force = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        if file.is_retired.load(Ordering::Relaxed) {
            return;
        }
        self.replace_blacklist(policy);
        let file = file.path.display().to_string();
        let previous = in_force.replace(policy.clone());
        let has_sets = |policy: &Policy| policy.blacklist().is_some_and(|settings| settings.kernel.is_some());
        if has_sets(policy) || previous.as_deref().is_some_and(has_sets) {
            self.tell_kernel();
        }
        match previous {
            Some(previous) => {
                for change in policy.changes_since(&previous) {
                    tracing::info!(file, "policy: {change}");
                }
            }
            None => tracing::info!(file, "policy: {}", policy.summary()),
        }
    }
}

/// The file or database of a policy. Listeners with the same policy share it.
pub(crate) struct PolicyFile {
    path: PathBuf,
    live: LivePolicy,
    memory: Arc<Memory>,
    /// Whether a reload has opened the file again.
    is_retired: AtomicBool,
}

impl PolicyFile {
    /// Reads the policy that this key of a listener names. `memory` returns the memory of its clients.
    ///
    /// # Errors
    /// All faults of the policy.
    pub(crate) fn open(
        file: &FileField,
        memory: impl FnOnce(&Path) -> Arc<Memory>,
    ) -> Result<Self, Vec<Fault>> {
        let path = &file.value;
        if let Err(error) = std::fs::metadata(path) {
            let what = format!("{}: {error}", path.display());
            return Err(vec![file.place.fault(what, "name a policy, as docs/policy.md describes it")]);
        }
        let live = LivePolicy::open(path).map_err(|faults| faults.iter().cloned().collect::<Vec<_>>())?;
        Ok(Self { path: path.clone(), live, memory: memory(path), is_retired: AtomicBool::new(false) })
    }

    /// The policy in force.
    pub(crate) fn current(&self) -> Arc<Policy> {
        self.live.current()
    }

    /// The path of the policy. Listeners with equal paths share the memory of clients.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) const fn live(&self) -> &LivePolicy {
        &self.live
    }

    pub(crate) const fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    pub(crate) fn blacklist(&self) -> Option<Arc<Blacklist>> {
        self.memory.blacklist.load_full()
    }

    /// Puts this policy of the file in force.
    pub(crate) fn adopt(&self, policy: &Arc<Policy>) {
        self.memory.adopt(self, policy);
    }

    /// Says that a reload has opened the file again.
    pub(crate) fn retire(&self) {
        self.is_retired.store(true, Ordering::Relaxed);
    }

    /// The network of this address, if it is on the blacklist.
    pub(crate) fn blocked(&self, address: IpAddr) -> Option<Blocked> {
        self.memory.blacklist.load().as_ref()?.blocked(address, now_s())
    }

    /// Counts an offence of a client. Returns its network if the blacklist has it since then.
    pub(crate) fn report(&self, address: IpAddr, offence: Offence) -> Option<Blocked> {
        let blocked = self.memory.blacklist.load().as_ref()?.report(address, offence, now_s())?;
        if self.live.current().blacklist().is_some_and(|settings| settings.kernel.is_some()) {
            self.memory.tell_kernel();
        }
        Some(blocked)
    }
}
