//! Credentials of the paper's public implementation, to interoperate with it (docs/identity.md). Their
//! signature covers neither a canonical form nor what the proof says of itself. Everywhere else, use
//! [`Verifier`](dunlin_identity::credential::Verifier).

use base64ct::{Base64, Encoding};
use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin::wire::SignatureScheme;
use dunlin_identity::credential::Seconds;
use dunlin_identity::encoding::json::{self, JsonError};
use dunlin_identity::key::{KeyError, KeyType, PublicKey};
use dunlin_identity::{Did, DidError};
use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The longest text in such a credential, in bytes.
pub const MAX_LINKS_TEXT: usize = 1000;

/// The only context. W3C's version 2 has another one.
const CONTEXT: &str = "https://www.w3.org/2018/credentials/v2";

const TYPE: &str = "VerifiableCredential";

const PURPOSE: &str = "assertionMethod";

/// Why such a credential is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinksError {
    /// The text is not acceptable JSON.
    #[error("credential: {0}")]
    Json(#[from] JsonError),
    /// A member is missing, malformed, too long, or one that the signature would not cover.
    #[error("credential: missing, malformed or unknown member {0:?}")]
    Member(&'static str),
    /// The verification method belongs to no trusted issuer, or to another issuer than the credential names.
    #[error("credential: its verification method belongs to no trusted issuer")]
    UntrustedIssuer,
    /// The signature is wrong, or the key has a type that the public implementation lacks.
    #[error("credential: {0}")]
    Key(#[from] KeyError),
    /// The subject is no DID.
    #[error("credential: its subject: {0}")]
    Subject(#[from] DidError),
    /// The credential is not valid yet.
    #[error("credential: it is not valid yet")]
    NotYetValid,
    /// The credential has expired.
    #[error("credential: it has expired")]
    Expired,
}

/// A trusted issuer.
#[derive(Clone, Debug)]
pub struct LinksIssuer {
    /// The `verificationMethod` of its proofs, such as `did:ott:…#keys-1`.
    pub method: String,
    /// The key.
    pub key: PublicKey,
}

/// The members of such a credential, all of them texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinksCredential {
    /// The name of the credential.
    pub id: String,
    /// The DID of the issuer.
    pub issuer: String,
    /// The first second in which it is valid, such as `2023-01-01T00:00:00Z`.
    pub issuance_date: String,
    /// The last second in which it is valid.
    pub expiration_date: String,
    /// The DID that the credential is about. Its key must sign the handshake.
    pub subject: String,
}

/// A credential after all checks. The caller must still resolve the subject: its key signs the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedLinks {
    /// The signed credential.
    pub credential: LinksCredential,
    /// The subject.
    pub subject: Did,
    /// The first second in which the credential is valid.
    pub valid_from: Seconds,
    /// The last second in which the credential is valid.
    pub valid_until: Seconds,
    /// The scheme of the issuer's signature.
    pub scheme: SignatureScheme,
}

impl LinksCredential {
    /// The text that the issuer signs: the credential without its proof, as cJSON prints it.
    pub fn signed_text(&self) -> String {
        object(1, &self.members())
    }

    fn members(&self) -> Vec<(&'static str, String)> {
        let subject = object(2, &[("id", text(&self.subject))]);
        vec![
            ("@context", text(CONTEXT)),
            ("id", text(&self.id)),
            ("type", text(TYPE)),
            ("issuer", text(&self.issuer)),
            ("issuanceDate", text(&self.issuance_date)),
            ("expirationDate", text(&self.expiration_date)),
            ("credentialSubject", subject),
        ]
    }

    /// Signs the credential, and returns its text as the public implementation sends it. `created` is the
    /// time of the proof.
    ///
    /// # Errors
    /// [`LinksError::Member`] if a text is too long; [`LinksError::Key`].
    pub fn issue(
        &self,
        provider: &CryptoProvider,
        signer: &dyn SigningKey,
        method: &str,
        created: &str,
    ) -> Result<String, LinksError> {
        let typ = PublicKey::from_spki(signer.public_key())?.key_type();
        let name = type_of(typ)?;
        let signed = self.signed_text();
        let signature = signer.sign(typ.default_scheme(), signed.as_bytes(), &*provider.random);
        let signature = Base64::encode_string(&signature.map_err(|_| KeyError::Signing)?);
        let proof = [
            ("type", text(name)),
            // The public implementation writes the space.
            ("created", text(&format!(" {created}"))),
            ("proofPurpose", text(PURPOSE)),
            ("verificationMethod", text(method)),
            ("proofValue", text(&signature)),
        ];
        let mut members = self.members();
        members.push(("proof", object(2, &proof)));
        let whole = object(1, &members);
        // Verifiers reject a credential that cannot be read.
        Read::new(whole.as_bytes())?;
        Ok(whole)
    }
}

/// Verifies a credential by one of these issuers.
///
/// # Errors
/// The first check that fails.
pub fn verify(
    provider: &CryptoProvider,
    issuers: &[LinksIssuer],
    credential: &[u8],
    now: Seconds,
) -> Result<VerifiedLinks, LinksError> {
    let Read { credential, method, signature } = Read::new(credential)?;
    let issuer = issuers.iter().find(|issuer| issuer.method == method).ok_or(LinksError::UntrustedIssuer)?;
    let did = method.split_once('#').map_or(method.as_str(), |(did, _)| did);
    // The DID may have the ID of its message behind it.
    let rest = credential.issuer.strip_prefix(did).ok_or(LinksError::UntrustedIssuer)?;
    if !rest.is_empty() && !rest.starts_with(':') {
        return Err(LinksError::UntrustedIssuer);
    }
    type_of(issuer.key.key_type())?;
    let signed = credential.signed_text();
    let scheme = issuer.key.key_type().default_scheme();
    issuer.key.verify_der(provider, scheme, signed.as_bytes(), &signature)?;
    let time = |text: &str, name| {
        OffsetDateTime::parse(text, &Rfc3339)
            .map(OffsetDateTime::unix_timestamp)
            .map_err(|_| LinksError::Member(name))
    };
    let valid_until = time(&credential.expiration_date, "expirationDate")?;
    let valid_from = time(&credential.issuance_date, "issuanceDate")?;
    if valid_from > now {
        return Err(LinksError::NotYetValid);
    }
    if valid_until < now {
        return Err(LinksError::Expired);
    }
    let subject = credential.subject.parse()?;
    Ok(VerifiedLinks { credential, subject, valid_from, valid_until, scheme })
}

/// The name of a proof by a key of this type.
fn type_of(typ: KeyType) -> Result<&'static str, KeyError> {
    match typ {
        KeyType::Ed25519 => Ok("Ed25519VerificationKey2023"),
        KeyType::P256 => Ok("EcdsaSecp256r1VerificationKey2023"),
        KeyType::Rsa => Ok("RsaVerificationKey2023"),
        KeyType::P384 | KeyType::MlDsa44 => Err(KeyError::UnknownType),
    }
}

