//! The choice of the credential for this peer: the first of ours that it can verify.

use alloc::vec::Vec;

use pki_types::SignatureVerificationAlgorithm;

use super::Credential;
use super::x509::{names, signature_algorithm};
use crate::crypto::SignatureAlgorithms;
use crate::error::PeerIncompatible;
use crate::wire::{CertificateType, SignatureScheme, What};

/// What the peer can verify.
pub(crate) struct Wanted<'a> {
    pub(crate) types: &'a [CertificateType],
    pub(crate) schemes: &'a [SignatureScheme],
    /// Which of them may sign here.
    pub(crate) allows: &'a dyn Fn(SignatureScheme) -> bool,
    /// What it verifies in chains, if it said that separately.
    pub(crate) chain_schemes: Option<&'a [SignatureScheme]>,
    /// The names of its anchors, in DER; none says nothing.
    pub(crate) authorities: &'a [Vec<u8>],
}

/// The credential to use, and how to sign with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Its place among ours.
    pub(crate) index: usize,
    pub(crate) scheme: SignatureScheme,
}

/// Why a client has nothing to show to this server. The alert of RFC 7250 §4.2 is the server's, who finds no common type.
pub(crate) fn nothing_to_show(why: PeerIncompatible) -> PeerIncompatible {
    match why {
        PeerIncompatible::CertificateType { .. } => PeerIncompatible::NoCredential(What::NoneOfType),
        why => why,
    }
}

/// The credential to use, and how to sign with it. If none suits, the error is the reason for the last one.
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

/// The place of the credential whose key decrypts what the peer encrypts for it: no signature is made with it.
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

/// The place of the best credential that suits, and what `suits` says of it. A chain that the peer said it can verify goes
/// before one that it may not know (RFC 8446 §4.4.2.2), and one that leads to an anchor that it named before one that does not.
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

/// Whether every signature of the chain is of `algorithms`. That of a certificate on itself is not verified
/// (RFC 8446 §4.2.3).
fn is_verifiable(credential: &Credential, algorithms: &[&dyn SignatureVerificationAlgorithm]) -> bool {
    let Credential::X509 { chain, .. } = credential else { return true };
    chain.iter().all(|certificate| {
        let algorithm = signature_algorithm(certificate);
        let is_self_signed = names(certificate).is_some_and(|(issuer, subject)| issuer == subject);
        is_self_signed || algorithms.iter().any(|a| Some(&*a.signature_alg_id()) == algorithm)
    })
}

/// Whether it leads to an anchor that the peer named, or the peer names none.
fn leads_to(credential: &Credential, authorities: &[Vec<u8>]) -> bool {
    authorities.is_empty() || is_named(credential, authorities)
}

/// Whether the peer names an issuer of its chain; a raw key has none.
fn is_named(credential: &Credential, authorities: &[Vec<u8>]) -> bool {
    let Credential::X509 { chain, .. } = credential else { return true };
    let issued_by_one = |certificate: &[u8]| {
        names(certificate).is_some_and(|(issuer, _)| authorities.iter().any(|name| name.ends_with(issuer)))
    };
    chain.iter().any(|certificate| issued_by_one(certificate))
}
