//! The choice of a credential that the peer can verify.

use alloc::vec::Vec;

use pki_types::SignatureVerificationAlgorithm;
use webpki::EndEntityCert;

use super::certificate::{names, signature_algorithm};
use super::verifier::KeyUse;
use super::x509;
use super::{Credential, VerifiableCredential};
use crate::crypto::SignatureAlgorithms;
use crate::error::PeerIncompatible;
use crate::wire::{CertificateType, DidMethod, Field, SignatureScheme};

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
    /// The name that the client wants to reach, if it is the one who chooses among certificates of a server.
    pub(crate) server_name: Option<&'a str>,
    /// The methods of decentralised identifiers that the peer resolves.
    pub(crate) did_methods: &'a [DidMethod],
    /// Whether the credential will travel in messages of its own.
    pub(crate) by_messages: bool,
}

impl Wanted<'_> {
    /// Whether the peer accepts SHA-1 in chains.
    fn names_sha1(&self) -> bool {
        /// rsa_pkcs1_sha1 and ecdsa_sha1 (RFC 8446 §4.2.3).
        const SHA1: [SignatureScheme; 2] = [SignatureScheme(0x0201), SignatureScheme(0x0203)];
        self.chain_schemes.unwrap_or(self.schemes).iter().any(|scheme| SHA1.contains(scheme))
    }
}

/// The chosen credential and its signature scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// The credential's index in the profile.
    pub(crate) index: usize,
    pub(crate) scheme: SignatureScheme,
    /// Whether it travels in messages of its own (VC, DID), and not in a Certificate.
    pub(crate) by_messages: bool,
}

/// The reason why a client has no credential for this server. RFC 7250 §4.2 gives an alert for a missing
/// common type to servers only, so a client reports another reason.
pub(crate) fn nothing_to_show(why: PeerIncompatible) -> PeerIncompatible {
    match why {
        PeerIncompatible::CertificateType { .. } => PeerIncompatible::NoCredential(Field::NoneOfType),
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
    let (index, scheme) = best(signatures, credentials, reserved, wanted, KeyUse::Sign, scheme)?;
    Ok(Choice { index, scheme, by_messages: wanted.by_messages })
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
        None => Err(PeerIncompatible::NoCredential(Field::NoneDecrypts)),
    };
    best(signatures, credentials, reserved, wanted, KeyUse::Encrypt, decrypts).map(|(index, ())| index)
}

/// The index of the best suitable credential, and the result of `suits` for it. Chains that the peer can
/// verify come first (RFC 8446 §4.4.2.2), then certificates with the name that the client wants, then chains
/// that lead to a trust anchor that the peer named. Among equals it is the first. Raw keys and decentralised
/// identities name no server, so they are equal to the certificate with the best name.
fn best<T>(
    signatures: SignatureAlgorithms,
    credentials: &[Credential],
    reserved: &[usize],
    wanted: &Wanted<'_>,
    usage: KeyUse,
    suits: impl Fn(&Credential) -> Result<T, PeerIncompatible>,
) -> Result<(usize, T), PeerIncompatible> {
    let mut reason = PeerIncompatible::NoCredential(Field::NoneAtAll);
    let mut suitable = Vec::new();
    for (index, credential) in credentials.iter().enumerate() {
        if !wanted.types.contains(&credential.certificate_type()) {
            let mut ours: Vec<_> = credentials.iter().map(Credential::certificate_type).collect();
            ours.dedup();
            reason = PeerIncompatible::CertificateType { ours, theirs: wanted.types.to_vec() };
            continue;
        }
        if credential.did_method().is_some_and(|method| !wanted.did_methods.contains(&method)) {
            reason = PeerIncompatible::NoCredential(Field::NoneOfDidMethod);
            continue;
        }
        if reserved.contains(&index) && !is_named(credential, wanted.authorities) {
            reason = PeerIncompatible::NoCredential(Field::NoneOfAuthority);
            continue;
        }
        // RFC 9846 §4.5.1.2: keyUsage, if the certificate has it, must allow what the key does.
        if !allows(credential, usage) {
            reason = PeerIncompatible::NoCredential(Field::NoneOfUsage);
            continue;
        }
        // RFC 9846 §4.5.1.2: a side sends no chain with SHA-1 to a peer that does not name SHA-1.
        if has_sha1(credential) && !wanted.names_sha1() {
            reason = PeerIncompatible::NoCredential(Field::NoneWithoutSha1);
            continue;
        }
        let use_of_it = match suits(credential) {
            Ok(use_of_it) => use_of_it,
            Err(why) => {
                reason = why;
                continue;
            }
        };
        suitable.push((index, credential, use_of_it));
    }
    let candidates: Vec<_> = suitable.iter().map(|(_, credential, _)| *credential).collect();
    let Some(at) = first_of_best(signatures, &candidates, wanted) else { return Err(reason) };
    let (index, _, use_of_it) = suitable.swap_remove(at);
    Ok((index, use_of_it))
}

