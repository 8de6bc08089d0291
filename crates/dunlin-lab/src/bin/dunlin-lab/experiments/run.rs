//! `dunlin-lab list` and `dunlin-lab run`: the experiments.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use dunlin_command::error::Error;
use dunlin_command::files::{self, Access, Existing};
use dunlin_lab::experiment::{self, Experiment, Held, Plan, Progress, Way};
use dunlin_lab::report::{self, Report};
use serde_json::json;

/// List the experiments.
#[derive(ClapArgs)]
pub(crate) struct List {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Run an experiment, and print a table of its results.
///
/// Progress goes to stderr; without a terminal, at most one line a second. The namespaces, devices and
/// processes of the experiment vanish when it ends, even if it is killed.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin-lab run link --quick
  dunlin-lab run caching --quick --pcap . && dunlin explain dunlin-tls1.3-rsa2048-compact-mtu1500.pcap
  dunlin-lab run link --json link.json && jq '.rows[] | select(.busy) | .round_trip_error_ms' link.json

In JSON, a figure is a median; the suffixes _mean, _min and _max mark its mean, least and greatest value, and the prefix
paper_ marks the paper's figure. Units are part of the names.")]
pub(crate) struct Run {
    /// The name of the experiment: see `dunlin-lab list`.
    name: String,
    /// Write the rows, the command, its date, the machine and all versions to a JSON file, replacing an
    /// existing file. Its directory is created if missing.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a capture of each case to a directory, for `dunlin explain` or Wireshark. The directory is
    /// created if missing.
    #[arg(long, value_name = "DIR")]
    pcap: Option<PathBuf>,
    /// Run once, with only the cases that have a target value: one to two minutes, four for handover on real
    /// sockets.
    #[arg(long)]
    quick: bool,
    /// The number of measurements of each case.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: Option<u32>,
    /// The seed of random choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Use real sockets in namespaces, or virtual time; by default the first way of `dunlin-lab list`.
    #[arg(long, value_enum)]
    way: Option<Way>,
    /// For `gateway`: measure only clients that stay connected, for this time. The default is 10 minutes.
    #[arg(long, value_name = "N")]
    minutes: Option<f64>,
    /// For `gateway`: the number of such clients over TLS. The default is 10,000.
    #[arg(long, value_name = "N")]
    tls: Option<usize>,
    /// For `gateway`: the number of such clients over DTLS, at most 1,000,000. The default is 100,000.
    #[arg(long, value_name = "N")]
    dtls: Option<usize>,
}

/// The clients that stay connected by default.
const HELD: Held = Held { minutes: 10.0, tls: 10_000, dtls: 100_000 };
/// The most clients over DTLS: each has an address of its own.
const MAX_DTLS: usize = 1_000_000;

/// Execute a task that is measured from outside: `dunlin-lab run caching` starts this under valgrind.
#[derive(ClapArgs)]
pub(crate) struct Measured {
    task: String,
    protocol: String,
    credential: String,
    mode: String,
    #[arg(num_args = 6)]
    files: Vec<OsString>,
}

/// Run one side of an upload: `dunlin-lab run policy` starts this.
#[derive(ClapArgs)]
pub(crate) struct Upload {
    words: Vec<OsString>,
}

/// Runs `dunlin-lab list`.
pub(super) fn list(args: &List, out: &mut dyn Write) -> Result<(), Error> {
    if args.json {
        let all = experiment::ALL.iter().map(|experiment| {
            json!({ "name": experiment.name, "ways": ways(experiment), "about": experiment.about.subject })
        });
        writeln!(out, "{:#}", json!(all.collect::<Vec<_>>()))?;
        return Ok(());
    }
    for experiment in &experiment::ALL {
        let ways = ways(experiment).join(", ");
        writeln!(out, "{:<12}  {ways:<13}  {}", experiment.name, experiment.about.subject)?;
    }
    writeln!(out, "\nreal: in network namespaces, as root; virtual: in virtual time, without privileges")?;
    Ok(())
}

fn ways(experiment: &Experiment) -> Vec<&'static str> {
    experiment.ways.iter().map(|way| way.name()).collect()
}

