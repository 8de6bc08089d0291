//! `dunlin-lab up`: a gateway with servers behind it, and devices that authenticate to it over loopback, in one
//! process.

mod authority;
mod broker;
mod device;
mod mqtt;
mod rover;
mod services;
mod setup;
mod site;
mod table;
mod witness;

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args as ClapArgs;
use dunlin_command::error::{Error, count, printable};
use dunlin_command::files::Existing;
use dunlin_command::stop::{self, Stop};
use tokio::runtime;
use tokio::sync::mpsc;
use tracing_subscriber::layer::SubscriberExt;

use self::device::{Plan, Report};
use self::services::Services;
use self::setup::{Device, GUEST, Setup};
use self::site::{Listeners, Options, Site};
use self::table::{Live, Table};
use self::witness::Witness;

/// How often a terminal is redrawn.
const FRAME: Duration = Duration::from_millis(250);
/// The number of intervals between tables without a terminal.
const TABLE_INTERVALS: u32 = 5;
/// The number of reports that wait before devices wait.
const REPORTS: usize = 1024;
const WORKERS: usize = 2;

/// Run a gateway with servers behind it, and devices that authenticate to it, until Ctrl-C.
///
/// Everything runs in one process on loopback, with fresh keys in a temporary directory. The gateway is that
/// of `dunlin gateway`, with a policy and a dashboard. Behind it, a web server, a server for lines over TCP
/// and a CoAP server know no TLS: each answers with the identity that the gateway has told it, and with the
/// message. If Mosquitto is installed, it runs behind the gateway, too, and lets each device publish and
/// subscribe below its own name.
///
/// The devices use all ways to authenticate in turn. Over TLS: X.509 with P-256 and with Ed25519, raw public
/// key, PSK with ECDHE, plain PSK, X.509 with resumption, X.509 with the handshake cache, and TLS 1.2, whose
/// clients get a faster profile by the policy: at first by renegotiation, then at once. Over DTLS, two
/// devices move to another address while they talk: one with a PSK and connection IDs, and one with a
/// certificate at a CoAP server beside the gateway, which gives each association a port of its own (TCS, only
/// in builds with the feature association-ports). Some devices know no TLS: they speak HTTP, and MQTT, to a
/// tunnel (dunlin tunnel). One has a verifiable credential about a did:dunlin in a registry (dunlin
/// registry): it rotates its key before each further connection, and sends the registry's proof along. The
/// last one proves a bare DID.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin-lab up
  dunlin-lab up --devices 100 --interval 5
  dunlin-lab up --dir demo                       keeps the gateway's configuration, policy and keys, to connect by hand
  dunlin-lab up --rounds 2 --json | jq .handshake_us

Exit status: 0 after Ctrl-C or SIGTERM; with --rounds or --duration, 1 if a connection failed.")]
pub(crate) struct Args {
    /// The first of the gateway's ports on 127.0.0.1: TLS for HTTP, TLS for TCP, DTLS for CoAP, dashboard,
    /// TLS for MQTT; 0 for any free ports.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// The number of devices, at most 1000. Without it, there is one of each kind.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    devices: Option<u16>,
    /// The pause of a device between connections, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    interval: Duration,
    /// Keep the gateway's files in this directory: configuration, policy, keys, and a certificate to connect
    /// by hand.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Replace the files of an earlier run in --dir.
    #[arg(long, requires = "dir")]
    force: bool,
    /// Stop when each device has made this many connections.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,
    /// Stop after this time, in seconds.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
    /// Print a line for each connection instead of a table.
    #[arg(long, conflicts_with = "json")]
    log: bool,
    /// Print a line of JSON for each connection of a device (docs/json.md); other output goes to stderr.
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Whether the command ends by itself.
    const fn ends(&self) -> bool {
        self.rounds.is_some() || self.duration.is_some()
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    const RANGE: std::ops::RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(86400);
    let duration = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.filter(|d| RANGE.contains(d)).ok_or_else(|| "give seconds, 0.01 to 86400".to_owned())
}

/// Runs `dunlin-lab up`.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    let runtime = runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build();
    let runtime = runtime.map_err(|error| Error::failed("the runtime", error, "free some resources"))?;
    runtime.block_on(up(args, out))
}

