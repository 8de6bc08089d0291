//! Certificate types of an application: a type that exists only in this file is verified, presented, cached
//! and resumed like the types that the engine knows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use dunlin::auth::{
    Acceptance, AskAgain, Claim, OtherIdentity, Trust, Validity, Verdict, Verified, Verifier, Verifiers,
    X509Trust,
};
use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
use dunlin::error::{AuthenticationFailure, Misuse, PeerMisbehaved};
use dunlin::pki_types::SubjectPublicKeyInfoDer;
use dunlin::resume::Tickets;
use dunlin::wire::{AlertDescription, CertificateType};
use dunlin::{
    Answer, ClientAuth, ClientConfig, Credential, Error, Negotiated, Now, PeerIdentity, Profile,
    ProfileBuilder, Question, ServerConfig,
};
use dunlin_store::{
    MemoryClientCache, MemoryClientSessions, MemoryServerCache, MemoryServerSessions, RotatingTickets,
};
use dunlin_tests::{KeyType, Leaf, NOW, Pair, Pki, awslc};

/// A certificate type that the engine does not know. Its entries are a name, a public key, and a seal over
/// both.
const TOKEN: CertificateType = CertificateType(225);

const NOW_S: u64 = NOW.unix_ms / 1000;

/// The seal of a name and a key by an issuer, who shares a secret with the verifiers.
fn seal(issuer: u8, name: &[u8], key: &[u8]) -> Vec<u8> {
    awslc().sha256.hash(&[&[issuer], name, key]).as_ref().to_vec()
}

fn token(issuer: u8, name: &str, leaf: &Leaf) -> Credential {
    let entries = vec![
        name.as_bytes().to_vec(),
        leaf.public_key.to_vec(),
        seal(issuer, name.as_bytes(), &leaf.public_key),
    ];
    let key = dunlin::auth::PrivateKey::Here(leaf.signing_key(&awslc()));
    Credential::Other { certificate_type: TOKEN, entries, key }
}

fn identity(name: &[u8]) -> PeerIdentity {
    let text = String::from_utf8(name.to_vec()).unwrap();
    PeerIdentity::Other(OtherIdentity::new(TOKEN, name, text).unwrap())
}

/// Trusts the tokens of an issuer.
#[derive(Debug)]
struct Tokens {
    issuer: u8,
    asks: bool,
    validity: Validity,
}

impl Tokens {
    fn of(issuer: u8) -> Self {
        Self { issuer, asks: false, validity: Validity::new(NOW_S - 10, NOW_S + 1_000_000) }
    }

    fn asking() -> Self {
        Self { asks: true, ..Self::of(1) }
    }
}

impl Verifier for Tokens {
    fn certificate_type(&self) -> CertificateType {
        TOKEN
    }

    fn settings(&self, add: &mut dyn FnMut(&[u8])) {
        add(&[self.issuer, self.asks.into()]);
    }

    fn verify(&self, claim: &Claim<'_>) -> Result<Verdict, AuthenticationFailure> {
        let peer = self.read(claim)?;
        let [name, key, seal] = claim.entries else { return Err(AuthenticationFailure::BadEncoding) };
        if claim.sha256.hash(&[&[self.issuer], name, key]).as_ref() != &**seal {
            let why = "its issuer is unknown".into();
            return Err(AuthenticationFailure::RejectedWith(AlertDescription::UNKNOWN_CA, why));
        }
        Ok(if self.asks { Verdict::Ask } else { Verdict::Accepted(peer) })
    }

    fn read(&self, claim: &Claim<'_>) -> Result<Box<Verified>, AuthenticationFailure> {
        let [name, key, _] = claim.entries else { return Err(AuthenticationFailure::BadEncoding) };
        let key = SubjectPublicKeyInfoDer::from(key.to_vec());
        Ok(Verified::new(key, identity(name), self.validity))
    }

    fn issuer<'c>(&self, entries: &'c [dunlin::pki_types::CertificateDer<'_>]) -> Option<&'c [u8]> {
        entries.first().map(|name| &**name)
    }
}

fn profile(verifier: impl Verifier + 'static, own: Credential) -> ProfileBuilder {
    Profile::builder(awslc()).trust(Verifiers::default().with(Arc::new(verifier))).credentials(vec![own])
}

fn pki() -> &'static Pki {
    Pki::shared(KeyType::P256)
}

