//! The identity of a peer, whatever the way of authentication, and how texts show it.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use subtle::ConstantTimeEq;

use super::certificate::public_key_info;
use super::der::tlv;
use super::psk::{PSK_DIGEST_LEN, Psk};
use crate::crypto::Hash;
use crate::error::{Error, Misuse};
use crate::wire::{CertificateType, Reader, Writer};

/// The peer's identity and how the peer proved it. The engine reveals it only after it has verified the
/// peer's Finished.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerIdentity {
    /// Proved by a chain of X.509 certificates.
    X509(X509Identity),
    /// Proved by a raw public key.
    RawKey(SubjectPublicKeyInfoDer<'static>),
    /// Proved by a pre-shared key.
    Psk(PskIdentity),
    /// Proved by a certificate of another type, which the application verifies ([`super::Verifier`]).
    Other(OtherIdentity),
}

/// The longest [`OtherIdentity::id`], in bytes: room for any DID or URI in use.
pub const MAX_OTHER_ID: usize = 2048;

/// The longest [`OtherIdentity::text`], in bytes: a line for logs.
pub const MAX_OTHER_TEXT: usize = 512;

/// The longest [`OtherIdentity::details`], in bytes.
pub const MAX_OTHER_DETAILS: usize = 2048;

/// The identity of a peer in a verifiable credential, or in a certificate of an application's own type.
#[derive(Clone, PartialEq, Eq)]
pub struct OtherIdentity {
    // Slices, because every connection has room for the largest kind of identity.
    certificate_type: CertificateType,
    id: Box<[u8]>,
    text: Box<str>,
    details: Box<[u8]>,
    key_fingerprint: [u8; 32],
    entries: Vec<CertificateDer<'static>>,
}

impl OtherIdentity {
    /// An identity in a certificate of this type. Equal identities have equal `id`; `text` shows it in logs.
    /// The engine adds the rest.
    ///
    /// # Errors
    /// `id` has more than [`MAX_OTHER_ID`] bytes, or `text` more than [`MAX_OTHER_TEXT`].
    pub fn new(
        certificate_type: CertificateType,
        id: impl Into<Vec<u8>>,
        text: impl Into<String>,
    ) -> Result<Self, Error> {
        Self::decoded(certificate_type, [0; 32], id.into(), text.into())
    }

    /// Adds what the verifier knows beside the identity. Sessions and entries of the handshake cache keep it;
    /// it plays no part in comparisons.
    ///
    /// # Errors
    /// It has more than [`MAX_OTHER_DETAILS`] bytes.
    pub fn with_details(self, details: Vec<u8>) -> Result<Self, Error> {
        if details.len() > MAX_OTHER_DETAILS {
            Err(Misuse::FieldTooLong.into())
        } else {
            Ok(Self { details: details.into_boxed_slice(), ..self })
        }
    }

    /// An identity of the key with this fingerprint, without the entries of its Certificate message.
    pub(super) fn decoded(
        certificate_type: CertificateType,
        key_fingerprint: [u8; 32],
        id: Vec<u8>,
        text: String,
    ) -> Result<Self, Error> {
        if id.len() > MAX_OTHER_ID || text.len() > MAX_OTHER_TEXT {
            Err(Misuse::FieldTooLong.into())
        } else {
            let id = id.into_boxed_slice();
            let text = text.into_boxed_str();
            let details = Box::default();
            let entries = Vec::new();
            Ok(Self { certificate_type, id, text, details, key_fingerprint, entries })
        }
    }

    /// The type of the certificate.
    pub const fn certificate_type(&self) -> CertificateType {
        self.certificate_type
    }

    /// The identity, in the form that its type defines.
    pub fn id(&self) -> &[u8] {
        &self.id
    }

    /// A text for logs. It may contain control characters; `Display` of [`PeerIdentity`] escapes them.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The verifier's details about the peer, in the verifier's own form; empty if it keeps none.
    pub fn details(&self) -> &[u8] {
        &self.details
    }

    /// SHA-256 of the SubjectPublicKeyInfo of the peer's key.
    pub const fn key_fingerprint(&self) -> &[u8; 32] {
        &self.key_fingerprint
    }

    /// The entries of the peer's Certificate message. Empty after a resumption by a stateless ticket and
    /// after a cached handshake.
    pub fn entries(&self) -> &[CertificateDer<'static>] {
        &self.entries
    }
}

