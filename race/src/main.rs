//! A race in memory, on one thread: dunlin and rustls, both over AWS-LC, and OpenSSL take turns.
//!
//! ```sh
//! make race                                          # all of it
//! cd race && cargo run --release -- time             # time, throughput and heap
//! cd race && cargo run --release -- instructions     # instructions, counted by valgrind
//! cd race && cargo run --release -- heap
//! ```
//!
//! Mutual TLS 1.3, chain of three of which leaf and intermediate are sent, key share on P-256, AES-128-GCM-SHA256. What a
//! side takes is all from the making of its connection on, key share included. Bulk data goes in records of 16 KiB, one
//! way. TLS 1.2 has the same with ECDHE_ECDSA and ECDHE_RSA, and TLS_PSK_WITH_AES_128_GCM_SHA256, which rustls does not
//! have.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a race may fail")]

mod dunlin;
mod handshake;
mod heap;
mod instructions;
#[cfg(feature = "openssl")]
mod openssl;
mod rustls;
mod stack;
mod table;

use handshake::HANDSHAKES;
use stack::{Competitor, Stack};

/// How often all take their turn.
const ROUNDS: usize = 101;

fn main() {
    let args: Vec<_> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            time();
            heap::race();
            instructions::race();
        }
        ["time"] => time(),
        ["heap"] => heap::race(),
        ["heap", competitor] => heap::measure(competitor),
        ["instructions"] => instructions::race(),
        ["handshake", name, competitor, side, count] => {
            instructions::perform(name, competitor, side, count);
        }
        _ => {
            eprintln!(
                "usage: dunlin-race [time | heap [COMPETITOR] | instructions | handshake NAME COMPETITOR client|server COUNT]"
            );
            std::process::exit(2);
        }
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
