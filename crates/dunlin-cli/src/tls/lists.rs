//! Values on the command line: lists of suites, groups, signature schemes and protocols by name, and times.

use std::fmt::Display;
use std::time::Duration;

use dunlin::crypto::{
    CryptoProvider, KeyExchangeGroup, SignatureAlgorithms, Tls12CipherSuite, Tls13CipherSuite,
};
use dunlin::wire::{CipherSuite, NamedGroup, SignatureScheme};
use dunlin_awslc::tls12;

/// Everything that this program supports, with the library's defaults. Its RSA keys can also decrypt.
pub(crate) fn provider() -> CryptoProvider {
    CryptoProvider {
        key_loader: dunlin_legacy::rsa::KEY_LOADER,
        signatures: dunlin_awslc::ALL_SIGNATURES,
        ..dunlin_awslc::provider()
    }
}

/// Whether the library's default list leaves the scheme out, because few certificates have such keys.
pub(crate) fn is_by_name_only(scheme: SignatureScheme) -> bool {
    let is_in = |all: SignatureAlgorithms| all.schemes.iter().any(|(s, _)| *s == scheme);
    is_in(dunlin_awslc::ALL_SIGNATURES) && !is_in(dunlin_awslc::SIGNATURES)
}

/// Reads a positive number of seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("not a number of seconds from 1 on".to_owned()),
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
    }
}

/// Reads a number of bytes from MIN to MAX.
pub(crate) fn bytes<const MIN: u16, const MAX: u16>(text: &str) -> Result<u16, String> {
    let bytes = text.parse().ok().filter(|bytes| (MIN..=MAX).contains(bytes));
    bytes.ok_or_else(|| format!("not a number of bytes from {MIN} to {MAX}"))
}

/// A list of named items, in order of preference.
#[derive(Clone)]
pub(crate) struct List<T>(pub(crate) Vec<T>);

/// Reads a list of TLS 1.3 cipher suites.
pub(crate) fn cipher_suites(text: &str) -> Result<List<&'static Tls13CipherSuite>, String> {
    let known = tls13();
    let is_old = |name: &str| tls12().iter().any(|s| is_suite(s.id, name));
    match items(text).find(|name| is_old(name)) {
        Some(name) => Err(format!("{name:?} is for TLS 1.2; give it with --cipher")),
        None => list(text, CipherSuite::from_name, known, |s| s.id),
    }
}

/// Reads a list of TLS 1.2 cipher suites, by IANA's names or OpenSSL's.
pub(crate) fn tls12_cipher_suites(text: &str) -> Result<List<&'static Tls12CipherSuite>, String> {
    let known = tls12();
    let find = |name: &str| {
        let suite = known.iter().copied().find(|s| is_suite(s.id, name));
        suite.ok_or_else(|| {
            if tls13().iter().any(|s| is_suite(s.id, name)) {
                format!("{name:?} is for TLS 1.3; give it with --ciphersuites")
            } else {
                match nearest(name) {
                    Some(nearest) => {
                        format!("{name:?} is not a supported TLS 1.2 cipher suite; the nearest is {nearest}")
                    }
                    None => format!("{name:?} is not a supported TLS 1.2 cipher suite; --help lists them"),
                }
            }
        })
    };
    items(text).map(find).collect::<Result<_, _>>().map(List)
}

/// The supported suite that comes nearest to one with this name: with an ephemeral key exchange in place of
/// static RSA, and with AEAD in place of CBC, RC4 and others. `None` if it is not the name of a suite.
fn nearest(name: &str) -> Option<String> {
    const CIPHERS: [&str; 8] = ["AES", "CHACHA20", "CAMELLIA", "ARIA", "3DES", "DES-CBC", "RC4", "SEED"];
    let name = openssl_form(&name.to_ascii_uppercase());
    let at = CIPHERS.iter().filter_map(|cipher| name.find(cipher)).min()?;
    let (exchange, cipher) = name.split_at_checked(at)?;
    let cipher = match cipher.split('-').next() {
        Some("CHACHA20") => "CHACHA20-POLY1305",
        Some(cipher) if cipher.ends_with("256") => "AES256-GCM-SHA384",
        _ => "AES128-GCM-SHA256",
    };
    let supported = tls12_of_use();
    let mut candidates = [exchange, "ECDHE-RSA-"].into_iter().map(|exchange| format!("{exchange}{cipher}"));
    candidates.find(|name| supported.iter().any(|suite| is_suite(suite.id, name)))
}

