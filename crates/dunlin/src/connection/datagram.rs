//! A connection over datagrams.

use crate::sync::Arc;
use alloc::vec::Vec;

use super::Connection;
use crate::address::ServerAddress;
use crate::config::{ClientConfig, ServerConfig};
use crate::error::Error;
use crate::record::datagram::{Datagram, Discarded};
use crate::time::Now;

impl Connection<Datagram> {
    /// Creates a client that connects to `server`. Its ClientHello is ready to transmit.
    ///
    /// # Errors
    /// The random source failed, or a value of the configuration does not fit its field.
    pub fn client(config: &Arc<ClientConfig>, server: ServerAddress, now: Now) -> Result<Self, Error> {
        Self::new_client(config, server, Datagram::new(config.mtu), now)
    }

    /// Creates a server that waits for a ClientHello.
    pub fn server(config: &Arc<ServerConfig>, now: Now) -> Self {
        Self::new_server(config, Datagram::new(config.mtu), now)
    }

    /// Processes a received datagram. Discards records that are not authentic ([`Connection::discarded`]). While a question is
    /// open, it also discards records for which it has no room; the peer sends them again.
    ///
    /// # Errors
    /// The error that ends the connection. The caller should still transmit what remains: it may include an alert.
    pub fn receive(&mut self, now: Now, datagram: &[u8]) -> Result<(), Error> {
        self.check()?;
        self.transport.receiver().push(datagram);
        self.drive(now)
    }

    /// Takes the next datagram to transmit.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.transport.sender().transmit()
    }

    /// Takes the data of the next record, as the peer sent it. Records can be lost or reordered on the way.
    pub fn read(&mut self) -> Option<Vec<u8>> {
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
