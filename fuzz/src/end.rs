//! A connection over either transport, and what must always hold of one, whatever its peer does.

use dunlin::error::{Error, Misuse};
use dunlin::wire::{AlertDescription, ProtocolVersion};
use dunlin::{
    Answer, DtlsConnection, Event, Negotiated, Now, Question, QuestionId, Side, TlsConnection, TransportKind,
};

use crate::MEMORY;
use crate::setting::{MAX_EARLY_DATA, World, localhost};
use crate::traffic::{ALERT, Record, Stream, records_of};

/// A connection over either transport.
pub(crate) enum End {
    /// TLS
    Tls(Box<TlsConnection>),
    /// DTLS
    Dtls(Box<DtlsConnection>),
}

/// The same call on either.
macro_rules! either {
    ($end:expr, $c:ident => $call:expr) => {
        match $end {
            End::Tls($c) => $call,
            End::Dtls($c) => $call,
        }
    };
}

impl End {
    /// One side of a connection in this world.
    pub(crate) fn new(world: &World, side: Side, now: Now) -> Self {
        match (world.setting.kind, side) {
            (TransportKind::Stream, Side::Client) => {
                Self::Tls(Box::new(TlsConnection::client(&world.client, localhost(), now).unwrap()))
            }
            (TransportKind::Stream, Side::Server) => {
                Self::Tls(Box::new(TlsConnection::server(&world.server, now)))
            }
            (TransportKind::Datagram, Side::Client) => {
                Self::Dtls(Box::new(DtlsConnection::client(&world.client, localhost(), now).unwrap()))
            }
            (TransportKind::Datagram, Side::Server) => {
                Self::Dtls(Box::new(DtlsConnection::server(&world.server, now)))
            }
        }
    }

    /// Takes bytes or a datagram; gives how many bytes were taken.
    pub(crate) fn receive(&mut self, now: Now, bytes: &[u8]) -> Result<usize, Error> {
        match self {
            Self::Tls(tls) => tls.receive(now, bytes),
            Self::Dtls(dtls) => dtls.receive(now, bytes).map(|()| bytes.len()),
        }
    }

    /// The next at most `max` bytes, or the next datagram, to be transmitted.
    pub(crate) fn transmit(&mut self, max: usize) -> Option<Vec<u8>> {
        match self {
            Self::Tls(tls) => {
                let waiting = tls.transmit();
                let bytes = waiting[..waiting.len().min(max)].to_vec();
                tls.transmitted(bytes.len());
                (!bytes.is_empty()).then_some(bytes)
            }
            Self::Dtls(dtls) => dtls.poll_transmit(),
        }
    }

    /// The next at most `max` bytes of data, or the data of the next record.
    pub(crate) fn read(&mut self, now: Now, max: usize) -> Result<Option<Vec<u8>>, Error> {
        match self {
            Self::Tls(tls) => {
                let waiting = tls.received();
                let data = waiting[..waiting.len().min(max)].to_vec();
                tls.consume(now, data.len())?;
                Ok((!data.is_empty()).then_some(data))
            }
            Self::Dtls(dtls) => Ok(dtls.read()),
        }
    }

    /// Sends data; gives how much was taken.
    pub(crate) fn send(&mut self, data: &[u8]) -> Result<usize, Error> {
        match self {
            Self::Tls(tls) => tls.send(data),
            Self::Dtls(dtls) => dtls.send(data).map(|()| data.len()),
        }
    }

    /// Sends early data, where there can be any; gives how much was taken.
    pub(crate) fn send_early(&mut self, data: &[u8]) -> Option<usize> {
        match self {
            Self::Tls(tls) => tls.early_data()?.send(data).ok(),
            Self::Dtls(_) => None,
        }
    }

    /// Early data that was received.
    pub(crate) fn read_early(&mut self, now: Now) -> Option<Vec<u8>> {
        let Self::Tls(tls) = self else { return None };
        let mut early = tls.early_data()?;
        let data = early.received().to_vec();
        // What comes after it may well end the connection.
        let _ = early.consume(now, data.len());
        (!data.is_empty()).then_some(data)
    }

    /// The transport ended; nothing on datagrams.
    pub(crate) fn receive_end(&mut self) -> Result<(), Error> {
        match self {
            Self::Tls(tls) => tls.receive_end(),
            Self::Dtls(_) => Ok(()),
        }
    }

