//! Stores on a full file system: a tmpfs that only a child process sees.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use dunlin::Side;
use dunlin_store::cache::{CacheFault, CacheStore, FileRecords, Records, Report};
use dunlin_tests::awslc;
use dunlin_tests::mounts::beside_mount;
use tempfile::TempDir;

use crate::common::{self, Faults, no_fault};

/// Where the child's file system is.
const ROOM: &str = "DUNLIN_TEST_ROOM";

/// Runs `test` with a directory on a file system of one megabyte: in a child, which runs the test `name`
/// again.
fn on_a_small_disk(name: &str, test: impl FnOnce(&Path)) {
    if let Some(room) = std::env::var_os(ROOM) {
        return test(Path::new(&room));
    }
    let room = TempDir::new().unwrap();
    let mut child = beside_mount("-t tmpfs -o size=1m tmpfs", room.path().to_str().unwrap());
    child.arg(std::env::current_exe().unwrap()).args(["--exact", name]);
    let output = child.env(ROOM, room.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{errors}");
}

/// Takes all the room there is.
fn fill(ballast: &Path) {
    let mut file = File::create(ballast).unwrap();
    let error = loop {
        if let Err(error) = file.write_all(&[1; 4096]) {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::StorageFull);
}

fn says_that_it_is_full<R: Records>(room: &Path, open: impl Fn(&Path, Report) -> Result<R, CacheFault>) {
    let path = room.join("cache");
    let ballast = room.join("ballast");
    let (owner, record) = common::owner(1, 7);
    let told = format!("{}: its file system is full: make room", path.display());
    let faults = Faults::default();
    let store = open(&path, faults.report()).unwrap();
    let large = vec![dunlin_store::cache::Record { name: owner.name, bytes: vec![1; 20_000] }];
    assert!(store.put(&owner, &large, &[]));
    fill(&ballast);
    for _ in 0..20 {
        assert!(!store.put(&owner, &[large.clone(), large.clone()].concat(), &[]));
    }
    assert_eq!(faults.take(), std::slice::from_ref(&told));
    assert_eq!(store.get(&owner.name).as_ref(), Some(&large[0].bytes));

    let other = room.join("other");
    let refused = open(&other, no_fault()).map(drop).unwrap_err().to_string();
    assert_eq!(refused, told.replace("/cache:", "/other:"));

    // Nothing was set aside, and all goes on when there is room again.
    fs::remove_file(&ballast).unwrap();
    common::write_until_stored(&store, &owner, &record);
    assert_eq!(faults.take(), [format!("{}: the store works again", path.display())]);
    drop(open(&other, no_fault()).unwrap());
    assert!(!room.join("cache.damaged").exists() && !room.join("other.damaged").exists());
}

#[test]
fn a_file_says_that_its_disk_is_full() {
    on_a_small_disk("full::a_file_says_that_its_disk_is_full", |room| {
        says_that_it_is_full(room, |path, report| FileRecords::open(path, Side::Server, &awslc(), 8, report));
        fill(&room.join("ballast"));
        let error =
            CacheStore::file(room.join("cache")).open_server(&awslc(), no_fault()).map(drop).unwrap_err();
        let told = format!("{}: its file system is full", room.join("cache.key").display());
        assert_eq!((error.to_string(), error.advice()), (told, "make room".to_owned()));
        assert!(!room.join("cache.key").exists());
    });
}

#[cfg(feature = "sqlite")]
#[test]
fn a_database_says_that_its_disk_is_full() {
    use dunlin_store::cache::SqliteRecords;

    on_a_small_disk("full::a_database_says_that_its_disk_is_full", |room| {
        says_that_it_is_full(room, |path, report| SqliteRecords::open(path, Side::Server, 8, report));
        // SQLite calls this an I/O error: it has no room for the file that the processes share.
        let ballast = room.join("ballast");
        fill(&ballast);
        let refused =
            SqliteRecords::open(&room.join("cache"), Side::Server, 8, no_fault()).unwrap_err().to_string();
        assert!(refused.ends_with("its file system is full: make room"), "{refused}");
        fs::remove_file(&ballast).unwrap();
        let (owner, _) = common::owner(1, 7);
        let store = SqliteRecords::open(&room.join("cache"), Side::Server, 8, no_fault()).unwrap();
        assert!(store.get(&owner.name).is_some());
    });
}
