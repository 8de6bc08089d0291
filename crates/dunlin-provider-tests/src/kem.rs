//! Key encapsulation, alone and in hybrid groups.

use dunlin::crypto::{CryptoProvider, KeyExchangeGroup};
use dunlin::wire::NamedGroup;

use crate::group::find;
use crate::random::{Broken, Reproducible};

/// Lengths for ML-KEM-768 (FIPS 203 table 3) and X25519, in bytes.
const ENCAPSULATION_KEY: usize = 1184;
const CIPHERTEXT: usize = 1088;
const SECRET: usize = 32;
const POINT: usize = 32;

/// Every group with a KEM, with the lengths of both shares and of the secret.
pub const ALL: [(NamedGroup, [usize; 3]); 2] = [
    (NamedGroup::MLKEM768, [ENCAPSULATION_KEY, CIPHERTEXT, SECRET]),
    (NamedGroup::X25519MLKEM768, [ENCAPSULATION_KEY + POINT, CIPHERTEXT + POINT, SECRET + 32]),
];

/// Runs a key exchange between two providers' groups: both shares and the secret.
pub fn agree(a: &dyn KeyExchangeGroup, b: &dyn KeyExchangeGroup, seed: u64) -> [Vec<u8>; 3] {
    let initiator = a.start(&Reproducible::new(seed)).unwrap();
    let share = initiator.share().to_vec();
    let (answer, ours) = b.respond(&Reproducible::new(seed + 100), &share).unwrap();
    let theirs = initiator.complete(&answer).unwrap();
    assert_eq!(ours.as_bytes(), theirs.as_bytes(), "{}", a.name());
    [share, answer, theirs.as_bytes().to_vec()]
}

/// Both sides derive the same secret, a new one each time. Shares and secret have the right lengths.
pub fn both_sides_agree(provider: &CryptoProvider) {
    for (name, lengths) in ALL {
        let group = find(provider, name);
        let all: Vec<_> = (0..20).map(|seed| agree(group, group, seed)).collect();
        assert!(all.iter().all(|parts| parts.each_ref().map(Vec::len) == lengths), "{name}");
        for (i, one) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|other| other[2] != one[2]), "{name}: a secret repeats");
        }
    }
}

/// The KEM's part comes first in shares and secret (draft-ietf-tls-ecdhe-mlkem §4). The curve's part works on its own.
pub fn the_curve_is_the_last_part(provider: &CryptoProvider) {
    let hybrid = find(provider, NamedGroup::X25519MLKEM768);
    let x25519 = find(provider, NamedGroup::X25519);
    let initiator = hybrid.start(&Reproducible::new(1)).unwrap();
    let (name, point) = initiator.component().unwrap();
    assert_eq!((name, point), (NamedGroup::X25519, &initiator.share()[ENCAPSULATION_KEY..]));
    let (answer, secret) = hybrid.respond(&Reproducible::new(2), initiator.share()).unwrap();
    let curve = initiator.complete_component(&answer[CIPHERTEXT..]).unwrap();
    assert_eq!(curve.as_bytes(), &secret.as_bytes()[SECRET..]);
    // A peer that supports only the curve can use its part.
    let initiator = hybrid.start(&Reproducible::new(3)).unwrap();
    let (_, point) = initiator.component().unwrap();
    let (answer, secret) = x25519.respond(&Reproducible::new(4), point).unwrap();
    assert_eq!(initiator.complete_component(&answer).unwrap().as_bytes(), secret.as_bytes());
    // A plain group has no such part.
    let plain = x25519.start(&Reproducible::new(5)).unwrap();
    assert!(plain.component().is_none() && plain.complete_component(&answer).is_err());
}

