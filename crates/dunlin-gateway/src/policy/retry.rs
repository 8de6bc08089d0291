//! The HelloRetryRequest of a DTLS 1.3 listener. It names a suite before the gateway may look anything up,
//! and only profiles with this suite can follow. So it is chosen among the profiles that the policy can give
//! to a ClientHello by its own bytes.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;

use dunlin::crypto::HashAlgorithm;
use dunlin::wire::{CipherSuite, NamedGroup, ProtocolVersion};
use dunlin::{ChooseRetry, ClientHelloInfo, RetryChoice};

use super::client::{Attribute, Client};
use super::condition::{Basis, Condition, Test, Truth, View};
use super::hints::{Cookie, Hello, Hints, OfferedPsk};
use super::{Action, Policy, Rule};
use crate::document::Fault;

/// The longest identity of a pre-shared key that rules are compared with before the cookie, in bytes: as long
/// as a name may be in a key file. Each comparison costs time, and the sender's address may be forged.
const MAX_IDENTITY: usize = 255;

/// A policy's choice for each ClientHello.
#[derive(Debug)]
pub(crate) struct RetryPolicy {
    policy: Arc<Policy>,
    /// As [`Policy::profiles`].
    offers: Vec<Offers>,
}

/// The parameters that a profile offers in version 1.3.
#[derive(Debug)]
struct Offers {
    suites: Vec<(CipherSuite, HashAlgorithm)>,
    groups: Vec<NamedGroup>,
}

impl ChooseRetry for RetryPolicy {
    fn choose(&self, hello: &ClientHelloInfo) -> Option<RetryChoice> {
        self.choose_for(&hello.into())
    }
}

impl RetryPolicy {
    pub(crate) fn new(policy: Arc<Policy>) -> Self {
        let offers = policy.profiles.iter();
        let offers =
            offers.map(|profile| Offers { suites: profile.suites_of_13(), groups: profile.all_groups() });
        Self { offers: offers.collect(), policy }
    }

    /// The suite and the group for a ClientHello: of the first profiles in question with the hash of the
    /// client's first PSK, or else of the first with any common suite.
    pub(super) fn choose_for(&self, hello: &Hello) -> Option<RetryChoice> {
        self.choose_by(hello, hello)
    }

    /// As [`Self::choose_for`], for a client that offers everything that any profile supports, whatever rules
    /// say about offers.
    pub(super) fn choose_for_any(&self, hello: &Hello) -> Option<RetryChoice> {
        self.choose_by(hello, &Hello { psk: hello.psk.clone(), ..self.everything() })
    }

    /// Rules look at `hello`, and the client offers `offered`.
    fn choose_by(&self, hello: &Hello, offered: &Hello) -> Option<RetryChoice> {
        let in_question = self.policy.in_question_before_the_cookie(hello);
        let hash = offered.psk.as_ref().and_then(|psk| psk.hash);
        let of = |hash| in_question.iter().find_map(|profiles| self.choose_among(profiles, offered, hash));
        hash.and_then(|hash| of(Some(hash))).or_else(|| of(None))
    }

    /// The choice that most of these profiles support; of several the first one.
    fn choose_among(
        &self,
        profiles: &[usize],
        hello: &Hello,
        hash: Option<HashAlgorithm>,
    ) -> Option<RetryChoice> {
        let offers = || profiles.iter().filter_map(|profile| self.offers.get(*profile));
        let mut choices = vec![];
        for choice in offers().flat_map(|offers| offers.choices(hello, hash)) {
            if !choices.contains(&choice) {
                choices.push(choice);
            }
        }
        let supporters =
            |choice: &RetryChoice| offers().filter(|offers| offers.supports(choice, hello)).count();
        // Of equal ones, `max_by_key` takes the last.
        choices.into_iter().rev().max_by_key(supporters)
    }
}

impl Offers {
    /// Its suites of this hash that the client offers, each with the group that it needs.
    fn choices(&self, hello: &Hello, hash: Option<HashAlgorithm>) -> impl Iterator<Item = RetryChoice> {
        let mut groups = self.groups.iter().copied().filter(|group| hello.groups.contains(group));
        let group = if keeps_shares(hello) || groups.clone().any(|group| hello.shares.contains(&group)) {
            Some(None)
        } else {
            groups.next().map(Some)
        };
        let is_common = move |(suite, own): &&(CipherSuite, HashAlgorithm)| {
            hash.is_none_or(|hash| hash == *own) && hello.cipher_suites.contains(suite)
        };
        let suites = self.suites.iter().filter(is_common).map(|(suite, _)| *suite);
        suites.filter_map(move |suite| Some(RetryChoice { suite, group: group? }))
    }

    /// Whether a handshake with this choice can go on under the profile.
    fn supports(&self, choice: &RetryChoice, hello: &Hello) -> bool {
        let has_group = match choice.group {
            Some(group) => self.groups.contains(&group),
            None => keeps_shares(hello) || self.groups.iter().any(|group| hello.shares.contains(group)),
        };
        has_group && self.suites.iter().any(|(suite, _)| *suite == choice.suite)
    }
}

/// Whether the client needs no share: it has a PSK, and may use it without (EC)DHE.
const fn keeps_shares(hello: &Hello) -> bool {
    hello.shares.is_empty() && hello.psk.is_some()
}

