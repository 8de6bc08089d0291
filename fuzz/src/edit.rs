//! Changes to handshake messages that know where the lengths stand, so that what is changed deep inside still reads.

use dunlin::TransportKind;

use crate::script::Script;
use crate::traffic::Message;

/// A part of a message with its length before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Vector {
    /// Where the length stands, and of how many bytes it is.
    at: usize,
    size: usize,
    end: usize,
    is_extension: bool,
}

impl Vector {
    const fn start(&self) -> usize {
        self.at + self.size
    }
}

/// Walks through a body and notes the vectors in it.
struct Walk<'a> {
    body: &'a [u8],
    at: usize,
    found: Vec<Vector>,
}

impl Walk<'_> {
    fn skip(&mut self, n: usize) {
        self.at += n;
    }

    /// Notes a vector and goes into it; gives its end.
    fn enter(&mut self, size: usize, is_extension: bool) -> usize {
        let Some(length) = self.body.get(self.at..self.at + size) else {
            self.at = self.body.len();
            return self.at;
        };
        let len = length.iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
        let end = (self.at + size + len).min(self.body.len());
        self.found.push(Vector { at: self.at, size, end, is_extension });
        self.at += size;
        end
    }

    fn pass(&mut self, size: usize) {
        self.at = self.enter(size, false);
    }

    fn extensions(&mut self) {
        let end = self.enter(2, false);
        while self.at + 4 <= end {
            let typ = u16::from_be_bytes([self.body[self.at], self.body[self.at + 1]]);
            self.skip(2);
            let end = self.enter(2, true);
            self.inside_extension(typ, end);
            self.at = end;
        }
        self.at = end;
    }

    /// Most extensions are one vector; pre_shared_key are two.
    fn inside_extension(&mut self, typ: u16, end: usize) {
        const PRE_SHARED_KEY: u16 = 41;
        if typ == PRE_SHARED_KEY && end > self.at + 2 {
            self.pass(2);
            self.pass(2);
            return;
        }
        let len = end - self.at;
        match self.body[self.at..end] {
            [a, b, ..] if usize::from(a) << 8 | usize::from(b) == len - 2 => self.pass(2),
            [a, ..] if usize::from(a) == len - 1 => self.pass(1),
            _ => {}
        }
    }
}

fn vectors(kind: TransportKind, typ: u8, body: &[u8]) -> Vec<Vector> {
    let mut walk = Walk { body, at: 0, found: Vec::new() };
    match typ {
        // ClientHello
        1 => {
            walk.skip(34);
            walk.pass(1);
            if kind == TransportKind::Datagram {
                walk.pass(1);
            }
            walk.pass(2);
            walk.pass(1);
            walk.extensions();
        }
        // ServerHello
        2 => {
            walk.skip(34);
            walk.pass(1);
            walk.skip(3);
            walk.extensions();
        }
        // NewSessionTicket
        4 => {
            walk.skip(8);
            walk.pass(1);
            walk.pass(2);
            walk.extensions();
        }
        // EncryptedExtensions
        8 => walk.extensions(),
        // Certificate
        11 => {
            walk.pass(1);
            let end = walk.enter(3, false);
            while walk.at < end {
                walk.pass(3);
                walk.extensions();
            }
        }
        // CertificateRequest
        13 => {
            walk.pass(1);
            walk.extensions();
        }
        // CertificateVerify
        15 => {
            walk.skip(2);
            walk.pass(2);
        }
        // CompressedCertificate
        25 => {
            walk.skip(5);
            walk.pass(3);
        }
        _ => {}
    }
    walk.found
}

/// Replaces `remove` bytes at `at` by `insert`, and corrects the lengths of what it stands in. At the end of a vector
/// something can be `appended` to it, or begin behind it.
fn splice(
    kind: TransportKind,
    message: &mut Message,
    (at, appended): (usize, bool),
    remove: usize,
    insert: &[u8],
) {
    let around: Vec<Vector> = vectors(kind, message.typ, &message.body)
        .into_iter()
        .filter(|vector| vector.start() <= at && (at < vector.end || appended && at == vector.end))
        .collect();
    let end = around.iter().map(|vector| vector.end).min().unwrap_or(message.body.len());
    let remove = remove.min(end.saturating_sub(at));
    message.body.splice(at..at + remove, insert.iter().copied());
    for vector in around {
        let len = vector.end - vector.start() - remove + insert.len();
        let length = len.to_be_bytes();
        message.body[vector.at..vector.start()].copy_from_slice(&length[length.len() - vector.size..]);
    }
}

