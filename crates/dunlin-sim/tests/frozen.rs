//! Associations that continue after they were frozen.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::net::{Net, client};
use common::{Configs, OwnPair, close, connect, exchange, profile};
use dunlin::auth::{FindPsk, Psk, PskTable, RawKeyTrust, SubjectName};
use dunlin::error::{AuthenticationFailure, Error, Internal, Misuse, PeerMisbehaved};
use dunlin::places::GivesWay;
use dunlin::wire::ProtocolVersion;
use dunlin::{
    AssociationId, ClientAuth, ClientConfig, DtlsConnection, Ended, Endpoint, EndpointLimits, Negotiated,
    NodeIds, Now, PeerIdentity, Profile, ProfileBuilder, PskSource, ServerAddress, ServerConfig, Side, Trust,
};
use dunlin_awslc::tls12::TLS12_CIPHER_SUITES;
use dunlin_sim::SERVER_ADDRESS;
use dunlin_tests::{KeyType, Leaf, NOW, Pki, awslc, localhost};

const VERSIONS: [ProtocolVersion; 2] = [ProtocolVersion::DTLS1_2, ProtocolVersion::DTLS1_3];

fn configs(version: ProtocolVersion, has_ids: bool) -> Configs {
    let profile = |profile: ProfileBuilder| match version {
        ProtocolVersion::DTLS1_2 => {
            profile.cipher_suites(vec![]).tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec())
        }
        _ => profile,
    };
    let mut configs = Configs::with(&awslc(), profile);
    if has_ids {
        let ids = || Arc::new(NodeIds::new(&[], 4, awslc().random.clone()).unwrap());
        configs.client = configs.client.with_connection_ids(ids());
        configs.server = configs.server.with_connection_ids(ids());
    }
    configs
}

/// A pair that has connected and exchanged data.
fn connected(configs: &Configs) -> OwnPair {
    let mut pair = configs.pair();
    connect(&mut pair);
    exchange(&mut pair);
    pair
}

fn freeze(configs: &Configs, pair: &mut OwnPair, side: Side) -> Vec<u8> {
    let frozen = match side {
        Side::Client => pair.client.freeze(configs.now),
        Side::Server => pair.server.freeze(configs.now),
    };
    frozen.unwrap().to_vec()
}

fn thaw(configs: &Configs, side: Side, bytes: &[u8]) -> Result<DtlsConnection, Error> {
    match side {
        Side::Client => {
            DtlsConnection::thaw_client(&Arc::new(configs.client.clone()), localhost(), bytes, configs.now)
        }
        Side::Server => DtlsConnection::thaw_server(&Arc::new(configs.server.clone()), bytes, configs.now),
    }
}

fn replace(pair: &mut OwnPair, side: Side, connection: DtlsConnection) {
    *match side {
        Side::Client => &mut pair.client,
        Side::Server => &mut pair.server,
    } = connection;
}

#[test]
fn either_side_continues_after_it_was_frozen() {
    for version in VERSIONS {
        for has_ids in [false, true] {
            let configs = configs(version, has_ids);
            let mut pair = connected(&configs);
            for side in [Side::Server, Side::Client, Side::Server] {
                let frozen = freeze(&configs, &mut pair, side);
                replace(&mut pair, side, thaw(&configs, side, &frozen).unwrap());
                exchange(&mut pair);
                if version == ProtocolVersion::DTLS1_3 {
                    pair.client.update_keys(true).unwrap();
                    pair.run().unwrap();
                    exchange(&mut pair);
                    if has_ids {
                        pair.server.replace_connection_id().unwrap();
                        pair.client.request_connection_ids(1).unwrap();
                        pair.run().unwrap();
                        assert!(pair.client.use_spare_connection_id());
                        exchange(&mut pair);
                    }
                }
            }
            close(&mut pair);
        }
    }
}

