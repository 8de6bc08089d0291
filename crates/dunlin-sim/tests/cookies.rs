//! Cookies: a server that keeps nothing before a client has proven that it receives at its address (RFC 9147
//! §5.1, RFC 6347 §4.2.1).
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use common::{App, Configs, VERSIONS, connect, exchange, sent};
use dunlin::auth::{Psk, PskTable};
use dunlin::crypto::HashAlgorithm;
use dunlin::error::Error;
use dunlin::wire::{CipherSuite, ProtocolVersion};
use dunlin::{
    Answer, ChooseRetry, ClientConfig, ClientHelloInfo, CookieKeys, DtlsConnection, Event, Now, Profile,
    PskSource, Question, RetryChoice, ServerConfig, ServerProfiles, Side,
};
use dunlin_sim::{CLIENT_ADDRESS, SERVER_ADDRESS};
use dunlin_tests::{NOW, awslc};

/// All datagrams that a connection wants to send.
fn output(connection: &mut DtlsConnection) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| connection.poll_transmit(NOW)).map(|transmit| transmit.datagram).collect()
}

/// The server's answer to one datagram of a client, by a connection that is then forgotten.
fn answer(
    server: &ServerConfig,
    from: SocketAddr,
    datagram: &[u8],
    now: Now,
) -> (DtlsConnection, Vec<Vec<u8>>) {
    let mut connection = DtlsConnection::server(&Arc::new(server.clone()), from, now);
    let _ = connection.receive(now, from, datagram);
    let output = output(&mut connection);
    (connection, output)
}

/// A client's second ClientHello, after the server has forgotten the first one.
fn second_hello(configs: &Configs) -> (DtlsConnection, Vec<u8>) {
    let mut client = configs.client();
    let [hello] = &output(&mut client)[..] else { panic!("one datagram") };
    let (_, demand) = answer(&configs.server, CLIENT_ADDRESS, hello, NOW);
    let [demand] = &demand[..] else { panic!("one datagram") };
    assert!(demand.len() < hello.len(), "{} bytes for {}", demand.len(), hello.len());
    client.receive(NOW, SERVER_ADDRESS, demand).unwrap();
    let [second] = &output(&mut client)[..] else { panic!("one datagram") };
    (client, second.clone())
}

/// One datagram gets one answer, of at most twice its length, however many ClientHellos it has.
#[test]
fn demands_one_cookie_for_each_datagram() {
    for version in VERSIONS {
        let configs = Configs::of_version(version);
        let [hello] = &output(&mut configs.client())[..] else { panic!("one datagram") };
        let (_, [one]) = (hello, &answer(&configs.server, CLIENT_ADDRESS, hello, NOW).1[..]) else {
            panic!("one answer")
        };
        // RFC 9147 §5.2: the numbers of the record and of the message.
        let numbered = |number: u8| {
            let mut hello = hello.clone();
            (hello[10], hello[18]) = (number, number);
            hello
        };
        // Several records, with equal and with increasing numbers, and several messages in one record.
        let messages: Vec<u8> = (0..3).flat_map(|number| numbered(number)[13..].to_vec()).collect();
        let length = (messages.len() as u16).to_be_bytes();
        let in_one_record = [&hello[..11], &length, &messages].concat();
        let datagrams = [
            [hello.clone(), hello.clone(), hello.clone()].concat(),
            [numbered(0), numbered(1), numbered(2)].concat(),
            [numbered(2), numbered(1), numbered(0)].concat(),
            in_one_record,
        ];
        for datagram in datagrams {
            let (_, output) = answer(&configs.server, CLIENT_ADDRESS, &datagram, NOW);
            assert_eq!(output.iter().map(Vec::len).collect::<Vec<_>>(), [one.len()]);
        }
        assert!(one.len() <= 2 * hello.len());
    }
}

#[test]
fn connects_with_a_cookie() {
    for version in VERSIONS {
        let mut pair = Configs::of_version(version).pair();
        connect(&mut pair);
        assert_eq!(pair.client.negotiated().unwrap().version, Some(version));
        let delays = pair.now.monotonic.since(NOW.monotonic).as_millis() / common::DELAY.as_millis();
        assert_eq!(delays, 6);
        exchange(&mut pair);
    }
}

