//! The sender joins messages into as few records as possible, and seals data directly into the output.

use alloc::vec::Vec;

use super::HEADER_LEN;
use crate::crypto::MAX_TAG_LEN;
use crate::error::Error;
use crate::record::protect::{self, RecordKey, Sequence};
use crate::schedule::keys::{RecordForm, TrafficKeys};
use crate::transport::Epoch;
use crate::wire::MAX_PLAINTEXT;
use crate::wire::{AlertDescription, AlertLevel, ContentType, ProtocolVersion};

/// The sender accepts application data only while the output has fewer bytes than this. The limit of a few
/// records keeps the output small on a slow transport.
const MAX_WAITING: usize = 64 * 1024;

pub(crate) struct Sender {
    key: Option<(RecordKey, Sequence)>,
    /// Handshake bytes for the current key that are not in a record yet.
    handshake: Vec<u8>,
    /// Finished records. The bytes from `sent` on still have to be transmitted.
    output: Vec<u8>,
    sent: usize,
    content_limit: usize,
    /// The limit that applies from the next key on.
    next_limit: Option<usize>,
    /// This side's own limit, which no peer can raise.
    content_cap: usize,
    /// The next record is the first ClientHello.
    first: bool,
    change_cipher_spec: CompatibilityRecord,
    epoch: Option<Epoch>,
    /// The end of the last KeyUpdate in `output`; zero after its transmission.
    key_update_end: usize,
    /// An alert has ended this direction: no record follows (RFC 8446 §6.1).
    closed: bool,
}

/// The state of the single ChangeCipherSpec of the compatibility mode (RFC 8446 §D.4).
#[derive(PartialEq, Eq)]
enum CompatibilityRecord {
    NotWanted,
    /// Written just before the next record, to share its packet.
    Next,
    Sent,
}

impl Sender {
    /// `client` says whether the first record is a ClientHello.
    pub(super) fn new(client: bool) -> Self {
        Self {
            key: None,
            handshake: Vec::new(),
            output: Vec::new(),
            sent: 0,
            content_limit: MAX_PLAINTEXT,
            next_limit: None,
            content_cap: MAX_PLAINTEXT,
            first: client,
            change_cipher_spec: CompatibilityRecord::NotWanted,
            epoch: None,
            key_update_end: 0,
            closed: false,
        }
    }

    pub(super) fn output(&self) -> &[u8] {
        self.output.get(self.sent..).unwrap_or_default()
    }

    pub(crate) fn transmitted(&mut self, n: usize) {
        self.sent = self.sent.saturating_add(n).min(self.output.len());
        if self.sent == self.output.len() {
            // An idle connection keeps no buffer.
            self.output = Vec::new();
        } else if self.sent >= MAX_WAITING {
            // An output that never becomes empty must still release the transmitted bytes.
            self.output.drain(..self.sent);
        } else {
            return;
        }
        self.key_update_end = self.key_update_end.saturating_sub(self.sent);
        self.sent = 0;
    }

    /// Whether the output has room for data and warnings.
    pub(super) fn has_room(&self) -> bool {
        self.output().len() < MAX_WAITING
    }

    pub(super) const fn has_unsent_key_update(&self) -> bool {
        self.key_update_end > self.sent
    }

    /// RFC 8449 §4: in a renegotiation, the previous handshake's limit applies as long as its keys.
    pub(super) fn limit(&mut self, content: usize) {
        let content = content.min(self.content_cap);
        match &self.key {
            Some((key, _)) if key.form() != RecordForm::Tls13 => self.next_limit = Some(content),
            _ => self.content_limit = content,
        }
    }

    pub(super) fn cap(&mut self, content: usize) {
        self.content_cap = content.min(MAX_PLAINTEXT);
        self.content_limit = self.content_limit.min(self.content_cap);
    }

    pub(super) fn set_key(&mut self, epoch: Epoch, keys: &TrafficKeys) -> Result<(), Error> {
        self.flush()?;
        if keys.form != RecordForm::Tls13 {
            // RFC 5246 §7.1: the ChangeCipherSpec itself still uses the previous keys.
            self.record(ContentType::CHANGE_CIPHER_SPEC, &[1])?;
        }
        // Another key of this epoch follows a KeyUpdate, which is now the last message in the output.
        if self.epoch == Some(Epoch::Application) {
            self.key_update_end = self.output.len();
        }
        self.epoch = Some(epoch);
        self.key = Some((RecordKey::new(keys)?, Sequence::default()));
        self.content_limit = self.next_limit.take().unwrap_or(self.content_limit);
        Ok(())
    }

    /// Sends further records in the clear. Sealed records in the output stay.
    pub(super) fn clear_key(&mut self) {
        self.key = None;
        self.epoch = None;
    }

    /// Whether this side should send a KeyUpdate before the next record. That is slightly before the key's
    /// limit, so that the KeyUpdate itself and an alert still fit.
    pub(crate) fn needs_key_update(&self, after: Option<u64>) -> bool {
        self.key.as_ref().is_some_and(|(key, sequence)| {
            let limit = key.confidentiality_limit().saturating_sub(16);
            sequence.used() >= after.map_or(limit, |a| a.min(limit))
        })
    }

