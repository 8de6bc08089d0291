//! Dunlin's gateway under load, beside other programs that end TLS in front of a TCP server.
//!
//! All run in a namespace of their own, on its loopback device. The servers have one core; the clients and
//! the plain server behind them have another. The processor time of a server is counted beside what its
//! clients measure: where the clients are the limit, the processor time alone says what the server can do.

mod attack;
mod backend;
mod dtls;
mod hold;
mod keys;
mod load;
mod servers;
mod stage;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dunlin::ClientConfig;
use dunlin_pki::KeyType;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::runtime::Runtime;

use backend::Sunk;
use keys::Keys;
use load::{Direction, Target, percentile_ms};
use servers::{Order, Server, Stack};

use super::core::Core;
use super::{Experiment, Held, Plan, Progress, Way};
use crate::Error;
use crate::net::{Ground, Namespace};
use crate::report::{About, Row};

/// The port of the first server, in a namespace of our own.
const FIRST_PORT: u16 = 500;
/// The ports of clients: all that need no privilege.
const PORTS: &str = "1024 65535";
/// The files that a process opens at most: each concurrent client has one at both ends of the server, and
/// there are some others.
const FILES: u64 = 2 * CONCURRENT as u64 + 500;
/// The simultaneous connections while new ones are counted, and the connections for bulk data.
const CONNECTING: usize = 64;
const QUICK_CONNECTING: usize = 16;
const BULK: usize = 4;
/// The clients in the latency percentiles, and how often each sends a message.
const CONCURRENT: usize = 1000;
const QUICK_CONCURRENT: usize = 100;
const PERIOD: Duration = Duration::from_millis(250);
/// The time of a measurement.
const TIME: Duration = Duration::from_secs(3);
const QUICK_TIME: Duration = Duration::from_millis(500);
/// The clients that stay in a quick run.
const QUICK_HELD: Held = Held { minutes: 0.1, tls: 50, dtls: 600 };
/// The types of the keys of both sides.
const KEY_TYPES: [KeyType; 2] = [KeyType::P256, KeyType::Rsa2048];
/// The percentiles and their shares.
const PERCENTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)];

/// The experiment `gateway`.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "gateway",
    about: About {
        subject: "the gateway under load, beside stunnel, HAProxy and nginx",
        paper: None,
        terms: &[
            ("connections", "connect, mutual handshake of TLS 1.3, a message and its echo, close"),
            ("concurrent", "clients connect at the same time, stay, and each sends a message every 250 ms"),
            ("saturated", "each of these clients sends a message as soon as it has the previous one's echo"),
            ("full", "a handshake without sessions, tickets and caches"),
            ("cached", "a full handshake with the handshake cache"),
            ("hold", "clients that stay: each sends a message every second over TLS, every minute over DTLS"),
            ("new tls", "from the SYN of a new client to its first echo, while the others stay"),
            ("flood", "20,000 ClientHellos a second over DTLS, from 50,000 addresses, without a cookie"),
            ("half_open", "50 clients a second send their ClientHello over TLS, and nothing more"),
            ("slow", "200 clients send a byte of their ClientHello a second; 50 read 1 kB a second"),
        ],
    },
    packages: &["haproxy", "nginx", "stunnel4"],
    ways: &[Way::Real],
    runs: 5,
    run,
};

fn run(plan: &Plan, progress: &Progress, rows: &mut Vec<Row>) -> Result<(), Error> {
    let limits = getrlimit(Resource::RLIMIT_NOFILE);
    let raised = limits.and_then(|(_, hard)| setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map(|()| hard));
    let files = raised.map_err(|errno| Error::refused("the limit of open files", errno))?;
    if files < FILES {
        let advice = "raise it (ulimit -Hn)";
        return Err(Error::new(
            "open files",
            format_args!("the system allows {files}, {FILES} are needed"),
            advice,
        ));
    }
    let ground = Ground::new()?;
    let namespace = ground.namespace("gateway")?;
    namespace.ip("link set lo up\n")?;
    let cores = Core::all(0)?;
    // With one core alone, both have it.
    let (Some(&clients), Some(&servers)) = (cores.first(), cores.get(1).or(cores.first())) else {
        return Err(Error::new("cores", "this process may use none", "run it again"));
    };
    let place = Place { ground: &ground, namespace: &namespace, core: servers };
    namespace.set("ip_local_port_range", PORTS)?;
    namespace.run(|| {
        clients.take(0)?;
        let held = plan.held.or(plan.quick.then_some(QUICK_HELD));
        if plan.held.is_none() {
            rows.extend(race(&place, plan, progress)?);
        }
        if let Some(held) = held {
            rows.extend(hold::run(&place, held, progress)?);
        }
        Ok(())
    })?
}

