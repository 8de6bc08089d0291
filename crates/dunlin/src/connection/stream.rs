//! A connection over a byte stream.

use crate::sync::Arc;

use super::Connection;
use crate::address::ServerAddress;
use crate::config::{ClientConfig, ServerConfig};
use crate::error::Error;
use crate::protocol::Protocol;
use crate::record::stream::Stream;
use crate::time::Now;
use crate::wire::AlertDescription;

impl Connection<Stream> {
    /// Creates a client that connects to `server`. Its ClientHello is ready to transmit, with one exception:
    /// with early data and [`ClientConfig::with_reverification`], the client first verifies the session's
    /// server again, which may raise a question.
    ///
    /// # Errors
    /// The random source failed, a value of the configuration does not fit its field, or the session's server
    /// is no longer trusted.
    pub fn client(config: &Arc<ClientConfig>, server: ServerAddress, now: Now) -> Result<Self, Error> {
        Self::new_client(config, server, Stream::client(), now)
    }

    /// Creates a server that waits for a ClientHello.
    pub fn server(config: &Arc<ServerConfig>, now: Now) -> Self {
        Self::new_server(config, Stream::server(config.demands_cookie(Protocol::Tls13)), now)
    }

    /// Processes received bytes, and returns how many it took. If it took fewer than all, a question is open,
    /// or the caller must first read [`Connection::received`] or, on a server,
    /// [`EarlyData::received`](super::EarlyData::received). Then call it again with the rest.
    ///
    /// # Errors
    /// The error that ends the connection. The caller should still transmit what remains: it may include an
    /// alert.
    pub fn receive(&mut self, now: Now, bytes: &[u8]) -> Result<usize, Error> {
        self.check()?;
        if self.peer_closed {
            // RFC 8446 §6.1: data after close_notify is ignored.
            return Ok(bytes.len());
        }
        let mut taken = 0;
        loop {
            let rest = bytes.get(taken..).unwrap_or_default();
            let n = rest.len().min(self.transport.receiver().room());
            let Some(part) = rest.get(..n) else { return Ok(taken) };
            self.transport.receiver().push(part);
            taken += n;
            self.drive(now)?;
            if taken == bytes.len() || self.transport.receiver().room() == 0 {
                return Ok(taken);
            }
            if self.peer_closed {
                return Ok(bytes.len());
            }
        }
    }

    /// Tells the connection that the transport has ended. Without a preceding close_notify, data may have
    /// been truncated (RFC 8446 §6.1).
    ///
    /// # Errors
    /// [`Error::Truncated`] unless the peer has sent close_notify. While received data is unread,
    /// [`Connection::consume`] returns the error instead.
    pub fn receive_end(&mut self) -> Result<(), Error> {
        self.check()?;
        self.ended = true;
        self.check_end()
    }

    /// Reports truncation, but only after the application has read all received data.
    fn check_end(&mut self) -> Result<(), Error> {
        let unread = [self.received(), self.transport.received_early()].iter().any(|data| !data.is_empty());
        if !self.ended || self.peer_closed || unread {
            return Ok(());
        }
        self.fail(Error::Truncated)
    }

    /// Received application data, decrypted in place. Call [`Connection::consume`] for each part that is
    /// processed.
    pub fn received(&self) -> &[u8] {
        self.transport.received()
    }

    /// Removes the first `n` bytes of [`Connection::received`], then processes the records that follow.
    ///
    /// # Errors
    /// The error that ends the connection.
    pub fn consume(&mut self, now: Now, n: usize) -> Result<(), Error> {
        self.consumed(now, n.min(self.received().len()))
    }

    /// Removes the first `n` bytes of the open record, which may be early data.
    pub(super) fn consumed(&mut self, now: Now, n: usize) -> Result<(), Error> {
        if n > 0 {
            self.effects.reset_idle();
            self.commit.heard(true);
        }
        self.transport.receiver().consume(n);
        self.check()?;
        self.drive(now)?;
        self.check_end()
    }

    /// Encrypts as much of `data` as the output has room for, and returns the number of bytes. Transmit, then
    /// call it again for the rest.
    ///
    /// During a TLS 1.2 renegotiation, a client accepts no data until the server sends Finished or refuses.
    /// Many servers reject data in between, and only the server's Finished confirms the new keys.
    ///
    /// # Errors
    /// The handshake is not complete, this side has closed, the connection has failed, or the cipher failed.
    /// Or the data waits for a renegotiation that a server cannot complete because it has closed.
    pub fn send(&mut self, data: &[u8]) -> Result<usize, Error> {
        self.check_send()?;
        if self.progress.data_waits {
            // A server that has closed cannot complete the renegotiation.
            let never = Error::AlertReceived(AlertDescription::CLOSE_NOTIFY);
            return if self.peer_closed { Err(never) } else { Ok(0) };
        }
        match self.transport.sender().application_data(data) {
            Ok(n) => Ok(n),
            Err(e) => self.fail(e).map(|()| 0),
        }
    }

    /// The bytes to transmit to the peer.
    pub fn transmit(&self) -> &[u8] {
        self.transport.transmit()
    }

    /// Removes the first `n` bytes of [`Connection::transmit`], which the caller has transmitted.
    pub fn transmitted(&mut self, n: usize) {
        self.transport.sender().transmitted(n);
    }
}

const _: () = {
    const fn send_and_sync<T: Send + Sync>() {}
    send_and_sync::<Connection<Stream>>();
};
