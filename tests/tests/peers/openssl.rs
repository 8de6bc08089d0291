//! OpenSSL's command line as the peer, in both roles.

use dunlin::wire::NamedGroup;
use dunlin::{ClientConfig, EarlyDataOutcome, EarlyDataProtocols, Event, TlsConnection};
use dunlin_tests::ends::{
    KEYS, MIB, PSK, client, client_profile, client_with, psk_client, psk_server, server, server_config_with,
    server_profile, with_sessions,
};
use dunlin_tests::peer::{Files, Link, Process, Server, listen, now, text};
use dunlin_tests::{KeyType, Pki, ends, full_awslc};

/// A server with X.509 of this kind that requires a client certificate.
fn s_server(typ: KeyType, more: &[&str]) -> Server {
    let pki = Pki::shared(typ);
    let files = Files::default();
    let cert = files.write("cert.pem", pki.server.chain_pem());
    let key = files.write("key.pem", pki.server.key_pem());
    let root = files.write("root.pem", pki.root_pem());
    let mut args =
        vec!["s_server", "-accept", "127.0.0.1:4433", "-tls1_3", "-cert", &cert, "-cert_chain", &cert];
    args.extend(["-key", &key, "-CAfile", &root, "-Verify", "3", "-verify_return_error"]);
    args.extend(more);
    Server::start(files, "openssl", &args)
}

fn s_client(typ: KeyType, port: &str, more: &[&str]) -> (Process, Files) {
    let pki = Pki::shared(typ);
    let files = Files::default();
    let cert = files.write("cert.pem", pki.client.chain_pem());
    let key = files.write("key.pem", pki.client.key_pem());
    let root = files.write("root.pem", pki.root_pem());
    let connect = format!("127.0.0.1:{port}");
    let mut args = vec!["s_client", "-connect", &connect, "-servername", "localhost", "-tls1_3"];
    args.extend([
        "-cert",
        &cert,
        "-cert_chain",
        &cert,
        "-key",
        &key,
        "-CAfile",
        &root,
        "-verify_return_error",
    ]);
    args.extend(["-verify_hostname", "localhost"]);
    args.extend(more);
    (Process::client("openssl", &args), files)
}

#[test]
fn exchanges_a_mebibyte_with_its_server_under_mutual_x509() {
    for typ in KEYS.into_iter().chain([KeyType::P521, KeyType::RsaPss2048]) {
        let mut peer = s_server(typ, &["-quiet"]);
        let mut link = Link::to_server(client(typ, |c| c), &peer);
        link.handshake().unwrap_or_else(|e| panic!("{typ:?}: {e}"));
        let data = text(MIB);
        link.send(&data).unwrap();
        assert!(peer.process.output_until("mebibyte", |o| o.len() >= MIB) == data);
        peer.process.feed(data.clone());
        assert!(link.receive(MIB).unwrap() == data);
        link.close();
    }
}

#[test]
fn exchanges_a_mebibyte_with_its_client_under_mutual_x509() {
    for typ in KEYS.into_iter().chain([KeyType::P521, KeyType::RsaPss2048]) {
        let (listener, port) = listen();
        let (mut peer, _files) = s_client(typ, &port, &["-quiet"]);
        let mut link = Link::accept(server(typ, |s| s), &listener);
        link.handshake().unwrap_or_else(|e| panic!("{typ:?}: {e} / {}", peer.errors()));
        assert_eq!(
            link.connection.negotiated().unwrap().peer.as_ref().unwrap().to_string(),
            "X.509 device-1"
        );
        let data = text(MIB);
        peer.feed(data.clone());
        assert!(link.receive(MIB).unwrap() == data);
        link.send(&data).unwrap();
        assert!(peer.output_until("mebibyte", |o| o.len() >= MIB) == data);
    }
}

