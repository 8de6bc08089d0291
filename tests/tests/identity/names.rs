//! Names in certificates: a URI never counts as a DNS name, and an authority with name constraints cannot
//! certify a URI.

use std::process::Command;
use std::sync::Arc;

use dunlin::auth::{PeerIdentity, SubjectName, X509Trust};
use dunlin::error::AuthenticationFailure;
use dunlin::pki_types::{CertificateDer, PrivateKeyDer};
use dunlin::resume::Tickets;
use dunlin::{ClientAuth, ClientConfig, Credential, Error, Profile, ServerConfig, Side, Trust};
use dunlin_store::{MemoryClientSessions, RotatingTickets};
use dunlin_tests::{KeyType, NOW, Pair, Pki, awslc};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, DnValue, GeneralSubtree, IsCa, Issuer,
    KeyPair, NameConstraints, SanType,
};

/// The authority that is constrained to `localhost`.
#[derive(Clone, Copy, PartialEq)]
enum Constrained {
    Nobody,
    Root,
    Intermediate,
}

fn authority(name: &str, constrained: bool) -> CertificateParams {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.name_constraints = constrained.then(|| NameConstraints {
        permitted_subtrees: vec![GeneralSubtree::DnsName("localhost".into())],
        excluded_subtrees: vec![],
    });
    params
}

