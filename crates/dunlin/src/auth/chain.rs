//! Finds the signed paths from a peer's certificate to a trust anchor, within limits that no peer can raise.
//! webpki then validates such a path, without a second verification of its signatures.
//!
//! webpki searches for paths, too, but a caller cannot bound that search: it verifies up to 100 signatures
//! and takes up to 200,000 steps. This search orders the candidates by their key identifiers, and verifies a
//! signature only where the names lead to a trust anchor. A peer invents names and identifiers as it likes,
//! so they save work but never allow more.

use alloc::boxed::Box;
use alloc::vec::Vec;

use pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, SignatureVerificationAlgorithm, TrustAnchor,
};

use super::certificate::{authority_key_id, common_name, from_issuer, names, subject_key_id};
use super::der::tlv;
use super::failure::bounded;
use crate::crypto::Algorithms;
use crate::error::{AuthenticationFailure, ShortKey};

/// A trust anchor with the key identifier of its certificate, by which the engine chooses among trust anchors
/// with one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    pub(super) trust: TrustAnchor<'static>,
    /// subjectKeyIdentifier (RFC 5280 §4.2.1.2).
    pub(super) key_id: Option<Box<[u8]>>,
}

/// A trust anchor without a key identifier.
impl From<TrustAnchor<'static>> for Anchor {
    fn from(trust: TrustAnchor<'static>) -> Self {
        Self { trust, key_id: None }
    }
}

/// The shortest and the longest RSA key that the providers accept, in bits.
const MIN_RSA_BITS: usize = 2048;
const MAX_RSA_BITS: usize = 8192;

/// The most certificates beside the leaf that the search reads. A Certificate message has fewer.
const MAX_READ: usize = 64;

/// The most certificates of a peer that the search considers: a leaf, webpki's six CAs, and
/// cross-certificates of five of them.
const MAX_CERTIFICATES: usize = 12;

/// The most certificates with one subject and key identifier: a CA's own certificate and a cross-certificate
/// (RFC 5280 §3.2).
const MAX_OF_ONE_KEY: usize = 2;

/// The most signatures of a peer's certificates that this side verifies: the signatures of a leaf and
/// webpki's six CAs, and one with a wrong key.
const MAX_VERIFICATIONS: usize = 8;

/// The most CAs in a path, as in webpki.
const MAX_AUTHORITIES: usize = 6;

/// A certificate of the peer. Names and keys are without headers, as webpki stores them.
#[derive(Clone, Copy)]
struct Candidate<'c> {
    der: &'c [u8],
    issuer: &'c [u8],
    subject: &'c [u8],
    key: &'c [u8],
    signed: Signed<'c>,
}

/// The signed part of a certificate or CRL with its signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Signed<'c> {
    message: &'c [u8],
    /// The AlgorithmIdentifier without its header.
    pub(super) algorithm: &'c [u8],
    signature: &'c [u8],
}

impl<'c> Candidate<'c> {
    fn read(der: &'c [u8]) -> Option<Self> {
        let (issuer, subject) = names(der)?;
        let key = key(der)?;
        let signed = Signed::read(der)?;
        Some(Self { der, issuer, subject, key, signed })
    }

    fn key_id(&self) -> Option<&'c [u8]> {
        subject_key_id(self.der)
    }

    /// The order in which the search tries issuers of one name.
    fn rank(&self, key_id: Option<&[u8]>) -> u8 {
        match (authority_key_id(self.der), key_id) {
            (Some(wanted), Some(own)) if wanted == own => 0,
            (Some(_), Some(_)) => 2,
            _ => 1,
        }
    }
}

impl<'c> Signed<'c> {
    pub(super) fn read(certificate: &'c [u8]) -> Option<Self> {
        let (_, certificate, _) = tlv(certificate)?;
        let (_, _, rest) = tlv(certificate)?;
        let message = certificate.get(..certificate.len() - rest.len())?;
        let (_, algorithm, rest) = tlv(rest)?;
        Some(Self { message, algorithm, signature: bit_string(rest)? })
    }
}

