//! `dunlin`: TLS and DTLS for devices that travel light, on the command line.
//!
//! Exit status: 0 success, 1 failure, 2 wrong use. Errors are one line on stderr: what, why, and what to do.

mod chains;
mod commands;
mod did;
mod psk;
#[cfg(test)]
mod reference;
mod registry;
mod tls;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use dunlin_command::error::Error;
use dunlin_command::generate::{Completions, Man};
use dunlin_command::{argv, program};

#[cfg(feature = "gateway")]
use crate::commands::gateway;
#[cfg(feature = "registry-server")]
use crate::commands::registry as registry_command;
use crate::commands::{client, did as did_command, explain, pki, psk as psk_command, server, tunnel, vc};

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
    #[cfg(feature = "gateway")]
    Gateway(gateway::Args),
    Tunnel(Box<tunnel::Args>),
    Explain(explain::Args),
    Pki(pki::Args),
    Psk(psk_command::Args),
    Did(did_command::Args),
    Vc(vc::Args),
    #[cfg(feature = "registry-server")]
    Registry(registry_command::Args),
    #[command(after_help = "\
Examples:
  dunlin completions bash > ~/.local/share/bash-completion/completions/dunlin
  dunlin completions zsh > ~/.zfunc/_dunlin            with fpath+=~/.zfunc before compinit
  dunlin completions fish > ~/.config/fish/completions/dunlin.fish")]
    Completions(Completions),
    #[command(after_help = "\
Examples:
  dunlin man ~/.local/share/man/man1                   then: man dunlin-client
  dunlin man man && man -l man/dunlin-server.1")]
    Man(Man),
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
            #[cfg(feature = "gateway")]
            Self::Gateway(args) => gateway::run(&args, &mut locked()),
            Self::Tunnel(args) => tunnel::run(&args, &mut locked()),
            Self::Explain(args) => explain::run(&args, &mut locked()),
            Self::Pki(args) => pki::run(args, &mut locked()),
            Self::Psk(args) => psk_command::run(args, &mut locked()),
            Self::Did(args) => did_command::run(args, &mut locked()),
            Self::Vc(args) => vc::run(args, &mut locked()),
            // A running registry prints nothing; its log goes to stderr.
            #[cfg(feature = "registry-server")]
            Self::Registry(args) => registry_command::run(args, &mut locked()),
            Self::Completions(args) => args.run(Cli::command(), &mut locked()),
            Self::Man(args) => args.run(Cli::command()),
        }
    }
}

/// Says where a command is that this program no longer has.
fn moved(args: &[OsString]) -> Option<Error> {
    let (name, now) = match args.get(1)?.to_str()? {
        "lab" => ("lab", "dunlin-lab"),
        "up" => ("up", "dunlin-lab up"),
        _ => return None,
    };
    let why = format!("`dunlin {name}` is now `{now}`");
    Some(Error::usage("arguments", why, "it is in the package dunlin-lab"))
}

fn main() -> ExitCode {
    let args = argv::from_openssl(std::env::args_os(), &Cli::command(), &["client", "server"]);
    match moved(&args) {
        Some(error) => program::ended(Err(error)),
        None => program::main(&args, |cli: Cli| cli.command.run()),
    }
}
