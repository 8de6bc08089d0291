//! Authentication by X.509 certificates: rustls-webpki validates paths (RFC 5280) and names (RFC 6125, RFC
//! 9525).

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::cell::Cell;

use pki_types::{CertificateDer, ServerName, SignatureVerificationAlgorithm, TrustAnchor, UnixTime};
use webpki::{EndEntityCert, KeyUsage, VerifiedPath};

use super::der::{seconds, sequence, tlv};
use super::identity::fingerprint;
use super::revocation::{Checked, Tried};
use super::verifier::{Algorithms, AskAgain, Claim, KeyUse, Validity, Verdict, Verified, Verifier};
use super::{PeerIdentity, Revocation, SubjectName, X509Details, X509Identity};
use super::{chain, constraints, failure};
use crate::error::{AuthenticationFailure, Error, Misuse, ShortKey};
use crate::protocol::Side;
use crate::time::Now;
use crate::wire::CertificateType;

/// A trust anchor with the key identifier of its certificate, by which the engine chooses among trust anchors
/// with one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    pub(super) trust: TrustAnchor<'static>,
    /// subjectKeyIdentifier (RFC 5280 §4.2.1.2).
    pub(super) key_id: Option<Box<[u8]>>,
}

/// A trust anchor without a key identifier.
impl From<TrustAnchor<'static>> for Anchor {
    fn from(trust: TrustAnchor<'static>) -> Self {
        Self { trust, key_id: None }
    }
}

/// The certificate chains that this side trusts.
#[derive(Clone, Debug)]
pub enum X509Trust {
    /// Chains that lead to one of these trust anchors. Use [`X509Trust::anchors`] to make it.
    Anchors(Vec<Anchor>),
    /// As `Anchors`, unless a CRL lists a certificate of the chain. Use [`X509Trust::with_revocation`] to
    /// make it.
    Unrevoked(Vec<Anchor>, Revocation),
    /// As the boxed trust, with at most this many CAs between the peer's certificate and a trust anchor. Use
    /// [`X509Trust::with_max_depth`] to make it.
    MaxDepth(u8, Box<Self>),
    /// The caller decides by its answer to [`crate::Question::Verify`].
    Ask,
    /// Any chain. The peer proves that it has the leaf's private key; the application must decide whether to
    /// accept it.
    DangerAnyone,
}

