//! The choice of a credential that the peer can verify.

use alloc::vec::Vec;

use pki_types::SignatureVerificationAlgorithm;

use super::Credential;
use super::x509::{names, signature_algorithm};
use crate::crypto::SignatureAlgorithms;
use crate::error::PeerIncompatible;
use crate::wire::{CertificateType, SignatureScheme, What};

/// The credentials that the peer accepts.
pub(crate) struct Wanted<'a> {
    pub(crate) types: &'a [CertificateType],
    pub(crate) schemes: &'a [SignatureScheme],
    /// Whether a scheme may sign in this handshake.
    pub(crate) allows: &'a dyn Fn(SignatureScheme) -> bool,
    /// The schemes that the peer accepts in chains, if it listed them separately.
    pub(crate) chain_schemes: Option<&'a [SignatureScheme]>,
    /// The names of the peer's trust anchors, in DER; empty if the peer sent none.
    pub(crate) authorities: &'a [Vec<u8>],
}

/// The chosen credential and its signature scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// The credential's index in the profile.
    pub(crate) index: usize,
    pub(crate) scheme: SignatureScheme,
}

/// The reason why a client has no credential for this server. RFC 7250 §4.2 gives an alert for a missing common type to
/// servers only, so a client reports another reason.
pub(crate) fn nothing_to_show(why: PeerIncompatible) -> PeerIncompatible {
    match why {
        PeerIncompatible::CertificateType { .. } => PeerIncompatible::NoCredential(What::NoneOfType),
        why => why,
    }
}

/// Chooses a credential and its signature scheme. If none suits, the error is the reason for the last one.
pub(crate) fn select(
    signatures: SignatureAlgorithms,
    credentials: &[Credential],
    reserved: &[usize],
    wanted: &Wanted<'_>,
) -> Result<Choice, PeerIncompatible> {
    let scheme = |credential: &Credential| {
        let mut schemes = credential.key().schemes().iter().copied();
        schemes
            .find(|s| (wanted.allows)(*s) && wanted.schemes.contains(s))
            .ok_or(PeerIncompatible::SignatureScheme)
    };
    let (index, scheme) = best(signatures, credentials, reserved, wanted, scheme)?;
    Ok(Choice { index, scheme })
}

/// Chooses a credential whose key decrypts, for RSA key exchange, and gives its index.
pub(crate) fn select_decrypting(
    signatures: SignatureAlgorithms,
    credentials: &[Credential],
    reserved: &[usize],
    wanted: &Wanted<'_>,
) -> Result<usize, PeerIncompatible> {
    let decrypts = |credential: &Credential| match credential.key().decryption() {
        Some(_) => Ok(()),
        None => Err(PeerIncompatible::NoCredential(What::NoneDecrypts)),
    };
    best(signatures, credentials, reserved, wanted, decrypts).map(|(index, ())| index)
}

/// The index of the best suitable credential, and the result of `suits` for it. Chains that the peer can verify come first
/// (RFC 8446 §4.4.2.2), then chains that lead to a trust anchor that the peer named.
fn best<T>(
    signatures: SignatureAlgorithms,
    credentials: &[Credential],
    reserved: &[usize],
    wanted: &Wanted<'_>,
    suits: impl Fn(&Credential) -> Result<T, PeerIncompatible>,
) -> Result<(usize, T), PeerIncompatible> {
    let in_chains = signatures.for_chains(wanted.chain_schemes.unwrap_or(wanted.schemes));
    let mut reason = PeerIncompatible::NoCredential(What::NoneAtAll);
    let mut best = None;
    for (index, credential) in credentials.iter().enumerate() {
        if !wanted.types.contains(&credential.certificate_type()) {
            let mut ours: Vec<_> = credentials.iter().map(Credential::certificate_type).collect();
            ours.dedup();
            reason = PeerIncompatible::CertificateType { ours, theirs: wanted.types.to_vec() };
            continue;
        }
        if reserved.contains(&index) && !is_named(credential, wanted.authorities) {
            reason = PeerIncompatible::NoCredential(What::NoneOfAuthority);
            continue;
        }
        let use_of_it = match suits(credential) {
            Ok(use_of_it) => use_of_it,
            Err(why) => {
                reason = why;
                continue;
            }
        };
        let rank = (is_verifiable(credential, &in_chains), leads_to(credential, wanted.authorities));
        if best.as_ref().is_none_or(|(best, _)| rank > *best) {
            best = Some((rank, (index, use_of_it)));
        }
    }
    best.map(|(_, choice)| choice).ok_or(reason)
}

/// Whether `algorithms` cover every signature of the chain. Peers do not verify the signature of a self-signed
/// certificate (RFC 8446 §4.2.3).
fn is_verifiable(credential: &Credential, algorithms: &[&dyn SignatureVerificationAlgorithm]) -> bool {
    let Credential::X509 { chain, .. } = credential else { return true };
    chain.iter().all(|certificate| {
        let algorithm = signature_algorithm(certificate);
        let is_self_signed = names(certificate).is_some_and(|(issuer, subject)| issuer == subject);
        is_self_signed || algorithms.iter().any(|a| Some(&*a.signature_alg_id()) == algorithm)
    })
}

/// Whether the credential leads to a trust anchor that the peer named, or the peer named none.
fn leads_to(credential: &Credential, authorities: &[Vec<u8>]) -> bool {
    authorities.is_empty() || is_named(credential, authorities)
}

/// Whether the peer named an issuer of the credential's chain. A raw key has no issuer and always passes.
fn is_named(credential: &Credential, authorities: &[Vec<u8>]) -> bool {
    let Credential::X509 { chain, .. } = credential else { return true };
    let issued_by_one = |certificate: &[u8]| {
        names(certificate).is_some_and(|(issuer, _)| authorities.iter().any(|name| name.ends_with(issuer)))
    };
    chain.iter().any(|certificate| issued_by_one(certificate))
}
