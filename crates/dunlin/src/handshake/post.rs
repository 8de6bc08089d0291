//! After the handshake: KeyUpdate and tickets, the same for both sides (RFC 8446 §4.6).

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;

use super::{Cx, State};
use crate::auth::PeerIdentity;
use crate::error::{Error, PeerMisbehaved};
use crate::message::{self, Message, NewSessionTicket};
use crate::output::Event;
use crate::resume::{
    ClientSession, ClientSessions, EarlyTerms, MAX_LIFETIME, Session, SessionKey, SettingsDigest,
};
use crate::role::TransportKind;
use crate::schedule::tls13::{ResumptionSecret, TrafficSecret};
use crate::transport::Epoch;
use crate::wire::{CipherSuite, HandshakeType, KeyUpdateRequest};

/// The connection is established.
pub(crate) struct Traffic {
    read: TrafficSecret,
    write: TrafficSecret,
    /// What a client does with tickets; a server gets none.
    tickets: Option<TicketIntake>,
    /// Whether a KeyUpdate of the peer is asked for and has not come.
    requested: bool,
}

/// What a client needs to keep a ticket.
pub(crate) struct TicketIntake {
    pub(crate) secret: ResumptionSecret,
    pub(crate) store: Option<Arc<dyn ClientSessions>>,
    pub(crate) key: SessionKey,
    pub(crate) cipher_suite: CipherSuite,
    pub(crate) authenticated_ms: u64,
    pub(crate) transport: TransportKind,
    pub(crate) peer: Option<PeerIdentity>,
    pub(crate) settings: SettingsDigest,
    pub(crate) server_name: Option<String>,
    /// How many more tickets of this connection are kept: a server cannot fill the store.
    pub(crate) room: u8,
}

/// Tickets that are kept of one connection.
pub(crate) const MAX_TICKETS: u8 = 8;

impl State for Traffic {
    fn message(mut self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Box<dyn State>, Error> {
        match (message.typ, &mut self.tickets) {
            (HandshakeType::KEY_UPDATE, _) => self.key_update(cx, &message)?,
            (HandshakeType::NEW_SESSION_TICKET, Some(intake)) => intake.ticket(cx, &message)?,
            _ => return Err(message.unexpected("application data")),
        }
        Ok(self)
    }

    fn update_keys(&mut self, cx: &mut Cx<'_>, request: KeyUpdateRequest) -> Result<(), Error> {
        // RFC 9846 §4.7.3: no second request before the first is answered.
        let request = match request {
            KeyUpdateRequest::UPDATE_REQUESTED if !self.requested => {
                self.requested = true;
                // The answer is work that we asked for.
                cx.output.reset_idle();
                request
            }
            _ => KeyUpdateRequest::UPDATE_NOT_REQUESTED,
        };
        cx.send(message::key_update::write(request)?)?;
        self.write = self.write.next();
        cx.emitter.write_keys(Epoch::Application, &self.write.keys(cx.transport()))?;
        cx.emitter.end_of_flight()
    }
}

impl Traffic {
    pub(crate) const fn new(
        read: TrafficSecret,
        write: TrafficSecret,
        tickets: Option<TicketIntake>,
    ) -> Self {
        Self { read, write, tickets, requested: false }
    }

    fn key_update(&mut self, cx: &mut Cx<'_>, message: &Message) -> Result<(), Error> {
        let request = message::key_update::read(message.body())?;
        cx.output.count_idle("KeyUpdates")?;
        self.requested = false;
        self.read = self.read.next();
        cx.emitter.read_keys(Epoch::Application, &self.read.keys(cx.transport()))?;
        cx.output.event(Event::PeerUpdatedKeys);
        // RFC 8446 §4.6.3: one answer may stand for several requests: requests alone cannot make our output grow. It
        // is due before our next data, so it is never due after close_notify.
        let due = !cx.output.send_closed && !cx.emitter.has_unsent_key_update();
        if request == KeyUpdateRequest::UPDATE_REQUESTED && due {
            // The answer does not ask again, or it would never end.
            self.update_keys(cx, KeyUpdateRequest::UPDATE_NOT_REQUESTED)?;
        }
        Ok(())
    }
}

impl TicketIntake {
    fn ticket(&mut self, cx: &mut Cx<'_>, message: &Message) -> Result<(), Error> {
        let ticket = NewSessionTicket::read(message.body())?;
        // RFC 8446 §4.6.1: no value above seven days.
        if u64::from(ticket.lifetime) > MAX_LIFETIME.as_secs() {
            return Err(PeerMisbehaved::IllegalParameter("ticket_lifetime").into());
        }
        cx.output.count_idle("tickets")?;
        cx.output.event(Event::TicketReceived);
        let Some(store) = &self.store else { return Ok(()) };
        // A lifetime of zero says "discard at once".
        if self.room == 0 || ticket.lifetime == 0 {
            return Ok(());
        }
        self.room -= 1;
        let session = Session {
            cipher_suite: self.cipher_suite,
            psk: self.secret.psk(ticket.nonce),
            issued_ms: cx.now.unix_ms,
            authenticated_ms: self.authenticated_ms,
            transport: self.transport,
            lifetime_s: ticket.lifetime,
            age_add: ticket.age_add,
            peer: self.peer.clone(),
            settings: self.settings,
            server_name: self.server_name.clone(),
            early: (ticket.max_early_data > 0 && self.transport == TransportKind::Stream).then(|| {
                EarlyTerms { max_size: ticket.max_early_data, alpn: cx.output.negotiated.alpn.clone() }
            }),
        };
        store.put(self.key.clone(), ClientSession { ticket: ticket.ticket.to_vec(), session });
        Ok(())
    }
}
