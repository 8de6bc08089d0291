//! Tests `dunlin pki`: webpki, OpenSSL and GnuTLS judge its certificates, and bad input gets clear errors.

use dunlin_tests::place::Place;
use serde_json::Value;

/// The key types that OpenSSL 3.0 supports.
const KEY_TYPES: [&str; 8] =
    ["rsa2048", "rsapss2048", "rsa3072", "rsa4096", "p256", "p384", "p521", "ed25519"];

/// Checks that all three validators accept the chain in `leaf` under `root` for `purpose`.
fn all_accept(place: &Place, root: &str, leaf: &str, purpose: &str, strict: bool) {
    place.dunlin(&format!("pki verify --ca {root} {leaf} --{purpose}"));
    let strict = if strict { "-x509_strict" } else { "" };
    place.tool(
        "openssl",
        &format!("verify {strict} -purpose ssl{purpose} -CAfile {root} -untrusted {leaf} {leaf}"),
    );
    let usage = if purpose == "server" { "1.3.6.1.5.5.7.3.1" } else { "1.3.6.1.5.5.7.3.2" };
    place.tool(
        "certtool",
        &format!("--verify --verify-purpose={usage} --load-ca-certificate {root} --infile {leaf}"),
    );
}

fn all_refuse(place: &Place, root: &str, leaf: &str) {
    place.dunlin_fails(&format!("pki verify --ca {root} {leaf}"), 1);
    place.tool_fails("openssl", &format!("verify -CAfile {root} -untrusted {leaf} {leaf}"));
    place.tool_fails("certtool", &format!("--verify --load-ca-certificate {root} --infile {leaf}"));
}

fn show(place: &Place, file: &str) -> Vec<Value> {
    serde_json::from_str(&place.dunlin(&format!("pki show {file} --json"))).unwrap()
}

/// Makes a tree in each form; all three validators must accept its chains.
fn tree_is_accepted(key_type: &str) {
    let place = Place::new();
    place.dunlin("pki ca --name stranger --cert stranger.pem --key stranger.key");
    for form in ["", "--lean"] {
        place.dunlin(&format!("pki demo --out . --force --key-type {key_type} {form}"));
        for leaf in ["server", "client"] {
            // OpenSSL's strict mode demands key identifiers, which the lean form leaves out.
            all_accept(&place, "root.pem", &format!("{leaf}.pem"), leaf, form.is_empty());
            all_refuse(&place, "stranger.pem", &format!("{leaf}.pem"));
            // The key is well formed and belongs to the certificate.
            place.tool("openssl", &format!("pkey -in {leaf}.key -noout -check"));
            place.tool("certtool", &format!("--key-info --infile {leaf}.key"));
            assert_eq!(
                place.tool("openssl", &format!("pkey -in {leaf}.key -pubout")),
                place.tool("openssl", &format!("x509 -in {leaf}.pem -noout -pubkey")),
            );
            assert_eq!(
                (place.mode(&format!("{leaf}.key")), place.mode(&format!("{leaf}.pem"))),
                (0o600, 0o644)
            );
        }
        for name in ["localhost", "127.0.0.1"] {
            let kind = if name == "localhost" { "hostname" } else { "ip" };
            place.dunlin(&format!("pki verify --ca root.pem server.pem --name {name}"));
            place.tool(
                "openssl",
                &format!("verify -verify_{kind} {name} -CAfile root.pem -untrusted server.pem server.pem"),
            );
        }
        let certtool = "--verify --load-ca-certificate root.pem --infile server.pem --verify-hostname";
        place.tool("certtool", &format!("{certtool} localhost"));
        place.tool_fails("certtool", &format!("{certtool} example.com"));
    }
}

#[test]
fn validators_accept_rsa_trees() {
    ["rsa2048", "rsa3072", "rsa4096", "rsapss2048"].into_iter().for_each(tree_is_accepted);
}

