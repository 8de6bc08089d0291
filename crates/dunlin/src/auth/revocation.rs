//! Certificate revocation lists (CRLs, RFC 5280 §5). webpki parses them; this module decides which of them is
//! about a certificate, and verifies it (RFC 5280 §6.3.3).

use crate::crypto::Algorithms;
use crate::sync::Arc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;

use pki_types::{CertificateDer, CertificateRevocationListDer};
use webpki::{Cert, CertRevocationList, OwnedCertRevocationList, VerifiedPath};

use super::chain::{self, Signed};
use super::der::{seconds, tlv};
use super::spelling::same_name;
use super::{certificate, failure};
use crate::error::{AuthenticationFailure as Failure, Error, Misuse};

/// CRLs, and how strictly this side applies them. By default it checks every certificate of the chain,
/// requires a CRL from each issuer, and accepts a CRL after its nextUpdate.
#[derive(Clone, Debug)]
pub struct Revocation {
    lists: Arc<Vec<List>>,
    leaf_only: bool,
    allow_unknown: bool,
    refuse_overdue: bool,
    /// Only [`Revocation::new`] points to the code, so programs without CRLs do not link it.
    steps: &'static Steps,
}

/// A CRL.
#[derive(Debug)]
struct List {
    parsed: CertRevocationList<'static>,
    der: CertificateRevocationListDer<'static>,
    /// thisUpdate and nextUpdate, in seconds since 1970.
    this_s: u64,
    next_s: u64,
    /// keyIdentifier of authorityKeyIdentifier (RFC 5280 §5.2.1).
    key_id: Option<Vec<u8>>,
}

/// The code that verifies chains against CRLs.
struct Steps {
    good_until_s: fn(&Revocation, &[CertificateDer<'_>]) -> u64,
    check: fn(&Revocation, &Checked<'_>, &mut Tried) -> Result<(), Failure>,
}

/// The signatures of CRLs that a search has verified: the CRL's index, the issuer's key, and the verdict. A
/// search validates several paths through one authority, and verifies its CRL once.
#[derive(Debug, Default)]
pub(super) struct Tried(Vec<(usize, Vec<u8>, Option<bool>)>);

/// A signed path, and what verifies the CRLs of its issuers.
pub(super) struct Checked<'p> {
    pub(super) path: &'p VerifiedPath<'p>,
    pub(super) algorithms: Algorithms<'p>,
    /// Seconds since 1970.
    pub(super) now_s: u64,
}

/// Prints no code addresses, which would help an attacker.
impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Steps")
    }
}

static STEPS: Steps = Steps { good_until_s: Revocation::consulted_until_s, check: Revocation::check_path };

