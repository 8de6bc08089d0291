//! Lost datagrams: both sides retransmit handshake messages until the peer has them (RFC 9147 §5.8).
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use common::{App, Configs, DELAY, OwnPair, connect, epoch_bits, exchange, profile, sent};
use dunlin::error::{Error, Misuse};
use dunlin::resume::Tickets;
use dunlin::{Event, Instant, Now, Side};
use dunlin_sim::{Conditions, Delay, Impaired, Link, Pair};
use dunlin_store::{MemoryClientSessions, RotatingTickets};
use dunlin_tests::{KeyType, NOW, awslc};

/// A link with [`DELAY`] that loses the packets with these indexes.
fn losing(lost: impl Fn(usize) -> bool + 'static) -> Box<dyn Link> {
    let mut index = 0;
    Box::new(move |_: Duration, packet: Vec<u8>| {
        index += 1;
        if lost(index - 1) { vec![] } else { vec![(DELAY, packet)] }
    })
}

fn pair(configs: &Configs, to_client: Box<dyn Link>, to_server: Box<dyn Link>) -> OwnPair {
    Pair::with_links(configs.client(), configs.server(), configs.now, to_client, to_server)
}

/// The virtual time since the beginning.
fn passed(pair: &OwnPair) -> Duration {
    pair.now.monotonic.since(NOW.monotonic)
}

/// A server that issues tickets, and a client that keeps them.
fn with_tickets() -> Configs {
    let provider = awslc();
    let seal = Arc::new(RotatingTickets::new(Arc::clone(&provider)).unwrap());
    let mut configs = Configs::ecdsa(&provider);
    configs.client = configs.client.with_sessions(Arc::new(MemoryClientSessions::new(1, 4)));
    configs.server = configs.server.with_tickets(Tickets::stateless(seal));
    configs
}

#[test]
fn connects_over_lossy_links() {
    let mut longest = Duration::ZERO;
    for (i, loss) in [0.1, 0.2, 0.3].into_iter().enumerate() {
        for (mtu, cookies) in [(300, true), (300, false), (1200, true), (1200, false)] {
            let mut configs = with_tickets().mtu(mtu).cookies(cookies);
            // With the default, a side gives up about once in a hundred handshakes that lose 30% of their
            // datagrams.
            let [first, longest_timeout, give_up] = [1, 60, 3600].map(Duration::from_secs);
            let retransmission = dunlin::Retransmission::new(first, longest_timeout, give_up).unwrap();
            configs.client = configs.client.with_retransmission(retransmission);
            configs.server = configs.server.with_retransmission(retransmission);
            for seed in 0..8 {
                let conditions =
                    Conditions { delay: DELAY, loss, reorder: 0.1, duplicate: 0.1, ..Conditions::default() };
                let link = |to| Box::new(Impaired::new(conditions, seed * 100 + i as u64 * 10 + to));
                let mut pair = pair(&configs, link(0), link(1));
                connect(&mut pair);
                assert_eq!((pair.client.poll_timeout(), pair.server.poll_timeout()), (None, None));
                longest = longest.max(passed(&pair));
            }
        }
    }
    assert!(longest > Duration::from_secs(1), "nothing was lost");
}

/// Every datagram of a handshake can be lost, once.
#[test]
fn replaces_each_lost_datagram() {
    for cookies in [false, true] {
        let configs = with_tickets().mtu(400).cookies(cookies);
        let mut whole = configs.pair();
        connect(&mut whole);
        assert!(passed(&whole) < Duration::from_secs(1));
        for by in [Side::Client, Side::Server] {
            for lost in 0..sent(&whole, by, 0).len() {
                let mut links = [losing(move |i| i == lost), losing(|_| false)];
                if by == Side::Client {
                    links.reverse();
                }
                let [to_client, to_server] = links;
                let mut pair = pair(&configs, to_client, to_server);
                connect(&mut pair);
                // Without the ServerHello the client cannot prove its address, and the server must save
                // bytes.
                let is_hello = by == Side::Server && lost == usize::from(cookies);
                let most = if is_hello { 5000 } else { 1400 };
                let took = passed(&pair);
                assert!((200..most).contains(&took.as_millis()), "{by:?} {lost}: {took:?}");
                assert!(
                    std::iter::from_fn(|| pair.client.poll_event())
                        .any(|e| matches!(e, Event::TicketReceived))
                );
                exchange(&mut pair);
            }
        }
    }
}