#[test]
fn a_server_that_has_kept_nothing_takes_the_second_client_hello() {
    for version in VERSIONS {
        let configs = Configs::of_version(version);
        let (mut client, second) = second_hello(&configs);
        let (mut server, flight) = answer(&configs.server, CLIENT_ADDRESS, &second, NOW);
        // RFC 6347 §4.2.1, RFC 9147 §5.1: the server's first record and message continue the client's
        // numbers.
        assert_eq!(flight[0][5..11], second[5..11], "the number of the record");
        assert_eq!(flight[0][17..19], [0, 1], "the number of the message");
        complete(&mut client, &mut server, &flight);
    }
}

/// Completes a handshake after the server's flight.
fn complete(client: &mut DtlsConnection, server: &mut DtlsConnection, flight: &[Vec<u8>]) {
    flight.iter().for_each(|datagram| client.receive(NOW, SERVER_ADDRESS, datagram).unwrap());
    for _ in 0..3 {
        output(client).iter().for_each(|d| server.receive(NOW, CLIENT_ADDRESS, d).unwrap());
        output(server).iter().for_each(|d| client.receive(NOW, SERVER_ADDRESS, d).unwrap());
    }
    client.assert_connected();
    server.assert_connected();
}

/// RFC 6347 §4.2.1: a server that has kept nothing demands another cookie instead of one that is too old.
#[test]
fn a_client_returns_another_cookie_when_its_own_is_too_old() {
    let configs = Configs::of_version(ProtocolVersion::DTLS1_2);
    let mut client = configs.client();
    for (number, age) in [363, 242, 121, 0].into_iter().enumerate() {
        let [hello] = &output(&mut client)[..] else { panic!("one datagram") };
        let then = Now::from_unix_ms(NOW.unix_ms - 1000 * age);
        let (_, demand) = answer(&configs.server, CLIENT_ADDRESS, hello, then);
        let [demand] = &demand[..] else { panic!("one datagram") };
        assert_eq!((demand[13], &demand[17..19]), (3, &[0, number as u8][..]), "a HelloVerifyRequest");
        client.receive(NOW, SERVER_ADDRESS, demand).unwrap();
    }
    let [hello] = &output(&mut client)[..] else { panic!("one datagram") };
    let (mut server, flight) = answer(&configs.server, CLIENT_ADDRESS, hello, NOW);
    assert_eq!(flight[0][17..19], [0, 4], "the number of the message");
    complete(&mut client, &mut server, &flight);
}

#[test]
fn a_cookie_is_for_one_address_one_client_hello_and_a_short_time() {
    for version in VERSIONS {
        let configs = Configs::of_version(version);
        let (_, second) = second_hello(&configs);
        let accepts = |server: &ServerConfig, from: SocketAddr, hello: &[u8], now: Now| {
            let (_, output) = answer(server, from, hello, now);
            output.iter().map(Vec::len).sum::<usize>() > 3 * hello.len()
        };
        let at = |seconds: u64| Now::from_unix_ms(NOW.unix_ms + 1000 * seconds);
        let here = CLIENT_ADDRESS;
        assert!(accepts(&configs.server, here, &second, NOW));
        assert!(accepts(&configs.server, here, &second, at(120)));
        assert!(!accepts(&configs.server, here, &second, at(121)), "too old");
        // A cookie has only the low 8 bits of its time.
        assert!(!accepts(&configs.server, here, &second, at(256)), "not valid again");
        let port = SocketAddr::new(here.ip(), here.port() + 1);
        let elsewhere = SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), here.port());
        for from in [port, elsewhere] {
            assert!(!accepts(&configs.server, from, &second, NOW), "{from}");
        }
        let mut other = second.clone();
        // The random follows the headers of record and message, and the version.
        other[13 + 12 + 2] ^= 1;
        assert!(!accepts(&configs.server, here, &other, NOW), "another random");
        let keys = CookieKeys::new(&[1; 32]).unwrap();
        let server = configs.server.clone().with_cookie_keys(keys.clone());
        assert!(!accepts(&server, here, &second, NOW), "another key");
        // A server with the same keys, and one that has just replaced them.
        let configs = Configs { server, ..configs };
        let (_, second) = second_hello(&configs);
        let next = keys.replaced(&[2; 32]).unwrap();
        let later = next.replaced(&[3; 32]).unwrap();
        for (keys, expected) in [(keys, true), (next, true), (later, false)] {
            let server = configs.server.clone().with_cookie_keys(keys);
            assert_eq!(accepts(&server, here, &second, NOW), expected);
        }
    }
    assert!(matches!(CookieKeys::new(&[0; 31]), Err(Error::Misuse(_))));
}

