//! Runs `dunlin explain` on real traffic. It must agree with tshark, and the bytes must add up to the
//! capture.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use dunlin_tests::place::Place;
use serde_json::Value;

/// Captures the traffic of `script` in a network namespace, which has no other traffic and can use fixed
/// ports.
///
/// The script may use `wait_for TEXT FILE`, `$dunlin`, and the certificates in `pki`. At the end a last
/// datagram is sent: once the capture holds it, the capture is complete.
fn capture(place: &Place, options: &str, script: &str) {
    let script = format!(
        r#"set -eu
        PATH=$PATH:/sbin:/usr/sbin
        trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
        wait_for() {{
            for i in $(seq 600); do
                if grep -aqs "$1" "$2"; then return; fi
                sleep 0.05
            done
            echo "no $1 in $2:" >&2; cat "$2" >&2; exit 1
        }}
        ip link set lo up
        dumpcap -q -i lo {options} -w capture 2>dumpcap.log &
        dumpcap=$!
        wait_for File: dumpcap.log
        {script}
        echo -n end-of-capture >/dev/udp/127.0.0.1/9
        wait_for end-of-capture capture
        kill -INT $dumpcap
        wait $dumpcap"#
    );
    let mut command = Command::new("unshare");
    if !is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--net", "bash", "-c", &script]).current_dir(place.path("")).stdin(Stdio::null());
    command.env("dunlin", env!("CARGO_BIN_EXE_dunlin")).env("SSLKEYLOGFILE", "keys");
    let output = command.output().expect("unshare runs: `tools/setup test` installs it");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}{stderr}", String::from_utf8_lossy(&output.stdout));
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0)
}

/// Handshake message types by connection and sending port, in order.
type Messages = BTreeMap<(String, String), Vec<u64>>;

/// Reads the capture with tshark: the messages, and the bytes of all frames, of IP headers, of transport
/// headers, and of TCP retransmissions, which a busy machine may cause.
fn tshark(place: &Place) -> (Messages, [u64; 4]) {
    let names = [
        "frame.len",
        "ip.hdr_len",
        "tcp.hdr_len",
        "tcp.seq",
        "tcp.len",
        "tcp.stream",
        "tcp.srcport",
        "udp.stream",
        "udp.srcport",
        "tls.handshake.type",
        "dtls.handshake.type",
        "dtls.handshake.fragment_offset",
        "icmp.type",
    ];
    let arguments: String = names.map(|name| format!(" -e {name}")).concat();
    let output = place.tool("tshark", &format!("-r capture -o tls.keylog_file:keys -T fields{arguments}"));
    let mut messages = Messages::new();
    let mut bytes = [0; 4];
    // The next sequence number, by connection and sending port.
    let mut sent = BTreeMap::new();
    for line in output.lines() {
        let values: Vec<_> = line.split('\t').collect();
        assert_eq!(values.len(), names.len(), "other fields than asked for: {line}");
        let field = |name: &str| values[names.iter().position(|n| *n == name).expect("it is asked for")];
        let number = |name: &str| field(name).split(',').next().unwrap().parse().unwrap_or(0_u64);
        // An ICMP message quotes a UDP header, which is not its own.
        let is_udp = field("icmp.type").is_empty() && !field("udp.stream").is_empty();
        bytes[0] += number("frame.len");
        bytes[1] += number("ip.hdr_len");
        bytes[2] += number("tcp.hdr_len") + if is_udp { 8 } else { 0 };
        let transport = if is_udp { "udp" } else { "tcp" };
        let of_transport = |name: &str| field(&format!("{transport}.{name}"));
        let key = (format!("{transport} {}", of_transport("stream")), of_transport("srcport").to_owned());
        let begin = number("tcp.seq");
        let sent = sent.entry(key.clone()).or_insert(0);
        let end = begin + number("tcp.len");
        bytes[3] += (*sent).min(end).saturating_sub(begin);
        *sent = end.max(*sent);
        // tshark lists every fragment. Exactly one fragment of a message has offset 0.
        let offsets = field("dtls.handshake.fragment_offset").split(',');
        let fragments = field("dtls.handshake.type").split(',').zip(offsets);
        let begun = fragments.filter(|(_, offset)| *offset == "0").map(|(typ, _)| typ);
        let types = field("tls.handshake.type").split(',').chain(begun).filter(|typ| !typ.is_empty());
        messages.entry(key).or_default().extend(types.map(|typ| typ.parse::<u64>().unwrap()));
    }
    messages.retain(|_, types| !types.is_empty());
    (messages, bytes)
}

/// Runs `dunlin explain --json`, which must succeed.
fn explained(place: &Place, arguments: &str) -> Value {
    serde_json::from_str(&place.dunlin(&format!("explain --json {arguments}"))).unwrap()
}

