//! DTLS records in datagrams: DTLS 1.2 and earlier (RFC 6347 §4.1), DTLS 1.3 (RFC 9147 §4), both also with
//! connection IDs (RFC 9146).

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use dunlin::Side;
use dunlin::dissect::{DatagramKeys, Opened};
use dunlin::wire::{ContentType, HandshakeType};

use crate::bytes::Layer;
use crate::content;
use crate::lines::Lines;
use crate::message::{self, Dialect};
use crate::model::{Part, Protection, Record};
use crate::session::Session;
use crate::tls12;

/// Type, version, epoch, sequence number and length.
const PLAIN_HEADER: usize = 13;
/// The position of the length in this header, and of a connection ID before it.
const LENGTH_AT: usize = 11;
/// The type of protected records with a connection ID before DTLS 1.3 (RFC 9146 §4).
const TLS12_CID: ContentType = ContentType(25);
/// The longest body that any version allows, in bytes (RFC 6347 §4.1).
const MAX_BODY: usize = (1 << 14) + 2048;
/// Message type, message length, message_seq, fragment_offset and fragment_length (RFC 9147 §5.2).
const FRAGMENT_HEADER: usize = 12;

/// The header of a record.
#[derive(Clone, Copy)]
struct Header {
    typ: ContentType,
    /// The epoch. A unified header gives only its two low bits.
    epoch: u64,
    number: Option<u64>,
    len: usize,
    body: usize,
    /// The position and the length of the connection ID.
    id: (usize, usize),
    is_unified: bool,
}

fn number(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |number, byte| number << 8 | usize::from(*byte))
}

impl Header {
    /// Reads the header of a record. Only the hellos tell the length of connection IDs: `id_len`, 0 without
    /// IDs.
    fn read(bytes: &[u8], id_len: usize) -> Option<Self> {
        let header = match bytes.first()? {
            // RFC 9147 §4.1.
            first if first & 0b1110_0000 == 0b0010_0000 => Self::unified(bytes, id_len)?,
            _ => Self::plain(bytes, id_len)?,
        };
        (header.body <= MAX_BODY && header.len + header.body <= bytes.len()).then_some(header)
    }

    /// Reads the header of `DTLSPlaintext`, and of `DTLSCiphertext` before DTLS 1.3.
    fn plain(bytes: &[u8], id_len: usize) -> Option<Self> {
        let typ = ContentType(*bytes.first()?);
        let id_len = if typ == TLS12_CID { Some(id_len).filter(|len| *len > 0)? } else { 0 };
        let header = bytes.get(..PLAIN_HEADER + id_len)?;
        let is_dtls = matches!(header, [20..=26 | 30, 0xfe, 0xfc | 0xfd | 0xff, ..]);
        is_dtls.then(|| Self {
            typ,
            epoch: number(&header[3..5]) as u64,
            number: Some(number(&header[5..LENGTH_AT]) as u64),
            len: header.len(),
            body: number(&header[LENGTH_AT + id_len..]),
            id: (LENGTH_AT, id_len),
            is_unified: false,
        })
    }

    /// Reads a unified header (RFC 9147 §4).
    fn unified(bytes: &[u8], id_len: usize) -> Option<Self> {
        let flags = *bytes.first()?;
        let id_len = match flags & 0b0001_0000 {
            0 => 0,
            _ => Some(id_len).filter(|len| *len > 0)?,
        };
        let before = 1 + id_len + if flags & 0b0000_1000 == 0 { 1 } else { 2 };
        let (len, body) = match flags & 0b0000_0100 {
            0 => (before, bytes.len().checked_sub(before)?),
            _ => (before + 2, number(bytes.get(before..before + 2)?)),
        };
        let typ = ContentType::APPLICATION_DATA;
        let epoch = u64::from(flags & 0b11);
        Some(Self { typ, epoch, number: None, len, body, id: (1, id_len), is_unified: true })
    }

    /// The connection ID of `record`, which begins with this header; empty without one.
    fn id<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        let (at, len) = self.id;
        record.get(at..at + len).unwrap_or_default()
    }
}

/// Whether a datagram certainly begins with a DTLS record. A unified header is too short to be sure.
pub(crate) fn begins(datagram: &[u8]) -> bool {
    let is_plain = Header::read(datagram, 0).is_some_and(|header| !header.is_unified);
    // Without the hellos, a record with a connection ID cannot be read, but recognised.
    is_plain || matches!(datagram, [25, 0xfe, 0xfd, ..] if datagram.len() > PLAIN_HEADER)
}

