//! Explains captures of every kind, made of the engine's traffic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

mod common;

use common::{
    Segment, Traffic, check, cut_pcap, dtls, dtls_with_ids, dtls12, explained, messages, pcap, segments,
    tcp_capture, tls, udp_frames,
};
use dunlin::Side;
use dunlin_awslc::tls12::{
    TLS12_ECDHE_ECDSA_WITH_AES_128_CCM_8, TLS12_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    TLS12_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
};
use dunlin_awslc::{
    TLS13_AES_128_CCM_8_SHA256, TLS13_AES_128_CCM_SHA256, TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384,
    TLS13_CHACHA20_POLY1305_SHA256,
};
use dunlin_explain::{Error, Explanation, KeyLog, Layer, Protection, explain, explain_hex, first_flights};
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::simple_packet::SimplePacketBlock;
use pcap_file::pcapng::blocks::unknown::UnknownBlock;

const CLIENT: [&str; 8] = [
    "ClientHello",
    "ChangeCipherSpec",
    "Certificate",
    "CertificateVerify",
    "Finished",
    "application data",
    "KeyUpdate",
    "application data",
];
const SERVER: [&str; 9] = [
    "ServerHello",
    "ChangeCipherSpec",
    "EncryptedExtensions",
    "CertificateRequest",
    "Certificate",
    "CertificateVerify",
    "Finished",
    "KeyUpdate",
    "application data",
];

