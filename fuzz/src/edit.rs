//! Changes to handshake messages. They know the length fields, so that a message still parses after a change
//! deep inside.

use dunlin::TransportKind;
use dunlin::crypto::Tls12KeyExchange;

use crate::script::Script;
use crate::setting::{Setting, Way};
use crate::traffic::Message;

/// A part of a message that follows its length field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Vector {
    /// The position of the length field, and its size in bytes.
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

/// Walks through a body and records its vectors.
struct Walk<'a> {
    body: &'a [u8],
    at: usize,
    found: Vec<Vector>,
}

impl Walk<'_> {
    fn skip(&mut self, n: usize) {
        self.at += n;
    }

    /// Records a vector and enters it. Returns its end.
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

    /// Walks through a message that TLS 1.3 lacks or encodes differently. Returns whether it is one.
    fn tls12(&mut self, typ: u8, psk: bool, exchange: Tls12KeyExchange) -> bool {
        match typ {
            // NewSessionTicket
            4 => {
                self.skip(4);
                self.pass(2);
            }
            // Certificate
            11 => {
                let end = self.enter(3, false);
                while self.at < end {
                    self.pass(3);
                }
            }
            // ServerKeyExchange
            12 => {
                if psk {
                    self.pass(2);
                }
                match exchange {
                    Tls12KeyExchange::Ecdhe => {
                        self.skip(3);
                        self.pass(1);
                    }
                    Tls12KeyExchange::Dhe => (0..3).for_each(|_| self.pass(2)),
                    _ => {}
                }
                if !psk {
                    self.skip(2);
                    self.pass(2);
                }
            }
            // CertificateRequest
            13 => {
                self.pass(1);
                self.pass(2);
                self.pass(2);
            }
            // ClientKeyExchange
            16 => {
                if psk {
                    self.pass(2);
                }
                match exchange {
                    Tls12KeyExchange::Ecdhe => self.pass(1),
                    Tls12KeyExchange::Dhe => self.pass(2),
                    _ => {}
                }
            }
            // HelloVerifyRequest
            3 => {
                self.skip(2);
                self.pass(1);
            }
            // CertificateStatus
            22 => {
                self.skip(1);
                self.pass(3);
            }
            _ => return false,
        }
        true
    }

    /// Most extensions contain one vector; pre_shared_key contains two.
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

/// How the messages of a connection are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// TLS 1.3 or DTLS 1.3.
    Tls13(TransportKind),
    /// TLS 1.2 or DTLS 1.2 with this key exchange, with or without a PSK.
    Tls12 { kind: TransportKind, psk: bool, exchange: Tls12KeyExchange },
}

impl Dialect {
    /// Returns the dialect of a setting.
    pub(crate) fn of(setting: &Setting) -> Self {
        match setting.tls12 {
            None => Self::Tls13(setting.kind),
            Some(tls12) => Self::Tls12 {
                kind: setting.kind,
                psk: setting.is_psk(),
                exchange: match setting.way {
                    Way::PskAlone => Tls12KeyExchange::Psk,
                    _ => tls12.exchange,
                },
            },
        }
    }
}

