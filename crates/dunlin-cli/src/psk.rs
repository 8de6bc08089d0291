//! Files of pre-shared keys in the format of GnuTLS's psktool: a line for each key, `identity:key`, the key in
//! hexadecimal. An identity that cannot stand so is written in hexadecimal after a `#`.

use std::collections::HashMap;
use std::fmt;

use zeroize::Zeroizing;

use crate::error::count;

/// The shortest key that is taken without being asked for, in bytes: external PSKs MUST have 128 bits (RFC 9257 §6).
pub(crate) const MIN_KEY_LEN: usize = 16;
/// The longest key, in bytes: what psktool makes and OpenSSL takes at most.
pub(crate) const MAX_KEY_LEN: usize = 512;
/// The longest identity, in bytes (RFC 8446 §4.2.11).
const MAX_IDENTITY_LEN: usize = 0xffff;

/// Whether keys below [`MIN_KEY_LEN`] are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShortKeys {
    /// They are refused.
    Refuse,
    /// They are taken, for old peers and measurements.
    Allow,
}

/// The name of a pre-shared key: any bytes, 1 to 65535 of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity(Vec<u8>);

impl Identity {
    /// Reads it as it stands in a file or on the command line.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, Fault> {
        let bytes = match text {
            [b'#', hex @ ..] => base16ct::mixed::decode_vec(hex).map_err(|_| Fault::HexIdentity)?,
            plain => plain.to_vec(),
        };
        if bytes.is_empty() || bytes.len() > MAX_IDENTITY_LEN {
            return Err(Fault::IdentityLength(bytes.len()));
        }
        Ok(Self(bytes))
    }

    /// The bytes that stand on the wire.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Writes it as it stands in a file: plainly if that can be read back and shown, else in hexadecimal.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hard = |c: char| c == ':' || c.is_control();
        match std::str::from_utf8(&self.0) {
            Ok(plain) if !plain.starts_with('#') && !plain.contains(hard) => f.write_str(plain),
            _ => write!(f, "#{}", base16ct::lower::encode_string(&self.0)),
        }
    }
}

/// A pre-shared key and its identity. The key is wiped when it is dropped, and never shown by accident.
pub(crate) struct Psk {
    /// What the client names it by.
    pub(crate) identity: Identity,
    /// The secret.
    pub(crate) key: Zeroizing<Vec<u8>>,
}

impl Psk {
    /// The line that stands for it in a file, without its end.
    pub(crate) fn to_line(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{}:{}", self.identity, *self.key_hex()))
    }

    /// The key in hexadecimal.
    pub(crate) fn key_hex(&self) -> Zeroizing<String> {
        Zeroizing::new(base16ct::lower::encode_string(&self.key))
    }

    fn parse(line: &[u8], short: ShortKeys) -> Result<Self, Fault> {
        let colon = line.iter().position(|byte| *byte == b':').ok_or(Fault::NoColon)?;
        let identity = Identity::parse(&line[..colon])?;
        let key = base16ct::mixed::decode_vec(line[colon + 1..].trim_ascii_end());
        let key = key.map(Zeroizing::new).map_err(|_| Fault::HexKey)?;
        match key.len() {
            MIN_KEY_LEN..=MAX_KEY_LEN => {}
            1..MIN_KEY_LEN if short == ShortKeys::Allow => {}
            length => return Err(Fault::KeyLength(length)),
        }
        Ok(Self { identity, key })
    }
}

/// The keys of a file, in its order, each identity once.
#[derive(Default)]
pub(crate) struct PskFile {
    entries: Vec<Psk>,
}

impl PskFile {
    /// Reads a whole file. Empty lines are passed over.
    pub(crate) fn parse(file: &[u8], short: ShortKeys) -> Result<Self, BadLine> {
        let mut entries = vec![];
        let mut seen = HashMap::new();
        for (line, number) in file.split(|byte| *byte == b'\n').zip(1..) {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.trim_ascii().is_empty() {
                continue;
            }
            let bad = |fault| BadLine { number, fault };
            let psk = Psk::parse(line, short).map_err(bad)?;
            if let Some(first) = seen.insert(psk.identity.clone(), number) {
                return Err(bad(Fault::Duplicate(first)));
            }
            entries.push(psk);
        }
        Ok(Self { entries })
    }

