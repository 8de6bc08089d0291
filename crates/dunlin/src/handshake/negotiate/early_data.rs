//! `early_data` (RFC 8446 §4.2.10). `client/early.rs` and `server/early.rs` handle the data itself.

use super::psk::OfferedPsk;
use super::{Answers, Choices, HelloDraft, Offer, Selection, Terms};
use crate::crypto::Tls13CipherSuite;
use crate::early::{EarlyDataOutcome, EarlyDataProtocols, NoEarlyData};
use crate::error::{Error, PeerMisbehaved};
use crate::extension::early_data::EarlyData;
use crate::extension::{Extensions, ExtensionsWriter};
use crate::handshake::Cx;
use crate::handshake::setup::ClientConfig;
use crate::message::ClientHello;
use crate::resume::EarlyTerms;
use crate::schedule::{HelloTranscript, Transcript};
use crate::wire::{CipherSuite, ExtensionType, Field};
use core::fmt;

/// The steps of a client that offers early data. Only a configuration with early data points to them, so
/// other programs do not link them.
pub(crate) struct EarlyDataSteps {
    /// Checks whether the client can send early data with these PSKs, and returns the reason if not.
    pub(in crate::handshake) offer:
        fn(&Cx<'_>, &ClientConfig, &EarlyDataProtocols, &[OfferedPsk]) -> Result<EarlyOffer, NoEarlyData>,
    /// Writes the extension.
    pub(in crate::handshake) put: fn(&mut ExtensionsWriter),
    /// After the first ClientHello, lets the application send early data under its own keys.
    pub(in crate::handshake) open:
        fn(&mut Cx<'_>, &EarlyOffer, &Offer, &HelloTranscript) -> Result<(), Error>,
    /// The server accepted early data: checks that the negotiated parameters are the session's.
    pub(in crate::handshake) accept: fn(&mut Cx<'_>, &EarlyOffer, CipherSuite) -> Result<(), Error>,
    /// Ends early data after the server's Finished was verified (RFC 8446 §4.5).
    pub(in crate::handshake) end: fn(&mut Cx<'_>, &mut Transcript) -> Result<(), Error>,
}

/// Prints no code addresses, which would help an attacker.
impl fmt::Debug for EarlyDataSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EarlyDataSteps")
    }
}

/// A client's settings for early data.
#[derive(Clone, Debug)]
pub(crate) struct EarlyDataClient {
    pub(crate) protocols: EarlyDataProtocols,
    pub(crate) steps: &'static EarlyDataSteps,
}

/// Early data that goes with the first ClientHello.
pub(crate) struct EarlyOffer {
    pub(in crate::handshake) suite: &'static Tls13CipherSuite,
    pub(in crate::handshake) terms: EarlyTerms,
    pub(in crate::handshake) steps: &'static EarlyDataSteps,
}

pub(super) fn offer(_: &Cx<'_>, offer: &Offer, hello: &mut HelloDraft) {
    if let Some(early) = &offer.terms.early {
        (early.steps.put)(&mut hello.extensions);
    }
}

/// Writes the empty extension: the client's offer, and the server's acceptance.
pub(crate) fn put(w: &mut ExtensionsWriter) {
    w.put(&EarlyData);
}

/// Withdraws the client's offer, since the server has rejected it for this reason. Returns whether there was
/// one.
pub(crate) fn reject(cx: &mut Cx<'_>, terms: &mut Terms, why: NoEarlyData) -> bool {
    let was_offered = terms.early.take().is_some();
    if was_offered {
        cx.early_data(EarlyDataOutcome::Rejected(why));
    }
    was_offered
}

/// RFC 8446 §4.1.2, §4.2.10: a HelloRetryRequest rejects early data, and the second ClientHello is not
/// encrypted.
pub(super) fn accept_retry(
    cx: &mut Cx<'_>,
    offer: &mut Offer,
    _: &Extensions<'_>,
    _: &'static Tls13CipherSuite,
) -> Result<(), Error> {
    if offer.terms.early.is_some() {
        cx.emitter.write_in_the_clear();
        reject(cx, &mut offer.terms, NoEarlyData::Retry);
    }
    Ok(())
}

/// RFC 8446 §4.2.10: early data belongs to the first PSK. A server that does not select this PSK rejects the
/// early data.
pub(super) fn select(
    cx: &mut Cx<'_>,
    offer: &mut Offer,
    _: &Extensions<'_>,
    selection: &mut Selection,
) -> Result<(), Error> {
    if selection.psk != Some(0) {
        reject(cx, &mut offer.terms, NoEarlyData::NotResumed);
    }
    Ok(())
}

/// Whether the other side's message has the extension.
pub(crate) fn is_in(extensions: &Extensions<'_>) -> bool {
    extensions.has(ExtensionType::EARLY_DATA)
}

/// Compares the server's acceptance with the session. ALPN comes first, because early data must use the
/// session's protocol.
pub(super) fn accept(cx: &mut Cx<'_>, terms: &mut Terms, answers: &Answers<'_>) -> Result<(), Error> {
    match &terms.early {
        Some(early) => (early.steps.accept)(cx, early, answers.suite),
        // RFC 8446 §4.2.10: accepting early data without its session is illegal_parameter.
        None if is_in(answers.extensions) => Err(PeerMisbehaved::EarlyDataMismatch(Field::Psk).into()),
        None => Ok(()),
    }
}

/// Whether the client offers early data.
pub(crate) fn is_offered(hello: &ClientHello) -> bool {
    is_in(&hello.extensions())
}

pub(super) fn answer(_: &mut Cx<'_>, chosen: &Choices<'_>, w: &mut ExtensionsWriter) -> Result<(), Error> {
    if chosen.takes_early_data {
        put(w);
    }
    Ok(())
}
