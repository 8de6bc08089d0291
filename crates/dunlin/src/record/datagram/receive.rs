//! The receiver cuts datagrams into records, opens them with the keys of their epoch, and dispatches their content.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::ciphertext::{self, EpochKey};
use super::replay::ReplayWindow;
use super::{Discarded, EARLY_EPOCH, HANDSHAKE_EPOCH, header13, plaintext};
use crate::error::{Error, Malformed, PeerMisbehaved};
use crate::flight::reassemble::{Reassembler, Taken};
use crate::flight::{RecordNumber, ack};
use crate::message::Message;
use crate::schedule::keys::TrafficKeys;
use crate::transport::Epoch;
use crate::wire::{AlertDescription, AlertLevel, ContentType, What};
use crate::wire::{MAX_CIPHERTEXT, MAX_PLAINTEXT};

/// The most unopened records, in bytes, enough for a large flight. They wait while a question is open. The peer
/// retransmits what exceeds the limit.
const MAX_WAITING: usize = 64 * 1024;
/// The most unread application data, in bytes. As in a UDP socket, further data is lost.
const MAX_UNREAD: usize = 64 * 1024;
/// The most unread records of application data.
const MAX_UNREAD_RECORDS: usize = 256;
/// The most records to acknowledge: a long flight in the smallest datagrams. The receiver acknowledges others when the peer
/// retransmits them.
const MAX_ACKNOWLEDGED: usize = 256;

/// The keys of one epoch of the peer's records.
struct ReadEpoch {
    number: u64,
    key: EpochKey,
    window: ReplayWindow,
    /// The number of records that did not open (RFC 9147 §4.5.3).
    forged: u64,
}

/// The content of a record, except messages and data, which the receiver keeps.
pub(super) enum Received {
    Alert(AlertLevel, AlertDescription),
    /// An ACK of this side's records, received in this epoch.
    Ack(u64, Vec<RecordNumber>),
    /// An unprotected copy of the end of the latest delivered message.
    Repeated,
    Nothing,
}

pub(crate) struct Receiver {
    /// Records that the receiver has not opened yet.
    records: VecDeque<Vec<u8>>,
    waiting: usize,
    /// The previous and the current epoch. The receiver keeps the previous one, because the ACK of a KeyUpdate may get lost
    /// and records may arrive late (RFC 9147 §8).
    epochs: Vec<ReadEpoch>,
    messages: Reassembler,
    /// Records with handshake messages since this side's last flight, which acknowledged all earlier ones.
    to_acknowledge: Vec<RecordNumber>,
    data: VecDeque<Vec<u8>>,
    unread: usize,
    content_limit: usize,
    /// The record with the peer's close_notify.
    closed_by: Option<RecordNumber>,
    is_authentic: bool,
    pub(super) discarded: Discarded,
}

impl Default for Receiver {
    fn default() -> Self {
        Self {
            records: VecDeque::new(),
            waiting: 0,
            epochs: Vec::new(),
            messages: Reassembler::default(),
            to_acknowledge: Vec::new(),
            data: VecDeque::new(),
            unread: 0,
            content_limit: MAX_PLAINTEXT,
            closed_by: None,
            is_authentic: false,
            discarded: Discarded::default(),
        }
    }
}

impl Receiver {
    /// Cuts a datagram into records. Bytes that are not a record are discarded with the rest of the datagram
    /// (RFC 9147 §4.1, §4.5.2).
    pub(crate) fn push(&mut self, datagram: &[u8]) {
        let mut rest = datagram;
        while !rest.is_empty() {
            let Some((record, others)) = record_len(rest).and_then(|len| rest.split_at_checked(len)) else {
                self.discarded.malformed += 1;
                return;
            };
            rest = others;
            if self.waiting + record.len() > MAX_WAITING {
                self.discarded.overflow += 1;
                continue;
            }
            self.waiting += record.len();
            self.records.push_back(record.to_vec());
        }
    }

    pub(super) fn discard_input(&mut self) {
        self.records = VecDeque::new();
        self.waiting = 0;
    }

    /// The data of the next record.
    pub(crate) fn read(&mut self) -> Option<Vec<u8>> {
        let data = self.data.pop_front()?;
        self.unread -= data.len();
        Some(data)
    }

