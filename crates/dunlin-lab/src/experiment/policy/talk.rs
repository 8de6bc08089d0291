//! Processes that take and give lines.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

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

impl<'a> Talk<'a> {
    /// Starts a process.
    pub(super) fn start(
        name: &'static str,
        ground: &'a Ground,
        namespace: &Namespace,
        command: &mut Command,
    ) -> Result<Self, Error> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = ground.spawn(namespace, command)?;
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

pub(super) fn failed(name: &str, why: impl std::fmt::Display) -> Error {
    Error::new(name, why, "run it again; `dunlin lab run policy` leaves out a missing Apache")
}
