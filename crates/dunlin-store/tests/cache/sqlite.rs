//! Records in SQLite.

use std::fs;
use std::path::{Path, PathBuf};

use dunlin_store::cache::{Records, SqliteRecords};
use tempfile::TempDir;

use crate::common::{self, Faults, no_fault};

fn place() -> (TempDir, PathBuf) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("cache.db");
    (directory, path)
}

fn open(path: &Path) -> SqliteRecords {
    SqliteRecords::open(path, 8, no_fault()).unwrap()
}

#[test]
fn what_is_kept_survives() {
    let (_directory, path) = place();
    common::what_is_kept_survives(|| open(&path));
}

#[test]
fn a_writer_invents_nobody() {
    let (_directory, path) = place();
    common::a_writer_invents_nobody(open(&path), open(&path.with_extension("foreign")));
}

#[test]
fn two_endpoints_know_a_client() {
    let (_directory, path) = place();
    common::two_endpoints_know_a_client(open(&path));
}

#[test]
fn a_client_has_one_entry() {
    let (_directory, path) = place();
    common::a_client_has_one_entry(open(&path));
}

#[test]
fn replays_flush_nothing() {
    let (_directory, path) = place();
    common::replays_flush_nothing(open(&path));
}

#[test]
fn the_largest_group_makes_room() {
    let (_directory, path) = place();
    common::the_largest_group_makes_room(&open(&path));
}

/// Several processes may write at once: nobody loses what another one kept, and room is made once.
#[test]
fn writers_see_each_other() {
    let (_directory, path) = place();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let store = open(&path);
            scope.spawn(move || {
                for number in 0..2 {
                    let (owner, record) = common::owner(1, 2 * writer + number);
                    store.put(&owner, &[record], &[]);
                }
            });
        }
    });
    let store = open(&path);
    assert!((0..8).all(|n| store.get(&common::owner(1, n).0.name).is_some()));
}

/// What goes with an owner: the records that it had, and those that are replaced stay one.
#[test]
fn records_go_with_their_owner() {
    let (_directory, path) = place();
    let store = open(&path);
    let (owner, first) = common::owner(1, 0);
    let mut second = first.clone();
    second.name[15] = 99;
    store.put(&owner, &[first.clone(), second.clone()], &[]);
    store.put(&owner, std::slice::from_ref(&first), &[]);
    assert!(store.get(&first.name).is_some() && store.get(&second.name).is_some());
    store.put(&owner, std::slice::from_ref(&first), &[second.name]);
    assert!(store.get(&first.name).is_some() && store.get(&second.name).is_none());
    store.put(&owner, std::slice::from_ref(&second), &[]);
    for number in 1..9 {
        let (owner, record) = common::owner(1, number);
        store.put(&owner, &[record], &[]);
    }
    assert!(store.get(&first.name).is_none() && store.get(&second.name).is_none());
}

/// A damaged database is set aside with one word about it, when it is opened or when the damage shows.
#[test]
fn damage_is_set_aside() {
    let (_directory, path) = place();
    let fill = || {
        let store = SqliteRecords::open(&path, 1000, no_fault()).unwrap();
        for number in 0..200 {
            let (owner, record) = common::owner(1, number);
            store.put(&owner, &[record], &[]);
        }
    };
    fill();
    let whole = fs::read(&path).unwrap();
    let aside = path.with_extension("db.damaged");
    let page = 4096;
    assert!(whole.len() > 6 * page);
    let mut damaged = vec![b"no database at all, and longer than the head of one would be: a hundred bytes and a few more of them".to_vec()];
    damaged.extend([100, page, 3 * page + 17].map(|len| whole[..len].to_vec()));
    damaged.extend((1..5).map(|n| {
        let mut bytes = whole.clone();
        bytes[n * page..(n + 1) * page].fill(0x5a);
        bytes
    }));
    for bytes in damaged {
        fs::write(&path, &bytes).unwrap();
        let faults = Faults::default();
        let store = SqliteRecords::open(&path, 8, faults.report()).unwrap();
        let told = faults.take();
        assert!(told.len() == 1 && told[0].contains("set aside as"), "{told:?}");
        assert_eq!(fs::read(&aside).unwrap(), bytes);
        let (owner, record) = common::owner(1, 7);
        assert!(store.get(&owner.name).is_none());
        store.put(&owner, std::slice::from_ref(&record), &[]);
        assert_eq!(store.get(&owner.name), Some(record.bytes));
        drop(store);
        fs::remove_file(&path).unwrap();
    }

    // In a database that is open: it is read again when somebody else has written.
    fill();
    let faults = Faults::default();
    let store = SqliteRecords::open(&path, 1000, faults.report()).unwrap();
    let (owner, record) = common::owner(1, 7);
    let other = SqliteRecords::open(&path, 1000, no_fault()).unwrap();
    fs::write(&path, vec![0x5a; whole.len()]).unwrap();
    other.put(&owner, std::slice::from_ref(&record), &[]);
    let there = |n| store.get(&common::owner(1, n).0.name).is_some();
    assert!((0..200).filter(|n| there(*n)).count() < 200);
    let told = faults.take();
    assert!(told.len() == 1 && told[0].contains("set aside as"), "{told:?}");
    store.put(&owner, &[record], &[]);
    assert!(there(7));
}

#[test]
fn a_database_of_somebody_else_is_left_alone() {
    let (directory, path) = place();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1);").unwrap();
    let fault = |path: &Path| SqliteRecords::open(path, 8, no_fault()).unwrap_err().to_string();
    assert!(fault(&path).contains("another program"));
    assert_eq!(other.query_row("SELECT x FROM t", [], |row| row.get::<_, i64>(0)), Ok(1));
    let ours = directory.path().join("ours.db");
    open(&ours);
    rusqlite::Connection::open(&ours).unwrap().pragma_update(None, "user_version", 2).unwrap();
    assert!(fault(&ours).contains("version 2"));
    assert!(fault(directory.path()).contains("Is a directory"));
}
