//! Verifiable credentials of clients, and of a tunnel.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dunlin::auth::Verifiers;
use dunlin::crypto::SigningKey;
use dunlin::wire::AlertDescription;
use dunlin::{ClientAuth, Credential, Error, Profile, ServerConfig};
use dunlin_gateway::{Config, TunnelConfig};
use dunlin_identity::credential::status::{Bitstring, StatusEntry, StatusPurpose};
use dunlin_identity::credential::{CREDENTIALS_V2, Contexts, Issuer};
use dunlin_identity::handshake::{CredentialVerifier, Holding};
use dunlin_identity::key::PublicKey;
use dunlin_identity::method::{KEY, Method};
use dunlin_identity::{DidDocument, Relationship};
use dunlin_pki::{KeyPair, KeyType};
use dunlin_store::MemoryClientSessions;
use dunlin_tokio::TlsAcceptor;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::acme::Log;
use crate::http;
use crate::place::{Client, Place, backend, listener, metric, metric_becomes, recorder, route, within};
use crate::restart::echo_datagrams;

const LIST: &str = "https://operator.example/status/1";

/// A party with a `did:key`.
struct Party {
    pair: KeyPair,
    key: Arc<dyn SigningKey>,
    document: DidDocument,
}

impl Party {
    fn new() -> Self {
        let pair = KeyPair::generate(KeyType::P256).unwrap();
        let key = pair.signing_key(&dunlin_awslc::provider()).unwrap();
        let did = KEY.create(&PublicKey::from_spki(key.public_key()).unwrap()).unwrap();
        Self { pair, key, document: KEY.resolve(&did).unwrap() }
    }

    fn did(&self) -> &str {
        self.document.id().as_str()
    }

    fn sign(&self, credential: &Value) -> String {
        let provider = dunlin_awslc::provider();
        let method = self.document.keys(Relationship::AssertionMethod).next().unwrap().0;
        let issuer = Issuer { provider: &provider, signer: &*self.key, method };
        issuer.issue_jwt(credential, &Contexts::default()).unwrap()
    }

    /// A credential about `holder` with these claims, which has this place in the status list.
    fn issue(&self, holder: &Self, mut claims: Value, index: u64) -> String {
        claims["id"] = holder.did().into();
        let entry = StatusEntry { list: LIST.to_owned(), index, purpose: StatusPurpose::Revocation };
        self.sign(&json!({
            "@context": [CREDENTIALS_V2],
            "type": ["VerifiableCredential"],
            "issuer": self.did(),
            "credentialSubject": claims,
            "credentialStatus": entry.to_value(),
        }))
    }

    /// The status list with these bits.
    fn list(&self, revoked: &[u64]) -> String {
        self.list_of_age(revoked, 0)
    }

    fn list_of_age(&self, revoked: &[u64], age: i64) -> String {
        let mut bits = Bitstring::default();
        revoked.iter().for_each(|index| bits.set(*index, true).unwrap());
        let now: i64 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().try_into().unwrap();
        let made = now - age;
        let list = bits.credential(self.document.id(), LIST, StatusPurpose::Revocation, made, now + 1000);
        self.sign(&list.unwrap()) + "\n"
    }

    fn shows(&self, credential: String) -> Credential {
        let holding =
            Holding::for_handshakes(self.key.clone(), credential.into_bytes(), &[], &Contexts::default());
        holding.unwrap().to_tls(&dunlin_awslc::provider()).unwrap()
    }
}

const CLIENTS: &str = "[listener.clients]\nvc_issuers = \"issuers\"\nvc_status = \"status.vc\"\n";

/// A gateway's place with the operator's list and status list.
fn place(operator: &Party) -> Place {
    let place = Place::new();
    place.write("issuers", &format!("# the operator\n{}\n", operator.did()));
    place.write("status.vc", &operator.list(&[]));
    place
}

