//! The checks that all verifiers make of a peer's DID: whether this side accepts it, and which key it has.

use std::sync::Arc;

use dunlin::auth::KnownRegistry;
use dunlin::crypto::CryptoProvider;
use dunlin::pki_types::{SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer};
use dunlin::wire::{DidMethod, SignatureScheme};

use super::Refusal;
use super::resolve::{
    ListedIssuer, Resolution, ResolveError, Resolver, Standing, resolve, self_contained, standing,
};
use crate::credential::Seconds;
use crate::did::{Did, did_method};
use crate::document::{DidDocument, Relationship};
use crate::hash::Sha256Hash;
use crate::transparency::Staple;
use crate::trust::TrustList;

/// The DIDs of peers, and how they resolve.
#[derive(Debug)]
pub struct Subjects {
    pub(super) provider: Arc<CryptoProvider>,
    resolvers: Vec<Arc<dyn Resolver>>,
    peers: Option<TrustList>,
}

/// A peer's DID, resolved and accepted.
pub struct Subject {
    /// The key with which the DID proves itself in handshakes: the first under `authentication`.
    pub key: SubjectPublicKeyInfoDer<'static>,
    /// The hash of the document.
    pub document: Sha256Hash,
    /// The version of the document.
    pub sequence: u64,
    /// The last second in which the document counts as the latest.
    pub until: Option<Seconds>,
}

impl Subjects {
    /// Accepts all peers of `did:key` and `did:jwk`.
    pub fn new(provider: Arc<CryptoProvider>) -> Self {
        Self { provider, resolvers: self_contained(), peers: None }
    }

    /// The provider that verifies signatures.
    pub fn provider(&self) -> &CryptoProvider {
        &self.provider
    }

    /// Resolves the DIDs of further methods. Of several resolvers for one method, the first that has an answer
    /// counts.
    pub fn add_resolver(&mut self, resolver: Arc<dyn Resolver>) {
        self.resolvers.push(resolver);
    }

    /// Makes the resolvers keep what they know of an issuer.
    pub(super) fn keep(&self, issuer: &Did) {
        self.resolvers.iter().for_each(|resolver| resolver.keep(issuer));
    }

    /// Accepts only peers with these DIDs.
    #[must_use]
    pub fn only(self, peers: TrustList) -> Self {
        Self { peers: Some(peers), ..self }
    }

    /// The DIDs that the peer may have; `None`: any.
    pub(super) fn peers(&self) -> Option<&TrustList> {
        self.peers.as_ref()
    }

    /// Checks what the DID of a peer and the proof of its membership say by themselves: that the list has it,
    /// and that a resolver knows its method. `proof` is what the peer has sent beside the DID.
    pub(super) fn check(&self, did: &Did, proof: Option<&[u8]>) -> Result<(), Refusal> {
        if let Some(peers) = &self.peers {
            peers.check(&self.provider, did, self.membership(peers, did, proof)?.as_deref())?;
        }
        let method = did_method(did);
        let knows = |resolver: &Arc<dyn Resolver>| resolver.methods().iter().any(|one| Some(*one) == method);
        if self.resolvers.iter().any(knows) {
            Ok(())
        } else {
            Err(ResolveError::Unsupported(did.clone()).into())
        }
    }

    /// Resolves the DID of a peer. `proof` is what the peer has sent beside it.
    ///
    /// # Errors
    /// [`Refusal`]: the first check that fails.
    pub fn resolve(&self, did: &Did, proof: Option<&[u8]>, now: Seconds) -> Result<Subject, Refusal> {
        // Before anything else, so that strangers cost no look-up and leave nothing here.
        self.check(did, proof)?;
        let resolution = resolve(&self.resolvers, did, proof, now)?;
        let document = &resolution.document;
        let first = document.keys(Relationship::Authentication).next();
        let (_, key) = first.ok_or_else(|| Refusal::NoKey(document.id().clone()))?;
        let hash = self.hash(document)?;
        let sequence = resolution.sequence;
        if !self.is_latest(did, &hash, sequence) {
            return Err(ResolveError::Outdated(did.clone()).into());
        }
        Ok(Subject { key: key.spki().clone(), document: hash, sequence, until: resolution.until })
    }

    /// The proof of membership that the peer has sent with the proof of its DID, if the list needs one. It
    /// counts whatever becomes of the rest, also if that is too old and the document is looked up.
    fn membership(
        &self,
        peers: &TrustList,
        did: &Did,
        proof: Option<&[u8]>,
    ) -> Result<Option<Vec<u8>>, ResolveError> {
        let is_needed = !peers.roots().is_empty() && peers.check(&self.provider, did, None).is_err();
        let Some(proof) = proof.filter(|_| is_needed) else { return Ok(None) };
        let staple = Staple::read(proof).map_err(ResolveError::Proof)?;
        Ok(Some(staple.membership).filter(|membership| !membership.is_empty()))
    }

