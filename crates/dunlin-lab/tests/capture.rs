//! The bytes of a connection, captured between two namespaces.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dunlin_lab::capture::{Capture, Direction, Frame, write_pcap};
use dunlin_lab::count::{Connection, Layers, Transport, connections};
use dunlin_lab::net::{Ground, Pair};
use pcap_file::pcap::PcapReader;

use crate::common::{PATIENCE, privileged, until};

/// Headers with Linux's options: 20 bytes of options in a SYN, 12 bytes of time stamps otherwise.
const SYN: u64 = 40;
const SEGMENT: u64 = 32;

/// The client sends `sent` and closes; the server answers nothing. Returns the client's capture.
fn exchange(pair: &Pair, sent: &[u8]) -> (Vec<Frame>, Connection) {
    let mut capture = Capture::start(&pair.client, Pair::DEVICE).unwrap();
    let listener = pair.server.run(|| TcpListener::bind((Pair::SERVER, 0))).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    let mut client = pair.client.run(|| TcpStream::connect(address)).unwrap().unwrap();
    let (mut server, _) = listener.accept().unwrap();
    client.write_all(sent).unwrap();
    drop(client);
    server.read_to_end(&mut Vec::new()).unwrap();
    drop(server);
    let closed = |frames: &[Frame]| connections(frames).iter().any(Connection::is_closed);
    assert!(capture.wait(PATIENCE, closed).unwrap());
    let frames = capture.finish().unwrap();
    let mut all = connections(&frames);
    assert_eq!(all.len(), 1, "{all:?}");
    (frames, all.remove(0))
}

#[test]
fn counts_every_byte_on_the_link_once() {
    let Some(ground) = privileged(Ground::new()) else { return };
    let pair = ground.pair(1500).unwrap();
    let (frames, connection) = exchange(&pair, b"hello");
    let Layers { packets, link_bytes, ip_bytes, transport_bytes, tls_bytes, ip_fragments } =
        connection.layers();
    assert_eq!((link_bytes, ip_bytes, tls_bytes, ip_fragments), (packets * 14, packets * 20, 5, 0));
    assert_eq!(transport_bytes, 2 * SYN + (packets - 2) * SEGMENT);
    assert_eq!((connection.transport, connection.resent_packets), (Transport::Tcp, 0));
    let arp = |frame: &&Frame| frame.bytes[12..14] == [0x08, 0x06];
    let rest: usize = frames.iter().filter(arp).map(|frame| frame.bytes.len()).sum();
    let all: usize = frames.iter().map(|frame| frame.bytes.len()).sum();
    assert_eq!(connection.layers().total_bytes(), (all - rest) as u64);
    let sent: u64 = frames
        .iter()
        .filter(|frame| !arp(frame) && frame.direction == Direction::Sent)
        .map(|frame| frame.bytes.len() as u64)
        .sum();
    assert_eq!(connection.to_server.total_bytes(), sent);
}

#[test]
fn packets_stay_within_the_mtu() {
    let Some(ground) = privileged(Ground::new()) else { return };
    let pair = ground.pair(1500).unwrap();
    for mtu in [127, 576, 1500] {
        pair.set_mtu(mtu).unwrap();
        let (frames, connection) = exchange(&pair, &[0; 10000]);
        assert_eq!(connection.layers().tls_bytes, 10000);
        let largest = frames.iter().map(|frame| frame.bytes.len() - 14).max();
        assert_eq!(largest, Some(usize::from(mtu)));
    }
}

#[test]
fn counts_fragments_of_a_datagram() {
    let Some(ground) = privileged(Ground::new()) else { return };
    let pair = ground.pair(127).unwrap();
    let mut capture = Capture::start(&pair.server, Pair::DEVICE).unwrap();
    let server = pair.server.run(|| UdpSocket::bind((Pair::SERVER, 0))).unwrap().unwrap();
    let client = pair.client.run(|| UdpSocket::bind((Pair::CLIENT, 0))).unwrap().unwrap();
    client.send_to(&[0; 300], server.local_addr().unwrap()).unwrap();
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(server.recv(&mut [0; 1024]).unwrap(), 300);
    // 308 bytes of UDP in fragments of at most 104, which is 107 rounded down to units of eight.
    let counted = connections(capture.look().unwrap())[0].to_server;
    let expected = Layers {
        packets: 3,
        link_bytes: 42,
        ip_bytes: 60,
        transport_bytes: 8,
        tls_bytes: 300,
        ip_fragments: 3,
    };
    assert_eq!(counted, expected);
}

#[test]
fn frames_have_the_time_of_their_passage() {
    let Some(ground) = privileged(Ground::new()) else { return };
    let pair = ground.pair(1500).unwrap();
    let mut capture = Capture::start(&pair.client, Pair::DEVICE).unwrap();
    let since_1970 = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let client = pair.client.run(|| UdpSocket::bind((Pair::CLIENT, 0))).unwrap().unwrap();
    let before = since_1970();
    client.send_to(b"hello", (Pair::SERVER, 9)).unwrap();
    let sent = |frames: &[Frame]| !connections(frames).is_empty();
    until(|| sent(capture.look().unwrap()).then_some(()));
    // All of these frames pass before the first look.
    for _ in 0..10 {
        client.send_to(b"hello", (Pair::SERVER, 9)).unwrap();
    }
    let after = since_1970();
    let frames = capture.finish().unwrap();
    assert!(frames.len() > 10);
    assert!(
        frames.iter().all(|frame| (before..after).contains(&frame.time)),
        "{before:?} {after:?} {frames:?}"
    );
}

#[test]
fn writes_a_capture_as_a_pcap_file() {
    let Some(ground) = privileged(Ground::new()) else { return };
    let (frames, _) = exchange(&ground.pair(1500).unwrap(), b"hello");
    let mut file = Vec::new();
    write_pcap(&frames, &mut file).unwrap();
    let mut reader = PcapReader::new(&file[..]).unwrap();
    let mut read = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.unwrap();
        read.push((packet.timestamp, packet.data.into_owned()));
    }
    assert_eq!(read, frames.iter().map(|frame| (frame.time, frame.bytes.clone())).collect::<Vec<_>>());
    assert!(frames.is_sorted_by_key(|frame| frame.time));
}

#[test]
fn waiting_ends_at_the_timeout() {
    let Some(ground) = privileged(Ground::new()) else { return };
    let pair = ground.pair(1500).unwrap();
    let mut capture = Capture::start(&pair.client, Pair::DEVICE).unwrap();
    assert!(!capture.wait(Duration::from_millis(1), |_| false).unwrap());
    let error = Capture::start(&pair.client, "nothing").unwrap_err().to_string();
    assert!(error.starts_with("capture at nothing in network namespace dunlin-"), "{error}");
}
