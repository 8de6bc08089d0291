//! Many clients that stay for minutes, with fixed traffic, also during attacks.
//!
//! The clients of TLS are tasks of one runtime, those of DTLS associations of the engine over one socket,
//! each with an address of its own. The plain server has a thread with a table of open files of its own,
//! since the limit on open files is for each table.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use dunlin::ClientConfig;
use dunlin_pki::KeyType;
use dunlin_tokio::TlsStream;
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, getrlimit};
use tokio::net::{TcpStream, UdpSocket};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use super::Place;
use super::attack::{self, Attack};
use super::backend::{self, Sunk};
use super::dtls::Dtls;
use super::keys::Keys;
use super::load::{self, Target, percentile_ms};
use super::servers::{Datagrams, Order, Server, Stack};
use super::stage::{DTLS_PERIOD, Stage, Trips, failed};
use crate::Error;
use crate::experiment::{Held, Progress};
use crate::link::in_real_time;
use crate::report::Row;

/// How often a client sends a message.
const TLS_PERIOD: Duration = Duration::from_secs(1);
/// The clients that connect at the same time.
const CONNECTING: usize = 64;
/// How often a new client connects, so that handshakes are measured, too.
const NEW_PERIOD: Duration = Duration::from_millis(100);
/// The rounds of a run, at most: one a minute. Each has all phases, so that a moment in which the machine is
/// slow touches one round.
const ROUNDS: f64 = 10.0;
/// The part of a phase whose times do not count: the previous attack ends in it, and the next one reaches its
/// strength.
const CHANGE: Duration = Duration::from_secs(5);
/// How often the plain server looks whether it has to end.
const LOOK: Duration = Duration::from_millis(50);
/// The pause in which the gateway comes to rest, before its memory is read.
const REST: Duration = Duration::from_secs(2);
/// The open files of a gateway beside those of its clients.
const OTHER_FILES: u64 = 500;
/// The clients that a gateway takes beside those that stay: new ones and attackers.
const OTHER_CLIENTS: usize = 5000;
/// The time for which the socket of a DTLS client to the backend stays open, as the configuration says.
pub(super) const SOCKET_TIME: Duration = Duration::from_secs(5);

/// Holds the clients, and returns the rows.
///
/// # Errors
/// A gateway does not start, or a client does not connect.
pub(super) fn run(place: &Place<'_>, held: Held, progress: &Progress) -> Result<Vec<Row>, Error> {
    let keys = Keys::new(KeyType::P256)?;
    // The first runtime of a process opens a pair of sockets that all runtimes use. The table of the plain
    // server copies them.
    let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let plain = Plain::start()?;
    let mut servers = start(place, held, &keys, &plain)?;
    let client = keys.client(0, false)?;
    let targets: Vec<_> = servers.iter().map(|server| Target::of(server, false)).collect();
    let addresses: Vec<_> = servers.iter().map(Server::datagrams).collect();
    let rounds = Rounds::of(held);
    progress.steps(2 + rounds.phases());
    let empty = at_rest(&runtime, &mut servers)?;

    progress.now(format!("{} clients connect over TLS", held.tls));
    let clients = runtime.block_on(connect(&targets, &client, held.tls))?;
    let with_tls = at_rest(&runtime, &mut servers)?;
    progress.step();
    progress.now(format!("{} clients connect over DTLS", held.dtls));
    let dtls = Dtls::connect(&client, &addresses, held.dtls)?;
    let with_dtls = at_rest(&runtime, &mut servers)?;
    progress.step();

    let stage = Arc::new(Stage::default());
    let begin = Instant::now();
    let spent = total_time(&mut servers)?;
    let ([tls, dtls, new], attacks) = {
        let of_dtls = stage.clone();
        let of_attacks = stage.clone();
        let holding = thread::spawn(move || {
            in_real_time();
            dtls.hold(begin, &of_dtls)
        });
        let attacking = {
            let targets = targets.clone();
            let client = client.clone();
            thread::spawn(move || attack::run(&targets, &addresses, &client, &of_attacks))
        };
        // The attackers share the core of the clients, whose times are to contain no waiting for them.
        // Threads take after their parent.
        in_real_time();
        let seen = runtime.block_on(traffic(clients, (&targets, &client), &stage, &rounds, progress));
        stage.has_ended.store(true, Ordering::Relaxed);
        let dtls = joined(holding);
        let attacks = joined(attacking);
        let [tls, new] = seen?;
        ([tls, dtls?, new], attacks?)
    };
    let spent = total_time(&mut servers)?.saturating_sub(spent);
    let load = spent.as_secs_f64() / begin.elapsed().as_secs_f64() * 100.0;
    let last = at_rest(&runtime, &mut servers)?;
    let of = |protocol: &str, number: usize, bytes: u64| {
        let row = row("memory", protocol).with("clients", number);
        let row = row.with("gateways", servers.len()).figure("memory_bytes", &[bytes as f64]);
        row.figure("client_bytes", &[bytes as f64 / number.max(1) as f64])
    };
    let mut rows = vec![
        of("tls", held.tls, with_tls.saturating_sub(empty)),
        of("dtls", held.dtls, with_dtls.saturating_sub(with_tls)),
        of("all, at the end", held.tls + held.dtls, last.saturating_sub(empty))
            .figure("processor_percent", &[load]),
    ];
    for (protocol, trips) in [("tls", tls), ("dtls", dtls), ("new tls", new)] {
        rows.extend(rounds.rows_of(protocol, &trips, &attacks)?);
    }
    Ok(rows)
}

