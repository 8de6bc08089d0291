//! Records in a file.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use dunlin::Side;
use dunlin_store::cache::{CacheFault, FileRecords, Records};
use dunlin_tests::awslc;
use tempfile::TempDir;

use crate::common::{self, Faults, no_fault};

fn place() -> (TempDir, PathBuf) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("cache");
    (directory, path)
}

fn open(path: &Path) -> FileRecords {
    FileRecords::open(path, Side::Server, &awslc(), 8, no_fault()).unwrap()
}

#[test]
fn what_is_kept_survives() {
    let (_directory, path) = place();
    let told = common::what_is_kept_survives(|side, report| {
        FileRecords::open(&common::of_side(&path, side), side, &awslc(), 8, report).unwrap()
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

/// A file that was cut or changed anywhere is set aside, with one word about it, and the cache goes on.
#[test]
fn damage_anywhere_is_set_aside() {
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
            why: "what is in it does not fit together".to_owned(),
        };
        assert_eq!(faults.take(), [expected.to_string()]);
        assert_eq!(fs::read(&aside).unwrap(), damaged);
        assert!(records.iter().all(|(owner, _)| store.get(&owner.name).is_none()));
    }
    // It is written anew, also by one that had it open before.
    let (owner, record) = &records[0];
    let faults = Faults::default();
    let store = FileRecords::open(&path, Side::Server, &awslc(), 8, faults.report()).unwrap();
    fs::write(&path, &whole[..20]).unwrap();
    store.put(owner, std::slice::from_ref(record), &[]);
    assert_eq!(faults.take().len(), 1);
    assert_eq!(open(&path).get(&owner.name).as_ref(), Some(&record.bytes));
}

#[test]
fn refuses_the_store_of_the_other_side() {
    let (_directory, path) = place();
    common::the_other_side_is_refused(&path, |side, report| {
        FileRecords::open(&path, side, &awslc(), 8, report)
    });
}

/// A store is known by its end where its beginning was overwritten, and by nothing where all of it was.
#[test]
fn a_damaged_beginning_is_set_aside() {
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
                assert!(opened.unwrap_err().to_string().contains("it is no handshake cache"));
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

/// A name that was mistyped, or means what is no store, costs nobody a file.
#[test]
fn what_is_no_store_is_left_alone() {
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
        assert!(told.contains("it is no handshake cache"), "{told}");
        other.put(&owner, std::slice::from_ref(&record), &[]);
        assert_eq!(fs::read(&path).unwrap(), content);
    }
    assert_eq!(faults.take().len(), 1);
    fs::remove_file(&path).unwrap();
    store.put(&owner, std::slice::from_ref(&record), &[]);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(open(&link).get(&owner.name).as_ref(), Some(&record.bytes));
}

/// A link stays also where there is nothing behind it yet, and it is one to a link.
#[test]
fn a_link_to_nothing_stays() {
    let (directory, path) = place();
    let [link, other] = ["link", "other"].map(|name| directory.path().join(name));
    std::os::unix::fs::symlink("other", &link).unwrap();
    std::os::unix::fs::symlink(&path, &other).unwrap();
    let (owner, record) = common::owner(1, 0);
    assert!(open(&link).put(&owner, std::slice::from_ref(&record), &[]));
    assert!([&link, &other].iter().all(|link| fs::symlink_metadata(link).unwrap().is_symlink()));
    assert_eq!(open(&path).get(&owner.name), Some(record.bytes));
    // One that leads nowhere is an error.
    let circle = directory.path().join("circle");
    std::os::unix::fs::symlink("circle", &circle).unwrap();
    assert!(FileRecords::open(&circle, Side::Server, &awslc(), 8, no_fault()).is_err());
}

/// Several processes may write: nobody loses what another one kept.
#[test]
fn writers_see_each_other() {
    let (_directory, path) = place();
    let stores = [open(&path), open(&path)];
    for number in 0..6 {
        let (owner, record) = common::owner(1, number);
        stores[number as usize % 2].put(&owner, &[record], &[]);
    }
    let store = open(&path);
    assert!((0..6).all(|n| store.get(&common::owner(1, n).0.name).is_some()));
}

/// What one process writes another one reads, also where each has the file open.
#[test]
fn readers_see_writers() {
    let (_directory, path) = place();
    let (reader, writer) = (open(&path), open(&path));
    for number in 0..6 {
        let (owner, record) = common::owner(1, number);
        assert_eq!(reader.get(&owner.name), None);
        writer.put(&owner, std::slice::from_ref(&record), &[]);
        assert_eq!(reader.get(&owner.name), Some(record.bytes));
    }
    fs::remove_file(&path).unwrap();
    assert_eq!(reader.get(&common::owner(1, 0).0.name), None);
}

/// Somebody has the lock, also when the file is opened: it is said once, and not waited for each time.
#[test]
fn a_locked_file_is_not_waited_for() {
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
    // Who only reads needs no lock.
    assert_eq!(store.get(&owner.name), Some(record.bytes));
    let place = path.display();
    assert_eq!(faults.take(), [format!("{place}: another process has it locked")]);
    drop(lock);
    common::until_it_is_kept(&store, &another, &newer);
    assert_eq!(faults.take(), [format!("{place}: it is used again")]);
}

/// Who can write the directory has us write nowhere else.
#[test]
fn links_beside_it_are_not_followed() {
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
fn what_could_not_be_written_is_not_shown_again() {
    let (_directory, path) = place();
    let store = FileRecords::open(&path, Side::Server, &awslc(), 8, Faults::default().report()).unwrap();
    let new = path.with_extension("new");
    common::what_could_not_be_written_is_not_shown_again(store, |fails| match fails {
        true => fs::create_dir(&new).unwrap(),
        false => fs::remove_dir(&new).unwrap(),
    });
}

#[test]
fn nothing_takes_no_room() {
    let (_directory, path) = place();
    common::nothing_takes_no_room(&open(&path));
}

#[test]
fn where_no_file_can_be_there_is_a_fault() {
    let (directory, path) = place();
    let fault =
        |path: &Path| FileRecords::open(path, Side::Server, &awslc(), 8, no_fault()).unwrap_err().to_string();
    assert!(fault(&path.join("in a file that is none")).contains("No such file or directory"));
    assert!(fault(directory.path()).contains("it is no file"));
}

const WRITER: &str = "DUNLIN_TEST_WRITER";

/// Not a test by itself: the child of the next one, which writes until it is killed, and says what it has written.
#[test]
fn writer() {
    let Some(path) = std::env::var_os(WRITER) else { return };
    let store = open(Path::new(&path));
    for number in 0.. {
        let (owner, _) = common::owner(1, 0);
        let bytes = u32::to_be_bytes(number).repeat(5000);
        store.put(&owner, &[dunlin_store::cache::Record { name: owner.name, bytes }], &[]);
        println!("wrote {number}");
    }
}

/// Whoever writes may be killed at any moment: what it had written is there, or what it was about to write, and all of it.
#[test]
fn a_killed_writer_leaves_the_old_or_the_new() {
    let (_directory, path) = place();
    for round in 0..60u32 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "file::writer", "--nocapture"])
            .env(WRITER, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut written = lines.filter_map(|line| line.unwrap().strip_prefix("wrote ")?.parse::<u32>().ok());
        // Some writes further each time, and somewhere in one: as far as the child gets while this loop spins.
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
