//! The DTLS 1.3 record layer (RFC 9147 §4).
//!
//! * [`plaintext`] and [`header13`]: the two kinds of record header.
//! * [`ciphertext`]: protection with the keys of an epoch, including the record number.
//! * [`replay`]: detection of replayed records.
//! * [`receive`] and [`send`]: the two directions, which use [`crate::flight`] for messages.

mod ciphertext;
mod header13;
mod plaintext;
mod receive;
mod replay;
mod send;

use alloc::vec::Vec;
use core::net::SocketAddr;
use core::ops::RangeInclusive;

use crate::error::{Error, Misuse};
use crate::flight::fragment;
use crate::flight::timers::{Backoff, Timer, Timers};
use crate::protocol::{Protocol, Side};
use crate::schedule::keys::TrafficKeys;
use crate::time::Instant;
use crate::transport::{Emitter, Epoch, Incoming, Transport};
use crate::wire::{AlertDescription, AlertLevel, What};

pub(crate) use ciphertext::EpochKey;
pub(crate) use header13::Header;
use receive::{Received, Receiver};
use send::Sender;

/// The epoch of early data (RFC 9147 §6.1), which this engine neither offers nor accepts.
const EARLY_EPOCH: u64 = 1;
/// The epoch of the handshake (RFC 9147 §6.1). Epoch 0 is unprotected, and application data begins in epoch 3.
const HANDSHAKE_EPOCH: u64 = 2;

/// The most datagrams in the output. Beyond it, the sender rejects data and delays ACKs, so that a slow transport does not
/// make the output grow.
const MAX_WAITING_DATAGRAMS: usize = 64;

/// The amplification limit. Until a client has proven that it receives at its address, a server sends there at most this many
/// times the bytes that it has received from there. So retransmissions to a forged address do not become an attack on its owner
/// (RFC 9000 §8.1 has the same factor).
const MAX_AMPLIFICATION: usize = 3;

/// The default size of the largest datagram, in bytes of UDP payload. With IP and UDP headers it fits into 1280 bytes, the
/// smallest packet size that every IPv6 link must support.
pub(crate) const DEFAULT_MTU: usize = 1200;

/// The allowed sizes of the largest datagram, in bytes: from a header, a tag and a useful piece of a message, up to the
/// largest UDP payload over IPv4.
pub(crate) const MTU_RANGE: RangeInclusive<usize> = 64..=65507;

const _: () = assert!(
    *MTU_RANGE.start() >= header13::MAX_LEN + 1 + crate::crypto::MAX_TAG_LEN + fragment::MIN_ROOM
        && *MTU_RANGE.start() >= plaintext::HEADER_LEN + fragment::MIN_ROOM
);

/// The number of discarded records or datagrams by reason (RFC 9147 §4.5.2). A bad record is not an error in DTLS, because any
/// host can send one.
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
    /// Datagrams from another address than the peer's.
    pub other_address: u64,
}

/// DTLS over datagrams.
pub struct Datagram {
    side: Side,
    peer: SocketAddr,
    receiver: Receiver,
    sender: Sender,
    /// Whether the handshake is complete. From then on, this side acknowledges messages by ACKs.
    complete: bool,
    timers: Timers,
    backoff: Backoff,
    /// The timeout of repeated ACKs, once this side has acknowledged a part of the peer's flight.
    partial_ack: Option<Backoff>,
    /// This side does not retransmit, until the peer sends something that asks for it.
    gave_up: bool,
    received_bytes: usize,
}

impl Datagram {
    pub(crate) fn client(mtu: usize, peer: SocketAddr) -> Self {
        Self::new(Side::Client, mtu, peer)
    }

    pub(crate) fn server(mtu: usize, peer: SocketAddr) -> Self {
        Self::new(Side::Server, mtu, peer)
    }

