//! The cost of a first and a repeated handshake: on the link every byte from SYN to FIN, by layer; in memory
//! the time and instructions of both sides; on radio networks the airtime and a device's energy.
//!
//! Both sides authenticate with a chain of three, of which leaf and intermediate are sent. They use a key
//! share on P-256, AES-256-GCM-SHA384 and no server name. Each side sends one message; then the client
//! closes, and the server after it. TCP is as in Linux, without offloads. Over UDP, the server demands a
//! cookie, and there are no connection IDs.

mod airtime;
mod case;
mod cost;
mod datagrams;
mod dunlin;
mod ends;
mod foreign;
mod heap;
mod valgrind;
mod virtual_time;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use case::{CONNECTIONS, Case, Credential, Keys, Mode, Protocol};
use dunlin_pki::KeyType;
use foreign::Files;

use super::foreign::{Foreign, OPENSSL_AS_SHIPPED, is_installed};
use super::valgrind::{ADVICE, PROGRAM};
use super::{Experiment, Plan, Progress, Way, undisturbed};
use crate::Error;
use crate::capture::{Frame, save_pcap};
use crate::count::{Layers, connections};
use crate::net::Ground;
use crate::report::{About, Row, median_of};

/// In virtual time, the delay in one direction, as of a short cable.
const DELAY: Duration = Duration::from_micros(50);
/// In virtual time, the pause between the two connections.
const PAUSE: Duration = Duration::from_secs(1);
/// In virtual time, the client's port of the first connection.
const FIRST_PORT: u16 = 50_000;
/// The client's message, as in wolfSSL's examples.
const QUESTION: &[u8] = b"hello wolfssl!";
/// The server's answer.
const ANSWER: &[u8] = b"I hear you fa shizzle!";
/// The MTU of IEEE 802.15.4.
const SMALLEST_MTU: u16 = 127;

/// A stack in its environment.
enum Stack<'g> {
    /// Dunlin in virtual time.
    Virtual,
    /// Dunlin on real sockets.
    Dunlin(&'g Ground),
    /// Another library on real sockets.
    Foreign(&'g Ground, Foreign),
}

impl Stack<'_> {
    const fn name(&self) -> &'static str {
        match self {
            Self::Virtual | Self::Dunlin(_) => "dunlin",
            Self::Foreign(_, foreign) => foreign.name,
        }
    }

    /// Returns whether it supports the protocol with these keys in this mode, over packets of this length.
    fn has(&self, case: &Case<'_>, mtu: u16) -> bool {
        match self {
            Self::Virtual | Self::Dunlin(_) => true,
            Self::Foreign(_, foreign) => foreign::has(foreign, case, mtu),
        }
    }

    /// Returns the frames of the two connections of the case.
    ///
    /// # Errors
    /// A handshake failed, or was of another kind than the case says, or a part is missing.
    fn frames(&self, case: &Case<'_>, mtu: u16) -> Result<Vec<Frame>, Error> {
        let ground = match self {
            Self::Virtual => return virtual_time::frames(case, mtu),
            Self::Dunlin(ground) | Self::Foreign(ground, _) => ground,
        };
        let kind = (CONNECTIONS.len(), case.protocol.is_over_datagrams());
        // New namespaces, so that TCP remembers no other connection.
        undisturbed::frames(
            self.name(),
            kind,
            || ground.pair(mtu),
            |pair| match self {
                Self::Foreign(_, foreign) => foreign::connect(foreign, ground, pair, case, mtu),
                _ => dunlin::connect(pair, case, mtu),
            },
        )
    }
}

/// The credentials on the link. A quick run has those of cells with a target value.
fn credentials(quick: bool) -> Vec<Credential> {
    use KeyType::{Ed25519, MlDsa44, P256, Rsa4096};
    let papers = [Credential::RSA2048, Credential::MIXED];
    if quick {
        return [&papers[..], &[Credential::P256]].concat();
    }
    let others = [Rsa4096, P256, Ed25519, MlDsa44].map(Credential::X509);
    [&papers[..], &others, &[Credential::RAW_P256]].concat()
}

