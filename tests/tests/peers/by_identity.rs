//! Foreign clients that a server renegotiates, in TLS 1.2, to the profile of the identity that they have
//! proven.

use std::net::TcpListener;
use std::sync::Arc;

use dunlin::auth::X509Trust;
use dunlin::resume::Tickets;
use dunlin::wire::SignatureScheme;
use dunlin::{
    Answer, ClientAuth, Event, Profile, Question, ServerConfig, ServerProfiles, TlsConnection, Trust,
};
use dunlin_awslc::tls12::TLS12_CIPHER_SUITES;
use dunlin_store::RotatingTickets;
use dunlin_tests::peer::{Files, Link, Process, build_java, listen, now};
use dunlin_tests::{KeyType, Leaf, Pki, awslc};

fn pkis() -> [&'static Pki; 2] {
    [Pki::shared(KeyType::P256), Pki::shared(KeyType::P384)]
}

/// The profiles "high", the default, and "low". Each has a certificate of its own.
fn profiles(changes_certificate: bool) -> ServerProfiles {
    let tickets = Tickets::stateless(Arc::new(RotatingTickets::new(awslc()).unwrap()));
    let of = |name: &str, rank, own: &Leaf| {
        let roots = pkis().map(|pki| pki.root.clone());
        let profile = Profile::builder(awslc())
            .name(name)
            .rank(rank)
            .tls12_cipher_suites(TLS12_CIPHER_SUITES.to_vec())
            .trust(Trust { x509: Some(X509Trust::anchors(roots).unwrap()), raw_key: None })
            .credentials(vec![own.x509(&awslc())]);
        let server = ServerConfig::new(profile.build().unwrap()).unwrap().with_tickets(tickets.clone());
        let server = server.with_client_auth(ClientAuth::Required).unwrap();
        server.with_certificate_change(changes_certificate)
    };
    let [high, low] = pkis().map(|pki| &pki.server);
    ServerProfiles::new(of("high", 2, high), vec![of("low", 1, low)], 1).unwrap()
}

/// Accepts a client, up to the handshake with the profile `hinted`. The profile of the identity is `proven`.
fn accept(listener: &TcpListener, profiles: &ServerProfiles, hinted: &str, proven: &str) -> Link {
    let mut link = Link::accept(TlsConnection::server(profiles.server(), now()), listener);
    let answered = link.handshake_with(|question| match question {
        Question::ChooseProfile(hints) => {
            assert!(hints.extended_master_secret && hints.secure_renegotiation);
            Answer::Profile(profiles.get(hinted).cloned())
        }
        Question::ProfileOf(client) => {
            assert_eq!(client.identity.to_string(), "X.509 device-1");
            Answer::Profile(profiles.get(proven).cloned())
        }
        _ => panic!("an unexpected question"),
    });
    answered.unwrap_or_else(|e| panic!("{hinted} {proven}: {e}"));
    link
}

/// The profile in use, and the scheme of the server's signature, which tells which certificate it showed.
fn in_use(link: &Link) -> (String, Option<SignatureScheme>) {
    let negotiated = link.connection.negotiated().unwrap();
    (negotiated.profile.clone(), negotiated.own_signature)
}

fn is_renegotiated(event: &Event) -> bool {
    matches!(event, Event::Renegotiated)
}

/// The files of a client: its chain, its key and both roots.
fn files() -> (Files, [String; 3]) {
    let (files, [pki, other]) = (Files::default(), pkis());
    let roots = [pki.root_pem(), other.root_pem()].concat();
    let [cert, key] = [("cert.pem", pki.client.chain_pem()), ("key.pem", pki.client.key_pem())]
        .map(|(name, text)| files.write(name, text));
    let roots = files.write("roots.pem", roots);
    (files, [cert, key, roots])
}

#[test]
fn openssl_goes_up_and_down_once_and_resumes_under_its_profile() {
    const P256: Option<SignatureScheme> = Some(SignatureScheme::ECDSA_SECP256R1_SHA256);
    const P384: Option<SignatureScheme> = Some(SignatureScheme::ECDSA_SECP384R1_SHA384);
    for (hinted, proven, changes, signed) in [
        ("high", "low", false, P256),
        ("high", "low", true, P384),
        ("low", "high", false, P384),
        ("low", "high", true, P256),
    ] {
        let profiles = profiles(changes);
        let (listener, port) = listen();
        let (files, [cert, key, roots]) = files();
        let connect = format!("127.0.0.1:{port}");
        let session = files.write("session.pem", "");
        let mut args =
            vec!["s_client", "-connect", &connect, "-servername", "localhost", "-tls1_2", "-quiet"];
        args.extend(["-cert", &cert, "-cert_chain", &cert, "-key", &key, "-CAfile", &roots]);
        args.extend(["-verify_return_error", "-verify_hostname", "localhost"]);
        let mut peer = Process::client("openssl", &[&args[..], &["-sess_out", &session]].concat());
        let mut link = accept(&listener, &profiles, hinted, proven);
        if hinted == "high" {
            link.wait_for(is_renegotiated).unwrap_or_else(|e| panic!("{e} / {}", peer.errors()));
        }
        assert_eq!(in_use(&link), (proven.into(), signed));
        peer.feed(b"there".to_vec());
        assert_eq!(link.receive(5).unwrap(), b"there");
        link.send(b"back").unwrap();
        assert_eq!(peer.output_until("an answer", |o| o.len() >= 4), b"back");
        drop(link);
        drop(peer);
        // The session belongs to the second handshake.
        let mut peer = Process::client("openssl", &[&args[..], &["-sess_in", &session]].concat());
        let mut link = accept(&listener, &profiles, proven, proven);
        peer.feed(b"again".to_vec());
        assert_eq!(link.receive(5).unwrap(), b"again");
        assert!(link.connection.negotiated().unwrap().is_resumed(), "{hinted} {proven} {}", peer.errors());
        assert!(!link.events.iter().any(is_renegotiated));
    }
}

/// Java sends its data before it reads the server's request.
#[test]
fn java_goes_down_once_and_resumes_under_its_profile() {
    let classes = build_java("jsse", concat!(env!("CARGO_TARGET_TMPDIR"), "/jsse-peer"));
    for (changes, bits) in [(false, "256"), (true, "384")] {
        let profiles = profiles(changes);
        let (listener, port) = listen();
        let (_files, [cert, key, roots]) = files();
        // A short life is not worth the better compiler.
        let args = ["-XX:TieredStopAtLevel=1", "-cp", &classes, "Peer", &port, &cert, &key, &roots];
        let mut peer = Process::client("java", &args);
        peer.feed(b"first\nagain\n".to_vec());
        let mut link = accept(&listener, &profiles, "high", "low");
        assert_eq!(link.receive(6).unwrap(), b"first\n");
        link.wait_for(is_renegotiated).unwrap_or_else(|e| panic!("{e} / {}", peer.errors()));
        assert_eq!(in_use(&link).0, "low");
        link.send(b"one\n").unwrap();
        let answer = format!("one {bits}\n");
        peer.output_until("an answer", |output| output == answer.as_bytes());
        let mut link = accept(&listener, &profiles, "low", "low");
        assert!(link.connection.negotiated().unwrap().is_resumed());
        assert_eq!(link.receive(6).unwrap(), b"again\n");
        link.send(b"two\n").unwrap();
        let answer = format!("{answer}two {bits}\n");
        peer.output_until("an answer", |output| output == answer.as_bytes());
        assert!(!link.events.iter().any(is_renegotiated));
    }
}
