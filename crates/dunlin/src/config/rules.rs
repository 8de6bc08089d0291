//! The rules that a profile must obey. They report a bad profile when it is built, before any peer meets it.

use alloc::format;
use alloc::string::{String, ToString};

use crate::auth::Credential;
use crate::crypto::{Tls12CipherSuite, Tls12KeyExchange};
use crate::error::{Error, Misuse};
use crate::extension::{max_fragment_length, record_size_limit};
use crate::settings::ProfileSettings;
use crate::wire::{CertificateType, PskKeyExchangeMode, SignatureScheme};

/// The largest record_size_limit, in bytes: 2^14 bytes of content and 1 for the content type (RFC 8449 §4).
const MAX_RECORD_SIZE_LIMIT: u16 = 16385;

/// The error that tells which rule a profile breaks.
pub(super) fn broken(profile: &ProfileSettings, why: String) -> Error {
    Misuse::Config(format!("profile {}: {why}", profile.name)).into()
}

/// A rule. Returns the fault of a profile that breaks it.
type Rule = fn(&ProfileSettings) -> Option<String>;

/// The rules, in the order in which faults are reported.
static RULES: &[Rule] = &[
    has_suites,
    has_no_private_group_in_tls13,
    protects,
    repeats_no_algorithm,
    has_psk_modes,
    combines_psks_with_certificates,
    knows_psk_modes,
    verifies_signatures,
    resolves_identifiers,
    carries_identifiers,
    trusts_peer_types,
    has_usable_credentials,
    refers_to_certificates,
    repeats_no_compression,
    has_valid_lengths,
    has_valid_authorities,
    renews_keys,
];

/// Checks a profile against all rules.
pub(super) fn check(profile: &ProfileSettings) -> Result<(), Error> {
    match RULES.iter().find_map(|rule| rule(profile)) {
        Some(why) => Err(broken(profile, why)),
        None => Ok(()),
    }
}

fn tls12_suites(profile: &ProfileSettings) -> &[&'static Tls12CipherSuite] {
    profile.tls12.as_ref().map_or(&[][..], |tls12| &tls12.suites)
}

fn has_suites(profile: &ProfileSettings) -> Option<String> {
    let has_none = profile.cipher_suites.is_empty() && tls12_suites(profile).is_empty();
    has_none.then(|| "it has no cipher suite".into())
}

fn has_no_private_group_in_tls13(profile: &ProfileSettings) -> Option<String> {
    let of_lab = profile.groups.iter().find(|group| group.name().is_private_field());
    let group = of_lab.filter(|_| profile.has_tls13() || profile.tls12.is_none())?;
    Some(format!("the group {} is for TLS 1.2 alone", group.name()))
}

fn protects(profile: &ProfileSettings) -> Option<String> {
    if profile.tls12.as_ref().is_some_and(|tls12| tls12.legacy_lab) {
        return None;
    }
    let what = legacy(profile)?;
    Some(format!(
        "{what} protects nothing and is for the laboratory only: allow it there with danger_legacy_lab"
    ))
}

fn repeats_no_algorithm(profile: &ProfileSettings) -> Option<String> {
    let suites = profile.cipher_suites.iter().map(|s| s.id);
    if repeats(suites) || repeats(tls12_suites(profile).iter().map(|s| s.id)) {
        return Some("a cipher suite stands twice".into());
    }
    repeats(profile.groups.iter().map(|g| g.name())).then(|| "a group stands twice".into())
}

fn has_psk_modes(profile: &ProfileSettings) -> Option<String> {
    if profile.psk.modes.is_empty() {
        let why = "it has no PSK key exchange mode: leave the default, psk_dhe_ke, where no PSK is used";
        return Some(why.into());
    }
    let psk_alone = profile.psk.modes == [PskKeyExchangeMode::PSK_KE];
    let lacks_groups = profile.groups.is_empty() && !psk_alone && profile.has_tls13();
    lacks_groups
        .then(|| "without groups only psk_ke is possible: add a group, or set the PSK modes to psk_ke".into())
}

/// RFC 8773 §4, §5.1: TLS 1.3 with (EC)DHE, and certificates that authenticate.
fn combines_psks_with_certificates(profile: &ProfileSettings) -> Option<String> {
    let why = match profile.psk.tls_cert_with_extern_psk {
        false => return None,
        true if !profile.has_tls13() || !profile.allows_mode(PskKeyExchangeMode::PSK_DHE_KE) => {
            "a PSK beside certificates needs a suite of TLS 1.3 and the PSK mode psk_dhe_ke"
        }
        true if profile.trust.is_empty() && profile.credentials.is_empty() => {
            "a PSK beside certificates needs trust or a credential"
        }
        true if profile.psk.extern_psk_required && profile.tls12.is_some() => {
            "TLS 1.2 has no PSK beside certificates: remove its suites, or do not require one"
        }
        true => return None,
    };
    Some(why.into())
}

