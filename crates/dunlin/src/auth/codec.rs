//! The encoding of a peer's identity and key, which sessions and entries of the handshake cache share.
//!
//! ```text
//! uint8  head            bits 0-2: form of the key
//!                        X.509: bit 3 is 0, bit 4: has a common name, bits 5-7: number of names
//!                        otherwise: bit 3 is 1, bit 4 is 0, bits 5-7: 0 a raw key, 1 a PSK, 2 another type,
//!                        7 no identity
//!
//! X.509    opaque fingerprint[32]     of the leaf
//!          uint16 number of names     only if the head has 7 names; the first bit: details follow the names
//!          opaque text, with its length: the common name, and the names; a zero byte precedes a URI
//!          opaque details, with its length
//! raw key  nothing: the key is the identity
//! PSK      opaque digest[8]; opaque identity, with its length
//! other    uint8 certificate type; opaque fingerprint[32] of the key; opaque identity, opaque text and
//!          opaque details, each with its length
//! ```
//!
//! The key, and the time until which the identity is good, are beside the identity. The length of a text or
//! key takes one byte if it is below 128; otherwise it takes two bytes with the first bit set.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use pki_types::SubjectPublicKeyInfoDer;

use super::{OtherIdentity, PeerIdentity, PskIdentity, SubjectName, X509Details, X509Identity};
use crate::error::{Error, Misuse};
use crate::wire::{CertificateType, Reader, Writer};

const KEY_FORM: u8 = 0b111;
const NOT_X509: u8 = 1 << 3;
const COMMON_NAME: u8 = 1 << 4;
const HIGH_SHIFT: u32 = 5;

/// The number of names that means that a separate field has it.
const MANY_NAMES: u8 = 7;

/// A flag beside a separate number of names: details follow the names.
const DETAILS: u16 = 0x8000;

/// The kinds of identities other than X.509, in the high bits of the head.
const RAW_KEY: u8 = 0;
const PSK: u8 = 1;
const OTHER: u8 = 2;
const NOBODY: u8 = 7;

/// The constant parts of all keys of a kind: the bytes before and after the variable part, and its length.
pub(crate) struct KeyForm {
    pub(crate) before: &'static [u8],
    pub(crate) len: usize,
    pub(crate) after: &'static [u8],
}

/// The kinds of keys that are stored without their constant parts, by their numbers, which start at 1: append
/// only.
pub(crate) const KEY_FORMS: [KeyForm; 4] = [
    // P-256, uncompressed (RFC 5480 §2).
    KeyForm {
        before: b"\x30\x59\x30\x13\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07\x03\x42\x00\x04",
        len: 64,
        after: b"",
    },
    // P-384, uncompressed (RFC 5480 §2).
    KeyForm {
        before: b"\x30\x76\x30\x10\x06\x07\x2a\x86\x48\xce\x3d\x02\x01\x06\x05\x2b\x81\x04\x00\x22\x03\x62\x00\x04",
        len: 96,
        after: b"",
    },
    // Ed25519 (RFC 8410 §4).
    KeyForm { before: b"\x30\x2a\x30\x05\x06\x03\x2b\x65\x70\x03\x21\x00", len: 32, after: b"" },
    // RSA with 2048 bits and the exponent 65537 (RFC 8017 §A.1.1).
    KeyForm {
        before: b"\x30\x82\x01\x22\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00\x03\x82\x01\x0f\x00\
                  \x30\x82\x01\x0a\x02\x82\x01\x01\x00",
        len: 256,
        after: b"\x02\x03\x01\x00\x01",
    },
];

/// The number of the key's form and the variable part of the key. A key without a form has number 0 and is
/// kept whole.
pub(crate) fn abridged(key: &[u8]) -> (u8, &[u8]) {
    let of = |form: &KeyForm| {
        let rest = key.strip_prefix(form.before)?.strip_suffix(form.after)?;
        (rest.len() == form.len).then_some(rest)
    };
    let mut forms = (1..).zip(&KEY_FORMS);
    forms.find_map(|(number, form)| of(form).map(|rest| (number, rest))).unwrap_or((0, key))
}

/// Writes a key after its [`Head`].
pub(crate) fn write_key(w: &mut Writer, key: &[u8]) -> Result<(), Error> {
    match abridged(key) {
        (0, key) => write_vec(w, key)?,
        (_, key) => w.put(key),
    }
    Ok(())
}

/// Reads the variable part of the key after `head`.
pub(crate) fn read_abridged<'a>(r: &mut Reader<'a>, head: Head) -> Result<&'a [u8], Error> {
    match head.form() {
        None => read_vec(r),
        Some(index) => {
            let form = KEY_FORMS.get(index).ok_or_else(|| r.bad_value())?;
            Ok(r.take(form.len)?)
        }
    }
}