#[test]
fn validators_accept_elliptic_curve_trees() {
    ["p256", "p384", "p521", "ed25519"].into_iter().for_each(tree_is_accepted);
}

#[test]
fn a_chain_may_mix_key_types_and_forms() {
    let place = Place::new();
    place.dunlin("pki ca --subject 'CN=Root,O=Example\\, Inc.' --key-type p384");
    place.dunlin(
        "pki intermediate --issuer ca.pem --issuer-key ca.key --name Sub --path-len 0 --key-type rsa2048",
    );
    let issuer = "--issuer intermediate.pem --issuer-key intermediate.key --force";
    for form in ["", "--lean"] {
        place.dunlin(&format!(
            "pki leaf {issuer} {form} --key-type ed25519 --san localhost --san IP:::1 --san did:example:1 --server"
        ));
        all_accept(&place, "ca.pem", "leaf.pem", "server", form.is_empty());
        place.dunlin("pki verify --ca ca.pem leaf.pem --name ::1");
        place.dunlin_fails("pki verify --ca ca.pem leaf.pem --client", 1);
        let leaf = &show(&place, "leaf.pem")[0];
        assert_eq!(leaf["names"], serde_json::json!(["DNS:localhost", "IP:::1", "URI:did:example:1"]));

        place.dunlin(&format!("pki leaf {issuer} {form} --name 'sensor 7' --client"));
        all_accept(&place, "ca.pem", "leaf.pem", "client", form.is_empty());
        assert_eq!(show(&place, "leaf.pem")[0]["subject"], "CN=sensor 7");
    }
    // With --no-chain the file holds only the certificate.
    place.dunlin(&format!("pki leaf {issuer} --client --name x --no-chain"));
    assert_eq!(show(&place, "leaf.pem").len(), 1);
    // The path length is 0: `dunlin` makes no authority below, and refuses one that OpenSSL made.
    let line = place.dunlin_fails(
        "pki intermediate --issuer intermediate.pem --issuer-key intermediate.key --name SubSub --force",
        1,
    );
    assert!(line.starts_with("dunlin: intermediate.pem: the path has more authorities"), "{line}");
    place.tool("openssl", "req -new -newkey rsa:2048 -nodes -keyout sub.key -subj /CN=SubSub -out sub.csr");
    place.write("sub.ext", "basicConstraints=critical,CA:true\n");
    let issuer = "-CA intermediate.pem -CAkey intermediate.key -CAcreateserial";
    place.tool("openssl", &format!("x509 -req -in sub.csr {issuer} -extfile sub.ext -out sub.pem"));
    place.dunlin("pki leaf --issuer sub.pem --issuer-key sub.key --name x --client --force");
    let chain = place.read("leaf.pem") + &place.read("intermediate.pem");
    place.write("leaf.pem", chain);
    let line = place.dunlin_fails("pki verify --ca ca.pem leaf.pem", 1);
    assert!(line.contains("more authorities"), "{line}");
    // If the issuer's file holds the whole chain, `pki leaf` sees the limit.
    let chain = place.read("sub.pem") + &place.read("intermediate.pem");
    place.write("sub.pem", chain);
    place.dunlin_fails("pki leaf --issuer sub.pem --issuer-key sub.key --name x --client --force", 1);
}

/// OpenSSL encodes the authorities' names in other string types. Their keys come in all three encodings.
#[test]
fn issues_with_authorities_that_openssl_made() {
    let place = Place::new();
    let request = "req -x509 -days 30 -subj '/C=DE/O=Grüße/CN=Other root' -utf8 -out ca.pem -addext keyUsage=keyCertSign";
    for make_key in [
        "ecparam -name prime256v1 -genkey -out ca.key",
        "genrsa -traditional -out ca.key 2048",
        "genpkey -algorithm ed25519 -out ca.key",
    ] {
        place.tool("openssl", make_key);
        place.tool("openssl", &format!("{request} -key ca.key"));
        place.dunlin("pki leaf --issuer ca.pem --issuer-key ca.key --san localhost --force");
        all_accept(&place, "ca.pem", "leaf.pem", "server", true);
        // The same in DER.
        place.tool("openssl", "x509 -in ca.pem -outform der -out ca.der");
        place.tool("openssl", "pkey -in ca.key -outform der -out key.der");
        place.dunlin("pki leaf --issuer ca.der --issuer-key key.der --san localhost --lean --force");
        all_accept(&place, "ca.pem", "leaf.pem", "client", false);
    }
}

