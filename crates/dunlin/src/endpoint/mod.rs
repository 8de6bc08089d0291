//! Many associations on one socket: which datagram belongs to which connection, and how many connections there may be.
//!
//! [`routes`] finds associations by the peer's address. A ClientHello that no association knows goes to a connection that is
//! forgotten again unless the client has returned a cookie.

mod association;
mod routes;

use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use core::net::SocketAddr;

use crate::address::ServerAddress;
use crate::config::{ClientConfig, ServerConfig};
use crate::connection::{DtlsConnection, Standing, Transmit};
use crate::error::{Error, Misuse};
use crate::protocol::Side;
use crate::record::datagram::Hello;
use crate::time::{Instant, Now};

pub use association::{Association, AssociationId};
use routes::{Route, Routes};

/// The most datagrams that wait for transmission without an association: demands for cookies, alerts and last words. Beyond it
/// they are lost, and clients ask again.
const MAX_STRAY: usize = 256;

/// The limits of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointLimits {
    /// The most associations, ended ones included until the caller removes them. By default 65,536.
    pub associations: usize,
    /// The most handshakes of clients that a server has begun and not completed. By default 1024. Each has returned a cookie, unless
    /// the server demands none.
    pub half_open: usize,
    /// The most incomplete ClientHellos, whose other fragments are missing. By default 64. Their senders have returned no cookie, so
    /// anyone can send them. The latest one replaces the oldest one. A ClientHello in one datagram needs no place here.
    pub partial_hellos: usize,
}

impl Default for EndpointLimits {
    fn default() -> Self {
        Self { associations: 65_536, half_open: 1024, partial_hellos: 64 }
    }
}

/// The number of datagrams that an endpoint has discarded, by reason. [`DtlsConnection::discarded`] counts those of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointDiscarded {
    /// Datagrams without a ClientHello, from an address without an association.
    pub unknown: u64,
    /// ClientHellos to an endpoint that is not a server, or from the address of a server that this side is connecting to.
    pub unwanted: u64,
    /// ClientHellos beyond a limit of the endpoint.
    pub full: u64,
    /// Incomplete ClientHellos that a later one has replaced.
    pub partial: u64,
    /// Output beyond its limit.
    pub output: u64,
}

/// What happened at an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EndpointEvent {
    /// A client has begun a handshake. The caller removes the association in the end, even if its handshake fails.
    Incoming(AssociationId),
    /// The association has perhaps events, data or an error, or was superseded. Changes by [`Endpoint::update`] raise no event, unless
    /// they end the association.
    Changed(AssociationId),
}

/// Many DTLS connections on one socket, as client and as server. It does no input or output and has no clock, as a
/// [`DtlsConnection`].
///
/// The caller passes each received datagram to [`Endpoint::receive`], transmits what [`Endpoint::poll_transmit`] returns, and calls
/// [`Endpoint::handle_timeout`] at the time that [`Endpoint::poll_timeout`] names. [`Endpoint::poll_event`] names the associations
/// that need attention, and [`Endpoint::update`] gives access to their connections.
///
/// * Associations are found by the peer's address.
/// * A server that demands cookies keeps nothing of a client before it has returned one, apart from a few incomplete ClientHellos
///   ([`EndpointLimits::partial_hellos`]).
/// * A ClientHello from the address of an association begins a handshake beside it. Only the end of that handshake supersedes the
///   association, since anyone can forge the address (RFC 9147 §5.11, RFC 6347 §4.2.8).
///
/// # Examples
/// A client and a server, without a network between them.
/// ```
/// use std::sync::Arc;
///
/// use dunlin::auth::{Psk, PskTable};
/// use dunlin::{
///     ClientConfig, Endpoint, EndpointEvent, EndpointLimits, Now, Profile, PskSource, ServerAddress, ServerConfig,
/// };
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let profile = Profile::builder(Arc::new(dunlin_awslc::provider())).build()?;
/// let key = || Psk::new("device-1", &[7; 32]);
/// let config = Arc::new(ClientConfig::new(profile.clone()).with_psks(vec![Arc::new(key()?)]));
/// let keys = PskSource::Here(Arc::new(PskTable::from_iter([key()?])));
///
/// let now = Now::from_unix_ms(1_767_225_600_000);
/// let (here, there) = ("10.0.0.1:40000".parse()?, "10.0.0.2:5684".parse()?);
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
    limits: EndpointLimits,
    /// The number of associations so far.
    begun: u64,
    half_open: usize,
    associations: BTreeMap<AssociationId, Box<Association>>,
    routes: Routes,
    /// Incomplete ClientHellos by the address of their sender.
    partial: BTreeMap<SocketAddr, Partial>,
    /// The number of incomplete ClientHellos so far.
    partial_begun: u64,
    deadlines: BTreeSet<(Instant, AssociationId)>,
    /// Associations that may have output.
    sending: VecDeque<AssociationId>,
    /// Output without an association.
    stray: VecDeque<Transmit>,
    events: VecDeque<EndpointEvent>,
    discarded: EndpointDiscarded,
}

