//! The record layers, which carry and protect handshake messages, alerts and data (RFC 8446 §5, RFC 9147 §4).

pub(crate) mod datagram;
pub(crate) mod limits;
pub(crate) mod protect;
pub(crate) mod stream;