#[test]
fn lean_chains_stay_within_their_size_limits() {
    for (key_type, bar) in [("rsa2048", 803), ("p256", 405), ("ed25519", 342)] {
        let place = Place::new();
        place.dunlin(&format!("pki demo --out . --lean --key-type {key_type}"));
        let chain = show(&place, "server.pem");
        let bytes: u64 = chain.iter().map(|certificate| certificate["bytes"].as_u64().unwrap()).sum();
        assert!(chain.len() == 2 && bytes <= 2 * bar, "{key_type}: {bytes} bytes");
    }
}

/// OpenSSL 3.0 and GnuTLS 3.7 do not support ML-DSA, so only `dunlin pki verify` checks these trees.
#[test]
fn pki_verify_accepts_ml_dsa_trees() {
    for (key_type, algorithm) in [("mldsa44", "ML-DSA-44"), ("mldsa65", "ML-DSA-65")] {
        let place = Place::new();
        place.dunlin(&format!("pki demo --out . --key-type {key_type}"));
        place.dunlin("pki verify --ca root.pem server.pem --server --name localhost");
        place.dunlin("pki verify --ca root.pem client.pem --client");
        let shown = show(&place, "server.pem");
        assert_eq!((&shown[0]["public_key"]["algorithm"], shown.len()), (&algorithm.into(), 2));
        assert_eq!(show(&place, "server.key")[0]["key_type"], key_type);
    }
}

#[test]
fn raw_key_writes_a_private_key_and_its_public_key() {
    for key_type in KEY_TYPES {
        let place = Place::new();
        place.dunlin(&format!("pki raw-key --key-type {key_type} --key device.key --public device.pub"));
        assert_eq!(place.files(), ["device.key", "device.pub"]);
        assert_eq!((place.mode("device.key"), place.mode("device.pub")), (0o600, 0o644));
        assert_eq!(place.tool("openssl", "pkey -in device.key -pubout"), place.read("device.pub"));

        place.tool("openssl", "pkey -pubin -in device.pub -outform der -out pub.der");
        let [private, public, der] = ["device.key", "device.pub", "pub.der"].map(|file| show(&place, file));
        assert_eq!((&private[0]["kind"], &private[0]["key_type"]), (&"private_key".into(), &key_type.into()));
        assert_eq!(public, der);
        assert_eq!(public[0]["kind"], "public_key");
        assert_eq!(public[0]["sha256"], private[0]["public_key"]["sha256"]);
        // `show` prints nothing of the private key itself.
        let secret = place.read("device.key");
        let shown = place.dunlin("pki show device.key") + &place.dunlin("pki show device.key --json");
        assert!(secret.lines().all(|line| !shown.contains(line)));
    }
}

