//! Signed notes (C2SP signed-note): a text, and signatures by several keys. Ed25519 alone: signatures of the
//! note itself, and the cosignatures of witnesses with their time (C2SP tlog-cosignature, `cosignature/v1`).

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use base64ct::{Base64, Encoding};
use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin::wire::SignatureScheme;

use crate::hash::Sha256Hash;
use crate::key::{self, KeyError, KeyType, PublicKey};

/// The longest note, in bytes: a staple, which contains one, has at most 16 KiB.
pub const MAX_NOTE: usize = 16 * 1024;

/// The most signatures of a note. C2SP signed-note demands at least 16.
pub const MAX_NOTE_SIGNATURES: usize = 64;

/// The longest name of a key, in bytes: the longest origin of `did:dunlin`.
pub const MAX_KEY_NAME: usize = 255;

/// The length of the time before the signature in a cosignature.
const TIME: usize = 8;

/// A witness's clock may be ahead of the verifier's by this, in seconds.
pub const MAX_WITNESS_CLOCK_SKEW: u64 = 300;

/// Why a note or the name or text of a key is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoteError {
    /// The note is longer than [`MAX_NOTE`].
    #[error("signed note: longer than {MAX_NOTE} bytes")]
    TooLong,
    /// The note is not UTF-8, or has control characters.
    #[error("signed note: it is not UTF-8 text without control characters")]
    Text,
    /// The note has no signatures after its last empty line.
    #[error("signed note: no signatures after an empty line")]
    Unsigned,
    /// The line of a signature, counted from 1 after the empty line, is malformed.
    #[error("signed note: signature line {0} is malformed")]
    Line(usize),
    /// The note has more than [`MAX_NOTE_SIGNATURES`] signatures.
    #[error("signed note: more than {MAX_NOTE_SIGNATURES} signatures")]
    TooManySignatures,
    /// The key's name is empty, too long, or has a character that no name has.
    #[error(
        "key of a note: a name has 1 to {MAX_KEY_NAME} printable ASCII characters without space and \"+\""
    )]
    Name,
    /// The text of a key is not `NAME+ID+KEY`.
    #[error("key of a note: write NAME+ID+KEY, with the ID as 8 hexadecimal digits and the key in base64")]
    Vkey,
    /// The ID does not belong to the name and the key.
    #[error("key of a note: the ID does not belong to this name and key")]
    Id,
    /// The key is of another type than Ed25519, or is malformed.
    #[error("key of a note: {0}")]
    Key(#[from] KeyError),
    /// The signature of a known key is wrong.
    #[error("signed note: the signature of {0} is wrong")]
    Signature(String),
}

/// The kind of signatures that a key makes. Its number goes into the key's ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteKeyKind {
    /// The text of notes: type 0x01 of C2SP signed-note. Logs sign so.
    Note,
    /// The text of notes with the time: type 0x04. Witnesses sign so.
    Cosignature,
}

impl NoteKeyKind {
    const fn number(self) -> u8 {
        match self {
            Self::Note => 1,
            Self::Cosignature => 4,
        }
    }
}

/// The public key of a log or witness, with its name. Its text is a C2SP verifier key (vkey).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteKey {
    name: String,
    kind: NoteKeyKind,
    key: PublicKey,
    hash: Sha256Hash,
}

impl NoteKey {
    /// The key with this name.
    ///
    /// # Errors
    /// [`NoteError::Name`], [`NoteError::Key`].
    pub fn new(
        provider: &CryptoProvider,
        name: &str,
        kind: NoteKeyKind,
        key: &PublicKey,
    ) -> Result<Self, NoteError> {
        if !is_key_name(name) {
            return Err(NoteError::Name);
        }
        if key.key_type() != KeyType::Ed25519 {
            return Err(KeyError::Scheme(key.key_type(), SignatureScheme::ED25519).into());
        }
        let hashed = [name.as_bytes(), &[b'\n', kind.number()], key.raw()].concat();
        let hash = Sha256Hash::of(provider, &hashed)?;
        Ok(Self { name: name.to_owned(), kind, key: key.clone(), hash })
    }