/// Reads the key after `head`.
pub(crate) fn read_key(r: &mut Reader<'_>, head: Head) -> Result<SubjectPublicKeyInfoDer<'static>, Error> {
    let key = read_abridged(r, head)?;
    Ok(match head.form().and_then(|index| KEY_FORMS.get(index)) {
        None => SubjectPublicKeyInfoDer::from(key.to_vec()),
        Some(form) => SubjectPublicKeyInfoDer::from([form.before, key, form.after].concat()),
    })
}

/// The first length that needs two bytes.
const LONG: u8 = 0x80;

fn write_vec(w: &mut Writer, bytes: &[u8]) -> Result<(), Error> {
    match (u8::try_from(bytes.len()), u16::try_from(bytes.len())) {
        (Ok(short @ ..LONG), _) => w.u8(short),
        (_, Ok(long @ ..0x8000)) => w.u16(long | 0x8000),
        _ => return Err(Misuse::FieldTooLong.into()),
    }
    w.put(bytes);
    Ok(())
}

fn read_vec<'a>(r: &mut Reader<'a>) -> Result<&'a [u8], Error> {
    let len = match r.u8()? {
        short @ ..LONG => usize::from(short),
        high => usize::from(u16::from_be_bytes([high & !LONG, r.u8()?])),
    };
    Ok(r.take(len)?)
}

fn read_text(r: &mut Reader<'_>) -> Result<String, Error> {
    let text = read_vec(r)?;
    Ok(core::str::from_utf8(text).map_err(|_| r.bad_value())?.to_string())
}

/// The length of an encoded time, in bytes.
pub(crate) const TIME_LEN: usize = 5;

/// The largest encodable time, 34,000 years from now. It stands for all later times.
const NEVER: u64 = (1 << 40) - 1;

/// Writes a time in seconds since 1970.
pub(crate) fn write_time(w: &mut Writer, seconds: u64) {
    let [_, _, _, bytes @ ..] = seconds.min(NEVER).to_be_bytes();
    w.put(&bytes);
}

/// Reads a time in seconds since 1970.
pub(crate) fn read_time(r: &mut Reader<'_>) -> Result<u64, Error> {
    let [a, b, c, d, e] = r.array()?;
    let seconds = u64::from_be_bytes([0, 0, 0, a, b, c, d, e]);
    Ok(if seconds == NEVER { u64::MAX } else { seconds })
}

/// The first byte of an encoded identity: its kind, and the form of the key beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head(u8);

impl Head {
    /// For this identity with this key beside it, if there is one.
    pub(crate) fn new(identity: Option<&PeerIdentity>, key: Option<&[u8]>) -> Self {
        let other = |kind: u8| NOT_X509 | kind << HIGH_SHIFT;
        let kind = match identity {
            None => other(NOBODY),
            Some(PeerIdentity::X509(id)) => {
                let few = if has_many_names(id) { MANY_NAMES } else { id.names.len() as u8 };
                few << HIGH_SHIFT | if id.common_name.is_some() { COMMON_NAME } else { 0 }
            }
            Some(PeerIdentity::RawKey(_)) => other(RAW_KEY),
            Some(PeerIdentity::Psk(_)) => other(PSK),
            Some(PeerIdentity::Other(_)) => other(OTHER),
        };
        Self(kind | key.map_or(0, |key| abridged(key).0))
    }

    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let head = Self(r.u8()?);
        // The kinds other than X.509 have no common name.
        if !head.is_x509() && head.0 & COMMON_NAME != 0 { Err(r.bad_value().into()) } else { Ok(head) }
    }

    pub(crate) const fn byte(self) -> u8 {
        self.0
    }

    /// The bits that tell the kind of the identity and the form of the key.
    pub(crate) const fn kind(self) -> u8 {
        match self.0 & NOT_X509 {
            0 => self.0 & KEY_FORM,
            _ => self.0,
        }
    }

    pub(crate) const fn is_x509(self) -> bool {
        self.0 & NOT_X509 == 0
    }

    /// Whether a certificate proved the identity.
    pub(crate) const fn is_certified(self) -> bool {
        self.is_x509() || !matches!(self.high(), PSK | NOBODY)
    }

    /// Whether the identity is a raw key, which is beside it.
    pub(crate) const fn is_raw_key(self) -> bool {
        !self.is_x509() && self.high() == RAW_KEY
    }

    /// The index of the key's form. `None` if the key is stored whole.
    fn form(self) -> Option<usize> {
        usize::from(self.0 & KEY_FORM).checked_sub(1)
    }

    const fn high(self) -> u8 {
        self.0 >> HIGH_SHIFT
    }
}

/// Whether the number of names has a field of its own.
fn has_many_names(id: &X509Identity) -> bool {
    id.details.is_some() || id.names.len() >= MANY_NAMES.into()
}

/// The details of an X.509 identity; empty if it has none.
fn details(id: &X509Identity) -> &[u8] {
    id.details.as_ref().map_or(&[], |details| details.der())
}

/// The texts of an X.509 identity: the common name first.
fn texts(id: &X509Identity) -> impl Iterator<Item = Cow<'_, str>> {
    let common_name = id.common_name.as_deref().map(Cow::Borrowed);
    common_name.into_iter().chain(id.names.iter().map(SubjectName::encode))
}

