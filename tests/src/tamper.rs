//! A hostile peer that knows the keys of an honest handshake and rewrites its messages.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use dunlin::KeyLog;
use dunlin::crypto::{CryptoProvider, Tls13CipherSuite};

/// Stores the secrets of a handshake.
#[derive(Debug, Default)]
pub struct Secrets(Mutex<Vec<(String, Vec<u8>)>>);

impl KeyLog for Secrets {
    fn log(&self, label: &str, _: &[u8; 32], secret: &[u8]) {
        self.0.lock().unwrap().push((label.to_owned(), secret.to_vec()));
    }
}

impl Secrets {
    /// Returns the secret with this label.
    pub fn get(&self, label: &str) -> Vec<u8> {
        let all = self.0.lock().unwrap();
        all.iter().find(|(l, _)| l == label).map(|(_, s)| s.clone()).expect("no such secret")
    }
}

/// Key and IV of one traffic secret.
pub struct Keys {
    suite: &'static Tls13CipherSuite,
    key: Vec<u8>,
    iv: Vec<u8>,
    /// The key that masks record numbers, for datagrams alone.
    number: Vec<u8>,
}

impl Keys {
    /// Derives key and IV from a logged traffic secret (RFC 8446 §7.3).
    pub fn new(suite: &'static Tls13CipherSuite, secret: &[u8]) -> Self {
        Self::with_prefix("tls13 ", suite, secret)
    }

    /// The same for DTLS 1.3 (RFC 9147 §5.9).
    pub fn of_datagrams(suite: &'static Tls13CipherSuite, secret: &[u8]) -> Self {
        Self::with_prefix("dtls13", suite, secret)
    }

    fn with_prefix(prefix: &str, suite: &'static Tls13CipherSuite, secret: &[u8]) -> Self {
        let expand = |label: &str, len: usize| {
            let label = format!("{prefix}{label}");
            let hmac = suite.hash.hmac(secret);
            let info =
                [&(len as u16).to_be_bytes()[..], &[label.len() as u8], label.as_bytes(), &[0, 1]].concat();
            hmac.sign(&[&info]).as_ref()[..len].to_vec()
        };
        let key_len = suite.aead.algorithm().key_len();
        Self { suite, key: expand("key", key_len), iv: expand("iv", 12), number: expand("sn", key_len) }
    }

    fn nonce(&self, number: u64) -> [u8; 12] {
        let mut nonce: [u8; 12] = self.iv.clone().try_into().unwrap();
        nonce.iter_mut().rev().zip(number.to_be_bytes().iter().rev()).for_each(|(n, s)| *n ^= s);
        nonce
    }

    /// Returns the inner plaintext of a record.
    pub fn open(&self, number: u64, record: &[u8]) -> Vec<u8> {
        let key = self.suite.aead.key(&self.key).unwrap();
        let (header, body) = record.split_at(5);
        let (text, tag) = body.split_at(body.len() - self.suite.aead.algorithm().tag_len());
        let mut text = text.to_vec();
        key.open(&self.nonce(number), header, &mut text, tag).expect("a record of the honest peer");
        text
    }

    /// Returns a record with this inner plaintext.
    pub fn seal(&self, number: u64, inner: &[u8]) -> Vec<u8> {
        let key = self.suite.aead.key(&self.key).unwrap();
        let len = inner.len() + self.suite.aead.algorithm().tag_len();
        let header = [23, 3, 3, (len >> 8) as u8, len as u8];
        let mut data = inner.to_vec();
        let mut tag = vec![0; self.suite.aead.algorithm().tag_len()];
        key.seal(&self.nonce(number), &header, &mut data, &mut tag).unwrap();
        [&header[..], &data, &tag].concat()
    }
}