    /// Reads a verifier key.
    ///
    /// # Errors
    /// [`NoteError::Vkey`], [`NoteError::Id`], [`NoteError::Name`], [`NoteError::Key`].
    pub fn read(provider: &CryptoProvider, text: &str) -> Result<Self, NoteError> {
        let mut parts = text.splitn(3, '+');
        let (Some(name), Some(id), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(NoteError::Vkey);
        };
        let key = Base64::decode_vec(key).map_err(|_| NoteError::Vkey)?;
        let kinds = [NoteKeyKind::Note, NoteKeyKind::Cosignature];
        let (kind, key) = key.split_first().ok_or(NoteError::Vkey)?;
        let kind = kinds.into_iter().find(|candidate| candidate.number() == *kind);
        let key = PublicKey::ed25519(key)?;
        let read = Self::new(provider, name, kind.ok_or(KeyError::UnknownType)?, &key)?;
        if read.to_string() == text {
            Ok(read)
        } else if id.len() == 8 && id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            Err(NoteError::Id)
        } else {
            Err(NoteError::Vkey)
        }
    }

    /// The name; a log's name is its origin.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kind of the key's signatures.
    pub fn kind(&self) -> NoteKeyKind {
        self.kind
    }

    /// The public key.
    pub fn public_key(&self) -> &PublicKey {
        &self.key
    }

    /// The first `N` bytes of the key ID: four in notes, eight in a handshake's `did_proof`.
    pub fn id<const N: usize>(&self) -> [u8; N] {
        let mut id = [0; N];
        id.iter_mut().zip(self.hash.as_bytes()).for_each(|(byte, hashed)| *byte = *hashed);
        id
    }

    fn verify(&self, provider: &CryptoProvider, text: &str, signature: &[u8]) -> Result<Signed, KeyError> {
        let verify = |message: &[u8], signature| {
            self.key.verify(provider, SignatureScheme::ED25519, message, signature)
        };
        match self.kind {
            NoteKeyKind::Note => verify(text.as_bytes(), signature).map(|()| Signed::Yes),
            NoteKeyKind::Cosignature => {
                let (time, signature) = signature.split_first_chunk::<TIME>().ok_or(KeyError::Signature)?;
                let time = u64::from_be_bytes(*time);
                // C2SP tlog-cosignature: the time does not exceed 2^63 - 1.
                if i64::try_from(time).is_err() {
                    return Err(KeyError::Signature);
                }
                verify(&cosigned(text, time), signature).map(|()| Signed::At(time))
            }
        }
    }
}

impl fmt::Display for NoteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+", self.name)?;
        self.id::<4>().iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        let key = [&[self.kind.number()], self.key.raw()].concat();
        write!(f, "+{}", Base64::encode_string(&key))
    }
}

/// Whether keys can have this name.
pub(super) fn is_key_name(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_graphic() && byte != b'+';
    (1..=MAX_KEY_NAME).contains(&name.len()) && name.bytes().all(good)
}

/// The message that a witness signs.
fn cosigned(text: &str, time_s: u64) -> Vec<u8> {
    format!("cosignature/v1\ntime {time_s}\n{text}").into_bytes()
}

/// Whether a key has signed a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signed {
    /// It has not.
    No,
    /// It has signed the text.
    Yes,
    /// It has signed the text at this time, in seconds since 1970.
    At(u64),
}

/// A key that signs notes.
#[derive(Clone, Debug)]
pub struct NoteSigner {
    public: NoteKey,
    signer: Arc<dyn SigningKey>,
}

impl NoteSigner {
    /// The Ed25519 key `signer` under this name.
    ///
    /// # Errors
    /// [`NoteError::Name`], [`NoteError::Key`].
    pub fn new(
        provider: &CryptoProvider,
        name: &str,
        kind: NoteKeyKind,
        signer: Arc<dyn SigningKey>,
    ) -> Result<Self, NoteError> {
        let key = PublicKey::from_spki(signer.public_key())?;
        Ok(Self { public: NoteKey::new(provider, name, kind, &key)?, signer })
    }

    /// The public key.
    pub fn key(&self) -> &NoteKey {
        &self.public
    }

    /// Signs a text that ends with a newline. The time, in seconds since 1970, goes into cosignatures alone.
    ///
    /// # Errors
    /// [`NoteError::Key`].
    pub fn sign(
        &self,
        provider: &CryptoProvider,
        text: &str,
        now_s: u64,
    ) -> Result<NoteSignature, NoteError> {
        let sign = |message: &[u8]| key::sign(&*self.signer, provider, SignatureScheme::ED25519, message);
        let signature = match self.public.kind {
            NoteKeyKind::Note => sign(text.as_bytes())?,
            NoteKeyKind::Cosignature => {
                let now_s = now_s.min(i64::MAX as u64);
                [now_s.to_be_bytes().as_slice(), &sign(&cosigned(text, now_s))?].concat()
            }
        };
        Ok(NoteSignature { name: self.public.name.clone(), id: self.public.id(), signature })
    }
}

/// A line with a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteSignature {
    name: String,
    id: [u8; 4],
    signature: Vec<u8>,
}

impl NoteSignature {
    /// A signature of a type that this module does not verify. The type and what belongs to the signer are in
    /// the ID.
    pub(super) fn new(name: String, id: [u8; 4], signature: Vec<u8>) -> Self {
        Self { name, id, signature }
    }

    fn read(line: &str) -> Option<Self> {
        let (name, signature) = line.strip_prefix("\u{2014} ")?.split_once(' ')?;
        if name.is_empty() || name.contains(|c: char| c.is_whitespace() || c == '+') {
            return None;
        }
        let signature = Base64::decode_vec(signature).ok()?;
        let (id, signature) = signature.split_first_chunk()?;
        let name = name.to_owned();
        let signature = signature.to_vec();
        (!signature.is_empty()).then_some(Self { name, id: *id, signature })
    }
}

