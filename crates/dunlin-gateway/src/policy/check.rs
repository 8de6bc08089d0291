//! Builds a policy from the tables of its file or database, and refuses one that breaks the security rules (docs/policy.md).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::condition::{Basis, Condition, Test};
use super::faults::{Fault, Faults, Place};
use super::profile::{Demand, PolicyProfile};
use super::read::At;
use super::{Action, Attribute, BlacklistSettings, ClientIndex, Policy, Renegotiation, Rule};

/// The most profiles of a policy. Each needs a configuration of the engine.
pub const MAX_PROFILES: usize = 64;

/// The most rules of a policy. Each handshake walks through them; the client table has an index.
pub const MAX_RULES: usize = 1024;

/// A policy as it was read.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) place: Option<Place>,
    pub(super) floor: Option<At<i64>>,
    pub(super) default: Option<At<String>>,
    pub(super) renegotiation: Renegotiation,
    pub(super) blacklist: Option<BlacklistSettings>,
    pub(super) profiles: Vec<At<PolicyProfile>>,
    pub(super) clients: Vec<DraftRule>,
    pub(super) rules: Vec<DraftRule>,
}

/// A rule or an entry of the client table as it was read.
pub(super) struct DraftRule {
    pub(super) at: At<()>,
    pub(super) name: Option<String>,
    pub(super) conditions: Vec<At<Condition>>,
    /// The profile; `None` refuses the client.
    pub(super) profile: Option<At<String>>,
    pub(super) renegotiates: bool,
}

/// The policy of a draft.
///
/// # Errors
/// `faults`, which reading it has found, and every fault against a rule.
pub(super) fn build(draft: Draft, mut faults: Vec<Fault>) -> Result<Policy, Faults> {
    let policy = Checker { draft: &draft, faults: &mut faults }.policy();
    faults.sort_by(|a, b| a.place.cmp(&b.place));
    match policy {
        Some(policy) if faults.is_empty() => Ok(policy),
        _ => Err(Faults(faults)),
    }
}

struct Checker<'a> {
    draft: &'a Draft,
    faults: &'a mut Vec<Fault>,
}

