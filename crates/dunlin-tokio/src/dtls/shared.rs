//! The state that the handles of an endpoint share with the task that drives it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dunlin::error::Misuse;
use dunlin::{
    AssociationId, ClientConfig, DtlsConnection, Endpoint, EndpointEvent, EndpointLimits, Local, Now, Path,
    ServerAddress, Side, Transmit,
};
use tokio::net::UdpSocket;
use tokio::sync::Notify;

use super::interfaces::{Home, Interface, Interfaces, source};
use super::nodes::{OtherNodes, node};
use super::readable::{Readable, Source};
use super::socket::Buffers;
use super::unsent::{Outlet, Unsent};
use super::watch::AddressWatch;
use crate::clock::now;
use crate::error::from_tls;

/// The most datagrams of associations that the task receives before it lets other tasks act, and the most
/// changes by them before it sends again.
const BATCH: usize = 64;

/// The most clients whose handshake has failed at once and that the application has not seen. Further ones
/// are only counted.
const MAX_FAILED: usize = 64;

/// The most sockets of interfaces whose addresses are remembered for reports.
const MAX_REMEMBERED: usize = 16;

/// How long the task waits before it looks again at the interfaces, if the system did not tell of them or
/// gave no socket.
const RETRY: Duration = Duration::from_secs(1);

/// The sockets and the endpoint.
pub(super) struct Shared {
    state: Mutex<State>,
    /// Notices changes of this machine's addresses.
    watch: OnceLock<AddressWatch>,
    /// Wakes the task if it has to wait for something else.
    driver: Notify,
    /// The other sockets of the same port, if there are any.
    port: OnceLock<Port>,
}

/// The endpoints of one port, each with a socket of its own.
pub(super) struct Port {
    /// The length of their connection IDs, and the place of the byte that names the endpoint.
    pub(super) id_len: usize,
    pub(super) at: usize,
    pub(super) own: usize,
    pub(super) endpoints: Vec<Weak<Shared>>,
    /// The endpoints of thawed associations without connection IDs, by the peer's address.
    pub(super) thawed: Arc<BTreeMap<SocketAddr, usize>>,
    /// How many datagrams were handed over to another endpoint.
    pub(super) handed_over: AtomicU64,
}

/// A datagram for another endpoint of the port, and its path.
type Stray<'a> = (&'a Weak<Shared>, Path, Vec<u8>);

/// The endpoint that this byte of a connection ID names. A port that was bound again may have fewer of them.
pub(super) fn owner(name: u8, endpoints: usize) -> usize {
    usize::from(name) % endpoints.max(1)
}

impl Port {
    /// The other endpoint to which the connection ID of a datagram leads, or without one its sender's
    /// address.
    fn other(&self, from: SocketAddr, datagram: &[u8]) -> Option<&Weak<Shared>> {
        let owner = match dunlin::connection_id(datagram, self.id_len) {
            Some(id) => owner(*id.get(self.at)?, self.endpoints.len()),
            None => *self.thawed.get(&from)?,
        };
        if owner != self.own { self.endpoints.get(owner) } else { None }
    }

    /// Hands datagrams over. The caller holds no lock, since the other endpoint may hand over, too.
    fn hand_over(&self, strays: Vec<Stray<'_>>) {
        for (other, path, datagram) in strays {
            if let Some(other) = other.upgrade() {
                self.handed_over.fetch_add(1, Ordering::Relaxed);
                other.act(|state| state.endpoint.receive(now(), path, &datagram));
            }
        }
    }
}

