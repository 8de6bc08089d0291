//! The receiver cuts datagrams into records, opens them with their epoch's keys, and dispatches the content.

use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;

use super::connection_id::OwnIds;
use super::epoch::EpochKey;
use super::replay::ReplayWindow;
use super::routability::{self, PathMessage};
use super::{Discarded, EARLY_EPOCH, HANDSHAKE_EPOCH, header12, header13, record_len};
use crate::address::Path;
use crate::error::{Error, Malformed, PeerMisbehaved};
use crate::flight::reassemble::{Origin, Reassembler, Taken, Terms};
use crate::flight::{RecordNumber, ack};
use crate::message::{self, Message, Reading};
use crate::protocol::Protocol;
use crate::schedule::keys::TrafficKeys;
use crate::time::Instant;
use crate::transport::Epoch;
use crate::wire::{AlertDescription, AlertLevel, ContentType, Field, HandshakeType, MAX_PLAINTEXT};

mod acks;
mod freeze;
mod queues;

use acks::Acks;
use queues::{Unopened, Unread};

/// The largest sequence number of an unprotected record with messages: far more than any handshake sends.
const MAX_PLAIN_SEQUENCE: u64 = 1 << 32;
/// How long the keys of the previous epoch stay after a change of keys, or after the last record under them:
/// twice the maximum segment lifetime of TCP (RFC 9147 §4.2.1, §5.8.1). A server so long acknowledges
/// repetitions of the client's last flight.
const KEEP_PREVIOUS_KEYS: Duration = Duration::from_secs(240);

/// The keys of one epoch of the peer's records.
struct ReadEpoch {
    number: u64,
    key: EpochKey,
    window: ReplayWindow,
    /// The number of records that did not open (RFC 9147 §4.5.3).
    forged: u64,
    /// Whether the peer was asked to replace the key.
    has_asked: bool,
}

/// The content of a record, except messages and data, which the receiver keeps.
pub(super) enum Received {
    Alert(AlertLevel, AlertDescription),
    /// An ACK of this side's records, received in this epoch.
    Ack(u64, Vec<RecordNumber>),
    /// A message about a path, over which it came in a record of this many bytes.
    Path(Path, usize, PathMessage),
    /// The path of a record about the port, whether it is the newest ([`ReceivedRecord`]), and its content.
    Port(Path, bool, Vec<u8>),
    /// Fragments of messages in an authentic record, which [`Receiver::next_record`] takes.
    Messages(RecordNumber, Vec<u8>),
    /// A copy of the end of the latest delivered message: unprotected, or in DTLS 1.2 also protected.
    Repeated,
    /// Application data, which the receiver keeps.
    Data,
    Nothing,
}

/// An authentic record.
pub(super) struct ReceivedRecord {
    /// The path over which it came.
    pub(super) path: Path,
    /// The length of the record, in bytes.
    pub(super) len: usize,
    pub(super) number: RecordNumber,
    /// Whether the record was received before, or is too old to tell.
    pub(super) is_copy: bool,
    /// Whether its number is the highest. Path messages do not count: they show no wish to move.
    pub(super) is_newest: bool,
}

/// When the latest datagram arrived, and the latest authentic record.
#[derive(Clone, Copy, Default)]
struct Times {
    now: Instant,
    heard_at: Instant,
    /// The seconds without authentic records before `heard_at`, if that is the time of a thaw; else zero.
    silent_before: u32,
}

impl Times {
    /// An authentic record has arrived in the latest datagram.
    const fn heard(&mut self) {
        (self.heard_at, self.silent_before) = (self.now, 0);
    }
}

