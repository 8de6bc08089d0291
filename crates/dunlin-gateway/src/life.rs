//! The life of a gateway or tunnel, from its start to its end.

use tokio::sync::watch;

/// The phases of a gateway or tunnel, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// It accepts connections.
    Running,
    /// It accepts no connections, aborts handshakes, and lets established connections end.
    Draining,
    /// It ends all connections.
    Ending,
}

impl Phase {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Draining => "draining",
            Self::Ending => "ending",
        }
    }
}

/// Waits until the program has reached `phase`.
pub(crate) async fn reached(phases: &watch::Receiver<Phase>, phase: Phase) {
    // It fails only if the program is gone, which is later than every phase.
    let _ = phases.clone().wait_for(|now| *now >= phase).await;
}
