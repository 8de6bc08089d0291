//! The attributes of clients.

use dunlin::PeerIdentity;
use dunlin::auth::{OtherIdentity, SubjectName, X509Identity};
use dunlin::pki_types::CertificateDer;
use dunlin::pki_types::pem::PemObject;
use dunlin::wire::CertificateType;
use dunlin_gateway::policy::{Attribute, Client, Finished, Hints, Turn, Verdict};

/// Made by OpenSSL 3.0.19; the values below are OpenSSL's, except that it writes EMAIL as emailAddress.
fn certificate() -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(include_bytes!("data/client.pem")).unwrap()
}

const FINGERPRINT: &str = "1a0cdc28376dc2a008941021c0797276243a45c9acb30af839adf49055888b7f";

fn values(client: &Client, key: &str) -> Vec<String> {
    let attribute = Attribute::from_key(key).unwrap();
    client.values(&attribute).map(str::to_owned).collect()
}

#[test]
fn reads_the_attributes_of_a_certificate() {
    let client = Client::from_certificate(&certificate()).unwrap();
    for (key, expected) in [
        ("kind", &["x509"][..]),
        // It has a DNS name.
        ("name", &[]),
        ("email", &["alice@example.com", "alice@mail.example.com"]),
        ("dns", &["alice.example.com"]),
        ("uri", &["spiffe://example.com/alice"]),
        ("fingerprint", &[FINGERPRINT]),
        ("key", &["23c10695fda2e6bc75748eb63d2cac35cbbf5d104169c30c1842552689fa1321"]),
        ("subject", &["EMAIL=alice@example.com,CN=Alice Example,O=Example\\, Ltd.,C=DE"]),
        ("issuer", &["EMAIL=alice@example.com,CN=Alice Example,O=Example\\, Ltd.,C=DE"]),
        ("psk", &[]),
    ] {
        assert_eq!(values(&client, key), expected, "{key}");
    }
    assert_eq!(client.not_after_s(), Some(4_948_997_608));
    assert_eq!(client.doubtful(), [(Attribute::Name, "Alice Example".to_owned())]);
    assert_eq!(client.to_string(), "x509 email=alice@example.com");
    assert!(Client::from_certificate(b"no certificate").is_none());
}

#[test]
fn knows_less_of_a_client_that_resumes_a_session() {
    let identity = |chain| {
        let names = vec![SubjectName::Dns("Alice.Example.com".into())];
        let common_name = None;
        let fingerprint = [0xab; 32];
        let not_after_s = 1000;
        PeerIdentity::X509(X509Identity {
            chain,
            names,
            common_name,
            fingerprint,
            not_after_s,
            details: None,
        })
    };
    let full = Client::of(&identity(vec![certificate()]));
    assert_eq!(values(&full, "email").len(), 2);
    assert!(!full.is_unknown(&Attribute::Email));
    // No path tells who has issued the certificate.
    assert!(full.is_unknown(&Attribute::IssuerKey));
    // The verdict on the chain ends before the leaf expires.
    assert_eq!(full.not_after_s(), Some(1000));

    let resumed = Client::of(&identity(vec![]));
    assert_eq!(values(&resumed, "dns"), ["alice.example.com"]);
    assert_eq!(values(&resumed, "fingerprint"), ["ab".repeat(32)]);
    for attribute in [
        Attribute::Email,
        Attribute::Issuer,
        Attribute::Subject,
        Attribute::Key,
        Attribute::Name,
        Attribute::IssuerKey,
    ] {
        assert!(resumed.is_unknown(&attribute), "{attribute}");
        assert_eq!(resumed.values(&attribute).count(), 0);
    }
}

/// A backend that receives one of the names must not serve a client that the policy knows by the other.
#[test]
fn several_common_names_are_no_identity_by_name() {
    // Made by OpenSSL 3.0.
    let both = CertificateDer::from_pem_slice(include_bytes!("data/two-names.pem")).unwrap();
    let client = Client::from_certificate(&both).unwrap();
    assert_eq!(values(&client, "subject"), ["CN=admin,CN=device-1"]);
    assert!(values(&client, "name").is_empty() && client.is_unknown(&Attribute::Name));
    let rules = "[profile.a]\nrank = 2\n[profile.b]\nrank = 1\nclient = \"certificate\"\n";
    for (rule, verdict, profile) in [
        ("refuse = true", Verdict::Refuse, "a"),
        // An unknown name never lowers the rank.
        ("profile = \"b\"", Verdict::Serve, "a"),
    ] {
        for name in ["device-1", "admin"] {
            let policy = crate::policy(&format!("{rules}[[rule]]\n{rule}\nwhen.name = {name:?}\n"));
            let used = policy.default_profile();
            let hints = Hints::default();
            let finished = Finished {
                used,
                client: Some(&client),
                hints: &hints,
                is_resumed: false,
                turn: Turn::Impossible,
            };
            let decision = policy.after(&finished, 0);
            assert_eq!(
                (decision.verdict, decision.profile.name.as_str()),
                (verdict, profile),
                "{rule} {name}"
            );
        }
    }
}