    pub(super) fn handshake(&mut self, message: &[u8]) -> Result<(), Error> {
        self.handshake.extend_from_slice(message);
        Ok(())
    }

    /// Puts the queued messages into records. A record may hold several messages, and a message may span
    /// several records.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        let waiting = core::mem::take(&mut self.handshake);
        for content in waiting.chunks(self.content_limit) {
            self.record(ContentType::HANDSHAKE, content)?;
        }
        Ok(())
    }

    /// Sends all queued messages, and a ChangeCipherSpec that still waits.
    pub(super) fn end_of_flight(&mut self) -> Result<(), Error> {
        self.flush()?;
        self.write_change_cipher_spec();
        Ok(())
    }

    /// Schedules the compatibility record before the next record, unless it was already sent.
    pub(super) fn change_cipher_spec(&mut self) -> Result<(), Error> {
        self.flush()?;
        if self.change_cipher_spec == CompatibilityRecord::NotWanted {
            self.change_cipher_spec = CompatibilityRecord::Next;
        }
        Ok(())
    }

    /// Writes the compatibility record, which is never protected (RFC 8446 §5).
    fn write_change_cipher_spec(&mut self) {
        if self.change_cipher_spec == CompatibilityRecord::Next && !self.closed {
            self.change_cipher_spec = CompatibilityRecord::Sent;
            self.header(ContentType::CHANGE_CIPHER_SPEC, 1);
            self.output.push(1);
        }
    }

    /// Seals as much of `data` as the output has room for, and returns the number of bytes.
    pub(crate) fn application_data(&mut self, data: &[u8]) -> Result<usize, Error> {
        let mut taken = 0;
        for content in data.chunks(self.content_limit) {
            if !self.has_room() {
                break;
            }
            self.record(ContentType::APPLICATION_DATA, content)?;
            taken += content.len();
        }
        Ok(taken)
    }

    /// Sends an alert. It is the last record of this direction, unless it is only a warning.
    pub(super) fn alert(&mut self, level: AlertLevel, description: AlertDescription) -> Result<(), Error> {
        self.flush()?;
        let result = self.record(ContentType::ALERT, &[level.0, description.0]);
        self.closed |= level == AlertLevel::FATAL || description == AlertDescription::CLOSE_NOTIFY;
        result
    }

    fn header(&mut self, typ: ContentType, len: usize) {
        // RFC 8446 §5.1: an initial ClientHello may have 0x0301 for old servers; all other records have
        // 0x0303.
        let version = if self.first && typ == ContentType::HANDSHAKE {
            ProtocolVersion::TLS1_0
        } else {
            ProtocolVersion::TLS1_2
        };
        self.first = false;
        self.output.push(typ.0);
        self.output.extend_from_slice(&version.0.to_be_bytes());
        self.output.extend_from_slice(&(len as u16).to_be_bytes());
    }

    /// Writes one record. `content` must be within the limits.
    pub(super) fn record(&mut self, typ: ContentType, content: &[u8]) -> Result<(), Error> {
        if self.closed {
            return Ok(());
        }
        self.write_change_cipher_spec();
        let Some((key, sequence)) = &mut self.key else {
            self.output.reserve(HEADER_LEN + content.len());
            self.header(typ, content.len());
            self.output.extend_from_slice(content);
            return Ok(());
        };
        let tag_len = key.tag_len();
        let number = sequence.next()?;
        let has_inner_type = key.form() == RecordForm::Tls13;
        let nonce = key.explicit_nonce(number);
        let nonce: &[u8] = nonce.as_ref().map_or(&[], |nonce| nonce);
        let len = nonce.len() + content.len() + usize::from(has_inner_type) + tag_len;
        self.output.reserve(HEADER_LEN + len);
        let start = self.output.len();
        self.header(if has_inner_type { ContentType::APPLICATION_DATA } else { typ }, len);
        self.output.extend_from_slice(nonce);
        self.output.extend_from_slice(content);
        if has_inner_type {
            self.output.push(typ.0);
        }
        let version = ProtocolVersion::TLS1_2.0.to_be_bytes();
        let aad = protect::additional_data(number, [typ.0, version[0], version[1]], content.len());
        let mut tag = [0; MAX_TAG_LEN];
        let Some((key, _)) = &self.key else { return Ok(()) };
        let sealed = self
            .output
            .get_mut(start..)
            .and_then(|record| record.split_at_mut_checked(HEADER_LEN + nonce.len()))
            .ok_or(crate::crypto::CryptoError)
            .and_then(|(header, data)| {
                let aad = if has_inner_type { header } else { &aad[..] };
                key.seal(number, aad, data, &mut tag)
            });
        if let Err(e) = sealed {
            // Never transmit a partly sealed record.
            self.output.truncate(start);
            return Err(e.into());
        }
        self.output.extend_from_slice(tag.get(..tag_len).unwrap_or(&tag));
        Ok(())
    }
}
