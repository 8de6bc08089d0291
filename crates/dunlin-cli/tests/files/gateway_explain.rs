//! Tests `dunlin gateway explain`: clients by credential and by ClientHello, captures, JSON, and bad input.

use serde_json::Value;

use dunlin_tests::place::Place;

const POLICY: &str = r#"
floor = 10
default = "strong"
renegotiation = "down"
[profile.strong]
rank = 100
client = "request"
versions = ["1.2", "1.3"]
[profile.admin]
rank = 200
[profile.low]
rank = 20
client = "certificate"
versions = ["1.2", "1.3"]
[profile.meter]
rank = 20
client = "psk"
[[rule]]
name = "devices"
when.issuer = "CN=Dunlin intermediate"
profile = "low"
[[rule]]
name = "meters"
when.psk = "meter-*"
profile = "meter"
[[rule]]
name = "admins"
when.sni = "admin.example"
when.prefers = "chacha20"
profile = "admin"
"#;

/// Of `openssl s_client -tls1_3 -servername admin.example` of OpenSSL 3.0.19, which prefers ChaCha20.
const HELLO: &str = "16030100c4010000c0030336420ada2439cff66256249e2ea574d9573b92dae8e1c0ad68269747ffdcb72420cff1d2e42845d237b151ea\
    01391054911415e7471cdb8ea7a54511ebe55a7c4c00061303130100ff0100007100000012001000000d61646d696e2e6578616d706c65\
    000b000403000102000a00040002001d002300000016000000170000000d000400020403002b0003020304002d00020101003300260024\
    001d002080ecf7db1e9147a3fb78e3d9fc8afeece2c3cb90459f13238d38b427208dd370";

/// Of `openssl s_client -tls1_2` of the same release.
const HELLO_12: &str = "16030100\
    55010000510303d7d053234f7bd21c72a366c177ee771a684bcddcf583303116123bb94e24306b000004c03000ff01000024\
    000b000403000102000a00040002001d002300000016000000170000000d000400020401";

fn place() -> Place {
    let place = Place::new();
    place.write("policy.toml", POLICY);
    place
}

/// A capture of raw IP packets: the first one of a TCP connection from 192.0.2.1 port 40000, with this
/// payload.
fn capture(payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(40 + payload.len()).unwrap();
    let ip =
        [&[0x45, 0][..], &len.to_be_bytes(), &[0, 0, 0, 0, 64, 6, 0, 0, 192, 0, 2, 1, 10, 0, 0, 1]].concat();
    let tcp = [&[0x9c, 0x40, 0x01, 0xbb][..], &[0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]]
        .concat();
    let packet = [&ip[..], &tcp, payload].concat();
    let size = u32::try_from(packet.len()).unwrap().to_le_bytes();
    let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 101, 0, 0, 0];
    file.extend_from_slice(&[0; 8]);
    file.extend_from_slice(&[size, size].concat());
    file.extend_from_slice(&packet);
    file
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