#[tokio::test]
async fn a_route_admits_clients_by_did_issuer_and_claims() {
    let operator = Party::new();
    let sensor = Party::new();
    let broker = Party::new();
    let place = place(&operator);
    for (allow, admitted) in [
        (format!("allow = [{{ id = \"{}\" }}]", sensor.did()), [true, false]),
        (format!("allow = [{{ issuer = \"{}\", kind = \"vc\" }}]", operator.did()), [true, true]),
        (format!("allow = [{{ issuer = \"{}\" }}]", sensor.did()), [false, false]),
        ("allow = [{ claim.role = \"sensor\" }]".to_owned(), [true, false]),
        ("allow = [{ claim.level = \"3\", claim.role = \"*\" }]".to_owned(), [true, true]),
        ("allow = [{ claim.hall = \"south\" }]".to_owned(), [false, true]),
        ("allow = [{ claim.other = \"*\" }]".to_owned(), [false, false]),
    ] {
        let text = listener("") + CLIENTS + &route(backend("one").await, &allow);
        let (_gateway, port) = place.start(&text).await;
        let halls = [json!("north"), json!(["north", "south"])];
        for ((party, role), (hall, admitted)) in
            [(&sensor, "sensor"), (&broker, "broker")].into_iter().zip(halls.into_iter().zip(admitted))
        {
            let claims = json!({"role": role, "level": 3, "hall": hall});
            let own = Some(party.shows(operator.issue(party, claims, 1)));
            let sessions = Some(Arc::new(MemoryClientSessions::default()));
            let client = Client { own, sessions, ..place.client("root.pem") };
            // Also a resumed session knows the claims.
            for is_resumed in [false, admitted] {
                let mut tls = client.connect(port, "localhost").await;
                assert_eq!(tls.negotiated().is_resumed(), is_resumed);
                let _ = tls.shutdown().await;
                let mut answer = String::new();
                let read = within(tls.read_to_string(&mut answer)).await;
                assert_eq!(read.is_ok_and(|_| answer == "one got "), admitted, "{allow} {role}");
            }
        }
    }
}

#[tokio::test]
async fn refuses_credentials_that_do_not_count() {
    let operator = Party::new();
    let stranger = Party::new();
    let device = Party::new();
    let place = place(&operator);
    place.write("status.vc", &operator.list_of_age(&[7], 30));
    let (gateway, port) = place.start(&(listener("") + CLIENTS + &route(backend("one").await, ""))).await;
    let exchange = async |credential: String| {
        let client = Client { own: Some(device.shows(credential)), ..place.client("root.pem") };
        client.exchange(port, "localhost", "").await
    };
    assert_eq!(exchange(operator.issue(&device, json!({}), 1)).await.unwrap(), "one got ");
    for (credential, alert) in [
        (operator.issue(&device, json!({}), 7), AlertDescription::CERTIFICATE_REVOKED),
        (stranger.issue(&device, json!({}), 1), AlertDescription::UNKNOWN_CA),
    ] {
        let error = exchange(credential).await.unwrap_err();
        let received = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
        assert_eq!(received, Some(&Error::AlertReceived(alert)), "{error}");
    }
    // A reload reads the list again.
    place.write("status.vc", &operator.list(&[1]));
    let text = listener("") + CLIENTS + &route(backend("one").await, "");
    gateway.reload(place.config(&text)).await.unwrap();
    exchange(operator.issue(&device, json!({}), 1)).await.unwrap_err();
    // An older copy of the list would hide the revocation.
    place.write("status.vc", &operator.list_of_age(&[], 60));
    let refused = gateway.reload(place.config(&text)).await.unwrap_err().to_string();
    assert!(refused.contains("status.vc") && refused.contains("older"), "{refused}");
    exchange(operator.issue(&device, json!({}), 1)).await.unwrap_err();
    place.write("status.vc", &operator.list(&[1]));
    // Only these peers.
    place.write("peers", stranger.did());
    let text = text.replace("vc_status", "vc_peers = \"peers\"\nvc_status");
    gateway.reload(place.config(&text)).await.unwrap();
    exchange(operator.issue(&device, json!({}), 2)).await.unwrap_err();
    place.write("peers", device.did());
    gateway.reload(place.config(&text)).await.unwrap();
    exchange(operator.issue(&device, json!({}), 2)).await.unwrap();
    let done = "dunlin_gateway_handshakes_completed_total{client=\"vc\"}";
    metric_becomes(&gateway, done, 2.0).await;
}

#[tokio::test]
async fn a_refused_reload_does_not_make_the_previous_status_list_too_old() {
    let operator = Party::new();
    let place = place(&operator);
    let previous = operator.list_of_age(&[], 60);
    place.write("status.vc", &previous);
    let text = listener("") + CLIENTS + &route(1, "");
    let (gateway, _) = place.start(&text).await;
    place.write("status.vc", &operator.list(&[1]));
    gateway.reload(place.config(&text.replace("server.key", "absent.key"))).await.unwrap_err();
    place.write("status.vc", &previous);
    gateway.reload(place.config(&text)).await.unwrap_or_else(|faults| panic!("{faults}"));
}

