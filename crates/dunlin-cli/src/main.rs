//! `dunlin`: TLS and DTLS for devices that travel light, on the command line.
//!
//! Exit status: 0 success, 1 failure, 2 wrong use. Errors are one line on stderr: what, why, and what to do.

mod argv;
mod chains;
mod commands;
mod did;
mod error;
mod files;
mod psk;
#[cfg(test)]
mod reference;
mod registry;
mod stop;
mod tls;

use std::io;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::commands::{
    client, did as did_command, explain, gateway, generate, lab, pki, psk as psk_command,
    registry as registry_command, server, tunnel, up, vc,
};
use crate::error::Error;

/// TLS and DTLS for devices that travel light.
#[derive(Parser)]
#[command(name = "dunlin", version, arg_required_else_help = false)]
#[command(after_help = "Exit status: 0 success, 1 failure, 2 wrong use.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Client(Box<client::Args>),
    Server(Box<server::Args>),
    Gateway(gateway::Args),
    Tunnel(Box<tunnel::Args>),
    Explain(explain::Args),
    Pki(pki::Args),
    Psk(psk_command::Args),
    Did(did_command::Args),
    Vc(vc::Args),
    Registry(registry_command::Args),
    Up(up::Args),
    Lab(lab::Args),
    Completions(generate::Completions),
    Man(generate::Man),
}

impl Command {
    /// Runs the command, which writes its result to stdout.
    fn run(self) -> Result<(), Error> {
        // The lock is taken only by commands with one task: tasks of client and server share stdout.
        let locked = || io::stdout().lock();
        match self {
            Self::Client(args) => client::run(&args),
            Self::Server(args) => server::run(*args),
            // The logs go to stderr; a running gateway or tunnel prints nothing.
            Self::Gateway(args) => gateway::run(&args, &mut locked()),
            Self::Tunnel(args) => tunnel::run(&args, &mut locked()),
            Self::Explain(args) => explain::run(&args, &mut locked()),
            Self::Pki(args) => pki::run(args, &mut locked()),
            Self::Psk(args) => psk_command::run(args, &mut locked()),
            Self::Did(args) => did_command::run(args, &mut locked()),
            Self::Vc(args) => vc::run(args, &mut locked()),
            // A running registry prints nothing; its log goes to stderr.
            Self::Registry(args) => registry_command::run(args, &mut locked()),
            Self::Up(args) => up::run(&args, &mut locked()),
            Self::Lab(args) => lab::run(args, &mut locked()),
            Self::Completions(args) => args.run(Cli::command(), &mut locked()),
            Self::Man(args) => args.run(Cli::command()),
        }
    }
}

fn main() -> ExitCode {
    let args = argv::from_openssl(std::env::args_os(), &Cli::command(), &["client", "server"]);
    let result = match Cli::try_parse_from(&args) {
        Ok(cli) => cli.command.run(),
        Err(error) if error.use_stderr() => Err(match argv::unmet(&error, &args, &Cli::command()) {
            Some((why, advice)) => Error::usage("arguments", why, advice),
            None => Error::from(error),
        }),
        // clap returns --help and --version as errors, too.
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
