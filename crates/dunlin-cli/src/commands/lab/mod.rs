//! `dunlin lab`: experiments and their tools.

mod link;
mod report;
mod run;

use std::io::Write;

use clap::{Args as ClapArgs, Subcommand};

use crate::error::Error;

const EXAMPLES: &str = "\
Examples:
  dunlin lab list                               all experiments
  dunlin lab run link --json lab/link.json
  dunlin lab report                             a page with plots of all results in lab/
  dunlin lab link --a client --b server --delay-ms 30 --loss-percent 1";

/// Measure Dunlin and other stacks in isolated networks.
#[derive(ClapArgs)]
#[command(arg_required_else_help = false, after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    List(run::List),
    Run(run::Run),
    Report(report::Args),
    Link(link::Args),
    #[command(hide = true)]
    Measured(run::Measured),
    #[command(hide = true)]
    Upload(run::Upload),
}

/// Runs `dunlin lab`.
pub(crate) fn run(args: Args, out: &mut dyn Write) -> Result<(), Error> {
    match args.command {
        Command::List(args) => run::list(&args, out),
        Command::Run(args) => run::run(&args, out),
        Command::Report(args) => report::run(&args, out),
        Command::Link(args) => link::run(&args, out),
        Command::Measured(args) => run::measured(args),
        Command::Upload(args) => run::upload(&args),
    }
}

impl From<dunlin_lab::Error> for Error {
    fn from(error: dunlin_lab::Error) -> Self {
        Self::failed(error.what(), error.why(), error.advice())
    }
}
