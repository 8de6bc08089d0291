//! `dunlin gateway`: a TLS proxy in front of existing servers.

mod explain;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args as ClapArgs, Subcommand};
use dunlin_gateway::config::{LogConfig, LogFormat, LogLevel};
use dunlin_gateway::{Config, Fault, Faults, Gateway, Sockets};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sd_notify::NotifyState;
use tracing::Level;
use tracing_appender::non_blocking::WorkerGuard;

use crate::error::{Error, count, warn};
use crate::stop::{self, Stop};

/// How many files the gateway opens beside those of connections: listeners, keys, stores and the log.
const OTHER_FILES: u64 = 100;

const EXAMPLES: &str = "\
Examples:
  dunlin gateway -c gateway.toml
  dunlin gateway -c gateway.toml --check
  dunlin gateway -c /etc/dunlin/gateway.d

The smallest configuration ends TLS in front of a server on port 1883:

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

/// End TLS in front of existing servers, such as MQTT brokers and web applications.
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
        for warning in Gateway::check(config).map_err(|faults| told(&faults))? {
            warn(&warning.to_string());
        }
        let (listeners, routes) = (count(listeners, "listener"), count(routes, "route"));
        writeln!(out, "{}: valid: {listeners}, {routes}", path.display())?;
        return Ok(());
    }
    // This changes the environment, so it comes before all threads.
    let sockets = Sockets::inherited().map_err(|error| {
        let advice = "name only ListenStream and ListenDatagram with IP addresses in the unit of the sockets";
        Error::failed("inherited sockets", error, advice)
    })?;
    // The guard writes the rest of the log when it is dropped.
    let _guard = begin_log(config.log);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(serve(path, config, sockets));
    runtime.shutdown_background();
    result
}

async fn serve(path: &Path, config: Config, sockets: Sockets) -> Result<(), Error> {
    // Catch signals first: the first log line may make its reader stop the gateway.
    let (mut stop, mut hangups) = (Stop::new()?, stop::hangups()?);
    raise_file_limit();
    warn_of_file_limit(config.connections);
    let gateway = Gateway::start_with(config, sockets).await.map_err(|faults| told(&faults))?;
    tell_manager(&[NotifyState::Ready]);
    loop {
        tokio::select! {
            () = stop.wait() => break,
            Some(()) = hangups.recv() => {
                // systemd demands the time with it (sd_notify(3)).
                let now = NotifyState::monotonic_usec_now().ok();
                tell_manager(&[Some(NotifyState::Reloading), now].into_iter().flatten().collect::<Vec<_>>());
                tokio::select! {
                    // A file on a network may not answer.
                    () = stop.wait() => break,
                    () = reload(&gateway, path) => {}
                }
                tell_manager(&[NotifyState::Ready]);
            }
        }
    }
    tracing::info!("stopping");
    tell_manager(&[NotifyState::Stopping]);
    tokio::select! {
        () = gateway.stop() => {}
        () = stop.wait() => gateway.end().await,
    }
    tracing::info!("stopped");
    Ok(())
}

/// Tells the service manager, if there is one (`NOTIFY_SOCKET`).
fn tell_manager(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "the service manager was not told; correct NOTIFY_SOCKET");
    }
}

/// Raises the limit on open files as far as the system allows. By default it is 1024 for programs that use `select`.
fn raise_file_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // Without it, the gateway serves fewer clients, and says so.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// Warns if the system allows fewer open files than `connections` need: each has one to the client and one to the backend.
fn warn_of_file_limit(connections: usize) {
    let needed = (connections as u64).saturating_mul(2).saturating_add(OTHER_FILES);
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((allowed, _)) if allowed < needed => tracing::warn!(
            "limits.connections: {connections} connections need {needed} open files, and the system allows {allowed}: write a \
             smaller number, or raise the limit (LimitNOFILE of systemd, or ulimit -Hn)"
        ),
        _ => {}
    }
}

async fn reload(gateway: &Gateway, path: &Path) {
    let file = path.to_owned();
    let loaded = tokio::task::spawn_blocking(move || Config::load(&file)).await;
    let result = match loaded {
        Ok(Ok(config)) => {
            warn_of_file_limit(config.connections);
            gateway.reload(config).await
        }
        Ok(Err(faults)) => {
            gateway.note_refused_reload(&faults);
            Err(faults)
        }
        // The runtime ends.
        Err(_) => return,
    };
    match result {
        Ok(()) => tracing::info!("reloaded"),
        Err(faults) => {
            for fault in faults.iter() {
                tracing::error!("{fault}");
            }
            tracing::error!("not reloaded: the previous configuration stays in force");
        }
    }
}

/// Prints all faults but the last, and returns the last, which ends the command.
fn told(faults: &Faults) -> Error {
    let error = |fault: &Fault| {
        let place = fault.place.as_ref().map_or_else(|| "configuration".to_owned(), ToString::to_string);
        Error::failed(place, &fault.what, &fault.advice)
    };
    let mut errors: Vec<_> = faults.iter().map(error).collect();
    let last = errors.pop();
    errors.iter().for_each(Error::report);
    last.unwrap_or_else(|| Error::failed("configuration", "not valid", "check it"))
}

/// Begins the log on stderr. A thread writes it, so that a reader that does not keep up loses lines but does not block the gateway.
fn begin_log(config: LogConfig) -> WorkerGuard {
    let (writer, guard) = tracing_appender::non_blocking(io::stderr());
    let level = match config.level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
    };
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(writer).with_target(false);
    match config.format {
        LogFormat::Text => log.with_ansi(false).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
    guard
}
