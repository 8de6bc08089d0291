//! Builds a policy from the tables of its file or database, and refuses one that breaks the security rules
//! (docs/policy.md).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::condition::{Basis, Condition, Test};
use super::profile::{Demand, PolicyProfile};
use super::{Action, Attribute, BlacklistSettings, ClientIndex, Policy, ProfilePlaces, Renegotiation, Rule};
use crate::document::{Fault, Faults, Field, Place};

/// The most profiles of a policy. Each needs a configuration of the engine.
pub const MAX_PROFILES: usize = 64;

/// The most rules of a policy. Each handshake walks through them; the client table has an index.
pub const MAX_RULES: usize = 1024;

/// A policy as it was read.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) place: Option<Place>,
    pub(super) floor: Option<Field<i64>>,
    pub(super) default: Option<Field<String>>,
    pub(super) renegotiation: Renegotiation,
    pub(super) blacklist: Option<BlacklistSettings>,
    pub(super) profiles: Vec<Field<PolicyProfile>>,
    /// By the names of the profiles.
    pub(super) places: HashMap<String, ProfilePlaces>,
    pub(super) clients: Vec<DraftRule>,
    pub(super) rules: Vec<DraftRule>,
}

/// A rule or an entry of the client table as it was read.
pub(super) struct DraftRule {
    pub(super) place: Place,
    pub(super) name: Option<String>,
    pub(super) conditions: Vec<Field<Condition>>,
    /// The profile; `None` refuses the client.
    pub(super) profile: Option<Field<String>>,
    pub(super) renegotiates: bool,
}

/// The policy of a draft.
///
/// # Errors
/// `faults`, which reading it has found, and every fault against a rule.
pub(super) fn build(draft: Draft, mut faults: Vec<Fault>) -> Result<Policy, Faults> {
    let policy = Checker { draft: &draft, faults: &mut faults }.policy();
    match policy {
        Some(policy) if faults.is_empty() => Ok(policy),
        _ => Err(Faults::sorted(faults)),
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
        if profiles.is_empty() || profiles.len() > MAX_PROFILES {
            let place = Place { key: "profile".into(), ..draft.place.clone()? };
            let advice = format!("write 1 to {MAX_PROFILES}, each as [profile.NAME]");
            self.faults.push(place.fault(format!("{} profiles", profiles.len()), advice));
        }
        if profiles.is_empty() {
            // Each rule would name an unknown one.
            return None;
        }
        if let Some(rule) = draft.rules.get(MAX_RULES) {
            let what = format!("more than {MAX_RULES} rules");
            self.faults.push(rule.place.fault(what, "list single clients as [[client]]"));
        }
        self.check_floor();
        let default = self.default(&profiles);
        let rules = self.rules(&profiles);
        self.check_rules(&rules, &profiles, default);
        self.check_versions();
        self.check_parameters();
        let default = default?;
        let clients = draft.clients.len().min(rules.len());
        let floor = draft.floor.as_ref().and_then(|at| at.value.try_into().ok()).unwrap_or(i32::MIN);
        let index = index(&rules, clients, &profiles);
        let keeps_details = rules.iter().flat_map(|rule| &rule.conditions).any(Condition::is_about_details);
        let shared = |profile| Arc::new(PolicyProfile { keeps_details, ..profile });
        let profiles = profiles.into_iter().map(shared).collect();
        let renegotiation = draft.renegotiation;
        let blacklist = draft.blacklist.clone();
        let places = draft.places.clone();
        Some(Policy { floor, default, renegotiation, blacklist, profiles, places, rules, clients, index })
    }

    fn check_floor(&mut self) {
        let Some(floor) = &self.draft.floor else { return };
        for profile in self.draft.profiles.iter().filter(|at| i64::from(at.value.rank) < floor.value) {
            let rank = profile.value.rank;
            let at = floor.place.line();
            let what = format!("rank {rank} is below the floor, {} ({at})", floor.value);
            self.faults.push(profile.place.fault(what, "raise the rank, or remove the profile"));
        }
    }

    /// The profile of clients that no rule matches: the one named, or the strongest.
    fn default(&mut self, profiles: &[PolicyProfile]) -> Option<usize> {
        if let Some(named) = &self.draft.default {
            let found = profiles.iter().position(|profile| profile.name == named.value);
            if found.is_none() {
                self.faults.push(unknown(named, profiles));
            }
            return found;
        }
        let strongest = profiles.iter().map(|profile| profile.rank).max()?;
        let mut of_rank = (0..).zip(profiles).filter(|(_, profile)| profile.rank == strongest);
        let first = of_rank.next()?;
        let second = of_rank.next();
        if let Some((_, second)) = second {
            let place = Place { key: "default".into(), ..self.draft.place.clone()? };
            let what = format!("{} and {} both have the highest rank", first.1.name, second.name);
            self.faults.push(place.fault(what, "name the profile of clients that no rule matches"));
        }
        Some(first.0)
    }

    /// The entries of the client table, then the rules. One with an unknown profile is reported, and refuses
    /// its clients.
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
                        self.faults.push(unknown(named, profiles));
                        Action::Refuse
                    }
                },
            };
            let name = draft.name.clone().unwrap_or_else(|| draft.place.key.clone());
            if !names.insert(name.clone()) {
                let what = format!("a second rule with the name {name:?}");
                self.faults.push(draft.place.fault(what, "rename one"));
            }
            let conditions = draft.conditions.iter().map(|at| at.value.clone()).collect();
            let place = draft.place.clone();
            let renegotiates = draft.renegotiates;
            rules.push(Rule { name, place, conditions, is_client, renegotiates, action });
        }
        rules
    }

    /// Refuses unreachable rules, and rules by which a forged hint could lower a client below the default
    /// rank.
    fn check_rules(&mut self, rules: &[Rule], profiles: &[PolicyProfile], default: Option<usize>) {
        let default = default.and_then(|default| profiles.get(default));
        let drafts = self.draft.clients.iter().chain(&self.draft.rules);
        let mut everyone: Option<&Rule> = None;
        for (rule, draft) in rules.iter().zip(drafts) {
            if let Some(earlier) = everyone {
                let name = &earlier.name;
                let at = earlier.place.line();
                let what = format!("never reached, since rule {name} ({at}) has no condition");
                self.faults.push(draft.place.fault(what, "move it before that rule"));
            }
            if rule.conditions.is_empty() {
                everyone = everyone.or(Some(rule));
            }
            let Action::Use(profile) = rule.action else { continue };
            let (Some(profile), Some(default)) = (profiles.get(profile), default) else { continue };
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
            let what = format!(
                "it lacks version 1.3, which profile {} has, and would choose 1.2 for clients that offer both",
                with_13.value.name
            );
            self.faults.push(profile.place.fault(what, "add 1.3 to versions"));
        }
    }

    /// Refuses parameters that the engine would refuse, unless a fault of the profile explains them already.
    fn check_parameters(&mut self) {
        let provider = Arc::new(dunlin_awslc::provider());
        let is_explained = |profile: &Field<PolicyProfile>| {
            self.faults.iter().any(|fault| profile.place.is_hidden_by(fault, ""))
        };
        let told = |profile: &Field<PolicyProfile>| {
            let why = profile.value.fault(&provider)?;
            Some(profile.place.fault(why, "change the parameters that contradict each other"))
        };
        let profiles = self.draft.profiles.iter().filter(|profile| !is_explained(profile));
        let found: Vec<_> = profiles.filter_map(told).collect();
        self.faults.extend(found);
    }
}

