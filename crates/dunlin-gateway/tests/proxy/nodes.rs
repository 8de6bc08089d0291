//! Two gateways behind a load balancer for datagrams.

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket as StdSocket};
use std::sync::{Arc, Mutex};

use dunlin::{NodeIds, ServerAddress};
use dunlin_gateway::Gateway;
use dunlin_tokio::{DtlsAssociation, DtlsEndpoint};
use tokio::net::UdpSocket;
use tokio::sync::watch;

use crate::place::{Client, Place, metric, metric_becomes, route, within};

pub(crate) async fn any_port() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").await.unwrap()
}

/// Ports that are free now. Another program could take one of them first, which is improbable.
pub(crate) fn free<const N: usize>() -> [SocketAddr; N] {
    let sockets = [(); N].map(|()| StdSocket::bind("127.0.0.1:0").unwrap());
    sockets.map(|socket| socket.local_addr().unwrap())
}

/// The gateway to which a balancer sends the datagrams of its client, and the balancer's socket.
#[derive(Clone)]
struct Way {
    out: Arc<UdpSocket>,
    to: SocketAddr,
}

/// Forwards the datagrams of one client to a gateway, and the answers that come from an address to which it
/// has sent, as a NAT does.
pub(crate) struct Balancer {
    front: SocketAddr,
    way: watch::Sender<Way>,
    /// The datagrams of the client after which its others go to another gateway.
    diverted: Arc<Mutex<Option<SocketAddr>>>,
}

impl Balancer {
    pub(crate) async fn new(to: SocketAddr) -> Self {
        let front = any_port().await;
        let address = front.local_addr().unwrap();
        let way = watch::Sender::new(Way { out: Arc::new(any_port().await), to });
        let mut ways = way.subscribe();
        let sender = way.clone();
        let diverted: Arc<Mutex<Option<SocketAddr>>> = Arc::default();
        let next = diverted.clone();
        tokio::spawn(async move {
            let mut client = None;
            let mut up = [0; 4096];
            let mut down = [0; 4096];
            let mut asked = BTreeSet::new();
            loop {
                let Way { out, to } = ways.borrow_and_update().clone();
                tokio::select! {
                    received = front.recv_from(&mut up) => {
                        let (len, from) = received.unwrap();
                        client = Some(from);
                        asked.insert(to);
                        let _ = out.send_to(&up[..len], to).await;
                        if let Some(to) = next.lock().unwrap().take() {
                            sender.send_modify(|way| way.to = to);
                        }
                    }
                    received = out.recv_from(&mut down) => {
                        // An error is about an earlier datagram.
                        if let (Some(client), Ok((len, from))) = (client, received)
                            && asked.contains(&from)
                        {
                            front.send_to(&down[..len], client).await.unwrap();
                        }
                    }
                    // It fails only if the test is over.
                    changed = ways.changed() => if changed.is_err() { return },
                }
            }
        });
        Self { front: address, way, diverted }
    }

    /// Sends everything to this gateway from now on, from another address.
    pub(crate) async fn lead_to(&self, to: SocketAddr) {
        let out = Arc::new(any_port().await);
        self.way.send_replace(Way { out, to });
    }

    /// Sends everything but the client's first datagram to this gateway, from the same address.
    fn divert_to(&self, to: SocketAddr) {
        *self.diverted.lock().unwrap() = Some(to);
    }

    /// Connects this client by way of the balancer, with a connection ID.
    pub(crate) async fn connect(&self, client: &Client) -> DtlsAssociation {
        let endpoint = DtlsEndpoint::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let random = dunlin_awslc::provider().random;
        let config = client.config().with_connection_ids(Arc::new(NodeIds::new(&[], 0, random).unwrap()));
        let server = ServerAddress::parse("localhost", self.front.port()).unwrap();
        let dtls = within(endpoint.connect(&Arc::new(config), server, self.front)).await.unwrap();
        assert!(!dtls.peer_connection_id().is_empty());
        dtls
    }
}

