//! Credentials as JWTs: a compact JWS over the credential itself (W3C VC-JOSE-COSE §3.1.1, RFC 7515, RFC
//! 7519).

use base64ct::{Base64UrlUnpadded, Encoding};
use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin::wire::SignatureScheme;
use serde_json::{Map, Value, json};

use super::{Seconds, shown};
use crate::did::DidUrl;
use crate::encoding::json::{self, JsonError, JsonFault};
use crate::key::{self, KeyError, KeyType, PublicKey};

/// The longest header of a JWT, in bytes, before its encoding. It holds a DID URL and three short texts.
pub const MAX_JWT_HEADER: usize = 4096;

/// Why a JWT is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JwtError {
    /// It does not have three parts in base64url without padding.
    #[error("malformed JWT")]
    Parts,
    /// Header or payload is not acceptable JSON.
    #[error("JWT: {0}")]
    Json(#[from] JsonError),
    /// A value cannot be written in canonical form.
    #[error("JWT: {0}")]
    Canonical(#[from] JsonFault),
    /// A member of the header is missing or malformed, or has another value than a credential's.
    #[error("JWT: missing or malformed header {0:?}")]
    Header(&'static str),
    /// The header has a member that this version does not allow: keys come from the issuer's document, and
    /// extensions are unknown.
    #[error("JWT: unexpected header {0:?}")]
    Unexpected(String),
    /// The algorithm is `none` or unknown.
    #[error("JWT: unknown algorithm {0:?}")]
    Algorithm(String),
    /// The key has another type than the algorithm.
    #[error("JWT: the algorithm does not fit the issuer's {0} key")]
    KeyType(KeyType),
    /// A registered claim contradicts the credential, is malformed, or must not be there.
    #[error("JWT: the claim {0:?} contradicts the credential or is malformed")]
    Claim(&'static str),
    /// The claim `nbf` or `iat` is later than now.
    #[error("JWT: it is not valid yet")]
    NotYetValid,
    /// The claim `exp` is not later than now.
    #[error("JWT: it has expired")]
    Expired,
    /// The signature is wrong, or the key cannot sign.
    #[error("JWT: {0}")]
    Key(#[from] KeyError),
}

/// The algorithms that verify, the first of a scheme also the one that signs (RFC 7518 §3.1, RFC 8037 §3.1,
/// RFC 9864 §2.2, draft-ietf-cose-dilithium §7).
const ALGORITHMS: [(&str, SignatureScheme); 8] = [
    ("EdDSA", SignatureScheme::ED25519),
    ("Ed25519", SignatureScheme::ED25519),
    ("ES256", SignatureScheme::ECDSA_SECP256R1_SHA256),
    ("ES384", SignatureScheme::ECDSA_SECP384R1_SHA384),
    ("PS256", SignatureScheme::RSA_PSS_RSAE_SHA256),
    ("PS384", SignatureScheme::RSA_PSS_RSAE_SHA384),
    ("PS512", SignatureScheme::RSA_PSS_RSAE_SHA512),
    ("ML-DSA-44", SignatureScheme::MLDSA44),
];

/// The media type of the JWT, with or without `application/` (RFC 7515 §4.1.9).
const TYPES: [&str; 2] = ["vc+jwt", "application/vc+jwt"];

/// A JWT before its signature is verified.
pub(super) struct Jwt<'t> {
    pub(super) payload: Value,
    pub(super) method: DidUrl,
    pub(super) scheme: SignatureScheme,
    signed: &'t [u8],
    signature: Vec<u8>,
}

impl<'t> Jwt<'t> {
    pub(super) fn read(token: &'t [u8], limit: usize) -> Result<Self, JwtError> {
        let text = str::from_utf8(token).map_err(|_| JwtError::Parts)?;
        let (signed, signature) = text.rsplit_once('.').ok_or(JwtError::Parts)?;
        let (header, payload) = signed.split_once('.').ok_or(JwtError::Parts)?;
        let decode = |part| Base64UrlUnpadded::decode_vec(part).map_err(|_| JwtError::Parts);
        let header = json::read_bounded(&decode(header)?, MAX_JWT_HEADER)?;
        let payload = json::read_bounded(&decode(payload)?, limit)?;
        let signature = decode(signature)?;
        let (scheme, method) = read_header(header.as_object().ok_or(JwtError::Parts)?)?;
        Ok(Self { payload, method, scheme, signed: signed.as_bytes(), signature })
    }

    pub(super) fn verify(&self, provider: &CryptoProvider, key: &PublicKey) -> Result<(), JwtError> {
        match key.verify(provider, self.scheme, self.signed, &self.signature) {
            Err(KeyError::Scheme(typ, _)) => Err(JwtError::KeyType(typ)),
            verified => Ok(verified?),
        }
    }

    /// Checks the registered claims that stand beside the credential's members (VC-JOSE-COSE §3.1.3). Returns
    /// the last second in which the JWT is valid; `None` if it does not expire.
    pub(super) fn check_claims(
        &self,
        issuer: &str,
        subject: &str,
        now: Seconds,
    ) -> Result<Option<Seconds>, JwtError> {
        let payload = self.payload.as_object().ok_or(JwtError::Parts)?;
        // §3.1.3: `vc` and `vp` belong to the older form, in which the credential is a claim. RFC 7519
        // §4.1.3: a JWT for an audience is rejected by everyone else, and a verifier has no name here.
        if let Some(name) = ["vc", "vp", "aud"].into_iter().find(|name| payload.contains_key(*name)) {
            return Err(JwtError::Claim(name));
        }
        let id = payload.get("id").and_then(Value::as_str).unwrap_or_default();
        for (name, expected) in [("iss", issuer), ("sub", subject), ("jti", id)] {
            if payload.get(name).is_some_and(|value| value != expected) {
                return Err(JwtError::Claim(name));
            }
        }
        let time = |name| match payload.get(name) {
            None => Ok(None),
            Some(value) => numeric_date(value).map(Some).ok_or(JwtError::Claim(name)),
        };
        let early = time("nbf")?.into_iter().chain(time("iat")?).any(|time| time > now);
        if early {
            return Err(JwtError::NotYetValid);
        }
        match time("exp")? {
            Some(time) if time <= now => Err(JwtError::Expired),
            // RFC 7519 §4.1.4: a JWT is not accepted at this time or later.
            time => Ok(time.map(|time| time.saturating_sub(1))),
        }
    }
}

/// The first whole second that is not before a NumericDate, which may have a fraction (RFC 7519 §2).
fn numeric_date(value: &Value) -> Option<Seconds> {
    /// Up to here, a double has every whole number (RFC 8259 §6).
    const EXACT: f64 = (1_i64 << 53) as f64;
    let fraction =
        || value.as_f64().map(f64::ceil).filter(|time| time.abs() < EXACT).map(|time| time as Seconds);
    value.as_i64().or_else(fraction)
}

fn read_header(header: &Map<String, Value>) -> Result<(SignatureScheme, DidUrl), JwtError> {
    // RFC 7515 §4.1.11: `crit` names extensions that must be understood, and there are none here. `jwk`,
    // `jku`, `x5c` and `x5u` would let the credential bring its own key.
    if let Some(name) = header.keys().find(|name| !["alg", "kid", "typ", "cty"].contains(&name.as_str())) {
        return Err(JwtError::Unexpected(shown(name)));
    }
    let text = |name| header.get(name).and_then(Value::as_str).ok_or(JwtError::Header(name));
    if !TYPES.contains(&text("typ")?) {
        return Err(JwtError::Header("typ"));
    }
    if header.get("cty").is_some_and(|value| value != "vc" && value != "application/vc") {
        return Err(JwtError::Header("cty"));
    }
    let name = text("alg")?;
    let algorithm = ALGORITHMS.iter().find(|(algorithm, _)| *algorithm == name);
    let (_, scheme) = algorithm.ok_or_else(|| JwtError::Algorithm(shown(name)))?;
    let method = text("kid")?.parse().map_err(|_| JwtError::Header("kid"))?;
    Ok((*scheme, method))
}

/// Signs a credential with `signer`, whose key is the verification method `method`.
pub(super) fn sign(
    provider: &CryptoProvider,
    signer: &dyn SigningKey,
    method: &DidUrl,
    credential: &Value,
) -> Result<String, JwtError> {
    let scheme = PublicKey::from_spki(signer.public_key())?.key_type().default_scheme();
    let algorithm = ALGORITHMS.iter().find(|(_, candidate)| *candidate == scheme);
    let (name, _) = algorithm.ok_or(JwtError::Header("alg"))?;
    let header = json!({"alg": name, "typ": "vc+jwt", "cty": "vc", "kid": method.to_string()});
    let encode = |value: &Value| {
        Ok::<_, JwtError>(Base64UrlUnpadded::encode_string(json::canonical(value)?.as_bytes()))
    };
    let signed = format!("{}.{}", encode(&header)?, encode(credential)?);
    let signature = key::sign(signer, provider, scheme, signed.as_bytes())?;
    Ok(format!("{signed}.{}", Base64UrlUnpadded::encode_string(&signature)))
}