async fn up(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    let broker = broker::find();
    let ports = Listeners::from(args.port, broker.is_some())
        .ok_or_else(|| Error::usage("--port", "too few ports follow it", "use a port below 65532"))?;
    let setup = Setup::new(args.devices.map(usize::from), broker.is_some())?;
    stop::raise_file_limit();
    let mut stop = Stop::new()?;
    // The end of a terminal must not leave the broker and the files behind.
    let mut hangups = stop::hangups()?;
    let (guests_in, guests) = mpsc::channel(REPORTS);
    let witness = Witness::new(guests_in);
    let log = tracing_subscriber::registry().with(witness.clone());
    tracing::subscriber::set_global_default(log)
        .map_err(|error| Error::failed("log", error, "this is a fault in dunlin; report it"))?;
    let services = Services::start(&setup)
        .await
        .map_err(|error| Error::failed("servers on 127.0.0.1", error, "free some resources"))?;
    let dir = args.dir.as_deref();
    let existing = Existing::from_force(args.force);
    let options = Options { dir, existing, ports, broker: broker.as_deref() };
    let site = Site::start(&setup, services, &options).await?;
    let end = async {
        tokio::select! {
            () = stop.wait() => {}
            _ = hangups.recv() => {}
            () = after(args.duration) => {}
        }
    };
    let shown = show(args, (setup.devices, services.coaps), (&site, witness, guests), end, out).await;
    site.end().await?;
    shown
}

/// Waits for this time, or for ever.
async fn after(duration: Option<Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => std::future::pending().await,
    }
}

/// Starts the devices, and shows their connections until all are made or until `end`.
async fn show(
    args: &Args,
    (devices, coaps): (Vec<Device>, SocketAddr),
    (site, witness, guests): (&Site, Witness, mpsc::Receiver<String>),
    end: impl Future<Output = ()>,
    out: &mut dyn Write,
) -> Result<(), Error> {
    announce(args, devices.len(), site, out)?;
    let gateway = *site.addresses();
    let name = setup::server_name()?;
    let tunnels = site.tunnels().into();
    let interval = args.interval;
    let rounds = args.rounds;
    let registry = site.registry().into();
    let plan = Plan { gateway, name, coaps, tunnels, registry, witness, interval, rounds };
    let started = Instant::now();
    let mut view = View::new(args, &devices);
    let connections = start(devices, &plan);
    let stopped = tokio::select! {
        result = view.follow(connections, guests, out) => result,
        () = end => Ok(()),
    };
    stopped?;
    view.finish(started.elapsed(), out)
}

/// Starts the devices, the first connections spread over one interval.
fn start(devices: Vec<Device>, plan: &Plan) -> mpsc::Receiver<Report> {
    let (reports, connections) = mpsc::channel(REPORTS);
    let spread = plan.interval.div_f64(devices.len() as f64);
    for (index, device) in devices.into_iter().enumerate() {
        let delay = spread.mul_f64(index as f64);
        tokio::spawn(device::run(index, device, plan.clone(), delay, reports.clone()));
    }
    connections
}

/// Reports that the gateway is ready, and how to connect by hand. A command that ends by itself leaves no
/// time for that.
fn announce(args: &Args, devices: usize, site: &Site, out: &mut dyn Write) -> Result<(), Error> {
    let mut stderr = io::stderr();
    let out = if args.json { &mut stderr } else { out };
    let gateway = site.addresses();
    let end = match (args.rounds, args.duration) {
        (Some(rounds), _) => format!("{} each", count(rounds, "connection")),
        (None, Some(duration)) => format!("{} s", duration.as_secs_f64()),
        (None, None) => "Ctrl-C stops".to_owned(),
    };
    writeln!(out, "dunlin-lab up: ready on {}, {}, {end}", gateway.web, count(devices, "device"))?;
    writeln!(out, "dashboard: http://{}/", gateway.admin)?;
    if gateway.mqtt.is_none() {
        writeln!(out, "without MQTT, since Mosquitto is not installed: sudo apt install mosquitto")?;
    }
    match &args.dir {
        _ if args.ends() => {}
        None => writeln!(out, "--dir DIR keeps the gateway's configuration and keys, to connect by hand")?,
        Some(dir) => {
            let path = |name: &str| printable(&dir.join(name).display().to_string());
            let root = path(setup::ROOT);
            let certificate = path("client.pem");
            let key = path("client.key");
            writeln!(
                out,
                "by hand: curl --cacert {root} --cert {certificate} --key {key} https://localhost:{}/",
                gateway.web.port()
            )?;
            let psks = path(setup::PSKS);
            writeln!(
                out,
                "     or: dunlin client {} --psk-file {psks} --psk-identity {GUEST}",
                gateway.lines
            )?;
        }
    }
    out.flush()?;
    Ok(())
}

