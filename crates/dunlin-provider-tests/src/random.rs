//! Predictable random sources for tests.

use std::sync::Mutex;

use dunlin::crypto::{CryptoError, SecureRandom};

/// Returns fixed bytes, then fails.
#[derive(Debug)]
pub struct Script(Mutex<Vec<u8>>);

impl Script {
    /// A source that returns the concatenation of `parts`.
    pub fn new(parts: &[&[u8]]) -> Self {
        Self(Mutex::new(parts.concat()))
    }
}

impl SecureRandom for Script {
    fn fill(&self, buf: &mut [u8]) -> Result<(), CryptoError> {
        let mut bytes = self.0.lock().unwrap();
        if bytes.len() < buf.len() {
            return Err(CryptoError);
        }
        let rest = bytes.split_off(buf.len());
        buf.copy_from_slice(&bytes);
        *bytes = rest;
        Ok(())
    }
}

/// A reproducible stream: SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Debug)]
pub struct Reproducible(Mutex<u64>);

impl Reproducible {
    /// The stream with this seed.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(seed))
    }

    /// The next `len` bytes.
    pub fn bytes(&self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.fill(&mut bytes).unwrap();
        bytes
    }
}

impl SecureRandom for Reproducible {
    fn fill(&self, buf: &mut [u8]) -> Result<(), CryptoError> {
        let mut state = self.0.lock().unwrap();
        for chunk in buf.chunks_mut(8) {
            *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = *state;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            chunk.copy_from_slice(&(z ^ (z >> 31)).to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

/// Always fails.
#[derive(Debug)]
pub struct Broken;

impl SecureRandom for Broken {
    fn fill(&self, _: &mut [u8]) -> Result<(), CryptoError> {
        Err(CryptoError)
    }
}
