//! A gateway: it starts listeners, replaces their settings, and stops.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::config::{AdminConfig, Config, Fault, Faults, Field, ListenerConfig, Place, TransportKind};
use crate::listener::{Live, Phase, Settings};
use crate::metrics::Metrics;
use crate::policed::{self, PolicyFile};
use crate::sockets::Sockets;
use crate::tls::{self, Stores};
use crate::{admin, listener, proxy, redirect};

/// How long connections may take to end once the gateway ends them all: each waits for its client this long at most.
const END_PATIENCE: Duration = Duration::from_millis(500 + proxy::tcp::CLOSE_PATIENCE.as_millis() as u64);

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) metrics: Metrics,
    pub(crate) phase: watch::Sender<Phase>,
    /// The open connections of all listeners.
    pub(crate) connections: Arc<AtomicUsize>,
    max_connections: AtomicUsize,
    /// The listeners that accept clients.
    pub(crate) listening: ArcSwap<Vec<Listening>>,
    /// Names that requests to the administrative listener may have in `Host`.
    pub(crate) admin_hosts: ArcSwap<Vec<String>>,
    /// Sent when configurations of the engine have changed, by a reload or a policy.
    pub(crate) changed: watch::Sender<()>,
    /// Listeners and connections whose tasks have not ended.
    tasks: watch::Sender<usize>,
}

/// A task of the gateway, counted until the value is dropped.
pub(crate) struct Alive(Arc<Shared>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.tasks.send_modify(|tasks| *tasks = tasks.saturating_sub(1));
    }
}

impl Shared {
    pub(crate) fn alive(self: &Arc<Self>) -> Alive {
        self.tasks.send_modify(|tasks| *tasks += 1);
        Alive(self.clone())
    }

    /// The port of the listener with this name.
    pub(crate) fn port_of(&self, listener: &str) -> Option<u16> {
        let listening = self.listening.load();
        listening.iter().find(|other| other.name == listener).map(|other| other.address.port())
    }

    pub(crate) fn open_connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub(crate) fn max_connections(&self) -> usize {
        self.max_connections.load(Ordering::Relaxed)
    }
}

/// A listener as others see it.
pub(crate) struct Listening {
    pub(crate) name: String,
    pub(crate) transport: TransportKind,
    pub(crate) address: SocketAddr,
    pub(crate) settings: Settings,
}

/// A listener whose task runs.
struct Running {
    name: String,
    transport: TransportKind,
    /// The address of the configuration, in which the port may be 0.
    address: SocketAddr,
    local: SocketAddr,
    settings: Settings,
    removed: watch::Sender<bool>,
}

/// A listener for plain HTTP whose task runs.
struct RunningRedirect {
    /// That of the listener to which it sends clients.
    name: String,
    address: SocketAddr,
    local: SocketAddr,
    settings: Settings,
    removed: watch::Sender<bool>,
}

impl RunningRedirect {
    /// As for [`Running::serves`].
    fn serves(&self, config: &ListenerConfig) -> bool {
        let wanted = config.redirect.as_ref().map(|redirect| redirect.listen.value);
        wanted == Some(self.address) && (self.address.port() != 0 || self.name == config.name)
    }
}

impl Running {
    /// Whether the socket of this listener serves these settings. Listeners with a free port are told apart by their names.
    fn serves(&self, config: &ListenerConfig) -> bool {
        let address = config.listen.value;
        self.transport == config.transport
            && self.address == address
            && (address.port() != 0 || self.name == config.name)
    }
}

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
    shared: Arc<Shared>,
    stores: Arc<Stores>,
    /// Also the lock of a reload.
    running: tokio::sync::Mutex<Vec<Running>>,
    redirects: Mutex<Vec<RunningRedirect>>,
    shutdown_time: Mutex<Duration>,
    admin: Mutex<Option<Admin>>,
    /// The tasks that follow the files of policies.
    followers: Mutex<Vec<JoinHandle<()>>>,
    /// Sockets that no listener has taken.
    inherited: tokio::sync::Mutex<Sockets>,
}

