//! A registry: what it accepts, proves and survives.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may fail")]

mod common;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};

use common::{NOW, ORIGIN, RegistryDirectory, key};
use dunlin_identity::Sha256Hash;
use dunlin_identity::key::PublicKey;
use dunlin_identity::method::dunlin::{MAX_OPERATION, Operation, OperationError, first_document};
use dunlin_identity::transparency::{
    DEFAULT_CHECKPOINT_AGE, Hasher, LogEntry, MAX_WITNESS_CLOCK_SKEW, MapError, MerkleError, Nodes,
    RegistryTrust, Signed, Staple, StapleError, StateProof, Tree, map_key, root_entry,
};
use dunlin_pki::{KeyPair, KeyType};
use dunlin_registry::audit::{Log, audit};
use dunlin_registry::tile::{TILE_WIDTH, Tile, TileKind};
use dunlin_registry::{MAX_CREATIONS, MAX_QUEUE, Receipt, Registry, RegistryError, Settings};
use rusqlite::Connection;

fn trust(registry: &Registry) -> RegistryTrust {
    let [log, witness] = registry.keys().clone();
    RegistryTrust::new(log, vec![witness]).unwrap()
}

#[test]
fn a_did_is_created_updated_deactivated_and_proven_at_each_step() {
    let place = RegistryDirectory::new();
    let registry = place.open().unwrap();
    let mut holder = place.holder(1);
    let mut newest = registry.snapshot();
    for sequence in 0..3 {
        assert_eq!(registry.submit(holder.next()), Ok(Receipt { number: 2 * sequence }));
        let resolution = registry.resolve(holder.state().did()).unwrap();
        let staple = resolution.staple().unwrap();
        let did = holder.state().did();
        let accepted = Some(newest.checkpoint());
        let resolved = staple.verify(&place.provider, did, &trust(&registry), accepted, NOW).unwrap();
        assert_eq!((&resolved.document, resolved.sequence), (holder.state().document(), sequence));
        assert_eq!(resolved.checkpoint.fresh_until_s, NOW + DEFAULT_CHECKPOINT_AGE);
        newest = registry.snapshot();
        assert_eq!(newest.size(), 2 * (sequence + 1));
    }
    registry.submit(holder.deactivate()).unwrap();
    let did = holder.state().did();
    let staple = registry.resolve(did).unwrap().staple().unwrap();
    let refused = staple.verify(&place.provider, did, &trust(&registry), Some(newest.checkpoint()), NOW);
    assert_eq!(refused, Err(StapleError::Deactivated(did.clone())));
}

#[test]
fn the_absence_of_a_did_is_proven() {
    let place = RegistryDirectory::new();
    let registry = place.open().unwrap();
    place.submit(&registry, (0..20).map(|n| place.holder(n).next()).collect());
    let mut unknown = place.holder(20);
    unknown.next();
    let did = unknown.state().did();
    let resolution = registry.resolve(did).unwrap();
    assert!(resolution.state.is_none() && resolution.staple().is_none());
    let key = map_key(&place.provider, did).unwrap();
    let stated = resolution.snapshot.checkpoint().checkpoint();
    let proof = resolution.proof.verify_absence(Hasher(place.provider.sha256), &key, stated);
    assert_eq!(proof, Ok(()));
}

#[test]
fn invalid_operations_are_refused_and_leave_nothing() {
    let place = RegistryDirectory::new();
    let registry = place.open().unwrap();
    let mut holder = place.holder(1);
    let create = holder.next();
    let update = holder.next();
    let later = holder.next();
    // An update before the creation, and one after a gap.
    let refused = |operation: &Operation| match registry.submit(operation.clone()) {
        Err(RegistryError::Operation(error)) => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&update), OperationError::Creation);
    assert_eq!(registry.snapshot().size(), 0);
    registry.submit(create.clone()).unwrap();
    assert_eq!(refused(&later), OperationError::Sequence { expected: 1, found: 2 });
    registry.submit(update).unwrap();
    assert_eq!(refused(&create), OperationError::Creation);

    let settings = place.settings();
    let public = PublicKey::from_spki(settings.key.public_key()).unwrap();
    let hash = |bytes: &[u8]| Sha256Hash::of(&place.provider, bytes).unwrap();
    let document = first_document(&place.provider, "other.example", &public, hash(b"1"), hash(b"2")).unwrap();
    let other = Operation::create(&place.provider, &*settings.key, &document).unwrap();
    assert_eq!(refused(&other), OperationError::OtherRegistry("other.example".to_owned()));
    assert_eq!(registry.snapshot().size(), 4);
}