pub(crate) struct Receiver {
    protocol: Protocol,
    /// This side's connection IDs. Protected records carry one of them.
    pub(super) ids: OwnIds,
    unopened: Unopened,
    /// The highest number of an authentic record about something else than paths.
    newest: RecordNumber,
    /// Whether both sides take part in return routability checks.
    pub(super) are_paths_checked: bool,
    /// Whether the first message number may exceed 0: this side forgets ClientHellos without a valid cookie.
    forgets: bool,
    /// The sequence number of the latest unprotected record with messages.
    plain_sequence: u64,
    /// The first unprotected fatal alert. It may be forged, so it counts only if nothing else arrives.
    plain_alert: Option<AlertDescription>,
    /// The previous and the current epoch. The receiver keeps the previous one, because the ACK of a
    /// KeyUpdate may get lost and records may arrive late (RFC 9147 §8).
    epochs: Vec<ReadEpoch>,
    /// When the keys of the previous epoch expire; `None` until the next datagram arrives.
    expiry: Option<Instant>,
    times: Times,
    messages: Reassembler,
    acks: Acks,
    unread: Unread,
    content_limit: usize,
    /// The record with the peer's close_notify.
    closed_by: Option<RecordNumber>,
    is_authentic: bool,
    /// Whether an authentic record has arrived since [`Self::forget_authentic`].
    is_newly_authentic: bool,
    /// Whether only the peer can send a record. Then unprotected errors and alerts count (RFC 9147 §4.5.2).
    is_unforgeable: bool,
    pub(super) discarded: Discarded,
}

impl Receiver {
    pub(super) fn new(is_unforgeable: bool) -> Self {
        Self {
            protocol: Protocol::Dtls13,
            ids: OwnIds::default(),
            unopened: Unopened::default(),
            newest: RecordNumber { epoch: 0, sequence: 0 },
            are_paths_checked: false,
            forgets: false,
            plain_sequence: 0,
            plain_alert: None,
            epochs: Vec::new(),
            expiry: None,
            times: Times::default(),
            messages: Reassembler::default(),
            acks: Acks::default(),
            unread: Unread::default(),
            content_limit: MAX_PLAINTEXT,
            closed_by: None,
            is_authentic: false,
            is_newly_authentic: false,
            is_unforgeable,
            discarded: Discarded::default(),
        }
    }

    /// The same receiver once more, before it has keys.
    #[cfg(feature = "association-ports")]
    pub(super) fn again(&self) -> Option<Self> {
        if !self.epochs.is_empty() {
            return None;
        }
        Some(Self {
            protocol: self.protocol,
            ids: OwnIds::offered(self.ids.len()),
            forgets: self.forgets,
            are_paths_checked: self.are_paths_checked,
            plain_sequence: self.plain_sequence,
            plain_alert: self.plain_alert,
            times: Times { silent_before: 0, ..self.times },
            messages: self.messages.clone(),
            content_limit: self.content_limit,
            discarded: self.discarded,
            ..Self::new(self.is_unforgeable)
        })
    }

    /// Cuts a datagram from `path` into records, up to bytes that are not a record (RFC 9147 §4.1, §4.5.2).
    pub(crate) fn push(&mut self, path: Path, datagram: &[u8]) {
        let mut rest = datagram;
        while !rest.is_empty() {
            let Some((record, others)) =
                record_len(rest, self.ids.len()).and_then(|len| rest.split_at_checked(len))
            else {
                self.discarded.malformed += 1;
                return;
            };
            rest = others;
            self.discarded.overflow += u64::from(!self.unopened.push(path, record));
        }
    }

    pub(super) fn discard_input(&mut self) {
        self.unopened = Unopened::default();
    }

    pub(super) const fn protocol(&self) -> Protocol {
        self.protocol
    }

    pub(super) const fn agree(&mut self, protocol: Protocol) {
        self.protocol = protocol;
    }

    /// Lets the first message have a higher number than 0.
    pub(super) const fn forget(&mut self) {
        self.forgets = true;
        self.messages.forget();
    }

    /// The sequence number of the latest unprotected record with messages.
    pub(super) const fn plain_sequence(&self) -> u64 {
        self.plain_sequence
    }

    /// The fatal alert that the peer seems to have sent in the clear.
    pub(super) const fn plain_alert(&self) -> Option<AlertDescription> {
        self.plain_alert
    }

    /// The data of the next record.
    pub(crate) fn read(&mut self) -> Option<Vec<u8>> {
        self.unread.pop()
    }

    pub(super) const fn limit(&mut self, content: usize) {
        self.content_limit = content;
    }

