//! Records in SQLite.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dunlin::Side;
use dunlin::cache::ServerCache;
use dunlin_store::MemoryClientCache;
use dunlin_store::cache::{CacheFault, Records, Report, SealedServerCache, SqliteRecords};
use dunlin_tests::{KeyType, Pki};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::common::{self, Faults, Noted, client, connect, no_fault, sealer, server};

fn place() -> (TempDir, PathBuf) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("cache.db");
    (directory, path)
}

fn open_as(path: &Path, side: Side, report: Report) -> Result<SqliteRecords, CacheFault> {
    SqliteRecords::open(path, side, 8, report)
}

fn open(path: &Path) -> SqliteRecords {
    open_as(path, Side::Server, no_fault()).unwrap()
}

common::tests_at_a_path!();

/// Several processes may write at once without losing each other's entries.
#[test]
fn concurrent_writers_lose_no_entries() {
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

/// An evicted owner loses all its records.
#[test]
fn evicts_all_records_of_an_owner() {
    let (_directory, path) = place();
    let store = open(&path);
    let (owner, first) = common::owner(1, 0);
    let mut second = first.clone();
    second.name[15] = 99;
    store.put(&owner, &[first.clone(), second.clone()], &[]);
    assert!(store.get(&first.name).is_some() && store.get(&second.name).is_some());
    for number in 1..9 {
        let (owner, record) = common::owner(1, number);
        store.put(&owner, &[record], &[]);
    }
    assert!(store.get(&first.name).is_none() && store.get(&second.name).is_none());
}

/// A damaged database is set aside with one report, when it is opened or when the damage shows.
#[test]
fn sets_aside_a_damaged_database() {
    let (_directory, path) = place();
    let fill = || {
        let store = SqliteRecords::open(&path, Side::Server, 1000, no_fault()).unwrap();
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
    let mut damaged: Vec<_> = [10, 100, page, 3 * page + 17].map(|len| whole[..len].to_vec()).into();
    damaged.extend((0..5).map(|n| {
        let mut bytes = whole.clone();
        bytes[n * page..(n + 1) * page].fill(0x5a);
        bytes
    }));
    // Overwrite only the beginning, or all of the first page and more.
    for (len, byte) in [(2, 0x5a), (16, 0x5a), (100, 0), (3 * page, 0)] {
        let mut bytes = whole.clone();
        bytes[..len].fill(byte);
        damaged.push(bytes);
    }
    for bytes in damaged {
        fs::write(&path, &bytes).unwrap();
        let faults = Faults::default();
        let store = SqliteRecords::open(&path, Side::Server, 8, faults.report()).unwrap();
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

    // Damage in an open database shows when another process writes, because the store reads it again.
    fill();
    let faults = Faults::default();
    let store = SqliteRecords::open(&path, Side::Server, 1000, faults.report()).unwrap();
    let (owner, record) = common::owner(1, 7);
    let other = SqliteRecords::open(&path, Side::Server, 1000, no_fault()).unwrap();
    fs::write(&path, [&whole[..100], &vec![0x5a; whole.len() - 100]].concat()).unwrap();
    other.put(&owner, std::slice::from_ref(&record), &[]);
    let there = |n| store.get(&common::owner(1, n).0.name).is_some();
    assert!((0..200).filter(|n| there(*n)).count() < 200);
    let told = faults.take();
    assert!(told.len() == 1 && told[0].contains("set aside as"), "{told:?}");
    store.put(&owner, &[record], &[]);
    assert!(there(7));
}

/// A flipped bit in any byte of a database causes no failure and forges no peer, and the cache goes on.
#[test]
fn survives_a_flipped_bit_anywhere() {
    // Use memory if possible, because the test writes thousands of databases.
    let directory = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).unwrap();
    let path = directory.path().join("cache.db");
    let pki = Pki::shared(KeyType::P256);
    let servers = |report| {
        let records = SqliteRecords::open(&path, Side::Server, 8, report).unwrap();
        Arc::new(SealedServerCache::new(records, sealer(1)))
    };
    let noted = Arc::new(Noted::new(servers(no_fault())));
    connect(&client(pki, Arc::new(MemoryClientCache::default())), &server(pki, noted.clone()));
    let (ticket, peer) = noted.given()[0].clone();
    drop(noted);
    // Small pages make the database smaller.
    let database = Connection::open(&path).unwrap();
    database.execute_batch("PRAGMA journal_mode = DELETE; PRAGMA page_size = 512; VACUUM;").unwrap();
    drop(database);
    assert_eq!(servers(no_fault()).find(&ticket), Some(peer.clone()));
    let whole = fs::read(&path).unwrap();
    let mut found = 0;
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&path, &bytes).unwrap();
        let faults = Faults::default();
        let cache = servers(faults.report());
        let believed = cache.find(&ticket);
        assert!(believed.is_none() || believed.as_ref() == Some(&peer), "{at}");
        found += usize::from(believed.is_some());
        cache.put([7; 8], peer.clone(), None);
        assert_eq!(cache.find(&[7; 8]).as_ref(), Some(&peer), "{at}: {:?}", faults.take());
        let told = faults.take();
        assert!(told.len() <= 1 && told.iter().all(|fault| fault.contains("set aside as")), "{at}: {told:?}");
        let in_the_head = [18, 19, 47, 60, 70].contains(&at);
        assert!(!in_the_head || told.len() == 1, "{at}");
        drop(cache);
        fs::remove_file(&path).unwrap();
    }
    // Most of the database is unused space.
    assert!((1..whole.len()).contains(&found), "{found} of {}", whole.len());
}

