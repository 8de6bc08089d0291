//! `tls_cert_with_extern_psk` (RFC 8773): certificates authenticate, and an external PSK goes into the key
//! schedule as well. The traffic then stays secret even if an attacker can later break the (EC)DHE key
//! exchange.

use super::{Choices, Demands, HelloDraft, Offer, Selection, psk};
use crate::error::{Error, PeerMisbehaved};
use crate::extension::tls_cert_with_extern_psk::TlsCertWithExternPsk;
use crate::extension::{Extensions, ExtensionsWriter};
use crate::handshake::Cx;
use crate::handshake::setup::ServerConfig;
use crate::message::ClientHello;
use crate::wire::{ExtensionType, Field, PskKeyExchangeMode, SignatureScheme};

/// The second ClientHello omits the extension if no PSK has the hash of the suite. RFC 8773 §4: a resumption
/// PSK "MUST NOT" stand beside it.
pub(super) fn offer(_: &Cx<'_>, offer: &Offer, hello: &mut HelloDraft) {
    let are_external = offer.psks.iter().all(|psk| matches!(psk, psk::OfferedPsk::External(_)));
    if offer.terms.config.profile.adds_external_psk() && !offer.psks.is_empty() && are_external {
        hello.extensions.put(&TlsCertWithExternPsk);
    }
}

/// Accepts that the server authenticates by certificate, although it has selected a PSK. If the client
/// requires that, it continues a session only if an external PSK is in its keys.
pub(super) fn select(
    cx: &mut Cx<'_>,
    offer: &mut Offer,
    extensions: &Extensions<'_>,
    selection: &mut Selection,
) -> Result<(), Error> {
    if extensions.has(ExtensionType::TLS_CERT_WITH_EXTERN_PSK) {
        // RFC 8773 §4: the answer "MUST be accompanied by the key_share and pre_shared_key extensions".
        for typ in [ExtensionType::PRE_SHARED_KEY, ExtensionType::KEY_SHARE] {
            if !extensions.has(typ) {
                return Err(PeerMisbehaved::MissingExtension(typ).into());
            }
        }
        selection.by_psk = false;
        cx.draft.external_psk_added = true;
        return Ok(());
    }
    let config = &offer.terms.config;
    let selected = selection.psk.and_then(|index| offer.psks.get(index));
    if config.profile.psk.extern_psk_required && selected.is_none_or(|psk| psk.beside(config, true).is_none())
    {
        Err(PeerMisbehaved::MissingExtension(ExtensionType::TLS_CERT_WITH_EXTERN_PSK).into())
    } else {
        Ok(())
    }
}

/// Whether the server adds an external PSK to a handshake with certificates, if the client offers one that
/// the server knows. A server without this setting ignores the extension.
pub(crate) fn accepts(config: &ServerConfig, hello: &ClientHello) -> Result<bool, Error> {
    let extensions = hello.extensions();
    if !config.profile.psk.tls_cert_with_extern_psk
        || !extensions.has(ExtensionType::TLS_CERT_WITH_EXTERN_PSK)
    {
        return Ok(false);
    }
    // RFC 8773 §4: these extensions accompany it. RFC 8446 §4.2.3: certificates require signature_algorithms.
    for typ in [
        ExtensionType::KEY_SHARE,
        ExtensionType::PSK_KEY_EXCHANGE_MODES,
        ExtensionType::PRE_SHARED_KEY,
        ExtensionType::SIGNATURE_ALGORITHMS,
    ] {
        if !extensions.has(typ) {
            return Err(PeerMisbehaved::MissingExtension(typ).into());
        }
    }
    // RFC 8773 §4: it "MUST NOT be sent alongside the early_data extension".
    if extensions.has(ExtensionType::EARLY_DATA) {
        let early_data = Field::Extension(ExtensionType::EARLY_DATA);
        return Err(PeerMisbehaved::IllegalParameter(early_data).into());
    }
    // RFC 8773 §5.1: the client "MUST include psk_dhe_ke mode".
    if !psk::modes(hello)?.contains(&PskKeyExchangeMode::PSK_DHE_KE) {
        return Err(PeerMisbehaved::IllegalParameter(Field::PskMode).into());
    }
    // Without a suitable certificate or group, the server ignores the extension, and may use a PSK alone.
    let has_certificate =
        Demands::of_client(hello, config)?.choose(&config.profile, &SignatureScheme::signs_for_servers);
    let mode = psk::mode(config, hello)?;
    Ok(has_certificate.is_ok() && mode == Some(PskKeyExchangeMode::PSK_DHE_KE))
}

pub(super) fn answer(cx: &mut Cx<'_>, chosen: &Choices<'_>, w: &mut ExtensionsWriter) -> Result<(), Error> {
    if chosen.psk.is_some_and(|psk| !psk.authenticates) {
        w.put(&TlsCertWithExternPsk);
        cx.draft.external_psk_added = true;
    }
    Ok(())
}
