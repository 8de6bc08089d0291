//! A random source that is reproducible from a seed.

use std::sync::{Mutex, PoisonError};

use dunlin::crypto::{CryptoError, SecureRandom};

/// A reproducible random source for simulations. It is not secure.
#[derive(Debug)]
pub struct SeededRandom(Mutex<fastrand::Rng>);

impl SeededRandom {
    /// A source with this seed.
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
