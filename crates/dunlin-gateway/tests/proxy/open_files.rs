//! Backends and servers that cannot be reached for lack of open files. The limit is the process's, so this
//! test has one of its own.

use std::fs::File;
use std::io::ErrorKind;
use std::process::Command;

use tokio::io::AsyncReadExt;
use tokio::net::{TcpStream, UdpSocket};

use crate::http::{ask, backend as web_backend, open};
use crate::place::{Place, backend, listener, metric, metric_becomes, route, within};
use crate::tunnel::local;
use crate::udp::connect;

const CHILD: &str = "DUNLIN_FEW_FILES";
const NAME: &str =
    "open_files::without_open_files_clients_are_refused_by_that_limit_and_the_log_says_so_once";

/// All files that this process may still open.
fn all_files() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

#[test]
fn without_open_files_clients_are_refused_by_that_limit_and_the_log_says_so_once() {
    if std::env::var_os(CHILD).is_none() {
        let mut child = Command::new("sh");
        child.args(["-c", "ulimit -n 120 && exec \"$0\" --exact \"$1\" --nocapture"]);
        child.arg(std::env::current_exe().unwrap()).arg(NAME).env(CHILD, "");
        let ended = child.output().unwrap();
        let told = String::from_utf8_lossy(&ended.stdout);
        let log = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{told}{log}");
        for listener in ["test", "coap", "local", "local-udp"] {
            let is_line = |line: &&str| {
                let is_limit = line.contains("limit=\"open_files\"") || line.contains("not accepted");
                line.contains(&format!("listener=\"{listener}\"")) && is_limit
            };
            assert_eq!(log.lines().filter(is_line).count(), 1, "{listener}: {log}");
        }
        assert!(!log.contains("cannot be reached") && !log.contains("to the backend"), "{log}");
        return;
    }
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let place = Place::new();
        http(&place).await;
        datagrams(&place).await;
        tunnel(&place).await;
        tunnel_for_datagrams(&place).await;
    });
}

async fn http(place: &Place) {
    let text = listener("") + &route(web_backend().await, "protocol = \"http\"");
    let (gateway, port) = place.start(&text).await;
    let mut stream = open(&place.client("root.pem"), port).await;
    let files = all_files();
    for asked in 1..=3 {
        let (head, _) = ask(&mut stream, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert!(head.starts_with("http/1.1 502 "), "{head}");
        let reached = "dunlin_gateway_limits_reached_total{listener=\"test\",limit=\"open_files\"}";
        assert_eq!(metric(&gateway, reached), f64::from(asked));
    }
    drop(files);
    let (head, _) = ask(&mut stream, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(head.starts_with("http/1.1 200 "), "{head}");
}

async fn datagrams(place: &Place) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let text = listener("transport = \"dtls\"") + &route(socket.local_addr().unwrap().port(), "");
    let (gateway, port) = place.start(&text.replace("\"test\"", "\"coap\"")).await;
    let client = connect(&place.client("root.pem"), port).await;
    let files = all_files();
    for sent in 1..=3 {
        client.send(b"lost").await.unwrap();
        let reached = "dunlin_gateway_limits_reached_total{listener=\"coap\",limit=\"open_files\"}";
        metric_becomes(&gateway, reached, f64::from(sent)).await;
    }
    drop(files);
    client.send(b"here").await.unwrap();
    let mut buffer = [0; 16];
    let (len, _) = within(socket.recv_from(&mut buffer)).await.unwrap();
    assert_eq!(buffer[..len], *b"here");
}

async fn tunnel(place: &Place) {
    let clients = "[listener.clients]\nca = \"root.pem\"\n";
    let (_gateway, port) = place.start(&(listener("") + clients + &route(backend("one").await, ""))).await;
    // A tunnel that tries again would do so for an hour.
    let config = local(port, "")
        .replace("[listener.server]", "[listener.limits]\nconnect_time = \"1h\"\n[listener.server]");
    let (tunnel, port) = place.tunnel(&config).await;
    let mut files = all_files();
    for _ in 0..3 {
        // One for the program, and one for the tunnel, which cannot accept another one then.
        drop([files.pop(), files.pop()]);
        // The reset may come before the program knows that it is connected.
        let program = within(TcpStream::connect(("127.0.0.1", port))).await;
        let read = match program {
            Ok(mut program) => within(program.read(&mut [0; 1])).await,
            Err(error) => Err(error),
        };
        assert_eq!(read.map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
        metric_becomes(&tunnel, "dunlin_tunnel_connections", 0.0).await;
        files.extend(all_files());
    }
    let reached = "dunlin_tunnel_limits_reached_total{listener=\"local\",limit=\"open_files\"}";
    assert!(metric(&tunnel, reached) >= 3.0);
}

async fn tunnel_for_datagrams(place: &Place) {
    let config = local(5684, "transport = \"dtls\"").replace("\"local\"", "\"local-udp\"");
    let (tunnel, port) = place.tunnel(&config).await;
    let program = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let _files = all_files();
    program.send_to(b"lost", ("127.0.0.1", port)).await.unwrap();
    let reached = "dunlin_tunnel_limits_reached_total{listener=\"local-udp\",limit=\"open_files\"}";
    metric_becomes(&tunnel, reached, 1.0).await;
}
