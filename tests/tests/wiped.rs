//! After a connection no secret of it is on the heap, neither in use nor in freed memory. This test has a
//! `main` of its own: the heap of the main thread has a name in Linux's list of mappings, and no other thread
//! changes it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin::resume::Tickets;
use dunlin::wire::ProtocolVersion;
use dunlin::{
    ClientAuth, ClientConfig, DtlsConnection, EarlyDataProtocols, KeyLog, Profile, ServerConfig, Side,
    SingleUse, Trust,
};
use dunlin_awslc::tls12::TLS12_CIPHER_SUITES;
use dunlin_sim::{CLIENT_ADDRESS, SERVER_ADDRESS};
use dunlin_store::{MemoryClientSessions, MemoryServerSessions, MemoryUseOnce, RotatingTickets};
use dunlin_tests::{KeyType, NOW, Pair, Pki, awslc, localhost};

/// The secrets that connections log, in a form that the search does not find.
#[derive(Debug, Default)]
struct Masked(Mutex<Vec<(String, Vec<u8>)>>);

const MASK: u8 = 0xa5;

impl KeyLog for Masked {
    fn log(&self, label: &str, _: &[u8; 32], secret: &[u8]) {
        let masked = secret.iter().map(|byte| byte ^ MASK).collect();
        self.0.lock().unwrap().push((label.to_owned(), masked));
    }
}

/// The part of a secret that is searched for, in bytes. The allocator overwrites the first 16 bytes of freed
/// memory.
const PART: usize = 16;

/// The labels of the secrets that are partly on the heap.
fn found(secrets: &Masked) -> BTreeSet<String> {
    let secrets = secrets.0.lock().unwrap();
    let parts =
        secrets.iter().flat_map(|(label, secret)| secret.chunks_exact(PART).map(move |part| (label, part)));
    let mut firsts = vec![false; 1 << 16];
    let first = |part: &[u8]| usize::from(u16::from_be_bytes([part[0], part[1]]));
    parts.clone().for_each(|(_, part)| firsts[first(part)] = true);
    let mut found = BTreeSet::new();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let heap = maps.lines().find(|line| line.ends_with("[heap]")).unwrap();
    let (start, end) = heap.split(' ').next().unwrap().split_once('-').unwrap();
    let [start, end] = [start, end].map(|address| u64::from_str_radix(address, 16).unwrap());
    let mut memory = File::open("/proc/self/mem").unwrap();
    // On the stack, since a buffer on the heap would itself be searched.
    let mut chunk = [0; 1 << 16];
    let mut at = start;
    while at < end {
        let len = chunk.len().min((end - at) as usize);
        memory.seek(SeekFrom::Start(at)).unwrap();
        memory.read_exact(&mut chunk[..len]).unwrap();
        for window in chunk[..len].windows(PART) {
            let masked: [u8; PART] = std::array::from_fn(|i| window[i] ^ MASK);
            if firsts[first(&masked)] {
                let same = parts.clone().filter(|(_, part)| **part == masked);
                found.extend(same.map(|(label, _)| label.clone()));
            }
        }
        chunk.fill(0);
        at += (len - PART.min(len - 1)) as u64;
    }
    found
}

/// Both sides of a version, with tickets and perhaps early data, and a log for their secrets.
fn configs(
    version: ProtocolVersion,
    secrets: &Arc<Masked>,
    tickets: Tickets,
) -> (ClientConfig, ServerConfig) {
    let pki = Pki::shared(KeyType::P256);
    let profile = |side| {
        let own = if side == Side::Client { &pki.client } else { &pki.server };
        let builder = Profile::builder(awslc())
            .trust(Trust { x509: Some(pki.trust()), raw_key: None })
            .credentials(vec![own.x509(&awslc())])
            .key_log(Some(secrets.clone()));
        let builder = if version.is_1_2() {
            builder.cipher_suites(vec![]).tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec())
        } else {
            builder
        };
        builder.build().unwrap()
    };
    let protocols = EarlyDataProtocols::unnamed();
    let sessions = Arc::new(MemoryClientSessions::new(4, 4));
    let client =
        ClientConfig::new(profile(Side::Client)).with_sessions(sessions).with_early_data(protocols.clone());
    let server = ServerConfig::new(profile(Side::Server)).unwrap();
    let server = server.with_client_auth(ClientAuth::Required).unwrap().with_tickets(tickets);
    (client, server.with_early_data(protocols, 1000).unwrap())
}

