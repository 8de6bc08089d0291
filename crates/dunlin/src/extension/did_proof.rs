//! `did_proof` (docs/identity.md): the holder of a verifiable credential staples the proof of what its
//! decentralised identifier resolves to, so that the peer need not ask a registry.

use alloc::vec::Vec;

use super::{Context, Extension};
use crate::error::Error;
use crate::wire::{ExtensionType, Field, Reader, Writer};

/// The longest proof, in bytes: document, checkpoint, and their proofs.
pub(crate) const MAX_DID_PROOF: usize = 16 * 1024;

/// The most registries in an offer.
pub(crate) const MAX_REGISTRIES: usize = 64;

const WHAT: Field = Field::Extension(ExtensionType::DID_PROOF);

/// A registry whose proofs a side accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownRegistry {
    /// The first eight bytes of the key ID of the registry's log.
    pub key_id: [u8; 8],
    /// The size of the newest log that this side has accepted. It accepts proofs of no smaller one.
    pub oldest_size: u64,
}

/// The registries whose proofs the sender accepts.
pub(crate) struct Registries(pub(crate) Vec<KnownRegistry>);

impl Extension for Registries {
    const TYPE: ExtensionType = ExtensionType::DID_PROOF;
    const IN: &'static [Context] = &[Context::ClientHello, Context::CertificateRequest, Context::SsiRequest];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        let mut list = Reader::new(r.vec16(1)?, WHAT);
        let mut registries = Vec::new();
        while !list.is_empty() {
            list.limit(registries.len() + 1, MAX_REGISTRIES)?;
            registries.push(KnownRegistry { key_id: list.array()?, oldest_size: list.u64()? });
        }
        Ok(Self(registries))
    }

    fn write(&self, w: &mut Writer) {
        w.vec16(|w| {
            for registry in &self.0 {
                w.put(&registry.key_id);
                w.u64(registry.oldest_size);
            }
        });
    }
}

/// The proof, beside the first entry of a Certificate message. Only verifiers read its content.
pub(crate) struct DidProof(pub(crate) Vec<u8>);

impl Extension for DidProof {
    const TYPE: ExtensionType = ExtensionType::DID_PROOF;
    const IN: &'static [Context] = &[Context::Certificate];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error> {
        if r.is_empty() {
            Err(r.bad_length().into())
        } else {
            Ok(Self(r.rest_up_to(MAX_DID_PROOF)?.to_vec()))
        }
    }

    fn write(&self, w: &mut Writer) {
        w.put(&self.0);
    }
}
