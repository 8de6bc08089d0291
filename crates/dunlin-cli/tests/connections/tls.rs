//! Tests `dunlin client` against `dunlin server` over loopback.

use std::io::copy;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::thread;

use crate::peers::{CLIENT, KEY, OWN, Running, SERVER, Server, events, json, kinds, place};
use dunlin_tests::place::{Place, send_signal};
use serde_json::Value;

#[test]
fn certificates_authenticate_both_sides() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --CAfile pki/root.pem --Verify --alpn h2,x"));
    let told = server.echo(&place, &format!("{CLIENT} {OWN} --alpn x"), "hello\n");
    for line in [
        "Version            TLSv1.3",
        "Cipher suite       TLS_AES_128_GCM_SHA256",
        "Group              x25519",
        "Server             X.509 localhost",
        "Peer signature     ecdsa_secp256r1_sha256",
        "Own signature      ecdsa_secp256r1_sha256",
        "ALPN               x",
        "Resumed            no",
        "HelloRetryRequest  no",
    ] {
        assert!(told.lines().any(|l| l == line), "no {line:?} in\n{told}");
    }
    assert!(told.ends_with("---\nhello\n"), "{told}");
    let log = server.process.log();
    assert!(
        log.contains("connected: TLSv1.3, TLS_AES_128_GCM_SHA256, x25519, X.509 CN=device-1, ALPN x;"),
        "{log}"
    );
}

/// Both sides count the same bytes; records account for the difference to the messages.
#[test]
fn counts_bytes_exactly() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --json"));
    let told = server.echo(&place, &format!("{CLIENT} --json"), "hello\n");
    let client = json(told.lines().next().unwrap());
    let server = json(&server.process.line());
    assert_eq!((&server["event"], &server["peer"]), (&"connection".into(), &Value::Null));
    assert_eq!(client["handshake_bytes_read"], server["handshake_bytes_written"]);
    assert_eq!(client["handshake_bytes_written"], server["handshake_bytes_read"]);
    let messages = client["messages"].as_array().unwrap();
    let names: Vec<_> =
        messages.iter().map(|m| (m["sent"].as_bool().unwrap(), m["name"].as_str().unwrap())).collect();
    assert_eq!(
        names,
        [
            (true, "ClientHello"),
            (false, "ServerHello"),
            (false, "EncryptedExtensions"),
            (false, "Certificate"),
            (false, "CertificateVerify"),
            (false, "Finished"),
            (true, "Finished"),
        ]
    );
    let total = |sent| {
        messages.iter().filter(|m| m["sent"] == sent).map(|m| m["bytes"].as_u64().unwrap()).sum::<u64>()
    };
    // Records: two plaintext ones with 5 bytes each, one with 5 + 1 + 16, and ChangeCipherSpec with 6.
    assert_eq!(client["handshake_bytes_written"], total(true) + 5 + 22 + 6);
    assert_eq!(client["handshake_bytes_read"], total(false) + 5 + 22 + 6);

    let place = self::place();
    let server = Server::new(&place, SERVER);
    let told = server.echo(&place, CLIENT, "");
    let line = told.lines().find(|l| l.starts_with("SSL handshake has read ")).unwrap();
    let numbers: Vec<u64> = line.split(' ').filter_map(|w| w.parse().ok()).collect();
    let log = server.process.log();
    assert!(
        log.ends_with(&format!("handshake read {} bytes, wrote {}", numbers[1], numbers[0])),
        "{line}\n{log}"
    );
}