impl Checker<'_> {
    fn policy(&mut self) -> Option<Policy> {
        let draft = self.draft;
        let profiles: Vec<PolicyProfile> = draft.profiles.iter().map(|at| at.value.clone()).collect();
        let root = At { value: (), place: draft.place.clone()?, key: "profile".into() };
        if profiles.is_empty() || profiles.len() > MAX_PROFILES {
            let what =
                format!("{} profiles; give 1 to {MAX_PROFILES}, each as [profile.NAME]", profiles.len());
            self.faults.push(root.fault(what));
            return None;
        }
        if let Some(rule) = draft.rules.get(MAX_RULES) {
            let what = format!("more than {MAX_RULES} rules; list single clients as [[client]]");
            self.faults.push(rule.at.fault(what));
        }
        self.check_floor();
        let default = self.default(&profiles)?;
        let rules = self.rules(&profiles);
        self.check_rules(&rules, &profiles, default);
        self.check_versions();
        self.check_parameters();
        let clients = draft.clients.len().min(rules.len());
        let floor = draft.floor.as_ref().and_then(|at| at.value.try_into().ok()).unwrap_or(i32::MIN);
        let index = index(&rules, clients, &profiles);
        let keeps_details = rules.iter().flat_map(|rule| &rule.conditions).any(is_about_details);
        let shared = |profile| Arc::new(PolicyProfile { keeps_details, ..profile });
        let profiles = profiles.into_iter().map(shared).collect();
        let (renegotiation, blacklist) = (draft.renegotiation, draft.blacklist.clone());
        Some(Policy { floor, default, renegotiation, blacklist, profiles, rules, clients, index })
    }

    fn check_floor(&mut self) {
        let Some(floor) = &self.draft.floor else { return };
        for profile in self.draft.profiles.iter().filter(|at| i64::from(at.value.rank) < floor.value) {
            let what = format!(
                "rank {} is below the floor, {} ({}); raise the rank, or remove the profile",
                profile.value.rank, floor.value, floor.place
            );
            self.faults.push(profile.fault(what));
        }
    }

    /// The profile of clients that no rule matches: the one named, or the strongest.
    fn default(&mut self, profiles: &[PolicyProfile]) -> Option<usize> {
        if let Some(named) = &self.draft.default {
            let found = profiles.iter().position(|profile| profile.name == named.value);
            if found.is_none() {
                self.faults.push(named.fault(unknown(&named.value, profiles)));
            }
            return found;
        }
        let strongest = profiles.iter().map(|profile| profile.rank).max()?;
        let mut of_rank = (0..).zip(profiles).filter(|(_, profile)| profile.rank == strongest);
        let (first, second) = (of_rank.next()?, of_rank.next());
        if let Some((_, second)) = second {
            let at = At { value: (), place: self.draft.place.clone()?, key: "default".into() };
            let what = format!(
                "{} and {} both have the highest rank; name the profile of clients that no rule matches",
                first.1.name, second.name
            );
            self.faults.push(at.fault(what));
        }
        Some(first.0)
    }

    /// The entries of the client table, then the rules. One with an unknown profile is reported, and refuses its clients.
    fn rules(&mut self, profiles: &[PolicyProfile]) -> Vec<Rule> {
        let mut names = HashSet::new();
        let mut rules = Vec::new();
        for (i, draft) in self.draft.clients.iter().chain(&self.draft.rules).enumerate() {
            let is_client = i < self.draft.clients.len();
            let action = match &draft.profile {
                None => Action::Refuse,
                Some(named) => match profiles.iter().position(|profile| profile.name == named.value) {
                    Some(profile) => Action::Use(profile),
                    None => {
                        self.faults.push(named.fault(unknown(&named.value, profiles)));
                        Action::Refuse
                    }
                },
            };
            let name = draft.name.clone().unwrap_or_else(|| draft.at.key.clone());
            if !names.insert(name.clone()) {
                self.faults.push(draft.at.fault(format!("a second rule with the name {name:?}; rename one")));
            }
            let conditions = draft.conditions.iter().map(|at| at.value.clone()).collect();
            let (place, renegotiates) = (draft.at.place.clone(), draft.renegotiates);
            rules.push(Rule { name, place, conditions, is_client, renegotiates, action });
        }
        rules
    }

    /// Refuses rules that no client reaches, or that could lower the rank by what anyone can forge.
    fn check_rules(&mut self, rules: &[Rule], profiles: &[PolicyProfile], default: usize) {
        let drafts = self.draft.clients.iter().chain(&self.draft.rules);
        let mut everyone: Option<&Rule> = None;
        for (rule, draft) in rules.iter().zip(drafts) {
            if let Some(earlier) = everyone {
                let what = format!(
                    "never reached, since rule {} ({}) has no condition; move it before that rule",
                    earlier.name, earlier.place
                );
                self.faults.push(draft.at.fault(what));
            }
            if rule.conditions.is_empty() {
                everyone = everyone.or(Some(rule));
            }
            let Action::Use(profile) = rule.action else { continue };
            let (Some(profile), Some(default)) = (profiles.get(profile), profiles.get(default)) else {
                continue;
            };
            if profile.rank < default.rank
                && let Some(fault) = lowers_by_a_forgery(rule, draft, profile, default, rules, profiles)
            {
                self.faults.push(fault);
            }
        }
    }

    /// A server that speaks TLS 1.3 must not negotiate TLS 1.2 with a client that offers both.
    fn check_versions(&mut self) {
        let profiles = &self.draft.profiles;
        let Some(with_13) = profiles.iter().find(|profile| profile.value.has_13) else { return };
        for profile in profiles.iter().filter(|profile| !profile.value.has_13) {
            self.faults.push(profile.fault(format!(
                "it lacks version 1.3, which profile {} has, and would choose 1.2 for clients that offer both; add 1.3 to \
                 versions",
                with_13.value.name
            )));
        }
    }

    /// Refuses parameters that the engine would refuse, unless a fault explains them already.
    fn check_parameters(&mut self) {
        if !self.faults.is_empty() {
            return;
        }
        let provider = Arc::new(dunlin_awslc::provider());
        let told = |at: &At<PolicyProfile>| at.value.fault(&provider).map(|why| at.fault(why));
        self.faults.extend(self.draft.profiles.iter().filter_map(told));
    }
}

