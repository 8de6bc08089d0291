//! The handshake cache in memory: the size of entries, the order of eviction, and what peers cannot influence
//! (docs/handshake-cache.md, rule 8).
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::alloc::System;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use cap::Cap;
use dunlin::cache::{
    CacheKey, CacheMode, CachedPeer, CachedServer, ClientCache, DEFAULT_MAX_AGE, ServerCache, Ticket,
};
use dunlin::{ClientAuth, ClientConfig, Profile, ServerConfig, Trust};
use dunlin_store::{MemoryClientCache, MemoryServerCache};
use dunlin_tests::{KeyType, Pair, Pki, awslc};

#[global_allocator]
static HEAP: Cap<System> = Cap::new(System, usize::MAX);

/// The heap count covers the whole process, so only one test runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// The growth of the heap since `before`, in bytes.
fn more_than(before: usize) -> usize {
    HEAP.allocated().saturating_sub(before)
}

/// Stores the client and the server of one handshake.
#[derive(Debug, Default)]
struct Seen {
    client: Mutex<Option<CachedPeer>>,
    server: Mutex<Option<CachedServer>>,
}

impl ServerCache for Seen {
    fn find(&self, _: &Ticket) -> Option<CachedPeer> {
        None
    }

    fn put(&self, _: Ticket, client: CachedPeer, _: Option<Ticket>) {
        *self.client.lock().unwrap() = Some(client);
    }
}

impl ClientCache for Seen {
    fn update(&self, _: &CacheKey, change: &mut dyn FnMut(&mut CachedServer)) {
        change(self.server.lock().unwrap().get_or_insert_default());
    }
}

/// A client and a server as a handshake leaves them in the caches.
fn seen(typ: KeyType) -> (CachedPeer, CachedServer) {
    let pki = Pki::shared(typ);
    let profile = |leaf: &dunlin_tests::Leaf| {
        let trust = Trust { x509: Some(pki.trust()), raw_key: None };
        Profile::builder(awslc()).trust(trust).credentials(vec![leaf.x509(&awslc())]).build().unwrap()
    };
    let seen = Arc::new(Seen::default());
    let client = ClientConfig::new(profile(&pki.client)).with_handshake_cache(
        CacheMode::Compact,
        seen.clone(),
        DEFAULT_MAX_AGE,
    );
    let server = ServerConfig::new(profile(&pki.server)).unwrap();
    let server = server.with_handshake_cache(CacheMode::Compact, seen.clone(), DEFAULT_MAX_AGE).unwrap();
    let server = server.with_client_auth(ClientAuth::Required).unwrap();
    Pair::new(&Arc::new(client), &Arc::new(server)).connect().unwrap();
    (seen.client.lock().unwrap().take().unwrap(), seen.server.lock().unwrap().take().unwrap())
}

/// Another client of some issuer. In its bytes, the issuer follows the version, and the fingerprint follows
/// the issuer.
fn another(peer: &CachedPeer, issuer: u8, number: u32) -> CachedPeer {
    let mut bytes = peer.to_bytes().unwrap();
    let holder = holder_at(&bytes);
    bytes[1] = issuer;
    for at in [CachedPeer::SHARED_LEN, holder] {
        bytes[at..][..4].copy_from_slice(&(number << 8 | u32::from(issuer)).to_be_bytes());
    }
    CachedPeer::from_bytes(&bytes, peer.settings().as_bytes()).unwrap()
}

/// The offset of the middle of the key.
fn holder_at(bytes: &[u8]) -> usize {
    let (_, key) = CachedPeer::holder(&bytes[CachedPeer::SHARED_LEN..]).unwrap();
    let at = bytes.windows(key.len()).position(|window| window == key);
    at.unwrap() + key.len() / 2
}

