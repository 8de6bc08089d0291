//! DTLS on real sockets: endpoints, associations, and their ends.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{data, profile, psk_client, psk_server, tls_error, x509};
use dunlin::error::Misuse;
use dunlin::wire::{AlertDescription, HandshakeType, ProtocolVersion};
use dunlin::{
    Answer, ClientConfig, DtlsConnection, EndpointLimits, Error, Local, ProfileBuilder, PskSource, Question,
    ServerConfig, Side,
};
use dunlin_awslc::tls12::TLS12_PSK_CIPHER_SUITES;
use dunlin_tests::localhost;
#[cfg(target_os = "linux")]
use dunlin_tokio::DtlsPort;
use dunlin_tokio::{
    Answers, DtlsAssociation, DtlsEndpoint, DtlsIncoming, DtlsOptions, HandshakeError, Resumed, now,
};
use tokio::net::UdpSocket;

const ANY: &str = "127.0.0.1:0";

async fn endpoint(server: Option<ServerConfig>) -> DtlsEndpoint {
    let endpoint = DtlsEndpoint::bind(ANY.parse().unwrap()).await.unwrap();
    endpoint.set_server(server.map(Arc::new));
    endpoint
}

async fn connect(
    client: &DtlsEndpoint,
    config: ClientConfig,
    server: &DtlsEndpoint,
) -> Result<DtlsAssociation, HandshakeError> {
    client.connect(&Arc::new(config), localhost(), server.local_addr()).await
}

async fn accept(server: &DtlsEndpoint) -> Result<DtlsAssociation, HandshakeError> {
    server.accept().await.accept().await
}

/// A client and a server with a PSK, on their own sockets.
async fn pair() -> (DtlsAssociation, DtlsAssociation) {
    let client = endpoint(None).await;
    let server = endpoint(Some(psk_server())).await;
    let (client, server) = tokio::join!(connect(&client, psk_client(), &server), accept(&server));
    (client.unwrap(), server.unwrap())
}

async fn exchange(client: &DtlsAssociation, server: &DtlsAssociation) {
    for (from, to) in [(client, server), (server, client)] {
        let sent = data(from.max_data(), 3);
        from.send(&sent).await.unwrap();
        assert_eq!(to.recv().await.unwrap().unwrap(), sent);
    }
}

/// The client's last flight, with its certificate, is sent as the handshake completes. A server that wants
/// cookies keeps nothing of the first hello, so this one wants none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_all_bytes_of_the_handshake() {
    let (config, server) = x509();
    let here = endpoint(None).await;
    let there = endpoint(Some(server.with_cookies(false))).await;
    for _ in 0..20 {
        let (client, server) = tokio::join!(connect(&here, config.clone(), &there), accept(&there));
        let client = client.unwrap();
        let server = server.unwrap();
        assert_eq!(client.handshake_bytes().written, server.handshake_bytes().read);
    }
}

#[tokio::test]
async fn connects_and_closes_in_both_versions() {
    let tls12 = |builder: ProfileBuilder| {
        let suites = TLS12_PSK_CIPHER_SUITES.to_vec();
        builder.cipher_suites(vec![]).tls12_cipher_suites(suites).build().unwrap()
    };
    for version in [ProtocolVersion::DTLS1_2, ProtocolVersion::DTLS1_3] {
        let mut client = psk_client();
        let mut server = psk_server();
        if version == ProtocolVersion::DTLS1_2 {
            let psk = |_| dunlin::auth::Psk::new("d1", &common::PSK).unwrap();
            client = ClientConfig::new(tls12(profile())).with_psks(vec![Arc::new(psk(()))]);
            let table = dunlin::auth::PskTable::from_iter([psk(())]);
            server = ServerConfig::psk_only(tls12(profile()), PskSource::Here(Arc::new(table))).unwrap();
        }
        let here = endpoint(None).await;
        let there = endpoint(Some(server)).await;
        let (client, server) = tokio::join!(connect(&here, client, &there), accept(&there));
        let client = client.unwrap();
        let server = server.unwrap();
        assert_eq!((client.side(), server.side()), (Side::Client, Side::Server));
        assert_eq!((client.peer_address(), server.peer_address()), (there.local_addr(), here.local_addr()));
        assert_eq!(client.negotiated().version, Some(version));
        assert_eq!(server.negotiated().peer.as_ref().unwrap().to_string(), "PSK d1");
        let sent = client.handshake_bytes().written;
        let received = server.handshake_bytes().read;
        assert!(received > 0 && sent > received, "the server forgot the first ClientHello");
        exchange(&client, &server).await;
        let exported = |association: &DtlsAssociation| {
            let mut out = [0; 32];
            association.export(b"EXPERIMENTAL test", Some(b""), &mut out).unwrap();
            out
        };
        assert_eq!(exported(&client), exported(&server));
        client.close();
        assert_eq!(server.recv().await.unwrap(), None);
        // The other direction is still open.
        server.send(b"more").await.unwrap();
        assert_eq!(client.recv().await.unwrap().as_deref(), Some(&b"more"[..]));
        let refused = client.send(b"late").await.unwrap_err();
        assert_eq!(tls_error(&refused), &Error::Misuse(Misuse::SendClosed));
        server.close();
        assert_eq!(client.recv().await.unwrap(), None);
    }
}

