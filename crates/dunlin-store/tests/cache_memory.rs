//! The handshake cache in memory: what an entry takes, what is forgotten first, and what nobody can change
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

/// The heap is counted for the whole process: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// What is on the heap now and was not `before`, in bytes.
fn more_than(before: usize) -> usize {
    HEAP.allocated().saturating_sub(before)
}

/// Keeps the one client and the one server of a handshake.
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

/// A client and a server as they are kept after a handshake.
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

/// Another client of some issuer: the issuer stands after the version, and the fingerprint follows it.
fn another(peer: &CachedPeer, issuer: u8, number: u32) -> CachedPeer {
    let mut bytes = peer.to_bytes().unwrap();
    let holder = holder_at(&bytes);
    bytes[1] = issuer;
    for at in [CachedPeer::SHARED_LEN, holder] {
        bytes[at..][..4].copy_from_slice(&(number << 8 | u32::from(issuer)).to_be_bytes());
    }
    CachedPeer::from_bytes(&bytes, peer.settings().as_bytes()).unwrap()
}

/// Where the middle of the key is.
fn holder_at(bytes: &[u8]) -> usize {
    let (_, key) = CachedPeer::holder(&bytes[CachedPeer::SHARED_LEN..]).unwrap();
    let at = bytes.windows(key.len()).position(|window| window == key);
    at.unwrap() + key.len() / 2
}