pub(super) struct State {
    pub(super) endpoint: Endpoint,
    /// A single socket, or the sockets of the interfaces that are up, the best first.
    homes: Arc<[Arc<Home>]>,
    /// The interfaces of a client that uses several.
    interfaces: Option<Interfaces>,
    /// The other machines that serve the same clients.
    pub(super) nodes: Option<Arc<dyn OtherNodes>>,
    /// The addresses of the latest sockets of interfaces.
    addresses: BTreeMap<Local, SocketAddr>,
    /// The address from which the single socket sends to each server, if it is watched.
    sources: Option<BTreeMap<SocketAddr, Option<IpAddr>>>,
    /// When to look again at the interfaces, because the system did not tell of them or gave no socket.
    retry_at: Option<dunlin::Instant>,
    /// The sockets have changed, and the task does not know it yet.
    has_new_homes: bool,
    /// Associations that wait for the application to accept them; names grow with time.
    pub(super) incoming: BTreeSet<AssociationId>,
    /// Clients whose handshake has failed at once, and why, until the application takes note.
    pub(super) failed: VecDeque<(SocketAddr, dunlin::Error)>,
    /// The tasks that wait for a change of an association.
    waiting: BTreeMap<AssociationId, Vec<Waker>>,
    /// The tasks that wait for clients.
    acceptors: Vec<Waker>,
    /// The tasks that wait for room in the output.
    senders: Vec<Waker>,
    /// Datagrams that the sockets have not taken yet.
    unsent: Unsent,
    /// While the answers to a batch of datagrams gather, so that they leave together: how many changes may
    /// still add to them.
    held: Option<usize>,
    /// Says of each datagram whether to lose it.
    pub(super) loss: Option<Box<dyn FnMut() -> bool + Send>>,
    /// The deadline that the task knows.
    planned: Option<dunlin::Instant>,
    /// The handles are gone, and the task ends.
    is_closed: bool,
    /// The associations were frozen, so the endpoint accepts no more clients.
    pub(super) is_frozen: bool,
    /// The association with each server, and whether the network says that no program receives there.
    servers: BTreeMap<SocketAddr, (AssociationId, bool)>,
    /// The servers' addresses and the sockets between which the system has no route now, and its error.
    outages: BTreeMap<(IpAddr, Local), io::ErrorKind>,
    /// The tasks to wake, or to forget, without the lock: both can run code of the application, which may use
    /// the endpoint.
    woken: Vec<Waker>,
}

/// Adds the task of `cx` to those that wait.
fn add(wakers: &mut Vec<Waker>, cx: &Context<'_>) {
    if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
        wakers.push(cx.waker().clone());
    }
}

impl State {
    /// Lets a task wait for a change of an association.
    pub(super) fn wait(&mut self, id: AssociationId, cx: &Context<'_>) {
        // Almost always one task waits.
        add(self.waiting.entry(id).or_insert_with(|| Vec::with_capacity(1)), cx);
    }

    /// Lets a task wait for a client.
    pub(super) fn wait_for_client(&mut self, cx: &Context<'_>) {
        add(&mut self.acceptors, cx);
    }

    /// Lets a task wait for room in the output.
    pub(super) fn wait_for_room(&mut self, cx: &Context<'_>) {
        add(&mut self.senders, cx);
    }

    /// Whether the network says that no program receives at the server's address.
    pub(super) fn is_refused(&self, peer: SocketAddr, id: AssociationId) -> bool {
        self.servers.get(&peer) == Some(&(id, true))
    }

    /// Connects to a server.
    pub(super) fn connect(
        &mut self,
        config: &Arc<ClientConfig>,
        server: ServerAddress,
        peer: SocketAddr,
    ) -> Result<AssociationId, dunlin::Error> {
        let Some(local) = self.homes.first().map(|home| home.local) else {
            let why = "no interface is up and has an address of the server's family";
            return Err(Misuse::Config(why.into()).into());
        };
        let id = self.endpoint.connect(config, server, Path { local, ..peer.into() }, now())?;
        if self.interfaces.is_some() {
            let locals = self.locals();
            let set = self.endpoint.update(id, |connection| connection.set_interfaces(now(), &locals));
            if let Some(Err(e)) = set {
                self.endpoint.remove(now(), id);
                return Err(e);
            }
        }
        if let Some(sources) = &mut self.sources {
            sources.insert(peer, source(peer));
        }
        self.servers.insert(peer, (id, false));
        Ok(id)
    }

