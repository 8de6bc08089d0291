//! The experiments by name.

#[macro_use]
mod named;

mod blocking;
mod caching;
mod core;
mod datagrams;
mod foreign;
mod gateway;
mod handover;
mod identity;
mod key_exchange;
mod keys;
mod link;
mod memory;
mod policy;
mod undisturbed;
mod valgrind;
mod watch;

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};

pub use caching::measured;
pub use policy::side_of_upload;

use crate::Error;
use crate::report::{About, Row};

/// An experiment.
#[derive(Debug)]
pub struct Experiment {
    /// The name, which scripts rely on.
    pub name: &'static str,
    /// The words about it on its page.
    pub about: About,
    /// Debian's packages with the programs and libraries that it measures or uses in the real way.
    pub packages: &'static [&'static str],
    /// The ways to run it; at least one.
    pub ways: &'static [Way],
    /// The default number of measurements of each case.
    pub runs: u32,
    /// Measures, and adds the rows as they are finished: after an error, those that were finished before are
    /// there. It fails if privileges or programs are missing, or a peer failed.
    pub run: fn(&Plan, &Progress, &mut Vec<Row>) -> Result<(), Error>,
}

/// A way to run an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// Real sockets in network namespaces: need root, or CAP_SYS_ADMIN and CAP_NET_ADMIN.
    Real,
    /// Virtual time over a modelled link: needs no privileges.
    Virtual,
}

impl Way {
    /// The name in commands and rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Real => "real",
            Self::Virtual => "virtual",
        }
    }
}

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The way.
    pub way: Way,
    /// The number of measurements of each case.
    pub runs: u32,
    /// Whether to measure only the cases that have a target value.
    pub quick: bool,
    /// The seed of all random choices.
    pub seed: u64,
    /// The directory for captures of each case as pcap files, if the experiment captures.
    pub captures: Option<PathBuf>,
    /// The clients of `gateway` that stay connected, to measure them alone.
    pub held: Option<Held>,
}

/// Clients that stay connected to a gateway.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held {
    /// How long they stay, in minutes.
    pub minutes: f64,
    /// The number of clients over TLS.
    pub tls: usize,
    /// The number of clients over DTLS.
    pub dtls: usize,
}

impl Plan {
    /// The default plan of `experiment`: its first way and its number of runs.
    pub fn new(experiment: &Experiment) -> Self {
        let way = experiment.ways.first().copied().unwrap_or(Way::Real);
        Self { way, runs: experiment.runs, quick: false, seed: 1, captures: None, held: None }
    }
}

/// All experiments, in the order of the list.
pub static ALL: [Experiment; 7] = [
    caching::EXPERIMENT,
    gateway::EXPERIMENT,
    handover::EXPERIMENT,
    identity::EXPERIMENT,
    key_exchange::EXPERIMENT,
    link::EXPERIMENT,
    policy::EXPERIMENT,
];

/// Finds the experiment of that name.
///
/// # Errors
/// No experiment has this name.
pub fn find(name: &str) -> Result<&'static Experiment, Error> {
    ALL.iter().find(|experiment| experiment.name == name).ok_or_else(|| {
        Error::new("experiment", format_args!("{name} does not exist"), "`dunlin-lab list` shows all")
    })
}

/// Returns the words about an experiment for its page, if the lab has it.
pub fn words(name: &str) -> Option<About> {
    find(name).ok().map(|known| known.about)
}

/// Shows progress on stderr: a bar on a terminal, otherwise occasional lines.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    /// The time of the last line, without a terminal.
    lines: Option<Mutex<Option<Instant>>>,
}

/// The minimum interval between two lines.
const LINE_PAUSE: Duration = Duration::from_secs(1);

/// How often the bar is redrawn during a long step, so that the elapsed time moves.
const TICK: Duration = Duration::from_millis(250);

/// The bar, with its times labelled.
const BAR: &str = "{wide_bar} {pos}/{len}  elapsed {elapsed}, about {eta} left  {msg}";

impl Progress {
    /// Shows progress on stderr.
    pub fn on_stderr() -> Self {
        let style = ProgressStyle::with_template(BAR);
        let bar = ProgressBar::no_length().with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let lines = (!io::stderr().is_terminal()).then(Mutex::default);
        if lines.is_none() {
            bar.enable_steady_tick(TICK);
        }
        Self { bar, lines }
    }

    /// Shows no progress.
    pub fn hidden() -> Self {
        Self { bar: ProgressBar::hidden(), lines: None }
    }

    /// Sets the total number of steps.
    pub fn steps(&self, steps: usize) {
        self.bar.set_length(steps as u64);
    }

    /// Names the current step.
    pub fn now(&self, what: impl Into<Cow<'static, str>>) {
        self.bar.set_message(what);
    }

    /// Writes a line to stderr, above the bar.
    pub fn note(&self, line: &str) {
        // A closed stderr does not end an experiment.
        let _ = self.bar.suspend(|| writeln!(io::stderr(), "{line}"));
    }

    /// Notes what a run leaves out because it failed.
    fn without<T>(&self, made: Result<T, Error>) -> Option<T> {
        made.inspect_err(|error| self.note(&format!("left out: {error}"))).ok()
    }

    /// Counts a step as done.
    pub fn step(&self) {
        self.bar.inc(1);
        let Some(lines) = &self.lines else { return };
        let done = self.bar.position();
        let all = self.bar.length().unwrap_or_default();
        let mut last = lines.lock().unwrap_or_else(PoisonError::into_inner);
        // The last step always gets a line.
        if done < all && last.is_some_and(|last| last.elapsed() < LINE_PAUSE) {
            return;
        }
        *last = Some(Instant::now());
        let seconds = self.bar.elapsed().as_secs();
        self.note(&format!("{done}/{all} {} (elapsed {seconds} s)", self.bar.message()));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experiments_have_unique_names_and_a_way() {
        for experiment in &ALL {
            let name = experiment.name;
            assert_eq!(ALL.iter().filter(|other| other.name == name).count(), 1, "{name}");
            assert_eq!(find(name).unwrap().about.subject, experiment.about.subject);
            assert!(!experiment.ways.is_empty() && experiment.runs > 0, "{name}");
        }
        assert_eq!(find("alchemy").err().unwrap().why(), "alchemy does not exist");
    }
}
