//! Tests `--did`, `--vc`, `--trust` and `--peers`: verifiable credentials and bare DIDs between `dunlin
//! client` and `dunlin server`.

use std::time::{SystemTime, UNIX_EPOCH};

use dunlin_identity::credential::status::{Bitstring, StatusPurpose};
use dunlin_identity::credential::{Contexts, Issuer};
use dunlin_identity::{DidDocument, Relationship};

use crate::peers::{CLIENT, OWN, SERVER, Server, json, place};
use dunlin_tests::place::Place;

/// The options of a server and a client with credentials, each of which trusts the operator.
const HUB: &str = "--did hub --vc hub.vc --echo";
const VERIFY: &str = "--trust trusted --Verify";
const DEVICE: &str = "--trust trusted --did device --vc device.vc";

/// Certificates, an operator, and a hub and a device with credentials by the operator.
fn parties() -> Place {
    let place = place();
    let operator = place.dunlin("did create --key-type p256 --out operator");
    place.write("trusted", &operator);
    for (name, typ) in [("hub", "p256"), ("device", "ed25519")] {
        let did = place.dunlin(&format!("did create --key-type {typ} --out {name}"));
        place.write(&format!("{name}.did"), did.trim_end());
        issue(&place, "operator", name, &format!("--claim role={name} --out {name}.vc"));
    }
    place
}

fn issue(place: &Place, issuer: &str, name: &str, arguments: &str) {
    let did = place.read(&format!("{name}.did"));
    place.dunlin(&format!("vc issue --issuer {issuer} --subject {did} {arguments}"));
}

#[test]
fn credentials_authenticate_both_sides_over_tcp_and_udp() {
    let place = parties();
    let hub = place.read("hub.did");
    let operator = place.read("trusted");
    for (transport, version) in [("", "TLSv1.3"), ("--udp", "DTLSv1.3")] {
        let server = Server::new(&place, &format!("{HUB} {VERIFY} {transport}"));
        let told = server.echo(&place, &format!("{DEVICE} {transport}"), "hello\n");
        for line in [
            format!("Version            {version}"),
            format!("Server             VC {hub}"),
            format!("Issuer             {}", operator.trim_end()),
            "Claims             {\"role\":\"hub\"}".to_owned(),
            "Peer signature     ecdsa_secp256r1_sha256".to_owned(),
            "Own signature      ed25519".to_owned(),
        ] {
            assert!(told.lines().any(|told| told == line), "no {line:?} in\n{told}");
        }
        assert!(told.ends_with("---\nhello\n"), "{told}");
        let log = server.process.log();
        let peer = format!("VC {}, issued by {}", place.read("device.did"), operator.trim_end());
        assert!(log.contains(&peer), "{log}");
    }
}

/// The paper's other mode: the key of the DID proves it, and a list names the trusted DIDs.
#[test]
fn bare_dids_authenticate_both_sides_over_tcp_and_udp() {
    let place = parties();
    let [hub, device] = ["hub.did", "device.did"].map(|name| place.read(name));
    for (transport, version) in [("", "TLSv1.3"), ("--udp", "DTLSv1.3")] {
        let server =
            Server::new(&place, &format!("--did hub --echo --peers device.did --Verify --json {transport}"));
        let options = format!("--did device --peers hub.did {transport}");
        let told = server.echo(&place, &options, "hello\n");
        for line in [
            format!("Version            {version}"),
            format!("Server             DID {hub}"),
            "Peer signature     ecdsa_secp256r1_sha256".to_owned(),
            "Own signature      ed25519".to_owned(),
        ] {
            assert!(told.lines().any(|told| told == line), "no {line:?} in\n{told}");
        }
        assert!(
            told.contains("DID  ") && told.contains("DIDVerify") && !told.contains("Certificate"),
            "{told}"
        );
        assert!(told.ends_with("---\nhello\n"), "{told}");
        let event = json(&server.process.line());
        assert_eq!(event["peer_did"], device);
        assert!(event["peer_issuer"].is_null(), "{event}");
    }
}