/// The `nth` ticket of a client. It is as random as a real one.
fn ticket(issuer: u8, number: u32, nth: u8) -> Ticket {
    let n = u64::from(number) << 16 | u64::from(issuer) << 8 | u64::from(nth);
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

const MANY: u32 = 100_000;

/// lab.md's bar: the memory for each of 100,000 clients, all indexes and both tickets included.
#[test]
fn keeps_a_hundred_thousand_clients_in_little_memory() {
    let _alone = ALONE.lock();
    for (typ, bar) in [(KeyType::P256, 200), (KeyType::Rsa2048, 400)] {
        let (peer, _) = seen(typ);
        let before = HEAP.allocated();
        let store = MemoryServerCache::new(MANY as usize);
        for number in 0..MANY {
            let client = another(&peer, 0, number);
            store.put(ticket(0, number, 0), client.clone(), None);
            store.put(ticket(0, number, 1), client, None);
        }
        let each = more_than(before) as f64 / f64::from(MANY);
        println!("{typ:?}: {each:.1} bytes of heap for each of {MANY} clients");
        assert_eq!(store.len(), MANY as usize);
        assert!(each <= f64::from(bar), "{typ:?}: {each}");
        for number in (0..MANY).step_by(997) {
            for nth in 0..2 {
                assert_eq!(store.find(&ticket(0, number, nth)), Some(another(&peer, 0, number)));
            }
        }
        assert_eq!(store.find(&ticket(1, 0, 0)), None);
    }
}

/// A flood of one issuer's clients does not evict the clients of another issuer, and its bytes are bounded,
/// too.
#[test]
fn a_flood_evicts_only_its_own_issuer() {
    let _alone = ALONE.lock();
    let (peer, _) = seen(KeyType::P256);
    let store = MemoryServerCache::new(1000);
    let put = |issuer, number| store.put(ticket(issuer, number, 0), another(&peer, issuer, number), None);
    let there = |issuer, number| store.find(&ticket(issuer, number, 0)).is_some();
    (0..100).for_each(|n| put(1, n));
    (0..MANY).for_each(|n| put(2, n));
    assert_eq!(store.len(), 1000);
    assert!((0..100).all(|n| there(1, n)));
    assert!((MANY - 900..MANY).all(|n| there(2, n)) && !there(2, MANY - 901));
    // Two equal groups share the capacity: a new client evicts from the larger group, in the end from its
    // own.
    (100..2000).for_each(|n| put(1, n));
    assert_eq!((0..2000).filter(|n| there(1, *n)).count(), 500);
    assert_eq!((0..MANY).filter(|n| there(2, *n)).count(), 500);

    let small = MemoryServerCache::new(1000).with_max_bytes(50_000);
    let before = HEAP.allocated();
    (0..1000).for_each(|n| small.put(ticket(1, n, 0), another(&peer, 1, n), None));
    assert!((200..300).contains(&small.len()), "{}", small.len());
    assert!(more_than(before) < 70_000);
    assert!(small.find(&ticket(1, 999, 0)).is_some());
}

/// If bytes are the limit, a new client evicts only as many of the oldest clients as it needs, in any order
/// of arrival. The heap stays near the limit, also while entries of one length replace entries of another.
#[test]
fn a_new_client_evicts_only_a_few() {
    let _alone = ALONE.lock();
    let max_bytes = 300_000;
    let kinds = [KeyType::P256, KeyType::Rsa2048, KeyType::Ed25519].map(|typ| seen(typ).0);
    let mut random = 88_172_645_463_325_252u64;
    let mut tickets = vec![0u8; 30_000];
    let before = HEAP.allocated();
    let store = MemoryServerCache::new(MANY as usize).with_max_bytes(max_bytes);
    let mut put = |number: u32| {
        let nth = tickets[number as usize].wrapping_add(1);
        tickets[number as usize] = nth;
        let peer = another(&kinds[(number / 5000) as usize % 3], 1, number);
        let count = store.len();
        store.put(ticket(1, number, nth), peer.clone(), None);
        assert_eq!(store.find(&ticket(1, number, nth)), Some(peer));
        // A client with an RSA key evicts a few others.
        assert!(store.len() + 5 > count, "{count} clients, and then {}", store.len());
    };
    for number in 0..30_000 {
        put(number);
        for _ in 0..2 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            put(number - (random % u64::from(number.min(2000) + 1)) as u32);
        }
        let heap = more_than(before);
        assert!(heap < max_bytes + kinds.len() * (64 << 10), "{heap} bytes for {} clients", store.len());
    }
    let found = |number: &u32| {
        let peer = another(&kinds[(number / 5000) as usize % 3], 1, *number);
        store.find(&ticket(1, *number, tickets[*number as usize])) == Some(peer)
    };
    assert!((29_900..30_000).all(|number| found(&number)));
    assert_eq!((0..30_000).filter(found).count(), store.len());
}

/// Among the clients of an issuer, the one that proved its key longest ago is evicted. A look-up does not
/// change the order.
#[test]
fn keeps_a_new_client() {
    let _alone = ALONE.lock();
    let (peer, _) = seen(KeyType::P256);
    let store = MemoryServerCache::new(3);
    let put = |number, nth, proven| store.put(ticket(1, number, nth), another(&peer, 1, number), proven);
    (0..3).for_each(|n| put(n, 0, None));
    (0..100).for_each(|_| drop(store.find(&ticket(1, 1, 0))));
    put(0, 1, Some(ticket(1, 0, 0)));
    put(3, 0, None);
    let there = |number, nth| store.find(&ticket(1, number, nth)).is_some();
    assert!(there(0, 1) && !there(1, 0) && there(2, 0) && there(3, 0));
    // Evicted issuers leave no memory behind.
    for issuer in 0..=255 {
        store.put(ticket(issuer, 9, 0), another(&peer, issuer, 9), None);
        assert!(store.find(&ticket(issuer, 9, 0)).is_some());
    }
    assert_eq!(store.len(), 3);
}

