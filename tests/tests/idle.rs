//! The memory of idle connections, of which a server has many.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail")]

use std::alloc::System;
use std::sync::Arc;
use std::time::Duration;

use cap::Cap;
use dunlin::auth::{Psk, PskTable};
use dunlin::{
    ClientAuth, ClientConfig, DtlsConnection, Endpoint, EndpointEvent, EndpointLimits, NodeIds, Now, Profile,
    ProfileBuilder, PskSource, ServerConfig, TlsConnection, Trust,
};
use dunlin_awslc::tls12::{TLS12_CIPHER_SUITES, TLS12_PSK_CIPHER_SUITES};
use dunlin_tests::{KeyType, Leaf, NOW, Pair, Pki, awslc, localhost};

/// Counts the allocations of Rust code. AWS-LC's keys take some 1.2 kB more.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// The limit in bytes for the connection and its heap: the identity of a peer with two certificates of some 700 bytes
/// together, secrets, and the list of messages. docs/performance.md has the figure with AWS-LC's keys.
const MOST: usize = 2808;

/// This test has its own binary, because the allocator would also count a concurrent test.
#[test]
fn idle_connections_use_little_memory() {
    streams();
    for is_tls12 in [false, true] {
        for is_psk in [true, false] {
            for has_ids in [false, true] {
                associations(is_tls12, is_psk, has_ids);
            }
        }
    }
}

/// The limit in bytes for an idle association of an endpoint, its indexes included. It keeps no expanded keys, so this is all of its heap.
const MOST_OF_ASSOCIATION: usize = 4096;

/// Configurations of both sides for DTLS.
fn configs(is_tls12: bool, is_psk: bool) -> (ClientConfig, ServerConfig) {
    let version = |builder: ProfileBuilder| match (is_tls12, is_psk) {
        (false, _) => builder,
        (true, true) => builder.cipher_suites(vec![]).tls12_cipher_suites(TLS12_PSK_CIPHER_SUITES.to_vec()),
        (true, false) => builder.cipher_suites(vec![]).tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec()),
    };
    if is_psk {
        let profile = version(Profile::builder(awslc())).build().unwrap();
        let psk = || Psk::new("device-1", &[7; 32]).unwrap();
        let keys = PskSource::Here(Arc::new(PskTable::from_iter([psk()])));
        let server = ServerConfig::psk_only(profile.clone(), keys).unwrap();
        return (ClientConfig::new(profile).with_psks(vec![Arc::new(psk())]), server);
    }
    let pki = Pki::shared(KeyType::P256);
    let trust = Trust { x509: Some(pki.trust()), raw_key: None };
    let profile = |leaf: &Leaf| {
        let builder = Profile::builder(awslc()).trust(trust.clone()).credentials(vec![leaf.x509(&awslc())]);
        version(builder).build().unwrap()
    };
    let server = ServerConfig::new(profile(&pki.server)).unwrap();
    (ClientConfig::new(profile(&pki.client)), server.with_client_auth(ClientAuth::Required).unwrap())
}

