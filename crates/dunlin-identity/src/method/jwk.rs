//! `did:jwk`: the identifier is a JWK in base64url (github.com/quartzjer/did-jwk, spec.md).

use alloc::format;

use base64ct::{Base64UrlUnpadded, Encoding};
use serde_json::{Value, json};

use super::{Method, MethodError};
use crate::did::Did;
use crate::document::{DID_CONTEXT, DidDocument, JWS_2020_CONTEXT};
use crate::encoding::json::{self, JsonFault};
use crate::key::{KeyError, PublicKey};

/// `did:jwk` with Ed25519, P-256, P-384 and RSA. A DID that it makes contains the JWK in canonical form.
#[derive(Debug)]
pub struct Jwk;

/// The method, for [`Methods`](super::Methods).
pub static JWK: Jwk = Jwk;

impl Method for Jwk {
    fn name(&self) -> &'static str {
        "jwk"
    }

    fn create(&self, key: &PublicKey) -> Result<Did, MethodError> {
        let fault = |fault: JsonFault| MethodError::Document(fault.into());
        let text = json::canonical(&key.to_jwk()).map_err(fault)?;
        Ok(format!("did:jwk:{}", Base64UrlUnpadded::encode_string(text.as_bytes())).parse()?)
    }

    fn resolve(&self, did: &Did) -> Result<DidDocument, MethodError> {
        self.check(did)?;
        let text =
            Base64UrlUnpadded::decode_vec(did.identifier()).map_err(|_| MethodError::Encoding("jwk"))?;
        let jwk = json::read(&text)?;
        let object = jwk.as_object().ok_or(MethodError::Encoding("jwk"))?;
        // A key for encryption has a valid document, without a key that this crate uses.
        let signs = match PublicKey::from_jwk(object) {
            Ok(_) => true,
            Err(KeyError::Use) => false,
            Err(error) => return Err(MethodError::Key("jwk", error)),
        };
        let id = format!("{did}#0");
        let mut document = json!({
            "@context": [DID_CONTEXT, JWS_2020_CONTEXT],
            "id": did.as_str(),
            "verificationMethod": [{
                "id": id,
                "type": "JsonWebKey2020",
                "controller": did.as_str(),
                "publicKeyJwk": jwk,
            }],
        });
        let signing = ["assertionMethod", "authentication", "capabilityInvocation", "capabilityDelegation"];
        // spec.md, Create: `use` selects the relationships.
        let agrees = object.get("use").and_then(Value::as_str) != Some("sig");
        let names = signing.into_iter().filter(|_| signs).chain(Some("keyAgreement").filter(|_| agrees));
        for name in names {
            document[name] = json!([id]);
        }
        Ok(DidDocument::from_value(document, did)?)
    }
}
