//! Redirection from plain HTTP: the gateway asks curl for its identity, and sends it on to HTTPS under a
//! one-time name.

use std::net::SocketAddr;
use std::process::Output;

use dunlin_gateway::Gateway;
use dunlin_pki::KeyType;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::process::Command;

use crate::place::{Place, metric, route, within};

const POLICY: &str = r#"
[profile.strong]
rank = 100
client = "request"
[profile.low]
rank = 20
client = "certificate"
[[rule]]
name = "devices"
when.name = ["device-1", "device-2"]
profile = "low"
"#;

const LISTENER: &str = r#"
[[listener]]
name = "web"
listen = "127.0.0.1:0"
policy = "policy.toml"
[[listener.certificate]]
chain = "server.pem"
key = "server.key"
[listener.clients]
ca = "root.pem"
[listener.redirect]
listen = "127.0.0.1:0"
names = "*.once.test"
attributes = "name"
"#;

/// A backend that answers each request with its first line.
async fn backend() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (read, mut write) = stream.split();
                let mut lines = BufReader::new(read).lines();
                let first = lines.next_line().await.unwrap().unwrap_or_default();
                while lines.next_line().await.unwrap().is_some_and(|line| !line.is_empty()) {}
                let length = first.len();
                let answer = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{first}"
                );
                write.write_all(answer.as_bytes()).await.unwrap();
            });
        }
    });
    port
}

/// Follows this URL, with the client's certificate or without one.
async fn curl(place: &Place, url: &str, has_certificate: bool) -> Output {
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--max-time", "60", "--cacert", "root.pem", "-L", "-w", "\n%{url_effective}"]);
    // Every name is this machine.
    curl.args(["--noproxy", "*", "--connect-to", "::127.0.0.1:"]);
    if has_certificate {
        curl.args(["--cert", "client.pem", "--key", "client.key"]);
    }
    within(curl.arg(url).current_dir(place.path("")).kill_on_drop(true).output()).await.unwrap()
}

fn decided(gateway: &Gateway, stage: &str, rule: &str, verdict: &str, profile: &str) -> f64 {
    let downgrade = if profile == "low" { "yes" } else { "no" };
    metric(
        gateway,
        &format!(
            "dunlin_gateway_policy_decisions_total{{listener=\"web\",stage=\"{stage}\",rule=\"{rule}\",\
             verdict=\"{verdict}\",profile=\"{profile}\",downgrade=\"{downgrade}\"}}"
        ),
    )
}

#[tokio::test]
async fn curl_is_asked_who_it_is_and_sent_on_to_its_profile() {
    let place = Place::new();
    place.make_pki_of("", KeyType::P256, &["localhost", "*.once.test"]);
    // None of these clients comes onto the blacklist.
    place.write("policy.toml", &(POLICY.to_owned() + "[blacklist]\nfailed = 1\nforeign = 1\n"));
    let (gateway, _) = place.start(&(LISTENER.to_owned() + &route(backend().await, ""))).await;
    let port = gateway.redirect_addresses()[0].1.port();
    let url = |query: &str| format!("http://web.test:{port}/a%20page?{query}");

    let output = curl(&place, &url("x=1&name=device-1"), true).await;
    let text = String::from_utf8(output.stdout).unwrap();
    let (page, went) = text.split_once('\n').unwrap_or_else(|| panic!("{text} {:?}", output.stderr));
    assert_eq!(page, "GET /a%20page?x=1 HTTP/1.1");
    assert!(went.starts_with("https://") && went.contains(".once.test:"), "{went}");
    assert_eq!(decided(&gateway, "hello", "devices", "serve", "low"), 1.0);
    assert_eq!(decided(&gateway, "finished", "devices", "serve", "low"), 1.0);
    // The name works once.
    assert!(curl(&place, went, true).await.status.success());
    assert_eq!(decided(&gateway, "hello", "default", "serve", "strong"), 1.0);

    // The URL names another client than the certificate, or there is no certificate: nothing is lowered.
    for (name, has_certificate) in [("device-2", true), ("device-1", false)] {
        let output = curl(&place, &url(&format!("name={name}")), has_certificate).await;
        assert!(!output.status.success(), "{name} {output:?}");
    }
    assert_eq!(decided(&gateway, "hello", "devices", "serve", "low"), 3.0);
    assert_eq!(decided(&gateway, "finished", "devices", "refuse", "low"), 0.0);
    let refused = "dunlin_gateway_policy_decisions_total{listener=\"web\",stage=\"finished\",rule=\"devices\",\
                   verdict=\"refuse\",profile=\"low\",downgrade=\"no\"}";
    assert_eq!(metric(&gateway, refused), 1.0);
    // Without an identity in the URL, the client gets the default.
    assert!(curl(&place, &url("x=1"), false).await.status.success());
    assert_eq!(decided(&gateway, "hello", "default", "serve", "strong"), 2.0);
}