/// The identity of a peer that has proved a pre-shared key.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PskIdentity {
    /// The PSK identity as sent on the wire.
    pub identity: Vec<u8>,
    /// The name of the device that has the key, if this side set one ([`Psk::with_name`]). After a resumption
    /// and a thaw it is the key's current name, if this side still has the key.
    pub name: Option<String>,
    /// Whether [`Self::name`] is known. A ticket does not carry the name, so it is unknown until this side
    /// has looked the key up.
    pub is_name_known: bool,
    /// Identifies the key itself: another key under the same identity is not the same proof.
    pub(crate) digest: [u8; PSK_DIGEST_LEN],
}

impl PskIdentity {
    pub(crate) fn new(identity: Vec<u8>, psk: &Psk, hash: &dyn Hash) -> Self {
        Self { identity, name: psk.name().map(String::from), is_name_known: true, digest: psk.digest(hash) }
    }

    /// The identity in a ticket or an entry, which carries no name.
    pub(crate) const fn decoded(identity: Vec<u8>, digest: [u8; PSK_DIGEST_LEN]) -> Self {
        Self { identity, name: None, is_name_known: false, digest }
    }

    /// Whether this key has proved the identity.
    pub(crate) fn is_proved_by(&self, psk: &Psk, hash: &dyn Hash) -> bool {
        psk.identity() == self.identity && bool::from(psk.digest(hash).ct_eq(&self.digest))
    }

    /// Takes the current name of the key if this key has proved the identity, and returns whether it has.
    pub(crate) fn take_name(&mut self, psk: &Psk, hash: &dyn Hash) -> bool {
        let is_proved = self.is_proved_by(psk, hash);
        if is_proved {
            (self.name, self.is_name_known) = (psk.name().map(String::from), true);
        }
        is_proved
    }

    /// Writes the name for an association that continues elsewhere.
    pub(crate) fn freeze_name(&self, w: &mut Writer) {
        let name = self.name.as_deref().unwrap_or_default();
        // A name that is too long for the format stays unknown.
        let is_known = self.is_name_known && name.len() <= usize::from(u16::MAX);
        w.u8(if is_known { 1 + u8::from(self.name.is_some()) } else { 0 });
        w.vec16(|w| w.put(if is_known { name.as_bytes() } else { &[] }));
    }

    /// Reads the output of [`Self::freeze_name`].
    pub(crate) fn thaw_name(&mut self, r: &mut Reader<'_>) -> Result<(), Error> {
        let known = r.u8()?;
        let name = r.vec16(0)?;
        let name = core::str::from_utf8(name).map_err(|_| r.bad_value())?;
        (self.name, self.is_name_known) = match known {
            0 => (None, false),
            1 => (None, true),
            2 => (Some(name.into()), true),
            _ => return Err(r.bad_value().into()),
        };
        Ok(())
    }
}

impl fmt::Debug for PskIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PskIdentity").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A subject alternative name (RFC 5280 §4.2.1.6). The kinds are distinct: a URI can have the text of any DNS
/// name, but a CA's constraints on DNS names do not apply to URIs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SubjectName {
    /// A DNS name.
    Dns(String),
    /// A URI as in the certificate, not normalised.
    Uri(String),
}

impl SubjectName {
    /// The prefix of a URI in sessions and entries of the handshake cache. No DNS name contains it.
    const URI: &str = "\0";

    /// The text of the name, without its kind.
    pub fn text(&self) -> &str {
        match self {
            Self::Dns(text) | Self::Uri(text) => text,
        }
    }

    /// Encodes the name for sessions and entries of the handshake cache.
    pub(crate) fn encode(&self) -> Cow<'_, str> {
        match self {
            Self::Dns(name) => Cow::Borrowed(name),
            Self::Uri(uri) => Cow::Owned([Self::URI, uri].concat()),
        }
    }

    /// Decodes the output of [`Self::encode`].
    pub(crate) fn decode(text: &str) -> Self {
        match text.strip_prefix(Self::URI) {
            Some(uri) => Self::Uri(uri.into()),
            None => Self::Dns(text.into()),
        }
    }
}

