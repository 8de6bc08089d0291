//! Networks with NATs, several interfaces, and addresses that change.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use common::{App, Configs, VERSIONS};
use dunlin::{
    DtlsConnection, Endpoint, EndpointEvent, EndpointLimits, Instant, Local, NodeIds, Now, Transmit,
};
use dunlin_sim::{
    Change, Conditions, Delay, Host, HostId, Impaired, InterfaceId, Link, MultiHomed, Nat, NatId, NatKind,
    Network, OneSocket, Unsettled,
};
use dunlin_tests::{NOW, awslc, localhost};

const DELAY: Duration = Duration::from_millis(20);
/// The time after which a NAT forgets a mapping.
const TIMEOUT: Duration = Duration::from_secs(60);
const PORT: u16 = 5684;

const fn ip(network: u8, host: u8) -> IpAddr {
    IpAddr::V4(std::net::Ipv4Addr::new(198, 51, network, host))
}

const SERVER: SocketAddr = SocketAddr::new(ip(0, 1), PORT);
const PUBLIC: IpAddr = ip(0, 2);

fn links() -> [Box<dyn Link>; 2] {
    [Box::new(Delay(DELAY)), Box::new(Delay(DELAY))]
}

/// No NAT, and one of each kind.
fn nats() -> impl Iterator<Item = Option<NatKind>> {
    [None].into_iter().chain(NatKind::ALL.map(Some))
}

/// A host that sends what it is told to, and keeps what it receives.
#[derive(Default)]
struct Postman {
    outbox: VecDeque<(SocketAddr, Transmit)>,
    inbox: Vec<(SocketAddr, SocketAddr, Vec<u8>)>,
    addresses: Vec<Option<IpAddr>>,
}

impl Host for Postman {
    fn receive(&mut self, _: Now, at: SocketAddr, from: SocketAddr, datagram: &[u8]) {
        self.inbox.push((at, from, datagram.to_vec()));
    }

    fn poll_transmit(&mut self, _: Now) -> Option<(SocketAddr, Transmit)> {
        self.outbox.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _: Now) {}

    fn set_addresses(&mut self, _: Now, addresses: &[Option<IpAddr>]) {
        self.addresses = addresses.to_vec();
    }
}

impl Postman {
    fn send(&mut self, from: SocketAddr, to: SocketAddr) {
        let datagram = b"hello".to_vec();
        self.outbox.push_back((from, Transmit { local: Local::default(), source: None, to, datagram }));
    }
}

/// A client, perhaps behind a NAT, and a server.
struct Post {
    network: Network<Postman>,
    client: HostId,
    server: HostId,
    interface: InterfaceId,
    nat: Option<NatId>,
}

const CLIENT: SocketAddr = SocketAddr::new(ip(7, 1), 40_000);

impl Post {
    fn new(kind: Option<NatKind>) -> Self {
        let mut network = Network::new(NOW);
        let nat = kind.map(|kind| network.add_nat(Nat::new(kind, PUBLIC, TIMEOUT, 3)));
        let [client, server] = [(); 2].map(|()| network.add(Postman::default()));
        let interface = network.attach(client, CLIENT.ip(), nat, links());
        network.attach(server, SERVER.ip(), None, links());
        Self { network, client, server, interface, nat }
    }

    /// Sends a datagram. Returns the source that the receiver saw, if one received it.
    fn carry(&mut self, by: HostId, from: SocketAddr, to: SocketAddr) -> Option<SocketAddr> {
        self.network.host(by).send(from, to);
        self.network.run().unwrap();
        let receiver = if by == self.client { self.server } else { self.client };
        self.network.host(receiver).inbox.pop().map(|(_, from, _)| from)
    }

    fn sent_by_client(&mut self, to: SocketAddr) -> Option<SocketAddr> {
        self.carry(self.client, CLIENT, to)
    }

    fn reaches_client(&mut self, from: SocketAddr, to: SocketAddr) -> bool {
        self.carry(self.server, from, to).is_some()
    }
}

/// A server that answers from another port reaches a client only through some NATs. A client that has sent to
/// the other port is reached through all of them, and behind a symmetric one has another port there.
#[test]
fn an_answer_from_another_port_passes_some_nats() {
    let other = SocketAddr::new(SERVER.ip(), PORT + 1);
    for kind in nats() {
        let mut post = Post::new(kind);
        let seen = post.sent_by_client(SERVER).unwrap();
        assert_eq!(seen.ip(), if kind.is_some() { PUBLIC } else { CLIENT.ip() });
        assert!(post.reaches_client(SERVER, seen));
        let passes = !matches!(kind, Some(NatKind::PortRestricted | NatKind::Symmetric));
        assert_eq!(post.reaches_client(other, seen), passes, "{kind:?}");
        let seen_there = post.sent_by_client(other).unwrap();
        assert_eq!(seen_there != seen, kind == Some(NatKind::Symmetric), "{kind:?}");
        assert!(post.reaches_client(other, seen_there), "{kind:?}");
    }
}