/// Every line of a client is an object, including received data. The last flight of TLS 1.3 is acknowledged
/// by the server's next record, a ticket or data.
#[test]
fn prints_every_event_as_a_json_object() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --tls1-2 --tls1-3 --json"));
    let client = |options: &str, input: &str| {
        events(&server.echo(&place, &format!("{CLIENT} --json {options}"), input))
    };
    let told = client("", "\u{0}hello");
    assert_eq!(kinds(&told), ["connection", "accepted", "data", "closed"]);
    let [connection, accepted, data, closed] = &told[..] else { panic!("{told:?}") };
    assert_eq!(
        (&connection["accepted"], &data["bytes"], &data["base64"]),
        (&false.into(), &6.into(), &"AGhlbGxv".into())
    );
    for event in [connection, accepted, closed] {
        assert_eq!(
            (&event["side"], &event["address"]),
            (&"client".into(), &format!("127.0.0.1:{}", server.port).into())
        );
    }
    // The server's ticket acknowledges the flight before the data.
    let told = client("--sess-out session", "");
    assert_eq!(kinds(&told), ["connection", "accepted", "closed"]);
    assert_eq!(told[2]["answered"], true);
    // In TLS 1.2 a full handshake ends with the server's Finished, an abbreviated one with the client's.
    let options = "--tls1-2 --sess-out old";
    let told = client(options, "");
    assert!(kinds(&told) == ["connection", "closed"] && told[0]["accepted"] == true, "{told:?}");
    let told = client(&format!("{options} --sess-in old"), "");
    assert!(told[0]["accepted"] == false && told[0]["resumed"] == true, "{told:?}");
}

#[test]
fn connects_with_raw_public_keys() {
    let place = Place::new();
    for (name, typ) in [("server", "ed25519"), ("client", "p256")] {
        place.dunlin(&format!("pki raw-key --key-type {typ} --key {name}.key --public {name}.pub"));
    }
    let server =
        "--enable-server-rpk --key server.key --enable-client-rpk --rpk-file client.pub --Verify --rev";
    let server = Server::new(&place, server);
    let told = server.echo(&place, "--rpk-file server.pub --enable-client-rpk --key client.key", "abc\ndef");
    assert!(told.contains("\nServer             raw key sha256:"), "{told}");
    assert!(
        told.contains("\nPeer signature     ed25519\nOwn signature      ecdsa_secp256r1_sha256\n"),
        "{told}"
    );
    assert!(told.ends_with("cba\nfed"), "{told}");
    assert!(server.process.log().contains("raw key sha256:"));

    let (client, log) = server.refused(&place, "--rpk-file client.pub --enable-client-rpk --key client.key");
    assert!(
        client.contains("this client refused the server") && client.contains("in client.pub;"),
        "{client}"
    );
    assert!(log.contains("the client refused the credential of this server, server.key"), "{log}");
    let (client, log) = server.refused(&place, "--insecure");
    assert!(
        client.contains(
            "the server has or requires another certificate type (alert unsupported_certificate); show the server another kind"
        ),
        "{client}"
    );
    assert!(log.contains("no common certificate type: RawPublicKey here, X.509 there; "), "{log}");
    let (client, log) = server.refused(&place, "--rpk-file server.pub --enable-client-rpk --key server.key");
    assert!(log.contains("this server refused the client") && log.contains("in client.pub;"), "{log}");
    assert!(client.contains("the server refused the credential of this client, server.key"), "{client}");
}

