//! Signals: Ctrl-C and SIGTERM end a running command; SIGHUP makes a server read its files again.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::Error;

/// How long a stopping command waits for its peers to receive close_notify.
pub(crate) const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// The signals that stop the process.
pub(crate) struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// Catches the signals, which from now on no longer end the process.
    pub(crate) fn new() -> Result<Self, Error> {
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for one of the signals.
    pub(crate) async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Returns the SIGHUPs from now on, which no longer end the process.
pub(crate) fn hangups() -> Result<Signal, Error> {
    listen(SignalKind::hangup())
}

fn listen(kind: SignalKind) -> Result<Signal, Error> {
    signal(kind).map_err(|error| Error::failed("signals", error, "free some resources"))
}
