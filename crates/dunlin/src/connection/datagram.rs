//! A connection over datagrams.

use crate::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;

use super::Connection;
use crate::address::ServerAddress;
use crate::config::{ClientConfig, ServerConfig};
use crate::error::Error;
use crate::protocol::{Protocol, Side};
use crate::record::datagram::{Datagram, Discarded};
use crate::time::Now;

/// A datagram to transmit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The address to send it to.
    pub to: SocketAddr,
    /// Its content.
    pub datagram: Vec<u8>,
}

impl Connection<Datagram> {
    /// Creates a client that connects to `server` at the address `peer`. Its ClientHello is ready to transmit.
    ///
    /// The engine only compares addresses. A caller on a network without IP maps the network's addresses to any others, one to
    /// one.
    ///
    /// # Errors
    /// The random source failed, or a value of the configuration does not fit its field.
    pub fn client(
        config: &Arc<ClientConfig>,
        server: ServerAddress,
        peer: SocketAddr,
        now: Now,
    ) -> Result<Self, Error> {
        Self::new_client(config, server, Datagram::new(Side::Client, &config.datagram, peer), now)
    }

    /// Creates a server that waits for a ClientHello from the address `peer`.
    pub fn server(config: &Arc<ServerConfig>, peer: SocketAddr, now: Now) -> Self {
        let transport = Datagram::new(Side::Server, &config.datagram, peer);
        let forgets = config.demands_cookie(Protocol::Dtls13);
        Self::new_server(config, if forgets { transport.forgetful() } else { transport }, now)
    }

    /// The peer's address, which never changes.
    pub const fn peer_address(&self) -> SocketAddr {
        self.transport.peer()
    }

    /// Processes a datagram that was received from the address `from`. Discards records that are not authentic, and datagrams
    /// from another address than the peer's ([`Connection::discarded`]). While a question is open, it also discards records for
    /// which it has no room; the peer sends them again.
    ///
    /// A peer whose address changes must connect again. RFC 9146 §6 lets a connection follow its peer only after a check that the
    /// peer receives at the new address, and this engine does not have that check yet.
    ///
    /// # Errors
    /// The error that ends the connection. The caller should still transmit what remains: it may include an alert.
    pub fn receive(&mut self, now: Now, from: SocketAddr, datagram: &[u8]) -> Result<(), Error> {
        self.check()?;
        self.transport.push(now.monotonic, from, datagram);
        self.drive(now)
    }

    /// Takes the next datagram to transmit. Call it until it returns `None`, and then ask for [`Connection::poll_timeout`]: the
    /// timer of a flight starts when its last datagram leaves.
    pub fn poll_transmit(&mut self, now: Now) -> Option<Transmit> {
        let datagram = self.transport.transmit(now.monotonic)?;
        Some(Transmit { to: self.transport.peer(), datagram })
    }

    /// Takes the data of the next record, as the peer sent it. Records can be lost or reordered on the way.
    pub fn read(&mut self) -> Option<Vec<u8>> {
        // In DTLS 1.2, data can arrive before the Finished of its epoch.
        self.progress.is_connected().then_some(())?;
        let data = self.transport.receiver().read()?;
        self.effects.reset_idle();
        self.commit.heard(true);
        Some(data)
    }

    /// Sends `data` in one record and one datagram.
    ///
    /// # Errors
    /// [`crate::error::Misuse::DataTooLong`] above [`Connection::max_data`], and [`crate::error::Misuse::OutputFull`] while too
    /// many datagrams wait for transmission; both leave the connection unchanged. Or the handshake is not complete, this side has
    /// closed, the connection has failed, or the cipher failed.
    pub fn send(&mut self, data: &[u8]) -> Result<(), Error> {
        self.check_send()?;
        self.transport.sender().check_data(data.len())?;
        match self.transport.sender().application_data(data) {
            Ok(()) => Ok(()),
            Err(e) => self.fail(e),
        }
    }

    /// The longest data that [`Connection::send`] accepts, in bytes. It depends on the MTU and the cipher suite.
    pub fn max_data(&self) -> usize {
        self.transport.max_data()
    }

    /// Counts of what was received and discarded so far.
    pub const fn discarded(&self) -> Discarded {
        self.transport.discarded()
    }
}

const _: () = {
    const fn send_and_sync<T: Send + Sync>() {}
    send_and_sync::<Connection<Datagram>>();
};
