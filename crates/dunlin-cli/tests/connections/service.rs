//! `dunlin gateway` as a service of systemd: sockets that systemd has opened, messages to it, and its units.

use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;

use crate::gateway::{backend, curl};
use crate::peers::{CLIENT, PATIENCE, Running, place};
use dunlin_tests::place::{Place, send_signal};

/// Starts a gateway as systemd does at the first connection to this address or the first datagram. `options`
/// say which of both. The gateway's process holds the socket, so that it could not bind the address again.
fn activated(place: &Place, options: &[&str], port: u16) -> Running {
    let mut command = Command::new("systemd-socket-activate");
    command.args(options).arg("-l").arg(format!("127.0.0.1:{port}"));
    command.arg("-E").arg(format!("NOTIFY_SOCKET={}", place.path("notify").display()));
    command.arg("/usr/bin/env").args(["--default-signal=INT,HUP,TERM", env!("CARGO_BIN_EXE_dunlin")]);
    command.args(["gateway", "-c", "gateway.toml"]).current_dir(place.path(""));
    let gateway = Running::start(&mut command);
    gateway.log_with("Listening on");
    gateway
}

fn config(transport: &str, port: u16, to: u16) -> String {
    format!(
        "[[listener]]\nname = \"web\"\nlisten = \"127.0.0.1:{port}\"\ntransport = \"{transport}\"\n\
         [[listener.certificate]]\nchain = \"pki/server.pem\"\nkey = \"pki/server.key\"\n\
         [[listener.route]]\nto = \"127.0.0.1:{to}\"\n",
    )
}

/// The next message to the service manager.
fn told(manager: &UnixDatagram) -> String {
    let mut message = [0; 4096];
    let len = manager.recv(&mut message).expect("a message to the service manager");
    String::from_utf8(message[..len].to_vec()).unwrap()
}

fn manager(place: &Place) -> UnixDatagram {
    let manager = UnixDatagram::bind(place.path("notify")).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    manager
}

#[test]
fn a_service_takes_its_sockets_from_systemd_and_reports_reloads() {
    let place = place();
    let manager = manager(&place);
    // Another program could take this port first, which is improbable.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    place.write("gateway.toml", config("tls", port, backend()));
    let gateway = activated(&place, &[], port);
    assert_eq!(curl(&place, port, ""), "page");
    assert_eq!(told(&manager), "READY=1\n");
    send_signal(&gateway.child, "-HUP");
    let reloading = told(&manager);
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(told(&manager), "READY=1\n");
    assert_eq!(curl(&place, port, ""), "page");
    send_signal(&gateway.child, "-TERM");
    assert_eq!(told(&manager), "STOPPING=1\n");
    assert_eq!(gateway.end().0, 0);
}

#[test]
fn a_service_takes_its_udp_socket_from_systemd() {
    let place = place();
    let manager = manager(&place);
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    place.write("gateway.toml", config("dtls", port, 9));
    let gateway = activated(&place, &["--datagram"], port);
    place.dunlin_with(&format!("client localhost:{port} {CLIENT} --udp"), b"");
    gateway.log_with(" connected");
    assert_eq!(told(&manager), "READY=1\n");
}

/// A socket without a listener is probably a mistake in one of the two files.
#[test]
fn names_inherited_sockets_that_no_listener_has() {
    let place = place();
    let manager = manager(&place);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    place.write("gateway.toml", config("tls", 0, 9));
    let gateway = activated(&place, &[], port);
    drop(std::net::TcpStream::connect(("127.0.0.1", port)).unwrap());
    let line = gateway.log_with("no listener has the address of an inherited socket");
    assert!(line.contains(&format!("address=127.0.0.1:{port}")), "{line}");
    assert_eq!(told(&manager), "READY=1\n");
}

/// systemd reads the units without complaint, and rates the service's exposure.
#[test]
fn systemd_accepts_the_units() {
    let place = Place::new();
    let units = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    for unit in ["dunlin-gateway.service", "dunlin-gateway.socket"] {
        let text = std::fs::read_to_string(units.join(unit)).unwrap();
        // The program must exist.
        place.write(unit, text.replace("/usr/bin/dunlin", env!("CARGO_BIN_EXE_dunlin")));
    }
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no", "--recursive-errors=no"]).current_dir(place.path(""));
    let output = verify.args(["./dunlin-gateway.service", "./dunlin-gateway.socket"]).output();
    let output = output.expect("systemd: `tools/setup test` installs it");
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !complaints.contains("dunlin"), "{complaints}");
    // From 0 (confined) to 100 (unsafe).
    place.tool(
        "systemd-analyze",
        "security --offline=true --no-pager --threshold=20 ./dunlin-gateway.service",
    );
}
