//! The receiver cuts records out of the stream, opens them in place, and joins their content to messages.

use alloc::vec::Vec;
use core::ops::Range;

use super::HEADER_LEN;
use crate::crypto::MAX_TAG_LEN;
use crate::error::{Error, Malformed, PeerMisbehaved};
use crate::message::{self, Message, Reading};
use crate::protocol::Protocol;
use crate::record::protect::{self, RecordKey, Sequence};
use crate::schedule::keys::{RecordForm, TrafficKeys};
use crate::transport::{Epoch, Incoming, Reads};
use crate::wire::{AlertDescription, AlertLevel, ContentType, Field};
use crate::wire::{MAX_CIPHERTEXT, MAX_PLAINTEXT};

/// The most consecutive records without effect (empty data, ChangeCipherSpec). More count as an attack.
const MAX_IDLE_RECORDS: u32 = 32;

/// The most undecryptable early data that a server skips, in bytes of content and padding. Other servers let
/// a client send this much; this engine's allow less ([`crate::early::MAX_EARLY_DATA`]).
const MAX_SKIPPED: usize = 16 * 1024;

/// The most records of early data that a server skips: enough for a client that sends every line or keystroke
/// separately.
const MAX_SKIPPED_RECORDS: u32 = 1024;

/// The type and tag of a record of early data, in bytes. They do not count against the limit, so that small
/// writes do not reduce the room for content.
const OVERHEAD: usize = 1 + MAX_TAG_LEN;

#[derive(Default)]
pub(crate) struct Receiver {
    /// Received records, from `start` on. The last one may be incomplete.
    input: Vec<u8>,
    start: usize,
    /// The range in `input` of the open record's unread application data.
    data: Range<usize>,
    /// Handshake bytes that are not a whole message yet.
    handshake: Vec<u8>,
    key: Option<(RecordKey, Sequence)>,
    epoch: Option<Epoch>,
    content_limit: Option<usize>,
    /// The limit that applies from the next key on.
    next_limit: Option<usize>,
    handshake_complete: bool,
    /// Bytes of early data that the receiver may still skip; zero as soon as a record opens.
    skippable: usize,
    skippable_records: u32,
    /// Bytes of early data that the client may still send.
    early_left: usize,
    idle: u32,
    /// Whether a TLS 1.3 record has opened, which shows that the peer has keys.
    opened: bool,
    /// Whether the peer may send a dummy ChangeCipherSpec: it has sent a message, or need not send one first.
    begun: bool,
    protocol: Protocol,
    /// The key that the next record, a TLS 1.2 ChangeCipherSpec, must activate.
    next_key: Option<RecordKey>,
    /// Whether the peer has sent a ChangeCipherSpec of the compatibility mode.
    seen_dummy: bool,
}

impl Receiver {
    pub(super) fn new(begun: bool) -> Self {
        Self { begun, ..Self::default() }
    }

    /// The number of bytes that the receiver still accepts: it holds one record and the beginning of the
    /// next.
    pub(crate) fn room(&self) -> usize {
        (HEADER_LEN + MAX_CIPHERTEXT).saturating_sub(self.input.len() - self.start)
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        // Release processed bytes at the front, unless the application is still reading data from the buffer.
        if self.data.is_empty() && self.start > 0 {
            self.input.drain(..self.start);
            self.start = 0;
            self.data = 0..0;
        }
        self.input.extend_from_slice(bytes);
    }

    pub(super) fn application_data(&self) -> &[u8] {
        if self.epoch == Some(Epoch::Application) { self.data() } else { &[] }
    }

    pub(super) fn early_data(&self) -> &[u8] {
        if self.epoch == Some(Epoch::Early) { self.data() } else { &[] }
    }

    /// The data of the open record. It belongs to the current epoch, because the receiver takes no message
    /// before the application has read it.
    fn data(&self) -> &[u8] {
        self.input.get(self.data.clone()).unwrap_or_default()
    }

    pub(crate) fn consume(&mut self, n: usize) {
        self.data.start = self.data.start.saturating_add(n).min(self.data.end);
        self.release();
    }

    pub(super) fn discard(&mut self) {
        self.start = self.input.len();
        self.release();
    }

    /// Frees an empty buffer, so that an idle connection keeps none.
    fn release(&mut self) {
        if self.data.is_empty() && self.start == self.input.len() {
            self.input = Vec::new();
            self.start = 0;
            self.data = 0..0;
        }
    }

