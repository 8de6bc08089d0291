//! Verifiable credentials and bare DIDs of peers and of this side, from the files that the configuration
//! names.

use std::collections::HashMap;
use std::mem::take;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use dunlin::auth::Verifier;
use dunlin::crypto::CryptoProvider;
use dunlin::wire::DidMethod;
use dunlin::{Credential, SsiMessages};
use dunlin_identity::credential::status::{StatusError, StatusList, StatusLists, is_old, list_issuer};
use dunlin_identity::credential::{self, Contexts, CredentialError, Seconds, of_file};
use dunlin_identity::handshake::{
    CredentialVerifier, Holding, IdentifierVerifier, Judge, Known, ListedIssuer, ListedIssuers,
    PinnedDocuments, RegistryDocuments, Resolution, Resolver, Unresolvable,
};
use dunlin_identity::method::directory::{DOCUMENT, OPERATIONS, key_file, read_operations};
use dunlin_identity::method::dunlin::State;
use dunlin_identity::transparency::RegistryTrust;
use dunlin_identity::{Did, DidDocument, TrustList, read_membership};
use dunlin_pki::Item;
use dunlin_registry::client::{RegistryClient, log_contradiction};
use dunlin_registry::lookup::{LookUpAnswers, LookUps};
use dunlin_registry::stapler::Stapler;
use dunlin_store::text;
use prometheus_client::metrics::counter::Counter;
use tokio::task::{AbortHandle, spawn_blocking};
use zeroize::Zeroizing;

use crate::clock::now_s;
use crate::config::{Fault, Faults, FileField, RegistryConfig, Section, SharedConfig};
use crate::known::{self, KnownPlaces};
use crate::lookups::{stapled, watch_issuers, watch_registries};
use crate::tls::{open_to_others, read};

/// The keys by which a side judges the verifiable credentials and bare DIDs of peers.
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

/// The keys by which a side shows a DID or a verifiable credential.
#[derive(Clone, Debug)]
pub struct OwnCredential {
    /// `did`: the directory of the DID, or its private key.
    pub did: FileField,
    /// `vc`: the credential; without one, this side shows the DID alone.
    pub credential: Option<FileField>,
    /// `staple_status`: the status lists of the credential's issuer, which this side sends along.
    pub status: Vec<FileField>,
    /// `membership`: a file of membership proofs; this side sends the proof of its own DID.
    pub membership: Option<FileField>,
}

/// A program's knowledge about issuers and peers. It outlives a reload, which thus never goes back: a stored
/// copy of an older status list would hide a revocation, and an older proof of a DID would make a key count
/// again that its owner has replaced.
#[derive(Default)]
pub(crate) struct Learnt {
    /// The newest status list of each issuer, from files.
    status: Mutex<StatusLists>,
    /// The verifiers, which learn further lists from peers.
    verifiers: Mutex<Vec<Weak<CredentialVerifier>>>,
    /// The sources of proofs of own DIDs.
    staplers: Mutex<Vec<Weak<Stapler>>>,
    /// The documents of registries, by everything on which trust in the registry rests.
    registries: Mutex<HashMap<Vec<u8>, Arc<RegistryDocuments>>>,
    /// The trusts that a reload has read again. They count when it has succeeded.
    confirmed: Mutex<Vec<(Arc<RegistryDocuments>, RegistryTrust)>>,
    /// The permanent knowledge, and its stores.
    known: OnceLock<Arc<KnownPlaces>>,
    /// The task that exchanges the permanent knowledge with its stores.
    following: Mutex<Option<AbortHandle>>,
    /// Counts proofs that have counted because a registry does not answer.
    pub(crate) outage_proofs: Counter,
}

