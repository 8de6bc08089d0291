//! Proofs of W3C Data Integrity over canonical JSON: eddsa-jcs-2022, ecdsa-jcs-2019, mldsa44-jcs-2024, and
//! our own rsa-pss-jcs-dunlin.

use dunlin::crypto::{CryptoProvider, Hash, HashAlgorithm, SigningKey};
use serde_json::{Map, Value, json};

use super::shown;
use super::time::{DateTime, Seconds};
use crate::did::DidUrl;
use crate::document::Relationship;
use crate::encoding::json::{self, JsonFault};
use crate::key::{self, KeyError, KeyType, PublicKey};

/// How far the issuer's clock may be ahead, in seconds: a proof may be `created` so much later than now.
pub const MAX_ISSUER_CLOCK_SKEW: Seconds = 300;

/// Why a proof is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProofError {
    /// A value cannot be written in canonical form.
    #[error("{0}")]
    Canonical(#[from] JsonFault),
    /// There is no proof.
    #[error("the credential has no proof")]
    Missing,
    /// There are several proofs: a verifier would have to know which of them count.
    #[error("the credential has several proofs")]
    Several,
    /// A member is missing or malformed.
    #[error("proof: missing or malformed member {0:?}")]
    Member(&'static str),
    /// The type is not `DataIntegrityProof`.
    #[error("proof: unknown type {0:?}")]
    Type(String),
    /// The cryptosuite is unknown.
    #[error("proof: unknown cryptosuite {0:?}")]
    Cryptosuite(String),
    /// The key's type does not fit the cryptosuite.
    #[error("proof: {0} does not take a key of type {1}")]
    KeyType(&'static str, KeyType),
    /// The proof is for another purpose than it should be.
    #[error("proof: the purpose is {found:?} instead of {expected:?}")]
    Purpose {
        /// The purpose of the proof.
        found: String,
        /// The expected purpose.
        expected: &'static str,
    },
    /// The proof rests on another proof, which is not supported.
    #[error("proof: it depends on a previous proof")]
    Chain,
    /// The proof was created after now.
    #[error("proof: it was created after now")]
    Future,
    /// The proof has expired.
    #[error("proof: it has expired")]
    Expired,
    /// The contexts of the credential do not begin with the proof's.
    #[error("proof: the credential's contexts do not begin with the proof's")]
    Context,
    /// The signature is malformed or wrong, or the key cannot sign.
    #[error("proof: {0}")]
    Key(#[from] KeyError),
}

/// How a credential is hashed and signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cryptosuite {
    /// Ed25519 (W3C vc-di-eddsa §3.3).
    EddsaJcs2022,
    /// ECDSA on P-256 with SHA-256, or on P-384 with SHA-384 (W3C vc-di-ecdsa §3.3).
    EcdsaJcs2019,
    /// Private: as eddsa-jcs-2022, with RSA-PSS and SHA-256.
    RsaPssJcsDunlin,
    /// ML-DSA-44 (W3C Quantum-Safe Cryptosuites). Its signatures are in base64url.
    MlDsa44Jcs2024,
}

impl Cryptosuite {
    /// All cryptosuites.
    pub const ALL: [Self; 4] =
        [Self::EddsaJcs2022, Self::EcdsaJcs2019, Self::RsaPssJcsDunlin, Self::MlDsa44Jcs2024];

    /// The name in proofs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::EddsaJcs2022 => "eddsa-jcs-2022",
            Self::EcdsaJcs2019 => "ecdsa-jcs-2019",
            Self::RsaPssJcsDunlin => "rsa-pss-jcs-dunlin",
            Self::MlDsa44Jcs2024 => "mldsa44-jcs-2024",
        }
    }

    /// The cryptosuite of keys of a type.
    pub const fn of(typ: KeyType) -> Self {
        match typ {
            KeyType::Ed25519 => Self::EddsaJcs2022,
            KeyType::P256 | KeyType::P384 => Self::EcdsaJcs2019,
            KeyType::Rsa => Self::RsaPssJcsDunlin,
            KeyType::MlDsa44 => Self::MlDsa44Jcs2024,
        }
    }

    /// The first letter of signatures, which tells their multibase.
    const fn multibase(self) -> char {
        match self {
            Self::RsaPssJcsDunlin | Self::MlDsa44Jcs2024 => 'u',
            _ => 'z',
        }
    }
}

