//! Verifiable credentials and bare DIDs of this side and of peers: their options, and the credentials and
//! verifiers that they make.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use dunlin::crypto::CryptoProvider;
use dunlin::wire::SignatureScheme;
use dunlin::{Credential, SsiMessages};
use dunlin_command::error::Error;
use dunlin_command::faults::warned;
use dunlin_identity::Relationship;
use dunlin_identity::method::directory::{DOCUMENT, OPERATIONS};
use dunlin_setup::credentials::{CredentialTrust, Judges, OwnCredential};
use dunlin_setup::did;
use dunlin_setup::place::{FileField, options};

use crate::registry::{Opened, RegistryOptions};

/// Whether decentralised identities travel in messages of their own.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Messages {
    /// No: credentials travel as certificates. There are no bare DIDs.
    Off,
    /// Bare DIDs do, and credentials for peers that do not take them as certificates.
    Beside,
    /// Both do, always.
    Alone,
}

/// The options of `client`, `server` and `tunnel` for verifiable credentials and bare DIDs, which exist in
/// TLS 1.3 and DTLS 1.3.
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
    /// --did-documents gives. Certificates are then accepted only with --ca. A credential is not bound to a
    /// host name: without --vc-peers, a client accepts every holder as its server.
    #[arg(long = "vc-issuers", alias = "trust", value_name = "FILE", help_heading = "Identity")]
    pub(crate) trust: Option<PathBuf>,
    /// Accept only credentials about the DIDs on this list, in the form of --vc-issuers. It may also have the
    /// root over the members of another list (`dunlin did members`), which needs --registry.
    #[arg(long, value_name = "FILE", requires = "trust", help_heading = "Identity")]
    pub(crate) vc_peers: Option<PathBuf>,
    /// Accept peers that prove a DID on this list by its key alone. The list is as for --vc-peers.
    #[arg(long, value_name = "FILE", help_heading = "Identity")]
    pub(crate) dids: Option<PathBuf>,
    /// --vc-peers with --vc-issuers, otherwise --dids.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["vc_peers", "dids"], hide = true)]
    pub(crate) peers: Option<PathBuf>,
    /// The document of a did:dunlin: of one in --vc-issuers, --vc-peers or --dids, or of the DID of --did. May
    /// be repeated.
    #[arg(long = "did-documents", alias = "document", value_name = "FILE", help_heading = "Identity")]
    pub(crate) document: Vec<PathBuf>,
    /// The status list of an issuer, not older than 24 hours (`dunlin vc revoke`). May be repeated. A changed
    /// file is read again for the next connection. Without its list, a credential with a status is refused,
    /// unless the peer sends the list along.
    #[arg(
        long = "vc-status",
        alias = "status-list",
        value_name = "FILE",
        requires = "trust",
        help_heading = "Identity"
    )]
    pub(crate) status_list: Vec<PathBuf>,
    /// The newest status list of the issuer of --vc, to send along, so that peers need not have it. May be
    /// repeated. A changed file is read again for the next connection.
    #[arg(long, value_name = "FILE", requires = "vc", help_heading = "Identity")]
    staple_status: Vec<PathBuf>,
    /// The proofs that the own did:dunlin is on a list of members (`dunlin did members`), for peers that know
    /// only the root. They are read once.
    #[arg(long, value_name = "FILE", requires_all = ["did", "registry"], help_heading = "Identity")]
    membership: Option<PathBuf>,
}

impl CredentialOptions {
    /// Whether decentralised identities of peers are judged.
    pub(crate) const fn trusts(&self) -> bool {
        self.trust.is_some() || self.trusts_dids()
    }

    /// Whether peers may prove a DID by its key alone.
    pub(crate) const fn trusts_dids(&self) -> bool {
        self.dids.is_some() || (self.peers.is_some() && self.trust.is_none())
    }

    /// Whether the list of issuers alone says which peers are accepted.
    pub(super) const fn accepts_every_holder(&self) -> bool {
        self.trust.is_some() && self.vc_peers.is_none() && self.peers.is_none()
    }