#[test]
fn bare_dids_resume_and_fall_back() {
    let place = parties();
    let server =
        Server::new(&place, &format!("{SERVER} --did hub --peers device.did --CAfile pki/root.pem --Verify"));
    let device = "--did device --peers hub.did";
    let told = server.echo(&place, &format!("{device} --sess-out session"), "");
    assert!(
        told.contains("Server             DID did:key:") && told.contains("\nResumed            no\n"),
        "{told}"
    );
    let told = server.echo(&place, &format!("{device} --sess-in session"), "");
    assert!(
        told.contains("Server             DID did:key:") && told.contains("\nResumed            yes\n"),
        "{told}"
    );
    // Each side falls back to certificates by itself.
    assert!(server.echo(&place, &format!("{CLIENT} --did device"), "").contains("X.509 localhost"));
    assert!(server.process.log().contains(&format!("DID {}", place.read("device.did"))));
    let told = server.echo(&place, &format!("{OWN} --peers hub.did"), "");
    assert!(told.contains("Server             DID did:key:"), "{told}");
    assert!(server.echo(&place, &format!("{CLIENT} {OWN}"), "").contains("X.509 localhost"));
    // Credentials travel in these messages, too.
    let server = Server::new(&place, &format!("{HUB} {VERIFY} --ssi-messages alone"));
    let told = server.echo(&place, &format!("{DEVICE} --ssi-messages beside"), "");
    assert!(told.contains("DIDVerify") && told.contains("Server             VC did:key:"), "{told}");
    let (client, _) = server.refused(&place, DEVICE);
    assert!(client.contains("alert") || client.contains("certificate"), "{client}");
}

#[test]
fn refuses_bare_dids_that_are_not_on_the_list() {
    let place = parties();
    place.dunlin("did create --out stranger");
    let server = Server::new(&place, "--did hub --echo --peers device.did --Verify");
    let (client, log) = server.refused(&place, "--peers hub.did --did stranger");
    assert!(client.contains("(alert unknown_ca)") && client.contains("stranger"), "{client}");
    assert!(log.contains("not on the list of trusted DIDs; add the DID to the file of --dids"), "{log}");
    let (client, log) = server.refused(&place, "--peers device.did --did device");
    assert!(client.contains("not on the list of trusted DIDs"), "{client}");
    assert!(log.contains("(alert unknown_ca)"), "{log}");
    // It is no substitute for a credential.
    let server = Server::new(&place, &format!("{HUB} {VERIFY} --ssi-messages beside"));
    let (client, log) = server.refused(&place, "--trust trusted --did device");
    assert!(client.contains("(alert unsupported_certificate)"), "{client}");
    assert!(log.contains("no common certificate type"), "{log}");
}

#[test]
fn credentials_and_certificates_mix() {
    let place = parties();
    let connects = |server: &str, client: &str| {
        let server = Server::new(&place, server);
        let told = server.echo(&place, client, "hello\n");
        assert!(told.ends_with("---\nhello\n"), "{told}");
        (told, server.process.log())
    };
    let (told, log) =
        connects(&format!("{HUB} --CAfile pki/root.pem --Verify"), &format!("--trust trusted {OWN}"));
    assert!(told.contains("\nServer             VC did:key:") && log.contains("X.509 CN=device-1"), "{log}");
    let (told, log) =
        connects(&format!("{SERVER} {VERIFY}"), &format!("{CLIENT} --did device --vc device.vc"));
    assert!(told.contains("\nServer             X.509 localhost") && log.contains("VC did:key:"), "{log}");
    // A server with both shows each client what it trusts.
    let both = "--did hub --vc hub.vc --cert pki/server.pem --key pki/server.key --echo";
    let server = Server::new(&place, both);
    assert!(server.echo(&place, CLIENT, "").contains("X.509 localhost"));
    assert!(server.echo(&place, "--trust trusted", "").contains("VC did:key:"));
    assert!(server.echo(&place, &format!("--trust trusted {CLIENT}"), "").contains("VC did:key:"));
    // TLS 1.2 has no credentials.
    let server = Server::new(&place, &format!("{both} --tls1-2 --tls1-3"));
    assert!(server.echo(&place, &format!("{CLIENT} --tls1-2"), "").contains("X.509 localhost"));
    assert!(server.echo(&place, "--trust trusted --tls1-2 --tls1-3", "").contains("VC did:key:"));
}

