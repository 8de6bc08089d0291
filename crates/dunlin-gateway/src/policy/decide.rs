//! The decision: from hints and a proven identity to a profile, with the reason.

use std::fmt;
use std::sync::Arc;

use super::client::{Attribute, Client};
use super::condition::{Basis, Condition, Truth, View};
use super::hints::{Claim, Hints, Turn};
use super::profile::{Demand, PolicyProfile};
use super::{Action, Policy, Rule};

/// When a policy decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Before the ServerHello, by hints.
    Hello,
    /// After Finished, by the identity that the handshake has proven.
    Finished,
}

/// The outcome for the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The server serves it under the profile.
    Serve,
    /// The server renegotiates, under the profile of the decision, and demands the same certificate. No data
    /// passes before.
    Renegotiate,
    /// The server ends the connection with access_denied.
    Refuse,
}

/// A profile below the anonymous default. Logs must show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Downgrade {
    /// The default's name.
    pub from: String,
    /// The default's rank.
    pub from_rank: i32,
}

/// A decision with its reason. Its `Display` is the line for logs, which shows a downgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Decision {
    /// When it was made.
    pub stage: Stage,
    /// The outcome for the client.
    pub verdict: Verdict,
    /// The profile that serves the client, or to which the connection renegotiates. For a refused client, the
    /// profile that it would have needed.
    pub profile: Arc<PolicyProfile>,
    /// The rule that decided; `None` if no rule matched.
    pub rule: Option<String>,
    /// Whether the rule is an entry of the client table.
    pub is_by_client_table: bool,
    /// The reason: the rule with its place and conditions, the hint, and the rejected choices.
    pub why: String,
    /// Set whenever the client is served below the anonymous default.
    pub downgrade: Option<Downgrade>,
    /// The profile that the client gets from its next connection on, if it is another one.
    pub next: Option<Arc<PolicyProfile>>,
}

impl Decision {
    /// The name under which a counter adds up decisions: the rule's, or one name for all entries of the
    /// client table, which can have a million.
    pub fn label(&self) -> &str {
        match (&self.rule, self.is_by_client_table) {
            (None, _) => "default",
            (Some(_), true) => "client table",
            (Some(rule), false) => rule,
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.verdict {
            Verdict::Serve => write!(f, "profile {}", self.profile)?,
            Verdict::Renegotiate => write!(f, "renegotiation to profile {}", self.profile)?,
            Verdict::Refuse => f.write_str("refused")?,
        }
        write!(f, " by {}", self.why)?;
        if let Some(Downgrade { from, from_rank }) = &self.downgrade {
            write!(f, "; downgrade from {from} (rank {from_rank})")?;
        }
        match &self.next {
            Some(next) => write!(f, "; next time profile {next}"),
            None => Ok(()),
        }
    }
}

/// A handshake whose Finished messages are verified.
#[derive(Clone, Copy, Debug)]
pub struct Finished<'a> {
    /// The profile of [`Policy::before`] under which it ran.
    pub used: &'a PolicyProfile,
    /// The client, if the handshake has authenticated it. After a resumption it is the client of the full
    /// handshake.
    pub client: Option<&'a Client>,
    /// The hints of its ClientHello. The claims among them do not count any more.
    pub hints: &'a Hints,
    /// Whether the session was resumed.
    pub is_resumed: bool,
    /// Whether the connection can renegotiate.
    pub turn: Turn,
}

/// The rules that count, by their basis.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    All,
    /// Without the rules that look at the ClientHello.
    WithoutOffers,
    /// The rules that look at the identity alone.
    ByIdentity,
}

impl Scope {
    fn includes(self, rule: &Rule) -> bool {
        rule.conditions.iter().all(|condition| match (self, condition.basis()) {
            (Self::All, _) | (_, Basis::Identity) => true,
            (Self::WithoutOffers, basis) => basis != Basis::Offer,
            (Self::ByIdentity, _) => false,
        })
    }
}

/// The outcome of walking through the rules.
#[derive(Clone, Copy)]
struct Found<'a> {
    rule: Option<&'a Rule>,
    action: Action,
    /// Whether the rule counts although a condition of it is unknown, because it is stronger than the rule
    /// that matches.
    is_uncertain: bool,
}

impl Rule {
    pub(super) fn holds(&self, view: &View<'_>) -> Truth {
        self.conditions.iter().map(|condition| condition.holds(view)).min().unwrap_or(Truth::Yes)
    }

    fn looks_at(&self, basis: Basis) -> bool {
        self.conditions.iter().any(|condition| condition.basis() == basis)
    }
}

