//! Tickets: the view of a passive observer, and the tickets that remain after a broken connection.

use std::collections::BTreeSet;
use std::sync::Arc;

use dunlin::cache::CacheMode;
use dunlin::wire::ProtocolVersion;
use dunlin::{ClientAuth, Now, ServerConfig};
use dunlin_awslc::tls12::TLS12_CIPHER_SUITES;
use dunlin_store::MemoryServerCache;
use dunlin_tests::tamper::extension;
use dunlin_tests::{KeyType, NOW, Pair, carry};

use crate::{Ends, Setup, cached, connect, profile_of, setups};

/// Returns the tickets of a ClientHello; none if the extension is missing or empty.
pub(crate) fn shown(hello: &[u8]) -> Vec<[u8; 8]> {
    let Some(body) = extension(hello, 0xff20) else { return Vec::new() };
    let Some((flags, names)) = body.split_first() else { return Vec::new() };
    assert_eq!(names.len() % 8, 0);
    names.chunks(8).skip(flags.count_ones() as usize).map(|name| name.try_into().unwrap()).collect()
}

/// A reproducible pseudo-random sequence.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        // xorshift64 (Marsaglia).
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Carries flights until the client has sent `flights` of them; the last one reaches the server only if it
/// `arrives`.
fn until(pair: &mut Pair, flights: usize, arrives: bool) {
    for flight in 1..=flights {
        if flight == flights && !arrives {
            let n = pair.client.transmit().len();
            pair.client.transmitted(n);
            return;
        }
        carry(&mut pair.client, &mut pair.server, NOW).1.unwrap();
        if flight < flights {
            carry(&mut pair.server, &mut pair.client, NOW).1.unwrap();
        }
    }
}

/// No two completed connections of one client contain the same ticket. A ticket of a broken connection may
/// appear once more.
#[test]
fn no_ticket_appears_in_two_completed_connections() {
    for mode in [CacheMode::Compact, CacheMode::Bithac] {
        let known = Arc::new(MemoryServerCache::new(4));
        let setups = setups().filter(|setup| setup.mode == mode).collect::<Vec<_>>();
        let servers: Vec<_> = setups
            .iter()
            .map(|s| Arc::new(s.server_config(s.profile(KeyType::P256, false), ClientAuth::Required, &known)))
            .collect();
        let both = profile_of(KeyType::P256, true).tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec());
        let client = setups[0].client(both);
        connect(&client, &servers[0]);
        let mut seen = BTreeSet::new();
        let mut dice = Dice::new(7);
        let mut broken = 0;
        // Whether the server knows the client's ticket.
        let mut known_by_ticket = true;
        for _ in 0..10_000 {
            let which = dice.below(2) as usize;
            let mut pair = Pair::new(&client, &servers[which]);
            let tickets = shown(pair.client.transmit());
            assert!((1..=2).contains(&tickets.len()));
            match dice.below(8) {
                // The client sends one or two flights; the last one may be lost.
                0 => {
                    let flights = 1 + dice.below(2) as usize;
                    let arrives = dice.below(2) == 0;
                    until(&mut pair, flights, arrives);
                    if flights == 2 && arrives {
                        // In TLS 1.2 only the server has the new ticket.
                        known_by_ticket = !setups[which].is_tls12();
                    }
                    broken += 1;
                    continue;
                }
                1 => {
                    pair.connect().unwrap();
                    pair.client.close();
                }
                _ => {
                    pair.connect().unwrap();
                    pair.echo(b"hello").unwrap();
                }
            }
            assert_eq!(cached(&pair), [true, known_by_ticket]);
            known_by_ticket = true;
            for ticket in tickets {
                assert!(seen.insert(ticket));
            }
        }
        assert!(broken > 1000 && seen.len() >= 8000);
        assert_eq!(known.len(), 1);
    }
}

