//! The port of an association without connection IDs, which its server takes from a pool
//! (docs/association-ports.md).
//!
//! With IPC the server sends from that port at once. With TCS the handshake stays at the welcome port. Then
//! the client moves, and says so from its new path by a record of its own type until an answer has come back.
//! The server keeps the old path until such a record has arrived at the new port, and answers each once. A
//! client that gets no answer returns to the old path. The server may have moved all the same, and may know
//! another address of the client. So if the client's data stay without an answer, it speaks to the port
//! again.
//!
//! An attacker can forward a record faster than the network, from another port of the client's address. So
//! only the newest record about the port moves the server, and for a time the next one of the client moves it
//! again.

use core::net::SocketAddr;
use core::time::Duration;

use super::receive::ReceivedRecord;
use super::{Datagram, Emitter, Side};
use crate::address::{Local, Path};
use crate::error::{Error, PeerMisbehaved};
use crate::extension::association_port::Answer;
use crate::flight::timers::Timer;
use crate::settings::{NoPort, PortScheme};
use crate::time::Instant;
use crate::wire::{ContentType, ExtensionType, Field, Reader, Writer};

/// The meaning of a record about the port. An attacker can forward an announcement to the client from the
/// port, so an answer differs from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    /// The server of [`PortScheme::TcsMessage`] names the port.
    Announcement = 2,
    /// The client has come to the port; the server answers with the same bytes.
    Arrival = 3,
}

/// How often a client speaks to the announced port before it returns to the old path. With the default
/// timeouts that takes 15 seconds.
const CLIENT_ATTEMPTS: u32 = 4;

/// How often a server announces the port after the handshake. With the default timeouts that takes four
/// minutes.
const SERVER_ATTEMPTS: u32 = 8;

/// A port of a server's pool, and the socket that is bound to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PoolPort {
    pub(crate) local: Local,
    pub(crate) port: u16,
}

/// The claim of a server's connection on the endpoint's pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// No port: the client wants none, or there is no scheme.
    Nothing,
    /// This port, which the endpoint has offered. Perhaps the connection will give it back.
    Port(Local),
    /// A port, but there is none.
    Missing(NoPort),
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    /// The association has no port of its own, and will get none.
    #[default]
    Nothing,
    /// The endpoint offers a port to the client of this server, or says why it does not.
    Offered(Result<PoolPort, NoPort>),
    /// The client of this server was to have a port, but there is none.
    Missing(NoPort),
    /// The association of this server has a port. `has_arrived`: the client is there. `left`: the client's
    /// port on the old path, while the client may still wait for an answer.
    Own { port: PoolPort, scheme: PortScheme, has_arrived: bool, left: Option<u16> },
    /// This client may get an announcement by a record.
    Open,
    /// This client moves to the port once its handshake is complete.
    Expected(u16),
    /// This client has moved, and has not heard from the new port yet.
    Moving { old_port: u16 },
    /// This client has heard from the new port.
    Moved,
    /// This client has returned to the old path, since nothing came from the port. The server may be there
    /// all the same: the client goes where it hears the server next.
    Returned { port: u16 },
    /// This client has followed its server to another port by IPC.
    Followed,
    /// This client stays where it is, since the port is the present one.
    Stayed,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ports {
    state: State,
    /// How often this side has sent a record about the port since it has been waiting for the peer.
    attempts: u32,
}

impl Ports {
    pub(super) const fn new(side: Side, scheme: Option<PortScheme>) -> Self {
        let state = match (side, scheme) {
            (Side::Client, Some(PortScheme::Tcs | PortScheme::TcsMessage)) => State::Open,
            _ => State::Nothing,
        };
        Self { state, attempts: 0 }
    }

    /// Connection IDs serve the same purpose.
    pub(super) const fn give_up(&mut self) {
        self.state = State::Nothing;
    }