/// The administrative listener.
struct Admin {
    /// The address of the configuration, in which the port may be 0.
    address: SocketAddr,
    local: SocketAddr,
    removed: watch::Sender<bool>,
}

/// A configuration with the content of its files.
struct Prepared {
    listeners: Vec<Live>,
    warnings: Vec<Fault>,
}

impl Prepared {
    /// Reads the files of `config`. Stores of handshake caches are opened only if `opens_stores`.
    fn read(config: Config, stores: &Arc<Stores>, opens_stores: bool) -> Result<Self, Faults> {
        let (mut faults, mut warnings, mut listeners) = (vec![], vec![], vec![]);
        let mut policies: HashMap<PathBuf, Option<Arc<PolicyFile>>> = HashMap::new();
        for config in config.listeners {
            let policy = config.policy.as_ref().map(|file| {
                let policy = policies.entry(file.value.clone()).or_insert_with(|| {
                    let opened = PolicyFile::open(file, stores).map_err(|found| faults.extend(found));
                    opened.ok().map(Arc::new)
                });
                policy.clone()
            });
            let policy = match policy {
                None => None,
                Some(Some(policy)) => Some(policy),
                // Its faults are known.
                Some(None) => continue,
            };
            let tls = tls::server_configs(&config, policy, stores, opens_stores, &mut faults, &mut warnings);
            let passwords = tls::passwords(&config, &mut faults);
            listeners.extend(tls.map(|tls| Live { config, tls, passwords }));
        }
        Faults::none_in(faults)?;
        Ok(Self { listeners, warnings })
    }

    /// Reads the files on a thread that may wait for them.
    async fn off_thread(config: Config, stores: Arc<Stores>) -> Result<Self, Faults> {
        let read = tokio::task::spawn_blocking(move || Self::read(config, &stores, true)).await;
        let prepared = read.unwrap_or_else(|_| {
            Err(Faults::one(Fault::elsewhere("reading the files was aborted", "start again")))
        })?;
        for warning in &prepared.warnings {
            tracing::warn!("{warning}");
        }
        Ok(prepared)
    }
}

/// The socket of a listener.
enum Socket {
    Tcp(TcpListener),
    Udp(UdpSocket),
}

impl Socket {
    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        match self {
            Self::Tcp(socket) => socket.local_addr(),
            Self::Udp(socket) => socket.local_addr(),
        }
    }
}

/// Takes the socket of a listener from the inherited ones, or binds it.
async fn bind_listener(config: &ListenerConfig, inherited: &mut Sockets) -> Result<Socket, Fault> {
    match config.transport {
        TransportKind::Tls => bind(&config.listen, inherited).await.map(Socket::Tcp),
        TransportKind::Dtls => {
            let Field { value: address, place } = &config.listen;
            let socket = match inherited.take_udp(*address) {
                Some(socket) => UdpSocket::from_std(socket),
                None => UdpSocket::bind(address).await,
            };
            socket.map(Socket::Udp).map_err(|error| not_bound(*address, place, &error))
        }
    }
}

fn not_bound(address: SocketAddr, place: &Place, error: &std::io::Error) -> Fault {
    let advice = "give a free address of this machine; ports below 1024 need a privilege";
    place.fault(format!("{address}: {error}"), advice)
}

/// Takes the inherited socket with this address, or binds one.
async fn bind(address: &Field<SocketAddr>, inherited: &mut Sockets) -> Result<TcpListener, Fault> {
    let Field { value: address, place } = address;
    let socket = match inherited.take_tcp(*address) {
        Some(socket) => TcpListener::from_std(socket),
        None => TcpListener::bind(address).await,
    };
    socket.map_err(|error| not_bound(*address, place, &error))
}

impl Gateway {
    /// Checks the files that `config` names: certificates, keys, CRLs, pre-shared keys. It binds no socket and creates no file. Returns
    /// problems with which a gateway can start.
    ///
    /// # Errors
    /// All faults.
    pub fn check(config: Config) -> Result<Vec<Fault>, Faults> {
        Ok(Prepared::read(config, &Arc::new(Stores::new()), false)?.warnings)
    }