impl X509Trust {
    /// Takes trust anchors from root certificates: the name, key and name constraints of each. As RFC 5280
    /// §6.1.1 (d) allows, a root's dates, path length, key usage and signature are ignored. A trust anchor
    /// counts until the caller removes it.
    ///
    /// # Errors
    /// There is no root, or one does not parse. The error counts roots from 1.
    pub fn anchors<'c>(roots: impl IntoIterator<Item = CertificateDer<'c>>) -> Result<Self, Error> {
        let mut anchors = Vec::new();
        for (i, root) in roots.into_iter().enumerate() {
            let trust = webpki::anchor_from_trusted_cert(&root).map_err(|e| {
                Misuse::Config(alloc::format!("trust anchor {}: {}", i + 1, failure::of_own(&e)))
            })?;
            anchors.push(Anchor { trust: trust.to_owned(), key_id: subject_key_id(&root).map(Into::into) });
        }
        if anchors.is_empty() {
            return Err(Misuse::Config("there is no trust anchor".into()).into());
        }
        Ok(Self::Anchors(anchors))
    }

    /// Adds CRLs to the trust anchors.
    ///
    /// # Errors
    /// There are no trust anchors. With [`X509Trust::Ask`] and [`X509Trust::DangerAnyone`], the caller must
    /// check CRLs.
    pub fn with_revocation(self, revocation: Revocation) -> Result<Self, Error> {
        match self {
            Self::Anchors(anchors) | Self::Unrevoked(anchors, _) => Ok(Self::Unrevoked(anchors, revocation)),
            Self::MaxDepth(depth, trust) => {
                Ok(Self::MaxDepth(depth, Box::new(trust.with_revocation(revocation)?)))
            }
            Self::Ask | Self::DangerAnyone => Err(Misuse::Config("CRLs need trust anchors".into()).into()),
        }
    }

    /// Limits the number of CAs between the peer's certificate and a trust anchor, not counting these two.
    /// With 0, a trust anchor must have issued the peer's certificate itself. webpki accepts at most six CAs
    /// in any case.
    ///
    /// # Errors
    /// There are no trust anchors.
    pub fn with_max_depth(self, depth: u8) -> Result<Self, Error> {
        match self {
            Self::Anchors(_) | Self::Unrevoked(..) => Ok(Self::MaxDepth(depth, Box::new(self))),
            Self::MaxDepth(_, trust) => Ok(Self::MaxDepth(depth, trust)),
            Self::Ask | Self::DangerAnyone => {
                Err(Misuse::Config("a maximum depth needs trust anchors beside it".into()).into())
            }
        }
    }

    /// Verifies a chain, leaf first, as a handshake does with these algorithms, and whether one of them
    /// verifies signatures of the leaf's key. `peer` is the side that has the chain; the leaf must contain
    /// `name`, if given. `None` if the caller decides by [`crate::Question::Verify`].
    pub fn verify_chain(
        &self,
        algorithms: &[&'static dyn SignatureVerificationAlgorithm],
        chain: &[CertificateDer<'_>],
        peer: Side,
        name: Option<&ServerName<'_>>,
        now: Now,
    ) -> Option<Result<(), AuthenticationFailure>> {
        let chain = match Chain::parse(chain, name) {
            Ok(chain) => chain,
            Err(failure) => return Some(Err(failure)),
        };
        let verdict = self.believes(&chain, algorithms, peer, now.unix())?;
        Some(verdict.and_then(|_| check_signing(chain.leaf_der, algorithms)))
    }

    /// The verdict on a chain; `None` if the caller decides.
    fn believes<'c>(
        &'c self,
        chain: &'c Chain<'c>,
        algorithms: Algorithms<'c>,
        peer: Side,
        now: UnixTime,
    ) -> Option<Result<Believed<'c>, AuthenticationFailure>> {
        let (depth, trust) = match self {
            Self::MaxDepth(depth, trust) => (*depth, &**trust),
            trust => (u8::MAX, trust),
        };
        let verify = |anchors, revocation| verify(chain, algorithms, (anchors, depth), revocation, peer, now);
        match trust {
            Self::Anchors(anchors) => Some(verify(anchors, None)),
            Self::Unrevoked(anchors, revocation) => Some(verify(anchors, Some(revocation))),
            // `with_max_depth` never nests depths. Reject a chain if a caller does.
            Self::MaxDepth(..) => Some(Err(AuthenticationFailure::ChainTooLong)),
            Self::Ask => None,
            Self::DangerAnyone => Some(Ok(Believed { issuer_key: None, has_common_name: true })),
        }
    }

    /// The peer that this chain names.
    fn peer(&self, claim: &Claim<'_>, chain: &Chain<'_>) -> Result<Box<Verified>, AuthenticationFailure> {
        // RFC 8446 §4.4.2.2: "The digitalSignature bit MUST be set if the Key Usage extension is present".
        // RFC 5246 §7.4.2 says the same of keyEncipherment. This check comes last, because an error in the
        // chain is more informative.
        if !allows(chain.leaf_der, claim.usage) {
            return Err(AuthenticationFailure::WrongKeyUsage);
        }
        let mut validity = Validity::ALWAYS;
        for certificate in claim.entries {
            // A certificate whose dates do not parse is never valid.
            let (begin, end) = dates(certificate).unwrap_or((u64::MAX, 0));
            validity = validity.within(Validity::new(begin, end));
        }
        let validity = validity.limited(AskAgain::Revocation, self.lists_good_until_s(claim.entries));
        let identity = X509Identity::new(&chain.leaf);
        Ok(Verified::new(chain.leaf.subject_public_key_info(), PeerIdentity::X509(identity), validity))
    }

    /// The trust anchors, if there are any.
    fn anchor_list(&self) -> Option<&[Anchor]> {
        match self {
            Self::Anchors(anchors) | Self::Unrevoked(anchors, _) => Some(anchors),
            Self::MaxDepth(_, trust) => trust.anchor_list(),
            Self::Ask | Self::DangerAnyone => None,
        }
    }

    /// The last second, since 1970, in which the CRLs for this chain are current; `u64::MAX` if that does not
    /// matter.
    fn lists_good_until_s(&self, chain: &[CertificateDer<'_>]) -> u64 {
        match self {
            Self::Unrevoked(_, revocation) => revocation.good_until_s(chain),
            Self::MaxDepth(_, trust) => trust.lists_good_until_s(chain),
            Self::Anchors(_) | Self::Ask | Self::DangerAnyone => u64::MAX,
        }
    }
}