fn messages(explanation: &Value) -> Messages {
    let mut messages = Messages::new();
    let mut streams = BTreeMap::new();
    for flow in explanation["flows"].as_array().unwrap() {
        let carrier = flow["carrier"].as_str().unwrap();
        let stream = streams.entry(carrier).and_modify(|n| *n += 1).or_insert(0);
        for record in flow["records"].as_array().unwrap() {
            let end = flow[record["from"].as_str().unwrap()].as_str().unwrap();
            let port = end.rsplit(':').next().unwrap().to_owned();
            for part in record["parts"].as_array().unwrap() {
                if part.get("message_bytes").is_some() {
                    let typ = part["handshake_type"].as_u64().unwrap();
                    messages.entry((format!("{carrier} {stream}"), port.clone())).or_default().push(typ);
                }
            }
        }
    }
    messages
}

/// Checks that the bytes of layers, packets, records and messages add up on every level.
fn check_sums(explanation: &Value) {
    let number = |value: &Value, key: &str| value[key].as_u64().unwrap();
    let array = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let layers = |bytes: &Value| -> u64 {
        let of_layer = |key: &str| !["total_bytes", "tls_bytes"].contains(&key);
        bytes.as_object().unwrap().iter().filter(|(k, _)| of_layer(k)).map(|(_, v)| v.as_u64().unwrap()).sum()
    };
    let total = |bytes: &Value| {
        assert_eq!(layers(bytes), number(bytes, "total_bytes"), "{bytes}");
        number(bytes, "total_bytes")
    };
    let mut all = total(&explanation["elsewhere"]);
    for flow in array(explanation, "flows") {
        let bytes = &flow["bytes"];
        all += total(bytes);
        let packets = array(&flow, "packets");
        let of_packets = |key: &str| packets.iter().map(|packet| number(packet, key)).sum::<u64>();
        for key in ["link_bytes", "ip_bytes", "transport_bytes"] {
            assert_eq!(of_packets(key), number(bytes, key), "{key}");
        }
        let mut tls = 0;
        for record in array(&flow, "records") {
            tls += number(&record, "header_bytes") + number(&record, "protection_bytes");
            for part in array(&record, "parts") {
                tls += number(&part, "bytes");
                let fields: u64 = array(&part, "fields").iter().map(|field| number(field, "bytes")).sum();
                let whole = part.get("message_bytes").map_or(0, |whole| whole.as_u64().unwrap());
                assert_eq!(fields, whole, "{part}");
            }
        }
        assert_eq!(tls, number(bytes, "tls_bytes"));
        let payload = tls + number(bytes, "other_bytes") + number(bytes, "retransmitted_bytes");
        assert_eq!(payload, of_packets("payload_bytes"));
        let messages: u64 = array(&flow, "messages").iter().map(|message| number(message, "bytes")).sum();
        let around = number(bytes, "record_header_bytes") + number(bytes, "protection_bytes");
        assert_eq!(messages + around, tls);
    }
    assert_eq!(all, total(&explanation["bytes"]));
}

/// Checks that `dunlin explain` agrees with tshark. Returns the explanation.
fn agrees(place: &Place, arguments: &str) -> Value {
    let explanation = explained(place, arguments);
    check_sums(&explanation);
    let (expected, [frames, ip, transport, again]) = tshark(place);
    assert_eq!(messages(&explanation), expected);
    let bytes = &explanation["bytes"];
    assert_eq!(bytes["total_bytes"], frames);
    assert_eq!(bytes["ip_bytes"], ip);
    assert_eq!(bytes["transport_bytes"], transport);
    assert_eq!(bytes["retransmitted_bytes"], again);
    explanation
}

/// The versions and suites of the TLS flows.
fn negotiated(explanation: &Value) -> Vec<(&str, &str)> {
    let flows = explanation["flows"].as_array().unwrap().iter();
    flows.filter_map(|flow| Some((flow["version"].as_str()?, flow["cipher_suite"].as_str()?))).collect()
}

const OPENSSL: &str = "\
    openssl s_server -accept 4433 -cert pki/server.pem -key pki/server.key -CAfile pki/root.pem -Verify 3 -rev \
        -ciphersuites TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_CCM_SHA256 >server.log 2>&1 &
    wait_for ACCEPT server.log
    connect() {
        echo hello | openssl s_client -connect 127.0.0.1:4433 -servername localhost -CAfile pki/root.pem \
            -cert pki/client.pem -cert_chain pki/intermediate.pem -key pki/client.key -keylogfile keys \"$@\"
    }";

