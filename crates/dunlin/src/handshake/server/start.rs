//! The server's handshake until its choices are made: ClientHello, profile, PSK, HelloRetryRequest.

use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::vec::Vec;

use super::address::{self, Proof};
use super::arrival::{Arrival, Choice, SentRetry, Spent};
use super::hello_retry::{self, Request};
use super::rank::{self, AfterOrigin};
use super::{mark, tls13};
use crate::auth::Belief;
use crate::crypto::{HashAlgorithm, Tls13CipherSuite};
use crate::error::{Error, Misuse, PeerIncompatible, PeerMisbehaved};
use crate::handshake::negotiate::key_share::{self, ShareChoice};
use crate::handshake::negotiate::psk::{FoundPsk, PskSecret};
use crate::handshake::negotiate::supported_versions::{no_common_version, offers_tls12, offers_tls13};
use crate::handshake::negotiate::{self, cookie, early_data, psk, server_name, tls_cert_with_extern_psk};
use crate::handshake::question::{Answer, Question};
use crate::handshake::retry::Retry;
use crate::handshake::setup::ServerConfig;
use crate::handshake::{AwaitAnswer, Cx, ExpectMessage, Step};
use crate::message::{ClientHello, Message};
use crate::protocol::Protocol;
use crate::resume::{Session, TicketKind};
use crate::schedule::Transcript;
use crate::schedule::binder::PskKind;
use crate::settings::PskSource;
use crate::time::Now;
use crate::wire::{ExtensionType, Field, HandshakeType, PskKeyExchangeMode};

/// The most identities of one ClientHello that the server looks up. A client needs one or two tickets and a
/// key, and each look-up is work for a client that is not authenticated.
pub(crate) const MAX_IDENTITIES: usize = 5;

/// The first step of a server: it waits for a ClientHello.
pub(crate) fn start(config: Arc<ServerConfig>) -> Step {
    expect(config, None)
}

/// Waits for a ClientHello, the second one after a HelloRetryRequest.
fn expect(config: Arc<ServerConfig>, retry: Option<SentRetry>) -> Step {
    Step::expect(ExpectClientHello { config, retry, parsed: None })
}

struct ExpectClientHello {
    config: Arc<ServerConfig>,
    /// The HelloRetryRequest that this server has sent, if any.
    retry: Option<SentRetry>,
    /// The ClientHello that follows, if it was parsed before.
    parsed: Option<ClientHello>,
}

impl ExpectMessage for ExpectClientHello {
    fn reads(&mut self, protocol: Protocol, message: &Message) -> bool {
        self.parsed = match message.typ {
            HandshakeType::CLIENT_HELLO => ClientHello::read(message.clone(), protocol).ok(),
            _ => None,
        };
        self.parsed.is_some()
    }

    fn message(self: Box<Self>, cx: &mut Cx<'_>, message: Message) -> Result<Step, Error> {
        let Self { config, retry, parsed } = *self;
        let hello = match parsed {
            Some(hello) => hello,
            None => {
                message.expect(HandshakeType::CLIENT_HELLO)?;
                ClientHello::read(message, cx.protocol())?
            }
        };
        match offers_tls13(&hello, cx.protocol())? {
            true => check(&hello)?,
            // A client without TLS 1.3 may still get a profile with TLS 1.2. That is too late after a
            // HelloRetryRequest, which is a TLS 1.3 message.
            false if retry.is_some() => {
                return Err(no_common_version(&hello, cx.protocol()));
            }
            false => {}
        }
        let retry = match retry {
            Some(retry) => Some(retry),
            None => {
                cx.effects.client_random = hello.random;
                match address::check(cx, &config, &hello)? {
                    Proof::Returned(retry) => retry,
                    Proof::Demanded(sent) => return Ok(expect(config, sent)),
                }
            }
        };
        let mut sent = retry;
        let spent = sent.as_mut().and_then(|sent| sent.spent.take());
        mark::before_choice(cx, Arrival { config, hello, sent, spent }, choose_config)
    }
}

