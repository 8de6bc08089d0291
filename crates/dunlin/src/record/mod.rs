//! Records: what carries handshake messages, alerts and data, and protects them (RFC 8446 §5, RFC 9147 §4).

pub(crate) mod datagram;
pub(crate) mod limits;
pub(crate) mod protect;
pub(crate) mod stream;

/// The largest content of a record, in bytes (RFC 8446 §5.1).
pub(crate) const MAX_PLAINTEXT: usize = 1 << 14;
/// The largest protected record: content, its type and the tag, with room for padding (RFC 8446 §5.2).
pub(crate) const MAX_CIPHERTEXT: usize = MAX_PLAINTEXT + 256;
