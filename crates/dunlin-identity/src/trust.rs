//! Lists of trusted DIDs: written out, or as the Merkle root of the members, each of which proves its
//! membership.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use dunlin::crypto::CryptoProvider;

use crate::did::{Did, DidError};
use crate::hash::Sha256Hash;
use crate::key::KeyError;
use crate::merkle::{Hasher, MAX_PROOF_HASHES, MerkleError, NodeHash, Nodes, Tree};

/// The longest proof of membership, in bytes: as in a handshake, whose field ends there. A tree of 2^64
/// members needs 2064.
pub const MAX_MEMBERSHIP: usize = 4095;

/// Why a DID is not trusted, or its membership cannot be proven.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrustError {
    /// The DID is not on the list, and there is no proof that it is a member.
    #[error("{0} is not on the list of trusted DIDs")]
    Untrusted(Did),
    /// The proof of membership is malformed or too long.
    #[error("malformed proof of membership")]
    Malformed,
    /// No trusted root has the number of members that the proof says.
    #[error("no trusted list of members has {0} members")]
    UnknownRoot(u64),
    /// The proof of membership is wrong.
    #[error("proof of membership: {0}")]
    Proof(#[from] MerkleError),
}

/// Why the text of a trust list is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct TrustListError {
    /// The line, counted from 1.
    pub line: usize,
    /// The fault.
    pub fault: TrustListFault,
}

/// A fault in a line of a trust list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrustListFault {
    /// The line begins with something else than a DID or `members`.
    #[error("{0}; write a DID, or \"members\" with a number and a root")]
    Did(DidError),
    /// The hash after a DID is malformed.
    #[error("malformed hash of a document: {0}")]
    Hash(KeyError),
    /// The line has more words.
    #[error("unexpected text at the end of the line")]
    Trailing,
    /// The number of members or the root is missing or malformed.
    #[error("write \"members\", their number, and the root as 64 hexadecimal digits")]
    Members,
    /// The DID is on the list twice.
    #[error("{0} is on the list twice")]
    Duplicate(Did),
}

/// The root over all members of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemberRoot {
    /// How many members there are, at least 1.
    pub size: u64,
    /// The root of the tree (RFC 9162 §2.1) whose leaves are the DIDs in the order of their bytes.
    pub hash: NodeHash,
}

impl fmt::Display for MemberRoot {
    /// The line of a trust list.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "members {} ", self.size)?;
        self.hash.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The DIDs that a program trusts. An empty list trusts no DID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustList {
    dids: BTreeMap<Did, Option<Sha256Hash>>,
    roots: Vec<MemberRoot>,
}

impl TrustList {
    /// Trusts these DIDs and no others.
    pub fn new(dids: impl IntoIterator<Item = Did>) -> Self {
        Self { dids: dids.into_iter().map(|did| (did, None)).collect(), roots: Vec::new() }
    }

    /// Trusts also every DID that proves its membership under this root.
    #[must_use]
    pub fn with_members(mut self, root: MemberRoot) -> Self {
        self.roots.push(root);
        self
    }

    /// Reads a list, with a DID on each line. The hash of a document (`z` and base58btc) after the DID pins
    /// it: the program may use this first document of the DID without asking a registry. A line `members
    /// NUMBER ROOT` trusts the members under a root. Empty lines and what follows `#` at the beginning of a
    /// word are skipped.
    ///
    /// # Errors
    /// The first line at fault.
    pub fn read(text: &str) -> Result<Self, TrustListError> {
        let mut list = Self::default();
        for (line, content) in (1..).zip(text.lines()) {
            list.read_line(content).map_err(|fault| TrustListError { line, fault })?;
        }
        Ok(list)
    }

    fn read_line(&mut self, line: &str) -> Result<(), TrustListFault> {
        let mut words = line.split_ascii_whitespace().take_while(|word| !word.starts_with('#'));
        match words.next() {
            None => return Ok(()),
            Some("members") => {
                let size = words.next().and_then(|size| size.parse().ok()).filter(|size| *size > 0);
                let hash = words.next().and_then(|root| base16ct::mixed::decode_vec(root).ok());
                let hash = hash.and_then(|hash| NodeHash::try_from(hash).ok());
                let (Some(size), Some(hash)) = (size, hash) else { return Err(TrustListFault::Members) };
                self.roots.push(MemberRoot { size, hash });
            }
            Some(did) => {
                let did: Did = did.parse().map_err(TrustListFault::Did)?;
                let pin = words.next().map(Sha256Hash::from_str).transpose().map_err(TrustListFault::Hash)?;
                if self.dids.contains_key(&did) {
                    return Err(TrustListFault::Duplicate(did));
                }
                self.dids.insert(did, pin);
            }
        }
        if words.next().is_some() { Err(TrustListFault::Trailing) } else { Ok(()) }
    }