/// A signature that the search has verified.
#[derive(Debug)]
struct Tried<'c> {
    signed: Signed<'c>,
    /// The AlgorithmIdentifier and the key in the issuer's SubjectPublicKeyInfo.
    key: (&'c [u8], &'c [u8]),
    is_valid: bool,
}

/// An algorithm for webpki that knows the signatures of the peer's certificates. It accepts those that the
/// search has found valid, and verifies nothing itself.
#[derive(Debug)]
struct Known<'s> {
    algorithm: &'static dyn SignatureVerificationAlgorithm,
    tried: &'s [Tried<'s>],
}

impl SignatureVerificationAlgorithm for Known<'_> {
    fn verify_signature(&self, key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        let signature_id = self.signature_alg_id();
        let key_id = self.public_key_alg_id();
        let signed = Signed { message, algorithm: signature_id.as_ref(), signature };
        let is_this = |tried: &&Tried<'_>| tried.signed == signed && tried.key == (key_id.as_ref(), key);
        if self.tried.iter().find(is_this).is_some_and(|tried| tried.is_valid) {
            Ok(())
        } else {
            Err(InvalidSignature)
        }
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.signature_alg_id()
    }
}

/// Validates a signed path: the CAs from the leaf upwards, the trust anchor, and the algorithms with which
/// webpki must check it.
pub(super) type Validate<'v> = &'v mut dyn FnMut(
    &[CertificateDer<'_>],
    &TrustAnchor<'_>,
    &[&dyn SignatureVerificationAlgorithm],
) -> Result<(), AuthenticationFailure>;

/// Searches for a signed path from the leaf of `chain` that `validate` accepts. Returns the key of the leaf's
/// issuer, a SubjectPublicKeyInfo without its header.
pub(super) fn search<'c>(
    algorithms: Algorithms<'c>,
    anchors: &'c [Anchor],
    chain: &'c [CertificateDer<'_>],
    validate: Validate<'_>,
) -> Result<&'c [u8], AuthenticationFailure> {
    let leaf = chain.first().ok_or(AuthenticationFailure::NoCertificate)?;
    let leaf = Candidate::read(leaf).ok_or(AuthenticationFailure::BadEncoding)?;
    let (candidates, is_cut) = candidates(&leaf, anchors, chain.get(1..).unwrap_or_default());
    let mut search = Search {
        algorithms,
        anchors,
        candidates,
        tried: Vec::new(),
        spared: Vec::new(),
        left: MAX_VERIFICATIONS,
        is_exhausted: false,
        is_too_deep: false,
        is_supported: false,
        unsupported: &[],
        failure: None,
    };
    if let Some(key) = search.walk(&mut Vec::from([leaf]), validate) {
        return Ok(key);
    }
    Err(match search {
        Search { is_exhausted: true, .. } => AuthenticationFailure::TooManyVerifications,
        _ if is_cut => AuthenticationFailure::TooManyCertificates,
        Search { failure: Some(failure), .. } => failure,
        // No name leads from the leaf to a trust anchor.
        Search { tried, .. } if tried.is_empty() => AuthenticationFailure::UnknownIssuer,
        Search { is_too_deep: true, .. } => AuthenticationFailure::ChainTooLong,
        Search { is_supported: false, unsupported, .. } => {
            AuthenticationFailure::UnsupportedAlgorithm(bounded(unsupported))
        }
        _ => bad_signature(anchors, chain),
    })
}

