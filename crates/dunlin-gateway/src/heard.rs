//! A client's stream that notes data of the client at its place.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use dunlin_tokio::places::Seated;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::proxy::tcp::Side;

/// The stream of a client that has a place.
pub(crate) struct Heard<S> {
    stream: S,
    seated: Arc<Seated>,
}

impl<S> Heard<S> {
    pub(crate) const fn new(stream: S, seated: Arc<Seated>) -> Self {
        Self { stream, seated }
    }

    pub(crate) const fn get(&self) -> &S {
        &self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Heard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.seated.hear();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Heard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S: Side + Send> Side for Heard<S> {
    fn cut(&self) {
        self.stream.cut();
    }

    fn end(&mut self) -> impl Future<Output = io::Result<()>> + Send {
        self.stream.end()
    }
}