    pub(super) fn set_key(&mut self, epoch: Epoch, keys: &TrafficKeys) -> Result<(), Error> {
        let present = self.present();
        // RFC 8446 §5.1: no message spans a change of keys. But an attacker may have sent parts in the clear.
        let is_peers = present > 0 || self.is_unforgeable && self.messages.has_next();
        if is_peers && !self.messages.is_empty() {
            return Err(PeerMisbehaved::NotAlignedAtKeyChange.into());
        }
        self.messages.clear();
        let number = match epoch {
            // RFC 6347 §4.1: ChangeCipherSpec increments the epoch.
            _ if self.protocol.changes_cipher_spec() => present + 1,
            Epoch::Early => EARLY_EPOCH,
            Epoch::Handshake => HANDSHAKE_EPOCH,
            Epoch::Application => present + 1,
        };
        if self.epochs.len() > 1 {
            self.epochs.remove(0);
        }
        self.expiry = None;
        let key = EpochKey::new(keys)?;
        self.epochs.reserve_exact(1); // two at most; `push` alone makes room for four
        self.epochs.push(ReadEpoch {
            number,
            key,
            window: ReplayWindow::default(),
            forged: 0,
            has_asked: false,
        });
        self.unopened.take_early();
        Ok(())
    }

    /// Keeps a record of the next epoch until its keys are known: the network may reorder what a flight of
    /// the peer contains. After the handshake the peer uses new keys only when this side has acknowledged
    /// them (RFC 9147 §8), so such a record is not from the peer.
    fn keep_early(&mut self, path: Path, record: Vec<u8>) {
        let is_wanted = !self.protocol.has_data(self.present());
        let is_kept = is_wanted && self.unopened.push_early(path, record);
        self.discarded.no_keys += u64::from(!is_kept);
    }

    /// Whether every message of the peer was delivered, or did not arrive at all.
    pub(super) fn is_settled(&self) -> bool {
        self.messages.is_empty() && self.acks.are_all_delivered()
    }

    /// Drops records and whole messages that have not been processed.
    pub(super) fn drop_rest(&mut self) {
        self.discard_input();
        self.messages.drop_whole();
    }

    /// Drops the parts of messages whose rest has not come, and later messages. The peer has no ACK of them,
    /// so it sends them again when it is back (RFC 9147 §7), except to a patient connection.
    pub(super) fn drop_parts(&mut self) {
        self.messages.clear();
        self.acks.drop_undelivered();
    }

    /// Drops all keys.
    pub(super) fn end_silently(&mut self) {
        self.epochs = Vec::new();
    }

    /// The number of the current epoch.
    fn present(&self) -> u64 {
        self.epochs.last().map_or(0, |epoch| epoch.number)
    }

    /// The next whole message. Discards one in the clear for which `is_readable` is false: anyone can have
    /// sent it, and the peer's own message may still arrive (RFC 9147 §4.5.2, RFC 6347 §4.1.2.7).
    pub(super) fn next_message(&mut self, is_readable: &mut dyn FnMut(&Message) -> bool) -> Option<Message> {
        let is_forgeable = self.present() == 0 && !self.is_unforgeable;
        let discarded = &mut self.discarded;
        let message = self.messages.next_message(|message| {
            let is_taken = !is_forgeable || is_readable(message);
            discarded.malformed += u64::from(!is_taken);
            is_taken
        })?;
        // The peer has something else to say than what it seemed to say.
        self.plain_alert = None;
        self.acks.note_delivered(self.messages.next_number());
        Some(message)
    }

    /// The bytes that the receiver keeps of incomplete messages, or of messages after the next one.
    pub(super) fn kept_bytes(&self) -> usize {
        self.messages.received()
    }

    /// Whether a record with messages waits for its ACK; with `again`, even if an ACK had its number before.
    pub(super) const fn owes_ack(&self, again: bool) -> bool {
        self.acks.are_owed(again)
    }

    /// Whether the present keys have met half of the tolerable forged records. `true` only once an epoch.
    pub(super) fn wants_new_keys(&mut self) -> bool {
        let Some(epoch) = self.epochs.last_mut() else { return false };
        let wants = !epoch.has_asked && epoch.forged >= epoch.key.integrity_limit() / 2;
        epoch.has_asked |= wants;
        wants
    }

    /// Whether the peer has sent an authentic record, so it has received a flight of this side.
    pub(super) const fn is_authentic(&self) -> bool {
        self.is_authentic
    }

    /// The numbers of the records to acknowledge, in increasing order (RFC 9147 §7).
    pub(super) fn owed_acks(&mut self) -> &[RecordNumber] {
        self.acks.owed()
    }