#[tokio::test]
async fn serves_many_clients_from_one_socket_to_one_socket_each() {
    let (client_config, server_config) = x509();
    let server = endpoint(Some(server_config)).await;
    let serving = server.clone();
    let task = tokio::spawn(async move {
        for _ in 0..8 {
            let incoming = serving.accept().await;
            tokio::spawn(async move {
                let client = incoming.accept().await.unwrap();
                while let Some(data) = client.recv().await.unwrap() {
                    client.send(&data).await.unwrap();
                }
            });
        }
    });
    let clients = (0..8).map(|n| {
        let config = client_config.clone();
        let server = server.clone();
        tokio::spawn(async move {
            let client = connect(&endpoint(None).await, config, &server).await.unwrap();
            for m in 0..20 {
                let sent = data(100, n * 100 + m);
                client.send(&sent).await.unwrap();
                assert_eq!(client.recv().await.unwrap().unwrap(), sent);
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
    task.await.unwrap();
}

#[tokio::test]
async fn one_socket_is_client_and_server() {
    let here = endpoint(Some(psk_server())).await;
    let there = endpoint(Some(psk_server())).await;
    let third = endpoint(None).await;
    let (a, b) = tokio::join!(connect(&here, psk_client(), &there), accept(&there));
    let (c, d) = tokio::join!(connect(&third, psk_client(), &here), accept(&here));
    exchange(&a.unwrap(), &b.unwrap()).await;
    exchange(&c.unwrap(), &d.unwrap()).await;
}

#[tokio::test]
async fn two_tasks_use_one_association() {
    let (client, server) = pair().await;
    let client = Arc::new(client);
    let server = Arc::new(server);
    let echo = tokio::spawn(async move {
        while let Some(data) = server.recv().await.unwrap() {
            server.send(&data).await.unwrap();
        }
    });
    let reading = client.clone();
    let reader = tokio::spawn(async move {
        for n in 0..200 {
            assert_eq!(reading.recv().await.unwrap().unwrap(), data(50, n));
        }
    });
    for n in 0..200 {
        client.send(&data(50, n)).await.unwrap();
        tokio::task::yield_now().await;
    }
    reader.await.unwrap();
    client.close();
    echo.await.unwrap();
}

#[tokio::test]
async fn dropping_an_association_tells_the_peer() {
    let (client, server) = pair().await;
    drop(client);
    assert_eq!(server.recv().await.unwrap(), None);
}

#[tokio::test]
async fn an_association_outlives_its_endpoint() {
    let (client, server) = pair().await;
    exchange(&client, &server).await;
}

#[tokio::test]
async fn a_dropped_endpoint_frees_its_port() {
    let server = endpoint(Some(psk_server())).await;
    let address = server.local_addr();
    drop(server);
    // The task needs a moment to end.
    tokio::time::timeout(Duration::from_secs(30), async {
        while UdpSocket::bind(address).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
}

/// A client on a blocking socket, which completes a handshake and then forgets its connection without a word.
fn connect_and_forget(socket: &std::net::UdpSocket, server: SocketAddr) {
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut client = DtlsConnection::client(&Arc::new(psk_client()), localhost(), server, now()).unwrap();
    let mut buffer = [0; 2048];
    loop {
        while let Some(transmit) = client.poll_transmit(now()) {
            socket.send_to(&transmit.datagram, transmit.to).unwrap();
        }
        if !client.is_handshaking() {
            return;
        }
        let (len, from) = socket.recv_from(&mut buffer).unwrap();
        client.receive(now(), from, &buffer[..len]).unwrap();
    }
}

#[tokio::test]
async fn a_client_that_connects_again_supersedes_its_association() {
    let server = endpoint(Some(psk_server())).await;
    let address = server.local_addr();
    let client = tokio::task::spawn_blocking(move || {
        let socket = std::net::UdpSocket::bind(ANY).unwrap();
        (0..2).for_each(|_| connect_and_forget(&socket, address));
        socket
    });
    let old = accept(&server).await.unwrap();
    let new = accept(&server).await.unwrap();
    assert_eq!(old.peer_address(), new.peer_address());
    assert_eq!(old.recv().await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(old.send(b"lost").await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    drop(old);
    new.send(b"hello").await.unwrap();
    assert_eq!(server.associations(), 1);
    client.await.unwrap();
}

#[tokio::test]
async fn refuses_a_second_association_with_an_address() {
    let client = endpoint(None).await;
    let server = endpoint(Some(psk_server())).await;
    let (first, second) = tokio::join!(connect(&client, psk_client(), &server), accept(&server));
    let again = connect(&client, psk_client(), &server).await.map(drop);
    assert!(matches!(again, Err(HandshakeError::Tls(Error::Misuse(Misuse::AddressInUse)))), "{again:?}");
    exchange(&first.unwrap(), &second.unwrap()).await;
}

#[tokio::test]
async fn a_failed_handshake_reports_its_error_to_both_sides() {
    let server = endpoint(Some(psk_server())).await;
    let psk = dunlin::auth::Psk::new("d1", &[8; 32]).unwrap();
    let wrong = ClientConfig::new(profile().build().unwrap()).with_psks(vec![Arc::new(psk)]);
    // The network does not protect the alert, so the client waits for a better answer first.
    let client = endpoint(None).await;
    let accepted = accept(&server);
    let (failed, accepted) = tokio::join!(connect(&client, wrong, &server), accepted);
    let alert = Error::AlertReceived(AlertDescription::DECRYPT_ERROR);
    assert!(matches!(&failed, Err(HandshakeError::Tls(e)) if *e == alert), "{failed:?}");
    assert!(matches!(accepted, Err(HandshakeError::Tls(Error::PeerMisbehaved(_)))), "{accepted:?}");
    // The client has repeated its ClientHello before it believed the alert. The server keeps nothing of it.
    assert_eq!((client.associations(), server.associations()), (0, 0));
    assert!(server.discarded().failed > 1);
}

#[tokio::test]
async fn a_handshake_without_an_answer_ends_in_time() {
    let silent = UdpSocket::bind(ANY).await.unwrap();
    let client = endpoint(None).await;
    let timeout = Duration::from_millis(20);
    let options = DtlsOptions::new().with_timeout(timeout);
    let peer = silent.local_addr().unwrap();
    let failed = client.connect_with(&Arc::new(psk_client()), localhost(), peer, &options).await;
    assert!(matches!(failed, Err(HandshakeError::Timeout(t)) if t == timeout), "{failed:?}");
    assert_eq!(client.associations(), 0);
}

#[tokio::test]
async fn a_connected_socket_reports_a_port_without_a_program() {
    let gone = UdpSocket::bind(ANY).await.unwrap().local_addr().unwrap();
    let socket = UdpSocket::bind(ANY).await.unwrap();
    socket.connect(gone).await.unwrap();
    let client = DtlsEndpoint::new(socket, EndpointLimits::default()).unwrap();
    let failed = client.connect(&Arc::new(psk_client()), localhost(), gone).await;
    assert!(
        matches!(&failed, Err(HandshakeError::Io(e)) if e.kind() == ErrorKind::ConnectionRefused),
        "{failed:?}"
    );
}

/// The network's message belongs to the address of the connected socket, not to every handshake.
#[tokio::test]
async fn a_refusal_ends_only_the_handshakes_with_its_address() {
    let gone = UdpSocket::bind(ANY).await.unwrap().local_addr().unwrap();
    let silent = UdpSocket::bind(ANY).await.unwrap();
    let socket = UdpSocket::bind(ANY).await.unwrap();
    socket.connect(gone).await.unwrap();
    let client = DtlsEndpoint::new(socket, EndpointLimits::default()).unwrap();
    let config = Arc::new(psk_client());
    let options = DtlsOptions::new().with_timeout(Duration::from_millis(500));
    let other = client.connect_with(&config, localhost(), silent.local_addr().unwrap(), &options);
    let (other, refused) = tokio::join!(other, client.connect(&config, localhost(), gone));
    assert!(
        matches!(&refused, Err(HandshakeError::Io(e)) if e.kind() == ErrorKind::ConnectionRefused),
        "{refused:?}"
    );
    assert!(matches!(other, Err(HandshakeError::Timeout(_))), "{other:?}");
}

/// A waker of the application that uses the endpoint.
struct Uses(DtlsEndpoint, std::sync::mpsc::Sender<usize>);

impl std::task::Wake for Uses {
    fn wake(self: Arc<Self>) {
        self.1.send(self.0.associations()).unwrap();
    }
}

/// A waker can run code of the application, which may use the endpoint: a lock would never be released.
#[test]
fn a_waker_may_use_the_endpoint() {
    let (woken, wait) = std::sync::mpsc::channel();
    // A thread of its own, which a failure leaves behind.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let gone = UdpSocket::bind(ANY).await.unwrap().local_addr().unwrap();
            let socket = UdpSocket::bind(ANY).await.unwrap();
            socket.connect(gone).await.unwrap();
            let client = DtlsEndpoint::new(socket, EndpointLimits::default()).unwrap();
            let waker = Arc::new(Uses(client.clone(), woken)).into();
            let config = Arc::new(psk_client());
            let mut connecting = std::pin::pin!(client.connect(&config, localhost(), gone));
            std::future::poll_fn(|cx| {
                // Only the waker of the application learns of the refusal.
                cx.waker().wake_by_ref();
                connecting.as_mut().poll(&mut std::task::Context::from_waker(&waker)).map(drop)
            })
            .await;
        });
    });
    assert_eq!(wait.recv_timeout(Duration::from_secs(30)), Ok(1));
}

/// Finds the PSK after the others have acted.
struct Slow;

impl Answers for Slow {
    async fn answer(&self, question: Question) -> Answer {
        tokio::task::yield_now().await;
        match question {
            Question::FindPsk { .. } => {
                Answer::Psk(Some(Arc::new(dunlin::auth::Psk::new("d1", &common::PSK).unwrap())))
            }
            _ => Answer::Failed,
        }
    }
}

#[tokio::test]
async fn answers_questions_and_reports_messages() {
    let asking = ServerConfig::psk_only(profile().build().unwrap(), PskSource::Ask).unwrap();
    let server = endpoint(Some(asking.clone())).await;
    let client = endpoint(None).await;
    let noted = Arc::new(Mutex::new(Vec::new()));
    let noting = noted.clone();
    let options = DtlsOptions::new()
        .with_answers(Slow)
        .with_on_message(move |message| noting.lock().unwrap().push((message.sent, message.typ)));
    let accepting = async { server.accept().await.accept_with(&options).await };
    let (connected, accepted) = tokio::join!(connect(&client, psk_client(), &server), accepting);
    exchange(&connected.unwrap(), &accepted.unwrap()).await;
    let noted = noted.lock().unwrap();
    assert_eq!(noted[0], (false, HandshakeType::CLIENT_HELLO), "{noted:?}");
    assert!(noted.contains(&(true, HandshakeType::SERVER_HELLO)), "{noted:?}");
    assert!(noted.contains(&(false, HandshakeType::FINISHED)), "{noted:?}");
}

#[tokio::test]
async fn chooses_a_profile_for_each_client() {
    let server = endpoint(Some(psk_server().with_profile_choice(true))).await;
    let chosen = Arc::new(psk_server());
    for accepts in [true, false] {
        let client = endpoint(None).await;
        let chosen = chosen.clone();
        let options = DtlsOptions::new().with_profiles(move |hello| {
            assert!(!hello.cipher_suites.is_empty());
            accepts.then(|| chosen.clone())
        });
        let accepting = async { server.accept().await.accept_with(&options).await };
        let (connected, accepted) = tokio::join!(connect(&client, psk_client(), &server), accepting);
        assert_eq!((connected.is_ok(), accepted.is_ok()), (accepts, accepts));
    }
}

#[tokio::test]
async fn updates_keys_under_load() {
    let (client, server) = pair().await;
    for n in 0..20 {
        exchange(&client, &server).await;
        // The peer acknowledges each update before the next one.
        match client.update_keys(n % 2 == 0) {
            Ok(()) => {}
            Err(e) => assert_eq!(tls_error(&e), &Error::Misuse(Misuse::KeyUpdateWaits)),
        }
    }
    exchange(&client, &server).await;
}

#[tokio::test]
async fn rejects_data_that_does_not_fit() {
    let (client, server) = pair().await;
    let max = client.max_data();
    let refused = client.send(&vec![0; max + 1]).await.unwrap_err();
    assert_eq!(tls_error(&refused), &Error::Misuse(Misuse::DataTooLong { max }));
    exchange(&client, &server).await;
}

/// A client that the application does not accept does not hold up the others, and a refused one hears of it.
#[tokio::test]
async fn a_client_that_is_not_accepted_gets_a_close_notify() {
    let server = endpoint(Some(psk_server())).await;
    let client = endpoint(None).await;
    let refusing = async { drop::<DtlsIncoming>(server.accept().await) };
    let (connected, ()) = tokio::join!(connect(&client, psk_client(), &server), refusing);
    match connected {
        Ok(association) => assert!(!matches!(association.recv().await, Ok(Some(_)))),
        Err(e) => assert!(matches!(e, HandshakeError::Tls(Error::AlertReceived(_))), "{e}"),
    }
    assert_eq!(server.associations(), 0);
}

/// Waits until the task of an endpoint has closed its socket.
async fn bind_again(address: SocketAddr) -> UdpSocket {
    loop {
        match UdpSocket::bind(address).await {
            Ok(socket) => return socket,
            Err(e) => assert_eq!(e.kind(), ErrorKind::AddrInUse),
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn associations_continue_on_another_endpoint() {
    let (client_config, server_config) = x509();
    let there = endpoint(Some(server_config.clone())).await;
    let mut pairs = Vec::new();
    for _ in 0..3 {
        let here = endpoint(None).await;
        let (client, server) = tokio::join!(connect(&here, client_config.clone(), &there), accept(&there));
        let client = client.unwrap();
        let server = server.unwrap();
        exchange(&client, &server).await;
        pairs.push((here, client, server));
    }
    let address = there.local_addr();
    // Its message gets lost, and is not frozen with it.
    there.set_loss(|| true);
    pairs[2].2.update_keys(false).unwrap();
    let mut stored = Vec::new();
    let store = |bytes: &[u8]| {
        stored.push(bytes.to_vec());
        Ok(())
    };
    let frozen = there.freeze(store).unwrap();
    assert_eq!(frozen.associations, 2);
    assert_eq!(frozen.left, [(pairs[2].0.local_addr(), Error::Misuse(Misuse::FlightWaits))]);
    for refused in [pairs[0].2.recv().await.map(drop), pairs[0].2.send(b"late").await] {
        assert_eq!(tls_error(&refused.unwrap_err()), &Error::Misuse(Misuse::Frozen));
    }
    assert_eq!(there.freeze(|_| panic!("all that can be frozen is")).unwrap().associations, 0);
    let mut clients = Vec::new();
    for (_, client, server) in pairs {
        drop(server);
        clients.push(client);
    }
    drop(there);
    let socket = bind_again(address).await;
    // The socket keeps what comes before the endpoint.
    clients[1].send(b"early").await.unwrap();
    let config = Arc::new(server_config);
    let thawed = stored.iter().map(|bytes| {
        let mut connection = DtlsConnection::thaw_server(&config, bytes, now()).unwrap();
        // As if it had sent over the eighth socket of the other process.
        connection.set_local(Local(7));
        connection
    });
    let Resumed { endpoint, associations, refused, .. } =
        DtlsEndpoint::resume(socket, EndpointLimits::default(), thawed).unwrap();
    assert_eq!((associations.len(), refused.len(), endpoint.associations()), (2, 0, 2));
    assert_eq!(associations[1].recv().await.unwrap().as_deref(), Some(&b"early"[..]));
    // The server has not heard this client yet.
    associations[0].send(b"first").await.unwrap();
    assert_eq!(clients[0].recv().await.unwrap().as_deref(), Some(&b"first"[..]));
    for (client, server) in clients.iter().zip(&associations) {
        assert!(server.negotiated().peer.as_ref().unwrap().to_string().contains("device-1"));
        exchange(client, server).await;
    }
    endpoint.set_server(Some(config));
    let other = self::endpoint(None).await;
    let (client, server) = tokio::join!(connect(&other, client_config, &endpoint), accept(&endpoint));
    exchange(&client.unwrap(), &server.unwrap()).await;
    drop(associations);
    assert_eq!(clients[0].recv().await.unwrap(), None, "close_notify");
}

/// One association more than the endpoint takes, and several hundred: their clients should hear of it.
#[tokio::test]
async fn associations_that_a_resumed_endpoint_refuses_get_a_close_notify() {
    let (client_config, server_config) = x509();
    let there = endpoint(Some(server_config.clone())).await;
    let here = endpoint(None).await;
    let (client, server) = tokio::join!(connect(&here, client_config, &there), accept(&there));
    let client = client.unwrap();
    let server = server.unwrap();
    exchange(&client, &server).await;
    let mut stored = Vec::new();
    let store = |bytes: &[u8]| {
        stored.extend_from_slice(bytes);
        Ok(())
    };
    there.freeze(store).unwrap();
    let config = Arc::new(server_config);
    // No association may be thawed twice, but here only the number of datagrams counts.
    let thawed = (0..600).map(|_| DtlsConnection::thaw_server(&config, &stored, now()).unwrap());
    let mut limits = EndpointLimits::default();
    limits.associations = 0;
    let socket = UdpSocket::bind(ANY).await.unwrap();
    socket.writable().await.unwrap();
    let resumed = DtlsEndpoint::resume(socket, limits, thawed).unwrap();
    assert_eq!((resumed.associations.len(), resumed.refused.len()), (0, 600));
    assert_eq!(resumed.endpoint.discarded().output, 0, "every close_notify has left");
}

#[tokio::test]
async fn an_endpoint_that_was_frozen_accepts_no_client() {
    let (client_config, server_config) = x509();
    let there = endpoint(Some(server_config.clone())).await;
    assert_eq!(there.freeze(|_| panic!("there is no association")).unwrap().associations, 0);
    there.set_server(Some(Arc::new(server_config)));
    let here = endpoint(None).await;
    let refused = async {
        while there.discarded().unwanted == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        connected = connect(&here, client_config, &there) => panic!("{connected:?}"),
        () = refused => {}
    }
    assert_eq!(there.associations(), 0);
}

/// The kernel chooses the socket by the address, and the connection ID names the endpoint.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_client_that_moves_keeps_its_association_at_any_socket_of_a_port() {
    const NODE: [u8; 2] = [0xd0, 0x11];
    let (client_config, server_config) = x509();
    let random = dunlin_tests::awslc().random.clone();
    let port = DtlsPort::bind(ANY.parse().unwrap(), 4, NODE.len(), EndpointLimits::default()).unwrap();
    port.set_server(Some(&server_config), &NODE, &random).unwrap();
    assert!(port.set_server(Some(&server_config), &[0xd0], &random).is_err());
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    for endpoint in port.endpoints() {
        let endpoint = endpoint.clone();
        let sender = sender.clone();
        tokio::spawn(async move {
            let server = endpoint.accept().await.accept().await.unwrap();
            while let Some(data) = server.recv().await.unwrap() {
                sender.send(data).unwrap();
            }
        });
    }
    let ids = Arc::new(dunlin::NodeIds::new(&[], 0, random).unwrap());
    let config = Arc::new(client_config.with_connection_ids(ids));
    let address = port.local_addr().unwrap();
    let mut client = DtlsConnection::client(&config, localhost(), address, now()).unwrap();
    let socket = UdpSocket::bind(ANY).await.unwrap();
    let mut buffer = [0; 2048];
    loop {
        while let Some(transmit) = client.poll_transmit(now()) {
            socket.send_to(&transmit.datagram, address).await.unwrap();
        }
        if !client.is_handshaking() {
            break;
        }
        let (len, from) = socket.recv_from(&mut buffer).await.unwrap();
        client.receive(now(), from, &buffer[..len]).unwrap();
    }
    let id = client.peer_connection_id().to_vec();
    assert!(id.len() == 11 && id.starts_with(&NODE) && id[2] < 4, "{id:?}");
    for n in 0..32 {
        client.send(&[n]).unwrap();
        let sent = client.poll_transmit(now()).unwrap().datagram;
        UdpSocket::bind(ANY).await.unwrap().send_to(&sent, address).await.unwrap();
        let data = tokio::time::timeout(Duration::from_secs(60), received.recv()).await;
        assert_eq!(data.unwrap().unwrap(), [n]);
    }
    assert!(port.handed_over() > 0, "of 32 addresses, all led to the same one of 4 sockets");
}

/// The associations of a port with four sockets continue at one with three: those with a connection ID from
/// any address.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_associations_of_a_port_continue_at_another() {
    let (client_config, server_config) = x509();
    let random = dunlin_tests::awslc().random.clone();
    let port = DtlsPort::bind(ANY.parse().unwrap(), 4, 0, EndpointLimits::default()).unwrap();
    port.set_server(Some(&server_config), &[], &random).unwrap();
    let address = port.local_addr().unwrap();
    let accepting = port.endpoints().iter().map(|endpoint| {
        let endpoint = endpoint.clone();
        tokio::spawn(async move {
            let mut served = Vec::new();
            loop {
                let server = endpoint.accept().await.accept().await.unwrap();
                server.send(b"hello").await.unwrap();
                served.push(server);
            }
        })
    });
    let accepting: Vec<tokio::task::JoinHandle<()>> = accepting.collect();
    let ids = Arc::new(dunlin::NodeIds::new(&[], 0, random.clone()).unwrap());
    let mut clients = Vec::new();
    for n in 0..12 {
        let config = client_config.clone();
        let config = if n % 2 == 0 { config } else { config.with_connection_ids(ids.clone()) };
        let here = endpoint(None).await;
        let client = here.connect(&Arc::new(config), localhost(), address).await.unwrap();
        assert_eq!(client.recv().await.unwrap().as_deref(), Some(&b"hello"[..]));
        clients.push((here, client));
    }
    let mut stored = Vec::new();
    let mut store = |bytes: &[u8]| {
        stored.push(bytes.to_vec());
        Ok(())
    };
    for endpoint in port.endpoints() {
        // Clients may not have acknowledged the last messages yet.
        while !endpoint.freeze(&mut store).unwrap().left.is_empty() {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(stored.len(), 12);
    drop(port);
    for task in accepting {
        task.abort();
        let _ = task.await;
    }
    drop(bind_again(address).await);
    let config = Arc::new(server_config.clone());
    let thawed = stored.iter().map(|bytes| DtlsConnection::thaw_server(&config, bytes, now()).unwrap());
    let resumed = DtlsPort::resume(address, 3, &[], &random, EndpointLimits::default(), thawed).unwrap();
    assert_eq!((resumed.associations.len(), resumed.refused.len()), (12, 0));
    for server in resumed.associations {
        tokio::spawn(async move {
            while let Some(data) = server.recv().await.unwrap() {
                server.send(&data).await.unwrap();
            }
        });
    }
    for (n, (_, client)) in clients.iter().enumerate() {
        client.send(&[n as u8]).await.unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(60), client.recv()).await;
        assert_eq!(answer.unwrap().unwrap().as_deref(), Some(&[n as u8][..]));
    }
    assert!(resumed.port.handed_over() > 0, "of 12 addresses, all led to the right one of 3 sockets");
}
