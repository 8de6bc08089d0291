//! Connection IDs (RFC 9146, RFC 9147 §9).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::sync::Arc;

use common::{App, Configs, DELAY, OwnPair, VERSIONS, close, connect, exchange, sent};
use dunlin::error::{Error, Misuse};
use dunlin::resume::Tickets;
use dunlin::wire::ProtocolVersion;
use dunlin::{ConnectionIds, MAX_CONNECTION_ID, NodeIds, NodeMask, Side};
use dunlin_sim::Pair;
use dunlin_store::{MemoryClientSessions, RotatingTickets};
use dunlin_tests::awslc;

fn ids(node: &[u8], len: usize) -> Arc<dyn ConnectionIds> {
    Arc::new(NodeIds::new(node, len, awslc().random.clone()).unwrap())
}

/// A client and a server with these lengths of their IDs.
fn configs(version: ProtocolVersion, client: Option<usize>, server: Option<usize>) -> Configs {
    let mut configs = Configs::of_version(version);
    if let Some(len) = client {
        configs.client = configs.client.with_connection_ids(ids(&[], len));
    }
    if let Some(len) = server {
        let node: &[u8] = if len < 2 { &[] } else { &[0xd5] };
        configs.server = configs.server.with_connection_ids(ids(node, len));
    }
    configs
}

fn own(pair: &OwnPair, side: Side) -> Vec<Vec<u8>> {
    let side = if side == Side::Client { &pair.client } else { &pair.server };
    side.connection_ids().map(<[u8]>::to_vec).collect()
}

/// Whether a datagram of application data carries this ID.
fn carries(datagram: &[u8], version: ProtocolVersion, id: &[u8]) -> bool {
    match version {
        ProtocolVersion::DTLS1_2 => {
            datagram[0] == if id.is_empty() { 23 } else { 25 } && datagram[11..].starts_with(id)
        }
        _ => (datagram[0] & 0x10 != 0) != id.is_empty() && datagram[1..].starts_with(id),
    }
}

#[test]
fn both_sides_agree_on_the_ids_that_they_receive() {
    let lengths = [None, Some(0), Some(1), Some(8), Some(MAX_CONNECTION_ID)];
    for version in VERSIONS {
        for client in lengths {
            for server in lengths {
                let mut pair = configs(version, client, server).pair();
                connect(&mut pair);
                let is_agreed = client.is_some() && server.is_some();
                for (side, len) in [(Side::Client, client), (Side::Server, server)] {
                    let len = len.filter(|_| is_agreed).unwrap_or(0);
                    let ids = own(&pair, side);
                    assert_eq!(ids.first().map_or(0, Vec::len), len, "{version} {client:?} {server:?}");
                }
                let before = pair.sent.len();
                exchange(&mut pair);
                for by in [Side::Client, Side::Server] {
                    let id = own(&pair, by.peer()).concat();
                    for datagram in sent(&pair, by, before) {
                        assert!(carries(datagram, version, &id), "{version} {by:?} {datagram:02x?}");
                    }
                }
                close(&mut pair);
                for side in [&pair.client, &pair.server] {
                    assert_eq!(side.discarded(), Default::default());
                }
            }
        }
    }
}

/// IDs of a server with another implementation.
#[derive(Debug)]
struct LongIds;

impl ConnectionIds for LongIds {
    fn id_len(&self) -> usize {
        200
    }

    fn issue(&self) -> Result<Vec<u8>, Error> {
        Ok(vec![0x1d; 200])
    }
}

/// A client makes its datagrams smaller when its ClientHello is lost several times, but a long ID still fits
/// its MTU.
#[test]
fn a_client_takes_a_long_id_after_its_first_hellos_were_lost() {
    for version in VERSIONS {
        let mut configs = configs(version, Some(0), None);
        configs.server = configs.server.with_connection_ids(Arc::new(LongIds));
        let mut client = configs.client();
        for _ in 0..6 {
            while client.poll_transmit(configs.now).is_some() {}
            configs.now.monotonic = client.poll_timeout().unwrap();
            client.handle_timeout(configs.now).unwrap();
        }
        let mut pair = Pair::new(client, configs.server(), configs.now, DELAY);
        connect(&mut pair);
        exchange(&mut pair);
        assert_eq!(pair.client.peer_connection_id().len(), 200, "{version}");
    }
}

#[test]
fn ids_begin_with_the_node() {
    let mut pair = configs(ProtocolVersion::DTLS1_3, Some(0), Some(8)).pair();
    connect(&mut pair);
    assert_eq!(own(&pair, Side::Server)[0][0], 0xd5);
    assert_eq!(pair.client.peer_connection_id(), own(&pair, Side::Server)[0]);
    let random = awslc().random.clone();
    for (node, len) in [(&[1][..], 1), (&[][..], MAX_CONNECTION_ID + 1), (&[1][..], 0)] {
        let error = NodeIds::new(node, len, random.clone()).unwrap_err();
        assert!(matches!(error, Error::Misuse(Misuse::Config(_))));
    }
}

