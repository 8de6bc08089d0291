//! Keys in files and in SQLite: parsing, errors, comments that survive a change, and servers that follow
//! changes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use dunlin::auth::{FindPsk, Psk};
use dunlin::crypto::HashAlgorithm;
use dunlin::error::Internal;
use dunlin::{Now, TransportKind};
use dunlin_store::psk::file::{self, Format, PskFile, Stamp};
use dunlin_store::psk::sqlite::{LiveSqlitePsks, SqlitePsks};
use dunlin_store::psk::{
    Identity, PskError, PskFault, PskRecord, PskRecords, PskSet, Revoked, ShortKeys, lifecycle, toml,
};
use dunlin_store::text::NotText;
use dunlin_tests::awslc;
use tempfile::TempDir;
use zeroize::Zeroizing;

const KEY: &str = "000102030405060708090a0b0c0d0e0f";

/// 2027-01-01T00:00:00Z
const NEW_YEAR_S: u64 = 1_798_761_600;

fn parse(text: &str) -> Result<PskSet, PskError> {
    toml::parse(text.as_bytes(), Path::new("/nowhere")).map(|(set, _)| set)
}

#[test]
fn reads_key_files_as_editors_write_them() {
    let line = format!("device:{KEY}\n");
    let table = format!("[[psk]]\nidentity = \"device\"\nkey = \"{KEY}\"\n");
    for (text, format) in [(&line, Format::Psktool), (&table, Format::Toml)] {
        let parse = |file: &[u8]| {
            assert!(file.starts_with(&[0xff]) || Format::of_text(file) == format);
            file::parse(file, format, Path::new("/nowhere"), ShortKeys::Refuse).map(|(set, _)| set)
        };
        for written in [
            text.clone(),
            format!("\u{feff}{text}"),
            text.replace('\n', "\r\n"),
            text.replace('\n', "\r"),
            text.trim_end().into(),
        ] {
            let set = parse(written.as_bytes()).unwrap();
            let device = Identity::parse(b"device").unwrap();
            assert_eq!(
                set.get(&device).unwrap().map(|record| record.key_hex().to_string()),
                Some(KEY.into())
            );
        }
        let wide: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let error = parse(&[&[0xff, 0xfe][..], &wide].concat()).err().unwrap();
        assert_eq!(error, PskFault::NotText(NotText::Utf16).into());
    }
    assert!(Format::of_text(&[0; 4]) == Format::Psktool);
}

fn record(identity: &str, byte: u8) -> PskRecord {
    let identity = Identity::parse(identity.as_bytes()).unwrap();
    PskRecord::new(identity, Zeroizing::new(vec![byte; 16]))
}

/// A record with every field set.
fn full(identity: &str) -> PskRecord {
    PskRecord {
        hash: HashAlgorithm::Sha384,
        name: Some("pump 7".into()),
        not_before_s: Some(NEW_YEAR_S),
        not_after_s: Some(NEW_YEAR_S + 1),
        revoked: Some(Revoked { at_s: NEW_YEAR_S, reason: Some("it was \"lost\"".into()) }),
        import: Some(b"\x00context".to_vec()),
        ..record(identity, 1)
    }
}

fn at(unix_s: u64) -> Now {
    Now::from_unix_ms(unix_s * 1000)
}