impl Policy {
    /// The profiles that this ClientHello may get by its own bytes, by their numbers, the preferred ones
    /// first: the profiles of an external pre-shared key with its identity; the profile of a client about
    /// which nothing is known; then each of the others by rank, for a client that a session, an entry of the
    /// handshake cache or its address will name.
    fn in_question_before_the_cookie(&self, hello: &Hello) -> Vec<Vec<usize>> {
        let stranger = Hints { hello: hello.clone(), cookie: Cookie::Pending, ..Hints::default() };
        let of_stranger = self.before(&stranger, 0).profile;
        let of_stranger =
            self.profiles.iter().position(|profile| *profile == of_stranger).unwrap_or(self.default);
        let with_psk =
            hello.psk.as_ref().map_or_else(Vec::new, |psk| self.of_external_psk(hello, psk, of_stranger));
        let mut others: Vec<_> = (0..self.profiles.len()).collect();
        others.sort_by_key(|profile| Reverse(self.profiles.get(*profile).map(|profile| profile.rank)));
        [with_psk, vec![of_stranger]]
            .into_iter()
            .chain(others.into_iter().map(|profile| vec![profile]))
            .collect()
    }

    /// The profiles that rules give, or may give, to the external pre-shared key of this ClientHello. The
    /// device and the address are unknown before the cookie.
    fn of_external_psk(&self, hello: &Hello, psk: &OfferedPsk, of_stranger: usize) -> Vec<usize> {
        let Some(identity) = psk.external.as_ref().filter(|identity| identity.len() <= MAX_IDENTITY) else {
            return vec![];
        };
        let mut client = Client::with_psk(identity, None);
        client.set_unknown(Attribute::Device);
        let view = View { hello: Some(hello), client: Some(&client), ..View::default() };
        let mut certain = of_stranger;
        let mut possible = self.index.by_device.clone();
        for rule in self.in_question(&view) {
            match (rule.holds_before_the_cookie(&view), rule.action) {
                (Truth::No, _) | (Truth::Unknown, Action::Refuse) => {}
                // Many rules may give one profile, and each profile costs time before the client has shown
                // its address.
                (Truth::Unknown, Action::Use(profile)) if possible.contains(&profile) => {}
                (Truth::Unknown, Action::Use(profile)) => possible.push(profile),
                (Truth::Yes, Action::Use(profile)) => {
                    certain = profile;
                    break;
                }
                // The client is refused under any profile.
                (Truth::Yes, Action::Refuse) => break,
            }
        }
        let accepts =
            |profile: &usize| self.profiles.get(*profile).is_some_and(|profile| profile.accepts_psk());
        std::iter::once(certain).chain(possible).filter(accepts).collect()
    }
}

/// Whether the condition can hold of a client with a pre-shared key.
fn fits_psk(condition: &Condition) -> bool {
    match &condition.test {
        Test::Attribute(Attribute::Kind, kinds) => kinds.iter().any(|kind| kind.matches("psk") == Some(true)),
        Test::Attribute(attribute, _) => matches!(attribute, Attribute::Psk | Attribute::Device),
        _ => true,
    }
}

impl RetryPolicy {
    /// The profiles that a rule gives, but that no client gets over DTLS 1.3 if it offers all suites: before
    /// the cookie, neither an offer nor a pre-shared key leads to them, and they lack the suite of the
    /// HelloRetryRequest.
    pub(crate) fn unreachable(&self) -> Vec<Fault> {
        let policy = &self.policy;
        let everything = self.everything();
        let of_default =
            self.offers.get(policy.default).and_then(|default| default.choices(&everything, None).next());
        let Some(named) = of_default else { return vec![] };
        let mut given = HashSet::new();
        let mut reached = HashSet::from([policy.default]);
        for rule in &policy.rules {
            let Action::Use(profile) = rule.action else { continue };
            given.insert(profile);
            let Some(accepts_psk) = policy.profiles.get(profile).map(|profile| profile.accepts_psk()) else {
                continue;
            };
            let by_offer = rule.conditions.iter().all(|condition| condition.basis() == Basis::Offer);
            let is_about_identity = rule.conditions.iter().any(Condition::is_about_identity);
            if by_offer || accepts_psk && is_about_identity && rule.conditions.iter().all(fits_psk) {
                reached.insert(profile);
            }
        }
        let mut faults = vec![];
        for (at, (profile, offers)) in policy.profiles.iter().zip(&self.offers).enumerate() {
            let is_lost = profile.has_13 && given.contains(&at) && !reached.contains(&at);
            let (true, Some(places)) =
                (is_lost && !offers.supports(&named, &everything), policy.places(&profile.name))
            else {
                continue;
            };
            let what = format!(
                "over DTLS 1.3 no client gets it that offers {}, the suite of profile {}: the demand for a cookie names a suite before the \
                 client is known",
                named.suite,
                policy.default_profile().name
            );
            let advice = format!(
                "list {} here, too, or begin the suites of {} with one of this profile",
                named.suite,
                policy.default_profile().name
            );
            faults.push(places.table.fault(what, advice));
        }
        faults
    }

    /// The ClientHello of a client that offers everything that any profile supports, and has no PSK.
    pub(super) fn everything(&self) -> Hello {
        Hello {
            versions: vec![ProtocolVersion::DTLS1_3],
            cipher_suites: self
                .offers
                .iter()
                .flat_map(|offers| &offers.suites)
                .map(|(suite, _)| *suite)
                .collect(),
            groups: self.offers.iter().flat_map(|offers| offers.groups.clone()).collect(),
            shares: self.offers.iter().flat_map(|offers| offers.groups.clone()).collect(),
            ..Hello::default()
        }
    }
}

impl Rule {
    /// Whether it holds, as far as that is known without the client's address.
    fn holds_before_the_cookie(&self, view: &View<'_>) -> Truth {
        let holds = |condition: &Condition| match condition.basis() {
            Basis::Address => Truth::Unknown,
            Basis::Identity | Basis::Offer => condition.holds(view),
        };
        self.conditions.iter().map(holds).min().unwrap_or(Truth::Yes)
    }
}
