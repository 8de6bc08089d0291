//! Faults of configurations: all at once, with file, line, key and the allowed values.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use dunlin::ServerAddress;
use dunlin_gateway::{Config, Gateway, Tunnel, TunnelConfig};
use dunlin_pki::KeyType;

use crate::place::{Place, listener, route};
use crate::tunnel::local;

fn faults(text: &str) -> Vec<String> {
    let faults = Config::parse(Path::new("gateway.toml"), text).unwrap_err();
    faults.to_string().lines().map(str::to_owned).collect()
}

#[test]
fn names_all_faults_with_line_key_and_what_is_allowed() {
    let text = r#"[log]
level = "loud"

[limits]
idle_time = 10
conections = 5

[[listener]]
listen = "8883"
versions = ["1.1", "1.3"]

[[listener.certificate]]
key = "server.key"

[listener.clients]
verify = "required"

[[listener.route]]
sni = ["a b"]
to = "192.0.2.1:1883"
"#;
    let expected = [
        "gateway.toml:2: log.level: \"loud\" is none of the allowed words; write \"error\", \"warn\", \"info\" or \"debug\"",
        "gateway.toml:5: limits.idle_time: 10 is not a time span of at least a millisecond; write a number with a unit, as in \
         \"500ms\", \"10s\", \"5m\", \"2h\" or \"30d\"",
        "gateway.toml:6: limits.conections: unknown key; allowed here: connections, connections_per_network, \
         silent_time, forget_time, connections_per_host, handshakes, handshakes_per_host, handshake_time, idle_time, backend_time, connect_time or header_bytes",
        "gateway.toml:9: listener[0].listen: \"8883\" is not an IP address with a port; write it as in \"0.0.0.0:8883\" or \
         \"[::]:8883\"; 0.0.0.0 and [::] stand for all addresses",
        "gateway.toml:10: listener[0].versions[0]: \"1.1\" is not an enabled version; write \"1.2\" or \"1.3\", or both in an array",
        "gateway.toml:12: listener[0].certificate[0]: chain is missing; name the file of the certificate chain in PEM, \
         leaf first",
        "gateway.toml:15: listener[0].clients: verify demands an identity, but no ca, raw_keys, vc_issuers, dids or psk is given; add one of them",
        "gateway.toml:19: listener[0].route[0].sni[0]: \"a b\" is not a host name; write it as in \"mqtt.example.org\", or \
         \"*.example.org\" for all names with one more label",
        "gateway.toml:20: listener[0].route[0].to: 192.0.2.1:1883 is on another machine, and the way to it is not encrypted; \
         name an address of this machine, or write remote = true if that network is trusted",
    ];
    let found = faults(text);
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

#[test]
fn names_the_lines_of_faulty_toml() {
    let found = faults("[log\nlevel = \"info\"\n[gateway]\nshutdown_time = \n");
    assert!(found[0].starts_with("gateway.toml:1: "), "{found:#?}");
    assert!(found.iter().any(|fault| fault.starts_with("gateway.toml:4: ")), "{found:#?}");
}

#[test]
fn refuses_listeners_that_share_an_address_or_a_name() {
    let one = |name: &str| listener("").replace(":0", ":8883").replace("test", name) + &route(1883, "");
    let found = faults(&(one("a") + &one("b")));
    assert_eq!(
        found,
        [
            "gateway.toml:13: listener[1].listen: 127.0.0.1:8883 is also the address of gateway.toml:3: listener[0].listen; \
          give each listener an address of its own"
        ]
    );
    let all = one("b").replace("127.0.0.1:8883", "0.0.0.0:8883");
    let found = faults(&(one("a") + &all));
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].contains("0.0.0.0:8883 has the port of 127.0.0.1:8883, the address of "), "{found:#?}");
    let found = faults(&(all + "[admin]\nlisten = \"127.0.0.1:8883\"\n"));
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].contains("admin") && found[0].contains("listener[0].listen"), "{found:#?}");
    // The families, and datagrams and connections, have ports of their own.
    let six = one("b").replace("127.0.0.1:8883", "[::1]:8883");
    let datagrams =
        one("c").replace("[[listener.certificate", "transport = \"dtls\"\n[[listener.certificate");
    let text = one("a") + &six + &datagrams;
    Config::parse(Path::new("gateway.toml"), &text).unwrap_or_else(|faults| panic!("{faults}"));
    let found = faults(&(listener("") + &route(1, "") + &listener("") + &route(2, "")));
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(
        found[0].contains("duplicate name \"test\", first used at gateway.toml:1: listener[0]"),
        "{found:#?}"
    );
}