/// Checks that everything was decrypted without a problem, and that exactly the expected messages were found.
fn assert_whole(explanation: &Explanation) {
    assert_eq!(explanation.problems, Vec::<String>::new());
    assert_eq!(explanation.bytes.of(Layer::Sealed), 0);
    let close = "alert warning close_notify";
    let all = |messages: &[&'static str]| [messages, &[close]].concat();
    // Large data takes several records.
    let mut client = messages(explanation, Side::Client);
    client.dedup();
    assert_eq!(client, all(&CLIENT));
    assert_eq!(messages(explanation, Side::Server), all(&SERVER));
}

#[test]
fn decrypts_every_tls_1_3_suite() {
    for suite in [
        &TLS13_AES_128_GCM_SHA256,
        &TLS13_AES_256_GCM_SHA384,
        &TLS13_CHACHA20_POLY1305_SHA256,
        &TLS13_AES_128_CCM_SHA256,
        &TLS13_AES_128_CCM_8_SHA256,
    ] {
        let traffic = tls(suite, 20_000);
        let file = tcp_capture(&segments(&traffic, 100));
        let explanation = explained(&file, Some(&traffic.key_log()));
        assert_whole(&explanation);
        let flow = &explanation.flows[0];
        assert_eq!(flow.cipher_suite.as_deref(), suite.id.name());
        // The overhead is inner content type and tag of every protected record.
        let opened = flow.records.iter().filter(|record| record.protection == Protection::Opened).count();
        let each = 1 + suite.aead.algorithm().tag_len();
        assert_eq!(explanation.bytes.of(Layer::Protection), (opened * each) as u64);
        assert_eq!(explanation.bytes.of(Layer::ApplicationData), 6 + 20_000 + 5);
        let sent: usize = traffic.sent.iter().map(|(_, bytes)| bytes.len()).sum();
        assert_eq!(explanation.bytes.tls(), sent as u64);

        let closed = explained(&file, None);
        assert_eq!(closed.problems, Vec::<String>::new());
        assert_eq!(closed.bytes.tls(), sent as u64);
        assert_eq!(messages(&closed, Side::Client)[..2], CLIENT[..2]);
    }
}

#[test]
fn joins_segments_that_come_out_of_order_twice_or_overlapping() {
    let traffic = tls(&TLS13_AES_128_GCM_SHA256, 2000);
    let key_log = traffic.key_log();
    let straight = segments(&traffic, 90);

    let mut swapped = straight.clone();
    swapped[2..].chunks_mut(3).for_each(<[_]>::reverse);
    let explanation = explained(&tcp_capture(&swapped), Some(&key_log));
    assert_whole(&explanation);
    assert_eq!(explanation.bytes.of(Layer::Retransmitted), 0);

    let twice: Vec<_> = straight.iter().flat_map(|segment| [segment.clone(), segment.clone()]).collect();
    let explanation = explained(&tcp_capture(&twice), Some(&key_log));
    assert_whole(&explanation);
    assert_eq!(explanation.bytes.of(Layer::Retransmitted), explanation.bytes.tls());
    assert_eq!(explanation.flows.len(), 1);

    // Every segment repeats the last ten bytes of the one before.
    let mut overlapping = straight.clone();
    let mut repeated = 0;
    for side in [Side::Client, Side::Server] {
        let mut before = Vec::new();
        for segment in overlapping.iter_mut().filter(|segment| segment.from == side && !segment.syn) {
            let tail = before[before.len() - 10_usize.min(before.len())..].to_vec();
            repeated += tail.len() as u64;
            before = segment.payload.clone();
            segment.sequence = segment.sequence.wrapping_sub(tail.len() as u32);
            segment.payload.splice(0..0, tail);
        }
    }
    let explanation = explained(&tcp_capture(&overlapping), Some(&key_log));
    assert_whole(&explanation);
    assert_eq!(explanation.bytes.of(Layer::Retransmitted), repeated);
}

#[test]
fn a_gap_affects_only_its_own_direction() {
    let traffic = tls(&TLS13_AES_128_GCM_SHA256, 2000);
    let mut lost = segments(&traffic, 90);
    // The first segment of the client after its ClientHello.
    let hello = traffic.sent[0].1.len();
    let at = lost.iter().position(|s| s.from == Side::Client && !s.syn).unwrap() + hello.div_ceil(90);
    let at = at + lost[at..].iter().position(|s| s.from == Side::Client).unwrap();
    lost.remove(at);
    let explanation = explained(&tcp_capture(&lost), Some(&traffic.key_log()));
    assert_eq!(messages(&explanation, Side::Client), CLIENT[..1]);
    assert_eq!(messages(&explanation, Side::Server)[..9], SERVER);
    let [problem] = explanation.problems.as_slice() else { panic!("{:?}", explanation.problems) };
    let ends = "TCP 10.0.0.1:40000 to 10.0.0.2:4433";
    assert!(problem.starts_with(&format!("{ends}, from the client: 90 bytes are missing")), "{problem}");
}

#[test]
fn explains_a_capture_that_began_in_the_middle() {
    let traffic = tls(&TLS13_AES_128_GCM_SHA256, 2000);
    let all = segments(&traffic, 90);
    for first in 3..all.len() {
        let explanation = explained(&tcp_capture(&all[first..]), Some(&traffic.key_log()));
        assert!(!explanation.problems.is_empty(), "from segment {first}");
    }
    // Only the SYNs are missing.
    assert_whole(&explained(&tcp_capture(&all[2..]), Some(&traffic.key_log())));
}

#[test]
fn separates_tcp_connections_between_the_same_ports() {
    let [first, second] = [0, 1].map(|_| tls(&TLS13_AES_128_GCM_SHA256, 10));
    let later = segments(&second, 1000).into_iter().map(|mut segment: Segment| {
        segment.sequence = segment.sequence.wrapping_add(1 << 30);
        segment
    });
    let both: Vec<_> = segments(&first, 1000).into_iter().chain(later).collect();
    let key_log = KeyLog::read(format!("{}{}", first.keys, second.keys).as_bytes()).unwrap();
    let explanation = explained(&tcp_capture(&both), Some(&key_log));
    assert_eq!((explanation.flows.len(), explanation.bytes.of(Layer::Sealed)), (2, 0));
    assert_eq!(explanation.problems, Vec::<String>::new());
}

/// Memory is bounded: packets of further flows are counted, not kept.
#[test]
fn counts_packets_beyond_the_limit_of_flows() {
    let syn =
        Segment { from: Side::Client, sequence: 0, acknowledged: 1, syn: true, payload: vec![7; 3] }.frame();
    let frames: Vec<_> = (0..70_000_u32)
        .map(|n| {
            let mut frame = syn.clone();
            // Source address and source port.
            frame[28..30].copy_from_slice(&[1, (n >> 16) as u8]);
            frame[34..36].copy_from_slice(&(n as u16).to_be_bytes());
            frame
        })
        .collect();
    let explanation = explained(&pcap(DataLink::ETHERNET, &frames), None);
    assert_eq!(explanation.flows.len(), 1 << 16);
    let beyond = 70_000 - (1 << 16);
    let problem = format!("{beyond} packets exceed the limit of 65536 flows and were not read");
    assert_eq!(explanation.problems[0], problem);
    assert_eq!(explanation.elsewhere.of(Layer::Other), 3 * beyond);
    assert_eq!(explanation.bytes.total(), 70_000 * syn.len() as u64);
}

/// A handshake with a cookie is one association, not two.
#[test]
fn separates_dtls_associations_between_the_same_ports() {
    let [first, second] = [0, 1].map(|_| dtls(&TLS13_AES_128_GCM_SHA256));
    let frames = [udp_frames(&first), udp_frames(&second)].concat();
    let key_log = KeyLog::read(format!("{}{}", first.keys, second.keys).as_bytes()).unwrap();
    let explanation = explained(&pcap(DataLink::ETHERNET, &frames), Some(&key_log));
    assert_eq!((explanation.flows.len(), explanation.bytes.of(Layer::Sealed)), (2, 0));
    for (flow, traffic) in explanation.flows.iter().zip([&first, &second]) {
        let sent: usize = traffic.sent.iter().map(|(_, datagram)| datagram.len()).sum();
        assert_eq!(flow.bytes.tls(), sent as u64);
    }
    assert_eq!(explanation.problems, Vec::<String>::new());
}

#[test]
fn explains_datagrams_that_come_out_of_order_and_twice() {
    let traffic = dtls(&TLS13_AES_128_GCM_SHA256);
    let mut frames = udp_frames(&traffic);
    // The hellos keep their order: they decide how to read the rest.
    frames[6..].chunks_mut(3).for_each(<[_]>::reverse);
    let straight = explained(&pcap(DataLink::ETHERNET, &udp_frames(&traffic)), Some(&traffic.key_log()));
    let swapped = explained(&pcap(DataLink::ETHERNET, &frames), Some(&traffic.key_log()));
    assert_eq!(swapped.problems, Vec::<String>::new());
    let sorted = |explanation| {
        let mut messages = [messages(explanation, Side::Client), messages(explanation, Side::Server)];
        messages.iter_mut().for_each(|messages| messages.sort());
        messages
    };
    assert_eq!(sorted(&swapped), sorted(&straight));
    assert_eq!(swapped.bytes, straight.bytes);

    let twice: Vec<_> = frames.iter().flat_map(|frame| [frame.clone(), frame.clone()]).collect();
    let twice = explained(&pcap(DataLink::ETHERNET, &twice), Some(&traffic.key_log()));
    assert_eq!(twice.bytes.tls(), 2 * straight.bytes.tls());
    let finished = |explanation: &Explanation| {
        let named = |m: &&dunlin_explain::MessageTotal| m.name == "Finished" && m.from == Side::Client;
        let total = explanation.flows[0].messages.iter().find(named).unwrap();
        (total.count, total.bytes)
    };
    // A repeated message counts once, but its bytes count twice.
    assert_eq!(finished(&twice), (1, 2 * finished(&straight).1));
}

#[test]
fn names_the_secrets_that_a_key_log_lacks() {
    let traffic = tls(&TLS13_AES_128_GCM_SHA256, 10);
    let file = tcp_capture(&segments(&traffic, 1000));
    let without = |part: &str| {
        let keys: String =
            traffic.keys.lines().filter(|l| !l.contains(part)).flat_map(|l| [l, "\n"]).collect();
        explained(&file, Some(&KeyLog::read(keys.as_bytes()).unwrap()))
    };
    let explanation = without("CLIENT_HANDSHAKE");
    let ends = "TCP 10.0.0.1:40000 to 10.0.0.2:4433";
    let why = "the key log has no handshake traffic secret of this connection";
    assert_eq!(explanation.problems, [format!("{ends}, from the client: 1 record was not decrypted: {why}")]);
    // Records under other keys are decrypted all the same.
    assert_eq!(
        messages(&explanation, Side::Client)[3..6],
        ["application data", "KeyUpdate", "application data"]
    );
    assert_eq!(messages(&explanation, Side::Server)[..9], SERVER);

    let explanation = without("TRAFFIC_SECRET_0");
    assert!(explanation.problems[0].ends_with("no application traffic secret of this connection"));
    assert_eq!(messages(&explanation, Side::Server)[..7], SERVER[..7]);

    let explanation = without("SECRET");
    assert!(explanation.problems[1].ends_with("the key log has no secrets of this connection"));
}

#[test]
fn reads_every_supported_link_type() {
    let traffic = tls(&TLS13_AES_128_GCM_SHA256, 10);
    let frames: Vec<_> = segments(&traffic, 1000).iter().map(Segment::frame).collect();
    let relink = |link, header: &[u8]| {
        let frames: Vec<_> = frames.iter().map(|frame| [header, &frame[14..]].concat()).collect();
        let explanation = explained(&pcap(link, &frames), Some(&traffic.key_log()));
        assert_whole(&explanation);
        assert_eq!(explanation.bytes.of(Layer::Link), (header.len() * frames.len()) as u64, "{link:?}");
    };
    relink(DataLink::ETHERNET, &[2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 8, 0]);
    relink(DataLink::ETHERNET, &[2, 2, 2, 2, 2, 2, 4, 4, 4, 4, 4, 4, 0x81, 0, 0, 7, 8, 0]);
    relink(DataLink::LINUX_SLL, &[0, 0, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0]);
    relink(DataLink::LINUX_SLL2, &[8, 0, 0, 0, 0, 0, 0, 1, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    relink(DataLink::NULL, &[2, 0, 0, 0]);
    relink(DataLink::LOOP, &[0, 0, 0, 2]);
    relink(DataLink::RAW, &[]);

    // Ethernet pads short frames after the IP packet.
    let padded: Vec<_> = frames.iter().map(|frame| [&frame[..], &[0; 6]].concat()).collect();
    let explanation = explained(&pcap(DataLink::ETHERNET, &padded), Some(&traffic.key_log()));
    assert_whole(&explanation);
    assert_eq!(explanation.bytes.of(Layer::Link), 20 * frames.len() as u64);

    let explanation = explained(&pcap(DataLink::BLUETOOTH_HCI_H4, &frames), None);
    let nothing = "it holds neither TLS nor DTLS";
    assert_eq!(explanation.problems, ["frames of link type 187 are not supported", nothing]);
    assert_eq!(explanation.bytes.of(Layer::Other), explanation.bytes.total());

    // Set the More Fragments flag of IPv4.
    let pieces: Vec<_> = frames
        .iter()
        .cloned()
        .map(|mut frame| {
            frame[20] |= 0x20;
            frame
        })
        .collect();
    let explanation = explained(&pcap(DataLink::ETHERNET, &pieces), None);
    let problem = format!("{} frames hold fragments of IP packets, which are not reassembled", pieces.len());
    assert_eq!(explanation.problems, [&problem, nothing]);
}

#[test]
fn counts_bytes_that_were_not_captured() {
    let traffic = tls(&TLS13_AES_128_GCM_SHA256, 10);
    let frames: Vec<_> = segments(&traffic, 1000).iter().map(Segment::frame).collect();
    let cut: Vec<_> = frames.iter().map(|frame| (frame.len(), &frame[..frame.len().min(96)])).collect();
    let explanation = explained(&cut_pcap(DataLink::ETHERNET, &cut), Some(&traffic.key_log()));
    let captured: usize = cut.iter().map(|(_, data)| data.len()).sum();
    let wire: usize = frames.iter().map(Vec::len).sum();
    assert_eq!(explanation.bytes.total(), wire as u64);
    assert_eq!(explanation.bytes.of(Layer::NotCaptured), (wire - captured) as u64);
    let says = format!("{} packets were cut at 96 bytes; capture whole packets (tcpdump -s 0)", {
        cut.iter().filter(|(len, data)| *len > data.len()).count()
    });
    assert_eq!(explanation.problems[0], says);
}

/// Providers and data centres wrap the packets of their customers.
#[test]
fn reads_packets_in_pppoe_mpls_and_vxlan() {
    let traffic = tls(&TLS13_AES_128_GCM_SHA256, 10);
    let frames: Vec<_> = segments(&traffic, 1000).iter().map(Segment::frame).collect();
    let wrapped = |wrap: &dyn Fn(&[u8]) -> Vec<u8>, header: usize| {
        let wrapped: Vec<_> = frames.iter().map(|frame| wrap(frame)).collect();
        let explanation = explained(&pcap(DataLink::ETHERNET, &wrapped), Some(&traffic.key_log()));
        assert_whole(&explanation);
        assert_eq!(explanation.flows.len(), 1);
        assert_eq!(explanation.bytes.of(Layer::Link), (header * frames.len()) as u64);
    };
    const MAC: [u8; 12] = [2; 12];
    let behind = |header: &[u8]| {
        let header = [&MAC[..], header].concat();
        wrapped(&|frame| [&header, &frame[14..]].concat(), header.len());
    };
    // PPPoE for IPv4, with and without a VLAN; the length does not matter.
    behind(&[0x88, 0x64, 0x11, 0, 0, 7, 0, 0, 0, 0x21]);
    behind(&[0x81, 0, 0, 7, 0x88, 0x64, 0x11, 0, 0, 7, 0, 0, 0, 0x21]);
    // One label, and two.
    behind(&[0x88, 0x47, 0, 1, 1, 64]);
    behind(&[0x88, 0x48, 0, 1, 0, 64, 0, 2, 1, 64]);
    // Ethernet over MPLS, after a control word.
    let pseudowire = [&MAC[..], &[0x88, 0x47, 0, 1, 1, 64, 0, 0, 0, 0]].concat();
    wrapped(&|frame| [&pseudowire, frame].concat(), pseudowire.len() + 14);
    // A tag from before 802.1ad, before one of 802.1Q.
    behind(&[0x91, 0, 0, 7, 0x81, 0, 0, 8, 8, 0]);
    // RFC 7348 §5: reserved bits are ignored on receipt.
    for (port, header) in [
        (4789, [8, 0, 0, 0, 0, 0, 42, 0]),
        (8472, [8, 0, 0, 0, 0, 0, 42, 0]),
        (4789, [0x88, 1, 2, 3, 0, 0, 42, 4]),
    ] {
        let vxlan = |frame: &[u8]| {
            let mut outer = vec![];
            let header = [&header, frame].concat();
            let builder = etherparse::PacketBuilder::ethernet2([2; 6], [4; 6]);
            let builder = builder.ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64).udp(50_000, port);
            builder.write(&mut outer, &header).unwrap();
            outer
        };
        wrapped(&vxlan, 14 + 20 + 8 + 8 + 14);
    }
    // No IP packet follows.
    for header in [
        &[0x88, 0x63, 0x11, 9, 0, 7, 0, 0][..],
        &[0x88, 0x64, 0x11, 0, 0, 7, 0, 0, 0xc0, 0x21],
        &[0x88, 0x47, 0, 1, 0, 64],
        &[0x88, 0x47],
        &[0x81, 0, 0],
    ] {
        let frame = [&MAC[..], header].concat();
        let explanation = explained(&pcap(DataLink::ETHERNET, std::slice::from_ref(&frame)), None);
        assert_eq!(explanation.bytes.of(Layer::Other), frame.len() as u64);
    }
}

#[test]
fn names_the_encapsulations_that_it_does_not_read() {
    let traffic = tls(&TLS13_AES_128_GCM_SHA256, 10);
    let inner = segments(&traffic, 1000)[0].frame();
    let ip = || etherparse::PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64);
    let mut frames = vec![];
    for port in [6081, 6081, 4790] {
        let mut frame = vec![];
        ip().udp(50_000, port)
            .write(&mut frame, &[&[0, 0, 0x65, 0x58, 0, 0, 42, 0], &inner[..]].concat())
            .unwrap();
        frames.push(frame);
    }
    for (protocol, header) in [(47, &[0, 0, 8, 0][..]), (4, &[])] {
        let mut frame = vec![];
        let content = [header, &inner[14..]].concat();
        ip().write(&mut frame, etherparse::IpNumber(protocol), &content).unwrap();
        frames.push(frame);
    }
    let explanation = explained(&pcap(DataLink::ETHERNET, &frames), None);
    let says = "it holds Geneve (frames: 2), VXLAN-GPE (frames: 1), GRE (frames: 1), IP in IP (frames: 1), which is not read, \
                and outside neither TLS nor DTLS";
    assert_eq!(explanation.problems, [says]);
    // Beside TLS that is read, other traffic is no problem.
    frames.extend(segments(&traffic, 1000).iter().map(Segment::frame));
    let explanation = explained(&pcap(DataLink::ETHERNET, &frames), Some(&traffic.key_log()));
    assert_eq!(explanation.problems, Vec::<String>::new());
}

#[test]
fn reports_captures_without_tls_and_rejects_other_files() {
    let arp = [&[0xff; 6][..], &[2; 6], &[8, 6], &[0; 28]].concat();
    let plain = Traffic {
        sent: vec![
            (Side::Client, b"GET / HTTP/1.0\r\n\r\n".to_vec()),
            (Side::Server, b"HTTP/1.0 200\r\n".to_vec()),
        ],
        keys: String::new(),
    };
    let mut frames: Vec<_> = segments(&plain, 1000).iter().map(Segment::frame).collect();
    frames.push(arp);
    let explanation = explained(&pcap(DataLink::ETHERNET, &frames), None);
    assert_eq!(explanation.problems, ["it holds neither TLS nor DTLS"]);
    assert_eq!(explanation.flows[0].bytes.of(Layer::Other), 18 + 14);
    assert_eq!(explanation.elsewhere.total(), 42);
    assert_eq!(explain(b"", None).unwrap_err(), Error::NotACapture);
    assert_eq!(explain(b"\x7fELF, and nothing else", None).unwrap_err(), Error::NotACapture);
}

/// The first file has secrets inside and its own unit of time, the second has simple packets.
#[test]
fn explains_pcapng_files() {
    let traffic = tls(&TLS13_AES_128_GCM_SHA256, 10);
    let frames: Vec<_> = segments(&traffic, 1000).iter().map(Segment::frame).collect();
    let mut file = Vec::new();
    let mut writer = PcapNgWriter::new(&mut file).unwrap();
    // "TLSK" and the length are in the section's byte order.
    let mut secrets = 0x544c_534b_u32.to_be_bytes().to_vec();
    secrets.extend((traffic.keys.len() as u32).to_be_bytes());
    secrets.extend(traffic.keys.as_bytes());
    let padded = secrets.len().next_multiple_of(4);
    secrets.resize(padded, 0);
    writer.write_pcapng_block(UnknownBlock::new(0x0a, 0, &secrets)).unwrap();
    let mut interface = InterfaceDescriptionBlock::new(DataLink::ETHERNET, 0);
    // 2^-10 s.
    interface.options.push(InterfaceDescriptionOption::IfTsResol(0x8a));
    writer.write_pcapng_block(interface).unwrap();
    for (index, frame) in frames.iter().enumerate() {
        let packet = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: std::time::Duration::from_nanos(1024 * 1000 + 512 * index as u64),
            original_len: frame.len() as u32,
            data: frame.into(),
            options: Vec::new(),
        };
        writer.write_pcapng_block(packet).unwrap();
    }
    let explanation = explained(&file, None);
    assert_whole(&explanation);
    assert_eq!(explanation.flows[0].packets[3].time_us, 1_500_000);

    // Simple packets have no timestamp, and are padded to 32 bits.
    let mut file = Vec::new();
    let mut writer = PcapNgWriter::new(&mut file).unwrap();
    writer.write_pcapng_block(InterfaceDescriptionBlock::new(DataLink::ETHERNET, 0)).unwrap();
    for frame in &frames {
        let packet = SimplePacketBlock { original_len: frame.len() as u32, data: frame.into() };
        writer.write_pcapng_block(packet).unwrap();
    }
    let explanation = explained(&file, Some(&traffic.key_log()));
    assert_whole(&explanation);
    assert_eq!(explanation.bytes.total(), frames.iter().map(Vec::len).sum::<usize>() as u64);
}

