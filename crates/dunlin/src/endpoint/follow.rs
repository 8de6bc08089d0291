//! A client that follows the ServerHello of its server to another port ([`crate::PortScheme::Ipc`]).
//!
//! Anyone can forge a ServerHello. So the client keeps the state before it, and remembers the ServerHellos of
//! other ports. If the handshake with the first port fails, or falls silent while another one waits, the
//! client tries the next. It keeps a silent attempt: each datagram goes to the attempt of its port, and an
//! authentic record brings that attempt back. Without a new port to try, the attempts take turns, since only
//! the present one has timers. The client stops when a server has authenticated. Demands for cookies count
//! only from the port that the client has asked.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

use super::{AssociationId, Endpoint};
use crate::address::Path;
use crate::connection::DtlsConnection;
use crate::record::datagram::{Hello, MAX_RETIRED_KEYS, server_hello};
use crate::time::{Instant, Now};

/// The most ports whose ServerHello a client considers in one handshake.
const MAX_CANDIDATES: usize = 4;

/// The most attempts with one port. Forged ServerHellos that fail at once must not use up the keys of the
/// others.
const MAX_TRIES: usize = 8;

/// The most write keys that one attempt makes: for the rest of its handshake, and for data.
const KEYS_OF_ATTEMPT: usize = 2;

/// The longest datagram that a client keeps of a port that it has not tried, in bytes. The server repeats
/// what is missing.
const MAX_KEPT_HELLO: usize = 2048;

/// The time without an authentic record after which another port is tried, as a multiple of the first timeout
/// of retransmissions: the server's flight leaves again twice in that time.
const SILENCE: u32 = 4;

/// The longest turn of an attempt while there is another port, as a multiple of that time: a forger can send
/// authentic records, too.
const LONGEST: u32 = 4;

/// A label that usually tells the ServerHellos of two handshakes apart ([`server_hello`]). An attacker can
/// make two labels of one ServerHello, so the label only saves attempts that would fail. The sender of
/// records compares the keys.
type HelloName = Vec<u8>;

/// The state of a client that follows its server.
pub(super) struct Following {
    /// The address that the client has asked.
    welcome: SocketAddr,
    /// The handshake with a port that has sent a ServerHello.
    attempt: Option<Attempt>,
    /// Attempts that have fallen silent, and their connections; the first one has the next turn.
    silent: VecDeque<(Attempt, Box<DtlsConnection>)>,
    /// The connection before any ServerHello. `None` if it cannot be kept.
    kept: Option<Box<DtlsConnection>>,
    /// Ports that the client has not tried yet.
    waiting: VecDeque<Candidate>,
    /// The ports that have sent a ServerHello, and how many attempts each has had.
    seen: Vec<(SocketAddr, usize)>,
    /// The ServerHellos under whose keys the client may have sent something.
    tried: Vec<HelloName>,
    /// The time of [`SILENCE`].
    patience: Duration,
    /// When the present turn began. Only the end of a turn begins another one, so that no sender can prolong
    /// it.
    turn: Instant,
}

struct Attempt {
    address: SocketAddr,
    /// Other ports that have sent the same ServerHello; the next to use is first.
    others: VecDeque<SocketAddr>,
    hello: HelloName,
    /// When the client began to wait for a record of this attempt.
    begun: Instant,
    /// Whether the handshake waits for the caller, during which no server can be silent.
    is_paused: bool,
}

struct Candidate {
    path: Path,
    hello: HelloName,
    datagram: Vec<u8>,
}

impl Attempt {
    const fn new(address: SocketAddr, hello: HelloName, begun: Instant) -> Self {
        Self { address, others: VecDeque::new(), hello, begun, is_paused: false }
    }

    /// Whether this address belongs to the attempt.
    fn has(&self, address: SocketAddr) -> bool {
        self.address == address || self.others.contains(&address)
    }

    /// Goes on with another address of the attempt, whose connection this is.
    fn go_to(&mut self, address: SocketAddr, connection: &mut DtlsConnection) {
        if let Some(at) = self.others.iter().position(|other| *other == address) {
            self.others.remove(at);
            self.others.push_back(core::mem::replace(&mut self.address, address));
            connection.follow_server(address);
        }
    }
}

