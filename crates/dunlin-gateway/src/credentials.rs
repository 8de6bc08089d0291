//! Verifiable credentials and bare DIDs of peers and of this side, from the files that the configuration
//! names.

use std::path::PathBuf;
use std::sync::Arc;

use dunlin::Credential;
use dunlin::auth::Verifier;
use dunlin::crypto::CryptoProvider;
use dunlin::wire::DidMethod;
use dunlin_identity::Did;
use dunlin_identity::DidDocument;
use dunlin_identity::credential::status::{StatusList, StatusLists, is_old, list_issuer};
use dunlin_identity::credential::{self, Contexts, CredentialError, Seconds, of_file};
use dunlin_identity::handshake::Holding;
use dunlin_identity::handshake::{
    CredentialVerifier, IdentifierVerifier, Judge, ListedIssuers, PinnedDocuments, Resolver, Unresolvable,
};
use dunlin_identity::method::directory::{DOCUMENT, OPERATIONS, key_file, read_operations};
use dunlin_identity::method::dunlin::State;
use dunlin_identity::{TrustList, read_membership};
use dunlin_pki::Item;
use dunlin_registry::client::RegistryClient;
use dunlin_registry::lookup::{LookUpAnswers, LookUps};
use dunlin_registry::stapler::Stapler;
use dunlin_setup::files::{content, in_file, open_to_others, text};

use crate::clock::now_s;
use crate::config::{CredentialTrust, Fault, FileField, OwnCredential};
use crate::did_registry::{stapled, watch_issuers, watch_registries};
use crate::learned::LearnedState;

const OWN_DID: &str = "give the directory that `dunlin did create` has made, or its private key";

const OLD: &str = "the status list is older than 24 hours, so credentials with a status in it are refused without a newer one";

const UNRESOLVABLE: &str = "for a did:dunlin add registry, or its document in did_documents and the hash on the list (`dunlin did resolve --line`)";

const LIST: &str = "write a DID on each line, for a did:dunlin also the hash of its document";

impl CredentialTrust {
    /// Reads the files. Returns the verifiers, and the look-ups that answer their questions and know when a
    /// verdict has ended. Problems with which they work are added to `warnings`.
    pub(crate) fn verifiers(
        &self,
        provider: &Arc<CryptoProvider>,
        learned: &LearnedState,
        faults: &mut Vec<Fault>,
        warnings: &mut Vec<Fault>,
    ) -> (Vec<Arc<dyn Verifier>>, Option<LookUpAnswers>) {
        if !self.trusts() {
            return (vec![], None);
        }
        let registry = self
            .registry
            .as_ref()
            .and_then(|registry| registry.client(provider, learned).map_err(|fault| faults.push(fault)).ok());
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
                self.try_verifier(issuers, &documents, look_ups.as_ref(), provider, learned, warnings);
            match verifier.map(Arc::new) {
                Ok(verifier) => {
                    learned.watch(&verifier);
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
        learned: &LearnedState,
        warnings: &mut Vec<Fault>,
    ) -> Result<CredentialVerifier, Fault> {
        let now = now();
        let list = list(issuers)?;
        if !list.roots().is_empty() {
            return Err(in_file(issuers, &"\"members\" is for vc_peers and dids", LIST));
        }
        let resolvers = [pinned(&list, issuers, documents, provider)?];
        let listed = ListedIssuers::of(provider, &list, &resolvers, self.later(), now);
        let listed = listed.map_err(|error| in_file(issuers, &error, UNRESOLVABLE))?;
        let trusted = listed.resolved;
        let judge = credential::Verifier::new(trusted.iter().map(|issuer| issuer.document.clone()));
        let mut lists = StatusLists::default();
        let mut unverified = vec![];
        let advice = "get the newest list from its issuer (`dunlin vc revoke`)";
        for field in &self.status {
            let content = content(field)?;
            if is_old(of_file(&content), now) {
                warnings.push(in_file(field, &OLD, advice));
            }
            let issuer = list_issuer(of_file(&content)).unwrap_or_default();
            if listed.others.iter().any(|other| other.did.as_str() == issuer) {
                unverified.push(content.to_vec());
                continue;
            }
            let list = StatusList::verify_file(&judge, provider, &content, now);
            let list = list.map_err(|error| in_file(field, &error, advice))?;
            learned.insert(list.clone()).map_err(|error| in_file(field, &error, advice))?;
            lists.insert(list).map_err(|error| in_file(field, &error, "name each list once"))?;
        }
        learned.add_sent(&mut lists, &trusted, &listed.others);
        let verifier = CredentialVerifier::new(provider.clone(), trusted);
        let mut verifier = verifier
            .with_known(learned.known())
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
    /// Reads the files. The proofs of a `did:dunlin` come from the registry of `trust`. Reasons for peers to
    /// refuse the credential are added to `warnings`.
    pub(crate) fn load(
        &self,
        trust: &CredentialTrust,
        provider: &Arc<CryptoProvider>,
        learned: &LearnedState,
        warnings: &mut Vec<Fault>,
    ) -> Result<(Credential, Option<Arc<Stapler>>), Fault> {
        let mut documents = trust.documents.iter().map(document).collect::<Result<Vec<_>, _>>()?;
        let file = if self.did.value.is_dir() {
            let (document, key) = latest(&self.did, provider)?;
            documents.insert(0, document);
            FileField { value: key, place: self.did.place.clone() }
        } else {
            self.did.clone()
        };
        warnings.extend(open_to_others(&file, "the key"));
        let pem = |error: dunlin_pki::Error| in_file(&file, &error, OWN_DID);
        let items = dunlin_pki::parse(&content(&file)?).map_err(pem)?;
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
            trust.registry.as_ref().map(|registry| registry.client(provider, learned)).transpose()?;
        let (credential, stapler) =
            stapled(holding, registry, membership.unwrap_or_default(), provider, learned);
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
    if state.is_active() {
        Ok((state.document().clone(), key(state.sequence())))
    } else {
        let what = format!("{} is deactivated, for ever", state.did());
        Err(in_file(directory, &what, "make a new DID with `dunlin did create`"))
    }
}

fn now() -> Seconds {
    Seconds::try_from(now_s()).unwrap_or(Seconds::MAX)
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
    if list.is_empty() { Err(in_file(field, &"no DID in it, so nobody is trusted", LIST)) } else { Ok(list) }
}
