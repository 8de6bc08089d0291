//! The sealed caches over any store.

use std::collections::HashMap;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use dunlin::cache::ServerCache;
use dunlin_store::MemoryClientCache;
use dunlin_store::cache::{Owner, Record, RecordName, Records, SealedServerCache};
use dunlin_tests::{KeyType, Pki};

use crate::common::{Noted, client, connect, sealer, server};

/// Stores everything, and yields to other threads after each look-up.
#[derive(Debug, Default)]
struct Slow(Mutex<HashMap<RecordName, Vec<u8>>>);

impl Records for Slow {
    fn get(&self, name: &RecordName) -> Option<Vec<u8>> {
        let found = self.0.lock().unwrap().get(name).cloned();
        thread::yield_now();
        found
    }

    fn put(&self, _: &Owner, records: &[Record], stale: &[RecordName]) -> bool {
        let mut all = self.0.lock().unwrap();
        stale.iter().for_each(|name| drop(all.remove(name)));
        all.extend(records.iter().map(|record| (record.name, record.bytes.clone())));
        true
    }
}

/// After two simultaneous connections, the server knows a client by both tickets, and by at most four.
#[test]
fn knows_both_of_two_simultaneous_connections() {
    let pki = Pki::shared(KeyType::P256);
    let records = Arc::new(Slow::default());
    let cache = Arc::new(Noted::new(Arc::new(SealedServerCache::new(Arc::clone(&records), sealer(1)))));
    connect(&client(pki, Arc::new(MemoryClientCache::default())), &server(pki, cache.clone()));
    let (_, peer) = cache.given()[0].clone();
    let start = Barrier::new(2);
    for round in 1..1000u32 {
        let tickets = [0, 1].map(|which: u32| (u64::from(round) << 1 | u64::from(which)).to_be_bytes());
        thread::scope(|scope| {
            for ticket in tickets {
                let cache = &cache;
                let start = &start;
                let peer = peer.clone();
                scope.spawn(move || {
                    start.wait();
                    cache.put(ticket, peer, None);
                });
            }
        });
        assert!(tickets.iter().all(|ticket| cache.find(ticket).is_some()), "{round}");
        // These two, the previous two, and the list of them.
        assert_eq!(records.0.lock().unwrap().len(), if round == 1 { 4 } else { 5 }, "{round}");
    }
}
