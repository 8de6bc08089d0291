//! The types of keys and their names.

use std::fmt;

/// The supported types of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyType {
    /// RSA with a modulus of 2048 bits and the exponent 65537.
    Rsa2048,
    /// RSA with a modulus of 3072 bits.
    Rsa3072,
    /// RSA with a modulus of 4096 bits.
    Rsa4096,
    /// RSA with a modulus of 2048 bits, only for signatures with PSS: a key of the type id-RSASSA-PSS (RFC
    /// 4055 §1.2).
    RsaPss2048,
    /// As [`Self::RsaPss2048`], with a modulus of 3072 bits.
    RsaPss3072,
    /// As [`Self::RsaPss2048`], with a modulus of 4096 bits.
    RsaPss4096,
    /// ECDSA on the curve secp256r1.
    P256,
    /// ECDSA on the curve secp384r1.
    P384,
    /// ECDSA on the curve secp521r1.
    P521,
    /// Ed25519 (RFC 8032).
    Ed25519,
    /// ML-DSA-44 (FIPS 204), a post-quantum signature. The file holds the private key's seed (RFC 9881 §6).
    MlDsa44,
    /// ML-DSA-65 (FIPS 204), in a higher security category than ML-DSA-44. The file holds the seed, too.
    MlDsa65,
}

impl KeyType {
    /// All key types.
    pub const ALL: [Self; 12] = [
        Self::Rsa2048,
        Self::Rsa3072,
        Self::Rsa4096,
        Self::RsaPss2048,
        Self::RsaPss3072,
        Self::RsaPss4096,
        Self::P256,
        Self::P384,
        Self::P521,
        Self::Ed25519,
        Self::MlDsa44,
        Self::MlDsa65,
    ];

    /// The name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rsa2048 => "rsa2048",
            Self::Rsa3072 => "rsa3072",
            Self::Rsa4096 => "rsa4096",
            Self::RsaPss2048 => "rsapss2048",
            Self::RsaPss3072 => "rsapss3072",
            Self::RsaPss4096 => "rsapss4096",
            Self::P256 => "p256",
            Self::P384 => "p384",
            Self::P521 => "p521",
            Self::Ed25519 => "ed25519",
            Self::MlDsa44 => "mldsa44",
            Self::MlDsa65 => "mldsa65",
        }
    }

    /// Whether this is an RSA key that can also encrypt, whatever its size.
    pub(crate) const fn encrypts(self) -> bool {
        matches!(self, Self::Rsa2048 | Self::Rsa3072 | Self::Rsa4096)
    }

    /// The names of all key types, for messages.
    pub(crate) fn names() -> String {
        Self::ALL.map(Self::name).join(", ")
    }
}

impl fmt::Display for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
