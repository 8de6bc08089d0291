//! What a handshake gives out: events, what was agreed, the sizes of messages.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::auth::PeerIdentity;
use crate::cache::{CacheOutcome, Known};
use crate::early::EarlyDataOutcome;
use crate::error::{Error, Misuse, PeerMisbehaved};
use crate::handshake::question::{Question, QuestionId};
use crate::keylog::KeyLog;
use crate::message;
use crate::protocol::Protocol;
use crate::resume::{ClientSession, ClientSessions, Kept, Session, SessionKey};
use crate::schedule::Export;
use crate::schedule::tls12::VerifyData;
use crate::schedule::tls13::Exporter;
use crate::wire::{
    AlertDescription, CertificateCompressionAlgorithm, CipherSuite, HandshakeType, NamedGroup,
    ProtocolVersion, SignatureScheme,
};

/// KeyUpdates and tickets in a row, without data between them, before they count as an attack.
const MAX_IDLE_MESSAGES: u32 = 32;

/// user_canceled in a row: a peer that gives up says so once (RFC 8446 §6.1).
const MAX_WARNINGS: u32 = 4;

/// What happened, in order.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// The handshake is complete: the peer is who [`Negotiated::peer`] says, data may be sent.
    Connected,
    /// Something must be known to go on; give it to [`crate::Connection::answer`].
    Question(QuestionId, Question),
    /// A ticket came and was given to the client's store.
    TicketReceived,
    /// This session is to be kept under this name ([`crate::resume::Tickets::ask`]).
    NewSession(Vec<u8>, Session),
    /// The session under this name was resumed, or a fatal alert has ended its connection: forget it
    /// ([`crate::resume::Tickets::ask`]). TLS 1.2 does not say so of what was resumed: there a session may be resumed again, until
    /// it expires.
    SessionUsed(Vec<u8>),
    /// Early data was offered and taken, or refused: what was sent of it is lost then. On a server that takes it, it
    /// comes from [`crate::Connection::early_data`], and the handshake goes on as it is consumed.
    EarlyData(EarlyDataOutcome),
    /// The peer replaced its sending keys.
    PeerUpdatedKeys,
    /// Another handshake within a connection of TLS 1.2 is complete; [`Negotiated`] is that of this one.
    Renegotiated,
    /// The peer does not want the handshake that [`crate::Connection::renegotiate`] asked for: it sent no_renegotiation.
    /// The connection goes on as before.
    RenegotiationRefused,
    /// The peer will send no more data: close_notify. Data can still be sent.
    PeerClosed,
}

/// What a handshake sent to prove who the two sides are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandshakeKind {
    /// Everything: certificates or raw public keys with signatures, or an external PSK.
    #[default]
    Full,
    /// Signatures as in a full handshake, but at least one side's certificates were in the other side's handshake cache and were
    /// not sent (docs/handshake-cache.md).
    Cached {
        /// The peer's cache had this side's certificates.
        own: bool,
        /// This side's cache had the peer's certificates.
        peer: bool,
    },
    /// An earlier session was resumed: neither side signed.
    Resumed,
}

