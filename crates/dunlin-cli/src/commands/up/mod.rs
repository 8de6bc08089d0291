//! `dunlin up`: a server and devices that authenticate to each other over loopback, in one process.

mod device;
mod server;
mod setup;
mod table;

use std::io::{self, IsTerminal, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args as ClapArgs;
use dunlin::ServerAddress;
use dunlin_tokio::{DtlsEndpoint, TlsAcceptor};
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::mpsc;

use crate::error::{Error, count, printable};
use crate::files::Existing;
use crate::stop::Stop;

use self::device::{Plan, Report};
use self::server::Verdicts;
use self::setup::{Device, Guest, Setup};
use self::table::{Live, Table};

/// The number of connections of a device with `--once`: the second one can resume the first.
const ROUNDS_ONCE: u64 = 2;
/// How often a terminal is redrawn.
const FRAME: Duration = Duration::from_millis(250);
/// The number of intervals between tables without a terminal.
const TABLE_INTERVALS: u32 = 5;
/// The number of reports that wait before devices wait.
const REPORTS: usize = 1024;
const WORKERS: usize = 2;
/// How many free ports are tried until one is free for TCP and UDP.
const PORT_ATTEMPTS: u8 = 16;

/// Demonstrate a server and devices that authenticate each other, until Ctrl-C.
///
/// Everything runs in one process on loopback, with fresh keys in memory. The devices use all ways to authenticate in turn,
/// over TCP: X.509 with P-256 and with Ed25519, raw public key, PSK with ECDHE, plain PSK, X.509 with resumption, X.509 with
/// the handshake cache; and over UDP a PSK with connection IDs, with which the device moves to another address while it
/// talks. The server accepts all of them on one port and echoes their messages.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin up
  dunlin up --devices 100 --interval 5
  dunlin up --dir demo                       writes certificates to connect by hand
  dunlin up --once --json | jq .handshake_us

Exit status: 0 after Ctrl-C or SIGTERM; with --once, 1 if a connection failed.")]
pub(crate) struct Args {
    /// The server's port on 127.0.0.1; 0 for any free port.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// The number of devices, at most 1000.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1000))]
    devices: u16,
    /// The pause of a device between connections, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    interval: Duration,
    /// Write a root, a client's certificate and key, and a pre-shared key to this directory, to connect by hand.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Replace the files of an earlier run in --dir.
    #[arg(long, requires = "dir")]
    force: bool,
    /// Stop when each device has made two connections.
    #[arg(long)]
    once: bool,
    /// Print a line for each connection instead of a table.
    #[arg(long, conflicts_with = "json")]
    log: bool,
    /// Print a line of JSON for each connection of a device (docs/json.md); other output goes to stderr.
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    const RANGE: std::ops::RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(86400);
    let duration = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.filter(|d| RANGE.contains(d)).ok_or_else(|| "give seconds, 0.01 to 86400".to_owned())
}

/// Runs `dunlin up`.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    let runtime = runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build();
    let runtime = runtime.map_err(|error| Error::failed("the runtime", error, "free some resources"))?;
    runtime.block_on(up(args, out))
}

async fn up(args: &Args, out: &mut dyn Write) -> Result<(), Error> {
    let Setup { server, devices, guest } = Setup::new(args.devices.into())?;
    if let Some(dir) = &args.dir {
        guest.write(dir, Existing::from_force(args.force))?;
    }
    let mut stop = Stop::new()?;
    let (listener, endpoint, address) = listen(args.port).await?;
    let verdicts = Verdicts::default();
    let (guests_in, guests) = mpsc::channel(REPORTS);
    endpoint.set_server(Some(server.clone()));
    tokio::spawn(server::serve_datagrams(endpoint, verdicts.clone(), guests_in.clone()));
    tokio::spawn(server::serve(listener, TlsAcceptor::new(server), verdicts.clone(), guests_in));
    announce(args, address, out)?;

    let plan = Plan {
        server: address,
        name: ServerAddress::new(setup::server_name()?, address.port()),
        verdicts,
        interval: args.interval,
        rounds: args.once.then_some(ROUNDS_ONCE),
    };
    let started = Instant::now();
    let mut view = View::new(args, &devices);
    let connections = start(devices, &plan);
    let stopped = tokio::select! {
        result = view.follow(connections, guests, out) => result,
        () = stop.wait() => Ok(()),
    };
    stopped?;
    view.finish(started.elapsed(), out)
}

/// Listens on the same port for TLS over TCP and DTLS over UDP.
async fn listen(port: u16) -> Result<(TcpListener, DtlsEndpoint, SocketAddr), Error> {
    let wanted = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let failed = |error| Error::failed(wanted, error, "choose another --port, or none for any that is free");
    let mut attempts = if port == 0 { PORT_ATTEMPTS } else { 1 };
    loop {
        let listener = TcpListener::bind(wanted).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        attempts -= 1;
        match DtlsEndpoint::bind(address).await {
            Ok(endpoint) => return Ok((listener, endpoint, address)),
            // A port that is free for TCP may be in use for UDP.
            Err(error) if attempts == 0 => return Err(failed(error)),
            Err(_) => {}
        }
    }
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

/// Reports that the server is ready, and how to connect by hand. With --once, the server ends before a user could connect.
fn announce(args: &Args, address: SocketAddr, out: &mut dyn Write) -> Result<(), Error> {
    let mut stderr = io::stderr();
    let out = if args.json { &mut stderr } else { out };
    let end = if args.once { "two connections each" } else { "Ctrl-C stops" };
    writeln!(out, "dunlin up: ready on {address}, {}, {end}", count(args.devices, "device"))?;
    match &args.dir {
        _ if args.once => {}
        None => writeln!(out, "--dir DIR writes certificates to connect by hand")?,
        Some(dir) => {
            let [root, certificate, key, psk] =
                Guest::paths(dir).map(|path| printable(&path.display().to_string()));
            writeln!(
                out,
                "by hand: dunlin client {address} --CAfile {root} --cert {certificate} --key {key}"
            )?;
            writeln!(out, "     or: dunlin client {address} --psk-file {psk}")?;
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
    once: bool,
}

impl View {
    fn new(args: &Args, devices: &[Device]) -> Self {
        let (form, redraw) = match (args.json, args.log) {
            (true, _) => (Form::Json, FRAME),
            (_, true) => (Form::Log, FRAME),
            _ if io::stdout().is_terminal() => (Form::Live(Live::default()), FRAME),
            _ => (Form::Tables, args.interval.saturating_mul(TABLE_INTERVALS)),
        };
        Self { table: Table::new(devices), form, redraw, once: args.once }
    }

    /// Shows reports until all devices are done.
    async fn follow(
        &mut self,
        mut connections: mpsc::Receiver<Report>,
        mut guests: mpsc::Receiver<server::Verdict>,
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
                Some(verdict) = guests.recv() => self.guest(&verdict, out)?,
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

    fn guest(&mut self, verdict: &server::Verdict, out: &mut dyn Write) -> Result<(), Error> {
        self.table.note_guest(verdict);
        if matches!(self.form, Form::Log) {
            writeln!(out, "{}", table::guest_line(verdict))?;
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
            "dunlin up: {done} connections with both sides authenticated, {failed} failed, in {:.1} s",
            after.as_secs_f64()
        );
        match self.form {
            Form::Json => writeln!(io::stderr(), "{summary}")?,
            _ => writeln!(out, "{summary}")?,
        }
        if self.once && failed > 0 {
            let what = format!("{failed} of {} connections", done + failed);
            return Err(Error::failed(what, "failed", "the lines above name the reason of each"));
        }
        Ok(())
    }
}
