//! Why a peer is refused, and the alert that tells it.

use dunlin::error::AuthenticationFailure;
use dunlin::wire::{AlertDescription as Alert, SignatureScheme};

use super::resolve::ResolveError;
use crate::credential::proof::ProofError;
use crate::credential::status::StatusError;
use crate::credential::{CoseError, CredentialError, JwtError};
use crate::did::{Did, DidError};
use crate::document::DocumentError;
use crate::key::KeyError;
use crate::method::MethodError;
use crate::transparency::{ChainError, CheckpointError, MapError, NoteError, StapleError};
use crate::trust::TrustError;

/// Why a peer's credential or DID is refused in a handshake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The Certificate message has several entries.
    #[error("the peer has sent several entries instead of one credential")]
    Entries,
    /// The peer's identifier is not a DID.
    #[error("the peer's identifier: {0}")]
    Identifier(#[from] DidError),
    /// The credential is refused.
    #[error("{0}")]
    Credential(#[from] CredentialError),
    /// A status list beside the credential is refused.
    #[error("status list beside the credential: {0}")]
    StatusList(CredentialError),
    /// The profile does not allow the issuer's signature in chains.
    #[error("credential: the issuer has signed with {0}, which is not accepted here")]
    Algorithm(SignatureScheme),
    /// The peer's DID is not among those that this side talks to.
    #[error("{0}")]
    Peer(#[from] TrustError),
    /// The peer's DID does not resolve.
    #[error("{0}")]
    Resolve(#[from] ResolveError),
    /// The peer's document has no usable key for authentication.
    #[error("the document of {0} has no key for authentication that is supported here")]
    NoKey(Did),
    /// The peer's identity is too long for sessions and cache entries.
    #[error("the names of the credential's issuer and status lists are too long together")]
    TooLong,
}

impl Refusal {
    /// Whether the program could look something up and try again: a document or a status list.
    pub fn is_missing(&self) -> bool {
        use StatusError as S;
        match self {
            Self::Resolve(_) => self.wanted().is_some(),
            Self::Credential(CredentialError::Status(error)) => {
                matches!(error, S::Missing(_) | S::Stale(_))
            }
            _ => false,
        }
    }

    /// The DID that the program could look up to try again.
    pub fn wanted(&self) -> Option<&Did> {
        match self {
            Self::Resolve(ResolveError::NotAtHand(did) | ResolveError::OldProof(did, _)) => Some(did),
            _ => None,
        }
    }

    /// The alert that tells the peer.
    pub fn alert(&self) -> Alert {
        match self {
            Self::Entries | Self::Identifier(_) => Alert::DECODE_ERROR,
            Self::Credential(error) | Self::StatusList(error) => of_credential(error),
            Self::Algorithm(_) | Self::TooLong => Alert::UNSUPPORTED_CERTIFICATE,
            Self::Peer(_) => Alert::UNKNOWN_CA,
            Self::Resolve(ResolveError::Deactivated(_) | ResolveError::Outdated(_)) => {
                Alert::CERTIFICATE_REVOKED
            }
            Self::Resolve(ResolveError::OldProof(..)) => Alert::CERTIFICATE_EXPIRED,
            Self::Resolve(ResolveError::Proof(error)) => of_staple(error),
            Self::Resolve(ResolveError::Unsupported(_)) => Alert::UNSUPPORTED_CERTIFICATE,
            Self::Resolve(ResolveError::Method(error)) => of_method(error),
            Self::Resolve(_) | Self::NoKey(_) => Alert::BAD_CERTIFICATE,
        }
    }
}

impl From<Refusal> for AuthenticationFailure {
    fn from(refusal: Refusal) -> Self {
        Self::RejectedWith(refusal.alert(), refusal.to_string())
    }
}

/// Syntax is a decode error; the rest follows RFC 8446 §6.2 for certificates.
pub(super) fn of_credential(error: &CredentialError) -> Alert {
    use CredentialError as C;
    use {CoseError as O, JwtError as J, ProofError as P};
    match error {
        C::TooLong | C::Form | C::Json(_) | C::Status(StatusError::Staple) => Alert::DECODE_ERROR,
        C::Jwt(J::Parts | J::Json(_)) => Alert::DECODE_ERROR,
        C::Cose(
            O::Message(_)
            | O::Header(_)
            | O::Content(_)
            | O::Structure
            | O::Members
            | O::Payload
            | O::NotShort,
        ) => Alert::DECODE_ERROR,
        C::UntrustedIssuer(_) => Alert::UNKNOWN_CA,
        C::Expired | C::NotYetValid => Alert::CERTIFICATE_EXPIRED,
        C::Jwt(J::Expired | J::NotYetValid) => Alert::CERTIFICATE_EXPIRED,
        C::Proof(P::Expired | P::Future) | C::Status(StatusError::Stale(_)) => Alert::CERTIFICATE_EXPIRED,
        C::Status(StatusError::Revoked | StatusError::Suspended) => Alert::CERTIFICATE_REVOKED,
        C::Context(_) | C::Type | C::Unchecked(_) => Alert::UNSUPPORTED_CERTIFICATE,
        C::Status(StatusError::Type(_) | StatusError::Purpose) => Alert::UNSUPPORTED_CERTIFICATE,
        C::Proof(P::Type(_) | P::Cryptosuite(_) | P::Chain) => Alert::UNSUPPORTED_CERTIFICATE,
        C::Jwt(J::Algorithm(_)) | C::Cose(O::Algorithm(_)) => Alert::UNSUPPORTED_CERTIFICATE,
        C::Proof(P::Key(key)) | C::Jwt(J::Key(key)) | C::Cose(O::Key(key)) => of_key(key),
        _ => Alert::BAD_CERTIFICATE,
    }
}

/// A proof of a DID that cannot be read is a decode error; one that is wrong is not.
fn of_staple(error: &StapleError) -> Alert {
    use {CheckpointError as C, DocumentError as D, NoteError as N, StapleError as S};
    match error {
        S::TooLong | S::Field(_) | S::Map(MapError::Malformed) => Alert::DECODE_ERROR,
        S::Document(
            D::Json(_)
            | D::Canonical(_)
            | D::Member(_)
            | D::Did(..)
            | D::TooManyMethods
            | D::TooManyEntries(_),
        ) => Alert::DECODE_ERROR,
        S::Checkpoint(
            C::Malformed | C::Note(N::TooLong | N::Text | N::Unsigned | N::Line(_) | N::TooManySignatures),
        ) => Alert::DECODE_ERROR,
        S::Checkpoint(C::Chain(ChainError::Malformed(_))) => Alert::DECODE_ERROR,
        _ => Alert::BAD_CERTIFICATE,
    }
}

fn of_method(error: &MethodError) -> Alert {
    match error {
        MethodError::Unknown(_) => Alert::UNSUPPORTED_CERTIFICATE,
        MethodError::Did(_) | MethodError::Encoding(_) | MethodError::Json(_) => Alert::DECODE_ERROR,
        MethodError::Key(_, error) => of_key(error),
        MethodError::Document(_) => Alert::BAD_CERTIFICATE,
    }
}

fn of_key(error: &KeyError) -> Alert {
    match error {
        KeyError::UnknownType | KeyError::Use | KeyError::Provider(_) => Alert::UNSUPPORTED_CERTIFICATE,
        _ => Alert::BAD_CERTIFICATE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::DidDocument;
    use crate::method::Method;
    use crate::method::{JWK, KEY};
    use crate::transparency::{LightBlock, MAX_STAPLE, SignedCheckpoint, Staple, StateProof};

    /// docs/identity.md: a malformed DID or proof of a DID is a decode error, a wrong one is not.
    #[test]
    fn malformed_identifiers_and_proofs_are_decode_errors() {
        let staple = |error: StapleError| Refusal::from(ResolveError::Proof(error)).alert();
        let did: Did = "did:dunlin:device".parse().unwrap();
        let document = |text: &[u8]| staple(DidDocument::read(text, &did).unwrap_err().into());
        let note = |text: &[u8]| match SignedCheckpoint::read(text) {
            Err(error) => staple(error.into()),
            Ok(_) => panic!("{text:?}"),
        };
        let many = |text: &str, count: usize| vec![text; count].join(",");
        let methods = format!(r#"{{"id":"did:dunlin:device","verificationMethod":[{}]}}"#, many("{}", 17));
        let entries =
            format!(r#"{{"id":"did:dunlin:device","authentication":[{}]}}"#, many(r#""did:a:b#c""#, 17));
        let signature = "\u{2014} a AAAAAAAAAAAA\n";
        let malformed = [
            staple(Staple::read(&[0; MAX_STAPLE + 1]).unwrap_err()),
            staple(Staple::read(&[]).unwrap_err()),
            staple(StateProof::read(&[9]).unwrap_err().into()),
            document(b"{"),
            document(b"{}"),
            document(br#"{"id":"did:dunlin:device","authentication":[{"id":"x"}]}"#),
            document(methods.as_bytes()),
            document(entries.as_bytes()),
            note(b"\xff"),
            note(b"text\n"),
            note(b"text\n\n\xe2\x80\x94 x\n"),
            note(&[b'a'; 1 << 15]),
            note(format!("text\n\n{}", signature.repeat(65)).as_bytes()),
            note(b"one line\n\n\xe2\x80\x94 name AAAAAAAAAAAA\n"),
            staple(CheckpointError::Chain(LightBlock::read(&[9]).unwrap_err()).into()),
        ];
        for (number, alert) in malformed.into_iter().enumerate() {
            assert_eq!(alert, Alert::DECODE_ERROR, "{number}");
        }
        let of_did = |method: &dyn Method, did: &str| {
            let refused = method.resolve(&did.parse().unwrap()).unwrap_err();
            Refusal::from(ResolveError::from(refused)).alert()
        };
        for (method, did) in [
            (&KEY as &dyn Method, "did:key:abc"),
            (&KEY, "did:key:z0OIl"),
            (&JWK, "did:jwk:e30x"),
            (&JWK, "did:jwk:a"),
        ] {
            assert_eq!(of_did(method, did), Alert::DECODE_ERROR, "{did}");
        }
        // A key of an unknown type, another document, and what is well-formed but wrong.
        assert_eq!(of_did(&KEY, "did:key:z11"), Alert::UNSUPPORTED_CERTIFICATE);
        assert_eq!(document(br#"{"id":"did:dunlin:other"}"#), Alert::BAD_CERTIFICATE);
        let wrong = [
            StapleError::from(MapError::Root),
            MapError::Absent.into(),
            CheckpointError::NotTheRegistry("registry.example".to_owned()).into(),
            CheckpointError::Note(NoteError::Signature("registry.example".to_owned())).into(),
            StapleError::OtherRegistry("other.example".to_owned()),
        ];
        for error in wrong {
            assert_eq!(staple(error.clone()), Alert::BAD_CERTIFICATE, "{error}");
        }
    }
}