/// The connection breaks after the client's Finished was sent. Whether or not it arrives, the next handshake
/// omits the server's certificates. In TLS 1.2, if it arrives, only the server has the new ticket, and the
/// client sends its certificates once.
#[test]
fn lost_finished_costs_at_most_one_full_client_certificate() {
    for setup in setups() {
        for arrives in [false, true] {
            let (client, server, _) = setup.ends(KeyType::P256);
            connect(&client, &server);
            for _ in 0..5 {
                let mut pair = Pair::new(&client, &server);
                until(&mut pair, 2, arrives);
                assert_eq!(pair.client.is_handshaking(), setup.is_tls12());
                assert_eq!(pair.server.is_handshaking(), !arrives);
            }
            let shows = || shown(Pair::new(&client, &server).client.transmit()).len();
            // In TLS 1.2 the client has no new ticket before the server's Finished.
            assert_eq!(shows(), if setup.is_tls12() { 1 } else { 2 });
            let is_known = !(setup.is_tls12() && arrives);
            assert_eq!(connect(&client, &server).1, [true, is_known], "{setup:?}");
            assert_eq!(shows(), 1);
            assert_eq!(connect(&client, &server).1, [true; 2], "{setup:?}");
        }
    }
}

/// A client with several unfinished connections shows each ticket in only one of them. The ticket returns if
/// that connection fails.
#[test]
fn concurrent_connections_show_each_ticket_once() {
    for setup in setups() {
        let (client, server, _) = setup.ends(KeyType::P256);
        connect(&client, &server);
        let mut seen = BTreeSet::new();
        for _ in 0..20 {
            let mut pairs = [(); 3].map(|()| Pair::new(&client, &server));
            let shows = pairs.each_ref().map(|pair| shown(pair.client.transmit()));
            // A client without a free ticket sends its certificates.
            assert_eq!(shows.each_ref().map(Vec::len), [1, 0, 0]);
            assert!(shows.iter().flatten().all(|ticket| seen.insert(*ticket)));
            for (pair, is_known) in pairs.iter_mut().zip([true, false, false]) {
                pair.connect().unwrap();
                pair.echo(b"hello").unwrap();
                assert_eq!(cached(pair), [true, is_known], "{setup:?}");
                let said = [&pair.client, &pair.server].map(|end| end.negotiated().unwrap().ticket_shown);
                assert_eq!(said, [is_known; 2]);
            }
            // Of two abandoned connections, only the one that showed the ticket returns it.
            let [first, second] = [(); 2].map(|()| Pair::new(&client, &server));
            let ticket = shown(first.client.transmit());
            assert!(ticket.len() == 1 && shown(second.client.transmit()).is_empty());
            drop(second);
            assert!(shown(Pair::new(&client, &server).client.transmit()).is_empty());
            drop(first);
            assert_eq!(shown(Pair::new(&client, &server).client.transmit()), ticket);
        }
    }
}

/// A ticket is spent if the server does not answer the extension.
#[test]
fn unanswered_ticket_is_spent() {
    for setup in setups() {
        let (client, server, _) = setup.ends(KeyType::P256);
        connect(&client, &server);
        let config = ServerConfig::new(setup.profile(KeyType::P256, false).build().unwrap()).unwrap();
        let without = Arc::new(config.with_client_auth(ClientAuth::Required).unwrap());
        let mut pair = Pair::new(&client, &without);
        let shows = shown(pair.client.transmit());
        pair.connect().unwrap();
        pair.echo(b"hello").unwrap();
        assert_eq!((shows.len(), cached(&pair)), (1, [false; 2]));
        assert!(shown(Pair::new(&client, &server).client.transmit()).is_empty());
        assert_eq!(connect(&client, &server).1, [true, false]);
        assert_eq!(connect(&client, &server).1, [true; 2], "{setup:?}");
    }
}

/// After an alert in answer to the ClientHello, the next handshake is full.
#[test]
fn next_handshake_is_full_after_a_refused_client_hello() {
    for setup in setups() {
        let (client, server, _) = setup.ends(KeyType::P256);
        connect(&client, &server);
        let mut pair = Pair::new(&client, &server);
        // RFC 8446 §6: fatal, internal_error.
        pair.client.receive(NOW, &[21, 3, 3, 0, 2, 2, 80]).unwrap_err();
        assert_eq!(connect(&client, &server).1, [false; 2], "{setup:?}");
        assert_eq!(connect(&client, &server).1, [true; 2], "{setup:?}");
    }
}

