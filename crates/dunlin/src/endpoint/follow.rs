//! A client that follows the ServerHello of its server to another port ([`crate::PortScheme::Ipc`]).
//!
//! Anyone can forge a ServerHello. So the client keeps the state before it, and remembers the ServerHellos of other ports. If the
//! handshake with the first port fails, or falls silent while another one waits, the client tries the next. It stops when a server has
//! authenticated. Demands for cookies count only from the port that the client has asked.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

use super::{AssociationId, Endpoint};
use crate::address::Path;
use crate::connection::DtlsConnection;
use crate::record::datagram::{Hello, server_hello};
use crate::time::{Instant, Now};

/// The most ports whose ServerHello a client considers in one handshake.
const MAX_CANDIDATES: usize = 4;

/// The longest datagram that a client keeps of a port that it has not tried, in bytes. The server repeats what is missing.
const MAX_KEPT_HELLO: usize = 2048;

/// The time without an authentic record after which another port is tried, as a multiple of the first timeout of retransmissions: the
/// server's flight leaves again twice in that time. A port that was given up is not tried again.
const SILENCE: u32 = 4;

/// The longest attempt while another port waits, as a multiple of that time: a forger can send authentic records, too.
const LONGEST: u32 = 4;

/// What usually tells the ServerHellos of two handshakes apart ([`server_hello`]). An attacker can make two labels of one ServerHello, so
/// the label saves attempts that would fail, but the sender of records compares the keys.
type HelloName = Vec<u8>;

/// What a client needs to follow its server.
pub(super) struct Following {
    /// The address that the client has asked.
    welcome: SocketAddr,
    /// The handshake with a port that has sent a ServerHello.
    attempt: Option<Attempt>,
    /// Ports that the client has not tried yet.
    waiting: VecDeque<Candidate>,
    /// The ports that have sent a ServerHello.
    seen: Vec<SocketAddr>,
    /// The ServerHellos under whose keys the client has sent something.
    tried: Vec<HelloName>,
    /// The time of [`SILENCE`].
    patience: Duration,
}

struct Attempt {
    address: SocketAddr,
    hello: HelloName,
    /// The connection before the ServerHello. `None` if it cannot be kept.
    kept: Option<Box<DtlsConnection>>,
    begun: Instant,
    /// Whether the handshake waits for the caller, during which no server can be silent.
    is_paused: bool,
}

struct Candidate {
    path: Path,
    hello: HelloName,
    datagram: Vec<u8>,
}

impl Following {
    pub(super) fn new(welcome: SocketAddr, first_timeout: Duration) -> Self {
        Self {
            welcome,
            attempt: None,
            waiting: VecDeque::new(),
            seen: Vec::new(),
            tried: Vec::new(),
            patience: first_timeout * SILENCE,
        }
    }

    /// When the present attempt counts as silent, if there is another port to try and the latest authentic record came at `heard_at`.
    pub(super) fn deadline(&self, heard_at: Instant) -> Option<Instant> {
        let Attempt { begun, .. } =
            self.attempt.as_ref().filter(|attempt| !self.waiting.is_empty() && !attempt.is_paused)?;
        let silent = heard_at.max(*begun) + self.patience;
        Some(silent.min(*begun + self.patience * LONGEST))
    }

    /// Notes whether the handshake waits for the caller. When it goes on, the time of [`SILENCE`] begins anew.
    fn pause(&mut self, is_paused: bool, now: Instant) {
        if let Some(attempt) = &mut self.attempt
            && core::mem::replace(&mut attempt.is_paused, is_paused)
            && !is_paused
        {
            attempt.begun = now;
        }
    }

    /// Notes a port with a ServerHello. Returns whether the client considers it.
    fn see(&mut self, address: SocketAddr) -> bool {
        if self.seen.contains(&address) {
            return true;
        }
        let has_room = self.seen.len() < MAX_CANDIDATES;
        if has_room {
            self.seen.push(address);
        }
        has_room
    }

