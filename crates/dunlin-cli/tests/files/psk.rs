//! Tests `dunlin psk`: all formats of files, sharing one with GnuTLS's psktool, running servers, and bad
//! input.

use std::collections::BTreeSet;
use std::process::Stdio;

use crate::peers::Server;
use dunlin_tests::place::Place;
use serde_json::Value;

const KEY: &str = "000102030405060708090a0b0c0d0e0f";

fn json(place: &Place, arguments: &str) -> Value {
    serde_json::from_str(&place.dunlin(arguments)).unwrap()
}

fn identities_in(place: &Place, file: &str) -> Vec<String> {
    let list = json(place, &format!("psk list {file} --json"));
    list.as_array().unwrap().iter().map(|entry| entry["identity"].as_str().unwrap().to_owned()).collect()
}

fn identities(place: &Place) -> Vec<String> {
    identities_in(place, "keys.psk")
}

#[test]
fn makes_many_keys_at_once_and_keys_of_text() {
    let place = Place::new();
    let said = place.dunlin("psk new --identity sensor --count 500 --out keys.toml");
    assert!(said.starts_with("keys.toml: added 500 keys of 32 bytes:\nsensor-1\nsensor-2\n"), "{said}");
    assert!(said.ends_with("\nsensor-500\n") && said.lines().count() == 501, "{said}");
    let listed = json(&place, "psk list keys.toml --json");
    let listed = listed.as_array().unwrap();
    let names: BTreeSet<_> = listed.iter().map(|entry| entry["identity"].as_str().unwrap()).collect();
    assert!(names.len() == 500 && names.contains("sensor-1") && names.contains("sensor-500"));
    // All or nothing: one of these exists.
    let before = place.read("keys.toml");
    let line = place.dunlin_fails("psk new --identity sensor --count 501 --out keys.toml", 1);
    assert!(line.contains("sensor-1 has a key already"), "{line}");
    assert_eq!(place.read("keys.toml"), before);
    let lines = place.dunlin("psk new --count 3");
    assert_eq!(lines.lines().collect::<BTreeSet<_>>().len(), 3);
    let made = json(&place, "psk new --count 2 --out more.psk --json");
    assert_eq!(made.as_array().unwrap().len(), 2);
    place.dunlin_fails("psk new --count 0 --out keys.toml", 2);

    place.dunlin("psk new --identity coap --text --out text.psk");
    let shown = json(&place, "psk show text.psk coap --reveal --json");
    let text = shown["key_text"].as_str().unwrap();
    assert!(text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{text}");
    assert!(place.dunlin("psk show text.psk coap --reveal").contains(&format!("key as text     {text}\n")));
    assert!(!place.dunlin("psk show text.psk coap").contains(text));
    let line = place.dunlin_fails("psk new --identity b --text --bytes 21 --out text.psk", 2);
    assert!(line.contains("22"), "{line}");
}

#[test]
fn makes_lists_shows_and_removes_keys() {
    let place = Place::new();
    place.dunlin("psk new --identity alice --out keys.psk");
    place.dunlin("psk new --identity bob --bytes 16 --out keys.psk");
    assert_eq!((place.mode("keys.psk"), identities(&place)), (0o600, vec!["alice".into(), "bob".into()]));
    assert_eq!(place.dunlin("psk list keys.psk"), "alice  32 bytes  valid\nbob  16 bytes  valid\n");

    let file = place.read("keys.psk");
    let key = file.lines().next().unwrap().strip_prefix("alice:").unwrap();
    assert!(key.len() == 64 && key.chars().all(|c| c.is_ascii_hexdigit()));
    let shown = place.dunlin("psk show keys.psk alice") + &place.dunlin("psk show keys.psk alice --json");
    assert!(!shown.contains(key) && shown.contains("key bytes       32"), "{shown}");
    assert!(place.dunlin("psk show keys.psk alice --reveal").contains(key));
    let entry: Value =
        serde_json::from_str(&place.dunlin("psk show keys.psk alice --reveal --json")).unwrap();
    let want = serde_json::json!({
        "identity": "alice", "identity_bytes": 5, "key_bytes": 32, "key": key, "hash": "sha256", "name": null,
        "state": "valid", "not_before": null, "not_after": null, "revoked": null, "allow_short": false,
        "import_context": null, "imported_identities": [],
    });
    assert_eq!(entry, want);

    // An existing key is replaced only with --force.
    let line = place.dunlin_fails("psk new --identity alice --out keys.psk", 1);
    assert!(line.contains("keys.psk: alice has a key already"), "{line}");
    assert_eq!(place.read("keys.psk"), file);
    place.set_mode("keys.psk", 0o644);
    place.dunlin("psk new --identity alice --out keys.psk --force");
    assert!(!place.read("keys.psk").contains(key));
    assert_eq!((place.mode("keys.psk"), identities(&place)), (0o600, vec!["alice".into(), "bob".into()]));

    place.dunlin("psk remove keys.psk alice");
    assert_eq!(identities(&place), ["bob"]);
    let line = place.dunlin_fails("psk remove keys.psk alice", 1);
    assert!(line.contains("no key of alice"), "{line}");
    place.dunlin_fails("psk show keys.psk alice", 1);
    assert_eq!(place.files(), ["keys.psk"]);
}

#[test]
fn new_prints_the_key_without_a_file() {
    let place = Place::new();
    let lines: BTreeSet<_> = (0..20).map(|_| place.dunlin("psk new")).collect();
    assert_eq!(lines.len(), 20);
    for line in lines {
        let (identity, key) = line.trim_end().split_once(':').unwrap();
        assert_eq!((identity.len(), key.len()), (8, 64), "{line}");
    }
    assert!(place.dunlin("psk new --identity x --bytes 512").len() == 2 + 1024 + 1);
    let piped = place.dunlin("psk new --identity a:b");
    let listed = place.dunlin_with("psk list -", piped.as_bytes());
    assert_eq!(place.dunlin_with("psk list /dev/stdin", piped.as_bytes()), listed);
    assert_eq!(listed, "#613a62  32 bytes  valid\n");
    assert!(place.files().is_empty());
}

/// Each tool keeps the keys that the other one wrote.
#[test]
fn psktool_and_dunlin_share_a_file() {
    let place = Place::new();
    place.dunlin("psk new --identity first --out keys.psk");
    place.tool("psktool", "-u second -p keys.psk");
    place.tool("psktool", "-u with:colon -p keys.psk");
    place.dunlin("psk new --identity a:b --out keys.psk");
    place.dunlin("psk new --identity #ff00 --out keys.psk");
    let all: BTreeSet<_> = identities(&place).into_iter().collect();
    let want = ["first", "second", "#776974683a636f6c6f6e", "#613a62", "#ff00"];
    assert_eq!(all, want.map(str::to_owned).into());
    place.dunlin("psk show keys.psk with:colon");

    let before = place.dunlin("psk show keys.psk a:b --reveal");
    place.tool("psktool", "-u a:b -p keys.psk");
    assert_ne!(
        place.dunlin("psk show keys.psk a:b --reveal"),
        before,
        "psktool finds the identity and replaces its key"
    );
    assert_eq!(identities(&place).len(), want.len());
}

#[test]
fn keeps_all_keys_that_are_added_concurrently() {
    for file in ["keys.psk", "keys.toml", "keys.db"] {
        let place = Place::new();
        let children: Vec<_> = (0..12)
            .map(|number| place.command(&format!("psk new --identity d{number} --out {file}")))
            .map(|mut command| command.stdout(Stdio::null()).spawn().unwrap())
            .collect();
        for mut child in children {
            assert!(child.wait().unwrap().success());
        }
        let all: BTreeSet<_> = identities_in(&place, file).into_iter().collect();
        assert_eq!(all, (0..12).map(|number| format!("d{number}")).collect());
        assert_eq!(place.mode(file), 0o600);
        assert!(!place.files().iter().any(|name| name.starts_with('.')));
    }
}

/// Whenever a writer is killed, the file stays readable and has every key that was reported as added.
#[test]
fn a_killed_writer_leaves_a_readable_file() {
    for file in ["keys.psk", "keys.toml", "keys.db"] {
        let place = Place::new();
        place.dunlin(&format!("psk new --identity first --out {file}"));
        let mut added = BTreeSet::from(["first".to_owned()]);
        for round in 0..24 {
            let mut command = place.command(&format!("psk new --identity d{round} --out {file}"));
            let mut child = command.stdout(Stdio::null()).spawn().unwrap();
            for _ in 0..round * 200_000 {
                std::hint::spin_loop();
            }
            child.kill().unwrap();
            if child.wait().unwrap().success() {
                added.insert(format!("d{round}"));
            }
            let all: BTreeSet<_> = identities_in(&place, file).into_iter().collect();
            assert!(all.is_superset(&added), "{file}: {all:?} lacks some of {added:?}");
        }
    }
}

/// The extension decides, in upper or lower case. A pipe has none, so its content decides.
#[test]
fn detects_the_format_of_files_and_pipes() {
    let place = Place::new();
    place.dunlin("psk new --identity a --name pump --out KEYS.TOML");
    place.dunlin("psk convert KEYS.TOML KEYS.DB");
    let toml = place.read("KEYS.TOML");
    assert!(toml.contains("[[psk]]") && std::fs::read(place.path("KEYS.DB")).unwrap().starts_with(b"SQLite"));
    for file in ["-", "/dev/stdin"] {
        let listed = place.dunlin_with(&format!("psk list {file}"), toml.as_bytes());
        assert_eq!(listed, "a  32 bytes  valid  of pump\n", "{file}");
    }
}

#[test]
fn a_server_with_keys_from_a_pipe_refuses_revoked_ones() {
    let place = Place::new();
    place.dunlin("psk new --identity a --out keys.toml");
    place.dunlin("psk new --identity b --out keys.toml");
    place.dunlin("psk convert keys.toml client.toml");
    place.dunlin("psk revoke keys.toml a --reason lost");
    let mut command = place.command("server --accept 0 --echo --psk-file -");
    let mut process = crate::peers::Running::start(&mut command);
    process.write(&place.read("keys.toml"));
    drop(process.stdin.take());
    let port = crate::peers::port_in(&process.log_with("listening"));
    let server = Server { process, port, warnings: String::new() };
    server.echo(&place, "--psk-file client.toml --psk-identity b", "hello\n");
    let (_, log) = server.refused(&place, "--psk-file client.toml --psk-identity a");
    assert!(log.contains("the key of the client's identity a in stdin was revoked at 20"), "{log}");
}

/// Only the server's log gives the reason; all clients get the same alert.
#[test]
fn the_log_says_why_a_key_was_refused() {
    for file in ["keys.toml", "keys.db"] {
        let place = Place::new();
        for identity in ["revoked", "late", "early", "other", "plain", "bound"] {
            place.dunlin(&format!("psk new --identity {identity} --out client.toml"));
        }
        place.dunlin(&format!("psk convert client.toml {file}"));
        place.dunlin("psk new --identity stranger --out client.toml");
        place.dunlin(&format!("psk revoke {file} revoked --reason lost"));
        for (identity, time) in [("late", "--not-after 2020-01-01"), ("early", "--not-before 2999-01-01")] {
            place.dunlin(&format!("psk new --identity {identity} --out {file} --force {time}"));
        }
        place.dunlin(&format!("psk new --identity other --out {file} --force"));
        place.dunlin(&format!("psk import {file} bound --context plant"));
        place.dunlin("psk convert client.toml imported.toml");
        place.dunlin("psk import imported.toml plain");
        place.dunlin("psk import imported.toml bound --context field");
        let server = Server::new(&place, &format!("--psk-file {file} --tls1-2 --tls1-3 --echo"));
        let mut heard = BTreeSet::new();
        let mut refused = |options: &str, says: &str| {
            let (client, log) = server.refused(&place, options);
            assert!(log.contains(says), "{options}: {log}");
            let reason = client.rsplit_once(": ").unwrap().1;
            heard.insert(reason.split_once("client.toml").map(|(reason, _)| reason.to_owned()));
        };
        for version in ["-tls1_3", "-tls1_2"] {
            for (identity, says) in [
                ("stranger", format!("{file} has no key of the client's identity stranger; ")),
                ("revoked", format!("the key of the client's identity revoked in {file} was revoked at 20")),
                (
                    "late",
                    format!(
                        "the key of the client's identity late in {file} has expired at 2020-01-01T00:00:00Z; "
                    ),
                ),
                (
                    "early",
                    format!(
                        "identity early in {file} is not valid before 2999-01-01T00:00:00Z; check the clock"
                    ),
                ),
                (
                    "other",
                    format!("the client's pre-shared key for the identity other differs from {file}; "),
                ),
                ("bound", format!("{file} has imported the key of bound, and the client has not; ")),
            ] {
                refused(&format!("--psk-file client.toml --psk-identity {identity} {version}"), &says);
            }
        }
        assert_eq!(heard.len(), 1, "{heard:?}");
        for (identity, says) in [
            ("plain", format!("the client has imported the key of plain, and {file} has not; ")),
            (
                "bound",
                format!(
                    "the client has imported the key of bound for the context \"field\", {file} for \"plant\"; "
                ),
            ),
        ] {
            let (_, log) =
                server.refused(&place, &format!("--psk-file imported.toml --psk-identity {identity}"));
            assert!(log.contains(&says), "{log}");
        }
    }
}

#[test]
fn shows_all_keys_of_a_device() {
    let place = Place::new();
    place.dunlin("psk new --identity 7f3a --name pump --out keys.toml");
    place.dunlin("psk rotate keys.toml pump");
    let shown = place.dunlin("psk show keys.toml pump");
    assert!(
        shown.starts_with("identity        7f3a\n") && shown.contains("\n\nidentity        7f3a.2\n"),
        "{shown}"
    );
    assert_eq!(place.dunlin("psk show keys.toml pump --json").lines().count(), 2);
    assert_eq!(json(&place, "psk show keys.toml 7f3a --json")["name"], "pump");
    let line = place.dunlin_fails("psk show keys.toml valve", 1);
    assert!(line.contains("keys.toml: no key of valve; see `dunlin psk list`"), "{line}");
}

#[test]
fn converts_keys_between_all_formats() {
    let place = Place::new();
    place.dunlin("psk new --identity a --out keys.psk");
    place.dunlin("psk new --identity #00ff --bytes 48 --out keys.psk");
    let original = place.read("keys.psk");
    for (from, to) in [("keys.psk", "keys.toml"), ("keys.toml", "keys.db"), ("keys.db", "back.psk")] {
        assert_eq!(place.dunlin(&format!("psk convert {from} {to}")), format!("{to}: added 2 keys\n"));
        assert_eq!(place.mode(to), 0o600);
    }
    assert_eq!(place.read("back.psk"), original);
    let line = place.dunlin_fails("psk convert keys.psk keys.db", 1);
    assert!(line.contains("keys.db: a has a key already; "), "{line}");
    assert_eq!(json(&place, "psk convert keys.psk keys.db --force --json")["copied"], 2);

    // psktool's format cannot hold these properties: the command fails and writes nothing.
    place.dunlin("psk new --identity b --name pump --out keys.toml");
    for (arguments, what) in [
        (
            "psk convert keys.toml plain.psk",
            "plain.psk: a psktool file cannot hold device names; name a .toml or .db file instead",
        ),
        ("psk new --identity c --hash sha384 --out back.psk", "cannot hold a hash"),
        ("psk new --identity c --not-after 2999-01-01 --out back.psk", "cannot hold times of validity"),
        ("psk rotate back.psk a", "cannot hold times of validity"),
        ("psk revoke back.psk a", "cannot hold revocations"),
        ("psk import back.psk a", "cannot hold imported keys"),
    ] {
        let line = place.dunlin_fails(arguments, 1);
        assert!(line.contains(what), "{arguments}: {line}");
    }
    assert!(place.read("back.psk") == original && !place.files().contains(&"plain.psk".to_owned()));

    // Short keys are marked as such in TOML.
    place.write("short.psk", "s:00\n");
    place.dunlin_fails("psk convert short.psk short.toml", 1);
    place.dunlin("psk convert short.psk short.toml --allow-short");
    assert_eq!(place.dunlin("psk list short.toml"), "s  1 byte  valid\n");
}

#[test]
fn lists_the_state_of_each_key() {
    for file in ["keys.toml", "keys.db"] {
        let place = Place::new();
        let new = |arguments: &str| json(&place, &format!("psk new --out {file} --json {arguments}"));
        assert_eq!(new("--identity early --not-before 2999-01-01")["state"], "early");
        assert_eq!(new("--identity late --not-after 2020-01-01T01:00:00+01:00")["state"], "expired");
        assert_eq!(new("--identity lost --name pump --hash sha384 --not-after 2999-01-01")["hash"], "sha384");
        new("--identity stays --name pump --not-after 2999-01-01");
        let revoked =
            json(&place, &format!("psk revoke {file} lost --this-key --reason 'in the sea' --json"));
        let at = revoked["at"].as_str().unwrap();
        assert_eq!(revoked["revoked"], serde_json::json!(["lost"]));
        let want = format!(
            "early  32 bytes  from 2999-01-01T00:00:00Z\n\
             late  32 bytes  expired 2020-01-01T00:00:00Z\n\
             lost  32 bytes  revoked {at} (in the sea)  of pump\n\
             stays  32 bytes  until 2999-01-01T00:00:00Z  of pump\n"
        );
        assert_eq!(place.dunlin(&format!("psk list {file}")), want);
        // Repeating a revocation succeeds; the first time and reason stay.
        let again = place.dunlin(&format!("psk revoke {file} lost --this-key --reason found"));
        assert_eq!(again, format!("{file}: lost is revoked already\n"));
        let again = json(&place, &format!("psk revoke {file} lost --this-key --json"));
        assert_eq!(again, serde_json::json!({ "revoked": [], "at": null }));
        assert_eq!(place.dunlin(&format!("psk list {file}")), want);
        let list = json(&place, &format!("psk list {file} --json"));
        assert_eq!(list[2]["revoked"], serde_json::json!({ "at": at, "reason": "in the sea" }));
        assert_eq!(json(&place, &format!("psk remove {file} early --json"))["removed"], "early");
        place.dunlin(&format!("psk new --identity gone --out {file}"));
        place.dunlin(&format!("psk revoke {file} gone"));
        for (arguments, error) in [
            ("rotate FILE late", "late has no valid key; make a new key"),
            ("rotate FILE gone", "gone was revoked; choose another identity"),
            ("rotate FILE unknown", "no key of unknown; "),
            ("import FILE stays --key-file k", "stays has a key already; "),
        ] {
            place.write("k", KEY);
            let line = place.dunlin_fails(&format!("psk {}", arguments.replace("FILE", file)), 1);
            assert!(line.contains(error), "{arguments}: {line}");
        }
        place.dunlin_fails(&format!("client localhost:1 --psk-file {file} --psk-identity late"), 1);
    }
}

/// The old and the new key both connect until the old one expires. Then clients cannot tell it from an
/// unknown key.
#[test]
fn a_running_server_follows_rotations_and_revocations() {
    for file in ["keys.toml", "keys.db"] {
        let place = Place::new();
        place.dunlin(&format!("psk new --identity s --out {file}"));
        place.dunlin(&format!("psk convert {file} first.psk"));
        let server = Server::new(&place, &format!("--psk-file {file} --echo"));
        let first = "--psk-file first.psk --psk-identity s --json";
        let connected = |options: &str| {
            let output = server.echo(&place, options, "hello\n");
            assert!(output.contains("\"base64\":\"aGVsbG8K\""), "{output}");
            crate::peers::json(output.lines().next().unwrap())["resumed"].as_bool().unwrap()
        };
        let rotate = |overlap: &str| {
            json(&place, &format!("psk rotate {file} s --overlap {overlap} --reveal --json"))["new"].clone()
        };
        assert!(!connected(&format!("{first} --sess-out first.session")));
        let second = rotate("7d");
        assert_eq!((&second["identity"], &second["name"]), (&"s.2".into(), &"s".into()));
        assert!(connected(&format!("{first} --sess-in first.session --sess-out first.session")));
        let second = format!("--psk {} --psk-identity s.2", second["key"].as_str().unwrap());
        assert!(!connected(&format!("{second} --json --sess-out second.session")));
        assert!(server.process.log_with("s.2").contains("PSK s, identity s.2"));

        // Without an overlap the old key and its sessions end at once. Clients cannot tell it from a wrong
        // key.
        let third = rotate("0s");
        assert_eq!(third["identity"], "s.3");
        let over = server.refused(&place, &second).0;
        assert_eq!(over, server.refused(&place, &format!("--psk {KEY} --psk-identity s.3")).0);
        assert_eq!(over, server.refused(&place, &format!("--psk {KEY} --psk-identity unknown")).0);
        server.refused(&place, &format!("{second} --sess-in second.session"));
        // The first key ends too, although the previous rotation gave it a week.
        server.refused(&place, first);
        server.refused(&place, &format!("{first} --sess-in first.session"));
        // A client with a file of several keys takes the only valid one of the device.
        place.dunlin(&format!("psk convert {file} client.toml"));
        assert!(server.echo(&place, "--psk-file client.toml --brief", "").contains("PSK s, identity s.3;"));

        let revoked = json(&place, &format!("psk revoke {file} s --json"));
        assert_eq!(revoked["revoked"], serde_json::json!(["s", "s.2", "s.3"]));
        let third = third["key"].as_str().unwrap();
        assert_eq!(server.refused(&place, &format!("--psk {third} --psk-identity s.3")).0, over);
    }
}

#[test]
fn replacing_a_key_keeps_device_hash_and_revocation() {
    for file in ["keys.toml", "keys.db"] {
        let place = Place::new();
        let new =
            |arguments: &str| json(&place, &format!("psk new --out {file} --json --identity d {arguments}"));
        new("--name pump --hash sha384 --not-after 2020-01-01");
        let replaced = new("--force");
        let kept = ["name", "hash", "state"].map(|field| replaced[field].as_str().unwrap().to_owned());
        assert_eq!(kept, ["pump", "sha384", "valid"]);
        let replaced = new("--force --name valve --hash sha256");
        let given = ["name", "hash"].map(|field| replaced[field].as_str().unwrap().to_owned());
        assert_eq!(given, ["valve", "sha256"]);

        // Making a key does not readmit a revoked device.
        place.dunlin(&format!("psk convert {file} before.toml"));
        place.dunlin(&format!("psk revoke {file} valve"));
        for arguments in [
            format!("psk new --identity d --out {file} --force"),
            format!("psk convert before.toml {file} --force"),
        ] {
            let line = place.dunlin_fails(&arguments, 1);
            assert!(line.contains(&format!("{file}: d was revoked; choose another identity, or ")), "{line}");
        }
        assert_eq!(json(&place, &format!("psk show {file} d --json"))["state"], "revoked");
        place.dunlin(&format!("psk remove {file} d"));
        assert_eq!(new("")["name"], Value::Null);
    }
}

/// Replacing a key under its identity also ends its sessions.
#[test]
fn a_running_server_follows_a_psktool_file() {
    let place = Place::new();
    place.dunlin("psk new --identity d --out keys.psk");
    place.dunlin("psk convert keys.psk old.psk");
    let server = Server::new(&place, "--psk-file keys.psk --echo");
    server.echo(&place, "--psk-file old.psk --sess-out session", "hello\n");
    place.dunlin("psk new --identity d --out keys.psk --force");
    let (_, log) = server.refused(&place, "--psk-file old.psk --sess-in session");
    assert!(log.contains("pre-shared key for the identity d differs from keys.psk"), "{log}");
    server.echo(&place, "--psk-file keys.psk", "hello\n");

    // A broken file leaves the previous keys in force, and the server warns of it in a line.
    place.dunlin("psk convert keys.psk new.psk");
    place.write("keys.psk", "d:1\n");
    server.echo(&place, "--psk-file new.psk", "hello\n");
    let line = server.process.log_with("warning");
    assert!(
        line.ends_with("keys.psk: line 1: the key is not hexadecimal; the previous keys stay in force"),
        "{line}"
    );
}

#[test]
fn reads_the_example_of_the_guide() {
    let place = Place::new();
    let guide = include_str!("../../../../docs/psk.md");
    let (_, example) = guide.split_once("```toml\n").unwrap();
    place.write("keys.toml", example.split_once("```").unwrap().0);
    place.write("sensor-7.key", KEY);
    let entry = &json(&place, "psk list keys.toml --json")[0];
    assert_eq!((&entry["name"], &entry["state"]), (&"sensor-7".into(), &"revoked".into()));
}

#[test]
fn an_imported_key_works_with_both_hashes() {
    let place = Place::new();
    let ours = json(&place, "psk import ours.toml pump --context plant --reveal --json");
    place.write("key", ours["key"].as_str().unwrap());
    let theirs = json(&place, "psk import theirs.db pump --context plant --key-file key --json");
    assert_eq!(ours["imported_identities"], theirs["imported_identities"]);
    assert_eq!(ours["imported_identities"].as_array().unwrap().len(), 4, "two hashes, TLS and DTLS");
    // Identity and context, each after its length, then TLS 1.3 and HKDF_SHA256 (RFC 9258 §4.1).
    assert_eq!(ours["imported_identities"][0]["identity"], "000470756d700005706c616e7403040001");
    let server = Server::new(&place, "--psk-file ours.toml --echo");
    for suite in ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384"] {
        let output =
            server.echo(&place, &format!("--psk-file theirs.db --brief --ciphersuites {suite}"), "hello\n");
        assert!(output.contains(suite) && output.ends_with("\nhello\n"), "{output}");
    }
    let log = server.process.log_with("connected");
    assert!(log.contains(", PSK pump (imported for plant); "), "{log}");
    // TLS 1.2 does not support imported keys (RFC 9258 §4).
    for side in ["server --psk-file ours.toml", "client localhost:1 --psk-file theirs.db"] {
        let line = place.dunlin_fails(&format!("{side} --tls1-2"), 2);
        assert!(line.contains("the key of pump is imported, so it is for TLS 1.3 only"), "{line}");
    }
    // Changing context or hash needs --force, since the other side has to do the same.
    place.dunlin("psk import theirs.db pump --context plant");
    for other in ["--context other", "--context plant --hash sha384"] {
        let line = place.dunlin_fails(&format!("psk import theirs.db pump {other}"), 1);
        let says =
            "theirs.db: pump is imported already, with sha256 for context \"plant\"; add --force to replace";
        assert!(line.contains(says), "{line}");
    }
    let shown = place.dunlin("psk import theirs.db pump --context other --force");
    assert!(shown.contains("\ncontext         other\nTLS 1.3 sha256  "), "{shown}");
    server.refused(&place, "--psk-file theirs.db");
}

