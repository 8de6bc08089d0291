//! Endpoints: many associations on one socket.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::net::{Net, client};
use common::{Configs, VERSIONS};
use dunlin::error::{Error, Misuse};
use dunlin::wire::{AlertDescription, ProtocolVersion};
use dunlin::{
    Answer, AssociationId, ConnectionIds, Ended, Endpoint, EndpointLimits, Event, Instant, Local, Migration,
    NodeIds, Now, Path, Question,
};
use dunlin_sim::{CLIENT_ADDRESS, SERVER_ADDRESS};
use dunlin_tests::{NOW, awslc, localhost};

#[test]
fn serves_many_clients_on_one_socket() {
    for version in VERSIONS {
        let configs = Configs::of_version(version);
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
    let configs = Configs::of_version(ProtocolVersion::DTLS1_3);
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
        let configs = Configs::of_version(version);
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
        let configs = Configs::of_version(version);
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
        assert!(new != old && net.server().association(old).unwrap().ended() == Some(Ended::Superseded));
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
        let configs = Configs::of_version(version);
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
        let configs = Configs::of_version(version);
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
        let configs = Configs::of_version(version).mtu(120);
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
    let configs = Configs::of_version(ProtocolVersion::DTLS1_3).mtu(120);
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

/// The rest of a ClientHello may be lost, and most fragments that anyone can send have none.
#[test]
fn an_incomplete_client_hello_is_dropped_by_a_timer() {
    let mut net = Net::new(&Configs::of_version(ProtocolVersion::DTLS1_3), EndpointLimits::default());
    let at = |seconds| Now { monotonic: NOW.monotonic + Duration::from_secs(seconds), ..NOW };
    let server = net.server();
    for n in 1..=3 {
        server.receive(at(10 * u64::from(n)), client(n), &forged_fragment(7, 0, 40));
    }
    for (seconds, dropped) in [(252, 0), (253, 1), (262, 1), (273, 3)] {
        server.handle_timeout(at(seconds));
        assert_eq!(server.discarded().partial, dropped, "{seconds}");
        let next = [253, 263].into_iter().find(|at| *at > seconds).filter(|_| dropped < 3);
        assert_eq!(server.poll_timeout(), next.map(|seconds| at(seconds).monotonic));
    }
}

/// A forged fragment of another ClientHello, which the server keeps, does not keep it from repeating its
/// flight.
#[test]
fn answers_a_repeated_client_hello_in_fragments_beside_a_forged_fragment() {
    for version in VERSIONS {
        let configs = Configs::of_version(version).mtu(120);
        let mut net = Net::new(&configs, EndpointLimits::default());
        let id = net.connect(&configs, CLIENT_ADDRESS);
        let mut fragments = Vec::new();
        for _ in 0..2 {
            let endpoint = net.at(CLIENT_ADDRESS);
            fragments = std::iter::from_fn(|| endpoint.poll_transmit(NOW)).map(|t| t.datagram).collect();
            fragments.iter().for_each(|fragment| net.server().receive(NOW, CLIENT_ADDRESS, fragment));
            if net.server().half_open() == 0 {
                while let Some(answer) = net.server().poll_transmit(NOW) {
                    net.at(CLIENT_ADDRESS).receive(NOW, SERVER_ADDRESS, &answer.datagram);
                }
            }
        }
        assert!(fragments.len() > 1 && net.server().half_open() == 1, "{version}");
        // The network loses the server's flight.
        let server = net.server();
        assert!(std::iter::from_fn(|| server.poll_transmit(NOW)).count() > 1);
        server.receive(NOW, CLIENT_ADDRESS, &forged_fragment(7, 0, 40));
        fragments.iter().for_each(|fragment| server.receive(NOW, CLIENT_ADDRESS, fragment));
        net.run();
        assert!(net.is_connected(CLIENT_ADDRESS, id), "{version}");
    }
}

/// An unprotected fragment of a ClientHello of 300 bytes.
fn forged_fragment(random: u8, offset: u8, len: u8) -> Vec<u8> {
    let header = [22, 0xfe, 0xfd, 0, 0, 0, 0, 0, 0, 0, 9, 0, 12 + len];
    let fragment = [1, 0, 1, 44, 0, 0, 0, 0, offset, 0, 0, len];
    [&header[..], &fragment, &vec![random; len.into()]].concat()
}

/// Forgers can pretend to send from many addresses, or from the client's.
#[test]
fn forged_fragments_do_not_flush_incomplete_client_hellos() {
    for version in VERSIONS {
        let configs = Configs::of_version(version).mtu(120);
        let mut net = Net::new(&configs, EndpointLimits::default());
        net.connect(&configs, CLIENT_ADDRESS);
        let endpoint = net.at(CLIENT_ADDRESS);
        let fragments: Vec<_> = std::iter::from_fn(|| endpoint.poll_transmit(NOW)).collect();
        assert!(fragments.len() > 1);
        for (i, fragment) in fragments.iter().enumerate() {
            net.server().receive(NOW, CLIENT_ADDRESS, &fragment.datagram);
            for n in 1..=200 {
                net.server().receive(NOW, client(n), &forged_fragment(7, 0, 40));
                net.server().receive(NOW, CLIENT_ADDRESS, &forged_fragment(n as u8, 0, 40));
            }
            // A whole ClientHello that does not parse.
            let mut whole = forged_fragment(3, 0, 40);
            whole[14..17].copy_from_slice(&[0, 0, 40]);
            net.server().receive(NOW, CLIENT_ADDRESS, &whole);
            let answer = net.server().poll_transmit(NOW);
            assert_eq!(answer.is_some(), i + 1 == fragments.len(), "{version} {i}");
        }
        assert!(net.server().discarded().partial > 0);
    }
}

#[test]
fn timers_of_all_associations_expire() {
    for version in VERSIONS {
        let configs = Configs::of_version(version);
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
        let configs = Configs::of_version(version);
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
fn the_flow_label_is_no_part_of_an_address() {
    let with = |flow| Path {
        local: Local::default(),
        source: None,
        peer: SocketAddrV6::new(Ipv6Addr::LOCALHOST, 40_000, flow, 0).into(),
    };
    for version in VERSIONS {
        let configs = Configs::of_version(version);
        let mut client = Endpoint::new(EndpointLimits::default());
        let mut server = Endpoint::new(EndpointLimits::default());
        server.set_server(Some(Arc::new(configs.server.clone())));
        let config = Arc::new(configs.client.clone());
        let id = client.connect(&config, localhost(), with(7), NOW).unwrap();
        let again = client.connect(&config, localhost(), with(8), NOW);
        assert_eq!(again, Err(Error::Misuse(Misuse::AddressInUse)));
        for flow in 1..20 {
            while let Some(sent) = client.poll_transmit(NOW) {
                server.receive(NOW, with(flow), &sent.datagram);
            }
            while let Some(sent) = server.poll_transmit(NOW) {
                client.receive(NOW, with(flow), &sent.datagram);
            }
        }
        let connection = client.association(id).unwrap().connection();
        assert!(connection.negotiated().is_some(), "{version}");
        assert_eq!((client.discarded(), server.len()), (Default::default(), 1), "{version}");
        client.remove(NOW, id);
        assert!(client.connect(&config, localhost(), with(9), NOW).is_ok(), "{version}");
    }
}

#[test]
fn questions_of_one_association_do_not_stop_the_others() {
    let mut configs = Configs::of_version(ProtocolVersion::DTLS1_3);
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
    let [old, new] = VERSIONS.map(Configs::of_version);
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
    let configs = Configs::of_version(ProtocolVersion::DTLS1_3);
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

fn ids(node: &[u8], len: usize) -> Arc<dyn ConnectionIds> {
    Arc::new(NodeIds::new(node, len, awslc().random.clone()).unwrap())
}

/// Configurations with connection IDs of different lengths.
fn with_ids(version: ProtocolVersion) -> Configs {
    let mut configs = Configs::of_version(version);
    configs.client = configs.client.with_connection_ids(ids(&[], 5));
    configs.server = configs.server.with_connection_ids(ids(b"n7", 8)).with_migration(Migration::never());
    configs
}

/// The next datagram of an association with this data.
fn datagram(net: &mut Net, at: SocketAddr, id: AssociationId, data: &[u8]) -> Vec<u8> {
    net.at(at).update(id, |connection| connection.send(data)).unwrap().unwrap();
    net.at(at).poll_transmit(NOW).unwrap().datagram
}

/// RFC 9146 §6: records are delivered. Without migration, the answers go to the address that the handshake
/// has proven.
#[test]
fn finds_an_association_by_its_connection_id_from_any_address() {
    for version in VERSIONS {
        let configs = with_ids(version);
        let mut net = Net::new(&configs, EndpointLimits::default());
        let clients = [1, 2].map(|n| (client(n), net.connect(&configs, client(n))));
        net.run();
        let served = net.served();
        for (n, (address, id)) in clients.into_iter().enumerate() {
            // Even from the address of another association.
            let there = clients[1 - n].0;
            let sent = datagram(&mut net, address, id, b"moved");
            net.server().receive(NOW, there, &sent);
            assert_eq!(net.read(SERVER_ADDRESS, served[n]).as_deref(), Some(&b"moved"[..]), "{version}");
            assert_eq!(net.read(SERVER_ADDRESS, served[1 - n]), None);
            let association = net.server().association(served[n]).unwrap();
            assert_eq!(association.connection().peer_address(), address);
            assert_eq!(association.connection().discarded(), Default::default());
            // The same record again, and a damaged one.
            net.server().receive(NOW, there, &sent);
            let mut damaged = datagram(&mut net, address, id, b"damaged");
            *damaged.last_mut().unwrap() ^= 1;
            net.server().receive(NOW, there, &damaged);
            let discarded = net.server().association(served[n]).unwrap().connection().discarded();
            assert_eq!((discarded.replayed, discarded.unauthenticated), (1, 1), "{version}");
            net.send(SERVER_ADDRESS, served[n], b"answer");
            assert_eq!(net.read(address, id).as_deref(), Some(&b"answer"[..]));
        }
        // The client finds its server in the same way.
        let answer = datagram(&mut net, SERVER_ADDRESS, served[0], b"from elsewhere");
        net.at(client(1)).receive(NOW, client(9), &answer);
        assert_eq!(net.read(client(1), clients[0].1).as_deref(), Some(&b"from elsewhere"[..]));
        // An association that is gone is not found any more.
        let late = datagram(&mut net, client(1), clients[0].1, b"late");
        net.server().remove(NOW, served[0]);
        let before = net.server().discarded().unknown;
        net.server().receive(NOW, client(3), &late);
        assert_eq!(net.server().discarded().unknown, before + 1);
    }
}

/// Records without an ID, and those before the keys, could come from anyone.
#[test]
fn takes_only_protected_records_with_an_id_from_elsewhere() {
    let cases = VERSIONS.into_iter().flat_map(|version| [(version, false), (version, true)]);
    for (version, with_id) in cases {
        let configs = if with_id { with_ids(version) } else { Configs::of_version(version) };
        let mut net = Net::new(&configs, EndpointLimits::default());
        let id = net.connect(&configs, client(1));
        net.run();
        let [served] = net.served()[..] else { panic!("one client") };
        let sent = datagram(&mut net, client(1), id, b"moved");
        let now = net.now;
        let mut outcome = None;
        net.server().update(served, |connection| {
            // A fatal alert in the clear.
            connection.receive(now, client(2), &[21, 254, 253, 0, 0, 0, 0, 0, 0, 0, 9, 0, 2, 2, 40]).unwrap();
            connection.receive(now, client(2), &sent).unwrap();
            outcome = Some((connection.read().is_some(), connection.discarded().other_address));
        });
        assert_eq!(outcome, Some((with_id, if with_id { 0 } else { 2 })), "{version}");
        assert!(net.is_connected(SERVER_ADDRESS, served));
    }
}

#[test]
fn finds_an_association_by_an_id_that_it_gave_later() {
    let configs = with_ids(ProtocolVersion::DTLS1_3);
    let mut net = Net::new(&configs, EndpointLimits::default());
    let id = net.connect(&configs, client(1));
    net.run();
    let [served] = net.served()[..] else { panic!("one client") };
    let first = datagram(&mut net, client(1), id, b"first ID");
    for _ in 0..5 {
        net.at(client(1)).update(id, |connection| connection.request_connection_ids(4)).unwrap().unwrap();
        net.run();
        assert!(net.at(client(1)).update(id, |connection| connection.use_spare_connection_id()).unwrap());
        let sent = datagram(&mut net, client(1), id, b"new ID");
        assert_ne!(sent[1..9], first[1..9]);
        assert_eq!(sent[1..3], *b"n7");
        net.server().receive(NOW, client(2), &sent);
        assert_eq!(net.read(SERVER_ADDRESS, served).as_deref(), Some(&b"new ID"[..]));
    }
    // The server has dropped the first ID in favour of newer ones.
    net.server().receive(NOW, client(2), &first);
    assert_eq!(net.server().discarded().unknown, 1);
}

/// Issues these IDs, the last one first.
#[derive(Debug)]
struct Listed(Mutex<Vec<u8>>);

impl ConnectionIds for Listed {
    fn id_len(&self) -> usize {
        1
    }

    fn issue(&self) -> Result<Vec<u8>, Error> {
        Ok(vec![self.0.lock().unwrap().pop().unwrap()])
    }
}

#[test]
fn gives_no_client_the_id_of_another() {
    for version in VERSIONS {
        let mut configs = with_ids(version);
        configs.server = configs.server.with_connection_ids(Arc::new(Listed(vec![8, 7, 7].into())));
        let mut net = Net::new(&configs, EndpointLimits::default());
        let one = net.connect(&configs, client(1));
        net.run();
        let two = net.connect(&configs, client(2));
        net.run();
        assert_eq!((net.server().len(), net.server().discarded().full), (1, 1));
        net.pass(Duration::from_secs(1));
        for (n, id) in [(1, one), (2, two)] {
            assert!(net.is_connected(client(n), id), "{version}");
            let sent = datagram(&mut net, client(n), id, &[n as u8]);
            net.server().receive(NOW, client(9), &sent);
        }
        let served = net.served();
        assert_eq!([0, 1].map(|n| net.read(SERVER_ADDRESS, served[n])), [Some(vec![1]), Some(vec![2])]);
    }
}

/// The address of an association that has moved is free, and a new client at its new address supersedes it.
#[test]
fn files_an_association_that_has_moved_under_its_new_address() {
    for version in VERSIONS {
        let mut configs = with_ids(version);
        configs.server = configs.server.with_migration(Migration::default());
        let mut net = Net::new(&configs, EndpointLimits::default());
        let id = net.connect(&configs, client(1));
        net.run();
        let [served] = net.served()[..] else { panic!("one client") };
        let moved = net.endpoints.remove(&client(1)).unwrap();
        net.endpoints.insert(client(2), moved);
        net.send(client(2), id, b"moved");
        // The old address does not answer, so the check takes its time.
        for _ in 0..9 {
            net.pass(Duration::from_millis(500));
        }
        let address = |net: &mut Net| net.server().association(served).unwrap().connection().peer_address();
        assert_eq!(address(&mut net), client(2), "{version}");
        net.send(SERVER_ADDRESS, served, b"welcome");
        assert_eq!(net.read(client(2), id).as_deref(), Some(&b"welcome"[..]));
        let other = net.connect(&configs, client(1));
        net.run();
        assert!(net.is_connected(client(1), other));
        assert_eq!(net.served().len(), 2, "{version}: nothing was superseded");
        net.endpoints.remove(&client(2));
        let again = net.connect(&configs, client(2));
        net.run();
        assert!(net.is_connected(client(2), again));
        assert_eq!(net.server().association(served).unwrap().ended(), Some(Ended::Superseded));
        for (_, id) in net.incoming.clone() {
            net.server().remove(NOW, id);
        }
        assert!(net.server().is_empty());
    }
}

/// An idle association drops its expanded keys, and makes them again for the next record.
#[test]
fn an_association_goes_on_after_a_rest() {
    for version in VERSIONS {
        let configs = Configs::of_version(version);
        let mut net = Net::new(&configs, EndpointLimits::default());
        let id = net.connect(&configs, CLIENT_ADDRESS);
        net.run();
        let [served] = net.served()[..] else { panic!("one client") };
        let replayed = datagram(&mut net, CLIENT_ADDRESS, id, b"first");
        net.server().receive(NOW, CLIENT_ADDRESS, &replayed);
        assert!(net.read(SERVER_ADDRESS, served).is_some());
        for n in 0..6 {
            // The keys of the handshake expire, too.
            net.pass(Duration::from_secs(100));
            let now = net.now;
            net.server().receive(now, CLIENT_ADDRESS, &replayed);
            let (from, to) = if n % 2 == 0 {
                ((CLIENT_ADDRESS, id), (SERVER_ADDRESS, served))
            } else {
                ((SERVER_ADDRESS, served), (CLIENT_ADDRESS, id))
            };
            assert!(net.server().association(served).unwrap().connection().max_data() > 1000);
            net.send(from.0, from.1, b"still here");
            assert_eq!(net.read(to.0, to.1).as_deref(), Some(&b"still here"[..]), "{version}");
        }
        let discarded = net.server().association(served).unwrap().connection().discarded();
        assert_eq!((discarded.replayed, discarded.unauthenticated), (6, 0));
    }
}

/// One association with much output does not delay the others.
#[test]
fn associations_take_turns_to_transmit() {
    let configs = Configs::of_version(ProtocolVersion::DTLS1_3);
    let mut net = Net::new(&configs, EndpointLimits::default());
    for n in 1..=3 {
        net.connect(&configs, client(n));
    }
    net.run();
    for served in net.served() {
        (0..20).for_each(|_| {
            net.server().update(served, |connection| connection.send(b"data")).unwrap().unwrap();
        });
    }
    let order: Vec<_> = std::iter::from_fn(|| net.server().poll_transmit(NOW)).map(|t| t.to.port()).collect();
    assert_eq!(order.len(), 60);
    assert!(order.chunks(3).all(|turn| turn.iter().sum::<u16>() == 6), "{order:?}");
}