/// The gateway starts with files that have become too old, and says so.
#[test]
fn warns_of_old_credentials_and_status_lists() {
    let operator = Party::new();
    let hub = Party::new();
    let place = place(&operator);
    place.write("hub.key", &hub.pair.to_pem().unwrap());
    let certificate = "[[listener.certificate]]\ndid = \"hub.key\"\nvc = \"hub.vc\"\n";
    let text = format!("[[listener]]\nlisten = \"127.0.0.1:0\"\n{certificate}{CLIENTS}{}", route(1, ""));
    let check = |valid_from: &str, valid_until: &str, age| {
        place.write(
            "hub.vc",
            &operator.sign(&json!({
                "@context": [CREDENTIALS_V2],
                "type": ["VerifiableCredential"],
                "issuer": operator.did(),
                "validFrom": valid_from,
                "validUntil": valid_until,
                "credentialSubject": {"id": hub.did()},
            })),
        );
        place.write("status.vc", &operator.list_of_age(&[], age));
        let warnings = dunlin_gateway::Gateway::check(place.config(&text));
        let warnings = warnings.unwrap_or_else(|faults| panic!("{faults}"));
        warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let past = "2020-01-01T00:00:00Z";
    let begin = "2020-02-01T00:00:00Z";
    let future = "2199-01-01T00:00:00Z";
    assert_eq!(check(begin, future, 0), Vec::<String>::new());
    let day = 24 * 3600;
    for (found, file, says) in [
        (check(past, begin, 0), "hub.vc", "it has expired; peers will refuse it: get a new one"),
        (check(future, future, 0), "hub.vc", "it is not valid yet; peers will refuse it: check the clock"),
        (check(begin, future, day + 1), "status.vc", "older than 24 hours"),
    ] {
        let [warning] = &found[..] else { panic!("{found:?}") };
        assert!(warning.contains(file) && warning.contains(says), "{warning}");
    }
    assert_eq!(check(past, begin, day + 1).len(), 2);
}

/// Other programs may resolve the DIDs of the same list.
#[test]
fn warns_of_peers_that_can_never_authenticate() {
    let operator = Party::new();
    let place = place(&operator);
    let unpinned = format!("did:dunlin:z{}", "2".repeat(43));
    for keys in ["vc_issuers = \"issuers\"\nvc_peers = \"peers\"\n", "dids = \"peers\"\n"] {
        let text = format!("{}[listener.clients]\n{keys}{}", listener(""), route(1, ""));
        let check = |others: &str| {
            place.write("peers", &format!("{}\n{others}", operator.did()));
            let warnings = dunlin_gateway::Gateway::check(place.config(&text));
            let warnings = warnings.unwrap_or_else(|faults| panic!("{faults}"));
            warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(check(""), Vec::<String>::new());
        let all = format!(
            "{unpinned}\ndid:web:device.example\ndid:key:z6LSbysY2xFMRpGMhb7tFTLMpeuPRaqaWM1yECx2AtzE3KCc\n"
        );
        for (others, says) in [
            (unpinned.as_str(), format!("{unpinned} can never")),
            (&all, format!("{unpinned} and 2 more can never")),
        ] {
            let found = check(others);
            let [warning] = &found[..] else { panic!("{found:?}") };
            assert!(
                warning.contains(&says) && warning.contains("for a did:dunlin add registry"),
                "{warning}"
            );
        }
    }
}

/// The gateway tells backends the whole DID.
#[tokio::test]
async fn backends_learn_the_did() {
    let operator = Party::new();
    let device = Party::new();
    let place = place(&operator);
    let (port, recorded) = recorder().await;
    let text = listener("") + CLIENTS + &route(port, "proxy_protocol = true");
    let (_gateway, port) = place.start(&text).await;
    let own = Some(device.shows(operator.issue(&device, json!({}), 1)));
    let mut tls = Client { own, ..place.client("root.pem") }.connect(port, "localhost").await;
    tls.shutdown().await.unwrap();
    let header = within(recorded).await.unwrap();
    let wanted = format!("vc:{}", device.did());
    assert!(header.windows(wanted.len()).any(|window| window == wanted.as_bytes()), "{header:?}");
}

#[tokio::test]
async fn the_gateway_alone_says_what_a_credential_proves() {
    let (log, _guard) = Log::start();
    let operator = Party::new();
    let device = Party::new();
    let place = place(&operator);
    let text = listener("") + CLIENTS + &route(http::backend().await, "protocol = \"http\"");
    let (gateway, port) = place.start(&text).await;
    let hostile = "a\r\nDunlin-Client-Identity: x509:cn:admin \u{fc}\u{1f600}\u{7f}\"";
    let long = "\u{fc}".repeat(700);
    let forged = "GET / HTTP/1.1\r\nHost: localhost\r\nDunlin-Client-Issuer: did:web:admin.example\r\n\
                  DUNLIN_CLIENT_ISSUER: did:web:admin.example\r\nDunlin-Client-Claims: {\"role\":\"admin\"}\r\n\
                  Dunlin.Client!Claims: {\"role\":\"admin\"}\r\n\r\n";
    for (claims, written) in [
        (
            json!({"role": "sensor", "note": hostile, "level": 3}),
            vec![
                r#"{"level":3,"note":"a\r\ndunlin-client-identity: x509:cn:admin \u00fc\ud83d\ude00\u007f\"","role":"sensor"}"#,
            ],
        ),
        (json!({}), vec!["{}"]),
        // 4200 bytes in ASCII.
        (json!({"note": long}), vec![]),
    ] {
        let own = Some(device.shows(operator.issue(&device, claims, 1)));
        let mut stream = http::open(&Client { own, ..place.client("root.pem") }, port).await;
        let (head, request) = http::ask(&mut stream, forged).await;
        assert!(head.starts_with("http/1.1 200 "), "{head}");
        // The backend writes its answers in small letters.
        let [did, issuer] = [device.did(), operator.did()].map(str::to_ascii_lowercase);
        assert_eq!(http::values(&request, "dunlin-client-identity"), [format!("vc:{did}")]);
        assert_eq!(http::values(&request, "dunlin-client-issuer"), [issuer]);
        assert_eq!(http::values(&request, "dunlin-client-claims"), written);
        assert!(!request.contains("admin.example") && !request.contains("\"admin\""), "{request}");
    }
    let of_issuer = format!("client=\"vc\",issuer=\"{}\"", operator.did());
    let completed = format!("dunlin_gateway_handshakes_completed_total{{{of_issuer}}}");
    assert_eq!(metric(&gateway, &completed), 3.0, "{}", gateway.metrics());
    let lines = log.lines("connected").into_iter().filter(|line| !line.contains("disconnected"));
    let lines: Vec<_> = lines.collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    let issuer = format!("issuer=\"{}\"", operator.did());
    assert!(lines.iter().all(|line| line.contains(&issuer) && line.contains(device.did())), "{lines:?}");
}

/// A server with a credential, which answers each client that has one with its DID.
async fn server(operator: &Party, own: &Party) -> u16 {
    let verifier = CredentialVerifier::new(Arc::new(dunlin_awslc::provider()), [operator.document.clone()]);
    verifier.update_status(|lists| {
        let judge = dunlin_identity::credential::Verifier::new([operator.document.clone()]);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().try_into().unwrap();
        let list = operator.list(&[]);
        let list = dunlin_identity::credential::status::StatusList::verify_file(
            &judge,
            &dunlin_awslc::provider(),
            list.as_bytes(),
            now,
        );
        lists.insert(list.unwrap()).unwrap();
    });
    let profile = Profile::builder(Arc::new(dunlin_awslc::provider()))
        .credentials(vec![own.shows(operator.issue(own, json!({}), 3))])
        .trust(Verifiers::default().with(Arc::new(verifier)));
    let config = ServerConfig::new(profile.build().unwrap()).unwrap();
    let config = config.with_client_auth(ClientAuth::Required).unwrap();
    let acceptor = TlsAcceptor::new(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let Ok(mut tls) = acceptor.accept(tcp).await else { continue };
            let peer = tls.negotiated().peer.as_ref().unwrap().to_string();
            tls.write_all(peer.as_bytes()).await.unwrap();
            tls.shutdown().await.unwrap();
        }
    });
    port
}

