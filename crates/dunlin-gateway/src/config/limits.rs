//! The tables `[limits]` and `[listener.limits]`.

use std::time::Duration;

use dunlin::places::PlaceLimits;

use super::{COUNT, DEFAULT_CONNECTIONS, Kind, MAX_COUNT, Section};

const HEADER: Kind = Kind {
    name: "a number of bytes from 1024 to 1048576",
    allowed: "write a number without quotation marks",
};

/// Limits on clients. Each is counted when it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `connections`: simultaneous connections of the listener.
    pub connections: usize,
    /// `connections_per_host`: simultaneous connections from one address; of IPv6, from one network of 64
    /// bits.
    pub connections_per_host: usize,
    /// `connections_per_network`: simultaneous connections from one IPv6 network of 48 bits.
    pub connections_per_network: usize,
    /// `silent_time`: how long a client must have sent nothing before it may give way to another one.
    pub silent_time: Duration,
    /// `forget_time`: how long an association of DTLS goes on without anything from its client.
    pub forget_time: Duration,
    /// `handshakes`: simultaneous handshakes.
    pub handshakes: usize,
    /// `handshakes_per_host`: simultaneous handshakes with one address or network, as for
    /// `connections_per_host`.
    pub handshakes_per_host: usize,
    /// `handshake_time`: how long a handshake may take.
    pub handshake_time: Duration,
    /// `idle_time`: how long a connection may stay without traffic.
    pub idle_time: Duration,
    /// `backend_time`: how long the socket of an association of DTLS to its backend may stay without traffic.
    pub backend_time: Duration,
    /// `connect_time`: how long the connection to the backend may take.
    pub connect_time: Duration,
    /// `header_bytes`: the length of the header of an HTTP message, in bytes.
    pub header_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: DEFAULT_CONNECTIONS,
            // Many clients may share the address of one NAT.
            connections_per_host: 1000,
            // A site has up to 65,536 networks of 64 bits. It must not take all places.
            connections_per_network: 4000,
            // Longer than any request takes. A device that sleeps comes back when it can.
            silent_time: Duration::from_secs(30 * 60),
            forget_time: Duration::from_secs(7 * 24 * 3600),
            handshakes: 1000,
            // A host that sends nothing leaves most places to the others.
            handshakes_per_host: 100,
            handshake_time: Duration::from_secs(10),
            idle_time: Duration::from_secs(300),
            // As long as an association without its client. An observed resource may stay the same for days
            // (RFC 7641 §4.5).
            backend_time: Duration::from_secs(7 * 24 * 3600),
            connect_time: Duration::from_secs(5),
            header_bytes: 16 << 10,
        }
    }
}

impl Limits {
    /// The limits on places of clients.
    pub(crate) const fn places(&self) -> PlaceLimits {
        PlaceLimits {
            all: self.connections,
            per_host: self.connections_per_host,
            per_network: self.connections_per_network,
            silence: Some(self.silent_time),
        }
    }

    /// Reads the limits. `defaults` replaces absent ones.
    pub(super) fn read(section: Option<&mut Section<'_>>, defaults: &Self) -> Self {
        let Some(section) = section else { return defaults.clone() };
        let size = |number: Option<u64>, default| number.and_then(|n| n.try_into().ok()).unwrap_or(default);
        Self {
            connections: size(section.number("connections", COUNT, 1, MAX_COUNT), defaults.connections),
            connections_per_network: size(
                section.number("connections_per_network", COUNT, 1, MAX_COUNT),
                defaults.connections_per_network,
            ),
            silent_time: section.duration("silent_time").unwrap_or(defaults.silent_time),
            forget_time: section.duration("forget_time").unwrap_or(defaults.forget_time),
            connections_per_host: size(
                section.number("connections_per_host", COUNT, 1, MAX_COUNT),
                defaults.connections_per_host,
            ),
            handshakes: size(section.number("handshakes", COUNT, 1, MAX_COUNT), defaults.handshakes),
            handshakes_per_host: size(
                section.number("handshakes_per_host", COUNT, 1, MAX_COUNT),
                defaults.handshakes_per_host,
            ),
            handshake_time: section.duration("handshake_time").unwrap_or(defaults.handshake_time),
            idle_time: section.duration("idle_time").unwrap_or(defaults.idle_time),
            backend_time: section.duration("backend_time").unwrap_or(defaults.backend_time),
            connect_time: section.duration("connect_time").unwrap_or(defaults.connect_time),
            header_bytes: size(section.number("header_bytes", HEADER, 1024, 1 << 20), defaults.header_bytes),
        }
    }
}
