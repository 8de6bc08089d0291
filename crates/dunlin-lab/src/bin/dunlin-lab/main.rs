//! `dunlin-lab`: experiments with Dunlin and other stacks, and a demonstration.
//!
//! Exit status: 0 success, 1 failure, 2 wrong use. Errors are one line on stderr: what, why, and what to do.

#[cfg(feature = "experiments")]
mod experiments;
mod up;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use dunlin_command::error::Error;
use dunlin_command::generate::{Completions, Man};
use dunlin_command::program;

const EXAMPLES: &str = if cfg!(feature = "experiments") {
    "\
Examples:
  dunlin-lab up                                 a gateway, and devices of every kind
  dunlin-lab list                               all experiments
  dunlin-lab run link --json lab/link.json
  dunlin-lab report                             a page with plots of all results in lab/
  dunlin-lab link --a client --b server --delay-ms 30 --loss-percent 1

Exit status: 0 success, 1 failure, 2 wrong use."
} else {
    "\
Examples:
  dunlin-lab up                                 a gateway, and devices of every kind

This build has no experiments. Exit status: 0 success, 1 failure, 2 wrong use."
};

/// Measure Dunlin and other stacks in isolated networks, and show Dunlin at work.
#[derive(Parser)]
#[command(name = "dunlin-lab", version, arg_required_else_help = false, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Up(up::Args),
    #[cfg(feature = "experiments")]
    #[command(flatten)]
    Experiments(experiments::Command),
    #[command(after_help = "\
Examples:
  dunlin-lab completions bash > ~/.local/share/bash-completion/completions/dunlin-lab
  dunlin-lab completions zsh > ~/.zfunc/_dunlin-lab    with fpath+=~/.zfunc before compinit
  dunlin-lab completions fish > ~/.config/fish/completions/dunlin-lab.fish")]
    Completions(Completions),
    #[command(after_help = "\
Examples:
  dunlin-lab man ~/.local/share/man/man1               then: man dunlin-lab-run
  dunlin-lab man man && man -l man/dunlin-lab-up.1")]
    Man(Man),
}

impl Command {
    /// Runs the command, which writes its result to stdout.
    fn run(self) -> Result<(), Error> {
        let out = &mut io::stdout().lock();
        match self {
            Self::Up(args) => up::run(&args, out),
            #[cfg(feature = "experiments")]
            Self::Experiments(command) => command.run(out),
            Self::Completions(args) => args.run(Cli::command(), out),
            Self::Man(args) => args.run(Cli::command()),
        }
    }
}

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    program::main(&args, |cli: Cli| cli.command.run())
}
