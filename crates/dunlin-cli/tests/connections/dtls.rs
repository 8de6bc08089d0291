//! `dunlin client --udp` and `dunlin server --udp`.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64ct::{Base64, Encoding};
use serde_json::Value;

use crate::peers::{CLIENT, KEY, OWN, Running, SERVER, Server, events, kinds, place};
use dunlin_tests::place::{Place, send_signal};

/// The options of each version, and its name.
const VERSIONS: [(&str, &str); 2] = [("-dtls1_2", "DTLSv1.2"), ("--udp", "DTLSv1.3")];

#[test]
fn certificates_authenticate_both_sides_over_udp() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --CAfile pki/root.pem --Verify -dtls1_2 -dtls1_3"));
    for (options, version) in VERSIONS {
        let told = server.echo(&place, &format!("{CLIENT} {OWN} {options}"), "hello\n");
        for line in [&*format!("Version            {version}"), "Server             X.509 localhost"] {
            assert!(told.lines().any(|l| l == line), "no {line:?} in\n{told}");
        }
        // Version 1.2 has no such message.
        let retried = told.lines().any(|l| l == "HelloRetryRequest  yes");
        assert_eq!(retried, version == "DTLSv1.3", "{told}");
        assert!(told.ends_with("---\nhello\n"), "{told}");
        let log = server.process.log();
        assert!(
            log.contains(&format!("connected: {version}, ")) && log.contains("X.509 CN=device-1"),
            "{log}"
        );
        let log = server.process.log_where(|line| line.contains(" ended: "));
        assert!(log.ends_with("orderly, by the client"), "{log}");
    }
}

#[test]
fn prints_the_same_json_as_over_tcp() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --json --udp --log-level debug"));
    let told = events(&server.echo(&place, &format!("{CLIENT} --json --udp"), "hello"));
    assert_eq!(kinds(&told), ["connection", "accepted", "data", "closed"]);
    assert_eq!((&told[0]["version"], &told[2]["base64"]), (&"DTLSv1.3".into(), &"aGVsbG8=".into()));
    let log: Vec<_> = std::iter::repeat_with(|| server.process.lines.recv().unwrap())
        .map(|line| crate::peers::json(&line))
        .take_while(|event| event["event"] != "ended")
        .collect();
    let has = |kind: &str| log.iter().any(|event| event["event"] == kind);
    assert!(has("incoming") && has("message") && has("connection"), "{log:?}");
    // The server forgets the first ClientHello, and the client says how many bytes that are.
    let connection = log.iter().find(|event| event["event"] == "connection").unwrap();
    let bytes = |event: &Value, name: &str| event[name].as_u64().unwrap();
    for [here, there] in [["written", "read"], ["read", "written"]] {
        let request = bytes(&told[0], &format!("request_bytes_{here}"));
        let all = bytes(&told[0], &format!("handshake_bytes_{here}"));
        assert!(request > 0, "{told:?}");
        assert_eq!(all - request, bytes(connection, &format!("handshake_bytes_{there}")));
        assert_eq!(bytes(connection, &format!("request_bytes_{there}")), 0);
    }
}

#[test]
fn small_datagrams_carry_a_handshake() {
    let place = place();
    let server =
        Server::new(&place, &format!("{SERVER} --CAfile pki/root.pem --Verify -dtls1_2 -dtls1_3 --mtu 127"));
    for (options, _) in VERSIONS {
        let told = server.echo(&place, &format!("{CLIENT} {OWN} {options} --mtu 127 --quiet"), "hello\n");
        assert_eq!(told, "hello\n");
    }
}

#[test]
fn authenticates_by_psks_over_udp() {
    let place = Place::new();
    let options = format!("--psk {KEY} --psk-identity d1");
    let server = Server::new(&place, &format!("{options} --echo -dtls1_2 -dtls1_3 --allow-no-dhe-kex"));
    for (version, name) in VERSIONS {
        let told = server.echo(&place, &format!("{options} --allow-no-dhe-kex {version} --brief"), "hello\n");
        assert!(told.contains(name) && told.contains("PSK d1") && told.ends_with("\nhello\n"), "{told}");
        assert!(server.process.log().contains("PSK d1"));
    }
}

#[test]
fn resumes_sessions_over_udp() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} -dtls1_2 -dtls1_3"));
    for (version, name) in VERSIONS {
        server.echo(&place, &format!("{CLIENT} {version} --sess-out session"), "hello\n");
        let told = server.echo(&place, &format!("{CLIENT} {version} --sess-in session --brief"), "hello\n");
        assert!(told.contains(name) && told.contains(", resumed"), "{told}");
        let told = server.echo(&place, &format!("{CLIENT} {version} --reconnect --brief"), "");
        assert_eq!(told.matches(", resumed").count(), 5, "{told}");
    }
}

