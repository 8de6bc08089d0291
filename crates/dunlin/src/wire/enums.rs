//! The protocol's numbers as newtypes that can hold every value, known or unknown.

use core::fmt;

macro_rules! wire_enum {
    ($(#[$doc:meta])* $name:ident: $int:ty { $($(#[$vdoc:meta])* $variant:ident = $value:expr => $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $int);

        impl $name {
            $($(#[$vdoc])* pub const $variant: Self = Self($value);)*

            /// Every value that this crate names, in the order of the declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name in the RFC's spelling; `None` for a number that this crate does not name.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)*
                    _ => None,
                }
            }

            /// The value with this name in the RFC's spelling, regardless of case; `None` for an unknown
            /// name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|v| v.name().is_some_and(|n| n.eq_ignore_ascii_case(name)))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "{:#06x}", self.0),
                }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

wire_enum! {
    /// A protocol version as it stands on the wire (RFC 8446 §4.2.1, RFC 9147 §5.3).
    ProtocolVersion: u16 {
        /// TLS 1.0, only as a record version.
        TLS1_0 = 0x0301 => "TLSv1.0",
        /// TLS 1.1, only as a number to refuse.
        TLS1_1 = 0x0302 => "TLSv1.1",
        /// TLS 1.2.
        TLS1_2 = 0x0303 => "TLSv1.2",
        /// TLS 1.3.
        TLS1_3 = 0x0304 => "TLSv1.3",
        /// DTLS 1.0, only as a number to refuse.
        DTLS1_0 = 0xfeff => "DTLSv1.0",
        /// DTLS 1.2.
        DTLS1_2 = 0xfefd => "DTLSv1.2",
        /// DTLS 1.3.
        DTLS1_3 = 0xfefc => "DTLSv1.3",
    }
}

impl ProtocolVersion {
    /// Whether it is a version of TLS or DTLS, and not a reserved number (RFC 8701) or an unknown one.
    pub(crate) const fn is_real(self) -> bool {
        matches!(
            self,
            Self::TLS1_0
                | Self::TLS1_1
                | Self::TLS1_2
                | Self::TLS1_3
                | Self::DTLS1_0
                | Self::DTLS1_2
                | Self::DTLS1_3
        )
    }

    /// Whether it is version 1.2, over any kind of transport.
    pub const fn is_1_2(self) -> bool {
        matches!(self, Self::TLS1_2 | Self::DTLS1_2)
    }
}

wire_enum! {
    /// The type of a record (RFC 8446 §5.1).
    ContentType: u8 {
        /// `change_cipher_spec`
        CHANGE_CIPHER_SPEC = 20 => "change_cipher_spec",
        /// `alert`
        ALERT = 21 => "alert",
        /// `handshake`
        HANDSHAKE = 22 => "handshake",
        /// `application_data`
        APPLICATION_DATA = 23 => "application_data",
        /// `tls12_cid` (RFC 9146 §4)
        TLS12_CID = 25 => "tls12_cid",
        /// `ack` (RFC 9147 §7)
        ACK = 26 => "ack",
        /// `return_routability_check` (RFC 9853 §4)
        RETURN_ROUTABILITY_CHECK = 27 => "return_routability_check",
        /// `association_port` (docs/association-ports.md); no number of IANA's, and sent only to peers that
        /// know it
        ASSOCIATION_PORT = 30 => "association_port",
    }
}

impl ContentType {
    /// Whether a record over a stream can have this type (RFC 8446 §5.1). The others are of datagrams alone.
    pub(crate) const fn is_of_streams(self) -> bool {
        matches!(self, Self::CHANGE_CIPHER_SPEC | Self::ALERT | Self::HANDSHAKE | Self::APPLICATION_DATA)
    }
}

wire_enum! {
    /// The type of a handshake message (RFC 8446 §4).
    HandshakeType: u8 {
        /// `hello_request` (RFC 5246 §7.4.1.1)
        HELLO_REQUEST = 0 => "hello_request",
        /// `client_hello`
        CLIENT_HELLO = 1 => "client_hello",
        /// `server_hello`, which is also the form of a HelloRetryRequest
        SERVER_HELLO = 2 => "server_hello",
        /// `hello_verify_request` (RFC 6347 §4.2.1)
        HELLO_VERIFY_REQUEST = 3 => "hello_verify_request",
        /// `new_session_ticket`
        NEW_SESSION_TICKET = 4 => "new_session_ticket",
        /// `end_of_early_data`
        END_OF_EARLY_DATA = 5 => "end_of_early_data",
        /// `encrypted_extensions`
        ENCRYPTED_EXTENSIONS = 8 => "encrypted_extensions",
        /// `request_connection_id` (RFC 9147 §9)
        REQUEST_CONNECTION_ID = 9 => "request_connection_id",
        /// `new_connection_id` (RFC 9147 §9)
        NEW_CONNECTION_ID = 10 => "new_connection_id",
        /// `certificate`
        CERTIFICATE = 11 => "certificate",
        /// `server_key_exchange` (RFC 5246 §7.4.3)
        SERVER_KEY_EXCHANGE = 12 => "server_key_exchange",
        /// `certificate_request`
        CERTIFICATE_REQUEST = 13 => "certificate_request",
        /// `server_hello_done` (RFC 5246 §7.4.5)
        SERVER_HELLO_DONE = 14 => "server_hello_done",
        /// `certificate_verify`
        CERTIFICATE_VERIFY = 15 => "certificate_verify",
        /// `client_key_exchange` (RFC 5246 §7.4.7)
        CLIENT_KEY_EXCHANGE = 16 => "client_key_exchange",
        /// `finished`
        FINISHED = 20 => "finished",
        /// `certificate_status` (RFC 6066 §8)
        CERTIFICATE_STATUS = 22 => "certificate_status",
        /// `key_update`
        KEY_UPDATE = 24 => "key_update",
        /// `compressed_certificate` (RFC 8879 §4)
        COMPRESSED_CERTIFICATE = 25 => "compressed_certificate",
        /// `DID` (docs/identity.md); this and the next five have no number of IANA's, and are sent only to
        /// peers that know them
        DID = 30 => "DID",
        /// `VC` (docs/identity.md)
        VC = 31 => "VC",
        /// `SSIRequest` (docs/identity.md)
        SSI_REQUEST = 32 => "SSI_request",
        /// `DIDVerify` (docs/identity.md)
        DID_VERIFY = 33 => "DID_verify",
        /// `DIDProof` (docs/identity.md)
        DID_PROOF = 34 => "DID_proof",
        /// `VCStatus` (docs/identity.md)
        VC_STATUS = 35 => "VC_status",
        /// `cached_object`, synthetic (docs/handshake-cache.md §4): never on the wire
        CACHED_OBJECT = 253 => "cached_object",
        /// `message_hash`, synthetic: never on the wire
        MESSAGE_HASH = 254 => "message_hash",
    }
}

wire_enum! {
    /// A cipher suite of TLS 1.3 (RFC 8446 §B.4) or TLS 1.2, or a signalling value in the same field.
    CipherSuite: u16 {
        /// A signalling value: the client supports secure renegotiation (RFC 5746 §3.3)
        TLS_EMPTY_RENEGOTIATION_INFO_SCSV = 0x00ff => "TLS_EMPTY_RENEGOTIATION_INFO_SCSV",
        /// A signalling value: the client retries with a lower version (RFC 7507)
        TLS_FALLBACK_SCSV = 0x5600 => "TLS_FALLBACK_SCSV",
        /// AES-128-GCM with SHA-256
        TLS_AES_128_GCM_SHA256 = 0x1301 => "TLS_AES_128_GCM_SHA256",
        /// AES-256-GCM with SHA-384
        TLS_AES_256_GCM_SHA384 = 0x1302 => "TLS_AES_256_GCM_SHA384",
        /// ChaCha20-Poly1305 with SHA-256
        TLS_CHACHA20_POLY1305_SHA256 = 0x1303 => "TLS_CHACHA20_POLY1305_SHA256",
        /// AES-128-CCM with SHA-256
        TLS_AES_128_CCM_SHA256 = 0x1304 => "TLS_AES_128_CCM_SHA256",
        /// AES-128-CCM with an 8-byte tag and SHA-256
        TLS_AES_128_CCM_8_SHA256 = 0x1305 => "TLS_AES_128_CCM_8_SHA256",
        /// RFC 5288
        TLS_RSA_WITH_AES_128_GCM_SHA256 = 0x009c => "TLS_RSA_WITH_AES_128_GCM_SHA256",
        /// RFC 5288
        TLS_RSA_WITH_AES_256_GCM_SHA384 = 0x009d => "TLS_RSA_WITH_AES_256_GCM_SHA384",
        /// RFC 5288
        TLS_DHE_RSA_WITH_AES_128_GCM_SHA256 = 0x009e => "TLS_DHE_RSA_WITH_AES_128_GCM_SHA256",
        /// RFC 5288
        TLS_DHE_RSA_WITH_AES_256_GCM_SHA384 = 0x009f => "TLS_DHE_RSA_WITH_AES_256_GCM_SHA384",
        /// RFC 5288
        TLS_DHE_DSS_WITH_AES_128_GCM_SHA256 = 0x00a2 => "TLS_DHE_DSS_WITH_AES_128_GCM_SHA256",
        /// RFC 5288
        TLS_DHE_DSS_WITH_AES_256_GCM_SHA384 = 0x00a3 => "TLS_DHE_DSS_WITH_AES_256_GCM_SHA384",
        /// RFC 5288
        TLS_DH_ANON_WITH_AES_128_GCM_SHA256 = 0x00a6 => "TLS_DH_anon_WITH_AES_128_GCM_SHA256",
        /// RFC 5288
        TLS_DH_ANON_WITH_AES_256_GCM_SHA384 = 0x00a7 => "TLS_DH_anon_WITH_AES_256_GCM_SHA384",
        /// RFC 5487
        TLS_PSK_WITH_AES_128_GCM_SHA256 = 0x00a8 => "TLS_PSK_WITH_AES_128_GCM_SHA256",
        /// RFC 5487
        TLS_PSK_WITH_AES_256_GCM_SHA384 = 0x00a9 => "TLS_PSK_WITH_AES_256_GCM_SHA384",
        /// RFC 5487
        TLS_DHE_PSK_WITH_AES_128_GCM_SHA256 = 0x00aa => "TLS_DHE_PSK_WITH_AES_128_GCM_SHA256",
        /// RFC 5487
        TLS_DHE_PSK_WITH_AES_256_GCM_SHA384 = 0x00ab => "TLS_DHE_PSK_WITH_AES_256_GCM_SHA384",
        /// RFC 5487
        TLS_RSA_PSK_WITH_AES_128_GCM_SHA256 = 0x00ac => "TLS_RSA_PSK_WITH_AES_128_GCM_SHA256",
        /// RFC 5487
        TLS_RSA_PSK_WITH_AES_256_GCM_SHA384 = 0x00ad => "TLS_RSA_PSK_WITH_AES_256_GCM_SHA384",
        /// RFC 5289
        TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 = 0xc02b => "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        /// RFC 5289
        TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 = 0xc02c => "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        /// RFC 5289
        TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 = 0xc02f => "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        /// RFC 5289
        TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 = 0xc030 => "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        /// RFC 6655
        TLS_RSA_WITH_AES_128_CCM = 0xc09c => "TLS_RSA_WITH_AES_128_CCM",
        /// RFC 6655
        TLS_DHE_RSA_WITH_AES_128_CCM = 0xc09e => "TLS_DHE_RSA_WITH_AES_128_CCM",
        /// RFC 6655
        TLS_RSA_WITH_AES_128_CCM_8 = 0xc0a0 => "TLS_RSA_WITH_AES_128_CCM_8",
        /// RFC 6655
        TLS_DHE_RSA_WITH_AES_128_CCM_8 = 0xc0a2 => "TLS_DHE_RSA_WITH_AES_128_CCM_8",
        /// RFC 6655
        TLS_PSK_WITH_AES_128_CCM = 0xc0a4 => "TLS_PSK_WITH_AES_128_CCM",
        /// RFC 6655
        TLS_DHE_PSK_WITH_AES_128_CCM = 0xc0a6 => "TLS_DHE_PSK_WITH_AES_128_CCM",
        /// RFC 6655
        TLS_PSK_WITH_AES_128_CCM_8 = 0xc0a8 => "TLS_PSK_WITH_AES_128_CCM_8",
        /// RFC 6655, which puts PSK before DHE in this name
        TLS_PSK_DHE_WITH_AES_128_CCM_8 = 0xc0aa => "TLS_PSK_DHE_WITH_AES_128_CCM_8",
        /// RFC 7251
        TLS_ECDHE_ECDSA_WITH_AES_128_CCM = 0xc0ac => "TLS_ECDHE_ECDSA_WITH_AES_128_CCM",
        /// RFC 7251
        TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8 = 0xc0ae => "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8",
        /// RFC 7905
        TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 = 0xcca8 => "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        /// RFC 7905
        TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256 = 0xcca9 => "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        /// RFC 7905
        TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256 = 0xccaa => "TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        /// RFC 7905
        TLS_PSK_WITH_CHACHA20_POLY1305_SHA256 = 0xccab => "TLS_PSK_WITH_CHACHA20_POLY1305_SHA256",
        /// RFC 7905
        TLS_ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256 = 0xccac => "TLS_ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256",
        /// RFC 7905
        TLS_DHE_PSK_WITH_CHACHA20_POLY1305_SHA256 = 0xccad => "TLS_DHE_PSK_WITH_CHACHA20_POLY1305_SHA256",
        /// RFC 7905
        TLS_RSA_PSK_WITH_CHACHA20_POLY1305_SHA256 = 0xccae => "TLS_RSA_PSK_WITH_CHACHA20_POLY1305_SHA256",
        /// RFC 8442
        TLS_ECDHE_PSK_WITH_AES_128_GCM_SHA256 = 0xd001 => "TLS_ECDHE_PSK_WITH_AES_128_GCM_SHA256",
        /// RFC 8442
        TLS_ECDHE_PSK_WITH_AES_256_GCM_SHA384 = 0xd002 => "TLS_ECDHE_PSK_WITH_AES_256_GCM_SHA384",
        /// RFC 8442
        TLS_ECDHE_PSK_WITH_AES_128_CCM_8_SHA256 = 0xd003 => "TLS_ECDHE_PSK_WITH_AES_128_CCM_8_SHA256",
        /// RFC 8442
        TLS_ECDHE_PSK_WITH_AES_128_CCM_SHA256 = 0xd005 => "TLS_ECDHE_PSK_WITH_AES_128_CCM_SHA256",
    }
}

wire_enum! {
    /// A group for key exchange (RFC 8446 §4.2.7).
    NamedGroup: u16 {
        /// NIST P-256
        SECP256R1 = 0x0017 => "secp256r1",
        /// NIST P-384
        SECP384R1 = 0x0018 => "secp384r1",
        /// NIST P-521
        SECP521R1 = 0x0019 => "secp521r1",
        /// X25519
        X25519 = 0x001d => "x25519",
        /// Finite field of 2048 bits (RFC 7919)
        FFDHE2048 = 0x0100 => "ffdhe2048",
        /// Finite field of 3072 bits (RFC 7919)
        FFDHE3072 = 0x0101 => "ffdhe3072",
        /// Finite field of 4096 bits (RFC 7919)
        FFDHE4096 = 0x0102 => "ffdhe4096",
        /// A private finite field (RFC 7919 §2), for the laboratory only
        FFDHE_PRIVATE_USE_0 = 0x01fc => "ffdhe_private_use_0",
        /// A second private finite field
        FFDHE_PRIVATE_USE_1 = 0x01fd => "ffdhe_private_use_1",
        /// A third private finite field
        FFDHE_PRIVATE_USE_2 = 0x01fe => "ffdhe_private_use_2",
        /// A fourth private finite field
        FFDHE_PRIVATE_USE_3 = 0x01ff => "ffdhe_private_use_3",
        /// ML-KEM-512 alone (draft-ietf-tls-mlkem)
        MLKEM512 = 0x0200 => "MLKEM512",
        /// ML-KEM-768 alone (draft-ietf-tls-mlkem)
        MLKEM768 = 0x0201 => "MLKEM768",
        /// ML-KEM-1024 alone (draft-ietf-tls-mlkem)
        MLKEM1024 = 0x0202 => "MLKEM1024",
        /// P-256 and ML-KEM-768 (draft-ietf-tls-ecdhe-mlkem)
        SECP256R1MLKEM768 = 0x11eb => "SecP256r1MLKEM768",
        /// X25519 and ML-KEM-768 (draft-ietf-tls-ecdhe-mlkem)
        X25519MLKEM768 = 0x11ec => "X25519MLKEM768",
    }
}

wire_enum! {
    /// A signature scheme (RFC 8446 §4.2.3).
    SignatureScheme: u16 {
        /// RSA PKCS#1 v1.5 with SHA-256, in certificates and in TLS 1.2
        RSA_PKCS1_SHA256 = 0x0401 => "rsa_pkcs1_sha256",
        /// DSA with SHA-256, only in TLS 1.2 and for the laboratory
        DSA_SHA256 = 0x0402 => "dsa_sha256",
        /// RSA PKCS#1 v1.5 with SHA-256 in a TLS 1.3 client's CertificateVerify, for keys in hardware without
        /// RSA-PSS (draft-ietf-tls-tls13-pkcs1)
        RSA_PKCS1_SHA256_LEGACY = 0x0420 => "rsa_pkcs1_sha256_legacy",
        /// RSA PKCS#1 v1.5 with SHA-384, in certificates and in TLS 1.2
        RSA_PKCS1_SHA384 = 0x0501 => "rsa_pkcs1_sha384",
        /// RSA PKCS#1 v1.5 with SHA-512, in certificates and in TLS 1.2
        RSA_PKCS1_SHA512 = 0x0601 => "rsa_pkcs1_sha512",
        /// ECDSA on P-256 with SHA-256
        ECDSA_SECP256R1_SHA256 = 0x0403 => "ecdsa_secp256r1_sha256",
        /// ECDSA on P-384 with SHA-384
        ECDSA_SECP384R1_SHA384 = 0x0503 => "ecdsa_secp384r1_sha384",
        /// ECDSA on P-521 with SHA-512
        ECDSA_SECP521R1_SHA512 = 0x0603 => "ecdsa_secp521r1_sha512",
        /// RSA-PSS with SHA-256 and an rsaEncryption key
        RSA_PSS_RSAE_SHA256 = 0x0804 => "rsa_pss_rsae_sha256",
        /// RSA-PSS with SHA-384 and an rsaEncryption key
        RSA_PSS_RSAE_SHA384 = 0x0805 => "rsa_pss_rsae_sha384",
        /// RSA-PSS with SHA-512 and an rsaEncryption key
        RSA_PSS_RSAE_SHA512 = 0x0806 => "rsa_pss_rsae_sha512",
        /// Ed25519
        ED25519 = 0x0807 => "ed25519",
        /// RSA-PSS with SHA-256 and a key of the type id-RSASSA-PSS
        RSA_PSS_PSS_SHA256 = 0x0809 => "rsa_pss_pss_sha256",
        /// RSA-PSS with SHA-384 and a key of the type id-RSASSA-PSS
        RSA_PSS_PSS_SHA384 = 0x080a => "rsa_pss_pss_sha384",
        /// RSA-PSS with SHA-512 and a key of the type id-RSASSA-PSS
        RSA_PSS_PSS_SHA512 = 0x080b => "rsa_pss_pss_sha512",
        /// ML-DSA-44 (draft-ietf-tls-mldsa)
        MLDSA44 = 0x0904 => "mldsa44",
        /// ML-DSA-65 (draft-ietf-tls-mldsa)
        MLDSA65 = 0x0905 => "mldsa65",
    }
}

wire_enum! {
    /// How a certificate message carries a key (RFC 7250 §3).
    CertificateType: u8 {
        /// A chain of X.509 certificates
        X509 = 0 => "X.509",
        /// A bare SubjectPublicKeyInfo
        RAW_PUBLIC_KEY = 2 => "RawPublicKey",
        /// A verifiable credential (draft-vesco-vcauthtls)
        VERIFIABLE_CREDENTIAL = 224 => "VerifiableCredential",
        /// A bare decentralised identifier. It is no type on the wire: only the messages of ssi_parameters
        /// carry one (docs/identity.md)
        DECENTRALISED_IDENTIFIER = 255 => "DecentralisedIdentifier",
    }
}

wire_enum! {
    /// A method of decentralised identifiers, with its number in did_methods (draft-vesco-vcauthtls). In
    /// ssi_parameters, the methods of the numbers 0xff00 to 0xffff have their low byte (docs/identity.md).
    DidMethod: u16 {
        /// did:btcr
        BTCR = 0 => "did:btcr",
        /// did:ethr
        ETHR = 1 => "did:ethr",
        /// did:iota
        IOTA = 2 => "did:iota",
        /// The number of the public implementation of ssi_parameters
        OTT = 0xff01 => "did:ott",
        /// The number of the public implementation of ssi_parameters
        BTC = 0xff02 => "did:btc",
        /// The number of the public implementation of ssi_parameters
        ETH = 0xff03 => "did:eth",
        /// A number for private use, defined in docs/identity.md
        DUNLIN = 0xffe0 => "did:dunlin",
        /// A number for private use, defined in docs/identity.md
        KEY = 0xffe1 => "did:key",
        /// A number for private use, defined in docs/identity.md
        JWK = 0xffe2 => "did:jwk",
        /// A number for private use, defined in docs/identity.md
        WEB = 0xffe3 => "did:web",
    }
}

wire_enum! {
    /// How a Certificate message is compressed (RFC 8879 §7.3).
    CertificateCompressionAlgorithm: u16 {
        /// ZLIB (RFC 1950)
        ZLIB = 1 => "zlib",
        /// Brotli (RFC 7932)
        BROTLI = 2 => "brotli",
        /// Zstandard (RFC 8878)
        ZSTD = 3 => "zstd",
    }
}

wire_enum! {
    /// How a pre-shared key is used (RFC 8446 §4.2.9).
    PskKeyExchangeMode: u8 {
        /// PSK alone, without forward secrecy
        PSK_KE = 0 => "psk_ke",
        /// PSK with (EC)DHE
        PSK_DHE_KE = 1 => "psk_dhe_ke",
    }
}

wire_enum! {
    /// Whether the sender of a KeyUpdate asks for one in return (RFC 8446 §4.6.3).
    KeyUpdateRequest: u8 {
        /// The sender wants no answer
        UPDATE_NOT_REQUESTED = 0 => "update_not_requested",
        /// The peer shall update its sending keys too
        UPDATE_REQUESTED = 1 => "update_requested",
    }
}

wire_enum! {
    /// The level of an alert (RFC 8446 §6); TLS 1.3 ignores it on receipt.
    AlertLevel: u8 {
        /// `warning`
        WARNING = 1 => "warning",
        /// `fatal`
        FATAL = 2 => "fatal",
    }
}

wire_enum! {
    /// The description of an alert (RFC 8446 §6).
    AlertDescription: u8 {
        /// An orderly end of one direction
        CLOSE_NOTIFY = 0 => "close_notify",
        /// A message out of order
        UNEXPECTED_MESSAGE = 10 => "unexpected_message",
        /// A record that does not decrypt
        BAD_RECORD_MAC = 20 => "bad_record_mac",
        /// A record larger than agreed
        RECORD_OVERFLOW = 22 => "record_overflow",
        /// No common parameters
        HANDSHAKE_FAILURE = 40 => "handshake_failure",
        /// A certificate that is corrupt or whose signature fails
        BAD_CERTIFICATE = 42 => "bad_certificate",
        /// A certificate of an unsupported kind
        UNSUPPORTED_CERTIFICATE = 43 => "unsupported_certificate",
        /// A revoked certificate
        CERTIFICATE_REVOKED = 44 => "certificate_revoked",
        /// A certificate outside its validity
        CERTIFICATE_EXPIRED = 45 => "certificate_expired",
        /// Another problem with a certificate
        CERTIFICATE_UNKNOWN = 46 => "certificate_unknown",
        /// A field with a forbidden value
        ILLEGAL_PARAMETER = 47 => "illegal_parameter",
        /// No path to a trust anchor
        UNKNOWN_CA = 48 => "unknown_ca",
        /// A valid identity without permission
        ACCESS_DENIED = 49 => "access_denied",
        /// A message that does not parse
        DECODE_ERROR = 50 => "decode_error",
        /// A signature, binder or Finished that does not verify
        DECRYPT_ERROR = 51 => "decrypt_error",
        /// The peer asks for more connection IDs than this side grants (RFC 9147 §9)
        TOO_MANY_CIDS_REQUESTED = 52 => "too_many_cids_requested",
        /// A version that the sender does not support
        PROTOCOL_VERSION = 70 => "protocol_version",
        /// Parameters below the required strength
        INSUFFICIENT_SECURITY = 71 => "insufficient_security",
        /// A fault on the sender's own side
        INTERNAL_ERROR = 80 => "internal_error",
        /// A retry with an unjustified lower version (RFC 7507)
        INAPPROPRIATE_FALLBACK = 86 => "inappropriate_fallback",
        /// The user gave up
        USER_CANCELED = 90 => "user_canceled",
        /// No renegotiation (RFC 5246 §7.2.2)
        NO_RENEGOTIATION = 100 => "no_renegotiation",
        /// A mandatory extension is missing
        MISSING_EXTENSION = 109 => "missing_extension",
        /// An extension that was not offered
        UNSUPPORTED_EXTENSION = 110 => "unsupported_extension",
        /// The server has no service under that name
        UNRECOGNIZED_NAME = 112 => "unrecognized_name",
        /// A stapled OCSP response that the client rejects
        BAD_CERTIFICATE_STATUS_RESPONSE = 113 => "bad_certificate_status_response",
        /// An unknown pre-shared key
        UNKNOWN_PSK_IDENTITY = 115 => "unknown_psk_identity",
        /// The server requires a client certificate
        CERTIFICATE_REQUIRED = 116 => "certificate_required",
        /// RFC 9846 §6.2
        GENERAL_ERROR = 117 => "general_error",
        /// No common application protocol
        NO_APPLICATION_PROTOCOL = 120 => "no_application_protocol",
    }
}

wire_enum! {
    /// The type of an extension (RFC 8446 §4.2 and the IANA registry).
    ExtensionType: u16 {
        /// RFC 6066
        SERVER_NAME = 0 => "server_name",
        /// RFC 6066
        MAX_FRAGMENT_LENGTH = 1 => "max_fragment_length",
        /// RFC 6066
        STATUS_REQUEST = 5 => "status_request",
        /// RFC 8446
        SUPPORTED_GROUPS = 10 => "supported_groups",
        /// RFC 8422
        EC_POINT_FORMATS = 11 => "ec_point_formats",
        /// RFC 8446
        SIGNATURE_ALGORITHMS = 13 => "signature_algorithms",
        /// RFC 5764
        USE_SRTP = 14 => "use_srtp",
        /// RFC 6520
        HEARTBEAT = 15 => "heartbeat",
        /// RFC 7301
        APPLICATION_LAYER_PROTOCOL_NEGOTIATION = 16 => "application_layer_protocol_negotiation",
        /// RFC 6962
        SIGNED_CERTIFICATE_TIMESTAMP = 18 => "signed_certificate_timestamp",
        /// RFC 7250
        CLIENT_CERTIFICATE_TYPE = 19 => "client_certificate_type",
        /// RFC 7250
        SERVER_CERTIFICATE_TYPE = 20 => "server_certificate_type",
        /// RFC 7685
        PADDING = 21 => "padding",
        /// RFC 7627
        EXTENDED_MASTER_SECRET = 23 => "extended_master_secret",
        /// RFC 7924
        CACHED_INFO = 25 => "cached_info",
        /// RFC 8879
        COMPRESS_CERTIFICATE = 27 => "compress_certificate",
        /// RFC 8449
        RECORD_SIZE_LIMIT = 28 => "record_size_limit",
        /// RFC 8773, RFC 9973
        TLS_CERT_WITH_EXTERN_PSK = 33 => "tls_cert_with_extern_psk",
        /// RFC 5077
        SESSION_TICKET = 35 => "session_ticket",
        /// RFC 8446
        PRE_SHARED_KEY = 41 => "pre_shared_key",
        /// RFC 8446
        EARLY_DATA = 42 => "early_data",
        /// RFC 8446
        SUPPORTED_VERSIONS = 43 => "supported_versions",
        /// RFC 8446
        COOKIE = 44 => "cookie",
        /// RFC 8446
        PSK_KEY_EXCHANGE_MODES = 45 => "psk_key_exchange_modes",
        /// RFC 8446
        CERTIFICATE_AUTHORITIES = 47 => "certificate_authorities",
        /// RFC 8446
        OID_FILTERS = 48 => "oid_filters",
        /// RFC 8446
        POST_HANDSHAKE_AUTH = 49 => "post_handshake_auth",
        /// RFC 8446
        SIGNATURE_ALGORITHMS_CERT = 50 => "signature_algorithms_cert",
        /// RFC 8446
        KEY_SHARE = 51 => "key_share",
        /// RFC 9146, RFC 9147
        CONNECTION_ID = 54 => "connection_id",
        /// `ssi_parameters` of its public implementation, only with `SsiMessages::Links`: IANA has
        /// since assigned the number
        SSI_PARAMETERS_LINKS = 60 => "ssi_parameters_links",
        /// RFC 9853
        RRC = 61 => "rrc",
        /// RFC 5746
        RENEGOTIATION_INFO = 0xff01 => "renegotiation_info",
        /// draft-vesco-vcauthtls
        DID_METHODS = 0xff02 => "did_methods",
        /// A number for private use, defined in docs/handshake-cache.md
        HANDSHAKE_CACHE = 0xff20 => "handshake_cache",
        /// A number for private use, defined in docs/identity.md
        SSI_PARAMETERS = 0xff21 => "ssi_parameters",
        /// A number for private use, defined in docs/identity.md
        DID_PROOF = 0xff22 => "did_proof",
        /// A number for private use, defined in docs/association-ports.md
        ASSOCIATION_PORT = 0xff23 => "association_port",
        /// A number for private use, defined in docs/identity.md
        CREDENTIAL_STATUS = 0xff24 => "credential_status",
    }
}

impl CertificateType {
    /// Whether a credential of this type has a variant of its own ([`crate::Credential`]).
    pub(crate) fn has_variant(self) -> bool {
        [Self::X509, Self::RAW_PUBLIC_KEY].contains(&self) || self.is_self_sovereign()
    }

    /// Whether a credential of this type names a decentralised identifier whose key signs.
    pub(crate) fn is_self_sovereign(self) -> bool {
        [Self::VERIFIABLE_CREDENTIAL, Self::DECENTRALISED_IDENTIFIER].contains(&self)
    }
}

impl DidMethod {
    /// The method with this number in ssi_parameters (docs/identity.md).
    pub const fn from_byte(byte: u8) -> Self {
        Self(u16::from_be_bytes([0xff, byte]))
    }

    /// Its number in ssi_parameters. `None` if it has none there.
    pub const fn to_byte(self) -> Option<u8> {
        match self.0.to_be_bytes() {
            [0xff, byte] => Some(byte),
            _ => None,
        }
    }

    /// The name in its identifiers (DID Core §3.1). `None` for a method that this crate does not know.
    const fn method_name(self) -> Option<&'static str> {
        Some(match self {
            Self::BTCR => "btcr",
            Self::ETHR => "ethr",
            Self::IOTA => "iota",
            Self::OTT => "ott",
            Self::BTC => "btc",
            Self::ETH => "eth",
            Self::DUNLIN => "dunlin",
            Self::KEY => "key",
            Self::JWK => "jwk",
            Self::WEB => "web",
            _ => return None,
        })
    }

    /// The method with this name in its identifiers, such as `web`.
    pub fn of(method_name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|method| method.method_name() == Some(method_name))
    }

    /// Whether `did` can be an identifier of this method. Of a method that this crate does not know, any text
    /// can.
    pub(crate) fn may_have(self, did: &[u8]) -> bool {
        let Some(name) = self.method_name() else { return true };
        let rest = did.strip_prefix(b"did:").and_then(|did| did.strip_prefix(name.as_bytes()));
        rest.is_some_and(|rest| rest.starts_with(b":"))
    }
}

impl NamedGroup {
    /// Whether the number belongs to the range of finite fields, named here or not (RFC 7919 §2).
    pub(crate) fn is_finite_field(self) -> bool {
        (0x0100..=0x01ff).contains(&self.0)
    }

    /// Whether the number belongs to the range of private finite fields (RFC 7919 §2).
    pub(crate) fn is_private_field(self) -> bool {
        (0x01fc..=0x01ff).contains(&self.0)
    }

    /// Whether it is a curve that TLS 1.2 can use (RFC 8422 §5.1.1).
    pub(crate) fn is_curve(self) -> bool {
        [Self::SECP256R1, Self::SECP384R1, Self::SECP521R1, Self::X25519].contains(&self)
    }
}

impl SignatureScheme {
    /// The curve of the keys that sign with it, for ECDSA (RFC 8446 §4.2.3).
    pub(crate) const fn curve(self) -> Option<NamedGroup> {
        match self {
            Self::ECDSA_SECP256R1_SHA256 => Some(NamedGroup::SECP256R1),
            Self::ECDSA_SECP384R1_SHA384 => Some(NamedGroup::SECP384R1),
            Self::ECDSA_SECP521R1_SHA512 => Some(NamedGroup::SECP521R1),
            _ => None,
        }
    }

    /// Whether a TLS 1.2 server may sign with it in a suite for ECDSA, which includes EdDSA (RFC 8422 §2.1).
    pub(crate) fn is_ecdsa_or_eddsa(self) -> bool {
        self.curve().is_some() || self == Self::ED25519
    }

    /// Whether it signs with an RSA key.
    pub(crate) fn is_rsa(self) -> bool {
        let with_pss_key = [Self::RSA_PSS_PSS_SHA256, Self::RSA_PSS_PSS_SHA384, Self::RSA_PSS_PSS_SHA512];
        with_pss_key.contains(&self) || self.has_decrypting_key()
    }

    /// Whether it signs with an RSA key of the type rsaEncryption, which can also decrypt.
    pub(crate) fn has_decrypting_key(self) -> bool {
        let pss = [Self::RSA_PSS_RSAE_SHA256, Self::RSA_PSS_RSAE_SHA384, Self::RSA_PSS_RSAE_SHA512];
        pss.contains(&self) || self.is_rsa_pkcs1()
    }

    fn is_rsa_pkcs1(self) -> bool {
        matches!(self, Self::RSA_PKCS1_SHA256 | Self::RSA_PKCS1_SHA384 | Self::RSA_PKCS1_SHA512)
    }

    /// Whether TLS 1.3 allows the scheme in CertificateVerify. RSA PKCS#1 is for chains only, and TLS 1.3 has
    /// no DSA (RFC 8446 §4.2.3).
    pub(crate) fn signs_handshakes(self) -> bool {
        !self.is_rsa_pkcs1() && self != Self::DSA_SHA256
    }

    /// Whether TLS 1.3 allows the scheme in the server's CertificateVerify, so that a client may offer it.
    /// draft-ietf-tls-tls13-pkcs1 §2 defines one scheme for clients alone.
    pub(crate) fn signs_for_servers(self) -> bool {
        self.signs_handshakes() && self != Self::RSA_PKCS1_SHA256_LEGACY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number of datagrams or of another protocol version may get a name. Streams must not take its records
    /// for that.
    #[test]
    fn streams_have_four_types_of_records() {
        let types = (0..=u8::MAX).filter(|typ| ContentType(*typ).is_of_streams());
        assert!(types.eq(20..=23));
    }

    #[test]
    fn only_released_versions_are_real() {
        let real = (0..=u16::MAX).filter(|version| ProtocolVersion(*version).is_real());
        assert!(real.eq([0x0301, 0x0302, 0x0303, 0x0304, 0xfefc, 0xfefd, 0xfeff]));
    }

    /// The names in identifiers belong to the protocol, and those for display say the same.
    #[test]
    fn every_method_has_the_name_of_its_identifiers() {
        for method in DidMethod::ALL {
            let name = method.name().unwrap_or_default();
            assert_eq!(DidMethod::of(name.strip_prefix("did:").unwrap_or_default()), Some(*method));
            assert!(method.may_have(alloc::format!("{name}:x").as_bytes()), "{name}");
            assert!(!method.may_have(name.as_bytes()) && !method.may_have(b"did:other:x"), "{name}");
        }
        assert!(DidMethod(7).may_have(b"did:other:x"));
    }
}
