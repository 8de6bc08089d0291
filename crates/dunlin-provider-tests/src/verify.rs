//! Verification of signatures.

use dunlin::crypto::CryptoProvider;
use dunlin::wire::SignatureScheme;
use pki_types::{AlgorithmIdentifier, SubjectPublicKeyInfoDer, alg_id};
use webpki::RawPublicKeyEntity;

use crate::fixture::FIXTURES;
use crate::hex;
use crate::random::Reproducible;

const RSA_2048: &[u8] = include_bytes!("../fixtures/rsa2048.spki.der");
const RSA_1024: &[u8] = include_bytes!("../fixtures/rsa1024.spki.der");

/// OpenSSL's signatures over [`MESSAGE`] with [`RSA_2048`].
const RSA_SIGNATURES: [(SignatureScheme, &[u8]); 6] = [
    (SignatureScheme::RSA_PKCS1_SHA256, include_bytes!("../fixtures/rsa2048.pkcs1_sha256.sig")),
    (SignatureScheme::RSA_PKCS1_SHA384, include_bytes!("../fixtures/rsa2048.pkcs1_sha384.sig")),
    (SignatureScheme::RSA_PKCS1_SHA512, include_bytes!("../fixtures/rsa2048.pkcs1_sha512.sig")),
    (SignatureScheme::RSA_PSS_RSAE_SHA256, include_bytes!("../fixtures/rsa2048.pss_sha256.sig")),
    (SignatureScheme::RSA_PSS_RSAE_SHA384, include_bytes!("../fixtures/rsa2048.pss_sha384.sig")),
    (SignatureScheme::RSA_PSS_RSAE_SHA512, include_bytes!("../fixtures/rsa2048.pss_sha512.sig")),
];

const MESSAGE: &[u8] = b"test";

/// Whether the provider verifies `signature` with an algorithm of `scheme` and the key in a
/// SubjectPublicKeyInfo.
pub fn verifies(
    provider: &CryptoProvider,
    scheme: SignatureScheme,
    spki: &[u8],
    message: &[u8],
    signature: &[u8],
) -> bool {
    let (_, algorithms) = provider.signatures.schemes.iter().find(|(s, _)| *s == scheme).unwrap();
    let spki = SubjectPublicKeyInfoDer::from(spki);
    let key = RawPublicKeyEntity::try_from(&spki).unwrap();
    algorithms.iter().any(|algorithm| key.verify_signature(*algorithm, message, signature).is_ok())
}

/// As [`verifies`], for any algorithm of a chain; the key is the content of the BIT STRING.
fn verifies_in_chain(
    provider: &CryptoProvider,
    algorithm: (AlgorithmIdentifier, AlgorithmIdentifier),
    key: &[u8],
    message: &[u8],
    signature: &[u8],
) -> bool {
    let found =
        provider.signatures.all.iter().find(|a| (a.public_key_alg_id(), a.signature_alg_id()) == algorithm);
    found.unwrap().verify_signature(key, message, signature).is_ok()
}

/// Test 1 to 3 and "SHA(abc)" of RFC 8032 §7.1: seed, public key, message, signature.
pub(crate) const ED25519: [[&str; 4]; 4] = [
    [
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155
         5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ],
    [
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da
         085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ],
    [
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac
         18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ],
    [
        "833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42",
        "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
        "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a
         2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b589
         09351fc9ac90b3ecfdfbc7c66431e0303dca179c138ac17ad9bef1177331a704",
    ],
];

/// RFC 8032 §7.1.
pub fn ed25519_answers_of_rfc_8032(provider: &CryptoProvider) {
    let ed25519 = (alg_id::ED25519, alg_id::ED25519);
    for [_, key, message, signature] in ED25519.map(|case| case.map(hex)) {
        assert!(verifies_in_chain(provider, ed25519, &key, &message, &signature));
        let longer = [&message[..], b"!"].concat();
        assert!(!verifies_in_chain(provider, ed25519, &key, &longer, &signature));
    }
}