    /// Takes these numbers out.
    pub(super) fn take_to_acknowledge(&mut self) -> Vec<RecordNumber> {
        self.acks.take()
    }

    /// The content of the next record; `None` if there are no more records. If it is authentic, `heard` says
    /// more of it. `established` says what this side can still read, once the handshake is complete, and
    /// `acks_parts` whether it acknowledges parts of messages then.
    pub(super) fn next_record(
        &mut self,
        heard: &mut Option<ReceivedRecord>,
        established: Option<&dyn Fn(HandshakeType) -> Reading>,
        acks_parts: bool,
    ) -> Result<Option<Received>, Error> {
        let Some((path, record)) = self.unopened.pop() else { return Ok(None) };
        let is_tls12 = self.protocol.changes_cipher_spec();
        let received = match header12::Header::read(&record, self.ids.len()) {
            Some(header) if !header12::Header::begins_with(header.typ.0) => {
                if is_tls12 {
                    self.malformed()
                } else {
                    self.open13(path, record, heard)?
                }
            }
            Some(header) if header.epoch == 0 => self.plain(&header, &record)?,
            Some(header) if is_tls12 || self.epochs.is_empty() => {
                self.open12(&header, path, record, heard)?
            }
            Some(_) => self.misplaced(),
            None => self.open13(path, record, heard)?,
        };
        let Received::Messages(number, content) = received else { return Ok(Some(received)) };
        let is_present = number.epoch == self.present();
        // The peer's handshake may be complete before this side's, which waits for a signature.
        let is_established = self.protocol.has_acks() && self.protocol.has_data(number.epoch);
        let any: &dyn Fn(HandshakeType) -> Reading = &|typ| Reading::Body(message::limit(typ));
        let established = established.or(is_established.then_some(any));
        let terms = Terms { origin: Origin::Peer, is_present, established };
        let taken = self.messages.insert(&content, terms)?;
        if self.protocol.has_acks() {
            self.acks.note(if acks_parts && taken != Taken::NotAll { Taken::All } else { taken }, number);
        } else if self.messages.take_repeated() {
            return Ok(Some(Received::Repeated));
        }
        Ok(Some(Received::Nothing))
    }

    const fn malformed(&mut self) -> Received {
        self.discarded.malformed += 1;
        Received::Nothing
    }

    const fn misplaced(&mut self) -> Received {
        self.discarded.misplaced += 1;
        Received::Nothing
    }

    /// Takes hellos, and in DTLS 1.2 other messages in the clear, from an unprotected record. Once this side
    /// has keys for the peer's records, it only notices repeated messages, until the first authentic record.
    /// It remembers an alert, and ignores unprotected ACKs, by which an attacker could delay the handshake.
    fn plain(&mut self, header: &header12::Header, record: &[u8]) -> Result<Received, Error> {
        let content = record.get(header12::LEN..).unwrap_or_default();
        let is_present = self.present() == 0;
        if let (ContentType::ALERT, [level, description]) = (header.typ, content)
            && AlertLevel(*level) == AlertLevel::FATAL
            && !self.is_authentic
        {
            if self.is_unforgeable {
                return Ok(Received::Alert(AlertLevel::FATAL, AlertDescription(*description)));
            }
            self.plain_alert.get_or_insert(AlertDescription(*description));
        } else if header.typ == ContentType::CHANGE_CIPHER_SPEC && self.protocol.changes_cipher_spec() {
            // RFC 5246 §7.1: the message is a single byte of value 1.
            if self.is_unforgeable && content != [1] {
                return Err(PeerMisbehaved::UnexpectedRecord(Field::Record(header.typ)).into());
            }
            // RFC 6347 §4.1: the epoch of the next record says the same. Nothing protects this record.
        } else if header.sequence > MAX_PLAIN_SEQUENCE && !self.is_unforgeable {
            // A server continues the client's unprotected numbers. A forged one must not use them up.
            return Ok(self.malformed());
        } else if header.typ != ContentType::HANDSHAKE || self.is_authentic {
            return if self.is_unforgeable { self.unforged(header, content) } else { Ok(self.misplaced()) };
        } else {
            let origin = if self.is_unforgeable { Origin::Peer } else { Origin::Anyone };
            match self.messages.insert(content, Terms { origin, is_present, established: None }) {
                Err(e) if self.is_unforgeable => return Err(e),
                Err(_) => return Ok(if is_present { self.malformed() } else { self.misplaced() }),
                Ok(taken) if self.is_unforgeable => {
                    self.acks.note(taken, RecordNumber { epoch: 0, sequence: header.sequence });
                }
                Ok(_) => {}
            }
            if self.messages.take_repeated() {
                return Ok(Received::Repeated);
            }
            self.plain_sequence = header.sequence;
        }
        Ok(Received::Nothing)
    }

