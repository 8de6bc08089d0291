//! Reads a policy from TOML.

use std::cell::RefCell;
use std::ops::RangeInclusive;
use std::path::Path;

use dunlin::wire::{CipherSuite, NamedGroup, SignatureScheme};

use super::blacklist::BlacklistLimits;
use super::check::{self, Draft, DraftRule};
use super::client::{ATTRIBUTES, Attribute, email};
use super::condition::{Condition, Test};
use super::hints::Cipher;
use super::nft::NftSets;
use super::pattern::{MAX_PATTERN, Network, Pattern};
use super::profile::{self, DEMANDS, PolicyProfile};
use super::{BlacklistSettings, Policy, ProfilePlaces, Renegotiation};
use crate::document::{Fault, Faults, Field, Kind, Place, SWITCH, Section, Source};

/// The largest file, in bytes: a hundred thousand clients. A database has room for more.
pub const MAX_FILE: usize = 16 << 20;

/// The most networks of a blacklist: each takes some 200 bytes.
const MAX_BLOCKED: u64 = 10_000_000;

/// The most values of one condition.
const MAX_VALUES: usize = 1024;

/// The ranks of profiles.
const RANKS: RangeInclusive<i64> = i32::MIN as i64..=i32::MAX as i64;

const RANK: Kind = Kind {
    name: "an integer from -2147483648 to 2147483647",
    allowed: "write a higher one for a stronger profile",
};
const OFFENCES: Kind = Kind { name: "an integer from 0 to 4294967295", allowed: "0 stands for never" };
const PREFIX_V4: Kind = Kind { name: "an integer from 1 to 32", allowed: "write the length in bits" };
const PREFIX_V6: Kind = Kind { name: "an integer from 1 to 128", allowed: "write the length in bits" };
const CAPACITY: Kind =
    Kind { name: "an integer from 1 to 10000000", allowed: "write the largest number of networks" };
const RENEGOTIATIONS: &[(&str, Renegotiation)] = &[
    ("none", Renegotiation { up: false, down: false }),
    ("up", Renegotiation { up: true, down: false }),
    ("down", Renegotiation { up: false, down: true }),
    ("both", Renegotiation { up: true, down: true }),
];

/// Reads a policy from a text of TOML. `file` names it in errors.
///
/// # Errors
/// All faults, in the order of the lines.
pub fn parse(file: impl AsRef<Path>, text: &str) -> Result<Policy, Faults> {
    let file = file.as_ref();
    if text.len() > MAX_FILE {
        let what = format!("larger than {} MiB", MAX_FILE >> 20);
        return Err(Faults::one(Fault::of_file(file, what, "put the clients into a database")));
    }
    let source = Source::new(file, text.to_owned());
    let mut of_syntax = vec![];
    let table = source.parse(&mut of_syntax);
    let faults = RefCell::new(of_syntax);
    let mut root = Section::top(&source, table.get_ref(), &faults);
    let mut draft = Draft { place: Some(root.place().clone()), ..Draft::default() };
    settings(&mut root, &mut draft);
    if let Some(mut profiles) = root.table("profile") {
        for name in profiles.keys() {
            if let Some(section) = profiles.table(name) {
                profile(name.to_owned(), section, &mut draft);
            }
        }
    }
    for section in root.tables("client") {
        draft.clients.extend(client(section));
    }
    for section in root.tables("rule") {
        draft.rules.extend(rule(section));
    }
    root.end();
    check::build(draft, faults.take())
}

/// Reads the settings outside of profiles and rules.
pub(super) fn settings(root: &mut Section<'_>, draft: &mut Draft) {
    draft.floor = root.integer("floor", RANK, RANKS);
    draft.default = root.text("default");
    draft.renegotiation = root.one_of("renegotiation", RENEGOTIATIONS).unwrap_or_default();
    draft.blacklist = root.table("blacklist").and_then(blacklist);
}

