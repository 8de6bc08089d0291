//! Audits, and copies: exports, backups and what can be restored from them.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use common::{Place, key};
use dunlin_identity::merkle::Hasher;
use dunlin_identity::method::dunlin::Operation;
use dunlin_identity::registry::checkpoint::{Checkpoint, CheckpointError, SignedCheckpoint};
use dunlin_identity::registry::note::{NoteKey, NoteKeyKind, NoteSigner};
use dunlin_registry::audit::{Log, audit};
use dunlin_registry::copy::{backup, export, restore};
use dunlin_registry::tile::Tile;
use dunlin_registry::{Registry, RegistryError, Settings};
use rusqlite::Connection;

/// The public key of the registry of a place.
fn log(place: &Place) -> NoteKey {
    signer(place).key().clone()
}

fn signer(place: &Place) -> NoteSigner {
    let settings = place.settings();
    NoteSigner::new(&place.provider, &settings.origin, NoteKeyKind::Note, settings.key).unwrap()
}

/// Two DIDs with three operations each.
fn filled(place: &Place) -> Registry {
    let registry = place.open().unwrap();
    for number in [1, 2] {
        let mut holder = place.holder(number);
        place.submit(&registry, (0..3).map(|_| holder.next()).collect());
    }
    registry
}

#[test]
fn a_registry_passes_its_audit_while_it_runs() {
    let place = Place::new();
    let mut published = vec![place.open().unwrap().snapshot().checkpoint().clone()];
    let registry = filled(&place);
    published.push(registry.snapshot().checkpoint().clone());
    let found =
        audit(&place.provider, &place.path("registry"), Log::Signed(&log(&place)), &published).unwrap();
    assert_eq!((&found.checkpoint, found.dids), (registry.snapshot().checkpoint().checkpoint(), 2));
    let stranger =
        NoteSigner::new(&place.provider, "other", NoteKeyKind::Note, key(&place.provider, [1, 2, 3]));
    let refused = audit(&place.provider, &place.path("registry"), Log::Signed(stranger.unwrap().key()), &[]);
    let unsigned = CheckpointError::NotTheRegistry("other".to_owned());
    assert_eq!(refused, Err(RegistryError::Checkpoint(unsigned)));
}

/// Every change of the database fails the audit, and every one that matters for new checkpoints keeps the registry from opening.
#[test]
fn a_damaged_database_is_noticed() {
    let place = Place::new();
    drop(filled(&place));
    let changes = [
        ("DELETE FROM entry WHERE number = 5", true),
        ("DELETE FROM entry WHERE number = 2", true),
        (
            "UPDATE entry SET operation = (SELECT operation FROM entry WHERE number = 1) WHERE number = 2",
            true,
        ),
        ("UPDATE entry SET operation = CAST(operation || ' ' AS BLOB) WHERE number = 5", true),
        ("UPDATE entry SET operation = X'7b7d' WHERE number = 0", true),
        ("UPDATE tile SET hashes = substr(hashes, 1, 160)", true),
        ("UPDATE tile SET hashes = substr(hashes, 1, 159)", true),
        ("UPDATE tile SET hashes = zeroblob(length(hashes))", true),
        ("DELETE FROM tile", true),
        ("UPDATE did SET sequence = 1", true),
        ("UPDATE did SET active = 0", true),
        ("UPDATE did SET latest = document", false),
        ("UPDATE did SET entry = 0", false),
        ("DELETE FROM did WHERE entry = 5", true),
        ("DELETE FROM history WHERE entry = 0", false),
        ("UPDATE history SET entry = 0 WHERE entry = 5", false),
        ("INSERT INTO history VALUES (zeroblob(32), 0, 0)", false),
        (
            "INSERT INTO did SELECT zeroblob(32), did, document, sequence, active, latest, entry FROM did LIMIT 1",
            true,
        ),
        ("DELETE FROM document", false),
        ("UPDATE document SET text = CAST(replace(CAST(text AS TEXT), 'did/v1', 'did/v2') AS BLOB)", false),
        ("UPDATE setting SET value = replace(value, '\u{2014}', '-') WHERE name = 'checkpoint'", true),
        ("DELETE FROM setting WHERE name = 'checkpoint'", true),
    ];
    for (number, (change, refuses)) in changes.into_iter().enumerate() {
        let name = format!("copy-{number}");
        backup(&place.path("registry"), &place.path(&name)).unwrap();
        assert!(audit(&place.provider, &place.path(&name), Log::Signed(&log(&place)), &[]).is_ok());
        let connection = Connection::open(place.path(&name)).unwrap();
        assert!(connection.execute(change, []).unwrap() > 0, "{change}");
        drop(connection);
        let found = audit(&place.provider, &place.path(&name), Log::Signed(&log(&place)), &[]);
        assert!(found.is_err(), "{change}");
        let opened = Registry::open(&place.path(&name), &place.settings());
        assert_eq!(opened.is_err(), refuses, "{change}");
    }
}