    /// Whether the peer may send records about ports.
    pub(super) const fn takes_records(&self) -> bool {
        match self.state {
            State::Own { scheme, .. } => !scheme.is_ipc(),
            State::Open
            | State::Expected(_)
            | State::Moving { .. }
            | State::Moved
            | State::Returned { .. }
            | State::Stayed => true,
            State::Nothing | State::Offered(_) | State::Missing(_) | State::Followed => false,
        }
    }

    /// Whether the association depends on nothing that another process does not have: a server's pool, or the
    /// client's old path.
    pub(super) const fn are_portable(&self) -> bool {
        !matches!(self.state, State::Own { .. } | State::Expected(_) | State::Moving { .. })
    }

    /// Writes the port from which this client has returned; 0 for none.
    pub(super) fn freeze(&self, w: &mut Writer) {
        w.u16(match self.state {
            State::Returned { port } => port,
            _ => 0,
        });
    }

    /// Continues with the output of [`Self::freeze`].
    pub(super) fn thaw(&mut self, r: &mut Reader<'_>, side: Side) -> Result<(), Error> {
        match (r.u16()?, side) {
            (0, _) => Ok(()),
            (_, Side::Server) => Err(r.bad_value().into()),
            (port, Side::Client) => {
                *self = Self { state: State::Returned { port }, attempts: CLIENT_ATTEMPTS };
                Ok(())
            }
        }
    }

    /// Whether a datagram over `path` may be the peer's, although the address is not its present one: a NAT
    /// may give a client another port towards the association's port, and a server sends over the old path
    /// until it has heard from the client over the new one.
    pub(super) fn admits(&self, path: Path, present: Path) -> bool {
        match self.state {
            State::Own { port, has_arrived, left, .. } => {
                let may_be_here = path.local == port.local && (!has_arrived || left.is_some());
                path.peer.ip() == present.peer.ip() && (may_be_here || left == Some(path.peer.port()))
            }
            State::Moving { .. } => self.old(present).is_some_and(|old| old.peer == path.peer),
            State::Returned { port } => path.peer == SocketAddr::new(present.peer.ip(), port),
            _ => false,
        }
    }

    /// The path that this client has left and still keeps. Only the peer's port differs from the present one.
    pub(super) fn old(&self, mut present: Path) -> Option<Path> {
        let State::Moving { old_port } = self.state else { return None };
        present.peer.set_port(old_port);
        Some(present)
    }
}

impl Datagram {
    /// The same connection once more, while it waits for a ServerHello.
    pub(crate) fn again(&self) -> Option<Self> {
        Some(Self {
            side: self.side,
            paths: self.paths.again()?,
            interfaces: self.interfaces.clone(),
            ports: self.ports,
            has_moved: false,
            receiver: self.receiver.again()?,
            sender: self.sender.again()?,
            complete: false,
            timers: self.timers.clone(),
            retransmit: self.retransmit.again(),
            now: self.now,
            used_at: self.used_at,
            is_address_proven: self.is_address_proven,
            received_bytes: self.received_bytes,
            settings: self.settings,
        })
    }

    /// Whether this side has keys for what it sends.
    pub(crate) const fn is_protected(&self) -> bool {
        self.sender.is_protected()
    }

    /// Takes the place of another attempt, and uses none of its keys.
    pub(crate) fn replace(&mut self, previous: &mut Self) {
        self.sender.retire_keys(Some(&mut previous.sender));
    }

    /// Continues with this address of the peer, whose ServerHello has arrived. Datagrams that wait for
    /// transmission leave for the previous address.
    pub(crate) fn follow_server(&mut self, peer: SocketAddr) {
        let present = self.paths.present();
        self.sender.retire_keys(None);
        self.sender.fix_output(present);
        self.paths.set_present(Path { peer, ..present });
        if peer != present.peer {
            self.ports.state = State::Followed;
        }
    }

    /// Offers a port of the pool to the client of this server, or says why there is none.
    pub(crate) const fn offer_port(&mut self, port: Result<PoolPort, NoPort>) {
        self.ports.state = State::Offered(port);
    }