/// A tunnel with a bare DID, at a gateway that admits it by a list, and shows its backend the DID.
#[tokio::test]
async fn bare_dids_authenticate_a_tunnel_at_a_gateway() {
    let device = Party::new();
    let other = Party::new();
    let place = Place::new();
    place.write("dids", device.did());
    place.write("device.key", &device.pair.to_pem().unwrap());
    place.write("other.key", &other.pair.to_pem().unwrap());
    let (log, _guard) = Log::start();
    for (allow, key, is_admitted) in [
        ("", "device.key", true),
        ("", "other.key", false),
        ("allow = [{ kind = \"did\" }]", "device.key", true),
        ("allow = [{ kind = \"vc\" }]", "device.key", false),
    ] {
        let text = listener("[listener.clients]\ndids = \"dids\"\n") + &route(backend("one").await, allow);
        let (gateway, port) = place.start(&text).await;
        let tunnel = format!(
            "[[listener]]\nlisten = \"127.0.0.1:0\"\nto = \"localhost:{port}\"\ndid = \"{key}\"\n[listener.server]\nca = \"root.pem\"\n"
        );
        let (_tunnel, port) = place.tunnel(&tunnel).await;
        let mut tcp = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        tcp.write_all(b"x").await.unwrap();
        tcp.shutdown().await.unwrap();
        let mut answer = String::new();
        let read = within(tcp.read_to_string(&mut answer)).await;
        assert_eq!(read.is_ok() && answer == "one got x", is_admitted, "{allow} {key}: {answer:?}");
        let kind = "dunlin_gateway_handshakes_completed_total{client=\"did\"}";
        assert_eq!(metric(&gateway, kind), f64::from(u8::from(key == "device.key")));
    }
    assert!(!log.lines(&format!("DID {}", device.did())).is_empty());
    assert!(!log.lines("not on the list of trusted DIDs").is_empty());
}