    /// Starts a gateway, which runs until [`Self::stop`] or until the runtime ends.
    ///
    /// # Errors
    /// All faults of files, or of addresses that cannot be bound.
    pub async fn start(config: Config) -> Result<Self, Faults> {
        Self::start_with(config, Sockets::default()).await
    }

    /// Does the same with sockets that the process has inherited. Listeners take those with their addresses; the log names the others,
    /// which stay open.
    ///
    /// # Errors
    /// The errors of [`Self::start`].
    pub async fn start_with(config: Config, sockets: Sockets) -> Result<Self, Faults> {
        let gateway = Self {
            shared: Arc::new(Shared {
                metrics: Metrics::new(),
                phase: watch::Sender::new(Phase::Running),
                connections: Arc::default(),
                listening: ArcSwap::default(),
                admin_hosts: ArcSwap::default(),
                max_connections: AtomicUsize::new(0),
                changed: watch::Sender::new(()),
                tasks: watch::Sender::new(0),
            }),
            stores: Arc::new(Stores::new()),
            running: tokio::sync::Mutex::default(),
            redirects: Mutex::default(),
            shutdown_time: Mutex::default(),
            admin: Mutex::default(),
            followers: Mutex::default(),
            inherited: tokio::sync::Mutex::new(sockets),
        };
        gateway.replace(config).await?;
        for address in gateway.inherited.lock().await.addresses() {
            let advice = "add a listener with this address, or remove it from the unit of the sockets";
            tracing::warn!(%address, "no listener has the address of an inherited socket; {advice}");
        }
        Ok(gateway)
    }

    /// Replaces the configuration. The new one is complete before any part of it comes into force. Established connections keep the
    /// settings with which they began. Ticket keys and handshake caches stay.
    ///
    /// # Errors
    /// All faults. The previous configuration then stays in force.
    pub async fn reload(&self, config: Config) -> Result<(), Faults> {
        let replaced = self.replace(config).await;
        self.shared.metrics.reloaded(replaced.as_ref().err());
        replaced
    }

    /// Counts a reload that failed before it could be asked for: the configuration did not load.
    pub fn note_refused_reload(&self, faults: &Faults) {
        self.shared.metrics.reloaded(Some(faults));
    }

    async fn replace(&self, config: Config) -> Result<(), Faults> {
        let mut running = self.running.lock().await;
        let (max_connections, shutdown_time) = (config.connections, config.shutdown_time);
        let admin_config = config.admin.clone();
        let prepared = Prepared::off_thread(config, self.stores.clone()).await?;
        let (mut bound, mut faults) = (vec![], vec![]);
        let mut inherited = self.inherited.lock().await;
        for live in &prepared.listeners {
            if running.iter().any(|listener| listener.serves(&live.config)) {
                bound.push(None);
                continue;
            }
            match bind_listener(&live.config, &mut inherited).await {
                Ok(socket) => bound.push(Some(socket)),
                Err(fault) => faults.push(fault),
            }
        }
        let redirects = self.bind_redirects(&prepared.listeners, &mut inherited, &mut faults).await;
        let admin = match &admin_config {
            Some(AdminConfig { listen, .. }) if !self.has_admin(listen.value) => bind(listen, &mut inherited)
                .await
                .map_err(|fault| faults.push(fault))
                .ok()
                .map(|socket| (listen.value, socket)),
            _ => None,
        };
        drop(inherited);
        Faults::none_in(faults)?;
        // From here on, nothing fails.
        let has_admin = admin_config.is_some();
        self.shared.admin_hosts.store(Arc::new(admin_config.map(|admin| admin.hosts).unwrap_or_default()));
        self.replace_admin(has_admin, admin);
        self.shared.max_connections.store(max_connections, Ordering::Relaxed);
        *self.shutdown_time.lock().unwrap_or_else(PoisonError::into_inner) = shutdown_time;
        self.follow(&running, &prepared.listeners);
        let mut next = vec![];
        let listeners: Vec<_> = prepared.listeners.into_iter().map(Arc::new).collect();
        self.replace_redirects(&listeners, redirects);
        for (live, socket) in listeners.into_iter().zip(bound) {
            let name = live.config.name.clone();
            match socket {
                Some(socket) => next.extend(self.begin(live, socket)),
                None => {
                    let Some(at) = running.iter().position(|listener| listener.serves(&live.config)) else {
                        continue;
                    };
                    let listener = running.swap_remove(at);
                    listener.settings.store(live);
                    next.push(Running { name, ..listener });
                }
            }
        }
        let listening = next.iter().map(|listener: &Running| Listening {
            name: listener.name.clone(),
            transport: listener.transport,
            address: listener.local,
            settings: listener.settings.clone(),
        });
        self.shared.listening.store(Arc::new(listening.collect()));
        for removed in std::mem::replace(&mut *running, next) {
            tracing::info!(listener = removed.name, address = %removed.local, "listener removed");
            removed.removed.send_replace(true);
        }
        self.shared.changed.send_replace(());
        Ok(())
    }

