//! The server's early data (RFC 8446 §4.2.10, §8): whether the server accepts the data after it has marked
//! the ticket ([`super::mark`]), and the end of the data.

use alloc::boxed::Box;

use super::arrival::Choice;
use crate::early::{EARLY_DATA_WINDOW, EarlyDataOutcome, EarlyDataServer, NoEarlyData};
use crate::error::{Error, Internal, Malformed};
use crate::extension::pre_shared_key::{self, Identity};
use crate::handshake::negotiate::psk::{FoundPsk, PskSecret};
use crate::handshake::progress::{EarlyOutput, EarlySession, Sending};
use crate::handshake::setup::ServerConfig;
use crate::handshake::{Cx, ExpectMessage, Step};
use crate::message::{ClientHello, Message};
use crate::protocol::Protocol;
use crate::resume::{EarlyTerms, SealTickets, Session, SettingsDigest, TicketKind};
use crate::schedule::Transcript;
use crate::schedule::tls13::EarlySecret;
use crate::time::Now;
use crate::transport::Epoch;
use crate::wire::{Field, HandshakeType};

/// The window in which a first flight counts as fresh, in milliseconds.
const WINDOW_MS: u64 = EARLY_DATA_WINDOW.as_millis() as u64;

/// The settings and the session under which this server could accept early data. The server has already
/// compared the session's server name and settings, when it selected the session.
fn bearer<'a>(
    cx: &Cx<'_>,
    choice: &'a Choice,
) -> Result<(&'a EarlyDataServer, &'a Session, &'a EarlyTerms), NoEarlyData> {
    let server = usable(&choice.config, cx.protocol()).ok_or(NoEarlyData::Disabled)?;
    let Some(FoundPsk { index, secret: PskSecret::Session(session), .. }) = &choice.psk else {
        return Err(NoEarlyData::NotResumed);
    };
    // RFC 8446 §4.2.10 demands all checks below.
    if cx.draft.retried {
        return Err(NoEarlyData::Retry);
    }
    let terms = session.early.as_ref().ok_or(NoEarlyData::NotForSession)?;
    match index {
        0 => Ok((server, session, terms)),
        _ => Err(NoEarlyData::NotFirst),
    }
}

/// Checks whether the server may accept early data if this is the ticket's first use, and returns the reason
/// if not. `skew` is the skew of the ticket's age.
pub(super) fn judge(cx: &Cx<'_>, choice: &Choice, skew: Option<i64>) -> Result<(), NoEarlyData> {
    let (server, session, terms) = bearer(cx, choice)?;
    if session.cipher_suite != choice.suite.id {
        return Err(NoEarlyData::CipherSuite);
    }
    if terms.alpn != cx.draft.alpn || !server.protocols.allow(terms.alpn.as_ref()) {
        return Err(NoEarlyData::ApplicationProtocol);
    }
    // Profiles of equal trust share sessions, but not early data, which has no forward secrecy and no other
    // proof.
    if terms.profile != Some(choice.config.digests.profile.short()) {
        return Err(NoEarlyData::Profile);
    }
    // RFC 8446 §8.3: the first flight must be fresh.
    if skew.is_some_and(|skew| skew.unsigned_abs() <= WINDOW_MS) {
        Ok(())
    } else {
        Err(NoEarlyData::TicketAge)
    }
}

/// The settings for early data, if the server can tell whether a ticket is used for the first time.
fn usable(config: &ServerConfig, protocol: Protocol) -> Option<&EarlyDataServer> {
    let possible = match &config.tickets.kind {
        TicketKind::None => false,
        TicketKind::Stateless(keys) => keys.single_use().is_some(),
        TicketKind::Stateful(_) | TicketKind::Ask => true,
    };
    if protocol.has_early_data() && possible { config.early_data.as_ref() } else { None }
}

/// Opens a ticket of keys with a register, whatever trust it is bound to.
pub(super) fn open_any(keys: &dyn SealTickets, now: Now, ticket: &[u8]) -> Option<Session> {
    keys.single_use()?;
    let (aad, plaintext) = keys.open_any(now, ticket)?;
    Session::from_ticket(&plaintext, SettingsDigest::new(&aad)).ok()
}

/// The terms for early data in new tickets of this connection. `None` if they allow none.
pub(super) fn terms(cx: &Cx<'_>, config: &ServerConfig) -> Option<EarlyTerms> {
    let alpn = &cx.agreed().alpn;
    let server = usable(config, cx.protocol()).filter(|server| server.protocols.allow(alpn.as_ref()))?;
    let profile = Some(config.digests.profile.short());
    Some(EarlyTerms { max_size: server.max_size, alpn: alpn.clone(), profile })
}