impl Revocation {
    /// Takes CRLs. The engine verifies a CRL's signature with the issuer's key each time it verifies a chain,
    /// once for all the paths that it tries.
    ///
    /// # Errors
    /// There is no CRL; or one does not parse, is not of version 2 or has no nextUpdate; or two CRLs of one
    /// issuer cover the same certificates, because they have the same distribution point or one has none (RFC
    /// 5280 §5.2.5). Issuers are different if their names are (RFC 5280 §7.1: in any spelling), or the
    /// authorityKeyIdentifiers of their CRLs. The error counts CRLs from 1.
    pub fn new<'l>(lists: impl IntoIterator<Item = CertificateRevocationListDer<'l>>) -> Result<Self, Error> {
        let mut all = Vec::<List>::new();
        for (i, der) in lists.into_iter().enumerate() {
            let refused = |why: String| Misuse::Config(alloc::format!("CRL {}: {why}", i + 1));
            let list = List::read(&der).map_err(|why| refused(why.into()))?;
            if let Some(at) = all.iter().position(|other| list.overlaps(other)) {
                let advice = match all.get(at).map(|other| list.this_s.cmp(&other.this_s)) {
                    Some(Ordering::Greater) => alloc::format!("drop CRL {}, which is older", at + 1),
                    Some(Ordering::Less) => "drop it, because it is older".into(),
                    _ => "keep one of them".into(),
                };
                let is_spelled_alike =
                    all.get(at).is_some_and(|other| list.parsed.issuer() == other.parsed.issuer());
                let spelling = if is_spelled_alike { "" } else { ", whose name it spells differently," };
                let why = alloc::format!(
                    "it is of the same issuer as CRL {}{spelling} and covers the same certificates: {advice}",
                    at + 1
                );
                return Err(refused(why).into());
            }
            all.push(list);
        }
        if all.is_empty() {
            return Err(Misuse::Config("there is no CRL".into()).into());
        }
        // Sorted, so that the digest of settings does not depend on the caller's order.
        all.sort_by(|a, b| (a.parsed.issuer(), &*a.der).cmp(&(b.parsed.issuer(), &*b.der)));
        let leaf_only = false;
        let allow_unknown = false;
        let refuse_overdue = false;
        Ok(Self { lists: Arc::new(all), leaf_only, allow_unknown, refuse_overdue, steps: &STEPS })
    }

    /// Checks only the peer's own certificate, not the certificates of the CAs above it.
    #[must_use]
    pub const fn leaf_only(mut self) -> Self {
        self.leaf_only = true;
        self
    }

    /// Treats a certificate as not revoked if no CRL of its issuer covers it.
    #[must_use]
    pub const fn allow_unknown(mut self) -> Self {
        self.allow_unknown = true;
        self
    }

    /// Rejects a CRL after its `nextUpdate`. The caller must then renew its CRLs in time.
    #[must_use]
    pub const fn refuse_overdue(mut self) -> Self {
        self.refuse_overdue = true;
        self
    }

    /// The rules and every byte of the CRLs, for the digest of settings. A part of a CRL would not identify
    /// it: an ML-DSA signature, for example, ends in padding and counters (FIPS 204, algorithm 20).
    pub(crate) fn settings(&self) -> impl Iterator<Item = &[u8]> {
        let rules: [&[u8]; 3] = [
            if self.leaf_only { b"leaf" } else { b"chain" },
            if self.allow_unknown { b"unknown allowed" } else { b"unknown denied" },
            if self.refuse_overdue { b"overdue refused" } else { b"overdue allowed" },
        ];
        rules.into_iter().chain(self.lists.iter().map(|list| &*list.der))
    }

    /// The last second, since 1970, before the first nextUpdate of the CRLs that the verification of `chain`
    /// consults; `u64::MAX` if this side accepts overdue CRLs.
    pub(super) fn good_until_s(&self, chain: &[CertificateDer<'_>]) -> u64 {
        (self.steps.good_until_s)(self, chain)
    }

    fn consulted_until_s(&self, chain: &[CertificateDer<'_>]) -> u64 {
        if !self.refuse_overdue {
            return u64::MAX;
        }
        let certificates = chain.iter().enumerate().filter(|(i, _)| *i == 0 || !self.leaf_only);
        let certificates: Vec<_> = certificates.collect();
        let is_consulted =
            |list: &&List| certificates.iter().any(|(i, certificate)| list.covers(certificate, *i > 0));
        let ends = self.lists.iter().filter(is_consulted).map(|list| list.next_s.saturating_sub(1));
        ends.min().unwrap_or(u64::MAX)
    }

    /// Rejects a path if the CRLs do not say that its certificates are not revoked.
    pub(super) fn check(&self, checked: &Checked<'_>, tried: &mut Tried) -> Result<(), Failure> {
        (self.steps.check)(self, checked, tried)
    }

    fn check_path(&self, checked: &Checked<'_>, tried: &mut Tried) -> Result<(), Failure> {
        let path = checked.path;
        let leaf: &Cert<'_> = path.end_entity();
        let certificates = core::iter::once(leaf).chain(path.intermediate_certificates());
        let issuers = path.intermediate_certificates().map(Some).chain([None]);
        let count = if self.leaf_only { 1 } else { usize::MAX };
        for (i, (certificate, issuer)) in certificates.zip(issuers).enumerate().take(count) {
            let issuer_der = issuer.map(|issuer| issuer.der());
            let key = match &issuer_der {
                Some(issuer) => chain::key(issuer).ok_or(Failure::BadEncoding)?,
                None => &path.anchor().subject_public_key_info,
            };
            // RFC 5280 §6.3.3 (f): "If a key usage extension is present in the CRL issuer's certificate,
            // verify that the cRLSign bit is set." A trust anchor has no such extension.
            let may_sign = issuer_der.as_ref().is_none_or(|issuer| certificate::may_sign_lists(issuer));
            self.check_certificate(checked, certificate, i > 0, (key, may_sign), tried)?;
        }
        Ok(())
    }

    /// Checks one certificate. Its issuer has this key, a SubjectPublicKeyInfo without its header, and may
    /// sign CRLs or not.
    fn check_certificate(
        &self,
        checked: &Checked<'_>,
        certificate: &Cert<'_>,
        is_authority: bool,
        (key, may_sign): (&[u8], bool),
        tried: &mut Tried,
    ) -> Result<(), Failure> {
        let der = certificate.der();
        let lists = self.lists.iter().enumerate();
        let mut covering = lists.filter(|(_, list)| list.covers(&der, is_authority)).peekable();
        if covering.peek().is_none() {
            return if self.allow_unknown { Ok(()) } else { Err(Failure::UnknownRevocationStatus) };
        }
        // Several issuers may have one name, each with its own CRL (RFC 5280 §4.2.1.1). The key tells them
        // apart.
        let mut unsupported = None;
        let mut own = Vec::new();
        for (index, list) in covering {
            let signed = Signed::read(&list.der).ok_or(Failure::BadRevocationList)?;
            match tried.verdict(index, key, || chain::verifies(checked.algorithms, key, &signed)) {
                Some(true) => own.push(list),
                Some(false) => {}
                None => unsupported = Some(failure::bounded(signed.algorithm)),
            }
        }
        if own.is_empty() {
            return Err(unsupported.map_or(Failure::BadRevocationList, Failure::UnsupportedAlgorithm));
        }
        if !may_sign {
            return Err(Failure::NotRevocationListIssuer);
        }
        if own.iter().any(|list| !matches!(list.parsed.find_serial(certificate.serial()), Ok(None))) {
            return Err(if is_authority {
                Failure::RevokedAuthority(certificate::common_name(certificate.subject()))
            } else {
                Failure::Revoked
            });
        }
        for list in own {
            if checked.now_s < list.this_s {
                return Err(Failure::FutureRevocationList);
            }
            if self.refuse_overdue && checked.now_s >= list.next_s {
                return Err(Failure::OverdueRevocationList);
            }
        }
        Ok(())
    }
}

impl Tried {
    /// Whether this key has signed this CRL. Verifies the signature unless that is known.
    fn verdict(&mut self, list: usize, key: &[u8], verify: impl FnOnce() -> Option<bool>) -> Option<bool> {
        if let Some((.., verdict)) = self.0.iter().find(|(at, by, _)| *at == list && by == key) {
            return *verdict;
        }
        let verdict = verify();
        self.0.push((list, key.to_vec(), verdict));
        verdict
    }
}

impl List {
    fn read(der: &[u8]) -> Result<Self, &'static str> {
        let (this_s, next_s, extensions) = fields(der)?;
        let parsed = OwnedCertRevocationList::from_der(der).map_err(|e| failure::of_own(&e))?;
        let key_id = certificate::authority_key_id_among(extensions).map(Into::into);
        Ok(Self { parsed: parsed.into(), der: der.to_vec().into(), this_s, next_s, key_id })
    }

    /// Whether both CRLs can be about one certificate.
    fn overlaps(&self, other: &Self) -> bool {
        let points = (self.parsed.issuing_distribution_point(), other.parsed.issuing_distribution_point());
        let keys = (&self.key_id, &other.key_id);
        // One key has one name, unless the names are known to be different.
        let is_one_key = keys.0.is_some() && keys.0 == keys.1;
        same_name(self.parsed.issuer(), other.parsed.issuer()).unwrap_or(is_one_key)
            && (keys.0 == keys.1 || keys.0.is_none() || keys.1.is_none())
            // RFC 5280 §5.2.5: a CRL without a distribution point covers all certificates of its issuer.
            && (points.0 == points.1 || points.0.is_none() || points.1.is_none())
    }

    /// Whether this CRL is about a certificate, which is an authority's or not (RFC 5280 §6.3.3 (b)). A CRL
    /// with a distribution point is only about the certificates that name it. If the issuers' names may be two
    /// spellings of one, the CRL's signature decides.
    fn covers(&self, certificate: &[u8], is_authority: bool) -> bool {
        let Some((issuer, _subject)) = certificate::names(certificate) else { return false };
        if same_name(issuer, self.parsed.issuer()) == Some(false) {
            return false;
        }
        let Some(own) = self.parsed.issuing_distribution_point() else { return true };
        let (Some(own), Some(theirs)) = (Scope::read(own), certificate::distribution_points(certificate))
        else {
            return false;
        };
        let is_wanted = if is_authority { own.has_authorities } else { own.has_leaves };
        is_wanted && points(theirs).any(|uris| uris.iter().any(|uri| own.uris.contains(uri)))
    }
}

