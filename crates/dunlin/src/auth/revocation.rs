//! Certificate revocation lists (CRLs, RFC 5280 §5).

use crate::sync::Arc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use pki_types::{CertificateDer, CertificateRevocationListDer};
use webpki::{
    Cert, CertRevocationList, ExpirationPolicy, OwnedCertRevocationList, RevocationCheckDepth,
    RevocationOptions, RevocationOptionsBuilder, UnknownStatusPolicy, VerifiedPath,
};

use super::der::{seconds, tlv};
use super::x509;
use crate::error::{AuthenticationFailure, Error, Misuse};

/// CRLs, and how strictly this side applies them. By default it checks every certificate of the chain, requires a CRL from
/// each issuer, and accepts a CRL after its nextUpdate.
#[derive(Clone, Debug)]
pub struct Revocation {
    lists: Arc<Vec<CertRevocationList<'static>>>,
    /// The CRLs in DER, for the digest of settings.
    encoded: Arc<Vec<CertificateRevocationListDer<'static>>>,
    /// nextUpdate of each CRL, in seconds since 1970.
    next_s: Vec<u64>,
    depth: RevocationCheckDepth,
    unknown: UnknownStatusPolicy,
    overdue: ExpirationPolicy,
    /// Only [`Revocation::new`] points to the code, so programs without CRLs do not link it.
    steps: &'static Steps,
}

/// The lists for webpki, in one order for each round.
type Rounds<'r> = Vec<Vec<&'r CertRevocationList<'static>>>;

/// The code that verifies chains against CRLs.
struct Steps {
    good_until_s: fn(&Revocation, &[CertificateDer<'_>]) -> u64,
    rounds: for<'r> fn(&'r Revocation, &[CertificateDer<'_>]) -> Rounds<'r>,
    check: fn(&Revocation, &VerifiedPath<'_>) -> Result<(), webpki::Error>,
}

/// Prints no code addresses, which would help an attacker.
impl fmt::Debug for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Steps")
    }
}

static STEPS: Steps = Steps {
    good_until_s: Revocation::consulted_until_s,
    rounds: Revocation::rotations,
    check: Revocation::check_path,
};

impl Revocation {
    /// Takes CRLs. The engine verifies a CRL's signature with the issuer's key each time it verifies a chain.
    ///
    /// # Errors
    /// There is no CRL; or one does not parse, is not of version 2 or has no nextUpdate; or two CRLs of one issuer cover the
    /// same certificates, because they have the same distribution point or one has none (RFC 5280 §5.2.5). The error counts
    /// CRLs from 1.
    pub fn new<'l>(lists: impl IntoIterator<Item = CertificateRevocationListDer<'l>>) -> Result<Self, Error> {
        let mut all = Vec::<(CertRevocationList<'_>, CertificateRevocationListDer<'_>, u64)>::new();
        for (i, der) in lists.into_iter().enumerate() {
            let refused = |why: String| Misuse::Config(alloc::format!("CRL {}: {why}", i + 1));
            let list = OwnedCertRevocationList::from_der(&der).map_err(|e| refused(e.to_string()))?;
            let list = CertRevocationList::from(list);
            // RFC 5280 §5.2.5: a CRL without a distribution point covers all certificates of its issuer.
            let overlaps = |other: &CertRevocationList<'_>| {
                let points = (other.issuing_distribution_point(), list.issuing_distribution_point());
                other.issuer() == list.issuer()
                    && (points.0 == points.1 || points.0.is_none() || points.1.is_none())
            };
            if let Some(other) = all.iter().position(|(other, ..)| overlaps(other)) {
                let why = alloc::format!(
                    "it is of the same issuer as CRL {} and covers the same certificates: keep the newer one, or only CRLs \
                     that each have a distribution point",
                    other + 1
                );
                return Err(refused(why).into());
            }
            let next_s = next_update(&der).ok_or_else(|| refused("it has no nextUpdate".into()))?;
            all.push((list, der.to_vec().into(), next_s));
        }
        if all.is_empty() {
            return Err(Misuse::Config("there is no CRL".into()).into());
        }
        // Sorted, so that the digest of settings does not depend on the caller's order.
        all.sort_by(|(a, a_der, _), (b, b_der, _)| (a.issuer(), &**a_der).cmp(&(b.issuer(), &**b_der)));
        let (mut parsed, mut encoded, mut next_s) = (Vec::new(), Vec::new(), Vec::new());
        for (list, der, next) in all {
            parsed.push(list);
            encoded.push(der);
            next_s.push(next);
        }
        Ok(Self {
            lists: Arc::new(parsed),
            encoded: Arc::new(encoded),
            next_s,
            depth: RevocationCheckDepth::Chain,
            unknown: UnknownStatusPolicy::Deny,
            overdue: ExpirationPolicy::Ignore,
            steps: &STEPS,
        })
    }