/// A new ticket replaces the proven one, and the other one stays. Without a proven ticket, the newest one
/// stays.
#[test]
fn a_new_ticket_replaces_the_proven_one() {
    let _alone = ALONE.lock();
    let (peer, _) = seen(KeyType::P256);
    let store = MemoryServerCache::new(3);
    let put = |nth, proven: Option<u8>| {
        store.put(ticket(1, 0, nth), another(&peer, 1, 0), proven.map(|nth| ticket(1, 0, nth)));
        (0..10).filter(|nth| store.find(&ticket(1, 0, *nth)).is_some()).collect::<Vec<_>>()
    };
    assert_eq!(put(0, None), [0]);
    assert_eq!(put(1, Some(0)), [1]);
    assert_eq!(put(2, None), [1, 2]);
    // Two endpoints in front of one store have a ticket each.
    assert_eq!(put(3, Some(1)), [2, 3]);
    assert_eq!(put(4, Some(2)), [3, 4]);
    assert_eq!(put(5, Some(4)), [3, 5]);
    // The proven ticket is gone, because another connection of the client was faster.
    assert_eq!(put(6, Some(1)), [5, 6]);
    assert_eq!(put(7, None), [6, 7]);
    assert_eq!(store.len(), 1);
}

/// A client has one entry for its key, whatever else its certificate says and whichever CA issued it. A
/// ticket is bound to one Certificate.
#[test]
fn keeps_one_entry_for_each_client() {
    let _alone = ALONE.lock();
    let (peer, _) = seen(KeyType::P256);
    let store = MemoryServerCache::new(1000);
    for number in 0..100u8 {
        let mut bytes = peer.to_bytes().unwrap();
        // Always another fingerprint: the cache keeps several tickets of one Certificate.
        bytes[CachedPeer::SHARED_LEN] ^= number + 1;
        bytes[1] = number % 3;
        let client = CachedPeer::from_bytes(&bytes, peer.settings().as_bytes()).unwrap();
        store.put(ticket(0, 0, number), client.clone(), None);
        assert_eq!(store.len(), 1);
        assert_eq!(store.find(&ticket(0, 0, number)), Some(client));
        assert_eq!(store.find(&ticket(0, 0, number.wrapping_sub(1))), None);
    }
}

/// Clients under abandoned settings are evicted before clients of the same issuer under the new settings.
#[test]
fn evicts_clients_under_old_settings_first() {
    let _alone = ALONE.lock();
    let (peer, _) = seen(KeyType::P256);
    let store = MemoryServerCache::new(100);
    let under = |settings, issuer, number| {
        let bytes = another(&peer, issuer, number).to_bytes().unwrap();
        CachedPeer::from_bytes(&bytes, &[settings; 32]).unwrap()
    };
    for settings in 1..=3 {
        for number in 0..100 {
            store.put(ticket(settings, number, 0), under(settings, 1, number), None);
        }
        for number in 0..100 {
            let found = store.find(&ticket(settings, number, 0));
            assert_eq!(found, Some(under(settings, 1, number)));
        }
        assert_eq!(store.len(), 100);
    }
    // Two servers with different settings share the capacity of an issuer.
    let two = MemoryServerCache::new(100);
    for number in 0..100 {
        for settings in 1..=2 {
            two.put(ticket(settings, number, 0), under(settings, 1, number), None);
        }
    }
    assert!((50..100).all(|n| (1..=2).all(|settings| two.find(&ticket(settings, n, 0)).is_some())));
}

/// With more issuers than numbers, the cache evicts from the smallest issuers and keeps the new client.
#[test]
fn keeps_a_new_client_among_too_many_issuers() {
    let _alone = ALONE.lock();
    let (peer, _) = seen(KeyType::P256);
    let store = MemoryServerCache::new(2 * MANY as usize);
    (0..2).for_each(|n| store.put(ticket(200, n, 0), another(&peer, 200, n), None));
    for number in 0..70_000 {
        let mut bytes = another(&peer, 0, number).to_bytes().unwrap();
        bytes[2..6].copy_from_slice(&number.to_be_bytes());
        let client = CachedPeer::from_bytes(&bytes, peer.settings().as_bytes()).unwrap();
        store.put(ticket(0, number, 0), client, None);
        assert!(store.find(&ticket(0, number, 0)).is_some());
    }
    assert_eq!(store.len(), (1 << 16) + 1);
    assert!((0..2).all(|n| store.find(&ticket(200, n, 0)).is_some()));
    assert!(store.find(&ticket(0, 0, 0)).is_none());
}