/// Reads the limits of the blacklist, and the sets of the kernel. `None` if a name of a set is wrong.
fn blacklist(mut section: Section<'_>) -> Option<BlacklistSettings> {
    let usual = BlacklistLimits::default();
    let number = |section: &mut Section<'_>, key: &'static str, usual: u32| {
        let number = section.number(key, OFFENCES, 0, u32::MAX.into());
        number.and_then(|number| number.try_into().ok()).unwrap_or(usual)
    };
    let prefix = |bits: Option<u64>, usual: u8| bits.and_then(|bits| bits.try_into().ok()).unwrap_or(usual);
    let limits = BlacklistLimits {
        failed: number(&mut section, "failed", usual.failed),
        foreign: number(&mut section, "foreign", usual.foreign),
        window_s: section.seconds("window").map_or(usual.window_s, |field| field.value),
        blocked_s: section.seconds("blocked").map_or(usual.blocked_s, |field| field.value),
        prefix_v4: prefix(section.number("prefix_ipv4", PREFIX_V4, 1, 32), usual.prefix_v4),
        prefix_v6: prefix(section.number("prefix_ipv6", PREFIX_V6, 1, 128), usual.prefix_v6),
        capacity: section
            .number("capacity", CAPACITY, 1, MAX_BLOCKED)
            .and_then(|capacity| capacity.try_into().ok())
            .unwrap_or(usual.capacity),
        exempt: section.texts("exempt").iter().filter_map(|text| network(text, &section)).collect(),
    };
    let [table, v4, v6] = ["nft_table", "nft_ipv4", "nft_ipv6"].map(|key| section.text(key));
    let kernel = match (&table, &v4, &v6) {
        (None, None, None) => Some(None),
        (Some(table), Some(v4), Some(v6)) => match NftSets::new(&table.value, &v4.value, &v6.value) {
            Ok(sets) => Some(Some(sets)),
            Err(error) => {
                section.fault(table.place.fault(error.to_string(), "correct the names"));
                None
            }
        },
        _ => {
            let what = "some of nft_table, nft_ipv4 and nft_ipv6 are missing";
            section.fault(section.place().fault(what, "write all of them, or none"));
            None
        }
    };
    section.end();
    Some(BlacklistSettings { limits, kernel: kernel? })
}

fn network(text: &Field<String>, section: &Section<'_>) -> Option<Network> {
    let fault = |why| section.fault(text.place.fault(format!("wrong value {:?}", text.value), why));
    Network::parse(&text.value).map_err(fault).ok()
}