    /// The claim of this server's connection on the pool.
    pub(crate) const fn port_claim(&self) -> Claim {
        match self.ports.state {
            State::Offered(Ok(port)) | State::Own { port, .. } => Claim::Port(port.local),
            State::Missing(why) => Claim::Missing(why),
            _ => Claim::Nothing,
        }
    }

    /// The scheme and the port of this association, if it has one of its own at the server.
    pub(crate) const fn association_port(&self) -> Option<(PortScheme, u16)> {
        match self.ports.state {
            State::Own { port, scheme, .. } => Some((scheme, port.port)),
            State::Expected(port) => Some((PortScheme::Tcs, port)),
            State::Moving { .. } | State::Moved => Some((PortScheme::Tcs, self.paths.present().peer.port())),
            State::Followed => Some((PortScheme::Ipc, self.paths.present().peer.port())),
            State::Nothing
            | State::Offered(_)
            | State::Missing(_)
            | State::Open
            | State::Stayed
            | State::Returned { .. } => None,
        }
    }

    /// The peer's other port from which this side still takes records: on the path that it has left, or the
    /// one from which it has returned.
    pub(crate) const fn old_port(&self) -> Option<u16> {
        match self.ports.state {
            State::Moving { old_port } => Some(old_port),
            State::Returned { port } => Some(port),
            State::Own { left, .. } => left,
            _ => None,
        }
    }

    /// Takes the offered port for `scheme`, and returns it.
    pub(super) fn take_port(&mut self, scheme: Option<PortScheme>) -> Option<u16> {
        let State::Offered(offered) = self.ports.state else { return None };
        self.ports.state = match (scheme, offered) {
            (None, _) => State::Nothing,
            // The port may be reserved only for a client that has returned a cookie.
            (Some(_), Ok(_)) if !self.is_address_proven => State::Missing(NoPort::NoCookie),
            (Some(_), Err(why)) => State::Missing(why),
            (Some(scheme), Ok(port)) => {
                if scheme.is_ipc() {
                    self.paths.set_local(port.local);
                }
                State::Own { port, scheme, has_arrived: scheme.is_ipc(), left: None }
            }
        };
        self.association_port().map(|(_, port)| port)
    }

    /// Notes the port to which this client moves.
    pub(super) fn expect_port(&mut self, port: u16) {
        if self.side == Side::Client {
            let is_present = self.paths.present().peer.port() == port;
            self.ports.state = if is_present { State::Stayed } else { State::Expected(port) };
        }
    }

    /// Does what follows the handshake: the client moves, and the server announces the port. A client of DTLS
    /// 1.3 moves once the server has acknowledged its Finished, which belongs to the old path.
    pub(super) fn begin_to_move(&mut self) -> Result<(), Error> {
        match self.ports.state {
            State::Expected(port)
                if self.complete && !(self.protocol().has_acks() && self.sender.is_outstanding()) =>
            {
                let old = self.paths.present();
                self.sender.fix_output(old);
                self.paths.set_peer_port(port);
                self.ports = Ports { state: State::Moving { old_port: old.peer.port() }, attempts: 0 };
                self.has_moved = true;
                self.send_about_port()
            }
            State::Own { scheme: PortScheme::TcsMessage, has_arrived: false, .. }
                if self.complete && self.ports.attempts == 0 =>
            {
                self.send_about_port()
            }
            _ => Ok(()),
        }
    }

