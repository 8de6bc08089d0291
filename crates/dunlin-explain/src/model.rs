//! What an explanation says. Every part of it is data: its JSON has the names of the fields, which stay.

use std::net::SocketAddr;

use dunlin::Side;
use serde::{Serialize, Serializer};

use crate::bytes::{Bytes, Layer};
use crate::message::Field;

/// A capture, or bytes given in hexadecimal, taken apart.
#[derive(Debug, Default, Serialize)]
pub struct Explanation {
    /// Frames that were read.
    pub frames: usize,
    /// All bytes of these frames, each under one layer.
    pub bytes: Bytes,
    /// Connections and exchanges, in the order of their first packets.
    pub flows: Vec<Flow>,
    /// The bytes of frames that belong to no flow: no IP, neither TCP nor UDP, or pieces of a packet.
    pub elsewhere: Bytes,
    /// What was not understood, a line each: where it stopped and why. Empty if all was.
    pub problems: Vec<String>,
}

/// How a flow's bytes came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Carrier {
    /// A connection of TCP.
    Tcp,
    /// Datagrams between two ends.
    Udp,
    /// Given as they are: one direction, without times and packets.
    Bytes,
}

/// What goes over one connection, or between two ends.
#[derive(Debug, Serialize)]
pub struct Flow {
    /// How its bytes came.
    pub carrier: Carrier,
    /// The client's address: of the end that sent the ClientHello, opened the connection, or has the higher port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<SocketAddr>,
    /// The server's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<SocketAddr>,
    /// "TLS" or "DTLS"; `None` for anything else, whose payload is under "other".
    pub protocol: Option<&'static str>,
    /// The negotiated version, such as "TLSv1.3".
    pub version: Option<String>,
    /// The negotiated suite.
    pub cipher_suite: Option<String>,
    /// All bytes of its packets.
    pub bytes: Bytes,
    /// Its messages by name and direction; their bytes are those of the layers of TLS without record headers and
    /// protection.
    pub messages: Vec<MessageTotal>,
    /// Its packets in the order of the capture.
    pub packets: Vec<Packet>,
    /// Its records, in the order in which they were complete.
    pub records: Vec<Record>,
}

/// All messages of one name and direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MessageTotal {
    /// Who sent them.
    #[serde(serialize_with = "side")]
    pub from: Side,
    /// As in [`Part::name`].
    pub name: String,
    /// How many were complete. What is no handshake message is counted by records.
    pub count: usize,
    /// Their bytes, repeated fragments of DTLS included.
    pub bytes: usize,
}

/// A packet of a flow; its lengths add up to what was captured of it.
#[derive(Clone, Debug, Serialize)]
pub struct Packet {
    /// The number of its frame in the capture, from 1.
    pub frame: usize,
    /// Microseconds since the first frame of the capture.
    pub time_us: u64,
    /// Who sent it.
    #[serde(serialize_with = "side")]
    pub from: Side,
    /// The header of the link, with padding.
    pub link_bytes: usize,
    /// The header of IP.
    pub ip_bytes: usize,
    /// The header of TCP or UDP.
    pub transport_bytes: usize,
    /// What it carries.
    pub payload_bytes: usize,
    /// The flags of TCP that begin or end a connection, as in "SYN ACK"; ACK alone is not mentioned.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub flags: String,
}

/// How a record was protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Protection {
    /// Not at all.
    None,
    /// It was opened with the key log.
    Opened,
    /// It was not opened.
    Sealed,
}

/// A record; its lengths and those of its parts add up to its own.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// The number of the frame in which it ended; 0 where there are none.
    pub frame: usize,
    /// Microseconds since the first frame of the capture, when it ended.
    pub time_us: u64,
    /// Who sent it.
    #[serde(serialize_with = "side")]
    pub from: Side,
    /// Its type as it stands outside: "handshake", "application_data", …
    pub content_type: String,
    /// The epoch of DTLS, or what of it the header says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Its number in the epoch, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// How it was protected.
    pub protection: Protection,
    /// The header.
    pub header_bytes: usize,
    /// Explicit nonce, inner type, padding and tag.
    pub protection_bytes: usize,
    /// What it carries.
    pub parts: Vec<Part>,
}

impl Record {
    pub(crate) const fn new(from: Side, content_type: String, header_bytes: usize) -> Self {
        Self {
            frame: 0,
            time_us: 0,
            from,
            content_type,
            epoch: None,
            number: None,
            protection: Protection::None,
            header_bytes,
            protection_bytes: 0,
            parts: Vec::new(),
        }
    }

    /// Its whole length.
    pub fn bytes(&self) -> usize {
        self.header_bytes + self.protection_bytes + self.parts.iter().map(|part| part.bytes).sum::<usize>()
    }
}

/// A message, or the piece of one that is in a record.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// What it is.
    #[serde(serialize_with = "layer")]
    pub layer: Layer,
    /// A handshake message's name in its RFC, an alert's description, or what it is in words.
    pub name: String,
    /// Its bytes in this record.
    pub bytes: usize,
    /// The type of the handshake message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake_type: Option<u8>,
    /// Where a message is complete with this part: the bytes of the whole, header included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_bytes: Option<usize>,
    /// The fields of the message that is complete.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<Field>,
}

impl Part {
    pub(crate) fn new(layer: Layer, name: impl Into<String>, bytes: usize) -> Self {
        Self {
            layer,
            name: name.into(),
            bytes,
            handshake_type: None,
            message_bytes: None,
            fields: Vec::new(),
        }
    }
}

fn side<S: Serializer>(side: &Side, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(side_name(*side))
}

pub(crate) const fn side_name(side: Side) -> &'static str {
    match side {
        Side::Client => "client",
        Side::Server => "server",
    }
}

fn layer<S: Serializer>(layer: &Layer, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(layer.key().trim_end_matches("_bytes"))
}
