//! `dunlin gateway`: a TLS proxy in front of existing servers.

mod explain;

use std::io::Write;
use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};
use dunlin_command::error::{Error, count, warn};
use dunlin_command::faults::told;
use dunlin_gateway::{Config, Gateway};

use crate::commands::program;

const EXAMPLES: &str = "\
Examples:
  dunlin gateway -c gateway.toml
  dunlin gateway -c gateway.toml --check
  dunlin gateway -c /etc/dunlin/gateway.d

The smallest configuration terminates TLS in front of a server on port 1883:

  [[listener]]
  listen = \"0.0.0.0:8883\"

  [[listener.certificate]]
  chain = \"server.pem\"
  key = \"server.key\"

  [[listener.route]]
  to = \"127.0.0.1:1883\"

docs/gateway.md describes all keys. File names are relative to the directory of the configuration.

SIGHUP reads the configuration and its files again. If all of them are valid, new connections use them, and established ones go on;
otherwise the log names every fault, and nothing changes.

Ctrl-C and SIGTERM stop the gateway: it accepts no more clients, and established connections may go on for shutdown_time. The second
such signal ends them at once.

Exit status: 0 success, 1 failure, 2 wrong use.";

/// Terminate TLS in front of existing servers, such as MQTT brokers and web applications.
#[derive(ClapArgs)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// The configuration: a TOML file, or a directory whose *.toml files are read together.
    #[arg(long, short, value_name = "FILE", required = true)]
    config: Option<PathBuf>,
    /// Check the configuration and the files that it names, print all faults, and end. No address is bound.
    #[arg(long)]
    check: bool,
}

#[derive(Subcommand)]
enum Command {
    Explain(explain::Args),
}

/// Runs `dunlin gateway`.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    let path = match (&args.command, &args.config) {
        (Some(Command::Explain(args)), _) => return explain::run(args, out),
        (None, Some(path)) => path,
        // clap demands one of the two.
        (None, None) => return Err(Error::usage("gateway", "no configuration", "give -c FILE")),
    };
    let config = Config::load(path).map_err(|faults| told(&faults))?;
    if args.check {
        let listeners = config.listeners.len();
        let routes: usize = config.listeners.iter().map(|listener| listener.routes.len()).sum();
        program::file_limit_warning(config.open_files()).iter().for_each(|warning| warn(warning));
        for warning in Gateway::check(config).map_err(|faults| told(&faults))? {
            warn(&warning.to_string());
        }
        let listeners = count(listeners, "listener");
        let routes = count(routes, "route");
        writeln!(out, "{}: valid: {listeners}, {routes}", path.display())?;
        return Ok(());
    }
    let path = path.clone();
    program::run::<Gateway>(config, move || Config::load(&path), told)
}
