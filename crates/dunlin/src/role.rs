//! Which side of a connection, over which kind of transport.

use crate::wire::ProtocolVersion;

/// A side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The side that opened the connection.
    Client,
    /// The side that accepted it.
    Server,
}

impl Side {
    /// The other side.
    pub const fn peer(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// A reliable byte stream or datagrams; with it, all that differs between TLS and DTLS above the seam.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TransportKind {
    /// TLS
    Stream = 0,
    /// DTLS
    Datagram = 1,
}

impl TransportKind {
    /// What stands in the `legacy_version` fields (RFC 8446 §4.1.2, RFC 9147 §5.3).
    pub(crate) const fn legacy_version(self) -> ProtocolVersion {
        match self {
            Self::Stream => ProtocolVersion::TLS1_2,
            Self::Datagram => ProtocolVersion::DTLS1_2,
        }
    }

    /// The version 1.3 as it stands in `supported_versions`.
    pub(crate) const fn version13(self) -> ProtocolVersion {
        match self {
            Self::Stream => ProtocolVersion::TLS1_3,
            Self::Datagram => ProtocolVersion::DTLS1_3,
        }
    }

    /// The prefix of HKDF labels (RFC 8446 §7.1, RFC 9147 §5.9).
    pub(crate) const fn label_prefix(self) -> &'static [u8] {
        match self {
            Self::Stream => b"tls13 ",
            Self::Datagram => b"dtls13",
        }
    }

    /// Whether a ClientHello has the field `legacy_cookie` (RFC 9147 §5.3).
    pub(crate) const fn has_legacy_cookie(self) -> bool {
        matches!(self, Self::Datagram)
    }

    /// Whether there is a middlebox compatibility mode: session IDs are echoed and ChangeCipherSpec records may
    /// come (RFC 8446 §D.4); DTLS 1.3 has none (RFC 9147 §5).
    pub(crate) const fn has_compatibility_mode(self) -> bool {
        matches!(self, Self::Stream)
    }
}
