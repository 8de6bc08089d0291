//! The DIDs and credentials of a program, and the choice of one that suits a peer.

use std::sync::Arc;

use dunlin::auth::{DidProofs, Identifier, PrivateKey, VerifiableCredential};
use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin::wire::SignatureScheme;

use crate::credential::status::{self, StatusEntry, StatusError};
use crate::credential::{Contexts, CredentialError, Seconds, check_dates, parties, unverified};
use crate::did::{Did, DidUrl, did_method};
use crate::document::{DidDocument, Relationship};
use crate::encoding::json::Value;
use crate::key::PublicKey;
use crate::method::{KEY, Method, MethodError, Methods};

/// A DID with its key, and perhaps a credential about it.
#[derive(Clone, Debug)]
pub struct Holding {
    method: DidUrl,
    signer: Arc<dyn SigningKey>,
    credential: Option<Shown>,
    proofs: Option<Arc<dyn DidProofs>>,
    status: Vec<u8>,
}

/// Why a credential cannot be shown in handshakes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HoldingError {
    /// The credential is malformed, or its subject is not a DID.
    #[error("{0}")]
    Credential(#[from] CredentialError),
    /// The document of the subject is not at hand.
    #[error("{0}")]
    Method(#[from] MethodError),
    /// The key is not the first under `authentication` of the document of this DID.
    #[error("the key is not the first one for authentication of {0}")]
    Key(Did),
}

#[derive(Clone, Debug)]
struct Shown {
    bytes: Vec<u8>,
    issuer: String,
}

impl Holding {
    /// A DID, whose verification method `method` has the key of `signer`.
    pub fn of_did(signer: Arc<dyn SigningKey>, method: DidUrl) -> Self {
        Self { method, signer, credential: None, proofs: None, status: Vec::new() }
    }

    /// A credential about the DID of `method`. Nothing but its form, issuer and subject is checked here.
    ///
    /// # Errors
    /// [`CredentialError`] of a malformed credential; [`CredentialError::Subject`] if it is about another
    /// DID.
    pub fn of_credential(
        signer: Arc<dyn SigningKey>,
        method: DidUrl,
        credential: Vec<u8>,
        contexts: &Contexts,
    ) -> Result<Self, CredentialError> {
        let issuer = parties(&credential, method.did(), contexts)?;
        let shown = Some(Shown { bytes: credential, issuer });
        Ok(Self { credential: shown, ..Self::of_did(signer, method) })
    }

    /// The DID of this key, to show it without a credential: the DID of the document whose first key under
    /// `authentication` is this one, as peers expect; otherwise the key's `did:key`.
    ///
    /// # Errors
    /// [`HoldingError::Method`]: no `did:key` has such a key.
    pub fn of_key(signer: Arc<dyn SigningKey>, documents: &[DidDocument]) -> Result<Self, HoldingError> {
        let first = |document: &DidDocument| {
            let (method, key) = document.keys(Relationship::Authentication).next()?;
            (key.spki() == signer.public_key()).then(|| method.clone())
        };
        if let Some(method) = documents.iter().find_map(first) {
            return Ok(Self::of_did(signer, method));
        }
        let key = PublicKey::from_spki(signer.public_key());
        let did = KEY.create(&key.map_err(|error| MethodError::Key(KEY.name(), error))?)?;
        let method = first(&KEY.resolve(&did)?).ok_or(HoldingError::Key(did))?;
        Ok(Self::of_did(signer, method))
    }

    /// A credential for handshakes. `signer` has the first key under `authentication` of the subject's
    /// document, which peers expect. The document is among `documents`, unless it follows from the DID.
    ///
    /// # Errors
    /// [`HoldingError`].
    pub fn for_handshakes(
        signer: Arc<dyn SigningKey>,
        credential: Vec<u8>,
        documents: &[DidDocument],
        contexts: &Contexts,
    ) -> Result<Self, HoldingError> {
        let value = unverified(&credential)?;
        let subject = value.get("credentialSubject").and_then(|subject| subject.get("id"));
        let subject: Option<Did> = subject.and_then(Value::as_str).and_then(|did| did.parse().ok());
        let subject = subject.ok_or(CredentialError::Member("credentialSubject"))?;
        let document = match documents.iter().find(|document| *document.id() == subject) {
            Some(document) => document.clone(),
            None => Methods::default().resolve(&subject)?,
        };
        let first = document.keys(Relationship::Authentication).next();
        match first.filter(|(_, key)| key.spki() == signer.public_key()) {
            Some((method, _)) => Ok(Self::of_credential(signer, method.clone(), credential, contexts)?),
            None => Err(HoldingError::Key(subject)),
        }
    }

    /// Shows also these proofs of what the DID resolves to.
    #[must_use]
    pub fn with_proofs(self, proofs: Arc<dyn DidProofs>) -> Self {
        Self { proofs: Some(proofs), ..self }
    }

    /// Shows also these status lists of the credential's issuer, so that peers need not fetch them:
    /// credentials that contain a list, as [`crate::credential::status::Bitstring::credential`] makes them.
    /// Their signatures are not checked here.
    ///
    /// # Errors
    /// [`CredentialError`]: [`StatusError::OtherList`] if the credential has no status in one of the lists,
    /// [`StatusError::OtherIssuer`], [`StatusError::Staple`] if the lists are too long together, or what
    /// cannot be read.
    pub fn with_status(self, lists: &[impl AsRef<[u8]>]) -> Result<Self, CredentialError> {
        let entries = self.statuses()?;
        for list in lists {
            let list = unverified(list.as_ref())?;
            let url = list.get("id").and_then(Value::as_str).ok_or(StatusError::Member("id"))?.to_owned();
            if !entries.iter().any(|entry| entry.list == url) {
                return Err(StatusError::OtherList(url).into());
            }
            if list.get("issuer").and_then(Value::as_str) != self.issuer() {
                return Err(StatusError::OtherIssuer(url).into());
            }
        }
        Ok(Self { status: status::write_staple(lists)?, ..self })
    }

    /// Where the issuer publishes the status of the credential.
    ///
    /// # Errors
    /// [`CredentialError`] of a malformed credential or status.
    pub fn statuses(&self) -> Result<Vec<StatusEntry>, CredentialError> {
        let Some(credential) = self.credential() else { return Ok(Vec::new()) };
        let credential = unverified(credential)?;
        Ok(credential.as_object().map(StatusEntry::read_all).transpose()?.unwrap_or_default())
    }

    /// Checks that the credential is valid by its `validFrom` and `validUntil`: peers refuse another one. Its
    /// proof or JWT may have further times.
    ///
    /// # Errors
    /// [`CredentialError::NotYetValid`], [`CredentialError::Expired`]; [`CredentialError::Member`] of a
    /// malformed time.
    pub fn check_time(&self, now: Seconds) -> Result<(), CredentialError> {
        self.credential().map_or(Ok(()), |credential| check_dates(credential, now))
    }

    /// The credential for handshakes, or the DID if there is no credential; `None` if the DID's method has no
    /// number there. Whether the key is the first under `authentication` of the DID's document, which peers
    /// expect, is not checked here.
    pub fn to_tls(&self, provider: &CryptoProvider) -> Option<dunlin::Credential> {
        let method = did_method(self.did())?;
        let key = PrivateKey::Here(self.signer.clone());
        let Some(shown) = &self.credential else {
            let proofs = self.proofs.clone();
            let identifier = Identifier { proofs, ..Identifier::new(self.did().as_str(), method) };
            return Some(dunlin::Credential::Identifier { identifier, key });
        };
        let credential = VerifiableCredential {
            issuer: Some(issuer_name(provider, &shown.issuer).to_vec()),
            proofs: self.proofs.clone(),
            status: self.status.clone(),
            ..VerifiableCredential::new(shown.bytes.clone(), method)
        };
        Some(dunlin::Credential::Verifiable { credential, key })
    }

    /// The DID.
    pub fn did(&self) -> &Did {
        self.method.did()
    }

    /// The verification method whose key signs.
    pub fn method(&self) -> &DidUrl {
        &self.method
    }

    /// The key.
    pub fn signer(&self) -> &Arc<dyn SigningKey> {
        &self.signer
    }

    /// The credential; `None` if there is the DID alone.
    pub fn credential(&self) -> Option<&[u8]> {
        self.credential.as_ref().map(|shown| shown.bytes.as_slice())
    }

    /// The issuer of the credential.
    pub fn issuer(&self) -> Option<&str> {
        self.credential.as_ref().map(|shown| shown.issuer.as_str())
    }
}

/// A peer's request for a DID or a credential.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// Whether it asks for a credential instead of a DID alone.
    pub credential: bool,
    /// The names of the DID methods that it resolves.
    pub methods: &'r [&'r str],
    /// Its signature schemes.
    pub schemes: &'r [SignatureScheme],
    /// The issuers that it trusts ([`issuer_name`]); empty if it names none.
    pub issuers: &'r [[u8; ISSUER_NAME_LEN]],
}

