//! The state map of a registry: roots, proofs of what it has and of what it does not have, and forged proofs.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod keys;

use dunlin::crypto::CryptoProvider;
use dunlin_identity::Sha256Hash;
use dunlin_identity::transparency::{
    Checkpoint, Hasher, LogEntry, MAX_MAP_DEPTH, MAX_STATE_PROOF, MapError, MapLeaf, NodeHash, Nodes,
    StateMap, StateProof, Tree, map_key, root_entry,
};
use keys::provider;

fn key(number: u32) -> Sha256Hash {
    map_key(&provider(), &format!("did:dunlin:{number}").parse().unwrap()).unwrap()
}

fn leaf(number: u32) -> MapLeaf {
    let document = Sha256Hash::of(&provider(), &number.to_be_bytes()).unwrap();
    MapLeaf { document, sequence: u64::from(number) * 3, active: !number.is_multiple_of(5) }
}

fn map(provider: &CryptoProvider, numbers: impl IntoIterator<Item = u32>) -> StateMap {
    let hasher = Hasher(provider.sha256);
    numbers.into_iter().fold(StateMap::default(), |map, n| map.with(hasher, key(n), leaf(n)).unwrap())
}

/// A log whose only entry is this root.
fn log(hasher: Hasher<'_>, map: NodeHash) -> Checkpoint {
    Checkpoint { origin: "registry.example/1".to_owned(), size: 1, root: hasher.leaf(&root_entry(&map)) }
}

fn prove(map: &StateMap, key: &Sha256Hash) -> StateProof {
    StateProof { map: map.prove(key), path: Vec::new() }
}

/// The key whose bytes are 0 except these.
fn key_of(bytes: &[(usize, u8)]) -> Sha256Hash {
    let mut key = [0; 32];
    bytes.iter().for_each(|(at, byte)| key[*at] = *byte);
    Sha256Hash::from_bytes(key)
}

fn leaf_hash(hasher: Hasher<'_>, key: &Sha256Hash, leaf: &MapLeaf) -> NodeHash {
    let sequence = leaf.sequence.to_be_bytes();
    let active = [u8::from(leaf.active)];
    hasher.leaf(&[&key.as_bytes()[..], leaf.document.as_bytes(), &sequence, &active].concat())
}

/// The root as docs/identity.md defines it, from all leaves at once.
fn defined(hasher: Hasher<'_>, leaves: &[(Sha256Hash, MapLeaf)], depth: usize) -> NodeHash {
    match leaves {
        [] => hasher.empty(),
        [(key, leaf)] => leaf_hash(hasher, key, leaf),
        _ => {
            let bit = |key: &Sha256Hash| key.as_bytes()[depth / 8] >> (7 - depth % 8) & 1;
            let side = |of: u8| leaves.iter().copied().filter(|(key, _)| bit(key) == of).collect::<Vec<_>>();
            hasher.node(&defined(hasher, &side(0), depth + 1), &defined(hasher, &side(1), depth + 1))
        }
    }
}

#[test]
fn the_root_is_that_of_the_definition_in_any_order() {
    let provider = provider();
    let hasher = Hasher(provider.sha256);
    assert_eq!(StateMap::default().root(hasher), hasher.empty());
    for size in [1, 2, 3, 10, 200] {
        let leaves: Vec<_> = (0..size).map(|n| (key(n), leaf(n))).collect();
        let root = defined(hasher, &leaves, 0);
        let (map, reversed) = (map(&provider, 0..size), map(&provider, (0..size).rev()));
        assert_eq!((map.root(hasher), reversed.root(hasher)), (root, root));
        assert_eq!(map.len(), u64::from(size));
    }
}