    /// RFC 8449 §4: in a renegotiation, the previous handshake's limit applies as long as its keys.
    pub(super) fn limit(&mut self, content: usize) {
        if self.protocol.changes_cipher_spec() && self.key.is_some() {
            self.next_limit = Some(content);
        } else {
            self.content_limit = Some(content);
        }
    }

    pub(super) fn skip_early_data(&mut self) {
        self.skippable = MAX_SKIPPED;
        self.skippable_records = MAX_SKIPPED_RECORDS;
    }

    pub(super) fn limit_early_data(&mut self, content: u32) {
        self.early_left = usize::try_from(content).unwrap_or(usize::MAX);
    }

    pub(super) fn handshake_complete(&mut self) {
        self.handshake_complete = true;
        self.idle = 0;
        if self.protocol.changes_cipher_spec() {
            self.epoch = Some(Epoch::Application);
        }
    }

    pub(super) const fn protocol(&self) -> Protocol {
        self.protocol
    }

    pub(super) fn agree(&mut self, protocol: Protocol) -> Result<(), Error> {
        self.protocol = protocol;
        if self.seen_dummy && protocol.changes_cipher_spec() {
            // RFC 5246 §7.1: a TLS 1.2 peer sends ChangeCipherSpec only after both sides have negotiated
            // keys.
            return Err(PeerMisbehaved::UnexpectedRecord(Field::EarlyChangeCipherSpec).into());
        }
        Ok(())
    }

    pub(super) fn set_key(&mut self, epoch: Epoch, keys: &TrafficKeys) -> Result<(), Error> {
        // RFC 8446 §5.1: "Handshake messages MUST NOT span key changes".
        if !self.handshake.is_empty() {
            return Err(PeerMisbehaved::NotAlignedAtKeyChange.into());
        }
        let key = RecordKey::new(keys)?;
        if keys.form == RecordForm::Tls13 {
            self.use_key(key, epoch);
        } else {
            self.next_key = Some(key);
        }
        Ok(())
    }

    fn use_key(&mut self, key: RecordKey, epoch: Epoch) {
        self.key = Some((key, Sequence::default()));
        self.epoch = Some(epoch);
    }

    /// A TLS 1.2 ChangeCipherSpec is allowed only where the handshake has negotiated keys. Anywhere else it
    /// would activate keys that an attacker may know.
    fn change_cipher_spec(&mut self) -> Result<(), Error> {
        let key = self.next_key.take().ok_or(PeerMisbehaved::UnexpectedRecord(Field::ChangeCipherSpec))?;
        self.use_key(key, Epoch::Handshake);
        self.content_limit = self.next_limit.take().or(self.content_limit);
        Ok(())
    }

    /// Returns an error if a message is half received.
    pub(super) fn between_messages(&self) -> Result<(), Error> {
        if self.handshake.is_empty() { Ok(()) } else { Err(PeerMisbehaved::ExcessHandshakeData.into()) }
    }

    /// The next message or alert; `None` if the receiver needs more input, or the application must read data
    /// first.
    pub(super) fn next(&mut self, reads: &dyn Reads) -> Result<Option<Incoming>, Error> {
        loop {
            if let Some(message) = self.take_message(reads)? {
                return Ok(Some(Incoming::Message(message)));
            }
            if !self.data.is_empty() {
                return Ok(None);
            }
            let Some(record) = self.record()? else { return Ok(None) };
            if let Some(incoming) = self.dispatch(record)? {
                return Ok(Some(incoming));
            }
        }
    }

    /// Takes a whole message from the joined handshake bytes; `None` if it is incomplete.
    fn take_message(&mut self, reads: &dyn Reads) -> Result<Option<Message>, Error> {
        let Some((typ, len)) = message::announced(&self.handshake)? else { return Ok(None) };
        // The rest of the message would only be refused.
        if self.handshake_complete && reads.reading(self.protocol, typ) == Reading::Nothing {
            return Err(message::unexpected_after_handshake(typ));
        }
        if self.handshake.len() < len {
            return Ok(None);
        }
        let rest = self.handshake.split_off(len);
        let message = core::mem::replace(&mut self.handshake, rest);
        self.begun = true;
        if self.key.is_none() {
            // RFC 8446 §4.2.10: after a HelloRetryRequest, the server skips early data up to the second
            // ClientHello.
            self.skippable = 0;
        }
        Ok(Some(Message::new(typ, message)))
    }

