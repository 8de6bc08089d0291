//! The byte account: each byte of a capture counts once, under the layer it belongs to.

use std::ops::AddAssign;

use serde::ser::{Serialize, SerializeMap, Serializer};

/// The layer to which a byte of a capture belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layer {
    /// The header of the link layer, and the padding of short frames.
    Link,
    /// The IP header with its extensions.
    Ip,
    /// The TCP or UDP header, with its options.
    Transport,
    /// The header of a record.
    RecordHeader,
    /// The overhead of record protection: explicit nonce, inner content type, padding and tag.
    Protection,
    /// Handshake messages with their headers.
    Handshake,
    /// Alerts.
    Alert,
    /// ChangeCipherSpec.
    ChangeCipherSpec,
    /// Application data.
    ApplicationData,
    /// Acknowledgements of DTLS 1.3 (RFC 9147 §7).
    Ack,
    /// Return routability checks, and probes of paths (RFC 9853 §4).
    Path,
    /// The body of a protected record that could not be decrypted. Its content is unknown.
    Sealed,
    /// TCP payload that an earlier segment carried already.
    Retransmitted,
    /// Payload that is not TLS or cannot be read, for example after a gap in a stream.
    Other,
    /// Bytes on the wire that are missing in the capture, because it cut frames at a maximum length.
    NotCaptured,
}

impl Layer {
    /// All layers, from the link upwards.
    pub const ALL: [Self; 15] = [
        Self::Link,
        Self::Ip,
        Self::Transport,
        Self::RecordHeader,
        Self::Protection,
        Self::Handshake,
        Self::Alert,
        Self::ChangeCipherSpec,
        Self::ApplicationData,
        Self::Ack,
        Self::Path,
        Self::Sealed,
        Self::Retransmitted,
        Self::Other,
        Self::NotCaptured,
    ];

    /// The name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Ip => "IP",
            Self::Transport => "TCP/UDP",
            Self::RecordHeader => "record headers",
            Self::Protection => "tags and padding",
            Self::Handshake => "handshake messages",
            Self::Alert => "alerts",
            Self::ChangeCipherSpec => "ChangeCipherSpec",
            Self::ApplicationData => "application data",
            Self::Ack => "acknowledgements",
            Self::Path => "checks of paths",
            Self::Sealed => "not decrypted",
            Self::Retransmitted => "sent again by TCP",
            Self::Other => "other",
            Self::NotCaptured => "not captured",
        }
    }

    /// The name in JSON.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Link => "link_bytes",
            Self::Ip => "ip_bytes",
            Self::Transport => "transport_bytes",
            Self::RecordHeader => "record_header_bytes",
            Self::Protection => "protection_bytes",
            Self::Handshake => "handshake_bytes",
            Self::Alert => "alert_bytes",
            Self::ChangeCipherSpec => "change_cipher_spec_bytes",
            Self::ApplicationData => "application_data_bytes",
            Self::Ack => "ack_bytes",
            Self::Path => "path_bytes",
            Self::Sealed => "sealed_bytes",
            Self::Retransmitted => "retransmitted_bytes",
            Self::Other => "other_bytes",
            Self::NotCaptured => "not_captured_bytes",
        }
    }

    /// Whether the layer is part of TLS or DTLS.
    pub const fn is_tls(self) -> bool {
        matches!(
            self,
            Self::RecordHeader
                | Self::Protection
                | Self::Handshake
                | Self::Alert
                | Self::ChangeCipherSpec
                | Self::ApplicationData
                | Self::Ack
                | Self::Path
                | Self::Sealed
        )
    }
}

/// Bytes by layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes([u64; Layer::ALL.len()]);

impl Bytes {
    /// The bytes of one layer.
    pub fn of(&self, layer: Layer) -> u64 {
        self.0[layer as usize]
    }

    /// All bytes on the wire.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The bytes of TLS or DTLS, including record headers.
    pub fn tls(&self) -> u64 {
        Layer::ALL.into_iter().filter(|layer| layer.is_tls()).map(|layer| self.of(layer)).sum()
    }

    pub(crate) fn add(&mut self, layer: Layer, bytes: usize) {
        self.0[layer as usize] += bytes as u64;
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            *own += other;
        }
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(Layer::ALL.len() + 2))?;
        map.serialize_entry("total_bytes", &self.total())?;
        map.serialize_entry("tls_bytes", &self.tls())?;
        for layer in Layer::ALL {
            map.serialize_entry(layer.key(), &self.of(layer))?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_every_layer_separately() {
        let mut bytes = Bytes::default();
        for (place, layer) in Layer::ALL.into_iter().enumerate() {
            assert_eq!(layer as usize, place);
            bytes.add(layer, 1 << place);
        }
        assert_eq!(bytes.total(), (1 << Layer::ALL.len()) - 1);
        assert_eq!(bytes.tls(), 0b1111_1111_1000);
    }
}