/// What was agreed.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Negotiated {
    /// The version.
    pub version: Option<ProtocolVersion>,
    /// The cipher suite.
    pub cipher_suite: Option<CipherSuite>,
    /// The group; `None` with psk_ke.
    pub group: Option<NamedGroup>,
    /// The application protocol.
    pub alpn: Option<Vec<u8>>,
    /// The name that the client asked for.
    pub server_name: Option<String>,
    /// Who the peer is; `None` if it did not say.
    pub peer: Option<PeerIdentity>,
    /// With RSA_PSK (RFC 4279 §4), where a client takes its key for the peer: who the server is by its certificate. In a box, since
    /// few connections have it.
    pub peer_certified: Option<Box<PeerIdentity>>,
    /// Whether the handshake was full, cached or a resumption.
    pub kind: HandshakeKind,
    /// The bytes that this side saved because the peer has its certificates in its cache: the length of the Certificate message
    /// that it left out, uncompressed, less what it sent instead. What the peer left out only the peer knows.
    pub saved_bytes: usize,
    /// What became of early data.
    pub early_data: EarlyDataOutcome,
    /// By how much the client's ticket is older than the server knows it to be (younger, if negative), in milliseconds:
    /// a clock that runs wrong, or a first flight that was held back. Known to a server that resumed a session.
    pub ticket_age_skew_ms: Option<i64>,
    /// Whether a HelloRetryRequest was needed.
    pub retried: bool,
    /// The scheme of the peer's signature.
    pub peer_signature: Option<SignatureScheme>,
    /// The scheme of our signature.
    pub own_signature: Option<SignatureScheme>,
    /// How the peer's Certificate message was compressed, if it was.
    pub peer_certificate_compression: Option<CertificateCompressionAlgorithm>,
    /// What became of this side's cache; [`Self::kind`] says which certificates were left out.
    pub cache: CacheOutcome,
    /// What a client's cache had of the server before the handshake.
    pub known_server: Known,
    /// Whether the client has shown a ticket for its own certificate. If the server has not left that out all the same, it does
    /// not know the ticket, or may not use any more what it has kept.
    pub ticket_shown: bool,
    /// How ours was compressed, if it was.
    pub own_certificate_compression: Option<CertificateCompressionAlgorithm>,
    /// The name of the profile.
    pub profile: String,
}

impl Negotiated {
    /// Whether an earlier session was resumed.
    pub const fn is_resumed(&self) -> bool {
        matches!(self.kind, HandshakeKind::Resumed)
    }

    /// Whether this side did not send its certificates because the peer has them in its cache.
    pub const fn is_own_cached(&self) -> bool {
        matches!(self.kind, HandshakeKind::Cached { own: true, .. })
    }

    /// Whether the peer did not send its certificates because this side has them in its cache.
    pub const fn is_peer_cached(&self) -> bool {
        matches!(self.kind, HandshakeKind::Cached { peer: true, .. })
    }

    /// The peer's cache has this side's certificates, and that saved so many bytes.
    pub(crate) const fn leave_own_out(&mut self, saved_bytes: usize) {
        self.kind = HandshakeKind::Cached { own: true, peer: self.is_peer_cached() };
        self.saved_bytes = saved_bytes;
    }

    /// This side's cache had the peer's certificates.
    pub(crate) const fn take_peer_from_cache(&mut self) {
        self.kind = HandshakeKind::Cached { own: self.is_own_cached(), peer: true };
    }
}

/// A handshake message that was sent or received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageSize {
    /// Whether it was sent.
    pub sent: bool,
    /// Its type.
    pub typ: HandshakeType,
    /// Whether it is a HelloRetryRequest, which has the type of a ServerHello.
    pub is_retry: bool,
    /// Its length with its header of 4 bytes, in bytes.
    pub len: usize,
}

/// A list of so many messages is enough for every handshake; what comes after is traffic.
const MAX_NOTED: usize = 32;

/// What may be sent before the handshake is complete.
#[derive(Default)]
pub(crate) enum Sending {
    /// Nothing.
    #[default]
    Nothing,
    /// A client's early data, so many bytes more.
    EarlyData(u32),
    /// A server's answer to early data (RFC 8446 §2, figure 4: after its Finished).
    Answer,
}

impl Sending {
    /// How much of `data` may go now. A key that is used up can be replaced only after the handshake (RFC 8446 §4.6.3, §5.5).
    pub(crate) fn part<'a>(&self, data: &'a [u8], key_is_used_up: bool) -> Result<&'a [u8], Error> {
        match self {
            Self::EarlyData(_) if key_is_used_up => Ok(&[]),
            Self::EarlyData(left) => Ok(data.get(..*left as usize).unwrap_or(data)),
            Self::Answer if !key_is_used_up => Ok(data),
            Self::Answer | Self::Nothing => Err(Misuse::HandshakeNotComplete.into()),
        }
    }
}

