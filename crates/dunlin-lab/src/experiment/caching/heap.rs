//! The heap that the handshake cache takes: of an entry, and of a handshake at its peak. Valgrind's dhat counts it in processes of
//! their own: all bytes that Rust and C ask for, without what the allocator adds. Each side of a handshake is a process.

use std::ffi::OsString;
use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use dunlin::cache::{
    CacheKey, CacheMode, CachedPeer, CachedServer, ClientCache, DEFAULT_MAX_AGE, ServerCache, Ticket,
};
use dunlin::{ClientAuth, ClientConfig, Now, ServerAddress, ServerConfig, Side, TlsConnection};
use dunlin_store::{MemoryClientCache, MemoryServerCache};

use super::super::Progress;
use super::SERVER_NAME;
use super::case::{CONNECTIONS, Case, Credential, Handshake, Keys, Mode, Protocol};
use super::cost::Ends;
use super::dunlin::{client, expect, failed, server};
use super::valgrind;
use crate::Error;
use crate::report::Row;

/// More than anything else here takes: while a side holds this, the heap is at its peak.
const BALLAST: usize = 16 << 20;
/// How many peers a store is filled with: the numbers of the paper's figure 7, and one at which the indexes are full.
const ENTRIES: [u32; 6] = [10, 20, 30, 40, 50, MANY];
/// An entry of a large store is counted at this number of peers.
const MANY: u32 = 100_000;
/// The largest flight, and more.
const FLIGHT: usize = 1 << 16;

const BITHAC: Mode = Mode::Cache(CacheMode::Bithac);
/// Without a cache, and the two modes that leave out the certificates of both sides.
const MODES: [Mode; 3] = [Mode::Vanilla, BITHAC, Mode::COMPACT];

/// What is done under dhat by a side.
#[derive(Clone, Copy)]
pub(super) enum Task {
    /// The given connection of the two, with the ballast in the hands of this side while it works.
    Connection(usize, Side),
    /// The ballast alone, when the first so many connections are over.
    Ballast(usize, Side),
    /// So many entries in the store of this side.
    Entries(u32, Side),
}

const SIDES: [Side; 2] = [Side::Client, Side::Server];

const fn side_name(side: Side) -> &'static str {
    match side {
        Side::Client => "client",
        Side::Server => "server",
    }
}

impl Task {
    fn all() -> impl Iterator<Item = Self> {
        SIDES.into_iter().flat_map(|side| {
            [
                Self::Connection(0, side),
                Self::Connection(1, side),
                Self::Ballast(0, side),
                Self::Ballast(1, side),
                Self::Entries(0, side),
            ]
            .into_iter()
            .chain(ENTRIES.map(|count| Self::Entries(count, side)))
        })
    }