#[test]
fn connects_with_every_group_in_both_roles() {
    let groups = [
        ("X25519", NamedGroup::X25519),
        ("P-256", NamedGroup::SECP256R1),
        ("P-384", NamedGroup::SECP384R1),
        ("P-521", NamedGroup::SECP521R1),
    ];
    for (name, group) in groups {
        let all = || full_awslc().groups.clone();
        let peer = s_server(KeyType::P384, &["-quiet", "-groups", name]);
        let ours = client_with(client_profile(KeyType::P384).groups(all()), |c| {
            c.with_key_shares(vec![group]).unwrap()
        });
        let mut ours = Link::to_server(ours, &peer);
        ours.handshake().unwrap_or_else(|e| panic!("{name}: {e}"));

        let (listener, port) = listen();
        let (peer, _files) = s_client(KeyType::P384, &port, &["-quiet", "-groups", name]);
        let config = server_config_with(server_profile(KeyType::P384).groups(all()), |s| s);
        let mut theirs = Link::accept(TlsConnection::server(&config, now()), &listener);
        theirs.handshake().unwrap_or_else(|e| panic!("{name}: {e} / {}", peer.errors()));

        for link in [ours, theirs] {
            let negotiated = link.connection.negotiated().unwrap();
            assert_eq!((negotiated.group, negotiated.retried), (Some(group), false));
        }
    }
}

#[test]
fn accepts_a_hello_retry_request_of_its_server() {
    let peer = s_server(KeyType::P256, &["-quiet", "-groups", "P-384"]);
    let mut link = Link::to_server(client(KeyType::P256, |c| c), &peer);
    link.handshake().unwrap();
    assert!(link.connection.negotiated().unwrap().retried);
}

#[test]
fn returns_a_cookie_to_its_server() {
    let peer = s_server(KeyType::P256, &["-quiet", "-stateless"]);
    // OpenSSL's stateless server ends the connection at a ChangeCipherSpec before the second ClientHello. RFC
    // 8446 §D.4 requires it to ignore that record.
    let mut link = Link::to_server(ends::plain_client(KeyType::P256), &peer);
    link.handshake().unwrap();
    assert!(link.connection.negotiated().unwrap().retried);
}

#[test]
fn sends_a_hello_retry_request_and_cookie_to_its_client() {
    for cookies in [false, true] {
        let (listener, port) = listen();
        // The client's first share is of a group that this server does not support.
        let (peer, _files) = s_client(KeyType::P256, &port, &["-quiet", "-groups", "P-521:P-256"]);
        let mut link = Link::accept(server(KeyType::P256, |s| s.with_cookies(cookies)), &listener);
        link.handshake().unwrap_or_else(|e| panic!("{e} / {}", peer.errors()));
        assert!(link.connection.negotiated().unwrap().retried);
    }
}

#[test]
fn resumes_with_its_server() {
    for more in [&["-quiet"][..], &["-quiet", "-no_ticket"]] {
        let peer = s_server(KeyType::P256, more);
        let sessions = with_sessions();
        for resumed in [false, true, true] {
            let mut link =
                Link::to_server(client(KeyType::P256, |c| c.with_sessions(sessions.clone())), &peer);
            link.handshake().unwrap();
            let negotiated = link.connection.negotiated().unwrap();
            assert_eq!(negotiated.is_resumed(), resumed, "{more:?}");
            assert_eq!(negotiated.peer.as_ref().unwrap().to_string(), "X.509 localhost");
            link.wait_for(|e| matches!(e, Event::TicketReceived)).unwrap();
            link.close();
        }
    }
}

#[test]
fn resumes_with_its_client() {
    for tickets in ends::tickets() {
        let (listener, port) = listen();
        let config = ends::server_config(KeyType::P256, |s| s.with_tickets(tickets.clone()));
        let kept = Files::default();
        let session = kept.path("session.pem");
        for resumed in [false, true] {
            let file = if resumed { "-sess_in" } else { "-sess_out" };
            let (mut peer, _files) = s_client(KeyType::P256, &port, &[file, &session]);
            let connection = TlsConnection::server(&config, now());
            let mut link = Link::accept(connection, &listener);
            link.handshake().unwrap_or_else(|e| panic!("{e} / {}", peer.errors()));
            assert_eq!(link.connection.negotiated().unwrap().is_resumed(), resumed);
            assert_eq!(
                link.connection.negotiated().unwrap().peer.as_ref().unwrap().to_string(),
                "X.509 device-1"
            );
            // OpenSSL writes the file when it receives the ticket. Then the test tells it to end.
            if !resumed {
                ends::wait_for_file(&session);
            }
            peer.type_line("Q");
            link.wait_for(|e| matches!(e, Event::PeerClosed)).unwrap();
        }
    }
}