/// Asks the caller to choose the configuration, if that is due.
fn choose_config(cx: &mut Cx<'_>, arrival: Arrival) -> Result<Step, Error> {
    let Arrival { config, hello, sent, .. } = &arrival;
    if !config.choose_profile || sent.as_ref().is_some_and(|sent| sent.has_profile) {
        return with_config(cx, arrival);
    }
    let mut hints = negotiate::hints(hello)?;
    if let Some(SentRetry { retry, .. }) = sent {
        (hints.retried_suite, hints.retried_group) = (Some(retry.cipher_suite), retry.group);
    }
    cx.ask(Err(Question::ChooseProfile(hints)), Box::new(AwaitProfile(arrival)))
}

/// The checks of a TLS 1.3 ClientHello that do not depend on the configuration.
fn check(hello: &ClientHello) -> Result<(), Error> {
    // RFC 8446 §4.2.1: beside supported_versions a server ignores legacy_version. RFC 9846 §4.2.2 rejects
    // other values than 0x0303, but BoringSSL still accepts them, and so does this server. RFC 8446 §4.1.2:
    // the only compression method is null.
    if hello.compression_methods() != [0] {
        return Err(PeerMisbehaved::IllegalParameter(Field::LegacyCompressionMethods).into());
    }
    negotiate::check(hello)
}

/// Waits for the caller to choose the configuration for this client.
struct AwaitProfile(Arrival);

impl AwaitAnswer for AwaitProfile {
    fn answer(self: Box<Self>, cx: &mut Cx<'_>, answer: Answer) -> Result<Step, Error> {
        let Self(mut arrival) = *self;
        let config = answer.into_profile()?;
        let asked = core::mem::replace(&mut arrival.config, config);
        let Arrival { config, hello, sent, .. } = &arrival;
        let retry = sent.as_ref().map(|sent| &sent.retry);
        rank::check_choice(cx, &asked, config, hello, retry)?;
        mark::after_choice(cx, &asked, arrival, with_config)
    }
}

/// Continues with the chosen configuration: handles a returned cookie, then looks for a PSK.
fn with_config(cx: &mut Cx<'_>, arrival: Arrival) -> Result<Step, Error> {
    let Arrival { config, hello, sent, spent } = arrival;
    cx.effects.key_log.clone_from(&config.profile.key_log);
    cx.progress.key_update_after = config.profile.records.key_update_after;
    cx.progress.handshake_only = config.handshake_only;
    cx.draft.profile.clone_from(&config.profile.name);
    cx.emitter.note_settings(&config.digests.trust);
    if let Some(content) = config.profile.records.max_sent_record {
        cx.emitter.cap_sent_records(content.into());
    }
    let tls12 = if sent.is_none() { config.parts.tls12 } else { None };
    if !(config.profile.has_tls13() && offers_tls13(&hello, cx.protocol())?) {
        let Some(tls12) = tls12.filter(|_| offers_tls12(&hello, cx.protocol()).unwrap_or(false)) else {
            return Err(no_common_version(&hello, cx.protocol()));
        };
        return (tls12.server)(cx, Arc::clone(&config), hello, None);
    }
    // RFC 9147 §5.3: legacy_cookie is empty in DTLS 1.3.
    if !hello.legacy_cookie().is_empty() {
        return Err(PeerMisbehaved::IllegalParameter(Field::LegacyCookie).into());
    }
    let retry = cookie::check(cx, &config, &hello, sent.map(|sent| (sent.retry, sent.cookie)))?;
    if retry.is_some() && hello.extensions().has(ExtensionType::COOKIE) {
        cx.emitter.prove_address();
    }
    if let Some(retry) = &retry {
        retry.check(&config.profile.provider, &hello)?;
        cx.draft.retried = true;
        // RFC 8446 §4.1.2: the second ClientHello offers no early data.
        if early_data::is_offered(&hello) {
            return Err(PeerMisbehaved::IllegalParameter(Field::EarlyDataAfterRetry).into());
        }
    }
    let mode = psk::mode(&config, &hello)?;
    let psk_possible = config.allows_psk() && mode.is_some();
    let missing = match (mode, &config.psks) {
        (None, Some(_)) => psk::no_mode(&config, &hello)?,
        _ => PeerIncompatible::NoPsk,
    };
    let mut candidates: Vec<Candidate> = Vec::new();
    let looked_up = if psk_possible { MAX_IDENTITIES } else { 0 };
    for (index, identity) in psk::identities(&hello)?.into_iter().enumerate().take(looked_up) {
        candidates.extend(Candidate::of(&config, index, identity.identity));
    }
    // RFC 8773 §4: only an external PSK accompanies certificates.
    let with_certificate = tls_cert_with_extern_psk::accepts(&config, &hello)?;
    candidates.retain(|candidate| !with_certificate || candidate.kind != PskKind::Resumption);
    candidates.reverse();
    find_psk(cx, Search { config, hello, retry, candidates, missing, with_certificate, spent })
}