    fn name(self) -> String {
        match self {
            Self::Connection(number, side) => format!("connection-{number}-{}", side_name(side)),
            Self::Ballast(number, side) => format!("ballast-{number}-{}", side_name(side)),
            Self::Entries(count, side) => format!("entries-{count}-{}", side_name(side)),
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::all().find(|task| task.name() == name)
    }

    /// Performs the task, while dhat counts from outside.
    pub(super) fn perform(self, case: &Case<'_>) -> Result<(), Error> {
        match self {
            Self::Entries(count, side) => fill(case, count, side),
            Self::Connection(number, side) => {
                let mut half = Half::after(case, side, number)?;
                half.handshake(case.mode.handshakes()[number], |work| {
                    let ballast = vec![0_u8; BALLAST];
                    work();
                    black_box(ballast);
                })
            }
            Self::Ballast(number, side) => {
                let half = Half::after(case, side, number)?;
                black_box(vec![0_u8; BALLAST]);
                black_box(half);
                Ok(())
            }
        }
    }
}

/// The modes whose connections are counted. A quick run has those with a bar.
fn modes(quick: bool) -> impl Iterator<Item = Mode> {
    MODES.into_iter().filter(move |mode| !quick || *mode != BITHAC)
}

/// How many steps [`rows`] takes.
pub(super) fn steps(quick: bool) -> usize {
    // The tests of the stores have the bar of an entry, so a quick run has none.
    modes(quick).count() * CONNECTIONS.len() + if quick { 0 } else { SIDES.len() * ENTRIES.len() }
}

/// The paper's peak with a cache, over that without, in percent (section V-C): of the initial handshake and of a repeated one.
const PAPER_ADDED_PERCENT: [f64; CONNECTIONS.len()] = [3.44, 1.22];

/// Rows of the peak heap of each side in a connection, and of the heap that the entries of each side's store take.
pub(super) fn rows(
    keys: &Keys,
    protocol: Protocol,
    quick: bool,
    progress: &Progress,
) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    let mut vanilla = [[0.0; 2]; CONNECTIONS.len()];
    for mode in modes(quick) {
        let case = Case { keys, protocol, mode };
        for (number, connection) in CONNECTIONS.into_iter().enumerate() {
            let peaks = of_both(&case, |side| Task::Connection(number, side))?;
            let idle = of_both(&case, |side| Task::Ballast(number, side))?;
            let heap = [peaks[0] - idle[0], peaks[1] - idle[1]];
            let row = case.row("dunlin").with("connection", connection);
            let row = row.figure("client_heap_bytes", &heap[..1]).figure("server_heap_bytes", &heap[1..]);
            rows.push(if mode == Mode::Vanilla {
                vanilla[number] = heap;
                row
            } else {
                let added = |side: usize| (heap[side] / vanilla[number][side] - 1.0) * 100.0;
                row.figure("client_heap_added_percent", &[added(0)])
                    .paper("client_heap_added_percent", PAPER_ADDED_PERCENT[number])
                    .figure("server_heap_added_percent", &[added(1)])
            });
            progress.step();
        }
    }
    let case = Case { keys, protocol, mode: Mode::COMPACT };
    for side in SIDES.into_iter().filter(|_| !quick) {
        let heap = |count| {
            bytes("At t-end:", &valgrind::told(options(), &Task::Entries(count, side).name(), &case)?)
        };
        let empty = heap(0)?;
        for count in ENTRIES {
            let bytes = heap(count)? - empty;
            let row = case.row("dunlin").with("store", side_name(side)).with("entries", count);
            let row = row.figure("store_bytes", &[bytes]);
            let row = row.figure("entry_bytes", &[bytes / f64::from(count)]);
            rows.push(match (side, paper_entry(keys.credential)) {
                (Side::Client, Some(entry)) => {
                    row.paper("store_bytes", entry * f64::from(count)).paper("entry_bytes", entry)
                }
                _ => row,
            });
            progress.step();
        }
    }
    Ok(rows)
}

/// What an entry of a client takes in the paper (section V-C and figure 7), in bytes.
fn paper_entry(credential: Credential) -> Option<f64> {
    match credential {
        Credential::RSA2048 => Some(420.0),
        Credential::P256 => Some(241.0),
        _ => None,
    }
}

/// What client and server have on the heap at its peak, each with its task.
fn of_both(case: &Case<'_>, task: impl Fn(Side) -> Task) -> Result<[f64; 2], Error> {
    let [client, server] = valgrind::told_by_both(options, &SIDES.map(|side| task(side).name()), case)?;
    Ok([bytes("At t-gmax:", &client)?, bytes("At t-gmax:", &server)?])
}

/// Without call stacks, which dhat takes longest to resolve.
fn options() -> [OsString; 3] {
    ["--tool=dhat", "--dhat-out-file=/dev/null", "--read-inline-info=no"].map(OsString::from)
}

/// The bytes in this line of what dhat says.
fn bytes(line: &str, told: &str) -> Result<f64, Error> {
    let bytes = told.lines().find_map(|told| Some(told.split_once(line)?.1.split_once("bytes")?.0));
    let digits = bytes.map(|bytes| bytes.replace(|c: char| !c.is_ascii_digit(), ""));
    digits
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| valgrind::failed("dhat does not say how large the heap was"))
}

