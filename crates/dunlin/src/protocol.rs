//! The sides of a connection, the two kinds of transport, and the differences between the four protocols.

use crate::wire::{AlertDescription, ProtocolVersion};

/// A side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The side that opened the connection.
    Client,
    /// The side that accepted the connection.
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

/// The kind of transport: a reliable byte stream, or datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TransportKind {
    /// TLS
    Stream = 0,
    /// DTLS
    Datagram = 1,
}

/// TLS or DTLS in one version. Every difference between the four protocols is a method here; other code must
/// not compare versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// RFC 5246
    Tls12,
    /// RFC 8446
    #[default]
    Tls13,
    /// RFC 6347
    Dtls12,
    /// RFC 9147
    Dtls13,
}

impl Protocol {
    /// Version 1.3 over this transport, the newest one.
    pub const fn newest(transport: TransportKind) -> Self {
        match transport {
            TransportKind::Stream => Self::Tls13,
            TransportKind::Datagram => Self::Dtls13,
        }
    }

    /// Version 1.2 over the same transport, the oldest supported one.
    pub const fn oldest(self) -> Self {
        match self {
            Self::Tls12 | Self::Tls13 => Self::Tls12,
            Self::Dtls12 | Self::Dtls13 => Self::Dtls12,
        }
    }

    /// The kind of transport below it.
    pub const fn transport(self) -> TransportKind {
        match self {
            Self::Tls12 | Self::Tls13 => TransportKind::Stream,
            Self::Dtls12 | Self::Dtls13 => TransportKind::Datagram,
        }
    }

    /// Its number in `supported_versions`.
    pub const fn version(self) -> ProtocolVersion {
        match self {
            Self::Tls12 => ProtocolVersion::TLS1_2,
            Self::Tls13 => ProtocolVersion::TLS1_3,
            Self::Dtls12 => ProtocolVersion::DTLS1_2,
            Self::Dtls13 => ProtocolVersion::DTLS1_3,
        }
    }

    /// The number in the `legacy_version` fields (RFC 8446 §4.1.2, RFC 9147 §5.3).
    pub(crate) const fn legacy_version(self) -> ProtocolVersion {
        self.oldest().version()
    }

    /// The prefix of HKDF labels (RFC 8446 §7.1, RFC 9147 §5.9); version 1.2 has no such labels.
    pub(crate) const fn label_prefix(self) -> &'static [u8] {
        match self.transport() {
            TransportKind::Stream => b"tls13 ",
            TransportKind::Datagram => b"dtls13",
        }
    }

    /// Whether the protocol encrypts record numbers with a separate key (RFC 9147 §4.2.3).
    pub(crate) const fn encrypts_record_numbers(self) -> bool {
        matches!(self, Self::Dtls13)
    }

    /// Whether a ClientHello has the field `legacy_cookie` (RFC 6347 §4.2.1, RFC 9147 §5.3).
    pub(crate) const fn has_legacy_cookie(self) -> bool {
        matches!(self.transport(), TransportKind::Datagram)
    }

    /// Whether `legacy_version` can name a version of SSL. A server rejects such a ClientHello whatever else
    /// it offers (RFC 8446 §D.5).
    pub(crate) const fn descends_from_ssl(self) -> bool {
        matches!(self.transport(), TransportKind::Stream)
    }

    /// Whether `legacy_version` alone offers version 1.2 or a newer one. The numbers of DTLS decrease.
    pub(crate) const fn offers_oldest(self, legacy_version: ProtocolVersion) -> bool {
        let ProtocolVersion(version) = legacy_version;
        match self.transport() {
            TransportKind::Stream => version >= ProtocolVersion::TLS1_2.0,
            TransportKind::Datagram => version >> 8 == 0xfe && version <= ProtocolVersion::DTLS1_2.0,
        }
    }

    /// Whether there is a middlebox compatibility mode: the server echoes session IDs, and the peer may send
    /// dummy ChangeCipherSpec records (RFC 8446 §D.4). DTLS 1.3 has none (RFC 9147 §5).
    pub(crate) const fn has_compatibility_mode(self) -> bool {
        matches!(self, Self::Tls13)
    }

    /// Whether early data is possible: in version 1.3, and in this engine not over datagrams.
    pub(crate) const fn has_early_data(self) -> bool {
        matches!(self, Self::Tls13)
    }

    /// Whether ACKs acknowledge messages (RFC 9147 §7).
    pub(crate) const fn has_acks(self) -> bool {
        matches!(self, Self::Dtls13)
    }

    /// Whether records of this epoch carry application data: from epoch 1 on in DTLS 1.2, from 3 on in DTLS
    /// 1.3 (RFC 9147 §6.1).
    pub(crate) const fn has_data(self, epoch: u64) -> bool {
        epoch >= if self.changes_cipher_spec() { 1 } else { 3 }
    }

    /// Whether ChangeCipherSpec activates keys, and protected records show their type (RFC 5246 §6.2.1,
    /// §7.1).
    pub(crate) const fn changes_cipher_spec(self) -> bool {
        matches!(self, Self::Tls12 | Self::Dtls12)
    }

    /// Whether the header of a message in the transcript has the fields of DTLS: its number, offset 0 and its
    /// whole length again (RFC 6347 §4.2.6). DTLS 1.3 leaves them out (RFC 9147 §5.2).
    pub(crate) const fn numbers_transcript(self) -> bool {
        matches!(self, Self::Dtls12)
    }

    /// Whether an alert can be a warning (RFC 5246 §7.2), and the server may send a HelloRequest (§7.4.1.1).
    pub(crate) const fn has_warnings(self) -> bool {
        matches!(self, Self::Tls12 | Self::Dtls12)
    }

    /// Whether a connection can renegotiate (RFC 5746). Over datagrams this engine does not: nothing tells
    /// the messages of a second handshake from late ones of the first.
    pub(crate) const fn can_renegotiate(self) -> bool {
        matches!(self, Self::Tls12)
    }

    /// Whether KeyUpdate replaces the keys of a connection (RFC 8446 §4.6.3).
    pub(crate) const fn has_key_update(self) -> bool {
        matches!(self, Self::Tls13 | Self::Dtls13)
    }

    /// The equivalent alert of this version: TLS 1.2 lacks some that TLS 1.3 added (RFC 5246 §7.2.2, §7.4.6).
    pub(crate) const fn alert(self, alert: AlertDescription) -> AlertDescription {
        match (self, alert) {
            (
                Self::Tls12 | Self::Dtls12,
                AlertDescription::CERTIFICATE_REQUIRED | AlertDescription::MISSING_EXTENSION,
            ) => AlertDescription::HANDSHAKE_FAILURE,
            (_, alert) => alert,
        }
    }
}
