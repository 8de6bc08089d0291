//! Audits, and copies: exports, backups and the registries restored from them.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod common;

use common::{RegistryDirectory, key};
use dunlin_identity::method::dunlin::Operation;
use dunlin_identity::transparency::{
    Checkpoint, CheckpointError, Hasher, NoteKey, NoteKeyKind, NoteSigner, SignedCheckpoint, root_entry,
};
use dunlin_registry::audit::{Log, audit};
use dunlin_registry::copy::{backup, export, restore};
use dunlin_registry::tile::Tile;
use dunlin_registry::{Registry, RegistryError, Settings};
use rusqlite::Connection;

/// The public key of the registry of a place.
fn log(place: &RegistryDirectory) -> [NoteKey; 1] {
    [signer(place).key().clone()]
}

fn signer(place: &RegistryDirectory) -> NoteSigner {
    let settings = place.settings();
    NoteSigner::new(&place.provider, &settings.origin, NoteKeyKind::Note, settings.key).unwrap()
}

/// Two DIDs with three operations each: the entries 0, 2 and 3, and 5, 7 and 8. The others are roots of the
/// state map.
fn filled(place: &RegistryDirectory) -> Registry {
    let registry = place.open().unwrap();
    for number in [1, 2] {
        let mut holder = place.holder(number);
        place.submit(&registry, (0..3).map(|_| holder.next()).collect());
    }
    registry
}

#[test]
fn a_registry_passes_its_audit_while_it_runs() {
    let place = RegistryDirectory::new();
    let mut published = vec![place.open().unwrap().snapshot().checkpoint().clone()];
    let registry = filled(&place);
    published.push(registry.snapshot().checkpoint().clone());
    let found =
        audit(&place.provider, &place.path("registry"), Log::Signed(&log(&place)), &published).unwrap();
    assert_eq!((&found.checkpoint, found.dids), (registry.snapshot().checkpoint().checkpoint(), 2));
    let stranger =
        NoteSigner::new(&place.provider, "other", NoteKeyKind::Note, key(&place.provider, [1, 2, 3]));
    let refused =
        audit(&place.provider, &place.path("registry"), Log::Signed(&[stranger.unwrap().key().clone()]), &[]);
    let unsigned = CheckpointError::NotTheRegistry("other".to_owned());
    assert_eq!(refused, Err(RegistryError::Checkpoint(unsigned)));
}

