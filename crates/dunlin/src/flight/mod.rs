//! Handshake messages in datagrams: packs messages into fragments and records, reassembles received fragments, and encodes
//! ACKs (RFC 9147 §5, §7).

pub(crate) mod ack;
pub(crate) mod fragment;
pub(crate) mod reassemble;

pub(crate) use ack::RecordNumber;