/// The names and the fingerprint in the peer's identity. A frozen association does not contain the
/// certificate itself.
fn name(negotiated: &Negotiated) -> (&[SubjectName], &[u8; 32]) {
    match negotiated.peer.as_ref().unwrap() {
        PeerIdentity::X509(id) => (&id.names, &id.fingerprint),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_thawed_association_knows_its_peer_and_exports_the_same() {
    for version in VERSIONS {
        let configs = configs(version, true);
        let mut pair = connected(&configs);
        for side in [Side::Client, Side::Server] {
            let before = if side == Side::Client { &pair.client } else { &pair.server };
            let mut exported = [[0; 32]; 2];
            before.export(b"EXPERIMENTAL test", None, &mut exported[0]).unwrap();
            let known = before.negotiated().unwrap().clone();
            let ids: Vec<_> = before.connection_ids().map(<[u8]>::to_vec).collect();
            let frozen = freeze(&configs, &mut pair, side);
            let after = thaw(&configs, side, &frozen).unwrap();
            after.export(b"EXPERIMENTAL test", None, &mut exported[1]).unwrap();
            assert_eq!(exported[0], exported[1]);
            let thawed = after.negotiated().unwrap();
            assert_eq!(name(thawed), name(&known));
            assert_eq!(
                (thawed.version, thawed.cipher_suite, thawed.group, thawed.kind, &thawed.profile),
                (known.version, known.cipher_suite, known.group, known.kind, &known.profile)
            );
            assert_eq!(after.connection_ids().map(<[u8]>::to_vec).collect::<Vec<_>>(), ids);
            replace(&mut pair, side, after);
        }
    }
}

#[test]
fn a_frozen_association_sends_nothing_and_says_why() {
    for version in VERSIONS {
        let configs = configs(version, false);
        let mut pair = connected(&configs);
        pair.server.send(b"not transmitted yet").unwrap();
        let waits = Err(Error::Misuse(Misuse::FlightWaits));
        assert_eq!(pair.server.freeze(configs.now).map(drop), waits);
        pair.run().unwrap();
        freeze(&configs, &mut pair, Side::Server);
        let frozen = Err(Error::Misuse(Misuse::Frozen));
        let server = &mut pair.server;
        assert_eq!(server.send(b"late"), frozen);
        assert_eq!(server.freeze(configs.now).map(drop), frozen);
        server.close();
        assert_eq!((server.poll_transmit(configs.now), server.poll_timeout()), (None, None));
    }
}

/// The second line of defence. The first is a store that returns the bytes only once.
#[test]
fn a_thawed_association_uses_other_record_numbers_than_before() {
    let configs = configs(ProtocolVersion::DTLS1_2, false);
    let mut pair = connected(&configs);
    let frozen = freeze(&configs, &mut pair, Side::Server);
    let mut server = thaw(&configs, Side::Server, &frozen).unwrap();
    let before = pair.sent.iter().rfind(|sent| sent.by == Side::Server).unwrap().packet[5..11].to_vec();
    server.send(b"numbered").unwrap();
    let after = server.poll_transmit(configs.now).unwrap().datagram[5..11].to_vec();
    let number = |bytes: &[u8]| bytes.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    let skipped = number(&after) - number(&before);
    assert!((1 << 10..1 << 15).contains(&skipped), "{skipped}");
}

/// The peer finds a record's number by its lower 16 bits, so skips must not add up.
#[test]
fn an_association_may_rest_through_many_restarts() {
    for version in VERSIONS {
        let configs = configs(version, true);
        let mut pair = connected(&configs);
        for _ in 0..100 {
            let frozen = freeze(&configs, &mut pair, Side::Server);
            replace(&mut pair, Side::Server, thaw(&configs, Side::Server, &frozen).unwrap());
        }
        pair.server.send(b"awake").unwrap();
        pair.run().unwrap();
        assert_eq!(pair.client.read().as_deref(), Some(&b"awake"[..]), "{version}");
        exchange(&mut pair);
    }
}

/// How many record numbers of the present epoch were used, which 14 bytes before the end of a frozen
/// association say.
fn used(frozen: &[u8]) -> u64 {
    u64::from_be_bytes(frozen[frozen.len() - 14..][..8].try_into().unwrap())
}

/// The first number after a thaw counts as unused only in the epoch of the thaw.
#[test]
fn record_numbers_skip_ahead_after_a_key_update_too() {
    let configs = configs(ProtocolVersion::DTLS1_3, false);
    let mut pair = connected(&configs);
    let frozen = freeze(&configs, &mut pair, Side::Server);
    replace(&mut pair, Side::Server, thaw(&configs, Side::Server, &frozen).unwrap());
    let thawed_at = used(&frozen) + (1 << 10);
    pair.server.update_keys(false).unwrap();
    pair.run().unwrap();
    for _ in 0..thawed_at {
        pair.server.send(b"lost").unwrap();
        assert!(pair.server.poll_transmit(configs.now).is_some());
    }
    assert_eq!(used(&freeze(&configs, &mut pair, Side::Server)), thawed_at);
}

/// RFC 9147 §4.5.3: a restart gives a forger no further attempts at the same key.
#[test]
fn a_thawed_association_counts_the_forged_records_before_it_was_frozen() {
    const FORGED: u64 = 4660;
    for version in VERSIONS {
        let configs = configs(version, false);
        let mut pair = connected(&configs);
        let from = pair.server.peer_address();
        pair.client.send(b"changed on the way").unwrap();
        let mut forged = pair.client.poll_transmit(configs.now).unwrap().datagram;
        *forged.last_mut().unwrap() ^= 1;
        (0..FORGED).for_each(|_| pair.server.receive(configs.now, from, &forged).unwrap());
        assert_eq!(pair.server.discarded().unauthenticated, FORGED);
        let mut frozen = freeze(&configs, &mut pair, Side::Server);
        let count = FORGED.to_be_bytes();
        let at = frozen.windows(8).position(|window| window == count);
        let at = at.unwrap_or_else(|| panic!("{version}: the count is not kept"));
        // One below the limit of RFC 9147 §4.5.3 for AES-GCM and ChaCha20-Poly1305.
        frozen[at..at + 8].copy_from_slice(&((1_u64 << 36) - 1).to_be_bytes());
        let mut server = thaw(&configs, Side::Server, &frozen).unwrap();
        let end = server.receive(configs.now, from, &forged).unwrap_err();
        assert!(matches!(end, Error::PeerMisbehaved(PeerMisbehaved::Flood(_))), "{version}: {end}");
    }
}

/// The client repeats its KeyUpdate under the previous keys if the ACK got lost.
#[test]
fn a_thawed_association_still_has_the_keys_before_the_latest_key_update() {
    let configs = configs(ProtocolVersion::DTLS1_3, false);
    let mut pair = connected(&configs);
    let from = pair.server.peer_address();
    pair.client.update_keys(false).unwrap();
    let update = pair.client.poll_transmit(configs.now).unwrap().datagram;
    pair.server.receive(configs.now, from, &update).unwrap();
    // The ACK gets lost.
    assert!(pair.server.poll_transmit(configs.now).is_some());
    let frozen = freeze(&configs, &mut pair, Side::Server);
    replace(&mut pair, Side::Server, thaw(&configs, Side::Server, &frozen).unwrap());
    exchange(&mut pair);
    pair.client.update_keys(false).unwrap();
    pair.run().unwrap();
    exchange(&mut pair);
}

#[test]
fn replayed_records_stay_replayed() {
    for version in VERSIONS {
        let configs = configs(version, false);
        let mut pair = connected(&configs);
        let from = pair.server.peer_address();
        let record = pair.sent.iter().rfind(|sent| sent.by == Side::Client).unwrap().packet.clone();
        let frozen = freeze(&configs, &mut pair, Side::Server);
        let mut server = thaw(&configs, Side::Server, &frozen).unwrap();
        server.receive(configs.now, from, &record).unwrap();
        assert_eq!((server.read(), server.discarded().replayed), (None, 1), "{version}");
    }
}

/// A buffer that grows leaves an unwiped copy of the secrets behind, and then has twice the room.
#[test]
fn the_buffer_of_a_frozen_association_does_not_move_for_a_long_raw_key() {
    let pki = Pki::shared(KeyType::MlDsa44);
    let profile = |own: &Leaf, peer: &Leaf| {
        let trust = RawKeyTrust::Keys(vec![peer.public_key.clone()]);
        let builder = Profile::builder(awslc()).trust(Trust { x509: None, raw_key: Some(trust) });
        builder.credentials(vec![own.raw_key(&awslc())]).build().unwrap()
    };
    let configs = Configs::of(profile(&pki.client, &pki.server), profile(&pki.server, &pki.client));
    let mut pair = connected(&configs);
    let key = pki.client.public_key.len();
    let frozen = pair.server.freeze(configs.now).unwrap();
    let room = key + 1024..key + 1200;
    assert!(room.contains(&frozen.capacity()), "{} {}", frozen.len(), frozen.capacity());
}

#[test]
fn refuses_an_association_whose_peer_has_an_expired_certificate() {
    for (side, version) in [(Side::Client, VERSIONS[0]), (Side::Server, VERSIONS[1])] {
        let mut configs = configs(version, true);
        let mut pair = connected(&configs);
        let negotiated = match side {
            Side::Client => pair.client.negotiated(),
            Side::Server => pair.server.negotiated(),
        };
        let until_s = negotiated.unwrap().peer_validity.unwrap().until_s();
        let frozen = freeze(&configs, &mut pair, side);
        configs.now.unix_ms = (until_s + 1) * 1000;
        let refused = thaw(&configs, side, &frozen).map(drop);
        assert!(
            matches!(refused, Err(Error::Authentication(AuthenticationFailure::Expired(_)))),
            "{refused:?}"
        );
        configs.now.unix_ms = until_s * 1000;
        thaw(&configs, side, &frozen).unwrap();
    }
}

#[test]
fn an_association_freezes_only_between_handshakes_and_flights() {
    let configs = configs(ProtocolVersion::DTLS1_3, false);
    let mut pair = configs.pair();
    assert_eq!(pair.server.freeze(configs.now).map(drop), Err(Misuse::HandshakeNotComplete.into()));
    connect(&mut pair);
    pair.server.update_keys(false).unwrap();
    assert_eq!(pair.server.freeze(configs.now).map(drop), Err(Misuse::FlightWaits.into()));
    pair.run().unwrap();
    pair.client.close();
    pair.run().unwrap();
    assert_eq!(pair.server.freeze(configs.now).map(drop), Err(Misuse::SendClosed.into()));
}

#[test]
fn refuses_bytes_that_are_cut_changed_or_of_another_owner() {
    for version in VERSIONS {
        let configs = configs(version, true);
        let mut pair = connected(&configs);
        let frozen = freeze(&configs, &mut pair, Side::Server);
        for len in 0..frozen.len() {
            assert!(thaw(&configs, Side::Server, &frozen[..len]).is_err(), "{version} {len}");
        }
        assert!(thaw(&configs, Side::Server, &[&frozen[..], &[0]].concat()).is_err());
        assert!(thaw(&configs, Side::Client, &frozen).is_err());
        // The bytes are not authentic by themselves: a changed one may be accepted, but it breaks nothing
        // else.
        for i in 0..frozen.len() {
            let mut changed = frozen.clone();
            changed[i] ^= 0x81;
            if let Ok(mut server) = thaw(&configs, Side::Server, &changed) {
                let _ = server.send(b"changed");
                while server.poll_transmit(configs.now).is_some() {}
            }
        }
        // Under other trust the engine would not have accepted this client.
        let other = profile(&awslc(), Side::Server, KeyType::Ed25519).build().unwrap();
        let other = Configs::of(profile(&awslc(), Side::Client, KeyType::Ed25519).build().unwrap(), other);
        let refused = thaw(&other, Side::Server, &frozen).map(drop);
        assert_eq!(refused, Err(Error::Misuse(Misuse::OtherSettings)));
    }
}

#[test]
fn a_client_does_not_thaw_an_association_with_another_server() {
    for version in VERSIONS {
        let configs = configs(version, true);
        let mut pair = connected(&configs);
        let frozen = freeze(&configs, &mut pair, Side::Client);
        let client = Arc::new(configs.client.clone());
        let thaw = |name| {
            let server = ServerAddress::parse(name, 1).unwrap();
            DtlsConnection::thaw_client(&client, server, &frozen, configs.now).map(drop)
        };
        assert_eq!(thaw("other.example"), Err(Error::Misuse(Misuse::OtherSettings)), "{version}");
        assert_eq!(thaw("localhost"), Ok(()), "{version}");
    }
}

#[test]
fn a_client_does_not_thaw_an_association_with_a_key_that_it_has_no_longer() {
    let psk = |key: u8| Psk::new("sensor", &[key; 16]).unwrap();
    for version in VERSIONS {
        let profile = || match version {
            ProtocolVersion::DTLS1_2 => Profile::builder(awslc())
                .cipher_suites(vec![])
                .tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec()),
            _ => Profile::builder(awslc()),
        };
        let client = |keys: &[u8]| {
            let keys = keys.iter().map(|key| Arc::new(psk(*key))).collect();
            ClientConfig::psk_only(profile().build().unwrap(), keys).unwrap()
        };
        let keys: PskTable = [psk(1)].into_iter().collect();
        let server =
            ServerConfig::psk_only(profile().build().unwrap(), PskSource::Here(Arc::new(keys))).unwrap();
        let mut configs = Configs::new(client(&[1]), server);
        let mut pair = connected(&configs);
        let frozen = freeze(&configs, &mut pair, Side::Client);
        // The same identity with another key is another proof.
        configs.client = client(&[2]);
        let refused = thaw(&configs, Side::Client, &frozen).map(drop);
        assert_eq!(refused, Err(Error::Misuse(Misuse::OtherSettings)), "{version}");
        configs.client = client(&[2, 1]);
        replace(&mut pair, Side::Client, thaw(&configs, Side::Client, &frozen).unwrap());
        exchange(&mut pair);
    }
}

/// As after a change of the key file.
#[test]
fn a_server_thaws_no_association_whose_key_was_removed_or_replaced() {
    let psk = |identity: &str, key: u8, name: &str| Psk::new(identity, &[key; 16]).unwrap().with_name(name);
    let profile = |version| {
        let builder = match version {
            ProtocolVersion::DTLS1_2 => Profile::builder(awslc())
                .cipher_suites(vec![])
                .tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec()),
            _ => Profile::builder(awslc()),
        };
        builder.build().unwrap()
    };
    let server = |version, keys: Option<Vec<Psk>>| {
        let keys = keys.map(|keys| PskSource::Here(Arc::new(keys.into_iter().collect::<PskTable>())));
        ServerConfig::psk_only(profile(version), keys.unwrap_or(PskSource::Ask)).unwrap()
    };
    for version in VERSIONS {
        let own = Arc::new(psk("sensor", 1, "meter"));
        let client = ClientConfig::psk_only(profile(version), vec![own]).unwrap();
        let mut configs = Configs::new(client, server(version, Some(vec![psk("sensor", 1, "meter")])));
        let frozen = freeze(&configs, &mut connected(&configs), Side::Server);
        for keys in [vec![], vec![psk("sensor", 2, "meter")], vec![psk("sensor-2", 1, "meter")]] {
            configs.server = server(version, Some(keys));
            let refused = thaw(&configs, Side::Server, &frozen).map(drop);
            assert!(
                matches!(refused, Err(Error::Authentication(AuthenticationFailure::Rejected(_)))),
                "{version}: {refused:?}"
            );
        }
        // The key is the same, and belongs to another device now. A caller that keeps the keys knows itself.
        for (keys, device) in [(Some(vec![psk("sensor", 1, "lamp")]), "lamp"), (None, "meter")] {
            configs.server = server(version, keys);
            let thawed = thaw(&configs, Side::Server, &frozen).unwrap();
            let Some(PeerIdentity::Psk(psk)) = &thawed.negotiated().unwrap().peer else { panic!("no PSK") };
            assert_eq!(psk.name.as_deref(), Some(device), "{version}");
        }
    }
}

