//! The sender keeps messages until their flight is complete, and then packs them into as few datagrams as
//! possible. It then keeps them for retransmission until the peer has acknowledged them.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::connection_id::PeerIds;
use super::epoch::{EpochKey, Kind, WriteEpoch};
use super::freeze::{SKIP, check_epoch};
#[cfg(feature = "association-ports")]
use super::retired_keys::RetiredKeys;
use super::routability::{self, PathMessage};
use super::{EARLY_EPOCH, HANDSHAKE_EPOCH, MAX_WAITING_ANSWERS, MAX_WAITING_DATAGRAMS, header12};
use crate::address::{Local, Path};
use crate::crypto::MAX_TAG_LEN;
use crate::error::{Error, Internal, Misuse};
use crate::flight::fragment::{MIN_ROOM, Packer, Planned, Records};
use crate::flight::outgoing::Flight;
use crate::flight::{RecordNumber, ack};
use crate::message::connection_ids::Usage;
use crate::protocol::Protocol;
use crate::record::protect::{EXPLICIT_NONCE_LEN, Sequence};
use crate::schedule::keys::TrafficKeys;
use crate::settings::MTU_RANGE;
use crate::transport::Epoch;
use crate::wire::MAX_PLAINTEXT;
use crate::wire::{AlertDescription, AlertLevel, ContentType, Field, HandshakeType, Reader, Writer};

/// The datagram sizes that this side tries if larger ones do not come through, in bytes of UDP payload: for
/// every IPv4 host, for most radio networks, and for IEEE 802.15.4 with uncompressed headers.
const SMALLER_MTUS: [usize; 3] = [548, 228, SMALLEST_MTU];
const SMALLEST_MTU: usize = 99;

/// A record with a piece of a message, in bytes, without its connection ID: the larger one of both versions.
const SMALLEST_RECORD: usize = header12::LEN + EXPLICIT_NONCE_LEN + 1 + MAX_TAG_LEN + MIN_ROOM;

/// A KeyUpdate in flight, and the key that follows it.
struct KeyUpdate {
    /// The number of the message.
    number: u16,
    key: EpochKey,
}

/// A datagram that waits for transmission.
#[derive(Clone)]
pub(crate) struct Output {
    /// Its path, if that is fixed, as for a message about paths.
    pub(super) path: Option<Path>,
    /// The epoch of a record of data.
    pub(super) epoch: Option<u64>,
    pub(crate) datagram: Vec<u8>,
}

pub(crate) struct Sender {
    mtu: usize,
    /// The largest datagram with messages, which gets smaller when nothing comes through.
    flight_mtu: usize,
    /// Whether the headers of DTLS 1.3 have all their fields.
    full_headers: bool,
    protocol: Protocol,
    /// The peer's connection IDs. Protected records carry one of them.
    pub(super) ids: PeerIds,
    content_limit: usize,
    present: WriteEpoch,
    /// Earlier epochs, for messages that wait or may have to be sent again, and for ACKs in the handshake.
    past: Vec<WriteEpoch>,
    handshake_complete: bool,
    flight: Flight,
    /// The number of the next message.
    next_message: Option<u16>,
    /// Datagrams that wait for transmission.
    output: VecDeque<Output>,
    sent_bytes: usize,
    /// RFC 9147 §8: the sender uses the new key once the peer has acknowledged the KeyUpdate.
    key_update: Option<Box<KeyUpdate>>,
    /// RFC 9147 §5.8.4: a KeyUpdate that must wait for the ACK of the previous one, and its key. There is at
    /// most one, because one answer covers all requests of the peer.
    next_update: Option<Box<(Vec<u8>, Option<EpochKey>)>>,
    /// The number of this side's latest NewConnectionId, and how many further IDs the peer has requested
    /// since. RFC 9147 §9: only one such message may wait for its ACK.
    new_ids: Option<u16>,
    owed_ids: Option<(u8, Usage)>,
    /// The first record number of a thawed association in its first epoch, after [`SKIP`]; 0 otherwise.
    thawed_at: u64,
    /// The keys of all attempts of a handshake, if there can be several.
    #[cfg(feature = "association-ports")]
    retired_keys: Option<Box<RetiredKeys>>,
    /// An alert was sent, and nothing follows it.
    closed: bool,
}