/// The version, MTU and mode of each cell with this credential.
fn cells(credential: Credential, quick: bool) -> Vec<(Protocol, u16, Mode)> {
    // The paper's figures with different keys count no layer below TLS.
    if credential == Credential::MIXED {
        return Mode::ALL.map(|mode| (Protocol::Tls12, 1500, mode)).to_vec();
    }
    let cells = |protocols: [Protocol; 2], mtus: &[u16], modes: &[Mode]| {
        let mut cells = Vec::new();
        for protocol in protocols.into_iter().filter(|protocol| credential.suits(*protocol)) {
            for mtu in mtus {
                cells.extend(modes.iter().map(|mode| (protocol, *mtu, *mode)));
            }
        }
        cells
    };
    let mtus: &[u16] = if quick { &[SMALLEST_MTU, 1500] } else { &[SMALLEST_MTU, 576, 1500] };
    let streams = if quick && credential == Credential::P256 { &[] } else { mtus };
    let datagrams = if quick {
        cells(Protocol::DATAGRAMS, &[SMALLEST_MTU], &[Mode::Vanilla, Mode::COMPACT])
    } else {
        cells(Protocol::DATAGRAMS, mtus, &Mode::ALL)
    };
    [cells(Protocol::STREAMS, streams, &Mode::ALL), datagrams].concat()
}

/// The key types and lengths of the chains whose cost in memory is measured.
fn chains(quick: bool) -> Vec<(Credential, usize)> {
    let [rsa, p256] = [Credential::RSA2048, Credential::P256];
    if quick {
        return vec![(rsa, 3), (p256, 3)];
    }
    let others =
        [KeyType::Rsa4096, KeyType::Ed25519, KeyType::MlDsa44].map(|keys| (Credential::X509(keys), 3));
    let lengths =
        [rsa, p256].into_iter().flat_map(|credential| (1..=4).map(move |length| (credential, length)));
    lengths.chain(others).chain([(Credential::RAW_P256, 1)]).collect()
}

/// The experiment `caching`.
pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "caching",
    about: About {
        subject: "cost of a first and a repeated handshake: bytes by layer, instructions, airtime (BiTHaC)",
        paper: Some(
            "J. Bodenhausen, S. Mangel, T. Vogt, M. Henze: Bidirectional TLS Handshake Caching for Constrained Industrial IoT \
             Scenarios (BiTHaC), RWTH Aachen University and Fraunhofer FKIE. Its percentages are applied to the full \
             handshake of OpenSSL as shipped in this run; of TLS 1.2 it gives the remaining bytes as 43.25 to 38.86 %.",
        ),
        terms: &[
            ("vanilla", "a full handshake; the server sends no tickets"),
            ("rfc7924", "the client has cached the server's Certificate and CertificateRequest (RFC 7924)"),
            ("bithac", "in addition, the server has cached the client's Certificate, as in the paper"),
            ("compact", "both, named by eight bytes each instead of 32 (docs/handshake-cache.md)"),
            ("resumption", "a session: a ticket in TLS 1.3, a session ID in TLS 1.2; neither side signs"),
            ("resumption_compact", "a session, while both sides also keep the compact cache for later"),
            (
                "as shipped",
                "with the library's own settings; the other rows have what it offers for small hellos",
            ),
            ("initial", "the first connection of the two peers"),
            ("repeat", "the second connection, which can use the first one's state"),
            ("real", "on sockets between network namespaces"),
            (
                "virtual",
                "the same engine in virtual time; over a TCP that sends what Linux would send, or over UDP",
            ),
        ],
    },
    packages: &["libssl-dev", "libgnutls28-dev", "libwolfssl-dev", "valgrind"],
    ways: &[Way::Real, Way::Virtual],
    runs: 10,
    run,
};