/// A proof, and the credential that it covers.
pub struct Proof {
    /// The verification method, whose key must verify the proof.
    pub method: DidUrl,
    suite: Cryptosuite,
    /// The proof without its value.
    options: Value,
    /// The credential without its proof.
    pub document: Value,
    /// The last second in which the proof is valid; `None` if it does not expire.
    pub valid_until: Option<Seconds>,
    signature: Vec<u8>,
}

impl Proof {
    /// Takes the proof out of a credential, or of what else has one, and checks everything but the signature.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn take(credential: &Value, now: Seconds, expected: Relationship) -> Result<Self, ProofError> {
        let mut document = credential.clone();
        let members = document.as_object_mut().ok_or(ProofError::Missing)?;
        let mut options = match members.remove("proof") {
            Some(Value::Object(options)) => options,
            Some(Value::Array(_)) => return Err(ProofError::Several),
            _ => return Err(ProofError::Missing),
        };
        let text = |options: &Map<String, Value>, name| {
            let text = options.get(name).and_then(Value::as_str).map(ToOwned::to_owned);
            text.ok_or(ProofError::Member(name))
        };
        let typ = text(&options, "type")?;
        if typ != "DataIntegrityProof" {
            return Err(ProofError::Type(shown(&typ)));
        }
        let name = text(&options, "cryptosuite")?;
        let suite = Cryptosuite::ALL.into_iter().find(|suite| suite.name() == name);
        let suite = suite.ok_or_else(|| ProofError::Cryptosuite(shown(&name)))?;
        let purpose = text(&options, "proofPurpose")?;
        if purpose != expected.name() {
            return Err(ProofError::Purpose { found: shown(&purpose), expected: expected.name() });
        }
        if options.contains_key("previousProof") {
            return Err(ProofError::Chain);
        }
        let method = text(&options, "verificationMethod")?;
        let method = method.parse().map_err(|_| ProofError::Member("verificationMethod"))?;
        let time = |name| match options.get(name) {
            None => Ok(None),
            Some(value) => DateTime::read(value).map(Some).ok_or(ProofError::Member(name)),
        };
        if time("created")?
            .is_some_and(|created| created.seconds() > now.saturating_add(MAX_ISSUER_CLOCK_SKEW))
        {
            return Err(ProofError::Future);
        }
        let expires = time("expires")?.map(DateTime::seconds);
        if expires.is_some_and(|expires| expires <= now) {
            return Err(ProofError::Expired);
        }
        let valid_until = expires.map(|expires| expires.saturating_sub(1));
        // vc-di-eddsa §3.3.2, step 4.
        if let Some(contexts) = options.get("@context") {
            let all = as_list(members.get("@context").unwrap_or(&Value::Null));
            if !all.starts_with(as_list(contexts)) {
                return Err(ProofError::Context);
            }
            members.insert("@context".to_owned(), contexts.clone());
        }
        let value = text(&options, "proofValue")?;
        if !value.starts_with(suite.multibase()) {
            return Err(ProofError::Member("proofValue"));
        }
        let signature = key::multibase_decode(&value)?;
        options.remove("proofValue");
        Ok(Self { method, suite, options: options.into(), document, valid_until, signature })
    }

    /// A member of the proof that is a text.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.get(name).and_then(Value::as_str)
    }

    /// Verifies the signature.
    ///
    /// # Errors
    /// [`ProofError::Key`], or the hash or the canonical form cannot be computed.
    pub fn verify(&self, provider: &CryptoProvider, key: &PublicKey) -> Result<(), ProofError> {
        let message = hash_data(provider, self.suite, key.key_type(), &self.document, &self.options)?;
        Ok(key.verify(provider, key.key_type().default_scheme(), &message, &self.signature)?)
    }
}