/// The table `[nodes]` of the gateway with the number `own`. The others send to `addresses`; the first one
/// belongs to number 1.
pub(crate) fn nodes(own: usize, listen: SocketAddr, addresses: &[SocketAddr]) -> String {
    let node = |(at, address): (usize, &SocketAddr)| {
        format!("[[nodes.node]]\nnumber = {}\naddress = \"{address}\"\n", at + 1)
    };
    let nodes: String = addresses.iter().enumerate().map(node).collect();
    format!("[nodes]\nown = {own}\nlisten = \"{listen}\"\nkey = \"nodes.key\"\n{nodes}")
}

/// Writes the key that all gateways share.
pub(crate) fn write_key(place: &Place) {
    use std::os::unix::fs::PermissionsExt;
    place.write("nodes.key", "the key of the nodes, 32 bytes..");
    std::fs::set_permissions(place.path("nodes.key"), std::fs::Permissions::from_mode(0o600)).unwrap();
}

const LISTENER: &str = "[[listener]]\nname = \"coap\"\nlisten = \"127.0.0.1:0\"\ntransport = \"dtls\"\n[listener.clients]\npsk = \"keys.psk\"\n";

/// Two gateways with a backend for both. The second one sends datagrams for the first one to `first`, by
/// default to the first one itself.
struct Two {
    gateways: [Gateway; 2],
    ports: [SocketAddr; 2],
    /// The addresses on which they receive each other's datagrams.
    addresses: [SocketAddr; 2],
    backend: UdpSocket,
    client: Client,
    _place: Place,
}

impl Two {
    async fn new(first: Option<SocketAddr>) -> Self {
        Self::listening("127.0.0.1:0", first).await
    }

    /// Starts gateways that listen at this address.
    async fn listening(listen: &str, first: Option<SocketAddr>) -> Self {
        let place = Place::new();
        write_key(&place);
        let backend = any_port().await;
        let rest = LISTENER.replace("127.0.0.1:0", listen) + &route(backend.local_addr().unwrap().port(), "");
        let addresses: [SocketAddr; 2] = free();
        let of_second = [first.unwrap_or(addresses[0]), addresses[1]];
        let (a, a_port) = place.start(&(nodes(1, addresses[0], &addresses) + &rest)).await;
        let (b, b_port) = place.start(&(nodes(2, addresses[1], &of_second) + &rest)).await;
        let ports = [a_port, b_port].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let client = Client { psk: true, ..place.client("root.pem") };
        Self { gateways: [a, b], ports, addresses, backend, client, _place: place }
    }

    /// Waits for a datagram at the backend. Returns it and its sender.
    async fn at_backend(&self) -> (Vec<u8>, SocketAddr) {
        let mut buffer = [0; 2048];
        let (len, from) = within(self.backend.recv_from(&mut buffer)).await.unwrap();
        (buffer[..len].to_vec(), from)
    }

    /// Sends `text` to the backend, which echoes it.
    async fn echo(&self, dtls: &DtlsAssociation, text: &[u8]) -> SocketAddr {
        dtls.send(text).await.unwrap();
        let (received, from) = self.at_backend().await;
        assert_eq!(received, text);
        self.backend.send_to(text, from).await.unwrap();
        assert_eq!(within(dtls.recv()).await.unwrap().unwrap(), text);
        from
    }
}

/// The number of datagrams between gateways with this outcome.
fn passed(gateway: &Gateway, node: &str, outcome: &str) -> f64 {
    metric(gateway, &format!("dunlin_gateway_node_datagrams_total{{node=\"{node}\",outcome=\"{outcome}\"}}"))
}

const HANDSHAKES: &str = "dunlin_gateway_handshakes_total{outcome=\"completed\"}";