#[test]
fn bad_input_gets_an_error_of_one_line() {
    let place = Place::new();
    place.write("keys.psk", format!("alice:{KEY}\n"));
    let before = place.read("keys.psk");
    for (name, line) in [
        ("no-colon", "bob"),
        ("no-hex", "bob:secret!"),
        ("odd", "bob:000"),
        ("empty-name", &format!(":{KEY}")),
        ("bad-name", &format!("#xyz:{KEY}")),
        ("double", &format!("alice:{KEY}")),
        ("short", "bob:0001"),
    ] {
        place.write(name, format!("alice:{KEY}\n\n{line}\n"));
    }
    place.write("broken.toml", format!("[[psk]]\nkee = \"{KEY}\"\n"));
    place.write("short.toml", "[[psk]]\nidentity = \"a\"\nkey = \"0001\"\n");
    place.write("other.db", "this is no database at all, but it is called one");
    for (arguments, status, error) in [
        ("psk", 2, "requires a subcommand"),
        ("psk list missing.psk", 1, "missing.psk: no such file"),
        ("psk list no-colon", 1, "no-colon: line 3: no colon"),
        ("psk list no-hex", 1, "no-hex: line 3: the key is not hexadecimal"),
        ("psk list odd", 1, "odd: line 3: the key is not hexadecimal"),
        ("psk list empty-name", 1, "empty-name: line 3: the identity has 0 bytes"),
        ("psk list bad-name", 1, "bad-name: line 3: the identity after # is not hexadecimal"),
        ("psk list double", 1, "double: line 3: the same identity as on line 1"),
        ("psk list short", 1, "short: line 3: the key has 2 bytes instead of 16 to 512"),
        ("psk show short alice", 1, "--allow-short"),
        ("psk new --out double --identity carol", 1, "double: line 3"),
        ("psk remove double alice", 1, "double: line 3"),
        ("psk remove missing.psk alice", 1, "missing.psk: no such file"),
        ("psk remove - alice", 2, "stdin cannot be changed"),
        ("psk new --bytes 15", 2, "--allow-short"),
        ("psk new --bytes 0 --allow-short", 2, "--bytes: 0 bytes"),
        ("psk new --bytes 513", 2, "16 to 512"),
        ("psk new --bytes many", 2, "--bytes"),
        ("psk new --identity ''", 2, "the identity has 0 bytes"),
        ("psk new --identity #1", 2, "not hexadecimal"),
        ("psk new --force", 2, "--out"),
        ("psk list broken.toml", 1, "broken.toml: line 2: unknown field `kee`"),
        (
            "psk list short.toml",
            1,
            "short.toml: line 3: the key has 2 bytes instead of 16 to 512; use a longer key, or write allow_short = true",
        ),
        ("psk new --identity x --out broken.toml", 1, "broken.toml: line 2"),
        ("server --psk-file broken.toml", 1, "broken.toml: line 2"),
        ("psk list other.db", 1, "other.db: not a key database of dunlin; "),
        ("psk list missing.db", 1, "missing.db: no such file"),
        ("psk revoke missing.db x", 1, "missing.db: no such file"),
        ("psk new --identity x --out missing/keys.db", 1, "there is no directory missing; make it first"),
        ("psk rotate keys.psk alice --overlap 7", 2, "as in 7d"),
        ("psk new --out x.toml --not-after soon", 2, "not a time"),
        ("psk new --name pump", 2, "--out"),
        ("psk import keys.psk alice --context #1", 2, "--context: the text after # is not hexadecimal"),
        ("psk new --out missing/keys.psk", 1, "there is no directory missing; make it first"),
    ] {
        let line = place.dunlin_fails(arguments, status);
        assert!(line.contains(error), "{arguments}: {line}");
        // The lines of the file hold secrets, which errors must not quote.
        assert!(!line.contains(KEY) && !line.contains("secret!"), "{line}");
    }
    assert_eq!(place.read("keys.psk"), before);
    assert!(place.read("double").ends_with(&format!("alice:{KEY}\n")));
}