    pub(super) const fn limit(&mut self, content: usize) {
        self.content_limit = content;
    }

    pub(super) fn set_key(&mut self, epoch: Epoch, keys: &TrafficKeys) -> Result<(), Error> {
        let present = self.present();
        if present == 0 {
            // An attacker may have sent parts of further messages in the clear.
            self.messages.clear();
        } else if !self.messages.is_empty() {
            return Err(PeerMisbehaved::NotAlignedAtKeyChange.into());
        }
        let number = match epoch {
            Epoch::Early => EARLY_EPOCH,
            Epoch::Handshake => HANDSHAKE_EPOCH,
            Epoch::Application => present + 1,
        };
        if self.epochs.len() > 1 {
            self.epochs.remove(0);
        }
        let key = EpochKey::new(keys)?;
        self.epochs.push(ReadEpoch { number, key, window: ReplayWindow::default(), forged: 0 });
        Ok(())
    }

    /// The number of the current epoch.
    fn present(&self) -> u64 {
        self.epochs.last().map_or(0, |epoch| epoch.number)
    }

    pub(super) fn next_message(&mut self) -> Option<Message> {
        self.messages.next_message()
    }

    /// Whether a record with messages waits for its ACK.
    pub(super) const fn owes_ack(&self) -> bool {
        !self.to_acknowledge.is_empty()
    }

    /// Whether the peer has sent an authentic record, so it has received a flight of this side.
    pub(super) const fn is_authentic(&self) -> bool {
        self.is_authentic
    }

    /// The numbers of the records to acknowledge, in increasing order (RFC 9147 §7).
    pub(super) fn owed_acks(&mut self) -> &[RecordNumber] {
        self.to_acknowledge.sort_unstable();
        &self.to_acknowledge
    }

    /// Takes these numbers out.
    pub(super) fn take_to_acknowledge(&mut self) -> Vec<RecordNumber> {
        self.owed_acks();
        core::mem::take(&mut self.to_acknowledge)
    }

    /// The content of the next record; `None` if there are no more records.
    pub(super) fn next_record(&mut self) -> Result<Option<Received>, Error> {
        let Some(record) = self.records.pop_front() else { return Ok(None) };
        self.waiting -= record.len();
        let received = match plaintext::Header::read(&record) {
            Some(header) if plaintext::Header::begins_with(header.typ.0) => self.plain(&header, &record)?,
            _ => match self.open(record)? {
                Some((number, typ, content)) => self.dispatch(number, typ, content)?,
                None => Received::Nothing,
            },
        };
        Ok(Some(received))
    }

    /// Takes hellos from an unprotected record. Once this side has keys for the peer's records, it only notices repeated hellos,
    /// and ignores even these after the first authentic record. It always ignores unprotected alerts and ACKs, because an
    /// attacker could end or delay the handshake with them.
    fn plain(&mut self, header: &plaintext::Header, record: &[u8]) -> Result<Received, Error> {
        let content = record.get(plaintext::HEADER_LEN..).unwrap_or_default();
        let is_present = self.present() == 0;
        if header.epoch != 0 || header.typ != ContentType::HANDSHAKE || self.is_authentic {
            self.discarded.misplaced += 1;
        } else if self.messages.insert(content, is_present).is_err() {
            match is_present {
                true => self.discarded.malformed += 1,
                false => self.discarded.misplaced += 1,
            }
        } else if self.messages.take_repeated() {
            return Ok(Received::Repeated);
        }
        Ok(Received::Nothing)
    }

