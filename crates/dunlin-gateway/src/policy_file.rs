//! The policy of listeners: its file or database, and the sets of nftables that follow its blacklist.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::spawn_blocking;

use crate::config::{Fault, FileField};
use crate::memory::{Adopted, Memory};
use crate::policy::{Blocked, LivePolicy, Offence, Policy};

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

    /// Puts this policy of the file in force.
    pub(crate) fn adopt(&self, policy: &Arc<Policy>, now_s: u64) {
        let Some(Adopted { previous }) = self.memory.adopt(policy, &self.is_retired) else { return };
        if has_sets(policy) || previous.as_deref().is_some_and(has_sets) {
            self.tell_kernel(now_s);
        }
        let file = self.path.display().to_string();
        match previous {
            Some(previous) => {
                for change in policy.changes_since(&previous) {
                    tracing::info!(file, "policy: {change}");
                }
            }
            None => tracing::info!(file, "policy: {}", policy.summary()),
        }
    }

    /// Says that a reload has opened the file again.
    pub(crate) fn retire(&self) {
        self.is_retired.store(true, Ordering::Relaxed);
    }

    /// Counts an offence of a client. Returns its network if the blacklist has it since then.
    pub(crate) fn report(&self, address: IpAddr, offence: Offence, now_s: u64) -> Option<Blocked> {
        let blocked = self.memory.report(address, offence, now_s)?;
        if has_sets(&self.live.current()) {
            self.tell_kernel(now_s);
        }
        Some(blocked)
    }

    /// Brings the sets of nftables to the present blacklist, in the background.
    fn tell_kernel(&self, now_s: u64) {
        // The task that waits for its turn will see this change.
        if self.memory.is_kernel_due.swap(true, Ordering::AcqRel) {
            return;
        }
        let memory = self.memory.clone();
        spawn_blocking(move || {
            let present = || {
                memory.is_kernel_due.swap(false, Ordering::AcqRel);
                memory.for_kernel(now_s)
            };
            if let Err(error) = memory.kernel.update(present, now_s) {
                tracing::error!(%error, "the kernel does not block what the blacklist blocks; correct its sets, or remove other networks with nft");
            }
        });
    }
}

/// Whether sets of nftables follow the blacklist.
fn has_sets(policy: &Policy) -> bool {
    policy.blacklist().is_some_and(|settings| settings.kernel.is_some())
}
