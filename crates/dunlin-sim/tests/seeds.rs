//! Random worlds: each seed chooses versions, authentication, settings and a bad network. `DUNLIN_SEEDS` sets
//! how many seeds run (`make soak` runs 10,000), `DUNLIN_SEED` runs a single one and prints it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use common::{App, Configs, OwnPair, profile};
use dunlin::auth::{Psk, PskTable, RawKeyTrust};
use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
use dunlin::error::Error;
use dunlin::resume::Tickets;
use dunlin::wire::PskKeyExchangeMode;
use dunlin::{
    ClientAuth, ClientConfig, ConnectionIds, DtlsConnection, NodeIds, Profile, ProfileBuilder, PskSource,
    Retransmission, ServerConfig, Side, Trust,
};
use dunlin_awslc::tls12::{TLS12_CIPHER_SUITES, TLS12_PSK_CIPHER_SUITES};
use dunlin_sim::{Conditions, Impaired, Link, Pair};
use dunlin_store::{
    MemoryClientCache, MemoryClientSessions, MemoryServerCache, MemoryServerSessions, RotatingTickets,
};
use dunlin_tests::{KeyType, Pki, awslc};

/// Afterwards nothing is lost any more.
const BAD: Duration = Duration::from_secs(60);
/// The time in which a handshake must then end.
const REPAIR: Duration = Duration::from_secs(120);
/// The time without progress after which a side gives up, above [`BAD`] and [`REPAIR`].
const GIVE_UP: Duration = Duration::from_secs(190);
/// The records that each side sends.
const RECORDS: u8 = 20;

/// How the two sides authenticate.
#[derive(Clone, Copy, Debug)]
enum Way {
    X509(KeyType),
    RawKey,
    Psk,
    PskAlone,
}

const WAYS: [Way; 6] = [
    Way::X509(KeyType::P256),
    Way::X509(KeyType::Rsa2048),
    Way::X509(KeyType::Ed25519),
    Way::RawKey,
    Way::Psk,
    Way::PskAlone,
];

/// The versions of a side.
#[derive(Clone, Copy, Debug)]
enum Versions {
    Old,
    New,
    Both,
}

/// The parameters that a seed chooses.
#[derive(Debug)]
struct World {
    way: Way,
    versions: [Versions; 2],
    cookies: bool,
    ids: [Option<usize>; 2],
    mtu: usize,
    /// The packets that the network carries, at first and after half of [`BAD`].
    path_mtu: [usize; 2],
    tickets: u8,
    cache: Option<CacheMode>,
    conditions: Conditions,
    give_up: Duration,
    connections: usize,
}

impl World {
    fn new(random: &mut fastrand::Rng, give_up: Duration) -> Self {
        let versions = match random.u8(0..5) {
            0 => [Versions::Old; 2],
            1 => [Versions::New; 2],
            2 => [Versions::Both; 2],
            3 => [Versions::Both, Versions::Old],
            _ => [Versions::Old, Versions::Both],
        };
        let mut id = || random.choice([None, Some(0), Some(1), Some(8)]).unwrap();
        let ids = [id(), id()];
        let mtu = random.choice([100, 127, 300, 600, 1200]).unwrap();
        let path_mtu = [(); 2].map(|()| random.choice([usize::MAX, usize::MAX, 1200, 600, 300]).unwrap());
        Self {
            way: random.choice(WAYS).unwrap(),
            versions,
            cookies: random.bool(),
            ids,
            mtu,
            path_mtu,
            tickets: random.u8(0..3),
            cache: random.choice([None, Some(CacheMode::Compact), Some(CacheMode::Bithac)]).unwrap(),
            conditions: Conditions {
                delay: Duration::from_millis(random.u64(1..200)),
                jitter: Duration::from_millis(random.u64(0..50)),
                loss: random.f64() * 0.4,
                reorder: random.f64() * 0.3,
                duplicate: random.f64() * 0.3,
                ..Conditions::default()
            },
            give_up,
            connections: random.usize(1..3),
        }
    }

