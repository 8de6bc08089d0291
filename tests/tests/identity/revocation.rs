//! CRLs: each side refuses a revoked certificate with the alert for it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use dunlin::auth::{Revocation, X509Trust};
use dunlin::crypto::CryptoProvider;
use dunlin::error::{AuthenticationFailure as Failure, Misuse};
use dunlin::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use dunlin::resume::Tickets;
use dunlin::wire::AlertDescription as Alert;
use dunlin::{ClientAuth, ClientConfig, Credential, Error, Now, Profile, ServerConfig, Side, Trust};
use dunlin_pki::{Authority, CrlSpec, Identity, KeyType, Tree, TreeSpec, Validity};
use dunlin_store::{MemoryClientSessions, RotatingTickets};
use dunlin_tests::peer::now;
use dunlin_tests::{Pair, awslc, providers};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CrlDistributionPoint,
    CrlIssuingDistributionPoint, CrlScope, DistinguishedName, DnType, DnValue, IsCa, Issuer, KeyIdMethod,
    KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
};

type List = CertificateRevocationListDer<'static>;

fn tree(typ: KeyType) -> Tree {
    Tree::generate(&TreeSpec::new(typ, 30).unwrap()).unwrap()
}

/// A CRL of `authority`, valid for a day, that revokes the first certificates of these chains.
fn list(authority: &Authority, revoked: &[&[CertificateDer<'static>]]) -> List {
    let spec = CrlSpec {
        previous: None,
        revoke: revoked.iter().map(|chain| chain[0].clone()).collect(),
        reason: None,
        validity: Validity::from_now_days(1).unwrap(),
    };
    authority.revocation_list(&spec).unwrap()
}

fn trust(tree: &Tree, revocation: Option<Revocation>) -> Trust {
    let x509 = X509Trust::anchors([tree.root.certificate().clone()]).unwrap();
    let x509 = match revocation {
        Some(revocation) => x509.with_revocation(revocation).unwrap(),
        None => x509,
    };
    Trust { x509: Some(x509), raw_key: None }
}

fn credential(provider: &CryptoProvider, identity: &Identity) -> Credential {
    let key = identity.key.to_pkcs8().unwrap();
    let key = provider.key_loader.load(&PrivateKeyDer::Pkcs8(key.to_vec().into())).unwrap();
    Credential::x509(identity.chain.clone(), key)
}

/// A handshake in which the client or the server checks these CRLs.
fn connect(
    provider: &Arc<CryptoProvider>,
    tree: &Tree,
    [client, server]: [Option<Revocation>; 2],
) -> (Result<(), Error>, Pair) {
    let profile = |own, revocation| {
        let builder = Profile::builder(provider.clone()).trust(trust(tree, revocation));
        builder.credentials(vec![credential(provider, own)]).build().unwrap()
    };
    let client = ClientConfig::new(profile(&tree.client, client));
    let server = ServerConfig::new(profile(&tree.server, server)).unwrap();
    let server = server.with_client_auth(ClientAuth::Required).unwrap();
    let mut pair = Pair::at(&Arc::new(client), &Arc::new(server), now());
    (pair.run(), pair)
}

#[test]
fn both_sides_refuse_a_revoked_leaf() {
    for provider in providers() {
        for typ in [KeyType::P256, KeyType::Rsa2048, KeyType::MlDsa44] {
            let tree = tree(typ);
            let revocation = |chain: &[CertificateDer<'static>]| {
                Revocation::new([list(&tree.root, &[]), list(&tree.intermediate, &[chain])]).unwrap()
            };
            let server = revocation(&tree.server.chain);
            let client = revocation(&tree.client.chain);
            let refused = Err(Failure::Revoked.into());

            let (result, pair) = connect(&provider, &tree, [Some(server.clone()), None]);
            assert_eq!(result, refused, "{typ}");
            assert_eq!(pair.server.error(), Some(&Error::AlertReceived(Alert::CERTIFICATE_REVOKED)));

            let (result, pair) = connect(&provider, &tree, [None, Some(client.clone())]);
            assert_eq!(result, refused, "{typ}");
            assert_eq!(pair.client.error(), Some(&Error::AlertReceived(Alert::CERTIFICATE_REVOKED)));

            // Each side has the CRL that does not list the peer's certificate.
            let (result, mut pair) = connect(&provider, &tree, [Some(client), Some(server)]);
            assert_eq!(result, Ok(()), "{typ}");
            pair.echo(b"hello").unwrap();
        }
    }
}

#[test]
fn refuses_a_revoked_authority_unless_only_leaves_are_checked() {
    let tree = tree(KeyType::P256);
    let lists = [list(&tree.root, &[tree.intermediate.chain()]), list(&tree.intermediate, &[])];
    let revocation = Revocation::new(lists).unwrap();
    let run = |revocation| connect(&awslc(), &tree, [Some(revocation), None]).0;
    let refused = Error::from(Failure::RevokedAuthority(Some("Dunlin intermediate".into())));
    assert_eq!(refused.alert(), Some(Alert::CERTIFICATE_REVOKED));
    let text = "the certificate of Dunlin intermediate, an authority of its chain, is revoked";
    assert!(refused.to_string().contains(text), "{refused}");
    assert_eq!(run(revocation.clone()), Err(refused));
    assert_eq!(run(revocation.leaf_only()), Ok(()));
}

#[test]
fn refuses_certificates_without_a_crl_unless_allowed() {
    let tree = tree(KeyType::P256);
    let run = |revocation| connect(&awslc(), &tree, [Some(revocation), None]).0;
    let of_intermediate = Revocation::new([list(&tree.intermediate, &[])]).unwrap();
    let unknown = Error::from(Failure::UnknownRevocationStatus);
    assert_eq!(unknown.alert(), Some(Alert::CERTIFICATE_UNKNOWN));
    assert_eq!(run(of_intermediate.clone()), Err(unknown));
    assert_eq!(run(of_intermediate.clone().leaf_only()), Ok(()));
    assert_eq!(run(of_intermediate.allow_unknown()), Ok(()));
    // A certificate on a CRL is revoked even if unknown states are allowed.
    let revoked = list(&tree.intermediate, &[&tree.server.chain]);
    assert_eq!(run(Revocation::new([revoked]).unwrap().allow_unknown()), Err(Failure::Revoked.into()));
}

#[test]
fn overdue_crl_applies_unless_overdue_crls_are_refused() {
    let tree = tree(KeyType::P256);
    let start = SystemTime::now() - Duration::from_secs(10 * 24 * 3600);
    let spec = CrlSpec {
        previous: None,
        revoke: vec![],
        reason: None,
        validity: Validity::days_from(start, 5).unwrap(),
    };
    let revocation =
        Revocation::new([tree.intermediate.revocation_list(&spec).unwrap()]).unwrap().leaf_only();
    let run = |revocation| connect(&awslc(), &tree, [Some(revocation), None]).0;
    assert_eq!(run(revocation.clone()), Ok(()));
    assert_eq!(run(revocation.refuse_overdue()), Err(Failure::OverdueRevocationList.into()));
}

#[test]
fn refuses_a_crl_signed_by_another_key() {
    // The authorities of both trees have the same names.
    let (tree, other) = (tree(KeyType::P256), tree(KeyType::P256));
    let revocation = Revocation::new([list(&other.intermediate, &[])]).unwrap().leaf_only();
    let (result, pair) = connect(&awslc(), &tree, [Some(revocation), None]);
    assert_eq!(result, Err(Failure::BadRevocationList.into()));
    assert_eq!(pair.server.error(), Some(&Error::AlertReceived(Alert::CERTIFICATE_UNKNOWN)));
}

/// A peer revoked after its handshake cannot resume (RFC 8446 §4.6.1 leaves this to policy).
#[test]
fn sessions_are_bound_to_the_crls_and_their_rules() {
    let tree = tree(KeyType::P256);
    let settings = |revocation: Option<Revocation>| {
        let profile = Profile::builder(awslc()).trust(trust(&tree, revocation)).build().unwrap();
        *ClientConfig::new(profile).session_settings().as_bytes()
    };
    let first = list(&tree.intermediate, &[]);
    let second = list(&tree.intermediate, &[&tree.server.chain]);
    let of = |list: &List| Revocation::new([list.clone()]).unwrap();
    let all = [
        settings(None),
        settings(Some(of(&first))),
        settings(Some(of(&second))),
        settings(Some(of(&first).leaf_only())),
        settings(Some(of(&first).allow_unknown())),
        settings(Some(of(&first).refuse_overdue())),
    ];
    assert_eq!(all[1], settings(Some(of(&first))));
    for (i, one) in all.iter().enumerate() {
        assert!(!all[..i].contains(one), "settings {i}");
    }
}

/// ML-DSA signatures often end alike, in padding and counters (FIPS 204, algorithm 20).
#[test]
fn crls_with_equal_endings_are_different_settings() {
    let tree = tree(KeyType::MlDsa44);
    let settings = |list: &[u8]| {
        let revocation = Revocation::new([List::from(list.to_vec())]).unwrap();
        let profile = Profile::builder(awslc()).trust(trust(&tree, Some(revocation))).build().unwrap();
        *ClientConfig::new(profile).session_settings().as_bytes()
    };
    let first = list(&tree.intermediate, &[]);
    let second = list(&tree.intermediate, &[&tree.server.chain]);
    for tail in [32, 100, 2420] {
        let end = &first[first.len() - tail..];
        let second = [&second[..second.len() - tail], end].concat();
        assert_ne!(settings(&first), settings(&second), "the last {tail} bytes are equal");
    }
}

/// A ticket does not admit a peer that a full handshake would refuse for an overdue CRL.
#[test]
fn sessions_end_when_required_crls_expire() {
    let tree = tree(KeyType::P256);
    let lists = [list(&tree.root, &[]), list(&tree.intermediate, &[])];
    let revocation = Revocation::new(lists).unwrap();
    for (revocation, after_it) in [
        (revocation.clone(), Ok(true)),
        (revocation.refuse_overdue(), Err(Failure::OverdueRevocationList.into())),
    ] {
        let profile = |own, revocation| {
            let builder = Profile::builder(awslc()).trust(trust(&tree, revocation));
            builder.credentials(vec![credential(&awslc(), own)]).build().unwrap()
        };
        let client = ClientConfig::new(profile(&tree.client, None));
        let client = Arc::new(client.with_sessions(Arc::new(MemoryClientSessions::new(1, 1))));
        let tickets = Tickets::stateless(Arc::new(RotatingTickets::new(awslc()).unwrap()));
        let server = ServerConfig::new(profile(&tree.server, Some(revocation))).unwrap();
        let server = server.with_client_auth(ClientAuth::Required).unwrap();
        let server = Arc::new(server.with_tickets(tickets.lifetime(Duration::from_secs(5 * 24 * 3600))));
        let resumed = |hours: u64| {
            let mut pair = Pair::at(&client, &server, Now::from_unix_ms(now().unix_ms + hours * 3_600_000));
            pair.run().map(|()| pair.server.negotiated().unwrap().is_resumed())
        };
        // The CRLs are valid for a day.
        assert_eq!(resumed(0), Ok(false));
        assert_eq!(resumed(12), Ok(true));
        assert_eq!(resumed(36), after_it);
    }
}

#[test]
fn revocation_refuses_unusable_crls() {
    let tree = tree(KeyType::P256);
    let good = list(&tree.root, &[]);
    let none = Revocation::new(Vec::<List>::new()).unwrap_err();
    assert_eq!(none, Misuse::Config("there is no CRL".into()).into());
    for len in [0, 1, 31, good.len() - 1] {
        let cut = List::from(good[..len].to_vec());
        let error = Revocation::new([good.clone(), cut]).unwrap_err().to_string();
        assert!(error.contains("CRL 2: "), "{len} bytes: {error}");
    }
    // The second CRL of an issuer would never be used.
    let other = list(&tree.intermediate, &[]);
    let newer = list(&tree.root, &[tree.intermediate.chain()]);
    let error = Revocation::new([good.clone(), other, newer]).unwrap_err().to_string();
    assert!(error.contains("CRL 3: it is of the same issuer as CRL 1"), "{error}");
    // One of the CRLs applies to every certificate, whatever the other's distribution point.
    let divided = Divided::new(false);
    let (whole, shard) = (divided.list(None, &[]), divided.list(Some("http://a"), &[]));
    for lists in [[whole.clone(), shard.clone()], [shard, whole]] {
        let error = Revocation::new(lists).unwrap_err().to_string();
        assert!(error.contains("CRL 2: it is of the same issuer as CRL 1"), "{error}");
    }
    for trust in [X509Trust::Ask, X509Trust::DangerAnyone] {
        assert!(trust.with_revocation(Revocation::new([good.clone()]).unwrap()).is_err());
    }
}

/// An authority with several CRLs by distribution point (RFC 5280 §5.2.5), and a server certificate with
/// serial number 7.
struct Divided {
    root: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
    server: Credential,
}

impl Divided {
    /// The server's certificate names the distribution point `http://a`, or none.
    fn new(names_a_point: bool) -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        let root = params.self_signed(&key).unwrap().der().clone();
        Self::below(root, Issuer::new(params, key), names_a_point)
    }

    /// The same, with this authority.
    fn below(root: CertificateDer<'static>, issuer: Issuer<'static, KeyPair>, names_a_point: bool) -> Self {
        let mut params = CertificateParams::new(vec!["localhost".into()]).unwrap();
        params.serial_number = Some(SerialNumber::from(7u64));
        if names_a_point {
            params.crl_distribution_points = vec![CrlDistributionPoint { uris: vec!["http://a".into()] }];
        }
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &issuer).unwrap().der().clone();
        let key = awslc().key_loader.load(&PrivateKeyDer::Pkcs8(key.serialize_der().into())).unwrap();
        Self { root, issuer, server: Credential::x509(vec![leaf], key) }
    }

    fn list(&self, point: Option<&str>, revoked: &[u64]) -> List {
        self.list_until(point, revoked, 2090)
    }

    fn list_until(&self, point: Option<&str>, revoked: &[u64], next_year: i32) -> List {
        let next = rcgen::date_time_ymd(next_year, 1, 1).unix_timestamp();
        self.list_until_s(point, revoked, u64::try_from(next).unwrap())
    }

    /// A CRL with its nextUpdate in seconds since 1970.
    fn list_until_s(&self, point: Option<&str>, revoked: &[u64], next_s: u64) -> List {
        self.list_of(point, revoked, None, next_s)
    }

    fn list_of_scope(&self, point: Option<&str>, revoked: &[u64], scope: Option<CrlScope>) -> List {
        self.list_of(point, revoked, scope, now().unix_ms / 1000 + 3600)
    }

    fn list_of(&self, point: Option<&str>, revoked: &[u64], scope: Option<CrlScope>, next_s: u64) -> List {
        let date = rcgen::date_time_ymd(2020, 1, 1);
        let revoked = revoked.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date,
            reason_code: None,
            invalidity_date: None,
        });
        let point = point.map(|uri| CrlIssuingDistributionPoint {
            distribution_point: CrlDistributionPoint { uris: vec![uri.into()] },
            scope,
        });
        let params = CertificateRevocationListParams {
            this_update: date,
            next_update: rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(next_s),
            crl_number: SerialNumber::from(1u64),
            issuing_distribution_point: point,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().der().clone()
    }

    fn connect(&self, revocation: Revocation) -> Result<(), Error> {
        let trust = X509Trust::anchors([self.root.clone()]).unwrap().with_revocation(revocation).unwrap();
        let client = Profile::builder(awslc()).trust(Trust { x509: Some(trust), raw_key: None });
        let client = Arc::new(ClientConfig::new(client.build().unwrap()));
        let server = Profile::builder(awslc()).credentials(vec![self.server.clone()]).build().unwrap();
        Pair::at(&client, &Arc::new(ServerConfig::new(server).unwrap()), now()).run()
    }
}