impl Sender {
    pub(super) fn new(mtu: usize, full_headers: bool) -> Self {
        Self {
            mtu,
            flight_mtu: mtu,
            full_headers,
            protocol: Protocol::Dtls13,
            ids: PeerIds::default(),
            new_ids: None,
            owed_ids: None,
            content_limit: MAX_PLAINTEXT,
            present: WriteEpoch { number: 0, key: None, sequence: Sequence::default(), is_initial: true },
            past: Vec::new(),
            handshake_complete: false,
            flight: Flight::default(),
            next_message: Some(0),
            output: VecDeque::new(),
            sent_bytes: 0,
            key_update: None,
            next_update: None,
            thawed_at: 0,
            #[cfg(feature = "association-ports")]
            retired_keys: None,
            closed: false,
        }
    }

    /// The same sender once more, before it has keys.
    #[cfg(feature = "association-ports")]
    pub(super) fn again(&self) -> Option<Self> {
        let WriteEpoch { number, key: None, sequence, is_initial } = &self.present else { return None };
        let sequence = Sequence::starting_at(sequence.used());
        let present = WriteEpoch { number: *number, key: None, sequence, is_initial: *is_initial };
        Some(Self {
            flight_mtu: self.flight_mtu,
            protocol: self.protocol,
            content_limit: self.content_limit,
            present,
            flight: self.flight.clone(),
            next_message: self.next_message,
            output: self.output.clone(),
            sent_bytes: self.sent_bytes,
            ..Self::new(self.mtu, self.full_headers)
        })
    }

    /// Refuses keys that this sender or `previous` has made before. `previous` makes no keys meanwhile.
    #[cfg(feature = "association-ports")]
    pub(super) fn retire_keys(&mut self, previous: Option<&mut Self>) {
        let retired = previous.and_then(|previous| previous.retired_keys.take());
        self.retired_keys = self.retired_keys.take().or(retired).or_else(|| Some(Box::default()));
    }

    pub(crate) const fn set_mtu(&mut self, mtu: usize) {
        self.mtu = mtu;
        self.flight_mtu = mtu;
    }

    /// Writes its state for an association that continues elsewhere.
    pub(super) fn freeze(&self, w: &mut Writer) {
        self.ids.freeze(w);
        w.u64(self.present.number);
        if let Some(key) = &self.present.key {
            key.freeze(w);
        }
        // If the association sent nothing since it was thawed, a second freeze does not skip again: the peer
        // finds a number by its lower 16 bits.
        let used = self.present.sequence.used();
        w.u64(if used == self.thawed_at { used.saturating_sub(SKIP) } else { used });
        w.u16(self.next_number());
        w.u16(u16::try_from(self.content_limit).unwrap_or(u16::MAX));
        w.u16(u16::try_from(self.mtu).unwrap_or(u16::MAX));
    }

    /// Continues with the output of [`Self::freeze`]. Record numbers skip ahead by [`SKIP`].
    pub(super) fn thaw(&mut self, r: &mut Reader<'_>, protocol: Protocol, kind: Kind) -> Result<(), Error> {
        self.protocol = protocol;
        self.ids = PeerIds::thaw(r)?;
        let number = r.u64()?;
        let number = check_epoch(r, protocol, number)?;
        let key = EpochKey::thaw(r, kind)?;
        let used = r.u64()?;
        let next = used.checked_add(SKIP).ok_or(Internal::KeyExhausted)?;
        self.thawed_at = next;
        self.present =
            WriteEpoch { sequence: Sequence::starting_at(next), ..WriteEpoch::with_key(number, key) };
        self.next_message = Some(r.u16()?);
        self.content_limit = usize::from(r.u16()?).min(MAX_PLAINTEXT);
        let mtu = usize::from(r.u16()?);
        if !MTU_RANGE.contains(&mtu) {
            return Err(r.bad_value().into());
        }
        self.set_mtu(mtu);
        self.handshake_complete = true;
        Ok(())
    }