#[test]
fn toml_is_read() {
    let set = parse(&format!(
        "identity_hint = \"gateway\"\n\
         [[psk]]\nidentity = \"a\"\nkey = \"{KEY}\"\n\
         [[psk]]\nidentity = \"#00ff\"\nkey = \"{KEY}\"\nhash = \"sha384\"\nname = \"pump 7\"\n\
         not_before = 2027-01-01\nnot_after = \"2027-01-01T01:00:01+01:00\"\nimport_context = \"#00\"\n\
         revoked = {{ at = 2027-01-01T00:00:00Z, reason = \"lost\" }}\n\
         [[psk]]\nidentity = \"b\"\nkey = \"00\"\nallow_short = true\n"
    ));
    let set = set.unwrap();
    let mut records = set.iter();
    assert_eq!(set.hint(), Some(&b"gateway"[..]));
    let key: Vec<u8> = (0..16).collect();
    let plain = PskRecord { key: Zeroizing::new(key.clone()), ..record("a", 0) };
    assert!(records.next().unwrap() == &plain);
    let want = PskRecord {
        key: Zeroizing::new(key),
        import: Some(vec![0]),
        revoked: Some(Revoked { at_s: NEW_YEAR_S, reason: Some("lost".into()) }),
        ..full("#00ff")
    };
    assert!(records.next().unwrap() == &want);
    assert!(records.next().unwrap().allow_short);
}

#[test]
fn malformed_toml_is_named_with_its_line() {
    let short = "00".repeat(15);
    let long = "00".repeat(513);
    for (lines, line, want) in [
        ("identity = \"a\"\nkey = ", 3, "line 3: "),
        ("identity = \"a\"\nkey = \"0\"", 3, "the key is not hexadecimal"),
        ("identity = \"a\"\nkey = 7777", 3, "a wrong value, expected a string"),
        ("identity = \"a\"", 1, "one of key and key_file"),
        (&format!("identity = \"a\"\nkey = \"{KEY}\"\nkey_file = \"k\""), 1, "one of key and key_file"),
        ("identity = \"a\"\nkey_file = \"k\"", 3, "key_file /nowhere/k: No such file"),
        (&format!("key = \"{KEY}\""), 1, "missing field `identity`"),
        (&format!("identity = \"\"\nkey = \"{KEY}\""), 2, "the identity has 0 bytes"),
        (&format!("identity = \"#0\"\nkey = \"{KEY}\""), 2, "not hexadecimal"),
        (&format!("identity = \"a\"\nkey = \"{short}\""), 3, "the key has 15 bytes"),
        (&format!("identity = \"a\"\nallow_short = true\nkey = \"{long}\""), 4, "the key has 513 bytes"),
        (&format!("identity = \"a\"\nkey = \"{KEY}\"\nkee = 1"), 4, "unknown field `kee`"),
        (&format!("identity = \"a\"\nkey = \"{KEY}\"\nhash = \"md5\""), 4, "unknown variant `md5`"),
        (&format!("identity = \"a\"\nkey = \"{KEY}\"\nnot_after = \"soon\""), 4, "not_after is not a time"),
        (&format!("identity = \"a\"\nkey = \"{KEY}\"\nnot_after = 7777"), 4, "expected a time"),
        (&format!("identity = \"a\"\nkey = \"{KEY}\"\nnot_after = 12:00:00"), 4, "not_after is not a time"),
        (
            &format!("identity = \"a\"\nkey = \"{KEY}\"\nnot_before = 2027-02-01\nnot_after = 2027-01-01"),
            1,
            "not_after is before not_before",
        ),
        (
            &format!("identity = \"a\"\nkey = \"{KEY}\"\nrevoked = {{ reason = \"x\" }}"),
            4,
            "missing field `at`",
        ),
        (&format!("identity = \"a\"\nkey = \"{KEY}\"\nname = \"\""), 1, "name is empty"),
        (&format!("identity = \"a\"\nkey = \"{KEY}\"\nimport_context = \"#0\""), 4, "import_context"),
        (
            &format!("identity = \"a\"\nkey = \"{short}\"\nallow_short = true\nimport_context = \"\""),
            3,
            "the key has 15 bytes",
        ),
        (
            &format!("identity = \"a\"\nkey = \"{KEY}\"\n[[psk]]\nidentity = \"#61\"\nkey = \"{KEY}\""),
            5,
            "the same identity as on line 2",
        ),
    ] {
        let Err(error) = parse(&format!("[[psk]]\n{lines}\n")) else { panic!("{lines}") };
        let told = error.to_string();
        assert!(told.starts_with(&format!("line {line}: ")) && told.contains(want), "{lines}\n{told}");
        assert!(!told.contains(KEY) && !told.contains("7777") && !told.contains('\n'), "{told}");
    }
    assert!(parse("psks = 1").is_err_and(|e| e.to_string().contains("unknown field `psks`")));
    assert!(toml::parse(b"a\xff", Path::new("")).is_err_and(|e| e.line == Some(1)));
    let huge = vec![b'\n'; usize::try_from(toml::MAX_FILE).unwrap() + 1];
    assert!(toml::parse(&huge, Path::new("")).is_err_and(|e| e.fault == PskFault::TooLarge(16)));
}

