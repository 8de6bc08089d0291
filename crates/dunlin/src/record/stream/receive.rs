//! Receiving: records are cut out of the stream, opened in place, and joined to messages.

use alloc::vec::Vec;
use core::ops::Range;

use super::HEADER_LEN;
use crate::crypto::MAX_TAG_LEN;
use crate::error::{Error, Malformed, PeerMisbehaved};
use crate::message::{self, Message};
use crate::protocol::Protocol;
use crate::record::protect::{RecordKey, Sequence};
use crate::schedule::keys::{RecordForm, TrafficKeys};
use crate::transport::{Epoch, Incoming};
use crate::wire::{AlertDescription, AlertLevel, ContentType, What};
use crate::wire::{MAX_CIPHERTEXT, MAX_PLAINTEXT};

/// Records that carry nothing (empty data, ChangeCipherSpec, KeyUpdate) in a row before they count as an attack.
const MAX_IDLE_RECORDS: u32 = 32;

/// Undecryptable early data that is skipped, in bytes of content and padding: as much as other servers let a client send,
/// and more than ours does ([`crate::early::MAX_EARLY_DATA`]).
const MAX_SKIPPED: usize = 16 * 1024;

/// In so many records: a client that sends a line at a time, or a keystroke, is within it.
const MAX_SKIPPED_RECORDS: u32 = 1024;

/// What a record of early data has beside its content, in bytes: type and tag. A client that writes little at a time has no
/// less room for it.
const OVERHEAD: usize = 1 + MAX_TAG_LEN;

#[derive(Default)]
pub(crate) struct Receiver {
    /// What was received from `start` on: records, the first of them perhaps half.
    input: Vec<u8>,
    start: usize,
    /// Application data of the record that is open, in `input`.
    data: Range<usize>,
    /// Handshake bytes that do not make a whole message yet.
    handshake: Vec<u8>,
    key: Option<(RecordKey, Sequence)>,
    epoch: Option<Epoch>,
    content_limit: Option<usize>,
    /// The limit that comes into use with the next key.
    next_limit: Option<usize>,
    handshake_complete: bool,
    /// Bytes of early data that may still be skipped; zero as soon as a record opens.
    skippable: usize,
    skippable_records: u32,
    /// Bytes of early data that may still come and be taken.
    early_left: usize,
    idle: u32,
    /// Whether a record of TLS 1.3 was opened: the peer has keys.
    opened: bool,
    /// Whether a message was received, or none need be.
    begun: bool,
    protocol: Protocol,
    /// The key that the next record, a ChangeCipherSpec of TLS 1.2, is to put into use.
    next_key: Option<RecordKey>,
    /// Whether a ChangeCipherSpec of the compatibility mode came.
    seen_dummy: bool,
}

impl Receiver {
    pub(super) fn new(begun: bool) -> Self {
        Self { begun, ..Self::default() }
    }