/// Who can write to the store of backups could add what changes later writes, although all rows are right.
#[test]
fn a_database_with_other_tables_or_triggers_is_noticed() {
    let place = Place::new();
    drop(filled(&place));
    let (log, restored) = (log(&place), place.path("restored"));
    for (number, change) in [
        "CREATE TRIGGER gone AFTER INSERT ON entry BEGIN DELETE FROM entry WHERE number = NEW.number - 50; END",
        "CREATE TRIGGER gone AFTER INSERT ON entry BEGIN DELETE FROM entry WHERE number = NEW.number - 50; END;
         PRAGMA writable_schema = ON; UPDATE sqlite_schema
         SET name = 'sqlite_stat1', sql = replace(sql, 'gone', 'sqlite_stat1') WHERE name = 'gone'",
        "CREATE VIEW stranger AS SELECT * FROM entry",
        "CREATE TABLE stranger (a)",
        "CREATE INDEX stranger ON entry (operation)",
        "DROP TABLE tile",
        "DROP TABLE history",
        "PRAGMA user_version = 1",
        "ALTER TABLE did ADD COLUMN a TEXT",
    ]
    .into_iter()
    .enumerate()
    {
        let copy = place.path(&format!("copy-{number}"));
        backup(&place.path("registry"), &copy).unwrap();
        Connection::open(&copy).unwrap().execute_batch(change).unwrap();
        let damaged = |found: Option<RegistryError>| {
            let why = "is not that of a registry";
            assert!(matches!(&found, Some(RegistryError::Damaged(text)) if text.contains(why)), "{found:?}");
        };
        damaged(audit(&place.provider, &copy, Log::Signed(&log), &[]).err());
        damaged(restore(&place.provider, &copy, &restored, Log::Signed(&log), &[]).err());
        damaged(Registry::open(&copy, &place.settings()).err());
        assert!(!restored.exists(), "{change}");
    }
    // What SQLite itself may add changes nothing.
    Connection::open(place.path("registry")).unwrap().execute_batch("ANALYZE").unwrap();
    assert!(audit(&place.provider, &place.path("registry"), Log::Signed(&log), &[]).is_ok());
    assert!(place.open().is_ok());
}

/// Version 1 had no histories.
#[test]
fn a_database_of_version_1_passes_its_audit_and_gets_histories() {
    let place = Place::new();
    let registry = filled(&place);
    let mut holder = place.holder(1);
    holder.next();
    let did = holder.state().did();
    let history = registry.history(did, 0).unwrap();
    assert_eq!(history.iter().map(|entry| entry.number).collect::<Vec<_>>(), [0, 1, 2]);
    drop(registry);
    let [old, copy, restored] = ["registry", "copy", "restored"].map(|name| place.path(name));
    let downgrade = "DROP TABLE history; PRAGMA user_version = 1";
    Connection::open(&old).unwrap().execute_batch(downgrade).unwrap();
    backup(&old, &copy).unwrap();
    restore(&place.provider, &copy, &restored, Log::Signed(&log(&place)), &[]).unwrap();
    for path in [old, restored] {
        assert!(audit(&place.provider, &path, Log::Signed(&log(&place)), &[]).is_ok());
        assert_eq!(Registry::open(&path, &place.settings()).unwrap().history(did, 0).unwrap(), history);
        let version =
            Connection::open(&path).unwrap().pragma_query_value(None, "user_version", |row| row.get(0));
        assert_eq!(version, Ok(2));
        assert!(audit(&place.provider, &path, Log::Signed(&log(&place)), &[]).is_ok());
    }
}

