use dunlin::crypto::MAX_TAG_LEN;
use dunlin::crypto::ProviderFault;
use pki_types::{PrivatePkcs8KeyDer, alg_id};

use super::*;

#[test]
fn engine_refuses_the_provider() {
    assert_eq!(null_provider().check(), Err(ProviderFault::Hash(HashAlgorithm::Sha256)));
}

#[test]
fn hashes_of_different_inputs_differ() {
    for suite in null_provider().cipher_suites {
        let hash = suite.hash;
        let len = hash.algorithm().output_len();
        let output = hash.hash(&[b"a", b"bc"]);
        assert_eq!(output.as_ref().len(), len);
        assert_eq!(output.as_ref(), hash.hash(&[b"abc"]).as_ref());
        assert_ne!(output.as_ref(), hash.hash(&[b"abd"]).as_ref());
        let mut context = hash.start();
        context.update(b"ab");
        let fork = context.fork();
        context.update(b"c");
        assert_eq!(context.current().as_ref(), output.as_ref());
        assert_ne!(fork.current().as_ref(), output.as_ref());
        assert_eq!(hash.hmac(b"key").sign(&[b"message"]).as_ref(), &MAC[..len]);
    }
}

#[test]
fn records_are_plaintext_and_need_the_tag() {
    for suite in null_provider().cipher_suites {
        let algorithm = suite.aead.algorithm();
        assert!(suite.aead.key(&vec![0; algorithm.key_len() + 1]).is_err());
        let key = suite.aead.key(&vec![0; algorithm.key_len()]).unwrap();
        let mut data = *b"readable";
        let mut tag = vec![0; algorithm.tag_len()];
        key.seal(&[0; 12], b"", &mut data, &mut tag).unwrap();
        assert_eq!(&data, b"readable");
        assert_eq!(tag, TAG[..algorithm.tag_len()]);
        assert_eq!(key.open(&[1; 12], b"another", &mut data, &tag), Ok(()));
        tag[0] ^= 1;
        assert_eq!(key.open(&[0; 12], b"", &mut data, &tag), Err(CryptoError));
        assert_eq!(key.open(&[0; 12], b"", &mut data, &[TAG[0]; MAX_TAG_LEN + 1]), Err(CryptoError));
        let mask = suite.aead.record_number_key(&vec![0; algorithm.key_len()]).unwrap();
        assert_eq!(mask.mask(&[7; 16]), [0, 0]);
    }
}

#[test]
fn every_share_of_the_right_length_gives_the_same_secret() {
    let provider = null_provider();
    for group in provider.groups.into_iter().chain([FFDHE2048]) {
        let start = || group.start(&*provider.random).unwrap();
        let len = start().share().len();
        assert_eq!(start().share(), &SHARE[..len]);
        let secret = start().complete(&SHARE[..len]).unwrap();
        assert_eq!(start().complete(&vec![9; len]).unwrap().as_bytes(), secret.as_bytes());
        assert!(start().complete(&vec![9; len + 1]).is_err());
    }
}

#[test]
fn only_the_constant_verifies_as_a_signature() {
    let provider = null_provider();
    for kind in [alg_id::ECDSA_P256, alg_id::ECDSA_P384, alg_id::ED25519, alg_id::RSA_ENCRYPTION] {
        let spki = [b"\x30\x40".as_slice(), kind.as_ref(), b"key"].concat();
        let key = provider.key_loader.load(&PrivatePkcs8KeyDer::from(spki.clone()).into()).unwrap();
        assert_eq!(key.public_key().as_ref(), spki);
        for (scheme, algorithms) in provider.signatures.schemes {
            let signature = key.sign(*scheme, b"message", &*provider.random);
            assert_eq!(signature.is_ok(), key.schemes().contains(scheme));
            let verified = |signature: &[u8]| algorithms[0].verify_signature(b"", b"", signature).is_ok();
            assert!(verified(&signature.unwrap_or(SIGNATURE.to_vec())));
            assert!(!verified(b"other"));
        }
    }
    for of_chains in provider.signatures.all {
        assert!(of_chains.verify_signature(b"", b"\x30\x03any", b"any").is_ok());
        assert!(of_chains.verify_signature(b"", b"\x01of a handshake", b"any").is_err());
        assert!(of_chains.verify_signature(b"", b"\x01of a handshake", &SIGNATURE).is_ok());
    }
    assert!(provider.key_loader.load(&PrivatePkcs8KeyDer::from(&b"junk"[..]).into()).is_err());
}

#[test]
fn random_source_counts() {
    let bytes = |random: &dyn SecureRandom| {
        let mut bytes = [0; 12];
        random.fill(&mut bytes).unwrap();
        bytes
    };
    let one = null_provider().random;
    let two = null_provider().random;
    assert_eq!(bytes(&*one), [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
    assert_eq!(bytes(&*one), [2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0]);
    assert_eq!(bytes(&*two), [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]);
}
