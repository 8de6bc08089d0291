//! The limits of an endpoint, and the counts of what it has discarded.

use core::time::Duration;

/// The limits of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointLimits {
    /// The most associations, ended ones included until the caller removes them. By default 65,536, at most 2^24. Beyond it there are
    /// no new ones. Shortly before, new clients displace stale ones ([`Self::stale`]).
    pub associations: usize,
    /// The most associations that clients of one host have begun at a server. By default 8192. A host is an IPv4 address, or an IPv6
    /// network of 64 bits. Many clients can share a host behind a NAT.
    pub associations_per_host: usize,
    /// The most handshakes of clients that a server has begun and not completed. By default 1024. Each has returned a cookie, unless
    /// the server demands none. A newer one replaces the oldest one.
    pub half_open: usize,
    /// The same for one host, so that it cannot replace the handshakes of all others. By default 256.
    pub half_open_per_host: usize,
    /// The most incomplete ClientHellos, whose other fragments are missing. By default 64. Their senders have returned no cookie, so
    /// anyone can send them. The latest one replaces an older one, of which few bytes have arrived. A ClientHello in one datagram needs
    /// no place here.
    pub partial_hellos: usize,
    /// The most ports of the pool ([`crate::Endpoint::add_ports`]) that clients of one host have. By default 8. Further clients of the host
    /// get ordinary associations.
    pub ports_per_host: usize,
    /// An association ends if its peer has sent nothing authentic for this time. By default `None`: never, since a
    /// device may sleep for days.
    pub idle: Option<Duration>,
    /// An association is stale if its client has sent nothing authentic for this time. In the last 64th of [`Self::associations`], each new client ends the stalest one ([`crate::Ended::Stale`]). By default 30 minutes. `None`: never, so that
    /// silent clients can keep all others out.
    pub stale: Option<Duration>,
}

impl Default for EndpointLimits {
    fn default() -> Self {
        Self {
            associations: 65_536,
            associations_per_host: 8192,
            half_open: 1024,
            half_open_per_host: 256,
            partial_hellos: 64,
            ports_per_host: 8,
            idle: None,
            stale: Some(Duration::from_secs(30 * 60)),
        }
    }
}

/// The number of datagrams that an endpoint has discarded, by reason. [`crate::DtlsConnection::discarded`] counts those of a
/// connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointDiscarded {
    /// Datagrams without a ClientHello, from an address without an association.
    pub unknown: u64,
    /// ClientHellos to an endpoint that is not a server, from the address of a server that this side is connecting to, or from one that
    /// the server refuses ([`crate::Endpoint::set_refusal`]).
    pub unwanted: u64,
    /// ClientHellos beyond a limit of the endpoint, or for which it drew a connection ID that another association has.
    pub full: u64,
    /// Incomplete ClientHellos that a later one has replaced.
    pub partial: u64,
    /// ClientHellos with a valid cookie that ended their handshake at once.
    pub failed: u64,
    /// Handshakes that ended because a newer one took their place at a limit, and stale associations that made room.
    pub displaced: u64,
    /// Output beyond its limit.
    pub output: u64,
}

impl EndpointDiscarded {
    pub(super) const NONE: Self =
        Self { unknown: 0, unwanted: 0, full: 0, partial: 0, failed: 0, displaced: 0, output: 0 };
}
