//! What the handshake cache takes of the heap: an entry, and at its peak a handshake. Valgrind's dhat counts it, in processes of
//! their own: all that was asked for, by Rust and by C, without what the allocator adds.

use std::ffi::OsString;
use std::hint::black_box;
use std::sync::{Arc, Mutex, PoisonError};

use dunlin::Side;
use dunlin::cache::{CacheKey, CachedPeer, CachedServer, ClientCache, DEFAULT_MAX_AGE, ServerCache, Ticket};
use dunlin_store::{MemoryClientCache, MemoryServerCache};

use super::case::{CONNECTIONS, Case, Mode};
use super::cost::Ends;
use super::dunlin::{client, failed, server};
use super::valgrind;
use crate::Error;
use crate::report::Row;

/// More than anything else here takes: while a side holds this, the heap is at its peak.
const BALLAST: usize = 16 << 20;
/// How many peers a store is filled with.
const ENTRIES: u32 = 100_000;

/// What is done under dhat.
#[derive(Clone, Copy)]
pub(super) enum Task {
    /// The given connection of the two, with the ballast in the hands of this side.
    Connection(usize, Side),
    /// The ballast alone, when the first so many connections are over.
    Ballast(usize),
    /// So many entries in the store of this side.
    Entries(u32, Side),
}

const fn side_name(side: Side) -> &'static str {
    match side {
        Side::Client => "client",
        Side::Server => "server",
    }
}

impl Task {
    fn all() -> impl Iterator<Item = Self> {
        let sides = [Side::Client, Side::Server];
        let of_side = sides.into_iter().flat_map(|side| {
            [
                Self::Connection(0, side),
                Self::Connection(1, side),
                Self::Entries(0, side),
                Self::Entries(ENTRIES, side),
            ]
        });
        of_side.chain([Self::Ballast(0), Self::Ballast(1)])
    }

    fn name(self) -> String {
        match self {
            Self::Connection(number, side) => format!("connection-{number}-{}", side_name(side)),
            Self::Ballast(number) => format!("ballast-{number}"),
            Self::Entries(count, side) => format!("entries-{count}-{}", side_name(side)),
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::all().find(|task| task.name() == name)
    }

    /// Does it; who counts looks from outside.
    pub(super) fn perform(self, case: &Case<'_>) -> Result<(), Error> {
        match self {
            Self::Entries(count, side) => fill(case, count, side),
            Self::Connection(number, side) => {
                let ends = before(case, number)?;
                ends.handshake(|working, work| {
                    let ballast = (working == side).then(|| vec![0_u8; BALLAST]);
                    work();
                    black_box(ballast);
                })
            }
            Self::Ballast(number) => {
                let ends = before(case, number)?;
                black_box(vec![0_u8; BALLAST]);
                black_box(ends);
                Ok(())
            }
        }
    }

    /// The bytes of the heap when it was largest, or at the end.
    fn bytes(self, case: &Case<'_>) -> Result<f64, Error> {
        let options = ["--tool=dhat", "--dhat-out-file=/dev/null"].map(OsString::from);
        let told = valgrind::told(options, &self.name(), case)?;
        let line = if matches!(self, Self::Entries(..)) { "At t-end:" } else { "At t-gmax:" };
        let bytes = told.lines().find_map(|told| Some(told.split_once(line)?.1.split_once("bytes")?.0));
        let digits = bytes.map(|bytes| bytes.replace(|c: char| !c.is_ascii_digit(), ""));
        digits
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(|| valgrind::failed("dhat does not say how large the heap was"))
    }
}

/// Both sides when the first so many connections are over.
fn before(case: &Case<'_>, number: usize) -> Result<Ends, Error> {
    let mut ends = Ends::fresh(case)?;
    for handshake in case.mode.handshakes().into_iter().take(number) {
        ends.expected = handshake;
        ends.handshake(|_, work| work())?;
    }
    if let Some(handshake) = case.mode.handshakes().get(number) {
        ends.expected = *handshake;
    }
    Ok(ends)
}

/// Rows of what an entry of each side's store takes, and of what a connection takes of the heap at its peak.
pub(super) fn rows(case: &Case<'_>) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    for (number, connection) in CONNECTIONS.into_iter().enumerate() {
        let idle = Task::Ballast(number).bytes(case)?;
        let peak = |side| Ok::<_, Error>(Task::Connection(number, side).bytes(case)? - idle);
        let row = case.row("dunlin").with("connection", connection);
        let row = row.figure("client_heap_bytes", &[peak(Side::Client)?]);
        rows.push(row.figure("server_heap_bytes", &[peak(Side::Server)?]));
    }
    if case.mode == Mode::COMPACT {
        for side in [Side::Client, Side::Server] {
            let bytes = Task::Entries(ENTRIES, side).bytes(case)? - Task::Entries(0, side).bytes(case)?;
            let row = case.row("dunlin").with("store", side_name(side)).with("entries", ENTRIES);
            rows.push(row.figure("entry_bytes", &[bytes / f64::from(ENTRIES)]));
        }
    }
    Ok(rows)
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
    let room = usize::try_from(ENTRIES).map_err(failed)?;
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