    /// Checks only the peer's own certificate, not those of the CAs above it.
    #[must_use]
    pub const fn leaf_only(mut self) -> Self {
        self.depth = RevocationCheckDepth::EndEntity;
        self
    }

    /// Treats a certificate as not revoked if there is no CRL from its issuer.
    #[must_use]
    pub const fn allow_unknown(mut self) -> Self {
        self.unknown = UnknownStatusPolicy::Allow;
        self
    }

    /// Rejects a CRL after its `nextUpdate`. The caller must then renew its CRLs in time.
    #[must_use]
    pub const fn refuse_overdue(mut self) -> Self {
        self.overdue = ExpirationPolicy::Enforce;
        self
    }

    /// The rules and every byte of the CRLs, for the digest of settings. A part of a CRL would not identify it: an ML-DSA
    /// signature, for example, ends in padding and counters (FIPS 204, algorithm 20).
    pub(crate) fn settings(&self) -> impl Iterator<Item = &[u8]> {
        let rules: [&[u8]; 3] = [
            match self.depth {
                RevocationCheckDepth::EndEntity => b"leaf",
                RevocationCheckDepth::Chain => b"chain",
            },
            match self.unknown {
                UnknownStatusPolicy::Allow => b"unknown allowed",
                UnknownStatusPolicy::Deny => b"unknown denied",
            },
            match self.overdue {
                ExpirationPolicy::Enforce => b"overdue refused",
                ExpirationPolicy::Ignore => b"overdue allowed",
            },
        ];
        rules.into_iter().chain(self.encoded.iter().map(|list| &**list))
    }

