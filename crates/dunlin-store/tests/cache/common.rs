//! Tests for every store, with entries of real handshakes.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dunlin::cache::{
    CacheKey, CacheMode, CachedPeer, CachedServer, ClientCache, DEFAULT_MAX_AGE, ServerCache, Ticket,
};
use dunlin::{ClientAuth, ClientConfig, Profile, ProfileBuilder, ServerConfig, Side, TlsConnection, Trust};
use dunlin_store::cache::{
    CacheFault, MemoryClientCache, MemoryServerCache, Owner, Record, RecordName, Records, Report,
    SealedClientCache, SealedServerCache, Sealer,
};
use dunlin_tests::{KeyType, NOW, Pair, Pki, awslc};
use zeroize::Zeroizing;

pub(crate) fn sealer(key: u8) -> Sealer {
    Sealer::new(awslc(), &Zeroizing::new([key; 32])).unwrap()
}

/// A report for tests without failures.
pub(crate) fn no_fault() -> Report {
    Box::new(|fault| panic!("{fault}"))
}

/// Collects the reports.
#[derive(Clone, Default)]
pub(crate) struct Faults(Arc<Mutex<Vec<String>>>);

impl Faults {
    pub(crate) fn report(&self) -> Report {
        let faults = Arc::clone(&self.0);
        Box::new(move |fault| faults.lock().unwrap().push(fault.to_string()))
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn profile(pki: &Pki, peer: &Pki, is_client: bool) -> ProfileBuilder {
    let own = if is_client { &pki.client } else { &pki.server };
    let trust = Trust { x509: Some(peer.trust()), raw_key: None };
    Profile::builder(awslc()).trust(trust).credentials(vec![own.x509(&awslc())])
}

/// A client that the server trusts, with this cache.
pub(crate) fn client(pki: &Pki, cache: Arc<dyn ClientCache>) -> Arc<ClientConfig> {
    let profile = profile(pki, Pki::shared(KeyType::P256), true);
    Arc::new(ClientConfig::new(profile.build().unwrap()).with_handshake_cache(
        CacheMode::Compact,
        cache,
        DEFAULT_MAX_AGE,
    ))
}

/// A server that trusts clients of this PKI.
pub(crate) fn server(clients: &Pki, cache: Arc<dyn ServerCache>) -> Arc<ServerConfig> {
    let profile = profile(Pki::shared(KeyType::P256), clients, false);
    let config = ServerConfig::new(profile.build().unwrap()).unwrap();
    let config = config.with_handshake_cache(CacheMode::Compact, cache, DEFAULT_MAX_AGE).unwrap();
    Arc::new(config.with_client_auth(ClientAuth::Required).unwrap())
}

/// Connects, and returns whether the server's and the client's certificates were cached.
pub(crate) fn connect(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>) -> [bool; 2] {
    let mut pair = Pair::new(client, server);
    pair.connect().unwrap();
    pair.echo(b"hello").unwrap();
    [&pair.client, &pair.server].map(|end| end.negotiated().unwrap().is_peer_cached())
}

/// A server's cache that records each ticket with its client.
#[derive(Debug)]
pub(crate) struct Noted<C>(C, Mutex<Vec<(Ticket, CachedPeer)>>);

impl<C> Noted<C> {
    pub(crate) fn new(cache: C) -> Self {
        Self(cache, Mutex::default())
    }

    pub(crate) fn given(&self) -> Vec<(Ticket, CachedPeer)> {
        self.1.lock().unwrap().clone()
    }
}

impl<C: Deref<Target: ServerCache> + fmt::Debug + Send + Sync> ServerCache for Noted<C> {
    fn find(&self, ticket: &Ticket) -> Option<CachedPeer> {
        self.0.find(ticket)
    }

    fn put(&self, ticket: Ticket, client: CachedPeer, proven: Option<Ticket>) {
        self.1.lock().unwrap().push((ticket, client.clone()));
        self.0.put(ticket, client, proven);
    }
}

/// A store that lets a test read and change all records, like an attacker with the database but without the
/// key.
#[derive(Debug)]
pub(crate) struct Open<R> {
    inner: R,
    all: Mutex<BTreeMap<RecordName, (Owner, Vec<u8>)>>,
}

impl<R: Records> Open<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self { inner, all: Mutex::default() }
    }

    pub(crate) fn names(&self) -> Vec<RecordName> {
        self.all.lock().unwrap().keys().copied().collect()
    }

    pub(crate) fn bytes(&self, name: &RecordName) -> Vec<u8> {
        self.inner.get(name).unwrap()
    }

