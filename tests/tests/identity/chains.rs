//! Certificate chains: their maximum depth, and the reasons for a refusal.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dunlin::auth::{Revocation, X509Trust};
use dunlin::error::{AuthenticationFailure as Failure, Misuse};
use dunlin::pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, PrivateKeyDer, SignatureVerificationAlgorithm,
};
use dunlin::wire::{AlertDescription as Alert, SignatureScheme};
use dunlin::{ClientAuth, ClientConfig, Credential, Error, Profile, ServerConfig, Side, Trust};
use dunlin_tests::{KeyType, NOW, Pair, Pki, awslc};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CustomExtension, DnType, IsCa,
    Issuer, KeyIdMethod, KeyPair, RevokedCertParams, SerialNumber,
};

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

/// A root with this constraint that has replaced its key, and the chain of a leaf under the new key. If
/// `is_forged`, another key has signed the leaf.
fn with_two_keys(
    constraints: BasicConstraints,
    is_forged: bool,
) -> (X509Trust, [CertificateDer<'static>; 3]) {
    let root = key();
    let old = key();
    let new = key();
    let other = key();
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
    let provider = awslc();
    let pki = Pki::shared(KeyType::P256);
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

/// The leaf names the trust anchor as its issuer, but another key has signed it. RSA with 2048 bits is not
/// too short.
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

/// An algorithm of a provider that counts how often it verifies a signature.
#[derive(Debug)]
struct Counted {
    algorithm: &'static dyn SignatureVerificationAlgorithm,
    count: &'static AtomicUsize,
}

impl SignatureVerificationAlgorithm for Counted {
    fn verify_signature(&self, key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.algorithm.verify_signature(key, message, signature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.algorithm.signature_alg_id()
    }
}

/// The signature algorithms of a provider that counts, and its counter.
fn counting() -> (&'static [&'static dyn SignatureVerificationAlgorithm], &'static AtomicUsize) {
    let count: &AtomicUsize = Box::leak(Box::default());
    let counted = |algorithm: &&'static dyn SignatureVerificationAlgorithm| {
        let counted: &'static Counted = Box::leak(Box::new(Counted { algorithm: *algorithm, count }));
        counted as &dyn SignatureVerificationAlgorithm
    };
    (
        Box::leak(
            dunlin_awslc::ALL_SIGNATURES.all.iter().map(counted).collect::<Vec<_>>().into_boxed_slice(),
        ),
        count,
    )
}

/// The verdict on a server's chain, and the number of signatures that it cost.
fn cost(trust: &X509Trust, chain: &[CertificateDer<'_>]) -> (Result<(), Failure>, usize) {
    let (algorithms, count) = counting();
    let verdict = trust.verify_chain(algorithms, chain, Side::Server, None, NOW).unwrap();
    (verdict, count.load(Ordering::Relaxed))
}

/// An authority's certificate with the key identifier of this number, or without key identifiers.
fn named(name: &str, number: Option<u8>) -> CertificateParams {
    let mut params = authority(name, BasicConstraints::Unconstrained);
    params.use_authority_key_identifier_extension = number.is_some();
    match number {
        Some(number) => params.key_identifier_method = KeyIdMethod::PreSpecified(vec![number; 20]),
        // rcgen adds a key identifier to each authority that it knows as one.
        None => {
            params.is_ca = IsCa::NoCa;
            let is_ca = vec![0x30, 3, 1, 1, 0xff];
            params.custom_extensions = vec![CustomExtension::from_oid_content(&[2, 5, 29, 19], is_ca)];
        }
    }
    params
}

/// A root's certificate and its key.
fn root(name: &str, number: Option<u8>) -> (CertificateDer<'static>, Issuer<'static, KeyPair>) {
    let params = named(name, number);
    let key = key();
    (params.self_signed(&key).unwrap().der().clone(), Issuer::new(params, key))
}

/// A leaf and the authorities of one subject below a root that has only the name of the trusted one. The last
/// of them has issued the leaf. They have one key identifier, or invent one each.
fn forged(
    algorithm: &'static rcgen::SignatureAlgorithm,
    count: u8,
    invents: bool,
) -> (Vec<CertificateDer<'static>>, KeyPair) {
    let new = || KeyPair::generate_for(algorithm).unwrap();
    let fake = Issuer::new(named("Root", Some(0)), new());
    let number = |i| Some(if invents { i } else { 1 });
    let authorities = (1..=count).map(|i| Issuer::new(named("Authority", number(i)), new()));
    let authorities: Vec<_> = authorities.collect();
    let key = new();
    let mut leaf = params("localhost");
    leaf.use_authority_key_identifier_extension = true;
    let leaf = leaf.signed_by(&key, authorities.last().unwrap()).unwrap().der().clone();
    let certificates = (1..=count).zip(&authorities).map(|(i, authority)| {
        named("Authority", number(i)).signed_by(authority.key(), &fake).unwrap().der().clone()
    });
    ([leaf].into_iter().chain(certificates).collect(), key)
}

/// A client's certificate message of 26 kB, whose verification takes the server one call of `receive`.
#[test]
fn peer_buys_at_most_eight_verifications() {
    let (certificate, _) = root("Root", Some(0));
    let trust = || X509Trust::anchors([certificate.clone()]).unwrap();
    for (invents, count, reason) in
        [(false, 2, Failure::TooManyCertificates), (true, 8, Failure::TooManyVerifications)]
    {
        let (chain, key) = forged(&rcgen::PKCS_ECDSA_P521_SHA512, 62, invents);
        assert_eq!(cost(&trust(), &chain), (Err(reason.clone()), count));

        let bytes: usize = chain.iter().map(|certificate| certificate.len()).sum();
        assert!(bytes > 20_000, "{bytes}");
        let key = awslc().key_loader.load(&PrivateKeyDer::Pkcs8(key.serialize_der().into())).unwrap();
        let pki = Pki::shared(KeyType::P256);
        let client = Profile::builder(awslc())
            .trust(Trust { x509: Some(pki.trust()), raw_key: None })
            .credentials(vec![Credential::x509(chain, key)]);
        let mut provider = dunlin_awslc::provider();
        let (algorithms, counted) = counting();
        provider.signatures.all = algorithms;
        provider.signatures.schemes = Box::leak(Box::new([
            (SignatureScheme::ECDSA_SECP521R1_SHA512, algorithms),
            (SignatureScheme::ECDSA_SECP256R1_SHA256, algorithms),
        ]));
        let provider = Arc::new(provider);
        let server = Profile::builder(provider.clone())
            .trust(Trust { x509: Some(trust()), raw_key: None })
            .credentials(vec![pki.server.x509(&provider)]);
        let server = ServerConfig::new(server.build().unwrap()).unwrap();
        let server = server.with_client_auth(ClientAuth::Required).unwrap();
        let mut pair = Pair::new(&Arc::new(ClientConfig::new(client.build().unwrap())), &Arc::new(server));
        assert_eq!(pair.run(), Err(reason.into()));
        assert_eq!(counted.load(Ordering::Relaxed), count);
    }
}

/// An honest chain of the greatest length costs its signatures, with and without key identifiers.
#[test]
fn each_signature_of_a_chain_is_verified_once() {
    for numbered in [true, false] {
        let number = |i| numbered.then_some(i);
        let (certificate, mut issuer) = root("Root", number(0));
        let trust = X509Trust::anchors([certificate]).unwrap();
        let mut chain = vec![];
        for i in 1..=6 {
            let params = named(&format!("Authority {i}"), number(i));
            let key = key();
            chain.insert(0, params.signed_by(&key, &issuer).unwrap().der().clone());
            issuer = Issuer::new(params, key);
        }
        chain.insert(0, params("localhost").signed_by(&key(), &issuer).unwrap().der().clone());
        assert_eq!(cost(&trust, &chain), (Ok(()), 7));
        let seventh = named("Authority 7", number(7));
        let key = key();
        chain[0] = seventh.signed_by(&key, &issuer).unwrap().der().clone();
        let issuer = Issuer::new(seventh, key);
        chain.insert(0, params("localhost").signed_by(&self::key(), &issuer).unwrap().der().clone());
        assert_eq!(cost(&trust, &chain), (Err(Failure::ChainTooLong), 6));
    }
}

/// The administrator trusts ten roots of one name. Key identifiers choose among them. Without these, all of
/// them are tried.
#[test]
fn own_roots_of_one_name_do_not_use_up_the_count() {
    for numbered in [true, false] {
        let number = |i| numbered.then_some(i);
        let roots: Vec<_> = (1..=10).map(|i| root("Root", number(i))).collect();
        let trust = X509Trust::anchors(roots.iter().map(|(certificate, _)| certificate.clone())).unwrap();
        for (i, (_, root)) in (1..).zip(&roots) {
            let params = named("Authority", number(100));
            let key = key();
            let authority = params.signed_by(&key, root).unwrap().der().clone();
            let issuer = Issuer::new(params, key);
            let leaf = self::params("localhost").signed_by(&self::key(), &issuer).unwrap().der().clone();
            assert_eq!(cost(&trust, &[leaf, authority]), (Ok(()), if numbered { 2 } else { 1 + i }));
        }
        // Each of the wrong roots is free once, whatever number of certificates the peer sends.
        let (chain, _) = forged(&rcgen::PKCS_ECDSA_P256_SHA256, 62, true);
        let (verdict, count) = cost(&trust, &chain);
        assert_eq!(verdict, Err(Failure::TooManyVerifications));
        assert!(count <= 8 + 9, "{count}");
    }
}

/// An authority has two keys, and each has certificates of two roots. This side trusts only the last root.
#[test]
fn cross_certificates_lead_to_the_trusted_root() {
    let old = root("Old root", Some(1));
    let trusted = root("Root", Some(2));
    let trust = X509Trust::anchors([trusted.0.clone()]).unwrap();
    let authorities = [3, 4].map(|number| Issuer::new(named("Authority", Some(number)), key()));
    for issuer in &authorities {
        let mut leaf = params("localhost");
        leaf.use_authority_key_identifier_extension = true;
        let mut chain = vec![leaf.signed_by(&key(), issuer).unwrap().der().clone()];
        for (number, authority) in [3, 4].into_iter().zip(&authorities) {
            for (_, root) in [&old, &trusted] {
                let params = named("Authority", Some(number));
                chain.push(params.signed_by(authority.key(), root).unwrap().der().clone());
            }
        }
        chain.extend([old.0.clone(), trusted.0.clone()]);
        assert_eq!(cost(&trust, &chain), (Ok(()), 2));
    }
}

/// The paths to two roots pass one authority. The first path is invalid, because its root has revoked the
/// authority.
#[test]
fn the_signature_of_a_crl_is_verified_once_for_all_paths() {
    let roots = [root("First root", Some(1)), root("Second root", Some(2))];
    let trust = X509Trust::anchors(roots.each_ref().map(|(certificate, _)| certificate.clone())).unwrap();
    let authority = Issuer::new(named("Authority", Some(3)), key());
    let mut chain = vec![params("localhost").signed_by(&key(), &authority).unwrap().der().clone()];
    for (_, root) in &roots {
        let mut params = named("Authority", Some(3));
        params.serial_number = Some(SerialNumber::from(7u64));
        chain.push(params.signed_by(authority.key(), root).unwrap().der().clone());
    }
    let list = |issuer: &Issuer<'static, KeyPair>, revoked: &[u64]| {
        let begin = rcgen::date_time_ymd(2020, 1, 1);
        let end = rcgen::date_time_ymd(2999, 1, 1);
        let revoked = revoked.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: begin,
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: begin,
            next_update: end,
            crl_number: SerialNumber::from(1u64),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(issuer).unwrap().der().clone()
    };
    let [first, second] = roots.each_ref().map(|(_, root)| root);
    for (revoked_by_second, verdict) in
        [(&[][..], Ok(())), (&[7], Err(Failure::RevokedAuthority(Some("Authority".into()))))]
    {
        let lists = [list(&authority, &[]), list(first, &[7]), list(second, revoked_by_second)];
        let trust = trust.clone().with_revocation(Revocation::new(lists).unwrap()).unwrap();
        // Three certificates and three CRLs.
        assert_eq!(cost(&trust, &chain), (verdict, 6));
    }
}

/// Certificates that no path needs, and doubles, count for nothing.
#[test]
fn unneeded_certificates_cost_nothing() {
    let (certificate, root) = root("Root", Some(1));
    let trust = X509Trust::anchors([certificate]).unwrap();
    let leaf = params("localhost").signed_by(&key(), &root).unwrap().der().clone();
    let unrelated = self::root("Other", Some(2)).0;
    let chain: Vec<_> = [vec![leaf.clone(); 9], vec![unrelated; 40]].concat();
    assert_eq!(cost(&trust, &chain), (Ok(()), 1));
    // No name leads to a trust anchor, so no signature is verified.
    let (chain, _) = forged(&rcgen::PKCS_ECDSA_P256_SHA256, 11, true);
    let other = X509Trust::anchors([self::root("Other", None).0]).unwrap();
    assert_eq!(cost(&other, &chain), (Err(Failure::UnknownIssuer), 0));
    // The leaf's dates are checked first.
    let mut old = params("localhost");
    old.not_after = rcgen::date_time_ymd(2000, 1, 1);
    let old = old.signed_by(&key(), &root).unwrap().der().clone();
    let (verdict, count) = cost(&trust, &[old]);
    assert!(matches!(verdict, Err(Failure::Expired(_))) && count == 0);
}
