//! What the handles of an endpoint share with the task that drives it.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use dunlin::{AssociationId, Endpoint, EndpointEvent, EndpointLimits, Transmit};
use tokio::net::UdpSocket;
use tokio::sync::Notify;

use crate::clock::now;

/// The size of the receive buffer in bytes: the largest UDP payload.
const MAX_DATAGRAM: usize = 65_536;

/// The most datagrams that the task receives before it sends again and lets other tasks act.
const BATCH: usize = 64;

/// The socket and the endpoint.
pub(super) struct Shared {
    socket: UdpSocket,
    pub(super) local: SocketAddr,
    state: Mutex<State>,
    /// Wakes the task if it has to wait for something else.
    driver: Notify,
}

pub(super) struct State {
    pub(super) endpoint: Endpoint,
    /// Associations that wait for the application to accept them.
    pub(super) incoming: VecDeque<AssociationId>,
    /// The tasks that wait for a change of an association.
    waiting: BTreeMap<AssociationId, Vec<Waker>>,
    /// The tasks that wait for clients.
    acceptors: Vec<Waker>,
    /// The tasks that wait for room in the output.
    senders: Vec<Waker>,
    /// A datagram that the socket has not taken yet.
    unsent: Option<Transmit>,
    /// Says of each datagram whether to lose it.
    pub(super) loss: Option<Box<dyn FnMut() -> bool + Send>>,
    /// The deadline that the task knows.
    planned: Option<dunlin::Instant>,
    /// The handles are gone, and the task ends.
    is_closed: bool,
    /// The network says that no program receives at the address to which the socket is connected.
    pub(super) is_refused: bool,
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

    pub(super) fn remove(&mut self, id: AssociationId) {
        self.waiting.remove(&id);
        self.endpoint.remove(now(), id);
    }

    /// Sends what waits, as far as the socket takes it. Returns the tasks to wake.
    fn flush(&mut self, socket: &UdpSocket) -> Vec<Waker> {
        loop {
            let Some(transmit) = self.unsent.take().or_else(|| self.next()) else {
                return std::mem::take(&mut self.senders);
            };
            match socket.try_send_to(&transmit.datagram, transmit.to) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.unsent = Some(transmit);
                    return Vec::new();
                }
                // Every other failure is a lost datagram, which the engine sends again if it matters.
                Err(e) => self.note(&e),
                Ok(_) => {}
            }
        }
    }

    /// Takes the next datagram to send, without those that are to be lost.
    fn next(&mut self) -> Option<Transmit> {
        loop {
            let transmit = self.endpoint.poll_transmit(now())?;
            if !self.loss.as_mut().is_some_and(|is_lost| is_lost()) {
                return Some(transmit);
            }
        }
    }

    /// Handles an error of the socket. ICMP messages only cause errors if the socket is connected.
    fn note(&mut self, error: &io::Error) {
        if error.kind() == io::ErrorKind::ConnectionRefused {
            self.is_refused = true;
            self.waiting.values_mut().flat_map(std::mem::take).for_each(Waker::wake);
        }
    }

    /// Handles the endpoint's events. Returns the tasks to wake.
    fn hear(&mut self) -> Vec<Waker> {
        let mut wakers = Vec::new();
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                EndpointEvent::Incoming(id) => {
                    self.incoming.push_back(id);
                    wakers.append(&mut self.acceptors);
                }
                EndpointEvent::Changed(id) => wakers.extend(self.waiting.remove(&id).unwrap_or_default()),
                _ => {}
            }
        }
        wakers
    }
}

impl Shared {
    pub(super) fn new(socket: UdpSocket, limits: EndpointLimits) -> io::Result<Self> {
        let state = State {
            endpoint: Endpoint::new(limits),
            incoming: VecDeque::new(),
            waiting: BTreeMap::new(),
            acceptors: Vec::new(),
            senders: Vec::new(),
            unsent: None,
            loss: None,
            planned: None,
            is_closed: false,
            is_refused: false,
        };
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
        let was_blocked = state.unsent.is_some();
        let result = f(&mut state);
        let mut wakers = state.flush(&self.socket);
        wakers.extend(state.hear());
        let deadline = state.endpoint.poll_timeout();
        let is_earlier =
            deadline.is_some_and(|deadline| state.planned.is_none_or(|planned| deadline < planned));
        if is_earlier || state.unsent.is_some() && !was_blocked || state.is_closed {
            self.driver.notify_one();
        }
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        result
    }

    /// Ends the task, once it has sent the output.
    pub(super) fn close(&self) {
        self.act(|state| state.is_closed = true);
    }

    /// Drives the endpoint until its handles are gone.
    pub(super) async fn drive(self: Arc<Self>) {
        let mut buffer = vec![0; MAX_DATAGRAM];
        loop {
            let (is_closed, is_blocked, deadline) = {
                let mut state = self.state();
                state.planned = state.endpoint.poll_timeout();
                (state.is_closed, state.unsent.is_some(), state.planned)
            };
            if is_closed && !is_blocked {
                return;
            }
            tokio::select! {
                () = self.driver.notified() => {}
                _ = self.socket.readable(), if !is_closed => self.receive(&mut buffer),
                _ = self.socket.writable(), if is_blocked => self.act(|_| {}),
                () = until(deadline) => self.act(|state| state.endpoint.handle_timeout(now())),
            }
        }
    }

    /// Receives the datagrams that are there.
    fn receive(&self, buffer: &mut [u8]) {
        self.act(|state| {
            for _ in 0..BATCH {
                match self.socket.try_recv_from(buffer) {
                    Ok((len, from)) => {
                        let datagram = buffer.get(..len).unwrap_or_default();
                        state.endpoint.receive(now(), from, datagram);
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                    Err(e) => state.note(&e),
                }
            }
        });
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
        self.shared().act(|state| state.remove(self.id));
    }
}
