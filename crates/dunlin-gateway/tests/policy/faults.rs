//! Faults of policies: all at once, each with file, line, key and the allowed values.

use dunlin_gateway::policy;

/// The faults of this text.
fn faults(text: &str) -> Vec<String> {
    let faults = policy::parse("p.toml", text).expect_err("a policy with faults");
    faults.iter().map(ToString::to_string).collect()
}

/// The only fault of this text.
fn fault(text: &str) -> String {
    let faults = faults(text);
    assert_eq!(faults.len(), 1, "{faults:?}");
    faults.into_iter().next().unwrap()
}

const PROFILES: &str = r#"[profile.strong]
rank = 100
[profile.open]
rank = 20
[profile.certificate]
rank = 20
client = "certificate"
[profile.psk]
rank = 20
client = "psk"
"#;

/// The only fault of a rule below the profiles; the rule's first line is 11.
fn rule_fault(rule: &str) -> String {
    fault(&format!("{PROFILES}[[rule]]\n{rule}"))
}

#[test]
fn reports_all_faults_at_once_with_file_line_key_and_what_is_allowed() {
    let text = r#"flor = 10
[profile.strong]
rank = "high"
versions = ["1.1"]
groups = ["x25519", "x25519", "brainpool"]
client = "maybe"
session_lifetime = "1w"
[[rule]]
profile = "strnog"
when.issuer = ""
when.address = "10.0.0.1/8"
when.fingerprint = "ab"
[[rule]]
when.sni = 1
"#;
    let all = faults(text);
    let expected = [
        "p.toml:1: flor: unknown key; allowed here: floor, default, renegotiation, blacklist, profile, client or rule",
        "p.toml:3: profile.strong.rank: \"high\" is not an integer from -2147483648 to 2147483647; write a higher one",
        "p.toml:4: profile.strong.versions[0]: unknown version \"1.1\"; write \"1.2\" or \"1.3\"",
        "p.toml:5: profile.strong.groups[1]: x25519 twice; remove one of the two",
        "p.toml:5: profile.strong.groups[2]: unknown name \"brainpool\"; write x25519, secp256r1",
        "p.toml:6: profile.strong.client: \"maybe\" is none of the allowed words; write \"none\", \"request\", \"certificate\", \
         \"psk\" or \"any\"",
        "p.toml:7: profile.strong.session_lifetime: \"1w\" is not a time span of at most 136 years; write a number of seconds",
        "p.toml:9: rule[0].profile: no profile \"strnog\"; use strong",
        "p.toml:10: rule[0].when.issuer: wrong value \"\"; give 1 to 256 characters",
        "p.toml:11: rule[0].when.address: wrong value \"10.0.0.1/8\"; bits behind the prefix; write 10.0.0.0/8",
        "p.toml:12: rule[0].when.fingerprint: wrong value \"ab\"; give a SHA-256 in hexadecimal, 64 digits",
        "p.toml:13: rule[1]: a rule has either a profile or refuse = true; write one of them",
        "p.toml:14: rule[1].when.sni: 1 is not a text; write it in quotation marks",
    ];
    for expected in expected {
        assert!(all.iter().any(|fault| fault.starts_with(expected)), "{expected}\n{all:#?}");
    }
    assert_eq!(all.len(), expected.len(), "{all:#?}");
}

#[test]
fn an_unknown_default_and_a_syntax_error_hide_no_fault_of_a_rule() {
    let all = faults(
        "default = \"c\"\nfloor =\n[profile.a]\nrank = 1\n[[rule]]\nwhen.psk = \"x\"\nprofile = \"b\"\n",
    );
    let expected =
        ["p.toml:1: default: no profile \"c\"", "p.toml:2: ", "p.toml:7: rule[0].profile: no profile \"b\""];
    assert_eq!(all.len(), expected.len(), "{all:#?}");
    for (fault, expected) in all.iter().zip(expected) {
        assert!(fault.starts_with(expected), "{fault}");
    }
}

#[test]
fn reports_the_line_of_a_syntax_error() {
    let fault = fault("[profile.strong]\nrank = \n");
    assert!(fault.starts_with("p.toml:2: "), "{fault}");
}

#[test]
fn refuses_a_policy_without_profiles() {
    assert_eq!(fault("floor = 1"), "p.toml:1: profile: 0 profiles; write 1 to 64, each as [profile.NAME]");
}

#[test]
fn refuses_profiles_below_the_floor() {
    assert_eq!(
        fault("floor = 10\n[profile.a]\nrank = 20\n[profile.b]\nrank = 9"),
        "p.toml:4: profile.b: rank 9 is below the floor, 10 (p.toml:1); raise the rank, or remove the profile"
    );
}

#[test]
fn demands_a_default_if_the_strongest_profile_is_not_unique() {
    let text = "[profile.a]\nrank = 20\n[profile.b]\nrank = 20";
    assert!(fault(text).starts_with("p.toml:1: default: a and b both have the highest rank; name "));
    assert!(policy::parse("p.toml", &format!("default = \"b\"\n{text}")).is_ok());
    assert!(
        fault(&format!("default = \"c\"\n{text}"))
            .starts_with("p.toml:1: default: no profile \"c\"; use a, b")
    );
}

