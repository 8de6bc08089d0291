//! Addresses: the server that a client connects to, and the two ends of a path for datagrams.

use alloc::string::{String, ToString};
use core::net::{self, Ipv4Addr, Ipv6Addr, SocketAddr};

use pki_types::{IpAddr, ServerName};

use crate::error::{Error, Misuse};

/// The server that a client connects to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    /// The name or address that the server's certificate must contain.
    pub name: ServerName<'static>,
    /// The port; the client never offers a ticket to another port. 0 if there is none.
    pub port: u16,
}

impl ServerAddress {
    /// A server by name or IP address, and port.
    pub const fn new(name: ServerName<'static>, port: u16) -> Self {
        Self { name, port }
    }

    /// A server by the text of its name or IP address, and port.
    ///
    /// # Errors
    /// `name` is neither a DNS name nor an IP address.
    pub fn parse(name: &str, port: u16) -> Result<Self, Error> {
        match ServerName::try_from(name) {
            Ok(name) => Ok(Self::new(name.to_owned(), port)),
            Err(_) => Err(Misuse::Config(alloc::format!("{name:?} is no DNS name or IP address")).into()),
        }
    }

    /// The name in text.
    pub(crate) fn host(&self) -> String {
        name_text(&self.name)
    }
}

/// One of the caller's sockets or interfaces, by a number of the caller's choice. A caller with a single one
/// uses the default, 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Local(pub u32);

/// The two ends between which datagrams travel. A caller with a single socket converts the peer's address
/// into a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    /// This side's end.
    pub local: Local,
    /// The address of this side in the peer's datagrams, from which a server answers. `None`: the caller's
    /// system chooses the source address. Clients always let the system choose.
    pub source: Option<net::IpAddr>,
    /// The peer's address.
    pub peer: SocketAddr,
}

impl Path {
    /// Whether both lead over the same interface to the same peer, from whichever address of this side.
    pub(crate) fn leads_as(&self, other: &Self) -> bool {
        (self.local, self.peer) == (other.local, other.peer)
    }

    /// The same path without the flow label of IPv6, which does not belong to an address.
    pub(crate) fn without_flow(mut self) -> Self {
        if let SocketAddr::V6(peer) = &mut self.peer {
            peer.set_flowinfo(0);
        }
        self
    }
}

impl From<SocketAddr> for Path {
    /// The flow label of IPv6 does not belong to an address.
    fn from(peer: SocketAddr) -> Self {
        Self { local: Local::default(), source: None, peer }.without_flow()
    }
}

/// A connection sends over another path of its own choice from now on ([`crate::Multihoming`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathChange {
    /// The path that the connection has left.
    pub from: Path,
    /// The path over which it sends now. It has the same interface if only the interface's address has
    /// changed.
    pub to: Path,
    /// How many records of data the connection sends again over the new path, since they may not have
    /// arrived.
    pub repeated: usize,
    /// How many records of data may not have arrived and are not sent again. The application
    /// decides whether to repeat their content: some may have arrived.
    pub unrepeated: usize,
    /// Whether a connection with [`crate::Multihoming::unlinkable`] took its connection ID along, since the
    /// server had given it no spare one. Observers of both paths can link them.
    pub is_linked: bool,
}

impl PathChange {
    /// This change and the next one as a single change.
    pub(crate) const fn followed_by(self, next: Self) -> Self {
        Self {
            from: self.from,
            to: next.to,
            repeated: self.repeated.saturating_add(next.repeated),
            unrepeated: self.unrepeated.saturating_add(next.unrepeated),
            is_linked: self.is_linked || next.is_linked,
        }
    }
}

/// A server's name or address in text.
pub(crate) fn name_text(name: &ServerName<'_>) -> String {
    match name {
        // RFC 6066 §3: without the trailing dot of an absolute name.
        ServerName::DnsName(name) => name.as_ref().trim_end_matches('.').to_string(),
        ServerName::IpAddress(IpAddr::V4(address)) => Ipv4Addr::from(*address.as_ref()).to_string(),
        ServerName::IpAddress(IpAddr::V6(address)) => Ipv6Addr::from(*address.as_ref()).to_string(),
        _ => String::new(),
    }
}