/// Each truncated or altered file is either refused with one line, or can be written again.
#[test]
fn refuses_or_preserves_damaged_toml() {
    let mut set = PskSet::default();
    [full("a"), record("b", 2)].into_iter().for_each(|r| set.put(r).unwrap());
    let whole = toml::render("", Path::new(""), &set).unwrap().as_bytes().to_vec();
    let cuts = (0..whole.len()).map(|len| whole[..len].to_vec());
    let changes = (0..whole.len()).flat_map(|at| {
        let whole = &whole;
        b"\n#\"'[={0\xff".iter().map(move |byte| [&whole[..at], &[*byte], &whole[at + 1..]].concat())
    });
    let mut read = 0;
    for file in cuts.chain(changes) {
        match toml::parse(&file, Path::new("")) {
            Err(error) => assert!(!error.to_string().contains(['\n', '\r']), "{error}"),
            Ok((set, _)) => {
                read += 1;
                let text = toml::render("", Path::new(""), &set).unwrap();
                assert!(parse(&text).unwrap().iter().eq(set.iter()), "{}", *text);
            }
        }
    }
    assert!(read > 100, "{read}");
}

#[test]
fn toml_keeps_comments_and_formatting() {
    let before = format!(
        "# Keys of the pumps.\nidentity_hint = \"h\"\n\n[[psk]] # the first\nidentity = \"#61\"   # a\n\
         key = \"{KEY}\"\nname = \"pump 1\" # at the door\n\n[[psk]]\nidentity = \"b\"\nkey = \"{KEY}\"\n"
    );
    let mut set = parse(&before).unwrap();
    let render = |set: &PskSet| toml::render(&before, Path::new(""), set).unwrap();
    assert_eq!(*render(&set), before);
    set.remove(&Identity::parse(b"b").unwrap()).unwrap();
    let mut a = set.record(b"a").unwrap().clone();
    a.not_after_s = Some(NEW_YEAR_S);
    set.put(a).unwrap();
    set.put(record("c", 1)).unwrap();
    let after = format!(
        "# Keys of the pumps.\nidentity_hint = \"h\"\n\n[[psk]] # the first\nidentity = \"a\"   # a\n\
         key = \"{KEY}\"\nname = \"pump 1\" # at the door\nnot_after = 2027-01-01T00:00:00Z\n\n\
         [[psk]]\nidentity = \"c\"\nkey = \"01010101010101010101010101010101\"\n"
    );
    assert_eq!(*render(&set), after);
    let set = PskSet::default();
    assert!(!render(&set).contains("psk"));
}

