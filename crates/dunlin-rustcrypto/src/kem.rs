//! ML-KEM, alone and combined with a curve.

use alloc::boxed::Box;
use alloc::vec::Vec;

use dunlin::crypto::{
    ActiveKeyExchange, CryptoError, HybridGroup, HybridOrder, KeyExchangeGroup, SecureRandom, SharedSecret,
};
use dunlin::wire::NamedGroup;
use ml_kem::{B32, Decapsulate, KeyExport, Seed};
use zeroize::Zeroizing;

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

/// Declares ML-KEM with one set of parameters. A macro, because the library's traits leave out what this
/// needs: keys from a seed, and encapsulation with given randomness.
macro_rules! ml_kem {
    ($(#[$doc:meta])* $group:ident: $name:ident, $module:ident) => {
        $(#[$doc])*
        pub static $group: &dyn KeyExchangeGroup = &$module::Group;

        mod $module {
            use super::*;
            use ml_kem::$module::{Ciphertext, DecapsulationKey, EncapsulationKey};

            #[derive(Debug)]
            pub(super) struct Group;

            impl KeyExchangeGroup for Group {
                fn name(&self) -> NamedGroup {
                    NamedGroup::$name
                }

                fn start(&self, random: &dyn SecureRandom) -> Result<Box<dyn ActiveKeyExchange>, CryptoError> {
                    let mut seed = Zeroizing::new(Seed::default());
                    random.fill(&mut seed)?;
                    let key = DecapsulationKey::from_seed(*seed);
                    let share = key.encapsulation_key().to_bytes().to_vec();
                    Ok(Box::new(Exchange { key, share }))
                }

                fn respond(
                    &self,
                    random: &dyn SecureRandom,
                    peer: &[u8],
                ) -> Result<(Vec<u8>, SharedSecret), CryptoError> {
                    let peer = peer.try_into().map_err(|_| CryptoError)?;
                    // This checks the modulus (FIPS 203 §7.2).
                    let key = EncapsulationKey::new(peer).map_err(|_| CryptoError)?;
                    let mut message = Zeroizing::new(B32::default());
                    random.fill(&mut message)?;
                    let (ciphertext, secret) = key.encapsulate_deterministic(&message);
                    let secret = Zeroizing::new(secret);
                    Ok((ciphertext.to_vec(), SharedSecret::new(secret.to_vec())))
                }
            }

            /// The key wipes itself on drop.
            struct Exchange {
                key: DecapsulationKey,
                share: Vec<u8>,
            }

            impl ActiveKeyExchange for Exchange {
                fn share(&self) -> &[u8] {
                    &self.share
                }

                fn complete(&self, peer: &[u8]) -> Result<SharedSecret, CryptoError> {
                    // The conversion checks the length (FIPS 203 §7.3). An invalid ciphertext of that length
                    // gives an unrelated secret (§6.3).
                    let ciphertext: &Ciphertext = peer.try_into().map_err(|_| CryptoError)?;
                    let secret = Zeroizing::new(self.key.decapsulate(ciphertext));
                    Ok(SharedSecret::new(secret.to_vec()))
                }
            }
        }
    };
}

ml_kem! {
    /// ML-KEM-512 (FIPS 203) alone (draft-ietf-tls-mlkem), for slow links: the client's share has 800 bytes,
    /// the server's
    /// 768. No default list has it. A combination with a curve would be safe as long as one of the two is
    ///      unbroken.
    ML_KEM_512: MLKEM512, ml_kem_512
}

ml_kem! {
    /// ML-KEM-768 (FIPS 203) alone (draft-ietf-tls-mlkem).
    ML_KEM_768: MLKEM768, ml_kem_768
}
