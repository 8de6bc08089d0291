//! The effects of the link between two namespaces on packets. The accuracy of its times is measured, not
//! tested.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use dunlin_lab::link::{Cut, Line, Link};
use dunlin_lab::net::{End, Namespace};

use crate::common::{PATIENCE, privileged, until};

const A: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
const B: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 2);
const MTU: u16 = 200;
/// An IP header without options and a UDP header.
const HEADERS: usize = 28;

/// A link and a socket at each end of it.
struct Ends {
    link: Link,
    a: UdpSocket,
    b: UdpSocket,
}

impl Ends {
    fn new(line: &Line) -> Option<Self> {
        let a = privileged(Namespace::new("a"))?;
        let b = Namespace::new("b").unwrap();
        let end =
            |namespace, address| End { namespace, device: "line", address: Some((address, 24)), mtu: MTU };
        let link = Link::start([end(&a, A), end(&b, B)], line, 1).unwrap();
        let socket = |namespace: &Namespace, address| {
            let socket = namespace.run(|| UdpSocket::bind((address, 0))).unwrap().unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket
        };
        let ends = Self { link, a: socket(&a, A), b: socket(&b, B) };
        ends.a.connect(ends.b.local_addr().unwrap()).unwrap();
        ends.b.connect(ends.a.local_addr().unwrap()).unwrap();
        Some(ends)
    }

    /// Sends `message` from one end to the other and back.
    fn echo(&self, message: &[u8]) {
        let mut buffer = [0; 1024];
        for (from, to) in [(&self.a, &self.b), (&self.b, &self.a)] {
            from.send(message).unwrap();
            let len = to.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..len], message);
        }
    }

    /// Checks that no datagram waits at the other end.
    fn nothing_arrived(&self) {
        self.b.set_nonblocking(true).unwrap();
        assert_eq!(self.b.recv(&mut [0; 1024]).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}

#[test]
fn forwards_and_counts_datagrams_in_both_directions() {
    let line = Line { delay: Duration::from_millis(1), rate_kbit_per_s: Some(1000), ..Line::default() };
    let Some(ends) = Ends::new(&line) else { return };
    ends.echo(b"here and there");
    let counts = ends.link.stop().unwrap();
    assert_eq!((counts.forwarded, counts.forwarded_bytes), (2, 2 * (HEADERS as u64 + 14)));
    assert_eq!(counts.lost + counts.cut + counts.overflowed + counts.refused, 0);
}

#[test]
fn keeps_the_mtu() {
    let Some(ends) = Ends::new(&Line::default()) else { return };
    let largest = vec![7; usize::from(MTU) - HEADERS];
    ends.echo(&largest);
    assert_eq!(ends.link.counts().forwarded, 2);
    // One byte more takes two fragments in each direction.
    ends.echo(&[&largest[..], &[7]].concat());
    assert_eq!(ends.link.counts().forwarded, 6);
}

#[test]
fn loses_packets() {
    let Some(ends) = Ends::new(&Line { loss_percent: 100.0, ..Line::default() }) else { return };
    ends.a.send(b"into the void").unwrap();
    until(|| (ends.link.counts().lost == 1).then_some(()));
    ends.nothing_arrived();
}

#[test]
fn loses_packets_during_a_cut() {
    let cut = Cut { up: PATIENCE, down: PATIENCE, phase: Duration::ZERO };
    let Some(ends) = Ends::new(&Line { cut: Some(cut), ..Line::default() }) else { return };
    ends.a.send(b"into the void").unwrap();
    until(|| (ends.link.counts().cut == 1).then_some(()));
    ends.nothing_arrived();
}

#[test]
fn refuses_an_existing_device() {
    let Some(namespace) = privileged(Namespace::new("both")) else { return };
    let end = End { namespace: &namespace, device: "line", address: None, mtu: MTU };
    let error = Link::start([end, end], &Line::default(), 1).unwrap_err();
    assert!(error.to_string().contains("is there already"), "{error}");
}

#[test]
fn names_a_missing_namespace() {
    let error = Namespace::open("nobody-made-this").unwrap_err();
    assert!(error.to_string().starts_with("network namespace nobody-made-this: "), "{error}");
    let error = Namespace::open("/proc/self/exe").unwrap().enter().unwrap_err();
    assert!(!error.to_string().contains('\n'), "{error}");
}