/// The bytes of all its names, which decide whether an identity is short enough to be kept.
pub(crate) fn names_len(identity: &PeerIdentity) -> usize {
    match identity {
        PeerIdentity::X509(id) => {
            id.common_name.as_ref().map_or(0, String::len)
                + id.names.iter().map(|name| name.text().len()).sum::<usize>()
                + details(id).len()
        }
        PeerIdentity::RawKey(_) => 0,
        PeerIdentity::Psk(id) => id.identity.len(),
        PeerIdentity::Other(id) => id.id().len() + other_text(id).len() + id.details().len(),
    }
}

/// The text of an identity; empty if it is the identity itself, which tickets need not repeat.
fn other_text(id: &OtherIdentity) -> &str {
    if id.text().as_bytes() == id.id() { "" } else { id.text() }
}

/// An upper bound of the length that [`write`] writes, in bytes.
pub(crate) fn max_len(identity: &PeerIdentity) -> usize {
    match identity {
        PeerIdentity::X509(id) => {
            let texts = texts(id).map(|text| 2 + text.len()).sum::<usize>();
            32 + 2 + texts + id.details.as_ref().map_or(0, |details| 2 + details.der().len())
        }
        PeerIdentity::RawKey(_) => 0,
        PeerIdentity::Psk(id) => id.digest.len() + 2 + id.identity.len(),
        PeerIdentity::Other(id) => 1 + 32 + 2 + id.id().len() + 2 + id.text().len() + 2 + id.details().len(),
    }
}

/// Writes the identity after its [`Head`].
///
/// # Errors
/// It has too many names, or one that is too long.
pub(crate) fn write(w: &mut Writer, identity: &PeerIdentity) -> Result<(), Error> {
    match identity {
        PeerIdentity::X509(id) => {
            w.put(&id.fingerprint);
            if has_many_names(id) {
                let count = u16::try_from(id.names.len()).ok().filter(|count| count & DETAILS == 0);
                let flag = if id.details.is_some() { DETAILS } else { 0 };
                w.u16(count.ok_or(Misuse::FieldTooLong)? | flag);
            }
            texts(id).try_for_each(|text| write_vec(w, text.as_bytes()))?;
            id.details.as_ref().map_or(Ok(()), |details| write_vec(w, details.der()))
        }
        PeerIdentity::RawKey(_) => Ok(()),
        PeerIdentity::Psk(id) => {
            w.put(&id.digest);
            write_vec(w, &id.identity)
        }
        PeerIdentity::Other(id) => {
            w.u8(id.certificate_type().0);
            w.put(id.key_fingerprint());
            write_vec(w, id.id())?;
            write_vec(w, other_text(id).as_bytes())?;
            write_vec(w, id.details())
        }
    }
}

/// Reads the identity after `head`, without a chain. `key` is the peer's key, which raw keys need, and
/// `not_after_s` the time until which the identity is good. `None` if the head tells that there is no
/// identity.
pub(crate) fn read(
    r: &mut Reader<'_>,
    head: Head,
    key: Option<&SubjectPublicKeyInfoDer<'static>>,
    not_after_s: u64,
) -> Result<Option<PeerIdentity>, Error> {
    if head.is_x509() {
        let fingerprint = r.array()?;
        let count = if head.high() == MANY_NAMES { r.u16()? } else { head.high().into() };
        let (count, has_details) = (count & !DETAILS, count & DETAILS != 0);
        let common_name = if head.0 & COMMON_NAME != 0 { Some(read_text(r)?) } else { None };
        let names = (0..count).map(|_| read_text(r).map(|text| SubjectName::decode(&text)));
        let names = names.collect::<Result<_, _>>()?;
        let chain = Vec::new();
        let details = if has_details {
            Some(Box::new(X509Details::new(read_vec(r)?.to_vec()).ok_or_else(|| r.bad_length())?))
        } else {
            None
        };
        let id = X509Identity { chain, names, common_name, fingerprint, not_after_s, details };
        return Ok(Some(PeerIdentity::X509(id)));
    }
    Ok(Some(match (head.high(), key) {
        (NOBODY, None) => return Ok(None),
        (RAW_KEY, Some(key)) => PeerIdentity::RawKey(key.clone()),
        (OTHER, _) => {
            let certificate_type = CertificateType(r.u8()?);
            let fingerprint = r.array()?;
            // These have kinds of their own.
            if [CertificateType::X509, CertificateType::RAW_PUBLIC_KEY].contains(&certificate_type) {
                return Err(r.bad_value().into());
            }
            let id = read_vec(r)?.to_vec();
            let mut text = read_text(r)?;
            if text.is_empty() {
                text = str::from_utf8(&id).unwrap_or_default().into();
            }
            let id = OtherIdentity::decoded(certificate_type, fingerprint, id, text);
            let details = read_vec(r)?.to_vec();
            let id = id.and_then(|id| id.with_details(details));
            PeerIdentity::Other(id.map_err(|_| r.bad_length())?)
        }
        (PSK, None) => {
            let digest = r.array()?;
            PeerIdentity::Psk(PskIdentity::decoded(read_vec(r)?.to_vec(), digest))
        }
        _ => return Err(r.bad_value().into()),
    }))
}
