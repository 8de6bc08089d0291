//! Generates traffic with the engine, and makes captures of it.
#![allow(dead_code, reason = "every test file uses its own part")]

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dunlin::cache::{CacheMode, DEFAULT_MAX_AGE};
use dunlin::crypto::{Tls12CipherSuite, Tls13CipherSuite};
use dunlin::{
    ClientAuth, ClientConfig, DtlsConnection, KeyLog as EngineKeyLog, Migration, NodeIds, PathCheck, Profile,
    ServerConfig, Side, TlsConnection, Trust,
};
use dunlin_explain::{Bytes, Explanation, Field, KeyLog, Layer, explain};
use dunlin_sim::{CLIENT_ADDRESS, Pair, SERVER_ADDRESS};
use dunlin_store::{MemoryClientCache, MemoryServerCache};
use dunlin_tests::{KeyType, NOW, Pki, awslc, localhost};
use etherparse::PacketBuilder;
use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapWriter, RawPcapPacket};

/// The bytes that both ends sent, in order, and the client's key log.
pub(crate) struct Traffic {
    pub(crate) sent: Vec<(Side, Vec<u8>)>,
    pub(crate) keys: String,
}

impl Traffic {
    pub(crate) fn key_log(&self) -> KeyLog {
        KeyLog::read(self.keys.as_bytes()).unwrap()
    }
}

#[derive(Debug, Default)]
struct Log(Mutex<String>);

impl EngineKeyLog for Log {
    fn log(&self, label: &str, client_random: &[u8; 32], secret: &[u8]) {
        let mut text = self.0.lock().unwrap();
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        writeln!(text, "{label} {} {}", hex(client_random), hex(secret)).unwrap();
    }
}

/// Configurations of a client and a server that authenticate each other and use this suite.
fn configs(suite: &'static Tls13CipherSuite, log: &Arc<Log>) -> (ClientConfig, ServerConfig) {
    let pki = Pki::shared(KeyType::P256);
    let mut provider = (*awslc()).clone();
    provider.cipher_suites = vec![suite];
    let provider = Arc::new(provider);
    let profile = |leaf: &dunlin_tests::Leaf| {
        let log: Arc<dyn EngineKeyLog> = Arc::clone(log) as _;
        Profile::builder(Arc::clone(&provider))
            .trust(Trust { x509: Some(pki.trust()), raw_key: None })
            .credentials(vec![leaf.x509(&provider)])
            .key_log(Some(log))
            .build()
            .unwrap()
    };
    let server = ServerConfig::new(profile(&pki.server)).unwrap().with_client_auth(ClientAuth::Required);
    (ClientConfig::new(profile(&pki.client)), server.unwrap())
}

/// A TLS connection: handshake, data, a KeyUpdate by each side, `bulk` bytes of data, close.
pub(crate) fn tls(suite: &'static Tls13CipherSuite, bulk: usize) -> Traffic {
    let log = Arc::new(Log::default());
    let (client, server) = configs(suite, &log);
    tls_between(&Arc::new(client), &Arc::new(server), &log, bulk)
}

/// Two such connections between a client and a server with handshake caches.
pub(crate) fn tls_cached(suite: &'static Tls13CipherSuite) -> [Traffic; 2] {
    let log = Arc::new(Log::default());
    let (client, server) = configs(suite, &log);
    let client = client.with_handshake_cache(
        CacheMode::Compact,
        Arc::new(MemoryClientCache::default()),
        DEFAULT_MAX_AGE,
    );
    let server = server
        .with_handshake_cache(CacheMode::Compact, Arc::new(MemoryServerCache::new(1)), DEFAULT_MAX_AGE)
        .unwrap();
    let client = Arc::new(client);
    let server = Arc::new(server);
    [(); 2].map(|()| tls_between(&client, &server, &log, 1))
}