/// Only the CRLs that were consulted for a peer's chain end its session.
#[test]
fn overdue_crl_of_another_distribution_point_ends_no_session() {
    for (names_a_point, overdue, expected) in [(true, "http://b", Ok(true)), (true, "http://a", Err(()))] {
        let divided = Divided::new(names_a_point);
        let end = now().unix_ms / 1000 + 3600;
        let soon = ["http://a", "http://b"].map(|point| {
            if point == overdue {
                divided.list_until_s(Some(point), &[], end)
            } else {
                divided.list(Some(point), &[])
            }
        });
        let revocation = Revocation::new(soon).unwrap().refuse_overdue();
        let trust = X509Trust::anchors([divided.root.clone()]).unwrap().with_revocation(revocation).unwrap();
        let client = Profile::builder(awslc()).trust(Trust { x509: Some(trust), raw_key: None });
        let client = ClientConfig::new(client.build().unwrap());
        let client = Arc::new(client.with_sessions(Arc::new(MemoryClientSessions::new(1, 1))));
        let server = Profile::builder(awslc()).credentials(vec![divided.server.clone()]).build().unwrap();
        let tickets = Tickets::stateless(Arc::new(RotatingTickets::new(awslc()).unwrap()));
        let server = Arc::new(ServerConfig::new(server).unwrap().with_tickets(tickets));
        let resumed = |seconds: u64| {
            let mut pair = Pair::at(&client, &server, Now::from_unix_ms(now().unix_ms + 1000 * seconds));
            pair.run().map(|()| pair.client.negotiated().unwrap().is_resumed())
        };
        assert_eq!(resumed(0), Ok(false));
        assert_eq!(resumed(1800), Ok(true));
        assert_eq!(resumed(3700).map_err(|_| ()), expected, "{names_a_point} {overdue}");
    }
}