    fn new(side: Side, mtu: usize, peer: SocketAddr) -> Self {
        Self {
            side,
            peer,
            receiver: Receiver::default(),
            sender: Sender::new(mtu),
            complete: false,
            timers: Timers::default(),
            backoff: Backoff::default(),
            partial_ack: None,
            gave_up: false,
            received_bytes: 0,
        }
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

    pub(crate) const fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(crate) fn max_data(&self) -> usize {
        self.sender.max_data()
    }

    /// Takes a datagram. Discards one from another address than the peer's. RFC 9146 §6: a peer's new address counts only after
    /// a check that the peer receives there, which this engine does not have yet.
    pub(crate) fn push(&mut self, from: SocketAddr, datagram: &[u8]) {
        if from != self.peer {
            self.receiver.discarded.other_address += 1;
            return;
        }
        self.received_bytes = self.received_bytes.saturating_add(datagram.len());
        self.receiver.push(datagram);
    }

    /// Takes the next datagram to transmit. Timers start after the last one, so that they do not include the time that
    /// datagrams wait for a slow network.
    pub(crate) fn transmit(&mut self, now: Instant) -> Option<Vec<u8>> {
        let datagram = self.sender.transmit();
        if self.sender.is_drained() {
            self.start_timers(now);
        }
        datagram
    }

    fn start_timers(&mut self, now: Instant) {
        if self.sender.is_outstanding() && !self.awaits_second_hello() && !self.gave_up {
            self.timers.start(Timer::Retransmit, now + self.backoff.timeout());
        }
        // RFC 9147 §7.1: acknowledge a part of a flight after a quarter of the timeout.
        let timeout = match &self.partial_ack {
            None => Some(self.backoff.timeout() / 4),
            Some(repeated) => Some(repeated.timeout()).filter(|_| !repeated.is_exhausted()),
        };
        if !self.complete
            && self.receiver.owes_ack()
            && self.sender.is_protected()
            && let Some(timeout) = timeout
        {
            self.timers.start(Timer::Acknowledge, now + timeout);
        }
    }

    /// Acknowledges the part of the peer's flight that has arrived. The ACK may get lost, and a server that has received nothing
    /// protected may have to wait for it. So this side repeats it until the rest arrives.
    fn acknowledge_part(&mut self) -> Result<(), Error> {
        match &mut self.partial_ack {
            None => self.partial_ack = Some(Backoff::default()),
            Some(repeated) => _ = repeated.retransmit(),
        }
        self.sender.acknowledge(self.receiver.owed_acks())
    }

    /// Whether a HelloRetryRequest is the latest flight. RFC 9147 §5.1: it has no timer. A server that has sent anything else has
    /// also sent protected messages.
    fn awaits_second_hello(&self) -> bool {
        self.side == Side::Server
            && self.sender.is_outstanding()
            && self.sender.outstanding_epochs().all(|epoch| epoch == 0)
    }

    /// Stops the retransmissions, because the peer has acknowledged something. If messages remain, the timer starts again.
    fn progress(&mut self) {
        self.timers.stop(Timer::Retransmit);
        self.backoff.progress();
        self.gave_up = false;
    }

    /// Handles the answer to a flight. It acknowledges the whole flight (RFC 9147 §7.1).
    fn answered(&mut self) {
        if self.sender.answered() {
            self.progress();
        }
    }

    /// The bytes that retransmissions may still take. They are unlimited once the peer has proven that it receives at its address.
    /// A client knows the address of its server. A cookie proves nothing yet, because it does not contain the address.
    fn budget(&self) -> usize {
        match self.side == Side::Client || self.receiver.is_authentic() {
            true => usize::MAX,
            false => {
                let most = self.received_bytes.saturating_mul(MAX_AMPLIFICATION);
                most.saturating_sub(self.sender.sent_bytes())
            }
        }
    }

    /// Sends the outstanding messages again. A server without a budget waits for the next ClientHello.
    fn resend(&mut self) -> Result<(), Error> {
        if self.receiver.is_authentic() {
            self.sender.peer_has_keys();
        }
        let budget = self.budget();
        self.gave_up = self.sender.is_outstanding() && self.sender.retransmit(budget)? == 0;
        Ok(())
    }

    /// Sends the outstanding messages again, or gives up. A connection continues without an answer to tickets and KeyUpdates.
    fn retransmit(&mut self) -> Result<(), Error> {
        if self.backoff.retransmit() {
            return self.resend();
        }
        self.gave_up = true;
        match self.sender.outstanding_epochs().any(|epoch| epoch <= HANDSHAKE_EPOCH) {
            true => Err(Error::TimedOut),
            false => Ok(()),
        }
    }

    /// Sends queued messages and ACKs. RFC 9147 §7: a flight during the handshake implicitly acknowledges the flight that it
    /// answers. The client's last flight and later messages have no answer, so they need an ACK.
    fn flush(&mut self) -> Result<(), Error> {
        let mut numbers = Vec::new();
        if !self.complete {
            self.receiver.take_to_acknowledge();
        } else if self.sender.has_room() {
            numbers = self.receiver.take_to_acknowledge();
        }
        self.timers.stop(Timer::Acknowledge);
        self.partial_ack = None;
        self.sender.flush_after(&numbers)
    }
}

impl Emitter for Datagram {
    fn protocol(&self) -> Protocol {
        Protocol::Dtls13
    }

