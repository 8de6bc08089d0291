//! The heap of the handshake cache: of an entry, and of a handshake at its peak. Valgrind's dhat counts it in
//! separate processes: all bytes that Rust and C code request, without the allocator's overhead. Each side of
//! a handshake is a process.

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
use super::super::keys::SERVER_NAME;
use super::case::{CONNECTIONS, Case, Credential, Handshake, Keys, Mode, Protocol};
use super::cost::Ends;
use super::ends::{client, expect, server};
use super::valgrind;
use crate::Error;
use crate::error::failed;
use crate::report::Row;

/// A block larger than everything else: while a side holds it, the heap is at its peak.
const BALLAST: usize = 16 << 20;
/// The numbers of peers in a store: those of the paper's figure 7, and one at which the indexes are full.
const ENTRIES: [u32; 6] = [10, 20, 30, 40, 50, MANY];
/// The number of peers at which the entry of a large store is counted.
const MANY: u32 = 100_000;
/// More than the largest flight.
const FLIGHT: usize = 1 << 16;

const BITHAC: Mode = Mode::Cache(CacheMode::Bithac);
/// Without a cache, and the two modes that omit the certificates of both sides.
const MODES: [Mode; 3] = [Mode::Vanilla, BITHAC, Mode::COMPACT];

/// A task of a side under dhat.
#[derive(Clone, Copy)]
pub(super) enum Task {
    /// One of the two connections. This side holds the ballast while it works.
    Connection(usize, Side),
    /// Only the ballast, after this many connections.
    Ballast(usize, Side),
    /// This many entries in the store of this side.
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

/// The modes whose connections are counted. A quick run has only those with a target value.
fn modes(quick: bool) -> impl Iterator<Item = Mode> {
    MODES.into_iter().filter(move |mode| !quick || *mode != BITHAC)
}

/// The number of steps of [`rows`].
pub(super) fn steps(quick: bool) -> usize {
    // The tests of the stores check the bar of an entry, so a quick run counts none.
    modes(quick).count() * CONNECTIONS.len() + if quick { 0 } else { SIDES.len() * ENTRIES.len() }
}

/// The paper's peak with a cache relative to that without, in percent (section V-C): for the initial and a
/// repeated handshake.
const PAPER_ADDED_PERCENT: [f64; CONNECTIONS.len()] = [3.44, 1.22];

/// Rows for the peak heap of each side in a connection, and for the heap of the entries in each side's store.
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

/// The paper's size of a client's entry (section V-C and figure 7), in bytes.
fn paper_entry(credential: Credential) -> Option<f64> {
    match credential {
        Credential::RSA2048 => Some(420.0),
        Credential::P256 => Some(241.0),
        _ => None,
    }
}

/// Returns the heap of client and server at its peak, each in its task.
fn of_both(case: &Case<'_>, task: impl Fn(Side) -> Task) -> Result<[f64; 2], Error> {
    let [client, server] = valgrind::told_by_both(options, &SIDES.map(|side| task(side).name()), case)?;
    Ok([bytes("At t-gmax:", &client)?, bytes("At t-gmax:", &server)?])
}

/// No call stacks, because dhat spends most of its time on resolving them.
fn options() -> [OsString; 3] {
    ["--tool=dhat", "--dhat-out-file=/dev/null", "--read-inline-info=no"].map(OsString::from)
}

/// Reads the bytes from this line of dhat's output.
fn bytes(line: &str, told: &str) -> Result<f64, Error> {
    let bytes = told.lines().find_map(|told| Some(told.split_once(line)?.1.split_once("bytes")?.0));
    let digits = bytes.map(|bytes| bytes.replace(|c: char| !c.is_ascii_digit(), ""));
    digits
        .and_then(|digits| digits.parse().ok())
        .ok_or_else(|| super::super::valgrind::failed("dhat does not say how large the heap was"))
}

/// One side and its memory. The other side is another process at its standard input and output.
struct Half<'a> {
    case: &'a Case<'a>,
    config: Config,
    input: File,
    output: File,
    /// The received bytes, in memory that is allocated before counting begins.
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