/// The unencrypted handshake fragment at the beginning of a datagram.
fn first_fragment(datagram: &[u8]) -> Option<Fragment<'_>> {
    let header = Header::read(datagram, 0).filter(|h| h.typ == ContentType::HANDSHAKE && h.epoch == 0)?;
    Fragment::read(&mut datagram.get(header.len..header.len + header.body)?)
}

/// Whether a datagram begins with a ClientHello.
pub(crate) fn is_client_hello(datagram: &[u8]) -> bool {
    first_fragment(datagram).is_some_and(|fragment| fragment.typ == HandshakeType::CLIENT_HELLO)
}

/// Whether a datagram begins with a ServerHello.
pub(crate) fn is_server_hello(datagram: &[u8]) -> bool {
    first_fragment(datagram).is_some_and(|fragment| fragment.typ == HandshakeType::SERVER_HELLO)
}

/// The random of the ClientHello at the beginning of a datagram. A new random means a new association.
pub(crate) fn client_random(datagram: &[u8]) -> Option<[u8; 32]> {
    first_fragment(datagram)
        .filter(|fragment| fragment.typ == HandshakeType::CLIENT_HELLO && fragment.offset == 0)
        .and_then(|fragment| message::client_random(fragment.body))
}

/// Enters the hellos of one direction into the session.
pub(crate) fn read_hellos<'a>(session: &mut Session<'_>, datagrams: impl Iterator<Item = &'a [u8]>) {
    let mut messages = Messages::default();
    for mut rest in datagrams {
        while let Some(header) = Header::read(rest, 0) {
            let (record, after) = rest.split_at(header.len + header.body);
            rest = after;
            if header.is_unified || header.epoch != 0 || header.typ != ContentType::HANDSHAKE {
                continue;
            }
            let mut content = record.get(header.len..).unwrap_or_default();
            while let Some(fragment) = Fragment::read(&mut content) {
                match (fragment.typ, messages.take(&fragment)) {
                    (HandshakeType::CLIENT_HELLO, Some(body)) => session.client_hello(&body),
                    (HandshakeType::SERVER_HELLO, Some(body)) => session.server_hello(&body),
                    _ => {}
                }
            }
        }
    }
}

/// One direction of an association.
pub(crate) struct Direction<'s> {
    session: &'s Session<'s>,
    side: Side,
    keys: Vec<Epoch>,
    keys12: Option<tls12::Keys>,
    messages: Messages,
    /// The connection IDs in its records so far.
    ids: HashSet<Vec<u8>>,
    /// How many records could not be decrypted.
    pub(crate) sealed: usize,
}

/// The most connection IDs that are remembered to recognise datagrams from another address.
const MAX_IDS: usize = 256;

/// The keys of an epoch, and the sequence number expected next.
struct Epoch {
    number: u64,
    keys: DatagramKeys,
    expected: u64,
}

impl<'s> Direction<'s> {
    pub(crate) fn new(session: &'s Session<'s>, side: Side) -> Self {
        let keys = session.secrets(side).into_iter().filter_map(|(suite, number, secret)| {
            let keys = DatagramKeys::new(suite, secret).ok()?;
            Some(Epoch { number, keys, expected: 0 })
        });
        let keys = keys.collect();
        let keys12 = session.keys12(side);
        Self { session, side, keys, keys12, messages: Messages::default(), ids: HashSet::new(), sealed: 0 }
    }

    /// The records of a datagram, and the number of bytes at its end that are not a record.
    pub(crate) fn datagram(&mut self, datagram: &[u8], lines: &mut Lines) -> (Vec<Record>, usize) {
        let mut records = Vec::new();
        let mut rest = datagram;
        while lines.are_left()
            && let Some(header) = Header::read(rest, self.session.id_len(self.side))
        {
            let (bytes, after) = rest.split_at(header.len + header.body);
            rest = after;
            let record = self.record(header, bytes);
            lines.spend(&record);
            self.sealed += usize::from(record.protection == Protection::Sealed);
            records.push(record);
        }
        (records, rest.len())
    }

    /// Whether a datagram from another address belongs to this direction: its first record has a connection
    /// ID that is known, or it can be decrypted.
    pub(crate) fn owns(&mut self, datagram: &[u8]) -> bool {
        let header = Header::read(datagram, self.session.id_len(self.side));
        let Some(header) = header.filter(|header| header.is_unified || header.epoch > 0) else {
            return false;
        };
        let (record, _) = datagram.split_at(header.len + header.body);
        let opens = |this: &mut Self| {
            if header.is_unified {
                this.open(header, record).is_some()
            } else {
                this.open12(header, record).is_some()
            }
        };
        self.ids.contains(header.id(record)) || opens(self)
    }

