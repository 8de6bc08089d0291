//! A client's stream that tells its [`ClientHandshake`] of renegotiations, and its place of data.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use dunlin_tokio::places::Seated;
use dunlin_tokio::{Renegotiations, TlsStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::handshake::ClientHandshake;
use crate::heard::Heard;
use crate::proxy::tcp::Side;

/// The stream of a client of a TLS 1.2 connection that may renegotiate.
pub(crate) struct Watched {
    tls: Heard<TlsStream<TcpStream>>,
    handshake: Arc<ClientHandshake>,
    seen: Renegotiations,
}

impl Watched {
    pub(crate) fn new(
        tls: TlsStream<TcpStream>,
        handshake: Arc<ClientHandshake>,
        seated: Arc<Seated>,
    ) -> Self {
        Self { tls: Heard::new(tls, seated), handshake, seen: Renegotiations::default() }
    }

    fn look(&mut self) {
        let tls = self.tls.get();
        let now = tls.renegotiations();
        if now != self.seen {
            self.handshake.renegotiated(now.completed > self.seen.completed, tls.negotiated());
            self.seen = now;
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.tls).poll_read(cx, buffer);
        self.look();
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.tls).poll_write(cx, bytes);
        self.look();
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.tls).poll_flush(cx);
        self.look();
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tls).poll_shutdown(cx)
    }
}

impl Side for Watched {
    fn cut(&self) {
        self.tls.cut();
    }

    async fn end(&mut self) -> io::Result<()> {
        self.tls.end().await
    }
}