/// An incomplete ClientHello.
struct Partial {
    connection: Box<DtlsConnection>,
    random: Option<[u8; 32]>,
    /// Its place in the order of arrival.
    number: u64,
}

impl Endpoint {
    /// An endpoint that is only a client until [`Endpoint::set_server`].
    pub const fn new(limits: EndpointLimits) -> Self {
        Self {
            server: None,
            limits,
            begun: 0,
            half_open: 0,
            associations: BTreeMap::new(),
            routes: Routes::new(),
            partial: BTreeMap::new(),
            partial_begun: 0,
            deadlines: BTreeSet::new(),
            sending: VecDeque::new(),
            stray: VecDeque::new(),
            events: VecDeque::new(),
            discarded: EndpointDiscarded { unknown: 0, unwanted: 0, full: 0, partial: 0, output: 0 },
        }
    }

    /// Sets the configuration for new clients. With `None` the endpoint accepts no more clients. Present associations continue.
    ///
    /// A configuration without the cookie keys of the previous one ([`ServerConfig::with_cookie_keys`]) rejects clients that have
    /// just received a cookie.
    pub fn set_server(&mut self, config: Option<Arc<ServerConfig>>) {
        if config.is_none() {
            self.partial.clear();
        }
        self.server = config;
    }

    /// Connects to `server` at the address `peer`.
    ///
    /// # Errors
    /// [`Misuse::AddressInUse`] if there is an association with this address, [`Misuse::EndpointFull`] at the limit of associations,
    /// and the errors of [`DtlsConnection::client`].
    pub fn connect(
        &mut self,
        config: &Arc<ClientConfig>,
        server: ServerAddress,
        peer: SocketAddr,
        now: Now,
    ) -> Result<AssociationId, Error> {
        if !self.routes.get(peer).is_empty() {
            return Err(Misuse::AddressInUse.into());
        }
        if self.associations.len() >= self.limits.associations {
            return Err(Misuse::EndpointFull.into());
        }
        let connection = DtlsConnection::client(config, server, peer, now)?;
        let id = self.insert(Association::new(connection, None));
        self.routes.set(peer, Route { live: Some(id), next: None });
        self.refresh(id);
        Ok(id)
    }

    /// Processes a datagram that was received from the address `from`.
    pub fn receive(&mut self, now: Now, from: SocketAddr, datagram: &[u8]) {
        let route = self.routes.get(from);
        if let Some(hello) = Hello::read(datagram)
            && self.is_new(route, from, hello)
        {
            self.begin(now, from, datagram, hello);
            return;
        }
        if route.is_empty() {
            self.discarded.unknown += 1;
        }
        // Only the keys tell which of two associations a protected record belongs to.
        for id in route.ids() {
            if let Some(association) = self.associations.get_mut(&id) {
                association.bytes_received += datagram.len() as u64;
                // The connection keeps its error.
                let _ = association.connection.receive(now, from, datagram);
                self.announce(id);
                self.refresh(id);
            }
        }
    }

    /// Takes the next datagram to transmit. Call it until it returns `None`, and then ask for [`Endpoint::poll_timeout`].
    pub fn poll_transmit(&mut self, now: Now) -> Option<Transmit> {
        if let Some(transmit) = self.stray.pop_front() {
            return Some(transmit);
        }
        while let Some(id) = self.sending.front().copied() {
            if let Some(association) = self.associations.get_mut(&id) {
                if !association.is_superseded
                    && let Some(transmit) = association.connection.poll_transmit(now)
                {
                    association.bytes_sent += transmit.datagram.len() as u64;
                    return Some(transmit);
                }
                association.is_sending = false;
                self.file_deadline(id);
            }
            self.sending.pop_front();
        }
        // An idle endpoint keeps no memory for its queues.
        self.sending = VecDeque::new();
        self.stray = VecDeque::new();
        None
    }