#[tokio::test]
async fn a_client_goes_on_at_another_gateway() {
    let two = Two::new(None).await;
    let [a, b] = &two.gateways;
    let balancer = Balancer::new(two.ports[0]).await;
    let dtls = balancer.connect(&two.client).await;
    let from = two.echo(&dtls, b"at the first one").await;
    balancer.lead_to(two.ports[1]).await;
    for n in 0..10_u8 {
        // The same association, and so the same socket to the backend.
        assert_eq!(two.echo(&dtls, &[n]).await, from);
    }
    assert_eq!((metric(a, HANDSHAKES), metric(b, HANDSHAKES)), (1.0, 0.0));
    assert!(passed(b, "1", "forwarded") >= 10.0 && passed(a, "2", "delivered") >= 10.0);
    assert!(passed(a, "2", "returned") >= 10.0 && passed(b, "1", "sent") >= 10.0);
    // Once the check of the new address is complete, the backend reaches the client there without being
    // asked, and with more than three times its bytes.
    let long = [7; 1000];
    let got = async {
        loop {
            two.backend.send_to(&long, from).await.unwrap();
            tokio::select! {
                received = dtls.recv() => break received.unwrap().unwrap(),
                () = tokio::time::sleep(std::time::Duration::from_millis(50)) => {}
            }
        }
    };
    assert_eq!(within(got).await, long);
    // Back to the first one.
    balancer.lead_to(two.ports[0]).await;
    assert_eq!(two.echo(&dtls, b"back").await, from);
}

#[tokio::test]
async fn answers_leave_from_the_address_that_the_client_has_asked() {
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let two = Two::listening(listen, None).await;
        let [first, second] = two.ports.map(|gateway| gateway.port());
        let at = |host, port| SocketAddr::from(([127, 0, 0, host], port));
        let balancer = Balancer::new(at(2, first)).await;
        let dtls = balancer.connect(&two.client).await;
        let from = two.echo(&dtls, b"at the first one").await;
        // Another address of the same gateway, then one of the other gateway, each from another address of
        // the client.
        for to in [at(3, first), at(4, second), at(5, first)] {
            balancer.lead_to(to).await;
            for n in 0..3_u8 {
                assert_eq!(two.echo(&dtls, &[n]).await, from, "{listen} {to}");
            }
        }
        assert!(passed(&two.gateways[0], "2", "delivered") >= 3.0);
    }
}

#[tokio::test]
async fn gateways_accept_each_others_cookies() {
    let two = Two::new(None).await;
    let balancer = Balancer::new(two.ports[0]).await;
    balancer.divert_to(two.ports[1]);
    let dtls = balancer.connect(&two.client).await;
    two.echo(&dtls, b"hello").await;
    let [a, b] = &two.gateways;
    assert_eq!((metric(a, HANDSHAKES), metric(b, HANDSHAKES)), (0.0, 1.0));
    // The first one has demanded the cookie, so the client has sent two ClientHellos.
    assert_eq!(metric(b, "dunlin_gateway_dtls_discarded_total"), 0.0);
}

#[tokio::test]
async fn changed_and_repeated_datagrams_between_gateways_are_refused() {
    let between = any_port().await;
    let two = Two::new(Some(between.local_addr().unwrap())).await;
    let [a, _] = &two.gateways;
    let balancer = Balancer::new(two.ports[0]).await;
    let dtls = balancer.connect(&two.client).await;
    two.echo(&dtls, b"one").await;
    balancer.lead_to(two.ports[1]).await;
    dtls.send(b"two").await.unwrap();
    let mut buffer = [0; 2048];
    let (len, _) = within(between.recv_from(&mut buffer)).await.unwrap();
    let sealed = &buffer[..len];
    // The attacker names another client's address, and bytes of the record.
    for at in [28, 34, len - 20, len - 1] {
        let mut changed = sealed.to_vec();
        changed[at] ^= 1;
        between.send_to(&changed, two.addresses[0]).await.unwrap();
    }
    between.send_to(b"noise", two.addresses[0]).await.unwrap();
    metric_becomes(a, "dunlin_gateway_node_datagrams_total{node=\"\",outcome=\"forged\"}", 5.0).await;
    assert_eq!(passed(a, "2", "delivered"), 0.0);
    between.send_to(sealed, two.addresses[0]).await.unwrap();
    assert_eq!(two.at_backend().await.0, b"two");
    for _ in 0..3 {
        between.send_to(sealed, two.addresses[0]).await.unwrap();
    }
    metric_becomes(a, "dunlin_gateway_node_datagrams_total{node=\"2\",outcome=\"replayed\"}", 3.0).await;
    assert_eq!(passed(a, "2", "delivered"), 1.0);
    // The second gateway receives a datagram for the first one. The datagram belongs to another gateway, and
    // goes nowhere.
    between.send_to(sealed, two.addresses[1]).await.unwrap();
    metric_becomes(
        &two.gateways[1],
        "dunlin_gateway_node_datagrams_total{node=\"\",outcome=\"forged\"}",
        1.0,
    )
    .await;
}

