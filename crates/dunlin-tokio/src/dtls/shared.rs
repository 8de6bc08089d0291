//! What the handles of an endpoint share with the task that drives it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use dunlin::{
    AssociationId, ClientConfig, DtlsConnection, Endpoint, EndpointEvent, EndpointLimits, Now, ServerAddress,
    Side, Transmit,
};
use tokio::net::UdpSocket;
use tokio::sync::Notify;

use super::socket::{Buffers, SEND_BATCH, Socket};
use crate::clock::now;

/// The most datagrams that the task receives before it lets other tasks act, and the most changes by them before it sends again.
const BATCH: usize = 64;

/// The most clients whose handshake has failed at once and that the application has not seen. Further ones are only counted.
const MAX_FAILED: usize = 64;

/// The socket and the endpoint.
pub(super) struct Shared {
    socket: Socket,
    pub(super) local: SocketAddr,
    state: Mutex<State>,
    /// Wakes the task if it has to wait for something else.
    driver: Notify,
}

pub(super) struct State {
    pub(super) endpoint: Endpoint,
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
    /// Datagrams that the socket has not taken yet.
    unsent: Vec<Transmit>,
    /// While the answers to a batch of datagrams gather, so that they leave together: how many changes may still add to them.
    held: Option<usize>,
    /// Says of each datagram whether to lose it.
    pub(super) loss: Option<Box<dyn FnMut() -> bool + Send>>,
    /// The deadline that the task knows.
    planned: Option<dunlin::Instant>,
    /// The handles are gone, and the task ends.
    is_closed: bool,
    /// The association with each server, and whether the network says that no program receives there.
    servers: BTreeMap<SocketAddr, (AssociationId, bool)>,
    /// The tasks to wake, or to forget, without the lock: both can run code of the application, which may use the endpoint.
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
        add(self.waiting.entry(id).or_default(), cx);
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
        let id = self.endpoint.connect(config, server, peer, now())?;
        self.servers.insert(peer, (id, false));
        Ok(id)
    }

    /// Takes in a thawed connection.
    pub(super) fn adopt(&mut self, connection: DtlsConnection) -> Result<AssociationId, dunlin::Error> {
        let (side, peer) = (connection.side(), connection.peer_address());
        let id = self.endpoint.adopt(now(), connection)?;
        if side == Side::Client {
            self.servers.insert(peer, (id, false));
        }
        Ok(id)
    }

    pub(super) fn remove(&mut self, peer: SocketAddr, id: AssociationId) {
        self.wake(id);
        if self.servers.get(&peer).is_some_and(|(server, _)| *server == id) {
            self.servers.remove(&peer);
        }
        self.endpoint.remove(now(), id);
    }

    /// Wakes the tasks that wait for a change of an association.
    fn wake(&mut self, id: AssociationId) {
        self.woken.extend(self.waiting.remove(&id).unwrap_or_default());
    }

    /// Sends what waits, as far as the socket takes it.
    fn flush(&mut self, socket: &Socket) {
        let now = now();
        loop {
            while self.unsent.len() < SEND_BATCH {
                let Some(transmit) = self.next(now) else { break };
                self.unsent.push(transmit);
            }
            if self.unsent.is_empty() {
                self.woken.append(&mut self.senders);
                return;
            }
            match socket.send(&self.unsent) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                // Every other failure is a lost datagram, which the engine sends again if it matters.
                Err(e) => {
                    self.unsent.remove(0);
                    self.note(socket, &e);
                }
            }
        }
    }

    /// Takes the next datagram to send, without those that are to be lost.
    fn next(&mut self, now: Now) -> Option<Transmit> {
        loop {
            let transmit = self.endpoint.poll_transmit(now)?;
            if !self.loss.as_mut().is_some_and(|is_lost| is_lost()) {
                return Some(transmit);
            }
        }
    }

    /// Handles an error of the socket. An ICMP message only causes one if the socket is connected, and then belongs to that address.
    fn note(&mut self, socket: &Socket, error: &io::Error) {
        let Some(peer) = socket.peer_addr() else { return };
        if error.kind() != io::ErrorKind::ConnectionRefused {
            return;
        }
        if let Some((id, is_refused)) = self.servers.get_mut(&peer) {
            *is_refused = true;
            let id = *id;
            self.wake(id);
        }
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

impl Shared {
    pub(super) fn new(socket: UdpSocket, limits: EndpointLimits) -> io::Result<Self> {
        let state = State {
            endpoint: Endpoint::new(limits),
            incoming: BTreeSet::new(),
            failed: VecDeque::new(),
            waiting: BTreeMap::new(),
            acceptors: Vec::new(),
            senders: Vec::new(),
            unsent: Vec::new(),
            held: None,
            loss: None,
            planned: None,
            is_closed: false,
            servers: BTreeMap::new(),
            woken: Vec::new(),
        };
        let socket = Socket::new(socket)?;
        let local = socket.local_addr()?;
        Ok(Self { socket, local, state: Mutex::new(state), driver: Notify::new() })
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
        let was_blocked = !state.unsent.is_empty();
        let result = f(&mut state);
        state.hear();
        state.held = state.held.and_then(|left| left.checked_sub(1));
        if state.held.is_none() {
            state.flush(&self.socket);
        }
        let deadline = state.endpoint.poll_timeout();
        let is_earlier =
            deadline.is_some_and(|deadline| state.planned.is_none_or(|planned| deadline < planned));
        if is_earlier || !state.unsent.is_empty() && !was_blocked || state.is_closed {
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
            state.flush(&self.socket);
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
        loop {
            let (is_closed, is_blocked, deadline) = {
                let mut state = self.state();
                state.planned = state.endpoint.poll_timeout();
                (state.is_closed, !state.unsent.is_empty(), state.planned)
            };
            if is_closed && !is_blocked {
                return;
            }
            tokio::select! {
                () = self.driver.notified() => {}
                () = self.socket.readable(), if !is_closed => {
                    if self.receive(&mut buffers) {
                        // The tasks that were woken answer, and then all answers leave together.
                        tokio::task::yield_now().await;
                        self.act(|state| state.held = None);
                    }
                }
                () = self.socket.writable(), if is_blocked => self.act(|_| {}),
                () = self.socket.failed(), if !is_closed => self.act(|state| {
                    self.socket.take_error().iter().for_each(|error| state.note(&self.socket, error));
                }),
                () = until(deadline) => self.act(|state| state.endpoint.handle_timeout(now())),
            }
        }
    }

    /// Receives the datagrams that are there. Returns whether the output waits for other tasks.
    fn receive(&self, buffers: &mut Buffers) -> bool {
        self.act(|state| {
            let (now, mut received) = (now(), 0);
            while received < BATCH {
                let endpoint = &mut state.endpoint;
                match self.socket.receive(buffers, |from, datagram| endpoint.receive(now, from, datagram)) {
                    Ok(datagrams) => received += datagrams,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    Err(e) => {
                        state.note(&self.socket, &e);
                        break;
                    }
                }
            }
            if received > 1 {
                state.held = Some(BATCH);
            }
            received > 1
        })
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