    /// Sends a record about the port, and starts the timer of the next one. A client that has returned starts
    /// it with its next data.
    fn send_about_port(&mut self) -> Result<(), Error> {
        let mut path = self.paths.present();
        let (about, port) = match self.ports.state {
            State::Own { port, .. } => (About::Announcement, port.port),
            State::Moving { .. } => (About::Arrival, path.peer.port()),
            State::Returned { port } => {
                path.peer.set_port(port);
                (About::Arrival, port)
            }
            _ => return Ok(()),
        };
        let pause = self.pause();
        self.ports.attempts = self.ports.attempts.saturating_add(1);
        self.timers.stop(Timer::MovePort);
        if !matches!(self.ports.state, State::Returned { .. }) {
            self.timers.start(Timer::MovePort, self.now + pause);
        }
        self.sender.about_port(path, &written(about, port))
    }

    /// The pause after the records about the port that this side has sent.
    fn pause(&self) -> Duration {
        self.retransmit.backoff.fresh().timeout_after(self.ports.attempts)
    }

    /// Starts the time after which a client that has returned speaks to the port again, unless it hears from
    /// the server before. Data that leave during that time do not prolong it.
    pub(super) fn await_server(&mut self, now: Instant) {
        if matches!(self.ports.state, State::Returned { .. }) {
            self.timers.start(Timer::MovePort, now + self.pause());
        }
    }

    /// Handles the end of a pause in which nothing came over the new path.
    pub(super) fn move_again(&mut self) -> Result<(), Error> {
        match self.ports.state {
            State::Own { has_arrived: false, .. } if self.ports.attempts < SERVER_ATTEMPTS => {
                self.send_about_port()
            }
            State::Own { port, scheme, has_arrived: true, left: Some(_) } => {
                // The client has an answer by now, or has returned to the old path.
                self.ports.state = State::Own { port, scheme, has_arrived: true, left: None };
                Ok(())
            }
            State::Moving { .. } if self.ports.attempts < CLIENT_ATTEMPTS => self.send_about_port(),
            State::Moving { old_port } => {
                // The port does not answer. The server still listens at the old path, unless all its answers
                // were lost.
                self.ports.state = State::Returned { port: self.paths.present().peer.port() };
                self.paths.set_peer_port(old_port);
                self.has_moved = true;
                // Data may have been lost at the port.
                self.await_server(self.now);
                Ok(())
            }
            // Nothing answers at the old path either.
            State::Returned { .. } => self.send_about_port(),
            _ => Ok(()),
        }
    }

    /// Moves this server to the path of the newest record about the port. Until the client can have no doubt
    /// any more, its next record moves the server again: another host may have forwarded this one. The first
    /// such record may also come from another host, if the settings let the server follow it.
    fn arrive(&mut self, path: Path) -> Result<(), Error> {
        let present = self.paths.present();
        let State::Own { port, scheme, has_arrived, left } = self.ports.state else { return Ok(()) };
        let is_same_host = path.peer.ip() == present.peer.ip();
        let may_come = is_same_host || !has_arrived && self.paths.follow_unchecked();
        if path.local != port.local || !may_come || scheme.is_ipc() || has_arrived && left.is_none() {
            return Ok(());
        }
        let left = if is_same_host { left.or(Some(present.peer.port())) } else { None };
        self.ports.state = State::Own { port, scheme, has_arrived: true, left };
        self.timers.stop(Timer::MovePort);
        if is_same_host {
            // Longer than the pause after any of the client's first records.
            let pause = self.retransmit.backoff.fresh().timeout_after(CLIENT_ATTEMPTS);
            self.timers.start(Timer::MovePort, self.now + pause);
        }
        if path != present {
            self.sender.fix_output(present);
            self.paths.set_present(path);
            self.after_step((path.peer != present.peer, None))?;
        }
        Ok(())
    }

