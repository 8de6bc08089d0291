//! `dunlin`: TLS and DTLS for devices that travel light, on the command line.
//!
//! Exit status: 0 fine, 1 failed, 2 wrong use. Errors are one line on stderr: what, why, and what to do.

mod commands;
mod error;
mod files;
mod psk;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::commands::{pki, psk as psk_command, up};
use crate::error::Error;

/// TLS and DTLS for devices that travel light.
#[derive(Parser)]
#[command(name = "dunlin", version, arg_required_else_help = false, disable_help_subcommand = true)]
#[command(after_help = "Exit status: 0 fine, 1 failed, 2 wrong use.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Pki(pki::Args),
    Psk(psk_command::Args),
    Up(up::Args),
}

impl Command {
    /// Runs the command, which writes what it has to say to `out`.
    fn run(self, out: &mut dyn Write) -> Result<(), Error> {
        match self {
            Self::Pki(args) => pki::run(args, out),
            Self::Psk(args) => psk_command::run(args, out),
            Self::Up(args) => up::run(&args, out),
        }
    }
}

fn main() -> ExitCode {
    let result = match Cli::try_parse() {
        Ok(cli) => cli.command.run(&mut io::stdout().lock()),
        Err(error) if error.use_stderr() => Err(Error::from(error)),
        // --help and --version come as errors, too.
        Err(help) => help.print().map_err(Error::from),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error.report();
            error.exit_code()
        }
    }
}