/// OpenSSL's names of the TLS 1.2 cipher suites, one line for each key exchange, under the options that
/// enable them.
pub(crate) fn tls12_cipher_suite_names() -> String {
    let is_in = |suites: &[&Tls12CipherSuite], suite: CipherSuite| suites.iter().any(|s| s.id == suite);
    let by_default = |suite| is_in(tls12::TLS12_CIPHER_SUITES, suite);
    let psk_alone = |suite| is_in(tls12::TLS12_PSK_CIPHER_SUITES, suite);
    [
        ("By default:", names(by_default)),
        ("Also with --psk-ke or --allow-no-dhe-kex:", names(psk_alone)),
        ("Only by name:", names(|suite| !by_default(suite) && !psk_alone(suite))),
    ]
    .map(|(who, names)| format!("{who}\n{names}"))
    .join("\n")
}

/// The names of the TLS 1.3 cipher suites, under headings that say when they are offered.
pub(crate) fn cipher_suite_names() -> String {
    let default = provider().cipher_suites;
    let by_default = |suite: CipherSuite| default.iter().any(|s| s.id == suite);
    under_headings(tls13().into_iter().map(|s| s.id), by_default, BY_NAME_ONLY)
}

/// The names of the groups, likewise.
pub(crate) fn group_names() -> String {
    let default = provider().groups;
    let by_default = |group: NamedGroup| default.iter().any(|g| g.name() == group);
    under_headings(known_groups().into_iter().map(|g| g.name()), by_default, BY_NAME_ONLY)
}

/// The names of the signature schemes, likewise.
pub(crate) fn signature_scheme_names() -> String {
    let known = provider().signatures.schemes.iter().map(|(scheme, _)| *scheme);
    let others = "By name, or if --ca or --raw-keys contains such a key:";
    under_headings(known, |scheme| !is_by_name_only(scheme), others)
}

const BY_NAME_ONLY: &str = "Only by name:";

/// Names in two paragraphs: those offered by default, and the `others`.
fn under_headings<N: Copy + Display>(
    known: impl Iterator<Item = N>,
    by_default: impl Fn(N) -> bool,
    others: &str,
) -> String {
    let (default, by_name): (Vec<_>, Vec<_>) = known.partition(|name| by_default(*name));
    let line = |names: &[N]| names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    format!("By default:\n  {}\n{others}\n  {}", line(&default), line(&by_name))
}

/// The names of the suites that `wanted` accepts.
fn names(wanted: impl Fn(CipherSuite) -> bool) -> String {
    let mut lines: Vec<(String, Vec<String>)> = vec![];
    for name in tls12().iter().filter(|suite| wanted(suite.id)).map(|suite| openssl_name(suite.id)) {
        let at = name.find("AES").or_else(|| name.find("CHACHA20")).unwrap_or(0);
        let (exchange, cipher) = name.split_at(at);
        match lines.iter_mut().find(|(known, _)| known == exchange) {
            Some((_, ciphers)) => ciphers.push(cipher.to_owned()),
            None => lines.push((exchange.to_owned(), vec![cipher.to_owned()])),
        }
    }
    let line =
        |(exchange, ciphers): &(String, Vec<String>)| format!("  {exchange}{{{}}}", ciphers.join(", "));
    lines.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn tls13() -> Vec<&'static Tls13CipherSuite> {
    let mut known = provider().cipher_suites;
    // Supported, but only by name because of its short tag.
    known.push(&dunlin_awslc::TLS13_AES_128_CCM_8_SHA256);
    known
}

