//! The server's cost of a client's certificates, in the one call of `receive` that verifies them: median,
//! 99th percentile and longest. A caller that shares an endpoint between threads holds its lock during this
//! call.
//!
//! ```text
//! cargo bench -p dunlin-tests --bench chain_cost [-- SAMPLES]
//! ```
//!
//! Honest clients have a leaf below one authority. The attackers send 62 authorities of one subject, which
//! one key identifier or a new one each names, below a root that has only the name of the trusted one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a program for developers")]

use std::sync::Arc;
use std::time::Instant;

use dunlin::auth::X509Trust;
use dunlin::pki_types::{CertificateDer, PrivateKeyDer};
use dunlin::{ClientAuth, ClientConfig, Credential, Profile, ServerConfig, TlsConnection, Trust};
use dunlin_tests::{KeyType, NOW, Pair, Pki, carry, full_awslc};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyIdMethod, KeyPair, SignatureAlgorithm,
};

const SAMPLES: usize = 1_000;
/// Authorities of an attacker's message of 26 kB (P-521).
const AUTHORITIES: u8 = 62;

fn main() {
    let samples = std::env::args().filter_map(|arg| arg.parse().ok()).next().unwrap_or(SAMPLES);
    let [p256, p521] = [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P521_SHA512];
    println!(
        "{samples} handshakes of each kind; microseconds in the call that verifies the client's certificates"
    );
    println!("{:<44} {:>9} {:>9} {:>9} {:>7}", "client", "median", "p99", "longest", "bytes");
    for (name, algorithm, count, invents) in [
        ("honest, P-256", p256, 1, None),
        ("honest, P-521", p521, 1, None),
        ("62 authorities, one key identifier, P-256", p256, AUTHORITIES, Some(false)),
        ("62 authorities, one key identifier, P-521", p521, AUTHORITIES, Some(false)),
        ("62 authorities, own key identifiers, P-256", p256, AUTHORITIES, Some(true)),
        ("62 authorities, own key identifiers, P-521", p521, AUTHORITIES, Some(true)),
    ] {
        let client = Client::new(algorithm, count, invents);
        let mut times: Vec<_> = (0..samples).map(|_| client.connect(invents.is_none())).collect();
        times.sort_by(f64::total_cmp);
        let [median, p99] = [samples / 2, samples * 99 / 100].map(|i| times[i]);
        let longest = times[samples - 1];
        println!("{name:<44} {median:>9.0} {p99:>9.0} {longest:>9.0} {:>7}", client.bytes);
    }
}

/// A client with its chain, and a server that trusts a root of the same name.
struct Client {
    config: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    bytes: usize,
}

fn named(name: &str, key_identifier: u8) -> CertificateParams {
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.use_authority_key_identifier_extension = true;
    params.key_identifier_method = KeyIdMethod::PreSpecified(vec![key_identifier; 20]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

impl Client {
    /// `invents` says whether each authority has a key identifier of its own; `None` is an honest client.
    fn new(algorithm: &'static SignatureAlgorithm, count: u8, invents: Option<bool>) -> Self {
        let key = || KeyPair::generate_for(algorithm).unwrap();
        let params = named("Root", 0);
        let root = key();
        let trusted = params.self_signed(&root).unwrap().der().clone();
        let root = Issuer::new(params, if invents.is_some() { key() } else { root });
        let authorities = (1..=count).map(|number| {
            let params = named("Authority", if invents == Some(true) { number } else { 1 });
            let key = key();
            let certificate = params.signed_by(&key, &root).unwrap().der().clone();
            (Issuer::new(params, key), certificate)
        });
        let (issuers, certificates): (Vec<_>, Vec<_>) = authorities.unzip();
        let mut leaf = CertificateParams::new(vec!["localhost".into()]).unwrap();
        leaf.use_authority_key_identifier_extension = true;
        let own = key();
        let leaf = leaf.signed_by(&own, issuers.last().unwrap()).unwrap().der().clone();
        let chain: Vec<CertificateDer<'static>> = [leaf].into_iter().chain(certificates).collect();
        let bytes = chain.iter().map(|certificate| certificate.len()).sum();

        let provider = full_awslc();
        let pki = Pki::shared(KeyType::P256);
        let own = provider.key_loader.load(&PrivateKeyDer::Pkcs8(own.serialize_der().into())).unwrap();
        let client = Profile::builder(provider.clone())
            .trust(Trust { x509: Some(pki.trust()), raw_key: None })
            .credentials(vec![Credential::x509(chain, own)]);
        let trust = Trust { x509: Some(X509Trust::anchors([trusted]).unwrap()), raw_key: None };
        let server =
            Profile::builder(provider.clone()).trust(trust).credentials(vec![pki.server.x509(&provider)]);
        let server = ServerConfig::new(server.build().unwrap()).unwrap();
        Self {
            config: Arc::new(ClientConfig::new(client.build().unwrap())),
            server: Arc::new(server.with_client_auth(ClientAuth::Required).unwrap()),
            bytes,
        }
    }

    /// Returns the microseconds of the call, after which the server has verified or refused this client.
    fn connect(&self, is_honest: bool) -> f64 {
        let Pair { mut client, mut server, .. } = Pair::new(&self.config, &self.server);
        carry(&mut client, &mut server, NOW).1.unwrap();
        carry(&mut server, &mut client, NOW).1.unwrap();
        let flight = take(&mut client);
        let start = Instant::now();
        let result = server.receive(NOW, &flight);
        let time = start.elapsed();
        assert_eq!(result.is_ok(), is_honest, "{result:?}");
        time.as_secs_f64() * 1e6
    }
}

fn take(from: &mut TlsConnection) -> Vec<u8> {
    let bytes = from.transmit().to_vec();
    from.transmitted(bytes.len());
    bytes
}