impl Policy {
    /// Chooses the profile for a ClientHello. `now_s` is the time in seconds since 1970.
    ///
    /// All hints are unauthenticated. A profile below the anonymous default is chosen only by an identity
    /// that the profile makes the client prove in this handshake; offers only raise the rank; a remembered
    /// address, a redirection or a network leads below the default only to a profile that demands a
    /// certificate.
    pub fn before(&self, hints: &Hints, now_s: u64) -> Decision {
        let claim = hints.claim();
        let client = claim.map(|claim| &claim.client);
        let view = View { hello: Some(&hints.hello), address: hints.counted_address(), client, now_s };
        let mut notes = Vec::new();
        let mut found = self.raised(&view, Scope::WithoutOffers, &mut notes);
        if let Some(why) = self.objection(&found, claim, hints) {
            notes.push(format!("not {}, since {why}", self.name_of(&found)));
            // Only the ClientHello by itself remains.
            found = self.raised(
                &View { hello: Some(&hints.hello), now_s, ..View::default() },
                Scope::ByIdentity,
                &mut notes,
            );
            if self.objection(&found, None, hints).is_some() {
                let profile = self.instead_of_default(hints, &mut notes).unwrap_or(self.default);
                found = Found { rule: None, action: Action::Use(profile), is_uncertain: false };
            }
        }
        let verdict = match found.action {
            Action::Refuse => Verdict::Refuse,
            Action::Use(_) if !self.profile_of(&found).fits(hints) => {
                notes.push("the profile does not fit the HelloRetryRequest".into());
                Verdict::Refuse
            }
            Action::Use(_) => Verdict::Serve,
        };
        let by = claim.filter(|_| found.rule.is_some_and(|rule| rule.looks_at(Basis::Identity)));
        let by = by.map(|claim| format!(", claimed by {}", claim.source)).unwrap_or_default();
        let why = reason(&found, &by, &notes);
        self.decision(Stage::Hello, verdict, Arc::clone(self.profile_of(&found)), &found, why)
    }

    /// Checks the profile that was used against the identity that the handshake has proven. `now_s` is the
    /// time in seconds since 1970.
    ///
    /// The rank of the profile must be at least the rank of the identity's profile; without an identity, the
    /// rank of the anonymous default. Otherwise the connection renegotiates, if it can and the policy allows
    /// it, or ends.
    pub fn after(&self, finished: &Finished<'_>, now_s: u64) -> Decision {
        let Finished { used, client, hints, is_resumed, turn } = *finished;
        let view = View { hello: Some(&hints.hello), address: hints.address, client, now_s };
        let mut notes = Vec::new();
        let found = self.raised(&view, Scope::ByIdentity, &mut notes);
        let target = Arc::clone(self.profile_of(&found));
        let mut required = self.rank_of(found.action);
        if client.is_none() {
            required = required.max(self.default_profile().rank.into());
        }
        let is_enough = i64::from(used.rank) >= required;
        let differs = *target != *used;
        let renegotiates = found.rule.is_none_or(|rule| rule.renegotiates);
        let now = self.profiles.iter().find(|profile| ***profile == *used);
        let (verdict, profile, next) = match (found.action, now) {
            (Action::Refuse, _) => (Verdict::Refuse, target, None),
            // The policy was replaced during the handshake.
            (_, None) => {
                notes.push(format!("the policy no longer has the profile {used} as it was used"));
                (Verdict::Refuse, target, None)
            }
            _ if differs && renegotiates && self.turns(finished, &target) => {
                (Verdict::Renegotiate, target, None)
            }
            (_, Some(now)) if is_enough => (Verdict::Serve, Arc::clone(now), differs.then_some(target)),
            _ => {
                let why = match (is_resumed, turn) {
                    (true, _) => "a resumed session keeps its profile",
                    (_, Turn::Done) => "the connection has renegotiated already",
                    _ if !renegotiates => "the rule does not let its clients renegotiate",
                    _ => "the connection cannot renegotiate",
                };
                notes.push(format!("profile {used} is too weak, and {why}"));
                (Verdict::Refuse, target, None)
            }
        };
        let by = match client {
            Some(client) => format!(", proven for {client}"),
            None => ", no client authentication".into(),
        };
        let why = reason(&found, &by, &notes);
        Decision { next, ..self.decision(Stage::Finished, verdict, profile, &found, why) }
    }

    /// Whether a rule refuses a client with this proven identity, under every profile. A rule that only may
    /// hold does not count. `now_s` is the time in seconds since 1970.
    pub(crate) fn refuses(&self, client: &Client, hints: &Hints, now_s: u64) -> bool {
        let view = View { hello: Some(&hints.hello), address: hints.address, client: Some(client), now_s };
        let found = self.raised(&view, Scope::ByIdentity, &mut Vec::new());
        found.action == Action::Refuse && !found.is_uncertain
    }

