//! Measures the heap of an idle connection after its handshake: the bytes that `malloc` has allocated and not
//! freed. This counts C libraries as well as Rust. Each competitor runs in a separate process.

use std::process::Command;

use crate::handshake::HANDSHAKES;
use crate::stack::Competitor;
use crate::table::{self, Rounds};

/// Enough connections to make the pieces negligible that `malloc` keeps for the next call.
const CONNECTIONS: usize = 2000;

pub(crate) fn race() {
    table::heading("bytes", "heap");
    let mut rounds = Rounds::default();
    rounds.play(0, |competitor| {
        let name = Competitor::ALL[competitor].name();
        let program = std::env::current_exe().unwrap();
        let output = Command::new(program).args(["heap", name]).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let mut bytes = text.split_whitespace().map(|bytes| bytes.parse().unwrap());
        Some([bytes.next().unwrap(), bytes.next().unwrap()])
    });
    rounds.print("idle connection", &["client", "server"]);
}

/// Prints the heap of a client and of a server.
pub(crate) fn measure(competitor: &str) {
    let stack = HANDSHAKES[0].1.stack(Competitor::named(competitor)).expect("all have it");
    let mut clients = Vec::new();
    let mut servers = Vec::new();
    for _ in 0..CONNECTIONS {
        let [client, server] = stack.connect(None).ends;
        clients.push(client);
        servers.push(server);
    }
    let sizes = [clients, servers].map(|mut ends| {
        let before = allocated();
        ends.clear();
        (before - allocated()) / CONNECTIONS
    });
    println!("{} {}", sizes[0], sizes[1]);
}

/// The bytes that `malloc` has allocated.
fn allocated() -> usize {
    #[expect(unsafe_code, reason = "glibc has no other interface for it")]
    // SAFETY: the function takes no arguments and returns a struct of numbers.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}