/// The certificates on a path of names from the leaf to a trust anchor, as far as the limits allow, and
/// whether some are left out.
fn candidates<'c>(
    leaf: &Candidate<'c>,
    anchors: &[Anchor],
    others: &'c [CertificateDer<'_>],
) -> (Vec<Candidate<'c>>, bool) {
    let all: Vec<_> = others.iter().take(MAX_READ).filter_map(|der| Candidate::read(der)).collect();
    let is_anchor = |name: &[u8]| anchors.iter().any(|anchor| *anchor.trust.subject == *name);
    let up = reachable(&all, &|c| c.subject == leaf.issuer, &|from, to| from.issuer == to.subject);
    let down = reachable(&all, &|c| is_anchor(c.issuer), &|from, to| from.subject == to.issuer);
    let mut kept = Vec::<Candidate<'_>>::new();
    let mut is_cut = others.len() > MAX_READ;
    for (_, candidate) in all.iter().enumerate().filter(|(i, _)| (up & down) >> i & 1 == 1) {
        if candidate.der == leaf.der || kept.iter().any(|other| other.der == candidate.der) {
            continue;
        }
        let is_same = |c: &&Candidate<'_>| c.subject == candidate.subject && c.key_id() == candidate.key_id();
        if kept.iter().filter(is_same).count() < MAX_OF_ONE_KEY && kept.len() + 1 < MAX_CERTIFICATES {
            kept.push(*candidate);
        } else {
            is_cut = true;
        }
    }
    (kept, is_cut)
}

