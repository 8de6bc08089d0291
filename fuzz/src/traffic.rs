//! Records under keys that do not encrypt (see [`dunlin_null`]), read and written by a peer without keys.

use dunlin::TransportKind;
use dunlin_null::TAG;

use crate::setting::Setting;

/// Content types (RFC 8446 §5.1).
pub(crate) const CHANGE_CIPHER_SPEC: u8 = 20;
/// Content types (RFC 8446 §5.1).
pub(crate) const ALERT: u8 = 21;
/// Content types (RFC 8446 §5.1).
pub(crate) const HANDSHAKE: u8 = 22;
/// Content types (RFC 8446 §5.1).
pub(crate) const APPLICATION_DATA: u8 = 23;
/// The content type of protected records with a connection ID in DTLS 1.2 (RFC 9146 §4).
const TLS12_CID: u8 = 25;

/// The length of all connection IDs, in bytes.
pub(crate) const ID_LEN: usize = 4;

/// How a record is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Protection {
    /// The length of the tag, in bytes.
    pub(crate) tag_len: usize,
    /// In DTLS 1.3 the low two bits of the epoch (RFC 9147 §4), in DTLS 1.2 the epoch; unused on streams.
    pub(crate) epoch: u8,
    /// In TLS 1.2 and DTLS 1.2, the bytes of the nonce in the record. In other versions the type is also
    /// protected.
    pub(crate) tls12: Option<usize>,
    /// The connection ID of the receiver. With it, DTLS 1.2 also protects the type.
    pub(crate) id: Option<[u8; ID_LEN]>,
}

/// The length of a TLS 1.2 Finished with its header, in bytes.
const TLS12_FINISHED: usize = 16;

/// An opened record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The content type.
    pub(crate) typ: u8,
    /// The content without padding.
    pub(crate) content: Vec<u8>,
    /// `None` for a plaintext record.
    pub(crate) protection: Option<Protection>,
}

impl Record {
    /// Opens a protected record without its header: content, type, zeros, tag. No content ends with the bytes
    /// of the tag, because they are not content types.
    fn open(body: &[u8], epoch: u8, id: Option<[u8; ID_LEN]>) -> Self {
        let tag_len = tag_len(body);
        let mut content = body[..body.len() - tag_len].to_vec();
        while content.last() == Some(&0) {
            content.pop();
        }
        let typ = content.pop().unwrap_or(0);
        Self { typ, content, protection: Some(Protection { tag_len, epoch, tls12: None, id }) }
    }

    /// Opens a protected TLS 1.2 record without its header: a part of the nonce, content, tag.
    fn open_tls12(typ: u8, body: &[u8], protection: Protection) -> Self {
        let nonce_len = protection.tls12.unwrap_or(0);
        let content = body[nonce_len..body.len() - protection.tag_len].to_vec();
        Self { typ, content, protection: Some(protection) }
    }