#[test]
fn accepts_short_keys_only_with_allow_short() {
    let place = Place::new();
    place.dunlin("psk new --identity a --bytes 8 --allow-short --out keys.psk");
    place.dunlin_fails("psk list keys.psk", 1);
    assert_eq!(place.dunlin("psk list keys.psk --allow-short"), "a  8 bytes  valid\n");
    // A short key does not prevent adding other keys or removing it.
    place.dunlin("psk new --identity b --out keys.psk");
    place.dunlin("psk remove keys.psk a");
    assert_eq!(identities(&place), ["b"]);
}

#[test]
fn ends_quietly_when_its_output_is_closed() {
    let place = Place::new();
    let lines: String = (0..20_000).map(|number| format!("device-{number}:{KEY}\n")).collect();
    place.write("keys.psk", lines);
    let mut child =
        place.command("psk list keys.psk").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn lists_the_identity_hint() {
    let place = Place::new();
    place.write(
        "keys.toml",
        format!("identity_hint = \"gate\"\n[[psk]]\nidentity = \"d1\"\nkey = \"{KEY}\"\n"),
    );
    place.dunlin("psk convert keys.toml keys.db");
    for file in ["keys.toml", "keys.db"] {
        let listed = place.dunlin(&format!("psk list {file}"));
        assert_eq!(listed, "d1  16 bytes  valid\nhint for TLS 1.2 clients, 4 bytes: gate\n");
    }
}

#[test]
fn a_server_warns_of_useless_keys_and_long_hints() {
    let place = Place::new();
    let hint = |len: usize| format!("identity_hint = \"{}\"\n", "h".repeat(len));
    let key = |more: &str| format!("[[psk]]\nidentity = \"d1\"\nkey = \"{KEY}\"\n{more}");
    let revoked = "[[psk]]\nidentity = \"d2\"\nkey = \"00112233445566778899aabbccddeeff\"\nrevoked = { at = 2020-01-01 }\n";
    let expired = "not_after = 2020-01-01T00:00:00Z\n";
    let over =
        "every key in it has expired or is revoked, so no client can use one; add one with `dunlin psk`\n";
    let long = "its identity_hint has 129 bytes, and not every client takes more than 128; shorten it\n";
    for (content, warning) in [
        (key(expired) + revoked, Some(over)),
        (key("") + revoked, None),
        (hint(129) + &key(""), Some(long)),
        (hint(128) + &key(""), None),
    ] {
        let _ = std::fs::remove_file(place.path("keys.db"));
        place.write("keys.toml", &content);
        place.dunlin("psk convert keys.toml keys.db");
        for file in ["keys.toml", "keys.db"] {
            let server = Server::new(&place, &format!("--psk-file {file} --tls1-2 --echo"));
            let expected = warning.map(|why| format!("dunlin: warning: {file}: {why}"));
            assert_eq!(server.warnings, expected.unwrap_or_default());
        }
    }
}

#[test]
fn warns_of_keys_that_others_can_read() {
    let place = Place::new();
    place.dunlin("psk new --identity d1 --out keys.toml");
    place.dunlin("psk convert keys.toml keys.db");
    for (mode, warns) in [(0o600, false), (0o640, true), (0o604, true)] {
        for file in ["keys.toml", "keys.db"] {
            place.set_mode(file, mode);
            let says = format!(
                "dunlin: warning: {file}: other users can access the keys in it (mode {mode:04o}); chmod 600 {file}\n"
            );
            let expected = if warns { says } else { String::new() };
            let server = Server::new(&place, &format!("--psk-file {file} --echo"));
            assert_eq!(server.warnings, expected);
            for output in [
                server.client(&place, &format!("--psk-file {file} --quiet"), ""),
                place.command(&format!("psk list {file}")).output().unwrap(),
            ] {
                assert_eq!(String::from_utf8(output.stderr).unwrap(), expected);
            }
        }
    }
}

#[test]
fn rejects_an_identity_without_a_key() {
    let place = Place::new();
    place.dunlin("psk new --identity d1 --out keys.toml");
    place.dunlin("pki demo --out pki");
    for (arguments, says) in [
        ("server --psk-identity d1", "server: no certificate, key or PSK; give --chain and --key, "),
        (
            "server --cert pki/server.pem --key pki/server.key --psk-identity d1",
            "--psk-identity: there is no key; add --psk-file or --psk",
        ),
        ("client localhost:1 --psk-identity d1", "--psk-identity: there is no key; add --psk-file or --psk"),
        (
            "server --psk-file keys.toml --psk-identity d1",
            "--psk-identity: a server accepts every key of --psk-file; leave it out, or",
        ),
    ] {
        let line = place.dunlin_fails(arguments, 2);
        assert!(line.contains(says), "{arguments}: {line}");
    }
}
