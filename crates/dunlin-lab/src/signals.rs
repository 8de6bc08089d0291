//! Ctrl-C and `kill` as something to wait for.

use std::os::fd::{AsFd, BorrowedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

use crate::Error;

/// Readable as soon as the process was asked to end by SIGINT or SIGTERM.
#[derive(Debug)]
pub struct Ending(SignalFd);

impl Ending {
    /// From here on, the two signals wait to be noticed and no longer end the process. To be called before any other
    /// thread is started, for those take over what this one blocks.
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