/// RFC 5280 §6.3.3 (b): a CRL with a distribution point is only about certificates that name it.
#[test]
fn a_crl_of_another_distribution_point_says_nothing() {
    let unknown = Err(Failure::UnknownRevocationStatus.into());
    for (names_a_point, expected) in [(true, Ok(())), (false, unknown.clone())] {
        let divided = Divided::new(names_a_point);
        let (a, b) = (divided.list(Some("http://a"), &[]), divided.list(Some("http://b"), &[7]));
        for lists in [[&a, &b], [&b, &a]] {
            let revocation = Revocation::new(lists.map(Clone::clone)).unwrap();
            assert_eq!(divided.connect(revocation), expected, "names a point: {names_a_point}");
        }
        for (serial, status) in [(7, &unknown), (8, &unknown)] {
            let revocation = Revocation::new([divided.list(Some("http://b"), &[serial])]).unwrap();
            assert_eq!(&divided.connect(revocation.clone()), status);
            assert_eq!(divided.connect(revocation.allow_unknown()), Ok(()));
        }
        // A CRL without a distribution point is about all certificates.
        let whole = |revoked: &[u64]| Revocation::new([divided.list(None, revoked)]).unwrap();
        assert_eq!(divided.connect(whole(&[8])), Ok(()));
        assert_eq!(divided.connect(whole(&[7])), Err(Failure::Revoked.into()));
    }
}

