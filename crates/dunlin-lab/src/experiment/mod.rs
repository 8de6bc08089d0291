//! The experiments, by name.

mod caching;
mod foreign;
mod key_exchange;
mod link;

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressStyle};

pub use caching::handshakes;

use crate::Error;
use crate::report::Row;

/// Something to measure.
pub trait Experiment: Sync {
    /// What it is called; scripts rely on it.
    fn name(&self) -> &'static str;

    /// What it measures, in a line.
    fn about(&self) -> &'static str;

    /// How it can be run; at least one way.
    fn ways(&self) -> &'static [Way];

    /// How often each case is measured if nobody says.
    fn runs(&self) -> u32;

    /// Measures.
    ///
    /// # Errors
    /// What kept it from measuring: privileges, programs that are missing, a peer that failed.
    fn run(&self, plan: &Plan, progress: &Progress) -> Result<Vec<Row>, Error>;
}

/// How an experiment is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Real sockets in namespaces: takes root, or CAP_SYS_ADMIN and CAP_NET_ADMIN.
    Real,
    /// The same engine in virtual time over a modelled link: takes no privileges.
    Virtual,
}

impl Way {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Real => "real",
            Self::Virtual => "virtual",
        }
    }
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How.
    pub way: Way,
    /// How often to measure each case.
    pub runs: u32,
    /// Only the smallest set that holds every case with a bar.
    pub quick: bool,
    /// What decides chance.
    pub seed: u64,
    /// Where to put a capture of each case, as a pcap file, if the experiment captures anything.
    pub captures: Option<PathBuf>,
}

impl Plan {
    /// How `experiment` is run if nobody says otherwise: in its first way, as often as it likes.
    pub fn new(experiment: &dyn Experiment) -> Self {
        let way = experiment.ways().first().copied().unwrap_or(Way::Real);
        Self { way, runs: experiment.runs(), quick: false, seed: 1, captures: None }
    }
}

/// All experiments, in the order in which they are listed.
pub fn all() -> &'static [&'static dyn Experiment] {
    &[&caching::Caching, &key_exchange::KeyExchange, &link::Accuracy]
}

/// The experiment of that name.
///
/// # Errors
/// If there is none.
pub fn find(name: &str) -> Result<&'static dyn Experiment, Error> {
    let found = all().iter().find(|experiment| experiment.name() == name);
    found
        .copied()
        .ok_or_else(|| Error::new("experiment", format_args!("no {name}"), "`dunlin lab list` shows all"))
}

/// A bar on stderr that shows how far it is; nothing where stderr is no terminal.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// A bar on stderr.
    pub fn on_stderr() -> Self {
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {eta:>4} {msg}");
        Self(ProgressBar::no_length().with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar())))
    }

    /// No bar at all.
    pub fn hidden() -> Self {
        Self(ProgressBar::hidden())
    }

    /// From here on there are this many steps.
    pub fn steps(&self, steps: usize) {
        self.0.set_length(steps as u64);
    }

    /// What is being done.
    pub fn now(&self, what: impl Into<Cow<'static, str>>) {
        self.0.set_message(what);
    }

    /// Writes a line beside the bar, on stderr.
    pub fn note(&self, line: &str) {
        // Who does not read stderr does not want to know.
        let _ = self.0.suspend(|| writeln!(io::stderr(), "{line}"));
    }

    /// A step is done.
    pub fn step(&self) {
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_has_a_name_of_its_own_and_a_way() {
        for experiment in all() {
            let name = experiment.name();
            assert_eq!(all().iter().filter(|other| other.name() == name).count(), 1, "{name}");
            assert_eq!(find(name).unwrap().about(), experiment.about());
            assert!(!experiment.ways().is_empty() && experiment.runs() > 0, "{name}");
        }
        assert_eq!(find("alchemy").err().unwrap().why(), "no alchemy");
    }
}
