//! What a handshake costs on the link, first and again: every byte from SYN to FIN, by layer.
//!
//! Both sides authenticate with a chain of three, of which leaf and intermediate are sent; key share on P-256,
//! AES-256-GCM-SHA384, no server name; one message each way, then the client closes and the server after it. TCP is as
//! Linux has it, without offloads.

mod dunlin;
mod foreign;
mod virtual_time;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use dunlin_pki::{KeyType, Tree, TreeSpec};

use super::{Experiment, Plan, Progress, Way};
use crate::Error;
use crate::capture::{Capture, Frame, save_pcap};
use crate::count::{Connection, Layers, connections};
use crate::net::{Ground, Pair};
use crate::report::Row;

/// What the client says: wolfSSL's examples do.
const QUESTION: &[u8] = b"hello wolfssl!";
/// What the server answers.
const ANSWER: &[u8] = b"I hear you fa shizzle!";
/// Root, intermediate and leaf; the root is not sent.
const CHAIN_LENGTH: usize = 3;
/// The name in the server's certificate. It is checked, but not sent.
const SERVER_NAME: &str = "localhost";
/// How long the certificates are valid, in days.
const DAYS: u32 = 30;
/// How often something is measured that TCP spoils.
const ATTEMPTS: u32 = 10;
/// Longer than any connection here takes, even where keys are large and the machine is busy.
const PATIENCE: Duration = Duration::from_secs(30);

/// The experiment `caching`.
pub(super) struct Caching;

/// An implementation of TLS.
trait Stack {
    fn name(&self) -> &'static str;

    /// Whether it has the mode.
    fn has(&self, mode: Mode) -> bool;

    /// Connects twice, one after the other, in the way of the case.
    ///
    /// # Errors
    /// A handshake failed, or was another one than the case says.
    fn connect(&self, ground: &Ground, pair: &Pair, case: &Case<'_>) -> Result<(), Error>;
}

/// What is measured: a stack in its place.
trait Measured {
    fn name(&self) -> &'static str;

    /// Whether it has the mode.
    fn has(&self, mode: Mode) -> bool;

    /// The frames of two connections, one after the other, in the way of the case.
    ///
    /// # Errors
    /// Those of [`Stack::connect`], and whatever is missing.
    fn frames(&self, case: &Case<'_>, mtu: u16) -> Result<Vec<Frame>, Error>;
}

/// A stack on real sockets.
struct OnSockets {
    ground: Rc<Ground>,
    stack: Box<dyn Stack>,
}

/// What is the same for two connections.
struct Case<'a> {
    tree: &'a Tree,
    credential: Credential,
    mode: Mode,
}

/// The type of all keys in the certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Credential {
    Rsa2048,
    P256,
    Ed25519,
}

/// How the second connection makes use of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Not at all; no ticket is sent.
    Vanilla,
    /// By a ticket, one in each connection.
    Resumption,
    /// By the handshake cache, in our own form of it (docs/handshake-cache.md); no session ticket is sent.
    Compact,
}

/// What a handshake is, as both sides see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handshake {
    /// Both sides send their certificates.
    Full,
    /// Of an earlier session.
    Resumed,
    /// As fresh and mutual as a full one, but both sides leave out their certificates.
    Cached,
}

impl Credential {
    fn name(self) -> &'static str {
        match self {
            Self::Rsa2048 => "rsa2048",
            Self::P256 => "p256",
            Self::Ed25519 => "ed25519",
        }
    }

    fn tree(self) -> Result<Tree, Error> {
        let key_type = match self {
            Self::Rsa2048 => KeyType::Rsa2048,
            Self::P256 => KeyType::P256,
            Self::Ed25519 => KeyType::Ed25519,
        };
        let tree = TreeSpec::new(key_type, DAYS).and_then(|spec| Tree::generate(&spec));
        tree.map_err(|error| Error::new("certificates", &error, error.advice()))
    }
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Self::Vanilla => "vanilla",
            Self::Resumption => "resumption",
            Self::Compact => "compact",
        }
    }

    /// What the two connections are.
    const fn handshakes(self) -> [Handshake; CONNECTIONS.len()] {
        let repeat = match self {
            Self::Vanilla => Handshake::Full,
            Self::Resumption => Handshake::Resumed,
            Self::Compact => Handshake::Cached,
        };
        [Handshake::Full, repeat]
    }
}

impl Case<'_> {
    /// The total that the paper has, for TLS 1.3 on Ethernet: it gives BiTHaC's 452 bytes over a resumption as 16.58 % of
    /// all of it, and all of it as 45.11 % of a handshake without a cache.
    fn paper(&self, mtu: u16, connection: &str) -> Option<f64> {
        match (self.credential, mtu, self.mode, connection) {
            (Credential::Rsa2048, 1500, Mode::Vanilla, _) => Some(6043.0),
            (Credential::Rsa2048, 1500, Mode::Resumption, "repeat") => Some(2274.0),
            (Credential::Rsa2048, 1500, Mode::Compact, "repeat") => Some(2726.0),
            _ => None,
        }
    }
}

/// The two connections of a case.
const CONNECTIONS: [&str; 2] = ["initial", "repeat"];

/// The cells of a plan, by their parameters.
struct Cells {
    credentials: Vec<Credential>,
    mtus: Vec<u16>,
}

impl Cells {
    const MODES: [Mode; 3] = [Mode::Vanilla, Mode::Resumption, Mode::Compact];

    fn new(quick: bool) -> Self {
        match quick {
            true => Self { credentials: vec![Credential::Rsa2048], mtus: vec![127, 1500] },
            false => Self {
                credentials: vec![Credential::Rsa2048, Credential::P256, Credential::Ed25519],
                mtus: vec![127, 576, 1500],
            },
        }
    }

