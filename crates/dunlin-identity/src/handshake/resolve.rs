//! Where the documents of peers come from. The sources here do not block: what they lack, a program looks up
//! and adds.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use dunlin::auth::{Belief, KnownRegistry};
use dunlin::crypto::CryptoProvider;
use dunlin::wire::DidMethod;

use crate::credential::Seconds;
use crate::did::{Did, did_method};
use crate::document::{DidDocument, DocumentError};
use crate::hash::Sha256Hash;
use crate::key::KeyError;
use crate::knowledge::MAX_KNOWN_DIDS;
use crate::method::dunlin::{OperationError, check_first_document};
use crate::method::{Jwk, Key, Method, MethodError};
use crate::transparency::StapleError;
use crate::trust::TrustList;

/// Why a DID does not resolve.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// No resolver knows the method.
    #[error("{0} cannot be resolved: its method is not supported here")]
    Unsupported(Did),
    /// The method knows the DID, but the document is not at hand. The program can look it up.
    #[error("the document of {0} is not at hand, or too old")]
    NotAtHand(Did),
    /// The owner has ended the DID.
    #[error("{0} is deactivated")]
    Deactivated(Did),
    /// Another resolver knows a later document of the DID, or that its owner has ended it.
    #[error("the document of {0} is no longer the latest")]
    Outdated(Did),
    /// The registry has stated two documents with the same number: it shows different histories.
    #[error("{0} has two documents with the number {1}: its registry shows different histories, report it")]
    Conflict(Did, u64),
    /// [`Knowledge`](crate::knowledge::Knowledge) has reached its bound for the DID's origin, and has no
    /// entry of this DID.
    #[error(
        "{0} is new here, and the place for what its registry says of DIDs ({MAX_KNOWN_DIDS}) is taken: no new DID is accepted"
    )]
    Full(Did),
    /// The DID is malformed.
    #[error("{0}")]
    Method(#[from] MethodError),
    /// The document is refused.
    #[error("{0}")]
    Document(#[from] DocumentError),
    /// The document is not the first one of its `did:dunlin`.
    #[error("the document is not the first one of its DID: {0}")]
    NotFirst(#[from] OperationError),
    /// The trust list does not pin the document's DID, or to another document.
    #[error("the trust list does not pin {0} to this document")]
    NotPinned(Did),
    /// The proof beside the credential is refused.
    #[error("{0}")]
    Proof(StapleError),
    /// The proof beside the credential was right once, but is too old. The program can look the DID up.
    #[error("{0}: {1}")]
    OldProof(Did, StapleError),
    /// The program has tried to look the DID up; the reason why it could not, with the address that it has
    /// asked.
    #[error("{0} cannot be looked up: {1}")]
    LookUp(Did, String),
    /// The provider lacks an algorithm.
    #[error("{0}")]
    Key(#[from] KeyError),
}

/// The result of resolving a DID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolution {
    /// The document.
    pub document: DidDocument,
    /// The number of its version, 0 where a DID has only one.
    pub sequence: u64,
    /// The last second in which it counts as the latest; `None` if the document never changes.
    pub until: Option<Seconds>,
}

impl Resolution {
    /// A document that never changes.
    pub const fn constant(document: DidDocument) -> Self {
        Self { document, sequence: 0, until: None }
    }
}

impl From<DidDocument> for Resolution {
    /// As [`Self::constant`].
    fn from(document: DidDocument) -> Self {
        Self::constant(document)
    }
}

/// Whether an earlier resolution is still the latest, as far as a source knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The DID still has this document, as far as the source knows.
    Latest,
    /// The source knows nothing about the DID, or nothing as late.
    Unknown,
    /// The DID has another document by now, or has ended.
    Outdated,
}

impl From<Standing> for Belief {
    fn from(standing: Standing) -> Self {
        match standing {
            Standing::Latest => Self::Holds,
            Standing::Unknown => Self::Unknown,
            Standing::Outdated => Self::Ended,
        }
    }
}

/// A source of documents for [`CredentialVerifier`](super::CredentialVerifier). A handshake waits for it, so
/// it must not block.
pub trait Resolver: Send + Sync + fmt::Debug {
    /// The methods whose DIDs it resolves, as peers see them.
    fn methods(&self) -> Vec<DidMethod>;

    /// Passes everything to `add` that may change a resolution, except for time and what it learns while it
    /// runs.
    fn settings(&self, add: &mut dyn FnMut(&[u8]));

    /// The document of a DID of its methods. `proof` is what the peer has sent beside its credential.
    ///
    /// # Errors
    /// [`ResolveError`]; [`ResolveError::NotAtHand`] lets the next resolver try.
    fn resolve(&self, did: &Did, proof: Option<&[u8]>, now: Seconds) -> Result<Resolution, ResolveError>;

    /// Whether its documents are those to which a list pins peers. They do not count for issuers, and where
    /// another source knows the method, only if that source does not have the DID.
    fn is_pinned(&self) -> bool {
        false
    }

    /// Whether a registry has proven lately that it does not have the DID.
    fn is_absent(&self, _did: &Did, _now: Seconds) -> bool {
        false
    }

    /// Never forgets what it knows of this DID, for want of space.
    fn keep(&self, _did: &Did) {}

    /// The registries whose proofs it accepts.
    fn registries(&self) -> Vec<KnownRegistry> {
        Vec::new()
    }

    /// Whether an earlier resolution, to the document with this hash and number, is still the latest.
    fn standing(&self, _did: &Did, _document: &Sha256Hash, _sequence: u64) -> Standing {
        Standing::Unknown
    }
}

/// Methods whose DIDs contain their documents are resolvers.
impl<M: Method> Resolver for M {
    fn methods(&self) -> Vec<DidMethod> {
        DidMethod::of(self.name()).into_iter().collect()
    }

    fn settings(&self, add: &mut dyn FnMut(&[u8])) {
        add(self.name().as_bytes());
    }

    fn resolve(&self, did: &Did, _proof: Option<&[u8]>, _now: Seconds) -> Result<Resolution, ResolveError> {
        Ok(Resolution::constant(Method::resolve(self, did)?))
    }

    fn standing(&self, did: &Did, _document: &Sha256Hash, _sequence: u64) -> Standing {
        if did.method() == self.name() { Standing::Latest } else { Standing::Unknown }
    }
}

/// `did:key` and `did:jwk`.
pub(super) fn self_contained() -> Vec<Arc<dyn Resolver>> {
    vec![Arc::new(Key), Arc::new(Jwk)]
}

/// The document of a DID, from the first resolver that has it.
pub(super) fn resolve(
    resolvers: &[Arc<dyn Resolver>],
    did: &Did,
    proof: Option<&[u8]>,
    now: Seconds,
) -> Result<Resolution, ResolveError> {
    let mut refusal = ResolveError::Unsupported(did.clone());
    let Some(method) = did_method(did) else { return Err(refusal) };
    let of_method = || resolvers.iter().filter(|resolver| resolver.methods().contains(&method));
    let mut pins_count = true;
    for resolver in of_method().filter(|resolver| !resolver.is_pinned()) {
        match resolver.resolve(did, proof, now) {
            Err(error @ ResolveError::NotAtHand(_)) => {
                refusal = error;
                pins_count &= resolver.is_absent(did, now);
            }
            decided => return decided,
        }
    }
    for resolver in of_method().filter(|resolver| pins_count && resolver.is_pinned()) {
        match resolver.resolve(did, proof, now) {
            Err(error @ ResolveError::NotAtHand(_)) => refusal = error,
            decided => return decided,
        }
    }
    Err(refusal)
}

/// Whether an earlier resolution is still the latest, as far as the resolvers know.
pub(super) fn standing(
    resolvers: &[Arc<dyn Resolver>],
    did: &Did,
    (document, sequence): (&Sha256Hash, u64),
    now: Seconds,
) -> Standing {
    let of = |resolver: &Arc<dyn Resolver>| resolver.standing(did, document, sequence);
    if resolvers.iter().map(of).any(|standing| standing == Standing::Outdated) {
        return Standing::Outdated;
    }
    let (pins, live): (Vec<_>, Vec<_>) = resolvers.iter().partition(|resolver| resolver.is_pinned());
    let knows = |resolver: &&Arc<dyn Resolver>| of(resolver) == Standing::Latest;
    let method = did_method(did);
    let mut live_ones =
        live.iter().filter(|live| method.is_some_and(|method| live.methods().contains(&method)));
    let pins_count = live_ones.all(|live| live.is_absent(did, now));
    if live.iter().any(knows) || (pins_count && pins.iter().any(knows)) {
        Standing::Latest
    } else {
        Standing::Unknown
    }
}

/// The DIDs on a list of issuers.
#[derive(Clone, Debug, Default)]
pub struct ListedIssuers {
    /// The resolutions of the issuers whose documents are at hand.
    pub resolved: Vec<Resolution>,
    /// The others
    /// ([`CredentialVerifier::with_resolved_issuers`](super::CredentialVerifier::with_resolved_issuers)).
    pub others: Vec<ListedIssuer>,
}

/// An issuer on a list whose document is not at hand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedIssuer {
    /// Its DID.
    pub did: Did,
    /// The hash of the only document that counts; `None`: the latest counts.
    pub pin: Option<Sha256Hash>,
}

