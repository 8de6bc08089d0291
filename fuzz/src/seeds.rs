//! The initial corpora, made from handshakes of the engine with itself. Without encryption, and with a random
//! source that counts, they are the same every time. `cargo run -p dunlin-fuzz --example seeds` writes them.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use dunlin::cache::{CacheKey, CachedServer, ClientCache, DEFAULT_MAX_AGE};
use dunlin::fuzzing::Codec;
use dunlin::{Event, Side};

use crate::end::End;
use crate::setting::{NOW, Resumption, Setting, World};
use crate::traffic::{Joiner, Unit};
use crate::wire::CODECS;

/// An input of a target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seed {
    /// The target.
    pub target: &'static str,
    /// The input.
    pub input: Vec<u8>,
}

/// Returns all inputs, except for the captures, keys and certificates of the target `files`.
pub fn all() -> BTreeSet<Seed> {
    let mut seeds = BTreeSet::new();
    let mut add = |target, input| {
        seeds.insert(Seed { target, input });
    };
    for setting in settings() {
        for target in ["client", "server"] {
            add(target, setting.clone());
        }
        // After the handshake, each kind of end once.
        for side in [0, 1] {
            add("api", [&setting[..], &[side, 1], CONVERSATION].concat());
            if setting[0] & 1 == 1 {
                add("api", [&setting[..], &[side, 1], TWICE].concat());
            } else if setting[0] >= TLS12 {
                add("api", [&setting[..], &[side, 1], HANDSHAKES].concat());
            }
        }
        let (messages, packets) = traffic(&setting);
        messages.into_iter().for_each(|input| add("wire", input));
        // Over datagrams.
        if setting[0] & 1 == 1 {
            add("endpoint", [&setting[..], &[0, 0], MOVES].concat());
            // In each version once: every way to keep an association, every length of IDs, and several
            // interfaces.
            if setting[1..] == [2, 0, 0] && [1, TLS12 | 1].contains(&setting[0]) {
                let shapes = (4..8).map(|ports| [ports, 0]).chain([8, 16, 24].map(|ids| [ids, 1]));
                let homes =
                    [32, 64, 96].into_iter().flat_map(|homes| [[homes | 24, 0], [homes, 1], [homes | 16, 2]]);
                for shape in shapes.chain(homes) {
                    add("endpoint", [&setting[..], &shape, MOVES, JOURNEY].concat());
                }
            }
        }
        // For each transport once: all bytes of one direction, in hexadecimal.
        if setting[1..] == [2, 0, 0] && setting[0] < 2 {
            packets.into_iter().for_each(|packet| add("files", [&[1], hex(&packet).as_bytes()].concat()));
        }
    }
    for withheld in 1..=4 {
        let tls13 = [[0, 2, 0, 0], [2, 2, 0, 0], [4, 0, 0, 0], [9, 0, 0, 0]];
        let cached = [0, 1, TLS12].map(|first| [first, COMPACT | 2, 0, 0]);
        for setting in tls13.into_iter().chain([0, 6, 8].map(|way| [TLS12 | way, 2, 0, 0])).chain(cached) {
            for target in ["client", "server"] {
                add(target, [&setting[..], &[withheld]].concat());
            }
        }
    }
    for (kind, suite) in [(0, 0), (0, 4), (1, 0), (1, 1), (1, 4)] {
        add("record", [&[kind, suite, 0, 1], RECORDS].concat());
        add("record", [&[kind, suite, 40, 0], RECORDS].concat());
    }
    for (version, own, peers) in [(0, 0, 0), (0, 4, 8), (1, 0, 0), (1, 4, 8)] {
        for suite in [0, 2, 4] {
            add("datagram", [&[version, 0, suite, own, peers], DATAGRAMS].concat());
        }
        add("datagram", [&[version, 1, 0, own, peers], DATAGRAMS].concat());
    }
    crate::identity::seeds().into_iter().for_each(|(target, input)| add(target, input));
    crate::operations::seeds().into_iter().for_each(|input| add("operations", input));
    for first in [0, 2, 3, 7] {
        add("fragments", [&[first], FRAGMENTS].concat());
    }
    seeds
}

/// Steps for the target `datagram`: data, delivered in another order and twice, and forgeries.
const DATAGRAMS: &[u8] = &[
    0, 3, 1, 2, 3, 0, 0, 0, 2, 8, 9, // three datagrams
    2, 1, 2, 0, 2, 1, // delivered
    4, 2, 0, 0x3f, 4, 2, 5, 1, 4, 2, 12, 0, // changed
    7, 20, 22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 9, 0, 7, 1, 0, 0, 1, 0, 1, 0, // in the clear
    7, 3, 0x2f, 1, 2, 2, 2,
];