/// Changes a message as the script says.
pub(crate) fn edit(kind: TransportKind, message: &mut Message, script: &mut Script<'_>) {
    let len = message.body.len();
    match script.u8() % 8 {
        // A byte.
        0 => {
            let (at, value) = (script.below(len.max(1)), script.u8());
            if let Some(byte) = message.body.get_mut(at) {
                *byte = value;
            }
        }
        // Anywhere, with lengths that fit.
        1 => {
            let (at, remove) = (script.below(len + 1), script.u8().into());
            splice(kind, message, (at, true), remove, script.bytes());
        }
        // A whole vector.
        2 => {
            let vectors = vectors(kind, message.typ, &message.body);
            if let Some(vector) = vectors.get(script.below(vectors.len())) {
                let len = vector.end - vector.start();
                splice(kind, message, (vector.start(), true), len, script.bytes());
            }
        }
        // A length that lies.
        3 => {
            let vectors = vectors(kind, message.typ, &message.body);
            if let Some(vector) = vectors.get(script.below(vectors.len())) {
                let last = vector.start() - 1;
                message.body[last] = message.body[last].wrapping_add(script.u8());
            }
        }
        4 => extension(kind, message, script),
        // Without lengths.
        5 => {
            let at = script.below(len + 1);
            let remove = usize::from(script.u8()).min(len - at);
            message.body.splice(at..at + remove, script.bytes().iter().copied());
        }
        6 => message.body.truncate(script.below(len + 1)),
        _ => message.typ = script.u8(),
    }
}

/// Removes, doubles, renames, replaces or adds an extension.
fn extension(kind: TransportKind, message: &mut Message, script: &mut Script<'_>) {
    let all = vectors(kind, message.typ, &message.body);
    let extensions: Vec<&Vector> = all.iter().filter(|vector| vector.is_extension).collect();
    let what = script.u8() % 5;
    let Some(&&chosen) = extensions.get(script.below(extensions.len())) else { return };
    let begin = chosen.at - 2;
    let whole = message.body[begin..chosen.end].to_vec();
    match what {
        0 => splice(kind, message, (begin, false), whole.len(), &[]),
        1 => splice(kind, message, (begin, false), 0, &whole),
        2 => message.body[begin..chosen.at].copy_from_slice(&script.u16().to_be_bytes()),
        3 => {
            let len = chosen.end - chosen.start();
            splice(kind, message, (chosen.start(), true), len, script.bytes());
        }
        _ => {
            let (typ, body) = (script.u16().to_be_bytes(), script.bytes());
            let new = [&typ[..], &(body.len() as u16).to_be_bytes(), body].concat();
            splice(kind, message, (begin, false), 0, &new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EncryptedExtensions with ALPN, whose name gets longer.
    #[test]
    fn lengths_follow() {
        let body = vec![0, 9, 0, 16, 0, 5, 0, 3, 2, b'h', b'2'];
        let mut message = Message { typ: 8, body, protection: None };
        splice(TransportKind::Stream, &mut message, (9, true), 1, b"abc");
        assert_eq!(message.body, [0, 11, 0, 16, 0, 7, 0, 5, 2, b'a', b'b', b'c', b'2']);
        let found = vectors(TransportKind::Stream, 8, &message.body);
        assert_eq!(found.iter().filter(|vector| vector.is_extension).count(), 1);
        assert_eq!(found.iter().map(|vector| vector.end).collect::<Vec<_>>(), [13; 3]);
    }

    /// No script makes a change panic, whatever the message.
    #[test]
    fn any_change_of_anything() {
        let bytes: Vec<u8> = (0..=255).collect();
        for typ in 0..32 {
            for seed in 0..=255u8 {
                let script: Vec<u8> = bytes.iter().map(|byte| byte.wrapping_mul(seed) ^ seed).collect();
                let mut message =
                    Message { typ, body: script[..usize::from(seed)].to_vec(), protection: None };
                edit(TransportKind::Datagram, &mut message, &mut Script::new(&script));
            }
        }
    }
}
