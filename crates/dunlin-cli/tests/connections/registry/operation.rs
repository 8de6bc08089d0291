//! The operator's side of a registry: copies, watches, keys, admission.

use super::*;

#[test]
fn checkpoints_audits_and_copies() {
    let place = place();
    let registry = Registry::new(&place);
    let url = registry.url();
    let access = registry.access.clone();
    let keys = access.split_once("--registry-key").unwrap().1;
    let fetch = format!("registry checkpoint {url} --registry-key {keys}");
    place.dunlin(&format!("did create --method dunlin --out one {access}"));
    place.dunlin(&format!("{fetch} --out first"));
    assert_eq!(place.read("first").lines().take(2).collect::<Vec<_>>(), [ORIGIN, "2"]);
    place.dunlin("registry backup registry --out early.db");
    place.dunlin(&format!("did create --method dunlin --out two {access}"));
    let second = place.dunlin(&format!("{fetch} --since first"));
    assert_eq!(second.lines().nth(1), Some("4"));
    place.write("second", &second);
    // Also while the registry runs.
    let audited = place.dunlin("registry audit registry --checkpoint first --checkpoint second");
    assert_eq!(audited, "registry: sound: 2 operations, 2 DIDs\n");
    assert_eq!(place.dunlin("registry export registry --out tiles"), "tiles: 4 entries\n");
    assert!(place.path("tiles/tile/entries/000.p/4").exists());
    assert_eq!(place.read("tiles/registry.pub"), place.read("registry/registry.pub"));
    place.dunlin("registry backup registry --out late.db");
    let line = place
        .dunlin_fails("registry serve registry --cert pki/server.pem --key pki/server.key --accept 0", 1);
    assert!(line.contains("another process runs this registry"), "{line}");
    registry.stop();

    for directory in ["restored", "refused"] {
        place.tool("mkdir", directory);
        copy(&place, "registry/registry.key", directory);
        copy(&place, "registry/registry.pub", directory);
    }
    let line = place.dunlin_fails("registry restore early.db --checkpoint second --out refused", 1);
    assert!(line.contains("does not have the published checkpoint of 4 entries"), "{line}");
    let line = place.dunlin_fails("registry restore early.db --out refused", 2);
    assert!(line.contains("--checkpoint"), "{line}");
    assert!(!place.path("refused/registry.db").exists());
    let told = place.dunlin("registry restore late.db --checkpoint second --out restored");
    assert_eq!(told, "restored: restored: sound: 2 operations, 2 DIDs\n");
    let line = place.dunlin_fails("registry restore late.db --checkpoint second --out restored", 1);
    assert!(line.contains("exists already"), "{line}");
    // The registry of the early backup would have a second history: who keeps a checkpoint notices.
    let told = place.dunlin("registry restore early.db --unpublished --out refused");
    assert_eq!(told, "refused: restored: sound: 1 operation, 1 DID\n");
    place.tool("rm", "-r registry");
    place.tool("mv", "refused registry");
    let registry = Registry::at(&place, 0);
    let fetch = fetch.replace(&url, &registry.url());
    let line = place.dunlin_fails(&format!("{fetch} --since second"), 1);
    assert!(line.contains("its log has 2 entries, but the registry has already shown 4"), "{line}");
    place.dunlin(&format!("did create --method dunlin --out three {}", registry.access));
    // Both checkpoints are on stderr, too.
    let refused = || {
        let output = place.command(&format!("{fetch} --since second")).output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        let kept = place.read("second").replace('\n', "\\n");
        assert!(told.contains(&format!("keep these checkpoints and report them: {kept} and ")), "{told}");
        assert_eq!(output.status.code(), Some(1));
        told
    };
    let told = refused();
    assert!(told.contains("the registry has signed two histories of 4 entries"), "{told}");
    place.dunlin(&format!("did create --method dunlin --out four {}", registry.access));
    let told = refused();
    assert!(told.contains("it may show others another history") && told.contains(&registry.url()), "{told}");
    registry.stop();
}

