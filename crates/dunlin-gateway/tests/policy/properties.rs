//! Random policies against random clients: no sequence of hints, forged addresses, reloads and renegotiations
//! gives a client a profile below the floor, a weaker profile than its proven identity demands, or the
//! treatment of an identity that it did not prove.
//!
//! The expected ranks come from [`Plan`], a model of the rules that knows identities alone.

use std::fmt::Write;
use std::net::IpAddr;

use dunlin::wire::{CipherSuite, NamedGroup, ProtocolVersion};
use dunlin_gateway::policy::{
    self, Attribute, Claim, Client, Cookie, Decision, Demand, Finished, Hello, Hints, Policy, PolicyProfile,
    Source, Turn, Verdict,
};
use fastrand::Rng;

/// How many random policies a run makes. `DUNLIN_SEEDS` sets another number, for long runs.
fn runs() -> u64 {
    let set = std::env::var("DUNLIN_SEEDS").ok();
    set.map_or(1500, |runs| runs.parse().expect("DUNLIN_SEEDS is a number"))
}

/// The attributes of the model, with their possible values.
const ATTRIBUTES: [(&str, [&str; 3]); 4] = [
    ("issuer", ["CN=A", "CN=B", "CN=C"]),
    ("dns", ["x.example", "y.example", "x.y.example"]),
    ("psk", ["p", "q", "r"]),
    ("name", ["n", "m", "o"]),
];
const ADDRESSES: [&str; 3] = ["10.0.0.1", "10.1.0.1", "192.0.2.1"];
const SERVER_NAMES: [&str; 3] = ["a.example", "b.example", "c.example"];

/// A rule of the model.
struct PlannedRule {
    /// Values by attribute.
    identity: Vec<(&'static str, &'static str)>,
    has_hint: bool,
    /// The rank to which it leads; above all ranks if it refuses.
    rank: i64,
}

/// A random policy: its text, and the model of it.
struct Plan {
    text: String,
    rules: Vec<PlannedRule>,
    default: i64,
    floor: i64,
}

impl Plan {
    fn random(rng: &mut Rng) -> Self {
        let floor = rng.i64(0..15);
        let demands = ["none", "request", "certificate", "psk", "any"];
        let versions = ["[\"1.3\"]", "[\"1.2\", \"1.3\"]", "[\"1.2\", \"1.3\"]", "[\"1.2\"]"];
        let turns = ["none", "up", "down", "both"];
        let mut text = format!("floor = {floor}\nrenegotiation = \"{}\"\n", rng.choice(turns).unwrap());
        let ranks: Vec<i64> = (0..rng.usize(1..5)).map(|_| rng.i64(10..60)).collect();
        let default =
            if rng.bool() { ranks.iter().copied().max().unwrap() } else { *rng.choice(&ranks).unwrap() };
        let named = ranks.iter().position(|rank| *rank == default).unwrap();
        writeln!(text, "default = \"p{named}\"").unwrap();
        for (i, rank) in ranks.iter().enumerate() {
            let demand = rng.choice(demands).unwrap();
            let versions = rng.choice(versions).unwrap();
            writeln!(text, "[profile.p{i}]\nrank = {rank}\nclient = \"{demand}\"\nversions = {versions}")
                .unwrap();
            if rng.u8(..4) == 0 {
                writeln!(text, "groups = \"x25519\"").unwrap();
            }
        }
        let mut rules = Vec::new();
        let mut clients = Vec::new();
        for _ in 0..rng.usize(0..7) {
            let is_client = rng.u8(..4) == 0;
            let mut lines = String::new();
            let mut identity = Vec::new();
            let when = if is_client { "" } else { "when." };
            for (attribute, values) in ATTRIBUTES {
                if rng.u8(..3) == 0 {
                    let value = *rng.choice(&values).unwrap();
                    writeln!(lines, "{when}{attribute} = \"{value}\"").unwrap();
                    identity.push((attribute, value));
                }
            }
            let has_hint = !is_client && rng.u8(..3) == 0;
            if has_hint {
                let condition = match rng.u8(..4) {
                    0 => "address = \"10.0.0.0/8\"",
                    1 => "sni = \"a.example\"",
                    2 => "prefers = \"chacha20\"",
                    _ => "newest_version = \"1.2\"",
                };
                writeln!(lines, "when.{condition}").unwrap();
            }
            let rank = match rng.u8(..8) {
                0 => {
                    lines.push_str("refuse = true\n");
                    i64::MAX
                }
                _ => {
                    let profile = rng.usize(..ranks.len());
                    writeln!(lines, "profile = \"p{profile}\"").unwrap();
                    ranks[profile]
                }
            };
            let rule = PlannedRule { identity, has_hint, rank };
            if is_client {
                write!(text, "[[client]]\n{lines}").unwrap();
                clients.push(rule);
            } else {
                write!(text, "[[rule]]\n{lines}").unwrap();
                rules.push(rule);
            }
        }
        clients.extend(rules);
        Self { text, rules: clients, default, floor }
    }

