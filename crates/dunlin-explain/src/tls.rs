//! TLS records in one direction of a stream (RFC 8446 §5, RFC 5246 §6.2).

use std::collections::VecDeque;

use dunlin::Side;
use dunlin::dissect::{Opened, StreamKeys};
use dunlin::wire::{ContentType, HandshakeType};

use crate::content::{self, Joiner};
use crate::lines::Lines;
use crate::model::{Part, Protection, Record};
use crate::session::Session;
use crate::tls12;

/// Type, version and length.
const HEADER: usize = 5;
/// The longest body that any version allows, in bytes (RFC 5246 §6.2.3).
const MAX_BODY: usize = (1 << 14) + 2048;
/// The number of unencrypted handshake bytes in which hellos are looked for.
const MAX_HELLOS: usize = 256 * 1024;

/// The type and the length of the body, if `bytes` begin with a record header.
pub(crate) fn header(bytes: &[u8]) -> Option<(ContentType, usize)> {
    let [typ, major, _, a, b] = bytes.first_chunk::<HEADER>()?;
    let len = usize::from(u16::from_be_bytes([*a, *b]));
    // 24 is heartbeat (RFC 6520).
    (matches!(typ, 20..=24) && *major == 3 && len <= MAX_BODY).then_some((ContentType(*typ), len))
}

/// The offset of the first record in a direction whose beginning was not captured. A header counts if its
/// record is followed by another header or by the end of the stream.
pub(crate) fn first_record(stream: &[u8]) -> Option<usize> {
    (0..stream.len().min(HEADER + MAX_BODY)).find(|at| {
        let rest = stream.get(*at..).unwrap_or_default();
        header(rest)
            .and_then(|(_, len)| rest.get(HEADER + len..))
            .is_some_and(|next| next.is_empty() || header(next).is_some())
    })
}

/// The unencrypted handshake bytes at the beginning of a direction.
pub(crate) fn plain_handshake(mut stream: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    while let Some((typ, len)) = header(stream) {
        let Some(body) = stream.get(HEADER..HEADER + len) else { break };
        match typ {
            ContentType::HANDSHAKE if plain.len() < MAX_HELLOS => plain.extend_from_slice(body),
            // Skip the ChangeCipherSpec of compatibility mode (RFC 8446 §D.4), and early data before
            // ClientHello2.
            ContentType::CHANGE_CIPHER_SPEC | ContentType::APPLICATION_DATA => {}
            _ => break,
        }
        stream = stream.get(HEADER + len..).unwrap_or_default();
    }
    plain
}

/// The dissection of a direction.
pub(crate) struct Direction {
    /// The records, each with the offset of its last byte.
    pub(crate) records: Vec<(usize, Record)>,
    /// The number of bytes at the end that were not read, and why.
    pub(crate) rest: Option<(usize, &'static str)>,
    /// The number of bytes of an incomplete handshake message at the end.
    pub(crate) incomplete: usize,
    /// How many records could not be decrypted.
    pub(crate) sealed: usize,
}

/// Dissects a direction and decrypts its records in place, until `lines` are used up.
pub(crate) fn dissect(session: &Session<'_>, side: Side, stream: &mut [u8], lines: &mut Lines) -> Direction {
    let mut reader = Reader::new(session, side);
    let mut direction = Direction { records: Vec::new(), rest: None, incomplete: 0, sealed: 0 };
    let len = stream.len();
    let mut rest = stream;
    while !rest.is_empty() {
        let at = len - rest.len();
        let found = header(rest).map(|(typ, body)| (typ, HEADER + body));
        let (typ, whole) = match found {
            Some((typ, whole)) if whole <= rest.len() && lines.are_left() => (typ, whole),
            found => {
                let why = match found {
                    None if rest.len() >= HEADER && at == 0 => "the stream is not TLS",
                    None if rest.len() >= HEADER => "a record header is malformed",
                    Some((_, whole)) if whole <= rest.len() => "there are too many records to list",
                    _ => "the stream ends in the middle of a record",
                };
                direction.rest = Some((rest.len(), why));
                break;
            }
        };
        let (record, after) = rest.split_at_mut(whole);
        rest = after;
        let record = reader.record(typ, record);
        lines.spend(&record);
        direction.sealed += usize::from(record.protection == Protection::Sealed);
        direction.records.push((at + whole - 1, record));
    }
    direction.incomplete = reader.messages.incomplete();
    direction
}

/// The state of one direction.
struct Reader<'s> {
    session: &'s Session<'s>,
    side: Side,
    keys: Keys,
    messages: Joiner,
    /// TLS 1.2: whether a ChangeCipherSpec came, after which every record is protected (RFC 5246 §7.1).
    changed: bool,
    /// The TLS 1.2 keys, and the sequence number of the next record (RFC 5246 §6.1).
    keys12: Option<tls12::Keys>,
    number12: u64,
}

