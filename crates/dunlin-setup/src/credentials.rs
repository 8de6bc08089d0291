//! Verifiable credentials and bare DIDs of peers and of this side.

use std::sync::Arc;

use dunlin::auth::Verifier;
use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin::{Credential, SsiMessages};
use dunlin_identity::credential::status::{StatusList, StatusLists, is_old, list_issuer, list_url};
use dunlin_identity::credential::{self, Contexts, CredentialError, of_file};
use dunlin_identity::handshake::{CredentialVerifier, Holding, HoldingError, IdentifierVerifier, Judge};
use dunlin_identity::key::PublicKey;
use dunlin_identity::{Did, DidDocument};
use dunlin_registry::lookup::LookUpAnswers;
use dunlin_registry::stapler::Stapler;

use crate::did::{self, GET_LIST, OwnDid, membership, now_s};
use crate::files::{content, in_file, open_to_others, signing_key};
use crate::learned::LearnedState;
use crate::place::{Fault, FileField};
use crate::registry::{RegistryConfig, Sources};

const CREDENTIAL: &str = "give a credential as `dunlin vc issue` makes it";

const OLD: &str = "older than 24 hours, so credentials with a status in it are refused without a newer one";

/// The settings by which a side judges the verifiable credentials and bare DIDs of peers.
#[derive(Clone, Debug, Default)]
pub struct CredentialTrust {
    /// `vc_issuers`: the list of the trusted issuers.
    pub issuers: Option<FileField>,
    /// `vc_peers`: the list of the DIDs that peers may have.
    pub peers: Option<FileField>,
    /// `vc_status`: the status lists of the issuers.
    pub status: Vec<FileField>,
    /// `dids`: the list of the DIDs by which alone peers may authenticate.
    pub dids: Option<FileField>,
    /// `did_documents`: the documents that the lists pin.
    pub documents: Vec<FileField>,
    /// `registry`: where the documents of others come from.
    pub registry: Option<RegistryConfig>,
    /// `ssi_messages`: whether DIDs and credentials travel in messages of their own.
    pub messages: Option<SsiMessages>,
}

/// The settings by which a side shows a DID or verifiable credentials.
#[derive(Clone, Debug)]
pub struct OwnCredential {
    /// `did`: the directory of the DID, or its private key.
    pub did: FileField,
    /// `vc`: the credentials; without one, this side shows the DID alone.
    pub credentials: Vec<FileField>,
    /// `staple_status`: the status lists of the credentials' issuers, which this side sends along.
    pub status: Vec<FileField>,
    /// `membership`: a file of membership proofs; this side sends the proof of its own DID.
    pub membership: Option<FileField>,
}

/// The verifiers of peers' decentralised identities, one of each type.
#[derive(Clone, Debug)]
pub struct Judges {
    /// All of them.
    all: Vec<Arc<dyn Judge>>,
    /// The one that trusts issuers.
    pub credentials: Option<Arc<CredentialVerifier>>,
    sources: Sources,
}

impl Judges {
    /// For profiles.
    pub fn verifiers(&self) -> impl Iterator<Item = Arc<dyn Verifier>> {
        self.all.iter().map(|judge| Arc::clone(judge) as Arc<dyn Verifier>)
    }

    /// The answers to their questions. Without a registry, they know when a thawed peer has lost its
    /// identity.
    pub fn answers(&self) -> LookUpAnswers {
        self.sources.look_ups.answers(self.all.clone())
    }

    /// Learns whether the registry answers, as long as a verifier exists.
    pub fn watch_registry(&self) {
        self.all.first().into_iter().for_each(|judge| self.sources.watch_registry(judge));
    }
}

impl CredentialTrust {
    /// Whether credentials of some issuers, or some DIDs, are trusted.
    pub const fn trusts(&self) -> bool {
        self.issuers.is_some() || self.dids.is_some()
    }

