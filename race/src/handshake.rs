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
}

/// Those of the table.
pub(crate) const HANDSHAKES: [(&str, Handshake); 4] = [
    ("full, ECDSA P-256", Handshake::Full(KeyType::P256)),
    ("full, RSA-2048", Handshake::Full(KeyType::Rsa2048)),
    ("full, Ed25519", Handshake::Full(KeyType::Ed25519)),
    ("resumed", Handshake::Resumed),
];

impl Handshake {
    const fn keys(self) -> KeyType {
        match self {
            Self::Full(typ) => typ,
            Self::Resumed => KeyType::P256,
        }
    }

    /// Ready to connect in this way: has a ticket where it needs one.
    pub(crate) fn stack(self, competitor: Competitor) -> Stack {
        let resumed = self == Self::Resumed;
        let maker = match competitor {
            Competitor::Dunlin => crate::dunlin::makers,
            Competitor::Rustls => crate::rustls::makers,
            #[cfg(feature = "openssl")]
            Competitor::OpenSsl => crate::openssl::makers,
        };
        let (client, server) = maker(self.keys(), resumed);
        let mut stack = Stack { client, server, resumed: false };
        if resumed {
            stack.connect(None);
            stack.resumed = true;
        }
        stack
    }
}
