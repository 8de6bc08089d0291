//! Files of frozen associations are thawed whole and once, or not at all.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dunlin_store::frozen::{
    DirectoryIds, FileId, FrozenError, FrozenFile, FrozenIds, IdsFault, MAX_ASSOCIATION,
};
use dunlin_tests::awslc;
use tempfile::TempDir;
use zeroize::Zeroizing;

const KEY: u8 = 7;

fn file(path: &Path, key: u8) -> FrozenFile {
    FrozenFile::new(&awslc(), path, &Zeroizing::new([key; 32])).unwrap()
}

/// Stand-ins for frozen associations: any bytes may come from the engine.
fn associations() -> Vec<Vec<u8>> {
    vec![b"first".to_vec(), vec![], vec![3; MAX_ASSOCIATION], vec![4; 100_000], b"last".to_vec()]
}

fn freeze(file: &FrozenFile, ids: &dyn FrozenIds, associations: &[Vec<u8>]) {
    let mut writer = file.create(ids).unwrap();
    associations.iter().for_each(|association| writer.push(association).unwrap());
    let written = writer.finish().unwrap();
    assert_eq!((written.associations, written.aside), (associations.len() as u64, None));
}

fn thaw(file: &FrozenFile, ids: &dyn FrozenIds) -> Result<Option<Vec<Vec<u8>>>, FrozenError> {
    let thawed = file.thaw(ids, |bytes| Ok::<_, &str>(bytes.to_vec()))?;
    Ok(thawed.map(|thawed| thawed.into_iter().map(Result::unwrap).collect()))
}

/// A place for a file and its IDs.
struct FrozenDirectory {
    directory: TempDir,
    path: PathBuf,
}

impl FrozenDirectory {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        Self { path: directory.path().join("server.frozen"), directory }
    }

    fn ids(&self) -> DirectoryIds {
        DirectoryIds::open(self.directory.path().join("ids")).unwrap()
    }
}

/// A restored copy of the file is refused with one line, whatever the store of IDs.
fn a_file_is_thawed_once(ids: &dyn FrozenIds, others: &dyn FrozenIds) {
    let place = FrozenDirectory::new();
    let file = file(&place.path, KEY);
    assert!(thaw(&file, ids).unwrap().is_none(), "there is no file yet");
    freeze(&file, ids, &associations());
    assert_eq!(fs::metadata(&place.path).unwrap().permissions().mode() & 0o777, 0o600);
    let copy = fs::read(&place.path).unwrap();
    assert!(matches!(thaw(&file, others), Err(FrozenError::Spent { .. })), "the store is another one");
    assert_eq!(thaw(&file, ids).unwrap().unwrap(), associations());
    assert!(!place.path.exists());
    fs::write(&place.path, copy).unwrap();
    fs::set_permissions(&place.path, fs::Permissions::from_mode(0o600)).unwrap();
    let error = thaw(&file, ids).unwrap_err();
    let text = format!("{error}; {}", error.advice());
    assert!(
        text.contains("thawed before") && text.contains("connect again") && !text.contains('\n'),
        "{text}"
    );
    assert!(error.is_final());
    let aside = file.set_aside().unwrap().unwrap();
    assert!(aside.exists() && aside.ends_with("server.frozen.refused"), "{aside:?}");
    assert_eq!(file.set_aside().unwrap(), None);
    file.try_store(ids).unwrap();
    freeze(&file, ids, &[b"again".to_vec()]);
    assert_eq!(thaw(&file, ids).unwrap().unwrap(), [b"again"]);
}

#[test]
fn a_file_is_thawed_once_with_ids_in_a_directory() {
    a_file_is_thawed_once(&FrozenDirectory::new().ids(), &FrozenDirectory::new().ids());
    let place = FrozenDirectory::new();
    let ids = place.ids();
    let others = FrozenDirectory::new();
    a_file_is_thawed_once(&ids, &others.ids());
}

#[cfg(feature = "sqlite")]
#[test]
fn a_file_is_thawed_once_with_ids_in_sqlite() {
    use dunlin_store::frozen::SqliteIds;
    let place = FrozenDirectory::new();
    let [ids, others] = ["ids", "others"].map(|name| place.directory.path().join(name));
    a_file_is_thawed_once(&SqliteIds::open(&ids).unwrap(), &SqliteIds::open(&others).unwrap());
    assert_eq!(fs::metadata(&ids).unwrap().permissions().mode() & 0o777, 0o600);
    fs::write(&place.path, b"SQLite format 3\0 or something else").unwrap();
    assert!(SqliteIds::open(&place.path).is_err());
}