/// A credential before it is believed.
struct Read {
    credential: LinksCredential,
    method: String,
    signature: Vec<u8>,
}

impl Read {
    fn new(credential: &[u8]) -> Result<Self, LinksError> {
        let value = json::read(credential)?;
        let members = known(
            &value,
            "@context",
            &[
                "@context",
                "id",
                "type",
                "issuer",
                "issuanceDate",
                "expirationDate",
                "credentialSubject",
                "proof",
            ],
        )?;
        for (name, expected) in [("@context", CONTEXT), ("type", TYPE)] {
            if member(members, name)? != expected {
                return Err(LinksError::Member(name));
            }
        }
        let subject = members.get("credentialSubject").unwrap_or(&Value::Null);
        let subject = member(known(subject, "credentialSubject", &["id"])?, "id")?;
        let proof = members.get("proof").unwrap_or(&Value::Null);
        let names = ["type", "created", "proofPurpose", "verificationMethod", "proofValue"];
        let proof = known(proof, "proof", &names)?;
        names.iter().try_for_each(|name| member(proof, name).map(drop))?;
        if member(proof, "proofPurpose")? != PURPOSE {
            return Err(LinksError::Member("proofPurpose"));
        }
        let signature = Base64::decode_vec(member(proof, "proofValue")?);
        Ok(Self {
            credential: LinksCredential {
                id: member(members, "id")?.to_owned(),
                issuer: member(members, "issuer")?.to_owned(),
                issuance_date: member(members, "issuanceDate")?.to_owned(),
                expiration_date: member(members, "expirationDate")?.to_owned(),
                subject: subject.to_owned(),
            },
            method: member(proof, "verificationMethod")?.to_owned(),
            signature: signature.map_err(|_| LinksError::Member("proofValue"))?,
        })
    }
}

/// The members of an object that has no others than these: the signature would not cover them.
fn known<'v>(
    value: &'v Value,
    name: &'static str,
    names: &[&'static str],
) -> Result<&'v Map<String, Value>, LinksError> {
    let members = value.as_object().ok_or(LinksError::Member(name))?;
    if members.keys().all(|key| names.contains(&key.as_str())) {
        Ok(members)
    } else {
        Err(LinksError::Member(name))
    }
}

fn member<'v>(members: &'v Map<String, Value>, name: &'static str) -> Result<&'v str, LinksError> {
    let text = members.get(name).and_then(Value::as_str);
    text.filter(|text| (1..=MAX_LINKS_TEXT).contains(&text.len())).ok_or(LinksError::Member(name))
}

/// An object as cJSON_Print writes it. Its members are `depth` levels deep.
fn object(depth: usize, members: &[(&str, String)]) -> String {
    let tabs = "\t".repeat(depth);
    let members: Vec<_> =
        members.iter().map(|(name, value)| format!("{tabs}{}:\t{value}", text(name))).collect();
    format!("{{\n{}\n{}}}", members.join(",\n"), "\t".repeat(depth.saturating_sub(1)))
}

/// A text as cJSON_Print writes it.
fn text(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