#[test]
fn a_backend_on_this_machine_has_many_spellings() {
    let with = |to: &str| listener("") + &route(1, "").replace("127.0.0.1:1", to);
    for to in ["localhost.:80", "LOCALHOST:80", "a.localhost:80", "[::ffff:127.0.0.1]:80", "[::1%lo]:80"] {
        Config::parse(Path::new("gateway.toml"), &with(to)).unwrap_or_else(|faults| panic!("{to}: {faults}"));
    }
    for to in ["localhost.example.org:80", "[::ffff:192.0.2.1]:80", "[fe80::1%eth0]:80"] {
        let found = faults(&with(to));
        assert!(found.len() == 1 && found[0].contains("is on another machine"), "{found:#?}");
        let remote = with(to) + "remote = true\n";
        Config::parse(Path::new("gateway.toml"), &remote).unwrap_or_else(|faults| panic!("{to}: {faults}"));
    }
    for to in ["[fe80::1%]:80", "[192.0.2.1%eth0]:80", "[fe80::1%a b]:80", "fe80::1%eth0:80"] {
        let found = faults(&with(to));
        assert!(found.len() == 1 && found[0].contains("a host with a port"), "{to}: {found:#?}");
    }
}

#[test]
fn a_tunnel_may_lead_to_an_address_with_a_zone() {
    let text = local(1, "").replace("127.0.0.1:1", "[fe80::1%eth0]:8883");
    let config =
        TunnelConfig::parse(Path::new("tunnel.toml"), &text).unwrap_or_else(|faults| panic!("{faults}"));
    assert_eq!(config.listeners[0].server, ServerAddress::parse("fe80::1", 8883).unwrap());
}

#[test]
fn refuses_trust_that_nothing_demands() {
    let text = listener("") + "[listener.clients]\nverify = \"none\"\nca = \"root.pem\"\n" + &route(1, "");
    let found = faults(&text);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].contains("clients are not asked for certificates"), "{found:#?}");
    // Clients would be anonymous with the certificate, although only keys are trusted.
    let found = faults(&(listener("") + "[listener.clients]\npsk = \"keys.psk\"\n" + &route(1, "")));
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].contains("clients can authenticate by psk only"), "{found:#?}");
}

#[test]
fn names_every_file_that_cannot_be_used() {
    let place = Place::new();
    place.write("garbage.pem", "garbage");
    let text = listener("").replace("server.key", "client.key")
        + "[[listener.certificate]]\nchain = \"absent.pem\"\n\
           [listener.clients]\nca = [\"root.pem\", \"garbage.pem\"]\npsk = \"garbage.pem\"\n"
        + &route(1, "");
    let found = Gateway::check(place.config(&text)).unwrap_err().to_string();
    let at = |file: &str| place.path(file).display().to_string();
    for (line, key, file) in [
        (7, "listener[0].certificate[0].key", "client.key"),
        (9, "listener[0].certificate[1].chain", "absent.pem"),
        (11, "listener[0].clients.ca[1]", "garbage.pem"),
        (12, "listener[0].clients.psk", "garbage.pem"),
    ] {
        let expected = format!("{}:{line}: {key}: {}: ", at("gateway.toml"), at(file));
        assert!(found.contains(&expected), "{expected}\n{found}");
    }
    assert_eq!(found.lines().count(), 4, "{found}");
}

#[test]
fn a_check_names_a_file_of_what_is_known_that_cannot_be_used_and_creates_none() {
    let place = Place::new();
    let gateway = listener("") + &route(1, "");
    let tunnel = local(1, "");
    let checks = |file: &str| {
        let known = format!("[known]\nfile = \"{file}\"\n");
        let path = place.path("tunnel.toml");
        let of_tunnel = TunnelConfig::parse(&path, &(known.clone() + &tunnel)).unwrap();
        [("gateway", Gateway::check(place.config(&(known + &gateway)))), ("tunnel", Tunnel::check(of_tunnel))]
    };
    let files = || std::fs::read_dir(place.path("")).unwrap().count();
    let before = files();
    for (file, why) in [
        ("root.pem", "not a file of records"),
        ("absent/known", "No such file or directory"),
        ("root.pem/known", "Not a directory"),
    ] {
        for (program, checked) in checks(file) {
            let faults = checked.unwrap_err().to_string();
            let at = format!("{program}.toml:2: known.file: {}: {why}", place.path(file).display());
            assert!(faults.contains(&at), "{at}\n{faults}");
        }
    }
    for (program, checked) in checks("known") {
        checked.unwrap_or_else(|faults| panic!("{program}: {faults}"));
    }
    assert_eq!(files(), before);
}

