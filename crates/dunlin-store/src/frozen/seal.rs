//! The pieces of a sealed file. Each file has a key of its own, so the nonces count from zero.

use std::sync::Arc;

use dunlin::crypto::{AeadKey, CryptoError, CryptoProvider, HmacKey, MAX_KEY_LEN, MAX_TAG_LEN, NONCE_LEN};
use zeroize::Zeroizing;

use super::FileId;
use crate::cache::sealing_aead;

/// Separates the keys of files from other uses of the key.
const LABEL: &[u8] = b"dunlin frozen associations 1";

/// The kind of a piece. It is part of the nonce, so a piece of one kind does not open as one of another kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The beginning, without content: it tells another key from damage.
    Begin = 0,
    /// Associations.
    Some = 1,
    /// The end: the number of associations.
    End = 2,
}

/// Makes the keys of files.
pub(super) struct FileKeys {
    provider: Arc<CryptoProvider>,
    root: Box<dyn HmacKey>,
}

impl FileKeys {
    pub(super) fn new(provider: &Arc<CryptoProvider>, key: &Zeroizing<[u8; MAX_KEY_LEN]>) -> Self {
        Self { root: provider.sha256.hmac(&key[..]), provider: Arc::clone(provider) }
    }

    /// A new ID.
    pub(super) fn id(&self) -> Result<FileId, CryptoError> {
        let mut id = [0; 16];
        self.provider.random.fill(&mut id)?;
        Ok(FileId(id))
    }

    pub(super) fn sealer(&self, id: &FileId) -> Result<PieceSealer, CryptoError> {
        let aead = sealing_aead(&self.provider).ok_or(CryptoError)?;
        let key = self.root.sign(&[LABEL, &id.0]);
        Ok(PieceSealer { key: aead.key(key.as_ref())?, number: 0 })
    }
}

/// Seals or opens the pieces of one file, in order.
pub(super) struct PieceSealer {
    key: Box<dyn AeadKey>,
    number: u64,
}

impl PieceSealer {
    fn nonce(&mut self, kind: Kind) -> [u8; NONCE_LEN] {
        let mut nonce = [0; NONCE_LEN];
        if let Some((first, counter)) = nonce.split_first_mut() {
            *first = kind as u8;
            counter
                .iter_mut()
                .rev()
                .zip(self.number.to_be_bytes().iter().rev())
                .for_each(|(to, from)| *to = *from);
        }
        self.number += 1;
        nonce
    }

    /// Seals a piece in place, and returns its tag.
    pub(super) fn seal(&mut self, kind: Kind, data: &mut [u8]) -> Result<[u8; MAX_TAG_LEN], CryptoError> {
        let nonce = self.nonce(kind);
        let mut tag = [0; MAX_TAG_LEN];
        self.key.seal(&nonce, &[], data, &mut tag)?;
        Ok(tag)
    }

    /// Opens the next piece in place.
    pub(super) fn open(&mut self, kind: Kind, data: &mut [u8], tag: &[u8]) -> Result<(), CryptoError> {
        let nonce = self.nonce(kind);
        self.key.open(&nonce, &[], data, tag)
    }
}
