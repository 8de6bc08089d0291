//! Signals: Ctrl-C and SIGTERM end a command that runs until it is stopped, SIGHUP makes a server read its files again.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::Error;

/// How long peers have to take the close_notify when a command is stopped.
pub(crate) const STOP_PATIENCE: Duration = Duration::from_secs(1);

/// What makes the process stop.
pub(crate) struct Stop {
    interrupt: Signal,
    terminate: Signal,
}

impl Stop {
    /// From now on the signals do not end the process by themselves.
    pub(crate) fn new() -> Result<Self, Error> {
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// Waits for one of them.
    pub(crate) async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// The SIGHUPs from now on, which no longer end the process.
pub(crate) fn hangups() -> Result<Signal, Error> {
    listen(SignalKind::hangup())
}

fn listen(kind: SignalKind) -> Result<Signal, Error> {
    signal(kind).map_err(|error| Error::failed("signals", error, "free some resources"))
}