    fn record(&mut self, header: Header, bytes: &[u8]) -> Record {
        let id = header.id(bytes);
        if !id.is_empty() && self.ids.len() < MAX_IDS && !self.ids.contains(id) {
            self.ids.insert(id.to_vec());
        }
        let name = if header.is_unified { "unified".into() } else { content::type_name(header.typ) };
        let mut record = Record::new(self.side, name, header.len);
        record.epoch = Some(header.epoch);
        record.number = header.number;
        record.connection_id = Some(header.id(bytes)).filter(|id| !id.is_empty()).map(message::hex);
        if header.is_unified {
            if let Some((epoch, opened, bytes)) = self.open(header, bytes) {
                record.epoch = Some(epoch);
                record.number = Some(opened.number);
                record.protection = Protection::Opened;
                record.protection_bytes = header.body - opened.content.len();
                record.parts = self.parts(opened.typ, bytes.get(opened.content).unwrap_or_default());
            } else {
                content::seal(&mut record, header.typ, header.body, None);
            }
        } else if header.epoch == 0 {
            record.parts = self.parts(header.typ, bytes.get(header.len..).unwrap_or_default());
        } else if let Some((typ, content, bytes)) = self.open12(header, bytes) {
            record.protection = Protection::Opened;
            record.protection_bytes = header.body - content.len();
            record.parts = self.parts(typ, bytes.get(content).unwrap_or_default());
        } else {
            // A connection ID hides the type, and the padding.
            let overhead = if header.typ != TLS12_CID { self.session.overhead12() } else { None };
            content::seal(&mut record, header.typ, header.body, overhead);
        }
        record
    }

    /// Decrypts a record: its epoch, its content, and the decrypted bytes. It tries the newest epoch with the
    /// same low bits first (RFC 9147 §4.2.2).
    fn open(&mut self, header: Header, bytes: &[u8]) -> Option<(u64, Opened, Vec<u8>)> {
        self.keys.iter_mut().rev().filter(|epoch| epoch.number & 0b11 == header.epoch).find_map(|epoch| {
            let mut copy = bytes.to_vec();
            let opened = epoch.keys.open(epoch.expected, header.id.1, &mut copy).ok()?;
            epoch.expected = epoch.expected.max(opened.number + 1);
            Some((epoch.number, opened, copy))
        })
    }

    /// Decrypts a DTLS 1.2 record of epoch 1, the only one with known keys: its type, the range of its
    /// content, and its bytes.
    fn open12(&self, header: Header, bytes: &[u8]) -> Option<(ContentType, Range<usize>, Vec<u8>)> {
        let keys = self.keys12.as_ref().filter(|_| header.epoch == 1)?;
        // The AEAD's number is the epoch followed by the sequence number (RFC 6347 §4.1.2.1).
        let number = header.epoch << 48 | header.number?;
        let version = *bytes.get(1..)?.first_chunk()?;
        let mut body = bytes.get(header.len..)?.to_vec();
        let (typ, content) = match header.typ {
            TLS12_CID => keys.open_with_id(number, version, header.id(bytes), &mut body)?,
            typ => (typ, keys.open(number, typ, version, &mut body)?),
        };
        Some((typ, content, body))
    }

    fn parts(&mut self, typ: ContentType, mut content: &[u8]) -> Vec<Part> {
        if typ != ContentType::HANDSHAKE {
            return vec![content::plain(typ, content)];
        }
        let mut parts = Vec::new();
        while let Some(fragment) = Fragment::read(&mut content) {
            let here = FRAGMENT_HEADER + fragment.body.len();
            let dialect = Dialect { is_datagram: true, ..self.session.dialect() };
            parts.push(match self.messages.take(&fragment) {
                Some(body) => {
                    if fragment.typ == HandshakeType::KEY_UPDATE {
                        self.update();
                    }
                    content::complete(fragment.typ, FRAGMENT_HEADER, &body, here, dialect)
                }
                None => content::piece(fragment.typ, here),
            });
        }
        if !content.is_empty() {
            parts.push(Part::new(Layer::Other, "malformed fragment", content.len()));
        }
        parts
    }

    /// Adds the keys of the epoch after a KeyUpdate (RFC 9147 §8).
    fn update(&mut self) {
        if let Some(last) = self.keys.last()
            && let Ok(keys) = last.keys.next()
        {
            let number = last.number + 1;
            self.keys.push(Epoch { number, keys, expected: 0 });
        }
    }
}

/// A handshake message, or a piece of one.
struct Fragment<'a> {
    typ: HandshakeType,
    /// The length of the whole message's body.
    len: usize,
    /// The message_seq.
    message: usize,
    offset: usize,
    body: &'a [u8],
}