#[test]
fn explains_openssl_in_tls_1_3() {
    let place = Place::new();
    place.dunlin("pki demo --out pki");
    let script = format!(
        "{OPENSSL}
        for suite in TLS_AES_128_GCM_SHA256 TLS_CHACHA20_POLY1305_SHA256 TLS_AES_128_CCM_SHA256; do
            connect -ciphersuites $suite
        done
        connect -groups P-384:X25519
        connect -ciphersuites TLS_AES_256_GCM_SHA384 || true"
    );
    capture(&place, "-P", &script);
    let explanation = agrees(&place, "capture --keylog keys");
    let suites: Vec<_> = negotiated(&explanation);
    let expected = ["TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_CCM_SHA256"];
    assert_eq!(suites[..3], expected.map(|suite| ("TLSv1.3", suite)));
    // The refused handshake ends with an alert.
    let flows = explanation["flows"].as_array().unwrap();
    let refused = flows.iter().find(|flow| flow["version"].is_null() && flow["protocol"] == "TLS").unwrap();
    assert_eq!(refused["messages"][1]["name"], "alert fatal handshake_failure");
    assert_eq!(explanation["bytes"]["sealed_bytes"], 0);
}

/// The pcapng capture also has messages after the handshake.
#[test]
fn explains_dunlins_own_traffic() {
    let place = Place::new();
    place.dunlin("pki demo --out pki");
    place.dunlin("psk new --identity sensor-7 --out psk");
    let script = r#"
        $dunlin server --accept 4433 --cert pki/server.pem --key pki/server.key --CAfile pki/root.pem --Verify \
            --echo >server.log 2>&1 &
        wait_for listening server.log
        # The terminal shows each line twice: as typed, and as echoed by the server, which has then answered the KeyUpdate.
        touch client.log
        (
            printf 'hello\nK\nagain\n'
            for i in $(seq 600); do
                if [ "$(grep -ac again client.log)" -ge 2 ]; then break; fi
                sleep 0.05
            done
            printf 'Q\n'
        ) | script --quiet --return --flush --command "$dunlin client localhost:4433 \
            --cert pki/client.pem --key pki/client.key --CAfile pki/root.pem --keylogfile keys" /dev/null >client.log
        $dunlin server --accept 4434 --psk-file psk --echo >psk.log 2>&1 &
        wait_for listening psk.log
        echo hello | $dunlin client localhost:4434 --psk-file psk --psk-identity sensor-7 --lean --keylogfile keys"#;
    capture(&place, "", script);
    let explanation = agrees(&place, "capture --keylog keys");
    let count = |flow: usize, from: &str, name: &str| {
        let flows: Vec<_> =
            explanation["flows"].as_array().unwrap().iter().filter(|f| f["protocol"] == "TLS").collect();
        let messages = flows[flow]["messages"].as_array().unwrap();
        let of = messages.iter().find(|m| m["name"] == name && m["from"] == from);
        of.map_or(0, |message| message["count"].as_u64().unwrap())
    };
    // Records after a KeyUpdate were decrypted with the next keys.
    assert_eq!(count(0, "client", "KeyUpdate"), 1);
    assert_eq!(count(0, "server", "KeyUpdate"), 1);
    // A server that reads both lines at once sends both echoes behind its KeyUpdate.
    assert!([1, 2].contains(&count(0, "server", "application data")));
    assert_eq!(count(0, "client", "alert warning close_notify"), 1);
    assert_eq!(count(0, "server", "Certificate"), 1);
    assert_eq!(count(1, "server", "Certificate"), 0);
    assert_eq!(count(1, "server", "Finished"), 1);
    assert_eq!(explanation["bytes"]["sealed_bytes"], 0);

    // Without the key log the byte counts are the same, but only the hellos are readable.
    let without = explained(&place, "capture");
    check_sums(&without);
    assert_eq!(without["bytes"]["total_bytes"], explanation["bytes"]["total_bytes"]);
    assert_eq!(without["bytes"]["tls_bytes"], explanation["bytes"]["tls_bytes"]);
    assert!(messages(&without).values().all(|types| *types == [1] || *types == [2]));

    // The text output has the same contents.
    let text = place.dunlin("explain capture --keylog keys");
    assert!(text.contains(": TLSv1.3, TLS_AES_128_GCM_SHA256, "), "{text}");
    assert!(text.contains("      18        server_name: localhost\n"), "{text}");
}

#[test]
fn explains_gnutls() {
    let place = Place::new();
    place.dunlin("pki demo --out pki");
    let script = "
        gnutls-serv --echo -p 4433 --x509certfile pki/server.pem --x509keyfile pki/server.key \\
            --x509cafile pki/root.pem >server.log 2>&1 &
        wait_for 'IPv4.*done' server.log
        echo hello | gnutls-cli --x509cafile pki/root.pem --sni-hostname localhost --verify-hostname localhost -p 4433 127.0.0.1";
    capture(&place, "-P", script);
    let explanation = agrees(&place, "capture --keylog keys");
    assert_eq!(negotiated(&explanation), [("TLSv1.3", "TLS_AES_256_GCM_SHA384")]);
    assert_eq!(explanation["bytes"]["sealed_bytes"], 0);
}

