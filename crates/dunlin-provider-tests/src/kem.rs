//! Key encapsulation, alone and in hybrid groups.

use dunlin::crypto::{CryptoProvider, KeyExchangeGroup};
use dunlin::wire::NamedGroup;

use crate::group::find;
use crate::random::{Broken, Reproducible};

/// A group with a KEM. Lengths are in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Kem {
    /// Its number.
    pub name: NamedGroup,
    /// The parameter k of ML-KEM: the number of polynomials in a key (FIPS 203 table 2).
    k: usize,
    /// The length of the encapsulation key (FIPS 203 table 3).
    encapsulation_key: usize,
    /// The length of the ciphertext.
    ciphertext: usize,
    /// The curve of a hybrid.
    curve: Option<Curve>,
}

/// The curve's part of a hybrid group.
#[derive(Clone, Copy, Debug)]
struct Curve {
    name: NamedGroup,
    point: usize,
    secret: usize,
    /// Whether its part stands before the KEM's (draft-ietf-tls-ecdhe-mlkem §4).
    is_first: bool,
}

/// The length of the KEM's secret.
const SECRET: usize = 32;

impl Kem {
    const fn pure(name: NamedGroup, k: usize, encapsulation_key: usize, ciphertext: usize) -> Self {
        Self { name, k, encapsulation_key, ciphertext, curve: None }
    }

    const fn with(self, name: NamedGroup, curve: Curve) -> Self {
        Self { name, curve: Some(curve), ..self }
    }

    /// The lengths of both shares and of the secret.
    fn lengths(&self) -> [usize; 3] {
        let (point, secret) = self.curve.map_or((0, 0), |curve| (curve.point, curve.secret));
        [self.encapsulation_key + point, self.ciphertext + point, SECRET + secret]
    }

    /// The offset of the KEM's part in a share.
    fn start(&self) -> usize {
        self.curve.filter(|curve| curve.is_first).map_or(0, |curve| curve.point)
    }

    /// The KEM's part of the secret.
    fn secret<'a>(&self, secret: &'a [u8]) -> &'a [u8] {
        let start = self.curve.filter(|curve| curve.is_first).map_or(0, |curve| curve.secret);
        &secret[start..start + SECRET]
    }
}

const ML_KEM_512: Kem = Kem::pure(NamedGroup::MLKEM512, 2, 800, 768);
const ML_KEM_768: Kem = Kem::pure(NamedGroup::MLKEM768, 3, 1184, 1088);
const HYBRIDS: [Kem; 2] = [
    ML_KEM_768.with(
        NamedGroup::X25519MLKEM768,
        Curve { name: NamedGroup::X25519, point: 32, secret: 32, is_first: false },
    ),
    ML_KEM_768.with(
        NamedGroup::SECP256R1MLKEM768,
        Curve { name: NamedGroup::SECP256R1, point: 65, secret: 32, is_first: true },
    ),
];

/// Every group with a KEM that all providers have.
pub const ALL: [Kem; 4] = [ML_KEM_512, ML_KEM_768, HYBRIDS[0], HYBRIDS[1]];

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
    for kem in ALL {
        let group = find(provider, kem.name);
        let all: Vec<_> = (0..20).map(|seed| agree(group, group, seed)).collect();
        let lengths = kem.lengths();
        assert!(all.iter().all(|parts| parts.each_ref().map(Vec::len) == lengths), "{}", kem.name);
        for (i, one) in all.iter().enumerate() {
            assert!(all[..i].iter().all(|other| other[2] != one[2]), "{}: a secret repeats", kem.name);
        }
    }
}

/// The order of the two parts in shares and secrets (draft-ietf-tls-ecdhe-mlkem §4). The curve's part works
/// on its own.
pub fn the_parts_of_a_hybrid_are_in_order(provider: &CryptoProvider) {
    for kem in HYBRIDS {
        let curve = kem.curve.unwrap();
        let part = |share: &[u8]| {
            if curve.is_first {
                share[..curve.point].to_vec()
            } else {
                share[share.len() - curve.point..].to_vec()
            }
        };
        let hybrid = find(provider, kem.name);
        let plain = find(provider, curve.name);
        let initiator = hybrid.start(&Reproducible::new(1)).unwrap();
        assert_eq!(initiator.component(), Some((curve.name, &part(initiator.share())[..])), "{}", kem.name);
        let (answer, secret) = hybrid.respond(&Reproducible::new(2), initiator.share()).unwrap();
        let alone = initiator.complete_component(&part(&answer)).unwrap();
        let at = if curve.is_first { 0 } else { SECRET };
        assert_eq!(alone.as_bytes(), &secret.as_bytes()[at..at + curve.secret], "{}", kem.name);
        // A peer that supports only the curve can use its part.
        let initiator = hybrid.start(&Reproducible::new(3)).unwrap();
        let (_, point) = initiator.component().unwrap();
        let (answer, secret) = plain.respond(&Reproducible::new(4), point).unwrap();
        assert_eq!(initiator.complete_component(&answer).unwrap().as_bytes(), secret.as_bytes());
        // A plain group has no such part.
        let plain = plain.start(&Reproducible::new(5)).unwrap();
        assert!(plain.component().is_none() && plain.complete_component(&answer).is_err());
    }
}

