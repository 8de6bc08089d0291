//! SHA-256, SHA-384 and HMAC.

use aws_lc_rs::{digest, hmac};
use dunlin::crypto::{Hash, HashAlgorithm, HashContext, HashOutput, HmacKey};

/// SHA-256 (FIPS 180-4) and HMAC-SHA-256.
pub static SHA256: &dyn Hash =
    &Sha2 { algorithm: HashAlgorithm::Sha256, digest: &digest::SHA256, hmac: hmac::HMAC_SHA256 };

/// SHA-384 (FIPS 180-4) and HMAC-SHA-384.
pub static SHA384: &dyn Hash =
    &Sha2 { algorithm: HashAlgorithm::Sha384, digest: &digest::SHA384, hmac: hmac::HMAC_SHA384 };

#[derive(Debug)]
struct Sha2 {
    algorithm: HashAlgorithm,
    digest: &'static digest::Algorithm,
    hmac: hmac::Algorithm,
}

impl Hash for Sha2 {
    fn algorithm(&self) -> HashAlgorithm {
        self.algorithm
    }

    fn start(&self) -> Box<dyn HashContext> {
        Box::new(Context(digest::Context::new(self.digest)))
    }

    fn hash(&self, parts: &[&[u8]]) -> HashOutput {
        // Hashing in one call needs no context on the heap.
        if let [whole] = parts {
            return HashOutput::new(digest::digest(self.digest, whole).as_ref());
        }
        let mut context = digest::Context::new(self.digest);
        for part in parts {
            context.update(part);
        }
        HashOutput::new(context.finish().as_ref())
    }

    fn hmac(&self, key: &[u8]) -> Box<dyn HmacKey> {
        Box::new(Key(hmac::Key::new(self.hmac, key)))
    }
}

#[derive(Clone)]
struct Context(digest::Context);

impl HashContext for Context {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn current(&self) -> HashOutput {
        HashOutput::new(self.0.clone().finish().as_ref())
    }

    fn fork(&self) -> Box<dyn HashContext> {
        Box::new(self.clone())
    }
}

/// The HMAC state after the key block, which AWS-LC wipes on drop.
struct Key(hmac::Key);

impl HmacKey for Key {
    fn sign(&self, parts: &[&[u8]]) -> HashOutput {
        let mut context = hmac::Context::with_key(&self.0);
        for part in parts {
            context.update(part);
        }
        HashOutput::new(context.sign().as_ref())
    }
}