    /// When to call [`Endpoint::handle_timeout`], on the monotonic clock. `None` if no timer runs.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Handles the timers whose deadline has come. Then there may be more to transmit.
    pub fn handle_timeout(&mut self, now: Now) {
        let last = (now.monotonic, AssociationId(u64::MAX));
        let due: VecDeque<_> = self.deadlines.range(..=last).map(|(_, id)| *id).collect();
        for id in due {
            if let Some(association) = self.associations.get_mut(&id) {
                // The connection keeps its error.
                let _ = association.connection.handle_timeout(now);
                self.announce(id);
                self.refresh(id);
            }
        }
    }

    /// Takes the next event.
    pub fn poll_event(&mut self) -> Option<EndpointEvent> {
        let event = self.events.pop_front();
        if let Some(EndpointEvent::Changed(id)) = event
            && let Some(association) = self.associations.get_mut(&id)
        {
            association.is_announced = false;
        }
        if self.events.is_empty() {
            self.events = VecDeque::new();
        }
        event
    }

    /// The association with this name, until it is removed.
    pub fn association(&self, id: AssociationId) -> Option<&Association> {
        self.associations.get(&id).map(|association| &**association)
    }

    /// Calls `f` with the connection of an association, and then takes note of what it changed. `None` if the association was
    /// removed.
    ///
    /// Do not transmit what the connection has to send: [`Endpoint::poll_transmit`] returns it.
    pub fn update<R>(&mut self, id: AssociationId, f: impl FnOnce(&mut DtlsConnection) -> R) -> Option<R> {
        let association = self.associations.get_mut(&id)?;
        let had_ended = association.has_ended();
        let result = f(&mut association.connection);
        if association.has_ended() && !had_ended {
            // Other tasks of the caller may wait for this association.
            self.announce(id);
        }
        self.refresh(id);
        Some(result)
    }

