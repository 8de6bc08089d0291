//! A virtual network: endpoints exchange datagrams or streams over links, in virtual time.
//!
//! The simulation never waits or reads a clock. Time advances from one event to the next, so a simulated
//! minute takes only as long as its computations. If the endpoints draw from [`SeededRandom`], a run is
//! reproducible from its seed.
//!
//! A [`Pair`] exchanges datagrams. A [`TcpPair`] exchanges streams over TCP, with the packets that Linux
//! would send. A [`Network`] has any number of hosts, with interfaces that change their addresses, and with
//! NATs ([`Nat`]). All are a [`Simulation`]; a [`Fleet`] runs many. A [`Link`] decides the fate of packets
//! ([`Impaired`]: delay, rate, loss and more). A [`Medium`] tells what packets cost on Ethernet, 802.15.4,
//! LoRaWAN and NB-IoT.
//!
//! A module imports from its own row or from rows below it (`tools/layers` checks that).
//!
//! <!-- layers -->
//! ```text
//! row  modules              what they contain
//! 3    pooled tls         | several sockets of a host; a TLS peer over TCP
//! 2    network tcp        | any number of hosts; streams between two
//! 1    pair               | datagrams between two endpoints
//! 0    fleet link medium nat random | many simulations, and what happens to a packet
//! ```
//! <!-- end of layers -->
#![forbid(unsafe_code)]

mod fleet;
mod link;
mod medium;
mod nat;
mod network;
mod pair;
mod pooled;
mod random;
mod tcp;
mod tls;

use std::net::SocketAddr;

use dunlin::{DtlsConnection, Instant, Now, Transmit};

pub use fleet::{Fleet, Simulation};
pub use link::{Conditions, Delay, Impaired, Link};
pub use medium::{Cost, Headers, LoRaDataRate, Medium};
pub use nat::{Nat, NatKind};
pub use network::{Change, Host, HostId, InterfaceId, MultiHomed, NatId, Network, OneSocket, SentBy};
pub use pair::{CLIENT_ADDRESS, Pair, SERVER_ADDRESS, Sent, Unsettled};
pub use pooled::Pooled;
pub use random::SeededRandom;
pub use tcp::{StreamEndpoint, TcpOptions, TcpPair};
pub use tls::{Application, Reply, TlsPeer};

/// One end of a path, which receives and sends datagrams.
pub trait Endpoint {
    /// Receives a datagram from this address. The endpoint keeps errors, for the caller to ask.
    fn receive(&mut self, now: Now, from: SocketAddr, datagram: &[u8]);

    /// The next datagram to send, if there is one.
    fn poll_transmit(&mut self, now: Now) -> Option<Transmit>;

    /// The deadline of the endpoint's next timer on its monotonic clock, if it has one.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Handles the timers whose deadline has come. The endpoint keeps errors.
    fn handle_timeout(&mut self, _now: Now) {}
}

/// Its connections keep their errors.
impl Endpoint for dunlin::Endpoint {
    fn receive(&mut self, now: Now, from: SocketAddr, datagram: &[u8]) {
        Self::receive(self, now, from, datagram);
    }

    fn poll_transmit(&mut self, now: Now) -> Option<Transmit> {
        Self::poll_transmit(self, now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Self::poll_timeout(self)
    }

    fn handle_timeout(&mut self, now: Now) {
        Self::handle_timeout(self, now);
    }
}

/// The error, if any, is in [`DtlsConnection::error`].
impl Endpoint for DtlsConnection {
    fn receive(&mut self, now: Now, from: SocketAddr, datagram: &[u8]) {
        let _ = Self::receive(self, now, from, datagram);
    }

    fn poll_transmit(&mut self, now: Now) -> Option<Transmit> {
        Self::poll_transmit(self, now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Self::poll_timeout(self)
    }

    fn handle_timeout(&mut self, now: Now) {
        let _ = Self::handle_timeout(self, now);
    }
}