#[test]
fn a_nat_forgets_silent_sockets_and_all_of_them_when_it_restarts() {
    let mut post = Post::new(Some(NatKind::PortRestricted));
    let seen = post.sent_by_client(SERVER).unwrap();
    post.network.run_for(TIMEOUT - DELAY * 4).unwrap();
    assert!(post.reaches_client(SERVER, seen));
    post.network.run_for(DELAY * 4).unwrap();
    assert!(!post.reaches_client(SERVER, seen));
    let again = post.sent_by_client(SERVER).unwrap();
    assert_ne!(again, seen);
    post.network.schedule(DELAY, Change::Restart(post.nat.unwrap()));
    post.network.run_for(DELAY * 2).unwrap();
    assert!(!post.reaches_client(SERVER, again));
}

#[test]
fn packets_to_a_previous_address_are_lost() {
    let mut post = Post::new(None);
    let moved = SocketAddr::new(ip(7, 9), CLIENT.port());
    post.network.host(post.server).send(SERVER, CLIENT);
    post.network.schedule(DELAY, Change::Address(post.interface, Some(moved.ip())));
    post.network.run().unwrap();
    assert!(post.network.host(post.client).inbox.is_empty());
    assert_eq!(post.network.host(post.client).addresses, [Some(moved.ip())]);
    // Datagrams from the host's previous address are lost, too.
    assert_eq!(post.sent_by_client(SERVER), None);
    assert_eq!(post.carry(post.client, moved, SERVER), Some(moved));
    assert!(post.reaches_client(SERVER, moved));
    post.network.change(Change::Address(post.interface, None));
    assert_eq!(post.network.host(post.client).addresses, [None]);
    assert!(!post.reaches_client(SERVER, moved));
    assert_eq!(post.network.sent.len(), 5);
}

/// A network of the engine's endpoints: a server, and clients behind a NAT.
fn endpoints(
    configs: &Configs,
    kind: Option<NatKind>,
    clients: u8,
    mut links: impl FnMut() -> [Box<dyn Link>; 2],
) -> (Network<OneSocket<Endpoint>>, Vec<HostId>, Option<NatId>) {
    let mut network = Network::new(configs.now);
    let endpoint = || OneSocket::new(Endpoint::new(EndpointLimits::default()), PORT);
    let server = network.add(endpoint());
    network.host(server).endpoint.set_server(Some(Arc::new(configs.server.clone())));
    network.attach(server, SERVER.ip(), None, links());
    let nat = kind.map(|kind| network.add_nat(Nat::new(kind, PUBLIC, TIMEOUT, 11)));
    let mut hosts = vec![server];
    for number in 1..=clients {
        let client = network.add(endpoint());
        network.attach(client, ip(7, number), nat, links());
        hosts.push(client);
    }
    (network, hosts, nat)
}

/// Clients with equal ports behind one NAT connect, and talk with the server.
#[test]
fn clients_connect_through_every_nat() {
    for version in VERSIONS {
        let configs = Configs::of_version(version);
        for kind in nats() {
            let (mut network, hosts, nat) = endpoints(&configs, kind, 3, links);
            let config = Arc::new(configs.client.clone());
            let ids: Vec<_> = hosts[1..]
                .iter()
                .map(|host| {
                    let now = network.now;
                    network.host(*host).endpoint.connect(&config, localhost(), SERVER, now).unwrap()
                })
                .collect();
            network.run_for(DELAY * 20).unwrap();
            let server = &mut network.host(hosts[0]).endpoint;
            let events = std::iter::from_fn(|| server.poll_event());
            let served: BTreeSet<_> = events
                .filter_map(|event| match event {
                    EndpointEvent::Incoming(id) => Some(id),
                    _ => None,
                })
                .collect();
            assert_eq!(served.len(), 3, "{kind:?}");
            let peers: BTreeSet<_> = served
                .iter()
                .map(|id| server.association(*id).unwrap().connection().peer_address())
                .collect();
            assert_eq!(peers.len(), 3);
            assert!(peers.iter().all(|peer| kind.is_none() || peer.ip() == PUBLIC));
            for id in served {
                server.update(id, |connection| connection.send(b"hello")).unwrap().unwrap();
            }
            network.run_for(DELAY * 20).unwrap();
            for (host, id) in hosts[1..].iter().zip(ids) {
                let read = network.host(*host).endpoint.update(id, |connection| connection.read());
                assert_eq!(read.unwrap().unwrap(), b"hello");
            }
            if let Some(nat) = nat {
                let at = network.elapsed();
                assert_eq!(network.nat(nat).mappings(at), 3);
            }
        }
    }
}

