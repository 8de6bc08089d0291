//! The record layer of DTLS 1.2 (RFC 6347 §4.1) and DTLS 1.3 (RFC 9147 §4).
//!
//! * [`header12`] and [`header13`]: the two kinds of record header.
//! * [`epoch`]: the keys of an epoch, which protect records as [`ciphertext12`] and [`ciphertext13`] define.
//! * [`connection_id`]: the connection IDs of both sides.
//! * [`copies`]: the copies that a server sends to a client with several interfaces.
//! * [`freeze`]: the state of an association that continues elsewhere.
//! * [`hello`]: recognises a ClientHello in a datagram, for an endpoint with many connections.
//! * [`interfaces`]: a client's several interfaces.
//! * [`path`] and [`routability`]: the check of a peer's new address (RFC 9853).
//! * [`ports`]: associations with a port of their own at the server.
//! * [`replay`]: detection of replayed records.
//! * [`receive`] and [`send`]: the two directions, which use [`crate::flight`] for messages.
//! * [`retired_keys`]: the write keys that a client must not use again.
//! * [`transport`]: what the handshake and the connection ask of all transports.

mod ciphertext12;
mod ciphertext13;
mod connection_id;
mod copies;
mod epoch;
mod freeze;
mod header12;
mod header13;
mod hello;
mod interfaces;
mod path;
#[cfg_attr(not(feature = "association-ports"), path = "no_ports.rs")]
mod ports;
mod receive;
mod replay;
#[cfg(feature = "association-ports")]
mod retired_keys;
mod routability;
mod sealing;
mod seldom;
mod send;
mod transport;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use crate::address::{Local, Path};
use crate::error::Error;
use crate::flight::RecordNumber;
use crate::flight::fragment;
use crate::flight::timers::{Backoff, Timer, Timers};
use crate::message;
use crate::message::connection_ids::Usage;
use crate::protocol::Side;
use crate::record::protect::EXPLICIT_NONCE_LEN;
use crate::resume::SettingsDigest;
use crate::settings::{DatagramSettings, MTU_RANGE};
use crate::time::Instant;
use crate::transport::Emitter;
use crate::wire::{MAX_CIPHERTEXT, MAX_PLAINTEXT};

pub(crate) use epoch::{EpochKey, Kind as KeyKind};
pub(crate) use freeze::Thawing;
pub(crate) use header13::Header;
pub(crate) use hello::Hello;
#[cfg(feature = "association-ports")]
pub(crate) use hello::server_hello;
use interfaces::Interfaces;
pub use path::PathChecks;
use path::Paths;
use ports::Ports;
pub(crate) use ports::{Claim, PoolPort};
use receive::Receiver;
#[cfg(feature = "association-ports")]
pub(crate) use retired_keys::MAX_RETIRED_KEYS;
use send::{Output, Sender};

/// The connection ID in the first record of a datagram, if this record has one. It is the receiver's, whose
/// IDs have `len` bytes: a record does not say how long its ID is. Anyone can have sent the datagram.
///
/// A caller with several sockets or machines uses it to find the one that has the association
/// ([`crate::NodeIds`]).
pub fn connection_id(datagram: &[u8], len: usize) -> Option<&[u8]> {
    let id = if header12::Header::begins_with(*datagram.first()?) {
        header12::Header::read(datagram, len)?.id(datagram)
    } else {
        Header::read(datagram, len)?.id(datagram)
    };
    Some(id).filter(|id| !id.is_empty())
}

/// The length of the record at the front of `bytes`, from its header alone; `None` if it is not a record.
/// Connection IDs of this side have `id_len` bytes.
fn record_len(bytes: &[u8], id_len: usize) -> Option<usize> {
    let first = *bytes.first()?;
    if header12::Header::begins_with(first) {
        let header = header12::Header::read(bytes, id_len)?;
        let most = if header.epoch == 0 { MAX_PLAINTEXT } else { MAX_CIPHERTEXT };
        return (header.length <= most).then_some(header.len() + header.length);
    }
    let header = Header::read(bytes, id_len)?;
    let length = header.length.unwrap_or(bytes.len() - header.len());
    (ciphertext13::MIN_BODY..=MAX_CIPHERTEXT).contains(&length).then_some(header.len() + length)
}

