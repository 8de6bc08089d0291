//! `DIDProof` and `VCStatus` (docs/identity.md), which follow a VC or DID: what its identifier resolves to,
//! with the proof of it, and the status lists of the credential's issuer.

use alloc::vec::Vec;

use super::{decode, encode};
use crate::error::Error;
use crate::extension::credential_status::MAX_CREDENTIAL_STATUS;
use crate::extension::did_proof::MAX_DID_PROOF;
use crate::wire::HandshakeType;

/// Reads the body of either message. Only verifiers read its content.
pub(crate) fn read(typ: HandshakeType, body: &[u8]) -> Result<&[u8], Error> {
    let max = if typ == HandshakeType::VC_STATUS { MAX_CREDENTIAL_STATUS } else { MAX_DID_PROOF };
    decode(body, typ, |r| if r.is_empty() { Err(r.bad_length().into()) } else { Ok(r.rest_up_to(max)?) })
}

pub(crate) fn write(typ: HandshakeType, content: &[u8]) -> Result<Vec<u8>, Error> {
    encode(typ, |w| w.put(content))
}
