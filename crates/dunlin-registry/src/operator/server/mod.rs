//! The registry and its watches over HTTPS. docs/registry.md lists the paths, and `openapi.json` describes
//! them.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use dunlin::places::PlaceLimits;
use dunlin_identity::Did;
use dunlin_identity::method::dunlin::Operation;
use dunlin_tokio::TlsAcceptor;
use dunlin_tokio::http::{self, HttpRules};
use dunlin_tokio::places::{self, Places};
use hyper::body::Incoming;
use hyper::{Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::operator::error::RegistryError;
use crate::operator::reader::Reader;
use crate::operator::registry::Registry;
use crate::operator::room::Room;
use crate::operator::watch::Watch;
use crate::operator::writer::Answer;

mod api;
mod body;
mod hosts;
mod page;
mod witness;

use body::Content;
use hosts::{Hosts, SITE_HOSTS};

/// The longest time between two requests of a connection.
const IDLE_TIME: Duration = Duration::from_secs(30);

/// How long the body of a request may take.
const BODY_TIME: Duration = Duration::from_secs(10);

/// How long a stopping server waits for requests in progress.
const DRAIN_TIME: Duration = Duration::from_secs(10);

/// The limits of the server's clients.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Simultaneous connections. Further clients wait.
    pub connections: usize,
    /// Simultaneous connections of one host, which for IPv6 is a network of 64 bits. The server closes
    /// further ones. A network of 48 bits counts as four hosts, also for operations.
    pub connections_per_host: usize,
    /// How many operations a host may submit per minute, in the long run.
    pub writes_per_minute: u32,
    /// How many operations a host may submit at once.
    pub write_burst: u32,
    /// How many operations all hosts together may append per minute, in the long run and at once. Refused
    /// operations do not count, since they do not fill the log. Nor do deactivations, and updates of DIDs
    /// that have not changed for [`OWN_INTERVAL`](crate::OWN_INTERVAL): holders must never wait for
    /// strangers.
    pub all_writes_per_minute: u32,
    /// When the database takes this many bytes, with the space reserved for each DID, the server accepts only
    /// deactivations, and one more update of each DID: the log can never become shorter.
    pub database: u64,
    /// Which DIDs may be created.
    pub admission: Admission,
}

/// Which DIDs a server lets be created.
#[derive(Clone, Default)]
pub enum Admission {
    /// All.
    #[default]
    Open,
    /// The DIDs that the function admits. A request waits for the function, so it must not block.
    Listed(Arc<dyn Fn(&Did) -> bool + Send + Sync>),
}

impl Admission {
    fn admits(&self, did: &Did) -> bool {
        match self {
            Self::Open => true,
            Self::Listed(admits) => admits(did),
        }
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "Open",
            Self::Listed(_) => "Listed",
        })
    }
}

impl Default for Limits {
    /// 1024 connections, 64 of one host; 60 operations per minute and host, 100 at once; 6000 per minute of
    /// all hosts; 32 GiB.
    fn default() -> Self {
        Self {
            connections: 1024,
            connections_per_host: 64,
            writes_per_minute: 60,
            write_burst: 100,
            all_writes_per_minute: 6000,
            database: 32 << 30,
            admission: Admission::Open,
        }
    }
}

/// The source of a server's answers: a registry, or a replica of one.
pub trait Source: Deref<Target = Arc<Reader>> + Send + Sync + 'static {
    /// Submits an operation for which the server has this room. `answer` is called when it is on the disk, or
    /// is refused.
    ///
    /// # Errors
    /// The operation is refused at once; `answer` is then never called.
    fn submit_within(&self, operation: Operation, room: Room, answer: Answer) -> Result<(), RegistryError>;

    /// The time, in seconds since 1970.
    fn now_s(&self) -> u64;

    /// Waits until it takes no operations any more.
    fn ended(&self) -> impl Future<Output = ()> + Send;

    /// The signers of checkpoints, for people: each signer's role, and its key or name.
    fn signers(&self) -> Vec<(&'static str, String)>;
}

impl Source for Registry {
    fn submit_within(&self, operation: Operation, room: Room, answer: Answer) -> Result<(), RegistryError> {
        Self::submit_within(self, operation, room, answer)
    }

    fn now_s(&self) -> u64 {
        self.clock_s()
    }

    fn ended(&self) -> impl Future<Output = ()> + Send {
        self.writer_ended()
    }

    fn signers(&self) -> Vec<(&'static str, String)> {
        let pairs = [self.keys()].into_iter().chain(self.next_keys());
        pairs.flat_map(|[log, own]| [("As log", log.to_string()), ("As witness", own.to_string())]).collect()
    }
}

/// The state that all connections share.
struct Shared {
    acceptor: TlsAcceptor,
    hosts: Arc<Hosts>,
}