fn knows_psk_modes(profile: &ProfileSettings) -> Option<String> {
    let modes = [PskKeyExchangeMode::PSK_KE, PskKeyExchangeMode::PSK_DHE_KE];
    let mode = profile.psk.modes.iter().find(|mode| !modes.contains(mode))?;
    Some(format!("the PSK key exchange mode {mode} is unknown"))
}

fn verifies_signatures(profile: &ProfileSettings) -> Option<String> {
    let for_chains = profile.certificate_signature_schemes.as_deref();
    if for_chains.is_some_and(<[_]>::is_empty) {
        return Some("its list of signature schemes for certificates is empty: leave it out".into());
    }
    let lacks = |scheme: &&SignatureScheme| profile.provider.signatures.for_scheme(**scheme).is_empty();
    if let Some(scheme) = profile.signature_schemes.iter().chain(for_chains.unwrap_or_default()).find(lacks) {
        return Some(format!("the provider {} cannot verify {scheme}", profile.provider.name));
    }
    // TLS 1.2 also allows RSA PKCS#1 v1.5.
    let for_clients_alone = |s: &SignatureScheme| *s == SignatureScheme::RSA_PKCS1_SHA256_LEGACY;
    let signs = |s: &SignatureScheme| s.signs_for_servers() || !profile.has_tls13() && !for_clients_alone(s);
    let verifies_none = !profile.trust.is_empty() && !profile.signature_schemes.iter().any(signs);
    verifies_none
        .then(|| "it trusts certificates or keys but verifies no signature scheme of handshakes".into())
}

fn resolves_identifiers(profile: &ProfileSettings) -> Option<String> {
    profile.trust.iter().find_map(|verifier| {
        if let Err(why) = verifier.check() {
            return Some(why.into());
        }
        let typ = verifier.certificate_type();
        if !typ.is_self_sovereign() {
            return None;
        }
        let methods = verifier.did_methods();
        if methods.is_empty() {
            return Some(format!("the verifier of the type {typ} resolves no method of identifiers"));
        }
        let lacks_number = profile.ssi.is_on() && !methods.iter().any(|method| method.to_byte().is_some());
        lacks_number
            .then(|| format!("no method of the verifier of the type {typ} has a number in ssi_parameters"))
    })
}

fn carries_identifiers(profile: &ProfileSettings) -> Option<String> {
    if profile.ssi.is_on() {
        return (!profile.has_tls13()).then(|| "ssi_parameters needs a suite of TLS 1.3".into());
    }
    let bare = CertificateType::DECENTRALISED_IDENTIFIER;
    let has_bare = profile.credentials.iter().any(|credential| credential.certificate_type() == bare);
    (has_bare || profile.trust.types().contains(&bare))
        .then(|| "a bare decentralised identifier has no certificate type: set ssi_messages".into())
}

fn trusts_peer_types(profile: &ProfileSettings) -> Option<String> {
    let trusted = profile.trust.types();
    let typ = profile.certificates.peer_types.iter().flatten().find(|t| !trusted.contains(t))?;
    Some(format!("the peer may send a certificate of the type {typ}, which is not trusted"))
}

fn has_usable_credentials(profile: &ProfileSettings) -> Option<String> {
    profile.credentials.iter().find_map(credential_fault)
}

fn credential_fault(credential: &Credential) -> Option<String> {
    let fault = match credential {
        Credential::X509 { chain, .. } if chain.is_empty() => {
            Some("an X.509 credential has no certificate".into())
        }
        Credential::Other { certificate_type, .. } if certificate_type.has_variant() => {
            Some(format!("a credential of the type {certificate_type} has a variant of its own"))
        }
        Credential::Other { certificate_type, entries, .. }
            if entries.is_empty() || entries.iter().any(|entry| entry.is_empty()) =>
        {
            Some(format!("a credential of the type {certificate_type} has no entry or an empty one"))
        }
        Credential::Verifiable { credential, .. } => credential.fault(),
        Credential::Identifier { identifier, .. } => identifier.fault(),
        Credential::X509 { .. } | Credential::RawKey { .. } | Credential::Other { .. } => None,
    };
    let signs = !credential.key().schemes().is_empty();
    fault.or_else(|| (!signs).then(|| "a credential's key can sign with no scheme".into()))
}

/// The settings that name a credential by its index.
fn refers_to_certificates(profile: &ProfileSettings) -> Option<String> {
    let lacks = |index: usize| !matches!(profile.credentials.get(index), Some(Credential::X509 { .. }));
    if let Some(index) = profile.certificates.reserved.iter().find(|index| lacks(**index)) {
        return Some(format!("credential {index}, which is reserved, has no certificate"));
    }
    let (index, _) =
        profile.certificates.stapled.iter().find(|(index, response)| lacks(*index) || response.is_empty())?;
    Some(format!("the OCSP response for credential {index} is empty or has no certificate"))
}

