//! Received messages (RFC 7252 §4 and §5).

use coap_lite::{MessageClass, MessageType, Packet, ResponseType};
use dunlin::Instant;

use super::sending::Purpose;
use super::{ExchangeEvent, ExchangeId, Exchanges, FRESH, Foreign, MAX_REQUESTS, RequestId, empty, encode};
use crate::error::CoapError;
use crate::options::{is_for_proxies, observe, unknown_critical};

impl Exchanges {
    /// Handles a received message. Malformed messages and those without a context are dropped or rejected, as
    /// RFC 7252 wants.
    pub fn receive(&mut self, now: Instant, message: &[u8]) {
        let &[first, code, high, low, ..] = message else { return self.discard() };
        // RFC 7252 §3: messages of other versions are silently ignored.
        if first >> 6 != 1 {
            return self.discard();
        }
        let typ = first >> 4 & 3;
        let id = u16::from_be_bytes([high, low]);
        let Some(packet) = parse(message) else {
            return self.reject(typ, id);
        };
        match (code >> 5, code, packet.header.get_type()) {
            (0, 0, MessageType::Acknowledgement) => self.acknowledged(now, id),
            (0, 0, MessageType::Reset) => self.refused(now, id),
            (0, 1.., MessageType::Confirmable | MessageType::NonConfirmable) => {
                self.received_request(now, packet);
            }
            (2 | 4 | 5, _, MessageType::Acknowledgement) => self.piggybacked(now, packet),
            (2 | 4 | 5, _, MessageType::Confirmable | MessageType::NonConfirmable) => {
                self.separate(now, packet);
            }
            // RFC 7252 §4.2 and §4.3: this includes an empty confirmable message, a "ping".
            _ => self.reject(typ, id),
        }
    }

    fn discard(&mut self) {
        self.discarded += 1;
    }

    /// Rejects a message: a Reset for a confirmable one, silence for others (RFC 7252 §4.2 and §4.3).
    fn reject(&mut self, typ: u8, id: u16) {
        self.discard();
        if typ == 0 {
            self.output.push_back(empty(MessageType::Reset, id));
        }
    }

    /// Sends a reply, which a duplicate of the message with this ID gets again.
    pub(super) fn reply(&mut self, now: Instant, id: u16, reply: Vec<u8>) {
        if let Some(entry) = self.seen.find(now, id) {
            entry.reply = Some(reply.clone());
        }
        self.output.push_back(reply);
    }

    /// Sends an empty acknowledgement. A response to a request in the message will be a message of its own.
    pub(super) fn acknowledge(&mut self, now: Instant, id: u16) {
        self.reply(now, id, empty(MessageType::Acknowledgement, id));
        for request in self.foreign.values_mut().filter(|request| request.message_id == id) {
            request.acknowledge_at = None;
        }
    }

    /// Answers a duplicate. Returns whether the message is one (RFC 7252 §4.5).
    fn is_duplicate(&mut self, now: Instant, packet: &Packet) -> bool {
        let id = packet.header.message_id;
        let is_confirmable = packet.header.get_type() == MessageType::Confirmable;
        match self.seen.find(now, id) {
            Some(entry) => {
                match (entry.reply.clone(), entry.request) {
                    (Some(reply), _) => self.output.push_back(reply),
                    (None, Some(_)) if is_confirmable => self.acknowledge(now, id),
                    _ => self.discard(),
                }
                true
            }
            None => {
                let parameters = &self.parameters;
                let lifetime =
                    if is_confirmable { parameters.exchange_lifetime() } else { parameters.non_lifetime() };
                self.seen.add(now, parameters.remembered, id, now + lifetime);
                false
            }
        }
    }

    fn received_request(&mut self, now: Instant, packet: Packet) {
        let is_confirmable = packet.header.get_type() == MessageType::Confirmable;
        let id = packet.header.message_id;
        if self.foreign.len() >= MAX_REQUESTS && self.seen.find(now, id).is_none() {
            return self.discard();
        }
        if self.is_duplicate(now, &packet) {
            return;
        }
        let unknown = unknown_critical(&packet, &self.parameters.critical_options);
        if unknown.is_some() && !is_confirmable {
            // RFC 7252 §5.4.1: such a non-confirmable message is rejected.
            return self.discard();
        }
        let request = RequestId(self.next_request);
        self.next_request += 1;
        if let Some(entry) = self.seen.find(now, id) {
            entry.request = Some(request);
        }
        // RFC 7641 §2: the option has a meaning in a GET, and RFC 8132 §2.4 in a FETCH.
        let observe = if matches!(u8::from(packet.header.code), 1 | 5) { observe(&packet) } else { None };
        let foreign = Foreign {
            token: packet.get_token().to_vec(),
            message_id: id,
            is_confirmable,
            wants_notifications: observe == Some(0),
            acknowledge_at: is_confirmable.then_some(now + self.parameters.piggyback),
        };
        self.foreign.insert(request, foreign);
        let refusal = match (unknown, packet.header.code) {
            (Some(option), _) if is_for_proxies(option) => Some(ResponseType::ProxyingNotSupported),
            (Some(_), _) => Some(ResponseType::BadOption),
            // RFC 7252 §5.8: the answer to an unknown method.
            (None, MessageClass::Reserved(_)) => Some(ResponseType::MethodNotAllowed),
            (None, _) => None,
        };
        if let Some(refusal) = refusal {
            let mut response = Packet::new();
            response.header.code = MessageClass::Response(refusal);
            // A response that finds no place is like a lost one.
            let _ = self.respond(now, request, response);
            return;
        }
        if observe == Some(1) {
            self.stop_observer(packet.get_token());
        }
        self.events.push_back(ExchangeEvent::Request(request, packet));
    }

