//! The running hash over the handshake messages (RFC 8446 §4.4.1), over exactly the bytes sent and received.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::crypto::{Hash, HashContext, HashOutput};
use crate::message::{self, Message};
use crate::protocol::Protocol;
use crate::wire::HandshakeType;

/// The first ClientHello, kept until the version and the cipher suite determine the transcript.
#[derive(Clone, Default)]
pub(crate) struct HelloTranscript {
    hello: Vec<u8>,
    number: u16,
}

impl HelloTranscript {
    pub(crate) fn new(hello: &[u8], number: u16) -> Self {
        Self { hello: hello.to_vec(), number }
    }

    pub(crate) fn start(&self, hash: &'static dyn Hash) -> Transcript {
        let mut transcript = Transcript::new(hash);
        transcript.add(&self.hello);
        transcript
    }

    /// Starts a transcript of version 1.2, which keeps the messages.
    pub(crate) fn start_tls12(self, hash: &'static dyn Hash, protocol: Protocol) -> Tls12Transcript {
        let mut transcript = Tls12Transcript::new(hash, protocol, true);
        transcript.put(&self.hello, self.number);
        transcript
    }
}

/// The common operations of the transcripts of all versions.
pub(crate) trait Running {
    /// Adds a whole message that this side sends, header included. `number` returns its number.
    fn sent(&mut self, message: &[u8], number: impl FnOnce() -> u16);

    /// Adds bytes that are not a message of the connection.
    fn add_bytes(&mut self, bytes: &[u8]);
}

/// The hash over the messages so far.
pub(crate) struct Transcript {
    hash: &'static dyn Hash,
    context: Box<dyn HashContext>,
}

impl Running for Transcript {
    fn sent(&mut self, message: &[u8], _: impl FnOnce() -> u16) {
        self.add(message);
    }

    fn add_bytes(&mut self, bytes: &[u8]) {
        self.add(bytes);
    }
}

impl Clone for Transcript {
    fn clone(&self) -> Self {
        Self { hash: self.hash, context: self.context.fork() }
    }
}

/// The transcript of version 1.2.
pub(crate) struct Tls12Transcript {
    hash: Transcript,
    /// The messages, if a CertificateVerify may sign them (RFC 5246 §7.4.8).
    messages: Option<Vec<u8>>,
    protocol: Protocol,
}

impl Running for Tls12Transcript {
    fn sent(&mut self, message: &[u8], number: impl FnOnce() -> u16) {
        self.put(message, number());
    }

    fn add_bytes(&mut self, bytes: &[u8]) {
        self.hash.add(bytes);
        if let Some(messages) = &mut self.messages {
            messages.extend_from_slice(bytes);
        }
    }
}

impl Tls12Transcript {
    /// With `keep`, the transcript also keeps the messages.
    pub(crate) fn new(hash: &'static dyn Hash, protocol: Protocol, keep: bool) -> Self {
        Self { hash: Transcript::new(hash), messages: keep.then(Vec::new), protocol }
    }

    /// Adds a received message.
    pub(crate) fn add(&mut self, message: &Message) {
        self.put(message.bytes(), message.number);
    }

    fn put(&mut self, message: &[u8], number: u16) {
        match message.split_at_checked(message::HEADER_LEN) {
            // RFC 6347 §4.2.6: as if the message had been sent in one fragment.
            Some((header, body)) if self.protocol.numbers_transcript() => {
                let len = header.get(1..).unwrap_or_default();
                for part in [header, &number.to_be_bytes(), &[0; 3], len, body] {
                    self.add_bytes(part);
                }
            }
            _ => self.add_bytes(message),
        }
    }

    /// Takes the messages out; the transcript keeps no further ones.
    pub(crate) fn take_messages(&mut self) -> Vec<u8> {
        self.messages.take().unwrap_or_default()
    }

    pub(crate) fn current(&self) -> HashOutput {
        self.hash.current()
    }
}

impl Transcript {
    pub(crate) fn new(hash: &'static dyn Hash) -> Self {
        Self { hash, context: hash.start() }
    }

    pub(crate) fn add(&mut self, message: &[u8]) {
        self.context.update(message);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crypto::{HashAlgorithm, HmacKey};

    /// A function that returns its input, so that tests see what enters a transcript.
    #[derive(Debug)]
    struct Input;

    impl Hash for Input {
        fn algorithm(&self) -> HashAlgorithm {
            HashAlgorithm::Sha256
        }

        fn start(&self) -> Box<dyn HashContext> {
            Box::new(Bytes(Vec::new()))
        }

        fn hash(&self, parts: &[&[u8]]) -> HashOutput {
            HashOutput::new(&parts.concat())
        }

        fn hmac(&self, _: &[u8]) -> Box<dyn HmacKey> {
            panic!("transcripts need no HMAC")
        }
    }

    struct Bytes(Vec<u8>);

    impl HashContext for Bytes {
        fn update(&mut self, data: &[u8]) {
            self.0.extend_from_slice(data);
        }

        fn current(&self) -> HashOutput {
            HashOutput::new(&self.0)
        }

        fn fork(&self) -> Box<dyn HashContext> {
            Box::new(Self(self.0.clone()))
        }
    }

    /// A ClientHello of two bytes, a ServerHello of one, an empty ServerHelloDone, and bytes that are no
    /// message.
    fn transcript(protocol: Protocol, keep: bool) -> Tls12Transcript {
        let hello = [1, 0, 0, 2, 0xaa, 0xbb];
        let mut transcript = if keep {
            HelloTranscript::new(&hello, 1).start_tls12(&Input, protocol)
        } else {
            Tls12Transcript::new(&Input, protocol, false)
        };
        if !keep {
            transcript.add(&Message::new(HandshakeType::CLIENT_HELLO, hello.to_vec()).with_number(1));
        }
        transcript.sent(&[2, 0, 0, 1, 0xcc], || 2);
        transcript.add(&Message::new(HandshakeType(14), [14, 0, 0, 0].to_vec()).with_number(0x0103));
        transcript.add_bytes(&[0xdd; 5]);
        transcript
    }

    /// RFC 6347 §4.2.6: type, length, message_seq, fragment_offset 0, fragment_length.
    #[test]
    fn dtls12_hashes_the_numbers_of_messages() {
        let expected = [
            &[1, 0, 0, 2, 0, 1, 0, 0, 0, 0, 0, 2, 0xaa, 0xbb][..],
            &[2, 0, 0, 1, 0, 2, 0, 0, 0, 0, 0, 1, 0xcc],
            &[14, 0, 0, 0, 1, 3, 0, 0, 0, 0, 0, 0],
            &[0xdd; 5],
        ]
        .concat();
        let mut transcript = transcript(Protocol::Dtls12, true);
        assert_eq!(transcript.current().as_ref(), expected);
        assert_eq!(transcript.take_messages(), expected);
    }

    /// RFC 5246 §7.4.9, RFC 9147 §5.2.
    #[test]
    fn other_versions_hash_four_bytes_of_header() {
        let messages =
            [&[1, 0, 0, 2, 0xaa, 0xbb][..], &[2, 0, 0, 1, 0xcc], &[14, 0, 0, 0], &[0xdd; 5]].concat();
        let mut transcript = transcript(Protocol::Tls12, false);
        assert_eq!(transcript.current().as_ref(), messages);
        assert_eq!(transcript.take_messages(), []);
        let mut transcript = HelloTranscript::new(&messages[..6], 7).start(&Input);
        transcript.sent(&messages[6..11], || 8);
        assert_eq!(transcript.current().as_ref(), &messages[..11]);
    }
}