/// The position of the credential that suits the peer best, of several that it accepts: see [`best`].
pub(crate) fn first_of_best(
    signatures: SignatureAlgorithms,
    candidates: &[&Credential],
    wanted: &Wanted<'_>,
) -> Option<usize> {
    // Most sides have one credential for a peer, which needs no comparison.
    if candidates.len() < 2 {
        return candidates.len().checked_sub(1);
    }
    let in_chains = signatures.for_chains(wanted.chain_schemes.unwrap_or(wanted.schemes));
    let naming = |credential: &Credential| wanted.server_name.and_then(|name| names_server(credential, name));
    let best_naming = candidates.iter().filter_map(|credential| naming(credential)).max();
    let rank = |credential: &Credential| {
        let is_certificate = matches!(credential, Credential::X509 { .. });
        let naming = if is_certificate { naming(credential) } else { best_naming };
        (is_verifiable(credential, &in_chains), naming, leads_to(credential, wanted.authorities))
    };
    // Of equal elements, the last one that `rev` gives.
    candidates.iter().enumerate().rev().max_by_key(|(_, credential)| rank(credential)).map(|(at, _)| at)
}

/// How a certificate names a server. Of two certificates, the one that names it exactly suits better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Naming {
    /// `*.example.org` names `a.example.org`.
    Wildcard,
    Exact,
}

/// How the leaf's dNSNames name this server; `None` if they do not.
fn names_server(credential: &Credential, name: &str) -> Option<Naming> {
    let Credential::X509 { chain, .. } = credential else { return None };
    let leaf = EndEntityCert::try_from(chain.first()?).ok()?;
    // RFC 6066 §3 has the name without the final dot of a DNS name; a client that sends one means the same.
    let name = name.strip_suffix('.').unwrap_or(name);
    let parent = name.split_once('.').map(|(_, parent)| parent);
    let naming = |pattern: &str| {
        // RFC 9525 §6.3: a wildcard is the whole first label and stands for one label.
        let is_covered =
            pattern.strip_prefix("*.").zip(parent).is_some_and(|(p, parent)| p.eq_ignore_ascii_case(parent));
        if pattern.eq_ignore_ascii_case(name) {
            Some(Naming::Exact)
        } else {
            is_covered.then_some(Naming::Wildcard)
        }
    };
    leaf.valid_dns_names().filter_map(naming).max()
}

/// Whether the leaf allows this use of its key. A raw key has no such limit.
fn allows(credential: &Credential, usage: KeyUse) -> bool {
    let Credential::X509 { chain, .. } = credential else { return true };
    chain.first().is_none_or(|leaf| x509::allows(leaf, usage))
}

/// Whether SHA-1 signs a certificate of the chain that is not self-signed.
fn has_sha1(credential: &Credential) -> bool {
    /// sha1WithRSAEncryption (RFC 8017 §A.2.4).
    const RSA: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x05];
    /// ecdsa-with-SHA1 (RFC 3279 §2.2.3).
    const ECDSA: &[u8] = &[0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x01];
    let Credential::X509 { chain, .. } = credential else { return false };
    let sha1 = |algorithm: &[u8]| [RSA, ECDSA].iter().any(|id| algorithm.starts_with(id));
    chain
        .iter()
        .any(|certificate| !is_self_signed(certificate) && signature_algorithm(certificate).is_some_and(sha1))
}

fn is_self_signed(certificate: &[u8]) -> bool {
    names(certificate).is_some_and(|(issuer, subject)| issuer == subject)
}

/// Whether `algorithms` cover every signature of the chain. Peers do not verify the signature of a
/// self-signed certificate (RFC 8446 §4.2.3).
fn is_verifiable(credential: &Credential, algorithms: &[&dyn SignatureVerificationAlgorithm]) -> bool {
    let Credential::X509 { chain, .. } = credential else { return true };
    chain.iter().all(|certificate| {
        let algorithm = signature_algorithm(certificate);
        is_self_signed(certificate) || algorithms.iter().any(|a| Some(&*a.signature_alg_id()) == algorithm)
    })
}