impl Verifier for X509Trust {
    fn certificate_type(&self) -> CertificateType {
        CertificateType::X509
    }

    fn check(&self) -> Result<(), &'static str> {
        match (self, self.anchor_list()) {
            (_, Some([])) => Err("it trusts X.509 but has no trust anchor"),
            (Self::MaxDepth(..), None) => Err("it limits the depth of chains, but has no trust anchor"),
            _ => Ok(()),
        }
    }

    fn settings(&self, add: &mut dyn FnMut(&[u8])) {
        match self {
            Self::Ask => add(b"X.509 asked"),
            Self::DangerAnyone => add(b"X.509 of anyone"),
            Self::MaxDepth(depth, trust) => {
                add(b"X.509 of depth");
                add(&[*depth]);
                trust.settings(add);
            }
            Self::Anchors(anchors) | Self::Unrevoked(anchors, _) => {
                add(b"X.509");
                for Anchor { trust: anchor, .. } in anchors {
                    add(&anchor.subject);
                    add(&anchor.subject_public_key_info);
                    add(anchor.name_constraints.as_deref().unwrap_or_default());
                }
            }
        }
        if let Self::Unrevoked(_, revocation) = self {
            revocation.settings().for_each(add);
        }
    }

    fn authorities(&self) -> Vec<Vec<u8>> {
        self.anchor_list().unwrap_or_default().iter().map(|a| sequence(&a.trust.subject)).collect()
    }

    fn verify(&self, claim: &Claim<'_>) -> Result<Verdict, AuthenticationFailure> {
        let name = claim.name.map(|name| name as &ServerName<'_>);
        let chain = Chain::parse(claim.entries, name)?;
        match self.believes(&chain, claim.algorithms, claim.peer, claim.now.unix()) {
            None => Ok(Verdict::Ask),
            Some(Err(failure)) => Err(failure),
            Some(Ok(believed)) => {
                let mut peer = self.peer(claim, &chain)?;
                if let PeerIdentity::X509(id) = &mut peer.identity
                    && !believed.has_common_name
                {
                    id.common_name = None;
                }
                let issuer_key = believed.issuer_key.filter(|_| claim.keeps_details);
                peer.issuer_key = issuer_key.map(|key| fingerprint(claim.sha256, &sequence(key)));
                Ok(Verdict::Accepted(peer))
            }
        }
    }

    fn read(&self, claim: &Claim<'_>) -> Result<Box<Verified>, AuthenticationFailure> {
        self.peer(claim, &Chain::parse(claim.entries, None)?)
    }

    fn issuer<'c>(&self, entries: &'c [CertificateDer<'_>]) -> Option<&'c [u8]> {
        let (_, name, _) = tlv(from_issuer(entries.first()?)?)?;
        Some(name)
    }
}

/// The facts that this side has learnt from a chain that it believes.
struct Believed<'c> {
    /// The key of the leaf's issuer, without its header, if this side has verified a path.
    issuer_key: Option<&'c [u8]>,
    /// Whether the path's name constraints leave the leaf's common name an identity.
    has_common_name: bool,
}

/// A peer's certificates, with a parsed leaf.
struct Chain<'c> {
    entries: &'c [CertificateDer<'c>],
    leaf: EndEntityCert<'c>,
    leaf_der: &'c [u8],
    /// The name that the leaf must contain, if there is one.
    name: Option<&'c ServerName<'c>>,
}

impl<'c> Chain<'c> {
    fn parse(
        entries: &'c [CertificateDer<'_>],
        name: Option<&'c ServerName<'_>>,
    ) -> Result<Self, AuthenticationFailure> {
        let leaf_der = entries.first().ok_or(AuthenticationFailure::NoCertificate)?;
        let leaf = EndEntityCert::try_from(leaf_der).map_err(|e| failure::of_chain(&e, entries, name))?;
        Ok(Self { entries, leaf, leaf_der, name })
    }
}