/// Every pairing of messages; a gateway without `dids` takes credentials in messages of their own if it says
/// so.
#[tokio::test]
async fn credentials_travel_in_messages_of_their_own() {
    let operator = Party::new();
    let device = Party::new();
    let place = place(&operator);
    place.write("device.key", &device.pair.to_pem().unwrap());
    place.write("device.vc", &operator.issue(&device, json!({}), 1));
    for (of_gateway, of_tunnel, is_admitted) in [
        ("", "", true),
        ("alone", "alone", true),
        ("beside", "alone", true),
        ("alone", "beside", true),
        ("", "alone", false),
        ("alone", "off", false),
    ] {
        let key = |mode: &str| match mode {
            "" => String::new(),
            mode => format!("ssi_messages = \"{mode}\"\n"),
        };
        let clients = CLIENTS.to_owned() + &key(of_gateway);
        let (_gateway, port) =
            place.start(&(listener("") + &clients + &route(backend("one").await, ""))).await;
        let tunnel = format!(
            "[[listener]]\nlisten = \"127.0.0.1:0\"\nto = \"localhost:{port}\"\ndid = \"device.key\"\nvc = \"device.vc\"\n\
             [listener.server]\nca = \"root.pem\"\n{}",
            key(of_tunnel)
        );
        let (_tunnel, port) = place.tunnel(&tunnel).await;
        assert_eq!(ask(port).await.as_deref() == Some("one got x"), is_admitted, "{of_gateway} {of_tunnel}");
    }
}

/// The answer through a tunnel.
async fn ask(port: u16) -> Option<String> {
    let mut tcp = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    tcp.write_all(b"x").await.unwrap();
    tcp.shutdown().await.unwrap();
    let mut answer = String::new();
    within(tcp.read_to_string(&mut answer)).await.ok().map(|_| answer)
}

/// The gateway has no status list. The list that a tunnel sends counts, and goes on counting after a reload.
#[tokio::test]
async fn a_tunnel_sends_the_status_list_of_its_credential() {
    let operator = Party::new();
    let device = Party::new();
    let place = place(&operator);
    place.write("device.key", &device.pair.to_pem().unwrap());
    place.write("device.vc", &operator.issue(&device, json!({}), 7));
    place.write("revoked.vc", &operator.list(&[7]));
    place.write("good.vc", &operator.list_of_age(&[], 60));
    let clients = "[listener.clients]\nvc_issuers = \"issuers\"\n";
    let text = listener("") + clients + &route(backend("one").await, "");
    let (gateway, to) = place.start(&text).await;
    let through = async |list: &str| {
        let tunnel = format!(
            "[[listener]]\nlisten = \"127.0.0.1:0\"\nto = \"localhost:{to}\"\ntickets = false\n\
             did = \"device.key\"\nvc = \"device.vc\"\n{list}\n[listener.server]\nca = \"root.pem\"\n"
        );
        let (_tunnel, port) = place.tunnel(&tunnel).await;
        ask(port).await.as_deref() == Some("one got x")
    };
    let (log, _guard) = Log::start();
    assert!(!through("").await);
    assert!(!log.lines("is not at hand").is_empty());
    assert!(through("staple_status = \"good.vc\"").await);
    assert!(!through("staple_status = \"revoked.vc\"").await);
    assert!(!log.lines("has revoked the credential").is_empty());
    assert!(!through("staple_status = \"good.vc\"").await);
    gateway.reload(place.config(&text)).await.unwrap();
    assert!(!through("staple_status = \"good.vc\"").await);
    // A file with an older list than a peer has sent is no fault, and hides nothing.
    place.write("status.vc", &operator.list_of_age(&[], 60));
    let text = listener("") + CLIENTS + &route(backend("one").await, "");
    gateway.reload(place.config(&text)).await.unwrap();
    assert!(!through("staple_status = \"good.vc\"").await);
    // A list in which the credential has no status.
    let other = operator.list(&[]).replace('.', "-");
    place.write("other.vc", &other);
    let tunnel = "[[listener]]\nlisten = \"127.0.0.1:0\"\nto = \"127.0.0.1:1\"\ndid = \"device.key\"\nvc = \"device.vc\"\n\
                  staple_status = \"other.vc\"\n[listener.server]\nca = \"root.pem\"\n";
    let config = TunnelConfig::parse(&place.path("tunnel.toml"), tunnel).unwrap();
    let Err(faults) = dunlin_gateway::Tunnel::start(config).await else { panic!("it started") };
    assert!(
        faults.to_string().contains("staple_status") && faults.to_string().contains("other.vc"),
        "{faults}"
    );
}