#[test]
fn the_cache_saves_certificates_over_udp() {
    let place = place();
    let server = Server::new(
        &place,
        &format!("{SERVER} --CAfile pki/root.pem --Verify --cache compact -dtls1_2 -dtls1_3"),
    );
    for (version, _) in VERSIONS {
        let client = format!("{CLIENT} {OWN} {version} --cache compact --cache-store s{version} --brief");
        server.echo(&place, &client, "hello\n");
        let told = server.echo(&place, &client, "hello\n");
        assert!(told.contains("cached certificates of both sides"), "{told}");
    }
}

#[test]
fn explains_refusals_over_udp() {
    let place = place();
    place.dunlin("pki demo --out other");
    let server = Server::new(&place, &format!("{SERVER} --CAfile pki/root.pem --Verify -dtls1_2 -dtls1_3"));
    for (version, _) in VERSIONS {
        let (client, log) = server.refused(&place, &format!("--CAfile other/root.pem {OWN} {version}"));
        assert!(client.contains("this client refused the server"), "{client}");
        assert!(log.contains("the client refused the credential of this server"), "{log}");
    }
    let server = Server::new(&place, &format!("--psk {KEY} --psk-identity d1 --echo --udp"));
    let (client, log) = server.refused(&place, &format!("--psk {KEY}00 --psk-identity d1 --udp"));
    assert!(client.contains("decrypt_error"), "{client}");
    assert!(log.contains("pre-shared key for the identity d1 differs from --psk"), "{log}");
    let server = Server::new(&place, &format!("{SERVER} --udp"));
    // The server keeps nothing of a client without a common version, so its log is silent.
    let output = server.client(&place, &format!("{CLIENT} -dtls1_2"), "");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && stderr.contains("protocol_version"), "{stderr}");
}

/// DTLS 1.2 discards records under other keys, so neither side gets an alert.
#[test]
fn explains_a_wrong_psk_of_dtls_1_2_at_the_timeout() {
    let place = Place::new();
    let server = Server::new(&place, &format!("--psk {KEY} --psk-identity d1 --echo -dtls1_2 --timeout 2"));
    let (client, log) = server
        .refused(&place, &format!("--psk {KEY}00 --psk-identity d1 -dtls1_2 --timeout 3 --hs-timeout 400"));
    let says = "not complete after 3s: the server did not answer the client's Finished, the first record under the new keys; \
                the key of --psk may differ from the server's: give both sides the same identity and key";
    assert!(client.contains(says), "{client}");
    // The client sends its Finished at first, and again after 0.4 and 1.2 s.
    let says = "records under the new keys did not authenticate";
    let advice = "may differ from the client's";
    assert!(log.contains("not complete after 2s: ") && log.contains(says) && log.contains(advice), "{log}");
}

#[test]
fn a_port_without_a_program_is_refused_at_once() {
    let place = place();
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let line = place.dunlin_fails(&format!("client 127.0.0.1:{port} {CLIENT} --udp"), 1);
    assert!(line.contains("connection refused; check the address"), "{line}");
    assert!(line.ends_with("; leave --udp out if it speaks TLS over TCP"), "{line}");
    // A server for datagrams alone.
    let server = Server::new(&place, &format!("{SERVER} --udp"));
    let line = place.dunlin_fails(&format!("client 127.0.0.1:{} {CLIENT}", server.port), 1);
    assert!(line.ends_with("; add --udp if it speaks DTLS"), "{line}");
}

#[test]
fn a_silent_server_ends_the_handshake_in_time() {
    let place = place();
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let line = place.dunlin_fails(&format!("client 127.0.0.1:{port} {CLIENT} --udp --timeout 1"), 1);
    let says = format!(
        "not complete after 1s: nothing came back from 127.0.0.1:{port}; check the address, the port and the firewall; leave --udp out if the server speaks TLS over TCP"
    );
    assert!(line.contains(&says), "{line}");
    // A server that answers once is not silent.
    let server = Server::new(&place, &format!("{SERVER} --udp --loss 2-1000"));
    let client = format!("client 127.0.0.1:{} {CLIENT} --udp --timeout 1", server.port);
    let line = place.dunlin_fails(&client, 1);
    assert!(line.contains("not complete after 1s; raise --timeout for a slow line"), "{line}");
}