const P256_KEY: &str = "04 60FED4BA255A9D31C961EB74C6356D68C049B8923B61FA6CE669622E60F29FB6
                           7903FE1008B8BC99A41AE9E95628BC64F2F1B20C2D7E9F5177A3C294D4462299";
const P384_KEY: &str = "04 EC3A4E415B4E19A4568618029F427FA5DA9A8BC4AE92E02E06AAE5286B300C64
                           DEF8F0EA9055866064A254515480BC13
                           8015D9B72D7D57244EA8EF9AC0C621896708A59367F9DFB9F54CA84B3F1C9DB1
                           288B231C3AE0D4FE7344FD2533264720";

/// RFC 6979 appendix A.2.5 and A.2.6: both curves, each with both hashes.
pub fn ecdsa_answers_of_rfc_6979(provider: &CryptoProvider) {
    for (key, algorithm, message, r, s) in [
        (
            P256_KEY,
            (alg_id::ECDSA_P256, alg_id::ECDSA_SHA256),
            "sample",
            "EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716",
            "F7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8",
        ),
        (
            P256_KEY,
            (alg_id::ECDSA_P256, alg_id::ECDSA_SHA256),
            "test",
            "F1ABB023518351CD71D881567B1EA663ED3EFCF6C5132B354F28D3B0B7D38367",
            "019F4113742A2B14BD25926B49C649155F267E60D3814B4C0CC84250E46F0083",
        ),
        (
            P256_KEY,
            (alg_id::ECDSA_P256, alg_id::ECDSA_SHA384),
            "sample",
            "0EAFEA039B20E9B42309FB1D89E213057CBF973DC0CFC8F129EDDDC800EF7719",
            "4861F0491E6998B9455193E34E7B0D284DDD7149A74B95B9261F13ABDE940954",
        ),
        (
            P384_KEY,
            (alg_id::ECDSA_P384, alg_id::ECDSA_SHA384),
            "sample",
            "94EDBB92A5ECB8AAD4736E56C691916B3F88140666CE9FA73D64C4EA95AD133C
             81A648152E44ACF96E36DD1E80FABE46",
            "99EF4AEB15F178CEA1FE40DB2603138F130E740A19624526203B6351D0A3A94F
             A329C145786E679E7B82C71A38628AC8",
        ),
        (
            P384_KEY,
            (alg_id::ECDSA_P384, alg_id::ECDSA_SHA256),
            "sample",
            "21B13D1E013C7FA1392D03C5F99AF8B30C570C6F98D4EA8E354B63A21D3DAA33
             BDE1E888E63355D92FA2B3C36D8FB2CD",
            "F3AA443FB107745BF4BD77CB3891674632068A10CA67E3D45DB2266FA7D1FEEB
             EFDC63ECCD1AC42EC0CB8668A4FA0AB0",
        ),
    ] {
        let key = hex(key);
        let signature = der_signature(&hex(r), &hex(s));
        assert!(verifies_in_chain(provider, algorithm, &key, message.as_bytes(), &signature));
        assert!(!verifies_in_chain(provider, algorithm, &key, b"simple", &signature));
    }
}

/// `ECDSA-Sig-Value` (RFC 3279 §2.2.3), for values of less than 128 bytes.
fn der_signature(r: &[u8], s: &[u8]) -> Vec<u8> {
    let integer = |value: &[u8]| {
        let zeros = value.iter().take_while(|byte| **byte == 0).count();
        let value = &value[zeros.min(value.len() - 1)..];
        let sign: &[u8] = if value[0] < 0x80 { &[] } else { &[0] };
        [&[2, (sign.len() + value.len()) as u8], sign, value].concat()
    };
    let content = [integer(r), integer(s)].concat();
    [&[0x30, content.len() as u8], &content[..]].concat()
}

