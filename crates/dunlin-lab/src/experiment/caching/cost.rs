//! What a handshake costs in memory on each side: the time of a processor, and instructions.
//!
//! Time is what the thread itself has spent, so that what others do on the machine is not in it. Instructions are those that
//! valgrind's callgrind counts in a process of its own, which this program starts from itself: virtual machines seldom let
//! anybody read the processor's counters. The processor that valgrind shows has AES-NI and AVX2, but no SHA extensions and no
//! AVX-512, so counts compare with counts only.

use std::ffi::OsString;
use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use dunlin::{ClientConfig, ServerAddress, ServerConfig, Side, TlsConnection};
use nix::time::{ClockId, clock_gettime};

use super::SERVER_NAME;
use super::case::{CONNECTIONS, Case, Credential, Handshake};
use super::dunlin::{client, expect, failed, server};
use super::foreign::Files;
use crate::Error;
use crate::net::on_own_thread;
use crate::report::Row;

/// Handshakes whose instructions are counted. They vary little: by the length of a number that was drawn.
const COUNTED: usize = 3;
/// Handshakes whose time is taken in a turn of a mode, and turns.
const TIMED: usize = 10;
const TURNS: usize = 10;

/// The ways of the second connection, ready to be measured.
struct Ends {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    repeat: Handshake,
}

impl Ends {
    /// After the first connection.
    fn new(case: &Case<'_>) -> Result<Self, Error> {
        let (client, server) = (Arc::new(client(case)?), Arc::new(server(case)?));
        let [initial, repeat] = case.mode.handshakes();
        let mut ends = Self { client, server, repeat: initial };
        ends.handshake(|_, work| work())?;
        ends.repeat = repeat;
        // The first of its kind finds nothing where it will be looked for: in no cache of the processor.
        ends.handshake(|_, work| work())?;
        Ok(ends)
    }

    /// Handshakes in memory. Each step of a side is `done`, from the making of its connection on.
    fn handshake(&self, mut done: impl FnMut(Side, &mut dyn FnMut())) -> Result<(), Error> {
        let now = dunlin_tokio::now();
        let (mut ours, mut theirs) = (None, None);
        done(Side::Client, &mut || {
            let address = ServerAddress::parse(SERVER_NAME, 0).map_err(failed);
            ours = Some(address.and_then(|to| TlsConnection::client(&self.client, to, now).map_err(failed)));
        });
        done(Side::Server, &mut || theirs = Some(TlsConnection::server(&self.server, now)));
        let missing = || failed("a connection was not made");
        let (mut ours, mut theirs) = (ours.ok_or_else(missing)??, theirs.ok_or_else(missing)?);
        let (mut side, mut wire, mut result) = (Side::Client, Vec::new(), Ok(0));
        loop {
            let end = if side == Side::Client { &mut ours } else { &mut theirs };
            done(side, &mut || {
                result = end.receive(now, &wire);
                wire.clear();
                wire.extend_from_slice(end.transmit());
                end.transmitted(wire.len());
            });
            result.as_ref().map_err(failed)?;
            if wire.is_empty() {
                break;
            }
            side = if side == Side::Client { Side::Server } else { Side::Client };
        }
        expect(Side::Client, ours.negotiated(), self.repeat)?;
        expect(Side::Server, theirs.negotiated(), self.repeat)
    }

    /// The microseconds that client and server take.
    fn time(&self) -> Result<[f64; 2], Error> {
        let mut spent = [Duration::ZERO; 2];
        self.handshake(|side, work| {
            let start = processor_time();
            work();
            spent[usize::from(side == Side::Server)] += processor_time().saturating_sub(start);
        })?;
        Ok(spent.map(|time| time.as_secs_f64() * 1e6))
    }
}