#[test]
fn openssls_client_connects_over_udp() {
    let place = place();
    let server =
        Server::new(&place, &format!("{SERVER} --CAfile pki/root.pem --Verify -dtls1_2 --naccept 1"));
    let command = format!(
        "s_client -dtls1_2 -connect 127.0.0.1:{} -CAfile pki/root.pem -verify_return_error -cert pki/client.pem \
         -cert_chain pki/intermediate.pem -key pki/client.key",
        server.port
    );
    let mut command_line = std::process::Command::new("openssl");
    command_line.args(command.split_whitespace()).current_dir(place.path(""));
    let mut client = Running::start(&mut command_line);
    client.write("hello\n");
    while client.lines.recv_timeout(crate::peers::PATIENCE).unwrap() != "hello" {}
    client.write("Q\n");
    let (status, _, stderr) = client.end();
    assert_eq!(status, 0, "{stderr}");
    let (status, _, stderr) = server.process.end();
    assert!(status == 0 && stderr.contains("X.509 CN=device-1"), "{stderr}");
}

#[test]
fn a_server_that_ends_says_goodbye() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} --udp"));
    let mut client = Running::new(&place, &format!("client localhost:{} {CLIENT} --udp --json", server.port));
    client.write("hello\n");
    while !client.line().contains("\"data\"") {}
    send_signal(&server.process.child, "-TERM");
    let closed = crate::peers::json(&client.line());
    assert!(closed["event"] == "closed" && closed["answered"] == true, "{closed}");
    let (status, _, stderr) = client.end();
    assert_eq!((status, stderr.as_str()), (0, ""));
    assert_eq!(server.process.end().0, 0);
}

/// The data that the client has sent since then is lost.
#[test]
fn a_client_says_that_the_server_is_gone() {
    let place = place();
    for (version, _) in VERSIONS {
        let mut server = Server::new(&place, &format!("{SERVER} -dtls1_2 -dtls1_3"));
        let options = format!("client localhost:{} {CLIENT} {version} --json", server.port);
        let mut client = Running::new(&place, &options);
        client.write("hello\n");
        while !client.line().contains("\"data\"") {}
        server.process.child.kill().unwrap();
        server.process.child.wait().unwrap();
        client.write("lost\n");
        let (status, stdout, stderr) = client.end();
        assert_eq!(status, 0, "{stderr}");
        let told = events(&stdout);
        assert!(told.len() == 1 && told[0]["event"] == "closed" && told[0]["answered"] == false, "{stdout}");
        assert!(stderr.contains("warning: ") && stderr.contains("data may be missing; "), "{stderr}");
    }
}

#[test]
fn negotiates_connection_ids_over_udp() {
    let place = place();
    for (server, client, received, sent) in [
        // Without a value, the client receives an empty ID, and the server's IDs have 8 random bytes.
        ("--cid", "--cid", None, Some(("", 16))),
        ("--cid a1b2c3", "--cid 0x10", Some("10"), Some(("a1b2c3", 22))),
        ("--cid 0", "--cid DEAD", Some("dead"), None),
        // One side alone negotiates none.
        ("", "--cid 8", None, None),
        ("--cid 8", "", None, None),
    ] {
        let server = Server::new(&place, &format!("{SERVER} -dtls1_2 -dtls1_3 {server}"));
        for (version, _) in VERSIONS {
            let told = server.echo(&place, &format!("{CLIENT} {version} {client} --json"), "hello");
            let connection = &events(&told)[0];
            assert_eq!(connection["connection_id"].as_str(), received, "{connection}");
            let peer = connection["peer_connection_id"].as_str();
            assert_eq!(peer.map(str::len), sent.map(|(_, len)| len), "{connection}");
            assert!(
                peer.unwrap_or_default().starts_with(sent.map_or("", |(begin, _)| begin)),
                "{connection}"
            );
            // The log of the server names the same IDs.
            let log = server.process.log_with(" connected: ");
            for (id, verb) in [(received, "sent"), (peer, "received")] {
                match id {
                    Some(id) => assert!(log.contains(&format!("{verb} {id}")), "{log}"),
                    None => assert!(!log.contains(&format!("{verb} ")), "{log}"),
                }
            }
        }
    }
    let server = Server::new(&place, &format!("{SERVER} --udp --cid 4"));
    let told = server.echo(&place, &format!("{CLIENT} --udp --cid c0ffee"), "hello\n");
    assert!(told.contains("\nConnection ID      received c0ffee and sent "), "{told}");
}