impl Learnt {
    fn insert(&self, list: StatusList) -> Result<(), StatusError> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).insert(list)
    }

    /// Adds the newer lists of these issuers that peers have sent.
    fn add_sent(&self, lists: &mut StatusLists, issuers: &[Resolution], looked_up: &[ListedIssuer]) {
        let mut verifiers = self.verifiers.lock().unwrap_or_else(PoisonError::into_inner);
        verifiers.retain(|verifier| verifier.strong_count() > 0);
        for verifier in verifiers.iter().filter_map(Weak::upgrade) {
            let sent = verifier.status_lists();
            lists.merge(sent.iter().filter(|list| {
                issuers.iter().any(|issuer| list.is_by(&issuer.document))
                    || looked_up.iter().any(|issuer| issuer.did.as_str() == list.issuer())
            }));
        }
    }

    /// Remembers a verifier, so that a reload keeps the lists that it has learnt from peers.
    fn watch(&self, verifier: &Arc<CredentialVerifier>) {
        let mut verifiers = self.verifiers.lock().unwrap_or_else(PoisonError::into_inner);
        verifiers.push(Arc::downgrade(verifier));
    }

    /// Lets a source of proofs begin with the proof of its predecessor, so that a reload leaves no time
    /// without one.
    pub(crate) fn continued(&self, stapler: Stapler) -> Arc<Stapler> {
        let mut staplers = self.staplers.lock().unwrap_or_else(PoisonError::into_inner);
        staplers.retain(|stapler| stapler.strong_count() > 0);
        let earlier = staplers.iter().filter_map(Weak::upgrade);
        let stapler = Arc::new(earlier.fold(stapler, |stapler, earlier| stapler.continuing(&earlier)));
        staplers.push(Arc::downgrade(&stapler));
        stapler
    }

    /// The permanent knowledge, which does not depend on the trusted registries.
    fn known(&self) -> Arc<Known> {
        self.known.get_or_init(|| Arc::new(KnownPlaces::in_memory())).known.clone()
    }

    /// Reads the permanent knowledge from this file, and from the Redis that gateways share. A reload keeps
    /// the file.
    pub(crate) fn open_known(
        &self,
        provider: &Arc<CryptoProvider>,
        file: Option<&FileField>,
        shared: Option<&SharedConfig>,
    ) -> Result<(), Fault> {
        let Some(known) = self.known.get() else {
            let opened = KnownPlaces::open(provider, file, shared)?;
            self.known.get_or_init(|| Arc::new(opened));
            return Ok(());
        };
        if known.is_at(file) {
            return Ok(());
        }
        let (what, advice) =
            ("a reload cannot change the table [known]", "restart the program, or restore it");
        Err(file.map_or_else(|| Fault::elsewhere(what, advice), |file| file.place.fault(what, advice)))
    }

    /// Exchanges the permanent knowledge with its stores from now on. `told` is called with whether Redis has
    /// answered.
    pub(crate) fn follow_known(&self, told: impl Fn(bool) + Send + 'static) {
        let mut following = self.following.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) =
            self.known.get().filter(|known| known.outlive_the_program() && following.is_none())
        {
            *following = Some(tokio::spawn(known::follow(known.clone(), told)).abort_handle());
        }
    }

    /// Ends the exchange, when nothing is learnt any more.
    pub(crate) async fn close_known(&self) {
        let following = self.following.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(following), Some(known)) = (following, self.known.get().cloned()) {
            following.abort();
            // It fails only if the runtime ends.
            let _ = spawn_blocking(move || known.close()).await;
        }
    }

    /// The documents of the registry with this trust. Another trust may believe less, so it begins anew, even
    /// if it differs in the second key alone; all trusts share the permanent knowledge. The same trust, read
    /// again, confirms the validators of a replicated registry.
    pub(crate) fn registry(
        &self,
        provider: &Arc<CryptoProvider>,
        trust: RegistryTrust,
        outage_age: Seconds,
    ) -> Arc<RegistryDocuments> {
        let mut settings = Vec::new();
        let mut add = |part: &[u8]| {
            settings.extend(part.len().to_be_bytes());
            settings.extend(part);
        };
        trust.settings(&mut add);
        trust.logs().for_each(|key| add(key.to_string().as_bytes()));
        add(&outage_age.to_be_bytes());
        let mut all = self.registries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(&settings) {
            let mut confirmed = self.confirmed.lock().unwrap_or_else(PoisonError::into_inner);
            confirmed.push((known.clone(), trust));
            return known.clone();
        }
        let new = RegistryDocuments::new(provider.clone(), trust).with_known(self.known());
        let uses = self.outage_proofs.clone();
        let new = new.with_outage(outage_age, move |did| {
            uses.inc();
            tracing::warn!(%did, "an older proof counts, because the registry does not answer");
        });
        let new = Arc::new(new.with_report(log_contradiction));
        all.insert(settings, new.clone());
        new
    }

    /// Waits for a reload. If it is refused, forgets the status lists and trusts that it has read, and its
    /// verifiers, which some tasks may still hold for a while: a later reload takes nothing from them.
    pub(crate) async fn during<T>(
        &self,
        reload: impl Future<Output = Result<T, Faults>>,
    ) -> Result<T, Faults> {
        let lists = || self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let verifiers = || self.verifiers.lock().unwrap_or_else(PoisonError::into_inner);
        let registries = || self.registries.lock().unwrap_or_else(PoisonError::into_inner);
        let confirmed = || take(&mut *self.confirmed.lock().unwrap_or_else(PoisonError::into_inner));
        let before = (lists().clone(), verifiers().clone(), registries().clone());
        drop(confirmed());
        let done = reload.await;
        match &done {
            Ok(_) => confirmed().into_iter().for_each(|(known, again)| known.confirm(&again)),
            Err(_) => (*lists(), *verifiers(), *registries()) = before,
        }
        done
    }
}

