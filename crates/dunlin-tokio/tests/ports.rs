//! Associations with a port of their own at the server, on loopback: a client that changes its address talks
//! on.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::net::SocketAddr;
use std::sync::Arc;

use common::{psk_client, psk_server, x509};
use dunlin::{
    AssociationId, ClientConfig, Endpoint, EndpointLimits, Migration, NoPort, PortScheme, ServerConfig,
};
use dunlin_tests::localhost;
use dunlin_tokio::{DtlsEndpoint, now};
use tokio::net::UdpSocket;

const ANY: &str = "127.0.0.1:0";

async fn socket() -> UdpSocket {
    UdpSocket::bind(ANY).await.unwrap()
}

/// A server with a pool of this many ports.
async fn server(config: ServerConfig, scheme: PortScheme, ports: usize) -> DtlsEndpoint {
    let server = DtlsEndpoint::bind(ANY.parse().unwrap()).await.unwrap();
    let config = config.with_port_scheme(scheme).with_migration(Migration::never().with_unchecked(true));
    server.set_server(Some(Arc::new(config)));
    let mut sockets = Vec::new();
    for _ in 0..ports {
        sockets.push(socket().await);
    }
    server.add_ports(sockets).unwrap();
    server
}

/// A client of the engine on a socket that can be replaced.
struct Client {
    endpoint: Endpoint,
    id: AssociationId,
    socket: UdpSocket,
}

impl Client {
    async fn new(config: ClientConfig, scheme: PortScheme, server: SocketAddr) -> Self {
        let mut endpoint = Endpoint::new(EndpointLimits::default());
        let config = Arc::new(config.with_port_scheme(scheme));
        let id = endpoint.connect(&config, localhost(), server, now()).unwrap();
        Self { endpoint, id, socket: socket().await }
    }

    /// Sends and receives until this is true.
    async fn drive(&mut self, until: impl Fn(&mut Endpoint, AssociationId) -> bool) {
        let mut buffer = [0; 4096];
        loop {
            while let Some(transmit) = self.endpoint.poll_transmit(now()) {
                self.socket.send_to(&transmit.datagram, transmit.to).await.unwrap();
            }
            if until(&mut self.endpoint, self.id) {
                return;
            }
            let pause = self.endpoint.poll_timeout().map(|at| at.since(now().monotonic));
            let received = self.socket.recv_from(&mut buffer);
            match tokio::time::timeout(pause.unwrap_or(std::time::Duration::MAX), received).await {
                Ok(received) => {
                    let (len, from) = received.unwrap();
                    self.endpoint.receive(now(), from, &buffer[..len]);
                }
                Err(_) => self.endpoint.handle_timeout(now()),
            }
        }
    }

    /// Whether the association has its own port and the server has spoken from there.
    fn is_at_port(endpoint: &mut Endpoint, id: AssociationId) -> bool {
        endpoint.association(id).unwrap().connection().association_port().is_some()
    }

    async fn read(&mut self) -> Vec<u8> {
        let data = std::cell::RefCell::new(None);
        self.drive(|endpoint, id| {
            let read = endpoint.update(id, |connection| connection.read()).unwrap();
            let is_there = read.is_some();
            *data.borrow_mut() = read;
            is_there
        })
        .await;
        data.into_inner().unwrap()
    }

    fn send(&mut self, data: &[u8]) {
        self.endpoint.update(self.id, |connection| connection.send(data)).unwrap().unwrap();
    }
}

/// Connects, talks, changes the client's address, and talks on.
async fn moves(scheme: PortScheme) {
    for (client, config) in [(psk_client(), psk_server()), x509()] {
        let server = server(config, scheme, 2).await;
        let welcome = server.local_addr();
        let mut client = Client::new(client, scheme, welcome).await;
        let serving = tokio::spawn({
            let server = server.clone();
            async move {
                let association = server.accept().await.accept().await.unwrap();
                let mut peers = Vec::new();
                for _ in 0..3 {
                    let data = association.recv().await.unwrap().unwrap();
                    peers.push(association.peer_address());
                    association.send(&data).await.unwrap();
                }
                (association, peers)
            }
        });
        client.drive(Client::is_at_port).await;
        client.send(b"one");
        assert_eq!(client.read().await, b"one");
        client.socket = socket().await;
        for data in [b"two", b"333"] {
            client.send(data);
            assert_eq!(client.read().await, data, "{scheme:?}: after the client has moved");
        }
        let (association, peers) = serving.await.unwrap();
        let here = client.endpoint.association(client.id).unwrap().connection().peer_address();
        assert_ne!(here, welcome);
        assert_eq!(association.association_port(), Some((scheme, here.port())));
        assert!(peers[0] != peers[1] && peers[1..] == [client.socket.local_addr().unwrap(); 2], "{peers:?}");
        assert_eq!((server.ports().used, server.ports().ports), (1, 2));
        drop(association);
        assert_eq!(server.ports().used, 0);
    }
}

