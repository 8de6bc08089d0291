//! The limits of an endpoint, and the counts of what it has discarded and of its ports.

use core::time::Duration;

use crate::places::{PlaceLimit, PlaceLimits};

/// The limits of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointLimits {
    /// The most associations with clients whose handshake is complete, and the most that this side begins as
    /// a client. By default 65,536, at most 2^24. Beyond it, one client gives way to a newer one, or the
    /// newer one is refused, in the order of [`crate::places`].
    pub associations: usize,
    /// The most associations of clients of one host, likewise. By default 8192. A host is an IPv4 address, or
    /// an IPv6 network of 64 bits. Many clients can share a host behind a NAT.
    pub associations_per_host: usize,
    /// The most associations of clients of one IPv6 network of 48 bits, likewise. By default 16,384. A site
    /// can have 65,536 hosts.
    pub associations_per_network: usize,
    /// The most handshakes of clients that a server has begun and not completed. By default 1024. Each has
    /// returned a cookie, unless the server demands none. Beyond it, a newer one replaces the oldest, or one
    /// of a site that has many ([`crate::places::Handshakes`]).
    pub half_open: usize,
    /// The same for one host, whose newer one replaces its oldest one. By default 256.
    pub half_open_per_host: usize,
    /// The most incomplete ClientHellos, whose other fragments are missing. By default 64. Their senders have
    /// returned no cookie, so anyone can send them. The latest one replaces an older one, of which few bytes
    /// have arrived. A ClientHello in one datagram needs no place here.
    pub partial_hellos: usize,
    /// The most ports of the pool ([`crate::Endpoint::add_ports`]) that clients of one host have. By
    /// default 8. Further clients of the host get ordinary associations.
    pub ports_per_host: usize,
    /// An association ends if its peer has sent nothing authentic for this time. By default `None`: never,
    /// since a device may sleep for days.
    pub idle: Option<Duration>,
    /// A client that has sent nothing authentic for this time may have to give way to another one at a limit.
    /// By default 30 minutes. `None`: never, so that silent clients can keep all others out.
    pub stale: Option<Duration>,
}

impl EndpointLimits {
    /// The limits on places.
    pub(super) const fn places(&self) -> PlaceLimits {
        PlaceLimits {
            all: self.associations,
            per_host: self.associations_per_host,
            per_network: self.associations_per_network,
            silence: self.stale,
        }
    }
}

impl Default for EndpointLimits {
    fn default() -> Self {
        Self {
            associations: 65_536,
            associations_per_host: 8192,
            associations_per_network: 16_384,
            half_open: 1024,
            half_open_per_host: 256,
            partial_hellos: 64,
            ports_per_host: 8,
            idle: None,
            stale: Some(Duration::from_secs(30 * 60)),
        }
    }
}

/// The number of datagrams that an endpoint has discarded, by reason. [`crate::DtlsConnection::discarded`]
/// counts the discarded datagrams of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointDiscarded {
    /// Datagrams without a ClientHello, from an address without an association.
    pub unknown: u64,
    /// ClientHellos to an endpoint that is not a server, from the address of a server that this side is
    /// connecting to, or from one that the server refuses ([`crate::Endpoint::set_refusal`]).
    pub unwanted: u64,
    /// ClientHellos to an endpoint without a place for handshakes, or whose caller does not remove the
    /// associations that have ended, or for which it drew a connection ID that another association has.
    pub full: u64,
    /// Clients that were refused at the end of their handshake, because there were
    /// [`EndpointLimits::associations`].
    pub refused: u64,
    /// The same for [`EndpointLimits::associations_per_host`].
    pub refused_per_host: u64,
    /// The same for [`EndpointLimits::associations_per_network`].
    pub refused_per_network: u64,
    /// Associations that gave way to another client.
    pub gave_way: u64,
    /// Incomplete ClientHellos that a later one has replaced.
    pub partial: u64,
    /// ClientHellos with a valid cookie that ended their handshake at once.
    pub failed: u64,
    /// Handshakes that ended because a newer one took their place at a limit.
    pub displaced: u64,
    /// Output beyond its limit.
    pub output: u64,
}

impl EndpointDiscarded {
    pub(super) const NONE: Self = Self {
        unknown: 0,
        unwanted: 0,
        full: 0,
        refused: 0,
        refused_per_host: 0,
        refused_per_network: 0,
        gave_way: 0,
        partial: 0,
        failed: 0,
        displaced: 0,
        output: 0,
    };

    /// Counts a client that was refused.
    pub(super) const fn refuse(&mut self, limit: PlaceLimit) {
        match limit {
            PlaceLimit::All => self.refused += 1,
            PlaceLimit::PerHost => self.refused_per_host += 1,
            PlaceLimit::PerNetwork => self.refused_per_network += 1,
        }
    }
}

/// Counts about the ports of a pool ([`crate::Endpoint::add_ports`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortCounts {
    /// The ports of the pool.
    pub ports: usize,
    /// Those that belong to an association now.
    pub used: usize,
    /// How often an association has got a port.
    pub given: u64,
    /// Associations without a port because none was free ([`crate::NoPort::Empty`]).
    pub empty: u64,
    /// Associations without a port because their host had too many ([`crate::NoPort::HostLimit`]).
    pub host_limit: u64,
    /// Associations without a port because the server demands no cookie ([`crate::NoPort::NoCookie`]).
    pub no_cookie: u64,
    /// Datagrams to a port that belongs to no association.
    pub stray: u64,
    /// ServerHellos of other ports that a client has tried, after the first one ([`crate::PortScheme::Ipc`]).
    pub retried: u64,
}

impl PortCounts {
    pub(super) const NONE: Self =
        Self { ports: 0, used: 0, given: 0, empty: 0, host_limit: 0, no_cookie: 0, stray: 0, retried: 0 };
}
