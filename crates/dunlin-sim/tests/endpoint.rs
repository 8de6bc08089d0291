//! Endpoints: many associations on one socket.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use common::{Configs, profile};
use dunlin::auth::{Psk, PskTable};
use dunlin::error::{Error, Misuse};
use dunlin::wire::{AlertDescription, ProtocolVersion};
use dunlin::{
    Answer, AssociationId, ClientConfig, Endpoint, EndpointEvent, EndpointLimits, Event, Instant, Now,
    Profile, ProfileBuilder, PskSource, Question, ServerConfig, Side,
};
use dunlin_awslc::tls12::TLS12_CIPHER_SUITES;
use dunlin_sim::{CLIENT_ADDRESS, SERVER_ADDRESS};
use dunlin_tests::{KeyType, NOW, awslc, localhost};

const VERSIONS: [ProtocolVersion; 2] = [ProtocolVersion::DTLS1_2, ProtocolVersion::DTLS1_3];

fn configs(version: ProtocolVersion) -> Configs {
    let profile = |profile: ProfileBuilder| match version {
        ProtocolVersion::DTLS1_2 => {
            profile.cipher_suites(vec![]).tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec())
        }
        _ => profile,
    };
    Configs::with(&awslc(), profile).cookies(true)
}

/// Endpoints at their addresses, on a network without delay.
struct Net {
    endpoints: BTreeMap<SocketAddr, Endpoint>,
    now: Now,
    /// The associations that clients have begun, by the address of the endpoint.
    incoming: Vec<(SocketAddr, AssociationId)>,
    /// Every datagram so far: sender, receiver, content.
    sent: Vec<(SocketAddr, SocketAddr, Vec<u8>)>,
    /// Datagrams from this address are lost.
    muted: Option<SocketAddr>,
}

impl Net {
    /// A server at [`SERVER_ADDRESS`].
    fn new(configs: &Configs, limits: EndpointLimits) -> Self {
        let mut server = Endpoint::new(limits);
        server.set_server(Some(Arc::new(configs.server.clone())));
        let endpoints = BTreeMap::from([(SERVER_ADDRESS, server)]);
        Self { endpoints, now: NOW, incoming: Vec::new(), sent: Vec::new(), muted: None }
    }

    fn at(&mut self, address: SocketAddr) -> &mut Endpoint {
        self.endpoints.entry(address).or_insert_with(|| Endpoint::new(EndpointLimits::default()))
    }

    fn server(&mut self) -> &mut Endpoint {
        self.at(SERVER_ADDRESS)
    }

    fn connect(&mut self, configs: &Configs, from: SocketAddr) -> AssociationId {
        let (config, now) = (Arc::new(configs.client.clone()), self.now);
        self.at(from).connect(&config, localhost(), SERVER_ADDRESS, now).unwrap()
    }

    /// Carries datagrams until there are none.
    fn run(&mut self) {
        loop {
            let now = self.now;
            let mut carried = Vec::new();
            for (address, endpoint) in &mut self.endpoints {
                carried.extend(
                    std::iter::from_fn(|| endpoint.poll_transmit(now)).map(|t| (*address, t.to, t.datagram)),
                );
            }
            for (from, to, datagram) in &carried {
                if self.muted == Some(*from) {
                    continue;
                }
                if let Some(endpoint) = self.endpoints.get_mut(to) {
                    endpoint.receive(now, *from, datagram);
                }
            }
            for (address, endpoint) in &mut self.endpoints {
                while let Some(event) = endpoint.poll_event() {
                    if let EndpointEvent::Incoming(id) = event {
                        self.incoming.push((*address, id));
                    }
                }
            }
            self.sent.append(&mut carried.clone());
            if carried.is_empty() {
                return;
            }
        }
    }

    /// Lets this time pass at once.
    fn pass(&mut self, time: Duration) {
        self.now.monotonic = self.now.monotonic + time;
        let now = self.now;
        self.endpoints.values_mut().for_each(|endpoint| endpoint.handle_timeout(now));
        self.run();
    }

    fn is_connected(&mut self, at: SocketAddr, id: AssociationId) -> bool {
        let association = self.at(at).association(id).unwrap();
        association.connection().negotiated().is_some() && association.connection().error().is_none()
    }

    /// Sends data to the peer of an association.
    fn send(&mut self, at: SocketAddr, id: AssociationId, data: &[u8]) {
        self.at(at).update(id, |connection| connection.send(data)).unwrap().unwrap();
        self.run();
    }