    /// Drops the keys, and sends nothing more.
    pub(super) fn end_silently(&mut self) {
        self.present.key = None;
        self.past.clear();
        self.closed = true;
    }

    /// Whether the peer has received all messages, and everything else was transmitted.
    pub(super) fn is_settled(&mut self) -> bool {
        !self.is_outstanding()
            && self.flight.messages().all(|message| message.is_sent)
            && self.key_update.is_none()
            && self.owed_ids.is_none()
            && self.output.is_empty()
    }

    /// Sends what waits for transmission over this path, even if the connection leaves it now.
    pub(super) fn fix_output(&mut self, path: Path) {
        for output in &mut self.output {
            output.path.get_or_insert(path);
        }
    }

    /// Drops waiting datagrams over a path from this interface and no other: path messages, and copies.
    pub(super) fn drop_output_over(&mut self, local: Local) {
        self.output.retain(|output| output.path.is_none_or(|path| path.local != local));
    }

    /// Drops what waits for transmission over the present path. Returns how many records of data that are.
    pub(super) fn drop_output(&mut self) -> usize {
        let before = self.waiting_data();
        self.output.retain(|output| output.path.is_some());
        before - self.waiting_data()
    }

    /// How many records of data wait for transmission.
    pub(super) fn waiting_data(&self) -> usize {
        self.output.iter().filter(|output| output.epoch.is_some()).count()
    }

    /// Sends a datagram over this path next.
    pub(super) fn transmit_next(&mut self, path: Path, datagram: Vec<u8>) {
        self.output.push_front(Output { path: Some(path), epoch: None, datagram });
    }

    /// Sends a datagram with a record of data again, which the peer may have.
    pub(super) fn repeat_data(&mut self, datagram: Vec<u8>) {
        self.queue(None, Some(self.present.number), datagram);
    }

    /// The epoch of the next record.
    pub(super) const fn epoch(&self) -> u64 {
        self.present.number
    }

    /// Whether this side sends nothing more.
    pub(super) const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Sends a new record without a meaning of its own.
    pub(super) fn announce(&mut self) -> Result<(), Error> {
        if self.protocol.has_acks() {
            self.single(ContentType::ACK, &ack::write(&[])?)
        } else {
            self.single(ContentType::APPLICATION_DATA, &[])
        }
    }

    /// The next datagram.
    pub(crate) fn transmit(&mut self) -> Option<Output> {
        let datagram = self.output.pop_front();
        if self.output.is_empty() {
            // An idle connection keeps no memory for the queue.
            self.output = VecDeque::new();
        }
        datagram
    }

    /// Notes that the server has chosen a version, or has sent a HelloRetryRequest.
    pub(super) const fn knows_version(&mut self) {
        self.present.is_initial = false;
    }

    /// Whether a KeyUpdate waits for the ACK of the previous one.
    pub(super) const fn has_next_update(&self) -> bool {
        self.next_update.is_some()
    }

    /// Whether the output is empty.
    pub(super) fn is_drained(&self) -> bool {
        self.output.is_empty()
    }

    /// Whether the output has room for more datagrams.
    pub(super) fn has_room(&self) -> bool {
        self.output.len() < MAX_WAITING_DATAGRAMS
    }

    /// Whether the output has room for answers to challenges, also beside data up to its limit.
    pub(super) fn has_room_for_answers(&self) -> bool {
        self.output.len() < MAX_WAITING_DATAGRAMS + MAX_WAITING_ANSWERS
    }

    pub(super) fn limit(&mut self, content: usize) {
        self.content_limit = content.min(MAX_PLAINTEXT);
    }

