//! A policy that is replaced while connections are open.

use std::fs;

use dunlin_gateway::policy::{
    Attribute, Client, Fault, Faults, Finished, Hints, LivePolicy, Reload, Source, Turn, Verdict, sqlite,
};
use rusqlite::Connection;

use crate::{claimed, policy};

const STRONG: &str = "[profile.strong]\nrank = 100\n";

#[test]
fn puts_a_valid_file_in_force_and_keeps_the_previous_policy_of_an_invalid_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.toml");
    fs::write(&path, STRONG).unwrap();
    let live = LivePolicy::open(&path).unwrap();
    assert!(matches!(live.poll(), Reload::Unchanged));

    fs::write(&path, "[profile.strong]\nrnak = 100\n").unwrap();
    let Reload::Kept(faults) = live.poll() else { panic!("an invalid policy in force") };
    assert!(faults.to_string().contains(":2: profile.strong.rnak: unknown key"), "{faults}");
    assert_eq!(live.faults(), Some(faults));
    // The fault is reported once.
    assert!(matches!(live.poll(), Reload::Unchanged));
    assert_eq!(live.current().default_profile().rank, 100);

    fs::remove_file(&path).unwrap();
    assert!(matches!(live.poll(), Reload::Kept(_)));
    assert_eq!(live.current().default_profile().rank, 100);

    fs::write(&path, "[profile.strong]\nrank = 200\n").unwrap();
    assert!(matches!(live.poll(), Reload::Replaced(_)));
    assert_eq!((live.current().default_profile().rank, live.faults()), (200, None));

    // The first content again: the stamp may be the same, the content is not.
    fs::write(&path, STRONG).unwrap();
    assert!(matches!(live.poll(), Reload::Replaced(_)));
    assert_eq!(live.current().default_profile().rank, 100);
}

#[test]
fn reports_a_file_that_cannot_be_read() {
    let faults = LivePolicy::open("/nonexistent/policy.toml").err().unwrap();
    assert!(
        faults.to_string().starts_with("/nonexistent/policy.toml: no such file; check the path"),
        "{faults}"
    );
}

#[test]
fn ends_handshakes_whose_profile_a_reload_has_changed() {
    let old = policy(STRONG);
    let new = policy("[profile.strong]\nrank = 100\ngroups = \"x25519\"\n");
    let hints = Hints::default();
    let used = &old.before(&hints, 0).profile;
    let finished = Finished { used, client: None, hints: &hints, is_resumed: false, turn: Turn::Impossible };
    assert_eq!(old.after(&finished, 0).verdict, Verdict::Serve);
    let decision = new.after(&finished, 0);
    assert_eq!(decision.verdict, Verdict::Refuse);
    assert!(decision.why.contains("the policy no longer has the profile strong (rank 100) as it was used"));
}

