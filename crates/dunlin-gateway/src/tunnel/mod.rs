//! The device side of a gateway: local programs connect over TCP or UDP, and a server gets their data over
//! TLS or DTLS.
//!
//! * `config`: the TOML files. `tls`: the engine's configurations, from files and stores.
//! * `tcp`: TCP to TLS. `udp`: UDP to DTLS. `remote`: the way to the server. `frozen`: associations that
//!   survive a restart.

pub mod config;
mod frozen;
mod remote;
mod tcp;
mod tls;
mod udp;

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use dunlin::crypto::SecureRandom;
use dunlin::{ClientConfig, Now};
use dunlin_registry::lookup::LookUpAnswers;
use dunlin_registry::stapler::Stapler;
use dunlin_setup::known::KnownFile;
use dunlin_setup::registry::Refreshing;
use dunlin_tokio::HandshakeError;
use tokio::sync::watch;

use self::config::{TunnelConfig, TunnelListener};
use self::frozen::{Freezer, Thawed};
use self::remote::Failure;
use self::tls::{BuiltConfig, Stores};
use crate::config::{Fault, Faults, Field, TransportKind};
use crate::context::{self, Context};
use crate::metrics::{self, Metrics, Role};
use crate::service::{self, Bound, Running, Serve, Service, Socket};
use crate::sockets::Sockets;

/// The settings of a listener that are in force.
pub(crate) struct ListenerState {
    config: TunnelListener,
    tls: Arc<ClientConfig>,
    /// The answers about servers whose documents are in a registry.
    answers: Option<LookUpAnswers>,
    /// The source of proofs of the own DID.
    staplers: Vec<Arc<Stapler>>,
    /// For jitter.
    random: Arc<dyn SecureRandom>,
    /// Takes associations that survive the tunnel.
    freezer: Option<Arc<Freezer>>,
    /// Associations of the previous tunnel, until the listener begins.
    thawed: Mutex<Vec<Thawed>>,
}

type Settings = Arc<ArcSwap<ListenerState>>;

impl ListenerState {
    fn is_datagram(&self) -> bool {
        self.config.transport == TransportKind::Dtls
    }
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

    fn refuses(&self, _: &Context, _: SocketAddr, _: Now) -> bool {
        false
    }

    async fn serve(
        context: Arc<Context>,
        settings: Settings,
        socket: Socket,
        removed: watch::Receiver<bool>,
    ) {
        match socket {
            Socket::Tcp(socket) => tcp::run(context, settings, socket, removed).await,
            Socket::Udp(socket) => udp::run(context, settings, socket, removed).await,
        }
    }
}

/// The outcome of a failed attempt to reach the server, as a label.
fn outcome(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "refused",
        io::ErrorKind::TimedOut => "timeout",
        _ => "failed",
    }
}

/// Counts a failed handshake.
fn handshake_failed(context: &Context, listener: &str, error: HandshakeError) -> Failure {
    context.metrics.handshake_failed(listener, metrics::reason(&error));
    Failure::Handshake(error)
}

/// A configuration with the content of its files.
struct Prepared {
    listeners: Vec<ListenerState>,
    warnings: Vec<Fault>,
}

impl Prepared {
    /// Reads the files of `config`, which has these faults. Stores of handshake caches are opened only if
    /// `opens_stores`.
    fn read(
        config: TunnelConfig,
        stores: &Stores,
        opens_stores: bool,
        freezer: Option<&Arc<Freezer>>,
        mut faults: Vec<Fault>,
    ) -> Result<Self, Faults> {
        let mut warnings = vec![];
        let mut listeners = vec![];
        let known = config.common.known.as_ref();
        let opened = if opens_stores {
            stores.learned.open(&stores.provider, known, None)
        } else {
            known.map_or(Ok(()), KnownFile::check)
        };
        faults.extend(opened.err());
        for config in config.listeners {
            let tls = tls::client_config(&config, stores, opens_stores, &mut faults, &mut warnings);
            let random = stores.provider.random.clone();
            let freezer = freezer.cloned();
            let thawed = Mutex::default();
            listeners.extend(tls.map(|BuiltConfig { config: tls, answers, staplers }| ListenerState {
                config,
                tls,
                answers,
                staplers,
                random,
                freezer,
                thawed,
            }));
        }
        Faults::none_in(faults)?;
        Ok(Self { listeners, warnings })
    }
}

/// The device side of a gateway, beside programs that know no TLS.
///
/// # Examples
/// ```no_run
/// use std::path::Path;
///
/// use dunlin_gateway::{Tunnel, TunnelConfig};
///
/// # async fn example() -> Result<(), dunlin_gateway::Faults> {
/// let path = Path::new("tunnel.toml");
/// let tunnel = Tunnel::start(TunnelConfig::load(path)?).await?;
/// tunnel.reload(TunnelConfig::load(path)?).await?; // Connections go on.
/// tunnel.stop().await; // Connections may go on for a while.
/// # Ok(())
/// # }
/// ```
pub struct Tunnel {
    service: Service<ListenerState>,
    stores: Arc<Stores>,
    freezer: Option<Arc<Freezer>>,
    /// Keeps the proofs of the listeners' DIDs fresh.
    refreshing: Refreshing,
}