    /// Resolves an issuer whose document the resolvers have.
    pub(super) fn resolve_issuer(
        &self,
        listed: &ListedIssuer,
        now: Seconds,
    ) -> Result<Resolution, ResolveError> {
        let did = &listed.did;
        let resolvers = self.resolvers.iter().filter(|resolver| !resolver.is_pinned()).cloned();
        let resolution = resolve(&resolvers.collect::<Vec<_>>(), did, None, now)?;
        let hash = self.hash(&resolution.document)?;
        listed.check(&hash)?;
        if self.is_latest(did, &hash, resolution.sequence) {
            Ok(resolution)
        } else {
            Err(ResolveError::Outdated(did.clone()))
        }
    }

    /// The hash by which [`Self::is_latest`] knows a document.
    pub(super) fn hash(&self, document: &DidDocument) -> Result<Sha256Hash, ResolveError> {
        Ok(Sha256Hash::of(&self.provider, document.canonical().as_bytes())?)
    }

    /// Until when the document of an issuer counts as the latest: the one that this side has resolved before,
    /// if nothing newer is known.
    pub(super) fn issuer_until(
        &self,
        issuer: &Resolution,
        now: Seconds,
    ) -> Result<Option<Seconds>, ResolveError> {
        let did = issuer.document.id();
        if !self.is_latest(did, &self.hash(&issuer.document)?, issuer.sequence) {
            return Err(ResolveError::Outdated(did.clone()));
        }
        match issuer.until {
            Some(until) if now <= until => return Ok(issuer.until),
            None if !self.can_ask(did, now) => return Ok(None),
            _ => {}
        }
        // The program may have looked it up again.
        let resolution = resolve(&self.resolvers, did, None, now)?;
        if resolution.document == issuer.document {
            Ok(resolution.until)
        } else {
            Err(ResolveError::Outdated(did.clone()))
        }
    }

    /// Whether a source other than a list may know a later document of the DID.
    pub(super) fn can_ask(&self, did: &Did, now: Seconds) -> bool {
        let Some(method) = did_method(did) else { return false };
        let asks = |resolver: &Arc<dyn Resolver>| {
            !resolver.is_pinned() && resolver.methods().contains(&method) && !resolver.is_absent(did, now)
        };
        self.resolvers.iter().any(asks)
    }

    /// Whether an earlier resolution is still the latest, as far as the resolvers know.
    pub fn standing(&self, did: &Did, document: &Sha256Hash, sequence: u64, now: Seconds) -> Standing {
        standing(&self.resolvers, did, (document, sequence), now)
    }

    /// Whether no resolver knows of a later document of the DID, or of its end.
    fn is_latest(&self, did: &Did, document: &Sha256Hash, sequence: u64) -> bool {
        let standing = |resolver: &Arc<dyn Resolver>| resolver.standing(did, document, sequence);
        !self.resolvers.iter().map(standing).any(|standing| standing == Standing::Outdated)
    }

    /// Whether the profile, which has these algorithms for chains, takes an issuer's signature of this
    /// scheme: with its type of key, hash and padding.
    pub fn accepts(
        &self,
        scheme: SignatureScheme,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
    ) -> bool {
        let ids = |algorithm: &dyn SignatureVerificationAlgorithm| {
            (algorithm.public_key_alg_id(), algorithm.signature_alg_id())
        };
        let schemes = self.provider.signatures.schemes.iter();
        let mut of_scheme = schemes.filter(|(candidate, _)| *candidate == scheme).flat_map(|(_, all)| *all);
        of_scheme.any(|one| algorithms.iter().any(|algorithm| ids(*algorithm) == ids(*one)))
    }

    /// Passes everything to `add` that may change a resolution.
    pub fn settings(&self, add: &mut dyn FnMut(&[u8])) {
        for resolver in &self.resolvers {
            add(b"resolver");
            resolver.settings(add);
        }
        let Some(peers) = &self.peers else { return };
        add(b"peers");
        peers.dids().for_each(|did| add(did.as_str().as_bytes()));
        peers.roots().iter().for_each(|root| add(root.to_string().as_bytes()));
    }

    /// The methods whose DIDs resolve here.
    pub fn did_methods(&self) -> Vec<DidMethod> {
        let mut methods = Vec::new();
        for method in self.resolvers.iter().flat_map(|resolver| resolver.methods()) {
            if !methods.contains(&method) {
                methods.push(method);
            }
        }
        methods
    }

    pub(super) fn registries(&self) -> Vec<KnownRegistry> {
        self.resolvers.iter().flat_map(|resolver| resolver.registries()).collect()
    }
}