impl Keys {
    /// Returns a record of DTLS 1.3 in epoch 3, without a connection ID, with this inner plaintext (RFC 9147
    /// §4).
    pub fn seal_datagram(&self, number: u16, inner: &[u8]) -> Vec<u8> {
        let (aead, tag_len) = (self.suite.aead, self.suite.aead.algorithm().tag_len());
        // The fixed bits, a number of 16 bits, a length, and the low bits of the epoch.
        let mut header = vec![0b0010_1111];
        header.extend(number.to_be_bytes());
        header.extend(((inner.len() + tag_len) as u16).to_be_bytes());
        let mut data = inner.to_vec();
        let mut tag = vec![0; tag_len];
        let key = aead.key(&self.key).unwrap();
        key.seal(&self.nonce(number.into()), &header, &mut data, &mut tag).unwrap();
        data.extend(tag);
        let mask = aead.record_number_key(&self.number).unwrap().mask(data[..16].try_into().unwrap());
        (header[1], header[2]) = (header[1] ^ mask[0], header[2] ^ mask[1]);
        [header, data].concat()
    }
}

/// Splits bytes into records.
pub fn records(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    while let [_, _, _, a, b, ..] = bytes {
        let (record, rest) = bytes.split_at(5 + usize::from(u16::from_be_bytes([*a, *b])));
        records.push(record.to_vec());
        bytes = rest;
    }
    records
}

/// Splits bytes into handshake messages.
pub fn messages(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut messages = Vec::new();
    while let [_, a, b, c, ..] = bytes {
        let len = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        let (message, rest) = bytes.split_at(4 + len);
        messages.push(message.to_vec());
        bytes = rest;
    }
    messages
}

/// Reads two bytes as a number.
fn u16_at(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_be_bytes([bytes[at], bytes[at + 1]]))
}

/// Returns the position of the suites in a ClientHello, or of the suite in a ServerHello. `flight` begins
/// with the record header.
pub fn suites_at(flight: &[u8]) -> Range<usize> {
    // Record header, type, length, version and random; then the session ID.
    let at = 5 + 4 + 2 + 32;
    let at = at + 1 + usize::from(flight[at]);
    match flight[5] {
        1 => at + 2..at + 2 + u16_at(flight, at),
        _ => at..at + 2,
    }
}

/// Returns the position of this extension's body in the same message.
pub fn extension_at(flight: &[u8], typ: u16) -> Option<Range<usize>> {
    let mut at = suites_at(flight).end;
    // A ClientHello has a list of compression methods, a ServerHello has one method.
    at += if flight[5] == 1 { 1 + usize::from(flight[at]) } else { 1 };
    let end = at + 2 + u16_at(flight, at);
    at += 2;
    while at < end {
        let body = at + 4..at + 4 + u16_at(flight, at + 2);
        if u16_at(flight, at) == usize::from(typ) {
            return Some(body);
        }
        at = body.end;
    }
    None
}

/// Returns the body of this extension.
pub fn extension(flight: &[u8], typ: u16) -> Option<&[u8]> {
    extension_at(flight, typ).map(|body| &flight[body])
}

/// Returns a message of this type and body.
pub fn message(typ: u8, body: &[u8]) -> Vec<u8> {
    [&[typ], &(body.len() as u32).to_be_bytes()[1..], body].concat()
}

/// Rewrites the encrypted handshake messages in a flight; records of other types stay.
pub fn rewrite(
    provider: &Arc<CryptoProvider>,
    suite: dunlin::wire::CipherSuite,
    secret: &[u8],
    flight: &[u8],
    edit: impl FnOnce(Vec<Vec<u8>>) -> Vec<Vec<u8>>,
) -> Vec<u8> {
    let keys = Keys::new(provider.suite(suite).unwrap(), secret);
    let mut out = Vec::new();
    let mut number = 0;
    let mut handshake = Vec::new();
    for record in records(flight) {
        if record[0] == 23 {
            let mut inner = keys.open(number, &record);
            assert_eq!(inner.pop(), Some(22), "a handshake record");
            handshake.extend(inner);
            number += 1;
        } else {
            out.extend(record);
        }
    }
    let edited: Vec<u8> = edit(messages(&handshake)).concat();
    for (number, content) in edited.chunks(1 << 14).enumerate() {
        out.extend(keys.seal(number as u64, &[content, &[22]].concat()));
    }
    out
}
