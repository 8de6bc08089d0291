//! Tests that `dunlin server` follows its files: valid contents apply from the next connection on, invalid
//! contents change nothing.

use crate::peers::{CLIENT, OWN, SERVER, Server, place};
use dunlin_tests::place::{Place, send_signal};

/// Client options that trust the second PKI.
const OTHER_CLIENT: &str = "--CAfile others/root.pem";

/// A place with two PKIs.
fn two_pkis() -> Place {
    let place = place();
    place.dunlin("pki demo --out others");
    place
}

/// Replaces a file of the first PKI by the second PKI's file, in one step.
fn replace(place: &Place, name: &str) {
    place.write("new", place.read(&format!("others/{name}")));
    std::fs::rename(place.path("new"), place.path(&format!("pki/{name}"))).unwrap();
}

#[test]
fn uses_a_renewed_certificate_once_its_key_is_there() {
    let place = two_pkis();
    let server = Server::new(&place, SERVER);
    server.echo(&place, CLIENT, "");
    replace(&place, "server.pem");
    server.echo(&place, CLIENT, "");
    let says = "pki/server.key: not the key of the first certificate in pki/server.pem; \
                give the private key of this certificate; \
                the previous certificates and keys stay in force";
    server.process.log_with(says);
    replace(&place, "server.key");
    server.echo(&place, OTHER_CLIENT, "");
    server.process.log_with("reloaded: pki/server.pem, pki/server.key");
    server.refused(&place, CLIENT);
}

/// A new certificate ends no session: the tickets and the keys that seal them stay.
#[test]
fn sessions_outlive_a_renewed_certificate() {
    let place = two_pkis();
    let server = Server::new(&place, SERVER);
    server.echo(&place, &format!("{CLIENT} --sess-out session"), "");
    for name in ["server.pem", "server.key"] {
        replace(&place, name);
    }
    server.echo(&place, OTHER_CLIENT, "");
    let told = server.echo(&place, &format!("{CLIENT} --sess-in session --brief"), "");
    assert!(told.contains(", resumed"), "{told}");
}

#[test]
fn sighup_reads_the_files_at_once_and_names_each_fault() {
    let place = two_pkis();
    let server = Server::new(&place, SERVER);
    let hangup = || send_signal(&server.process.child, "-HUP");
    let good = place.read("pki/server.pem");
    for (content, says) in [
        (Some("garbage"), "pki/server.pem: neither PEM nor DER"),
        (Some(""), "pki/server.pem: "),
        (None, "pki/server.pem: no such file"),
    ] {
        match content {
            Some(content) => place.write("pki/server.pem", content),
            None => std::fs::remove_file(place.path("pki/server.pem")).unwrap(),
        }
        // A repeated signal repeats the reason.
        for _ in 0..2 {
            hangup();
            let line = server.process.log_with(says);
            assert!(line.ends_with("; the previous certificates and keys stay in force"), "{line}");
        }
        server.echo(&place, CLIENT, "");
    }
    place.write("pki/server.pem", good);
    hangup();
    server.process.log_with("reloaded: pki/server.pem, pki/server.key");
    for name in ["server.pem", "server.key"] {
        replace(&place, name);
    }
    hangup();
    server.process.log_with("reloaded: pki/server.pem, pki/server.key");
    server.echo(&place, OTHER_CLIENT, "");
}

#[test]
fn invalid_certificate_does_not_block_new_anchors_and_crls() {
    let place = two_pkis();
    place.write("ca.pem", place.read("others/root.pem"));
    let crl = |more: &str| {
        let sub = "--issuer pki/intermediate.pem --issuer-key pki/intermediate.key";
        place.dunlin(&format!("pki crl {sub} --crl new.pem {more}"));
        std::fs::rename(place.path("new.pem"), place.path("list.pem")).unwrap();
    };
    crl("");
    let options = "--CAfile ca.pem --Verify --crl-check --CRL list.pem";
    let server = Server::new(&place, &format!("{SERVER} {options}"));
    server.refused(&place, &format!("{CLIENT} {OWN}"));
    place.write("pki/server.pem", "garbage");
    place.write("ca.pem", place.read("pki/root.pem"));
    server.echo(&place, &format!("{CLIENT} {OWN}"), "");
    server.process.log_with("the previous certificates and keys stay in force");
    server.process.log_with("reloaded: ca.pem");
    crl("--revoke pki/client.pem");
    let (_, log) = server.refused(&place, &format!("{CLIENT} {OWN}"));
    assert!(log.contains("its certificate is revoked"), "{log}");
    // Invalid anchors do not replace valid ones either.
    place.write("ca.pem", "garbage");
    send_signal(&server.process.child, "-HUP");
    let line = server.process.log_with("ca.pem: neither PEM nor DER");
    assert!(line.ends_with("; the previous trust anchors and CRLs stay in force"), "{line}");
    server.refused(&place, &format!("{CLIENT} {OWN}"));
}