#[test]
fn connects_with_pre_shared_keys() {
    let place = Place::new();
    place.write("keys", format!("d1:{KEY}\nd2:{KEY}00\n"));
    let server = Server::new(&place, "--psk-file keys --psk-ke --echo");
    let told = server.echo(&place, "--psk-file keys --psk-identity d2 --brief", "hello\n");
    assert!(told.contains("x25519, PSK d2;") && told.ends_with("\nhello\n"), "{told}");
    // A PSK without (EC)DHE, with OpenSSL's option names.
    let told = server.echo(&place, &format!("-psk {KEY} -psk_identity d1 -psk_ke -lean -brief"), "hello\n");
    assert!(told.contains("TLS_AES_128_GCM_SHA256, -, PSK d1;"), "{told}");
    assert!(server.process.log().contains("PSK d2") && server.process.log().contains("PSK d1"));

    let (client, log) = server.refused(&place, &format!("--psk {KEY}00 --psk-identity d1"));
    assert!(
        client.contains("does not know the identity or has another key than --psk (alert decrypt_error)"),
        "{client}"
    );
    assert!(log.contains("the client's pre-shared key for the identity d1 differs from keys"), "{log}");
    let (client, log) = server.refused(&place, &format!("--psk {KEY}"));
    assert!(client.contains("does not know the identity"), "{client}");
    assert!(log.contains("keys has no key of the client's identity Client_identity"), "{log}");

    // A key without a hash of its own suits SHA-256 only.
    for side in ["server", "client localhost:1 --psk-identity d1"] {
        let said =
            place.dunlin_fails(&format!("{side} --psk-file keys --ciphersuites TLS_AES_256_GCM_SHA384"), 2);
        assert!(
            said.contains("suits only SHA-256") && said.ends_with("add TLS_AES_128_GCM_SHA256"),
            "{said}"
        );
    }
    let server = Server::new(
        &place,
        "--psk-file keys --echo --ciphersuites TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256",
    );
    server.echo(&place, "--psk-file keys --psk-identity d1", "");
    // Only one side allows PSKs without (EC)DHE.
    let (client, log) = server.refused(&place, "--psk-file keys --psk-identity d1 --psk-ke");
    assert!(
        log.contains(
            "the client offers pre-shared keys only without (EC)DHE; start this server with --psk-ke"
        )
    );
    assert!(client.contains("or leave --psk-ke out; or add this PSK and identity to the server"), "{client}");
    let (_, log) = server.refused(&place, "--insecure");
    assert!(log.contains("this server has only pre-shared keys, and the client offers none; "), "{log}");
}

#[test]
fn delivers_early_data() {
    for kind in ["", "--stateful-tickets"] {
        let place = place();
        place.write("request", "early request\n");
        let server = Server::new(&place, &format!("{SERVER} --alpn x --early-data 100 {kind}"));
        let client = format!("{CLIENT} --alpn x");
        let told = server.echo(&place, &format!("{client} --sess-out session"), "hello\n");
        assert!(!told.contains("Early data"), "{told}");
        // The session was used, so the second early data is not delivered.
        let advice = "; the rest is not sent; send it again, without --early-data\n";
        for (outcome, status, error) in [("accepted", 0, ""), ("refused: the ", 1, advice)] {
            let arguments = format!("{client} --sess-in session --early-data request");
            let output = server.client(&place, &arguments, "hello\n");
            let [told, stderr] = [&output.stdout, &output.stderr].map(|o| String::from_utf8_lossy(o));
            assert_eq!(output.status.code(), Some(status), "{stderr}");
            assert!(told.contains(&format!("\nEarly data         {outcome}")), "{told}");
            let echoed = if outcome == "accepted" { "early request\nhello\n" } else { "---\nhello\n" };
            assert!(told.ends_with(echoed), "{told}");
            assert!(stderr.ends_with(error) && stderr.is_empty() == error.is_empty(), "{stderr}");
            server.process.log_with(&format!("early data {outcome}"));
        }
        let server = Server::new(&place, &format!("{SERVER} --alpn x {kind}"));
        server.echo(&place, &format!("{client} --sess-out session"), "");
        let output = server.client(&place, &format!("{client} --sess-in session --early-data request"), "");
        let told = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1));
        assert!(told.contains("\nEarly data         not sent: the session does not allow it\n"), "{told}");
    }
    let place = place();
    for (arguments, told) in [
        (format!("server {SERVER} --early-data 0"), "for '--early-data <BYTES>': 0 is not in 1..=14336"),
        (format!("server {SERVER} --early-data 1 --num-tickets 0"), "early data needs a resumption"),
    ] {
        let output = place.dunlin_fails(&arguments, 2);
        assert!(output.contains(told), "{output}");
    }
}

