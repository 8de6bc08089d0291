//! Programs that run until a signal stops them, and read their configuration again at SIGHUP: `gateway` and
//! `tunnel`.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use dunlin_command::error::Error;
use dunlin_command::log::{Lines, missing, time_stamp};
use dunlin_command::stop::{self, Stop};
use dunlin_gateway::config::{Common, LogConfig, LogFormat, LogLevel};
use dunlin_gateway::{Faults, Sockets, Tunnel, TunnelConfig};
use nix::sys::resource::{Resource, getrlimit};
use sd_notify::NotifyState;
use serde_json::json;
use tracing::Level;

/// A gateway or a tunnel.
pub(crate) trait Program: Sized {
    /// The content of its configuration files.
    type Config: Send + 'static;

    /// The settings that all configurations have.
    fn common(config: &Self::Config) -> &Common;
    /// The most files that it may have open.
    fn open_files(config: &Self::Config) -> u64;
    /// Starts it, with sockets that the process has inherited.
    async fn start(config: Self::Config, sockets: Sockets) -> Result<Self, Faults>;
    /// Replaces its configuration, or changes nothing.
    async fn reload(&self, config: Self::Config) -> Result<(), Faults>;
    /// Counts a reload whose configuration did not load.
    fn note_refused_reload(&self, faults: &Faults);
    /// Lets connections end, and stops it.
    async fn stop(&self);
    /// Ends it at once.
    async fn end(&self);
}

/// Implements [`Program`] by the methods that a gateway and a tunnel have.
macro_rules! program {
    ($program:ty, $config:ty) => {
        impl Program for $program {
            type Config = $config;

            fn common(config: &$config) -> &Common {
                &config.common
            }

            fn open_files(config: &$config) -> u64 {
                config.open_files()
            }

            async fn start(config: $config, sockets: Sockets) -> Result<Self, Faults> {
                Self::start_with(config, sockets).await
            }

            async fn reload(&self, config: $config) -> Result<(), Faults> {
                self.reload(config).await
            }

            fn note_refused_reload(&self, faults: &Faults) {
                self.note_refused_reload(faults);
            }

            async fn stop(&self) {
                self.stop().await;
            }

            async fn end(&self) {
                self.end().await;
            }
        }
    };
}

#[cfg(feature = "gateway")]
program!(dunlin_gateway::Gateway, dunlin_gateway::Config);
program!(Tunnel, TunnelConfig);

/// Runs a program with `config` until a signal stops it. `load` reads the configuration again, and `told`
/// prints all faults but the last.
pub(crate) fn run<P: Program>(
    config: P::Config,
    load: impl Fn() -> Result<P::Config, Faults> + Clone + Send + 'static,
    told: fn(&Faults) -> Error,
) -> Result<(), Error> {
    // This changes the environment, so it comes before all threads.
    let sockets = Sockets::inherited().map_err(|error| {
        let advice = "name only ListenStream and ListenDatagram with IP addresses in the unit of the sockets";
        Error::failed("inherited sockets", error, advice)
    })?;
    let _log = begin_log(P::common(&config).log)?;
    // A worker's own queue has 256 places, and tasks beyond them go to the common queue, which it reads every
    // second time. At its usual interval, the connections there would wait until those in its own queue have
    // nothing left to do.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().global_queue_interval(2).enable_all().build()?;
    let result = runtime.block_on(serve::<P>(config, sockets, load, told));
    runtime.shutdown_background();
    result
}

async fn serve<P: Program>(
    config: P::Config,
    sockets: Sockets,
    load: impl Fn() -> Result<P::Config, Faults> + Clone + Send + 'static,
    told: fn(&Faults) -> Error,
) -> Result<(), Error> {
    // Catch signals first: the first log line may make its reader stop the program.
    let (mut stop, mut hangups) = (Stop::new()?, stop::hangups()?);
    stop::raise_file_limit();
    file_limit_warning(P::open_files(&config)).iter().for_each(|warning| tracing::warn!("{warning}"));
    let program = P::start(config, sockets).await.map_err(|faults| told(&faults))?;
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
                    () = reload(&program, load.clone()) => {}
                }
                tell_manager(&[NotifyState::Ready]);
            }
        }
    }
    tracing::info!("stopping");
    tell_manager(&[NotifyState::Stopping]);
    tokio::select! {
        () = program.stop() => {}
        () = stop.wait() => program.end().await,
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

/// A warning, if the system allows fewer open files than the limits need.
pub(super) fn file_limit_warning(needed: u64) -> Option<String> {
    let (_, allowed) = getrlimit(Resource::RLIMIT_NOFILE).ok().filter(|(_, allowed)| *allowed < needed)?;
    Some(format!(
        "limits.connections: the connections of all listeners may need {needed} open files, and the system allows {allowed}: write smaller \
         numbers, or raise the limit (LimitNOFILE of systemd, or ulimit -Hn)"
    ))
}

async fn reload<P: Program>(program: &P, load: impl Fn() -> Result<P::Config, Faults> + Send + 'static) {
    let result = match tokio::task::spawn_blocking(load).await {
        Ok(Ok(config)) => {
            file_limit_warning(P::open_files(&config)).iter().for_each(|warning| tracing::warn!("{warning}"));
            program.reload(config).await
        }
        Ok(Err(faults)) => {
            program.note_refused_reload(&faults);
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

/// The log of the running program, which ends with this value.
pub(super) struct Log(Arc<Lines>);

impl Drop for Log {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Begins the log on stderr.
pub(super) fn begin_log(LogConfig { level, format }: LogConfig) -> Result<Log, Error> {
    let is_json = format == LogFormat::Json;
    let lost = move |lines| {
        let why = missing(lines);
        let json = || json!({"timestamp": time_stamp(SystemTime::now()), "level": "WARN", "message": why});
        if is_json { json().to_string() } else { why }
    };
    let lines = Arc::new(Lines::new(io::stderr(), lost)?);
    let level = match level {
        LogLevel::Error => Level::ERROR,
        LogLevel::Warn => Level::WARN,
        LogLevel::Info => Level::INFO,
        LogLevel::Debug => Level::DEBUG,
    };
    let log = tracing_subscriber::fmt().with_max_level(level).with_writer(lines.clone()).with_target(false);
    match format {
        LogFormat::Text => log.with_ansi(false).init(),
        LogFormat::Json => log.json().flatten_event(true).init(),
    }
    Ok(Log(lines))
}
