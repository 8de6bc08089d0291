//! Compact credentials: a COSE_Sign1 (RFC 9052 §4.2) over the credential's short form in deterministic CBOR.

use dunlin::crypto::{CryptoProvider, SigningKey};
use serde_json::Value;

use super::cose_error::CoseError;
use super::short;
use crate::did::{Did, DidUrl};
use crate::encoding::cbor::{self, Cbor};
use crate::key::{self, KeyType, PublicKey};

/// The first byte: the tag of COSE_Sign1, 18.
pub const COSE_SIGN1: u8 = 0xd2;

/// The external data of the signature. It separates these signatures from others by the same keys and costs
/// no byte on the wire.
const CONTEXT: &[u8] = b"dunlin compact credential 1";

/// The algorithm of keys of a type (RFC 9864 §2.1, §2.2; RFC 8230 §2; draft-ietf-cose-dilithium §7). Each
/// fixes curve and hash.
const fn algorithm(typ: KeyType) -> i64 {
    match typ {
        KeyType::Ed25519 => -19,
        KeyType::P256 => -9,
        KeyType::P384 => -51,
        KeyType::Rsa => -37,
        KeyType::MlDsa44 => -48,
    }
}

/// The fragment of the only key that a new document of the method has; the key ID is left out for it.
fn usual_fragment(did: &Did) -> Option<&str> {
    match did.method() {
        "key" => Some(did.identifier()),
        "jwk" => Some("0"),
        "dunlin" => Some("key-0"),
        _ => None,
    }
}

/// A compact credential before its signature is verified.
pub(super) struct Cose {
    pub(super) credential: Value,
    typ: KeyType,
    key_id: Option<Vec<u8>>,
    signed: Vec<u8>,
    signature: Vec<u8>,
}

impl Cose {
    pub(super) fn read(message: &[u8], limit: usize) -> Result<Self, CoseError> {
        let Cbor::Tag(18, content) = cbor::read_bounded(message, limit).map_err(CoseError::Message)? else {
            return Err(CoseError::Structure);
        };
        let Cbor::Array(parts) = *content else { return Err(CoseError::Structure) };
        let [Cbor::Bytes(header), Cbor::Map(unprotected), Cbor::Bytes(payload), Cbor::Bytes(signature)] =
            parts.as_slice()
        else {
            return Err(CoseError::Structure);
        };
        // The signature does not cover the unprotected header.
        if !unprotected.is_empty() {
            return Err(CoseError::Structure);
        }
        let Cbor::Map(members) = cbor::read(header).map_err(CoseError::Header)? else {
            return Err(CoseError::Members);
        };
        // RFC 9052 §3.1: labels 1 (alg) and 4 (kid). A key in the header would let the credential bring its
        // own.
        let (name, key_id) = match members.as_slice() {
            [(Cbor::Unsigned(1), name)] => (name, None),
            [(Cbor::Unsigned(1), name), (Cbor::Unsigned(4), Cbor::Bytes(key_id))] => {
                (name, Some(key_id.clone()))
            }
            _ => return Err(CoseError::Members),
        };
        let name = name.as_integer().ok_or(CoseError::Members)?;
        let typ = KeyType::ALL.into_iter().find(|typ| algorithm(*typ) == name);
        let typ = typ.ok_or(CoseError::Algorithm(name))?;
        let credential = short::expand(&cbor::read_bounded(payload, limit).map_err(CoseError::Content)?)?;
        let signed = signed_bytes(header, payload);
        Ok(Self { credential, typ, key_id, signed, signature: signature.clone() })
    }

    /// The verification method of the issuer that is said to have signed.
    pub(super) fn method(&self, issuer: &str) -> Result<DidUrl, CoseError> {
        let issuer: Did = issuer.parse().map_err(|_| CoseError::KeyId)?;
        let usual = usual_fragment(&issuer);
        let fragment = match &self.key_id {
            None => usual,
            Some(id) => str::from_utf8(id).ok().filter(|id| Some(*id) != usual),
        };
        issuer.with_fragment(fragment.ok_or(CoseError::KeyId)?).map_err(|_| CoseError::KeyId)
    }

    pub(super) fn verify(&self, provider: &CryptoProvider, key: &PublicKey) -> Result<(), CoseError> {
        if key.key_type() != self.typ {
            return Err(CoseError::KeyType(key.key_type()));
        }
        Ok(key.verify(provider, self.typ.default_scheme(), &self.signed, &self.signature)?)
    }
}

/// Signs a credential with `signer`, whose key is the verification method `method`.
pub(super) fn sign(
    provider: &CryptoProvider,
    signer: &dyn SigningKey,
    method: &DidUrl,
    credential: &Value,
) -> Result<Vec<u8>, CoseError> {
    let typ = PublicKey::from_spki(signer.public_key())?.key_type();
    let fragment = method.fragment().ok_or(CoseError::KeyId)?;
    let mut members = vec![(Cbor::Unsigned(1), algorithm(typ).into())];
    if usual_fragment(method.did()) != Some(fragment) {
        members.push((Cbor::Unsigned(4), Cbor::Bytes(fragment.into())));
    }
    let header = cbor::write(&Cbor::Map(members));
    let payload = cbor::write(&short::compact(credential)?);
    let signature = key::sign(signer, provider, typ.default_scheme(), &signed_bytes(&header, &payload))?;
    let parts = [Cbor::Bytes(header), Cbor::Map(Vec::new()), Cbor::Bytes(payload), Cbor::Bytes(signature)];
    Ok(cbor::write(&Cbor::Tag(18, Box::new(Cbor::Array(parts.into())))))
}

/// The Sig_structure (RFC 9052 §4.4).
fn signed_bytes(header: &[u8], payload: &[u8]) -> Vec<u8> {
    let context = Cbor::Text("Signature1".to_owned());
    let parts = [header, CONTEXT, payload].map(|part| Cbor::Bytes(part.to_vec()));
    cbor::write(&Cbor::Array([vec![context], parts.into()].concat()))
}
