//! The handshake: client and server, each in the order of the RFC's figure, above one seam to the transport.
//!
//! * [`client`] and [`server`]: `start` until the version is known, then `tls13`.
//! * [`post`]: what comes after the handshake, the same for both sides.
//! * [`retry`]: HelloRetryRequest and its cookie.
//! * [`prove`] and [`verify`]: Certificate and CertificateVerify, sent and received, the same for both sides.
//! * [`proof`]: types that only a passed check can make.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::connection::Output;
use crate::error::{Error, Misuse};
use crate::message::Message;
use crate::question::{Answer, Question};
use crate::schedule::tls13::TrafficKeys;
use crate::time::Now;
use crate::wire::{KeyUpdateRequest, ProtocolVersion};

pub(crate) mod client;
pub(crate) mod post;
pub(crate) mod proof;
pub(crate) mod prove;
pub(crate) mod retry;
pub(crate) mod server;
pub(crate) mod signature;
pub(crate) mod verify;

/// A side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The side that opened the connection.
    Client,
    /// The side that accepted it.
    Server,
}

impl Side {
    /// The other side.
    pub const fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// A reliable byte stream or datagrams; with it, all that differs between TLS and DTLS above the seam.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TransportKind {
    /// TLS
    Stream = 0,
    /// DTLS
    Datagram = 1,
}

impl TransportKind {
    /// What stands in the `legacy_version` fields (RFC 8446 §4.1.2, RFC 9147 §5.3).
    pub(crate) const fn legacy_version(self) -> ProtocolVersion {
        match self {
            Self::Stream => ProtocolVersion::TLS1_2,
            Self::Datagram => ProtocolVersion::DTLS1_2,
        }
    }

    /// The version 1.3 as it stands in `supported_versions`.
    pub(crate) const fn version13(self) -> ProtocolVersion {
        match self {
            Self::Stream => ProtocolVersion::TLS1_3,
            Self::Datagram => ProtocolVersion::DTLS1_3,
        }
    }

    /// The prefix of HKDF labels (RFC 8446 §7.1, RFC 9147 §5.9).
    pub(crate) const fn label_prefix(self) -> &'static [u8] {
        match self {
            Self::Stream => b"tls13 ",
            Self::Datagram => b"dtls13",
        }
    }

    /// Whether a ClientHello has the field `legacy_cookie` (RFC 9147 §5.3).
    pub(crate) const fn has_legacy_cookie(self) -> bool {
        matches!(self, Self::Datagram)
    }

    /// Whether there is a middlebox compatibility mode: session IDs are echoed and ChangeCipherSpec records may
    /// come (RFC 8446 §D.4); DTLS 1.3 has none (RFC 9147 §5).
    pub(crate) const fn has_compatibility_mode(self) -> bool {
        matches!(self, Self::Stream)
    }
}

/// The keys that a record is protected with, in the order of use. A KeyUpdate stays in `Application`; datagrams
/// count its generations themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Epoch {
    Handshake,
    Application,
}

/// The seam between the handshake and what carries it: whole messages and keys go down, nothing comes up.
///
/// A stream cuts messages into records; datagrams cut them into fragments, keep the flight until it is answered
/// and retransmit it. The handshake knows neither.
pub(crate) trait Emitter {
    fn kind(&self) -> TransportKind;

    /// Takes a whole message, header included. It goes out with the present keys, at the latest with
    /// [`Emitter::end_of_flight`] and together with its neighbours.
    fn message(&mut self, message: Vec<u8>) -> Result<(), Error>;

    /// Whether a KeyUpdate of ours has not left yet: it answers whatever request comes meanwhile.
    fn has_unsent_key_update(&self) -> bool;

    /// What was given goes out now, and the peer is to answer.
    fn end_of_flight(&mut self) -> Result<(), Error>;

    /// The dummy ChangeCipherSpec of the compatibility mode; nothing on datagrams.
    fn change_cipher_spec(&mut self) -> Result<(), Error>;

    /// From now on, what is sent is protected with these keys.
    fn write_keys(&mut self, epoch: Epoch, keys: &TrafficKeys) -> Result<(), Error>;

    /// From now on, what comes is protected with these keys. No message may be half received
    /// (RFC 8446 §5.1).
    fn read_keys(&mut self, epoch: Epoch, keys: &TrafficKeys) -> Result<(), Error>;

    /// A peer's limit for the content of one record (RFC 8449).
    fn limit_sent_records(&mut self, content: usize);

    /// Our limit for the content of one record, from now on (RFC 8449).
    fn limit_received_records(&mut self, content: usize);

    /// The client may send early data, which is not wanted: what cannot be decrypted is skipped, up to a bound,
    /// until something can (RFC 8446 §4.2.10).
    fn skip_early_data(&mut self);

    /// The handshake is complete on this side: application data may flow, compatibility records no longer.
    fn handshake_complete(&mut self);
}

/// What a state may use while it handles its input.
pub(crate) struct Cx<'a> {
    pub(crate) now: Now,
    pub(crate) emitter: &'a mut dyn Emitter,
    pub(crate) output: &'a mut Output,
}

impl Cx<'_> {
    pub(crate) fn transport(&self) -> TransportKind {
        self.emitter.kind()
    }

    /// Sends a message, and notes its size.
    pub(crate) fn send(&mut self, message: Vec<u8>) -> Result<(), Error> {
        self.output.note_message(true, &message);
        self.emitter.message(message)
    }

    /// Sends a message that belongs to the transcript.
    pub(crate) fn send_in(
        &mut self,
        transcript: &mut crate::schedule::Transcript,
        message: Vec<u8>,
    ) -> Result<(), Error> {
        transcript.add(&message);
        self.send(message)
    }

    /// Lets `state` wait for the answer to `question`, or go on at once if it is known already.
    pub(crate) fn ask(
        &mut self,
        known: Option<Answer>,
        question: impl FnOnce() -> Question,
        state: Box<dyn State>,
    ) -> Result<Box<dyn State>, Error> {
        match known {
            Some(answer) => state.answer(self, answer),
            None => {
                self.output.question = Some(question());
                Ok(state)
            }
        }
    }
}

/// What the connection waits for. A state holds what is valid in it and nothing else; handling an input consumes
/// it and gives the next.
pub(crate) trait State: Send + Sync {
    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Box<dyn State>, Error>;

    /// The answer to the question that this state waits for.
    fn answer(self: Box<Self>, _: &mut Cx<'_>, _: Answer) -> Result<Box<dyn State>, Error> {
        Err(Misuse::NoSuchQuestion.into())
    }

    /// Replaces the sending keys; only after the handshake.
    fn update_keys(&mut self, _: &mut Cx<'_>, _: KeyUpdateRequest) -> Result<(), Error> {
        Err(Misuse::HandshakeNotComplete.into())
    }
}
