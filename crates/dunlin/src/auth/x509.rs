//! Authentication by X.509 certificates: rustls-webpki validates paths (RFC 5280) and names (RFC 6125, RFC
//! 9525).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::Cell;

use pki_types::{CertificateDer, ServerName, SignatureVerificationAlgorithm, UnixTime};
use webpki::{EndEntityCert, KeyUsage, VerifiedPath};

use super::certificate::{common_name, dates, extension, from_issuer, key_usage, names, subject_key_id};
use super::chain::Anchor;
use super::der::{sequence, tlv};
use super::identity::fingerprint;
use super::revocation::{Checked, Tried};
use super::verifier::{AskAgain, Claim, KeyUse, Validity, Verdict, Verified, Verifier};
use super::{PeerIdentity, Revocation, SubjectName, X509Details, X509Identity};
use super::{chain, constraints, failure};
use crate::crypto::Algorithms;
use crate::error::{AuthenticationFailure, Error, Misuse, ShortKey};
use crate::protocol::Side;
use crate::time::Now;
use crate::wire::CertificateType;

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
                let issuer_key = if claim.keeps_details { believed.issuer_key } else { None };
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
    if fits && chain::is_usual_rsa(key).unwrap_or(true) {
        Ok(())
    } else {
        Err(AuthenticationFailure::UnsupportedKey)
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

/// Whether keyUsage of a certificate allows this, by digitalSignature or keyEncipherment. Without the
/// extension everything is allowed (RFC 5280 §4.2.1.3). webpki does not check keyUsage.
pub(super) fn allows(certificate: &[u8], usage: KeyUse) -> bool {
    let bit = match usage {
        KeyUse::Sign => 0x80,
        KeyUse::Encrypt => 0x20,
    };
    key_usage(certificate).is_none_or(|bits| bits.first().is_some_and(|first| first & bit != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

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