/// Without --CAfile, certificates do not replace credentials.
#[test]
fn certificates_are_no_substitute() {
    let place = parties();
    let (client, log) = Server::new(&place, SERVER).refused(&place, "--trust trusted");
    assert!(client.contains("another certificate type"), "{client}");
    assert!(client.contains("or accept another kind of it: --ca, or --raw-keys"), "{client}");
    let advice = "give this server a verifiable credential (--did, --vc), or let the client accept certificates (--ca)";
    assert!(log.contains(advice), "{log}");
    let server = Server::new(&place, &format!("{HUB} {VERIFY}"));
    let (client, log) = server.refused(&place, &format!("--trust trusted {OWN}"));
    assert!(client.contains("another certificate type"), "{client}");
    assert!(client.contains("show the server another kind of credential: --did (with --vc"), "{client}");
    let advice = "give the client a verifiable credential (--did, --vc), or let this server accept certificates (--ca)";
    assert!(log.contains("no common certificate type") && log.contains(advice), "{log}");
    // The reverse.
    let server = Server::new(&place, &format!("{SERVER} --CAfile pki/root.pem --Verify"));
    let (client, log) = server.refused(&place, &format!("{CLIENT} --did device --vc device.vc"));
    assert!(client.contains("show the server another kind of credential: --chain with --key"), "{client}");
    let advice = "give the client a certificate (--chain, --key), or let this server accept verifiable credentials (--vc-issuers)";
    assert!(log.contains(advice), "{log}");
}

#[test]
fn refuses_credentials_that_do_not_count() {
    let place = parties();
    place.dunlin("did create --out stranger");
    issue(&place, "stranger", "device", "--out foreign.vc");
    issue(&place, "operator", "device", "--valid-from 2020-01-01 --days 30 --out late.vc");
    issue(&place, "operator", "device", "--valid-from 2100-01-01 --out early.vc");
    let status = "--status-list status.vc --status-url https://operator.example/1";
    issue(&place, "operator", "device", &format!("{status} --out revoked.vc"));
    issue(&place, "operator", "device", "--form json --claim role=sensor --out changed.vc");
    place.write("changed.vc", place.read("changed.vc").replace("sensor", "broker"));
    place.dunlin("vc revoke revoked.vc --issuer operator --status-list status.vc");
    let server = Server::new(&place, &format!("{HUB} {VERIFY} --status-list status.vc"));
    for (vc, alert, why) in [
        ("foreign.vc", "unknown_ca", "is not trusted; add the issuer to the file of --vc-issuers"),
        ("late.vc", "certificate_expired", "it has expired; check the clock"),
        ("early.vc", "certificate_expired", "it is not valid yet; check the clock"),
        ("revoked.vc", "certificate_revoked", "has revoked the credential; give the client a new DID"),
        (
            "changed.vc",
            "bad_certificate",
            "the signature is wrong; look at the credential with `dunlin vc show`",
        ),
    ] {
        let (client, log) = server.refused(&place, &format!("--trust trusted --did device --vc {vc}"));
        assert!(client.contains(&format!("(alert {alert})")) && client.contains(vc), "{client}");
        assert!(log.contains(why), "{log}");
        assert_eq!(
            client.contains("; peers will refuse it"),
            ["late.vc", "early.vc"].contains(&vc),
            "{client}"
        );
    }
    // Without the list, the status is unknown.
    let server = Server::new(&place, &format!("{HUB} {VERIFY}"));
    let (_, log) = server.refused(&place, "--trust trusted --did device --vc revoked.vc");
    assert!(log.contains("is not at hand") && log.contains("--vc-status"), "{log}");
    // The client refuses the server in the same way.
    place.write("others", place.read("device.did"));
    let (client, log) = server.refused(&place, "--trust others --did device --vc device.vc");
    assert!(
        client.contains("this client refused the server: ") && client.contains("is not trusted"),
        "{client}"
    );
    assert!(log.contains("hub.vc") && log.contains("(alert unknown_ca)"), "{log}");
}

#[test]
fn accepts_only_the_peers_on_the_list() {
    let place = parties();
    let server = Server::new(&place, &format!("{HUB} {VERIFY} --peers device.did"));
    server.echo(&place, &format!("{DEVICE} --peers hub.did"), "");
    let (client, log) = server.refused(&place, "--trust trusted --did hub --vc hub.vc");
    assert!(client.contains("(alert unknown_ca)") && log.contains("not on the list"), "{client}\n{log}");
    let (client, _) = server.refused(&place, &format!("{DEVICE} --peers device.did"));
    assert!(client.contains("not on the list of trusted DIDs"), "{client}");
}

