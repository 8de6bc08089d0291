//! The identity of a peer with a credential, as a verifier reports it and as sessions and cache entries keep
//! it.

use dunlin::PeerIdentity;
use dunlin::auth::{MAX_OTHER_DETAILS, MAX_OTHER_TEXT, OtherIdentity};
use dunlin::wire::CertificateType;
use serde_json::{Map, Value, json};

use crate::credential::Seconds;
use crate::credential::status::StatusEntry;
use crate::did::Did;
use crate::encoding::json;
use crate::hash::Sha256Hash;

/// How many bytes of a DID a line of a log shows.
pub const MAX_SHOWN_DID: usize = 256;

const _: () = assert!(MAX_SHOWN_DID + '…'.len_utf8() <= MAX_OTHER_TEXT, "the text fits");

/// A peer that has proven a credential: its DID, the issuer and its claims, and the facts that the verdict
/// rests on. It is the content of [`OtherIdentity::details`].
#[derive(Clone, Debug, PartialEq)]
pub struct CredentialIdentity {
    /// The peer's DID.
    pub did: Did,
    /// The issuer of the credential.
    pub issuer: Did,
    /// The hash of the issuer's document and its version, if a resolver has shown it; `None` if the program
    /// has given the document.
    pub issuer_document: Option<(Sha256Hash, u64)>,
    /// The issuer's claims about the peer: the credential's subject without its id. `None` if they are too
    /// long for sessions and cache entries; the program must then conclude nothing from the absence of a
    /// claim.
    pub claims: Option<Map<String, Value>>,
    /// The hash of the peer's DID document, in canonical form.
    pub document: Sha256Hash,
    /// The version of the document.
    pub sequence: u64,
    /// When the DID was resolved.
    pub resolved: Seconds,
    /// The last second in which the credential is valid; `None` if it does not expire.
    pub valid_until: Option<Seconds>,
    /// Where the issuer publishes the status of the credential.
    pub statuses: Vec<StatusEntry>,
}

impl CredentialIdentity {
    /// The identity of a peer that has proven a credential; `None` for other peers.
    ///
    /// ```
    /// use dunlin::PeerIdentity;
    /// use dunlin_identity::handshake::CredentialIdentity;
    ///
    /// /// Whether the peer is a gateway of this operator.
    /// fn is_gateway(peer: &PeerIdentity, operator: &str) -> bool {
    ///     CredentialIdentity::of(peer).is_some_and(|peer| {
    ///         let role = peer.claims.as_ref().and_then(|claims| claims.get("role"));
    ///         peer.issuer.as_str() == operator && role.is_some_and(|role| role == "gateway")
    ///     })
    /// }
    /// ```
    pub fn of(identity: &PeerIdentity) -> Option<Self> {
        let (did, members) = id_and_details(identity, CertificateType::VERIFIABLE_CREDENTIAL)?;
        let text = |name| members.get(name).and_then(Value::as_str);
        Some(Self {
            did,
            issuer: text("issuer")?.parse().ok()?,
            issuer_document: match (text("issuerDocument"), text("issuerSequence")) {
                (Some(document), Some(sequence)) => Some((document.parse().ok()?, sequence.parse().ok()?)),
                _ => None,
            },
            claims: members.get("claims").and_then(Value::as_object).cloned(),
            document: text("document")?.parse().ok()?,
            sequence: text("sequence")?.parse().ok()?,
            resolved: text("resolved")?.parse().ok()?,
            valid_until: text("until").map(str::parse).transpose().ok()?,
            statuses: StatusEntry::read_compact(members.get("status")).ok()?,
        })
    }

    /// The identity for the engine. `None` if issuer and status lists have too long names to be kept.
    pub fn to_engine(&self) -> Option<PeerIdentity> {
        let mut details = json!({
            "issuer": self.issuer.as_str(),
            "document": self.document.to_string(),
            // As texts, since JSON does not represent large integers exactly.
            "sequence": self.sequence.to_string(),
            "resolved": self.resolved.to_string(),
        });
        if let Some((document, sequence)) = self.issuer_document {
            details["issuerDocument"] = document.to_string().into();
            details["issuerSequence"] = sequence.to_string().into();
        }
        if let Some(until) = self.valid_until {
            details["until"] = until.to_string().into();
        }
        if !self.statuses.is_empty() {
            // A ticket must fit into a ClientHello.
            details["status"] = self.statuses.iter().map(StatusEntry::to_compact).collect();
        }
        let without_claims = json::canonical(&details).ok()?;
        details["claims"] = self.claims.clone().into();
        let full = json::canonical(&details).ok().filter(|full| full.len() <= MAX_OTHER_DETAILS);
        let details = full.unwrap_or(without_claims);
        let identity = engine_identity(CertificateType::VERIFIABLE_CREDENTIAL, &self.did, details)?;
        // An identity that cannot be read again would be one without issuer and claims.
        Self::of(&identity).is_some().then_some(identity)
    }
}

/// The DID and the details of an identity of this type.
pub(super) fn id_and_details(
    identity: &PeerIdentity,
    typ: CertificateType,
) -> Option<(Did, Map<String, Value>)> {
    let PeerIdentity::Other(other) = identity else { return None };
    if other.certificate_type() != typ {
        return None;
    }
    let did = str::from_utf8(other.id()).ok()?.parse().ok()?;
    match json::read(other.details()).ok()? {
        Value::Object(details) => Some((did, details)),
        _ => None,
    }
}

/// An identity of this type for the engine; `None` if something is too long.
pub(super) fn engine_identity(typ: CertificateType, did: &Did, details: String) -> Option<PeerIdentity> {
    let id = did.as_str();
    let text = match id.get(..MAX_SHOWN_DID).filter(|_| id.len() > MAX_SHOWN_DID) {
        Some(begin) => format!("{begin}…"),
        None => id.to_owned(),
    };
    let other = OtherIdentity::new(typ, id, text).ok()?;
    Some(PeerIdentity::Other(other.with_details(details.into_bytes()).ok()?))
}