/// One side with all that it remembers; the other one, a process like this, is at its standard input and output.
struct Half<'a> {
    case: &'a Case<'a>,
    config: Config,
    input: File,
    output: File,
    /// What came, in memory that is taken before anything is counted.
    flight: Vec<u8>,
}

enum Config {
    Client(Arc<ClientConfig>),
    Server(Arc<ServerConfig>),
}

impl Config {
    const fn side(&self) -> Side {
        match self {
            Self::Client(_) => Side::Client,
            Self::Server(_) => Side::Server,
        }
    }

    /// One with the same keys and without a cache.
    fn plain(&self) -> Result<Self, Error> {
        Ok(match self {
            Self::Client(config) => {
                let plain = ClientConfig::new(config.profile()).with_server_name_sent(false);
                Self::Client(Arc::new(plain))
            }
            Self::Server(config) => {
                let plain = ServerConfig::new(config.profile()).map_err(failed)?;
                Self::Server(Arc::new(plain.with_client_auth(ClientAuth::Required).map_err(failed)?))
            }
        })
    }

    fn connection(&self, now: Now) -> Result<TlsConnection, Error> {
        match self {
            Self::Client(config) => {
                let address = ServerAddress::parse(SERVER_NAME, 0).map_err(failed)?;
                TlsConnection::client(config, address, now).map_err(failed)
            }
            Self::Server(config) => Ok(TlsConnection::server(config, now)),
        }
    }
}

impl<'a> Half<'a> {
    /// When the first so many connections are over.
    fn after(case: &'a Case<'a>, side: Side, number: usize) -> Result<Self, Error> {
        let config = match side {
            Side::Client => Config::Client(Arc::new(client(case)?)),
            Side::Server => Config::Server(Arc::new(server(case)?)),
        };
        let input = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?.into();
        let output = io::stdout().as_fd().try_clone_to_owned().map_err(failed)?.into();
        let plain = config.plain()?;
        let mut half = Self { case, config: plain, input, output, flight: vec![0; FLIGHT] };
        // What a key takes for good with its first signature depends on numbers that are drawn then.
        half.handshake(Handshake::Full, |work| work())?;
        half.config = config;
        for handshake in half.case.mode.handshakes().into_iter().take(number) {
            half.handshake(handshake, |work| work())?;
        }
        Ok(half)
    }

    /// A handshake of this kind. Each step of this side is `done`, from the making of its connection on.
    fn handshake(&mut self, wanted: Handshake, done: impl Fn(&mut dyn FnMut())) -> Result<(), Error> {
        let (now, side) = (dunlin_tokio::now(), self.config.side());
        let mut made = None;
        done(&mut || made = Some(self.config.connection(now)));
        let mut connection = made.ok_or_else(|| failed("a connection was not made"))??;
        if side == Side::Client {
            self.say(&mut connection)?;
        }
        // A side with nothing more to send sends a length of zero.
        while let Some(len) = self.hear()? {
            let (came, mut taken) = (self.flight.get(..len).unwrap_or_default(), Ok(0));
            done(&mut || taken = connection.receive(now, came));
            taken.map_err(failed)?;
            if self.say(&mut connection)? == 0 {
                break;
            }
        }
        expect(side, connection.negotiated(), wanted)
    }

    /// Sends what there is, with its length before it.
    fn say(&mut self, connection: &mut TlsConnection) -> Result<usize, Error> {
        let flight = connection.transmit();
        let len = u32::try_from(flight.len()).map_err(failed)?;
        self.output
            .write_all(&len.to_be_bytes())
            .and_then(|()| self.output.write_all(flight))
            .map_err(failed)?;
        let len = flight.len();
        connection.transmitted(len);
        Ok(len)
    }

