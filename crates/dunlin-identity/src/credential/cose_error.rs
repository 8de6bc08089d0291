//! Why compact credentials are refused.

use crate::encoding::cbor::CborError;
use crate::encoding::json::JsonFault;
use crate::key::{KeyError, KeyType};

/// Why a compact credential is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CoseError {
    /// The message is not deterministic CBOR.
    #[error("COSE: {0}")]
    Message(CborError),
    /// The protected header is not deterministic CBOR.
    #[error("COSE, protected header: {0}")]
    Header(CborError),
    /// The payload is not deterministic CBOR.
    #[error("COSE, payload: {0}")]
    Content(CborError),
    /// The message is not a COSE_Sign1 with a payload and an empty unprotected header.
    #[error("COSE: the message is not a COSE_Sign1 with an empty unprotected header")]
    Structure,
    /// The protected header has other members than an algorithm and a key ID, or a malformed one.
    #[error("COSE: the protected header is not an algorithm and a key ID")]
    Members,
    /// The algorithm is unknown.
    #[error("COSE: unknown algorithm {0}")]
    Algorithm(i64),
    /// The key has another type than the algorithm.
    #[error("COSE: the algorithm does not fit the issuer's {0} key")]
    KeyType(KeyType),
    /// The key ID is not a fragment, is missing, or is there although it goes without saying.
    #[error("COSE: malformed, missing or redundant key ID")]
    KeyId,
    /// The payload is not a map, or contains a tag.
    #[error("COSE: the payload is not a credential")]
    Payload,
    /// A map of the payload has this label, which stands for no member.
    #[error("COSE, payload: unknown label {0}")]
    Label(String),
    /// The payload contains these bytes, which are not the short form of a text.
    #[error("COSE, payload: bytes {0} are not the short form of a text")]
    Bytes(String),
    /// The payload writes something out that has a short form.
    #[error("COSE, payload: something has a shorter form")]
    NotShort,
    /// A value does not exist in both JSON and CBOR.
    #[error("COSE, payload: {0}")]
    Value(#[from] JsonFault),
    /// The signature is wrong, or the key cannot sign.
    #[error("COSE: {0}")]
    Key(#[from] KeyError),
}