/// Verifies a chain.
fn verify<'c>(
    chain: &'c Chain<'c>,
    algorithms: Algorithms<'c>,
    (anchors, depth): (&'c [Anchor], u8),
    revocation: Option<&Revocation>,
    peer: Side,
    now: UnixTime,
) -> Result<Believed<'c>, AuthenticationFailure> {
    let Chain { entries, leaf, name, .. } = chain;
    let failure = |e| failure::of_chain(&e, entries, *name);
    let usage = match peer {
        Side::Server => KeyUsage::server_auth(),
        Side::Client => KeyUsage::client_auth(),
    };
    // Without trust anchors, webpki checks only the leaf's dates and purpose, which costs no signature.
    match leaf.verify_for_usage(&[], &[], &[], now, usage, None, None) {
        Ok(_) | Err(webpki::Error::UnknownIssuer) => {}
        Err(e) => return Err(failure(e)),
    }
    // The names of every path that webpki tries count.
    let has_common_name = Cell::new(true);
    let check = |path: &VerifiedPath<'_>| {
        if path.intermediate_certificates().count() > depth.into() {
            return Err(webpki::Error::MaximumPathDepthExceeded);
        }
        has_common_name.set(constraints::check(path)? && has_common_name.get());
        Ok(())
    };
    let check: Check<'_> = &check;
    let mut tried = Tried::default();
    let issuer = chain::search(algorithms, anchors, entries, &mut |authorities, anchor, known| {
        let anchors = core::slice::from_ref(anchor);
        match leaf.verify_for_usage(known, anchors, authorities, now, usage, None, Some(check)) {
            Ok(path) => {
                let checked = Checked { path: &path, algorithms, now_s: now.as_secs() };
                revocation.map_or(Ok(()), |revocation| revocation.check(&checked, &mut tried))
            }
            // The signatures of this path are valid. webpki also tries its keys in other orders, and prefers
            // reporting a wrong signature to reporting a violated constraint.
            Err(webpki::Error::InvalidSignatureForPublicKey) => {
                Err(AuthenticationFailure::ConstraintViolated)
            }
            Err(e) => Err(failure(e)),
        }
    })?;
    if let Some(name) = name {
        leaf.verify_is_valid_for_subject_name(name).map_err(failure)?;
    }
    Ok(Believed { issuer_key: Some(issuer), has_common_name: has_common_name.get() })
}

/// Checks whether the key of a leaf can sign in a handshake with a peer that has these algorithms.
fn check_signing(leaf: &[u8], algorithms: Algorithms<'_>) -> Result<(), AuthenticationFailure> {
    // RFC 8446 §4.4.2.2: "The digitalSignature bit MUST be set if the Key Usage extension is present".
    if !allows(leaf, KeyUse::Sign) {
        return Err(AuthenticationFailure::WrongKeyUsage);
    }
    let key = chain::key(leaf).ok_or(AuthenticationFailure::BadEncoding)?;
    if let Some(bits) = chain::short_rsa(key) {
        return Err(AuthenticationFailure::KeyTooShort(ShortKey { bits, common_name: None }));
    }
    let algorithm = tlv(key).map(|(_, algorithm, _)| algorithm);
    let fits = algorithms.iter().any(|known| Some(known.public_key_alg_id().as_ref()) == algorithm);
    match fits && chain::is_usual_rsa(key).unwrap_or(true) {
        true => Ok(()),
        false => Err(AuthenticationFailure::UnsupportedKey),
    }
}