    /// The file's content.
    pub(crate) fn to_text(&self) -> Zeroizing<String> {
        let lines: Vec<_> = self.entries.iter().map(Psk::to_line).collect();
        // Room for all of it, because a string that grows leaves unwiped copies behind.
        let mut text = Zeroizing::new(String::with_capacity(lines.iter().map(|line| line.len() + 1).sum()));
        for line in lines {
            text.push_str(&line);
            text.push('\n');
        }
        text
    }

    /// All keys, in the file's order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Psk> {
        self.entries.iter()
    }

    /// The key of this identity.
    pub(crate) fn get(&self, identity: &Identity) -> Option<&Psk> {
        self.entries.iter().find(|psk| psk.identity == *identity)
    }

    /// Adds a key, in place of the one of the same identity if there is one.
    pub(crate) fn insert(&mut self, psk: Psk) {
        match self.entries.iter_mut().find(|old| old.identity == psk.identity) {
            Some(old) => *old = psk,
            None => self.entries.push(psk),
        }
    }

    /// Takes the key of this identity away; whether there was one.
    pub(crate) fn remove(&mut self, identity: &Identity) -> bool {
        let before = self.entries.len();
        self.entries.retain(|psk| psk.identity != *identity);
        self.entries.len() < before
    }
}

/// A line of a file that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {number}: {fault}")]
pub(crate) struct BadLine {
    /// Which line, from 1.
    pub(crate) number: usize,
    /// What is wrong with it.
    pub(crate) fault: Fault,
}

/// What is wrong with a line, an identity or a key. The text never repeats the line, which holds a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// No colon in the line.
    #[error("no colon between identity and key")]
    NoColon,
    /// What follows `#` is not hexadecimal.
    #[error("the identity after # is not hexadecimal")]
    HexIdentity,
    /// No identity, or one too long; its length in bytes.
    #[error("an identity of {}, where 1 to 65535 are possible", count(*.0, "byte"))]
    IdentityLength(usize),
    /// The key is not hexadecimal.
    #[error("the key is not hexadecimal")]
    HexKey,
    /// A key that is too short or too long; its length in bytes.
    #[error("a key of {}, where {MIN_KEY_LEN} to {MAX_KEY_LEN} are allowed", count(*.0, "byte"))]
    KeyLength(usize),
    /// The identity stands on another line already; its number.
    #[error("the same identity as on line {0}")]
    Duplicate(usize),
}

