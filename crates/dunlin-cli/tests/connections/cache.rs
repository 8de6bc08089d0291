//! Tests `--cache` of `dunlin client` and `dunlin server`: repeated handshakes omit the certificates.

use crate::peers::{CLIENT, KEY, OWN, Running, SERVER, Server, json, place};
use dunlin_tests::place::Place;
use serde_json::Value;

/// Connects a client with a store, and returns its report of the connection.
fn connect(server: &Server, place: &Place, more: &str) -> Value {
    let told = server.echo(place, &format!("{CLIENT} {OWN} --json {more}"), "");
    json(told.lines().next().unwrap())
}

fn cached(told: &Value) -> [bool; 2] {
    ["server_certificate_cached", "client_certificate_cached"].map(|name| told[name].as_bool().unwrap())
}

/// The length of the Certificate message that this side has sent.
fn sent_certificate(told: &Value) -> u64 {
    let is_own = |m: &&Value| m["sent"] == true && m["name"] == "Certificate";
    told["messages"].as_array().unwrap().iter().find(is_own).unwrap()["bytes"].as_u64().unwrap()
}

fn server(place: &Place, more: &str) -> Server {
    server_at(place, 0, more)
}

fn server_at(place: &Place, port: u16, more: &str) -> Server {
    let options = format!("{SERVER} --CAfile pki/root.pem --Verify --num-tickets 0 {more}");
    Server::at(place, port, &options)
}

#[test]
fn caches_in_every_mode_and_version() {
    let place = place();
    for version in ["-tls1_2", "-tls1_3"] {
        for (mode, repeated) in
            [("rfc7924", [true, false]), ("bithac", [true, true]), ("compact", [true, true])]
        {
            let options = format!("{version} --cache {mode}");
            let server = server(&place, &format!("{options} --json"));
            let client = format!("{options} --cache-store {mode}{version}.cache");
            let first = connect(&server, &place, &client);
            assert_eq!(cached(&first), [false, false], "{options}");
            let repeat = connect(&server, &place, &client);
            assert_eq!(cached(&repeat), repeated, "{options}");
            assert!(repeat["handshake_bytes_read"].as_u64() < first["handshake_bytes_read"].as_u64());
            assert_eq!(repeat["peer"], first["peer"]);
            // Each side reports the saved bytes: the difference between its two Certificate messages.
            let of_server = [(); 2].map(|()| json(&server.process.line()));
            for ([first, repeat], is_cached) in
                [([&first, &repeat], repeated[1]), (of_server.each_ref(), repeated[0])]
            {
                let [sent, again] = [first, repeat].map(sent_certificate);
                assert_eq!([&first["handshake"], &repeat["handshake"]], ["full", "cached"]);
                assert_eq!(
                    (&first["saved_bytes"], &repeat["saved_bytes"]),
                    (&0.into(), &(sent - again).into())
                );
                assert_eq!(repeat["saved_bytes"].as_u64() > Some(300), is_cached, "{repeat}");
            }
        }
    }
}

#[test]
fn stores_outlive_the_process_on_either_side() {
    let place = place();
    let options = "--cache compact --cache-store server.cache --cache-key seal.key";
    let client = "--cache compact --cache-store client.cache";
    let first = server(&place, options);
    // The port belongs to the server's identity in the client's store.
    let port = first.port;
    let server = |options: &str| server_at(&place, port, options);
    assert_eq!(cached(&connect(&first, &place, client)), [false, false]);
    drop(first);
    for name in ["server.cache", "client.cache", "seal.key", "client.cache.key"] {
        assert_eq!(place.mode(name) & 0o777, 0o600, "{name}");
    }
    assert_eq!(cached(&connect(&server(options), &place, client)), [true, true]);
    // With another key the store is empty, and the handshake is full.
    let other = server("--cache compact --cache-store server.cache --cache-key other.key");
    assert_eq!(cached(&connect(&other, &place, client)), [true, false]);
    let told = "server.cache: no entry in this store opens with this key: the cache starts empty";
    assert!(other.warnings.contains(told), "{}", other.warnings);
    drop(other);
    // A damaged store is set aside, with one warning.
    let whole = std::fs::read(place.path("client.cache")).unwrap();
    place.write("client.cache", &whole[..whole.len() / 2]);
    let again = server(options);
    let output = again.client(&place, &format!("{CLIENT} {OWN} --json {client}"), "");
    let warning = String::from_utf8(output.stderr).unwrap();
    assert!(warning.contains("client.cache") && warning.contains("set aside"), "{warning}");
    assert!(output.status.success());
    assert_eq!(cached(&connect(&again, &place, client)), [true, true]);
}

