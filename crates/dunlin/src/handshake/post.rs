//! Messages after a TLS 1.3 handshake, for both sides: KeyUpdate and tickets (RFC 8446 §4.6).

use crate::auth::PskIdentity;
use crate::sync::Arc;
use alloc::boxed::Box;

use super::step::UpdateKeys;
use super::{Cx, ExpectMessage, Step};
use crate::crypto::Tls13CipherSuite;
use crate::error::{Error, Internal, PeerMisbehaved};
use crate::handshake::event::Event;
use crate::message::{self, Message, NewSessionTicket, Reading, connection_ids};
use crate::protocol::{Protocol, Side, TransportKind};
use crate::resume::{
    ClientSession, ClientSessions, EarlyTerms, MAX_LIFETIME, Session, SessionKey, SettingsDigest,
};
use crate::schedule::tls13::{RestingSecret, ResumptionSecret, TrafficSecret};
use crate::transport::Epoch;
use crate::wire::{CipherSuite, Field, HandshakeType, KeyUpdateRequest, Reader, Writer};

/// The connection is established.
pub(crate) struct Traffic {
    read: RestingSecret,
    write: RestingSecret,
    on_ticket: OnTicket,
    /// Whether this side has requested a KeyUpdate that the peer has not sent yet.
    requested: bool,
    /// The number of times that this side has replaced its sending keys.
    updates: u64,
}

/// RFC 9846 §4.7.3: a sender makes at most 2^48 - 1 key updates.
const MAX_KEY_UPDATES: u64 = (1 << 48) - 1;

/// This side's reaction to a received ticket.
pub(crate) enum OnTicket {
    /// A server rejects it: only servers send tickets.
    Refuse,
    /// A client without a store drops it.
    Drop,
    Keep(Box<TicketIntake>),
}

/// The parameters with which a client stores a ticket, besides the result of the handshake.
pub(crate) struct TicketIntake {
    pub(crate) secret: ResumptionSecret,
    pub(crate) store: Arc<dyn ClientSessions>,
    pub(crate) key: SessionKey,
    pub(crate) cipher_suite: CipherSuite,
    pub(crate) authenticated_ms: u64,
    pub(crate) settings: SettingsDigest,
    pub(crate) rank: i32,
    pub(crate) beside: Option<Box<PskIdentity>>,
    /// How many more tickets of this connection the client keeps. The limit stops a server from filling the
    /// store.
    pub(crate) room: u8,
}

/// The most connection IDs in one NewConnectionId: as many as one RequestConnectionId can ask for.
const MAX_NEW_IDS: usize = 255;

/// The longest NewConnectionId that comes in several records, in bytes: so many IDs of 16 bytes, and the
/// other fields. The receiver keeps eight of them.
const MAX_NEW_CONNECTION_ID: usize = 2 + MAX_NEW_IDS * (1 + 16) + 1;

/// The most tickets that a client keeps of one connection.
pub(crate) const MAX_TICKETS: u8 = 8;

/// The longest ticket that a client keeps, in bytes. A ticket of 2^16 bytes would leave no room in the next
/// ClientHello.
pub(super) const MAX_TICKET_LEN: usize = 16 * 1024;

impl ExpectMessage for Traffic {
    fn reading(&self, protocol: Protocol, typ: HandshakeType) -> Reading {
        let has_ids = protocol.transport() == TransportKind::Datagram;
        match typ {
            HandshakeType::KEY_UPDATE => Reading::Body(1),
            HandshakeType::NEW_CONNECTION_ID if has_ids => Reading::Body(MAX_NEW_CONNECTION_ID),
            HandshakeType::REQUEST_CONNECTION_ID if has_ids => Reading::Body(1),
            HandshakeType::NEW_SESSION_TICKET if !matches!(self.on_ticket, OnTicket::Refuse) => {
                Reading::Body(message::limit(typ))
            }
            _ => Reading::Nothing,
        }
    }

    fn message(mut self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        match (message.typ, &mut self.on_ticket) {
            (HandshakeType::KEY_UPDATE, _) => self.key_update(cx, &message)?,
            (HandshakeType::NEW_CONNECTION_ID, _) if cx.emitter.sends_connection_id() => {
                // An answer is work that this side requested.
                if !cx.emitter.awaits_connection_ids() {
                    cx.effects.count_idle(Field::Message(message.typ))?;
                }
                let (ids, usage) = connection_ids::read_new(message.body(), MAX_NEW_IDS)?;
                cx.emitter.take_connection_ids(ids, usage)?;
            }
            (HandshakeType::REQUEST_CONNECTION_ID, _) if cx.emitter.receives_connection_id() => {
                cx.effects.count_idle(Field::Message(message.typ))?;
                let count = connection_ids::read_request(message.body())?;
                cx.emitter.send_connection_ids(count)?;
            }
            (HandshakeType::NEW_SESSION_TICKET, OnTicket::Drop) => {
                ticket(cx, &message)?;
            }
            (HandshakeType::NEW_SESSION_TICKET, OnTicket::Keep(intake)) => {
                let ticket = ticket(cx, &message)?;
                intake.keep(cx, &ticket);
            }
            _ => return Err(message.unexpected(Field::ApplicationData)),
        }
        Ok(Step::Traffic(self))
    }
}