/// Its keys cannot be read.
struct Unreadable;

impl FindPsk for Unreadable {
    fn find(&self, _: &[u8], _: Now) -> Option<Arc<Psk>> {
        None
    }

    fn find_for_thaw(&self, _: &[u8], _: Now) -> Result<Option<Arc<Psk>>, Error> {
        Err(Internal::QuestionFailed.into())
    }
}

/// Other settings, or the same ones later, can bring the association back.
#[test]
fn a_server_without_its_keys_says_nothing_about_the_client_of_a_frozen_association() {
    let psk = || Psk::new("sensor", &[1; 16]).unwrap();
    for version in VERSIONS {
        let built = |profile: ProfileBuilder| match version {
            ProtocolVersion::DTLS1_2 => profile
                .cipher_suites(vec![])
                .tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec())
                .build()
                .unwrap(),
            _ => profile.build().unwrap(),
        };
        let client = ClientConfig::psk_only(built(Profile::builder(awslc())), vec![Arc::new(psk())]).unwrap();
        let own = Pki::shared(KeyType::Ed25519).server.x509(&awslc());
        let without = ServerConfig::new(built(Profile::builder(awslc()).credentials(vec![own]))).unwrap();
        let with = |keys: Arc<dyn FindPsk>| without.clone().with_psks(PskSource::Here(keys));
        let mut configs = Configs::new(client, with(Arc::new(PskTable::from_iter([psk()]))));
        let frozen = freeze(&configs, &mut connected(&configs), Side::Server);
        for (server, why) in [
            (without.clone(), Misuse::OtherSettings.into()),
            (with(Arc::new(Unreadable)), Internal::QuestionFailed.into()),
        ] {
            configs.server = server;
            assert_eq!(thaw(&configs, Side::Server, &frozen).map(drop), Err(why), "{version}");
        }
    }
}

