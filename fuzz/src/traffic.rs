//! Records under keys that hide nothing (see [`dunlin_null`]), read and written as a peer without keys can.

use dunlin::TransportKind;
use dunlin_null::TAG;

/// Content types (RFC 8446 §5.1).
pub(crate) const ALERT: u8 = 21;
/// Content types (RFC 8446 §5.1).
pub(crate) const HANDSHAKE: u8 = 22;
/// Content types (RFC 8446 §5.1).
pub(crate) const APPLICATION_DATA: u8 = 23;

/// How a record is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Protection {
    /// The length of the tag, in bytes.
    pub(crate) tag_len: usize,
    /// The low two bits of the epoch (RFC 9147 §4); nothing on streams.
    pub(crate) epoch: u8,
}

/// A record, opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The type of its content.
    pub(crate) typ: u8,
    /// Its content, without padding.
    pub(crate) content: Vec<u8>,
    /// `None` if it is in the clear.
    pub(crate) protection: Option<Protection>,
}

impl Record {
    /// From what is under the header of a protected record: content, type, zeros, tag. No content ends with the bytes of
    /// the tag, because a type is none of them.
    fn open(body: &[u8], epoch: u8) -> Self {
        let tag_len = body.iter().rev().take(TAG.len()).take_while(|byte| **byte == TAG[0]).count();
        let mut content = body[..body.len() - tag_len].to_vec();
        while content.last() == Some(&0) {
            content.pop();
        }
        let typ = content.pop().unwrap_or(0);
        Self { typ, content, protection: Some(Protection { tag_len, epoch }) }
    }

    /// Appends the record to `out`.
    pub(crate) fn write(&self, kind: TransportKind, number: u64, padding: usize, out: &mut Vec<u8>) {
        let number = number.to_be_bytes();
        let Some(Protection { tag_len, epoch }) = self.protection else {
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
        match kind {
            TransportKind::Stream => out.extend_from_slice(&[APPLICATION_DATA, 3, 3]),
            // 16 bits of the number, and a length.
            TransportKind::Datagram => out.extend_from_slice(&[0x2c | epoch, number[6], number[7]]),
        }
        // RFC 9147 §4.2.3: the shortest that has a sample for its number.
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

/// Takes the whole records at the front of a stream.
pub(crate) fn take_records(stream: &mut Vec<u8>) -> Vec<Record> {
    let mut records = Vec::new();
    let mut at = 0;
    while let Some([typ, _, _, a, b]) = stream[at..].first_chunk() {
        let len = usize::from(u16::from_be_bytes([*a, *b]));
        let Some(body) = stream.get(at + 5..at + 5 + len) else { break };
        records.push(match *typ {
            APPLICATION_DATA => Record::open(body, 0),
            typ => Record { typ, content: body.to_vec(), protection: None },
        });
        at += 5 + len;
    }
    stream.drain(..at);
    records
}

/// The records of a datagram that the engine wrote.
pub(crate) fn records_of(datagram: &[u8]) -> Vec<Record> {
    let mut records = Vec::new();
    let mut rest = datagram;
    while let Some(first) = rest.first() {
        let (header, len) = match first & 0xe0 {
            0x20 => {
                let header = 2 + usize::from(first >> 3 & 1);
                match first & 4 {
                    0 => (header, rest.len() - header),
                    _ => (header + 2, u16::from_be_bytes([rest[header], rest[header + 1]]).into()),
                }
            }
            _ => (13, u16::from_be_bytes([rest[11], rest[12]]).into()),
        };
        let body = &rest[header..header + len];
        records.push(match first & 0xe0 {
            0x20 => Record::open(body, first & 3),
            _ => Record { typ: *first, content: body.to_vec(), protection: None },
        });
        rest = &rest[header + len..];
    }
    records
}

/// A handshake message, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    /// Its type.
    pub(crate) typ: u8,
    /// What follows its header.
    pub(crate) body: Vec<u8>,
    /// How the records that carried it were protected.
    pub(crate) protection: Option<Protection>,
}

impl Message {
    /// With a header of TLS. The length may be another one than that of the body.
    pub(crate) fn with_header(&self, announced: usize) -> Vec<u8> {
        let [_, a, b, c] = (announced as u32).to_be_bytes();
        [&[self.typ, a, b, c], &self.body[..]].concat()
    }
}

/// What a peer sends, joined again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A message of the handshake.
    Message(Message),
    /// Another record.
    Record(Record),
}

/// Joins the records of one direction.
#[derive(Debug)]
pub(crate) struct Joiner {
    kind: TransportKind,
    stream: Vec<u8>,
    partial: Vec<u8>,
}

impl Joiner {
    /// At the beginning of a connection.
    pub(crate) const fn new(kind: TransportKind) -> Self {
        Self { kind, stream: Vec::new(), partial: Vec::new() }
    }

    /// The units that are whole with these bytes of a stream, or with this datagram, of the engine.
    pub(crate) fn join(&mut self, bytes: &[u8]) -> Vec<Unit> {
        let records = match self.kind {
            TransportKind::Stream => {
                self.stream.extend_from_slice(bytes);
                take_records(&mut self.stream)
            }
            TransportKind::Datagram => records_of(bytes),
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

    /// The engine sends fragments in their order.
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