#[test]
fn explains_records_and_messages_in_hexadecimal() {
    let traffic = tls(&TLS13_AES_128_GCM_SHA256, 10);
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02X} ")).collect::<String>();
    let hello = &traffic.sent[0].1;
    let explanation = explain_hex(&hex(hello), None).unwrap();
    check(&explanation);
    assert_eq!(messages(&explanation, Side::Client), ["ClientHello"]);
    assert_eq!(explanation.bytes.total(), hello.len() as u64);

    // The message without its record header.
    let explanation = explain_hex(&hex(&hello[5..]), None).unwrap();
    check(&explanation);
    let record = &explanation.flows[0].records[0];
    assert_eq!((record.header_bytes, record.parts[0].message_bytes), (0, Some(hello.len() - 5)));

    let server = explain_hex(&hex(&traffic.sent[1].1), None).unwrap();
    assert_eq!(messages(&server, Side::Server)[..2], SERVER[..2]);

    let half = explain_hex(&hex(&hello[..50]), None).unwrap();
    check(&half);
    assert_eq!(
        half.problems,
        ["from the client: the stream ends in the middle of a record; the last 50 bytes were not read"]
    );

    assert_eq!(explain_hex("1603", None).unwrap_err(), Error::NotTls);
    assert_eq!(explain_hex("00ff", None).unwrap_err(), Error::NotTls);
    // A ServerHelloDone, and a synthetic message, which is never on the wire.
    assert!(explain_hex("0e000000", None).is_ok());
    assert_eq!(explain_hex("fe000000", None).unwrap_err(), Error::NotTls);
    assert_eq!(explain_hex("160", None).unwrap_err(), Error::NotHex);
    assert_eq!(explain_hex("", None).unwrap_err(), Error::NotTls);
}

