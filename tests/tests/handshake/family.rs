//! Features of TLS 1.3 beside the plain handshake: signature schemes for chains, and post-quantum key
//! exchange.

use std::sync::Arc;

use dunlin::auth::X509Trust;
use dunlin::crypto::{
    ActiveKeyExchange, CryptoError, CryptoProvider, HybridGroup, HybridOrder, KeyExchangeGroup,
    ProviderFault, SecureRandom,
};
use dunlin::error::{AuthenticationFailure, PeerIncompatible, PeerMisbehaved};
use dunlin::pki_types::{AlgorithmIdentifier, alg_id};
use dunlin::wire::{AlertDescription as Alert, NamedGroup, SignatureScheme};
use dunlin::{ClientAuth, ClientConfig, Credential, Error, Profile, ProfileBuilder, ServerConfig, Trust};
use dunlin_pki::{Authority, CaSpec, KeyPair, LeafSpec, Subject};
use dunlin_tests::{KeyType, NOW, Pair, Pki, awslc, full_providers, providers, validity};

const P256: SignatureScheme = SignatureScheme::ECDSA_SECP256R1_SHA256;
const P384: SignatureScheme = SignatureScheme::ECDSA_SECP384R1_SHA384;
const PKCS1: SignatureScheme = SignatureScheme::RSA_PKCS1_SHA256;

fn trusting(pki: &Pki) -> ProfileBuilder {
    Profile::builder(awslc()).trust(Trust { x509: Some(pki.trust()), raw_key: None })
}

/// The failure of a chain with signatures of this algorithm, which the profile does not accept.
fn unsupported(algorithm: AlgorithmIdentifier) -> Error {
    AuthenticationFailure::UnsupportedAlgorithm(algorithm.as_ref().to_vec()).into()
}

fn mutual(client: ProfileBuilder, server: ProfileBuilder) -> Pair {
    let client = ClientConfig::new(client.build().unwrap());
    let server = ServerConfig::new(server.build().unwrap()).unwrap();
    Pair::new(&Arc::new(client), &Arc::new(server.with_client_auth(ClientAuth::Required).unwrap()))
}

#[test]
fn chain_is_verified_with_the_schemes_of_the_profile_only() {
    let pki = Pki::mixed(KeyType::Rsa2048, KeyType::P256);
    for provider in providers() {
        let connect = |schemes: &[SignatureScheme], in_chains: Option<&[SignatureScheme]>| {
            let client = Profile::builder(provider.clone())
                .trust(Trust { x509: Some(pki.trust()), raw_key: None })
                .credentials(vec![pki.client.x509(&provider)])
                .signature_schemes(schemes.to_vec())
                .certificate_signature_schemes(in_chains.map(<[_]>::to_vec));
            let server = trusting(&pki).credentials(vec![pki.server.x509(&awslc())]);
            mutual(client, server).run()
        };
        let failure = unsupported(alg_id::RSA_PKCS1_SHA256);
        assert_eq!(failure.alert(), Some(Alert::UNSUPPORTED_CERTIFICATE));
        let refused = Err(failure);
        assert_eq!(connect(&[P256], None), refused, "{}", provider.name);
        assert_eq!(connect(&[P256, P384], None), refused);
        assert_eq!(connect(&[P256, PKCS1], None), Ok(()));
        assert_eq!(connect(&[P256], Some(&[PKCS1])), Ok(()));
        assert_eq!(connect(&[P256, PKCS1], Some(&[P256])), refused);
    }
}

/// A P-256 leaf below a P-384 authority, which signs with SHA-384.
#[test]
fn ecdsa_scheme_names_the_hash_of_a_chain_not_its_curve() {
    let pki = Pki::mixed(KeyType::P384, KeyType::P256);
    let connect = |schemes: &[SignatureScheme]| {
        let client = trusting(&pki).credentials(vec![pki.client.x509(&awslc())]);
        let server = trusting(&pki).credentials(vec![pki.server.x509(&awslc())]);
        mutual(client.signature_schemes(schemes.to_vec()), server).run()
    };
    assert_eq!(connect(&[P256, P384]), Ok(()));
    assert_eq!(connect(&[P256]), Err(unsupported(alg_id::ECDSA_SHA384)));
}