    /// Overwrites a record, and keeps the other records of its owner.
    pub(crate) fn write(&self, name: RecordName, bytes: Vec<u8>) {
        let all = self.all.lock().unwrap();
        let (owner, _) = all[&name];
        let others = all.iter().filter(|(other, (of, _))| **other != name && of.name == owner.name);
        let others =
            others.filter_map(|(name, _)| Some(Record { name: *name, bytes: self.inner.get(name)? }));
        let records: Vec<_> = [Record { name, bytes }].into_iter().chain(others).collect();
        self.inner.put(&owner, &records, &[]);
    }
}

impl<R: Records> Records for Open<R> {
    fn get(&self, name: &RecordName) -> Option<Vec<u8>> {
        self.inner.get(name)
    }

    fn put(&self, owner: &Owner, records: &[Record], stale: &[RecordName]) -> bool {
        let mut all = self.all.lock().unwrap();
        stale.iter().for_each(|name| drop(all.remove(name)));
        all.extend(records.iter().map(|r| (r.name, (*owner, r.bytes.clone()))));
        self.inner.put(owner, records, stale)
    }
}

/// The tests that every store at a path passes, for a module with `place`, `open` and `open_as`.
macro_rules! tests_at_a_path {
    () => {
        #[test]
        fn entries_survive_a_restart() {
            let (_directory, path) = place();
            let open = |side, report| open_as(&common::of_side(&path, side), side, report).unwrap();
            assert_eq!(common::entries_survive_a_restart(open), common::other_key(&path));
        }

        #[test]
        fn a_writer_without_the_key_forges_no_peer() {
            let (_directory, path) = place();
            let foreign = open(&path.with_extension("foreign"));
            common::a_writer_without_the_key_forges_no_peer(open(&path), foreign);
        }

        #[test]
        fn four_endpoints_know_one_client() {
            let (_directory, path) = place();
            common::four_endpoints_know_one_client(open(&path));
        }

        #[test]
        fn keeps_one_entry_for_each_client() {
            let (_directory, path) = place();
            common::keeps_one_entry_for_each_client(open(&path));
        }

        #[test]
        fn replayed_tickets_change_nothing() {
            let (_directory, path) = place();
            common::replayed_tickets_change_nothing(open(&path));
        }

        #[test]
        fn evicts_from_the_largest_group() {
            let (_directory, path) = place();
            common::evicts_from_the_largest_group(&open(&path));
        }

        #[test]
        fn refuses_the_store_of_the_other_side() {
            let (_directory, path) = place();
            common::refuses_the_store_of_the_other_side(&path, |side, report| open_as(&path, side, report));
        }

        #[test]
        fn a_write_replaces_all_records_of_an_owner() {
            let (_directory, path) = place();
            common::a_write_replaces_all_records_of_an_owner(&open(&path));
        }

        #[test]
        fn an_entry_that_cannot_be_stored_removes_the_previous_one() {
            let (_directory, path) = place();
            common::an_entry_that_cannot_be_stored_removes_the_previous_one(open(&path));
        }

        #[test]
        fn an_owner_without_records_takes_no_capacity() {
            let (_directory, path) = place();
            common::an_owner_without_records_takes_no_capacity(&open(&path));
        }
    };
}

pub(crate) use tests_at_a_path;

/// Tests both caches, each in a store that `open` opens again each time, as after a restart. Returns the
/// reports of the first use with another key.
pub(crate) fn entries_survive_a_restart<R: Records + 'static>(
    open: impl Fn(Side, Report) -> R,
) -> Vec<String> {
    let pki = Pki::shared(KeyType::P256);
    let faults = Faults::default();
    let ends = |key| {
        let clients = Arc::new(SealedClientCache::new(open(Side::Client, faults.report()), sealer(key)));
        let servers = Arc::new(SealedServerCache::new(open(Side::Server, faults.report()), sealer(key)));
        (client(pki, clients), server(pki, servers))
    };
    let (c, s) = ends(1);
    assert_eq!(connect(&c, &s), [false; 2]);
    for _ in 0..4 {
        let (c, s) = ends(1);
        assert_eq!(connect(&c, &s), [true; 2]);
        assert_eq!(connect(&c, &s), [true; 2]);
    }
    assert_eq!(faults.take(), [""; 0]);
    // With another key the cache is empty, and the entries under the first key stay.
    let (c, s) = ends(2);
    let told = faults.take();
    assert_eq!(connect(&c, &s), [false; 2]);
    for key in [1, 2] {
        let (c, s) = ends(key);
        assert_eq!(connect(&c, &s), [true; 2]);
    }
    assert_eq!(faults.take(), [""; 0]);
    told
}