#[test]
fn explains_dtls_1_3() {
    for suite in [&TLS13_AES_128_GCM_SHA256, &TLS13_CHACHA20_POLY1305_SHA256, &TLS13_AES_128_CCM_SHA256] {
        let traffic = dtls(suite);
        let file = pcap(DataLink::ETHERNET, &udp_frames(&traffic));
        let explanation = explained(&file, Some(&traffic.key_log()));
        assert_eq!(explanation.problems, Vec::<String>::new());
        assert_eq!(explanation.bytes.of(Layer::Sealed), 0);
        let without_acks = |side| {
            let mut names = messages(&explanation, side);
            names.retain(|name| name != "ACK");
            names
        };
        let client = [
            "ClientHello",
            "ClientHello",
            "Certificate",
            "CertificateVerify",
            "Finished",
            "application data",
            "KeyUpdate",
            "application data",
            "alert warning close_notify",
        ];
        let server = [
            "HelloRetryRequest",
            "ServerHello",
            "EncryptedExtensions",
            "CertificateRequest",
            "Certificate",
            "CertificateVerify",
            "Finished",
            "KeyUpdate",
            "application data",
            "alert warning close_notify",
        ];
        assert_eq!(without_acks(Side::Client), client);
        assert_eq!(without_acks(Side::Server), server);
        let flow = &explanation.flows[0];
        assert_eq!((flow.protocol, flow.version.as_deref()), (Some("DTLS"), Some("DTLSv1.3")));
        let sent: usize = traffic.sent.iter().map(|(_, datagram)| datagram.len()).sum();
        assert_eq!(explanation.bytes.tls(), sent as u64);
        // The certificates are fragmented.
        let pieces = common::parts(flow).filter(|part| part.name == "Certificate").count();
        assert!(pieces > 2, "{pieces}");

        let closed = explained(&file, None);
        assert_eq!(closed.problems, Vec::<String>::new());
        assert!(closed.bytes.of(Layer::Sealed) > 0);
        assert_eq!(closed.bytes.tls(), sent as u64);
    }
}