/// The epoch of early data (RFC 9147 §6.1), which this engine neither offers nor accepts.
const EARLY_EPOCH: u64 = 1;
/// The epoch of the handshake (RFC 9147 §6.1). Epoch 0 is unprotected, and application data begins in
/// epoch 3.
const HANDSHAKE_EPOCH: u64 = 2;

/// The most datagrams in the output. Beyond it, the sender rejects data and delays ACKs, so that a slow
/// transport does not make the output grow.
const MAX_WAITING_DATAGRAMS: usize = 64;

/// The answers to challenges for which the output has room beyond that (RFC 9853 §5.4).
const MAX_WAITING_ANSWERS: usize = 8;

/// The amplification limit. Until a client has proven that it receives at its address, a server sends there
/// at most this many times the bytes that it has received from there. So retransmissions to a forged address
/// do not become an attack on its owner (RFC 9000 §8.1 has the same factor).
const MAX_AMPLIFICATION: usize = 3;

const _: () = assert!(
    *MTU_RANGE.start() >= header13::MAX_LEN + 1 + crate::crypto::MAX_TAG_LEN + fragment::MIN_ROOM
        && *MTU_RANGE.start()
            >= header12::LEN + EXPLICIT_NONCE_LEN + crate::crypto::MAX_TAG_LEN + fragment::MIN_ROOM
);

/// How long a connection of an endpoint keeps its keys expanded without a datagram, and a server parts of
/// messages. To expand the keys again takes about a microsecond.
const REST_AFTER: Duration = Duration::from_secs(60);

/// The retransmissions of a flight without an answer after which an unprotected alert counts.
const REPEATS_BEFORE_ALERT: u32 = 2;

/// The losses of a flight after which its datagrams get smaller.
const REPEATS_BEFORE_SMALLER: u32 = 2;

/// The number of discarded records or datagrams by reason (RFC 9147 §4.5.2). A bad record is not an error in
/// DTLS, because any host can send one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Discarded {
    /// Records that do not parse, and the rest of a datagram after bytes that are not a record.
    pub malformed: u64,
    /// Records of an epoch whose keys this side does not have yet, or has already dropped.
    pub no_keys: u64,
    /// Records that are not authentic: forged or damaged.
    pub unauthenticated: u64,
    /// Records that this side has received before.
    pub replayed: u64,
    /// Records of a type that is not allowed at this point.
    pub misplaced: u64,
    /// Records for which there was no room, because too much unread or unprocessed input waits.
    pub overflow: u64,
    /// Records from another address than the peer's that have no valid connection ID of this side.
    pub other_address: u64,
}

/// DTLS over datagrams.
pub struct Datagram {
    side: Side,
    paths: Paths,
    /// The interfaces of a client that uses several.
    interfaces: Option<Box<Interfaces>>,
    ports: Ports,
    /// The peer's address has changed, and the connection does not know it yet.
    has_moved: bool,
    receiver: Receiver,
    sender: Sender,
    /// Whether the handshake is complete. From then on, this side acknowledges messages by ACKs.
    complete: bool,
    timers: Timers,
    retransmit: RetransmitState,
    /// The time of the latest datagram or timer.
    now: Instant,
    /// The time of the latest datagram in either direction.
    used_at: Instant,
    /// The peer has returned a cookie, which contains its address.
    is_address_proven: bool,
    received_bytes: usize,
    /// The settings under which the handshake authenticates the peer.
    settings: Option<SettingsDigest>,
}