#[test]
fn only_the_crl_of_its_distribution_point_counts_in_any_order() {
    let past = 2021;
    let divided = Divided::new(true);
    let other = Divided::new(true);
    let (a, b) = (divided.list(Some("http://a"), &[]), divided.list(Some("http://b"), &[8]));
    let b_is_overdue = divided.list_until(Some("http://b"), &[], past);
    let a_is_overdue = divided.list_until(Some("http://a"), &[], past);
    let forged = other.list(Some("http://a"), &[]);
    for (first, second, expected) in [
        (&a, &b, Ok(())),
        (&divided.list(Some("http://a"), &[7]), &b, Err(Failure::Revoked.into())),
        (&a, &b_is_overdue, Ok(())),
        (&a_is_overdue, &b, Err(Failure::OverdueRevocationList.into())),
        (&forged, &b, Err(Failure::BadRevocationList.into())),
    ] {
        for lists in [[first, second], [second, first]] {
            let revocation = Revocation::new(lists.map(Clone::clone)).unwrap().refuse_overdue();
            assert_eq!(divided.connect(revocation), expected);
        }
    }
    let settings = |lists: [&List; 2]| {
        let revocation = Revocation::new(lists.map(Clone::clone)).unwrap();
        let trust = X509Trust::anchors([divided.root.clone()]).unwrap();
        let trust = Trust { x509: Some(trust.with_revocation(revocation).unwrap()), raw_key: None };
        let profile = Profile::builder(awslc()).trust(trust).build().unwrap();
        *ClientConfig::new(profile).session_settings().as_bytes()
    };
    assert_eq!(settings([&a, &b]), settings([&b, &a]));
}