/// RFC 9147 §7.1: an acknowledgement of the received part lets the peer omit it.
#[test]
fn omits_what_the_peer_has_acknowledged() {
    let configs = Configs::ecdsa(&awslc()).mtu(200);
    let mut whole = configs.pair();
    connect(&mut whole);
    let flight = sent(&whole, Side::Server, 0).len() - 1;
    assert!(flight > 4);
    let mut pair = pair(&configs, losing(|i| i == 3), Box::new(Delay(DELAY)));
    connect(&mut pair);
    // The lost datagram, and the acknowledgement of the client's flight.
    assert_eq!(sent(&pair, Side::Server, 0).len(), flight + 2);
    // The client acknowledges after a quarter of a second.
    assert!((250..500).contains(&passed(&pair).as_millis()));
}

/// A server must not use its application keys before it has verified the client's Finished
/// (docs/handshake-cache.md §3.4).
#[test]
fn acknowledges_a_part_of_the_last_flight_under_handshake_keys() {
    let configs = Configs::ecdsa(&awslc()).mtu(300);
    let mut whole = configs.pair();
    connect(&mut whole);
    let flight = sent(&whole, Side::Server, 0).len() - 1;
    let last = sent(&whole, Side::Client, 0).len() - 1;
    let mut pair = pair(&configs, Box::new(Delay(DELAY)), losing(move |i| i == last));
    connect(&mut pair);
    let epochs: Vec<_> =
        sent(&pair, Side::Server, 0)[flight..].iter().map(|datagram| epoch_bits(datagram)).collect();
    assert_eq!(epochs, [2, 3]);
    assert_eq!(sent(&pair, Side::Client, 0).len(), last + 2);
    assert!((250..500).contains(&passed(&pair).as_millis()));
}

/// RFC 8446 §6.1: close_notify is the last record of this side.
#[test]
fn a_side_that_has_closed_sends_no_acknowledgements() {
    let configs = Configs::ecdsa(&awslc()).mtu(300);
    // The client gets only the beginning of the server's flight, and will acknowledge it.
    let mut pair = pair(&configs, losing(|i| i > 2), Box::new(Delay(DELAY)));
    pair.run_for(DELAY * 3).unwrap();
    let deadline = pair.client.poll_timeout().unwrap();
    assert!(deadline.since(pair.now.monotonic) <= Duration::from_millis(250));
    pair.client.close();
    let now = Now { monotonic: deadline, ..pair.now };
    pair.client.handle_timeout(now).unwrap();
    let sent: Vec<_> = std::iter::from_fn(|| pair.client.poll_transmit(now)).collect();
    assert_eq!(sent.len(), 1, "close_notify alone");
}

#[test]
fn retransmits_key_updates() {
    let configs = Configs::ecdsa(&awslc());
    let mut whole = configs.pair();
    connect(&mut whole);
    let before = sent(&whole, Side::Client, 0).len();
    let mut pair = pair(&configs, Box::new(Delay(DELAY)), losing(move |i| i == before));
    connect(&mut pair);
    pair.client.update_keys(false).unwrap();
    pair.run_for(DELAY * 4).unwrap();
    assert_eq!(pair.client.update_keys(false), Err(Misuse::KeyUpdateWaits.into()));
    pair.run().unwrap();
    pair.client.update_keys(false).unwrap();
    pair.run().unwrap();
    exchange(&mut pair);
}

