//! Clients that a policy recognizes by the handshake cache or by a session, and for how long.

use std::sync::{Arc, Mutex};

use dunlin::resume::{ClientSession, ClientSessions, SessionKey};
use dunlin::wire::CipherSuite;
use dunlin::{HandshakeKind, Now, ServerAddress};
use dunlin_gateway::policy::{self, Attribute};
use dunlin_store::MemoryClientSessions;
use dunlin_tokio::{TlsConnector, now};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::place::{Client, PATIENCE, Place, backend, metric, metric_becomes, route, within};
use crate::policy::{
    LISTENER, LOW, POLICY_RELOADED, RENEGOTIATED, STRONG, decided, device, echo, place, visit,
};
use crate::restart::KEYS;

const CACHE: &str = "[listener.cache]\nmode = \"compact\"\n";

/// The suites of `strong` and `low` in TLS 1.2.
const STRONG_12: Option<CipherSuite> = Some(CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384);
const LOW_12: Option<CipherSuite> = Some(CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256);

/// The device with a handshake cache instead of sessions.
fn caching(place: &Place) -> Client {
    Client { sessions: None, cache: Some(Arc::default()), ..device(place) }
}

/// A whole connection. Returns the suite, and the kind of the handshake.
async fn meet(client: &Client, port: u16) -> (Option<CipherSuite>, HandshakeKind) {
    let mut tls = client.connect(port, "localhost").await;
    let begun = (tls.negotiated().cipher_suite, tls.negotiated().kind);
    // A renegotiation would come between the two.
    for _ in 0..2 {
        tls.write_all(b"hello").await.unwrap();
        within(tls.read_exact(&mut [0; 5])).await.unwrap();
    }
    tls.shutdown().await.unwrap();
    within(tls.read_to_end(&mut vec![])).await.unwrap();
    begun
}

/// Changes the policy of this place.
fn change(place: &Place, from: &str, to: &str) {
    let text = std::fs::read_to_string(place.path("policy.toml")).unwrap();
    assert!(text.contains(from), "{text}");
    place.write("policy.toml", &text.replace(from, to));
}

/// Lets the rule of the devices ask for this attribute instead of the fingerprint.
fn match_by(place: &Place, condition: &str) {
    let text = std::fs::read_to_string(place.path("policy.toml")).unwrap();
    let by_fingerprint = text.lines().find(|line| line.starts_with("when.fingerprint")).unwrap();
    place.write("policy.toml", &text.replace(by_fingerprint, condition));
}

/// The condition that the client's certificate has this issuer.
fn by_issuer(place: &Place) -> String {
    let pem = std::fs::read(place.path("client.pem")).unwrap();
    let client = policy::client_from_pem(&pem).unwrap();
    format!("when.issuer = {:?}", client.values(&Attribute::Issuer).next().unwrap())
}

/// The device with a certificate for this e-mail address, by an authority of its own that the gateway trusts
/// once it starts.
fn with_email(place: &Place, address: &str) -> Client {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, "Mail CA");
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let mut params = CertificateParams::default();
    params.subject_alt_names.push(SanType::Rfc822Name(address.try_into().unwrap()));
    let key = KeyPair::generate().unwrap();
    let leaf = params.signed_by(&key, &authority).unwrap();
    place.write("mail-client.pem", &leaf.pem());
    place.write("mail-client.key", &key.serialize_pem());
    let roots = std::fs::read_to_string(place.path("roots.pem")).unwrap();
    place.write("roots.pem", &(roots + &authority.pem()));
    place.with_certificate(device(place), "mail-")
}

