//! Compares dunlin and rustls, both over AWS-LC, and OpenSSL. They take turns in memory, on one thread.
//!
//! ```sh
//! make race                                          # everything
//! cd race && cargo run --release -- time             # time, throughput and heap
//! cd race && cargo run --release -- instructions     # instructions, counted by valgrind
//! cd race && cargo run --release -- heap
//! cd race && cargo run --release -- load             # DTLS servers, with Pion: needs Go (tools/setup test)
//! ```
//!
//! The handshake is mutual TLS 1.3 with a chain of three (leaf and intermediate are sent), a key share on
//! P-256, and AES-128-GCM-SHA256. The costs of a side begin with making its connection, including the key
//! share. Bulk data goes in records of 16 KiB in one direction. TLS 1.2 is measured likewise with ECDHE_ECDSA
//! and ECDHE_RSA, and with TLS_PSK_WITH_AES_128_GCM_SHA256, which rustls does not support.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a race may fail")]

mod dunlin;
mod handshake;
mod heap;
mod instructions;
mod load;
#[cfg(feature = "openssl")]
mod openssl;
mod rustls;
mod stack;
mod table;

use handshake::HANDSHAKES;
use stack::{Competitor, Stack};

/// The number of rounds. In each round every competitor takes a turn.
const ROUNDS: usize = 101;

fn main() {
    let args: Vec<_> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            heading();
            time();
            heap::race();
            instructions::race();
        }
        ["time"] => {
            heading();
            time();
        }
        ["heap"] => {
            heading();
            heap::race();
        }
        ["heap", competitor] => heap::measure(competitor),
        ["instructions"] => {
            heading();
            instructions::race();
        }
        ["load"] => {
            heading();
            load::race("");
        }
        ["load", part] => load::race(part),
        ["load-records", kind, ids] => load::perform(kind, ids == "ids"),
        ["load-server", kind, ids] => load::serve(kind, ids == "ids"),
        ["load-client", port, server, ids] => load::load(port, server, ids == "ids"),
        ["handshake", name, competitor, side, count] => {
            instructions::perform(name, competitor, side, count);
        }
        _ => {
            eprintln!(
                "usage: dunlin-race [time | heap [COMPETITOR] | instructions | load [PART OF A SERVER'S NAME] | handshake NAME COMPETITOR client|server COUNT]"
            );
            std::process::exit(2);
        }
    }
}

/// Prints the command, the date, the machine and the versions, for docs/measurements.
fn heading() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    println!("command: dunlin-race {}", arguments.join(" "));
    for (name, command) in [
        ("date", "date -u +%Y-%m-%dT%H:%M:%SZ"),
        ("processor", "sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1"),
        ("kernel", "uname -r"),
        ("rust", "rustc --version"),
        ("openssl", "openssl version"),
        ("rustls", "sed -n '/^name = \"rustls\"/{n;s/version = //p}' Cargo.lock"),
        ("aws-lc-rs", "sed -n '/^name = \"aws-lc-rs\"/{n;s/version = //p}' Cargo.lock"),
    ] {
        let output = std::process::Command::new("sh").args(["-c", command]).output().unwrap();
        println!("{name}: {}", String::from_utf8_lossy(&output.stdout).trim().trim_matches('"'));
    }
}

fn time() {
    let sides = ["client", "server"];
    table::heading("µs", "time");
    for (name, handshake) in HANDSHAKES {
        let stacks = Competitor::ALL.map(|competitor| handshake.stack(competitor));
        let mut rounds = table::Rounds::default();
        for round in 0..ROUNDS {
            rounds.play(round, |competitor| stacks[competitor].as_ref().map(Stack::round));
        }
        rounds.print(name, &sides);
    }
    table::heading("MB/s", "throughput");
    let stacks = Competitor::ALL.map(|competitor| HANDSHAKES[0].1.stack(competitor).expect("all have it"));
    let mut connections = stacks.each_ref().map(|stack| stack.connect(None));
    let mut rounds = table::Rounds::default();
    for round in 0..ROUNDS {
        rounds.play(round, |competitor| Some(connections[competitor].bulk()));
    }
    rounds.print("records of 16 KiB", &["seal", "open"]);
}
