//! The explanation of a decision: the rule that a client gets, the reason, and every rule that was walked.

use std::fmt;
use std::sync::Arc;

use dunlin::RetryChoice;
use serde::Serialize;

use super::client::Client;
use super::condition::{ConditionReport, Truth, View};
use super::decide::{Decision, Finished, Verdict};
use super::hints::{Claim, Cookie, Hello, Hints, OfferedPsk, Source};
use super::retry::RetryPolicy;
use super::{Action, Policy};

/// The walk through the rules for one client. Scripts rely on its JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// The client that the handshake would prove; `None` for a client without authentication.
    pub client: Option<String>,
    /// Its attributes, each with its value.
    pub attributes: Vec<(String, String)>,
    /// The rules, in their order, and those entries of the client table that share a value with the client.
    pub rules: Vec<RuleReport>,
    /// The parameters in the HelloRetryRequest with which a DTLS 1.3 listener demands a cookie. The profile
    /// has to support it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryReport>,
    /// The decision before the ServerHello, by the hints.
    pub before: DecisionReport,
    /// The decision after Finished, by the client's identity.
    pub after: DecisionReport,
    /// The decision before the ServerHello of a later connection, in which a session names the client; `None`
    /// without a client.
    pub later: Option<DecisionReport>,
}

/// The parameters in a HelloRetryRequest.
#[derive(Clone, Debug, Serialize)]
pub struct RetryReport {
    /// The cipher suite.
    pub suite: Option<String>,
    /// The group for which it requests a key share; `None` if the client keeps its shares.
    pub group: Option<String>,
}

/// A rule and whether it holds.
#[derive(Clone, Debug, Serialize)]
pub struct RuleReport {
    /// Its name.
    pub rule: String,
    /// Its file.
    pub file: String,
    /// Its line.
    pub line: usize,
    /// The profile to which it leads; `None` if it refuses its clients.
    pub profile: Option<String>,
    /// Whether it holds for this client.
    pub holds: Truth,
    /// Its conditions.
    pub conditions: Vec<ConditionReport>,
}

/// A decision as a report shows it.
#[derive(Clone, Debug, Serialize)]
pub struct DecisionReport {
    /// `serve`, `renegotiate` or `refuse`.
    pub verdict: &'static str,
    /// The profile; `None` for a refused client.
    pub profile: Option<String>,
    /// Its rank.
    pub rank: Option<i32>,
    /// The rule that decided; `None` if no rule matched.
    pub rule: Option<String>,
    /// The reason.
    pub why: String,
    /// Whether the profile is below the anonymous default.
    pub is_downgrade: bool,
    /// The profile from the next connection on, if it is another one.
    pub next: Option<String>,
    /// The line that the gateway logs.
    pub text: String,
}

impl From<&Decision> for DecisionReport {
    fn from(decision: &Decision) -> Self {
        let (verdict, is_served) = match decision.verdict {
            Verdict::Serve => ("serve", true),
            Verdict::Renegotiate => ("renegotiate", true),
            Verdict::Refuse => ("refuse", false),
        };
        Self {
            verdict,
            profile: is_served.then(|| decision.profile.name.clone()),
            rank: is_served.then_some(decision.profile.rank),
            rule: decision.rule.clone(),
            why: decision.why.clone(),
            is_downgrade: decision.downgrade.is_some(),
            next: decision.next.as_ref().map(|profile| profile.name.clone()),
            text: decision.to_string(),
        }
    }
}

impl Policy {
    /// Walks through the rules for a client with these hints, whose handshake proves `client`. `now_s` is the
    /// time in seconds since 1970.
    pub fn explain(&self, hints: &Hints, client: Option<&Client>, now_s: u64) -> Explanation {
        self.explain_after(|_| Cookie::None, hints, client, now_s)
    }

    /// As [`Self::explain`], over DTLS 1.3: the server first demands a cookie, and thereby names a suite.
    /// Without a ClientHello, the client offers all that the profiles support.
    pub fn explain_over_dtls(
        self: &Arc<Self>,
        hints: &Hints,
        client: Option<&Client>,
        now_s: u64,
    ) -> Explanation {
        let retry = RetryPolicy::new(Arc::clone(self));
        let cookie = |hello: &Hello| {
            let choice = match hello.versions.is_empty() {
                true => retry.choose_for_any(hello),
                false if hello.offers_13() => retry.choose_for(hello),
                false => None,
            };
            let returned =
                |choice: RetryChoice| Cookie::Returned { suite: Some(choice.suite), group: choice.group };
            choice.map_or(Cookie::None, returned)
        };
        self.explain_after(cookie, hints, client, now_s)
    }

