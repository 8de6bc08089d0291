//! The seam between the handshake and what carries it.

use alloc::vec::Vec;

use crate::error::Error;
use crate::message::Message;
use crate::protocol::Protocol;
use crate::schedule::keys::TrafficKeys;
use crate::wire::{AlertDescription, AlertLevel};

/// The keys that a record is protected with, in the order of use. A KeyUpdate stays in `Application`; datagrams
/// count its generations themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Epoch {
    Early,
    Handshake,
    Application,
}

/// The seam between the handshake and what carries it: whole messages and keys go down, nothing comes up.
///
/// A stream cuts messages into records; datagrams cut them into fragments, keep the flight until it is answered
/// and retransmit it. The handshake knows neither.
pub(crate) trait Emitter {
    /// The protocol that was agreed; before, the newest one.
    fn protocol(&self) -> Protocol;

    /// Takes a whole message, header included. It goes out with the present keys, at the latest with
    /// [`Emitter::end_of_flight`] and together with its neighbours.
    fn message(&mut self, message: Vec<u8>) -> Result<(), Error>;

    /// Whether a KeyUpdate of ours has not left yet: it answers whatever request comes meanwhile.
    fn has_unsent_key_update(&self) -> bool;

    /// The peer waits for our answer to its last message: an error if it has begun another one meanwhile.
    fn peer_waits(&self) -> Result<(), Error>;

    /// What was given goes out now, and the peer is to answer.
    fn end_of_flight(&mut self) -> Result<(), Error>;

    /// The dummy ChangeCipherSpec of the compatibility mode; nothing on datagrams.
    fn change_cipher_spec(&mut self) -> Result<(), Error>;

    /// This protocol is agreed. Where ChangeCipherSpec puts keys into use, it is an error if the dummy of the compatibility mode
    /// has come before.
    fn agree(&mut self, protocol: Protocol) -> Result<(), Error>;

    /// From now on, what is sent is protected with these keys. Those of TLS 1.2 are announced by a ChangeCipherSpec.
    fn write_keys(&mut self, epoch: Epoch, keys: &TrafficKeys) -> Result<(), Error>;

    /// From now on, what comes is protected with these keys. No message may be half received
    /// (RFC 8446 §5.1). With keys of TLS 1.2, nothing may come before the peer's ChangeCipherSpec has announced them.
    fn read_keys(&mut self, epoch: Epoch, keys: &TrafficKeys) -> Result<(), Error>;

    /// A peer's limit for the content of one record (RFC 8449).
    fn limit_sent_records(&mut self, content: usize);

    /// Our own limit for the content of a record that is sent, whatever the peer's is.
    fn cap_sent_records(&mut self, content: usize);

    /// Our limit for the content of one record, from now on (RFC 8449).
    fn limit_received_records(&mut self, content: usize);

    /// What is sent is not protected any more: the early data of the first ClientHello was refused by a
    /// HelloRetryRequest, and the second ClientHello follows.
    fn write_in_the_clear(&mut self);

    /// How much early data may come with the keys of [`Epoch::Early`], in bytes of content.
    fn limit_early_data(&mut self, content: u32);

    /// The client may send early data, which is not wanted: what cannot be decrypted is skipped, up to a bound,
    /// until something can (RFC 8446 §4.2.10).
    fn skip_early_data(&mut self);

    /// The handshake is complete on this side: application data may flow, compatibility records no longer.
    fn handshake_complete(&mut self);
}

/// What carries the connection: the seam that the handshake sees, and the driver's side of it.
pub(crate) trait Transport: Emitter {
    /// The next message or alert; `None` until there is more.
    fn next(&mut self) -> Result<Option<Incoming>, Error>;
    /// Sends an alert with the present keys, after what waits.
    fn alert(&mut self, level: AlertLevel, description: AlertDescription) -> Result<(), Error>;
    /// Whether the sending keys should be replaced: near the limit of the cipher, or after so many records.
    fn needs_key_update(&self, after: Option<u64>) -> bool;
    /// Whether the sending keys are being replaced and no other KeyUpdate may be sent yet (RFC 9147 §5.8.4).
    fn key_update_waits(&self) -> bool {
        false
    }
    /// Whether output that a peer can cause at will is still taken: a peer that does not read makes none grow.
    fn has_room(&self) -> bool;
    /// Drops what was received and not read: nothing after close_notify or an error counts.
    fn discard_input(&mut self);
}

/// What a transport hands up.
pub(crate) enum Incoming {
    Message(Message),
    Alert(AlertLevel, AlertDescription),
    /// Of something, under application keys (RFC 9147 §7).
    Acknowledgement,
}