/// A wrong cookie of DTLS 1.2 counts as none (RFC 6347 §4.2.1).
#[test]
fn a_server_demands_a_cookie_again_instead_of_a_wrong_one() {
    let configs = Configs::of_version(ProtocolVersion::DTLS1_2);
    let (_, mut second) = second_hello(&configs);
    second[13 + 12 + 2 + 32 + 1 + 1] ^= 1;
    let (server, output) = answer(&configs.server, CLIENT_ADDRESS, &second, NOW);
    assert_eq!((output.len(), output[0][13]), (1, 3), "a HelloVerifyRequest");
    assert!(server.is_handshaking());
}

/// Before the cookie, the server asks nothing, whatever it would have to ask.
#[test]
fn a_server_asks_only_after_the_cookie() {
    for version in VERSIONS {
        let mut configs = Configs::of_version(version);
        let chosen = Arc::new(configs.server.clone());
        configs.server = configs.server.with_profile_choice(true);
        let mut client = configs.client();
        let [hello] = &output(&mut client)[..] else { panic!("one datagram") };
        let (mut server, demand) = answer(&configs.server, CLIENT_ADDRESS, hello, NOW);
        assert!(server.poll_event().is_none() && demand.len() == 1);
        // The same connection, or another one, asks after the second ClientHello.
        let (_, second) = second_hello(&configs);
        let (mut server, output) = answer(&configs.server, CLIENT_ADDRESS, &second, NOW);
        let Some(Event::Question(id, Question::ChooseProfile(_))) = server.poll_event() else {
            panic!("not asked")
        };
        assert!(output.is_empty());
        server.answer(NOW, id, Answer::Profile(Some(chosen))).unwrap();
        assert!(!self::output(&mut server).is_empty());
        let mut pair = configs.pair();
        pair.run_for(common::DELAY * 4).unwrap();
        let question = std::iter::from_fn(|| pair.server.poll_event()).next();
        assert!(matches!(question, Some(Event::Question(_, Question::ChooseProfile(_)))), "{question:?}");
    }
}

/// A HelloRetryRequest fixes the cipher suite before the server looks for a PSK. The length of the client's
/// binder tells the hash.
#[test]
fn the_demand_for_a_cookie_leaves_room_for_the_psk() {
    let profile = Profile::builder(awslc()).build().unwrap();
    let key = || Psk::new("d1", &[7; 32]).unwrap();
    let client = ClientConfig::new(profile.clone()).with_psks(vec![Arc::new(key())]);
    let table = PskSource::Here(Arc::new(PskTable::from_iter([key()])));
    let mut pair = Configs::new(client, ServerConfig::psk_only(profile, table).unwrap()).cookies(true).pair();
    connect(&mut pair);
    assert!(pair.server.negotiated().unwrap().peer.is_some());
    exchange(&mut pair);
}

/// Names this suite for every ClientHello.
#[derive(Debug)]
struct Always(CipherSuite);

impl ChooseRetry for Always {
    fn choose(&self, hello: &ClientHelloInfo) -> Option<RetryChoice> {
        assert_eq!((hello.psk_hash, hello.external_psk), (Some(HashAlgorithm::Sha256), Some(0)));
        Some(RetryChoice { suite: self.0, group: None })
    }
}

