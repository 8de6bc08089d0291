//! A gateway: it starts listeners, replaces their settings, and stops.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use dunlin_setup::known::KnownFile;
use dunlin_setup::registry::Refreshing;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::acme::Managed;
use crate::clock::now_s;
use crate::config::{self, Config, Fault, Faults, Field, Join, ListenerConfig, NodesConfig, RedirectConfig};
use crate::listener::{ListenerState, Settings};
use crate::metrics::{Metrics, Role};
use crate::nodes::{NodeKeys, Nodes};
use crate::policy_configs;
use crate::policy_file::PolicyFile;
use crate::redirect::Redirecting;
use crate::service::{self, Bound, Running, Service};
use crate::sockets::Sockets;
use crate::stores::Stores;
use crate::tls;
use crate::{cluster, context, http, listener, renewal};

/// A TLS proxy in front of existing servers.
///
/// # Examples
/// ```no_run
/// use std::path::Path;
///
/// use dunlin_gateway::{Config, Gateway};
///
/// # async fn example() -> Result<(), dunlin_gateway::Faults> {
/// let path = Path::new("gateway.toml");
/// let gateway = Gateway::start(Config::load(path)?).await?;
/// for (name, address) in gateway.addresses() {
///     println!("{name} listens on {address}");
/// }
/// gateway.reload(Config::load(path)?).await?; // Connections go on.
/// gateway.stop().await; // Connections may go on for a while.
/// # Ok(())
/// # }
/// ```
pub struct Gateway {
    service: Service<ListenerState>,
    stores: Arc<Stores>,
    /// The tasks that follow the files of policies and shared ticket keys, and those that renew certificates.
    followers: Mutex<Vec<JoinHandle<()>>>,
    redirects: Mutex<Vec<RunningRedirect>>,
    /// Keeps the proofs of the listeners' DIDs fresh.
    refreshing: Refreshing,
    /// The table `[nodes]` with which the gateway has started.
    nodes: OnceLock<Option<NodesConfig>>,
}

/// A listener for plain HTTP whose task runs.
struct RunningRedirect {
    /// The name of the listener to which it sends clients.
    name: String,
    address: SocketAddr,
    local: SocketAddr,
    join: Join,
    /// The address of the listener.
    to: SocketAddr,
    settings: Settings,
    removed: watch::Sender<bool>,
}

impl RunningRedirect {
    /// Whether its socket serves these settings. Sockets with a free port are told apart by the names of
    /// their listeners.
    fn serves(&self, config: &ListenerConfig) -> bool {
        let Some(wanted) = &config.redirect else { return false };
        let is_same = wanted.listen.value == self.address && wanted.join == self.join;
        // A pool of ports is on the address of the listener.
        let is_there = matches!(self.join, Join::Name(_)) || config.listen.value.ip() == self.to.ip();
        is_same && is_there && (self.address.port() != 0 || self.name == config.name)
    }
}

/// The sockets of a redirection: the socket for plain HTTP, and the sockets of the pool.
struct RedirectSockets {
    plain: TcpListener,
    pool: Vec<TcpListener>,
}

