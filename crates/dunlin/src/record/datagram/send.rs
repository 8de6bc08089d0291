//! The sender keeps messages until their flight is complete, and then packs them into as few datagrams as possible.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::ciphertext::EpochKey;
use super::{EARLY_EPOCH, HANDSHAKE_EPOCH, MAX_WAITING_DATAGRAMS, plaintext};
use crate::error::{Error, Internal, Misuse};
use crate::flight::fragment::{Packer, Records};
use crate::flight::{RecordNumber, ack};
use crate::record::protect::Sequence;
use crate::schedule::keys::TrafficKeys;
use crate::transport::Epoch;
use crate::wire::MAX_PLAINTEXT;
use crate::wire::{ContentType, HandshakeType, What};

/// One epoch of this side's records.
struct WriteEpoch {
    number: u64,
    /// `None` in epoch 0.
    key: Option<EpochKey>,
    sequence: Sequence,
}

/// A message that waits in the current flight.
struct Outgoing {
    epoch: u64,
    number: u16,
    message: Vec<u8>,
}

/// A KeyUpdate in flight, and the key that follows it.
struct KeyUpdate {
    /// Its records that the peer has not acknowledged.
    records: Vec<RecordNumber>,
    key: EpochKey,
}

pub(crate) struct Sender {
    mtu: usize,
    content_limit: usize,
    present: WriteEpoch,
    /// Earlier epochs, for messages that still wait.
    past: Vec<WriteEpoch>,
    flight: Vec<Outgoing>,
    /// The number of the next message.
    next_message: Option<u16>,
    output: VecDeque<Vec<u8>>,
    /// RFC 9147 §8: the sender uses the new key once the peer has acknowledged the KeyUpdate.
    key_update: Option<KeyUpdate>,
    /// RFC 9147 §5.8.4: a KeyUpdate that must wait for the ACK of the previous one, and its key. There is at most one,
    /// because one answer covers all requests of the peer.
    next_update: Option<(Vec<u8>, Option<EpochKey>)>,
    /// An alert was sent, and nothing follows it.
    closed: bool,
}

impl Sender {
    pub(super) fn new(mtu: usize) -> Self {
        Self {
            mtu,
            content_limit: MAX_PLAINTEXT,
            present: WriteEpoch { number: 0, key: None, sequence: Sequence::default() },
            past: Vec::new(),
            flight: Vec::new(),
            next_message: Some(0),
            output: VecDeque::new(),
            key_update: None,
            next_update: None,
            closed: false,
        }
    }

    /// The next datagram.
    pub(crate) fn transmit(&mut self) -> Option<Vec<u8>> {
        self.output.pop_front()
    }

    /// Whether a KeyUpdate waits for the ACK of the previous one.
    pub(super) const fn has_next_update(&self) -> bool {
        self.next_update.is_some()
    }

    /// Whether the output has room for more datagrams.
    pub(super) fn has_room(&self) -> bool {
        self.output.len() < MAX_WAITING_DATAGRAMS
    }

    pub(super) fn limit(&mut self, content: usize) {
        self.content_limit = content.min(MAX_PLAINTEXT);
    }

    pub(super) fn message(&mut self, message: Vec<u8>) -> Result<(), Error> {
        if self.key_update.is_some() && message.first() == Some(&HandshakeType::KEY_UPDATE.0) {
            return match self.next_update.replace((message, None)) {
                None => Ok(()),
                Some(_) => Err(Internal::Bug(What::ThirdKeyUpdate).into()),
            };
        }
        // RFC 9147 §5.2: the number must not wrap.
        let number = self.next_message.ok_or(Internal::KeyExhausted)?;
        self.next_message = number.checked_add(1);
        self.flight.push(Outgoing { epoch: self.present.number, number, message });
        Ok(())
    }

    pub(super) fn set_key(&mut self, epoch: Epoch, keys: &TrafficKeys) -> Result<(), Error> {
        let key = EpochKey::new(keys)?;
        if let Some((_, next)) = &mut self.next_update {
            *next = Some(key);
            return Ok(());
        }
        if self.present.number > HANDSHAKE_EPOCH {
            let records = self.flush(&[])?;
            self.key_update = Some(KeyUpdate { records, key });
            return Ok(());
        }
        let number = match epoch {
            Epoch::Early => EARLY_EPOCH,
            Epoch::Handshake => HANDSHAKE_EPOCH,
            Epoch::Application => HANDSHAKE_EPOCH + 1,
        };
        let present = WriteEpoch { number, key: Some(key), sequence: Sequence::default() };
        self.past.push(core::mem::replace(&mut self.present, present));
        Ok(())
    }

    /// Processes an ACK. The sender uses a new key once the peer has acknowledged its KeyUpdate.
    pub(super) fn acknowledged(&mut self, numbers: &[RecordNumber]) -> Result<(), Error> {
        let Some(update) = &mut self.key_update else { return Ok(()) };
        update.records.retain(|number| !numbers.contains(number));
        if !update.records.is_empty() {
            return Ok(());
        }
        if let Some(KeyUpdate { key, .. }) = self.key_update.take() {
            let number = self.present.number + 1;
            self.present = WriteEpoch { number, key: Some(key), sequence: Sequence::default() };
        }
        if let Some((message, Some(key))) = self.next_update.take() {
            self.message(message)?;
            let records = self.flush(&[])?;
            self.key_update = Some(KeyUpdate { records, key });
        }
        Ok(())
    }

