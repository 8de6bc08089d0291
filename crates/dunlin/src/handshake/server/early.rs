//! The server's early data (RFC 8446 §4.2.10, §8). The server first marks the ticket as used, then decides whether to accept
//! the data. It also handles the end of the data.

use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::vec::Vec;

use super::start::{self, Candidate, FoundPsk, PskSecret, Search};
use super::tls13::{Choice, Finish};
use crate::early::{EARLY_DATA_WINDOW, EarlyDataOutcome, EarlyDataServer, NoEarlyData, SingleUse};
use crate::error::{Error, Internal, Malformed, Misuse, PeerMisbehaved};
use crate::extension::pre_shared_key;
use crate::handshake::negotiate::early_data;
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
use crate::wire::{HandshakeType, What};

/// The window in which a first flight counts as fresh, in milliseconds.
const WINDOW_MS: u64 = EARLY_DATA_WINDOW.as_millis() as u64;

/// The settings and the session under which this server could accept early data. The server has already compared the session's
/// server name and settings, when it selected the session.
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

/// Checks whether the server may accept early data if this is the ticket's first use, and returns the reason if not. `skew` is
/// the skew of the ticket's age.
pub(super) fn judge(cx: &Cx<'_>, choice: &Choice, skew: Option<i64>) -> Result<(), NoEarlyData> {
    let (server, session, terms) = bearer(cx, choice)?;
    if session.cipher_suite != choice.suite.id {
        return Err(NoEarlyData::CipherSuite);
    }
    if terms.alpn != cx.draft.alpn || !server.protocols.allow(terms.alpn.as_ref()) {
        return Err(NoEarlyData::ApplicationProtocol);
    }
    // Profiles of equal trust share sessions, but not early data, which has no forward secrecy and no other proof.
    if terms.profile != Some(choice.config.profile_settings.short()) {
        return Err(NoEarlyData::Profile);
    }
    // RFC 8446 §8.3: the first flight must be fresh.
    match skew.is_some_and(|skew| skew.unsigned_abs() <= WINDOW_MS) {
        true => Ok(()),
        false => Err(NoEarlyData::TicketAge),
    }
}

/// The settings for early data, if the server can tell whether a ticket is used for the first time.
fn usable(config: &ServerConfig, protocol: Protocol) -> Option<&EarlyDataServer> {
    let possible = match (&config.single_use, &config.tickets.kind) {
        (_, TicketKind::None) => false,
        (Some(SingleUse::Register(_) | SingleUse::Ask), _) => true,
        (Some(SingleUse::Sessions) | None, kind) => matches!(kind, TicketKind::Stateful(_)),
    };
    config.early_data.as_ref().filter(|_| protocol.has_early_data() && possible)
}

/// The store that removes each session on its first use, if that takes the place of a register of used tickets.
fn store(config: &ServerConfig) -> Option<&Arc<dyn ServerSessions>> {
    match (&config.single_use, &config.tickets.kind) {
        (Some(SingleUse::Sessions) | None, TicketKind::Stateful(store)) => Some(store),
        _ => None,
    }
}

/// The terms for early data in new tickets of this connection. `None` if they allow none.
pub(super) fn terms(cx: &Cx<'_>, config: &ServerConfig) -> Option<EarlyTerms> {
    let alpn = &cx.agreed().alpn;
    let server = usable(config, cx.protocol()).filter(|server| server.protocols.allow(alpn.as_ref()))?;
    let profile = Some(config.profile_settings.short());
    Some(EarlyTerms { max_size: server.max_size, alpn: alpn.clone(), profile })
}

/// The ticket's age by the client's clock minus its age by the server's clock, in milliseconds (RFC 8446 §4.2.11.1). `index` is
/// the ticket's index in the offer.
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

/// A ticket that is marked as used, so that no server accepts early data with it again. That holds whether or not this
/// handshake succeeds.
pub(super) struct Spent {
    identity: Vec<u8>,
    /// Whether this was its first use.
    is_first_use: bool,
    /// The session, if it was removed from the store. A second ClientHello can still resume it.
    session: Option<Box<Session>>,
}

impl Spent {
    /// Whether the selected PSK is this ticket, and this was its first use.
    fn is_first_use(&self, psk: Option<&FoundPsk>) -> bool {
        self.is_first_use && psk.is_some_and(|psk| psk.identity == self.identity)
    }

    /// The session under `identity`, if it was removed from the store.
    pub(super) fn session(&self, identity: &[u8]) -> Option<&Session> {
        self.session.as_deref().filter(|_| self.identity == identity)
    }
}

/// Marks the ticket with which the client offers early data as used. `None` if there is no such ticket.
///
/// This comes before every check that could reject the early data. Otherwise another server could later accept a copy of data
/// that this one rejected (RFC 8446 §8.2). So it happens even if this server sends a HelloRetryRequest, has early data off,
/// cannot resume the ticket or selects another application protocol.
///
/// A second ClientHello counts, too, since a server that keeps no state may have sent the HelloRetryRequest. A session without
/// terms for early data is skipped: no server accepts early data with it. The binder is verified first, so that only clients
/// with the ticket's secret can fill a register.
pub(super) fn spend(
    cx: &Cx<'_>,
    search: &Search,
    candidate: &Candidate,
    session: &Session,
) -> Result<Option<Result<Answer, Question>>, Error> {
    let config = &search.config;
    let is_spent = search.spent.as_ref().is_some_and(|spent| spent.identity == candidate.identity);
    let counts = early_data::is_offered(&search.hello) || search.retry.is_some();
    // RFC 8446 §4.2.10: early data belongs to the first PSK.
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
    // The register must remember the ticket for as long as a copy of this ClientHello is fresh. If the client's clock runs
    // ahead, that time ends later.
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

/// Waits for the answer whether this is the ticket's first use.
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
            // Without an answer the server rejects early data, because it cannot exclude a replay.
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

/// The outcome of offered early data. `skew` is the skew of the ticket's age.
pub(super) fn outcome(cx: &Cx<'_>, choice: &Choice, skew: Option<i64>) -> EarlyDataOutcome {
    match judge(cx, choice, skew) {
        Ok(()) if choice.spent.as_ref().is_some_and(|spent| spent.is_first_use(choice.psk.as_ref())) => {
            EarlyDataOutcome::Accepted
        }
        Ok(()) => EarlyDataOutcome::Rejected(NoEarlyData::NotSingleUse),
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

/// Waits for early data and EndOfEarlyData, after the server has sent its Finished.
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
        // RFC 8446 §4.5: EndOfEarlyData is empty, and the last message under the early keys.
        if !message.expect(HandshakeType::END_OF_EARLY_DATA)?.is_empty() {
            return Err(Malformed::TrailingBytes(What::Message(HandshakeType::END_OF_EARLY_DATA)).into());
        }
        transcript.add(message.bytes());
        finish.after_early_data(cx, transcript)
    }
}