/// Every change of the database fails the audit, and every one that matters for new checkpoints keeps the
/// registry from opening.
#[test]
fn a_damaged_database_is_noticed() {
    let place = RegistryDirectory::new();
    drop(filled(&place));
    let changes = [
        ("DELETE FROM entry WHERE number = 8", true),
        ("DELETE FROM entry WHERE number = 2", true),
        ("UPDATE entry SET content = (SELECT content FROM entry WHERE number = 2) WHERE number = 3", true),
        ("UPDATE entry SET content = CAST(content || ' ' AS BLOB) WHERE number = 8", true),
        ("UPDATE entry SET content = X'7b7d' WHERE number = 0", true),
        ("UPDATE entry SET content = (SELECT content FROM entry WHERE number = 4) WHERE number = 1", true),
        ("UPDATE entry SET content = (SELECT content FROM entry WHERE number = 4) WHERE number = 9", true),
        ("UPDATE tile SET hashes = substr(hashes, 1, 288)", true),
        ("UPDATE tile SET hashes = substr(hashes, 1, 287)", true),
        ("UPDATE tile SET hashes = zeroblob(length(hashes))", true),
        ("DELETE FROM tile", true),
        ("UPDATE did SET sequence = 1", true),
        ("UPDATE did SET active = 0", true),
        ("UPDATE did SET latest = document", false),
        ("UPDATE did SET entry = 0", false),
        ("DELETE FROM did WHERE entry = 8", true),
        ("DELETE FROM history WHERE entry = 0", false),
        ("UPDATE history SET entry = 0 WHERE entry = 8", false),
        ("INSERT INTO history VALUES (zeroblob(32), 0, 0)", false),
        (
            "INSERT INTO did SELECT zeroblob(32), did, document, sequence, active, latest, entry, room, time FROM did LIMIT 1",
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

/// An attacker that can write to the store of backups could add tables or triggers that change later writes,
/// although all rows are right.
#[test]
fn a_database_with_other_tables_or_triggers_is_noticed() {
    let place = RegistryDirectory::new();
    drop(filled(&place));
    let log = log(&place);
    let restored = place.path("restored");
    for (number, change) in [
        "CREATE TRIGGER gone AFTER INSERT ON entry BEGIN DELETE FROM entry WHERE number = NEW.number - 50; END",
        "CREATE TRIGGER gone AFTER INSERT ON entry BEGIN DELETE FROM entry WHERE number = NEW.number - 50; END;
         PRAGMA writable_schema = ON; UPDATE sqlite_schema
         SET name = 'sqlite_stat1', sql = replace(sql, 'gone', 'sqlite_stat1') WHERE name = 'gone'",
        "CREATE VIEW stranger AS SELECT * FROM entry",
        "CREATE TABLE stranger (a)",
        "CREATE INDEX stranger ON entry (content)",
        "DROP TABLE tile",
        "DROP TABLE history",
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
    // The tables that SQLite itself may add change nothing.
    Connection::open(place.path("registry")).unwrap().execute_batch("ANALYZE").unwrap();
    assert!(audit(&place.provider, &place.path("registry"), Log::Signed(&log), &[]).is_ok());
    assert!(place.open().is_ok());
}

/// Witnesses have not checked the state map of such a log.
#[test]
fn a_database_of_an_earlier_version_is_refused() {
    let place = RegistryDirectory::new();
    drop(filled(&place));
    let path = place.path("registry");
    let log = log(&place);
    for version in [1, 2] {
        Connection::open(&path).unwrap().pragma_update(None, "user_version", version).unwrap();
        let older = RegistryError::Older(version);
        assert_eq!(place.open().map(drop), Err(older.clone()));
        assert_eq!(audit(&place.provider, &path, Log::Signed(&log), &[]), Err(older.clone()));
        assert_eq!(backup(&path, &place.path("backup")), Err(older.clone()));
        let restored = restore(&place.provider, &path, &place.path("restored"), Log::Signed(&log), &[]);
        assert_eq!(restored, Err(older.clone()));
        assert!(older.to_string().contains(&format!("has version {version}, of an earlier dunlin")));
    }
}

/// A registry with other states than its operations give, with everything else in order.
#[test]
fn a_false_root_of_the_state_map_is_noticed() {
    let place = RegistryDirectory::new();
    let registry = place.open().unwrap();
    registry.submit(place.holder(1).next()).unwrap();
    let hasher = Hasher(place.provider.sha256);
    let first = hasher.leaf(&registry.entries(0, 1).unwrap()[0]);
    let newest = registry.snapshot().checkpoint().checkpoint().clone();
    drop(registry);
    let entry = root_entry(&[7; 32]);
    let last = hasher.leaf(&entry);
    let changed = Checkpoint { root: hasher.node(&first, &last), ..newest };
    let signed = SignedCheckpoint::sign(&place.provider, changed, &[signer(&place)], 0).unwrap();
    let connection = Connection::open(place.path("registry")).unwrap();
    connection.execute("UPDATE entry SET content = ?1 WHERE number = 1", [entry]).unwrap();
    connection.execute("UPDATE tile SET hashes = ?1", [[first, last].as_flattened()]).unwrap();
    let sql = "UPDATE setting SET value = ?1 WHERE name = 'checkpoint'";
    connection.execute(sql, [signed.to_string()]).unwrap();
    let found = audit(&place.provider, &place.path("registry"), Log::Signed(&log(&place)), &[]);
    let why = "the entry 1 is not the root of the state map";
    assert!(matches!(&found, Err(RegistryError::Damaged(text)) if text.contains(why)), "{found:?}");
    assert!(matches!(place.open(), Err(RegistryError::Damaged(_))));
}

#[test]
fn a_database_without_either_signature_of_the_registry_does_not_open() {
    let place = RegistryDirectory::new();
    let text = filled(&place).snapshot().text().to_owned();
    // Three lines, an empty one, and the signatures of the log and of the witness.
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    assert_eq!(lines.len(), 6);
    for signature in [4, 5] {
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
    let place = RegistryDirectory::new();
    let newest = filled(&place).snapshot().checkpoint().checkpoint().clone();
    for change in [Checkpoint { root: [1; 32], ..newest.clone() }, Checkpoint { size: 9, ..newest }] {
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
    let place = RegistryDirectory::new();
    let newest = filled(&place).snapshot().checkpoint().checkpoint().clone();
    let key = place.settings().key;
    let other = NoteSigner::new(&place.provider, "other.example", NoteKeyKind::Note, key).unwrap();
    let renamed = Checkpoint { origin: "other.example".to_owned(), ..newest };
    let signed = SignedCheckpoint::sign(&place.provider, renamed, std::slice::from_ref(&other), 0).unwrap();
    let connection = Connection::open(place.path("registry")).unwrap();
    let sql = "UPDATE setting SET value = ?1 WHERE name = 'checkpoint'";
    connection.execute(sql, [signed.to_string()]).unwrap();
    let found = audit(&place.provider, &place.path("registry"), Log::Signed(&[other.key().clone()]), &[]);
    assert!(
        matches!(&found, Err(RegistryError::Damaged(why)) if why.contains("another registry")),
        "{found:?}"
    );
}

/// A registry that hashes another text of an operation than the canonical one, with everything else in order.
#[test]
fn an_entry_that_is_not_canonical_is_noticed() {
    let place = RegistryDirectory::new();
    let registry = place.open().unwrap();
    let mut holder = place.holder(1);
    let entry = format!("{} ", holder.next().canonical().unwrap());
    registry.submit(Operation::read(entry.as_bytes()).unwrap()).unwrap();
    let last = registry.entries(1, 2).unwrap().swap_remove(0);
    let newest = registry.snapshot().checkpoint().checkpoint().clone();
    drop(registry);
    let hasher = Hasher(place.provider.sha256);
    let [first, last] = [entry.as_bytes(), &last].map(|entry| hasher.leaf(entry));
    let root = hasher.node(&first, &last);
    let changed = Checkpoint { root, ..newest };
    let signed = SignedCheckpoint::sign(&place.provider, changed, &[signer(&place)], 0).unwrap();
    let connection = Connection::open(place.path("registry")).unwrap();
    let sql = "UPDATE entry SET content = ?1 WHERE number = 0";
    connection.execute(sql, [entry.as_bytes()]).unwrap();
    connection.execute("UPDATE tile SET hashes = ?1", [[first, last].as_flattened()]).unwrap();
    let sql = "UPDATE setting SET value = ?1 WHERE name = 'checkpoint'";
    connection.execute(sql, [signed.to_string()]).unwrap();
    let found = audit(&place.provider, &place.path("registry"), Log::Signed(&log(&place)), &[]);
    assert!(matches!(&found, Err(RegistryError::Damaged(why)) if why.contains("canonical")), "{found:?}");
}

#[test]
fn a_checkpoint_of_another_history_is_noticed() {
    let place = RegistryDirectory::new();
    let registry = filled(&place);
    let newest = registry.snapshot().checkpoint().checkpoint().clone();
    for (change, size) in [
        (Checkpoint { root: [1; 32], ..newest.clone() }, 10),
        (Checkpoint { size: 3, ..newest.clone() }, 3),
        (Checkpoint { size: 0, ..newest.clone() }, 0),
        (Checkpoint { size: 11, ..newest }, 11),
    ] {
        let signed = SignedCheckpoint::sign(&place.provider, change, &[signer(&place)], 0).unwrap();
        let found = audit(&place.provider, &place.path("registry"), Log::Signed(&log(&place)), &[signed]);
        assert_eq!(found, Err(RegistryError::OldBackup { published: size, found: 10 }));
    }
}

#[test]
fn a_backup_is_restored_only_with_all_that_was_published() {
    let place = RegistryDirectory::new();
    let registry = filled(&place);
    backup(&place.path("registry"), &place.path("backup")).unwrap();
    let newest = registry.snapshot().checkpoint().clone();
    let from = place.path("backup");
    let to = place.path("restored");
    let log = log(&place);
    registry.submit(place.holder(3).next()).unwrap();
    let newer = registry.snapshot().checkpoint().clone();
    drop(registry);

    let refused = restore(&place.provider, &from, &to, Log::Signed(&log), &[newest.clone(), newer]);
    assert_eq!(refused, Err(RegistryError::OldBackup { published: 12, found: 10 }));
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

/// SQLite moves commits into its main file later. A copy of the files of a running registry has them beside
/// it.
#[test]
fn a_restored_database_has_what_the_audit_has_seen() {
    let place = RegistryDirectory::new();
    let registry = filled(&place);
    for suffix in ["", "-wal"] {
        let [from, to] = ["registry", "copy"].map(|name| place.path(&format!("{name}{suffix}")));
        std::fs::copy(from, to).unwrap();
    }
    let newest = registry.snapshot().checkpoint().clone();
    let from = place.path("copy");
    let to = place.path("restored");
    let log = log(&place);
    let found =
        restore(&place.provider, &from, &to, Log::Signed(&log), std::slice::from_ref(&newest)).unwrap();
    let restored = Registry::open(&to, &place.settings()).unwrap();
    assert_eq!(restored.snapshot().checkpoint(), &newest);
    assert_eq!(found.checkpoint, *newest.checkpoint());
}

#[test]
fn an_export_has_every_tile_and_grows() {
    let place = RegistryDirectory::new();
    let registry = place.open().unwrap();
    let directory = place.path("export");
    let read = |name: String| std::fs::read(directory.join(name)).unwrap();
    let mut size = 0;
    for dids in [0..0, 0..252, 252..300] {
        place.submit(&registry, dids.map(|number| place.holder(number).next()).collect());
        size = registry.snapshot().size();
        assert_eq!(export(&place.path("registry"), &directory), Ok(size));
        assert_eq!(read("checkpoint".to_owned()), registry.snapshot().text().as_bytes());
        for tile in Tile::all(size) {
            assert_eq!(Some(read(tile.to_string())), registry.tile(&tile).unwrap(), "{tile}");
        }
    }
    // A file that a power failure has emptied is written again.
    let tile = Tile::all(size).next().unwrap();
    std::fs::write(directory.join(tile.to_string()), "").unwrap();
    assert_eq!(export(&place.path("registry"), &directory), Ok(size));
    assert_eq!(Some(read(tile.to_string())), registry.tile(&tile).unwrap());
}