/// Bounds the memory of a server's idle associations: 1000, or as many as `DUNLIN_ASSOCIATIONS` says.
fn associations(is_tls12: bool, is_psk: bool, has_ids: bool) {
    let count = std::env::var("DUNLIN_ASSOCIATIONS").map_or(1000, |count| count.parse().unwrap());
    let (client, server) = configs(is_tls12, is_psk);
    let ids = Arc::new(NodeIds::new(&[], 8, awslc().random.clone()).unwrap());
    let (client, server) = match has_ids {
        true => (client.with_connection_ids(ids.clone()), server.with_connection_ids(ids)),
        false => (client, server),
    };
    let (client, there) = (Arc::new(client), "192.0.2.1:5684".parse::<std::net::SocketAddr>().unwrap());
    let mut limits = EndpointLimits::default();
    limits.associations = count;
    let mut endpoint = Endpoint::new(limits);
    let server = Arc::new(server);
    endpoint.set_server(Some(Arc::clone(&server)));
    let mut served = Vec::new();
    let mut clients = Vec::new();
    for n in 0..count {
        let here = std::net::SocketAddr::from(([198, 51, 100, (n / 1000) as u8], 1000 + (n % 1000) as u16));
        let mut connection = DtlsConnection::client(&client, localhost(), there, NOW).unwrap();
        loop {
            let mut is_quiet = true;
            while let Some(sent) = connection.poll_transmit(NOW) {
                endpoint.receive(NOW, here, &sent.datagram);
                is_quiet = false;
            }
            while let Some(sent) = endpoint.poll_transmit(NOW) {
                connection.receive(NOW, there, &sent.datagram).unwrap();
                is_quiet = false;
            }
            while let Some(event) = endpoint.poll_event() {
                if let EndpointEvent::Incoming(id) = event {
                    served.push(id);
                }
            }
            if is_quiet {
                break;
            }
        }
        connection.send(b"data").unwrap();
        let sent = connection.poll_transmit(NOW).unwrap();
        endpoint.receive(NOW, here, &sent.datagram);
        while connection.poll_event().is_some() {}
        clients.push(connection);
    }
    for id in &served {
        let data = endpoint.update(*id, |connection| {
            while connection.poll_event().is_some() {}
            connection.read()
        });
        assert_eq!(data.flatten().as_deref(), Some(&b"data"[..]));
    }
    while endpoint.poll_event().is_some() || endpoint.poll_transmit(NOW).is_some() {}
    let before = ALLOCATOR.allocated();
    let monotonic = NOW.monotonic + Duration::from_secs(1000);
    endpoint.handle_timeout(Now { monotonic, ..NOW });
    while endpoint.poll_event().is_some() || endpoint.poll_transmit(NOW).is_some() {}
    let expired = (before - ALLOCATOR.allocated()) / count;
    assert_eq!(endpoint.len(), count);
    let (before, begin) = (ALLOCATOR.allocated(), processor_time());
    let frozen: Vec<_> =
        served.iter().map(|id| endpoint.freeze(NOW, *id).unwrap().unwrap().to_vec()).collect();
    let freezing = processor_time() - begin;
    drop(endpoint);
    let stored = frozen.iter().map(Vec::capacity).sum::<usize>() + frozen.capacity() * size_of::<Vec<u8>>();
    let each = (before + stored - ALLOCATOR.allocated()) / count;
    // A thawed association takes no more.
    let before = ALLOCATOR.allocated();
    let (begin, mut thawed) = (processor_time(), Endpoint::new(limits));
    for bytes in &frozen {
        let connection = Box::new(DtlsConnection::thaw_server(&server, bytes, NOW).unwrap());
        thawed.adopt(NOW, *connection).unwrap();
    }
    let thawing = processor_time() - begin;
    while thawed.poll_event().is_some() || thawed.poll_transmit(NOW).is_some() {}
    let each_thawed = (ALLOCATOR.allocated() - before) / count;
    println!(
        "{count} associations of {} bytes frozen in {freezing:?} of processor time, thawed in {thawing:?}; each then keeps {each_thawed}",
        frozen[0].len()
    );
    assert!(each_thawed <= MOST_OF_ASSOCIATION, "a thawed association keeps {each_thawed} bytes");
    drop(thawed);
    let before = ALLOCATOR.allocated();
    drop(clients);
    let client = (before - ALLOCATOR.allocated()) / count;
    println!(
        "DTLS 1.{}, {}, {} connection IDs: an association keeps {each} bytes, and {expired} more for 240 s; connection {}, client {client}",
        if is_tls12 { 2 } else { 3 },
        if is_psk { "PSK" } else { "X.509" },
        if has_ids { "with" } else { "without" },
        size_of::<DtlsConnection>(),
    );
    assert!(each <= MOST_OF_ASSOCIATION, "an association keeps {each} bytes");
}

/// The processor time of this thread so far (proc_schedstat(5)). Unlike elapsed time, it means something on a busy machine.
fn processor_time() -> Duration {
    let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(times.split_whitespace().next().unwrap().parse().unwrap())
}

/// Bounds the memory of connections over streams.
fn streams() {
    const CONNECTIONS: usize = 50;
    let pki = Pki::shared(KeyType::P256);
    let profile = |leaf: &Leaf| {
        Profile::builder(awslc())
            .trust(Trust { x509: Some(pki.trust()), raw_key: None })
            .credentials(vec![leaf.x509(&awslc())])
            .build()
            .unwrap()
    };
    let client = Arc::new(ClientConfig::new(profile(&pki.client)));
    let server = ServerConfig::new(profile(&pki.server)).unwrap();
    let server = Arc::new(server.with_client_auth(ClientAuth::Required).unwrap());
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    for _ in 0..CONNECTIONS {
        let mut pair = Pair::new(&client, &server);
        pair.connect().unwrap();
        pair.echo(b"data went both ways").unwrap();
        clients.push(pair.client);
        servers.push(pair.server);
    }
    for (who, mut ends) in [("client", clients), ("server", servers)] {
        let before = ALLOCATOR.allocated();
        ends.clear();
        let heap = (before - ALLOCATOR.allocated()) / CONNECTIONS;
        let each = size_of::<TlsConnection>() + heap;
        println!("an idle {who} keeps {each} bytes, {heap} of them beside the connection");
        assert!(each <= MOST, "an idle {who} keeps {each} bytes");
    }
}