/// The words for `ssi_messages`.
const MESSAGES: [(&str, SsiMessages); 3] =
    [("off", SsiMessages::Off), ("beside", SsiMessages::Beside), ("alone", SsiMessages::Alone)];

const OWN_DID: &str = "give the directory that `dunlin did create` has made, or its private key";

const OLD: &str = "the status list is older than 24 hours, so credentials with a status in it are refused without a newer one";

const UNRESOLVABLE: &str = "for a did:dunlin add registry, or its document in did_documents and the hash on the list (`dunlin did resolve --line`)";

const LIST: &str = "write a DID on each line, for a did:dunlin also the hash of its document";

impl CredentialTrust {
    /// Reads the keys. The documents and the registry are also for the DIDs that this side shows.
    pub(crate) fn read(section: &mut Section<'_>, own: &[&OwnCredential]) -> Self {
        let trust = Self {
            issuers: section.file("vc_issuers"),
            peers: section.file("vc_peers"),
            status: section.files("vc_status"),
            dids: section.file("dids"),
            documents: section.files("did_documents"),
            registry: section.table("registry").and_then(RegistryConfig::read),
            messages: section.one_of("ssi_messages", &MESSAGES),
        };
        let is_unused = !trust.trusts() && own.is_empty();
        for key in ["did_documents", "registry", "ssi_messages"].into_iter().filter(|_| is_unused) {
            if section.has(key) {
                let what = format!("{key} has no effect, because no credential or DID is trusted or shown");
                section.fault(section.place_of(key).fault(what, "add vc_issuers or dids, or leave it out"));
            }
        }
        if trust.messages == Some(SsiMessages::Off) && trust.dids.is_some() {
            let what = "bare DIDs travel in messages of their own only";
            let advice = "leave ssi_messages out, or write \"beside\" or \"alone\"";
            section.fault(section.place_of("ssi_messages").fault(what, advice));
        } else if trust.messages == Some(SsiMessages::Off) && own.iter().any(|own| own.is_bare()) {
            let what = "a DID without vc travels in messages of its own only";
            section.fault(section.place_of("ssi_messages").fault(what, "leave ssi_messages out, or add vc"));
        }
        let others = trust.peers.iter().chain(&trust.status);
        if let Some(other) = others.take(usize::from(trust.issuers.is_none())).next() {
            let what = "without vc_issuers, no verifiable credential is trusted";
            section.fault(other.place.fault(what, "add vc_issuers, or leave this out"));
        }
        trust
    }

    /// Whether credentials of some issuers, or some DIDs, are trusted.
    pub(crate) const fn trusts(&self) -> bool {
        self.issuers.is_some() || self.dids.is_some()
    }