/// RFC 5280 §4.1.2.4: the issuer chooses among several types of strings for one subject.
#[test]
fn no_type_of_string_evades_a_rule() {
    use rcgen::string::{BmpString, PrintableString, TeletexString};
    use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};
    let name = "device-1";
    let four: Vec<u8> = name.bytes().flat_map(|byte| [0, 0, 0, byte]).collect();
    let key = KeyPair::generate().unwrap();
    let rule = |what: &str| {
        let rules = "[profile.a]\nrank = 2\n";
        crate::policy(&format!("{rules}[[rule]]\nrefuse = true\nwhen.{what} = \"CN=device-1,O=Field\"\n"))
    };
    for value in [
        DnValue::Utf8String(name.into()),
        DnValue::PrintableString(PrintableString::try_from(name).unwrap()),
        DnValue::TeletexString(TeletexString::try_from(name).unwrap()),
        DnValue::BmpString(BmpString::try_from(name).unwrap()),
        DnValue::UniversalString(rcgen::string::UniversalString::from_utf32be(four).unwrap()),
    ] {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::OrganizationName, "Field");
        params.distinguished_name.push(DnType::CommonName, value.clone());
        let certificate = params.self_signed(&key).unwrap();
        let client = Client::from_certificate(certificate.der()).unwrap();
        assert_eq!(values(&client, "subject"), ["CN=device-1,O=Field"], "{value:?}");
        // The engine takes no UniversalString for an identity.
        let known =
            client.values(&Attribute::Name).chain(client.doubtful().iter().map(|(_, name)| name.as_str()));
        assert_eq!(known.collect::<Vec<_>>(), [name], "{value:?}");
        for what in ["subject", "issuer"] {
            let policy = rule(what);
            let hints = Hints::default();
            let finished = Finished {
                used: policy.default_profile(),
                client: Some(&client),
                hints: &hints,
                is_resumed: false,
                turn: Turn::Impossible,
            };
            assert_eq!(policy.after(&finished, 0).verdict, Verdict::Refuse, "{what} {value:?}");
        }
    }
}

/// A client with the details that the verifier of credentials keeps beside the DID.
fn with_credential(claims: &str) -> Client {
    let details = format!(
        r#"{{"issuer":"did:web:operator.example","document":"z{}","sequence":"0","resolved":"1","until":"1000","claims":{claims}}}"#,
        "1".repeat(32)
    );
    let typ = CertificateType::VERIFIABLE_CREDENTIAL;
    let identity = OtherIdentity::new(typ, *b"did:web:device.example", "device").unwrap();
    Client::of(&PeerIdentity::Other(identity.with_details(details.into_bytes()).unwrap()))
}

#[test]
fn reads_the_attributes_of_a_verifiable_credential() {
    let client = with_credential(r#"{"role":"sensor","halls":["a","b"],"level":3,"place":{"floor":1}}"#);
    for (key, expected) in [
        ("kind", &["vc"][..]),
        ("id", &["did:web:device.example"]),
        ("issuer", &["did:web:operator.example"]),
        ("claim.role", &["sensor"]),
        ("claim.halls", &["a", "b"]),
        ("claim.level", &["3"]),
        ("claim.place", &["{\"floor\":1}"]),
        ("claim.other", &[]),
    ] {
        assert_eq!(values(&client, key), expected, "{key}");
    }
    assert_eq!((client.not_after_s(), client.has_unknown_end()), (Some(1000), false));
    assert!(!client.is_unknown(&Attribute::Claim("other".into())));
    assert_eq!(client.to_string(), "vc id=did:web:device.example");
    // Claims that were too long to be kept may have any value.
    let client = with_credential("null");
    assert!(client.is_unknown(&Attribute::Claim("role".into())) && !client.is_unknown(&Attribute::Issuer));
}

#[test]
fn shows_identities_that_are_no_text_in_hexadecimal() {
    assert_eq!(values(&Client::with_psk(b"meter-1", Some("meter")), "psk"), ["meter-1"]);
    assert_eq!(values(&Client::with_psk(b"meter-1", Some("meter")), "device"), ["meter"]);
    assert_eq!(values(&Client::with_psk(b"\xff\n", None), "psk"), ["#ff0a"]);
    // No text can look like another identity's digits.
    assert_eq!(values(&Client::with_psk(b"#ff0a", None), "psk"), ["#2366663061"]);
}

/// Domains have no case; the part before the `@` may have one (RFC 5280 §4.2.1.6, RFC 5321 §2.4).
#[test]
fn compares_the_domains_of_e_mail_addresses_without_case() {
    let policy = crate::policy(
        "[profile.a]\nrank = 1\n[[rule]]\nrefuse = true\nwhen.email = \"Alice@EXAMPLE.com\"\n\
         [[rule]]\nprofile = \"a\"\nname = \"b\"\nwhen.email = \"*@Mail.example.com\"\n",
    );
    let rule = |address: &str| {
        let mut client = Client::of_kind("x509");
        client.add(Attribute::Email, address.to_owned());
        policy.before(&crate::claimed(dunlin_gateway::policy::Source::Session, client), 0).rule
    };
    assert_eq!(rule("Alice@example.com").as_deref(), Some("rule[0]"));
    assert_eq!(rule("alice@example.com"), None);
    assert_eq!(
        values(&Client::from_certificate(&certificate()).unwrap(), "email")[1],
        "alice@mail.example.com"
    );
    assert_eq!(rule("alice@mail.example.com").as_deref(), Some("b"));
}

#[test]
fn does_not_know_how_long_a_credential_remains_valid_without_its_end() {
    let policy = crate::policy(
        "[profile.strong]\nrank = 2\n[profile.low]\nrank = 1\nclient = \"certificate\"\n\
         [[rule]]\nprofile = \"strong\"\nwhen.valid_at_most = \"1d\"\n\
         [[rule]]\nprofile = \"low\"\nwhen.kind = \"other\"\n",
    );
    let profile = |client: &Client| {
        let hints = crate::claimed(dunlin_gateway::policy::Source::Session, client.clone());
        policy.before(&hints, 0).profile.name.clone()
    };
    let mut client = Client::of_kind("other");
    assert_eq!(profile(&client), "low", "it does not end");
    client.set_unknown_end();
    assert_eq!(profile(&client), "strong", "it may end soon");
    client.set_not_after_s(86_401);
    assert_eq!(profile(&client), "low");
}
