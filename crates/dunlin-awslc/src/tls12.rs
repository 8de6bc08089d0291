//! The cipher suites of TLS 1.2: AEADs alone. What is defined with CBC is not here (SECURITY.md says why).

use dunlin::crypto::{Tls12Authentication, Tls12CipherSuite, Tls12KeyExchange};
use dunlin::wire::CipherSuite;

use crate::{AES_128_CCM, AES_128_CCM_8, AES_128_GCM, AES_256_GCM, CHACHA20_POLY1305, SHA256, SHA384};

macro_rules! suite {
    ($name:ident = $id:ident, $rfc:literal, $hash:ident, $aead:ident, $key_exchange:ident, $authentication:ident) => {
        #[doc = concat!("`", stringify!($id), "` (", $rfc, ").")]
        pub static $name: Tls12CipherSuite = Tls12CipherSuite {
            id: CipherSuite::$id,
            hash: $hash,
            aead: $aead,
            key_exchange: Tls12KeyExchange::$key_exchange,
            authentication: Tls12Authentication::$authentication,
        };
    };
}

suite!(
    TLS12_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 = TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    "RFC 5289 §3.2",
    SHA256,
    AES_128_GCM,
    Ecdhe,
    Ecdsa
);
suite!(
    TLS12_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 = TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    "RFC 5289 §3.2",
    SHA384,
    AES_256_GCM,
    Ecdhe,
    Ecdsa
);
suite!(
    TLS12_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 = TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    "RFC 7905 §2",
    SHA256,
    CHACHA20_POLY1305,
    Ecdhe,
    Ecdsa
);
suite!(
    TLS12_ECDHE_ECDSA_WITH_AES_128_CCM = TLS_ECDHE_ECDSA_WITH_AES_128_CCM,
    "RFC 7251 §2",
    SHA256,
    AES_128_CCM,
    Ecdhe,
    Ecdsa
);
suite!(
    TLS12_ECDHE_ECDSA_WITH_AES_128_CCM_8 = TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8,
    "RFC 7251 §2",
    SHA256,
    AES_128_CCM_8,
    Ecdhe,
    Ecdsa
);
suite!(
    TLS12_ECDHE_RSA_WITH_AES_128_GCM_SHA256 = TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    "RFC 5289 §3.2",
    SHA256,
    AES_128_GCM,
    Ecdhe,
    Rsa
);
suite!(
    TLS12_ECDHE_RSA_WITH_AES_256_GCM_SHA384 = TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    "RFC 5289 §3.2",
    SHA384,
    AES_256_GCM,
    Ecdhe,
    Rsa
);
suite!(
    TLS12_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 = TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    "RFC 7905 §2",
    SHA256,
    CHACHA20_POLY1305,
    Ecdhe,
    Rsa
);
suite!(
    TLS12_PSK_WITH_AES_128_GCM_SHA256 = TLS_PSK_WITH_AES_128_GCM_SHA256,
    "RFC 5487 §2",
    SHA256,
    AES_128_GCM,
    Psk,
    Psk
);
suite!(
    TLS12_PSK_WITH_AES_256_GCM_SHA384 = TLS_PSK_WITH_AES_256_GCM_SHA384,
    "RFC 5487 §2",
    SHA384,
    AES_256_GCM,
    Psk,
    Psk
);
suite!(
    TLS12_PSK_WITH_CHACHA20_POLY1305_SHA256 = TLS_PSK_WITH_CHACHA20_POLY1305_SHA256,
    "RFC 7905 §2",
    SHA256,
    CHACHA20_POLY1305,
    Psk,
    Psk
);
suite!(TLS12_PSK_WITH_AES_128_CCM = TLS_PSK_WITH_AES_128_CCM, "RFC 6655 §3", SHA256, AES_128_CCM, Psk, Psk);
suite!(
    TLS12_PSK_WITH_AES_128_CCM_8 = TLS_PSK_WITH_AES_128_CCM_8,
    "RFC 6655 §4",
    SHA256,
    AES_128_CCM_8,
    Psk,
    Psk
);
suite!(
    TLS12_ECDHE_PSK_WITH_AES_128_GCM_SHA256 = TLS_ECDHE_PSK_WITH_AES_128_GCM_SHA256,
    "RFC 8442 §3",
    SHA256,
    AES_128_GCM,
    Ecdhe,
    Psk
);
suite!(
    TLS12_ECDHE_PSK_WITH_AES_256_GCM_SHA384 = TLS_ECDHE_PSK_WITH_AES_256_GCM_SHA384,
    "RFC 8442 §3",
    SHA384,
    AES_256_GCM,
    Ecdhe,
    Psk
);
suite!(
    TLS12_ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256 = TLS_ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256,
    "RFC 7905 §2",
    SHA256,
    CHACHA20_POLY1305,
    Ecdhe,
    Psk
);
suite!(
    TLS12_ECDHE_PSK_WITH_AES_128_CCM_SHA256 = TLS_ECDHE_PSK_WITH_AES_128_CCM_SHA256,
    "RFC 8442 §3",
    SHA256,
    AES_128_CCM,
    Ecdhe,
    Psk
);
suite!(
    TLS12_ECDHE_PSK_WITH_AES_128_CCM_8_SHA256 = TLS_ECDHE_PSK_WITH_AES_128_CCM_8_SHA256,
    "RFC 8442 §3",
    SHA256,
    AES_128_CCM_8,
    Ecdhe,
    Psk
);
suite!(
    TLS12_DHE_RSA_WITH_AES_128_GCM_SHA256 = TLS_DHE_RSA_WITH_AES_128_GCM_SHA256,
    "RFC 5288 §3",
    SHA256,
    AES_128_GCM,
    Dhe,
    Rsa
);
suite!(
    TLS12_DHE_RSA_WITH_AES_256_GCM_SHA384 = TLS_DHE_RSA_WITH_AES_256_GCM_SHA384,
    "RFC 5288 §3",
    SHA384,
    AES_256_GCM,
    Dhe,
    Rsa
);
suite!(
    TLS12_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256 = TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    "RFC 7905 §2",
    SHA256,
    CHACHA20_POLY1305,
    Dhe,
    Rsa
);
suite!(
    TLS12_DHE_RSA_WITH_AES_128_CCM = TLS_DHE_RSA_WITH_AES_128_CCM,
    "RFC 6655 §3",
    SHA256,
    AES_128_CCM,
    Dhe,
    Rsa
);
suite!(
    TLS12_DHE_RSA_WITH_AES_128_CCM_8 = TLS_DHE_RSA_WITH_AES_128_CCM_8,
    "RFC 6655 §4",
    SHA256,
    AES_128_CCM_8,
    Dhe,
    Rsa
);
suite!(
    TLS12_DHE_PSK_WITH_AES_128_GCM_SHA256 = TLS_DHE_PSK_WITH_AES_128_GCM_SHA256,
    "RFC 5487 §2",
    SHA256,
    AES_128_GCM,
    Dhe,
    Psk
);
suite!(
    TLS12_DHE_PSK_WITH_AES_256_GCM_SHA384 = TLS_DHE_PSK_WITH_AES_256_GCM_SHA384,
    "RFC 5487 §2",
    SHA384,
    AES_256_GCM,
    Dhe,
    Psk
);
suite!(
    TLS12_DHE_PSK_WITH_CHACHA20_POLY1305_SHA256 = TLS_DHE_PSK_WITH_CHACHA20_POLY1305_SHA256,
    "RFC 7905 §2",
    SHA256,
    CHACHA20_POLY1305,
    Dhe,
    Psk
);
suite!(
    TLS12_DHE_PSK_WITH_AES_128_CCM = TLS_DHE_PSK_WITH_AES_128_CCM,
    "RFC 6655 §3",
    SHA256,
    AES_128_CCM,
    Dhe,
    Psk
);
suite!(
    TLS12_PSK_DHE_WITH_AES_128_CCM_8 = TLS_PSK_DHE_WITH_AES_128_CCM_8,
    "RFC 6655 §4",
    SHA256,
    AES_128_CCM_8,
    Dhe,
    Psk
);

