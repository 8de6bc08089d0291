//! Record protection, and masks for record numbers.

use alloc::boxed::Box;

use aes::cipher::{BlockCipherEncrypt, BlockSizeUser, KeyInit};
use aes::{Aes128, Aes256};
use aes_gcm::{Aes128Gcm, Aes256Gcm};
use ccm::Ccm;
use ccm::aead::{AeadInOut, Tag};
use ccm::consts::{U8, U12, U16};
use chacha20::ChaChaCore;
use chacha20::cipher::{KeyIvInit, StreamCipherCore};
use chacha20::variants::Ietf;
use chacha20poly1305::ChaCha20Poly1305;
use dunlin::crypto::{Aead, AeadAlgorithm, AeadKey, CryptoError, NONCE_LEN, RecordNumberKey};
use zeroize::Zeroizing;

/// AES-128-GCM (RFC 5116 §5.1).
pub static AES_128_GCM: &dyn Aead = &Algorithm {
    algorithm: AeadAlgorithm::Aes128Gcm,
    key: aead_key::<Aes128Gcm>,
    record_number_key: aes_mask_key::<Aes128>,
};

/// AES-256-GCM (RFC 5116 §5.2).
pub static AES_256_GCM: &dyn Aead = &Algorithm {
    algorithm: AeadAlgorithm::Aes256Gcm,
    key: aead_key::<Aes256Gcm>,
    record_number_key: aes_mask_key::<Aes256>,
};

/// ChaCha20-Poly1305 (RFC 8439 §2.8).
pub static CHACHA20_POLY1305: &dyn Aead = &Algorithm {
    algorithm: AeadAlgorithm::ChaCha20Poly1305,
    key: aead_key::<ChaCha20Poly1305>,
    record_number_key: chacha20_mask_key,
};

/// AES-128-CCM with a 16-byte tag (RFC 5116 §5.3).
pub static AES_128_CCM: &dyn Aead = &Algorithm {
    algorithm: AeadAlgorithm::Aes128Ccm,
    key: aead_key::<Ccm<Aes128, U16, U12>>,
    record_number_key: aes_mask_key::<Aes128>,
};

/// AES-128-CCM with an 8-byte tag (RFC 6655 §6.1).
pub static AES_128_CCM_8: &dyn Aead = &Algorithm {
    algorithm: AeadAlgorithm::Aes128Ccm8,
    key: aead_key::<Ccm<Aes128, U8, U12>>,
    record_number_key: aes_mask_key::<Aes128>,
};

#[derive(Debug)]
struct Algorithm {
    algorithm: AeadAlgorithm,
    key: Make<dyn AeadKey>,
    record_number_key: Make<dyn RecordNumberKey>,
}

/// Makes a key from bytes, and checks their length.
type Make<K> = fn(&[u8]) -> Result<Box<K>, CryptoError>;

impl Aead for Algorithm {
    fn algorithm(&self) -> AeadAlgorithm {
        self.algorithm
    }

    fn key(&self, key: &[u8]) -> Result<Box<dyn AeadKey>, CryptoError> {
        (self.key)(key)
    }

    fn record_number_key(&self, key: &[u8]) -> Result<Box<dyn RecordNumberKey>, CryptoError> {
        (self.record_number_key)(key)
    }
}

fn aead_key<C>(key: &[u8]) -> Result<Box<dyn AeadKey>, CryptoError>
where
    C: KeyInit + AeadInOut<NonceSize = U12> + Send + Sync + 'static,
{
    let key = C::new_from_slice(key).map_err(|_| CryptoError)?;
    Ok(Box::new(Key(key)))
}

/// An expanded key, which the cipher's crate wipes on drop.
struct Key<C>(C);

impl<C: AeadInOut<NonceSize = U12> + Send + Sync> AeadKey for Key<C> {
    fn seal(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        data: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), CryptoError> {
        let tag: &mut Tag<C> = tag.try_into().map_err(|_| CryptoError)?;
        *tag = self.0.encrypt_inout_detached(nonce.into(), aad, data.into()).map_err(|_| CryptoError)?;
        Ok(())
    }

    fn open(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        data: &mut [u8],
        tag: &[u8],
    ) -> Result<(), CryptoError> {
        let tag: &Tag<C> = tag.try_into().map_err(|_| CryptoError)?;
        self.0.decrypt_inout_detached(nonce.into(), aad, data.into(), tag).map_err(|_| CryptoError)
    }
}

fn aes_mask_key<C>(key: &[u8]) -> Result<Box<dyn RecordNumberKey>, CryptoError>
where
    C: KeyInit + BlockCipherEncrypt + BlockSizeUser<BlockSize = U16> + Send + Sync + 'static,
{
    let key = C::new_from_slice(key).map_err(|_| CryptoError)?;
    Ok(Box::new(AesMask(key)))
}

/// An expanded key, which the `aes` crate wipes on drop.
struct AesMask<C>(C);

impl<C: BlockCipherEncrypt + BlockSizeUser<BlockSize = U16> + Send + Sync> RecordNumberKey for AesMask<C> {
    fn mask(&self, sample: &[u8; 16]) -> [u8; 2] {
        let mut block = (*sample).into();
        self.0.encrypt_block(&mut block);
        let [first, second, ..] = block.0;
        [first, second]
    }
}

fn chacha20_mask_key(key: &[u8]) -> Result<Box<dyn RecordNumberKey>, CryptoError> {
    let key = key.try_into().map_err(|_| CryptoError)?;
    Ok(Box::new(ChaCha20Mask(Zeroizing::new(key))))
}

struct ChaCha20Mask(Zeroizing<[u8; 32]>);

impl RecordNumberKey for ChaCha20Mask {
    fn mask(&self, sample: &[u8; 16]) -> [u8; 2] {
        let [c0, c1, c2, c3, nonce @ ..] = *sample;
        // The stream cipher interface refuses the last block of the key stream, but a peer's sample that
        // begins with ff ff ff ff selects it. So compute the block directly.
        let key: &[u8; 32] = &self.0;
        let mut cipher = ChaChaCore::<chacha20::R20, Ietf>::new(key.into(), &nonce.into());
        cipher.set_block_pos(u32::from_le_bytes([c0, c1, c2, c3]));
        let mut block = Default::default();
        cipher.write_keystream_block(&mut block);
        let [first, second, ..] = block.0;
        [first, second]
    }
}
