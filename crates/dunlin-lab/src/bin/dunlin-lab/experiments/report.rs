//! `dunlin-lab report`: the results of experiments as a page.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use dunlin_command::error::Error;
use dunlin_command::files::{self, Access, Existing};
use dunlin_lab::experiment;
use dunlin_lab::report::{Report, page};

/// The default directory of results and of the page.
const DIRECTORY: &str = "lab";
/// The name of the page.
const PAGE: &str = "report.html";
/// The maximum number of files; a page of more would be unreadable.
const MAX_FILES: usize = 64;

/// Make a page of experiment results: plots, and tables with the paper's figures.
///
/// The page is one HTML file, report.html, which needs no other file, no network and no script. It has a
/// section for each JSON file of `dunlin-lab run … --json`, with the command that repeats it.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin-lab run caching --json lab/caching.json
  dunlin-lab run key-exchange --json lab/key-exchange.json
  dunlin-lab report                              lab/*.json becomes lab/report.html
  dunlin-lab report monday.json friday.json --out pages

The page keeps the order of the given files, and sorts those of a directory by name. If a file cannot be read, no page is
written.")]
pub(crate) struct Args {
    /// Files written by `dunlin-lab run … --json`; by default all *.json of a directory.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The directory of the *.json files if no FILE is given.
    #[arg(long = "in", value_name = "DIR", default_value = DIRECTORY, conflicts_with = "files")]
    directory: PathBuf,
    /// The directory for report.html. It is created if missing; an existing page is replaced.
    #[arg(long, value_name = "DIR", default_value = DIRECTORY)]
    out: PathBuf,
}

/// Runs `dunlin-lab report`.
pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    let files = if args.files.is_empty() { found_in(&args.directory)? } else { args.files.clone() };
    if files.len() > MAX_FILES {
        let why = format!("{} files, but a page shows at most {MAX_FILES}", files.len());
        return Err(Error::failed("report", why, "make several pages"));
    }
    let read = |path: &PathBuf| {
        if path.is_dir() {
            Err(Error::failed(path.display(), "it is a directory", "give it with --in, or name its files"))
        } else {
            Ok(Report::read(path.display(), &files::read(path)?)?)
        }
    };
    let reports: Vec<_> = files.iter().map(read).collect::<Result<_, Error>>()?;
    let path = args.out.join(PAGE);
    files::create_directory_for_caller(&args.out)?;
    files::check_writable(&path)?;
    files::write(&path, page(&reports, experiment::words).as_bytes(), Access::Caller, Existing::Replace)?;
    let rows: usize = reports.iter().map(|report| report.rows.len()).sum();
    writeln!(out, "{}: experiments {}, rows {rows}", path.display(), reports.len())?;
    Ok(())
}

/// Returns the JSON files of a directory, sorted by name; at least one.
fn found_in(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    const ADVICE: &str = "make one by `dunlin-lab run caching --json lab/caching.json`, or name a FILE";
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Error::failed(directory.display(), "no such directory", ADVICE),
        _ => Error::failed(directory.display(), error, ADVICE),
    };
    let entries = fs::read_dir(directory).map_err(failed)?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>().map_err(failed)?;
    let is_json = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "json");
    let mut files: Vec<_> = paths.into_iter().filter(is_json).collect();
    files.sort();
    if files.is_empty() {
        Err(Error::failed(directory.display(), "no *.json in it", ADVICE))
    } else {
        Ok(files)
    }
}
