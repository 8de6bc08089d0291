//! HKDF (RFC 5869) over the provider's HMAC, and HKDF-Expand-Label (RFC 8446 §7.1, RFC 9147 §5.9).

use alloc::boxed::Box;

use crate::crypto::{Hash, HashOutput, HmacKey, MAX_HASH_LEN};
use crate::role::TransportKind;

/// A secret of the key schedule, with its HMAC key prepared.
pub(crate) struct Secret {
    hash: &'static dyn Hash,
    transport: TransportKind,
    bytes: HashOutput,
    hmac: Box<dyn HmacKey>,
}

impl Secret {
    pub(crate) fn new(hash: &'static dyn Hash, transport: TransportKind, bytes: HashOutput) -> Self {
        let hmac = hash.hmac(bytes.as_ref());
        Self { hash, transport, bytes, hmac }
    }

    /// HKDF-Extract(salt, ikm).
    pub(crate) fn extract(
        hash: &'static dyn Hash,
        transport: TransportKind,
        salt: &[u8],
        ikm: &[u8],
    ) -> Self {
        Self::new(hash, transport, hash.hmac(salt).sign(&[ikm]))
    }

    pub(crate) const fn hash(&self) -> &'static dyn Hash {
        self.hash
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }

    /// HKDF-Expand-Label(secret, label, context, out.len()). `out` is at most 255 hash lengths, which callers
    /// with a length from outside have checked.
    pub(crate) fn expand_label(&self, label: &[u8], context: &[u8], out: &mut [u8]) {
        let prefix = self.transport.label_prefix();
        // No length is truncated: labels are constants of ours below 250 bytes, contexts are hashes, and
        // exporters bound their output.
        let len = (out.len() as u16).to_be_bytes();
        let label_len = [(prefix.len() + label.len()) as u8];
        let context_len = [context.len() as u8];
        let mut block = HashOutput::new(&[]);
        for (i, chunk) in out.chunks_mut(self.hash.algorithm().output_len()).enumerate() {
            let counter = [i as u8 + 1];
            let parts: [&[u8]; 8] =
                [block.as_ref(), &len, &label_len, prefix, label, &context_len, context, &counter];
            block = self.hmac.sign(&parts);
            for (to, from) in chunk.iter_mut().zip(block.as_ref()) {
                *to = *from;
            }
        }
    }

    /// HKDF-Expand-Label to one hash length.
    pub(crate) fn expand_hash(&self, label: &[u8], context: &[u8]) -> HashOutput {
        let mut out = zeroize::Zeroizing::new([0u8; MAX_HASH_LEN]);
        let len = self.hash.algorithm().output_len();
        let Some(bytes) = out.get_mut(..len) else { return HashOutput::new(&[]) };
        self.expand_label(label, context, bytes);
        HashOutput::new(bytes)
    }

    /// Derive-Secret(secret, label, messages), given the hash of the messages.
    pub(crate) fn derive(&self, label: &[u8], transcript_hash: &[u8]) -> Self {
        Self::new(self.hash, self.transport, self.expand_hash(label, transcript_hash))
    }

    /// HMAC with this secret as key.
    pub(crate) fn sign(&self, data: &[u8]) -> HashOutput {
        self.hmac.sign(&[data])
    }
}