/// The TLS 1.2 suites that are not for the laboratory.
pub(crate) fn tls12_of_use() -> Vec<&'static Tls12CipherSuite> {
    let short: [&'static Tls12CipherSuite; 5] = [
        &tls12::TLS12_ECDHE_ECDSA_WITH_AES_128_CCM_8,
        &tls12::TLS12_ECDHE_PSK_WITH_AES_128_CCM_8_SHA256,
        &tls12::TLS12_DHE_RSA_WITH_AES_128_CCM_8,
        &tls12::TLS12_PSK_DHE_WITH_AES_128_CCM_8,
        &tls12::TLS12_PSK_WITH_AES_128_CCM_8,
    ];
    let named = [
        tls12::TLS12_CIPHER_SUITES,
        tls12::TLS12_DHE_CIPHER_SUITES,
        tls12::TLS12_PSK_CIPHER_SUITES,
        dunlin_legacy::rsa::TLS12_RSA_PSK_CIPHER_SUITES,
        &short,
    ];
    named.concat()
}

fn tls12() -> Vec<&'static Tls12CipherSuite> {
    [
        &tls12_of_use()[..],
        #[cfg(feature = "legacy-lab")]
        dunlin_legacy::lab::TLS12_LEGACY_CIPHER_SUITES,
    ]
    .concat()
}

fn is_suite(suite: CipherSuite, name: &str) -> bool {
    CipherSuite::from_name(name) == Some(suite) || openssl_name(suite).eq_ignore_ascii_case(name)
}

/// OpenSSL's name of a TLS 1.2 suite, ciphers(1).
fn openssl_name(suite: CipherSuite) -> String {
    openssl_form(&suite.to_string())
}

/// IANA's name of a TLS 1.2 suite in OpenSSL's form; a name in that form stays the same.
fn openssl_form(name: &str) -> String {
    let name = name.replace("PSK_DHE", "DHE_PSK").replace("_WITH_", "_").replace("AES_", "AES");
    let name = name.replace("CCM_8", "CCM8").replace("POLY1305_SHA256", "POLY1305");
    let name = name.trim_start_matches("TLS_").replace("DH_anon", "ADH").replace('_', "-");
    // OpenSSL's names omit static RSA.
    name.strip_prefix("RSA-").filter(|rest| rest.starts_with("AES")).map_or(name.clone(), str::to_owned)
}

/// The finite fields for DHE suites, the fastest first.
pub(crate) const FINITE_FIELDS: [&dyn KeyExchangeGroup; 3] =
    [dunlin_legacy::ffdhe::FFDHE2048, dunlin_legacy::ffdhe::FFDHE3072, dunlin_legacy::ffdhe::FFDHE4096];

/// The groups that this program offers by name only: few servers need P-521, and post-quantum shares take up
/// to 2 kB more.
const BY_NAME: [&dyn KeyExchangeGroup; 5] = [
    dunlin_awslc::SECP521R1,
    dunlin_awslc::X25519MLKEM768,
    dunlin_awslc::SECP256R1MLKEM768,
    dunlin_awslc::ML_KEM_512,
    dunlin_awslc::ML_KEM_768,
];

/// Reads a list of groups.
pub(crate) fn groups(text: &str) -> Result<List<&'static dyn KeyExchangeGroup>, String> {
    let known = known_groups();
    #[cfg(feature = "legacy-lab")]
    let known = {
        use dunlin_legacy::lab::{LAB_512, LAB_1024, LAB_2048};
        [known, vec![LAB_512, LAB_1024, LAB_2048]].concat()
    };
    list(text, group, known, |g| g.name())
}

/// The groups that are not for the laboratory.
fn known_groups() -> Vec<&'static dyn KeyExchangeGroup> {
    let mut known = provider().groups;
    known.extend(BY_NAME);
    // Also only by name, because they are slow.
    known.extend(FINITE_FIELDS);
    known
}

