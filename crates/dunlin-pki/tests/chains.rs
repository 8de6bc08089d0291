//! Checks chains of every key type and form: webpki accepts them, and lean ones stay small.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::time::{Duration, SystemTime};

use dunlin_pki::{
    AltName, Authority, CaSpec, CertificateInfo, CrlSpec, Error, Form, Item, KeyPair, KeyType, LeafSpec,
    Purpose, RevocationListInfo, Subject, Tree, TreeSpec, Validity, certificates_to_pem, parse,
};
use pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};

const FORMS: [Form; 2] = [Form::Full, Form::Lean];

fn tree(key_type: KeyType, form: Form) -> Tree {
    Tree::generate(&TreeSpec { form, ..TreeSpec::new(key_type, 30).unwrap() }).unwrap()
}

fn verify(root: &Authority, chain: &[CertificateDer<'_>], usage: KeyUsage) -> Result<(), webpki::Error> {
    let anchor = anchor_from_trusted_cert(root.certificate()).unwrap();
    let now = UnixTime::since_unix_epoch(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap());
    let leaf = EndEntityCert::try_from(&chain[0])?;
    leaf.verify_for_usage(dunlin_awslc::ALL_SIGNATURES.all, &[anchor], &chain[1..], now, usage, None, None)?;
    Ok(())
}

fn key_type(name: &str) -> KeyType {
    name.parse().unwrap()
}

#[test]
fn webpki_accepts_chains_of_every_key_type_and_form() {
    // Large RSA keys take long to make, and differ from small ones in nothing that this test looks at.
    let is_slow = |key_type: &KeyType| matches!(key_type, KeyType::RsaPss3072 | KeyType::RsaPss4096);
    for key_type in KeyType::ALL.into_iter().filter(|key_type| !is_slow(key_type)) {
        for form in FORMS {
            let tree = tree(key_type, form);
            verify(&tree.root, &tree.server.chain, KeyUsage::server_auth()).unwrap();
            verify(&tree.root, &tree.client.chain, KeyUsage::client_auth()).unwrap();
            let leaf = EndEntityCert::try_from(&tree.server.chain[0]).unwrap();
            for name in ["localhost", "127.0.0.1"] {
                leaf.verify_is_valid_for_subject_name(&ServerName::try_from(name).unwrap()).unwrap();
            }
            assert!(
                leaf.verify_is_valid_for_subject_name(&ServerName::try_from("example.com").unwrap()).is_err()
            );
            let stranger = Authority::root(
                &CaSpec::new("Dunlin root".parse().unwrap(), Validity::from_now_days(1).unwrap()),
                KeyPair::generate(KeyType::P256).unwrap(),
            );
            assert!(verify(&stranger.unwrap(), &tree.server.chain, KeyUsage::server_auth()).is_err());
        }
    }
}

/// Measures leaf and intermediate together, on average over 20 chains, against two limits. `bar` is from a
/// comparison of identities (X.509, credential, DID): 803, 405 and 342 bytes per certificate. `reached` is
/// the size that the encoding has reached, far below the bar. An ECDSA signature takes 71.5 bytes on average
/// and 72 at most.
#[test]
fn lean_chains_stay_within_their_size_limits() {
    const CHAINS: usize = 20;
    for (name, bar, reached) in
        [("rsa2048", 2 * 803, 1392), ("p256", 2 * 405, 600), ("ed25519", 2 * 342, 468)]
    {
        let sum: usize = (0..CHAINS)
            .map(|_| {
                let chain = tree(key_type(name), Form::Lean).server.chain;
                assert_eq!(chain.len(), 2);
                chain.iter().map(|certificate| certificate.len()).sum::<usize>()
            })
            .sum();
        println!("{name}: {:.1} bytes on average", sum as f64 / CHAINS as f64);
        assert!(sum <= CHAINS * bar, "{name}: {sum} bytes in {CHAINS} chains, bar {bar} each");
        assert!(sum <= CHAINS * reached, "{name}: {sum} bytes in {CHAINS} chains, used to be {reached} each");
    }
}

#[test]
fn a_full_certificate_has_the_extensions_of_rfc_5280() {
    let tree = tree(KeyType::Rsa2048, Form::Full);
    let info = |der: &CertificateDer<'_>| CertificateInfo::from_der(der).unwrap();
    let has = |info: &CertificateInfo, name: &str| info.parts.iter().any(|part| part.name == name);

    let root = info(tree.root.certificate());
    assert!(root.ca && root.path_len.is_none());
    assert_eq!(root.key_usages, ["keyCertSign", "cRLSign"]);
    assert!(has(&root, "subjectKeyIdentifier") && !has(&root, "authorityKeyIdentifier"));

    let server = info(&tree.server.chain[0]);
    assert!(!server.ca);
    assert_eq!((server.subject.as_str(), server.issuer.as_str()), ("", "CN=Dunlin intermediate"));
    assert_eq!(server.names, ["DNS:localhost", "IP:127.0.0.1"]);
    assert_eq!(server.key_usages, ["digitalSignature", "keyEncipherment"]);
    assert_eq!(server.purposes, ["serverAuth"]);
    assert_eq!(server.public_key.algorithm, "RSA 2048");
    assert_eq!(server.signature_algorithm, "sha256WithRSAEncryption");
    assert_eq!(server.serial.len(), 18);
    assert!(has(&server, "authorityKeyIdentifier") && !has(&server, "subjectKeyIdentifier"));
    let intermediate = info(tree.intermediate.certificate());
    assert!(has(&intermediate, "authorityKeyIdentifier") && has(&intermediate, "subjectKeyIdentifier"));

    assert_eq!(info(&tree.client.chain[0]).purposes, ["clientAuth"]);
}

#[test]
fn a_lean_certificate_has_only_the_necessary_extensions() {
    let tree = tree(KeyType::Ed25519, Form::Lean);
    let server = CertificateInfo::from_der(&tree.server.chain[0]).unwrap();
    assert_eq!((server.subject.as_str(), server.serial.len()), ("", 12));
    let extensions: Vec<_> = server
        .parts
        .iter()
        .map(|part| part.name.as_str())
        .skip_while(|name| *name != "subjectPublicKeyInfo")
        .collect();
    assert_eq!(
        extensions,
        ["subjectPublicKeyInfo", "subjectAltName", "signatureAlgorithm", "signatureValue", "framing"]
    );
    // A single purpose is written: without it the certificate would serve the other purpose too.
    let validity = Validity::from_now_days(1).unwrap();
    let spec = LeafSpec { form: Form::Lean, ..LeafSpec::server(["a.example".parse().unwrap()], validity) };
    let leaf = tree.intermediate.issue(&spec, KeyPair::generate(KeyType::Ed25519).unwrap()).unwrap();
    assert_eq!(CertificateInfo::from_der(&leaf.chain[0]).unwrap().purposes, ["serverAuth"]);
    assert!(verify(&tree.root, &leaf.chain, KeyUsage::client_auth()).is_err());
}

#[test]
fn sizes_of_parts_add_up_to_the_certificate() {
    for form in FORMS {
        let tree = tree(KeyType::P384, form);
        for der in
            [&tree.server.chain[0], &tree.client.chain[0], &tree.server.chain[1], tree.root.certificate()]
        {
            let info = CertificateInfo::from_der(der).unwrap();
            assert_eq!(info.bytes, der.len());
            assert_eq!(info.parts.iter().map(|part| part.bytes).sum::<usize>(), der.len());
            // Framing: the version, and tags and lengths of certificate, TBSCertificate and two levels of
            // extensions.
            let framing = info.parts.last().unwrap();
            assert!(framing.name == "framing" && (11..=21).contains(&framing.bytes), "{framing:?}");
        }
    }
}

#[test]
fn serial_numbers_are_positive_and_unique() {
    let root = tree(KeyType::Ed25519, Form::Lean).root;
    let spec = LeafSpec::client("c".parse().unwrap(), Validity::from_now_days(1).unwrap());
    for (form, length) in [(Form::Full, 9), (Form::Lean, 6)] {
        let serials: std::collections::HashSet<_> = (0..50)
            .map(|_| {
                let spec = LeafSpec { form, ..spec.clone() };
                let leaf = root.issue(&spec, KeyPair::generate(KeyType::Ed25519).unwrap()).unwrap();
                CertificateInfo::from_der(&leaf.chain[0]).unwrap().serial
            })
            .collect();
        assert_eq!(serials.len(), 50);
        for serial in serials {
            // The first bit is the sign. The second is set, so that all numbers have the same length.
            assert_eq!(serial.len(), 2 * length);
            assert!(('4'..='7').contains(&serial.chars().next().unwrap()), "{serial}");
        }
    }
}

#[test]
fn enforces_the_path_length_limit_of_every_authority_above() {
    let validity = Validity::from_now_days(1).unwrap();
    let key = || KeyPair::generate(KeyType::Ed25519).unwrap();
    let ca = |name: &str, path_len| CaSpec { path_len, ..CaSpec::new(name.parse().unwrap(), validity) };
    let leaf = LeafSpec::client("c".parse().unwrap(), validity);
    let root = Authority::root(&ca("root", None), key()).unwrap();
    for limit in [None, Some(1)] {
        let first = root.intermediate(&ca("first", limit), key()).unwrap();
        let second = first.intermediate(&ca("second", None), key()).unwrap();
        let identity = second.issue(&leaf, key()).unwrap();
        assert_eq!(identity.chain.len(), 3);
        verify(&root, &identity.chain, KeyUsage::client_auth()).unwrap();
        // Authorities inherit the limit, and refuse to issue a certificate that no verifier would accept.
        let third = second.intermediate(&ca("third", None), key());
        assert_eq!(third.err(), limit.map(|_| Error::PathTooLong));
    }
    // The limit of a higher authority counts too, if the chain holds its certificate.
    let first = root.intermediate(&ca("first", Some(1)), key()).unwrap();
    let second = first.intermediate(&ca("second", Some(7)), key()).unwrap();
    assert_eq!(second.intermediate(&ca("third", None), key()).err(), Some(Error::PathTooLong));
}

#[test]
fn loads_an_authority_from_files_and_rejects_a_foreign_key() {
    let tree = tree(KeyType::P256, Form::Full);
    let pem = certificates_to_pem(tree.intermediate.chain()).unwrap()
        + &certificates_to_pem(tree.root.chain()).unwrap();
    let Item::PrivateKey(key) =
        parse(tree.intermediate.key().to_pem().unwrap().as_bytes()).unwrap().remove(0)
    else {
        panic!("no key");
    };
    let chain = || -> Vec<_> {
        let items = parse(pem.as_bytes()).unwrap().into_iter();
        items
            .map(|item| if let Item::Certificate(der) = item { der } else { panic!("no certificate") })
            .collect()
    };
    let loaded = Authority::load(chain(), key).unwrap();
    // The file also held the root, which the chain omits.
    assert_eq!(loaded.chain(), tree.intermediate.chain());
    assert_eq!(loaded.not_after(), tree.intermediate.not_after());
    let spec = LeafSpec::client("c".parse().unwrap(), Validity::from_now_days(1).unwrap());
    let leaf = loaded.issue(&spec, KeyPair::generate(KeyType::Ed25519).unwrap()).unwrap();
    verify(&tree.root, &leaf.chain, KeyUsage::client_auth()).unwrap();

    let stranger = || KeyPair::generate(KeyType::P256).unwrap();
    assert_eq!(Authority::load(chain(), stranger()).err(), Some(Error::KeyMismatch));
    assert_eq!(Authority::load(vec![], stranger()).err(), Some(Error::missing("certificate")));
    let Tree { client, .. } = tree;
    assert_eq!(Authority::load(client.chain, client.key).err(), Some(Error::NotAnAuthority));
    let garbage = CertificateDer::from(vec![0x30, 0x00]);
    assert!(matches!(Authority::load(vec![garbage], stranger()), Err(Error::MalformedCertificate(_))));
}

#[test]
fn reads_back_private_keys_of_every_type() {
    for key_type in KeyType::ALL {
        let key = KeyPair::generate(key_type).unwrap();
        let der = key.to_pkcs8().unwrap();
        for file in [key.to_pem().unwrap().as_bytes(), &der] {
            let Item::PrivateKey(read) = parse(file).unwrap().remove(0) else { panic!("no key") };
            assert_eq!(read.key_type(), key_type);
            assert_eq!(read.public_key(), key.public_key());
        }
        // Trailing bytes are rejected.
        let mut longer = der.to_vec();
        longer.push(0);
        let longer = PrivateKeyDer::Pkcs8(longer.into());
        assert_eq!(KeyPair::from_der(&longer).err(), Some(Error::UnusableKey));
    }
}

#[test]
fn rejects_files_without_usable_certificates_keys_or_crls() {
    let encrypted = b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let old =
        b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMAA=\n-----END RSA PRIVATE KEY-----\n";
    let cut = b"-----BEGIN CERTIFICATE-----\nMAA=\n";
    let bad_key = b"-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n";
    let other = b"-----BEGIN EC PARAMETERS-----\nMAA=\n-----END EC PARAMETERS-----\n";
    let cases: [(&[u8], Error); 6] = [
        (b"", Error::Empty { labels: vec![] }),
        (b"hello", Error::UnknownFormat),
        (encrypted, Error::EncryptedKey),
        (old, Error::EncryptedKey),
        (bad_key, Error::UnusableKey),
        (other, Error::Empty { labels: vec!["EC PARAMETERS".into()] }),
    ];
    for (file, error) in cases {
        assert_eq!(parse(file).err(), Some(error), "{}", String::from_utf8_lossy(file));
    }
    assert!(matches!(parse(cut), Err(Error::MalformedPem(_))));
}

#[test]
fn refuses_to_issue_certificates_without_the_names_they_need() {
    let root = tree(KeyType::Ed25519, Form::Full).root;
    let validity = Validity::from_now_days(1).unwrap();
    let issue = |spec: LeafSpec| root.issue(&spec, KeyPair::generate(KeyType::Ed25519).unwrap()).err();
    let nameless = LeafSpec::client(Subject::default(), validity);
    assert_eq!(issue(nameless.clone()), Some(Error::Nameless));
    let mut server = LeafSpec::client("a".parse().unwrap(), validity);
    server.purposes.insert(Purpose::Server);
    assert_eq!(issue(server), Some(Error::ServerWithoutName));
    let named = LeafSpec { names: vec![AltName::Uri("did:example:1".into())], ..nameless };
    assert_eq!(issue(named), None);
    let nameless = CaSpec::new(Subject::default(), validity);
    let key = KeyPair::generate(KeyType::Ed25519).unwrap();
    assert_eq!(Authority::root(&nameless, key).err(), Some(Error::BadSubject(String::new())));
}

#[test]
fn writes_years_from_2050_on_as_generalized_time() {
    let from = dunlin_pki::parse_time("2049-06-01").unwrap();
    let validity = Validity::new(from, from + Duration::from_secs(365 * 24 * 60 * 60)).unwrap();
    let key = KeyPair::generate(KeyType::Ed25519).unwrap();
    let root = Authority::root(&CaSpec::new("r".parse().unwrap(), validity), key).unwrap();
    let der: &[u8] = root.certificate();
    let contains = |text: &[u8]| der.windows(text.len()).any(|window| window == text);
    // UTCTime until 2049, GeneralizedTime from 2050 on (RFC 5280 §4.1.2.5).
    assert!(contains(b"\x17\x0d490601000000Z") && contains(b"\x18\x0f20500601000000Z"));
    let info = CertificateInfo::from_der(der).unwrap();
    assert_eq!((info.not_before, info.not_after), (validity.not_before(), validity.not_after()));
}

/// RFC 5280 §4.1.2.4: a name may have a UniversalString or a BMPString.
#[test]
fn reads_and_revokes_certificates_with_any_type_of_string() {
    let month = Validity::from_now_days(30).unwrap();
    let root = CaSpec::new("CN=root".parse().unwrap(), month);
    let root = Authority::root(&root, KeyPair::generate(KeyType::P256).unwrap()).unwrap();
    let leaf = LeafSpec::client("CN=abcd".parse().unwrap(), month);
    let leaf = root.issue(&leaf, KeyPair::generate(KeyType::P256).unwrap()).unwrap().chain.swap_remove(0);
    let at = leaf.windows(6).position(|window| window == b"\x0c\x04abcd").unwrap();
    let serial = CertificateInfo::from_der(&leaf).unwrap().serial;
    for (string, subject) in [
        (b"\x1c\x04\0\0\0d", "CN=d"),
        (b"\x1e\x04\0d\0e", "CN=de"),
        (b"\x14\x04abcd", "CN=abcd"),
        (b"\x1a\x04abcd", "2.5.4.3=#1a0461626364"),
        // A type of string that has no number yet.
        (b"\x1f\x04abcd", "2.5.4.3=#1f0461626364"),
    ] {
        let mut der = leaf.to_vec();
        der[at..at + string.len()].copy_from_slice(string);
        let info = CertificateInfo::from_der(&der).unwrap();
        assert_eq!((info.subject.as_str(), info.issuer.as_str()), (subject, "CN=root"));
        assert_eq!((&info.serial, info.parts.iter().map(|part| part.bytes).sum()), (&serial, der.len()));
        assert!(matches!(&parse(&der).unwrap()[..], [Item::Certificate(_)]));
        let revoke = vec![der.into()];
        let list = CrlSpec { previous: None, revoke, reason: None, validity: month };
        let list = RevocationListInfo::from_der(&root.revocation_list(&list).unwrap()).unwrap();
        assert_eq!(list.revoked[0].serial, serial);
    }
}
