//! The memory of a server's many idle connections.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail")]

use std::alloc::System;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use cap::Cap;
use dunlin::auth::{Psk, PskTable};
use dunlin::{
    AssociationId, ClientAuth, ClientConfig, DtlsConnection, Endpoint, EndpointEvent, EndpointLimits,
    NodeIds, Now, Profile, ProfileBuilder, PskSource, ServerConfig, TlsConnection, Trust,
};
use dunlin_awslc::tls12::{TLS12_CIPHER_SUITES, TLS12_PSK_CIPHER_SUITES};
use dunlin_tests::tamper::{Keys, Secrets};
use dunlin_tests::{KeyType, Leaf, NOW, Pair, Pki, awslc, localhost};

/// Counts the allocations of Rust code. AWS-LC's keys take some 1.2 kB more.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// The limit in bytes for the connection and its heap: the identity of a peer with two certificates of some
/// 700 bytes together, secrets, and the list of messages. docs/performance.md has the figure with AWS-LC's
/// keys.
const MOST: usize = 2808;

/// This test has its own binary, because the allocator would also count a concurrent test.
#[test]
fn idle_connections_use_little_memory() {
    streams();
    hostile_associations();
    associations_of_a_hostile_host();
    for is_tls12 in [false, true] {
        for is_psk in [true, false] {
            for has_ids in [false, true] {
                associations(is_tls12, is_psk, has_ids);
            }
        }
    }
}

/// The limit in bytes for an idle association of an endpoint, its indexes included. It keeps no expanded
/// keys, so this is all of its heap.
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

/// An endpoint with its associations, and their clients.
struct Served {
    endpoint: Endpoint,
    served: Vec<AssociationId>,
    clients: Vec<DtlsConnection>,
}

/// The address of the server.
const THERE: &str = "192.0.2.1:5684";

/// The address of a client.
fn here(n: usize) -> SocketAddr {
    SocketAddr::from(([198, 51, 100, (n / 1000) as u8], 1000 + (n % 1000) as u16))
}

fn limits(count: usize) -> EndpointLimits {
    let mut limits = EndpointLimits::default();
    limits.associations = count;
    limits
}

/// Carries datagrams between a server and a client at this address until there are none. Returns the
/// associations that clients have begun.
fn shake_hands(
    endpoint: &mut Endpoint,
    connection: &mut DtlsConnection,
    here: SocketAddr,
) -> Vec<AssociationId> {
    let (there, mut begun): (SocketAddr, _) = (THERE.parse().unwrap(), Vec::new());
    loop {
        let mut is_quiet = true;
        while let Some(sent) = connection.poll_transmit(NOW) {
            endpoint.receive(NOW, here, &sent.datagram);
            is_quiet = false;
        }
        while let Some(sent) = endpoint.poll_transmit(NOW) {
            // The connection keeps its error.
            let _ = connection.receive(NOW, there, &sent.datagram);
            is_quiet = false;
        }
        while let Some(event) = endpoint.poll_event() {
            if let EndpointEvent::Incoming(id) = event {
                begun.push(id);
            }
        }
        if is_quiet {
            return begun;
        }
    }
}

/// Connects this many clients, each of which has sent data.
fn connected(
    count: usize,
    mut client: impl FnMut() -> Arc<ClientConfig>,
    server: &Arc<ServerConfig>,
) -> Served {
    let there: SocketAddr = THERE.parse().unwrap();
    let mut endpoint = Endpoint::new(limits(count));
    endpoint.set_server(Some(Arc::clone(server)));
    let mut served = Vec::new();
    let mut clients = Vec::new();
    for n in 0..count {
        let mut connection = DtlsConnection::client(&client(), localhost(), there, NOW).unwrap();
        served.extend(shake_hands(&mut endpoint, &mut connection, here(n)));
        assert_eq!(connection.error(), None);
        connection.send(b"data").unwrap();
        let sent = connection.poll_transmit(NOW).unwrap();
        endpoint.receive(NOW, here(n), &sent.datagram);
        while connection.poll_event().is_some() {}
        clients.push(connection);
    }
    Served { endpoint, served, clients }
}

/// The number of associations: 1000, or as many as `DUNLIN_ASSOCIATIONS` says.
fn count() -> usize {
    number("DUNLIN_ASSOCIATIONS", 1000)
}