    /// The last second, since 1970, before the first nextUpdate of the CRLs that the verification of `chain` consults; `u64::MAX`
    /// if this side accepts overdue CRLs.
    pub(super) fn good_until_s(&self, chain: &[CertificateDer<'_>]) -> u64 {
        (self.steps.good_until_s)(self, chain)
    }

    fn consulted_until_s(&self, chain: &[CertificateDer<'_>]) -> u64 {
        if matches!(self.overdue, ExpirationPolicy::Ignore) {
            return u64::MAX;
        }
        let in_charge = |list: &CertRevocationList<'_>| chain.iter().any(|c| may_cover(list, c));
        let lists = self.lists.iter().zip(&self.next_s).filter(|(list, _)| in_charge(list));
        lists.map(|(_, next_s)| next_s.saturating_sub(1)).min().unwrap_or(u64::MAX)
    }

    /// The CRLs for [`Self::options`], in one order for each round in which the engine must verify `chain`. webpki consults
    /// only the first CRL that applies to a certificate. Several apply if the issuer partitions its CRLs and the certificate
    /// names no distribution point. Each of them comes first in one of the rounds, so webpki consults all of them.
    pub(super) fn rounds(&self, chain: &[CertificateDer<'_>]) -> Rounds<'_> {
        (self.steps.rounds)(self, chain)
    }

    fn rotations(&self, chain: &[CertificateDer<'_>]) -> Rounds<'_> {
        let issuers: Vec<_> = self.lists.chunk_by(|a, b| a.issuer() == b.issuer()).collect();
        let open = chain.iter().filter(|certificate| x509::distribution_points(certificate).is_none());
        let open: Vec<_> = open.filter_map(|certificate| x509::names(certificate)).collect();
        let applies = |lists: &[CertRevocationList<'_>]| {
            open.iter().any(|(i, _)| lists.iter().any(|l| l.issuer() == *i))
        };
        let count = issuers.iter().filter(|lists| applies(lists)).map(|lists| lists.len()).max();
        let rotated = |round: usize| {
            let lists = issuers.iter().flat_map(move |lists| {
                lists.iter().cycle().skip(round % lists.len().max(1)).take(lists.len())
            });
            lists.collect()
        };
        (0..count.unwrap_or(1)).map(rotated).collect()
    }

    /// Rejects `path` if any CRL of an issuer lists one of its certificates, whichever distribution point the CRL has. That is
    /// safe because an issuer uses each serial number once (RFC 5280 §4.1.2.2).
    pub(super) fn check(&self, path: &VerifiedPath<'_>) -> Result<(), webpki::Error> {
        (self.steps.check)(self, path)
    }

    fn check_path(&self, path: &VerifiedPath<'_>) -> Result<(), webpki::Error> {
        let is_revoked = |certificate: &Cert<'_>| {
            let mut lists = self.lists.iter().filter(|list| list.issuer() == certificate.issuer());
            lists.any(|list| !matches!(list.find_serial(certificate.serial()), Ok(None)))
        };
        let above = matches!(self.depth, RevocationCheckDepth::Chain);
        match is_revoked(path.end_entity()) || above && path.intermediate_certificates().any(is_revoked) {
            true => Err(webpki::Error::CertRevoked),
            false => Ok(()),
        }
    }

    /// The options for webpki.
    pub(super) fn options<'l>(
        &self,
        lists: &'l [&'l CertRevocationList<'l>],
    ) -> Result<RevocationOptions<'l>, AuthenticationFailure> {
        // This fails only without a CRL, and `new` requires one.
        let builder = RevocationOptionsBuilder::new(lists)
            .map_err(|_| AuthenticationFailure::UnknownRevocationStatus)?;
        let builder = builder.with_depth(self.depth).with_status_policy(self.unknown);
        Ok(builder.with_expiration_policy(self.overdue).build())
    }
}

/// Whether a CRL may be the one for this certificate: it is of the same issuer, and either names the same distribution point or one
/// of the two names none. In doubt it may be.
fn may_cover(list: &CertRevocationList<'_>, certificate: &[u8]) -> bool {
    if x509::names(certificate).is_none_or(|(issuer, _subject)| issuer != list.issuer()) {
        return false;
    }
    let (Some(own), Some(theirs)) =
        (x509::distribution_points(certificate), list.issuing_distribution_point())
    else {
        return true;
    };
    let uris = uris(theirs).unwrap_or_default();
    uris.is_empty() || uris.iter().any(|uri| own.windows(uri.len()).any(|part| part == *uri))
}

/// The URIs of a CRL's distribution point, each in DER with its header. `None` if it has no list of names.
fn uris(mut point: &[u8]) -> Option<Vec<&[u8]>> {
    // IssuingDistributionPoint, distributionPoint and fullName (RFC 5280 §5.2.5, §4.2.1.13).
    for header in [0x30, 0xa0, 0xa0] {
        let (tag, content, _) = tlv(point)?;
        point = (tag == header).then_some(content)?;
    }
    let mut found = Vec::new();
    while let Some((tag, _, rest)) = tlv(point) {
        // uniformResourceIdentifier (RFC 5280 §4.2.1.6).
        if tag == 0x86 {
            found.push(point.get(..point.len() - rest.len())?);
        }
        point = rest;
    }
    Some(found)
}

/// nextUpdate of a CRL (RFC 5280 §5.1.2.5).
fn next_update(list: &[u8]) -> Option<u64> {
    let (_, list, _) = tlv(list)?;
    let (_, mut tbs, _) = tlv(list)?;
    // version, signature, issuer and thisUpdate precede it.
    for _ in 0..4 {
        tbs = tlv(tbs)?.2;
    }
    let (tag, time, _) = tlv(tbs)?;
    seconds(tag, time)
}