fn client_profile(verifier: impl Verifier + 'static) -> ProfileBuilder {
    profile(verifier, token(1, "device-1", &pki().client))
}

fn server_profile(verifier: impl Verifier + 'static) -> ProfileBuilder {
    profile(verifier, token(1, "hub", &pki().server))
}

/// A client and a server with caches and sessions.
struct Ends(Arc<ClientConfig>, Arc<ServerConfig>);

impl Ends {
    fn new(client: ProfileBuilder, server: ProfileBuilder, tickets: &Tickets) -> Self {
        let client = ClientConfig::new(client.build().unwrap())
            .with_sessions(Arc::new(MemoryClientSessions::new(8, 8)));
        let server = ServerConfig::new(server.build().unwrap()).unwrap().with_tickets(tickets.clone());
        Self(Arc::new(client), Arc::new(server.with_client_auth(ClientAuth::Required).unwrap()))
    }

    fn with_caches(self, clients: &Arc<MemoryClientCache>) -> Self {
        let client = (*self.0).clone();
        let client = client.with_handshake_cache(CacheMode::Compact, clients.clone(), DEFAULT_MAX_AGE);
        let store = Arc::new(MemoryServerCache::new(8));
        let server = (*self.1).clone().with_handshake_cache(CacheMode::Compact, store, DEFAULT_MAX_AGE);
        Self(Arc::new(client), Arc::new(server.unwrap()))
    }

    /// Without tickets and with caches.
    fn cached(client: ProfileBuilder, server: ProfileBuilder) -> Self {
        Self::new(client, server, &Tickets::none()).with_caches(&Arc::default())
    }

    fn connect(&self, now: Now) -> [Negotiated; 2] {
        let mut pair = Pair::at(&self.0, &self.1, now);
        pair.connect().unwrap();
        pair.echo(b"hello").unwrap();
        [&pair.client, &pair.server].map(|end| end.negotiated().unwrap().clone())
    }

    /// Connects; the client answers the question about the server, if there is one. Returns whether there was
    /// one, and whether the client had the server in its cache or resumed a session.
    fn ask(&self, now: Now, answer: impl FnOnce() -> Acceptance) -> (bool, bool, bool) {
        let mut pair = Pair::at(&self.0, &self.1, now);
        pair.run().unwrap();
        let question = pair.client_question();
        let asked = question.is_some();
        if let Some((id, question)) = question {
            let Question::Verify { certificates, certificate_type, name, .. } = question else { panic!() };
            assert!(certificate_type == TOKEN && &*certificates[0] == b"hub" && name.is_some());
            pair.client.answer(now, id, Answer::Verified(Ok(answer()))).unwrap();
        }
        pair.connect().unwrap();
        pair.echo(b"hello").unwrap();
        let negotiated = pair.client.negotiated().unwrap();
        (asked, negotiated.is_peer_cached(), negotiated.is_resumed())
    }
}

fn stateless() -> Tickets {
    Tickets::stateless(Arc::new(RotatingTickets::new(awslc()).unwrap()))
}

fn stateful() -> Tickets {
    Tickets::stateful(Arc::new(MemoryServerSessions::new(16)))
}

fn at(seconds: u64) -> Now {
    Now::from_unix_ms(NOW.unix_ms + 1000 * seconds)
}

fn other(negotiated: &Negotiated) -> &OtherIdentity {
    let Some(PeerIdentity::Other(id)) = &negotiated.peer else { panic!("{:?}", negotiated.peer) };
    id
}

