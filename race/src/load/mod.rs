//! Measures how many records of 64 bytes a DTLS server echoes in a second, with many associations. The server
//! has one core and the client the other.

mod client;
mod instructions;
mod server;
mod wire;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use dunlin::auth::Psk;
use dunlin::{ConnectionIds, NodeIds, Profile};
use dunlin_awslc::tls12::TLS12_PSK_CIPHER_SUITES;
use dunlin_tests::awslc;

pub(crate) use client::load;
pub(crate) use instructions::{count_records, perform};
pub(crate) use server::serve;

use crate::handshake::{PSK, PSK_IDENTITY};

/// The associations of the client, each from its own address.
const ASSOCIATIONS: usize = 10_000;
const ROUNDS: usize = 3;

/// The servers: the name, and whether the client offers connection IDs.
const SERVERS: &[(&str, bool)] = &[
    ("dunlin, by address", false),
    ("dunlin, by connection ID", true),
    ("dunlin-tokio, by address", false),
    ("dunlin-tokio, by connection ID", true),
    ("pion, by address", false),
    ("pion, by connection ID", true),
    #[cfg(feature = "openssl")]
    ("openssl, by address", false),
];

fn profile() -> Profile {
    let is_gcm = |suite: &str| suite == "TLS_PSK_WITH_AES_128_GCM_SHA256";
    let suites = TLS12_PSK_CIPHER_SUITES.iter().copied().filter(|suite| is_gcm(&suite.id.to_string()));
    Profile::builder(awslc()).cipher_suites(vec![]).tls12_cipher_suites(suites.collect()).build().unwrap()
}

fn psk() -> Psk {
    Psk::new(PSK_IDENTITY, &PSK).unwrap()
}

fn ids() -> Arc<dyn ConnectionIds> {
    Arc::new(NodeIds::new(&[], 8, awslc().random.clone()).unwrap())
}

/// Prints the records in a second of each server, their cost and its memory, and the ratios in the same
/// round. A server takes part if its name contains `part`; the ratios divide the first server's values by its
/// own.
pub(crate) fn race(part: &str) {
    let servers: Vec<_> = SERVERS.iter().filter(|(name, _)| name.contains(part)).collect();
    let mut all = vec![Vec::new(); servers.len()];
    for round in 0..ROUNDS {
        for turn in 0..servers.len() {
            let at = (round + turn) % servers.len();
            all[at].push(measure(*servers[at]));
        }
    }
    println!(
        "\n| server, DTLS 1.2, {ASSOCIATIONS} associations | records/s | µs of the server's processor time each | kB of memory for an association | records/s, the first / it | µs, the first / it |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    for (at, (name, _)) in servers.iter().enumerate() {
        let value = |i: usize| median(all[at].iter().map(|values| values[i]));
        let ratio = |i: usize| median(all[0].iter().zip(&all[at]).map(|(ours, theirs)| ours[i] / theirs[i]));
        println!(
            "| {name} | {:.0} | {:.2} | {:.1} | {:.2} | {:.2} |",
            value(0),
            value(1),
            value(2),
            ratio(0),
            ratio(1)
        );
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A process that ends with this value.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server on the first core and a client on the second. Returns the records in a second, and the
/// server's processor time for each in microseconds.
fn measure((name, has_ids): (&str, bool)) -> [f64; 3] {
    let program = std::env::current_exe().unwrap().to_str().unwrap().to_owned();
    let mut command = Command::new("taskset");
    command.args(["-c", "0"]);
    match name.split(',').next() {
        Some("pion") => {
            let secret: String = PSK.iter().map(|byte| format!("{byte:02x}")).collect();
            let target = std::path::Path::new(&program).with_file_name("pion");
            let pion = dunlin_tests::peer::build_go("pion", target.to_str().unwrap());
            command.args([&*pion, "-role", "server", "-load", "-psk", &secret, "-identity", PSK_IDENTITY]);
            command.args(["-cid", if has_ids { "8" } else { "-1" }]).env("GOMAXPROCS", "1");
        }
        Some(kind) => {
            command.args([&*program, "load-server", kind, if has_ids { "ids" } else { "address" }]);
        }
        None => panic!("a name"),
    }
    let mut server = Server(command.stdout(Stdio::piped()).spawn().expect("taskset"));
    let mut lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let line = lines.next().expect("a server").unwrap();
    let port = line.strip_prefix("listening ").unwrap_or_else(|| panic!("{name}: {line}")).to_owned();
    let id = server.0.id().to_string();
    let output = Command::new("taskset")
        .args(["-c", "1", &program, "load-client", &port, &id, if has_ids { "ids" } else { "address" }])
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut numbers = text.split_whitespace().map(|number| number.parse().unwrap());
    let result: [f64; 3] = std::array::from_fn(|_| numbers.next().unwrap_or_else(|| panic!("{name}")));
    eprintln!(
        "{name}: {:.0} records/s, {:.2} µs each, {:.1} kB an association",
        result[0], result[1], result[2]
    );
    result
}