/// Whether the credential leads to a trust anchor that the peer named, or the peer named none.
fn leads_to(credential: &Credential, authorities: &[Vec<u8>]) -> bool {
    authorities.is_empty() || is_named(credential, authorities)
}

/// Whether the peer named an issuer of the credential. A raw key has no issuer and always passes.
fn is_named(credential: &Credential, authorities: &[Vec<u8>]) -> bool {
    let chain = match credential {
        Credential::X509 { chain, .. } => chain,
        Credential::Verifiable { credential: VerifiableCredential { issuer: Some(issuer), .. }, .. } => {
            return authorities.iter().any(|name| name == issuer);
        }
        _ => return true,
    };
    let issued_by_one = |certificate: &[u8]| {
        names(certificate).is_some_and(|(issuer, _)| authorities.iter().any(|name| name.ends_with(issuer)))
    };
    chain.iter().any(|certificate| issued_by_one(certificate))
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::auth::PrivateKey;

    const SHA1_RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x05];
    const SHA256_RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x0b];

    fn element(tag: u8, content: &[&[u8]]) -> Vec<u8> {
        let content = content.concat();
        [&[tag, content.len() as u8], &*content].concat()
    }

    /// A certificate that contains what the choice looks at: names, the signature algorithm and keyUsage.
    fn certificate(issuer: &[u8], algorithm: &[u8], key_usage: Option<u8>) -> Vec<u8> {
        let algorithm = element(0x30, &[&element(0x06, &[algorithm])]);
        let usage = key_usage.map(|bits| {
            let value = element(0x04, &[&element(0x03, &[&[0, bits]])]);
            element(
                0xa3,
                &[&element(0x30, &[&element(0x30, &[&element(0x06, &[&[0x55, 0x1d, 0x0f]]), &value])])],
            )
        });
        let tbs = element(
            0x30,
            &[
                &element(0xa0, &[&element(0x02, &[&[2]])]),
                &element(0x02, &[&[1]]),
                &algorithm,
                &element(0x30, &[issuer]),
                &element(0x30, &[]),
                &element(0x30, &[b"subject"]),
                &element(0x30, &[]),
                &usage.unwrap_or_default(),
            ],
        );
        element(0x30, &[&tbs, &algorithm, &element(0x03, &[&[0]])])
    }

    fn choose(certificate: Vec<u8>, schemes: &[SignatureScheme]) -> Result<usize, PeerIncompatible> {
        let key = PrivateKey::Elsewhere {
            schemes: vec![SignatureScheme::RSA_PSS_RSAE_SHA256],
            label: "hardware".into(),
        };
        let credential = Credential::X509 { chain: vec![certificate.into()], key };
        let wanted = Wanted {
            types: &[CertificateType::X509],
            schemes,
            allows: &SignatureScheme::signs_handshakes,
            chain_schemes: None,
            authorities: &[],
            server_name: None,
            did_methods: &[],
            by_messages: false,
        };
        let signatures = SignatureAlgorithms { all: &[], schemes: &[] };
        select(signatures, &[credential], &[], &wanted).map(|choice| choice.index)
    }

    #[test]
    fn skips_a_certificate_whose_key_usage_forbids_signatures() {
        let pss = [SignatureScheme::RSA_PSS_RSAE_SHA256];
        let digital_signature = 0x80;
        let key_encipherment = 0x20;
        let of = |usage| choose(certificate(b"issuer", SHA256_RSA, usage), &pss);
        assert_eq!(of(None), Ok(0));
        assert_eq!(of(Some(digital_signature | key_encipherment)), Ok(0));
        assert_eq!(of(Some(key_encipherment)), Err(PeerIncompatible::NoCredential(Field::NoneOfUsage)));
    }

    #[test]
    fn sends_a_chain_with_sha1_only_to_peers_that_name_sha1() {
        let pss = SignatureScheme::RSA_PSS_RSAE_SHA256;
        let rsa_pkcs1_sha1 = SignatureScheme(0x0201);
        let of = |issuer: &[u8], schemes: &[_]| choose(certificate(issuer, SHA1_RSA, None), schemes);
        let refused = Err(PeerIncompatible::NoCredential(Field::NoneWithoutSha1));
        assert_eq!(of(b"issuer", &[pss]), refused);
        assert_eq!(of(b"issuer", &[pss, rsa_pkcs1_sha1]), Ok(0));
        // Peers do not verify the signature of a self-signed certificate.
        assert_eq!(of(b"subject", &[pss]), Ok(0));
    }
}
