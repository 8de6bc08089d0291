//! A host with an endpoint that has more than one port.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;

use dunlin::{Endpoint, Instant, Local, Now, Path, Transmit};

use crate::Host;

/// A host with an endpoint of the engine, whose associations can have ports of their own
/// ([`dunlin::PortScheme`]). Its sockets are bound to no address: it sends from the first interface that is
/// up.
#[derive(Debug)]
pub struct Pooled {
    /// The endpoint.
    pub endpoint: Endpoint,
    welcome: u16,
    pool: Option<RangeInclusive<u16>>,
    address: Option<IpAddr>,
}

impl Pooled {
    /// A host whose first socket is bound to the port `welcome`. The ports of `pool` are added to the
    /// endpoint's pool: [`Local`] names each by its number, and the first socket by 0.
    ///
    /// # Errors
    /// The errors of [`Endpoint::add_ports`].
    pub fn new(
        mut endpoint: Endpoint,
        welcome: u16,
        pool: Option<RangeInclusive<u16>>,
    ) -> Result<Self, dunlin::Error> {
        if let Some(pool) = pool.clone() {
            endpoint.add_ports(pool.map(|port| (Local(port.into()), port)))?;
        }
        Ok(Self { endpoint, welcome, pool, address: None })
    }
}

impl Host for Pooled {
    fn receive(&mut self, now: Now, at: SocketAddr, from: SocketAddr, datagram: &[u8]) {
        let port = at.port();
        let is_in_pool = self.pool.as_ref().is_some_and(|pool| pool.contains(&port));
        if port == self.welcome || is_in_pool {
            let local = if is_in_pool { Local(port.into()) } else { Local::default() };
            self.endpoint.receive(now, Path { local, ..from.into() }, datagram);
        }
    }

    fn poll_transmit(&mut self, now: Now) -> Option<(SocketAddr, Transmit)> {
        loop {
            let transmit = self.endpoint.poll_transmit(now)?;
            let port = match transmit.local {
                Local(0) => self.welcome,
                Local(port) => u16::try_from(port).unwrap_or(self.welcome),
            };
            // Without an address the datagram is lost.
            if let Some(address) = self.address {
                return Some((SocketAddr::new(address, port), transmit));
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.endpoint.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Now) {
        self.endpoint.handle_timeout(now);
    }

    fn set_addresses(&mut self, _: Now, addresses: &[Option<IpAddr>]) {
        self.address = addresses.iter().flatten().next().copied();
    }
}
