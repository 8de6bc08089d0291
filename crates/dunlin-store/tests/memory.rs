//! The stores in memory, with sessions of real handshakes and virtual time.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin::auth::{Psk, PskTable};
use dunlin::resume::{
    ClientSession, ClientSessions, DEFAULT_LIFETIME, SealTickets, ServerSessions, SessionKey, Tickets,
    UseOnce,
};
use dunlin::{ClientConfig, Now, Profile, PskSource, ServerConfig, TransportKind};
use dunlin_store::{MemoryClientSessions, MemoryServerSessions, MemoryUseOnce, RotatingTickets};
use dunlin_tests::{NOW, Pair, awslc};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// The time since the start.
fn after(time: Duration) -> Now {
    Now::from_unix_ms(NOW.unix_ms + u64::try_from(time.as_millis()).unwrap())
}

fn client(sessions: Arc<dyn ClientSessions>) -> Arc<ClientConfig> {
    let profile = Profile::builder(awslc()).build().unwrap();
    let psk = Arc::new(Psk::new("d1", &[7; 32]).unwrap());
    Arc::new(ClientConfig::new(profile).with_psks(vec![psk]).with_sessions(sessions))
}

fn server(tickets: Tickets) -> Arc<ServerConfig> {
    let profile = Profile::builder(awslc()).build().unwrap();
    let psks = PskTable::from_iter([Psk::new("d1", &[7; 32]).unwrap()]);
    let config = ServerConfig::psk_only(profile, PskSource::Here(Arc::new(psks))).unwrap();
    Arc::new(config.with_tickets(tickets))
}

/// Connects at this time, and returns whether the session was resumed.
fn resumes(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>, now: Now) -> bool {
    let mut pair = Pair::at(client, server, now);
    pair.connect().unwrap();
    pair.server.negotiated().unwrap().is_resumed()
}

/// Stores every ticket in order.
#[derive(Debug, Default)]
struct All(Mutex<Vec<ClientSession>>);

impl ClientSessions for All {
    fn put(&self, _: SessionKey, session: ClientSession) {
        self.0.lock().unwrap().push(session);
    }

    fn take(&self, _: &SessionKey, _: Now) -> Option<ClientSession> {
        None
    }

    fn forget(&self, _: &SessionKey, ticket: &[u8]) {
        self.0.lock().unwrap().retain(|t| t.ticket() != ticket);
    }
}

/// `count` tickets, all issued at this time.
fn tickets(count: u8, now: Now) -> Vec<ClientSession> {
    let all = Arc::new(All::default());
    let store = Arc::new(MemoryServerSessions::new(100));
    let mut pair =
        Pair::at(&client(all.clone()), &server(Tickets::stateful(store).count(count).lifetime(HOUR)), now);
    pair.connect().unwrap();
    let tickets = std::mem::take(&mut *all.0.lock().unwrap());
    assert_eq!(tickets.len(), usize::from(count));
    tickets
}

fn key(name: &str) -> SessionKey {
    SessionKey { transport: TransportKind::Stream, name: name.into(), port: 1, settings: [0; 32] }
}

fn taken(store: &MemoryClientSessions, name: &str, now: Now) -> Option<Vec<u8>> {
    store.take(&key(name), now).map(|t| t.ticket().to_vec())
}

#[test]
fn client_takes_the_newest_once() {
    let store = MemoryClientSessions::new(2, 2);
    let all = tickets(3, NOW);
    all.iter().for_each(|t| store.put(key("a"), t.clone()));
    assert_eq!(taken(&store, "a", NOW).unwrap(), all[2].ticket());
    assert_eq!(taken(&store, "a", NOW).unwrap(), all[1].ticket());
    assert_eq!(taken(&store, "a", NOW), None, "there was room for two");
}

#[test]
fn client_shows_a_ticket_to_its_server_only() {
    let store = MemoryClientSessions::default();
    store.put(key("a"), tickets(1, NOW).remove(0));
    let others = [
        SessionKey { port: 2, ..key("a") },
        SessionKey { settings: [1; 32], ..key("a") },
        SessionKey { transport: TransportKind::Datagram, ..key("a") },
        key("b"),
    ];
    assert!(others.iter().all(|other| store.take(other, NOW).is_none()));
    assert!(taken(&store, "a", NOW).is_some());
}

#[test]
fn client_forgets_the_server_unused_longest() {
    let store = MemoryClientSessions::new(2, 4);
    for (name, ticket) in ["a", "a", "b"].into_iter().zip(tickets(3, NOW)) {
        store.put(key(name), ticket);
    }
    assert!(taken(&store, "a", NOW).is_some());
    store.put(key("c"), tickets(1, NOW).remove(0));
    assert_eq!(taken(&store, "b", NOW), None);
    assert!(taken(&store, "a", NOW).is_some());
    assert!(taken(&store, "c", NOW).is_some());
}