    /// Cuts out and opens the next record.
    fn record(&mut self) -> Result<Option<(ContentType, Range<usize>)>, Error> {
        loop {
            let waiting = self.input.get_mut(self.start..).unwrap_or_default();
            let Some([typ, major, _, a, b]) = waiting.first_chunk::<HEADER_LEN>() else { return Ok(None) };
            let typ = ContentType(*typ);
            let len = usize::from(u16::from_be_bytes([*a, *b]));
            // RFC 8446 §5.1: the receiver ignores the version. But a major version other than 3 is not TLS at
            // all.
            if *major != 3 || !typ.is_of_streams() {
                return Err(PeerMisbehaved::UnexpectedRecord(Field::NotTls).into());
            }
            let protected = self.key.is_some()
                && (typ == ContentType::APPLICATION_DATA || self.protocol.changes_cipher_spec());
            // RFC 8446 §5.1, §5.2: reject a longer record before receiving it.
            let early = self.skippable > 0 && typ == ContentType::APPLICATION_DATA;
            if len > if protected || early { MAX_CIPHERTEXT } else { MAX_PLAINTEXT } {
                return Err(PeerMisbehaved::RecordOverflow.into());
            }
            let Some(record) = waiting.get_mut(..HEADER_LEN + len) else { return Ok(None) };
            let body = self.start + HEADER_LEN..self.start + HEADER_LEN + len;
            let start = self.start;
            self.start = body.end;
            if !protected {
                // `dispatch` rejects a record that interrupts a message.
                let between = self.handshake.is_empty();
                if typ == ContentType::APPLICATION_DATA && between && self.skip(len)? {
                    continue;
                }
                return self.plain(typ, body).map(Some);
            }
            let Some((key, sequence)) = &mut self.key else { return Ok(None) };
            let (header, data) = record.split_at_mut(HEADER_LEN);
            if let (RecordForm::Tls12 { proves_psk, .. }, Some(header)) = (key.form(), header.first_chunk()) {
                let number = sequence.used();
                let aad = |len| Ok(protect::additional_data(number, *header, len));
                let opened = key.open_tls12(number, aad, data);
                let Ok(content) = opened else {
                    // RFC 4279 §2: a peer with another PSK has other keys, and gets decrypt_error.
                    let other_psk = proves_psk && number == 0;
                    let e =
                        if other_psk { PeerMisbehaved::BadFinished } else { PeerMisbehaved::BadRecordMac };
                    return Err(e.into());
                };
                sequence.next()?;
                if content.len() > self.content_limit.unwrap_or(MAX_PLAINTEXT) {
                    return Err(PeerMisbehaved::RecordOverflow.into());
                }
                let at = start + HEADER_LEN;
                return Ok(Some((typ, at + content.start..at + content.end)));
            }
            match key.open(sequence.used(), header, data) {
                Ok(len) => {
                    sequence.next()?;
                    self.skippable = 0;
                    self.opened = true;
                    return self.inner(start + HEADER_LEN, len).map(Some);
                }
                Err(_) if self.skip(len)? => {}
                Err(_) => return Err(PeerMisbehaved::BadRecordMac.into()),
            }
        }
    }

    /// Whether to skip a record as refused early data (RFC 8446 §4.2.10).
    fn skip(&mut self, len: usize) -> Result<bool, Error> {
        if self.skippable == 0 || len == 0 {
            return Ok(false);
        }
        let bytes = self.skippable.checked_sub(len.saturating_sub(OVERHEAD));
        let records = self.skippable_records.checked_sub(1);
        let (Some(bytes), Some(records)) = (bytes, records) else {
            return Err(PeerMisbehaved::TooMuchSkippedEarlyData.into());
        };
        (self.skippable, self.skippable_records) = (bytes, records);
        Ok(true)
    }

    /// Checks that an unprotected record is allowed now.
    fn plain(&mut self, typ: ContentType, body: Range<usize>) -> Result<(ContentType, Range<usize>), Error> {
        let content = self.input.get(body.clone()).unwrap_or_default();
        let allowed = match typ {
            // RFC 8446 §5: its content is a single byte with the value 1, and it is allowed only during the
            // handshake.
            ContentType::CHANGE_CIPHER_SPEC => {
                content == [1]
                    && (self.protocol.changes_cipher_spec() || self.begun && !self.handshake_complete)
            }
            // A peer that fails before it has keys can only send its alert in the clear.
            ContentType::ALERT => !self.opened && self.epoch != Some(Epoch::Application),
            ContentType::APPLICATION_DATA => false,
            _ => self.key.is_none(),
        };
        if !allowed {
            return Err(PeerMisbehaved::UnexpectedRecord(Field::Record(typ)).into());
        }
        Ok((typ, body))
    }

