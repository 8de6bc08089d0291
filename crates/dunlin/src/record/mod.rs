//! Records: what carries handshake messages, alerts and data, and protects them (RFC 8446 §5, RFC 9147 §4).

pub(crate) mod datagram;
pub(crate) mod limits;
pub(crate) mod protect;
pub(crate) mod stream;
