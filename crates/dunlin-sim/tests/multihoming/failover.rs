//! Interfaces that fail in other ways than at once and for good.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dunlin::wire::ProtocolVersion;
use dunlin::{Local, Multihoming};
use dunlin_sim::Change;

use super::common::{App, DELAY};
use super::{Homes, Line, PROBE, ip};

/// One interface is quiet while another often changes its address, and so its connection ID.
#[test]
fn a_quiet_interface_keeps_its_id() {
    let mut homes = Homes::new(ProtocolVersion::DTLS1_3, Multihoming::unlinkable());
    homes.exchange();
    let third = Arc::new(Line::default()).links(DELAY);
    let third = homes.network.attach(homes.client, ip(9, 1), None, third);
    homes.exchange();
    for round in 0..20 {
        homes.up(1, ip(8, 10 + round));
        homes.settle();
        homes.exchange();
    }
    homes.down(1);
    homes.settle();
    let quiet = homes.ids_from(ip(9, 1), 0);
    homes.down(0);
    homes.send([1]);
    homes.wait(DELAY * 2);
    assert_eq!((homes.received(), homes.client().path().local), (vec![1], Local(2)));
    assert_eq!(homes.ids_from(ip(9, 1), 0), quiet, "the ID that the interface has kept");
    homes.network.change(Change::Address(third, None));
}

/// The caller's sockets take nothing for a while.
#[test]
fn a_challenge_that_was_not_sent_does_not_count() {
    for multihoming in [Multihoming::linkable(), Multihoming::unlinkable()] {
        let mut homes = Homes::new(ProtocolVersion::DTLS1_3, multihoming);
        homes.exchange();
        while homes.client().send(b"too much").is_ok() {}
        let mut now = homes.network.now;
        for _ in 0..20 {
            now.monotonic = now.monotonic + PROBE;
            homes.client().handle_timeout(now).unwrap();
        }
        assert_eq!(homes.changes(), []);
        assert_eq!(homes.client().path().local, Local(0));
    }
}

/// The server is heard, but does not hear.
#[test]
fn a_dead_uplink_is_noticed_although_the_server_sends() {
    let mut homes = Homes::new(ProtocolVersion::DTLS1_3, Multihoming::linkable());
    homes.exchange();
    homes.lines[0].drops_outgoing.store(true, Ordering::Relaxed);
    let mut sent = 0;
    while homes.client().path().local == Local(0) {
        assert!(sent < 50, "nothing noticed");
        homes.send([sent]);
        sent += 1;
        for _ in 0..10 {
            homes.server().send(b"still here").unwrap();
            homes.wait(DELAY * 2);
        }
    }
    homes.client().received();
    homes.received();
    homes.exchange();
}

/// The network behind the interface holds everything up for a while, and loses nothing.
#[test]
fn a_late_answer_brings_an_interface_back() {
    for multihoming in [Multihoming::linkable(), Multihoming::unlinkable()] {
        let mut homes = Homes::new(ProtocolVersion::DTLS1_3, multihoming);
        homes.exchange();
        homes.lines[0].lag.store(1000, Ordering::Relaxed);
        homes.send([1]);
        homes.wait(PROBE * 2);
        assert_eq!(homes.client().path().local, Local(1));
        homes.lines[0].lag.store(0, Ordering::Relaxed);
        homes.wait(PROBE * 6);
        assert_eq!(homes.client().path().local, Local(0));
        homes.settle();
        homes.received();
        homes.exchange();
    }
}

/// The best interface works again, but the client gets no notice of it.
#[test]
fn a_failed_interface_is_probed_again_while_data_leaves() {
    for multihoming in [Multihoming::linkable(), Multihoming::unlinkable()] {
        let mut homes = Homes::new(ProtocolVersion::DTLS1_3, multihoming);
        homes.exchange();
        homes.cut(0);
        homes.send([1]);
        homes.settle();
        homes.received();
        let since = homes.network.sent.len();
        for _ in 0..120 {
            homes.exchange();
            homes.wait(Duration::from_secs(5));
        }
        assert_eq!(homes.client().path().local, Local(1));
        let probes = homes.network.sent[since..].iter().filter(|sent| sent.from.ip() == ip(7, 1)).count();
        assert!((6..=15).contains(&probes), "{probes} challenges in ten minutes");
        homes.mend(0);
        let mut rounds = 0;
        while homes.client().path().local == Local(1) {
            assert!(rounds < 120, "never probed again");
            homes.exchange();
            homes.wait(Duration::from_secs(5));
            rounds += 1;
        }
        homes.exchange();
    }
}
