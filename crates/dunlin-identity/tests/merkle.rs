//! Merkle trees: the vectors of transparency-dev, and proofs between trees of all sizes.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod keys;

use base64ct::{Base64, Encoding};
use dunlin_identity::transparency::{Hasher, MAX_PROOF_HASHES, MerkleError, NodeHash, Nodes, Tree};
use keys::provider;
use serde_json::Value;

fn vectors(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap()
}

/// A hash; `None` if it has another length, which the type excludes here.
fn hash(value: &Value) -> Option<NodeHash> {
    Base64::decode_vec(value.as_str().unwrap_or_default()).unwrap().try_into().ok()
}

fn hashes(value: &Value) -> Option<Vec<NodeHash>> {
    value.as_array().map_or(Some(Vec::new()), |hashes| hashes.iter().map(hash).collect())
}

fn hex(text: &str) -> Vec<u8> {
    base16ct::lower::decode_vec(text).unwrap()
}

/// The tree of the first leaves, whose contents are their numbers.
fn tree(size: u64) -> Tree {
    let provider = provider();
    let mut tree = Tree::default();
    let hasher = Hasher(provider.sha256);
    for index in 0..size {
        tree.push(hasher, hasher.leaf(&index.to_be_bytes()));
    }
    tree
}

#[test]
fn inclusion_proofs_verify_as_elsewhere() {
    let provider = provider();
    let hasher = Hasher(provider.sha256);
    let mut good = 0;
    for vector in vectors(include_str!("data/merkle/inclusion.json")) {
        let verified = || {
            let leaf = hash(&vector["leafHash"])?;
            let root = hash(&vector["root"])?;
            let index = vector["leafIdx"].as_u64()?;
            let size = vector["treeSize"].as_u64()?;
            hasher.verify_inclusion(leaf, index, size, &root, &hashes(&vector["proof"])?).ok()
        };
        assert_eq!(verified().is_none(), vector["wantErr"] == true, "{vector}");
        good += u32::from(verified().is_some());
    }
    assert!(good > 3);
}

#[test]
fn consistency_proofs_verify_as_elsewhere() {
    let provider = provider();
    let hasher = Hasher(provider.sha256);
    let mut good = 0;
    for vector in vectors(include_str!("data/merkle/consistency.json")) {
        let verified = || {
            let old = hash(&vector["root1"])?;
            let new = hash(&vector["root2"])?;
            let old_size = vector["size1"].as_u64()?;
            let new_size = vector["size2"].as_u64()?;
            let proof = hashes(&vector["proof"])?;
            hasher.verify_consistency((old_size, &old), (new_size, &new), &proof).ok()
        };
        assert_eq!(verified().is_none(), vector["wantErr"] == true, "{vector}");
        good += u32::from(verified().is_some());
    }
    assert!(good > 3);
}