#[test]
fn sends_early_data_to_its_server() {
    let mut peer = s_server(KeyType::P256, &["-early_data"]);
    let sessions = with_sessions();
    let config =
        |c: ClientConfig| c.with_sessions(sessions.clone()).with_early_data(EarlyDataProtocols::unnamed());
    for number in 0..3 {
        let mut connection = client(KeyType::P256, config);
        let request = format!("early request {number}\n");
        match connection.early_data() {
            Some(mut early) => assert_eq!(early.send(request.as_bytes()), Ok(request.len())),
            None => assert_eq!(number, 0),
        }
        let mut link = Link::to_server(connection, &peer);
        link.handshake().unwrap();
        if number > 0 {
            assert_eq!(link.connection.negotiated().unwrap().early_data, EarlyDataOutcome::Accepted);
            let came = |o: &[u8]| o.windows(request.len()).any(|w| w == request.as_bytes());
            peer.process.output_until("early data", came);
        }
        link.wait_for(|e| matches!(e, Event::TicketReceived)).unwrap();
        link.close();
    }
}

#[test]
fn accepts_early_data_of_its_client() {
    for tickets in ends::tickets() {
        let (listener, port) = listen();
        let config = ends::server_config(KeyType::P256, |s| {
            let any = EarlyDataProtocols::unnamed();
            s.with_tickets(tickets).with_early_data(any, 1000).unwrap()
        });
        let kept = Files::default();
        let session = kept.path("session.pem");
        let early = kept.write("early", "early request");
        // The last connection offers a used session.
        for outcome in [None, Some(true), Some(false)] {
            let more = match outcome {
                None => vec!["-sess_out", &session],
                Some(_) => vec!["-sess_in", &session, "-early_data", &early],
            };
            let (mut peer, _files) = s_client(KeyType::P256, &port, &more);
            let connection = TlsConnection::server(&config, now());
            let mut link = Link::accept(connection, &listener);
            if outcome == Some(true) {
                assert_eq!(link.receive_early(13).unwrap(), b"early request");
                link.connection.early_data().unwrap().send(b"early answer").unwrap();
            }
            link.handshake().unwrap_or_else(|e| panic!("{e} / {}", peer.errors()));
            match outcome {
                None => ends::wait_for_file(&session),
                Some(accepted) => {
                    let negotiated = link.connection.negotiated().unwrap();
                    assert_eq!(negotiated.early_data == EarlyDataOutcome::Accepted, accepted);
                    if accepted {
                        peer.output_until("answer", |o| o.windows(12).any(|w| w == b"early answer"));
                    } else {
                        let told = b"Early data was rejected";
                        peer.output_until("refusal", |o| o.windows(told.len()).any(|w| w == told));
                    }
                }
            }
            peer.type_line("Q");
            link.wait_for(|e| matches!(e, Event::PeerClosed)).unwrap();
        }
    }
}

#[test]
fn connects_to_its_server_with_an_external_psk() {
    for mode in ["psk_dhe_ke", "psk_ke"] {
        let mut args = vec!["s_server", "-accept", "127.0.0.1:4433", "-tls1_3", "-nocert", "-quiet"];
        args.extend(["-psk_identity", "device-1", "-psk", PSK, "-ciphersuites", "TLS_AES_128_GCM_SHA256"]);
        if mode == "psk_ke" {
            args.push("-allow_no_dhe_kex");
        }
        let mut peer = Server::start(Files::default(), "openssl", &args);
        let mut link = Link::to_server(psk_client(mode), &peer);
        link.handshake().unwrap_or_else(|e| panic!("{mode}: {e} / {}", peer.process.errors()));
        assert_eq!(link.connection.negotiated().unwrap().group.is_none(), mode == "psk_ke");
        link.send(b"hello\n").unwrap();
        assert_eq!(peer.process.output_until("hello", |o| o.len() >= 6), b"hello\n");
    }
}

