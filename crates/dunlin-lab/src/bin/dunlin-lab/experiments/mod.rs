//! The commands of the experiments.

mod link;
mod report;
mod run;

use std::io::Write;

use clap::Subcommand;
use dunlin_command::error::Error;

#[derive(Subcommand)]
pub(crate) enum Command {
    List(run::List),
    Run(run::Run),
    Report(report::Args),
    Link(link::Args),
    #[command(hide = true)]
    Measured(run::Measured),
    #[command(hide = true)]
    Upload(run::Upload),
}

impl Command {
    /// Runs the command, which writes its result to `out`.
    pub(crate) fn run(self, out: &mut dyn Write) -> Result<(), Error> {
        match self {
            Self::List(args) => run::list(&args, out),
            Self::Run(args) => run::run(&args, out),
            Self::Report(args) => report::run(&args, out),
            Self::Link(args) => link::run(&args, out),
            Self::Measured(args) => run::measured(args),
            Self::Upload(args) => run::upload(&args),
        }
    }
}
