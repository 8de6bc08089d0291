//! Record protection.

use dunlin::crypto::{Aead, AeadAlgorithm, AeadKey, CryptoProvider, NONCE_LEN};

use crate::hex;
use crate::random::Reproducible;

/// The provider's AEAD `algorithm`.
pub fn find(provider: &CryptoProvider, algorithm: AeadAlgorithm) -> &'static dyn Aead {
    let suite = provider.cipher_suites.iter().find(|suite| suite.aead.algorithm() == algorithm);
    suite.unwrap_or_else(|| panic!("the provider has no {algorithm:?}")).aead
}

/// Every AEAD.
pub const ALL: [AeadAlgorithm; 5] = [
    AeadAlgorithm::Aes128Gcm,
    AeadAlgorithm::Aes256Gcm,
    AeadAlgorithm::ChaCha20Poly1305,
    AeadAlgorithm::Aes128Ccm,
    AeadAlgorithm::Aes128Ccm8,
];

struct Vector<'a> {
    algorithm: AeadAlgorithm,
    key: &'a str,
    nonce: &'a str,
    aad: &'a str,
    plain: &'a str,
    sealed: &'a str,
    tag: &'a str,
}

impl Vector<'_> {
    fn check(&self, provider: &CryptoProvider) {
        let key = find(provider, self.algorithm).key(&hex(self.key)).unwrap();
        let nonce = hex(self.nonce).try_into().unwrap();
        let plain = hex(self.plain);
        let aad = hex(self.aad);
        let mut data = plain.clone();
        let mut tag = vec![0; self.algorithm.tag_len()];
        key.seal(&nonce, &aad, &mut data, &mut tag).unwrap();
        assert_eq!(data, hex(self.sealed), "{:?}", self.algorithm);
        assert_eq!(tag, hex(self.tag), "{:?}", self.algorithm);
        key.open(&nonce, &aad, &mut data, &tag).unwrap();
        assert_eq!(data, plain);
    }
}

/// McGrew and Viega, The Galois/Counter Mode of Operation, appendix B: test cases 1 to 4 and 13 to 16.
pub fn gcm_answers_of_its_specification(provider: &CryptoProvider) {
    let key_128 = "feffe9928665731c6d6a8f9467308308";
    let key_256 = "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308";
    let zero_128 = "00000000000000000000000000000000";
    let zero_256 = "0000000000000000000000000000000000000000000000000000000000000000";
    let zero_nonce = "000000000000000000000000";
    let nonce = "cafebabefacedbaddecaf888";
    let aad = "feedfacedeadbeeffeedfacedeadbeefabaddad2";
    let plain = "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
                 1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255";
    let sealed_128 = "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e\
                      21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091473f5985";
    let sealed_256 = "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa\
                      8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662898015ad";
    // Cases 4 and 16 omit the last four bytes of the plaintext.
    let short = |text: &'static str| &text[..text.len() - 8];
    for (algorithm, zero, key, sealed, zero_sealed, tags) in [
        (
            AeadAlgorithm::Aes128Gcm,
            zero_128,
            key_128,
            sealed_128,
            "0388dace60b6a392f328c2b971b2fe78",
            [
                "58e2fccefa7e3061367f1d57a4e7455a",
                "ab6e47d42cec13bdf53a67b21257bddf",
                "4d5c2af327cd64a62cf35abd2ba6fab4",
                "5bc94fbc3221a5db94fae95ae7121a47",
            ],
        ),
        (
            AeadAlgorithm::Aes256Gcm,
            zero_256,
            key_256,
            sealed_256,
            "cea7403d4d606b6e074ec5d3baf39d18",
            [
                "530f8afbc74536b9a963b4f1c4cb738b",
                "d0d1c8a799996bf0265b98b5d48ab919",
                "b094dac5d93471bdec1a502270e3cc6c",
                "76fc6ece0f4e1768cddf8853bb2d551b",
            ],
        ),
    ] {
        let [empty, one_block, four_blocks, with_aad] = tags;
        for (key, nonce, aad, plain, sealed, tag) in [
            (zero, zero_nonce, "", "", "", empty),
            (zero, zero_nonce, "", zero_128, zero_sealed, one_block),
            (key, nonce, "", plain, sealed, four_blocks),
            (key, nonce, aad, short(plain), short(sealed), with_aad),
        ] {
            Vector { algorithm, key, nonce, aad, plain, sealed, tag }.check(provider);
        }
    }
}

/// RFC 8439 §2.8.2.
pub fn chacha20_poly1305_answer_of_rfc_8439(provider: &CryptoProvider) {
    Vector {
        algorithm: AeadAlgorithm::ChaCha20Poly1305,
        key: "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f",
        nonce: "070000004041424344454647",
        aad: "50515253c0c1c2c3c4c5c6c7",
        plain: "4c616469657320616e642047656e746c656d656e206f662074686520636c6173\
                73206f66202739393a204966204920636f756c64206f6666657220796f75206f\
                6e6c79206f6e652074697020666f7220746865206675747572652c2073756e73\
                637265656e20776f756c642062652069742e",
        sealed: "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d6\
                 3dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b36\
                 92ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc\
                 3ff4def08e4b7a9de576d26586cec64b6116",
        tag: "1ae10b594f09e26a7e902ecbd0600691",
    }
    .check(provider);
}