/// The timeout doubles from 1 to 60 seconds (RFC 9147 §5.8.1), and the number of retransmissions is limited.
#[test]
fn gives_up_a_peer_that_never_answers() {
    let configs = Configs::ecdsa(&awslc());
    let mut pair = pair(&configs, Box::new(Delay(DELAY)), losing(|_| true));
    pair.run().unwrap();
    assert_eq!(pair.client.error(), Some(&Error::TimedOut));
    let mut times: Vec<_> = pair.sent.iter().map(|sent| sent.after.as_secs()).collect();
    times.dedup();
    assert_eq!(times, [0, 1, 3, 7, 15, 31, 63, 123, 183]);
    // In the end a datagram is small enough for any path.
    assert!(pair.sent[0].packet.len() > 150 && pair.sent.last().unwrap().packet.len() <= 99);
    assert_eq!(passed(&pair).as_secs(), 243);
    assert_eq!(pair.client.poll_timeout(), None);
    assert_eq!(pair.client.handle_timeout(pair.now), Err(Error::TimedOut));
}

/// The client receives a part of the server's flight, and then neither side receives anything.
#[test]
fn gives_up_a_client_that_vanishes() {
    let configs = Configs::ecdsa(&awslc()).mtu(200);
    // The client acknowledges a part of the server's flight.
    let mut pair = pair(&configs, losing(|i| i == 3 || i > 5), losing(|i| i > 1));
    pair.run().unwrap();
    assert_eq!((pair.client.error(), pair.server.error()), (Some(&Error::TimedOut), Some(&Error::TimedOut)));
    assert_eq!((pair.client.poll_timeout(), pair.server.poll_timeout()), (None, None));
    assert!(sent(&pair, Side::Client, 0).len() > 5, "it repeats its acknowledgement");
}

/// A server that closes at once sends no further acknowledgement, but its close_notify shows that it is
/// connected.
#[test]
fn a_close_notify_acknowledges_the_last_flight() {
    let configs = Configs::ecdsa(&awslc());
    let mut whole = configs.pair();
    connect(&mut whole);
    let acknowledgement = sent(&whole, Side::Server, 0).len() - 1;
    let mut pair = pair(&configs, losing(move |i| i == acknowledgement), Box::new(Delay(DELAY)));
    pair.run_for(DELAY * 4).unwrap();
    pair.server.assert_connected();
    pair.server.close();
    pair.run().unwrap();
    assert!(pair.client.peer_has_closed());
    assert_eq!((pair.client.error(), pair.client.poll_timeout()), (None, None));
    assert!(passed(&pair) < Duration::from_secs(1));
}

/// Established connections do not depend on tickets.
#[test]
fn a_connection_outlives_a_ticket_that_the_client_never_acknowledges() {
    let configs = with_tickets();
    let mut whole = configs.pair();
    connect(&mut whole);
    // The client's acknowledgement of the ticket is its last datagram.
    let before = sent(&whole, Side::Client, 0).len() - 1;
    let mut pair = pair(&configs, Box::new(Delay(DELAY)), losing(move |i| i >= before));
    connect(&mut pair);
    assert!(passed(&pair) > Duration::from_secs(180));
    pair.server.send(b"still there").unwrap();
    pair.run().unwrap();
    assert_eq!(pair.client.received(), [b"still there"]);
}

/// The receiver takes messages in order, so the ACK of a KeyUpdate does not mean that it has replaced its
/// keys.
#[test]
fn a_key_update_waits_for_the_ticket_before_it() {
    let configs = with_tickets();
    let mut whole = configs.pair();
    connect(&mut whole);
    let ticket = sent(&whole, Side::Server, 0).len() - 1;
    let mut pair = pair(&configs, losing(move |i| i == ticket), Box::new(Delay(DELAY)));
    pair.run_for(DELAY * 4).unwrap();
    pair.server.update_keys(false).unwrap();
    pair.run_for(Duration::from_secs(20)).unwrap();
    pair.server.send(b"under new keys").unwrap();
    pair.run_for(Duration::from_secs(20)).unwrap();
    assert_eq!(pair.client.received(), [b"under new keys"]);
    assert_eq!(pair.client.discarded().no_keys, 0);
}

