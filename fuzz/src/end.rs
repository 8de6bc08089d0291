//! A connection over either transport, and the rules that every connection obeys, whatever its peer does.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use dunlin::error::{Error, Misuse};
use dunlin::wire::{AlertDescription, ProtocolVersion};
use dunlin::{
    Answer, DtlsConnection, Event, Negotiated, Now, Question, QuestionId, Side, TlsConnection, TransportKind,
};

use crate::MEMORY;
use crate::setting::{MAX_EARLY_DATA, NOW, World, localhost};
use crate::traffic::{ALERT, CHANGE_CIPHER_SPEC, HANDSHAKE, ID_LEN, Protection, Record, Stream, records_of};

/// The address of both sides.
const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 4433);

/// A connection over either transport.
pub(crate) enum End {
    /// TLS
    Tls(Box<TlsConnection>),
    /// DTLS
    Dtls(Box<DtlsConnection>),
}

/// Makes the same call on either kind of connection.
macro_rules! either {
    ($end:expr, $c:ident => $call:expr) => {
        match $end {
            End::Tls($c) => $call,
            End::Dtls($c) => $call,
        }
    };
}

impl End {
    /// Makes one side of a connection in this world.
    pub(crate) fn new(world: &World, side: Side, now: Now) -> Self {
        match (world.setting.kind, side) {
            (TransportKind::Stream, Side::Client) => {
                Self::Tls(Box::new(TlsConnection::client(&world.client, localhost(), now).unwrap()))
            }
            (TransportKind::Stream, Side::Server) => {
                Self::Tls(Box::new(TlsConnection::server(&world.server, now)))
            }
            (TransportKind::Datagram, Side::Client) => Self::Dtls(Box::new(
                DtlsConnection::client(&world.client, localhost(), ADDRESS, now).unwrap(),
            )),
            (TransportKind::Datagram, Side::Server) => {
                Self::Dtls(Box::new(DtlsConnection::server(&world.server, ADDRESS, now)))
            }
        }
    }

    /// Receives bytes or a datagram. Returns how many bytes were consumed.
    pub(crate) fn receive(&mut self, now: Now, bytes: &[u8]) -> Result<usize, Error> {
        match self {
            Self::Tls(tls) => tls.receive(now, bytes),
            Self::Dtls(dtls) => dtls.receive(now, ADDRESS, bytes).map(|()| bytes.len()),
        }
    }

    /// Returns at most `max` bytes, or the next datagram, to transmit.
    pub(crate) fn transmit(&mut self, max: usize) -> Option<Vec<u8>> {
        match self {
            Self::Tls(tls) => {
                let waiting = tls.transmit();
                let bytes = waiting[..waiting.len().min(max)].to_vec();
                tls.transmitted(bytes.len());
                (!bytes.is_empty()).then_some(bytes)
            }
            Self::Dtls(dtls) => dtls.poll_transmit(NOW).map(|transmit| transmit.datagram),
        }
    }

    /// Returns at most `max` bytes of data, or the data of the next record.
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

    /// Sends data. Returns how many bytes were accepted.
    pub(crate) fn send(&mut self, data: &[u8]) -> Result<usize, Error> {
        match self {
            Self::Tls(tls) => tls.send(data),
            Self::Dtls(dtls) => dtls.send(data).map(|()| data.len()),
        }
    }

    /// Sends early data if possible. Returns how many bytes were accepted.
    pub(crate) fn send_early(&mut self, data: &[u8]) -> Option<usize> {
        match self {
            Self::Tls(tls) => tls.early_data()?.send(data).ok(),
            Self::Dtls(_) => None,
        }
    }

    /// Returns received early data.
    pub(crate) fn read_early(&mut self, now: Now) -> Option<Vec<u8>> {
        let Self::Tls(tls) = self else { return None };
        let mut early = tls.early_data()?;
        let data = early.received().to_vec();
        // The bytes after the early data may end the connection.
        let _ = early.consume(now, data.len());
        (!data.is_empty()).then_some(data)
    }

    /// Reports the end of the transport; does nothing for datagrams.
    pub(crate) fn receive_end(&mut self) -> Result<(), Error> {
        match self {
            Self::Tls(tls) => tls.receive_end(),
            Self::Dtls(_) => Ok(()),
        }
    }

    /// The next timer expires.
    pub(crate) fn expire(&mut self) {
        let Self::Dtls(dtls) = self else { return };
        if let Some(monotonic) = dtls.poll_timeout() {
            // The connection keeps its error.
            let _ = dtls.handle_timeout(Now { monotonic, ..NOW });
        }
    }

