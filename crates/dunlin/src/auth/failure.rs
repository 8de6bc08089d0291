//! The errors of webpki in the engine's terms: one table for peers' chains, and one for this side's trust
//! anchors and CRLs.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use pki_types::{CertificateDer, ServerName};
use webpki::{EndEntityCert, Error as W};

use super::certificate::{common_name, dates};
use crate::error::{AuthenticationFailure as F, OutOfDate};

/// The longest AlgorithmIdentifier that an error keeps, in bytes: more than RSASSA-PSS with all parameters
/// has.
const MAX_ALGORITHM: usize = 128;

/// Translates an error about a peer's chain.
pub(super) fn of_chain(error: &W, chain: &[CertificateDer<'_>], name: Option<&ServerName<'_>>) -> F {
    match error {
        W::CertExpired { not_after, .. } => F::Expired(out_of_date(chain, not_after.as_secs(), |v| v.1)),
        W::CertNotValidYet { not_before, .. } => {
            F::NotValidYet(out_of_date(chain, not_before.as_secs(), |v| v.0))
        }
        W::CertNotValidForName(context) => F::NameMismatch {
            wanted: name.map_or_else(String::new, crate::address::name_text),
            names: context.presented.iter().map(|name| plain(name)).collect(),
        },
        W::UnknownIssuer => F::UnknownIssuer,
        W::MaximumPathDepthExceeded => F::ChainTooLong,
        // webpki found the issuer by name, but its key is of another type than the signature.
        W::UnsupportedSignatureAlgorithmForPublicKeyContext(_) => F::BadChainSignature,
        W::RequiredEkuNotFoundContext(_) | W::EmptyEkuExtension => F::WrongPurpose,
        W::CaUsedAsEndEntity => F::CaAsEndEntity,
        W::NameConstraintViolation
        | W::PathLenConstraintViolated
        | W::EndEntityUsedAsCa
        | W::InvalidCertValidity
        | W::InvalidNetworkMaskConstraint
        | W::MalformedNameConstraint
        | W::MaximumNameConstraintComparisonsExceeded => F::ConstraintViolated,
        W::UnsupportedSignatureAlgorithmContext(context) => {
            F::UnsupportedAlgorithm(bounded(&context.signature_algorithm_id))
        }
        W::UnsupportedCriticalExtension => F::UnsupportedExtension,
        W::UnsupportedCertVersion => F::UnsupportedVersion,
        W::MaximumPathBuildCallsExceeded | W::MaximumSignatureChecksExceeded => F::TooManyVerifications,
        // Whatever else webpki reports, it reports of bytes that RFC 5280 does not allow.
        _ => F::BadEncoding,
    }
}

/// An AlgorithmIdentifier for an error, without its header. It is empty if it is too long.
pub(super) fn bounded(algorithm: &[u8]) -> Vec<u8> {
    if algorithm.len() > MAX_ALGORITHM { Vec::new() } else { algorithm.to_vec() }
}

/// The fault of a trust anchor or a CRL of this side.
pub(super) const fn of_own(error: &W) -> &'static str {
    match error {
        W::UnsupportedCriticalExtension => "it has a critical extension that Dunlin does not support",
        W::UnsupportedCertVersion => "it is not a certificate of X.509 version 3",
        W::UnsupportedCrlVersion => "it is not of version 2",
        W::UnsupportedDeltaCrl => "it is a delta CRL, which Dunlin does not support: give the complete CRL",
        W::UnsupportedIndirectCrl => {
            "it is an indirect CRL, which Dunlin does not support: give the CRL of each issuer"
        }
        W::UnsupportedRevocationReasonsPartitioning => {
            "it covers only some reasons (onlySomeReasons), which Dunlin does not support: give a CRL for all reasons"
        }
        W::UnsupportedCrlIssuingDistributionPoint => {
            "its issuingDistributionPoint has no full name, which Dunlin does not support: give a CRL for all certificates"
        }
        W::UnsupportedRevocationReason => "an entry has an unknown reason",
        W::InvalidCrlNumber => "its CRL number is invalid",
        W::InvalidSerialNumber => "it has an invalid serial number",
        W::SignatureAlgorithmMismatch => "it names two different signature algorithms",
        _ => "it is damaged",
    }
}

/// Finds the certificate of `chain` whose notBefore or notAfter, as `limit` selects, is `limit_s`.
fn out_of_date(chain: &[CertificateDer<'_>], limit_s: u64, limit: impl Fn((u64, u64)) -> u64) -> OutOfDate {
    let index = chain.iter().position(|c| dates(c).map(&limit) == Some(limit_s));
    let certificate = index.and_then(|i| chain.get(i)).and_then(|c| EndEntityCert::try_from(c).ok());
    OutOfDate { index, common_name: certificate.and_then(|c| common_name(c.subject())), limit_s }
}

/// Unwraps a name that webpki displays as `DnsName("localhost")`.
fn plain(name: &str) -> String {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
    inner.trim_matches('"').to_string()
}