/// What this thread has spent so far; nothing where nobody tells.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Rows for the repeated connection of these keys, a mode each: time, and instructions where valgrind is there.
pub(super) fn rows(cases: &[Case<'_>], quick: bool, counts: bool) -> Result<Vec<Row>, Error> {
    let ends = cases.iter().map(Ends::new).collect::<Result<Vec<_>, _>>()?;
    let turns = if quick { 1 } else { TURNS };
    let times = on_own_thread(|| {
        let mut times = vec![[Vec::new(), Vec::new()]; ends.len()];
        for _ in 0..turns {
            for (ends, [client, server]) in ends.iter().zip(&mut times) {
                for _ in 0..TIMED {
                    let [ours, theirs] = ends.time()?;
                    client.push(ours);
                    server.push(theirs);
                }
            }
        }
        Ok::<_, Error>(times)
    })?;
    let rows = cases.iter().zip(&times).map(|(case, [client, server])| {
        let row = case.row("dunlin").with("connection", CONNECTIONS[1]);
        let row = row.figure("client_us", client).figure("server_us", server);
        if !counts {
            return Ok(row);
        }
        let [client, server] = count(case)?;
        Ok(row.figure("client_instructions", &[client]).figure("server_instructions", &[server]))
    });
    rows.collect()
}

const PROGRAM: &str = "valgrind";

/// Whether instructions can be counted here.
pub(super) fn can_count() -> Result<(), Error> {
    let version = Command::new(PROGRAM).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    match version {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(no_valgrind(status)),
        Err(error) => Err(no_valgrind(error)),
    }
}

fn no_valgrind(why: impl std::fmt::Display) -> Error {
    Error::new(PROGRAM, why, "install it to have instructions counted: apt-get install valgrind")
}

/// The instructions of client and server in a repeated connection.
fn count(case: &Case<'_>) -> Result<[f64; 2], Error> {
    let directory = tempfile::tempdir().map_err(no_valgrind)?;
    let counts = directory.path().join("counts");
    let keys = case.keys;
    let files = [Files::new(&keys.client, &keys.server)?, Files::new(&keys.server, &keys.client)?];
    let program = std::env::current_exe().map_err(no_valgrind)?;
    let mut command = Command::new(PROGRAM);
    command.args(["--tool=callgrind", "--compress-strings=no", "--compress-pos=no"]);
    command.args([CLIENT, SERVER].map(|name| format!("--toggle-collect=*{name}*")));
    command.arg(option("--callgrind-out-file=", &counts)).arg(program).args(["lab", "handshakes"]);
    command.args(case.words());
    command.args(files.iter().flat_map(Files::paths)).stdin(Stdio::null());
    let output = command.output().map_err(no_valgrind)?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        return Err(no_valgrind(told.lines().last().unwrap_or("it failed and does not say why")));
    }
    let counts = fs::read_to_string(counts).map_err(no_valgrind)?;
    let of = |name| match inclusive(&counts, name) {
        0 => Err(no_valgrind(format_args!("it has not seen {name}: was this program stripped?"))),
        sum => Ok(sum as f64 / COUNTED as f64),
    };
    Ok([of(CLIENT)?, of(SERVER)?])
}

fn option(name: &str, path: &Path) -> OsString {
    let mut option = OsString::from(name);
    option.push(path);
    option
}

/// What was spent in a function and in all that it called. Callgrind's format has a block for each function, with a line for
/// what it spent itself at each place, and one for what each of its calls spent.
fn inclusive(counts: &str, function: &str) -> u64 {
    let mut inside = false;
    let mut sum = 0;
    for line in counts.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            inside = name.contains(function);
        } else if inside && line.starts_with(|first: char| first.is_ascii_digit()) {
            sum += line.split(' ').nth(1).and_then(|count| count.parse::<u64>().ok()).unwrap_or_default();
        }
    }
    sum
}

/// The functions in which all of a side's work is done, as callgrind finds them.
const CLIENT: &str = "work_of_the_client";
const SERVER: &str = "work_of_the_server";

#[inline(never)]
fn work_of_the_client(work: &mut dyn FnMut()) {
    work();
    // Not a tail call, which would leave this function before the work is done; and not the same code as below.
    black_box(CLIENT);
}

#[inline(never)]
fn work_of_the_server(work: &mut dyn FnMut()) {
    work();
    black_box(SERVER);
}

/// Makes the connections of the experiment `caching` whose instructions valgrind counts: this program starts itself for it.
/// `words` are protocol, credential and mode as they are in rows; `files`, of the client and then of the server, hold what it
/// trusts, its chain and its key.
///
/// # Errors
/// Words that are in no row, files that hold something else, or a handshake failed.
pub fn handshakes(words: &[String; 3], files: &[OsString; 6]) -> Result<(), Error> {
    let [protocol, credential, mode] = words;
    let unknown = || Error::new("lab handshakes", "unknown words", "this is for the lab itself");
    let keys = Files::read(Credential::named(credential).ok_or_else(unknown)?, files)?;
    let ends = Ends::new(&Case::named(protocol, mode, &keys).ok_or_else(unknown)?)?;
    for _ in 0..COUNTED {
        ends.handshake(|side, work| match side {
            Side::Client => work_of_the_client(work),
            Side::Server => work_of_the_server(work),
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_has_what_it_called() {
        let counts = "events: Ir\n\nfn=main\n5 9\ncfn=a::work_of_the_client\ncalls=1 7\n6 100\n\n\
                      fn=a::work_of_the_client\n7 3\nfi=other.rs\n8 2\ncfn=b\ncalls=2 9\n8 95\n\nfn=b\n9 95\n\ntotals: 109\n";
        assert_eq!(inclusive(counts, CLIENT), 100);
        assert_eq!(inclusive(counts, SERVER), 0);
    }
}