/// The document of a did:dunlin comes from a file; its hash is on the list.
#[test]
fn accepts_pinned_documents_of_did_dunlin() {
    let place = parties();
    let did = place.dunlin("did create --method dunlin --registry registry.example --out device-2");
    place.write("device-2.did", did.trim_end());
    issue(&place, "operator", "device-2", "--out device-2.vc");
    place.write("peers", place.dunlin("did resolve device-2 --line"));
    let pinned = format!("{SERVER} {VERIFY} --peers peers --document device-2/did.json");
    let client = &format!("{CLIENT} --did device-2 --vc device-2.vc");
    let server = Server::new(&place, &pinned);
    server.echo(&place, client, "");
    assert!(server.process.log().contains(&format!("VC {}", did.trim_end())));
    // The key alone, with the document beside it.
    let key = "--did device-2/key-0.key --document device-2/did.json --vc device-2.vc";
    server.echo(&place, &format!("{CLIENT} {key}"), "");
    // A DID without a document can never authenticate.
    place.write("mixed", place.read("device.did") + "\n" + did.trim_end() + "\ndid:web:device.example\n");
    for unpinned in ["--peers mixed --document device-2/did.json", "--trust trusted --peers mixed"] {
        let server = Server::new(&place, &format!("{SERVER} --Verify {unpinned}"));
        let told = format!("mixed: {} and 1 more can never authenticate: ", did.trim_end());
        assert!(server.warnings.contains(&told), "{}", server.warnings);
    }
    // Without --document, the server does not say that it resolves the method.
    let server = Server::new(&place, &format!("{SERVER} {VERIFY}"));
    let (client, _) = server.refused(&place, client);
    assert!(client.contains("sent no certificate"), "{client}");
}

/// A status list counts from the next connection on, also for sessions.
#[test]
fn follows_status_lists() {
    let place = parties();
    let status = "--status-list status.vc --status-url https://operator.example/1";
    issue(&place, "operator", "device", &format!("{status} --out status-device.vc"));
    let server = Server::new(&place, &format!("{HUB} {VERIFY} --status-list status.vc"));
    let device = "--trust trusted --did device --vc status-device.vc";
    let told = server.echo(&place, &format!("{device} --sess-out session"), "x");
    assert!(told.contains("\nResumed            no\n"), "{told}");
    let told = server.echo(&place, &format!("{device} --sess-in session --sess-out session"), "x");
    assert!(
        told.contains("\nResumed            yes\n") && told.contains("\nIssuer             did:key:"),
        "{told}"
    );
    place.dunlin("vc revoke status-device.vc --issuer operator --status-list status.vc");
    let (client, log) = server.refused(&place, &format!("{device} --sess-in session"));
    assert!(client.contains("(alert certificate_revoked)"), "{client}");
    assert!(log.contains("has revoked the credential"), "{log}");
    // A stored copy from before the revocation does not undo it.
    place.write("status.vc", list_of_age(&place, 1));
    let (_, log) = server.refused(&place, device);
    assert!(log.contains("has revoked the credential"), "{log}");
    // The server tells of lists that have become useless.
    for (hours, is_stale) in [(23, false), (25, true)] {
        place.write("status.vc", list_of_age(&place, hours));
        let server = Server::new(&place, &format!("{HUB} {VERIFY} --status-list status.vc"));
        let told = server.warnings;
        assert_eq!(told.contains("status.vc: older than 24 hours"), is_stale, "{told}");
    }
}

/// The device sends the status list along, so the server needs none, and the server's client neither.
#[test]
fn a_stapled_status_list_needs_no_list_at_the_peer() {
    let place = parties();
    let status = "--status-list status.vc --status-url https://operator.example/1";
    for name in ["hub", "device"] {
        issue(&place, "operator", name, &format!("{status} --out status-{name}.vc"));
    }
    let device = "--trust trusted --did device --vc device.vc --vc status-device.vc";
    for transport in ["", "--udp", "--ssi-messages alone"] {
        let hub = "--did hub --vc status-hub.vc --staple-status status.vc --echo";
        let server = Server::new(&place, &format!("{hub} {VERIFY} {transport}"));
        let only = "--trust trusted --did device --vc status-device.vc";
        let (_, log) = server.refused(&place, &format!("{only} {transport}"));
        assert!(log.contains("is not at hand"), "{log}");
        let told = server.echo(&place, &format!("{only} --staple-status status.vc {transport}"), "");
        assert!(told.contains("Server             VC did:key:"), "{told}");
        // Of several credentials, each has its own lists.
        server.echo(&place, &format!("{device} --staple-status status.vc {transport}"), "");
    }
    let server = Server::new(&place, &format!("{HUB} {VERIFY}"));
    let device = "--trust trusted --did device --vc status-device.vc --staple-status";
    place.write("old.vc", place.read("status.vc"));
    server.echo(&place, &format!("{device} old.vc"), "");
    place.dunlin("vc revoke status-device.vc --issuer operator --status-list status.vc");
    let (client, log) = server.refused(&place, &format!("{device} status.vc"));
    assert!(client.contains("(alert certificate_revoked)"), "{client}");
    assert!(log.contains("has revoked the credential"), "{log}");
    // The server has learnt it, also after it has read its files again.
    place.write("trusted", place.read("trusted") + "# changed\n");
    let (client, _) = server.refused(&place, &format!("{device} old.vc"));
    assert!(client.contains("(alert certificate_revoked)"), "{client}");
    let told = place.dunlin_fails(
        "client localhost:1 --trust trusted --did device --vc device.vc --staple-status status.vc",
        1,
    );
    assert!(told.contains("status.vc: no credential of --vc has a status in the list"), "{told}");
    let told = place.dunlin_fails(
        "client localhost:1 --trust trusted --did device --vc status-device.vc --staple-status trusted",
        1,
    );
    assert!(told.contains("trusted: ") && told.contains("give a status list"), "{told}");
}