#[test]
fn a_repeated_operation_is_acknowledged_again() {
    let place = RegistryDirectory::new();
    let registry = place.open().unwrap();
    let mut holder = place.holder(1);
    let create = holder.next();
    let update = holder.next();
    place.submit(&registry, vec![place.holder(2).next(), create.clone()]);
    let first = registry.submit(create.clone()).unwrap();
    assert_eq!((registry.submit(create), registry.snapshot().size()), (Ok(first), 4));
    assert_eq!(registry.submit(update.clone()), Ok(Receipt { number: 4 }));
    drop(registry);
    let registry = place.open().unwrap();
    assert_eq!((registry.submit(update), registry.snapshot().size()), (Ok(Receipt { number: 4 }), 6));
}

/// ECDSA allows another signature over the same operation. The receipt's proof is of the bytes in the log, so
/// no client gets it for other bytes.
#[test]
fn an_operation_with_another_signature_is_not_acknowledged() {
    let place = RegistryDirectory::new();
    let provider = dunlin_awslc::provider();
    let registry = place.open().unwrap();
    let [own, next, recovery] = [(); 3].map(|()| KeyPair::generate(KeyType::P256).unwrap());
    let public = |pair: &KeyPair| PublicKey::from_spki(pair.public_key()).unwrap();
    let hash = |pair| Sha256Hash::of_key(&provider, &public(pair)).unwrap();
    let document = first_document(&provider, ORIGIN, &public(&own), hash(&next), hash(&recovery)).unwrap();
    let signer = own.signing_key(&provider).unwrap();
    let [first, second] = [(); 2].map(|()| Operation::create(&provider, &*signer, &document).unwrap());
    assert_ne!(first.canonical(), second.canonical());
    place.submit(&registry, vec![place.holder(1).next()]);
    assert_eq!(registry.submit(first.clone()), Ok(Receipt { number: 2 }));
    assert_eq!(registry.submit(second), Err(RegistryError::OtherSignature(2)));
    assert_eq!((registry.submit(first), registry.snapshot().size()), (Ok(Receipt { number: 2 }), 4));
}

/// Submits an operation in whose answer the writer waits, until the returned channel says that it may go on.
fn stop_the_writer(registry: &Registry, operation: Operation) -> Sender<()> {
    let (release, released) = channel::<()>();
    let (began, begun) = channel();
    let waits = move |_| {
        began.send(()).unwrap();
        // It ends also when the test has failed.
        let _ = released.recv();
    };
    registry.submit_then(operation, waits).unwrap();
    begun.recv().unwrap();
    release
}

#[test]
fn waiting_operations_share_a_transaction() {
    let place = RegistryDirectory::new();
    let registry = Arc::new(place.open().unwrap());
    // The writer waits in the answer to the first operation, while the others arrive.
    let release = stop_the_writer(&registry, place.holder(0).next());
    let (answer, answered) = channel();
    for number in 1..20 {
        let inner = Arc::clone(&registry);
        let answer = answer.clone();
        let then = move |result: Result<Receipt, RegistryError>| {
            let size = inner.snapshot().size();
            // The writer must not be the last that has the registry.
            drop(inner);
            answer.send((result.unwrap().number, size)).unwrap();
        };
        registry.submit_then(place.holder(number).next(), then).unwrap();
    }
    release.send(()).unwrap();
    drop(answer);
    let answers: Vec<_> = answered.iter().collect();
    // The first operation and its root, the others, and one root after them.
    assert_eq!(answers, (2..21).map(|number| (number, 22)).collect::<Vec<_>>());
}

