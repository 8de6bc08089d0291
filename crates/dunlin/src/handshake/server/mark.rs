//! The mark of a ticket that comes with early data (RFC 8446 §8.1, §8.2). It comes before every choice and
//! every check that could reject the early data. Otherwise a server could later accept a copy of data that
//! this one rejected.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::arrival::{Arrival, Spent};
use super::{early, hello_retry};
use crate::error::{Error, Internal, Misuse, PeerMisbehaved};
use crate::extension::pre_shared_key::Identity;
use crate::handshake::negotiate::supported_versions::offers_tls13;
use crate::handshake::negotiate::{cookie, early_data, psk};
use crate::handshake::question::{Answer, Question};
use crate::handshake::retry::Retry;
use crate::handshake::setup::ServerConfig;
use crate::handshake::{AwaitAnswer, Cx, Step};
use crate::resume::{Session, SingleUse, TicketKind};
use crate::schedule::Transcript;
use crate::schedule::binder::PskKind;
use crate::schedule::tls13::EarlySecret;
use crate::wire::Field;

/// The continuation after the mark.
pub(super) type Then = fn(&mut Cx<'_>, Arrival) -> Result<Step, Error>;

/// Marks the first ticket of a ClientHello that offers early data, if this server knows the ticket's keys or
/// store, then continues.
///
/// The keys open the ticket under whatever trust they have sealed it. So the server marks it even if a
/// profile of another trust, or a configuration that was replaced, would have accepted it.
///
/// A second ClientHello counts, too, since a server that keeps no state may have sent the HelloRetryRequest.
/// A session without terms for early data is skipped: no server accepts early data with it. The binder is
/// verified first, so that only clients with the ticket's secret can fill a register.
pub(super) fn before_choice(cx: &mut Cx<'_>, arrival: Arrival, then: Then) -> Result<Step, Error> {
    let kinds = arrival.config.marks().cloned().collect();
    Marking::start(cx, arrival, kinds, true, then)
}

/// Marks the ticket if only the chosen configuration knows its keys or store, or its cipher suite. This does
/// not count as the first use: without the keys, the server would not have marked the ticket of a client that
/// the caller refuses.
pub(super) fn after_choice(
    cx: &mut Cx<'_>,
    asked: &ServerConfig,
    arrival: Arrival,
    then: Then,
) -> Result<Step, Error> {
    let has_suites = arrival.config.has_suites_beyond(asked);
    let is_new = |kind: &&TicketKind| has_suites || !asked.marks().any(|known| known.is_same(kind));
    let kinds = arrival.config.marks().filter(is_new).cloned().collect();
    Marking::start(cx, arrival, kinds, false, then)
}

/// The search for the keys or store of the first ticket.
struct Marking {
    arrival: Arrival,
    /// The HelloRetryRequest that the ClientHello answers, if any. Nothing but the binder authenticates it.
    retry: Option<Retry>,
    first: Identity,
    /// The remaining keys and stores. The next ones are last.
    kinds: Vec<TicketKind>,
    is_before_choice: bool,
    then: Then,
}

impl Marking {
    fn start(
        cx: &mut Cx<'_>,
        arrival: Arrival,
        mut kinds: Vec<TicketKind>,
        is_before_choice: bool,
        then: Then,
    ) -> Result<Step, Error> {
        let Arrival { hello, sent, spent, .. } = &arrival;
        let has_early_data = cx.protocol().has_early_data() && offers_tls13(hello, cx.protocol())?;
        if spent.is_some() || kinds.is_empty() || !has_early_data {
            return then(cx, arrival);
        }
        let retry = match sent {
            Some(sent) => Some(sent.retry.clone()),
            None => cookie::of(hello)?.and_then(|cookie| Retry::unverified(&cookie)),
        };
        if !early_data::is_offered(hello) && retry.is_none() {
            return then(cx, arrival);
        }
        // RFC 8446 §4.2.10: early data belongs to the first PSK.
        let Some(first) = psk::identities(hello)?.into_iter().next() else { return then(cx, arrival) };
        kinds.reverse();
        Self { arrival, retry, first, kinds, is_before_choice, then }.search(cx)
    }

    /// Looks the ticket up in the remaining keys and stores.
    fn search(mut self, cx: &mut Cx<'_>) -> Result<Step, Error> {
        while let Some(kind) = self.kinds.pop() {
            let id = &self.first.identity;
            let session = match &kind {
                TicketKind::None => None,
                TicketKind::Stateless(keys) => early::open_any(&**keys, cx.now, id),
                TicketKind::Stateful(store) => store.find(id),
                TicketKind::Ask => {
                    let question = Question::FindSession { id: id.clone() };
                    return cx.ask(Err(question), Box::new(AwaitSession(self)));
                }
            };
            if let Some(session) = session
                && self.is_proven(cx, &session)?
            {
                return self.mark(cx, kind, Box::new(session));
            }
        }
        (self.then)(cx, self.arrival)
    }

    /// Whether the session allows early data, and the first binder proves that the client has its secret.
    fn is_proven(&self, cx: &Cx<'_>, session: &Session) -> Result<bool, Error> {
        let Arrival { config, hello, .. } = &self.arrival;
        // A server none of whose providers has this suite cannot verify the binder. It also cannot have
        // created the session.
        let suite = config.suite_of_marks(session.cipher_suite);
        let Some(suite) = suite.filter(|_| session.early.is_some()) else { return Ok(false) };
        let transcript = match &self.retry {
            None => Transcript::new(suite.hash),
            Some(retry) => hello_retry::rebuild(cx, hello, suite, retry)?,
        };
        let secret = EarlySecret::new(suite, cx.protocol(), session.psk.as_ref());
        match psk::verify_binder(&secret, PskKind::Resumption, 0, &transcript, hello) {
            Ok(()) => Ok(true),
            Err(Error::PeerMisbehaved(PeerMisbehaved::BadBinder)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Marks the ticket as used.
    fn mark(self, cx: &mut Cx<'_>, kind: TicketKind, session: Box<Session>) -> Result<Step, Error> {
        if let TicketKind::Stateful(store) = &kind {
            return if store.remove(&self.first.identity) {
                self.marked(cx, kind, session, true)
            } else {
                Err(PeerMisbehaved::SessionUsedTwice.into())
            };
        }
        let sha256 = self.arrival.config.profile.provider.sha256;
        let hash = sha256.hash(&[b"dunlin early data", &self.first.identity]);
        let id = *hash.as_ref().first_chunk::<32>().ok_or(Internal::Bug(Field::Sha256))?;
        let until_ms = early::fresh_until(cx, &self.first, &session);
        if let TicketKind::Stateless(keys) = &kind
            && let Some(SingleUse::Register(register)) = keys.single_use()
        {
            let is_first_use = register.first_use(cx.now, &id, until_ms);
            return self.marked(cx, kind, session, is_first_use);
        }
        cx.ask(
            Err(Question::FirstUse { id, until_ms }),
            Box::new(AwaitFirstUse { marking: self, kind, session }),
        )
    }

    fn marked(
        mut self,
        cx: &mut Cx<'_>,
        kind: TicketKind,
        session: Box<Session>,
        is_first_use: bool,
    ) -> Result<Step, Error> {
        let is_first_use = is_first_use && self.is_before_choice;
        self.arrival.spent = Some(Spent { identity: self.first.identity, kind, session, is_first_use });
        (self.then)(cx, self.arrival)
    }
}

/// Waits for the session of the ticket.
struct AwaitSession(Marking);

impl AwaitAnswer for AwaitSession {
    fn answer(self: Box<Self>, cx: &mut Cx<'_>, answer: Answer) -> Result<Step, Error> {
        let Answer::Session(session) = answer else { return Err(Misuse::WrongAnswer.into()) };
        match session {
            Some(session) if self.0.is_proven(cx, &session)? => self.0.mark(cx, TicketKind::Ask, session),
            _ => self.0.search(cx),
        }
    }
}

/// Waits for the answer whether this is the ticket's first use.
struct AwaitFirstUse {
    marking: Marking,
    kind: TicketKind,
    session: Box<Session>,
}

impl AwaitAnswer for AwaitFirstUse {
    fn answer(self: Box<Self>, cx: &mut Cx<'_>, answer: Answer) -> Result<Step, Error> {
        let Self { marking, kind, session } = *self;
        let is_first_use = match answer {
            Answer::FirstUse(is_first) => is_first,
            // Without an answer the server rejects early data, because it cannot exclude a replay.
            Answer::Failed => false,
            _ => return Err(Misuse::WrongAnswer.into()),
        };
        marking.marked(cx, kind, session, is_first_use)
    }
}