/// The ticket's age by the client's clock minus its age by the server's clock, in milliseconds (RFC 8446
/// §4.2.11.1). `index` is the ticket's index in the offer.
pub(super) fn ticket_age_skew(
    cx: &Cx<'_>,
    index: usize,
    session: &Session,
    hello: &ClientHello,
) -> Result<i64, Error> {
    let offer = hello.extensions().require::<pre_shared_key::Offer>()?;
    let identity = offer.identities.get(index).ok_or(Internal::Bug(Field::PskIndex))?;
    Ok(skew(cx, identity, session))
}

fn skew(cx: &Cx<'_>, identity: &Identity, session: &Session) -> i64 {
    let theirs = i64::from(identity.obfuscated_ticket_age.wrapping_sub(session.age_add));
    let ours = i64::try_from(cx.now.unix_ms.saturating_sub(session.issued_ms)).unwrap_or(i64::MAX);
    theirs.saturating_sub(ours)
}

/// The time until which a copy of this ClientHello is fresh, in milliseconds since 1970: later if the
/// client's clock runs ahead.
pub(super) fn fresh_until(cx: &Cx<'_>, identity: &Identity, session: &Session) -> u64 {
    let ahead_ms = u64::try_from(skew(cx, identity, session)).unwrap_or(0);
    let fresh_until = cx.now.unix_ms.saturating_add(ahead_ms).saturating_add(WINDOW_MS);
    fresh_until.min(session.expires_ms())
}

/// The outcome of offered early data. `skew` is the skew of the ticket's age.
pub(super) fn outcome(cx: &Cx<'_>, choice: &Choice, skew: Option<i64>) -> EarlyDataOutcome {
    match judge(cx, choice, skew) {
        Ok(()) => {
            let spent = choice.spent.as_ref().zip(choice.psk.as_ref());
            if spent.is_some_and(|(spent, psk)| spent.is_first_use(&choice.config, &psk.identity)) {
                EarlyDataOutcome::Accepted
            } else {
                EarlyDataOutcome::Rejected(NoEarlyData::NotSingleUse)
            }
        }
        Err(why) => EarlyDataOutcome::Rejected(why),
    }
}

/// Begins to accept early data. `transcript` ends with the ClientHello.
pub(super) fn open(
    cx: &mut Cx<'_>,
    secret: Option<&EarlySecret>,
    transcript: &Transcript,
    psk: Option<&FoundPsk>,
) -> Result<(), Error> {
    let (Some(secret), Some(FoundPsk { secret: PskSecret::Session(session), .. })) = (secret, psk) else {
        return Err(Internal::Bug(Field::NoEarlySession).into());
    };
    let hash = transcript.current();
    let traffic = secret.client_traffic(hash.as_ref());
    let exporter = secret.exporter(hash.as_ref());
    cx.effects.log_secret("CLIENT_EARLY_TRAFFIC_SECRET", traffic.bytes());
    cx.effects.log_secret("EARLY_EXPORTER_SECRET", exporter.bytes());
    cx.emitter.read_keys(Epoch::Early, &traffic.keys(cx.protocol()))?;
    cx.emitter.limit_early_data(session.max_early_data());
    cx.progress.early = EarlyOutput {
        sending: Sending::Nothing,
        session: Some(Box::new(EarlySession {
            exporter,
            alpn: cx.draft.alpn.clone(),
            peer: session.peer.clone(),
        })),
    };
    Ok(())
}

/// Waits for early data and EndOfEarlyData, after the server has sent its Finished.
pub(super) fn expect_end(cx: &mut Cx<'_>, transcript: Transcript, then: Then) -> Step {
    cx.progress.early.sending = Sending::Answer;
    Step::expect(ExpectEndOfEarlyData { transcript, then })
}

/// The continuation after EndOfEarlyData.
pub(super) type Then = Box<dyn FnOnce(&mut Cx<'_>, Transcript) -> Result<Step, Error> + Send + Sync>;

struct ExpectEndOfEarlyData {
    transcript: Transcript,
    then: Then,
}

impl ExpectMessage for ExpectEndOfEarlyData {
    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        let Self { mut transcript, then } = *self;
        // RFC 8446 §4.5: EndOfEarlyData is empty, and the last message under the early keys.
        if !message.expect(HandshakeType::END_OF_EARLY_DATA)?.is_empty() {
            return Err(Malformed::TrailingBytes(Field::Message(HandshakeType::END_OF_EARLY_DATA)).into());
        }
        transcript.add(message.bytes());
        then(cx, transcript)
    }
}
