//! Verifiable credentials (W3C VC Data Model 2.0): issued, and verified against a list of trusted issuers.

use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin::wire::SignatureScheme;
use serde_json::{Map, Value};

use crate::did::{Did, DidUrl};
use crate::document::{DidDocument, DocumentError, Relationship};
use crate::encoding::json::{self, JsonError};
use crate::key::PublicKey;

mod context;
mod cose;
mod cose_error;
mod jwt;
mod members;
pub mod proof;
mod short;
pub mod status;
mod time;

pub use context::{CREDENTIALS_V2, Context, Contexts};
pub use cose::COSE_SIGN1;
use cose::Cose;
pub use cose_error::CoseError;
pub use jwt::{JwtError, MAX_JWT_HEADER};
use proof::{Proof, ProofError};
use status::{MAX_STATUS_CREDENTIAL, StatusEntry, StatusError, StatusLists};
use time::DateTime;
pub use time::{Seconds, unsigned};

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
    /// The first byte stands for neither JSON, a JWT nor COSE.
    #[error("the credential is neither JSON, a JWT nor COSE")]
    Form,
    /// The text is not acceptable JSON.
    #[error("credential: {0}")]
    Json(#[from] JsonError),
    /// A member is missing or malformed.
    #[error("credential: missing or malformed member {0:?}")]
    Member(&'static str),
    /// A context is unknown, or the first one is not the context of credentials.
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
    /// The compact credential is refused.
    #[error("credential: {0}")]
    Cose(#[from] CoseError),
    /// The issuer has revoked or suspended the credential, or its status cannot be checked.
    #[error("credential: {0}")]
    Status(#[from] StatusError),
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
    /// The signed part of the credential: without its proof, and without contexts that the proof does not
    /// cover.
    pub credential: Value,
    /// The trusted issuer.
    pub issuer: Did,
    /// The key of the issuer's document that has signed.
    pub issuer_key: PublicKey,
    /// The scheme of the issuer's signature.
    pub scheme: SignatureScheme,
    /// The subject, which presents the credential.
    pub subject: Did,
    /// Where the issuer publishes the status of the credential.
    pub statuses: Vec<StatusEntry>,
    /// The first second in which the credential is valid; `None` if it does not say.
    pub valid_from: Option<Seconds>,
    /// The last second in which the credential and its securing mechanism (proof or JWT) are valid; `None` if
    /// neither expires.
    pub valid_until: Option<Seconds>,
    /// The last second in which the status lists behind the verdict are fresh; `None` if the credential has
    /// no status.
    pub status_until: Option<Seconds>,
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

    /// Verifies a credential that `holder` presents, as JSON with a Data Integrity proof, as a JWT or in the
    /// compact form. A credential with a status is refused: use [`Self::verify_with_status`].
    ///
    /// # Errors
    /// The first check that fails. Values that only the signature makes reliable, such as times, are checked
    /// after it.
    pub fn verify(
        &self,
        provider: &CryptoProvider,
        credential: &[u8],
        holder: &Did,
        now: Seconds,
    ) -> Result<VerifiedCredential, CredentialError> {
        self.verify_with_status(provider, credential, holder, &StatusLists::default(), now)
    }

    /// As [`Self::verify`], and checks the credential's status in the lists at hand.
    ///
    /// # Errors
    /// As [`Self::verify`]; [`CredentialError::Status`], where [`StatusError::Missing`] and
    /// [`StatusError::Stale`] name the list to fetch.
    pub fn verify_with_status(
        &self,
        provider: &CryptoProvider,
        credential: &[u8],
        holder: &Did,
        lists: &StatusLists,
        now: Seconds,
    ) -> Result<VerifiedCredential, CredentialError> {
        self.verified(provider, credential, Some(holder), lists, now)
    }

    /// As [`Self::verify_with_status`], for a credential whose presenter proves to be its subject by other
    /// means, as in a handshake: the caller must check that the presenter has a key of
    /// [`VerifiedCredential::subject`].
    ///
    /// # Errors
    /// As [`Self::verify_with_status`]; [`CredentialError::Member`] if the subject is not a DID.
    pub fn verify_presented(
        &self,
        provider: &CryptoProvider,
        credential: &[u8],
        lists: &StatusLists,
        now: Seconds,
    ) -> Result<VerifiedCredential, CredentialError> {
        self.verified(provider, credential, None, lists, now)
    }

    fn verified(
        &self,
        provider: &CryptoProvider,
        credential: &[u8],
        holder: Option<&Did>,
        lists: &StatusLists,
        now: Seconds,
    ) -> Result<VerifiedCredential, CredentialError> {
        let verified = self.verify_but_for_status(provider, credential, holder, now)?;
        let status_until = lists.check(&[], verified.issuer.as_str(), &verified.statuses, now, |_| true)?;
        Ok(VerifiedCredential { status_until, ..verified })
    }

    /// Makes all checks but the status check, without which the credential counts for nothing.
    pub(crate) fn verify_but_for_status(
        &self,
        provider: &CryptoProvider,
        credential: &[u8],
        holder: Option<&Did>,
        now: Seconds,
    ) -> Result<VerifiedCredential, CredentialError> {
        if credential.len() > MAX_CREDENTIAL {
            return Err(CredentialError::TooLong);
        }
        let secured = self.secured(provider, credential, now, MAX_CREDENTIAL)?;
        let subject = secured.subject(holder)?;
        let valid_until = secured.check_times(now)?;
        let Secured { credential, claims, key, scheme, .. } = secured;
        let issuer = claims.issuer.parse().map_err(|_| CredentialError::Member("issuer"))?;
        Ok(VerifiedCredential {
            credential,
            issuer,
            issuer_key: key,
            scheme,
            subject,
            statuses: claims.statuses,
            valid_from: claims.valid_from.map(DateTime::seconds),
            valid_until,
            status_until: None,
        })
    }

    /// Where the issuer publishes the status of a credential, which may have expired or be revoked: for the
    /// issuer, which revokes it.
    ///
    /// # Errors
    /// [`CredentialError`] of a credential whose signature does not count.
    pub fn statuses(
        &self,
        provider: &CryptoProvider,
        credential: &[u8],
        now: Seconds,
    ) -> Result<Vec<StatusEntry>, CredentialError> {
        if credential.len() > MAX_CREDENTIAL {
            return Err(CredentialError::TooLong);
        }
        Ok(self.secured(provider, credential, now, MAX_CREDENTIAL)?.claims.statuses)
    }

    /// The documents of the trusted issuers.
    pub fn issuers(&self) -> &[DidDocument] {
        &self.issuers
    }

    /// The contexts that may stand in credentials.
    pub(crate) fn contexts(&self) -> &Contexts {
        &self.contexts
    }

    /// Reads a credential and verifies its signature.
    fn secured(
        &self,
        provider: &CryptoProvider,
        credential: &[u8],
        now: Seconds,
        limit: usize,
    ) -> Result<Secured, CredentialError> {
        match Form::of(credential)? {
            Form::Json => {
                let secured = json::read_bounded(credential, limit)?;
                let claims = Claims::read(&secured, &self.contexts)?;
                let proof = Proof::take(&secured, now, Relationship::AssertionMethod)?;
                let key = self.key(&claims.issuer, &proof.method)?.clone();
                proof.verify(provider, &key)?;
                let scheme = key.key_type().default_scheme();
                let valid_until = proof.valid_until;
                Ok(Secured { credential: proof.document, claims, key, scheme, valid_until })
            }
            Form::Jwt => {
                let jwt = jwt::Jwt::read(credential, limit)?;
                let claims = Claims::read(&jwt.payload, &self.contexts)?;
                if jwt.payload.get("proof").is_some() {
                    return Err(CredentialError::Unchecked("proof"));
                }
                let key = self.key(&claims.issuer, &jwt.method)?.clone();
                jwt.verify(provider, &key)?;
                let subject = claims.subject.as_deref().unwrap_or_default();
                let valid_until = jwt.check_claims(&claims.issuer, subject, now)?;
                Ok(Secured { credential: jwt.payload, claims, key, scheme: jwt.scheme, valid_until })
            }
            Form::Compact => {
                let cose = Cose::read(credential, limit)?;
                let claims = Claims::read(&cose.credential, &self.contexts)?;
                if cose.credential.get("proof").is_some() {
                    return Err(CredentialError::Unchecked("proof"));
                }
                bounded(&cose.credential, limit)?;
                let key = self.key(&claims.issuer, &cose.method(&claims.issuer)?)?.clone();
                cose.verify(provider, &key)?;
                let scheme = key.key_type().default_scheme();
                Ok(Secured { credential: cose.credential, claims, key, scheme, valid_until: None })
            }
        }
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
    /// A credential that no verifier would accept is not signed: [`CredentialError::Member`],
    /// [`CredentialError::Context`] and others; [`CredentialError::UntrustedIssuer`] if the credential names
    /// another issuer; [`CredentialError::Proof`].
    pub fn issue(
        &self,
        credential: &Value,
        contexts: &Contexts,
        created: Seconds,
    ) -> Result<String, CredentialError> {
        self.check(credential, contexts)?;
        let secured = proof::sign(self.provider, self.signer, self.method, credential, created)?;
        let text = json::canonical(&secured).map_err(ProofError::Canonical)?;
        if text.len() > limit(credential) { Err(CredentialError::TooLong) } else { Ok(text) }
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
        if text.len() > limit(credential) { Err(CredentialError::TooLong) } else { Ok(text) }
    }

    /// Issues a compact credential: CBOR and COSE. Of what the credential says, nothing is lost.
    ///
    /// # Errors
    /// As [`Self::issue`], with [`CredentialError::Cose`].
    pub fn issue_compact(&self, credential: &Value, contexts: &Contexts) -> Result<Vec<u8>, CredentialError> {
        self.check(credential, contexts)?;
        if credential.get("proof").is_some() {
            return Err(CredentialError::Unchecked("proof"));
        }
        bounded(credential, limit(credential))?;
        let message = cose::sign(self.provider, self.signer, self.method, credential)?;
        if message.len() > limit(credential) { Err(CredentialError::TooLong) } else { Ok(message) }
    }

    fn check(&self, credential: &Value, contexts: &Contexts) -> Result<(), CredentialError> {
        let claims = Claims::read(credential, contexts)?;
        if claims.issuer != self.method.did().as_str() {
            return Err(CredentialError::UntrustedIssuer(shown(&claims.issuer)));
        }
        if claims.subject.is_none() && !status::is_list(credential) {
            return Err(CredentialError::Member("credentialSubject"));
        }
        Ok(())
    }
}

/// The form of a credential on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// JSON with a Data Integrity proof.
    Json,
    /// A JWT.
    Jwt,
    /// The compact form: CBOR and COSE.
    Compact,
}

impl Form {
    /// The form that the first byte tells.
    ///
    /// # Errors
    /// [`CredentialError::Form`].
    pub fn of(credential: &[u8]) -> Result<Self, CredentialError> {
        match credential.first() {
            Some(b'{') => Ok(Self::Json),
            Some(b'e') => Ok(Self::Jwt),
            Some(&COSE_SIGN1) => Ok(Self::Compact),
            _ => Err(CredentialError::Form),
        }
    }

    /// The name in texts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Json => "JSON",
            Self::Jwt => "JWT",
            Self::Compact => "compact",
        }
    }
}

/// The credential in a file, where a text may begin with a byte order mark and end with a line break.
pub fn of_file(content: &[u8]) -> &[u8] {
    let text = content.strip_prefix("\u{feff}".as_bytes()).unwrap_or(content);
    match Form::of(text) {
        Ok(Form::Json | Form::Jwt) => text.trim_ascii_end(),
        _ => content,
    }
}

/// Reads a credential without verifying it, to show it or to find its subject. It may also be the credential
/// of a status list.
///
/// # Errors
/// [`CredentialError`] of a malformed text.
pub fn unverified(credential: &[u8]) -> Result<Value, CredentialError> {
    let longest = MAX_STATUS_CREDENTIAL;
    if credential.len() > longest {
        return Err(CredentialError::TooLong);
    }
    let value = match Form::of(credential)? {
        Form::Json => json::read_bounded(credential, longest)?,
        Form::Jwt => jwt::Jwt::read(credential, longest)?.payload,
        Form::Compact => Cose::read(credential, longest)?.credential,
    };
    if credential.len() > limit(&value) { Err(CredentialError::TooLong) } else { Ok(value) }
}

/// The issuer and the subject that a credential names, before anything is verified. `None` if it has no
/// subject, or several.
pub(crate) fn named(
    credential: &[u8],
    contexts: &Contexts,
) -> Result<(String, Option<String>), CredentialError> {
    if credential.len() > MAX_CREDENTIAL {
        return Err(CredentialError::TooLong);
    }
    let claims = Claims::read(&unverified(credential)?, contexts)?;
    Ok((claims.issuer, claims.subject))
}

/// The issuer of a credential about `holder`, before anything is verified.
pub(crate) fn parties(
    credential: &[u8],
    holder: &Did,
    contexts: &Contexts,
) -> Result<String, CredentialError> {
    let (issuer, subject) = named(credential, contexts)?;
    let subject = subject.ok_or(CredentialError::Member("credentialSubject"))?;
    if subject == holder.as_str() { Ok(issuer) } else { Err(CredentialError::Subject(shown(&subject))) }
}

/// How long a credential may be.
fn limit(credential: &Value) -> usize {
    if status::is_list(credential) { MAX_STATUS_CREDENTIAL } else { MAX_CREDENTIAL }
}

/// A compact credential is no longer in JSON than the other forms may be.
fn bounded(credential: &Value, limit: usize) -> Result<(), CredentialError> {
    let text = json::canonical(credential).map_err(CoseError::Value)?;
    if text.len() > limit { Err(CredentialError::TooLong) } else { Ok(()) }
}

/// A credential whose signature is right.
struct Secured {
    credential: Value,
    claims: Claims,
    /// The issuer's key.
    key: PublicKey,
    scheme: SignatureScheme,
    /// The last second in which the proof or JWT is valid; `None` if it does not expire.
    valid_until: Option<Seconds>,
}

impl Secured {
    /// The subject, which is the holder if the holder is known.
    fn subject(&self, holder: Option<&Did>) -> Result<Did, CredentialError> {
        let member = CredentialError::Member("credentialSubject");
        let subject = self.claims.subject.as_deref().ok_or(member.clone())?;
        match holder {
            Some(holder) if subject != holder.as_str() => Err(CredentialError::Subject(shown(subject))),
            Some(holder) => Ok(holder.clone()),
            None => subject.parse().map_err(|_| member),
        }
    }

    /// Checks when the credential is presented. Returns the last second in which it is valid.
    fn check_times(&self, now: Seconds) -> Result<Option<Seconds>, CredentialError> {
        let from = self.claims.valid_from;
        let until = self.claims.valid_until;
        check_times(from, until, now)?;
        Ok(until.map(DateTime::seconds).into_iter().chain(self.valid_until).min())
    }
}

/// VC Data Model 2.0 §4.9: checks the validity period of a credential.
fn check_times(from: Option<DateTime>, until: Option<DateTime>, now: Seconds) -> Result<(), CredentialError> {
    if from.is_some_and(|from| from.seconds() > now) {
        return Err(CredentialError::NotYetValid);
    }
    if until.is_some_and(|until| until.seconds() < now) { Err(CredentialError::Expired) } else { Ok(()) }
}

/// Checks `validFrom` and `validUntil` of a credential, before anything is verified.
pub(crate) fn check_dates(credential: &[u8], now: Seconds) -> Result<(), CredentialError> {
    let value = unverified(credential)?;
    let [from, until] = ["validFrom", "validUntil"].map(|name| time(&value, name));
    check_times(from?, until?, now)
}

/// A point in time in a credential.
fn time(credential: &Value, name: &'static str) -> Result<Option<DateTime>, CredentialError> {
    let Some(value) = credential.get(name) else { return Ok(None) };
    DateTime::read(value).map(Some).ok_or(CredentialError::Member(name))
}

/// The claims of a credential, not verified yet.
struct Claims {
    issuer: String,
    /// The id of the subject; `None` if there is none or there are several subjects.
    subject: Option<String>,
    statuses: Vec<StatusEntry>,
    valid_from: Option<DateTime>,
    valid_until: Option<DateTime>,
}

impl Claims {
    fn read(credential: &Value, contexts: &Contexts) -> Result<Self, CredentialError> {
        /// Members by which the issuer restricts a credential.
        const RESTRICTIONS: [&str; 2] = ["credentialSchema", "termsOfUse"];
        let object = credential.as_object().ok_or(CredentialError::Member("@context"))?;
        check_contexts(object, contexts)?;
        if !texts(object.get("type")).ok_or(CredentialError::Type)?.contains(&"VerifiableCredential") {
            return Err(CredentialError::Type);
        }
        if let Some(name) = RESTRICTIONS.into_iter().find(|name| object.contains_key(*name)) {
            return Err(CredentialError::Unchecked(name));
        }
        members::check(object).map_err(CredentialError::Member)?;
        let issuer = match object.get("issuer") {
            Some(Value::Object(issuer)) => issuer.get("id"),
            issuer => issuer,
        };
        let issuer = issuer.and_then(Value::as_str).ok_or(CredentialError::Member("issuer"))?;
        // One subject: of several, no presenter is all.
        let subject = object.get("credentialSubject").and_then(|subject| subject.get("id"));
        let subject = subject.and_then(Value::as_str).map(ToOwned::to_owned);
        Ok(Self {
            issuer: issuer.to_owned(),
            subject,
            statuses: StatusEntry::read_all(object)?,
            valid_from: time(credential, "validFrom")?,
            valid_until: time(credential, "validUntil")?,
        })
    }
}

/// VC Data Model 2.0 §4.3: the first context is the context of credentials; this program must know the
/// others, too.
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