/// An additional check of a path, which webpki calls.
type Check<'c> = &'c dyn Fn(&VerifiedPath<'_>) -> Result<(), webpki::Error>;

impl X509Identity {
    /// The names in a leaf that nothing has verified. Name constraints of its authorities could leave fewer.
    /// The other fields are empty. `None` if it cannot be parsed.
    pub fn of_leaf(leaf: &CertificateDer<'_>) -> Option<Self> {
        EndEntityCert::try_from(leaf).ok().map(|leaf| Self::new(&leaf))
    }

    /// The names in a leaf, without what the engine adds ([`PeerIdentity::complete`]).
    fn new(leaf: &EndEntityCert<'_>) -> Self {
        let dns = leaf.valid_dns_names().map(|name| SubjectName::Dns(name.into()));
        let names: Vec<_> =
            dns.chain(leaf.valid_uri_names().map(|uri| SubjectName::Uri(uri.into()))).collect();
        let common_name = if names.is_empty() { common_name(leaf.subject()) } else { None };
        Self { chain: Vec::new(), names, common_name, fingerprint: [0; 32], not_after_s: 0, details: None }
    }
}

/// Issuer, subject and e-mail addresses of a certificate. `None` if they are too long or do not parse.
pub(crate) fn details(certificate: &[u8]) -> Option<X509Details> {
    const SUBJECT_ALT_NAME: [u8; 3] = [0x55, 0x1d, 0x11];
    // rfc822Name [1] (RFC 5280 §4.2.1.6).
    const RFC822_NAME: u8 = 0x81;
    let (issuer, subject) = names(certificate)?;
    let mut der = [sequence(issuer), sequence(subject)].concat();
    let list = extension(certificate, SUBJECT_ALT_NAME).and_then(tlv);
    let mut rest = list.map_or(&[][..], |(_, names, _)| names);
    while let Some((tag, _, after)) = tlv(rest) {
        let (name, after) = rest.split_at_checked(rest.len().checked_sub(after.len())?)?;
        if tag == RFC822_NAME {
            der.extend_from_slice(name);
        }
        rest = after;
    }
    X509Details::new(der)
}

/// id-at-commonName (RFC 5280 §A.1).
pub(super) const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// The common name in a distinguished name, which is given without its header as webpki stores it. `None` if
/// there is none, if there are several, since two readers could choose different ones, or if it is empty or
/// contains control characters.
pub(super) fn common_name(name: &[u8]) -> Option<String> {
    let text = match *attributes(name, COMMON_NAME)? {
        // UTF8String, PrintableString and IA5String.
        [(0x0c | 0x13 | 0x16, text)] => core::str::from_utf8(text).ok()?.to_string(),
        // TeletexString and BMPString. Readers do not agree about characters beyond ASCII.
        [(0x14, text)] => text.iter().map(|byte| ascii(&[*byte])).collect::<Option<_>>()?,
        [(0x1e, text)] => text.chunks(2).map(ascii).collect::<Option<_>>()?,
        _ => return None,
    };
    (!text.is_empty() && !text.contains(char::is_control)).then_some(text)
}

/// A character of a string with one or two bytes for each, if it is a printable one of ASCII.
fn ascii(unit: &[u8]) -> Option<char> {
    match unit {
        [byte] | [0, byte] => Some(char::from(*byte)).filter(|c| c.is_ascii() && !c.is_ascii_control()),
        _ => None,
    }
}

/// The values of the attributes of this type in a distinguished name, each with the tag of its string. `None`
/// if the name does not parse.
pub(super) fn attributes<'n>(mut name: &'n [u8], wanted: &[u8]) -> Option<Vec<(u8, &'n [u8])>> {
    let mut found = Vec::new();
    while !name.is_empty() {
        let (_, mut set, rest) = tlv(name)?;
        while !set.is_empty() {
            let (_, attribute, others) = tlv(set)?;
            let (_, kind, value) = tlv(attribute)?;
            if kind == wanted {
                let (tag, text, _) = tlv(value)?;
                found.push((tag, text));
            }
            set = others;
        }
        name = rest;
    }
    Some(found)
}

/// notBefore and notAfter of a certificate in seconds since 1970 (RFC 5280 §4.1.2.5), which webpki does not
/// expose.
pub(super) fn dates(certificate: &[u8]) -> Option<(u64, u64)> {
    let (_, _issuer, rest) = tlv(from_issuer(certificate)?)?;
    let (_, validity, _) = tlv(rest)?;
    let (tag, begin, rest) = tlv(validity)?;
    let begin = seconds(tag, begin)?;
    let (tag, end, _) = tlv(rest)?;
    Some((begin, seconds(tag, end)?))
}

/// Whether keyUsage of a certificate allows this, by digitalSignature or keyEncipherment. Without the
/// extension everything is allowed (RFC 5280 §4.2.1.3). webpki does not check keyUsage.
pub(super) fn allows(certificate: &[u8], usage: KeyUse) -> bool {
    let bit = match usage {
        KeyUse::Sign => 0x80,
        KeyUse::Encrypt => 0x20,
    };
    key_usage(certificate).is_none_or(|bits| bits.first().is_some_and(|first| first & bit != 0))
}

/// Whether keyUsage of an authority allows its key to sign CRLs, by cRLSign.
pub(super) fn may_sign_lists(certificate: &[u8]) -> bool {
    key_usage(certificate).is_none_or(|bits| bits.first().is_some_and(|first| first & 0x02 != 0))
}

/// The bits of the extension keyUsage.
fn key_usage(certificate: &[u8]) -> Option<&[u8]> {
    const KEY_USAGE: [u8; 3] = [0x55, 0x1d, 0x0f];
    // The value is a BIT STRING, which begins with the number of unused bits.
    tlv(extension(certificate, KEY_USAGE)?)?.1.get(1..)
}