/// RFC 9147 §7: a client does not acknowledge what it may still drop. One datagram of the server's tickets is
/// lost, the client gets the others, and an outage lasts until it drops them. The server then sends all of
/// them again, and later messages arrive, too.
#[test]
fn tickets_of_which_a_part_was_lost_arrive_after_an_outage() {
    let outage = Duration::from_secs(300);
    for (mtu, count) in [(300, 3), (300, 4), (240, 2)] {
        let seal = Arc::new(RotatingTickets::new(awslc()).unwrap());
        let mut configs = with_tickets().mtu(mtu);
        configs.server = configs.server.with_tickets(Tickets::stateless(seal).count(count));
        let mut whole = configs.pair();
        connect(&mut whole);
        let end = passed(&whole);
        let flight = sent(&whole, Side::Server, 0);
        let tickets = flight.iter().position(|datagram| datagram[0] >> 5 == 1 && epoch_bits(datagram) == 3);
        let tickets = tickets.unwrap()..flight.len();
        assert!(tickets.len() > 2, "{mtu} {count}: {tickets:?}");
        // The first one also acknowledges the client's Finished, without which there is no connection.
        for lost in tickets.skip(1) {
            let works = move |at: Duration| at < end || at >= end + outage;
            let link = move |lost: usize| {
                let mut index = 0;
                Box::new(move |at: Duration, packet: Vec<u8>| {
                    index += 1;
                    if works(at) && index - 1 != lost { vec![(DELAY, packet)] } else { vec![] }
                })
            };
            let mut pair = pair(&configs, link(lost), link(usize::MAX));
            pair.run_for(end + outage).unwrap();
            pair.client.send(b"back").unwrap();
            pair.run().unwrap();
            assert_eq!((pair.client.poll_timeout(), pair.server.poll_timeout()), (None, None));
            assert_eq!(pair.server.received(), [b"back"]);
            // The client takes messages in order, so it has all tickets once it takes a KeyUpdate.
            pair.server.update_keys(false).unwrap();
            pair.run().unwrap();
            exchange(&mut pair);
        }
    }
}

/// Any host can send a ClientHello in another host's name. The other host gets at most three times its bytes
/// by retransmissions, or a single flight.
#[test]
fn a_server_retransmits_little_to_an_address_that_nobody_has_proven() {
    let configs = Configs::ecdsa(&awslc());
    for hellos in [1, 5] {
        // The client repeats its ClientHello until its datagrams are lost.
        let mut pair = pair(&configs, losing(|_| true), losing(move |i| i >= hellos));
        pair.run().unwrap();
        let bytes = |by, skip: usize| sent(&pair, by, 0).iter().skip(skip).map(|d| d.len()).sum::<usize>();
        let hello = sent(&pair, Side::Client, 0)[0].len();
        let answered = bytes(Side::Server, 0);
        let flight: usize = {
            let first = pair.sent.iter().find(|sent| sent.by == Side::Server).unwrap().after;
            let flight = pair.sent.iter().filter(|sent| sent.by == Side::Server && sent.after == first);
            flight.map(|sent| sent.packet.len()).sum()
        };
        assert!(answered <= flight.max(3 * hello * hellos), "{answered} bytes for {hellos} of {hello}");
        assert_eq!(answered > flight, hellos > 1, "{answered} {flight}");
        // It waits for the next ClientHello, but not for ever.
        assert_eq!((pair.server.poll_timeout(), pair.server.error()), (None, Some(&Error::TimedOut)));
    }
}

/// A link that loses packets above 300 bytes.
fn narrow() -> impl Link + Clone + 'static {
    |_: Duration, packet: Vec<u8>| if packet.len() > 300 { vec![] } else { vec![(DELAY, packet)] }
}

/// Seed 4114 of the random worlds. Without a cookie, the server sends little before the client has proven its
/// address, and must not waste it on large datagrams.
#[test]
fn a_server_without_cookies_finds_the_size_of_a_narrow_path() {
    let configs = Configs::of(
        profile(&awslc(), Side::Client, KeyType::Rsa2048).build().unwrap(),
        profile(&awslc(), Side::Server, KeyType::Rsa2048).build().unwrap(),
    );
    let mut pair = configs.pair_over(&narrow());
    connect(&mut pair);
    let took = passed(&pair);
    assert!(took < Duration::from_secs(40), "{took:?}");
}