/// NIST SP 800-38C appendix C, example 3 (8-byte tag), and NIST's CAVP file VNT128.rsp, case 50 (16-byte
/// tag).
pub fn ccm_answers_of_nist(provider: &CryptoProvider) {
    Vector {
        algorithm: AeadAlgorithm::Aes128Ccm8,
        key: "404142434445464748494a4b4c4d4e4f",
        nonce: "101112131415161718191a1b",
        aad: "000102030405060708090a0b0c0d0e0f10111213",
        plain: "202122232425262728292a2b2c2d2e2f3031323334353637",
        sealed: "e3b201a9f5b71a7a9b1ceaeccd97e70b6176aad9a4428aa5",
        tag: "484392fbc1b09951",
    }
    .check(provider);
    Vector {
        algorithm: AeadAlgorithm::Aes128Ccm,
        key: "005e8f4d8e0cbf4e1ceeb5d87a275848",
        nonce: "0ec3ac452b547b9062aac8fa",
        aad: "2f1821aa57e5278ffd33c17d46615b77363149dbc98470413f6543a6b749f2ca",
        plain: "b6f345204526439daf84998f380dcfb4b4167c959c04ff65",
        sealed: "9575e16f35da3c88a19c26a7b762044f4d7bbbafeff05d75",
        tag: "4829e2a7752fa3a14890972884b511d8",
    }
    .check(provider);
}

/// Lengths from zero to the largest TLS 1.3 record (RFC 8446 §5.2), and different lengths of additional data.
pub fn opens_its_own_ciphertexts_at_every_length(provider: &CryptoProvider) {
    let random = Reproducible::new(1);
    for algorithm in ALL {
        let key = find(provider, algorithm).key(&random.bytes(algorithm.key_len())).unwrap();
        let lengths = (0..=65).chain([255, 256, 1023, 16_384, 16_384 + 256]);
        for len in lengths {
            for aad_len in [0, 5, 13, 255] {
                let nonce = random.bytes(NONCE_LEN).try_into().unwrap();
                let plain = random.bytes(len);
                let aad = random.bytes(aad_len);
                let mut data = plain.clone();
                let mut tag = vec![0; algorithm.tag_len()];
                key.seal(&nonce, &aad, &mut data, &mut tag).unwrap();
                assert!(len < 16 || data != plain, "{algorithm:?} did not encrypt");
                key.open(&nonce, &aad, &mut data, &tag).unwrap();
                assert_eq!(data, plain, "{algorithm:?}, {len} bytes");
            }
        }
    }
}

/// A sealed message that the tests damage.
struct Sealed {
    key: Box<dyn AeadKey>,
    nonce: [u8; NONCE_LEN],
    aad: Vec<u8>,
    data: Vec<u8>,
    tag: Vec<u8>,
}

impl Sealed {
    fn new(provider: &CryptoProvider, algorithm: AeadAlgorithm) -> Self {
        let random = Reproducible::new(2);
        let key = find(provider, algorithm).key(&random.bytes(algorithm.key_len())).unwrap();
        let nonce = random.bytes(NONCE_LEN).try_into().unwrap();
        let aad = random.bytes(13);
        let mut data = random.bytes(47);
        let mut tag = vec![0; algorithm.tag_len()];
        key.seal(&nonce, &aad, &mut data, &mut tag).unwrap();
        Self { key, nonce, aad, data, tag }
    }

    fn opens(&self) -> bool {
        self.key.open(&self.nonce, &self.aad, &mut self.data.clone(), &self.tag).is_ok()
    }
}

/// Flips bits in every byte of tag, additional data, nonce and ciphertext; changes their lengths.
pub fn refuses_every_damaged_byte(provider: &CryptoProvider) {
    for algorithm in ALL {
        let mut sealed = Sealed::new(provider, algorithm);
        assert!(sealed.opens());
        let parts: [fn(&mut Sealed) -> &mut [u8]; 4] =
            [|s| &mut s.tag, |s| &mut s.aad, |s| &mut s.nonce, |s| &mut s.data];
        for part in parts {
            for i in 0..part(&mut sealed).len() {
                for bit in [0x01, 0x80] {
                    part(&mut sealed)[i] ^= bit;
                    assert!(!sealed.opens(), "{algorithm:?}, byte {i}");
                    part(&mut sealed)[i] ^= bit;
                }
            }
        }
        assert!(sealed.opens());
        sealed.aad.push(0);
        assert!(!sealed.opens());
        sealed.aad.pop();
        sealed.data.push(0);
        assert!(!sealed.opens());
        sealed.data.truncate(46);
        assert!(!sealed.opens());
        sealed.data.clear();
        assert!(!sealed.opens());
    }
}

/// A truncated or extended tag does not open, and sealing into a buffer of another length fails.
pub fn refuses_tags_of_other_lengths(provider: &CryptoProvider) {
    for algorithm in ALL {
        let mut sealed = Sealed::new(provider, algorithm);
        let tag = sealed.tag.clone();
        for len in (0..=2 * tag.len()).filter(|len| *len != tag.len()) {
            sealed.tag = tag.iter().copied().chain([0; 16]).take(len).collect();
            assert!(!sealed.opens(), "{algorithm:?} opened with {len} bytes of tag");
            let sealing = sealed.key.seal(&sealed.nonce, &[], &mut [0; 4], &mut vec![0; len]);
            assert!(sealing.is_err(), "{algorithm:?} sealed with {len} bytes of tag");
        }
    }
}

/// A message does not open under another key.
pub fn refuses_the_wrong_key(provider: &CryptoProvider) {
    for algorithm in ALL {
        let mut sealed = Sealed::new(provider, algorithm);
        sealed.key = find(provider, algorithm).key(&vec![9; algorithm.key_len()]).unwrap();
        assert!(!sealed.opens());
    }
}

/// Only keys with the length of the algorithm are accepted.
pub fn refuses_keys_of_other_lengths(provider: &CryptoProvider) {
    for algorithm in ALL {
        let aead = find(provider, algorithm);
        for len in (0..=64).filter(|len| *len != algorithm.key_len()) {
            assert!(aead.key(&vec![0; len]).is_err(), "{algorithm:?} took a key of {len} bytes");
        }
    }
}