/// The key identifier of a certificate (RFC 5280 §4.2.1.2).
pub(super) fn subject_key_id(certificate: &[u8]) -> Option<&[u8]> {
    tlv(extension(certificate, [0x55, 0x1d, 0x0e])?).map(|(_, id, _)| id)
}

/// The key identifier of a certificate's issuer (RFC 5280 §4.2.1.1).
pub(super) fn authority_key_id(certificate: &[u8]) -> Option<&[u8]> {
    authority_key_id_among(extensions(certificate)?)
}

/// The same in the field extensions of a certificate or CRL.
pub(super) fn authority_key_id_among(extensions: &[u8]) -> Option<&[u8]> {
    let (_, fields, _) = tlv(extension_among(extensions, [0x55, 0x1d, 0x23])?)?;
    // keyIdentifier [0] comes first.
    tlv(fields).filter(|(tag, ..)| *tag == 0x80).map(|(_, id, _)| id)
}

/// The distribution points of a certificate's CRL, in DER (RFC 5280 §4.2.1.13).
pub(super) fn distribution_points(certificate: &[u8]) -> Option<&[u8]> {
    extension(certificate, [0x55, 0x1d, 0x1f])
}

/// The value of an extension below id-ce (RFC 5280 §4.2.1).
pub(super) fn extension(certificate: &[u8], wanted: [u8; 3]) -> Option<&[u8]> {
    extension_among(extensions(certificate)?, wanted)
}

/// The field extensions [3] of a certificate, which is the last one.
fn extensions(certificate: &[u8]) -> Option<&[u8]> {
    let (_, certificate, _) = tlv(certificate)?;
    let (_, mut fields, _) = tlv(certificate)?;
    loop {
        let (tag, content, rest) = tlv(fields)?;
        match tag {
            0xa3 => return Some(content),
            _ => fields = rest,
        }
    }
}

/// The value of one of these extensions.
fn extension_among(extensions: &[u8], wanted: [u8; 3]) -> Option<&[u8]> {
    const BOOLEAN: u8 = 1;
    let (_, mut extensions, _) = tlv(extensions)?;
    loop {
        let (_, extension, rest) = tlv(extensions)?;
        let (_, id, after) = tlv(extension)?;
        if id == wanted {
            let (tag, value, after) = tlv(after)?;
            return if tag == BOOLEAN { tlv(after).map(|(_, value, _)| value) } else { Some(value) };
        }
        extensions = rest;
    }
}

/// Issuer and subject of a certificate without their headers, as webpki stores names.
pub(super) fn names(certificate: &[u8]) -> Option<(&[u8], &[u8])> {
    let (_, issuer, rest) = tlv(from_issuer(certificate)?)?;
    let (_, _validity, rest) = tlv(rest)?;
    tlv(rest).map(|(_, subject, _)| (issuer, subject))
}

/// The SubjectPublicKeyInfo of a certificate, with its header.
pub(super) fn public_key_info(certificate: &[u8]) -> Option<&[u8]> {
    let (_, _issuer, rest) = tlv(from_issuer(certificate)?)?;
    let (_, _validity, rest) = tlv(rest)?;
    let (_, _subject, key) = tlv(rest)?;
    let (_, _, after) = tlv(key)?;
    key.get(..key.len().checked_sub(after.len())?)
}

/// The fields of a certificate from the issuer on (RFC 5280 §4.1): issuer, validity, subject, …
pub(super) fn from_issuer(certificate: &[u8]) -> Option<&[u8]> {
    let (_, certificate, _) = tlv(certificate)?;
    let (_, mut tbs, _) = tlv(certificate)?;
    // The optional version [0], serialNumber and signature precede the issuer.
    if tbs.first() == Some(&0xa0) {
        tbs = tlv(tbs)?.2;
    }
    for _ in 0..2 {
        tbs = tlv(tbs)?.2;
    }
    Some(tbs)
}

