//! Kills a registry under load with SIGKILL, again and again, and checks afterwards that it has everything it
//! has acknowledged, and that every checkpoint it has published is one of the same history. DUNLIN_KILLS says
//! how often (5). SQLite's synchronous writes guard against power failures, which this test cannot make.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use base64ct::{Base64, Encoding};
use common::{Holder, ORIGIN, key, provider};
use dunlin_identity::method::dunlin::Operation;
use dunlin_identity::transparency::SignedCheckpoint;
use dunlin_registry::audit::{Log, audit};
use dunlin_registry::tile::{Tile, TileKind};
use dunlin_registry::{Registry, Settings};

/// The path of the database, for the process that will be killed.
const CHILD: &str = "DUNLIN_CRASH_CHILD";

/// The number of the run, from which the child makes its DIDs.
const RUN: &str = "DUNLIN_CRASH_RUN";

fn settings() -> Settings {
    let provider = provider();
    let key = key(&provider, [1, 2, 3]);
    Settings { refresh: Duration::from_secs(1), ..Settings::new(provider, ORIGIN, key) }
}

/// Submits operations from four threads without end, and prints each acknowledged one and the checkpoint
/// after it.
fn child(path: &Path, run: u64) {
    let registry = Registry::open(path, &settings()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let registry = &registry;
            scope.spawn(move || {
                let provider = provider();
                for number in 0.. {
                    let mut holder = Holder::new(&provider, [run * 4 + thread, number]);
                    for last in [false, false, true] {
                        let operation = if last { holder.deactivate() } else { holder.next() };
                        let text = Base64::encode_string(operation.canonical().unwrap().as_bytes());
                        let receipt = registry.submit(operation).unwrap();
                        let checkpoint = Base64::encode_string(registry.snapshot().text().as_bytes());
                        println!("{} {text} {checkpoint}", receipt.number);
                    }
                }
            });
        }
    });
}

/// The entries of the log, from its bundles.
fn entries(registry: &Registry) -> Vec<Vec<u8>> {
    let tiles = Tile::all(registry.snapshot().size()).filter(|tile| tile.kind == TileKind::Entries);
    let mut entries = Vec::new();
    for tile in tiles {
        let bundle = registry.tile(&tile).unwrap().unwrap();
        let mut rest = bundle.as_slice();
        while let Some((length, after)) = rest.split_first_chunk() {
            let (entry, after) = after.split_at(u16::from_be_bytes(*length).into());
            entries.push(entry.to_vec());
            rest = after;
        }
    }
    entries
}

/// Runs a child until it has acknowledged `operations`, kills it, and returns all that it has said until
/// then: numbers, entries, notes.
fn killed(path: &Path, run: u64, operations: usize) -> Vec<(u64, Vec<u8>, Vec<u8>)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env(CHILD, path)
        .env(RUN, run.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).split(b'\n') {
        let line = String::from_utf8(line.unwrap()).unwrap();
        let [number, entry, checkpoint] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let decoded = [entry, checkpoint].map(|text| Base64::decode_vec(text).unwrap());
        let [entry, checkpoint] = decoded;
        said.push((number.parse().unwrap(), entry, checkpoint));
        if said.len() == operations {
            // SIGKILL. The child's earlier output is still in the pipe.
            child.kill().unwrap();
        }
    }
    assert!(!child.wait().unwrap().success() && said.len() >= operations, "the child ended by itself");
    said
}

fn main() {
    if let Some(path) = std::env::var_os(CHILD) {
        return child(Path::new(&path), std::env::var(RUN).unwrap().parse().unwrap());
    }
    let kills: u64 = std::env::var("DUNLIN_KILLS").map_or(5, |kills| kills.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("registry");
    let settings = settings();
    Registry::create(&path, &settings).unwrap();
    let mut acknowledged = 0;
    let mut published = Vec::new();
    let mut checked = 0;
    for run in 0..kills {
        // From the first operation on to several transactions later.
        let operations = usize::try_from(1 + run * 37 % 150).unwrap();
        let said = killed(&path, run, operations);
        let registry = Registry::open(&path, &settings).unwrap();
        let entries = entries(&registry);
        for (number, entry, checkpoint) in said {
            assert_eq!(
                entries[usize::try_from(number).unwrap()],
                entry,
                "the acknowledged operation {number}"
            );
            assert!(Operation::read(&entry).is_ok());
            published.push(SignedCheckpoint::read(&checkpoint).unwrap());
            acknowledged += 1;
        }
        // An audit takes as long as the log is; in a long run, not every one is needed.
        if run + 1 == kills || run % 20 == 4 {
            let [log, _] = registry.keys();
            audit(&settings.provider, &path, Log::Signed(std::slice::from_ref(log)), &published).unwrap();
            checked += published.len();
            published.clear();
        }
    }
    assert_eq!(checked, acknowledged);
    println!("{kills} kills, {acknowledged} acknowledged operations, none lost, one history");
}
