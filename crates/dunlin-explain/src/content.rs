//! The content of records: handshake messages, joined from several records if necessary, alerts and others.

use dunlin::wire::{AlertDescription, AlertLevel, ContentType, HandshakeType};

use crate::bytes::Layer;
use crate::message::{self, Dialect, ServerHello};
use crate::model::{Part, Protection, Record};
use crate::names;

/// The header of a handshake message: type and length (RFC 8446 §4).
pub(crate) const MESSAGE_HEADER: usize = 4;

/// Joins the handshake messages of one direction of a stream.
#[derive(Default)]
pub(crate) struct Joiner {
    /// The bytes so far of a message that is not complete yet.
    message: Vec<u8>,
}

impl Joiner {
    /// Cuts the content of a record into messages and pieces of messages.
    pub(crate) fn take(&mut self, mut content: &[u8], dialect: Dialect) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut here = 0;
        while !content.is_empty() {
            let len = announced(&self.message).unwrap_or(MESSAGE_HEADER);
            let (head, tail) = content.split_at(content.len().min(len - self.message.len()));
            content = tail;
            self.message.extend_from_slice(head);
            here += head.len();
            if announced(&self.message) == Some(self.message.len()) {
                let message = std::mem::take(&mut self.message);
                parts.push(whole(&message, here, dialect));
                here = 0;
            }
        }
        if let (Some(typ), 1..) = (self.message.first(), here) {
            parts.push(piece(HandshakeType(*typ), here));
        }
        parts
    }

    /// The length of an incomplete message, in bytes.
    pub(crate) fn incomplete(&self) -> usize {
        self.message.len()
    }

    /// Drops an incomplete message, because its rest cannot be read.
    pub(crate) fn reset(&mut self) {
        self.message.clear();
    }
}

/// The whole length that the header of `message` announces.
fn announced(message: &[u8]) -> Option<usize> {
    let [_, a, b, c] = message.first_chunk::<MESSAGE_HEADER>()?;
    Some(MESSAGE_HEADER + u32::from_be_bytes([0, *a, *b, *c]) as usize)
}

/// The type and body of each message in `content`, up to the first incomplete one.
pub(crate) fn messages(mut content: &[u8]) -> impl Iterator<Item = (HandshakeType, &[u8])> {
    std::iter::from_fn(move || {
        let (message, rest) = content.split_at_checked(announced(content)?)?;
        content = rest;
        Some((HandshakeType(*message.first()?), message.get(MESSAGE_HEADER..)?))
    })
}

/// The part that completes `message`; `here` bytes of it are in this record.
fn whole(message: &[u8], here: usize, dialect: Dialect) -> Part {
    let typ = HandshakeType(message.first().copied().unwrap_or_default());
    let body = message.get(MESSAGE_HEADER..).unwrap_or_default();
    complete(typ, MESSAGE_HEADER, body, here, dialect)
}

/// The part that completes a message. Its header has `header` bytes; `here` bytes of it are in this record.
pub(crate) fn complete(
    typ: HandshakeType,
    header: usize,
    body: &[u8],
    here: usize,
    dialect: Dialect,
) -> Part {
    let is_retry =
        typ == HandshakeType::SERVER_HELLO && ServerHello::read(body).is_some_and(|hello| hello.is_retry);
    Part {
        handshake_type: Some(typ.0),
        message_bytes: Some(header + body.len()),
        fields: message::fields(typ, header, body, dialect),
        ..Part::new(Layer::Handshake, names::message(typ, is_retry), here)
    }
}

/// A piece of a message that is not complete yet.
pub(crate) fn piece(typ: HandshakeType, here: usize) -> Part {
    Part { handshake_type: Some(typ.0), ..Part::new(Layer::Handshake, names::message(typ, false), here) }
}

/// The content of a readable record, other than handshake messages.
pub(crate) fn plain(typ: ContentType, content: &[u8]) -> Part {
    match typ {
        ContentType::ALERT => Part::new(Layer::Alert, alert(content), content.len()),
        ContentType::CHANGE_CIPHER_SPEC => {
            Part::new(Layer::ChangeCipherSpec, "ChangeCipherSpec", content.len())
        }
        ContentType::APPLICATION_DATA => Part::new(Layer::ApplicationData, "application data", content.len()),
        ContentType::ACK => Part::new(Layer::Ack, "ACK", content.len()),
        ContentType::ASSOCIATION_PORT => {
            let what = association_port(content).unwrap_or_else(|| "malformed".into());
            Part::new(Layer::Other, format!("association_port {what}"), content.len())
        }
        ContentType::RETURN_ROUTABILITY_CHECK => path(content),
        // RFC 6520.
        ContentType(24) => Part::new(Layer::Other, "heartbeat", content.len()),
        _ => Part::new(Layer::Other, "unknown content", content.len()),
    }
}

