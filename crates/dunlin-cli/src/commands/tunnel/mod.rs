//! `dunlin tunnel`: TLS and DTLS beside device software that knows neither.

mod route;

use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use dunlin_command::error::{Error, count, warn};
use dunlin_command::faults::told;
use dunlin_gateway::{Fault, Faults, Tunnel, TunnelConfig};

use self::route::Route;
use crate::commands::program;

const EXAMPLES: &str = "\
Examples:
  dunlin tunnel -c tunnel.toml
  dunlin tunnel -c tunnel.toml --check
  dunlin tunnel --listen 127.0.0.1:1883 --to gw.example:8883 --ca ca.pem --chain device.pem --key device.key --cache cache
  dunlin tunnel --udp --listen 127.0.0.1:5683 --to gw.example:5684 --psk-file keys.psk --psk-identity sensor-7
  dunlin tunnel --udp --listen 127.0.0.1:5683 --to gw.example:5684 --ca ca.pem --interfaces wlan0 --interfaces wwan0
  dunlin tunnel --listen 127.0.0.1:1883 --to gw.example:8883 --ca ca.pem --did device --vc device.vc

A program on this machine connects to the address of --listen over TCP, or sends datagrams there over UDP. The server of --to, such as
`dunlin gateway`, gets them over TLS or DTLS. docs/tunnel.md describes the keys of the configuration, of which the options are the most
important ones.

SIGHUP reads the configuration and its files again. If all of them are valid, new connections use them, and established ones go on;
otherwise the log names every fault, and nothing changes.

Ctrl-C and SIGTERM stop the tunnel: it accepts no more connections, and established ones may go on for shutdown_time. The second such signal
ends them at once.

Exit status: 0 success, 1 failure, 2 wrong use.";

/// Carry the TCP and UDP traffic of programs on this machine to a server over TLS and DTLS.
#[derive(ClapArgs)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// The configuration: a TOML file, or a directory whose *.toml files are read together.
    #[arg(long, short, value_name = "FILE", required_unless_present = "listen", conflicts_with_all = ["listen", "CredentialOptions"])]
    config: Option<PathBuf>,
    /// Check the configuration and the files that it names, print all faults, and end. No address is bound.
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    route: Route,
}

/// Reads the configuration from its file, or from the options.
fn load(config: Option<&Path>, text: &str) -> Result<TunnelConfig, Faults> {
    match config {
        Some(path) => TunnelConfig::load(path),
        None => TunnelConfig::parse(Path::new(""), text),
    }
}

/// Reads the configuration again. The options may name another key, because the DID has been rotated since.
fn reload(config: Option<&Path>, route: &Route) -> Result<TunnelConfig, Faults> {
    let text = route.text().map_err(|error| {
        let [what, why, advice] = error.parts();
        Faults::one(Fault::elsewhere(format!("{what}: {why}"), advice))
    })?;
    load(config, &text)
}

/// Runs `dunlin tunnel`.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    let path = args.config.clone();
    let text = args.route.text()?;
    let config = load(path.as_deref(), &text).map_err(|faults| told(&faults))?;
    if args.check {
        let listeners = config.listeners.len();
        for warning in Tunnel::check(config).map_err(|faults| told(&faults))? {
            warn(&warning.to_string());
        }
        let name = path.map_or_else(|| "options".to_owned(), |path| path.display().to_string());
        writeln!(out, "{name}: valid: {}", count(listeners, "listener"))?;
        return Ok(());
    }
    if let Some(directory) = args.route.cache() {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        let advice = "name a directory that can be written";
        made.map_err(|error| Error::failed(directory.display(), error, advice))?;
    }
    let route = args.route.clone();
    program::run::<Tunnel>(config, move || reload(path.as_deref(), &route), told)
}