/// The certificates that a CRL with an issuingDistributionPoint is about (RFC 5280 §5.2.5).
struct Scope<'l> {
    /// The distribution point's URIs.
    uris: Vec<&'l [u8]>,
    has_leaves: bool,
    has_authorities: bool,
}

impl<'l> Scope<'l> {
    /// Reads an issuingDistributionPoint that webpki has parsed, so it has no other fields than these.
    fn read(point: &'l [u8]) -> Option<Self> {
        let mut scope = Self { uris: Vec::new(), has_leaves: true, has_authorities: true };
        let (_, mut fields, _) = tlv(point)?;
        while !fields.is_empty() {
            let (tag, value, rest) = tlv(fields)?;
            let is_set = value != [0];
            match tag {
                0xa0 => scope.uris = full_name(value)?,
                // onlyContainsUserCerts and onlyContainsCACerts.
                0x81 => scope.has_authorities &= !is_set,
                0x82 => scope.has_leaves &= !is_set,
                _ => return None,
            }
            fields = rest;
        }
        Some(scope)
    }
}

/// The URIs of each distribution point of a certificate (RFC 5280 §4.2.1.13). Points of another CRL issuer,
/// or for some reasons only, have none here: a CRL for them is an indirect one, or not about all reasons.
fn points(extension: &[u8]) -> impl Iterator<Item = Vec<&[u8]>> {
    let mut rest = tlv(extension).map_or(&[][..], |(_, points, _)| points);
    core::iter::from_fn(move || {
        let (_, point, after) = tlv(rest)?;
        rest = after;
        // distributionPoint [0] comes before reasons [1] and cRLIssuer [2].
        Some(match tlv(point) {
            Some((0xa0, name, [])) => full_name(name).unwrap_or_default(),
            _ => Vec::new(),
        })
    })
}

