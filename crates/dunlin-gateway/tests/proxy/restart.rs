//! DTLS associations over planned restarts of their gateway.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use dunlin_gateway::{Gateway, TunnelConfig};
use dunlin_store::psk::sqlite::SqlitePsks;
use dunlin_store::psk::{Identity, PskRecord, lifecycle};
use dunlin_tokio::DtlsAssociation;
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::nodes::{Balancer, any_port, free, nodes, write_key};
use crate::place::{Client, PATIENCE, PSK, Place, metric, metric_becomes, route, within};

/// A DTLS listener that freezes its associations.
fn listener(listen: SocketAddr, more: &str) -> String {
    format!(
        "[[listener]]\nname = \"coap\"\nlisten = \"{listen}\"\ntransport = \"dtls\"\n{more}\n\
         [listener.clients]\npsk = \"keys.psk\"\n\
         [listener.frozen]\nfile = \"frozen-{port}\"\nids = \"ids-{port}\"\n",
        port = listen.port()
    )
}

/// A gateway that stops waits for connections that do not end, but not for associations that it freezes.
const PATIENT: &str = "[gateway]\nshutdown_time = \"1h\"\n";

/// Starts a gateway, once the previous one has released its sockets.
pub(crate) async fn start(place: &Place, text: &str) -> Gateway {
    let begin = Instant::now();
    loop {
        match Gateway::start(place.config(text)).await {
            Ok(gateway) => return gateway,
            Err(faults) => assert!(begin.elapsed() < PATIENCE, "{faults}"),
        }
        tokio::task::yield_now().await;
    }
}

/// A backend that echoes.
pub(crate) async fn echo_datagrams() -> u16 {
    let socket = any_port().await;
    let port = socket.local_addr().unwrap().port();
    tokio::spawn(async move {
        let mut buffer = [0; 2048];
        // An error is about an earlier datagram.
        loop {
            if let Ok((len, from)) = socket.recv_from(&mut buffer).await {
                let _ = socket.send_to(&buffer[..len], from).await;
            }
        }
    });
    port
}

/// A client that always sends, with the numbers of its last sent and its last echoed datagram.
struct Talking {
    sent: Arc<AtomicU32>,
    echoed: Arc<AtomicU32>,
}

impl Talking {
    fn new(dtls: DtlsAssociation, mut over: watch::Receiver<bool>) -> Self {
        let (sent, echoed): (Arc<AtomicU32>, Arc<AtomicU32>) = Default::default();
        let talking = Self { sent: sent.clone(), echoed: echoed.clone() };
        tokio::spawn(async move {
            while !*over.borrow_and_update() {
                let number = sent.fetch_add(1, Ordering::Relaxed) + 1;
                dtls.send(&number.to_be_bytes()).await.unwrap();
                if let Ok(received) = timeout(Duration::from_millis(20), dtls.recv()).await {
                    let received = received.unwrap().expect("an association that goes on");
                    let number = u32::from_be_bytes(received.try_into().unwrap());
                    echoed.fetch_max(number, Ordering::Relaxed);
                }
            }
        });
        talking
    }