    /// Whether the connection renegotiates to the profile of its client.
    fn turns(&self, finished: &Finished<'_>, target: &PolicyProfile) -> bool {
        let Finished { used, client, is_resumed, turn, .. } = *finished;
        let Some(client) = client else { return false };
        // The second handshake demands the same certificate.
        let has_certificate = client.values(&Attribute::Kind).any(|kind| kind != "psk");
        let is_down = target.rank < used.rank;
        let is_allowed = if is_down {
            self.renegotiation.down && target.client == Demand::Certificate
        } else {
            self.renegotiation.up && target.rank > used.rank
        };
        turn == Turn::Possible && !is_resumed && has_certificate && is_allowed && target.has_12
    }

    /// The first rule that matches, unless the rules within `base` lead to a stronger profile: the others may
    /// only raise the rank.
    fn raised<'a>(&'a self, view: &View<'_>, base: Scope, notes: &mut Vec<String>) -> Found<'a> {
        let found = self.find(view, Scope::All);
        let base = self.find(view, base);
        if self.rank_of(found.action) >= self.rank_of(base.action) {
            return found;
        }
        notes.push(format!("not {}, since a hint may not lower the rank", self.name_of(&found)));
        base
    }

    /// The first rule within the scope that holds. If it cannot be known whether an earlier rule holds, the
    /// stronger of both counts.
    fn find<'a>(&'a self, view: &View<'_>, scope: Scope) -> Found<'a> {
        let mut hit = None;
        let mut uncertain = view.client.and_then(|client| self.strongest_unknown(client));
        for rule in self.in_question(view).filter(|rule| scope.includes(rule)) {
            match rule.holds(view) {
                Truth::No => {}
                Truth::Unknown => {
                    let is_stronger = |other: &Rule| self.rank_of(rule.action) > self.rank_of(other.action);
                    if uncertain.is_none_or(is_stronger) {
                        uncertain = Some(rule);
                    }
                }
                Truth::Yes => {
                    hit = Some(rule);
                    break;
                }
            }
        }
        let action = hit.map_or(Action::Use(self.default), |rule| rule.action);
        match uncertain.filter(|rule| self.rank_of(rule.action) > self.rank_of(action)) {
            Some(rule) => Found { rule: Some(rule), action: rule.action, is_uncertain: true },
            None => Found { rule: hit, action, is_uncertain: false },
        }
    }

    /// Whether only the certificate of a client can tell whether a profile of this rank may serve it: a rule
    /// that demands more, or refuses the client, looks at an attribute that was not kept. `now_s` is the time
    /// in seconds since 1970.
    pub(super) fn needs_certificate(&self, client: &Client, rank: i32, now_s: u64) -> bool {
        let view = View { client: Some(client), now_s, ..View::default() };
        let is_too_strong = |rule: &Rule| self.rank_of(rule.action) > i64::from(rank);
        if self.strongest_unknown(client).is_some_and(is_too_strong) {
            return true;
        }
        for rule in self.in_question(&view) {
            let identity = rule.conditions.iter().filter(|condition| condition.basis() == Basis::Identity);
            match identity.map(|condition| condition.holds(&view)).min().unwrap_or(Truth::Yes) {
                Truth::Unknown if is_too_strong(rule) => return true,
                // No later rule counts.
                Truth::Yes if Scope::ByIdentity.includes(rule) => return false,
                Truth::Yes | Truth::Unknown | Truth::No => {}
            }
        }
        false
    }

    /// The strongest entry of the client table by an attribute of the client that was not kept. Any entry by
    /// it may hold.
    fn strongest_unknown(&self, client: &Client) -> Option<&Rule> {
        let unknown = self.index.strongest.iter().filter(|(attribute, _)| client.is_unknown(attribute));
        unknown.filter_map(|(_, entry)| self.rules.get(*entry)).max_by_key(|rule| self.rank_of(rule.action))
    }

    /// The entries of the client table that may hold, in their order, then the rules.
    pub(super) fn in_question<'a>(&'a self, view: &View<'_>) -> impl Iterator<Item = &'a Rule> {
        let mut entries: Vec<usize> = Vec::new();
        if let Some(client) = view.client.filter(|_| self.clients > 0) {
            let of = |fact: &(Attribute, String)| self.index.entries.get(fact).into_iter().flatten().copied();
            entries.extend(client.facts().iter().chain(client.doubtful()).flat_map(of));
            entries.sort_unstable();
            entries.dedup();
        }
        let entries = entries.into_iter().filter_map(|entry| self.rules.get(entry));
        entries.chain(self.rules.iter().skip(self.clients))
    }

