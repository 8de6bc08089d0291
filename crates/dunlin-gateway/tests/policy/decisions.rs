//! Decisions before the ServerHello and after Finished.

use dunlin::wire::{CipherSuite, NamedGroup, ProtocolVersion};
use dunlin_gateway::policy::{
    Attribute, Claim, Client, Cookie, Finished, Hello, Hints, Source, Turn, Verdict,
};

use crate::{claimed, policy, server_name, x509};

const POLICY: &str = r#"
floor = 10
renegotiation = "both"

[profile.top]
rank = 200
client = "request"
versions = ["1.2", "1.3"]

[profile.strong]
rank = 100
client = "request"
versions = ["1.2", "1.3"]

[profile.chacha]
rank = 100
cipher_suites = ["TLS_CHACHA20_POLY1305_SHA256"]

[profile.sensor]
rank = 20
client = "certificate"
versions = ["1.2", "1.3"]
groups = ["x25519"]

[profile.meter]
rank = 15
client = "psk"

[[client]]
dns = "special.sensors.example"
issuer = "CN=Sensors"
profile = "strong"

[[rule]]
name = "stolen"
when.dns = "stolen.*.example"
refuse = true

[[rule]]
name = "admin"
when.sni = "admin.example"
profile = "top"

[[rule]]
name = "sensors"
when.issuer = "CN=Sensors"
when.dns = ["*.sensors.example", "*.probes.example"]
profile = "sensor"

[[rule]]
name = "meters"
when.psk = "meter-*"
profile = "meter"

[[rule]]
name = "hall"
when.address = "10.0.0.0/8"
profile = "sensor"

[[rule]]
name = "phones"
when.prefers = "chacha20"
profile = "chacha"
"#;

fn text() -> String {
    format!("default = \"strong\"\n{POLICY}")
}

fn sensor() -> Client {
    x509("CN=Sensors", "a.sensors.example")
}

/// The verdict and the profile for a finished handshake under the profile `used`.
fn after(used: &str, client: Option<&Client>, hints: &Hints, turn: Turn) -> (Verdict, String) {
    let policy = policy(&text());
    let used = policy.profile(used).unwrap();
    let decision = policy.after(&Finished { used, client, hints, is_resumed: false, turn }, 0);
    (decision.verdict, decision.profile.name.clone())
}

