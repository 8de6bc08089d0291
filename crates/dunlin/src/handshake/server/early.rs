//! The server's early data: whether it is taken, and its end (RFC 8446 §4.2.10, §8).

use alloc::boxed::Box;

use super::start::{FoundPsk, PskSecret};
use super::tls13::{self, Choice, Finish, Verified};
use crate::config::ServerConfig;
use crate::early::{EARLY_DATA_WINDOW, EarlyDataOutcome, EarlyDataServer, NoEarlyData, SingleUse};
use crate::error::{Error, Internal, Malformed, Misuse};
use crate::extension::pre_shared_key;
use crate::handshake::output::{EarlyOutput, Sending};
use crate::handshake::question::{Answer, Question};
use crate::handshake::{Cx, State};
use crate::message::{ClientHello, Message};
use crate::resume::{EarlyTerms, Session, TicketKind};
use crate::role::TransportKind;
use crate::schedule::Transcript;
use crate::schedule::tls13::EarlySecret;
use crate::transport::Epoch;
use crate::wire::{ExtensionType, HandshakeType};

/// The window in milliseconds.
const WINDOW_MS: u64 = EARLY_DATA_WINDOW.as_millis() as u64;

/// The settings and the session by which early data could be taken here, today or another time. The server's name, the
/// settings and the profile in the session were compared when it was taken.
fn bearer<'a>(
    cx: &Cx<'_>,
    choice: &'a Choice,
) -> Result<(&'a EarlyDataServer, &'a Session, &'a EarlyTerms), NoEarlyData> {
    let server = usable(&choice.config, cx.transport()).ok_or(NoEarlyData::Disabled)?;
    let Some(FoundPsk { index, secret: PskSecret::Session(session), .. }) = &choice.psk else {
        return Err(NoEarlyData::NotResumed);
    };
    // RFC 8446 §4.2.10 for all that follows.
    if cx.output.negotiated.retried {
        return Err(NoEarlyData::Retry);
    }
    let terms = session.early.as_ref().ok_or(NoEarlyData::NotForSession)?;
    match index {
        0 => Ok((server, session, terms)),
        _ => Err(NoEarlyData::NotFirst),
    }
}

/// Whether early data may be taken if the ticket comes for the first time; why not. `skew` is that of its age, now.
pub(super) fn judge(cx: &Cx<'_>, choice: &Choice, skew: Option<i64>) -> Result<(), NoEarlyData> {
    let (server, session, terms) = bearer(cx, choice)?;
    if session.cipher_suite != choice.suite.id {
        return Err(NoEarlyData::CipherSuite);
    }
    if terms.alpn != cx.output.negotiated.alpn || !server.protocols.allow(terms.alpn.as_ref()) {
        return Err(NoEarlyData::ApplicationProtocol);
    }
    // RFC 8446 §8.3.
    match skew.is_some_and(|skew| skew.unsigned_abs() <= WINDOW_MS) {
        true => Ok(()),
        false => Err(NoEarlyData::TicketAge),
    }
}

/// The settings for early data, where there is somebody to say that a ticket comes for the first time.
fn usable(config: &ServerConfig, transport: TransportKind) -> Option<&EarlyDataServer> {
    let possible = |server: &&EarlyDataServer| match (&server.single_use, &config.tickets.kind) {
        (_, TicketKind::None) => false,
        (SingleUse::Sessions, kind) => matches!(kind, TicketKind::Stateful(_)),
        (SingleUse::Register(_) | SingleUse::Ask, _) => true,
    };
    config.early_data.as_ref().filter(|_| transport == TransportKind::Stream).filter(possible)
}

/// What new tickets of this connection allow.
pub(super) fn terms(cx: &Cx<'_>, config: &ServerConfig) -> Option<EarlyTerms> {
    let alpn = &cx.output.negotiated.alpn;
    let server = usable(config, cx.transport()).filter(|server| server.protocols.allow(alpn.as_ref()))?;
    Some(EarlyTerms { max_size: server.max_size, alpn: alpn.clone() })
}

/// By how much the client's view of its ticket's age is off (RFC 8446 §4.2.11.1), in milliseconds.
pub(super) fn ticket_age_skew(
    cx: &Cx<'_>,
    psk: Option<&FoundPsk>,
    hello: &ClientHello<'_>,
) -> Result<Option<i64>, Error> {
    let Some(FoundPsk { index, secret: PskSecret::Session(session), .. }) = psk else { return Ok(None) };
    let offer = hello.extensions.require::<pre_shared_key::Offer>()?;
    let identity = offer.identities.get(*index).ok_or(Internal::Bug("PSK index"))?;
    let theirs = i64::from(identity.obfuscated_ticket_age.wrapping_sub(session.age_add));
    let ours = i64::try_from(cx.now.unix_ms.saturating_sub(session.issued_ms)).unwrap_or(i64::MAX);
    Ok(Some(theirs.saturating_sub(ours)))
}

