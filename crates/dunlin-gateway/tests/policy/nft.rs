//! The blacklist in sets of nftables, in a network namespace of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use dunlin_gateway::policy::{Blacklist, BlacklistLimits, Blocked, NftMirror, NftSets, Offence};

use crate::kernel::{is_inside, make_sets, nft};

#[test]
fn keeps_blocked_networks_in_the_sets_of_the_kernel() {
    if is_inside("nft::keeps_blocked_networks_in_the_sets_of_the_kernel") {
        inside();
    }
}

#[test]
fn ends_a_program_that_hangs() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("nft");
    fs::write(&program, "#!/bin/sh\nexec sleep 1000\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let sets = NftSets::new("dunlin", "blocked4", "blocked6").unwrap();
    let sets = sets.with_program(program).with_time_limit(Duration::from_millis(10));
    let error = NftMirror::default().update(|| (Some(sets), vec![block("10.0.0.1", 100)]), 100).unwrap_err();
    assert!(error.to_string().contains("did not end in time"), "{error}");
}

/// A network that is blocked after one offence, for ten minutes.
fn block(address: &str, now_s: u64) -> Blocked {
    let list = Blacklist::new(BlacklistLimits { foreign: 1, ..BlacklistLimits::default() });
    list.report(address.parse().unwrap(), Offence::Foreign, now_s).unwrap()
}

fn named(v4: &str, v6: &str) -> NftSets {
    NftSets::new("dunlin", v4, v6).unwrap()
}

fn set(name: &str) -> String {
    nft(&["list", "set", "inet", "dunlin", name])
}

fn inside() {
    make_sets("blocked");
    let sets = named("blocked4", "blocked6");
    let mirror = NftMirror::default();
    let tell = |sets: &NftSets, blocked: &[Blocked], now_s| {
        mirror.update(|| (Some(sets.clone()), blocked.to_vec()), now_s)
    };
    let four = block("10.0.0.1", 100);
    let six = block("2001:db8::1", 100);
    tell(&sets, &[four], 100).unwrap();
    tell(&sets, &[four, six], 100).unwrap();
    let all = nft(&["list", "ruleset"]);
    assert!(all.contains("10.0.0.1 timeout 10m"), "{all}");
    assert!(all.contains("2001:db8::/64 timeout 10m"), "{all}");
    // It was free meanwhile, and is blocked again.
    tell(&sets, &[block("10.0.0.1", 200), six], 400).unwrap();
    assert!(set("blocked4").contains("10.0.0.1 timeout 6m40s"));
    // An administrator has removed it. Once more, it is gone already.
    nft(&["delete", "element", "inet", "dunlin", "blocked4", "{ 10.0.0.1 }"]);
    for _ in 0..2 {
        tell(&sets, &[six], 400).unwrap();
        let all = nft(&["list", "ruleset"]);
        assert!(!all.contains("10.0.0.1") && all.contains("2001:db8::/64 timeout 10m"), "{all}");
    }
    // Other sets get the networks, and without a blacklist they are empty.
    make_sets("more");
    tell(&named("more4", "more6"), &[six], 400).unwrap();
    assert!(!set("blocked6").contains("2001:db8") && set("more6").contains("2001:db8::/64 timeout 5m"));
    // Former sets that are gone do not keep networks out of the new ones.
    nft(&["delete", "set", "inet", "dunlin", "more6"]);
    let error = tell(&sets, &[four, six], 400).unwrap_err().to_string();
    assert!(error.contains("No such file or directory") && error.lines().count() == 1, "{error}");
    assert!(set("blocked4").contains("10.0.0.1") && set("blocked6").contains("2001:db8::/64"));
    mirror.update(|| (None, vec![]), 400).unwrap();
    assert!(!set("blocked4").contains("10.0.0.1") && !set("blocked6").contains("2001:db8"));
    // A set that is full takes what it can; the next call tries the others again.
    nft(&["add", "set", "inet", "dunlin", "few4", "{ type ipv4_addr; flags timeout; size 5; }"]);
    let few = named("few4", "blocked6");
    let many: Vec<_> = (1..=9).map(|last| block(&format!("10.0.0.{last}"), 400)).collect();
    let error = tell(&few, &many, 400).unwrap_err().to_string();
    assert!(error.ends_with("; the set is full: give it a larger size"), "{error}");
    assert_eq!(set("few4").matches("timeout 10m").count(), 5);
    tell(&few, &many[4..], 400).unwrap();
    assert!(set("few4").contains("10.0.0.9") && !set("few4").contains("10.0.0.4"));
}

#[test]
fn takes_no_name_that_could_be_a_command() {
    for name in ["", "a b", "a;flush ruleset", "{", "1a", "-a", "a\n"] {
        assert!(NftSets::new("dunlin", name, "six").is_err(), "{name:?}");
        assert!(NftSets::new(name, "four", "six").is_err(), "{name:?}");
    }
    let missing = NftSets::new("dunlin", "four", "six").unwrap().with_program("/nonexistent/nft");
    let update = NftMirror::default().update(|| (Some(missing), vec![block("10.0.0.1", 0)]), 0);
    let error = update.unwrap_err().to_string();
    assert!(error.starts_with("nftables: /nonexistent/nft: No such file"), "{error}");
}
