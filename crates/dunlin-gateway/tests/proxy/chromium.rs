//! Headless Chromium as a client with a certificate: direct, by redirection, over WebSocket, and in a
//! renegotiation.

use std::fs::create_dir_all;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64ct::{Base64, Encoding};
use dunlin_gateway::Gateway;
use dunlin_pki::KeyType;
use dunlin_tests::mounts::beside_mount;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::sync::Notify;

use crate::place::{Place, listener, metric, route, within};

/// The browser's command, and the directory of its policies.
pub(crate) async fn browser() -> (&'static str, &'static str) {
    for (name, policies) in [("chromium", "/etc/chromium"), ("google-chrome", "/etc/opt/chrome")] {
        let version = Command::new(name).arg("--version").output().await;
        if version.is_ok_and(|output| output.status.success()) {
            return (name, policies);
        }
    }
    panic!("no browser: `tools/setup test` installs chromium")
}

/// Runs a program of libnss3-tools or OpenSSL in the directory.
async fn tool(place: &Place, program: &str, args: &str) {
    let output = Command::new(program).args(args.split(' ')).current_dir(place.path("")).output().await;
    let output = output.unwrap_or_else(|e| panic!("{program}: {e}; `tools/setup test` installs it"));
    assert!(output.status.success(), "{program} {args}: {output:?}");
}

/// Gives the browser a home whose NSS database trusts `root.pem` and has the client's certificate, and a
/// policy that presents it without asking.
async fn furnish(place: &Place) {
    create_dir_all(place.path("home/.pki/nssdb")).unwrap();
    create_dir_all(place.path("etc/policies/managed")).unwrap();
    place.write(
        "etc/policies/managed/tests.json",
        r#"{"AutoSelectCertificateForUrls": ["{\"pattern\": \"https://*\", \"filter\": {}}"]}"#,
    );
    let pkcs12 =
        "pkcs12 -export -in client.pem -inkey client.key -name client -passout pass:x -out client.p12";
    tool(place, "openssl", pkcs12).await;
    tool(place, "certutil", "-N --empty-password -d sql:home/.pki/nssdb").await;
    tool(place, "pk12util", "-i client.p12 -W x -d sql:home/.pki/nssdb").await;
    trust(place, "root").await;
}

/// Makes the browser of the furnished home trust the root in this file.
async fn trust(place: &Place, root: &str) {
    tool(place, "certutil", &format!("-A -n {root} -t C,, -i {root}.pem -d sql:home/.pki/nssdb")).await;
}

/// Opens a URL in the furnished home. Returns the page after all of it has loaded. Every host is this
/// machine.
async fn visit(place: &Place, url: &str, options: &[&str]) -> String {
    let (name, policies) = browser().await;
    // The machine's own policies stay as they are: only the browser sees the mount.
    let mut unshare = Command::from(beside_mount("--bind etc", policies));
    unshare
        .arg(name)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--enable-logging=stderr"])
        .args(["--no-proxy-server", "--host-resolver-rules=MAP * 127.0.0.1", "--dump-dom"])
        .arg(format!("--user-data-dir={}", place.path("browser").display()))
        .args(options)
        .arg(url)
        .env("HOME", place.path("home"))
        .env_remove("XDG_CONFIG_HOME")
        .current_dir(place.path(""))
        .kill_on_drop(true);
    let output = within(unshare.output()).await.expect("unshare: `tools/setup test` installs it");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Sends a line over a WebSocket, shows the answer, and sends another line. The page has loaded when the
/// server has both.
const PAGE: &str = r#"<!doctype html><link rel="icon" href="data:,"><p id="heard"></p><script>
const socket = new WebSocket(`wss://${location.host}/socket`);
socket.onopen = () => socket.send("hello");
socket.onmessage = ({ data }) => { document.getElementById("heard").textContent = data; socket.send("bye"); };
</script><img src="/end">"#;

/// A web application with a WebSocket, which answers with what it reads and the identity in the header of the
/// upgrade.
async fn application() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let end = Arc::new(Notify::new());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let end = end.clone();
            tokio::spawn(async move {
                let mut stream = BufReader::new(stream);
                while let Some(request) = header(&mut stream).await {
                    if request.starts_with("GET /socket ") {
                        web_socket(&mut stream, &request).await;
                        return end.notify_one();
                    }
                    let (kind, body) = match request.starts_with("GET /end ") {
                        true => {
                            end.notified().await;
                            ("text/html", "")
                        }
                        false if request.starts_with("GET / ") => ("text/html", PAGE),
                        // A page that shows its request.
                        false => ("text/plain", request.as_str()),
                    };
                    let length = body.len();
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
                    );
                    stream.write_all((head + body).as_bytes()).await.unwrap();
                }
            });
        }
    });
    port
}

