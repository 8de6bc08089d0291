//! `dunlin tunnel`: TLS and DTLS beside device software that knows neither.

use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use dunlin_gateway::{Fault, Faults, Tunnel, TunnelConfig};

use crate::commands::program::{self, told, told_at};
use crate::error::{Error, count, warn};

const EXAMPLES: &str = "\
Examples:
  dunlin tunnel -c tunnel.toml
  dunlin tunnel -c tunnel.toml --check
  dunlin tunnel --listen 127.0.0.1:1883 --connect gw.example:8883 --ca ca.pem --cert device.pem --key device.key --cache cache
  dunlin tunnel --udp --listen 127.0.0.1:5683 --connect gw.example:5684 --psk-file keys.psk --psk-identity sensor-7
  dunlin tunnel --udp --listen 127.0.0.1:5683 --connect gw.example:5684 --ca ca.pem --interface wlan0 --interface wwan0

A program on this machine connects to the address of --listen over TCP, or sends datagrams there over UDP. The server of --connect, such as
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
    #[arg(long, short, value_name = "FILE", required_unless_present = "listen", conflicts_with = "listen")]
    config: Option<PathBuf>,
    /// Check the configuration and the files that it names, print all faults, and end. No address is bound.
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    route: Route,
}

const HEADING: &str = "Without a configuration";

/// A listener by options.
#[derive(ClapArgs, Clone)]
struct Route {
    /// The address on this machine to which programs connect. It must be a loopback address, as in 127.0.0.1:1883.
    #[arg(long, value_name = "ADDRESS:PORT", requires = "connect", help_heading = HEADING)]
    listen: Option<String>,
    /// The server.
    #[arg(long, value_name = "HOST:PORT", requires = "listen", help_heading = HEADING)]
    connect: Option<String>,
    /// Receive datagrams over UDP, and use DTLS.
    #[arg(long, requires = "listen", help_heading = HEADING)]
    udp: bool,
    /// The certificates of the authorities that the server may have, in PEM.
    #[arg(long, visible_alias = "CAfile", value_name = "FILE", requires = "listen", help_heading = HEADING)]
    ca: Option<PathBuf>,
    /// Trust the raw public keys in this file.
    #[arg(long, value_name = "FILE", requires = "listen", help_heading = HEADING)]
    rpk_file: Option<PathBuf>,
    /// The name in the server's certificate, instead of the host.
    #[arg(long, value_name = "NAME", requires = "listen", help_heading = HEADING)]
    servername: Option<String>,
    /// This device's certificate chain in PEM, leaf first.
    #[arg(long, value_name = "FILE", requires = "listen", help_heading = HEADING)]
    cert: Option<PathBuf>,
    /// Its private key, unless that is in the file of --cert.
    #[arg(long, value_name = "FILE", requires = "cert", help_heading = HEADING)]
    key: Option<PathBuf>,
    /// Authenticate both sides by the pre-shared key in this file, which `dunlin psk` makes.
    #[arg(long, value_name = "FILE", requires = "listen", help_heading = HEADING)]
    psk_file: Option<PathBuf>,
    /// The identity of the key, if the file has several.
    #[arg(long, value_name = "IDENTITY", requires = "psk_file", help_heading = HEADING)]
    psk_identity: Option<String>,
    /// Keep the handshake cache in this directory, which is created if it is missing: later handshakes are then shorter, also after a
    /// restart. The server needs a cache, too.
    #[arg(long, value_name = "DIRECTORY", requires = "listen", help_heading = HEADING)]
    cache: Option<PathBuf>,
    /// Send over this interface: a device, an address, or `default`. Repeat the option for several, the best first, at most four.
    #[arg(long, value_name = "NAME|ADDRESS", requires = "udp", help_heading = HEADING)]
    interface: Vec<String>,
}

/// A key of a table, and the file that it names, if any.
type Key<'a> = (&'a str, Option<&'a Path>);

