//! The kinds of handshakes that are measured.

use dunlin_tests::KeyType;

use crate::stack::{Competitor, Stack};

/// A kind of handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handshake {
    /// TLS 1.3 with certificates of this key type on both sides.
    Full(KeyType),
    /// TLS 1.3, resumed with a ticket of a connection with P-256 certificates.
    Resumed,
    /// TLS 1.2 with certificates of this key type on both sides.
    Tls12(KeyType),
    /// TLS 1.2 with only a pre-shared key.
    Tls12Psk,
    /// DTLS 1.3 as `Full`, without a cookie.
    Dtls(KeyType, Mtu),
    /// DTLS 1.3 as `Resumed`, without a cookie.
    DtlsResumed(Mtu),
}

/// The largest datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mtu {
    /// A flight is one datagram.
    Large,
    /// The default of Dunlin.
    Usual,
}

/// The identity of the pre-shared key.
pub(crate) const PSK_IDENTITY: &str = "device-1";
/// The pre-shared key.
pub(crate) const PSK: [u8; 32] = [7; 32];

/// The handshakes of the table, with their names.
pub(crate) const HANDSHAKES: [(&str, Handshake); 15] = [
    ("full, ECDSA P-256", Handshake::Full(KeyType::P256)),
    ("full, RSA-2048", Handshake::Full(KeyType::Rsa2048)),
    ("full, Ed25519", Handshake::Full(KeyType::Ed25519)),
    ("resumed", Handshake::Resumed),
    ("TLS 1.2 full, ECDSA P-256", Handshake::Tls12(KeyType::P256)),
    ("TLS 1.2 full, RSA-2048", Handshake::Tls12(KeyType::Rsa2048)),
    ("TLS 1.2, PSK alone", Handshake::Tls12Psk),
    ("DTLS 1.3 full, ECDSA P-256, one datagram", Handshake::Dtls(KeyType::P256, Mtu::Large)),
    ("DTLS 1.3 full, ECDSA P-256, 1200 B", Handshake::Dtls(KeyType::P256, Mtu::Usual)),
    ("DTLS 1.3 full, RSA-2048, one datagram", Handshake::Dtls(KeyType::Rsa2048, Mtu::Large)),
    ("DTLS 1.3 full, RSA-2048, 1200 B", Handshake::Dtls(KeyType::Rsa2048, Mtu::Usual)),
    ("DTLS 1.3 full, Ed25519, one datagram", Handshake::Dtls(KeyType::Ed25519, Mtu::Large)),
    ("DTLS 1.3 full, Ed25519, 1200 B", Handshake::Dtls(KeyType::Ed25519, Mtu::Usual)),
    ("DTLS 1.3 resumed, one datagram", Handshake::DtlsResumed(Mtu::Large)),
    ("DTLS 1.3 resumed, 1200 B", Handshake::DtlsResumed(Mtu::Usual)),
];

impl Handshake {
    /// The key type of the certificates.
    pub(crate) const fn keys(self) -> KeyType {
        match self {
            Self::Full(typ) | Self::Tls12(typ) | Self::Dtls(typ, _) => typ,
            Self::Resumed | Self::DtlsResumed(_) | Self::Tls12Psk => KeyType::P256,
        }
    }

    /// The largest datagram; `None` over a stream.
    pub(crate) const fn mtu(self) -> Option<Mtu> {
        match self {
            Self::Dtls(_, mtu) | Self::DtlsResumed(mtu) => Some(mtu),
            _ => None,
        }
    }

    /// Whether a ticket takes the place of certificates.
    pub(crate) const fn is_resumed(self) -> bool {
        matches!(self, Self::Resumed | Self::DtlsResumed(_))
    }

    /// Prepares a competitor for this handshake, with a ticket if it needs one; `None` if it does not support
    /// it.
    pub(crate) fn stack(self, competitor: Competitor) -> Option<Stack> {
        let resumed = self.is_resumed();
        let makers = match competitor {
            Competitor::Dunlin => crate::dunlin::makers,
            Competitor::Rustls => crate::rustls::makers,
            #[cfg(feature = "openssl")]
            Competitor::OpenSsl => crate::openssl::makers,
        };
        let (client, server) = makers(self)?;
        let mut stack = Stack { client, server, resumed: false };
        if resumed {
            stack.connect(None);
            stack.resumed = true;
        }
        Some(stack)
    }
}