/// An attacker who can write the database cannot make us run its code or block, before or after we open it.
#[test]
fn runs_no_code_of_a_hostile_schema() {
    let forever = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT";
    let hostile = [
        "DROP TABLE record;".to_owned(),
        format!(
            "DROP TABLE record; CREATE VIEW record AS {forever} zeroblob(16) AS name, x AS owner, '' AS bytes FROM n WHERE x < 0;"
        ),
        format!(
            "CREATE TRIGGER hostile BEFORE INSERT ON record BEGIN DELETE FROM total WHERE owners = ({forever} max(x) FROM n); END;"
        ),
        "CREATE TABLE more (x);".to_owned(),
        "UPDATE total SET owners = 1000000;".to_owned(),
        "UPDATE owner SET used = 9223372036854775807;".to_owned(),
        "DELETE FROM total;".to_owned(),
        "UPDATE record SET owner = x'00';".to_owned(),
        "PRAGMA user_version = 3;".to_owned(),
        "DELETE FROM mark;".to_owned(),
        "UPDATE mark SET text = 'dunlin handshake cache of a';".to_owned(),
    ];
    let (owner, record) = common::owner(1, 7);
    for (sql, before) in hostile.iter().flat_map(|sql| [(sql, true), (sql, false)]) {
        let (_directory, path) = place();
        let faults = Faults::default();
        let opened = || SqliteRecords::open(&path, Side::Server, 8, faults.report()).unwrap();
        let mut store = opened();
        store.put(&owner, std::slice::from_ref(&record), &[]);
        let hostile = Connection::open(&path).unwrap();
        hostile.execute_batch(sql).unwrap();
        drop(hostile);
        if before {
            store = opened();
            assert_eq!(store.get(&owner.name), None, "{sql}");
            assert!(path.with_extension("db.damaged").exists(), "{sql}");
        }
        store.get(&owner.name);
        store.put(&owner, std::slice::from_ref(&record), &[]);
        let told = faults.take();
        assert!(
            told.len() <= 1 && told.iter().all(|fault| fault.contains("set aside as")),
            "{sql}: {told:?}"
        );
        // The next process that opens the database finds the change at the latest.
        drop(store);
        let store = opened();
        store.put(&owner, std::slice::from_ref(&record), &[]);
        assert_eq!(store.get(&owner.name).as_ref(), Some(&record.bytes), "{sql}");
        let times = faults.take().len() + told.len();
        assert!(times == 1 || !before && times == 0, "{sql}");
    }
}

