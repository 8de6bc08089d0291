//! Cipher suites of TLS 1.2: one of each record format for each key exchange.

use dunlin::crypto::{AeadAlgorithm, HashAlgorithm, Tls12Authentication, Tls12CipherSuite, Tls12KeyExchange};
use dunlin::wire::CipherSuite;

use crate::hash::NullHash;
use crate::record::NullAead;

macro_rules! suites {
    ($count:literal: $($id:ident = $hash:ident, $aead:ident, $key_exchange:ident, $authentication:ident;)*) => {
        /// Cipher suites of TLS 1.2, for
        /// [`ProfileBuilder::tls12_cipher_suites`](dunlin::ProfileBuilder::tls12_cipher_suites).
        pub static TLS12_CIPHER_SUITES: [Tls12CipherSuite; $count] = [$(Tls12CipherSuite {
            id: CipherSuite::$id,
            hash: &NullHash(HashAlgorithm::$hash),
            aead: &NullAead(AeadAlgorithm::$aead),
            key_exchange: Tls12KeyExchange::$key_exchange,
            authentication: Tls12Authentication::$authentication,
        }),*];
    };
}

suites! {23:
    TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 = Sha256, Aes128Gcm, Ecdhe, Ecdsa;
    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 = Sha256, Aes128Gcm, Ecdhe, Rsa;
    TLS_DHE_RSA_WITH_AES_128_GCM_SHA256 = Sha256, Aes128Gcm, Dhe, Rsa;
    TLS_PSK_WITH_AES_128_GCM_SHA256 = Sha256, Aes128Gcm, Psk, Psk;
    TLS_DHE_PSK_WITH_AES_128_GCM_SHA256 = Sha256, Aes128Gcm, Dhe, Psk;
    TLS_ECDHE_PSK_WITH_AES_128_GCM_SHA256 = Sha256, Aes128Gcm, Ecdhe, Psk;
    TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 = Sha384, Aes256Gcm, Ecdhe, Ecdsa;
    TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 = Sha384, Aes256Gcm, Ecdhe, Rsa;
    TLS_DHE_RSA_WITH_AES_256_GCM_SHA384 = Sha384, Aes256Gcm, Dhe, Rsa;
    TLS_PSK_WITH_AES_256_GCM_SHA384 = Sha384, Aes256Gcm, Psk, Psk;
    TLS_DHE_PSK_WITH_AES_256_GCM_SHA384 = Sha384, Aes256Gcm, Dhe, Psk;
    TLS_ECDHE_PSK_WITH_AES_256_GCM_SHA384 = Sha384, Aes256Gcm, Ecdhe, Psk;
    TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8 = Sha256, Aes128Ccm8, Ecdhe, Ecdsa;
    TLS_DHE_RSA_WITH_AES_128_CCM_8 = Sha256, Aes128Ccm8, Dhe, Rsa;
    TLS_PSK_WITH_AES_128_CCM_8 = Sha256, Aes128Ccm8, Psk, Psk;
    TLS_PSK_DHE_WITH_AES_128_CCM_8 = Sha256, Aes128Ccm8, Dhe, Psk;
    TLS_ECDHE_PSK_WITH_AES_128_CCM_8_SHA256 = Sha256, Aes128Ccm8, Ecdhe, Psk;
    TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 = Sha256, ChaCha20Poly1305, Ecdhe, Ecdsa;
    TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 = Sha256, ChaCha20Poly1305, Ecdhe, Rsa;
    TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256 = Sha256, ChaCha20Poly1305, Dhe, Rsa;
    TLS_PSK_WITH_CHACHA20_POLY1305_SHA256 = Sha256, ChaCha20Poly1305, Psk, Psk;
    TLS_DHE_PSK_WITH_CHACHA20_POLY1305_SHA256 = Sha256, ChaCha20Poly1305, Dhe, Psk;
    TLS_ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256 = Sha256, ChaCha20Poly1305, Ecdhe, Psk;
}