    /// How DIDs travel. Bare ones, of this side or of peers, have messages of their own, which credentials
    /// use with peers that do not know them as certificates.
    pub(crate) fn messages<'a>(&self, mut own: impl Iterator<Item = &'a OwnCredential>) -> SsiMessages {
        let needs_them = self.dids.is_some() || own.any(OwnCredential::is_bare);
        self.messages.unwrap_or(if needs_them { SsiMessages::Beside } else { SsiMessages::Off })
    }

    /// Reads the files. Returns the verifiers, and the look-ups that answer their questions and know when a
    /// verdict has ended. Problems with which they work are added to `warnings`.
    pub(crate) fn verifiers(
        &self,
        provider: &Arc<CryptoProvider>,
        learnt: &Learnt,
        faults: &mut Vec<Fault>,
        warnings: &mut Vec<Fault>,
    ) -> (Vec<Arc<dyn Verifier>>, Option<LookUpAnswers>) {
        if !self.trusts() {
            return (vec![], None);
        }
        let registry = self
            .registry
            .as_ref()
            .and_then(|registry| registry.client(provider, learnt).map_err(|fault| faults.push(fault)).ok());
        let look_ups = registry.map(|registry: RegistryClient| LookUps::new(vec![registry], None));
        let documents: Vec<_> = self.documents.iter().map(document).collect();
        let (documents, unread): (Vec<_>, Vec<_>) = documents.into_iter().partition(Result::is_ok);
        let documents: Vec<_> = documents.into_iter().flatten().collect();
        let is_complete = unread.is_empty();
        faults.extend(unread.into_iter().filter_map(Result::err));
        let mut judges: Vec<Arc<dyn Judge>> = vec![];
        if !is_complete {
            // Without its document, an issuer or peer would be a fault, too.
            return (vec![], None);
        }
        if let Some(dids) = &self.dids {
            match self.identifiers(dids, &documents, look_ups.as_ref(), provider, warnings) {
                Ok(verifier) => judges.push(Arc::new(verifier)),
                Err(fault) => faults.push(fault),
            }
        }
        if let Some(issuers) = &self.issuers {
            let verifier =
                self.try_verifier(issuers, &documents, look_ups.as_ref(), provider, learnt, warnings);
            match verifier.map(Arc::new) {
                Ok(verifier) => {
                    learnt.watch(&verifier);
                    if let Some(look_ups) = &look_ups {
                        watch_issuers(look_ups, &verifier);
                    }
                    judges.push(verifier);
                }
                Err(fault) => faults.push(fault),
            }
        }
        if let (Some(look_ups), Some(judge)) = (&look_ups, judges.first()) {
            watch_registries(look_ups, judge);
        }
        // Without a registry, they know when a thawed peer has lost its identity.
        let look_ups = look_ups.unwrap_or_else(|| LookUps::new(vec![], None));
        let answers = Some(look_ups.answers(judges.clone()));
        (judges.into_iter().map(|judge| judge as Arc<dyn Verifier>).collect(), answers)
    }

    /// The verifier of bare DIDs.
    fn identifiers(
        &self,
        dids: &FileField,
        documents: &[DidDocument],
        look_ups: Option<&LookUps>,
        provider: &Arc<CryptoProvider>,
        warnings: &mut Vec<Fault>,
    ) -> Result<IdentifierVerifier, Fault> {
        let (list, pinned) = self.peers(dids, documents, provider, warnings)?;
        let verifier = IdentifierVerifier::new(provider.clone(), list);
        // Documents from a registry take precedence over pinned documents, which never change.
        let verifier = match look_ups {
            Some(look_ups) => verifier.asking_with(look_ups.resolvers()),
            None => verifier,
        };
        Ok(verifier.with_resolver(pinned))
    }

    fn try_verifier(
        &self,
        issuers: &FileField,
        documents: &[DidDocument],
        look_ups: Option<&LookUps>,
        provider: &Arc<CryptoProvider>,
        learnt: &Learnt,
        warnings: &mut Vec<Fault>,
    ) -> Result<CredentialVerifier, Fault> {
        let (now, list) = (now(), list(issuers)?);
        if !list.roots().is_empty() {
            return Err(in_file(issuers, &"\"members\" is for vc_peers and dids", LIST));
        }
        let resolvers = [pinned(&list, issuers, documents, provider)?];
        let listed = ListedIssuers::of(provider, &list, &resolvers, self.later(), now);
        let listed = listed.map_err(|error| in_file(issuers, &error, UNRESOLVABLE))?;
        let trusted = listed.resolved;
        let judge = credential::Verifier::new(trusted.iter().map(|issuer| issuer.document.clone()));
        let (mut lists, mut unverified) = (StatusLists::default(), vec![]);
        let advice = "get the newest list from its issuer (`dunlin vc revoke`)";
        for field in &self.status {
            let content = content(field)?;
            if is_old(of_file(&content), now) {
                warnings.push(in_file(field, &OLD, advice));
            }
            let issuer = list_issuer(of_file(&content)).unwrap_or_default();
            if listed.others.iter().any(|other| other.did.as_str() == issuer) {
                unverified.push(content);
                continue;
            }
            let list = StatusList::verify_file(&judge, provider, &content, now);
            let list = list.map_err(|error| in_file(field, &error, advice))?;
            learnt.insert(list.clone()).map_err(|error| in_file(field, &error, advice))?;
            lists.insert(list).map_err(|error| in_file(field, &error, "name each list once"))?;
        }
        learnt.add_sent(&mut lists, &trusted, &listed.others);
        let verifier = CredentialVerifier::new(provider.clone(), trusted);
        let mut verifier = verifier
            .with_known(learnt.known())
            .with_resolved_issuers(listed.others)
            .with_status(lists)
            .with_unverified_status(unverified);
        if let Some(look_ups) = look_ups {
            // Documents from a registry take precedence over pinned documents, which never change.
            verifier = verifier.asking_with(look_ups.resolvers());
        }
        let Some(field) = &self.peers else { return Ok(verifier) };
        let (list, pinned) = self.peers(field, documents, provider, warnings)?;
        Ok(verifier.with_resolver(pinned).with_peers(list))
    }

    /// The methods whose documents a registry may have. A fault of the registry itself is reported elsewhere.
    const fn later(&self) -> &'static [DidMethod] {
        if self.registry.is_some() { &[DidMethod::DUNLIN] } else { &[] }
    }

    /// Reads a list of the DIDs that peers may have, and the documents among `documents` that it pins. Other
    /// programs, which resolve more, may have the same list, so a DID that can never authenticate here gives
    /// a warning.
    fn peers(
        &self,
        field: &FileField,
        documents: &[DidDocument],
        provider: &Arc<CryptoProvider>,
        warnings: &mut Vec<Fault>,
    ) -> Result<(TrustList, Arc<dyn Resolver>), Fault> {
        let list = list(field)?;
        if !list.roots().is_empty() && self.registry.is_none() {
            let what = "proofs for \"members\" come with those of a registry";
            return Err(in_file(field, &what, "add registry, or write the DIDs out"));
        }
        let pinned = pinned(&list, field, documents, provider)?;
        let unresolvable = Unresolvable::on(&list, std::slice::from_ref(&pinned), self.later(), now());
        warnings.extend(unresolvable.map(|dids| in_file(field, &dids, UNRESOLVABLE)));
        Ok((list, pinned))
    }
}