/// Steps for the target `endpoint`: handshakes, data, a move, forgeries, a forwarded copy, and a client that
/// begins anew.
const MOVES: &[u8] = &[
    0, 0, 2, 0, 0, 2, 0, 0, 2, 0, 0, 0, 0, 2, 0, 0, 2, 0, 0, 2, 0, 0, 0, 0, 2, 0, 0, 2, 0, 0, 2, 0, 0, 0,
    0, // cookies
    2, 0, 0, 2, 0, 0, 2, 0, 0, 2, 0, 0, 2, 0, 0, 2, 0, 0, 0, 0, 2, 0, 0, 2, 0, 0, 2, 0, 0, 0,
    0, // handshakes
    11, 0, 20, 0, 0, 2, 0, 0, 2, 0, 0, 2, 0, 0, 2, 0, 0, 0, 0, 2, 0, 0, 2, 0, 0, // what is left
    6, 0, 2, 7, 8, 0, 0, 2, 0, 0, 5, 0, 6, 0, 1, 9, 0, 0, 10, 0, 0, 1, 2, 0, 0, 0,
    0, // data before and after a move
    7, 1, 20, 22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 9, 0, 7, 1, 0, 0, 1, 0, 1, 0, 2, 9, 1, 3, 0, 20, 7,
    4, // forgeries
    0, 0, 11, 0, 15, 0, 0, 2, 0, 0, 13, 0, 3, 0x2f, 1, 2, 12, 2, 1, 0, 0, 2, 0, 0, 11, 0, 9, 0, 0, 2, 0, 0,
];

/// More steps for the target `endpoint`: interfaces that go and come, data of the server, copies from
/// elsewhere, frozen associations, and new connection IDs and keys.
const JOURNEY: &[u8] = &[
    6, 0, 1, 7, 0, 0, 10, 0, 0, 1, 0, 0, 2, 0, 0, 18, 0, 0, 0, 10, 0, 1, 2, 2, 0, 0, // data, and copies
    14, 0, 6, 0, 0, 10, 0, 0, 0, 2, 0, 0, 6, 0, 1, 8, 0, 0, 2, 0, 0, 5, 0, 1, 15, 0, 1, 0, 0, 2, 0,
    0, // interfaces
    11, 0, 30, 0, 0, 2, 0, 0, 16, 0, 17, 0, 6, 0, 1, 9, 0, 0, 2, 0, 0, 18, 0, 0, 0, 2, 0, 0, // frozen
    19, 0, 1, 0, 0, 2, 0, 0, 19, 0, 10, 0, 0, 2, 0, 0, 19, 0, 6, 0, 0, 2, 0, 0, 14, 0, 7, 0, 0, 2, 0, 0,
];

/// Messages and steps for the target `fragments`.
const FRAGMENTS: &[u8] = &[
    2, 1, 0, 100, 11, 1, 0, 20, 0, 0, // three messages
    0, 0, 0, 40, 60, 10, 0, 1, 0, 200, 0, 0, 9, // a piece, and a forged one
    0, 1, 0, 0, 50, 0, 30, 20, 15, 1, // two pieces of one record, and a whole message
    0, 0, 0, 0, 90, 15, 2, 12, 1, 11, 0, 50, 7, 0, 20, 14, 4, 1, 2, 3, 4,
];

/// Calls for the target `api`: data, KeyUpdates, and the ends, each delivered and read.
const CONVERSATION: &[u8] = &[
    0, 6, 1, 0, 7, 0, 0, 1, 2, 0, 0xff, 0xff, 1, 3, // data from the client
    1, 8, 1, 1, 0, 0, 2, 0, 0xff, 0xff, 0, 4, 0, 0, 1, 2, 0, 0xff, 0xff, // a KeyUpdate of both
    1, 6, 0, 5, 9, 1, 0, 0, 2, 0, 0, 9, 0, 2, 0, 0xff, 0xff, 0, 3, // data from the server, in pieces
    0, 11, 0, 9, 0, 0, 1, 2, 0, 0xff, 0xff, 1, 4, 1, 9, // an exporter, and the ends
];

/// Calls for the target `api`, over datagrams: data that arrive twice, the second time after other data.
const TWICE: &[u8] = &[
    0, 6, 0, 9, 1, 0, 6, 0, 8, 2, 0, 0, 1, 13, 0, // two pieces of data, the first of them twice
    1, 2, 0, 0, 0, 1, 2, 0, 0, 0, 1, 2, 0, 0, 0, 1, 3, // delivered and read
];