/// Why a rule for a profile below the default could lower the rank by what anyone can forge; `None` if it cannot.
fn lowers_by_a_forgery(
    rule: &Rule,
    draft: &DraftRule,
    profile: &PolicyProfile,
    default: &PolicyProfile,
    rules: &[Rule],
    profiles: &[PolicyProfile],
) -> Option<Fault> {
    let of = |basis| draft.conditions.iter().find(move |at| at.value.basis() == basis);
    let below = format!("profile {profile}, below the default, {default}");
    let (identity, address, offer) = (of(Basis::Identity), of(Basis::Address), of(Basis::Offer));
    // The rank of the strongest profile to which a rule by these conditions alone leads.
    let lowest = |is_enough: &dyn Fn(&Rule) -> bool| {
        let ranks = rules.iter().filter(|other| is_enough(other)).filter_map(|other| match other.action {
            Action::Use(profile) => profiles.get(profile).map(|profile| profile.rank),
            Action::Refuse => None,
        });
        ranks.min()
    };
    let is_by_identity = |other: &Rule| {
        !other.conditions.is_empty() && other.conditions.iter().all(|c| c.basis() == Basis::Identity)
    };
    match (identity, address, offer) {
        (None, None, None) => Some(draft.at.fault(format!(
            "the rule has no condition on the client's identity, and would serve everyone by {below}; make it the default"
        ))),
        (None, None, Some(offer)) => Some(offer.fault(format!(
            "anyone can offer this, and would get {below}; add a condition on the client's identity, or use a profile \
             of at least that rank"
        ))),
        (_, Some(address), _) if profile.client != Demand::Certificate => Some(address.fault(format!(
            "an address is no proof, and would lead to {below}; set profile.{}.client = \"certificate\"",
            profile.name
        ))),
        _ if !profile.client.authenticates() => {
            let at = draft.profile.as_ref().map_or_else(|| draft.at.clone(), |at| at.clone().map(drop));
            Some(at.fault(format!(
                "the handshake would not prove the client's identity, and would lead to {below}; set \
                 profile.{}.client = \"certificate\", \"psk\" or \"any\"",
                profile.name
            )))
        }
        (_, _, Some(offer)) => {
            // Without the offer, the same clients must get a profile that is not stronger.
            let same = |other: &Rule| {
                other.conditions.iter().all(|condition| {
                    condition.basis() != Basis::Offer && rule.conditions.contains(condition)
                })
            };
            (lowest(&same).is_none_or(|rank| rank > profile.rank)).then(|| {
                offer.fault(format!(
                    "this offer would lower the rank, since without it no rule gives these clients a profile of rank {} or \
                     less; add a rule with the other conditions alone",
                    profile.rank
                ))
            })
        }
        (_, Some(address), None) => {
            // The rank is checked again by the identity that the handshake has proven.
            (lowest(&is_by_identity).is_none_or(|rank| rank > profile.rank)).then(|| {
                address.fault(format!(
                    "no rule by identity alone leads to a profile of rank {} or less, so every such client would be refused \
                     after its handshake; add one",
                    profile.rank
                ))
            })
        }
        (Some(_), None, None) => None,
    }
}

/// Whether the condition looks at what sessions and caches keep only on demand.
const fn is_about_details(condition: &Condition) -> bool {
    use Attribute::{Email, Issuer, Name, Subject};
    matches!(condition.test, Test::Attribute(Email | Issuer | Name | Subject, _))
}

fn unknown(name: &str, profiles: &[PolicyProfile]) -> String {
    let names: Vec<&str> = profiles.iter().map(|profile| profile.name.as_str()).collect();
    format!("no profile {name:?}; use {}", names.join(", "))
}

/// The attributes that serve as keys, the best first. Sessions keep the first ones; almost all clients share the last ones.
const KEYS: &[Attribute] = &[
    Attribute::Fingerprint,
    Attribute::Psk,
    Attribute::Id,
    Attribute::Dns,
    Attribute::Uri,
    Attribute::Key,
    Attribute::Device,
    Attribute::Email,
    Attribute::Name,
    Attribute::Subject,
    Attribute::Issuer,
    Attribute::Kind,
];

/// The index of the client table.
fn index(rules: &[Rule], clients: usize, profiles: &[PolicyProfile]) -> ClientIndex {
    let mut entries: HashMap<_, Vec<usize>> = HashMap::new();
    let mut strongest: HashMap<Attribute, usize> = HashMap::new();
    let rank = |rule: usize| match rules.get(rule).map(|rule| rule.action) {
        Some(Action::Use(profile)) => profiles.get(profile).map_or(i64::MAX, |p| p.rank.into()),
        _ => i64::MAX,
    };
    for (i, rule) in rules.iter().take(clients).enumerate() {
        let exact = |condition: &Condition| match &condition.test {
            Test::Attribute(attribute, patterns) => {
                Some((attribute.clone(), patterns.first()?.exact()?.to_owned()))
            }
            _ => None,
        };
        let keys = rule.conditions.iter().filter_map(exact);
        let key = keys
            .min_by_key(|(attribute, _)| KEYS.iter().position(|key| key == attribute).unwrap_or(KEYS.len()));
        if let Some(key) = key {
            entries.entry(key.clone()).or_default().push(i);
            let first = strongest.entry(key.0.clone()).or_insert(i);
            if rank(i) > rank(*first) {
                *first = i;
            }
        }
    }
    ClientIndex { entries, strongest }
}