    fn read(&mut self, at: SocketAddr, id: AssociationId) -> Option<Vec<u8>> {
        self.at(at).update(id, |connection| connection.read()).unwrap()
    }

    /// The associations of the server whose handshake is complete and that were not superseded.
    fn served(&mut self) -> Vec<AssociationId> {
        let ids: Vec<_> = self.incoming.iter().map(|(_, id)| *id).collect();
        let server = self.server();
        let is_live = |id: &AssociationId| {
            server
                .association(*id)
                .is_some_and(|a| a.connection().negotiated().is_some() && !a.is_superseded())
        };
        ids.into_iter().filter(is_live).collect()
    }
}

fn client(n: u16) -> SocketAddr {
    SocketAddr::new(CLIENT_ADDRESS.ip(), n)
}

#[test]
fn serves_many_clients_on_one_socket() {
    for version in VERSIONS {
        let configs = configs(version);
        let mut net = Net::new(&configs, EndpointLimits::default());
        let clients: Vec<_> = (1..=20).map(|n| (client(n), net.connect(&configs, client(n)))).collect();
        net.run();
        assert_eq!(net.served().len(), 20);
        assert_eq!(net.server().half_open(), 0);
        for (n, (address, id)) in clients.iter().enumerate() {
            net.send(*address, *id, &[n as u8; 9]);
        }
        for served in net.served() {
            let data = net.read(SERVER_ADDRESS, served).unwrap();
            let peer = net.server().association(served).unwrap().connection().peer_address();
            assert_eq!(data, [(peer.port() - 1) as u8; 9]);
            net.send(SERVER_ADDRESS, served, &data);
        }
        for (n, (address, id)) in clients.into_iter().enumerate() {
            assert_eq!(net.read(address, id).unwrap(), [n as u8; 9]);
        }
        assert_eq!(net.server().discarded(), Default::default());
    }
}

#[test]
fn one_endpoint_is_client_and_server() {
    let configs = configs(ProtocolVersion::DTLS1_3);
    let mut net = Net::new(&configs, EndpointLimits::default());
    let server = Arc::new(configs.server.clone());
    net.at(client(1)).set_server(Some(server));
    let there = net.connect(&configs, client(1));
    let config = Arc::new(configs.client.clone());
    let here = net.server().connect(&config, localhost(), client(2), NOW).unwrap();
    let server = Arc::new(configs.server.clone());
    net.at(client(2)).set_server(Some(server));
    net.run();
    assert!(net.is_connected(client(1), there) && net.is_connected(SERVER_ADDRESS, here));
    // Only one association with an address.
    let again = net.server().connect(&config, localhost(), client(2), NOW);
    assert_eq!(again, Err(Error::Misuse(Misuse::AddressInUse)));
}

#[test]
fn a_server_keeps_nothing_before_the_cookie() {
    for version in VERSIONS {
        let configs = configs(version);
        let mut net = Net::new(&configs, EndpointLimits::default());
        for n in 1..=50 {
            net.connect(&configs, client(n));
            let hello = net.at(client(n)).poll_transmit(NOW).unwrap().datagram;
            net.server().receive(NOW, client(n), &hello);
            let answer = net.server().poll_transmit(NOW).unwrap();
            assert!(answer.to == client(n) && answer.datagram.len() < hello.len());
            assert!(net.server().is_empty() && net.server().poll_transmit(NOW).is_none());
        }
        assert_eq!(net.server().poll_timeout(), None);
        assert_eq!(net.server().poll_event(), None);
    }
}