/// Whether there can be another handshake within the connection (RFC 5746).
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Renegotiation {
    /// Not in this version, not with this peer, or not now because one is under way.
    #[default]
    Impossible,
    /// Either side may begin one.
    Possible,
    /// This side has asked for one, and the peer has not answered yet.
    Asked,
}

/// What there is as long as early data is under way.
#[derive(Default)]
pub(crate) struct EarlyOutput {
    pub(crate) sending: Sending,
    /// In a box, so that an idle connection keeps no room for it.
    pub(crate) session: Option<Box<EarlySession>>,
}

/// The session behind early data.
pub(crate) struct EarlySession {
    pub(crate) exporter: Exporter,
    /// The application protocol and the peer, as the session has them.
    pub(crate) alpn: Option<Vec<u8>>,
    pub(crate) peer: Option<PeerIdentity>,
}

/// What the states give out.
#[derive(Default)]
pub(crate) struct Output {
    pub(crate) events: VecDeque<Event>,
    pub(crate) question: Option<Question>,
    pub(crate) negotiated: Negotiated,
    /// While another handshake within the connection is under way: what the one before agreed, which holds until then.
    pub(crate) established: Option<Box<Negotiated>>,
    pub(crate) exporter: Option<Box<dyn Export>>,
    /// The first Finished of the latest handshake of TLS 1.2.
    pub(crate) first_finished: Option<VerifyData>,
    pub(crate) early: EarlyOutput,
    pub(crate) connected: bool,
    pub(crate) key_log: Option<Arc<dyn KeyLog>>,
    pub(crate) client_random: [u8; 32],
    pub(crate) key_update_after: Option<u64>,
    /// close_notify or a fatal alert was sent: nothing may follow it (RFC 8446 §6.1).
    pub(crate) send_closed: bool,
    /// The oldest protocol that may still be agreed, or the one that was.
    pub(crate) oldest: Protocol,
    pub(crate) renegotiation: Renegotiation,
    /// Data of a client waits for the end of another handshake within the connection.
    pub(crate) data_waits: bool,
    /// What is to be done if the handshake fails.
    pub(crate) on_failure: Option<Box<dyn FnOnce() + Send + Sync>>,
    /// The sessions of this connection that can be resumed.
    pub(crate) kept: Vec<Kept>,
    /// What is to be done at the first word of the peer after this side has completed the handshake: whether all is well.
    pub(crate) on_word: Option<Box<dyn FnOnce(bool) + Send + Sync>>,
    /// A warning that is to be sent.
    pub(crate) warning: Option<AlertDescription>,
    pub(crate) messages: Vec<MessageSize>,
    idle: u32,
    warnings: u32,
}

impl Output {
    pub(crate) fn note_message(&mut self, sent: bool, message: &[u8]) {
        if self.messages.len() < MAX_NOTED
            && let Some(typ) = message.first()
        {
            let typ = HandshakeType(*typ);
            let is_retry = typ == HandshakeType::SERVER_HELLO
                && message.get(6..38) == Some(&message::server_hello::RETRY_RANDOM);
            self.messages.push(MessageSize { sent, typ, is_retry, len: message.len() });
        }
    }

    /// Reports an event. Those that a peer can cause at will are reported once until they are taken.
    pub(crate) fn event(&mut self, event: Event) {
        let is_again = |waiting: &Event| {
            matches!(
                (waiting, &event),
                (Event::PeerUpdatedKeys, Event::PeerUpdatedKeys)
                    | (Event::TicketReceived, Event::TicketReceived)
                    | (Event::RenegotiationRefused, Event::RenegotiationRefused)
                    | (Event::Renegotiated, Event::Renegotiated)
            )
        };
        if !self.events.iter().any(is_again) {
            self.events.push_back(event);
        }
    }

    /// Another handshake begins within the connection. What it does not agree anew stays as it is.
    pub(crate) fn begin_again(&mut self) {
        let before = core::mem::take(&mut self.negotiated);
        self.negotiated = Negotiated {
            version: before.version,
            alpn: before.alpn.clone(),
            server_name: before.server_name.clone(),
            early_data: before.early_data,
            profile: before.profile.clone(),
            ..Negotiated::default()
        };
        self.established = Some(Box::new(before));
    }

