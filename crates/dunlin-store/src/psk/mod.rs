//! Pre-shared keys outside of the engine: their records, files and databases, and their life cycle.

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
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

pub use error::{PskError, PskFault};

/// The shortest key accepted by default, in bytes: external PSKs MUST have at least 128 bits (RFC 9257 §6).
pub const MIN_KEY_LEN: usize = dunlin::auth::MIN_PSK_LEN;
/// The longest key, in bytes: the limit of psktool and OpenSSL.
pub const MAX_KEY_LEN: usize = 512;
/// The longest identity and the longest context, in bytes (RFC 8446 §4.2.11, RFC 9258 §4.1).
const MAX_IDENTITY_LEN: usize = 0xffff;
/// The longest device name and the longest reason, in bytes. Either has to fit a line of a list.
const MAX_TEXT_LEN: usize = 255;

/// Whether to accept keys shorter than [`MIN_KEY_LEN`] from a file whose format cannot mark them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShortKeys {
    /// Short keys are refused.
    #[default]
    Refuse,
    /// Short keys are accepted, for old peers and measurements.
    Allow,
}

/// The identity of a pre-shared key: 1 to 65535 arbitrary bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity(Vec<u8>);

impl Identity {
    /// Reads an identity from a file or the command line: plain text, or hexadecimal after a `#`.
    ///
    /// # Errors
    /// [`PskFault::HexIdentity`]; [`PskFault::IdentityLength`].
    pub fn parse(text: &[u8]) -> Result<Self, PskFault> {
        let bytes = match text {
            [b'#', hex @ ..] => base16ct::mixed::decode_vec(hex).map_err(|_| PskFault::HexIdentity)?,
            plain => plain.to_vec(),
        };
        Self::from_bytes(bytes)
    }

    /// The identity with these bytes on the wire.
    ///
    /// # Errors
    /// [`PskFault::IdentityLength`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, PskFault> {
        match bytes.len() {
            1..=MAX_IDENTITY_LEN => Ok(Self(bytes)),
            length => Err(PskFault::IdentityLength(length)),
        }
    }

    /// The bytes on the wire.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Writes the identity with [`text_of`].
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text_of(&self.0))
    }
}

/// Writes bytes as text that can be read back: plain if they are printable, else hexadecimal after a `#`.
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
    /// The time of the revocation, in seconds since 1970.
    pub at_s: u64,
    /// The reason, as text for people.
    pub reason: Option<String>,
}

/// A pre-shared key with its properties. The key is wiped on drop. There is no `Debug`, which could reveal
/// it.
#[derive(Clone)]
pub struct PskRecord {
    /// The identity by which the client names the key.
    pub identity: Identity,
    /// The secret key.
    pub key: Zeroizing<Vec<u8>>,
    /// The hash of the cipher suites that can use the key (RFC 8446 §4.2.11).
    pub hash: HashAlgorithm,
    /// The device that has the key. A device may have several keys.
    pub name: Option<String>,
    /// When the key becomes valid, in seconds since 1970.
    pub not_before_s: Option<u64>,
    /// When the key expires, in seconds since 1970. It is not valid at that moment any more.
    pub not_after_s: Option<u64>,
    /// The revocation, if the key was revoked.
    pub revoked: Option<Revoked>,
    /// Whether the key may be shorter than [`MIN_KEY_LEN`].
    pub allow_short: bool,
    /// For an imported key (RFC 9258): the context to which both sides bind it, which may be empty.
    pub import: Option<Vec<u8>>,
}

/// The state of a key at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The key is valid.
    Valid,
    /// The key is not valid yet.
    Early,
    /// The key has expired.
    Expired,
    /// The key was revoked.
    Revoked,
}

impl PartialEq for PskRecord {
    fn eq(&self, other: &Self) -> bool {
        // Every field is named: a new one does not compile until it is compared, too.
        let Self { identity, key: _, hash, name, not_before_s, not_after_s, revoked, allow_short, import } =
            self;
        let others = (&other.identity, &other.hash, &other.name, &other.not_before_s, &other.not_after_s);
        (identity, hash, name, not_before_s, not_after_s) == others
            && (revoked, allow_short, import) == (&other.revoked, &other.allow_short, &other.import)
            && self.has_key_of(other)
    }
}

impl Eq for PskRecord {}

impl PskRecord {
    /// Whether both have the same key. The time of the comparison depends on the lengths of the keys, not on
    /// their content.
    pub fn has_key_of(&self, other: &Self) -> bool {
        self.key.as_slice().ct_eq(other.key.as_slice()).into()
    }

    /// A key for cipher suites with SHA-256, without a device, valid at any time.
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

    /// The state at this time, in seconds since 1970. A revocation counts at once, whatever its date.
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

    /// Whether the key may authenticate a peer at this time.
    pub fn is_valid(&self, now: Now) -> bool {
        self.state(now.unix_s()) == State::Valid
    }