/// r and s lie between 1 and the order minus 1 (FIPS 186-5 §6.4.2), and DER has only one encoding of them.
pub fn refuses_signatures_outside_their_range(provider: &CryptoProvider) {
    let algorithm = (alg_id::ECDSA_P256, alg_id::ECDSA_SHA256);
    let key = hex(P256_KEY);
    let r = hex("EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716");
    let s = hex("F7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8");
    let order = hex("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551");
    let good = der_signature(&r, &s);
    assert!(verifies_in_chain(provider, algorithm, &key, b"sample", &good));
    let mut bad = vec![der_signature(&[0], &s), der_signature(&r, &[0]), der_signature(&[0], &[0])];
    bad.push(der_signature(&order, &s));
    bad.push(der_signature(&r, &order));
    bad.push([&r[..], &s].concat());
    bad.push([&good[..], &[0]].concat());
    bad.push(vec![]);
    // The long form of the length.
    bad.push([&[0x30, 0x81, good[1]], &good[2..]].concat());
    for signature in bad {
        assert!(!verifies_in_chain(provider, algorithm, &key, b"sample", &signature), "{signature:02x?}");
    }
}

/// Both paddings with every hash. A signature of one scheme does not verify under another.
pub fn rsa_signatures_of_openssl(provider: &CryptoProvider) {
    for (scheme, signature) in RSA_SIGNATURES {
        for (other, _) in RSA_SIGNATURES {
            let verified = verifies(provider, other, RSA_2048, MESSAGE, signature);
            assert_eq!(verified, other == scheme, "{scheme} as {other}");
        }
        assert!(!verifies(provider, scheme, RSA_2048, b"tent", signature));
    }
}

/// TLS requires a salt as long as the hash (RFC 8446 §4.2.3).
pub fn refuses_another_salt_length(provider: &CryptoProvider) {
    let signature = include_bytes!("../fixtures/rsa2048.pss_sha256_salt20.sig");
    assert!(!verifies(provider, SignatureScheme::RSA_PSS_RSAE_SHA256, RSA_2048, MESSAGE, signature));
}

/// A key of the type id-RSASSA-PSS verifies the schemes that its parameters allow, and a key of the type
/// rsaEncryption none of them (RFC 8446 §4.2.3).
pub fn rsa_pss_keys_of_openssl(provider: &CryptoProvider) {
    const KEY: &[u8] = include_bytes!("../fixtures/rsapss2048.spki.der");
    const SHA384_KEY: &[u8] = include_bytes!("../fixtures/rsapss2048_sha384.spki.der");
    let all: [(_, _, _, &[u8]); 3] = [
        (
            SignatureScheme::RSA_PSS_PSS_SHA256,
            SignatureScheme::RSA_PSS_RSAE_SHA256,
            RSA_SIGNATURES[3].1,
            include_bytes!("../fixtures/rsapss2048.sha256.sig"),
        ),
        (
            SignatureScheme::RSA_PSS_PSS_SHA384,
            SignatureScheme::RSA_PSS_RSAE_SHA384,
            RSA_SIGNATURES[4].1,
            include_bytes!("../fixtures/rsapss2048.sha384.sig"),
        ),
        (
            SignatureScheme::RSA_PSS_PSS_SHA512,
            SignatureScheme::RSA_PSS_RSAE_SHA512,
            RSA_SIGNATURES[5].1,
            include_bytes!("../fixtures/rsapss2048.sha512.sig"),
        ),
    ];
    let sha384_signature = include_bytes!("../fixtures/rsapss2048_sha384.sig");
    for (scheme, rsae, rsae_signature, signature) in all {
        for (other, ..) in all {
            assert_eq!(
                verifies(provider, other, KEY, MESSAGE, signature),
                other == scheme,
                "{scheme} as {other}"
            );
        }
        assert!(!verifies(provider, scheme, KEY, b"tent", signature));
        assert!(!verifies(provider, rsae, KEY, MESSAGE, signature), "{rsae} with an RSA-PSS key");
        assert!(!verifies(provider, scheme, RSA_2048, MESSAGE, rsae_signature), "{scheme} with an RSA key");
        let is_allowed = scheme == SignatureScheme::RSA_PSS_PSS_SHA384;
        assert_eq!(verifies(provider, scheme, SHA384_KEY, MESSAGE, sha384_signature), is_allowed, "{scheme}");
    }
    let signature = include_bytes!("../fixtures/rsapss2048.sha256_salt20.sig");
    assert!(!verifies(provider, SignatureScheme::RSA_PSS_PSS_SHA256, KEY, MESSAGE, signature));
}