/// The number of hostile associations: 100, or as many as `DUNLIN_HOSTILE` says.
fn hostile_count() -> usize {
    number("DUNLIN_HOSTILE", 100)
}

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |number| number.parse().unwrap())
}

/// The heap of each association of a server after its client has sent these plaintexts of records, and after
/// the server waits no more for the rest of messages.
fn heap_of_server(records: &[Vec<u8>]) -> [usize; 2] {
    let count = hostile_count();
    let suite = awslc().cipher_suites[0];
    let (_, server) = configs(false, true);
    let profile = |secrets: &Arc<Secrets>| {
        let builder = Profile::builder(awslc()).cipher_suites(vec![suite]);
        builder.key_log(Some(secrets.clone())).build().unwrap()
    };
    let mut secrets: Vec<Arc<Secrets>> = Vec::new();
    let client = || {
        secrets.push(Arc::default());
        let psk = Psk::new("device-1", &[7; 32]).unwrap();
        Arc::new(ClientConfig::new(profile(secrets.last().unwrap())).with_psks(vec![Arc::new(psk)]))
    };
    let Served { mut endpoint, served, clients } = connected(count, client, &Arc::new(server));
    let attacks: Vec<Vec<Vec<u8>>> = secrets
        .iter()
        .map(|secrets| {
            let keys = Keys::of_datagrams(suite, &secrets.get("CLIENT_TRAFFIC_SECRET_0"));
            let sealed = records.iter().enumerate();
            sealed.map(|(n, inner)| keys.seal_datagram(100 + n as u16, inner)).collect()
        })
        .collect();
    let settle =
        |endpoint: &mut Endpoint, now| {
            for id in &served {
                endpoint.update(*id, |connection| {
                    while connection.poll_event().is_some() || connection.read().is_some() {}
                });
            }
            while endpoint.poll_event().is_some() || endpoint.poll_transmit(now).is_some() {}
            ALLOCATOR.allocated()
        };
    settle(&mut endpoint, NOW);
    for (n, records) in attacks.iter().enumerate() {
        for record in records {
            endpoint.receive(NOW, here(n), record);
        }
    }
    let after = settle(&mut endpoint, NOW);
    assert_eq!(endpoint.len(), count, "the associations go on");
    let later = Now { monotonic: NOW.monotonic + Duration::from_secs(61), ..NOW };
    endpoint.handle_timeout(later);
    let later = settle(&mut endpoint, later);
    drop(clients);
    let rest = ALLOCATOR.allocated();
    drop(endpoint);
    let own = rest - ALLOCATOR.allocated();
    [(own + after - later) / count, own / count]
}

/// Memory follows the bytes that clients have sent, and what the server still reads. It does not follow the
/// lengths that they announce.
fn hostile_associations() {
    // The client has sent two ClientHellos and Finished, the messages 0 to 2.
    let fragment = |typ: u8, number: u16, len: u32, offset: u32, piece: &[u8]| {
        let [len, offset, part] = [len, offset, piece.len() as u32].map(|n| n.to_be_bytes()[1..].to_vec());
        [&[typ][..], &len, &number.to_be_bytes(), &offset, &part, piece, &[22]].concat()
    };
    // One byte at the far end of each of many messages; many small pieces; the longest message that a server
    // reads, without its end, and others that wait for it.
    const LONG: u32 = 4338;
    let far = (3..19).map(|number| fragment(10, number, LONG, LONG - 1, &[0])).collect::<Vec<_>>();
    let pieces = |number: u16| (0..16).map(move |at| (number, at));
    let small = (3..15).flat_map(pieces).map(|(number, at)| fragment(10, number, LONG, 32 * at, &[0; 20]));
    let update = |number| fragment(24, number, 1, 0, &[0]);
    let most = (0..LONG / 241 - 1).map(|at| fragment(10, 3, LONG, 241 * at, &[0; 241]));
    let long = [update(18)].into_iter().chain(most).chain((4..18).map(update));
    // An honest client repeats its Finished if the server's acknowledgement was lost.
    let [honest, rest] = heap_of_server(&[fragment(20, 2, 36, 0, &[0; 36])]);
    for (what, records) in [("far", far), ("small", small.collect()), ("long", long.collect())] {
        let [hostile, left] = heap_of_server(&records);
        println!(
            "an association keeps {honest} bytes, {hostile} with {what} pieces; later {rest} and {left}"
        );
        assert!(hostile <= 2 * honest, "{what}: {hostile} bytes instead of {honest}");
        assert!(left <= rest + 16, "{what}: {left} bytes instead of {rest}, for ever");
    }
}