impl<'s> Reader<'s> {
    fn new(session: &'s Session<'s>, side: Side) -> Self {
        Self {
            session,
            side,
            keys: Keys::new(session, side),
            messages: Joiner::default(),
            changed: false,
            keys12: session.keys12(side),
            number12: 0,
        }
    }

    fn record(&mut self, typ: ContentType, bytes: &mut [u8]) -> Record {
        let is_13 = self.session.is_13();
        let (header, body) = bytes.split_at_mut(HEADER);
        let mut record = Record::new(self.side, content::type_name(typ), HEADER);
        let unknown = self.session.version().is_none();
        // In TLS 1.3 every protected record has the outer type application_data (RFC 8446 §5.2). Where the
        // hellos are missing, application data cannot be plaintext either.
        let is_data = typ == ContentType::APPLICATION_DATA;
        let is_protected = if is_13 || unknown { is_data || self.changed } else { self.changed };
        if !is_protected {
            if typ == ContentType::CHANGE_CIPHER_SPEC && !is_13 {
                self.changed = true;
            }
            record.parts = self.parts(typ, body);
            return record;
        }
        let opened = if is_13 { self.keys.open(header, body) } else { self.open12(typ, header, body) };
        if let Some(opened) = opened {
            record.protection = Protection::Opened;
            record.protection_bytes = body.len() - opened.content.len();
            record.number = Some(opened.number);
            record.parts = self.parts(opened.typ, body.get(opened.content).unwrap_or_default());
            return record;
        }
        self.messages.reset();
        let overhead = if is_13 { None } else { self.session.overhead12() };
        content::seal(&mut record, typ, body.len(), overhead);
        record
    }

    fn open12(&mut self, typ: ContentType, header: &[u8], body: &mut [u8]) -> Option<Opened> {
        let number = self.number12;
        self.number12 += 1;
        let version = *header.get(1..)?.first_chunk()?;
        let content = self.keys12.as_ref()?.open(number, typ, version, body)?;
        Some(Opened { typ, content, number })
    }

    fn parts(&mut self, typ: ContentType, content: &[u8]) -> Vec<Part> {
        if typ != ContentType::HANDSHAKE {
            return vec![content::plain(typ, content)];
        }
        let parts = self.messages.take(content, self.session.dialect());
        // Records after a KeyUpdate use the next keys (RFC 8446 §7.2).
        for part in &parts {
            if part.message_bytes.is_some() && part.handshake_type == Some(HandshakeType::KEY_UPDATE.0) {
                self.keys.update();
            }
        }
        parts
    }
}

/// The keys of a direction, the current ones first. If they do not decrypt a record, later keys are tried,
/// since it may be their first. So decryption resumes after refused early data, or after a stage whose secret
/// the key log lacks.
struct Keys {
    stages: VecDeque<StreamKeys>,
    /// The sequence number of the next record under the current keys.
    number: u64,
}

impl Keys {
    fn new(session: &Session<'_>, side: Side) -> Self {
        let keys = session.secrets(side).into_iter();
        let stages = keys.filter_map(|(suite, _, secret)| StreamKeys::new(suite, secret).ok()).collect();
        Self { stages, number: 0 }
    }

    /// Decrypts a record in place.
    fn open(&mut self, header: &[u8], body: &mut [u8]) -> Option<Opened> {
        let mut number = self.number;
        for (stage, keys) in self.stages.iter().enumerate() {
            // A failed attempt overwrites the bytes.
            let mut copy = body.to_vec();
            if let Ok(opened) = keys.open(number, header, &mut copy) {
                body.copy_from_slice(&copy);
                self.stages.drain(..stage);
                self.number = number + 1;
                return Some(opened);
            }
            number = 0;
        }
        None
    }

    fn update(&mut self) {
        if let Some(next) = self.stages.front().and_then(|keys| keys.next().ok()) {
            self.stages[0] = next;
            self.number = 0;
        }
    }
}