#[test]
fn explains_a_client_by_its_certificate() {
    let place = place();
    place.dunlin("pki demo --out demo");
    let text = place.dunlin("gateway explain -c policy.toml --cert demo/client.pem");
    for part in [
        "  issuer = \"CN=Dunlin intermediate\"\n",
        "  yes     devices (policy.toml:18): profile low\n      yes     issuer = \"CN=Dunlin intermediate\"\n",
        "  no      meters (policy.toml:22): profile meter\n",
        "before the ServerHello: profile strong (rank 100) by default, since no rule matches\n",
        "after Finished:         profile strong (rank 100) by rule devices",
        "; next time profile low (rank 20)\n",
        "later, by its session:  profile low (rank 20) by rule devices",
        "claimed by session; downgrade from strong (rank 100)\n",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    // A client of TLS 1.2 that can renegotiate.
    let text =
        place.dunlin(&format!("gateway explain -c policy.toml --cert demo/client.pem --hello {HELLO_12}"));
    assert!(text.contains("after Finished:         renegotiation to profile low (rank 20)"), "{text}");
}

#[test]
fn explains_client_hellos_of_a_capture_and_in_hexadecimal() {
    let place = place();
    place.write("capture.pcap", capture(&bytes(HELLO)));
    let text = place.dunlin("gateway explain -c policy.toml --hello capture.pcap");
    assert!(text.starts_with("from: 192.0.2.1:40000\nclient: not authenticated\n"), "{text}");
    let json = place.dunlin(&format!("gateway explain -c policy.toml --hello {HELLO} --json"));
    let json: Value = serde_json::from_str(&json).unwrap();
    let before = &json[0]["before"];
    assert_eq!(
        (&before["profile"], &before["rule"], &before["rank"]),
        (&"admin".into(), &"admins".into(), &200.into())
    );
    assert_eq!((&before["is_downgrade"], &json[0]["later"]), (&false.into(), &Value::Null));
    assert_eq!(json[0]["rules"][2]["conditions"][0]["holds"], "yes");
}

#[test]
fn explains_a_pre_shared_key_and_a_database() {
    let place = place();
    let text = place.dunlin("gateway explain -c policy.toml --psk-identity meter-1");
    assert!(text.contains("before the ServerHello: profile meter (rank 20) by rule meters"), "{text}");
    place.write("policy.db", "nothing");
    let error = place.dunlin_fails("gateway explain -c policy.db --psk-identity meter-1", 1);
    assert!(error.contains("policy.db: file is not a database"), "{error}");
}

#[test]
fn names_all_faults_of_a_policy_and_of_its_arguments() {
    let place = place();
    place.write("bad.toml", "flor = 1\n[profile.a]\nrank = \"x\"\n");
    let output = place.command("gateway explain -c bad.toml --psk-identity a").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("bad.toml:1: flor: unknown key; allowed here: floor, default"), "{error}");
    assert!(error.contains("bad.toml:3: profile.a.rank: \"x\" is not an integer"), "{error}");
    assert_eq!(error.lines().count(), 2, "{error}");
    for (arguments, expected) in [
        ("-c missing.toml --psk-identity a", "missing.toml: no such file; check the path"),
        ("-c policy.toml --hello 160301", "the ClientHello is incomplete"),
        ("-c policy.toml --hello nowhere", "neither a handshake record nor a ClientHello"),
        ("-c policy.toml --cert policy.toml", "neither PEM nor DER of a certificate, key or CRL"),
    ] {
        let error = place.dunlin_fails(&format!("gateway explain {arguments}"), 1);
        assert!(error.contains(expected), "{error}");
    }
    let error = place.dunlin_fails("gateway explain -c policy.toml", 2);
    assert!(error.contains("no client is given; give --cert, --psk-identity or --hello"), "{error}");
}

#[test]
fn explains_the_route_of_a_client_and_its_access() {
    let place = place();
    let gateway = "[[listener]]\nname = \"one\"\nlisten = \"127.0.0.1:0\"\n[listener.clients]\npsk = \"keys.psk\"\n\
                   [[listener.route]]\nname = \"admin\"\nsni = \"admin.example\"\nto = \"127.0.0.1:1\"\n\
                   allow = [{ psk = \"admin-*\" }, { device = \"console\" }]\n\
                   [[listener.route]]\nto = \"127.0.0.1:2\"\n";
    place.write("gateway.toml", gateway);
    let explain = format!("gateway explain -c gateway.toml --hello {HELLO} --psk-identity");
    let text = place.dunlin(&format!("{explain} meter-1"));
    let denied = "listener one: route admin (gateway.toml:6)\n  no      allow (gateway.toml:10)\n      no      psk = \"admin-*\"\n\
                  \x20 no      allow (gateway.toml:10)\n      no      device = \"console\"\n\
                  access: denied, since no entry of allow holds\n";
    assert!(text.starts_with("client: psk psk=meter-1\n") && text.ends_with(denied), "{text}");
    let text = place.dunlin(&format!("{explain} admin-1"));
    assert!(text.ends_with("access: admitted\n"), "{text}");
    let json = place.dunlin(&format!("{explain} meter-1 --json"));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json[0]["routes"][0]["is_admitted"], &json[0]["before"]), (&false.into(), &Value::Null));
    // Another name leads to the second route, which is open.
    let text = place.dunlin("gateway explain -c gateway.toml --psk-identity meter-1");
    assert!(
        text.contains("route 1 (gateway.toml:11)\naccess: admitted, since the route has no key allow"),
        "{text}"
    );
    // With a policy, the route comes after its rules.
    place.write(
        "gateway.toml",
        gateway.replace("[listener.clients]", "policy = \"policy.toml\"\n[listener.clients]"),
    );
    let text = place.dunlin(&format!("{explain} meter-1"));
    assert!(
        text.contains("before the ServerHello: profile ") && text.ends_with("no entry of allow holds\n"),
        "{text}"
    );
}