fn tls_between(client: &Arc<ClientConfig>, server: &Arc<ServerConfig>, log: &Log, bulk: usize) -> Traffic {
    let mut client = TlsConnection::client(client, localhost(), NOW).unwrap();
    let mut server = TlsConnection::server(server, NOW);
    let mut sent = Vec::new();
    let mut run = |client: &mut TlsConnection, server: &mut TlsConnection| {
        loop {
            let before = sent.len();
            for (side, from, to) in [(Side::Client, 0, 1), (Side::Server, 1, 0)] {
                let ends = [&mut *client, &mut *server];
                let bytes = ends[from].transmit().to_vec();
                ends[from].transmitted(bytes.len());
                let mut taken = 0;
                while taken < bytes.len() {
                    taken += ends[to].receive(NOW, &bytes[taken..]).unwrap();
                    let waiting = ends[to].received().len();
                    ends[to].consume(NOW, waiting).unwrap();
                }
                if !bytes.is_empty() {
                    sent.push((side, bytes));
                }
            }
            if sent.len() == before {
                break;
            }
        }
    };
    run(&mut client, &mut server);
    client.send(b"before").unwrap();
    run(&mut client, &mut server);
    client.update_keys(true).unwrap();
    run(&mut client, &mut server);
    assert_eq!(client.send(&vec![7; bulk]), Ok(bulk));
    server.send(b"after").unwrap();
    client.close();
    run(&mut client, &mut server);
    server.close();
    run(&mut client, &mut server);
    let keys = log.0.lock().unwrap().clone();
    Traffic { sent, keys }
}

/// As [`tls`], with DTLS 1.3. The handshake has a HelloRetryRequest and fragmented messages.
pub(crate) fn dtls(suite: &'static Tls13CipherSuite) -> Traffic {
    let log = Arc::new(Log::default());
    let (client, server) = configs(suite, &log);
    dtls_between(client, server, &log, |pair| {
        pair.client.update_keys(true).unwrap();
    })
}

/// As [`dtls`], with connection IDs of 4 and 5 bytes: client and server replace their IDs, and the client
/// asks for more.
pub(crate) fn dtls_with_ids(suite: &'static Tls13CipherSuite) -> Traffic {
    let log = Arc::new(Log::default());
    let (client, server) = with_ids(configs(suite, &log));
    dtls_between(client, server, &log, |pair| {
        pair.client.replace_connection_id().unwrap();
        pair.server.replace_connection_id().unwrap();
        pair.run().unwrap();
        pair.client.request_connection_ids(1).unwrap();
        pair.client.update_keys(true).unwrap();
    })
}

/// A connection of DTLS 1.2, with a cookie and fragmented messages, and perhaps with connection IDs:
/// handshake, data, close.
pub(crate) fn dtls12(suite: &'static Tls12CipherSuite, ids: bool) -> Traffic {
    let log = Arc::new(Log::default());
    let configs = configs12(suite, &log);
    let (client, server) = if ids { with_ids(configs) } else { configs };
    dtls_between(client, server, &log, |_| {})
}

/// Two such connections between a client and a server with handshake caches, whose messages are not
/// fragmented.
pub(crate) fn dtls12_cached(suite: &'static Tls12CipherSuite) -> [Traffic; 2] {
    let log = Arc::new(Log::default());
    let (client, server) = configs12(suite, &log);
    let clients = Arc::new(MemoryServerCache::new(1));
    let servers = Arc::new(MemoryClientCache::default());
    let client = client.with_handshake_cache(CacheMode::Compact, servers, DEFAULT_MAX_AGE);
    let server = server.with_handshake_cache(CacheMode::Compact, clients, DEFAULT_MAX_AGE).unwrap();
    [(); 2].map(|()| dtls_at(4000, client.clone(), server.clone(), &log, |_| {}))
}