/// Another process thaws what the server has frozen. `now` is its time: its monotonic clock starts anew.
fn restart(net: &mut Net, configs: &Configs, limits: EndpointLimits, now: Now) -> Vec<AssociationId> {
    let then = net.now;
    let mut before = net.endpoints.remove(&SERVER_ADDRESS).unwrap();
    before.set_server(None);
    let ids: Vec<_> = before.associations().collect();
    let frozen: Vec<_> = ids.iter().map(|id| before.freeze(then, *id).unwrap().unwrap()).collect();
    for id in ids {
        let again = before.freeze(then, id).unwrap();
        assert_eq!(again.map(drop), Err(Misuse::Frozen.into()));
        before.remove(then, id);
    }
    assert_eq!((before.poll_transmit(then), before.len()), (None, 0), "nothing is sent any more");
    let config = Arc::new(configs.server.clone());
    let mut after = Endpoint::new(limits);
    let thaw = |bytes: &[u8]| DtlsConnection::thaw_server(&config, bytes, now).unwrap();
    let adopted = frozen.iter().map(|bytes| after.adopt(now, thaw(bytes)).unwrap()).collect();
    net.endpoints.insert(SERVER_ADDRESS, after);
    net.now = now;
    adopted
}

#[test]
fn an_endpoint_continues_the_associations_of_another() {
    for version in VERSIONS {
        for has_ids in [false, true] {
            let configs = configs(version, has_ids).cookies(true);
            let mut net = Net::new(&configs, EndpointLimits::default());
            let clients = [1, 2, 3].map(|n| (client(n), net.connect(&configs, client(n))));
            net.run();
            // In DTLS 1.2 only data shows that the client has received the server's Finished.
            clients.into_iter().for_each(|(address, id)| net.send(address, id, b"before"));
            let now = Now { monotonic: dunlin::Instant(5), unix_ms: NOW.unix_ms + 1000 };
            let served = restart(&mut net, &configs, EndpointLimits::default(), now);
            assert_eq!((served.len(), net.server().half_open()), (3, 0));
            // A client with a connection ID may have moved meanwhile.
            let moved = client(99);
            let (address, id) = clients[2];
            let from = if has_ids { moved } else { address };
            net.at(address).update(id, |connection| connection.send(b"3")).unwrap().unwrap();
            let sent = net.at(address).poll_transmit(now).unwrap().datagram;
            net.server().receive(now, from, &sent);
            assert_eq!(net.read(SERVER_ADDRESS, served[2]).as_deref(), Some(&b"3"[..]), "{version}");
            for (n, (address, id)) in clients.into_iter().enumerate().take(2) {
                net.send(address, id, &[n as u8; 9]);
                assert_eq!(net.read(SERVER_ADDRESS, served[n]).unwrap(), [n as u8; 9], "{version}");
                net.send(SERVER_ADDRESS, served[n], b"answer");
                assert_eq!(net.read(address, id).as_deref(), Some(&b"answer"[..]), "{version}");
            }
            assert_eq!(net.server().discarded(), Default::default());
        }
    }
}