impl Fault {
    /// What the user can do about it.
    pub(crate) fn advice(self) -> &'static str {
        match self {
            Self::NoColon | Self::HexKey => "write identity:key with the key in hexadecimal",
            Self::HexIdentity => "write an even number of hexadecimal digits after #",
            Self::IdentityLength(_) => "give an identity",
            Self::KeyLength(1..MIN_KEY_LEN) => {
                "take a longer key, or add --allow-short if the peer can do no better"
            }
            Self::KeyLength(_) => "take a key of another length",
            Self::Duplicate(_) => "remove one of the two lines",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "000102030405060708090a0b0c0d0e0f";

    fn parse(text: &str, short: ShortKeys) -> Result<PskFile, BadLine> {
        PskFile::parse(text.as_bytes(), short)
    }

    fn fault(text: &str) -> Option<(usize, Fault)> {
        parse(text, ShortKeys::Refuse).err().map(|bad| (bad.number, bad.fault))
    }

    #[test]
    fn a_file_is_read_and_written() {
        let upper = KEY.to_uppercase();
        let text = format!("alice:{KEY}\n\n#616c3a696365:{upper} \r\nü x:{KEY}");
        let file = parse(&text, ShortKeys::Refuse).unwrap();
        let identities: Vec<_> = file.iter().map(|psk| psk.identity.as_bytes()).collect();
        assert_eq!(identities, [&b"alice"[..], b"al:ice", "ü x".as_bytes()]);
        assert!(file.iter().all(|psk| psk.key[..] == (0..16).collect::<Vec<u8>>()[..]));
        assert_eq!(*file.to_text(), format!("alice:{KEY}\n#616c3a696365:{KEY}\nü x:{KEY}\n"));
    }

    #[test]
    fn identities_are_written_so_that_they_can_be_read() {
        for (bytes, text) in [
            (&b"plain"[..], "plain"),
            (b"#1", "#2331"),
            (b"a:b", "#613a62"),
            (b"a\nb", "#610a62"),
            (b"\xff", "#ff"),
            (b" ", " "),
        ] {
            assert_eq!(Identity(bytes.to_vec()).to_string(), text);
            assert_eq!(Identity::parse(text.as_bytes()).unwrap().as_bytes(), bytes);
        }
        assert_eq!(Identity::parse(b""), Err(Fault::IdentityLength(0)));
        assert_eq!(Identity::parse(b"#"), Err(Fault::IdentityLength(0)));
        assert_eq!(Identity::parse(&vec![b'x'; 65536]), Err(Fault::IdentityLength(65536)));
        assert!(Identity::parse(&vec![b'x'; 65535]).is_ok());
    }

    #[test]
    fn malformed_lines_are_named() {
        let long = "00".repeat(513);
        for (line, want) in [
            ("alice", Fault::NoColon),
            (":00", Fault::IdentityLength(0)),
            ("#6:00", Fault::HexIdentity),
            ("#zz:00", Fault::HexIdentity),
            ("alice:0", Fault::HexKey),
            ("alice:xx", Fault::HexKey),
            ("a:b:00", Fault::HexKey),
            ("alice:", Fault::KeyLength(0)),
            ("alice:0001", Fault::KeyLength(2)),
            (&format!("alice:{long}"), Fault::KeyLength(513)),
            (&format!("bob:{KEY}"), Fault::Duplicate(1)),
        ] {
            assert_eq!(fault(&format!("bob:{KEY}\n\n{line}\n")), Some((3, want)), "{line}");
        }
        assert_eq!(fault(&format!("bob:{KEY}")), None);
        assert_eq!(fault(""), None);
    }

    /// Whatever a file is cut to and changed to, it is refused or read; and what was read is written and reads the same.
    #[test]
    fn damaged_files() {
        let whole = format!("alice:{KEY}\n\n#616c3a696365:{KEY} \r\nü x:{KEY}\nz:00\n").into_bytes();
        let cuts = (0..whole.len()).map(|len| whole[..len].to_vec());
        let changes = (0..whole.len()).flat_map(|at| {
            let whole = &whole;
            b"\n\r #:0aZ\0\xff".iter().map(move |byte| [&whole[..at], &[*byte], &whole[at + 1..]].concat())
        });
        let mut read = 0;
        for file in cuts.chain(changes) {
            let Ok(file) = PskFile::parse(&file, ShortKeys::Allow) else { continue };
            read += 1;
            let text = file.to_text();
            let again = PskFile::parse(text.as_bytes(), ShortKeys::Allow).unwrap();
            assert_eq!(again.to_text(), text);
        }
        assert!(read > 100, "{read}");
    }

    #[test]
    fn short_keys_are_taken_only_when_asked_for() {
        assert_eq!(fault(&format!("a:{}", "00".repeat(15))), Some((1, Fault::KeyLength(15))));
        assert!(parse("a:00", ShortKeys::Allow).is_ok());
        assert!(parse("a:", ShortKeys::Allow).is_err());
    }

    #[test]
    fn keys_are_replaced_and_removed() {
        let psk = |name: &str, byte| Psk {
            identity: Identity::parse(name.as_bytes()).unwrap(),
            key: Zeroizing::new(vec![byte; 16]),
        };
        let mut file = PskFile::default();
        for (name, byte) in [("a", 1), ("b", 2), ("a", 3)] {
            file.insert(psk(name, byte));
        }
        let keys: Vec<_> = file.iter().map(|psk| (psk.identity.to_string(), psk.key[0])).collect();
        assert_eq!(keys, [("a".to_owned(), 3), ("b".to_owned(), 2)]);
        let a = Identity::parse(b"a").unwrap();
        assert!(file.get(&a).is_some() && file.remove(&a) && !file.remove(&a) && file.get(&a).is_none());
    }
}