#[test]
fn a_database_without_either_signature_of_the_registry_does_not_open() {
    let place = Place::new();
    let text = filled(&place).snapshot().text().to_owned();
    // Four lines, an empty one, and the signatures of the log and of the witness.
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    assert_eq!(lines.len(), 7);
    for signature in [5, 6] {
        let kept = lines.iter().enumerate().filter(|(number, _)| *number != signature);
        let kept: String = kept.map(|(_, line)| *line).collect();
        let connection = Connection::open(place.path("registry")).unwrap();
        connection.execute("UPDATE setting SET value = ?1 WHERE name = 'checkpoint'", [kept]).unwrap();
        let opened = Registry::open(&place.path("registry"), &place.settings());
        assert!(matches!(opened, Err(RegistryError::Damaged(_))), "{opened:?}");
    }
}

#[test]
fn a_signed_checkpoint_that_is_not_that_of_the_database_is_noticed() {
    let place = Place::new();
    let newest = filled(&place).snapshot().checkpoint().checkpoint().clone();
    for change in [
        Checkpoint { root: [1; 32], ..newest.clone() },
        Checkpoint { map: [1; 32], ..newest.clone() },
        Checkpoint { size: 5, ..newest },
    ] {
        let Settings { provider, origin, key, .. } = place.settings();
        let witness = NoteSigner::new(&provider, &origin, NoteKeyKind::Cosignature, key).unwrap();
        let signed = SignedCheckpoint::sign(&provider, change, &[signer(&place), witness], 0).unwrap();
        let connection = Connection::open(place.path("registry")).unwrap();
        let sql = "UPDATE setting SET value = ?1 WHERE name = 'checkpoint'";
        connection.execute(sql, [signed.to_string()]).unwrap();
        let found = audit(&place.provider, &place.path("registry"), Log::Signed(&log(&place)), &[]);
        assert!(matches!(found, Err(RegistryError::Damaged(_))), "{found:?}");
        let opened = Registry::open(&place.path("registry"), &place.settings());
        assert!(matches!(opened, Err(RegistryError::Damaged(_))), "{opened:?}");
    }
}

#[test]
fn the_log_of_another_registry_is_noticed() {
    let place = Place::new();
    let newest = filled(&place).snapshot().checkpoint().checkpoint().clone();
    let key = place.settings().key;
    let other = NoteSigner::new(&place.provider, "other.example", NoteKeyKind::Note, key).unwrap();
    let renamed = Checkpoint { origin: "other.example".to_owned(), ..newest };
    let signed = SignedCheckpoint::sign(&place.provider, renamed, std::slice::from_ref(&other), 0).unwrap();
    let connection = Connection::open(place.path("registry")).unwrap();
    let sql = "UPDATE setting SET value = ?1 WHERE name = 'checkpoint'";
    connection.execute(sql, [signed.to_string()]).unwrap();
    let found = audit(&place.provider, &place.path("registry"), Log::Signed(other.key()), &[]);
    assert!(
        matches!(&found, Err(RegistryError::Damaged(why)) if why.contains("another registry")),
        "{found:?}"
    );
}

/// A registry that hashes another text of an operation than the canonical one, with everything else in order.
#[test]
fn an_entry_that_is_not_canonical_is_noticed() {
    let place = Place::new();
    let (registry, mut holder) = (place.open().unwrap(), place.holder(1));
    let entry = format!("{} ", holder.next().canonical().unwrap());
    registry.submit(Operation::read(entry.as_bytes()).unwrap()).unwrap();
    let newest = registry.snapshot().checkpoint().checkpoint().clone();
    drop(registry);
    let root = Hasher(place.provider.sha256).leaf(entry.as_bytes());
    let changed = Checkpoint { root, ..newest };
    let signed = SignedCheckpoint::sign(&place.provider, changed, &[signer(&place)], 0).unwrap();
    let connection = Connection::open(place.path("registry")).unwrap();
    connection.execute("UPDATE entry SET operation = ?1", [entry.as_bytes()]).unwrap();
    connection.execute("UPDATE tile SET hashes = ?1", [root]).unwrap();
    let sql = "UPDATE setting SET value = ?1 WHERE name = 'checkpoint'";
    connection.execute(sql, [signed.to_string()]).unwrap();
    let found = audit(&place.provider, &place.path("registry"), Log::Signed(&log(&place)), &[]);
    assert!(matches!(&found, Err(RegistryError::Damaged(why)) if why.contains("canonical")), "{found:?}");
}

