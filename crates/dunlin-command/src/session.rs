//! A connection as the commands use it: TLS over TCP, or DTLS over UDP.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use dunlin::{MessageSize, Negotiated, NoPort, Side};
use dunlin_tokio::{DtlsAssociation, HandshakeBytes, Renegotiations, TlsStream};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};

use crate::counted::Traffic;

/// A connection after its handshake, which reads and writes data.
pub trait Session: AsyncBufRead + AsyncWrite + Unpin + Send {
    /// This side.
    fn side(&self) -> Side;
    /// The result of the handshake.
    fn negotiated(&self) -> &Negotiated;
    /// The messages of the handshake, in order.
    fn messages(&self) -> Vec<MessageSize>;
    /// The bytes of the handshake.
    fn handshake_bytes(&self) -> HandshakeBytes;

    /// The part of a client's handshake that a server with cookies does not count.
    fn request_bytes(&self) -> HandshakeBytes {
        HandshakeBytes::default()
    }
    /// The connection IDs that this side receives and sends; empty without one.
    fn connection_ids(&self) -> [Vec<u8>; 2] {
        Default::default()
    }
    /// The association's own port at the server, or why it has none although it was to have one.
    fn port(&self) -> Result<Option<u16>, NoPort> {
        Ok(None)
    }
    /// Whether data and close_notify may get lost.
    fn is_datagram(&self) -> bool;
    /// Changes the keys of this direction, or of `both`.
    ///
    /// # Errors
    /// The connection is closed, or its version has no key updates.
    fn update_keys(&mut self, both: bool) -> io::Result<()>;
    /// Begins another handshake within the connection.
    ///
    /// # Errors
    /// The connection is closed, or it does not renegotiate.
    fn renegotiate(&mut self) -> io::Result<()>;
    /// The later handshakes within this connection.
    fn renegotiations(&self) -> Renegotiations;
    /// Takes the early data that a server has received.
    fn take_early_data(&mut self) -> Vec<u8>;
}

impl<IO: AsyncRead + AsyncWrite + Unpin + Send> Session for TlsStream<IO> {
    fn side(&self) -> Side {
        self.connection().side()
    }

    fn negotiated(&self) -> &Negotiated {
        Self::negotiated(self)
    }

    fn messages(&self) -> Vec<MessageSize> {
        Self::messages(self).to_vec()
    }

    fn handshake_bytes(&self) -> HandshakeBytes {
        Self::handshake_bytes(self)
    }

    fn is_datagram(&self) -> bool {
        false
    }

    fn update_keys(&mut self, both: bool) -> io::Result<()> {
        Self::update_keys(self, both)
    }

    fn renegotiate(&mut self) -> io::Result<()> {
        Self::renegotiate(self)
    }

    fn renegotiations(&self) -> Renegotiations {
        Self::renegotiations(self)
    }

    fn take_early_data(&mut self) -> Vec<u8> {
        Self::take_early_data(self)
    }
}

/// A DTLS association that reads and writes. A read returns the data of one record at most. A write makes one
/// record.
pub struct DtlsStream {
    association: DtlsAssociation,
    /// The record that the caller is reading, and how much of it was read.
    record: Vec<u8>,
    read: usize,
    traffic: Arc<Traffic>,
}

impl DtlsStream {
    /// Wraps an association, and returns its traffic.
    pub fn new(association: DtlsAssociation) -> (Self, Arc<Traffic>) {
        let traffic = Arc::new(Traffic::new());
        let stream = Self { association, record: Vec::new(), read: 0, traffic: Arc::clone(&traffic) };
        stream.note();
        (stream, traffic)
    }

    /// The association. Data that was received but not read is lost.
    pub fn into_association(self) -> DtlsAssociation {
        self.association
    }

    /// Notes that data has passed. Datagrams without authentic data do not count as activity.
    fn note(&self) {
        self.traffic.set(self.association.bytes_received(), self.association.bytes_sent());
    }
}

impl Session for DtlsStream {
    fn side(&self) -> Side {
        self.association.side()
    }

    fn negotiated(&self) -> &Negotiated {
        self.association.negotiated()
    }

    fn messages(&self) -> Vec<MessageSize> {
        self.association.messages()
    }

    fn handshake_bytes(&self) -> HandshakeBytes {
        self.association.handshake_bytes()
    }

    fn request_bytes(&self) -> HandshakeBytes {
        self.association.request_bytes()
    }

    fn connection_ids(&self) -> [Vec<u8>; 2] {
        [self.association.connection_ids().pop().unwrap_or_default(), self.association.peer_connection_id()]
    }

    fn port(&self) -> Result<Option<u16>, NoPort> {
        match self.association.lacks_port() {
            Some(why) => Err(why),
            None => Ok(self.association.association_port().map(|(_, port)| port)),
        }
    }

    fn is_datagram(&self) -> bool {
        true
    }

    fn update_keys(&mut self, both: bool) -> io::Result<()> {
        self.association.update_keys(both)
    }

    /// A DTLS connection does not renegotiate.
    fn renegotiate(&mut self) -> io::Result<()> {
        let no = dunlin::error::Misuse::NotSupported(dunlin::wire::Field::Renegotiation);
        Err(io::Error::new(io::ErrorKind::InvalidInput, dunlin::Error::Misuse(no)))
    }

    fn renegotiations(&self) -> Renegotiations {
        Renegotiations::default()
    }

    fn take_early_data(&mut self) -> Vec<u8> {
        Vec::new()
    }
}

impl AsyncBufRead for DtlsStream {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        // An empty record is no end.
        while this.record.len() == this.read {
            let received = ready!(this.association.poll_recv(cx));
            this.note();
            let Some(record) = received? else { return Poll::Ready(Ok(&[])) };
            (this.record, this.read) = (record, 0);
        }
        Poll::Ready(Ok(this.record.get(this.read..).unwrap_or_default()))
    }

    fn consume(self: Pin<&mut Self>, n: usize) {
        let this = self.get_mut();
        this.read = this.record.len().min(this.read + n);
    }
}

impl AsyncRead for DtlsStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let data = ready!(self.as_mut().poll_fill_buf(cx))?;
        let data = data.get(..buf.remaining()).unwrap_or(data);
        buf.put_slice(data);
        let n = data.len();
        self.consume(n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for DtlsStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let record = data.get(..this.association.max_data()).unwrap_or(data);
        ready!(this.association.poll_send(cx, record))?;
        this.note();
        Poll::Ready(Ok(record.len()))
    }

    /// The association sends at once.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.association.close();
        self.note();
        Poll::Ready(Ok(()))
    }
}
