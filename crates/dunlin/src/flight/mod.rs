//! What a handshake needs on datagrams: messages are cut into fragments and packed into records, received
//! fragments are joined again in order, and what nothing else answers is acknowledged (RFC 9147 §5, §7).

pub(crate) mod ack;
pub(crate) mod fragment;
pub(crate) mod reassemble;

pub(crate) use ack::RecordNumber;