impl Route {
    /// The options as the text of a configuration. The names of files are relative to the working directory.
    fn text(&self) -> Result<String, Error> {
        let mut text = "[[listener]]\nname = \"tunnel\"\n".to_owned();
        let mut add = |key: &str, value: Option<&str>| {
            if let Some(value) = value {
                text.push_str(&format!("{key} = {}\n", quoted(value)));
            }
        };
        add("listen", self.listen.as_deref());
        add("to", self.connect.as_deref());
        add("server_name", self.servername.as_deref());
        add("transport", self.udp.then_some("dtls"));
        if !self.interface.is_empty() {
            let interfaces: Vec<_> = self.interface.iter().map(|interface| quoted(interface)).collect();
            text.push_str(&format!("interfaces = [{}]\n", interfaces.join(", ")));
        }
        let store = self.store();
        let tables: [(&str, &[Key<'_>]); 4] = [
            ("[[listener.certificate]]", &[("chain", self.cert.as_deref()), ("key", self.key.as_deref())]),
            ("[listener.server]", &[("ca", self.ca.as_deref()), ("raw_keys", self.rpk_file.as_deref())]),
            ("[listener.psk]", &[("file", self.psk_file.as_deref())]),
            ("[listener.cache]", &[("store", store.as_deref())]),
        ];
        for (table, keys) in tables {
            if keys.iter().all(|(_, path)| path.is_none()) {
                continue;
            }
            text.push_str(&format!("{table}\n"));
            for (key, path) in keys {
                let Some(path) = path else { continue };
                let failed = || Error::usage(path.display(), "a name that is not UTF-8", "rename it");
                text.push_str(&format!("{key} = {}\n", quoted(path.to_str().ok_or_else(failed)?)));
            }
            match (table, &self.psk_identity) {
                ("[listener.psk]", Some(identity)) => {
                    text.push_str(&format!("identity = {}\n", quoted(identity)));
                }
                ("[listener.cache]", _) => text.push_str("mode = \"compact\"\n"),
                _ => {}
            }
        }
        Ok(text)
    }

    /// The file of the handshake cache. With a slash, its name is not taken for a kind of store.
    fn store(&self) -> Option<PathBuf> {
        Some(Path::new(".").join(self.cache.as_ref()?).join("servers"))
    }
}

/// A text of TOML, which has the escapes of JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Reads the configuration from its file, or from the options.
fn load(config: Option<&Path>, text: &str) -> Result<TunnelConfig, Faults> {
    match config {
        Some(path) => TunnelConfig::load(path),
        None => TunnelConfig::parse(Path::new("options"), text),
    }
}

/// Prints all faults of options but the last, and returns the last.
fn told_of_options(faults: &Faults) -> Error {
    told_at(faults, |fault: &Fault| {
        let key = fault.place.as_ref().map(|place| place.key.trim_start_matches("listener[0]."));
        let key = key.unwrap_or_default();
        let option = match key {
            "listen" => "--listen",
            "to" => "--connect",
            "server_name" => "--servername",
            "server.ca" => "--ca",
            "server.raw_keys" => "--rpk-file",
            "certificate[0].chain" => "--cert",
            "certificate[0].key" => "--key",
            "psk.file" => "--psk-file",
            "psk.identity" => "--psk-identity",
            "cache.store" => "--cache",
            key if key.starts_with("interfaces") => "--interface",
            _ => "options",
        };
        option.to_owned()
    })
}

/// Runs `dunlin tunnel`.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    let (path, text) = (args.config.clone(), args.route.text()?);
    let told = if path.is_some() { told } else { told_of_options };
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
    if let Some(directory) = &args.route.cache {
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        let advice = "name a directory that can be written";
        made.map_err(|error| Error::failed(directory.display(), error, advice))?;
    }
    program::run::<Tunnel>(config, move || load(path.as_deref(), &text), told)
}