#[test]
fn sessions_outlive_the_process() {
    for kind in ["", "--stateful-tickets", "--stateless-cookie --num-tickets 1"] {
        let place = place();
        let server = Server::new(&place, &format!("{SERVER} --CAfile pki/root.pem --verify {kind}"));
        let client = format!("{CLIENT} {OWN} --brief");
        let told = server.echo(&place, &format!("{client} --sess-out session"), "hello\n");
        assert!(!told.contains("resumed"), "{told}");
        assert_eq!(place.mode("session"), 0o600);
        for _ in 0..2 {
            let told =
                server.echo(&place, &format!("{client} --sess-in session --sess-out session"), "hello\n");
            assert!(told.contains(", resumed"), "{kind}: {told}");
            let log = server.process.log_with(", resumed");
            assert!(log.contains("X.509 CN=device-1, resumed"), "{kind}: {log}");
        }
        // A client with other trust anchors or another server name does not resume.
        place.dunlin("pki demo --out others");
        let mixed = place.read("pki/root.pem") + &place.read("others/root.pem");
        place.write("mixed.pem", mixed);
        let output =
            server.client(&place, &format!("--CAfile mixed.pem {OWN} --brief --sess-in session"), "");
        assert!(!String::from_utf8_lossy(&output.stdout).contains("resumed"));
        assert!(
            String::from_utf8_lossy(&output.stderr)
                .contains("dunlin: session: the session is not used: it was made with other")
        );
        let output = server.client(&place, &format!("{client} --servername 127.0.0.1 --sess-in session"), "");
        assert_eq!(output.status.code(), Some(0));
        assert!(String::from_utf8_lossy(&output.stderr).contains("it is for localhost"));
        // Another server, which does not know the session.
        let other = Server::new(&place, &format!("{SERVER} --CAfile pki/root.pem --verify {kind}"));
        let output = other.client(&place, &format!("{client} --sess-in session"), "");
        assert_eq!(output.status.code(), Some(0));
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains("dunlin: session: the session is not used: the server declined it"), "{told}");
    }
}

#[test]
fn reconnections_resume() {
    let place = place();
    let server = Server::new(&place, SERVER);
    let told = server.echo(&place, &format!("{CLIENT} --reconnect --brief"), "hello\n");
    let resumed: Vec<_> = told.lines().map(|line| line.contains(", resumed")).collect();
    assert_eq!(
        resumed,
        [false, true, true, true, true, true, false],
        "the last connection sent data: {told}"
    );
    let server = Server::new(&place, &format!("{SERVER} --num-tickets 0"));
    let told = server.echo(&place, &format!("{CLIENT} --reconnect --brief"), "");
    assert!(!told.contains("resumed"), "{told}");
}

#[test]
fn reports_hello_retry_requests() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --groups P-256"));
    let told = server.echo(&place, &format!("{CLIENT} --groups x25519:secp256r1"), "hello\n");
    assert!(told.contains("\nGroup              secp256r1\n"), "{told}");
    assert!(told.contains("\nHelloRetryRequest  yes\n"), "{told}");
    let retry = told.lines().filter(|l| l.starts_with("received  HelloRetryRequest ")).count();
    assert_eq!((retry, told.matches("sent      ClientHello").count()), (1, 2), "{told}");
}

#[test]
fn compresses_certificates_if_both_sides_allow_it() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --CAfile pki/root.pem -Verify -cert_comp"));
    let told = server.echo(&place, &format!("{CLIENT} {OWN} -cert_comp"), "hello\n");
    for direction in ["received", "sent"] {
        let compressed = |l: &str| l.starts_with(direction) && l.contains(" CompressedCertificate ");
        assert!(told.lines().any(compressed), "none {direction} in\n{told}");
    }
    let told = server.echo(&place, &format!("{CLIENT} {OWN}"), "hello\n");
    assert!(!told.contains("CompressedCertificate"), "{told}");
}

