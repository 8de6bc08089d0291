//! The common part of gateways and tunnels: listeners that a reload adds, keeps and removes, the
//! administrative listener, and an orderly end.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use dunlin::Now;
use dunlin_tokio::places::Places;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::sync::{MutexGuard, watch};
use tokio::time::timeout;

use crate::clock::now;
use crate::config::{AdminConfig, Common, Fault, Faults, Field, Place, TransportKind};
use crate::context::{Context, Listening};
use crate::life::Phase;
use crate::metrics::{Limit, Metrics};
use crate::policy_file::PolicyFile;
use crate::sockets::Sockets;
use crate::{admin, http, proxy};

/// How many connections the system keeps until they are accepted, unless it allows fewer
/// (`net.core.somaxconn`). tokio's 128 are too few: when a whole fleet connects at once, each further client
/// waits a second for its next SYN.
const BACKLOG: u32 = 4096;

/// How long connections may take to end once the service ends them all: each waits for its client this long
/// at most.
const END_PATIENCE: Duration = Duration::from_millis(500 + proxy::tcp::CLOSE_PATIENCE.as_millis() as u64);

/// How long the service waits for listeners that freeze their associations: Redis or a slow disk may need
/// time, and systemd waits 90 s.
const FREEZE_PATIENCE: Duration = Duration::from_secs(60);