    /// The option by which they are judged.
    pub(super) const fn trust_option(&self) -> &'static str {
        match (&self.trust, &self.dids) {
            (Some(_), _) => "--vc-issuers",
            (None, Some(_)) => "--dids",
            (None, None) => "--peers",
        }
    }

    /// Whether decentralised identities travel in messages of their own.
    pub(super) fn messages(&self, given: Option<Messages>) -> Result<SsiMessages, Error> {
        let shows_bare = self.did.is_some() && self.vc.is_empty();
        let bare = match (shows_bare, self.trusts_dids()) {
            (true, _) => Some("--did without --vc"),
            (_, true) => Some("--dids"),
            _ => None,
        };
        match (given, bare) {
            (None, None) => Ok(SsiMessages::Off),
            (Some(Messages::Off), Some(bare)) => {
                let why = format!("{bare} is about bare DIDs, which have no other messages");
                Err(Error::usage("--ssi-messages off", why, "leave it out, or use credentials"))
            }
            (Some(_), None) if self.did.is_none() && !self.trusts() => Err(Error::usage(
                "--ssi-messages",
                "no DID is shown or trusted",
                "add --did, --vc-issuers or --dids",
            )),
            (Some(Messages::Off), None) => Ok(SsiMessages::Off),
            (Some(Messages::Alone), _) => Ok(SsiMessages::Alone),
            (None | Some(Messages::Beside), _) => Ok(SsiMessages::Beside),
        }
    }

    /// The keys that these options set for a listener of a tunnel.
    pub(crate) fn keys(&self) -> [(&'static str, Vec<FileField>); 9] {
        let CredentialTrust { issuers, peers, status, dids, documents, .. } = self.settings();
        let of_option = |files: &Option<PathBuf>| options("", files).collect();
        [
            ("did", of_option(&self.did)),
            ("vc", options("", &self.vc).collect()),
            ("staple_status", options("", &self.staple_status).collect()),
            ("membership", of_option(&self.membership)),
            ("server.vc_issuers", Vec::from_iter(issuers)),
            ("server.vc_peers", Vec::from_iter(peers)),
            ("server.dids", Vec::from_iter(dids)),
            ("server.did_documents", documents),
            ("server.vc_status", status),
        ]
    }

    /// The settings by which peers are judged.
    fn settings(&self) -> CredentialTrust {
        let peers = options("peers", &self.peers).next();
        let (of_holders, alone) = if self.trust.is_some() { (peers, None) } else { (None, peers) };
        CredentialTrust {
            issuers: options("vc_issuers", &self.trust).next(),
            peers: options("vc_peers", &self.vc_peers).next().or(of_holders),
            status: options("vc_status", &self.status_list).collect(),
            dids: options("dids", &self.dids).next().or(alone),
            documents: options("did_documents", &self.document).collect(),
            ..CredentialTrust::default()
        }
    }

    /// The credentials to show.
    pub(super) fn credentials(
        &self,
        registry: &RegistryOptions,
        provider: &CryptoProvider,
    ) -> Result<Vec<Credential>, Error> {
        let Some(did) = options("did", &self.did).next() else { return Ok(Vec::new()) };
        let own = OwnCredential {
            did,
            credentials: options("vc", &self.vc).collect(),
            status: options("staple_status", &self.staple_status).collect(),
            membership: options("membership", &self.membership).next(),
        };
        let opened = registry.opened()?;
        let Opened { sources, learned, .. } = opened;
        let documents = self.settings().documents;
        let (shown, staplers) =
            warned(|warnings| own.load(&documents, sources, provider, learned, warnings))?;
        opened.refresh(staplers);
        Ok(shown)
    }

    /// The verifiers of peers' DIDs.
    pub(super) fn judges(
        &self,
        registry: &RegistryOptions,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Option<Judges>, Error> {
        if !self.trusts() {
            return Ok(None);
        }
        let Opened { sources, learned, .. } = registry.opened()?;
        let settings = self.settings();
        warned(|warnings| {
            let mut faults = vec![];
            let judges = settings.verifiers(sources, provider, learned, &mut faults, warnings);
            faults.into_iter().next().map_or(Ok(judges), Err)
        })
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
        let lists = self.trust.iter().chain(&self.vc_peers).chain(&self.dids).chain(&self.peers);
        lists.chain(&self.document).chain(&self.status_list).cloned().collect()
    }

    /// The signature schemes of the trusted issuers' keys, as far as they are known; `None` without
    /// --vc-issuers.
    pub(super) fn issuer_schemes(
        &self,
        registry: &RegistryOptions,
        provider: &CryptoProvider,
    ) -> Result<Option<Vec<SignatureScheme>>, Error> {
        let CredentialTrust { issuers: Some(issuers), documents, .. } = self.settings() else {
            return Ok(None);
        };
        let documents = did::documents(&documents)?;
        let issuers = did::issuers(&issuers, &documents, &registry.opened()?.sources.methods, provider)?;
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
}