#[cfg(feature = "redis")]
#[test]
fn a_file_is_thawed_once_with_ids_in_redis() {
    use crate::redis::Redis;
    use dunlin_store::frozen::RedisIds;
    use std::time::Duration;
    let mut redis = Redis::new();
    let other = Redis::new();
    let open = |redis: &Redis| RedisIds::open(&redis.url(), Duration::from_secs(20)).unwrap();
    let ids = open(&redis);
    a_file_is_thawed_once(&ids, &open(&other));
    let place = FrozenDirectory::new();
    let file = file(&place.path, KEY);
    freeze(&file, &ids, &associations());
    redis.stop();
    assert!(matches!(thaw(&file, &ids), Err(FrozenError::Ids(_))));
    assert!(matches!(file.create(&ids), Err(FrozenError::Ids(_))), "no association may be frozen now");
}

#[test]
fn a_cut_or_changed_file_thaws_nothing() {
    let place = FrozenDirectory::new();
    let file = file(&place.path, KEY);
    let ids = place.ids();
    let associations = [b"one".to_vec(), b"two".to_vec()];
    freeze(&file, &ids, &associations);
    let whole = fs::read(&place.path).unwrap();
    for len in 0..whole.len() {
        fs::write(&place.path, &whole[..len]).unwrap();
        assert!(matches!(thaw(&file, &ids), Err(FrozenError::Cut(_))), "{len}");
    }
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        fs::write(&place.path, &changed).unwrap();
        assert!(thaw(&file, &ids).is_err(), "{at}");
    }
    fs::write(&place.path, [&whole[..], &[0]].concat()).unwrap();
    assert!(matches!(thaw(&file, &ids), Err(FrozenError::Damaged(_))));
    fs::write(&place.path, b"-----BEGIN PRIVATE KEY-----").unwrap();
    assert!(matches!(thaw(&file, &ids), Err(FrozenError::Foreign(_))));
    fs::write(&place.path, &whole).unwrap();
    let other = self::file(&place.path, KEY + 1);
    assert!(matches!(thaw(&other, &ids), Err(FrozenError::OtherKey(_))));
    fs::set_permissions(&place.path, fs::Permissions::from_mode(0o666)).unwrap();
    assert!(matches!(thaw(&file, &ids), Err(FrozenError::File { .. })));
    fs::set_permissions(&place.path, fs::Permissions::from_mode(0o600)).unwrap();
    // None of these attempts has used the ID up.
    assert_eq!(thaw(&file, &ids).unwrap().unwrap(), associations);
}

/// Sealed pieces are bound to their place in the file.
#[test]
fn pieces_that_are_swapped_or_missing_thaw_nothing() {
    let place = FrozenDirectory::new();
    let file = file(&place.path, KEY);
    let ids = place.ids();
    freeze(&file, &ids, &[vec![1; MAX_ASSOCIATION], vec![2; MAX_ASSOCIATION]]);
    let whole = fs::read(&place.path).unwrap();
    let begin = 7 + 1 + 16 + 16;
    let piece = 1 + 4 + 4 + MAX_ASSOCIATION + 16;
    let (head, rest) = whole.split_at(begin);
    let (first, rest) = rest.split_at(piece);
    let (second, end) = rest.split_at(piece);
    assert_eq!(end.len(), 1 + 8 + 16);
    for parts in [vec![head, second, first, end], vec![head, first, end], vec![head, end]] {
        fs::write(&place.path, parts.concat()).unwrap();
        assert!(matches!(thaw(&file, &ids), Err(FrozenError::Damaged(_))));
    }
    fs::write(&place.path, [head, first, second, end].concat()).unwrap();
    assert_eq!(thaw(&file, &ids).unwrap().unwrap().len(), 2);
}

/// A store that does not answer.
#[derive(Debug)]
struct NoAnswer;

impl FrozenIds for NoAnswer {
    fn put(&self, _: &FileId) -> Result<(), IdsFault> {
        Err(IdsFault { store: "store".into(), why: "no answer".into() })
    }

    fn take(&self, id: &FileId) -> Result<bool, IdsFault> {
        self.put(id).map(|()| true)
    }
}