/// Strangers' creations leave places for the holders of DIDs.
#[test]
fn a_full_queue_refuses_instead_of_waiting() {
    let place = RegistryDirectory::new();
    let registry = place.open().unwrap();
    let mut holder = place.holder(0);
    registry.submit(holder.next()).unwrap();
    let creation = place.holder(1).next();
    let release = stop_the_writer(&registry, creation.clone());
    let (answer, answered) = channel();
    let submit = |operation: &Operation| {
        let answer = answer.clone();
        registry.submit_then(operation.clone(), move |result| answer.send(result).unwrap())
    };
    let places = std::iter::repeat_with(|| submit(&creation)).take_while(Result::is_ok).count();
    // The writer has the answer to the first creation.
    assert!((MAX_CREATIONS - 1..=MAX_CREATIONS).contains(&places), "{places}");
    let update = holder.next();
    for _ in places..MAX_QUEUE {
        submit(&update).unwrap();
    }
    for operation in [&creation, &update] {
        assert_eq!(submit(operation), Err(RegistryError::Busy));
    }
    drop((release, answer));
    assert_eq!(answered.iter().filter(Result::is_ok).count(), MAX_QUEUE);
    assert!(registry.submit(creation).is_ok());
}

/// The lock is beside the file: a process that reaches the file by another mount does not see it. Removing it
/// has the same effect.
#[test]
fn two_processes_that_write_sign_one_history() {
    let place = RegistryDirectory::new();
    let [path, lock, link] = ["registry", "registry-lock", "link"].map(|name| place.path(name));
    let first = place.open().unwrap();
    // Another name of the file has the same lock.
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let in_use = RegistryError::InUse(path.display().to_string());
    assert_eq!(Registry::open(&link, &place.settings()).map(drop), Err(in_use.clone()));
    std::fs::remove_file(lock).unwrap();
    let second = place.open().unwrap();
    let mut published = Vec::new();
    for (number, registry, other) in [(0, &first, &second), (4, &second, &first)] {
        assert_eq!(registry.submit(place.holder(number).next()), Ok(Receipt { number }));
        published.push(registry.snapshot().checkpoint().clone());
        // The other has not seen this entry. It reads the database again, and goes on.
        let operation = place.holder(number + 1).next();
        assert_eq!(other.submit(operation.clone()), Err(in_use.clone()));
        assert_eq!(other.submit(operation), Ok(Receipt { number: number + 2 }));
        published.push(other.snapshot().checkpoint().clone());
        // Its first attempt makes up for the other's entry.
        assert_eq!(registry.submit(place.holder(number).next()), Err(in_use.clone()));
    }
    let [log, _] = first.keys();
    let found = audit(&place.provider, &path, Log::Signed(std::slice::from_ref(log)), &published).unwrap();
    assert_eq!((found.checkpoint.size, found.dids), (8, 4));
}

#[test]
fn an_entry_bundle_is_read_in_pieces() {
    let place = RegistryDirectory::new();
    let registry = Arc::new(place.open().unwrap());
    place.submit(&registry, (0..300).map(|number| place.holder(number).next()).collect());
    let size = registry.snapshot().size();
    for tile in Tile::all(size).filter(|tile| tile.kind == TileKind::Entries) {
        let whole = registry.tile(&tile).unwrap().unwrap();
        let mut bundle = registry.bundle(&tile).unwrap().unwrap();
        assert_eq!(bundle.remaining(), whole.len() as u64);
        let pieces: Vec<_> = bundle.by_ref().collect::<Result<_, _>>().unwrap();
        assert_eq!(pieces.concat(), whole);
        assert_eq!(bundle.remaining(), 0);
        let longest = pieces.iter().map(Vec::len).max().unwrap();
        assert!(longest <= 4 * (MAX_OPERATION + 2) && longest < whole.len() / 10, "{longest}");
    }
    let too_long = Tile::new(TileKind::Entries, 1, u16::try_from(size - 255).unwrap()).unwrap();
    assert!(registry.bundle(&too_long).unwrap().is_none());
    let hashes = Tile::new(TileKind::Hashes(0), 0, 256).unwrap();
    assert!(registry.bundle(&hashes).unwrap().is_none());
    // An entry that the log no longer has ends the bundle with an error.
    let mut bundle = registry.bundle(&Tile::new(TileKind::Entries, 0, 256).unwrap()).unwrap().unwrap();
    Connection::open(place.path("registry"))
        .unwrap()
        .execute("DELETE FROM entry WHERE number = 5", [])
        .unwrap();
    assert!(bundle.next().unwrap().is_ok());
    assert!(matches!(bundle.next(), Some(Err(RegistryError::Damaged(_)))));
    assert!(bundle.next().is_none());
}