    fn message(&mut self, message: Vec<u8>) -> Result<(), Error> {
        if self.gave_up {
            self.progress();
        }
        self.sender.message(message)
    }

    fn next_number(&self) -> u16 {
        self.sender.next_number()
    }

    /// The sender holds a KeyUpdate back until the peer has acknowledged the previous one (RFC 9147 §5.8.4).
    fn has_unsent_key_update(&self) -> bool {
        self.sender.has_next_update()
    }

    /// Always passes, because datagrams arrive in any order and the receiver keeps early fragments.
    fn peer_waits(&self) -> Result<(), Error> {
        Ok(())
    }

    fn end_of_flight(&mut self) -> Result<(), Error> {
        self.flush()
    }

    /// RFC 9147 §5: DTLS 1.3 has no compatibility mode.
    fn change_cipher_spec(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn agree(&mut self, protocol: Protocol) -> Result<(), Error> {
        match protocol {
            Protocol::Dtls13 => Ok(()),
            _ => Err(Misuse::NotSupported(What::Dtls12).into()),
        }
    }

    fn write_keys(&mut self, epoch: Epoch, keys: &TrafficKeys) -> Result<(), Error> {
        self.sender.set_key(epoch, keys)
    }

    fn read_keys(&mut self, epoch: Epoch, keys: &TrafficKeys) -> Result<(), Error> {
        self.receiver.set_key(epoch, keys)
    }

    fn limit_sent_records(&mut self, content: usize) {
        self.sender.limit(content);
    }

    /// Does nothing, because the size of datagrams limits records.
    fn cap_sent_records(&mut self, _: usize) {}

    fn limit_received_records(&mut self, content: usize) {
        self.receiver.limit(content);
    }

    /// Does nothing, because this engine has no early data over datagrams.
    fn write_in_the_clear(&mut self) {}

    fn limit_early_data(&mut self, _: u32) {}

    /// Does nothing: early data has its own epoch, and the receiver discards its records for lack of keys.
    fn skip_early_data(&mut self) {}

    fn handshake_complete(&mut self) {
        self.complete = true;
        self.sender.complete_handshake();
    }
}

impl Transport for Datagram {
    fn next(&mut self) -> Result<Option<Incoming>, Error> {
        loop {
            if let Some(message) = self.receiver.next_message() {
                if !self.complete {
                    self.answered();
                }
                return Ok(Some(Incoming::Message(message)));
            }
            match self.receiver.next_record()? {
                Some(Received::Alert(level, description)) => {
                    // The peer sends nothing more, ACKs included.
                    self.answered();
                    return Ok(Some(Incoming::Alert(level, description)));
                }
                Some(Received::Ack(epoch, numbers)) => {
                    if self.sender.acknowledged(&numbers)? {
                        self.progress();
                        // RFC 9147 §5.8.1: an ACK of a part asks for the rest.
                        if epoch <= HANDSHAKE_EPOCH {
                            self.resend()?;
                        }
                    }
                    if epoch > HANDSHAKE_EPOCH {
                        return Ok(Some(Incoming::Acknowledgement));
                    }
                }
                // RFC 9147 §5.8.1: a repeated ClientHello asks for the server's flight again.
                Some(Received::Repeated) if self.side == Side::Server && self.sender.has_room() => {
                    self.timers.stop(Timer::Retransmit);
                    self.resend()?;
                }
                Some(Received::Repeated | Received::Nothing) => {}
                None => {
                    if self.complete {
                        self.flush()?;
                    }
                    return Ok(None);
                }
            }
        }
    }

    fn alert(&mut self, level: AlertLevel, description: AlertDescription) -> Result<(), Error> {
        self.sender.alert([level.0, description.0])
    }

    fn needs_key_update(&self, after: Option<u64>) -> bool {
        self.sender.needs_key_update(after)
    }

    fn key_update_waits(&self) -> bool {
        self.sender.key_update_waits()
    }

    fn has_room(&self) -> bool {
        self.sender.has_room()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), Error> {
        while let Some(timer) = self.timers.expire(now) {
            match timer {
                Timer::Retransmit => self.retransmit()?,
                Timer::Acknowledge => self.acknowledge_part()?,
            }
        }
        Ok(())
    }

    fn discard_input(&mut self) {
        self.receiver.discard_input();
    }
}
