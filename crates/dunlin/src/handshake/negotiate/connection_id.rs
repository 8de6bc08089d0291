//! `connection_id` (RFC 9146 §3, RFC 9147 §9), over datagrams only.

use alloc::vec::Vec;

use super::{Answers, Choices, HelloDraft, Offer, Selection, Terms};
use crate::error::{Error, PeerMisbehaved};
use crate::extension::connection_id::ConnectionId;
use crate::extension::{Extensions, ExtensionsWriter};
use crate::handshake::Cx;
use crate::wire::{ExtensionType, Field};

pub(super) fn offer(_: &Cx<'_>, offer: &Offer, hello: &mut HelloDraft) {
    hello.extensions.put_some(offer.terms.connection_id.clone().map(ConnectionId).as_ref());
}

/// The selection of DTLS 1.3.
pub(super) fn select(
    cx: &mut Cx<'_>,
    offer: &mut Offer,
    extensions: &Extensions<'_>,
    _: &mut Selection,
) -> Result<(), Error> {
    take(cx, &mut offer.terms, extensions)
}

/// The answer of DTLS 1.2.
pub(super) fn accept(cx: &mut Cx<'_>, terms: &mut Terms, answers: &Answers<'_>) -> Result<(), Error> {
    take(cx, terms, answers.extensions)
}

fn take(cx: &mut Cx<'_>, terms: &mut Terms, extensions: &Extensions<'_>) -> Result<(), Error> {
    let (Some(peers), Some(own)) = (extensions.get::<ConnectionId>()?, terms.connection_id.take()) else {
        return Ok(());
    };
    use_ids(cx, terms.config.connection_ids.clone(), own, peers.0)
}

/// A server answers if it wants connection IDs itself, or wants to send the client's.
pub(super) fn answer(cx: &mut Cx<'_>, chosen: &Choices<'_>, w: &mut ExtensionsWriter) -> Result<(), Error> {
    let issuer =
        if cx.emitter.peer_address().is_some() { chosen.config.connection_ids.clone() } else { None };
    let (Some(issuer), Some(peers)) = (issuer, chosen.hello.extensions().get::<ConnectionId>()?) else {
        return Ok(());
    };
    // An ID that leaves no room for data in a datagram is not used.
    if peers.0.len() > cx.emitter.longest_peer_id() {
        return Ok(());
    }
    let own = issuer.issue()?;
    w.put(&ConnectionId(own.clone()));
    use_ids(cx, Some(issuer), own, peers.0)
}

fn use_ids(
    cx: &mut Cx<'_>,
    issuer: Option<crate::sync::Arc<dyn crate::settings::ConnectionIds>>,
    own: Vec<u8>,
    peers: Vec<u8>,
) -> Result<(), Error> {
    if peers.len() > cx.emitter.longest_peer_id() {
        let typ = ExtensionType::CONNECTION_ID;
        return Err(PeerMisbehaved::IllegalParameter(Field::Extension(typ)).into());
    }
    cx.emitter.use_connection_ids(issuer, own, peers);
    Ok(())
}
