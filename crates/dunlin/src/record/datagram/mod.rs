//! Records in datagrams: DTLS 1.3 (RFC 9147 §4).
//!
//! * [`plaintext`] and [`header13`]: the two kinds of record header.
//! * [`ciphertext`]: protection with the keys of an epoch, record number included.
//! * [`replay`]: which records came before.
//! * [`receive`] and [`send`]: the two directions, with what [`crate::flight`] makes of messages.

mod ciphertext;
mod header13;
mod plaintext;
mod receive;
mod replay;
mod send;

use alloc::vec::Vec;
use core::ops::RangeInclusive;

use crate::error::{Error, Misuse};
use crate::flight::fragment;
use crate::protocol::Protocol;
use crate::schedule::keys::TrafficKeys;
use crate::transport::{Emitter, Epoch, Incoming, Transport};
use crate::wire::{AlertDescription, AlertLevel, What};

pub(crate) use ciphertext::EpochKey;
pub(crate) use header13::Header;
use receive::{Received, Receiver};
use send::Sender;

/// The epoch of early data, which is neither offered nor accepted here (RFC 9147 §6.1).
const EARLY_EPOCH: u64 = 1;
/// RFC 9147 §6.1: 0 is without protection, 1 is early data, and application data begins after this one.
const HANDSHAKE_EPOCH: u64 = 2;

/// Datagrams that wait to be transmitted before data is refused and acknowledgements wait: a slow transport does
/// not make the output grow.
const MAX_WAITING_DATAGRAMS: usize = 64;

/// The largest datagram that is sent if nothing else is said, in bytes of UDP payload: with its IP and UDP
/// headers it fits the smallest packet that IPv6 must carry, 1280 bytes.
pub(crate) const DEFAULT_MTU: usize = 1200;

/// What the largest datagram may be, in bytes: at least a header, a tag and a useful piece of a message, at most
/// what UDP carries over IPv4.
pub(crate) const MTU_RANGE: RangeInclusive<usize> = 64..=65507;

const _: () = assert!(
    *MTU_RANGE.start() >= header13::MAX_LEN + 1 + crate::crypto::MAX_TAG_LEN + fragment::MIN_ROOM
        && *MTU_RANGE.start() >= plaintext::HEADER_LEN + fragment::MIN_ROOM
);

/// Records that were discarded (RFC 9147 §4.5.2), by reason. On datagrams that is no error: anybody can send
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Discarded {
    /// What does not look like a record, with the rest of its datagram, or does not parse.
    pub malformed: u64,
    /// Protected with keys that are not known yet, or not any more.
    pub no_keys: u64,
    /// Not authentic: forged or damaged.
    pub unauthenticated: u64,
    /// Received before.
    pub replayed: u64,
    /// Of a kind that has no place at this time.
    pub misplaced: u64,
    /// No room: too much came that was not read or not worked on yet.
    pub overflow: u64,
}

/// DTLS over datagrams.
pub struct Datagram {
    receiver: Receiver,
    sender: Sender,
    /// Whether the handshake is complete: from then on messages are acknowledged one by one.
    complete: bool,
}

impl Datagram {
    pub(crate) fn new(mtu: usize) -> Self {
        Self { receiver: Receiver::default(), sender: Sender::new(mtu), complete: false }
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

    pub(crate) fn max_data(&self) -> usize {
        self.sender.max_data()
    }

    /// Sends what waits. RFC 9147 §7: during the handshake our flight acknowledges the one that it answers; the
    /// client's last flight and what comes later has no answer, and is acknowledged.
    fn flush(&mut self) -> Result<(), Error> {
        let mut numbers = Vec::new();
        if !self.complete {
            self.receiver.take_to_acknowledge();
        } else if self.sender.has_room() {
            numbers = self.receiver.take_to_acknowledge();
        }
        self.sender.flush(&numbers)?;
        Ok(())
    }
}

impl Emitter for Datagram {
    fn protocol(&self) -> Protocol {
        Protocol::Dtls13
    }

    fn message(&mut self, message: Vec<u8>) -> Result<(), Error> {
        self.sender.message(message)
    }

    /// The next one is held until the last one is acknowledged (RFC 9147 §5.8.4).
    fn has_unsent_key_update(&self) -> bool {
        self.sender.has_next_update()
    }

    /// Fragments of messages to come are kept in any order.
    fn peer_waits(&self) -> Result<(), Error> {
        Ok(())
    }

    fn end_of_flight(&mut self) -> Result<(), Error> {
        self.flush()
    }

    /// RFC 9147 §5: there is none.
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

    /// The size of datagrams says it.
    fn cap_sent_records(&mut self, _: usize) {}

    fn limit_received_records(&mut self, content: usize) {
        self.receiver.limit(content);
    }

    /// Early data is neither offered nor accepted over datagrams: there is nothing to go back from.
    fn write_in_the_clear(&mut self) {}

    fn limit_early_data(&mut self, _: u32) {}

    /// It has an epoch of its own, whose records are discarded for lack of keys.
    fn skip_early_data(&mut self) {}

    fn handshake_complete(&mut self) {
        self.complete = true;
    }
}

impl Transport for Datagram {
    fn next(&mut self) -> Result<Option<Incoming>, Error> {
        loop {
            if let Some(message) = self.receiver.next_message() {
                return Ok(Some(Incoming::Message(message)));
            }
            match self.receiver.next_record()? {
                Some(Received::Alert(level, description)) => {
                    return Ok(Some(Incoming::Alert(level, description)));
                }
                Some(Received::Ack(epoch, numbers)) => {
                    self.sender.acknowledged(&numbers)?;
                    if epoch > HANDSHAKE_EPOCH {
                        return Ok(Some(Incoming::Acknowledgement));
                    }
                }
                Some(Received::Nothing) => {}
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

    fn discard_input(&mut self) {
        self.receiver.discard_input();
    }
}
