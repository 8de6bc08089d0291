//! Reads a policy from TOML.

use std::cell::RefCell;
use std::sync::Arc;

use dunlin::wire::{CipherSuite, NamedGroup, SignatureScheme};

use super::blacklist::BlacklistLimits;
use super::check::{self, Draft, DraftRule};
use super::client::{ATTRIBUTES, Attribute};
use super::condition::{Condition, Test};
use super::faults::{Fault, Faults, Place};
use super::hints::Cipher;
use super::nft::NftSets;
use super::pattern::{MAX_PATTERN, Network, Pattern};
use super::profile::{self, DEMANDS, PolicyProfile};
use super::read::{At, Section, Text};
use super::{BlacklistSettings, Policy, Renegotiation};

/// The largest file, in bytes: a hundred thousand clients. A database has room for more.
pub const MAX_FILE: usize = 16 << 20;

/// The most networks of a blacklist: each takes some 200 bytes.
const MAX_BLOCKED: i64 = 10_000_000;

/// The most values of one condition.
const MAX_VALUES: usize = 1024;

const ROOT: &[&str] = &["floor", "default", "renegotiation", "profile", "rule", "client", "blacklist"];
const PROFILE: &[&str] = &[
    "rank",
    "versions",
    "cipher_suites",
    "groups",
    "signature_schemes",
    "certificates",
    "change_certificate",
    "client",
    "session_lifetime",
    "cache_lifetime",
    "address_lifetime",
];
const BLACKLIST: &[&str] = &[
    "failed",
    "foreign",
    "window",
    "blocked",
    "prefix_ipv4",
    "prefix_ipv6",
    "capacity",
    "exempt",
    "nft_table",
    "nft_ipv4",
    "nft_ipv6",
];
const RULE: &[&str] = &["name", "profile", "refuse", "renegotiate", "when"];
const HINTS: &[&str] = &[
    "valid_at_least",
    "valid_at_most",
    "sni",
    "alpn",
    "prefers",
    "offers_cipher_suite",
    "offers_group",
    "offers_signature_scheme",
    "newest_version",
    "address",
];
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
pub fn parse(file: &str, text: &str) -> Result<Policy, Faults> {
    if text.len() > MAX_FILE {
        let what = format!("larger than {} MiB; put the clients into a database", MAX_FILE >> 20);
        return Err(Faults::of_file(file, what));
    }
    let file: Arc<str> = file.into();
    let faults = RefCell::default();
    let mut draft = Draft { place: Some(Place { file: Arc::clone(&file), line: 1 }), ..Draft::default() };
    let (text, Some(table)) = Text::parse(file, text, &faults) else { return Err(Faults(faults.take())) };
    let root = text.root(&table);
    root.expect(ROOT, |_| false);
    settings(&root, &mut draft);
    for (name, section) in root.sections("profile") {
        draft.profiles.push(profile(name, &section));
    }
    for section in root.list("client") {
        draft.clients.extend(client(&section));
    }
    for section in root.list("rule") {
        draft.rules.extend(rule(&section));
    }
    check::build(draft, faults.take())
}

/// Reads the settings outside of profiles and rules.
pub(super) fn settings(root: &Section<'_, '_>, draft: &mut Draft) {
    let rank = i64::from(i32::MIN)..=i64::from(i32::MAX);
    draft.floor = root.integer("floor", rank);
    draft.default = root.string("default");
    draft.renegotiation = root.choice("renegotiation", RENEGOTIATIONS).map(|at| at.value).unwrap_or_default();
    draft.blacklist = root.section("blacklist").and_then(|section| blacklist(&section));
}