impl Following {
    pub(super) fn new(welcome: SocketAddr, first_timeout: Duration) -> Self {
        Self {
            welcome,
            attempt: None,
            silent: VecDeque::new(),
            kept: None,
            waiting: VecDeque::new(),
            seen: Vec::new(),
            tried: Vec::new(),
            patience: first_timeout * SILENCE,
            turn: Instant(0),
        }
    }

    /// When the present attempt counts as silent, if there is another port and the latest authentic record
    /// came at `heard_at`.
    pub(super) fn deadline(&self, heard_at: Instant) -> Option<Instant> {
        let attempt = self.attempt.as_ref().filter(|attempt| !attempt.is_paused)?;
        let is_only = self.waiting.is_empty() && self.silent.is_empty() && attempt.others.is_empty();
        let silent = heard_at.max(attempt.begun) + self.patience;
        (!is_only).then(|| silent.min(self.turn + self.patience * LONGEST))
    }

    /// Whether the present attempt or a silent one has this address.
    fn knows(&self, address: SocketAddr) -> bool {
        self.silent
            .iter()
            .map(|(attempt, _)| attempt)
            .chain(&self.attempt)
            .any(|attempt| attempt.has(address))
    }

    /// Notes whether the handshake waits for the caller. When it goes on, the time of [`SILENCE`] begins
    /// anew.
    fn pause(&mut self, is_paused: bool, now: Instant) {
        if let Some(attempt) = &mut self.attempt
            && core::mem::replace(&mut attempt.is_paused, is_paused)
            && !is_paused
        {
            (attempt.begun, self.turn) = (now, now);
        }
    }

    /// Begins the turn of the present attempt.
    fn begin_turn(&mut self, now: Instant) {
        self.turn = now;
        if let Some(attempt) = &mut self.attempt {
            attempt.begun = now;
        }
    }

    /// Notes a port with a ServerHello. Returns whether the client considers it.
    fn see(&mut self, address: SocketAddr) -> bool {
        const { assert!(MAX_CANDIDATES * MAX_TRIES * KEYS_OF_ATTEMPT <= MAX_RETIRED_KEYS) }
        if let Some((_, tries)) = self.seen.iter().find(|(seen, _)| *seen == address) {
            return *tries < MAX_TRIES;
        }
        let has_room = self.seen.len() < MAX_CANDIDATES;
        if has_room {
            self.seen.push((address, 0));
        }
        has_room
    }

    /// Counts an attempt with this port.
    fn count_try(&mut self, address: SocketAddr) {
        if let Some((_, tries)) = self.seen.iter_mut().find(|(seen, _)| *seen == address) {
            *tries += 1;
        }
    }

    /// Remembers the ServerHello of a port that the client does not try yet.
    fn remember(&mut self, path: Path, hello: HelloName, datagram: &[u8]) {
        let is_known = self.waiting.iter().any(|candidate| candidate.path.peer == path.peer);
        if is_known || datagram.len() > MAX_KEPT_HELLO || !self.see(path.peer) {
            return;
        }
        match self.silent.iter_mut().find(|(attempt, _)| attempt.hello == hello) {
            // The next datagram from there may belong to that attempt.
            Some((attempt, _)) => attempt.others.push_back(path.peer),
            None => self.waiting.push_back(Candidate { path, hello, datagram: datagram.to_vec() }),
        }
    }

    /// The silent attempt that has heard from a server last.
    fn liveliest(&self) -> Option<usize> {
        let heard = self.silent.iter().map(|(_, connection)| connection.heard_at());
        heard.enumerate().max_by_key(|(_, heard_at)| *heard_at).map(|(at, _)| at)
    }

    /// Goes on with the silent attempt at this place, in place of the present one, which has failed.
    fn resume(&mut self, at: usize, connection: &mut DtlsConnection) {
        if let Some((attempt, mut other)) = self.silent.remove(at) {
            other.replace(connection);
            *connection = *other;
            self.attempt = Some(attempt);
        }
    }

