//! What each way of agreeing on a key costs: bytes, time on both sides, and how long it takes over a slow link.
//!
//! Both sides have one suite, group and signature scheme; no server name, no session IDs, no tickets. Certificates are
//! leaves directly below the root that both trust. OpenSSL is held to the same.

mod bytes;
mod draft;
mod foreign;
mod suites;
mod time;

use std::fmt::Display;
use std::sync::Arc;

use bytes::Stack;
use dunlin::crypto::CryptoProvider;
use foreign::OpenSsl;
use suites::{AllKeys, Case};
use time::Times;

use super::{Experiment, Plan, Progress, Way};
use crate::Error;
use crate::capture::save_pcap;
use crate::count::{Layers, connections};
use crate::net::{Ground, Pair};
use crate::report::Row;

/// The MTU of Ethernet, in bytes.
const MTU: u16 = 1500;

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
        let (keys, cases) = (AllKeys::new()?, suites::cases());
        progress.steps(cases.len() + draft::len());
        let lab = Lab::new(plan, progress, keys)?;
        let mut rows = Vec::new();
        for case in &cases {
            progress.now(case.name());
            rows.extend(lab.rows(case)?);
            progress.step();
        }
        rows.extend(draft::rows(plan.runs, progress)?);
        Ok(rows)
    }
}

/// How many handshakes in memory are measured in a row before the other stack has its turn, and how often.
const HANDSHAKES: usize = 20;
const TURNS: usize = 10;

/// What all cases are measured with.
struct Lab<'a> {
    plan: &'a Plan,
    keys: AllKeys,
    provider: Arc<CryptoProvider>,
    /// The same, and it notes what it takes.
    watched: Arc<CryptoProvider>,
    /// Real sockets, if that is the way.
    ground: Option<Ground>,
    openssl: Option<OpenSsl>,
}

impl<'a> Lab<'a> {
    fn new(plan: &'a Plan, progress: &Progress, keys: AllKeys) -> Result<Self, Error> {
        let groups = vec![dunlin_awslc::X25519, dunlin_awslc::SECP256R1, dunlin_ffdhe::FFDHE2048];
        let provider = Arc::new(CryptoProvider { groups, ..dunlin_awslc::provider() });
        let mut lab =
            Self { plan, keys, provider, watched: Arc::new(time::provider()), ground: None, openssl: None };
        if plan.way == Way::Real {
            lab.ground = Some(Ground::new()?);
            match OpenSsl::new() {
                Ok(openssl) => lab.openssl = Some(openssl),
                Err(error) => progress.note(&format!("left out: {error}")),
            }
        }
        Ok(lab)
    }

    /// What a case takes, and what it takes OpenSSL.
    fn rows(&self, case: &Case) -> Result<Vec<Row>, Error> {
        let openssl = self.openssl.as_ref().filter(|_| case.openssl.is_some());
        let [ours, theirs] = self.times(case, openssl)?;
        let row = self.row(case, "dunlin");
        let Some(ground) = &self.ground else { return Ok(vec![ours.figures(self.bytes_in_memory(case, row)?)]) };
        let pair = ground.pair(MTU)?;
        let (client, server) = case.configs(&self.provider, &self.keys)?;
        let row = self.bytes(ground, &pair, case, &Stack::Dunlin(&client, &server), row)?;
        let mut rows = vec![ours.figures(row)];
        if let Some(openssl) = openssl {
            let row = self.row(case, "openssl");
            rows.push(theirs.totals(self.bytes(ground, &pair, case, &Stack::OpenSsl(openssl), row)?));
        }
        Ok(rows)
    }

    fn row(&self, case: &Case, stack: &str) -> Row {
        case.row(stack).with("way", self.plan.way.name())
    }

    /// What handshakes in memory take both stacks, which take turns.
    fn times(&self, case: &Case, openssl: Option<&OpenSsl>) -> Result<[Times; 2], Error> {
        let (client, server) = case.configs(&self.watched, &self.keys)?;
        let (mut ours, mut theirs) = (Times::default(), Times::default());
        let turns = if self.plan.quick { 1 } else { TURNS };
        // The first one finds nothing where it will be looked for: in no cache.
        time::handshake(&client, &server)?;
        for _ in 0..turns {
            for _ in 0..HANDSHAKES {
                ours.add(&time::handshake(&client, &server)?);
            }
            if let Some(openssl) = openssl {
                theirs.add_totals(&openssl.times(case, &self.keys, HANDSHAKES)?);
            }
        }
        Ok([ours, theirs])
    }

    /// Adds the bytes of handshakes on real sockets.
    fn bytes(
        &self,
        ground: &Ground,
        pair: &Pair,
        case: &Case,
        stack: &Stack<'_>,
        row: Row,
    ) -> Result<Row, Error> {
        let mut layers = Vec::new();
        for run in 0..self.plan.runs {
            let frames = bytes::frames(ground, pair, case, &self.keys, stack)?;
            layers.extend(connections(&frames).first().map(|connection| connection.layers()));
            if let Some(directory) = self.plan.captures.as_ref().filter(|_| run == 0) {
                save_pcap(&frames, &directory.join(format!("{}-{}.pcap", stack.name(), case.name())))?;
            }
        }
        let of =
            |figure: fn(&Layers) -> u64| layers.iter().map(|layers| figure(layers) as f64).collect::<Vec<_>>();
        Ok(with_paper(case, row.figure("handshake_bytes", &of(|layers| layers.tls_bytes)))
            .figure("total_bytes", &of(|layers| layers.total_bytes()))
            .figure("packets", &of(|layers| layers.packets)))
    }

    /// Adds the bytes of handshakes in memory.
    fn bytes_in_memory(&self, case: &Case, row: Row) -> Result<Row, Error> {
        let (client, server) = case.configs(&self.provider, &self.keys)?;
        let sent = (0..self.plan.runs).map(|_| {
            let turns = time::handshake(&client, &server)?;
            Ok(turns.iter().map(|turn| turn.sent_bytes).sum::<usize>() as f64)
        });
        let sent = sent.collect::<Result<Vec<_>, Error>>()?;
        Ok(with_paper(case, row.figure("handshake_bytes", &sent)))
    }
}

/// Adds what the paper has.
fn with_paper(case: &Case, row: Row) -> Row {
    match case.paper() {
        Some(bytes) => row.paper("handshake_bytes", bytes),
        None => row,
    }
}

fn failed(why: impl Display) -> Error {
    Error::new("handshake", why, "run it again; if it stays, this is a fault in dunlin")
}