/// A full handshake and a resumption over a stream, with early data and a KeyUpdate in TLS 1.3.
fn over_a_stream(client: ClientConfig, server: ServerConfig, has_updates: bool) {
    let client = Arc::new(client);
    let server = Arc::new(server);
    for resumes in [false, true] {
        let mut pair = Pair::new(&client, &server);
        if let Some(mut early) = pair.client.early_data() {
            early.send(b"early").unwrap();
        }
        pair.run().unwrap();
        if let Some(mut early) = pair.server.early_data() {
            early.consume(NOW, 5).unwrap();
        }
        pair.connect().unwrap();
        assert_eq!(pair.server.negotiated().unwrap().is_resumed(), resumes);
        pair.echo(b"data").unwrap();
        if has_updates {
            pair.client.update_keys(true).unwrap();
            pair.echo(b"more data").unwrap();
        }
    }
}

/// A full handshake and a resumption over datagrams.
fn over_datagrams(client: ClientConfig, server: ServerConfig) {
    let client = Arc::new(client);
    let server = Arc::new(server);
    let mut now = NOW;
    for resumes in [false, true] {
        let client = DtlsConnection::client(&client, localhost(), SERVER_ADDRESS, now).unwrap();
        let server = DtlsConnection::server(&server, CLIENT_ADDRESS, now);
        let mut pair = dunlin_sim::Pair::new(client, server, now, Duration::from_millis(20));
        pair.run().unwrap();
        assert_eq!(pair.server.negotiated().unwrap().is_resumed(), resumes);
        pair.client.send(b"data").unwrap();
        pair.run().unwrap();
        while pair.client.poll_event().is_some() || pair.server.poll_event().is_some() {}
        now = pair.now;
    }
}

fn main() {
    use ProtocolVersion as V;
    // Shared test certificates stay.
    drop(configs(V::TLS1_3, &Arc::default(), Tickets::none()));
    finds_what_is_not_wiped();
    let tickets: [fn() -> Tickets; 2] = [
        || Tickets::stateful(Arc::new(MemoryServerSessions::new(16))),
        || {
            let register = SingleUse::Register(Arc::new(MemoryUseOnce::with_new_keys(16)));
            let keys = RotatingTickets::new(awslc()).unwrap().with_single_use(register);
            Tickets::stateless(Arc::new(keys))
        },
    ];
    for version in [V::TLS1_3, V::TLS1_2, V::DTLS1_3, V::DTLS1_2] {
        for tickets in tickets {
            let secrets = Arc::new(Masked::default());
            let (client, server) = configs(version, &secrets, tickets());
            match version {
                V::TLS1_3 | V::TLS1_2 => over_a_stream(client, server, version == V::TLS1_3),
                _ => over_datagrams(client, server),
            }
            let logged = secrets.0.lock().unwrap().len();
            assert!(logged >= 4, "{version:?}: {logged} secrets");
            let found = found(&secrets);
            println!("{version:?}: {logged} secrets, on the heap: {found:?}");
            assert!(found.is_empty(), "{version:?}: these secrets are still on the heap: {found:?}");
        }
    }
}

/// The search finds a secret in freed memory.
fn finds_what_is_not_wiped() {
    let secrets = Masked::default();
    let mut state = 7_u8;
    let secret: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(37).wrapping_add(11);
        state
    })
    .take(48)
    .collect();
    secrets.log("not wiped", &[0; 32], &secret);
    drop(secret);
    assert_eq!(found(&secrets).into_iter().collect::<Vec<_>>(), ["not wiped"]);
}