/// Verifies the proof of a document with the key that its verification method has. Only a caller who knows
/// from elsewhere that this key belongs to the issuer needs this; [`Verifier`](super::Verifier) checks
/// everything.
///
/// # Errors
/// The first check that fails.
pub fn verify(
    provider: &CryptoProvider,
    document: &Value,
    key: &PublicKey,
    now: Seconds,
) -> Result<DidUrl, ProofError> {
    let proof = Proof::take(document, now, Relationship::AssertionMethod)?;
    proof.verify(provider, key)?;
    Ok(proof.method)
}

/// Adds a proof by `signer`, whose key is the verification method `method`, and returns the secured document.
///
/// # Errors
/// [`ProofError::Several`] if the document has a proof; [`ProofError::Key`].
pub fn sign(
    provider: &CryptoProvider,
    signer: &dyn SigningKey,
    method: &DidUrl,
    document: &Value,
    created: Seconds,
) -> Result<Value, ProofError> {
    let purpose = Relationship::AssertionMethod;
    sign_for(provider, signer, method, document, created, purpose, Map::new())
}

/// As [`sign`], for another purpose and with further members of the proof.
///
/// # Errors
/// As [`sign`].
pub fn sign_for(
    provider: &CryptoProvider,
    signer: &dyn SigningKey,
    method: &DidUrl,
    document: &Value,
    created: Seconds,
    purpose: Relationship,
    further: Map<String, Value>,
) -> Result<Value, ProofError> {
    let mut secured = document.clone();
    let members = secured.as_object_mut().ok_or(ProofError::Member("@context"))?;
    if members.contains_key("proof") {
        return Err(ProofError::Several);
    }
    let typ = PublicKey::from_spki(signer.public_key())?.key_type();
    let suite = Cryptosuite::of(typ);
    let mut options = json!({
        "type": "DataIntegrityProof",
        "cryptosuite": suite.name(),
        "created": DateTime::from_seconds(created).ok_or(ProofError::Member("created"))?.to_string(),
        "verificationMethod": method.to_string(),
        "proofPurpose": purpose.name(),
    });
    for (name, value) in further {
        options[name] = value;
    }
    if let Some(contexts) = members.get("@context") {
        options["@context"] = contexts.clone();
    }
    let message = hash_data(provider, suite, typ, document, &options)?;
    let signature = key::sign(signer, provider, typ.default_scheme(), &message)?;
    options["proofValue"] = key::multibase(typ, &signature).into();
    members.insert("proof".to_owned(), options);
    Ok(secured)
}

/// The signed bytes: the hash of the proof's options, then the hash of the document (vc-di-eddsa §3.3.4,
/// vc-di-ecdsa §3.3.4).
fn hash_data(
    provider: &CryptoProvider,
    suite: Cryptosuite,
    typ: KeyType,
    document: &Value,
    options: &Value,
) -> Result<Vec<u8>, ProofError> {
    if Cryptosuite::of(typ) != suite {
        return Err(ProofError::KeyType(suite.name(), typ));
    }
    let hash = if typ == KeyType::P384 { sha384(provider)? } else { provider.sha256 };
    let options = json::canonical(options)?;
    let document = json::canonical(document)?;
    let hashes = [options, document].map(|text| hash.hash(&[text.as_bytes()]));
    Ok(hashes.iter().flat_map(|hash| hash.as_ref().iter().copied()).collect())
}

fn sha384(provider: &CryptoProvider) -> Result<&'static dyn Hash, KeyError> {
    let mut hashes = provider.cipher_suites.iter().map(|suite| suite.hash);
    hashes.find(|hash| hash.algorithm() == HashAlgorithm::Sha384).ok_or(KeyError::Provider("SHA-384"))
}

/// A value that stands for a list of itself alone, unless it is a list.
fn as_list(value: &Value) -> &[Value] {
    match value {
        Value::Array(values) => values,
        value => std::slice::from_ref(value),
    }
}