    /// Exchanges the present attempt for the silent one that has this address. The others keep their places.
    /// `false` if there is none.
    fn exchange(&mut self, address: SocketAddr, connection: &mut DtlsConnection) -> bool {
        let Some(present) = &mut self.attempt else { return false };
        let Some((attempt, other)) = self.silent.iter_mut().find(|(attempt, _)| attempt.has(address)) else {
            return false;
        };
        other.replace(connection);
        core::mem::swap(connection, &mut **other);
        core::mem::swap(present, attempt);
        true
    }
}

impl Endpoint {
    /// The association that follows its server at this address.
    pub(super) fn follower(&self, from: SocketAddr, datagram: &[u8]) -> Option<AssociationId> {
        // A client on the server's host is a stranger.
        if self.followers.is_empty() || Hello::read(datagram).is_some() {
            return None;
        }
        let id = *self.followers.get(&from.ip())?;
        let route = self.index.routes.get(from);
        (route.is_empty() || route.ids().any(|at| at == id)).then_some(id)
    }

    /// Takes a datagram from the address of a server that a client follows.
    pub(super) fn follow(&mut self, now: Now, from: Path, id: AssociationId, datagram: &[u8]) {
        let Some(association) = self.associations.get_mut(&id) else { return };
        let Some(following) = &mut association.following else { return };
        let hello = server_hello(datagram);
        let at = following.attempt.as_ref().map(|attempt| attempt.address);
        match (at, hello) {
            (Some(at), _) if at == from.peer => self.deliver(now, from, id, datagram),
            (Some(at), _) if following.knows(from.peer) => self.deliver_aside(now, from, id, datagram, at),
            (Some(_), Some(hello)) => {
                following.remember(from, hello, datagram);
                self.refresh(id);
            }
            // Before a ServerHello, only the port that the client has asked may say something else.
            (None, None) if from.peer == following.welcome => self.deliver(now, from, id, datagram),
            (None, Some(hello)) if following.see(from.peer) => {
                self.attempt(now, from, id, hello, datagram);
            }
            _ => self.discarded.unknown += 1,
        }
    }

    /// Takes a datagram from a port of an attempt that is not the present one, whose address is `present`.
    /// The client goes on with that port if the datagram has an authentic record, or has led to a question to
    /// the caller. Otherwise nothing changes for the present attempt, not even its patience: anyone can send
    /// such a datagram.
    fn deliver_aside(
        &mut self,
        now: Now,
        from: Path,
        id: AssociationId,
        datagram: &[u8],
        present: SocketAddr,
    ) {
        if !self.turn_to(now, id, from.peer) {
            self.discarded.unknown += 1;
            return;
        }
        if let Some(association) = self.associations.get_mut(&id) {
            association.connection.forget_authentic();
        }
        self.deliver(now, from, id, datagram);
        let Some(association) = self.associations.get_mut(&id) else { return };
        let Some(following) = &mut association.following else { return };
        let Some(attempt) = following.attempt.as_mut().filter(|attempt| attempt.address == from.peer) else {
            return;
        };
        // An authentic record from the present port may have arrived at the same time.
        if association.connection.is_newly_authentic() {
            attempt.begun = now.monotonic;
        } else {
            self.turn_to(now, id, present);
        }
        self.refresh(id);
    }

    /// Goes on with the attempt that has this address. The output of the present one leaves first. `false` if
    /// the present one waits for the caller, or if there is no such attempt.
    fn turn_to(&mut self, now: Now, id: AssociationId, address: SocketAddr) -> bool {
        self.drain(now, id);
        let Some(association) = self.associations.get_mut(&id) else { return false };
        let connection = &mut association.connection;
        let Some(following) = association.following.as_deref_mut().filter(|_| !connection.awaits_answer())
        else {
            return false;
        };
        let is_there = following.attempt.as_ref().is_some_and(|attempt| attempt.has(address));
        if !is_there && !following.exchange(address, connection) {
            return false;
        }
        if let Some(attempt) = &mut following.attempt {
            attempt.go_to(address, connection);
        }
        true
    }