/// All faults of files come at once, each once.
#[tokio::test]
async fn faulty_lists_and_documents_are_told_together() {
    let place = Place::new();
    for name in ["issuers", "dids", "document"] {
        place.write(name, "junk");
    }
    let start = async |clients: &str| {
        let text = listener("") + "[listener.clients]\n" + clients + &route(1, "");
        match dunlin_gateway::Gateway::start(place.config(&text)).await {
            Ok(_) => panic!("it started"),
            Err(faults) => faults.iter().map(ToString::to_string).collect::<Vec<_>>(),
        }
    };
    let lists = "vc_issuers = \"issuers\"\ndids = \"dids\"\n";
    let found = start(&format!("{lists}did_documents = \"document\"\n")).await;
    assert!(matches!(&found[..], [one] if one.contains("document: ")), "{found:?}");
    let registry = "[listener.clients.registry]\nurl = \"https://localhost:1\"\nkey = \"document\"\n";
    let found = start(&format!("{lists}{registry}")).await;
    assert_eq!(found.len(), 3, "{found:?}");
}

#[tokio::test]
async fn a_tunnel_shows_and_verifies_credentials() {
    let operator = Party::new();
    let device = Party::new();
    let hub = Party::new();
    let place = place(&operator);
    place.write("device.key", &device.pair.to_pem().unwrap());
    place.write("device.vc", &(operator.issue(&device, json!({}), 1) + "\n"));
    place.write("hub", hub.did());
    let to = server(&operator, &hub).await;
    let text = format!(
        "[[listener]]\nlisten = \"127.0.0.1:0\"\nto = \"127.0.0.1:{to}\"\ndid = \"device.key\"\nvc = \"device.vc\"\n\
         [listener.server]\nvc_issuers = \"issuers\"\nvc_peers = \"hub\"\nvc_status = \"status.vc\"\n"
    );
    let exchange = async |port: u16| {
        let mut tcp = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let mut answer = String::new();
        within(tcp.read_to_string(&mut answer)).await.map(|_| answer)
    };
    let (_tunnel, port) = place.tunnel(&text).await;
    assert_eq!(exchange(port).await.unwrap(), format!("VC {}", device.did()));
    // Another holder is not the server.
    place.write("hub", device.did());
    let (_tunnel, port) = place.tunnel(&text).await;
    assert!(exchange(port).await.is_err());
}

#[test]
fn names_faulty_keys() {
    let gateway = |clients: &str| {
        let text = listener("") + "[listener.clients]\n" + clients + &route(1, "");
        Config::parse("gateway.toml".as_ref(), &text).unwrap_err().to_string()
    };
    let found = gateway("vc_status = \"status.vc\"\n");
    assert!(found.contains("without vc_issuers, no verifiable credential is trusted"), "{found}");
    let found = gateway("vc_issuers = \"issuers\"\nverify = \"none\"\n");
    assert!(found.contains("ca, raw_keys, vc_issuers or dids trusts some"), "{found}");
    let tunnel = |own: &str, server: &str| {
        let text = format!(
            "[[listener]]\nlisten = \"127.0.0.1:0\"\nto = \"127.0.0.1:1\"\n{own}\n[listener.server]\n{server}\n"
        );
        TunnelConfig::parse("tunnel.toml".as_ref(), &text).unwrap_err().to_string()
    };
    let found = tunnel("vc = \"device.vc\"", "ca = \"root.pem\"");
    assert!(found.contains("vc: it is about the DID of did, which is missing"), "{found}");
    let found = tunnel("membership = \"members\"", "ca = \"root.pem\"");
    assert!(found.contains("membership: it is about the DID of did, which is missing"), "{found}");
    let found = tunnel("did = \"key\"\nstaple_status = \"status.vc\"", "ca = \"root.pem\"");
    assert!(found.contains("staple_status has no effect, because no vc is shown"), "{found}");
    let found = tunnel("did = \"key\"\nversions = \"1.2\"", "ca = \"root.pem\"");
    assert!(found.contains("did: only TLS 1.3 and DTLS 1.3 have DIDs"), "{found}");
    let found = tunnel("did = \"key\"", "ca = \"root.pem\"\nssi_messages = \"off\"");
    assert!(found.contains("a DID without vc travels in messages of its own only"), "{found}");
    let found = tunnel("", "ca = \"root.pem\"\ndid_documents = \"x\"");
    assert!(
        found.contains("did_documents has no effect, because no credential or DID is trusted or shown"),
        "{found}"
    );
    let found = gateway("dids = \"dids\"\nssi_messages = \"off\"\n");
    assert!(found.contains("bare DIDs travel in messages of their own only"), "{found}");
    let found = gateway("ca = \"root.pem\"\nssi_messages = \"alone\"\n");
    assert!(found.contains("ssi_messages has no effect"), "{found}");
    let found = tunnel("", "vc_issuers = \"issuers\"");
    assert!(found.contains("could pass for the server; name the DIDs of the server in vc_peers"), "{found}");
}

