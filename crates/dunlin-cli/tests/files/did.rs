//! Tests `dunlin did` and `dunlin vc`: the files that they write, and every refusal.

use std::process::Stdio;

use dunlin_identity::Did;
use dunlin_identity::method::dunlin::{Operation, State};
use serde_json::{Value, json};

use dunlin_tests::place::Place;

/// Makes a DID in a directory.
fn create(place: &Place, arguments: &str) -> String {
    place.dunlin(&format!("did create {arguments}")).trim_end().to_owned()
}

fn document(place: &Place, directory: &str) -> Value {
    serde_json::from_str(&place.read(&format!("{directory}/did.json"))).unwrap()
}

/// The state after the operations in a directory.
fn state(place: &Place, directory: &str) -> State {
    let text = place.read(&format!("{directory}/operations.jsonl"));
    let operations: Vec<_> = text.lines().map(|line| Operation::read(line.as_bytes()).unwrap()).collect();
    State::replay(&dunlin_awslc::provider(), &operations).unwrap()
}

/// An operator with the DID of `operator`, which trusts itself in `trusted`, and a device with the DID of
/// `device`.
fn parties() -> (Place, String, String) {
    let place = Place::new();
    let operator = create(&place, "--key-type p256 --out operator");
    let device = create(&place, "--out device");
    place.write("trusted", format!("# the operator\n{operator}\n"));
    (place, operator, device)
}

#[test]
fn makes_dids_of_every_method_and_type_of_key() {
    for method in ["key", "jwk", "dunlin --registry registry.example"] {
        for typ in ["ed25519", "p256", "p384", "rsa2048", "mldsa44"] {
            let place = Place::new();
            if typ == "mldsa44" && !method.starts_with("dunlin") {
                let new = format!("did create --method {method} --key-type {typ} --out x/new");
                let line = place.dunlin_fails(&new, 2);
                assert!(line.contains("too long") && line.contains("--method dunlin"), "{line}");
                continue;
            }
            let did = create(&place, &format!("--method {method} --key-type {typ} --out x/new"));
            let parsed: Did = did.parse().unwrap();
            assert_eq!(method.split(' ').next().unwrap(), parsed.method());
            assert_eq!(document(&place, "x/new")["id"], did);
            assert_eq!((place.mode("x/new/key-0.key"), place.mode("x/new/did.json")), (0o600, 0o644));
            let shown = place.dunlin("did resolve x/new");
            assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), document(&place, "x/new"));
            let line = place.dunlin("did resolve x/new --line");
            if method.starts_with("dunlin") {
                assert_eq!((place.mode("x/new/key-1.key"), place.mode("x/new/recovery.key")), (0o600, 0o600));
                assert_eq!(state(&place, "x/new").did(), &parsed);
                assert!(line.starts_with(&format!("{did} z")), "{line}");
                let line = place.dunlin_fails(&format!("did resolve {did}"), 1);
                assert!(line.contains("give the document with --document"), "{line}");
                let shown = place.dunlin(&format!("did resolve {did} --document x/new/did.json"));
                assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), document(&place, "x/new"));
            } else {
                assert_eq!(line, format!("{did}\n"));
                assert_eq!(shown, place.dunlin(&format!("did resolve {did}")));
            }
        }
    }
}