/// A host begins ten times as many associations at one address as it may have, with connection IDs and each
/// with another identity. They cost no more than those of honest hosts.
fn associations_of_a_hostile_host() {
    let most = hostile_count();
    let there = THERE.parse::<SocketAddr>().unwrap();
    let profile = Profile::builder(awslc()).build().unwrap();
    let key = |n: usize| Psk::new(format!("device-{n}"), &[7; 32]).unwrap();
    let ids = Arc::new(NodeIds::new(&[], 8, awslc().random.clone()).unwrap());
    let keys = PskSource::Here(Arc::new((0..10 * most).map(key).collect::<PskTable>()));
    let server = ServerConfig::psk_only(profile.clone(), keys).unwrap().with_connection_ids(ids.clone());
    let server = Arc::new(server);
    let heap = |count: usize, address: fn(usize) -> SocketAddr| {
        let mut limits = limits(10 * count);
        limits.associations_per_host = most;
        let mut endpoint = Endpoint::new(limits);
        endpoint.set_server(Some(server.clone()));
        for n in 0..count {
            let client = ClientConfig::psk_only(profile.clone(), vec![Arc::new(key(n))]).unwrap();
            let client = Arc::new(client.with_connection_ids(ids.clone()));
            let mut connection = DtlsConnection::client(&client, localhost(), there, NOW).unwrap();
            for id in shake_hands(&mut endpoint, &mut connection, address(n)) {
                endpoint.update(id, |connection| while connection.poll_event().is_some() {});
                if endpoint.association(id).unwrap().ended().is_some() {
                    endpoint.remove(NOW, id);
                }
            }
            while endpoint.poll_event().is_some() || endpoint.poll_transmit(NOW).is_some() {}
        }
        let held = endpoint.len();
        let before = ALLOCATOR.allocated();
        drop(endpoint);
        (held, before - ALLOCATOR.allocated())
    };
    let honest = heap(most, here);
    let hostile = heap(10 * most, |_| here(0));
    println!("honest hosts hold {honest:?}, and a hostile one {hostile:?} associations and bytes");
    assert_eq!((honest.0, hostile.0), (most, most));
    assert!(hostile.1 <= 2 * honest.1, "{} bytes instead of {}", hostile.1, honest.1);
}

/// Bounds the memory of a server's idle associations.
fn associations(is_tls12: bool, is_psk: bool, has_ids: bool) {
    let count = count();
    let (client, server) = configs(is_tls12, is_psk);
    let ids = Arc::new(NodeIds::new(&[], 8, awslc().random.clone()).unwrap());
    let (client, server) = if has_ids {
        (client.with_connection_ids(ids.clone()), server.with_connection_ids(ids))
    } else {
        (client, server)
    };
    let client = Arc::new(client);
    let server = Arc::new(server);
    let Served { mut endpoint, served, clients } = connected(count, || Arc::clone(&client), &server);
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
    let before = ALLOCATOR.allocated();
    let begin = processor_time();
    let frozen: Vec<_> =
        served.iter().map(|id| endpoint.freeze(NOW, *id).unwrap().unwrap().to_vec()).collect();
    let freezing = processor_time() - begin;
    drop(endpoint);
    let stored = frozen.iter().map(Vec::capacity).sum::<usize>() + frozen.capacity() * size_of::<Vec<u8>>();
    let each = (before + stored - ALLOCATOR.allocated()) / count;
    // A thawed association takes no more.
    let before = ALLOCATOR.allocated();
    let begin = processor_time();
    let mut thawed = Endpoint::new(limits(count));
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

/// The processor time of this thread so far (proc_schedstat(5)). Unlike elapsed time, it means something on a
/// busy machine.
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
    let mut clients = Vec::new();
    let mut servers = Vec::new();
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