    /// Whether the peer has not acknowledged a KeyUpdate yet.
    pub(super) const fn key_update_waits(&self) -> bool {
        self.key_update.is_some()
    }

    /// Whether this side should send a KeyUpdate before the next record. That is slightly before the key's limit, so that
    /// the KeyUpdate itself, its retransmissions and an alert still fit.
    pub(super) fn needs_key_update(&self, after: Option<u64>) -> bool {
        let Some(key) = &self.present.key else { return false };
        let limit = key.confidentiality_limit().saturating_sub(1024);
        let limit = after.map_or(limit, |after| after.min(limit));
        self.key_update.is_none() && self.present.sequence.used() >= limit
    }

    /// Sends an ACK of `to_acknowledge`, then the queued messages; returns the numbers of the records with messages.
    pub(super) fn flush(&mut self, to_acknowledge: &[RecordNumber]) -> Result<Vec<RecordNumber>, Error> {
        let flight = core::mem::take(&mut self.flight);
        if self.closed {
            return Ok(Vec::new());
        }
        let mut packer = Packer::new(self.mtu);
        // RFC 9147 §7: an ACK uses the latest keys.
        let records = self.records(&self.present);
        let room = records.limit.min(self.mtu.saturating_sub(records.overhead));
        let per_ack = room.saturating_sub(ack::EMPTY_LEN) / ack::NUMBER_LEN;
        for numbers in to_acknowledge.chunks(per_ack.max(1)) {
            packer.record(records, ContentType::ACK, ack::write(numbers)?)?;
        }
        for Outgoing { epoch, number, message } in &flight {
            let epoch = self.past.iter().find(|e| e.number == *epoch).unwrap_or(&self.present);
            packer.message(self.records(epoch), *number, message)?;
        }
        let mut sent = Vec::new();
        for datagram in packer.into_datagrams() {
            let mut bytes = Vec::new();
            let last = datagram.len().saturating_sub(1);
            for (i, record) in datagram.iter().enumerate() {
                let epoch = self.past.iter_mut().find(|e| e.number == record.epoch);
                let epoch = epoch.unwrap_or(&mut self.present);
                let sequence = epoch.seal(record.typ, &record.content, i == last, &mut bytes)?;
                if record.typ == ContentType::HANDSHAKE {
                    sent.push(RecordNumber { epoch: record.epoch, sequence });
                }
            }
            self.output.push_back(bytes);
        }
        self.past.clear();
        Ok(sent)
    }

    fn records(&self, epoch: &WriteEpoch) -> Records {
        match &epoch.key {
            None => Records { epoch: 0, overhead: plaintext::HEADER_LEN, limit: MAX_PLAINTEXT },
            Some(key) => Records { epoch: epoch.number, overhead: key.overhead(), limit: self.content_limit },
        }
    }

    /// Sends an alert. It is the last record that this side sends.
    pub(super) fn alert(&mut self, content: [u8; 2]) -> Result<(), Error> {
        self.flush(&[])?;
        self.closed = true;
        self.single(ContentType::ALERT, &content)
    }

    /// The most data that one record can carry, in bytes; 0 before there are keys for it.
    pub(crate) fn max_data(&self) -> usize {
        let Some(key) = &self.present.key else { return 0 };
        self.content_limit.min(self.mtu.saturating_sub(key.overhead_of_last()))
    }

    /// Sends a record with data.
    pub(crate) fn application_data(&mut self, data: &[u8]) -> Result<(), Error> {
        self.single(ContentType::APPLICATION_DATA, data)
    }

    /// Returns an error if the sender cannot take a record with `len` bytes of data now.
    pub(crate) fn check_data(&self, len: usize) -> Result<(), Error> {
        let max = self.max_data();
        if len > max {
            return Err(Misuse::DataTooLong { max }.into());
        }
        if self.has_room() { Ok(()) } else { Err(Misuse::OutputFull.into()) }
    }

    /// Sends a record in a separate datagram.
    fn single(&mut self, typ: ContentType, content: &[u8]) -> Result<(), Error> {
        let mut bytes = Vec::new();
        self.present.seal(typ, content, true, &mut bytes)?;
        self.output.push_back(bytes);
        Ok(())
    }
}

impl WriteEpoch {
    /// Appends a record to `out` and returns its number.
    fn seal(
        &mut self,
        typ: ContentType,
        content: &[u8],
        is_last: bool,
        out: &mut Vec<u8>,
    ) -> Result<u64, Error> {
        match &self.key {
            Some(key) => key.seal((self.number, &mut self.sequence), typ, content, is_last, out),
            None => {
                let number = self.sequence.next()?;
                plaintext::write(typ, number, content, out)?;
                Ok(number)
            }
        }
    }
}