#[test]
fn every_store_returns_equal_records() {
    let dir = tempfile::tempdir().unwrap();
    let records = [full("a"), full("#00ff"), PskRecord { allow_short: true, ..record("b", 2) }];
    let mut set = PskSet::default();
    set.set_identity_hint(Some(b"#hint".to_vec())).unwrap();
    records.iter().for_each(|r| set.put(r.clone()).unwrap());
    let same = |other: &PskSet| other.iter().eq(records.iter()) && other.hint() == Some(&b"#hint"[..]);

    let text = toml::render("", dir.path(), &set).unwrap();
    assert!(same(&parse(&text).unwrap()), "{}", *text);

    let path = dir.path().join("keys.db");
    let database = SqlitePsks::open_or_create(&path).unwrap();
    database
        .change(|all| {
            all.set_identity_hint(set.hint().map(<[u8]>::to_vec))?;
            records.iter().rev().try_for_each(|r| all.put(r.clone()))?;
            // Replacing records keeps their order.
            records.iter().try_for_each(|r| all.remove(&r.identity).map(drop))?;
            records.iter().try_for_each(|r| all.put(r.clone()))
        })
        .unwrap();
    assert!(same(&SqlitePsks::open(&path).unwrap().keys().unwrap()));
    for file in fs::read_dir(dir.path()).unwrap() {
        let file = file.unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", file.file_name());
    }
}

#[test]
fn a_change_is_atomic() {
    let dir = tempfile::tempdir().unwrap();
    let database = SqlitePsks::open_or_create(&dir.path().join("keys.db")).unwrap();
    let failed: Result<(), PskError> = database.change(|all| {
        all.put(record("a", 1))?;
        all.put(PskRecord { key: Zeroizing::new(vec![]), ..record("b", 1) })
    });
    assert_eq!(failed.unwrap_err().fault, PskFault::KeyLength(0));
    assert!(database.keys().unwrap().is_empty());
}

#[test]
fn other_databases_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    fs::write(path("text"), "no database, but long enough to be looked at as if it were one").unwrap();
    drop(SqlitePsks::open_or_create(&path("newer")).unwrap());
    let connection = rusqlite::Connection::open(path("newer")).unwrap();
    connection.pragma_update(None, "user_version", 2).unwrap();
    let connection = rusqlite::Connection::open(path("other")).unwrap();
    connection.execute_batch("CREATE TABLE t (a)").unwrap();
    for (name, want) in
        [("text", PskFault::Foreign), ("other", PskFault::Foreign), ("newer", PskFault::Newer(2))]
    {
        assert_eq!(SqlitePsks::open(&path(name)).err().unwrap().fault, want, "{name}");
    }
    assert!(SqlitePsks::open(&path("missing")).is_err());
}

#[test]
fn writers_at_once_lose_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("keys.db");
    thread::scope(|scope| {
        for writer in 0..8 {
            let path = &path;
            scope.spawn(move || {
                let database = SqlitePsks::open_or_create(path).unwrap();
                for number in 0..8 {
                    let new = record(&format!("{writer}-{number}"), 1);
                    database.change(|all| lifecycle::add(all, new, false)).unwrap();
                }
            });
        }
    });
    assert_eq!(SqlitePsks::open(&path).unwrap().keys().unwrap().iter().count(), 64);
    assert!(
        !fs::read_dir(dir.path()).unwrap().any(|f| f.unwrap().file_name().to_str().unwrap().starts_with('.'))
    );
}

/// The keys of a server in a file, and the reported errors.
struct Served {
    _dir: TempDir,
    path: PathBuf,
    told: Arc<Mutex<Vec<String>>>,
    file: PskFile,
}

fn served(name: &str, content: &str) -> Served {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(name);
    fs::write(&path, content).unwrap();
    fs::write(dir.path().join("k"), format!("{KEY}\n")).unwrap();
    let told = Arc::new(Mutex::new(vec![]));
    let log = told.clone();
    let report = Box::new(move |e: &PskError| log.lock().unwrap().push(e.to_string()));
    let file = PskFile::open(&path, ShortKeys::Refuse, awslc(), report).unwrap();
    Served { _dir: dir, path, told, file }
}

fn knows(keys: &dyn FindPsk, identity: &str, now: Now) -> bool {
    keys.find(identity.as_bytes(), now).is_some()
}