#[test]
fn show_describes_every_item_of_a_file() {
    let place = Place::new();
    place.dunlin("pki ca --name R --key-type p384 --not-before 2026-01-01 --not-after 2051-01-01T12:00:00Z");
    let text = place.dunlin("pki show ca.pem");
    for part in [
        "authority's certificate, ",
        "CN=R",
        "P-384",
        "ecdsa-with-SHA384",
        "2026-01-01T00:00:00Z to 2051-01-01T12:00:00Z",
        "keyCertSign, cRLSign",
        "subjectPublicKeyInfo 120",
    ] {
        assert!(text.contains(part), "{part} not in {text}");
    }
    let info = &show(&place, "ca.pem")[0];
    assert_eq!((&info["kind"], &info["ca"]), (&"certificate".into(), &true.into()));
    assert_eq!((&info["subject"], &info["not_after"]), (&"CN=R".into(), &"2051-01-01T12:00:00Z".into()));
    let fingerprint = place.tool("openssl", "x509 -in ca.pem -noout -fingerprint -sha256");
    let fingerprint = fingerprint.trim().rsplit('=').next().unwrap().replace(':', "").to_lowercase();
    assert_eq!(info["sha256"], fingerprint.as_str());
    let serial = place.tool("openssl", "x509 -in ca.pem -noout -serial");
    assert!(serial.trim().eq_ignore_ascii_case(&format!("serial={}", info["serial"].as_str().unwrap())));

    let both = place.read("ca.key") + "some text\n" + &place.read("ca.pem");
    let from_stdin = place.dunlin_with("pki show - --json", both.as_bytes());
    let items: Vec<Value> = serde_json::from_str(&from_stdin).unwrap();
    assert_eq!((&items[0]["kind"], &items[1]), (&"private_key".into(), info));
}

/// Strangers choose the names in certificates, so `show` must escape control characters.
#[test]
fn show_escapes_control_characters() {
    let place = Place::new();
    place.tool(
        "openssl",
        "req -x509 -newkey ed25519 -nodes -keyout k.pem -out c.pem -utf8 -subj '/CN=a\u{1b}[31mb\u{9b}c'",
    );
    let text = place.dunlin("pki show c.pem");
    assert!(text.contains("[31mb"), "{text}");
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
}

#[test]
fn verify_names_the_reason_of_a_refusal() {
    let place = Place::new();
    place.dunlin("pki demo --out .");
    place.dunlin("pki ca --name other --cert other.pem --key other.key --not-before 2020-01-01");
    let other = "--issuer other.pem --issuer-key other.key --cert old.pem --key old.key";
    place.dunlin(&format!("pki leaf {other} --client --name old --not-before 2025-01-01 --days 1"));
    place.write("alone.pem", show_first(&place.read("server.pem")));
    for (arguments, why) in [
        ("--ca other.pem server.pem", "its chain leads to no trusted CA in other.pem; "),
        ("--ca root.pem alone.pem", "its chain leads to no trusted CA in root.pem; "),
        (
            "--ca root.pem server.pem --name example.com",
            "its certificate is not for example.com but for localhost, ",
        ),
        ("--ca root.pem server.pem --client", "may not be used for this role"),
        ("--ca root.pem client.pem --name localhost", "may not be used for this role"),
        ("--ca root.pem intermediate.pem", "is a CA certificate"),
        ("--ca root.pem server.pem --time 2099-01-01", "its certificate has expired, at 20"),
        ("--ca root.pem server.pem --time 2000-01-01", "its certificate is not valid yet, but from 20"),
        ("--ca other.pem old.pem", "has expired, at 2025-01-02T00:00:00Z"),
        ("--ca root.key server.pem", "no certificate in it"),
        ("--ca root.pem missing.pem", "no such file"),
    ] {
        let line = place.dunlin_fails(&format!("pki verify {arguments}"), 1);
        assert!(line.contains(why), "{arguments}: {line}");
    }
    assert!(place.dunlin("pki verify --ca other.pem old.pem --time 2025-01-01").contains("valid for client"));
    let mut chain = place.read("server.pem").into_bytes();
    // Damage the signature of the first certificate: its last characters precede the first END line.
    let end = place.read("server.pem").find("\n-----END").unwrap() - 6;
    chain[end] = if chain[end] == b'A' { b'B' } else { b'A' };
    place.write("spoilt.pem", chain);
    let line = place.dunlin_fails("pki verify --ca root.pem spoilt.pem", 1);
    assert!(line.contains("signature"), "{line}");
}

fn show_first(pem: &str) -> String {
    let end = "-----END CERTIFICATE-----\n";
    pem.split_inclusive(end).next().unwrap().to_owned()
}