/// Reads a profile. Faults are reported, and values with faults left out.
pub(super) fn profile(name: String, mut section: Section<'_>, draft: &mut Draft) {
    let rank = section.integer("rank", RANK, RANKS);
    if !section.has("rank") {
        section.missing("rank", "write an integer, higher for a stronger profile");
    }
    let versions = section.texts("versions");
    for version in versions.iter().filter(|version| !["1.2", "1.3"].contains(&version.value.as_str())) {
        let what = format!("unknown version {:?}", version.value);
        section.fault(version.place.fault(what, "write \"1.2\" or \"1.3\", or both in an array"));
    }
    let speaks = |version: &str| versions.iter().any(|field| field.value == version);
    let (has_12, has_13) = (speaks("1.2"), versions.is_empty() || speaks("1.3"));
    let suites = suites(&mut section, has_12, has_13);
    let groups = section.names("groups", &profile::groups(), NamedGroup::from_name);
    let schemes = profile::signature_schemes();
    let schemes = section.names("signature_schemes", &schemes, SignatureScheme::from_name);
    let client = section.one_of("client", DEMANDS).unwrap_or_default();
    if !client_accepts_psk(client) {
        for suite in suites.iter().filter(|suite| profile::is_psk_suite(suite.value)) {
            let what = format!("{} needs no certificate of the client", suite.value);
            section.fault(suite.place.fault(what, "remove it, or set client = \"any\""));
        }
    }
    let certificates = section.texts("certificates");
    if let Some(first) = certificates.first().filter(|_| client == profile::Demand::Psk) {
        // TLS 1.3 would serve clients without a key by the certificate.
        let what = "client = \"psk\" needs no certificate";
        section.fault(first.place.fault(what, "remove it, or set client = \"any\""));
    }
    let changes_certificate = section.switch("change_certificate").unwrap_or(false);
    let lifetimes = ["session_lifetime", "cache_lifetime", "address_lifetime"];
    let [session_lifetime_s, cache_lifetime_s, address_lifetime_s] =
        lifetimes.map(|key| section.seconds(key).map(|field| field.value));
    let place = section.place().clone();
    let places = ProfilePlaces {
        table: place.clone(),
        certificates: section.place_of("certificates"),
        client: section.place_of("client"),
    };
    section.end();
    draft.places.insert(name.clone(), places);
    let profile = PolicyProfile {
        name,
        rank: rank.and_then(|rank| rank.value.try_into().ok()).unwrap_or(i32::MAX),
        has_12,
        has_13,
        cipher_suites: values(suites),
        groups: values(groups),
        signature_schemes: values(schemes),
        certificates: values(certificates),
        changes_certificate,
        keeps_details: false,
        client,
        session_lifetime_s,
        cache_lifetime_s,
        address_lifetime_s: address_lifetime_s.unwrap_or(0),
    };
    draft.profiles.push(Field { value: profile, place });
}

const fn client_accepts_psk(client: profile::Demand) -> bool {
    !matches!(client, profile::Demand::Certificate)
}

/// Reads the cipher suites, which must belong to the versions and leave none of them without a suite.
fn suites(section: &mut Section<'_>, has_12: bool, has_13: bool) -> Vec<Field<CipherSuite>> {
    let (of_13, of_12) = profile::suites();
    let known = [&of_13[..], &of_12].concat();
    let suites = section.names("cipher_suites", &known, CipherSuite::from_name);
    for suite in &suites {
        let (version, is_on) = if of_13.contains(&suite.value) { ("1.3", has_13) } else { ("1.2", has_12) };
        if !is_on {
            let what = format!("{} needs version {version}", suite.value);
            section.fault(suite.place.fault(what, "add it to versions"));
        }
    }
    if let Some(first) = suites.first() {
        for (version, is_on, known) in [("1.3", has_13, &of_13), ("1.2", has_12, &of_12)] {
            if is_on && !suites.iter().any(|suite| known.contains(&suite.value)) {
                section.fault(first.place.fault(format!("no suite for version {version}"), "add one"));
            }
        }
    }
    suites
}

/// Reads a rule. `None` if it has a fault without which it cannot be checked.
pub(super) fn rule(mut section: Section<'_>) -> Option<DraftRule> {
    let name = section.text("name").map(|name| name.value);
    let target = target(&mut section);
    let conditions = section.table("when").map_or_else(Vec::new, |mut when| {
        let conditions = [identity(&mut when), hints(&mut when)].concat();
        when.end();
        conditions
    });
    let place = section.place().clone();
    section.end();
    target.map(|target| target.rule(place, name, conditions))
}

/// Reads an entry of the client table: exact values of attributes, and a profile.
pub(super) fn client(mut section: Section<'_>) -> Option<DraftRule> {
    let conditions = identity(&mut section);
    let target = target(&mut section);
    if conditions.is_empty() {
        let what = "no attribute of the client";
        section.fault(section.place().fault(what, "give one, such as dns or psk"));
    }
    for condition in &conditions {
        let Test::Attribute(_, patterns) = &condition.value.test else { continue };
        if patterns.len() != 1 || patterns.iter().any(|pattern| pattern.exact().is_none()) {
            let what = "a client has one exact value here";
            section.fault(condition.place.fault(what, "write a [[rule]] for patterns and lists"));
        }
    }
    let place = section.place().clone();
    section.end();
    target.filter(|_| !conditions.is_empty()).map(|target| target.rule(place, None, conditions))
}

