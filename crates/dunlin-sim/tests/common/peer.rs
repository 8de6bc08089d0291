//! An endpoint that runs dimpl, another implementation of DTLS 1.3.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use dimpl::{Config, Dtls, DtlsCertificate, Error, Output};
use dunlin::{Local, Now, Side, Transmit};
use dunlin_sim::{CLIENT_ADDRESS, Endpoint, SERVER_ADDRESS};
use dunlin_tests::{KeyType, NOW, Pki};

use super::App;

/// A dimpl endpoint, with its output so far.
pub(crate) struct Peer {
    dtls: Dtls,
    /// The address of its peer.
    to: SocketAddr,
    /// The time of its clock at [`NOW`].
    start: Instant,
    output: VecDeque<Vec<u8>>,
    is_connected: bool,
    pub(crate) peer_certificate: Option<Vec<u8>>,
    received: Vec<Vec<u8>>,
    peer_has_closed: bool,
    error: Option<Error>,
}

impl Peer {
    /// An endpoint that authenticates with this side's leaf. It sends no intermediate, and accepts any
    /// certificate.
    pub(crate) fn new(config: Config, side: Side) -> Self {
        let pki = Pki::shared(KeyType::P256);
        let leaf = match side {
            Side::Client => &pki.client,
            Side::Server => &pki.server,
        };
        let certificate =
            DtlsCertificate { certificate: leaf.chain[0].to_vec(), private_key: leaf.key.clone() };
        let start = Instant::now();
        let mut dtls = Dtls::new_13(Arc::new(config), certificate, start);
        dtls.set_active(side == Side::Client);
        Self {
            dtls,
            to: match side {
                Side::Client => SERVER_ADDRESS,
                Side::Server => CLIENT_ADDRESS,
            },
            start,
            output: VecDeque::new(),
            is_connected: false,
            peer_certificate: None,
            received: Vec::new(),
            peer_has_closed: false,
            error: None,
        }
    }

    fn tell_time(&mut self, now: Now) {
        let passed = now.monotonic.since(NOW.monotonic);
        let result = self.dtls.handle_timeout(self.start + passed);
        self.keep(result);
    }

    fn keep(&mut self, result: Result<(), Error>) {
        self.error = self.error.take().or(result.err());
    }

    fn poll(&mut self) {
        let mut buffer = vec![0; 1 << 16];
        loop {
            match self.dtls.poll_output(&mut buffer) {
                Output::Packet(datagram) => self.output.push_back(datagram.to_vec()),
                Output::Connected => self.is_connected = true,
                Output::PeerCert(certificate) => self.peer_certificate = Some(certificate.to_vec()),
                Output::ApplicationData(data) => self.received.push(data.to_vec()),
                Output::CloseNotify => self.peer_has_closed = true,
                Output::Timeout(_) => return,
                _ => {}
            }
        }
    }
}

impl Endpoint for Peer {
    fn receive(&mut self, now: Now, _: SocketAddr, datagram: &[u8]) {
        self.tell_time(now);
        let result = self.dtls.handle_packet(datagram);
        self.keep(result);
        self.poll();
    }

    fn poll_transmit(&mut self, now: Now) -> Option<Transmit> {
        self.tell_time(now);
        self.poll();
        Some(Transmit {
            local: Local::default(),
            source: None,
            to: self.to,
            datagram: self.output.pop_front()?,
        })
    }
}

impl App for Peer {
    fn assert_connected(&self) {
        assert!(self.error.is_none(), "{:?}", self.error);
        assert!(self.is_connected, "the handshake is stuck");
    }

    fn send(&mut self, data: &[u8]) {
        assert_eq!(self.dtls.send_application_data(data).unwrap(), data.len());
    }

    fn received(&mut self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.received)
    }

    fn close(&mut self) {
        self.dtls.close().unwrap();
    }

    fn peer_has_closed(&self) -> bool {
        self.peer_has_closed
    }
}
