//! Processor cores: the servers have one, the load generator another.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::Error;
use crate::net::on_own_thread;

/// A core that this process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Core(usize);

impl Core {
    /// The first two cores: for the load generator, and for the servers. With one core alone both are the
    /// same.
    ///
    /// # Errors
    /// The kernel does not name the cores.
    pub(super) fn pair() -> Result<[Self; 2], Error> {
        let allowed = sched_getaffinity(Pid::from_raw(0)).map_err(|errno| Error::refused("cores", errno))?;
        let mut cores = (0..CpuSet::count()).filter(|core| allowed.is_set(*core).unwrap_or_default());
        let first = cores.next().unwrap_or_default();
        Ok([first, cores.next().unwrap_or(first)].map(Self))
    }

    /// Moves the calling thread to this core. Its new threads and processes follow.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub(super) fn take(self) -> Result<(), Error> {
        let mut set = CpuSet::new();
        let moved = set.set(self.0).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set));
        moved.map_err(|errno| Error::refused(format_args!("core {}", self.0), errno))
    }

    /// Runs `work` on a thread on this core.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub(super) fn run<T: Send>(self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        on_own_thread(|| {
            self.take()?;
            Ok(work())
        })
    }
}