    /// Takes in a thawed connection. Its number of a socket means nothing here, so it sends over the first
    /// one unless there is such a socket.
    pub(super) fn adopt(&mut self, mut connection: DtlsConnection) -> Result<AssociationId, dunlin::Error> {
        let locals = self.locals();
        // A client whose datagrams arrive at another node may still send them there.
        let local = connection.path().local;
        if !locals.contains(&local) && node(local).is_none() {
            let has_changed = connection.set_interfaces(now(), &locals).is_ok();
            locals
                .first()
                .filter(|_| !has_changed)
                .into_iter()
                .for_each(|first| connection.set_local(*first));
        }
        let (side, peer) = (connection.side(), connection.peer_address());
        let id = self.endpoint.adopt(now(), connection)?;
        if side == Side::Client {
            self.servers.insert(peer, (id, false));
        }
        Ok(id)
    }

    /// The sockets, the best first.
    fn locals(&self) -> Vec<Local> {
        self.homes.iter().map(|home| home.local).collect()
    }

    /// The address of a socket, perhaps one that is closed.
    pub(super) fn address(&self, local: Local) -> Option<SocketAddr> {
        let home = self.homes.iter().find(|home| home.local == local);
        home.map(|home| home.address).or_else(|| self.addresses.get(&local).copied())
    }

    /// The address of the first socket.
    pub(super) fn first_address(&self) -> Option<SocketAddr> {
        self.homes.first().map(|home| home.address)
    }

    /// The interfaces that are down or have no address.
    pub(super) fn missing_interfaces(&self) -> Vec<Interface> {
        self.interfaces.as_ref().map_or_else(Vec::new, |interfaces| interfaces.missing().to_vec())
    }

    /// Uses other interfaces.
    pub(super) fn set_interfaces(&mut self, list: Vec<Interface>) {
        if let Some(interfaces) = &mut self.interfaces {
            interfaces.set(list);
            self.refresh();
        }
    }

    /// Remembers from which addresses the single socket sends.
    pub(super) fn watch_sources(&mut self) {
        let sources = self.servers.keys().map(|peer| (*peer, source(*peer))).collect();
        self.sources.get_or_insert(sources);
    }

    /// Follows a change of this machine's addresses: opens and closes sockets, and lets client associations
    /// speak from their new address at once.
    pub(super) fn refresh(&mut self) {
        if let Some(interfaces) = &mut self.interfaces {
            let homes = interfaces.refresh(&self.homes);
            self.retry_at = interfaces.lacks_something().then(|| now().monotonic + RETRY);
            // The task has to learn of the time.
            self.has_new_homes |= self.retry_at.is_some();
            let Some(homes) = homes else { return };
            self.addresses.extend(self.homes.iter().chain(&homes).map(|home| (home.local, home.address)));
            while self.addresses.len() > MAX_REMEMBERED {
                self.addresses.pop_first();
            }
            self.homes = homes.into();
            self.has_new_homes = true;
            let locals = self.locals();
            self.outages.retain(|(_, local), _| locals.is_empty() || locals.contains(local));
            for (id, _) in self.servers.values() {
                // The connection keeps its error.
                self.endpoint.update(*id, |connection| connection.set_interfaces(now(), &locals));
            }
        } else if let Some(sources) = &mut self.sources {
            sources.retain(|peer, _| self.servers.contains_key(peer));
            for (peer, before) in sources {
                let Some(after) = source(*peer).filter(|after| *before != Some(*after)) else { continue };
                *before = Some(after);
                if let Some((id, _)) = self.servers.get(peer) {
                    let local = Local::default();
                    self.endpoint.update(*id, |connection| connection.address_changed(now(), local));
                }
            }
        }
    }

    /// Adds the sockets of a server's pool.
    pub(super) fn add_ports(&mut self, sockets: Vec<UdpSocket>) -> io::Result<()> {
        let next = self.homes.iter().map(|home| home.local.0).max().map_or(1, |last| last + 1);
        let homes = sockets.into_iter().zip(next..).map(|(socket, local)| {
            let mut home = Home::new(socket)?;
            home.local = Local(local);
            Ok(Arc::new(home))
        });
        let homes = homes.collect::<io::Result<Vec<_>>>()?;
        let ports = homes.iter().map(|home| (home.local, home.address.port()));
        self.endpoint.add_ports(ports).map_err(from_tls)?;
        self.homes = self.homes.iter().cloned().chain(homes).collect();
        self.has_new_homes = true;
        Ok(())
    }