/// One look-up. Each identity may name a session or an external PSK, which takes two look-ups.
pub(super) struct Candidate {
    pub(super) index: usize,
    pub(super) identity: Vec<u8>,
    kind: PskKind,
}

impl Candidate {
    /// The look-ups for one identity: the session first, then the external PSK.
    fn of(config: &ServerConfig, index: usize, identity: Vec<u8>) -> impl Iterator<Item = Self> {
        let session = (!config.tickets.is_none()).then(|| (PskKind::Resumption, identity.clone()));
        let external = config.psks.is_some().then_some((PskKind::External, identity));
        session.into_iter().chain(external).map(move |(kind, identity)| Self { index, identity, kind })
    }
}

/// The search for a PSK, with the remaining look-ups. The next one is last.
pub(super) struct Search {
    pub(super) config: Arc<ServerConfig>,
    pub(super) hello: ClientHello,
    pub(super) retry: Option<Retry>,
    candidates: Vec<Candidate>,
    /// The error if no candidate is usable.
    missing: PeerIncompatible,
    /// Whether certificates authenticate beside an external PSK.
    with_certificate: bool,
    /// The ticket for early data, if it was marked as used.
    pub(super) spent: Option<Spent>,
}

/// Works through the look-ups until one yields a usable PSK. Without one, the server authenticates by
/// certificate.
fn find_psk(cx: &mut Cx<'_>, mut search: Search) -> Result<Step, Error> {
    let Some(candidate) = search.candidates.pop() else {
        let missing = search.missing.clone();
        return choose(cx, search, Err(missing));
    };
    let config = &search.config;
    let taken = search.spent.as_ref().and_then(|spent| spent.session(config, &candidate.identity));
    let known = match (candidate.kind, &config.tickets.kind, &config.psks) {
        (PskKind::Resumption, ..) if let Some(session) = taken => {
            Ok(Answer::Session(Some(Box::new(session.clone()))))
        }
        (PskKind::Resumption, TicketKind::Stateless(seal), _) => {
            let ticket = seal.open(cx.now, config.digests.trust.as_bytes(), &candidate.identity);
            let session = ticket.and_then(|ticket| Session::from_ticket(&ticket, config.digests.trust).ok());
            Ok(Answer::Session(session.map(Box::new)))
        }
        (PskKind::Resumption, TicketKind::Stateful(store), _) => {
            Ok(Answer::Session(store.find(&candidate.identity).map(Box::new)))
        }
        (PskKind::Resumption, ..) => Err(Question::FindSession { id: candidate.identity.clone() }),
        (PskKind::External | PskKind::Imported, _, source) => {
            let identity = &candidate.identity;
            look_up(source.as_ref(), identity, cx.now)
                .ok_or_else(|| Question::FindPsk { identity: identity.clone() })
        }
    };
    cx.ask(known, Box::new(AwaitPsk { search, candidate }))
}

/// The external PSK with this identity. `None` if the caller must be asked.
pub(super) fn look_up(source: Option<&PskSource>, identity: &[u8], now: Now) -> Option<Answer> {
    match source {
        None => Some(Answer::Psk(None)),
        Some(PskSource::Here(keys)) => Some(Answer::Psk(keys.find(identity, now))),
        Some(PskSource::Ask) => None,
    }
}