impl OwnCredential {
    /// Whether it shows the DID alone.
    pub(crate) fn is_bare(&self) -> bool {
        self.credential.is_none()
    }

    /// Reads the keys of the configuration.
    pub(crate) fn read(section: &mut Section<'_>) -> Option<Self> {
        let (did, credential) = (section.file("did"), section.file("vc"));
        let (status, membership) = (section.files("staple_status"), section.file("membership"));
        if credential.is_none()
            && let Some(list) = status.first()
        {
            let what = "staple_status has no effect, because no vc is shown";
            section.fault(list.place.fault(what, "add vc, or leave this out"));
        }
        match did {
            Some(did) => Some(Self { did, credential, status, membership }),
            None => {
                if let Some(other) = credential.or(membership) {
                    let what = "it is about the DID of did, which is missing";
                    section.fault(other.place.fault(what, "add did, or leave this out"));
                }
                None
            }
        }
    }

    /// Reads the files. The proofs of a `did:dunlin` come from the registry of `trust`. Reasons for peers to
    /// refuse the credential are added to `warnings`.
    pub(crate) fn load(
        &self,
        trust: &CredentialTrust,
        provider: &Arc<CryptoProvider>,
        learnt: &Learnt,
        warnings: &mut Vec<Fault>,
    ) -> Result<(Credential, Option<Arc<Stapler>>), Fault> {
        let mut documents = trust.documents.iter().map(document).collect::<Result<Vec<_>, _>>()?;
        let file = match self.did.value.is_dir() {
            true => {
                let (document, key) = latest(&self.did, provider)?;
                documents.insert(0, document);
                FileField { value: key, place: self.did.place.clone() }
            }
            false => self.did.clone(),
        };
        warnings.extend(open_to_others(&file.place, &file.value, "the key"));
        let pem = |error: dunlin_pki::Error| in_file(&file, &error, OWN_DID);
        let items = dunlin_pki::parse(&Zeroizing::new(content(&file)?)).map_err(pem)?;
        let private = |item| if let Item::PrivateKey(pair) = item { Some(pair) } else { None };
        let pair = items.into_iter().find_map(private);
        let key =
            pair.ok_or(dunlin_pki::Error::missing("private key")).and_then(|pair| pair.signing_key(provider));
        let key = key.map_err(pem)?;
        let shown = self.credential.as_ref().unwrap_or(&file);
        let (holding, advice) = match &self.credential {
            Some(credential) => {
                let bytes = of_file(&content(credential)?).to_vec();
                if let Some(document) = documents.first().filter(|_| self.did.value.is_dir()) {
                    is_about(&bytes, document.id()).map_err(|what| {
                        in_file(credential, &what, "give a credential about the DID of did")
                    })?;
                }
                let holding = Holding::for_handshakes(key, bytes, &documents, &Contexts::default());
                let advice = "give a credential about the DID of this key, and the document of a did:dunlin in did_documents";
                (holding, advice)
            }
            None => {
                let advice = "give the key of a DID, and the document of a did:dunlin in did_documents";
                (Holding::of_key(key, &documents), advice)
            }
        };
        let holding = holding.map_err(|error| in_file(shown, &error, advice))?;
        if let Err(error) = holding.check_time(now()) {
            let advice = match error {
                CredentialError::NotYetValid => "peers will refuse it: check the clock",
                _ => "peers will refuse it: get a new one from its issuer",
            };
            warnings.push(in_file(shown, &error, advice));
        }
        let holding = self.with_status(holding)?;
        let membership =
            self.membership.as_ref().map(|field| membership(field, holding.did())).transpose()?;
        let unnumbered = || in_file(shown, &"the method of its DID has no number in handshakes", advice);
        let registry =
            trust.registry.as_ref().map(|registry| registry.client(provider, learnt)).transpose()?;
        let (credential, stapler) =
            stapled(holding, registry, membership.unwrap_or_default(), provider, learnt);
        if let (Some(field), None) = (&self.membership, &stapler) {
            let what = "it travels with the proofs of a registry, which this DID does not have";
            return Err(field.place.fault(what, "add registry for a did:dunlin, or leave this out"));
        }
        Ok((credential.ok_or_else(unnumbered)?, stapler))
    }