impl ListedIssuer {
    /// Checks that a document with this hash counts.
    ///
    /// # Errors
    /// [`ResolveError::Outdated`].
    pub fn check(&self, document: &Sha256Hash) -> Result<(), ResolveError> {
        if self.pin.is_none_or(|pin| pin == *document) {
            Ok(())
        } else {
            Err(ResolveError::Outdated(self.did.clone()))
        }
    }
}

impl From<Did> for ListedIssuer {
    /// An issuer whose latest document counts.
    fn from(did: Did) -> Self {
        Self { did, pin: None }
    }
}

impl ListedIssuers {
    /// Resolves the DIDs on a list. Beside `did:key` and `did:jwk`, these resolvers are asked. The DIDs of
    /// the methods `later` may have no document at hand yet.
    ///
    /// # Errors
    /// The first DID that does not resolve, or to another document than the list pins it to.
    pub fn of(
        provider: &CryptoProvider,
        list: &TrustList,
        resolvers: &[Arc<dyn Resolver>],
        later: &[DidMethod],
        now: Seconds,
    ) -> Result<Self, ResolveError> {
        let resolvers = [self_contained().as_slice(), resolvers].concat();
        let mut listed = Self::default();
        for did in list.dids() {
            let pin = list.pin(did);
            match resolve(&resolvers, did, None, now) {
                Ok(resolution) => {
                    let hash = Sha256Hash::of(provider, resolution.document.canonical().as_bytes())?;
                    if pin.is_some_and(|pin| pin != hash) {
                        return Err(ResolveError::NotPinned(did.clone()));
                    }
                    listed.resolved.push(resolution);
                }
                Err(ResolveError::NotAtHand(_) | ResolveError::Unsupported(_))
                    if did_method(did).is_some_and(|method| later.contains(&method)) =>
                {
                    listed.others.push(ListedIssuer { did: did.clone(), pin });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(listed)
    }
}

/// The DIDs on a list of peers that can never authenticate, because nothing resolves them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unresolvable {
    /// The first of them.
    pub first: Did,
    /// Why it does not resolve.
    pub error: ResolveError,
    /// How many others there are.
    pub others: usize,
}

impl Unresolvable {
    /// Looks for such DIDs; `None` if there are none. `did:key` and `did:jwk` resolve, what these resolvers
    /// know, and the DIDs of the methods `later`, whose documents come with the peers or by a look-up.
    pub fn on(
        list: &TrustList,
        resolvers: &[Arc<dyn Resolver>],
        later: &[DidMethod],
        now: Seconds,
    ) -> Option<Self> {
        let resolvers = [self_contained().as_slice(), resolvers].concat();
        let now_or_never = |did: &&Did| did_method(did).is_none_or(|method| !later.contains(&method));
        let fails = |did: &Did| resolve(&resolvers, did, None, now).err().map(|error| (did.clone(), error));
        let mut all = list.dids().filter(now_or_never).filter_map(fails);
        let (first, error) = all.next()?;
        Some(Self { first, error, others: all.count() })
    }
}

impl fmt::Display for Unresolvable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.others {
            0 => write!(f, "{} can never authenticate: {}", self.first, self.error),
            others => write!(f, "{} and {others} more can never authenticate: {}", self.first, self.error),
        }
    }
}

