//! The server's early data: the ticket is used up first, then judged; and the end of the data (RFC 8446 §4.2.10, §8).

use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::vec::Vec;

use super::start::{self, Candidate, FoundPsk, PskSecret, Search};
use super::tls13::{Choice, Finish};
use crate::early::{EARLY_DATA_WINDOW, EarlyDataOutcome, EarlyDataServer, NoEarlyData, SingleUse};
use crate::error::{Error, Internal, Malformed, Misuse, PeerMisbehaved};
use crate::extension::pre_shared_key;
use crate::handshake::progress::{EarlyOutput, EarlySession, Sending};
use crate::handshake::question::{Answer, Question};
use crate::handshake::setup::ServerConfig;
use crate::handshake::{AwaitAnswer, Cx, ExpectMessage, Step};
use crate::message::{ClientHello, Message};
use crate::protocol::Protocol;
use crate::resume::{EarlyTerms, ServerSessions, Session, TicketKind};
use crate::schedule::Transcript;
use crate::schedule::tls13::EarlySecret;
use crate::transport::Epoch;
use crate::wire::{ExtensionType, HandshakeType, What};

/// The window in milliseconds.
const WINDOW_MS: u64 = EARLY_DATA_WINDOW.as_millis() as u64;

/// The settings and the session by which early data could be taken here, today or another time. The server's name, the
/// settings and the profile in the session were compared when it was taken.
fn bearer<'a>(
    cx: &Cx<'_>,
    choice: &'a Choice,
) -> Result<(&'a EarlyDataServer, &'a Session, &'a EarlyTerms), NoEarlyData> {
    let server = usable(&choice.config, cx.protocol()).ok_or(NoEarlyData::Disabled)?;
    let Some(FoundPsk { index, secret: PskSecret::Session(session), .. }) = &choice.psk else {
        return Err(NoEarlyData::NotResumed);
    };
    // RFC 8446 §4.2.10 for all that follows.
    if cx.draft.retried {
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
    if terms.alpn != cx.draft.alpn || !server.protocols.allow(terms.alpn.as_ref()) {
        return Err(NoEarlyData::ApplicationProtocol);
    }
    // RFC 8446 §8.3.
    match skew.is_some_and(|skew| skew.unsigned_abs() <= WINDOW_MS) {
        true => Ok(()),
        false => Err(NoEarlyData::TicketAge),
    }
}

/// The settings for early data, where something says that a ticket comes for the first time.
fn usable(config: &ServerConfig, protocol: Protocol) -> Option<&EarlyDataServer> {
    let possible = match (&config.single_use, &config.tickets.kind) {
        (_, TicketKind::None) => false,
        (Some(SingleUse::Register(_) | SingleUse::Ask), _) => true,
        (Some(SingleUse::Sessions) | None, kind) => matches!(kind, TicketKind::Stateful(_)),
    };
    config.early_data.as_ref().filter(|_| protocol.has_early_data() && possible)
}

/// The store whose sessions each resume once, where no register says that a ticket comes for the first time.
fn store(config: &ServerConfig) -> Option<&Arc<dyn ServerSessions>> {
    match (&config.single_use, &config.tickets.kind) {
        (Some(SingleUse::Sessions) | None, TicketKind::Stateful(store)) => Some(store),
        _ => None,
    }
}

/// What new tickets of this connection allow.
pub(super) fn terms(cx: &Cx<'_>, config: &ServerConfig) -> Option<EarlyTerms> {
    let alpn = &cx.agreed().alpn;
    let server = usable(config, cx.protocol()).filter(|server| server.protocols.allow(alpn.as_ref()))?;
    Some(EarlyTerms { max_size: server.max_size, alpn: alpn.clone() })
}

/// By how much the client's view of its ticket's age is off (RFC 8446 §4.2.11.1), in milliseconds. `index` is that of the
/// ticket in the offer.
pub(super) fn ticket_age_skew(
    cx: &Cx<'_>,
    index: usize,
    session: &Session,
    hello: &ClientHello,
) -> Result<i64, Error> {
    let offer = hello.extensions().require::<pre_shared_key::Offer>()?;
    let identity = offer.identities.get(index).ok_or(Internal::Bug(What::PskIndex))?;
    let theirs = i64::from(identity.obfuscated_ticket_age.wrapping_sub(session.age_add));
    let ours = i64::try_from(cx.now.unix_ms.saturating_sub(session.issued_ms)).unwrap_or(i64::MAX);
    Ok(theirs.saturating_sub(ours))
}

/// A ticket that is used up for early data, whatever becomes of this handshake.
pub(super) struct Spent {
    identity: Vec<u8>,
    /// Whether it came for the first time.
    is_first_use: bool,
    /// The session, if it was taken from the store: a second ClientHello can still resume it.
    session: Option<Box<Session>>,
}

impl Spent {
    /// Whether early data comes for the first time with the ticket that was chosen.
    fn is_first_use(&self, psk: Option<&FoundPsk>) -> bool {
        self.is_first_use && psk.is_some_and(|psk| psk.identity == self.identity)
    }

    /// The session under `identity`, if it was taken from the store.
    pub(super) fn session(&self, identity: &[u8]) -> Option<&Session> {
        self.session.as_deref().filter(|_| self.identity == identity)
    }
}

/// Uses the ticket up with which the client offers early data; `None` if there is nothing to use up.
///
/// It comes before anything that could refuse the early data: another server would accept later what this one has refused
/// (RFC 8446 §8.2). So a HelloRetryRequest, early data that is off here, a ticket that cannot be resumed here or another
/// application protocol change nothing. A second ClientHello counts, too: a server that has forgotten the first one may have
/// sent the request. A session without terms for early data brings none to any server. The binder is verified first: only
/// clients that have the ticket's secret fill a register.
pub(super) fn spend(
    cx: &Cx<'_>,
    search: &Search,
    candidate: &Candidate,
    session: &Session,
) -> Result<Option<Result<Answer, Question>>, Error> {
    let config = &search.config;
    let is_spent = search.spent.as_ref().is_some_and(|spent| spent.identity == candidate.identity);
    let counts = is_offered(&search.hello) || search.retry.is_some();
    // RFC 8446 §4.2.10: early data comes with the first PSK.
    if is_spent || !counts || candidate.index != 0 || session.early.is_none() {
        return Ok(None);
    }
    if !cx.protocol().has_early_data() || !start::has_valid_binder(cx, search, session)? {
        return Ok(None);
    }
    if let Some(store) = store(config) {
        return match store.remove(&candidate.identity) {
            true => Ok(Some(Ok(Answer::FirstUse(true)))),
            false => Err(PeerMisbehaved::SessionUsedTwice.into()),
        };
    }
    let hash = config.profile.provider.sha256.hash(&[b"dunlin early data", &candidate.identity]);
    let id = *hash.as_ref().first_chunk::<32>().ok_or(Internal::Bug(What::Sha256))?;
    // The register hears of all of the time in which this ClientHello is fresh, which may be yet to come.
    let ahead_ms = u64::try_from(ticket_age_skew(cx, candidate.index, session, &search.hello)?).unwrap_or(0);
    let fresh_until = cx.now.unix_ms.saturating_add(ahead_ms).saturating_add(WINDOW_MS);
    let until_ms = fresh_until.min(session.expires_ms());
    Ok(match &config.single_use {
        Some(SingleUse::Register(register)) => {
            Some(Ok(Answer::FirstUse(register.first_use(cx.now, &id, until_ms))))
        }
        Some(SingleUse::Ask) => Some(Err(Question::FirstUse { id, until_ms })),
        Some(SingleUse::Sessions) | None => None,
    })
}

/// Waits for word on whether the ticket comes for the first time.
pub(super) struct AwaitFirstUse {
    pub(super) search: Search,
    pub(super) candidate: Candidate,
    pub(super) session: Box<Session>,
}

impl AwaitAnswer for AwaitFirstUse {
    fn answer(self: Box<Self>, cx: &mut Cx<'_>, answer: Answer) -> Result<Step, Error> {
        let Self { mut search, candidate, session } = *self;
        let is_first_use = match answer {
            Answer::FirstUse(is_first) => is_first,
            // Without an answer nobody knows.
            Answer::Failed => false,
            _ => return Err(Misuse::WrongAnswer.into()),
        };
        search.spent = Some(Spent {
            identity: candidate.identity.clone(),
            is_first_use,
            session: store(&search.config).map(|_| session.clone()),
        });
        start::weigh(cx, search, candidate, Some(PskSecret::Session(session)))
    }
}

/// What becomes of early data that is offered; `skew` is that of the ticket's age.
pub(super) fn outcome(cx: &Cx<'_>, choice: &Choice, skew: Option<i64>) -> EarlyDataOutcome {
    match judge(cx, choice, skew) {
        Ok(()) if choice.spent.as_ref().is_some_and(|spent| spent.is_first_use(choice.psk.as_ref())) => {
            EarlyDataOutcome::Accepted
        }
        Ok(()) => EarlyDataOutcome::Rejected(NoEarlyData::NotSingleUse),
        Err(why) => EarlyDataOutcome::Rejected(why),
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
        return Err(Internal::Bug(What::NoEarlySession).into());
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

/// The server's Finished is sent; early data and its end are to come.
pub(super) fn expect_end(cx: &mut Cx<'_>, finish: Finish, transcript: Transcript) -> Step {
    cx.progress.early.sending = Sending::Answer;
    Step::expect(ExpectEndOfEarlyData { finish, transcript })
}

struct ExpectEndOfEarlyData {
    finish: Finish,
    transcript: Transcript,
}

impl ExpectMessage for ExpectEndOfEarlyData {
    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        let Self { finish, mut transcript } = *self;
        // RFC 8446 §4.5: empty, and the last under its keys.
        if !message.expect(HandshakeType::END_OF_EARLY_DATA)?.is_empty() {
            return Err(Malformed::TrailingBytes(What::Message(HandshakeType::END_OF_EARLY_DATA)).into());
        }
        transcript.add(message.bytes());
        finish.after_early_data(cx, transcript)
    }
}

/// Whether the client offers early data.
pub(super) fn is_offered(hello: &ClientHello) -> bool {
    hello.extensions().has(ExtensionType::EARLY_DATA)
}