#[test]
fn chooses_the_suitable_credential() {
    let place = Place::new();
    let types = ["rsa2048", "p256", "ed25519", "mldsa44", "mldsa65"];
    for typ in types {
        place.dunlin(&format!("pki demo --out {typ} --key-type {typ}"));
    }
    let pair = |typ| format!("--cert {typ}/server.pem --key {typ}/server.key");
    let server = types.map(pair).join(" ");
    let server = Server::new(&place, &format!("{server} --echo"));
    for (typ, schemes, signature) in [
        ("rsa2048", "rsa_pss_rsae_sha256:rsa_pkcs1_sha256", "rsa_pss_rsae_sha256"),
        ("p256", "ecdsa_secp256r1_sha256", "ecdsa_secp256r1_sha256"),
        ("ed25519", "ed25519", "ed25519"),
        ("mldsa44", "MLDSA44", "mldsa44"),
        ("mldsa65", "mldsa65", "mldsa65"),
    ] {
        let told = server.echo(&place, &format!("--CAfile {typ}/root.pem --sigalgs {schemes} --json"), "");
        assert_eq!(json(told.lines().next().unwrap())["peer_signature"], signature);
    }
}

/// These schemes are on no default list, so that no ClientHello pays for them without need.
#[test]
fn offers_the_schemes_of_the_keys_that_it_trusts() {
    let place = Place::new();
    for (typ, signature) in
        [("p521", "ecdsa_secp521r1_sha512"), ("mldsa65", "mldsa65"), ("rsapss2048", "rsa_pss_pss_sha256")]
    {
        place.dunlin(&format!("pki demo --out {typ} --key-type {typ}"));
        let side =
            |name: &str| format!("--CAfile {typ}/root.pem --cert {typ}/{name}.pem --key {typ}/{name}.key");
        let server = Server::new(&place, &format!("{} --Verify --echo", side("server")));
        let told = server.echo(&place, &format!("{} --json", side("client")), "");
        let connected = json(told.lines().next().unwrap());
        assert_eq!(
            (&connected["peer_signature"], &connected["own_signature"]),
            (&signature.into(), &signature.into())
        );
        let (_, log) = server.refused(&place, "--insecure");
        assert!(log.contains(&format!("no signature scheme of the client for {typ}/server.key")), "{log}");
    }
}

#[test]
fn both_sides_refuse_revoked_certificates() {
    let place = place();
    let sub = "--issuer pki/intermediate.pem --issuer-key pki/intermediate.key";
    place.dunlin(&format!("pki crl {sub} --crl pki/none.pem"));
    place.dunlin(&format!("pki crl {sub} --crl pki/server-crl.pem --revoke pki/server.pem"));
    place.dunlin(&format!("pki crl {sub} --crl pki/client-crl.pem --revoke pki/client.pem"));

    let server = format!("{SERVER} --CAfile pki/root.pem --Verify -crl_check -CRL");
    let good = Server::new(&place, &format!("{server} pki/none.pem"));
    good.echo(&place, &format!("{CLIENT} {OWN} -crl_check -CRL pki/none.pem"), "hello\n");
    for (options, why) in [
        ("-crl_check -CRL pki/server-crl.pem", "its certificate is revoked"),
        // The root's CRL is missing.
        ("-crl_check_all -CRL pki/none.pem", "there is no CRL of an issuer"),
        ("-CRL pki/none.pem", "no check uses it"),
        ("-crl_check", "there is no CRL"),
        ("-crl_check -CRL pki/root.pem", "no CRL in it"),
    ] {
        let output = good.client(&place, &format!("{CLIENT} {OWN} {options}"), "");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains(why), "{options}: {told}");
    }
    let strict = Server::new(&place, &format!("{server} pki/client-crl.pem"));
    let (told, log) = strict.refused(&place, &format!("{CLIENT} {OWN}"));
    let advice = "(alert certificate_revoked); give this client a new key and certificate: a revocation";
    assert!(told.contains(advice), "{told}");
    assert!(log.contains("this server refused the client: its certificate is revoked"), "{log}");
}

