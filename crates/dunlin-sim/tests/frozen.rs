//! Associations that continue after they were frozen.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::sync::Arc;

use common::{Configs, OwnPair, close, connect, exchange, profile};
use dunlin::auth::SubjectName;
use dunlin::error::{Error, Misuse};
use dunlin::wire::ProtocolVersion;
use dunlin::{DtlsConnection, Negotiated, NodeIds, PeerIdentity, ProfileBuilder, Side};
use dunlin_awslc::tls12::TLS12_CIPHER_SUITES;
use dunlin_tests::{KeyType, awslc, localhost};

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
        Side::Client => pair.client.freeze(configs.client.session_settings()),
        Side::Server => pair.server.freeze(configs.server.session_settings()),
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

/// What the peer's certificate says. A frozen association leaves the certificate itself behind.
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
        assert_eq!(pair.server.freeze(configs.server.session_settings()).map(drop), waits);
        pair.run().unwrap();
        freeze(&configs, &mut pair, Side::Server);
        let frozen = Err(Error::Misuse(Misuse::Frozen));
        let server = &mut pair.server;
        assert_eq!(server.send(b"late"), frozen);
        assert_eq!(server.freeze(configs.server.session_settings()).map(drop), frozen);
        server.close();
        assert_eq!((server.poll_transmit(configs.now), server.poll_timeout()), (None, None));
    }
}

/// The second line of defence; the first is that whoever stores the bytes lets nobody read them twice.
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

#[test]
fn an_association_freezes_only_between_handshakes_and_flights() {
    let configs = configs(ProtocolVersion::DTLS1_3, false);
    let settings = *configs.server.session_settings();
    let mut pair = configs.pair();
    assert_eq!(pair.server.freeze(&settings).map(drop), Err(Misuse::HandshakeNotComplete.into()));
    connect(&mut pair);
    pair.server.update_keys(false).unwrap();
    assert_eq!(pair.server.freeze(&settings).map(drop), Err(Misuse::FlightWaits.into()));
    pair.run().unwrap();
    pair.client.close();
    pair.run().unwrap();
    assert_eq!(pair.server.freeze(&settings).map(drop), Err(Misuse::SendClosed.into()));
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
        // The bytes are not authentic by themselves: a changed one may be accepted, but it breaks nothing else.
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
        assert!(thaw(&other, Side::Server, &frozen).is_err());
    }
}