    /// Appends the record to `out`.
    pub(crate) fn write(&self, kind: TransportKind, number: u64, padding: usize, out: &mut Vec<u8>) {
        let number = number.to_be_bytes();
        let Some(Protection { tag_len, epoch, tls12, id }) = self.protection else {
            out.extend_from_slice(&[self.typ, 3, 3]);
            if kind == TransportKind::Datagram {
                out.truncate(out.len() - 2);
                out.extend_from_slice(&[0xfe, 0xfd, 0, 0]);
                out.extend_from_slice(&number[2..]);
            }
            out.extend_from_slice(&(self.content.len() as u16).to_be_bytes());
            out.extend_from_slice(&self.content);
            return;
        };
        if let Some(nonce_len) = tls12 {
            let id = id.filter(|_| kind == TransportKind::Datagram);
            let inner = id.map_or(0, |_| 1 + padding);
            let len = nonce_len + self.content.len() + inner + tag_len;
            match kind {
                TransportKind::Stream => out.extend_from_slice(&[self.typ, 3, 3]),
                TransportKind::Datagram => {
                    out.push(if id.is_some() { TLS12_CID } else { self.typ });
                    out.extend_from_slice(&[0xfe, 0xfd, 0, epoch]);
                    out.extend_from_slice(&number[2..]);
                    out.extend_from_slice(id.as_ref().map_or(&[], |id| &id[..]));
                }
            }
            out.extend_from_slice(&(len as u16).to_be_bytes());
            out.extend_from_slice(&number[..nonce_len]);
            out.extend_from_slice(&self.content);
            if id.is_some() {
                out.push(self.typ);
                out.resize(out.len() + padding, 0);
            }
            out.extend_from_slice(&TAG[..tag_len]);
            return;
        }
        match (kind, id) {
            (TransportKind::Stream, _) => out.extend_from_slice(&[APPLICATION_DATA, 3, 3]),
            // 16 bits of the number, and a length.
            (TransportKind::Datagram, None) => {
                out.extend_from_slice(&[0x2c | epoch & 3, number[6], number[7]]);
            }
            (TransportKind::Datagram, Some(id)) => {
                out.push(0x3c | epoch & 3);
                out.extend_from_slice(&id);
                out.extend_from_slice(&number[6..]);
            }
        }
        // The shortest record that has a sample for its record number (RFC 9147 §4.2.3).
        let padding = match kind {
            TransportKind::Stream => padding,
            TransportKind::Datagram => padding.max(15usize.saturating_sub(self.content.len() + tag_len)),
        };
        let len = self.content.len() + 1 + padding + tag_len;
        out.extend_from_slice(&(len as u16).to_be_bytes());
        out.extend_from_slice(&self.content);
        out.push(self.typ);
        out.resize(out.len() + padding, 0);
        out.extend_from_slice(&TAG[..tag_len]);
    }
}

/// Returns how many bytes of a tag a body ends with.
fn tag_len(body: &[u8]) -> usize {
    body.iter().rev().take(TAG.len()).take_while(|byte| **byte == TAG[0]).count()
}

/// One direction of a stream, as the engine writes it.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    bytes: Vec<u8>,
    /// Whether the last unprotected record was a ChangeCipherSpec.
    has_changed: bool,
    /// In TLS 1.2, the protection of its records.
    tls12: Option<Protection>,
}

impl Stream {
    /// Returns the records that these bytes complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<Record> {
        self.bytes.extend_from_slice(bytes);
        let mut records = Vec::new();
        let mut at = 0;
        while let Some([typ, _, _, a, b]) = self.bytes[at..].first_chunk() {
            let typ = *typ;
            let len = usize::from(u16::from_be_bytes([*a, *b]));
            let Some(body) = self.bytes.get(at + 5..at + 5 + len) else { break };
            let body = body.to_vec();
            records.push(self.open(typ, &body));
            at += 5 + len;
        }
        self.bytes.drain(..at);
        records
    }

    /// Whether no record is incomplete.
    pub(crate) const fn is_whole(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The first protected record reveals the version: in TLS 1.2 it is a Finished.
    fn open(&mut self, typ: u8, body: &[u8]) -> Record {
        if self.has_changed && self.tls12.is_none() && typ != APPLICATION_DATA && tag_len(body) >= 8 {
            let tag_len = if tag_len(body) == TAG.len() { TAG.len() } else { 8 };
            let nonce_len = body.len().saturating_sub(tag_len + TLS12_FINISHED);
            self.tls12 = Some(Protection { tag_len, epoch: 0, tls12: Some(nonce_len), id: None });
        }
        let record = match (self.tls12, typ) {
            (Some(protection), _) => Record::open_tls12(typ, body, protection),
            (None, APPLICATION_DATA) => Record::open(body, 0, None),
            (None, _) => Record { typ, content: body.to_vec(), protection: None },
        };
        if typ == CHANGE_CIPHER_SPEC {
            self.has_changed = true;
            self.tls12 = None;
        }
        record
    }
}

