//! Names in certificates: a URI never counts as a DNS name, and an authority with name constraints cannot certify a URI.

use std::sync::Arc;

use dunlin::auth::{PeerIdentity, SubjectName, X509Trust};
use dunlin::error::AuthenticationFailure;
use dunlin::pki_types::PrivateKeyDer;
use dunlin::resume::Tickets;
use dunlin::{ClientConfig, Credential, Error, Profile, ServerConfig, Trust};
use dunlin_store::{MemoryClientSessions, RotatingTickets};
use dunlin_tests::{Pair, awslc};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, GeneralSubtree, IsCa, Issuer, KeyPair, NameConstraints,
    SanType,
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
