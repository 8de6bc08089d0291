//! Attackers who forge, forward, replay and reorder records of an association, on real sockets.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use common::relay::Relay;
use common::{data, psk_client, psk_server};
use dunlin::{Migration, NodeIds, PathCheck};
use dunlin_tests::{awslc, localhost};
use dunlin_tokio::{DtlsAssociation, DtlsEndpoint};

/// The most bytes to an address per byte from it (RFC 9853 §5).
const MOST: usize = 3;

/// The server's rules, whether its client takes part in checks, and whether a copy of a new record moves the
/// association.
fn cases() -> [(&'static str, Migration, Migration, bool); 4] {
    let timeout = Duration::from_millis(100);
    let checked = |check| Migration::new(check).with_timeout(timeout).unwrap();
    let never = Migration::never();
    [
        ("basic", checked(PathCheck::Basic), checked(PathCheck::Basic), false),
        ("enhanced", checked(PathCheck::Enhanced), checked(PathCheck::Enhanced), false),
        ("never", never, never, false),
        ("on_newer_record", never.with_unchecked(true), never, true),
    ]
}

struct Ends {
    client: DtlsAssociation,
    served: DtlsAssociation,
    server: DtlsEndpoint,
    _client: DtlsEndpoint,
    /// The client's address, as the server sees it.
    home: SocketAddr,
}

impl Ends {
    async fn new(relay: &Relay, of_server: Migration, of_client: Migration) -> Self {
        let ids = || Arc::new(NodeIds::new(&[], 8, awslc().random.clone()).unwrap());
        let server = DtlsEndpoint::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let config = psk_server().with_connection_ids(ids()).with_migration(of_server);
        server.set_server(Some(Arc::new(config)));
        let to = relay.begin(server.local_addr());
        let client = DtlsEndpoint::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let config = Arc::new(psk_client().with_connection_ids(ids()).with_migration(of_client));
        let accepting = async { server.accept().await.accept().await };
        let (connected, served) = tokio::join!(client.connect(&config, localhost(), to), accepting);
        let served = served.unwrap();
        let home = served.peer_address();
        Self { client: connected.unwrap(), served, server, _client: client, home }
    }

    /// Sends data to the server, which echoes it over whatever path it prefers. Does not wait for the echo.
    async fn echoed(&self, text: &[u8]) {
        self.client.send(text).await.unwrap();
        assert_eq!(self.served.recv().await.unwrap().unwrap(), text);
        self.served.send(text).await.unwrap();
    }

    /// Waits until the client gets this text.
    async fn got(&self, text: &[u8]) {
        while self.client.recv().await.unwrap().unwrap() != text {}
    }
}

/// The bytes that have arrived at the attacker.
fn drain(attacker: &UdpSocket) -> usize {
    let mut buffer = [0; 65_536];
    std::iter::from_fn(|| attacker.recv(&mut buffer).ok()).sum()
}

/// An attacker who sees nothing: noise, and records with a guessed connection ID.
#[tokio::test]
async fn forged_records_move_nothing_and_get_no_answer() {
    for (name, of_server, of_client, _) in cases() {
        let relay = Relay::new();
        let ends = Ends::new(&relay, of_server, of_client).await;
        ends.echoed(b"one").await;
        ends.got(b"one").await;
        let id = ends.served.connection_ids().pop().unwrap();
        for round in 0..20_u8 {
            for seed in 0..10_u32 {
                let noise = data(20 + usize::from(round) + seed as usize, seed);
                let forged = [&[0b0011_0011][..], &id, &noise].concat();
                relay.attacker().send_to(&noise, ends.server.local_addr()).unwrap();
                relay.attacker().send_to(&forged, ends.server.local_addr()).unwrap();
            }
            // The socket has room for no more.
            ends.echoed(&[round]).await;
            ends.got(&[round]).await;
        }
        assert_eq!((drain(relay.attacker()), ends.served.peer_address()), (0, ends.home), "{name}");
        assert!(ends.served.discarded().unauthenticated >= 200, "{name}");
        assert_eq!(ends.served.path_checks(), Default::default(), "{name}");
    }
}

/// An attacker on the path: copies of old records, in any order, from his own address.
#[tokio::test]
async fn replayed_and_reordered_records_move_nothing() {
    for (name, of_server, of_client, _) in cases() {
        let relay = Relay::new();
        let ends = Ends::new(&relay, of_server, of_client).await;
        for text in [b"one", b"two", b"six"] {
            ends.echoed(text).await;
            ends.got(text).await;
        }
        let mut sent = 0;
        for n in 0..20_u8 {
            for record in relay.seen().iter().rev().take(20) {
                sent += record.len();
                relay.attacker().send_to(record, ends.server.local_addr()).unwrap();
            }
            ends.echoed(&[n]).await;
            ends.got(&[n]).await;
        }
        assert_eq!(ends.served.peer_address(), ends.home, "{name}");
        // Only replayed ClientHellos get an answer: a demand for a cookie.
        let got = drain(relay.attacker());
        assert!(got <= MOST * sent, "{name}: {got} of {sent}");
        assert!(ends.served.discarded().replayed >= 60, "{name}");
    }
}

/// An attacker on the path whose copies of new records are faster than the records themselves. He cannot
/// answer challenges.
#[tokio::test]
async fn copies_that_are_faster_than_records_move_nothing_unless_the_settings_allow_it() {
    for (name, of_server, of_client, moves) in cases() {
        let relay = Relay::new();
        let ends = Ends::new(&relay, of_server, of_client).await;
        ends.echoed(b"at home").await;
        ends.got(b"at home").await;
        relay.copy(true);
        let mut sent = 0;
        let mut got = 0;
        for n in 0..20_u8 {
            let before = relay.seen().len();
            ends.echoed(&[n; 40]).await;
            got += drain(relay.attacker());
            sent += relay.seen().iter().skip(before).map(Vec::len).sum::<usize>();
        }
        let moved = ends.served.peer_address() != ends.home;
        assert_eq!(moved, moves, "{name}: {}", ends.served.peer_address());
        println!("{name}: {sent} bytes from the attacker's address, {got} to it");
        // The relay may have forwarded records that were not counted yet.
        assert!(got <= MOST * (sent + 2000), "{name}: {got} of {sent}");
        // The next newer record from the true address brings it back, or it has never left.
        relay.copy(false);
        ends.echoed(b"home again").await;
        ends.got(b"home again").await;
        assert_eq!(ends.served.peer_address(), ends.home, "{name}");
        ends.echoed(b"still here").await;
        ends.got(b"still here").await;
    }
}
