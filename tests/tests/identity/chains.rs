//! Certificate chains: their maximum depth, and the reasons for a refusal.

use std::sync::Arc;

use dunlin::auth::X509Trust;
use dunlin::error::{AuthenticationFailure as Failure, Misuse};
use dunlin::pki_types::CertificateDer;
use dunlin::wire::AlertDescription as Alert;
use dunlin::{ClientAuth, ClientConfig, Error, Profile, ServerConfig, Side, Trust};
use dunlin_tests::{KeyType, NOW, Pair, Pki, awslc};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

/// Verifies a server's chain.
fn verify(trust: &X509Trust, chain: &[CertificateDer<'_>]) -> Result<(), Failure> {
    trust.verify_chain(awslc().signatures.all, chain, Side::Server, None, NOW).unwrap()
}

fn authority(name: &str, constraints: BasicConstraints) -> CertificateParams {
    let mut params = params(name);
    params.is_ca = IsCa::Ca(constraints);
    params
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn key() -> KeyPair {
    KeyPair::generate().unwrap()
}

/// A root with this constraint that has replaced its key, and the chain of a leaf under the new key. If `is_forged`, another
/// key has signed the leaf.
fn with_two_keys(
    constraints: BasicConstraints,
    is_forged: bool,
) -> (X509Trust, [CertificateDer<'static>; 3]) {
    let (root, old, new, other) = (key(), key(), key(), key());
    let root_params = authority("Root", BasicConstraints::Unconstrained);
    let anchor = root_params.self_signed(&root).unwrap().der().clone();
    let root = Issuer::new(root_params, root);
    let old_params = authority("Authority", constraints);
    let first = old_params.signed_by(&old, &root).unwrap().der().clone();
    let new_params = authority("Authority", BasicConstraints::Unconstrained);
    let second = new_params.signed_by(&new, &Issuer::new(old_params, old)).unwrap().der().clone();
    let issuer = Issuer::new(new_params, if is_forged { other } else { new });
    let leaf = params("localhost").signed_by(&key(), &issuer).unwrap().der().clone();
    (X509Trust::anchors([anchor]).unwrap(), [leaf, second, first])
}

#[test]
fn self_issued_authority_is_not_reported_as_a_bad_signature() {
    let (trust, chain) = with_two_keys(BasicConstraints::Unconstrained, false);
    assert_eq!(verify(&trust, &chain), Ok(()));
    // webpki counts self-issued authorities; RFC 5280 §6.1.4 does not.
    let (trust, chain) = with_two_keys(BasicConstraints::Constrained(0), false);
    assert_eq!(verify(&trust, &chain), Err(Failure::ConstraintViolated));
    for constraints in [BasicConstraints::Unconstrained, BasicConstraints::Constrained(0)] {
        let (trust, chain) = with_two_keys(constraints, true);
        assert_eq!(verify(&trust, &chain), Err(Failure::BadChainSignature));
    }
}

/// The search for the reason verifies only few signatures, so it tries no key under another name.
#[test]
fn unrelated_certificates_do_not_hide_the_reason_for_a_refusal() {
    let (trust, [leaf, second, first]) = with_two_keys(BasicConstraints::Constrained(0), false);
    let unrelated = |i| {
        let params = authority(&format!("Other {i}"), BasicConstraints::Unconstrained);
        params.self_signed(&key()).unwrap().der().clone()
    };
    let chain: Vec<_> = [leaf].into_iter().chain((0..12).map(unrelated)).chain([second, first]).collect();
    assert_eq!(verify(&trust, &chain), Err(Failure::ConstraintViolated));
}

#[test]
fn maximum_depth_counts_intermediate_authorities() {
    let pki = Pki::shared(KeyType::P256);
    let deep = |depth| pki.trust().with_max_depth(depth).unwrap();
    assert_eq!(verify(&deep(1), &pki.server.chain), Ok(()));
    assert_eq!(verify(&deep(0), &pki.server.chain), Err(Failure::ChainTooLong));
    // The last `with_max_depth` applies.
    assert_eq!(verify(&deep(0).with_max_depth(1).unwrap(), &pki.server.chain), Ok(()));
    let intermediate = X509Trust::anchors([pki.server.chain[1].clone()]).unwrap();
    assert_eq!(verify(&intermediate.with_max_depth(0).unwrap(), &pki.server.chain), Ok(()));
    assert!(X509Trust::DangerAnyone.with_max_depth(3).is_err() && X509Trust::Ask.with_max_depth(3).is_err());
    let settings = |x509| {
        let trust = Trust { x509: Some(x509), raw_key: None };
        let config = ClientConfig::new(Profile::builder(awslc()).trust(trust).build().unwrap());
        *config.session_settings().as_bytes()
    };
    assert!(settings(deep(0)) != settings(deep(1)) && settings(deep(1)) != settings(pki.trust()));
}

#[test]
fn both_sides_refuse_chains_above_the_maximum_depth() {
    let (provider, pki) = (awslc(), Pki::shared(KeyType::P256));
    for of_client in [true, false] {
        let profile = |leaf: &dunlin_tests::Leaf, depth| {
            let trust = Trust { x509: Some(pki.trust().with_max_depth(depth).unwrap()), raw_key: None };
            Profile::builder(provider.clone()).trust(trust).credentials(vec![leaf.x509(&provider)]).build()
        };
        let client = ClientConfig::new(profile(&pki.client, u8::from(!of_client)).unwrap());
        let server = ServerConfig::new(profile(&pki.server, u8::from(of_client)).unwrap()).unwrap();
        let server = server.with_client_auth(ClientAuth::Required).unwrap();
        let mut pair = Pair::new(&Arc::new(client), &Arc::new(server));
        assert_eq!(pair.run(), Err(Failure::ChainTooLong.into()));
        let other = if of_client { &pair.server } else { &pair.client };
        assert_eq!(other.error(), Some(&Error::AlertReceived(Alert::UNKNOWN_CA)));
    }
}

/// The leaf names the trust anchor as its issuer, but another key has signed it. RSA with 2048 bits is not too short.
#[test]
fn forged_leaf_is_reported_as_a_bad_signature() {
    for algorithm in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_RSA_SHA256] {
        let [root, thief] = [(); 2].map(|()| KeyPair::generate_for(algorithm).unwrap());
        let root_params = authority("Root", BasicConstraints::Unconstrained);
        let trust = X509Trust::anchors([root_params.self_signed(&root).unwrap().der().clone()]).unwrap();
        for (signer, result) in [(root, Ok(())), (thief, Err(Failure::BadChainSignature))] {
            let issuer = Issuer::new(root_params.clone(), signer);
            let leaf = params("localhost").signed_by(&key(), &issuer).unwrap().der().clone();
            assert_eq!(verify(&trust, &[leaf]), result, "{algorithm:?}");
        }
    }
}

#[test]
fn profile_refuses_trust_without_anchors() {
    let build = |x509| {
        let trust = Trust { x509: Some(x509), raw_key: None };
        Profile::builder(awslc()).trust(trust).build()
    };
    let none = || X509Trust::Anchors(Vec::new());
    for trust in
        [none(), X509Trust::MaxDepth(1, none().into()), X509Trust::MaxDepth(1, X509Trust::Ask.into())]
    {
        assert!(matches!(build(trust).unwrap_err(), Error::Misuse(Misuse::Config(_))));
    }
    build(X509Trust::Ask).unwrap();
}