/// The connection IDs in the records of a side, each once.
fn ids(explanation: &Explanation, from: Side) -> Vec<String> {
    let records = explanation.flows[0].records.iter().filter(|record| record.from == from);
    let mut ids: Vec<_> = records.filter_map(|record| record.connection_id.clone()).collect();
    ids.dedup();
    ids
}

#[test]
fn explains_connection_ids_of_dtls_1_3() {
    let traffic = dtls_with_ids(&TLS13_AES_128_GCM_SHA256);
    let file = pcap(DataLink::ETHERNET, &udp_frames(&traffic));
    let explanation = explained(&file, Some(&traffic.key_log()));
    assert_eq!(explanation.problems, Vec::<String>::new());
    assert_eq!(explanation.bytes.of(Layer::Sealed), 0);
    for (side, len, new) in [(Side::Client, 10, "RequestConnectionId"), (Side::Server, 8, "NewConnectionId")]
    {
        let ids = ids(&explanation, side);
        // Each side sends an ID of its peer, and then the one that replaces it.
        assert!(ids.len() >= 2 && ids.iter().all(|id| id.len() == len && id.starts_with("c1d0")), "{ids:?}");
        let names = messages(&explanation, side);
        assert!(names.iter().any(|name| name == new) && names.iter().any(|name| name == "NewConnectionId"));
    }
    let new = common::parts(&explanation.flows[0]).find(|part| part.name == "NewConnectionId").unwrap();
    let [_, cids, usage] = &new.fields[..] else { panic!("{new:?}") };
    assert_eq!((cids.fields.len(), usage.value.as_deref()), (1, Some("cid_immediate")));
    // Without the hellos the length of the IDs is unknown.
    let rest = Traffic { sent: traffic.sent[4..].to_vec(), keys: traffic.keys.clone() };
    let explanation = explained(&pcap(DataLink::ETHERNET, &udp_frames(&rest)), Some(&traffic.key_log()));
    assert!(!explanation.problems.is_empty());
}

