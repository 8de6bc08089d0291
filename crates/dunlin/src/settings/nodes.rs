//! Connection IDs that name their node only to the holders of a shared key.

use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use super::ConnectionIds;
use crate::crypto::{CryptoProvider, HmacKey, SecureRandom};
use crate::error::{Error, Misuse};

/// The length of a masked node number.
const NODE: usize = 2;

/// The random bytes of an ID. They are unique, so each ID has a mask of its own.
const NONCE: usize = 8;

/// The shortest key of a mask, in bytes: the length of the HMAC's hash.
const MIN_MASK_KEY: usize = 32;

/// Separates this use of the key from others.
const LABEL: &[u8] = b"dunlin node of connection id 1";

/// Hides the number of a node in connection IDs, under a key that the nodes share.
///
/// An ID has 2 bytes with the number, masked by HMAC-SHA256 of 8 random bytes, which follow. To an observer
/// without the key, all IDs are random, so a client with a fresh ID for each path (DTLS 1.3) cannot be
/// followed by its node. This is the purpose of QUIC-LB (draft-ietf-quic-load-balancers), whose format is
/// another one.
///
/// An ID proves nothing: anyone can send bytes that lead to some node. A change of the first two bytes leads
/// to another node, which has no such ID.
///
/// # Examples
/// ```
/// use dunlin::{ConnectionIds, NodeMask};
///
/// # fn main() -> Result<(), dunlin::Error> {
/// let provider = dunlin_awslc::provider();
/// let mask = NodeMask::new(&provider, &[7; 32])?;
/// let id = mask.ids(3, provider.random.clone()).issue()?;
/// assert_eq!((id.len(), mask.node_of(&id)), (NodeMask::ID_LEN, Some(3)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct NodeMask {
    key: Arc<dyn HmacKey>,
}

impl NodeMask {
    /// The length of all its IDs, in bytes.
    pub const ID_LEN: usize = NODE + NONCE;

    /// A mask under this key of at least 32 random bytes.
    ///
    /// # Errors
    /// [`Misuse::Config`] if the key is shorter.
    pub fn new(provider: &CryptoProvider, key: &[u8]) -> Result<Self, Error> {
        if key.len() < MIN_MASK_KEY {
            let len = key.len();
            let why = alloc::format!("the key of a node mask has at least {MIN_MASK_KEY} bytes, not {len}");
            return Err(Misuse::Config(why).into());
        }
        let key: Box<dyn HmacKey> = provider.sha256.hmac(key);
        Ok(Self { key: key.into() })
    }

    /// The issuer of the IDs of the node with this number.
    pub fn ids(&self, node: u16, random: Arc<dyn SecureRandom>) -> MaskedNodeIds {
        MaskedNodeIds { node, mask: self.clone(), random }
    }

    /// The number of the node that an ID names. `None` for an ID of another length than [`Self::ID_LEN`].
    pub fn node_of(&self, id: &[u8]) -> Option<u16> {
        let (masked, nonce) = id.split_first_chunk::<NODE>()?;
        let nonce: &[u8; NONCE] = nonce.try_into().ok()?;
        Some(u16::from_be_bytes(*masked) ^ self.mask(nonce))
    }

    fn mask(&self, nonce: &[u8; NONCE]) -> u16 {
        let hash = self.key.sign(&[LABEL, nonce]);
        u16::from_be_bytes(hash.as_ref().first_chunk().copied().unwrap_or_default())
    }
}

/// Shows no key.
impl fmt::Debug for NodeMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeMask").finish_non_exhaustive()
    }
}

/// Issues connection IDs that name a node to the holders of its [`NodeMask`].
#[derive(Clone)]
pub struct MaskedNodeIds {
    node: u16,
    mask: NodeMask,
    random: Arc<dyn SecureRandom>,
}

impl ConnectionIds for MaskedNodeIds {
    fn id_len(&self) -> usize {
        NodeMask::ID_LEN
    }

    fn issue(&self) -> Result<Vec<u8>, Error> {
        let mut nonce = [0; NONCE];
        self.random.fill(&mut nonce)?;
        let masked = self.node ^ self.mask.mask(&nonce);
        Ok([&masked.to_be_bytes()[..], &nonce].concat())
    }
}

impl fmt::Debug for MaskedNodeIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MaskedNodeIds").field("node", &self.node).finish_non_exhaustive()
    }
}