#[tokio::test]
async fn a_cached_client_gets_its_profile_with_one_handshake() {
    for has_issuer in [false, true] {
        let place = place("renegotiation = \"down\"");
        // This client insists on the certificate of the first handshake.
        change(&place, "certificates = \"low\"\n", "");
        if has_issuer {
            match_by(&place, &by_issuer(&place));
        }
        let (gateway, port) = place.start(&(LISTENER.to_owned() + CACHE + &route(echo().await, ""))).await;
        for (tls12, strong, low, renegotiated) in [(false, STRONG, LOW, 0.0), (true, STRONG_12, LOW_12, 1.0)]
        {
            let client = Client { tls12, ..caching(&place) };
            assert_eq!(meet(&client, port).await, (strong, HandshakeKind::Full));
            metric_becomes(&gateway, RENEGOTIATED, renegotiated).await;
            let before = decided(&gateway, "hello", "devices", "serve", "low");
            assert_eq!(meet(&client, port).await.0, low, "{has_issuer} {tls12}");
            assert_eq!(decided(&gateway, "hello", "devices", "serve", "low"), before + 1.0);
            let cached = HandshakeKind::Cached { own: true, peer: true };
            assert_eq!(meet(&client, port).await, (low, cached), "{has_issuer} {tls12}");
            // The rule matches the cached identity after the handshake, too.
            assert_eq!(decided(&gateway, "finished", "devices", "serve", "low"), before + 2.0);
            assert_eq!(metric(&gateway, RENEGOTIATED), renegotiated);
        }
    }
}

/// A ticket carries no device. The gateway looks it up in the key file, although the default profile accepts
/// no keys.
#[tokio::test]
async fn a_session_of_a_pre_shared_key_gets_the_profile_of_the_device() {
    let place = Place::new();
    place.write("keys.toml", KEYS);
    place.write(
        "policy.toml",
        "[profile.strong]\nrank = 100\nclient = \"certificate\"\n[profile.meter]\nrank = 20\nclient = \"psk\"\n\
         [[rule]]\nname = \"meters\"\nwhen.device = \"meter in hall *\"\nprofile = \"meter\"\n",
    );
    let listener = "[[listener]]\nname = \"test\"\nlisten = \"127.0.0.1:0\"\npolicy = \"policy.toml\"\n\
         [[listener.certificate]]\nchain = \"server.pem\"\nkey = \"server.key\"\n\
         [listener.clients]\nca = \"root.pem\"\npsk = \"keys.toml\"\n";
    let (gateway, port) = place.start(&(listener.to_owned() + &route(echo().await, ""))).await;
    let client = Client { psk: true, sessions: Some(Arc::default()), ..place.client("root.pem") };
    for (kind, decisions) in [(HandshakeKind::Full, 1.0), (HandshakeKind::Resumed, 2.0)] {
        assert_eq!(meet(&client, port).await.1, kind);
        assert_eq!(decided(&gateway, "hello", "meters", "serve", "meter"), decisions);
    }
}

#[tokio::test]
async fn a_rule_about_an_email_address_matches_by_ticket_and_by_cache() {
    let place = place("");
    match_by(&place, "when.email = \"alice@example.com\"");
    let [sessions, other] = ["alice@EXAMPLE.com", "bob@example.com"].map(|email| with_email(&place, email));
    let (gateway, port) = place.start(&(LISTENER.to_owned() + CACHE + &route(echo().await, ""))).await;
    let cache = Client { sessions: None, cache: Some(Arc::default()), ..sessions.clone() };
    let cached = HandshakeKind::Cached { own: true, peer: true };
    for (client, kind) in [(&sessions, HandshakeKind::Resumed), (&cache, cached)] {
        let before = decided(&gateway, "finished", "devices", "serve", "low");
        assert_eq!(meet(client, port).await, (STRONG, HandshakeKind::Full));
        assert_eq!(meet(client, port).await.0, LOW, "{kind:?}");
        assert_eq!(meet(client, port).await, (LOW, kind));
        assert_eq!(decided(&gateway, "finished", "devices", "serve", "low"), before + 2.0);
    }
    // The owner of another address keeps the top profile.
    assert_eq!(meet(&other, port).await.0, STRONG);
}

/// Keeps each session that the gateway has issued, and offers none.
#[derive(Debug, Default)]
struct Issued(Mutex<Vec<ClientSession>>);

impl ClientSessions for Issued {
    fn put(&self, _: SessionKey, session: ClientSession) {
        self.0.lock().unwrap().push(session);
    }

    fn take(&self, _: &SessionKey, _: Now) -> Option<ClientSession> {
        None
    }

    fn forget(&self, _: &SessionKey, _: &[u8]) {}
}