/// Entries of changing lengths are found and evicted like entries of one length.
#[test]
fn keeps_entries_of_many_lengths() {
    let _alone = ALONE.lock();
    let kinds = [KeyType::P256, KeyType::Rsa2048, KeyType::Ed25519, KeyType::MlDsa44].map(|typ| seen(typ).0);
    let is_freed = || {
        let before = HEAP.allocated();
        let store = MemoryServerCache::new(500);
        for round in 0..40 {
            for number in 0..100 {
                let peer =
                    another(&kinds[(round + number) as usize % 4], (number % 3) as u8, round * 100 + number);
                store.put(ticket(0, round * 100 + number, 0), peer.clone(), None);
                assert_eq!(store.find(&ticket(0, round * 100 + number, 0)), Some(peer));
            }
        }
        assert_eq!(store.len(), 500);
        assert!(more_than(before) < 600_000, "{}", more_than(before));
        assert_eq!((0..4000).filter(|n| store.find(&ticket(0, *n, 0)).is_some()).count(), 500);
        drop(store);
        more_than(before) < 1000
    };
    // The test runner may start a thread meanwhile, which changes the heap, but not each time.
    assert!((0..3).any(|_| is_freed()));
}

/// The same client with a name of `len` bytes.
fn named(peer: &CachedPeer, len: u16) -> CachedPeer {
    let bytes = peer.to_bytes().unwrap();
    let old = b"\x08device-1";
    let at = bytes.windows(old.len()).position(|window| window == old).unwrap();
    let head = if len < 128 { vec![len as u8] } else { (len | 1 << 15).to_be_bytes().to_vec() };
    let name = vec![b'x'; len.into()];
    let bytes = [&bytes[..at], &head, &name, &bytes[at + old.len()..]].concat();
    CachedPeer::from_bytes(&bytes, peer.settings().as_bytes()).unwrap()
}

/// An issuer whose clients all have names of different lengths takes little more memory than its entries.
#[test]
fn rare_lengths_take_little_memory() {
    let _alone = ALONE.lock();
    let (peer, _) = seen(KeyType::P256);
    let max_bytes = 300_000;
    let before = HEAP.allocated();
    let store = MemoryServerCache::new(100_000).with_max_bytes(max_bytes);
    for number in 0..5000u32 {
        let peer = another(&named(&peer, 1 + (number % 1500) as u16), 1, number);
        store.put(ticket(1, number, 0), peer.clone(), None);
        assert_eq!(store.find(&ticket(1, number, 0)), Some(peer));
        let heap = more_than(before);
        assert!(heap < 2 * max_bytes, "{heap} bytes for {} clients", store.len());
    }
    assert!(store.len() > 250, "{}", store.len());
}

/// A client keeps the most recently used servers, and many ports of one name do not evict another name.
#[test]
fn a_client_keeps_recently_used_servers() {
    let _alone = ALONE.lock();
    let (_, server) = seen(KeyType::P256);
    let settings = *server_settings(&server);
    let key = |name: &str, port| CacheKey { name: name.to_owned(), port, settings };
    let store = MemoryClientCache::new(4);
    let put = |key: &CacheKey| store.update(key, &mut |kept| kept.clone_from(&server));
    put(&key("a", 1));
    for port in 0..100 {
        put(&key("b", port));
        store.take(&key("b", 0));
    }
    assert!(store.take(&key("a", 1)).is_some());
    let ports: Vec<_> = (0..100).filter(|port| store.take(&key("b", *port)).is_some()).collect();
    assert_eq!(ports, [0, 98, 99]);
    // An entry that cannot be stored removes the previous one.
    let other = CacheKey { settings: [1; 32], ..key("a", 1) };
    put(&other);
    assert!(store.take(&other).is_none());
}