#[test]
fn a_reopened_registry_goes_on() {
    let place = RegistryDirectory::new();
    let mut holder = place.holder(1);
    let before = {
        let registry = place.open().unwrap();
        registry.submit(holder.next()).unwrap();
        registry.snapshot()
    };
    let registry = place.open().unwrap();
    assert_eq!(registry.snapshot().text(), before.text());
    assert_eq!(
        place.open().map(drop),
        Err(RegistryError::InUse(place.path("registry").display().to_string()))
    );
    assert_eq!(registry.submit(holder.next()), Ok(Receipt { number: 2 }));
    drop(registry);

    let other = Settings { key: key(&place.provider, [9, 9, 9]), ..place.settings() };
    let refused = Registry::open(&place.path("registry"), &other).unwrap_err();
    assert!(matches!(&refused, RegistryError::OtherKey { found, .. } if found.starts_with(ORIGIN)));
    let other = Settings { origin: "other.example".to_owned(), ..place.settings() };
    assert!(matches!(Registry::open(&place.path("registry"), &other), Err(RegistryError::OtherKey { .. })));
    // A missing file is not an empty registry.
    assert!(Registry::open(&place.path("missing"), &place.settings()).is_err());
    assert!(matches!(
        Registry::create(&place.path("registry"), &place.settings()),
        Err(RegistryError::File { .. })
    ));
    std::fs::write(
        place.path("text"),
        "something else, long enough to be looked at as a database ".repeat(20),
    )
    .unwrap();
    let refused = Registry::open(&place.path("text"), &place.settings());
    assert!(matches!(refused, Err(RegistryError::Foreign(_))));
}

#[test]
fn the_checkpoint_stays_fresh_and_its_time_never_goes_back() {
    let place = RegistryDirectory::new();
    let times = |registry: &Registry| {
        let snapshot = registry.snapshot();
        let [_, witness] = registry.keys();
        snapshot.checkpoint().note().signed_by(&place.provider, witness).unwrap()
    };
    let mut holder = place.holder(1);
    let unknown = Registry::open(&place.path("registry"), &place.settings()).unwrap();
    unknown.submit(holder.next()).unwrap();
    assert_eq!(times(&unknown), Signed::At(NOW));
    drop(unknown);

    // A refused operation is answered after the writer has looked at the clock.
    let refused = |registry: &Registry| {
        let mut stranger = place.holder(2);
        stranger.next();
        assert!(registry.submit(stranger.next()).is_err());
    };
    let hour = 60 * 60;
    place.clock.store(NOW + hour - 1, Ordering::Relaxed);
    let registry = place.open().unwrap();
    refused(&registry);
    assert_eq!(times(&registry), Signed::At(NOW));
    place.clock.store(NOW + hour, Ordering::Relaxed);
    refused(&registry);
    assert_eq!((times(&registry), registry.snapshot().size()), (Signed::At(NOW + hour), 2));
    place.clock.store(NOW + hour - MAX_WITNESS_CLOCK_SKEW, Ordering::Relaxed);
    registry.submit(holder.next()).unwrap();
    assert_eq!((times(&registry), registry.snapshot().size()), (Signed::At(NOW + hour), 4));
    // The clock was wrong, and no verifier has accepted that.
    place.clock.store(NOW + hour - MAX_WITNESS_CLOCK_SKEW - 1, Ordering::Relaxed);
    registry.submit(holder.next()).unwrap();
    assert_eq!(times(&registry), Signed::At(NOW + hour - MAX_WITNESS_CLOCK_SKEW - 1));
}

#[test]
fn a_damaged_state_holds_up_no_other_did() {
    let place = RegistryDirectory::new();
    let registry = place.open().unwrap();
    let mut damaged = place.holder(1);
    let mut other = place.holder(2);
    registry.submit(damaged.next()).unwrap();
    let database = Connection::open(place.path("registry")).unwrap();
    database.execute_batch("UPDATE document SET text = x'7b'").unwrap();
    let (sender, answers) = channel();
    for operation in [damaged.next(), other.next()] {
        let sender = sender.clone();
        registry.submit_then(operation, move |answer| sender.send(answer).unwrap()).unwrap();
    }
    let answers: Vec<_> = answers.iter().take(2).collect();
    assert!(matches!(answers[0], Err(RegistryError::Damaged(_))), "{answers:?}");
    assert_eq!(answers[1], Ok(Receipt { number: 2 }));
}