    fn profile(&self, side: Side) -> Profile {
        let provider = awslc();
        let pki = Pki::shared(KeyType::P256);
        let (own, peer) = match side {
            Side::Client => (&pki.client, &pki.server),
            Side::Server => (&pki.server, &pki.client),
        };
        let builder = match self.way {
            Way::X509(keys) => profile(&provider, side, keys),
            Way::RawKey => {
                let trust = RawKeyTrust::Keys(vec![peer.public_key.clone()]);
                Profile::builder(provider.clone())
                    .trust(Trust { x509: None, raw_key: Some(trust) })
                    .credentials(vec![own.raw_key(&provider)])
            }
            Way::Psk | Way::PskAlone => Profile::builder(provider.clone()),
        };
        self.versioned(builder, self.versions[side as usize]).build().unwrap()
    }

    fn versioned(&self, builder: ProfileBuilder, versions: Versions) -> ProfileBuilder {
        let is_psk = matches!(self.way, Way::Psk | Way::PskAlone);
        let old: Vec<_> = match self.way {
            Way::PskAlone => {
                let alone = |name: &str| name.starts_with("TLS_PSK_");
                TLS12_PSK_CIPHER_SUITES.iter().copied().filter(|suite| alone(&suite.id.to_string())).collect()
            }
            Way::Psk => {
                let ephemeral = |name: &str| name.starts_with("TLS_ECDHE_PSK_");
                let suites = TLS12_CIPHER_SUITES.iter().chain(TLS12_PSK_CIPHER_SUITES);
                suites.copied().filter(|suite| ephemeral(&suite.id.to_string())).collect()
            }
            _ => TLS12_CIPHER_SUITES.iter().copied().filter(|suite| !suite.has_psk()).collect(),
        };
        let builder = match (is_psk, self.way) {
            (true, Way::PskAlone) => builder.psk_modes(vec![PskKeyExchangeMode::PSK_KE]),
            _ => builder,
        };
        match versions {
            Versions::Old => builder.cipher_suites(vec![]).tls12_cipher_suites(old),
            Versions::New => builder,
            Versions::Both => builder.tls12_cipher_suites(old),
        }
    }

    fn configs(&self) -> Configs {
        let [client, server] = [Side::Client, Side::Server].map(|side| self.profile(side));
        let psk = || Psk::new("d1", &[7; 32]).unwrap();
        let mut configs = match self.way {
            Way::Psk | Way::PskAlone => {
                let keys = PskSource::Here(Arc::new(PskTable::from_iter([psk()])));
                let client = ClientConfig::new(client).with_psks(vec![Arc::new(psk())]);
                Configs::new(client, ServerConfig::psk_only(server, keys).unwrap())
            }
            _ => {
                let server = ServerConfig::new(server).unwrap().with_client_auth(ClientAuth::Required);
                Configs::new(ClientConfig::new(client), server.unwrap())
            }
        };
        configs = configs.cookies(self.cookies).mtu(self.mtu);
        let retransmission =
            Retransmission::new(Duration::from_secs(1), Duration::from_secs(60), self.give_up).unwrap();
        let Configs { mut client, mut server, now } = configs;
        client = client.with_retransmission(retransmission);
        server = server.with_retransmission(retransmission);
        let ids = |len| -> Arc<dyn ConnectionIds> {
            Arc::new(NodeIds::new(&[], len, awslc().random.clone()).unwrap())
        };
        let [of_client, of_server] = self.ids;
        client = match of_client {
            Some(len) => client.with_connection_ids(ids(len)),
            None => client,
        };
        server = match of_server {
            Some(len) => server.with_connection_ids(ids(len)),
            None => server,
        };
        if self.tickets > 0 {
            client = client.with_sessions(Arc::new(MemoryClientSessions::new(2, 4)));
            server = server.with_tickets(match self.tickets {
                1 => Tickets::stateless(Arc::new(RotatingTickets::new(awslc()).unwrap())),
                _ => Tickets::stateful(Arc::new(MemoryServerSessions::new(8))),
            });
        }
        if let (Some(mode), Way::X509(_) | Way::RawKey) = (self.cache, self.way) {
            let clients = Arc::new(MemoryClientCache::default());
            let servers = Arc::new(MemoryServerCache::new(4));
            client = client.with_handshake_cache(mode, clients, DEFAULT_MAX_AGE);
            server = server.with_handshake_cache(mode, servers, DEFAULT_MAX_AGE).unwrap();
        }
        Configs { client, server, now }
    }

