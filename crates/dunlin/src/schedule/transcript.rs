//! The running hash over the handshake messages (RFC 8446 §4.4.1), over exactly the bytes sent and received.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::crypto::{Hash, HashContext, HashOutput};
use crate::wire::HandshakeType;

/// The messages so far, kept until the cipher suite determines the hash function.
#[derive(Clone, Default)]
pub(crate) struct HelloTranscript {
    bytes: Vec<u8>,
}

impl HelloTranscript {
    pub(crate) fn add(&mut self, message: &[u8]) {
        self.bytes.extend_from_slice(message);
    }

    pub(crate) fn start(&self, hash: &'static dyn Hash) -> Transcript {
        let mut context = hash.start();
        context.update(&self.bytes);
        Transcript { hash, context, messages: None }
    }

    /// As [`Self::start`], but the transcript also keeps the messages.
    pub(crate) fn start_keeping(self, hash: &'static dyn Hash) -> Transcript {
        Transcript { messages: Some(self.bytes.clone()), ..self.start(hash) }
    }
}

/// The hash over the messages so far.
pub(crate) struct Transcript {
    hash: &'static dyn Hash,
    context: Box<dyn HashContext>,
    /// The messages, if a TLS 1.2 CertificateVerify may sign them (RFC 5246 §7.4.8).
    messages: Option<Vec<u8>>,
}

impl Transcript {
    pub(crate) fn new(hash: &'static dyn Hash) -> Self {
        Self { hash, context: hash.start(), messages: None }
    }

    pub(crate) fn add(&mut self, message: &[u8]) {
        self.context.update(message);
        if let Some(messages) = &mut self.messages {
            messages.extend_from_slice(message);
        }
    }

    /// Takes the messages out; the transcript keeps no further ones.
    pub(crate) fn take_messages(&mut self) -> Vec<u8> {
        self.messages.take().unwrap_or_default()
    }

    pub(crate) fn current(&self) -> HashOutput {
        self.context.current()
    }

    /// The hash of the messages so far and `more`, without adding `more`.
    pub(crate) fn with(&self, more: &[u8]) -> HashOutput {
        let mut fork = self.context.fork();
        fork.update(more);
        fork.current()
    }

    /// Replaces the first ClientHello by its hash, because a HelloRetryRequest follows (RFC 8446 §4.4.1).
    pub(crate) fn into_retry(self) -> Self {
        Self::from_hello_hash(self.hash, self.current().as_ref())
    }

    /// The transcript of a stateless server, which kept only the hash of the first ClientHello.
    pub(crate) fn from_hello_hash(hash: &'static dyn Hash, hello_hash: &[u8]) -> Self {
        let mut retry = Self::new(hash);
        retry.add(&[HandshakeType::MESSAGE_HASH.0, 0, 0, hello_hash.len() as u8]);
        retry.add(hello_hash);
        retry
    }
}
