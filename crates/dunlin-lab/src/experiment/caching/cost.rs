//! The cost of a handshake in memory on each side: processor time and instructions.
//!
//! The time is the processor time of the thread, so other programs do not count. Valgrind's callgrind counts
//! instructions in a separate process, which this program starts, because virtual machines seldom give access
//! to processor counters.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use dunlin::{ClientConfig, ServerAddress, ServerConfig, Side, TlsConnection};
use nix::time::{ClockId, clock_gettime};

use super::super::keys::SERVER_NAME;
use super::super::valgrind::Counts;
use super::case::{CONNECTIONS, Case, Handshake, Mode};
use super::ends::{client, expect, server};
use super::valgrind;
use crate::Error;
use crate::error::failed;
use crate::net::on_own_thread;
use crate::report::Row;

/// The number of handshakes whose instructions are counted. Counts vary little, with the length of random
/// numbers.
const COUNTED: usize = 3;
/// The number of handshakes in a turn of a mode, and the number of turns.
const TIMED: usize = 10;
const TURNS: usize = 10;

/// Both sides and their memory.
pub(super) struct Ends {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    /// The expected kind of the next handshake.
    pub(super) expected: Handshake,
}

impl Ends {
    pub(super) fn of(client: ClientConfig, server: ServerConfig) -> Self {
        Self { client: Arc::new(client), server: Arc::new(server), expected: Handshake::Full }
    }

    /// Before the first connection.
    pub(super) fn fresh(case: &Case<'_>) -> Result<Self, Error> {
        Ok(Self::of(client(case)?, server(case)?))
    }

    /// After the first connection and one repeated connection, which warms up the processor caches.
    fn warm(case: &Case<'_>) -> Result<Self, Error> {
        let mut ends = Self::fresh(case)?;
        for handshake in case.mode.handshakes() {
            ends.expected = handshake;
            ends.handshake(|_, work| work())?;
        }
        Ok(ends)
    }

    /// Runs handshakes in memory. `done` runs each step of a side, beginning with the making of its
    /// connection.
    pub(super) fn handshake(&self, mut done: impl FnMut(Side, &mut dyn FnMut())) -> Result<(), Error> {
        let now = dunlin_tokio::now();
        let mut ours = None;
        let mut theirs = None;
        done(Side::Client, &mut || {
            let address = ServerAddress::parse(SERVER_NAME, 0).map_err(failed);
            ours = Some(address.and_then(|to| TlsConnection::client(&self.client, to, now).map_err(failed)));
        });
        done(Side::Server, &mut || theirs = Some(TlsConnection::server(&self.server, now)));
        let missing = || failed("a connection was not made");
        let mut ours = ours.ok_or_else(missing)??;
        let mut theirs = theirs.ok_or_else(missing)?;
        let mut side = Side::Client;
        let mut wire = Vec::new();
        let mut result = Ok(0);
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
        expect(Side::Client, ours.negotiated(), self.expected)?;
        expect(Side::Server, theirs.negotiated(), self.expected)
    }

    /// Returns the microseconds of client and server.
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

/// The processor time of this thread so far; zero if the kernel does not report it.
fn processor_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Rows for the repeated connection with these keys, one for each mode: time, and instructions if valgrind is
/// installed.
pub(super) fn rows(cases: &[Case<'_>], quick: bool, counts: bool) -> Result<Vec<Row>, Error> {
    let ends = cases.iter().map(Ends::warm).collect::<Result<Vec<_>, _>>()?;
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
    let mut vanilla = None;
    let rows = cases.iter().zip(&times).map(|(case, [client, server])| {
        let row = case.row("dunlin").with("connection", CONNECTIONS[1]);
        let row = row.figure("client_us", client).figure("server_us", server);
        if !counts {
            return Ok(row);
        }
        let counted = count(case)?;
        let row = row.figure("client_instructions", &counted[..1]);
        let row = row.figure("server_instructions", &counted[1..]);
        if case.mode == Mode::Vanilla {
            vanilla = Some(counted);
        }
        Ok(match vanilla.filter(|_| case.mode != Mode::Vanilla) {
            Some(full) => with_savings(row, full, counted),
            None => row,
        })
    });
    rows.collect()
}

/// Adds a mode's saving of instructions against a full handshake: for each side, and as the paper counts it
/// (section V-B), the saving of the client, which alone it optimised, relative to the duration of both sides.
fn with_savings(row: Row, full: [f64; 2], counted: [f64; 2]) -> Row {
    let saved = [full[0] - counted[0], full[1] - counted[1]];
    row.figure("client_saved_percent", &[saved[0] / full[0] * 100.0])
        .figure("server_saved_percent", &[saved[1] / full[1] * 100.0])
        .figure("client_saved_of_both_percent", &[saved[0] / (full[0] + full[1]) * 100.0])
}

/// The task that this program runs under callgrind.
pub(super) const TASK: &str = "instructions";

/// Counts the instructions of client and server in a repeated connection.
fn count(case: &Case<'_>) -> Result<[f64; 2], Error> {
    let counts = Counts::new()?;
    let options = counts.options([CLIENT, SERVER].map(|name| format!("*{name}*")));
    valgrind::told(options, TASK, case)?;
    Ok([counts.of(CLIENT)? / COUNTED as f64, counts.of(SERVER)? / COUNTED as f64])
}

/// The functions in which all of a side's work is done, as callgrind finds them.
const CLIENT: &str = "work_of_the_client";
const SERVER: &str = "work_of_the_server";

#[inline(never)]
fn work_of_the_client(work: &mut dyn FnMut()) {
    work();
    // Not a tail call, which would leave this function before the work is done; and not the same code as
    // below.
    black_box(CLIENT);
}

#[inline(never)]
fn work_of_the_server(work: &mut dyn FnMut()) {
    work();
    black_box(SERVER);
}

/// Makes the repeated connections whose instructions are counted.
pub(super) fn handshakes(case: &Case<'_>) -> Result<(), Error> {
    let ends = Ends::warm(case)?;
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
    use super::super::case::{Credential, Keys, Protocol};
    use super::*;

    /// Chains of every length that is measured, in every mode.
    #[test]
    fn handshakes_have_the_kind_of_their_mode() {
        for (credential, length) in
            (1..=4).map(|length| (Credential::P256, length)).chain([(Credential::RAW_P256, 1)])
        {
            let keys = Keys::new(credential, length).unwrap();
            let sent = keys.server.identity.chain.len();
            assert_eq!(sent, if length == 1 { 1 } else { length - 1 });
            for protocol in Protocol::STREAMS {
                for mode in Mode::ALL {
                    Ends::warm(&Case { keys: &keys, protocol, mode }).unwrap();
                }
            }
        }
    }
}