/// RFC 9147 §5.1: a HelloRetryRequest has no timer. The server repeats it for each repeated ClientHello.
#[test]
fn repeats_a_hello_retry_request_only_when_asked() {
    let configs = Configs::ecdsa(&awslc()).cookies(true);
    let mut pair = pair(&configs, losing(|_| true), losing(|i| i > 2));
    pair.run().unwrap();
    let times: Vec<_> =
        pair.sent.iter().filter(|sent| sent.by == Side::Server).map(|sent| sent.after.as_millis()).collect();
    assert_eq!(times, [20, 1020, 3020]);
    assert_eq!((pair.server.poll_timeout(), pair.server.error()), (None, Some(&Error::TimedOut)));
}

#[test]
fn timers_do_nothing_before_their_deadline() {
    let configs = Configs::ecdsa(&awslc());
    let mut client = configs.client();
    assert_eq!(client.poll_timeout(), None, "the flight has not left");
    while client.poll_transmit(NOW).is_some() {}
    let deadline = NOW.monotonic + Duration::from_secs(1);
    assert_eq!(client.poll_timeout(), Some(deadline));
    let at = |monotonic| Now { monotonic, ..NOW };
    client.handle_timeout(at(Instant(deadline.0 - 1))).unwrap();
    assert_eq!((client.poll_transmit(NOW), client.poll_timeout()), (None, Some(deadline)));
    client.handle_timeout(at(deadline)).unwrap();
    assert!(client.poll_transmit(at(deadline)).is_some());
    assert_eq!(client.poll_timeout(), Some(deadline + Duration::from_secs(2)));
}

/// A connection has one peer address (RFC 9146 §6). The client moves to another one and back.
#[test]
fn discards_datagrams_from_another_address() {
    let configs = Configs::ecdsa(&awslc());
    let mut pair = configs.pair();
    connect(&mut pair);
    let home = pair.client_address;
    assert_eq!(pair.server.peer_address(), home);
    pair.client_address = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 1).into(), home.port());
    pair.client.send(b"from elsewhere").unwrap();
    pair.server.send(b"to an abandoned address").unwrap();
    pair.run().unwrap();
    assert_eq!((pair.server.received(), pair.client.received()), (vec![], vec![]));
    assert_eq!(pair.server.discarded().other_address, 1);
    pair.client_address = SocketAddr::new(home.ip(), home.port() + 1);
    pair.client.send(b"from another port").unwrap();
    pair.run().unwrap();
    assert_eq!((pair.server.received(), pair.server.discarded().other_address), (vec![], 2));
    pair.client_address = home;
    exchange(&mut pair);
}

/// RFC 9147 §7.1: without protected records to acknowledge, a client acknowledges nothing, which tells the
/// server that its ServerHello has arrived. Without a cookie the server may not retransmit before.
#[test]
fn an_empty_ack_asks_for_the_rest_of_the_servers_flight() {
    let configs = Configs::ecdsa(&awslc()).mtu(300);
    // All but the ServerHello is lost, and the server's budget for an address without proof is spent.
    let mut pair = pair(&configs, losing(|i| (1..20).contains(&i)), Box::new(Delay(DELAY)));
    connect(&mut pair);
    exchange(&mut pair);
}

#[test]
fn uses_the_timeouts_of_the_configuration() {
    let mut configs = Configs::ecdsa(&awslc());
    let timeouts = [400, 3000, 8000].map(Duration::from_millis);
    let [first, longest, give_up] = timeouts;
    let retransmission = dunlin::Retransmission::new(first, longest, give_up).unwrap();
    configs.client = configs.client.with_retransmission(retransmission);
    let mut pair = pair(&configs, Box::new(Delay(DELAY)), losing(|_| true));
    pair.run().unwrap();
    let times: Vec<_> = pair.sent.iter().map(|sent| sent.after.as_millis()).collect();
    assert_eq!(times, [0, 400, 1200, 2800, 5800]);
    assert_eq!((pair.client.error(), passed(&pair)), (Some(&Error::TimedOut), give_up));
}