    pub(super) fn remove(&mut self, peer: SocketAddr, id: AssociationId) {
        self.woken.extend(self.waiting.remove(&id).unwrap_or_default());
        if self.servers.get(&peer).is_some_and(|(server, _)| *server == id) {
            self.servers.remove(&peer);
            self.outages.retain(|(ip, _), _| *ip != peer.ip());
        }
        self.endpoint.remove(now(), id);
    }

    /// Wakes the tasks that wait for a change of an association.
    fn wake(&mut self, id: AssociationId) {
        // The list stays, because the task soon waits again. [`Self::remove`] drops it.
        if let Some(tasks) = self.waiting.get_mut(&id) {
            self.woken.append(tasks);
        }
    }

    /// Sends what waits, as far as the sockets take it.
    pub(super) fn flush(&mut self) {
        let mut unsent = std::mem::take(&mut self.unsent);
        if unsent.flush(&mut Sending { now: now(), state: self }) {
            self.woken.append(&mut self.senders);
        }
        self.unsent = unsent;
    }

    /// The sockets that must take something before the output is sent.
    fn blocked(&self) -> Vec<Arc<Home>> {
        let blocked = self.unsent.blocked();
        self.homes.iter().filter(|home| blocked.contains(&home.local)).cloned().collect()
    }

    /// Handles an error of the socket. An ICMP message only causes one if the socket is connected, and then
    /// belongs to that address.
    fn note(&mut self, error: &io::Error) {
        let Some(peer) = self.homes.first().and_then(|home| home.socket.peer_addr()) else { return };
        if error.kind() != io::ErrorKind::ConnectionRefused {
            return;
        }
        if let Some((id, is_refused)) = self.servers.get_mut(&peer) {
            *is_refused = true;
            let id = *id;
            self.wake(id);
        }
    }

    /// Handles a datagram to a server that the system cannot send for lack of a route. Tells the associations
    /// of the first one.
    fn note_unsent(&mut self, error: &io::Error, lost: &Transmit) {
        use io::ErrorKind::{
            AddrNotAvailable, HostUnreachable, InvalidInput, NetworkDown, NetworkUnreachable,
        };
        let kind = error.kind();
        // Linux calls a source address that is gone an invalid argument.
        let kinds = [AddrNotAvailable, HostUnreachable, InvalidInput, NetworkDown, NetworkUnreachable];
        let ip = lost.to.ip();
        // An association may use another port of its server.
        let mut affected: Vec<_> =
            self.servers.iter().filter(|(peer, _)| peer.ip() == ip).map(|(_, (id, _))| *id).collect();
        if !kinds.contains(&kind) || affected.is_empty() {
            return;
        }
        if self.outages.insert((ip, lost.local), kind).is_none() {
            affected.drain(..).for_each(|id| self.wake(id));
        }
    }

    /// Why the system cannot send to the peer of this association.
    pub(super) fn outage(&self, peer: SocketAddr, id: AssociationId) -> Option<io::ErrorKind> {
        let local = self.endpoint.association(id)?.connection().path().local;
        self.outages.get(&(peer.ip(), local)).copied()
    }

    /// Sends a datagram over the first socket, which may not take it.
    pub(super) fn send_now(&self, transmit: &Transmit) -> io::Result<()> {
        let home = self.homes.first().ok_or(io::ErrorKind::NetworkUnreachable)?;
        home.socket.send(std::slice::from_ref(transmit)).map(drop)
    }

    /// Sends these datagrams over another node, if `local` is one and still there.
    fn send_over_node(&self, local: Local, datagrams: &[Transmit]) -> bool {
        let (Some(node), Some(nodes)) = (node(local), &self.nodes) else { return false };
        datagrams.iter().all(|transmit| {
            let path = Path { source: transmit.source, ..transmit.to.into() };
            nodes.send_over(node, path, &transmit.datagram)
        })
    }

