//! `association_port` (docs/association-ports.md), over datagrams without connection IDs.

use super::{Answers, Choices, HelloDraft, Offer, Terms};
use crate::error::{Error, PeerMisbehaved};
use crate::extension::ExtensionsWriter;
use crate::extension::association_port::{self, Answer, PortMode};
use crate::handshake::Cx;
use crate::settings::PortScheme;
use crate::wire::{ExtensionType, Field};

/// The offer of a client with this scheme.
fn offered(scheme: Option<PortScheme>) -> Option<association_port::Offer> {
    match scheme? {
        PortScheme::Ipc => Some(association_port::Offer::of(PortMode::Ipc)),
        PortScheme::Tcs | PortScheme::TcsMessage => Some(association_port::Offer::of(PortMode::Tcs)),
        PortScheme::IpcUnannounced => None,
    }
}

/// A renegotiation stays at its port.
pub(super) fn offer(cx: &Cx<'_>, offer: &Offer, hello: &mut HelloDraft) {
    let is_first = cx.emitter.peer_address().is_some() && offer.terms.previous.is_none();
    let scheme = offer.terms.config.datagram.port_scheme;
    hello.extensions.put_some(offered(scheme).filter(|_| is_first).as_ref());
}

pub(super) fn accept(cx: &mut Cx<'_>, terms: &mut Terms, answers: &Answers<'_>) -> Result<(), Error> {
    let Some(Answer { mode, port }) = answers.extensions.get::<Answer>()? else { return Ok(()) };
    let is_offered = offered(terms.config.datagram.port_scheme).is_some_and(|offer| offer.has(mode));
    let uses_ids = cx.emitter.sends_connection_id() || cx.emitter.receives_connection_id();
    if !is_offered || uses_ids {
        let typ = ExtensionType::ASSOCIATION_PORT;
        return Err(PeerMisbehaved::IllegalParameter(Field::Extension(typ)).into());
    }
    if mode == PortMode::Tcs {
        cx.emitter.expect_port(port);
    }
    Ok(())
}

/// A server takes a port for a client that wants one. Without a free one, it does not answer.
pub(super) fn answer(cx: &mut Cx<'_>, chosen: &Choices<'_>, w: &mut ExtensionsWriter) -> Result<(), Error> {
    let scheme = if chosen.previous.is_none() { chosen.config.datagram.port_scheme } else { None };
    let Some(scheme) = scheme.filter(|_| cx.emitter.peer_address().is_some()) else {
        cx.emitter.use_port(None);
        return Ok(());
    };
    let offer = chosen.hello.extensions().get::<association_port::Offer>()?;
    let has = |mode| offer.is_some_and(|offer| offer.has(mode));
    let is_wanted = match scheme {
        PortScheme::Ipc => has(PortMode::Ipc),
        PortScheme::IpcUnannounced => offer.is_none() || has(PortMode::Ipc),
        PortScheme::Tcs | PortScheme::TcsMessage => has(PortMode::Tcs),
    };
    // In DTLS 1.3 the ServerHello, which has the connection IDs, comes later.
    let has_ids = chosen.config.connection_ids.is_some() && chosen.offers(ExtensionType::CONNECTION_ID);
    let port = cx.emitter.use_port((is_wanted && !has_ids).then_some(scheme));
    match (scheme, port) {
        (PortScheme::Tcs, Some(port)) => w.put(&Answer { mode: PortMode::Tcs, port }),
        (PortScheme::Ipc | PortScheme::IpcUnannounced, Some(_)) if offer.is_some() => {
            w.put(&Answer { mode: PortMode::Ipc, port: 0 });
        }
        _ => {}
    }
    Ok(())
}