#[test]
fn accepts_every_kind_of_store() {
    let place = place();
    let first = server(&place, "--cache compact --cache-store sqlite:clients.db");
    assert!(place.files().iter().any(|name| name == "clients.db.key"), "{:?}", place.files());
    let port = first.port;
    let client = "--cache compact --cache-store sqlite:servers.db --cache-key k";
    assert_eq!(cached(&connect(&first, &place, client)), [false, false]);
    drop(first);
    let again = server_at(&place, port, "--cache compact --cache-store sqlite:clients.db");
    assert_eq!(cached(&connect(&again, &place, client)), [true, true]);
    // Without Redis handshakes are full, and the server warns.
    let nowhere = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let options = format!("--cache compact --cache-store redis://{nowhere}");
    let told = place.dunlin_fails(&format!("server --accept 0 {SERVER} {options}"), 2);
    assert!(told.contains("--cache-key"), "{told}");
    let asks = "--CAfile pki/root.pem --Verify";
    let told =
        place.dunlin_fails(&format!("server --accept 0 {SERVER} {asks} {options} --cache-key none"), 1);
    assert!(told.contains("none: no such key"), "{told}");
    // The password comes from a file and is not printed.
    place.write("url", format!("redis://:secret@{nowhere}/1\n"));
    let alone = server(&place, "--cache compact --cache-store redis+file:url --cache-key k");
    for _ in 0..2 {
        assert!(!cached(&connect(&alone, &place, "--cache compact --cache-store c"))[1]);
    }
    let told = &alone.warnings;
    assert!(told.contains("until it works again, certificates are sent in full"), "{told}");
    assert!(told.contains(&nowhere.port().to_string()) && !told.contains("secret"), "{told}");
}

#[test]
fn both_sides_report_the_cache() {
    let place = place();
    let server = server(&place, "--cache compact");
    let client = format!("{CLIENT} {OWN} --cache compact --cache-store c --brief");
    server.echo(&place, &client, "");
    assert!(server.echo(&place, &client, "").contains(", cached certificates of both sides"));
    let log = server.process.log_with("cached certificates");
    assert!(log.contains("cached certificates of both sides"), "{log}");
    let told = server.echo(&place, &format!("{CLIENT} {OWN} --cache compact --cache-store c"), "");
    assert!(told.contains("Cached             certificates of both sides"), "{told}");
}

/// Returns the client's line about its cache.
fn told(server: &Server, place: &Place, more: &str) -> String {
    let report = server.echo(place, &format!("{CLIENT} {OWN} {more}"), "");
    let line = report.lines().find_map(|line| line.strip_prefix("Cached             "));
    line.unwrap_or_else(|| panic!("nothing of the cache:\n{report}")).to_owned()
}