    /// Puts the policies of these listeners in force, and follows their files instead of those of the running listeners.
    fn follow(&self, running: &[Running], next: &[Live]) {
        for listener in running {
            if let Some(policed) = listener.settings.load().tls.policed() {
                policed.retire();
            }
        }
        let policed: Vec<_> = next.iter().filter_map(|live| live.tls.policed().cloned()).collect();
        policed.iter().for_each(|policed| policed.adopt());
        let mut followers = self.followers.lock().unwrap_or_else(PoisonError::into_inner);
        let followers = std::mem::replace(&mut *followers, policed::follow(&self.shared, policed));
        followers.iter().for_each(JoinHandle::abort);
    }

    /// Binds the sockets for plain HTTP that no running task has: one for each listener, or none.
    async fn bind_redirects(
        &self,
        next: &[Live],
        inherited: &mut Sockets,
        faults: &mut Vec<Fault>,
    ) -> Vec<Option<TcpListener>> {
        let mut sockets = vec![];
        for live in next {
            let is_bound = {
                let running = self.redirects.lock().unwrap_or_else(PoisonError::into_inner);
                running.iter().any(|redirect| redirect.serves(&live.config))
            };
            let socket = match &live.config.redirect {
                Some(redirect) if !is_bound => {
                    bind(&redirect.listen, inherited).await.map_err(|fault| faults.push(fault)).ok()
                }
                _ => None,
            };
            sockets.push(socket);
        }
        sockets
    }

    /// Begins to serve the new sockets for plain HTTP, gives the others new settings, and ends those that are not wanted.
    fn replace_redirects(&self, listeners: &[Arc<Live>], sockets: Vec<Option<TcpListener>>) {
        let mut running = self.redirects.lock().unwrap_or_else(PoisonError::into_inner);
        let mut next = vec![];
        for (live, socket) in listeners.iter().zip(sockets) {
            let name = live.config.name.clone();
            if let Some(at) = running.iter().position(|redirect| redirect.serves(&live.config)) {
                let redirect = running.swap_remove(at);
                redirect.settings.store(live.clone());
                next.push(RunningRedirect { name, ..redirect });
            } else if let (Some(socket), Some(config)) = (socket, &live.config.redirect) {
                let Ok(local) = socket.local_addr() else { continue };
                tracing::info!(listener = name, address = %local, "redirecting from plain HTTP");
                let settings: Settings = Arc::new(ArcSwap::new(live.clone()));
                let removed = watch::Sender::new(false);
                tokio::spawn(redirect::run(
                    self.shared.clone(),
                    settings.clone(),
                    socket,
                    removed.subscribe(),
                ));
                next.push(RunningRedirect { name, address: config.listen.value, local, settings, removed });
            }
        }
        for redirect in std::mem::replace(&mut *running, next) {
            redirect.removed.send_replace(true);
        }
    }

