//! Static RSA: the client encrypts the secret with the server's RSA key (RFC 5246 §7.4.7.1). There is no
//! forward secrecy.
//!
//! This module adds and removes the padding; the cryptographic library only does raw RSA. A server whose
//! answer or timing depends on the padding is an oracle: attackers can decrypt recorded handshakes and forge
//! signatures with it (Bleichenbacher 1998, ROBOT 2017). To avoid that, this server continues after any error
//! with a random secret, and the handshake fails as it does with a wrong Finished.

use alloc::vec::Vec;

use pki_types::SubjectPublicKeyInfoDer;
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use zeroize::Zeroizing;

use super::Premaster;
use crate::crypto::{CryptoError, RsaDecryption, RsaEncryption, SecureRandom};
use crate::error::{Error, PeerMisbehaved};
use crate::wire::{Field, ProtocolVersion};

/// The length of the secret, in bytes: 2 for the version that the client offered and 46 random ones.
const SECRET_LEN: usize = 48;
/// The shortest padding, in bytes: 00 02, eight nonzero bytes, 00 (RFC 8017 §7.2.1).
const PADDING_LEN: usize = 11;

/// A new secret, and its encryption to the server's key in `spki`. `version` is the client's legacy_version,
/// with which the secret begins.
pub(super) fn encrypt(
    rsa: &dyn RsaEncryption,
    spki: &SubjectPublicKeyInfoDer<'_>,
    version: ProtocolVersion,
    random: &dyn SecureRandom,
) -> Result<(Vec<u8>, Premaster), Error> {
    let unfit = PeerMisbehaved::IllegalParameter(Field::KeyCannotEncrypt);
    let key = rsa.public_key(spki).map_err(|_| unfit.clone())?;
    let padding_len = key.modulus_len().checked_sub(SECRET_LEN).filter(|len| *len >= PADDING_LEN);
    let mut block = padding(random, padding_len.ok_or(unfit)?)?;
    let premaster = secret(random, version)?;
    block.extend_from_slice(&premaster);
    Ok((key.encrypt(&block)?, premaster))
}

/// The padding in front of a secret (RFC 8017 §7.2.1), with room for the secret.
fn padding(random: &dyn SecureRandom, len: usize) -> Result<Zeroizing<Vec<u8>>, CryptoError> {
    // Allocated at full size: a vector that grows copies its bytes and leaves the old ones in memory.
    let mut block = Zeroizing::new(Vec::with_capacity(len + SECRET_LEN));
    block.extend_from_slice(&[0, 2]);
    while block.len() < len - 1 {
        let mut bytes = Zeroizing::new(alloc::vec![0; len - 1 - block.len()]);
        random.fill(&mut bytes)?;
        block.extend(bytes.iter().filter(|b| **b != 0));
    }
    block.push(0);
    Ok(block)
}

/// A new secret.
fn secret(random: &dyn SecureRandom, version: ProtocolVersion) -> Result<Premaster, CryptoError> {
    let mut secret = Zeroizing::new(alloc::vec![0; SECRET_LEN]);
    random.fill(&mut secret)?;
    for (to, from) in secret.iter_mut().zip(version.0.to_be_bytes()) {
        *to = from;
    }
    Ok(secret)
}

/// The client's secret if padding and version are right, otherwise a random one. No caller or observer can
/// tell which it is. `version` is the legacy_version of the ClientHello, with which the secret must begin.
pub(super) fn decrypt(
    key: &dyn RsaDecryption,
    ciphertext: &[u8],
    version: ProtocolVersion,
    random: &dyn SecureRandom,
) -> Result<Premaster, CryptoError> {
    // RFC 5246 §7.4.7.1: the random secret is generated always, before decryption.
    let random_secret = secret(random, version)?;
    // The library rejects only a ciphertext that is too long or too large for the key. An observer sees that
    // anyway. Zeros are invalid padding, so the random secret is used.
    let block = key.decrypt(ciphertext);
    let block = block.unwrap_or_else(|_| Zeroizing::new(alloc::vec![0; key.modulus_len()]));
    Ok(select(&block, version, &random_secret))
}