/// When this side sends messages again, and whether the peer has acknowledged them.
struct RetransmitState {
    backoff: Backoff,
    /// The timeout of repeated ACKs, once this side has acknowledged a part of the peer's flight.
    partial_ack: Option<Box<Backoff>>,
    /// This side has sent an ACK since the handshake was complete.
    has_acknowledged: bool,
    /// This side does not retransmit, until the peer sends something that asks for it.
    gave_up: bool,
    /// How often the timer has expired since the peer acknowledged something.
    repeats: u32,
    /// How often the flight was not answered since then: the timer has expired, or the peer has repeated its
    /// own.
    losses: u32,
    /// When this side has last sent its messages again because the peer repeated its own.
    repeated_at: Option<Instant>,
    /// The peer has asked for the rest of the outstanding messages.
    resend_wanted: bool,
    /// The peer has asked for all outstanding messages.
    repeat_wanted: bool,
    /// A message of the peer has arrived since this side's latest flight.
    has_heard: bool,
}

impl RetransmitState {
    fn new(backoff: Backoff) -> Self {
        Self {
            backoff,
            partial_ack: None,
            has_acknowledged: false,
            gave_up: false,
            repeats: 0,
            losses: 0,
            repeated_at: None,
            resend_wanted: false,
            repeat_wanted: false,
            has_heard: false,
        }
    }

    /// The state of the same connection once more, which has received nothing yet.
    #[cfg(feature = "association-ports")]
    fn again(&self) -> Self {
        let Self { gave_up, repeats, losses, repeated_at, .. } = *self;
        Self { gave_up, repeats, losses, repeated_at, ..Self::new(self.backoff.clone()) }
    }
}

impl Datagram {
    pub(crate) fn new(side: Side, settings: &DatagramSettings, path: Path) -> Self {
        let DatagramSettings {
            mtu,
            full_headers,
            retransmission,
            migration,
            multihoming,
            port_scheme,
            is_unforgeable,
        } = *settings;
        Self {
            side,
            paths: Paths::new(side, path.without_flow(), migration),
            interfaces: multihoming.map(|settings| Box::new(Interfaces::new(settings, path.local))),
            ports: Ports::new(side, port_scheme),
            has_moved: false,
            receiver: Receiver::new(is_unforgeable),
            sender: Sender::new(mtu, full_headers),
            complete: false,
            timers: Timers::default(),
            retransmit: RetransmitState::new(Backoff::new(retransmission)),
            now: Instant::default(),
            used_at: Instant::default(),
            is_address_proven: is_unforgeable,
            received_bytes: 0,
            settings: None,
        }
    }

    /// A server that has perhaps demanded cookies before, of which it keeps nothing. Its first message may be
    /// a later ClientHello.
    pub(crate) fn forgetful(mut self) -> Self {
        self.receiver.forget();
        self
    }

    pub(crate) const fn receiver(&mut self) -> &mut Receiver {
        &mut self.receiver
    }

    pub(crate) const fn sender(&mut self) -> &mut Sender {
        &mut self.sender
    }

    pub(crate) const fn discarded(&self) -> Discarded {
        self.receiver.discarded
    }

    /// Whether the peer should replace its keys, because an attacker forges records. `true` only once an
    /// epoch.
    pub(crate) fn wants_new_keys(&mut self) -> bool {
        self.receiver.wants_new_keys()
    }

    /// Whether the peer has returned a cookie, which contains its address.
    pub(crate) const fn is_address_proven(&self) -> bool {
        self.is_address_proven
    }