/// The same seed gives the same datagrams at the same times.
#[test]
fn runs_are_reproducible() {
    let run = |seed| -> Result<_, Unsettled> {
        let configs = Configs::of_version(VERSIONS[0]);
        let conditions =
            Conditions { delay: DELAY, jitter: DELAY, loss: 0.2, duplicate: 0.1, ..Conditions::default() };
        let mut random = fastrand::Rng::with_seed(seed);
        let links = || {
            let mut link = || Box::new(Impaired::new(conditions, random.u64(..))) as Box<dyn Link>;
            [link(), link()]
        };
        let (mut network, hosts, _) = endpoints(&configs, Some(NatKind::Symmetric), 2, links);
        let config = Arc::new(configs.client);
        for host in &hosts[1..] {
            network.host(*host).endpoint.connect(&config, localhost(), SERVER, NOW).unwrap();
        }
        network.run_for(Duration::from_secs(30))?;
        assert_eq!(network.elapsed(), Duration::from_secs(30));
        // Keys and randoms differ, and with them some lengths; times and addresses do not.
        Ok(network.sent.iter().map(|sent| (sent.after, sent.host, sent.from, sent.to)).collect::<Vec<_>>())
    };
    assert_eq!(run(1).unwrap()[..8], run(1).unwrap()[..8]);
    assert_ne!(run(1).unwrap(), run(2).unwrap());
}

/// A connection with connection IDs, whose client has two interfaces behind different NATs.
struct TwoHomes {
    network: Network<MultiHomed>,
    client: HostId,
    server: HostId,
    interfaces: [InterfaceId; 2],
    nats: [NatId; 2],
}

impl TwoHomes {
    fn new() -> Self {
        let mut configs = Configs::of_version(VERSIONS[1]).cookies(true);
        let ids = || Arc::new(NodeIds::new(&[], 8, awslc().random.clone()).unwrap());
        configs.client = configs.client.with_connection_ids(ids());
        configs.server = configs.server.with_connection_ids(ids());
        let mut network = Network::new(NOW);
        let nats = [(NatKind::FullCone, 2), (NatKind::PortRestricted, 3)]
            .map(|(kind, host)| network.add_nat(Nat::new(kind, ip(0, host), TIMEOUT, u64::from(host))));
        let client = DtlsConnection::client(&Arc::new(configs.client), localhost(), SERVER, NOW).unwrap();
        let client = network.add(MultiHomed::new(client, 40_000));
        let interfaces =
            [0, 1].map(|n| network.attach(client, ip(7 + n, 1), Some(nats[usize::from(n)]), links()));
        // The NAT's ports are reproducible, so its first one is known before the client connects.
        let from = network.nat(nats[0]).outbound(Duration::ZERO, CLIENT, SERVER).unwrap();
        let server = DtlsConnection::server(&Arc::new(configs.server), from, NOW);
        let server = network.add(MultiHomed::new(server, PORT));
        network.attach(server, SERVER.ip(), None, links());
        network.run().unwrap();
        let mut homes = Self { network, client, server, interfaces, nats };
        for host in [homes.client, homes.server] {
            homes.network.host(host).connection.assert_connected();
        }
        homes
    }

    /// Sends data in both directions. Returns whether it arrives.
    fn exchange(&mut self) -> [bool; 2] {
        [(self.client, self.server), (self.server, self.client)].map(|(from, to)| {
            self.network.host(from).connection.send(b"ping").unwrap();
            self.network.run().unwrap();
            self.network.host(to).connection.read().is_some_and(|data| data == b"ping")
        })
    }
}

#[test]
fn an_association_with_connection_ids_survives_a_restart_of_the_nat() {
    let mut homes = TwoHomes::new();
    let before = homes.network.host(homes.server).connection.peer_address();
    assert_eq!(homes.exchange(), [true; 2]);
    homes.network.change(Change::Restart(homes.nats[0]));
    assert_eq!(homes.exchange(), [true; 2]);
    let after = homes.network.host(homes.server).connection.peer_address();
    assert!(before.ip() == after.ip() && before != after, "{before} and {after}");
}

#[test]
fn datagrams_leave_over_the_interface_that_the_connection_names() {
    let mut homes = TwoHomes::new();
    let sources: BTreeSet<_> = homes.network.sent.iter().map(|sent| (sent.host, sent.from.ip())).collect();
    assert_eq!(sources, BTreeSet::from([(homes.client, ip(7, 1)), (homes.server, SERVER.ip())]));
    // Without its interface, nothing of the client arrives, and nothing reaches it.
    homes.network.change(Change::Address(homes.interfaces[0], None));
    let before = homes.network.sent.len();
    homes.network.host(homes.client).connection.send(b"lost").unwrap();
    homes.network.run().unwrap();
    assert_eq!(homes.network.sent.len(), before);
    homes.network.change(Change::Address(homes.interfaces[0], Some(ip(7, 1))));
    assert_eq!(homes.exchange(), [true; 2]);
}
