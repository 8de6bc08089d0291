//! Clients and HTTP backends that bend or break the protocol.

use std::io::Write;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::http::{ask, backend, open, values};
use crate::place::{Place, listener, route, subscribe, within};

const HTTP: &str = "protocol = \"http\"";

/// A backend that reads a header, answers with these bytes, and closes.
async fn answering(answer: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            header(&mut stream).await;
            let _ = stream.write_all(answer).await;
            let _ = stream.shutdown().await;
            // A closed socket with unread data would reset the connection.
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
        }
    });
    port
}

/// Reads the header of a request.
async fn header(stream: &mut TcpStream) -> String {
    let mut request = vec![];
    let mut part = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut part).await {
            Ok(n) if n > 0 => request.extend_from_slice(&part[..n]),
            _ => break,
        }
    }
    String::from_utf8(request).unwrap()
}

/// Sends one request and reads everything until the end of the connection.
async fn whole(place: &Place, port: u16, request: &str) -> String {
    let mut stream = open(&place.client("root.pem"), port).await;
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = vec![];
    let _ = within(stream.read_to_end(&mut answer)).await;
    String::from_utf8(answer).unwrap()
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

#[tokio::test]
async fn answers_are_mended_where_a_proxy_must() {
    let place = Place::new();
    let answers: [(&[u8], &str); 5] = [
        // RFC 9110 §8.6
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nok", "\r\nContent-Length: 2\r\n"),
        // RFC 9112 §5.1, §5.2
        (b"HTTP/1.1 200 OK\r\nServer : x\r\nContent-Length: 2\r\n\r\nok", "\r\nServer: x\r\n"),
        (b"HTTP/1.1 200 OK\r\nX-Folded: a\r\n b\r\nContent-Length: 2\r\n\r\nok", "\r\nX-Folded: a b\r\n"),
        // RFC 9110 §6.2: the gateway's own version.
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\n"),
        // The case of names.
        (
            b"HTTP/1.1 200 OK\r\nX-iD: 7\r\nETag: y\r\nContent-Length: 2\r\n\r\nok",
            "\r\nX-iD: 7\r\nETag: y\r\n",
        ),
    ];
    for (answer, wanted) in answers {
        let (_gateway, port) = place.start(&(listener("") + &route(answering(answer).await, HTTP))).await;
        let got = whole(&place, port, GET).await;
        assert!(
            got.starts_with("HTTP/1.1 200 ") && got.contains(wanted) && got.ends_with("\r\n\r\nok"),
            "{got}"
        );
    }
    // An answer with many fields.
    let many: String = (0..200).map(|i| format!("X-{i}: {i}\r\n")).collect();
    let answer = format!("HTTP/1.1 200 OK\r\n{many}Content-Length: 2\r\n\r\nok").into_bytes();
    let to = answering(answer.leak()).await;
    let (_gateway, port) = place.start(&(listener("") + &route(to, HTTP))).await;
    let got = whole(&place, port, &GET.replace("Connection", &format!("{many}Connection"))).await;
    assert!(got.starts_with("HTTP/1.1 200 ") && got.contains("\r\nX-199: 199\r\n"), "{got}");
}

/// A client must not choose how a backend that knows only one case sees the gateway's own fields, or the
/// length of its content.
#[tokio::test]
async fn a_client_does_not_choose_the_case_of_names() {
    let place = Place::new();
    let backend = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = backend.local_addr().unwrap().port();
    let recorded = tokio::spawn(async move { header(&mut backend.accept().await.unwrap().0).await });
    let clients = "[listener.clients]\nca = \"root.pem\"\n";
    let (_gateway, port) = place.start(&(listener("") + clients + &route(to, HTTP))).await;
    let client = place.with_certificate(place.client("root.pem"), "");
    let mut stream = open(&client, port).await;
    let request =
        b"POST / HTTP/1.1\r\nhOST: a\r\nx-device: 1\r\ncLIENT-cERT: forged\r\ncONTENT-lENGTH: 2\r\n\r\nok";
    stream.write_all(request).await.unwrap();
    let request = within(recorded).await.unwrap();
    for name in ["Host: a", "X-Device: 1", "Client-Cert: :", "Content-Length: 2", "X-Forwarded-Proto: https"]
    {
        assert!(request.contains(&format!("\r\n{name}")), "{name}: {request}");
    }
    assert!(!request.contains("forged"), "{request}");
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn every_502_says_why_to_the_client_and_in_the_log() {
    subscribe();
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let place = Place::new();
    let long = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: 1\r\n".repeat(300)).into_bytes().leak();
    let answers: [(&[u8], &str); 8] = [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked,\r\n\r\n0\r\n\r\n", "coding besides chunked"),
        (b"", "closed the connection before it answered"),
        (b"HTTP/1.1 200 O", "closed the connection before it answered"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "is not HTTP/1"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "is not HTTP/1"),
        (long, "has more than 256 fields"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "coding besides chunked"),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
            "101 without a request for it",
        ),
    ];
    for (answer, why) in answers {
        log.0.lock().unwrap().clear();
        let (_gateway, port) = place.start(&(listener("") + &route(answering(answer).await, HTTP))).await;
        let got = whole(&place, port, GET).await;
        assert!(got.starts_with("HTTP/1.1 502 ") && got.contains(why), "{why}: {got}");
        let lines = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert!(
            lines.lines().any(|line| line.contains("got no answer") && line.contains(why)),
            "{why}: {lines}"
        );
    }
}

/// RFC 9112 §3.2, §6.1: an invalid or unsupported request gets its status, and nothing of it reaches the
/// backend.
#[tokio::test]
async fn requests_that_break_the_rules_get_the_right_status() {
    let place = Place::new();
    let (_gateway, port) = place.start(&(listener("") + &route(backend().await, HTTP))).await;
    for (request, status) in [
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            501,
        ),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent_Length: 5\r\n\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer_Encoding: chunked\r\n\r\n", 400),
        ("GET http://a/ HTTP/1.1\r\n\r\n", 400),
        ("GET http://a/ HTTP/1.1\r\nHost: b c\r\n\r\n", 400),
        ("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a:b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a:123456\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: x[a]\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: [a]\r\n\r\n", 400),
        ("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n", 405),
    ] {
        let mut stream = open(&place.client("root.pem"), port).await;
        let (head, _) = ask(&mut stream, request).await;
        assert!(head.starts_with(&format!("http/1.1 {status} ")), "{request}{head}");
    }
    // HTTP/1.0 switches to nothing.
    let mut stream = open(&place.client("root.pem"), port).await;
    let upgrade = "GET / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
    let (head, body) = ask(&mut stream, upgrade).await;
    assert!(head.contains(" 200 ") && !body.contains("upgrade"), "{head}{body}");
    let mut stream = open(&place.client("root.pem"), port).await;
    let (_, body) = ask(&mut stream, "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(body.starts_with("options * http/1.1\r\n"), "{body}");
    let (_, body) = ask(&mut stream, "GET HTTPS://a/b?c HTTP/1.1\r\nHost: other\r\n\r\n").await;
    assert!(body.starts_with("get /b?c http/1.1\r\n"), "{body}");
    assert_eq!(values(&body, "host"), ["a"]);
}

#[tokio::test]
async fn damaged_chunks_of_a_client_are_its_own_fault() {
    let place = Place::new();
    // A backend that answers at the end of the request's content, as most do.
    let listener_ = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = listener_.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener_.accept().await {
            let mut request = vec![];
            let _ = stream.read_to_end(&mut request).await;
        }
    });
    let (_gateway, port) = place.start(&(listener("") + &route(to, HTTP))).await;
    for chunks in
        ["zz\r\nabc\r\n", "3\r\nabcd\r\n", "ffffffffffffffffff\r\n", "-1\r\n", "3\r\nabc\r\n0x1\r\n"]
    {
        let request = format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
        let got = whole(&place, port, &request).await;
        assert!(got.starts_with("HTTP/1.1 400 ") && got.contains("damaged"), "{chunks}: {got}");
    }
}