#[test]
fn finds_the_policy_of_a_listener() {
    let place = place();
    let listener = |name: &str, policy: &str| {
        format!(
            "[[listener]]\nname = \"{name}\"\nlisten = \"127.0.0.1:0\"\n{policy}\n[listener.clients]\npsk = \"keys.psk\"\n\
             [[listener.route]]\nto = \"127.0.0.1:1\"\n"
        )
    };
    place.write("other.toml", "[profile.only]\nrank = 1\n");
    let one = listener("one", "policy = \"policy.toml\"");
    place.write("gateway.toml", &one);
    let text = place.dunlin("gateway explain -c gateway.toml --psk-identity meter-1");
    assert!(text.contains("before the ServerHello: profile meter (rank 20) by rule meters"), "{text}");
    place.write("gateway.toml", one + &listener("two", "policy = \"other.toml\"") + &listener("three", ""));
    let error = place.dunlin_fails("gateway explain -c gateway.toml --psk-identity a", 1);
    assert!(error.contains("the listeners have several policies; give --listener NAME"), "{error}");
    let text = place.dunlin("gateway explain -c gateway.toml --listener two --psk-identity meter-1");
    assert!(text.contains("profile only (rank 1)"), "{text}");
    let error = place.dunlin_fails("gateway explain -c gateway.toml --listener three --psk-identity a", 1);
    assert!(error.contains("no listener three has a policy"), "{error}");
    let error = place.dunlin_fails("gateway explain -c policy.toml --listener one --psk-identity a", 2);
    assert!(error.contains("policy.toml is no configuration of a gateway"), "{error}");
}

