//! Remembered verdicts about client certificates, in real handshakes and virtual time.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use dunlin::auth::{
    Belief, Claim, KnownRegistry, PeerIdentity, Verdict, Verified, Verifier, Verifiers, X509Trust,
};
use dunlin::crypto::CryptoProvider;
use dunlin::error::AuthenticationFailure;
use dunlin::pki_types::CertificateDer;
use dunlin::wire::{CertificateType, DidMethod};
use dunlin::{ClientAuth, ClientConfig, Error, Now, Profile, ServerConfig, Trust};
use dunlin_store::RememberedVerdicts;
use dunlin_tests::{KeyType, NOW, Pair, Pki, awslc, full_awslc};

/// Counts the verdicts of X.509. The last field is what it knows now of earlier ones.
#[derive(Debug)]
struct Counting(X509Trust, AtomicUsize, Mutex<Belief>);

impl Verifier for Counting {
    fn certificate_type(&self) -> CertificateType {
        self.0.certificate_type()
    }

    fn settings(&self, add: &mut dyn FnMut(&[u8])) {
        self.0.settings(add);
    }

    fn verify(&self, claim: &Claim<'_>) -> Result<Verdict, AuthenticationFailure> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.verify(claim)
    }

    fn read(&self, claim: &Claim<'_>) -> Result<Box<Verified>, AuthenticationFailure> {
        self.0.read(claim)
    }

    fn still_believes(&self, _: &PeerIdentity, _: Now) -> Belief {
        *self.2.lock().unwrap()
    }
}

struct Side {
    counting: Arc<Counting>,
    verdicts: Arc<RememberedVerdicts>,
}

impl Side {
    fn new(capacity: usize) -> Self {
        let trust = Pki::shared(KeyType::P256).trust();
        let counting = Arc::new(Counting(trust, AtomicUsize::new(0), Mutex::new(Belief::Holds)));
        let verdicts = Arc::new(RememberedVerdicts::new(counting.clone(), capacity));
        Self { counting, verdicts }
    }

    fn server(&self, provider: Arc<CryptoProvider>) -> Arc<ServerConfig> {
        let own = Pki::shared(KeyType::P256).server.x509(&provider);
        let trust = Verifiers::default().with(self.verdicts.clone());
        let profile = Profile::builder(provider).trust(trust).credentials(vec![own]).build().unwrap();
        Arc::new(ServerConfig::new(profile).unwrap().with_client_auth(ClientAuth::Required).unwrap())
    }

    /// Connects a client, and returns its identity and how many verdicts that has cost.
    fn connect(
        &self,
        provider: Arc<CryptoProvider>,
        client: &Arc<ClientConfig>,
        now: Now,
    ) -> (Result<Option<PeerIdentity>, Error>, usize) {
        let before = self.counting.1.load(Ordering::Relaxed);
        let mut pair = Pair::at(client, &self.server(provider), now);
        let connected = pair.connect().map(|_| pair.server.negotiated().unwrap().peer.clone());
        (connected, self.counting.1.load(Ordering::Relaxed) - before)
    }
}

/// A client that connects to any server.
fn client(typ: KeyType) -> Arc<ClientConfig> {
    let trust = Trust { x509: Some(X509Trust::DangerAnyone), raw_key: None };
    let own = Pki::shared(typ).client.x509(&awslc());
    let profile = Profile::builder(awslc()).trust(trust).credentials(vec![own]).build().unwrap();
    Arc::new(ClientConfig::new(profile))
}

#[test]
fn a_client_that_comes_again_costs_no_verdict() {
    let side = Side::new(10);
    let client = client(KeyType::P256);
    let (first, asked) = side.connect(awslc(), &client, NOW);
    assert_eq!(asked, 1);
    let (second, asked) = side.connect(awslc(), &client, NOW);
    assert_eq!(asked, 0);
    assert!(first.as_ref().unwrap().is_some() && first == second);
    assert_eq!(side.verdicts.len(), 1);
}