#[test]
fn a_new_state_replaces_the_earlier_one() {
    let provider = provider();
    let hasher = Hasher(provider.sha256);
    let before = map(&provider, 0..20);
    let after = before.with(hasher, key(7), leaf(100)).unwrap();
    assert_eq!((after.get(&key(7)), after.len()), (Some(leaf(100)), 20));
    // The earlier map is unchanged.
    assert_eq!(
        (before.get(&key(7)), before.root(hasher)),
        (Some(leaf(7)), map(&provider, 0..20).root(hasher))
    );
    let proof = prove(&before, &key(7));
    let log = log(hasher, after.root(hasher));
    let verified = proof.verify_presence(hasher, &key(7), leaf(7).document, &log);
    assert_eq!(verified, Err(MapError::Root));
}

#[test]
fn every_proof_verifies_and_only_for_its_did_and_document() {
    let provider = provider();
    let hasher = Hasher(provider.sha256);
    let map = map(&provider, 0..100);
    let root = log(hasher, map.root(hasher));
    for number in 0..100 {
        let proof = StateProof::read(&map.prove(&key(number)).write()).unwrap();
        let key = key(number);
        let leaf = leaf(number);
        assert_eq!(proof.verify_presence(hasher, &key, leaf.document, &root), Ok(leaf));
        assert_eq!(map.get(&key), Some(leaf));
        assert_eq!(proof.verify_absence(hasher, &key, &root), Err(MapError::Present));
        let other = self::leaf(number + 1).document;
        assert_eq!(proof.verify_presence(hasher, &key, other, &root), Err(MapError::Root));
        let other = self::key(number + 1);
        assert_eq!(proof.verify_presence(hasher, &other, leaf.document, &root), Err(MapError::Root));
    }
    for number in 100..200 {
        let proof = StateProof::read(&map.prove(&key(number)).write()).unwrap();
        assert_eq!(proof.verify_absence(hasher, &key(number), &root), Ok(()));
        assert_eq!(map.get(&key(number)), None);
        let present = proof.verify_presence(hasher, &key(number), leaf(number).document, &root);
        assert_eq!(present, Err(MapError::Absent));
    }
    let empty = StateMap::default();
    let no_did = log(hasher, empty.root(hasher));
    assert_eq!(prove(&empty, &key(1)).verify_absence(hasher, &key(1), &no_did), Ok(()));
    assert_eq!(prove(&empty, &key(1)).verify_absence(hasher, &key(1), &root), Err(MapError::Root));
}

#[test]
fn a_proof_is_as_long_as_documented() {
    let provider = provider();
    let hasher = Hasher(provider.sha256);
    let one = map(&provider, [3]);
    // An active leaf, its number, and no levels.
    assert_eq!(one.prove(&key(3)).write(), [&[0][..], &9_u64.to_be_bytes(), &[0]].concat());
    // The leaf of another DID is in the way.
    let other =
        [&[3][..], key(3).as_bytes(), leaf(3).document.as_bytes(), &9_u64.to_be_bytes(), &[0]].concat();
    assert_eq!(one.prove(&key(4)).write(), other);

    // The paths of two leaves part at the tenth bit. A third key would leave them at the second.
    let left = key_of(&[]);
    let right = key_of(&[(1, 0x40)]);
    let two = StateMap::default().with(hasher, left, leaf(1)).unwrap().with(hasher, right, leaf(5)).unwrap();
    let sibling = leaf_hash(hasher, &left, &leaf(1));
    let proof = [&[1][..], &15_u64.to_be_bytes(), &[10, 0, 0x40], &sibling].concat();
    assert_eq!(two.prove(&right).write(), proof);
    let mut inner = hasher.node(&sibling, &leaf_hash(hasher, &right, &leaf(5)));
    for _ in 2..9 {
        inner = hasher.node(&inner, &hasher.empty());
    }
    assert_eq!(two.prove(&key_of(&[(0, 0x40)])).write(), [&[2, 2, 0x40][..], &inner].concat());
}

#[test]
fn a_proof_grows_with_the_logarithm_of_the_map() {
    let provider = provider();
    let longest = |size| {
        let map = map(&provider, 0..size);
        (0..size).map(|n| map.prove(&key(n)).write().len()).max().unwrap()
    };
    // Sixteen times as many DIDs: four levels more, give or take those of close neighbours.
    assert!(longest(1600) <= longest(100) + 8 * 33);
}

