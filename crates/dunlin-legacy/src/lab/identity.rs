//! Keys and certificates for the laboratory, made once with `openssl` (data/README.md). They are public.

/// A server named "localhost": its key, its certificate, and the certificate of its authority, whose key is
/// of the same kind.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// The kind of key, in words.
    pub name: &'static str,
    /// The key in PEM (PKCS#8).
    pub key_pem: &'static str,
    /// Its certificate in PEM.
    pub cert_pem: &'static str,
    /// The authority's certificate in PEM.
    pub root_pem: &'static str,
}

macro_rules! identity {
    ($name:literal, $file:literal) => {
        Identity {
            name: $name,
            key_pem: include_str!(concat!("../../data/", $file, "-key.pem")),
            cert_pem: include_str!(concat!("../../data/", $file, "-cert.pem")),
            root_pem: include_str!(concat!("../../data/", $file, "-root.pem")),
        }
    };
}

/// RSA with 512 bits.
pub static RSA_512: Identity = identity!("RSA 512", "rsa-512");
/// RSA with 1024 bits.
pub static RSA_1024: Identity = identity!("RSA 1024", "rsa-1024");
/// DSA with a field of 1024 bits and a subgroup of 160.
pub static DSA_1024: Identity = identity!("DSA 1024", "dsa-1024");
/// DSA with a field of 2048 bits and a subgroup of 256.
pub static DSA_2048: Identity = identity!("DSA 2048", "dsa-2048");