    fn acknowledged(&mut self, now: Instant, id: u16) {
        let Some(message) = self.sending.take(id) else { return self.discard() };
        if let Purpose::Notification(id) = message.purpose
            && let Some(observer) = self.observers.get_mut(&id)
        {
            observer.is_notified = false;
            self.events.push_back(ExchangeEvent::Notified(id));
        }
        self.start(now);
    }

    /// The peer has sent a Reset.
    fn refused(&mut self, now: Instant, id: u16) {
        let Some(message) = self.sending.take(id) else { return self.discard() };
        match message.purpose {
            Purpose::Request(id) => self.fail(id, CoapError::Reset),
            // RFC 7641 §3.6: the client is no longer interested.
            Purpose::Notification(id) => self.end_observer(id),
            Purpose::Response => {}
        }
        self.start(now);
    }

    /// A response in an acknowledgement. RFC 7252 §5.3.2: message ID and token must match.
    fn piggybacked(&mut self, now: Instant, packet: Packet) {
        let purpose = self.sending.purpose(packet.header.message_id);
        match (purpose, exchange(&packet)) {
            (Some(Purpose::Request(sent)), Some(id)) if sent == id => {
                if let Some(option) = unknown_critical(&packet, &self.parameters.critical_options) {
                    self.sending.forget(Purpose::Request(id));
                    self.fail(id, CoapError::BadOption(option));
                    return self.start(now);
                }
                self.deliver(now, id, packet);
            }
            _ => self.discard(),
        }
    }

    /// A response in a message of its own.
    fn separate(&mut self, now: Instant, packet: Packet) {
        let is_confirmable = packet.header.get_type() == MessageType::Confirmable;
        let message_id = packet.header.message_id;
        if self.seen.find(now, message_id).is_some() {
            self.is_duplicate(now, &packet);
            return;
        }
        // RFC 7252 §4.3 lets the recipient of a non-confirmable message send a Reset, which ends an
        // observation.
        let Some(id) = exchange(&packet).filter(|id| self.own.contains_key(id)) else {
            return self.reject(0, message_id);
        };
        if let Some(option) = unknown_critical(&packet, &self.parameters.critical_options) {
            self.reject(0, message_id);
            self.sending.forget(Purpose::Request(id));
            self.fail(id, CoapError::BadOption(option));
            return self.start(now);
        }
        self.is_duplicate(now, &packet);
        if is_confirmable {
            self.acknowledge(now, message_id);
        }
        self.deliver(now, id, packet);
    }

    fn deliver(&mut self, now: Instant, id: ExchangeId, packet: Packet) {
        // RFC 7252 §5.2.2: a response acknowledges its request, too.
        self.sending.forget(Purpose::Request(id));
        self.start(now);
        let Some(own) = self.own.get_mut(&id) else { return self.discard() };
        match observe(&packet).filter(|_| own.wants_notifications && super::is_success(&packet)) {
            // RFC 7641 §3.2: without the option, this is the last response.
            None => {
                self.own.remove(&id);
            }
            Some(number) => {
                if own.latest.is_some_and(|latest| !is_newer(latest, (number, now))) {
                    return;
                }
                own.latest = Some((number, now));
                own.expires = None;
            }
        }
        self.events.push_back(ExchangeEvent::Response(id, packet));
    }
}

/// RFC 7641 §3.4: whether a notification is newer than the latest one.
fn is_newer((old, then): (u32, Instant), (new, now): (u32, Instant)) -> bool {
    (old < new && new - old < 1 << 23) || (old > new && old - new > 1 << 23) || now > then + FRESH
}

/// The request of this side to which a response belongs, by its token.
fn exchange(packet: &Packet) -> Option<ExchangeId> {
    packet.get_token().try_into().ok().map(|token| ExchangeId(u32::from_be_bytes(token)))
}

/// Parses a message. `None` if its format is wrong.
fn parse(message: &[u8]) -> Option<Packet> {
    let packet = Packet::from_bytes(message).ok()?;
    // RFC 7252 §4.1: an empty message has no token and ends after the message ID.
    if packet.header.code == MessageClass::Empty && message.len() > 4 {
        return None;
    }
    // RFC 7252 §3: a payload marker without a payload. The encoding of everything else is unique.
    let length = encode(packet.clone(), packet.header.get_type(), packet.header.message_id).len();
    (length == message.len()).then_some(packet)
}
