//! TLS over virtual TCP.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin::{ClientAuth, ClientConfig, Profile, ServerConfig, Side, TlsConnection, Trust};
use dunlin_sim::{
    Application, Conditions, Delay, Fleet, Impaired, Link, Reply, Sent, Simulation, TcpOptions, TcpPair,
    TlsPeer,
};
use dunlin_tests::{KeyType, NOW, Pki, awslc, localhost};

const DELAY: Duration = Duration::from_millis(20);
const UPLOAD: usize = 100_000;
/// The rate of a slow link, in bits per second.
const RATE: u64 = 1_000_000;

type Pair<C, S> = TcpPair<TlsPeer<C>, TlsPeer<S>>;

/// The client sends a request and closes after the response. The server responds, and closes when the client
/// has closed.
fn exchange(
    options: TcpOptions,
    mut link: impl FnMut() -> Box<dyn Link>,
) -> Pair<impl Application, impl Application> {
    let say = |data: &[u8], close| Reply { data: data.to_vec(), close };
    let client = move |connection: &TlsConnection, data: &[u8]| match data {
        b"" if !connection.peer_has_closed() => say(b"hello", false),
        data => say(b"", data == b"world"),
    };
    let server = move |connection: &TlsConnection, data: &[u8]| match data {
        b"hello" => say(b"world", false),
        _ => say(b"", connection.peer_has_closed()),
    };
    pair(options, client, server, &mut link)
}

fn pair<C: Application, S: Application>(
    options: TcpOptions,
    client: C,
    server: S,
    link: &mut impl FnMut() -> Box<dyn Link>,
) -> Pair<C, S> {
    let pki = Pki::shared(KeyType::Rsa2048);
    let profile = |leaf: &dunlin_tests::Leaf| -> Profile {
        let trust = Trust { x509: Some(pki.trust()), raw_key: None };
        Profile::builder(awslc()).trust(trust).credentials(vec![leaf.x509(&awslc())]).build().unwrap()
    };
    let client_config = Arc::new(ClientConfig::new(profile(&pki.client)));
    let server_config = ServerConfig::new(profile(&pki.server)).unwrap();
    let server_config = Arc::new(server_config.with_client_auth(ClientAuth::Required).unwrap());
    let client = TlsPeer::new(TlsConnection::client(&client_config, localhost(), NOW).unwrap(), client);
    let server = TlsPeer::new(TlsConnection::server(&server_config, NOW), server);
    TcpPair::new(client, server, NOW, options, link(), link())
}

fn delay() -> Box<dyn Link> {
    Box::new(Delay(DELAY))
}

/// Runs until both sides have closed, and checks that neither has an error.
fn finish(pair: &mut Pair<impl Application, impl Application>) {
    pair.run().unwrap();
    let closed = |c: &TlsConnection| c.error().is_none() && c.has_closed() && c.peer_has_closed();
    assert!(closed(&pair.client().connection), "{:?}", pair.client().connection.error());
    assert!(closed(&pair.server().connection), "{:?}", pair.server().connection.error());
}

/// The flags and the length of the payload of an IPv4 packet.
fn segment(sent: &Sent) -> (Side, u8, usize) {
    let ip = &sent.packet;
    assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), ip.len());
    (sent.by, ip[33], ip.len() - 20 - usize::from(ip[32] >> 4) * 4)
}

/// Linux acknowledges quickly until a side has answered, and joins a flight with the data after it if they
/// fit.
#[test]
fn sends_the_packets_that_linux_would() {
    let mut pair = exchange(TcpOptions::default(), delay);
    finish(&mut pair);
    let segments: Vec<_> = pair.sent.iter().map(segment).collect();
    let [syn, syn_ack, ack, hello, quick, rest @ ..] = &segments[..] else { panic!("{segments:?}") };
    assert_eq!(
        (*syn, *syn_ack, *ack),
        ((Side::Client, 0x02, 0), (Side::Server, 0x12, 0), (Side::Client, 0x10, 0))
    );
    // SYN with MSS, SACK, timestamps and window scale: 40 bytes of TCP.
    assert_eq!(pair.sent[0].packet.len(), 60);
    assert_eq!(pair.sent[2].packet.len(), 52);
    assert!(hello.0 == Side::Client && hello.2 > 100);
    assert_eq!(*quick, (Side::Server, 0x10, 0));
    assert_eq!(rest.iter().filter(|s| s.1 & 1 == 1).count(), 2, "each side sends one FIN: {rest:?}");
    assert!(pair.sent.iter().all(|s| s.packet.len() <= 1500));
    assert_eq!(pair.sent.iter().map(|s| s.packet.len()).max(), Some(1500));
    // The client's last data leaves after six one-way delays, and the server's answer after seven.
    let data = |by| pair.sent.iter().filter(|s| s.by == by && segment(s).2 > 0).map(|s| s.after).max();
    assert_eq!(data(Side::Client), Some(DELAY * 6));
    assert_eq!(data(Side::Server), Some(DELAY * 7));
}