    pub(super) const fn is_unforgeable(&self) -> bool {
        self.is_unforgeable
    }

    /// Whether an ACK may leave in the clear: no stranger can forge it, and the peer's first message is here.
    pub(super) const fn acknowledges_plain(&self) -> bool {
        self.is_unforgeable && !self.forgets && self.messages.has_delivered()
    }

    /// A datagram arrives now.
    pub(super) fn arrive(&mut self, now: Instant) {
        self.times.now = now;
        self.expire_keys(now);
    }

    /// The time of the latest authentic record or of the thaw, and how long before that none had arrived.
    pub(super) fn heard_at(&self) -> (Instant, Duration) {
        (self.times.heard_at, Duration::from_secs(self.times.silent_before.into()))
    }

    /// Begins to look for the next authentic record that is not a copy.
    #[cfg(feature = "association-ports")]
    pub(super) const fn forget_authentic(&mut self) {
        self.is_newly_authentic = false;
    }

    /// Whether such a record has arrived since then.
    #[cfg(feature = "association-ports")]
    pub(super) const fn is_newly_authentic(&self) -> bool {
        self.is_newly_authentic
    }

    /// Whether a key is expanded.
    pub(super) fn is_awake(&self) -> bool {
        self.epochs.iter().any(|epoch| epoch.key.is_awake())
    }

    /// Drops the expanded keys until the next record.
    pub(super) fn rest(&mut self) {
        self.epochs.iter_mut().for_each(|epoch| epoch.key.rest());
        self.epochs.shrink_to_fit();
    }

    /// Whether the keys of the previous epoch may expire. RFC 9147 §8: after a KeyUpdate, only once a record
    /// under the new keys has arrived, since the ACK of the KeyUpdate may be lost.
    fn may_expire_keys(&self) -> bool {
        let newest = if self.epochs.len() > 1 { self.epochs.last() } else { None };
        newest.is_some_and(|epoch| epoch.number <= HANDSHAKE_EPOCH + 1 || epoch.window.expected() > 0)
    }

    /// When the keys of the previous epoch are too old; `None` without any that may expire.
    pub(super) fn keys_expiry(&self) -> Option<Instant> {
        let may_expire = self.may_expire_keys();
        may_expire.then(|| self.expiry.unwrap_or(self.times.now + KEEP_PREVIOUS_KEYS))
    }

    /// Drops the keys of the previous epoch when they are too old.
    pub(super) fn expire_keys(&mut self, now: Instant) {
        if self.may_expire_keys() && now >= *self.expiry.get_or_insert(self.times.now + KEEP_PREVIOUS_KEYS) {
            self.epochs.remove(0);
            self.epochs.shrink_to_fit();
            self.expiry = None;
        }
    }

    /// Processes an unprotected record that only the peer can have sent, and that has no messages. RFC 9147
    /// §7: hellos may be acknowledged in the clear.
    fn unforged(&mut self, header: &header12::Header, content: &[u8]) -> Result<Received, Error> {
        match header.typ {
            ContentType::ACK if self.messages.has_delivered() && self.protocol.has_acks() => {
                acknowledgement(RecordNumber { epoch: 0, sequence: header.sequence }, content)
            }
            _ if self.is_authentic => Ok(self.misplaced()),
            ContentType::APPLICATION_DATA => {
                Err(PeerMisbehaved::UnexpectedRecord(Field::Record(header.typ)).into())
            }
            _ => Ok(self.misplaced()),
        }
    }