/// Marks a URI as such and escapes control characters.
impl fmt::Display for SubjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(name) => write!(f, "{}", name.escape_debug()),
            Self::Uri(uri) => write!(f, "URI:{}", uri.escape_debug()),
        }
    }
}

/// The identity in a certificate chain.
#[derive(Clone, PartialEq, Eq)]
pub struct X509Identity {
    /// The chain as received, leaf first. Empty after a resumption by a stateless ticket, which does not
    /// carry the chain.
    pub chain: Vec<CertificateDer<'static>>,
    /// The leaf's DNS names, then its URIs.
    pub names: Vec<SubjectName>,
    /// The common name of a leaf without such names and with only one. It is `None`, too, below an authority
    /// that constrains DNS names, if it contains a period but is no host name: no constraint was compared
    /// with it. Clients must not verify servers by it (RFC 9525 §2).
    pub common_name: Option<String>,
    /// SHA-256 of the leaf. The engine sets it.
    pub fingerprint: [u8; 32],
    /// When the first certificate of the chain expires, or the verdict on it ends, in seconds since 1970. No
    /// session resumes after it. The engine sets it.
    pub not_after_s: u64,
    /// Subject, issuer, e-mail addresses and the issuer's key of the leaf, if the profile keeps them
    /// ([`crate::ProfileBuilder::x509_details`]).
    pub details: Option<Box<X509Details>>,
}

/// The longest [`X509Details`], in bytes. A certificate with longer names has none.
pub const MAX_X509_DETAILS: usize = 2048;

/// The fields of a leaf that a policy may need beside its names. Sessions and entries of the handshake cache
/// keep these fields, but not the chain.
#[derive(Clone, PartialEq, Eq)]
pub struct X509Details {
    /// Issuer, subject, and each rfc822Name of subjectAltName, as DER elements, and the digest of the
    /// issuer's key as an OCTET STRING.
    der: Vec<u8>,
}

impl X509Details {
    /// The tags of the elements behind issuer and subject: rfc822Name [1] (RFC 5280 §4.2.1.6), and OCTET
    /// STRING.
    const EMAIL: u8 = 0x81;
    const ISSUER_KEY: u8 = 0x04;

    /// From the elements that [`Self::der`] has. `None` if they are too long.
    pub(super) fn new(der: Vec<u8>) -> Option<Self> {
        (der.len() <= MAX_X509_DETAILS).then_some(Self { der })
    }

    /// Adds the digest of the issuer's key. `None` if the details become too long.
    pub(crate) fn with_issuer_key(mut self, digest: Option<[u8; 32]>) -> Option<Self> {
        if let Some(digest) = digest {
            self.der.extend_from_slice(&[Self::ISSUER_KEY, 32]);
            self.der.extend_from_slice(&digest);
        }
        Self::new(self.der)
    }

    /// The elements one after the other, for sessions and entries of the handshake cache.
    pub(super) fn der(&self) -> &[u8] {
        &self.der
    }

    /// The issuer, a Name in DER (RFC 5280 §4.1.2.4).
    pub fn issuer(&self) -> &[u8] {
        self.elements().next().unwrap_or_default()
    }

    /// The subject, a Name in DER (RFC 5280 §4.1.2.6).
    pub fn subject(&self) -> &[u8] {
        self.elements().nth(1).unwrap_or_default()
    }

    /// The e-mail addresses in subjectAltName (RFC 5280 §4.2.1.6). Those in the subject are not among them.
    pub fn emails(&self) -> impl Iterator<Item = &str> {
        self.contents(Self::EMAIL).filter_map(|content| core::str::from_utf8(content).ok())
    }

    /// SHA-256 of the SubjectPublicKeyInfo of the authority that issued the leaf, on the path that this side
    /// verified in the full handshake. `None` if it is not known: the caller has verified the chain, or the
    /// session was kept by an older version.
    pub fn issuer_key(&self) -> Option<&[u8; 32]> {
        self.contents(Self::ISSUER_KEY).next()?.try_into().ok()
    }

    /// The contents of the elements with this tag behind issuer and subject.
    fn contents(&self, tag: u8) -> impl Iterator<Item = &[u8]> {
        let elements = self.elements().skip(2).filter_map(tlv);
        elements.filter(move |(own, ..)| *own == tag).map(|(_, content, _)| content)
    }

