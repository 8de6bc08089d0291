//! A policy that is replaced while connections are open.

use std::fs;

use dunlin_gateway::policy::{Finished, Hints, LivePolicy, Reload, Turn, Verdict};

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
    // The fault is told once.
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
    assert!(faults.to_string().starts_with("/nonexistent/policy.toml:1: "), "{faults}");
}

#[test]
fn ends_handshakes_whose_profile_a_reload_has_changed() {
    let (old, new) =
        (crate::policy(STRONG), crate::policy("[profile.strong]\nrank = 100\ngroups = \"x25519\"\n"));
    let hints = Hints::default();
    let used = &old.before(&hints, 0).profile;
    let finished = Finished { used, client: None, hints: &hints, is_resumed: false, turn: Turn::Impossible };
    assert_eq!(old.after(&finished, 0).verdict, Verdict::Serve);
    let decision = new.after(&finished, 0);
    assert_eq!(decision.verdict, Verdict::Refuse);
    assert!(decision.why.contains("the policy no longer has the profile strong (rank 100) as it was used"));
}
