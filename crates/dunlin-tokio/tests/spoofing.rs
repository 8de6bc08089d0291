//! A DTLS server's answers to datagrams from senders that have proven nothing: the server keeps nothing of
//! them, and sends no more bytes than it has received.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use common::{data, psk_client, psk_server, x509};
use dunlin::{ClientConfig, DtlsConnection, ServerConfig};
use dunlin_tests::localhost;
use dunlin_tokio::{DtlsEndpoint, now};

const ANY: &str = "127.0.0.1:0";

/// The most bytes to an address per byte from it (RFC 9000 §8.1 has the same factor).
const MOST: usize = 3;

/// A host that sends what it likes under an address of its own, and counts.
struct Attacker {
    socket: UdpSocket,
    server: SocketAddr,
    sent: usize,
    received: usize,
}

impl Attacker {
    fn new(server: SocketAddr) -> Self {
        let socket = UdpSocket::bind(ANY).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self { socket, server, sent: 0, received: 0 }
    }

    fn send(&mut self, datagram: &[u8]) {
        self.sent += self.socket.send_to(datagram, self.server).unwrap();
    }

    /// Counts the answers so far, and returns them.
    fn drain(&mut self) -> Vec<Vec<u8>> {
        let mut buffer = [0; 65_536];
        let mut answers = Vec::new();
        while let Ok(len) = self.socket.recv(&mut buffer) {
            self.received += len;
            answers.push(buffer[..len].to_vec());
        }
        answers
    }
}

/// A ClientHello to the server, and the connection that sent it.
fn hello(config: &ClientConfig, server: SocketAddr) -> (DtlsConnection, Vec<u8>) {
    let mut client = DtlsConnection::client(&Arc::new(config.clone()), localhost(), server, now()).unwrap();
    let hello = client.poll_transmit(now()).unwrap().datagram;
    (client, hello)
}

/// Waits until the server has processed everything that it got before: a client completes a handshake.
async fn settle(server: &DtlsEndpoint, config: &ClientConfig) {
    let client = DtlsEndpoint::bind(ANY.parse().unwrap()).await.unwrap();
    let config = Arc::new(config.clone());
    let connecting = client.connect(&config, localhost(), server.local_addr());
    let accepting = async { server.accept().await.accept().await };
    let (client, accepted) = tokio::join!(connecting, accepting);
    drop((client.unwrap(), accepted.unwrap()));
}

async fn attack(client: ClientConfig, server_config: ServerConfig) {
    let server = DtlsEndpoint::bind(ANY.parse().unwrap()).await.unwrap();
    server.set_server(Some(Arc::new(server_config)));
    let address = server.local_addr();
    // Noise, and noise that looks like records.
    let mut noise = Attacker::new(address);
    for seed in 0..200 {
        let mut datagram = data(1 + seed as usize * 7, seed);
        noise.send(&datagram);
        datagram.splice(0..0, [22, 254, 253, 0, 0, 0, 0, 0, 0, 0, seed as u8, 0, 0]);
        noise.send(&datagram);
    }
    // ClientHellos that end early, or have a wrong byte.
    let mut damage = Attacker::new(address);
    let (_, whole) = hello(&client, address);
    for at in (0..whole.len()).step_by(3) {
        damage.send(&whole[..at]);
        let mut damaged = whole.clone();
        damaged[at] ^= 0x55;
        damage.send(&damaged);
        if at % 60 == 0 {
            settle(&server, &client).await;
            damage.drain();
        }
    }
    // The same ClientHello again and again.
    let mut flood = Attacker::new(address);
    for n in 0..300 {
        flood.send(&whole);
        if n % 60 == 0 {
            settle(&server, &client).await;
            flood.drain();
        }
    }
    // A ClientHello with a valid cookie, from an address for which the cookie does not hold.
    let mut honest = Attacker::new(address);
    let (mut connection, first) = hello(&client, address);
    honest.send(&first);
    settle(&server, &client).await;
    let demands = honest.drain();
    assert!(!demands.is_empty(), "the server demands a cookie");
    demands.iter().for_each(|demand| connection.receive(now(), address, demand).unwrap());
    let second = connection.poll_transmit(now()).unwrap().datagram;
    let mut replay = Attacker::new(address);
    for _ in 0..20 {
        replay.send(&second);
    }
    settle(&server, &client).await;
    assert_eq!(server.associations(), 0, "the server keeps nothing");
    for (what, mut attacker) in
        [("noise", noise), ("damage", damage), ("flood", flood), ("first", honest), ("replay", replay)]
    {
        attacker.drain();
        let Attacker { sent, received, .. } = attacker;
        println!("{what}: {sent} bytes to the server, {received} back");
        assert!(received <= MOST * sent, "{what}: {received} bytes for {sent}");
    }
}

#[tokio::test]
async fn a_server_with_keys_amplifies_nothing() {
    attack(psk_client(), psk_server()).await;
}

#[tokio::test]
async fn a_server_with_certificates_amplifies_nothing() {
    let (client, server) = x509();
    attack(client, server).await;
}
