//! The message layer and the request/response layer of CoAP for one association, without I/O and clock.

mod receive;
mod seen;
mod sending;

use std::collections::{BTreeMap, VecDeque};

use coap_lite::{CoapOption, MessageClass, MessageType, Packet, ResponseType};
use dunlin::Instant;

use crate::error::{CoapError, InvalidParameters};
use crate::options::observe;
use crate::parameters::Parameters;
use seen::Seen;
use sending::{Outgoing, Purpose, Sending};

/// The most requests of a peer that wait for a response. Further ones are dropped; the peer sends them again.
const MAX_REQUESTS: usize = 64;

/// The most observations of a peer. A request for another one gets a response alone (RFC 7641 §4.1).
const MAX_OBSERVERS: usize = 64;

/// RFC 7641 §3.4: a notification that comes this much later is newer, whatever its number.
const FRESH: std::time::Duration = std::time::Duration::from_secs(128);

/// Message IDs are issued in 16 blocks of this length.
const BLOCK: u16 = 1 << 12;

/// Names a request of this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExchangeId(u32);

/// Names a request of the peer, and the observation that it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(u64);

/// An event that the message layer reports to its caller.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ExchangeEvent {
    /// The peer has sent a request; [`Exchanges::respond`] answers it.
    Request(RequestId, Packet),
    /// The peer has answered a request, or has notified its observer.
    Response(ExchangeId, Packet),
    /// The request, or the observation that it began, has ended without a further response.
    Failed(ExchangeId, CoapError),
    /// The peer has acknowledged the latest notification.
    Notified(RequestId),
    /// The peer no longer observes.
    Cancelled(RequestId),
}

/// A request of this side.
struct Own {
    /// Whether the request asks for notifications.
    wants_notifications: bool,
    /// The number and the time of the latest notification.
    latest: Option<(u32, Instant)>,
    /// When the request fails. `None` for an observation.
    expires: Option<Instant>,
}

/// A request of the peer that is not answered.
struct Foreign {
    token: Vec<u8>,
    message_id: u16,
    is_confirmable: bool,
    wants_notifications: bool,
    /// When the empty acknowledgement is due. `None` after it.
    acknowledge_at: Option<Instant>,
}

/// An observation of the peer.
struct Observer {
    token: Vec<u8>,
    sequence: u32,
    is_notified: bool,
}

/// The requests and responses of one association, in both directions: retransmission, acknowledgements,
/// duplicates, tokens, message IDs and observations (RFC 7252, RFC 7641). It has neither I/O nor a clock:
/// received messages and the time go in, and messages, events and a deadline come out.
///
/// RFC 7252 §9.1.1 and §9.1.2 bind messages and responses to their DTLS session: use one value for each
/// association.
pub struct Exchanges {
    parameters: Parameters,
    max_message: usize,
    random: u64,
    next_message: u16,
    /// When this side used the last message ID of each block.
    blocks: [Option<Instant>; 16],
    next_exchange: u32,
    next_request: u64,
    sending: Sending,
    own: BTreeMap<ExchangeId, Own>,
    foreign: BTreeMap<RequestId, Foreign>,
    observers: BTreeMap<RequestId, Observer>,
    seen: Seen,
    discarded: u64,
    output: VecDeque<Vec<u8>>,
    events: VecDeque<ExchangeEvent>,
}

impl Exchanges {
    /// Exchanges with these parameters, in messages of at most `max_message` bytes. The random `seed` chooses
    /// the first message ID and token, and spreads retransmissions.
    ///
    /// # Errors
    /// A parameter is out of range.
    pub fn new(parameters: Parameters, max_message: usize, seed: u64) -> Result<Self, InvalidParameters> {
        parameters.check()?;
        let mut this = Self {
            parameters,
            max_message,
            random: seed,
            next_message: 0,
            blocks: [None; 16],
            next_exchange: 0,
            next_request: 0,
            sending: Sending::default(),
            own: BTreeMap::new(),
            foreign: BTreeMap::new(),
            observers: BTreeMap::new(),
            seen: Seen::default(),
            discarded: 0,
            output: VecDeque::new(),
            events: VecDeque::new(),
        };
        this.next_message = this.random() as u16;
        this.next_exchange = this.random() as u32;
        Ok(this)
    }

