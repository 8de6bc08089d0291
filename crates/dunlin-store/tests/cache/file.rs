//! Records in a file.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dunlin::Side;
use dunlin_store::cache::{CacheFault, FileRecords, Records, Report};
use dunlin_tests::awslc;
use tempfile::TempDir;

use crate::common::{self, Faults, no_fault};

fn place() -> (TempDir, PathBuf) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("cache");
    (directory, path)
}

fn open_as(path: &Path, side: Side, report: Report) -> Result<FileRecords, CacheFault> {
    FileRecords::open(path, side, &awslc(), 8, report)
}

fn open(path: &Path) -> FileRecords {
    open_as(path, Side::Server, no_fault()).unwrap()
}

common::tests_at_a_path!();

/// A file that was truncated or changed anywhere is set aside with one report, and the cache goes on.
#[test]
fn sets_aside_a_file_damaged_anywhere() {
    let (_directory, path) = place();
    let records: Vec<_> = (0..3).map(|n| common::owner(1, n)).collect();
    for (owner, record) in &records {
        open(&path).put(owner, std::slice::from_ref(record), &[]);
    }
    let whole = fs::read(&path).unwrap();
    let cut = (0..whole.len()).map(|len| whole[..len].to_vec());
    let flipped = (0..whole.len()).map(|at| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        bytes
    });
    let longer = [whole.clone(), vec![0]].concat();
    let aside = path.with_extension("damaged");
    for damaged in cut.chain(flipped).chain([longer]) {
        fs::write(&path, &damaged).unwrap();
        let faults = Faults::default();
        let store = FileRecords::open(&path, Side::Server, &awslc(), 8, faults.report()).unwrap();
        let expected = CacheFault::Damaged {
            store: path.clone(),
            aside: aside.clone(),
            why: "its content is inconsistent".to_owned(),
        };
        assert_eq!(faults.take(), [expected.to_string()]);
        assert_eq!(fs::read(&aside).unwrap(), damaged);
        assert!(records.iter().all(|(owner, _)| store.get(&owner.name).is_none()));
    }
    // A store that was open before writes a new file, too.
    let (owner, record) = &records[0];
    let faults = Faults::default();
    let store = FileRecords::open(&path, Side::Server, &awslc(), 8, faults.report()).unwrap();
    fs::write(&path, &whole[..20]).unwrap();
    store.put(owner, std::slice::from_ref(record), &[]);
    assert_eq!(faults.take().len(), 1);
    assert_eq!(open(&path).get(&owner.name).as_ref(), Some(&record.bytes));
}

/// The end identifies a store whose beginning was overwritten. Nothing identifies a store that was
/// overwritten as a whole.
#[test]
fn sets_aside_a_file_with_a_damaged_beginning() {
    let (_directory, path) = place();
    let (owner, record) = common::owner(1, 0);
    open(&path).put(&owner, std::slice::from_ref(&record), &[]);
    let whole = fs::read(&path).unwrap();
    for len in [2, 8, 20, whole.len() - 8, whole.len()] {
        for byte in [0, 0x5a] {
            let mut damaged = whole.clone();
            damaged[..len].fill(byte);
            fs::write(&path, &damaged).unwrap();
            let faults = Faults::default();
            let opened = FileRecords::open(&path, Side::Server, &awslc(), 8, faults.report());
            if len == whole.len() {
                assert!(opened.unwrap_err().to_string().contains("not a handshake cache"));
                assert_eq!(fs::read(&path).unwrap(), damaged);
                continue;
            }
            assert!(opened.unwrap().put(&owner, std::slice::from_ref(&record), &[]));
            let told = faults.take();
            assert!(told.len() == 1 && told[0].contains("set aside as"), "{told:?}");
            assert_eq!(fs::read(path.with_extension("damaged")).unwrap(), damaged);
        }
    }
}

/// A mistyped name does not destroy a foreign file.
#[test]
fn leaves_a_foreign_file_alone() {
    let (directory, path) = place();
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let (owner, record) = common::owner(1, 0);
    let store = open(&path);
    let faults = Faults::default();
    let other = FileRecords::open(&link, Side::Server, &awslc(), 8, faults.report()).unwrap();
    for content in [&b"-----BEGIN PRIVATE KEY-----"[..], b"short"] {
        fs::write(&path, content).unwrap();
        let told = FileRecords::open(&path, Side::Server, &awslc(), 8, no_fault()).unwrap_err().to_string();
        assert!(told.contains("not a handshake cache"), "{told}");
        other.put(&owner, std::slice::from_ref(&record), &[]);
        assert_eq!(fs::read(&path).unwrap(), content);
    }
    assert_eq!(faults.take().len(), 1);
    fs::remove_file(&path).unwrap();
    store.put(&owner, std::slice::from_ref(&record), &[]);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(open(&link).get(&owner.name).as_ref(), Some(&record.bytes));
}

/// Links stay links, also if they form a chain and their target does not exist yet.
#[test]
fn follows_links_to_missing_files() {
    let (directory, path) = place();
    let [link, other] = ["link", "other"].map(|name| directory.path().join(name));
    std::os::unix::fs::symlink("other", &link).unwrap();
    std::os::unix::fs::symlink(&path, &other).unwrap();
    let (owner, record) = common::owner(1, 0);
    assert!(open(&link).put(&owner, std::slice::from_ref(&record), &[]));
    assert!([&link, &other].iter().all(|link| fs::symlink_metadata(link).unwrap().is_symlink()));
    assert_eq!(open(&path).get(&owner.name), Some(record.bytes));
    // A circular link is an error.
    let circle = directory.path().join("circle");
    std::os::unix::fs::symlink("circle", &circle).unwrap();
    assert!(FileRecords::open(&circle, Side::Server, &awslc(), 8, no_fault()).is_err());
}