    /// How DIDs travel. Bare ones, of this side or of peers, have messages of their own, which credentials
    /// use with peers that do not know them as certificates.
    pub fn messages<'a>(&self, mut own: impl Iterator<Item = &'a OwnCredential>) -> SsiMessages {
        let needs_them = self.dids.is_some() || own.any(OwnCredential::is_bare);
        self.messages.unwrap_or(if needs_them { SsiMessages::Beside } else { SsiMessages::Off })
    }

    /// Reads the files. `None` if nothing is trusted. Faults, and problems with which the verifiers work, are
    /// added.
    pub fn verifiers(
        &self,
        sources: &Sources,
        provider: &Arc<CryptoProvider>,
        learned: &LearnedState,
        faults: &mut Vec<Fault>,
        warnings: &mut Vec<Fault>,
    ) -> Option<Judges> {
        if !self.trusts() {
            return None;
        }
        let before = faults.len();
        let documents = self.documents.iter().map(did::document);
        let documents: Vec<_> =
            documents.filter_map(|document| document.map_err(|fault| faults.push(fault)).ok()).collect();
        if faults.len() > before {
            // Without its document, an issuer or peer would be a fault, too.
            return None;
        }
        let mut all: Vec<Arc<dyn Judge>> = vec![];
        if let Some(dids) = &self.dids {
            match did::peers(dids, &documents, &sources.methods, provider, warnings) {
                Ok((list, pinned)) => {
                    let verifier = sources.extend(IdentifierVerifier::new(provider.clone(), list));
                    all.push(Arc::new(verifier.with_resolver(pinned)));
                }
                Err(fault) => faults.push(fault),
            }
        }
        let mut credentials = None;
        if let Some(issuers) = &self.issuers {
            let verifier = self.verifier(issuers, &documents, sources, provider, learned, warnings);
            match verifier.map(Arc::new) {
                Ok(verifier) => {
                    learned.watch(&verifier);
                    sources.watch_issuers(&verifier);
                    all.push(verifier.clone());
                    credentials = Some(verifier);
                }
                Err(fault) => faults.push(fault),
            }
        }
        let judges = Judges { all, credentials, sources: sources.clone() };
        judges.watch_registry();
        Some(judges)
    }

    /// The verifier of credentials.
    fn verifier(
        &self,
        issuers: &FileField,
        documents: &[DidDocument],
        sources: &Sources,
        provider: &Arc<CryptoProvider>,
        learned: &LearnedState,
        warnings: &mut Vec<Fault>,
    ) -> Result<CredentialVerifier, Fault> {
        let listed = did::issuers(issuers, documents, &sources.methods, provider)?;
        let trusted = listed.resolved;
        let judge = credential::Verifier::new(trusted.iter().map(|issuer| issuer.document.clone()));
        let mut lists = StatusLists::default();
        let mut unverified = vec![];
        for field in &self.status {
            let content = content(field)?;
            if is_old(of_file(&content), now_s()) {
                warnings.push(in_file(field, &OLD, GET_LIST));
            }
            let issuer = list_issuer(of_file(&content)).unwrap_or_default();
            if listed.others.iter().any(|other| other.did.as_str() == issuer) {
                unverified.push(of_file(&content).to_vec());
                continue;
            }
            let list = StatusList::verify_file(&judge, provider, &content, now_s());
            let list = list.map_err(|error| did::refused_list(field, &error, "vc_issuers"))?;
            learned.insert(list.clone()).map_err(|error| in_file(field, &error, GET_LIST))?;
            lists.insert(list).map_err(|error| in_file(field, &error, "name each list once"))?;
        }
        learned.add_sent(&mut lists, &trusted, &listed.others);
        let verifier = CredentialVerifier::new(provider.clone(), trusted)
            .with_known(learned.known())
            .with_resolved_issuers(listed.others)
            .with_status(lists)
            .with_unverified_status(unverified);
        let verifier = sources.extend(verifier);
        let Some(field) = &self.peers else { return Ok(verifier) };
        let (list, pinned) = did::peers(field, documents, &sources.methods, provider, warnings)?;
        Ok(verifier.with_resolver(pinned).with_peers(list))
    }
}

/// A status list to send along.
struct StapledList<'f> {
    field: &'f FileField,
    content: Vec<u8>,
    url: String,
}

impl<'f> StapledList<'f> {
    fn read(field: &'f FileField) -> Result<Self, Fault> {
        let content = did::credential(field)?;
        let advice = "give a status list as `dunlin vc issue` makes it";
        let url = list_url(&content).map_err(|error| in_file(field, &error, advice))?;
        Ok(Self { field, content, url })
    }
}

impl OwnCredential {
    /// Whether it shows the DID alone.
    pub const fn is_bare(&self) -> bool {
        self.credentials.is_empty()
    }

    /// Reads the files. Of `documents`, one may be that of the DID. The proofs of a `did:dunlin` come from
    /// the registry of `sources`. Reasons for peers to refuse a credential are added to `warnings`.
    ///
    /// # Errors
    /// The files do not fit together, or one is unusable.
    pub fn load(
        &self,
        documents: &[FileField],
        sources: &Sources,
        provider: &CryptoProvider,
        learned: &LearnedState,
        warnings: &mut Vec<Fault>,
    ) -> Result<(Vec<Credential>, Vec<Arc<Stapler>>), Fault> {
        let mut documents = did::documents(documents)?;
        let (key, file, did) = if self.did.value.is_dir() {
            let own = OwnDid::of_directory(&self.did, provider)?;
            let did = own.did().clone();
            documents.insert(0, own.document);
            (own.key, own.file, Some(did))
        } else {
            (signing_key(&self.did, provider)?, self.did.clone(), None)
        };
        warnings.extend(open_to_others(&file, "the key"));
        let mut holdings = vec![];
        if self.is_bare() {
            let of_documents = self.did.place.word("did_documents");
            let advice = format!("give the key of a DID, and the document of a did:dunlin in {of_documents}");
            let holding = Holding::of_key(key, &documents).and_then(|holding| match did {
                Some(did) if did != *holding.did() => Err(HoldingError::Key(did)),
                _ => Ok(holding),
            });
            holdings.push((holding.map_err(|error| in_file(&file, &error, &advice))?, &file));
        } else {
            for field in &self.credentials {
                holdings.push((self.holding(field, &key, did.as_ref(), &documents)?, field));
            }
            holdings = self.with_status(holdings)?;
        }
        let mut shown = vec![];
        let mut staplers = vec![];
        for (mut holding, field) in holdings {
            if let Err(error) = holding.check_time(now_s()) {
                let advice = match error {
                    CredentialError::NotYetValid => "peers will refuse it: check the clock",
                    _ => "peers will refuse it: get a new one from its issuer",
                };
                warnings.push(in_file(field, &error, advice));
            }
            if let Some(stapler) = self.stapler(&holding, &mut staplers, sources, learned)? {
                holding = holding.with_proofs(stapler);
            }
            shown.push(holding.to_tls(provider).ok_or_else(|| {
                let what = format!("handshakes have no number for the method of {}", holding.did());
                in_file(field, &what, "use did:key, did:jwk or did:dunlin")
            })?);
        }
        Ok((shown, staplers))
    }