#[tokio::test]
async fn datagrams_for_a_gateway_that_is_down_are_lost_and_counted() {
    let [nobody] = free();
    let two = Two::new(Some(nobody)).await;
    let [_, b] = &two.gateways;
    let balancer = Balancer::new(two.ports[0]).await;
    let dtls = balancer.connect(&two.client).await;
    two.echo(&dtls, b"one").await;
    balancer.lead_to(two.ports[1]).await;
    let lost = async {
        while passed(b, "1", "lost") < 2.0 {
            dtls.send(b"lost").await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    within(lost).await;
    balancer.lead_to(two.ports[0]).await;
    dtls.send(b"two").await.unwrap();
    // The balancer may not have forwarded all of the others before.
    while two.at_backend().await.0 != b"two" {}
}

#[tokio::test]
async fn a_reload_keeps_the_other_gateways() {
    let place = Place::new();
    write_key(&place);
    let [own, other] = free();
    let rest = LISTENER.to_owned() + &route(1, "");
    let with = |own_number| place.config(&(nodes(own_number, own, &[own, other]) + &rest));
    let gateway = Gateway::start(with(1)).await.unwrap_or_else(|faults| panic!("{faults}"));
    gateway.reload(with(1)).await.unwrap();
    for config in [with(2), place.config(&rest)] {
        let faults = gateway.reload(config).await.unwrap_err().to_string();
        assert!(
            faults.contains("gateway.toml:1: nodes: a reload cannot change the table [nodes]; "),
            "{faults}"
        );
    }
}

#[tokio::test]
async fn faults_of_nodes_name_their_place() {
    let place = Place::new();
    let rest = LISTENER.to_owned() + &route(1, "");
    let [own, other] = free();
    let missing_key = Gateway::start(place.config(&(nodes(1, own, &[own, other]) + &rest))).await;
    let faults = missing_key.err().unwrap().to_string();
    assert!(faults.contains("gateway.toml:4: nodes.key: ") && faults.contains("no such key"), "{faults}");
    let told = |text: &str| {
        let path = place.path("gateway.toml");
        dunlin_gateway::Config::parse(&path, &(text.to_owned() + &rest)).unwrap_err().to_string()
    };
    for (text, expected) in [
        ("[nodes]\n", "nodes: own is missing"),
        (
            "[nodes]\nown = 3\nkey = \"k\"\n[[nodes.node]]\nnumber = 1\naddress = \"127.0.0.1:1\"\n",
            "nodes.own: no table [[nodes.node]] has the number 3",
        ),
        ("[nodes]\nown = 65536\n", "nodes.own: 65536 is not a number from 0 to 65535"),
        (
            "[nodes]\nown = 1\nkey = \"k\"\n[[nodes.node]]\nnumber = 1\naddress = \"0.0.0.0:1\"\n",
            "nodes.node[0].address: ",
        ),
        (
            "[nodes]\nown = 1\nkey = \"k\"\n[[nodes.node]]\nnumber = 1\naddress = \"127.0.0.1:1\"\n[[nodes.node]]\nnumber = 1\naddress = \"127.0.0.1:2\"\n",
            "nodes.node[1]: duplicate number 1, first used at ",
        ),
    ] {
        let faults = told(text);
        assert!(faults.contains(expected), "{expected:?} is not in {faults}");
    }
}