    /// `cookie` is the state of the cookie after a ClientHello.
    fn explain_after(
        &self,
        cookie: impl Fn(&Hello) -> Cookie,
        hints: &Hints,
        client: Option<&Client>,
        now_s: u64,
    ) -> Explanation {
        let hints = &Hints { cookie: cookie(&hints.hello), ..hints.clone() };
        let claimed = hints.claim().map(|claim| &claim.client);
        let view =
            View { hello: Some(&hints.hello), address: hints.address, client: client.or(claimed), now_s };
        let mut rules = Vec::new();
        for rule in self.in_question(&view) {
            let profile = match rule.action {
                Action::Use(profile) => self.profiles.get(profile).map(|profile| profile.name.clone()),
                Action::Refuse => None,
            };
            rules.push(RuleReport {
                rule: rule.name.clone(),
                file: rule.place.file.display().to_string(),
                line: rule.place.line,
                profile,
                holds: rule.holds(&view),
                conditions: rule.conditions.iter().map(|condition| condition.report(&view)).collect(),
            });
        }
        let before = self.before(hints, now_s);
        let used = before.profile.as_ref();
        let turn = hints.turn;
        let finished = Finished { used, client, hints, is_resumed: false, turn };
        let after = self.after(&finished, now_s);
        let keeps_details = self.profiles.iter().any(|profile| profile.keeps_details);
        let later = client.map(|client| {
            let client = client.without_its_certificate(keeps_details);
            let claims = vec![Claim { source: Source::Session, client }];
            // The ticket has the hash of the suite, which the profile decides.
            let hash = before.profile.hash_with(&hints.cookie, &hints.hello);
            let external = hints.hello.psk.as_ref().and_then(|psk| psk.external.clone());
            let psk = Some(OfferedPsk { hash, external });
            let hello = Hello { psk, ..hints.hello.clone() };
            let cookie = cookie(&hello);
            (&self.before(&Hints { claims, hello, cookie, ..hints.clone() }, now_s)).into()
        });
        let facts = client.or(claimed).map(Client::facts).unwrap_or_default();
        Explanation {
            client: client.map(ToString::to_string),
            attributes: facts.iter().map(|(name, value)| (name.to_string(), value.clone())).collect(),
            rules,
            retry: match hints.cookie {
                Cookie::Returned { suite, group } => Some(RetryReport {
                    suite: suite.map(|suite| suite.to_string()),
                    group: group.map(|group| group.to_string()),
                }),
                Cookie::None | Cookie::Pending => None,
            },
            before: (&before).into(),
            after: (&after).into(),
            later,
        }
    }
}

/// The report for people: the client, each rule with its conditions, and the decisions.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "client: {}", self.client.as_deref().unwrap_or("not authenticated"))?;
        for (name, value) in &self.attributes {
            writeln!(f, "  {name} = \"{}\"", value.escape_debug())?;
        }
        writeln!(f, "rules:")?;
        if self.rules.is_empty() {
            writeln!(f, "  none")?;
        }
        for rule in &self.rules {
            let profile =
                rule.profile.as_deref().map_or("refuse".to_owned(), |name| format!("profile {name}"));
            writeln!(f, "  {} {} ({}:{}): {profile}", word(rule.holds), rule.rule, rule.file, rule.line)?;
            for condition in &rule.conditions {
                writeln!(f, "      {} {}", word(condition.holds), condition.condition)?;
            }
        }
        if let Some(RetryReport { suite, group }) = &self.retry {
            let names: Vec<_> = suite.iter().chain(group).map(String::as_str).collect();
            writeln!(f, "HelloRetryRequest:      {}", names.join(", "))?;
        }
        writeln!(f, "before the ServerHello: {}", self.before.text)?;
        writeln!(f, "after Finished:         {}", self.after.text)?;
        match &self.later {
            Some(later) => writeln!(f, "later, by its session:  {}", later.text),
            None => Ok(()),
        }
    }
}

/// A column of one width.
pub(super) const fn word(truth: Truth) -> &'static str {
    match truth {
        Truth::No => "no     ",
        Truth::Unknown => "unknown",
        Truth::Yes => "yes    ",
    }
}