/// Reads a list of signature schemes.
pub(crate) fn signature_schemes(text: &str) -> Result<List<SignatureScheme>, String> {
    let known = provider().signatures.schemes.iter().map(|(scheme, _)| *scheme).collect();
    list(text, SignatureScheme::from_name, known, |s| s)
}

/// Reads a list of application protocols, separated by commas as in OpenSSL.
pub(crate) fn protocols(text: &str) -> Result<List<Vec<u8>>, String> {
    match text.split(',').map(str::len).find(|len| *len == 0 || *len > 255) {
        Some(len) => Err(format!("a protocol's name has 1 to 255 bytes, one here has {len}")),
        None => Ok(List(text.split(',').map(|p| p.as_bytes().to_vec()).collect())),
    }
}

/// Finds a group by its name in TLS or by another name.
fn group(name: &str) -> Option<NamedGroup> {
    match name {
        "P-256" | "prime256v1" => Some(NamedGroup::SECP256R1),
        "P-384" => Some(NamedGroup::SECP384R1),
        "P-521" => Some(NamedGroup::SECP521R1),
        name => NamedGroup::from_name(name),
    }
}

/// Reads names separated by colons or commas; each must be one of `known`.
fn list<T: Copy, N: PartialEq + Display>(
    text: &str,
    by_name: impl Fn(&str) -> Option<N>,
    known: Vec<T>,
    name_of: impl Fn(T) -> N,
) -> Result<List<T>, String> {
    let find = |name: &str| {
        let wanted = by_name(name);
        known.iter().copied().find(|k| wanted.as_ref() == Some(&name_of(*k))).ok_or_else(|| {
            let names: Vec<_> = known.iter().map(|k| name_of(*k).to_string()).collect();
            format!("{name:?} is not one of {}", names.join(", "))
        })
    };
    items(text).map(find).collect::<Result<_, _>>().map(List)
}

fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split([':', ','])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_names_in_order() {
        let suites = cipher_suites("TLS_AES_128_CCM_8_SHA256:tls_aes_256_gcm_sha384").unwrap().0;
        let suites: Vec<_> = suites.iter().map(|s| s.id).collect();
        assert_eq!(suites, [CipherSuite::TLS_AES_128_CCM_8_SHA256, CipherSuite::TLS_AES_256_GCM_SHA384]);
        let groups: Vec<_> = groups("P-256,X25519,P-521").unwrap().0.iter().map(|g| g.name()).collect();
        assert_eq!(groups, [NamedGroup::SECP256R1, NamedGroup::X25519, NamedGroup::SECP521R1]);
        assert_eq!(signature_schemes("ed25519").unwrap().0, [SignatureScheme::ED25519]);
        assert_eq!(protocols("h2,http/1.1").unwrap().0, [b"h2".to_vec(), b"http/1.1".to_vec()]);
    }

    /// Names from `openssl ciphers -stdname`, and one that OpenSSL lacks.
    #[test]
    fn accepts_openssls_names_of_suites() {
        for (openssl, iana) in [
            ("ECDHE-ECDSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
            ("ECDHE-ECDSA-AES128-CCM8", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8),
            ("ECDHE-RSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
            ("DHE-RSA-AES256-GCM-SHA384", CipherSuite::TLS_DHE_RSA_WITH_AES_256_GCM_SHA384),
            ("DHE-PSK-AES128-CCM8", CipherSuite::TLS_PSK_DHE_WITH_AES_128_CCM_8),
            ("PSK-AES128-CCM", CipherSuite::TLS_PSK_WITH_AES_128_CCM),
            ("PSK-CHACHA20-POLY1305", CipherSuite::TLS_PSK_WITH_CHACHA20_POLY1305_SHA256),
            ("ecdhe-psk-aes128-gcm-sha256", CipherSuite::TLS_ECDHE_PSK_WITH_AES_128_GCM_SHA256),
        ] {
            let suites = tls12_cipher_suites(openssl).unwrap().0;
            assert_eq!(suites.iter().map(|s| s.id).collect::<Vec<_>>(), [iana], "{openssl}");
            assert!(tls12_cipher_suites(&iana.to_string()).is_ok());
        }
        let names = tls12_cipher_suite_names();
        assert!(names.contains("\n  PSK-{AES128-GCM-SHA256, "), "{names}");
        for (text, told) in [
            ("HIGH", "\"HIGH\" is not a supported TLS 1.2 cipher suite; --help lists them"),
            (
                "TLS_AES_128_GCM_SHA256",
                "\"TLS_AES_128_GCM_SHA256\" is for TLS 1.3; give it with --ciphersuites",
            ),
        ] {
            assert_eq!(tls12_cipher_suites(text).err().unwrap(), told);
        }
        for (text, nearest) in [
            ("ECDHE-RSA-AES128-SHA", "ECDHE-RSA-AES128-GCM-SHA256"),
            ("ECDHE-ECDSA-AES256-SHA384", "ECDHE-ECDSA-AES256-GCM-SHA384"),
            ("camellia256-sha", "ECDHE-RSA-AES256-GCM-SHA384"),
            ("TLS_ECDHE_PSK_WITH_AES_128_CBC_SHA256", "ECDHE-PSK-AES128-GCM-SHA256"),
            ("DES-CBC3-SHA", "ECDHE-RSA-AES128-GCM-SHA256"),
        ] {
            let told = tls12_cipher_suites(text).err().unwrap();
            assert!(told.ends_with(&format!("cipher suite; the nearest is {nearest}")), "{told}");
        }
        // The laboratory has static RSA.
        if !cfg!(feature = "legacy-lab") {
            let told = tls12_cipher_suites("AES128-GCM-SHA256").err().unwrap();
            assert!(told.ends_with("the nearest is ECDHE-RSA-AES128-GCM-SHA256"), "{told}");
        }
        let told = cipher_suites("PSK-AES128-CCM").err().unwrap();
        assert_eq!(told, "\"PSK-AES128-CCM\" is for TLS 1.2; give it with --cipher");
    }

    #[test]
    fn help_lists_the_names_by_default_and_the_others() {
        let suites = cipher_suite_names();
        assert!(
            suites.contains("By default:\n  TLS_AES_") && suites.ends_with(" TLS_AES_128_CCM_8_SHA256"),
            "{suites}"
        );
        let groups = group_names();
        let expected = "By default:\n  x25519, secp256r1, secp384r1\nOnly by name:\n  secp521r1, X25519MLKEM768, \
                        SecP256r1MLKEM768, MLKEM512, MLKEM768, ffdhe2048, ffdhe3072, ffdhe4096";
        assert_eq!(groups, expected);
        let schemes = signature_scheme_names();
        let (default, others) = schemes.split_once("By name, or").unwrap();
        assert!(default.contains("ecdsa_secp256r1_sha256") && !default.contains("mldsa65"), "{schemes}");
        assert!(others.contains("mldsa65") && others.contains("rsa_pss_pss_sha256"), "{schemes}");
    }

    #[test]
    fn error_lists_the_known_names() {
        let error = groups("x25519:P-224").err().unwrap();
        let known = "x25519, secp256r1, secp384r1, secp521r1, X25519MLKEM768, SecP256r1MLKEM768, MLKEM512, MLKEM768, \
                     ffdhe2048, ffdhe3072, ffdhe4096";
        let of_lab = if cfg!(feature = "legacy-lab") {
            ", ffdhe_private_use_0, ffdhe_private_use_1, ffdhe_private_use_2"
        } else {
            ""
        };
        assert_eq!(error, format!("\"P-224\" is not one of {known}{of_lab}"));
        assert!(cipher_suites("").is_err());
        assert!(protocols("h2,").is_err());
    }
}