#[test]
fn explains_dtls_1_2_with_and_without_connection_ids() {
    for suite in [
        &TLS12_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        &TLS12_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        &TLS12_ECDHE_ECDSA_WITH_AES_128_CCM_8,
    ] {
        for with_ids in [false, true] {
            let traffic = dtls12(suite, with_ids);
            let file = pcap(DataLink::ETHERNET, &udp_frames(&traffic));
            let explanation = explained(&file, Some(&traffic.key_log()));
            assert_eq!(explanation.problems, Vec::<String>::new());
            assert_eq!(explanation.bytes.of(Layer::Sealed), 0);
            let data = "application data";
            let close = "alert warning close_notify";
            let client = [
                "ClientHello",
                "ClientHello",
                "Certificate",
                "ClientKeyExchange",
                "CertificateVerify",
                "ChangeCipherSpec",
                "Finished",
                data,
                data,
                close,
            ];
            let server = [
                "HelloVerifyRequest",
                "ServerHello",
                "Certificate",
                "ServerKeyExchange",
                "CertificateRequest",
                "ServerHelloDone",
                "ChangeCipherSpec",
                "Finished",
                data,
                close,
            ];
            assert_eq!(messages(&explanation, Side::Client), client);
            assert_eq!(messages(&explanation, Side::Server), server);
            let flow = &explanation.flows[0];
            assert_eq!((flow.protocol, flow.version.as_deref()), (Some("DTLS"), Some("DTLSv1.2")));
            let lens = [Side::Client, Side::Server].map(|side| ids(&explanation, side));
            let lens = lens.map(|ids| ids.iter().map(String::len).collect::<Vec<_>>());
            assert_eq!(lens, if with_ids { [vec![10], vec![8]] } else { [vec![], vec![]] });
            let protected = flow.records.iter().filter(|record| record.epoch == Some(1));
            assert!(protected.into_iter().all(|record| (record.content_type == "tls12_cid") == with_ids));
            // The certificates are fragmented.
            assert!(common::parts(flow).filter(|part| part.name == "Certificate").count() > 2);

            let closed = explained(&file, None);
            assert_eq!(closed.problems, Vec::<String>::new());
            assert_eq!(closed.bytes.tls(), explanation.bytes.tls());
        }
    }
}