#[test]
fn no_changed_byte_of_a_proof_passes() {
    let provider = provider();
    let hasher = Hasher(provider.sha256);
    let map = map(&provider, 0..30);
    let root = log(hasher, map.root(hasher));
    for number in [3, 5, 40, 41, 42, 43] {
        let proof = map.prove(&key(number)).write();
        for at in 0..proof.len() {
            for bit in 0..8 {
                let mut changed = proof.clone();
                changed[at] ^= 1 << bit;
                let Ok(changed) = StateProof::read(&changed) else { continue };
                let leaf = changed.verify_presence(hasher, &key(number), leaf(number).document, &root);
                let absent = changed.verify_absence(hasher, &key(number), &root);
                assert!(leaf.is_err() && absent.is_err(), "{number}, byte {at}, bit {bit}");
            }
        }
        assert_eq!(StateProof::read(&[&proof[..], &[0]].concat()), Err(MapError::Malformed));
        for end in 0..proof.len() {
            assert_eq!(StateProof::read(&proof[..end]), Err(MapError::Malformed));
        }
    }
    // Nothing in the place, below levels whose siblings are all there.
    let deep = |levels: u8| {
        let bitmap: Vec<u8> =
            (0..levels).step_by(8).map(|level| !(0xff_u16 >> (levels - level).min(8)) as u8).collect();
        [&[2, levels][..], &bitmap, &vec![7; 32 * usize::from(levels)]].concat()
    };
    let longest = (0..=u8::MAX).rfind(|levels| deep(*levels).len() <= MAX_STATE_PROOF).unwrap();
    assert!(StateProof::read(&deep(longest)).is_ok());
    assert_eq!(StateProof::read(&deep(longest + 1)), Err(MapError::Malformed));
    // A bit without a level.
    assert_eq!(StateProof::read(&[2, 1, 0x40]), Err(MapError::Malformed));
}

#[test]
fn a_leaf_out_of_place_proves_no_absence() {
    let provider = provider();
    let hasher = Hasher(provider.sha256);
    let other = |key: &Sha256Hash, levels: &[u8]| {
        let document = leaf(1).document;
        let bytes = [&[3][..], key.as_bytes(), document.as_bytes(), &3_u64.to_be_bytes(), levels].concat();
        StateProof::read(&bytes).unwrap()
    };
    // A map whose one leaf is the DID's own shows that leaf as another's.
    let own = StateMap::default().with(hasher, key_of(&[]), leaf(1)).unwrap();
    let forged = other(&key_of(&[]), &[0]);
    let own = log(hasher, own.root(hasher));
    assert_eq!(forged.verify_absence(hasher, &key_of(&[]), &own), Err(MapError::Misplaced));
    // A registry that puts a leaf where it does not belong: left of an empty subtree, though its first bit
    // is 1.
    let stranger = key_of(&[(0, 0x80)]);
    let root = log(hasher, hasher.node(&leaf_hash(hasher, &stranger, &leaf(1)), &hasher.empty()));
    let forged = other(&stranger, &[1, 0]);
    assert_eq!(forged.verify_absence(hasher, &key_of(&[]), &root), Err(MapError::Misplaced));
}

#[test]
fn the_deepest_leaves_are_found() {
    let provider = provider();
    let hasher = Hasher(provider.sha256);
    let left = key_of(&[]);
    let right = key_of(&[(31, 2)]);
    let map = StateMap::default().with(hasher, left, leaf(1)).unwrap().with(hasher, right, leaf(2)).unwrap();
    let proof = StateProof::read(&map.prove(&right).write()).unwrap();
    let log = log(hasher, map.root(hasher));
    assert_eq!(proof.verify_presence(hasher, &right, leaf(2).document, &log), Ok(leaf(2)));
    assert_eq!(map.prove(&right).write()[9], u8::try_from(MAX_MAP_DEPTH).unwrap());
    assert_eq!(map.with(hasher, key_of(&[(31, 1)]), leaf(3)).map(drop), Err(MapError::TooDeep));
}

