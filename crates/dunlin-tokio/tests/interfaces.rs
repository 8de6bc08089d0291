//! Clients with several interfaces on real sockets: addresses of the loopback device.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::relay::Relay;
use common::{psk_client, psk_server};
use dunlin::{EndpointLimits, Migration, Multihoming, NodeIds, PathCheck};
use dunlin_tests::{awslc, localhost};
use dunlin_tokio::{DtlsAssociation, DtlsEndpoint, DtlsOptions, Interface, PathEvent};

const FIRST: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const SECOND: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));

fn migration() -> Migration {
    Migration::new(PathCheck::Enhanced).with_timeout(Duration::from_millis(200)).unwrap()
}

/// A client and a server, connected through `relay` if there is one.
struct Ends {
    endpoint: DtlsEndpoint,
    _server: DtlsEndpoint,
    client: DtlsAssociation,
    served: DtlsAssociation,
    changes: Arc<Mutex<Vec<PathEvent>>>,
}

impl Ends {
    async fn new(multihoming: Multihoming, relay: Option<&Relay>) -> Self {
        let ids = || Arc::new(NodeIds::new(&[], 8, awslc().random.clone()).unwrap());
        let multihoming = multihoming.with_timeout(Duration::from_millis(200)).unwrap();
        let client = psk_client().with_connection_ids(ids()).with_migration(migration());
        let client = Arc::new(client.with_multihoming(multihoming).unwrap());
        let server = DtlsEndpoint::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let config = psk_server().with_connection_ids(ids()).with_migration(migration());
        server.set_server(Some(Arc::new(config)));
        let to = relay.map_or(server.local_addr(), |relay| relay.begin(server.local_addr()));
        let interfaces = [FIRST, SECOND].map(Interface::Address).to_vec();
        let endpoint = DtlsEndpoint::over(interfaces, to, EndpointLimits::default()).unwrap();
        assert_eq!(endpoint.local_addr().ip(), FIRST);
        let changes = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&changes);
        let options = DtlsOptions::new().with_on_path(move |event| noted.lock().unwrap().push(*event));
        let connecting = endpoint.connect_with(&client, localhost(), to, &options);
        let accepting = async { server.accept().await.accept().await };
        let (client, served) = tokio::join!(connecting, accepting);
        Self { endpoint, _server: server, client: client.unwrap(), served: served.unwrap(), changes }
    }

    /// Sends one message each way, which must arrive, within the time of the test.
    async fn exchange(&self, text: &[u8]) {
        self.client.send(text).await.unwrap();
        assert_eq!(data(&self.served).await, text);
        self.served.send(text).await.unwrap();
        assert_eq!(data(&self.client).await, text);
    }

    /// The first change of the client's path so far.
    fn change(&self) -> ([IpAddr; 2], usize, usize) {
        match self.changes.lock().unwrap().first() {
            Some(PathEvent::Changed { sockets, change }) => {
                (sockets.map(|socket| socket.unwrap().ip()), change.repeated, change.unrepeated)
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The next data, without records that only tell where the peer is.
async fn data(association: &DtlsAssociation) -> Vec<u8> {
    loop {
        let data = association.recv().await.unwrap().unwrap();
        if !data.is_empty() {
            return data;
        }
    }
}

#[tokio::test]
async fn an_interface_that_the_application_takes_away_is_left_at_once() {
    for multihoming in [Multihoming::unlinkable(), Multihoming::linkable(), Multihoming::duplicated()] {
        let ends = Ends::new(multihoming, None).await;
        ends.exchange(b"one").await;
        assert_eq!(ends.served.peer_address().ip(), FIRST);
        ends.endpoint.set_interfaces(vec![Interface::Address(SECOND)]);
        ends.exchange(b"two").await;
        assert_eq!(ends.client.local_address().unwrap().ip(), SECOND);
        assert_eq!(ends.change().0, [FIRST, SECOND]);
        // The first one comes back with another socket, and is the best again.
        ends.endpoint.set_interfaces([FIRST, SECOND].map(Interface::Address).to_vec());
        while ends.client.local_address().unwrap().ip() != FIRST {
            ends.exchange(b"three").await;
        }
        ends.exchange(b"four").await;
    }
}

#[tokio::test]
async fn an_interface_on_which_the_server_is_silent_is_left() {
    let relay = Relay::new();
    let ends = Ends::new(Multihoming::linkable(), Some(&relay)).await;
    ends.exchange(b"one").await;
    relay.lose(FIRST);
    ends.exchange(b"two").await;
    assert_eq!(ends.change(), ([FIRST, SECOND], 1, 0));
    assert_eq!(ends.client.local_address().unwrap().ip(), SECOND);
    assert_eq!(ends.served.discarded().replayed, 0);
}

#[tokio::test]
async fn the_address_of_the_default_route_is_an_interface() {
    let ids = || Arc::new(NodeIds::new(&[], 8, awslc().random.clone()).unwrap());
    let config = psk_client().with_connection_ids(ids()).with_multihoming(Multihoming::linkable()).unwrap();
    let server = DtlsEndpoint::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    server.set_server(Some(Arc::new(psk_server().with_connection_ids(ids()))));
    let to: SocketAddr = server.local_addr();
    let client = DtlsEndpoint::over(vec![Interface::Default], to, EndpointLimits::default()).unwrap();
    assert_eq!(client.local_addr().ip(), Ipv4Addr::LOCALHOST);
    let config = Arc::new(config);
    let (client, served) = tokio::join!(client.connect(&config, localhost(), to), async {
        server.accept().await.accept().await
    });
    client.unwrap().send(b"hello").await.unwrap();
    assert_eq!(data(&served.unwrap()).await, b"hello");
}

#[tokio::test]
async fn explains_what_an_endpoint_with_interfaces_lacks() {
    let server: SocketAddr = "127.0.0.1:9".parse().unwrap();
    let over = |interface: Interface| DtlsEndpoint::over(vec![interface], server, EndpointLimits::default());
    let told = |config| async move {
        let endpoint = over(Interface::Address(FIRST)).unwrap();
        endpoint.connect(&Arc::new(config), localhost(), server).await.unwrap_err().to_string()
    };
    assert!(told(psk_client()).await.contains("with_multihoming"), "a configuration for a single interface");
    let config = Arc::new(psk_client().with_multihoming(Multihoming::linkable()).unwrap());
    let endpoint = over(Interface::Device("no-such-device".to_owned())).unwrap();
    let told = endpoint.connect(&config, localhost(), server).await.unwrap_err().to_string();
    assert!(told.contains("no interface is up"), "{told}");
}
