//! The rank of the profile against the rank that the client's identity demands. Before Finished a server of
//! [`crate::ServerProfiles`] chooses by hints that anyone can forge, so the proven identity decides in the
//! end.

use crate::sync::Arc;
use alloc::boxed::Box;

use crate::auth::{PeerIdentity, Validity};
use crate::error::{Error, Misuse, PeerIncompatible};
use crate::handshake::negotiate::key_share::{self, ShareChoice};
use crate::handshake::negotiate::psk;
use crate::handshake::question::{Answer, IdentifiedClient, Question};
use crate::handshake::retry::Retry;
use crate::handshake::setup::ServerConfig;
use crate::handshake::{AwaitAnswer, Cx, Step};
use crate::message::ClientHello;
use crate::protocol::TransportKind;
use crate::resume::Session;
use crate::wire::PskKeyExchangeMode;

/// Checks the caller's choice for a ClientHello. `asked` is the configuration that asked for it. `retry` is
/// the HelloRetryRequest that this server has sent before it could ask.
pub(super) fn check_choice(
    cx: &Cx<'_>,
    asked: &ServerConfig,
    chosen: &ServerConfig,
    hello: &ClientHello,
    retry: Option<&Retry>,
) -> Result<(), Error> {
    let Some(ranks) = asked.ranks else { return Ok(()) };
    // No data passes over a connection that ends with its handshake, so no rank protects it.
    let has_no_data = chosen.handshake_only && cx.protocol().transport() == TransportKind::Stream;
    if chosen.ranks.is_none() && !has_no_data {
        let why = "a server of several profiles serves only them: answer with a configuration of its ServerProfiles";
        return Err(Misuse::Config(why.into()).into());
    }
    if chosen.profile.rank < ranks.floor && !has_no_data {
        return Err(PeerIncompatible::Rank.into());
    }
    let Some(retry) = retry else { return Ok(()) };
    // RFC 8446 §4.1.4: the ServerHello selects the suite and the group of the HelloRetryRequest.
    if chosen.profile.suite(retry.cipher_suite).is_none() {
        return Err(PeerIncompatible::CipherSuite.into());
    }
    let has_group = match retry.group {
        Some(group) => chosen.profile.group(group).is_some(),
        None if psk::mode(chosen, hello)? == Some(PskKeyExchangeMode::PSK_KE) => true,
        // RFC 8446 §4.1.2: if the request selected no group, the client keeps its shares.
        None => matches!(key_share::choose(chosen, hello, None), Ok(ShareChoice::Use(_))),
    };
    if has_group { Ok(()) } else { Err(PeerIncompatible::Group.into()) }
}

/// The question for the configuration of a client that has proven its identity. `None` if the server does not
/// choose by identity, or the client has none. A client without identity gets no profile below the anonymous
/// default.
pub(super) fn question(
    cx: &Cx<'_>,
    config: &ServerConfig,
    client: Option<&PeerIdentity>,
) -> Result<Option<Question>, Error> {
    match (config.ranks, client) {
        (None, _) => Ok(None),
        (Some(_), Some(client)) => Ok(Some(about(config, client, cx.draft.peer_validity, true))),
        (Some(ranks), None) if config.profile.rank >= ranks.anonymous => Ok(None),
        (Some(_), None) => Err(PeerIncompatible::Rank.into()),
    }
}

fn about(
    config: &ServerConfig,
    client: &PeerIdentity,
    validity: Option<Validity>,
    is_proven: bool,
) -> Question {
    Question::ProfileOf(Box::new(IdentifiedClient {
        identity: client.clone(),
        validity,
        profile: config.profile.name.clone(),
        is_proven,
    }))
}

/// The continuation with the configuration of the client's identity.
pub(super) type Then = Box<dyn FnOnce(&mut Cx<'_>, Arc<ServerConfig>) -> Result<Step, Error> + Send + Sync>;

/// Asks the question and continues with the answer, unless that refuses the client.
pub(super) fn ask(cx: &mut Cx<'_>, question: Question, then: Then) -> Result<Step, Error> {
    cx.ask(Err(question), Box::new(AwaitProfile { then }))
}

/// Checks that the profile in use is strong enough for a client whose identity has the profile `needed`.
pub(super) fn check(used: &ServerConfig, needed: &ServerConfig) -> Result<(), Error> {
    if used.profile.rank >= needed.profile.rank { Ok(()) } else { Err(PeerIncompatible::Rank.into()) }
}

/// Waits for the configuration of the client's identity.
struct AwaitProfile {
    then: Then,
}

impl AwaitAnswer for AwaitProfile {
    fn answer(self: Box<Self>, cx: &mut Cx<'_>, answer: Answer) -> Result<Step, Error> {
        (self.then)(cx, answer.into_profile()?)
    }
}

/// The continuation with the session if its external PSK is still valid, otherwise with `None`.
pub(super) type AfterOrigin =
    Box<dyn FnOnce(&mut Cx<'_>, Option<Box<Session>>) -> Result<Step, Error> + Send + Sync>;

/// Continues with the session if today's profile of its client allows the resumption, otherwise with `None`.
/// A client that a full handshake would refuse for its rank, or that the caller refuses, does not resume.
pub(super) fn weigh(
    cx: &mut Cx<'_>,
    config: Arc<ServerConfig>,
    session: Box<Session>,
    then: AfterOrigin,
) -> Result<Step, Error> {
    let Some(ranks) = config.ranks else { return then(cx, Some(session)) };
    let Some(client) = &session.peer else {
        return then(cx, (config.profile.rank >= ranks.anonymous).then_some(session));
    };
    let question = about(&config, client, session.validity(), false);
    cx.ask(Err(question), Box::new(AwaitSessionProfile { config, session, then }))
}

/// Waits for the configuration of the client of a session.
struct AwaitSessionProfile {
    config: Arc<ServerConfig>,
    session: Box<Session>,
    then: AfterOrigin,
}

impl AwaitAnswer for AwaitSessionProfile {
    fn answer(self: Box<Self>, cx: &mut Cx<'_>, answer: Answer) -> Result<Step, Error> {
        let Self { config, session, then } = *self;
        let is_good = match answer.into_profile() {
            Ok(needed) => check(&config, &needed).is_ok(),
            Err(Error::PeerIncompatible(_)) => false,
            Err(misuse) => return Err(misuse),
        };
        then(cx, is_good.then_some(session))
    }
}