    /// With the status lists to send along.
    fn with_status(&self, holding: Holding) -> Result<Holding, Fault> {
        let advice = "give the newest lists that credentialStatus of vc names";
        let mut lists = vec![];
        for field in &self.status {
            let list = of_file(&content(field)?).to_vec();
            let alone = holding.clone().with_status(std::slice::from_ref(&list));
            alone.map_err(|error| in_file(field, &error, advice))?;
            lists.push(list);
        }
        match self.status.last() {
            Some(last) => holding.with_status(&lists).map_err(|error| in_file(last, &error, advice)),
            None => Ok(holding),
        }
    }
}

/// Whether a credential, which is not verified, is about this DID.
fn is_about(credential: &[u8], did: &Did) -> Result<(), String> {
    let said = credential::unverified(credential).map_err(|error| error.to_string())?;
    match said["credentialSubject"]["id"].as_str() {
        Some(subject) if subject == did.as_str() => Ok(()),
        Some(subject) => Err(format!("it is about {subject:?}, and did is {did}")),
        None => Err("it is no credential about a DID".to_owned()),
    }
}

/// The latest document of the DID in a directory, and the file of its key.
fn latest(directory: &FileField, provider: &CryptoProvider) -> Result<(DidDocument, PathBuf), Fault> {
    let file = |name: &str| FileField { value: directory.value.join(name), place: directory.place.clone() };
    let (operations, key) = (file(OPERATIONS), |version| directory.value.join(key_file(version)));
    if operations.value.symlink_metadata().is_err() {
        let document_file = file(DOCUMENT);
        if document_file.value.symlink_metadata().is_err() {
            return Err(in_file(directory, &format!("it has no {DOCUMENT}"), OWN_DID));
        }
        return Ok((document(&document_file)?, key(0)));
    }
    let state = read_operations(&content(&operations)?).and_then(|all| State::replay(provider, &all));
    let state = state.map_err(|error| in_file(&operations, &error, "restore the file from a backup"))?;
    match state.is_active() {
        true => Ok((state.document().clone(), key(state.sequence()))),
        false => {
            let what = format!("{} is deactivated, for ever", state.did());
            Err(in_file(directory, &what, "make a new DID with `dunlin did create`"))
        }
    }
}

