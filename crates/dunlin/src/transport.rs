//! The interface between the handshake and the transport below it.

use alloc::vec::Vec;
use core::net::SocketAddr;

use crate::address::PathChange;
use crate::crypto::SecureRandom;
use crate::error::Error;
use crate::message::connection_ids::Usage;
use crate::message::{Message, Reading};
use crate::protocol::Protocol;
use crate::resume::SettingsDigest;
use crate::schedule::keys::TrafficKeys;
use crate::settings::ConnectionIds;
#[cfg(feature = "association-ports")]
use crate::settings::PortScheme;
use crate::sync::Arc;
use crate::time::Instant;
use crate::wire::{AlertDescription, AlertLevel, HandshakeType};

/// The set of keys that protects a record, in the order of use. After a KeyUpdate the epoch is still
/// `Application`; the datagram transport counts the key generations itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Epoch {
    Early,
    Handshake,
    Application,
}

/// The handshake's view of the transport. The handshake passes whole messages and keys down; nothing comes up
/// here.
///
/// The stream transport cuts messages into records. The datagram transport cuts them into fragments, and
/// keeps a flight for retransmission until the peer answers it. The handshake knows about neither.
pub(crate) trait Emitter {
    /// The negotiated protocol; before the negotiation, the newest one.
    fn protocol(&self) -> Protocol;

    /// Queues a whole message, header included, under the current keys. Messages of a flight leave together,
    /// at the latest at [`Emitter::end_of_flight`].
    fn message(&mut self, message: Vec<u8>) -> Result<(), Error>;

    /// Notes the settings under which this side authenticates the peer, in case the association continues
    /// elsewhere. A stream does not.
    fn note_settings(&mut self, _settings: &SettingsDigest) {}

    /// The number of the next message (message_seq, RFC 9147 §5.2); 0 over a stream.
    fn next_number(&self) -> u16 {
        0
    }

    /// The peer's address. `None` over a stream, whose handshake below proves it.
    fn peer_address(&self) -> Option<SocketAddr> {
        None
    }

    /// Notes that the peer has proven that it receives at its address.
    fn prove_address(&mut self) {}

    /// The longest connection ID of the peer that leaves room for data; 0 over a stream.
    fn longest_peer_id(&self) -> usize {
        0
    }

    /// Expects connection IDs of this length, which this side offers: the answer and records with them may
    /// share a datagram.
    fn offer_connection_id(&mut self, _len: usize) {}

    /// Uses connection IDs: this side receives `own`, issued by `issuer`, and sends the peer's. Either may be
    /// empty.
    fn use_connection_ids(
        &mut self,
        _issuer: Option<Arc<dyn ConnectionIds>>,
        _own: Vec<u8>,
        _peers: Vec<u8>,
    ) {
    }

    /// Whether this side sends connection IDs of the peer, which the peer can replace.
    fn sends_connection_id(&self) -> bool {
        false
    }

    /// Whether the peer sends connection IDs of this side, and can ask for more.
    fn receives_connection_id(&self) -> bool {
        false
    }

    /// Whether this side has asked for connection IDs by itself, and the peer has not answered yet.
    fn awaits_connection_ids(&self) -> bool {
        false
    }

    /// Takes new connection IDs of the peer.
    fn take_connection_ids(&mut self, _ids: Vec<Vec<u8>>, _usage: Usage) -> Result<(), Error> {
        Ok(())
    }

    /// Takes part in return routability checks, with cookies from `random`.
    fn check_paths(&mut self, _random: Arc<dyn SecureRandom>) {}

    /// As a server, takes the port that the endpoint has offered for this association, or gives it back
    /// without a scheme. Returns the port, if there is one.
    #[cfg(feature = "association-ports")]
    fn use_port(&mut self, _scheme: Option<PortScheme>) -> Option<u16> {
        None
    }

    /// As a client, moves to this port of the server after the handshake.
    #[cfg(feature = "association-ports")]
    fn expect_port(&mut self, _port: u16) {}

    /// Sends the peer up to this many new connection IDs of this side.
    fn send_connection_ids(&mut self, _count: u8) -> Result<(), Error> {
        Ok(())
    }

    /// Whether our own KeyUpdate still waits in the output. It then also answers requests that arrive
    /// meanwhile.
    fn has_unsent_key_update(&self) -> bool;

    /// Returns an error if the peer has begun another message although it must wait for our answer.
    fn peer_waits(&self) -> Result<(), Error>;

