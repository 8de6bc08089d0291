//! Record protection, and masks for record numbers.

use aes::Aes128;
use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey, quic};
use ccm::aead::{AeadInOut, Tag};
use ccm::consts::{U8, U12, U16};
use ccm::{Ccm, KeyInit};
use dunlin::crypto::{Aead, AeadAlgorithm, AeadKey, CryptoError, NONCE_LEN, RecordNumberKey};

/// AES-128-GCM (RFC 5116 §5.1).
pub static AES_128_GCM: &dyn Aead =
    &AwsLc { algorithm: AeadAlgorithm::Aes128Gcm, aead: &aead::AES_128_GCM, record_number: &quic::AES_128 };

/// AES-256-GCM (RFC 5116 §5.2).
pub static AES_256_GCM: &dyn Aead =
    &AwsLc { algorithm: AeadAlgorithm::Aes256Gcm, aead: &aead::AES_256_GCM, record_number: &quic::AES_256 };

/// ChaCha20-Poly1305 (RFC 8439 §2.8).
pub static CHACHA20_POLY1305: &dyn Aead = &AwsLc {
    algorithm: AeadAlgorithm::ChaCha20Poly1305,
    aead: &aead::CHACHA20_POLY1305,
    record_number: &quic::CHACHA20,
};

/// AES-128-CCM with a 16-byte tag (RFC 5116 §5.3).
pub static AES_128_CCM: &dyn Aead =
    &AesCcm { algorithm: AeadAlgorithm::Aes128Ccm, key: ccm_key::<Ccm<Aes128, U16, U12>> };

/// AES-128-CCM with an 8-byte tag (RFC 6655 §6.1).
pub static AES_128_CCM_8: &dyn Aead =
    &AesCcm { algorithm: AeadAlgorithm::Aes128Ccm8, key: ccm_key::<Ccm<Aes128, U8, U12>> };

#[derive(Debug)]
struct AwsLc {
    algorithm: AeadAlgorithm,
    aead: &'static aead::Algorithm,
    record_number: &'static quic::Algorithm,
}

impl Aead for AwsLc {
    fn algorithm(&self) -> AeadAlgorithm {
        self.algorithm
    }

    fn key(&self, key: &[u8]) -> Result<Box<dyn AeadKey>, CryptoError> {
        let key = UnboundKey::new(self.aead, key).map_err(|_| CryptoError)?;
        Ok(Box::new(AwsLcKey(LessSafeKey::new(key))))
    }

    fn record_number_key(&self, key: &[u8]) -> Result<Box<dyn RecordNumberKey>, CryptoError> {
        mask_key(self.record_number, key)
    }
}

/// An `EVP_AEAD_CTX`, which AWS-LC wipes on drop.
struct AwsLcKey(LessSafeKey);

impl AeadKey for AwsLcKey {
    fn seal(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        data: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), CryptoError> {
        // This method writes the tag into `tag` and checks its length.
        let nonce = Nonce::assume_unique_for_key(*nonce);
        self.0.seal_in_place_scatter(nonce, Aad::from(aad), data, &[], tag).map_err(|_| CryptoError)
    }

    fn open(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        data: &mut [u8],
        tag: &[u8],
    ) -> Result<(), CryptoError> {
        let nonce = Nonce::assume_unique_for_key(*nonce);
        self.0
            .open_in_place_separate_tag(nonce, Aad::from(aad), tag, data)
            .map(|_| ())
            .map_err(|_| CryptoError)
    }
}

fn mask_key(
    algorithm: &'static quic::Algorithm,
    key: &[u8],
) -> Result<Box<dyn RecordNumberKey>, CryptoError> {
    let key = quic::HeaderProtectionKey::new(algorithm, key).map_err(|_| CryptoError)?;
    Ok(Box::new(MaskKey(key)))
}

/// The expanded key, which aws-lc-rs wipes on drop.
struct MaskKey(quic::HeaderProtectionKey);

impl RecordNumberKey for MaskKey {
    /// DTLS computes the mask as QUIC does (RFC 9147 §4.2.3, RFC 9001 §5.4.3 and §5.4.4).
    fn mask(&self, sample: &[u8; 16]) -> [u8; 2] {
        // It fails only for a sample of another length, which the type rules out.
        self.0.new_mask(sample).map_or([0; 2], |[first, second, ..]| [first, second])
    }
}

#[derive(Debug)]
struct AesCcm {
    algorithm: AeadAlgorithm,
    key: MakeKey,
}

type MakeKey = fn(&[u8]) -> Result<Box<dyn AeadKey>, CryptoError>;

impl Aead for AesCcm {
    fn algorithm(&self) -> AeadAlgorithm {
        self.algorithm
    }

    fn key(&self, key: &[u8]) -> Result<Box<dyn AeadKey>, CryptoError> {
        (self.key)(key)
    }

    fn record_number_key(&self, key: &[u8]) -> Result<Box<dyn RecordNumberKey>, CryptoError> {
        mask_key(&quic::AES_128, key)
    }
}

fn ccm_key<C>(key: &[u8]) -> Result<Box<dyn AeadKey>, CryptoError>
where
    C: KeyInit + AeadInOut<NonceSize = U12> + Send + Sync + 'static,
{
    let key = C::new_from_slice(key).map_err(|_| CryptoError)?;
    Ok(Box::new(CcmKey(key)))
}

/// The expanded AES key, which the `aes` crate wipes on drop.
struct CcmKey<C>(C);

impl<C: AeadInOut<NonceSize = U12> + Send + Sync> AeadKey for CcmKey<C> {
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
