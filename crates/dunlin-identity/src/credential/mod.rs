//! Verifiable credentials (W3C VC Data Model 2.0): issued, and verified against a list of trusted issuers.

use dunlin::crypto::{CryptoProvider, SigningKey};
use serde_json::{Map, Value};

use crate::did::{Did, DidUrl};
use crate::document::{DidDocument, DocumentError, Relationship};
use crate::json::{self, JsonError};
use crate::key::PublicKey;

mod context;
pub mod jwt;
pub mod proof;
mod time;

pub use context::{CREDENTIALS_V2, Context, Contexts};
use jwt::JwtError;
use proof::{Proof, ProofError};
use time::DateTime;
pub use time::Seconds;

/// The longest credential on the wire, in bytes.
pub const MAX_CREDENTIAL: usize = 16 * 1024;

/// How many characters of a stranger's text an error shows.
const SHOWN: usize = 64;

/// Why a credential is refused: the check that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialError {
    /// The credential is longer than [`MAX_CREDENTIAL`].
    #[error("the credential is longer than {MAX_CREDENTIAL} bytes")]
    TooLong,
    /// The first byte stands for neither JSON nor a JWT.
    #[error("the credential is neither JSON nor a JWT")]
    Form,
    /// The text is not acceptable JSON.
    #[error("credential: {0}")]
    Json(#[from] JsonError),
    /// A member is missing or malformed.
    #[error("credential: missing or malformed member {0:?}")]
    Member(&'static str),
    /// A context is unknown, or the first one is not that of credentials.
    #[error("credential: unknown context {0:?}")]
    Context(String),
    /// The credential's types do not include `VerifiableCredential`.
    #[error("credential: its type is not \"VerifiableCredential\"")]
    Type,
    /// The credential has a member that restricts it and that this version cannot check.
    #[error("credential: {0:?} cannot be checked")]
    Unchecked(&'static str),
    /// The issuer is not trusted.
    #[error("credential: the issuer {0:?} is not trusted")]
    UntrustedIssuer(String),
    /// The issuer's document does not have the key, or not for assertions.
    #[error("credential: {0}")]
    IssuerKey(DocumentError),
    /// The proof is refused.
    #[error("credential: {0}")]
    Proof(#[from] ProofError),
    /// The JWT is refused.
    #[error("credential: {0}")]
    Jwt(#[from] JwtError),
    /// The credential is about another subject than the DID that presents it.
    #[error("credential: its subject is {0:?}, which does not present it")]
    Subject(String),
    /// The credential is not valid yet.
    #[error("credential: it is not valid yet")]
    NotYetValid,
    /// The credential has expired.
    #[error("credential: it has expired")]
    Expired,
}

/// A credential after all checks.
#[derive(Clone, Debug, PartialEq)]
pub struct VerifiedCredential {
    /// What the issuer signed: the credential without its proof, and without contexts that the proof does not cover.
    pub credential: Value,
    /// The trusted issuer.
    pub issuer: Did,
    /// The subject, which presents the credential.
    pub subject: Did,
    /// The last second in which the credential and what secures it (its proof or JWT) are valid; `None` if neither expires.
    pub valid_until: Option<Seconds>,
}

/// Verifies credentials: knows the trusted issuers, with their keys, and the contexts.
#[derive(Clone, Debug, Default)]
pub struct Verifier {
    issuers: Vec<DidDocument>,
    contexts: Contexts,
}

impl Verifier {
    /// Trusts these issuers and no others. Their keys come from these documents, never from a credential.
    pub fn new(issuers: impl IntoIterator<Item = DidDocument>) -> Self {
        Self { issuers: issuers.into_iter().collect(), contexts: Contexts::default() }
    }

    /// Replaces the contexts that may stand in credentials.
    #[must_use]
    pub fn with_contexts(mut self, contexts: Contexts) -> Self {
        self.contexts = contexts;
        self
    }

    /// Verifies a credential that `holder` presents, as JSON with a Data Integrity proof or as a JWT.
    ///
    /// # Errors
    /// The first check that fails. What only the signature makes reliable, such as times, is checked after it.
    pub fn verify(
        &self,
        provider: &CryptoProvider,
        credential: &[u8],
        holder: &Did,
        now: Seconds,
    ) -> Result<VerifiedCredential, CredentialError> {
        if credential.len() > MAX_CREDENTIAL {
            return Err(CredentialError::TooLong);
        }
        let (credential, claims, secured_until) = match credential.first() {
            Some(b'{') => {
                let secured = json::read(credential)?;
                let claims = Claims::read(&secured, &self.contexts)?;
                let proof = Proof::take(&secured, now)?;
                proof.verify(provider, self.key(&claims.issuer, &proof.method)?)?;
                (proof.document, claims, proof.valid_until)
            }
            Some(b'e') => {
                let jwt = jwt::Jwt::read(credential)?;
                let claims = Claims::read(&jwt.payload, &self.contexts)?;
                if jwt.payload.get("proof").is_some() {
                    return Err(CredentialError::Unchecked("proof"));
                }
                jwt.verify(provider, self.key(&claims.issuer, &jwt.method)?)?;
                let secured_until = jwt.check_claims(&claims.issuer, &claims.subject, now)?;
                (jwt.payload, claims, secured_until)
            }
            _ => return Err(CredentialError::Form),
        };
        if claims.subject != holder.as_str() {
            return Err(CredentialError::Subject(shown(&claims.subject)));
        }
        if claims.valid_from.is_some_and(|from| from.seconds() > now) {
            return Err(CredentialError::NotYetValid);
        }
        if claims.valid_until.is_some_and(|until| until.seconds() < now) {
            return Err(CredentialError::Expired);
        }
        let issuer = claims.issuer.parse().map_err(|_| CredentialError::Member("issuer"))?;
        let valid_until = claims.valid_until.map(DateTime::seconds).into_iter().chain(secured_until).min();
        Ok(VerifiedCredential { credential, issuer, subject: holder.clone(), valid_until })
    }

    /// The key of a trusted issuer, which must list it for assertions.
    fn key(&self, issuer: &str, method: &DidUrl) -> Result<&PublicKey, CredentialError> {
        let document = self.issuers.iter().find(|document| document.id().as_str() == issuer);
        let document = document.ok_or_else(|| CredentialError::UntrustedIssuer(shown(issuer)))?;
        document.find(method, Relationship::AssertionMethod).map_err(CredentialError::IssuerKey)
    }
}

/// Signs credentials for an issuer.
#[derive(Clone, Copy, Debug)]
pub struct Issuer<'a> {
    /// The provider of the key.
    pub provider: &'a CryptoProvider,
    /// The issuer's key.
    pub signer: &'a dyn SigningKey,
    /// The id of the key in the issuer's DID document.
    pub method: &'a DidUrl,
}

impl Issuer<'_> {
    /// Issues a credential as JSON with a Data Integrity proof, in the cryptosuite of the key.
    ///
    /// # Errors
    /// A credential that no verifier would accept is not signed: [`CredentialError::Member`], [`CredentialError::Context`] and others;
    /// [`CredentialError::UntrustedIssuer`] if the credential names another issuer; [`CredentialError::Proof`].
    pub fn issue(
        &self,
        credential: &Value,
        contexts: &Contexts,
        created: Seconds,
    ) -> Result<String, CredentialError> {
        self.check(credential, contexts)?;
        let secured = proof::sign(self.provider, self.signer, self.method, credential, created)?;
        let text = json::canonical(&secured).map_err(ProofError::Canonical)?;
        if text.len() > MAX_CREDENTIAL { Err(CredentialError::TooLong) } else { Ok(text) }
    }

    /// Issues a credential as a JWT.
    ///
    /// # Errors
    /// As [`Self::issue`], with [`CredentialError::Jwt`].
    pub fn issue_jwt(&self, credential: &Value, contexts: &Contexts) -> Result<String, CredentialError> {
        self.check(credential, contexts)?;
        if credential.get("proof").is_some() {
            return Err(CredentialError::Unchecked("proof"));
        }
        let text = jwt::sign(self.provider, self.signer, self.method, credential)?;
        if text.len() > MAX_CREDENTIAL { Err(CredentialError::TooLong) } else { Ok(text) }
    }

    fn check(&self, credential: &Value, contexts: &Contexts) -> Result<(), CredentialError> {
        let claims = Claims::read(credential, contexts)?;
        if claims.issuer != self.method.did().as_str() {
            return Err(CredentialError::UntrustedIssuer(shown(&claims.issuer)));
        }
        Ok(())
    }
}

/// What a credential says, before it is believed.
struct Claims {
    issuer: String,
    subject: String,
    valid_from: Option<DateTime>,
    valid_until: Option<DateTime>,
}

impl Claims {
    fn read(credential: &Value, contexts: &Contexts) -> Result<Self, CredentialError> {
        /// Members by which the issuer restricts a credential.
        const RESTRICTIONS: [&str; 3] = ["credentialStatus", "credentialSchema", "termsOfUse"];
        let object = credential.as_object().ok_or(CredentialError::Member("@context"))?;
        check_contexts(object, contexts)?;
        if !texts(object.get("type")).ok_or(CredentialError::Type)?.contains(&"VerifiableCredential") {
            return Err(CredentialError::Type);
        }
        if let Some(name) = RESTRICTIONS.into_iter().find(|name| object.contains_key(*name)) {
            return Err(CredentialError::Unchecked(name));
        }
        let issuer = match object.get("issuer") {
            Some(Value::Object(issuer)) => issuer.get("id"),
            issuer => issuer,
        };
        let issuer = issuer.and_then(Value::as_str).ok_or(CredentialError::Member("issuer"))?;
        // One subject: of several, no presenter is all.
        let subject = object.get("credentialSubject").and_then(|subject| subject.get("id"));
        let subject = subject.and_then(Value::as_str).ok_or(CredentialError::Member("credentialSubject"))?;
        let time = |name| match object.get(name) {
            None => Ok(None),
            Some(value) => DateTime::read(value).map(Some).ok_or(CredentialError::Member(name)),
        };
        Ok(Self {
            issuer: issuer.to_owned(),
            subject: subject.to_owned(),
            valid_from: time("validFrom")?,
            valid_until: time("validUntil")?,
        })
    }
}

/// VC Data Model 2.0 §4.3: the first context is that of credentials; this program must know the others, too.
fn check_contexts(object: &Map<String, Value>, contexts: &Contexts) -> Result<(), CredentialError> {
    let urls = texts(object.get("@context")).ok_or(CredentialError::Member("@context"))?;
    let first = urls.first().copied().unwrap_or_default();
    if first != CREDENTIALS_V2 {
        return Err(CredentialError::Context(shown(first)));
    }
    match urls.iter().find(|url| contexts.get(url).is_none()) {
        Some(url) => Err(CredentialError::Context(shown(url))),
        None => Ok(()),
    }
}

/// A text, or several in an array; `None` for anything else.
fn texts(value: Option<&Value>) -> Option<Vec<&str>> {
    match value? {
        Value::String(text) => Some(vec![text]),
        Value::Array(texts) => texts.iter().map(Value::as_str).collect(),
        _ => None,
    }
}

fn shown(text: &str) -> String {
    text.chars().take(SHOWN).collect()
}