/// Where the servers run.
struct Place<'a> {
    ground: &'a Ground,
    namespace: &'a Namespace,
    core: Core,
}

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Connections,
    Concurrent,
    Bulk(Direction),
}

impl Part {
    const fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::Concurrent => "concurrent",
            Self::Bulk(direction) => direction.name(),
        }
    }
}

/// A server and the clients that fit it.
struct Contender<'a> {
    key_type: KeyType,
    is_cached: bool,
    server: Server<'a>,
    /// Each with a cache of its own, if there is one.
    clients: Vec<Arc<ClientConfig>>,
}

impl Contender<'_> {
    /// Whether this part is measured with it: only new connections depend on the keys and the cache.
    fn has(&self, part: Part) -> bool {
        part == Part::Connections || (self.key_type == KeyType::P256 && !self.is_cached)
    }

    fn target(&self) -> Target {
        Target::of(&self.server, self.is_cached)
    }
}

/// The figures of a measurement, with their names.
type Figures = Vec<(String, f64)>;

/// The measurements of each case: its part, and the number of its contender.
type Seen = BTreeMap<(Part, usize), Vec<Figures>>;

/// Measures all parts with all servers, one after the other, in each run.
fn race(place: &Place<'_>, plan: &Plan, progress: &Progress) -> Result<Vec<Row>, Error> {
    let lacking = |error| Error::new("load generator", error, "free some resources");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(lacking)?;
    let sunk = Sunk::default();
    let backend = runtime.block_on(backend::start(sunk.clone(), None)).map_err(lacking)?;
    let keys = KEY_TYPES.map(Keys::new).into_iter().collect::<Result<Vec<_>, _>>()?;
    let connecting = if plan.quick { QUICK_CONNECTING } else { CONNECTING };
    let mut contenders = Vec::new();
    for keys in &keys {
        for (stack, is_cached) in
            Stack::ALL.map(|stack| (stack, false)).into_iter().chain([(Stack::Dunlin, true)])
        {
            let port = FIRST_PORT + contenders.len() as u16;
            let order = Order { stack, keys, is_cached, port, backend, datagrams: None };
            let server = match Server::start(place.ground, place.namespace, place.core, order) {
                Ok(server) => server,
                Err(error) if stack == Stack::Dunlin => return Err(error),
                Err(error) => {
                    progress.note(&format!("left out: {error}"));
                    continue;
                }
            };
            let clients =
                (0..connecting).map(|number| keys.client(number, is_cached)).collect::<Result<_, _>>()?;
            contenders.push(Contender { key_type: keys.key_type, is_cached, server, clients });
        }
    }
    let parts: Vec<_> =
        [Part::Connections, Part::Concurrent].into_iter().chain(Direction::ALL.map(Part::Bulk)).collect();
    let cases: Vec<_> = parts
        .iter()
        .flat_map(|part| (0..contenders.len()).map(move |at| (*part, at)))
        .filter(|(part, at)| contenders.get(*at).is_some_and(|contender| contender.has(*part)))
        .collect();
    progress.steps(cases.len() * plan.runs as usize);
    let time = if plan.quick { QUICK_TIME } else { TIME };
    let concurrent = if plan.quick { QUICK_CONCURRENT } else { CONCURRENT };
    let mut seen = Seen::new();
    let mut failed = BTreeSet::new();
    for _ in 0..plan.runs {
        for case in &cases {
            if failed.contains(case) {
                progress.step();
                continue;
            }
            let Some(contender) = contenders.get_mut(case.1) else { continue };
            progress.now(format!("{}, {}", case.0.name(), contender.server.stack.name()));
            match measure(&runtime, contender, case.0, &sunk, (time, concurrent)) {
                Ok(figures) => seen.entry(*case).or_default().push(figures),
                Err(error) if contender.server.stack == Stack::Dunlin => return Err(error),
                // The others take part as long as they can.
                Err(error) => {
                    progress.note(&format!("without {}: {error}", case.0.name()));
                    failed.insert(*case);
                }
            }
            progress.step();
        }
    }
    seen.retain(|case, _| !failed.contains(case));
    Ok(cases
        .iter()
        .filter(|case| !failed.contains(case))
        .map(|case| row(&contenders, &seen, *case))
        .collect())
}