/// A client that reconnects reads its CRLs again.
#[test]
fn reads_a_new_crl_between_two_connections() {
    let place = place();
    let crl = |more: &str| {
        let sub = "--issuer pki/intermediate.pem --issuer-key pki/intermediate.key";
        place.dunlin(&format!("pki crl {sub} --crl new.pem {more}"));
        std::fs::rename(place.path("new.pem"), place.path("list.pem")).unwrap();
    };
    crl("");
    let server = Server::new(&place, SERVER);
    let way = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = way.local_addr().unwrap().port();
    let client = format!("client localhost:{port} {CLIENT} -crl_check -CRL list.pem --reconnect --brief");
    let client = Running::new(&place, &client);
    for connection in 0..2 {
        let (mut from, _) = way.accept().unwrap();
        // The running client has read its CRL.
        from.peek(&mut [0]).unwrap();
        if connection == 0 {
            crl("--revoke pki/server.pem");
        }
        let mut to = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        let mut back = from.try_clone().unwrap();
        let mut answers = to.try_clone().unwrap();
        let answering = thread::spawn(move || {
            let _ = copy(&mut answers, &mut back);
            let _ = back.shutdown(Shutdown::Write);
        });
        let _ = copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
        answering.join().unwrap();
    }
    let (status, stdout, stderr) = client.end();
    assert_eq!((status, stdout.lines().count()), (1, 1), "{stdout}\n{stderr}");
    assert!(stderr.contains("this client refused the server: its certificate is revoked"), "{stderr}");
}

#[test]
fn accepts_groups_by_name() {
    let place = place();
    let server = Server::new(
        &place,
        &format!("{SERVER} -groups X25519MLKEM768:P-521:SecP256r1MLKEM768:MLKEM768:MLKEM512:x25519"),
    );
    let client = "--CAfile pki/root.pem --json -groups";
    for (groups, group) in [
        ("x25519mlkem768:x25519", "X25519MLKEM768"),
        ("secp256r1mlkem768", "SecP256r1MLKEM768"),
        ("MLKEM768", "MLKEM768"),
        ("P-521", "secp521r1"),
        ("MLKEM512", "MLKEM512"),
        ("x25519:X25519MLKEM768", "x25519"),
    ] {
        let told = server.echo(&place, &format!("{client} {groups}"), "");
        assert_eq!(json(told.lines().next().unwrap())["group"], group);
    }
}

#[test]
fn signature_algorithms_cert_selects_the_credential() {
    let place = Place::new();
    for typ in ["p256", "p384"] {
        place.dunlin(&format!("pki demo --out {typ} --key-type {typ}"));
    }
    let pair = |typ| format!("--cert {typ}/server.pem --key {typ}/server.key");
    let server = Server::new(&place, &format!("{} {} --echo", pair("p256"), pair("p384")));
    let told = server.echo(&place, "--CAfile p384/root.pem -sigalgs_cert ecdsa_secp384r1_sha384 --json", "");
    assert_eq!(json(told.lines().next().unwrap())["peer_signature"], "ecdsa_secp384r1_sha384");
}

/// One signature scheme suffices if the trusted keys use it.
#[test]
fn lean_sides_can_verify_trusted_keys() {
    let place = Place::new();
    for typ in ["ed25519", "p384", "p521", "rsa2048", "rsapss2048", "mldsa44", "mldsa65"] {
        place.dunlin(&format!("pki demo --out {typ} --key-type {typ} --lean"));
        let side = |name: &str| {
            format!("--lean --CAfile {typ}/root.pem --cert {typ}/{name}.pem --key {typ}/{name}.key")
        };
        let server = Server::new(&place, &format!("{} --Verify --echo", side("server")));
        server.echo(&place, &side("client"), "hello\n");
    }
    let server = Server::new(&place, "--cert ed25519/server.pem --key ed25519/server.key --echo");
    let (_, log) = server.refused(&place, "--CAfile p384/root.pem --lean");
    assert!(log.contains("no signature scheme of the client for ed25519/server.key (ed25519); "), "{log}");
}

