//! Finite field Diffie-Hellman: the groups of RFC 7919, for peers without elliptic curves. TLS 1.2 uses them
//! in its DHE suites, TLS 1.3 like any other group. They work with every provider: add them to the groups of
//! a profile.
//!
//! ```
//! # use dunlin::crypto::KeyExchangeGroup;
//! #
//! # fn groups(mut groups: Vec<&'static dyn KeyExchangeGroup>) -> Vec<&'static dyn KeyExchangeGroup> {
//! groups.push(dunlin_legacy::ffdhe::FFDHE2048);
//! # groups
//! # }
//! ```
//!
//! Other primes are not accepted, because a handshake cannot check that they are safe (RFC 7919 §1.1). The
//! module `lab` has three more for measurements.
#![warn(clippy::indexing_slicing)]

use alloc::boxed::Box;
use alloc::vec::Vec;

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd};
use dunlin::crypto::{
    ActiveKeyExchange, CryptoError, FiniteField, KeyExchangeGroup, SecureRandom, SharedSecret,
};
use dunlin::wire::NamedGroup;
use zeroize::{Zeroize, Zeroizing};

/// ffdhe2048 (RFC 7919 §A.1).
pub static FFDHE2048: &dyn KeyExchangeGroup =
    &Group { name: NamedGroup::FFDHE2048, prime: &PRIME_2048, exponent_len: 32 };

/// ffdhe3072 (RFC 7919 §A.2).
pub static FFDHE3072: &dyn KeyExchangeGroup =
    &Group { name: NamedGroup::FFDHE3072, prime: &PRIME_3072, exponent_len: 36 };

/// ffdhe4096 (RFC 7919 §A.3).
pub static FFDHE4096: &dyn KeyExchangeGroup =
    &Group { name: NamedGroup::FFDHE4096, prime: &PRIME_4096, exponent_len: 42 };

/// The generator of every group (RFC 7919 §A).
const GENERATOR: &[u8] = &[2];

#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) name: NamedGroup,
    pub(crate) prime: &'static [u8],
    /// The length of private exponents, in bytes: at least twice the group's strength (225, 275 and 325 bits,
    /// RFC 7919 §5.2 and §A).
    pub(crate) exponent_len: usize,
}

impl Group {
    fn bits(&self) -> u32 {
        self.prime.len() as u32 * 8
    }

    fn params(&self) -> Result<BoxedMontyParams, CryptoError> {
        let prime = BoxedUint::from_be_slice(self.prime, self.bits()).map_err(|_| CryptoError)?;
        // The prime is public, so variable time is fine.
        Option::from(Odd::new(prime)).map(BoxedMontyParams::new_vartime).ok_or(CryptoError)
    }

    /// `base` to the power of `exponent`, padded to the length of the prime. Constant time in the value of
    /// the exponent.
    fn power(&self, base: &[u8], exponent: &[u8]) -> Result<Vec<u8>, CryptoError> {
        let base = BoxedUint::from_be_slice(base, self.bits()).map_err(|_| CryptoError)?;
        let bits = exponent.len() as u32 * 8;
        let mut exponent =
            BoxedUint::from_be_slice(exponent, bits.next_multiple_of(64)).map_err(|_| CryptoError)?;
        let mut power = BoxedMontyForm::new(base, &self.params()?).pow_bounded_exp(&exponent, bits);
        exponent.zeroize();
        let mut number = power.retrieve();
        power.zeroize();
        let mut bytes = number.to_be_bytes();
        number.zeroize();
        let result = bytes.to_vec();
        bytes.zeroize();
        Ok(result)
    }

    /// Whether a share is greater than 1 and less than p - 1 (RFC 7919 §5.1).
    fn is_valid(&self, share: &[u8]) -> bool {
        let Some((last, rest)) = share.split_last() else { return false };
        let is_above_1 = *last > 1 || rest.iter().any(|b| *b != 0);
        let Some((odd, high)) = self.prime.split_last() else { return false };
        // The prime is odd, so p - 1 differs from it in the last byte only.
        share.len() == self.prime.len() && is_above_1 && (rest, *last) < (high, *odd - 1)
    }
}

impl KeyExchangeGroup for Group {
    fn name(&self) -> NamedGroup {
        self.name
    }

    fn start(&self, random: &dyn SecureRandom) -> Result<Box<dyn ActiveKeyExchange>, CryptoError> {
        let mut exponent = Zeroizing::new(alloc::vec![0; self.exponent_len]);
        random.fill(&mut exponent)?;
        let share = self.power(GENERATOR, &exponent)?;
        let name = self.name;
        let prime = self.prime;
        let exponent_len = self.exponent_len;
        Ok(Box::new(Active { group: Self { name, prime, exponent_len }, exponent, share }))
    }