/// The socket of a listener.
pub(crate) enum Socket {
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

/// The settings of a listener, complete with the content of its files.
pub(crate) trait Serve: Send + Sync + Sized + 'static {
    /// The name for the log and the metrics.
    fn name(&self) -> &str;
    /// The address to listen on, in which the port may be 0.
    fn address(&self) -> &Field<SocketAddr>;
    /// The protocol on the side of the network. With DTLS, the socket is for UDP.
    fn transport(&self) -> TransportKind;
    /// The most simultaneous connections.
    fn max_connections(&self) -> usize;
    /// Whether this client gets no byte and is not counted.
    fn refuses(&self, context: &Context, from: SocketAddr, now: Now) -> bool;
    /// Whether its connections go on until the service ends all, and are frozen then.
    fn freezes(&self) -> bool {
        false
    }
    /// The policy that chooses the profiles of its clients, if it has one.
    fn policy(&self) -> Option<Arc<PolicyFile>> {
        None
    }
    /// Accepts clients until the service stops or `removed` becomes true. A reload replaces `settings`.
    fn serve(
        context: Arc<Context>,
        settings: Arc<ArcSwap<Self>>,
        socket: Socket,
        removed: watch::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send;
}

/// Accepts clients over TCP until the service stops or `removed` becomes true. `client` serves one, and
/// returns the limit that it has reached.
pub(crate) async fn accept<L: Serve, F>(
    context: Arc<Context>,
    settings: Arc<ArcSwap<L>>,
    socket: TcpListener,
    mut removed: watch::Receiver<bool>,
    client: impl Fn(Arc<Context>, Arc<L>, Arc<Places>, TcpStream, SocketAddr) -> F,
) where
    F: Future<Output = Result<(), Limit>> + Send + 'static,
{
    let places = context.places_of(settings.load().name());
    let name = || settings.load().name().to_owned();
    while let Some((tcp, from)) = context.accept(&places, Phase::Draining, &socket, &mut removed, name).await
    {
        let live = settings.load_full();
        if live.refuses(&context, from, now()) {
            continue;
        }
        let serving = client(context.clone(), live.clone(), places.clone(), tcp, from);
        tokio::spawn(counted(context.clone(), false, live, from, Box::pin(serving)));
    }
}

/// Serves a client, and counts it, from now on as a task. A box keeps `serving` small: a future has room for
/// each of its arguments twice.
pub(crate) fn counted<L: Serve>(
    context: Arc<Context>,
    is_freezable: bool,
    live: Arc<L>,
    from: SocketAddr,
    serving: Pin<Box<impl Future<Output = Result<(), Limit>>>>,
) -> impl Future<Output = ()> {
    let alive = context.life.alive(is_freezable);
    async move {
        let listener = live.name();
        context.metrics.accepted(listener);
        if let Err(limit) = serving.await {
            context.reached_limit(listener, from, limit, now());
        }
        context.metrics.closed(listener);
        drop(alive);
    }
}

/// A listener whose task runs.
pub(crate) struct Running<L> {
    name: String,
    transport: TransportKind,
    /// The address of the configuration, in which the port may be 0.
    address: SocketAddr,
    local: SocketAddr,
    pub(crate) settings: Arc<ArcSwap<L>>,
    removed: watch::Sender<bool>,
}

impl<L: Serve> Running<L> {
    /// Whether the socket of this listener serves these settings. Listeners with a free port are told apart
    /// by their names.
    fn serves(&self, live: &L) -> bool {
        let address = live.address().value;
        self.transport == live.transport()
            && self.address == address
            && (address.port() != 0 || self.name == live.name())
    }
}

/// Takes the socket of a listener from the inherited ones, or binds it.
async fn bind_listener<L: Serve>(live: &L, inherited: &mut Sockets) -> Result<Socket, Fault> {
    if live.transport() == TransportKind::Tls {
        return bind(live.address(), inherited).await.map(Socket::Tcp);
    }
    bind_udp(live.address(), inherited).await.map(Socket::Udp)
}

/// Takes the inherited UDP socket with this address, or binds one.
async fn bind_udp(address: &Field<SocketAddr>, inherited: &mut Sockets) -> Result<UdpSocket, Fault> {
    let Field { value: address, place } = address;
    let socket = match inherited.take_udp(*address) {
        Some(socket) => UdpSocket::from_std(socket),
        None => UdpSocket::bind(address).await,
    };
    socket.map_err(|error| not_bound(*address, place, &error))
}

fn not_bound(address: SocketAddr, place: &Place, error: &std::io::Error) -> Fault {
    let is_taken = error.kind() == std::io::ErrorKind::AddrInUse;
    let advice = if address.ip().is_unspecified() && is_taken {
        "a socket at [::] also serves IPv4 clients: if another listener has this port at [::] or 0.0.0.0, keep the one at [::] alone"
    } else {
        "give a free address of this machine; ports below 1024 need a privilege"
    };
    place.fault(format!("{address}: {error}"), advice)
}

/// A listening socket with this address.
fn listening(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Takes the inherited socket with this address, or binds one.
async fn bind(address: &Field<SocketAddr>, inherited: &mut Sockets) -> Result<TcpListener, Fault> {
    let Field { value: address, place } = address;
    let socket = match inherited.take_tcp(*address) {
        Some(socket) => TcpListener::from_std(socket),
        None => listening(*address),
    };
    socket.map_err(|error| not_bound(*address, place, &error))
}

/// Reads the files of a configuration on a thread that may wait for them.
pub(crate) async fn off_thread<T: Send + 'static>(
    read: impl FnOnce() -> Result<T, Faults> + Send + 'static,
) -> Result<T, Faults> {
    let aborted = |_| Err(Faults::one(Fault::elsewhere("reading the files was aborted", "start again")));
    tokio::task::spawn_blocking(read).await.unwrap_or_else(aborted)
}

/// The administrative listener.
struct Admin {
    /// The address of the configuration, in which the port may be 0.
    address: SocketAddr,
    local: SocketAddr,
    removed: watch::Sender<bool>,
}

/// The listeners of a configuration, with the sockets that are new.
pub(crate) struct Bound<L> {
    pub(crate) listeners: Vec<(Arc<L>, Option<Socket>)>,
    admin: Option<(SocketAddr, TcpListener)>,
    common: Common,
}

/// A gateway or a tunnel, apart from the work of its listeners.
pub(crate) struct Service<L> {
    pub(crate) context: Arc<Context>,
    /// Also the lock of a reload.
    running: tokio::sync::Mutex<Vec<Running<L>>>,
    shutdown_time: Mutex<Duration>,
    admin: Mutex<Option<Admin>>,
    /// Sockets that no listener has taken.
    inherited: tokio::sync::Mutex<Sockets>,
}

impl<L: Serve> Service<L> {
    /// A service without listeners. Later ones take the sockets with their addresses.
    pub(crate) fn new(metrics: Metrics, sockets: Sockets) -> Self {
        Self {
            context: Arc::new(Context::new(metrics)),
            running: tokio::sync::Mutex::default(),
            shutdown_time: Mutex::default(),
            admin: Mutex::default(),
            inherited: tokio::sync::Mutex::new(sockets),
        }
    }

    /// Logs the inherited sockets that no listener has taken.
    pub(crate) async fn warn_of_sockets(&self) {
        for address in self.inherited.lock().await.addresses() {
            let advice = "add a listener with this address, or remove it from the unit of the sockets";
            tracing::warn!(%address, "no listener has the address of an inherited socket; {advice}");
        }
    }

    /// Binds a UDP socket, or takes the inherited one with this address.
    pub(crate) async fn bind_datagrams(&self, address: &Field<SocketAddr>) -> Result<UdpSocket, Fault> {
        bind_udp(address, &mut *self.inherited.lock().await).await
    }

    /// Takes the inherited socket with this address, or binds one.
    pub(crate) async fn bind_one(&self, address: &Field<SocketAddr>) -> Result<TcpListener, Fault> {
        bind(address, &mut *self.inherited.lock().await).await
    }

    /// Waits for other reloads. The caller reads its files under the lock, so that the later reload has the
    /// later files.
    pub(crate) async fn lock(&self) -> MutexGuard<'_, Vec<Running<L>>> {
        self.running.lock().await
    }

