//! `DIDProof` (docs/identity.md): what the identifier in the previous VC or DID resolves to, and the proof of it.

use alloc::vec::Vec;

use super::{decode, encode};
use crate::error::Error;
use crate::extension::did_proof::MAX_DID_PROOF;
use crate::wire::HandshakeType;

/// Reads the proof. Only verifiers read its content.
pub(crate) fn read(body: &[u8]) -> Result<&[u8], Error> {
    decode(body, HandshakeType::DID_PROOF, |r| match r.is_empty() {
        true => Err(r.bad_length().into()),
        false => Ok(r.rest_up_to(MAX_DID_PROOF)?),
    })
}

pub(crate) fn write(proof: &[u8]) -> Result<Vec<u8>, Error> {
    encode(HandshakeType::DID_PROOF, |w| w.put(proof))
}