#[test]
fn small_and_large_packets_carry_the_same_payload() {
    let options = TcpOptions { mtu: 127, ..TcpOptions::default() };
    let mut small = exchange(options, delay);
    finish(&mut small);
    assert_eq!(small.sent.iter().map(|s| s.packet.len()).max(), Some(127));
    let mut large =
        exchange(TcpOptions { ipv6: true, timestamps: false, mtu: 1280, ..TcpOptions::default() }, delay);
    finish(&mut large);
    let payload =
        |pair: &Pair<_, _>, header| pair.sent.iter().map(|s: &Sent| s.packet.len() - header).sum::<usize>();
    let syns = (60 - 52) * 2;
    let small = payload(&small, 52) - syns;
    let large = payload(&large, 60);
    assert!(small.abs_diff(large) <= 40, "{small} {large}");
}

#[test]
fn retransmits_lost_packets() {
    let mut lost = 0;
    for seed in 0..20 {
        let conditions =
            Conditions { delay: DELAY, loss: 0.1, jitter: DELAY, reorder: 0.1, ..Conditions::default() };
        let mut seed = seed * 2;
        let mut pair = exchange(TcpOptions { mtu: 256, ..TcpOptions::default() }, || {
            seed += 1;
            Box::new(Impaired::new(conditions, seed))
        });
        finish(&mut pair);
        lost += usize::from(pair.sent.last().unwrap().after > Duration::from_secs(1));
    }
    assert!(lost > 0, "nothing was lost");
}

/// Five devices with an uplink each need the time of one. If they share an uplink, its rate limits them.
#[test]
fn devices_of_a_fleet_can_share_an_uplink() {
    let upload = |link: &Arc<Mutex<Impaired>>| {
        let client = |_: &TlsConnection, _: &[u8]| Reply { data: vec![0; UPLOAD], close: true };
        let mut came = 0;
        let server = move |connection: &TlsConnection, data: &[u8]| {
            came += data.len();
            let close = connection.peer_has_closed();
            assert!(!close || came == UPLOAD, "{came}");
            Reply { data: vec![], close }
        };
        let mut links = [Box::new(link.clone()) as Box<dyn Link>, delay()].into_iter();
        let mut next = || links.next_back().unwrap();
        pair(TcpOptions::default(), client, server, &mut next)
    };
    let slow = Conditions { delay: DELAY, rate: Some(RATE), ..Conditions::default() };
    let uplink = || Arc::new(Mutex::new(Impaired::new(slow, 1)));
    let time = |links: &[Arc<Mutex<Impaired>>]| {
        let mut fleet = Fleet::new(links.iter().map(&upload).collect());
        fleet.run(Duration::from_secs(3600));
        fleet.members.iter_mut().for_each(finish);
        assert!(fleet.members.iter_mut().all(|member| member.next().is_none()));
        let sent = || fleet.members.iter().flat_map(|m| &m.sent);
        let bytes: usize = sent().filter(|s| s.by == Side::Client).map(|s| s.packet.len()).sum();
        (sent().map(|s| s.after).max().unwrap(), Duration::from_secs_f64(bytes as f64 * 8.0 / RATE as f64))
    };
    let one = time(&[uplink()]);
    let each = time(&[uplink(), uplink(), uplink(), uplink(), uplink()]);
    assert_eq!(one.0, each.0);
    let shared = uplink();
    let all = time(&[shared.clone(), shared.clone(), shared.clone(), shared.clone(), shared]);
    assert!(all.0 > all.1 && all.0 > one.0 * 4, "{all:?} {one:?}");
}