    /// Opens a protected record of DTLS 1.2.
    fn open12(
        &mut self,
        header: &header12::Header,
        path: Path,
        mut record: Vec<u8>,
        heard: &mut Option<ReceivedRecord>,
    ) -> Result<Received, Error> {
        // RFC 9146 §3: with a connection ID, every protected record has this type, and this side's ID.
        let has_id = header.typ == ContentType::TLS12_CID;
        let Some(epoch) = self.epochs.iter_mut().rfind(|epoch| epoch.number == header.epoch) else {
            if header.epoch == self.present() + 1 {
                self.keep_early(path, record);
            } else {
                self.discarded.no_keys += 1;
            }
            return Ok(Received::Nothing);
        };
        if has_id != self.ids.are_used() || !self.ids.fit(header.id(&record)) {
            return Ok(self.misplaced());
        }
        epoch.key.wake()?;
        let Ok(plaintext) = epoch.key.open12(header, &mut record) else { return self.forged(header.epoch) };
        let number = RecordNumber { epoch: header.epoch, sequence: header.sequence };
        if number > self.newest {
            self.ids.received(header.id(&record));
        }
        let typ = (!has_id).then_some(header.typ);
        self.opened(number, typ, (path, record), plaintext, heard)
    }

    /// Opens a protected record of DTLS 1.3.
    fn open13(
        &mut self,
        path: Path,
        mut record: Vec<u8>,
        heard: &mut Option<ReceivedRecord>,
    ) -> Result<Received, Error> {
        let Some(header) = header13::Header::read(&record, self.ids.len()) else {
            return Ok(self.malformed());
        };
        // RFC 9147 §4.2.2: the most recent epoch with these bits.
        let Some(epoch) = self.epochs.iter_mut().rfind(|epoch| header.is_of(epoch.number)) else {
            if header.is_of(self.present().max(HANDSHAKE_EPOCH - 1) + 1) {
                self.keep_early(path, record);
            } else {
                self.discarded.no_keys += 1;
            }
            return Ok(Received::Nothing);
        };
        // RFC 9147 §9: with a connection ID, every datagram carries it.
        if !self.ids.fit(header.id(&record)) {
            return Ok(self.misplaced());
        }
        let of_epoch = epoch.number;
        let expected = epoch.window.expected();
        epoch.key.wake()?;
        let Ok((sequence, plaintext)) = epoch.key.open13(expected, &header, &mut record) else {
            return self.forged(of_epoch);
        };
        let number = RecordNumber { epoch: of_epoch, sequence };
        if number > self.newest {
            self.ids.received(header.id(&record));
        }
        self.opened(number, None, (path, record), plaintext, heard)
    }

    /// Counts a record that did not open. RFC 9147 §4.5.3: too many forged records end the use of a key, and
    /// with the present key the connection.
    fn forged(&mut self, number: u64) -> Result<Received, Error> {
        self.discarded.unauthenticated += 1;
        let present = self.present();
        let Some(epoch) = self.epochs.iter_mut().rfind(|epoch| epoch.number == number) else {
            return Ok(Received::Nothing);
        };
        epoch.forged = epoch.forged.saturating_add(1);
        if epoch.forged >= epoch.key.integrity_limit() {
            if number == present {
                return Err(PeerMisbehaved::Flood(Field::UndecryptableRecords).into());
            }
            self.epochs.retain(|epoch| epoch.number != number);
        }
        Ok(Received::Nothing)
    }