/// Several processes may write without losing each other's entries.
#[test]
fn concurrent_writers_lose_no_entries() {
    let (_directory, path) = place();
    let stores = [open(&path), open(&path)];
    for number in 0..6 {
        let (owner, record) = common::owner(1, number);
        stores[number as usize % 2].put(&owner, &[record], &[]);
    }
    let store = open(&path);
    assert!((0..6).all(|n| store.get(&common::owner(1, n).0.name).is_some()));
}

/// A process reads what another one writes while both have the file open.
#[test]
fn readers_see_changes_of_other_processes() {
    let (_directory, path) = place();
    let reader = open(&path);
    let writer = open(&path);
    for number in 0..6 {
        let (owner, record) = common::owner(1, number);
        assert_eq!(reader.get(&owner.name), None);
        writer.put(&owner, std::slice::from_ref(&record), &[]);
        assert_eq!(reader.get(&owner.name), Some(record.bytes));
    }
    fs::remove_file(&path).unwrap();
    assert_eq!(reader.get(&common::owner(1, 0).0.name), None);
}

/// While another process holds the lock, the store reports it once and does not wait at each write.
#[test]
fn does_not_wait_for_a_locked_file() {
    let (_directory, path) = place();
    let (owner, record) = common::owner(1, 0);
    open(&path).put(&owner, std::slice::from_ref(&record), &[]);
    let lock = fs::File::open(path.with_extension("lock")).unwrap();
    lock.lock().unwrap();
    let faults = Faults::default();
    let store = FileRecords::open(&path, Side::Server, &awslc(), 8, faults.report()).unwrap();
    let (another, newer) = common::owner(1, 1);
    for _ in 0..50 {
        store.put(&another, std::slice::from_ref(&newer), &[]);
        assert_eq!(store.get(&another.name), None);
    }
    // Readers need no lock.
    assert_eq!(store.get(&owner.name), Some(record.bytes));
    let place = path.display();
    assert_eq!(faults.take(), [format!("{place}: locked by another process")]);
    drop(lock);
    common::write_until_stored(&store, &another, &newer);
    assert_eq!(faults.take(), [format!("{place}: the store works again")]);
}

/// Another user who can write the directory cannot redirect our writes.
#[test]
fn follows_no_links_beside_the_store() {
    let (directory, path) = place();
    let victim = directory.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    let (owner, record) = common::owner(1, 0);
    let store = open(&path);
    std::os::unix::fs::symlink(&victim, path.with_extension("new")).unwrap();
    store.put(&owner, std::slice::from_ref(&record), &[]);
    assert_eq!(store.get(&owner.name).as_ref(), Some(&record.bytes));
    fs::remove_file(path.with_extension("lock")).unwrap();
    let nowhere = directory.path().join("nowhere");
    std::os::unix::fs::symlink(&nowhere, path.with_extension("lock")).unwrap();
    assert!(FileRecords::open(&path, Side::Server, &awslc(), 8, no_fault()).is_err());
    assert!(!nowhere.exists());
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
}

#[test]
fn shows_no_ticket_twice_after_a_failed_write() {
    let (_directory, path) = place();
    let store = FileRecords::open(&path, Side::Server, &awslc(), 8, Faults::default().report()).unwrap();
    let new = path.with_extension("new");
    common::shows_no_ticket_twice_after_a_failed_write(store, |fails| {
        if fails { fs::create_dir(&new).unwrap() } else { fs::remove_dir(&new).unwrap() }
    });
}

#[test]
fn reports_a_path_that_cannot_be_a_file() {
    let (directory, path) = place();
    let fault =
        |path: &Path| FileRecords::open(path, Side::Server, &awslc(), 8, no_fault()).unwrap_err().to_string();
    assert!(fault(&path.join("in a file that is none")).contains("No such file or directory"));
    assert!(fault(directory.path()).contains("not a regular file"));
}

const WRITER: &str = "DUNLIN_TEST_WRITER";

/// The child process of the next test. It writes until it is killed, and prints what it has written.
fn write_until_killed(path: &Path) {
    let store = open(path);
    for number in 0.. {
        let (owner, _) = common::owner(1, 0);
        let bytes = u32::to_be_bytes(number).repeat(5000);
        store.put(&owner, &[dunlin_store::cache::Record { name: owner.name, bytes }], &[]);
        println!("wrote {number}");
    }
}

/// If a writer is killed at any moment, the file has its last completed write or the next one, and is whole.
#[test]
fn a_killed_writer_leaves_the_old_or_the_new() {
    if let Some(path) = std::env::var_os(WRITER) {
        return write_until_killed(Path::new(&path));
    }
    let (_directory, path) = place();
    for round in 0..60u32 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "file::a_killed_writer_leaves_the_old_or_the_new", "--nocapture"])
            .env(WRITER, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut written = lines.filter_map(|line| line.unwrap().strip_prefix("wrote ")?.parse::<u32>().ok());
        // Kill it a few writes later each time, and in the middle of one: as far as it gets during this loop.
        let told = written.nth(1 + round as usize % 7).unwrap();
        for n in 0..round * round * 50 {
            std::hint::black_box(n);
        }
        child.kill().unwrap();
        let last = written.last().unwrap_or(told);
        child.wait().unwrap();
        let found = open(&path).get(&common::owner(1, 0).0.name).unwrap();
        let (number, rest) = found.split_first_chunk().unwrap();
        let number = u32::from_be_bytes(*number);
        assert!(number == last || number == last + 1, "{number} after {last}");
        assert!(rest.chunks(4).all(|chunk| chunk == number.to_be_bytes()));
    }
}
