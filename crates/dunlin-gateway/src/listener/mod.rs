//! Listeners: sockets that accept clients, with settings that a reload replaces.

pub(crate) mod tcp;

use std::sync::Arc;

use tokio::sync::watch;

use crate::config::ListenerConfig;
use crate::tls::ServerConfigs;

/// The settings of a listener that are in force. Each connection keeps those with which it began.
pub(crate) struct Live {
    pub(crate) config: ListenerConfig,
    pub(crate) tls: ServerConfigs,
}

/// The course of the gateway's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// It accepts connections.
    Running,
    /// It accepts no connections, aborts handshakes, and lets established connections end.
    Draining,
    /// It ends all connections.
    Ending,
}

/// Waits until the gateway has reached `phase`.
pub(crate) async fn reached(phases: &watch::Receiver<Phase>, phase: Phase) {
    // It fails only if the gateway is gone, which is later than every phase.
    let _ = phases.clone().wait_for(|now| *now >= phase).await;
}

/// A listener as its socket's task sees it.
pub(crate) type Settings = Arc<arc_swap::ArcSwap<Live>>;