impl<'a> Fragment<'a> {
    /// Takes a fragment from the front of a record's content.
    fn read(content: &mut &'a [u8]) -> Option<Self> {
        let (header, rest) = content.split_at_checked(FRAGMENT_HEADER)?;
        let (body, rest) = rest.split_at_checked(number(&header[9..12]))?;
        *content = rest;
        Some(Self {
            typ: HandshakeType(header[0]),
            len: number(&header[1..4]),
            message: number(&header[4..6]),
            offset: number(&header[6..9]),
            body,
        })
    }
}

/// Reassembles the messages of a direction from fragments in any order.
#[derive(Default)]
struct Messages(BTreeMap<usize, Message>);

struct Message {
    typ: HandshakeType,
    len: usize,
    /// The beginning of the body, up to the first gap.
    body: Vec<u8>,
    /// Fragments after a gap, by their offset.
    waiting: BTreeMap<usize, Vec<u8>>,
    is_complete: bool,
}

impl Messages {
    /// Takes a fragment. Returns the body of the message if the fragment completes it.
    fn take(&mut self, fragment: &Fragment<'_>) -> Option<Vec<u8>> {
        let new = || Message {
            typ: fragment.typ,
            len: fragment.len,
            body: Vec::new(),
            waiting: BTreeMap::new(),
            is_complete: false,
        };
        let message = self.0.entry(fragment.message).or_insert_with(new);
        if (message.typ, message.len) != (fragment.typ, fragment.len) {
            // A HelloVerifyRequest and the next ServerHello may share a message_seq (RFC 6347 §4.2.2).
            *message = new();
        }
        if message.is_complete || fragment.offset + fragment.body.len() > message.len {
            return None;
        }
        let pieces = &mut message.waiting;
        let longest = pieces.get(&fragment.offset).map_or(0, Vec::len);
        if fragment.body.len() >= longest {
            pieces.insert(fragment.offset, fragment.body.to_vec());
        }
        while let Some(piece) = pieces.first_entry().filter(|piece| *piece.key() <= message.body.len()) {
            let known = message.body.len() - *piece.key();
            message.body.extend_from_slice(piece.remove().get(known..).unwrap_or_default());
        }
        message.is_complete = message.body.len() == message.len;
        message.is_complete.then(|| std::mem::take(&mut message.body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reassembles_fragments_in_any_order() {
        let mut messages = Messages::default();
        let mut take = |message, offset, body| {
            messages.take(&Fragment { typ: HandshakeType::CLIENT_HELLO, len: 6, message, offset, body })
        };
        assert_eq!(take(0, 4, b"ef"), None);
        assert_eq!(take(0, 3, b"d"), None);
        assert_eq!(take(0, 0, b"abcd"), Some(b"abcdef".to_vec()));
        assert_eq!(take(0, 0, b"abcdef"), None, "again");
        assert_eq!(take(1, 4, b"efg"), None, "beyond its end");
        assert_eq!(take(1, 0, b"abcdef"), Some(b"abcdef".to_vec()));
    }

    #[test]
    fn reads_record_headers() {
        let plain = [22, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, 9, 0, 1, 7];
        let header = Header::read(&plain, 3).unwrap();
        assert_eq!((header.epoch, header.number, header.len, header.body), (1, Some(9), 13, 1));
        assert!(Header::read(&plain[..13], 0).is_none());
        let header = Header::read(&[0b0010_1110, 1, 2, 0, 2, 7, 7, 7], 0).unwrap();
        assert_eq!((header.epoch, header.len, header.body), (2, 5, 2));
        let header = Header::read(&[0b0010_0011, 1, 7, 7, 7], 0).unwrap();
        assert_eq!((header.epoch, header.len, header.body), (3, 2, 3));
        assert!(Header::read(&[], 0).is_none());
    }

    #[test]
    fn reads_record_headers_with_connection_ids_only_if_their_length_is_known() {
        let plain = [25, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, 9, 4, 5, 0, 1, 7];
        let header = Header::read(&plain, 2).unwrap();
        assert_eq!(
            (header.id(&plain), header.number, header.len, header.body),
            (&[4, 5][..], Some(9), 15, 1)
        );
        assert!(Header::read(&plain, 0).is_none() && begins(&plain) && !begins(&plain[..13]));
        let unified = [0b0011_0111, 4, 5, 1, 0, 1, 7];
        let header = Header::read(&unified, 2).unwrap();
        assert_eq!((header.id(&unified), header.len, header.body), (&[4, 5][..], 6, 1));
        assert!(Header::read(&unified, 0).is_none());
    }
}