#[test]
fn explains_why_the_cache_was_not_used() {
    let place = place();
    let cache = "--cache compact --cache-store c";
    let of_server = server(&place, "--cache compact");
    assert!(told(&of_server, &place, cache).starts_with("nothing: first connection with this server"));
    assert!(
        of_server.process.log_with("connected").contains("cached nothing: this server has no current entry")
    );
    // The age of an entry counts from its creation.
    let short = format!("{cache} --cache-max-age 1");
    let old = std::iter::repeat_with(|| told(&of_server, &place, &short)).find(|told| !told.contains("both"));
    assert_eq!(old.unwrap(), "nothing: the entry is out of date");
    // The server has no cache.
    let plain = of_server.echo(&place, &format!("{CLIENT} {OWN}"), "");
    assert!(!plain.contains("Cached"), "{plain}");
    of_server.process.log_with("cached nothing: the client has no cache");
    let without = server_at(&place, 0, "");
    for _ in 0..2 {
        assert_eq!(
            told(&without, &place, "--cache compact --cache-store d"),
            "nothing: the server has no cache or one of another mode"
        );
    }
    for says in
        ["first connection with this server under these settings", "the server has no cache or one of"]
    {
        let told = told(&without, &place, "--cache bithac --cache-store e");
        assert!(told.starts_with(&format!("nothing: {says}")), "{told}");
    }
    // Sessions and pre-shared keys do not use the cache.
    let tickets = format!("{SERVER} --CAfile pki/root.pem --Verify --cache compact");
    let tickets = Server::new(&place, &tickets);
    server_gives_a_session(&tickets, &place, cache);
    assert_eq!(told(&tickets, &place, &format!("{cache} --sess-in s")), "nothing: a session was resumed");
    tickets.process.log_with("cached nothing: a session was resumed");
    // A client without a usable ticket sends its Certificate.
    let rfc = server(&place, "--cache rfc7924");
    told(&rfc, &place, "--cache rfc7924 --cache-store r");
    assert_eq!(
        told(&rfc, &place, "--cache rfc7924 --cache-store r"),
        "certificate of the server; the client's was sent: this client has no free ticket for it or the \
         mode has no tickets"
    );
    rfc.process.log_with("the client sent no ticket for it");
}

fn server_gives_a_session(server: &Server, place: &Place, more: &str) {
    server.echo(place, &format!("{CLIENT} {OWN} {more} --sess-out s"), "x");
}

#[test]
fn remembers_a_failed_handshake() {
    let place = place();
    let cache = "--cache compact --cache-store c";
    let first = server(&place, "--cache compact");
    let port = first.port;
    told(&first, &place, cache);
    drop(first);
    // The impostor copies the name of the certificate, and then refuses the client.
    place.dunlin("pki demo --out other");
    let options = format!("{SERVER} --CAfile other/root.pem --Verify --num-tickets 0 --cache compact");
    let refuses = Server::at(&place, port, &options);
    // The client sends no data after its Finished: unread data would make the server reset the connection,
    // and the reset could overtake the alert.
    let refused = Running::new(&place, &format!("client localhost:{port} {CLIENT} {OWN} {cache}"));
    refused.log_with("the server refused the credential of this client");
    assert_eq!(refused.end().0, 1);
    drop(refuses);
    let again = server_at(&place, port, "--cache compact");
    assert_eq!(told(&again, &place, cache), "nothing: the last handshake with this server failed");
    assert_eq!(told(&again, &place, cache), "certificates of both sides");
}

/// A new CRL applies to the next connection, also of a cached client. With a damaged CRL all clients are
/// refused.
#[test]
fn refuses_a_revoked_client_although_it_is_cached() {
    let place = place();
    let crl = |more: &str| {
        let sub = "--issuer pki/intermediate.pem --issuer-key pki/intermediate.key";
        place.dunlin(&format!("pki crl {sub} --crl new.pem {more}"));
        std::fs::rename(place.path("new.pem"), place.path("list.pem")).unwrap();
    };
    let cache = "--cache compact --cache-store c";
    for version in ["-tls1_2", "-tls1_3"] {
        crl("");
        let server = server(&place, &format!("{version} --cache compact -crl_check -CRL list.pem"));
        let client = format!("{version} {cache}");
        told(&server, &place, &client);
        assert_eq!(told(&server, &place, &client), "certificates of both sides");
        place.write("list.pem", "damaged");
        assert_eq!(told(&server, &place, &client), "certificates of both sides");
        server.process.log_with("list.pem: neither PEM nor DER");
        crl("--revoke pki/server.pem");
        // Each change is reported once, although the file is read more often.
        let news = || server.process.log_with("reloaded");
        assert_eq!(
            told(&server, &place, &client),
            "certificate of the server; the client's was sent: the server does not know its ticket or has an outdated entry",
            "each is verified once under the new list"
        );
        assert!(news().ends_with("list.pem"));
        server.process.log_with("this server does not know its ticket or has an outdated entry");
        assert_eq!(told(&server, &place, &client), "certificates of both sides");
        let next = server.process.log();
        assert!(next.contains("cached certificates of both sides"), "{next}");
        crl("--revoke pki/client.pem");
        let (_, log) = server.refused(&place, &format!("{CLIENT} {OWN} {client}"));
        assert!(log.contains("this server refused the client: its certificate is revoked"), "{log}");
    }
}