    /// Waits until the client has got back something that it sends from now on.
    async fn goes_on(&self) {
        let before = self.sent.load(Ordering::Relaxed);
        let begin = Instant::now();
        while self.echoed.load(Ordering::Relaxed) <= before {
            assert!(begin.elapsed() < PATIENCE, "the client gets no answer");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

const HANDSHAKES: &str = "dunlin_gateway_handshakes_total{outcome=\"completed\"}";

fn frozen(gateway: &Gateway, outcome: &str) -> f64 {
    metric(gateway, &format!("dunlin_gateway_frozen_associations_total{{outcome=\"{outcome}\"}}"))
}

/// Half of the clients reach their gateway by way of the other one.
#[tokio::test]
async fn a_restart_of_one_of_two_gateways_under_traffic_ends_no_association() {
    let place = Place::new();
    write_key(&place);
    let to = route(echo_datagrams().await, "");
    let [a_port, b_port, a_link, b_link] = free();
    let config = |own, port, link| {
        PATIENT.to_owned() + &nodes(own, link, &[a_link, b_link]) + &listener(port, "") + &to
    };
    let a = start(&place, &config(1, a_port, a_link)).await;
    let b = start(&place, &config(2, b_port, b_link)).await;
    let client = Client { psk: true, ..place.client("root.pem") };
    let (over, is_over) = watch::channel(false);
    let mut clients = vec![];
    for at_other in [false, true, false, true, false, true] {
        let balancer = Balancer::new(a_port).await;
        let talking = Talking::new(balancer.connect(&client).await, is_over.clone());
        talking.goes_on().await;
        if at_other {
            balancer.lead_to(b_port).await;
            talking.goes_on().await;
        }
        clients.push((talking, balancer));
    }
    within(a.stop()).await;
    assert_eq!((frozen(&a, "frozen"), frozen(&a, "left")), (6.0, 0.0));
    drop(a);
    let a = start(&place, &config(1, a_port, a_link)).await;
    for (talking, _) in &clients {
        talking.goes_on().await;
    }
    assert_eq!((frozen(&a, "thawed"), metric(&a, HANDSHAKES), metric(&b, HANDSHAKES)), (6.0, 0.0, 0.0));
    assert_eq!(metric(&a, "dunlin_gateway_established{listener=\"coap\"}"), 6.0);
    assert!(!place.path(&format!("frozen-{}", a_port.port())).exists());
    // And once more, since thawed associations freeze like others.
    within(a.stop()).await;
    drop(a);
    let a = start(&place, &config(1, a_port, a_link)).await;
    for (talking, _) in &clients {
        talking.goes_on().await;
    }
    assert_eq!((frozen(&a, "thawed"), metric(&a, HANDSHAKES)), (6.0, 0.0));
    over.send_replace(true);
}

const POLICY: &str = r#"
floor = 10
[profile.strong]
rank = 100
client = "psk"
[profile.meter]
rank = 20
client = "psk"
[[rule]]
name = "meters"
when.psk = "sensor-*"
profile = "meter"
"#;

/// A gateway with a policy, and a client whose association has begun under it.
struct Policed {
    place: Place,
    config: String,
    dtls: DtlsAssociation,
    backend: UdpSocket,
}

impl Policed {
    /// The gateway has stopped.
    async fn new() -> Self {
        Self::under(POLICY).await
    }

    /// The gateway has stopped. Its key file says to which device the client's key belongs.
    async fn under(policy: &str) -> Self {
        let place = Place::new();
        place.write("policy.toml", policy);
        place.write("keys.toml", KEYS);
        let backend = any_port().await;
        let [listen] = free();
        let to = route(backend.local_addr().unwrap().port(), "");
        let listener = listener(listen, "policy = \"policy.toml\"").replace("keys.psk", "keys.toml");
        let config = PATIENT.to_owned() + &listener + &to;
        let gateway = start(&place, &config).await;
        let client = Client { psk: true, ..place.client("root.pem") };
        let dtls = Balancer::new(listen).await.connect(&client).await;
        let policed = Self { place, config, dtls, backend };
        policed.arrives(b"before").await;
        within(gateway.stop()).await;
        assert_eq!(frozen(&gateway, "frozen"), 1.0);
        policed
    }

    /// Starts the gateway again, with this policy.
    async fn start(&self, policy: &str) -> Gateway {
        self.place.write("policy.toml", policy);
        start(&self.place, &self.config).await
    }

    async fn arrives(&self, text: &[u8]) {
        self.dtls.send(text).await.unwrap();
        let mut buffer = [0; 64];
        let (len, _) = within(self.backend.recv_from(&mut buffer)).await.unwrap();
        assert_eq!(buffer[..len], *text);
    }
}

/// As `keys.psk`, with the device.
pub(crate) const KEYS: &str = "[[psk]]\nidentity = \"sensor-7\"\nname = \"meter in hall 3\"\nkey = \"000102030405060708090a0b0c0d0e0f\"\n";

#[tokio::test]
async fn rules_about_the_device_of_a_key_hold_after_a_restart() {
    let by_device = POLICY.replace("when.psk = \"sensor-*\"", "when.device = \"meter in hall *\"");
    let refusing = |device| {
        format!("{by_device}[[rule]]\nname = \"stolen\"\nwhen.device = \"{device}\"\nrefuse = true\n")
    };
    let first = |policy: &str| {
        policy.replace(
            "[[rule]]\nname = \"meters\"",
            "[[rule]]\nwhen.device = \"meter in hall 3\"\nrefuse = true\n[[rule]]\nname = \"meters\"",
        )
    };
    let named = |name| KEYS.replace("meter in hall 3", name);
    for (policy, keys, goes_on) in [
        // The rule gives the device its profile, below the default.
        (by_device.clone(), KEYS.to_owned(), true),
        (refusing("meter in hall 4"), KEYS.to_owned(), true),
        (first(&by_device), KEYS.to_owned(), false),
        // The key file counts: the device has another name now.
        (refusing("meter in hall 3"), named("meter in hall 4"), true),
        (first(&by_device), named("meter in hall 4"), true),
        (by_device.clone(), named("lamp"), false),
    ] {
        let policed = Policed::under(&by_device).await;
        policed.place.write("keys.toml", &keys);
        let gateway = policed.start(&policy).await;
        if goes_on {
            policed.arrives(b"after").await;
        } else {
            assert_eq!(within(policed.dtls.recv()).await.unwrap(), None, "{policy}");
        }
        let refused = if goes_on { 0.0 } else { 1.0 };
        metric_becomes(&gateway, "dunlin_gateway_frozen_associations_total{outcome=\"refused\"}", refused)
            .await;
    }
}

/// As its session would not resume: a rule that grants something to its device grants nothing. The key file
/// may be the wrong one, so the right one brings the association back.
#[tokio::test]
async fn an_association_thaws_only_with_its_key() {
    let by_device = POLICY.replace("when.psk = \"sensor-*\"", "when.device = \"meter in hall *\"");
    for keys in [KEYS.replace("sensor-7", "sensor-8"), KEYS.replace("000102", "000103")] {
        let policed = Policed::under(&by_device).await;
        policed.place.write("keys.toml", &keys);
        let gateway = policed.start(&by_device).await;
        metric_becomes(&gateway, "dunlin_gateway_frozen_associations_total{outcome=\"refused\"}", 1.0).await;
        assert_eq!(frozen(&gateway, "thawed"), 0.0);
        within(gateway.stop()).await;
        drop(gateway);
        policed.place.write("keys.toml", KEYS);
        let gateway = policed.start(&by_device).await;
        policed.arrives(b"after").await;
        assert_eq!((frozen(&gateway, "thawed"), frozen(&gateway, "refused")), (1.0, 0.0));
    }
}

/// The association of the other client has no key.
#[tokio::test]
async fn a_key_database_that_cannot_be_read_costs_no_association() {
    let place = Place::new();
    let keys = SqlitePsks::open_or_create(&place.path("keys.db")).unwrap();
    let identity = Identity::parse(PSK.0.as_bytes()).unwrap();
    let record = PskRecord::new(identity, Zeroizing::new((0..16).collect()));
    keys.change(|all| lifecycle::add(all, record, false)).unwrap();
    let [listen] = free();
    let own = "[[listener.certificate]]\nchain = \"server.pem\"\nkey = \"server.key\"";
    let listener = listener(listen, own).replace("\"keys.psk\"", "\"keys.db\"\nverify = \"none\"");
    let config = PATIENT.to_owned() + &listener + &route(echo_datagrams().await, "");
    let gateway = start(&place, &config).await;
    let (over, is_over) = watch::channel(false);
    for psk in [false, true] {
        let client = Client { psk, ..place.client("root.pem") };
        let talking = Talking::new(Balancer::new(listen).await.connect(&client).await, is_over.clone());
        talking.goes_on().await;
    }
    within(gateway.stop()).await;
    assert_eq!(frozen(&gateway, "frozen"), 2.0);
    drop(gateway);
    let database = rusqlite::Connection::open(place.path("keys.db")).unwrap();
    database.execute_batch("ALTER TABLE psk RENAME TO gone").unwrap();
    let gateway = start(&place, &config).await;
    metric_becomes(&gateway, "dunlin_gateway_frozen_associations_total{outcome=\"refused\"}", 1.0).await;
    assert_eq!(frozen(&gateway, "thawed"), 0.0);
    within(gateway.stop()).await;
    drop(gateway);
    database.execute_batch("ALTER TABLE gone RENAME TO psk").unwrap();
    let gateway = start(&place, &config).await;
    metric_becomes(&gateway, "dunlin_gateway_frozen_associations_total{outcome=\"thawed\"}", 2.0).await;
    assert_eq!(frozen(&gateway, "refused"), 0.0);
    over.send_replace(true);
}

#[tokio::test]
async fn an_association_goes_on_under_the_same_policy() {
    let policed = Policed::new().await;
    // Another rule for others changes nothing.
    let more = "[[rule]]\nname = \"others\"\nwhen.psk = \"lamp-*\"\nrefuse = true\n";
    let gateway = policed.start(&(POLICY.to_owned() + more)).await;
    policed.arrives(b"after").await;
    assert_eq!((frozen(&gateway, "thawed"), frozen(&gateway, "refused")), (1.0, 0.0));
}

#[tokio::test]
async fn an_association_ends_whose_client_needs_a_higher_rank_now() {
    for policy in [
        POLICY.replace("profile = \"meter\"", "profile = \"strong\""),
        POLICY.replace("profile = \"meter\"", "refuse = true"),
    ] {
        let policed = Policed::new().await;
        let gateway = policed.start(&policy).await;
        // A close_notify.
        assert_eq!(within(policed.dtls.recv()).await.unwrap(), None);
        metric_becomes(&gateway, "dunlin_gateway_frozen_associations_total{outcome=\"refused\"}", 1.0).await;
        metric_becomes(&gateway, "dunlin_gateway_dtls_associations", 0.0).await;
    }
}

/// The file stays, so a gateway with the right policy continues the association.
#[tokio::test]
async fn an_association_ends_whose_profile_has_changed() {
    let policed = Policed::new().await;
    for policy in
        [POLICY.replace("rank = 20", "rank = 30"), POLICY.replace("meter\"", "m\"").replace(".meter", ".m")]
    {
        let gateway = policed.start(&policy).await;
        metric_becomes(&gateway, "dunlin_gateway_frozen_associations_total{outcome=\"refused\"}", 1.0).await;
        assert_eq!(metric(&gateway, "dunlin_gateway_dtls_associations"), 0.0);
        within(gateway.stop()).await;
    }
    let _gateway = policed.start(POLICY).await;
    policed.arrives(b"after").await;
}

#[tokio::test]
async fn faults_of_frozen_associations_name_their_place() {
    let place = Place::new();
    let told = |text: &str| {
        dunlin_gateway::Config::parse(&place.path("gateway.toml"), text).unwrap_err().to_string()
    };
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let one = listener(any, "") + &route(1, "");
    for (text, expected) in [
        (
            one.replace("transport = \"dtls\"", ""),
            "listener[0].frozen: only DTLS associations survive a restart; ",
        ),
        (one.replace("ids =", "id ="), "listener[0].frozen: ids is missing; "),
        (one.clone() + &one.replace("\"coap\"", "\"other\""), "frozen-0 is also the file of "),
        (
            one.replace("ids-0", "frozen-0"),
            "listener[0].frozen.file: it is also the key or the store of IDs; ",
        ),
        (
            one.replace("ids-0", "sqlite:frozen-0"),
            "listener[0].frozen.file: it is also the key or the store of IDs; ",
        ),
    ] {
        let faults = told(&text);
        assert!(faults.contains(expected), "{expected:?} is not in {faults}");
    }
    let tunnel = "[[listener]]\nlisten = \"127.0.0.1:0\"\nto = \"localhost:1\"\ntransport = \"dtls\"\n\
                  [listener.server]\nca = \"root.pem\"\n[frozen]\nfile = \"frozen\"\nids = \"ids-0\"\n";
    // No error repeats a text that may contain a password.
    for (ids, expected) in [
        (
            "redis+file:secret",
            "unknown kind of store; name a store of IDs: a directory, sqlite:FILE or redis://HOST:PORT/DB",
        ),
        ("sqlit:secret", "unknown kind of store; name a store of IDs"),
        ("sqlite:", "missing file name after the colon; name a store of IDs"),
        ("rediss://secret", "TLS to Redis is not supported; "),
        ("redis://secret:port", "not a Redis URL; "),
        ("redis://:a/secret@10.0.0.1", "its user or password contains /, ? or #; "),
    ] {
        let faults = told(&one.replace("ids-0", ids));
        assert!(
            faults.contains(&format!("listener[0].frozen.ids: {expected}")) && !faults.contains("secret"),
            "{faults}"
        );
        let path = place.path("tunnel.toml");
        let faults = TunnelConfig::parse(&path, &tunnel.replace("ids-0", ids)).unwrap_err().to_string();
        assert!(
            faults.contains(&format!("frozen.ids: {expected}")) && !faults.contains("secret"),
            "{faults}"
        );
        let cache = one.replace(
            "[listener.frozen]\n",
            &format!("[listener.cache]\nmode = \"compact\"\nstore = \"{ids}\"\n[listener.frozen]\n"),
        );
        let (what, _) = expected.split_once("; ").unwrap();
        let faults = told(&cache);
        assert!(
            faults.contains(&format!("listener[0].cache.store: {what}; ")) && !faults.contains("secret"),
            "{faults}"
        );
        let shared = format!("[shared]\nstore = \"{ids}\"\nkey = \"shared.key\"\n{one}");
        assert!(told(&shared).contains(&format!("shared.store: {what}; ")), "{shared}");
    }
    let started = Gateway::start(place.config(&one.replace("ids-0", "absent/ids"))).await;
    let faults = started.err().unwrap().to_string();
    assert!(faults.contains("gateway.toml:10: listener[0].frozen.ids: "), "{faults}");
}
