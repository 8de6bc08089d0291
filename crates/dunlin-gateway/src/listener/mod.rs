//! Listeners: sockets that accept clients, with settings that a reload replaces.

mod frozen;
pub(crate) mod handshake;
mod remedy;
pub(crate) mod tcp;
pub(crate) mod udp;
mod watched;

use std::net::SocketAddr;
use std::sync::Arc;

use dunlin::{Negotiated, Now};
use dunlin_store::SharedTickets;
use tokio::sync::watch;

use crate::acme::Managed;
use crate::config::{Field, ListenerConfig, TransportKind};
use crate::context::Context;
use crate::frozen::FrozenPlace;
use crate::policy_file::PolicyFile;
use crate::service::{Serve, Socket};
use crate::shared_clients::SharedClients;
use crate::tls::{Password, ServerConfigs};

/// The settings of a listener that are in force. Each connection keeps those with which it began.
pub(crate) struct ListenerState {
    pub(crate) config: ListenerConfig,
    pub(crate) tls: ServerConfigs,
    /// The password of each route, for its broker.
    pub(crate) passwords: Vec<Option<Password>>,
    /// The ticket keys that other gateways have, too.
    pub(crate) shared_tickets: Option<Arc<SharedTickets>>,
    /// The addresses of clients that other gateways have, too.
    pub(crate) shared_clients: Option<SharedClients>,
    /// The certificates that the gateway orders.
    pub(crate) acme: Vec<Managed>,
    /// The storage of associations while no gateway runs.
    pub(crate) frozen: Option<Arc<FrozenPlace>>,
}

impl Serve for ListenerState {
    fn name(&self) -> &str {
        &self.config.name
    }

    fn address(&self) -> &Field<SocketAddr> {
        &self.config.listen
    }

    fn transport(&self) -> TransportKind {
        self.config.transport
    }

    fn max_connections(&self) -> usize {
        self.config.limits.connections
    }

    /// Whether the blacklist of the policy has this client.
    fn refuses(&self, context: &Context, from: SocketAddr, now: Now) -> bool {
        let blocked =
            self.tls.policed().and_then(|policed| policed.memory().blocked(from.ip(), now.unix_s()));
        let Some(blocked) = blocked else { return false };
        let listener = &self.config.name;
        context.metrics.blacklisted(listener);
        tracing::debug!(listener, client = %from, "{blocked}");
        true
    }

    fn freezes(&self) -> bool {
        self.frozen.is_some()
    }

    fn policy(&self) -> Option<Arc<PolicyFile>> {
        self.tls.policed().map(|policed| policed.file().clone())
    }

    async fn serve(
        context: Arc<Context>,
        settings: Settings,
        socket: Socket,
        removed: watch::Receiver<bool>,
    ) {
        match socket {
            Socket::Tcp(socket) => tcp::run(context, settings, socket, removed, None).await,
            Socket::Udp(socket) => udp::run(context, settings, socket, removed).await,
        }
    }
}

/// The profile and the label of the rule for the log line of a connection. Without a policy, the line has
/// neither.
fn chosen<'a>(negotiated: &'a Negotiated, rule: &'a str) -> (Option<&'a str>, Option<&'a str>) {
    match rule {
        "" => (None, None),
        rule => (Some(&negotiated.profile), Some(rule)),
    }
}

/// A listener as its socket's task sees it.
pub(crate) type Settings = Arc<arc_swap::ArcSwap<ListenerState>>;