/// A CRL from a pipe stays in force when another one changes: a pipe cannot be read again.
#[test]
fn reads_a_crl_from_a_pipe_once() {
    let place = place();
    let crl = |issuer: &str, to: &str, more: &str| {
        let by = format!("--issuer pki/{issuer}.pem --issuer-key pki/{issuer}.key");
        place.dunlin(&format!("pki crl {by} --crl {to} {more}"));
    };
    crl("root", "root-list.pem", "");
    crl("intermediate", "list.pem", "");
    place.tool("mkfifo", "pipe");
    let list = place.read("root-list.pem");
    let pipe = place.path("pipe");
    let writer = std::thread::spawn(move || std::fs::write(pipe, list).unwrap());
    let server = server(&place, "-crl_check_all -CRL pipe -CRL list.pem");
    writer.join().unwrap();
    connect(&server, &place, "");
    crl("intermediate", "list.pem", "--revoke pki/client.pem");
    let (_, log) = server.refused(&place, &format!("{CLIENT} {OWN}"));
    assert!(log.contains("this server refused the client: its certificate is revoked"), "{log}");
}

#[test]
fn warns_of_a_cache_without_effect() {
    let place = place();
    let psk = format!("--psk {KEY}");
    let server = Server::new(&place, &format!("{psk} --echo --cache compact"));
    assert!(
        server.warnings.contains("--cache: it has no effect without certificates"),
        "{}",
        server.warnings
    );
    for store in ["", "--cache-store c"] {
        let output = server.client(&place, &format!("{psk} --cache compact {store}"), "");
        let warning = String::from_utf8(output.stderr).unwrap();
        assert!(warning.contains("--cache: it has no effect without certificates"), "{warning}");
        assert_eq!(warning.lines().count(), 1, "{warning}");
        let report = String::from_utf8(output.stdout).unwrap();
        assert!(
            report.contains("Cached             nothing: a PSK authenticates this connection"),
            "{report}"
        );
    }
    // One warning, and no files for a cache that would stay empty.
    let files = place.files();
    for (options, says) in [
        (format!("{psk} --echo --cache compact"), "--cache: it has no effect without certificates"),
        (format!("{SERVER} --cache compact"), "--cache-store: the server requests no client certificates"),
        (
            format!("{SERVER} --CAfile pki/root.pem --Verify --cache rfc7924"),
            "--cache-store: a server caches nothing in mode rfc7924",
        ),
    ] {
        let warnings = Server::new(&place, &format!("{options} --cache-store s")).warnings;
        assert!(warnings.contains(says), "{warnings}");
        assert_eq!(warnings.lines().count(), 1, "{warnings}");
    }
    assert_eq!(place.files(), files);
    // One connection, and no store.
    let server = server_at(&place, 0, "--cache compact");
    let output = server.client(&place, &format!("{CLIENT} {OWN} --cache compact"), "");
    let warning = String::from_utf8(output.stderr).unwrap();
    assert!(warning.contains("add --cache-store"), "{warning}");
}