    /// The bytes that the receiver keeps of incomplete messages.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.receiver.kept_bytes()
    }

    pub(crate) const fn path(&self) -> Path {
        self.paths.present()
    }

    /// Sends over this socket or interface of the caller from now on, under a spare connection ID of the
    /// peer, if there is one.
    pub(crate) fn set_local(&mut self, local: Local) {
        self.sender.fix_output(self.paths.present());
        self.sender.ids.advance();
        self.paths.set_local(local);
    }

    pub(crate) const fn path_checks(&self) -> PathChecks {
        self.paths.counts()
    }

    pub(crate) fn max_data(&self) -> usize {
        self.sender.max_data()
    }

    /// Takes a datagram, which came over the path `from`. One from another address than the peer's can be
    /// authentic only if connection IDs say which connection it belongs to (RFC 9146 §6), or if the settings
    /// let the connection follow its peer anywhere.
    pub(crate) fn push(&mut self, now: Instant, from: Path, datagram: &[u8]) {
        let mut from = from.without_flow();
        if self.side == Side::Client {
            from.source = None;
        }
        let may_move = self.receiver.ids.are_used() || self.paths.follow_unchecked();
        let present = self.paths.present();
        let may_come = self.complete && (may_move || self.ports.admits(from, present));
        if from.peer != present.peer && !may_come {
            self.receiver.discarded.other_address += 1;
            return;
        }
        self.now = now;
        self.used_at = now;
        self.received_bytes = self.received_bytes.saturating_add(datagram.len());
        self.await_handshake(now);
        self.receiver.arrive(now);
        self.receiver.push(from, datagram);
    }

    /// When the latest authentic record arrived, or when the association was thawed; and how long before that
    /// none had arrived.
    pub(crate) fn heard_at(&self) -> (Instant, Duration) {
        self.receiver.heard_at()
    }

    /// Begins to look for the next authentic record that is not a copy.
    #[cfg(feature = "association-ports")]
    pub(crate) const fn forget_authentic(&mut self) {
        self.receiver.forget_authentic();
    }

    /// Whether such a record has arrived since then.
    #[cfg(feature = "association-ports")]
    pub(crate) const fn is_newly_authentic(&self) -> bool {
        self.receiver.is_newly_authentic()
    }

    /// When the keys of the previous epoch are too old; `None` without any.
    pub(crate) fn keys_expiry(&self) -> Option<Instant> {
        self.receiver.keys_expiry()
    }

    /// Drops the keys of the previous epoch if they are too old.
    pub(crate) fn expire_keys(&mut self, now: Instant) {
        self.receiver.expire_keys(now);
    }

    /// When the connection may rest; `None` if it rests, or if its handshake is not complete.
    pub(crate) fn rest_at(&self) -> Option<Instant> {
        let is_awake = self.receiver.is_awake() || self.sender.is_awake();
        (self.complete && is_awake).then(|| self.used_at + REST_AFTER)
    }

    /// Drops the expanded keys until the next record.
    pub(crate) fn rest(&mut self) {
        self.receiver.rest();
        self.sender.rest();
    }

    /// How many connection IDs this side has issued.
    pub(crate) const fn issued_ids(&self) -> u32 {
        self.receiver.ids.issued()
    }

    /// Takes the next datagram to transmit, and its path. Timers start after the last one, so that they do
    /// not include the time that datagrams wait for a slow network.
    pub(crate) fn transmit(&mut self, now: Instant) -> Option<(Path, Vec<u8>)> {
        let output = self.sender.transmit();
        if self.sender.is_drained() {
            self.start_timers(now);
        }
        let Output { path, epoch, datagram } = output?;
        self.used_at = now;
        if epoch.is_some() {
            self.await_server(now);
        }
        let path = path.unwrap_or_else(|| {
            let (path, also) = self.paths.next(datagram.len(), self.sender.path_message_len());
            if let Some(also) = also {
                self.sender.transmit_next(also, datagram.clone());
            }
            for copy in self.paths.copies(now, path, also) {
                self.sender.transmit_next(copy, datagram.clone());
            }
            self.note_sent(now, epoch, &datagram, path);
            path
        });
        Some((path, datagram))
    }

    /// Whether a datagram waits for transmission.
    pub(crate) fn has_output(&self) -> bool {
        !self.sender.is_drained()
    }

    /// Limits the time without progress in a handshake that has begun, whichever side has to send next.
    fn await_handshake(&mut self, now: Instant) {
        if !self.complete && (self.side == Side::Client || self.received_bytes > 0) {
            self.timers.start(Timer::GiveUp, now + self.retransmit.backoff.give_up());
        }
    }

    /// Limits the time for which this side keeps parts of messages after the handshake. At its end, a server
    /// has given the rest of its tickets up, if its timeouts equal this side's. A client sends again what was
    /// dropped, so a server keeps the parts no longer than the keys of an association that rests.
    fn limit_parts(&mut self) {
        let limit = match self.side {
            Side::Client => self.retransmit.backoff.give_up(),
            Side::Server => REST_AFTER.min(self.retransmit.backoff.give_up()),
        };
        if self.receiver.is_settled() {
            self.timers.stop(Timer::DropParts);
        } else {
            self.timers.start(Timer::DropParts, self.now + limit);
        }
    }

    fn start_timers(&mut self, now: Instant) {
        self.await_handshake(now);
        if self.sender.is_outstanding()
            && (!self.awaits_second_hello() || self.receiver.is_unforgeable())
            && !self.retransmit.gave_up
            && !self.keeps_last_flight()
        {
            self.timers.start(Timer::Retransmit, now + self.retransmit.backoff.timeout());
            self.timers.start(Timer::GiveUp, now + self.retransmit.backoff.give_up());
        }
        // RFC 9147 §7.1: acknowledge a part of a flight after a quarter of the timeout.
        let timeout = self
            .retransmit
            .partial_ack
            .as_ref()
            .map_or(self.retransmit.backoff.timeout() / 4, |backoff| backoff.timeout());
        if self.owes_ack() && (!self.complete || self.may_delay_acks()) {
            self.timers.start(Timer::Acknowledge, now + timeout);
        }
    }

    /// Whether this side should acknowledge a part of the peer's flight. RFC 9147 §7.1: a client that has
    /// received the ServerHello and nothing after it sends an empty ACK.
    fn owes_ack(&self) -> bool {
        // The ACK of a part may get lost. A patient connection leaves it to the peer to send the part again.
        let again = !self.complete && !self.retransmit.backoff.is_patient();
        let lacks_rest = again && self.side == Side::Client && !self.sender.is_outstanding();
        let is_server = self.side == Side::Server;
        let may_ack = self.sender.is_protected() || is_server && self.receiver.acknowledges_plain();
        self.protocol().has_acks() && may_ack && (self.receiver.owes_ack(again) || lacks_rest)
    }

    /// Whether ACKs may wait for the timer: those after the handshake, if the settings say so. A server
    /// acknowledges the client's last flight at once.
    const fn may_delay_acks(&self) -> bool {
        self.complete
            && self.retransmit.backoff.is_patient()
            && (self.retransmit.has_acknowledged || matches!(self.side, Side::Client))
    }

    /// The latest numbers for a patient connection's ACK, which is a single record. Earlier ACKs may have had
    /// them, too.
    fn latest_acks(&mut self) -> Vec<RecordNumber> {
        let most = self.sender.numbers_per_ack();
        let numbers = self.receiver.owed_acks();
        numbers.get(numbers.len().saturating_sub(most)..).unwrap_or_default().to_vec()
    }

    /// Acknowledges the part of the peer's flight that has arrived. The ACK may get lost, and a server that
    /// has received nothing protected may have to wait for it. So this side repeats it until the rest
    /// arrives.
    fn acknowledge_part(&mut self) -> Result<(), Error> {
        if self.complete && self.retransmit.backoff.is_patient() {
            let numbers = self.latest_acks();
            return self.sender.flush_after(&numbers);
        }
        match &mut self.retransmit.partial_ack {
            None => self.retransmit.partial_ack = Some(Box::new(self.retransmit.backoff.fresh())),
            Some(repeated) => repeated.double(),
        }
        self.sender.acknowledge(self.receiver.owed_acks())
    }

    /// Whether a HelloRetryRequest or HelloVerifyRequest is the latest flight. Neither has a timer (RFC 9147
    /// §5.1, RFC 6347 §4.2.4). A DTLS 1.3 server that has sent anything else has also sent protected
    /// messages.
    fn awaits_second_hello(&self) -> bool {
        self.side == Side::Server
            && self.protocol().has_acks()
            && self.sender.is_outstanding()
            && self.sender.outstanding_epochs().all(|epoch| epoch == 0)
    }

    /// Whether the outstanding messages are the last flight of a DTLS 1.2 handshake. It has no answer and no
    /// timer, and leaves again when the peer repeats its own flight (RFC 6347 §4.2.4).
    fn keeps_last_flight(&self) -> bool {
        self.complete && !self.protocol().has_acks()
    }

    /// This side's connection IDs, the oldest first.
    pub(crate) fn own_ids(&self) -> impl Iterator<Item = &[u8]> {
        self.receiver.ids.iter()
    }

    /// The peer's connection ID, which this side sends; empty without one.
    pub(crate) fn peer_id(&self) -> &[u8] {
        self.sender.ids.present()
    }

    /// Sends a spare connection ID of the peer from now on. `false` if there is none.
    pub(crate) fn use_spare_peer_id(&mut self) -> bool {
        self.sender.ids.advance()
    }

    /// Sends the peer new connection IDs of this side, once it has acknowledged the previous ones.
    pub(crate) fn issue_connection_ids(&mut self, count: u8, usage: Usage) -> Result<(), Error> {
        if !self.sender.may_send_ids(count, usage) {
            return Ok(());
        }
        let ids = self.receiver.ids.issue(count, usage)?;
        if ids.is_empty() && usage == Usage::Immediate {
            // The peer has not used the previous one yet, so that one serves.
            return Ok(());
        }
        self.message(message::connection_ids::write_new(&ids, usage)?)?;
        self.flush()
    }

    /// Changes the first timeout, and in the same proportion the timeouts and deadlines that depend on it.
    pub(crate) fn set_first_timeout(&mut self, first: Duration) -> Result<(), Error> {
        self.retransmit.backoff.settings().check_first(first)?;
        let before = self.retransmit.backoff.timeout();
        self.retransmit.backoff.set_first(first);
        let after = self.retransmit.backoff.timeout();
        self.timers.shift(Timer::Retransmit, before, after);
        if self.retransmit.partial_ack.is_none() {
            self.timers.shift(Timer::Acknowledge, before / 4, after / 4);
        }
        Ok(())
    }

    /// Stops the retransmissions, because the peer has acknowledged something. If messages remain, the timer
    /// starts again.
    fn progress(&mut self) {
        self.timers.stop(Timer::Retransmit);
        self.timers.stop(Timer::GiveUp);
        self.retransmit.backoff.progress();
        (self.retransmit.repeats, self.retransmit.losses) = (0, 0);
        self.retransmit.gave_up = false;
    }

    /// Handles the answer to a flight. It acknowledges the whole flight (RFC 9147 §7.1).
    fn answered(&mut self) {
        if self.sender.answered() {
            self.progress();
        }
    }

    /// The bytes that retransmissions may still take. They are unlimited once the peer has proven that it
    /// receives at its address. A client knows the address of its server.
    fn budget(&self) -> usize {
        if self.side == Side::Client || self.is_address_proven || self.receiver.is_authentic() {
            usize::MAX
        } else {
            let most = self.received_bytes.saturating_mul(MAX_AMPLIFICATION);
            most.saturating_sub(self.sender.sent_bytes())
        }
    }

    /// Sends the outstanding messages again, in at most `budget` bytes. A server without a budget waits for
    /// the next ClientHello.
    fn resend(&mut self, budget: usize) -> Result<(), Error> {
        if self.receiver.is_authentic() && !self.retransmit.backoff.is_patient() {
            self.sender.peer_has_keys();
        }
        let sent = self.sender.retransmit(budget)?;
        if let Some(old) = self.ports.old(self.paths.present()) {
            // The last flight of a handshake belongs to the path of the handshake.
            self.sender.fix_output(old);
        }
        if sent > 0 {
            self.timers.stop(Timer::Retransmit);
        }
        self.retransmit.gave_up = sent == 0 && self.sender.is_outstanding() && self.protocol().has_acks();
        Ok(())
    }

    /// Sends all outstanding messages again, because the peer has repeated its own. Others can pretend that,
    /// so this side does it at most four times in a timeout.
    fn repeat(&mut self) -> Result<(), Error> {
        let least = self.retransmit.backoff.timeout() / 4;
        let is_recent = self.retransmit.repeated_at.is_some_and(|at| self.now.since(at) < least);
        if is_recent && !self.receiver.is_unforgeable() {
            return Ok(());
        }
        self.retransmit.repeated_at = Some(self.now);
        let budget = self.budget();
        if budget < usize::MAX {
            // The peer has received nothing of the flight, and the timer may send too little to find that
            // out.
            self.lose();
        }
        self.resend(budget)
    }

    /// Counts a flight that was not answered. RFC 9147 §4.4: after several, smaller datagrams may come
    /// through.
    fn lose(&mut self) {
        self.retransmit.losses = self.retransmit.losses.saturating_add(1);
        if self.retransmit.losses.is_multiple_of(REPEATS_BEFORE_SMALLER) && !self.receiver.is_unforgeable() {
            self.sender.shrink();
        }
    }

    /// Gives up. A connection continues without an answer to tickets and KeyUpdates, but not without its
    /// handshake.
    fn give_up(&mut self) -> Result<(), Error> {
        self.timers.stop(Timer::Retransmit);
        self.retransmit.gave_up = true;
        if self.complete && self.sender.outstanding_epochs().all(|epoch| self.protocol().has_data(epoch)) {
            Ok(())
        } else {
            Err(Error::TimedOut)
        }
    }

    /// Sends the outstanding messages again, because no answer came in time.
    fn retransmit(&mut self) -> Result<(), Error> {
        self.retransmit.repeats = self.retransmit.repeats.saturating_add(1);
        // Nothing protects an alert before there are keys. It counts only if the peer sends nothing else for
        // a while.
        if let Some(alert) = self.receiver.plain_alert()
            && !self.receiver.is_authentic()
            && self.retransmit.repeats >= REPEATS_BEFORE_ALERT
        {
            return Err(Error::AlertReceived(alert));
        }
        self.retransmit.backoff.double();
        self.lose();
        // A client of DTLS 1.2 can prove nothing before its Finished, except by a cookie. A limit would end
        // handshakes over bad networks with servers that demand none, and the timer alone repeats little.
        let budget = if self.protocol().has_acks() { self.budget() } else { usize::MAX };
        self.resend(budget)
    }

    /// Sends queued messages and ACKs. RFC 9147 §7: a flight during the handshake implicitly acknowledges the
    /// flight that it answers. The client's last flight and later messages have no answer, so they need an
    /// ACK.
    fn flush(&mut self) -> Result<(), Error> {
        let mut numbers = Vec::new();
        if !self.complete {
            self.receiver.take_to_acknowledge();
        } else if self.retransmit.backoff.is_patient() {
            if !self.may_delay_acks() {
                numbers = self.latest_acks();
                self.retransmit.has_acknowledged |= !numbers.is_empty();
            }
        } else if self.sender.has_room() {
            numbers = self.receiver.take_to_acknowledge();
        }
        if !self.may_delay_acks() {
            self.timers.stop(Timer::Acknowledge);
        }
        self.retransmit.partial_ack = None;
        self.retransmit.has_heard = false;
        self.sender.flush_after(&numbers)
    }
}
