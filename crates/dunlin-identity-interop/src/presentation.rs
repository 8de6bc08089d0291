//! Verifiable presentations (W3C VC Data Model 2.0 §4.13): a holder shows credentials outside a handshake, to
//! one verifier and once.
//!
//! In a handshake the holder needs none: its signature over the transcript takes the place of the
//! presentation's proof.

use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin_identity::credential::proof::{self, Proof, ProofError};
use dunlin_identity::credential::status::StatusLists;
use dunlin_identity::credential::{CREDENTIALS_V2, CredentialError, Seconds, VerifiedCredential, Verifier};
use dunlin_identity::encoding::json::{self, JsonError};
use dunlin_identity::{DidDocument, DidUrl, DocumentError, Relationship};
use serde_json::{Map, Value, json};

/// The longest presentation, in bytes.
pub const MAX_PRESENTATION: usize = 64 * 1024;

/// How many credentials a presentation may contain.
pub const MAX_PRESENTED: usize = 8;

/// The prefix of an enveloped JWT (VC Data Model 2.0 §4.13.1).
const JWT_ENVELOPE: &str = "data:application/vc+jwt,";

/// Why a presentation is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PresentationError {
    /// The presentation is longer than [`MAX_PRESENTATION`].
    #[error("the presentation is longer than {MAX_PRESENTATION} bytes")]
    TooLong,
    /// The text is not acceptable JSON.
    #[error("presentation: {0}")]
    Json(#[from] JsonError),
    /// A member is missing or malformed.
    #[error("presentation: missing or malformed member {0:?}")]
    Member(&'static str),
    /// The presentation has no credential, or more than [`MAX_PRESENTED`].
    #[error("presentation: it has {0} credentials; use 1 to {MAX_PRESENTED}")]
    Count(usize),
    /// The holder is not the DID whose document the verifier has.
    #[error("presentation: its holder is another DID")]
    Holder,
    /// The holder's document does not have the key, or not for authentication.
    #[error("presentation: {0}")]
    Key(DocumentError),
    /// The proof answers another challenge.
    #[error("presentation: it answers another challenge")]
    Challenge,
    /// The proof is for another verifier.
    #[error("presentation: it is for another domain")]
    Domain,
    /// The proof is refused.
    #[error("presentation: {0}")]
    Proof(#[from] ProofError),
    /// A credential is refused; its number, from 0.
    #[error("presentation, credential {0}: {1}")]
    Credential(usize, CredentialError),
}

/// The challenge and the domain that a verifier demands in a presentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Audience<'a> {
    /// A random text that the verifier has sent and accepts once.
    pub challenge: &'a str,
    /// The verifier's name, such as `https://verifier.example`.
    pub domain: &'a str,
}

/// Presents credentials: JSON with a Data Integrity proof, or JWTs. `signer` is the key of the holder's
/// verification method `method`.
///
/// # Errors
/// [`PresentationError::Count`]; [`PresentationError::Member`] if a credential is neither JSON nor a JWT;
/// [`PresentationError::Proof`]; [`PresentationError::TooLong`].
pub fn present(
    provider: &CryptoProvider,
    signer: &dyn SigningKey,
    method: &DidUrl,
    credentials: &[&str],
    audience: Audience<'_>,
    created: Seconds,
) -> Result<String, PresentationError> {
    check_count(credentials.len())?;
    let embedded = credentials.iter().map(|credential| match credential.as_bytes().first() {
        Some(b'{') => Ok(json::read(credential.as_bytes())?),
        Some(b'e') => Ok(json!({
            "@context": CREDENTIALS_V2,
            "id": format!("{JWT_ENVELOPE}{credential}"),
            "type": "EnvelopedVerifiableCredential",
        })),
        _ => Err(PresentationError::Member("verifiableCredential")),
    });
    let presentation = json!({
        "@context": [CREDENTIALS_V2],
        "type": ["VerifiablePresentation"],
        "holder": method.did().as_str(),
        "verifiableCredential": embedded.collect::<Result<Vec<_>, _>>()?,
    });
    let mut options = Map::new();
    options.insert("challenge".to_owned(), audience.challenge.into());
    options.insert("domain".to_owned(), audience.domain.into());
    let purpose = Relationship::Authentication;
    let secured = proof::sign_for(provider, signer, method, &presentation, created, purpose, options)?;
    let text = json::canonical(&secured).map_err(ProofError::Canonical)?;
    if text.len() > MAX_PRESENTATION { Err(PresentationError::TooLong) } else { Ok(text) }
}

/// Verifies a presentation by the DID of `holder`, and all credentials in it, which must be about that
/// DID.
///
/// # Errors
/// The first check that fails.
pub fn verify_presentation(
    verifier: &Verifier,
    provider: &CryptoProvider,
    presentation: &[u8],
    holder: &DidDocument,
    audience: Audience<'_>,
    lists: &StatusLists,
    now: Seconds,
) -> Result<Vec<VerifiedCredential>, PresentationError> {
    if presentation.len() > MAX_PRESENTATION {
        return Err(PresentationError::TooLong);
    }
    let secured = json::read_bounded(presentation, MAX_PRESENTATION)?;
    let first = texts(secured.get("@context")).and_then(|urls| urls.first().copied());
    if first != Some(CREDENTIALS_V2) {
        return Err(PresentationError::Member("@context"));
    }
    if !texts(secured.get("type")).is_some_and(|types| types.contains(&"VerifiablePresentation")) {
        return Err(PresentationError::Member("type"));
    }
    if secured.get("holder").and_then(Value::as_str) != Some(holder.id().as_str()) {
        return Err(PresentationError::Holder);
    }
    let proof = Proof::take(&secured, now, Relationship::Authentication)?;
    if proof.option("challenge") != Some(audience.challenge) {
        return Err(PresentationError::Challenge);
    }
    if proof.option("domain") != Some(audience.domain) {
        return Err(PresentationError::Domain);
    }
    let key = holder.find(&proof.method, Relationship::Authentication).map_err(PresentationError::Key)?;
    proof.verify(provider, key)?;
    let member = PresentationError::Member("verifiableCredential");
    let credentials = match proof.document.get("verifiableCredential") {
        Some(Value::Array(credentials)) => credentials.as_slice(),
        Some(credential) => std::slice::from_ref(credential),
        None => return Err(member),
    };
    check_count(credentials.len())?;
    let verify = |(number, credential): (usize, &Value)| {
        let refused = |error| PresentationError::Credential(number, error);
        let text = match credential.get("type").and_then(Value::as_str) {
            Some("EnvelopedVerifiableCredential") => {
                let id = credential.get("id").and_then(Value::as_str);
                id.and_then(|id| id.strip_prefix(JWT_ENVELOPE)).ok_or_else(|| member.clone())?.to_owned()
            }
            _ => credential.to_string(),
        };
        verifier.verify_with_status(provider, text.as_bytes(), holder.id(), lists, now).map_err(refused)
    };
    credentials.iter().enumerate().map(verify).collect()
}

fn check_count(count: usize) -> Result<(), PresentationError> {
    if (1..=MAX_PRESENTED).contains(&count) { Ok(()) } else { Err(PresentationError::Count(count)) }
}

/// A text, or a list of texts.
fn texts(value: Option<&Value>) -> Option<Vec<&str>> {
    match value? {
        Value::String(text) => Some(vec![text]),
        Value::Array(texts) => texts.iter().map(Value::as_str).collect(),
        _ => None,
    }
}