#[test]
fn chooses_a_profile_by_hints_that_the_handshake_proves() {
    let policy = policy(&text());
    for source in [Source::Session, Source::Psk, Source::Cache, Source::Redirect, Source::Address] {
        let decision = policy.before(&claimed(source, sensor()), 0);
        assert_eq!(decision.profile.name, "sensor", "{source}");
        assert_eq!(decision.rule.as_deref(), Some("sensors"));
        assert_eq!(decision.downgrade.as_ref().unwrap().from, "strong");
        let text = decision.to_string();
        for part in [
            "profile sensor (rank 20) by rule sensors (policy.toml:",
            "issuer = \"CN=Sensors\", dns = [\"*.sensors.example\", \"*.probes.example\"]",
            &format!("claimed by {source}"),
            "downgrade from strong (rank 100)",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

#[test]
fn an_address_or_redirection_leads_to_no_weaker_profile_without_a_certificate() {
    let policy = policy(&text());
    let meter = || Client::with_psk(b"meter-1", None);
    assert_eq!(policy.before(&claimed(Source::Psk, meter()), 0).profile.name, "meter");
    for source in [Source::Redirect, Source::Address] {
        let decision = policy.before(&claimed(source, meter()), 0);
        assert_eq!((decision.profile.name.as_str(), &decision.downgrade), ("strong", &None));
        assert!(
            decision.why.contains("not rule meters to meter (rank 15), since the handshake would not prove")
        );
    }
}

#[test]
fn an_offer_only_raises_the_rank() {
    let policy = policy(&text());
    assert_eq!(policy.before(&server_name("admin.example"), 0).profile.name, "top");
    assert_eq!(policy.before(&server_name("other.example"), 0).profile.name, "strong");
    let mut hints = claimed(Source::Session, sensor());
    hints.hello.server_name = Some("admin.example".into());
    assert_eq!(policy.before(&hints, 0).profile.name, "top");
    hints.hello.server_name = Some("low.example".into());
    assert_eq!(policy.before(&hints, 0).profile.name, "sensor");
}

#[test]
fn prefers_chacha20_for_clients_without_hardware_for_aes() {
    let policy = policy(&text());
    let hello =
        |first, second| Hello { cipher_suites: vec![CipherSuite(0x0a0a), first, second], ..Hello::default() };
    let aes = CipherSuite::TLS_AES_128_GCM_SHA256;
    let chacha = CipherSuite::TLS_CHACHA20_POLY1305_SHA256;
    let chosen = |hello| policy.before(&Hints { hello, ..Hints::default() }, 0).profile.name.clone();
    assert_eq!(chosen(hello(chacha, aes)), "chacha");
    assert_eq!(chosen(hello(aes, chacha)), "strong");
}

#[test]
fn entries_of_the_client_table_come_before_the_rules() {
    let policy = policy(&text());
    let special = x509("CN=Sensors", "special.sensors.example");
    let decision = policy.before(&claimed(Source::Session, special), 0);
    assert_eq!((decision.profile.name.as_str(), decision.rule.as_deref()), ("strong", Some("client[0]")));
    assert_eq!(decision.label(), "client table");
    assert_eq!(policy.before(&claimed(Source::Session, sensor()), 0).label(), "sensors");
    assert_eq!(policy.before(&Hints::default(), 0).label(), "default");
    let other = x509("CN=Other", "special.sensors.example");
    assert_eq!(policy.before(&claimed(Source::Session, other), 0).rule, None);
}

#[test]
fn looks_nothing_up_before_the_cookie_and_keeps_what_the_retry_named() {
    let policy = policy(&text());
    let mut hints = claimed(Source::Session, sensor());
    hints.address = Some("10.0.0.1".parse().unwrap());
    hints.cookie = Cookie::Pending;
    assert_eq!(policy.before(&hints, 0).profile.name, "strong");
    let returned =
        |group| Cookie::Returned { suite: Some(CipherSuite::TLS_AES_128_GCM_SHA256), group: Some(group) };
    hints.cookie = returned(NamedGroup::X25519);
    assert_eq!(policy.before(&hints, 0).profile.name, "sensor");
    // The sensors' profile lacks this group.
    hints.cookie = returned(NamedGroup::SECP256R1);
    let decision = policy.before(&hints, 0);
    assert_eq!((decision.verdict, decision.profile.name.as_str()), (Verdict::Serve, "strong"));
    hints.cookie = returned(NamedGroup::FFDHE2048);
    assert_eq!(policy.before(&hints, 0).verdict, Verdict::Refuse);
    // After a request for a cookie alone, the client keeps its share.
    hints.cookie = Cookie::Returned { suite: Some(CipherSuite::TLS_AES_128_GCM_SHA256), group: None };
    for (share, profile) in [(NamedGroup::X25519, "sensor"), (NamedGroup::SECP256R1, "strong")] {
        hints.hello.shares = vec![share];
        let decision = policy.before(&hints, 0);
        assert_eq!((decision.verdict, decision.profile.name.as_str()), (Verdict::Serve, profile));
    }
}

#[test]
fn refuses_a_client_only_if_the_hint_proves_it() {
    let policy = policy(&text());
    let stolen = || x509("CN=Sensors", "stolen.sensors.example");
    assert_eq!(policy.before(&claimed(Source::Session, stolen()), 0).verdict, Verdict::Refuse);
    // Others may share its address.
    assert_eq!(policy.before(&claimed(Source::Address, stolen()), 0).verdict, Verdict::Serve);
    assert_eq!(after("strong", Some(&stolen()), &Hints::default(), Turn::Impossible).0, Verdict::Refuse);
}

#[test]
fn demands_the_rank_of_the_proven_identity() {
    let none = Hints::default();
    let serve = Verdict::Serve;
    let refuse = Verdict::Refuse;
    let stranger = x509("CN=Other", "b.example");
    for (used, client, verdict) in [
        ("strong", None, serve),
        ("sensor", None, refuse),
        ("strong", Some(&stranger), serve),
        ("sensor", Some(&stranger), refuse),
        ("sensor", Some(&sensor()), serve),
        ("strong", Some(&sensor()), serve),
        ("meter", Some(&sensor()), refuse),
        ("meter", Some(&Client::with_psk(b"meter-1", None)), serve),
        ("meter", Some(&Client::with_psk(b"other", None)), refuse),
    ] {
        assert_eq!(after(used, client, &none, Turn::Impossible).0, verdict, "{used} {client:?}");
    }
}

#[test]
fn an_address_does_not_lower_what_an_identity_demands() {
    let hints = Hints { address: Some("10.0.0.1".parse().unwrap()), ..Hints::default() };
    let stranger = x509("CN=Other", "b.example");
    assert_eq!(policy(&text()).before(&hints, 0).profile.name, "sensor");
    assert_eq!(after("sensor", Some(&stranger), &hints, Turn::Impossible).0, Verdict::Refuse);
    assert_eq!(after("sensor", Some(&sensor()), &hints, Turn::Impossible).0, Verdict::Serve);
}

#[test]
fn a_claim_that_the_handshake_did_not_prove_counts_no_longer() {
    let hints = claimed(Source::Address, sensor());
    let stranger = x509("CN=Other", "b.example");
    assert_eq!(after("sensor", Some(&stranger), &hints, Turn::Impossible).0, Verdict::Refuse);
    assert_eq!(after("sensor", None, &hints, Turn::Impossible).0, Verdict::Refuse);
}

#[test]
fn renegotiates_once_to_the_profile_of_the_identity() {
    let none = Hints::default();
    let down = after("strong", Some(&sensor()), &none, Turn::Possible);
    assert_eq!(down, (Verdict::Renegotiate, "sensor".into()));
    assert_eq!(after("sensor", Some(&sensor()), &none, Turn::Done), (Verdict::Serve, "sensor".into()));
    let stranger = x509("CN=Other", "b.example");
    let up = after("sensor", Some(&stranger), &none, Turn::Possible);
    assert_eq!(up, (Verdict::Renegotiate, "strong".into()));
    assert_eq!(after("sensor", Some(&stranger), &none, Turn::Done).0, Verdict::Refuse);
    // A PSK is no certificate that the second handshake could demand.
    let meter = Client::with_psk(b"meter-1", None);
    assert_eq!(after("strong", Some(&meter), &none, Turn::Possible).0, Verdict::Serve);
}

#[test]
fn renegotiates_no_resumed_session_and_only_in_the_directions_of_the_policy() {
    let none = Hints::default();
    let sensor = sensor();
    let verdict = |text: &str, is_resumed| {
        let policy = policy(text);
        let used = policy.profile("strong").unwrap();
        let finished =
            Finished { used, client: Some(&sensor), hints: &none, is_resumed, turn: Turn::Possible };
        policy.after(&finished, 0)
    };
    let resumed = verdict(&text(), true);
    assert_eq!((resumed.verdict, resumed.profile.name.as_str()), (Verdict::Serve, "strong"));
    assert_eq!(resumed.next.unwrap().name, "sensor");
    assert_eq!(verdict(&text(), false).verdict, Verdict::Renegotiate);
    assert_eq!(verdict(&text().replace("\"both\"", "\"up\""), false).verdict, Verdict::Serve);
}

#[test]
fn renegotiates_no_client_whose_rule_forbids_it() {
    let text = text().replace("name = \"sensors\"", "name = \"sensors\"\nrenegotiate = false");
    let policy = policy(&text);
    let none = Hints::default();
    let sensor = sensor();
    let after = |used| {
        let used = policy.profile(used).unwrap();
        let finished =
            Finished { used, client: Some(&sensor), hints: &none, is_resumed: false, turn: Turn::Possible };
        policy.after(&finished, 0)
    };
    let kept = after("strong");
    assert_eq!((kept.verdict, kept.profile.name.as_str()), (Verdict::Serve, "strong"));
    assert_eq!(kept.next.unwrap().name, "sensor");
    let refused = after("meter");
    assert_eq!(refused.verdict, Verdict::Refuse);
    assert!(refused.why.contains("the rule does not let its clients renegotiate"), "{}", refused.why);
}

#[test]
fn what_is_not_known_any_more_never_lowers_the_rank() {
    let policy = policy(&text());
    let mut resumed = Client::of_kind("x509");
    resumed.add(Attribute::Dns, "a.sensors.example".into());
    resumed.set_unknown(Attribute::Issuer);
    let decision = policy.before(&claimed(Source::Session, resumed.clone()), 0);
    assert_eq!(decision.profile.name, "strong");
}

#[test]
fn a_refusing_rule_that_may_hold_leads_to_a_full_handshake() {
    let policy = policy(&text());
    let mut resumed = Client::of_kind("x509");
    resumed.add(Attribute::Issuer, "CN=Sensors".into());
    resumed.set_unknown(Attribute::Dns);
    for source in [Source::Session, Source::Cache] {
        let decision = policy.before(&claimed(source, resumed.clone()), 0);
        assert_eq!((decision.verdict, decision.profile.name.as_str()), (Verdict::Serve, "strong"));
        let why = "not rule stolen to refuse, since only the client's certificate can tell";
        assert!(decision.why.contains(why), "{}", decision.why);
    }
    // Before a resumption, the same rule counts: the session is not resumed.
    let used = policy.profile("strong").unwrap();
    let hints = Hints::default();
    let finished =
        Finished { used, client: Some(&resumed), hints: &hints, is_resumed: true, turn: Turn::Impossible };
    let decision = policy.after(&finished, 0);
    assert_eq!((decision.verdict, decision.rule.as_deref()), (Verdict::Refuse, Some("stolen")));
    assert!(decision.why.contains("perhaps dns"), "{}", decision.why);
}

#[test]
fn compares_the_validity_of_the_credential() {
    let policy = policy(
        "[profile.strong]\nrank = 2\n[profile.low]\nrank = 1\nclient = \"certificate\"\n\
         [[rule]]\nprofile = \"low\"\nwhen.kind = \"x509\"\nwhen.valid_at_least = \"1d\"\n",
    );
    let mut client = x509("CN=A", "a");
    client.set_not_after_s(1_000_000);
    let chosen = |now_s| policy.before(&claimed(Source::Session, client.clone()), now_s).profile.name.clone();
    assert_eq!(chosen(1_000_000 - 86_400), "low");
    assert_eq!(chosen(1_000_000 - 86_399), "strong");
}

#[test]
fn compares_the_newest_version_that_the_client_offers() {
    let policy = policy(
        "default = \"new\"\n[profile.new]\nrank = 1\n[profile.old]\nrank = 1\nversions = [\"1.2\", \"1.3\"]\n\
         [[rule]]\nprofile = \"old\"\nwhen.newest_version = \"1.2\"\n",
    );
    let chosen = |versions: &[ProtocolVersion]| {
        let hello = Hello { versions: versions.to_vec(), ..Hello::default() };
        policy.before(&Hints { hello, ..Hints::default() }, 0).profile.name.clone()
    };
    assert_eq!(chosen(&[ProtocolVersion::TLS1_2]), "old");
    assert_eq!(chosen(&[ProtocolVersion::TLS1_3, ProtocolVersion::TLS1_2]), "new");
    assert_eq!(chosen(&[ProtocolVersion::DTLS1_3, ProtocolVersion::DTLS1_2]), "new");
}

#[test]
fn the_first_source_of_a_claim_counts() {
    let policy = policy(&text());
    let claims = vec![
        Claim { source: Source::Address, client: sensor() },
        Claim { source: Source::Psk, client: Client::with_psk(b"meter-1", None) },
    ];
    assert_eq!(policy.before(&Hints { claims, ..Hints::default() }, 0).profile.name, "meter");
}

#[test]
fn explains_every_rule_with_its_conditions() {
    let policy = policy(&text());
    let explanation = policy.explain(&Hints { turn: Turn::Possible, ..Hints::default() }, Some(&sensor()), 0);
    let text = explanation.to_string();
    for part in [
        "client: x509 dns=a.sensors.example\n",
        "  no      stolen (policy.toml:",
        "  yes     sensors (policy.toml:",
        "      yes     issuer = \"CN=Sensors\"\n",
        "before the ServerHello: profile strong (rank 100) by default, since no rule matches\n",
        "after Finished:         renegotiation to profile sensor (rank 20) by rule sensors",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn the_example_of_the_documentation_decides_as_it_says() {
    let document = include_str!("../../../../docs/policy.md");
    let example = document.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let shown = document.split("```text\n").nth(1).unwrap().split("\n```").next().unwrap();
    let sensor = x509("CN=Sensors,O=Example", "a.sensors.example");
    let decision = policy(example).before(&claimed(Source::Session, sensor), 0);
    assert_eq!(decision.to_string(), shown);
}