impl UpdateKeys for Traffic {
    fn update_keys(&mut self, cx: &mut Cx<'_>, request: KeyUpdateRequest) -> Result<(), Error> {
        if self.updates == MAX_KEY_UPDATES {
            return Err(Internal::KeyExhausted.into());
        }
        self.updates += 1;
        // RFC 9846 §4.7.3: this side sends no second request before the peer has answered the first.
        let request = match request {
            KeyUpdateRequest::UPDATE_REQUESTED if !self.requested => {
                self.requested = true;
                // The peer's answer is work that this side requested, so it does not count as an attack.
                cx.effects.reset_idle();
                request
            }
            _ => KeyUpdateRequest::UPDATE_NOT_REQUESTED,
        };
        cx.send(message::key_update::write(request)?)?;
        let write = self.write.next();
        cx.emitter.write_keys(Epoch::Application, &write.keys(cx.protocol()))?;
        self.write = write.rest();
        cx.emitter.end_of_flight()
    }

    fn freeze(&self, w: &mut Writer) {
        self.read.freeze(w);
        self.write.freeze(w);
        w.u8(self.requested.into());
        w.u64(self.updates);
    }
}

impl Traffic {
    /// Continues with the output of [`UpdateKeys::freeze`]. A client keeps no further tickets.
    pub(crate) fn thaw(
        r: &mut Reader<'_>,
        suite: &'static Tls13CipherSuite,
        protocol: Protocol,
        side: Side,
    ) -> Result<Self, Error> {
        let read = RestingSecret::thaw(r, suite, protocol)?;
        let write = RestingSecret::thaw(r, suite, protocol)?;
        let requested = r.u8()? == 1;
        let updates = r.u64()?;
        let on_ticket = if side == Side::Client { OnTicket::Drop } else { OnTicket::Refuse };
        Ok(Self { read, write, on_ticket, requested, updates })
    }

    pub(crate) fn new(read: TrafficSecret, write: TrafficSecret, on_ticket: OnTicket) -> Self {
        Self { read: read.rest(), write: write.rest(), on_ticket, requested: false, updates: 0 }
    }

    fn key_update(&mut self, cx: &mut Cx<'_>, message: &Message) -> Result<(), Error> {
        let request = message::key_update::read(message.body())?;
        cx.effects.count_idle(Field::KeyUpdates)?;
        self.requested = false;
        let read = self.read.next();
        cx.emitter.read_keys(Epoch::Application, &read.keys(cx.protocol()))?;
        self.read = read.rest();
        cx.effects.event(Event::PeerUpdatedKeys);
        // RFC 8446 §4.6.3: one answer may serve several requests, so requests alone cannot make this side's
        // output grow. The answer must precede this side's next data, so none is due after close_notify. RFC
        // 9846 §4.7.3: after its last permitted update this side ignores requests.
        let due =
            !cx.progress.send_closed && !cx.emitter.has_unsent_key_update() && self.updates < MAX_KEY_UPDATES;
        if request == KeyUpdateRequest::UPDATE_REQUESTED && due {
            // The answer requests no answer, or the exchange would never end.
            self.update_keys(cx, KeyUpdateRequest::UPDATE_NOT_REQUESTED)?;
        }
        Ok(())
    }
}

fn ticket<'m>(cx: &mut Cx<'_>, message: &'m Message) -> Result<NewSessionTicket<'m>, Error> {
    let ticket = NewSessionTicket::read(message.body())?;
    // RFC 8446 §4.6.1: the lifetime is at most seven days.
    if u64::from(ticket.lifetime) > MAX_LIFETIME.as_secs() {
        return Err(PeerMisbehaved::IllegalParameter(Field::TicketLifetime).into());
    }
    cx.effects.count_idle(Field::Tickets)?;
    cx.effects.event(Event::TicketReceived);
    Ok(ticket)
}

impl TicketIntake {
    fn keep(&mut self, cx: &mut Cx<'_>, ticket: &NewSessionTicket<'_>) {
        // RFC 8446 §4.6.1: a lifetime of zero means that the client discards the ticket immediately.
        if self.room == 0 || ticket.lifetime == 0 || ticket.ticket.len() > MAX_TICKET_LEN {
            return;
        }
        self.room -= 1;
        let session = Session {
            cipher_suite: self.cipher_suite,
            psk: self.secret.psk(ticket.nonce),
            issued_ms: cx.now.unix_ms,
            authenticated_ms: self.authenticated_ms,
            transport: self.key.transport,
            lifetime_s: ticket.lifetime,
            age_add: ticket.age_add,
            peer: cx.agreed().peer.clone(),
            settings: self.settings,
            rank: self.rank,
            good_until_s: cx.agreed().good_until_s(),
            server_name: Some(self.key.name.clone()),
            early: (ticket.max_early_data > 0 && cx.protocol().has_early_data()).then(|| EarlyTerms {
                max_size: ticket.max_early_data,
                alpn: cx.agreed().alpn.clone(),
                profile: None,
            }),
            beside: self.beside.clone(),
        };
        let session = ClientSession { ticket: ticket.ticket.into(), is_id: false, session };
        cx.commit.keep_session(&self.store, self.key.clone(), session);
    }
}