#[tokio::test]
async fn names_faulty_files() {
    let operator = Party::new();
    let device = Party::new();
    let place = place(&operator);
    let text = listener("") + CLIENTS + &route(1, "");
    let refused = async || match dunlin_gateway::Gateway::start(place.config(&text)).await {
        Ok(_) => panic!("it started"),
        Err(faults) => faults.to_string(),
    };
    for (file, content, says) in [
        ("issuers", String::new(), "no peer is trusted"),
        ("issuers", "did:web:example.org".to_owned(), "not supported here"),
        ("issuers", "operator".to_owned(), "line 1"),
        ("issuers", format!("members 1 {}", "00".repeat(32)), "\"members\" is for vc_peers and dids"),
        ("issuers", device.did().to_owned(), "is not trusted"),
        ("status.vc", device.list(&[]), "is not trusted"),
        ("status.vc", "text".to_owned(), "neither JSON, a JWT nor COSE"),
    ] {
        place.write("issuers", operator.did());
        place.write("status.vc", &operator.list(&[]));
        place.write(file, &content);
        let found = refused().await;
        assert!(found.contains(says), "{says}\n{found}");
    }
    place.write("device.key", &device.pair.to_pem().unwrap());
    place.write("other.vc", &operator.issue(&operator, json!({}), 1));
    let text = "[[listener]]\nlisten = \"127.0.0.1:0\"\nto = \"127.0.0.1:1\"\ndid = \"device.key\"\nvc = \"other.vc\"\n\
                [listener.server]\nca = \"root.pem\"\n";
    let config = TunnelConfig::parse(&place.path("tunnel.toml"), text).unwrap();
    let Err(faults) = dunlin_gateway::Tunnel::start(config).await else { panic!("it started") };
    assert!(faults.to_string().contains("the key is not the first one for authentication"), "{faults}");
}

/// The answer that a tunnel with this trust gets from the server, if it accepts the server.
async fn ask_trusting(place: &Place, to: u16, transport: &str, server: &str) -> Option<String> {
    let text = format!(
        "[[listener]]\nlisten = \"127.0.0.1:0\"\nto = \"localhost:{to}\"\ntransport = \"{transport}\"\n[listener.server]\n{server}"
    );
    let (tunnel, port) = place.tunnel(&text).await;
    let answer = match transport {
        "dtls" => datagram(port).await,
        _ => ask(port).await.filter(|answer| !answer.is_empty()),
    };
    let kind = match server.split_once(' ') {
        Some(("vc_issuers", _)) => "vc",
        Some(("dids", _)) => "did",
        _ => "x509",
    };
    let accepted = format!("dunlin_tunnel_handshakes_completed_total{{server=\"{kind}\"}}");
    assert_eq!(metric(&tunnel, &accepted) > 0.0, answer.is_some(), "{server}");
    answer
}

/// The answer to a datagram through a tunnel. It may be lost while the tunnel connects.
async fn datagram(port: u16) -> Option<String> {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let mut answer = [0; 64];
    for _ in 0..15 {
        socket.send_to(b"x", ("127.0.0.1", port)).await.unwrap();
        if let Ok(read) = timeout(Duration::from_millis(100), socket.recv(&mut answer)).await {
            return String::from_utf8(answer[..read.unwrap()].to_vec()).ok();
        }
    }
    None
}