#[tokio::test]
async fn a_profile_limits_the_lifetime_of_its_sessions() {
    let place = place("");
    change(&place, "client = \"request\"", "session_lifetime = \"90s\"\nclient = \"request\"");
    let (_gateway, port) = place.start(&(LISTENER.to_owned() + &route(backend("one").await, ""))).await;
    for tls12 in [false, true] {
        let issued = Arc::new(Issued::default());
        let client = Client { tls12, ..place.client("root.pem") };
        let config = client.config().with_sessions(issued.clone());
        let tcp = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let server = ServerAddress::parse("localhost", port).unwrap();
        let begun = now();
        let mut tls = within(TlsConnector::new(Arc::new(config)).connect(tcp, server)).await.unwrap();
        tls.shutdown().await.unwrap();
        within(tls.read_to_end(&mut vec![])).await.unwrap();
        let done = now();
        let issued = issued.0.lock().unwrap();
        assert!(!issued.is_empty(), "{tls12}");
        let after = |now: Now, s: u64| Now { unix_ms: now.unix_ms + 1000 * s, ..now };
        for session in issued.iter() {
            assert!(session.is_fresh(after(begun, 89)) && !session.is_fresh(after(done, 90)), "{tls12}");
        }
    }
}

#[tokio::test]
async fn a_profile_without_sessions_issues_none() {
    let place = place("");
    change(&place, "client = \"cert", "session_lifetime = 0\nclient = \"cert");
    let text = LISTENER.replace("policy =", "tickets = 1\npolicy =") + &route(backend("one").await, "");
    let (gateway, port) = place.start(&text).await;
    let client = device(&place);
    // The ticket of `strong` serves one connection, in which `low` issues no other one.
    for suite in [STRONG, LOW, STRONG, LOW] {
        assert_eq!(visit(&client, port).await, (suite, false));
    }
    // The default profile issues none either, but resumes sessions of other profiles.
    change(&place, "session_lifetime = 0\nclient = \"cert", "address_lifetime = \"1h\"\nclient = \"cert");
    change(&place, "client = \"request\"", "session_lifetime = 0\nclient = \"request\"");
    metric_becomes(&gateway, POLICY_RELOADED, 1.0).await;
    let mut other = place.with_certificate(place.client("root.pem"), "other-");
    other.sessions = Some(Arc::new(MemoryClientSessions::default()));
    for _ in 0..2 {
        assert_eq!(visit(&other, port).await, (STRONG, false));
    }
    let client = device(&place);
    assert_eq!(visit(&client, port).await, (STRONG, false));
    assert_eq!(visit(&client, port).await, (LOW, false));
    // The gateway forgets the address, so that only the ticket names the client.
    let stranger = place.with_certificate(place.client("other-root.pem"), "other-");
    stranger.exchange(port, "localhost", "").await.unwrap_err();
    assert_eq!(visit(&other, port).await, (STRONG, false));
    assert_eq!(visit(&client, port).await, (LOW, true));
}

#[tokio::test]
async fn a_profile_limits_how_long_the_handshake_cache_keeps_a_client() {
    let place = place("");
    change(&place, "client = \"cert", "cache_lifetime = 0\nclient = \"cert");
    let (gateway, port) = place.start(&(LISTENER.to_owned() + CACHE + &route(echo().await, ""))).await;
    let client = caching(&place);
    let own = |kind| matches!(kind, HandshakeKind::Cached { own: true, .. });
    for suite in [STRONG, LOW, LOW] {
        let (its_suite, kind) = meet(&client, port).await;
        assert_eq!((its_suite, own(kind)), (suite, false));
    }
    change(&place, "cache_lifetime = 0", "cache_lifetime = \"1s\"");
    metric_becomes(&gateway, POLICY_RELOADED, 1.0).await;
    // Within the second the gateway has the certificate, and needs it again afterwards.
    let begun = std::time::Instant::now();
    let mut was_cached = false;
    let mut needs_again = false;
    while !needs_again {
        assert!(begun.elapsed() < PATIENCE, "the gateway keeps the certificate");
        let (suite, kind) = meet(&client, port).await;
        assert_eq!(suite, LOW);
        needs_again = was_cached && !own(kind);
        was_cached |= own(kind);
    }
}
