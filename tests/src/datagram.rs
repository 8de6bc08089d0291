//! The engine on a blocking UDP socket, for the tests with real peers.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dunlin::{DtlsConnection, Error, Event};

use crate::peer::{Server, now};

/// A test fails if a peer is silent for this long.
const PATIENCE: Duration = Duration::from_secs(30);

/// A connection and its socket. A server learns its peer from the first datagram.
pub struct UdpLink {
    /// The connection.
    pub connection: DtlsConnection,
    /// The socket.
    pub socket: UdpSocket,
    /// The events so far.
    pub events: Vec<Event>,
    /// The longest datagram that was sent, in bytes.
    pub longest: usize,
}

/// A socket on loopback.
pub fn socket() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").expect("socket")
}

/// Waits for a datagram of a new peer, without taking it, and returns its sender. Late datagrams of the peer
/// before it are dropped.
pub fn next_sender(socket: &UdpSocket, before: Option<SocketAddr>) -> SocketAddr {
    socket.set_read_timeout(Some(PATIENCE)).expect("timeout");
    loop {
        let (_, from) = socket.peek_from(&mut [0; 1]).expect("a datagram");
        if Some(from) != before {
            return from;
        }
        socket.recv_from(&mut [0; 1]).expect("the datagram");
    }
}

impl UdpLink {
    /// A connection over this socket.
    pub const fn new(connection: DtlsConnection, socket: UdpSocket) -> Self {
        Self { connection, socket, events: Vec::new(), longest: 0 }
    }

    /// Sends all output.
    pub fn flush(&mut self) {
        while let Some(transmit) = self.connection.poll_transmit(now()) {
            self.longest = self.longest.max(transmit.datagram.len());
            self.socket.send_to(&transmit.datagram, transmit.to).expect("send");
        }
    }

    /// Sends pending output, and receives a datagram or handles a timer.
    fn step(&mut self, end: Instant) -> Result<(), Error> {
        self.flush();
        let left = end.saturating_duration_since(Instant::now());
        assert!(!left.is_zero(), "the peer says nothing");
        let timer = self.connection.poll_timeout().map(|at| at.since(now().monotonic));
        let wait = timer.map_or(left, |timer| timer.min(left)).max(Duration::from_millis(1));
        self.socket.set_read_timeout(Some(wait)).expect("timeout");
        let mut buffer = [0; 1 << 16];
        let result = match self.socket.recv_from(&mut buffer) {
            Ok((len, from)) => self.connection.receive(now(), from, &buffer[..len]),
            Err(_) => self.connection.handle_timeout(now()),
        };
        self.flush();
        self.events.extend(std::iter::from_fn(|| self.connection.poll_event()));
        result
    }

    /// Steps until `done`.
    pub fn until(&mut self, mut done: impl FnMut(&mut Self) -> bool) -> Result<(), Error> {
        let end = Instant::now() + PATIENCE;
        while !done(self) {
            self.step(end)?;
        }
        self.flush();
        Ok(())
    }

    /// Completes the handshake.
    pub fn handshake(&mut self) -> Result<(), Error> {
        self.until(|link| !link.connection.is_handshaking())
    }

    /// Sends a record.
    pub fn send(&mut self, data: &[u8]) -> Result<(), Error> {
        self.connection.send(data)?;
        self.flush();
        Ok(())
    }

    /// Receives a record.
    pub fn receive(&mut self) -> Result<Vec<u8>, Error> {
        let mut data = None;
        self.until(|link| {
            data = link.connection.read();
            data.is_some()
        })?;
        Ok(data.unwrap_or_default())
    }

    /// Sends `data`, which the peer echoes.
    pub fn echo(&mut self, data: &[u8]) -> Result<(), Error> {
        self.send(data)?;
        assert_eq!(self.receive()?, data, "the echo differs");
        Ok(())
    }

    /// Closes this side and waits until the peer has closed.
    pub fn close(&mut self) -> Result<(), Error> {
        self.connection.close();
        self.until(|link| link.connection.peer_has_closed())
    }
}

/// Carries datagrams between the loopback interface of the test and a foreign server in its own namespace.
pub struct Relay {
    /// The address of this end, in place of the server's.
    pub address: SocketAddr,
    child: Child,
    ends: [UnixDatagram; 2],
}

impl Relay {
    /// Connects to UDP port 4433 of the server.
    pub fn new(server: &Server) -> Self {
        server.wait_for_udp();
        let pair = || UnixDatagram::pair().expect("sockets");
        let ((to_child, stdin), (from_child, stdout)) = (pair(), pair());
        let mut command = server.enter();
        // Each read and write of `cat` is one datagram.
        command.args(["bash", "-c", "exec 3<>/dev/udp/127.0.0.1/4433; cat <&0 >&3 & cat <&3; kill $!"]);
        command.stdin(Stdio::from(OwnedFd::from(stdin))).stdout(Stdio::from(OwnedFd::from(stdout)));
        // It fails when the server ends first.
        command.stderr(Stdio::null());
        let child = command.spawn().expect("nsenter");
        let udp = socket();
        let address = udp.local_addr().expect("address");
        let ends = [&to_child, &from_child].map(|end| end.try_clone().expect("socket"));
        let client = Arc::new(Mutex::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 9))));
        let back = udp.try_clone().expect("socket");
        let known = client.clone();
        std::thread::spawn(move || {
            let mut buffer = [0; 1 << 16];
            while let Ok((len @ 1.., from)) = udp.recv_from(&mut buffer) {
                *client.lock().expect("client") = from;
                if to_child.send(&buffer[..len]).is_err() {
                    break;
                }
            }
        });
        std::thread::spawn(move || {
            let mut buffer = [0; 1 << 16];
            while let Ok(len @ 1..) = from_child.recv(&mut buffer) {
                let to = *known.lock().expect("client");
                // A client that is gone loses the datagram.
                let _ = back.send_to(&buffer[..len], to);
            }
        });
        Self { address, child, ends }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // End both threads: an empty datagram ends the first one.
        let _ = socket().send_to(&[], self.address);
        self.ends.iter().for_each(|end| drop(end.shutdown(std::net::Shutdown::Both)));
    }
}