/// A server of several profiles asks for one after the cookie, so any of them may have the suite of the
/// HelloRetryRequest.
#[test]
fn the_demand_for_a_cookie_leaves_room_for_the_profiles() {
    use CipherSuite as S;
    let key = || Psk::new("d1", &[7; 32]).unwrap();
    let psks = || PskSource::Here(Arc::new(PskTable::from_iter([key()])));
    let server = |name: &str, rank, suite: S| {
        let suites = awslc().cipher_suites.iter().copied().filter(|known| known.id == suite).collect();
        let profile = Profile::builder(awslc()).name(name).rank(rank).cipher_suites(suites);
        ServerConfig::psk_only(profile.build().unwrap(), psks()).unwrap()
    };
    let profiles = ServerProfiles::new(
        server("default", 3, S::TLS_AES_256_GCM_SHA384),
        vec![
            server("low", 1, S::TLS_AES_128_GCM_SHA256),
            server("middle", 2, S::TLS_CHACHA20_POLY1305_SHA256),
        ],
        1,
    );
    let profiles = profiles.unwrap();
    let client =
        ClientConfig::new(Profile::builder(awslc()).build().unwrap()).with_psks(vec![Arc::new(key())]);
    let named = |profiles: &ServerProfiles| {
        let configs = Configs::new(client.clone(), ServerConfig::clone(profiles.server())).cookies(true);
        let (_, second) = second_hello(&configs);
        let (mut server, _) = answer(&configs.server, CLIENT_ADDRESS, &second, NOW);
        match server.poll_event() {
            Some(Event::Question(_, Question::ChooseProfile(info))) => info.retried_suite,
            other => panic!("{other:?}"),
        }
    };
    // The default has no suite with the hash of the key; the others follow by rank.
    assert_eq!(named(&profiles), Some(S::TLS_CHACHA20_POLY1305_SHA256));
    for (choice, expected) in [
        (S::TLS_AES_128_GCM_SHA256, S::TLS_AES_128_GCM_SHA256),
        // No profile has it.
        (S::TLS_AES_128_CCM_SHA256, S::TLS_CHACHA20_POLY1305_SHA256),
    ] {
        assert_eq!(named(&profiles.clone().with_retry_choice(Arc::new(Always(choice)))), Some(expected));
    }
}

/// Datagrams with a forged address make the server send at most three times their bytes there.
#[test]
fn a_server_sends_little_to_a_forged_address() {
    for version in VERSIONS {
        let configs = Configs::of_version(version);
        let hello = output(&mut configs.client())[0].clone();
        let mut server = configs.server();
        let mut received = 0;
        for _ in 0..20 {
            server.receive(NOW, CLIENT_ADDRESS, &hello).unwrap();
            received += hello.len();
        }
        let sent: usize = output(&mut server).iter().map(Vec::len).sum();
        assert!(sent <= 3 * received, "{sent} bytes for {received}");
    }
}

/// The first fragment of a ClientHello with number 1 may be forged. The true first ClientHello still counts.
#[test]
fn a_forged_second_client_hello_does_not_keep_the_first_one_out() {
    for version in VERSIONS {
        let configs = Configs::of_version(version);
        let mut forged = output(&mut configs.client())[0].clone();
        // Number 1, and only the first 20 bytes of it.
        forged[18] = 1;
        forged[22..25].copy_from_slice(&[0, 0, 20]);
        forged.truncate(13 + 12 + 20);
        forged[11..13].copy_from_slice(&[0, 32]);
        let mut pair = configs.pair();
        pair.server.receive(NOW, CLIENT_ADDRESS, &forged).unwrap();
        connect(&mut pair);
        assert!(pair.now.monotonic.since(NOW.monotonic) < Duration::from_secs(1));
    }
}

/// A server without a cookie does not hold a connection for ever.
#[test]
fn gives_up_a_client_that_returns_no_cookie() {
    for version in VERSIONS {
        let configs = Configs::of_version(version);
        let mut pair = configs.pair();
        pair.run_for(common::DELAY).unwrap();
        pair.client_address = SocketAddr::new(CLIENT_ADDRESS.ip(), 1);
        pair.run().unwrap();
        assert_eq!(pair.server.error(), Some(&Error::TimedOut));
        assert_eq!(sent(&pair, Side::Server, 0).len(), 1);
    }
}