#[test]
fn a_checkpoint_of_another_history_is_noticed() {
    let place = Place::new();
    let registry = filled(&place);
    let newest = registry.snapshot().checkpoint().checkpoint().clone();
    for (change, size) in [
        (Checkpoint { root: [1; 32], ..newest.clone() }, 6),
        (Checkpoint { map: [1; 32], ..newest.clone() }, 6),
        (Checkpoint { size: 3, ..newest.clone() }, 3),
        (Checkpoint { size: 0, ..newest.clone() }, 0),
        (Checkpoint { size: 7, ..newest }, 7),
    ] {
        let signed = SignedCheckpoint::sign(&place.provider, change, &[signer(&place)], 0).unwrap();
        let found = audit(&place.provider, &place.path("registry"), Log::Signed(&log(&place)), &[signed]);
        assert_eq!(found, Err(RegistryError::OldBackup { published: size, found: 6 }));
    }
}

#[test]
fn a_backup_is_restored_only_with_all_that_was_published() {
    let place = Place::new();
    let registry = filled(&place);
    backup(&place.path("registry"), &place.path("backup")).unwrap();
    let newest = registry.snapshot().checkpoint().clone();
    let (from, to, log) = (place.path("backup"), place.path("restored"), log(&place));
    registry.submit(place.holder(3).next()).unwrap();
    let newer = registry.snapshot().checkpoint().clone();
    drop(registry);

    let refused = restore(&place.provider, &from, &to, Log::Signed(&log), &[newest.clone(), newer]);
    assert_eq!(refused, Err(RegistryError::OldBackup { published: 7, found: 6 }));
    assert!(!to.exists());
    restore(&place.provider, &from, &to, Log::Signed(&log), std::slice::from_ref(&newest)).unwrap();
    let restored = Registry::open(&to, &place.settings()).unwrap();
    assert_eq!(restored.snapshot().checkpoint(), &newest);
    assert!(restored.submit(place.holder(3).next()).is_ok());
    // An existing database is never replaced, nor does the journal of an earlier one get into another.
    for suffix in ["-wal", "-shm", "-journal"] {
        std::fs::write(place.path(&format!("third{suffix}")), "").unwrap();
        let refused =
            restore(&place.provider, &from, &place.path("third"), Log::Signed(&log), &[]).unwrap_err();
        assert!(refused.to_string().contains("an earlier database has left it"), "{refused}");
        assert!(!place.path("third").exists());
        std::fs::remove_file(place.path(&format!("third{suffix}"))).unwrap();
    }
    assert!(restore(&place.provider, &from, &to, Log::Signed(&log), &[]).is_err());
    assert!(backup(&to, &from).is_err());
}

/// SQLite moves commits into its main file later. A copy of the files of a running registry has them beside it.
#[test]
fn a_restored_database_has_what_the_audit_has_seen() {
    let place = Place::new();
    let registry = filled(&place);
    for suffix in ["", "-wal"] {
        let [from, to] = ["registry", "copy"].map(|name| place.path(&format!("{name}{suffix}")));
        std::fs::copy(from, to).unwrap();
    }
    let newest = registry.snapshot().checkpoint().clone();
    let (from, to, log) = (place.path("copy"), place.path("restored"), log(&place));
    let found =
        restore(&place.provider, &from, &to, Log::Signed(&log), std::slice::from_ref(&newest)).unwrap();
    let restored = Registry::open(&to, &place.settings()).unwrap();
    assert_eq!(restored.snapshot().checkpoint(), &newest);
    assert_eq!(found.checkpoint, *newest.checkpoint());
}

#[test]
fn an_export_has_every_tile_and_grows() {
    let place = Place::new();
    let (registry, directory) = (place.open().unwrap(), place.path("export"));
    let read = |name: String| std::fs::read(directory.join(name)).unwrap();
    for size in [0, 255, 300] {
        let begin = registry.snapshot().size();
        place.submit(&registry, (begin..size).map(|number| place.holder(number).next()).collect());
        assert_eq!(export(&place.path("registry"), &directory), Ok(size));
        assert_eq!(read("checkpoint".to_owned()), registry.snapshot().text().as_bytes());
        for tile in Tile::all(size) {
            assert_eq!(Some(read(tile.to_string())), registry.tile(&tile).unwrap(), "{tile}");
        }
    }
    // A file that a power failure has emptied is written again.
    let tile = Tile::all(300).next().unwrap();
    std::fs::write(directory.join(tile.to_string()), "").unwrap();
    assert_eq!(export(&place.path("registry"), &directory), Ok(300));
    assert_eq!(Some(read(tile.to_string())), registry.tile(&tile).unwrap());
}