    /// Checks the record; stores refuse invalid ones.
    ///
    /// # Errors
    /// [`PskFault::KeyLength`] if the key is too long, or too short and either imported or without
    /// `allow_short`; [`PskFault::EmptyValidity`]; [`PskFault::Text`].
    pub fn check(&self) -> Result<(), PskFault> {
        match self.key.len() {
            MIN_KEY_LEN..=MAX_KEY_LEN => {}
            // An imported key must not be short: the derived keys have full length and would hide that (RFC
            // 9258 §4.1).
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
        if self.import.as_ref().is_some_and(|context| context.len() > MAX_IDENTITY_LEN) {
            Err(PskFault::Text("import_context"))
        } else {
            Ok(())
        }
    }

    /// The keys for the engine: one, or if it is imported, one for each hash (RFC 9258 §4).
    ///
    /// # Errors
    /// The provider has no suite with its hash, or [`PskRecord::check`] fails.
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

/// Finds the key that a peer names by `wire`: an identity, or an `ImportedIdentity` (RFC 9258 §4.1).
/// Applications with their own stores can use it: `get` returns the record of an identity. Only a record that
/// is valid `now` is used.
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

/// The fields of an imported key's identity on the wire (`ImportedIdentity`, RFC 9258 §4.1), without the KDF.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportedIdentity<'a> {
    /// The identity of the external key.
    pub identity: &'a [u8],
    /// The context to which the key is bound; may be empty.
    pub context: &'a [u8],
    /// Whether the key is for TLS 1.3 or for DTLS 1.3.
    pub transport: TransportKind,
}

impl<'a> ImportedIdentity<'a> {
    /// Reads an identity from the wire; `None` if it does not belong to an imported key.
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

/// A changeable collection of keys: a set in memory, or a transaction of a database.
pub trait PskRecords {
    /// The key with this identity.
    ///
    /// # Errors
    /// The store cannot be read.
    fn get(&self, identity: &Identity) -> Result<Option<PskRecord>, PskError>;
    /// All keys with this device name, the oldest first.
    ///
    /// # Errors
    /// The store cannot be read.
    fn of_device(&self, name: &str) -> Result<Vec<PskRecord>, PskError>;
    /// Adds a key, or replaces the one with the same identity.
    ///
    /// # Errors
    /// [`PskRecord::check`] fails, or the store cannot be written.
    fn put(&mut self, record: PskRecord) -> Result<(), PskError>;
    /// Removes the key with this identity. Returns whether there was one.
    ///
    /// # Errors
    /// The store cannot be written.
    fn remove(&mut self, identity: &Identity) -> Result<bool, PskError>;
    /// The identity hint that a TLS 1.2 server sends to clients (RFC 4279 §5.2).
    ///
    /// # Errors
    /// The store cannot be read.
    fn identity_hint(&self) -> Result<Option<Vec<u8>>, PskError>;
    /// Sets or removes the identity hint.
    ///
    /// # Errors
    /// The store cannot be written.
    fn set_identity_hint(&mut self, hint: Option<Vec<u8>>) -> Result<(), PskError>;
}

/// Keys in memory, in the order of their insertion. Identities are unique.
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

    /// Whether the set has no keys.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The key with this identity.
    pub fn record(&self, identity: &[u8]) -> Option<&PskRecord> {
        self.records.get(identity)
    }

    /// The identity hint that a TLS 1.2 server sends to clients (RFC 4279 §5.2).
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
    fn records_with_another_key_or_another_field_differ() {
        let record = || PskRecord::new(Identity::parse(b"d1").unwrap(), Zeroizing::new(vec![1; 16]));
        assert!(record() == record());
        let other = |edit: fn(&mut PskRecord)| {
            let mut other = record();
            edit(&mut other);
            assert!(other != record());
            other
        };
        for key in [vec![1; 15], vec![1; 17], [vec![1; 15], vec![2]].concat(), vec![]] {
            let other = PskRecord::new(record().identity, Zeroizing::new(key));
            assert!(!other.has_key_of(&record()) && other != record());
        }
        other(|r| r.identity = Identity::parse(b"d2").unwrap());
        other(|r| r.hash = HashAlgorithm::Sha384);
        other(|r| r.name = Some("d".into()));
        other(|r| r.not_before_s = Some(1));
        other(|r| r.not_after_s = Some(1));
        other(|r| r.revoked = Some(Revoked { at_s: 1, reason: None }));
        other(|r| r.allow_short = true);
        assert!(other(|r| r.import = Some(vec![])).has_key_of(&record()));
    }

    #[test]
    fn reads_back_every_identity_it_writes() {
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
    fn a_key_is_valid_from_not_before_until_not_after() {
        let identity = Identity::parse(b"a").unwrap();
        let mut record = PskRecord::new(identity, Zeroizing::new(vec![0; 16]));
        assert_eq!(record.state(0), State::Valid);
        (record.not_before_s, record.not_after_s) = (Some(10), Some(20));
        let states = [9, 10, 19, 20].map(|now| record.state(now));
        assert_eq!(states, [State::Early, State::Valid, State::Valid, State::Expired]);
        record.revoked = Some(Revoked { at_s: 12, reason: None });
        // A revocation counts at once, not only from its date on.
        assert_eq!(record.state(11), State::Revoked);
    }
}