#[test]
fn authenticates_both_sides_by_an_own_type() {
    let ends = Ends::new(client_profile(Tokens::of(1)), server_profile(Tokens::of(1)), &Tickets::none());
    let [client, server] = ends.connect(NOW);
    for (end, name, leaf) in [(&client, "hub", &pki().server), (&server, "device-1", &pki().client)] {
        let id = other(end);
        assert_eq!((id.certificate_type(), id.id(), id.text()), (TOKEN, name.as_bytes(), name));
        assert_eq!(id.key_fingerprint(), awslc().sha256.hash(&[&leaf.public_key]).as_ref());
        assert_eq!(&*id.entries()[1], &*leaf.public_key);
        assert_eq!(end.peer.as_ref().unwrap().to_string(), format!("certificate type 0x00e1 {name}"));
        assert_eq!(end.peer_validity.unwrap().until_s(), NOW_S + 1_000_000);
    }
}

#[test]
fn refuses_an_own_type_by_the_verifiers_reason() {
    let strict = Ends::new(client_profile(Tokens::of(2)), server_profile(Tokens::of(1)), &Tickets::none());
    let mut pair = Pair::new(&strict.0, &strict.1);
    let error = pair.run().unwrap_err();
    assert_eq!(error.alert(), Some(AlertDescription::UNKNOWN_CA));
    assert!(pair.client.negotiated().is_none());
}

#[test]
fn refuses_the_signature_of_another_key() {
    let Credential::Other { certificate_type, entries, .. } = token(1, "hub", &pki().server) else {
        panic!()
    };
    let key = dunlin::auth::PrivateKey::Here(pki().client.signing_key(&awslc()));
    let thief = Credential::Other { certificate_type, entries, key };
    let ends = Ends::new(client_profile(Tokens::of(1)), profile(Tokens::of(1), thief), &Tickets::none());
    let error = Pair::new(&ends.0, &ends.1).run().unwrap_err();
    assert_eq!(error, PeerMisbehaved::BadSignature.into());
}

#[test]
fn caches_peers_of_an_own_type() {
    let ends = Ends::cached(client_profile(Tokens::of(1)), server_profile(Tokens::of(1)));
    let first = ends.connect(NOW);
    let again = ends.connect(at(60));
    for (first, again) in first.iter().zip(&again) {
        assert!(!first.is_peer_cached() && again.is_peer_cached());
        assert_eq!(other(first).key_fingerprint(), other(again).key_fingerprint());
        assert_eq!((other(first).id(), other(first).text()), (other(again).id(), other(again).text()));
        assert!(!other(first).entries().is_empty() && other(again).entries().is_empty());
    }
    // Both entries end with the validity that the verifiers gave.
    let late = ends.connect(at(1_000_001)).map(|end| end.is_peer_cached());
    assert_eq!(late, [false; 2]);
}

#[test]
fn resumes_sessions_of_an_own_type() {
    for tickets in [stateless(), stateful()] {
        let ends = Ends::new(client_profile(Tokens::of(1)), server_profile(Tokens::of(1)), &tickets);
        let first = ends.connect(NOW);
        let again = ends.connect(at(60));
        for (first, again) in first.iter().zip(&again) {
            assert!(!first.is_resumed() && again.is_resumed());
            assert_eq!(other(first).key_fingerprint(), other(again).key_fingerprint());
            assert_eq!((other(first).id(), other(first).text()), (other(again).id(), other(again).text()));
        }
    }
}

/// A session ends with the validity of the verdict, on whichever side it ends first.
#[test]
fn session_ends_with_the_verdict() {
    let short =
        || Tokens { validity: Validity::ALWAYS.limited(AskAgain::Status, NOW_S + 100), ..Tokens::of(1) };
    for tickets in [stateless(), stateful()] {
        let by_client = Ends::new(client_profile(short()), server_profile(Tokens::of(1)), &tickets);
        let by_server = Ends::new(client_profile(Tokens::of(1)), server_profile(short()), &tickets);
        for ends in [by_client, by_server] {
            let times = [NOW, at(100), at(101), at(101)];
            let resumed = times.map(|now| ends.connect(now)[0].is_resumed());
            assert_eq!(resumed, [false, true, false, false]);
        }
    }
}

