//! `dunlin gateway` as a process, with clients of other projects.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};

use crate::peers::{CLIENT, OWN, PATIENCE, Running, json, place, port_in};
use dunlin_tests::place::{Place, send_signal};

/// A backend that answers each HTTP request with the same page.
pub(crate) fn backend() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut request = vec![];
                let mut buffer = [0; 4096];
                while !request.ends_with(b"\r\n\r\n") {
                    match stream.read(&mut buffer) {
                        Ok(0) | Err(_) => return,
                        Ok(n) => request.extend_from_slice(&buffer[..n]),
                    }
                }
                let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\npage");
            });
        }
    });
    port
}

pub(crate) fn config(clients: &str) -> String {
    format!(
        "[[listener]]\nname = \"web\"\nlisten = \"127.0.0.1:0\"\n\
         [[listener.certificate]]\nchain = \"pki/server.pem\"\nkey = \"pki/server.key\"\n{clients}\n\
         [[listener.route]]\nto = \"127.0.0.1:{}\"\n",
        backend()
    )
}

pub(crate) const MUTUAL: &str = "[listener.clients]\nca = \"pki/root.pem\"";

pub(crate) fn start(place: &Place, config: &str) -> (Running, u16) {
    place.write("gateway.toml", config);
    let gateway = Running::new(place, "gateway -c gateway.toml");
    let port = port_in(&gateway.log_with("listening"));
    (gateway, port)
}

pub(crate) fn curl(place: &Place, port: u16, more: &str) -> String {
    let chain = place.read("pki/client.pem");
    place.write("chain.pem", chain);
    place.tool("curl", &format!("-sS --max-time 60 --cacert pki/root.pem {more} https://localhost:{port}/"))
}

#[test]
fn curl_fetches_a_page_in_both_versions() {
    let place = place();
    let (gateway, port) = start(&place, &config(MUTUAL));
    for version in ["--tlsv1.3", "--tls-max 1.2"] {
        let own = "--cert pki/client.pem --key pki/client.key";
        assert_eq!(curl(&place, port, &format!("{own} {version}")), "page");
        let line = gateway.log_with(" connected");
        assert!(line.contains("identity=\"X.509 CN=device-1\""), "{line}");
    }
    place.tool_fails("curl", &format!("-sS --max-time 60 --cacert pki/root.pem https://localhost:{port}/"));
    gateway.log_with("handshake failed");
}

#[test]
fn the_log_names_a_server_name_that_no_route_has() {
    let place = place();
    let listener = "[log]\nlevel = \"debug\"\n";
    let text = config("").replace("[[listener.route]]", "[[listener.route]]\nsni = \"*.example.org\"");
    assert!(text.contains("*.example.org"), "{text}");
    let (gateway, port) = start(&place, &format!("{listener}{text}"));
    drop(TcpStream::connect(("127.0.0.1", port)).unwrap());
    let line = gateway.log_with("a client sent nothing");
    assert!(line.contains("DEBUG"), "{line}");
    for (name, shown) in [("a.example", "a.example"), ("192.0.2.1", "192.0.2.1 (an IP address)")] {
        let options = format!("s_client -connect localhost:{port} -servername {name} -brief");
        place.tool_fails("openssl", &options);
        let line = gateway.log_with("handshake failed");
        assert!(line.contains("WARN") && line.contains(&format!("server_name=\"{shown}\"")), "{line}");
        assert!(
            line.contains("advice=\"if the name is one of this server, add it to sni of a route\""),
            "{line}"
        );
    }
}

/// A certificate with an unusual serial number (RFC 5280 §4.1.2.2) is as good as others.
#[test]
fn the_log_names_a_certificate_that_is_refused() {
    let place = place();
    place.tool("openssl", "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out long.key");
    place.tool("openssl", "req -new -key long.key -subj /CN=long -out long.csr");
    let serial = "7f".repeat(24);
    place.write("any.ext", "extendedKeyUsage=clientAuth\n");
    place.tool(
        "openssl",
        &format!("x509 -req -in long.csr -CA pki/root.pem -CAkey pki/root.key -set_serial 0x{serial} -days 2 -extfile any.ext -out long.pem"),
    );
    let (gateway, port) = start(&place, &config(MUTUAL));
    assert_eq!(curl(&place, port, "--cert long.pem --key long.key"), "page");
    assert!(gateway.log_with(" connected").contains("identity=\"X.509 CN=long\""));
    place.dunlin("pki demo --out other");
    let stranger = "--cert other/client.pem --key other/client.key";
    for version in ["--tlsv1.3", "--tls-max 1.2"] {
        place.tool_fails(
            "curl",
            &format!(
                "-sS --max-time 60 --cacert pki/root.pem {stranger} {version} https://localhost:{port}/"
            ),
        );
        let line = gateway.log_with("handshake failed");
        let shown =
            serde_json::from_str::<serde_json::Value>(&place.dunlin("pki show other/client.pem --json"));
        let leaf = &shown.unwrap()[0];
        for (field, value) in
            [("subject", &leaf["subject"]), ("serial", &leaf["serial"]), ("sha256", &leaf["sha256"])]
        {
            let value = value.as_str().unwrap();
            assert!(line.contains(&format!("{field}=\"{value}\"")), "{field} {value}: {line}");
        }
    }
}

