//! Private keys: loading and signing.

use dunlin::crypto::CryptoProvider;
use dunlin::wire::SignatureScheme;

use crate::fixture::{FIXTURES, Form, load};
use crate::hex;
use crate::random::Reproducible;
use crate::verify::{ED25519, verifies};

/// Every key has the right schemes and public key.
pub fn loads_every_form(provider: &CryptoProvider) {
    for fixture in FIXTURES {
        let key = fixture.load(provider);
        assert_eq!(key.schemes(), fixture.schemes);
        assert_eq!(key.public_key().as_ref(), fixture.public);
    }
}

/// RFC 8410 §10.3: version 1, and version 2 with attributes and public key. RFC 8032 §7.1: seeds with known
/// signatures.
pub fn loads_the_ed25519_keys_of_rfc_8410(provider: &CryptoProvider) {
    let version_1 = hex(
        "302e020100300506032b657004220420d4ee72dbf913584ad5b6d8f1f769f8ad3afe7c28cbf1d4fbe097a88f44755842",
    );
    let version_2 = hex(
        "3072020101300506032b657004220420d4ee72dbf913584ad5b6d8f1f769f8ad3afe7c28cbf1d4fbe097a88f44755842\
         a01f301d060a2a864886f70d01090914310f0c0d437572646c6520436861697273\
         81210019bf44096984cdfe8541bac167dc3b96c85086aa30b6b6cb0c5c38ad703166e1",
    );
    let public =
        hex("302a300506032b657003210019bf44096984cdfe8541bac167dc3b96c85086aa30b6b6cb0c5c38ad703166e1");
    for der in [&version_1, &version_2] {
        let key = load(provider, Form::Pkcs8, der).unwrap();
        assert_eq!(key.public_key().as_ref(), public);
    }
    let mut mismatched = version_2;
    *mismatched.last_mut().unwrap() ^= 1;
    assert!(load(provider, Form::Pkcs8, &mismatched).is_none(), "the public key does not match");
    for [seed, _, message, signature] in ED25519.map(|case| case.map(hex)) {
        let der = [&version_1[..16], &seed].concat();
        let key = load(provider, Form::Pkcs8, &der).unwrap();
        assert_eq!(key.sign(SignatureScheme::ED25519, &message, &Reproducible::new(1)), Ok(signature));
    }
}

/// RSA below 2048 bits, unsupported parameters and curves, keys that cannot sign, and keys labelled as
/// another encoding.
pub fn refuses_unusable_keys(provider: &CryptoProvider) {
    let keys: [(Form, &[u8]); 7] = [
        (Form::Pkcs8, include_bytes!("../fixtures/rsa1024.pkcs8.der")),
        (Form::Pkcs1, include_bytes!("../fixtures/rsa1024.pkcs1.der")),
        (Form::Pkcs8, include_bytes!("../fixtures/rsapss2048_mgf1_sha1.pkcs8.der")),
        (Form::Pkcs8, include_bytes!("../fixtures/secp256k1.pkcs8.der")),
        (Form::Pkcs8, include_bytes!("../fixtures/x25519.pkcs8.der")),
        (Form::Pkcs1, include_bytes!("../fixtures/p256.sec1.der")),
        (Form::Sec1, include_bytes!("../fixtures/rsa2048.pkcs1.der")),
    ];
    for (i, (form, der)) in keys.into_iter().enumerate() {
        assert!(load(provider, form, der).is_none(), "key {i}");
    }
    for fixture in FIXTURES {
        assert!(load(provider, fixture.form, fixture.public).is_none(), "a public key");
    }
}

/// Truncated keys and keys with trailing bytes.
pub fn refuses_damaged_encodings(provider: &CryptoProvider) {
    for fixture in FIXTURES {
        for len in 0..fixture.private.len() {
            assert!(load(provider, fixture.form, &fixture.private[..len]).is_none(), "{len} bytes loaded");
        }
        for end in [&[0][..], &[0, 0], fixture.private] {
            assert!(load(provider, fixture.form, &[fixture.private, end].concat()).is_none());
        }
    }
}

/// Flips a bit anywhere: the key is refused or unchanged. Only a seed of Ed25519 or ML-DSA may become a
/// different key, whose public key must match.
pub fn never_loads_an_inconsistent_key(provider: &CryptoProvider) {
    for fixture in FIXTURES {
        // Checking an RSA key is slow, so test every 13th byte only.
        let is_rsa = fixture.private.len() > 1000;
        let stride = if is_rsa { 13 } else { 1 };
        let mut refused = 0;
        for i in (0..fixture.private.len()).step_by(stride) {
            let mut der = fixture.private.to_vec();
            der[i] ^= 0x04;
            let Some(key) = load(provider, fixture.form, &der) else {
                refused += 1;
                continue;
            };
            let scheme = key.schemes()[0];
            let public = key.public_key().as_ref();
            let is_seed = [SignatureScheme::ED25519, SignatureScheme::MLDSA44, SignatureScheme::MLDSA65]
                .contains(&scheme);
            assert!(public == fixture.public || is_seed, "byte {i}");
            let signature = key.sign(scheme, b"message", &Reproducible::new(1)).unwrap();
            assert!(verifies(provider, scheme, public, b"message", &signature), "byte {i}");
        }
        assert!(refused > 0);
    }
}

/// The public key verifies signatures of each of the key's schemes.
pub fn signatures_verify_with_the_public_key(provider: &CryptoProvider) {
    let random = Reproducible::new(9);
    for fixture in FIXTURES {
        let key = fixture.load(provider);
        for &scheme in key.schemes() {
            for len in [0, 1, 100, 4096] {
                let message = random.bytes(len);
                let signature = key.sign(scheme, &message, &random).unwrap();
                assert!(verifies(provider, scheme, fixture.public, &message, &signature), "{scheme}");
                let other = [&message[..], b"!"].concat();
                assert!(!verifies(provider, scheme, fixture.public, &other, &signature), "{scheme}");
            }
        }
    }
}

/// A key refuses schemes that are not its own.
pub fn signs_with_its_own_schemes_only(provider: &CryptoProvider) {
    for fixture in FIXTURES {
        let key = fixture.load(provider);
        for &scheme in SignatureScheme::ALL {
            let signed = key.sign(scheme, b"message", &Reproducible::new(1)).is_ok();
            assert_eq!(signed, fixture.schemes.contains(&scheme), "{scheme}");
        }
    }
}

/// The `Debug` output of a key names its schemes and no secrets.
pub fn shows_no_secret(provider: &CryptoProvider) {
    for fixture in FIXTURES {
        let shown = format!("{:?}", fixture.load(provider));
        assert!(shown.contains(fixture.schemes[0].name().unwrap()), "{shown}");
        assert!(shown.len() < 200, "{shown}");
    }
}