/// The AlgorithmIdentifier of a certificate's signature without its header, as webpki stores it.
pub(super) fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    let (_, certificate, _) = tlv(certificate)?;
    let (_, _, after_tbs) = tlv(certificate)?;
    tlv(after_tbs).map(|(_, identifier, _)| identifier)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A certificate that contains nothing but its validity.
    fn certificate(tag: u8, time: &[u8]) -> Vec<u8> {
        let element = |tag: u8, content: &[u8]| [&[tag, content.len() as u8], content].concat();
        let times = [element(0x17, b"700101000000Z"), element(tag, time)].concat();
        let tbs = [
            element(0xa0, &element(2, &[2])),
            element(2, &[1]),
            element(0x30, &[]),
            element(0x30, &[]),
            element(0x30, &times),
        ];
        element(0x30, &element(0x30, &tbs.concat()))
    }

    #[test]
    fn reads_the_validity_of_a_certificate() {
        for (tag, time, seconds) in [
            (0x17, &b"700101000001Z"[..], 1),
            (0x17, b"000229120000Z", 951_825_600),
            (0x17, b"350101000000Z", 2_051_222_400),
            (0x17, b"491231235959Z", 2_524_607_999),
            (0x18, b"20500101000000Z", 2_524_608_000),
            (0x18, b"99991231235959Z", 253_402_300_799),
        ] {
            assert_eq!(dates(&certificate(tag, time)), Some((0, seconds)));
        }
        for bad in [certificate(0x16, b"350101000000Z"), certificate(0x17, b"3501"), Vec::new()] {
            assert_eq!(dates(&bad), None);
        }
        let whole = certificate(0x17, b"350101000000Z");
        for len in 0..whole.len() {
            assert_eq!(dates(&whole[..len]), None);
        }
    }

    #[test]
    fn a_common_name_is_text_in_any_type_of_string() {
        let element = |tag: u8, content: &[u8]| [&[tag, content.len() as u8], content].concat();
        let name = |tag, text: &[u8]| {
            let attribute = [element(6, COMMON_NAME), element(tag, text)].concat();
            element(0x31, &element(0x30, &attribute))
        };
        for (tag, text, known) in [
            (0x0c, "Zoë".as_bytes(), Some("Zoë")),
            (0x13, b"device-1", Some("device-1")),
            (0x14, b"device-1", Some("device-1")),
            (0x16, b"device-1", Some("device-1")),
            (0x1e, b"\0d\0e\0v", Some("dev")),
            // Characters outside of ASCII, half a character, and control characters.
            (0x14, b"Zo\xeb", None),
            (0x1e, b"\x20\xac", None),
            (0x1e, b"\0d\0", None),
            (0x1e, b"\0d\0\n", None),
            (0x14, b"a\x7f", None),
            (0x0c, b"a\n", None),
            // A UniversalString.
            (0x1c, b"\0\0\0d", None),
            (0x0c, b"", None),
            (0x1e, b"", None),
        ] {
            assert_eq!(common_name(&name(tag, text)).as_deref(), known, "{tag:#x} {text:?}");
        }
        assert_eq!(common_name(&[]), None);
    }

    /// RFC 5280 §4.1, encoded by hand.
    #[test]
    fn reads_issuer_subject_and_emails_of_a_certificate() {
        let element = |tag: u8, content: &[u8]| [&[tag, content.len() as u8], content].concat();
        let name = |text: &[u8]| {
            let attribute = [element(6, &[0x55, 4, 3]), element(0x0c, text)].concat();
            element(0x30, &element(0x31, &element(0x30, &attribute)))
        };
        let with = |alternatives: &[u8]| {
            let alternatives = element(4, &element(0x30, alternatives));
            let extension = element(0x30, &[element(6, &[0x55, 0x1d, 0x11]), alternatives].concat());
            let fields = [
                element(0xa0, &element(2, &[2])),
                element(2, &[1]),
                element(0x30, &[]),
                name(b"issuer"),
                element(0x30, &[]),
                name(b"subject"),
                element(0x30, &[]),
                element(0xa3, &element(0x30, &extension)),
            ];
            element(0x30, &element(0x30, &fields.concat()))
        };
        let emails = [element(0x81, b"a@b"), element(0x82, b"c.d"), element(0x81, b"e@f")].concat();
        let read = details(&with(&emails)).unwrap();
        assert_eq!((read.issuer(), read.subject()), (&name(b"issuer")[..], &name(b"subject")[..]));
        assert!(read.emails().eq(["a@b", "e@f"]));
        assert_eq!(details(&with(b"")).unwrap().emails().count(), 0);
        assert!(details(b"none").is_none());
        // A name that is too long.
        let long = |len: usize| X509Details::new(alloc::vec![0; len]).is_some();
        assert!(long(super::super::MAX_X509_DETAILS) && !long(super::super::MAX_X509_DETAILS + 1));
    }
}
