//! A deterministic substitute for a random source, for the simulation only.

use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};

use dunlin::crypto::{CryptoError, SecureRandom};
use dunlin_rustcrypto::SHA256;

/// SHA-256 over a seed and a counter. FOR THE SIMULATION ONLY: the host chose the seed, and the seed reveals
/// every secret. A real device must use its hardware random number generator.
pub(crate) struct SimulationRandom {
    seed: Vec<u8>,
    counter: AtomicU32,
}

impl SimulationRandom {
    pub(crate) const fn new(seed: Vec<u8>) -> Self {
        Self { seed, counter: AtomicU32::new(0) }
    }
}

impl SecureRandom for SimulationRandom {
    fn fill(&self, buf: &mut [u8]) -> Result<(), CryptoError> {
        for block in buf.chunks_mut(SHA256.algorithm().output_len()) {
            let counter = self.counter.fetch_add(1, Ordering::Relaxed).to_be_bytes();
            let output = SHA256.hash(&[&self.seed, &counter]);
            block.iter_mut().zip(output.as_ref()).for_each(|(to, from)| *to = *from);
        }
        Ok(())
    }
}

impl fmt::Debug for SimulationRandom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimulationRandom")
    }
}