    /// Receives the datagrams that are there at one socket. Returns their number.
    fn receive<'a>(
        &mut self,
        now: Now,
        home: &Home,
        buffers: &mut Buffers,
        (port, strays): (Option<&'a Port>, &mut Vec<Stray<'a>>),
    ) -> usize {
        let mut received = 0;
        loop {
            let (endpoint, nodes) = (&mut self.endpoint, &self.nodes);
            let take = |path: Path, datagram: &[u8]| {
                if let Some(other) = port.and_then(|port| port.other(path.peer, datagram)) {
                    return strays.push((other, path, datagram.to_vec()));
                }
                if let Some(nodes) = nodes
                    && !endpoint.has_id_of(datagram)
                    && nodes.take(path, datagram)
                {
                    return;
                }
                endpoint.receive(now, Path { local: home.local, ..path }, datagram);
            };
            match home.socket.receive(buffers, take) {
                Ok(datagrams) => received += datagrams,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => {
                    self.note(&e);
                    break;
                }
            }
            if received >= BATCH || self.endpoint.answers_strangers() {
                break;
            }
        }
        received
    }

    /// Handles the endpoint's events.
    fn hear(&mut self) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                EndpointEvent::Incoming(id) => {
                    self.incoming.insert(id);
                    self.woken.append(&mut self.acceptors);
                }
                EndpointEvent::Failed(peer, error) => {
                    if self.failed.len() < MAX_FAILED {
                        self.failed.push_back((peer, error));
                    }
                    self.woken.append(&mut self.acceptors);
                }
                EndpointEvent::Changed(id) => {
                    let ended = self.endpoint.association(id).filter(|a| a.ended().is_some());
                    let ended = ended.map(|association| association.connection().peer_address());
                    match ended {
                        Some(peer) if self.incoming.remove(&id) => self.remove(peer, id),
                        _ => self.wake(id),
                    }
                }
                _ => {}
            }
        }
    }
}

impl Source for Home {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.socket.poll_readable(cx)
    }
}

/// The endpoint and its sockets, while they send.
struct Sending<'a> {
    now: Now,
    state: &'a mut State,
}

impl Outlet for Sending<'_> {
    /// Leaves out the datagrams that are to be lost.
    fn next(&mut self) -> Option<Transmit> {
        loop {
            let transmit = self.state.endpoint.poll_transmit(self.now)?;
            if !self.state.loss.as_mut().is_some_and(|is_lost| is_lost()) {
                return Some(transmit);
            }
        }
    }

    fn send(&mut self, local: Local, datagrams: &[Transmit]) -> io::Result<usize> {
        let state = &self.state;
        if state.send_over_node(local, datagrams) {
            return Ok(datagrams.len());
        }
        // A node that is gone leaves its clients to this endpoint.
        let is_home = |home: &&Arc<Home>| home.local == local || node(local).is_some();
        let sent = match state.homes.iter().find(is_home) {
            Some(home) => home.socket.send(datagrams)?,
            // There is no interface now.
            None if self.state.homes.is_empty() => return Err(io::ErrorKind::NetworkUnreachable.into()),
            // Its interface is gone.
            None => return Ok(datagrams.len()),
        };
        if !self.state.outages.is_empty() {
            for transmit in datagrams.iter().take(sent) {
                self.state.outages.remove(&(transmit.to.ip(), local));
            }
        }
        Ok(sent)
    }

    fn may_lose(&self, local: Local) -> bool {
        // A port of a pool, or the one beside it: the associations at other ports do not wait.
        if self.state.interfaces.is_none() {
            return self.state.homes.len() > 1;
        }
        let uses = |id| {
            let association = self.state.endpoint.association(id);
            association.is_some_and(|association| association.connection().path().local == local)
        };
        !self.state.servers.values().any(|(id, _)| uses(*id))
    }

    fn failed(&mut self, error: &io::Error, lost: &Transmit) {
        self.state.note(error);
        self.state.note_unsent(error, lost);
    }
}

impl Shared {
    /// With a single socket.
    pub(super) fn new(socket: UdpSocket, limits: EndpointLimits) -> io::Result<Self> {
        Ok(Self::with([Arc::new(Home::new(socket)?)].into(), None, limits))
    }

