//! Revocation by lists (RFC 5280 §5): which certificates of a believed chain their issuers have withdrawn.

use alloc::sync::Arc;
use alloc::vec::Vec;

use pki_types::CertificateRevocationListDer;
use webpki::{
    CertRevocationList, ExpirationPolicy, OwnedCertRevocationList, RevocationCheckDepth, RevocationOptions,
    RevocationOptionsBuilder, UnknownStatusPolicy,
};

use crate::error::{AuthenticationFailure, Error, Misuse};

/// Revocation lists, and how strictly they are applied. By default no certificate of the chain may be revoked, each
/// needs a list of its issuer, and a list that is overdue still counts.
#[derive(Clone, Debug)]
pub struct Revocation {
    lists: Arc<Vec<CertRevocationList<'static>>>,
    tails: Vec<[u8; TAIL]>,
    depth: RevocationCheckDepth,
    unknown: UnknownStatusPolicy,
    overdue: ExpirationPolicy,
}

/// A list ends with its signature, of which so many bytes tell it from every other list of its issuer.
const TAIL: usize = 32;

impl Revocation {
    /// With these lists. Their signatures are verified with each chain, by the key of its issuer.
    ///
    /// # Errors
    /// There is none, or one does not parse, is not of version 2 or has no date of the next; which, counted from 1.
    pub fn new<'l>(lists: impl IntoIterator<Item = CertificateRevocationListDer<'l>>) -> Result<Self, Error> {
        let (mut parsed, mut tails) = (Vec::new(), Vec::new());
        for (i, der) in lists.into_iter().enumerate() {
            let list = OwnedCertRevocationList::from_der(&der)
                .map_err(|e| Misuse::Config(alloc::format!("revocation list {}: {e}", i + 1)))?;
            parsed.push(list.into());
            tails.extend(der.last_chunk().copied());
        }
        if parsed.is_empty() {
            return Err(Misuse::Config("there is no revocation list".into()).into());
        }
        Ok(Self {
            lists: Arc::new(parsed),
            tails,
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

    /// What tells this from other lists and rules, for the digest of settings.
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
        rules.into_iter().chain(self.tails.iter().map(<[u8; TAIL]>::as_slice))
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