/// The header of the next request; `None` at the end of the connection.
async fn header(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut header = String::new();
    while !header.ends_with("\r\n\r\n") {
        if stream.read_line(&mut header).await.unwrap() == 0 {
            return None;
        }
    }
    Some(header)
}

/// Serves a WebSocket (RFC 6455): accepts it, answers one text, and reads another one.
async fn web_socket(stream: &mut BufReader<TcpStream>, request: &str) {
    let field = |name: &str| {
        let of = |line: &str| {
            Some(line.split_once(": ").filter(|(n, _)| n.eq_ignore_ascii_case(name))?.1.to_owned())
        };
        request.lines().find_map(of).unwrap_or_else(|| panic!("no {name} in {request}"))
    };
    assert!(field("Upgrade").eq_ignore_ascii_case("websocket"), "{request}");
    let key = field("Sec-WebSocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let accept = Base64::encode_string(digest(&SHA1_FOR_LEGACY_USE_ONLY, key.as_bytes()).as_ref());
    let switch = format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    stream.write_all(switch.as_bytes()).await.unwrap();
    let answer = format!("{} from {}", text(stream).await, field("Dunlin-Client-Identity"));
    let frame = [&[0x81, u8::try_from(answer.len()).unwrap()], answer.as_bytes()].concat();
    stream.write_all(&frame).await.unwrap();
    assert_eq!(text(stream).await, "bye");
}

/// Reads a masked frame with a short text (RFC 6455 §5.2).
async fn text(stream: &mut BufReader<TcpStream>) -> String {
    let mut head = [0; 6];
    stream.read_exact(&mut head).await.unwrap();
    assert!(head[0] == 0x81 && (0x80..0x80 + 126).contains(&head[1]), "{head:?}");
    let mut data = vec![0; usize::from(head[1] & 0x7f)];
    stream.read_exact(&mut data).await.unwrap();
    for (byte, mask) in data.iter_mut().zip(head[2..].iter().cycle()) {
        *byte ^= mask;
    }
    String::from_utf8(data).unwrap()
}

const HTTP: &str = "name = \"app\"\nprotocol = \"http\"";
const CLIENTS: &str = "[listener.clients]\nca = \"root.pem\"\n";
const HEARD: &str = "<p id=\"heard\">hello from x509:cn:device-1</p>";

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_with_a_certificate_talks_over_a_web_socket() {
    let place = Place::new();
    furnish(&place).await;
    let config = listener("") + CLIENTS + &route(application().await, HTTP);
    let (gateway, port) = place.start(&config).await;
    let page = visit(&place, &format!("https://localhost:{port}/"), &[]).await;
    assert!(page.contains(HEARD), "{page}\n{}", gateway.metrics());
    let known =
        "dunlin_gateway_handshakes_completed_total{listener=\"test\",version=\"TLSv1.3\",client=\"x509\"}";
    assert!(metric(&gateway, known) > 0.0, "{}", gateway.metrics());
}

/// The browser says over plain HTTP who it is, and gets the weaker profile of its certificate.
#[tokio::test(flavor = "multi_thread")]
async fn a_browser_is_sent_on_to_its_profile() {
    let place = Place::new();
    place.make_pki_of("", KeyType::P256, &["*.once.test"]);
    furnish(&place).await;
    place.write("policy.toml", &policy("\"1.3\", \"1.2\"", ""));
    let redirect =
        "[listener.redirect]\nlisten = \"127.0.0.1:0\"\nnames = \"*.once.test\"\nattributes = \"name\"\n";
    let config =
        listener("policy = \"policy.toml\"") + CLIENTS + redirect + &route(application().await, HTTP);
    let (gateway, _) = place.start(&config).await;
    let port = gateway.redirect_addresses()[0].1.port();
    let page = visit(&place, &format!("http://web.test:{port}/?name=device-1"), &[]).await;
    assert!(page.contains(HEARD), "{page}\n{}", gateway.metrics());
    let lowered = "stage=\"hello\",rule=\"devices\",profile=\"low\",downgrade=\"yes\"";
    assert!(decided(&gateway, lowered) > 0.0, "{}", gateway.metrics());
    assert!(metric(&gateway, "dunlin_gateway_redirected_total") > 0.0);
}

/// Strangers get `strong`, and the client whose certificate says `device-1` gets `low`.
fn policy(versions: &str, low: &str) -> String {
    format!(
        "renegotiation = \"down\"\n\
         [profile.strong]\nrank = 100\nversions = [{versions}]\nclient = \"request\"\n\
         [profile.low]\nrank = 20\nversions = [{versions}]\nclient = \"certificate\"\n{low}\n\
         [[rule]]\nname = \"devices\"\nwhen.name = \"device-1\"\nprofile = \"low\"\n"
    )
}

/// A gateway for TLS 1.2, whose profile `low` has a certificate of its own, which a renegotiation shows only
/// if `changes` is set.
async fn tls12(place: &Place, changes: bool) -> (Gateway, u16) {
    let low = format!("certificates = \"low\"\nchange_certificate = {changes}");
    place.write("policy.toml", &policy("\"1.2\"", &low));
    let strong = listener("policy = \"policy.toml\"").replace("chain =", "name = \"strong\"\nchain =");
    let low = "[[listener.certificate]]\nname = \"low\"\nchain = \"other-server.pem\"\nkey = \"other-server.key\"\n";
    place.start(&(strong + low + CLIENTS + &route(application().await, HTTP))).await
}

/// How often the policy has decided so.
fn decided(gateway: &Gateway, labels: &str) -> f64 {
    metric(gateway, &format!("dunlin_gateway_policy_decisions_total{{{labels}}}"))
}

/// A browser offers TLS 1.3 and HTTP/2, so the gateway does not renegotiate with it. Its ticket says who it
/// is.
#[tokio::test(flavor = "multi_thread")]
async fn a_browser_keeps_its_first_profile_until_its_next_connection() {
    let place = Place::new();
    place.make_pki_of("other-", KeyType::P384, &["localhost"]);
    furnish(&place).await;
    trust(&place, "other-root").await;
    let (gateway, port) = tls12(&place, false).await;
    let page = visit(&place, &format!("https://localhost:{port}/"), &[]).await;
    assert!(page.contains(HEARD), "{page}\n{}", gateway.metrics());
    let first = "stage=\"finished\",rule=\"devices\",verdict=\"serve\",profile=\"strong\"";
    assert!(decided(&gateway, first) > 0.0, "{}", gateway.metrics());
    let next = "stage=\"finished\",rule=\"devices\",verdict=\"serve\",profile=\"low\",downgrade=\"yes\"";
    assert!(decided(&gateway, next) > 0.0, "{}", gateway.metrics());
    assert_eq!(metric(&gateway, "dunlin_gateway_renegotiations_total"), 0.0);
}

/// A browser without TLS 1.3 and HTTP/2 renegotiates under the certificate that it has seen, and under no
/// other one.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_browser_renegotiates_only_under_the_first_certificate() {
    let place = Place::new();
    place.make_pki_of("other-", KeyType::P384, &["localhost"]);
    furnish(&place).await;
    trust(&place, "other-root").await;
    for changes in [false, true] {
        let (gateway, port) = tls12(&place, changes).await;
        let old = ["--ssl-version-max=tls1.2", "--disable-http2"];
        let page = visit(&place, &format!("https://localhost:{port}/plain"), &old).await;
        assert_eq!(page.contains("GET /plain"), !changes, "{page}\n{}", gateway.metrics());
        let renegotiates = "stage=\"finished\",rule=\"devices\",verdict=\"renegotiate\",profile=\"low\"";
        assert!(decided(&gateway, renegotiates) > 0.0, "{}", gateway.metrics());
        let completed = "dunlin_gateway_renegotiations_total{listener=\"test\",outcome=\"completed\"}";
        assert_eq!(metric(&gateway, completed) > 0.0, !changes, "{}", gateway.metrics());
    }
}