    /// Drops the rest of what has arrived, because one datagram gets one answer: its sender's address is not
    /// proven. A stream's peer is where it says.
    fn answer_once(&mut self) {}

    /// Sends all queued messages; the peer answers next.
    fn end_of_flight(&mut self) -> Result<(), Error>;

    /// Sends the dummy ChangeCipherSpec of the compatibility mode. On datagrams it does nothing.
    fn change_cipher_spec(&mut self) -> Result<(), Error>;

    /// Sets the negotiated protocol. Returns an error if ChangeCipherSpec activates keys in this protocol and
    /// the peer has already sent the dummy one of the compatibility mode.
    fn agree(&mut self, protocol: Protocol) -> Result<(), Error>;

    /// Protects everything sent from now on with these keys. TLS 1.2 announces them with a ChangeCipherSpec.
    fn write_keys(&mut self, epoch: Epoch, keys: &TrafficKeys) -> Result<(), Error>;

    /// Expects everything received from now on to be protected with these keys. Returns an error if a message
    /// is half received (RFC 8446 §5.1). In TLS 1.2 the peer's ChangeCipherSpec must come next.
    fn read_keys(&mut self, epoch: Epoch, keys: &TrafficKeys) -> Result<(), Error>;

    /// Sets the peer's limit for the content of one record, in bytes (RFC 8449).
    fn limit_sent_records(&mut self, content: usize);

    /// Sets our own limit for the content of one sent record, in bytes. The smaller limit of both sides
    /// applies.
    fn cap_sent_records(&mut self, content: usize);

    /// Sets our limit for the content of one received record, in bytes, from now on (RFC 8449).
    fn limit_received_records(&mut self, content: usize);

    /// Stops protecting what is sent. A HelloRetryRequest has refused the early data, and the client sends
    /// its second ClientHello in the clear.
    fn write_in_the_clear(&mut self);

    /// Limits the early data that the client may send under the keys of [`Epoch::Early`], in bytes of
    /// content.
    fn limit_early_data(&mut self, content: u32);

    /// Skips early data that the server has refused: records that do not decrypt, up to a limit, until one
    /// does (RFC 8446 §4.2.10).
    fn skip_early_data(&mut self);

    /// Marks the handshake as complete on this side. Application data may flow; the transport now rejects
    /// compatibility records.
    fn handshake_complete(&mut self);
}

/// The messages that the present state of a connection can read, in this protocol.
pub(crate) trait Reads {
    /// Whether it can read a message that nothing authenticates.
    fn message(&mut self, protocol: Protocol, message: &Message) -> bool;
    /// The part that it reads of a message of this type. Perhaps only the beginning of the message has come.
    fn reading(&self, protocol: Protocol, typ: HandshakeType) -> Reading;
}

/// The whole transport: [`Emitter`] for the handshake, and the driver's own methods.
pub(crate) trait Transport: Emitter {
    /// The next message or alert; `None` if the received input holds no complete one. Datagrams that anyone
    /// can have sent bring only messages that the state can read.
    fn next(&mut self, reads: &mut dyn Reads) -> Result<Option<Incoming>, Error>;
    /// Sends an alert under the current keys, after the queued output.
    fn alert(&mut self, level: AlertLevel, description: AlertDescription) -> Result<(), Error>;
    /// Whether this side should send a KeyUpdate: near the cipher's limit, or after `after` records.
    fn needs_key_update(&self, after: Option<u64>) -> bool;
    /// Whether a KeyUpdate is in progress, so that this side may not send another one yet (RFC 9147 §5.8.4).
    fn key_update_waits(&self) -> bool {
        false
    }
    /// Whether the output has room for messages that a peer can cause at will. It stops growing if the peer
    /// does not read.
    fn has_room(&self) -> bool;
    /// The earliest deadline of a timer. A stream has none.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
    /// Handles the timers whose deadline has come.
    fn handle_timeout(&mut self, _now: Instant) -> Result<(), Error> {
        Ok(())
    }
    /// Takes the latest change of this side's path. A stream has none.
    fn take_path_change(&mut self) -> Option<PathChange> {
        None
    }
    /// Drops unread input, because nothing after close_notify or an error counts.
    fn discard_input(&mut self);
}

/// One item that a transport hands to the driver.
pub(crate) enum Incoming {
    Message(Message),
    Alert(AlertLevel, AlertDescription),
    /// An ACK under application keys (RFC 9147 §7).
    Acknowledgement,
    /// The peer's address has changed to this one.
    PeerMoved(SocketAddr),
}
