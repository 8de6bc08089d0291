//! The accuracy of the lab's own line on this machine, which limits all figures measured over it.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::{Experiment, Plan, Progress, Way};
use crate::Error;
use crate::link::{Line, Link, in_real_time};
use crate::net::{Ground, Namespace, Pair, Process};
use crate::report::{About, Row};

/// An IP header without options and a UDP header.
const HEADERS: usize = 28;
/// The payload of an ordinary datagram in a bulk transfer.
const PAYLOAD: usize = 1000;
/// The volume at each rate: large enough to hide wake-up times, small enough for the socket's buffer.
const BURST: u32 = 100;
/// The number of datagrams sent into a lossy line.
const LOSSES: u64 = 2000;
/// Longer than any delay here: a later datagram counts as lost.
const PATIENCE: Duration = Duration::from_secs(10);

/// One row.
enum Case {
    RoundTrip { delay_ms: u64, busy: bool },
    Rate { kbit_per_s: u64 },
    Loss { percent: u32 },
}

/// The experiment `link`.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "link",
    about: About {
        subject: "accuracy of the lab's own line: delay, rate and loss, on an idle and a busy machine",
        paper: None,
        terms: &[],
    },
    packages: &[],
    ways: &[Way::Real],
    runs: 100,
    run,
};

fn run(plan: &Plan, progress: &Progress, rows: &mut Vec<Row>) -> Result<(), Error> {
    let ground = Ground::new()?;
    let cases = cases(plan.quick);
    progress.steps(cases.len());
    for case in &cases {
        progress.now(case.describe());
        rows.push(case.measure(&ground, plan)?);
        progress.step();
    }
    Ok(())
}

fn cases(quick: bool) -> Vec<Case> {
    let delays = [5, 30, 100].map(|delay_ms| [false, true].map(|busy| Case::RoundTrip { delay_ms, busy }));
    let rates = [250, 1000, 10_000].map(|kbit_per_s| Case::Rate { kbit_per_s });
    let mut cases: Vec<_> =
        delays.into_iter().flatten().chain(rates).chain([Case::Loss { percent: 10 }]).collect();
    if quick {
        cases.retain(|case| !matches!(case, Case::RoundTrip { busy: false, .. }));
    }
    cases
}

impl Case {
    fn describe(&self) -> String {
        match self {
            Self::RoundTrip { delay_ms, busy } => {
                format!("{delay_ms} ms{}", if *busy { ", busy" } else { "" })
            }
            Self::Rate { kbit_per_s } => format!("{kbit_per_s} kbit/s"),
            Self::Loss { percent } => format!("{percent} % loss"),
        }
    }

    fn measure(&self, ground: &Ground, plan: &Plan) -> Result<Row, Error> {
        match *self {
            Self::RoundTrip { delay_ms, busy } => {
                let delay = Duration::from_millis(delay_ms);
                let ends = Ends::new(ground, &Line { delay, ..Line::default() }, plan.seed)?;
                let _burners = if busy { burn(ground, &ends.pair.client)? } else { Vec::new() };
                let trips = ends.round_trips(plan.runs)?;
                let errors: Vec<_> = trips.iter().map(|trip| trip - 2.0 * delay_ms as f64).collect();
                let row = Row::new().with("delay_ms", delay_ms).with("busy", busy);
                Ok(row.figure("round_trip_ms", &trips).figure("round_trip_error_ms", &errors))
            }
            Self::Rate { kbit_per_s } => {
                let line = Line { rate_kbit_per_s: Some(kbit_per_s), ..Line::default() };
                let carried = Ends::new(ground, &line, plan.seed)?.carried()?;
                Ok(Row::new().with("rate_kbit_per_s", kbit_per_s).figure("carried_kbit_per_s", &[carried]))
            }
            Self::Loss { percent } => {
                let line = Line { loss_percent: percent.into(), ..Line::default() };
                let lost = Ends::new(ground, &line, plan.seed)?.lost()?;
                Ok(Row::new().with("loss_percent", percent).figure("lost_percent", &[lost]))
            }
        }
    }
}

