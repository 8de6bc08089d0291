//! The TLS record layer on a byte stream (RFC 8446 §5).
//!
//! The receiver decrypts a record in place, and the application reads data from the same buffer. Only one
//! record is open at a time, so an application that does not read stops the peer.

mod receive;
mod send;

use alloc::vec::Vec;

use crate::error::Error;
use crate::protocol::Protocol;
use crate::schedule::keys::TrafficKeys;
use crate::transport::{Emitter, Epoch, Incoming, Reads, Transport};
use crate::wire::{AlertDescription, AlertLevel};

use receive::Receiver;
use send::Sender;

/// Type, legacy version and length (RFC 8446 §5.1).
const HEADER_LEN: usize = 5;

/// TLS over a byte stream.
pub struct Stream {
    receiver: Receiver,
    sender: Sender,
}

impl Stream {
    /// The client's side. A ChangeCipherSpec may come before the server's first message, because this side
    /// has sent its ClientHello (RFC 8446 §5).
    pub(crate) fn client() -> Self {
        Self { receiver: Receiver::new(true), sender: Sender::new(true) }
    }

    /// The server's side. With `forgetful`, a ChangeCipherSpec may come before the first message: a stateless
    /// server may see a second ClientHello first (RFC 8446 §D.4).
    pub(crate) fn server(forgetful: bool) -> Self {
        Self { receiver: Receiver::new(forgetful), sender: Sender::new(false) }
    }

    pub(crate) const fn receiver(&mut self) -> &mut Receiver {
        &mut self.receiver
    }

    pub(crate) const fn sender(&mut self) -> &mut Sender {
        &mut self.sender
    }

    pub(crate) fn received(&self) -> &[u8] {
        self.receiver.application_data()
    }

    /// Received early data, kept apart from data after the handshake.
    pub(crate) fn received_early(&self) -> &[u8] {
        self.receiver.early_data()
    }

    pub(crate) fn transmit(&self) -> &[u8] {
        self.sender.output()
    }
}

impl Emitter for Stream {
    fn protocol(&self) -> Protocol {
        self.receiver.protocol()
    }

    fn message(&mut self, message: Vec<u8>) -> Result<(), Error> {
        self.sender.handshake(&message)
    }

    fn has_unsent_key_update(&self) -> bool {
        self.sender.has_unsent_key_update()
    }

    fn peer_waits(&self) -> Result<(), Error> {
        self.receiver.between_messages()
    }

    fn end_of_flight(&mut self) -> Result<(), Error> {
        self.sender.end_of_flight()
    }

    fn change_cipher_spec(&mut self) -> Result<(), Error> {
        self.sender.change_cipher_spec()
    }

    fn agree(&mut self, protocol: Protocol) -> Result<(), Error> {
        self.receiver.agree(protocol)
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

    fn cap_sent_records(&mut self, content: usize) {
        self.sender.cap(content);
    }

    fn limit_received_records(&mut self, content: usize) {
        self.receiver.limit(content);
    }

    fn write_in_the_clear(&mut self) {
        self.sender.clear_key();
    }

    fn limit_early_data(&mut self, content: u32) {
        self.receiver.limit_early_data(content);
    }

    fn skip_early_data(&mut self) {
        self.receiver.skip_early_data();
    }

    fn handshake_complete(&mut self) {
        self.receiver.handshake_complete();
    }
}

impl Transport for Stream {
    fn next(&mut self, reads: &mut dyn Reads) -> Result<Option<Incoming>, Error> {
        self.receiver.next(reads)
    }

    fn alert(&mut self, level: AlertLevel, description: AlertDescription) -> Result<(), Error> {
        self.sender.alert(level, description)
    }

    fn needs_key_update(&self, after: Option<u64>) -> bool {
        self.sender.needs_key_update(after)
    }

    fn has_room(&self) -> bool {
        self.sender.has_room()
    }

    fn discard_input(&mut self) {
        self.receiver.discard();
    }
}