#[test]
fn a_server_follows_its_file_and_keeps_the_keys_when_it_breaks() {
    let served = served("keys.psk", &format!("a:{KEY}\n"));
    let known = || ["a", "b"].map(|identity| knows(&served.file, identity, at(0)));
    assert_eq!(known(), [true, false]);
    // The new content has the same length and inode, perhaps even the same time stamp.
    fs::write(&served.path, format!("b:{KEY}\n")).unwrap();
    assert_eq!(known(), [false, true]);
    for (broken, told) in [("b:00\n", "line 1: the key has 2 bytes"), ("nothing", "line 1: no colon")] {
        served.told.lock().unwrap().clear();
        fs::write(&served.path, broken.replace("b:00", "b:0001")).unwrap();
        assert_eq!((known(), known()), ([false, true], [false, true]));
        let lines = served.told.lock().unwrap().clone();
        assert!(lines.len() == 1 && lines[0].starts_with(told), "once: {lines:?}");
    }
    fs::remove_file(&served.path).unwrap();
    assert_eq!(known(), [false, true]);
    fs::write(&served.path, format!("a:{KEY}\nb:{KEY}\n")).unwrap();
    assert_eq!(known(), [true, true]);
}

#[test]
fn a_server_follows_the_files_that_its_file_names() {
    let served = served("keys.toml", "[[psk]]\nidentity = \"a\"\nkey_file = \"k\"\n");
    fs::write(served.path.with_file_name("k"), "00").unwrap();
    assert!(knows(&served.file, "a", at(0)), "the old key stays");
    assert_eq!(served.told.lock().unwrap().len(), 1);
    let other = "11".repeat(16);
    fs::write(served.path.with_file_name("k"), &other).unwrap();
    let found = served.file.keys().iter().map(|r| r.key_hex().to_string()).collect::<Vec<_>>();
    assert_eq!(found, [other]);
}

const STARVED: &str = "DUNLIN_TEST_STARVED";

/// The child process of the next test. It may open only a few files, and changes its key file.
fn read_when_files_can_be_opened_again() {
    let served = served("keys.psk", &format!("a:{KEY}\n"));
    fs::write(&served.path, format!("b:{KEY}\n")).unwrap();
    // A later check finds no further change.
    while !Stamp::of(&served.path).unwrap().is_settled() {
        thread::sleep(Duration::from_millis(100));
    }
    let opened: Vec<_> = std::iter::repeat_with(|| File::open("/dev/null")).map_while(Result::ok).collect();
    assert!(knows(&served.file, "a", at(0)), "the old key stays");
    drop(opened);
    // An unreadable file is tried again once a second.
    while !knows(&served.file, "b", at(0)) {
        thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(served.told.lock().unwrap().len(), 1);
    println!("it is read");
}

/// A process with too many open files reads changed keys once it can open files again.
#[test]
fn reads_a_temporarily_unreadable_file_later() {
    if std::env::var_os(STARVED).is_some() {
        return read_when_files_can_be_opened_again();
    }
    let test = "--exact reads_a_temporarily_unreadable_file_later --nocapture";
    let output = Command::new("sh")
        .args(["-c", &format!("ulimit -n 50; exec \"$0\" {test}")])
        .arg(std::env::current_exe().unwrap())
        .env(STARVED, "1")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("it is read"), "{told}{output:?}");
}

#[test]
fn a_database_is_read_live() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("keys.db");
    let writer = SqlitePsks::open_or_create(&path).unwrap();
    let live = LiveSqlitePsks::new(SqlitePsks::open(&path).unwrap(), awslc(), Box::new(|e| panic!("{e}")));
    let timed = PskRecord { not_before_s: Some(10), not_after_s: Some(20), ..record("a", 1) };
    writer.change(|all| lifecycle::add(all, timed, false)).unwrap();
    let known = [9, 10, 19, 20].map(|now| knows(&live, "a", at(now)));
    assert_eq!(known, [false, true, true, false]);
    let revoked = Revoked { at_s: 12, reason: None };
    writer.change(|all| lifecycle::revoke(all, "a", false, &revoked)).unwrap();
    assert!(!knows(&live, "a", at(15)));
}