#[test]
fn an_association_gets_a_port_of_its_own() {
    let place = place();
    for (scheme, is_told) in [("ipc", true), ("ipc-unannounced", true), ("tcs", true), ("tcs-message", false)]
    {
        let options = format!("--scheme {scheme} --port-pool auto:2 --migrate on-newer-record");
        let server = Server::new(&place, &format!("{SERVER} -dtls1_2 -dtls1_3 {options}"));
        for (version, _) in VERSIONS {
            let output =
                server.client(&place, &format!("{CLIENT} {version} --scheme {scheme} --json"), "hello");
            assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{scheme} {version}");
            let told = String::from_utf8(output.stdout).unwrap();
            let connection = &events(&told)[0];
            let log = server.process.log_with(" connected: ");
            let port = log.split(", port ").nth(1).and_then(|rest| rest.split([',', ';']).next());
            let port: u64 = port.and_then(|port| port.parse().ok()).unwrap_or_else(|| panic!("{log}"));
            assert_ne!(port, u64::from(server.port));
            // A client of tcs-message learns the port a little later.
            let told = connection["association_port"].as_u64();
            assert!(told == Some(port) || told.is_none() && !is_told, "{scheme} {version}: {told:?}");
        }
    }
    // Without the server's consent, the client warns.
    let server = Server::new(&place, &format!("{SERVER} --udp"));
    assert_eq!(server.warnings, "");
    for (options, lacks) in
        [("--scheme ipc", "no port"), ("--scheme tcs", "no port"), ("--cid", "no connection ID")]
    {
        let output = server.client(&place, &format!("{CLIENT} --udp {options}"), "hello");
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains(lacks) && told.lines().count() == 1, "{options}: {told}");
    }
    // A client without the scheme uses the server's first port.
    let server = Server::new(&place, &format!("{SERVER} --udp --scheme tcs --port-pool auto:1"));
    assert!(server.warnings.contains("add --migrate on-newer-record"), "{}", server.warnings);
    server.echo(&place, &format!("{CLIENT} --udp"), "hello");
    let log = server.process.log_with(" connected: ");
    assert!(!log.contains(", port "), "{log}");
    let line = place.dunlin_fails(&format!("server --accept 0 {SERVER} --udp --scheme tcs"), 2);
    assert!(line.contains("add --port-pool"), "{line}");
    let line = place.dunlin_fails("server --accept 4433 --udp --scheme tcs --port-pool 4433-4435", 2);
    assert!(line.contains("listens at port 4433"), "{line}");
}

#[test]
fn a_server_for_both_families_logs_ipv4_addresses_as_such() {
    let place = place();
    for udp in ["--udp", ""] {
        let server = Running::new(&place, &format!("server --accept [::]:0 {SERVER} {udp}"));
        let listening = server.log_with("listening");
        let port = listening.rsplit(':').next().unwrap();
        let client = format!("client 127.0.0.1:{port} {CLIENT} --servername localhost {udp}");
        let client = Running::new(&place, &client);
        let log = server.log_with(" connected: ");
        assert!(log.contains("127.0.0.1:") && !log.contains("ffff"), "{log}");
        assert_eq!(client.end().0, 0);
    }
}

/// A network address translator between a client and a server.
struct Nat {
    port: u16,
    server: SocketAddr,
    inside: Arc<UdpSocket>,
    client: Arc<Mutex<SocketAddr>>,
    outside: Arc<Mutex<UdpSocket>>,
}

impl Nat {
    fn new(server: u16) -> Self {
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, server));
        let inside = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let port = inside.local_addr().unwrap().port();
        let outside = Arc::new(Mutex::new(UdpSocket::bind("127.0.0.1:0").unwrap()));
        let client = Arc::new(Mutex::new(server));
        let nat = Self { port, server, inside, client, outside };
        nat.rebind();
        let inside = nat.inside.clone();
        let client = nat.client.clone();
        let outside = nat.outside.clone();
        std::thread::spawn(move || {
            let mut datagram = [0; 2048];
            while let Ok((len, from)) = inside.recv_from(&mut datagram) {
                *client.lock().unwrap() = from;
                outside.lock().unwrap().send(&datagram[..len]).unwrap_or_default();
            }
        });
        nat
    }

    /// Gives the client another address. Datagrams that the server sends to the previous address are lost.
    fn rebind(&self) {
        let outside = UdpSocket::bind("127.0.0.1:0").unwrap();
        outside.connect(self.server).unwrap();
        let address = outside.local_addr().unwrap();
        let from_server = outside.try_clone().unwrap();
        *self.outside.lock().unwrap() = outside;
        let inside = self.inside.clone();
        let client = self.client.clone();
        let current = self.outside.clone();
        std::thread::spawn(move || {
            let mut datagram = [0; 2048];
            while let Ok(len) = from_server.recv(&mut datagram) {
                if current.lock().unwrap().local_addr().unwrap() != address {
                    return;
                }
                inside.send_to(&datagram[..len], *client.lock().unwrap()).unwrap();
            }
        });
    }
}

