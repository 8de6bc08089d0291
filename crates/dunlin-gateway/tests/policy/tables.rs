//! A gateway's memory: handshakes, addresses, and the blacklist.

use std::net::{IpAddr, SocketAddr};

use dunlin_gateway::policy::{
    AddressChange, AddressTable, Blacklist, BlacklistLimits, Client, Finished, HandshakeTable, Hints,
    Network, Offence, Source, Turn,
};

use crate::{policy, x509};

const POLICY: &str = r#"
[profile.strong]
rank = 100
client = "certificate"
address_lifetime = "1h"
[profile.low]
rank = 20
client = "certificate"
address_lifetime = "10s"
[profile.psk]
rank = 20
client = "psk"
address_lifetime = "10s"
[[rule]]
when.issuer = "CN=Sensors"
profile = "low"
"#;

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn peer(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn sensor() -> Client {
    x509("CN=Sensors", "a")
}

#[test]
fn remembers_the_client_of_an_address_until_it_expires() {
    let policy = policy(POLICY);
    let table = AddressTable::new(10);
    let low = policy.profile("low").unwrap();
    assert!(table.remember(address("10.0.0.1"), &sensor(), low, 100));
    let claim = table.claim(address("::ffff:10.0.0.1"), 109).unwrap();
    assert_eq!((claim.source, claim.client), (Source::Address, sensor()));
    assert!(table.claim(address("10.0.0.2"), 109).is_none());
    assert!(table.claim(address("10.0.0.1"), 110).is_none() && table.is_empty());
    table.remember(address("10.0.0.1"), &sensor(), low, 200);
    table.forget(address("10.0.0.1"));
    assert!(table.claim(address("10.0.0.1"), 200).is_none());
    table.remember(address("10.0.0.1"), &sensor(), low, 200);
    table.misled(address("10.0.0.1"));
    assert!(table.claim(address("10.0.0.1"), 200).is_none());
    // Clients that share the address would fail in turn.
    assert!(!table.remember(address("10.0.0.1"), &sensor(), low, 201));
    assert!(table.claim(address("10.0.0.1"), 201).is_none());
    assert!(table.remember(address("10.0.0.1"), &sensor(), low, 210));
    assert!(table.claim(address("10.0.0.1"), 211).is_some());
}

#[test]
fn remembers_only_clients_whose_profile_demands_a_certificate() {
    let policy = policy(POLICY);
    let table = AddressTable::new(10);
    let profile = |name| policy.profile(name).unwrap();
    assert!(!table.remember(address("10.0.0.1"), &Client::with_psk(b"p", None), profile("psk"), 0));
    assert!(!table.remember(address("10.0.0.1"), &Client::with_psk(b"p", None), profile("low"), 0));
    let mut never = profile("low").as_ref().clone();
    never.address_lifetime_s = 0;
    assert!(!table.remember(address("10.0.0.1"), &sensor(), &never, 0));
    assert!(table.is_empty());
}

#[test]
fn an_address_that_clients_share_leads_to_the_strongest_profile() {
    let policy = policy(POLICY);
    let table = AddressTable::new(10);
    let low = policy.profile("low").unwrap();
    let strong = policy.profile("strong").unwrap();
    let other = x509("CN=Other", "b");
    let shared = address("10.0.0.1");
    table.remember(shared, &sensor(), low, 0);
    assert!(table.remember(shared, &other, strong, 1));
    assert!(!table.remember(shared, &sensor(), low, 2));
    assert_eq!(table.claim(shared, 3).unwrap().client, other);
    // The same client may get another profile.
    assert!(table.remember(shared, &other, low, 4));
    // The strong client has not come for an hour.
    table.remember(shared, &other, strong, 5);
    assert!(table.remember(shared, &sensor(), low, 5 + 3600));
}

#[test]
fn gateways_tell_each_other_about_addresses() {
    let policy = policy(POLICY);
    let low = policy.profile("low").unwrap();
    let strong = policy.profile("strong").unwrap();
    let [one, two] = [(); 2].map(|()| AddressTable::new(10));
    let tell = |from: &AddressTable, to: &AddressTable, now_s| {
        let changes = from.changes();
        let told = changes.len();
        // As a message.
        let text = serde_json::to_string(&changes).unwrap();
        let changes: Vec<AddressChange> = serde_json::from_str(&text).unwrap();
        changes.into_iter().for_each(|change| to.learn(change, 3600, now_s));
        told
    };
    let known =
        |table: &AddressTable, at: &str, now_s| table.claim(address(at), now_s).map(|claim| claim.client);
    let alone = AddressTable::new(10);
    alone.remember(address("10.0.0.1"), &sensor(), strong, 0);
    assert_eq!(tell(&alone, &two, 0), 0);
    // A change before the first message waits for it.
    one.share();
    two.share();
    one.remember(address("10.0.0.1"), &sensor(), strong, 0);
    // An unchanged entry is sent once, until a tenth of its time is over.
    assert!(one.remember(address("10.0.0.1"), &sensor(), strong, 360));
    assert_eq!(tell(&one, &two, 1), 1);
    assert_eq!(known(&two, "10.0.0.1", 3599), Some(sensor()));
    assert!(known(&two, "10.0.0.1", 3600).is_none());
    assert_eq!(tell(&one, &two, 1), 0);
    one.remember(address("10.0.0.1"), &sensor(), strong, 361);
    assert_eq!(tell(&one, &two, 361), 1);
    assert_eq!(known(&two, "10.0.0.1", 3960), Some(sensor()));
    // A gateway does not pass on changes that it has learned from others.
    assert_eq!(tell(&two, &one, 361), 0);
    // A client of a weaker profile does not displace it there either.
    two.remember(address("10.0.0.2"), &x509("CN=Other", "b"), strong, 362);
    one.remember(address("10.0.0.2"), &sensor(), low, 362);
    tell(&one, &two, 362);
    assert_eq!(known(&two, "10.0.0.2", 363), Some(x509("CN=Other", "b")));
    // A wrong hint is wrong everywhere, and stays so.
    two.misled(address("10.0.0.2"));
    two.forget(address("10.0.0.1"));
    assert_eq!(tell(&two, &one, 364), 2);
    assert!(known(&one, "10.0.0.1", 365).is_none() && known(&one, "10.0.0.2", 365).is_none());
    assert!(!one.remember(address("10.0.0.2"), &sensor(), low, 365));
    // A change that could not be sent waits, unless there is a newer one.
    one.remember(address("10.0.0.3"), &sensor(), strong, 366);
    let changes = one.changes();
    one.forget(address("10.0.0.3"));
    changes.into_iter().for_each(|change| one.keep_change(change));
    assert_eq!(tell(&one, &two, 367), 1);
    assert!(known(&two, "10.0.0.3", 367).is_none());
    // The receiver bounds how long an address is good.
    two.remember(address("10.0.0.4"), &sensor(), strong, 400);
    two.changes().into_iter().for_each(|change| one.learn(change, 10, 400));
    assert!(known(&one, "10.0.0.4", 409).is_some() && known(&one, "10.0.0.4", 410).is_none());
}

#[test]
fn the_address_that_was_seen_longest_ago_makes_room() {
    let policy = policy(POLICY);
    let table = AddressTable::new(2);
    let strong = policy.profile("strong").unwrap();
    table.remember(address("10.0.0.1"), &sensor(), strong, 0);
    table.remember(address("10.0.0.2"), &sensor(), strong, 0);
    assert!(table.claim(address("10.0.0.1"), 1).is_some());
    table.remember(address("10.0.0.3"), &sensor(), strong, 1);
    assert_eq!(table.len(), 2);
    assert!(table.claim(address("10.0.0.2"), 1).is_none() && table.claim(address("10.0.0.1"), 1).is_some());
}

#[test]
fn counts_the_handshakes_of_each_connection() {
    let policy = policy(POLICY);
    let table = HandshakeTable::new(2, 60);
    let first = peer("10.0.0.1:1000");
    let second = peer("10.0.0.1:1001");
    assert_eq!((table.begin(first, 0), table.begin(first, 1), table.begin(second, 1)), (1, 2, 1));
    let hints = Hints::default();
    let sensor = sensor();
    let used = policy.profile("low").unwrap();
    let finished =
        Finished { used, client: Some(&sensor), hints: &hints, is_resumed: false, turn: Turn::Done };
    table.decided(first, &policy.after(&finished, 2), Some(&sensor), 2);
    let entry = table.get(first, 61).unwrap();
    assert_eq!((entry.begun, entry.is_served, entry.profile.as_deref()), (2, true, Some("low")));
    assert_eq!((entry.rule.as_deref(), entry.client.as_deref()), (Some("rule[0]"), Some("x509 dns=a")));
    assert!(table.get(first, 62).is_none());

    table.begin(peer("10.0.0.1:1002"), 10);
    let latest = |most| {
        let (count, latest) = table.latest(most, 11);
        (count, latest.into_iter().map(|(peer, _)| peer).collect::<Vec<_>>())
    };
    assert_eq!(latest(9), (2, vec![peer("10.0.0.1:1002"), first]), "the oldest entry makes room");
    assert_eq!(latest(1), (2, vec![peer("10.0.0.1:1002")]));
    table.ended(first);
    assert_eq!(table.latest(9, 11).0, 1);
    assert_eq!(table.latest(9, 70).0, 0);
}

fn limits() -> BlacklistLimits {
    BlacklistLimits {
        failed: 3,
        foreign: 1,
        window_s: 10,
        blocked_s: 100,
        capacity: 3,
        exempt: vec![Network::parse("192.0.2.0/24").unwrap()],
        ..BlacklistLimits::default()
    }
}

#[test]
fn blocks_an_address_after_too_many_offences_until_its_time_is_over() {
    let list = Blacklist::new(limits());
    let bad = address("10.0.0.1");
    assert!(list.report(bad, Offence::Failed, 0).is_none());
    assert!(list.report(bad, Offence::Failed, 1).is_none());
    assert!(list.blocked(bad, 1).is_none());
    let blocked = list.report(bad, Offence::Failed, 2).unwrap();
    assert_eq!((blocked.network.to_string().as_str(), blocked.until_s), ("10.0.0.1", 102));
    assert_eq!(blocked.to_string(), "10.0.0.1 is blocked after too many failed handshakes");
    assert!(list.report(bad, Offence::Failed, 3).is_none(), "blocked already");
    assert_eq!(list.blocked(address("::ffff:10.0.0.1"), 101), Some(blocked));
    assert!(list.blocked(address("10.0.0.2"), 101).is_none());
    assert!(list.blocked(bad, 102).is_none());
    assert!(list.report(bad, Offence::Foreign, 103).is_some(), "one foreign client suffices here");
}

#[test]
fn other_limits_free_only_what_they_would_not_block() {
    let list = Blacklist::new(limits());
    let [other, subscriber] = ["10.0.0.2", "2001:db8::1"].map(address);
    for (i, offender) in [address("10.0.0.1"), other, subscriber].into_iter().enumerate() {
        let now_s = u64::try_from(i).unwrap();
        list.report(offender, Offence::Foreign, now_s).unwrap();
    }
    let left = |limits: BlacklistLimits| {
        let (_, first) = list.with_limits(limits).first(9, 3);
        first.iter().map(|blocked| (blocked.network.to_string(), blocked.until_s)).collect::<Vec<_>>()
    };
    let all =
        [("10.0.0.1", 100), ("10.0.0.2", 101), ("2001:db8::/64", 102)].map(|(name, s)| (name.to_owned(), s));
    assert_eq!(left(BlacklistLimits { failed: 1, blocked_s: 7, ..limits() }), all);
    let exempt = |text: &str| BlacklistLimits { exempt: vec![Network::parse(text).unwrap()], ..limits() };
    assert_eq!(left(exempt("10.0.0.1")), all[1..]);
    assert_eq!(left(exempt("10.0.0.0/8")), all[2..]);
    // A part of the network.
    assert_eq!(left(exempt("2001:db8::7")), all[..2]);
    assert_eq!(left(BlacklistLimits { prefix_v4: 24, ..limits() }), all[2..]);
    assert_eq!(left(BlacklistLimits { foreign: 0, ..limits() }), []);
    assert_eq!(left(BlacklistLimits { capacity: 2, ..limits() }), all[1..]);
    assert_eq!(
        list.with_limits(exempt("10.0.0.9")).blocked(other, 3).map(|blocked| blocked.until_s),
        Some(101)
    );
}

#[test]
fn forgets_offences_after_a_while_and_never_blocks_exempt_networks() {
    let list = Blacklist::new(limits());
    let slow = address("10.0.0.1");
    for now_s in [0, 9, 10, 19, 20, 29, 30] {
        assert!(list.report(slow, Offence::Failed, now_s).is_none(), "{now_s}");
    }
    for _ in 0..10 {
        assert!(list.report(address("192.0.2.7"), Offence::Foreign, 0).is_none());
    }
    let never = Blacklist::new(BlacklistLimits { failed: 0, ..limits() });
    assert!((0..100).all(|_| never.report(slow, Offence::Failed, 0).is_none()));
}

#[test]
fn counts_a_subscriber_of_ipv6_as_one_and_stays_within_its_capacity() {
    let list = Blacklist::new(limits());
    assert!(list.report(address("2001:db8::1"), Offence::Failed, 0).is_none());
    assert!(list.report(address("2001:db8::2"), Offence::Failed, 0).is_none());
    let blocked = list.report(address("2001:db8::3"), Offence::Failed, 0).unwrap();
    assert_eq!(blocked.network.to_string(), "2001:db8::/64");
    for i in 0..5 {
        list.report(address(&format!("10.0.0.{i}")), Offence::Foreign, i);
    }
    let first = |most| {
        let (count, first) = list.first(most, 5);
        (count, first.iter().map(|blocked| blocked.network.to_string()).collect::<Vec<_>>())
    };
    assert_eq!(first(9), (3, ["10.0.0.2", "10.0.0.3", "10.0.0.4"].map(String::from).to_vec()));
    assert_eq!(first(1), (3, vec!["10.0.0.2".to_owned()]));
}
