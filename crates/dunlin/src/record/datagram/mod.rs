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

/// The epoch of early data (RFC 9147 §6.1), which this engine neither offers nor accepts.
const EARLY_EPOCH: u64 = 1;
/// The epoch of the handshake (RFC 9147 §6.1). Epoch 0 is unprotected, and application data begins in the next epoch.
const HANDSHAKE_EPOCH: u64 = 2;

/// The most datagrams in the output. Beyond it, the sender rejects data and delays ACKs, so that a slow transport does not
/// make the output grow.
const MAX_WAITING_DATAGRAMS: usize = 64;

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

/// The number of discarded records by reason (RFC 9147 §4.5.2). A bad record is not an error in DTLS, because any host can
/// send one.
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
    /// Records without room, because too much unread or unprocessed input waits.
    pub overflow: u64,
}

/// DTLS over datagrams.
pub struct Datagram {
    receiver: Receiver,
    sender: Sender,
    /// Whether the handshake is complete. From then on, this side acknowledges messages by ACKs.
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

    /// Sends queued messages and ACKs. RFC 9147 §7: a flight during the handshake implicitly acknowledges the flight that it
    /// answers. The client's last flight and later messages have no answer, so they need an ACK.
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
