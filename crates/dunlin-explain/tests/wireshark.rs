//! Tests the Wireshark dissector (wireshark/dunlin.lua) by the output of tshark.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::process::Command;

use common::Traffic;
use dunlin::Side;
use dunlin_awslc::TLS13_AES_128_GCM_SHA256;
use dunlin_awslc::tls12::TLS12_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
use pcap_file::DataLink;

/// The values of these fields, one line for each packet that has any of them.
fn fields(traffic: &Traffic, fields: &[&str]) -> Vec<String> {
    let arguments = ["-T", "fields"].into_iter().chain(fields.iter().flat_map(|field| ["-e", field]));
    let output = tshark(traffic, arguments);
    output.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
}

/// The number of packets that match this filter.
fn shown(traffic: &Traffic, filter: &str) -> usize {
    tshark(traffic, ["-Y", filter]).lines().count()
}

fn tshark<'a>(traffic: &Traffic, arguments: impl IntoIterator<Item = &'a str>) -> String {
    run(&common::tcp_capture(&common::segments(traffic, 1000)), traffic, arguments)
}

/// The output for traffic in datagrams.
fn tshark_of_datagrams<'a>(traffic: &Traffic, arguments: impl IntoIterator<Item = &'a str>) -> String {
    run(&common::pcap(DataLink::ETHERNET, &common::udp_frames(traffic)), traffic, arguments)
}

fn run<'a>(capture: &[u8], traffic: &Traffic, arguments: impl IntoIterator<Item = &'a str>) -> String {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("capture"), capture).unwrap();
    std::fs::write(place.path().join("keys"), &traffic.keys).unwrap();
    let mut tshark = Command::new("tshark");
    let script = concat!("lua_script:", env!("CARGO_MANIFEST_DIR"), "/../../wireshark/dunlin.lua");
    tshark.args(["-r", "capture", "-o", "tls.keylog_file:keys", "-X", script]);
    tshark.args(["-d", "udp.port==4433,dtls"]).args(arguments);
    tshark.current_dir(place.path());
    let output = tshark.output().expect("tshark runs: `tools/setup test` installs it");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && !errors.to_lowercase().contains("lua"), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// A record with a ClientHello that has one extension.
fn client_hello(extension: &[u8]) -> Traffic {
    let head = [&[3, 3][..], &[7; 32], &[0, 0, 2, 0x13, 1, 1, 0]].concat();
    let len = |len: usize| (len as u16).to_be_bytes();
    let body = [&head, &len(extension.len())[..], extension].concat();
    let message = [&[1, 0][..], &len(body.len()), &body].concat();
    let record = [&[22, 3, 1][..], &len(message.len()), &message].concat();
    Traffic { sent: vec![(Side::Client, record)], keys: String::new() }
}

#[test]
fn dissects_the_handshake_cache_of_tls_1_3() {
    let [initial, repeat] = common::tls_cached(&TLS13_AES_128_GCM_SHA256);
    let all = [
        "dunlin.handshake_cache.flags",
        "dunlin.handshake_cache.certificate",
        "dunlin.handshake_cache.ticket",
        "dunlin.handshake_cache.index",
        "dunlin.abbreviated",
        "dunlin.malformed",
    ];
    assert_eq!(fields(&initial, &all), [""; 0], "both sides only announce their support");
    assert_eq!(shown(&initial, "dunlin.handshake_cache"), 2);
    let found = fields(&repeat, &all);
    let [hello, server, client] = &found[..] else { panic!("{found:?}") };
    let words: Vec<_> = hello.split('\t').collect();
    let [flags, certificate, ticket, ..] = words[..] else { panic!("{hello}") };
    assert_eq!((flags, certificate.len(), ticket.len()), ("0x01", 16, 16));
    assert_eq!(server, "0x01\t\t\t0\t11\t");
    assert_eq!(client, "\t\t\t\t11\t");
    let words = "Certificate, abbreviated";
    let lines = tshark(&repeat, []);
    assert_eq!(lines.lines().filter(|line| line.contains(&format!("[{words}]"))).count(), 2, "{lines}");
    assert!(tshark(&repeat, ["-V"]).contains(&format!("{words}: the receiver has it in its cache")));
}

#[test]
fn dissects_the_handshake_cache_of_dtls_1_2() {
    let [initial, repeat] = common::dtls12_cached(&TLS12_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256);
    let all = ["dunlin.handshake_cache.flags", "dunlin.abbreviated", "dunlin.malformed"];
    let arguments = ["-T", "fields"].into_iter().chain(all.iter().flat_map(|field| ["-e", field]));
    let found = |traffic: &Traffic| -> Vec<String> {
        let output = tshark_of_datagrams(traffic, arguments.clone());
        output.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
    };
    assert_eq!(found(&initial), [""; 0], "both sides only announce their support");
    // Both ClientHellos, then the server's flight with its request, and the client's.
    assert_eq!(found(&repeat), ["0x03\t\t", "0x03\t\t", "0x03\t11,13\t", "\t11\t"]);
}

