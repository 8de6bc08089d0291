//! The ways to connect.

use dunlin_tests::KeyType;

use crate::stack::{Competitor, Stack};

/// A way to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handshake {
    /// With certificates of this kind on both sides.
    Full(KeyType),
    /// By a ticket of a connection with P-256 certificates.
    Resumed,
    /// In TLS 1.2, with certificates of this kind on both sides.
    Tls12(KeyType),
    /// In TLS 1.2, with a pre-shared key and nothing else.
    Tls12Psk,
}

/// Who has the pre-shared key.
pub(crate) const PSK_IDENTITY: &str = "device-1";
/// The pre-shared key.
pub(crate) const PSK: [u8; 32] = [7; 32];

/// Those of the table.
pub(crate) const HANDSHAKES: [(&str, Handshake); 7] = [
    ("full, ECDSA P-256", Handshake::Full(KeyType::P256)),
    ("full, RSA-2048", Handshake::Full(KeyType::Rsa2048)),
    ("full, Ed25519", Handshake::Full(KeyType::Ed25519)),
    ("resumed", Handshake::Resumed),
    ("TLS 1.2 full, ECDSA P-256", Handshake::Tls12(KeyType::P256)),
    ("TLS 1.2 full, RSA-2048", Handshake::Tls12(KeyType::Rsa2048)),
    ("TLS 1.2, PSK alone", Handshake::Tls12Psk),
];

impl Handshake {
    /// The kind of certificates.
    pub(crate) const fn keys(self) -> KeyType {
        match self {
            Self::Full(typ) | Self::Tls12(typ) => typ,
            Self::Resumed | Self::Tls12Psk => KeyType::P256,
        }
    }

    /// Ready to connect in this way: has a ticket where it needs one. Nothing of who cannot.
    pub(crate) fn stack(self, competitor: Competitor) -> Option<Stack> {
        let resumed = self == Self::Resumed;
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