/// The `nth` ticket of a client: as random as real ones, of which any bytes may be alike.
fn ticket(issuer: u8, number: u32, nth: u8) -> Ticket {
    let n = u64::from(number) << 16 | u64::from(issuer) << 8 | u64::from(nth);
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

const MANY: u32 = 100_000;

/// lab.md's bar: what 100,000 clients take, all indexes and both tickets included, by client.
#[test]
fn a_hundred_thousand_clients_take_little() {
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

/// A flood of one issuer's clients does not push out those of another, and what it has taken is bounded in bytes too.
#[test]
fn a_flood_pushes_out_itself() {
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
    // Two that are alike share the room: whoever comes takes from the larger one, at the end from himself.
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

/// Where bytes are the bound, who comes takes the room of the oldest and of no more, in whatever order they came; and the heap stays
/// near the bound, also where entries of one length take the place of those of another.
#[test]
fn who_comes_takes_the_room_of_a_few() {
    let _alone = ALONE.lock();
    let max_bytes = 300_000;
    let kinds = [KeyType::P256, KeyType::Rsa2048, KeyType::Ed25519].map(|typ| seen(typ).0);
    let (mut random, mut tickets) = (88_172_645_463_325_252u64, vec![0u8; 30_000]);
    let before = HEAP.allocated();
    let store = MemoryServerCache::new(MANY as usize).with_max_bytes(max_bytes);
    let mut put = |number: u32| {
        let nth = tickets[number as usize].wrapping_add(1);
        tickets[number as usize] = nth;
        let peer = another(&kinds[(number / 5000) as usize % 3], 1, number);
        let count = store.len();
        store.put(ticket(1, number, nth), peer.clone(), None);
        assert_eq!(store.find(&ticket(1, number, nth)), Some(peer));
        // One of RSA takes the room of a few others.
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

/// Of the clients of an issuer, the one that has proven itself longest ago is forgotten; asking for it changes nothing.
#[test]
fn who_comes_stays() {
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
    // Issuers that come and go leave nothing behind.
    for issuer in 0..=255 {
        store.put(ticket(issuer, 9, 0), another(&peer, issuer, 9), None);
        assert!(store.find(&ticket(issuer, 9, 0)).is_some());
    }
    assert_eq!(store.len(), 3);
}

/// A new ticket takes the place of the one that was proven, and the other one stays; without one the newest that there was.
#[test]
fn a_ticket_takes_the_place_of_the_proven_one() {
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
    // Of two endpoints in front of one store, each has its own.
    assert_eq!(put(3, Some(1)), [2, 3]);
    assert_eq!(put(4, Some(2)), [3, 4]);
    assert_eq!(put(5, Some(4)), [3, 5]);
    // One that is not there any more, as another connection of the client was faster.
    assert_eq!(put(6, Some(1)), [5, 6]);
    assert_eq!(put(7, None), [6, 7]);
    assert_eq!(store.len(), 1);
}

/// Whatever a client sends beside its key, and whoever has issued its certificate, it has one entry; and a ticket stands for one
/// Certificate.
#[test]
fn a_client_has_one_entry() {
    let _alone = ALONE.lock();
    let (peer, _) = seen(KeyType::P256);
    let store = MemoryServerCache::new(1000);
    for number in 0..100u8 {
        let mut bytes = peer.to_bytes().unwrap();
        // Never the fingerprint that it has: of one Certificate, more tickets than one are kept.
        bytes[CachedPeer::SHARED_LEN] ^= number + 1;
        bytes[1] = number % 3;
        let client = CachedPeer::from_bytes(&bytes, peer.settings().as_bytes()).unwrap();
        store.put(ticket(0, 0, number), client.clone(), None);
        assert_eq!(store.len(), 1);
        assert_eq!(store.find(&ticket(0, 0, number)), Some(client));
        assert_eq!(store.find(&ticket(0, 0, number.wrapping_sub(1))), None);
    }
}

/// Clients under settings that are no more go before those of the same issuer that come under the new ones.
#[test]
fn old_settings_make_room() {
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
    // Two servers with settings of their own share the room of an issuer.
    let two = MemoryServerCache::new(100);
    for number in 0..100 {
        for settings in 1..=2 {
            two.put(ticket(settings, number, 0), under(settings, 1, number), None);
        }
    }
    assert!((50..100).all(|n| (1..=2).all(|settings| two.find(&ticket(settings, n, 0)).is_some())));
}

/// More issuers than there are numbers for: those of whom there are fewest make room, and who comes is kept.
#[test]
fn no_number_of_issuers_keeps_a_client_out() {
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

/// Entries of other lengths, coming and going, are found and forgotten as those of one.
#[test]
fn entries_of_many_lengths() {
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
    // Meanwhile the test runner may have started the thread of another test, which then waits for this one; but not each time.
    assert!((0..3).any(|_| is_freed()));
}

/// The same client by a name of `len` bytes.
fn named(peer: &CachedPeer, len: u16) -> CachedPeer {
    let bytes = peer.to_bytes().unwrap();
    let old = b"\x08device-1";
    let at = bytes.windows(old.len()).position(|window| window == old).unwrap();
    let head = if len < 128 { vec![len as u8] } else { (len | 1 << 15).to_be_bytes().to_vec() };
    let name = vec![b'x'; len.into()];
    let bytes = [&bytes[..at], &head, &name, &bytes[at + old.len()..]].concat();
    CachedPeer::from_bytes(&bytes, peer.settings().as_bytes()).unwrap()
}

/// An issuer that gives each client a name of another length takes little more than its entries.
#[test]
fn lengths_that_are_rare_take_little() {
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

/// A client keeps the servers that it used last, and many ports of one name do not push out another name.
#[test]
fn a_client_keeps_what_it_uses() {
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
    // What cannot be kept is not there, and what was there before is not, either.
    let other = CacheKey { settings: [1; 32], ..key("a", 1) };
    put(&other);
    assert!(store.take(&other).is_none());
}

/// lab.md's bar: what a server takes in a client's store of 100,000, all indexes included.
#[test]
fn a_hundred_thousand_servers_take_little() {
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

/// The server by the fingerprint of its Certificate.
fn numbered(server: &CachedServer, number: u32) -> CachedServer {
    let settings = server_settings(server);
    let peer = server.server().unwrap();
    let mut bytes = server.to_bytes(settings).unwrap();
    let fingerprint = peer.fingerprint().as_bytes();
    let at = bytes.windows(fingerprint.len()).position(|window| window == fingerprint).unwrap();
    bytes[at..][..4].copy_from_slice(&number.to_be_bytes());
    CachedServer::from_bytes(&bytes, settings).unwrap()
}

/// The name with most entries makes room first, of equals the one that changed longest ago; of its entries, and where each name
/// has one, the entry that was used longest ago.
#[test]
fn a_client_forgets_in_the_order_of_use() {
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
        let (name, port) =
            (format!("{}.example", draw(60)), if draw(4) == 0 { 1 + draw(3) as u16 } else { 0 });
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

/// Tickets go out once, and come back with the next update.
#[test]
fn a_client_has_its_tickets_once() {
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

/// The settings under which it was verified: those that it can be written for.
fn server_settings(server: &CachedServer) -> &[u8; 32] {
    server.server().unwrap().settings().as_bytes()
}
