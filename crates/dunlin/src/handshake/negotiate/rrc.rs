//! `rrc` (RFC 9853 §3), beside connection IDs.

use super::{Answers, Choices, HelloDraft, Offer, Selection, Terms};
use crate::error::Error;
use crate::extension::rrc::Rrc;
use crate::extension::{Extensions, ExtensionsWriter};
use crate::handshake::Cx;

/// RFC 9853 §3: a client offers it only together with connection IDs.
pub(super) fn offer(_: &Cx<'_>, offer: &Offer, hello: &mut HelloDraft) {
    let is_wanted = offer.terms.connection_id.is_some() && offer.terms.config.datagram.migration.is_checked();
    hello.extensions.put_some(is_wanted.then_some(Rrc).as_ref());
}

/// The selection of DTLS 1.3.
pub(super) fn select(
    cx: &mut Cx<'_>,
    offer: &mut Offer,
    extensions: &Extensions<'_>,
    _: &mut Selection,
) -> Result<(), Error> {
    take(cx, &offer.terms, extensions)
}

/// The answer of DTLS 1.2.
pub(super) fn accept(cx: &mut Cx<'_>, terms: &mut Terms, answers: &Answers<'_>) -> Result<(), Error> {
    take(cx, terms, answers.extensions)
}

fn take(cx: &mut Cx<'_>, terms: &Terms, extensions: &Extensions<'_>) -> Result<(), Error> {
    if extensions.get::<Rrc>()?.is_some() && uses_ids(cx) {
        cx.emitter.check_paths(terms.config.profile.provider.random.clone());
    }
    Ok(())
}

/// A server answers if it has agreed to connection IDs.
pub(super) fn answer(cx: &mut Cx<'_>, chosen: &Choices<'_>, w: &mut ExtensionsWriter) -> Result<(), Error> {
    let is_offered = chosen.hello.extensions().get::<Rrc>()?.is_some();
    if is_offered && uses_ids(cx) && chosen.config.datagram.migration.is_checked() {
        w.put(&Rrc);
        cx.emitter.check_paths(chosen.config.profile.provider.random.clone());
    }
    Ok(())
}

fn uses_ids(cx: &Cx<'_>) -> bool {
    cx.emitter.sends_connection_id() || cx.emitter.receives_connection_id()
}