fn now() -> Seconds {
    Seconds::try_from(now_s()).unwrap_or(Seconds::MAX)
}

fn in_file(field: &FileField, error: &dyn std::fmt::Display, advice: &str) -> Fault {
    field.place.fault(format!("{}: {error}", field.value.display()), advice)
}

fn content(field: &FileField) -> Result<Vec<u8>, Fault> {
    read(&field.value).map_err(|error| {
        let (why, advice) = text::unreadable(&error, "give a file that can be read");
        in_file(field, &why, advice)
    })
}

/// The text of a file, as an editor may write it.
pub(crate) fn text(field: &FileField) -> Result<Zeroizing<String>, Fault> {
    text::text(&content(field)?).map_err(|why| in_file(field, &why, why.advice()))
}

fn document(field: &FileField) -> Result<DidDocument, Fault> {
    DidDocument::read_any(text(field)?.as_bytes())
        .map_err(|error| in_file(field, &error, "give a DID document in JSON"))
}

/// The proof of membership of this DID, from the file of all that `dunlin did members` writes.
fn membership(field: &FileField, did: &Did) -> Result<Vec<u8>, Fault> {
    let proof = read_membership(&text(field)?, did);
    let advice = "give the file that `dunlin did members` has made, or its line";
    proof.ok_or_else(|| in_file(field, &format!("it has no proof that {did} is a member"), advice))
}

