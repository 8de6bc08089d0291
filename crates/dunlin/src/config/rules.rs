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

pub(super) fn check(profile: &ProfileSettings) -> Result<(), Error> {
    let fail = |why: String| Err(broken(profile, why));
    let tls12 = profile.tls12.as_ref().map_or(&[][..], |tls12| &tls12.suites);
    if profile.cipher_suites.is_empty() && tls12.is_empty() {
        return fail("it has no cipher suite".into());
    }
    let of_lab = profile.groups.iter().find(|group| group.name().is_private_field());
    if let Some(group) = of_lab.filter(|_| profile.has_tls13() || profile.tls12.is_none()) {
        return fail(format!("the group {} is for TLS 1.2 alone", group.name()));
    }
    if !profile.tls12.as_ref().is_some_and(|tls12| tls12.legacy_lab)
        && let Some(what) = legacy(profile)
    {
        return fail(format!(
            "{what} protects nothing and is for the laboratory only: allow it there with danger_legacy_lab"
        ));
    }
    if repeats(profile.cipher_suites.iter().map(|s| s.id)) || repeats(tls12.iter().map(|s| s.id)) {
        return fail("a cipher suite stands twice".into());
    }
    if repeats(profile.groups.iter().map(|g| g.name())) {
        return fail("a group stands twice".into());
    }
    if profile.psk_modes.is_empty() {
        return fail(
            "it has no PSK key exchange mode: leave the default, psk_dhe_ke, where no PSK is used".into(),
        );
    }
    let psk_alone = profile.psk_modes == [PskKeyExchangeMode::PSK_KE];
    if profile.groups.is_empty() && !psk_alone && profile.has_tls13() {
        return fail(
            "without groups only psk_ke is possible: add a group, or set the PSK modes to psk_ke".into(),
        );
    }
    if profile.tls_cert_with_extern_psk {
        // RFC 8773 §4, §5.1: TLS 1.3 with (EC)DHE, and certificates that authenticate.
        if !profile.has_tls13() || !profile.allows_mode(PskKeyExchangeMode::PSK_DHE_KE) {
            return fail(
                "a PSK beside certificates needs a suite of TLS 1.3 and the PSK mode psk_dhe_ke".into(),
            );
        }
        if profile.trust.is_empty() && profile.credentials.is_empty() {
            return fail("a PSK beside certificates needs trust or a credential".into());
        }
        if profile.extern_psk_required && profile.tls12.is_some() {
            return fail(
                "TLS 1.2 has no PSK beside certificates: remove its suites, or do not require one".into(),
            );
        }
    }
    let modes = [PskKeyExchangeMode::PSK_KE, PskKeyExchangeMode::PSK_DHE_KE];
    if let Some(mode) = profile.psk_modes.iter().find(|mode| !modes.contains(mode)) {
        return fail(format!("the PSK key exchange mode {mode} is unknown"));
    }
    let for_chains = profile.certificate_signature_schemes.as_deref();
    if for_chains.is_some_and(<[_]>::is_empty) {
        return fail("its list of signature schemes for certificates is empty: leave it out".into());
    }
    for scheme in profile.signature_schemes.iter().chain(for_chains.unwrap_or_default()) {
        if profile.provider.signatures.for_scheme(*scheme).is_empty() {
            return fail(format!("the provider {} cannot verify {scheme}", profile.provider.name));
        }
    }
    // TLS 1.2 also allows RSA PKCS#1 v1.5.
    let for_clients_alone = |s: &SignatureScheme| *s == SignatureScheme::RSA_PKCS1_SHA256_LEGACY;
    let signs = |s: &SignatureScheme| s.signs_for_servers() || !profile.has_tls13() && !for_clients_alone(s);
    if !profile.trust.is_empty() && !profile.signature_schemes.iter().any(signs) {
        return fail("it trusts certificates or keys but verifies no signature scheme of handshakes".into());
    }
    for verifier in profile.trust.iter() {
        if let Err(why) = verifier.check() {
            return fail(why.into());
        }
        let typ = verifier.certificate_type();
        if !typ.is_self_sovereign() {
            continue;
        }
        let methods = verifier.did_methods();
        if methods.is_empty() {
            return fail(format!("the verifier of the type {typ} resolves no method of identifiers"));
        }
        if profile.ssi.is_on() && !methods.iter().any(|method| method.to_byte().is_some()) {
            return fail(format!(
                "no method of the verifier of the type {typ} has a number in ssi_parameters"
            ));
        }
    }
    if profile.ssi.is_on() && !profile.has_tls13() {
        return fail("ssi_parameters needs a suite of TLS 1.3".into());
    }
    let bare = CertificateType::DECENTRALISED_IDENTIFIER;
    let has_bare = profile.credentials.iter().any(|credential| credential.certificate_type() == bare);
    if !profile.ssi.is_on() && (has_bare || profile.trust.types().contains(&bare)) {
        return fail("a bare decentralised identifier has no certificate type: set ssi_messages".into());
    }
    let trusted = profile.trust.types();
    if let Some(typ) = profile.peer_types.iter().flatten().find(|t| !trusted.contains(t)) {
        return fail(format!("the peer may send a certificate of the type {typ}, which is not trusted"));
    }
    for credential in &profile.credentials {
        if let Credential::X509 { chain, .. } = credential
            && chain.is_empty()
        {
            return fail("an X.509 credential has no certificate".into());
        }
        if let Credential::Other { certificate_type, entries, .. } = credential {
            if certificate_type.has_variant() {
                return fail(format!("a credential of the type {certificate_type} has a variant of its own"));
            }
            if entries.is_empty() || entries.iter().any(|entry| entry.is_empty()) {
                return fail(format!(
                    "a credential of the type {certificate_type} has no entry or an empty one"
                ));
            }
        }
        let fault = match credential {
            Credential::Verifiable { credential, .. } => credential.fault(),
            Credential::Identifier { identifier, .. } => identifier.fault(),
            _ => None,
        };
        if let Some(fault) = fault {
            return fail(fault);
        }
        if credential.key().schemes().is_empty() {
            return fail("a credential's key can sign with no scheme".into());
        }
    }
    for index in &profile.reserved {
        if !matches!(profile.credentials.get(*index), Some(Credential::X509 { .. })) {
            return fail(format!("credential {index}, which is reserved, has no certificate"));
        }
    }
    for (index, response) in &profile.stapled {
        match profile.credentials.get(*index) {
            Some(Credential::X509 { .. }) if !response.is_empty() => {}
            _ => {
                return fail(format!(
                    "the OCSP response for credential {index} is empty or has no certificate"
                ));
            }
        }
    }
    if profile.decompresses() && repeats(profile.decompressors.iter().map(|d| d.algorithm())) {
        return fail("a certificate compression algorithm stands twice".into());
    }
    if let Some(bad) = profile.alpn.iter().find(|p| p.is_empty() || p.len() > 255) {
        return fail(format!("an ALPN name has 1 to 255 bytes, one here has {}", bad.len()));
    }
    if let Some(limit) = profile.record_size_limit
        && !(record_size_limit::MIN..=MAX_RECORD_SIZE_LIMIT).contains(&limit)
    {
        return fail(format!("record_size_limit is 64 to 16385 bytes, not {limit}"));
    }
    if let Some(length) = profile.max_fragment_length
        && !max_fragment_length::LENGTHS.contains(&length)
    {
        return fail(format!("max_fragment_length is 512, 1024, 2048 or 4096 bytes, not {length}"));
    }
    if let Some(content) = profile.max_sent_record
        && !(record_size_limit::MIN..MAX_RECORD_SIZE_LIMIT).contains(&content)
    {
        return fail(format!("the largest record to send has 64 to 16384 bytes, not {content}"));
    }
    // RFC 8446 §4.2.4: each name has 1 to 2^16-1 bytes, and the whole list has at most 2^16-1 bytes.
    let names = profile.named_authorities.iter().map(|name| name.len());
    if names.clone().any(|len| len == 0) || names.map(|len| 2 + len).sum::<usize>() > u16::MAX.into() {
        return fail("a name of an authority is empty, or they are too long".into());
    }
    if profile.key_update_after == Some(0) {
        return fail("the keys must be good for at least one record".into());
    }
    Ok(())
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
