//! A TLS connection as one end of a stream.

use dunlin::{Error, Now, TlsConnection};

use crate::StreamEndpoint;

/// The reply of an [`Application`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Data to send.
    pub data: Vec<u8>,
    /// Whether to close the connection after the data.
    pub close: bool,
}

/// The application that uses a connection. It is called when the handshake completes, when data arrives, and
/// when the peer closes. Its arguments are the connection and the new data.
pub trait Application: FnMut(&TlsConnection, &[u8]) -> Reply {}

impl<F: FnMut(&TlsConnection, &[u8]) -> Reply> Application for F {}

/// A [`TlsConnection`] and its application. [`TlsConnection::error`] keeps the error that ends it.
pub struct TlsPeer<A> {
    /// The connection.
    pub connection: TlsConnection,
    application: A,
    /// Received bytes that the connection has not taken yet.
    waiting: Vec<u8>,
    /// The part of the reply that the connection has no room for yet.
    reply: Reply,
    /// Whether the application knows that the handshake is complete, and that the peer has closed.
    reported: (bool, bool),
}

impl<A: Application> TlsPeer<A> {
    /// Joins a connection and its application.
    pub fn new(connection: TlsConnection, application: A) -> Self {
        let waiting = Vec::new();
        let reply = Reply::default();
        let reported = (false, false);
        Self { connection, application, waiting, reply, reported }
    }

    fn take(&mut self, now: Now) -> Result<(), Error> {
        loop {
            let taken = self.connection.receive(now, &self.waiting)?;
            self.waiting.drain(..taken);
            let data = self.connection.received().to_vec();
            let state = (self.connection.negotiated().is_some(), self.connection.peer_has_closed());
            let news = std::mem::replace(&mut self.reported, state) != state;
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

    /// Sends as much of the reply as the connection has room for.
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