    /// The elements, each with its header.
    fn elements(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.der[..];
        core::iter::from_fn(move || {
            let (_, _, after) = tlv(rest)?;
            let (element, after) = rest.split_at_checked(rest.len().checked_sub(after.len())?)?;
            rest = after;
            Some(element)
        })
    }
}

impl PeerIdentity {
    /// The type of the certificate that proved it; `None` for a pre-shared key.
    pub const fn certificate_type(&self) -> Option<CertificateType> {
        match self {
            Self::X509(_) => Some(CertificateType::X509),
            Self::RawKey(_) => Some(CertificateType::RAW_PUBLIC_KEY),
            Self::Other(id) => Some(id.certificate_type),
            Self::Psk(_) => None,
        }
    }

    /// A number that tells identities apart, for [`crate::places::Places`]: it is the same for the same proof
    /// of the same identity. A peer cannot choose it, unless trust accepts every raw key.
    pub fn label(&self) -> u64 {
        let first = |digest: &[u8]| digest.first_chunk().map_or(0, |chunk| u64::from_be_bytes(*chunk));
        match self {
            Self::X509(id) => first(&id.fingerprint),
            Self::Other(id) => first(&id.key_fingerprint),
            Self::RawKey(key) => fnv1a(key),
            Self::Psk(id) => fnv1a(&id.identity) ^ first(&id.digest),
        }
    }

    /// The entries of the peer's Certificate message, if the identity has them. A raw key is its own entry,
    /// and is not among them.
    pub(crate) fn entries(&self) -> &[CertificateDer<'static>] {
        match self {
            Self::X509(id) => &id.chain,
            Self::Other(id) => &id.entries,
            Self::RawKey(_) | Self::Psk(_) => &[],
        }
    }

    /// The peer's key, a SubjectPublicKeyInfo, if the identity with its entries contains it.
    pub(crate) fn public_key(&self) -> Option<&[u8]> {
        match self {
            Self::X509(id) => public_key_info(id.chain.first()?),
            Self::RawKey(key) => Some(key),
            Self::Other(_) | Self::Psk(_) => None,
        }
    }

    /// Adds the entries of the peer's Certificate message, or removes them.
    pub(crate) fn set_entries(&mut self, entries: Vec<CertificateDer<'static>>) {
        let own = match self {
            Self::X509(id) => &mut id.chain,
            Self::Other(id) => &mut id.entries,
            Self::RawKey(_) | Self::Psk(_) => return,
        };
        *own = entries;
    }

    /// Adds what the engine knows about a verified peer: the entries of its Certificate message, its key, and
    /// the end of its validity.
    pub(super) fn complete(
        &mut self,
        entries: Vec<CertificateDer<'static>>,
        key: &SubjectPublicKeyInfoDer<'_>,
        until_s: u64,
        sha256: &dyn Hash,
    ) {
        self.set_entries(entries);
        match self {
            Self::X509(id) => {
                let leaf = id.chain.first().map_or(&[][..], |leaf| leaf);
                (id.fingerprint, id.not_after_s) = (fingerprint(sha256, leaf), until_s);
            }
            Self::Other(id) => id.key_fingerprint = fingerprint(sha256, key),
            Self::RawKey(_) | Self::Psk(_) => {}
        }
    }

    /// Whether both are the same proof of the same identity. It ignores the chain, which stateless tickets do
    /// not carry.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::X509(a), Self::X509(b)) => a.fingerprint == b.fingerprint,
            (Self::RawKey(a), Self::RawKey(b)) => a == b,
            (Self::Psk(a), Self::Psk(b)) => a.identity == b.identity && a.digest.ct_eq(&b.digest).into(),
            (Self::Other(a), Self::Other(b)) => {
                (a.certificate_type, &a.id, a.key_fingerprint)
                    == (b.certificate_type, &b.id, b.key_fingerprint)
            }
            _ => false,
        }
    }
}