fn configs12(suite: &'static Tls12CipherSuite, log: &Arc<Log>) -> (ClientConfig, ServerConfig) {
    let pki = Pki::shared(KeyType::P256);
    let profile = |leaf: &dunlin_tests::Leaf| {
        Profile::builder(awslc())
            .cipher_suites(vec![])
            .tls12_cipher_suites(vec![suite])
            .trust(Trust { x509: Some(pki.trust()), raw_key: None })
            .credentials(vec![leaf.x509(&awslc())])
            .key_log(Some(Arc::clone(log) as _))
            .build()
            .unwrap()
    };
    let server = ServerConfig::new(profile(&pki.server)).unwrap().with_client_auth(ClientAuth::Required);
    (ClientConfig::new(profile(&pki.client)), server.unwrap())
}

fn with_ids((client, server): (ClientConfig, ServerConfig)) -> (ClientConfig, ServerConfig) {
    let ids = |len| Arc::new(NodeIds::new(&[0xc1, 0xd0], len, awslc().random.clone()).unwrap());
    (client.with_connection_ids(ids(4)), server.with_connection_ids(ids(5)))
}

fn dtls_between(
    client: ClientConfig,
    server: ServerConfig,
    log: &Log,
    between: impl FnOnce(&mut Pair<DtlsConnection, DtlsConnection>),
) -> Traffic {
    dtls_at(400, client, server, log, between)
}

/// A connection with data before and after the calls of `between`.
fn dtls_at(
    mtu: usize,
    client: ClientConfig,
    server: ServerConfig,
    log: &Log,
    between: impl FnOnce(&mut Pair<DtlsConnection, DtlsConnection>),
) -> Traffic {
    let client = client.with_mtu(mtu).unwrap();
    let server = server.with_mtu(mtu).unwrap().with_cookies(true);
    let client = DtlsConnection::client(&Arc::new(client), localhost(), SERVER_ADDRESS, NOW).unwrap();
    let server = DtlsConnection::server(&Arc::new(server), CLIENT_ADDRESS, NOW);
    let mut pair = Pair::new(client, server, NOW, Duration::from_millis(5));
    pair.run().unwrap();
    pair.client.send(b"before").unwrap();
    pair.run().unwrap();
    between(&mut pair);
    pair.run().unwrap();
    pair.client.send(b"after").unwrap();
    pair.server.send(b"after").unwrap();
    pair.run().unwrap();
    pair.client.close();
    pair.server.close();
    pair.run().unwrap();
    let sent = pair.sent.into_iter().map(|sent| (sent.by, sent.packet)).collect();
    let keys = log.0.lock().unwrap().clone();
    Traffic { sent, keys }
}

const CLIENT: ([u8; 4], u16) = ([10, 0, 0, 1], 40_000);
const SERVER: ([u8; 4], u16) = ([10, 0, 0, 2], 4433);

fn ends(from: Side) -> [([u8; 4], u16); 2] {
    match from {
        Side::Client => [CLIENT, SERVER],
        Side::Server => [SERVER, CLIENT],
    }
}

/// A TCP segment in an Ethernet frame.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) from: Side,
    pub(crate) sequence: u32,
    pub(crate) acknowledged: u32,
    pub(crate) syn: bool,
    pub(crate) payload: Vec<u8>,
}

impl Segment {
    pub(crate) fn frame(&self) -> Vec<u8> {
        let [from, to] = ends(self.from);
        let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from.0, to.0, 64);
        let mut builder = builder.tcp(from.1, to.1, self.sequence, 0xffff);
        if self.syn {
            builder = builder.syn();
        }
        if !self.syn || self.from == Side::Server {
            builder = builder.ack(self.acknowledged);
        }
        let mut frame = Vec::new();
        builder.write(&mut frame, &self.payload).unwrap();
        frame
    }
}

/// The segments of a connection: SYNs, then the traffic in segments of `size` bytes. Sequence numbers wrap
/// meanwhile.
pub(crate) fn segments(traffic: &Traffic, size: usize) -> Vec<Segment> {
    let mut next = [u32::MAX - 300, u32::MAX - 700];
    let mut segments = Vec::new();
    for from in [Side::Client, Side::Server] {
        let sequence = next[from as usize];
        let acknowledged = next[1 - from as usize];
        segments.push(Segment { from, sequence, acknowledged, syn: true, payload: Vec::new() });
        next[from as usize] = next[from as usize].wrapping_add(1);
    }
    for (from, bytes) in &traffic.sent {
        for payload in bytes.chunks(size) {
            let sequence = next[*from as usize];
            let acknowledged = next[1 - *from as usize];
            segments.push(Segment {
                from: *from,
                sequence,
                acknowledged,
                syn: false,
                payload: payload.to_vec(),
            });
            next[*from as usize] = sequence.wrapping_add(payload.len() as u32);
        }
    }
    segments
}