    /// A credential with the key of its subject, which is `did` if that is known.
    fn holding(
        &self,
        field: &FileField,
        key: &Arc<dyn SigningKey>,
        did: Option<&Did>,
        documents: &[DidDocument],
    ) -> Result<Holding, Fault> {
        let bytes = did::credential(field)?;
        if let Some(did) = did {
            let setting = self.did.place.word("did");
            let advice = format!("give a credential about the DID of {setting}");
            is_about(&bytes, did, &setting).map_err(|what| in_file(field, &what, &advice))?;
        }
        let of_documents = field.place.word("did_documents");
        let advice = format!(
            "give a credential about the DID of this key, and the document of a did:dunlin in {of_documents}"
        );
        Holding::for_handshakes(key.clone(), bytes, documents, &Contexts::default())
            .map_err(|error| in_file(field, &error, &advice))
    }

    /// Each credential with the status lists to send along in which it has a status.
    fn with_status<'f>(
        &self,
        holdings: Vec<(Holding, &'f FileField)>,
    ) -> Result<Vec<(Holding, &'f FileField)>, Fault> {
        let setting = self.did.place.word("vc");
        let advice = format!("give the newest lists that credentialStatus of {setting} names");
        let lists = self.status.iter().map(StapledList::read).collect::<Result<Vec<_>, _>>()?;
        let mut unnamed: Vec<_> = lists.iter().collect();
        let mut all = vec![];
        for (mut holding, credential) in holdings {
            let statuses = holding.statuses().map_err(|error| in_file(credential, &error, CREDENTIAL))?;
            let is_named = |list: &&StapledList<'_>| statuses.iter().any(|status| status.list == list.url);
            unnamed.retain(|list| !is_named(list));
            let mut beside = vec![];
            for list in lists.iter().filter(is_named) {
                beside.push(&list.content);
                // Those before have not failed, so the error is about this one.
                holding =
                    holding.with_status(&beside).map_err(|error| in_file(list.field, &error, &advice))?;
            }
            all.push((holding, credential));
        }
        let Some(StapledList { field, url, .. }) = unnamed.first() else { return Ok(all) };
        let what = format!("no credential of {setting} has a status in the list {url:?}");
        Err(in_file(field, &what, "give the list that credentialStatus names, or leave it out"))
    }

    /// The source of proofs of the DID of `holding`, if a registry has them, with the proof of membership.
    fn stapler(
        &self,
        holding: &Holding,
        staplers: &mut Vec<Arc<Stapler>>,
        sources: &Sources,
        learned: &LearnedState,
    ) -> Result<Option<Arc<Stapler>>, Fault> {
        let did = holding.did();
        let membership = self.membership.as_ref().map(|field| membership(field, did)).transpose()?;
        let key = PublicKey::from_spki(holding.signer().public_key()).ok();
        let (Some(registry), Some(key), "dunlin") = (&sources.registry, key, did.method()) else {
            return match &self.membership {
                Some(field) if !sources.is_incomplete() => {
                    let what = "it travels with the proofs of a registry, which this DID does not have";
                    let registry = field.place.word("registry");
                    let advice = format!("add {registry} for a did:dunlin, or leave this out");
                    Err(field.place.fault(what, advice))
                }
                _ => Ok(None),
            };
        };
        if let Some(known) = staplers.iter().find(|known| known.did() == did) {
            return Ok(Some(known.clone()));
        }
        let stapler = Stapler::new(registry.clone(), did.clone(), key);
        let stapler = learned.continued(stapler.with_membership(membership.unwrap_or_default()));
        staplers.push(stapler.clone());
        Ok(Some(stapler))
    }
}

/// Whether a credential, which is not verified, is about this DID of the setting `setting`.
fn is_about(credential: &[u8], did: &Did, setting: &str) -> Result<(), String> {
    let said = credential::unverified(credential).map_err(|error| error.to_string())?;
    match said["credentialSubject"]["id"].as_str() {
        Some(subject) if subject == did.as_str() => Ok(()),
        Some(subject) => Err(format!("it is about {subject:?}, and {setting} is {did}")),
        None => Err("it is no credential about a DID".to_owned()),
    }
}
