//! The body of an answer.

use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};

use crate::operator::bundle::Bundle;
use crate::operator::error::RegistryError;

/// The body of an answer. An entry bundle can have megabytes, and a client may read it slowly, so its pieces
/// are read when the client takes them.
pub(super) enum Content {
    Whole(Option<Bytes>),
    Bundle(Bundle),
}

impl From<Bytes> for Content {
    fn from(bytes: Bytes) -> Self {
        Self::Whole(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = RegistryError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RegistryError>>> {
        let piece = match &mut *self {
            Self::Whole(bytes) => bytes.take().map(Ok),
            Self::Bundle(bundle) => bundle.next().map(|piece| piece.map(Bytes::from)),
        };
        if let Some(Err(error)) = &piece {
            tracing::error!(%error, "the registry cannot complete an answer");
        }
        Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.size_hint().exact() == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match self {
            Self::Whole(bytes) => bytes.as_ref().map_or(0, Bytes::len) as u64,
            Self::Bundle(bundle) => bundle.remaining(),
        })
    }
}