/// RFC 5280 §5.2.5: onlyContainsUserCerts and onlyContainsCACerts.
#[test]
fn a_crl_for_authorities_says_nothing_about_a_leaf() {
    let divided = Divided::new(true);
    let list = |scope| divided.list_of_scope(Some("http://a"), &[], Some(scope));
    let connect = |scope| divided.connect(Revocation::new([list(scope)]).unwrap());
    assert_eq!(connect(CrlScope::UserCertsOnly), Ok(()));
    assert_eq!(connect(CrlScope::CaCertsOnly), Err(Failure::UnknownRevocationStatus.into()));
}

#[test]
fn refuses_a_crl_from_the_future() {
    let tree = tree(KeyType::P256);
    let start = SystemTime::now() + Duration::from_secs(3600);
    let list = |revoke: &[CertificateDer<'static>]| {
        let validity = Validity::days_from(start, 5).unwrap();
        let spec = CrlSpec { previous: None, revoke: revoke.to_vec(), reason: None, validity };
        Revocation::new([tree.intermediate.revocation_list(&spec).unwrap()]).unwrap().leaf_only()
    };
    let run = |revocation| connect(&awslc(), &tree, [Some(revocation), None]).0;
    assert_eq!(run(list(&[])), Err(Failure::FutureRevocationList.into()));
    assert_eq!(run(list(&tree.server.chain[..1])), Err(Failure::Revoked.into()));
}