/// The first documents of `did:dunlin`, which a trust list pins by their hashes. They count without a
/// registry, until another resolver knows that such a DID has been rotated or deactivated.
#[derive(Clone, Debug, Default)]
pub struct PinnedDocuments(BTreeMap<Did, DidDocument>);

impl PinnedDocuments {
    /// Takes the documents that the list pins.
    ///
    /// # Errors
    /// [`ResolveError::NotPinned`], [`ResolveError::NotFirst`].
    pub fn new(
        provider: &CryptoProvider,
        list: &TrustList,
        documents: impl IntoIterator<Item = DidDocument>,
    ) -> Result<Self, ResolveError> {
        let pinned = documents.into_iter().map(|document| {
            let did = document.id().clone();
            let hash = Sha256Hash::of(provider, document.canonical().as_bytes())?;
            if list.pin(&did) != Some(hash) {
                return Err(ResolveError::NotPinned(did));
            }
            check_first_document(provider, &document)?;
            Ok((did, document))
        });
        Ok(Self(pinned.collect::<Result<_, _>>()?))
    }
}

impl Resolver for PinnedDocuments {
    fn methods(&self) -> Vec<DidMethod> {
        if self.0.is_empty() { Vec::new() } else { vec![DidMethod::DUNLIN] }
    }

    fn settings(&self, add: &mut dyn FnMut(&[u8])) {
        self.0.keys().for_each(|did| add(did.as_str().as_bytes()));
    }

    fn is_pinned(&self) -> bool {
        true
    }

    fn resolve(&self, did: &Did, _proof: Option<&[u8]>, _now: Seconds) -> Result<Resolution, ResolveError> {
        let document = self.0.get(did).ok_or_else(|| ResolveError::NotAtHand(did.clone()))?;
        Ok(Resolution::constant(document.clone()))
    }

    fn standing(&self, did: &Did, _document: &Sha256Hash, sequence: u64) -> Standing {
        if self.0.contains_key(did) && sequence == 0 { Standing::Latest } else { Standing::Unknown }
    }
}
