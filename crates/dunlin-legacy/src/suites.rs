//! The cipher suites, which are AEADs only.

use dunlin::crypto::{Tls12Authentication, Tls12CipherSuite, Tls12KeyExchange};
use dunlin::wire::CipherSuite;
use dunlin_awslc::{AES_128_CCM, AES_128_CCM_8, AES_128_GCM, AES_256_GCM, SHA256, SHA384};

macro_rules! suites {
    ($($name:ident = $id:ident, $rfc:literal, $hash:ident, $aead:ident, $key_exchange:ident, $authentication:ident;)*) => {
        $(
            #[doc = concat!("`", stringify!($id), "` (", $rfc, ").")]
            pub static $name: Tls12CipherSuite = Tls12CipherSuite {
                id: CipherSuite::$id,
                hash: $hash,
                aead: $aead,
                key_exchange: Tls12KeyExchange::$key_exchange,
                authentication: Tls12Authentication::$authentication,
            };
        )*

        /// All legacy suites.
        pub static TLS12_LEGACY_CIPHER_SUITES: &[&Tls12CipherSuite] = &[$(&$name),*];
    };
}

suites! {
    TLS12_RSA_WITH_AES_128_GCM_SHA256 = TLS_RSA_WITH_AES_128_GCM_SHA256, "RFC 5288 §3", SHA256, AES_128_GCM, Rsa, Rsa;
    TLS12_RSA_WITH_AES_256_GCM_SHA384 = TLS_RSA_WITH_AES_256_GCM_SHA384, "RFC 5288 §3", SHA384, AES_256_GCM, Rsa, Rsa;
    TLS12_RSA_WITH_AES_128_CCM = TLS_RSA_WITH_AES_128_CCM, "RFC 6655 §3", SHA256, AES_128_CCM, Rsa, Rsa;
    TLS12_RSA_WITH_AES_128_CCM_8 = TLS_RSA_WITH_AES_128_CCM_8, "RFC 6655 §4", SHA256, AES_128_CCM_8, Rsa, Rsa;
    TLS12_DHE_DSS_WITH_AES_128_GCM_SHA256 = TLS_DHE_DSS_WITH_AES_128_GCM_SHA256, "RFC 5288 §3", SHA256, AES_128_GCM, Dhe, Dss;
    TLS12_DHE_DSS_WITH_AES_256_GCM_SHA384 = TLS_DHE_DSS_WITH_AES_256_GCM_SHA384, "RFC 5288 §3", SHA384, AES_256_GCM, Dhe, Dss;
    TLS12_DH_ANON_WITH_AES_128_GCM_SHA256 = TLS_DH_ANON_WITH_AES_128_GCM_SHA256, "RFC 5288 §3", SHA256, AES_128_GCM, Dhe, Anonymous;
    TLS12_DH_ANON_WITH_AES_256_GCM_SHA384 = TLS_DH_ANON_WITH_AES_256_GCM_SHA384, "RFC 5288 §3", SHA384, AES_256_GCM, Dhe, Anonymous;
}
