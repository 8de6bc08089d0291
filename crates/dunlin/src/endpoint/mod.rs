//! Many associations on one socket: the connection of each datagram, and the limits on connections.
//!
//! [`routes`] finds associations by connection ID and by the peer's address. A ClientHello that no
//! association knows goes to a connection that is forgotten again unless the client has returned a cookie.
//! [`table`] has the associations by name, [`index`] has their routes, deadlines and events, and [`frozen`]
//! hands associations over to another process. Associations with a port of their own get it from the pool of
//! [`ports`]; [`follow`] is the client's side of IPC.

mod association;
#[cfg_attr(not(feature = "association-ports"), path = "no_follow.rs")]
mod follow;
mod frozen;
mod index;
mod limits;
#[cfg_attr(not(feature = "association-ports"), path = "no_ports.rs")]
mod ports;
mod routes;
mod table;
mod tally;

use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use crate::address::{Local, Path, ServerAddress};
use crate::auth::PeerIdentity;
use crate::config::{ClientConfig, ServerConfig};
use crate::connection::{DtlsConnection, Standing, Transmit};
use crate::error::{Error, Misuse};
use crate::places::{HandshakeLimit, Handshakes, Host, PlaceLimit, Places};
use crate::protocol::Side;
use crate::record::datagram::{Claim, Hello};
use crate::settings::NoPort;
use crate::time::{Instant, Now};
use crate::wire::AlertDescription;

pub use association::{Association, Ended};
use follow::Following;
use index::Index;
pub use limits::{EndpointDiscarded, EndpointLimits, PortCounts};
use ports::Pool;
use routes::{Key, Route};
pub use table::AssociationId;
use table::{MAX_ASSOCIATIONS, Table};

/// The most datagrams that wait for transmission without an association: demands for cookies, alerts and last
/// words. Beyond it they are lost, and clients ask again.
const MAX_STRAY: usize = 256;

/// The most waiting events about handshakes that failed at once; [`EndpointDiscarded::failed`] counts all.
const MAX_FAILURES: usize = 64;

/// An event at an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndpointEvent {
    /// A client has begun a handshake. The caller removes the association in the end, also after a failure.
    Incoming(AssociationId),
    /// A client at this address has proven its address, but its handshake failed with its ClientHello. The
    /// endpoint keeps nothing of it. A client that repeats the ClientHello fails again.
    Failed(SocketAddr, Error),
    /// The association has perhaps events, data or an error, or was ended ([`Association::ended`]). Changes
    /// by [`Endpoint::update`] raise no event, unless they end the association.
    Changed(AssociationId),
    /// An association has no port of its own ([`crate::PortScheme`]), for this reason. It is an ordinary one.
    NoPort(AssociationId, NoPort),
}

