//! Adapts the engine's random source to RustCrypto's trait.

use dunlin::crypto::{CryptoError, SecureRandom};
use rand_core::{TryCryptoRng, TryRng};

/// A [`SecureRandom`] with RustCrypto's interface.
pub(crate) struct Rng<'a>(pub(crate) &'a dyn SecureRandom);

impl TryRng for Rng<'_> {
    type Error = CryptoError;

    fn try_next_u32(&mut self) -> Result<u32, CryptoError> {
        let mut bytes = [0; 4];
        self.0.fill(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    fn try_next_u64(&mut self) -> Result<u64, CryptoError> {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn try_fill_bytes(&mut self, dst: &mut [u8]) -> Result<(), CryptoError> {
        self.0.fill(dst)
    }
}

impl TryCryptoRng for Rng<'_> {}

/// The operating system's random source.
#[cfg(feature = "getrandom")]
#[derive(Clone, Copy, Debug)]
pub struct OsRandom;

#[cfg(feature = "getrandom")]
impl SecureRandom for OsRandom {
    fn fill(&self, buf: &mut [u8]) -> Result<(), CryptoError> {
        getrandom::fill(buf).map_err(|_| CryptoError)
    }
}
