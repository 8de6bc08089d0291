//! The server: it acknowledges every message.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use dunlin::{
    AssociationId, Endpoint, EndpointEvent, EndpointLimits, Instant, Local, Now, Path, ServerConfig, Transmit,
};
use dunlin_sim::Host;

use super::case::{MESSAGE_BYTES, SILENCE, ServerKind};

/// The ports of associations with a port of their own: more than a client needs.
pub(super) const POOL: [u16; 4] = [6001, 6002, 6003, 6004];

/// A server on sockets, or in virtual time.
pub(super) struct Server {
    config: Arc<ServerConfig>,
    kind: ServerKind,
    endpoint: Endpoint,
    /// The port at which clients ask, and those of associations with a port of their own.
    port: u16,
    pool: Vec<u16>,
    address: Option<IpAddr>,
    /// The client of a server with one association, and when a datagram of the client has last arrived.
    occupied: Option<(SocketAddr, Instant)>,
    /// Which messages have arrived.
    received: Vec<bool>,
}

impl Server {
    /// A server that listens at a port. Those of `pool` are for associations with a port of their own.
    pub(super) fn new(config: Arc<ServerConfig>, kind: ServerKind, port: u16, pool: Vec<u16>) -> Self {
        let mut endpoint = Self::endpoint(&config);
        // Without a pool there are only ordinary associations.
        let _ = endpoint.add_ports(pool.iter().map(|port| (Local((*port).into()), *port)));
        let received = Vec::new();
        Self { config, kind, endpoint, port, pool, address: None, occupied: None, received }
    }

    fn endpoint(config: &Arc<ServerConfig>) -> Endpoint {
        let mut endpoint = Endpoint::new(EndpointLimits::default());
        endpoint.set_server(Some(Arc::clone(config)));
        endpoint
    }

    /// How many of the first `count` messages have not arrived.
    pub(super) fn missing(&self, count: u32) -> u32 {
        let arrived = self.received.iter().take(count as usize).filter(|arrived| **arrived).count();
        count - arrived as u32
    }

    /// Whether a server with one association refuses this sender.
    ///
    /// At the very end of the silence it still does: the timeouts of both sides then end together, and Linux
    /// rounds those of a socket up.
    fn is_closed_to(&mut self, from: SocketAddr, now: Instant) -> bool {
        match &mut self.occupied {
            Some((client, heard_at)) if *client == from => *heard_at = now,
            Some((_, heard_at)) if now.since(*heard_at) <= SILENCE => return true,
            Some(_) => {
                // The socket of the previous association is closed without a word.
                self.occupied = None;
                self.endpoint = Self::endpoint(&self.config);
            }
            None => {}
        }
        false
    }

    /// Handles what has happened at the endpoint.
    fn go_on(&mut self, now: Now) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                EndpointEvent::Incoming(id) => {
                    let association = self.endpoint.association(id);
                    let client = association.map(|association| association.connection().peer_address());
                    if self.kind == ServerKind::Single {
                        self.occupied = client.map(|client| (client, now.monotonic));
                    }
                    self.acknowledge(id);
                }
                EndpointEvent::Changed(id) => self.acknowledge(id),
                _ => {}
            }
        }
    }

    /// Sends back the messages that have arrived.
    fn acknowledge(&mut self, id: AssociationId) {
        let received = &mut self.received;
        self.endpoint.update(id, |connection| {
            while connection.poll_event().is_some() {}
            while let Some(message) = connection.read() {
                if let Some(number) = number(&message) {
                    received.resize(received.len().max(number + 1), false);
                    received[number] = true;
                }
                // The client sends again what a failed connection does not acknowledge.
                let _ = connection.send(&message);
            }
        });
    }
}

/// The number of a message. Both sides are the lab's own, so it is small.
fn number(message: &[u8]) -> Option<usize> {
    let number = message.get(..4).filter(|_| message.len() == MESSAGE_BYTES)?;
    Some(u32::from_be_bytes(number.try_into().ok()?) as usize)
}

impl Host for Server {
    fn receive(&mut self, now: Now, at: SocketAddr, from: SocketAddr, datagram: &[u8]) {
        let local = match at.port() {
            port if port == self.port => Local::default(),
            port if self.pool.contains(&port) => Local(port.into()),
            _ => return,
        };
        if !self.is_closed_to(from, now.monotonic) {
            self.endpoint.receive(now, Path { local, ..from.into() }, datagram);
            self.go_on(now);
        }
    }

    fn poll_transmit(&mut self, now: Now) -> Option<(SocketAddr, Transmit)> {
        let transmit = self.endpoint.poll_transmit(now)?;
        let port = match transmit.local {
            Local(0) => self.port,
            Local(port) => u16::try_from(port).unwrap_or(self.port),
        };
        Some((SocketAddr::new(self.address?, port), transmit))
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.endpoint.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Now) {
        self.endpoint.handle_timeout(now);
        self.go_on(now);
    }

    fn set_addresses(&mut self, _: Now, addresses: &[Option<IpAddr>]) {
        self.address = addresses.iter().flatten().next().copied();
    }
}