/// The target to which a rule leads its clients.
struct Target {
    /// The profile; `None` refuses the client.
    profile: Option<Field<String>>,
    renegotiates: bool,
}

impl Target {
    fn rule(self, place: Place, name: Option<String>, conditions: Vec<Field<Condition>>) -> DraftRule {
        let Self { profile, renegotiates } = self;
        DraftRule { place, name, conditions, profile, renegotiates }
    }
}

fn target(section: &mut Section<'_>) -> Option<Target> {
    let profile = section.text("profile");
    let refuse = section.switch("refuse").unwrap_or(false);
    let renegotiate = section.read("renegotiate", SWITCH, |value| value.as_bool());
    if profile.is_some() == refuse {
        if profile.is_some() || !section.has("profile") {
            let what = "a rule has either a profile or refuse = true";
            section.fault(section.place().fault(what, "write one of them"));
        }
        return None;
    }
    if let Some(field) = renegotiate.as_ref().filter(|_| profile.is_none()) {
        section.fault(field.place.fault("clients that are refused do not renegotiate", "remove it"));
    }
    Some(Target { profile, renegotiates: renegotiate.is_none_or(|field| field.value) })
}

/// The conditions on the client's identity.
fn identity(section: &mut Section<'_>) -> Vec<Field<Condition>> {
    let mut conditions = Vec::new();
    for (key, attribute) in ATTRIBUTES {
        conditions.extend(of_attribute(section, key, attribute.clone()));
    }
    if let Some(mut claims) = section.table("claim") {
        for name in claims.keys() {
            conditions.extend(of_attribute(&mut claims, name, Attribute::Claim(name.to_owned())));
        }
    }
    conditions
}

/// The condition on an attribute, if the section has one.
fn of_attribute<'a>(
    section: &mut Section<'a>,
    key: &'a str,
    attribute: Attribute,
) -> Option<Field<Condition>> {
    let separator = attribute.separator();
    let pattern = |text: &str| {
        let pattern = Pattern::parse(&checked(text, &attribute)?, separator);
        pattern.ok_or_else(|| format!("give 1 to {MAX_PATTERN} characters"))
    };
    let condition = listed(section, key, pattern)?;
    Some(condition.map(|patterns| Condition { test: Test::Attribute(attribute, patterns) }))
}

/// A value in the form in which clients have it.
///
/// # Errors
/// No client can have the value. The error names the allowed values.
pub(super) fn checked(text: &str, attribute: &Attribute) -> Result<String, String> {
    let is_digest = text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
    match attribute {
        Attribute::Kind if !["x509", "raw_key", "psk", "vc", "did", "other"].contains(&text) => {
            Err("use x509, raw_key, psk, vc, did, other".to_owned())
        }
        Attribute::Fingerprint | Attribute::Key | Attribute::IssuerKey if !is_digest => {
            Err("give a SHA-256 in hexadecimal, 64 digits".to_owned())
        }
        Attribute::Dns | Attribute::Fingerprint | Attribute::Key | Attribute::IssuerKey => {
            Ok(text.to_ascii_lowercase())
        }
        Attribute::Email => Ok(email(text)),
        _ => Ok(text.to_owned()),
    }
}

/// The conditions of an entry of `allow`: on the identity, its validity and the address.
pub(super) fn admission(entry: &mut Section<'_>) -> Vec<Condition> {
    let by_identity = identity(entry).into_iter().map(|field| field.value).collect::<Vec<_>>();
    let others = validity(entry).into_iter().chain(networks(entry));
    by_identity.into_iter().chain(others.map(|field| Condition { test: field.value })).collect()
}

