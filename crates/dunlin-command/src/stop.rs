//! Signals: Ctrl-C and SIGTERM end a running command; SIGHUP makes a server read its files again. And the limit
//! on open files of a command that serves.

use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::Error;

/// How long a stopping command waits for its peers to receive close_notify.
pub const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// The signals that stop the process.
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Catches the signals, which from now on no longer end the process.
    ///
    /// # Errors
    /// The signals cannot be caught.
    pub fn new() -> Result<Self, Error> {
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for one of the signals.
    pub async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Returns the SIGHUPs from now on, which no longer end the process.
///
/// # Errors
/// The signal cannot be caught.
pub fn hangups() -> Result<Signal, Error> {
    listen(SignalKind::hangup())
}

fn listen(kind: SignalKind) -> Result<Signal, Error> {
    signal(kind).map_err(|error| Error::failed("signals", error, "free some resources"))
}

/// Raises the limit on open files as far as the system allows. By default it is 1024 for programs that use
/// `select`.
pub fn raise_file_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // Without it, the program serves fewer clients, and says so.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