    /// How many more bytes are taken: one record at a time and its successor's beginning.
    pub(crate) fn room(&self) -> usize {
        (HEADER_LEN + MAX_CIPHERTEXT).saturating_sub(self.input.len() - self.start)
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        // Make room at the front, once there is something to gain and nothing to lose: data that is being read stays.
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

    /// The data of the open record. It is of the present epoch: no message is taken before it was read.
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

    /// Gives the buffer back when nothing is in it: an idle connection keeps none.
    fn release(&mut self) {
        if self.data.is_empty() && self.start == self.input.len() {
            self.input = Vec::new();
            self.start = 0;
            self.data = 0..0;
        }
    }

    /// RFC 8449 §4: in a renegotiation, the limits of the handshake before hold as long as its keys do.
    pub(super) fn limit(&mut self, content: usize) {
        match self.protocol.changes_cipher_spec() && self.key.is_some() {
            true => self.next_limit = Some(content),
            false => self.content_limit = Some(content),
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
        match self.seen_dummy && protocol.changes_cipher_spec() {
            // RFC 5246 §7.1: it is sent after the keys were agreed, and nowhere else.
            true => Err(PeerMisbehaved::UnexpectedRecord(What::EarlyChangeCipherSpec).into()),
            false => Ok(()),
        }
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

    /// The ChangeCipherSpec of TLS 1.2 has its one place: where the handshake has agreed on keys. Anywhere else it would
    /// put keys into use that somebody else could have chosen.
    fn change_cipher_spec(&mut self) -> Result<(), Error> {
        let key = self.next_key.take().ok_or(PeerMisbehaved::UnexpectedRecord(What::ChangeCipherSpec))?;
        self.use_key(key, Epoch::Handshake);
        self.content_limit = self.next_limit.take().or(self.content_limit);
        Ok(())
    }

    /// An error if a message is half received.
    pub(super) fn between_messages(&self) -> Result<(), Error> {
        match self.handshake.is_empty() {
            true => Ok(()),
            false => Err(PeerMisbehaved::ExcessHandshakeData.into()),
        }
    }

    /// The next message or alert; `None` until more is received, or while application data waits to be read.
    pub(super) fn next(&mut self) -> Result<Option<Incoming>, Error> {
        loop {
            if let Some(message) = self.take_message()? {
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

    /// A whole message at the front of what was joined.
    fn take_message(&mut self) -> Result<Option<Message>, Error> {
        let Some((typ, len)) = message::announced(&self.handshake)? else { return Ok(None) };
        if self.handshake.len() < len {
            return Ok(None);
        }
        let rest = self.handshake.split_off(len);
        let message = core::mem::replace(&mut self.handshake, rest);
        self.begun = true;
        if self.key.is_none() {
            // RFC 8446 §4.2.10: after a retry, early data is skipped up to the second ClientHello.
            self.skippable = 0;
        }
        Ok(Some(Message::new(typ, message)))
    }

    /// Cuts out and opens the next record.
    fn record(&mut self) -> Result<Option<(ContentType, Range<usize>)>, Error> {
        loop {
            let waiting = self.input.get_mut(self.start..).unwrap_or_default();
            let Some([typ, major, _, a, b]) = waiting.first_chunk::<HEADER_LEN>() else { return Ok(None) };
            let (typ, len) = (ContentType(*typ), usize::from(u16::from_be_bytes([*a, *b])));
            // RFC 8446 §5.1 has the version ignored; but what does not even begin with 3 is not TLS at all.
            if *major != 3 || typ.name().is_none() || typ == ContentType::ACK {
                return Err(PeerMisbehaved::UnexpectedRecord(What::NotTls).into());
            }
            let protected = self.key.is_some()
                && (typ == ContentType::APPLICATION_DATA || self.protocol.changes_cipher_spec());
            // RFC 8446 §5.1, §5.2: longer records are refused before they are received.
            let early = self.skippable > 0 && typ == ContentType::APPLICATION_DATA;
            if len > if protected || early { MAX_CIPHERTEXT } else { MAX_PLAINTEXT } {
                return Err(PeerMisbehaved::RecordOverflow.into());
            }
            let Some(record) = waiting.get_mut(..HEADER_LEN + len) else { return Ok(None) };
            let body = self.start + HEADER_LEN..self.start + HEADER_LEN + len;
            let start = self.start;
            self.start = body.end;
            if !protected {
                // What interrupts a message is refused below.
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
                let opened = key.open_tls12(number, *header, data);
                let Ok(content) = opened else {
                    // RFC 4279 §2: who has another pre-shared key has other keys, and hears decrypt_error.
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

    /// Whether a record is passed over as early data that was not wanted (RFC 8446 §4.2.10).
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

    /// A record that was not protected, where that is possible.
    fn plain(&mut self, typ: ContentType, body: Range<usize>) -> Result<(ContentType, Range<usize>), Error> {
        let content = self.input.get(body.clone()).unwrap_or_default();
        let allowed = match typ {
            // RFC 8446 §5: exactly one byte 1, and only during the handshake.
            ContentType::CHANGE_CIPHER_SPEC => {
                content == [1]
                    && (self.protocol.changes_cipher_spec() || self.begun && !self.handshake_complete)
            }
            // A peer that failed before it had keys can only say so in the clear.
            ContentType::ALERT => !self.opened && self.epoch != Some(Epoch::Application),
            ContentType::APPLICATION_DATA => false,
            _ => self.key.is_none(),
        };
        if !allowed {
            return Err(PeerMisbehaved::UnexpectedRecord(What::Record(typ)).into());
        }
        Ok((typ, body))
    }

    /// `TLSInnerPlaintext`: content, type, zeros (RFC 8446 §5.2, §5.4).
    fn inner(&mut self, start: usize, len: usize) -> Result<(ContentType, Range<usize>), Error> {
        let inner = self.input.get(start..start + len).unwrap_or_default();
        // Early data was sent before the client could know of the limit (RFC 8449 §4).
        let limit = self.content_limit.filter(|_| self.epoch != Some(Epoch::Early)).unwrap_or(MAX_PLAINTEXT);
        if inner.len() > limit + 1 {
            return Err(PeerMisbehaved::RecordOverflow.into());
        }
        // RFC 8446 §5.4: no non-zero byte at all: unexpected_message.
        let Some(at) = inner.iter().rposition(|b| *b != 0) else {
            return Err(PeerMisbehaved::UnexpectedRecord(What::Zeros).into());
        };
        let typ = ContentType(inner.get(at).copied().unwrap_or_default());
        // RFC 8446 §5: a protected ChangeCipherSpec is refused, whatever is in it.
        if typ == ContentType::CHANGE_CIPHER_SPEC {
            return Err(PeerMisbehaved::UnexpectedRecord(What::ProtectedChangeCipherSpec).into());
        }
        Ok((typ, start..start + at))
    }

    fn dispatch(&mut self, record: (ContentType, Range<usize>)) -> Result<Option<Incoming>, Error> {
        let (typ, range) = record;
        let content = self.input.get(range.clone()).unwrap_or_default();
        // RFC 8446 §5.1: no other type between the records of one message, not even the compatibility record, which is
        // dropped everywhere else. RFC 5246 §6.2.1 lets types interleave, so a peer of TLS 1.2 might write data between the
        // fragments of a renegotiation's message. It is refused all the same: peers write a message as a whole, and data
        // would hide excess bytes after Finished, which BoringSSL refuses, too.
        if typ != ContentType::HANDSHAKE && !self.handshake.is_empty() {
            return Err(PeerMisbehaved::UnexpectedRecord(What::InsideMessage).into());
        }
        match typ {
            ContentType::HANDSHAKE if self.next_key.is_some() => {
                Err(PeerMisbehaved::UnexpectedRecord(What::BeforeChangeCipherSpec).into())
            }
            ContentType::HANDSHAKE => {
                // RFC 8446 §5.1: "Implementations MUST NOT send zero-length fragments of Handshake types".
                if content.is_empty() {
                    return Err(PeerMisbehaved::EmptyRecord.into());
                }
                self.handshake.extend_from_slice(content);
                // The length is judged before the rest is received.
                message::announced(&self.handshake)?;
                self.release();
                Ok(None)
            }
            ContentType::ALERT => {
                // RFC 8446 §5.4: an empty alert record is unexpected_message; RFC 5246 §6.2.1 forbids to send one.
                if content.is_empty() {
                    return Err(PeerMisbehaved::EmptyRecord.into());
                }
                // RFC 8446 §5.1: an alert is one record of two bytes.
                let [level, description] = content else { return Err(Malformed::Length(What::Alert).into()) };
                Ok(Some(Incoming::Alert(AlertLevel(*level), AlertDescription(*description))))
            }
            ContentType::CHANGE_CIPHER_SPEC if self.protocol.changes_cipher_spec() => {
                if content != [1] {
                    return Err(Malformed::Value(What::ChangeCipherSpec).into());
                }
                self.change_cipher_spec()?;
                Ok(None)
            }
            ContentType::CHANGE_CIPHER_SPEC => {
                self.seen_dummy = true;
                self.count_idle(What::ChangeCipherSpecs)?;
                Ok(None)
            }
            ContentType::APPLICATION_DATA if self.epoch.is_some_and(|e| e != Epoch::Handshake) => {
                if self.epoch == Some(Epoch::Early) {
                    // RFC 8446 §4.2.10: more than max_early_data_size: unexpected_message.
                    let left = self.early_left.checked_sub(content.len());
                    self.early_left = left.ok_or(PeerMisbehaved::TooMuchEarlyData)?;
                }
                if content.is_empty() {
                    self.count_idle(What::EmptyRecords)?;
                } else {
                    self.idle = 0;
                    self.data = range;
                }
                Ok(None)
            }
            _ => Err(PeerMisbehaved::UnexpectedRecord(What::Record(typ)).into()),
        }
    }

    fn count_idle(&mut self, what: What) -> Result<(), Error> {
        self.idle += 1;
        if self.idle > MAX_IDLE_RECORDS { Err(PeerMisbehaved::Flood(what).into()) } else { Ok(()) }
    }
}