/// Why nothing suits a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SelectError {
    /// The peer asks for a credential, and there is none.
    #[error("the peer asks for a credential, and none is configured")]
    NoCredential,
    /// There is nothing to show.
    #[error("no DID is configured")]
    Nothing,
    /// The peer resolves no method of the DIDs.
    #[error("the peer resolves none of the configured DID methods")]
    NoMethod,
    /// The peer accepts no scheme of the keys.
    #[error("the peer accepts no signature scheme of the configured keys")]
    NoScheme,
}

/// Chooses what to show: something that the peer asks for, with a common DID method and a common scheme. Of
/// several, one by an issuer that the peer names comes first, then the order of `holdings`. Returns the
/// peer's first scheme that the key has, too.
///
/// # Errors
/// [`SelectError`].
pub fn select<'h>(
    provider: &CryptoProvider,
    holdings: &'h [Holding],
    request: &Request<'_>,
) -> Result<(&'h Holding, SignatureScheme), SelectError> {
    let missing = if request.credential { SelectError::NoCredential } else { SelectError::Nothing };
    let asked: Vec<_> =
        holdings.iter().filter(|holding| !request.credential || holding.credential.is_some()).collect();
    if asked.is_empty() {
        return Err(missing);
    }
    let resolved: Vec<_> =
        asked.into_iter().filter(|holding| request.methods.contains(&holding.did().method())).collect();
    if resolved.is_empty() {
        return Err(SelectError::NoMethod);
    }
    let common = resolved.into_iter().filter_map(|holding| {
        let known = holding.signer.schemes();
        Some((holding, *request.schemes.iter().find(|scheme| known.contains(scheme))?))
    });
    let is_named = |holding: &Holding| {
        let issuer = if request.credential { holding.issuer() } else { None };
        issuer.is_some_and(|issuer| request.issuers.contains(&issuer_name(provider, issuer)))
    };
    // Of equals, this takes the first.
    common.min_by_key(|(holding, _)| !is_named(holding)).ok_or(SelectError::NoScheme)
}

/// The length of an [`issuer_name`], in bytes.
pub const ISSUER_NAME_LEN: usize = 46;

/// How a peer names an issuer in certificate_authorities: by a Name in DER, as RFC 8446 §4.2.4 demands. Its
/// only attribute is x500UniqueIdentifier (X.520 §6.2.9, a bit string) with the SHA-256 of the issuer's DID.
pub fn issuer_name(provider: &CryptoProvider, issuer: &str) -> [u8; ISSUER_NAME_LEN] {
    // Sequence, set, sequence, object identifier 2.5.4.45, bit string without unused bits.
    let header = [0x30, 44, 0x31, 42, 0x30, 40, 6, 3, 0x55, 4, 45, 3, 33, 0];
    let hash = provider.sha256.hash(&[issuer.as_bytes()]);
    let mut name = [0; ISSUER_NAME_LEN];
    for (byte, written) in name.iter_mut().zip(header.iter().chain(hash.as_ref())) {
        *byte = *written;
    }
    name
}