/// Each line is an object, from the first to the last.
#[test]
fn the_log_as_json_names_the_rule_of_a_client() {
    let place = place();
    let policy = "[profile.strong]\nrank = 100\nclient = \"request\"\n[profile.low]\nrank = 50\nclient = \"certificate\"\n\
         [[rule]]\nname = \"devices\"\nwhen.name = \"device-1\"\nprofile = \"low\"\n";
    place.write("policy.toml", policy);
    let config = config(MUTUAL).replace("listen =", "policy = \"policy.toml\"\nlisten =");
    let (gateway, port) = start(&place, &format!("[log]\nformat = \"json\"\n{config}"));
    assert_eq!(curl(&place, port, "--cert pki/client.pem --key pki/client.key"), "page");
    let line = gateway.log_where(|line| json(line)["message"] == "connected");
    let event = json(&line);
    assert_eq!((&event["level"], &event["listener"]), (&"INFO".into(), &"web".into()), "{line}");
    assert_eq!((&event["rule"], &event["profile"]), (&"devices".into(), &"strong".into()), "{line}");
    send_signal(&gateway.child, "-TERM");
    let (status, _, rest) = gateway.end();
    let messages: Vec<_> = rest.lines().map(|line| json(line)["message"].clone()).collect();
    assert!(status == 0 && messages.contains(&"disconnected".into()), "{rest}");
}

#[test]
fn sighup_reloads_and_sigterm_ends() {
    let place = place();
    place.dunlin("pki demo --out others");
    let (gateway, port) = start(&place, &config(""));
    assert_eq!(curl(&place, port, ""), "page");
    let good = place.read("gateway.toml");
    place.write("gateway.toml", good.replace("server.pem", "absent.pem").replace("to =", "too ="));
    send_signal(&gateway.child, "-HUP");
    gateway.log_with("gateway.toml:9: listener[0].route[0].too: unknown key");
    gateway.log_with("the previous configuration stays in force");
    assert_eq!(curl(&place, port, ""), "page");
    place.write("gateway.toml", good.replace("pki/", "others/"));
    send_signal(&gateway.child, "-HUP");
    gateway.log_with(" reloaded");
    let told = place
        .dunlin_with(&format!("client localhost:{port} --CAfile others/root.pem"), b"GET / HTTP/1.0\r\n\r\n");
    assert!(told.contains("page"), "{told}");
    send_signal(&gateway.child, "-TERM");
    gateway.log_with(" stopped");
    assert_eq!(gateway.end().0, 0);
}

#[test]
fn openssl_and_dunlin_authenticate_themselves() {
    let place = place();
    let (gateway, port) = start(&place, &(config(MUTUAL) + "proxy_protocol = false\n"));
    let told =
        place.dunlin_with(&format!("client localhost:{port} {CLIENT} {OWN}"), b"GET / HTTP/1.0\r\n\r\n");
    assert!(told.contains("page"), "{told}");
    gateway.log_with(" connected");
    let mut openssl = std::process::Command::new("openssl");
    openssl.args([
        "s_client",
        "-quiet",
        "-connect",
        &format!("127.0.0.1:{port}"),
        "-servername",
        "localhost",
    ]);
    for (option, file) in [
        ("-CAfile", "root.pem"),
        ("-cert", "client.pem"),
        ("-cert_chain", "client.pem"),
        ("-key", "client.key"),
    ] {
        openssl.arg(option).arg(place.path(&format!("pki/{file}")));
    }
    let mut openssl = Running::start(openssl.arg("-verify_return_error"));
    openssl.write("GET / HTTP/1.0\r\n\r\n");
    while !openssl.line().contains("page") {}
}

