//! The conditions of rules.

use std::fmt;
use std::net::IpAddr;

use dunlin::wire::{CipherSuite, NamedGroup, SignatureScheme};

use super::client::{Attribute, Client};
use super::hints::{Cipher, Hello};
use super::pattern::{Network, Pattern};

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Truth {
    /// It does not hold.
    No,
    /// The server has not kept the attribute that would decide it, such as the issuer of a client that
    /// resumes a session. Or the client's certificate says that it holds, but does not prove it.
    Unknown,
    /// It holds.
    Yes,
}

impl From<bool> for Truth {
    fn from(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }
}

/// The basis of a condition, which decides how the condition may change the rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Basis {
    /// The client's identity. It may lower the rank, because the handshake proves the identity.
    Identity,
    /// An offer in the ClientHello. Anyone can make it, so it may only raise the rank.
    Offer,
    /// The client's address. It may lower the rank only to a profile that demands a certificate.
    Address,
}

/// The comparison that a condition makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Test {
    Attribute(Attribute, Vec<Pattern>),
    /// The credential remains valid for at least this many seconds.
    ValidAtLeast(u64),
    /// The credential remains valid for at most this many seconds.
    ValidAtMost(u64),
    ServerName(Vec<Pattern>),
    Alpn(Vec<String>),
    Prefers(Cipher),
    Suites(Vec<CipherSuite>),
    Groups(Vec<NamedGroup>),
    SignatureSchemes(Vec<SignatureScheme>),
    /// Whether the newest version offered is 1.3 or 1.2.
    Newest13(bool),
    Addresses(Vec<Network>),
}

/// A condition of a rule. Several values mean any of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub(super) test: Test,
}

/// A condition and whether it holds.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ConditionReport {
    /// The condition, as in the policy.
    pub condition: String,
    /// Whether it holds for this client.
    pub holds: Truth,
}

/// The facts with which conditions are compared.
#[derive(Clone, Copy, Default)]
pub(super) struct View<'a> {
    pub(super) hello: Option<&'a Hello>,
    pub(super) address: Option<IpAddr>,
    /// The client, proven or claimed.
    pub(super) client: Option<&'a Client>,
    /// The time, in seconds since 1970.
    pub(super) now_s: u64,
}

impl Condition {
    /// Its basis.
    pub const fn basis(&self) -> Basis {
        match self.test {
            Test::Attribute(..) | Test::ValidAtLeast(_) | Test::ValidAtMost(_) => Basis::Identity,
            Test::Addresses(_) => Basis::Address,
            _ => Basis::Offer,
        }
    }

    /// Whether it looks at the client's identity.
    pub(super) fn is_about_identity(&self) -> bool {
        self.basis() == Basis::Identity
    }

    /// Whether it looks at attributes that sessions and caches keep only on demand.
    pub(super) const fn is_about_details(&self) -> bool {
        use Attribute::{Email, Issuer, IssuerKey, Name, Subject};
        matches!(self.test, Test::Attribute(Email | Issuer | IssuerKey | Name | Subject, _))
    }

    /// Whether it holds, for a report.
    pub(super) fn report(&self, view: &View<'_>) -> ConditionReport {
        ConditionReport { condition: self.to_string(), holds: self.holds(view) }
    }

    /// The key that it has in a policy.
    pub fn key(&self) -> String {
        match &self.test {
            Test::Attribute(attribute, _) => attribute.to_string(),
            Test::ValidAtLeast(_) => "valid_at_least".into(),
            Test::ValidAtMost(_) => "valid_at_most".into(),
            Test::ServerName(_) => "sni".into(),
            Test::Alpn(_) => "alpn".into(),
            Test::Prefers(_) => "prefers".into(),
            Test::Suites(_) => "offers_cipher_suite".into(),
            Test::Groups(_) => "offers_group".into(),
            Test::SignatureSchemes(_) => "offers_signature_scheme".into(),
            Test::Newest13(_) => "newest_version".into(),
            Test::Addresses(_) => "address".into(),
        }
    }

