//! HKDF (RFC 5869) over the provider's HMAC, and HKDF-Expand-Label (RFC 8446 §7.1, RFC 9147 §5.9).

use alloc::boxed::Box;

use crate::crypto::{Hash, HashOutput, HmacKey, MAX_HASH_LEN, OwnSecret};
use crate::protocol::Protocol;

/// A secret of the key schedule without its HMAC key, to save memory. Idle connections keep their secrets in
/// this form.
#[derive(Clone)]
pub(crate) struct Secret {
    hash: &'static dyn Hash,
    protocol: Protocol,
    bytes: OwnSecret,
}

impl Secret {
    pub(crate) fn new(hash: &'static dyn Hash, protocol: Protocol, bytes: &HashOutput) -> Self {
        Self { hash, protocol, bytes: OwnSecret::new(bytes.as_ref()) }
    }

    pub(crate) const fn hash(&self) -> &'static dyn Hash {
        self.hash
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    /// Prepares the HMAC key.
    pub(crate) fn prk(&self) -> Prk {
        Prk { hmac: self.hash.hmac(self.bytes()), secret: self.clone() }
    }
}

/// A secret with its HMAC key prepared: the pseudorandom key of RFC 5869. The preparation takes time and,
/// with some libraries, more than a kilobyte.
pub(crate) struct Prk {
    secret: Secret,
    hmac: Box<dyn HmacKey>,
}

impl Prk {
    /// HKDF-Extract(salt, ikm).
    pub(crate) fn extract(hash: &'static dyn Hash, protocol: Protocol, salt: &[u8], ikm: &[u8]) -> Self {
        Secret::new(hash, protocol, &hash.hmac(salt).sign(&[ikm])).prk()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.secret.bytes()
    }

    /// Drops the HMAC key and keeps the secret.
    pub(crate) fn into_secret(self) -> Secret {
        self.secret
    }

    /// HKDF-Expand-Label(secret, label, context, out.len()). `out` has at most 255 hash lengths; a caller
    /// whose length comes from outside must check it first.
    pub(crate) fn expand_label(&self, label: &[u8], context: &[u8], out: &mut [u8]) {
        let prefix = self.secret.protocol.label_prefix();
        // The casts truncate nothing: labels have at most 249 bytes, contexts are hashes, and exporters limit
        // their output.
        let len = (out.len() as u16).to_be_bytes();
        let label_len = [(prefix.len() + label.len()) as u8];
        let context_len = [context.len() as u8];
        let mut block = HashOutput::new(&[]);
        for (i, chunk) in out.chunks_mut(self.secret.hash.algorithm().output_len()).enumerate() {
            let counter = [i as u8 + 1];
            let parts: [&[u8]; 8] =
                [block.as_ref(), &len, &label_len, prefix, label, &context_len, context, &counter];
            block = self.hmac.sign(&parts);
            for (to, from) in chunk.iter_mut().zip(block.as_ref()) {
                *to = *from;
            }
        }
    }

    /// HKDF-Expand-Label with an output of one hash length.
    pub(crate) fn expand_hash(&self, label: &[u8], context: &[u8]) -> HashOutput {
        let mut out = zeroize::Zeroizing::new([0u8; MAX_HASH_LEN]);
        let len = self.secret.hash.algorithm().output_len();
        let Some(bytes) = out.get_mut(..len) else { return HashOutput::new(&[]) };
        self.expand_label(label, context, bytes);
        HashOutput::new(bytes)
    }

    /// Derive-Secret(secret, label, messages), given the hash of the messages.
    pub(crate) fn derive(&self, label: &[u8], transcript_hash: &[u8]) -> Secret {
        let Secret { hash, protocol, .. } = self.secret;
        Secret::new(hash, protocol, &self.expand_hash(label, transcript_hash))
    }

    /// HMAC with this secret as key.
    pub(crate) fn sign(&self, data: &[u8]) -> HashOutput {
        self.hmac.sign(&[data])
    }
}
