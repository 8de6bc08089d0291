//! Damages captures in every place. The bytes must still add up, and nothing may panic.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use common::{check, dtls, pcap, segments, tcp_capture, tls, udp_frames};
use dunlin_awslc::TLS13_AES_128_GCM_SHA256;
use dunlin_explain::{KeyLog, explain, explain_hex};
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;

/// Truncates `file` at every byte, and changes every byte in three ways.
fn damage(file: &[u8], key_log: &KeyLog) {
    let whole = explain(file, Some(key_log)).unwrap();
    assert_eq!(whole.problems, Vec::<String>::new());
    for len in 0..file.len() {
        if let Ok(explanation) = explain(&file[..len], Some(key_log)) {
            check(&explanation);
            assert!(explanation.bytes.total() < whole.bytes.total(), "cut at {len}");
            assert!(!explanation.to_string().is_empty() || explanation.frames == 0);
        }
    }
    let mut changed = file.to_vec();
    for at in 0..file.len() {
        for change in [0x01, 0x80, 0xff] {
            changed[at] ^= change;
            if let Ok(explanation) = explain(&changed, Some(key_log)) {
                check(&explanation);
            }
            changed[at] = file[at];
        }
    }
}

#[test]
fn survives_damage_to_a_pcap_file_with_tls() {
    let traffic = tls(&TLS13_AES_128_GCM_SHA256, 10);
    damage(&tcp_capture(&segments(&traffic, 700)), &traffic.key_log());
}

#[test]
fn survives_damage_to_a_pcap_file_with_dtls() {
    let traffic = dtls(&TLS13_AES_128_GCM_SHA256);
    damage(&pcap(DataLink::ETHERNET, &udp_frames(&traffic)), &traffic.key_log());
}

#[test]
fn survives_damage_to_a_pcapng_file() {
    let traffic = tls(&TLS13_AES_128_GCM_SHA256, 10);
    let mut file = Vec::new();
    let mut writer = PcapNgWriter::new(&mut file).unwrap();
    writer.write_pcapng_block(InterfaceDescriptionBlock::new(DataLink::ETHERNET, 0)).unwrap();
    for segment in segments(&traffic, 700) {
        let frame = segment.frame();
        let packet = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: std::time::Duration::from_nanos(1),
            original_len: frame.len() as u32,
            data: frame.into(),
            options: Vec::new(),
        };
        writer.write_pcapng_block(packet).unwrap();
    }
    damage(&file, &traffic.key_log());
}

/// Damages records directly, without the headers of a capture around them.
#[test]
fn survives_damage_to_records_and_messages() {
    let traffic = tls(&TLS13_AES_128_GCM_SHA256, 10);
    let datagrams = dtls(&TLS13_AES_128_GCM_SHA256);
    for (_, bytes) in traffic.sent[..2].iter().chain(&datagrams.sent[..4]) {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        for start in [0, 5, 13] {
            for len in 0..bytes.len() - start {
                let mut bytes = bytes[start..start + len].to_vec();
                for change in [0, 0x11, 0xff] {
                    if let Some(last) = bytes.last_mut() {
                        *last ^= change;
                    }
                    if let Ok(explanation) = explain_hex(&hex(&bytes), None) {
                        check(&explanation);
                        assert_eq!(explanation.bytes.total(), bytes.len() as u64);
                    }
                }
            }
        }
    }
}
