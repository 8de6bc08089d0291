//! Pre-shared keys outside of the engine: what is kept of each, where, and what becomes of it in time.

mod error;
#[cfg(feature = "files")]
pub mod file;
pub mod lifecycle;
#[cfg(feature = "files")]
pub mod psktool;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "files")]
pub mod time;
#[cfg(feature = "files")]
pub mod toml;

use std::fmt;
use std::sync::Arc;

use dunlin::auth::{ExternalPsk, Psk};
use dunlin::crypto::{CryptoProvider, HashAlgorithm};
use dunlin::{Error, Now, TransportKind};
use hashlink::LinkedHashMap;
use zeroize::Zeroizing;

pub use error::{PskError, PskFault};

/// The shortest key that is taken without being asked for, in bytes: external PSKs MUST have 128 bits (RFC 9257 §6).
pub const MIN_KEY_LEN: usize = dunlin::auth::MIN_PSK_LEN;
/// The longest key, in bytes: what psktool makes and OpenSSL takes at most.
pub const MAX_KEY_LEN: usize = 512;
/// The longest identity and the longest context, in bytes (RFC 8446 §4.2.11, RFC 9258 §4.1).
const MAX_IDENTITY_LEN: usize = 0xffff;
/// The longest name of a device and the longest reason, in bytes: a line of a list.
const MAX_TEXT_LEN: usize = 255;

/// Whether keys below [`MIN_KEY_LEN`] are taken from a file that cannot say so by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShortKeys {
    /// They are refused.
    #[default]
    Refuse,
    /// They are taken, for old peers and measurements.
    Allow,
}

/// The name of a pre-shared key: any bytes, 1 to 65535 of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity(Vec<u8>);

impl Identity {
    /// Reads it as it stands in a file or on the command line: plainly, or in hexadecimal after a `#`.
    ///
    /// # Errors
    /// What follows the `#` is not hexadecimal, or its length is impossible.
    pub fn parse(text: &[u8]) -> Result<Self, PskFault> {
        let bytes = match text {
            [b'#', hex @ ..] => base16ct::mixed::decode_vec(hex).map_err(|_| PskFault::HexIdentity)?,
            plain => plain.to_vec(),
        };
        Self::from_bytes(bytes)
    }

    /// The name that goes over the wire.
    ///
    /// # Errors
    /// Its length is impossible.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, PskFault> {
        match bytes.len() {
            1..=MAX_IDENTITY_LEN => Ok(Self(bytes)),
            length => Err(PskFault::IdentityLength(length)),
        }
    }

    /// The bytes that stand on the wire.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Writes it as it stands in a file: plainly if that can be read back and shown, else in hexadecimal.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text_of(&self.0))
    }
}

/// Any bytes as text that can be read back: plainly, or in hexadecimal after a `#`.
pub fn text_of(bytes: &[u8]) -> String {
    let hard = |c: char| c == ':' || c.is_control();
    match std::str::from_utf8(bytes) {
        Ok(plain) if !plain.starts_with('#') && !plain.contains(hard) => plain.to_owned(),
        _ => format!("#{}", base16ct::lower::encode_string(bytes)),
    }
}

/// The name of a hash in files, databases and options.
pub const fn hash_name(hash: HashAlgorithm) -> &'static str {
    match hash {
        HashAlgorithm::Sha256 => "sha256",
        HashAlgorithm::Sha384 => "sha384",
    }
}

/// When and why a key was revoked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revoked {
    /// In seconds since 1970.
    pub at_s: u64,
    /// Why, for people.
    pub reason: Option<String>,
}

/// A pre-shared key and what is known of it. The key is wiped when it is dropped, and never shown by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct PskRecord {
    /// What the client names it by.
    pub identity: Identity,
    /// The secret.
    pub key: Zeroizing<Vec<u8>>,
    /// The hash of the suites that it goes with (RFC 8446 §4.2.11).
    pub hash: HashAlgorithm,
    /// The device that has it. Several keys may belong to one.
    pub name: Option<String>,
    /// From when on it is valid, in seconds since 1970.
    pub not_before_s: Option<u64>,
    /// The moment from which on it is not valid any more, in seconds since 1970.
    pub not_after_s: Option<u64>,
    /// When it was revoked, if it was.
    pub revoked: Option<Revoked>,
    /// Whether it may be shorter than [`MIN_KEY_LEN`].
    pub allow_short: bool,
    /// If it is to be imported (RFC 9258): the context that both sides bind it to, which may be empty.
    pub import: Option<Vec<u8>>,
}

/// What can be done with a key now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is good.
    Valid,
    /// Its time has not come.
    Early,
    /// Its time is over.
    Expired,
    /// It was revoked.
    Revoked,
}