    /// Whether the administrative listener has this address already.
    fn has_admin(&self, address: SocketAddr) -> bool {
        let admin = self.admin.lock().unwrap_or_else(PoisonError::into_inner);
        admin.as_ref().is_some_and(|admin| admin.address == address)
    }

    /// Begins to serve the administrative listener on a new socket, or ends it if it is not wanted.
    fn replace_admin(&self, is_wanted: bool, bound: Option<(SocketAddr, TcpListener)>) {
        let mut admin = self.admin.lock().unwrap_or_else(PoisonError::into_inner);
        if is_wanted && bound.is_none() {
            return;
        }
        if let Some(previous) = admin.take() {
            previous.removed.send_replace(true);
        }
        *admin = bound.and_then(|(address, socket)| {
            let local = socket.local_addr().ok()?;
            tracing::info!(address = %local, "metrics and status");
            let removed = watch::Sender::new(false);
            tokio::spawn(admin::run(self.shared.clone(), socket, removed.subscribe()));
            Some(Admin { address, local, removed })
        });
    }

    /// The address of the administrative listener.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        let admin = self.admin.lock().unwrap_or_else(PoisonError::into_inner);
        admin.as_ref().map(|admin| admin.local)
    }

    /// Begins to accept clients.
    fn begin(&self, live: Arc<Live>, socket: Socket) -> Option<Running> {
        let (name, address) = (live.config.name.clone(), live.config.listen.value);
        let transport = live.config.transport;
        let local = socket.local_addr().ok()?;
        tracing::info!(listener = name, address = %local, "listening");
        let settings: Settings = Arc::new(ArcSwap::new(live));
        let removed = watch::Sender::new(false);
        let (shared, alive) = (self.shared.clone(), self.shared.alive());
        let (task_settings, task_removed) = (settings.clone(), removed.subscribe());
        tokio::spawn(async move {
            match socket {
                Socket::Tcp(socket) => listener::tcp::run(shared, task_settings, socket, task_removed).await,
                Socket::Udp(socket) => listener::udp::run(shared, task_settings, socket, task_removed).await,
            }
            drop(alive);
        });
        Some(Running { name, transport, address, local, settings, removed })
    }

    /// The names of the listeners, and the addresses on which they listen.
    pub fn addresses(&self) -> Vec<(String, SocketAddr)> {
        let listening = self.shared.listening.load();
        listening.iter().map(|listener| (listener.name.clone(), listener.address)).collect()
    }

    /// The names of the listeners that have one for plain HTTP beside them, and its address.
    pub fn redirect_addresses(&self) -> Vec<(String, SocketAddr)> {
        let redirects = self.redirects.lock().unwrap_or_else(PoisonError::into_inner);
        redirects.iter().map(|redirect| (redirect.name.clone(), redirect.local)).collect()
    }

    /// The metrics in the text format of OpenMetrics.
    pub fn metrics(&self) -> String {
        self.shared.metrics.text()
    }

    /// Stops: the gateway accepts no more clients and aborts handshakes. Established connections may go on for the `shutdown_time` of
    /// the configuration; then they get a close_notify. Dropping the future of this function and calling [`Self::end`] ends them
    /// earlier.
    pub async fn stop(&self) {
        self.shared.phase.send_if_modified(|phase| {
            let is_news = *phase < Phase::Draining;
            *phase = (*phase).max(Phase::Draining);
            is_news
        });
        let time = *self.shutdown_time.lock().unwrap_or_else(PoisonError::into_inner);
        if timeout(time, self.ended()).await.is_err() {
            self.end().await;
        }
    }

    /// Ends all connections with a close_notify, and the gateway.
    pub async fn end(&self) {
        self.shared.phase.send_replace(Phase::Ending);
        let _ = timeout(END_PATIENCE, self.ended()).await;
    }

    /// Waits until all tasks have ended.
    async fn ended(&self) {
        // It fails only if the sender is gone, which is part of the gateway.
        let _ = self.shared.tasks.subscribe().wait_for(|tasks| *tasks == 0).await;
    }
}