    fn finite_field(&self) -> Option<FiniteField> {
        Some(FiniteField { prime: self.prime, generator: GENERATOR })
    }
}

/// The private exponent and own share, until the peer's share arrives.
struct Active {
    group: Group,
    exponent: Zeroizing<Vec<u8>>,
    share: Vec<u8>,
}

impl ActiveKeyExchange for Active {
    fn share(&self) -> &[u8] {
        &self.share
    }

    fn complete(&self, peer: &[u8]) -> Result<SharedSecret, CryptoError> {
        if !self.group.is_valid(peer) {
            return Err(CryptoError);
        }
        // The secret keeps leading zeros: it is as long as the prime (RFC 8446 §7.4.1).
        self.group.power(peer, &self.exponent).map(SharedSecret::new)
    }
}

/// Reads hexadecimal digits, ignoring spaces.
pub(crate) const fn bytes<const N: usize>(hex: &str) -> [u8; N] {
    let text = hex.as_bytes();
    let mut out = [0; N];
    let mut i = 0;
    let mut digits = 0;
    while i < text.len() {
        #[allow(clippy::indexing_slicing, reason = "evaluated at compile time")]
        let digit = match text[i] {
            d @ b'0'..=b'9' => d - b'0',
            d @ b'A'..=b'F' => d - b'A' + 10,
            _ => {
                i += 1;
                continue;
            }
        };
        #[allow(clippy::indexing_slicing, reason = "evaluated at compile time")]
        {
            out[digits / 2] = out[digits / 2] << 4 | digit;
        }
        digits += 1;
        i += 1;
    }
    assert!(digits == 2 * N, "wrong number of digits");
    out
}

const PRIME_2048: [u8; 256] = bytes(
    "FFFFFFFFFFFFFFFFADF85458A2BB4A9AAFDC5620273D3CF1D8B9C583CE2D3695A9E13641146433FBCC939DCE249B3EF9 \
     7D2FE363630C75D8F681B202AEC4617AD3DF1ED5D5FD65612433F51F5F066ED0856365553DED1AF3B557135E7F57C935 \
     984F0C70E0E68B77E2A689DAF3EFE8721DF158A136ADE73530ACCA4F483A797ABC0AB182B324FB61D108A94BB2C8E3FB \
     B96ADAB760D7F4681D4F42A3DE394DF4AE56EDE76372BB190B07A7C8EE0A6D709E02FCE1CDF7E2ECC03404CD28342F61 \
     9172FE9CE98583FF8E4F1232EEF28183C3FE3B1B4C6FAD733BB5FCBC2EC22005C58EF1837D1683B2C6F34A26C1B2EFFA \
     886B423861285C97FFFFFFFFFFFFFFFF",
);

const PRIME_3072: [u8; 384] = bytes(
    "FFFFFFFFFFFFFFFFADF85458A2BB4A9AAFDC5620273D3CF1D8B9C583CE2D3695A9E13641146433FBCC939DCE249B3EF9 \
     7D2FE363630C75D8F681B202AEC4617AD3DF1ED5D5FD65612433F51F5F066ED0856365553DED1AF3B557135E7F57C935 \
     984F0C70E0E68B77E2A689DAF3EFE8721DF158A136ADE73530ACCA4F483A797ABC0AB182B324FB61D108A94BB2C8E3FB \
     B96ADAB760D7F4681D4F42A3DE394DF4AE56EDE76372BB190B07A7C8EE0A6D709E02FCE1CDF7E2ECC03404CD28342F61 \
     9172FE9CE98583FF8E4F1232EEF28183C3FE3B1B4C6FAD733BB5FCBC2EC22005C58EF1837D1683B2C6F34A26C1B2EFFA \
     886B4238611FCFDCDE355B3B6519035BBC34F4DEF99C023861B46FC9D6E6C9077AD91D2691F7F7EE598CB0FAC186D91C \
     AEFE130985139270B4130C93BC437944F4FD4452E2D74DD364F2E21E71F54BFF5CAE82AB9C9DF69EE86D2BC522363A0D \
     ABC521979B0DEADA1DBF9A42D5C4484E0ABCD06BFA53DDEF3C1B20EE3FD59D7C25E41D2B66C62E37FFFFFFFFFFFFFFFF",
);