#[test]
fn a_number_that_nobody_could_read_again_does_not_enter_the_log() {
    let place = RegistryDirectory::new();
    let text = String::from_utf8(place.holder(1).next().canonical().unwrap().into()).unwrap();
    let changed = text.replacen("{", "{\"x\":1e16,", 1);
    assert_ne!(changed, text);
    assert!(Operation::read(changed.as_bytes()).unwrap_err().to_string().contains("number"));
}

#[test]
fn a_failed_transaction_leaves_nothing_and_the_registry_goes_on() {
    let place = RegistryDirectory::new();
    let registry = place.open().unwrap();
    let mut holder = place.holder(1);
    registry.submit(holder.next()).unwrap();
    let before = registry.snapshot();
    let other = Connection::open(place.path("registry")).unwrap();
    let fail =
        "CREATE TRIGGER fail BEFORE INSERT ON entry BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    other.execute_batch(fail).unwrap();
    let update = holder.next();
    let failed = registry.submit(update.clone());
    assert_eq!(failed, Err(RegistryError::Database("the disk is full".to_owned())));
    assert_eq!(registry.snapshot().text(), before.text());
    other.execute_batch("DROP TRIGGER fail").unwrap();
    assert_eq!(registry.submit(update), Ok(Receipt { number: 2 }));
}

#[test]
fn tiles_and_entries_make_the_tree_of_the_checkpoint() {
    let place = RegistryDirectory::new();
    let registry = place.open().unwrap();
    let operations: Vec<_> = (0..600).map(|number| place.holder(number).next()).collect();
    operations.chunks(500).for_each(|chunk| place.submit(&registry, chunk.to_vec()));
    let size = registry.snapshot().size();
    let width = u16::try_from(size - 512).unwrap();
    let hasher = Hasher(place.provider.sha256);
    let hashes = |kind, number, width| {
        let tile = registry.tile(&Tile::new(kind, number, width).unwrap()).unwrap();
        tile.map(|bytes| bytes.as_chunks::<32>().0.to_vec())
    };

    let mut tree = Tree::default();
    let mut roots = 0;
    let full = u64::from(TILE_WIDTH);
    for (number, width) in [(0, TILE_WIDTH), (1, TILE_WIDTH), (2, width)] {
        let bundle = registry.tile(&Tile::new(TileKind::Entries, number, width).unwrap()).unwrap().unwrap();
        let mut rest = bundle.as_slice();
        let mut leaves = Vec::new();
        while let Some((length, after)) = rest.split_first_chunk() {
            let (entry, after) = after.split_at(u16::from_be_bytes(*length).into());
            leaves.push(hasher.leaf(entry));
            roots += u64::from(matches!(LogEntry::read(entry), Ok(LogEntry::Root(_))));
            assert!(LogEntry::read(entry).is_ok());
            rest = after;
        }
        assert_eq!(hashes(TileKind::Hashes(0), number, width), Some(leaves.clone()));
        // A narrower tile is the beginning of a wider one.
        assert_eq!(hashes(TileKind::Hashes(0), number, 5), Some(leaves[..5].to_vec()));
        leaves.into_iter().for_each(|leaf| tree.push(hasher, leaf));
    }
    assert_eq!(size - roots, 600);
    let checkpoint = registry.snapshot().checkpoint().checkpoint().clone();
    assert_eq!((checkpoint.size, Ok(checkpoint.root)), (size, tree.root(hasher, size)));
    let level = vec![tree.node(8, 0).unwrap(), tree.node(8, 1).unwrap()];
    assert_eq!(hashes(TileKind::Hashes(1), 0, 2), Some(level));
    for (kind, number, width) in [
        (TileKind::Hashes(0), 2, width + 1),
        (TileKind::Hashes(0), 3, 1),
        (TileKind::Hashes(1), 0, 3),
        (TileKind::Hashes(2), 0, 1),
        (TileKind::Hashes(63), 0, 1),
        (TileKind::Hashes(0), u64::MAX, 1),
        (TileKind::Entries, 2, width + 1),
    ] {
        assert_eq!(hashes(kind, number, width), None, "{kind:?} {number} {width}");
    }

    for (old, new) in [(1, size), (255, 256), (256, 512), (512, 513), (300, 600), (full, size), (size, size)]
    {
        let proof = registry.consistency(old, new).unwrap();
        let roots = [old, new].map(|size| (size, tree.root(hasher, size).unwrap()));
        let [old, new] = roots.each_ref().map(|(size, root)| (*size, root));
        assert_eq!(hasher.verify_consistency(old, new, &proof), Ok(()));
    }
    for number in [0, 255, 256, 511, 512, 599] {
        let proof = registry.inclusion(number, size).unwrap();
        let leaf = tree.node(0, number).unwrap();
        assert_eq!(hasher.verify_inclusion(leaf, number, size, &checkpoint.root, &proof), Ok(()));
    }
    let larger = Err(RegistryError::Merkle(MerkleError::Sizes { old: size + 1, new: size }));
    assert_eq!(registry.consistency(1, size + 1), larger);
    assert_eq!(registry.inclusion(0, size + 1), larger);
    assert!(matches!(registry.inclusion(size, size), Err(RegistryError::Merkle(_))));
}

