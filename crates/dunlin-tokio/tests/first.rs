//! A DTLS client whose server has several addresses. Some of them do not answer.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use common::{profile, psk_client, psk_server};
use dunlin::ClientConfig;
use dunlin::auth::Psk;
use dunlin::wire::ContentType;
use dunlin_tests::localhost;
use dunlin_tokio::{
    AttemptError, DtlsAssociation, DtlsAttempt, DtlsEndpoint, DtlsOptions, HandshakeError, connect_first,
};
use tokio::net::UdpSocket;
use tokio::time::{Instant, sleep};

type Won = Result<(DtlsAssociation, DtlsAttempt<SocketAddr>), AttemptError<SocketAddr, io::Error>>;

/// Connects to the first of these addresses that answers.
async fn connect(config: ClientConfig, addresses: &[SocketAddr]) -> Won {
    let open = async |context: SocketAddr| {
        let endpoint = DtlsEndpoint::bind("127.0.0.1:0".parse().unwrap()).await?;
        Ok(DtlsAttempt { endpoint, options: DtlsOptions::new(), context })
    };
    connect_first(addresses, &Arc::new(config), &localhost(), open).await
}

/// A server at this address, which completes every handshake.
async fn serve(listen: &str) -> SocketAddr {
    let server = DtlsEndpoint::bind(listen.parse().unwrap()).await.unwrap();
    server.set_server(Some(Arc::new(psk_server())));
    let address = server.local_addr();
    tokio::spawn(async move {
        loop {
            let incoming = server.accept().await;
            tokio::spawn(async move {
                let Ok(association) = incoming.accept().await else { return };
                while let Ok(Some(data)) = association.recv().await {
                    association.send(&data).await.unwrap();
                }
            });
        }
    });
    address
}

/// A socket that answers nothing, and its address.
async fn silent(listen: &str) -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind(listen).await.unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// The ClientHellos that a silent socket has received, with their senders. The alert at the end of an attempt
/// has another type.
fn received(socket: &UdpSocket) -> Vec<(Vec<u8>, SocketAddr)> {
    let mut buffer = [0; 2048];
    let mut all = vec![];
    while let Ok((len, from)) = socket.try_recv_from(&mut buffer) {
        if buffer[0] == ContentType::HANDSHAKE.0 {
            all.push((buffer[..len].to_vec(), from));
        }
    }
    all
}

/// The random of a ClientHello: behind the headers of its record and message, and the version (RFC 6347
/// §4.2.2).
fn random(datagram: &[u8]) -> &[u8] {
    &datagram[13 + 12 + 2..][..32]
}

#[tokio::test]
async fn each_address_without_an_answer_gets_a_hello_of_its_own() {
    let ((first, a), (second, b)) = (silent("127.0.0.1:0").await, silent("127.0.0.2:0").await);
    let good = serve("127.0.0.3:0").await;
    let begin = Instant::now();
    let (association, attempt) = connect(psk_client(), &[a, b, good]).await.unwrap();
    assert_eq!((association.peer_address(), attempt.context), (good, good));
    assert!(begin.elapsed() >= Duration::from_secs(5), "one step for each silent address");
    association.send(b"hello").await.unwrap();
    assert_eq!(association.recv().await.unwrap().as_deref(), Some(&b"hello"[..]));
    // The first address got its ClientHello again, and the second one another ClientHello from another
    // socket.
    let to_first = received(&first);
    let to_second = received(&second);
    assert!(to_first.len() >= 2 && !to_second.is_empty());
    for (datagram, from) in &to_first {
        assert_eq!((random(datagram), *from), (random(&to_first[0].0), to_first[0].1));
    }
    assert_ne!(to_first[0].1, to_second[0].1);
    for (datagram, from) in &to_second {
        assert_eq!((random(datagram), *from), (random(&to_second[0].0), to_second[0].1));
    }
    // Neither the random nor the key share of one ClientHello is in the other one. The extension's number and
    // three lengths stand before a share (RFC 8446 §4.2.8).
    let share = |datagram: &[u8]| {
        let at = datagram.windows(2).rposition(|two| two == [0, 51]).unwrap();
        datagram[at + 10..][..32].to_vec()
    };
    let one = &to_first[0].0;
    let two = &to_second[0].0;
    for secret in [random(one).to_vec(), share(one)] {
        assert!(!two.windows(secret.len()).any(|part| part == secret));
    }
}

/// The first address answers after the second attempt has begun, at an address that does not answer at all.
#[tokio::test]
async fn a_late_answer_still_wins() {
    let good = serve("127.0.0.1:0").await;
    let (relay, late) = silent("127.0.0.1:0").await;
    let (_dead, dead) = silent("127.0.0.2:0").await;
    tokio::spawn(async move {
        let mut buffer = [0; 2048];
        let mut client = None;
        sleep(Duration::from_secs(3)).await;
        loop {
            let (len, from) = relay.recv_from(&mut buffer).await.unwrap();
            let to = if from == good { client.unwrap() } else { good };
            if from != good {
                client = Some(from);
            }
            relay.send_to(&buffer[..len], to).await.unwrap();
        }
    });
    let (_association, attempt) = connect(psk_client(), &[late, dead]).await.unwrap();
    assert_eq!(attempt.context, late);
}

#[tokio::test]
async fn the_refusal_of_a_server_ends_the_search() {
    let good = serve("127.0.0.1:0").await;
    let other = serve("127.0.0.2:0").await;
    let stranger = Arc::new(Psk::new("d1", &[8; 32]).unwrap());
    let config = ClientConfig::new(profile().build().unwrap()).with_psks(vec![stranger]);
    let failure = connect(config, &[good, other]).await.unwrap_err();
    match failure {
        AttemptError::Handshake(address, HandshakeError::Tls(_)) => assert_eq!(address, good),
        other => panic!("{other:?}"),
    }
    assert!(matches!(connect(psk_client(), &[]).await, Err(AttemptError::Nowhere)));
}