    /// A direction of the network: bad at first, then good.
    fn link(&self, seed: u64) -> Box<dyn Link> {
        let mut bad = Impaired::new(self.conditions, seed);
        let path_mtu = self.path_mtu;
        let delay = self.conditions.delay;
        Box::new(move |at: Duration, packet: Vec<u8>| {
            let most = if at < BAD / 2 { path_mtu[0] } else { path_mtu[1] };
            match packet.len() > most {
                true => vec![],
                false if at < BAD => bad.carry(at, packet),
                false => vec![(delay, packet)],
            }
        })
    }
}

/// The outcome of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Connected,
    GaveUp,
}

/// Runs the connections of one world, and checks what must hold in every one.
fn run(seed: u64, give_up: Duration) -> Vec<Outcome> {
    let mut random = fastrand::Rng::with_seed(seed);
    let world = World::new(&mut random, give_up);
    let mut configs = world.configs();
    (0..world.connections)
        .map(|connection| {
            let links = [world.link(random.u64(..)), world.link(random.u64(..))];
            let [to_client, to_server] = links;
            let mut pair =
                Pair::with_links(configs.client(), configs.server(), configs.now, to_client, to_server);
            pair.run_for(BAD + REPAIR).unwrap();
            let failed = |side: &DtlsConnection| match side.error() {
                None => side.is_handshaking(),
                Some(Error::TimedOut) => true,
                Some(error) => panic!("seed {seed}, connection {connection}: {error}, {world:?}"),
            };
            let outcome = if failed(&pair.client) || failed(&pair.server) {
                Outcome::GaveUp
            } else {
                Outcome::Connected
            };
            if outcome == Outcome::Connected {
                exchange(&mut pair, &mut random, &format!("seed {seed}, connection {connection}, {world:?}"));
            }
            configs.now = pair.now;
            outcome
        })
        .collect()
}

/// Both sides send records over a network that duplicates and reorders. None arrives twice or changed, and
/// all arrive.
fn exchange(pair: &mut OwnPair, random: &mut fastrand::Rng, world: &str) {
    let mut seen = [BTreeSet::new(), BTreeSet::new()];
    let record = |i: u8, len: usize| [&[i][..], &vec![i; len]].concat();
    let lengths: Vec<_> = (0..RECORDS).map(|_| random.usize(0..20)).collect();
    for (i, len) in (0..RECORDS).zip(&lengths) {
        pair.client.send(&record(i, *len)).unwrap();
        pair.server.send(&record(i, *len)).unwrap();
    }
    let copies: Vec<_> = (0..4).map(|_| random.usize(..pair.sent.len())).collect();
    for at in copies {
        let sent = pair.sent[at].clone();
        pair.inject(sent.by.peer(), sent.packet);
    }
    pair.run().unwrap();
    for (side, seen) in [&mut pair.client, &mut pair.server].into_iter().zip(&mut seen) {
        for data in side.received() {
            let i = data[0];
            assert_eq!(data, record(i, lengths[usize::from(i)]), "{world}");
            assert!(seen.insert(i), "a record came twice: {world}");
        }
        assert_eq!(seen.len(), usize::from(RECORDS), "{world}");
        assert_eq!(side.poll_timeout(), None, "{world}");
        assert_eq!(side.error(), None, "{world}");
    }
}

fn seeds(few: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
    match (number("DUNLIN_SEED"), number("DUNLIN_SEEDS")) {
        (Some(one), _) => one..one + 1,
        (None, Some(count)) => 0..count,
        (None, None) => 0..few,
    }
}

#[test]
fn every_handshake_completes_after_the_losses_end() {
    let mut stuck = Vec::new();
    for seed in seeds(150) {
        if run(seed, GIVE_UP).contains(&Outcome::GaveUp) {
            stuck.push((seed, World::new(&mut fastrand::Rng::with_seed(seed), GIVE_UP)));
        }
    }
    assert!(stuck.is_empty(), "{} seeds: {stuck:#?}", stuck.len());
}

/// Sides that give up early fail sometimes, and in no other way.
#[test]
fn impatient_handshakes_connect_or_give_up() {
    let mut counts = BTreeMap::new();
    for seed in seeds(40) {
        for outcome in run(seed + 1_000_000, Duration::from_secs(60)) {
            *counts.entry(outcome).or_insert(0_u64) += 1;
        }
    }
    println!("{counts:?}");
    assert!(counts.get(&Outcome::GaveUp).copied().unwrap_or(0) < counts[&Outcome::Connected], "{counts:?}");
}