/// A restart does not give silent peers more time.
#[test]
fn the_time_in_which_an_association_is_frozen_counts_as_silence() {
    let configs = configs(ProtocolVersion::DTLS1_3, true);
    let mut limits = EndpointLimits::default();
    limits.idle = Some(Duration::from_secs(600));
    let mut net = Net::new(&configs, limits);
    let ids = [1, 2].map(|n| net.connect(&configs, client(n)));
    net.run();
    net.pass(Duration::from_secs(200));
    let now = Now { monotonic: dunlin::Instant(0), unix_ms: NOW.unix_ms + 300_000 };
    // 200 s by the first process's clock were before.
    net.now.unix_ms += 200_000;
    let first = restart(&mut net, &configs, limits, now);
    assert_eq!(first.len(), 2);
    net.pass(Duration::from_secs(50));
    net.now.unix_ms += 50_000;
    // Twice: 400 s of silence now.
    let now = Now { monotonic: dunlin::Instant(0), unix_ms: NOW.unix_ms + 400_000 };
    let served = restart(&mut net, &configs, limits, now);
    net.send(client(1), ids[0], b"here");
    let ended = |net: &mut Net, id| net.server().association(id).unwrap().ended();
    net.pass(Duration::from_secs(199));
    assert_eq!(served.iter().map(|id| ended(&mut net, *id)).collect::<Vec<_>>(), [None, None]);
    net.pass(Duration::from_secs(1));
    assert_eq!(served.iter().map(|id| ended(&mut net, *id)).collect::<Vec<_>>(), [None, Some(Ended::Idle)]);
    let ended_one = served[1];
    assert_eq!(net.server().freeze(now, ended_one).unwrap().map(drop), Err(Misuse::SendClosed.into()));
}