/// The group of the service may read them, as the documentation advises.
#[test]
fn warns_of_keys_that_other_users_can_access() {
    let place = Place::new();
    let mode = |name: &str, mode| {
        std::fs::set_permissions(place.path(name), Permissions::from_mode(mode)).unwrap();
    };
    place.write("password", "secret\n");
    place.write("did.key", &std::fs::read_to_string(place.path("client.key")).unwrap());
    let text = listener("")
        + "[[listener.certificate]]\ndid = \"did.key\"\n\
           [listener.clients]\nca = \"root.pem\"\npsk = \"keys.psk\"\n"
        + &route(1, "protocol = \"mqtt\"\npassword_file = \"password\"");
    let warnings = || {
        let warnings = Gateway::check(place.config(&text)).unwrap_or_else(|faults| panic!("{faults}"));
        warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    mode("password", 0o640);
    assert_eq!(warnings(), Vec::<String>::new());
    for (file, wide, key, secrets) in [
        ("server.key", 0o644, "certificate[0].key", "the key"),
        ("server.key", 0o660, "certificate[0].key", "the key"),
        ("did.key", 0o604, "certificate[1].did", "the key"),
        ("keys.psk", 0o644, "clients.psk", "the keys"),
        ("password", 0o644, "route[0].password_file", "the password"),
    ] {
        mode(file, wide);
        let found = warnings();
        let path = place.path(file).display().to_string();
        let [warning] = &found[..] else { panic!("{file}: {found:#?}") };
        let says = format!(
            "listener[0].{key}: {path}: other users can access {secrets} in it (mode {wide:04o}); chmod o=,g-w {path}"
        );
        assert!(warning.ends_with(&says), "{warning}");
        mode(file, 0o640);
    }
}

/// A wildcard in a certificate stands for one label, so it does not have the name of a route with the same
/// wildcard one label further.
#[test]
fn warns_of_routes_whose_name_is_in_no_certificate() {
    let place = Place::new();
    place.make_pki_of("wild-", KeyType::P256, &["*.example.org", "plain.test"]);
    let certificate = "[[listener.certificate]]\nchain = \"wild-server.pem\"\nkey = \"wild-server.key\"\n";
    let sni = r#"sni = ["localhost", "A.example.org", "*.example.org", "plain.test", "b.a.example.org", "*.plain.test", "example.org"]"#;
    for (rest, missing) in [
        (certificate, &["b.a.example.org", "*.plain.test", "example.org"][..]),
        (
            "",
            &[
                "a.example.org",
                "*.example.org",
                "plain.test",
                "b.a.example.org",
                "*.plain.test",
                "example.org",
            ],
        ),
    ] {
        let text = listener("") + rest + &route(1, sni);
        let warnings = Gateway::check(place.config(&text)).unwrap_or_else(|faults| panic!("{faults}"));
        let warnings: Vec<_> = warnings.iter().map(ToString::to_string).collect();
        assert_eq!(warnings.len(), missing.len(), "{warnings:#?}");
        for (warning, name) in warnings.iter().zip(missing) {
            let says =
                format!("route[0]: no certificate of this listener has the name {name} of the route; ");
            assert!(warning.contains(&says), "{warning}");
        }
    }
    // A listener without certificates authenticates in other ways.
    let text = "[[listener]]\nlisten = \"127.0.0.1:0\"\n[listener.clients]\npsk = \"keys.psk\"\n".to_owned()
        + &route(1, "sni = [\"example.org\"]");
    let warnings = Gateway::check(place.config(&text)).unwrap_or_else(|faults| panic!("{faults}"));
    assert!(warnings.is_empty(), "{warnings:?}");
}

/// All commands use the same words.
#[test]
fn a_missing_file_has_the_same_words_everywhere() {
    let place = Place::new();
    let unread = Config::load(&place.path("none.toml")).unwrap_err().to_string();
    assert!(unread.ends_with("none.toml: no such file; check the path"), "{unread}");
    let text = "[[listener]]\nlisten = \"127.0.0.1:0\"\n[[listener.certificate]]\nchain = \"none.pem\"\nkey = \"none.key\"\n\
                [[listener.certificate]]\ndid = \"none.key\"\n\
                [listener.clients]\nca = \"none.pem\"\npsk = \"none.psk\"\nvc_issuers = \"none\"\n"
        .to_owned()
        + &route(1, "");
    let found = Gateway::check(place.config(&text)).unwrap_err().to_string();
    assert_eq!(found.lines().count(), 5, "{found}");
    for line in found.lines() {
        assert!(line.contains(": no such file; "), "{line}");
    }
}

#[test]
fn check_names_a_handshake_cache_that_can_never_have_an_entry() {
    let place = Place::new();
    place.write("did.key", &std::fs::read_to_string(place.path("client.key")).unwrap());
    let psk = "[[listener]]\nlisten = \"127.0.0.1:0\"\n[listener.clients]\npsk = \"keys.psk\"\n";
    let did = "[[listener]]\nlisten = \"127.0.0.1:0\"\n[[listener.certificate]]\ndid = \"did.key\"\n";
    let ca = format!("{}[listener.clients]\nca = \"root.pem\"\n", listener(""));
    let did_and_ca = format!("{did}[listener.clients]\nca = \"root.pem\"\n");
    let plain = listener("");
    let store = "store = \"clients.cache\"\n";
    for (head, mode, store, says) in [
        (psk, "compact", "", Some("clients authenticate by psk only, so no certificate can be cached")),
        (did, "compact", "", Some("DIDs travel in messages of their own here")),
        (&did_and_ca, "rfc7924", "", Some("DIDs travel in messages of their own here")),
        (&did_and_ca, "compact", "", None),
        (&plain, "compact", "", None),
        (&plain, "compact", store, Some("clients prove no identity by certificate, so store has no effect")),
        (&ca, "rfc7924", store, Some("in mode rfc7924 the gateway caches nothing itself")),
        (&ca, "compact", store, None),
    ] {
        let text = format!("{head}[listener.cache]\nmode = \"{mode}\"\n{store}{}", route(1, ""));
        let warnings = Gateway::check(place.config(&text)).unwrap_or_else(|faults| panic!("{faults}"));
        let warnings: Vec<_> = warnings.iter().map(ToString::to_string).collect();
        assert_eq!(warnings.len(), usize::from(says.is_some()), "{text}: {warnings:?}");
        assert!(says.is_none_or(|says| warnings[0].contains(says)), "{warnings:?}");
    }
}

#[test]
fn reads_the_files_of_a_directory_together() {
    let place = Place::new();
    let one = |name: &str| listener("").replace("test", name) + &route(1883, "");
    place.write("1.toml", &format!("[limits]\nidle_time = \"1h\"\n{}", one("a")));
    place.write("2.toml", &one("b"));
    place.write("3.txt", "not a configuration");
    place.write("._1.toml", "what another system left beside 1.toml");
    let config = Config::load(place.path("").as_path()).unwrap();
    let names: Vec<_> = config.listeners.iter().map(|listener| &*listener.name).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(config.listeners.iter().all(|listener| listener.limits.idle_time.as_secs() == 3600));
    place.write("4.toml", "[limits]\nidle_time = \"2h\"\n");
    let found = Config::load(place.path("").as_path()).unwrap_err().to_string();
    assert!(found.contains("4.toml:1: limits: the table limits is also in "), "{found}");
}

/// The places of all faults, without the directory.
fn places(faults: &dunlin_gateway::Faults) -> Vec<String> {
    let places = faults.iter().filter_map(|fault| fault.place.as_ref());
    places.map(|at| format!("{}:{}: {}", at.file.file_name().unwrap().display(), at.line, at.key)).collect()
}

#[test]
fn names_faults_of_keys_files_and_policies_in_one_run() {
    let place = Place::new();
    let text = r#"[log]
level = "loud"

[[listener]]
name = "keys"
listen = "8883"
policy = "good.toml"
idle = 5

[[listener.certificate]]
chain = "absent.pem"
key = "server.key"

[[listener.route]]
to = "127.0.0.1"
protocol = "mqtt"
password_file = "absent.txt"

[[listener]]
name = "policy"
listen = "127.0.0.1:8884"
policy = "broken.toml"

[[listener.certificate]]
name = "own"
chain = "server.pem"
key = "server.key"

[listener.clients]
ca = "absent.pem"

[[listener.route]]
to = "127.0.0.1:1"
"#;
    place.write("gateway.toml", text);
    place.write(
        "broken.toml",
        r#"default = "strnog"
floor = high
[profile.strong]
rank = 100
groups = "x448"
[[rule]]
when.psk = "a"
profile = "sensor"
[[rule]]
when.psk = "b"
profile = "strong"
refuse = true
"#,
    );
    place.write(
        "good.toml",
        "[profile.strong]\nrank = 1\nclient = \"psk\"\n[profile.named]\nrank = 2\ncertificates = \"other\"\n",
    );
    let faults = Config::load(&place.path("gateway.toml")).unwrap_err();
    assert_eq!(
        places(&faults),
        [
            "broken.toml:1: default",
            "broken.toml:2: ",
            "broken.toml:5: profile.strong.groups",
            "broken.toml:8: rule[0].profile",
            "broken.toml:9: rule[1]",
            "gateway.toml:2: log.level",
            "gateway.toml:6: listener[0].listen",
            "gateway.toml:8: listener[0].idle",
            "gateway.toml:11: listener[0].certificate[0].chain",
            "gateway.toml:15: listener[0].route[0].to",
            "gateway.toml:17: listener[0].route[0].password_file",
            "gateway.toml:30: listener[1].clients.ca",
            "good.toml:3: profile.strong.client",
            "good.toml:6: profile.named.certificates",
        ],
        "{faults}"
    );
}

/// Faults that follow from others would mislead.
#[test]
fn names_no_fault_that_follows_from_another() {
    let place = Place::new();
    place.write("policy.toml", "[profile.strong]\nrank = 1\ncertificates = \"own\"\n");
    let text =
        listener("policy = \"policy.toml\"").replace("key = ", "name = \"own\"\nkey = 5 #") + &route(1, "");
    place.write("gateway.toml", &text);
    let faults = Config::load(&place.path("gateway.toml")).unwrap_err();
    assert_eq!(places(&faults), ["gateway.toml:8: listener[0].certificate[0].key"], "{faults}");
}

#[test]
fn names_faults_of_keys_and_files_of_a_tunnel_in_one_run() {
    let place = Place::new();
    place.write(
        "tunnel.toml",
        "[[listener]]\nlisten = \"1883\"\nto = \"example.org\"\n[listener.server]\nca = \"absent.pem\"\n\
         [[listener]]\nlisten = \"127.0.0.1:1\"\nto = \"localhost:2\"\n[listener.server]\nca = \"server.key\"\n",
    );
    let faults = TunnelConfig::load(&place.path("tunnel.toml")).unwrap_err();
    let expected = [
        "tunnel.toml:2: listener[0].listen",
        "tunnel.toml:3: listener[0].to",
        "tunnel.toml:5: listener[0].server.ca",
        "tunnel.toml:10: listener[1].server.ca",
    ];
    assert_eq!(places(&faults), expected, "{faults}");
}

/// Each socket at [::] takes IPv4 clients, too.
#[tokio::test]
async fn explains_two_listeners_on_all_addresses_with_one_port() {
    let place = Place::new();
    for more in ["", "transport = \"dtls\""] {
        let port = std::net::TcpListener::bind("[::]:0").unwrap().local_addr().unwrap().port();
        let at = |name: &str, address: &str| {
            let text = listener(more).replacen("\"test\"", &format!("{name:?}"), 1);
            text.replacen("127.0.0.1:0", &format!("{address}:{port}"), 1) + &route(1, "")
        };
        for [first, second] in [["0.0.0.0", "[::]"], ["[::]", "0.0.0.0"]] {
            let started = Gateway::start(place.config(&(at("one", first) + &at("two", second)))).await;
            let faults = started.err().unwrap().to_string();
            let says = "in use (os error 98); a socket at [::] also serves IPv4 clients: if another listener has this port at [::] or \
                        0.0.0.0, keep the one at [::] alone";
            assert!(faults.contains(second) && faults.contains(says), "{faults}");
        }
    }
}
