//! `application_layer_protocol_negotiation` (RFC 7301).

use super::{Answers, Choices, HelloDraft, Offer, Terms};
use crate::error::{Error, PeerIncompatible, PeerMisbehaved};
use crate::extension::ExtensionsWriter;
use crate::extension::alpn::{Protocols, Selected};
use crate::handshake::Cx;
use crate::handshake::hints::ClientHelloInfo;
use crate::handshake::negotiated::Negotiated;
use crate::handshake::setup::ServerConfig;
use crate::message::ClientHello;
use crate::wire::{ExtensionType, Field};
use alloc::vec::Vec;

/// A renegotiation keeps the application protocol, so it does not offer ALPN again.
pub(super) fn offer(_: &Cx<'_>, offer: &Offer, hello: &mut HelloDraft) {
    let ours = &offer.terms.config.profile.alpn;
    if !ours.is_empty() && offer.terms.previous.is_none() {
        hello.extensions.put(&Protocols(ours.clone()));
    }
}

pub(super) fn accept(cx: &mut Cx<'_>, terms: &mut Terms, answers: &Answers<'_>) -> Result<(), Error> {
    if let Some(Selected(protocol)) = answers.extensions.get()? {
        if !terms.config.profile.alpn.contains(&protocol) {
            return Err(PeerMisbehaved::NotOffered(Field::ApplicationProtocol).into());
        }
        cx.draft.alpn = Some(protocol);
    }
    Ok(())
}

pub(super) fn hint(hello: &ClientHello, info: &mut ClientHelloInfo) -> Result<(), Error> {
    info.alpn = hello.extensions().get::<Protocols>()?.map_or_else(Vec::new, |p| p.0);
    Ok(())
}

/// The server's first application protocol that the client also offers.
pub(crate) fn choose(config: &ServerConfig, hello: &ClientHello) -> Result<Option<Vec<u8>>, Error> {
    let ours = &config.profile.alpn;
    match hello.extensions().get::<Protocols>()? {
        Some(theirs) if !ours.is_empty() => {
            // RFC 7301 §3.2: without a common protocol the server sends no_application_protocol.
            let chosen = ours.iter().find(|p| theirs.0.contains(p));
            Ok(Some(chosen.ok_or(PeerIncompatible::ApplicationProtocol)?.clone()))
        }
        _ => Ok(None),
    }
}

pub(super) fn answer(cx: &mut Cx<'_>, chosen: &Choices<'_>, w: &mut ExtensionsWriter) -> Result<(), Error> {
    if chosen.offers(ExtensionType::APPLICATION_LAYER_PROTOCOL_NEGOTIATION) {
        w.put_some(cx.draft.alpn.clone().map(Selected).as_ref());
    }
    Ok(())
}

/// A renegotiation keeps the application protocol. The client may omit ALPN, since the protocol is already
/// negotiated.
pub(super) fn keep(_: &Cx<'_>, previous: &Negotiated, hello: &ClientHello) -> Result<(), Error> {
    match (&previous.alpn, hello.extensions().get::<Protocols>()?) {
        (Some(agreed), Some(offered)) if !offered.0.contains(agreed) => {
            Err(PeerIncompatible::ApplicationProtocol.into())
        }
        _ => Ok(()),
    }
}