    /// See [`dunlin::Connection::update_keys`].
    pub(crate) fn update_keys(&mut self, both: bool) -> Result<(), Error> {
        either!(self, c => c.update_keys(both))
    }

    /// See [`dunlin::Connection::renegotiate`].
    pub(crate) fn renegotiate(&mut self, now: Now) -> Result<(), Error> {
        either!(self, c => c.renegotiate(now))
    }

    /// See [`dunlin::Connection::close`].
    pub(crate) fn close(&mut self) {
        either!(self, c => c.close());
    }

    /// See [`dunlin::Connection::abort`].
    pub(crate) fn abort(&mut self, alert: AlertDescription) {
        either!(self, c => c.abort(alert));
    }

    /// See [`dunlin::Connection::export`].
    pub(crate) fn export(&self, out: &mut [u8]) -> Result<(), Error> {
        either!(self, c => c.export(b"EXPERIMENTAL fuzz", None, out))
    }

    /// See [`dunlin::Connection::answer`].
    pub(crate) fn answer(&mut self, now: Now, id: QuestionId, answer: Answer) -> Result<(), Error> {
        either!(self, c => c.answer(now, id, answer))
    }

    /// See [`dunlin::Connection::poll_event`].
    pub(crate) fn poll_event(&mut self) -> Option<Event> {
        either!(self, c => c.poll_event())
    }

    /// See [`dunlin::Connection::error`].
    pub(crate) fn error(&self) -> Option<&Error> {
        either!(self, c => c.error())
    }

    /// See [`dunlin::Connection::negotiated`].
    pub(crate) fn negotiated(&self) -> Option<&Negotiated> {
        either!(self, c => c.negotiated())
    }

    /// See [`dunlin::Connection::has_closed`].
    pub(crate) fn has_closed(&self) -> bool {
        either!(self, c => c.has_closed())
    }

    /// See [`dunlin::Connection::peer_has_closed`].
    pub(crate) fn peer_has_closed(&self) -> bool {
        either!(self, c => c.peer_has_closed())
    }
}

/// What a connection may hold, in bytes: 64 datagrams of output with 16 kB each; 64 kB of records, of data and of messages
/// that came too early; the message that is due, its certificates once more in a question; four tickets and as many
/// sessions in the stores.
const MAX_HELD: isize = 2 << 20;

/// A connection that is watched: every call goes through here, and after every call the rules are checked.
pub(crate) struct Watched {
    end: End,
    /// What the calls have left allocated, in bytes.
    held: isize,
    /// What it was given, in bytes: from the peer, and to send.
    given: usize,
    /// What it has transmitted, in bytes.
    transmitted: usize,
    /// Of a stream: what it writes.
    output: Stream,
    /// Whether it exports keying material, once it is connected.
    exports: bool,
    /// Whether it may speak TLS 1.2.
    has_tls12: bool,
    /// Early data that it received, in bytes.
    early: usize,
    /// Whether it has sent a record under keys.
    has_protected: bool,
    alert: Option<AlertDescription>,
    failed: Option<Error>,
    /// Whether the end was its caller's wish.
    aborted: bool,
    connected: bool,
    /// How many handshakes there were after the first.
    renegotiated: usize,
    closed_by_peer: bool,
}

impl Watched {
    /// Watches `side` in this world.
    pub(crate) fn new(world: &World, side: Side, now: Now) -> Self {
        let end = End::new(world, side, now);
        Self {
            end,
            held: 0,
            given: 0,
            transmitted: 0,
            output: Stream::default(),
            // RFC 7627 §5.4.
            exports: !world.setting.is_unbound(),
            has_tls12: world.setting.tls12.is_some(),
            early: 0,
            has_protected: false,
            alert: None,
            failed: None,
            aborted: false,
            connected: false,
            renegotiated: 0,
            closed_by_peer: false,
        }
    }

    /// For reading.
    pub(crate) const fn end(&self) -> &End {
        &self.end
    }

    /// Whether it has said that it is connected.
    pub(crate) const fn is_connected(&self) -> bool {
        self.connected
    }

    /// How often it has renegotiated.
    pub(crate) const fn renegotiations(&self) -> usize {
        self.renegotiated
    }

    /// Whether it has sent a record under keys.
    pub(crate) const fn has_protected(&self) -> bool {
        self.has_protected
    }