fn run(plan: &Plan, progress: &Progress, rows: &mut Vec<Row>) -> Result<(), Error> {
    let ground = if plan.way == Way::Real { Some(Ground::new()?) } else { None };
    let mut stacks = vec![ground.as_ref().map_or(Stack::Virtual, Stack::Dunlin)];
    if let Some(ground) = &ground {
        let rivals = foreign::LIBRARIES.iter().filter_map(|library| progress.without(library.compile()));
        stacks.extend(rivals.map(|foreign| Stack::Foreign(ground, foreign)));
    }
    let credentials = credentials(plan.quick);
    let on_link: usize = credentials.iter().map(|of| cells(*of, plan.quick).len()).sum();
    let chains = chains(plan.quick);
    let on_air = airtime::credentials(plan.quick);
    let can_count = progress.without(is_installed(PROGRAM, ADVICE)).is_some();
    let in_memory =
        |(credential, chain_length)| InMemory { credential, chain_length, quick: plan.quick, can_count };
    let chains: Vec<_> = chains.into_iter().map(in_memory).collect();
    let in_memory_steps: usize = chains.iter().map(InMemory::steps).sum();
    progress.steps(on_link * plan.runs as usize + in_memory_steps + on_air.len());
    for credential in credentials {
        progress.now(format!("{} keys", credential.name()));
        let keys = Keys::new(credential, credential.chain_length())?;
        let mut full = Full::default();
        for (protocol, mtu, mode) in cells(credential, plan.quick) {
            let case = Case { keys: &keys, protocol, mode };
            progress.now(format!("{}, MTU {mtu}", case.name()));
            rows.extend(measure(&stacks, &case, mtu, plan, &mut full, progress)?);
        }
    }
    for chain in chains {
        rows.extend(chain.rows(progress)?);
    }
    for credential in on_air {
        progress.now(format!("{} on the air", credential.name()));
        rows.extend(airtime::rows(&Keys::new(credential, credential.chain_length())?, plan.runs)?);
        progress.step();
    }
    Ok(())
}

/// The keys whose heap is counted: the paper's.
const fn with_heap(quick: bool) -> &'static [Credential] {
    if quick { &[Credential::RSA2048] } else { &[Credential::RSA2048, Credential::P256] }
}

/// Measures the cost in memory of a repeated handshake with these keys.
#[derive(Clone, Copy)]
struct InMemory {
    credential: Credential,
    chain_length: usize,
    quick: bool,
    /// Whether valgrind is installed.
    can_count: bool,
}

impl InMemory {
    /// A quick run has only the modes with a target value: compact, and a handshake without a cache.
    const fn modes(&self) -> &'static [Mode] {
        if self.quick {
            &[Mode::Vanilla, Mode::COMPACT]
        } else {
            &[Mode::Vanilla, Mode::COMPACT, Mode::Resumption, Mode::RESUMPTION_COMPACT]
        }
    }

    fn protocols(&self) -> impl Iterator<Item = Protocol> + use<> {
        let credential = self.credential;
        Protocol::STREAMS.into_iter().filter(move |protocol| credential.suits(*protocol))
    }

    fn has_heap(&self) -> bool {
        self.can_count && self.chain_length == 3 && with_heap(self.quick).contains(&self.credential)
    }

    fn steps(&self) -> usize {
        let heap = if self.has_heap() { heap::steps(self.quick) } else { 0 };
        self.protocols().count() * (1 + heap)
    }

    fn rows(&self, progress: &Progress) -> Result<Vec<Row>, Error> {
        let name = format!("{} in memory, chain of {}", self.credential.name(), self.chain_length);
        let keys = Keys::new(self.credential, self.chain_length)?;
        let mut rows = Vec::new();
        for protocol in self.protocols() {
            progress.now(format!("{name}, {}", protocol.name()));
            let case = |mode: &Mode| Case { keys: &keys, protocol, mode: *mode };
            let cases: Vec<_> = self.modes().iter().map(case).collect();
            rows.extend(cost::rows(&cases, self.quick, self.can_count)?);
            progress.step();
            if self.has_heap() {
                progress.now(format!("{name}, {}, heap", protocol.name()));
                rows.extend(heap::rows(&keys, protocol, self.quick, progress)?);
            }
        }
        Ok(rows)
    }
}

/// The totals of full handshakes by stack, protocol, MTU and connection, from which savings are computed.
#[derive(Default)]
struct Full(BTreeMap<(&'static str, &'static str, u16, usize), f64>);

impl Full {
    /// The total of this stack for the case at this MTU.
    fn of(&self, stack: &'static str, case: &Case<'_>, mtu: u16, connection: usize) -> Option<f64> {
        self.0.get(&(stack, case.protocol.name(), mtu, connection)).copied()
    }
}

