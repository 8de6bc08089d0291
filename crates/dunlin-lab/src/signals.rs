//! Ctrl-C and `kill` as a descriptor that can be waited for.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::Error;

/// Becomes readable when SIGINT or SIGTERM asks the process to end.
#[derive(Debug)]
pub struct Ending(SignalFd);

impl Ending {
    /// Blocks the two signals, so that they make this value readable instead of ending the process. Call it
    /// before the process starts another thread: threads inherit the blocked signals.
    ///
    /// # Errors
    /// The kernel has no descriptor left.
    pub fn watch() -> Result<Self, Error> {
        let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
        let fd = signals.thread_block().and_then(|()| SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC));
        fd.map(Self).map_err(|errno| Error::new("signals", errno.desc(), "free some resources"))
    }
}

impl AsFd for Ending {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