#[test]
fn an_association_that_moves_is_one_flow_with_several_paths() {
    for suite in [None, Some(&TLS12_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256)] {
        let (frames, traffic) = common::dtls_moved(suite);
        let file = pcap(DataLink::ETHERNET, &frames);
        let explanation = explained(&file, Some(&traffic.key_log()));
        assert_eq!(explanation.problems, Vec::<String>::new());
        let [flow] = &explanation.flows[..] else { panic!("{} flows", explanation.flows.len()) };
        let clients: Vec<_> = flow.paths.iter().map(|path| path.client.to_string()).collect();
        assert_eq!(clients, ["10.0.0.1:40000", "10.0.0.77:40000"]);
        // Each packet is on the path of its addresses, in the order of the capture.
        let order: Vec<_> = flow.packets.iter().map(|packet| (packet.frame, packet.path.unwrap())).collect();
        assert!(order.is_sorted() && order.len() == frames.len());
        let runs: Vec<_> = order.chunk_by(|a, b| a.1 == b.1).map(|run| run[0].1).collect();
        assert_eq!(runs, [1, 2, 1]);
        for (side, name) in [(Side::Server, "path_challenge"), (Side::Client, "path_response")] {
            let names = messages(&explanation, side);
            assert_eq!(names.iter().filter(|found| *found == name).count(), 2, "{names:?}");
        }
        let cookies: Vec<_> = common::parts(flow).filter(|part| part.name.starts_with("path_")).collect();
        assert_eq!(cookies[0].fields[1].value, cookies[1].fields[1].value);
        let text = explanation.to_string();
        assert!(text.contains("  path 2: 10.0.0.77:40000 to 10.0.0.2:4433"), "{text}");
        assert!(text.contains("  path 2\n"), "{text}");
        // Without keys, the connection ID shows that the datagrams belong together.
        let sealed = explained(&file, None);
        assert_eq!((sealed.flows.len(), sealed.flows[0].paths.len()), (1, 2));
    }
}