/// A log of this size with the root of the state map as the entry with this number.
fn with_root_at(hasher: Hasher<'_>, map: NodeHash, number: u64, size: u64) -> (Checkpoint, Tree) {
    let mut tree = Tree::default();
    for entry in 0..size {
        let content = if entry == number { root_entry(&map) } else { entry.to_be_bytes().to_vec() };
        tree.push(hasher, hasher.leaf(&content));
    }
    let root = tree.root(hasher, size).unwrap();
    (Checkpoint { origin: "registry.example/1".to_owned(), size, root }, tree)
}

#[test]
fn only_the_last_entry_of_the_log_states_the_map() {
    let provider = provider();
    let hasher = Hasher(provider.sha256);
    let map = map(&provider, 0..10);
    for size in 1..70 {
        for number in 0..size {
            let (checkpoint, tree) = with_root_at(hasher, map.root(hasher), number, size);
            let proof =
                StateProof { map: map.prove(&key(3)), path: tree.inclusion(hasher, number, size).unwrap() };
            let read = StateProof::read(&proof.write()).unwrap();
            assert_eq!(read, proof);
            let verified = read.verify_presence(hasher, &key(3), leaf(3).document, &checkpoint);
            let absent = StateProof { map: map.prove(&key(99)), ..read };
            let absent = absent.verify_absence(hasher, &key(99), &checkpoint);
            assert_eq!(
                (verified.is_ok(), absent.is_ok()),
                (number + 1 == size, number + 1 == size),
                "{number} of {size}"
            );
        }
    }
    // The root that an older checkpoint of the same log had.
    let (old, tree) = with_root_at(hasher, map.root(hasher), 5, 6);
    let proof = StateProof { map: map.prove(&key(3)), path: tree.inclusion(hasher, 5, 6).unwrap() };
    assert_eq!(proof.verify_presence(hasher, &key(3), leaf(3).document, &old), Ok(leaf(3)));
    let (newer, _) = with_root_at(hasher, map.root(hasher), 5, 7);
    let refused = proof.verify_presence(hasher, &key(3), leaf(3).document, &newer);
    assert_eq!(refused, Err(MapError::Root));
    let (newer, _) = with_root_at(hasher, map.root(hasher), 5, 8);
    let refused = proof.verify_presence(hasher, &key(3), leaf(3).document, &newer);
    assert_eq!(refused, Err(MapError::Path(2)));
}

#[test]
fn an_empty_log_has_the_empty_map() {
    let provider = provider();
    let hasher = Hasher(provider.sha256);
    let empty = StateMap::default();
    let one = map(&provider, [1]);
    let (log, _) = with_root_at(hasher, empty.root(hasher), 0, 0);
    assert_eq!(prove(&empty, &key(1)).verify_absence(hasher, &key(1), &log), Ok(()));
    let present = prove(&one, &key(1)).verify_presence(hasher, &key(1), leaf(1).document, &log);
    assert_eq!(present, Err(MapError::Root));
    let longer = StateProof { path: vec![hasher.empty()], ..prove(&empty, &key(1)) };
    assert_eq!(longer.verify_absence(hasher, &key(1), &log), Err(MapError::Root));
    let other = Checkpoint { root: one.root(hasher), ..log };
    assert_eq!(prove(&empty, &key(1)).verify_absence(hasher, &key(1), &other), Err(MapError::Root));
}

#[test]
fn an_entry_of_the_log_has_one_form() {
    let root = [7; 32];
    let entry = root_entry(&root);
    assert_eq!(entry, b"dunlin-map BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=");
    assert_eq!(LogEntry::read(&entry), Ok(LogEntry::Root(root)));
    for other in [&entry[1..], &entry[..54], &[&entry[..], b"\n"].concat(), b"dunlin-map ", b"", b"{}"] {
        assert!(LogEntry::read(other).is_err(), "{other:?}");
    }
    // Base64 with other unused bits.
    assert!(LogEntry::read(b"dunlin-map BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwd=").is_err());
}
