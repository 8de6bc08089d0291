//! What each way of agreeing on a key costs: bytes, time on both sides, and how long it takes over a slow link.
//!
//! Both sides have one suite, group and signature scheme; no server name, no session IDs, no tickets. Certificates are
//! leaves directly below the root that both trust. OpenSSL is held to the same.

mod bytes;
mod draft;
mod duration;
mod foreign;
#[cfg(feature = "legacy-lab")]
mod legacy;
mod suites;
mod time;

use std::fmt::Display;

use bytes::Stack;
use duration::{Parts, RATES, SlowLink, path_bytes};
use foreign::OpenSsl;
use serde_json::Value;
use suites::{AllKeys, Case, Crypto};
use time::Times;

use super::{Experiment, Plan, Progress, Way};
use crate::Error;
use crate::capture::{Frame, save_pcap};
use crate::count::{Layers, connections};
use crate::net::{Ground, Pair};
use crate::report::Row;

/// The MTU of Ethernet, in bytes.
const MTU: u16 = 1500;
/// How many handshakes in memory are measured in a row before the other stack has its turn, and how often.
const HANDSHAKES: usize = 20;
const TURNS: usize = 10;

/// The experiment `key-exchange`.
pub(super) struct KeyExchange;

impl Experiment for KeyExchange {
    fn name(&self) -> &'static str {
        "key-exchange"
    }

    fn about(&self) -> &'static str {
        "what each way of agreeing on a key costs: bytes, processing time, duration over slow links"
    }

    fn ways(&self) -> &'static [Way] {
        &[Way::Real, Way::Virtual]
    }

    fn runs(&self) -> u32 {
        20
    }

    fn run(&self, plan: &Plan, progress: &Progress) -> Result<Vec<Row>, Error> {
        let cases = suites::cases();
        let lab = Lab::new(plan, progress)?;
        progress
            .steps(cases.len() * (1 + lab.real.as_ref().map_or(0, |real| real.links.len())) + draft::len());
        let (mut rows, mut slow) = (Vec::new(), Vec::new());
        for case in &cases {
            progress.now(case.name());
            let measured = lab.rows(case)?;
            progress.step();
            if let (Some(real), Some(ours)) = (&lab.real, measured.first()) {
                slow.extend(lab.durations(real, case, ours, progress)?);
            }
            rows.extend(measured);
        }
        rows.extend(slow);
        rows.extend(draft::rows(progress)?);
        Ok(rows)
    }
}

/// What all cases are measured with.
struct Lab<'a> {
    plan: &'a Plan,
    keys: AllKeys,
    ordinary: Means,
    #[cfg(feature = "legacy-lab")]
    legacy: Means,
    /// Real sockets, if that is the way.
    real: Option<Real>,
}

/// Cryptography, and the same that notes what it takes.
struct Means {
    crypto: Crypto,
    watched: Crypto,
}

impl Means {
    fn new(crypto: Crypto) -> Self {
        Self { watched: time::watched(&crypto), crypto }
    }
}

/// What it takes to measure on real sockets.
struct Real {
    links: Vec<SlowLink>,
    openssl: Option<OpenSsl>,
    ground: Ground,
}

impl Real {
    fn new(plan: &Plan, progress: &Progress) -> Result<Self, Error> {
        let ground = Ground::new()?;
        let links = RATES.map(|rate| SlowLink::new(&ground, rate, plan.seed));
        let links = links.into_iter().collect::<Result<_, _>>()?;
        let openssl = OpenSsl::new().inspect_err(|error| progress.note(&format!("left out: {error}")));
        Ok(Self { links, openssl: openssl.ok(), ground })
    }
}

impl<'a> Lab<'a> {
    fn new(plan: &'a Plan, progress: &Progress) -> Result<Self, Error> {
        let real = match plan.way {
            Way::Real => Some(Real::new(plan, progress)?),
            Way::Virtual => None,
        };
        #[cfg(feature = "legacy-lab")]
        progress.note(dunlin_legacy::WARNING);
        Ok(Self {
            plan,
            keys: AllKeys::new()?,
            ordinary: Means::new(Crypto::new()),
            #[cfg(feature = "legacy-lab")]
            legacy: Means::new(legacy::crypto()),
            real,
        })
    }

    /// What the cryptography of a case is done by.
    fn means(&self, case: &Case) -> &Means {
        match case.is_legacy {
            #[cfg(feature = "legacy-lab")]
            true => &self.legacy,
            _ => &self.ordinary,
        }
    }

