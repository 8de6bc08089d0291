//! The early data of a connection over a byte stream.

use super::Connection;
use crate::auth::PeerIdentity;
use crate::error::{Error, Misuse};
use crate::handshake::progress::Sending;
use crate::protocol::Side;
use crate::record::stream::Stream;
use crate::schedule;
use crate::time::Now;
use crate::transport::Transport;

impl Connection<Stream> {
    /// Early data, while it is possible. On a client, that begins at the start if a session allows it, and
    /// ends when the server rejects the data or its Finished arrives. On a server, it lasts from acceptance
    /// until the handshake is complete.
    ///
    /// [`Connection::send`] and [`Connection::received`] do not carry early data.
    pub fn early_data(&mut self) -> Option<EarlyData<'_>> {
        let open = !matches!(self.progress.early.sending, Sending::Nothing) && self.error.is_none();
        open.then_some(EarlyData { connection: self })
    }
}

/// Data before the handshake is complete (RFC 8446 §2.3). The client's early data is not forward secret, and
/// TLS alone does not protect the server from replays of it; see [`crate::early`].
pub struct EarlyData<'a> {
    connection: &'a mut Connection<Stream>,
}

impl EarlyData<'_> {
    /// The application protocol of the data, from the session. If the server accepts the data, this
    /// connection uses the same protocol.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.connection.progress.early.session.as_ref()?.alpn.as_deref()
    }

    /// The peer's identity in the session. The peer has proven it in an earlier connection. On a server, even
    /// replayed early data originally came from this peer.
    pub fn peer(&self) -> Option<&PeerIdentity> {
        self.connection.progress.early.session.as_ref()?.peer.as_ref()
    }

    /// How many more bytes a client may send. `None` on a server, whose answers have no limit.
    pub fn room(&self) -> Option<u32> {
        match self.connection.progress.early.sending {
            Sending::EarlyData(_) if self.connection.transport.needs_key_update(None) => Some(0),
            Sending::EarlyData(left) => Some(left),
            Sending::Answer | Sending::Nothing => None,
        }
    }

    /// On a client: encrypts `data` as early data, as far as the session and the space in the output allow.
    /// Returns the number of bytes. Send the rest later with [`Connection::send`]. If the server rejects
    /// early data, the engine does not send it again: see [`crate::Event::EarlyData`].
    ///
    /// On a server: answers early data before the client's Finished arrives. Only a client with the session's
    /// secret can read the answer, but the request may be a replay.
    ///
    /// # Errors
    /// The cipher failed, or this side has closed.
    pub fn send(&mut self, data: &[u8]) -> Result<usize, Error> {
        let connection = &mut *self.connection;
        if connection.progress.send_closed {
            return Err(Misuse::SendClosed.into());
        }
        let part =
            connection.progress.early.sending.part(data, connection.transport.needs_key_update(None))?;
        let sent = match connection.transport.sender().application_data(part) {
            Ok(n) => n,
            Err(e) => return connection.fail(e).map(|()| 0),
        };
        if let Sending::EarlyData(left) = &mut connection.progress.early.sending {
            *left = left.saturating_sub(u32::try_from(sent).unwrap_or(u32::MAX));
        }
        Ok(sent)
    }

    /// Early data that a server received, decrypted in place. Call [`EarlyData::consume`] for each part that
    /// is processed: the handshake waits for that.
    pub fn received(&self) -> &[u8] {
        self.connection.transport.received_early()
    }

    /// Removes the first `n` bytes of [`EarlyData::received`], then processes the records that follow.
    ///
    /// # Errors
    /// The error that ends the connection.
    pub fn consume(&mut self, now: Now, n: usize) -> Result<(), Error> {
        self.connection.consumed(now, n.min(self.received().len()))
    }

    /// Exports keying material from the early exporter into `out` (RFC 8446 §7.5). A replayed first flight
    /// yields the same material.
    ///
    /// # Errors
    /// `out` is longer than 255 hash lengths, or `label` is one that TLS itself uses (RFC 5705 §6).
    pub fn export(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> Result<(), Error> {
        match &self.connection.progress.early.session {
            Some(session) => schedule::export(&session.exporter, label, Some(context), out),
            None => Err(Misuse::HandshakeNotComplete.into()),
        }
    }

    /// Which side this is.
    pub const fn side(&self) -> Side {
        self.connection.side
    }
}
