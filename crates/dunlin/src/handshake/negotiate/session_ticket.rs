//! `session_ticket` (RFC 5077), by which TLS 1.2 resumes a session that the client keeps for the server.

use super::{Answers, Choices, HelloDraft, Offer, Terms};
use crate::error::Error;
use crate::extension::ExtensionsWriter;
use crate::extension::session_ticket::{Promised, Ticket};
use crate::handshake::Cx;
use crate::handshake::hints::ClientHelloInfo;
use crate::message::ClientHello;
use crate::wire::ExtensionType;
use alloc::vec::Vec;

/// RFC 5077 §3.2: without a ticket the extension is empty. A renegotiation requests no ticket.
pub(super) fn offer(_: &Cx<'_>, offer: &Offer, hello: &mut HelloDraft) {
    if offer.terms.config.sessions.is_some() && offer.terms.previous.is_none() {
        let ticket = offer.tls12_session.as_ref().filter(|s| !s.is_id);
        hello.extensions.put(&Ticket(ticket.map_or_else(Vec::new, |s| s.ticket.to_vec())));
    }
}

pub(super) fn accept(_: &mut Cx<'_>, terms: &mut Terms, answers: &Answers<'_>) -> Result<(), Error> {
    terms.ticket_promised = answers.extensions.has(ExtensionType::SESSION_TICKET);
    Ok(())
}

/// Whether the client accepts a ticket.
pub(crate) fn is_offered(hello: &ClientHello) -> bool {
    hello.extensions().has(ExtensionType::SESSION_TICKET)
}

/// The client's ticket; empty if it has none.
pub(crate) fn of(hello: &ClientHello) -> Result<Vec<u8>, Error> {
    Ok(hello.extensions().get::<Ticket>()?.map_or_else(Vec::new, |ticket| ticket.0))
}

pub(super) fn hint(hello: &ClientHello, info: &mut ClientHelloInfo) -> Result<(), Error> {
    info.session_ticket = hello.extensions().get::<Ticket>()?.map(|ticket| ticket.0);
    Ok(())
}

pub(super) fn answer(_: &mut Cx<'_>, chosen: &Choices<'_>, w: &mut ExtensionsWriter) -> Result<(), Error> {
    w.put_some(chosen.promises_ticket.then_some(Promised).as_ref());
    Ok(())
}
