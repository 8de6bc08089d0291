//! Records in SQLite.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dunlin::Side;
use dunlin::cache::ServerCache;
use dunlin_store::MemoryClientCache;
use dunlin_store::cache::{Records, SealedServerCache, SqliteRecords};
use dunlin_tests::{KeyType, Pki};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::common::{self, Faults, Noted, client, connect, no_fault, sealer, server};

fn place() -> (TempDir, PathBuf) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("cache.db");
    (directory, path)
}

fn open(path: &Path) -> SqliteRecords {
    SqliteRecords::open(path, Side::Server, 8, no_fault()).unwrap()
}

#[test]
fn what_is_kept_survives() {
    let (_directory, path) = place();
    let told = common::what_is_kept_survives(|side, report| {
        SqliteRecords::open(&common::of_side(&path, side), side, 8, report).unwrap()
    });
    assert_eq!(told, common::other_key(&path));
}

#[test]
fn a_writer_invents_nobody() {
    let (_directory, path) = place();
    common::a_writer_invents_nobody(open(&path), open(&path.with_extension("foreign")));
}

#[test]
fn endpoints_know_a_client() {
    let (_directory, path) = place();
    common::endpoints_know_a_client(open(&path));
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

/// Who makes room takes all his records along.
#[test]
fn records_go_with_their_owner() {
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

/// A damaged database is set aside with one word about it, when it is opened or when the damage shows.
#[test]
fn damage_is_set_aside() {
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
    // The beginning alone, or all of the first page and more.
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

    // In a database that is open: it is read again when somebody else has written.
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

#[test]
fn refuses_the_store_of_the_other_side() {
    let (_directory, path) = place();
    common::the_other_side_is_refused(&path, |side, report| SqliteRecords::open(&path, side, 8, report));
}

/// A bit that is another, in any byte of a database: nothing fails, nobody is invented, and the cache goes on.
#[test]
fn a_bit_anywhere_is_no_matter() {
    // In memory, if there is such a place: thousands of databases are written.
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
    // Small pages, so that there are fewer bytes.
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
    // Most of it is room that is not used.
    assert!((1..whole.len()).contains(&found), "{found} of {}", whole.len());
}

/// Who can write the database makes it neither run nor hang, be it before it is opened or after.
#[test]
fn a_hostile_schema_runs_nothing() {
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
        // Whoever opens it next finds it, at the latest.
        drop(store);
        let store = opened();
        store.put(&owner, std::slice::from_ref(&record), &[]);
        assert_eq!(store.get(&owner.name).as_ref(), Some(&record.bytes), "{sql}");
        let times = faults.take().len() + told.len();
        assert!(times == 1 || !before && times == 0, "{sql}");
    }
}

/// Somebody has the database locked, also when it is opened: it is said once, and not waited for each time.
#[test]
fn a_locked_database_is_not_waited_for() {
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
    assert_eq!(faults.take(), [format!("{place}: another process has it locked")]);
    drop(other);
    common::until_it_is_kept(&store, &owner, &record);
    assert_eq!(faults.take(), [format!("{place}: it is used again")]);
}

/// A database is read as often as anybody likes: it is not opened again, which checks all of it.
#[test]
fn no_number_of_questions_is_damage() {
    let (directory, path) = place();
    let (owner, record) = common::owner(1, 7);
    let store = open(&path);
    store.put(&owner, std::slice::from_ref(&record), &[]);
    // Who opened it again would find nothing.
    for file in fs::read_dir(directory.path()).unwrap() {
        let file = file.unwrap().path();
        fs::rename(&file, file.with_extension("away")).unwrap();
    }
    for number in 0..200_000 {
        assert_eq!(store.get(&record.name).as_ref(), Some(&record.bytes), "{number}");
    }
}

/// Where there was room for more once, no change has to make all of the room.
#[test]
fn a_store_may_become_much_smaller() {
    let (_directory, path) = place();
    drop(open(&path));
    let many = Connection::open(&path).unwrap();
    let fill = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 50000)
                INSERT INTO owner SELECT x, CAST(x AS BLOB), x'01' FROM n";
    many.execute(fill, []).unwrap();
    let owners = || many.query_row("SELECT owners FROM total", [], |row| row.get::<_, i64>(0)).unwrap();
    let store = open(&path);
    let (mut number, mut before) = (0, owners());
    while before > 8 {
        let (owner, record) = common::owner(1, number);
        assert!(store.put(&owner, std::slice::from_ref(&record), &[]));
        assert!((before - 100..before).contains(&owners()));
        (number, before) = (number + 1, owners());
    }
}

/// Who writes somewhere else holds up one change now and then, however much is read meanwhile.
#[test]
fn what_is_read_does_not_end_the_pause_of_writers() {
    let (_directory, path) = place();
    let (owner, record) = common::owner(1, 7);
    let faults = Faults::default();
    let store = SqliteRecords::open(&path, Side::Server, 8, faults.report()).unwrap();
    let put = || store.put(&owner, std::slice::from_ref(&record), &[]);
    assert!(put());
    let other = Connection::open(&path).unwrap();
    // The pause is short at first: on a busy machine it may be over before this asks again.
    let is_refused = (0..20).any(|_| {
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        assert!(!put());
        assert_eq!(store.get(&owner.name).as_ref(), Some(&record.bytes));
        other.execute_batch("COMMIT").unwrap();
        !put()
    });
    assert!(is_refused);
    common::until_it_is_kept(&store, &owner, &record);
}

/// What is taken out leaves no owner without anything.
#[test]
fn an_owner_has_what_was_written_last() {
    let (_directory, path) = place();
    common::an_owner_has_what_was_written_last(&open(&path));
}

#[test]
fn what_cannot_be_kept_is_not_there() {
    let (_directory, path) = place();
    common::what_cannot_be_kept_is_not_there(open(&path));
}

#[test]
fn nothing_takes_no_room() {
    let (_directory, path) = place();
    common::nothing_takes_no_room(&open(&path));
}

#[test]
fn a_database_of_somebody_else_is_left_alone() {
    let (directory, path) = place();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE t (x); INSERT INTO t VALUES (1);").unwrap();
    let fault = |path: &Path| SqliteRecords::open(path, Side::Server, 8, no_fault()).unwrap_err().to_string();
    assert!(fault(&path).contains("it is no handshake cache"));
    assert_eq!(other.query_row("SELECT x FROM t", [], |row| row.get::<_, i64>(0)), Ok(1));
    for content in [&b"-----BEGIN PRIVATE KEY-----"[..], b"short"] {
        let key = directory.path().join("key");
        fs::write(&key, content).unwrap();
        assert!(fault(&key).contains("it is no handshake cache"));
        assert_eq!(fs::read(&key).unwrap(), content);
    }
    assert!(fault(directory.path()).contains("it is no file"));
}

/// A link stays, also where nothing was behind it, and what it points to is set aside.
#[test]
fn a_link_stays() {
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
