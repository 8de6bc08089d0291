//! Randomness that follows from a seed.

use std::sync::{Mutex, PoisonError};

use dunlin::crypto::{CryptoError, SecureRandom};

/// A reproducible source of randomness. It is not secure, only the simulation of a source that is.
#[derive(Debug)]
pub struct SeededRandom(Mutex<fastrand::Rng>);

impl SeededRandom {
    /// The source with this seed.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(fastrand::Rng::with_seed(seed)))
    }
}

impl SecureRandom for SeededRandom {
    fn fill(&self, buf: &mut [u8]) -> Result<(), CryptoError> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).fill(buf);
        Ok(())
    }
}
