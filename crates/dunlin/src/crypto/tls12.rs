//! The TLS 1.2 cipher suites, with AEADs only. There are no CBC suites; SECURITY.md says why.

use super::{Aead, Hash};
use crate::wire::{CipherSuite, SignatureScheme};

/// A TLS 1.2 cipher suite. One number selects parameters that TLS 1.3 negotiates separately (RFC 5246 §A.5).
#[derive(Debug)]
pub struct Tls12CipherSuite {
    /// Its number.
    pub id: CipherSuite,
    /// The hash of the PRF and of Finished.
    pub hash: &'static dyn Hash,
    /// The record protection.
    pub aead: &'static dyn Aead,
    /// How both sides agree on the premaster secret.
    pub key_exchange: Tls12KeyExchange,
    /// How the server proves its identity.
    pub authentication: Tls12Authentication,
}

impl Tls12CipherSuite {
    /// Whether the server sends a certificate.
    pub fn has_certificate(&self) -> bool {
        match self.authentication {
            Tls12Authentication::Ecdsa | Tls12Authentication::Rsa | Tls12Authentication::Dss => true,
            Tls12Authentication::Psk => self.key_exchange == Tls12KeyExchange::Rsa,
            Tls12Authentication::Anonymous => false,
        }
    }

    /// Whether a server whose key signs with `schemes` can use that key in this suite. Call it for suites
    /// with a certificate.
    pub fn takes_key(&self, schemes: &[SignatureScheme]) -> bool {
        schemes.iter().any(|scheme| match self.key_exchange {
            Tls12KeyExchange::Rsa => scheme.has_decrypting_key(),
            _ => self.authentication.allows(*scheme),
        })
    }

    /// Whether the server signs its key share. In RSA key exchange the server has no share.
    pub(crate) fn is_signed(&self) -> bool {
        self.has_certificate() && self.key_exchange != Tls12KeyExchange::Rsa
    }

    /// Whether the suite is for the laboratory only: without authentication, with DSA, or with plain RSA key
    /// exchange.
    pub(crate) fn is_legacy(&self) -> bool {
        match self.authentication {
            Tls12Authentication::Psk => false,
            Tls12Authentication::Ecdsa | Tls12Authentication::Rsa => {
                self.key_exchange == Tls12KeyExchange::Rsa
            }
            Tls12Authentication::Dss | Tls12Authentication::Anonymous => true,
        }
    }

    /// Whether neither side proves its identity.
    pub(crate) fn is_anonymous(&self) -> bool {
        self.authentication == Tls12Authentication::Anonymous
    }

    /// Whether an RFC combines this key exchange with this authentication: RFC 5246 §A.5, RFC 8422 §2, RFC
    /// 4279, RFC 5489.
    pub(crate) fn is_known(&self) -> bool {
        use Tls12Authentication as A;
        use Tls12KeyExchange as K;
        match self.key_exchange {
            K::Ecdhe => matches!(self.authentication, A::Ecdsa | A::Rsa | A::Psk),
            K::Dhe => matches!(self.authentication, A::Rsa | A::Dss | A::Psk | A::Anonymous),
            K::Rsa => matches!(self.authentication, A::Rsa | A::Psk),
            K::Psk => self.authentication == A::Psk,
        }
    }

    /// Whether both sides have a pre-shared key.
    pub fn has_psk(&self) -> bool {
        self.authentication == Tls12Authentication::Psk
    }

    /// Whether the server may ask for a client certificate. It may not if a pre-shared key already proves the
    /// client's identity (RFC 4279 §2, §4).
    pub(crate) fn may_ask_for_certificate(&self) -> bool {
        self.has_certificate() && !self.has_psk()
    }
}

/// How TLS 1.2 agrees on the premaster secret. In PSK suites the pre-shared key is an additional input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tls12KeyExchange {
    /// Ephemeral keys on a curve (RFC 8422).
    Ecdhe,
    /// Ephemeral keys in a finite field (RFC 5246 §7.4.3, RFC 7919).
    Dhe,
    /// The client encrypts a secret with the server's RSA key (RFC 5246 §7.4.7.1), without forward secrecy.
    /// Except in RSA_PSK suites (RFC 4279 §4) it is for the laboratory only.
    Rsa,
    /// The pre-shared key alone (RFC 4279 §2), without forward secrecy.
    Psk,
}

/// How a TLS 1.2 server proves its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Tls12Authentication {
    /// By an ECDSA or EdDSA key (RFC 8422 §2.1).
    Ecdsa,
    /// By an RSA key (RFC 8422 §2.2).
    Rsa,
    /// By the pre-shared key, which also proves the client's identity (RFC 4279).
    Psk,
    /// By a DSA key (RFC 5246 §7.4.3): for the laboratory only.
    Dss,
    /// Not at all (RFC 5246 §F.1.1.1): an attacker in the middle can read everything. For the laboratory
    /// only.
    Anonymous,
}

