//! Verifiable credentials and bare DIDs of this side and of peers: their options, and the credentials and
//! verifiers that they make.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use dunlin::auth::Verifier;
use dunlin::crypto::CryptoProvider;
use dunlin::wire::SignatureScheme;
use dunlin::{Credential, SsiMessages};
use dunlin_command::error::{Error, warn_once};
use dunlin_command::files;
use dunlin_identity::credential::status::{self, StatusLists};
use dunlin_identity::credential::{Contexts, CredentialError};
use dunlin_identity::handshake::{CredentialVerifier, Holding, IdentifierVerifier, Judge, Resolver};
use dunlin_identity::method::directory::{DOCUMENT, OPERATIONS};
use dunlin_identity::{Did, DidDocument, DidUrl, Relationship, TrustList, read_membership};

use crate::did::{self, Own};
use crate::registry::RegistryOptions;

/// The verifier of peers' decentralised identities.
#[derive(Clone, Debug)]
pub(crate) enum PeerJudge {
    /// By credentials of trusted issuers.
    Credentials(Arc<CredentialVerifier>),
    /// By a list of trusted DIDs alone.
    Identifiers(Arc<IdentifierVerifier>),
}

impl PeerJudge {
    /// For a profile.
    pub(super) fn verifier(&self) -> Arc<dyn Verifier> {
        self.judge()
    }

    /// For look-ups.
    pub(crate) fn judge(&self) -> Arc<dyn Judge> {
        match self {
            Self::Credentials(verifier) => verifier.clone(),
            Self::Identifiers(verifier) => verifier.clone(),
        }
    }
}

/// Whether decentralised identities travel in messages of their own.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Messages {
    /// No: credentials travel as certificates. There are no bare DIDs.
    Off,
    /// Bare DIDs do, and credentials for peers that do not take them as certificates.
    Beside,
    /// Both do, always.
    Alone,
}

/// The options of `client` and `server` for verifiable credentials and bare DIDs, which exist in TLS 1.3 and
/// DTLS 1.3.
#[derive(Args, Clone, Default)]
pub(crate) struct CredentialOptions {
    /// The own DID: its directory, as `dunlin did create` makes it, or its private key. Without --vc, this
    /// side proves the DID alone.
    #[arg(long, value_name = "DIR|KEY", help_heading = "Identity")]
    pub(crate) did: Option<PathBuf>,
    /// A verifiable credential about the DID of --did, as `dunlin vc issue` makes it, to show in place of a
    /// certificate in TLS 1.3. May be repeated; the first that suits the peer is used.
    #[arg(long, value_name = "FILE", requires = "did", help_heading = "Identity")]
    pub(crate) vc: Vec<PathBuf>,
    /// Accept verifiable credentials of peers, by the issuers on this list: a DID on each line, for a
    /// did:dunlin without --registry also the hash of its document (`dunlin did resolve --line`), which
    /// --document gives. Certificates are then accepted only with --CAfile. A credential is not bound to a
    /// host name: without --peers, a client accepts every holder as its server.
    #[arg(long, value_name = "FILE", help_heading = "Identity")]
    pub(crate) trust: Option<PathBuf>,
    /// Accept only the DIDs on this list, in the form of --trust: with --trust the holders of credentials,
    /// without it peers that prove their DID alone. It may also have the root over the members of another
    /// list (`dunlin did members`), which needs --registry.
    #[arg(long, value_name = "FILE", help_heading = "Identity")]
    pub(crate) peers: Option<PathBuf>,
    /// The document of a did:dunlin: of one in --trust or --peers, or of the DID of --did. May be repeated.
    #[arg(long, value_name = "FILE", help_heading = "Identity")]
    pub(crate) document: Vec<PathBuf>,
    /// The status list of an issuer, not older than 24 hours (`dunlin vc revoke`). May be repeated. A changed
    /// file is read again for the next connection. Without its list, a credential with a status is refused,
    /// unless the peer sends the list along.
    #[arg(long, value_name = "FILE", requires = "trust", help_heading = "Identity")]
    pub(crate) status_list: Vec<PathBuf>,
    /// The newest status list of the issuer of --vc, to send along, so that peers need not have it. May be
    /// repeated. A changed file is read again for the next connection.
    #[arg(long, value_name = "FILE", requires = "vc", help_heading = "Identity")]
    staple_status: Vec<PathBuf>,
    /// The proofs that the own did:dunlin is on a list of members (`dunlin did members`), for peers that know
    /// only the root. They are read once.
    #[arg(long, value_name = "FILE", requires_all = ["did", "registry"], help_heading = "Identity")]
    membership: Option<PathBuf>,
    /// Whether DIDs and credentials travel in messages of their own (ssi_parameters) [default: beside with a
    /// bare DID, otherwise off].
    #[arg(long, value_name = "WHEN", help_heading = "Identity")]
    ssi_messages: Option<Messages>,
    #[command(flatten)]
    pub(crate) registry: RegistryOptions,
}