#[test]
fn refuses_to_make_or_resolve_what_cannot_be() {
    let place = Place::new();
    create(&place, "--out device");
    let key = place.read("device/key-0.key");
    for (arguments, status, told) in [
        ("did create --out device", 1, "exists already"),
        ("did create --method dunlin --out other", 2, "--registry"),
        ("did create --method dunlin --registry 'two words' --out other", 2, "\"registry\""),
        ("did create --registry registry.example --out other", 2, "DIDs of this method are in no registry"),
        ("did create --key-type mldsa65 --out other", 2, "mldsa65"),
        ("did resolve did:key:x", 1, "did:key: malformed identifier"),
        ("did resolve did:web:example.org", 1, "no registry or web server is asked"),
        ("did resolve did:KEY:x", 2, "method name"),
        ("did resolve nothing", 1, "no such file"),
        ("did resolve device --document device/did.json", 2, "--document"),
        ("did resolve did:key:z6Mk --document device/did.json", 1, "it is the document of did:key:"),
    ] {
        let line = place.dunlin_fails(arguments, status);
        assert!(line.contains(told), "{arguments}: {line}");
    }
    assert_eq!(place.read("device/key-0.key"), key);
    create(&place, "--out device --force");
    assert_ne!(place.read("device/key-0.key"), key);
}

#[test]
fn a_did_dunlin_gets_new_keys_and_ends() {
    let place = Place::new();
    let did = create(&place, "--method dunlin --registry registry.example --out device");
    let pinned = place.dunlin("did resolve device --line");
    for version in 1..=2 {
        assert_eq!(place.dunlin("did update device"), format!("{did}: version {version}\n"));
        let state = state(&place, "device");
        assert_eq!((state.sequence(), state.is_active()), (version, true));
        assert_eq!(*state.document().value(), document(&place, "device"));
        assert_eq!(place.mode(&format!("device/key-{}.key", version + 1)), 0o600);
    }
    // The next key may exist already, after an attempt that was interrupted.
    place.dunlin("pki raw-key --key-type ed25519 --key device/key-4.key --public x.pub");
    let next = place.read("device/key-4.key");
    place.dunlin("did update device");
    assert_eq!((place.read("device/key-4.key"), state(&place, "device").sequence()), (next, 3));

    // A line pins the first document.
    let output = place.command("did resolve device --line").output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), pinned);
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("the key has changed since"), "{told}");
    let line = place.dunlin_fails(&format!("did resolve {did} --line --document device/did.json"), 1);
    assert!(line.contains("not the hash of the first document"), "{line}");
    let line = place.dunlin_fails("did deactivate device --key device/key-0.key", 1);
    assert!(line.contains("give the next key or the recovery key"), "{line}");
    let operations = place.read("device/operations.jsonl");
    assert_eq!(
        place.dunlin("did deactivate device --key device/recovery.key"),
        format!("{did}: deactivated\n")
    );
    assert!(!state(&place, "device").is_active());
    for command in
        ["did update device", "did deactivate device", "did resolve device", "did resolve device --line"]
    {
        let line = place.dunlin_fails(command, 1);
        assert!(line.contains("is deactivated, for ever"), "{line}");
    }
    // The next key ends it as well.
    place.write("device/operations.jsonl", &operations);
    place.dunlin("did deactivate device");
    assert!(!state(&place, "device").is_active());
    place.write("device/operations.jsonl", operations.replace("\"sequence\":1", "\"sequence\":2"));
    let line = place.dunlin_fails("did update device", 1);
    assert!(line.starts_with("dunlin: device/operations.jsonl: operation: "), "{line}");
}

/// Two runs whose operations follow the same one would make a history that no verifier accepts.
#[test]
fn changes_of_one_did_wait_for_each_other() {
    let place = Place::new();
    create(&place, "--method dunlin --registry registry.example --out device");
    let update = |_| place.command("did update device").stdout(Stdio::null()).spawn().unwrap();
    let updates: Vec<_> = (0..8).map(update).collect();
    for update in updates {
        assert!(update.wait_with_output().unwrap().status.success());
    }
    assert_eq!(state(&place, "device").sequence(), 8);
}