    /// Binds the missing sockets of these listeners. A listener with the address of a running one keeps its
    /// socket.
    ///
    /// # Errors
    /// `faults`, and all addresses that cannot be bound.
    pub(crate) async fn bind(
        &self,
        running: &[Running<L>],
        listeners: Vec<L>,
        common: Common,
        mut faults: Vec<Fault>,
    ) -> Result<Bound<L>, Faults> {
        let mut sockets = vec![];
        let mut inherited = self.inherited.lock().await;
        for live in &listeners {
            if running.iter().any(|listener| listener.serves(live)) {
                sockets.push(None);
                continue;
            }
            match bind_listener(live, &mut inherited).await {
                Ok(socket) => sockets.push(Some(socket)),
                Err(fault) => faults.push(fault),
            }
        }
        let admin = match &common.admin {
            Some(AdminConfig { listen, .. }) if !self.has_admin(listen.value) => bind(listen, &mut inherited)
                .await
                .map_err(|fault| faults.push(fault))
                .ok()
                .map(|socket| (listen.value, socket)),
            _ => None,
        };
        Faults::none_in(faults)?;
        Ok(Bound { listeners: listeners.into_iter().map(Arc::new).zip(sockets).collect(), admin, common })
    }

    /// Replaces the listeners by these, which does not fail.
    pub(crate) fn replace(&self, mut running: MutexGuard<'_, Vec<Running<L>>>, bound: Bound<L>) {
        let Bound { listeners, admin, common } = bound;
        let has_admin = common.admin.is_some();
        self.context.admin_hosts.store(Arc::new(common.admin.map(|admin| admin.hosts).unwrap_or_default()));
        self.replace_admin(has_admin, admin);
        *self.shutdown_time.lock().unwrap_or_else(PoisonError::into_inner) = common.shutdown_time;
        let mut next = vec![];
        for (live, socket) in listeners {
            let name = live.name().to_owned();
            match socket {
                Some(socket) => next.extend(self.begin(live, socket)),
                None => {
                    let Some(at) = running.iter().position(|listener| listener.serves(&*live)) else {
                        continue;
                    };
                    let listener = running.swap_remove(at);
                    listener.settings.store(live);
                    next.push(Running { name, ..listener });
                }
            }
        }
        let listening = next.iter().map(|listener: &Running<L>| {
            let settings = listener.settings.load();
            Listening {
                name: listener.name.clone(),
                transport: listener.transport,
                address: listener.local,
                max_connections: settings.max_connections(),
                policy: settings.policy(),
            }
        });
        self.context.listening.store(Arc::new(listening.collect()));
        for removed in std::mem::replace(&mut *running, next) {
            tracing::info!(listener = removed.name, address = %removed.local, "listener removed");
            removed.removed.send_replace(true);
        }
        self.context.changed.send_replace(());
    }

    /// Begins to accept clients.
    fn begin(&self, live: Arc<L>, socket: Socket) -> Option<Running<L>> {
        let name = live.name().to_owned();
        let address = live.address().value;
        let transport = live.transport();
        let local = socket.local_addr().ok()?;
        tracing::info!(listener = name, address = %local, "listening");
        let freezes = live.freezes();
        let settings = Arc::new(ArcSwap::new(live));
        let removed = watch::Sender::new(false);
        let (context, alive) = (self.context.clone(), self.context.life.alive(freezes));
        let task_settings = settings.clone();
        let task_removed = removed.subscribe();
        tokio::spawn(async move {
            L::serve(context, task_settings, socket, task_removed).await;
            drop(alive);
        });
        Some(Running { name, transport, address, local, settings, removed })
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
            let context = self.context.clone();
            let answers = move || admin::Admin(context.clone());
            tokio::spawn(http::run(self.context.clone(), answers, socket, removed.subscribe()));
            Some(Admin { address, local, removed })
        });
    }

    /// The address of the administrative listener.
    pub(crate) fn admin_address(&self) -> Option<SocketAddr> {
        let admin = self.admin.lock().unwrap_or_else(PoisonError::into_inner);
        admin.as_ref().map(|admin| admin.local)
    }

    /// The names of the listeners, and the addresses on which they listen.
    pub(crate) fn addresses(&self) -> Vec<(String, SocketAddr)> {
        let listening = self.context.listening.load();
        listening.iter().map(|listener| (listener.name.clone(), listener.address)).collect()
    }

    /// Accepts no more clients, lets established connections end within `shutdown_time`, then ends them.
    pub(crate) async fn stop(&self) {
        let time = *self.shutdown_time.lock().unwrap_or_else(PoisonError::into_inner);
        let life = &self.context.life;
        life.drain();
        let _ = timeout(time, life.drained()).await;
        if !life.is_over() {
            self.end().await;
        }
    }

    /// Ends all connections at once, or freezes them.
    pub(crate) async fn end(&self) {
        let life = &self.context.life;
        life.end();
        if timeout(END_PATIENCE, life.over()).await.is_err() {
            let _ = timeout(FREEZE_PATIENCE, life.frozen()).await;
        }
    }
}
