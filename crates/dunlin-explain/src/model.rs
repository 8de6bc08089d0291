//! The data model of an explanation. Scripts rely on its JSON, so the field names must not change.

use std::net::SocketAddr;

use dunlin::Side;
use serde::{Serialize, Serializer};

use crate::bytes::{Bytes, Layer};
use crate::message::Field;

/// The dissection of a capture, or of bytes given in hexadecimal.
#[derive(Debug, Default, Serialize)]
pub struct Explanation {
    /// The number of frames read.
    pub frames: usize,
    /// All bytes of these frames, each under one layer.
    pub bytes: Bytes,
    /// Connections and exchanges, in the order of their first packets.
    pub flows: Vec<Flow>,
    /// The bytes of frames outside all flows: not IP, neither TCP nor UDP, or fragments of an IP packet.
    pub elsewhere: Bytes,
    /// One line for each problem: where dissecting stopped and why. Empty if there was none.
    pub problems: Vec<String>,
}

/// The carrier of a flow's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Carrier {
    /// A TCP connection.
    Tcp,
    /// UDP datagrams between two endpoints.
    Udp,
    /// Bare bytes of one direction, without times and packets.
    Bytes,
}

/// The traffic of one connection, or between two UDP endpoints.
#[derive(Debug, Serialize)]
pub struct Flow {
    /// The carrier of its bytes.
    pub carrier: Carrier,
    /// The client's address. The client is the end that sent the ClientHello, else the one that opened the
    /// connection, else the one with the higher port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<SocketAddr>,
    /// The server's address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<SocketAddr>,
    /// "TLS" or "DTLS"; `None` for anything else, whose payload counts as "other".
    pub protocol: Option<&'static str>,
    /// The negotiated version, such as "TLSv1.3".
    pub version: Option<String>,
    /// The negotiated cipher suite.
    pub cipher_suite: Option<String>,
    /// The paths of a DTLS association that has gone on over another one, in the order of their first
    /// datagrams; otherwise empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<FlowPath>,
    /// All bytes of its packets.
    pub bytes: Bytes,
    /// Its messages by name and direction. Their bytes belong to the TLS layers, without record headers and
    /// protection.
    pub messages: Vec<MessageTotal>,
    /// Its packets, in the order of the capture.
    pub packets: Vec<Packet>,
    /// Its records, in the order in which they became complete.
    pub records: Vec<Record>,
}

/// The two ends between which datagrams of an association travelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FlowPath {
    /// The client's address.
    pub client: SocketAddr,
    /// The server's address.
    pub server: SocketAddr,
}

/// All messages with one name in one direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MessageTotal {
    /// The side that sent them.
    #[serde(serialize_with = "side")]
    pub from: Side,
    /// The name, as in [`Part::name`].
    pub name: String,
    /// The number of complete handshake messages; for other content, the number of records.
    pub count: usize,
    /// Their bytes, including repeated DTLS fragments.
    pub bytes: usize,
}

/// A packet of a flow. Its lengths add up to the captured bytes.
#[derive(Clone, Debug, Serialize)]
pub struct Packet {
    /// The number of its frame in the capture, from 1.
    pub frame: usize,
    /// Microseconds since the first frame of the capture.
    pub time_us: u64,
    /// The side that sent it.
    #[serde(serialize_with = "side")]
    pub from: Side,
    /// The number of its path in [`Flow::paths`], from 1, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<usize>,
    /// The link-layer header, with padding.
    pub link_bytes: usize,
    /// The IP header.
    pub ip_bytes: usize,
    /// The TCP or UDP header.
    pub transport_bytes: usize,
    /// The payload of TCP or UDP.
    pub payload_bytes: usize,
    /// The TCP flags that begin or end a connection, such as "SYN ACK". A lone ACK is left out.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub flags: String,
}

/// How a record was protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Protection {
    /// The record is not protected.
    None,
    /// The record was decrypted with the key log.
    Opened,
    /// The record is protected and was not decrypted.
    Sealed,
}

/// A record. Its size is the sum of its header, its protection and its parts.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// The number of the frame in which the record ended; 0 for bytes without packets.
    pub frame: usize,
    /// When the record ended, in microseconds since the first frame of the capture.
    pub time_us: u64,
    /// The side that sent it.
    #[serde(serialize_with = "side")]
    pub from: Side,
    /// The outer content type: "handshake", "application_data", …
    pub content_type: String,
    /// The DTLS epoch; for a record with a unified header that was not decrypted, its two low bits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The sequence number, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// The connection ID in its header, in hexadecimal (RFC 9146, RFC 9147 §9).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_id: Option<String>,
    /// How the record was protected.
    pub protection: Protection,
    /// The size of the header.
    pub header_bytes: usize,
    /// The size of explicit nonce, inner content type, padding and tag.
    pub protection_bytes: usize,
    /// The content.
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
            connection_id: None,
            protection: Protection::None,
            header_bytes,
            protection_bytes: 0,
            parts: Vec::new(),
        }
    }

    /// The size of the whole record.
    pub fn bytes(&self) -> usize {
        self.header_bytes + self.protection_bytes + self.parts.iter().map(|part| part.bytes).sum::<usize>()
    }
}

/// A message, or the piece of a message, in one record.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    /// The layer to which its bytes belong.
    #[serde(serialize_with = "layer")]
    pub layer: Layer,
    /// The handshake message's name in its RFC, the alert's level and description, or the kind of content.
    pub name: String,
    /// Its bytes in this record.
    pub bytes: usize,
    /// The type of the handshake message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake_type: Option<u8>,
    /// The size of the whole message with its header, if this part completes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_bytes: Option<usize>,
    /// The fields of the message, if this part completes it.
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