/// FNV-1a of 64 bits (draft-eastlake-fnv).
fn fnv1a(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// SHA-256 of `bytes`.
pub(super) fn fingerprint(sha256: &dyn Hash, bytes: &[u8]) -> [u8; 32] {
    let mut fingerprint = [0; 32];
    for (to, from) in fingerprint.iter_mut().zip(sha256.hash(&[bytes]).as_ref()) {
        *to = *from;
    }
    fingerprint
}

impl fmt::Debug for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One line of text, with control characters escaped.
impl fmt::Display for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex =
            |f: &mut fmt::Formatter<'_>, bytes: &[u8]| bytes.iter().try_for_each(|b| write!(f, "{b:02x}"));
        match self {
            Self::X509(id) => {
                f.write_str("X.509 ")?;
                match (id.names.first(), &id.common_name) {
                    (Some(name), _) => write!(f, "{name}"),
                    (None, Some(name)) => write!(f, "CN={}", name.escape_debug()),
                    (None, None) => {
                        f.write_str("sha256:")?;
                        hex(f, &id.fingerprint)
                    }
                }
            }
            Self::Other(id) => match &*id.text {
                "" => {
                    write!(f, "certificate type {}, key sha256:", id.certificate_type)?;
                    hex(f, &id.key_fingerprint)
                }
                text if id.certificate_type == CertificateType::VERIFIABLE_CREDENTIAL => {
                    write!(f, "VC {}", text.escape_debug())
                }
                text if id.certificate_type == CertificateType::DECENTRALISED_IDENTIFIER => {
                    write!(f, "DID {}", text.escape_debug())
                }
                text => write!(f, "certificate type {} {}", id.certificate_type, text.escape_debug()),
            },
            Self::RawKey(key) => {
                f.write_str("raw key ")?;
                hex(f, key)
            }
            Self::Psk(PskIdentity { identity, name, .. }) => {
                f.write_str("PSK ")?;
                if let Some(name) = name {
                    write!(f, "{}", name.escape_debug())?;
                    if name.as_bytes() == identity {
                        return Ok(());
                    }
                    f.write_str(", identity ")?;
                }
                match core::str::from_utf8(identity) {
                    Ok(text) if text.chars().all(|c| !c.is_control()) => f.write_str(text),
                    _ => {
                        f.write_str("0x")?;
                        hex(f, identity)
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    fn x509(names: Vec<SubjectName>, common_name: Option<&str>) -> PeerIdentity {
        let common_name = common_name.map(String::from);
        let chain = Vec::new();
        let fingerprint = [0; 32];
        PeerIdentity::X509(X509Identity {
            chain,
            names,
            common_name,
            fingerprint,
            not_after_s: 0,
            details: None,
        })
    }

    fn other(typ: u8, text: &str) -> PeerIdentity {
        PeerIdentity::Other(OtherIdentity::new(CertificateType(typ), *b"id", text).unwrap())
    }

    #[test]
    fn bounds_identities_of_other_types() {
        let new = |id: usize, text: usize| {
            OtherIdentity::new(CertificateType(224), alloc::vec![1; id], "t".repeat(text)).is_ok()
        };
        assert!(new(MAX_OTHER_ID, MAX_OTHER_TEXT));
        assert!(!new(MAX_OTHER_ID + 1, 0) && !new(0, MAX_OTHER_TEXT + 1));
    }

    #[test]
    fn displays_an_identity_with_its_kind_and_escapes_control_characters() {
        for (identity, shown) in [
            (x509(alloc::vec![SubjectName::Dns("a.example".into())], None), "X.509 a.example"),
            (x509(alloc::vec![SubjectName::Uri("a.example".into())], None), "X.509 URI:a.example"),
            (x509(alloc::vec![SubjectName::Uri("a:\n\u{1b}[2J".into())], None), "X.509 URI:a:\\n\\u{1b}[2J"),
            (x509(alloc::vec![SubjectName::Uri("a:\u{202e}b".into())], None), "X.509 URI:a:\\u{202e}b"),
            (x509(alloc::vec![], Some("a\rb")), "X.509 CN=a\\rb"),
            (other(224, "did:example:1\n"), "VC did:example:1\\n"),
            (other(255, "did:example:1\n"), "DID did:example:1\\n"),
        ] {
            assert_eq!(identity.to_string(), shown);
        }
    }

    #[test]
    fn decodes_a_name_with_its_kind() {
        let uri = SubjectName::Uri("a.example".into());
        assert_ne!(uri, SubjectName::Dns("a.example".into()));
        for name in [uri, SubjectName::Dns("a.example".into()), SubjectName::Uri(String::new())] {
            assert_eq!(SubjectName::decode(&name.encode()), name);
        }
    }
}