    /// Requests connection IDs, replaces its own, or uses a spare one of the peer; does nothing over a
    /// stream.
    pub(crate) fn change_ids(&mut self, how: u8) {
        let Self::Dtls(dtls) = self else { return };
        // The connection keeps its error.
        let _ = match how % 4 {
            0 => dtls.request_connection_ids(how / 4),
            1 => dtls.replace_connection_id(),
            _ => {
                dtls.use_spare_connection_id();
                Ok(())
            }
        };
    }

    /// Whether this side sends a connection ID of another length than the settings have, because its peer's
    /// messages were changed.
    fn has_odd_id(&self) -> bool {
        let Self::Dtls(dtls) = self else { return false };
        ![0, ID_LEN].contains(&dtls.peer_connection_id().len())
    }

    /// Whether both directions have connection IDs.
    pub(crate) fn has_ids(&self) -> bool {
        let Self::Dtls(dtls) = self else { return false };
        !dtls.peer_connection_id().is_empty() && dtls.connection_ids().next().is_some()
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

/// The memory that a connection may use, in bytes: 64 datagrams of output with 16 kB each; 64 kB each of
/// records, of data and of early messages; the expected message, and a copy of its certificates in a
/// question; four tickets, and as many sessions in the stores.
const MAX_HELD: isize = 2 << 20;

/// A connection under observation. Every call goes through it, and it checks the rules after every call.
pub(crate) struct Watched {
    end: End,
    /// The memory that the calls have left allocated, in bytes.
    held: isize,
    /// The bytes that it was given: from the peer, and to send.
    given: usize,
    /// The bytes that it has transmitted.
    transmitted: usize,
    /// On a stream: its output.
    output: Stream,
    /// Whether it exports keying material once it is connected.
    exports: bool,
    /// The protection of TLS 1.2 or DTLS 1.2, if it may negotiate that.
    tls12: Option<Protection>,
    /// The early data that it received, in bytes.
    early: usize,
    /// Whether it has sent a protected record.
    has_protected: bool,
    alert: Option<AlertDescription>,
    failed: Option<Error>,
    /// Whether it has sent connection IDs of another length, with which its records cannot be read.
    has_odd_ids: bool,
    /// Whether its caller ended it.
    aborted: bool,
    connected: bool,
    /// The number of handshakes after the first.
    renegotiated: usize,
    closed_by_peer: bool,
}

impl Watched {
    /// Observes `side` in this world.
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
            tls12: world.setting.tls12.map(|_| world.setting.tls12_protection()),
            early: 0,
            has_protected: false,
            alert: None,
            failed: None,
            has_odd_ids: false,
            aborted: false,
            connected: false,
            renegotiated: 0,
            closed_by_peer: false,
        }
    }

    /// Returns the connection for reading.
    pub(crate) const fn end(&self) -> &End {
        &self.end
    }

    /// Whether it has reported that it is connected.
    pub(crate) const fn is_connected(&self) -> bool {
        self.connected
    }

    /// Returns how many renegotiations it has completed.
    pub(crate) const fn renegotiations(&self) -> usize {
        self.renegotiated
    }

    /// Whether it has sent a protected record.
    pub(crate) const fn has_protected(&self) -> bool {
        self.has_protected
    }

    fn call<R>(&mut self, call: impl FnOnce(&mut End) -> R) -> R {
        let before = MEMORY.allocated() as isize;
        let result = call(&mut self.end);
        self.has_odd_ids |= self.end.has_odd_id();
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
            assert_eq!(result, Err(error), "a closed connection accepted input");
        }
        if let Err(error) = &result {
            assert_eq!(self.failed.as_ref(), Some(error), "a receive error is not permanent");
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
        assert!(may || result.is_err(), "data accepted at the wrong time");
        result
    }

    /// See [`End::expire`].
    pub(crate) fn expire(&mut self) {
        self.given += 4096;
        self.call(End::expire);
    }

    /// See [`End::change_ids`].
    pub(crate) fn change_ids(&mut self, how: u8) {
        self.given += 64;
        self.call(|end| end.change_ids(how));
    }

    /// See [`End::update_keys`].
    pub(crate) fn update_keys(&mut self, both: bool) {
        self.given += 64;
        let may = self.end.negotiated().is_some() && !self.end.has_closed();
        let result = self.call(|end| end.update_keys(both));
        assert!(may || result.is_err(), "a KeyUpdate accepted at the wrong time");
    }