/// Reads the limits of the blacklist, and the sets of the kernel. `None` if a name of a set is wrong.
fn blacklist(section: &Section<'_, '_>) -> Option<BlacklistSettings> {
    section.expect(BLACKLIST, |_| false);
    let usual = BlacklistLimits::default();
    let number = |key, most: u32, usual: u32| {
        let number = section.integer(key, 0..=most.into()).and_then(|at| at.value.try_into().ok());
        number.unwrap_or(usual)
    };
    let prefix = |key, most: u8, usual: u8| {
        let bits = section.integer(key, 1..=most.into()).and_then(|at| at.value.try_into().ok());
        bits.unwrap_or(usual)
    };
    let duration = |key, usual: u32| section.duration(key).map_or(usual, |at| at.value);
    let capacity = section.integer("capacity", 1..=MAX_BLOCKED).and_then(|at| at.value.try_into().ok());
    let network = |at: At<String>| {
        let network = Network::parse(&at.value);
        network.map_err(|why| section.tell(at.fault(format!("wrong network {:?}: {why}", at.value)))).ok()
    };
    let limits = BlacklistLimits {
        failed: number("failed", u32::MAX, usual.failed),
        foreign: number("foreign", u32::MAX, usual.foreign),
        window_s: duration("window", usual.window_s),
        blocked_s: duration("blocked", usual.blocked_s),
        prefix_v4: prefix("prefix_ipv4", 32, usual.prefix_v4),
        prefix_v6: prefix("prefix_ipv6", 128, usual.prefix_v6),
        capacity: capacity.unwrap_or(usual.capacity),
        exempt: section.strings("exempt").into_iter().filter_map(network).collect(),
    };
    let [table, v4, v6] = ["nft_table", "nft_ipv4", "nft_ipv6"].map(|key| section.string(key));
    let kernel = match (&table, &v4, &v6) {
        (None, None, None) => None,
        (Some(table), Some(v4), Some(v6)) => match NftSets::new(&table.value, &v4.value, &v6.value) {
            Ok(sets) => Some(sets),
            Err(error) => {
                section.tell(table.fault(error));
                return None;
            }
        },
        _ => {
            section
                .tell(section.here().fault("give all of nft_table, nft_ipv4 and nft_ipv6, or none of them"));
            return None;
        }
    };
    Some(BlacklistSettings { limits, kernel })
}

/// Reads a profile. Faults are reported, and values with faults left out.
pub(super) fn profile(name: String, section: &Section<'_, '_>) -> At<PolicyProfile> {
    section.expect(PROFILE, |_| false);
    let rank = section.integer("rank", i64::from(i32::MIN)..=i64::from(i32::MAX));
    if rank.is_none() && !section.keys().any(|key| key == "rank") {
        section.tell(section.here().fault("no rank; give an integer, higher for a stronger profile"));
    }
    let versions = section.strings("versions");
    for version in versions.iter().filter(|version| !["1.2", "1.3"].contains(&version.value.as_str())) {
        section.tell(version.fault(format!("unknown version {:?}; use 1.2, 1.3", version.value)));
    }
    let speaks = |version: &str| versions.iter().any(|at| at.value == version);
    let (has_12, has_13) = (speaks("1.2"), versions.is_empty() || speaks("1.3"));
    let suites = suites(section, has_12, has_13);
    let groups = section.names("groups", &profile::groups(), NamedGroup::from_name);
    let schemes = profile::signature_schemes();
    let schemes = section.names("signature_schemes", &schemes, SignatureScheme::from_name);
    let client = section.choice("client", DEMANDS).map(|at| at.value).unwrap_or_default();
    if !client_accepts_psk(client) {
        for suite in suites.iter().filter(|suite| profile::is_psk_suite(suite.value)) {
            section.tell(suite.fault(format!(
                "{} needs no certificate of the client; remove it, or set client = \"any\"",
                suite.value
            )));
        }
    }
    let certificates = section.strings("certificates");
    if let Some(first) = certificates.first().filter(|_| client == profile::Demand::Psk) {
        // TLS 1.3 would serve clients without a key by the certificate.
        section.tell(first.fault("client = \"psk\" needs no certificate; remove it, or set client = \"any\""));
    }
    let lifetime = |key| section.duration(key).map(|at| at.value);
    section.here().map(|()| PolicyProfile {
        name,
        rank: rank.and_then(|rank| rank.value.try_into().ok()).unwrap_or(i32::MAX),
        has_12,
        has_13,
        cipher_suites: values(suites),
        groups: values(groups),
        signature_schemes: values(schemes),
        certificates: values(certificates),
        changes_certificate: section.boolean("change_certificate").is_some_and(|at| at.value),
        keeps_details: false,
        client,
        session_lifetime_s: lifetime("session_lifetime"),
        cache_lifetime_s: lifetime("cache_lifetime"),
        address_lifetime_s: lifetime("address_lifetime").unwrap_or(0),
    })
}

const fn client_accepts_psk(client: profile::Demand) -> bool {
    !matches!(client, profile::Demand::Certificate)
}

