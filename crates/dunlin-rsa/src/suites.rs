//! The cipher suites, which are AEADs only.

use dunlin::crypto::{Tls12Authentication, Tls12CipherSuite, Tls12KeyExchange};
use dunlin::wire::CipherSuite;
use dunlin_awslc::{AES_128_GCM, AES_256_GCM, CHACHA20_POLY1305, SHA256, SHA384};

/// `TLS_RSA_PSK_WITH_AES_128_GCM_SHA256` (RFC 5487 §2).
pub static TLS12_RSA_PSK_WITH_AES_128_GCM_SHA256: Tls12CipherSuite = Tls12CipherSuite {
    id: CipherSuite::TLS_RSA_PSK_WITH_AES_128_GCM_SHA256,
    hash: SHA256,
    aead: AES_128_GCM,
    key_exchange: Tls12KeyExchange::Rsa,
    authentication: Tls12Authentication::Psk,
};

/// `TLS_RSA_PSK_WITH_AES_256_GCM_SHA384` (RFC 5487 §2).
pub static TLS12_RSA_PSK_WITH_AES_256_GCM_SHA384: Tls12CipherSuite = Tls12CipherSuite {
    id: CipherSuite::TLS_RSA_PSK_WITH_AES_256_GCM_SHA384,
    hash: SHA384,
    aead: AES_256_GCM,
    key_exchange: Tls12KeyExchange::Rsa,
    authentication: Tls12Authentication::Psk,
};

/// `TLS_RSA_PSK_WITH_CHACHA20_POLY1305_SHA256` (RFC 7905 §2).
pub static TLS12_RSA_PSK_WITH_CHACHA20_POLY1305_SHA256: Tls12CipherSuite = Tls12CipherSuite {
    id: CipherSuite::TLS_RSA_PSK_WITH_CHACHA20_POLY1305_SHA256,
    hash: SHA256,
    aead: CHACHA20_POLY1305,
    key_exchange: Tls12KeyExchange::Rsa,
    authentication: Tls12Authentication::Psk,
};

/// All RSA_PSK suites, in order of preference. (RFC 6655 defines none with CCM.)
pub static TLS12_RSA_PSK_CIPHER_SUITES: &[&Tls12CipherSuite] = &[
    &TLS12_RSA_PSK_WITH_AES_128_GCM_SHA256,
    &TLS12_RSA_PSK_WITH_AES_256_GCM_SHA384,
    &TLS12_RSA_PSK_WITH_CHACHA20_POLY1305_SHA256,
];