#[test]
fn gateways_share_a_database_and_follow_its_changes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.db");
    sqlite::create(&path).unwrap();
    assert!(sqlite::create(&path).unwrap_err().to_string().contains("the file exists"));
    let empty = LivePolicy::open(&path).err().unwrap().to_string();
    assert!(empty.contains("policy.db: profile: 0 profiles"), "{empty}");

    let admin = Connection::open(&path).unwrap();
    admin
        .execute_batch(
            "INSERT INTO setting VALUES ('policy', 'floor = 10');
             INSERT INTO profile VALUES ('strong', 'rank = 100'), ('low', 'rank = 20
client = \"psk\"');
             INSERT INTO rule VALUES (2, 'name = \"meters\"
profile = \"low\"
when.psk = \"meter-*\"');
             INSERT INTO client (psk, profile) VALUES ('meter-*', 'strong'), ('meter-2', NULL);",
        )
        .unwrap();
    let gateways = [LivePolicy::open(&path).unwrap(), LivePolicy::open(&path).unwrap()];
    let decision = |gateway: &LivePolicy, psk: &[u8]| {
        gateway.current().before(&claimed(Source::Psk, Client::with_psk(psk, None)), 0)
    };
    let chosen = |psk| gateways.each_ref().map(|gateway| decision(gateway, psk).profile.name.clone());
    assert_eq!(chosen(b"meter-1"), ["low", "low"]);
    // Values of the client table have no wildcards.
    assert_eq!(chosen(b"meter-*"), ["strong", "strong"]);
    let refused = decision(&gateways[0], b"meter-2");
    assert_eq!((refused.verdict, refused.rule.as_deref()), (Verdict::Refuse, Some("client 2")));
    assert!(gateways.iter().all(|gateway| matches!(gateway.poll(), Reload::Unchanged)));

    admin.execute("UPDATE client SET profile = 'strong', psk = 'meter-1' WHERE psk = 'meter-*'", []).unwrap();
    assert!(gateways.iter().all(|gateway| matches!(gateway.poll(), Reload::Replaced(_))));
    assert_eq!(chosen(b"meter-1"), ["strong", "strong"]);

    admin.execute("UPDATE rule SET settings = 'profile = \"high\"'", []).unwrap();
    admin.execute("INSERT INTO client (fingerprint) VALUES ('ab')", []).unwrap();
    for gateway in &gateways {
        let Reload::Kept(faults) = gateway.poll() else { panic!("an invalid policy in force") };
        let faults = faults.to_string();
        assert!(
            faults.contains("policy.db, rule 2:1: rule.profile: no profile \"high\"; use low, strong"),
            "{faults}"
        );
        assert!(
            faults.contains("policy.db, client 3: fingerprint: wrong value \"ab\"; give a SHA-256"),
            "{faults}"
        );
    }
    assert_eq!(chosen(b"meter-1"), ["strong", "strong"]);
}

#[test]
fn client_table_of_an_older_version_lacks_issuer_keys() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.db");
    sqlite::create(&path).unwrap();
    let admin = Connection::open(&path).unwrap();
    admin
        .execute_batch(
            "PRAGMA user_version = 1;
             ALTER TABLE client DROP COLUMN issuer_key;
             INSERT INTO profile VALUES ('strong', 'rank = 100'), ('low', 'rank = 20
client = \"certificate\"');
             INSERT INTO client (dns, profile) VALUES ('a.example', 'low');",
        )
        .unwrap();
    let gateway = LivePolicy::open(&path).unwrap();
    let [own, other] = ["1", "2"].map(|digit| digit.repeat(64));
    let chosen = |issuer_key: &str| {
        let mut client = Client::of_kind("x509");
        client.add(Attribute::Dns, "a.example".into());
        client.add(Attribute::IssuerKey, issuer_key.into());
        gateway.current().before(&claimed(Source::Session, client), 0).profile.name.clone()
    };
    assert_eq!([chosen(&own), chosen(&other)], ["low", "low"]);
    // Also with the old version's number, a condition in the table counts.
    admin.execute_batch("ALTER TABLE client ADD COLUMN issuer_key TEXT").unwrap();
    admin.execute("UPDATE client SET issuer_key = ?1", [own.to_uppercase()]).unwrap();
    assert!(matches!(gateway.poll(), Reload::Replaced(_)));
    assert_eq!([chosen(&own), chosen(&other)], ["low", "strong"]);
}

#[test]
fn takes_no_database_of_another_program() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("other.db");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE t (a)").unwrap();
    let faults = LivePolicy::open(&path).err().unwrap().to_string();
    assert!(faults.ends_with("other.db: not a policy database of dunlin; name another file"), "{faults}");
}

#[test]
fn keeps_the_previous_policy_if_the_server_lacks_what_the_new_one_needs() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.toml");
    fs::write(&path, STRONG).unwrap();
    let live = LivePolicy::open(&path).unwrap();
    fs::write(&path, "[profile.strong]\nrank = 200\n").unwrap();
    let faults = || Faults::one(Fault::elsewhere("no such certificate", "add it"));
    assert!(matches!(live.poll_with(|_| Err(faults())), Reload::Kept(kept) if kept == faults()));
    assert_eq!((live.current().default_profile().rank, live.faults()), (100, Some(faults())));
    // The content has not changed since.
    assert!(matches!(live.poll_with(|_| panic!("asked again")), Reload::Unchanged));
}

#[test]
fn says_what_a_reload_changes() {
    let old = "renegotiation = \"up\"\n[profile.strong]\nrank = 100\n[profile.low]\nrank = 20\nclient = \"psk\"\n\
               [[client]]\npsk = \"a\"\nprofile = \"low\"\n[[rule]]\nname = \"meters\"\nwhen.psk = \"meter-*\"\nprofile = \"low\"\n";
    let new = old
        .replace("rank = 20", "rank = 30")
        .replace("psk = \"a\"", "psk = \"b\"")
        .replace("when.psk = \"meter-*\"", "when.psk = \"sensor-*\"")
        .replace("\"up\"", "\"both\"")
        + "[profile.top]\nrank = 200\n";
    let new = new.replace("[profile.strong]", "default = \"strong\"\nfloor = 10\n[profile.strong]");
    let old = policy(old);
    let new = policy(&new);
    assert!(old.changes_since(&old).is_empty());
    assert_eq!(
        new.changes_since(&old),
        [
            "floor 10 instead of none",
            "renegotiation both",
            "changed profile low (rank 30), was low (rank 20)",
            "new profile top (rank 200)",
            "new rule meters (psk = \"sensor-*\" to low)",
            "no rule meters (psk = \"meter-*\" to low)",
            "client table: 1 entries added, 1 removed",
        ]
    );
    assert_eq!(old.summary(), "2 profiles, 1 rules, 1 clients, default strong (rank 100), floor none");
}
