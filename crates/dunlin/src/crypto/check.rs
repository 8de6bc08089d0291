//! The consistency check of a provider. It runs when a configuration is built, so that no handshake meets a
//! faulty provider.

use super::{Aead, CryptoProvider, Hash, HashAlgorithm, KeyExchangeGroup, MAX_TAG_LEN, NONCE_LEN};
use crate::wire::Field;

/// The fault that the check found in a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProviderFault {
    /// A part that every handshake needs is missing.
    Missing(Field),
    /// A table contains the same number twice.
    Duplicate(Field),
    /// A hash does not give the standard's answer.
    Hash(HashAlgorithm),
    /// An AEAD cannot open its own output, or accepts a forgery.
    Aead(super::AeadAlgorithm),
    /// The two sides of a key exchange in this group do not agree on a secret.
    Group(crate::wire::NamedGroup),
    /// The random source fails or repeats itself.
    Random,
}

impl core::error::Error for ProviderFault {}

pub(super) fn check(provider: &CryptoProvider) -> Result<(), ProviderFault> {
    let mut a = [0u8; 32];
    let mut b = [0u8; 32];
    provider.random.fill(&mut a).map_err(|_| ProviderFault::Random)?;
    provider.random.fill(&mut b).map_err(|_| ProviderFault::Random)?;
    if a == b {
        return Err(ProviderFault::Random);
    }
    if provider.sha256.algorithm() != HashAlgorithm::Sha256 {
        return Err(ProviderFault::Missing(Field::Sha256));
    }
    hash(provider.sha256)?;
    if provider.cipher_suites.is_empty() {
        return Err(ProviderFault::Missing(Field::CipherSuite));
    }
    for (i, suite) in provider.cipher_suites.iter().enumerate() {
        if provider.cipher_suites.iter().skip(i + 1).any(|s| s.id == suite.id) {
            return Err(ProviderFault::Duplicate(Field::CipherSuite));
        }
        works(suite.hash, suite.aead)?;
    }
    for (i, group) in provider.groups.iter().enumerate() {
        if provider.groups.iter().skip(i + 1).any(|g| g.name() == group.name()) {
            return Err(ProviderFault::Duplicate(Field::Group));
        }
        agrees(provider, *group)?;
    }
    Ok(())
}

/// Checks the hash and the AEAD of a cipher suite.
pub(super) fn works(of: &dyn Hash, with: &dyn Aead) -> Result<(), ProviderFault> {
    hash(of)?;
    aead(with)
}

/// Checks that both sides of a key exchange agree on a secret, and that a hybrid's component works with its
/// own group.
pub(super) fn agrees(provider: &CryptoProvider, group: &dyn KeyExchangeGroup) -> Result<(), ProviderFault> {
    let fault = ProviderFault::Group(group.name());
    let initiator = group.start(&*provider.random).map_err(|_| fault.clone())?;
    let (share, ours) = group.respond(&*provider.random, initiator.share()).map_err(|_| fault.clone())?;
    let is_hybrid = initiator.component().is_some();
    let theirs = initiator.complete(&share).map_err(|_| fault.clone())?;
    if ours.as_bytes() != theirs.as_bytes() || ours.as_bytes().is_empty() {
        return Err(fault);
    }
    if is_hybrid { component(provider, group).ok_or(fault) } else { Ok(()) }
}

/// Completes the component of a hybrid with the provider's group of the same name; `None` if the secrets
/// differ.
fn component(provider: &CryptoProvider, hybrid: &dyn KeyExchangeGroup) -> Option<()> {
    let initiator = hybrid.start(&*provider.random).ok()?;
    let Some((name, share)) = initiator.component() else { return Some(()) };
    let Some(group) = provider.group(name) else { return Some(()) };
    let (share, ours) = group.respond(&*provider.random, share).ok()?;
    let theirs = initiator.complete_component(&share).ok()?;
    (ours.as_bytes() == theirs.as_bytes()).then_some(())
}

/// Compares with the first eight bytes of known answers: "abc" (FIPS 180-4 examples) and HMAC test case 2 of
/// RFC 4231.
fn hash(hash: &dyn Hash) -> Result<(), ProviderFault> {
    let (plain, mac) = match hash.algorithm() {
        HashAlgorithm::Sha256 => (0xba78_16bf_8f01_cfea_u64, 0x5bdc_c146_bf60_754e_u64),
        HashAlgorithm::Sha384 => (0xcb00_753f_45a3_5e8b, 0xaf45_d2e3_7648_4031),
    };
    let mut context = hash.start();
    context.update(b"a");
    let fork = context.fork();
    context.update(b"bc");
    let len = hash.algorithm().output_len();
    let whole = hash.hash(&[b"ab", b"c"]);
    let tag = hash.hmac(b"Jefe").sign(&[b"what do ya want ", b"for nothing?"]);
    let ok = whole.as_ref().len() == len
        && whole.as_ref().starts_with(&plain.to_be_bytes())
        && context.current().as_ref() == whole.as_ref()
        && fork.current().as_ref() == hash.hash(&[b"a"]).as_ref()
        && tag.as_ref().len() == len
        && tag.as_ref().starts_with(&mac.to_be_bytes());
    if ok { Ok(()) } else { Err(ProviderFault::Hash(hash.algorithm())) }
}

fn aead(aead: &dyn Aead) -> Result<(), ProviderFault> {
    let algorithm = aead.algorithm();
    let fault = ProviderFault::Aead(algorithm);
    let key_bytes = [7u8; super::MAX_KEY_LEN];
    let key_bytes = key_bytes.get(..algorithm.key_len()).ok_or(fault.clone())?;
    let key = aead.key(key_bytes).map_err(|_| fault.clone())?;
    aead.record_number_key(key_bytes).map_err(|_| fault.clone())?;
    let nonce = [3u8; NONCE_LEN];
    let mut data = *b"travel light";
    let mut tag = [0u8; MAX_TAG_LEN];
    let tag = tag.get_mut(..algorithm.tag_len()).ok_or(fault.clone())?;
    key.seal(&nonce, b"aad", &mut data, tag).map_err(|_| fault.clone())?;
    let sealed = data;
    let round_trip = key.open(&nonce, b"aad", &mut data, tag).is_ok() && data == *b"travel light";
    let mut forged = sealed;
    let forgery = key.open(&nonce, b"aae", &mut forged, tag).is_ok();
    if sealed != *b"travel light" && round_trip && !forgery { Ok(()) } else { Err(fault) }
}