const PRIME_4096: [u8; 512] = bytes(
    "FFFFFFFFFFFFFFFFADF85458A2BB4A9AAFDC5620273D3CF1D8B9C583CE2D3695A9E13641146433FBCC939DCE249B3EF9 \
     7D2FE363630C75D8F681B202AEC4617AD3DF1ED5D5FD65612433F51F5F066ED0856365553DED1AF3B557135E7F57C935 \
     984F0C70E0E68B77E2A689DAF3EFE8721DF158A136ADE73530ACCA4F483A797ABC0AB182B324FB61D108A94BB2C8E3FB \
     B96ADAB760D7F4681D4F42A3DE394DF4AE56EDE76372BB190B07A7C8EE0A6D709E02FCE1CDF7E2ECC03404CD28342F61 \
     9172FE9CE98583FF8E4F1232EEF28183C3FE3B1B4C6FAD733BB5FCBC2EC22005C58EF1837D1683B2C6F34A26C1B2EFFA \
     886B4238611FCFDCDE355B3B6519035BBC34F4DEF99C023861B46FC9D6E6C9077AD91D2691F7F7EE598CB0FAC186D91C \
     AEFE130985139270B4130C93BC437944F4FD4452E2D74DD364F2E21E71F54BFF5CAE82AB9C9DF69EE86D2BC522363A0D \
     ABC521979B0DEADA1DBF9A42D5C4484E0ABCD06BFA53DDEF3C1B20EE3FD59D7C25E41D2B669E1EF16E6F52C3164DF4FB \
     7930E9E4E58857B6AC7D5F42D69F6D187763CF1D5503400487F55BA57E31CC7A7135C886EFB4318AED6A1E012D9E6832 \
     A907600A918130C46DC778F971AD0038092999A333CB8B7A1A1DB93D7140003C2A4ECEA9F98D0ACC0A8291CDCEC97DCF \
     8EC9B55A7F88A46B4DB5A851F44182E1C68A007E5E655F6AFFFFFFFFFFFFFFFF",
);

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Fixed(u8);

    impl SecureRandom for Fixed {
        fn fill(&self, buf: &mut [u8]) -> Result<(), CryptoError> {
            buf.fill(self.0);
            Ok(())
        }
    }

    const GROUPS: &[&dyn KeyExchangeGroup] = &[
        FFDHE2048,
        FFDHE3072,
        FFDHE4096,
        #[cfg(feature = "lab")]
        crate::lab::LAB_512,
        #[cfg(feature = "lab")]
        crate::lab::LAB_1024,
        #[cfg(feature = "lab")]
        crate::lab::LAB_2048,
    ];

    /// In the subgroup of order (p - 1) / 2, 2 to the power of (p - 1) / 2 is 1 (RFC 7919 §A).
    #[test]
    fn the_generator_belongs_to_the_subgroup() {
        for prime in GROUPS.iter().map(|group| group.finite_field().unwrap().prime) {
            let group = Group { name: NamedGroup::FFDHE2048, prime, exponent_len: 0 };
            let mut half = prime.to_vec();
            let mut carry = 0;
            for byte in &mut half {
                (*byte, carry) = (*byte >> 1 | carry << 7, *byte & 1);
            }
            let one = group.power(GENERATOR, &half).unwrap();
            assert!(one.iter().rev().skip(1).all(|b| *b == 0) && one.last() == Some(&1));
        }
    }

    #[test]
    fn both_sides_derive_the_same_secret() {
        for group in GROUPS {
            let a = group.start(&Fixed(7)).unwrap();
            let b = group.start(&Fixed(9)).unwrap();
            let to_a = b.share().to_vec();
            let to_b = a.share().to_vec();
            let a = a.complete(&to_a).unwrap();
            let b = b.complete(&to_b).unwrap();
            assert_eq!(a.as_bytes(), b.as_bytes());
            assert_eq!(a.as_bytes().len(), group.finite_field().unwrap().prime.len());
        }
    }

    #[test]
    fn rejects_shares_out_of_range() {
        for group in GROUPS {
            let prime = group.finite_field().unwrap().prime;
            let small = |n: u8| [&vec_of_zeros(prime.len() - 1)[..], &[n]].concat();
            let near = |less: u8| [&prime[..prime.len() - 1], &[prime[prime.len() - 1] - less]].concat();
            let complete = |share: &[u8]| group.start(&Fixed(7)).unwrap().complete(share).is_ok();
            for (share, is_valid) in [
                (small(0), false),
                (small(1), false),
                (small(2), true),
                (near(0), false),
                (near(1), false),
                (near(2), true),
                (alloc::vec![0xff; prime.len()], false),
                (alloc::vec![2], false),
                (Vec::new(), false),
            ] {
                assert_eq!(complete(&share), is_valid);
            }
        }
    }

    fn vec_of_zeros(len: usize) -> Vec<u8> {
        alloc::vec![0; len]
    }
}