/// A record about an association's port (docs/association-ports.md).
fn association_port(content: &[u8]) -> Option<String> {
    match *content {
        [2, a, b] => Some(format!("announcement, port {}", u16::from_be_bytes([a, b]))),
        [3, a, b] => Some(format!("arrival, port {}", u16::from_be_bytes([a, b]))),
        _ => None,
    }
}

/// A message about the path over which it is sent (RFC 9853 §4).
fn path(content: &[u8]) -> Part {
    let name = match content {
        [0, cookie @ ..] if cookie.len() == 8 => "path_challenge",
        [1, cookie @ ..] if cookie.len() == 8 => "path_response",
        [2, cookie @ ..] if cookie.len() == 8 => "path_drop",
        [0..=2, ..] | [] => {
            return Part::new(Layer::Path, "malformed return_routability_check", content.len());
        }
        _ => return Part::new(Layer::Path, "unknown return_routability_check", content.len()),
    };
    let cookie = content.get(1..).unwrap_or_default();
    let fields =
        vec![message::field("msg_type", 1, None), message::field("cookie", 8, Some(message::hex(cookie)))];
    let message_bytes = Some(content.len());
    Part { message_bytes, fields, ..Part::new(Layer::Path, name, content.len()) }
}

fn alert(content: &[u8]) -> String {
    match content {
        [level, description] => {
            format!("alert {} {}", AlertLevel(*level), AlertDescription(*description))
        }
        _ => "malformed alert".into(),
    }
}

/// Enters the body of a record that could not be decrypted. In TLS 1.2 the outer type is the real one, and
/// the cipher suite's `overhead` gives the length of the content.
pub(crate) fn seal(record: &mut Record, typ: ContentType, body: usize, overhead: Option<usize>) {
    record.protection = Protection::Sealed;
    let measured = overhead.filter(|overhead| *overhead <= body);
    record.protection_bytes = measured.unwrap_or(0);
    let len = body - record.protection_bytes;
    record.parts = vec![match (typ, measured) {
        (ContentType::HANDSHAKE, Some(_)) => Part::new(Layer::Handshake, "protected handshake message", len),
        (ContentType::ALERT, Some(_)) => Part::new(Layer::Alert, "protected alert", len),
        (ContentType::APPLICATION_DATA, Some(_)) => {
            Part::new(Layer::ApplicationData, "application data", len)
        }
        _ => Part::new(Layer::Sealed, "protected content", len),
    }];
}

/// The name of a record's outer type.
pub(crate) fn type_name(typ: ContentType) -> String {
    match typ.0 {
        24 => "heartbeat".into(),
        25 => "tls12_cid".into(),
        _ => typ.name().map_or_else(|| format!("type {}", typ.0), str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_messages_across_records() {
        let dialect = Dialect { is_13: true, is_datagram: false };
        let mut joiner = Joiner::default();
        // EncryptedExtensions, then a Finished in three pieces. The first piece is half a header.
        let first = joiner.take(&[8, 0, 0, 2, 0, 0, 20, 0], dialect);
        let shown = |parts: &[Part]| -> Vec<_> {
            parts.iter().map(|p| (p.name.clone(), p.bytes, p.message_bytes)).collect()
        };
        assert_eq!(shown(&first), [("EncryptedExtensions".into(), 6, Some(6)), ("Finished".into(), 2, None)]);
        assert_eq!(shown(&joiner.take(&[0, 3, 7], dialect)), [("Finished".into(), 3, None)]);
        assert_eq!(joiner.incomplete(), 5);
        let last = joiner.take(&[7, 7, 24, 0, 0, 1, 0], dialect);
        assert_eq!(shown(&last), [("Finished".into(), 2, Some(7)), ("KeyUpdate".into(), 5, Some(5))]);
        assert_eq!(joiner.incomplete(), 0);
        assert!(joiner.take(&[], dialect).is_empty());
    }
}