#[test]
fn changed_verifier_uses_neither_cache_nor_session() {
    let clients = Arc::default();
    let tickets = stateless();
    let ends = Ends::new(client_profile(Tokens::of(1)), server_profile(Tokens::of(1)), &tickets);
    let ends = ends.with_caches(&clients);
    ends.connect(NOW);
    let other = client_profile(Tokens { issuer: 2, ..Tokens::of(1) }).build().unwrap();
    let other = ClientConfig::new(other)
        .with_sessions(Arc::new(MemoryClientSessions::new(8, 8)))
        .with_handshake_cache(CacheMode::Compact, clients, DEFAULT_MAX_AGE);
    // With the entry the client would not see that the token is of another issuer.
    Pair::new(&Arc::new(other), &ends.1).run().unwrap_err();
}

/// Rule 2 of docs/handshake-cache.md: what the caller decides for one handshake is not kept.
#[test]
fn caller_that_accepts_once_is_asked_again() {
    let ends = Ends::cached(client_profile(Tokens::asking()), server_profile(Tokens::of(1)));
    for _ in 0..3 {
        assert_eq!(ends.ask(NOW, Acceptance::once), (true, false, false));
    }
}

#[test]
fn caller_is_asked_again_at_the_earliest_limit() {
    let validity = || {
        let validity = Validity::new(NOW_S - 5, NOW_S + 500).limited(AskAgain::Resolution, NOW_S + 300);
        Acceptance::within(validity.limited(AskAgain::Revocation, NOW_S + 100))
    };
    let never = || -> Acceptance { panic!("asked") };
    let always = || Acceptance::within(Validity::ALWAYS);
    let ends = Ends::cached(client_profile(Tokens::asking()), server_profile(Tokens::of(1)));
    assert_eq!(ends.ask(NOW, validity), (true, false, false));
    assert_eq!(ends.ask(at(100), never), (false, true, false));
    assert_eq!(ends.ask(at(101), always), (true, false, false));
    // The credential's own dates end earlier than the answer.
    let short = Tokens { validity: Validity::new(0, NOW_S + 50), ..Tokens::asking() };
    let ends = Ends::cached(client_profile(short), server_profile(Tokens::of(1)));
    assert_eq!(ends.ask(NOW, validity), (true, false, false));
    assert_eq!(ends.ask(at(50), never), (false, true, false));
    assert_eq!(ends.ask(at(51), validity), (true, false, false));
    // The same limit ends the session.
    let ends = Ends::new(client_profile(Tokens::asking()), server_profile(Tokens::of(1)), &stateless());
    assert_eq!(ends.ask(NOW, validity), (true, false, false));
    assert_eq!(ends.ask(at(100), never), (false, false, true));
    assert_eq!(ends.ask(at(101), always), (true, false, false));
}

/// As with DIDs, the credential is only a name, and a directory has its key.
#[derive(Debug)]
struct Directory {
    keys: Arc<Mutex<HashMap<Vec<u8>, SubjectPublicKeyInfoDer<'static>>>>,
    asks: bool,
}

impl Verifier for Directory {
    fn certificate_type(&self) -> CertificateType {
        TOKEN
    }

    fn settings(&self, add: &mut dyn FnMut(&[u8])) {
        add(b"directory");
    }

    fn verify(&self, claim: &Claim<'_>) -> Result<Verdict, AuthenticationFailure> {
        let name = &*claim.entries[0];
        if self.asks {
            return Ok(Verdict::Ask);
        }
        let key = self.keys.lock().unwrap().get(name).cloned().ok_or(AuthenticationFailure::UnknownIssuer)?;
        Ok(Verdict::Accepted(Verified::new(key, identity(name), Validity::ALWAYS)))
    }
}