/// Encapsulation keys and ciphertexts of wrong lengths (FIPS 203 §7.2, §7.3).
pub fn refuses_other_lengths(provider: &CryptoProvider) {
    for kem in ALL {
        let (name, group) = (kem.name, find(provider, kem.name));
        let random = Reproducible::new(6);
        let start = || group.start(&random).unwrap();
        let share = start().share().to_vec();
        let (answer, _) = group.respond(&random, &share).unwrap();
        let point = kem.curve.map_or(SECRET, |curve| curve.point);
        for cut in [0, 1, point, kem.ciphertext - 1, kem.ciphertext, share.len() - point, share.len() - 1] {
            if cut < share.len() {
                assert!(group.respond(&random, &share[..cut]).is_err(), "{name}: {cut} bytes");
            }
            if cut < answer.len() {
                assert!(start().complete(&answer[..cut]).is_err(), "{name}: {cut} bytes");
            }
        }
        assert!(group.respond(&random, &[&share[..], &[0]].concat()).is_err());
        assert!(group.respond(&random, &[&[0], &share[..]].concat()).is_err());
        assert!(start().complete(&[&answer[..], &[0]].concat()).is_err());
        assert!(start().complete(&[&[0], &answer[..]].concat()).is_err());
    }
}

/// The modulus check of FIPS 203 §7.2: every coefficient must be below 3329.
pub fn refuses_keys_with_coefficients_out_of_range(provider: &CryptoProvider) {
    for kem in ALL {
        let (name, group) = (kem.name, find(provider, kem.name));
        let random = Reproducible::new(7);
        let share = group.start(&random).unwrap().share().to_vec();
        // Each polynomial has 256 coefficients of 12 bits; the rest of the key is a seed.
        let coefficients = kem.k * 256 * 12 / 8;
        for at in (kem.start()..kem.start() + coefficients).step_by(3 * 16) {
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
    for kem in ALL {
        let group = find(provider, kem.name);
        for at in (kem.start()..kem.start() + kem.ciphertext).step_by(64) {
            let initiator = group.start(&Reproducible::new(8)).unwrap();
            let (mut answer, secret) = group.respond(&Reproducible::new(9), initiator.share()).unwrap();
            answer[at] ^= 1;
            let other = initiator.complete(&answer).unwrap();
            let parts = [&other, &secret].map(|secret| kem.secret(secret.as_bytes()));
            assert_ne!(parts[0], parts[1], "{}, byte {at}", kem.name);
        }
    }
}

/// Both sides check the curve's part as strictly as in a plain group (RFC 8446 §7.4.2): zeros are no point of
/// a NIST curve, and a point of small order on X25519.
pub fn a_hybrid_refuses_bad_points(provider: &CryptoProvider) {
    for kem in HYBRIDS {
        let curve = kem.curve.unwrap();
        let zeroed = |share: &[u8]| {
            let mut share = share.to_vec();
            let start = if curve.is_first { 0 } else { share.len() - curve.point };
            share[start..start + curve.point].fill(0);
            share
        };
        let group = find(provider, kem.name);
        let random = Reproducible::new(10);
        let initiator = group.start(&random).unwrap();
        let (answer, _) = group.respond(&random, initiator.share()).unwrap();
        assert!(group.respond(&random, &zeroed(initiator.share())).is_err(), "{}", kem.name);
        assert!(initiator.complete(&zeroed(&answer)).is_err(), "{}", kem.name);
    }
}

/// No hybrid key is made if the random source fails, because the curve's key comes from it.
pub fn a_hybrid_fails_with_its_random_source(provider: &CryptoProvider) {
    for kem in HYBRIDS {
        let group = find(provider, kem.name);
        let share = group.start(&Reproducible::new(11)).unwrap().share().to_vec();
        assert!(group.start(&Broken).is_err());
        assert!(group.respond(&Broken, &share).is_err());
    }
}