#[test]
fn replaces_files_only_with_force() {
    let place = Place::new();
    place.dunlin("pki ca --name first");
    let certificate = place.read("ca.pem");
    let key = place.read("ca.key");
    let line = place.dunlin_fails("pki ca --name second", 1);
    assert!(line.contains("ca.pem: exists already"), "{line}");
    // If one of the two files exists, neither is written.
    place.dunlin_fails("pki ca --name second --cert new.pem", 1);
    place.dunlin_fails("pki ca --name second --key new.key", 1);
    place.dunlin_fails("pki raw-key --key ca.key --public new.pub", 1);
    place.write("client.key", "mine");
    place.dunlin_fails("pki demo --out .", 1);
    assert_eq!(place.files(), ["ca.key", "ca.pem", "client.key"]);
    assert_eq!((place.read("ca.pem"), place.read("ca.key")), (certificate, key.clone()));

    place.set_mode("ca.key", 0o666);
    place.dunlin("pki ca --name second --force");
    assert_ne!(place.read("ca.key"), key);
    assert_eq!(
        (place.mode("ca.key"), show(&place, "ca.pem")[0]["subject"].as_str()),
        (0o600, Some("CN=second"))
    );
    place.dunlin_fails("pki ca --name x --cert same --key same --force", 2);
}

#[test]
fn a_leaf_does_not_outlive_its_issuer_by_default() {
    let place = Place::new();
    place.dunlin("pki ca --name R --not-after 2100-01-01");
    let issuer = "--issuer ca.pem --issuer-key ca.key --client --name c --force";
    place.dunlin(&format!("pki leaf {issuer} --not-before 2099-12-31"));
    assert_eq!(show(&place, "leaf.pem")[0]["not_after"], "2100-01-01T00:00:00Z");
    place.dunlin(&format!("pki leaf {issuer} --not-before 2099-12-31 --days 2"));
    assert_eq!(show(&place, "leaf.pem")[0]["not_after"], "2100-01-02T00:00:00Z");
}

