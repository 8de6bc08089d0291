//! The state that all connections of a gateway or tunnel share.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use dunlin::Now;
use dunlin_tokio::places::{Places, accept};
use dunlin_tokio::throttle::{Line, Throttle};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::acme::Challenges;
use crate::clock::now;
use crate::config::{Fault, TransportKind};
use crate::life::{Life, Phase};
use crate::metrics::{Limit, Metrics};
use crate::nodes::Nodes;
use crate::policy_file::PolicyFile;

/// The state that all connections share.
pub(crate) struct Context {
    pub(crate) metrics: Metrics,
    pub(crate) life: Life,
    /// The listeners that accept clients.
    pub(crate) listening: ArcSwap<Vec<Listening>>,
    /// Names that requests to the administrative listener may have in `Host`.
    pub(crate) admin_hosts: ArcSwap<Vec<String>>,
    /// Sent when configurations of the engine have changed, by a reload or a policy.
    pub(crate) changed: watch::Sender<()>,
    /// Other gateways that serve the same clients.
    pub(crate) nodes: OnceLock<Arc<Nodes>>,
    /// The log lines of refused and failed clients.
    pub(crate) lines: Throttle,
    /// The gateway's answers to authorities that validate its names.
    pub(crate) challenges: Challenges,
    /// The places of listeners by their names. The sockets of a listener share them.
    places: Mutex<HashMap<String, Arc<Places>>>,
}

impl Context {
    pub(crate) fn new(metrics: Metrics) -> Self {
        Self {
            metrics,
            life: Life::default(),
            listening: ArcSwap::default(),
            admin_hosts: ArcSwap::default(),
            changed: watch::Sender::new(()),
            nodes: OnceLock::new(),
            lines: Throttle::default(),
            challenges: Challenges::default(),
            places: Mutex::default(),
        }
    }

    /// Counts a client that has reached a limit. The log tells of each limit at most once a minute.
    pub(crate) fn reached_limit(&self, listener: &str, client: SocketAddr, limit: Limit, now: Now) {
        self.metrics.limit_reached(listener, limit);
        if let Some(Line { left_out }) = self.lines.limit(listener, limit.name(), now) {
            tracing::warn!(listener, %client, limit = limit.name(), left_out, "limit reached");
        }
    }

    /// The places of the listener with this name.
    pub(crate) fn places_of(&self, listener: &str) -> Arc<Places> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.entry(listener.to_owned()).or_default().clone()
    }

    /// Accepts the next client of a listener over TCP. `None` in the phase `until`, or once `removed` is
    /// true. `name` is the listener's. Without open files, a handshake gives way, and the listener pauses.
    pub(crate) async fn accept(
        &self,
        places: &Places,
        until: Phase,
        socket: &TcpListener,
        removed: &mut watch::Receiver<bool>,
        name: impl Fn() -> String,
    ) -> Option<(TcpStream, SocketAddr)> {
        let failed = |error: &io::Error| {
            let listener = name();
            let limit = Limit::OpenFiles;
            self.metrics.limit_reached(&listener, limit);
            if let Some(Line { left_out }) = self.lines.limit(&listener, limit.name(), now()) {
                let advice = "raise the limit on open files, lower limits.connections, or free memory";
                tracing::error!(listener, %error, left_out, "a connection was not accepted; {advice}");
            }
            places.relieve();
        };
        tokio::select! {
            accepted = accept(socket, failed) => Some(accepted),
            () = self.life.reached(until) => None,
            _ = removed.wait_for(|removed| *removed) => None,
        }
    }

    /// The port of the listener with this name.
    pub(crate) fn port_of(&self, listener: &str) -> Option<u16> {
        let listening = self.listening.load();
        listening.iter().find(|other| other.name == listener).map(|other| other.address.port())
    }
}

/// A listener as others see it.
pub(crate) struct Listening {
    pub(crate) name: String,
    pub(crate) transport: TransportKind,
    pub(crate) address: SocketAddr,
    /// The most simultaneous connections.
    pub(crate) max_connections: usize,
    /// The policy that chooses the profiles of its clients.
    pub(crate) policy: Option<Arc<PolicyFile>>,
}

/// Logs problems with which the service can go on.
pub(crate) fn warn_of(warnings: &[Fault]) {
    for warning in warnings {
        tracing::warn!("{warning}");
    }
}
