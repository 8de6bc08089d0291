//! Access by identity: the key `allow` of routes.

use std::io;
use std::sync::Arc;

use dunlin::Error;
use dunlin::wire::AlertDescription;
use dunlin_gateway::Config;
use dunlin_store::MemoryClientSessions;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::place::{Client, Place, backend, listener, metric, metric_becomes, route, within};
use crate::udp;

const CLIENTS: &str = "[listener.clients]\nca = [\"root.pem\", \"other-root.pem\"]\npsk = \"keys.psk\"\n";

/// Meters by their keys, and the device `device-1` of one of the authorities.
const ALLOW: &str =
    "allow = [{ psk = \"meter-*\" }, { name = \"device-1\", issuer = \"CN=Dunlin intermediate\" }]";

/// The clients `device-1` and `device-2`.
fn devices(place: &Place) -> [Client; 2] {
    ["", "other-"].map(|prefix| place.with_certificate(place.client("root.pem"), prefix))
}

fn is_denied(error: &io::Error) -> bool {
    let alert = Error::AlertReceived(AlertDescription::ACCESS_DENIED);
    error.get_ref().and_then(|error| error.downcast_ref::<Error>()) == Some(&alert)
}

const DENIED: &str = "dunlin_gateway_access_denied_total{listener=\"test\",route=\"0\"}";

/// The second route is open to all clients, but the ClientHello leads to the first one.
#[tokio::test]
async fn a_route_admits_only_the_clients_that_it_allows() {
    let place = Place::new();
    place.make_pki("other-");
    let routes = route(backend("one").await, ALLOW) + &route(backend("two").await, "");
    let (gateway, port) = place.start(&(listener("") + CLIENTS + &routes)).await;
    let [mut first, second] = devices(&place);
    first.sessions = Some(Arc::new(MemoryClientSessions::default()));
    // Also a resumed session knows the issuer.
    for is_resumed in [false, true] {
        let mut tls = first.connect(port, "localhost").await;
        assert_eq!(tls.negotiated().is_resumed(), is_resumed);
        tls.shutdown().await.unwrap();
        let mut answer = String::new();
        within(tls.read_to_string(&mut answer)).await.unwrap();
        assert_eq!(answer, "one got ");
    }
    let meter = Client { psk: true, ..place.client("root.pem") };
    for (client, tls12) in [(&second, false), (&second, true), (&meter, false)] {
        let client = Client { tls12, ..client.clone() };
        let mut tls = client.connect(port, "localhost").await;
        // Unread data does not cost the client the alert.
        let _ = tls.write_all(b"hello").await;
        let error = within(tls.read_to_end(&mut vec![])).await.unwrap_err();
        assert!(is_denied(&error), "{error:?}");
    }
    metric_becomes(&gateway, DENIED, 3.0).await;
    assert_eq!(metric(&gateway, "dunlin_gateway_backend_connects_total{route=\"1\"}"), 0.0);

    // A reload admits and denies new clients.
    let routes = routes.replace("device-1", "device-2").replace("meter-*", "sensor-*");
    gateway.reload(place.config(&(listener("") + CLIENTS + &routes))).await.unwrap();
    for client in [&second, &meter] {
        assert_eq!(client.exchange(port, "localhost", "").await.unwrap(), "one got ");
    }
    let mut tls = first.connect(port, "localhost").await;
    assert!(is_denied(&within(tls.read_to_end(&mut vec![])).await.unwrap_err()));
}

/// Also with a policy, whose profiles keep no issuers for themselves.
#[tokio::test]
async fn a_web_application_answers_other_clients_with_403() {
    let place = Place::new();
    place.make_pki("other-");
    place.write("policy.toml", "[profile.strong]\nrank = 100\nclient = \"certificate\"\n");
    let http = format!("protocol = \"http\"\n{ALLOW}");
    let config = listener("policy = \"policy.toml\"") + CLIENTS + &route(1, &http);
    let (gateway, port) = place.start(&config).await;
    for (client, status) in devices(&place).iter().zip(["502 Bad Gateway", "403 Forbidden"]) {
        let mut tls = client.connect(port, "localhost").await;
        tls.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        within(tls.read_to_string(&mut answer)).await.unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{answer}");
    }
    assert_eq!(metric(&gateway, DENIED), 1.0);
}

#[tokio::test]
async fn an_association_ends_with_an_alert() {
    let place = Place::new();
    let clients = "[[listener]]\nname = \"test\"\nlisten = \"127.0.0.1:0\"\ntransport = \"dtls\"\n\
                   [listener.clients]\npsk = \"keys.psk\"\n";
    let config = clients.to_owned() + &route(1, "allow = [{ psk = \"meter-*\" }]");
    let (gateway, port) = place.start(&config).await;
    let client = Client { psk: true, ..place.client("root.pem") };
    let dtls = udp::connect(&client, port).await;
    let error = within(dtls.recv()).await.unwrap_err();
    assert!(is_denied(&error), "{error:?}");
    metric_becomes(&gateway, DENIED, 1.0).await;
}

#[test]
fn names_faulty_entries() {
    let faults = |clients: &str, allow: &str| {
        let text = listener("") + clients + &route(1, allow);
        Config::parse("gateway.toml".as_ref(), &text).unwrap_err().to_string()
    };
    for (clients, allow, says) in [
        (CLIENTS, "allow = []", "gateway.toml:11: listener[0].route[0]: allow has no entry"),
        (CLIENTS, "allow = [{}]", "gateway.toml:13: listener[0].route[0].allow[0]: no condition; give one"),
        (
            CLIENTS,
            "allow = [{ sni = \"a\" }]",
            "gateway.toml:13: listener[0].route[0].allow[0].sni: unknown key; allowed here: kind, name",
        ),
        (
            "",
            "allow = [{ psk = \"a\" }]",
            "gateway.toml:10: listener[0].route[0].allow[0]: this entry admits no client",
        ),
        (
            "[listener.clients]\nca = \"root.pem\"\n[listener.cache]\nmode = \"compact\"\n",
            &format!("allow = [{{ key = \"{}\" }}]", "0".repeat(64)),
            "gateway.toml:10: listener[0].cache: allow compares the keys of certificates, which this mode omits",
        ),
    ] {
        let found = faults(clients, allow);
        assert!(found.contains(says), "{says}\n{found}");
    }
    let frozen = "transport = \"dtls\"\n[listener.frozen]\nfile = \"f\"\nids = \"ids\"\n";
    let key = format!("allow = [{{ key = \"{}\" }}]", "0".repeat(64));
    let text = listener(frozen) + CLIENTS + &route(1, &key);
    let found = Config::parse("gateway.toml".as_ref(), &text).unwrap_err().to_string();
    let says = "listener[0].frozen: allow compares the keys of certificates, which frozen associations omit";
    assert!(found.contains(says), "{found}");
}