/// Only the URL names a client for which the redirection asks. The address is a hint, which is forgotten when
/// it was wrong.
#[tokio::test]
async fn a_remembered_address_does_not_keep_others_behind_it_out() {
    let place = Place::new();
    place.make_pki_of("", KeyType::P256, &["localhost", "*.once.test"]);
    place.write("policy.toml", &POLICY.replace("rank = 20", "rank = 20\naddress_lifetime = \"1h\""));
    let (gateway, to) = place.start(&(LISTENER.to_owned() + &route(backend().await, ""))).await;
    assert!(curl(&place, &format!("https://localhost:{to}/"), true).await.status.success());
    let port = gateway.redirect_addresses()[0].1.port();
    let url = format!("http://web.test:{port}/");
    // A browser without a certificate, from the same address.
    assert!(!curl(&place, &url, false).await.status.success());
    assert_eq!(decided(&gateway, "hello", "devices", "serve", "low"), 1.0);
    for _ in 0..2 {
        assert!(curl(&place, &url, false).await.status.success());
    }
}

/// The port of a pool joins the request and the connection, both from the same address.
#[tokio::test]
async fn curl_is_sent_on_to_a_port() {
    let place = Place::new();
    place.make_pki_of("", KeyType::P256, &["web.test"]);
    place.write("policy.toml", POLICY);
    // A pool has no port 0. Another program could take this one first, which is improbable.
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let text = LISTENER.replace("names = \"*.once.test\"", &format!("ports = \"{free}-{free}\""));
    let config = text + &route(backend().await, "");
    let (gateway, listener) = place.start(&config).await;
    let port = gateway.redirect_addresses()[0].1.port();
    let url = format!("http://web.test:{port}/?name=device-1");
    for count in [1.0, 2.0] {
        let text = String::from_utf8(curl(&place, &url, true).await.stdout).unwrap();
        assert!(text.ends_with(&format!("https://web.test:{free}/")), "{text}");
        assert_eq!(decided(&gateway, "finished", "devices", "serve", "low"), count);
    }
    // A client that comes without a request, or without an identity in it, gets the default.
    assert!(curl(&place, &format!("https://web.test:{free}/"), true).await.status.success());
    let text =
        String::from_utf8(curl(&place, &format!("http://web.test:{port}/"), false).await.stdout).unwrap();
    assert!(text.ends_with(&format!("https://web.test:{listener}/")), "{text}");
    assert_eq!(decided(&gateway, "hello", "default", "serve", "strong"), 2.0);
    // The pool stays through a reload.
    gateway.reload(place.config(&config)).await.unwrap();
    assert!(curl(&place, &url, true).await.status.success());
    assert_eq!(decided(&gateway, "finished", "devices", "serve", "low"), 3.0);
}