#[test]
fn a_new_handshake_supersedes_the_association_only_when_it_is_complete() {
    for version in VERSIONS {
        let configs = configs(version);
        let mut net = Net::new(&configs, EndpointLimits::default());
        let first = net.connect(&configs, CLIENT_ADDRESS);
        net.run();
        let [old] = net.served()[..] else { panic!("one client") };
        // The client restarts at the same address, and falls silent after its second ClientHello.
        let survivor = net.endpoints.remove(&CLIENT_ADDRESS).unwrap();
        let config = Arc::new(configs.client.clone());
        let mut restarted = Endpoint::new(EndpointLimits::default());
        let second = restarted.connect(&config, localhost(), SERVER_ADDRESS, NOW).unwrap();
        for _ in 0..2 {
            let hello = restarted.poll_transmit(NOW).unwrap().datagram;
            net.server().receive(NOW, CLIENT_ADDRESS, &hello);
            while let Some(answer) = net.server().poll_transmit(NOW) {
                restarted.receive(NOW, SERVER_ADDRESS, &answer.datagram);
            }
        }
        assert_eq!(net.server().half_open(), 1, "the new handshake has begun");
        // The old association still works in both directions.
        net.endpoints.insert(CLIENT_ADDRESS, survivor);
        net.send(CLIENT_ADDRESS, first, b"still here");
        assert_eq!(net.read(SERVER_ADDRESS, old).as_deref(), Some(&b"still here"[..]));
        net.send(SERVER_ADDRESS, old, b"good");
        assert_eq!(net.read(CLIENT_ADDRESS, first).as_deref(), Some(&b"good"[..]));
        // The new handshake completes, and takes over.
        net.endpoints.insert(CLIENT_ADDRESS, restarted);
        net.run();
        assert!(net.is_connected(CLIENT_ADDRESS, second), "{version}");
        let [new] = net.served()[..] else { panic!("one client: {:?}", net.served()) };
        assert!(new != old && net.server().association(old).unwrap().is_superseded());
        assert_eq!(net.server().half_open(), 0);
        net.send(CLIENT_ADDRESS, second, b"back");
        assert_eq!(net.read(SERVER_ADDRESS, new).as_deref(), Some(&b"back"[..]));
        assert_eq!(net.read(SERVER_ADDRESS, old), None);
        // The removal of the old one says nothing to the peer.
        let before = net.sent.len();
        net.server().remove(NOW, old);
        net.run();
        assert_eq!(net.sent.len(), before);
    }
}

#[test]
fn a_client_that_restarts_during_its_handshake_connects() {
    for version in VERSIONS {
        let configs = configs(version);
        let limits = EndpointLimits::default();
        let mut net = Net::new(&configs, limits);
        net.connect(&configs, CLIENT_ADDRESS);
        for _ in 0..2 {
            let hello = net.at(CLIENT_ADDRESS).poll_transmit(NOW).unwrap().datagram;
            net.server().receive(NOW, CLIENT_ADDRESS, &hello);
            while let Some(answer) = net.server().poll_transmit(NOW) {
                net.at(CLIENT_ADDRESS).receive(NOW, SERVER_ADDRESS, &answer.datagram);
            }
        }
        assert_eq!(net.server().half_open(), 1);
        net.endpoints.remove(&CLIENT_ADDRESS);
        let id = net.connect(&configs, CLIENT_ADDRESS);
        net.run();
        assert!(net.is_connected(CLIENT_ADDRESS, id));
        assert_eq!((net.served().len(), net.server().half_open()), (1, 0));
    }
}

#[test]
fn a_retransmitted_client_hello_begins_nothing() {
    for version in VERSIONS {
        let configs = configs(version);
        let mut net = Net::new(&configs, EndpointLimits::default());
        net.connect(&configs, CLIENT_ADDRESS);
        net.run();
        let is_hello = |datagram: &[u8]| datagram[0] == 22 && datagram[13] == 1;
        let second = net.sent.iter().rfind(|(_, to, datagram)| *to == SERVER_ADDRESS && is_hello(datagram));
        let second = second.unwrap().2.clone();
        net.server().receive(NOW, CLIENT_ADDRESS, &second);
        assert_eq!((net.server().len(), net.server().half_open()), (1, 0));
    }
}

#[test]
fn takes_client_hellos_in_fragments() {
    for version in VERSIONS {
        let configs = configs(version).mtu(120);
        let mut net = Net::new(&configs, EndpointLimits::default());
        let id = net.connect(&configs, CLIENT_ADDRESS);
        net.run();
        assert!(net.is_connected(CLIENT_ADDRESS, id), "{version}");
        // And after a restart, beside a live association.
        net.endpoints.remove(&CLIENT_ADDRESS);
        let id = net.connect(&configs, CLIENT_ADDRESS);
        net.run();
        assert!(net.is_connected(CLIENT_ADDRESS, id), "{version}");
        assert_eq!(net.served().len(), 1);
    }
}