/// DTLS connections on one socket, as client and server. Like [`DtlsConnection`], it has no I/O and no clock.
///
/// The caller passes each received datagram to [`Endpoint::receive`], transmits what
/// [`Endpoint::poll_transmit`] returns, and calls [`Endpoint::handle_timeout`] at the time that
/// [`Endpoint::poll_timeout`] names. [`Endpoint::poll_event`] names the associations that need attention, and
/// [`Endpoint::update`] gives access to their connections.
///
/// * A datagram belongs to the association whose connection ID it has, wherever it comes from; without an ID,
///   to the one with its sender's address. The configurations say which IDs an association gives
///   ([`ServerConfig::with_connection_ids`], [`crate::NodeIds`]), and whether an association follows its peer
///   to another address ([`crate::Migration`]).
/// * A server that demands cookies keeps nothing of a client before it has returned one, apart from a few
///   incomplete ClientHellos ([`EndpointLimits::partial_hellos`]).
/// * A ClientHello from the address of an association begins a handshake beside it. Only the end of that
///   handshake supersedes the association, since anyone can forge the address (RFC 9147 §5.11, RFC 6347
///   §4.2.8). A client without an identity does not supersede an association whose peer has one.
/// * A client gets its place at the end of its handshake. At a limit, another client gives way, or this one
///   is refused ([`crate::places`]).
/// * Associations without connection IDs can have a port of their own ([`crate::PortScheme`]). Then a
///   datagram belongs to the association at whose port it has arrived, wherever it comes from.
///
/// # Examples
/// A client and a server, without a network between them.
/// ```
/// use std::net::SocketAddr;
/// use std::sync::Arc;
///
/// use dunlin::auth::{Psk, PskTable};
/// use dunlin::{
///     ClientConfig, Endpoint, EndpointEvent, EndpointLimits, Now, Profile, PskSource, ServerAddress,
///     ServerConfig,
/// };
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let profile = Profile::builder(Arc::new(dunlin_awslc::provider())).build()?;
/// let key = || Psk::new("device-1", &[7; 32]);
/// let config = Arc::new(ClientConfig::new(profile.clone()).with_psks(vec![Arc::new(key()?)]));
/// let keys = PskSource::Here(Arc::new(PskTable::from_iter([key()?])));
///
/// let now = Now::from_unix_ms(1_767_225_600_000);
/// let [here, there]: [SocketAddr; 2] = ["10.0.0.1:40000".parse()?, "10.0.0.2:5684".parse()?];
/// let mut client = Endpoint::new(EndpointLimits::default());
/// let mut server = Endpoint::new(EndpointLimits::default());
/// server.set_server(Some(Arc::new(ServerConfig::psk_only(profile, keys)?)));
///
/// let device = client.connect(&config, ServerAddress::parse("example.org", 5684)?, there, now)?;
/// let mut served = None;
/// loop {
///     let sent = client.poll_transmit(now);
///     let answer = server.poll_transmit(now);
///     if sent.is_none() && answer.is_none() {
///         break;
///     }
///     sent.iter().for_each(|sent| server.receive(now, here, &sent.datagram));
///     answer.iter().for_each(|answer| client.receive(now, there, &answer.datagram));
///     while let Some(event) = server.poll_event() {
///         if let EndpointEvent::Incoming(id) = event {
///             served = Some(id);
///         }
///     }
/// }
/// client.update(device, |connection| connection.send(b"21.5 C")).ok_or("gone")??;
/// let sent = client.poll_transmit(now).ok_or("nothing to transmit")?;
/// server.receive(now, here, &sent.datagram);
/// let data = server.update(served.ok_or("no client")?, |connection| connection.read()).flatten();
/// assert_eq!(data.as_deref(), Some(&b"21.5 C"[..]));
/// # Ok(())
/// # }
/// ```
pub struct Endpoint {
    server: Option<Arc<ServerConfig>>,
    /// Says whose ClientHellos get no answer.
    is_refused: Option<Box<dyn Fn(SocketAddr) -> bool + Send + Sync>>,
    limits: EndpointLimits,
    associations: Table<Association>,
    index: Index,
    handshakes: Handshakes,
    places: Places,
    pool: Pool,
    /// The clients that follow their server to another port, by its address.
    followers: BTreeMap<IpAddr, AssociationId>,
    /// Incomplete ClientHellos by the address of their sender.
    partial: BTreeMap<SocketAddr, Partial>,
    /// The number of incomplete ClientHellos so far.
    partial_begun: u64,
    /// Output without an association.
    stray: VecDeque<Transmit>,
    /// The number of events about handshakes that failed at once.
    failures: usize,
    discarded: EndpointDiscarded,
}

/// An incomplete ClientHello.
struct Partial {
    connection: Box<DtlsConnection>,
    /// Its place in the order of arrival of the latest fragments.
    number: u64,
    /// The bytes of its datagrams.
    received: u64,
}

impl Endpoint {
    /// An endpoint that is only a client until [`Endpoint::set_server`].
    pub const fn new(limits: EndpointLimits) -> Self {
        Self {
            server: None,
            is_refused: None,
            limits,
            associations: Table::new(),
            index: Index::new(limits.idle),
            handshakes: Handshakes::new(),
            places: Places::new(),
            pool: Pool::new(),
            followers: BTreeMap::new(),
            partial: BTreeMap::new(),
            partial_begun: 0,
            stray: VecDeque::new(),
            failures: 0,
            discarded: EndpointDiscarded::NONE,
        }
    }