impl CredentialOptions {
    /// Whether decentralised identities of peers are judged.
    pub(crate) const fn trusts(&self) -> bool {
        self.trust.is_some() || self.peers.is_some()
    }

    /// The option by which they are.
    pub(super) const fn trust_option(&self) -> &'static str {
        if self.trust.is_some() { "--trust" } else { "--peers" }
    }

    /// Whether decentralised identities travel in messages of their own.
    pub(super) fn messages(&self) -> Result<SsiMessages, Error> {
        let shows_bare = self.did.is_some() && self.vc.is_empty();
        let bare = match (shows_bare, self.trust.is_none() && self.peers.is_some()) {
            (true, _) => Some("--did without --vc"),
            (_, true) => Some("--peers without --trust"),
            _ => None,
        };
        match (self.ssi_messages, bare) {
            (None, None) => Ok(SsiMessages::Off),
            (Some(Messages::Off), Some(bare)) => {
                let why = format!("{bare} is about bare DIDs, which have no other messages");
                Err(Error::usage("--ssi-messages off", why, "leave it out, or use credentials"))
            }
            (Some(_), None) if self.did.is_none() && !self.trusts() => Err(Error::usage(
                "--ssi-messages",
                "no DID is shown or trusted",
                "add --did, --trust or --peers",
            )),
            (Some(Messages::Off), None) => Ok(SsiMessages::Off),
            (Some(Messages::Alone), _) => Ok(SsiMessages::Alone),
            (None | Some(Messages::Beside), _) => Ok(SsiMessages::Beside),
        }
    }

    /// The credentials to show.
    pub(super) fn credentials(&self, provider: &CryptoProvider) -> Result<Vec<Credential>, Error> {
        let Some(own) = &self.did else { return Ok(Vec::new()) };
        let documents = did::documents(&self.document)?;
        if self.vc.is_empty() {
            let own = Own::load(own, None, &documents, provider)?;
            let holding = Holding::of_did(own.key.clone(), authentication(&own)?);
            return self.to_tls(holding, &own, &own.file, provider).map(|credential| vec![credential]);
        }
        let mut lists =
            self.staple_status.iter().map(|path| StapledList::read(path)).collect::<Result<Vec<_>, _>>()?;
        let shown = self.vc.iter().map(|path| self.shown(path, own, &documents, &mut lists, provider));
        let shown = shown.collect::<Result<_, _>>()?;
        match lists.iter().find(|list| !list.is_named) {
            None => Ok(shown),
            Some(StapledList { path, url, .. }) => {
                let why = format!("no credential of --vc has a status in the list {url:?}");
                Err(Error::failed(
                    path.display(),
                    why,
                    "give the list that credentialStatus names, or leave it out",
                ))
            }
        }
    }

    /// The verifier of peers' DIDs. `newest` has the status lists that were read before: a stored copy of an
    /// older one would hide a revocation.
    pub(super) fn judge(
        &self,
        newest: &mut StatusLists,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Option<PeerJudge>, Error> {
        if !self.trusts() {
            return Ok(None);
        }
        let documents = did::documents(&self.document)?;
        let peers = self.peers.as_ref().map(|path| self.peers(path, &documents, provider)).transpose()?;
        let Some(trust) = &self.trust else {
            let Some((list, pinned)) = peers else { return Ok(None) };
            // Documents from a registry take precedence over pinned documents, which never change.
            let verifier = self.registry.extend(IdentifierVerifier::new(provider.clone(), list))?;
            let judge = PeerJudge::Identifiers(Arc::new(verifier.with_resolver(pinned)));
            self.registry.watch_registry(&judge);
            return Ok(Some(judge));
        };
        let issuers = did::issuers(trust, &documents, &self.registry.methods(), provider)?;
        let (lists, unverified) = did::newest_status_lists(&self.status_list, &issuers, newest, provider)?;
        let verifier = CredentialVerifier::new(provider.clone(), issuers.resolved)
            .with_known(self.registry.known()?)
            .with_resolved_issuers(issuers.others)
            .with_status(lists)
            .with_unverified_status(unverified);
        let mut verifier = self.registry.extend(verifier)?;
        if let Some((list, pinned)) = peers {
            verifier = verifier.with_resolver(pinned).with_peers(list);
        }
        let verifier = Arc::new(verifier);
        self.registry.watch_issuers(&verifier);
        let judge = PeerJudge::Credentials(verifier);
        self.registry.watch_registry(&judge);
        Ok(Some(judge))
    }

    /// The list of --peers, and the documents that it pins.
    fn peers(
        &self,
        path: &Path,
        documents: &[DidDocument],
        provider: &CryptoProvider,
    ) -> Result<(TrustList, Arc<dyn Resolver>), Error> {
        let (list, pinned) = did::peers(path, documents, &self.registry.methods(), provider)?;
        if list.roots().is_empty() || self.registry.has_registry() {
            Ok((list, pinned))
        } else {
            let why = "proofs for \"members\" come with those of a registry";
            Err(Error::usage("--peers", why, "add --registry, or write the DIDs out"))
        }
    }

    /// This side's identities on the command line: the credentials, or the DID if there is no credential.
    pub(super) fn named(&self) -> impl Iterator<Item = &PathBuf> {
        self.vc.iter().chain(self.did.iter().filter(|_| self.vc.is_empty()))
    }

    /// The files of the credentials of this side, as far as they exist.
    pub(super) fn own_files(&self) -> Vec<PathBuf> {
        let did = self.did.iter().flat_map(|path| [path.clone(), path.join(DOCUMENT), path.join(OPERATIONS)]);
        did.filter(|path| path.is_file()).chain(self.vc.iter().chain(&self.staple_status).cloned()).collect()
    }

    /// The files by which this side judges peers.
    pub(super) fn trust_files(&self) -> Vec<PathBuf> {
        let files = self.trust.iter().chain(&self.peers).chain(&self.document).chain(&self.status_list);
        files.filter(|_| self.trusts()).cloned().collect()
    }

    /// The signature schemes of the trusted issuers' keys, as far as they are known; `None` without --trust.
    pub(super) fn issuer_schemes(
        &self,
        provider: &CryptoProvider,
    ) -> Result<Option<Vec<SignatureScheme>>, Error> {
        let Some(trust) = &self.trust else { return Ok(None) };
        let documents = did::documents(&self.document)?;
        let issuers = did::issuers(trust, &documents, &self.registry.methods(), provider)?;
        let keys =
            issuers.resolved.iter().flat_map(|issuer| issuer.document.keys(Relationship::AssertionMethod));
        let mut schemes = Vec::new();
        // The keys of others are not known yet; most issuers have one of these.
        let usual = [SignatureScheme::ED25519, SignatureScheme::ECDSA_SECP256R1_SHA256];
        let others = usual.into_iter().filter(|_| !issuers.others.is_empty());
        for scheme in keys.map(|(_, key)| key.key_type().default_scheme()).chain(others) {
            if !schemes.contains(&scheme) {
                schemes.push(scheme);
            }
        }
        Ok(Some(schemes))
    }

    /// A credential with the key of its subject.
    fn shown(
        &self,
        path: &Path,
        own: &Path,
        documents: &[DidDocument],
        lists: &mut [StapledList],
        provider: &CryptoProvider,
    ) -> Result<Credential, Error> {
        let credential = did::credential(path)?;
        let subject = did::subject(path, &did::unverified(path)?)?;
        let own = Own::load(own, Some(&subject), documents, provider)?;
        if *own.did() != subject {
            let why = format!("it is about {subject}, and --did is {}", own.did());
            return Err(Error::failed(path.display(), why, "give a credential about the DID of --did"));
        }
        let advice = "give a credential as `dunlin vc issue` makes it";
        let method = authentication(&own)?;
        let holding = Holding::of_credential(own.key.clone(), method, credential, &Contexts::default());
        let refused = |error: CredentialError| Error::failed(path.display(), error, advice);
        let holding = holding.map_err(refused)?;
        if let Err(error) = holding.check_time(did::now_s()) {
            warn_once(format!("{}: {error}: peers will refuse it", path.display()));
        }
        let statuses = holding.statuses().map_err(refused)?;
        let mut beside = Vec::new();
        for list in lists.iter_mut().filter(|list| statuses.iter().any(|status| status.list == list.url)) {
            list.is_named = true;
            beside.push(&list.content);
        }
        let holding = holding.with_status(&beside).map_err(|error| {
            Error::failed("--staple-status", error, "give the newest lists of the credential's issuer")
        });
        self.to_tls(holding?, &own, path, provider)
    }

    /// For handshakes, with the proofs of a registry. The holding comes from the file at `path`.
    fn to_tls(
        &self,
        mut holding: Holding,
        own: &Own,
        path: &Path,
        provider: &CryptoProvider,
    ) -> Result<Credential, Error> {
        let did = own.did();
        let membership = self.membership.as_ref().map(|path| membership(path, did)).transpose()?;
        match (self.registry.stapler(own, membership.unwrap_or_default())?, &self.membership) {
            (Some(stapler), _) => holding = holding.with_proofs(stapler),
            (None, Some(_)) => {
                let why = format!("{did} is in no registry, with whose proofs it would travel");
                return Err(Error::usage("--membership", why, "use a did:dunlin, or leave it out"));
            }
            (None, None) => {}
        }
        holding.to_tls(provider).ok_or_else(|| {
            let why = format!("handshakes have no number for the method of {did}");
            Error::failed(path.display(), why, "use did:key, did:jwk or did:dunlin")
        })
    }
}

