//! Runs every target over its corpus and all findings, and checks which code the corpora reach.
//!
//! The limits on memory count the allocations of the whole process, so the tests run one at a time.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use dunlin_fuzz::seeds;
use dunlin_fuzz::setting::Setting;
use dunlin_fuzz::{TARGETS, handshake};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Returns the files in a folder under `fuzz`, by name; none if the folder does not exist.
fn inputs(folder: &str, target: &str) -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(target);
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut all: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(path).unwrap()))
        .collect();
    all.sort();
    all
}

/// Two thirds of each corpus reach the code that the target is for: they decode, deliver or connect. The
/// corpus is the folder's content and the seeds that the program makes from current handshakes.
#[test]
fn corpora_reach_their_targets() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for (target, run) in TARGETS {
        let made = seeds::all().into_iter().filter(|seed| seed.target == target).map(|seed| seed.input);
        let corpus: BTreeSet<Vec<u8>> =
            inputs("corpus", target).into_iter().map(|(_, input)| input).chain(made).collect();
        let reached = corpus.iter().filter(|input| run(input)).count();
        println!("{target}: {reached} of {} inputs", corpus.len());
        assert!(reached * 3 >= corpus.len() * 2 && reached > 0, "{target}: {reached} of {}", corpus.len());
    }
}

/// Findings stay fixed. The name of a file describes the fault.
#[test]
fn findings() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for (target, run) in TARGETS {
        for (name, input) in inputs("findings", target) {
            println!("{target}/{name}");
            run(&input);
        }
    }
}

/// The first bytes of settings with TLS 1.2, and of some with DTLS 1.2: ECDHE with every way and resumption,
/// and every other key exchange and version beside it without resumption.
fn tls12() -> impl Iterator<Item = u8> {
    let is_chosen = |first: &u8| first & 1 == 0 || *first < 64 || first & 0b11000 == 0;
    (32..=255).filter(is_chosen)
}

#[test]
fn every_setting_connects_without_changes() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for first in (0..32).chain(tls12()) {
        // With the handshake cache, and everything else that decides which certificates are omitted.
        let cached = (1..4).flat_map(|mode| [0, 1, 2].map(|auth| mode << 4 | auth));
        for second in (0..16).chain(cached) {
            for flags in (0..16).map(|bit| 1 << bit).chain([0, 0xffff, 0xdfff, 0x1fdf, 0x1ffc, 0x1fdc]) {
                let input = Setting::write(first, second, flags);
                assert!(handshake::client(&input), "client {input:?}");
                assert!(handshake::server(&input), "server {input:?}");
            }
        }
    }
}

/// Without the values that prove an identity, no handshake completes, whatever the setting. The tests above
/// show that handshakes get that far.
#[test]
fn no_setting_connects_without_proof() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    const MAC: u8 = 1;
    const TAG: u8 = 2;
    const SIGNATURE: u8 = 3;
    const BINDER: u8 = 4;
    // Without the handshake cache, and with each of its modes.
    let all = (0..32).chain(tls12()).flat_map(|first| [0x02, 0x12, 0x22, 0x32].map(|second| (first, second)));
    for (first, second) in all {
        // TLS and DTLS with certificates or raw public keys, and without resumption. The others need no
        // signature.
        let is_signed = first & 0b11100 == 0;
        for flags in (0..16).map(|bit| 1 << bit).chain([0]) {
            for withheld in [MAC, TAG].into_iter().chain(is_signed.then_some(SIGNATURE)) {
                let input = [Setting::write(first, second, flags), vec![withheld]].concat();
                assert!(!handshake::client(&input), "client {input:?}");
                assert!(!handshake::server(&input), "server {input:?}");
            }
            // A binder proves an identity to a server.
            let is_psk = first & 4 != 0 && first < 32;
            let input = [Setting::write(first, second, flags), vec![BINDER]].concat();
            assert!(!is_psk || !handshake::server(&input), "server {input:?}");
        }
    }
}