/// The expected mask is HMAC-SHA256 as OpenSSL calculates it: `printf 'dunlin node of connection id
/// 1\1\2\3\4\5\6\7\10' | openssl dgst -sha256 -mac HMAC -macopt hexkey:0707…`.
#[test]
fn masked_ids_name_their_node_to_the_key_alone() {
    let provider = awslc();
    let mask = |key| NodeMask::new(&provider, &[key; 32]).unwrap();
    let [ours, others] = [7, 8].map(mask);
    assert_eq!(ours.node_of(&[0x9c, 0xe7, 1, 2, 3, 4, 5, 6, 7, 8]), Some(0));
    let random = &awslc().random;
    for node in [0, 1, 0x0100, u16::MAX] {
        let ids = ours.ids(node, random.clone());
        assert_eq!(ids.id_len(), NodeMask::ID_LEN);
        let issued: Vec<_> = (0..64).map(|_| ids.issue().unwrap()).collect();
        assert!(issued.iter().all(|id| id.len() == ids.id_len() && ours.node_of(id) == Some(node)));
        // No byte stays the same, and another key finds other nodes. Each fails by chance once in 2^500
        // times.
        assert!((0..ids.id_len()).all(|at| issued.iter().any(|id| id[at] != issued[0][at])));
        assert!(issued.iter().any(|id| others.node_of(id) != Some(node)));
    }
    assert!(
        ours.node_of(&[0; 9]).is_none() && ours.node_of(&[0; 11]).is_none() && ours.node_of(&[]).is_none()
    );
    let error = NodeMask::new(&provider, &[7; 31]).unwrap_err();
    assert!(matches!(error, Error::Misuse(Misuse::Config(_))));
}

/// With an ID, a record without it, with another one, or with a changed one is dropped.
#[test]
fn records_without_the_right_id_are_dropped() {
    for version in VERSIONS {
        let mut pair = configs(version, Some(4), Some(4)).pair();
        connect(&mut pair);
        let before = pair.sent.len();
        pair.client.send(b"data").unwrap();
        pair.run().unwrap();
        assert_eq!(pair.server.received(), [b"data"]);
        let datagram = sent(&pair, Side::Client, before)[0].to_vec();
        let at = if version == ProtocolVersion::DTLS1_2 { 11 } else { 1 };
        let mut other = datagram.clone();
        other[at] ^= 1;
        let mut without = datagram;
        without.drain(at..at + 4);
        without[0] = if version == ProtocolVersion::DTLS1_2 { 23 } else { without[0] & !0x10 };
        for datagram in [other, without] {
            pair.inject(Side::Server, datagram);
            pair.run().unwrap();
            assert!(pair.server.received().is_empty());
        }
        assert_eq!(pair.server.discarded().misplaced, 2);
        exchange(&mut pair);
    }
}

/// The ID belongs to the connection, not to the session (a fault that other implementations had).
#[test]
fn a_resumption_negotiates_its_own_ids() {
    for version in VERSIONS {
        let mut configs = configs(version, Some(0), Some(6));
        configs.client = configs.client.with_sessions(Arc::new(MemoryClientSessions::new(1, 4)));
        let seal = Arc::new(RotatingTickets::new(awslc()).unwrap());
        configs.server = configs.server.with_tickets(Tickets::stateless(seal));
        let mut seen = Vec::new();
        for is_resumed in [false, true] {
            let mut pair = configs.pair();
            connect(&mut pair);
            assert_eq!(pair.client.negotiated().unwrap().is_resumed(), is_resumed);
            exchange(&mut pair);
            seen.extend(own(&pair, Side::Server));
            configs.now = pair.now;
        }
        assert!(seen[0] != seen[1] && seen.len() == 2);
    }
}

#[test]
fn fits_ids_into_small_datagrams() {
    for version in VERSIONS {
        for mtu in [80, 127] {
            let mut pair = configs(version, Some(8), Some(8)).mtu(mtu).pair();
            connect(&mut pair);
            assert!(pair.sent.iter().all(|sent| sent.packet.len() <= mtu));
        }
        // No room for the ID: the server does not agree.
        let mut pair = configs(version, Some(32), Some(2)).mtu(80).pair();
        connect(&mut pair);
        assert!(own(&pair, Side::Server).is_empty() && pair.server.peer_connection_id().is_empty());
    }
}