/// A status list of the operator without revocations, `hours` old.
fn list_of_age(place: &Place, hours: i64) -> String {
    let provider = dunlin_awslc::provider();
    let document = DidDocument::read_any(place.read("operator/did.json").as_bytes()).unwrap();
    let items = dunlin_pki::parse(place.read("operator/key-0.key").as_bytes()).unwrap();
    let private = |item| if let dunlin_pki::Item::PrivateKey(pair) = item { Some(pair) } else { None };
    let key = items.into_iter().find_map(private).unwrap().signing_key(&provider).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs().cast_signed();
    let (url, made) = ("https://operator.example/1", now - hours * 3600);
    let purpose = StatusPurpose::Revocation;
    let list = Bitstring::default().credential(document.id(), url, purpose, made, now + 3600).unwrap();
    let method = document.keys(Relationship::AssertionMethod).next().unwrap().0;
    let issuer = Issuer { provider: &provider, signer: &*key, method };
    issuer.issue_jwt(&list, &Contexts::default()).unwrap()
}

#[test]
fn reports_the_credential_to_scripts() {
    let place = parties();
    let server = Server::new(&place, &format!("{HUB} {VERIFY} --json"));
    let told = server.echo(&place, &format!("{DEVICE} --json --lean"), "");
    let client = json(told.lines().next().unwrap());
    let server = json(&server.process.line());
    for (event, peer) in [(client, "hub"), (server, "device")] {
        assert_eq!(event["peer_did"], place.read(&format!("{peer}.did")));
        assert_eq!(event["peer_issuer"], place.read("trusted").trim_end());
        assert_eq!(event["peer_claims"], serde_json::json!({"role": peer}));
    }
}

#[test]
fn refuses_options_that_do_not_fit() {
    let place = parties();
    issue(&place, "operator", "hub", "--out other.vc");
    for (arguments, status, told) in [
        ("client localhost:1 --vc device.vc", 2, "--did"),
        ("client localhost:1 --did device --ssi-messages off", 2, "bare DIDs"),
        ("client localhost:1 --peers trusted --ssi-messages off", 2, "bare DIDs"),
        ("client localhost:1 --ssi-messages alone", 2, "no DID is shown or trusted"),
        ("client localhost:1 --did-web", 2, "no DIDs of peers are trusted"),
        ("client localhost:1 --peers none", 1, "no such file"),
        ("client localhost:1 --insecure --trust trusted", 2, "--insecure"),
        ("client localhost:1 --trust trusted --did device --vc other.vc", 1, "and --did is"),
        (
            "client localhost:1 --trust trusted --did pki/client.key --vc device.vc",
            1,
            "the key is not the first one for authentication",
        ),
        ("client localhost:1 --trust trusted --did none --vc device.vc", 1, "no such file"),
        ("client localhost:1 --trust none", 1, "no such file"),
        ("client localhost:1 --trust trusted --status-list device.vc", 1, "device.vc"),
        ("client localhost:1 --trust trusted --tls1-2", 2, "TLS 1.2 has no verifiable credentials"),
        ("server --accept 0 --did hub --vc hub.vc --tls1-2", 2, "TLS 1.2 has no verifiable credentials"),
        ("server --accept 0 --did hub --tls1-2", 2, "--did: TLS 1.2 has no verifiable credentials or DIDs"),
        ("client localhost:1 --peers trusted --tls1-2", 2, "--peers: TLS 1.2 has no verifiable"),
    ] {
        let line = place.dunlin_fails(arguments, status);
        assert!(line.contains(told), "{arguments}: {line}");
    }
    let server = Server::new(&place, &format!("{HUB} --trust trusted"));
    assert!(
        server.warnings.contains("--vc-issuers: the server requests no client certificates"),
        "{}",
        server.warnings
    );
}