    /// Lets everything leave that the connection has to send.
    fn drain(&mut self, now: Now, id: AssociationId) {
        while let Some(association) = self.associations.get_mut(&id)
            && let Some(transmit) = association.connection.poll_transmit(now)
        {
            association.tally.transmit(transmit.datagram.len(), &association.connection);
            self.stray(transmit);
        }
    }

    /// Begins a handshake with a port that has sent a ServerHello.
    fn attempt(&mut self, now: Now, from: Path, id: AssociationId, hello: HelloName, datagram: &[u8]) {
        let Some(association) = self.associations.get_mut(&id) else { return };
        let Some(following) = &mut association.following else { return };
        following.kept = association.connection.again().map(Box::new);
        following.attempt = Some(Attempt::new(from.peer, hello, now.monotonic));
        following.turn = now.monotonic;
        following.count_try(from.peer);
        association.connection.follow_server(from.peer);
        self.deliver(now, from, id, datagram);
    }

    /// Tries another port if the present one has failed, or has been silent until `now`. Ends the search once
    /// a server has authenticated.
    pub(super) fn check_attempt(&mut self, id: AssociationId, now: Option<Now>) {
        let Some(association) = self.associations.get_mut(&id) else { return };
        let Some(following) = &mut association.following else { return };
        let connection = &mut association.connection;
        let clock = now.unwrap_or_else(|| connection.clock());
        let has_failed = connection.error().is_some();
        following.pause(connection.awaits_answer(), clock.monotonic);
        let deadline = following.deadline(connection.heard_at());
        let is_silent = deadline.is_some_and(|deadline| now.is_some_and(|now| deadline <= now.monotonic));
        if connection.negotiated().is_some() || has_failed && following.attempt.is_none() {
            self.stop_following(id);
        } else if has_failed {
            self.replace_attempt(clock, id);
        } else if is_silent {
            self.leave_attempt(clock, id);
        }
    }

    /// Goes on after the present attempt has failed.
    fn replace_attempt(&mut self, now: Now, id: AssociationId) {
        if self.try_candidate(now, id) {
            return;
        }
        let Some(association) = self.associations.get_mut(&id) else { return };
        let Some(following) = &mut association.following else { return };
        let connection = &mut association.connection;
        if let Some(at) = following.liveliest() {
            following.resume(at, connection);
            following.begin_turn(now.monotonic);
        } else if following.seen.len() < MAX_CANDIDATES
            && let Some(mut kept) = following.kept.take()
        {
            following.attempt = None;
            kept.replace(connection);
            *connection = *kept;
        } else {
            self.stop_following(id);
        }
    }

    /// Goes on after the present attempt was silent.
    fn leave_attempt(&mut self, now: Now, id: AssociationId) {
        self.drain(now, id);
        let Some(association) = self.associations.get_mut(&id) else { return };
        let Some(following) = association.following.as_deref_mut() else { return };
        following.begin_turn(now.monotonic);
        let Some(attempt) = &mut following.attempt else { return };
        let copy = following.waiting.iter().position(|candidate| candidate.hello == attempt.hello);
        if let Some(copy) = copy.and_then(|at| following.waiting.remove(at)) {
            // Another port repeats this ServerHello, so one of the two may be a forwarder. The handshake goes
            // on with the other one.
            attempt.others.push_front(copy.path.peer);
            attempt.go_to(copy.path.peer, &mut association.connection);
            return;
        }
        if let Some(next) = attempt.others.front().copied() {
            attempt.go_to(next, &mut association.connection);
        }
        let next = following.silent.front().map(|(attempt, _)| attempt.address);
        if !self.try_candidate(now, id)
            && let Some(next) = next
            && self.turn_to(now, id, next)
            && let Some(association) = self.associations.get_mut(&id)
            && let Some(following) = &mut association.following
        {
            // The attempt that has had its turn waits behind the others.
            following.silent.rotate_left(1);
        }
    }