/// The documents among `documents` that the list pins.
fn pinned(
    list: &TrustList,
    of: &FileField,
    documents: &[DidDocument],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn Resolver>, Fault> {
    let of_list = documents.iter().filter(|document| list.pin(document.id()).is_some()).cloned();
    let pinned = PinnedDocuments::new(provider, list, of_list);
    Ok(Arc::new(pinned.map_err(|error| in_file(of, &error, "correct its line, or did_documents"))?))
}

/// Reads a list of DIDs.
fn list(field: &FileField) -> Result<TrustList, Fault> {
    let list = TrustList::read(&text(field)?).map_err(|error| in_file(field, &error, LIST))?;
    match list.is_empty() {
        true => Err(in_file(field, &"no DID in it, so nobody is trusted", LIST)),
        false => Ok(list),
    }
}

#[cfg(test)]
mod tests {
    use dunlin_identity::Sha256Hash;
    use dunlin_identity::handshake::Standing;
    use dunlin_identity::key::PublicKey;
    use dunlin_identity::transparency::{ChainTrust, DEFAULT_TRUSTING_PERIOD, NoteKey, NoteKeyKind};

    use super::*;

    #[tokio::test]
    async fn a_refused_reload_leaves_no_verifier() {
        let (provider, learnt) = (Arc::new(dunlin_awslc::provider()), Learnt::default());
        let verifier = || Arc::new(CredentialVerifier::new(provider.clone(), Vec::<DidDocument>::new()));
        let is_watched = |verifier: &Arc<CredentialVerifier>| {
            let watched = learnt.verifiers.lock().expect("a lock");
            watched.iter().any(|other| other.ptr_eq(&Arc::downgrade(verifier)))
        };
        let (accepted, refused) = (verifier(), verifier());
        let reload = |verifier| {
            learnt.watch(verifier);
            Ok(())
        };
        assert!(learnt.during(async { reload(&accepted) }).await.is_ok());
        let fault = Err::<(), _>(Faults::one(Fault::elsewhere("a fault", "mend it")));
        let reload = learnt.during(async { reload(&refused).and(fault) });
        assert!(reload.await.is_err());
        // As a task that looks up its issuers, this test still holds it.
        assert!(is_watched(&accepted) && !is_watched(&refused));
    }

    #[tokio::test]
    async fn a_reload_confirms_the_validators_of_a_registry() {
        let (provider, learnt) = (Arc::new(dunlin_awslc::provider()), Learnt::default());
        let genesis = r#"{"chain_id": "example-1", "app_state": {"origin": "registry.example/1"}, "validators": [{"power": "10",
            "pub_key": {"type": "tendermint/PubKeyEd25519", "value": "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="}}]}"#;
        let read = |now_s| {
            let trust = ChainTrust::from_genesis(&provider, genesis.as_bytes(), now_s);
            RegistryTrust::replicated(trust.expect("a genesis file"))
        };
        let (begin, later) = (1_800_000_000, 1_800_000_001 + DEFAULT_TRUSTING_PERIOD);
        let known = learnt.registry(&provider, read(begin), 0);
        assert_eq!(*known.trust(), read(begin));
        let reload = async |trust: RegistryTrust, is_accepted: bool| {
            let read = async {
                let read = learnt.registry(&provider, trust, 0);
                let fault = || Faults::one(Fault::elsewhere("a fault", "mend it"));
                is_accepted.then_some(read).ok_or_else(fault)
            };
            learnt.during(read).await
        };
        // A refused reload changes nothing, neither now nor with the next one.
        assert!(reload(read(later), false).await.is_err());
        assert_eq!(*known.trust(), read(begin));
        assert!(Arc::ptr_eq(&known, &reload(read(begin), true).await.expect("a reload")));
        assert_eq!(*known.trust(), read(begin));
        assert!(Arc::ptr_eq(&known, &reload(read(later), true).await.expect("a reload")));
        assert_eq!(*known.trust(), read(later));
        // A clock that goes back takes nothing away, and another trust is another entry.
        reload(read(begin), true).await.expect("a reload");
        assert_eq!(*known.trust(), read(later));
        assert!(!Arc::ptr_eq(&known, &reload(read(later).with_max_age(60), true).await.expect("a reload")));
    }

    #[test]
    fn listeners_with_other_keys_of_a_registry_share_no_trust() {
        /// The beginning of an Ed25519 key in DER.
        const SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];
        let (provider, learnt) = (Arc::new(dunlin_awslc::provider()), Learnt::default());
        let key = |kind, number: u8| {
            let key = PublicKey::from_spki(&[&SPKI[..], &[number; 32]].concat()).expect("a key");
            NoteKey::new(&provider, "registry.example/1", kind, &key).expect("a name")
        };
        let [first, second] = [1, 3].map(|number| key(NoteKeyKind::Note, number));
        let one = RegistryTrust::new(first, vec![key(NoteKeyKind::Cosignature, 1)]).expect("a trust");
        let both = one.clone().with_other_key(second).expect("a trust");
        let registry = |trust: &RegistryTrust| learnt.registry(&provider, trust.clone(), 0);
        let (of_one, of_both) = (registry(&one), registry(&both));
        for (known, trust) in [(&of_one, &one), (&of_both, &both), (&of_one, &one)] {
            assert!(Arc::ptr_eq(known, &registry(trust)));
            assert_eq!((&*of_one.trust(), &*of_both.trust()), (&one, &both));
        }
        // Both share the permanent knowledge about DIDs.
        let did =
            "did:dunlin:zQ3shhcYXZ6Ts8cQxPqkkcMUVt4gUjzFBZDtyH1ZsUGYvMYYu".parse::<Did>().expect("a DID");
        of_both.deactivate(did.clone());
        let document = Sha256Hash::of(&provider, b"a document").expect("a hash");
        assert_eq!(of_one.standing(&did, &document, 0), Standing::Outdated);
    }
}
