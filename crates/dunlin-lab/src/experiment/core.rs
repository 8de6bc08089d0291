//! Processor cores.

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::Error;
use crate::net::on_own_thread;

/// A core that this process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Core(usize);

impl Core {
    /// The cores that a process may use; 0 is the calling thread. There is at least one.
    pub(super) fn all(process: u32) -> Result<Vec<Self>, Error> {
        let allowed = sched_getaffinity(pid(process)).map_err(|errno| Error::refused("cores", errno))?;
        Ok((0..CpuSet::count()).filter(|core| allowed.is_set(*core) == Ok(true)).map(Self).collect())
    }

    /// Moves a process to this core; 0 is the calling thread. Its new threads and processes follow.
    pub(super) fn take(self, process: u32) -> Result<(), Error> {
        let mut set = CpuSet::new();
        let moved = set.set(self.0).and_then(|()| sched_setaffinity(pid(process), &set));
        moved.map_err(|errno| Error::refused(format_args!("core {}", self.0), errno))
    }

    /// Runs `work` on a thread on this core.
    pub(super) fn run<T: Send>(self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        on_own_thread(|| {
            self.take(0)?;
            Ok(work())
        })
    }
}

fn pid(process: u32) -> Pid {
    Pid::from_raw(process as i32)
}