#[test]
fn refuses_rules_that_lower_the_rank_by_an_offer() {
    for (condition, key) in [
        ("sni = \"low.example\"", "sni"),
        ("alpn = \"mqtt\"", "alpn"),
        ("prefers = \"chacha20\"", "prefers"),
        ("offers_cipher_suite = \"TLS_CHACHA20_POLY1305_SHA256\"", "offers_cipher_suite"),
        ("offers_group = \"x25519\"", "offers_group"),
        ("offers_signature_scheme = \"ed25519\"", "offers_signature_scheme"),
        ("newest_version = \"1.2\"", "newest_version"),
    ] {
        let fault = rule_fault(&format!("profile = \"certificate\"\nwhen.{condition}"));
        assert_eq!(
            fault,
            format!(
                "p.toml:13: rule[0].when.{key}: anyone can offer this, and would get profile certificate (rank 20), below \
                 the default, strong (rank 100); add a condition on the client's identity, or use a profile of at least \
                 that rank"
            )
        );
    }
}

#[test]
fn refuses_an_offer_that_lowers_the_rank_of_a_known_client() {
    let rule = "profile = \"certificate\"\nwhen.issuer = \"CN=A\"\nwhen.prefers = \"chacha20\"\n";
    let fault = rule_fault(rule);
    assert!(
        fault.starts_with(
            "p.toml:14: rule[0].when.prefers: this offer would lower the rank, since without it no rule"
        ),
        "{fault}"
    );
    // With a rule for the same clients without the offer, nothing is lowered by it.
    let same = "[[rule]]\nprofile = \"certificate\"\nwhen.issuer = \"CN=A\"\n";
    assert!(policy::parse("p.toml", &format!("{PROFILES}[[rule]]\n{rule}{same}")).is_ok());
}

#[test]
fn refuses_rules_that_lower_the_rank_by_an_address_without_a_certificate() {
    for profile in ["open", "psk"] {
        let fault = rule_fault(&format!("profile = \"{profile}\"\nwhen.address = \"10.0.0.0/8\""));
        let expected = format!(
            "p.toml:13: rule[0].when.address: an address is no proof, and would lead to profile {profile} (rank 20), below the \
             default, strong (rank 100); set profile.{profile}.client = \"certificate\""
        );
        assert_eq!(fault, expected);
    }
    let alone = rule_fault("profile = \"certificate\"\nwhen.address = \"10.0.0.0/8\"");
    assert!(alone.contains("no rule by identity alone leads to a profile of rank 20 or less"), "{alone}");
}

#[test]
fn refuses_rules_that_lower_the_rank_by_an_identity_that_is_not_proven() {
    let fault = rule_fault("profile = \"open\"\nwhen.issuer = \"CN=A\"");
    assert!(
        fault.starts_with("p.toml:12: rule[0].profile: the handshake would not prove the client's identity"),
        "{fault}"
    );
    let everyone = rule_fault("profile = \"certificate\"");
    assert!(
        everyone.starts_with("p.toml:11: rule[0]: the rule has no condition on the client's identity"),
        "{everyone}"
    );
    let client = format!("{PROFILES}[[client]]\nprofile = \"open\"\npsk = \"a\"");
    assert!(self::fault(&client).starts_with("p.toml:12: client[0].profile: the handshake would not prove"));
}

#[test]
fn refuses_profiles_that_choose_version_1_2_for_clients_of_1_3() {
    let text = "[profile.new]\nrank = 2\n[profile.old]\nrank = 1\nversions = [\"1.2\"]";
    assert_eq!(
        fault(text),
        "p.toml:3: profile.old: it lacks version 1.3, which profile new has, and would choose 1.2 for clients that offer \
         both; add 1.3 to versions"
    );
    assert!(policy::parse("p.toml", "[profile.old]\nrank = 1\nversions = [\"1.2\"]").is_ok());
}

#[test]
fn refuses_certificates_beside_a_demand_for_a_key() {
    let text = "[profile.meter]\nrank = 1\nclient = \"psk\"\ncertificates = [\"rsa\", \"ec\"]";
    assert_eq!(
        fault(text),
        "p.toml:4: profile.meter.certificates[0]: client = \"psk\" needs no certificate; remove it, or set client = \"any\""
    );
    assert!(policy::parse("p.toml", &text.replace("psk", "any")).is_ok());
}

/// Otherwise a policy without faults would fail when the gateway makes the engine's configurations.
#[test]
fn refuses_what_the_engine_refuses() {
    let text = |more: &str| format!("[profile.a]\nrank = 1\nversions = [\"1.2\", \"1.3\"]\n{more}");
    let curve = fault(&text("groups = \"MLKEM768\""));
    assert!(curve.starts_with("p.toml:1: profile.a: TLS_ECDHE_"), "{curve}");
    assert!(curve.contains("needs a group that is a curve; change the parameters"), "{curve}");
    let scheme = fault(&text("client = \"request\"\nsignature_schemes = \"rsa_pkcs1_sha256\""));
    assert!(scheme.contains("verifies no signature scheme of handshakes; change"), "{scheme}");
    let policy = policy::parse("p.toml", &text("signature_schemes = \"ecdsa_secp521r1_sha512\"")).unwrap();
    let provider = std::sync::Arc::new(dunlin_awslc::provider());
    let trust = dunlin::Trust { x509: None, raw_key: None };
    policy.default_profile().build(&provider, vec![], trust).unwrap();
}