#[test]
fn nothing_is_thawed_or_frozen_without_the_store() {
    let place = FrozenDirectory::new();
    let file = file(&place.path, KEY);
    let ids = place.ids();
    freeze(&file, &ids, &associations());
    // Counts the connections that the caller would have.
    struct Connection<'a>(&'a AtomicUsize);
    impl Drop for Connection<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let alive = AtomicUsize::new(0);
    let thawed = file.thaw(&NoAnswer, |_| {
        alive.fetch_add(1, Ordering::Relaxed);
        Ok::<_, &str>(Connection(&alive))
    });
    assert!(matches!(thawed, Err(FrozenError::Ids(_))));
    assert_eq!(alive.load(Ordering::Relaxed), 0);
    assert!(matches!(file.create(&NoAnswer), Err(FrozenError::Ids(_))));
    let error = file.try_store(&NoAnswer).unwrap_err();
    assert!(matches!(error, FrozenError::Ids(_)) && !error.is_final());
    assert!(thaw(&file, &ids).unwrap().is_some(), "the file stayed");
}

#[test]
fn a_new_file_replaces_no_file_that_was_not_thawed() {
    let place = FrozenDirectory::new();
    let file = file(&place.path, KEY);
    let ids = place.ids();
    freeze(&file, &ids, &[b"another process".to_vec()]);
    // One file was set aside before.
    let refused = |n: &str| place.directory.path().join(format!("server.frozen.refused{n}"));
    fs::write(refused(""), "kept").unwrap();
    let written = file.create(&ids).unwrap().finish().unwrap();
    assert_eq!(
        written.aside.map(|aside| fs::canonicalize(aside).unwrap()),
        Some(fs::canonicalize(refused(".2")).unwrap())
    );
    assert_eq!(thaw(&file, &ids).unwrap().unwrap(), Vec::<Vec<u8>>::new());
    assert_eq!(fs::read(refused("")).unwrap(), b"kept");
    let other = self::file(&refused(".2"), KEY);
    assert_eq!(thaw(&other, &ids).unwrap().unwrap(), [b"another process"]);
}

#[test]
fn a_thaw_removes_no_file_that_another_process_has_written_meanwhile() {
    let place = FrozenDirectory::new();
    let file = file(&place.path, KEY);
    let ids = place.ids();
    freeze(&file, &ids, &[b"first".to_vec()]);
    let thawed = file.thaw(&ids, |_| {
        freeze_over(&file, &ids);
        Ok::<_, &str>(())
    });
    assert!(thawed.unwrap().is_some());
    assert_eq!(thaw(&file, &ids).unwrap().unwrap(), [b"second"]);
}

fn freeze_over(file: &FrozenFile, ids: &dyn FrozenIds) {
    let mut writer = file.create(ids).unwrap();
    writer.push(b"second").unwrap();
    assert!(writer.finish().unwrap().aside.is_some());
}

#[test]
fn a_file_stays_if_none_of_its_associations_thaws() {
    let place = FrozenDirectory::new();
    let file = file(&place.path, KEY);
    let ids = place.ids();
    freeze(&file, &ids, &[b"one".to_vec(), b"two".to_vec()]);
    let error = file.thaw(&ids, |_| Err::<(), _>("other settings")).unwrap_err();
    assert!(matches!(error, FrozenError::NoneThawed { associations: 2, .. }) && !error.is_final());
    assert!(error.to_string().contains("other settings"), "{error}");
    // With some of them it is spent.
    let some = |bytes: &[u8]| if bytes == b"one" { Err("revoked") } else { Ok(()) };
    assert_eq!(file.thaw(&ids, some).unwrap().unwrap(), [Err("revoked"), Ok(())]);
    assert!(!place.path.exists());
}

/// Also if others could be thawed before.
#[test]
fn a_file_stays_if_an_association_cannot_be_judged_now() {
    let place = FrozenDirectory::new();
    let file = file(&place.path, KEY);
    let ids = place.ids();
    freeze(&file, &ids, &[b"one".to_vec(), b"two".to_vec()]);
    let some = |bytes: &[u8]| if bytes == b"two" { Err("no answer") } else { Ok(()) };
    let error = file.thaw_unless(&ids, some, |error| *error == "no answer").unwrap_err();
    assert!(matches!(error, FrozenError::NotNow { .. }) && !error.is_final());
    assert!(error.to_string().contains("no answer"), "{error}");
    assert_eq!(thaw(&file, &ids).unwrap().unwrap(), [b"one", b"two"]);
}