/// Calls for the target `api`, over streams: renegotiations by either side, with data between.
const HANDSHAKES: &[u8] = &[
    0, 12, 0, 6, 0, 9, 1, 1, 6, 0, 9, 2, 0, 0, 1, 2, 0, 0xff, 0xff, 1, 3, // the client's
    1, 12, 1, 6, 0, 9, 3, 1, 0, 0, 2, 0, 0xff, 0xff, 0, 3, 0, 0, 1, 12, 0, 12, // the server's, and both
];

/// Steps for the target `record`: messages and data out of order, acknowledgements, and new keys.
const RECORDS: &[u8] = &[
    0, 11, 3, 0, 0, 20, 0, 40, 3, // two messages in a flight
    5, 1, 6, 0, 5, 0, 7, 2, // one packet before the other, one twice, one lost
    2, 5, 1, 2, 3, 4, 5, 4, 0, // data
    15, 10, 1, 2, 3, 7, 8, 9, 4, 0, 15, // acknowledgements, new keys, data
    2, 2, 9, 9, 6, 0, 4, 0, 4, 0, // data that comes twice
    9, 3, 0x2e, 1, 2, 8, 0, 0, 1, 9, 4, 0, // forgeries
];

/// Returns every combination of authentication, resumption and transport, then the special features one at a
/// time and together.
fn settings() -> Vec<Vec<u8>> {
    let plain = (0..32).map(|first| Setting::write(first, 2, 0));
    let special = [0, 1, TLS12, TLS12 | 1].into_iter().flat_map(|first| {
        (0..16)
            .map(move |bit| Setting::write(first, 2, 1 << bit))
            .chain([4, 8, 12].map(|suite| Setting::write(first, suite, 0)))
    });
    let together = (0..32).map(|first| Setting::write(first, 1, 0x1f7c));
    // A session carries early data over streams.
    let early = [8, 10, 12, 16, 24].map(|first| Setting::write(first, 0, 1 << 12));
    // TLS 1.2 over streams: every kind of resumption, and every key exchange.
    let resumed = (0..16).map(|way| Setting::write(TLS12 | way << 1, 2, 1 << 14));
    let exchanges = (2..8).flat_map(|exchange| (0..4).map(move |way| (exchange << 5 | way << 1, way << 2)));
    let exchanged = exchanges.map(|(first, suite)| Setting::write(first, suite | 2, 0));
    // The handshake cache in each mode, and in the first mode with everything else that decides which
    // certificates are omitted.
    let ways = [0, 1, 2, 3, TLS12, TLS12 | 1, TLS12 | 2];
    let cached =
        ways.into_iter().flat_map(|first| (1..4).map(move |mode| Setting::write(first, mode << 4 | 2, 0)));
    let beside = ways.into_iter().flat_map(|first| {
        let suited = [0, 1, 2, 3, 5, 9, 14, 15].map(|bit| Setting::write(first, COMPACT | 1, 1 << bit));
        suited.into_iter().chain([Setting::write(first | 8, COMPACT | 2, 0)])
    });
    // DTLS 1.2 likewise, with a cookie and with connection IDs.
    let dtls = (0..16).map(|way| Setting::write(TLS12 | way << 1 | 1, 2, 1 << 14));
    let versions =
        (2..8).flat_map(|exchange| (0..4).map(move |way| (exchange << 5 | way << 1 | 1, way << 2)));
    let versions = versions.map(|(first, suite)| Setting::write(first, suite | 2, 1 << 14 | 2));
    // Credentials and bare identifiers in messages of their own, over streams and datagrams, with proofs,
    // asked for, and resumed.
    const SSI: u16 = 1 << 3;
    let identities = [2, 3, 10].into_iter().flat_map(|first| {
        let flags = [0, 1 << 9, 1 << 5, 1].into_iter().flat_map(|flag| [flag, flag | 1 << 15]);
        flags.map(move |flags| Setting::write(first, 2, flags | SSI))
    });
    let all = plain
        .chain(special)
        .chain(dtls)
        .chain(versions)
        .chain(together)
        .chain(early)
        .chain(resumed)
        .chain(exchanged);
    all.chain(cached).chain(beside).chain(identities).collect()
}

/// The second byte of a setting with the handshake cache in mode compact.
const COMPACT: u8 = 1 << 4;

/// The client's cache entry for the one server.
#[derive(Debug, Default)]
struct Kept(Mutex<Option<(CacheKey, CachedServer)>>);