#[test]
fn an_association_whose_server_answers_from_another_port_is_one_flow() {
    let older = |ids| dtls12(&TLS12_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, ids);
    for traffic in [dtls(&TLS13_AES_128_GCM_SHA256), older(false), older(true)] {
        let frames = common::frames_with_a_port(&traffic, 6000);
        let explanation = explained(&pcap(DataLink::ETHERNET, &frames), Some(&traffic.key_log()));
        assert_eq!(explanation.problems, Vec::<String>::new());
        let [flow] = &explanation.flows[..] else { panic!("{} flows", explanation.flows.len()) };
        let servers: Vec<_> = flow.paths.iter().map(|path| path.server.to_string()).collect();
        assert_eq!(servers, ["10.0.0.2:4433", "10.0.0.2:6000"]);
        let names = messages(&explanation, Side::Server);
        assert!(names.iter().any(|name| name == "Finished"), "{names:?}");
    }
}

/// Scripts rely on these names.
#[test]
fn json_keeps_its_field_names() {
    let traffic = tls(&TLS13_AES_128_GCM_SHA256, 10);
    let explanation = explained(&tcp_capture(&segments(&traffic, 1000)), Some(&traffic.key_log()));
    let json = serde_json::to_value(&explanation).unwrap();
    let flow = &json["flows"][0];
    assert_eq!(flow["carrier"], "tcp");
    assert_eq!(flow["client"], "10.0.0.1:40000");
    assert_eq!(flow["version"], "TLSv1.3");
    assert_eq!(flow["messages"][0]["name"], "ClientHello");
    assert_eq!(flow["messages"][0]["from"], "client");
    assert_eq!(flow["messages"][0]["bytes"], traffic.sent[0].1.len() - 5);
    assert_eq!(flow["packets"][0]["flags"], "SYN");
    let record = &flow["records"][0];
    assert_eq!((&record["content_type"], &record["protection"]), (&"handshake".into(), &"none".into()));
    assert_eq!(record["parts"][0]["layer"], "handshake");
    assert_eq!(record["parts"][0]["fields"][6]["name"], "extensions");
    let names: Vec<_> = json["bytes"].as_object().unwrap().keys().cloned().collect();
    for name in ["total_bytes", "link_bytes", "ip_bytes", "transport_bytes", "tls_bytes", "handshake_bytes"] {
        assert!(names.iter().any(|n| n == name), "{name} in {names:?}");
    }
    assert_eq!(json["problems"].as_array().map(Vec::len), Some(0));
}

#[test]
fn gives_the_first_flight_of_each_client() {
    let of_client = |traffic: &Traffic| -> Vec<Vec<u8>> {
        let sent = traffic.sent.iter().filter(|(side, _)| *side == Side::Client);
        sent.map(|(_, bytes)| bytes.clone()).collect()
    };
    let stream = tls(&TLS13_AES_128_GCM_SHA256, 0);
    let flights = first_flights(&tcp_capture(&segments(&stream, 100))).unwrap();
    let flow = &explained(&tcp_capture(&segments(&stream, 100)), None).flows[0];
    assert_eq!(flights.len(), 1);
    assert_eq!((Some(flights[0].client), Some(flights[0].server)), (flow.client, flow.server));
    assert_eq!(flights[0].packets, [of_client(&stream).concat()]);

    let datagrams = dtls(&TLS13_AES_128_GCM_SHA256);
    let frames = udp_frames(&datagrams);
    let flights = first_flights(&pcap(DataLink::ETHERNET, &frames)).unwrap();
    assert_eq!(flights[0].packets, of_client(&datagrams));
    // A capture that begins after the ClientHello has none.
    assert_eq!(first_flights(&pcap(DataLink::ETHERNET, &frames[frames.len() - 2..])).unwrap(), []);
    assert_eq!(first_flights(b"no capture"), Err(Error::NotACapture));
}