/// The keys of an earlier DID in the directory may be in other hands. None becomes the next key of the new
/// one.
#[test]
fn a_new_did_takes_no_key_of_an_earlier_one() {
    let place = Place::new();
    let dunlin = "--method dunlin --registry registry.example --out device";
    create(&place, dunlin);
    place.dunlin("did update device");
    place.dunlin("did update device");
    let stolen = place.read("device/key-2.key");
    create(&place, &format!("{dunlin} --force"));
    for version in [2, 3] {
        assert!(!place.path(&format!("device/key-{version}.key")).exists());
    }
    place.dunlin("did update device");
    assert_ne!(place.read("device/key-2.key"), stolen);
    // The recovery key has the same owner as the others.
    create(&place, "--out device --force");
    assert!(!place.path("device/recovery.key").exists());
    create(&place, &format!("{dunlin} --force"));
    // A DID that cannot be made leaves no directory.
    place.dunlin_fails("did create --method dunlin --registry régistre.example --out absent", 2);
    assert!(!place.path("absent").exists());
    // Without --force, such a key stays, and nothing is made.
    place.dunlin("pki raw-key --key-type ed25519 --key x.key --public x.pub");
    std::fs::create_dir(place.path("other")).unwrap();
    place.write("other/key-7.key", place.read("x.key"));
    for command in [
        "did create --method dunlin --registry registry.example --out other",
        "did update device --new-id --out other",
    ] {
        let line = place.dunlin_fails(command, 1);
        assert!(line.contains("key-7.key: exists already"), "{line}");
        assert!(!place.path("other/did.json").exists());
    }
    assert!(state(&place, "device").is_active());
}

#[test]
fn a_did_key_never_changes_but_can_be_replaced() {
    let (place, operator, device) = parties();
    for (command, told) in [("update", "never changes"), ("deactivate", "never changes")] {
        let line = place.dunlin_fails(&format!("did {command} device"), 1);
        assert!(line.contains(told), "{line}");
    }
    let status = "--status-list status.vc --status-url https://operator.example/1";
    place.dunlin(&format!(
        "vc issue --issuer operator --subject {device} --claim role=sensor --form jwt {status} --out device.vc"
    ));
    let with = "--vc device.vc --issuer operator --vc-out new.vc";
    let line = place.dunlin_fails(&format!("did update device --new-id --out new {with}"), 1);
    assert!(line.contains("is not at hand") && line.contains("--status-list"), "{line}");
    assert!(!place.path("new").exists());
    let new = create_new(&place, &format!("device --new-id --out new {with} --status-list status.vc"));
    assert_ne!(new, device);
    let verify = "--trust trusted --status-list status.vc";
    let shown: Value =
        serde_json::from_str(&place.dunlin(&format!("vc verify new.vc {verify} --json"))).unwrap();
    assert_eq!((&shown["subject"], &shown["issuer"]), (&json!(new), &json!(operator)));
    assert_eq!(shown["credential"]["credentialSubject"], json!({"id": new, "role": "sensor"}));
    let line = place.dunlin_fails(&format!("vc verify device.vc {verify}"), 1);
    assert!(line.contains("has revoked"), "{line}");
    // A revoked credential is not issued again, nor one about another holder.
    let again = "--vc device.vc --issuer operator --vc-out again.vc --status-list status.vc";
    let line = place.dunlin_fails(&format!("did update device --new-id --out again {again}"), 1);
    assert!(line.contains("has revoked"), "{line}");
    let other = "--vc device.vc --issuer operator --vc-out again.vc --status-list status.vc";
    let line = place.dunlin_fails(&format!("did update operator --new-id --out again {other}"), 1);
    assert!(line.contains("its subject is"), "{line}");
}

fn create_new(place: &Place, arguments: &str) -> String {
    place.dunlin(&format!("did update {arguments}")).trim_end().to_owned()
}

