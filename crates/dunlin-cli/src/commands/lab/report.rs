//! `dunlin lab report`: what experiments found, as a page.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use dunlin_lab::report::{Report, page};

use crate::error::Error;
use crate::files::{self, Access, Existing};

/// Where experiments are looked for and the page is put if nobody says.
const DIRECTORY: &str = "lab";
/// The name of the page.
const PAGE: &str = "report.html";
/// More files than anybody has experiments; a page of more would not be read.
const MAX_FILES: usize = 64;

/// Make a page of what experiments found: plots, and tables with the paper's figures in them.
///
/// One HTML file, report.html, that needs no other file, no network and no script. It has a section for each JSON file
/// of `dunlin lab run … --json`, with what it takes to repeat it.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin lab run caching --json lab/caching.json
  dunlin lab run key-exchange --json lab/key-exchange.json
  dunlin lab report                              lab/*.json becomes lab/report.html
  dunlin lab report monday.json friday.json --out pages

Files stand in the order in which they are named, those of a directory by name. If one of them cannot be read, nothing
is written.")]
pub(crate) struct Args {
    /// What `dunlin lab run … --json` wrote; without any, all *.json of a directory.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The directory whose *.json to take if no FILE is named.
    #[arg(long = "in", value_name = "DIR", default_value = DIRECTORY, conflicts_with = "files")]
    directory: PathBuf,
    /// The directory to put report.html into. It is made if missing; a page that is there is replaced.
    #[arg(long, value_name = "DIR", default_value = DIRECTORY)]
    out: PathBuf,
}

/// Runs `dunlin lab report`.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    let files = if args.files.is_empty() { found_in(&args.directory)? } else { args.files.clone() };
    if files.len() > MAX_FILES {
        let why = format!("{} files are more than {MAX_FILES}", files.len());
        return Err(Error::failed("lab report", why, "make several pages"));
    }
    let read = |path: &PathBuf| Ok(Report::read(path.display(), &files::read(path)?)?);
    let reports: Vec<_> = files.iter().map(read).collect::<Result<_, Error>>()?;
    let path = args.out.join(PAGE);
    files::create_directory_for_caller(&args.out)?;
    files::check_writable(&path)?;
    files::write(&path, page(&reports).as_bytes(), Access::Caller, Existing::Replace)?;
    let rows: usize = reports.iter().map(|report| report.rows.len()).sum();
    writeln!(out, "{}: experiments {}, rows {rows}", path.display(), reports.len())?;
    Ok(())
}

/// The JSON files of a directory, by name; at least one.
fn found_in(directory: &Path) -> Result<Vec<PathBuf>, Error> {
    const ADVICE: &str = "make one by `dunlin lab run caching --json lab/caching.json`, or name a FILE";
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Error::failed(directory.display(), "no such directory", ADVICE),
        _ => Error::failed(directory.display(), error, ADVICE),
    };
    let entries = fs::read_dir(directory).map_err(failed)?;
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>().map_err(failed)?;
    let is_json = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "json");
    let mut files: Vec<_> = paths.into_iter().filter(is_json).collect();
    files.sort();
    match files.is_empty() {
        true => Err(Error::failed(directory.display(), "no *.json in it", ADVICE)),
        false => Ok(files),
    }
}