#[test]
fn caller_gives_the_key_that_the_credential_lacks() {
    let directory = || Directory { keys: Arc::default(), asks: true };
    let ends = Ends::cached(client_profile(directory()), server_profile(Tokens::of(1)));
    let peer = |leaf: &Leaf, identity| Verified::new(leaf.public_key.clone(), identity, Validity::ALWAYS);
    let server = &pki().server;
    let accept = || Acceptance::within(Validity::ALWAYS).with_peer(peer(server, identity(b"hub")));
    assert_eq!(ends.ask(NOW, accept), (true, false, false));
    assert_eq!(ends.ask(NOW, accept), (false, true, false));

    let refused = |acceptance| {
        let ends = Ends::cached(client_profile(directory()), server_profile(Tokens::of(1)));
        let mut pair = Pair::new(&ends.0, &ends.1);
        pair.run().unwrap();
        let (id, _) = pair.client_question().unwrap();
        let error = pair.client.answer(NOW, id, Answer::Verified(Ok(acceptance))).and_then(|()| pair.run());
        assert!(pair.client.negotiated().is_none());
        error.unwrap_err()
    };
    // An answer without the key, or with another one.
    assert_eq!(refused(Acceptance::once()), AuthenticationFailure::BadEncoding.into());
    let another = Acceptance::once().with_peer(peer(&pki().client, identity(b"hub")));
    assert_eq!(refused(another), PeerMisbehaved::BadSignature.into());
    // An identity of another certificate type.
    let raw = PeerIdentity::RawKey(server.public_key.clone());
    let of_other_type = Acceptance::once().with_peer(peer(server, raw));
    assert_eq!(refused(of_other_type), Error::from(Misuse::WrongAnswer));
}

/// A client that verifies the server again at resumption notices that the server's key was replaced.
#[test]
fn reverification_notices_a_replaced_key() {
    let keys: Arc<Mutex<HashMap<_, _>>> = Arc::default();
    keys.lock().unwrap().insert(b"hub".to_vec(), pki().server.public_key.clone());
    let directory = Directory { keys: keys.clone(), asks: false };
    let ends = Ends::new(client_profile(directory), server_profile(Tokens::of(1)), &stateless());
    let ends = Ends(Arc::new((*ends.0).clone().with_reverification(true)), ends.1);
    assert!(!ends.connect(NOW)[0].is_resumed());
    assert!(ends.connect(NOW)[0].is_resumed());
    keys.lock().unwrap().insert(b"hub".to_vec(), pki().client.public_key.clone());
    let error = Pair::new(&ends.0, &ends.1).run().unwrap_err();
    assert!(matches!(error, Error::Authentication(AuthenticationFailure::Rejected(_))), "{error:?}");
}

/// The same, where the caller answers and the credential itself contains the key.
#[test]
fn reverification_by_the_caller_compares_keys_and_ends_the_session_earlier() {
    let ends = Ends::new(client_profile(Tokens::asking()), server_profile(Tokens::of(1)), &stateless());
    let ends = Ends(Arc::new((*ends.0).clone().with_reverification(true)), ends.1);
    let accept = || Acceptance::within(Validity::ALWAYS.limited(AskAgain::Status, NOW_S + 500));
    assert_eq!(ends.ask(NOW, accept), (true, false, false));
    // The second answer ends earlier than the first, and so does the new session.
    let shorter = || Acceptance::within(Validity::ALWAYS.limited(AskAgain::Status, NOW_S + 200));
    assert_eq!(ends.ask(NOW, shorter), (true, false, true));
    assert_eq!(ends.ask(at(200), accept), (true, false, true));
    assert_eq!(ends.ask(at(201), accept), (true, false, false));
    let mut pair = Pair::at(&ends.0, &ends.1, at(202));
    pair.run().unwrap();
    let (id, _) = pair.client_question().unwrap();
    let other = Verified::new(pki().client.public_key.clone(), identity(b"hub"), Validity::ALWAYS);
    let answer = Answer::Verified(Ok(accept().with_peer(other)));
    let error = pair.client.answer(at(202), id, answer).and_then(|()| pair.run()).unwrap_err();
    assert!(matches!(error, Error::Authentication(AuthenticationFailure::Rejected(_))), "{error:?}");
}

#[test]
fn acceptance_outside_its_time_span_is_refused() {
    for (validity, expected) in
        [(Validity::new(0, NOW_S - 1), "expired"), (Validity::new(NOW_S + 1, u64::MAX), "not valid yet")]
    {
        let ends = Ends::cached(client_profile(Tokens::asking()), server_profile(Tokens::of(1)));
        let mut pair = Pair::new(&ends.0, &ends.1);
        pair.run().unwrap();
        let (id, _) = pair.client_question().unwrap();
        let answer = Answer::Verified(Ok(Acceptance::within(validity)));
        let error = pair.client.answer(NOW, id, answer).and_then(|()| pair.run()).unwrap_err();
        let found = match error {
            Error::Authentication(AuthenticationFailure::Expired(_)) => "expired",
            Error::Authentication(AuthenticationFailure::NotValidYet(_)) => "not valid yet",
            _ => panic!("{error:?}"),
        };
        assert_eq!(found, expected);
    }
}