    /// With a socket for each of these interfaces.
    pub(super) fn over(mut interfaces: Interfaces, limits: EndpointLimits) -> io::Result<Self> {
        let homes = interfaces.refresh(&[]).unwrap_or_default();
        let retry_at = interfaces.lacks_something().then(|| now().monotonic + RETRY);
        let shared = Self::with(homes.into(), Some(interfaces), limits);
        shared.state().retry_at = retry_at;
        shared.watch()?;
        Ok(shared)
    }

    fn with(homes: Arc<[Arc<Home>]>, interfaces: Option<Interfaces>, limits: EndpointLimits) -> Self {
        let state = State {
            endpoint: Endpoint::new(limits),
            homes,
            interfaces,
            nodes: None,
            addresses: BTreeMap::new(),
            sources: None,
            retry_at: None,
            has_new_homes: false,
            incoming: BTreeSet::new(),
            failed: VecDeque::new(),
            waiting: BTreeMap::new(),
            acceptors: Vec::new(),
            senders: Vec::new(),
            unsent: Unsent::default(),
            held: None,
            loss: None,
            planned: None,
            is_closed: false,
            is_frozen: false,
            servers: BTreeMap::new(),
            outages: BTreeMap::new(),
            woken: Vec::new(),
        };
        let (watch, port) = (OnceLock::new(), OnceLock::new());
        Self { state: Mutex::new(state), watch, driver: Notify::new(), port }
    }

    /// Makes it one of several endpoints of a port. Only the first call has an effect.
    pub(super) fn join(&self, port: Port) {
        let _ = self.port.set(port);
    }

    /// How many datagrams were handed over to another endpoint of the port.
    pub(super) fn handed_over(&self) -> u64 {
        self.port.get().map_or(0, |port| port.handed_over.load(Ordering::Relaxed))
    }

    /// Notices changes of this machine's addresses from now on. Ends the connection of a connected socket.
    pub(super) fn watch(&self) -> io::Result<()> {
        let connected = |state: &State| {
            state.homes.first().filter(|home| home.socket.peer_addr().is_some()).map(Arc::clone)
        };
        self.read(connected).map_or(Ok(()), |home| home.socket.disconnect())?;
        // A second one, which is dropped, does no harm.
        let _ = self.watch.set(AddressWatch::new()?);
        self.act(State::watch_sources);
        self.driver.notify_one();
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the state.
    pub(super) fn read<R>(&self, f: impl FnOnce(&State) -> R) -> R {
        f(&self.state())
    }

    /// Changes the state. Then sends the output, and wakes the tasks for which something has changed.
    pub(super) fn act<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state();
        let blocked_before = state.unsent.blocked();
        let result = f(&mut state);
        state.hear();
        state.held = state.held.and_then(|left| left.checked_sub(1));
        if state.held.is_none() {
            state.flush();
        }
        let deadline = state.endpoint.poll_timeout();
        let is_earlier =
            deadline.is_some_and(|deadline| state.planned.is_none_or(|planned| deadline < planned));
        let has_new_homes = std::mem::take(&mut state.has_new_homes);
        let blocked = state.unsent.blocked();
        let is_blocked = blocked.iter().any(|local| !blocked_before.contains(local));
        if is_earlier || is_blocked || state.is_closed || has_new_homes {
            self.driver.notify_one();
        }
        let woken = std::mem::take(&mut state.woken);
        drop(state);
        woken.into_iter().for_each(Waker::wake);
        result
    }