    pub(super) const fn agree(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// Chooses a server's first numbers by the ClientHello with this number, in a record with this sequence
    /// number. They continue the numbers of a server that kept nothing (RFC 6347 §4.2.1, RFC 9147 §5.1).
    pub(super) fn begin(&mut self, number: u16, sequence: u64) {
        if self.present.number == 0 && self.present.sequence.used() == 0 && self.next_message == Some(0) {
            self.next_message = Some(number);
            self.present.sequence = Sequence::starting_at(sequence);
        }
    }

    /// The number of the next message.
    pub(super) fn next_number(&self) -> u16 {
        self.next_message.unwrap_or(u16::MAX)
    }

    pub(super) fn message(&mut self, message: Vec<u8>) -> Result<(), Error> {
        if self.key_update.is_some() && message.first() == Some(&HandshakeType::KEY_UPDATE.0) {
            return match self.next_update.replace(Box::new((message, None))) {
                None => Ok(()),
                Some(_) => Err(Internal::Bug(Field::ThirdKeyUpdate).into()),
            };
        }
        // RFC 9147 §5.2: the number must not wrap.
        let number = self.next_message.ok_or(Internal::KeyExhausted)?;
        self.next_message = number.checked_add(1);
        self.flight.push(self.present.number, number, message);
        Ok(())
    }

    pub(super) fn set_key(&mut self, epoch: Epoch, keys: &TrafficKeys) -> Result<(), Error> {
        #[cfg(feature = "association-ports")]
        if let Some(retired) = &mut self.retired_keys {
            retired.retire(keys)?;
        }
        let key = EpochKey::new(keys)?;
        if let Some(next) = &mut self.next_update {
            next.1 = Some(key);
            return Ok(());
        }
        if self.present.number > HANDSHAKE_EPOCH {
            return self.begin_update(key);
        }
        let number = match epoch {
            // RFC 6347 §4.1: ChangeCipherSpec increments the epoch.
            _ if self.protocol.changes_cipher_spec() => self.present.number + 1,
            Epoch::Early => EARLY_EPOCH,
            Epoch::Handshake => HANDSHAKE_EPOCH,
            Epoch::Application => HANDSHAKE_EPOCH + 1,
        };
        let present = WriteEpoch::with_key(number, key);
        self.past.push(core::mem::replace(&mut self.present, present));
        Ok(())
    }

    /// Sends the KeyUpdate that is the latest message. `key` comes into use after its ACK.
    fn begin_update(&mut self, key: EpochKey) -> Result<(), Error> {
        let number = self.flight.last_number().ok_or(Internal::Bug(Field::NoUpdate))?;
        self.flush()?;
        self.key_update = Some(Box::new(KeyUpdate { number, key }));
        Ok(())
    }

    /// Processes an ACK: uses an acknowledged KeyUpdate's key. Returns whether it acknowledged something new.
    pub(super) fn acknowledged(&mut self, numbers: &[RecordNumber]) -> Result<bool, Error> {
        let is_progress = self.flight.acknowledged(numbers);
        // A peer that acknowledges application keys has completed the handshake. Its old keys may be gone.
        if numbers.iter().any(|number| number.epoch > HANDSHAKE_EPOCH) {
            self.flight.drop_if(|message| message.epoch <= HANDSHAKE_EPOCH && message.is_sent);
        }
        match self.key_update.take() {
            // Without the ACKs of earlier messages, the peer has perhaps not applied the KeyUpdate.
            Some(update) if self.flight.contains_up_to(update.number) => self.key_update = Some(update),
            Some(update) => {
                let KeyUpdate { key, .. } = *update;
                let number = self.present.number + 1;
                self.present = WriteEpoch::with_key(number, key);
                self.thawed_at = 0;
                if let Some((message, Some(key))) = self.next_update.take().map(|next| *next) {
                    self.message(message)?;
                    self.begin_update(key)?;
                }
            }
            None => {}
        }
        self.drop_keys();
        Ok(is_progress)
    }

    /// The peer has answered the flight, and has therefore received all of it. Returns whether there was one.
    pub(super) fn answered(&mut self) -> bool {
        self.flight.answered()
    }

    /// The peer protects its records. In DTLS 1.3 it has then received all messages in the clear.
    pub(super) fn peer_has_keys(&mut self) {
        if !self.protocol.changes_cipher_spec() {
            self.flight.drop_if(|message| message.epoch == 0 && message.is_sent);
        }
    }

    /// Sends messages in smaller datagrams from now on: the path may lose larger ones (RFC 9147 §4.4).
    pub(super) fn shrink(&mut self) {
        let least = self.least_mtu();
        let smaller = SMALLER_MTUS.into_iter().map(|mtu| mtu.max(least)).find(|mtu| *mtu < self.flight_mtu);
        self.flight_mtu = smaller.unwrap_or(self.flight_mtu);
    }

    /// The largest datagram with messages now.
    fn flight_mtu(&self) -> usize {
        self.flight_mtu.max(self.least_mtu())
    }

    /// The smallest datagram with room for a piece of a message beside the peer's connection ID, in bytes.
    fn least_mtu(&self) -> usize {
        SMALLEST_RECORD + self.ids.present().len()
    }

    /// Forgets the outstanding messages, because the peer has received them.
    pub(super) fn drop_flight(&mut self) {
        self.flight.drop_if(|message| message.is_sent);
        self.past = Vec::new();
    }

    /// Whether the peer has not acknowledged a message that was sent.
    pub(super) fn is_outstanding(&self) -> bool {
        self.flight.is_outstanding()
    }

    /// The epochs of the messages that the peer has not acknowledged.
    pub(super) fn outstanding_epochs(&self) -> impl Iterator<Item = u64> {
        self.flight.outstanding_epochs()
    }

    /// How many bytes have been queued so far.
    pub(super) const fn sent_bytes(&self) -> usize {
        self.sent_bytes
    }

    fn queue(&mut self, path: Option<Path>, epoch: Option<u64>, datagram: Vec<u8>) {
        self.sent_bytes = self.sent_bytes.saturating_add(datagram.len());
        self.output.push_back(Output { path, epoch, datagram });
    }

    /// Whether the sender protects its records.
    pub(super) const fn is_protected(&self) -> bool {
        self.present.key.is_some()
    }

    /// Whether a key is expanded.
    pub(super) fn is_awake(&self) -> bool {
        self.present.key.as_ref().is_some_and(EpochKey::is_awake)
    }

    /// Drops the expanded keys until the next record.
    pub(super) fn rest(&mut self) {
        self.past
            .iter_mut()
            .chain([&mut self.present])
            .filter_map(|e| e.key.as_mut())
            .for_each(EpochKey::rest);
    }

    /// Whether the peer has not acknowledged a KeyUpdate yet.
    pub(super) const fn key_update_waits(&self) -> bool {
        self.key_update.is_some()
    }

    /// Whether this side should send a KeyUpdate before the next record. That is slightly before the key's
    /// limit, so that the KeyUpdate itself, its retransmissions and an alert still fit.
    pub(super) fn needs_key_update(&self, after: Option<u64>) -> bool {
        let Some(key) = &self.present.key else { return false };
        let limit = key.confidentiality_limit().saturating_sub(1024);
        let limit = after.map_or(limit, |after| after.min(limit));
        self.key_update.is_none() && self.present.sequence.used() >= limit
    }

    pub(super) fn complete_handshake(&mut self) {
        self.handshake_complete = true;
        #[cfg(feature = "association-ports")]
        self.retired_keys.take();
    }

    /// Sends an ACK alone. RFC 8446 §6.1: after close_notify this side sends no more messages.
    pub(super) fn acknowledge(&mut self, numbers: &[RecordNumber]) -> Result<(), Error> {
        if self.closed {
            return Ok(());
        }
        let mut packer = Packer::new(self.flight_mtu());
        match numbers {
            [] => packer.record(self.records(self.for_acks()), ContentType::ACK, ack::write(&[])?)?,
            numbers => self.pack_acks(&mut packer, numbers)?,
        }
        self.seal(packer.into_datagrams(), usize::MAX).map(drop)
    }

    /// The epoch of ACKs. RFC 9147 §7: it is at least the epoch of the records. During the handshake these
    /// are the handshake keys. A record under application keys would tell a client that the server has
    /// accepted its Finished (docs/handshake-cache.md §3.4).
    fn for_acks(&self) -> &WriteEpoch {
        let handshake = self.past.iter().find(|e| e.number == HANDSHAKE_EPOCH && !self.handshake_complete);
        handshake.unwrap_or(&self.present)
    }

    /// The most record numbers in one ACK.
    pub(super) fn numbers_per_ack(&self) -> usize {
        let records = self.records(self.for_acks());
        let room = records.limit.min(self.flight_mtu().saturating_sub(records.overhead));
        (room.saturating_sub(ack::EMPTY_LEN) / ack::NUMBER_LEN).max(1)
    }

    fn pack_acks(&self, packer: &mut Packer, numbers: &[RecordNumber]) -> Result<(), Error> {
        let records = self.records(self.for_acks());
        for numbers in numbers.chunks(self.numbers_per_ack()) {
            packer.record(records, ContentType::ACK, ack::write(numbers)?)?;
        }
        Ok(())
    }

    /// Sends the messages that were not sent yet.
    pub(super) fn flush(&mut self) -> Result<(), Error> {
        self.flush_after(&[])
    }

    /// Sends an ACK of `to_acknowledge`, then the messages that were not sent yet.
    pub(super) fn flush_after(&mut self, to_acknowledge: &[RecordNumber]) -> Result<(), Error> {
        if self.closed {
            self.flight.drop_if(|message| !message.is_sent);
            return Ok(());
        }
        if to_acknowledge.is_empty() && self.past.is_empty() && self.flight.is_empty() {
            // Every record with data ends here.
            return Ok(());
        }
        let mut packer = self.packer(self.flight_mtu());
        self.pack_acks(&mut packer, to_acknowledge)?;
        self.pack_messages(&mut packer, false)?;
        self.seal(packer.into_datagrams(), usize::MAX).map(drop)
    }

    /// Sends the unacknowledged messages again, in at most `budget` bytes. Returns the number of bytes.
    pub(super) fn retransmit(&mut self, budget: usize) -> Result<usize, Error> {
        // With a small budget, at least the first message comes through, which the peer can acknowledge.
        let mut packer = self.packer(self.flight_mtu().min(budget.max(SMALLEST_MTU).max(self.least_mtu())));
        self.pack_messages(&mut packer, true)?;
        self.seal(packer.into_datagrams(), budget)
    }

    /// A packer for a flight. In DTLS 1.2, some peers need a new record after a fragmented message.
    const fn packer(&self, mtu: usize) -> Packer {
        Packer::new(mtu).end_records_with_fragments(self.protocol.changes_cipher_spec())
    }

    fn pack_messages(&mut self, packer: &mut Packer, again: bool) -> Result<(), Error> {
        let mut flight = core::mem::take(&mut self.flight);
        let epoch = |number| self.past.iter().find(|e| e.number == number).unwrap_or(&self.present);
        for outgoing in flight.messages().filter(|outgoing| outgoing.is_sent == again) {
            if self.protocol.changes_cipher_spec()
                && outgoing.message.first() == Some(&HandshakeType::FINISHED.0)
            {
                // RFC 5246 §7.1: ChangeCipherSpec precedes Finished, under the keys that it replaces.
                let before = self.records(epoch(outgoing.epoch.saturating_sub(1)));
                packer.record(before, ContentType::CHANGE_CIPHER_SPEC, [1].into())?;
            }
            let epoch = epoch(outgoing.epoch);
            for range in &outgoing.missing {
                packer.message(self.records(epoch), outgoing.number, &outgoing.message, range)?;
            }
            outgoing.is_sent = true;
        }
        self.flight = flight;
        Ok(())
    }

    /// Seals and queues datagrams, at most `budget` bytes. Returns the number of queued bytes.
    fn seal(&mut self, datagrams: Vec<Vec<Planned>>, budget: usize) -> Result<usize, Error> {
        let mut total = 0;
        let most = SMALLEST_RECORD + self.ids.present().len();
        for datagram in datagrams {
            let mut bytes =
                Vec::with_capacity(datagram.iter().map(|record| record.content.len() + most).sum());
            let mut sent = Vec::new();
            let last = datagram.len().saturating_sub(1);
            for (i, record) in datagram.into_iter().enumerate() {
                let epoch = self.past.iter_mut().find(|e| e.number == record.epoch);
                let epoch = epoch.unwrap_or(&mut self.present);
                let place = (i == last, self.full_headers);
                let sequence =
                    epoch.seal(record.typ, self.ids.present(), &record.content, place, &mut bytes)?;
                sent.push((RecordNumber { epoch: record.epoch, sequence }, record.pieces));
            }
            total += bytes.len();
            if total > budget {
                return Ok(total - bytes.len());
            }
            for (number, pieces) in sent.into_iter().filter(|(_, pieces)| !pieces.is_empty()) {
                self.flight.sent(number, pieces);
            }
            self.queue(None, None, bytes);
        }
        self.drop_keys();
        Ok(total)
    }

    /// Drops the keys of earlier epochs that no message and no ACK needs any more.
    fn drop_keys(&mut self) {
        let is_needed = |WriteEpoch { number, .. }: &WriteEpoch| {
            let carries_change = self.protocol.changes_cipher_spec() && self.flight.needs_epoch(number + 1);
            let for_acks = *number == HANDSHAKE_EPOCH && !self.handshake_complete;
            self.flight.needs_epoch(*number) || carries_change || for_acks
        };
        self.past.retain(is_needed);
        if self.past.is_empty() {
            self.past = Vec::new();
        }
    }

    fn records(&self, epoch: &WriteEpoch) -> Records {
        match &epoch.key {
            None => Records {
                epoch: 0,
                overhead: header12::LEN,
                saved_by_last: 0,
                short_numbers: 0,
                limit: MAX_PLAINTEXT,
            },
            Some(key) => {
                let id = self.ids.present();
                let overhead = key.overhead(!id.is_empty());
                Records {
                    epoch: epoch.number,
                    overhead: overhead + id.len(),
                    saved_by_last: overhead - key.overhead_of_last(!id.is_empty(), self.full_headers),
                    short_numbers: key.short_numbers(&epoch.sequence, self.full_headers),
                    limit: self.content_limit,
                }
            }
        }
    }

    /// Sends an alert. A fatal one and close_notify are the last record that this side sends.
    pub(super) fn alert(&mut self, level: AlertLevel, description: AlertDescription) -> Result<(), Error> {
        self.flush()?;
        if level == AlertLevel::FATAL || description == AlertDescription::CLOSE_NOTIFY {
            self.closed = true;
            // The peer ignores what follows an alert, but it may still need the handshake (RFC 9147 §5.10).
            self.flight.drop_if(|message| message.epoch > HANDSHAKE_EPOCH);
        }
        self.single(ContentType::ALERT, &[level.0, description.0])
    }

    /// The most data that one record can carry, in bytes; 0 before there are keys for it.
    pub(crate) fn max_data(&self) -> usize {
        let Some(key) = &self.present.key else { return 0 };
        self.content_limit.min(self.mtu.saturating_sub(self.overhead_of_single(key)))
    }

    /// Sends a record with data.
    pub(crate) fn application_data(&mut self, data: &[u8]) -> Result<(), Error> {
        self.single(ContentType::APPLICATION_DATA, data)
    }

    /// Sends a message about a path over that path, unless this side sends nothing more. `id` is the
    /// connection ID of a path that has its own.
    pub(super) fn path_message(
        &mut self,
        path: Path,
        message: PathMessage,
        id: Option<Vec<u8>>,
    ) -> Result<(), Error> {
        if self.closed {
            return Ok(());
        }
        // RFC 9147 §9: a path that this side has left keeps its ID, so that observers cannot link the two.
        let is_left = matches!(message, PathMessage::Drop(_));
        let usual = || self.ids.previous().filter(|_| is_left).unwrap_or_else(|| self.ids.present()).to_vec();
        let id = id.unwrap_or_else(usual);
        let content = routability::write(message);
        let place = (true, self.full_headers);
        let mut bytes = Vec::new();
        self.present.seal(ContentType::RETURN_ROUTABILITY_CHECK, &id, &content, place, &mut bytes)?;
        self.queue(Some(path), None, bytes);
        Ok(())
    }

    /// Sends a record about the association's port over this path, unless this side sends nothing more.
    #[cfg(feature = "association-ports")]
    pub(super) fn about_port(&mut self, path: Path, content: &[u8]) -> Result<(), Error> {
        if self.closed {
            return Ok(());
        }
        let mut bytes = Vec::new();
        let place = (true, self.full_headers);
        self.present.seal(ContentType::ASSOCIATION_PORT, self.ids.present(), content, place, &mut bytes)?;
        self.queue(Some(path), None, bytes);
        Ok(())
    }

    /// The length of a datagram with a path message, in bytes, with the present connection ID or another one.
    pub(super) fn path_message_len_with(&self, id: Option<&[u8]>) -> usize {
        let present = self.ids.present().len();
        self.path_message_len() - present.min(self.path_message_len()) + id.map_or(present, <[u8]>::len)
    }

    /// The length of a datagram with a message about a path, in bytes.
    pub(super) fn path_message_len(&self) -> usize {
        self.present.key.as_ref().map_or(0, |key| self.overhead_of_single(key) + routability::LEN)
    }

    /// The length of a datagram with a single record beside its content, in bytes.
    fn overhead_of_single(&self, key: &EpochKey) -> usize {
        let id = self.ids.present();
        key.overhead_of_last(!id.is_empty(), self.full_headers) + id.len()
    }

    /// The longest connection ID of the peer that leaves room for messages and data.
    pub(super) fn longest_peer_id(&self) -> usize {
        self.mtu.saturating_sub(SMALLEST_RECORD).min(usize::from(u8::MAX))
    }

    /// Whether the sender may send a NewConnectionId now. Otherwise it remembers the IDs' number and usage.
    pub(super) fn may_send_ids(&mut self, count: u8, usage: Usage) -> bool {
        if self.may_send_message() {
            self.new_ids = self.next_message;
            return true;
        }
        let (more, is_immediate) =
            self.owed_ids.map_or((0, false), |(n, usage)| (n, usage == Usage::Immediate));
        let usage = if is_immediate { Usage::Immediate } else { usage };
        self.owed_ids = Some((more.saturating_add(count), usage));
        false
    }

    /// Takes the number and usage of the IDs that waited for the ACK of the previous ones.
    pub(super) fn take_owed_ids(&mut self) -> Option<(u8, Usage)> {
        if self.may_send_message() { self.owed_ids.take() } else { None }
    }

    /// Whether the peer has acknowledged the latest NewConnectionId and KeyUpdate. RFC 9147 §8: a message
    /// after a KeyUpdate has the new keys, which come into use with its ACK.
    pub(super) fn may_send_message(&self) -> bool {
        let has_new_ids = self.new_ids.is_some_and(|number| self.flight.contains_up_to(number));
        !has_new_ids && self.key_update.is_none()
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
        self.present.seal(typ, self.ids.present(), content, (true, self.full_headers), &mut bytes)?;
        let epoch = (typ == ContentType::APPLICATION_DATA).then_some(self.present.number);
        self.queue(None, epoch, bytes);
        Ok(())
    }
}