    /// Sets the configuration for new clients. `None` accepts no more clients; present associations continue.
    ///
    /// A configuration without the cookie keys of the previous one ([`ServerConfig::with_cookie_keys`])
    /// rejects clients that have just received a cookie.
    pub fn set_server(&mut self, config: Option<Arc<ServerConfig>>) {
        if config.is_none() {
            self.partial.clear();
        }
        self.server = config;
    }

    /// Changes the limits. Associations beyond a lower limit stay; they give way when clients come.
    pub fn set_limits(&mut self, limits: EndpointLimits) {
        self.limits = limits;
        self.index.idle = limits.idle;
    }

    /// Adds ports to the pool for associations without connection IDs ([`crate::PortScheme`]): each with the
    /// caller's number for its socket, which is bound to the same address as the welcome port and not
    /// connected. Datagrams from there have this number in their [`Path`], and [`Transmit::local`] names it.
    ///
    /// # Errors
    /// [`Misuse::Config`] if `ports` is empty, has a port or socket twice or with the number 0, if the pool
    /// has too many, or if this build lacks association ports ([`crate::PortScheme::AVAILABLE`]).
    pub fn add_ports(&mut self, ports: impl IntoIterator<Item = (Local, u16)>) -> Result<(), Error> {
        self.pool.add(ports)
    }

    /// Counts about the ports of associations.
    pub const fn ports(&self) -> PortCounts {
        self.pool.counts
    }

    /// Connects to `server` at the address `peer`.
    ///
    /// # Errors
    /// [`Misuse::AddressInUse`] if there is an association with this address, or a client that follows its
    /// server ([`crate::PortScheme::Ipc`]) on the same host before the end of its handshake;
    /// [`Misuse::EndpointFull`] at the limit of associations, and the errors of [`DtlsConnection::client`].
    pub fn connect(
        &mut self,
        config: &Arc<ClientConfig>,
        server: ServerAddress,
        peer: impl Into<Path>,
        now: Now,
    ) -> Result<AssociationId, Error> {
        let path = peer.into().without_flow();
        let peer = path.peer;
        let follows = config.datagram.port_scheme.is_some_and(|scheme| scheme.is_ipc());
        let is_followed = follows && self.followers.contains_key(&peer.ip());
        if is_followed || !self.index.routes.get(peer).is_empty() {
            return Err(Misuse::AddressInUse.into());
        }
        if self.associations.len() >= self.limits.associations {
            return Err(Misuse::EndpointFull.into());
        }
        let connection = DtlsConnection::client(config, server, path, now)?;
        let mut association = Association::new(connection);
        if follows {
            association.following =
                Some(Box::new(Following::new(peer, config.datagram.retransmission.first)));
        }
        let id = self.insert(association);
        if follows {
            self.followers.insert(peer.ip(), id);
        }
        self.index.routes.set(peer, Route { live: Some(id), ..Route::default() });
        self.refresh(id);
        Ok(id)
    }

    /// Whether the first record of a datagram has a connection ID of an association here. Then
    /// [`Endpoint::receive`] gives it to this association. A caller with several endpoints or machines asks
    /// before it gives a datagram to another one ([`crate::NodeMask`]).
    pub fn has_id_of(&self, datagram: &[u8]) -> bool {
        self.index.routes.with_id_of(datagram).iter().any(Option::is_some)
    }

    /// Processes a datagram received over the path `from`: with a single socket, the sender's address.
    pub fn receive(&mut self, now: Now, from: impl Into<Path>, datagram: &[u8]) {
        self.receive_over(now, from.into().without_flow(), datagram);
    }