    fn call<R>(&mut self, call: impl FnOnce(&mut End) -> R) -> R {
        let before = MEMORY.allocated() as isize;
        let result = call(&mut self.end);
        self.held += MEMORY.allocated() as isize - before;
        assert!(self.held < MAX_HELD, "the connection holds {} bytes", self.held);
        match (&self.failed, self.end.error()) {
            (Some(first), now) => assert_eq!(Some(first), now, "another error"),
            (None, now) => self.failed = now.cloned(),
        }
        result
    }

    /// See [`End::receive`].
    pub(crate) fn receive(&mut self, now: Now, bytes: &[u8]) -> Result<usize, Error> {
        self.given += bytes.len();
        let was_over = self.failed.clone();
        let result = self.call(|end| end.receive(now, bytes));
        if let Some(error) = was_over {
            assert_eq!(result, Err(error), "a connection that is over took something");
        }
        if let Err(error) = &result {
            assert_eq!(self.failed.as_ref(), Some(error), "what is received fails for good");
        }
        if let (End::Tls(tls), true) = (&self.end, self.closed_by_peer) {
            assert!(tls.received().is_empty(), "data after close_notify");
        }
        result
    }

    /// See [`End::read`].
    pub(crate) fn read(&mut self, now: Now) -> Option<Vec<u8>> {
        let data = self.call(|end| end.read(now, usize::MAX)).ok().flatten()?;
        self.held -= data.capacity() as isize;
        assert!(self.connected || self.end.negotiated().is_some(), "data before the handshake was complete");
        Some(data)
    }

    /// See [`End::send_early`].
    pub(crate) fn send_early(&mut self, data: &[u8]) {
        self.given += data.len();
        self.call(|end| end.send_early(data));
    }

    /// See [`End::read_early`].
    pub(crate) fn read_early(&mut self, now: Now) -> Option<Vec<u8>> {
        let data = self.call(|end| end.read_early(now))?;
        self.held -= data.capacity() as isize;
        self.early += data.len();
        assert!(self.early <= MAX_EARLY_DATA as usize, "{} bytes of early data", self.early);
        assert!(!self.connected, "early data after the handshake");
        Some(data)
    }

    /// See [`End::send`].
    pub(crate) fn send(&mut self, data: &[u8]) -> Result<usize, Error> {
        self.given += data.len();
        let may = self.end.negotiated().is_some() && !self.end.has_closed();
        let result = self.call(|end| end.send(data));
        assert!(may || result.is_err(), "data before or after the time for it");
        result
    }

    /// See [`End::update_keys`].
    pub(crate) fn update_keys(&mut self, both: bool) {
        self.given += 64;
        let may = self.end.negotiated().is_some() && !self.end.has_closed();
        let result = self.call(|end| end.update_keys(both));
        assert!(may || result.is_err(), "a KeyUpdate before or after the time for it");
    }

    /// See [`End::renegotiate`].
    pub(crate) fn renegotiate(&mut self, now: Now) {
        self.given += 4096;
        let may = self.end.negotiated().is_some_and(|n| n.version == Some(ProtocolVersion::TLS1_2));
        let result = self.call(|end| end.renegotiate(now));
        assert!(may || result.is_err(), "a renegotiation before or after the time for it");
    }

    /// See [`End::close`].
    pub(crate) fn close(&mut self) {
        self.call(End::close);
        assert!(self.end.has_closed(), "it is not closed");
    }

    /// See [`End::abort`].
    pub(crate) fn abort(&mut self, alert: AlertDescription) {
        self.aborted |= self.failed.is_none();
        self.call(|end| end.abort(alert));
        assert!(self.end.error().is_some(), "it goes on after an abort");
    }

    /// See [`End::receive_end`].
    pub(crate) fn receive_end(&mut self) {
        let _ = self.call(End::receive_end);
    }

    /// See [`End::export`].
    pub(crate) fn export(&self) {
        let mut out = [0; 16];
        // A server that answers early data has it a little before.
        let is_there = self.end.export(&mut out).is_ok();
        match &self.failed {
            Some(_) => assert!(!is_there, "keying material of a connection that failed"),
            None => {
                assert!(is_there || !self.exports || self.end.negotiated().is_none(), "no keying material");
            }
        }
    }