    /// The length of what came; `None` if that is nothing.
    fn hear(&mut self) -> Result<Option<usize>, Error> {
        let mut len = [0; 4];
        self.input.read_exact(&mut len).map_err(failed)?;
        let len = usize::try_from(u32::from_be_bytes(len)).map_err(failed)?;
        let room =
            self.flight.get_mut(..len).ok_or_else(|| failed("a flight is longer than any should be"))?;
        self.input.read_exact(room).map_err(failed)?;
        Ok((len > 0).then_some(len))
    }
}

/// Keeps the one peer that it is told of.
#[derive(Debug, Default)]
struct Seen {
    client: Mutex<Option<CachedPeer>>,
    server: Mutex<Option<(CacheKey, CachedServer)>>,
}

impl ServerCache for Seen {
    fn find(&self, _: &Ticket) -> Option<CachedPeer> {
        None
    }

    fn put(&self, _: Ticket, client: CachedPeer, _: Option<Ticket>) {
        *self.client.lock().unwrap_or_else(PoisonError::into_inner) = Some(client);
    }
}

impl ClientCache for Seen {
    fn update(&self, key: &CacheKey, change: &mut dyn FnMut(&mut CachedServer)) {
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut server.get_or_insert_with(|| (key.clone(), CachedServer::default())).1);
    }
}

/// Fills the store of a side with peers that differ in their names alone, and keeps it until the process ends.
fn fill(case: &Case<'_>, count: u32, side: Side) -> Result<(), Error> {
    let Mode::Cache(mode) = case.mode else { return Err(failed("no mode with a cache")) };
    let seen = Arc::new(Seen::default());
    let client = client(case)?.with_handshake_cache(mode, seen.clone(), DEFAULT_MAX_AGE);
    let server = server(case)?.with_handshake_cache(mode, seen.clone(), DEFAULT_MAX_AGE).map_err(failed)?;
    Ends::of(client, server).handshake(|_, work| work())?;
    let nobody = || failed("nobody was kept");
    let room = usize::try_from(MANY).map_err(failed)?;
    match side {
        Side::Client => {
            let kept = seen.server.lock().unwrap_or_else(PoisonError::into_inner).take();
            let ((key, entry), store) = (kept.ok_or_else(nobody)?, MemoryClientCache::new(room));
            let store = Box::leak(Box::new(store));
            for number in 0..count {
                let key = CacheKey { name: format!("{number:06}.example"), ..key.clone() };
                store.update(&key, &mut |kept| kept.clone_from(&entry));
            }
        }
        Side::Server => {
            let kept = seen.client.lock().unwrap_or_else(PoisonError::into_inner).take();
            let (client, store) = (kept.ok_or_else(nobody)?, MemoryServerCache::new(room));
            let store = Box::leak(Box::new(store));
            for number in 0..count {
                // Of a client that uses two endpoints, and has a ticket for each.
                let [older, newer] = [0, 1].map(|nth| ticket(2 * u64::from(number) + nth));
                let client = another(&client, number)?;
                store.put(older, client.clone(), None);
                store.put(newer, client, None);
            }
        }
    }
    Ok(())
}

/// A ticket, as evenly spread as random ones.
const fn ticket(number: u64) -> Ticket {
    // 2^64 over the golden ratio (Knuth, The Art of Computer Programming 3, §6.4).
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// The same client with another key and fingerprint.
fn another(client: &CachedPeer, number: u32) -> Result<CachedPeer, Error> {
    let mut bytes = client.to_bytes().map_err(failed)?;
    let own = bytes.get(CachedPeer::SHARED_LEN..).unwrap_or_default();
    let (_, key) = CachedPeer::holder(own).unwrap_or_default();
    let key = bytes.windows(key.len().max(1)).position(|window| window == key);
    for at in [CachedPeer::SHARED_LEN].into_iter().chain(key) {
        bytes.iter_mut().skip(at).zip(number.to_be_bytes()).for_each(|(to, from)| *to = from);
    }
    CachedPeer::from_bytes(&bytes, client.settings().as_bytes()).map_err(failed)
}