/// After the server refused the client's Finished, the next handshake is full.
#[test]
fn next_handshake_is_full_after_a_refused_finished() {
    for setup in setups() {
        let (client, server, _) = setup.ends(KeyType::P256);
        connect(&client, &server);
        let mut pair = Pair::new(&client, &server);
        until(&mut pair, 1, true);
        carry(&mut pair.server, &mut pair.client, NOW).1.unwrap();
        let mut flight = pair.client.transmit().to_vec();
        *flight.last_mut().unwrap() ^= 1;
        pair.server.receive(NOW, &flight).unwrap_err();
        carry(&mut pair.server, &mut pair.client, NOW).1.unwrap_err();
        assert_eq!(connect(&client, &server).1, [false; 2], "{setup:?}");
        assert_eq!(connect(&client, &server).1, [true; 2], "{setup:?}");
    }
}

/// An expired or unusable session does not prevent the use of the cache; a resumed session leaves the cache
/// unchanged.
#[test]
fn sessions_and_the_cache_work_side_by_side() {
    for setup in setups() {
        for (reverify, tickets) in [false, true]
            .into_iter()
            .flat_map(|r| dunlin_tests::ends::tickets().into_iter().map(move |t| (r, t)))
        {
            let store = Arc::new(MemoryServerCache::new(4));
            let server =
                setup.server_config(setup.profile(KeyType::P256, false), ClientAuth::Required, &store);
            let server = Arc::new(server.with_tickets(tickets));
            let known = Arc::new(dunlin_store::MemoryClientCache::default());
            let client = setup.client_config(setup.profile(KeyType::P256, true), &known);
            let client =
                client.with_sessions(dunlin_tests::ends::with_sessions()).with_reverification(reverify);
            let ends: Ends = (Arc::new(client.clone()), server);
            // A client without sessions shows the current tickets.
            let peek = Arc::new(setup.client_config(setup.profile(KeyType::P256, true), &known));
            let tickets = || shown(Pair::new(&peek, &ends.1).client.transmit());
            let run = |days: u64| {
                let now = Now::from_unix_ms(NOW.unix_ms + days * 24 * 3_600_000);
                let mut pair = Pair::at(&ends.0, &ends.1, now);
                let shows = !shown(pair.client.transmit()).is_empty();
                pair.connect().unwrap();
                pair.echo(b"hello").unwrap();
                let resumed = pair.client.negotiated().unwrap().is_resumed();
                // A ticket sent with a session would reappear in the next resumption.
                assert!(!(resumed && shows));
                (resumed, cached(&pair))
            };
            assert_eq!(run(0), (false, [false; 2]));
            let first = tickets();
            assert_eq!(run(0), (true, [false; 2]));
            assert_eq!(tickets(), first);
            // Sessions live for a day here; the cache's entries live for thirty days.
            assert_eq!(run(8), (false, [true; 2]));
            let second = tickets();
            assert_ne!(second, first);
            // A session from a handshake with omitted certificates cannot be verified again, so the client
            // does not resume it.
            let expected = if reverify { (false, [true; 2]) } else { (true, [false; 2]) };
            assert_eq!(run(8), expected, "{setup:?}");
            assert_eq!(tickets() == second, !reverify);
        }
    }
}

/// A client with another credential, or with none, does not send the ticket of a previous user.
#[test]
fn client_shows_a_ticket_only_with_its_credential() {
    let setup = Setup { version: ProtocolVersion::TLS1_3, mode: CacheMode::Compact };
    let store = Arc::new(MemoryServerCache::new(4));
    let server = setup.server_config(setup.profile(KeyType::P256, false), ClientAuth::Optional, &store);
    let server = Arc::new(server);
    let known = Arc::new(dunlin_store::MemoryClientCache::default());
    let client = |profile| Arc::new(setup.client_config(profile, &known));
    let own = client(setup.profile(KeyType::P256, true));
    let hello = |client| shown(Pair::new(client, &server).client.transmit());
    let mut pair = Pair::new(&own, &server);
    pair.connect().unwrap();
    pair.echo(b"hello").unwrap();
    assert_eq!(hello(&own).len(), 1);
    let anonymous = client(setup.profile(KeyType::P256, true).credentials(vec![]));
    assert_eq!(hello(&anonymous), [[0; 8]; 0]);
    // The connection without credential does not consume the ticket.
    Pair::new(&anonymous, &server).connect().unwrap();
    assert_eq!(hello(&own).len(), 1);
}
