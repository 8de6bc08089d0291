//! Revocation by lists (RFC 5280 §5): which certificates of a believed chain their issuers have withdrawn.

use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use pki_types::{CertificateDer, CertificateRevocationListDer};
use webpki::{
    CertRevocationList, ExpirationPolicy, OwnedCertRevocationList, RevocationCheckDepth, RevocationOptions,
    RevocationOptionsBuilder, UnknownStatusPolicy,
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
    /// There is none, or one does not parse, is not of version 2 or has no date of the next; or two are of one issuer for
    /// the same certificates, of which only the first would count. Which, counted from 1.
    pub fn new<'l>(lists: impl IntoIterator<Item = CertificateRevocationListDer<'l>>) -> Result<Self, Error> {
        let (mut parsed, mut encoded, mut next_s) =
            (Vec::<CertRevocationList<'_>>::new(), Vec::new(), Vec::new());
        for (i, der) in lists.into_iter().enumerate() {
            let refused = |why: String| Misuse::Config(alloc::format!("revocation list {}: {why}", i + 1));
            let list = OwnedCertRevocationList::from_der(&der).map_err(|e| refused(e.to_string()))?;
            let list = CertRevocationList::from(list);
            let scope = |l: &CertRevocationList<'_>| {
                (l.issuer().to_vec(), l.issuing_distribution_point().map(<[u8]>::to_vec))
            };
            // webpki asks the first list that is in charge, and no other.
            if let Some(other) = parsed.iter().position(|other| scope(other) == scope(&list)) {
                let why =
                    alloc::format!("it is of the same issuer as list {}: keep the newer one", other + 1);
                return Err(refused(why).into());
            }
            parsed.push(list);
            next_s.push(next_update(&der).ok_or_else(|| refused("it has no date of the next".into()))?);
            encoded.push(CertificateRevocationListDer::from(der.to_vec()));
        }
        if parsed.is_empty() {
            return Err(Misuse::Config("there is no revocation list".into()).into());
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

    /// The lists as [`Self::options`] takes them.
    pub(super) fn lists(&self) -> Vec<&CertRevocationList<'static>> {
        self.lists.iter().collect()
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
