//! Trust lists: written out, as roots of members, and as text.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod keys;

use dunlin_identity::key::KeyError;
use dunlin_identity::transparency::MerkleError;
use dunlin_identity::{
    Did, DidError, MAX_MEMBERSHIP, MemberRoot, Members, Sha256Hash, TrustError, TrustList, TrustListError,
    TrustListFault,
};
use keys::provider;

fn did(name: u32) -> Did {
    format!("did:example:device-{name}").parse().unwrap()
}

fn untrusted(name: u32) -> Result<(), TrustError> {
    Err(TrustError::Untrusted(did(name)))
}

#[test]
fn trusts_the_dids_on_the_list_alone() {
    let list = TrustList::new([did(1), did(2)]);
    assert_eq!(list.check(&provider(), &did(1), None), Ok(()));
    assert_eq!(list.check(&provider(), &did(3), None), untrusted(3));
    // A proof does not help without a root.
    assert_eq!(list.check(&provider(), &did(3), Some(&[0; 16])), untrusted(3));
    assert!(TrustList::default().is_empty());
    assert_eq!(TrustList::default().check(&provider(), &did(1), None), untrusted(1));
}

#[test]
fn members_prove_that_they_are_on_the_list() {
    let provider = provider();
    for size in [1, 2, 3, 100] {
        let members = Members::new(&provider, (0..size).rev().map(did));
        let list = TrustList::default().with_members(members.root(&provider).unwrap());
        assert!(!list.is_empty());
        for name in 0..size {
            let proof = members.proof(&provider, &did(name)).unwrap();
            assert!(proof.len() <= 16 + 7 * 32 && proof.len() <= MAX_MEMBERSHIP);
            assert_eq!(list.check(&provider, &did(name), Some(&proof)), Ok(()));
            assert_eq!(list.check(&provider, &did(name), None), untrusted(name));
            // The proof of one member serves no other DID.
            let stranger = list.check(&provider, &did(size), Some(&proof));
            assert_eq!(stranger, Err(TrustError::Proof(MerkleError::Root)));
        }
        assert_eq!(members.proof(&provider, &did(size)), Err(TrustError::Untrusted(did(size))));
    }
    // The order and repetitions of members do not matter.
    let root = |dids: &[u32]| Members::new(&provider, dids.iter().copied().map(did)).root(&provider);
    assert_eq!(root(&[1, 2, 3]), root(&[3, 1, 2, 1]));
    assert_ne!(root(&[1, 2, 3]), root(&[1, 2, 4]));
    assert_eq!(root(&[]), Err(MerkleError::Index { index: 0, size: 0 }));
}

#[test]
fn refuses_wrong_and_malformed_proofs() {
    let provider = provider();
    let members = Members::new(&provider, (0..9).map(did));
    let root = members.root(&provider).unwrap();
    let other = Members::new(&provider, (1..10).map(did)).root(&provider).unwrap();
    let list = TrustList::new([did(20)]).with_members(other).with_members(root);
    let proof = members.proof(&provider, &did(4)).unwrap();
    let check = |proof: &[u8]| list.check(&provider, &did(4), Some(proof));
    assert_eq!(check(&proof), Ok(()));
    for at in 0..proof.len() {
        let mut changed = proof.clone();
        changed[at] ^= 1;
        assert!(check(&changed).is_err(), "byte {at}");
        assert!(check(&proof[..at]).is_err());
    }
    assert_eq!(check(&[]), Err(TrustError::Malformed));
    assert_eq!(check(&[proof.as_slice(), &[0]].concat()), Err(TrustError::Malformed));
    assert_eq!(check(&[proof.as_slice(), &[0; 32]].concat()), Err(TrustError::Proof(MerkleError::Length(5))));
    assert_eq!(check(&[proof.as_slice(), &[0; 64 * 32]].concat()), Err(TrustError::Malformed));
    assert_eq!(check(&vec![0; MAX_MEMBERSHIP + 1]), Err(TrustError::Malformed));
    // The proof is of nine members.
    let mut of_eight = proof;
    of_eight[15] = 8;
    assert_eq!(check(&of_eight), Err(TrustError::UnknownRoot(8)));
}

#[test]
fn reads_lists() {
    let hash = Sha256Hash::of(&provider(), b"a document").unwrap();
    let root = MemberRoot { size: 100_000, hash: [0xab; 32] };
    let text = format!(
        "# devices\n\ndid:example:device-1  # the first\n\tdid:example:device-2 {hash}\r\n{root}\n  {}\n",
        root.to_string().to_uppercase().replace("MEMBERS", "members")
    );
    let list = TrustList::read(&text).unwrap();
    assert_eq!(list.dids().cloned().collect::<Vec<_>>(), [did(1), did(2)]);
    assert_eq!((list.pin(&did(1)), list.pin(&did(2)), list.pin(&did(3))), (None, Some(hash), None));
    assert_eq!(
        TrustList::new([did(1)]).with_members(root),
        TrustList::read(&format!("{root}\n{}", did(1))).unwrap()
    );
    assert!(TrustList::read("# nobody\n").unwrap().is_empty());
}

#[test]
fn an_error_names_the_line() {
    let with = |line: &str| {
        let TrustListError { line, fault } =
            TrustList::read(&format!("did:example:a\n{line}\n")).unwrap_err();
        assert_eq!(line, 2);
        fault
    };
    assert_eq!(with("example"), TrustListFault::Did(DidError::Scheme));
    assert_eq!(with("did:example:a"), TrustListFault::Duplicate("did:example:a".parse().unwrap()));
    assert_eq!(with("did:example:b did:example:c"), TrustListFault::Hash(KeyError::Multibase));
    assert_eq!(with("did:example:b uAAAA"), TrustListFault::Hash(KeyError::Multibase));
    let zero = "0".repeat(64);
    for text in
        ["members", "members 1", &format!("members 0 {zero}"), &format!("members 1 {zero}00"), "members x y"]
    {
        assert_eq!(with(text), TrustListFault::Members, "{text}");
    }
    assert_eq!(with(&format!("members 1 {zero} x")), TrustListFault::Trailing);
    let error = TrustList::read("x").unwrap_err();
    assert_eq!(
        error.to_string(),
        "line 1: a DID begins with \"did:\"; write a DID, or \"members\" with a number and a root"
    );
}