    /// Handles a record about the port, which came over `path`. `is_newest` as in [`ReceivedRecord`].
    pub(super) fn about_port(&mut self, path: Path, is_newest: bool, content: &[u8]) -> Result<(), Error> {
        // Only a peer that has agreed to another port sends such records.
        if !self.ports.takes_records() {
            let typ = ContentType::ASSOCIATION_PORT;
            return Err(PeerMisbehaved::UnexpectedRecord(Field::Record(typ)).into());
        }
        let (about, port) = read(content)?;
        let wrong = PeerMisbehaved::IllegalParameter(Field::Extension(ExtensionType::ASSOCIATION_PORT));
        if is_newest && about == About::Arrival && self.association_port().is_some_and(|(_, own)| own == port)
        {
            self.arrive(path)?;
        }
        match self.ports.state {
            State::Own { port: own, .. } if own.port != port || about != About::Arrival => Err(wrong.into()),
            // Each record gets one answer of equal length, over the path that counts.
            State::Own { port: own, .. } if path == self.paths.present() && path.local == own.local => {
                if self.sender.has_room() { self.sender.about_port(path, content) } else { Ok(()) }
            }
            State::Open if about == About::Announcement => {
                self.expect_port(port);
                self.begin_to_move()
            }
            State::Moving { .. } if about == About::Arrival && path.peer == self.paths.present().peer => {
                self.ports.state = State::Moved;
                self.timers.stop(Timer::MovePort);
                Ok(())
            }
            State::Returned { port: own }
                if about == About::Arrival
                    && own == port
                    && path.peer == SocketAddr::new(self.paths.present().peer.ip(), own) =>
            {
                self.sender.fix_output(self.paths.present());
                self.paths.set_peer_port(own);
                self.ports.state = State::Moved;
                self.timers.stop(Timer::MovePort);
                self.has_moved = true;
                Ok(())
            }
            State::Moving { old_port }
                if path.peer.port() == old_port && port != self.paths.present().peer.port() =>
            {
                Err(wrong.into())
            }
            _ => Ok(()),
        }
    }

    /// Takes note of the path of an authentic record, as far as the association's port is concerned. Returns
    /// whether that is all it says about paths.
    pub(super) fn heard_at_port(&mut self, heard: &ReceivedRecord) -> bool {
        let present = self.paths.present();
        match &mut self.ports.state {
            State::Own { port, has_arrived, left, .. } => {
                let is_at_port = heard.path.local == port.local;
                let is_same_host = heard.path.peer.ip() == present.peer.ip();
                if !is_at_port || !*has_arrived {
                    // A record over the old path does not lead back to it. The first record at the port leads
                    // there only if it says so: anyone can forward another one there, and the client may not
                    // know the port yet.
                    return true;
                }
                if !is_same_host && heard.is_newest && self.paths.follow_unchecked() {
                    // Another host is a migration like any other.
                    *left = None;
                }
                false
            }
            // Only an answer proves that the server is at the port: an attacker can send what came over the
            // old path from there.
            State::Moving { .. } => heard.path.peer != present.peer,
            State::Returned { port } if heard.path.peer == SocketAddr::new(present.peer.ip(), *port) => {
                // The server may have moved. So the client speaks to the port soon.
                if heard.is_newest && self.ports.attempts > 0 {
                    self.ports.attempts = 0;
                    self.timers.stop(Timer::MovePort);
                    self.await_server(self.now);
                }
                true
            }
            State::Returned { .. } if heard.is_newest && heard.path.peer == present.peer => {
                // The server is still on the old path.
                self.ports.attempts = CLIENT_ATTEMPTS;
                self.timers.stop(Timer::MovePort);
                false
            }
            _ => false,
        }
    }
}

/// The content of a record about a port.
fn written(about: About, port: u16) -> [u8; Answer::LEN] {
    let [a, b] = port.to_be_bytes();
    [about as u8, a, b]
}

/// Reads the content of a record about a port.
fn read(content: &[u8]) -> Result<(About, u16), Error> {
    let what = Field::Extension(ExtensionType::ASSOCIATION_PORT);
    Reader::all(content, what, |r| match (r.u8()?, r.u16()?) {
        (2, port @ 1..) => Ok((About::Announcement, port)),
        (3, port @ 1..) => Ok((About::Arrival, port)),
        _ => Err(r.bad_value().into()),
    })
}
