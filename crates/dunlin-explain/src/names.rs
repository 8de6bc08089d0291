//! Names of code points: the engine's, and names from IANA's registries for values that only other stacks
//! send.

use dunlin::wire::{CipherSuite, ExtensionType, HandshakeType, NamedGroup, SignatureScheme};

/// The registry "TLS HandshakeType", without the values that the engine knows.
const MESSAGES: &[(u16, &str)] =
    &[(3, "hello_verify_request"), (21, "certificate_url"), (23, "supplemental_data")];

/// The registry "TLS ExtensionType Values", without the values that the engine knows.
const EXTENSIONS: &[(u16, &str)] = &[
    (9, "cert_type"),
    (12, "srp"),
    (17, "status_request_v2"),
    (22, "encrypt_then_mac"),
    (24, "token_binding"),
    (25, "cached_info"),
    (34, "delegated_credential"),
    (53, "connection_id (deprecated)"),
    (55, "external_id_hash"),
    (56, "external_session_id"),
    (57, "quic_transport_parameters"),
    (58, "ticket_request"),
    (59, "dnssec_chain"),
    (62, "tls_flags"),
    (0xfe0d, "encrypted_client_hello"),
];

/// The registry "TLS Cipher Suites": common suites before TLS 1.3, without those that the engine knows.
const CIPHER_SUITES: &[(u16, &str)] = &[
    (0x002f, "TLS_RSA_WITH_AES_128_CBC_SHA"),
    (0x0033, "TLS_DHE_RSA_WITH_AES_128_CBC_SHA"),
    (0x0035, "TLS_RSA_WITH_AES_256_CBC_SHA"),
    (0x0039, "TLS_DHE_RSA_WITH_AES_256_CBC_SHA"),
    (0x003c, "TLS_RSA_WITH_AES_128_CBC_SHA256"),
    (0x003d, "TLS_RSA_WITH_AES_256_CBC_SHA256"),
    (0x0067, "TLS_DHE_RSA_WITH_AES_128_CBC_SHA256"),
    (0x006b, "TLS_DHE_RSA_WITH_AES_256_CBC_SHA256"),
    (0x008c, "TLS_PSK_WITH_AES_128_CBC_SHA"),
    (0x009c, "TLS_RSA_WITH_AES_128_GCM_SHA256"),
    (0x009d, "TLS_RSA_WITH_AES_256_GCM_SHA384"),
    (0x00a2, "TLS_DHE_DSS_WITH_AES_128_GCM_SHA256"),
    (0x00a3, "TLS_DHE_DSS_WITH_AES_256_GCM_SHA384"),
    (0x00ac, "TLS_RSA_PSK_WITH_AES_128_GCM_SHA256"),
    (0x00ad, "TLS_RSA_PSK_WITH_AES_256_GCM_SHA384"),
    (0x00ae, "TLS_PSK_WITH_AES_128_CBC_SHA256"),
    (0xc009, "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"),
    (0xc00a, "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA"),
    (0xc013, "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"),
    (0xc014, "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA"),
    (0xc023, "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256"),
    (0xc024, "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384"),
    (0xc027, "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256"),
    (0xc028, "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384"),
    (0xc037, "TLS_ECDHE_PSK_WITH_AES_128_CBC_SHA256"),
    (0xc09c, "TLS_RSA_WITH_AES_128_CCM"),
    (0xc09d, "TLS_RSA_WITH_AES_256_CCM"),
    (0xc09f, "TLS_DHE_RSA_WITH_AES_256_CCM"),
    (0xc0a0, "TLS_RSA_WITH_AES_128_CCM_8"),
    (0xc0a1, "TLS_RSA_WITH_AES_256_CCM_8"),
    (0xc0a3, "TLS_DHE_RSA_WITH_AES_256_CCM_8"),
    (0xc0a5, "TLS_PSK_WITH_AES_256_CCM"),
    (0xc0a7, "TLS_DHE_PSK_WITH_AES_256_CCM"),
    (0xc0a9, "TLS_PSK_WITH_AES_256_CCM_8"),
    (0xc0ad, "TLS_ECDHE_ECDSA_WITH_AES_256_CCM"),
    (0xc0af, "TLS_ECDHE_ECDSA_WITH_AES_256_CCM_8"),
];

/// The registry "TLS Supported Groups", without the values that the engine knows.
const GROUPS: &[(u16, &str)] = &[
    (0x001a, "brainpoolP256r1"),
    (0x001b, "brainpoolP384r1"),
    (0x001c, "brainpoolP512r1"),
    (0x001e, "x448"),
    (0x0103, "ffdhe6144"),
    (0x0104, "ffdhe8192"),
    (0x11ed, "SecP384r1MLKEM1024"),
];

