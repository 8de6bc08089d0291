//! The memory of idle connections, of which a server has many.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail")]

use std::alloc::System;
use std::sync::Arc;

use cap::Cap;
use dunlin::{ClientAuth, ClientConfig, Profile, ServerConfig, TlsConnection, Trust};
use dunlin_tests::{KeyType, Leaf, Pair, Pki, awslc};

/// Counts the allocations of Rust code. AWS-LC's keys take some 1.2 kB more.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// The limit in bytes for the connection and its heap: the identity of a peer with two certificates of some 700 bytes
/// together, secrets, and the list of messages. docs/performance.md has the figure with AWS-LC's keys.
const MOST: usize = 2808;

/// This test has its own binary, because the allocator would also count a concurrent test.
#[test]
fn idle_connection_uses_little_memory() {
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
