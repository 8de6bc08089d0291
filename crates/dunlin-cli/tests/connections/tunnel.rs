//! `dunlin tunnel` as a process, before `dunlin gateway`.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::gateway;
use crate::peers::{Running, place, port_in};
use dunlin_tests::place::send_signal;

/// Fetches a page without TLS.
fn fetch(port: u16) -> std::io::Result<String> {
    let mut tcp = TcpStream::connect(("127.0.0.1", port))?;
    tcp.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
    let mut page = String::new();
    tcp.read_to_string(&mut page)?;
    Ok(page)
}

#[test]
fn a_tunnel_by_options_keeps_its_cache_and_refuses_another_authority() {
    let place = place();
    place.dunlin("pki demo --out others");
    let cached = "[listener.cache]\nmode = \"compact\"\n";
    let (_gateway, port) =
        gateway::start(&place, &gateway::config(&format!("{}\n{cached}", gateway::MUTUAL)));
    let own = "--cert pki/client.pem --key pki/client.key --cache cache";
    let options = format!("tunnel --listen 127.0.0.1:0 --connect localhost:{port} {own}");
    for kind in ["Full", "Cached"] {
        let tunnel = Running::new(&place, &format!("{options} --ca pki/root.pem"));
        let local = port_in(&tunnel.log_with("listening"));
        assert!(fetch(local).unwrap().ends_with("page"));
        let line = tunnel.log_with(" connected");
        assert!(line.contains(&format!("kind={kind}")), "{line}");
        send_signal(&tunnel.child, "-TERM");
        tunnel.log_with(" stopped");
        assert_eq!(tunnel.end().0, 0);
    }
    let tunnel = Running::new(&place, &format!("{options} --CAfile others/root.pem"));
    let local = port_in(&tunnel.log_with("listening"));
    fetch(local).unwrap_err();
    let line = tunnel.log_with("no connection to the server");
    assert!(
        line.contains(
            "advice=\"add the certificate of its authority to ca, if the server is the right one\""
        ),
        "{line}"
    );
}

#[test]
fn sighup_reloads_a_tunnel() {
    let place = place();
    let (_gateway, port) = gateway::start(&place, &gateway::config(""));
    let good = format!(
        "[[listener]]\nname = \"web\"\nlisten = \"127.0.0.1:0\"\nto = \"localhost:{port}\"\n[listener.server]\nca = \"pki/root.pem\"\n"
    );
    place.write("tunnel.toml", &good);
    assert_eq!(place.dunlin("tunnel -c tunnel.toml --check"), "tunnel.toml: valid: 1 listener\n");
    let tunnel = Running::new(&place, "tunnel -c tunnel.toml");
    let local = port_in(&tunnel.log_with("listening"));
    place.write("tunnel.toml", good.replace("to =", "too ="));
    send_signal(&tunnel.child, "-HUP");
    tunnel.log_with("tunnel.toml:4: listener[0].too: unknown key");
    tunnel.log_with("the previous configuration stays in force");
    assert!(fetch(local).unwrap().ends_with("page"));
    place.write("tunnel.toml", good);
    send_signal(&tunnel.child, "-HUP");
    tunnel.log_with(" reloaded");
    assert!(fetch(local).unwrap().ends_with("page"));
}

#[test]
fn faults_of_options_name_the_option() {
    let place = place();
    let told =
        |options: &str| place.dunlin_fails(&format!("tunnel --check --listen 127.0.0.1:0 {options}"), 1);
    let line = told("--connect localhost --ca pki/root.pem");
    assert!(line.starts_with("dunlin: --to: \"localhost\" is not a host with a port; "), "{line}");
    let line = told("--connect localhost:1 --ca absent.pem");
    assert!(line.starts_with("dunlin: --ca: absent.pem: "), "{line}");
    let line = told("--connect localhost:1");
    assert!(line.contains("no server is trusted"), "{line}");
    place.dunlin("did create --out device");
    let server = "--connect localhost:1 --ca pki/root.pem";
    let line = told(&format!("{server} --did device --vc absent.vc"));
    assert!(line.starts_with("dunlin: --vc: absent.vc: "), "{line}");
    let line = told(&format!("{server} --did absent"));
    assert!(line.starts_with("dunlin: --did: absent: "), "{line}");
    let line = told("--connect localhost:1 --dids absent");
    assert!(line.starts_with("dunlin: --dids: absent: "), "{line}");
}

/// A DID alone, and a credential about it with its status list; by its directory, by its key, and after a
/// rotation.
#[test]
fn a_tunnel_by_options_shows_a_did_or_a_credential() {
    let place = place();
    let did = |name: &str| {
        let did =
            place.dunlin(&format!("did create --method dunlin --registry registry.example --out {name}"));
        let did = did.trim_end().to_owned();
        place.write(&format!("{name}.list"), place.dunlin(&format!("did resolve {name} --line")));
        did
    };
    let device = did("device");
    place.write("trusted", place.dunlin("did create --out operator"));
    let status = "--status-list status.vc --status-url https://operator.example/1";
    place.dunlin(&format!("vc issue --issuer operator --subject {device} {status} --out device.vc"));
    let clients = "[listener.clients]\nvc_issuers = \"trusted\"\nvc_peers = \"device.list\"\ndids = \"device.list\"\n\
                   did_documents = \"device/did.json\"\n";
    let (gateway, port) = gateway::start(&place, &gateway::config(clients));
    let server = format!("tunnel --listen 127.0.0.1:0 --connect localhost:{port} --ca pki/root.pem");
    for (own, kind) in [
        ("--did device", "DID"),
        ("--did device/key-0.key --document device/did.json", "DID"),
        ("--did device --vc device.vc --staple-status status.vc", "VC"),
    ] {
        let tunnel = Running::new(&place, &format!("{server} {own}"));
        let local = port_in(&tunnel.log_with("listening"));
        assert!(fetch(local).unwrap().ends_with("page"));
        gateway.log_with(&format!("{kind} {device}"));
    }
}
