//! Ctrl-C and `kill` as something to wait for.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::Error;

/// Readable as soon as the process was asked to end by SIGINT or SIGTERM.
#[derive(Debug)]
pub struct Ending(SignalFd);

impl Ending {
    /// Blocks the two signals, so that they make this value readable instead of ending the process. Call it before the process
    /// starts another thread: threads inherit the blocked signals.
    ///
    /// # Errors
    /// If the kernel has no descriptor to spare.
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