#[test]
fn takes_lines_of_one_letter_as_commands_on_a_terminal_only() {
    let place = place();
    let server = Server::new(&place, SERVER);
    let (told, _) = server.typed(&place, &format!("{CLIENT} --msg --brief"), "K\nafter\nk\nQ\n");
    let updates = |line: &str| told.lines().filter(|l| l.starts_with(line)).count();
    assert_eq!(updates("sent      KeyUpdate"), 2, "{told}");
    for switch in ["--nocommands --brief", "--quiet"] {
        let (told, _) = server.typed(&place, &format!("{CLIENT} {switch}"), "K\nQ\nmore\n");
        assert!(told.ends_with("K\nQ\nmore\n"), "{told}");
    }
    let told = server.echo(&place, &format!("{CLIENT} --msg --brief"), "K\nR\nk\nQ\nmore\nQ");
    assert!(told.ends_with("K\nR\nk\nQ\nmore\nQ") && !told.contains("KeyUpdate"), "{told}");
    let told = server.echo(&place, &format!("{CLIENT} --quiet"), "only data");
    assert_eq!(told, "only data");
}

#[test]
fn updates_keys_after_the_configured_number_of_records() {
    let place = place();
    let server = Server::new(&place, SERVER);
    let data = "x".repeat(100_000);
    let told = server.echo(&place, &format!("{CLIENT} --key-update 2 --msg --brief"), &data);
    assert!(told.contains("sent      KeyUpdate"), "{}", &told[..2000]);
    assert!(told.matches('x').count() >= data.len());
}

#[test]
fn key_log_is_private_to_its_owner() {
    let place = place();
    let server = Server::new(&place, SERVER);
    let output = server.client(&place, &format!("{CLIENT} --keylogfile log"), "");
    assert!(String::from_utf8_lossy(&output.stderr).contains("dunlin: warning: anyone who reads log can"));
    assert_eq!(place.mode("log"), 0o600);
    let log = place.read("log");
    for label in ["CLIENT_HANDSHAKE_TRAFFIC_SECRET", "SERVER_TRAFFIC_SECRET_0"] {
        let line =
            log.lines().find(|l| l.starts_with(label)).unwrap_or_else(|| panic!("no {label} in {log}"));
        let lengths: Vec<_> = line.split(' ').skip(1).map(str::len).collect();
        assert_eq!(lengths, [64, 64], "{line}");
    }
    // A second run appends.
    server.client(&place, &format!("{CLIENT} --keylogfile log"), "");
    assert!(place.read("log").len() > log.len() && place.read("log").starts_with(&log));
}

#[test]
fn refuses_to_write_secrets_where_others_can_read_them() {
    let place = place();
    let server = Server::new(&place, SERVER);
    for name in ["wide", "executable", "target"] {
        place.write(name, "kept");
    }
    place.set_mode("wide", 0o644);
    place.set_mode("executable", 0o700);
    symlink(place.path("target"), place.path("link")).unwrap();
    symlink(place.path("nothing"), place.path("dangling")).unwrap();
    place.tool("mkfifo", "pipe");
    for (name, says) in [
        ("wide", "wide: its mode 0644 is wider than 0600; remove it, or run chmod 600 wide"),
        ("executable", "executable: its mode 0700 is wider than 0600; "),
        ("link", "link: a symbolic link; "),
        ("dangling", "dangling: a symbolic link; "),
        ("pipe", "pipe: not a regular file; "),
        ("/dev/null", "/dev/null: not a regular file; "),
        ("pki", "pki: a directory; "),
    ] {
        let client = format!("client localhost:{} {CLIENT} --keylogfile {name}", server.port);
        let said = place.dunlin_fails(&client, 1);
        assert!(said.contains(says), "{said}");
    }
    for name in ["wide", "executable", "target"] {
        assert_eq!(place.read(name), "kept");
    }
    assert!(!place.path("nothing").exists());
}