    /// Bytes and times of a case: our row, and OpenSSL's if it has the suite.
    fn rows(&self, case: &Case) -> Result<Vec<Row>, Error> {
        let Some(real) = &self.real else {
            let [ours, _] = self.times(case, None)?;
            return Ok(vec![ours.figures(self.bytes_in_memory(case)?)]);
        };
        let openssl = real.openssl.as_ref().filter(|_| case.openssl.is_some());
        let [ours, theirs] = self.times(case, openssl)?;
        let pair = real.ground.pair(MTU)?;
        let (client, server) = case.configs(&self.means(case).crypto, &self.keys)?;
        let stack = Stack::Dunlin(&client, &server);
        let mut rows = vec![ours.figures(self.bytes(&real.ground, &pair, case, &stack)?)];
        if let Some(openssl) = openssl {
            let row = self.bytes(&real.ground, &pair, case, &Stack::OpenSsl(openssl))?;
            rows.push(theirs.totals(row));
        }
        Ok(rows)
    }

    fn row(&self, case: &Case, stack: &str) -> Row {
        case.row(stack).with("way", self.plan.way.name())
    }

    /// What handshakes in memory take both stacks, which take turns.
    fn times(&self, case: &Case, openssl: Option<&OpenSsl>) -> Result<[Times; 2], Error> {
        let (client, server) = case.configs(&self.means(case).watched, &self.keys)?;
        let turns = if self.plan.quick { 1 } else { TURNS };
        time::undisturbed(|| {
            let (mut ours, mut theirs) = (Times::default(), Times::default());
            // The first one finds nothing where it will be looked for: in no cache.
            time::handshake(&client, &server)?;
            for _ in 0..turns {
                for _ in 0..HANDSHAKES {
                    ours.add(&time::handshake(&client, &server)?);
                }
                if let Some(openssl) = openssl {
                    theirs.add_totals(&openssl.times(
                        case,
                        (&self.keys, &self.means(case).crypto),
                        HANDSHAKES,
                    )?);
                }
            }
            Ok([ours, theirs])
        })
    }

    /// The bytes of handshakes on real sockets.
    fn bytes(&self, ground: &Ground, pair: &Pair, case: &Case, stack: &Stack<'_>) -> Result<Row, Error> {
        let (mut layers, mut paths) = (Vec::new(), Vec::new());
        for run in 0..self.plan.runs {
            let frames = bytes::frames(ground, pair, case, (&self.keys, &self.means(case).crypto), stack)?;
            layers.extend(connections(&frames).first().map(|connection| connection.layers()));
            paths.push(path_bytes(&frames) as f64);
            if run == 0 {
                self.save(&frames, case, stack)?;
            }
        }
        let of = |figure: fn(&Layers) -> u64| layers.iter().map(|all| figure(all) as f64).collect::<Vec<_>>();
        let row = self.row(case, stack.name()).figure("handshake_bytes", &of(|layers| layers.tls_bytes));
        Ok(with_paper(case, row)
            .figure("total_bytes", &of(|layers| layers.total_bytes()))
            .figure("packets", &of(|layers| layers.packets))
            .figure(PATH, &paths))
    }

    fn save(&self, frames: &[Frame], case: &Case, stack: &Stack<'_>) -> Result<(), Error> {
        let Some(directory) = &self.plan.captures else { return Ok(()) };
        save_pcap(frames, &directory.join(format!("{}-{}.pcap", stack.name(), case.name())))
    }

    /// The bytes of handshakes in memory.
    fn bytes_in_memory(&self, case: &Case) -> Result<Row, Error> {
        let (client, server) = case.configs(&self.means(case).crypto, &self.keys)?;
        let sent = (0..self.plan.runs).map(|_| {
            let turns = time::handshake(&client, &server)?;
            Ok(turns.iter().map(|turn| turn.sent_bytes).sum::<usize>() as f64)
        });
        let sent = sent.collect::<Result<Vec<_>, Error>>()?;
        Ok(with_paper(case, self.row(case, "dunlin").figure("handshake_bytes", &sent)))
    }

    /// How long a case takes at each rate; `measured` is its row of bytes and times.
    fn durations(
        &self,
        real: &Real,
        case: &Case,
        measured: &Row,
        progress: &Progress,
    ) -> Result<Vec<Row>, Error> {
        let of = |name| measured.get(name).and_then(Value::as_f64).unwrap_or_default();
        let parts = Parts {
            computed_us: of("client_us") + of("server_us"),
            handshake_bytes: of("handshake_bytes"),
            path_bytes: of(PATH),
        };
        let (client, server) = case.configs(&self.means(case).crypto, &self.keys)?;
        let rows = real.links.iter().map(|link| {
            let row = link.row(case, (&client, &server), parts, self.plan.runs, self.row(case, "dunlin"));
            progress.step();
            row
        });
        rows.collect()
    }
}

/// The name of [`Parts::path_bytes`] in rows.
const PATH: &str = "path_bytes";

/// Adds what the paper has.
fn with_paper(case: &Case, row: Row) -> Row {
    match case.paper {
        Some(bytes) => row.paper("handshake_bytes", bytes),
        None => row,
    }
}

fn failed(why: impl Display) -> Error {
    Error::new("handshake", why, "run it again; if it stays, this is a fault in dunlin")
}