/// The root of the state map ends every transaction with operations. A refresh adds nothing.
#[test]
fn the_last_entry_is_the_root_of_the_state_map() {
    let place = RegistryDirectory::new();
    let registry = place.open().unwrap();
    let hasher = Hasher(place.provider.sha256);
    let mut sizes = vec![registry.snapshot().size()];
    for number in 0..40 {
        registry.submit(place.holder(number).next()).unwrap();
        let snapshot = registry.snapshot();
        let entries = registry.entries(0, snapshot.size()).unwrap();
        assert_eq!(entries.last(), Some(&root_entry(&snapshot.map().root(hasher))));
        sizes.push(snapshot.size());
        // Every root between them is also right, and no path is long.
        let last = snapshot.size() - 1;
        assert!(last.count_ones() <= 2 + (64 - last.leading_zeros()) / 2, "{last}");
    }
    assert_eq!((sizes[0], sizes[1]), (0, 2));
    assert!(sizes.is_sorted_by(|before, after| before + 2 <= *after));
    // Seldom more than one root for an operation.
    assert!(sizes[40] < 100, "{}", sizes[40]);
    let before = registry.snapshot();
    place.clock.fetch_add(24 * 60 * 60, Ordering::Relaxed);
    assert!(registry.submit(place.holder(0).next()).is_ok());
    assert_ne!(registry.snapshot().text(), before.text());
    assert_eq!(registry.snapshot().checkpoint().checkpoint(), before.checkpoint().checkpoint());
}

#[test]
fn an_older_map_under_a_newer_checkpoint_is_refused() {
    let place = RegistryDirectory::new();
    let registry = place.open().unwrap();
    let mut holder = place.holder(1);
    registry.submit(holder.next()).unwrap();
    let did = holder.state().did().clone();
    let old = registry.resolve(&did).unwrap().staple().unwrap();
    let verify = |staple: &Staple| {
        staple.verify(&place.provider, &did, &trust(&registry), None, NOW).map(|resolved| resolved.sequence)
    };
    assert_eq!(verify(&old), Ok(0));
    registry.submit(holder.next()).unwrap();
    let new = registry.resolve(&did).unwrap().staple().unwrap();
    assert_eq!(verify(&new), Ok(1));
    // The log still has the older root, as the entry 1 of 4.
    let map = StateProof::read(&old.proof).unwrap().map;
    for path in [StateProof::read(&old.proof).unwrap().path, registry.inclusion(1, 4).unwrap()] {
        let proof = StateProof { map: map.clone(), path }.write();
        let refused = verify(&Staple { checkpoint: new.checkpoint.clone(), proof, ..old.clone() });
        assert!(matches!(refused, Err(StapleError::Map(MapError::Path(_) | MapError::Root))), "{refused:?}");
    }
}