#[test]
fn client_forgets_one_ticket() {
    let store = MemoryClientSessions::default();
    let all = tickets(3, NOW);
    for (name, ticket) in ["a", "a", "b"].into_iter().zip(&all) {
        store.put(key(name), ticket.clone());
    }
    store.forget(&key("a"), all[1].ticket());
    store.forget(&key("a"), all[2].ticket());
    store.forget(&key("c"), all[0].ticket());
    assert_eq!(taken(&store, "a", NOW).unwrap(), all[0].ticket());
    assert_eq!(taken(&store, "a", NOW), None);
    assert_eq!(taken(&store, "b", NOW).unwrap(), all[2].ticket());
}

#[test]
fn client_drops_stale_tickets() {
    let store = MemoryClientSessions::default();
    let late = tickets(1, after(HOUR / 2)).remove(0);
    let early = tickets(1, NOW).remove(0);
    store.put(key("a"), late.clone());
    store.put(key("a"), early);
    assert_eq!(taken(&store, "a", after(HOUR)).unwrap(), late.ticket(), "the other one lived for an hour");
    assert_eq!(taken(&store, "a", NOW), None);
}

#[test]
fn server_sessions_resume_once() {
    let store = Arc::new(MemoryServerSessions::new(10));
    let server = server(Tickets::stateful(store.clone()));
    let tickets = Arc::new(MemoryClientSessions::default());
    let client = client(tickets.clone());
    assert!(!resumes(&client, &server, NOW));
    assert_eq!(store.len(), 1);
    assert!(resumes(&client, &server, NOW));
    assert_eq!(store.len(), 1, "the used one went, its successor came");
    assert!(resumes(&client, &server, after(DEFAULT_LIFETIME / 2)));
    assert!(!resumes(&client, &server, after(DEFAULT_LIFETIME * 2)), "expired");
}

#[test]
fn server_forgets_the_oldest() {
    let store = MemoryServerSessions::new(2);
    let session = || {
        let source = Arc::new(MemoryServerSessions::new(1));
        let all = Arc::new(All::default());
        let mut pair = Pair::new(&client(all.clone()), &server(Tickets::stateful(source.clone())));
        pair.connect().unwrap();
        let name = all.0.lock().unwrap()[0].ticket().to_vec();
        source.find(&name).unwrap()
    };
    for id in [b"1", b"2", b"3"] {
        store.put(id, session());
    }
    assert!(store.find(b"1").is_none());
    assert!(store.find(b"2").is_some());
    store.remove(b"2");
    assert!(store.find(b"2").is_none());
    store.remove_expired(after(DEFAULT_LIFETIME / 2));
    assert_eq!(store.len(), 1);
    store.remove_expired(after(DEFAULT_LIFETIME));
    assert!(store.is_empty());
}

#[test]
fn sealed_tickets_resume_for_their_lifetime() {
    let seal = Arc::new(RotatingTickets::new(awslc()).unwrap().with_period(HOUR));
    let server = server(Tickets::stateless(seal.clone()).lifetime(HOUR));
    let client = client(Arc::new(MemoryClientSessions::default()));
    assert!(!resumes(&client, &server, NOW));
    assert!(resumes(&client, &server, after(HOUR / 2)), "a ticket of the first key");
    // The next ticket makes the second key.
    assert!(resumes(&client, &server, after(HOUR + HOUR / 4)));
    assert!(resumes(&client, &server, after(HOUR * 2)));
    assert!(!resumes(&client, &server, after(HOUR * 3)), "the ticket has expired");
}

#[test]
fn keys_open_for_two_periods() {
    let seal = RotatingTickets::new(awslc()).unwrap().with_period(HOUR);
    let ticket = seal.seal(NOW, b"settings", b"session").unwrap();
    assert_eq!(ticket.len(), b"session".len() + 32);
    let opened = |ticket: &[u8], now| seal.open(now, b"settings", ticket).map(|p| p.to_vec());
    let almost = |time: Duration| after(time - Duration::from_millis(1));
    assert_eq!(opened(&ticket, NOW).unwrap(), b"session");
    let late = seal.seal(almost(HOUR), b"settings", b"late").unwrap();
    assert_eq!(late[..4], ticket[..4], "the same key for a period");
    let next = seal.seal(after(HOUR), b"settings", b"next").unwrap();
    assert_ne!(next[..4], ticket[..4], "another key afterwards");
    assert_eq!(opened(&ticket, almost(HOUR * 2)).unwrap(), b"session");
    assert_eq!(opened(&next, almost(HOUR * 2)).unwrap(), b"next");
    assert_eq!(opened(&late, after(HOUR * 2)), None);
    assert_eq!(opened(&next, almost(HOUR * 3)).unwrap(), b"next");
    assert_eq!(opened(&next, after(HOUR * 3)), None);
    assert_eq!(opened(&next, NOW), None, "the key is gone, not only out of date");
}