#[test]
fn checks_a_configuration_without_starting() {
    let place = place();
    let few = "[listener.limits]\nconnections = 100\n";
    place.write("gateway.toml", config(&format!("{few}{MUTUAL}")));
    assert_eq!(place.dunlin("gateway -c gateway.toml --check"), "gateway.toml: valid: 1 listener, 1 route\n");
    // The clients of all listeners count.
    place.write("gateway.toml", config(few).replace("100", "10000000"));
    let output = place.command("gateway -c gateway.toml --check").output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && stderr.contains("may need 20002100 open files"), "{stderr}");
    let faulty = format!("{few}[listener.clients]\nca = \"absent.pem\"");
    place.write("gateway.toml", config(&faulty).replace("server.key", "client.key"));
    let output = place.command("gateway -c gateway.toml --check").output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let lines: Vec<_> = stderr.lines().collect();
    let [key, ca] = lines[..] else { panic!("{stderr}") };
    assert!(
        key.starts_with("dunlin: gateway.toml:6: listener[0].certificate[0].key: pki/client.key: "),
        "{stderr}"
    );
    assert!(ca.starts_with("dunlin: gateway.toml:10: listener[0].clients.ca: absent.pem: "), "{stderr}");
    let line = place.dunlin_fails("gateway -c absent.toml", 1);
    assert!(line.contains("absent.toml"), "{line}");
}

/// Starts a gateway after this command of the shell.
fn start_after(place: &Place, command: &str, config: &str) -> Running {
    place.write("gateway.toml", config);
    let dunlin = place.command("gateway -c gateway.toml");
    let mut shell = std::process::Command::new("sh");
    shell.arg("-c").arg(format!("{command}; exec \"$0\" \"$@\"")).arg(dunlin.get_program());
    shell.args(dunlin.get_args()).current_dir(dunlin.get_current_dir().unwrap());
    Running::start(&mut shell)
}

#[test]
fn raises_the_limit_on_open_files_and_warns_if_it_is_too_low() {
    let place = place();
    let gateway = start_after(&place, "ulimit -Sn 100", &config(""));
    gateway.log_with("listening");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", gateway.child.id())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let numbers: Vec<_> = line.split_whitespace().skip(3).take(2).collect();
    assert_eq!(numbers[0], numbers[1], "{line}");
    let gateway = start_after(&place, "ulimit -n 200", &config(""));
    let line = gateway.log_with("open files");
    // With the default limits, it serves as many clients as the system allows.
    assert!(line.contains("need 1024 open files, and the system allows 200"), "{line}");
    let set = "[limits]\nconnections = 9000\n";
    let gateway = start_after(&place, "ulimit -n 2000", &format!("{set}{}", config("")));
    let line = gateway.log_with("open files");
    assert!(line.contains("need 20100 open files, and the system allows 2000"), "{line}");
}

/// Clients that send nothing have all open files. Their handshakes would last for an hour.
#[test]
fn without_open_files_the_oldest_handshake_gives_way_and_the_log_says_so_once() {
    let place = place();
    let limits = "[limits]\nhandshake_time = \"1h\"\n";
    let gateway = start_after(&place, "ulimit -n 60", &format!("{limits}{}", config("")));
    let port = port_in(&gateway.log_with("listening"));
    let mut silent: Vec<_> = (0..80).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect();
    let line = gateway.log_with("a connection was not accepted");
    assert!(line.contains("raise the limit on open files"), "{line}");
    for client in &mut silent[..20] {
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let read = client.read(&mut [0; 64]).map_err(|error| error.kind());
        assert_ne!(read, Err(ErrorKind::WouldBlock), "its handshake goes on");
    }
    drop(silent);
    assert_eq!(curl(&place, port, ""), "page");
    send_signal(&gateway.child, "-TERM");
    let (status, _, rest) = gateway.end();
    assert!(status == 0 && !rest.contains("not accepted"), "{rest}");
}

/// A FIFO hangs as a file on a network does that does not answer.
#[test]
fn sigterm_ends_a_reload_that_hangs() {
    let place = place();
    let (gateway, _) = start(&place, &config(""));
    let path = place.path("gateway.toml");
    std::fs::remove_file(&path).unwrap();
    place.tool("mkfifo", "gateway.toml");
    send_signal(&gateway.child, "-HUP");
    // It opens when the gateway reads the other end.
    let writer = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    send_signal(&gateway.child, "-TERM");
    gateway.log_with(" stopped");
    assert_eq!(gateway.end().0, 0);
    drop(writer);
}