    fn len(&self) -> usize {
        self.credentials.len() * self.mtus.len() * Self::MODES.len()
    }
}

impl Experiment for Caching {
    fn name(&self) -> &'static str {
        "caching"
    }

    fn about(&self) -> &'static str {
        "bytes of a handshake on the link, first and again, by layer (BiTHaC)"
    }

    fn ways(&self) -> &'static [Way] {
        &[Way::Real, Way::Virtual]
    }

    fn runs(&self) -> u32 {
        10
    }

    fn run(&self, plan: &Plan, progress: &Progress) -> Result<Vec<Row>, Error> {
        let measured: Vec<Box<dyn Measured>> = match plan.way {
            Way::Real => on_sockets(progress)?,
            Way::Virtual => vec![Box::new(virtual_time::InVirtualTime)],
        };
        let cells = Cells::new(plan.quick);
        progress.steps(cells.len() * plan.runs as usize);
        let mut rows = Vec::new();
        for &credential in &cells.credentials {
            progress.now(format!("{} keys", credential.name()));
            let tree = credential.tree()?;
            for &mtu in &cells.mtus {
                for mode in Cells::MODES {
                    progress.now(format!("{}, MTU {mtu}, {}", credential.name(), mode.name()));
                    let case = Case { tree: &tree, credential, mode };
                    rows.extend(measure(&measured, &case, mtu, plan, progress)?);
                }
            }
        }
        Ok(rows)
    }
}

/// Dunlin, and those rivals that this machine has the libraries of.
fn on_sockets(progress: &Progress) -> Result<Vec<Box<dyn Measured>>, Error> {
    let ground = Rc::new(Ground::new()?);
    let mut stacks: Vec<Box<dyn Stack>> = vec![Box::new(dunlin::Dunlin)];
    for library in foreign::LIBRARIES {
        match library.compile() {
            Ok(foreign) => stacks.push(Box::new(foreign)),
            Err(error) => progress.note(&format!("left out: {error}")),
        }
    }
    let on_sockets = |stack| Box::new(OnSockets { ground: Rc::clone(&ground), stack }) as Box<dyn Measured>;
    Ok(stacks.into_iter().map(on_sockets).collect())
}

/// The rows of a case for all stacks, which take turns.
fn measure(
    stacks: &[Box<dyn Measured>],
    case: &Case<'_>,
    mtu: u16,
    plan: &Plan,
    progress: &Progress,
) -> Result<Vec<Row>, Error> {
    let mut measured: BTreeMap<(usize, usize), Vec<Layers>> = BTreeMap::new();
    for run in 0..plan.runs {
        for (number, stack) in stacks.iter().enumerate().filter(|(_, stack)| stack.has(case.mode)) {
            let frames = stack.frames(case, mtu)?;
            for (connection, all) in connections(&frames).iter().enumerate() {
                measured.entry((number, connection)).or_default().push(all.layers());
            }
            if let Some(directory) = plan.captures.as_ref().filter(|_| run == 0) {
                let (credential, mode) = (case.credential.name(), case.mode.name());
                let name = format!("{}-{credential}-mtu{mtu}-{mode}.pcap", stack.name());
                save_pcap(&frames, &directory.join(name))?;
            }
        }
        progress.step();
    }
    let row = |((stack, connection), layers): ((usize, usize), Vec<Layers>)| {
        let figure =
            |of: fn(&Layers) -> u64| layers.iter().map(|layers| of(layers) as f64).collect::<Vec<_>>();
        let row = Row::new()
            .with("stack", stacks[stack].name())
            .with("protocol", "tls1.3")
            .with("way", plan.way.name())
            .with("credential", case.credential.name())
            .with("chain_length", CHAIN_LENGTH)
            .with("mtu", mtu)
            .with("mode", case.mode.name())
            .with("connection", CONNECTIONS[connection])
            .figure("total_bytes", &figure(Layers::total_bytes));
        let row = match case.paper(mtu, CONNECTIONS[connection]) {
            Some(total) => row.paper("total_bytes", total),
            None => row,
        };
        row.figure("link_bytes", &figure(|layers| layers.link_bytes))
            .figure("ip_bytes", &figure(|layers| layers.ip_bytes))
            .figure("transport_bytes", &figure(|layers| layers.transport_bytes))
            .figure("tls_bytes", &figure(|layers| layers.tls_bytes))
            .figure("packets", &figure(|layers| layers.packets))
    };
    Ok(measured.into_iter().map(row).collect())
}

impl Measured for OnSockets {
    fn name(&self) -> &'static str {
        self.stack.name()
    }

    fn has(&self, mode: Mode) -> bool {
        self.stack.has(mode)
    }

    /// On a busy machine TCP may take a delay for a loss and send something again, which has nothing to do with the stack:
    /// then it is measured anew.
    fn frames(&self, case: &Case<'_>, mtu: u16) -> Result<Vec<Frame>, Error> {
        let failed = |why: &str| Error::new(self.name(), why, "run it again on an idle machine");
        for _ in 0..ATTEMPTS {
            // Namespaces of its own, so that TCP remembers nothing of others.
            let pair = self.ground.pair(mtu)?;
            let mut capture = Capture::start(&pair.client, Pair::DEVICE)?;
            self.stack.connect(&self.ground, &pair, case)?;
            let closed = |frames: &[Frame]| {
                let all = connections(frames);
                all.len() == CONNECTIONS.len() && all.iter().all(Connection::is_closed)
            };
            if !capture.wait(PATIENCE, closed)? {
                return Err(failed("two connections should open and close, but do not"));
            }
            let frames = capture.finish()?;
            if connections(&frames).iter().all(|connection| connection.resent_packets == 0) {
                return Ok(frames);
            }
        }
        Err(failed("TCP sends packets again and again"))
    }
}
