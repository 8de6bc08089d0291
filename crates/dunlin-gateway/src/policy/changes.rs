//! The differences between two policies, for the log of a reload.

use std::collections::HashSet;

use super::{Action, Policy, Renegotiation, Rule};

/// How many changes are named one by one.
const MAX_SHOWN: usize = 32;

impl Policy {
    /// The policy in a few words.
    pub fn summary(&self) -> String {
        format!(
            "{} profiles, {} rules, {} clients, default {}, floor {}",
            self.profiles.len(),
            self.rules.len() - self.clients,
            self.clients,
            self.default_profile(),
            self.floor_text(),
        )
    }

    fn floor_text(&self) -> String {
        if self.floor == i32::MIN { "none".to_owned() } else { self.floor.to_string() }
    }

    /// The differences from `previous`, one line each. The list counts entries of the client table, and names
    /// only the first of many changes.
    pub fn changes_since(&self, previous: &Self) -> Vec<String> {
        let mut changes = vec![];
        if self.floor != previous.floor {
            changes.push(format!("floor {} instead of {}", self.floor_text(), previous.floor_text()));
        }
        let default = self.default_profile();
        let before = previous.default_profile();
        if default.name != before.name {
            changes.push(format!("default {default} instead of {before}"));
        }
        if self.renegotiation != previous.renegotiation {
            changes.push(format!("renegotiation {}", self.renegotiation.name()));
        }
        if self.blacklist != previous.blacklist {
            changes.push("other limits of the blacklist".to_owned());
        }
        for profile in &self.profiles {
            match previous.profile(&profile.name) {
                None => changes.push(format!("new profile {profile}")),
                Some(old) if old != profile => changes.push(format!("changed profile {profile}, was {old}")),
                Some(_) => {}
            }
        }
        let gone = previous.profiles.iter().filter(|profile| self.profile(&profile.name).is_none());
        changes.extend(gone.map(|profile| format!("no profile {profile}")));
        self.rules_since(previous, &mut changes);
        self.clients_since(previous, &mut changes);
        let surplus = changes.len().saturating_sub(MAX_SHOWN);
        if surplus > 0 {
            changes.truncate(MAX_SHOWN);
            changes.push(format!("and {surplus} more changes"));
        }
        changes
    }

    /// The rules without the client table.
    fn without_clients(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().skip(self.clients)
    }

    fn rules_since(&self, previous: &Self, changes: &mut Vec<String>) {
        let key = |policy: &Self, rule: &Rule| {
            let action = policy.action_text(rule);
            (rule.name.clone(), format!("{:?}", rule.conditions), action)
        };
        let keys = |policy: &Self| policy.without_clients().map(|rule| key(policy, rule)).collect::<Vec<_>>();
        let new = keys(self);
        let old = keys(previous);
        let known: HashSet<_> = old.iter().collect();
        let kept: HashSet<_> = new.iter().collect();
        let added = self.without_clients().zip(&new).filter(|(_, key)| !known.contains(key));
        let added = added.map(|(rule, _)| format!("new {}", self.rule_text(rule)));
        let removed = previous.without_clients().zip(&old).filter(|(_, key)| !kept.contains(key));
        let removed = removed.map(|(rule, _)| format!("no {}", previous.rule_text(rule)));
        let differ: Vec<_> = added.chain(removed).collect();
        if differ.is_empty() && new != old {
            changes.push("the rules are in another order".to_owned());
        }
        changes.extend(differ);
    }

    fn clients_since(&self, previous: &Self, changes: &mut Vec<String>) {
        let texts = |policy: &Self| -> HashSet<String> {
            policy.rules.iter().take(policy.clients).map(|entry| policy.entry_text(entry)).collect()
        };
        let new = texts(self);
        let old = texts(previous);
        let added = new.difference(&old).count();
        let removed = old.difference(&new).count();
        if added > 0 || removed > 0 {
            changes.push(format!("client table: {added} entries added, {removed} removed"));
        }
    }

    fn rule_text(&self, rule: &Rule) -> String {
        format!("rule {} ({})", rule.name, self.entry_text(rule))
    }

    fn entry_text(&self, rule: &Rule) -> String {
        let conditions: Vec<_> = rule.conditions.iter().map(ToString::to_string).collect();
        format!("{} to {}", conditions.join(", "), self.action_text(rule))
    }

    fn action_text(&self, rule: &Rule) -> String {
        let profile = match rule.action {
            Action::Use(profile) => self.profiles.get(profile),
            Action::Refuse => None,
        };
        match profile {
            None => "refuse".to_owned(),
            Some(profile) if rule.renegotiates => profile.name.clone(),
            Some(profile) => format!("{} without renegotiation", profile.name),
        }
    }
}

impl Renegotiation {
    /// The word in a policy.
    const fn name(self) -> &'static str {
        match (self.up, self.down) {
            (false, false) => "none",
            (true, false) => "up",
            (false, true) => "down",
            (true, true) => "both",
        }
    }
}
