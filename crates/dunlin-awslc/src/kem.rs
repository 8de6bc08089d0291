//! ML-KEM, alone and combined with a curve.

use aws_lc_rs::kem::{self, Algorithm, AlgorithmId, Ciphertext, DecapsulationKey, EncapsulationKey};
use dunlin::crypto::{
    ActiveKeyExchange, CryptoError, HybridGroup, HybridOrder, KeyExchangeGroup, SecureRandom, SharedSecret,
};
use dunlin::wire::NamedGroup;

/// X25519 combined with ML-KEM-768 (draft-ietf-tls-ecdhe-mlkem): post-quantum, and at least as strong as
/// X25519. The client's share has 1216 bytes, the server's 1120.
pub static X25519MLKEM768: &dyn KeyExchangeGroup = &HybridGroup {
    name: NamedGroup::X25519MLKEM768,
    order: HybridOrder::KemFirst,
    kem: ML_KEM_768,
    encapsulation_key_len: 1184,
    ciphertext_len: 1088,
    curve: crate::X25519,
};

/// P-256 combined with ML-KEM-768 (draft-ietf-tls-ecdhe-mlkem): post-quantum, at least as strong as P-256,
/// and made of algorithms that FIPS approves. The client's share has 1249 bytes, the server's 1153.
pub static SECP256R1MLKEM768: &dyn KeyExchangeGroup = &HybridGroup {
    name: NamedGroup::SECP256R1MLKEM768,
    order: HybridOrder::CurveFirst,
    kem: ML_KEM_768,
    encapsulation_key_len: 1184,
    ciphertext_len: 1088,
    curve: crate::SECP256R1,
};

/// ML-KEM-512 (FIPS 203) alone (draft-ietf-tls-mlkem), for slow links: the client's share has 800 bytes, the
/// server's 768. No default list has it. A combination with a curve would be safe as long as one of the two
/// is unbroken.
pub static ML_KEM_512: &dyn KeyExchangeGroup =
    &MlKem { name: NamedGroup::MLKEM512, algorithm: &kem::ML_KEM_512 };

/// ML-KEM-768 (FIPS 203) alone (draft-ietf-tls-mlkem). AWS-LC uses its own random generator for it.
pub static ML_KEM_768: &dyn KeyExchangeGroup =
    &MlKem { name: NamedGroup::MLKEM768, algorithm: &kem::ML_KEM_768 };

/// ML-KEM-1024 alone, for users whose regulations demand it. Each share has 1568 bytes.
pub static ML_KEM_1024: &dyn KeyExchangeGroup =
    &MlKem { name: NamedGroup::MLKEM1024, algorithm: &kem::ML_KEM_1024 };

#[derive(Debug)]
struct MlKem {
    name: NamedGroup,
    algorithm: &'static Algorithm<AlgorithmId>,
}

impl KeyExchangeGroup for MlKem {
    fn name(&self) -> NamedGroup {
        self.name
    }

    fn start(&self, _: &dyn SecureRandom) -> Result<Box<dyn ActiveKeyExchange>, CryptoError> {
        let key = DecapsulationKey::generate(self.algorithm).map_err(|_| CryptoError)?;
        let share = key.encapsulation_key().and_then(|public| public.key_bytes()).map_err(|_| CryptoError)?;
        Ok(Box::new(Exchange { share: share.as_ref().to_vec(), key }))
    }

    fn respond(&self, _: &dyn SecureRandom, peer: &[u8]) -> Result<(Vec<u8>, SharedSecret), CryptoError> {
        // `new` checks the length, `encapsulate` the modulus (FIPS 203 §7.2).
        let key = EncapsulationKey::new(self.algorithm, peer).map_err(|_| CryptoError)?;
        let (ciphertext, secret) = key.encapsulate().map_err(|_| CryptoError)?;
        Ok((ciphertext.as_ref().to_vec(), SharedSecret::new(secret.as_ref().to_vec())))
    }
}

/// AWS-LC wipes the key on drop.
struct Exchange {
    key: DecapsulationKey,
    share: Vec<u8>,
}

impl ActiveKeyExchange for Exchange {
    fn share(&self) -> &[u8] {
        &self.share
    }

    fn complete(&self, peer: &[u8]) -> Result<SharedSecret, CryptoError> {
        // AWS-LC checks the length (FIPS 203 §7.3). An invalid ciphertext of that length gives an unrelated
        // secret (§6.3).
        let secret = self.key.decapsulate(Ciphertext::from(peer)).map_err(|_| CryptoError)?;
        Ok(SharedSecret::new(secret.as_ref().to_vec()))
    }
}