/// A status list to send along.
struct StapledList {
    path: PathBuf,
    content: Vec<u8>,
    url: String,
    /// Whether a credential has a status in it.
    is_named: bool,
}

impl StapledList {
    fn read(path: &Path) -> Result<Self, Error> {
        let content = did::credential(path)?;
        let url = status::list_url(&content).map_err(|error| {
            Error::failed(path.display(), error, "give a status list as `dunlin vc issue` makes it")
        })?;
        Ok(Self { path: path.to_owned(), content, url, is_named: false })
    }
}

/// The method of the DID's key, which must be the first for authentication: peers expect it.
fn authentication(own: &Own) -> Result<DidUrl, Error> {
    let method = own.method(Relationship::Authentication)?;
    match own.document.keys(Relationship::Authentication).next() {
        Some((first, _)) if *first == method => Ok(method),
        _ => {
            let why = format!("it is not the first key for authentication of {}", own.did());
            Err(Error::failed(own.file.display(), why, "give the first key"))
        }
    }
}

/// The proof of membership of a DID, from the file of all that `dunlin did members` writes.
fn membership(path: &Path, did: &Did) -> Result<Vec<u8>, Error> {
    let proof = read_membership(&files::text(path)?, did);
    proof.ok_or_else(|| {
        let why = format!("it has no proof that {did} is a member");
        Error::failed(path.display(), why, "give the file that `dunlin did members` has made, or its line")
    })
}
