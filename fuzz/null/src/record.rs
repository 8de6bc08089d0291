//! Records without protection.

use dunlin::crypto::{
    Aead, AeadAlgorithm, AeadKey, CryptoError, HashAlgorithm, MAX_TAG_LEN, NONCE_LEN, RecordNumberKey,
    Tls13CipherSuite,
};
use dunlin::wire::CipherSuite;

use crate::hash::NullHash;

/// The tag of every record, cut to the length for the algorithm.
pub const TAG: [u8; MAX_TAG_LEN] = [0x54; MAX_TAG_LEN];

pub(crate) static SUITES: [Tls13CipherSuite; 5] = [
    Tls13CipherSuite {
        id: CipherSuite::TLS_AES_128_GCM_SHA256,
        hash: &NullHash(HashAlgorithm::Sha256),
        aead: &NullAead(AeadAlgorithm::Aes128Gcm),
    },
    Tls13CipherSuite {
        id: CipherSuite::TLS_AES_256_GCM_SHA384,
        hash: &NullHash(HashAlgorithm::Sha384),
        aead: &NullAead(AeadAlgorithm::Aes256Gcm),
    },
    Tls13CipherSuite {
        id: CipherSuite::TLS_CHACHA20_POLY1305_SHA256,
        hash: &NullHash(HashAlgorithm::Sha256),
        aead: &NullAead(AeadAlgorithm::ChaCha20Poly1305),
    },
    Tls13CipherSuite {
        id: CipherSuite::TLS_AES_128_CCM_SHA256,
        hash: &NullHash(HashAlgorithm::Sha256),
        aead: &NullAead(AeadAlgorithm::Aes128Ccm),
    },
    Tls13CipherSuite {
        id: CipherSuite::TLS_AES_128_CCM_8_SHA256,
        hash: &NullHash(HashAlgorithm::Sha256),
        aead: &NullAead(AeadAlgorithm::Aes128Ccm8),
    },
];

#[derive(Debug)]
pub(crate) struct NullAead(pub(crate) AeadAlgorithm);

impl NullAead {
    fn check_len(&self, key: &[u8]) -> Result<(), CryptoError> {
        if key.len() == self.0.key_len() { Ok(()) } else { Err(CryptoError) }
    }
}

impl Aead for NullAead {
    fn algorithm(&self) -> AeadAlgorithm {
        self.0
    }

    fn key(&self, key: &[u8]) -> Result<Box<dyn AeadKey>, CryptoError> {
        self.check_len(key)?;
        Ok(Box::new(NullKey { tag_len: self.0.tag_len() }))
    }

    fn record_number_key(&self, key: &[u8]) -> Result<Box<dyn RecordNumberKey>, CryptoError> {
        self.check_len(key)?;
        Ok(Box::new(NullMask))
    }
}

struct NullKey {
    tag_len: usize,
}

impl AeadKey for NullKey {
    fn seal(&self, _: &[u8; NONCE_LEN], _: &[u8], _: &mut [u8], tag: &mut [u8]) -> Result<(), CryptoError> {
        if tag.len() != self.tag_len {
            return Err(CryptoError);
        }
        tag.iter_mut().zip(TAG).for_each(|(to, from)| *to = from);
        Ok(())
    }

    fn open(&self, _: &[u8; NONCE_LEN], _: &[u8], _: &mut [u8], tag: &[u8]) -> Result<(), CryptoError> {
        if Some(tag) == TAG.get(..self.tag_len) { Ok(()) } else { Err(CryptoError) }
    }
}

struct NullMask;

impl RecordNumberKey for NullMask {
    fn mask(&self, _: &[u8; 16]) -> [u8; 2] {
        [0; 2]
    }
}
