//! A mixing function instead of a hash, and a constant instead of HMAC.

use dunlin::crypto::{Hash, HashAlgorithm, HashContext, HashOutput, HmacKey, MAX_HASH_LEN};

/// The output of every HMAC, cut to the length of the hash.
pub const MAC: [u8; MAX_HASH_LEN] = [0x4d; MAX_HASH_LEN];

#[derive(Debug)]
pub(crate) struct NullHash(pub(crate) HashAlgorithm);

impl Hash for NullHash {
    fn algorithm(&self) -> HashAlgorithm {
        self.0
    }

    fn start(&self) -> Box<dyn HashContext> {
        Box::new(Mix::new(self.0))
    }

    fn hash(&self, parts: &[&[u8]]) -> HashOutput {
        let mut mix = Mix::new(self.0);
        parts.iter().for_each(|part| mix.update(part));
        mix.current()
    }

    fn hmac(&self, _: &[u8]) -> Box<dyn HmacKey> {
        Box::new(NullMac(self.0))
    }
}

/// FNV-1a over 64 bits (Fowler, Noll and Vo), stretched to the length of the output.
#[derive(Clone)]
struct Mix {
    algorithm: HashAlgorithm,
    state: u64,
}

impl Mix {
    const PRIME: u64 = 0x0000_0100_0000_01b3;

    fn new(algorithm: HashAlgorithm) -> Self {
        Self { algorithm, state: 0xcbf2_9ce4_8422_2325 }
    }
}

impl HashContext for Mix {
    fn update(&mut self, data: &[u8]) {
        for byte in data {
            self.state = (self.state ^ u64::from(*byte)).wrapping_mul(Self::PRIME);
        }
    }

    fn current(&self) -> HashOutput {
        let mut output = [0; MAX_HASH_LEN];
        let mut state = self.state;
        for word in output.chunks_mut(8) {
            word.copy_from_slice(&state.to_be_bytes());
            state = state.wrapping_mul(Self::PRIME).rotate_left(17);
        }
        HashOutput::new(output.get(..self.algorithm.output_len()).unwrap_or(&output))
    }

    fn fork(&self) -> Box<dyn HashContext> {
        Box::new(self.clone())
    }
}

struct NullMac(HashAlgorithm);

impl HmacKey for NullMac {
    fn sign(&self, _: &[&[u8]]) -> HashOutput {
        HashOutput::new(MAC.get(..self.0.output_len()).unwrap_or(&MAC))
    }
}