/// Keeps every core busy.
fn burn<'a>(ground: &'a Ground, namespace: &Namespace) -> Result<Vec<Process<'a>>, Error> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let burner = || ground.spawn(namespace, Command::new("sh").args(["-c", "while :; do :; done"]));
    (0..cores).map(|_| burner()).collect()
}

/// A line and a socket at each end.
struct Ends {
    link: Link,
    pair: Pair,
    from: UdpSocket,
    to: UdpSocket,
}

impl Ends {
    fn new(ground: &Ground, line: &Line, seed: u64) -> Result<Self, Error> {
        let (pair, link) = Link::between(ground, line, seed)?;
        let socket =
            |namespace: &Namespace, address| namespace.run(|| UdpSocket::bind((address, 0)))?.map_err(failed);
        let from = socket(&pair.client, Pair::CLIENT)?;
        let to = socket(&pair.server, Pair::SERVER)?;
        for (socket, other) in [(&from, &to), (&to, &from)] {
            other.local_addr().and_then(|address| socket.connect(address)).map_err(failed)?;
            socket.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
        }
        Ok(Self { link, pair, from, to })
    }

    /// Measures `count` round trips in milliseconds. Both sides run in real time like the link, so that the
    /// result is about the link and not about the machine's scheduling.
    fn round_trips(&self, count: u32) -> Result<Vec<f64>, Error> {
        thread::scope(|scope| {
            scope.spawn(|| {
                in_real_time();
                let mut buffer = [0; PAYLOAD];
                // The thread ends with the last datagram or a timeout; the other side has the reason.
                (0..count).try_for_each(|_| {
                    let len = self.to.recv(&mut buffer)?;
                    self.to.send(buffer.get(..len).unwrap_or_default()).map(|_| ())
                })
            });
            let trips = scope.spawn(|| {
                in_real_time();
                (0..count).map(|_| self.round_trip()).collect()
            });
            trips.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn round_trip(&self) -> Result<f64, Error> {
        let start = Instant::now();
        self.from.send(&[0; 8]).map_err(failed)?;
        self.from.recv(&mut [0; 8]).map_err(failed)?;
        Ok(start.elapsed().as_secs_f64() * 1e3)
    }

    /// Measures the rate of arriving IP packets, in kilobits a second, when many are sent at once.
    fn carried(&self) -> Result<f64, Error> {
        for _ in 0..BURST {
            self.from.send(&[0; PAYLOAD]).map_err(failed)?;
        }
        let arrived = || self.to.recv(&mut [0; PAYLOAD]).map(|_| Instant::now()).map_err(failed);
        let first = arrived()?;
        let last = (1..BURST).try_fold(first, |_, _| arrived())?;
        let bits = f64::from(BURST - 1) * ((PAYLOAD + HEADERS) * 8) as f64;
        Ok(bits / last.duration_since(first).as_secs_f64() / 1e3)
    }

    /// Measures the percentage of lost datagrams.
    fn lost(&self) -> Result<f64, Error> {
        self.to.set_nonblocking(true).map_err(failed)?;
        let mut arrived = 0;
        let mut sent = 0;
        let start = Instant::now();
        loop {
            match self.to.recv(&mut [0; PAYLOAD]) {
                Ok(_) => arrived += 1,
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(failed(error)),
                // All datagrams so far have arrived or are lost, so no buffer overflows.
                Err(_) if arrived + self.link.counts().lost == sent => {
                    if sent == LOSSES {
                        return Ok(100.0 * (sent - arrived) as f64 / sent as f64);
                    }
                    self.from.send(&[0; 8]).map_err(failed)?;
                    sent += 1;
                }
                Err(_) if start.elapsed() > PATIENCE => {
                    return Err(Error::new("link", "datagrams vanish that it did not lose", "run it again"));
                }
                Err(_) => thread::yield_now(),
            }
        }
    }
}

fn failed(error: std::io::Error) -> Error {
    Error::new("a datagram over the link", error, "run it again on an idle machine")
}