/// The secret after the padding in `block`, or `random_secret` if the padding or the version is wrong. Takes
/// constant time for blocks of equal length.
fn select(block: &[u8], version: ProtocolVersion, random_secret: &[u8]) -> Premaster {
    let Some((padding, secret)) = block.split_last_chunk::<SECRET_LEN>() else {
        return Zeroizing::new(random_secret.to_vec());
    };
    let version = version.0.to_be_bytes();
    let is_good = is_padding(padding)
        & secret.iter().zip(version).fold(Choice::from(1), |good, (a, b)| good & a.ct_eq(&b));
    let choose = |(theirs, random_secret): (&u8, &u8)| u8::conditional_select(random_secret, theirs, is_good);
    Zeroizing::new(secret.iter().zip(random_secret).map(choose).collect())
}

/// Whether `bytes` are 00 02, at least eight nonzero bytes, and 00.
fn is_padding(bytes: &[u8]) -> Choice {
    let [first, second, nonzero @ .., last] = bytes else { return Choice::from(0) };
    let is_long_enough = Choice::from(u8::from(bytes.len() >= PADDING_LEN));
    let has_no_zero = nonzero.iter().fold(Choice::from(1), |good, byte| good & !byte.ct_eq(&0));
    first.ct_eq(&0) & second.ct_eq(&2) & has_no_zero & last.ct_eq(&0) & is_long_enough
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION: ProtocolVersion = ProtocolVersion::TLS1_2;

    /// A block as a client builds it for a modulus of `len` bytes.
    fn block(len: usize) -> Vec<u8> {
        let mut block = alloc::vec![0xa5; len - SECRET_LEN];
        (block[0], block[1], block[len - SECRET_LEN - 1]) = (0, 2, 0);
        block.extend_from_slice(&[3, 3]);
        block.extend(2..SECRET_LEN as u8);
        block
    }

    const NOBODYS: [u8; SECRET_LEN] = [0xee; SECRET_LEN];

    #[test]
    fn a_valid_block_yields_its_secret() {
        for len in [SECRET_LEN + PADDING_LEN, 64, 128, 256, 512] {
            let block = block(len);
            assert_eq!(*select(&block, VERSION, &NOBODYS), block[len - SECRET_LEN..]);
            // RFC 5246 §7.4.7.1: the version is the ClientHello's.
            assert_eq!(*select(&block, ProtocolVersion::TLS1_3, &NOBODYS), NOBODYS);
        }
    }

    #[test]
    fn an_invalid_block_yields_the_random_secret() {
        for len in [64, 256] {
            let good = block(len);
            let separator = len - SECRET_LEN - 1;
            let edited = |at: usize, to: u8| {
                let mut block = good.clone();
                block[at] = to;
                block
            };
            let mut bad = alloc::vec![
                edited(0, 1),
                edited(1, 1),
                edited(1, 0),
                edited(separator, 1),
                // The version.
                edited(separator + 1, 2),
                edited(separator + 2, 2),
                edited(separator + 2, 4),
                alloc::vec![0; len],
                // The key is too short for the padding.
                block(SECRET_LEN + PADDING_LEN - 1),
                alloc::vec![0; SECRET_LEN],
                Vec::new(),
            ];
            // A zero that ends the padding too early, so that the secret would be too long.
            bad.extend((2..separator).map(|at| edited(at, 0)));
            for block in bad {
                assert_eq!(*select(&block, VERSION, &NOBODYS), NOBODYS, "{block:02x?}");
            }
        }
    }

    #[derive(Debug)]
    struct Counting(core::sync::atomic::AtomicU8);

    impl SecureRandom for Counting {
        fn fill(&self, buf: &mut [u8]) -> Result<(), CryptoError> {
            buf.iter_mut().for_each(|b| *b = self.0.fetch_add(1, core::sync::atomic::Ordering::Relaxed));
            Ok(())
        }
    }

    #[test]
    fn removes_the_padding_that_it_adds() {
        // The random bytes include zeros, which the padding must skip.
        let random = Counting(200.into());
        for len in [64, 256, 512] {
            let mut block = padding(&random, len - SECRET_LEN).unwrap();
            let secret = secret(&random, VERSION).unwrap();
            block.extend_from_slice(&secret);
            assert_eq!(block.len(), len);
            assert_eq!(*select(&block, VERSION, &NOBODYS), *secret);
        }
    }
}