/// Reads the cipher suites, which must belong to the versions and leave none of them without a suite.
fn suites(section: &Section<'_, '_>, has_12: bool, has_13: bool) -> Vec<At<CipherSuite>> {
    let (of_13, of_12) = profile::suites();
    let known = [&of_13[..], &of_12].concat();
    let suites = section.names("cipher_suites", &known, CipherSuite::from_name);
    for suite in &suites {
        let (version, is_on) = if of_13.contains(&suite.value) { ("1.3", has_13) } else { ("1.2", has_12) };
        if !is_on {
            let what = format!("{} needs version {version}; add it to versions", suite.value);
            section.tell(suite.fault(what));
        }
    }
    if let Some(first) = suites.first() {
        for (version, is_on, known) in [("1.3", has_13, &of_13), ("1.2", has_12, &of_12)] {
            if is_on && !suites.iter().any(|suite| known.contains(&suite.value)) {
                section.tell(first.fault(format!("no suite for version {version}; add one")));
            }
        }
    }
    suites
}

/// Reads a rule. `None` if it has a fault without which it cannot be checked.
pub(super) fn rule(section: &Section<'_, '_>) -> Option<DraftRule> {
    section.expect(RULE, |_| false);
    let conditions = section.section("when").map_or_else(Vec::new, |when| {
        let known = ATTRIBUTES.iter().map(|(name, _)| *name).chain(["claim"]).chain(HINTS.iter().copied());
        when.expect(&known.collect::<Vec<_>>(), |_| false);
        [identity(&when), hints(&when)].concat()
    });
    let name = section.string("name").map(|at| at.value);
    target(section, name, conditions)
}

/// Reads an entry of the client table: exact values of attributes, and a profile.
pub(super) fn client(section: &Section<'_, '_>) -> Option<DraftRule> {
    let known: Vec<&str> =
        ATTRIBUTES.iter().map(|(name, _)| *name).chain(["claim", "profile", "refuse", "renegotiate"]).collect();
    section.expect(&known, |_| false);
    let conditions = identity(section);
    if conditions.is_empty() {
        section.tell(section.here().fault("no attribute of the client; give one, such as dns or psk"));
        return None;
    }
    for condition in &conditions {
        let Test::Attribute(_, patterns) = &condition.value.test else { continue };
        if patterns.len() != 1 || patterns.iter().any(|pattern| pattern.exact().is_none()) {
            let what = "a client has one exact value here; write a [[rule]] for patterns and lists";
            section.tell(condition.fault(what));
        }
    }
    target(section, None, conditions)
}

fn target(
    section: &Section<'_, '_>,
    name: Option<String>,
    conditions: Vec<At<Condition>>,
) -> Option<DraftRule> {
    let (profile, refuse) = (section.string("profile"), section.boolean("refuse"));
    let refuse = refuse.is_some_and(|at| at.value);
    if profile.is_some() == refuse {
        let has_fault = section.keys().any(|key| key == "profile") && profile.is_none();
        if !has_fault {
            section.tell(section.here().fault("give either profile or refuse = true"));
        }
        return None;
    }
    let renegotiate = section.boolean("renegotiate");
    if let Some(at) = renegotiate.as_ref().filter(|_| profile.is_none()) {
        section.tell(at.fault("clients that are refused do not renegotiate; remove it"));
    }
    let renegotiates = renegotiate.is_none_or(|at| at.value);
    Some(DraftRule { at: section.here(), name, conditions, profile, renegotiates })
}

/// The conditions on the client's identity.
fn identity(section: &Section<'_, '_>) -> Vec<At<Condition>> {
    let mut conditions = Vec::new();
    let mut add = |table: &Section<'_, '_>, key: &str, attribute: Attribute| {
        let values = table.strings(key);
        if let Some(first) = values.first() {
            let (place, key) = (first.place.clone(), first.key.clone());
            let patterns = patterns(table, values, &attribute);
            conditions.push(At {
                value: Condition { test: Test::Attribute(attribute, patterns) },
                place,
                key,
            });
        }
    };
    for (key, attribute) in ATTRIBUTES {
        add(section, key, attribute.clone());
    }
    if section.keys().any(|key| key == "claim")
        && let Some(claims) = section.section("claim")
    {
        for name in claims.keys() {
            add(&claims, name, Attribute::Claim(name.to_owned()));
        }
    }
    conditions
}

fn patterns(section: &Section<'_, '_>, values: Vec<At<String>>, attribute: &Attribute) -> Vec<Pattern> {
    too_many(section, &values);
    let mut patterns = Vec::new();
    for at in values {
        let checked = checked(&at.value, attribute);
        let pattern = checked.and_then(|text| {
            let pattern = Pattern::parse(&text, attribute.separator());
            pattern.ok_or_else(|| format!("give 1 to {MAX_PATTERN} characters"))
        });
        match pattern {
            Ok(pattern) => patterns.push(pattern),
            Err(fault) => section.tell(at.fault(format!("wrong value {:?}; {fault}", at.value))),
        }
    }
    patterns
}