    /// See [`End::renegotiate`].
    pub(crate) fn renegotiate(&mut self, now: Now) {
        self.given += 4096;
        let may = self.end.negotiated().is_some_and(|n| n.version == Some(ProtocolVersion::TLS1_2));
        let result = self.call(|end| end.renegotiate(now));
        assert!(may || result.is_err(), "a renegotiation accepted at the wrong time");
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
        assert!(self.end.error().is_some(), "no error after an abort");
    }

    /// See [`End::receive_end`].
    pub(crate) fn receive_end(&mut self) {
        let _ = self.call(End::receive_end);
    }

    /// See [`End::export`].
    pub(crate) fn export(&self) {
        let mut out = [0; 16];
        // A server that answers early data has keying material slightly earlier.
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

    /// Returns the questions and sessions among the events, and checks the other events.
    pub(crate) fn events(&mut self) -> Vec<Event> {
        let mut kept = Vec::new();
        while let Some(event) = self.call(End::poll_event) {
            match event {
                Event::Connected => {
                    assert!(!self.connected, "connected twice");
                    assert!(self.end.negotiated().is_some(), "connected without negotiated parameters");
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

    /// Returns the next bytes or datagram after checking its records.
    pub(crate) fn transmit(&mut self) -> Option<Vec<u8>> {
        let before = MEMORY.allocated() as isize;
        let packet = self.end.transmit(usize::MAX)?;
        // From here on, the caller owns the bytes.
        self.held += MEMORY.allocated() as isize - before - packet.capacity() as isize;
        self.transmitted += packet.len();
        // A flight of certificates in the smallest records, and answers in proportion to the input.
        assert!(
            self.transmitted <= 32 * 1024 + 10 * self.given,
            "{} bytes of output for {} of input",
            self.transmitted,
            self.given
        );
        let records = match &self.end {
            End::Tls(_) => self.output.push(&packet),
            End::Dtls(_) if self.has_odd_ids => Vec::new(),
            End::Dtls(_) => records_of(&packet, self.tls12),
        };
        records.iter().for_each(|record| self.judge(record));
        Some(packet)
    }

    /// An alert ends its direction (RFC 8446 §6), except for warnings (RFC 5246 §7.2.2).
    fn judge(&mut self, record: &Record) {
        self.has_protected |= record.protection.is_some();
        // Over datagrams, the peer of a closed connection may still need the handshake (RFC 9147 §5.10), in
        // DTLS 1.2 with its ChangeCipherSpec.
        let may_repeat = matches!(self.end, End::Dtls(_))
            && self.alert == Some(AlertDescription::CLOSE_NOTIFY)
            && [HANDSHAKE, CHANGE_CIPHER_SPEC].contains(&record.typ);
        assert!(may_repeat || self.alert.is_none(), "a record of type {} after {:?}", record.typ, self.alert);
        if record.typ == ALERT {
            let [level, description] = record.content[..] else { panic!("an alert of {:?}", record.content) };
            let description = AlertDescription(description);
            // A close_notify follows user_canceled (RFC 9846 §6.1).
            let is_warning = level == 1
                && [AlertDescription::NO_RENEGOTIATION, AlertDescription::USER_CANCELED]
                    .contains(&description);
            self.alert = Some(description).filter(|_| !is_warning);
        }
    }

    /// Checks the rules at the end, when all output is transmitted.
    pub(crate) fn finish(self) {
        assert!(self.output.is_whole(), "half a record was transmitted");
        let has_closed = self.alert == Some(AlertDescription::CLOSE_NOTIFY);
        match &self.failed {
            _ if self.has_odd_ids => {}
            None => assert!(self.alert.is_none() || has_closed, "{:?} without an error", self.alert),
            // The caller chose the alert.
            Some(_) if self.aborted => assert!(self.alert.is_some(), "aborted without an alert"),
            Some(_) if has_closed => {}
            Some(error) => {
                let alert = match error.alert() {
                    // Before TLS 1.3, this alert had another name (RFC 5246 §7.2.2).
                    Some(AlertDescription::CERTIFICATE_REQUIRED | AlertDescription::MISSING_EXTENSION)
                        if self.tls12.is_some()
                            && self.alert == Some(AlertDescription::HANDSHAKE_FAILURE) =>
                    {
                        self.alert
                    }
                    alert => alert,
                };
                assert_eq!(self.alert, alert, "the alert for {error:?}");
            }
        }
        assert!(!self.connected || self.end.negotiated().is_some(), "negotiated parameters are lost");
    }
}

/// Returns the answer that refuses.
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