/// Why a rule for a profile below the default could lower the rank by a forged hint; `None` if it cannot.
fn lowers_by_a_forgery(
    rule: &Rule,
    draft: &DraftRule,
    profile: &PolicyProfile,
    default: &PolicyProfile,
    rules: &[Rule],
    profiles: &[PolicyProfile],
) -> Option<Fault> {
    let of = |basis| draft.conditions.iter().find(move |condition| condition.value.basis() == basis);
    let below = format!("profile {profile}, below the default, {default}");
    let identity = of(Basis::Identity);
    let address = of(Basis::Address);
    let offer = of(Basis::Offer);
    // The lowest rank to which a rule by these conditions alone leads.
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
        (None, None, None) => {
            let what = format!(
                "the rule has no condition on the client's identity, and would serve everyone by {below}"
            );
            Some(draft.place.fault(what, "make it the default"))
        }
        (None, None, Some(offer)) => Some(offer.place.fault(
            format!("anyone can offer this, and would get {below}"),
            "add a condition on the client's identity, or use a profile of at least that rank",
        )),
        (_, Some(address), _) if profile.client != Demand::Certificate => Some(address.place.fault(
            format!("an address is no proof, and would lead to {below}"),
            format!("set profile.{}.client = \"certificate\"", profile.name),
        )),
        _ if !profile.client.authenticates() => {
            let place = draft.profile.as_ref().map_or(&draft.place, |named| &named.place);
            Some(place.fault(
                format!("the handshake would not prove the client's identity, and would lead to {below}"),
                format!("set profile.{}.client = \"certificate\", \"psk\" or \"any\"", profile.name),
            ))
        }
        (_, _, Some(offer)) => {
            // Without the offer, the same clients must get a profile that is not stronger.
            let same = |other: &Rule| {
                other
                    .conditions
                    .iter()
                    .all(|condition| condition.basis() != Basis::Offer && rule.conditions.contains(condition))
            };
            (lowest(&same).is_none_or(|rank| rank > profile.rank)).then(|| {
                let what = format!(
                    "this offer would lower the rank, since without it no rule gives these clients a profile of rank {} or \
                     less",
                    profile.rank
                );
                offer.place.fault(what, "add a rule with the other conditions alone")
            })
        }
        (_, Some(address), None) => {
            // The rank is checked again by the identity that the handshake has proven.
            (lowest(&is_by_identity).is_none_or(|rank| rank > profile.rank)).then(|| {
                let what = format!(
                    "no rule by identity alone leads to a profile of rank {} or less, so every such client would be refused \
                     after its handshake",
                    profile.rank
                );
                address.place.fault(what, "add one")
            })
        }
        (Some(_), None, None) => None,
    }
}

fn unknown(named: &Field<String>, profiles: &[PolicyProfile]) -> Fault {
    let names: Vec<&str> = profiles.iter().map(|profile| profile.name.as_str()).collect();
    named.place.fault(format!("no profile {:?}", named.value), format!("use {}", names.join(", ")))
}

/// The attributes that serve as keys, the best first. Sessions keep the first ones; almost all clients share
/// the last ones.
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
    Attribute::IssuerKey,
    Attribute::Kind,
];

/// The index of the client table.
fn index(rules: &[Rule], clients: usize, profiles: &[PolicyProfile]) -> ClientIndex {
    let mut entries: HashMap<_, Vec<usize>> = HashMap::new();
    let mut strongest: HashMap<Attribute, usize> = HashMap::new();
    let mut by_device = vec![];
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
            if let (Attribute::Device, Action::Use(profile)) = (&key.0, rule.action)
                && !by_device.contains(&profile)
            {
                by_device.push(profile);
            }
            let first = strongest.entry(key.0.clone()).or_insert(i);
            if rank(i) > rank(*first) {
                *first = i;
            }
        }
    }
    ClientIndex { entries, strongest, by_device }
}
