//! SHA-256, SHA-384 and HMAC.

use alloc::boxed::Box;
use core::fmt;
use core::marker::PhantomData;

use dunlin::crypto::{Hash, HashAlgorithm, HashContext, HashOutput, HmacKey};
use hmac::{EagerHash, Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha384};
use zeroize::Zeroizing;

/// SHA-256 (FIPS 180-4) and HMAC-SHA-256.
pub static SHA256: &dyn Hash = &Sha2::<Sha256>(HashAlgorithm::Sha256, PhantomData);

/// SHA-384 (FIPS 180-4) and HMAC-SHA-384.
pub static SHA384: &dyn Hash = &Sha2::<Sha384>(HashAlgorithm::Sha384, PhantomData);

struct Sha2<D>(HashAlgorithm, PhantomData<fn() -> D>);

impl<D> fmt::Debug for Sha2<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<D> Hash for Sha2<D>
where
    D: Digest + EagerHash + Clone + Send + Sync + 'static,
    Hmac<D>: Send + Sync,
{
    fn algorithm(&self) -> HashAlgorithm {
        self.0
    }

    fn start(&self) -> Box<dyn HashContext> {
        Box::new(Context(D::new()))
    }

    fn hash(&self, parts: &[&[u8]]) -> HashOutput {
        let mut digest = D::new();
        for part in parts {
            digest.update(part);
        }
        HashOutput::new(&digest.finalize())
    }

    fn hmac(&self, key: &[u8]) -> Box<dyn HmacKey> {
        // A key longer than a block is hashed; a shorter one is padded with zeros (RFC 2104 §2).
        let mut block = Zeroizing::new(hmac::digest::Key::<Hmac<D>>::default());
        let hashed = (key.len() > block.len()).then(|| self.hash(&[key]));
        let key = hashed.as_ref().map_or(key, AsRef::as_ref);
        for (to, from) in block.iter_mut().zip(key) {
            *to = *from;
        }
        Box::new(Key(Hmac::<D>::new(&block)))
    }
}

#[derive(Clone)]
struct Context<D>(D);

impl<D: Digest + Clone + Send + Sync + 'static> HashContext for Context<D> {
    fn update(&mut self, data: &[u8]) {
        self.0.update(data);
    }

    fn current(&self) -> HashOutput {
        HashOutput::new(&self.0.clone().finalize())
    }

    fn fork(&self) -> Box<dyn HashContext> {
        Box::new(self.clone())
    }
}

/// The HMAC states after the inner and outer key blocks, which the `hmac` crate wipes on drop.
struct Key<M>(M);

impl<M: Mac + Clone + Send + Sync> HmacKey for Key<M> {
    fn sign(&self, parts: &[&[u8]]) -> HashOutput {
        let mut mac = self.0.clone();
        for part in parts {
            mac.update(part);
        }
        HashOutput::new(&mac.finalize().into_bytes())
    }
}