/// The registry "TLS SignatureScheme", without the values that the engine knows.
const SIGNATURE_SCHEMES: &[(u16, &str)] = &[
    (0x0201, "rsa_pkcs1_sha1"),
    (0x0203, "ecdsa_sha1"),
    (0x0808, "ed448"),
    (0x081a, "ecdsa_brainpoolP256r1tls13_sha256"),
    (0x081b, "ecdsa_brainpoolP384r1tls13_sha384"),
    (0x081c, "ecdsa_brainpoolP512r1tls13_sha512"),
    (0x0906, "mldsa87"),
];

/// The engine's name for a number, else the one in `table`, else "GREASE" if it is such a value.
fn name(engine: Option<&'static str>, table: &[(u16, &'static str)], number: u16) -> Option<&'static str> {
    let grease = is_grease(number).then_some("GREASE");
    engine.or_else(|| table.iter().find(|(n, _)| *n == number).map(|(_, name)| *name)).or(grease)
}

/// Whether the number is a GREASE value, which receivers must ignore (RFC 8701 §2).
const fn is_grease(number: u16) -> bool {
    number & 0x0f0f == 0x0a0a && number >> 8 == number & 0xff
}

/// The message's name in the RFCs. `is_retry` marks a HelloRetryRequest, which shares its number with
/// ServerHello.
pub fn message(typ: HandshakeType, is_retry: bool) -> String {
    if is_retry {
        return "HelloRetryRequest".into();
    }
    let capitalised = |word: &str| {
        let (first, rest) = word.split_at(word.chars().next().map_or(0, char::len_utf8));
        first.to_uppercase() + rest
    };
    match name(typ.name(), MESSAGES, typ.0.into()) {
        Some(name) => name.split('_').map(capitalised).collect(),
        None => format!("handshake message {}", typ.0),
    }
}

/// The extension's name in the registry "TLS ExtensionType Values".
pub(crate) fn extension(typ: ExtensionType) -> String {
    name(typ.name(), EXTENSIONS, typ.0).map_or_else(|| format!("extension {}", typ.0), str::to_owned)
}

/// The suite's name in the registry "TLS Cipher Suites", or its number if it is an unusual one.
pub fn cipher_suite(suite: CipherSuite) -> String {
    name(suite.name(), CIPHER_SUITES, suite.0).map_or_else(|| suite.to_string(), str::to_owned)
}

/// The group's name in the registry "TLS Supported Groups".
pub(crate) fn group(group: NamedGroup) -> String {
    name(group.name(), GROUPS, group.0).map_or_else(|| group.to_string(), str::to_owned)
}

/// The scheme's name in the registry "TLS SignatureScheme".
pub(crate) fn signature_scheme(scheme: SignatureScheme) -> String {
    name(scheme.name(), SIGNATURE_SCHEMES, scheme.0).map_or_else(|| scheme.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_messages_as_the_rfcs_do() {
        assert_eq!(message(HandshakeType::ENCRYPTED_EXTENSIONS, false), "EncryptedExtensions");
        assert_eq!(message(HandshakeType::SERVER_HELLO, true), "HelloRetryRequest");
        assert_eq!(message(HandshakeType(14), false), "ServerHelloDone");
        assert_eq!(message(HandshakeType(99), false), "handshake message 99");
    }

    #[test]
    fn prefers_the_engines_names_to_the_tables() {
        assert_eq!(extension(ExtensionType::KEY_SHARE), "key_share");
        assert_eq!(extension(ExtensionType(23)), "extended_master_secret");
        assert_eq!(extension(ExtensionType(0x3a3a)), "GREASE");
        assert_eq!(extension(ExtensionType(0x3a4a)), "extension 14922");
        assert_eq!(group(NamedGroup(0x11ec)), "X25519MLKEM768");
        assert_eq!(group(NamedGroup(0x0019)), "secp521r1");
        assert_eq!(signature_scheme(SignatureScheme(0x0808)), "ed448");
        assert_eq!(cipher_suite(CipherSuite(0x1234)), "0x1234");
    }

    /// Sorting exposes duplicates.
    #[test]
    fn tables_are_sorted() {
        for table in [MESSAGES, EXTENSIONS, CIPHER_SUITES, GROUPS, SIGNATURE_SCHEMES] {
            assert!(table.is_sorted_by_key(|(number, _)| *number));
        }
    }
}