/// The URIs of a DistributionPointName (RFC 5280 §4.2.1.13). `None` if it is not a fullName.
fn full_name(name: &[u8]) -> Option<Vec<&[u8]>> {
    let (0xa0, mut names, _) = tlv(name)? else { return None };
    let mut found = Vec::new();
    while let Some((tag, uri, rest)) = tlv(names) {
        // uniformResourceIdentifier (RFC 5280 §4.2.1.6).
        if tag == 0x86 {
            found.push(uri);
        }
        names = rest;
    }
    Some(found)
}

/// thisUpdate, nextUpdate and the extensions of a CRL (RFC 5280 §5.1.2). webpki calls a CRL damaged that
/// lacks what is optional in X.509, so this names what is missing.
fn fields(list: &[u8]) -> Result<(u64, u64, &[u8]), &'static str> {
    const DAMAGED: &str = "it is damaged";
    let (_, list, _) = tlv(list).ok_or(DAMAGED)?;
    let (_, tbs, _) = tlv(list).ok_or(DAMAGED)?;
    let (version, _, mut fields) = tlv(tbs).ok_or(DAMAGED)?;
    if version != 2 {
        return Err("it is of version 1: give one of version 2 (RFC 5280 §5.1.2.1)");
    }
    // signature and issuer.
    for _ in 0..2 {
        fields = tlv(fields).ok_or(DAMAGED)?.2;
    }
    let (tag, this, fields) = tlv(fields).ok_or(DAMAGED)?;
    let this_s = seconds(tag, this).ok_or("its thisUpdate is no time")?;
    let next = tlv(fields).and_then(|(tag, next, rest)| Some((seconds(tag, next)?, rest)));
    let (next_s, mut fields) = next.ok_or("it has no nextUpdate")?;
    while let Some((tag, extensions, rest)) = tlv(fields) {
        if tag == 0xa0 {
            return Ok((this_s, next_s, extensions));
        }
        fields = rest;
    }
    Err("it has no extensions: RFC 5280 §5.2 requires a CRL number and an authorityKeyIdentifier")
}