#[test]
fn looks_up_the_device_of_a_key_as_the_listener_does() {
    let place = place();
    let policy = POLICY.replace("when.psk = \"meter-*\"", "when.device = \"hall 3\"");
    place.write("policy.toml", &policy);
    let key = "key = \"000102030405060708090a0b0c0d0e0f\"\n";
    let keys = |device: &str| format!("[[psk]]\nidentity = \"meter-1\"\nname = \"{device}\"\n{key}");
    let listener = |name: &str, keys: &str| {
        format!(
            "[[listener]]\nname = \"{name}\"\nlisten = \"127.0.0.1:0\"\npolicy = \"policy.toml\"\n\
             [listener.clients]\npsk = \"{keys}\"\n[[listener.route]]\nto = \"127.0.0.1:1\"\nallow = [{{ device = \"hall 3\" }}]\n"
        )
    };
    place.write("three.toml", keys("hall 3"));
    place.write("four.toml", keys("hall 4"));
    let listeners = [listener("a", "three.toml"), listener("b", "four.toml"), listener("c", "three.toml")];
    place.write("gateway.toml", listeners.concat());
    let text = place.dunlin("gateway explain -c gateway.toml --psk-identity meter-1");
    let (three, four) = text.split_once("\n\n").unwrap();
    for (text, listeners, device, profile, access) in [
        (
            three,
            "listeners: a, c\n",
            "device = \"hall 3\"\n",
            "after Finished:         profile meter (rank 20)",
            "access: admitted",
        ),
        (
            four,
            "listeners: b\n",
            "device = \"hall 4\"\n",
            "before the ServerHello: profile strong",
            "access: denied",
        ),
    ] {
        for part in [listeners, device, profile, access] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
    // The policy alone does not tell the device.
    let text = place.dunlin("gateway explain -c policy.toml --psk-identity meter-1");
    assert!(text.contains("unknown meters (policy.toml:22): profile meter\n"), "{text}");
}

/// A session keeps no public key of a certificate.
#[test]
fn knows_less_of_a_client_in_a_later_connection() {
    let place = place();
    place.dunlin("pki demo --out demo");
    let other = "[[rule]]\nname = \"other\"\nwhen.key = \"".to_owned()
        + &"0".repeat(64)
        + "\"\nprofile = \"admin\"\n";
    place.write("policy.toml", POLICY.replacen("[[rule]]", &(other + "[[rule]]"), 1));
    let text = place.dunlin("gateway explain -c policy.toml --cert demo/client.pem");
    for part in [
        "after Finished:         profile strong (rank 100) by rule devices",
        "later, by its session:  profile admin (rank 200) by rule other (policy.toml:18): perhaps key = ",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn explains_what_a_listener_of_dtls_does() {
    let place = place();
    place.dunlin("pki demo --out demo");
    let with_suite = |policy: String, name: &str, suite: &str| {
        let table = format!("[profile.{name}]\n");
        policy.replace(&table, &format!("{table}cipher_suites = \"{suite}\"\n"))
    };
    let policy = POLICY.replace("versions = [\"1.2\", \"1.3\"]\n", "");
    let policy = with_suite(policy, "strong", "TLS_AES_256_GCM_SHA384");
    let policy = with_suite(policy, "low", "TLS_AES_128_GCM_SHA256");
    place.write("policy.toml", with_suite(policy, "meter", "TLS_AES_128_GCM_SHA256"));
    place.write(
        "keys.toml",
        "[[psk]]\nidentity = \"meter-1\"\nkey = \"000102030405060708090a0b0c0d0e0f\"\n\
         [[psk]]\nidentity = \"meter-2\"\nhash = \"sha384\"\nkey = \"000102030405060708090a0b0c0d0e0f\"\n",
    );
    let listener = |name: &str, transport: &str| {
        format!(
            "[[listener]]\nname = \"{name}\"\nlisten = \"127.0.0.1:0\"\ntransport = \"{transport}\"\npolicy = \"policy.toml\"\n\
             [listener.clients]\npsk = \"keys.toml\"\n[[listener.route]]\nto = \"127.0.0.1:1\"\n"
        )
    };
    place.write("gateway.toml", listener("stream", "tls") + &listener("datagram", "dtls"));
    let explained = |client: &str| {
        let text = place.dunlin(&format!("gateway explain -c gateway.toml {client}"));
        let (tls, dtls) = text.split_once("\n\n").unwrap();
        assert!(tls.starts_with("listeners: stream\n") && !tls.contains("HelloRetryRequest"), "{tls}");
        assert!(dtls.starts_with("listeners: datagram\n"), "{dtls}");
        [tls.to_owned(), dtls.to_owned()]
    };
    let check = |text: &str, parts: &[&str]| {
        parts.iter().for_each(|part| assert!(text.contains(part), "{part}\n{text}"));
    };
    let [tls, dtls] = explained("--psk-identity meter-1");
    check(&tls, &["before the ServerHello: profile meter (rank 20)"]);
    check(
        &dtls,
        &[
            "HelloRetryRequest:      TLS_AES_128_GCM_SHA256\n",
            "before the ServerHello: profile meter (rank 20)",
            "later, by its session:  profile meter (rank 20)",
        ],
    );
    // The profile has no suite with the hash of this key.
    let [tls, dtls] = explained("--psk-identity meter-2");
    check(&tls, &["before the ServerHello: profile meter (rank 20)"]);
    check(
        &dtls,
        &[
            "HelloRetryRequest:      TLS_AES_256_GCM_SHA384\n",
            "before the ServerHello: profile strong (rank 100)",
            "it does not fit the HelloRetryRequest",
        ],
    );
    // Neither the first nor a later ClientHello of this client says by itself who it is.
    let [tls, dtls] = explained("--cert demo/client.pem");
    check(&tls, &["later, by its session:  profile low (rank 20)"]);
    check(
        &dtls,
        &[
            "HelloRetryRequest:      TLS_AES_256_GCM_SHA384\n",
            "before the ServerHello: profile strong (rank 100)",
            "later, by its session:  profile strong (rank 100)",
        ],
    );
}
