//! A secret that the client makes and encrypts with the server's RSA key (RFC 5246 §7.4.7.1): no forward secrecy.
//!
//! The padding is put on and taken off here, whatever library decrypts. An answer that depends on it, if only by its time, is
//! an oracle that reads recorded handshakes and signs with the key (Bleichenbacher 1998, ROBOT 2017). There is none here:
//! whatever is wrong, the handshake goes on with a secret that nobody has, and ends as one with a wrong Finished does.

use alloc::vec::Vec;

use pki_types::SubjectPublicKeyInfoDer;
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use zeroize::Zeroizing;

use super::Premaster;
use crate::crypto::{CryptoError, RsaDecryption, RsaEncryption, SecureRandom};
use crate::error::{Error, PeerMisbehaved};
use crate::wire::{ProtocolVersion, What};

/// The length of the secret, in bytes: the version that the client offered, and 46 random ones.
const SECRET_LEN: usize = 48;
/// What the padding takes at least, in bytes: 00 02, eight that are not zero, 00 (RFC 8017 §7.2.1).
const PADDING_LEN: usize = 11;
/// The version of our clients, which offer nothing newer outside of an extension (RFC 8446 §4.1.2).
const VERSION: ProtocolVersion = ProtocolVersion::TLS1_2;

/// The secret and its encryption, for the server whose key is in `spki`.
pub(super) fn encrypt(
    rsa: &dyn RsaEncryption,
    spki: &SubjectPublicKeyInfoDer<'_>,
    random: &dyn SecureRandom,
) -> Result<(Vec<u8>, Premaster), Error> {
    let unfit = PeerMisbehaved::IllegalParameter(What::KeyCannotEncrypt);
    let key = rsa.public_key(spki).map_err(|_| unfit.clone())?;
    let padding_len = key.modulus_len().checked_sub(SECRET_LEN).filter(|len| *len >= PADDING_LEN);
    let mut block = padding(random, padding_len.ok_or(unfit)?)?;
    let premaster = secret(random)?;
    block.extend_from_slice(&premaster);
    Ok((key.encrypt(&block)?, premaster))
}

/// The padding in front of a secret (RFC 8017 §7.2.1), with room for the secret.
fn padding(random: &dyn SecureRandom, len: usize) -> Result<Zeroizing<Vec<u8>>, CryptoError> {
    // In room that is there: bytes that grow are copied, and the old ones are not wiped.
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
fn secret(random: &dyn SecureRandom) -> Result<Premaster, CryptoError> {
    let mut secret = Zeroizing::new(alloc::vec![0; SECRET_LEN]);
    random.fill(&mut secret)?;
    for (to, from) in secret.iter_mut().zip(VERSION.0.to_be_bytes()) {
        *to = from;
    }
    Ok(secret)
}

/// The client's secret, or one that nobody has: which of them, nobody can tell. `version` is the one that the ClientHello
/// began with, and so does the secret.
pub(super) fn decrypt(
    key: &dyn RsaDecryption,
    ciphertext: &[u8],
    version: ProtocolVersion,
    random: &dyn SecureRandom,
) -> Result<Premaster, CryptoError> {
    // RFC 5246 §7.4.7.1: made before anything is known, and always.
    let nobodys = secret(random)?;
    // A number that is too long or too large for the key is public, and there is nothing to decrypt: zeros are no padding.
    let block = key.decrypt(ciphertext);
    let block = block.unwrap_or_else(|_| Zeroizing::new(alloc::vec![0; key.modulus_len()]));
    Ok(select(&block, version, &nobodys))
}

/// What follows the padding in `block`, or `nobodys` where the padding or the version is wrong: in constant time, as long as
/// the lengths are the same.
fn select(block: &[u8], version: ProtocolVersion, nobodys: &[u8]) -> Premaster {
    let Some((padding, secret)) = block.split_last_chunk::<SECRET_LEN>() else {
        return Zeroizing::new(nobodys.to_vec());
    };
    let version = version.0.to_be_bytes();
    let is_good = is_padding(padding)
        & secret.iter().zip(version).fold(Choice::from(1), |good, (a, b)| good & a.ct_eq(&b));
    let choose = |(theirs, nobodys): (&u8, &u8)| u8::conditional_select(nobodys, theirs, is_good);
    Zeroizing::new(secret.iter().zip(nobodys).map(choose).collect())
}

/// Whether this is 00 02, at least eight bytes that are not zero, and 00.
fn is_padding(bytes: &[u8]) -> Choice {
    let [first, second, nonzero @ .., last] = bytes else { return Choice::from(0) };
    let is_long_enough = Choice::from(u8::from(bytes.len() >= PADDING_LEN));
    let has_no_zero = nonzero.iter().fold(Choice::from(1), |good, byte| good & !byte.ct_eq(&0));
    first.ct_eq(&0) & second.ct_eq(&2) & has_no_zero & last.ct_eq(&0) & is_long_enough
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block as a client makes it for a modulus of this length, in bytes.
    fn block(len: usize) -> Vec<u8> {
        let mut block = alloc::vec![0xa5; len - SECRET_LEN];
        (block[0], block[1], block[len - SECRET_LEN - 1]) = (0, 2, 0);
        block.extend_from_slice(&[3, 3]);
        block.extend(2..SECRET_LEN as u8);
        block
    }

    const NOBODYS: [u8; SECRET_LEN] = [0xee; SECRET_LEN];

    #[test]
    fn a_good_block_gives_its_secret() {
        for len in [SECRET_LEN + PADDING_LEN, 64, 128, 256, 512] {
            let block = block(len);
            assert_eq!(*select(&block, VERSION, &NOBODYS), block[len - SECRET_LEN..]);
            // RFC 5246 §7.4.7.1: the version is the one of the ClientHello, whatever that was.
            assert_eq!(*select(&block, ProtocolVersion::TLS1_3, &NOBODYS), NOBODYS);
        }
    }

    #[test]
    fn every_other_block_gives_nobodys_secret() {
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
                // A key that is too short for it.
                block(SECRET_LEN + PADDING_LEN - 1),
                alloc::vec![0; SECRET_LEN],
                Vec::new(),
            ];
            // A secret of another length: a zero before its place.
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
    fn what_is_put_on_can_be_taken_off() {
        // Random bytes with zeros among them.
        let random = Counting(200.into());
        for len in [64, 256, 512] {
            let mut block = padding(&random, len - SECRET_LEN).unwrap();
            let secret = secret(&random).unwrap();
            block.extend_from_slice(&secret);
            assert_eq!(block.len(), len);
            assert_eq!(*select(&block, VERSION, &NOBODYS), *secret);
        }
    }
}