/// Both sides have P-256 leaves below an RSA and a P-384 authority, in this order.
#[test]
fn signature_algorithms_cert_selects_the_credential() {
    let rsa = Pki::mixed(KeyType::Rsa2048, KeyType::P256);
    let p384 = Pki::mixed(KeyType::P384, KeyType::P256);
    let trust = || X509Trust::anchors([rsa.root.clone(), p384.root.clone()]).unwrap();
    let profile = |own: [&dunlin_tests::Leaf; 2], in_chains: Option<Vec<SignatureScheme>>| {
        Profile::builder(awslc())
            .trust(Trust { x509: Some(trust()), raw_key: None })
            .credentials(own.map(|leaf| leaf.x509(&awslc())).to_vec())
            .certificate_signature_schemes(in_chains)
    };
    for (in_chains, expected) in
        [(None, &rsa), (Some(vec![PKCS1, P384]), &rsa), (Some(vec![P384]), &p384), (Some(vec![PKCS1]), &rsa)]
    {
        let client = profile([&rsa.client, &p384.client], in_chains.clone());
        let server = profile([&rsa.server, &p384.server], in_chains);
        let mut pair = mutual(client, server);
        pair.connect().unwrap();
        let leaf = |side: &dunlin::TlsConnection| match &side.negotiated().unwrap().peer {
            Some(dunlin::PeerIdentity::X509(identity)) => identity.chain[0].clone(),
            other => panic!("{other:?}"),
        };
        assert!(leaf(&pair.client) == expected.server.chain[0], "the server's leaf");
        assert!(leaf(&pair.server) == expected.client.chain[0], "the client's leaf");
    }
}

/// RFC 8446 §4.4.2.2: a server whose chains the client cannot verify sends one nevertheless.
#[test]
fn server_sends_its_chain_even_if_the_client_cannot_verify_it() {
    let pki = Pki::shared(KeyType::P256);
    let client = trusting(pki)
        .credentials(vec![pki.client.x509(&awslc())])
        .certificate_signature_schemes(Some(vec![SignatureScheme::ED25519]));
    let server = trusting(pki).credentials(vec![pki.server.x509(&awslc())]);
    let mut pair = mutual(client, server);
    assert_eq!(pair.run(), Err(unsupported(alg_id::ECDSA_SHA256)));
    assert_eq!(pair.server.error(), Some(&Error::AlertReceived(Alert::UNSUPPORTED_CERTIFICATE)));
}