/// Returns the records of a datagram that the engine wrote. `tls12` is the protection of DTLS 1.2.
pub(crate) fn records_of(datagram: &[u8], tls12: Option<Protection>) -> Vec<Record> {
    let mut records = Vec::new();
    let mut rest = datagram;
    while let Some(first) = rest.first() {
        let is_unified = first & 0xe0 == 0x20;
        let has_id = if is_unified { first & 0x10 != 0 } else { *first == TLS12_CID };
        let id_len = if has_id { ID_LEN } else { 0 };
        let id_at = if is_unified { 1 } else { 11 };
        let id = has_id.then(|| *rest[id_at..].first_chunk().unwrap());
        let (header, len) = if is_unified {
            let header = 2 + id_len + usize::from(first >> 3 & 1);
            match first & 4 {
                0 => (header, rest.len() - header),
                _ => (header + 2, u16::from_be_bytes([rest[header], rest[header + 1]]).into()),
            }
        } else {
            let at = 11 + id_len;
            (at + 2, u16::from_be_bytes([rest[at], rest[at + 1]]).into())
        };
        let body = &rest[header..header + len];
        records.push(match (is_unified, tls12) {
            (true, _) => Record::open(body, first & 3, id),
            (false, Some(protection)) if rest[3..5] != [0, 0] => {
                let protection = Protection { epoch: rest[4], id, ..protection };
                match id {
                    None => Record::open_tls12(*first, body, protection),
                    Some(_) => {
                        let inner = &body[protection.tls12.unwrap_or(0)..];
                        Record { protection: Some(protection), ..Record::open(inner, 0, id) }
                    }
                }
            }
            _ => Record { typ: *first, content: body.to_vec(), protection: None },
        });
        rest = &rest[header + len..];
    }
    records
}

/// A complete handshake message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// Its type.
    pub(crate) typ: u8,
    /// Its body.
    pub(crate) body: Vec<u8>,
    /// The protection of the records that carried it.
    pub(crate) protection: Option<Protection>,
}

impl Message {
    /// Returns the message with a TLS header, whose length may differ from the length of the body.
    pub(crate) fn with_header(&self, announced: usize) -> Vec<u8> {
        let [_, a, b, c] = (announced as u32).to_be_bytes();
        [&[self.typ, a, b, c], &self.body[..]].concat()
    }
}

/// A unit of a peer's output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A handshake message.
    Message(Message),
    /// Another record.
    Record(Record),
}

/// Joins the records of one direction.
#[derive(Debug)]
pub(crate) struct Joiner {
    kind: TransportKind,
    stream: Stream,
    /// The protection of DTLS 1.2.
    tls12: Option<Protection>,
    partial: Vec<u8>,
}

impl Joiner {
    /// Starts at the beginning of a connection.
    pub(crate) fn new(setting: &Setting) -> Self {
        let tls12 = setting.tls12.map(|_| setting.tls12_protection());
        Self { kind: setting.kind, stream: Stream::default(), tls12, partial: Vec::new() }
    }

    /// Returns the units that these bytes of a stream, or this datagram of the engine, complete.
    pub(crate) fn join(&mut self, bytes: &[u8]) -> Vec<Unit> {
        let records = match self.kind {
            TransportKind::Stream => self.stream.push(bytes),
            TransportKind::Datagram => records_of(bytes, self.tls12),
        };
        let mut units = Vec::new();
        for record in records {
            if record.typ != HANDSHAKE {
                units.push(Unit::Record(record));
                continue;
            }
            match self.kind {
                TransportKind::Stream => self.partial.extend_from_slice(&record.content),
                TransportKind::Datagram => self.fragments(&record.content),
            }
            while let Some(message) = take_message(&mut self.partial) {
                units.push(Unit::Message(Message { protection: record.protection, ..message }));
            }
        }
        units
    }

    /// The engine sends fragments in order.
    fn fragments(&mut self, mut content: &[u8]) {
        while let [typ, a, b, c, _, _, offset @ ..] = content {
            let len = usize::from(offset[4]) << 8 | usize::from(offset[5]);
            if offset[..3] == [0, 0, 0] {
                self.partial.extend_from_slice(&[*typ, *a, *b, *c]);
            }
            self.partial.extend_from_slice(&offset[6..6 + len]);
            content = &offset[6 + len..];
        }
    }
}

fn take_message(bytes: &mut Vec<u8>) -> Option<Message> {
    let [typ, a, b, c] = *bytes.first_chunk()?;
    let len = u32::from_be_bytes([0, a, b, c]) as usize;
    let body = bytes.get(4..4 + len)?.to_vec();
    bytes.drain(..4 + len);
    Some(Message { typ, body, protection: None })
}