/// While another process locks the database, the store reports it once and does not wait at each access.
#[test]
fn does_not_wait_for_a_locked_database() {
    let (_directory, path) = place();
    let (owner, record) = common::owner(1, 7);
    open(&path).put(&owner, std::slice::from_ref(&record), &[]);
    let other = Connection::open(&path).unwrap();
    let lock = "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE;";
    other.execute_batch(lock).unwrap();
    let faults = Faults::default();
    let store = SqliteRecords::open(&path, Side::Server, 8, faults.report()).unwrap();
    for _ in 0..50 {
        assert_eq!(store.get(&owner.name), None);
        store.put(&owner, std::slice::from_ref(&record), &[]);
    }
    let place = path.display();
    assert_eq!(faults.take(), [format!("{place}: locked by another process")]);
    drop(other);
    common::write_until_stored(&store, &owner, &record);
    assert_eq!(faults.take(), [format!("{place}: the store works again")]);
}

/// Many look-ups do not make the store reopen the database, which would check all of it.
#[test]
fn look_ups_do_not_reopen_the_database() {
    let (directory, path) = place();
    let (owner, record) = common::owner(1, 7);
    let store = open(&path);
    store.put(&owner, std::slice::from_ref(&record), &[]);
    // A store that opens it again would find nothing.
    for file in fs::read_dir(directory.path()).unwrap() {
        let file = file.unwrap().path();
        fs::rename(&file, file.with_extension("away")).unwrap();
    }
    for number in 0..200_000 {
        assert_eq!(store.get(&record.name).as_ref(), Some(&record.bytes), "{number}");
    }
}

/// After a reduction of the capacity, a single change evicts a bounded number of owners.
#[test]
fn evicts_a_bounded_number_after_a_reduction() {
    let (_directory, path) = place();
    drop(open(&path));
    let many = Connection::open(&path).unwrap();
    let fill = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 50000)
                INSERT INTO owner SELECT x, CAST(x AS BLOB), x'01' FROM n";
    many.execute(fill, []).unwrap();
    let owners = || many.query_row("SELECT owners FROM total", [], |row| row.get::<_, i64>(0)).unwrap();
    let store = open(&path);
    let mut number = 0;
    let mut before = owners();
    while before > 8 {
        let (owner, record) = common::owner(1, number);
        assert!(store.put(&owner, std::slice::from_ref(&record), &[]));
        assert!((before - 100..before).contains(&owners()));
        (number, before) = (number + 1, owners());
    }
}

/// While another process writes, one change waits now and then, and reads do not change that.
#[test]
fn reads_do_not_end_the_pause_of_writes() {
    let (_directory, path) = place();
    let (owner, record) = common::owner(1, 7);
    let faults = Faults::default();
    let store = SqliteRecords::open(&path, Side::Server, 8, faults.report()).unwrap();
    let put = || store.put(&owner, std::slice::from_ref(&record), &[]);
    assert!(put());
    let other = Connection::open(&path).unwrap();
    // The first pause is short: on a busy machine it may end before the next write.
    let is_refused = (0..20).any(|_| {
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        assert!(!put());
        assert_eq!(store.get(&owner.name).as_ref(), Some(&record.bytes));
        other.execute_batch("COMMIT").unwrap();
        !put()
    });
    assert!(is_refused);
    common::write_until_stored(&store, &owner, &record);
}

#[test]
fn leaves_a_foreign_database_alone() {
    let (directory, path) = place();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1);").unwrap();
    let fault = |path: &Path| SqliteRecords::open(path, Side::Server, 8, no_fault()).unwrap_err().to_string();
    assert!(fault(&path).contains("not a handshake cache"));
    assert_eq!(other.query_row("SELECT x FROM t", [], |row| row.get::<_, i64>(0)), Ok(1));
    for content in [&b"-----BEGIN PRIVATE KEY-----"[..], b"short"] {
        let key = directory.path().join("key");
        fs::write(&key, content).unwrap();
        assert!(fault(&key).contains("not a handshake cache"));
        assert_eq!(fs::read(&key).unwrap(), content);
    }
    assert!(fault(directory.path()).contains("not a regular file"));
}

/// A link stays a link, also to a missing file, and its damaged target is set aside.
#[test]
fn keeps_links() {
    let (directory, path) = place();
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    drop(open(&link));
    let mut bytes = fs::read(&path).unwrap();
    bytes[47] ^= 1;
    fs::write(&path, bytes).unwrap();
    let faults = Faults::default();
    drop(SqliteRecords::open(&link, Side::Server, 8, faults.report()).unwrap());
    assert!(faults.take().len() == 1 && fs::symlink_metadata(&link).unwrap().is_symlink());
    drop(open(&link));
}