/// The clock of the next process begins at zero, but its associations have been silent for longer.
#[test]
fn new_clients_displace_stale_associations_right_after_a_restart() {
    let mut configs = configs(ProtocolVersion::DTLS1_3, true).cookies(true);
    configs.server = configs.server.with_client_auth(ClientAuth::None).unwrap();
    let mut limits = EndpointLimits::default();
    (limits.associations, limits.stale) = (2, Some(Duration::from_secs(1800)));
    let mut net = Net::new(&configs, limits);
    let ids = [1, 2].map(|n| net.connect(&configs, client(n)));
    net.run();
    net.pass(Duration::from_secs(1000));
    net.send(client(1), ids[0], b"still here");
    net.pass(Duration::from_secs(2000));
    net.now.unix_ms += 3_000_000;
    let now = Now { monotonic: dunlin::Instant(0), unix_ms: net.now.unix_ms };
    let served = restart(&mut net, &configs, limits, now);
    net.server().set_server(Some(Arc::new(configs.server.clone())));
    net.connect(&configs, client(3));
    net.run();
    let ended: Vec<_> = served.iter().map(|id| net.server().association(*id).unwrap().ended()).collect();
    assert_eq!(ended, [None, Some(Ended::GaveWay(GivesWay::Silent))], "the one that was silent for longest");
}