#[test]
fn profile_refuses_unusable_schemes_for_chains() {
    let pki = Pki::shared(KeyType::P256);
    for (schemes, why) in [(vec![], "is empty"), (vec![SignatureScheme(0x0201)], "cannot verify 0x0201")] {
        let error = trusting(pki).certificate_signature_schemes(Some(schemes)).build().unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}

/// rsa_pss_rsae_* and rsa_pss_pss_* make equal signatures, with keys of different types (RFC 8446 §4.2.3).
#[test]
fn chains_are_verified_by_the_schemes_of_their_keys() {
    let root = CaSpec::new(Subject::common_name("RSA-PSS root").unwrap(), validity());
    let root = Authority::root(&root, KeyPair::generate(dunlin_pki::KeyType::RsaPss2048).unwrap()).unwrap();
    let leaf = LeafSpec::server(["localhost".parse().unwrap()], validity());
    let leaf = root.issue(&leaf, KeyPair::generate(dunlin_pki::KeyType::P256).unwrap()).unwrap();
    for provider in full_providers() {
        let connect = |in_chains| {
            let anchors = X509Trust::anchors([root.certificate().clone()]).unwrap();
            let client = Profile::builder(provider.clone())
                .trust(Trust { x509: Some(anchors), raw_key: None })
                .signature_schemes(vec![P256, in_chains]);
            let key = leaf.key.signing_key(&provider).unwrap();
            let credential = Credential::x509(leaf.chain.clone(), key);
            let server = Profile::builder(provider.clone()).credentials(vec![credential]).build().unwrap();
            let client = Arc::new(ClientConfig::new(client.build().unwrap()));
            Pair::new(&client, &Arc::new(ServerConfig::new(server).unwrap())).run()
        };
        assert_eq!(connect(SignatureScheme::RSA_PSS_PSS_SHA256), Ok(()), "{}", provider.name);
        let refused = Err(AuthenticationFailure::BadChainSignature.into());
        assert_eq!(connect(SignatureScheme::RSA_PSS_RSAE_SHA256), refused, "{}", provider.name);
    }
}

/// The hybrid groups, each with the curve in it.
const HYBRIDS: [(NamedGroup, NamedGroup); 2] = [
    (NamedGroup::X25519MLKEM768, NamedGroup::X25519),
    (NamedGroup::SECP256R1MLKEM768, NamedGroup::SECP256R1),
];

/// Each provider with its hybrid group of this name.
fn hybrids(name: NamedGroup) -> [(Arc<CryptoProvider>, &'static dyn KeyExchangeGroup); 2] {
    let [awslc, rustcrypto] = providers();
    match name {
        NamedGroup::SECP256R1MLKEM768 => {
            [(awslc, dunlin_awslc::SECP256R1MLKEM768), (rustcrypto, dunlin_rustcrypto::SECP256R1MLKEM768)]
        }
        _ => [(awslc, dunlin_awslc::X25519MLKEM768), (rustcrypto, dunlin_rustcrypto::X25519MLKEM768)],
    }
}

/// A client and a server with these groups and key shares, over P-256 certificates.
fn with_groups(
    client: (Arc<CryptoProvider>, Vec<&'static dyn KeyExchangeGroup>, Option<Vec<NamedGroup>>),
    server: (Arc<CryptoProvider>, Vec<&'static dyn KeyExchangeGroup>),
) -> Pair {
    let pki = Pki::shared(KeyType::P256);
    let trust = Trust { x509: Some(pki.trust()), raw_key: None };
    let profile = Profile::builder(client.0).trust(trust).groups(client.1).build().unwrap();
    let mut config = ClientConfig::new(profile);
    if let Some(shares) = client.2 {
        config = config.with_key_shares(shares).unwrap();
    }
    let credentials = vec![pki.server.x509(&server.0)];
    let profile = Profile::builder(server.0).credentials(credentials).groups(server.1).build().unwrap();
    Pair::new(&Arc::new(config), &Arc::new(ServerConfig::new(profile).unwrap()))
}

#[test]
fn hybrids_work_between_all_providers_and_after_a_retry() {
    for (name, curve) in HYBRIDS {
        for (client, ours) in hybrids(name) {
            for (server, theirs) in hybrids(name) {
                for shares in [None, Some(vec![]), Some(vec![curve])] {
                    let retried = shares.is_some();
                    let groups = vec![ours, client.group(curve).unwrap()];
                    let mut pair =
                        with_groups((client.clone(), groups, shares), (server.clone(), vec![theirs]));
                    pair.connect().unwrap_or_else(|e| panic!("{} to {}: {e}", client.name, server.name));
                    pair.echo(b"hello").unwrap();
                    for side in [&pair.client, &pair.server] {
                        let negotiated = side.negotiated().unwrap();
                        assert_eq!((negotiated.group, negotiated.retried), (Some(name), retried));
                    }
                }
            }
        }
    }
}

/// A server without the hybrid uses the share of its curve, which costs the client no extra key and no round
/// trip.
#[test]
fn client_offers_the_curve_of_a_hybrid_separately() {
    for ((name, curve), (client, hybrid)) in HYBRIDS.into_iter().flat_map(|h| hybrids(h.0).map(|p| (h, p))) {
        let plain = client.group(curve).unwrap();
        let old = || (awslc(), vec![awslc().group(curve).unwrap()]);
        for order in [[hybrid, plain], [plain, hybrid]] {
            let shares = Some(vec![name]);
            let mut pair = with_groups((client.clone(), order.to_vec(), shares), old());
            pair.connect().unwrap();
            pair.echo(b"hello").unwrap();
            let negotiated = pair.client.negotiated().unwrap();
            assert_eq!((negotiated.group, negotiated.retried), (Some(curve), false));
        }
        // A profile without the curve does not offer it.
        let mut pair = with_groups((client.clone(), vec![hybrid], None), old());
        assert_eq!(pair.run(), Err(PeerIncompatible::Group.into()));
    }
}

/// P-256 under the name of X25519.
#[derive(Debug)]
struct Misnamed;

impl KeyExchangeGroup for Misnamed {
    fn name(&self) -> NamedGroup {
        NamedGroup::X25519
    }

    fn start(&self, random: &dyn SecureRandom) -> Result<Box<dyn ActiveKeyExchange>, CryptoError> {
        dunlin_awslc::SECP256R1.start(random)
    }
}

#[test]
fn profile_refuses_hybrids_with_wrong_parts() {
    let hybrid = |curve, encapsulation_key_len, ciphertext_len| HybridGroup {
        name: NamedGroup::X25519MLKEM768,
        order: HybridOrder::KemFirst,
        kem: dunlin_awslc::ML_KEM_768,
        encapsulation_key_len,
        ciphertext_len,
        curve,
    };
    let fault = Err(ProviderFault::Group(NamedGroup::X25519MLKEM768));
    for (hybrid, expected) in [
        (hybrid(dunlin_awslc::X25519, 1184, 1088), Ok(())),
        (hybrid(dunlin_awslc::X25519, 1183, 1088), fault.clone()),
        (hybrid(dunlin_awslc::X25519, 1184, 1089), fault.clone()),
        (hybrid(&Misnamed, 1184, 1088), fault),
    ] {
        let mut provider = dunlin_awslc::provider();
        provider.groups.push(Box::leak(Box::new(hybrid)));
        assert_eq!(provider.check(), expected);
    }
}

/// Returns the server's error for a ClientHello with a changed hybrid share.
fn edited_share(edit: impl Fn(&mut [u8])) -> Error {
    let groups = || vec![dunlin_awslc::X25519MLKEM768];
    let mut pair = with_groups((awslc(), groups(), None), (awslc(), groups()));
    let mut hello = pair.client.transmit().to_vec();
    let header = [0x11, 0xec, 0x04, 0xc0];
    let at = hello.windows(4).position(|w| w == header).unwrap() + 4;
    edit(&mut hello[at..]);
    pair.server.receive(NOW, &hello).unwrap_err()
}

#[test]
fn rejects_invalid_shares_of_a_hybrid() {
    // A coefficient not below the modulus (FIPS 203 §7.2), and a point of small order.
    for edit in [|share: &mut [u8]| share[..3].fill(0xff), |share: &mut [u8]| share[1184..1216].fill(0)] {
        let error = edited_share(edit);
        assert_eq!(error, PeerMisbehaved::BadKeyShare.into());
        assert_eq!(error.alert(), Some(Alert::ILLEGAL_PARAMETER));
    }
    // The server's point.
    let groups = || vec![dunlin_awslc::X25519MLKEM768];
    let mut pair = with_groups((awslc(), groups(), None), (awslc(), groups()));
    let hello = pair.client.transmit().to_vec();
    pair.server.receive(NOW, &hello).unwrap();
    let mut answer = pair.server.transmit().to_vec();
    let at = answer.windows(4).position(|w| w == [0x11, 0xec, 0x04, 0x60]).unwrap() + 4;
    answer[at + 1088..at + 1120].fill(0);
    let error = pair.client.receive(NOW, &answer).unwrap_err();
    assert_eq!((error.alert(), error), (Some(Alert::ILLEGAL_PARAMETER), PeerMisbehaved::BadKeyShare.into()));
}

#[test]
fn supports_pure_key_encapsulation() {
    let [awslc, rustcrypto] = providers();
    let all = [
        [(&awslc, dunlin_awslc::ML_KEM_512), (&rustcrypto, dunlin_rustcrypto::ML_KEM_512)],
        [(&awslc, dunlin_awslc::ML_KEM_768), (&rustcrypto, dunlin_rustcrypto::ML_KEM_768)],
    ];
    for same in all {
        for (client, ours) in same {
            for (server, theirs) in same {
                let mut pair =
                    with_groups((client.clone(), vec![ours], None), (server.clone(), vec![theirs]));
                pair.connect().unwrap();
                assert_eq!(pair.server.negotiated().unwrap().group, Some(ours.name()));
            }
        }
    }
}