#[test]
fn connects_to_its_client_with_an_external_psk() {
    for mode in ["psk_dhe_ke", "psk_ke"] {
        let (listener, port) = listen();
        let connect = format!("127.0.0.1:{port}");
        let mut args = vec!["s_client", "-connect", &connect, "-tls1_3", "-quiet"];
        args.extend(["-psk_identity", "device-1", "-psk", PSK, "-ciphersuites", "TLS_AES_128_GCM_SHA256"]);
        if mode == "psk_ke" {
            args.push("-allow_no_dhe_kex");
        }
        let mut peer = Process::client("openssl", &args);
        let mut link = Link::accept(psk_server(mode), &listener);
        link.handshake().unwrap_or_else(|e| panic!("{mode}: {e} / {}", peer.errors()));
        assert_eq!(link.connection.negotiated().unwrap().peer.as_ref().unwrap().to_string(), "PSK device-1");
        link.send(b"hello\n").unwrap();
        peer.output_until("hello", |o| o.ends_with(b"hello\n"));
    }
}

#[test]
fn updates_keys_with_its_server() {
    let mut peer = s_server(KeyType::P256, &[]);
    let mut link = Link::to_server(client(KeyType::P256, |c| c), &peer);
    link.handshake().unwrap();
    // The client's update, with a request for an answer.
    link.connection.update_keys(true).unwrap();
    link.send(b"after ours\n").unwrap();
    peer.process.output_until("data", |o| o.windows(10).any(|w| w == b"after ours"));
    // OpenSSL answers with its next data.
    peer.process.type_line("an answer");
    assert_eq!(link.receive(10).unwrap(), b"an answer\n");
    link.wait_for(|e| matches!(e, Event::PeerUpdatedKeys)).unwrap();
    link.events.clear();
    // OpenSSL's update, with a request for an answer.
    peer.process.type_line("K");
    link.wait_for(|e| matches!(e, Event::PeerUpdatedKeys)).unwrap();
    peer.process.type_line("after its own");
    assert_eq!(link.receive(14).unwrap(), b"after its own\n");
    link.send(b"and back\n").unwrap();
    peer.process.output_until("data", |o| o.windows(8).any(|w| w == b"and back"));
}

#[test]
fn updates_keys_with_its_client() {
    let (listener, port) = listen();
    let (mut peer, _files) = s_client(KeyType::P256, &port, &[]);
    let mut link = Link::accept(server(KeyType::P256, |s| s), &listener);
    link.handshake().unwrap();
    link.connection.update_keys(true).unwrap();
    link.send(b"after ours\n").unwrap();
    peer.output_until("data", |o| o.windows(10).any(|w| w == b"after ours"));
    // OpenSSL answers with its next data.
    peer.type_line("an answer");
    assert_eq!(link.receive(10).unwrap(), b"an answer\n");
    link.wait_for(|e| matches!(e, Event::PeerUpdatedKeys)).unwrap();
    link.events.clear();
    peer.type_line("K");
    link.wait_for(|e| matches!(e, Event::PeerUpdatedKeys)).unwrap();
    peer.type_line("after its own");
    assert_eq!(link.receive(14).unwrap(), b"after its own\n");
}

#[test]
fn each_side_reports_a_refusal() {
    // A client without certificate.
    let peer = s_server(KeyType::P256, &["-quiet"]);
    let mut link = Link::to_server(ends::anonymous_client(KeyType::P256), &peer);
    let refused = link.handshake().and_then(|()| link.receive(1).map(drop));
    assert_eq!(
        refused,
        Err(dunlin::Error::AlertReceived(dunlin::wire::AlertDescription::CERTIFICATE_REQUIRED))
    );
    // A server that the client does not trust.
    let (listener, port) = listen();
    let (peer, _files) = s_client(KeyType::Ed25519, &port, &["-quiet"]);
    let mut link = Link::accept(server(KeyType::P256, |s| s), &listener);
    assert_eq!(
        link.handshake(),
        Err(dunlin::Error::AlertReceived(dunlin::wire::AlertDescription::UNKNOWN_CA)),
        "{}",
        peer.errors()
    );
}