    /// The rank that this identity demands: the rank of the first rule by identity alone that holds.
    fn demanded(&self, client: Option<&Client>) -> i64 {
        let holds = |rule: &&PlannedRule| {
            let has = |(attribute, value): &(&str, &str)| {
                let attribute = Attribute::from_key(attribute).unwrap();
                client.is_some_and(|client| client.values(&attribute).any(|known| known == *value))
            };
            !rule.has_hint && rule.identity.iter().all(has)
        };
        let rank = self.rules.iter().find(holds).map_or(self.default, |rule| rule.rank);
        if client.is_none() { rank.max(self.default) } else { rank }
    }
}

/// A random policy that is accepted, with its model. Counts those that are refused.
fn accepted(rng: &mut Rng, refused: &mut u64) -> (Plan, Policy) {
    loop {
        let plan = Plan::random(rng);
        match policy::parse("p.toml", &plan.text) {
            Ok(policy) => return (plan, policy),
            Err(_) => *refused += 1,
        }
    }
}

fn client(rng: &mut Rng) -> Client {
    let mut client = Client::of_kind(rng.choice(["x509", "psk"]).unwrap());
    for (attribute, values) in ATTRIBUTES {
        if rng.bool() {
            client.add(Attribute::from_key(attribute).unwrap(), (*rng.choice(&values).unwrap()).to_owned());
        }
    }
    client
}

/// The client with some attributes lost, as after a resumption.
fn forgetful(rng: &mut Rng, client: &Client) -> Client {
    let mut kept = Client::default();
    let lost: Vec<Attribute> = ATTRIBUTES
        .iter()
        .filter(|_| rng.bool())
        .map(|(attribute, _)| Attribute::from_key(attribute).unwrap())
        .collect();
    for (attribute, value) in client.facts() {
        if !lost.contains(attribute) {
            kept.add(attribute.clone(), value.clone());
        }
    }
    lost.into_iter().for_each(|attribute| kept.set_unknown(attribute));
    kept
}

fn hints(rng: &mut Rng) -> Hints {
    let suites = [CipherSuite::TLS_CHACHA20_POLY1305_SHA256, CipherSuite::TLS_AES_128_GCM_SHA256];
    let versions = [ProtocolVersion::TLS1_2, ProtocolVersion::TLS1_3];
    let hello = Hello {
        server_name: rng.bool().then(|| (*rng.choice(&SERVER_NAMES).unwrap()).to_owned()),
        cipher_suites: if rng.bool() { suites.to_vec() } else { suites.iter().rev().copied().collect() },
        versions: versions[..rng.usize(1..3)].to_vec(),
        ..Hello::default()
    };
    let sources = [Source::Session, Source::Psk, Source::Cache, Source::Redirect, Source::Address];
    let claims = (0..rng.usize(..3))
        .map(|_| Claim { source: *rng.choice(&sources).unwrap(), client: client(rng) })
        .collect();
    let cookie = match rng.u8(..6) {
        0 => Cookie::Pending,
        1 => Cookie::Returned { suite: None, group: rng.choice([NamedGroup::X25519, NamedGroup::SECP256R1]) },
        _ => Cookie::None,
    };
    let address = rng.bool().then(|| rng.choice(&ADDRESSES).unwrap().parse::<IpAddr>().unwrap());
    Hints { hello, address, claims, cookie, turn: Turn::default() }
}

/// Above all ranks if it refuses the client.
fn rank(decision: &Decision) -> i64 {
    if decision.verdict == Verdict::Refuse { i64::MAX } else { decision.profile.rank.into() }
}

/// Invariants of each decision.
fn check(decision: &Decision, plan: &Plan, policy: &Policy) {
    let rank = rank(decision);
    assert!(rank >= plan.floor, "below the floor: {decision}\n{}", plan.text);
    assert_eq!(
        decision.downgrade.is_some(),
        rank < plan.default,
        "a silent downgrade: {decision}\n{}",
        plan.text
    );
    let known = policy.profiles().iter().any(|profile| profile == &decision.profile);
    assert!(known, "a profile of another policy: {decision}\n{}", plan.text);
    assert!(!decision.why.is_empty());
}