/// The result of [`entries_survive_a_restart`] for a file or a database: a report from each of the two
/// caches.
pub(crate) fn other_key(path: &Path) -> [String; 2] {
    let told = |path: PathBuf| {
        format!("{}: no entry in this store opens with this key: the cache starts empty", path.display())
    };
    [Side::Client, Side::Server].map(|side| told(of_side(path, side)))
}

/// The path of this side's store.
pub(crate) fn of_side(path: &Path, side: Side) -> PathBuf {
    path.with_extension(format!("{side:?}"))
}

/// Neither side opens the store of the other, nor changes it.
pub(crate) fn refuses_the_store_of_the_other_side<R: Records>(
    path: &Path,
    open: impl Fn(Side, Report) -> Result<R, CacheFault>,
) {
    let (owner, record) = owner(1, 0);
    for side in [Side::Client, Side::Server] {
        let store = open(side, no_fault()).unwrap();
        let other = open(side.peer(), no_fault()).map(drop).unwrap_err();
        assert_eq!(other, CacheFault::OtherSide { store: path.to_owned(), of: side });
        assert!(store.put(&owner, std::slice::from_ref(&record), &[]));
        drop(store);
        assert!(open(side.peer(), no_fault()).is_err());
        assert_eq!(open(side, no_fault()).unwrap().get(&owner.name).as_ref(), Some(&record.bytes));
        std::fs::remove_file(path).unwrap();
    }
}

/// Stores the server of one handshake.
#[derive(Debug, Default)]
struct Seen(Mutex<CachedServer>);

impl ClientCache for Seen {
    fn update(&self, _: &CacheKey, change: &mut dyn FnMut(&mut CachedServer)) {
        change(&mut self.0.lock().unwrap());
    }
}

/// An entry that cannot be stored removes the previous one.
pub(crate) fn an_entry_that_cannot_be_stored_removes_the_previous_one<R: Records>(store: R) {
    let pki = Pki::shared(KeyType::P256);
    let seen = Arc::new(Seen::default());
    connect(&client(pki, seen.clone()), &server(pki, Arc::new(MemoryServerCache::new(1))));
    let entry = seen.0.lock().unwrap().clone();
    let settings = *entry.server().unwrap().settings().as_bytes();
    let key = CacheKey { name: "name".to_owned(), port: 1, settings };
    let cache = SealedClientCache::new(store, sealer(1));
    cache.update(&key, &mut |kept| kept.clone_from(&entry));
    assert!(cache.take(&key).is_some());
    let bytes = entry.to_bytes(&settings).unwrap();
    let other = CachedServer::from_bytes(&bytes, &[1; 32]).unwrap();
    cache.update(&key, &mut |kept| kept.clone_from(&other));
    assert!(cache.take(&key).is_none());
}

/// A client whose store cannot be written shows no ticket twice. `fails` makes the store fail or work again.
pub(crate) fn shows_no_ticket_twice_after_a_failed_write<R: Records + 'static>(
    store: R,
    fails: impl Fn(bool),
) {
    let pki = Pki::shared(KeyType::P256);
    let store = Arc::new(store);
    let cache = Arc::new(SealedClientCache::new(Arc::clone(&store), sealer(1)));
    let servers = Arc::new(Noted::new(Arc::new(MemoryServerCache::new(8))));
    let client = client(pki, cache);
    let server = server(pki, servers.clone());
    assert_eq!(connect(&client, &server), [false; 2]);
    fails(true);
    assert_eq!(connect(&client, &server), [true; 2]);
    // The server still knows the previous ticket, so it would accept it.
    let (first, peer) = servers.given()[0].clone();
    for _ in 0..4 {
        servers.put(first, peer.clone(), None);
        assert_eq!(connect(&client, &server), [true, false]);
    }
    fails(false);
    let (owner, record) = owner(1, 0);
    write_until_stored(&*store, &owner, &record);
    connect(&client, &server);
    assert_eq!(connect(&client, &server), [true; 2]);
}