/// The roots of the first one to eight of these leaves, as the authors of RFC 6962 published them with their
/// implementation.
#[test]
fn the_roots_are_those_of_certificate_transparency() {
    let provider = provider();
    let hasher = Hasher(provider.sha256);
    let steps = [
        ("", "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"),
        ("00", "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125"),
        ("10", "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77"),
        ("2021", "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7"),
        ("3031", "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4"),
        ("40414243", "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef"),
        ("5051525354555657", "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c"),
        (
            "606162636465666768696a6b6c6d6e6f",
            "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
        ),
    ];
    let mut tree = Tree::default();
    let empty = tree.root(hasher, 0).unwrap();
    assert_eq!(empty.to_vec(), hex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"));
    for (size, (content, root)) in (1..).zip(steps) {
        tree.push(hasher, hasher.leaf(&hex(content)));
        assert_eq!((tree.size(), tree.root(hasher, size).unwrap().to_vec()), (size, hex(root)));
    }
    // The proof for leaf 0 of the vectors, in their order.
    let first = vectors(include_str!("data/merkle/inclusion.json"));
    let first = first.iter().find(|vector| vector["name"] == "1/happy-path").unwrap();
    assert_eq!(tree.inclusion(hasher, 0, 8).unwrap(), hashes(&first["proof"]).unwrap());
}

#[test]
fn every_leaf_is_proven_in_every_tree() {
    let provider = provider();
    let hasher = Hasher(provider.sha256);
    let tree = tree(40);
    for size in 1..=40 {
        let root = tree.root(hasher, size).unwrap();
        for index in 0..size {
            let proof = tree.inclusion(hasher, index, size).unwrap();
            let leaf = tree.node(0, index).unwrap();
            assert_eq!(hasher.verify_inclusion(leaf, index, size, &root, &proof), Ok(()));
            // Another place, another leaf, another hash, and another length are refused.
            let other = (index + 1) % size;
            if other != index {
                assert!(hasher.verify_inclusion(leaf, other, size, &root, &proof).is_err());
                let stranger = tree.node(0, other).unwrap();
                assert!(hasher.verify_inclusion(stranger, index, size, &root, &proof).is_err());
            }
            let mut longer = proof.clone();
            longer.push(root);
            let length = Err(MerkleError::Length(longer.len()));
            assert_eq!(hasher.verify_inclusion(leaf, index, size, &root, &longer), length);
            for at in 0..proof.len() {
                let mut changed = proof.clone();
                changed[at][31] ^= 1;
                let refused = hasher.verify_inclusion(leaf, index, size, &root, &changed);
                assert_eq!(refused, Err(MerkleError::Root));
                assert!(hasher.verify_inclusion(leaf, index, size, &root, &proof[at + 1..]).is_err());
            }
        }
        assert_eq!(tree.inclusion(hasher, size, size), Err(MerkleError::Index { index: size, size }));
    }
}

#[test]
fn every_tree_is_consistent_with_all_later_ones() {
    let provider = provider();
    let hasher = Hasher(provider.sha256);
    let tree = tree(40);
    for new in 1..=40 {
        let new_root = tree.root(hasher, new).unwrap();
        for old in 1..=new {
            let old_root = tree.root(hasher, old).unwrap();
            let proof = tree.consistency(hasher, old, new).unwrap();
            assert_eq!(proof.is_empty(), old == new);
            assert_eq!(hasher.verify_consistency((old, &old_root), (new, &new_root), &proof), Ok(()));
            // A split view: another history of the same size.
            let mut forked = old_root;
            forked[0] ^= 1;
            assert!(hasher.verify_consistency((old, &forked), (new, &new_root), &proof).is_err());
            assert!(hasher.verify_consistency((old, &old_root), (new, &forked), &proof).is_err());
            for at in 0..proof.len() {
                let mut changed = proof.clone();
                changed[at][0] ^= 1;
                assert!(hasher.verify_consistency((old, &old_root), (new, &new_root), &changed).is_err());
                assert!(hasher.verify_consistency((old, &old_root), (new, &new_root), &proof[..at]).is_err());
            }
        }
        let sizes = MerkleError::Sizes { old: new + 1, new };
        assert_eq!(tree.consistency(hasher, new + 1, new), Err(sizes));
        assert_eq!(hasher.verify_consistency((new + 1, &new_root), (new, &new_root), &[]), Err(sizes));
    }
}

#[test]
fn a_proof_of_any_size_ends() {
    let provider = provider();
    let hasher = Hasher(provider.sha256);
    for len in [0, 1, 63, 64, 65, 66, 1000] {
        let proof = vec![NodeHash::default(); len];
        for (index, size) in [(0, u64::MAX), (u64::MAX - 1, u64::MAX), (1 << 63, u64::MAX), (0, 1 << 63)] {
            assert!(hasher.verify_inclusion([1; 32], index, size, &[2; 32], &proof).is_err());
            assert!(hasher.verify_consistency((index + 1, &[1; 32]), (size, &[2; 32]), &proof).is_err());
        }
    }
    // The longest right proof: the root follows from it.
    let proof = [NodeHash::default(); MAX_PROOF_HASHES - 1];
    let refused = hasher.verify_inclusion([1; 32], 0, u64::MAX, &[2; 32], &proof);
    assert_eq!(refused, Err(MerkleError::Root));
}

/// A store that has only complete subtrees of a few sizes, as tiles have: the others follow from them.
struct Tiles(Tree);

impl Nodes for Tiles {
    type Error = MerkleError;

    fn node(&self, level: u8, index: u64) -> Result<NodeHash, MerkleError> {
        if level.is_multiple_of(2) {
            return self.0.node(level, index);
        }
        let provider = provider();
        let children = (self.0.node(level - 1, 2 * index)?, self.0.node(level - 1, 2 * index + 1)?);
        Ok(Hasher(provider.sha256).node(&children.0, &children.1))
    }
}

#[test]
fn another_store_gives_the_same_proofs() {
    let provider = provider();
    let (hasher, tree, tiles) = (Hasher(provider.sha256), tree(37), Tiles(tree(37)));
    for size in 1..=37 {
        assert_eq!(tiles.root(hasher, size), tree.root(hasher, size));
        assert_eq!(tiles.inclusion(hasher, size / 2, size), tree.inclusion(hasher, size / 2, size));
        assert_eq!(tiles.consistency(hasher, size, 37), tree.consistency(hasher, size, 37));
    }
    assert_eq!(tiles.root(hasher, 38), Err(MerkleError::Missing { level: 0, index: 37 }));
}