#[test]
fn a_connection_with_ids_survives_a_new_address() {
    let place = place();
    let server = Server::new(&place, &format!("{SERVER} -dtls1_2 -dtls1_3 --cid"));
    for (version, _) in VERSIONS {
        let nat = Nat::new(server.port);
        let client = format!("client localhost:{} {CLIENT} {version} --cid --json", nat.port);
        let mut client = Running::new(&place, &client);
        for round in 0..3 {
            // Data can be lost while the server checks the address.
            let text = format!("in round {round}\n");
            let data = format!("\"base64\":\"{}\"", Base64::encode_string(text.as_bytes()));
            let is_echoed = (0..100).any(|_| {
                client.write(&text);
                let mut lines =
                    std::iter::from_fn(|| client.lines.recv_timeout(Duration::from_millis(300)).ok());
                lines.any(|line| line.contains(&data))
            });
            assert!(is_echoed, "{version} round {round}");
            nat.rebind();
        }
    }
}

#[test]
fn losses_delay_a_handshake_but_do_not_end_it() {
    let place = place();
    let server =
        Server::new(&place, &format!("{SERVER} -dtls1_2 -dtls1_3 --cid --hs-timeout 20-200 --loss 20%"));
    for (version, _) in VERSIONS {
        let told =
            server.echo(&place, &format!("{CLIENT} {version} --hs-timeout 20-200 --loss 1-2,4 --quiet"), "");
        assert_eq!(told, "");
    }
    // The server receives nothing, and the client gives up at its limit.
    let client =
        format!("client localhost:{} {CLIENT} --udp --loss 100% --hs-timeout 20 --timeout 1", server.port);
    let line = place.dunlin_fails(&client, 1);
    assert!(line.contains("not complete after 1s"), "{line}");
}

/// The client's timeout decides when a silent server gets the next ClientHello.
#[test]
fn the_timeout_of_retransmissions_is_settable() {
    let place = place();
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let count = |timeout: &str| {
        place.dunlin_fails(&format!("client 127.0.0.1:{port} {CLIENT} --udp --timeout 1 {timeout}"), 1);
        silent.set_nonblocking(true).unwrap();
        let mut datagram = [0; 2048];
        let first = || silent.recv_from(&mut datagram).ok().map(|_| datagram[0]);
        // Besides ClientHellos, there is the alert at the end.
        std::iter::from_fn(first).filter(|content_type| *content_type == 22).count()
    };
    // A busy machine may send fewer than fit into the second, but not more.
    assert_eq!(count("--hs-timeout 2000"), 1);
    assert!(count("--hs-timeout 10-20") > 2);
}

#[test]
fn explains_options_that_datagrams_lack() {
    let place = place();
    for (arguments, word) in [
        (format!("client --mtu 256 {CLIENT}"), "--mtu needs --udp; add --udp, or leave --mtu out"),
        (format!("client -mtu=256 {CLIENT}"), "--mtu needs --udp; "),
        (format!("client --udp --mtu 79 {CLIENT}"), "not a number of bytes from 80 to 65507"),
        (format!("client --udp --mtu abc {CLIENT}"), "not a number of bytes from 80 to 65507"),
        (format!("client {CLIENT} --cid"), "--cid needs --udp; "),
        (format!("server {SERVER} --frozen a --frozen-store b"), "--frozen needs --udp; "),
        (format!("client --udp --cid localhost:4433 {CLIENT}"), "neither a length from 0 to 32 nor"),
        (format!("server --udp --cid 33 {SERVER}"), "the length is above 32; give a shorter one"),
        (format!("server --udp --cid={} {SERVER}", "ab".repeat(25)), "begin with at most 24 bytes, not 25"),
        (format!("client --hs-timeout 400 {CLIENT}"), "--udp"),
        (format!("client --udp --hs-timeout 9 {CLIENT}"), "in milliseconds, from 10 to"),
        (format!("server --udp --hs-timeout 800-400 {SERVER}"), "in milliseconds, from 10 to"),
        (format!("client --loss 1 {CLIENT}"), "--udp"),
        (format!("client --udp --loss 101% {CLIENT}"), "not a percentage from 0% to 100%"),
        (format!("server --udp --loss 0 {SERVER}"), "neither numbers of datagrams from 1 on"),
        (format!("server {SERVER} --udp --early-data 100"), "--early-data"),
        (format!("server {SERVER} --udp --tls1-2 --renegotiation"), "--renegotiation"),
    ] {
        let line = place.dunlin_fails(&arguments, 2);
        assert!(line.contains(word), "{line}");
    }
}