/// Rule 9: an attacker who can write the store, but lacks its key, cannot forge a client or a server.
pub(crate) fn a_writer_without_the_key_forges_no_peer<R: Records + 'static>(store: R, foreign: R) {
    let pki = Pki::shared(KeyType::P256);
    let other = Pki::shared(KeyType::Ed25519);
    let store = Arc::new(Open::new(store));
    let cache = Arc::new(Noted::new(Arc::new(SealedServerCache::new(Arc::clone(&store), sealer(1)))));
    let one = client(pki, Arc::new(SealedClientCache::new(Arc::clone(&store), sealer(1))));
    let two = client(other, Arc::new(MemoryClientCache::default()));
    let server_one = server(pki, cache.clone());
    let server_two = server(other, cache.clone());
    // Two clients with two tickets each: one of their own, and one of another endpoint.
    let elsewhere = |pki| client(pki, Arc::new(MemoryClientCache::default()));
    for (one, two) in [(&one, &two), (&elsewhere(pki), &elsewhere(other))] {
        connect(one, &server_one);
        connect(two, &server_two);
    }
    let tickets = cache.given();
    let believed = || tickets.iter().map(|(t, _)| cache.find(t)).collect::<Vec<_>>();
    let right: Vec<_> = tickets.iter().map(|(_, peer)| Some(peer.fingerprint()).copied()).collect();
    let found: Vec<_> = believed().iter().map(|p| p.as_ref().map(|p| *p.fingerprint())).collect();
    assert_eq!(found, right);

    // Put every record in the place of every other one: clients, servers, lists of tickets.
    let names = store.names();
    let honest: Vec<_> = names.iter().map(|name| store.bytes(name)).collect();
    assert_eq!(names.len(), 2 * 3 + 1);
    for (name, own) in names.iter().zip(&honest) {
        let before = believed();
        for forged in honest.iter().filter(|bytes| *bytes != own) {
            store.write(*name, forged.clone());
            for (before, now) in before.iter().zip(believed()) {
                assert!(now.is_none() || now == *before);
            }
            // Writing may remove the record of a ticket; restore it.
            store.write(*name, own.clone());
        }
        assert_eq!(believed(), before);
    }
    let lost = names.iter().zip(&honest).filter(|(name, own)| {
        store.write(**name, honest.iter().find(|bytes| bytes != own).unwrap().clone());
        let lost = believed().iter().any(Option::is_none);
        store.write(**name, own.to_vec());
        lost
    });
    assert_eq!(lost.count(), 4);

    // The attacker seals the same tickets under a key of its own, for its own clients.
    let mallory = Arc::new(Open::new(foreign));
    let forge = SealedServerCache::new(Arc::clone(&mallory), sealer(9));
    for (ticket, peer) in &tickets {
        forge.put(*ticket, peer.clone(), None);
    }
    for name in &names {
        for forged in mallory.names() {
            store.write(*name, mallory.bytes(&forged));
            assert!(
                believed()
                    .iter()
                    .zip(&right)
                    .all(|(p, right)| p.as_ref().is_none_or(|p| Some(*p.fingerprint()) == *right))
            );
        }
    }
    // Now every record is forged, so the server knows no client and handshakes are full.
    assert!(believed().iter().all(Option::is_none));
    assert_eq!(connect(&one, &server_one), [false; 2]);
    assert_eq!(connect(&one, &server_one), [true; 2]);
}

/// Four endpoints share one store: all know a client that moves from one to another.
pub(crate) fn four_endpoints_know_one_client<R: Records + 'static>(store: R) {
    let pki = Pki::shared(KeyType::P256);
    let server = server(pki, Arc::new(SealedServerCache::new(store, sealer(1))));
    // The client has one cache for each endpoint.
    let endpoints = [(); 4].map(|()| client(pki, Arc::new(MemoryClientCache::default())));
    for round in 0..4 {
        for client in &endpoints {
            assert_eq!(connect(client, &server), [round > 0; 2]);
        }
    }
    for turn in [0, 0, 3, 1, 1, 1, 2, 0, 3] {
        assert_eq!(connect(&endpoints[turn], &server), [true; 2]);
    }
}

/// A client has one entry for its key, whatever else its certificate says and whichever CA issued it. A
/// ticket is bound to one Certificate.
pub(crate) fn keeps_one_entry_for_each_client<R: Records + 'static>(store: R) {
    let pki = Pki::shared(KeyType::P256);
    let store = Arc::new(Open::new(store));
    let cache = Arc::new(Noted::new(Arc::new(SealedServerCache::new(Arc::clone(&store), sealer(1)))));
    connect(&client(pki, Arc::new(MemoryClientCache::default())), &server(pki, cache.clone()));
    let (_, peer) = cache.given()[0].clone();
    for number in 0..100u8 {
        let mut bytes = peer.to_bytes().unwrap();
        bytes[1] = number % 3;
        // Always another fingerprint: the cache keeps several tickets of one Certificate.
        bytes[CachedPeer::SHARED_LEN] ^= number + 1;
        let client = CachedPeer::from_bytes(&bytes, peer.settings().as_bytes()).unwrap();
        cache.put([number; 8], client.clone(), None);
        assert_eq!(store.names().len(), 2);
        assert_eq!(cache.find(&[number; 8]), Some(client));
        assert_eq!(cache.find(&[number.wrapping_sub(1); 8]), None);
    }
}