fn joined<T>(thread: thread::JoinHandle<Result<T, Error>>) -> Result<T, Error> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Starts as many gateways as the limit on open files demands.
fn start<'a>(place: &Place<'a>, held: Held, keys: &Keys, plain: &Plain) -> Result<Vec<Server<'a>>, Error> {
    let (_, files) = getrlimit(Resource::RLIMIT_NOFILE).map_err(failed)?;
    // A DTLS client's socket to the backend is open for a part of its period.
    let open = held.dtls as f64 * SOCKET_TIME.as_secs_f64() / DTLS_PERIOD.as_secs_f64();
    let needed = 2 * held.tls as u64 + open as u64;
    let number = needed.div_ceil(files.saturating_sub(OTHER_FILES).max(1)).max(1);
    let order = |at: u64| Order {
        stack: Stack::Dunlin,
        keys,
        is_cached: false,
        port: super::FIRST_PORT + 2 * at as u16,
        backend: plain.tcp,
        datagrams: Some(Datagrams {
            backend: plain.udp,
            clients: held.tls + held.dtls + OTHER_CLIENTS,
            backend_time: SOCKET_TIME,
        }),
    };
    (0..number).map(|at| Server::start(place.ground, place.namespace, place.core, order(at))).collect()
}

/// The memory of all gateways in bytes, some time after the latest handshake.
fn at_rest(runtime: &Runtime, servers: &mut [Server<'_>]) -> Result<u64, Error> {
    runtime.block_on(async { sleep(REST).await });
    servers.iter_mut().map(Server::memory).sum()
}

fn total_time(servers: &mut [Server<'_>]) -> Result<Duration, Error> {
    servers.iter_mut().map(Server::processor_time).sum()
}

/// Connects clients over TLS, some at a time, to one gateway after the other.
async fn connect(
    targets: &[Target],
    client: &Arc<ClientConfig>,
    number: usize,
) -> Result<Vec<TlsStream<TcpStream>>, Error> {
    let next = Arc::new(AtomicUsize::new(0));
    let workers = (0..CONNECTING).map(|_| {
        let targets = targets.to_vec();
        let client = client.clone();
        let next = next.clone();
        async move {
            let mut connected = Vec::new();
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                match targets.get(at % targets.len().max(1)).filter(|_| at < number) {
                    Some(target) => connected.push(load::connected(target, &client).await?),
                    None => return Ok(connected),
                }
            }
        }
    });
    Ok(load::all(workers).await?.into_iter().flatten().collect())
}

/// Lets the clients send their messages in all phases, and new ones connect. Returns the times of both.
async fn traffic(
    clients: Vec<TlsStream<TcpStream>>,
    (targets, client): (&[Target], &Arc<ClientConfig>),
    stage: &Arc<Stage>,
    rounds: &Rounds,
    progress: &Progress,
) -> Result<[Trips; 2], Error> {
    let begin = Instant::now();
    let number = clients.len().max(1) as u32;
    let mut tasks = JoinSet::new();
    for (mut tls, at) in clients.into_iter().zip(0_u32..) {
        let stage = stage.clone();
        tasks.spawn(async move {
            let mut trips = Trips::default();
            // The clients are spread evenly over a period.
            let mut due = begin + TLS_PERIOD * at / number;
            let mut is_connected = true;
            while !stage.has_ended() {
                let is_late = Instant::now() > due;
                sleep_until(due.into()).await;
                // A message that waited for the previous echo has waited for the gateway.
                let moment = stage.moment();
                let sent = if is_late { due } else { Instant::now() };
                // The messages of a client that has lost its connection are lost, too.
                is_connected = is_connected && load::exchange(&mut tls).await.is_ok();
                trips.note(moment, is_connected.then(|| sent.elapsed()));
                due += TLS_PERIOD;
            }
            trips
        });
    }
    let connecting = {
        let targets = targets.to_vec();
        let client = client.clone();
        let stage = stage.clone();
        tokio::spawn(async move {
            let mut trips = Trips::default();
            for target in targets.iter().cycle().take_while(|_| !stage.has_ended()) {
                let moment = stage.moment();
                let sent = Instant::now();
                let connected = load::connected(target, &client).await;
                trips.note(moment, connected.is_ok().then(|| sent.elapsed()));
                if let Ok(tls) = connected {
                    tokio::spawn(load::close(tls));
                }
                sleep_until((sent + NEW_PERIOD).into()).await;
            }
            trips
        })
    };
    for (at, attack) in (0..rounds.phases()).zip(Attack::ALL.iter().cycle()) {
        stage.counts.store(false, Ordering::Relaxed);
        stage.phase.store(at, Ordering::Relaxed);
        progress.now(format!("attack: {}", attack.name()));
        sleep(rounds.change()).await;
        stage.counts.store(true, Ordering::Relaxed);
        sleep(rounds.phase.saturating_sub(rounds.change())).await;
        progress.step();
    }
    stage.has_ended.store(true, Ordering::Relaxed);
    let mut all = Trips::default();
    while let Some(trips) = tasks.join_next().await {
        all.add(trips.map_err(failed)?);
    }
    Ok([all, connecting.await.map_err(failed)?])
}

fn row(part: &str, protocol: &str) -> Row {
    Row::new().with("stack", Stack::Dunlin.name()).with("part", part).with("protocol", protocol)
}

/// How a run is divided: each round has a phase with each attack.
struct Rounds {
    number: usize,
    /// How long a phase takes.
    phase: Duration,
}

impl Rounds {
    fn of(held: Held) -> Self {
        let number = held.minutes.clamp(1.0, ROUNDS) as usize;
        let time = Duration::from_secs_f64(held.minutes * 60.0);
        Self { number, phase: time / (number * Attack::ALL.len()) as u32 }
    }

    /// The time of a phase that does not count, of a short phase a third.
    fn change(&self) -> Duration {
        CHANGE.min(self.phase / 3)
    }

    /// The number of all phases.
    const fn phases(&self) -> usize {
        self.number * Attack::ALL.len()
    }

    /// The rows of a kind of clients: for each attack the figures of all rounds, also divided by those of the
    /// same round without an attack.
    ///
    /// # Errors
    /// In a phase no message had an echo, so there is no time.
    fn rows_of(&self, protocol: &str, trips: &Trips, attacks: &[u64]) -> Result<Vec<Row>, Error> {
        let kinds = Attack::ALL.len();
        let mut times: Vec<_> = (0..self.phases()).map(|phase| trips.times(phase)).collect();
        if !trips.is_empty()
            && let Some(phase) = times.iter().position(Vec::is_empty)
        {
            let attack = Attack::of(phase).name();
            return Err(failed(format_args!("no client over {protocol} had an echo in a phase of {attack}")));
        }
        let mut percentiles =
            |share: f64| -> Vec<_> { times.iter_mut().map(|times| percentile_ms(times, share)).collect() };
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(&mut percentiles);
        let of =
            |figures: &[f64], kind| figures.iter().skip(kind).step_by(kinds).copied().collect::<Vec<_>>();
        let calm = of(&p99, 0);
        let rows = Attack::ALL.iter().enumerate().zip(attacks).map(|((kind, attack), made)| {
            let count =
                |phases: &mut dyn Iterator<Item = usize>| phases.filter(|at| at % kinds == kind).count();
            let messages = count(&mut trips.times.iter().map(|(at, _)| *at));
            let lost = count(&mut trips.lost.iter().copied());
            let p99 = of(&p99, kind);
            let row = row("hold", protocol).with("attack", attack.name());
            let row = row.figure("round_trip_p50_ms", &of(&p50, kind)).figure("round_trip_p99_ms", &p99);
            let row = row.figure("round_trip_p999_ms", &of(&p999, kind));
            let row = row.figure("messages", &[messages as f64]).figure("lost", &[lost as f64]);
            if *attack == Attack::None {
                return row;
            }
            let ratios: Vec<_> = p99.iter().zip(&calm).map(|(p99, calm)| p99 / calm).collect();
            let time = self.phase.as_secs_f64() * self.number as f64;
            row.figure("attacks_per_s", &[*made as f64 / time]).figure("p99_ratio", &ratios)
        });
        Ok(rows.collect())
    }
}

/// The plain server, on a thread of its own.
struct Plain {
    tcp: SocketAddr,
    udp: SocketAddr,
    has_ended: Arc<AtomicBool>,
}

impl Drop for Plain {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }
}