/// Stops a server, and returns the line about its frozen associations.
pub(crate) fn stop(server: Server) -> String {
    send_signal(&server.process.child, "-TERM");
    let told = server.process.log_with("froze ");
    let (status, _, stderr) = server.process.end();
    assert_eq!(status, 0, "{stderr}");
    told
}

#[test]
fn associations_survive_a_restart_of_the_server() {
    let place = place();
    let options = format!("{SERVER} --CAfile pki/root.pem --Verify -dtls1_2 -dtls1_3 --cid 8");
    let options =
        |store: &str| format!("{options} --frozen server.frozen --frozen-store {store} --log-level debug");
    let server = Server::new(&place, &options("ids"));
    let port = server.port;
    let mut clients =
        [("-dtls1_2", ""), ("--udp", ""), ("-dtls1_2", "--cid"), ("--udp", "--cid")].map(|(version, cid)| {
            Running::new(&place, &format!("client localhost:{port} {CLIENT} {OWN} {version} {cid} --quiet"))
        });
    let mut exchange = |text: &str| {
        for client in &mut clients {
            client.write(&format!("{text}\n"));
            assert_eq!(client.line(), text);
        }
    };
    exchange("before");
    let told = stop(server);
    assert!(told.contains("froze 4 associations into server.frozen in "), "{told}");
    assert_eq!((place.mode("server.frozen"), place.mode("server.frozen.key")), (0o600, 0o600));
    let copy = std::fs::read(place.path("server.frozen")).unwrap();

    let server = Server::at(&place, port, &options("ids"));
    assert!(server.warnings.contains("thawed 4 associations from server.frozen in "), "{}", server.warnings);
    assert!(!place.path("server.frozen").exists());
    // Some of these lines may come before the one that the server listens.
    for _ in server.warnings.matches(" continues: ").count()..4 {
        let told = server.process.log_with(" continues: ");
        assert!(told.contains("X.509 CN=device-1"), "{told}");
    }
    exchange("after");
    // A new client is served, too.
    assert_eq!(server.echo(&place, &format!("{CLIENT} {OWN} --udp --quiet"), "new\n"), "new\n");
    stop(server);

    // Another store of IDs does not know the file. The server sets it aside, and its own end does not touch
    // it.
    let server = Server::at(&place, port, &options("sqlite:ids.db"));
    let refusal = "server.frozen: the file was thawed before, or belongs to another store";
    assert!(server.warnings.contains(refusal), "{}", server.warnings);
    assert!(server.warnings.contains("server.frozen.refused"), "{}", server.warnings);
    stop(server);
    std::fs::rename(place.path("server.frozen.refused"), place.path("server.frozen")).unwrap();
    // With another key the server does not start, and the file stays.
    place.write("other.key", "0123456789abcdef0123456789abcdef");
    place.set_mode("other.key", 0o600);
    let other_key = format!("server --accept 0 {} --frozen-key other.key", options("ids"));
    let told = place.dunlin_fails(&other_key, 1);
    assert!(told.contains("server.frozen: sealed with another key"), "{told}");
    // Without the trusted certificates of the handshakes no association thaws, and the file stays, too.
    place.dunlin("pki demo --out other");
    let other_trust =
        format!("server --accept 0 {}", options("ids").replace("pki/root.pem", "other/root.pem"));
    let told = place.dunlin_fails(&other_trust, 1);
    assert!(told.contains("server.frozen: none of 4 associations could be thawed"), "{told}");
    let server = Server::at(&place, port, &options("ids"));
    assert!(server.warnings.contains("thawed 4 associations"), "{}", server.warnings);
    exchange("again");
    drop(server);
    // The file of an earlier stop, for example from a backup.
    std::fs::write(place.path("server.frozen"), copy).unwrap();
    place.set_mode("server.frozen", 0o600);
    let server = Server::at(&place, port, &options("ids"));
    assert!(server.warnings.contains(refusal), "{}", server.warnings);
}