impl TunnelConfig {
    /// Reads the file `path`, or the `*.toml` files of the directory `path`.
    ///
    /// # Errors
    /// All faults of the files, and of those that they name.
    pub fn load(path: &Path) -> Result<Self, Faults> {
        let (sources, faults) = crate::config::load(path)?;
        let (config, faults) = Self::of(&sources, faults);
        if faults.is_empty() {
            return Ok(config);
        }
        let read = Prepared::read(config, &Stores::new(), false, None, faults.clone());
        Err(read.err().unwrap_or_else(|| Faults::sorted(faults)))
    }
}

impl Tunnel {
    /// Checks the files that `config` names: certificates, keys, CRLs, pre-shared keys. It binds no socket
    /// and creates no file. Returns problems with which a tunnel can start.
    ///
    /// # Errors
    /// All faults.
    pub fn check(config: TunnelConfig) -> Result<Vec<Fault>, Faults> {
        Ok(Prepared::read(config, &Stores::new(), false, None, vec![])?.warnings)
    }

    /// Starts a tunnel, which runs until [`Self::stop`] or until the runtime ends. It connects to a server
    /// when a local program does.
    ///
    /// # Errors
    /// All faults of files, or of addresses that cannot be bound.
    pub async fn start(config: TunnelConfig) -> Result<Self, Faults> {
        Self::start_with(config, Sockets::default()).await
    }

    /// Does the same with sockets that the process has inherited, as [`crate::Gateway::start_with`].
    ///
    /// # Errors
    /// The errors of [`Self::start`].
    pub async fn start_with(config: TunnelConfig, sockets: Sockets) -> Result<Self, Faults> {
        let metrics = Metrics::new(Role::Tunnel);
        let mut stores = Stores::new();
        stores.learned.count(metrics.outage_proofs.clone());
        let service = Service::new(metrics, sockets);
        let stores = Arc::new(stores);
        let freezer = match config.frozen.clone() {
            None => None,
            Some(config) => {
                let provider = stores.provider.clone();
                let open = move || Freezer::open(&config, &provider).map_err(Faults::one);
                Some(Arc::new(service::off_thread(open).await?))
            }
        };
        let tunnel = Self { service, stores, freezer, refreshing: Refreshing::default() };
        tunnel.replace(config, true).await?;
        tunnel.service.warn_of_sockets().await;
        Ok(tunnel)
    }

    /// Replaces the configuration. The new one is complete before any part of it comes into force.
    /// Established connections keep the settings with which they began. Tickets and handshake caches stay.
    ///
    /// # Errors
    /// All faults. The previous configuration then stays in force.
    pub async fn reload(&self, config: TunnelConfig) -> Result<(), Faults> {
        let replaced = self.replace(config, false).await;
        self.service.context.metrics.reloaded(replaced.as_ref().err());
        replaced
    }

    /// Counts a reload that failed before it could be asked for: the configuration did not load.
    pub fn note_refused_reload(&self, faults: &Faults) {
        self.service.context.metrics.reloaded(Some(faults));
    }

    /// Replaces the listeners. The first ones take the frozen associations.
    async fn replace(&self, config: TunnelConfig, thaws: bool) -> Result<(), Faults> {
        let running = self.service.lock().await;
        let bound = self.stores.learned.state.during(self.bind(&running, config, thaws)).await?;
        let staplers: Vec<_> = bound.listeners.iter().flat_map(|(live, _)| live.staplers.clone()).collect();
        self.refreshing.replace(staplers, &self.stores.provider, self.stores.learned.state.report());
        self.stores.learned.follow(|_| {});
        self.service.replace(running, bound);
        Ok(())
    }

    /// Binds the listeners of `config`, beside those that run.
    async fn bind(
        &self,
        running: &[Running<ListenerState>],
        config: TunnelConfig,
        thaws: bool,
    ) -> Result<Bound<ListenerState>, Faults> {
        let common = config.common.clone();
        let stores = self.stores.clone();
        let freezer = self.freezer.clone();
        let read = move || Prepared::read(config, &stores, true, freezer.as_ref(), vec![]);
        let prepared = service::off_thread(read).await?;
        context::warn_of(&prepared.warnings);
        let bound = self.service.bind(running, prepared.listeners, common, vec![]).await?;
        if let Some(freezer) = self.freezer.clone().filter(|_| thaws) {
            let listeners: Vec<_> = bound.listeners.iter().map(|(live, _)| live.clone()).collect();
            let thaw = move || {
                freezer.thaw(&listeners);
                Ok(())
            };
            service::off_thread(thaw).await?;
        }
        Ok(bound)
    }

    /// Writes the associations that were frozen.
    async fn freeze(&self) {
        if let Some(freezer) = self.freezer.clone() {
            // It fails only if the runtime ends.
            let _ = tokio::task::spawn_blocking(move || freezer.write()).await;
        }
    }

    /// The address of the administrative listener.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.service.admin_address()
    }

    /// The names of the listeners, and the addresses on which they listen.
    pub fn addresses(&self) -> Vec<(String, SocketAddr)> {
        self.service.addresses()
    }

    /// The metrics in the text format of OpenMetrics.
    pub fn metrics(&self) -> String {
        self.service.context.metrics.text()
    }

    /// Stops: the tunnel accepts no more local programs. Established connections may go on for the
    /// `shutdown_time` of the configuration; then they end, or are frozen. Dropping the future of this
    /// function and calling [`Self::end`] ends them earlier.
    pub async fn stop(&self) {
        self.service.stop().await;
        self.stores.learned.close().await;
        self.freeze().await;
    }

    /// Ends all connections, and the tunnel.
    pub async fn end(&self) {
        self.service.end().await;
        self.stores.learned.close().await;
        self.freeze().await;
    }
}