/// The help has an example and names the page about stores.
#[test]
fn help_explains_the_cache() {
    let place = place();
    for side in ["client", "server"] {
        let help = place.dunlin(&format!("{side} --help"));
        let (_, examples) = help.split_once("Examples:\n").unwrap();
        assert!(examples.contains(" --cache compact"), "{help}");
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../").to_owned();
        let mut pages = examples.split_whitespace().filter(|word| word.starts_with("docs/"));
        let explains =
            |page: &str| std::fs::read_to_string(root.clone() + page).unwrap().contains("`--cache-store`");
        assert!(pages.any(explains), "{examples}");
    }
}

/// A pipe without a writer: opening it blocks.
fn pipe(place: &Place, name: &str) {
    place.tool("mkfifo", place.path(name).to_str().unwrap());
}

/// A device whose disk is full, damaged or read-only connects all the same.
#[test]
fn connects_without_an_unusable_store() {
    let place = place();
    let server = server(&place, "--cache compact");
    pipe(&place, "pipe");
    place.write("zeroed", [0; 100]);
    place.write("seal", [7; 32]);
    let key = place.read("pki/client.key");
    for (store, says) in [
        ("none/c", "none/c: No such file"),
        // No user, not even root, can create a file there.
        ("/proc/self/c", "/c: No such file"),
        ("sqlite:/proc/self/c", "/c: No such file"),
        ("zeroed", "zeroed: not a handshake cache"),
        ("sqlite:zeroed", "zeroed: not a handshake cache"),
        ("pki/client.key", "pki/client.key: not a handshake cache"),
        ("pipe", "pipe: not a regular file"),
        ("sqlite:pipe", "pipe: not a regular file"),
        ("sqlite:pki", "pki: not a regular file"),
        ("c --cache-key none/k", "none/k: there is no directory none"),
    ] {
        let own = if store.contains("--cache-key") { "" } else { "--cache-key seal" };
        let client = format!("{CLIENT} {OWN} --cache compact --cache-store {store} {own}");
        let output = server.client(&place, &client, "");
        let warning = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{store}: {warning}");
        assert!(warning.starts_with("dunlin: warning: ") && warning.contains(says), "{store}: {warning}");
        let then = "continuing without it: cached entries are lost at the end of this run\n";
        assert!(warning.ends_with(then) && warning.lines().count() == 1, "{store}: {warning}");
    }
    // Files that are not stores are left alone.
    assert_eq!(place.read("pki/client.key"), key);
    // Without a store, the server caches in memory.
    let in_memory = self::server(&place, "--cache compact --cache-store none/c");
    assert!(in_memory.warnings.contains("none/c: No such file"), "{}", in_memory.warnings);
    assert_eq!(cached(&connect(&in_memory, &place, "--cache compact --cache-store d")), [false, false]);
    assert_eq!(cached(&connect(&in_memory, &place, "--cache compact --cache-store d")), [true, true]);
}

#[test]
fn refuses_the_store_of_the_other_side() {
    let place = place();
    for store in ["shared", "sqlite:shared.db"] {
        let server = server(&place, &format!("--cache compact --cache-store {store}"));
        let client = format!("client localhost:{} {CLIENT} {OWN}", server.port);
        let told = place.dunlin_fails(&format!("{client} --cache compact --cache-store {store}"), 2);
        let why = "a client and a server cannot share a store, and this one belongs to the other side";
        assert!(told.contains(why) && told.ends_with("give each side its own file"), "{told}");
    }
}

#[test]
fn warns_of_a_password_that_others_can_read() {
    let place = place();
    place.write("k", [7; 32]);
    place.write("url", "redis://:secret@localhost:1");
    place.set_mode("url", 0o644);
    let server = server(&place, "--cache compact --cache-store redis+file:url --cache-key k");
    let told = "url: other users can access the password in it";
    assert!(server.warnings.contains(told), "{}", server.warnings);
}