#[test]
fn a_replaced_did_dunlin_is_deactivated() {
    let (place, _, _) = parties();
    let method = "--method dunlin --registry registry.example --key-type p384";
    let old = create(&place, &format!("{method} --out old"));
    place.dunlin(&format!("vc issue --issuer operator --subject {old} --out old.vc"));
    let new = create_new(&place, "old --new-id --out new --vc old.vc --issuer operator --vc-out new.vc");
    assert!(!state(&place, "old").is_active());
    let fresh = state(&place, "new");
    assert_eq!((fresh.did().as_str(), fresh.is_active(), fresh.sequence()), (new.as_str(), true, 0));
    assert!(place.read("new/operations.jsonl").contains("\"registry\":\"registry.example\""));
    assert!(place.dunlin("pki show new/key-0.key").contains("P-384"));
    assert!(place.dunlin("vc verify new.vc --trust trusted").contains(&new));
}

#[test]
fn issues_shows_and_verifies_credentials_of_every_form() {
    let (place, operator, device) = parties();
    place.write("claims.json", r#"{"level": 3, "place": {"hall": "north"}}"#);
    for (form, shown) in [("compact", "compact"), ("json", "JSON"), ("jwt", "JWT")] {
        let told = place.dunlin(&format!(
            "vc issue --issuer operator --subject {device} --claim role=sensor --claims claims.json --type Device --form {form} \
             --days 2 --out {form}.vc"
        ));
        let bytes = std::fs::read(place.path(&format!("{form}.vc"))).unwrap();
        assert!(
            told.starts_with(&format!("{form}.vc: credential, {} bytes, valid until 20", bytes.len())),
            "{told}"
        );
        let told = place.dunlin(&format!("vc show {form}.vc"));
        assert!(
            told.starts_with(&format!("form          {shown}, ")) && told.contains(", not verified\n"),
            "{told}"
        );
        for line in [
            format!("issuer        {operator}"),
            format!("subject       {device}"),
            "type          [\"VerifiableCredential\",\"Device\"]".to_owned(),
            "claim         level = 3".to_owned(),
            "claim         place = {\"hall\":\"north\"}".to_owned(),
            "claim         role = sensor".to_owned(),
        ] {
            assert!(told.lines().any(|told| told == line), "{line}\n{told}");
        }
        let told = place.dunlin(&format!("vc verify {form}.vc --trust trusted"));
        assert!(told.starts_with(&format!("{form}.vc: valid\nissuer        {operator}\n")), "{told}");
        let shown = place.dunlin(&format!("vc show {form}.vc --json"));
        let shown: Value = serde_json::from_str(&shown).unwrap();
        let claims = json!({"id": device, "level": 3, "place": {"hall": "north"}, "role": "sensor"});
        assert_eq!(shown["credential"]["credentialSubject"], claims);
    }
}

#[test]
fn refuses_credentials_of_others_changed_and_outdated_ones() {
    let (place, _, device) = parties();
    create(&place, "--out other");
    let issue = |arguments: &str| {
        place.dunlin(&format!("vc issue --subject {device} --claim role=sensor --out {arguments}"));
    };
    issue("foreign.vc --issuer other");
    issue("late.vc --issuer operator --valid-from 2020-01-01 --days 30");
    issue("early.vc --issuer operator --valid-from 2100-01-01");
    issue("changed.vc --issuer operator --form json");
    place.write("changed.vc", place.read("changed.vc").replace("sensor", "broker"));
    place.write("text", "hello");
    for (file, told) in [
        ("foreign.vc", "is not trusted"),
        ("late.vc", "it has expired"),
        ("early.vc", "it is not valid yet"),
        ("changed.vc", "the signature is wrong"),
        ("text", "neither JSON, a JWT nor COSE"),
        ("none.vc", "no such file"),
    ] {
        let line = place.dunlin_fails(&format!("vc verify {file} --trust trusted"), 1);
        assert!(line.starts_with(&format!("dunlin: {file}: ")) && line.contains(told), "{line}");
    }
    for (list, told) in [
        ("", "no peer is trusted"),
        ("did:web:example.org", "not supported here"),
        ("members 1 00", "line 1"),
        (&format!("members 1 {}", "00".repeat(32)), "is for --vc-peers and --dids"),
        ("operator", "line 1"),
    ] {
        place.write("list", list);
        let line = place.dunlin_fails("vc verify changed.vc --trust list", 1);
        assert!(line.starts_with("dunlin: list: ") && line.contains(told), "{line}");
    }
    for (arguments, status, told) in [
        ("--claim role", 2, "role=sensor"),
        ("--claim id=x", 2, "other than id"),
        ("--claim a=1 --claim a=2", 2, "there twice"),
        ("--claims text", 1, "text: "),
        ("--days 0", 2, "--days"),
        ("--status-list status.vc", 2, "add --status-url"),
        ("--status-url https://x", 2, "--status-list"),
        ("--status-list status.vc --status-url operator.example", 2, "--status-url: operator.example"),
    ] {
        let line = place.dunlin_fails(
            &format!("vc issue --issuer operator --subject {device} {arguments} --out new.vc"),
            status,
        );
        assert!(line.contains(told), "{line}");
        assert!(!place.path("new.vc").exists());
    }
    let line = place.dunlin_fails("vc issue --issuer operator --subject device --out new.vc", 2);
    assert!(line.contains("begins with"), "{line}");
    for (subject, told) in [
        ("did:key:x", "malformed identifier"),
        ("did:dunlin:device", "it is not the hash of a document"),
        ("did:web:example.org%3Ax", "port"),
    ] {
        let line =
            place.dunlin_fails(&format!("vc issue --issuer operator --subject {subject} --out new.vc"), 2);
        assert!(line.contains("--subject") && line.contains(told), "{line}");
    }
    place.write("x.json", "{\"a\": 1}");
    let line = place.dunlin_fails("vc show x.json", 1);
    assert!(line.contains("x.json: it is no credential"), "{line}");
}

#[test]
fn issuers_of_did_dunlin_are_pinned_by_their_documents() {
    let place = Place::new();
    create(&place, "--method dunlin --registry registry.example --out operator");
    let device = create(&place, "--out device");
    place.write("trusted", place.dunlin("did resolve operator --line"));
    place.dunlin(&format!("vc issue --issuer operator --subject {device} --out device.vc"));
    place.dunlin("vc verify device.vc --trust trusted --document operator/did.json");
    let line = place.dunlin_fails("vc verify device.vc --trust trusted", 1);
    assert!(line.starts_with("dunlin: trusted: "), "{line}");
    // The list pins another document.
    let other = create(&place, "--method dunlin --registry registry.example --out other");
    let hash = place.read("trusted").split_once(' ').unwrap().1.to_owned();
    place.write("wrong", format!("{other} {hash}"));
    let line = place.dunlin_fails("vc verify device.vc --trust wrong --document other/did.json", 1);
    assert!(line.contains("does not pin"), "{line}");
    // After an update, credentials are signed with the new key, which the first document does not have.
    place.dunlin("did update operator");
    place.dunlin(&format!("vc issue --issuer operator --subject {device} --out later.vc"));
    let line = place.dunlin_fails("vc verify later.vc --trust trusted --document operator/did.json", 1);
    assert!(line.contains("does not pin"), "{line}");
}

#[test]
fn reads_lists_and_documents_as_editors_write_them() {
    let place = Place::new();
    create(&place, "--method dunlin --registry registry.example --out operator");
    let device = create(&place, "--out device");
    place.dunlin(&format!("vc issue --issuer operator --subject {device} --out device.vc"));
    let list = format!("# the operator\n{}", place.dunlin("did resolve operator --line"));
    let document = place.read("operator/did.json");
    let verify = "vc verify device.vc --trust list --document document";
    let edits: [fn(&str) -> String; 4] = [
        |text| format!("\u{feff}{text}"),
        |text| text.replace('\n', "\r\n"),
        |text| text.replace('\n', "\r"),
        |text| text.trim_end().to_owned(),
    ];
    for edit in edits {
        place.write("list", edit(&list));
        place.write("document", edit(&document));
        place.dunlin(verify);
    }
    let wide = |text: &str| text.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<_>>();
    place.write("document", [&[0xfe, 0xff][..], &wide(&document)].concat());
    let line = place.dunlin_fails(verify, 1);
    assert!(line.contains("document: the text is in UTF-16; save it as UTF-8"), "{line}");
    place.write("document", &document);
    for (content, says) in [
        (wide(&list), "list: the text is in UTF-16; "),
        ([list.as_bytes(), b"\xff"].concat(), "list: line 3 is not UTF-8; "),
        ([list.as_bytes(), b"\0"].concat(), "list: line 3 has a zero byte, so it is not text; "),
    ] {
        place.write("list", content);
        let line = place.dunlin_fails(verify, 1);
        assert!(line.contains(says), "{line}");
    }
}

#[test]
fn revokes_credentials_in_a_status_list() {
    let (place, _, device) = parties();
    let issue = |name: &str, url: &str| {
        place.dunlin(&format!(
            "vc issue --issuer operator --subject {device} --status-list status.vc {url} --out {name}"
        ));
    };
    issue("one.vc", "--status-url https://operator.example/status/1");
    issue("two.vc", "");
    let entry = |name: &str| {
        let shown: Value = serde_json::from_str(&place.dunlin(&format!("vc show {name} --json"))).unwrap();
        shown["credential"]["credentialStatus"].clone()
    };
    assert_eq!(entry("one.vc")["statusListCredential"], "https://operator.example/status/1");
    assert_ne!(entry("one.vc")["statusListIndex"], entry("two.vc")["statusListIndex"]);
    let verify = |name: &str| format!("vc verify {name} --trust trusted --status-list status.vc");
    assert!(place.dunlin(&verify("one.vc")).contains("\nstatus until  20"));
    let line = place.dunlin_fails("vc verify one.vc --trust trusted", 1);
    assert!(line.contains("is not at hand"), "{line}");

    let revoke = "--issuer operator --status-list status.vc";
    let told = place.dunlin(&format!("vc revoke one.vc {revoke}"));
    assert!(told.starts_with("status.vc: status list, renewed until 20"), "{told}");
    assert!(told.ends_with("Z, revoked 1 credential\n"), "{told}");
    let line = place.dunlin_fails(&verify("one.vc"), 1);
    assert!(line.contains("the issuer has revoked the credential"), "{line}");
    place.dunlin(&verify("two.vc"));
    // A renewal forgets nothing, and revoking twice is no error.
    let told = place.dunlin(&format!("vc revoke {revoke}"));
    assert!(told.contains(": status list, renewed until 20") && !told.contains("revoked"), "{told}");
    let told = place.dunlin(&format!("vc revoke one.vc {revoke}"));
    assert!(told.ends_with("revoked 0 credentials; 1 credential had been revoked before\n"), "{told}");
    place.dunlin_fails(&verify("one.vc"), 1);

    place.dunlin(&format!("vc issue --issuer operator --subject {device} --out plain.vc"));
    create(&place, "--out other");
    let foreign = "--status-list foreign.vc --status-url https://operator.example/status/1";
    place.dunlin(&format!("vc issue --issuer other --subject {device} {foreign} --out stranger.vc"));
    let list = place.read("status.vc");
    for (arguments, told) in [
        (format!("plain.vc {revoke}"), "it has no place in the status list"),
        // Another issuer names a place in this list.
        (format!("stranger.vc {revoke}"), "is not trusted"),
        ("two.vc --issuer other --status-list status.vc".to_owned(), "is not trusted"),
        ("two.vc --issuer operator --status-list none".to_owned(), "no such file"),
        ("two.vc --issuer operator --status-list plain.vc".to_owned(), "plain.vc"),
    ] {
        let line = place.dunlin_fails(&format!("vc revoke {arguments}"), 1);
        assert!(line.contains(told), "{line}");
    }
    assert_eq!(place.read("status.vc"), list);
}