    fn receive_over(&mut self, now: Now, path: Path, datagram: &[u8]) {
        let from = path.peer;
        match self.pool.user(path.local) {
            Some(Some(id)) => return self.deliver(now, path, id, datagram),
            // A port of the pool does not answer strangers.
            Some(None) => return self.pool.counts.stray += 1,
            None => {}
        }
        let with_id = self.index.routes.with_id_of(datagram);
        if with_id.iter().any(Option::is_some) {
            with_id.into_iter().flatten().for_each(|id| self.deliver(now, path, id, datagram));
            return;
        }
        if let Some(id) = self.follower(from, datagram) {
            return self.follow(now, path, id, datagram);
        }
        let route = self.index.routes.get(from);
        if let Some(hello) = Hello::read(datagram)
            && self.is_new(route, from, hello)
        {
            self.begin(now, path, datagram, hello);
            if hello.random.is_none() {
                // It may also belong to the ClientHello of a half-open handshake, which the client repeats.
                let is_half_open =
                    |id: &AssociationId| self.associations.get(id).is_some_and(|a| a.is_half_open);
                let half_open = route.next.map(|id| id.filter(is_half_open));
                half_open.into_iter().flatten().for_each(|id| self.deliver(now, path, id, datagram));
            }
            return;
        }
        if route.is_empty() {
            self.discarded.unknown += 1;
        }
        // Only the keys tell which of two associations a protected record belongs to.
        route.ids().for_each(|id| self.deliver(now, path, id, datagram));
    }

    fn deliver(&mut self, now: Now, from: Path, id: AssociationId, datagram: &[u8]) {
        if let Some(association) = self.associations.get_mut(&id) {
            association.tally.received += datagram.len() as u64;
            // The connection keeps its error.
            let _ = association.connection.receive(now, from, datagram);
            self.index.announce(id, association);
            self.refresh(id);
        }
    }

    /// Whether answers to strangers wait for [`Endpoint::poll_transmit`]. Each has cost more than a record of
    /// an association. In a flood of ClientHellos, a caller sends them and does its other work before it
    /// receives more.
    pub fn answers_strangers(&self) -> bool {
        !self.stray.is_empty()
    }

    /// Takes the next datagram to transmit. Call it until it returns `None`, then call
    /// [`Endpoint::poll_timeout`]. Associations take turns, so much output of one does not delay the others.
    pub fn poll_transmit(&mut self, now: Now) -> Option<Transmit> {
        if let Some(transmit) = self.stray.pop_front() {
            return Some(transmit);
        }
        while let Some(id) = self.index.next_sender() {
            let Some(association) = self.associations.get_mut(&id) else { continue };
            association.is_sending = false;
            if association.ended != Some(Ended::Superseded)
                && let Some(transmit) = association.connection.poll_transmit(now)
            {
                association.tally.transmit(transmit.datagram.len(), &association.connection);
                if association.connection.has_output() {
                    self.index.send(id, association);
                } else {
                    self.index.file_deadline(id, association);
                }
                return Some(transmit);
            }
            self.index.file_deadline(id, association);
        }
        // An idle endpoint keeps no memory for its queues.
        self.index.shrink();
        self.stray = VecDeque::new();
        None
    }