    /// Changes the longest message in bytes ([`dunlin_tokio::DtlsAssociation::max_data`]).
    pub const fn set_max_message(&mut self, max_message: usize) {
        self.max_message = max_message;
    }

    /// Sends a request. The type of `message` says whether it is confirmable, which it is by default; its
    /// message ID and token are replaced. With an Observe option of 0, each notification is a further
    /// response.
    ///
    /// # Errors
    /// The message is not a request or is too long, or too many messages wait.
    pub fn request(&mut self, now: Instant, mut message: Packet) -> Result<ExchangeId, CoapError> {
        if !matches!(message.header.code, MessageClass::Request(_)) {
            return Err(CoapError::NotARequest);
        }
        while self.own.contains_key(&ExchangeId(self.next_exchange)) {
            self.next_exchange = self.next_exchange.wrapping_add(1);
        }
        let id = ExchangeId(self.next_exchange);
        let is_confirmable = message.header.get_type() != MessageType::NonConfirmable;
        message.set_token(id.0.to_be_bytes().to_vec());
        let wants_notifications = observe(&message) == Some(0);
        self.send(now, message, is_confirmable, Purpose::Request(id))?;
        self.next_exchange = self.next_exchange.wrapping_add(1);
        let expires = Some(now + self.parameters.answer_timeout);
        self.own.insert(id, Own { wants_notifications, latest: None, expires });
        Ok(id)
    }

    /// Forgets a request of this side. A later response to it, such as a notification, gets a Reset (RFC 7641
    /// §3.6).
    pub fn cancel(&mut self, now: Instant, id: ExchangeId) {
        self.own.remove(&id);
        self.sending.forget(Purpose::Request(id));
        self.start(now);
    }

    /// Whether a response to this request can still come.
    pub fn is_open(&self, id: ExchangeId) -> bool {
        self.own.contains_key(&id)
    }

    /// Answers a request of the peer. This call replaces the token, the type and the message ID of
    /// `response`. If the request asks for notifications and a successful response has an Observe option of
    /// any value, the peer becomes an observer. The caller then notifies it by `id`.
    ///
    /// Returns whether it is one.
    ///
    /// # Errors
    /// The response is too long for a message, so the peer gets 5.00 (Internal Server Error); or too many
    /// messages wait.
    pub fn respond(&mut self, now: Instant, id: RequestId, response: Packet) -> Result<bool, CoapError> {
        let Some(request) = self.foreign.remove(&id) else { return Ok(false) };
        let mut response = response;
        let observes = request.wants_notifications
            && self.observers.len() < MAX_OBSERVERS
            && is_success(&response)
            && response.get_first_option(CoapOption::Observe).is_some();
        if observes {
            response.set_observe_value(0);
        } else {
            response.clear_option(CoapOption::Observe);
        }
        response.set_token(request.token.clone());
        let (response, result) = self.fit(response);
        let observes = observes && result.is_ok();
        if observes {
            // RFC 7641 §4.1: a second registration with the same token replaces the first.
            self.stop_observer(&request.token);
            let observer = Observer { token: request.token, sequence: 0, is_notified: false };
            self.observers.insert(id, observer);
        }
        if request.acknowledge_at.is_some() {
            let bytes = encode(response, MessageType::Acknowledgement, request.message_id);
            self.reply(now, request.message_id, bytes);
        } else {
            self.send(now, response, request.is_confirmable, Purpose::Response)?;
        }
        result.map(|()| observes)
    }

    /// Leaves a request of the peer without a response. The peer gets an acknowledgement if it asked for one.
    pub fn ignore(&mut self, now: Instant, id: RequestId) {
        let request = self.foreign.remove(&id);
        if let Some(Foreign { acknowledge_at: Some(_), message_id, .. }) = request {
            self.acknowledge(now, message_id);
        }
    }