impl ClientCache for Kept {
    fn update(&self, key: &CacheKey, change: &mut dyn FnMut(&mut CachedServer)) {
        let mut kept = self.0.lock().unwrap();
        change(&mut kept.get_or_insert_with(|| (key.clone(), CachedServer::default())).1);
    }
}

/// The first byte of a setting with only TLS 1.2, ECDHE, and X.509.
const TLS12: u8 = 1 << 5;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the messages of a handshake, and the sessions and cache entries that it stored, as inputs of
/// `wire`; and its packets.
fn traffic(setting: &[u8]) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let setting = Setting::read(&mut crate::script::Script::new(setting));
    let mut world = World::new(setting, Side::Server);
    let kept = Arc::new(Kept::default());
    if let Some(mode) = setting.cache {
        let client = (*world.client).clone();
        world.client = Arc::new(client.with_handshake_cache(mode, kept.clone(), DEFAULT_MAX_AGE));
    }
    let mut inputs = Vec::new();
    let mut packets = Vec::new();
    for _ in 0..2 {
        let mut ends = [Side::Client, Side::Server].map(|side| End::new(&world, side, NOW));
        let mut joiners = [(); 2].map(|()| Joiner::new(&setting));
        let mut is_quiet = false;
        while !is_quiet {
            is_quiet = true;
            for (from, to) in [(0, 1), (1, 0)] {
                while let Some(packet) = ends[from].transmit(usize::MAX) {
                    is_quiet = false;
                    for unit in joiners[from].join(&packet) {
                        let Unit::Message(message) = unit else { continue };
                        inputs.extend(
                            codecs(&setting, message.typ)
                                .into_iter()
                                .map(|codec| input(codec, &message.body)),
                        );
                    }
                    ends[to].receive(NOW, &packet).unwrap();
                    packets.push(packet);
                }
                while let Some(event) = ends[to].poll_event() {
                    match event {
                        Event::Question(id, question) => {
                            is_quiet = false;
                            ends[to].answer(NOW, id, world.answer(&question)).unwrap();
                        }
                        Event::NewSession(id, session) => {
                            let bytes = session.to_bytes().unwrap();
                            inputs.push(input(Codec::Session, &bytes));
                            // With a ticket of one byte before it.
                            inputs.push(input(Codec::ClientSession, &[&[0, 1, 9], &bytes[..]].concat()));
                            // Without the settings and the peer's chain.
                            let chain_len = usize::from(bytes[33]) << 8 | usize::from(bytes[34]);
                            inputs.push(input(Codec::Ticket, &bytes[35 + chain_len..]));
                            world.sessions.insert(id, session);
                        }
                        _ => {}
                    }
                }
            }
        }
        if setting.resumption == Resumption::None && setting.cache.is_none() {
            break;
        }
    }
    if let Some((key, server)) = &*kept.0.lock().unwrap() {
        inputs.push(input(Codec::CachedServer, &server.to_bytes(&key.settings).unwrap()));
        inputs.extend(server.server().map(|peer| input(Codec::CachedPeer, &peer.to_bytes().unwrap())));
    }
    (inputs, packets)
}

/// Returns the codecs that read a message of this type.
fn codecs(setting: &Setting, typ: u8) -> Vec<Codec> {
    let kind = setting.kind;
    match typ {
        // Messages that TLS 1.2 encodes differently.
        4 | 11 | 13 if setting.tls12.is_some() => Vec::new(),
        1 => vec![Codec::ClientHello(kind)],
        2 => vec![Codec::ServerHello(kind)],
        4 => vec![Codec::NewSessionTicket],
        8 => vec![Codec::EncryptedExtensions],
        11 => vec![Codec::Certificate, Codec::RawPublicKey],
        13 => vec![Codec::CertificateRequest],
        15 | 33 => vec![Codec::CertificateVerify],
        24 => vec![Codec::KeyUpdate],
        25 => vec![Codec::CompressedCertificate],
        30 => vec![Codec::Did],
        31 => vec![Codec::Vc],
        32 => vec![Codec::SsiRequest],
        _ => Vec::new(),
    }
}

fn input(codec: Codec, bytes: &[u8]) -> Vec<u8> {
    let place = CODECS.iter().position(|c| *c == codec).unwrap_or_default();
    [&[place as u8], bytes].concat()
}

/// Returns the name of an input in a corpus: its 64-bit FNV-1a hash in hexadecimal.
pub fn name(input: &[u8]) -> String {
    let hash = input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}
