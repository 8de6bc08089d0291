//! Handshake messages in datagrams: packs messages into fragments and records, keeps them until the peer
//! acknowledges them, reassembles received fragments, encodes ACKs, and contains the timers (RFC 9147 §5,
//! §7).

pub(crate) mod ack;
pub(crate) mod fragment;
pub(crate) mod outgoing;
pub(crate) mod reassemble;
pub(crate) mod timers;

pub(crate) use ack::RecordNumber;
