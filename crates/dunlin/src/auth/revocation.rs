//! Revocation by lists (RFC 5280 §5): which certificates of a believed chain their issuers have withdrawn.

use crate::sync::Arc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use pki_types::{CertificateDer, CertificateRevocationListDer};
use webpki::{
    Cert, CertRevocationList, ExpirationPolicy, OwnedCertRevocationList, RevocationCheckDepth,
    RevocationOptions, RevocationOptionsBuilder, UnknownStatusPolicy, VerifiedPath,
};

use super::der::{seconds, tlv};
use super::x509;
use crate::error::{AuthenticationFailure, Error, Misuse};

/// Revocation lists, and how strictly they are applied. By default no certificate of the chain may be revoked, each
/// needs a list of its issuer, and a list that is overdue still counts.
#[derive(Clone, Debug)]
pub struct Revocation {
    lists: Arc<Vec<CertRevocationList<'static>>>,
    /// The same as received, for the digest of settings.
    encoded: Arc<Vec<CertificateRevocationListDer<'static>>>,
    /// nextUpdate of each list, in seconds since 1970.
    next_s: Vec<u64>,
    depth: RevocationCheckDepth,
    unknown: UnknownStatusPolicy,
    overdue: ExpirationPolicy,
}

impl Revocation {
    /// With these lists. Their signatures are verified with each chain, by the key of its issuer.
    ///
    /// # Errors
    /// There is none, or one does not parse, is not of version 2 or has no date of the next; or two of one issuer are for the
    /// same certificates, because their distribution points are the same, or one has none (RFC 5280 §5.2.5). Which, counted
    /// from 1.
    pub fn new<'l>(lists: impl IntoIterator<Item = CertificateRevocationListDer<'l>>) -> Result<Self, Error> {
        let mut all = Vec::<(CertRevocationList<'_>, CertificateRevocationListDer<'_>, u64)>::new();
        for (i, der) in lists.into_iter().enumerate() {
            let refused = |why: String| Misuse::Config(alloc::format!("revocation list {}: {why}", i + 1));
            let list = OwnedCertRevocationList::from_der(&der).map_err(|e| refused(e.to_string()))?;
            let list = CertRevocationList::from(list);
            // A list without a distribution point is for every certificate of its issuer.
            let overlaps = |other: &CertRevocationList<'_>| {
                let points = (other.issuing_distribution_point(), list.issuing_distribution_point());
                other.issuer() == list.issuer()
                    && (points.0 == points.1 || points.0.is_none() || points.1.is_none())
            };
            if let Some(other) = all.iter().position(|(other, ..)| overlaps(other)) {
                let why = alloc::format!(
                    "it is of the same issuer as list {} and for the same certificates: keep the newer one, or only lists with a \
                     distribution point each",
                    other + 1
                );
                return Err(refused(why).into());
            }
            let next_s = next_update(&der).ok_or_else(|| refused("it has no date of the next".into()))?;
            all.push((list, der.to_vec().into(), next_s));
        }
        if all.is_empty() {
            return Err(Misuse::Config("there is no revocation list".into()).into());
        }
        // The order in which the caller gives the lists says nothing.
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
        })
    }

    /// Only the peer's own certificate is looked up, not those of the authorities above it.
    #[must_use]
    pub const fn leaf_only(mut self) -> Self {
        self.depth = RevocationCheckDepth::EndEntity;
        self
    }

    /// A certificate of whose issuer there is no list counts as not revoked.
    #[must_use]
    pub const fn allow_unknown(mut self) -> Self {
        self.unknown = UnknownStatusPolicy::Allow;
        self
    }

    /// A list counts only until the date of the next (`nextUpdate`): for those who renew their lists in time.
    #[must_use]
    pub const fn refuse_overdue(mut self) -> Self {
        self.overdue = ExpirationPolicy::Enforce;
        self
    }

    /// The rules and every byte of the lists, for the digest of settings. No part of a list stands for the whole: an ML-DSA
    /// signature, for one, ends in padding and counters (FIPS 204, algorithm 20).
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

    /// The last second, since 1970, in which the lists count that are in charge of `chain`: that before their nextUpdate.
    pub(super) fn good_until_s(&self, chain: &[CertificateDer<'_>]) -> u64 {
        if matches!(self.overdue, ExpirationPolicy::Ignore) {
            return u64::MAX;
        }
        let names = chain.iter().filter_map(|certificate| x509::names(certificate));
        let issuers: Vec<_> = names.map(|(issuer, _subject)| issuer).collect();
        let in_charge =
            self.lists.iter().zip(&self.next_s).filter(|(list, _)| issuers.contains(&list.issuer()));
        in_charge.map(|(_, next_s)| next_s.saturating_sub(1)).min().unwrap_or(u64::MAX)
    }

    /// The lists as [`Self::options`] takes them, once for each round in which `chain` has to be verified. webpki asks the first
    /// list that applies to a certificate. Several apply where a certificate names no distribution point and its issuer has
    /// divided its lists: each is the first in one of the rounds, so each is asked.
    pub(super) fn rounds(&self, chain: &[CertificateDer<'_>]) -> Vec<Vec<&CertRevocationList<'static>>> {
        let issuers: Vec<_> = self.lists.chunk_by(|a, b| a.issuer() == b.issuer()).collect();
        let open = chain.iter().filter(|certificate| !x509::has_distribution_points(certificate));
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

    /// Refuses `path` if any list of the issuer has one of its certificates, whichever of the lists applies: an issuer gives
    /// each serial number once (RFC 5280 §4.1.2.2).
    pub(super) fn check(&self, path: &VerifiedPath<'_>) -> Result<(), webpki::Error> {
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

    /// What webpki is told.
    pub(super) fn options<'l>(
        &self,
        lists: &'l [&'l CertRevocationList<'l>],
    ) -> Result<RevocationOptions<'l>, AuthenticationFailure> {
        // There is a list: without one there is no value of this type.
        let builder = RevocationOptionsBuilder::new(lists)
            .map_err(|_| AuthenticationFailure::UnknownRevocationStatus)?;
        let builder = builder.with_depth(self.depth).with_status_policy(self.unknown);
        Ok(builder.with_expiration_policy(self.overdue).build())
    }
}

/// nextUpdate of a list (RFC 5280 §5.1.2.5).
fn next_update(list: &[u8]) -> Option<u64> {
    let (_, list, _) = tlv(list)?;
    let (_, mut tbs, _) = tlv(list)?;
    // version, signature, issuer and thisUpdate stand before it.
    for _ in 0..4 {
        tbs = tlv(tbs)?.2;
    }
    let (tag, time, _) = tlv(tbs)?;
    seconds(tag, time)
}
