//! The blacklist in sets of nftables, in a network namespace of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use dunlin_gateway::policy::{Blacklist, BlacklistLimits, Network, NftSets, Offence};

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
    let error = sets.remove(&[Network::parse("192.0.2.0/24").unwrap()]).unwrap_err();
    assert!(error.to_string().contains("did not end in time"), "{error}");
}

fn inside() {
    make_sets("blocked");
    let sets = NftSets::new("dunlin", "blocked4", "blocked6").unwrap();
    let list = Blacklist::new(BlacklistLimits { foreign: 1, ..BlacklistLimits::default() });
    let four = list.report("10.0.0.1".parse().unwrap(), Offence::Foreign, 100).unwrap();
    let six = list.report("2001:db8::1".parse().unwrap(), Offence::Foreign, 100).unwrap();
    sets.add(&four, 100).unwrap();
    sets.add(&six, 100).unwrap();
    let all = nft(&["list", "ruleset"]);
    assert!(all.contains("10.0.0.1 timeout 10m"), "{all}");
    assert!(all.contains("2001:db8::/64 timeout 10m"), "{all}");
    // Again, with another time, after a part of it.
    sets.add(&four, 400).unwrap();
    let all = nft(&["list", "ruleset"]);
    assert!(all.contains("10.0.0.1 timeout 5m"), "{all}");
    // The new limits exempt it. Once more, it is gone already.
    let exempt = vec![Network::parse("10.0.0.0/8").unwrap()];
    let now = list.with_limits(BlacklistLimits { exempt, ..list.limits().clone() }).first(9, 400).1;
    for _ in 0..2 {
        NftSets::replace((Some(&sets), &[four, six]), (Some(&sets), &now), 400).unwrap();
        let all = nft(&["list", "ruleset"]);
        assert!(!all.contains("10.0.0.1") && all.contains("2001:db8::/64 timeout 10m"), "{all}");
    }
    // Other sets get the networks, and without a blacklist they are empty.
    make_sets("more");
    let more = NftSets::new("dunlin", "more4", "more6").unwrap();
    NftSets::replace((Some(&sets), &now), (Some(&more), &now), 400).unwrap();
    let set = |name: &str| nft(&["list", "set", "inet", "dunlin", name]);
    assert!(!set("blocked6").contains("2001:db8") && set("more6").contains("2001:db8::/64 timeout 5m"));
    NftSets::replace((Some(&more), &now), (None, &[]), 400).unwrap();
    assert!(!set("more6").contains("2001:db8"));
    // The set does not exist.
    let other = NftSets::new("dunlin", "other4", "other6").unwrap();
    let error = other.add(&four, 100).unwrap_err().to_string();
    assert!(error.contains("No such file or directory") && error.lines().count() == 1, "{error}");
}

#[test]
fn takes_no_name_that_could_be_a_command() {
    for name in ["", "a b", "a;flush ruleset", "{", "1a", "-a", "a\n"] {
        assert!(NftSets::new("dunlin", name, "six").is_err(), "{name:?}");
        assert!(NftSets::new(name, "four", "six").is_err(), "{name:?}");
    }
    let missing = NftSets::new("dunlin", "four", "six").unwrap().with_program("/nonexistent/nft");
    let list = Blacklist::new(BlacklistLimits { foreign: 1, ..BlacklistLimits::default() });
    let blocked = list.report("10.0.0.1".parse().unwrap(), Offence::Foreign, 0).unwrap();
    let error = missing.add(&blocked, 0).unwrap_err().to_string();
    assert!(error.starts_with("nftables: /nonexistent/nft: No such file"), "{error}");
}