    /// See [`End::answer`].
    pub(crate) fn answer(&mut self, now: Now, id: QuestionId, answer: Answer) -> Result<(), Error> {
        let result = self.call(|end| end.answer(now, id, answer));
        if let Err(Error::Misuse(Misuse::WrongAnswer | Misuse::NoSuchQuestion)) = result {
            assert!(self.failed.is_none(), "a wrong answer ended the connection");
        }
        result
    }

    /// The questions and sessions among the events; the others are judged here.
    pub(crate) fn events(&mut self) -> Vec<Event> {
        let mut kept = Vec::new();
        while let Some(event) = self.call(End::poll_event) {
            match event {
                Event::Connected => {
                    assert!(!self.connected, "connected twice");
                    assert!(self.end.negotiated().is_some(), "connected with nothing agreed");
                    self.connected = true;
                }
                Event::Renegotiated => {
                    assert!(self.connected, "renegotiated before it was connected");
                    self.renegotiated += 1;
                }
                Event::PeerClosed => self.closed_by_peer = true,
                Event::Question(..) | Event::NewSession(..) => kept.push(event),
                _ => {}
            }
            assert!(kept.len() < 16, "events without end");
        }
        kept
    }

    /// The next bytes or datagram, after a look at what is in them.
    pub(crate) fn transmit(&mut self) -> Option<Vec<u8>> {
        let before = MEMORY.allocated() as isize;
        let packet = self.end.transmit(usize::MAX)?;
        // It is the caller's now.
        self.held += MEMORY.allocated() as isize - before - packet.capacity() as isize;
        self.transmitted += packet.len();
        // A flight of certificates, cut into the smallest pieces; the rest answers what came.
        assert!(
            self.transmitted <= 32 * 1024 + 10 * self.given,
            "{} bytes of output for {} of input",
            self.transmitted,
            self.given
        );
        let records = match &self.end {
            End::Tls(_) => self.output.push(&packet),
            End::Dtls(_) => records_of(&packet),
        };
        records.iter().for_each(|record| self.judge(record));
        Some(packet)
    }

    /// RFC 8446 §6: an alert ends its direction. RFC 5246 §7.2.2: but not this warning.
    fn judge(&mut self, record: &Record) {
        self.has_protected |= record.protection.is_some();
        assert!(self.alert.is_none(), "a record of type {} after {:?}", record.typ, self.alert);
        if record.typ == ALERT {
            let [level, description] = record.content[..] else { panic!("an alert of {:?}", record.content) };
            let description = AlertDescription(description);
            let is_warning = level == 1 && description == AlertDescription::NO_RENEGOTIATION;
            self.alert = Some(description).filter(|_| !is_warning);
        }
    }

    /// At the end, when all output is transmitted.
    pub(crate) fn finish(self) {
        assert!(self.output.is_whole(), "half a record was transmitted");
        let has_closed = self.alert == Some(AlertDescription::CLOSE_NOTIFY);
        match &self.failed {
            None => assert!(self.alert.is_none() || has_closed, "{:?} without an error", self.alert),
            // The alert of the caller's choice.
            Some(_) if self.aborted => assert!(self.alert.is_some(), "aborted without an alert"),
            Some(_) if has_closed => {}
            Some(error) => {
                let alert = match error.alert() {
                    // RFC 5246 §7.2.2: what came with TLS 1.3 is this before.
                    Some(AlertDescription::CERTIFICATE_REQUIRED | AlertDescription::MISSING_EXTENSION)
                        if self.has_tls12 && self.alert == Some(AlertDescription::HANDSHAKE_FAILURE) =>
                    {
                        self.alert
                    }
                    alert => alert,
                };
                assert_eq!(self.alert, alert, "the alert for {error:?}");
            }
        }
        assert!(!self.connected || self.end.negotiated().is_some(), "what was agreed is gone");
    }
}

/// The answer that says no.
pub(crate) fn refusal(question: &Question) -> Answer {
    match question {
        Question::ChooseProfile(_) => Answer::Profile(None),
        Question::FindPsk { .. } => Answer::Psk(None),
        Question::FindSession { .. } => Answer::Session(None),
        Question::FirstUse { .. } => Answer::FirstUse(false),
        Question::Sign { .. } => Answer::Signature(b"of somebody else".to_vec()),
        _ => Answer::Verified(Err(dunlin::error::AuthenticationFailure::Revoked)),
    }
}