#[test]
fn sealed_tickets_are_bound() {
    let seal = RotatingTickets::new(awslc()).unwrap();
    let ticket = seal.seal(NOW, b"settings", b"session").unwrap();
    assert!(seal.open(NOW, b"other settings", &ticket).is_none());
    assert!(RotatingTickets::new(awslc()).unwrap().open(NOW, b"settings", &ticket).is_none());
    for i in 0..ticket.len() {
        let mut bad = ticket.clone();
        bad[i] ^= 1;
        assert!(seal.open(NOW, b"settings", &bad).is_none(), "byte {i} was changed");
        assert!(seal.open(NOW, b"settings", &ticket[..i]).is_none(), "cut at {i}");
    }
    assert!(seal.open(NOW, b"settings", &ticket).is_some());
}

#[test]
fn accepts_a_ticket_once_among_concurrent_uses() {
    let register = MemoryUseOnce::with_new_keys(16);
    for id in 0..8 {
        let firsts = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| register.first_use(NOW, &[id; 32], after(HOUR).unix_ms)))
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).filter(|first| *first).count()
        });
        assert_eq!(firsts, 1);
    }
}

#[test]
fn a_full_register_forgets_only_expired_tickets() {
    let register = MemoryUseOnce::with_new_keys(2);
    let until = after(HOUR).unix_ms;
    assert!(register.first_use(NOW, &[1; 32], until));
    assert!(register.first_use(NOW, &[2; 32], until + 1));
    // At the last moment of the first ticket the register is full; after it there is room for one.
    assert!(!register.first_use(after(HOUR), &[1; 32], until));
    let over = Now::from_unix_ms(until + 1);
    assert!(register.first_use(over, &[3; 32], 2 * until));
    assert!(!register.first_use(over, &[2; 32], 2 * until));
    assert!(!register.first_use(over, &[4; 32], 2 * until));
}

/// RFC 8446 §8.2: when the register has room again, it still refuses a ticket that it refused when it was
/// full.
#[test]
fn a_full_register_keeps_refusing_a_ticket() {
    let register = MemoryUseOnce::with_new_keys(1);
    let at = |s| after(Duration::from_secs(s));
    assert!(register.first_use(NOW, &[1; 32], at(120).unix_ms));
    assert!(!register.first_use(at(100), &[2; 32], at(220).unix_ms));
    assert!(!register.first_use(at(121), &[2; 32], at(220).unix_ms));
    assert!(!register.first_use(at(220), &[2; 32], at(220).unix_ms), "the last moment");
    assert!(register.first_use(at(221), &[3; 32], at(300).unix_ms), "all of it is too old now");
}

/// The same ticket can come with first flights that are fresh at different times.
#[test]
fn the_last_date_of_a_ticket_counts() {
    let register = MemoryUseOnce::with_new_keys(2);
    let at = |s| after(Duration::from_secs(s));
    assert!(register.first_use(NOW, &[1; 32], at(60).unix_ms));
    assert!(!register.first_use(NOW, &[1; 32], at(500).unix_ms));
    assert!(!register.first_use(NOW, &[1; 32], at(90).unix_ms));
    // The ticket counts once.
    assert!(register.first_use(NOW, &[2; 32], at(30).unix_ms));
    assert!(register.first_use(at(100), &[3; 32], at(160).unix_ms));
    assert!(!register.first_use(at(400), &[1; 32], at(500).unix_ms));
}

/// Correcting a wall clock that ran ahead does not make a forgotten ticket fresh again.
#[test]
fn refuses_a_ticket_that_was_forgotten_early() {
    let register = MemoryUseOnce::with_new_keys(4);
    let until = after(Duration::from_secs(60)).unix_ms;
    assert!(register.first_use(NOW, &[1; 32], until));
    assert!(register.first_use(after(HOUR), &[2; 32], after(2 * HOUR).unix_ms));
    assert!(!register.first_use(NOW, &[1; 32], until));
    assert!(!register.first_use(NOW, &[3; 32], until), "nor what may have been forgotten");
    let then = Now::from_unix_ms(until + 1);
    assert!(register.first_use(then, &[3; 32], then.unix_ms));
}

/// RFC 8446 §8.2: after a start, the register refuses tickets until earlier ones have become too old.
#[test]
fn a_register_that_has_just_started_refuses() {
    let register = MemoryUseOnce::new(3, NOW);
    let ready = after(2 * dunlin::early::EARLY_DATA_WINDOW + Duration::from_millis(1));
    let before = Now::from_unix_ms(ready.unix_ms - 1);
    for now in [NOW, before] {
        assert!(!register.first_use(now, &[1; 32], u64::MAX));
    }
    // Putting the wall clock forward does not shorten the wait.
    let jumped = Now { monotonic: before.monotonic, unix_ms: after(HOUR).unix_ms };
    assert!(!register.first_use(jumped, &[2; 32], u64::MAX));
    // A refused ticket counts as used.
    assert!([1, 2].iter().all(|id| !register.first_use(ready, &[*id; 32], u64::MAX)));
    assert!(register.first_use(ready, &[3; 32], u64::MAX));
}