fn vectors(dialect: Dialect, typ: u8, body: &[u8]) -> Vec<Vector> {
    let mut walk = Walk { body, at: 0, found: Vec::new() };
    if let Dialect::Tls12 { psk, exchange, .. } = dialect
        && walk.tls12(typ, psk, exchange)
    {
        return walk.found;
    }
    match typ {
        // ClientHello
        1 => {
            walk.skip(34);
            walk.pass(1);
            if let Dialect::Tls13(TransportKind::Datagram)
            | Dialect::Tls12 { kind: TransportKind::Datagram, .. } = dialect
            {
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
        // CertificateRequest, SSIRequest
        13 | 32 => {
            walk.pass(1);
            walk.extensions();
        }
        // CertificateVerify, DIDVerify
        15 | 33 => {
            walk.skip(2);
            walk.pass(2);
        }
        // CompressedCertificate
        25 => {
            walk.skip(5);
            walk.pass(3);
        }
        // DID
        30 => {
            walk.pass(1);
            walk.skip(1);
            walk.pass(2);
        }
        // VC
        31 => {
            walk.pass(1);
            walk.pass(2);
        }
        _ => {}
    }
    walk.found
}

/// Replaces `remove` bytes at `at` by `insert`, and corrects the lengths of the vectors around them. At the
/// end of a vector, `appended` decides whether the bytes belong to the vector or follow it.
fn splice(
    dialect: Dialect,
    message: &mut Message,
    (at, appended): (usize, bool),
    remove: usize,
    insert: &[u8],
) {
    let around: Vec<Vector> = vectors(dialect, message.typ, &message.body)
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

/// Changes a message as the script demands.
pub(crate) fn edit(dialect: Dialect, message: &mut Message, script: &mut Script<'_>) {
    let len = message.body.len();
    match script.u8() % 8 {
        // Changes one byte.
        0 => {
            let at = script.below(len.max(1));
            let value = script.u8();
            if let Some(byte) = message.body.get_mut(at) {
                *byte = value;
            }
        }
        // Inserts or removes bytes anywhere, and corrects the lengths.
        1 => {
            let at = script.below(len + 1);
            let remove = script.u8().into();
            splice(dialect, message, (at, true), remove, script.bytes());
        }
        // Changes a whole vector.
        2 => {
            let vectors = vectors(dialect, message.typ, &message.body);
            if let Some(vector) = vectors.get(script.below(vectors.len())) {
                let len = vector.end - vector.start();
                splice(dialect, message, (vector.start(), true), len, script.bytes());
            }
        }
        // Writes a wrong length.
        3 => {
            let vectors = vectors(dialect, message.typ, &message.body);
            if let Some(vector) = vectors.get(script.below(vectors.len())) {
                let last = vector.start() - 1;
                message.body[last] = message.body[last].wrapping_add(script.u8());
            }
        }
        4 => extension(dialect, message, script),
        // Changes bytes without correcting lengths.
        5 => {
            let at = script.below(len + 1);
            let remove = usize::from(script.u8()).min(len - at);
            message.body.splice(at..at + remove, script.bytes().iter().copied());
        }
        6 => message.body.truncate(script.below(len + 1)),
        _ => message.typ = script.u8(),
    }
}

/// Removes, duplicates, renumbers, replaces or adds an extension.
fn extension(dialect: Dialect, message: &mut Message, script: &mut Script<'_>) {
    let all = vectors(dialect, message.typ, &message.body);
    let extensions: Vec<&Vector> = all.iter().filter(|vector| vector.is_extension).collect();
    let what = script.u8() % 5;
    let Some(&&chosen) = extensions.get(script.below(extensions.len())) else { return };
    let begin = chosen.at - 2;
    let whole = message.body[begin..chosen.end].to_vec();
    match what {
        0 => splice(dialect, message, (begin, false), whole.len(), &[]),
        1 => splice(dialect, message, (begin, false), 0, &whole),
        2 => message.body[begin..chosen.at].copy_from_slice(&script.u16().to_be_bytes()),
        3 => {
            let len = chosen.end - chosen.start();
            splice(dialect, message, (chosen.start(), true), len, script.bytes());
        }
        _ => {
            let typ = script.u16().to_be_bytes();
            let body = script.bytes();
            let new = [&typ[..], &(body.len() as u16).to_be_bytes(), body].concat();
            splice(dialect, message, (begin, false), 0, &new);
        }
    }
}

/// Removes the extension of this type from a hello if it has one.
pub(crate) fn remove_extension(dialect: Dialect, message: &mut Message, typ: u16) {
    let all = vectors(dialect, message.typ, &message.body);
    let is_it =
        |vector: &&Vector| vector.is_extension && message.body[vector.at - 2..vector.at] == typ.to_be_bytes();
    if let Some(found) = all.iter().find(is_it) {
        splice(dialect, message, (found.at - 2, false), found.end + 2 - found.at, &[]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// EncryptedExtensions with ALPN, whose name becomes longer.
    #[test]
    fn edit_corrects_the_lengths_around_it() {
        let body = vec![0, 9, 0, 16, 0, 5, 0, 3, 2, b'h', b'2'];
        let mut message = Message { typ: 8, body, protection: None };
        splice(Dialect::Tls13(TransportKind::Stream), &mut message, (9, true), 1, b"abc");
        assert_eq!(message.body, [0, 11, 0, 16, 0, 7, 0, 5, 2, b'a', b'b', b'c', b'2']);
        let found = vectors(Dialect::Tls13(TransportKind::Stream), 8, &message.body);
        assert_eq!(found.iter().filter(|vector| vector.is_extension).count(), 1);
        assert_eq!(found.iter().map(|vector| vector.end).collect::<Vec<_>>(), [13; 3]);
    }

    /// RFC 5246 §7.4.3 with RFC 5489 §2: identity hint, curve, point.
    #[test]
    fn finds_the_vectors_of_a_server_key_exchange() {
        let body = [0, 1, b'h', 3, 0, 23, 3, 4, 1, 2];
        let dialect =
            Dialect::Tls12 { kind: TransportKind::Stream, psk: true, exchange: Tls12KeyExchange::Ecdhe };
        let found = vectors(dialect, 12, &body);
        assert_eq!(found.iter().map(|vector| (vector.at, vector.end)).collect::<Vec<_>>(), [(0, 3), (6, 10)]);
    }

    /// No script makes a change panic, for any message.
    #[test]
    fn edit_never_panics() {
        let bytes: Vec<u8> = (0..=255).collect();
        let tls12 = |exchange, psk| Dialect::Tls12 { kind: TransportKind::Datagram, psk, exchange };
        let dialects = [
            Dialect::Tls13(TransportKind::Datagram),
            tls12(Tls12KeyExchange::Ecdhe, false),
            tls12(Tls12KeyExchange::Dhe, true),
            tls12(Tls12KeyExchange::Psk, true),
        ];
        for (dialect, typ) in dialects.into_iter().flat_map(|dialect| (0..32).map(move |typ| (dialect, typ)))
        {
            for seed in 0..=255u8 {
                let script: Vec<u8> = bytes.iter().map(|byte| byte.wrapping_mul(seed) ^ seed).collect();
                let mut message =
                    Message { typ, body: script[..usize::from(seed)].to_vec(), protection: None };
                edit(dialect, &mut message, &mut Script::new(&script));
            }
        }
    }
}