/// Connects twice to a server with these names. Returns its names in the second connection, which resumes.
fn connect(constrained: Constrained, uri: Option<&str>) -> Result<Vec<SubjectName>, Error> {
    let root_key = KeyPair::generate().unwrap();
    let root = authority("root", constrained == Constrained::Root);
    let root_certificate = root.self_signed(&root_key).unwrap().der().clone();
    let root = Issuer::new(root, root_key);
    let key = KeyPair::generate().unwrap();
    let intermediate = authority("intermediate", constrained == Constrained::Intermediate);
    let intermediate_certificate = intermediate.signed_by(&key, &root).unwrap().der().clone();
    let intermediate = Issuer::new(intermediate, key);
    let mut leaf = CertificateParams::new(vec!["localhost".into()]).unwrap();
    leaf.subject_alt_names.extend(uri.map(|uri| SanType::URI(uri.try_into().unwrap())));
    let key = KeyPair::generate().unwrap();
    let chain = vec![leaf.signed_by(&key, &intermediate).unwrap().der().clone(), intermediate_certificate];
    let key = awslc().key_loader.load(&PrivateKeyDer::Pkcs8(key.serialize_der().into())).unwrap();

    let trust = X509Trust::anchors([root_certificate]).unwrap();
    let client = Profile::builder(awslc()).trust(Trust { x509: Some(trust), raw_key: None });
    let client = ClientConfig::new(client.build().unwrap());
    let client = Arc::new(client.with_sessions(Arc::new(MemoryClientSessions::new(1, 1))));
    let server = Profile::builder(awslc()).credentials(vec![Credential::x509(chain, key)]).build().unwrap();
    let tickets = Tickets::stateless(Arc::new(RotatingTickets::new(awslc()).unwrap()));
    let server = Arc::new(ServerConfig::new(server).unwrap().with_tickets(tickets));
    Pair::new(&client, &server).run()?;
    let mut pair = Pair::new(&client, &server);
    pair.run()?;
    let negotiated = pair.client.negotiated().unwrap();
    assert!(negotiated.is_resumed());
    match &negotiated.peer {
        Some(PeerIdentity::X509(id)) => Ok(id.names.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn uri_does_not_count_as_a_dns_name() {
    let localhost = SubjectName::Dns("localhost".into());
    let uri = "admin.example";
    assert_eq!(connect(Constrained::Nobody, None), Ok(vec![localhost.clone()]));
    assert_eq!(connect(Constrained::Nobody, Some(uri)), Ok(vec![localhost, SubjectName::Uri(uri.into())]));
}

#[test]
fn rejects_a_uri_below_an_authority_with_name_constraints() {
    for constrained in [Constrained::Root, Constrained::Intermediate] {
        assert!(connect(constrained, None).is_ok());
        for uri in ["admin.example", "spiffe://admin.example/root", "https://localhost/"] {
            assert_eq!(
                connect(constrained, Some(uri)),
                Err(AuthenticationFailure::ConstraintViolated.into())
            );
        }
    }
}

/// A client's chain of one authority below a root, which both have constraints.
struct Chain {
    root: CertificateDer<'static>,
    chain: [CertificateDer<'static>; 2],
    key: Vec<u8>,
}

impl Chain {
    /// `constraint` is of the root or of the intermediate authority. `email` stands in the subject.
    fn new(
        of_root: bool,
        constraint: &NameConstraints,
        names: &[&str],
        email: Option<&str>,
        dns: &[&str],
    ) -> Self {
        let with = |name: &str, is_constrained: bool| {
            let mut params = authority(name, false);
            params.name_constraints = is_constrained.then(|| constraint.clone());
            params
        };
        let root_key = KeyPair::generate().unwrap();
        let key = KeyPair::generate().unwrap();
        let root = with("root", of_root);
        let certificate = root.self_signed(&root_key).unwrap().der().clone();
        let intermediate = with("intermediate", !of_root);
        let root = Issuer::new(root, root_key);
        let intermediate_certificate = intermediate.signed_by(&key, &root).unwrap().der().clone();
        let dns: Vec<String> = dns.iter().map(|name| (*name).to_owned()).collect();
        let mut leaf = CertificateParams::new(dns).unwrap();
        leaf.distinguished_name = DistinguishedName::new();
        // rcgen keeps one attribute of each kind, and knows this one by its number as another.
        let kinds = [DnType::CommonName, DnType::CustomDnType(vec![2, 5, 4, 3])];
        for (kind, name) in kinds.into_iter().zip(names) {
            leaf.distinguished_name.push(kind, *name);
        }
        if let Some(email) = email {
            let email = DnValue::Ia5String(email.try_into().unwrap());
            leaf.distinguished_name.push(DnType::CustomDnType(EMAIL_ADDRESS.to_vec()), email);
        }
        let issuer = Issuer::new(intermediate, key);
        let key = KeyPair::generate().unwrap();
        let leaf = leaf.signed_by(&key, &issuer).unwrap().der().clone();
        Self { root: certificate, chain: [leaf, intermediate_certificate], key: key.serialize_der() }
    }

    /// Whether this side accepts the client.
    fn is_accepted(&self) -> bool {
        let trust = X509Trust::anchors([self.root.clone()]).unwrap();
        let verdict = trust.verify_chain(awslc().signatures.all, &self.chain, Side::Client, None, NOW);
        match verdict.unwrap() {
            Ok(()) => true,
            Err(failure) => {
                assert_eq!(failure, AuthenticationFailure::ConstraintViolated);
                false
            }
        }
    }

    /// Whether OpenSSL accepts the client.
    fn is_accepted_by_openssl(&self) -> bool {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, certificate: &CertificateDer<'_>| {
            let path = folder.path().join(name);
            std::fs::write(&path, pem::encode(&pem::Pem::new("CERTIFICATE", certificate.to_vec()))).unwrap();
            path
        };
        let root = write("root.pem", &self.root);
        let intermediate = write("intermediate.pem", &self.chain[1]);
        let mut openssl = Command::new("openssl");
        openssl.args([
            "verify",
            "-purpose",
            "sslclient",
            "-attime",
            &(NOW.unix_ms / 1000).to_string(),
            "-CAfile",
        ]);
        openssl.arg(root).arg("-untrusted").arg(intermediate).arg(write("leaf.pem", &self.chain[0]));
        openssl.output().unwrap().status.success()
    }
}

const EMAIL_ADDRESS: [u64; 7] = [1, 2, 840, 113_549, 1, 9, 1];

fn constraints(subtree: GeneralSubtree, is_excluded: bool) -> NameConstraints {
    let (permitted, excluded) = if is_excluded { (vec![], vec![subtree]) } else { (vec![subtree], vec![]) };
    NameConstraints { permitted_subtrees: permitted, excluded_subtrees: excluded }
}

/// RFC 5280 §4.2.1.10: a mailbox, a host, or the hosts below a domain. OpenSSL gives the same verdicts.
#[test]
fn constraints_of_addresses_apply_to_the_subject() {
    for (base, email, is_within) in [
        ("example.com", "alice@example.com", true),
        ("example.com", "alice@EXAMPLE.com", true),
        ("example.com", "alice@a.example.com", false),
        ("example.com", "alice@example.org", false),
        ("example.com", "alice@badexample.com", false),
        (".example.com", "alice@a.example.com", true),
        (".example.com", "alice@example.com", false),
        ("alice@example.com", "alice@example.com", true),
        ("alice@example.com", "Alice@example.com", false),
        ("alice@example.com", "mallory@example.com", false),
    ] {
        for (of_root, is_excluded) in [(true, false), (true, true), (false, false), (false, true)] {
            let constraint = constraints(GeneralSubtree::Rfc822Name(base.into()), is_excluded);
            let chain = Chain::new(of_root, &constraint, &["Alice"], Some(email), &[]);
            assert_eq!(chain.is_accepted(), is_within != is_excluded, "{base} {email} {is_excluded}");
            assert_eq!(chain.is_accepted_by_openssl(), is_within != is_excluded, "{base} {email}");
        }
    }
    // Constraints of other names leave addresses alone, and a text without a host is no address.
    let constraint = constraints(GeneralSubtree::DnsName("example.com".into()), false);
    assert!(Chain::new(true, &constraint, &["Alice"], Some("alice@example.org"), &[]).is_accepted());
    for is_excluded in [false, true] {
        let constraint = constraints(GeneralSubtree::Rfc822Name("example.com".into()), is_excluded);
        let chain = Chain::new(true, &constraint, &["Alice"], Some("alice"), &[]);
        assert!(!chain.is_accepted() && !chain.is_accepted_by_openssl());
    }
}

/// As OpenSSL does: only without a dNSName, and only where it looks like a host name.
#[test]
fn constraints_of_hosts_apply_to_a_common_name_without_dns_names() {
    for (name, dns, is_accepted) in [
        ("a.example.com", &[][..], true),
        ("example.com", &[], true),
        ("EXAMPLE.com", &[], true),
        ("a.example.org", &[], false),
        ("badexample.com", &[], false),
        ("device 1", &[], true),
        ("device-1", &[], true),
        ("-a.example.org", &[], true),
        ("*.example.org", &[], true),
        ("a_b.example.org", &[], false),
        ("a.example.org", &["a.example.com"], true),
        ("a.example.com", &["a.example.org"], false),
    ] {
        for of_root in [true, false] {
            let constraint = constraints(GeneralSubtree::DnsName("example.com".into()), false);
            let chain = Chain::new(of_root, &constraint, &[name], None, dns);
            assert_eq!(chain.is_accepted(), is_accepted, "{name} {dns:?}");
            assert_eq!(chain.is_accepted_by_openssl(), is_accepted, "{name} {dns:?}");
        }
    }
    let constraint = constraints(GeneralSubtree::DnsName("example.com".into()), true);
    for (name, is_accepted) in [("a.example.com", false), ("a.example.org", true), ("device 1", true)] {
        let chain = Chain::new(false, &constraint, &[name], None, &[]);
        assert_eq!(
            (chain.is_accepted(), chain.is_accepted_by_openssl()),
            (is_accepted, is_accepted),
            "{name}"
        );
    }
    // A final period is no way around, nor is a second name.
    for names in [&["a.example.org."][..], &["device 1", "a.example.org"], &["a.example.org", "device 1"]] {
        let constraint = constraints(GeneralSubtree::DnsName("example.com".into()), false);
        assert!(!Chain::new(true, &constraint, names, None, &[]).is_accepted(), "{names:?}");
    }
}

/// The common name by which the server knows the client, in a full and in a resumed connection.
fn known_name(chain: Chain) -> Option<String> {
    let Chain { root, chain, key } = chain;
    let trust = |roots| Trust { x509: Some(X509Trust::anchors([roots]).unwrap()), raw_key: None };
    let key = awslc().key_loader.load(&PrivateKeyDer::Pkcs8(key.into())).unwrap();
    let pki = Pki::shared(KeyType::P256);
    let client = Profile::builder(awslc()).trust(trust(pki.root.clone()));
    let client = client.credentials(vec![Credential::x509(chain.to_vec(), key)]).build().unwrap();
    let client = ClientConfig::new(client).with_sessions(Arc::new(MemoryClientSessions::new(1, 1)));
    let server = Profile::builder(awslc()).trust(trust(root));
    let server = server.credentials(vec![pki.server.x509(&awslc())]).build().unwrap();
    let server = ServerConfig::new(server).unwrap().with_client_auth(ClientAuth::Required).unwrap();
    let tickets = Tickets::stateless(Arc::new(RotatingTickets::new(awslc()).unwrap()));
    let client = Arc::new(client);
    let server = Arc::new(server.with_tickets(tickets));
    let [full, resumed] = [false, true].map(|is_resumed| {
        let mut pair = Pair::new(&client, &server);
        pair.run().unwrap();
        let negotiated = pair.server.negotiated().unwrap();
        assert_eq!(negotiated.is_resumed(), is_resumed);
        match &negotiated.peer {
            Some(PeerIdentity::X509(id)) => id.common_name.clone(),
            other => panic!("{other:?}"),
        }
    });
    assert_eq!(full, resumed);
    full
}

/// A reader that takes the first of several common names, and one that takes the last, would know different
/// peers.
#[test]
fn several_common_names_are_no_identity() {
    let constraint = constraints(GeneralSubtree::DnsName("example.com".into()), false);
    for (names, known) in [(&["device-1"][..], Some("device-1")), (&["device-1", "admin"], None)] {
        let chain = Chain::new(true, &constraint, names, None, &[]);
        assert_eq!(known_name(chain).as_deref(), known);
    }
}

/// A pattern of an application, such as `*.example.org`, matches more than what this side takes for host
/// names.
#[test]
fn a_common_name_that_escapes_constraints_of_hosts_is_no_identity() {
    let permitted = constraints(GeneralSubtree::DnsName("example.com".into()), false);
    let excluded = constraints(GeneralSubtree::DnsName("example.org".into()), true);
    let of_addresses = constraints(GeneralSubtree::Rfc822Name("example.com".into()), false);
    for (name, is_identity) in [
        ("-a.example.org", false),
        ("a-.example.org", false),
        ("*.example.org", false),
        ("a b.example.org", false),
        ("a..example.org", false),
        (".example.org", false),
        ("a@b.example.org", false),
        ("\u{e4}.example.org", false),
        ("admin.ex\u{e4}mple", false),
        // Without a period, no such pattern matches.
        ("Sensor 7", true),
        ("Z\u{e4}hler", true),
        ("-device-1", true),
        ("a.example.com", true),
    ] {
        for of_root in [true, false] {
            for constraint in [&permitted, &excluded] {
                let known = known_name(Chain::new(of_root, constraint, &[name], None, &[]));
                assert_eq!(known.as_deref(), is_identity.then_some(name));
            }
            let known = known_name(Chain::new(of_root, &of_addresses, &[name], None, &[]));
            assert_eq!(known.as_deref(), Some(name));
        }
    }
}

/// A dNSName that cannot be read is no name, so the common name is one, and obeys the constraints.
#[test]
fn an_unreadable_dns_name_hides_no_common_name_from_constraints() {
    let constraint = constraints(GeneralSubtree::DnsName("example.com".into()), false);
    for dns in ["a b.example.com", "-.example.com", "*"] {
        let Chain { root, chain, .. } = Chain::new(true, &constraint, &["a.example.org"], None, &[dns]);
        let trust = X509Trust::anchors([root]).unwrap();
        let verdict = trust.verify_chain(awslc().signatures.all, &chain, Side::Client, None, NOW);
        assert!(verdict.unwrap().is_err(), "{dns}");
    }
}