#[tokio::test]
async fn ipc_follows_a_client_that_moves() {
    moves(PortScheme::Ipc).await;
}

#[tokio::test]
async fn unannounced_ipc_follows_a_client_that_moves() {
    moves(PortScheme::IpcUnannounced).await;
}

#[tokio::test]
async fn tcs_follows_a_client_that_moves() {
    moves(PortScheme::Tcs).await;
}

#[tokio::test]
async fn tcs_by_message_follows_a_client_that_moves() {
    moves(PortScheme::TcsMessage).await;
}

#[tokio::test]
async fn an_association_without_a_port_says_why() {
    let server = server(psk_server(), PortScheme::Tcs, 1).await;
    let config = Arc::new(psk_client().with_port_scheme(PortScheme::Tcs));
    let mut kept = Vec::new();
    for why in [None, Some(NoPort::Empty)] {
        let client = DtlsEndpoint::bind(ANY.parse().unwrap()).await.unwrap();
        let connecting = client.connect(&config, localhost(), server.local_addr());
        let accepting = async { server.accept().await.accept().await };
        let (here, there) = tokio::join!(connecting, accepting);
        let here = here.unwrap();
        let there = there.unwrap();
        assert_eq!(there.lacks_port(), why);
        here.send(b"hello").await.unwrap();
        assert_eq!(there.recv().await.unwrap().unwrap(), b"hello");
        kept.push((here, there));
    }
    assert_eq!(server.ports().empty, 1);
    assert!(server.add_ports([]).is_err());
}

/// A ServerHello of DTLS 1.2 without extensions, which anyone can send.
fn forged_hello(random: u8) -> Vec<u8> {
    let body = [&[254, 253][..], &[random; 32], &[0, 0xc0, 0x2b, 0]].concat();
    let len = body.len() as u8;
    let message = [&[2, 0, 0, len, 0, 0, 0, 0, 0, 0, 0, len][..], &body].concat();
    [&[22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, message.len() as u8][..], &message].concat()
}

/// Another program on the server's host sends ServerHellos, and one elsewhere floods the pool: the
/// association begins and goes on, and neither gets an answer.
#[tokio::test]
async fn forged_hellos_and_a_flood_on_the_pool_get_no_answer() {
    for (scheme, forgers) in [(PortScheme::Ipc, 3), (PortScheme::Tcs, 0)] {
        let server = server(psk_server(), scheme, 2).await;
        let mut client = Client::new(psk_client(), scheme, server.local_addr()).await;
        let mut attackers = vec![socket().await];
        for n in 0..forgers {
            let forger = socket().await;
            forger.send_to(&forged_hello(n), client.socket.local_addr().unwrap()).await.unwrap();
            attackers.push(forger);
        }
        let accepting = async { server.accept().await.accept().await.unwrap() };
        let (association, ()) = tokio::join!(accepting, client.drive(Client::is_at_port));
        let (_, port) = association.association_port().unwrap();
        for n in 0..100 {
            let datagram = [&[22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 1][..], &[n as u8; 40]].concat();
            attackers[0].send_to(&datagram, ("127.0.0.1", port)).await.unwrap();
        }
        client.send(b"hello");
        let (data, ()) = tokio::join!(
            association.recv(),
            client.drive(|endpoint, _| endpoint.poll_transmit(now()).is_none())
        );
        assert_eq!(data.unwrap().unwrap(), b"hello", "{scheme:?}");
        association.send(b"back").await.unwrap();
        assert_eq!(client.read().await, b"back", "{scheme:?}");
        for attacker in attackers {
            let answer = attacker.try_recv(&mut [0; 2048]);
            assert_eq!(answer.map_err(|e| e.kind()), Err(std::io::ErrorKind::WouldBlock), "{scheme:?}");
        }
    }
}