    /// Remembers the ServerHello of a port that the client does not try yet.
    fn remember(&mut self, path: Path, hello: HelloName, datagram: &[u8]) {
        let is_known = self.waiting.iter().any(|candidate| candidate.path.peer == path.peer);
        if !is_known && datagram.len() <= MAX_KEPT_HELLO && self.see(path.peer) {
            self.waiting.push_back(Candidate { path, hello, datagram: datagram.to_vec() });
        }
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

    /// Begins a handshake with a port that has sent a ServerHello.
    fn attempt(&mut self, now: Now, from: Path, id: AssociationId, hello: HelloName, datagram: &[u8]) {
        let Some(association) = self.associations.get_mut(&id) else { return };
        let Some(following) = &mut association.following else { return };
        let kept = association.connection.again().map(Box::new);
        following.attempt =
            Some(Attempt { address: from.peer, hello, kept, begun: now.monotonic, is_paused: false });
        association.connection.follow_server(from.peer);
        self.deliver(now, from, id, datagram);
    }

    /// Tries another port if the present one has failed, or has been silent until `now`. Ends the search once a server has
    /// authenticated.
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
            return;
        }
        if !has_failed && !is_silent {
            return;
        }
        let Some(mut attempt) = following.attempt.take() else { return };
        let copy = following.waiting.iter().position(|candidate| candidate.hello == attempt.hello);
        if let Some(copy) = copy.filter(|_| !has_failed).and_then(|at| following.waiting.remove(at)) {
            // Another port repeats this ServerHello, so one of the two may be a forwarder. The handshake goes on with the other one.
            connection.follow_server(copy.path.peer);
            (attempt.address, attempt.begun) = (copy.path.peer, clock.monotonic);
            following.attempt = Some(attempt);
            return;
        }
        // The same ServerHello again would lead to the same keys, which the connection refuses.
        if connection.is_protected() {
            following.tried.push(attempt.hello.clone());
        }
        let tried = &following.tried;
        following.waiting.retain(|candidate| !tried.contains(&candidate.hello));
        let candidate = following.waiting.pop_front();
        let may_wait = candidate.is_some() || has_failed && following.seen.len() < MAX_CANDIDATES;
        let Some(mut kept) = attempt.kept.take_if(|_| may_wait) else {
            following.attempt = Some(attempt);
            if has_failed {
                self.stop_following(id);
            }
            return;
        };
        kept.replace(connection);
        association.connection = *kept;
        if let Some(Candidate { path, hello, datagram }) = candidate {
            self.pool.counts.retried += 1;
            self.attempt(clock, path, id, hello, &datagram);
        }
    }

    /// Considers no other ports any more, because a server has authenticated or the association ends.
    pub(super) fn stop_following(&mut self, id: AssociationId) {
        let Some(association) = self.associations.get_mut(&id) else { return };
        let Some(following) = association.following.take() else { return };
        self.followers.remove(&following.welcome.ip());
        if association.connection.negotiated().is_none()
            && let Some(mut kept) = following.attempt.and_then(|attempt| attempt.kept)
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
        following.attempt = Some(Attempt {
            address: at(2).peer,
            hello: Vec::new(),
            kept: None,
            begun: Instant(10),
            is_paused: false,
        });
        assert_eq!(following.deadline(Instant(0)), None, "no other port to try");
        following.remember(at(3), Vec::new(), &[0; MAX_KEPT_HELLO + 1]);
        assert!(following.waiting.is_empty(), "too long to keep");
        following.remember(at(3), Vec::new(), &[]);
        assert_eq!(following.deadline(Instant(0)), Some(Instant(10) + second * SILENCE));
        assert_eq!(following.deadline(Instant(20)), Some(Instant(20) + second * SILENCE));
        assert_eq!(following.deadline(Instant(90_000)), Some(Instant(10) + second * SILENCE * LONGEST));
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
    }
}