/// Those with forward secrecy and whole tags, in order of preference: what a profile for servers and PCs takes.
pub static TLS12_CIPHER_SUITES: &[&Tls12CipherSuite] = &[
    &TLS12_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    &TLS12_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    &TLS12_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    &TLS12_ECDHE_ECDSA_WITH_AES_128_CCM,
    &TLS12_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    &TLS12_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    &TLS12_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    &TLS12_ECDHE_PSK_WITH_AES_128_GCM_SHA256,
    &TLS12_ECDHE_PSK_WITH_AES_256_GCM_SHA384,
    &TLS12_ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256,
    &TLS12_ECDHE_PSK_WITH_AES_128_CCM_SHA256,
];

/// Those with ephemeral keys in a finite field and whole tags, in order of preference, for peers without curves: shares are
/// ten times as long, and take a multiple of the time. They need a group of RFC 7919, which the crate dunlin-ffdhe has.
pub static TLS12_DHE_CIPHER_SUITES: &[&Tls12CipherSuite] = &[
    &TLS12_DHE_RSA_WITH_AES_128_GCM_SHA256,
    &TLS12_DHE_RSA_WITH_AES_256_GCM_SHA384,
    &TLS12_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    &TLS12_DHE_RSA_WITH_AES_128_CCM,
    &TLS12_DHE_PSK_WITH_AES_128_GCM_SHA256,
    &TLS12_DHE_PSK_WITH_AES_256_GCM_SHA384,
    &TLS12_DHE_PSK_WITH_CHACHA20_POLY1305_SHA256,
    &TLS12_DHE_PSK_WITH_AES_128_CCM,
];

/// Those in which a pre-shared key is all there is (RFC 4279 §2), with whole tags, in order of preference. They have no
/// forward secrecy: who gets the key later reads what was recorded.
pub static TLS12_PSK_CIPHER_SUITES: &[&Tls12CipherSuite] = &[
    &TLS12_PSK_WITH_AES_128_GCM_SHA256,
    &TLS12_PSK_WITH_AES_256_GCM_SHA384,
    &TLS12_PSK_WITH_CHACHA20_POLY1305_SHA256,
    &TLS12_PSK_WITH_AES_128_CCM,
];
