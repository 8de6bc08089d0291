//! Early data of a connection over a byte stream.

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
    /// Early data, while there can be any: on a client from the start, if a session allows it, until the server refuses it
    /// or is done; on a server from the moment it takes early data until the handshake is complete.
    ///
    /// Nothing of it comes through [`Connection::send`] or [`Connection::received`].
    pub fn early_data(&mut self) -> Option<EarlyData<'_>> {
        let open = !matches!(self.progress.early.sending, Sending::Nothing) && self.error.is_none();
        open.then_some(EarlyData { connection: self })
    }
}

/// Data before the handshake is complete (RFC 8446 §2.3). It is not forward secret, and of what a client sends the server
/// cannot tell by TLS alone that it was not sent before; see [`crate::early`].
pub struct EarlyData<'a> {
    connection: &'a mut Connection<Stream>,
}

impl EarlyData<'_> {
    /// The application protocol that the data speaks: that of the session, and if the server takes the data, of this
    /// connection.
    pub fn alpn(&self) -> Option<&[u8]> {
        self.connection.progress.early.session.as_ref()?.alpn.as_deref()
    }

    /// Who the peer is by the session. On a server the peer has proven that, if not in this connection: early data that is
    /// an old copy is still this peer's.
    pub fn peer(&self) -> Option<&PeerIdentity> {
        self.connection.progress.early.session.as_ref()?.peer.as_ref()
    }

    /// How many more bytes a client may send; `None` on a server, whose answers have no limit.
    pub fn room(&self) -> Option<u32> {
        match self.connection.progress.early.sending {
            Sending::EarlyData(_) if self.connection.transport.needs_key_update(None) => Some(0),
            Sending::EarlyData(left) => Some(left),
            Sending::Answer | Sending::Nothing => None,
        }
    }

    /// On a client: seals as much of `data` as early data as the session allows and the output has room for; gives how
    /// much. The rest is for [`Connection::send`], later. Nobody sends it again if the server refuses it: see
    /// [`crate::Event::EarlyData`].
    ///
    /// On a server: answers early data before the client's Finished is there. Only who has the session's secret can read
    /// it, but the request may be an old one.
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

    /// Early data that a server received, decrypted in place. [`EarlyData::consume`] what was used: the handshake waits for
    /// it.
    pub fn received(&self) -> &[u8] {
        self.connection.transport.received_early()
    }

    /// Marks `n` bytes of [`EarlyData::received`] as used, and works on what came after them.
    ///
    /// # Errors
    /// What ends the connection.
    pub fn consume(&mut self, now: Now, n: usize) -> Result<(), Error> {
        self.connection.consumed(now, n.min(self.received().len()))
    }

    /// Keying material from the early exporter (RFC 8446 §7.5): fills `out`. It is the same for a first flight that is
    /// replayed.
    ///
    /// # Errors
    /// `out` is longer than 255 hash lengths, or TLS itself uses the label (RFC 5705 §6).
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