    /// Removes an association. If its connection is still open, the peer gets a close_notify.
    pub fn remove(&mut self, now: Now, id: AssociationId) {
        let Some(mut association) = self.associations.remove(&id) else { return };
        self.forget(id, &mut association);
        if association.is_superseded {
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
    pub const fn half_open(&self) -> usize {
        self.half_open
    }

    /// Counts of what was discarded so far.
    pub const fn discarded(&self) -> EndpointDiscarded {
        self.discarded
    }

    /// Whether a ClientHello begins a new handshake. One with the random of an association is a retransmission.
    fn is_new(&self, route: Route, from: SocketAddr, hello: Hello) -> bool {
        let mut associations = route.ids().filter_map(|id| self.associations.get(&id));
        match hello.random {
            Some(random) => associations.all(|association| association.random != Some(random)),
            // A later fragment belongs to a new ClientHello if its first one does.
            None => route.is_empty() || self.partial.contains_key(&from),
        }
    }

    /// Lets a new connection answer a ClientHello, and keeps the connection only if the client may have one.
    fn begin(&mut self, now: Now, from: SocketAddr, datagram: &[u8], hello: Hello) {
        let route = self.routes.get(from);
        let Some(config) = self.server.clone().filter(|_| !self.is_connecting(route)) else {
            self.discarded.unwanted += 1;
            return;
        };
        // A client that begins anew takes the place of its own unfinished handshake.
        let has_place = self.half_open < self.limits.half_open || route.next.is_some();
        if !has_place || self.associations.len() >= self.limits.associations {
            self.discarded.full += 1;
            return;
        }
        let partial = self.partial.remove(&from);
        let partial = partial.filter(|partial| {
            // The first fragment of another ClientHello begins anew.
            hello.random.is_none() || partial.random.is_none() || partial.random == hello.random
        });
        let (mut connection, random) = match partial {
            Some(partial) => (partial.connection, partial.random),
            None => (Box::new(DtlsConnection::server(&config, from, now)), None),
        };
        let random = hello.random.or(random);
        // An error appears in the standing.
        let _ = connection.receive(now, from, datagram);
        match connection.standing(&config) {
            Standing::Admitted => {
                let mut association = Association::new(*connection, random);
                association.bytes_received = datagram.len() as u64;
                self.admit(from, route, association);
            }
            Standing::PartOfHello => self.keep_part(from, connection, random),
            Standing::Unknown => {
                while let Some(transmit) = connection.poll_transmit(now) {
                    self.stray(transmit);
                }
            }
        }
    }

    /// Whether this side is connecting to the address of this route as a client.
    fn is_connecting(&self, route: Route) -> bool {
        let live = route.live.and_then(|id| self.associations.get(&id));
        live.is_some_and(|live| live.connection.side() == Side::Client && live.connection.is_handshaking())
    }

    fn admit(&mut self, from: SocketAddr, route: Route, association: Association) {
        let has_failed = association.has_ended();
        self.half_open += 1;
        let id = self.insert(association);
        if !has_failed {
            if let Some(unfinished) = route.next {
                self.supersede(unfinished);
            }
            self.routes.set(from, Route { live: route.live, next: Some(id) });
        }
        self.events.push_back(EndpointEvent::Incoming(id));
        self.announce(id);
        self.refresh(id);
    }

    /// Keeps an incomplete ClientHello, in place of the oldest one if there are too many.
    fn keep_part(&mut self, from: SocketAddr, connection: Box<DtlsConnection>, random: Option<[u8; 32]>) {
        let number = self.partial_begun;
        self.partial_begun += 1;
        self.partial.insert(from, Partial { connection, random, number });
        if self.partial.len() > self.limits.partial_hellos {
            let oldest = self.partial.iter().min_by_key(|(_, partial)| partial.number);
            if let Some(oldest) = oldest.map(|(address, _)| *address) {
                self.partial.remove(&oldest);
                self.discarded.partial += 1;
            }
        }
    }

    fn stray(&mut self, transmit: Transmit) {
        match self.stray.len() < MAX_STRAY {
            true => self.stray.push_back(transmit),
            false => self.discarded.output += 1,
        }
    }

    fn insert(&mut self, association: Association) -> AssociationId {
        let id = AssociationId(self.begun);
        self.begun += 1;
        self.associations.insert(id, Box::new(association));
        id
    }

    /// Raises an event for a change that the caller did not make itself.
    fn announce(&mut self, id: AssociationId) {
        if let Some(association) = self.associations.get_mut(&id)
            && !association.is_announced
        {
            association.is_announced = true;
            self.events.push_back(EndpointEvent::Changed(id));
        }
    }

    /// Takes note of a change of an association.
    fn refresh(&mut self, id: AssociationId) {
        let Some(association) = self.associations.get_mut(&id) else { return };
        let address = association.connection.peer_address();
        if !association.is_sending && !association.is_superseded {
            association.is_sending = true;
            self.sending.push_back(id);
        }
        let has_ended = association.has_ended();
        let was_half_open = association.is_half_open;
        if was_half_open && !association.connection.is_handshaking() {
            association.is_half_open = false;
            self.half_open -= 1;
        }
        if has_ended {
            self.routes.remove(address, id);
        } else if was_half_open && !association.is_half_open {
            // RFC 6347 §4.2.8: after the client's Finished, the server abandons the previous association.
            let previous = self.routes.get(address).live;
            self.routes.set(address, Route { live: Some(id), next: None });
            if let Some(previous) = previous {
                self.supersede(previous);
            }
        }
        self.file_deadline(id);
    }

    /// Ends an association in favour of a newer one, without a word to the peer.
    fn supersede(&mut self, id: AssociationId) {
        let Some(mut association) = self.associations.remove(&id) else { return };
        self.forget(id, &mut association);
        association.is_superseded = true;
        self.associations.insert(id, association);
        self.announce(id);
    }

    /// Removes an association from all indexes.
    fn forget(&mut self, id: AssociationId, association: &mut Association) {
        if core::mem::take(&mut association.is_half_open) {
            self.half_open -= 1;
        }
        if let Some(deadline) = association.deadline.take() {
            self.deadlines.remove(&(deadline, id));
        }
        self.routes.remove(association.connection.peer_address(), id);
    }

    /// Files an association under its present deadline.
    fn file_deadline(&mut self, id: AssociationId) {
        let Some(association) = self.associations.get_mut(&id) else { return };
        let deadline = association.connection.poll_timeout().filter(|_| !association.is_superseded);
        if deadline == association.deadline {
            return;
        }
        if let Some(previous) = core::mem::replace(&mut association.deadline, deadline) {
            self.deadlines.remove(&(previous, id));
        }
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, id));
        }
    }
}

impl core::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Endpoint")
            .field("associations", &self.associations.len())
            .field("half_open", &self.half_open)
            .finish_non_exhaustive()
    }
}

const _: () = {
    const fn send_and_sync<T: Send + Sync>() {}
    send_and_sync::<Endpoint>();
};