    /// Says what became of early data that was offered; if it was not taken, none is sent from now on.
    pub(crate) fn early_data(&mut self, outcome: EarlyDataOutcome) {
        self.negotiated.early_data = outcome;
        if outcome != EarlyDataOutcome::Accepted {
            self.early = EarlyOutput::default();
        }
        self.event(Event::EarlyData(outcome));
    }

    pub(crate) fn log_secret(&self, label: &str, secret: &[u8]) {
        if let Some(log) = &self.key_log {
            log.log(label, &self.client_random, secret);
        }
    }

    /// A message came that costs us work and the peer none: they are counted until data comes between them.
    pub(crate) fn count_idle(&mut self, what: &'static str) -> Result<(), Error> {
        self.idle += 1;
        if self.idle > MAX_IDLE_MESSAGES { Err(PeerMisbehaved::Flood(what).into()) } else { Ok(()) }
    }

    /// An alert came that ends nothing.
    pub(crate) fn count_warning(&mut self) -> Result<(), Error> {
        self.warnings += 1;
        if self.warnings > MAX_WARNINGS { Err(PeerMisbehaved::Flood("warnings").into()) } else { Ok(()) }
    }

    /// The peer has taken this side's Finished, or has not: `well` says which.
    pub(crate) fn heard(&mut self, well: bool) {
        if let Some(on_word) = self.on_word.take() {
            on_word(well);
        }
    }

    /// Gives `session` to the store, which removes it again if a fatal alert ends this connection.
    pub(crate) fn keep_session(
        &mut self,
        store: &Arc<dyn ClientSessions>,
        key: SessionKey,
        session: ClientSession,
    ) {
        self.kept.push(Kept::Client(Arc::clone(store), key.clone(), Arc::clone(&session.ticket)));
        store.put(key, session);
    }

    /// A fatal alert ends the connection. RFC 5246 §7.2.2: "any connection terminated with a fatal alert MUST NOT be resumed";
    /// RFC 8446 §6: tickets should be discarded, if possible.
    pub(crate) fn forget_sessions(&mut self) {
        for kept in core::mem::take(&mut self.kept) {
            match kept {
                Kept::Client(store, key, ticket) => store.forget(&key, &ticket),
                // Another connection may have used it up.
                Kept::Server(store, name) => drop(store.remove(&name)),
                Kept::Asked(name) => self.event(Event::SessionUsed(name)),
            }
        }
    }

    /// Data came.
    pub(crate) const fn reset_idle(&mut self) {
        self.idle = 0;
        self.warnings = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8446 §5.5: the early key cannot be replaced, so what it may not protect any more waits for the next.
    #[test]
    fn a_key_that_is_used_up_sends_no_early_data() {
        let full = Err(Misuse::HandshakeNotComplete.into());
        for (sending, before, at_the_limit) in [
            (Sending::EarlyData(2), Ok(&b"ab"[..]), Ok(&b""[..])),
            (Sending::EarlyData(u32::MAX), Ok(b"abc"), Ok(b"")),
            (Sending::Answer, Ok(b"abc"), full.clone()),
            (Sending::Nothing, full.clone(), full),
        ] {
            assert_eq!(sending.part(b"abc", false), before);
            assert_eq!(sending.part(b"abc", true), at_the_limit);
        }
    }

    /// A peer whose KeyUpdates, or tickets, or handshakes within the connection take turns does not fill the queue of a caller who only reads.
    #[test]
    fn what_a_peer_can_cause_at_will_waits_once() {
        let mut output = Output::default();
        for _ in 0..3 {
            output.event(Event::PeerUpdatedKeys);
            output.event(Event::TicketReceived);
            output.event(Event::Renegotiated);
        }
        assert_eq!(output.events.len(), 3);
        output.events.pop_front();
        output.event(Event::PeerUpdatedKeys);
        assert!(matches!(
            output.events.make_contiguous(),
            [Event::TicketReceived, Event::Renegotiated, Event::PeerUpdatedKeys]
        ));
    }
}
