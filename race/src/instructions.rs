//! Counts the instructions of a handshake with valgrind's callgrind, which other processes do not disturb.
//! The processor that valgrind emulates has AES-NI and AVX2, but no SHA extensions and no AVX-512.

use std::hint::black_box;
use std::process::Command;

use crate::handshake::{HANDSHAKES, Handshake};
use crate::stack::Competitor;
use crate::table::{self, Rounds};

/// The number of counted handshakes.
const COUNT: usize = 20;
/// The number of handshakes before, which exclude one-time initialisation from the count.
const WARM_UP: usize = 3;

pub(crate) fn race() {
    table::heading("million instructions", "instructions");
    for (name, handshake) in HANDSHAKES {
        let mut rounds = Rounds::default();
        rounds.play(0, |competitor| {
            let competitor = Competitor::ALL[competitor];
            handshake.stack(competitor)?;
            Some(["client", "server"].map(|side| count(name, competitor.name(), side)))
        });
        rounds.print(name, &["client", "server"]);
        rounds.print_sum(&format!("{name}, both"));
    }
    crate::load::count_records();
}

fn count(name: &str, competitor: &str, side: &str) -> f64 {
    let count = COUNT.to_string();
    collected(&["handshake", name, competitor, side, &count]) / COUNT as f64 / 1e6
}

/// Runs this program with these arguments under valgrind. Returns the instructions of the counted work.
pub(crate) fn collected(args: &[&str]) -> f64 {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=*counted_work*"])
        .arg(std::env::current_exe().unwrap())
        .args(args)
        .output()
        .expect("valgrind: install Debian's package of this name");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "valgrind: {said}");
    let collected = said.lines().find_map(|line| line.split_once("Collected : "));
    let (_, collected) = collected.unwrap_or_else(|| panic!("valgrind: {said}"));
    collected.trim().parse().unwrap()
}

/// Connects `count` times. The work of one side goes through a function that valgrind counts.
pub(crate) fn perform(name: &str, competitor: &str, side: &str, count: &str) {
    let side = ["client", "server"].iter().position(|known| *known == side).expect("client or server");
    let stack = handshake(name).stack(Competitor::named(competitor)).expect("a handshake that it has");
    for _ in 0..WARM_UP {
        black_box(stack.connect(None));
    }
    for _ in 0..count.parse().expect("a number") {
        black_box(stack.connect(Some(side)));
    }
}

fn handshake(name: &str) -> Handshake {
    HANDSHAKES.iter().find(|(known, _)| *known == name).expect("a handshake of the table").1
}