/// The candidates that steps of `leads` reach from the candidates of `starts`, one bit for each of at most
/// [`MAX_READ`].
fn reachable(
    all: &[Candidate<'_>],
    starts: &dyn Fn(&Candidate<'_>) -> bool,
    leads: &dyn Fn(&Candidate<'_>, &Candidate<'_>) -> bool,
) -> u64 {
    let marks = |is_marked: &dyn Fn(&Candidate<'_>) -> bool| -> u64 {
        all.iter().enumerate().map(|(i, c)| u64::from(is_marked(c)) << i).sum()
    };
    let mut reached = marks(starts);
    let mut waiting = reached;
    while let Some(from) = all.get(waiting.trailing_zeros() as usize) {
        waiting &= waiting - 1;
        let new = marks(&|to| leads(from, to)) & !reached;
        reached |= new;
        waiting |= new;
    }
    reached
}

/// A depth-first search upwards from the leaf.
struct Search<'c> {
    algorithms: Algorithms<'c>,
    anchors: &'c [Anchor],
    candidates: Vec<Candidate<'c>>,
    tried: Vec<Tried<'c>>,
    /// Keys of this side's trust anchors whose verification did not count.
    spared: Vec<&'c [u8]>,
    /// The verifications that are left.
    left: usize,
    is_exhausted: bool,
    /// Whether a path has more CAs than webpki accepts.
    is_too_deep: bool,
    /// Whether this side supports the algorithm of some signature.
    is_supported: bool,
    /// The last algorithm that it does not support.
    unsupported: &'c [u8],
    /// The first reason why a signed path is invalid.
    failure: Option<AuthenticationFailure>,
}

impl<'c> Search<'c> {
    /// Extends `path`, which begins with the leaf. Returns the key of the leaf's issuer.
    fn walk(&mut self, path: &mut Vec<Candidate<'c>>, validate: Validate<'_>) -> Option<&'c [u8]> {
        let current = *path.last()?;
        let mut roots: Vec<_> =
            self.anchors.iter().filter(|anchor| *anchor.trust.subject == *current.issuer).collect();
        roots.sort_by_key(|root| current.rank(root.key_id.as_deref()));
        for (i, root) in roots.into_iter().enumerate() {
            let key = &*root.trust.subject_public_key_info;
            // The administrator chose the number of trust anchors with one name. So the wrong ones do not
            // count, each of them once.
            let is_spared = i > 0 && !self.spared.contains(&key);
            if is_spared {
                self.spared.push(key);
            }
            if self.is_signed(&current, key, is_spared) {
                match self.validate(path, root, validate) {
                    Ok(()) => return Some(path.get(1).map_or(key, |issuer| issuer.key)),
                    Err(failure) => drop(self.failure.get_or_insert(failure)),
                }
            }
        }
        // RFC 4158 §5.2: a path has each subject and key once.
        let is_new = |c: &Candidate<'_>| !path.iter().any(|p| p.subject == c.subject && p.key == c.key);
        let issuers = self.candidates.iter().filter(|c| c.subject == current.issuer && is_new(c));
        let mut issuers: Vec<_> = issuers.copied().collect();
        if path.len() > MAX_AUTHORITIES {
            self.is_too_deep |= !issuers.is_empty();
            return None;
        }
        issuers.sort_by_key(|issuer| current.rank(issuer.key_id()));
        for issuer in issuers {
            if self.is_signed(&current, issuer.key, false) {
                path.push(issuer);
                let found = self.walk(path, validate);
                path.pop();
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    /// Whether `key` has signed the certificate. Each signature is verified once. It counts unless it is
    /// spared.
    fn is_signed(&mut self, certificate: &Candidate<'c>, key: &'c [u8], is_spared: bool) -> bool {
        let Some((_, key_algorithm, rest)) = tlv(key) else { return false };
        let Some(bits) = bit_string(rest) else { return false };
        let signed = certificate.signed;
        let key = (key_algorithm, bits);
        if let Some(tried) = self.tried.iter().find(|tried| tried.signed == signed && tried.key == key) {
            return tried.is_valid && !self.is_exhausted;
        }
        let algorithm = algorithm(self.algorithms, &signed, key_algorithm);
        let is_valid = match (algorithm, is_spared || self.left > 0) {
            (Some(_), false) => {
                self.is_exhausted = true;
                return false;
            }
            (Some(algorithm), true) => {
                self.left -= usize::from(!is_spared);
                algorithm.verify_signature(bits, signed.message, signed.signature).is_ok()
            }
            (None, _) => false,
        };
        if self.algorithms.iter().any(|a| a.signature_alg_id().as_ref() == signed.algorithm) {
            self.is_supported = true;
        } else {
            self.unsupported = signed.algorithm;
        }
        self.tried.push(Tried { signed, key, is_valid });
        is_valid && !self.is_exhausted
    }

    fn validate(
        &self,
        path: &[Candidate<'c>],
        root: &Anchor,
        validate: Validate<'_>,
    ) -> Result<(), AuthenticationFailure> {
        let authorities: Vec<_> = path.iter().skip(1).map(|c| CertificateDer::from(c.der)).collect();
        let tried = &*self.tried;
        let known: Vec<_> =
            self.algorithms.iter().map(|algorithm| Known { algorithm: *algorithm, tried }).collect();
        let known: Vec<_> = known.iter().map(|known| known as &dyn SignatureVerificationAlgorithm).collect();
        validate(&authorities, &root.trust, &known)
    }
}

/// The algorithm of this signature for keys of this type.
fn algorithm<'a>(
    algorithms: Algorithms<'a>,
    signed: &Signed<'_>,
    key_algorithm: &[u8],
) -> Option<&'a dyn SignatureVerificationAlgorithm> {
    let mut signs = algorithms.iter().filter(|a| a.signature_alg_id().as_ref() == signed.algorithm);
    signs.find(|a| a.public_key_alg_id().as_ref() == key_algorithm).map(|algorithm| *algorithm as _)
}

/// Whether `key`, a SubjectPublicKeyInfo without its header, has made this signature. `None` if no algorithm
/// fits both.
pub(super) fn verifies(algorithms: Algorithms<'_>, key: &[u8], signed: &Signed<'_>) -> Option<bool> {
    let (_, key_algorithm, rest) = tlv(key)?;
    let algorithm = algorithm(algorithms, signed, key_algorithm)?;
    Some(algorithm.verify_signature(bit_string(rest)?, signed.message, signed.signature).is_ok())
}

/// The reason why no signature of a path verifies: an issuer's key is too short, or the signature is wrong.
fn bad_signature(anchors: &[Anchor], chain: &[CertificateDer<'_>]) -> AuthenticationFailure {
    let intermediates = chain.iter().skip(1).filter_map(|c| Some((names(c)?.1, key(c)?)));
    let is_issuer = |name: &[u8]| chain.iter().any(|c| names(c).is_some_and(|(issuer, _)| issuer == name));
    let anchors_of_chain = anchors
        .iter()
        .map(|a| (&*a.trust.subject, &*a.trust.subject_public_key_info))
        .filter(|(name, _)| is_issuer(name));
    let short = intermediates.chain(anchors_of_chain).find_map(|(name, key)| {
        let bits = short_rsa(key)?;
        Some(ShortKey { bits, common_name: common_name(name) })
    });
    match short {
        Some(short) => AuthenticationFailure::KeyTooShort(short),
        None => AuthenticationFailure::BadChainSignature,
    }
}

/// The length in bits of a too short RSA key; `None` for other keys. `key` is the SubjectPublicKeyInfo
/// without its header.
pub(super) fn short_rsa(key: &[u8]) -> Option<usize> {
    let (modulus, _) = rsa(key)?;
    let bits = bits(modulus);
    (1..MIN_RSA_BITS).contains(&bits).then_some(bits)
}

/// Whether the providers accept the numbers of an RSA key: an odd modulus of at most 8192 bits, and an odd
/// exponent from 3 on of at most 33 bits. `None` for other keys.
pub(super) fn is_usual_rsa(key: &[u8]) -> Option<bool> {
    let (modulus, exponent) = rsa(key)?;
    let is_odd = |number: &[u8]| number.last().is_some_and(|last| last & 1 == 1);
    let is_positive = |number: &[u8]| number.first().is_some_and(|first| first & 0x80 == 0);
    let sizes = (MIN_RSA_BITS..=MAX_RSA_BITS).contains(&bits(modulus)) && (2..=33).contains(&bits(exponent));
    Some(sizes && [modulus, exponent].iter().all(|number| is_odd(number) && is_positive(number)))
}

/// Modulus and exponent of an RSA key, each as the content of an INTEGER; `None` for other keys.
fn rsa(key: &[u8]) -> Option<(&[u8], &[u8])> {
    // The OBJECT IDENTIFIERs of PKCS #1 up to the last byte: 1 is rsaEncryption, 10 id-RSASSA-PSS (RFC 8017
    // §A).
    const PKCS1: &[u8] = &[6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1];
    let (_, algorithm, rest) = tlv(key)?;
    if !matches!(algorithm.strip_prefix(PKCS1)?, [1 | 10, ..]) {
        return None;
    }
    let (_, bits, _) = tlv(rest)?;
    let (_, sequence, _) = tlv(bits.get(1..)?)?;
    let (_, modulus, rest) = tlv(sequence)?;
    Some((modulus, tlv(rest)?.1))
}

/// The length of a number in bits.
fn bits(number: &[u8]) -> usize {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    number.get(zeros).map_or(0, |first| 8 * (number.len() - zeros) - first.leading_zeros() as usize)
}

/// The content of a BIT STRING with whole bytes.
fn bit_string(bytes: &[u8]) -> Option<&[u8]> {
    match tlv(bytes)? {
        (3, content, _) => content.strip_prefix(&[0]),
        _ => None,
    }
}

/// The SubjectPublicKeyInfo of a certificate without its header.
pub(super) fn key(certificate: &[u8]) -> Option<&[u8]> {
    let (_, _issuer, rest) = tlv(from_issuer(certificate)?)?;
    let (_, _validity, rest) = tlv(rest)?;
    let (_, _subject, rest) = tlv(rest)?;
    tlv(rest).map(|(_, key, _)| key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_short_rsa_and_rsa_pss_keys() {
        /// The last byte of the OID 1.2.840.113549.1.1.*: rsaEncryption, id-RSASSA-PSS,
        /// sha256WithRSAEncryption.
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