    /// Reads `TLSInnerPlaintext`: content, type, zeros (RFC 8446 §5.2, §5.4).
    fn inner(&mut self, start: usize, len: usize) -> Result<(ContentType, Range<usize>), Error> {
        let inner = self.input.get(start..start + len).unwrap_or_default();
        // RFC 8449 §4: the client sent early data before it could know the limit.
        let limit = self.content_limit.filter(|_| self.epoch != Some(Epoch::Early)).unwrap_or(MAX_PLAINTEXT);
        if inner.len() > limit + 1 {
            return Err(PeerMisbehaved::RecordOverflow.into());
        }
        // RFC 8446 §5.4: a record without a non-zero byte is unexpected_message.
        let Some(at) = inner.iter().rposition(|b| *b != 0) else {
            return Err(PeerMisbehaved::UnexpectedRecord(Field::Zeros).into());
        };
        let typ = ContentType(inner.get(at).copied().unwrap_or_default());
        // RFC 8446 §5: a protected ChangeCipherSpec is unexpected_message, whatever its content.
        if typ == ContentType::CHANGE_CIPHER_SPEC {
            return Err(PeerMisbehaved::UnexpectedRecord(Field::ProtectedChangeCipherSpec).into());
        }
        Ok((typ, start..start + at))
    }

    fn dispatch(&mut self, record: (ContentType, Range<usize>)) -> Result<Option<Incoming>, Error> {
        let (typ, range) = record;
        let content = self.input.get(range.clone()).unwrap_or_default();
        // RFC 8446 §5.1: no record of another type may interrupt a message, not even the compatibility
        // record, which the receiver otherwise drops. RFC 5246 §6.2.1 lets a TLS 1.2 peer interleave data
        // with a renegotiation's message. This engine rejects it all the same, as BoringSSL does: real peers
        // write a message as a whole, and interleaved data would hide excess bytes after Finished.
        if typ != ContentType::HANDSHAKE && !self.handshake.is_empty() {
            return Err(PeerMisbehaved::UnexpectedRecord(Field::InsideMessage).into());
        }
        match typ {
            ContentType::HANDSHAKE if self.next_key.is_some() => {
                Err(PeerMisbehaved::UnexpectedRecord(Field::BeforeChangeCipherSpec).into())
            }
            ContentType::HANDSHAKE => {
                // RFC 8446 §5.1: "Implementations MUST NOT send zero-length fragments of Handshake types".
                if content.is_empty() {
                    return Err(PeerMisbehaved::EmptyRecord.into());
                }
                self.handshake.extend_from_slice(content);
                // Check the announced length before receiving the rest.
                message::announced(&self.handshake)?;
                self.release();
                Ok(None)
            }
            ContentType::ALERT => {
                // RFC 8446 §5.4: an empty alert record is unexpected_message; RFC 5246 §6.2.1 forbids to send
                // one.
                if content.is_empty() {
                    return Err(PeerMisbehaved::EmptyRecord.into());
                }
                // RFC 8446 §5.1: an alert is one record of two bytes.
                let [level, description] = content else {
                    return Err(Malformed::Length(Field::Alert).into());
                };
                Ok(Some(Incoming::Alert(AlertLevel(*level), AlertDescription(*description))))
            }
            ContentType::CHANGE_CIPHER_SPEC if self.protocol.changes_cipher_spec() => {
                if content != [1] {
                    return Err(Malformed::Value(Field::ChangeCipherSpec).into());
                }
                self.change_cipher_spec()?;
                Ok(None)
            }
            ContentType::CHANGE_CIPHER_SPEC => {
                self.seen_dummy = true;
                self.count_idle(Field::ChangeCipherSpecs)?;
                Ok(None)
            }
            ContentType::APPLICATION_DATA if self.epoch.is_some_and(|e| e != Epoch::Handshake) => {
                if self.epoch == Some(Epoch::Early) {
                    // RFC 8446 §4.2.10: more than max_early_data_size is unexpected_message.
                    let left = self.early_left.checked_sub(content.len());
                    self.early_left = left.ok_or(PeerMisbehaved::TooMuchEarlyData)?;
                }
                if content.is_empty() {
                    self.count_idle(Field::EmptyRecords)?;
                } else {
                    self.idle = 0;
                    self.data = range;
                }
                Ok(None)
            }
            _ => Err(PeerMisbehaved::UnexpectedRecord(Field::Record(typ)).into()),
        }
    }

    fn count_idle(&mut self, what: Field) -> Result<(), Error> {
        self.idle += 1;
        if self.idle > MAX_IDLE_RECORDS { Err(PeerMisbehaved::Flood(what).into()) } else { Ok(()) }
    }
}