#[test]
fn requests_and_uses_spare_ids() {
    let mut pair = configs(ProtocolVersion::DTLS1_3, Some(0), Some(4)).pair();
    connect(&mut pair);
    assert!(!pair.client.use_spare_connection_id());
    pair.client.request_connection_ids(2).unwrap();
    pair.run().unwrap();
    let ids = own(&pair, Side::Server);
    assert_eq!(ids.len(), 3);
    for id in &ids[1..] {
        assert!(pair.client.use_spare_connection_id());
        assert_eq!(pair.client.peer_connection_id(), id);
        exchange(&mut pair);
    }
    assert!(!pair.client.use_spare_connection_id());
    // Two requests at once. One waits for the acknowledgement of the answer to the other.
    pair.client.request_connection_ids(1).unwrap();
    pair.client.request_connection_ids(1).unwrap();
    pair.run().unwrap();
    assert_eq!(own(&pair, Side::Server).len(), 5);
    // The ID in use stays valid, however many spare ones the client asks for.
    for _ in 0..5 {
        pair.client.request_connection_ids(4).unwrap();
        pair.run().unwrap();
        assert!(own(&pair, Side::Server).iter().any(|id| id == pair.client.peer_connection_id()));
        exchange(&mut pair);
    }
    assert_eq!((pair.client.poll_timeout(), pair.server.poll_timeout()), (None, None));
    exchange(&mut pair);
}

#[test]
fn a_new_id_replaces_the_present_one_at_once() {
    let mut pair = configs(ProtocolVersion::DTLS1_3, Some(3), Some(4)).pair();
    connect(&mut pair);
    for round in 0..20 {
        let before = pair.client.peer_connection_id().to_vec();
        pair.server.replace_connection_id().unwrap();
        pair.run().unwrap();
        let now = pair.client.peer_connection_id();
        assert!(now != before && now == own(&pair, Side::Server).last().unwrap(), "{round}");
        assert!(own(&pair, Side::Server).len() <= 12);
        exchange(&mut pair);
    }
}

/// A device that only sends may request an ID for each of its addresses.
#[test]
fn requested_ids_are_no_flood() {
    let mut pair = configs(ProtocolVersion::DTLS1_3, Some(0), Some(4)).pair();
    connect(&mut pair);
    for round in 0..40 {
        pair.client.request_connection_ids(1).unwrap();
        pair.run().unwrap();
        assert!(pair.client.use_spare_connection_id(), "{round}");
        pair.client.send(b"21.5 C").unwrap();
        pair.run().unwrap();
        assert_eq!(pair.server.received(), [b"21.5 C"], "{round}");
    }
}

#[test]
fn the_messages_about_ids_need_dtls_13_and_ids() {
    for (version, client, server) in [
        (ProtocolVersion::DTLS1_2, Some(2), Some(2)),
        (ProtocolVersion::DTLS1_3, None, Some(2)),
        (ProtocolVersion::DTLS1_3, Some(0), Some(0)),
    ] {
        let mut pair = configs(version, client, server).pair();
        connect(&mut pair);
        for side in [&mut pair.client, &mut pair.server] {
            let refused = |error| matches!(error, Err(Error::Misuse(Misuse::NotSupported(_))));
            assert!(refused(side.request_connection_ids(1)) && refused(side.replace_connection_id()));
        }
        exchange(&mut pair);
    }
}

/// Two replacements at once: the second one waits for the acknowledgement of the first, and also takes effect
/// at once then.
#[test]
fn a_replacement_that_waits_still_replaces() {
    let mut pair = configs(ProtocolVersion::DTLS1_3, Some(3), Some(4)).pair();
    connect(&mut pair);
    pair.server.replace_connection_id().unwrap();
    pair.server.replace_connection_id().unwrap();
    pair.run().unwrap();
    let ids = own(&pair, Side::Server);
    assert_eq!(ids.len(), 3);
    assert_eq!(pair.client.peer_connection_id(), ids[2]);
    exchange(&mut pair);
}

/// A long ID leaves room for messages, however small datagrams get.
#[test]
fn long_ids_limit_how_small_datagrams_get() {
    for version in VERSIONS {
        let configs = configs(version, Some(32), Some(32));
        let mut index = 0;
        // Everything after the hellos is lost for a long time.
        let lossy = move |_: std::time::Duration, packet: Vec<u8>| {
            index += 1;
            if (3..12).contains(&index) { vec![] } else { vec![(DELAY, packet)] }
        };
        let mut pair = configs.pair_over(&lossy);
        connect(&mut pair);
        exchange(&mut pair);
    }
}

/// RFC 9147 §8: what follows a KeyUpdate has the new keys, which need its ACK first.
#[test]
fn messages_about_ids_wait_for_the_ack_of_a_key_update() {
    let mut pair = configs(ProtocolVersion::DTLS1_3, Some(2), Some(4)).pair();
    connect(&mut pair);
    pair.client.update_keys(false).unwrap();
    assert_eq!(pair.client.request_connection_ids(1), Err(Error::Misuse(Misuse::KeyUpdateWaits)));
    pair.client.replace_connection_id().unwrap();
    let before = own(&pair, Side::Client);
    pair.run().unwrap();
    assert_eq!(own(&pair, Side::Client).len(), before.len() + 1, "the new ID leaves after the ACK");
    exchange(&mut pair);
    pair.client.request_connection_ids(1).unwrap();
    pair.run().unwrap();
    assert!(pair.client.use_spare_connection_id());
    exchange(&mut pair);
    close(&mut pair);
}