#[test]
fn connects_stdin_and_stdout_of_both_sides() {
    let place = place();
    let mut server = Server::new(&place, "--cert pki/server.pem --key pki/server.key --naccept 1");
    let mut client = Running::new(&place, &format!("client localhost:{} {CLIENT} --quiet", server.port));
    client.write("to the server\n");
    server.process.log_with("connected");
    assert_eq!(server.process.line(), "to the server");
    server.process.write("to the client\n");
    assert_eq!(client.line(), "to the client");
    let (status, _, stderr) = client.end();
    assert_eq!((status, stderr.as_str()), (0, ""));
    let (status, rest, stderr) = server.process.end();
    assert_eq!((status, rest.as_str(), stderr.as_str()), (0, "", ""));
}

#[test]
fn clients_do_not_wait_for_each_other() {
    let place = place();
    let server = Server::new(&place, SERVER);
    let idle = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let client = format!("client localhost:{} {CLIENT} --quiet", server.port);
    let mut clients: Vec<_> = (0..4).map(|_| Running::new(&place, &client)).collect();
    // The test uses the last client first.
    for (i, client) in clients.iter_mut().enumerate().rev() {
        client.write(&format!("client {i}\n"));
        assert_eq!(client.line(), format!("client {i}"));
    }
    drop(idle);
    for client in clients {
        assert_eq!(client.end().0, 0);
    }
}

/// Connected peers receive close_notify.
#[test]
fn signals_end_both_sides_orderly() {
    let place = place();
    for signal in ["-INT", "-TERM"] {
        let server = Server::new(&place, &format!("{SERVER} --naccept 1"));
        let options = format!("client localhost:{} {CLIENT} --quiet", server.port);
        let mut client = Running::new(&place, &options);
        client.write("hello\n");
        assert_eq!(client.line(), "hello");
        let stdin = client.stdin.take();
        send_signal(&client.child, signal);
        assert_eq!(client.end(), (0, String::new(), String::new()));
        drop(stdin);
        let (status, _, log) = server.process.end();
        assert!(status == 0 && !log.contains("failed"), "{log}");

        let server = Server::new(&place, SERVER);
        let options = format!("client localhost:{} {CLIENT} --quiet", server.port);
        let mut client = Running::new(&place, &options);
        client.write("hello\n");
        assert_eq!(client.line(), "hello");
        // The server does not wait for a client that sends nothing.
        let idle = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        send_signal(&server.process.child, signal);
        assert_eq!(client.end(), (0, String::new(), String::new()));
        assert_eq!(server.process.end().0, 0);
        drop(idle);
    }
}

#[test]
fn openssl_connects() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --CAfile pki/root.pem --Verify"));
    let told = place.tool(
        "openssl",
        &format!(
            "s_client -connect 127.0.0.1:{} -servername localhost -CAfile pki/root.pem -verify_return_error -cert pki/client.pem \
             -cert_chain pki/client.pem -key pki/client.key",
            server.port
        ),
    );
    assert!(told.contains("Verification: OK"), "{told}");
    assert!(server.process.log().contains("X.509 CN=device-1"));
}

#[test]
fn reports_key_updates() {
    let place = place();
    for answer in ["--echo", "--rev"] {
        let server = Server::new(&place, &format!("{} --msg", SERVER.replace("--echo", answer)));
        server.typed(&place, &format!("{CLIENT} --brief"), "K\nafter\n");
        for direction in ["received", "sent    "] {
            server.process.log_with(&format!("{direction}  KeyUpdate"));
        }
    }
}