/// Associations of the previous process do not count as accepted, and those beyond --max-connections are
/// named.
#[test]
fn thawed_associations_leave_room_for_new_clients() {
    let place = Place::new();
    let client = format!("--psk {KEY} --udp --quiet");
    let options = format!("--psk {KEY} --echo --udp --cid 8 --frozen server.frozen --frozen-store ids");
    let server = Server::new(&place, &options);
    let port = server.port;
    let mut clients =
        [(); 2].map(|()| Running::new(&place, &format!("client localhost:{port} {client} --cid")));
    for client in &mut clients {
        client.write("before\n");
        assert_eq!(client.line(), "before");
    }
    assert!(stop(server).contains("froze 2 associations"));
    let server = Server::at(&place, port, &format!("{options} --naccept 1"));
    assert_eq!(server.echo(&place, &client, "new\n"), "new\n");
    assert!(stop(server).contains("froze 2 associations"));
    let server = Server::at(&place, port, &format!("{options} --max-connections 1"));
    assert!(server.warnings.contains("1 association not thawed, the first (127."), "{}", server.warnings);
}

/// A server with certificates, which has its keys beside them.
const BESIDE: &str = "--cert pki/server.pem --key pki/server.key --echo --udp --cid 8 --frozen server.frozen --frozen-store ids";

/// Writes a key file with these identities.
fn write_keys(place: &Place, identities: &[&str]) {
    place.write("keys.psk", identities.iter().map(|own| format!("{own}:{KEY}\n")).collect::<String>());
    place.set_mode("keys.psk", 0o600);
}

/// Clients with these identities, and the port of the server that has frozen their associations.
fn frozen_clients(place: &Place, identities: &[&str]) -> (u16, Vec<Running>) {
    place.dunlin("pki demo --out pki");
    write_keys(place, identities);
    let server = Server::new(place, &format!("{BESIDE} --psk-file keys.psk"));
    let port = server.port;
    let clients = identities.iter().map(|identity| {
        let own = format!("--psk {KEY} --psk_identity {identity} --udp --cid --quiet");
        let mut client = Running::new(place, &format!("client localhost:{port} {own}"));
        client.write("before\n");
        assert_eq!(client.line(), "before");
        client
    });
    let clients = clients.collect();
    stop(server);
    (port, clients)
}

const KEY_IS_GONE: &str = "the first because: the peer is not accepted: this side no longer has the pre-shared key of the frozen association";

#[test]
fn a_server_ends_the_frozen_association_of_a_removed_key() {
    let place = Place::new();
    let (port, mut clients) = frozen_clients(&place, &["removed", "other"]);
    write_keys(&place, &["other"]);
    let server = Server::at(&place, port, &format!("{BESIDE} --psk-file keys.psk"));
    let told = format!("1 association not thawed, {KEY_IS_GONE}");
    assert!(server.warnings.contains(&told), "{}", server.warnings);
    assert!(!place.path("server.frozen").exists());
    clients[1].write("after\n");
    assert_eq!(clients[1].line(), "after");
}

/// Without keys the server does not start. With other clients' keys it does, since all clients may have lost
/// their keys.
#[test]
fn a_server_with_the_wrong_keys_leaves_the_frozen_file_alone() {
    let place = Place::new();
    let (port, mut clients) = frozen_clients(&place, &["sensor"]);
    let told = place.dunlin_fails(&format!("server --accept 0 {BESIDE}"), 1);
    assert!(
        told.contains("none of 1 associations could be thawed") && told.contains("pre-shared key"),
        "{told}"
    );
    write_keys(&place, &["other"]);
    let options = format!("{BESIDE} --psk-file keys.psk");
    let server = Server::at(&place, port, &options);
    let told = &server.warnings;
    assert!(told.contains(KEY_IS_GONE) && told.contains("starts without this file"), "{told}");
    // A server that has nothing to freeze leaves the name to it.
    stop(server);
    write_keys(&place, &["sensor"]);
    let server = Server::at(&place, port, &options);
    assert!(server.warnings.contains("thawed 1 association from server.frozen"), "{}", server.warnings);
    clients[0].write("after\n");
    assert_eq!(clients[0].line(), "after");
    // A server with clients of its own sets the file aside.
    stop(server);
    write_keys(&place, &["other"]);
    let server = Server::at(&place, port, &options);
    let other = format!("--psk {KEY} --psk_identity other --udp --cid --quiet");
    let mut other = Running::new(&place, &format!("client localhost:{port} {other}"));
    other.write("other\n");
    assert_eq!(other.line(), "other");
    stop(server);
    std::fs::rename(place.path("server.frozen.refused"), place.path("server.frozen")).unwrap();
    write_keys(&place, &["sensor"]);
    let _server = Server::at(&place, port, &options);
    clients[0].write("again\n");
    assert_eq!(clients[0].line(), "again");
}