/// The conditions on the validity of the identity.
fn validity(when: &mut Section<'_>) -> Vec<Field<Test>> {
    let least = when.seconds("valid_at_least");
    let least = least.map(|field| field.map(|seconds| Test::ValidAtLeast(seconds.into())));
    let most = when.seconds("valid_at_most");
    let most = most.map(|field| field.map(|seconds| Test::ValidAtMost(seconds.into())));
    least.into_iter().chain(most).collect()
}

/// The condition on the address.
fn networks(when: &mut Section<'_>) -> Option<Field<Test>> {
    listed(when, "address", Network::parse).map(|networks| networks.map(Test::Addresses))
}

/// The conditions on the validity of the identity, the ClientHello and the address.
fn hints(when: &mut Section<'_>) -> Vec<Field<Condition>> {
    let mut conditions = validity(when);
    let name = |text: &str| {
        let pattern = Pattern::parse(&text.to_ascii_lowercase(), Some('.'));
        pattern.ok_or_else(|| format!("give 1 to {MAX_PATTERN} characters"))
    };
    conditions.extend(listed(when, "sni", name).map(|names| names.map(Test::ServerName)));
    let protocol = |text: &str| match text.len() {
        1..=255 => Ok(text.to_owned()),
        _ => Err("give 1 to 255 bytes".to_owned()),
    };
    conditions.extend(listed(when, "alpn", protocol).map(|protocols| protocols.map(Test::Alpn)));
    let prefers = when.word("prefers", &[("aes", Cipher::Aes), ("chacha20", Cipher::ChaCha20)]);
    conditions.extend(prefers.map(|cipher| cipher.map(Test::Prefers)));
    let suites = when.names("offers_cipher_suite", CipherSuite::ALL, CipherSuite::from_name);
    conditions.extend(together(suites).map(|suites| suites.map(Test::Suites)));
    let groups = when.names("offers_group", NamedGroup::ALL, NamedGroup::from_name);
    conditions.extend(together(groups).map(|groups| groups.map(Test::Groups)));
    let schemes = when.names("offers_signature_scheme", SignatureScheme::ALL, SignatureScheme::from_name);
    conditions.extend(together(schemes).map(|schemes| schemes.map(Test::SignatureSchemes)));
    let newest = when.word("newest_version", &[("1.2", false), ("1.3", true)]);
    conditions.extend(newest.map(|newest| newest.map(Test::Newest13)));
    conditions.extend(networks(when));
    conditions.into_iter().map(|field| field.map(|test| Condition { test })).collect()
}

/// The values of a condition. `of` accepts a text, or names the allowed values.
fn listed<'a, T>(
    section: &mut Section<'a>,
    key: &'a str,
    of: impl Fn(&str) -> Result<T, String>,
) -> Option<Field<Vec<T>>> {
    let texts = section.texts(key);
    let place = whole(&texts.first()?.place);
    if let Some(text) = texts.get(MAX_VALUES) {
        let what = format!("more than {MAX_VALUES} values");
        section.fault(text.place.fault(what, "write several rules, or [[client]]s"));
    }
    let mut accepted = Vec::new();
    for text in texts {
        let told = |advice| text.place.fault(format!("wrong value {:?}", text.value), advice);
        match of(&text.value) {
            Ok(value) => accepted.push(value),
            Err(advice) => section.fault(told(advice)),
        }
    }
    Some(Field { value: accepted, place })
}

/// The values as one; `None` without a value.
fn together<T>(fields: Vec<Field<T>>) -> Option<Field<Vec<T>>> {
    let place = whole(&fields.first()?.place);
    Some(Field { value: values(fields), place })
}

/// The place of an array whose first item has this place. The key of an item ends with its number.
fn whole(first: &Place) -> Place {
    let key = first.key.strip_suffix("[0]").unwrap_or(&first.key).to_owned();
    Place { key, ..first.clone() }
}

fn values<T>(fields: Vec<Field<T>>) -> Vec<T> {
    fields.into_iter().map(|field| field.value).collect()
}