pub(crate) fn tcp_capture(segments: &[Segment]) -> Vec<u8> {
    let frames: Vec<_> = segments.iter().map(Segment::frame).collect();
    pcap(DataLink::ETHERNET, &frames)
}

/// An association with connection IDs whose client moves to another address and back: the frames in both
/// directions, and the keys.
pub(crate) fn dtls_moved(version12: Option<&'static Tls12CipherSuite>) -> (Vec<Vec<u8>>, Traffic) {
    let log = Arc::new(Log::default());
    let (client, server) = with_ids(match version12 {
        Some(suite) => configs12(suite, &log),
        None => configs(&dunlin_awslc::TLS13_AES_128_GCM_SHA256, &log),
    });
    let basic = Migration::new(PathCheck::Basic);
    let client = client.with_migration(basic);
    let server = server.with_migration(basic).with_cookies(true);
    let mut client = DtlsConnection::client(&Arc::new(client), localhost(), SERVER_ADDRESS, NOW).unwrap();
    let mut server = DtlsConnection::server(&Arc::new(server), CLIENT_ADDRESS, NOW);
    let mut frames = Vec::new();
    let mut exchange = |client: &mut DtlsConnection, server: &mut DtlsConnection, host: u8| loop {
        let address = ([10, 0, 0, host], 40_000);
        if let Some(transmit) = client.poll_transmit(NOW) {
            frames.push(udp_frame(address, SERVER, &transmit.datagram));
            server.receive(NOW, std::net::SocketAddr::from(address), &transmit.datagram).unwrap();
        } else if let Some(transmit) = server.poll_transmit(NOW) {
            let to = match transmit.to.ip() {
                std::net::IpAddr::V4(to) => to.octets(),
                std::net::IpAddr::V6(_) => [0; 4],
            };
            frames.push(udp_frame(SERVER, (to, transmit.to.port()), &transmit.datagram));
            client.receive(NOW, SERVER_ADDRESS, &transmit.datagram).unwrap();
        } else {
            break;
        }
    };
    for host in [1, 1, 77, 1] {
        exchange(&mut client, &mut server, host);
        client.send(b"here").unwrap();
        exchange(&mut client, &mut server, host);
    }
    let keys = log.0.lock().unwrap().clone();
    (frames, Traffic { sent: Vec::new(), keys })
}

fn udp_frame(from: ([u8; 4], u16), to: ([u8; 4], u16), datagram: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(from.0, to.0, 64).udp(from.1, to.1);
    builder.write(&mut frame, datagram).unwrap();
    frame
}

/// The frames of an association, if the server answers from a port of its own for this association.
pub(crate) fn frames_with_a_port(traffic: &Traffic, port: u16) -> Vec<Vec<u8>> {
    // The beginning of the random in a HelloRetryRequest (RFC 8446 §4.1.3).
    let is_retry = |datagram: &[u8]| datagram[27..31] == [0xcf, 0x21, 0xad, 0x74];
    let mut server = SERVER;
    let frame = |(side, datagram): &(Side, Vec<u8>)| {
        if *side == Side::Server && (datagram[0], datagram[13]) == (22, 2) && !is_retry(datagram) {
            server.1 = port;
        }
        match side {
            Side::Client => udp_frame(CLIENT, server, datagram),
            Side::Server => udp_frame(server, CLIENT, datagram),
        }
    };
    traffic.sent.iter().map(frame).collect()
}

