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
    /// A client that connects to `server`; its ClientHello waits to be transmitted.
    ///
    /// # Errors
    /// The random source failed, or a value of the configuration does not fit its field.
    pub fn client(config: &Arc<ClientConfig>, server: ServerAddress, now: Now) -> Result<Self, Error> {
        Self::new_client(config, server, Datagram::new(config.mtu), now)
    }

    /// A server that waits for a ClientHello.
    pub fn server(config: &Arc<ServerConfig>, now: Now) -> Self {
        Self::new_server(config, Datagram::new(config.mtu), now)
    }

    /// Takes a received datagram and works on it. What is not authentic is discarded
    /// ([`Connection::discarded`]), and so is what there is no room for while a question is open: the peer sends
    /// it again.
    ///
    /// # Errors
    /// What ends the connection. Transmit what is left: it may hold an alert.
    pub fn receive(&mut self, now: Now, datagram: &[u8]) -> Result<(), Error> {
        self.check()?;
        self.transport.receiver().push(datagram);
        self.drive(now)
    }

    /// The next datagram to be transmitted.
    pub fn poll_transmit(&mut self) -> Option<Vec<u8>> {
        self.transport.sender().transmit()
    }

    /// The data of the next record, as the peer sent it. Records can be lost and change places on the way.
    pub fn read(&mut self) -> Option<Vec<u8>> {
        let data = self.transport.receiver().read()?;
        self.effects.reset_idle();
        self.commit.heard(true);
        Some(data)
    }

    /// Sends `data` in one record and one datagram.
    ///
    /// # Errors
    /// [`crate::error::Misuse::DataTooLong`] above [`Connection::max_data`], and
    /// [`crate::error::Misuse::OutputFull`] while too many datagrams wait to be transmitted, leave the connection
    /// as it is. Else the handshake is not complete, the connection is closed or over, or the cipher failed.
    pub fn send(&mut self, data: &[u8]) -> Result<(), Error> {
        self.check_send()?;
        self.transport.sender().check_data(data.len())?;
        match self.transport.sender().application_data(data) {
            Ok(()) => Ok(()),
            Err(e) => self.fail(e),
        }
    }

    /// The longest data that [`Connection::send`] takes, in bytes; it changes only with the cipher suite.
    pub fn max_data(&self) -> usize {
        self.transport.max_data()
    }

    /// What was received and discarded so far.
    pub const fn discarded(&self) -> Discarded {
        self.transport.discarded()
    }
}

const _: () = {
    const fn send_and_sync<T: Send + Sync>() {}
    send_and_sync::<Connection<Datagram>>();
};