    /// Why the hints do not suffice for the rule that was found; `None` if they do.
    fn objection(&self, found: &Found<'_>, claim: Option<&Claim>, hints: &Hints) -> Option<&'static str> {
        let profile = self.profile_of(found);
        let by_identity = found.rule.is_some_and(|rule| rule.looks_at(Basis::Identity));
        let by_address = found.rule.is_some_and(|rule| rule.looks_at(Basis::Address));
        let is_proved = claim.is_some_and(|claim| claim.source.is_proved_by_the_handshake());
        if found.action == Action::Refuse {
            return match by_identity {
                // Several clients may share the address.
                true if !is_proved => Some("the hint does not prove who is calling"),
                // The certificate may show the contrary. After a full handshake it decides.
                true if found.is_uncertain => Some("only the client's certificate can tell"),
                _ => None,
            };
        }
        if !profile.fits(hints) {
            return Some("it does not fit the HelloRetryRequest");
        }
        let lacks_13 =
            |policy: &Self| policy.profiles.iter().any(|profile| profile.has_13) && !profile.has_13;
        if hints.hello.offers_13() && lacks_13(self) {
            return Some("the client offers version 1.3");
        }
        if profile.rank < self.floor {
            return Some("it is below the floor");
        }
        if profile.rank >= self.default_profile().rank {
            return None;
        }
        let is_enough = if by_address || by_identity && !is_proved {
            profile.client == Demand::Certificate
        } else {
            by_identity && profile.client.authenticates()
        };
        (!is_enough).then_some("the handshake would not prove who is calling")
    }

    /// The strongest profile that can follow a HelloRetryRequest which the default cannot follow. The request
    /// took its suite from the hash of the client's PSK, which turns out to be unknown, as a ticket is whose
    /// keys are gone. As by a remembered address, such a profile demands a certificate if it is below the
    /// default. After Finished, the rank counts.
    fn instead_of_default(&self, hints: &Hints, notes: &mut Vec<String>) -> Option<usize> {
        if self.default_profile().fits(hints) || hints.hello.psk.is_none() {
            return None;
        }
        let is_fit = |profile: &PolicyProfile| {
            let is_enough =
                profile.rank >= self.default_profile().rank || profile.client == Demand::Certificate;
            is_enough && profile.rank >= self.floor && profile.fits(hints)
        };
        let fit = (0..).zip(&self.profiles).filter(|(_, profile)| is_fit(profile));
        let (found, profile) = fit.max_by_key(|(_, profile)| profile.rank)?;
        notes.push(format!(
            "{profile}, since the HelloRetryRequest took the hash of the client's PSK, which is unknown"
        ));
        Some(found)
    }

    /// The profile of the rule that was found; the default for refused clients.
    fn profile_of(&self, found: &Found<'_>) -> &Arc<PolicyProfile> {
        match found.action {
            Action::Use(profile) => self.profiles.get(profile).unwrap_or_else(|| self.default_profile()),
            Action::Refuse => self.default_profile(),
        }
    }

    /// The rank of an action. No rank is above refusal.
    pub(super) fn rank_of(&self, action: Action) -> i64 {
        match action {
            Action::Use(profile) => {
                self.profiles.get(profile).map_or(i64::MAX, |profile| profile.rank.into())
            }
            Action::Refuse => i64::MAX,
        }
    }

    fn name_of(&self, found: &Found<'_>) -> String {
        match (found.rule, found.action) {
            (Some(rule), Action::Use(_)) => format!("rule {} to {}", rule.name, self.profile_of(found)),
            (Some(rule), Action::Refuse) => format!("rule {} to refuse", rule.name),
            (None, _) => "the default".into(),
        }
    }

    fn decision(
        &self,
        stage: Stage,
        verdict: Verdict,
        profile: Arc<PolicyProfile>,
        found: &Found<'_>,
        why: String,
    ) -> Decision {
        let default = self.default_profile();
        let is_below = verdict != Verdict::Refuse && profile.rank < default.rank;
        let downgrade = is_below.then(|| Downgrade { from: default.name.clone(), from_rank: default.rank });
        let rule = found.rule.map(|rule| rule.name.clone());
        let is_by_client_table = found.rule.is_some_and(|rule| rule.is_client);
        Decision { is_by_client_table, stage, verdict, profile, rule, why, downgrade, next: None }
    }
}

/// The text of a reason.
fn reason(found: &Found<'_>, by: &str, notes: &[String]) -> String {
    let mut why = match found.rule {
        None => format!("default, since no rule matches{by}"),
        Some(rule) => {
            let conditions = rule.conditions.iter().map(Condition::to_string).collect::<Vec<_>>().join(", ");
            let conditions = if conditions.is_empty() { "no condition".to_owned() } else { conditions };
            let maybe = if found.is_uncertain { "perhaps " } else { "" };
            format!("rule {} ({}): {maybe}{conditions}{by}", rule.name, rule.place.line())
        }
    };
    for note in notes {
        why.push_str("; ");
        why.push_str(note);
    }
    why
}