/// A handler of HTTP requests.
trait Service: Send + Sync + 'static {
    /// Answers a request of this host.
    fn answer(
        &self,
        hosts: &Arc<Hosts>,
        from: IpAddr,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Content>> + Send;

    /// Waits until it can answer no longer.
    fn ended(&self) -> impl Future<Output = ()> + Send;
}

/// The interface of a registry or replica.
struct Interface<S>(Arc<S>);

impl<S: Source> Service for Interface<S> {
    fn answer(
        &self,
        hosts: &Arc<Hosts>,
        from: IpAddr,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Content>> + Send {
        api::answer(&self.0, hosts, from, request)
    }

    fn ended(&self) -> impl Future<Output = ()> + Send {
        self.0.ended()
    }
}

/// Serves a registry or a replica until `stop` is ready, and then completes the requests in progress. The
/// acceptor has the TLS configuration; clients of HTTP offer the ALPN protocol `http/1.1`, or none.
///
/// # Errors
/// The socket has no address; the source no longer writes ([`Source::ended`]). Errors of single connections
/// end these alone.
pub async fn serve<S: Source>(
    registry: Arc<S>,
    socket: TcpListener,
    acceptor: TlsAcceptor,
    limits: Limits,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    tracing::info!(address = %socket.local_addr()?, "the registry answers");
    listen(Arc::new(Interface(registry)), socket, acceptor, limits, stop).await
}

/// Serves a watch, which answers `add-checkpoint` (C2SP tlog-witness), as [`serve`] does a registry. The
/// limits of connections and of a host's operations hold; each request counts as an operation.
///
/// # Errors
/// The socket has no address.
pub async fn serve_watch(
    watch: Arc<Watch>,
    socket: TcpListener,
    acceptor: TlsAcceptor,
    limits: Limits,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    tracing::info!(address = %socket.local_addr()?, "the watch answers");
    listen(Arc::new(witness::Interface(watch)), socket, acceptor, limits, stop).await
}

async fn listen(
    service: Arc<impl Service>,
    socket: TcpListener,
    acceptor: TlsAcceptor,
    limits: Limits,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let places = Arc::new(Semaphore::new(limits.connections));
    let clients = Arc::new(Places::default());
    let per_host = limits.connections_per_host;
    let per_network = per_host.saturating_mul(SITE_HOSTS as usize);
    let of_clients = PlaceLimits { all: usize::MAX, per_host, per_network, silence: None };
    let shared = Arc::new(Shared { acceptor, hosts: Arc::new(Hosts::new(limits)) });
    let (stopping, stopped) = watch::channel(false);
    let mut connections = JoinSet::new();
    let mut stop = pin!(stop);
    let source = Arc::clone(&service);
    let mut ended = pin!(source.ended());
    let served = loop {
        let (tcp, from, place) = tokio::select! {
            () = &mut stop => break Ok(()),
            // The program's supervisor can start it again.
            () = &mut ended => break Err(io::Error::other(RegistryError::Closed)),
            accepted = accept(&socket, &places) => accepted,
            Some(_) = connections.join_next() => continue,
        };
        // Closing is the answer that costs least.
        let Ok(of_host) = clients.settle(from, None, &of_clients) else { continue };
        let service = Arc::clone(&service);
        let shared = Arc::clone(&shared);
        let stopped = stopped.clone();
        connections.spawn(async move {
            connection(&*service, &shared, tcp, from, stopped).await;
            drop((place, of_host));
        });
    };
    drop(socket);
    let _ = stopping.send(true);
    let drained = async { while connections.join_next().await.is_some() {} };
    // Connections that are still open then end with the set.
    let _ = timeout(DRAIN_TIME, drained).await;
    served
}

/// Waits for a place, then for a client.
async fn accept(
    socket: &TcpListener,
    places: &Arc<Semaphore>,
) -> (TcpStream, IpAddr, Result<OwnedSemaphorePermit, AcquireError>) {
    // The semaphore is never closed.
    let place = Arc::clone(places).acquire_owned().await;
    let (tcp, from) = places::accept(socket, |_| {}).await;
    (tcp, from.ip(), place)
}

/// Serves a client until it is done, stays silent, or the server stops.
async fn connection(
    answering: &impl Service,
    shared: &Shared,
    tcp: TcpStream,
    from: IpAddr,
    mut stopped: watch::Receiver<bool>,
) {
    // Answers are small, and each is a write.
    let _ = tcp.set_nodelay(true);
    let mut stopping = pin!(async move {
        // It fails only if the server is gone.
        let _ = stopped.wait_for(|stopped| *stopped).await;
    });
    let tls = tokio::select! {
        tls = shared.acceptor.accept(tcp) => tls,
        () = &mut stopping => return,
    };
    let answer = |request| answering.answer(&shared.hosts, from, request);
    match tls {
        Ok(tls) => {
            http::serve(tls, HttpRules { idle_time: IDLE_TIME, keeps_alive: true }, answer, stopping).await;
        }
        Err(error) => tracing::debug!(client = %from, %error, "TLS handshake failed"),
    }
}