impl PskRecord {
    /// A key for suites with SHA-256, of no particular device, valid at any time.
    pub const fn new(identity: Identity, key: Zeroizing<Vec<u8>>) -> Self {
        Self {
            identity,
            key,
            hash: HashAlgorithm::Sha256,
            name: None,
            not_before_s: None,
            not_after_s: None,
            revoked: None,
            allow_short: false,
            import: None,
        }
    }

    /// The key in hexadecimal.
    pub fn key_hex(&self) -> Zeroizing<String> {
        Zeroizing::new(base16ct::lower::encode_string(&self.key))
    }

    /// What can be done with it at this time, in seconds since 1970.
    pub fn state(&self, now_s: u64) -> State {
        if self.revoked.is_some() {
            State::Revoked
        } else if self.not_before_s.is_some_and(|from| now_s < from) {
            State::Early
        } else if self.not_after_s.is_some_and(|end| now_s >= end) {
            State::Expired
        } else {
            State::Valid
        }
    }

    /// Whether a peer may be believed by it at this time.
    pub fn is_valid(&self, now: Now) -> bool {
        self.state(now.unix_ms / 1000) == State::Valid
    }

    /// What no store takes.
    ///
    /// # Errors
    /// The key is too short or too long, its validity ends before it begins, a text is too long, or a key that is to be
    /// imported is short.
    pub fn check(&self) -> Result<(), PskFault> {
        match self.key.len() {
            MIN_KEY_LEN..=MAX_KEY_LEN => {}
            // RFC 9258 §4.1 makes keys of full length of it, which would hide that it can be guessed.
            1..MIN_KEY_LEN if self.allow_short && self.import.is_none() => {}
            length => return Err(PskFault::KeyLength(length)),
        }
        if let (Some(from), Some(end)) = (self.not_before_s, self.not_after_s)
            && end < from
        {
            return Err(PskFault::EmptyValidity);
        }
        let reason = self.revoked.as_ref().and_then(|r| r.reason.as_deref());
        for (what, text) in [("name", self.name.as_deref()), ("reason", reason)] {
            if text.is_some_and(|t| t.is_empty() || t.len() > MAX_TEXT_LEN || t.contains(char::is_control)) {
                return Err(PskFault::Text(what));
            }
        }
        match self.import.as_ref().is_some_and(|context| context.len() > MAX_IDENTITY_LEN) {
            true => Err(PskFault::Text("import_context")),
            false => Ok(()),
        }
    }

    /// The keys for the engine: one, or one for each hash where it is imported (RFC 9258 §4).
    ///
    /// # Errors
    /// The provider has no suite with its hash, or it is not as [`PskRecord::check`] wants it.
    pub fn psks(&self, provider: &CryptoProvider, transport: TransportKind) -> Result<Vec<Psk>, Error> {
        let identity = self.identity.as_bytes();
        let psks = match &self.import {
            Some(context) => {
                let external = ExternalPsk { identity, key: &self.key, hash: self.hash, context };
                Psk::import(provider, &external, transport)?
            }
            None if self.allow_short => vec![Psk::new_allow_short(identity, &self.key)?.with_hash(self.hash)],
            None => vec![Psk::new(identity, &self.key)?.with_hash(self.hash)],
        };
        Ok(match &self.name {
            Some(name) => psks.into_iter().map(|psk| psk.with_name(name)).collect(),
            None => psks,
        })
    }
}

/// The key that a peer means by `wire`: that of the identity, or one that was imported (RFC 9258 §4.1). For stores of one's
/// own: `get` gives the record of an identity, and only one that is valid `now` is used.
///
/// # Errors
/// Those of `get`.
pub fn find<E>(
    wire: &[u8],
    now: Now,
    provider: &CryptoProvider,
    mut get: impl FnMut(&[u8]) -> Result<Option<PskRecord>, E>,
) -> Result<Option<Arc<Psk>>, E> {
    let mut valid = |identity: &[u8]| Ok(get(identity)?.filter(|record| record.is_valid(now)));
    let (found, transport) = match valid(wire)?.filter(|record| record.import.is_none()) {
        Some(record) => (Some(record), TransportKind::Stream),
        None => match ImportedIdentity::read(wire) {
            Some(imported) => {
                let record = valid(imported.identity)?;
                (record.filter(|r| r.import.as_deref() == Some(imported.context)), imported.transport)
            }
            None => (None, TransportKind::Stream),
        },
    };
    let psks = found.and_then(|record| record.psks(provider, transport).ok()).unwrap_or_default();
    Ok(psks.into_iter().find(|psk| psk.identity() == wire).map(Arc::new))
}

/// What the identity of an imported key says (`ImportedIdentity`, RFC 9258 §4.1), without the KDF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportedIdentity<'a> {
    /// The identity of the key that was imported.
    pub identity: &'a [u8],
    /// What it is bound to; may be empty.
    pub context: &'a [u8],
    /// Whether it is for TLS 1.3 or for DTLS 1.3.
    pub transport: TransportKind,
}