/// Runs `dunlin-lab measured`.
pub(super) fn measured(args: Measured) -> Result<(), Error> {
    let Measured { task, protocol, credential, mode, files } = args;
    let files = files.try_into().map_err(|_| Error::usage("measured", "not six files", "see its source"))?;
    Ok(experiment::measured(&[task, protocol, credential, mode], &files)?)
}

/// Runs `dunlin-lab upload`.
pub(super) fn upload(args: &Upload) -> Result<(), Error> {
    Ok(experiment::side_of_upload(&args.words)?)
}

/// Runs `dunlin-lab run`.
pub(super) fn run(args: &Run, out: &mut dyn Write) -> Result<(), Error> {
    let experiment = experiment::find(&args.name)
        .map_err(|error| Error::usage(error.what(), error.why(), error.advice()))?;
    let plan = args.plan(experiment)?;
    if let Some(path) = &args.json {
        files::create_directory_for_caller(&files::directory_of(path))?;
        files::check_writable(path)?;
    }
    if let Some(directory) = &args.pcap {
        files::create_directory_for_caller(directory)?;
        files::check_writable(&directory.join("capture.pcap"))?;
    }
    let date = report::now();
    let progress = Progress::on_stderr();
    let mut rows = vec![];
    let end = (experiment.run)(&plan, &progress, &mut rows);
    drop(progress);
    if rows.is_empty() {
        // Nothing was measured, so there is nothing to keep.
        end?;
        return Ok(());
    }
    let mut report = Report::new(experiment.name, command(), plan.seed, plan.runs, rows);
    report.date = date;
    if plan.way == Way::Real {
        report.packages = report::versions(experiment.packages);
    }
    if let Err(error) = &end {
        report.incomplete = error.to_string();
    }
    if let Some(path) = &args.json {
        // An earlier, complete report stays.
        let path = if end.is_err() { path.with_extension("incomplete.json") } else { path.clone() };
        let failed = |error| Error::failed(path.display(), error, "run it without --json");
        let mut json = serde_json::to_vec_pretty(&report).map_err(failed)?;
        json.push(b'\n');
        files::write(&path, &json, Access::Caller, Existing::Replace)?;
    }
    write!(out, "{report}")?;
    Ok(end?)
}

impl Run {
    fn plan(&self, experiment: &Experiment) -> Result<Plan, Error> {
        let mut plan = Plan::new(experiment);
        plan.quick = self.quick;
        plan.seed = self.seed;
        plan.captures.clone_from(&self.pcap);
        if self.quick {
            plan.runs = 1;
        }
        plan.runs = self.runs.unwrap_or(plan.runs);
        plan.held = self.held()?;
        if let Some(way) = self.way {
            if !experiment.ways.contains(&way) {
                let why = format!("the {} way is not available for {}", way.name(), experiment.name);
                return Err(Error::usage("way", why, format_args!("take {}", ways(experiment).join(" or "))));
            }
            plan.way = way;
        }
        Ok(plan)
    }
}

impl Run {
    /// The clients that stay connected, if an option names them.
    fn held(&self) -> Result<Option<Held>, Error> {
        if (self.minutes, self.tls, self.dtls) == (None, None, None) {
            return Ok(None);
        }
        let minutes = self.minutes.unwrap_or(HELD.minutes);
        let tls = self.tls.unwrap_or(HELD.tls);
        let dtls = self.dtls.unwrap_or(HELD.dtls);
        if self.name != "gateway" {
            return Err(Error::usage("--minutes, --tls, --dtls", "only for gateway", "leave them out"));
        }
        if !(minutes > 0.0 && minutes.is_finite()) || dtls > MAX_DTLS {
            let why = "not a positive time, or too many clients over DTLS";
            return Err(Error::usage(
                "--minutes, --dtls",
                why,
                "give minutes above 0, and at most 1000000 clients",
            ));
        }
        Ok(Some(Held { minutes, tls, dtls }))
    }
}

/// The command line, quoted for a shell.
fn command() -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    let quoted = std::env::args().skip(1).map(|word| {
        if word.chars().all(plain) && !word.is_empty() {
            word
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    });
    ["dunlin-lab".to_owned()].into_iter().chain(quoted).collect::<Vec<_>>().join(" ")
}