/// Two roots with one name, as after a change of the key. Each has its own CRL.
#[test]
fn authorities_with_one_name_have_a_crl_each() {
    let (tree, other) = (tree(KeyType::P256), tree(KeyType::P256));
    let lists = |revoked: &[&[CertificateDer<'static>]]| {
        [list(&other.intermediate, &[]), list(&tree.intermediate, revoked)]
    };
    let run = |mut lists: [List; 2], is_reversed| {
        if is_reversed {
            lists.reverse();
        }
        let revocation = Revocation::new(lists).unwrap().leaf_only();
        connect(&awslc(), &tree, [Some(revocation), None]).0
    };
    for is_reversed in [false, true] {
        assert_eq!(run(lists(&[]), is_reversed), Ok(()));
        assert_eq!(run(lists(&[&tree.server.chain]), is_reversed), Err(Failure::Revoked.into()));
    }
}

/// RFC 5280 §7.1: the type of a string, ASCII case and the number of blanks do not distinguish names.
#[test]
fn a_crl_is_of_its_issuer_in_every_spelling_of_the_name() {
    let key = KeyPair::generate().unwrap();
    let authority = |name: DnValue| {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::from_pkcs8_pem_and_sign_algo(&key.serialize_pem(), key.algorithm()).unwrap();
        let root = params.self_signed(&key).unwrap().der().clone();
        Divided::below(root, Issuer::new(params, key), false)
    };
    let utf8 = |name: &str| DnValue::Utf8String(name.into());
    let plain = authority(utf8("Device CA"));
    for name in [
        DnValue::PrintableString("Device CA".try_into().unwrap()),
        DnValue::BmpString("Device CA".try_into().unwrap()),
        utf8("device ca"),
        utf8(" Device  CA "),
        // Not known to be another name: the key decides.
        utf8("De\u{301}vice CA"),
    ] {
        let other = authority(name.clone());
        let empty = plain.list(None, &[]);
        let revokes = other.list(None, &[7]);
        for lists in [[&empty, &revokes], [&revokes, &empty]] {
            let error = Revocation::new(lists.map(Clone::clone)).unwrap_err().to_string();
            let expected =
                "CRL 2: it is of the same issuer as CRL 1, whose name it spells differently, and covers";
            assert!(error.contains(expected), "{name:?}: {error}");
        }
        let revocation = Revocation::new([revokes]).unwrap();
        for revocation in [revocation.clone(), revocation.allow_unknown()] {
            assert_eq!(plain.connect(revocation), Err(Failure::Revoked.into()), "{name:?}");
        }
    }
    // Another name, of the same key.
    let renamed = authority(utf8("Other CA"));
    let revocation = Revocation::new([plain.list(None, &[]), renamed.list(None, &[7])]).unwrap();
    assert_eq!(plain.connect(revocation), Ok(()));
}

/// RFC 5280 §6.3.3 (f).
#[test]
fn refuses_a_crl_of_an_authority_that_may_not_sign_crls() {
    let root_key = KeyPair::generate().unwrap();
    let params = |name: &str, usages: &[KeyUsagePurpose]| {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = usages.to_vec();
        params
    };
    let root = params("root", &[]);
    let root_certificate = root.self_signed(&root_key).unwrap().der().clone();
    let root = Issuer::new(root, root_key);
    for (usages, expected) in [
        (vec![KeyUsagePurpose::KeyCertSign], Err(Failure::NotRevocationListIssuer)),
        (vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign], Ok(())),
    ] {
        let own = params("intermediate", &usages);
        let key = KeyPair::generate().unwrap();
        let certificate = own.signed_by(&key, &root).unwrap().der().clone();
        // rcgen makes no CRL for an issuer without cRLSign.
        let signer = params("intermediate", &[KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign]);
        let divided = Divided::below(certificate.clone(), Issuer::new(signer, key), false);
        let revocation = Revocation::new([divided.list(None, &[])]).unwrap().leaf_only();
        let trust = X509Trust::anchors([root_certificate.clone()]).unwrap();
        let trust = trust.with_revocation(revocation).unwrap();
        let Credential::X509 { chain, .. } = &divided.server else { panic!("not X.509") };
        let chain = [chain[0].clone(), certificate];
        let verdict = trust.verify_chain(awslc().signatures.all, &chain, Side::Server, None, now());
        assert_eq!(verdict.unwrap(), expected);
    }
}