/// Measures a part once; returns its figures.
fn measure(
    runtime: &Runtime,
    contender: &mut Contender<'_>,
    part: Part,
    sunk: &Sunk,
    (time, concurrent): (Duration, usize),
) -> Result<Figures, Error> {
    let target = contender.target();
    let Some(client) = contender.clients.first().cloned() else { return Ok(vec![]) };
    let server = &mut contender.server;
    match part {
        Part::Connections => {
            // The first handshakes fill caches.
            runtime.block_on(load::connections(&target, &contender.clients, true, Duration::ZERO))?;
            let before = server.processor_time()?;
            let (count, took) =
                runtime.block_on(load::connections(&target, &contender.clients, false, time))?;
            let each = server.processor_time()?.saturating_sub(before).as_secs_f64() / count.max(1) as f64;
            Ok(vec![
                ("connections_per_s".into(), count as f64 / took.as_secs_f64()),
                ("server_us".into(), each * 1e6),
                ("core_connections_per_s".into(), 1.0 / each),
            ])
        }
        Part::Concurrent => {
            let mut seen = runtime.block_on(load::concurrent(&target, &client, concurrent))?;
            let mut figures = Vec::new();
            figures.extend(percentiles(&mut seen.connects, "connect"));
            let before = server.processor_time()?;
            let (mut paced, clients) =
                runtime.block_on(load::round_trips(&target, seen.clients, Some(PERIOD), time))?;
            let spent = server.processor_time()?.saturating_sub(before).as_secs_f64();
            figures.extend(percentiles(&mut paced, "round_trip"));
            figures.push(("message_us".into(), spent / paced.len().max(1) as f64 * 1e6));
            let (mut full, clients) = runtime.block_on(load::round_trips(&target, clients, None, time))?;
            figures.push(("saturated_messages_per_s".into(), full.len() as f64 / time.as_secs_f64()));
            figures.extend(percentiles(&mut full, "saturated"));
            runtime.block_on(load::close_all(clients))?;
            Ok(figures)
        }
        Part::Bulk(direction) => {
            let mut spent = || server.processor_time();
            let sending = load::bulk(&target, &client, BULK, direction, sunk, time, &mut spent);
            let (bytes, took, spent) = runtime.block_on(sending)?;
            let megabytes = bytes as f64 / 1e6;
            Ok(vec![
                ("mb_per_s".into(), megabytes / took.as_secs_f64()),
                ("server_per_mb_us".into(), spent.as_secs_f64() * 1e6 / megabytes),
                ("core_mb_per_s".into(), megabytes / spent.as_secs_f64()),
            ])
        }
    }
}

/// The percentiles of the times of something.
fn percentiles(times: &mut [Duration], of: &str) -> [(String, f64); PERCENTILES.len()] {
    PERCENTILES.map(|(name, share)| (format!("{of}_{name}_ms"), percentile_ms(times, share)))
}

/// The row of a case, for Dunlin with the ratios to the best of the others in the same run.
fn row(contenders: &[Contender<'_>], seen: &Seen, (part, at): (Part, usize)) -> Row {
    let Some(contender) = contenders.get(at) else { return Row::new() };
    let stack = contender.server.stack;
    let row = Row::new().with("stack", stack.name()).with("part", part.name());
    let row = match part {
        Part::Connections => {
            let mode = if contender.is_cached { "cached" } else { "full" };
            row.with("credential", contender.key_type.name()).with("mode", mode)
        }
        Part::Concurrent | Part::Bulk(_) => row,
    };
    let values = |at: usize, name: &str| -> Vec<f64> {
        let runs = seen.get(&(part, at)).into_iter().flatten();
        runs.flatten().filter(|(of, _)| of == name).map(|(_, value)| *value).collect()
    };
    let rivals: Vec<_> = contenders
        .iter()
        .enumerate()
        .filter(|(_, rival)| rival.server.stack != Stack::Dunlin && rival.key_type == contender.key_type)
        .map(|(at, _)| at)
        .collect();
    let names = seen.get(&(part, at)).and_then(|runs| runs.first()).into_iter().flatten();
    names.fold(row, |row, (name, _)| {
        let own = values(at, name);
        let row = row.figure(name, &own);
        // Rates: more is better.
        if stack == Stack::Dunlin && name.ends_with("_per_s") {
            let rivals: Vec<_> = rivals.iter().map(|at| values(*at, name)).collect();
            row.figure(&format!("{name}_ratio"), &ratios(&own, &rivals))
        } else {
            row
        }
    })
}

/// By how much the value of each run exceeds the best of the rivals' values in the same run.
fn ratios(values: &[f64], rivals: &[Vec<f64>]) -> Vec<f64> {
    let best = |run: usize| rivals.iter().filter_map(|rival| rival.get(run).copied()).reduce(f64::max);
    values.iter().enumerate().filter_map(|(run, value)| Some(value / best(run)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_to_the_best_rival_of_the_same_run() {
        let a = vec![10.0, 40.0];
        let b = vec![20.0, 20.0];
        let rivals = [a, b];
        assert_eq!(ratios(&[30.0, 30.0], &rivals), [1.5, 0.75]);
        assert_eq!(ratios(&[30.0], &[]), [0.0; 0]);
    }
}
