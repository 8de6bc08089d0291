//! Processes that take and give lines.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use super::super::core::Core;
use crate::Error;
use crate::net::{Ground, Namespace, Process};

/// The time in which a process must come to rest.
const PATIENCE: Duration = Duration::from_secs(10);

/// A process, its standard input and its standard output.
pub(super) struct Talk<'a> {
    name: &'static str,
    process: Process<'a>,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

/// The side of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

impl<'a> Talk<'a> {
    /// Starts a process on its side's core.
    pub(super) fn start(
        side: Side,
        name: &'static str,
        ground: &'a Ground,
        namespace: &Namespace,
        command: &mut Command,
    ) -> Result<Self, Error> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = ground.spawn(namespace, command)?;
        keep_on_core(process.child().id(), side)?;
        let input = process.child().stdin.take();
        let output = process.child().stdout.take().ok_or_else(|| failed(name, "it has no output"))?;
        Ok(Self { name, process, input, output: BufReader::new(output) })
    }

    /// Gives a line.
    pub(super) fn tell(&mut self, line: &str) -> Result<(), Error> {
        let told = self.input.as_mut().map_or(Ok(()), |input| writeln!(input, "{line}"));
        told.map_err(|error| failed(self.name, error))
    }

    /// Takes a line.
    pub(super) fn hear(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(|error| failed(self.name, error))?;
        if !line.ends_with('\n') {
            let mut why = String::new();
            // The process has ended, or is about to end. Its last words are on stderr.
            let _ = self.process.child().stderr.as_mut().map(|err| err.read_to_string(&mut why));
            return Err(failed(self.name, why.lines().next().unwrap_or("it has ended")));
        }
        Ok(line.trim_end().to_owned())
    }

    /// Waits for the end of a process that ends by itself.
    pub(super) fn finish(mut self) -> Result<(), Error> {
        drop(self.input.take());
        let status = self.process.child().wait().map_err(|error| failed(self.name, error))?;
        if status.success() { Ok(()) } else { Err(failed(self.name, status)) }
    }

    /// The processor time of the process so far, once it waits.
    pub(super) fn processor_time(&mut self) -> Result<Duration, Error> {
        processor_time(self.name, self.process.child().id())
    }
}

/// The processor time of a process with one thread so far, once it waits.
pub(super) fn processor_time(name: &'static str, id: u32) -> Result<Duration, Error> {
    let read =
        |file: &str| fs::read_to_string(format!("/proc/{id}/{file}")).map_err(|error| failed(name, error));
    let start = Instant::now();
    loop {
        // The state follows the name of the program, in parentheses.
        let stat = read("stat")?;
        let is_waiting = stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('S'));
        if is_waiting {
            let spent = read("schedstat")?;
            let ns = spent.split(' ').next().and_then(|ns| ns.parse().ok());
            return ns
                .map(Duration::from_nanos)
                .ok_or_else(|| failed(name, "the kernel does not count its time"));
        }
        if start.elapsed() > PATIENCE {
            return Err(failed(name, "it does not come to rest"));
        }
        std::thread::yield_now();
    }
}

/// Keeps a process, and the processes that it starts, on the core of its side: servers on the first one that
/// this process may use, clients on the last one. Otherwise the scheduler may wake a server that is faster
/// than its client on the client's core, where it has to wait.
pub(super) fn keep_on_core(id: u32, side: Side) -> Result<(), Error> {
    let cores = Core::all(0)?;
    let core = if side == Side::Server { cores.first() } else { cores.last() };
    core.map_or(Ok(()), |core| core.take(id))
}

pub(super) fn failed(name: &str, why: impl std::fmt::Display) -> Error {
    Error::new(name, why, "run it again; `dunlin-lab run policy` leaves out a missing Apache")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_has_a_core() {
        let cores = |side| {
            let mut child = Command::new("sleep").arg("60").spawn().unwrap();
            keep_on_core(child.id(), side).unwrap();
            let cores = Core::all(child.id()).unwrap();
            child.kill().and_then(|()| child.wait()).unwrap();
            cores
        };
        let client = cores(Side::Client);
        let server = cores(Side::Server);
        let all = std::thread::available_parallelism().unwrap().get();
        assert_eq!((client.len(), server.len(), client == server), (1, 1, all == 1));
    }
}