    /// Notifies an observer. An error response ends the observation (RFC 7641 §4.2). An event tells when the
    /// observer has acknowledged the notification; the next one must wait for that (RFC 7641 §4.5).
    ///
    /// # Errors
    /// The previous notification is on its way, too many messages wait, or the notification is too long, so
    /// the observer gets 5.00 (Internal Server Error).
    pub fn notify(&mut self, now: Instant, id: RequestId, mut response: Packet) -> Result<(), CoapError> {
        let Some(observer) = self.observers.get_mut(&id) else { return Ok(()) };
        if observer.is_notified {
            return Err(CoapError::Busy);
        }
        // RFC 7641 §4.4: the numbers have 24 bits.
        observer.sequence = (observer.sequence + 1) & 0xff_ffff;
        response.set_token(observer.token.clone());
        response.set_observe_value(observer.sequence);
        let (mut response, result) = self.fit(response);
        if is_success(&response) {
            self.send(now, response, true, Purpose::Notification(id))?;
            self.observers.entry(id).and_modify(|observer| observer.is_notified = true);
        } else {
            response.clear_option(CoapOption::Observe);
            self.end_observer(id);
            self.send(now, response, true, Purpose::Response)?;
        }
        result
    }

    /// The next message to send. One that has become too long since it was written is lost, as in a network.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        loop {
            let message = self.output.pop_front()?;
            if message.len() <= self.max_message {
                return Some(message);
            }
        }
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<ExchangeEvent> {
        self.events.pop_front()
    }

    /// When [`Self::handle_timeout`] has to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let own = self.own.values().filter_map(|own| own.expires);
        let foreign = self.foreign.values().filter(|f| f.is_confirmable).filter_map(|f| f.acknowledge_at);
        own.chain(foreign).chain(self.sending.deadline()).min()
    }

    /// Handles the timers whose deadline has come: sends messages again, acknowledges requests without an
    /// answer, and ends exchanges.
    pub fn handle_timeout(&mut self, now: Instant) {
        let due: Vec<u16> = self.foreign.values().filter(|f| f.is_due(now)).map(|f| f.message_id).collect();
        due.into_iter().for_each(|id| self.acknowledge(now, id));
        while let Some(given_up) = self.sending.expire(now, self.parameters.max_retransmit, &mut self.output)
        {
            match given_up.purpose {
                Purpose::Request(id) if given_up.is_confirmable => {
                    let waited = self.parameters.max_transmit_wait();
                    self.fail(id, CoapError::Timeout(waited));
                }
                // RFC 7641 §4.5: the server forgets an observer that acknowledges nothing.
                Purpose::Notification(id) => self.end_observer(id),
                Purpose::Request(_) | Purpose::Response => {}
            }
        }
        let expired: Vec<ExchangeId> = self
            .own
            .iter()
            .filter(|(_, own)| own.expires.is_some_and(|at| at <= now))
            .map(|(id, _)| *id)
            .collect();
        for id in expired {
            self.sending.forget(Purpose::Request(id));
            self.fail(id, CoapError::Timeout(self.parameters.answer_timeout));
        }
        self.start(now);
    }

    /// How many received messages were dropped: malformed ones, ones without a context, and requests beyond
    /// the limit.
    pub const fn discarded(&self) -> u64 {
        self.discarded
    }

    /// Queues a message with a new message ID.
    fn send(
        &mut self,
        now: Instant,
        message: Packet,
        is_confirmable: bool,
        purpose: Purpose,
    ) -> Result<(), CoapError> {
        let id = self.message_id(now)?;
        let typ = if is_confirmable { MessageType::Confirmable } else { MessageType::NonConfirmable };
        let bytes = encode(message, typ, id);
        if bytes.len() > self.max_message {
            return Err(CoapError::TooLong { length: bytes.len(), limit: self.max_message });
        }
        if purpose == Purpose::Response && !is_confirmable {
            self.output.push_back(bytes);
            return Ok(());
        }
        // RFC 7252 §4.2: the first timeout is random.
        let shortest = self.parameters.ack_timeout;
        let spread = self.parameters.longest_ack_timeout().saturating_sub(shortest).as_millis() as u64;
        let timeout = shortest + std::time::Duration::from_millis(self.random() % (spread + 1));
        self.sending.push(Outgoing::new(id, bytes, purpose, is_confirmable, timeout))?;
        self.start(now);
        Ok(())
    }

    fn start(&mut self, now: Instant) {
        self.sending.start(now, self.parameters.nstart, &mut self.output);
    }

    /// A response that fits into a message: this one, or 5.00 with the reason.
    fn fit(&self, response: Packet) -> (Packet, Result<(), CoapError>) {
        let length = response.to_bytes_unlimited().map_or(usize::MAX, |bytes| bytes.len());
        if length <= self.max_message {
            return (response, Ok(()));
        }
        let mut failure = Packet::new();
        failure.header.code = MessageClass::Response(ResponseType::InternalServerError);
        failure.set_token(response.get_token().to_vec());
        failure.payload = b"response too long".to_vec();
        (failure, Err(CoapError::TooLong { length, limit: self.max_message }))
    }

    /// A message ID. RFC 7252 §4.4: this side does not use it again within EXCHANGE_LIFETIME.
    fn message_id(&mut self, now: Instant) -> Result<u16, CoapError> {
        let id = self.next_message;
        let block = usize::from(id / BLOCK);
        let Some(used) = self.blocks.get_mut(block) else { return Err(CoapError::Busy) };
        if id.is_multiple_of(BLOCK)
            && used.is_some_and(|used| now < used + self.parameters.exchange_lifetime())
        {
            return Err(CoapError::Busy);
        }
        *used = Some(now);
        self.next_message = id.wrapping_add(1);
        Ok(id)
    }

    /// A number that spreads timers: SplitMix64. Nothing secret depends on it.
    const fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn fail(&mut self, id: ExchangeId, error: CoapError) {
        if self.own.remove(&id).is_some() {
            self.events.push_back(ExchangeEvent::Failed(id, error));
        }
    }

    fn end_observer(&mut self, id: RequestId) {
        if self.observers.remove(&id).is_some() {
            self.sending.forget(Purpose::Notification(id));
            self.events.push_back(ExchangeEvent::Cancelled(id));
        }
    }

    /// Ends the observation with this token.
    fn stop_observer(&mut self, token: &[u8]) {
        let found = self.observers.iter().find(|(_, observer)| observer.token == token).map(|(id, _)| *id);
        found.into_iter().for_each(|id| self.end_observer(id));
    }
}