/// The client's random stays behind when an association is frozen.
#[test]
fn a_client_hello_with_a_random_of_zeros_begins_a_new_handshake_after_a_restart() {
    for version in VERSIONS {
        let configs = configs(version, true).cookies(true);
        let mut net = Net::new(&configs, EndpointLimits::default());
        let id = net.connect(&configs, client(1));
        net.run();
        net.send(client(1), id, b"before");
        let mut hello = net.sent.first().unwrap().2.clone();
        let now = net.now;
        restart(&mut net, &configs, EndpointLimits::default(), now);
        net.server().set_server(Some(Arc::new(configs.server.clone())));
        hello[27..59].fill(0);
        net.server().receive(now, client(1), &hello);
        assert!(net.server().poll_transmit(now).is_some(), "{version}: a demand for a cookie");
    }
}

#[test]
fn an_endpoint_refuses_what_it_has_no_place_for() {
    let configs = configs(ProtocolVersion::DTLS1_3, false);
    let mut net = Net::new(&configs, EndpointLimits::default());
    let ids = [1, 2].map(|n| net.connect(&configs, client(n)));
    net.run();
    let now = net.now;
    let config = Arc::new(configs.server.clone());
    let frozen: Vec<_> = {
        let server = net.server();
        let ids: Vec<_> = server.associations().collect();
        ids.iter().map(|id| server.freeze(now, *id).unwrap().unwrap()).collect()
    };
    let thaw = |n: usize| DtlsConnection::thaw_server(&config, &frozen[n], now).unwrap();
    let mut limits = EndpointLimits::default();
    limits.associations = 1;
    let mut server = Endpoint::new(limits);
    assert_eq!(server.adopt(now, configs.server()), Err(Misuse::HandshakeNotComplete.into()));
    server.adopt(now, thaw(0)).unwrap();
    // Without an ID, records to the second one could not be told apart; the place is taken, too.
    assert_eq!(server.adopt(now, thaw(1)), Err(Misuse::EndpointFull.into()));
    net.endpoints.insert(SERVER_ADDRESS, server);
    net.run();
    // The client of the refused one knows that it has to connect again.
    let mut closed = ids
        .into_iter()
        .zip([1, 2])
        .map(|(id, n)| net.at(client(n)).association(id).unwrap().connection().peer_has_closed());
    assert_ne!(closed.next(), closed.next());
    // Thawing twice is wrong, of course; the address is what counts here.
    let mut server = Endpoint::new(EndpointLimits::default());
    server.adopt(now, thaw(0)).unwrap();
    assert_eq!(server.adopt(now, thaw(0)), Err(Misuse::AddressInUse.into()));
}