    pub(super) fn holds(&self, view: &View<'_>) -> Truth {
        let offer = |of: &dyn Fn(&Hello) -> bool| Truth::from(view.hello.is_some_and(of));
        match &self.test {
            Test::Attribute(attribute, patterns) => view.client.map_or(Truth::No, |client| {
                let known = client.values(attribute).map(|value| any_matches(patterns, value)).max();
                let doubtful = client.doubtful().iter().filter(|(said, _)| said == attribute);
                let doubtful =
                    doubtful.map(|(_, value)| any_matches(patterns, value).min(Truth::Unknown)).max();
                let missing = if client.is_unknown(attribute) { Truth::Unknown } else { Truth::No };
                known.max(doubtful).unwrap_or(Truth::No).max(missing)
            }),
            Test::ValidAtLeast(seconds) => remaining(view, |left| left >= *seconds),
            Test::ValidAtMost(seconds) => remaining(view, |left| left <= *seconds),
            Test::ServerName(patterns) => {
                let name = view.hello.and_then(|hello| hello.server_name.as_deref());
                name.map_or(Truth::No, |name| any_matches(patterns, name))
            }
            Test::Alpn(protocols) => offer(&|hello| {
                hello.alpn.iter().any(|offered| protocols.iter().any(|p| p.as_bytes() == offered))
            }),
            Test::Prefers(cipher) => offer(&|hello| hello.prefers() == Some(*cipher)),
            Test::Suites(suites) => offer(&|hello| suites.iter().any(|s| hello.cipher_suites.contains(s))),
            Test::Groups(groups) => offer(&|hello| groups.iter().any(|g| hello.groups.contains(g))),
            Test::SignatureSchemes(schemes) => {
                offer(&|hello| schemes.iter().any(|s| hello.signature_schemes.contains(s)))
            }
            Test::Newest13(is_13) => offer(&|hello| hello.offers_13() == *is_13),
            Test::Addresses(networks) => {
                let is_in = |address| networks.iter().any(|network| network.contains(address));
                view.address.is_some_and(is_in).into()
            }
        }
    }
}

fn any_matches(patterns: &[Pattern], value: &str) -> Truth {
    let one = |pattern: &Pattern| pattern.matches(value).map_or(Truth::Unknown, Truth::from);
    patterns.iter().map(one).max().unwrap_or(Truth::No)
}

/// Whether the number of seconds for which the client's credential remains valid is as wanted.
fn remaining(view: &View<'_>, is_wanted: impl Fn(u64) -> bool) -> Truth {
    match view.client {
        None => Truth::No,
        Some(client) if client.has_unknown_end() => Truth::Unknown,
        Some(client) => is_wanted(client.not_after_s().unwrap_or(u64::MAX).saturating_sub(view.now_s)).into(),
    }
}

/// The condition with its values, as in a policy.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = ", self.key())?;
        match &self.test {
            Test::Attribute(_, patterns) | Test::ServerName(patterns) => list(f, patterns),
            Test::ValidAtLeast(seconds) | Test::ValidAtMost(seconds) => write!(f, "{seconds}"),
            Test::Alpn(protocols) => list(f, protocols),
            Test::Prefers(cipher) => write!(f, "\"{}\"", cipher.name()),
            Test::Suites(suites) => list(f, suites),
            Test::Groups(groups) => list(f, groups),
            Test::SignatureSchemes(schemes) => list(f, schemes),
            Test::Newest13(is_13) => f.write_str(if *is_13 { "\"1.3\"" } else { "\"1.2\"" }),
            Test::Addresses(networks) => list(f, networks),
        }
    }
}

/// How many values of a condition a text shows.
const SHOWN: usize = 4;

fn list<T: fmt::Display>(f: &mut fmt::Formatter<'_>, items: &[T]) -> fmt::Result {
    if let [one] = items {
        return write!(f, "\"{one}\"");
    }
    f.write_str("[")?;
    for (i, item) in items.iter().take(SHOWN).enumerate() {
        write!(f, "{}\"{item}\"", if i == 0 { "" } else { ", " })?;
    }
    if items.len() > SHOWN {
        write!(f, ", and {} more", items.len() - SHOWN)?;
    }
    f.write_str("]")
}