/// lab.md's bar: the memory for each server in a client's cache of 100,000, all indexes included.
#[test]
fn keeps_a_hundred_thousand_servers_in_little_memory() {
    let _alone = ALONE.lock();
    for (typ, bar) in [(KeyType::P256, 241), (KeyType::Rsa2048, 420)] {
        let (_, server) = seen(typ);
        let settings = *server_settings(&server);
        let key = |number: u32| CacheKey { name: format!("{number:06}.example"), port: 443, settings };
        let before = HEAP.allocated();
        let store = MemoryClientCache::new(MANY as usize);
        (0..MANY).for_each(|number| store.update(&key(number), &mut |kept| kept.clone_from(&server)));
        let each = more_than(before) as f64 / f64::from(MANY);
        println!("{typ:?}: {each:.1} bytes of heap for each of {MANY} servers");
        assert!(each <= f64::from(bar), "{typ:?}: {each}");
        for number in (0..MANY).step_by(997) {
            assert_eq!(store.take(&key(number)), Some(server.clone()));
        }
        assert!(store.take(&key(MANY)).is_none());
    }
}

/// The server with this number in the fingerprint of its Certificate.
fn numbered(server: &CachedServer, number: u32) -> CachedServer {
    let settings = server_settings(server);
    let peer = server.server().unwrap();
    let mut bytes = server.to_bytes(settings).unwrap();
    let fingerprint = peer.fingerprint().as_bytes();
    let at = bytes.windows(fingerprint.len()).position(|window| window == fingerprint).unwrap();
    bytes[at..][..4].copy_from_slice(&number.to_be_bytes());
    CachedServer::from_bytes(&bytes, settings).unwrap()
}

/// A full cache evicts from the name with most entries; among equal names, from the one that changed longest
/// ago. It evicts the least recently used entry of that name, or of all names if each has one entry.
#[test]
fn a_client_evicts_in_order_of_use() {
    let _alone = ALONE.lock();
    const CAPACITY: usize = 40;
    let kinds = [KeyType::P256, KeyType::Rsa2048, KeyType::Ed25519].map(|typ| seen(typ).1);
    let before = HEAP.allocated();
    let store = MemoryClientCache::new(CAPACITY);
    let mut model: Vec<(CacheKey, CachedServer)> = Vec::new();
    let mut changed = HashMap::new();
    let mut random = 88_172_645_463_325_252u64;
    let mut draw = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    for number in 0..20_000 {
        let kind = &kinds[draw(3) as usize];
        let name = format!("{}.example", draw(60));
        let port = if draw(4) == 0 { 1 + draw(3) as u16 } else { 0 };
        let key = CacheKey { name, port, settings: *server_settings(kind) };
        let known = model.iter().position(|(other, _)| *other == key);
        if draw(2) == 0 {
            let mut taken = None;
            if let Some(at) = known {
                let used = model.remove(at);
                taken = Some(used.1.clone());
                model.push(used);
            }
            let found = store.take(&key);
            assert_eq!(
                found.as_ref().and_then(CachedServer::server),
                taken.as_ref().and_then(CachedServer::server)
            );
            continue;
        }
        let server = numbered(kind, number);
        store.update(&key, &mut |kept| kept.clone_from(&server));
        known.map(|at| model.remove(at));
        changed.insert(key.name.clone(), number);
        model.push((key, server));
        if model.len() > CAPACITY {
            let count = |name: &str| model.iter().filter(|(key, _)| key.name == name).count();
            let rank = |(key, _): &&(CacheKey, CachedServer)| {
                let entries = count(&key.name);
                (entries, Reverse(if entries == 1 { 0 } else { changed[&key.name] }))
            };
            let first = model.iter().map(|entry| rank(&entry)).max().unwrap();
            let oldest = model.iter().position(|entry| rank(&entry) == first).unwrap();
            model.remove(oldest);
        }
    }
    for (key, server) in &model {
        assert_eq!(store.take(key).unwrap().server(), server.server());
    }
    assert!(more_than(before) < 200_000, "{}", more_than(before));
}

/// Tickets are taken once, and return with the next update.
#[test]
fn a_client_takes_its_tickets_once() {
    let _alone = ALONE.lock();
    let (_, server) = seen(KeyType::P256);
    let key = CacheKey { name: "a".to_owned(), port: 1, settings: *server_settings(&server) };
    let store = MemoryClientCache::new(4);
    store.update(&key, &mut |kept| kept.clone_from(&server));
    assert_eq!(store.take(&key), Some(server.clone()));
    let mut without = server.clone();
    without.clear_tickets();
    assert_eq!(store.take(&key), Some(without));
    store.update(&key, &mut |kept| kept.clone_from(&server));
    assert_eq!(store.take(&key), Some(server));
}

/// The settings under which the server was verified. Its entry can be written for no others.
fn server_settings(server: &CachedServer) -> &[u8; 32] {
    server.server().unwrap().settings().as_bytes()
}