impl RedirectSockets {
    /// Binds them.
    ///
    /// # Errors
    /// The first address that cannot be bound.
    async fn bind(
        service: &Service<ListenerState>,
        config: &RedirectConfig,
        to: SocketAddr,
    ) -> Result<Self, Fault> {
        let plain = service.bind_one(&config.listen).await?;
        let mut pool = vec![];
        if let Join::Port(ports) = &config.join {
            for port in ports.clone() {
                let value = SocketAddr::new(to.ip(), port);
                pool.push(service.bind_one(&Field { value, place: config.place.clone() }).await?);
            }
        }
        Ok(Self { plain, pool })
    }
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
        config: Config,
        stores: &Arc<Stores>,
        opens_stores: bool,
        mut faults: Vec<Fault>,
    ) -> Result<Self, Faults> {
        let routes = config.listeners.iter().map(|listener| &listener.routes);
        let mut warnings: Vec<_> = routes.flat_map(|routes| config::without_clients(routes)).collect();
        let mut listeners = vec![];
        let known = config.common.known.as_ref();
        let opened = if opens_stores {
            let shared = config.listeners.iter().find_map(|listener| listener.shared.as_ref());
            stores.learned.open(&stores.provider, known, shared)
        } else {
            known.map_or(Ok(()), KnownFile::check)
        };
        faults.extend(opened.err());
        if let Some(nodes) = &config.nodes
            && stores.nodes.get().is_none()
        {
            match NodeKeys::read(nodes, &stores.provider) {
                Ok(keys) => drop(stores.nodes.set(Arc::new(keys))),
                Err(fault) => faults.push(fault),
            }
        }
        let mut policies: HashMap<PathBuf, Option<Arc<PolicyFile>>> = HashMap::new();
        for config in config.listeners {
            let policy = config.policy.as_ref().and_then(|file| {
                let policy = policies.entry(file.value.clone()).or_insert_with(|| {
                    let opened = PolicyFile::open(file, |path| stores.memory(path))
                        .map_err(|found| faults.extend(found));
                    opened.ok().map(Arc::new)
                });
                policy.clone()
            });
            let tls = tls::server_configs(&config, policy, stores, opens_stores, &mut faults, &mut warnings);
            let passwords = tls::passwords(&config, &mut faults, &mut warnings);
            let acme = Managed::of(&config, &stores.provider, &mut faults);
            let frozen = match config.frozen.as_ref().filter(|_| opens_stores).map(|it| stores.frozen(it)) {
                Some(Err(fault)) => {
                    faults.push(fault);
                    None
                }
                Some(Ok(place)) => Some(place),
                None => None,
            };
            let shared_tickets = stores.shared_tickets(&config);
            let shared_clients = tls.as_ref().and_then(|tls| tls.policed());
            let shared_clients =
                shared_clients.map(|policed| stores.shared_clients(&config, policed.file())).transpose();
            let shared_clients = shared_clients.unwrap_or_else(|fault| {
                faults.push(fault);
                None
            });
            listeners.extend(tls.map(|tls| ListenerState {
                config,
                tls,
                passwords,
                shared_tickets,
                shared_clients: shared_clients.flatten(),
                acme,
                frozen,
            }));
        }
        Faults::none_in(faults)?;
        let policed: Vec<_> =
            listeners.iter().filter_map(|live: &ListenerState| live.tls.policed().cloned()).collect();
        warnings.extend(policy_configs::warnings_of(&policed));
        Ok(Self { listeners, warnings })
    }
}

impl Config {
    /// Reads the file `path`, or the `*.toml` files of the directory `path`.
    ///
    /// # Errors
    /// All faults of the files, and of those that they name.
    pub fn load(path: &Path) -> Result<Self, Faults> {
        let (sources, faults) = config::load(path)?;
        let (config, faults) = Self::of(&sources, faults);
        if faults.is_empty() {
            return Ok(config);
        }
        let read = Prepared::read(config, &Arc::new(Stores::new()), false, faults.clone());
        Err(read.err().unwrap_or_else(|| Faults::sorted(faults)))
    }
}

impl Gateway {
    /// Checks the files that `config` names: certificates, keys, CRLs, pre-shared keys. It binds no socket
    /// and creates no file. Returns problems with which a gateway can start.
    ///
    /// # Errors
    /// All faults.
    pub fn check(config: Config) -> Result<Vec<Fault>, Faults> {
        let mut warnings = config::of_both_families(&config);
        warnings.extend(Prepared::read(config, &Arc::new(Stores::new()), false, vec![])?.warnings);
        Ok(warnings)
    }

    /// Starts a gateway, which runs until [`Self::stop`] or until the runtime ends.
    ///
    /// # Errors
    /// All faults of files, or of addresses that cannot be bound.
    pub async fn start(config: Config) -> Result<Self, Faults> {
        Self::start_with(config, Sockets::default()).await
    }

    /// Does the same with sockets that the process has inherited. Listeners take those with their addresses;
    /// the log names the others, which stay open.
    ///
    /// # Errors
    /// The errors of [`Self::start`].
    pub async fn start_with(config: Config, sockets: Sockets) -> Result<Self, Faults> {
        let metrics = Metrics::new(Role::Gateway);
        let mut stores = Stores::new();
        stores.learned.count(metrics.outage_proofs.clone());
        let gateway = Self {
            service: Service::new(metrics, sockets),
            stores: Arc::new(stores),
            followers: Mutex::default(),
            refreshing: Refreshing::default(),
            redirects: Mutex::default(),
            nodes: OnceLock::new(),
        };
        gateway.replace(config).await?;
        gateway.service.warn_of_sockets().await;
        Ok(gateway)
    }