impl Plain {
    /// Starts it.
    fn start() -> Result<Self, Error> {
        let (tell, told) = mpsc::channel();
        let has_ended = Arc::new(AtomicBool::new(false));
        let ended = has_ended.clone();
        thread::spawn(move || {
            in_real_time();
            let started = || -> io::Result<_> {
                unshare(CloneFlags::CLONE_FILES)?;
                let runtime = Builder::new_current_thread().enable_all().build()?;
                let bound = runtime.block_on(async {
                    let datagrams = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
                    let udp = datagrams.local_addr()?;
                    tokio::spawn(echo(datagrams));
                    Ok::<_, io::Error>((backend::start(Sunk::default(), Some(attack::ROOM)).await?, udp))
                })?;
                Ok((runtime, bound))
            };
            match started() {
                Ok((runtime, bound)) => {
                    let _ = tell.send(Ok(bound));
                    // A thread with other files cannot wake this runtime, so it looks itself.
                    runtime.block_on(async {
                        while !ended.load(Ordering::Relaxed) {
                            sleep(LOOK).await;
                        }
                    });
                }
                Err(error) => drop(tell.send(Err(error))),
            }
        });
        let (tcp, udp) = told.recv().map_err(failed)?.map_err(failed)?;
        Ok(Self { tcp, udp, has_ended })
    }
}

/// Returns datagrams.
async fn echo(socket: UdpSocket) {
    let mut datagram = vec![0; 1 << 16];
    loop {
        // An error is about an earlier datagram, whose sender is gone.
        if let Ok((len, from)) = socket.recv_from(&mut datagram).await {
            let _ = socket.send_to(datagram.get(..len).unwrap_or_default(), from).await;
        }
    }
}