/// Invariants of the decision before the ServerHello.
fn check_before(decision: &Decision, hints: &Hints, plan: &Plan, policy: &Policy) {
    check(decision, plan, policy);
    let text = || format!("{decision}\n{hints:?}\n{}", plan.text);
    if rank(decision) >= plan.default {
        return;
    }
    // Rule 1 of docs/policy.md.
    let profile = &decision.profile;
    assert!(profile.client.authenticates(), "a weaker profile without authentication: {}", text());
    let claim = hints.claims.iter().min_by_key(|claim| claim.source);
    let is_proved =
        claim.is_some_and(|claim| matches!(claim.source, Source::Session | Source::Psk | Source::Cache));
    assert!(is_proved || profile.client == Demand::Certificate, "a weaker profile by a forgery: {}", text());
    assert_ne!(hints.cookie, Cookie::Pending, "a look-up before the cookie: {}", text());
    assert!(claim.is_some() || hints.address.is_some(), "a weaker profile by an offer: {}", text());
    if hints.cookie == Cookie::None {
        // A client always has a newest version, so a rule by it may raise the rank of either choice.
        let hello = Hello { versions: hints.hello.versions.clone(), ..Hello::default() };
        let without = policy.before(&Hints { hello, ..hints.clone() }, 0);
        assert!(rank(&without) <= rank(decision), "an offer lowers: {}", text());
    }
}

/// The invariant of a client that is served after Finished.
fn check_served(used: &PolicyProfile, decision: &Decision, client: Option<&Client>, plan: &Plan) {
    let demanded = plan.demanded(client);
    let served = i64::from(used.rank);
    assert!(served >= demanded, "rank {served} instead of {demanded}: {client:?} {decision}\n{}", plan.text);
}

/// A connection: a choice by random hints, perhaps a reload, a finished handshake, perhaps a renegotiation.
fn connect(rng: &mut Rng, first: &(Plan, Policy), second: &(Plan, Policy), served: &mut u64) {
    let hints = hints(rng);
    let chosen = first.1.before(&hints, 0);
    check_before(&chosen, &hints, &first.0, &first.1);
    if chosen.verdict == Verdict::Refuse {
        return;
    }
    let (plan, policy) = if rng.u8(..4) == 0 { second } else { first };
    // An attacker may come with any profile that the server would choose for some hint.
    let used = rng.choice(first.1.profiles()).unwrap();
    let used = if rng.bool() { &chosen.profile } else { used };
    let client = rng.bool().then(|| client(rng));
    let turn = if rng.bool() { Turn::Possible } else { Turn::Impossible };
    let is_resumed = rng.u8(..4) == 0;
    let finished = Finished { used, client: client.as_ref(), hints: &hints, is_resumed, turn };
    let decision = policy.after(&finished, 0);
    check(&decision, plan, policy);

    // The claims do not count any more.
    let unclaimed = Hints { claims: vec![], ..hints.clone() };
    assert_eq!(decision, policy.after(&Finished { hints: &unclaimed, ..finished }, 0), "{}", plan.text);
    // Forgotten attributes do not lower the rank.
    if let Some(client) = &client {
        let kept = forgetful(rng, client);
        let resumed = policy.after(&Finished { client: Some(&kept), is_resumed: true, ..finished }, 0);
        if resumed.verdict == Verdict::Serve {
            check_served(used, &resumed, Some(client), plan);
        }
    }
    match decision.verdict {
        Verdict::Refuse => {}
        Verdict::Serve => {
            *served += 1;
            assert_eq!(decision.profile.as_ref(), used.as_ref());
            check_served(used, &decision, client.as_ref(), plan);
        }
        Verdict::Renegotiate => {
            assert!(turn == Turn::Possible && !is_resumed && client.is_some(), "{decision}");
            let again = Finished { used: &decision.profile, turn: Turn::Done, ..finished };
            let again = policy.after(&again, 0);
            check(&again, plan, policy);
            assert_ne!(again.verdict, Verdict::Renegotiate, "renegotiated twice: {again}\n{}", plan.text);
            assert_eq!(again.verdict, Verdict::Serve, "renegotiated in vain: {again}\n{}", plan.text);
            check_served(&decision.profile, &again, client.as_ref(), plan);
        }
    }
}

#[test]
fn no_sequence_turns_a_policy_against_a_user() {
    let mut refused = 0;
    let mut served = 0;
    for seed in 0..runs() {
        let rng = &mut Rng::with_seed(seed);
        let first = accepted(rng, &mut refused);
        let second = accepted(rng, &mut refused);
        for _ in 0..8 {
            connect(rng, &first, &second, &mut served);
        }
    }
    // The random policies reach both: policies that are refused when loaded, and clients that are served.
    assert!(refused > runs() / 10 && served > runs(), "{refused} policies refused, {served} clients served");
}