    /// A side with the same keys and without a cache.
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
    /// The state after this many connections.
    fn after(case: &'a Case<'a>, side: Side, number: usize) -> Result<Self, Error> {
        let config = match side {
            Side::Client => Config::Client(Arc::new(client(case)?)),
            Side::Server => Config::Server(Arc::new(server(case)?)),
        };
        let input = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?.into();
        let output = io::stdout().as_fd().try_clone_to_owned().map_err(failed)?.into();
        let plain = config.plain()?;
        let mut half = Self { case, config: plain, input, output, flight: vec![0; FLIGHT] };
        // The permanent memory of a key's first signature depends on random numbers.
        half.handshake(Handshake::Full, |work| work())?;
        half.config = config;
        for handshake in half.case.mode.handshakes().into_iter().take(number) {
            half.handshake(handshake, |work| work())?;
        }
        Ok(half)
    }

    /// Runs a handshake of this kind. `done` runs each step of this side, beginning with the making of its
    /// connection.
    fn handshake(&mut self, wanted: Handshake, done: impl Fn(&mut dyn FnMut())) -> Result<(), Error> {
        let now = dunlin_tokio::now();
        let side = self.config.side();
        let mut made = None;
        done(&mut || made = Some(self.config.connection(now)));
        let mut connection = made.ok_or_else(|| failed("a connection was not made"))??;
        if side == Side::Client {
            self.say(&mut connection)?;
        }
        // A side without further output sends a length of zero.
        while let Some(len) = self.hear()? {
            let came = self.flight.get(..len).unwrap_or_default();
            let mut taken = Ok(0);
            done(&mut || taken = connection.receive(now, came));
            taken.map_err(failed)?;
            if self.say(&mut connection)? == 0 {
                break;
            }
        }
        expect(side, connection.negotiated(), wanted)
    }

    /// Sends the output, preceded by its length.
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

    /// Returns the length of the received bytes; `None` if it is zero.
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

/// A store that keeps only the last peer.
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

/// Fills a side's store with peers that differ only in their names, and keeps it until the process ends.
fn fill(case: &Case<'_>, count: u32, side: Side) -> Result<(), Error> {
    let Mode::Cache(mode) = case.mode else { return Err(failed("no mode with a cache")) };
    let seen = Arc::new(Seen::default());
    let client = client(case)?.with_handshake_cache(mode, seen.clone(), DEFAULT_MAX_AGE);
    let server = server(case)?.with_handshake_cache(mode, seen.clone(), DEFAULT_MAX_AGE).map_err(failed)?;
    Ends::of(client, server).handshake(|_, work| work())?;
    let no_peer = || failed("no peer was stored");
    let room = usize::try_from(MANY).map_err(failed)?;
    match side {
        Side::Client => {
            let kept = seen.server.lock().unwrap_or_else(PoisonError::into_inner).take();
            let ((key, entry), store) = (kept.ok_or_else(no_peer)?, MemoryClientCache::new(room));
            let store = Box::leak(Box::new(store));
            for number in 0..count {
                let key = CacheKey { name: format!("{number:06}.example"), ..key.clone() };
                store.update(&key, &mut |kept| kept.clone_from(&entry));
            }
        }
        Side::Server => {
            let kept = seen.client.lock().unwrap_or_else(PoisonError::into_inner).take();
            let client = kept.ok_or_else(no_peer)?;
            let store = MemoryServerCache::new(room);
            let store = Box::leak(Box::new(store));
            for number in 0..count {
                // Each peer is a client that uses two endpoints and has a ticket for each.
                let [older, newer] = [0, 1].map(|nth| ticket(2 * u64::from(number) + nth));
                let client = another(&client, number)?;
                store.put(older, client.clone(), None);
                store.put(newer, client, None);
            }
        }
    }
    Ok(())
}

/// A ticket, distributed as evenly as random ones.
const fn ticket(number: u64) -> Ticket {
    // 2^64 over the golden ratio (Knuth, The Art of Computer Programming 3, §6.4).
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()
}

/// Returns the same client with another key and fingerprint.
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