/// Rules 5 and 8: an observer that replays a ticket changes nothing in the store.
pub(crate) fn replayed_tickets_change_nothing<R: Records + 'static>(store: R) {
    let pki = Pki::shared(KeyType::P256);
    let store = Arc::new(Open::new(store));
    let server = server(pki, Arc::new(SealedServerCache::new(Arc::clone(&store), sealer(1))));
    let client = client(pki, Arc::new(MemoryClientCache::default()));
    connect(&client, &server);
    let mut pair = Pair::new(&client, &server);
    let hello = pair.client.transmit().to_vec();
    let contents = || store.names().iter().map(|name| store.bytes(name)).collect::<Vec<_>>();
    let before = contents();
    for _ in 0..100 {
        let mut observed = TlsConnection::server(&server, NOW);
        observed.receive(NOW, &hello).unwrap();
        // A message that does not belong to the handshake ends it.
        let garbage = [23, 3, 3, 0, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        observed.receive(NOW, &garbage).unwrap_err();
    }
    assert_eq!(contents(), before);
    pair.connect().unwrap();
    assert!(pair.server.negotiated().unwrap().is_peer_cached());
}

/// An owner of this group with one record.
pub(crate) fn owner(group: u8, number: u32) -> (Owner, Record) {
    let mut name = [group; 16];
    name[..4].copy_from_slice(&number.to_be_bytes());
    (Owner { name, group: [group; 8] }, Record { name, bytes: number.to_be_bytes().repeat(8) })
}

/// Rule 8: the store evicts the least recently written owner of the largest group. `store` has room for
/// eight.
pub(crate) fn evicts_from_the_largest_group(store: &impl Records) {
    let put = |group, number| {
        let (owner, record) = owner(group, number);
        store.put(&owner, &[record], &[]);
    };
    let there = |group, number| store.get(&owner(group, number).0.name).is_some();
    (0..3).for_each(|n| put(1, n));
    (0..100).for_each(|n| put(2, n));
    assert!((0..3).all(|n| there(1, n)));
    assert_eq!((0..100).filter(|n| there(2, *n)).collect::<Vec<_>>(), [95, 96, 97, 98, 99]);
    // A look-up does not make an owner newer; a write does.
    assert!(there(2, 95));
    put(2, 96);
    put(2, 100);
    assert!(!there(2, 95));
    put(2, 101);
    assert!(there(2, 96) && !there(2, 97) && (0..3).all(|n| there(1, n)));
}

/// A limit longer than any pause of a store.
const PATIENT: Duration = Duration::from_secs(60);

/// Writes until the store accepts it: it may pause after a failure.
pub(crate) fn write_until_stored(store: &impl Records, owner: &Owner, record: &Record) {
    let mut changed = record.clone();
    changed.bytes.push(0);
    let until = Instant::now() + PATIENT;
    while store.get(&owner.name).as_ref() != Some(&changed.bytes) {
        assert!(Instant::now() < until);
        store.put(owner, std::slice::from_ref(&changed), &[]);
    }
}

/// A write replaces all records of an owner, also another writer's records.
pub(crate) fn a_write_replaces_all_records_of_an_owner(store: &impl Records) {
    let (one, first) = owner(1, 0);
    let more = |number: u8| Record { name: [number; 16], bytes: vec![number; 9] };
    for number in 10..30 {
        store.put(&one, &[first.clone(), more(number)], &[]);
        assert_eq!(store.get(&first.name).as_ref(), Some(&first.bytes));
        assert_eq!(store.get(&[number; 16]), Some(more(number).bytes));
        assert_eq!(store.get(&[number - 1; 16]), None);
    }
}

/// A removed owner frees its place. `store` has room for eight.
pub(crate) fn an_owner_without_records_takes_no_capacity(store: &impl Records) {
    let [(gone, record), (stays, other)] = [owner(1, 0), owner(1, 1)];
    store.put(&gone, std::slice::from_ref(&record), &[]);
    store.put(&stays, &[other], &[]);
    store.put(&gone, &[], &[record.name]);
    assert_eq!(store.get(&record.name), None);
    for number in 2..9 {
        let (owner, record) = owner(1, number);
        store.put(&owner, &[record], &[]);
    }
    assert!(store.get(&stays.name).is_some());
}