#[test]
fn wrong_options_are_refused() {
    let place = place();
    for (options, words) in [
        ("--cache-store c", "--cache"),
        ("--cache compact --cache-key k", "--cache-store"),
        ("--cache large", "compact"),
        ("--cache compact --cache-max-age 0", "seconds"),
        ("--cache compact --cache-max-age 315360001", "more than ten years"),
        ("--cache compact --cache-store=", "the value is empty"),
        ("--cache compact --cache-store sqlite:", "missing file name"),
        ("--cache compact --cache-store redis+file:", "missing file name"),
        ("--cache compact --cache-store redis:127.0.0.1:7391", "not a Redis URL; write it as redis://"),
        ("--cache compact --cache-store redis://localhost/x --cache-key k", "not a Redis URL"),
        ("--cache compact --cache-store c --cache-key ./c", "--cache-key: it is the file of --cache-store"),
        (
            "--cache compact --cache-store sqlite:pki/root.pem --cache-key pki/../pki/root.pem",
            "--cache-key: it is",
        ),
    ] {
        place.write("k", [7; 32]);
        let told = place.dunlin_fails(&format!("client localhost:1 {CLIENT} {options}"), 2);
        assert!(told.contains(words), "{options}: {told}");
    }
    // A mistyped kind is not taken for a file name, and no password is repeated.
    for (store, words) in [
        ("sqllite:x", "unknown kind of store; use FILE (./FILE if its name has a colon), sqlite:FILE"),
        ("SQLITE:x", "unknown kind"),
        ("redis+flie:x", "unknown kind"),
        ("redis-file:x", "unknown kind"),
        ("rediss+file:x", "unknown kind"),
        ("sqlite::memory:", "invalid file name"),
        ("redi://:geheim@localhost", "unknown kind"),
        ("redis//:geheim@localhost", "unknown kind"),
        ("redis+file:redis://:geheim@localhost", "invalid file name"),
        ("rediss://:geheim@localhost", "TLS to Redis is not supported"),
        ("redis:/:geheim@localhost", "not a Redis URL"),
        ("redis://:geheim@localhost:99999", "not a Redis URL"),
        ("redis://geheim/geheim@localhost", "%2F"),
    ] {
        let options = format!("--cache compact --cache-store {store} --cache-key k");
        let told = place.dunlin_fails(&format!("client localhost:1 {CLIENT} {options}"), 2);
        assert!(told.contains(words) && !told.contains("geheim"), "{store}: {told}");
    }
    let told = place.dunlin_fails("client redis://:geheim@localhost --cache compact", 2);
    assert!(!told.contains("geheim"), "{told}");
    std::fs::remove_file(place.path("k")).unwrap();
    place.write("short.key", "short");
    place.write("k.key", [7; 32]);
    let no_url = "--cache compact --cache-store redis+file:short.key --cache-key k.key";
    let told = place.dunlin_fails(&format!("client localhost:1 {CLIENT} {no_url}"), 1);
    assert!(told.contains("short.key: not a Redis URL"), "{told}");
    place.write("bad.url", "redis://:geheim@local host");
    let no_url = "--cache compact --cache-store redis+file:bad.url --cache-key k.key";
    let told = place.dunlin_fails(&format!("client localhost:1 {CLIENT} {no_url}"), 1);
    assert!(told.contains("bad.url: not a Redis URL") && !told.contains("geheim"), "{told}");
    pipe(&place, "pipe");
    place.write("wide.key", [7; 32]);
    place.set_mode("wide.key", 0o640);
    std::os::unix::fs::symlink("k.key", place.path("link.key")).unwrap();
    for (options, words) in [
        ("--cache compact --cache-store c --cache-key short.key", "short.key: it has 5 bytes"),
        ("--cache compact --cache-store c --cache-key pipe", "pipe: not a regular file"),
        ("--cache compact --cache-store redis://localhost:1 --cache-key pipe", "pipe: not a regular file"),
        ("--cache compact --cache-store redis://localhost:1 --cache-key none", "/dev/urandom > none)"),
        ("--cache compact --cache-store c --cache-key wide.key", "(mode 0640); chmod 600 wide.key"),
        ("--cache compact --cache-store c --cache-key link.key", "link.key: it is a symbolic link"),
    ] {
        let told = place.dunlin_fails(&format!("client localhost:1 {CLIENT} {options}"), 1);
        assert!(told.contains(words), "{options}: {told}");
    }
}