    /// Takes the content out of a record that opened. Its type is encrypted, if `shown` is `None`.
    fn opened(
        &mut self,
        number: RecordNumber,
        shown: Option<ContentType>,
        (path, mut record): (Path, Vec<u8>),
        plaintext: Range<usize>,
        heard: &mut Option<ReceivedRecord>,
    ) -> Result<Received, Error> {
        self.is_authentic = true;
        let len = record.len();
        let epoch = self.epochs.iter_mut().rfind(|epoch| epoch.number == number.epoch);
        // RFC 9147 §4.5.1: check for replay only after decryption: timing must not reveal the number.
        if !epoch.is_some_and(|epoch| epoch.window.accept(number.sequence)) {
            self.discarded.replayed += 1;
            *heard = Some(ReceivedRecord { path, len, number, is_copy: true, is_newest: false });
            return Ok(Received::Nothing);
        }
        self.is_newly_authentic = true;
        self.times.heard();
        if number.epoch < self.present() {
            // The peer still uses the previous keys, perhaps because the ACK of its last flight was lost.
            self.expiry = Some(self.times.now + KEEP_PREVIOUS_KEYS);
        }
        // RFC 9147 §5.10: data after close_notify "MUST be ignored". Earlier records may arrive after it.
        if self.closed_by.is_some_and(|closed| number > closed) {
            return Ok(self.misplaced());
        }
        record.truncate(plaintext.end);
        record.drain(..plaintext.start);
        let limit = self.content_limit + usize::from(shown.is_none());
        // RFC 9147 §4, RFC 9146 §4: `DTLSInnerPlaintext` is content, type, zeros.
        let typ = shown.unwrap_or_else(|| {
            let len = record.iter().rposition(|byte| *byte != 0).unwrap_or(0);
            let typ = record.get(len).copied().unwrap_or(0);
            record.truncate(len);
            ContentType(typ)
        });
        let is_newest = number > self.newest && typ != ContentType::RETURN_ROUTABILITY_CHECK;
        if is_newest {
            self.newest = number;
        }
        *heard = Some(ReceivedRecord { path, len, number, is_copy: false, is_newest });
        // RFC 8446 §5.4, §5.2: the peer has protected these records, so they are not damaged but wrong.
        if plaintext.len() > MAX_PLAINTEXT + usize::from(shown.is_none()) {
            return Err(PeerMisbehaved::RecordOverflow.into());
        }
        if typ.0 == 0 {
            return Err(PeerMisbehaved::UnexpectedRecord(Field::Zeros).into());
        }
        // RFC 8449 §4 allows discarding records above the limit.
        if plaintext.len() > limit {
            return Ok(self.malformed());
        }
        self.dispatch(number, typ, (path, len), record)
    }

    /// The highest number of an authentic record about something else than paths.
    pub(super) const fn newest(&self) -> RecordNumber {
        self.newest
    }

    /// Processes an authentic record. An error in it is the peer's fault (RFC 9147 §4.5.2).
    fn dispatch(
        &mut self,
        number: RecordNumber,
        typ: ContentType,
        (path, len): (Path, usize),
        content: Vec<u8>,
    ) -> Result<Received, Error> {
        match typ {
            // RFC 8446 §5.4: an empty record of either type is unexpected_message.
            ContentType::HANDSHAKE | ContentType::ALERT if content.is_empty() => {
                Err(PeerMisbehaved::EmptyRecord.into())
            }
            ContentType::HANDSHAKE => Ok(Received::Messages(number, content)),
            ContentType::ALERT => {
                let [level, description] = content[..] else {
                    return Err(Malformed::Length(Field::Alert).into());
                };
                let description = AlertDescription(description);
                if description == AlertDescription::CLOSE_NOTIFY {
                    self.closed_by = Some(number);
                }
                Ok(Received::Alert(AlertLevel(level), description))
            }
            ContentType::ACK if self.protocol.has_acks() => acknowledgement(number, &content),
            // RFC 9853 §3: only after both sides have agreed to it.
            ContentType::RETURN_ROUTABILITY_CHECK
                if self.are_paths_checked && self.protocol.has_data(number.epoch) =>
            {
                let message = routability::read(&content)?;
                Ok(message.map_or(Received::Nothing, |message| Received::Path(path, len, message)))
            }
            ContentType::ASSOCIATION_PORT if self.protocol.has_data(number.epoch) => {
                Ok(Received::Port(path, number == self.newest, content))
            }
            ContentType::APPLICATION_DATA if self.protocol.has_data(number.epoch) => {
                self.discarded.overflow += u64::from(!self.unread.push(content));
                Ok(Received::Data)
            }
            _ => Err(PeerMisbehaved::UnexpectedRecord(Field::Record(typ)).into()),
        }
    }
}

/// Reads an ACK from the record with this number.
fn acknowledgement(number: RecordNumber, content: &[u8]) -> Result<Received, Error> {
    let numbers = ack::read(content)?;
    // RFC 9147 §7: an ACK must be protected at least as well as the records it acknowledges. All generations
    // of application keys count as equal here, because each direction has its own.
    let stage = |number: &RecordNumber| number.epoch.min(HANDSHAKE_EPOCH + 1);
    if numbers.iter().any(|acknowledged| stage(acknowledged) > stage(&number)) {
        return Err(PeerMisbehaved::IllegalParameter(Field::RecordNumbers).into());
    }
    Ok(Received::Ack(number.epoch, numbers))
}