    /// Replaces the configuration. The new one is complete before any part of it comes into force.
    /// Established connections keep the settings with which they began. Ticket keys and handshake caches
    /// stay.
    ///
    /// # Errors
    /// All faults. The previous configuration then stays in force.
    pub async fn reload(&self, config: Config) -> Result<(), Faults> {
        let replaced = self.replace(config).await;
        self.service.context.metrics.reloaded(replaced.as_ref().err());
        replaced
    }

    /// Counts a reload that failed before it could be asked for: the configuration did not load.
    pub fn note_refused_reload(&self, faults: &Faults) {
        self.service.context.metrics.reloaded(Some(faults));
    }

    async fn replace(&self, config: Config) -> Result<(), Faults> {
        let running = self.service.lock().await;
        let bound = self.stores.learned.state.during(self.bind(&running, config)).await?;
        self.service.replace(running, bound);
        Ok(())
    }

    /// Binds the listeners of `config`, beside those that run.
    async fn bind(
        &self,
        running: &[Running<ListenerState>],
        config: Config,
    ) -> Result<Bound<ListenerState>, Faults> {
        let common = config.common.clone();
        let stores = self.stores.clone();
        let nodes = config.nodes.clone();
        self.check_nodes(nodes.as_ref())?;
        let prepared = service::off_thread(move || Prepared::read(config, &stores, true, vec![])).await?;
        context::warn_of(&prepared.warnings);
        let mut faults = vec![];
        let redirects = self.bind_redirects(&prepared.listeners, &mut faults).await;
        let link = self.bind_nodes(nodes.as_ref(), &mut faults).await;
        let bound = self.service.bind(running, prepared.listeners, common, faults).await?;
        self.begin_nodes(nodes, link);
        let listeners: Vec<_> = bound.listeners.iter().map(|(live, _)| live.clone()).collect();
        self.follow(running, &listeners);
        self.replace_redirects(&listeners, redirects);
        Ok(bound)
    }

    /// Checks that a reload keeps the other gateways: present connection IDs name them.
    fn check_nodes(&self, next: Option<&NodesConfig>) -> Result<(), Faults> {
        let Some(present) = self.nodes.get() else { return Ok(()) };
        let is_same = match (present, next) {
            (Some(present), Some(next)) => present.is_same(next),
            (None, None) => true,
            _ => false,
        };
        if is_same {
            return Ok(());
        }
        let what = "a reload cannot change the table [nodes]";
        let advice = "restart the gateway, or restore it";
        let place = next.or(present.as_ref()).map(|nodes| nodes.place.clone());
        Err(Faults::one(Fault { place, ..Fault::elsewhere(what, advice) }))
    }

    /// Binds the socket for datagrams of other gateways, unless the gateway runs already.
    async fn bind_nodes(
        &self,
        nodes: Option<&NodesConfig>,
        faults: &mut Vec<Fault>,
    ) -> Option<(Arc<Nodes>, UdpSocket)> {
        let keys = self.stores.nodes.get().filter(|_| self.nodes.get().is_none())?;
        let config = nodes?;
        let nodes = Nodes::new(config, keys.clone(), &self.service.context.metrics);
        let nodes = nodes.map_err(|fault| faults.push(fault)).ok()?;
        let bound = self.service.bind_datagrams(&config.listen).await;
        Some((nodes, bound.map_err(|fault| faults.push(fault)).ok()?))
    }

    /// Begins to exchange datagrams with other gateways. Only the first call has an effect.
    fn begin_nodes(&self, config: Option<NodesConfig>, link: Option<(Arc<Nodes>, UdpSocket)>) {
        let context = &self.service.context;
        if let Some((nodes, socket)) = link {
            if let Ok(address) = socket.local_addr() {
                tracing::info!(%address, "nodes: other gateways send datagrams here");
            }
            tokio::spawn(nodes.clone().run(socket, context.life.phases()));
            drop(context.nodes.set(nodes));
        }
        drop(self.nodes.set(config));
    }