#[test]
fn bad_input_gets_an_error_of_one_line() {
    let place = Place::new();
    place.dunlin("pki demo --out . --key-type p256");
    place.write("garbage.pem", "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n");
    place.write("short.pem", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n");
    place.write("text", "hello");
    place.tool("openssl", "pkey -in root.key -aes128 -passout pass:x -out locked.key");
    place.tool("openssl", "genrsa -out small.key 1024");
    let leaf = "pki leaf --client --name x --issuer";
    for (arguments, status, told) in [
        ("", 2, "requires a subcommand"),
        ("pki", 2, "requires a subcommand"),
        ("frobnicate", 2, "unrecognized subcommand"),
        ("pki ca", 2, "--name"),
        (
            "pki ca --name x --key-type dsa",
            2,
            "rsa2048, rsa3072, rsa4096, rsapss2048, rsapss3072, rsapss4096, p256, p384, p521, ed25519, mldsa44, mldsa65",
        ),
        ("pki ca --name x --leen", 2, "--lean"),
        ("pki ca --name ''", 2, "bad subject"),
        ("pki ca --name 'CN=a,nonsense'", 2, "bad subject"),
        ("pki ca --name x --days 0", 2, "--days"),
        ("pki ca --name x --days 4294967295", 2, "; give fewer days"),
        ("pki ca --name x --days 99999999", 2, "; give fewer days"),
        ("pki ca --name x --cert no/x.pem --key x.key", 1, "no/x.pem: there is no directory no; "),
        ("pki demo --out text", 1, "text: not a directory; "),
        ("pki leaf --issuer root.pem --issuer-key root.key --san localhost:4433", 2, "without a port"),
        ("pki leaf --issuer root.pem --issuer-key root.key --san DSN:gw", 2, "neither a DNS name"),
        ("psk new --identity x --out no/keys", 1, "no/keys: there is no directory no; "),
        ("pki ca --name x --days 1 --not-after 2030-01-01", 2, "cannot be used with"),
        ("pki ca --name x --not-after tomorrow", 2, "bad time"),
        ("pki ca --name x --not-after 2001-01-01", 2, "ends before it begins"),
        ("pki leaf --issuer root.pem --issuer-key root.key --san 'a b'", 2, "neither a DNS name"),
        ("pki leaf --issuer root.pem --issuer-key root.key --name x", 2, "--san: missing"),
        ("pki leaf --issuer root.pem --issuer-key root.key --client", 2, "neither a subject"),
        (&format!("{leaf} missing.pem --issuer-key root.key"), 1, "missing.pem: no such file"),
        (&format!("{leaf} root.pem --issuer-key missing.key"), 1, "missing.key: no such file"),
        (&format!("{leaf} . --issuer-key root.key"), 1, ".: "),
        (&format!("{leaf} garbage.pem --issuer-key root.key"), 1, "garbage.pem: malformed PEM"),
        (&format!("{leaf} short.pem --issuer-key root.key"), 1, "short.pem: malformed certificate"),
        (&format!("{leaf} text --issuer-key root.key"), 1, "text: neither PEM nor DER"),
        (&format!("{leaf} root.key --issuer-key root.key"), 1, "root.key: no certificate in it"),
        (&format!("{leaf} root.pem --issuer-key root.pem"), 1, "root.pem: no private key in it"),
        (
            &format!("{leaf} root.pem --issuer-key server.key"),
            1,
            "server.key: the private key does not belong",
        ),
        (&format!("{leaf} root.pem --issuer-key locked.key"), 1, "locked.key: the private key is encrypted"),
        (
            &format!("{leaf} root.pem --issuer-key small.key"),
            1,
            "small.key: the RSA key is too short: at least 2048 bits are required; make a longer key",
        ),
        (
            &format!("{leaf} server.pem --issuer-key server.key"),
            1,
            "server.pem: the certificate does not belong to a certificate authority",
        ),
        (&format!("{leaf} root.pem --issuer-key root.key --out text"), 1, "text"),
        ("pki show missing", 1, "missing: no such file"),
        ("pki show text", 1, "text: neither PEM nor DER"),
        ("pki show garbage.pem", 1, "garbage.pem: malformed PEM"),
        ("pki show short.pem", 1, "short.pem: malformed certificate"),
        ("pki show 'no\nsuch\u{1b}[31mfile'", 1, "no\\nsuch\\u{1b}[31mfile: no such file"),
        ("pki verify --ca root.pem server.pem --name 'a b'", 2, "neither a host name"),
    ] {
        let line = place.dunlin_fails(arguments, status);
        assert!(line.contains(told), "{arguments}: {line}");
    }
}

#[test]
fn help_has_examples() {
    let place = Place::new();
    for command in [
        "pki",
        "pki ca",
        "pki intermediate",
        "pki leaf",
        "pki raw-key",
        "pki demo",
        "pki show",
        "pki verify",
        "psk",
        "psk new",
        "psk list",
        "psk show",
        "psk remove",
        "psk rotate",
        "psk revoke",
        "psk import",
        "psk convert",
    ] {
        let help = place.dunlin(&format!("{command} --help"));
        assert!(help.contains("Example") && help.contains("  dunlin "), "{help}");
    }
    assert!(place.dunlin("--help").contains("Exit status"));
    assert!(place.dunlin("pki leaf --help").contains("-x509_strict"));
    assert_eq!(place.dunlin("help client"), place.dunlin("client --help"));
    assert_eq!(place.dunlin("--version"), concat!("dunlin ", env!("CARGO_PKG_VERSION"), "\n"));
}

/// OpenSSL reads the same CRLs and must agree.
#[test]
fn verify_refuses_revoked_certificates() {
    let place = Place::new();
    for key_type in ["p256", "rsa2048", "ed25519"] {
        place.dunlin(&format!("pki demo --out . --force --key-type {key_type}"));
        place.tool("rm", "-f root-crl.pem crl.pem");
        let root = "--issuer root.pem --issuer-key root.key --crl root-crl.pem";
        let sub = "--issuer intermediate.pem --issuer-key intermediate.key --crl crl.pem";
        let made = place.dunlin(&format!("pki crl {root}"));
        assert!(made.starts_with("root-crl.pem: CRL, "), "{made}");
        place.dunlin(&format!("pki crl {sub} --revoke client.pem --reason keyCompromise"));
        let ours =
            |leaf: &str| format!("pki verify --ca root.pem {leaf}.pem --crl root-crl.pem --CRL crl.pem");
        place.tool("sh", "-c 'cat root-crl.pem crl.pem > both.pem'");
        let openssl = |leaf: &str| {
            let crls = "-crl_check_all -CRLfile both.pem";
            format!("verify {crls} -x509_strict -CAfile root.pem -untrusted {leaf}.pem {leaf}.pem")
        };
        place.dunlin(&ours("server"));
        place.tool("openssl", &openssl("server"));
        place.dunlin_fails(&ours("client"), 1);
        place.tool_fails("openssl", &openssl("client"));
        let shown = place.tool("openssl", "crl -in crl.pem -noout -text");
        assert!(
            shown.contains("CRL Number: \n                1\n") && shown.contains("Key Compromise"),
            "{shown}"
        );

        // A renewed CRL has the next number and keeps its entries, without duplicates.
        place.dunlin(&format!("pki crl {sub} --revoke server.pem --revoke client.pem --reason superseded"));
        let shown = place.tool("openssl", "crl -in crl.pem -noout -text");
        assert!(shown.contains("CRL Number: \n                2\n"), "{shown}");
        assert_eq!(shown.matches("Serial Number: ").count(), 2, "{shown}");
        assert!(shown.contains("Key Compromise") && shown.contains("Superseded"), "{shown}");
        let info = &show(&place, "crl.pem")[0];
        assert_eq!((&info["kind"], &info["number"]), (&"revocation_list".into(), &2.into()));
        let revoked: Vec<_> =
            info["revoked"].as_array().unwrap().iter().map(|r| (&r["serial"], &r["reason"])).collect();
        let serial = |file| show(&place, file)[0]["serial"].clone();
        let client = serial("client.pem");
        let server = serial("server.pem");
        assert_eq!(revoked, [(&client, &"keyCompromise".into()), (&server, &"superseded".into())]);
        place.dunlin_fails(&ours("server"), 1);
        // Without a CRL of the intermediate authority the status of its leaves is unknown.
        place.dunlin_fails("pki verify --ca root.pem server.pem --crl root-crl.pem", 1);
        place.dunlin("pki verify --ca root.pem server.pem");
    }
}

#[test]
fn crl_names_the_reason_of_a_failure() {
    let place = Place::new();
    place.dunlin("pki demo --out .");
    place.dunlin("pki crl --issuer root.pem --issuer-key root.key");
    let root = "--issuer root.pem --issuer-key root.key";
    for (command, code, why) in [
        (
            format!("pki crl {root} --crl x.pem --revoke server.pem"),
            1,
            "another authority issued the certificate",
        ),
        (
            "pki crl --issuer intermediate.pem --issuer-key intermediate.key".into(),
            1,
            "another authority issued the CRL",
        ),
        (format!("pki crl {root} --revoke nothing.pem"), 1, "no such file"),
        (format!("pki crl {root} --crl server.pem"), 1, "no CRL in it"),
        (format!("pki crl {root} --reason keyCompromise"), 2, "--revoke"),
        (format!("pki crl {root} --revoke intermediate.pem --reason boredom"), 2, "keyCompromise"),
        ("pki verify --ca root.pem server.pem --crl server.pem".into(), 1, "no CRL in it"),
    ] {
        let told = place.dunlin_fails(&command, code);
        assert!(told.contains(why), "{command}: {told}");
    }
}

/// Without a path to a root, the error also names keys that are too short or must not sign.
#[test]
fn verify_names_short_keys_and_keys_that_may_not_sign() {
    let place = Place::new();
    let issue = |key: &str, extensions: &str, name: &str, issuer: &str| {
        place.write("extensions", format!("subjectAltName=DNS:localhost\n{extensions}"));
        place.tool("openssl", &format!("genpkey {key} -out {name}.key"));
        place.tool("openssl", &format!("req -new -key {name}.key -subj /CN={name} -out {name}.csr"));
        let by = format!("-CA {issuer}.pem -CAkey {issuer}.key -CAcreateserial -extfile extensions -days 2");
        place.tool("openssl", &format!("x509 -req -in {name}.csr {by} -out {name}.pem"));
    };
    let p256 = "-algorithm EC -pkeyopt ec_paramgen_curve:P-256";
    let rsa = "-algorithm RSA -pkeyopt rsa_keygen_bits:1024";
    place.dunlin("pki ca --name Root --cert root.pem --key root.key --key-type p256");
    issue(rsa, "", "short", "root");
    issue(p256, "keyUsage=keyAgreement", "agrees", "root");
    issue(p256, "keyUsage=digitalSignature", "signs", "root");
    issue(rsa, "basicConstraints=critical,CA:TRUE", "weak", "root");
    issue(p256, "", "below", "weak");
    place.write("chain.pem", place.read("below.pem") + &place.read("weak.pem"));
    place.dunlin("pki verify --ca root.pem signs.pem --server");
    for (chain, says) in [
        ("short.pem", "short.pem: its RSA key has 1024 bits, and at least 2048 are required; "),
        ("agrees.pem", "agrees.pem: its certificate's key may not sign; "),
        (
            "chain.pem",
            "chain.pem: the RSA key of weak, an authority of its chain, has 1024 bits, and at least 2048 are required; ",
        ),
    ] {
        let line = place.dunlin_fails(&format!("pki verify --ca root.pem {chain}"), 1);
        assert!(line.contains(says), "{line}");
    }
}

#[test]
fn verify_takes_a_maximum_depth() {
    let place = Place::new();
    place.dunlin("pki demo --out . --key-type p256");
    place.dunlin("pki verify --ca root.pem server.pem --verify-depth 1");
    let line = place.dunlin_fails("pki verify --ca root.pem server.pem --verify-depth 0", 1);
    assert!(line.contains("its chain has more authorities than allowed: more than 0; "), "{line}");
}

/// An authority with path length 0 has two keys, the second certified by the first.
#[test]
fn verify_does_not_call_a_self_issued_authority_a_wrong_signature() {
    let place = Place::new();
    place.dunlin("pki ca --name Root --cert root.pem --key root.key --key-type p256");
    let sign = |name: &str, subject: &str, issuer: &str, extensions: &str| {
        place.write("extensions", extensions);
        place.tool(
            "openssl",
            &format!("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out {name}.key"),
        );
        place.tool("openssl", &format!("req -new -key {name}.key -subj {subject} -out {name}.csr"));
        let by = format!("-CA {issuer}.pem -CAkey {issuer}.key -CAcreateserial -extfile extensions -days 2");
        place.tool("openssl", &format!("x509 -req -in {name}.csr {by} -out {name}.pem"));
    };
    sign("old", "/CN=Authority", "root", "basicConstraints=critical,CA:TRUE,pathlen:0");
    sign("new", "/CN=Authority", "old", "basicConstraints=critical,CA:TRUE");
    sign("leaf", "/CN=leaf", "new", "subjectAltName=DNS:localhost");
    place.write("chain.pem", place.read("leaf.pem") + &place.read("new.pem") + &place.read("old.pem"));
    let line = place.dunlin_fails("pki verify --ca root.pem chain.pem", 1);
    assert!(line.contains("breaks a constraint of its issuers; ") && !line.contains("signature"), "{line}");
}