impl Tls12Authentication {
    /// Whether the server may sign with `scheme` in such a suite.
    pub(crate) fn allows(self, scheme: SignatureScheme) -> bool {
        match self {
            Self::Ecdsa => scheme.is_ecdsa_or_eddsa(),
            Self::Rsa => scheme.is_rsa(),
            Self::Dss => scheme == SignatureScheme::DSA_SHA256,
            Self::Psk | Self::Anonymous => false,
        }
    }
}

/// Declares a provider's TLS 1.2 cipher suites in the calling module, and three lists of them:
/// `TLS12_CIPHER_SUITES`, `TLS12_DHE_CIPHER_SUITES` and `TLS12_PSK_CIPHER_SUITES`. Its argument is the module
/// with the provider's statics: `SHA256`, `SHA384`, `AES_128_GCM`, `AES_256_GCM`, `CHACHA20_POLY1305`,
/// `AES_128_CCM` and `AES_128_CCM_8`.
#[macro_export]
macro_rules! tls12_cipher_suites {
    (@each $parts:tt: $($name:ident = $id:ident, $rfc:literal, $hash:ident, $aead:ident, $key_exchange:ident, $authentication:ident;)*) => {$(
        #[doc = concat!("`", stringify!($id), "` (", $rfc, ").")]
        pub static $name: $crate::crypto::Tls12CipherSuite = $crate::crypto::Tls12CipherSuite {
            id: $crate::wire::CipherSuite::$id,
            hash: $parts::$hash,
            aead: $parts::$aead,
            key_exchange: $crate::crypto::Tls12KeyExchange::$key_exchange,
            authentication: $crate::crypto::Tls12Authentication::$authentication,
        };
    )*};
    ($parts:tt) => {
        $crate::tls12_cipher_suites! { @each $parts:
            TLS12_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 = TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, "RFC 5289 §3.2", SHA256, AES_128_GCM, Ecdhe, Ecdsa;
            TLS12_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 = TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, "RFC 5289 §3.2", SHA384, AES_256_GCM, Ecdhe, Ecdsa;
            TLS12_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 = TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, "RFC 7905 §2", SHA256, CHACHA20_POLY1305, Ecdhe, Ecdsa;
            TLS12_ECDHE_ECDSA_WITH_AES_128_CCM = TLS_ECDHE_ECDSA_WITH_AES_128_CCM, "RFC 7251 §2", SHA256, AES_128_CCM, Ecdhe, Ecdsa;
            TLS12_ECDHE_ECDSA_WITH_AES_128_CCM_8 = TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8, "RFC 7251 §2", SHA256, AES_128_CCM_8, Ecdhe, Ecdsa;
            TLS12_ECDHE_RSA_WITH_AES_128_GCM_SHA256 = TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, "RFC 5289 §3.2", SHA256, AES_128_GCM, Ecdhe, Rsa;
            TLS12_ECDHE_RSA_WITH_AES_256_GCM_SHA384 = TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, "RFC 5289 §3.2", SHA384, AES_256_GCM, Ecdhe, Rsa;
            TLS12_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 = TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256, "RFC 7905 §2", SHA256, CHACHA20_POLY1305, Ecdhe, Rsa;
            TLS12_PSK_WITH_AES_128_GCM_SHA256 = TLS_PSK_WITH_AES_128_GCM_SHA256, "RFC 5487 §2", SHA256, AES_128_GCM, Psk, Psk;
            TLS12_PSK_WITH_AES_256_GCM_SHA384 = TLS_PSK_WITH_AES_256_GCM_SHA384, "RFC 5487 §2", SHA384, AES_256_GCM, Psk, Psk;
            TLS12_PSK_WITH_CHACHA20_POLY1305_SHA256 = TLS_PSK_WITH_CHACHA20_POLY1305_SHA256, "RFC 7905 §2", SHA256, CHACHA20_POLY1305, Psk, Psk;
            TLS12_PSK_WITH_AES_128_CCM = TLS_PSK_WITH_AES_128_CCM, "RFC 6655 §3", SHA256, AES_128_CCM, Psk, Psk;
            TLS12_PSK_WITH_AES_128_CCM_8 = TLS_PSK_WITH_AES_128_CCM_8, "RFC 6655 §4", SHA256, AES_128_CCM_8, Psk, Psk;
            TLS12_ECDHE_PSK_WITH_AES_128_GCM_SHA256 = TLS_ECDHE_PSK_WITH_AES_128_GCM_SHA256, "RFC 8442 §3", SHA256, AES_128_GCM, Ecdhe, Psk;
            TLS12_ECDHE_PSK_WITH_AES_256_GCM_SHA384 = TLS_ECDHE_PSK_WITH_AES_256_GCM_SHA384, "RFC 8442 §3", SHA384, AES_256_GCM, Ecdhe, Psk;
            TLS12_ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256 = TLS_ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256, "RFC 7905 §2", SHA256, CHACHA20_POLY1305, Ecdhe, Psk;
            TLS12_ECDHE_PSK_WITH_AES_128_CCM_SHA256 = TLS_ECDHE_PSK_WITH_AES_128_CCM_SHA256, "RFC 8442 §3", SHA256, AES_128_CCM, Ecdhe, Psk;
            TLS12_ECDHE_PSK_WITH_AES_128_CCM_8_SHA256 = TLS_ECDHE_PSK_WITH_AES_128_CCM_8_SHA256, "RFC 8442 §3", SHA256, AES_128_CCM_8, Ecdhe, Psk;
            TLS12_DHE_RSA_WITH_AES_128_GCM_SHA256 = TLS_DHE_RSA_WITH_AES_128_GCM_SHA256, "RFC 5288 §3", SHA256, AES_128_GCM, Dhe, Rsa;
            TLS12_DHE_RSA_WITH_AES_256_GCM_SHA384 = TLS_DHE_RSA_WITH_AES_256_GCM_SHA384, "RFC 5288 §3", SHA384, AES_256_GCM, Dhe, Rsa;
            TLS12_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256 = TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256, "RFC 7905 §2", SHA256, CHACHA20_POLY1305, Dhe, Rsa;
            TLS12_DHE_RSA_WITH_AES_128_CCM = TLS_DHE_RSA_WITH_AES_128_CCM, "RFC 6655 §3", SHA256, AES_128_CCM, Dhe, Rsa;
            TLS12_DHE_RSA_WITH_AES_128_CCM_8 = TLS_DHE_RSA_WITH_AES_128_CCM_8, "RFC 6655 §4", SHA256, AES_128_CCM_8, Dhe, Rsa;
            TLS12_DHE_PSK_WITH_AES_128_GCM_SHA256 = TLS_DHE_PSK_WITH_AES_128_GCM_SHA256, "RFC 5487 §2", SHA256, AES_128_GCM, Dhe, Psk;
            TLS12_DHE_PSK_WITH_AES_256_GCM_SHA384 = TLS_DHE_PSK_WITH_AES_256_GCM_SHA384, "RFC 5487 §2", SHA384, AES_256_GCM, Dhe, Psk;
            TLS12_DHE_PSK_WITH_CHACHA20_POLY1305_SHA256 = TLS_DHE_PSK_WITH_CHACHA20_POLY1305_SHA256, "RFC 7905 §2", SHA256, CHACHA20_POLY1305, Dhe, Psk;
            TLS12_DHE_PSK_WITH_AES_128_CCM = TLS_DHE_PSK_WITH_AES_128_CCM, "RFC 6655 §3", SHA256, AES_128_CCM, Dhe, Psk;
            TLS12_PSK_DHE_WITH_AES_128_CCM_8 = TLS_PSK_DHE_WITH_AES_128_CCM_8, "RFC 6655 §4", SHA256, AES_128_CCM_8, Dhe, Psk;
        }

        /// ECDHE suites with full-length tags, in order of preference, for profiles of servers and PCs. All
        /// have forward secrecy.
        pub static TLS12_CIPHER_SUITES: &[&$crate::crypto::Tls12CipherSuite] = &[
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

        /// DHE suites with full-length tags, in order of preference, for peers without curves. Shares are ten
        /// times as long as with curves, and far slower to compute. The suites need a group of RFC 7919 from
        /// the crate dunlin-legacy.
        pub static TLS12_DHE_CIPHER_SUITES: &[&$crate::crypto::Tls12CipherSuite] = &[
            &TLS12_DHE_RSA_WITH_AES_128_GCM_SHA256,
            &TLS12_DHE_RSA_WITH_AES_256_GCM_SHA384,
            &TLS12_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
            &TLS12_DHE_RSA_WITH_AES_128_CCM,
            &TLS12_DHE_PSK_WITH_AES_128_GCM_SHA256,
            &TLS12_DHE_PSK_WITH_AES_256_GCM_SHA384,
            &TLS12_DHE_PSK_WITH_CHACHA20_POLY1305_SHA256,
            &TLS12_DHE_PSK_WITH_AES_128_CCM,
        ];

        /// Suites with a pre-shared key alone (RFC 4279 §2) and full-length tags, in order of preference.
        /// They have no forward secrecy: an attacker who gets the key later can decrypt recorded traffic.
        pub static TLS12_PSK_CIPHER_SUITES: &[&$crate::crypto::Tls12CipherSuite] = &[
            &TLS12_PSK_WITH_AES_128_GCM_SHA256,
            &TLS12_PSK_WITH_AES_256_GCM_SHA384,
            &TLS12_PSK_WITH_CHACHA20_POLY1305_SHA256,
            &TLS12_PSK_WITH_AES_128_CCM,
        ];
    };
}