    /// Does the same after the socket has taken what it can, and without further clients.
    pub(super) fn act_at_rest<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        self.act(|state| {
            state.endpoint.set_server(None);
            state.flush();
            f(state)
        })
    }

    /// Ends the task, once it has sent the output.
    pub(super) fn close(&self) {
        self.act(|state| state.is_closed = true);
    }

    /// Drives the endpoint until its handles are gone.
    pub(super) async fn drive(self: Arc<Self>) {
        let mut buffers = Buffers::new();
        let mut readable = Readable::new(Arc::clone(&self.state().homes));
        loop {
            let (is_closed, blocked, (deadline, retry_at), homes) = {
                let mut state = self.state();
                state.planned = state.endpoint.poll_timeout();
                let deadlines = (state.planned, state.retry_at);
                (state.is_closed, state.blocked(), deadlines, Arc::clone(&state.homes))
            };
            if is_closed && blocked.is_empty() {
                return;
            }
            if !readable.has(&homes) {
                readable = Readable::new(Arc::clone(&homes));
            }
            tokio::select! {
                () = self.driver.notified() => {}
                ready = readable.ready(), if !is_closed => {
                    if self.receive(&ready, &mut buffers) {
                        // The tasks that were woken answer, and then all answers leave together.
                        tokio::task::yield_now().await;
                        self.act(|state| state.held = None);
                    }
                }
                () = any(&blocked, |home, cx| home.socket.poll_writable(cx)), if !blocked.is_empty() => self.act(|_| {}),
                error = failed(&homes), if !is_closed => {
                    self.act(|state| error.iter().for_each(|error| state.note(error)));
                }
                () = changed(self.watch.get()), if !is_closed => self.act(State::refresh),
                () = until(retry_at), if !is_closed => self.act(State::refresh),
                () = until(deadline) => self.act(|state| state.endpoint.handle_timeout(now())),
            }
        }
    }

    /// Receives the datagrams that are there. Returns whether the output waits for other tasks.
    fn receive(&self, homes: &[Arc<Home>], buffers: &mut Buffers) -> bool {
        let (port, mut strays) = (self.port.get(), Vec::new());
        let waits = self.act(|state| {
            let now = now();
            let receive = |home: &Arc<Home>| state.receive(now, home, buffers, (port, &mut strays));
            let received = homes.iter().map(receive).sum::<usize>();
            if received > 1 {
                state.held = Some(BATCH);
            }
            received > 1
        });
        if let Some(port) = port {
            port.hand_over(strays);
        }
        waits
    }
}

/// Waits until one of the sockets is ready.
async fn any(homes: &[Arc<Home>], ready: impl Fn(&Home, &mut Context<'_>) -> Poll<()>) {
    poll_fn(|cx| {
        // Each of them registers the task.
        let ready = homes.iter().filter(|home| ready(home, cx).is_ready()).count();
        if ready > 0 { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Waits for an error of the first socket, which alone can be connected, and takes it.
async fn failed(homes: &[Arc<Home>]) -> Option<io::Error> {
    let Some(home) = homes.first() else { return std::future::pending().await };
    home.socket.failed().await;
    home.socket.take_error()
}

/// Waits for a change of this machine's addresses.
async fn changed(watch: Option<&AddressWatch>) {
    match watch {
        Some(watch) => watch.changed().await,
        None => std::future::pending().await,
    }
}

/// Waits until the deadline; without one, for ever.
async fn until(deadline: Option<dunlin::Instant>) {
    let Some(deadline) = deadline else { return std::future::pending().await };
    let rest = deadline.since(now().monotonic);
    // The engine counts whole milliseconds, so its clock may still show the previous one.
    tokio::time::sleep(rest + Duration::from_millis(1)).await;
}

/// Keeps the task running.
pub(super) struct Handle(pub(super) Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// An association, which ends with this value.
pub(super) struct Owned {
    pub(super) handle: Arc<Handle>,
    pub(super) id: AssociationId,
    pub(super) peer: SocketAddr,
}

impl Owned {
    pub(super) fn shared(&self) -> &Shared {
        &self.handle.0
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.shared().act(|state| state.remove(self.peer, self.id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_may_lose_what_waits_only_beside_others() {
        let socket = || UdpSocket::bind("127.0.0.1:0");
        let shared = Shared::new(socket().await.unwrap(), EndpointLimits::default()).unwrap();
        let may_lose = |local| {
            let mut state = shared.state();
            Sending { now: now(), state: &mut state }.may_lose(Local(local))
        };
        assert!(!may_lose(0), "the senders wait");
        let port = socket().await.unwrap();
        shared.act(|state| state.add_ports(vec![port])).unwrap();
        assert!(may_lose(0) && may_lose(1));
    }
}