/// Fragments of a message are not malformed messages.
#[test]
fn takes_fragments_of_datagrams_for_what_they_are() {
    let traffic = common::dtls12(&TLS12_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, false);
    assert_eq!(tshark_of_datagrams(&traffic, ["-Y", "dunlin.malformed"]), "");
}

/// `explain` and Wireshark find the same records, also with connection IDs.
#[test]
fn explain_agrees_with_wireshark_on_records_of_dtls_1_2() {
    for ids in [false, true] {
        let traffic = common::dtls12(&TLS12_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, ids);
        let all = ["dtls.record.epoch", "dtls.record.sequence_number", "dtls.record.length"];
        let arguments = ["-T", "fields"].into_iter().chain(all.iter().flat_map(|field| ["-e", field]));
        let output = tshark_of_datagrams(&traffic, arguments);
        let mut expected = Vec::new();
        for line in output.lines() {
            let columns: Vec<Vec<&str>> =
                line.split('\t').map(|column| column.split(',').collect()).collect();
            let [epochs, numbers, lengths] = &columns[..] else { panic!("{line}") };
            for ((epoch, number), length) in epochs.iter().zip(numbers).zip(lengths) {
                expected.push([epoch, number, length].map(|value| value.parse::<u64>().unwrap()));
            }
        }
        let file = common::pcap(DataLink::ETHERNET, &common::udp_frames(&traffic));
        let explanation = common::explained(&file, Some(&traffic.key_log()));
        let records = explanation.flows[0].records.iter().map(|record| {
            let length = (record.bytes() - record.header_bytes) as u64;
            [record.epoch.unwrap(), record.number.unwrap(), length]
        });
        assert_eq!(records.collect::<Vec<_>>(), expected);
        assert!(expected.len() > 15, "{}", expected.len());
    }
}

/// The client goes to another address and back.
#[test]
fn shows_the_path_of_each_record_and_checks_of_paths() {
    let (frames, traffic) = common::dtls_moved(Some(&TLS12_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256));
    let arguments = ["-T", "fields", "-e", "dtls.record.connection_id", "-e", "ip.src", "-e", "dunlin.path"];
    let capture = common::pcap(DataLink::ETHERNET, &frames);
    let output = run(&capture, &traffic, arguments);
    let mut paths = Vec::new();
    for line in output.lines().filter(|line| !line.starts_with('\t')) {
        let [_, from, path] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        // The server has only one address.
        let expected = if from == "10.0.0.77" { "2" } else { "1" };
        assert_eq!(path, expected, "{line}");
        paths.push(path.to_owned());
    }
    assert!(paths.contains(&"2".to_owned()) && paths.ends_with(&["1".to_owned()]), "{paths:?}");
    // Two challenges and two answers.
    let checks = run(&capture, &traffic, ["-Y", "dunlin.path_check"]);
    assert_eq!(
        checks.lines().filter(|line| line.contains("[return_routability_check]")).count(),
        4,
        "{checks}"
    );
}

#[test]
fn dissects_cached_info_of_rfc_7924() {
    let object = [&[1, 32][..], &[0xab; 32]].concat();
    let extension = [&[0, 25, 0, 36, 0, 34][..], &object].concat();
    let found =
        fields(&client_hello(&extension), &["dunlin.cached_info.type", "dunlin.cached_info.hash_value"]);
    assert_eq!(found, [format!("1\t{}", "ab".repeat(32))]);
}

#[test]
fn dissects_the_offer_of_another_port() {
    let fields = |extension: &[u8], names: &[&str]| fields(&client_hello(extension), names);
    let offer = [0xff, 0x23, 0, 1, 2];
    let names = ["modes", "modes.ipc", "modes.tcs"].map(|name| format!("dunlin.association_port.{name}"));
    let found = fields(&offer, &names.each_ref().map(String::as_str));
    assert!(found == ["0x02\tFalse\tTrue"] || found == ["0x02\t0\t1"], "{found:?}");
    assert_eq!(shown(&client_hello(&[0xff, 0x23, 0, 2, 2, 1]), "dunlin.malformed"), 1);
    assert_eq!(shown(&client_hello(&[0xff, 0x23, 0, 0]), "dunlin.malformed"), 1);
}

#[test]
fn marks_extensions_that_are_too_short_as_malformed() {
    let malformed = |extension: &[u8]| shown(&client_hello(extension), "dunlin.malformed");
    assert_eq!(malformed(&[0xff, 0x20, 0, 9, 1, 1, 2, 3, 4, 5, 6, 7, 8]), 0);
    assert_eq!(malformed(&[0xff, 0x20, 0, 8, 1, 1, 2, 3, 4, 5, 6, 7]), 1);
    assert_eq!(malformed(&[0, 25, 0, 1, 7]), 1);
}