#[test]
fn a_hint_is_read_live() {
    let text = |hint| format!("identity_hint = \"{hint}\"\n[[psk]]\nidentity = \"a\"\nkey = \"{KEY}\"\n");
    let served = served("keys.toml", &text("here"));
    assert_eq!(served.file.identity_hint(), b"here");
    fs::write(&served.path, text("then")).unwrap();
    assert_eq!(served.file.identity_hint(), b"then");

    let path = served.path.with_file_name("keys.db");
    let writer = SqlitePsks::open_or_create(&path).unwrap();
    let live = LiveSqlitePsks::new(SqlitePsks::open(&path).unwrap(), awslc(), Box::new(|e| panic!("{e}")));
    assert_eq!(live.identity_hint(), b"");
    writer.change(|all| all.set_identity_hint(Some(b"there".to_vec()))).unwrap();
    assert_eq!(live.identity_hint(), b"there");
}

#[test]
fn reports_a_failing_database_and_knows_no_key() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("keys.db");
    let told = Arc::new(Mutex::new(0));
    let count = told.clone();
    let live = LiveSqlitePsks::new(
        SqlitePsks::open_or_create(&path).unwrap(),
        awslc(),
        Box::new(move |_| *count.lock().unwrap() += 1),
    );
    rusqlite::Connection::open(&path).unwrap().execute_batch("DROP TABLE psk").unwrap();
    assert!(!knows(&live, "a", at(0)));
    assert_eq!(*told.lock().unwrap(), 1);
    // For a frozen association that is no answer.
    let found = live.find_for_thaw(b"a", at(0)).map(|key| key.is_some());
    assert_eq!(found, Err(Internal::QuestionFailed.into()));
    assert_eq!(*told.lock().unwrap(), 2);
}

/// RFC 9258: the identity on the wire suffices to find the key and its context.
#[test]
fn imported_keys_are_found() {
    let imported = PskRecord { import: Some(b"both".to_vec()), ..record("device", 1) };
    let other = PskRecord { import: Some(b"else".to_vec()), ..record("device", 1) };
    let text = toml::render("", Path::new(""), &{
        let mut set = PskSet::default();
        set.put(imported.clone()).unwrap();
        set
    });
    let served = served("keys.toml", &text.unwrap());
    let wires = |record: &PskRecord, transport| record.psks(&awslc(), transport).unwrap();
    for transport in [TransportKind::Stream, TransportKind::Datagram] {
        let ours = wires(&imported, transport);
        assert_eq!(ours.len(), 2, "one for each hash");
        for psk in &ours {
            let found = served.file.find(psk.identity(), at(0)).unwrap();
            assert_eq!((found.identity(), found.hash()), (psk.identity(), psk.hash()));
        }
        assert!(wires(&other, transport).iter().all(|psk| served.file.find(psk.identity(), at(0)).is_none()));
    }
    assert!(served.file.find(b"device", at(0)).is_none(), "only imported");
    let wire = wires(&imported, TransportKind::Stream).remove(0);
    for cut in 0..wire.identity().len() {
        assert!(served.file.find(&wire.identity()[..cut], at(0)).is_none());
    }
}

#[test]
fn names_and_short_keys_reach_the_engine() {
    let short = PskRecord { allow_short: true, key: Zeroizing::new(vec![1]), ..record("a", 1) };
    let psks = |record: &PskRecord| record.psks(&awslc(), TransportKind::Stream);
    assert!(psks(&short).is_ok());
    assert!(psks(&PskRecord { allow_short: false, ..short }).is_err());
    let named = PskRecord { name: Some("pump 7".into()), ..record("a", 1) };
    assert_eq!(psks(&named).unwrap().first().and_then(Psk::name), Some("pump 7"));
}