#[test]
fn refuses_what_makes_no_registry() {
    let place = place();
    place.dunlin(&format!("registry init --origin {ORIGIN} --out registry"));
    place.dunlin(&format!("registry init --origin {ORIGIN} --out other"));
    assert_eq!(place.mode("registry/registry.key"), 0o600);
    place.write("empty", "# nothing\n");
    place.write("junk", "junk\n");
    copy(&place, "registry", "mixed");
    copy(&place, "other/registry.pub", "mixed/registry.pub");
    copy(&place, "registry", "witnessed");
    let witness = place.read("other/registry.pub").lines().nth(2).unwrap().to_owned();
    place.write("witnessed/registry.pub", place.read("registry/registry.pub") + &witness + "\nneeded 2\n");
    let serve = "--cert pki/server.pem --key pki/server.key --accept 0";
    let https = "--https-CAfile pki/root.pem";
    copy(&place, "other", "open");
    place.set_mode("open/registry.key", 0o640);
    for (arguments, status, told) in [
        ("registry init --origin x --out registry".to_owned(), 1, "exists already"),
        ("registry init --origin 'a b' --out new".to_owned(), 2, "a name has 1 to 255"),
        ("registry init --origin https://a/1 --out new".to_owned(), 2, "an origin has no scheme"),
        ("registry serve none --cert pki/server.pem".to_owned(), 1, "no such file"),
        (format!("registry serve mixed {serve}"), 1, "it is not of the key in registry.key"),
        (
            format!("registry serve witnessed {serve}"),
            2,
            "it names other witnesses or watches, and none is asked",
        ),
        (
            format!("registry serve open {serve}"),
            1,
            "other users can access the key in it (mode 0640); chmod 600 open/registry.key",
        ),
        (
            format!(
                "registry serve registry {serve} --witness https://localhost:1 --witness-CAfile pki/root.pem"
            ),
            2,
            "has no key of another witness",
        ),
        (
            format!(
                "registry serve witnessed {serve} --witness http://localhost:1 --witness-CAfile pki/root.pem"
            ),
            2,
            "plain HTTP is never used",
        ),
        ("did create --method dunlin --out d --registry https://localhost:1".to_owned(), 2, "--registry-key"),
        (
            format!(
                "did create --method dunlin --out d --registry http://localhost:1 --registry-key registry/registry.pub {https}"
            ),
            2,
            "http://localhost:1: not a URL of HTTPS",
        ),
        (
            format!(
                "did create --method dunlin --out d --registry https://localhost:1 --registry-key empty {https}"
            ),
            1,
            "it has no key of a registry",
        ),
        (
            format!(
                "did create --method dunlin --out d --registry https://localhost:1 --registry-key junk {https}"
            ),
            1,
            "line 1: key of a note: write NAME+ID+KEY",
        ),
        (
            format!("registry checkpoint http://localhost:1 --registry-key registry/registry.pub {https}"),
            2,
            "not a URL of HTTPS",
        ),
        (format!("did resolve did:web:localhost%3A1 --did-web {https}"), 1, "localhost:1: not connected"),
        ("did resolve did:key:x --line --registry https://localhost:1".to_owned(), 2, "--line"),
    ] {
        let line = place.dunlin_fails(&arguments, status);
        assert!(line.contains(told), "{arguments}: {line}");
    }
    assert!(!place.path("d").exists());
}

/// A watch replays the registry's log, and verifiers demand its signature.
#[test]
fn a_watch_vouches_for_the_states_of_the_registry() {
    let place = place();
    operator(&place);
    place.dunlin(&format!("registry init --origin {ORIGIN} --out registry"));
    let line = place.dunlin(
        "registry watch init --name watch.example/1 --registry-key registry/registry.pub --out watch",
    );
    assert!(line.starts_with("watch watch.example/1+") && line == place.read("watch/watch.pub"), "{line}");
    let files = "--cert pki/server.pem --key pki/server.key --accept 0";
    let before = place.read("registry/registry.pub");
    let run = |registry: &str| {
        let access =
            format!("--registry {registry} --registry-key registry/registry.pub --https-CAfile pki/root.pem");
        format!("registry watch run watch {access} {files}")
    };
    let refused = place.dunlin_fails(&run("https://localhost:1"), 1);
    assert!(refused.contains("it does not have the key of this watch"), "{refused}");
    place.write("registry/registry.pub", format!("{before}{line}"));
    let refused = place.dunlin_fails(&format!("registry serve registry {files}"), 2);
    assert!(refused.contains("names other witnesses or watches, and none is asked"), "{refused}");

    let early = Running::new(&place, &run("https://localhost:1"));
    let line = early.log_with("the registry does not answer; this watch asks again until it does");
    assert!(line.contains("localhost:1"), "{line}");
    drop(early);
    // Each needs the other's port: the watch first follows a port that does not answer.
    let process = Running::new(&place, &run("https://localhost:1"));
    let port = port_in(&process.log_with("the watch answers"));
    let witness = format!("--witness https://localhost:{port} --witness-CAfile pki/root.pem");
    let serve = Running::new(&place, &format!("registry serve registry {files} {witness}"));
    let registry_port = port_in(&serve.log_with("the registry answers"));
    let access = access(registry_port);
    place.dunlin(&format!("did create --method dunlin --out device {access}"));
    send_signal(&process.child, "-TERM");
    assert_eq!(process.end().0, 0);
    let fetch = format!(
        "registry checkpoint https://localhost:{registry_port} --registry-key registry/registry.pub --https-CAfile pki/root.pem"
    );
    // The watch has seen the empty log alone, and readers see no other one.
    assert_eq!(place.dunlin(&fetch).lines().nth(1), Some("0"));
    let elsewhere = fetch.replace(&registry_port.to_string(), &format!("{registry_port}/elsewhere"));
    let line = place.dunlin_fails(&elsewhere, 1);
    assert!(line.contains("/elsewhere/checkpoint: status 404: "), "{line}");
    assert!(line.contains("; check --registry: "), "{line}");

    let again =
        run(&format!("https://localhost:{registry_port}")).replace("--accept 0", &format!("--accept {port}"));
    let process = Running::new(&place, &again);
    // The registry asks again.
    let did = json(&place.read("device/did.json"))["id"].as_str().unwrap().to_owned();
    let resolve = format!("did resolve {did} {access}");
    while !place.command(&resolve).output().unwrap().status.success() {}
    let shown = place.dunlin(&fetch);
    assert!(shown.contains("\u{2014} watch.example/1 "), "{shown}");
    for running in [process, serve] {
        send_signal(&running.child, "-TERM");
        let (status, _, stderr) = running.end();
        assert_eq!(status, 0, "{stderr}");
    }
}

