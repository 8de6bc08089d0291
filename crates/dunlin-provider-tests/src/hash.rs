//! Hashes, HMAC, and HKDF over it.

use dunlin::crypto::{CryptoProvider, Hash, HashAlgorithm};

use crate::hex;

/// The provider's hash function `algorithm`.
pub fn find(provider: &CryptoProvider, algorithm: HashAlgorithm) -> &'static dyn Hash {
    let suite = provider.cipher_suites.iter().find(|suite| suite.hash.algorithm() == algorithm);
    suite.unwrap_or_else(|| panic!("the provider has no {algorithm:?}")).hash
}

const BOTH: [HashAlgorithm; 2] = [HashAlgorithm::Sha256, HashAlgorithm::Sha384];

/// NIST's examples for FIPS 180-4: an empty message, one block and two blocks, at once and in pieces.
pub fn answers_of_fips_180_4(provider: &CryptoProvider) {
    let one_block = "abc";
    let two_blocks_256 = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    let two_blocks_384 = "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn\
                          hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu";
    for (algorithm, message, expected) in [
        (HashAlgorithm::Sha256, "", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        (
            HashAlgorithm::Sha256,
            one_block,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        ),
        (
            HashAlgorithm::Sha256,
            two_blocks_256,
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1",
        ),
        (
            HashAlgorithm::Sha384,
            "",
            "38b060a751ac96384cd9327eb1b1e36a21fdb71114be0743\
             4c0cc7bf63f6e1da274edebfe76f65fbd51ad2f14898b95b",
        ),
        (
            HashAlgorithm::Sha384,
            one_block,
            "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded163\
             1a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7",
        ),
        (
            HashAlgorithm::Sha384,
            two_blocks_384,
            "09330c33f71147e83d192fc782cd1b4753111b173b3b05d2\
             2fa08086e3b0f712fcc7c71a557e2db966c3e9fa91746039",
        ),
    ] {
        let hash = find(provider, algorithm);
        let expected = hex(expected);
        let message = message.as_bytes();
        assert_eq!(hash.hash(&[message]).as_ref(), expected);
        for cut in 0..=message.len() {
            let (head, tail) = message.split_at(cut);
            assert_eq!(hash.hash(&[head, tail]).as_ref(), expected, "cut at {cut}");
            let mut context = hash.start();
            context.update(head);
            assert_eq!(context.current().as_ref(), hash.hash(&[head]).as_ref());
            context.update(tail);
            assert_eq!(context.current().as_ref(), expected, "current() disturbed the computation at {cut}");
        }
    }
    for algorithm in BOTH {
        assert_eq!(find(provider, algorithm).hash(&[]).as_ref(), algorithm.of_nothing());
    }
}

/// NIST's long example, in pieces that are not multiples of the block.
pub fn million_times_a(provider: &CryptoProvider) {
    for (algorithm, expected) in [
        (HashAlgorithm::Sha256, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"),
        (
            HashAlgorithm::Sha384,
            "9d0e1809716474cb086e834e310a4a1ced149e9c00f24852\
             7972cec5704c2a5b07b8b3dc38ecc4ebae97ddd87f3d8985",
        ),
    ] {
        let mut context = find(provider, algorithm).start();
        for _ in 0..1000 {
            context.update(&[b'a'; 1000]);
        }
        assert_eq!(context.current().as_ref(), hex(expected));
    }
}

/// A fork and its origin do not affect each other.
pub fn a_fork_is_independent_of_its_origin(provider: &CryptoProvider) {
    for algorithm in BOTH {
        let hash = find(provider, algorithm);
        let mut context = hash.start();
        context.update(b"common ");
        let mut fork = context.fork();
        context.update(b"left");
        fork.update(b"right");
        assert_eq!(context.current().as_ref(), hash.hash(&[b"common left"]).as_ref());
        assert_eq!(fork.current().as_ref(), hash.hash(&[b"common right"]).as_ref());
        drop(context);
        fork.update(b"!");
        assert_eq!(fork.current().as_ref(), hash.hash(&[b"common right!"]).as_ref());
    }
}

/// RFC 4231 §4.2 to §4.8, without the truncated case 5.
pub fn hmac_answers_of_rfc_4231(provider: &CryptoProvider) {
    let case_6: &[u8] = b"Test Using Larger Than Block-Size Key - Hash Key First";
    let case_7: &[u8] =
        b"This is a test using a larger than block-size key and a larger than block-size data. \
                          The key needs to be hashed before being used by the HMAC algorithm.";
    let case_4_key = hex("0102030405060708090a0b0c0d0e0f10111213141516171819");
    let cases: [(&[u8], &[u8], &str, &str); 6] = [
        (
            &[0x0b; 20],
            b"Hi There",
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
            "afd03944d84895626b0825f4ab46907f15f9dadbe4101ec682aa034c7cebc59c\
             faea9ea9076ede7f4af152e8b2fa9cb6",
        ),
        (
            b"Jefe",
            b"what do ya want for nothing?",
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            "af45d2e376484031617f78d2b58a6b1b9c7ef464f5a01b47e42ec3736322445e\
             8e2240ca5e69e2c78b3239ecfab21649",
        ),
        (
            &[0xaa; 20],
            &[0xdd; 50],
            "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe",
            "88062608d3e6ad8a0aa2ace014c8a86f0aa635d947ac9febe83ef4e55966144b\
             2a5ab39dc13814b94e3ab6e101a34f27",
        ),
        (
            &case_4_key,
            &[0xcd; 50],
            "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b",
            "3e8a69b7783c25851933ab6290af6ca77a9981480850009cc5577c6e1f573b4e\
             6801dd23c4a7d679ccf8a386c674cffb",
        ),
        (
            &[0xaa; 131],
            case_6,
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
            "4ece084485813e9088d2c63a041bc5b44f9ef1012a2b588f3cd11f05033ac4c6\
             0c2ef6ab4030fe8296248df163f44952",
        ),
        (
            &[0xaa; 131],
            case_7,
            "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2",
            "6617178e941f020d351e2f254e8fd32c602420feb0b8fb9adccebb82461e99c5\
             a678cc31e799176d3860e6110c46523e",
        ),
    ];
    for (key, message, sha256, sha384) in cases {
        for (algorithm, expected) in [(HashAlgorithm::Sha256, sha256), (HashAlgorithm::Sha384, sha384)] {
            let key = find(provider, algorithm).hmac(key);
            assert_eq!(key.sign(&[message]).as_ref(), hex(expected));
            let (head, tail) = message.split_at(message.len() / 2);
            assert_eq!(key.sign(&[head, &[], tail]).as_ref(), hex(expected), "in parts, with a reused key");
        }
    }
}

/// RFC 5869 appendix A.1 to A.3, over the provider's HMAC.
pub fn hkdf_answers_of_rfc_5869(provider: &CryptoProvider) {
    let count = |from: u8, to: u8| (from..=to).collect::<Vec<u8>>();
    let cases = [
        (
            vec![0x0b; 22],
            count(0x00, 0x0c),
            count(0xf0, 0xf9),
            "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5",
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
        ),
        (
            count(0x00, 0x4f),
            count(0x60, 0xaf),
            count(0xb0, 0xff),
            "06a6b88c5853361a06104c9ceb35b45cef760014904671014a193f40c15fc244",
            "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c\
             59045a99cac7827271cb41c65e590e09da3275600c2f09b8367793a9aca3db71\
             cc30c58179ec3e87c14c01d5c1f3434f1d87",
        ),
        (
            vec![0x0b; 22],
            vec![],
            vec![],
            "19ef24a32c717b167f33a91d6f648bdf96596776afdb6377ac434c1c293ccb04",
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
        ),
    ];
    let hash = find(provider, HashAlgorithm::Sha256);
    for (secret, salt, info, prk, okm) in cases {
        let extracted = hash.hmac(&salt).sign(&[&secret]);
        assert_eq!(extracted.as_ref(), hex(prk));
        let key = hash.hmac(extracted.as_ref());
        let okm = hex(okm);
        let mut previous = Vec::new();
        for (i, expected) in okm.chunks(32).enumerate() {
            previous = key.sign(&[&previous, &info, &[i as u8 + 1]]).as_ref().to_vec();
            assert_eq!(&previous[..expected.len()], expected);
        }
    }
}

/// Keys up to the block length are padded with zeros; longer ones are hashed (RFC 2104 §2).
pub fn hmac_pads_short_keys_and_hashes_long_ones(provider: &CryptoProvider) {
    for (algorithm, block) in [(HashAlgorithm::Sha256, 64), (HashAlgorithm::Sha384, 128)] {
        let hash = find(provider, algorithm);
        let hmac = |key: &[u8]| hash.hmac(key).sign(&[b"message"]).as_ref().to_vec();
        let long = vec![7; block + 1];
        let mut padded = long[..block - 1].to_vec();
        padded.push(0);
        assert_eq!(hmac(&long[..block - 1]), hmac(&padded));
        assert_ne!(hmac(&long[..block]), hmac(&padded));
        assert_ne!(hmac(&long[..block]), hmac(hash.hash(&[&long[..block]]).as_ref()));
        assert_eq!(hmac(&long), hmac(hash.hash(&[&long]).as_ref()));
    }
}