/// An application's verifier for a type that the engine knows.
#[derive(Debug)]
struct Named(X509Trust, &'static str);

impl Verifier for Named {
    fn certificate_type(&self) -> CertificateType {
        CertificateType::X509
    }

    fn settings(&self, add: &mut dyn FnMut(&[u8])) {
        self.0.settings(add);
        add(self.1.as_bytes());
    }

    fn verify(&self, claim: &Claim<'_>) -> Result<Verdict, AuthenticationFailure> {
        let verdict = self.0.verify(claim)?;
        match &verdict {
            Verdict::Accepted(peer) if !peer.identity.to_string().ends_with(self.1) => {
                Err(AuthenticationFailure::Rejected("another name".into()))
            }
            _ => Ok(verdict),
        }
    }
}

#[test]
fn own_verifier_replaces_that_of_a_known_type() {
    for (name, is_accepted) in [("localhost", true), ("example", false)] {
        let trust = Trust { x509: Some(Pki::shared(KeyType::Ed25519).trust()), raw_key: None };
        let trust = Verifiers::from(trust).with(Arc::new(Named(pki().trust(), name)));
        let client = Profile::builder(awslc()).trust(trust).credentials(vec![pki().client.x509(&awslc())]);
        let trust = Trust { x509: Some(pki().trust()), raw_key: None };
        let server = Profile::builder(awslc()).trust(trust).credentials(vec![pki().server.x509(&awslc())]);
        let ends = Ends::cached(client, server);
        if is_accepted {
            let [full, cached] = [ends.connect(NOW), ends.connect(NOW)];
            assert!(!full[0].is_peer_cached() && cached[0].is_peer_cached());
            let Some(PeerIdentity::X509(id)) = &full[0].peer else { panic!() };
            assert_eq!(id.chain, pki().server.chain);
        } else {
            let error = Pair::new(&ends.0, &ends.1).run().unwrap_err();
            assert_eq!(error, AuthenticationFailure::Rejected("another name".into()).into());
        }
    }
}

/// A peer without the type is served by X.509, and a profile whose credentials have no common type refuses.
#[test]
fn type_is_negotiated() {
    let x509 = Trust { x509: Some(pki().trust()), raw_key: None };
    let both = |own: Leaf2<'_>| {
        let verifiers = Verifiers::from(x509.clone()).with(Arc::new(Tokens::of(1)));
        let (name, leaf) = own;
        let own = vec![token(1, name, leaf), leaf.x509(&awslc())];
        Profile::builder(awslc()).trust(verifiers).credentials(own)
    };
    let plain = Profile::builder(awslc()).trust(x509.clone()).credentials(vec![pki().client.x509(&awslc())]);
    let server = || both(("hub", &pki().server));
    let [client, _] = Ends::cached(both(("device-1", &pki().client)), server()).connect(NOW);
    assert_eq!(other(&client).text(), "hub");
    let [client, server_end] = Ends::cached(plain, server()).connect(NOW);
    for end in [client, server_end] {
        assert!(matches!(end.peer, Some(PeerIdentity::X509(_))));
    }
}

type Leaf2<'a> = (&'a str, &'a Leaf);

#[test]
fn profile_refuses_bad_credentials_of_own_types() {
    let key = || dunlin::auth::PrivateKey::Here(pki().client.signing_key(&awslc()));
    for (certificate_type, entries) in [
        (CertificateType::X509, vec![vec![1]]),
        (CertificateType::RAW_PUBLIC_KEY, vec![vec![1]]),
        (TOKEN, vec![]),
        (TOKEN, vec![vec![1], vec![]]),
    ] {
        let credential = Credential::Other { certificate_type, entries, key: key() };
        profile(Tokens::of(1), credential).build().unwrap_err();
    }
}