#[test]
fn limits_incomplete_client_hellos() {
    let configs = configs(ProtocolVersion::DTLS1_3).mtu(120);
    let mut limits = EndpointLimits::default();
    limits.partial_hellos = 3;
    let mut net = Net::new(&configs, limits);
    let fragments: Vec<_> = (1..=4)
        .map(|n| {
            net.connect(&configs, client(n));
            let endpoint = net.at(client(n));
            std::iter::from_fn(|| endpoint.poll_transmit(NOW)).map(|t| t.datagram).collect::<Vec<_>>()
        })
        .collect();
    for (n, fragments) in (1..).zip(&fragments) {
        net.server().receive(NOW, client(n), &fragments[0]);
    }
    assert_eq!(net.server().discarded().partial, 1, "the oldest one");
    let mut answered = Vec::new();
    for n in (1..=4).rev() {
        let fragments = &fragments[usize::from(n) - 1];
        fragments[1..].iter().for_each(|fragment| net.server().receive(NOW, client(n), fragment));
        answered.extend(std::iter::from_fn(|| net.server().poll_transmit(NOW)).map(|t| t.to));
    }
    // The demand of DTLS 1.3 needs more than one datagram here.
    answered.dedup();
    assert_eq!(answered, [4, 3, 2].map(client));
    assert!(net.server().is_empty());
}

#[test]
fn limits_associations_and_half_open_ones() {
    let configs = configs(ProtocolVersion::DTLS1_2);
    let mut limits = EndpointLimits::default();
    limits.half_open = 2;
    limits.associations = 4;
    let mut net = Net::new(&configs, limits);
    // Clients that fall silent after their second ClientHello.
    for n in 1..=3 {
        net.connect(&configs, client(n));
        for _ in 0..2 {
            let Some(hello) = net.at(client(n)).poll_transmit(NOW) else { break };
            net.server().receive(NOW, client(n), &hello.datagram);
            while let Some(answer) = net.server().poll_transmit(NOW) {
                net.at(client(n)).receive(NOW, SERVER_ADDRESS, &answer.datagram);
            }
        }
    }
    assert_eq!((net.server().half_open(), net.server().len()), (2, 2));
    assert_eq!(net.server().discarded().full, 1);
    // They go on, and another client finds room.
    net.run();
    net.pass(Duration::from_secs(1));
    assert_eq!((net.server().half_open(), net.server().len()), (0, 3));
    for n in 4..=5 {
        net.connect(&configs, client(n));
        net.run();
    }
    assert_eq!((net.server().len(), net.served().len()), (4, 4));
    assert!(net.server().discarded().full > 1);
    let config = Arc::new(configs.client.clone());
    let full = net.server().connect(&config, localhost(), client(9), NOW);
    assert_eq!(full, Err(Error::Misuse(Misuse::EndpointFull)));
    // An association that is removed leaves room.
    let one = net.served()[0];
    net.server().remove(NOW, one);
    net.pass(Duration::from_secs(3));
    assert_eq!(net.served().len(), 4);
}

#[test]
fn timers_of_all_associations_expire() {
    for version in VERSIONS {
        let configs = configs(version);
        let mut net = Net::new(&configs, EndpointLimits::default());
        let ids: Vec<_> = (1..=3).map(|n| net.connect(&configs, client(n))).collect();
        net.muted = Some(client(2));
        net.run();
        assert_eq!(net.served().len(), 2);
        let deadline = net.at(client(2)).poll_timeout();
        assert_eq!(deadline, Some(NOW.monotonic + Duration::from_secs(1)));
        net.muted = None;
        net.pass(Duration::from_secs(1));
        assert!(net.is_connected(client(2), ids[1]));
        assert_eq!(net.served().len(), 3);
    }
}

#[test]
fn a_removed_association_says_goodbye_and_frees_its_address() {
    for version in VERSIONS {
        let configs = configs(version);
        let mut net = Net::new(&configs, EndpointLimits::default());
        let id = net.connect(&configs, CLIENT_ADDRESS);
        net.run();
        let [served] = net.served()[..] else { panic!("one client") };
        net.at(CLIENT_ADDRESS).remove(NOW, id);
        net.run();
        assert!(net.at(CLIENT_ADDRESS).is_empty());
        let connection =
            |net: &mut Net| net.server().association(served).unwrap().connection().peer_has_closed();
        assert!(connection(&mut net));
        net.server().remove(NOW, served);
        net.run();
        assert!(net.server().is_empty() && net.server().poll_timeout().is_none());
        let id = net.connect(&configs, CLIENT_ADDRESS);
        net.run();
        assert!(net.is_connected(CLIENT_ADDRESS, id));
    }
}

