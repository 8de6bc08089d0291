//! A connection over a byte stream.

use crate::sync::Arc;

use super::Connection;
use crate::address::ServerAddress;
use crate::config::{ClientConfig, ServerConfig};
use crate::error::Error;
use crate::record::stream::Stream;
use crate::time::Now;
use crate::wire::AlertDescription;

impl Connection<Stream> {
    /// A client that connects to `server`; its ClientHello waits to be transmitted. Where early data will go with it and
    /// sessions are verified again, that comes first, and may be a question.
    ///
    /// # Errors
    /// The random source failed, a value of the configuration does not fit its field, or the server of the session, verified
    /// again, is not believed any more.
    pub fn client(config: &Arc<ClientConfig>, server: ServerAddress, now: Now) -> Result<Self, Error> {
        Self::new_client(config, server, Stream::client(), now)
    }

    /// A server that waits for a ClientHello.
    pub fn server(config: &Arc<ServerConfig>, now: Now) -> Self {
        Self::new_server(config, Stream::server(config.cookies), now)
    }

    /// Takes received bytes and works on them; gives how many were taken. Fewer than all means that a question is
    /// open or that there is data to be read first, of [`Connection::received`] or on a server of
    /// [`EarlyData::received`](super::EarlyData::received): call again afterwards.
    ///
    /// # Errors
    /// What ends the connection. Transmit what is left: it may hold an alert.
    pub fn receive(&mut self, now: Now, bytes: &[u8]) -> Result<usize, Error> {
        self.check()?;
        if self.peer_closed {
            // RFC 8446 §6.1: what follows close_notify is ignored.
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

    /// The transport ended. Without close_notify before, data may be cut off (RFC 8446 §6.1).
    ///
    /// # Errors
    /// [`Error::Truncated`], unless the peer had closed.
    pub fn receive_end(&mut self) -> Result<(), Error> {
        self.check()?;
        self.ended = true;
        self.check_end()
    }

    /// What was received before the end is read first; then it shows whether close_notify was there.
    fn check_end(&mut self) -> Result<(), Error> {
        let unread = [self.received(), self.transport.received_early()].iter().any(|data| !data.is_empty());
        if !self.ended || self.peer_closed || unread {
            return Ok(());
        }
        self.fail(Error::Truncated)
    }

    /// Application data that was received, decrypted in place. [`Connection::consume`] what was used.
    pub fn received(&self) -> &[u8] {
        self.transport.received()
    }

    /// Marks `n` bytes of [`Connection::received`] as used, and works on what came after them.
    ///
    /// # Errors
    /// What ends the connection.
    pub fn consume(&mut self, now: Now, n: usize) -> Result<(), Error> {
        self.consumed(now, n.min(self.received().len()))
    }

    /// So much of the open record was used, early data or not.
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

    /// Seals as much of `data` as the output has room for; gives how much. Transmit, then call again for the rest.
    ///
    /// A client takes nothing from the ClientHello of another handshake within a connection of TLS 1.2 on, until the server has
    /// sent Finished or refused: many a server takes no data in between, and only its Finished proves whose the new keys are.
    ///
    /// # Errors
    /// The handshake is not complete, the connection is closed or over, or the cipher failed; or data waits for an answer of
    /// a server that has closed.
    pub fn send(&mut self, data: &[u8]) -> Result<usize, Error> {
        self.check_send()?;
        if self.progress.data_waits {
            // Who has closed completes no handshake.
            let never = Error::AlertReceived(AlertDescription::CLOSE_NOTIFY);
            return if self.peer_closed { Err(never) } else { Ok(0) };
        }
        match self.transport.sender().application_data(data) {
            Ok(n) => Ok(n),
            Err(e) => self.fail(e).map(|()| 0),
        }
    }

    /// What waits to be transmitted.
    pub fn transmit(&self) -> &[u8] {
        self.transport.transmit()
    }

    /// Marks the first `n` bytes of [`Connection::transmit`] as transmitted.
    pub fn transmitted(&mut self, n: usize) {
        self.transport.sender().transmitted(n);
    }
}

const _: () = {
    const fn send_and_sync<T: Send + Sync>() {}
    send_and_sync::<Connection<Stream>>();
};