impl<'a> ImportedIdentity<'a> {
    /// Reads an identity as it stands on the wire; `None` if it is not one of an imported key.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let (identity, rest) = vec16(bytes).filter(|(identity, _)| !identity.is_empty())?;
        let (context, rest) = vec16(rest)?;
        let (protocol, _) = rest.split_first_chunk().filter(|(_, kdf)| kdf.len() == 2)?;
        let transport = match u16::from_be_bytes(*protocol) {
            0x0304 => TransportKind::Stream,
            0xfefc => TransportKind::Datagram,
            _ => return None,
        };
        Some(Self { identity, context, transport })
    }
}

fn vec16(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*len)))
}

/// What can be changed: a set in memory, or a transaction of a database.
pub trait PskRecords {
    /// The key of this identity.
    ///
    /// # Errors
    /// The store cannot be read.
    fn get(&self, identity: &Identity) -> Result<Option<PskRecord>, PskError>;
    /// All keys of the device with this name, the oldest first.
    ///
    /// # Errors
    /// The store cannot be read.
    fn of_device(&self, name: &str) -> Result<Vec<PskRecord>, PskError>;
    /// Adds a key, in place of the one of the same identity if there is one.
    ///
    /// # Errors
    /// The record is not as [`PskRecord::check`] wants it, or the store cannot be written.
    fn put(&mut self, record: PskRecord) -> Result<(), PskError>;
    /// Takes the key of this identity away; whether there was one.
    ///
    /// # Errors
    /// The store cannot be written.
    fn remove(&mut self, identity: &Identity) -> Result<bool, PskError>;
    /// What a server of TLS 1.2 tells clients to choose their identity by (RFC 4279 §5.2).
    ///
    /// # Errors
    /// The store cannot be read.
    fn identity_hint(&self) -> Result<Option<Vec<u8>>, PskError>;
    /// Sets or removes the hint.
    ///
    /// # Errors
    /// The store cannot be written.
    fn set_identity_hint(&mut self, hint: Option<Vec<u8>>) -> Result<(), PskError>;
}

/// Keys in memory, in the order in which they came, each identity once.
#[derive(Clone, Default)]
pub struct PskSet {
    records: LinkedHashMap<Vec<u8>, PskRecord>,
    hint: Option<Vec<u8>>,
}

impl PskSet {
    /// All keys, in order.
    pub fn iter(&self) -> impl Iterator<Item = &PskRecord> {
        self.records.values()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The key of this identity.
    pub fn record(&self, identity: &[u8]) -> Option<&PskRecord> {
        self.records.get(identity)
    }

    /// What a server of TLS 1.2 tells clients to choose their identity by (RFC 4279 §5.2).
    pub fn hint(&self) -> Option<&[u8]> {
        self.hint.as_deref()
    }
}

impl PskRecords for PskSet {
    fn get(&self, identity: &Identity) -> Result<Option<PskRecord>, PskError> {
        Ok(self.record(identity.as_bytes()).cloned())
    }

    fn of_device(&self, name: &str) -> Result<Vec<PskRecord>, PskError> {
        Ok(self.iter().filter(|r| r.name.as_deref() == Some(name)).cloned().collect())
    }

    fn put(&mut self, record: PskRecord) -> Result<(), PskError> {
        record.check()?;
        self.records.replace(record.identity.as_bytes().to_vec(), record);
        Ok(())
    }

    fn remove(&mut self, identity: &Identity) -> Result<bool, PskError> {
        Ok(self.records.remove(identity.as_bytes()).is_some())
    }

    fn identity_hint(&self) -> Result<Option<Vec<u8>>, PskError> {
        Ok(self.hint.clone())
    }

    fn set_identity_hint(&mut self, hint: Option<Vec<u8>>) -> Result<(), PskError> {
        self.hint = hint;
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail")]
mod tests {
    use super::*;

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
        assert_eq!(Identity::parse(b""), Err(PskFault::IdentityLength(0)));
        assert_eq!(Identity::parse(b"#"), Err(PskFault::IdentityLength(0)));
        assert_eq!(Identity::parse(&vec![b'x'; 65536]), Err(PskFault::IdentityLength(65536)));
        assert!(Identity::parse(&vec![b'x'; 65535]).is_ok());
    }

    #[test]
    fn a_key_is_valid_from_its_first_moment_until_its_last() {
        let identity = Identity::parse(b"a").unwrap();
        let mut record = PskRecord::new(identity, Zeroizing::new(vec![0; 16]));
        assert_eq!(record.state(0), State::Valid);
        (record.not_before_s, record.not_after_s) = (Some(10), Some(20));
        let states = [9, 10, 19, 20].map(|now| record.state(now));
        assert_eq!(states, [State::Early, State::Valid, State::Valid, State::Expired]);
        record.revoked = Some(Revoked { at_s: 12, reason: None });
        // At once, and not only from that date on.
        assert_eq!(record.state(11), State::Revoked);
    }
}