#[test]
fn a_server_that_does_not_start_leaves_the_frozen_file_alone() {
    let place = Place::new();
    let options = format!("--psk {KEY} --echo --udp --frozen server.frozen --frozen-store ids");
    stop(Server::new(&place, &options));
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let told = place.dunlin_fails(&format!("server --accept 0 {options} --scheme tcs --port-pool {port}"), 1);
    assert!(told.contains(&format!("--port-pool: port {port}: ")), "{told}");
    assert!(place.path("server.frozen").exists());
}

#[test]
fn a_server_warns_that_associations_with_a_port_are_not_frozen() {
    let place = Place::new();
    let options = format!("--psk {KEY} --echo --udp --frozen server.frozen --frozen-store ids");
    let server = Server::new(&place, &options);
    assert!(!server.warnings.contains("--port-pool"), "{}", server.warnings);
    drop(server);
    let server = Server::new(&place, &format!("{options} --scheme tcs --port-pool auto:1"));
    assert!(server.warnings.contains("--frozen: associations with a port"), "{}", server.warnings);
}

#[test]
fn a_server_that_cannot_freeze_ends_with_an_error() {
    let place = Place::new();
    let options = format!("--psk {KEY} --echo --udp --frozen a --frozen-store ids");
    let server = Server::new(&place, &options);
    std::fs::remove_dir(place.path("ids")).unwrap();
    send_signal(&server.process.child, "-TERM");
    let (status, _, stderr) = server.process.end();
    assert_eq!(status, 1, "{stderr}");
    assert!(stderr.contains("associations are lost: ids"), "{stderr}");
    assert_eq!(place.files(), ["a.key"]);
}

#[test]
fn associations_need_a_store_to_survive() {
    let place = Place::new();
    let options = format!("server --accept 0 --psk {KEY} --echo");
    for (more, why) in [
        ("--udp --frozen a", "--frozen-ids"),
        ("--frozen a --frozen-store ids", "--udp"),
        ("--udp --frozen a --frozen-store mysql:x", "--frozen-ids: unknown kind of store"),
        ("--udp --frozen a --frozen-store rediss://host", "--frozen-ids: TLS to Redis is not supported"),
        ("--udp --frozen a --frozen-key ./a --frozen-store ids", "--frozen-key: ./a is the file of --frozen"),
        ("--udp --frozen a --frozen-store a", "--frozen-ids: a is the file of --frozen"),
        ("--udp --frozen a --frozen-store sqlite:./a.key", "--frozen-ids: ./a.key is the file of --frozen"),
    ] {
        let told = place.dunlin_fails(&format!("{options} {more}"), 2);
        assert!(told.contains(why), "{more}: {told}");
    }
    place.write("file", "");
    let told = place.dunlin_fails(&format!("{options} --udp --frozen a --frozen-store file"), 1);
    assert!(told.contains("--frozen-ids: file: not a directory"), "{told}");
    // Nothing listens on this port of Redis. The server says so when it starts.
    let redis = format!("{options} --udp --frozen a --frozen-store redis://127.0.0.1:1");
    let told = place.dunlin_fails(&redis, 1);
    assert!(told.contains("--frozen-ids: Redis at 127.0.0.1:1: "), "{told}");
    // A file of another kind stays, because the server does not start with it.
    place.write("notes.key", "0123456789abcdef0123456789abcdef");
    place.set_mode("notes.key", 0o600);
    place.write("notes", "-----BEGIN PRIVATE KEY----- and more than the beginning of a file");
    let told = place.dunlin_fails(&format!("{options} --udp --frozen notes --frozen-store ids"), 1);
    assert!(told.contains("notes: not a file of frozen associations"), "{told}");
    assert!(place.read("notes").contains("PRIVATE"));
    place.write("a.key", "short");
    place.set_mode("a.key", 0o600);
    let told = place.dunlin_fails(&format!("{options} --udp --frozen a --frozen-store ids"), 1);
    assert!(told.contains("--frozen-key: a.key: it has 5 bytes"), "{told}");
}