#[test]
fn an_unfinished_file_leaves_nothing_behind() {
    let place = FrozenDirectory::new();
    let file = file(&place.path, KEY);
    let ids = place.ids();
    let mut writer = file.create(&ids).unwrap();
    let long = vec![0; MAX_ASSOCIATION + 1];
    assert!(matches!(writer.push(&long), Err(FrozenError::TooLong(len)) if len == long.len()));
    writer.push(&vec![1; MAX_ASSOCIATION]).unwrap();
    drop(writer);
    assert_eq!(fs::read_dir(place.directory.path().join("ids")).unwrap().count(), 0);
    let left = fs::read_dir(place.directory.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["ids"]);
}

#[test]
fn a_directory_that_others_can_write_keeps_no_ids() {
    let place = FrozenDirectory::new();
    drop(place.ids());
    let path = place.directory.path().join("ids");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o770)).unwrap();
    assert!(DirectoryIds::open(&path).is_err());
    fs::remove_dir(&path).unwrap();
    fs::write(&path, "").unwrap();
    assert!(DirectoryIds::open(&path).is_err());
}

#[test]
fn no_key_is_created_for_a_file_that_has_one() {
    let place = FrozenDirectory::new();
    let key = place.directory.path().join("key");
    fs::write(&place.path, "sealed with a key that is gone").unwrap();
    let error = FrozenFile::open(&awslc(), &place.path, &key).unwrap_err();
    let text = format!("{error}; {}", error.advice());
    assert!(text.contains("key: no such key; give the key with which"), "{text}");
    assert!(!key.exists());
}

#[test]
fn a_key_file_is_created_with_mode_0600() {
    let place = FrozenDirectory::new();
    let key = place.directory.path().join("key");
    let open = || FrozenFile::open(&awslc(), &place.path, &key).unwrap();
    freeze(&open(), &place.ids(), &associations());
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(thaw(&open(), &place.ids()).unwrap().is_some());
}

/// The environment variables that make this program one of the processes of the next test.
const DIRECTORY: &str = "DUNLIN_THAW_IN";
const STORE: &str = "DUNLIN_THAW_WITH";

fn open_ids(store: &str, directory: &Path) -> Arc<dyn FrozenIds> {
    match store {
        #[cfg(feature = "sqlite")]
        "sqlite" => Arc::new(dunlin_store::frozen::SqliteIds::open(directory.join("ids.db")).unwrap()),
        _ => Arc::new(DirectoryIds::open(directory.join("ids")).unwrap()),
    }
}

#[test]
fn of_several_processes_one_thaws_a_file() {
    const PROCESSES: usize = 4;
    if let (Some(directory), Some(store)) = (std::env::var_os(DIRECTORY), std::env::var_os(STORE)) {
        let directory = Path::new(&directory);
        let ids = open_ids(store.to_str().unwrap(), directory);
        let file = file(&directory.join("server.frozen"), KEY);
        println!("ready");
        // Waits until all processes are ready.
        std::io::stdin().read_exact(&mut [0]).unwrap();
        match thaw(&file, &*ids) {
            Ok(Some(thawed)) => println!("thawed {}", thawed.len()),
            Ok(None) | Err(FrozenError::Spent { .. }) => println!("refused"),
            Err(error) => println!("{error}"),
        }
        return;
    }
    let mut stores = vec!["directory"];
    stores.extend(cfg!(feature = "sqlite").then_some("sqlite"));
    for store in stores {
        let place = FrozenDirectory::new();
        let ids = open_ids(store, place.directory.path());
        freeze(&file(&place.path, KEY), &*ids, &associations());
        let program = std::env::current_exe().unwrap();
        let spawn = |_| {
            Command::new(&program)
                .args(["--exact", "frozen::of_several_processes_one_thaws_a_file", "--nocapture"])
                .env(DIRECTORY, place.directory.path())
                .env(STORE, store)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        };
        let mut processes: Vec<_> = (0..PROCESSES).map(spawn).collect();
        for process in &mut processes {
            let mut told = Vec::new();
            let out = process.stdout.as_mut().unwrap();
            while !told.ends_with(b"ready\n") {
                let mut byte = [0];
                out.read_exact(&mut byte).unwrap();
                told.push(byte[0]);
            }
        }
        processes.iter_mut().for_each(|process| process.stdin.as_mut().unwrap().write_all(b"!").unwrap());
        let told: Vec<_> = processes
            .into_iter()
            .map(|process| String::from_utf8(process.wait_with_output().unwrap().stdout).unwrap())
            .collect();
        let count = |line: &str| told.iter().filter(|told| told.lines().any(|l| l == line)).count();
        assert_eq!((count("thawed 5"), count("refused")), (1, PROCESSES - 1), "{store}: {told:?}");
    }
}
