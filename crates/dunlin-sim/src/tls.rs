//! TLS as an end of a stream.

use dunlin::{Error, Now, TlsConnection};

use crate::StreamEndpoint;

/// What an [`Application`] wants to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Data to send.
    pub data: Vec<u8>,
    /// Whether it is the last.
    pub close: bool,
}

/// What uses a connection: called once the handshake is complete, whenever data came, with that data, and when the peer
/// has closed.
pub trait Application: FnMut(&TlsConnection, &[u8]) -> Reply {}

impl<F: FnMut(&TlsConnection, &[u8]) -> Reply> Application for F {}

/// A [`TlsConnection`] and what uses it. What ends it is in [`TlsConnection::error`].
pub struct TlsPeer<A> {
    /// The connection.
    pub connection: TlsConnection,
    application: A,
    /// What came and the connection does not take yet.
    waiting: Vec<u8>,
    /// What the connection has no room for yet.
    reply: Reply,
    /// The application knows that the handshake is complete, and that the peer has closed.
    told: (bool, bool),
}

impl<A: Application> TlsPeer<A> {
    /// The connection, and what uses it.
    pub fn new(connection: TlsConnection, application: A) -> Self {
        Self { connection, application, waiting: Vec::new(), reply: Reply::default(), told: (false, false) }
    }

    fn take(&mut self, now: Now) -> Result<(), Error> {
        loop {
            let taken = self.connection.receive(now, &self.waiting)?;
            self.waiting.drain(..taken);
            let data = self.connection.received().to_vec();
            let tell = (self.connection.negotiated().is_some(), self.connection.peer_has_closed());
            let news = std::mem::replace(&mut self.told, tell) != tell;
            if !data.is_empty() || news {
                let reply = (self.application)(&self.connection, &data);
                self.reply.data.extend(reply.data);
                self.reply.close |= reply.close;
            }
            self.connection.consume(now, data.len())?;
            if data.is_empty() && (taken == 0 || self.waiting.is_empty()) {
                return Ok(());
            }
        }
    }

    /// Sends what there is room for.
    fn send(&mut self) -> Result<(), Error> {
        if !self.reply.data.is_empty() {
            let sent = self.connection.send(&self.reply.data)?;
            self.reply.data.drain(..sent);
        }
        if self.reply.data.is_empty() && self.reply.close {
            self.connection.close();
        }
        Ok(())
    }
}

impl<A: Application> StreamEndpoint for TlsPeer<A> {
    fn receive(&mut self, now: Now, bytes: &[u8]) {
        self.waiting.extend_from_slice(bytes);
        // The connection keeps its error.
        let _ = self.take(now);
    }

    fn receive_end(&mut self, _: Now) {
        let _ = self.connection.receive_end();
    }

    fn poll_transmit(&mut self, _: Now) -> Option<Vec<u8>> {
        let _ = self.send();
        let bytes = self.connection.transmit().to_vec();
        self.connection.transmitted(bytes.len());
        Some(bytes).filter(|bytes| !bytes.is_empty())
    }

    fn has_ended(&self) -> bool {
        self.connection.has_closed()
    }
}