#[test]
fn a_verdict_ends_with_its_certificate() {
    const YEARS_MS: u64 = 300 * 365 * 24 * 3600 * 1000;
    let side = Side::new(10);
    let client = client(KeyType::P256);
    side.connect(awslc(), &client, NOW).0.unwrap();
    let (refused, asked) = side.connect(awslc(), &client, Now::from_unix_ms(NOW.unix_ms + YEARS_MS));
    let expired = matches!(refused, Err(Error::Authentication(AuthenticationFailure::Expired(_))));
    assert!(expired && asked == 1, "{refused:?}");
}

/// A verifier's later knowledge overrides its verdict at once.
#[test]
fn a_verdict_that_the_verifier_no_longer_believes_is_made_again() {
    let side = Side::new(10);
    let client = client(KeyType::P256);
    side.connect(awslc(), &client, NOW).0.unwrap();
    for (belief, verdicts) in [(Belief::Unknown, 1), (Belief::Ended, 1), (Belief::Holds, 0)] {
        *side.counting.2.lock().unwrap() = belief;
        assert_eq!(side.connect(awslc(), &client, NOW).1, verdicts, "{belief:?}");
    }
}

#[test]
fn other_algorithms_are_another_claim() {
    let side = Side::new(10);
    let client = client(KeyType::P256);
    assert_eq!(side.connect(awslc(), &client, NOW).1, 1);
    assert_eq!(side.connect(full_awslc(), &client, NOW).1, 1);
    assert_eq!(side.connect(full_awslc(), &client, NOW).1, 0);
}

#[test]
fn a_refusal_is_not_remembered() {
    let side = Side::new(10);
    let stranger = client(KeyType::P384);
    for _ in 0..2 {
        let (refused, asked) = side.connect(awslc(), &stranger, NOW);
        assert!(refused.is_err() && asked == 1, "{refused:?}");
    }
    assert!(side.verdicts.is_empty());
}

/// A verifier whose answers differ from the trait's default.
#[derive(Debug)]
struct Unusual;

impl Verifier for Unusual {
    fn certificate_type(&self) -> CertificateType {
        CertificateType::VERIFIABLE_CREDENTIAL
    }

    fn settings(&self, add: &mut dyn FnMut(&[u8])) {
        add(b"unusual");
    }

    fn verify(&self, _: &Claim<'_>) -> Result<Verdict, AuthenticationFailure> {
        Ok(Verdict::Ask)
    }

    fn check(&self) -> Result<(), &'static str> {
        Err("unusual")
    }

    fn authorities(&self) -> Vec<Vec<u8>> {
        vec![b"unusual".to_vec()]
    }

    fn did_methods(&self) -> Vec<DidMethod> {
        vec![DidMethod(7)]
    }

    fn registries(&self) -> Vec<KnownRegistry> {
        vec![KnownRegistry { key_id: [7; 8], oldest_size: 7 }]
    }

    fn accepts_status(&self) -> bool {
        true
    }

    fn still_believes(&self, _: &PeerIdentity, _: Now) -> Belief {
        Belief::Ended
    }

    fn issuer<'c>(&self, entries: &'c [CertificateDer<'_>]) -> Option<&'c [u8]> {
        entries.first().map(|entry| &**entry)
    }
}

#[test]
fn every_other_answer_is_that_of_the_verifier() {
    let remembered = RememberedVerdicts::new(Arc::new(Unusual), 1);
    let mut settings = vec![];
    remembered.settings(&mut |part| settings.extend_from_slice(part));
    assert_eq!(settings, b"unusual");
    assert_eq!(remembered.certificate_type(), CertificateType::VERIFIABLE_CREDENTIAL);
    assert_eq!(remembered.check(), Err("unusual"));
    assert_eq!(remembered.authorities(), [b"unusual"]);
    assert_eq!(remembered.did_methods(), [DidMethod(7)]);
    assert_eq!(remembered.registries(), Unusual.registries());
    assert!(remembered.accepts_status());
    let key = Pki::shared(KeyType::P256).client.public_key.clone();
    assert_eq!(remembered.still_believes(&PeerIdentity::RawKey(key), NOW), Belief::Ended);
    let entries = [CertificateDer::from(vec![7])];
    assert_eq!(remembered.issuer(&entries), Some(&[7][..]));
}