    /// Tries the next port that waits, with the connection before any ServerHello. `false` if there is none.
    fn try_candidate(&mut self, now: Now, id: AssociationId) -> bool {
        let Some(association) = self.associations.get_mut(&id) else { return false };
        let Some(following) = association.following.as_deref_mut() else { return false };
        let connection = &mut association.connection;
        // The same ServerHello again would lead to the same keys, which the connection refuses.
        if let Some(attempt) = following.attempt.as_ref().filter(|_| connection.is_protected())
            && !following.tried.contains(&attempt.hello)
        {
            following.tried.push(attempt.hello.clone());
        }
        let tried = &following.tried;
        following.waiting.retain(|candidate| !tried.contains(&candidate.hello));
        let Some(mut next) = following.kept.take_if(|_| !following.waiting.is_empty()) else { return false };
        let Some(Candidate { path, hello, datagram }) = following.waiting.pop_front() else { return false };
        next.replace(connection);
        core::mem::swap(connection, &mut *next);
        if let Some(attempt) = following.attempt.take().filter(|_| next.error().is_none()) {
            following.silent.push_back((attempt, next));
        }
        self.pool.counts.retried += 1;
        self.attempt(now, path, id, hello, &datagram);
        true
    }

    /// Considers no other ports any more, because a server has authenticated or the association ends.
    pub(super) fn stop_following(&mut self, id: AssociationId) {
        let Some(association) = self.associations.get_mut(&id) else { return };
        let Some(following) = association.following.take() else { return };
        self.followers.remove(&following.welcome.ip());
        if association.connection.negotiated().is_none()
            && let Some(mut kept) = following.kept
        {
            kept.abandon();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> Path {
        SocketAddr::from(([192, 0, 2, 1], port)).into()
    }

    #[test]
    fn a_handshake_that_waits_for_the_caller_is_not_silent() {
        let second = Duration::from_secs(1);
        let mut following = Following::new(at(1).peer, second);
        following.attempt = Some(Attempt::new(at(2).peer, Vec::new(), Instant(0)));
        following.begin_turn(Instant(10));
        assert_eq!(following.deadline(Instant(0)), None, "no other port to try");
        following.remember(at(3), Vec::new(), &[0; MAX_KEPT_HELLO + 1]);
        assert!(following.waiting.is_empty(), "too long to keep");
        following.remember(at(3), Vec::new(), &[]);
        assert_eq!(following.deadline(Instant(0)), Some(Instant(10) + second * SILENCE));
        assert_eq!(following.deadline(Instant(20)), Some(Instant(20) + second * SILENCE));
        assert_eq!(following.deadline(Instant(90_000)), Some(Instant(10) + second * SILENCE * LONGEST));
        // An attempt that comes back has new patience, but no longer turn.
        following.attempt = Some(Attempt::new(at(2).peer, Vec::new(), Instant(90_000)));
        assert_eq!(following.deadline(Instant(0)), Some(Instant(10) + second * SILENCE * LONGEST));
        following.pause(true, Instant(20));
        assert_eq!(following.deadline(Instant(0)), None);
        following.pause(true, Instant(40));
        following.pause(false, Instant(50_000));
        following.pause(false, Instant(60_000));
        assert_eq!(following.deadline(Instant(0)), Some(Instant(50_000) + second * SILENCE));
    }

    #[test]
    fn considers_four_ports() {
        let mut following = Following::new(at(1).peer, Duration::from_secs(1));
        (2..9).for_each(|port| following.remember(at(port), Vec::new(), &[]));
        (2..9).for_each(|port| following.remember(at(port), Vec::new(), &[]));
        assert_eq!((following.waiting.len(), following.seen.len()), (MAX_CANDIDATES, MAX_CANDIDATES));
        assert!(following.see(at(2).peer) && !following.see(at(6).peer));
        // Each of them several times.
        (0..MAX_TRIES).for_each(|_| following.count_try(at(2).peer));
        assert!(!following.see(at(2).peer) && following.see(at(3).peer));
    }
}