/// The registry signs with the old and the new key, until all verifiers know the new one.
#[test]
fn a_registry_replaces_its_key() {
    let place = place();
    operator(&place);
    let registry = Registry::new(&place);
    let did = party(&place, &registry, "device");
    let old = place.read("registry/registry.pub");
    place.write("old.pub", &old);
    let of_old = |registry: &Registry| registry.access.replace("registry/registry.pub", "old.pub");
    registry.stop();
    let lines = place.dunlin("registry rekey registry");
    assert_eq!(lines, place.read("registry/registry.pub"));
    let keys = |text: &str| text.lines().filter(|line| line.starts_with(ORIGIN)).count();
    assert_eq!((keys(&old), keys(&lines)), (2, 4));
    let refused = place.dunlin_fails("registry rekey registry", 1);
    assert!(refused.contains("next.key"), "{refused}");

    let registry = Registry::at(&place, 0);
    for access in [of_old(&registry), registry.access.clone()] {
        assert_eq!(json(&place.dunlin(&format!("did resolve {did} {access}")))["id"], *did);
    }
    registry.stop();
    let lines = place.dunlin("registry rekey registry --finish");
    assert_eq!((lines.as_str(), keys(&lines)), (place.read("registry/registry.pub").as_str(), 2));
    assert!(!place.path("registry/next.key").exists());
    let registry = Registry::at(&place, 0);
    place.dunlin(&format!("did update device {}", registry.access));
    let line = place.dunlin_fails(&format!("did resolve {did} {}", of_old(&registry)), 1);
    assert!(line.contains("has not signed it"), "{line}");
    let refused = place.dunlin_fails("registry rekey registry --finish", 1);
    assert!(refused.contains("there is no new key"), "{refused}");
    registry.stop();
}

/// One of two signatures would suffice, also the registry's own.
#[test]
fn witnesses_that_need_not_sign_are_warned_of() {
    let place = place();
    place.dunlin(&format!("registry init --origin {ORIGIN} --out registry"));
    place.dunlin("registry init --origin witness.example --out witness");
    let keys =
        place.read("registry/registry.pub") + place.read("witness/registry.pub").lines().last().unwrap();
    place.write("registry/registry.pub", &keys);
    let told = |keys: &str| {
        place.write("registry/registry.pub", keys);
        let output = place.command("registry audit registry").output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(told(&keys).contains("one signature suffices"), "{keys}");
    assert_eq!(told(&format!("{keys}\nneeded 2\n")), "");
}

/// Strangers create no DIDs. The list is read again when it changes.
#[test]
fn creations_demand_admission() {
    let place = place();
    place.dunlin(&format!("registry init --origin {ORIGIN} --out registry"));
    let files = "--cert pki/server.pem --key pki/server.key --accept 0 --admit dids";
    let refused = place.dunlin_fails(&format!("registry serve registry {files}"), 1);
    assert!(refused.contains("dids"), "{refused}");
    place.write("dids", "# Nobody yet.\n");
    let process = Running::new(&place, &format!("registry serve registry {files}"));
    let access = access(port_in(&process.log_with("the registry answers")));
    let create = |name: &str| {
        let did = place.dunlin(&format!("did create --method dunlin --registry {ORIGIN} --out {name}"));
        did.trim_end().to_owned()
    };
    let [device, stranger] = ["device", "stranger"].map(create);
    let publish = |name: &str| format!("did publish {name} {access}");
    let refused = place.dunlin_fails(&publish("device"), 1);
    assert!(refused.contains("status 403") && refused.contains("operator's list"), "{refused}");
    place.write("dids", format!("{device}  # building 7\n"));
    assert_eq!(place.dunlin(&publish("device")), format!("{device}: version 0\n"));
    assert!(place.dunlin_fails(&publish("stranger"), 1).contains("status 403"), "{stranger}");
    // A list that cannot be read changes nothing.
    place.write("dids", "nonsense\n");
    assert!(place.dunlin_fails(&publish("stranger"), 1).contains("status 403"));
    process.log_with("the list of admitted DIDs stays as it was");
    place.dunlin(&format!("did update device {access}"));
    send_signal(&process.child, "-TERM");
    let (status, _, stderr) = process.end();
    assert_eq!(status, 0, "{stderr}");
}
