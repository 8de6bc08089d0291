//! Records that leave over all interfaces at once, in both directions.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use dunlin::Multihoming;
use dunlin::wire::ProtocolVersion;
use dunlin_sim::SentBy;

use super::common::{App, DELAY, VERSIONS};
use super::{Homes, PORT, configs, ip};

/// Each record leaves over both interfaces. One of them fails, and nothing is late or arrives twice.
#[test]
fn duplicated_records_arrive_once_and_in_time() {
    for version in VERSIONS {
        let mut homes = Homes::new(version, Multihoming::duplicated());
        homes.exchange();
        for byte in 0..30 {
            if byte == 10 {
                homes.cut(0);
            }
            if byte == 20 {
                homes.down(0);
            }
            homes.send([byte]);
            homes.wait(DELAY * 2);
            assert_eq!(homes.received(), [byte], "{version}");
            // The answer, too.
            homes.server().send(&[byte]).unwrap();
            homes.wait(DELAY * 2);
            assert_eq!(homes.client().received().concat(), [byte], "{version}");
        }
        assert!(homes.changes().iter().all(|change| change.unrepeated == 0));
        homes.settle();
        homes.exchange();
    }
}

/// The interface fails over which the server sends, and the server does not know. Its copy over the other one
/// is not late.
#[test]
fn a_server_sends_copies_to_a_client_that_sends_copies() {
    for version in VERSIONS {
        let mut homes = Homes::new(version, Multihoming::duplicated());
        (0..4).for_each(|_| homes.exchange());
        for (byte, failing) in [(1, 0), (2, 1)] {
            homes.send([byte]);
            homes.wait(DELAY * 2);
            assert_eq!(homes.received(), [byte]);
            homes.cut(failing);
            homes.server().send(&[byte]).unwrap();
            homes.wait(DELAY * 2);
            assert_eq!(homes.client().received().concat(), [byte], "{version}");
            homes.mend(failing);
            homes.exchange();
        }
        assert_eq!(homes.server().path_checks().begun, 0, "the client stays where it is");
        assert_eq!(homes.changes(), []);
        // A client that sends no copies gets none.
        let mut homes = Homes::new(version, Multihoming::linkable());
        (0..4).for_each(|_| homes.exchange());
        assert_eq!(homes.copies().len(), 0);
    }
}

#[test]
fn copies_end_on_a_path_from_which_none_comes() {
    for is_silent in [false, true] {
        let mut homes = Homes::new(ProtocolVersion::DTLS1_3, Multihoming::duplicated());
        (0..4).for_each(|_| homes.exchange());
        let copies = homes.copies();
        let [to] = copies[..] else { panic!("{copies:?}") };
        let copy =
            homes.network.sent.iter().rfind(|sent| sent.from.ip() == ip(8, 1)).unwrap().datagram.clone();
        homes.cut(1);
        if is_silent {
            (0..3).for_each(|_| {
                homes.wait(Duration::from_secs(41));
                // Somebody repeats an old copy, which does not keep the path alive, but gets a challenge.
                let now = homes.network.now;
                homes.server().receive(now, to, &copy).unwrap();
            });
        } else {
            (0..33).for_each(|byte| {
                homes.send([byte]);
                homes.wait(DELAY * 2);
            });
        }
        assert_eq!(homes.copies(), []);
    }
}

/// The first copy of each record comes over the other path.
#[test]
fn a_faster_path_begins_no_check_while_the_present_one_works() {
    let configs = configs(ProtocolVersion::DTLS1_3, Multihoming::duplicated());
    let mut homes = Homes::with_delays(configs, [DELAY * 3, DELAY]);
    (0..4).for_each(|_| homes.exchange());
    let before = homes.server().path_checks();
    (0..10).for_each(|_| homes.exchange());
    assert_eq!((homes.server().path_checks(), homes.copies().len()), (before, 1));
    // The client has left the present path.
    homes.down(0);
    homes.exchange();
    assert_eq!(homes.server().peer_address().ip(), ip(0, 3));
    assert_eq!(homes.server().path_checks().moved, before.moved + 1);
}

/// An attacker repeats the client's records from other addresses.
#[test]
fn repeated_records_from_elsewhere_get_at_most_three_times_their_bytes() {
    for multihoming in [Multihoming::linkable(), Multihoming::duplicated()] {
        let mut homes = Homes::new(ProtocolVersion::DTLS1_3, multihoming);
        homes.exchange();
        let since = homes.network.sent.len();
        homes.send(0..40);
        homes.settle();
        let from_client = |sent: &&SentBy| sent.from.ip() == ip(7, 1);
        let records: Vec<_> = homes.network.sent[since..].iter().filter(from_client).cloned().collect();
        assert!(records.len() >= 40);
        let now = homes.network.now;
        let mut sent = 0;
        let mut challenged = BTreeSet::new();
        for host in 1..=10 {
            let elsewhere = SocketAddr::new(ip(66, host), PORT);
            let mut gets = 0;
            for record in &records {
                homes.server().receive(now, elsewhere, &record.datagram).unwrap();
                sent += record.datagram.len();
                while let Some(transmit) = homes.server().poll_transmit(now) {
                    if transmit.to == elsewhere {
                        gets += transmit.datagram.len();
                        challenged.insert(elsewhere);
                    }
                }
            }
            assert!(gets <= 3 * sent, "{gets} bytes for {sent}");
            sent = 0;
        }
        assert!((1..=3).contains(&challenged.len()), "{challenged:?}");
        homes.server().send(b"data").unwrap();
        while let Some(transmit) = homes.server().poll_transmit(now) {
            assert!(!challenged.contains(&transmit.to), "nobody there has answered");
        }
    }
}
