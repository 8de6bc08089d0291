//! Access control of routes: the key `allow`, with the conditions of rules on identities and addresses.

use std::fmt;
use std::net::IpAddr;

use super::client::{Attribute, Client};
use super::condition::{Condition, ConditionReport, Test, Truth, View};
use super::explain::word;
use super::load;
use crate::document::{Place, Section};

/// The clients that may use a route.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Without an entry, every client may.
    entries: Vec<Entry>,
}

/// An entry of `allow`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// All of these must hold.
    conditions: Vec<Condition>,
    place: Place,
}

/// An entry of `allow`, and whether it admits a client.
#[derive(Clone, Debug, serde::Serialize)]
pub struct EntryReport {
    /// Its file.
    pub file: String,
    /// Its line.
    pub line: usize,
    /// Whether it holds for this client.
    pub holds: Truth,
    /// Its conditions.
    pub conditions: Vec<ConditionReport>,
}

/// The entry in the report for people.
impl fmt::Display for EntryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "  {} allow ({}:{})", word(self.holds), self.file, self.line)?;
        let mut conditions = self.conditions.iter();
        conditions.try_for_each(|part| writeln!(f, "      {} {}", word(part.holds), part.condition))
    }
}

impl Access {
    /// Reads the entries of a route.
    pub(crate) fn read(route: &mut Section<'_>) -> Self {
        let tables = route.tables("allow");
        if tables.is_empty() && route.has("allow") {
            let what = "allow has no entry, which could mean all clients or none";
            let advice =
                "write [[listener.route.allow]] with conditions, or leave allow out to admit all clients";
            route.fault(route.place().fault(what, advice));
        }
        let entry = |mut table: Section<'_>| {
            let place = table.place().clone();
            let conditions = load::admission(&mut table);
            if conditions.is_empty() {
                table.fault(place.fault("no condition", "give one, such as name, dns, psk or address"));
            }
            table.end();
            Entry { conditions, place }
        };
        Self { entries: tables.into_iter().map(entry).collect() }
    }

    /// Whether every client may use the route.
    pub const fn is_open(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether this admits the same clients, entry by entry.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let [own, others] = [self, other].map(|access| access.entries.iter().map(|entry| &entry.conditions));
        own.eq(others)
    }

    /// Whether a client with this proven identity and address may use the route. An uncertain match does not
    /// admit it. `now_s` is the time in seconds since 1970.
    pub fn admits(&self, client: Option<&Client>, address: Option<IpAddr>, now_s: u64) -> bool {
        let view = View { client, address, now_s, hello: None };
        self.is_open() || self.entries.iter().any(|entry| entry.holds(&view) == Truth::Yes)
    }

    /// The entries, and whether each admits the client.
    pub fn explain(&self, client: Option<&Client>, address: Option<IpAddr>, now_s: u64) -> Vec<EntryReport> {
        let view = View { client, address, now_s, hello: None };
        let report = |entry: &Entry| EntryReport {
            file: entry.place.file.display().to_string(),
            line: entry.place.line,
            holds: entry.holds(&view),
            conditions: entry.conditions.iter().map(|condition| condition.report(&view)).collect(),
        };
        self.entries.iter().map(report).collect()
    }

    /// The first entry with a condition on an identity.
    pub(crate) fn by_identity(&self) -> Option<&Place> {
        let is_by_identity = |entry: &&Entry| entry.conditions.iter().any(Condition::is_about_identity);
        self.entries.iter().find(is_by_identity).map(|entry| &entry.place)
    }

    /// Whether a condition looks at attributes that sessions and caches keep only on demand.
    pub(crate) fn needs_details(&self) -> bool {
        self.conditions().any(Condition::is_about_details)
    }

    /// Whether a condition looks at attributes that only the certificate itself has.
    pub(crate) fn needs_certificate(&self) -> bool {
        self.conditions().any(|condition| matches!(condition.test, Test::Attribute(Attribute::Key, _)))
    }

    fn conditions(&self) -> impl Iterator<Item = &Condition> {
        self.entries.iter().flat_map(|entry| &entry.conditions)
    }
}

impl Entry {
    fn holds(&self, view: &View<'_>) -> Truth {
        self.conditions.iter().map(|condition| condition.holds(view)).min().unwrap_or(Truth::No)
    }
}