/// Measures the rows of a case for all stacks in turns.
fn measure(
    stacks: &[Stack<'_>],
    case: &Case<'_>,
    mtu: u16,
    plan: &Plan,
    full: &mut Full,
    progress: &Progress,
) -> Result<Vec<Row>, Error> {
    let mut measured: BTreeMap<(usize, usize), Vec<(Layers, u64)>> = BTreeMap::new();
    for run in 0..plan.runs {
        for (number, stack) in stacks.iter().enumerate().filter(|(_, stack)| stack.has(case, mtu)) {
            let frames = stack.frames(case, mtu)?;
            for (connection, all) in connections(&frames).iter().enumerate() {
                measured.entry((number, connection)).or_default().push((all.layers(), all.handshake_bytes));
            }
            if let Some(directory) = plan.captures.as_ref().filter(|_| run == 0) {
                let name = format!("{}-{}-mtu{mtu}.pcap", stack.name(), case.name()).replace(' ', "-");
                save_pcap(&frames, &directory.join(name))?;
            }
        }
        progress.step();
    }
    let totals: Vec<Vec<f64>> = measured
        .values()
        .map(|all| all.iter().map(|(layers, _)| layers.total_bytes() as f64).collect())
        .collect();
    if case.mode == Mode::Vanilla {
        for ((stack, connection), totals) in measured.keys().zip(&totals) {
            let key = (stacks[*stack].name(), case.protocol.name(), mtu, *connection);
            full.0.insert(key, median_of(totals));
        }
    }
    let rows = measured.iter().zip(&totals).map(|(((stack, connection), all), totals)| {
        let stack = stacks[*stack].name();
        let row = case.row(stack).with("connection", CONNECTIONS[*connection]);
        let row = row.with("way", plan.way.name()).with("mtu", mtu).figure("total_bytes", totals);
        let without = full.of(stack, case, mtu, *connection);
        let openssl = full.of(OPENSSL_AS_SHIPPED, case, mtu, *connection);
        let row = case.with_paper(row, mtu, *connection, openssl);
        let row = match without.filter(|_| case.mode != Mode::Vanilla) {
            Some(full) => case.with_saving(row, mtu, *connection, full, totals),
            None => row,
        };
        with_layers(row, case, *connection, all)
    });
    Ok(rows.collect())
}

/// Adds the parts of the total, layer by layer.
fn with_layers(row: Row, case: &Case<'_>, connection: usize, all: &[(Layers, u64)]) -> Row {
    let figure = |of: fn(&Layers) -> u64| all.iter().map(|(layers, _)| of(layers) as f64).collect::<Vec<_>>();
    // TLS 1.3 hides where the handshake ends.
    let handshake = all.iter().filter(|_| case.protocol == Protocol::Tls12).map(|(_, bytes)| *bytes as f64);
    let row = row
        .figure("handshake_bytes", &handshake.collect::<Vec<_>>())
        .figure("link_bytes", &figure(|layers| layers.link_bytes))
        .figure("ip_bytes", &figure(|layers| layers.ip_bytes))
        .figure("transport_bytes", &figure(|layers| layers.transport_bytes))
        .figure("tls_bytes", &figure(|layers| layers.tls_bytes))
        .paper("tls_bytes", case.paper_tls(connection))
        .figure("packets", &figure(|layers| layers.packets));
    if !case.protocol.is_over_datagrams() {
        // TCP never sends them.
        return row;
    }
    row.figure("ip_fragments", &figure(|layers| layers.ip_fragments))
}

/// Runs a task that the experiment `caching` measures from outside, when this program has started itself
/// under valgrind. `words` are the task, and protocol, credential and mode as in rows. `files` hold trust
/// anchor, chain and key of the client and then of the server.
///
/// # Errors
/// A word is unknown, a file has other contents, or a handshake failed.
pub fn measured(words: &[String; 4], files: &[OsString; 6]) -> Result<(), Error> {
    let [task, protocol, credential, mode] = words;
    let unknown = || Error::new("measured", "unknown words", "this is for the lab itself");
    let keys = Files::read(Credential::named(credential).ok_or_else(unknown)?, files)?;
    let case = Case::named(protocol, mode, &keys).ok_or_else(unknown)?;
    match &**task {
        cost::TASK => cost::handshakes(&case),
        task => heap::Task::named(task).ok_or_else(unknown)?.perform(&case),
    }
}