    /// Whether the list trusts no DID.
    pub fn is_empty(&self) -> bool {
        self.dids.is_empty() && self.roots.is_empty()
    }

    /// The DIDs that are written out. A list of issuers consists of them: a program resolves each and gives
    /// the documents to [`Verifier::new`](crate::credential::Verifier::new).
    pub fn dids(&self) -> impl Iterator<Item = &Did> {
        self.dids.keys()
    }

    /// The roots whose members the list trusts.
    pub fn roots(&self) -> &[MemberRoot] {
        &self.roots
    }

    /// The hash of the first document to which the list pins the DID.
    pub fn pin(&self, did: &Did) -> Option<Sha256Hash> {
        self.dids.get(did).copied().flatten()
    }

    /// Checks that the DID is trusted: it is on the list, or `membership` proves that it is a member under a
    /// root.
    ///
    /// # Errors
    /// [`TrustError`].
    pub fn check(
        &self,
        provider: &CryptoProvider,
        did: &Did,
        membership: Option<&[u8]>,
    ) -> Result<(), TrustError> {
        if self.dids.contains_key(did) {
            return Ok(());
        }
        let membership = if !self.roots.is_empty() { membership } else { None };
        let membership = membership.ok_or_else(|| TrustError::Untrusted(did.clone()))?;
        let Membership { index, size, proof } = Membership::read(membership).ok_or(TrustError::Malformed)?;
        let hasher = Hasher(provider.sha256);
        let leaf = hasher.leaf(did.as_str().as_bytes());
        let mut refusal = TrustError::UnknownRoot(size);
        for root in self.roots.iter().filter(|root| root.size == size) {
            match hasher.verify_inclusion(leaf, index, size, &root.hash, &proof) {
                Ok(()) => return Ok(()),
                Err(error) => refusal = error.into(),
            }
        }
        Err(refusal)
    }
}

/// A proof of membership: the number of the leaf and of all leaves, 8 bytes each, then the hashes.
struct Membership {
    index: u64,
    size: u64,
    proof: Vec<NodeHash>,
}

impl Membership {
    fn read(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > MAX_MEMBERSHIP {
            return None;
        }
        let (index, rest) = bytes.split_first_chunk()?;
        let (size, rest) = rest.split_first_chunk()?;
        let (hashes, rest) = rest.as_chunks();
        if !rest.is_empty() || hashes.len() >= MAX_PROOF_HASHES {
            return None;
        }
        let index = u64::from_be_bytes(*index);
        let size = u64::from_be_bytes(*size);
        Some(Self { index, size, proof: hashes.to_vec() })
    }

    fn write(&self) -> Vec<u8> {
        let numbers = [self.index, self.size].map(u64::to_be_bytes);
        [numbers.as_flattened(), self.proof.as_flattened()].concat()
    }
}

/// The proof of membership of a DID in a text with the proofs of all members, one on each line: the DID, and
/// the proof in hexadecimal digits (`dunlin did members`). `None` if there is none, or it is malformed.
pub fn read_membership(text: &str, did: &Did) -> Option<Vec<u8>> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let (_, proof) = lines.find(|(member, _)| *member == did.as_str())?;
    base16ct::lower::decode_vec(proof.trim_end()).ok().filter(|proof| proof.len() <= MAX_MEMBERSHIP)
}

/// The members of a list, of whom each can have a proof.
#[derive(Clone, Debug)]
pub struct Members {
    dids: Vec<Did>,
    tree: Tree,
}

impl Members {
    /// The list of these members. Their order does not matter.
    pub fn new(provider: &CryptoProvider, dids: impl IntoIterator<Item = Did>) -> Self {
        let hasher = Hasher(provider.sha256);
        let mut tree = Tree::default();
        let dids: Vec<Did> = dids.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
        dids.iter().for_each(|did| tree.push(hasher, hasher.leaf(did.as_str().as_bytes())));
        Self { dids, tree }
    }

    /// The root, for [`TrustList::with_members`].
    ///
    /// # Errors
    /// [`MerkleError::Index`] if there are no members.
    pub fn root(&self, provider: &CryptoProvider) -> Result<MemberRoot, MerkleError> {
        let size = self.tree.size();
        if size == 0 {
            return Err(MerkleError::Index { index: 0, size });
        }
        Ok(MemberRoot { size, hash: self.tree.root(Hasher(provider.sha256), size)? })
    }

    /// The proof that the DID is a member, for [`TrustList::check`].
    ///
    /// # Errors
    /// [`TrustError::Untrusted`] if it is none.
    pub fn proof(&self, provider: &CryptoProvider, did: &Did) -> Result<Vec<u8>, TrustError> {
        let index = self.dids.binary_search(did).map_err(|_| TrustError::Untrusted(did.clone()))? as u64;
        let size = self.tree.size();
        let proof = self.tree.inclusion(Hasher(provider.sha256), index, size)?;
        Ok(Membership { index, size, proof }.write())
    }
}