/// A value in the form in which clients have it.
///
/// # Errors
/// No client can have the value; what is allowed.
pub(super) fn checked(text: &str, attribute: &Attribute) -> Result<String, String> {
    let is_digest = text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
    match attribute {
        Attribute::Kind if !["x509", "raw_key", "psk", "other"].contains(&text) => {
            Err("use x509, raw_key, psk, other".to_owned())
        }
        Attribute::Fingerprint | Attribute::Key if !is_digest => {
            Err("give a SHA-256 in hexadecimal, 64 digits".to_owned())
        }
        Attribute::Dns | Attribute::Fingerprint | Attribute::Key => Ok(text.to_ascii_lowercase()),
        _ => Ok(text.to_owned()),
    }
}

/// The conditions on the validity of the identity, the ClientHello and the address.
fn hints(when: &Section<'_, '_>) -> Vec<At<Condition>> {
    let mut conditions = Vec::new();
    let seconds = |key, test: fn(u64) -> Test| {
        when.duration(key).map(|at| at.map(|seconds| Condition { test: test(seconds.into()) }))
    };
    conditions.extend(seconds("valid_at_least", Test::ValidAtLeast));
    conditions.extend(seconds("valid_at_most", Test::ValidAtMost));
    let names = when.strings("sni");
    too_many(when, &names);
    conditions.extend(listed(
        names,
        Test::ServerName,
        |at| {
            let pattern = Pattern::parse(&at.value.to_ascii_lowercase(), Some('.'));
            pattern.ok_or_else(|| at.fault(format!("give 1 to {MAX_PATTERN} characters")))
        },
        when,
    ));
    conditions.extend(listed(
        when.strings("alpn"),
        Test::Alpn,
        |at| match at.value.len() {
            1..=255 => Ok(at.value.clone()),
            _ => Err(at.fault("a protocol's name has 1 to 255 bytes")),
        },
        when,
    ));
    let prefers = when.choice("prefers", &[("aes", Cipher::Aes), ("chacha20", Cipher::ChaCha20)]);
    conditions.extend(prefers.map(|at| at.map(|cipher| Condition { test: Test::Prefers(cipher) })));
    let suites = when.names("offers_cipher_suite", CipherSuite::ALL, CipherSuite::from_name);
    conditions.extend(whole(suites, Test::Suites));
    let groups = when.names("offers_group", NamedGroup::ALL, NamedGroup::from_name);
    conditions.extend(whole(groups, Test::Groups));
    let schemes = when.names("offers_signature_scheme", SignatureScheme::ALL, SignatureScheme::from_name);
    conditions.extend(whole(schemes, Test::SignatureSchemes));
    let newest = when.choice("newest_version", &[("1.2", false), ("1.3", true)]);
    conditions.extend(newest.map(|at| at.map(|is_13| Condition { test: Test::Newest13(is_13) })));
    let networks = when.strings("address");
    too_many(when, &networks);
    conditions.extend(listed(
        networks,
        Test::Addresses,
        |at| {
            let network = Network::parse(&at.value);
            network
                .map_err(|why| at.fault(format!("wrong network {:?}: {why}; such as 192.0.2.0/24", at.value)))
        },
        when,
    ));
    conditions
}

fn too_many(section: &Section<'_, '_>, values: &[At<String>]) {
    if let Some(at) = values.get(MAX_VALUES) {
        section.tell(at.fault(format!("more than {MAX_VALUES} values; write several rules, or [[client]]s")));
    }
}

/// A condition with the values that `of` accepts; the others are reported.
fn listed<T>(
    values: Vec<At<String>>,
    test: fn(Vec<T>) -> Test,
    of: impl Fn(&At<String>) -> Result<T, Fault>,
    section: &Section<'_, '_>,
) -> Option<At<Condition>> {
    let first = values.first()?;
    let (place, key) = (first.place.clone(), first.key.clone());
    let accepted = values.iter().filter_map(|at| of(at).map_err(|fault| section.tell(fault)).ok()).collect();
    Some(At { value: Condition { test: test(accepted) }, place, key })
}

/// A condition with all of these values; `None` without any.
fn whole<T>(items: Vec<At<T>>, test: fn(Vec<T>) -> Test) -> Option<At<Condition>> {
    let first = items.first()?;
    let (place, key) = (first.place.clone(), first.key.clone());
    Some(At { value: Condition { test: test(values(items)) }, place, key })
}

fn values<T>(items: Vec<At<T>>) -> Vec<T> {
    items.into_iter().map(|at| at.value).collect()
}