/// Sends a request over plain HTTP from this address, and returns the answer: nothing if the gateway closes
/// at once.
async fn ask(from: [u8; 4], to: SocketAddr, text: &str) -> String {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((from, 0).into()).unwrap();
    let mut tcp = within(socket.connect(to)).await.unwrap();
    let mut answer = vec![];
    // The gateway may close, or reset, before it has read.
    let _ = tcp.write_all(text.as_bytes()).await;
    let _ = within(tcp.read_to_end(&mut answer)).await;
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn one_host_cannot_keep_others_from_their_redirection() {
    let place = Place::new();
    place.write("policy.toml", POLICY);
    let limits = "[limits]\nconnections_per_host = 2\n";
    let (gateway, _) = place.start(&(limits.to_owned() + LISTENER + &route(1, ""))).await;
    let to = gateway.redirect_addresses()[0].1;
    let mut silent = vec![];
    for _ in 0..2 {
        silent.push(TcpStream::connect(to).await.unwrap());
    }
    let request = "GET /?name=device-1 HTTP/1.1\r\nHost: web.test\r\n\r\n";
    assert_eq!(ask([127, 0, 0, 1], to, request).await, "");
    let answer = ask([127, 0, 0, 2], to, request).await;
    assert!(answer.starts_with("HTTP/1.1 307 "), "{answer}");
    let limits = "dunlin_gateway_limits_reached_total{listener=\"web\",limit=\"connections_per_host\"}";
    assert_eq!(metric(&gateway, limits), 1.0);
    // The places of clients that have gone are free.
    drop(silent);
    within(async { while ask([127, 0, 0, 1], to, request).await.is_empty() {} }).await;
}

/// The redirection reads targets as the proxy does.
#[tokio::test]
async fn a_redirection_reads_the_target_of_a_request() {
    let place = Place::new();
    place.make_pki_of("", KeyType::P256, &["web.test"]);
    place.write("policy.toml", POLICY);
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let text = LISTENER.replace("names = \"*.once.test\"", &format!("port = 443\nports = \"{free}-{free}\""));
    let (gateway, _) = place.start(&(text + &route(1, ""))).await;
    let to = gateway.redirect_addresses()[0].1;
    let location = async |request: &str| {
        let answer = ask([127, 0, 0, 1], to, request).await;
        let location = answer.lines().find_map(|line| line.strip_prefix("location: ").map(str::to_owned));
        location.ok_or_else(|| answer.split(' ').nth(1).unwrap().to_owned())
    };
    let many_fields = format!("GET / HTTP/1.1\r\nHost: web.test\r\n{}\r\n", "A: b\r\n".repeat(250));
    for (request, wanted) in [
        ("GET /a?x=1 HTTP/1.1\r\nHost: web.test:80\r\n\r\n", Ok("https://web.test/a?x=1")),
        // RFC 9112 §3.2.2: the authority of the target comes before Host.
        ("GET http://web.test/a HTTP/1.1\r\nHost: other.test\r\n\r\n", Ok("https://web.test/a")),
        ("OPTIONS * HTTP/1.1\r\nHost: web.test\r\n\r\n", Ok("https://web.test")),
        ("GET / HTTP/1.1\r\nHost: WEB.test.\r\n\r\n", Ok("https://web.test/")),
        ("GET / HTTP/1.1\r\nHost: [2001:db8::1]:80\r\n\r\n", Ok("https://[2001:db8::1]/")),
        // RFC 3986 §2: a URI has only some characters of ASCII.
        (
            "GET /é\\a|?ü={x} HTTP/1.1\r\nHost: web.test\r\n\r\n",
            Ok("https://web.test/%C3%A9%5Ca%7C?%C3%BC=%7Bx%7D"),
        ),
        (&many_fields, Ok("https://web.test/")),
        ("GET / HTTP/1.1\r\nHost: web.test\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", Err("501")),
        ("GET / HTTP/1.1\r\nHost: web.test\r\nContent_Length: 1\r\n\r\n", Err("400")),
        ("GET / HTTP/1.1\r\n\r\n", Err("400")),
        ("GET / HTTP/1.0\r\n\r\n", Err("400")),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", Err("400")),
        ("GET / HTTP/1.1\r\nHost: a@web.test\r\n\r\n", Err("400")),
        ("GET / HTTP/1.1\r\nHost: web.test..\r\n\r\n", Err("400")),
        ("GET http://web.test/ HTTP/1.1\r\nHost: a@b\r\n\r\n", Err("400")),
        ("GET web.test HTTP/1.1\r\nHost: web.test\r\n\r\n", Err("400")),
        ("CONNECT web.test:443 HTTP/1.1\r\nHost: web.test:443\r\n\r\n", Err("405")),
    ] {
        let got = location(request).await;
        assert_eq!(got.as_deref().map_err(String::as_str), wanted, "{request}");
    }
}

/// The paper's variant: anyone gets the profile of the client that the URL names, but only by a redirection.
#[tokio::test]
async fn an_unauthenticated_redirection_lowers_without_a_certificate_only_if_the_configuration_says_so() {
    let place = Place::new();
    place.make_pki_of("", KeyType::P256, &["localhost", "*.once.test"]);
    place.write("policy.toml", POLICY);
    let text = LISTENER.replace("attributes =", "danger_redirect_unauthenticated = true\nattributes =");
    let (gateway, to) = place.start(&(text + &route(backend().await, ""))).await;
    let port = gateway.redirect_addresses()[0].1.port();
    let output = curl(&place, &format!("http://web.test:{port}/?name=device-2"), false).await;
    assert!(output.status.success(), "{output:?}");
    assert_eq!(decided(&gateway, "hello", "devices", "serve", "low"), 1.0);
    let completed = "dunlin_gateway_handshakes_completed_total{listener=\"web\",version=\"TLSv1.3\",client=\"anonymous\",\
                     kind=\"full\",profile=\"low\",rule=\"devices\"}";
    assert_eq!(metric(&gateway, completed), 1.0, "{}", gateway.metrics());
    // Without a redirection, the client proves who it is, or gets the default.
    let direct = format!("https://localhost:{to}/");
    assert!(curl(&place, &direct, false).await.status.success());
    assert!(curl(&place, &direct, true).await.status.success());
    assert_eq!(decided(&gateway, "hello", "default", "serve", "strong"), 2.0);
}

#[test]
fn refuses_a_redirection_that_is_no_hint() {
    let place = Place::new();
    place.write("policy.toml", POLICY);
    let faulty = LISTENER
        .replace("policy = \"policy.toml\"\n", "")
        .replace("\"*.once.test\"", "\"once.test\"")
        .replace("attributes = \"name\"", "attributes = [\"name\", \"psk\"]")
        + &route(1, "");
    let found = dunlin_gateway::Config::parse(&place.path("gateway.toml"), &faulty).unwrap_err().to_string();
    for says in [
        "listener[0].redirect.names: \"once.test\" is not a wildcard name",
        "listener[0].redirect.attributes[1]: \"psk\"",
    ] {
        assert!(found.contains(says), "{says}\n{found}");
    }
    assert_eq!(found.lines().count(), 2, "{found}");
    let found = dunlin_gateway::Config::parse(
        &place.path("gateway.toml"),
        &(LISTENER.replace("policy = \"policy.toml\"\n", "") + &route(1, "")),
    );
    let found = found.unwrap_err().to_string();
    assert!(
        found.contains("listener[0].redirect: redirect needs a policy and transport = \"tls\""),
        "{found}"
    );
    let both = LISTENER.replace("names =", "ports = \"9000-9001\"\nnames =") + &route(1, "");
    let found = dunlin_gateway::Config::parse(&place.path("gateway.toml"), &both).unwrap_err().to_string();
    assert!(found.contains("listener[0].redirect: either one-time names or ports join"), "{found}");
    let ports = LISTENER.replace("names = \"*.once.test\"", "ports = \"9001-9000\"") + &route(1, "");
    let found = dunlin_gateway::Config::parse(&place.path("gateway.toml"), &ports).unwrap_err().to_string();
    assert!(
        found.contains("listener[0].redirect.ports: \"9001-9000\" is not a range of at most 256 ports"),
        "{found}"
    );
}