/// Waits for the session or PSK of an identity.
struct AwaitPsk {
    search: Search,
    candidate: Candidate,
}

impl AwaitAnswer for AwaitPsk {
    fn answer(self: Box<Self>, cx: &mut Cx<'_>, answer: Answer) -> Result<Step, Error> {
        let Self { search, candidate } = *self;
        let secret = match (candidate.kind, answer) {
            (PskKind::Resumption, Answer::Session(session)) => session.map(PskSecret::Session),
            (PskKind::External | PskKind::Imported, Answer::Psk(psk)) => {
                psk.filter(|psk| psk.is_for(cx.protocol().version())).map(PskSecret::External)
            }
            _ => return Err(Misuse::WrongAnswer.into()),
        };
        weigh(cx, search, candidate, secret)
    }
}

/// Continues with the session or PSK if it is usable, otherwise with the next look-up.
fn weigh(
    cx: &mut Cx<'_>,
    mut search: Search,
    candidate: Candidate,
    secret: Option<PskSecret>,
) -> Result<Step, Error> {
    if let Some(PskSecret::External(psk)) = &secret
        && search.config.profile.common_suite(&search.hello.cipher_suites, Some(psk.hash())).is_none()
    {
        search.missing = PeerIncompatible::PskHash;
    }
    match secret.filter(|secret| search.can_use(cx, secret)) {
        Some(PskSecret::Session(session)) => {
            let config = Arc::clone(&search.config);
            let then: AfterOrigin = Box::new(move |cx, session| match session {
                Some(session) => use_psk(cx, search, candidate, PskSecret::Session(session)),
                None => find_psk(cx, search),
            });
            check_origin(cx, config, session, then)
        }
        Some(secret) => use_psk(cx, search, candidate, secret),
        None => find_psk(cx, search),
    }
}

/// Rejects a session if the external PSK from which it stems was removed or replaced, or if its client now
/// needs a stronger profile.
pub(super) fn check_origin(
    cx: &mut Cx<'_>,
    config: Arc<ServerConfig>,
    session: Box<Session>,
    then: AfterOrigin,
) -> Result<Step, Error> {
    let Some(identity) = session.origin() else { return rank::weigh(cx, config, session, then) };
    let known = look_up(config.psks.as_ref(), identity, cx.now);
    let known = known.ok_or_else(|| Question::FindPsk { identity: identity.to_vec() });
    cx.ask(known, Box::new(AwaitOrigin { config, session, then }))
}

/// Waits for the external PSK from which a session stems.
struct AwaitOrigin {
    config: Arc<ServerConfig>,
    session: Box<Session>,
    then: AfterOrigin,
}

impl AwaitAnswer for AwaitOrigin {
    fn answer(self: Box<Self>, cx: &mut Cx<'_>, answer: Answer) -> Result<Step, Error> {
        let Self { config, mut session, then } = *self;
        let Answer::Psk(psk) = answer else { return Err(Misuse::WrongAnswer.into()) };
        let sha256 = config.profile.provider.sha256;
        if psk.is_some_and(|psk| session.stems_from(&psk, sha256)) {
            rank::weigh(cx, config, session, then)
        } else {
            then(cx, None)
        }
    }
}

fn use_psk(cx: &mut Cx<'_>, search: Search, candidate: Candidate, secret: PskSecret) -> Result<Step, Error> {
    let Candidate { index, identity, .. } = candidate;
    let authenticates = !search.with_certificate;
    choose(cx, search, Ok(FoundPsk { index, identity, secret, authenticates }))
}

impl Search {
    /// Whether the PSK fits a common suite and, for a session, is fresh and bound to these settings and this
    /// server name.
    fn can_use(&self, cx: &Cx<'_>, secret: &PskSecret) -> bool {
        let Self { config, hello, .. } = self;
        let bound = match secret {
            PskSecret::External(_) => true,
            PskSecret::Session(session) => is_good(cx, config, session, hello),
        };
        let hash = secret.hash(config);
        let suite = suite_after(config, hello, self.retry.as_ref(), hash);
        let same = |retry: &Retry| suite.is_some_and(|s| s.id == retry.cipher_suite);
        let is_beside = self.with_certificate || secret.is_beside();
        bound
            && (is_beside || !config.profile.psk.extern_psk_required)
            && hash.is_some()
            && suite.is_some()
            && self.retry.as_ref().is_none_or(same)
    }
}