/// UDP frames of the datagrams.
pub(crate) fn udp_frames(traffic: &Traffic) -> Vec<Vec<u8>> {
    let frame = |(side, datagram): &(Side, Vec<u8>)| {
        let [from, to] = ends(*side);
        let mut frame = Vec::new();
        PacketBuilder::ethernet2([2; 6], [4; 6])
            .ipv4(from.0, to.0, 64)
            .udp(from.1, to.1)
            .write(&mut frame, datagram)
            .unwrap();
        frame
    };
    traffic.sent.iter().map(frame).collect()
}

/// A pcap file of these frames, a millisecond apart.
pub(crate) fn pcap(link: DataLink, frames: &[Vec<u8>]) -> Vec<u8> {
    let whole: Vec<_> = frames.iter().map(|frame| (frame.len(), frame.as_slice())).collect();
    cut_pcap(link, &whole)
}

/// A pcap file of frames that were cut short; each comes with its length on the wire.
pub(crate) fn cut_pcap(link: DataLink, frames: &[(usize, &[u8])]) -> Vec<u8> {
    let mut file = Vec::new();
    let header = PcapHeader { datalink: link, ..PcapHeader::default() };
    let mut writer = PcapWriter::with_header(&mut file, header).unwrap();
    for (index, (wire_len, data)) in frames.iter().enumerate() {
        let packet = RawPcapPacket {
            ts_sec: 1_767_225_600,
            ts_frac: 1000 * index as u32,
            incl_len: data.len() as u32,
            orig_len: *wire_len as u32,
            data: Cow::Borrowed(data),
        };
        writer.write_raw_packet(&packet).unwrap();
    }
    file
}

/// Explains a capture and checks its sums.
pub(crate) fn explained(file: &[u8], key_log: Option<&KeyLog>) -> Explanation {
    let explanation = explain(file, key_log).unwrap();
    check(&explanation);
    explanation
}

/// Checks that the bytes add up on every level of an explanation.
pub(crate) fn check(explanation: &Explanation) {
    let mut all = explanation.elsewhere;
    for flow in &explanation.flows {
        all += flow.bytes;
        let records: usize = flow.records.iter().map(|record| record.bytes()).sum();
        let headers: usize = flow.packets.iter().map(|p| p.link_bytes + p.ip_bytes + p.transport_bytes).sum();
        let of = |bytes: &Bytes, layers: &[Layer]| layers.iter().map(|layer| bytes.of(*layer)).sum::<u64>();
        assert_eq!(headers as u64, of(&flow.bytes, &[Layer::Link, Layer::Ip, Layer::Transport]));
        // Heartbeats and unknown content are inside records, but do not count as TLS.
        let foreign: usize =
            parts(flow).filter(|part| part.layer == Layer::Other).map(|part| part.bytes).sum();
        assert_eq!(records as u64, flow.bytes.tls() + foreign as u64);
        let messages: usize = flow.messages.iter().map(|message| message.bytes).sum();
        assert_eq!(
            messages as u64 + of(&flow.bytes, &[Layer::RecordHeader, Layer::Protection]),
            records as u64
        );
        for part in parts(flow) {
            assert_eq!(sum(&part.fields), part.message_bytes.unwrap_or(0), "{part:?}");
        }
    }
    assert_eq!(all, explanation.bytes);
}

pub(crate) fn parts(flow: &dunlin_explain::Flow) -> impl Iterator<Item = &dunlin_explain::Part> {
    flow.records.iter().flat_map(|record| &record.parts)
}

fn sum(fields: &[Field]) -> usize {
    fields.iter().map(|field| field.bytes).sum()
}

/// The names of a side's complete messages.
pub(crate) fn messages(explanation: &Explanation, side: Side) -> Vec<String> {
    let records = explanation.flows.iter().flat_map(|flow| &flow.records).filter(|r| r.from == side);
    let whole = records.flat_map(|record| &record.parts);
    let whole = whole.filter(|part| part.handshake_type.is_none() || part.message_bytes.is_some());
    whole.map(|part| part.name.clone()).collect()
}