#[test]
fn a_failed_handshake_frees_its_address_and_keeps_its_error() {
    let provider = awslc();
    let stranger = Profile::builder(Arc::clone(&provider)).credentials(vec![]).build().unwrap();
    let server = ServerConfig::new(profile(&provider, Side::Server, KeyType::P256).build().unwrap()).unwrap();
    let key = |secret| Arc::new(Psk::new("d1", &[secret; 32]).unwrap());
    let table = PskTable::from_iter([Psk::new("d1", &[1; 32]).unwrap()]);
    let server = server.with_psks(PskSource::Here(Arc::new(table)));
    let wrong = ClientConfig::new(stranger).with_psks(vec![key(2)]);
    let configs = Configs::new(wrong, server).cookies(true);
    let mut net = Net::new(&configs, EndpointLimits::default());
    let id = net.connect(&configs, CLIENT_ADDRESS);
    net.run();
    let (_, served) = net.incoming[0];
    let error = net.server().association(served).unwrap().connection().error().cloned();
    assert!(error.is_some() && net.server().half_open() == 0, "{error:?}");
    net.at(CLIENT_ADDRESS).remove(NOW, id);
    net.run();
    assert_eq!(net.server().len(), 1, "until the caller removes it");
    net.server().remove(NOW, served);
    assert!(net.server().is_empty());
}

#[test]
fn questions_of_one_association_do_not_stop_the_others() {
    let mut configs = configs(ProtocolVersion::DTLS1_3);
    let chosen = Arc::new(configs.server.clone());
    configs.server = configs.server.with_profile_choice(true);
    let mut net = Net::new(&configs, EndpointLimits::default());
    net.connect(&configs, client(1));
    net.connect(&configs, client(2));
    net.run();
    let answer = |net: &mut Net, n: usize| {
        let (_, id) = net.incoming[n];
        let chosen = chosen.clone();
        net.server().update(id, |connection| {
            while let Some(event) = connection.poll_event() {
                if let Event::Question(question, Question::ChooseProfile(_)) = event {
                    connection.answer(NOW, question, Answer::Profile(Some(chosen.clone()))).unwrap();
                }
            }
        });
        net.run();
    };
    assert_eq!(net.server().half_open(), 2);
    answer(&mut net, 1);
    assert_eq!(net.served().len(), 1);
    answer(&mut net, 0);
    assert_eq!(net.served().len(), 2);
}

#[test]
fn a_client_without_a_common_suite_or_version_gets_an_alert() {
    let suites = |n: usize| vec![dunlin_awslc::provider().cipher_suites[n]];
    let [one, other] = [0, 1].map(|n| Configs::with(&awslc(), |profile| profile.cipher_suites(suites(n))));
    let [old, new] = VERSIONS.map(configs);
    let suite = (one.client, &other.server, AlertDescription::HANDSHAKE_FAILURE);
    let version = (new.client, &old.server, AlertDescription::PROTOCOL_VERSION);
    let cases = [false, true].into_iter().flat_map(|choice| [(choice, &suite), (choice, &version)]);
    for (choice, (client, server, alert)) in cases {
        let server = (*server).clone().with_profile_choice(choice);
        let configs = Configs::new(client.clone(), server).cookies(true);
        let mut net = Net::new(&configs, EndpointLimits::default());
        let id = net.connect(&configs, CLIENT_ADDRESS);
        net.run();
        assert!(net.server().is_empty());
        net.pass(Duration::from_secs(1));
        net.pass(Duration::from_secs(2));
        let error = net.at(CLIENT_ADDRESS).association(id).unwrap().connection().error().cloned();
        assert_eq!(error, Some(Error::AlertReceived(*alert)));
    }
}

#[test]
fn discards_what_belongs_to_no_association() {
    let configs = configs(ProtocolVersion::DTLS1_3);
    let mut net = Net::new(&configs, EndpointLimits::default());
    let mut lonely = Endpoint::new(EndpointLimits::default());
    for datagram in [&b""[..], &[22], &[0; 64], &[0xff; 1200]] {
        net.server().receive(NOW, CLIENT_ADDRESS, datagram);
    }
    assert_eq!(net.server().discarded().unknown, 4);
    net.connect(&configs, CLIENT_ADDRESS);
    let hello = net.at(CLIENT_ADDRESS).poll_transmit(NOW).unwrap().datagram;
    lonely.receive(NOW, CLIENT_ADDRESS, &hello);
    assert_eq!(lonely.discarded().unwanted, 1);
    assert!(lonely.poll_transmit(NOW).is_none() && net.server().poll_transmit(NOW).is_none());
    assert_eq!(lonely.poll_timeout(), None::<Instant>);
}