/// RSA keys of 1024 bits are too short.
pub fn refuses_short_rsa_keys(provider: &CryptoProvider) {
    let pkcs1 = include_bytes!("../fixtures/rsa1024.pkcs1_sha256.sig");
    let pss = include_bytes!("../fixtures/rsa1024.pss_sha256.sig");
    assert!(!verifies(provider, SignatureScheme::RSA_PKCS1_SHA256, RSA_1024, MESSAGE, pkcs1));
    assert!(!verifies(provider, SignatureScheme::RSA_PSS_RSAE_SHA256, RSA_1024, MESSAGE, pss));
}

/// Flips a bit in every byte of a signature, truncates and extends it.
pub fn refuses_every_damaged_byte(provider: &CryptoProvider) {
    let [_, ed25519_key, ed25519_message, ed25519_signature] = ED25519[3].map(hex);
    let ed25519_spki = [hex("302a300506032b6570032100"), ed25519_key].concat();
    let ed25519 = (SignatureScheme::ED25519, &ed25519_signature[..]);
    for (scheme, signature) in [ed25519, RSA_SIGNATURES[0], RSA_SIGNATURES[3]] {
        let (spki, message) = match scheme {
            SignatureScheme::ED25519 => (&ed25519_spki[..], &ed25519_message[..]),
            _ => (RSA_2048, MESSAGE),
        };
        let refused = |signature: &[u8]| !verifies(provider, scheme, spki, message, signature);
        assert!(!refused(signature), "{scheme}");
        for i in 0..signature.len() {
            let mut bad = signature.to_vec();
            bad[i] ^= 0x10;
            assert!(refused(&bad), "{scheme}, byte {i}");
        }
        assert!(refused(&[]));
        assert!(refused(&signature[1..]));
        assert!(refused(&signature[..signature.len() - 1]));
        assert!(refused(&[signature, &[0]].concat()));
        assert!(refused(&[&[0], signature].concat()));
    }
}

/// Flipped bits in key, message and signature, and wrong lengths (FIPS 204 §3.6.2).
pub fn refuses_damaged_ml_dsa(provider: &CryptoProvider) {
    /// The length of `SubjectPublicKeyInfo` before the key.
    const HEADER: usize = 22;
    // The lengths of signature and key (FIPS 204 table 2).
    for (scheme, len, key_len) in
        [(SignatureScheme::MLDSA44, 2420, 1312), (SignatureScheme::MLDSA65, 3309, 1952)]
    {
        let fixture = FIXTURES.into_iter().find(|f| f.schemes == [scheme]).unwrap();
        let signature = fixture.load(provider).sign(scheme, MESSAGE, &Reproducible::new(1)).unwrap();
        assert_eq!((signature.len(), fixture.public.len()), (len, HEADER + key_len));
        assert!(verifies(provider, scheme, fixture.public, MESSAGE, &signature));
        assert!(!verifies(provider, scheme, fixture.public, b"tent", &signature));
        let refused = |signature: &[u8]| !verifies(provider, scheme, fixture.public, MESSAGE, signature);
        for i in (0..signature.len()).step_by(11) {
            let mut bad = signature.clone();
            bad[i] ^= 0x10;
            assert!(refused(&bad), "byte {i} of the signature");
        }
        for i in (HEADER..fixture.public.len()).step_by(11) {
            let mut bad = fixture.public.to_vec();
            bad[i] ^= 0x10;
            assert!(!verifies(provider, scheme, &bad, MESSAGE, &signature), "byte {i} of the key");
        }
        assert!(refused(&[]) && refused(&signature[1..]) && refused(&signature[..len - 1]));
        assert!(refused(&[&signature[..], &[0]].concat()));
    }
}