/// Encapsulation keys and ciphertexts of wrong lengths (FIPS 203 §7.2, §7.3).
pub fn refuses_other_lengths(provider: &CryptoProvider) {
    for (name, _) in ALL {
        let group = find(provider, name);
        let random = Reproducible::new(6);
        let start = || group.start(&random).unwrap();
        let share = start().share().to_vec();
        let (answer, _) = group.respond(&random, &share).unwrap();
        for cut in [0, 1, POINT, CIPHERTEXT - 1, CIPHERTEXT, share.len() - POINT, share.len() - 1] {
            if cut < share.len() {
                assert!(group.respond(&random, &share[..cut]).is_err(), "{name}: {cut} bytes");
            }
            if cut < answer.len() {
                assert!(start().complete(&answer[..cut]).is_err(), "{name}: {cut} bytes");
            }
        }
        assert!(group.respond(&random, &[&share[..], &[0]].concat()).is_err());
        assert!(start().complete(&[&answer[..], &[0]].concat()).is_err());
    }
}

/// The modulus check of FIPS 203 §7.2: every coefficient must be below 3329.
pub fn refuses_keys_with_coefficients_out_of_range(provider: &CryptoProvider) {
    /// 768 coefficients of 12 bits each; the rest of the key is a seed.
    const COEFFICIENTS: usize = 768 * 12 / 8;
    for (name, _) in ALL {
        let group = find(provider, name);
        let random = Reproducible::new(7);
        let share = group.start(&random).unwrap().share().to_vec();
        for at in (0..COEFFICIENTS).step_by(3 * 16) {
            // Replace a pair of coefficients by (3329, 0) or (0, 3329): 3329 is the smallest invalid value.
            for pair in [[0x01, 0x0d, 0x00], [0x00, 0x10, 0xd0]] {
                let mut bad = share.clone();
                bad[at..at + 3].copy_from_slice(&pair);
                assert!(group.respond(&random, &bad).is_err(), "{name}, byte {at}");
            }
            let mut good = share.clone();
            good[at..at + 3].copy_from_slice(&[0x00, 0x0d, 0xd0]);
            assert!(group.respond(&random, &good).is_ok(), "{name}: 3328 at byte {at}");
        }
    }
}

/// Implicit rejection: a damaged ciphertext gives a different secret (FIPS 203 §6.3).
pub fn a_damaged_ciphertext_gives_another_secret(provider: &CryptoProvider) {
    for (name, _) in ALL {
        let group = find(provider, name);
        for at in (0..CIPHERTEXT).step_by(64) {
            let initiator = group.start(&Reproducible::new(8)).unwrap();
            let (mut answer, secret) = group.respond(&Reproducible::new(9), initiator.share()).unwrap();
            answer[at] ^= 1;
            let other = initiator.complete(&answer).unwrap();
            assert_ne!(other.as_bytes()[..SECRET], secret.as_bytes()[..SECRET], "{name}, byte {at}");
        }
    }
}

/// Both sides check the curve's part as strictly as in a plain group (RFC 8446 §7.4.2).
pub fn a_hybrid_refuses_points_of_small_order(provider: &CryptoProvider) {
    let group = find(provider, NamedGroup::X25519MLKEM768);
    let random = Reproducible::new(10);
    let initiator = group.start(&random).unwrap();
    let (mut answer, _) = group.respond(&random, initiator.share()).unwrap();
    let mut share = initiator.share().to_vec();
    share[ENCAPSULATION_KEY..].fill(0);
    assert!(group.respond(&random, &share).is_err());
    answer[CIPHERTEXT..].fill(0);
    assert!(initiator.complete(&answer).is_err());
}

/// No hybrid key is made if the random source fails, because the curve's key comes from it.
pub fn a_hybrid_fails_with_its_random_source(provider: &CryptoProvider) {
    let group = find(provider, NamedGroup::X25519MLKEM768);
    let share = group.start(&Reproducible::new(11)).unwrap().share().to_vec();
    assert!(group.start(&Broken).is_err());
    assert!(group.respond(&Broken, &share).is_err());
}