/// Early data is offered: goes on with what becomes of it. The binder was verified: nobody without the ticket's secret fills
/// a register.
pub(super) fn offered(
    cx: &mut Cx<'_>,
    verified: Verified,
    message: &Message,
    hello: &ClientHello<'_>,
) -> Result<Box<dyn State>, Error> {
    let choice = &verified.choice;
    let (server, session) = match bearer(cx, choice) {
        Ok((server, session, _)) => (server, session),
        Err(why) => return tls13::answer(cx, verified, hello, Some(EarlyDataOutcome::Rejected(why))),
    };
    let identity = choice.psk.as_ref().map(|psk| &*psk.identity).unwrap_or_default();
    let hash = choice.config.profile.provider.sha256.hash(&[b"dunlin early data", identity]);
    let id = *hash.as_ref().first_chunk::<32>().ok_or(Internal::Bug("SHA-256"))?;
    // RFC 8446 §8.2: who is refused may send the same in another way, so what is refused must not be taken later. The
    // register hears of it, and of all of the time in which this ClientHello is fresh, which may be yet to come.
    let ahead_ms = cx.output.negotiated.ticket_age_skew_ms.and_then(|skew| u64::try_from(skew).ok());
    let fresh_until = cx.now.unix_ms.saturating_add(ahead_ms.unwrap_or(0)).saturating_add(WINDOW_MS);
    let until_ms = fresh_until.min(session.expires_ms());
    let known = match &server.single_use {
        // The store has just given the session out for good.
        SingleUse::Sessions => Ok(Answer::FirstUse(true)),
        SingleUse::Register(register) => Ok(Answer::FirstUse(register.first_use(cx.now, &id, until_ms))),
        SingleUse::Ask => Err(Question::FirstUse { id, until_ms }),
    };
    let message = message.clone();
    cx.ask(known, Box::new(AwaitFirstUse { verified, message }))
}

/// Waits for word on whether the ticket comes for the first time.
struct AwaitFirstUse {
    verified: Verified,
    message: Message,
}

impl State for AwaitFirstUse {
    fn message(self: Box<Self>, _: &mut Cx<'_>, _: Message) -> Result<Box<dyn State>, Error> {
        Err(Internal::Bug("a message while a first use is awaited").into())
    }

    fn answer(self: Box<Self>, cx: &mut Cx<'_>, answer: Answer) -> Result<Box<dyn State>, Error> {
        let is_first = match answer {
            Answer::FirstUse(is_first) => is_first,
            // Without an answer nobody knows.
            Answer::Failed => false,
            _ => return Err(Misuse::WrongAnswer.into()),
        };
        let hello = ClientHello::read(self.message.body(), cx.transport())?;
        // The answer may have taken its time.
        let skew = ticket_age_skew(cx, self.verified.choice.psk.as_ref(), &hello)?;
        let outcome = match judge(cx, &self.verified.choice, skew) {
            Ok(()) if is_first => EarlyDataOutcome::Accepted,
            Ok(()) => EarlyDataOutcome::Rejected(NoEarlyData::NotSingleUse),
            Err(why) => EarlyDataOutcome::Rejected(why),
        };
        tls13::answer(cx, self.verified, &hello, Some(outcome))
    }
}

/// Early data is taken from now on. `transcript` is that of the ClientHello.
pub(super) fn open(
    cx: &mut Cx<'_>,
    secret: Option<&EarlySecret>,
    transcript: &Transcript,
    psk: Option<&FoundPsk>,
) -> Result<(), Error> {
    let (Some(secret), Some(FoundPsk { secret: PskSecret::Session(session), .. })) = (secret, psk) else {
        return Err(Internal::Bug("early data without a session").into());
    };
    let hash = transcript.current();
    let traffic = secret.client_traffic(hash.as_ref());
    let exporter = secret.exporter(hash.as_ref());
    cx.output.log_secret("CLIENT_EARLY_TRAFFIC_SECRET", traffic.bytes());
    cx.output.log_secret("EARLY_EXPORTER_SECRET", exporter.bytes());
    cx.emitter.read_keys(Epoch::Early, &traffic.keys(cx.transport()))?;
    cx.emitter.limit_early_data(session.max_early_data());
    cx.output.early = EarlyOutput {
        sending: Sending::Nothing,
        exporter: Some(exporter),
        alpn: cx.output.negotiated.alpn.clone(),
        peer: session.peer.clone(),
    };
    Ok(())
}

/// The server's Finished is sent; early data and its end are to come.
pub(super) fn expect_end(cx: &mut Cx<'_>, finish: Finish, transcript: Transcript) -> Box<dyn State> {
    cx.output.early.sending = Sending::Answer;
    Box::new(ExpectEndOfEarlyData { finish, transcript })
}

struct ExpectEndOfEarlyData {
    finish: Finish,
    transcript: Transcript,
}

impl State for ExpectEndOfEarlyData {
    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Box<dyn State>, Error> {
        let Self { finish, mut transcript } = *self;
        // RFC 8446 §4.5: empty, and the last under its keys.
        if !message.expect(HandshakeType::END_OF_EARLY_DATA, "EndOfEarlyData")?.is_empty() {
            return Err(Malformed::TrailingBytes("EndOfEarlyData").into());
        }
        transcript.add(message.bytes());
        finish.after_early_data(cx, transcript)
    }
}

/// Whether the client offers early data.
pub(super) fn is_offered(hello: &ClientHello<'_>) -> bool {
    hello.extensions.has(ExtensionType::EARLY_DATA)
}
