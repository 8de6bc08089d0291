//! Finds out why a chain is invalid if webpki only reports a signature that does not verify.

use pki_types::{CertificateDer, TrustAnchor};

use super::der::tlv;
use super::verifier::Algorithms;
use super::x509::{common_name, names};
use crate::error::{AuthenticationFailure, ShortKey};

/// The shortest RSA key that the providers accept, in bits.
const MIN_RSA_BITS: usize = 2048;

/// The most signatures that the search verifies again: a chain with two keys for each of webpki's six CAs.
const MAX_SIGNATURES: usize = 12;

/// The reason: an issuer's key is too short, the chain violates a constraint, or the signature is really bad.
///
/// webpki prefers this report to all others. It also reports a bad signature if an issuer has two keys under one name (a
/// self-issued certificate, RFC 5280 §3.2) and the path through the right key violates a constraint.
pub(super) fn bad_signature(
    algorithms: Algorithms<'_>,
    anchors: &[TrustAnchor<'_>],
    chain: &[CertificateDer<'_>],
) -> AuthenticationFailure {
    let intermediates = chain.iter().skip(1).filter_map(|c| Some((names(c)?.1, key(c)?)));
    let is_issuer = |name: &[u8]| chain.iter().any(|c| names(c).is_some_and(|(issuer, _)| issuer == name));
    let anchors_of_chain = anchors
        .iter()
        .map(|a| (&*a.subject, &*a.subject_public_key_info))
        .filter(|(name, _)| is_issuer(name));
    let short = intermediates.chain(anchors_of_chain).find_map(|(name, key)| {
        let bits = short_rsa(key)?;
        Some(ShortKey { bits, common_name: common_name(name) })
    });
    match short {
        Some(short) => AuthenticationFailure::KeyTooShort(short),
        None if is_signed(algorithms, anchors, chain) == Some(true) => {
            AuthenticationFailure::ConstraintViolated
        }
        None => AuthenticationFailure::BadChainSignature,
    }
}

/// The length in bits of a too short RSA key; `None` for other keys. `key` is the SubjectPublicKeyInfo without its header.
pub(super) fn short_rsa(key: &[u8]) -> Option<usize> {
    // The OBJECT IDENTIFIERs of PKCS #1 up to the last byte: 1 is rsaEncryption, 10 id-RSASSA-PSS (RFC 8017 §A).
    const PKCS1: &[u8] = &[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1];
    let (_, algorithm, rest) = tlv(key)?;
    if !matches!(algorithm.strip_prefix(PKCS1)?, [1 | 10, ..]) {
        return None;
    }
    let (_, bits, _) = tlv(rest)?;
    let (_, sequence, _) = tlv(bits.get(1..)?)?;
    let (_, modulus, _) = tlv(sequence)?;
    let zeros = modulus.iter().take_while(|byte| **byte == 0).count();
    let first = modulus.get(zeros)?;
    let bits = 8 * (modulus.len() - zeros) - first.leading_zeros() as usize;
    (bits < MIN_RSA_BITS).then_some(bits)
}

/// Whether every signature from the leaf up to a trust anchor verifies with a key of its issuer.
fn is_signed(
    algorithms: Algorithms<'_>,
    anchors: &[TrustAnchor<'_>],
    chain: &[CertificateDer<'_>],
) -> Option<bool> {
    let (mut current, intermediates) = chain.split_first()?;
    let mut left = MAX_SIGNATURES;
    loop {
        let (issuer, _) = names(current)?;
        let mut verifies = |key: &[u8]| {
            left = left.checked_sub(1)?;
            verifies(algorithms, current, key)
        };
        if anchors.iter().any(|a| *a.subject == *issuer && verifies(&a.subject_public_key_info) == Some(true))
        {
            return Some(true);
        }
        let is_next =
            |c: &&CertificateDer<'_>| *c != current && names(c).is_some_and(|(_, subject)| subject == issuer);
        current =
            intermediates.iter().filter(is_next).find(|c| key(c).and_then(&mut verifies) == Some(true))?;
    }
}

/// Whether the signature of `certificate` verifies with `key`.
fn verifies(algorithms: Algorithms<'_>, certificate: &[u8], key: &[u8]) -> Option<bool> {
    let (_, certificate, _) = tlv(certificate)?;
    let (_, _, rest) = tlv(certificate)?;
    let signed = certificate.get(..certificate.len() - rest.len())?;
    let (_, signature_algorithm, rest) = tlv(rest)?;
    let signature = tlv(rest)?.1.get(1..)?;
    let (_, key_algorithm, rest) = tlv(key)?;
    let key = tlv(rest)?.1.get(1..)?;
    Some(algorithms.iter().any(|algorithm| {
        algorithm.signature_alg_id().as_ref() == signature_algorithm
            && algorithm.public_key_alg_id().as_ref() == key_algorithm
            && algorithm.verify_signature(key, signed, signature).is_ok()
    }))
}

/// The SubjectPublicKeyInfo of a certificate without its header.
fn key(certificate: &[u8]) -> Option<&[u8]> {
    let (_, _issuer, rest) = tlv(super::x509::from_issuer(certificate)?)?;
    let (_, _validity, rest) = tlv(rest)?;
    let (_, _subject, rest) = tlv(rest)?;
    tlv(rest).map(|(_, key, _)| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_short_rsa_and_rsa_pss_keys() {
        /// The last byte of the OID 1.2.840.113549.1.1.*: rsaEncryption, id-RSASSA-PSS, sha256WithRSAEncryption.
        const TYPES: [(u8, Option<usize>); 3] = [(1, Some(1024)), (10, Some(1024)), (11, None)];
        for (last, bits) in TYPES {
            let modulus = [&[2, 0x81, 0x81, 0, 0x80][..], &[1; 127]].concat();
            let key = [&[0x30, 0x81, 0x87][..], &modulus, &[2, 1, 3]].concat();
            let spki = [
                &[0x30, 11, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, last][..],
                &[3, 0x81, 0x8b, 0],
                &key,
            ]
            .concat();
            assert_eq!(short_rsa(&spki), bits, "{last}");
        }
    }
}