#[test]
fn refuses_rules_that_no_client_reaches() {
    let fault = rule_fault("profile = \"strong\"\n[[rule]]\nprofile = \"strong\"\nwhen.dns = \"a\"");
    assert_eq!(
        fault,
        "p.toml:13: rule[1]: never reached, since rule rule[0] (p.toml:11) has no condition; move it before that rule"
    );
}

#[test]
fn refuses_suites_of_other_versions_and_suites_without_the_certificate_that_is_demanded() {
    let text = "[profile.a]\nrank = 1\ncipher_suites = [\"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256\"]";
    let all = faults(text);
    assert!(
        all[0].contains("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 needs version 1.2; add it to versions"),
        "{all:?}"
    );
    assert!(all[1].contains("no suite for version 1.3; add one"), "{all:?}");
    let text = "[profile.a]\nrank = 1\nversions = \"1.2\"\nclient = \"certificate\"\n\
                cipher_suites = \"TLS_ECDHE_PSK_WITH_AES_128_GCM_SHA256\"";
    assert!(fault(text).contains("needs no certificate of the client"));
}

#[test]
fn refuses_patterns_in_the_client_table() {
    let client = |lines: &str| fault(&format!("{PROFILES}[[client]]\nprofile = \"psk\"\n{lines}"));
    assert!(
        client("psk = \"a*\"").starts_with("p.toml:13: client[0].psk: a client has one exact value here")
    );
    assert!(client("psk = [\"a\", \"b\"]").contains("one exact value"));
    assert!(client("").contains("no attribute of the client"));
    assert!(client("psk = \"a\"\nsni = \"b\"").starts_with("p.toml:14: client[0].sni: unknown key"));
}

#[test]
fn refuses_to_renegotiate_only_in_rules_with_a_profile() {
    let fault = rule_fault("refuse = true\nrenegotiate = false\nwhen.dns = \"a\"");
    assert_eq!(
        fault,
        "p.toml:13: rule[0].renegotiate: clients that are refused do not renegotiate; remove it"
    );
}

#[test]
fn reads_the_limits_of_the_blacklist() {
    let text = |lines: &str| format!("[profile.a]\nrank = 1\n[blacklist]\n{lines}");
    let policy =
        policy::parse("p.toml", &text("failed = 7\nblocked = \"1h\"\nexempt = \"10.0.0.0/8\"")).unwrap();
    let limits = &policy.blacklist().unwrap().limits;
    assert_eq!((limits.failed, limits.foreign, limits.blocked_s, limits.exempt.len()), (7, 5, 3600, 1));
    assert!(policy::parse("p.toml", &text("nft_table = \"t\"\nnft_ipv4 = \"a\"\nnft_ipv6 = \"b\"")).is_ok());
    let sets = fault(&text("nft_table = \"t\""));
    assert_eq!(
        sets,
        "p.toml:3: blacklist: some of nft_table, nft_ipv4 and nft_ipv6 are missing; write all of them, or none"
    );
    let name = fault(&text("nft_table = \"t;\"\nnft_ipv4 = \"a\"\nnft_ipv6 = \"b\""));
    assert!(name.starts_with("p.toml:4: blacklist.nft_table: nftables: wrong name \"t;\""), "{name}");
    assert!(fault(&text("prefix_ipv4 = 33")).contains("33 is not an integer from 1 to 32"));
    assert!(fault(&text("exempt = \"x\"")).contains("not an IP address"));
}

/// The lines of a large file are counted once, not again for each value.
#[test]
fn names_the_line_of_a_fault_behind_many_clients() {
    use std::fmt::Write;
    let mut text = String::from("[profile.a]\nrank = 1\n");
    for i in 0..20_000 {
        write!(text, "[[client]]\npsk = \"client-{i}\"\nprofile = \"a\"\n").unwrap();
    }
    assert_eq!(policy::parse("p.toml", &text).unwrap().rules().len(), 20_000);
    text.push_str("[[client]]\npsk = 1\nprofile = \"a\"\n");
    assert!(faults(&text)[0].starts_with("p.toml:60003: client[20000]: no attribute of the client"));
}

#[test]
fn names_the_ipv4_network_behind_a_mapped_one() {
    let network = |text: &str| rule_fault(&format!("refuse = true\nwhen.address = \"{text}\""));
    assert!(network("::ffff:10.0.0.0/104").ends_with("an IPv4 network; write 10.0.0.0/8"));
    assert!(network("::ffff:10.0.0.0/90").ends_with("a mapped IPv4 address has 96 to 128 bits"));
}