    /// When to call [`Endpoint::handle_timeout`], on the monotonic clock. `None` if no timer runs.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let partial = self.partial.values().filter_map(|partial| partial.connection.poll_timeout());
        partial.chain(self.index.next_deadline()).min()
    }

    /// Handles the timers whose deadline has come. Then there may be more to transmit.
    pub fn handle_timeout(&mut self, now: Now) {
        let kept = self.partial.len();
        let is_due =
            |partial: &Partial| partial.connection.poll_timeout().is_some_and(|at| at <= now.monotonic);
        self.partial.retain(|_, partial| !is_due(partial));
        self.discarded.partial += (kept - self.partial.len()) as u64;
        for id in self.index.take_due(now.monotonic) {
            let Some(association) = self.associations.get_mut(&id) else { continue };
            association.deadline = None;
            self.check_attempt(id, Some(now));
            let Some(association) = self.associations.get_mut(&id) else { continue };
            if association.connection.poll_timeout().is_some_and(|deadline| deadline <= now.monotonic) {
                // The connection keeps its error.
                let _ = association.connection.handle_timeout(now);
                self.index.announce(id, association);
            }
            association.connection.expire_keys(now);
            if association.connection.rest_at().is_some_and(|at| at <= now.monotonic) {
                association.connection.rest();
            }
            if self.index.idle_since(association).is_some_and(|deadline| deadline <= now.monotonic) {
                self.end(id, Ended::Idle);
            }
            self.refresh(id);
            if let Some(association) = self.associations.get_mut(&id) {
                self.index.file_deadline(id, association);
            }
        }
    }

    /// Takes the next event.
    pub fn poll_event(&mut self) -> Option<EndpointEvent> {
        let event = self.index.next_event();
        match &event {
            Some(EndpointEvent::Changed(id)) => {
                if let Some(association) = self.associations.get_mut(id) {
                    association.is_announced = false;
                }
            }
            Some(EndpointEvent::Failed(..)) => self.failures = self.failures.saturating_sub(1),
            _ => {}
        }
        event
    }

    /// The association with this name, until it is removed.
    pub fn association(&self, id: AssociationId) -> Option<&Association> {
        self.associations.get(&id)
    }

    /// Calls `f` with the connection of an association, then notes its changes. `None` if it was removed.
    ///
    /// Do not transmit what the connection has to send: [`Endpoint::poll_transmit`] returns it.
    pub fn update<R>(&mut self, id: AssociationId, f: impl FnOnce(&mut DtlsConnection) -> R) -> Option<R> {
        let association = self.associations.get_mut(&id)?;
        let had_ended = association.has_ended();
        let result = f(&mut association.connection);
        if association.has_ended() && !had_ended {
            // Other tasks of the caller may wait for this association.
            self.index.announce(id, association);
        }
        self.refresh(id);
        Some(result)
    }

    /// Removes an association. If its connection is still open, the peer gets a close_notify.
    pub fn remove(&mut self, now: Now, id: AssociationId) {
        self.stop_following(id);
        self.release_port(id);
        self.give_back(id);
        let Some(mut association) = self.associations.remove(&id) else { return };
        self.index.forget(id, &mut association);
        if let Some(host) = association.host {
            self.handshakes.end(host, id.number());
        }
        if association.ended == Some(Ended::Superseded) {
            return;
        }
        association.connection.close();
        while let Some(transmit) = association.connection.poll_transmit(now) {
            self.stray(transmit);
        }
    }

    /// The number of associations, ended ones included.
    pub fn len(&self) -> usize {
        self.associations.len()
    }

    /// Whether there is no association.
    pub fn is_empty(&self) -> bool {
        self.associations.is_empty()
    }

    /// The number of handshakes of clients that are not complete.
    pub fn half_open(&self) -> usize {
        self.handshakes.len()
    }

    /// Counts of what was discarded so far.
    pub const fn discarded(&self) -> EndpointDiscarded {
        self.discarded
    }

    /// Whether a ClientHello begins a new handshake. The random of an association marks a retransmission.
    fn is_new(&self, route: Route, from: SocketAddr, hello: Hello) -> bool {
        let mut associations = route.ids().filter_map(|id| self.associations.get(&id));
        match hello.random {
            Some(random) => associations.all(|association| !association.has_random(&random)),
            // A later fragment belongs to a new ClientHello if its first one does.
            None => route.is_empty() || self.partial.contains_key(&from),
        }
    }

    /// Sets a function that says, by the address of its sender, whether to discard the ClientHello of a new
    /// client without an answer. The address may be forged. Associations go on.
    pub fn set_refusal(&mut self, is_refused: impl Fn(SocketAddr) -> bool + Send + Sync + 'static) {
        self.is_refused = Some(Box::new(is_refused));
    }

    /// Lets a new connection answer a ClientHello, and keeps the connection only if the client may have one.
    fn begin(&mut self, now: Now, path: Path, datagram: &[u8], hello: Hello) {
        let from = path.peer;
        let route = self.index.routes.get(from);
        let Some(config) = self.server.clone().filter(|_| !self.is_connecting(route)) else {
            self.discarded.unwanted += 1;
            return;
        };
        if self.is_refused.as_ref().is_some_and(|is_refused| is_refused(from)) {
            self.discarded.unwanted += 1;
            return;
        }
        if !self.has_room() {
            self.discarded.full += 1;
            return;
        }
        // A whole ClientHello needs nothing that was kept, and may be forged.
        let partial = if hello.is_whole { None } else { self.partial.remove(&from) };
        let (mut connection, before) = match partial {
            Some(partial) => (partial.connection, partial.received),
            None => (Box::new(DtlsConnection::server(&config, path, now)), 0),
        };
        let received = before + datagram.len() as u64;
        if config.datagram.port_scheme.is_some() || config.choose_profile {
            connection.offer_port(self.pool.next(Host::of(from.ip()), self.limits.ports_per_host));
        }
        // An error appears in the standing.
        let _ = connection.receive(now, path, datagram);
        match connection.standing(&config) {
            Standing::Admitted if connection.error().is_none() => {
                self.partial.remove(&from);
                let mut association = Association::new(*connection);
                association.tally.received = received;
                self.admit(from, association);
            }
            Standing::PartOfHello => self.keep_part(from, connection, received),
            standing => {
                if standing == Standing::Admitted {
                    self.fail(from, connection.error().cloned());
                }
                while let Some(transmit) = connection.poll_transmit(now) {
                    self.stray(transmit);
                }
            }
        }
    }

    /// Whether there is room for a handshake. An older one gives way, but stays until the caller removes it.
    fn has_room(&self) -> bool {
        let limits = &self.limits;
        let handshakes = limits.half_open.min(limits.half_open_per_host);
        let most =
            self.places.len().max(limits.associations).saturating_add(limits.half_open.saturating_mul(2));
        handshakes > 0 && self.associations.len() < most.min(MAX_ASSOCIATIONS)
    }

    /// Whether this side is connecting to the address of this route as a client.
    fn is_connecting(&self, route: Route) -> bool {
        let live = route.live.and_then(|id| self.associations.get(&id));
        live.is_some_and(|live| live.connection.side() == Side::Client && live.connection.is_handshaking())
    }

    /// Reports a handshake that failed with its ClientHello.
    fn fail(&mut self, from: SocketAddr, error: Option<Error>) {
        self.discarded.failed += 1;
        if let Some(error) = error
            && self.failures < MAX_FAILURES
        {
            self.failures += 1;
            self.index.event(EndpointEvent::Failed(from, error));
        }
    }

    fn admit(&mut self, from: SocketAddr, mut association: Association) {
        let is_taken = |id| Key::new(id).is_some_and(|key| self.index.routes.with_key(key).next().is_some());
        if association.connection.connection_ids().any(is_taken) {
            // The client repeats its ClientHello, and then gets another ID.
            association.connection.abort(AlertDescription::USER_CANCELED);
            self.discarded.full += 1;
            return;
        }
        // A client that begins anew leaves its unfinished handshake. But an attacker who sees the demand for
        // a cookie can begin one in the client's name, so the oldest handshake stays until one is complete
        // (RFC 9147 §5.11 protects complete ones).
        if let [_, Some(newer)] = self.index.routes.get(from).next {
            self.end(newer, Ended::Superseded);
        }
        let host = Host::of(from.ip());
        if let Some((other, limit)) = self.excess(host) {
            self.discarded.displaced += 1;
            self.end(other, Ended::Displaced(limit));
        }
        let claim = association.connection.port_claim();
        if let Claim::Port(local) = claim {
            association.port = Some(local);
        }
        let id = self.insert(association);
        if let Claim::Port(local) = claim {
            self.pool.take(local, host, id);
        }
        self.handshakes.begin(host, id.number());
        let route = self.index.routes.get(from).with_next(id);
        self.index.routes.set(from, route);
        self.index.event(EndpointEvent::Incoming(id));
        if let Some(association) = self.associations.get_mut(&id) {
            self.index.announce(id, association);
        }
        self.refresh(id);
    }

    /// The handshake that gives way to one with this host, and the limit behind it.
    fn excess(&self, host: Host) -> Option<(AssociationId, HandshakeLimit)> {
        let (number, limit) = if self.handshakes.of_host(host) >= self.limits.half_open_per_host {
            (self.handshakes.oldest_of(host)?, HandshakeLimit::PerHost)
        } else if self.handshakes.len() >= self.limits.half_open {
            (self.handshakes.gives_way()?, HandshakeLimit::All)
        } else {
            return None;
        };
        Some((self.associations.numbered(number)?, limit))
    }

    /// Keeps an incomplete ClientHello. If there are too many, drops the one with the fewest received bytes,
    /// among the older half: small forged fragments flush each other, and no forger keeps later clients out.
    fn keep_part(&mut self, from: SocketAddr, connection: Box<DtlsConnection>, received: u64) {
        let number = self.partial_begun;
        self.partial_begun += 1;
        self.partial.insert(from, Partial { connection, number, received });
        if self.partial.len() > self.limits.partial_hellos {
            let mut numbers: Vec<_> = self.partial.values().map(|partial| partial.number).collect();
            let (_, median, _) = numbers.select_nth_unstable((self.partial.len() - 1) / 2);
            let older = self.partial.iter().filter(|(_, partial)| partial.number <= *median);
            let least = older.min_by_key(|(_, partial)| (partial.connection.kept_bytes(), partial.number));
            if let Some(least) = least.map(|(address, _)| *address) {
                self.partial.remove(&least);
                self.discarded.partial += 1;
            }
        }
    }

    fn stray(&mut self, transmit: Transmit) {
        if self.stray.len() < MAX_STRAY { self.stray.push_back(transmit) } else { self.discarded.output += 1 }
    }

    fn insert(&mut self, association: Association) -> AssociationId {
        self.associations.insert(association)
    }

    /// Takes back the port of an association.
    fn release_port(&mut self, id: AssociationId) {
        if let Some(association) = self.associations.get_mut(&id)
            && let (Some(local), Some(host)) = (association.port.take(), association.host)
        {
            self.pool.release(local, host);
        }
    }

    /// Takes note of the claim of a server's connection on the pool.
    fn check_port(&mut self, id: AssociationId) {
        let Some(association) = self.associations.get_mut(&id) else { return };
        let claim = association.connection.port_claim();
        if association.port.is_some() && (claim == Claim::Nothing || association.has_ended()) {
            self.release_port(id);
        } else if let Claim::Missing(why) = claim
            && association.lacks_port.replace(why).is_none()
        {
            self.release_port(id);
            self.pool.refuse(why);
            self.index.event(EndpointEvent::NoPort(id, why));
        }
    }

    /// Takes note of a change of an association.
    fn refresh(&mut self, id: AssociationId) {
        let Some(association) = self.associations.get_mut(&id) else { return };
        association.tally.check(&association.connection);
        let (follows, may_have_port) =
            (association.following.is_some(), association.is_half_open || association.port.is_some());
        if follows {
            self.check_attempt(id, None);
        }
        if may_have_port {
            self.check_port(id);
        }
        let Some(association) = self.associations.get(&id) else { return };
        if association.is_half_open && !association.connection.is_handshaking() {
            self.end_handshake(id);
        } else if association.has_ended() {
            self.give_back(id);
        }
        if let Some(association) = self.associations.get_mut(&id) {
            self.index.refresh(id, association);
        }
    }

    /// Gives an association of a client its place, since its handshake is complete or has failed.
    fn end_handshake(&mut self, id: AssociationId) {
        let Some(association) = self.associations.get_mut(&id) else { return };
        association.is_half_open = false;
        let address = association.address;
        let is_authenticated = association.is_authenticated();
        let peer = association.peer().cloned();
        if let Some(host) = association.host {
            self.handshakes.end(host, id.number());
        }
        if association.has_ended() {
            return;
        }
        // RFC 9147 §5.11 ends the previous association "to avoid confusion". Connection IDs and ports exclude
        // that: a NAT may have given the address of a sleeping peer to another one.
        let previous = self.index.routes.get(address).live.filter(|id| {
            let previous = self.associations.get(id);
            !previous.is_some_and(|previous| previous.is_found_anywhere() && !previous.is_with(peer.as_ref()))
        });
        // RFC 9147 §5.11: an attacker at the address must not end an association whose peer has proven more.
        if !is_authenticated
            && let Some(previous) = previous.and_then(|id| self.associations.get(&id))
            && previous.is_authenticated()
        {
            self.end(id, Ended::Anonymous);
            return;
        }
        // RFC 6347 §4.2.8: after the client's Finished, the server abandons the previous association. The
        // other handshake at the address is one that the client has left, or that an attacker has begun.
        let others = self.index.routes.get(address).next;
        self.index.routes.set(address, Route { live: Some(id), ..Route::default() });
        for other in others.into_iter().flatten().filter(|other| *other != id).chain(previous) {
            self.end(other, Ended::Superseded);
        }
        if let Err(limit) = self.settle(id) {
            self.end(id, Ended::Refused(limit));
        }
    }

    /// Gives the association of a client its place. At a limit, another one gives way.
    ///
    /// # Errors
    /// The limit at which the association has to end, since no other one gives way.
    fn settle(&mut self, id: AssociationId) -> Result<(), PlaceLimit> {
        let Some((number, now_ms)) = self.enter(id) else { return Ok(()) };
        let made = self.places.make_room(number, &self.limits.places(), now_ms, &mut self.associations);
        if let Some((other, why)) = made.inspect_err(|limit| self.discarded.refuse(*limit))? {
            self.discarded.gave_way += 1;
            let other = self.associations.at(other as usize);
            other.into_iter().for_each(|other| self.end(other, Ended::GaveWay(why)));
        }
        Ok(())
    }

    /// Gives the association of a client its place, whatever the limits. Returns the number of the place, and
    /// the time in milliseconds; `None` for a server's association, which has no place.
    fn enter(&mut self, id: AssociationId) -> Option<(u32, i64)> {
        let association = self.associations.get_mut(&id)?;
        let host = association.host?;
        let connection = &association.connection;
        let (heard_ms, now) = (connection.heard_ms(), connection.clock().monotonic);
        let identity = association.peer().map(PeerIdentity::label);
        // Places of the table have fewer than 32 bits.
        let number = id.place() as u32;
        let place = self.places.enter(number, host, identity, heard_ms, &mut self.associations);
        self.associations.get_mut(&id)?.place = Some(place);
        Some((number, i64::try_from(now.0).unwrap_or(i64::MAX)))
    }

    /// Takes the place of an association back.
    fn give_back(&mut self, id: AssociationId) {
        if let Some(association) = self.associations.get_mut(&id)
            && let Some((host, place)) = association.host.zip(association.place.take())
        {
            self.places.leave(host, &place, &mut self.associations);
        }
    }

    /// Ends an association. Its last words leave with the next output, unless a newer one has the same peer.
    fn end(&mut self, id: AssociationId, reason: Ended) {
        self.stop_following(id);
        self.release_port(id);
        self.give_back(id);
        let Some(association) = self.associations.get_mut(&id) else { return };
        association.ended = Some(reason);
        match reason {
            Ended::Superseded => {}
            Ended::Idle | Ended::GaveWay(_) => association.connection.close(),
            // RFC 8446 §6.2: a lack of resources is an internal_error.
            Ended::Displaced(_) | Ended::Refused(_) => {
                association.connection.abort(AlertDescription::INTERNAL_ERROR);
            }
            Ended::Anonymous => association.connection.abort(AlertDescription::ACCESS_DENIED),
        }
        association.is_half_open = false;
        if let Some(host) = association.host {
            self.handshakes.end(host, id.number());
        }
        self.index.forget(id, association);
        self.index.announce(id, association);
        self.index.send(id, association);
    }
}

impl core::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Endpoint")
            .field("associations", &self.associations.len())
            .field("half_open", &self.half_open())
            .finish_non_exhaustive()
    }
}

const _: () = {
    const fn send_and_sync<T: Send + Sync>() {}
    send_and_sync::<Endpoint>();
};