impl Foreign {
    fn is_due(&self, now: Instant) -> bool {
        self.is_confirmable && self.acknowledge_at.is_some_and(|at| at <= now)
    }
}

impl std::fmt::Debug for Exchanges {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchanges").field("parameters", &self.parameters).finish_non_exhaustive()
    }
}

/// Whether the code is 2.xx.
fn is_success(message: &Packet) -> bool {
    u8::from(message.header.code) >> 5 == 2
}

/// The bytes of a message. Its length is checked elsewhere.
fn encode(mut message: Packet, typ: MessageType, id: u16) -> Vec<u8> {
    message.header.set_version(1);
    message.header.set_type(typ);
    message.header.message_id = id;
    message.to_bytes_unlimited().unwrap_or_default()
}

/// An empty message: an acknowledgement or a Reset.
fn empty(typ: MessageType, id: u16) -> Vec<u8> {
    let mut message = Packet::new();
    message.header.code = MessageClass::Empty;
    encode(message, typ, id)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

    use super::*;

    #[test]
    fn the_numbers_of_notifications_begin_again_after_24_bits() {
        let mut server = Exchanges::new(Parameters::default(), 1024, 1).unwrap();
        server.receive(Instant(0), b"\x41\x01\x30\x39\x4a\x60");
        let Some(ExchangeEvent::Request(id, _)) = server.poll_event() else { panic!("no request") };
        let mut response = Packet::new();
        response.header.code = MessageClass::Response(ResponseType::Content);
        response.set_observe_value(0);
        assert!(server.respond(Instant(0), id, response.clone()).unwrap());
        server.observers.get_mut(&id).unwrap().sequence = 0xff_ffff;
        server.notify(Instant(0), id, response).unwrap();
        let notification = std::iter::from_fn(|| server.poll_transmit()).last().unwrap();
        assert_eq!(notification.get(4..), Some(&b"\x4a\x60"[..]));
    }
}