impl fmt::Display for NoteSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = [&self.id, self.signature.as_slice()].concat();
        writeln!(f, "\u{2014} {} {}", self.name, Base64::encode_string(&bytes))
    }
}

/// A note. Its text says nothing before [`Note::signed_by`] has found a trusted key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    text: String,
    signatures: Vec<NoteSignature>,
}

impl Note {
    /// A note with this text, which ends with a newline.
    pub(super) fn new(text: String, signatures: Vec<NoteSignature>) -> Self {
        Self { text, signatures }
    }

    /// Reads a note of at most [`MAX_NOTE`] bytes.
    ///
    /// # Errors
    /// The note is malformed.
    pub fn read(bytes: &[u8]) -> Result<Self, NoteError> {
        if bytes.len() > MAX_NOTE {
            return Err(NoteError::TooLong);
        }
        let note = str::from_utf8(bytes).map_err(|_| NoteError::Text)?;
        if note.contains(|c: char| c < ' ' && c != '\n') {
            return Err(NoteError::Text);
        }
        let end = note.rfind("\n\n").ok_or(NoteError::Unsigned)?;
        let (text, lines) = note.split_at_checked(end + 1).ok_or(NoteError::Unsigned)?;
        let lines = lines.strip_prefix('\n').filter(|lines| !lines.is_empty()).ok_or(NoteError::Unsigned)?;
        let mut signatures = Vec::new();
        for (number, line) in (1..).zip(lines.split_inclusive('\n')) {
            if signatures.len() == MAX_NOTE_SIGNATURES {
                return Err(NoteError::TooManySignatures);
            }
            let signature = line.strip_suffix('\n').and_then(NoteSignature::read);
            signatures.push(signature.ok_or(NoteError::Line(number))?);
        }
        Ok(Self { text: text.to_owned(), signatures })
    }

    /// The text, with the newline at its end.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Adds those signatures of `lines` that one of `keys` has made, as a witness answers (C2SP
    /// tlog-witness), and leaves out other keys' signatures. The latest signature of a key replaces its
    /// others, so that no witness takes the place of others. Returns the number of keys with a new signature.
    ///
    /// # Errors
    /// A line is malformed, the note becomes too long, or a signature of a known key is wrong. The note is
    /// then as before.
    pub fn add_lines(
        &mut self,
        provider: &CryptoProvider,
        lines: &str,
        keys: &[NoteKey],
    ) -> Result<usize, NoteError> {
        let answer = Self::read(format!("{}\n{lines}", self.text).as_bytes())?;
        // The answer has signatures alone, and no end of another text.
        if answer.text != self.text {
            return Err(NoteError::Unsigned);
        }
        let is_of = |line: &NoteSignature, key: &NoteKey| line.name == key.name && line.id == key.id();
        let mut count = 0;
        let mut note = self.clone();
        for key in keys {
            let mut latest = (note.signed_by(provider, key)?, None);
            for line in answer.signatures.iter().filter(|line| is_of(line, key)) {
                let alone = Self { text: self.text.clone(), signatures: vec![line.clone()] };
                let signed = alone.signed_by(provider, key)?;
                if signed > latest.0 {
                    latest = (signed, Some(line.clone()));
                }
            }
            if let (_, Some(line)) = latest {
                note.signatures.retain(|line| !is_of(line, key));
                note.signatures.push(line);
                count += 1;
            }
        }
        *self = Self::read(note.to_string().as_bytes())?;
        Ok(count)
    }

    /// Adds a signature, for example a witness's.
    pub fn add(&mut self, signature: NoteSignature) {
        self.signatures.push(signature);
    }

    /// Whether the note has a signature, right or wrong.
    pub fn is_signed(&self) -> bool {
        !self.signatures.is_empty()
    }

    /// The signatures under a name and ID.
    pub(super) fn lines(&self, name: &str, id: [u8; 4]) -> impl Iterator<Item = &[u8]> {
        let lines = self.signatures.iter().filter(move |line| line.name == name && line.id == id);
        lines.map(|line| line.signature.as_slice())
    }

    /// Whether `key` has signed the note, and the latest time of its signatures.
    ///
    /// # Errors
    /// [`NoteError::Signature`] if one of its signatures is wrong, [`NoteError::Key`] if the provider lacks
    /// Ed25519.
    pub fn signed_by(&self, provider: &CryptoProvider, key: &NoteKey) -> Result<Signed, NoteError> {
        let mut signed = Signed::No;
        for signature in self.lines(&key.name, key.id()) {
            // C2SP signed-note: a wrong signature of a known key spoils the note.
            let verified = key.verify(provider, &self.text, signature);
            signed = signed.max(verified.map_err(|error| match error {
                KeyError::Signature => NoteError::Signature(key.name.clone()),
                error => error.into(),
            })?);
        }
        Ok(signed)
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.text)?;
        self.signatures.iter().try_for_each(|signature| signature.fmt(f))
    }
}