/// Each client gets an identity that it trusts: a certificate, a credential with its status list, or a bare
/// DID; also by a policy that names them.
#[tokio::test]
async fn a_listener_shows_credentials_and_dids() {
    let operator = Party::new();
    let hub = Party::new();
    let other = Party::new();
    let place = place(&operator);
    place.write("hub.key", &hub.pair.to_pem().unwrap());
    place.write("hub.vc", &operator.issue(&hub, json!({}), 1));
    place.write(
        "policy.toml",
        "[profile.all]\nrank = 1\nclient = \"none\"\ncertificates = [\"web\", \"hub\"]\n",
    );
    place.write("hubs", hub.did());
    place.write("others", other.did());
    let trusts = |kind: &str, list: &str| match kind {
        "vc" => format!("vc_issuers = \"issuers\"\nvc_peers = \"{list}\"\n"),
        "did" => format!("dids = \"{list}\"\n"),
        _ => format!("ca = \"{list}\"\n"),
    };
    for (transport, policy) in [("tls", ""), ("tls", "policy = \"policy.toml\"\n"), ("dtls", "")] {
        for (shown, kind) in [("vc = \"hub.vc\"\nstaple_status = \"status.vc\"\n", "vc"), ("", "did")] {
            let name =
                |name: &str| if policy.is_empty() { String::new() } else { format!("name = \"{name}\"\n") };
            let web = name("web");
            let own = name("hub");
            let (to, route) = match transport {
                "dtls" => (echo_datagrams().await, "protocol = \"udp\"\n"),
                _ => (backend("one").await, ""),
            };
            let text = format!(
                "[[listener]]\nlisten = \"127.0.0.1:0\"\ntransport = \"{transport}\"\n{policy}\
                 [[listener.certificate]]\nchain = \"server.pem\"\nkey = \"server.key\"\n{web}\
                 [[listener.certificate]]\ndid = \"hub.key\"\n{shown}{own}"
            );
            let (_gateway, port) = place.start(&(text + &crate::place::route(to, route))).await;
            let answer = if transport == "dtls" { "x" } else { "one got x" };
            for (trusted, list, is_accepted) in
                [(kind, "hubs", true), (kind, "others", false), ("x509", "root.pem", true)]
            {
                let got = ask_trusting(&place, port, transport, &trusts(trusted, list)).await;
                assert_eq!(
                    got.as_deref(),
                    is_accepted.then_some(answer),
                    "{transport} {policy} {trusted} {list}"
                );
            }
        }
    }
    // Without a certificate, too.
    let text = "[[listener]]\nlisten = \"127.0.0.1:0\"\n[[listener.certificate]]\ndid = \"hub.key\"\nvc = \"hub.vc\"\n\
                staple_status = \"status.vc\"\n";
    let (_gateway, port) = place.start(&(text.to_owned() + &route(backend("one").await, ""))).await;
    let got = ask_trusting(&place, port, "tls", &trusts("vc", "hubs")).await;
    assert_eq!(got.as_deref(), Some("one got x"));
    assert_eq!(ask_trusting(&place, port, "tls", &trusts("x509", "root.pem")).await, None);
}

#[test]
fn names_faulty_keys_of_own_dids() {
    let found = |own: &str, clients: &str| {
        let text =
            format!("[[listener]]\nlisten = \"127.0.0.1:0\"\n[[listener.certificate]]\n{own}{clients}");
        Config::parse("gateway.toml".as_ref(), &(text + &route(1, ""))).unwrap_err().to_string()
    };
    let text = "[[listener]]\nlisten = \"127.0.0.1:0\"\nversions = \"1.2\"\n[[listener.certificate]]\ndid = \"hub\"\n";
    let old =
        Config::parse("gateway.toml".as_ref(), &(text.to_owned() + &route(1, ""))).unwrap_err().to_string();
    assert!(old.contains("certificate[0].did: only TLS 1.3 and DTLS 1.3 have DIDs"), "{old}");
    for (own, clients, says) in [
        ("did = \"hub\"\nchain = \"x\"\n", "", "a DID has no certificate, so chain has no effect"),
        ("vc = \"x\"\nchain = \"x\"\n", "", "vc: it is about the DID of did, which is missing"),
        (
            "did = \"hub\"\n",
            "[listener.clients]\nssi_messages = \"off\"\n",
            "a DID without vc travels in messages",
        ),
        ("chain = \"x\"\n", "[listener.clients]\ndid_documents = \"x\"\n", "did_documents has no effect"),
        ("did = \"hub\"\nname = \"hub\"\n", "", "a name of a certificate is for the profiles of a policy"),
    ] {
        let found = found(own, clients);
        assert!(found.contains(says), "{says}\n{found}");
    }
}