    /// Opens a protected record; `None` if the receiver discards it.
    fn open(&mut self, mut record: Vec<u8>) -> Result<Option<(RecordNumber, ContentType, Vec<u8>)>, Error> {
        let Some(header) = header13::Header::read(&record) else {
            self.discarded.malformed += 1;
            return Ok(None);
        };
        // RFC 9147 §4.2.2: the most recent epoch with these bits.
        let Some(epoch) = self.epochs.iter_mut().rfind(|epoch| header.is_of(epoch.number)) else {
            self.discarded.no_keys += 1;
            return Ok(None);
        };
        let Ok((sequence, inner)) = epoch.key.open(epoch.window.expected(), &header, &mut record) else {
            self.discarded.unauthenticated += 1;
            epoch.forged += 1;
            // RFC 9147 §4.5.3: too many forged records end the connection.
            return match epoch.forged >= epoch.key.integrity_limit() {
                true => Err(PeerMisbehaved::Flood(What::UndecryptableRecords).into()),
                false => Ok(None),
            };
        };
        self.is_authentic = true;
        let number = RecordNumber { epoch: epoch.number, sequence };
        // RFC 9147 §4.5.1: check for replay only after decryption, so that timing reveals nothing about the number.
        if !epoch.window.accept(sequence) {
            self.discarded.replayed += 1;
            return Ok(None);
        }
        // RFC 9147 §5.10: data after close_notify "MUST be ignored". Records sent before it may arrive after it.
        if self.closed_by.is_some_and(|closed| number > closed) {
            self.discarded.misplaced += 1;
            return Ok(None);
        }
        // RFC 9147 §4: `DTLSInnerPlaintext` is content, type, zeros. RFC 8449 §4 allows discarding records above the limit.
        let content_len = inner.iter().rposition(|byte| *byte != 0).unwrap_or(0);
        let typ = ContentType(inner.get(content_len).copied().unwrap_or(0));
        if typ.0 == 0 || inner.len() > self.content_limit + 1 {
            self.discarded.malformed += 1;
            return Ok(None);
        }
        record.truncate(header.len() + content_len);
        record.drain(..header.len());
        Ok(Some((number, typ, record)))
    }

    /// Processes an authentic record. An error in it is the peer's fault (RFC 9147 §4.5.2).
    fn dispatch(
        &mut self,
        number: RecordNumber,
        typ: ContentType,
        content: Vec<u8>,
    ) -> Result<Received, Error> {
        match typ {
            // RFC 8446 §5.4: an empty record of either type is unexpected_message.
            ContentType::HANDSHAKE | ContentType::ALERT if content.is_empty() => {
                Err(PeerMisbehaved::EmptyRecord.into())
            }
            ContentType::HANDSHAKE => {
                let taken = self.messages.insert(&content, number.epoch == self.present())?;
                if taken == Taken::All && self.to_acknowledge.len() < MAX_ACKNOWLEDGED {
                    self.to_acknowledge.push(number);
                }
                Ok(Received::Nothing)
            }
            ContentType::ALERT => {
                let [level, description] = content[..] else {
                    return Err(Malformed::Length(What::Alert).into());
                };
                let description = AlertDescription(description);
                if description == AlertDescription::CLOSE_NOTIFY {
                    self.closed_by = Some(number);
                }
                Ok(Received::Alert(AlertLevel(level), description))
            }
            ContentType::ACK => {
                let numbers = ack::read(&content)?;
                // RFC 9147 §7: an ACK must be protected at least as well as the records it acknowledges. All generations of
                // application keys count as equal here, because each direction has its own.
                let stage = |number: &RecordNumber| number.epoch.min(HANDSHAKE_EPOCH + 1);
                if numbers.iter().any(|acknowledged| stage(acknowledged) > stage(&number)) {
                    return Err(PeerMisbehaved::IllegalParameter(What::RecordNumbers).into());
                }
                Ok(Received::Ack(number.epoch, numbers))
            }
            ContentType::APPLICATION_DATA if number.epoch > HANDSHAKE_EPOCH => {
                if self.unread + content.len() > MAX_UNREAD || self.data.len() >= MAX_UNREAD_RECORDS {
                    self.discarded.overflow += 1;
                } else {
                    self.unread += content.len();
                    self.data.push_back(content);
                }
                Ok(Received::Nothing)
            }
            _ => Err(PeerMisbehaved::UnexpectedRecord(What::Record(typ)).into()),
        }
    }
}

/// The length of the record at the front of `bytes`, from its header alone; `None` if it is not a record.
fn record_len(bytes: &[u8]) -> Option<usize> {
    let first = *bytes.first()?;
    if plaintext::Header::begins_with(first) {
        let length = plaintext::Header::read(bytes)?.length;
        return (length <= MAX_PLAINTEXT).then_some(plaintext::HEADER_LEN + length);
    }
    let header = header13::Header::read(bytes)?;
    let length = header.length.unwrap_or(bytes.len() - header.len());
    (ciphertext::MIN_BODY..=MAX_CIPHERTEXT).contains(&length).then_some(header.len() + length)
}
