//! `dunlin psk`: its file beside GnuTLS's psktool, and what it says to bad input.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::collections::BTreeSet;
use std::process::Stdio;

use common::Place;
use serde_json::Value;

const KEY: &str = "000102030405060708090a0b0c0d0e0f";

fn identities(place: &Place) -> Vec<String> {
    let list: Vec<Value> = serde_json::from_str(&place.dunlin("psk list keys.psk --json")).unwrap();
    list.iter().map(|entry| entry["identity"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn keys_are_made_listed_shown_and_removed() {
    let place = Place::new();
    place.dunlin("psk new --identity alice --out keys.psk");
    place.dunlin("psk new --identity bob --bytes 16 --out keys.psk");
    assert_eq!((place.mode("keys.psk"), identities(&place)), (0o600, vec!["alice".into(), "bob".into()]));
    assert_eq!(place.dunlin("psk list keys.psk"), "alice  32 bytes\nbob  16 bytes\n");

    let file = place.read("keys.psk");
    let key = file.lines().next().unwrap().strip_prefix("alice:").unwrap();
    assert!(key.len() == 64 && key.chars().all(|c| c.is_ascii_hexdigit()));
    let shown = place.dunlin("psk show keys.psk alice") + &place.dunlin("psk show keys.psk alice --json");
    assert!(!shown.contains(key) && shown.contains("key bytes       32"), "{shown}");
    assert!(place.dunlin("psk show keys.psk alice --reveal").contains(key));
    let entry: Value =
        serde_json::from_str(&place.dunlin("psk show keys.psk alice --reveal --json")).unwrap();
    assert_eq!(
        entry,
        serde_json::json!({"identity": "alice", "identity_bytes": 5, "key_bytes": 32, "key": key})
    );

    // An identity keeps its key unless it is asked for.
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
fn a_key_can_go_to_stdout() {
    let place = Place::new();
    let lines: BTreeSet<_> = (0..20).map(|_| place.dunlin("psk new")).collect();
    assert_eq!(lines.len(), 20);
    for line in lines {
        let (identity, key) = line.trim_end().split_once(':').unwrap();
        assert_eq!((identity.len(), key.len()), (8, 64), "{line}");
    }
    assert!(place.dunlin("psk new --identity x --bytes 512").len() == 2 + 1024 + 1);
    let listed = place.dunlin_with("psk list -", place.dunlin("psk new --identity a:b").as_bytes());
    assert_eq!(listed, "#613a62  32 bytes\n");
    assert!(place.files().is_empty());
}

/// Both tools write to one file, and each keeps what the other wrote.
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
        "psktool knows the name and replaces its key"
    );
    assert_eq!(identities(&place).len(), want.len());
}

#[test]
fn no_key_is_lost_when_many_are_added_at_once() {
    let place = Place::new();
    let children: Vec<_> = (0..12)
        .map(|number| place.command(&format!("psk new --identity d{number} --out keys.psk")))
        .map(|mut command| command.stdout(Stdio::null()).spawn().unwrap())
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let all: BTreeSet<_> = identities(&place).into_iter().collect();
    assert_eq!(all, (0..12).map(|number| format!("d{number}")).collect());
    assert_eq!(place.files(), ["keys.psk"]);
}

#[test]
fn bad_input_gets_one_line() {
    let place = Place::new();
    place.write("keys.psk", format!("alice:{KEY}\n"));
    let before = place.read("keys.psk");
    for (name, line) in [
        ("no-colon", "bob"),
        ("no-hex", "bob:secret!"),
        ("odd", "bob:000"),
        ("nobody", &format!(":{KEY}")),
        ("bad-name", &format!("#xyz:{KEY}")),
        ("double", &format!("alice:{KEY}")),
        ("short", "bob:0001"),
    ] {
        place.write(name, format!("alice:{KEY}\n\n{line}\n"));
    }
    for (arguments, status, told) in [
        ("psk", 2, "requires a subcommand"),
        ("psk list missing.psk", 1, "missing.psk: no such file"),
        ("psk list no-colon", 1, "no-colon: line 3: no colon"),
        ("psk list no-hex", 1, "no-hex: line 3: the key is not hexadecimal"),
        ("psk list odd", 1, "odd: line 3: the key is not hexadecimal"),
        ("psk list nobody", 1, "nobody: line 3: an identity of 0 bytes"),
        ("psk list bad-name", 1, "bad-name: line 3: the identity after # is not hexadecimal"),
        ("psk list double", 1, "double: line 3: the same identity as on line 1"),
        ("psk list short", 1, "short: line 3: a key of 2 bytes, where 16 to 512"),
        ("psk show short alice", 1, "--allow-short"),
        ("psk new --out double --identity carol", 1, "double: line 3"),
        ("psk remove double alice", 1, "double: line 3"),
        ("psk remove missing.psk alice", 1, "missing.psk: no such file"),
        ("psk remove - alice", 2, "stdin cannot be changed"),
        ("psk new --bytes 15", 2, "--allow-short"),
        ("psk new --bytes 0 --allow-short", 2, "--bytes: 0 bytes"),
        ("psk new --bytes 513", 2, "16 to 512"),
        ("psk new --bytes many", 2, "--bytes"),
        ("psk new --identity ''", 2, "an identity of 0 bytes"),
        ("psk new --identity #1", 2, "not hexadecimal"),
        ("psk new --force", 2, "--out"),
        ("psk new --out missing/keys.psk", 1, "there is no directory missing; make it first"),
    ] {
        let line = place.dunlin_fails(arguments, status);
        assert!(line.contains(told), "{arguments}: {line}");
        // The file's lines hold secrets.
        assert!(!line.contains(KEY) && !line.contains("secret!"), "{line}");
    }
    assert_eq!(place.read("keys.psk"), before);
    assert!(place.read("double").ends_with(&format!("alice:{KEY}\n")));
}

#[test]
fn short_keys_are_taken_only_when_asked_for() {
    let place = Place::new();
    place.dunlin("psk new --identity a --bytes 8 --allow-short --out keys.psk");
    place.dunlin_fails("psk list keys.psk", 1);
    assert_eq!(place.dunlin("psk list keys.psk --allow-short"), "a  8 bytes\n");
    // It neither hinders other keys nor its own removal.
    place.dunlin("psk new --identity b --out keys.psk");
    place.dunlin("psk remove keys.psk a");
    assert_eq!(identities(&place), ["b"]);
}

#[test]
fn nobody_reading_is_no_crash() {
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