#[test]
fn explains_openssl_in_tls_1_2_with_aead_suites() {
    let place = Place::new();
    place.dunlin("pki demo --out pki");
    let script = "
        openssl s_server -accept 4433 -cert pki/server.pem -key pki/server.key -CAfile pki/root.pem -Verify 3 -rev \\
            -tls1_2 -cipher ALL -psk 000102030405060708090a0b0c0d0e0f >server.log 2>&1 &
        wait_for ACCEPT server.log
        for suite in ECDHE-ECDSA-AES128-GCM-SHA256 ECDHE-ECDSA-AES256-GCM-SHA384 ECDHE-ECDSA-CHACHA20-POLY1305 \\
            ECDHE-ECDSA-AES128-CCM ECDHE-ECDSA-AES128-CCM8; do
            echo hello | openssl s_client -connect 127.0.0.1:4433 -CAfile pki/root.pem -cert pki/client.pem \\
                -cert_chain pki/intermediate.pem -key pki/client.key -keylogfile keys -tls1_2 -cipher $suite
        done
        echo hello | openssl s_client -connect 127.0.0.1:4433 -keylogfile keys -tls1_2 -cipher PSK-AES128-CCM8 \\
            -psk 000102030405060708090a0b0c0d0e0f";
    capture(&place, "-P", script);
    let explanation = agrees(&place, "capture --keylog keys");
    let suites: Vec<_> = negotiated(&explanation).into_iter().map(|(_, suite)| suite).collect();
    let expected = [
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_ECDHE_ECDSA_WITH_AES_128_CCM",
        "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8",
        "TLS_PSK_WITH_AES_128_CCM_8",
    ];
    assert_eq!(suites, expected);
    let bytes = &explanation["bytes"];
    assert_eq!(bytes["sealed_bytes"], 0);
    // Without the key log the byte counts are the same, since AEAD suites have a constant overhead.
    let without = explained(&place, "capture");
    assert_eq!(&without["bytes"], bytes);
}

/// The handshake has a HelloVerifyRequest and fragmented messages.
#[test]
fn explains_openssl_in_dtls_1_2() {
    let place = Place::new();
    place.dunlin("pki demo --out pki");
    // The programs exit at the end of their input, so keep it open.
    let script = "
        mkfifo to-client to-server
        exec 8<>to-client 9<>to-server
        openssl s_server -dtls1_2 -mtu 400 -accept 4433 -listen -cert pki/server.pem -key pki/server.key \
            -CAfile pki/root.pem -Verify 3 <&9 >server.log 2>&1 &
        wait_for ACCEPT server.log
        openssl s_client -dtls1_2 -mtu 400 -connect 127.0.0.1:4433 -CAfile pki/root.pem -cert pki/client.pem \
            -cert_chain pki/intermediate.pem -key pki/client.key -keylogfile keys <&8 >client.log 2>&1 &
        client=$!
        wait_for 'Verify return code' client.log
        echo hello >&8
        wait_for hello server.log
        echo Q >&8
        wait $client";
    capture(&place, "-P", script);
    let explanation = agrees(&place, "capture --keylog keys");
    assert_eq!(negotiated(&explanation), [("DTLSv1.2", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384")]);
    let flow = &explanation["flows"][0];
    assert_eq!(flow["messages"][1]["name"], "HelloVerifyRequest");
    assert_eq!(flow["bytes"]["sealed_bytes"], 0);
    assert_eq!(flow["bytes"]["application_data_bytes"], 6);
}

/// The readable part goes to stdout, and stderr gets one line.
#[test]
fn names_the_problem_of_unreadable_input() {
    let place = Place::new();
    // A whole alert, then a truncated record of a ServerHello.
    let output = place.command("explain '15 0303 0002 0228 16 0303 0040 02'").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.contains("alert fatal handshake_failure"), "{stdout}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    let why = "not all of it could be read: from the client: the stream ends in the middle of a record; the last 6 bytes";
    assert!(stderr.contains(why) && stderr.lines().count() == 1, "{stderr}");

    place.write("text", "no capture");
    place.write("digits", "15 0303\n0002 0100\n");
    let alert = place.dunlin("explain digits");
    assert!(alert.contains("alert warning close_notify"), "{alert}");
    let fails = |arguments: &str| place.dunlin_fails(&format!("explain {arguments}"), 1);
    assert!(fails("text").contains("text: neither a pcap nor a pcapng file"));
    assert!(fails("absent.pcap").contains("absent.pcap: no such file"));
    assert!(fails("digits --keylog text").contains("text: no line has the form of a key log"));
    assert!(fails("160").contains("not hexadecimal digits in pairs"));
    assert!(fails("ffff").contains("neither a record nor a handshake message"));
}