    /// Puts the policies of these listeners in force, and follows their files instead of the running
    /// listeners' files. Likewise renews their certificates.
    fn follow(&self, running: &[Running<ListenerState>], next: &[Arc<ListenerState>]) {
        for listener in running {
            if let Some(policed) = listener.settings.load().tls.policed() {
                policed.file().retire();
            }
        }
        let policed: Vec<_> = next.iter().filter_map(|live| live.tls.policed().cloned()).collect();
        policed.iter().for_each(|policed| policed.file().adopt(&policed.file().current(), now_s()));
        let mut tasks = policy_configs::follow(&self.service.context, policed);
        tasks.extend(renewal::follow(&self.service.context, next));
        tasks.extend(cluster::follow(&self.service.context, next));
        let context = self.service.context.clone();
        self.stores.learned.follow(move |is_answered| {
            context.metrics.shared_refreshed("", "known", is_answered);
        });
        let staplers = next.iter().flat_map(|live| live.tls.staplers());
        self.refreshing.replace(staplers, &self.stores.provider, self.stores.learned.state.report());
        let mut followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        let followers = std::mem::replace(&mut *followers, tasks);
        followers.iter().for_each(JoinHandle::abort);
    }

    /// Binds the sockets for plain HTTP that no running task has: one for each listener, or none.
    async fn bind_redirects(
        &self,
        next: &[ListenerState],
        faults: &mut Vec<Fault>,
    ) -> Vec<Option<RedirectSockets>> {
        let mut sockets = vec![];
        for live in next {
            let is_bound = {
                let running = self.redirects.lock().unwrap_or_else(PoisonError::into_inner);
                running.iter().any(|redirect| redirect.serves(&live.config))
            };
            let socket = match &live.config.redirect {
                Some(redirect) if !is_bound => {
                    let to = live.config.listen.value;
                    let bound = RedirectSockets::bind(&self.service, redirect, to).await;
                    bound.map_err(|fault| faults.push(fault)).ok()
                }
                _ => None,
            };
            sockets.push(socket);
        }
        sockets
    }

    /// Begins to serve the new sockets for plain HTTP, gives the others new settings, and ends those that are
    /// not wanted.
    fn replace_redirects(&self, listeners: &[Arc<ListenerState>], sockets: Vec<Option<RedirectSockets>>) {
        let mut running = self.redirects.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = vec![];
        for (live, socket) in listeners.iter().zip(sockets) {
            let name = live.config.name.clone();
            if let Some(at) = running.iter().position(|redirect| redirect.serves(&live.config)) {
                let redirect = running.swap_remove(at);
                redirect.settings.store(live.clone());
                next.push(RunningRedirect { name, ..redirect });
            } else if let (Some(socket), Some(config)) = (socket, &live.config.redirect) {
                let RedirectSockets { plain, pool } = socket;
                let Ok(local) = plain.local_addr() else { continue };
                tracing::info!(listener = name, address = %local, "redirecting from plain HTTP");
                let settings: Settings = Arc::new(ArcSwap::new(live.clone()));
                let removed = watch::Sender::new(false);
                let context = self.service.context.clone();
                let of_redirect = settings.clone();
                let answers = move || Redirecting { context: context.clone(), live: of_redirect.load_full() };
                let context = self.service.context.clone();
                tokio::spawn(http::run(context, answers, plain, removed.subscribe()));
                for socket in pool {
                    let port = socket.local_addr().ok().map(|local| local.port());
                    let context = self.service.context.clone();
                    let settings = settings.clone();
                    tokio::spawn(listener::tcp::run(context, settings, socket, removed.subscribe(), port));
                }
                let address = config.listen.value;
                let join = config.join.clone();
                let to = live.config.listen.value;
                next.push(RunningRedirect { name, address, local, join, to, settings, removed });
            }
        }
        for redirect in std::mem::replace(&mut *running, next) {
            redirect.removed.send_replace(true);
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

    /// The names of the listeners that have one for plain HTTP beside them, and its address.
    pub fn redirect_addresses(&self) -> Vec<(String, SocketAddr)> {
        let redirects = self.redirects.lock().unwrap_or_else(PoisonError::into_inner);
        redirects.iter().map(|redirect| (redirect.name.clone(), redirect.local)).collect()
    }

    /// The metrics in the text format of OpenMetrics.
    pub fn metrics(&self) -> String {
        self.service.context.metrics.text()
    }

    /// Stops: the gateway accepts no more clients and aborts handshakes. Established connections may go on
    /// for the `shutdown_time` of the configuration; then they get a close_notify. Dropping the future of
    /// this function and calling [`Self::end`] ends them earlier.
    pub async fn stop(&self) {
        self.service.stop().await;
        self.stores.learned.close().await;
    }

    /// Ends all connections with a close_notify, and the gateway.
    pub async fn end(&self) {
        self.service.end().await;
        self.stores.learned.close().await;
    }
}
