//! The heap that an idle connection has after its handshake: what `malloc` has given out and not got back, whoever
//! asked, so that what the C libraries take is counted with what Rust takes. Each competitor has a process of its own.

use std::process::Command;

use crate::handshake::HANDSHAKES;
use crate::stack::Competitor;
use crate::table::{self, Rounds};

/// So many that the few pieces that `malloc` keeps back for the next call are nothing beside them.
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

/// Prints what a client and a server have.
pub(crate) fn measure(competitor: &str) {
    let stack = HANDSHAKES[0].1.stack(Competitor::named(competitor)).expect("all have it");
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
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

/// Bytes that `malloc` has given out.
fn allocated() -> usize {
    #[expect(unsafe_code, reason = "glibc tells it in no other way")]
    // SAFETY: it takes nothing and gives a struct of numbers.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}