fn repeats_no_compression(profile: &ProfileSettings) -> Option<String> {
    let does =
        profile.decompresses() && repeats(profile.certificates.decompressors.iter().map(|d| d.algorithm()));
    does.then(|| "a certificate compression algorithm stands twice".into())
}

fn has_valid_lengths(profile: &ProfileSettings) -> Option<String> {
    if let Some(bad) = profile.alpn.iter().find(|p| p.is_empty() || p.len() > 255) {
        return Some(format!("an ALPN name has 1 to 255 bytes, one here has {}", bad.len()));
    }
    if let Some(limit) = profile.records.record_size_limit
        && !(record_size_limit::MIN..=MAX_RECORD_SIZE_LIMIT).contains(&limit)
    {
        return Some(format!("record_size_limit is 64 to 16385 bytes, not {limit}"));
    }
    if let Some(length) = profile.records.max_fragment_length
        && !max_fragment_length::LENGTHS.contains(&length)
    {
        return Some(format!("max_fragment_length is 512, 1024, 2048 or 4096 bytes, not {length}"));
    }
    let content = profile.records.max_sent_record?;
    let is_valid = (record_size_limit::MIN..MAX_RECORD_SIZE_LIMIT).contains(&content);
    (!is_valid).then(|| format!("the largest record to send has 64 to 16384 bytes, not {content}"))
}

/// RFC 8446 §4.2.4: each name has 1 to 2^16-1 bytes, and the whole list has at most 2^16-1 bytes.
fn has_valid_authorities(profile: &ProfileSettings) -> Option<String> {
    let names = profile.certificates.named_authorities.iter().map(|name| name.len());
    let is_bad =
        names.clone().any(|len| len == 0) || names.map(|len| 2 + len).sum::<usize>() > u16::MAX.into();
    is_bad.then(|| "a name of an authority is empty, or they are too long".into())
}

fn renews_keys(profile: &ProfileSettings) -> Option<String> {
    (profile.records.key_update_after == Some(0))
        .then(|| "the keys must be good for at least one record".into())
}

/// The first fault in the TLS 1.2 suites of a profile. Only [`crate::ProfileBuilder::tls12_cipher_suites`]
/// refers to this function, so other programs do not link it.
pub(super) fn tls12_fault(profile: &ProfileSettings) -> Option<String> {
    let curve = profile.groups.iter().any(|g| g.name().is_curve());
    let field = profile.groups.iter().any(|g| g.finite_field().is_some());
    let rsa = profile.tls12.as_ref().is_some_and(|tls12| tls12.rsa.is_some());
    let rsa = rsa || profile.credentials.iter().any(|credential| credential.key().decryption().is_some());
    let fault = |suite: &&Tls12CipherSuite| match suite.key_exchange {
        _ if !suite.is_known() => {
            Some(format!("{} has a key exchange and an authentication that do not go together", suite.id))
        }
        Tls12KeyExchange::Rsa if !rsa => {
            Some(format!("{} needs RSA encryption, or a credential whose key decrypts", suite.id))
        }
        Tls12KeyExchange::Ecdhe if !curve => Some(format!("{} needs a group that is a curve", suite.id)),
        Tls12KeyExchange::Dhe if !field => Some(format!("{} needs a group that is a finite field", suite.id)),
        _ => None,
    };
    profile.tls12.iter().flat_map(|tls12| &tls12.suites).find_map(fault)
}

/// The first part of a profile that protects nothing, and is only for the laboratory.
fn legacy(profile: &ProfileSettings) -> Option<String> {
    let suites = profile.tls12.iter().flat_map(|tls12| &tls12.suites);
    let suite = suites.filter(|suite| suite.is_legacy()).map(|suite| suite.id.to_string()).next();
    let group = profile.groups.iter().find(|group| group.name().is_private_field());
    let rsa = profile.tls12.as_ref().and_then(|tls12| tls12.rsa);
    suite
        .or_else(|| group.map(|group| group.name().to_string()))
        // A provider that verifies DSA also accepts short RSA keys.
        .or_else(|| {
            let verifies = !profile.provider.signatures.for_scheme(SignatureScheme::DSA_SHA256).is_empty();
            verifies.then(|| format!("the provider {}, which verifies DSA,", profile.provider.name))
        })
        .or_else(|| rsa.filter(|rsa| rsa.is_legacy()).map(|_| "encryption with short RSA keys".into()))
}

fn repeats<T: PartialEq>(items: impl Iterator<Item = T> + Clone) -> bool {
    items.clone().enumerate().any(|(i, item)| items.clone().skip(i + 1).any(|other| other == item))
}