/// The form of the output.
enum Form {
    Json,
    Log,
    Live(Live),
    /// A table, printed from time to time.
    Tables,
}

struct View {
    table: Table,
    form: Form,
    redraw: Duration,
    /// Whether a failed connection makes the command fail.
    judges: bool,
}

impl View {
    fn new(args: &Args, devices: &[Device]) -> Self {
        let (form, redraw) = match (args.json, args.log) {
            (true, _) => (Form::Json, FRAME),
            (_, true) => (Form::Log, FRAME),
            _ if io::stdout().is_terminal() => (Form::Live(Live::default()), FRAME),
            _ => (Form::Tables, args.interval.saturating_mul(TABLE_INTERVALS)),
        };
        Self { table: Table::new(devices), form, redraw, judges: args.ends() }
    }

    /// Shows reports until all devices are done.
    async fn follow(
        &mut self,
        mut connections: mpsc::Receiver<Report>,
        mut guests: mpsc::Receiver<String>,
        out: &mut dyn Write,
    ) -> Result<(), Error> {
        let mut frames = tokio::time::interval(self.redraw);
        // The first tick comes at once, when there is nothing to show.
        frames.tick().await;
        loop {
            tokio::select! {
                report = connections.recv() => match report {
                    Some(report) => self.connection(report, out)?,
                    None => return Ok(()),
                },
                Some(identity) = guests.recv() => self.guest(&identity, out)?,
                _ = frames.tick() => self.frame(out)?,
            }
        }
    }

    fn connection(&mut self, report: Report, out: &mut dyn Write) -> Result<(), Error> {
        self.table.note(&report);
        let line = match self.form {
            Form::Json => table::json_line(report),
            Form::Log => table::log_line(&report),
            Form::Live(_) | Form::Tables => return Ok(()),
        };
        writeln!(out, "{line}")?;
        out.flush()?;
        Ok(())
    }

    fn guest(&mut self, identity: &str, out: &mut dyn Write) -> Result<(), Error> {
        self.table.note_guest(identity);
        if matches!(self.form, Form::Log) {
            writeln!(out, "{}", table::guest_line(identity))?;
            out.flush()?;
        }
        Ok(())
    }

    fn frame(&mut self, out: &mut dyn Write) -> Result<(), Error> {
        match &mut self.form {
            Form::Json | Form::Log => {}
            Form::Live(live) => live.draw(&self.table, out)?,
            Form::Tables => {
                for line in self.table.lines(usize::MAX) {
                    writeln!(out, "{line}")?;
                }
                writeln!(out)?;
                out.flush()?;
            }
        }
        Ok(())
    }

    /// Prints the last table and a summary.
    fn finish(mut self, after: Duration, out: &mut dyn Write) -> Result<(), Error> {
        self.frame(out)?;
        let (done, failed) = self.table.totals();
        let summary = format!(
            "dunlin-lab up: {done} connections with both sides authenticated, {failed} failed, in {:.1} s",
            after.as_secs_f64()
        );
        match self.form {
            Form::Json => writeln!(io::stderr(), "{summary}")?,
            _ => writeln!(out, "{summary}")?,
        }
        if self.judges && failed > 0 {
            let what = format!("{failed} of {} connections", done + failed);
            return Err(Error::failed(what, "failed", "the lines above name the reason of each"));
        }
        Ok(())
    }
}