/// Whether a session is fresh, was made under the same trust and for the same server name, and may serve this
/// profile.
pub(super) fn is_good(cx: &Cx<'_>, config: &ServerConfig, session: &Session, hello: &ClientHello) -> bool {
    let name = server_name::of(hello).ok().flatten();
    session.is_fresh(cx.now)
        && session.transport == cx.protocol().transport()
        && session.settings == config.digests.trust
        && session.serves(config.profile.rank)
        && session.server_name == name
        && config.profile.trust.still_believe(session.peer.as_ref(), cx.now) == Belief::Holds
}

/// The server's suite for a ClientHello that answers `retry`, if that is present. A profile that the caller
/// has chosen after a HelloRetryRequest keeps the suite of that request, even if it prefers another one.
fn suite_after(
    config: &ServerConfig,
    hello: &ClientHello,
    retry: Option<&Retry>,
    hash: Option<HashAlgorithm>,
) -> Option<&'static Tls13CipherSuite> {
    let retry = if config.ranks.is_some() { retry } else { None };
    let bound = retry.and_then(|retry| config.profile.suite(retry.cipher_suite));
    let fits = |s: &&'static Tls13CipherSuite| {
        hash.is_none_or(|h| h == s.hash.algorithm()) && hello.cipher_suites.contains(&s.id)
    };
    bound.filter(fits).or_else(|| config.profile.common_suite(&hello.cipher_suites, hash))
}

/// Chooses the suite and the group, or sends a HelloRetryRequest. Without a PSK, `psk` is the reason.
fn choose(cx: &mut Cx<'_>, search: Search, psk: Result<FoundPsk, PeerIncompatible>) -> Result<Step, Error> {
    let Search { config, hello, retry, spent, .. } = search;
    let missing = psk.as_ref().err().cloned();
    let psk = psk.ok();
    let hash = psk.as_ref().and_then(|p| p.secret.hash(&config));
    let suite = suite_after(&config, &hello, retry.as_ref(), hash);
    let suite = suite.ok_or(PeerIncompatible::CipherSuite)?;
    if retry.as_ref().is_some_and(|r| r.cipher_suite != suite.id) {
        return Err(PeerMisbehaved::IllegalParameter(Field::ClientHelloAfterRetry).into());
    }
    let mode = match psk {
        Some(_) => psk::mode(&config, &hello)?,
        None => None,
    };
    if let Some(missing) = missing
        && (config.profile.credentials.is_empty()
            || config.profile.psk.extern_psk_required
            || psk::is_alone(&hello.extensions()))
    {
        if hello.extensions().has(ExtensionType::PRE_SHARED_KEY) {
            return Err(missing.into());
        }
        // RFC 8446 §4.1.1: the two sides have no common parameters.
        return Err(PeerIncompatible::NoCredential(Field::NoneAndNoPsk).into());
    }
    let share = match mode {
        Some(PskKeyExchangeMode::PSK_KE) => None,
        _ => match key_share::choose(&config, &hello, retry.as_ref())? {
            ShareChoice::Use(share) => Some(share),
            ShareChoice::Request(group) => {
                let request = Request { suite, group: Some(group), spent, has_profile: true };
                let sent = hello_retry::send(cx, &config, &hello, request)?;
                return Ok(expect(config, Some(sent)));
            }
        },
    };
    if retry.is_none() && config.demands_cookie(cx.protocol()) {
        let request = Request { suite, group: None, spent, has_profile: true };
        let sent = hello_retry::send(cx, &config, &hello, request)?;
        return Ok(expect(config, Some(sent)));
    }
    let transcript = match retry {
        None => Transcript::new(suite.hash),
        Some(retry) => hello_retry::rebuild(cx, &hello, suite, &retry)?,
    };
    tls13::client_hello(cx, Choice { config, suite, share, psk, spent, transcript }, &hello)
}
