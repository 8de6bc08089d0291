//! Registries of did:dunlin and web servers of did:web, which commands ask over HTTPS.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use clap::Args;
use dunlin::crypto::CryptoProvider;
use dunlin_command::error::{Error, warn};
use dunlin_command::faults::checked;
use dunlin_identity::credential::Seconds;
use dunlin_identity::handshake::{Known, ListedIssuer, ResolveError};
use dunlin_identity::transparency::{ChainError, CheckpointError, RegistryTrust, StapleError};
use dunlin_identity::{DidDocument, Sha256Hash};
use dunlin_registry::client::{ClientError, RegistryClient};
use dunlin_registry::lookup::{LOOK_UP_TIME, LookUpError, LookUps, WATCH_TIME};
use dunlin_registry::stapler::Stapler;
use dunlin_setup::credentials::Judges;
use dunlin_setup::known::{KnownFile, SYNC_TIME};
use dunlin_setup::learned::{LearnedState, Notice, Report};
use dunlin_setup::place::{Fault, Field, Place, options};
use dunlin_setup::registry::{Refreshing, RegistryConfig, Sources, https_client, registry_trust};
use dunlin_tokio::https::{HttpsClient, HttpsError};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::tls::lists;

/// The options by which a command trusts a registry, and the HTTPS servers of registries and of did:web.
#[derive(Args, Clone, Default)]
pub(crate) struct AccessOptions {
    /// The keys of the registry and its witnesses, as `dunlin registry init` writes them (registry.pub); or
    /// the genesis file of a replicated registry.
    #[arg(long, value_name = "FILE", requires = "registry", help_heading = "Registry")]
    registry_key: Option<PathBuf>,
    /// Another node of the same registry, which is asked if those before it give no proven answer. May be
    /// repeated.
    #[arg(
        long = "registry-nodes",
        alias = "registry-node",
        value_name = "URL",
        requires = "registry",
        help_heading = "Registry"
    )]
    registry_node: Vec<String>,
    /// The authorities of the HTTPS servers of --registry and did:web [default: those of this machine].
    #[arg(long = "registry-ca", alias = "https-CAfile", value_name = "FILE", help_heading = "Registry")]
    https_ca_file: Option<PathBuf>,
}

impl AccessOptions {
    /// The registry at this URL, and at its other nodes. Its older proofs count for `outage_age` seconds while
    /// it does not answer.
    fn config(&self, url: &str, outage_age: Seconds) -> Result<RegistryConfig, Error> {
        let Some(key) = &self.registry_key else {
            let why = "without the registry's key, nothing vouches for its answers";
            return Err(Error::usage("--registry", why, "give the key with --registry-key"));
        };
        let node = |url: &String| Field::option("registry.nodes", url.clone());
        Ok(RegistryConfig {
            url: Field::option("registry", url.to_owned()),
            nodes: self.registry_node.iter().map(node).collect(),
            key: Field::option("registry.key", key.clone()),
            ca: options("registry.ca", &self.https_ca_file).collect(),
            outage_age,
        })
    }

    /// A client of the registry at this URL.
    pub(crate) fn client(&self, url: &str) -> Result<RegistryClient, Error> {
        let learned = LearnedState::new(Arc::new(tell));
        Ok(self.config(url, 0)?.client(&Arc::new(lists::provider()), &learned)?)
    }

    /// The registry at this URL, if there is one, and look-ups there; with `did_web`, also on web servers.
    pub(crate) fn sources(&self, registry: Option<&str>, did_web: bool) -> Result<Sources, Error> {
        self.sources_that(registry, did_web, 0, &LearnedState::new(Arc::new(tell)))
    }

    fn sources_that(
        &self,
        registry: Option<&str>,
        did_web: bool,
        outage_age: Seconds,
        learned: &LearnedState,
    ) -> Result<Sources, Error> {
        let provider = Arc::new(lists::provider());
        let registry = registry.map(|url| self.config(url, outage_age)).transpose()?;
        let web = did_web.then(|| self.https(&provider)).transpose()?;
        checked(|faults| Sources::open(registry.as_ref(), web, &provider, learned, faults))
    }

    /// A client of HTTPS that trusts the given authorities.
    pub(crate) fn https(&self, provider: &Arc<CryptoProvider>) -> Result<HttpsClient, Error> {
        let ca: Vec<_> = options("registry.ca", &self.https_ca_file).collect();
        Ok(https_client(&ca, &Place::option("did_web"), provider)?)
    }
}

/// Prints news about registries.
fn tell(notice: &Notice) {
    warn(&notice.to_string());
}

/// Reads the trust in a registry.
pub(crate) fn trust(path: &Path, provider: &CryptoProvider) -> Result<RegistryTrust, Error> {
    let report: Report = Arc::new(tell);
    Ok(registry_trust(&Field::option("registry.key", path.to_owned()), provider, &report)?)
}

/// Explains why a registry has no right answer.
pub(crate) fn failed(error: &ClientError) -> Error {
    use CheckpointError as C;
    let advice = match error {
        ClientError::Https(HttpsError::Tls { .. }) => {
            "give the authority of its HTTPS server with --registry-ca"
        }
        ClientError::Https(_) | ClientError::Late { .. } => "check the address, and that the registry runs",
        ClientError::Refused { status: 409, .. } => {
            "the registry has a later operation: bring the DID's directory up to date, and find out who made it"
        }
        ClientError::Refused { status: 404, .. } => {
            "check --registry: it is the URL of the registry itself, mostly without a path, as in https://registry.example:8443"
        }
        ClientError::Refused { status: 429 | 503, .. } => "wait, and try again",
        ClientError::Proof { error: StapleError::Deactivated(_), .. } => {
            "its holder needs a new DID (`dunlin did create`)"
        }
        ClientError::Proof {
            error: StapleError::Checkpoint(C::OtherRegistry(_) | C::NotTheRegistry(_)),
            ..
        } => "check that --registry and --registry-key belong to the same registry",
        ClientError::Proof { error: StapleError::Checkpoint(C::Stale { .. }), .. } => {
            "check the clock of this machine, and that the registry and its witnesses run"
        }
        ClientError::Proof { error: StapleError::Checkpoint(C::Unwatched { .. }), .. } => {
            "ask the operators of `dunlin registry watch` whether the log is right"
        }
        ClientError::Proof {
            error: StapleError::Checkpoint(C::Chain(ChainError::OtherChain(_) | ChainError::Missing)),
            ..
        } => "check that --registry and --registry-key belong to the same registry",
        ClientError::Nodes(_) => {
            "check the addresses, and that the nodes run and belong to the registry of --registry-key"
        }
        ClientError::Absent { .. } => {
            "check the DID, and whether it has been published (`dunlin did publish`)"
        }
        _ => "do not trust this registry before its operator has explained it",
    };
    Error::failed("registry", error, advice)
}

/// The document of an issuer, if it is the one to which the list pins it.
pub(crate) fn document(look_ups: &LookUps, issuer: &ListedIssuer) -> Result<DidDocument, Error> {
    let did = &issuer.did;
    let document = block_on(look_ups.resolve(did))?.map_err(|error| match error {
        LookUpError::Registry(error) => failed(&error),
        error => Error::failed(did, error, "check the DID, and that its web server has the document"),
    })?;
    let hash = Sha256Hash::of(&lists::provider(), document.canonical().as_bytes());
    let checked = hash.map_err(ResolveError::from).and_then(|hash| issuer.check(&hash));
    let advice = "leave its hash and --did-documents out if the latest document counts";
    checked.map(|()| document).map_err(|error| Error::failed("--vc-issuers", error, advice))
}

/// Runs a network request, in a command that does nothing else meanwhile.
pub(crate) fn block_on<T>(asked: impl Future<Output = T>) -> Result<T, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(asked))
}

/// The options of `client` and `server` for DIDs whose documents are elsewhere.
#[derive(Args, Clone, Default)]
pub(crate) struct RegistryOptions {
    /// The registry of did:dunlin. The document of a peer's DID comes from the proof that the peer sends
    /// along; without one, the registry is asked, for at most 6 seconds. The own did:dunlin sends its proof
    /// along, which is refreshed in the background.
    #[arg(long, value_name = "URL", requires = "registry_key", help_heading = "Registry")]
    registry: Option<String>,
    /// Accept peers with a did:web, whose documents are fetched from their web servers over HTTPS.
    #[arg(long, help_heading = "Registry")]
    did_web: bool,
    /// How old the proof of a peer's DID may be that counts while the registry has not answered for a minute,
    /// though a newer one is known: a number with s, m, h or d; 0s: none counts.
    #[arg(long = "registry-outage-age", alias = "outage-age", value_name = "TIME", default_value = "1h", requires = "registry",
          value_parser = outage_age, help_heading = "Registry")]
    outage_age: Seconds,
    /// Keep what has ended in this file, which this process alone uses: replaced keys, ended DIDs, and which
    /// status lists are the newest.
    #[arg(long, value_name = "FILE", help_heading = "Registry")]
    known: Option<PathBuf>,
    #[command(flatten)]
    access: AccessOptions,
    /// Copies of these options share their knowledge.
    #[arg(skip)]
    opened: Arc<OnceLock<Opened>>,
}

/// A time span in seconds, as in `90s`, `15m`, `12h` or `30d`.
fn outage_age(text: &str) -> Result<Seconds, String> {
    let wrong = || "write a number with s, m, h or d, as in 1h".to_owned();
    let (number, unit) = text.split_at_checked(text.len().saturating_sub(1)).ok_or_else(wrong)?;
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 24 * 3600,
        _ => return Err(wrong()),
    };
    let number = number.parse::<u32>().map_err(|_| wrong())?;
    Ok(Seconds::from(number).saturating_mul(unit))
}

/// The sources that the options name, and what this side has learnt from them and from peers.
pub(crate) struct Opened {
    pub(crate) learned: LearnedState,
    pub(crate) sources: Sources,
    file: Option<Arc<KnownFile>>,
    /// The sources of the own proofs that are shown now.
    staplers: Mutex<Vec<Arc<Stapler>>>,
    refreshing: Refreshing,
}

impl Opened {
    /// Refreshes the proofs of these own DIDs instead of those before.
    pub(crate) fn refresh(&self, staplers: Vec<Arc<Stapler>>) {
        self.refreshing.replace(staplers.clone(), &Arc::new(lists::provider()), self.learned.report());
        *self.staplers.lock().unwrap_or_else(PoisonError::into_inner) = staplers;
    }
}

impl RegistryOptions {
    /// The sources, which are opened once.
    pub(crate) fn opened(&self) -> Result<&Opened, Error> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let known = self.known.as_ref().map(|path| Field::option("known", path.clone()));
        let learned = LearnedState::new(Arc::new(tell));
        let failed = |fault: Fault| Error::failed("--known", fault.what, fault.advice);
        let opened = known.map(|known| KnownFile::open(&known).map_err(failed)).transpose()?;
        let file = opened.map(|(file, knowledge)| {
            learned.begin_with(Arc::new(Known::new(knowledge).with_store(file.clone())));
            file
        });
        let registry = self.registry.as_deref();
        let sources = self.access.sources_that(registry, self.did_web, self.outage_age, &learned)?;
        let opened =
            Opened { learned, sources, file, staplers: Mutex::default(), refreshing: Refreshing::default() };
        Ok(self.opened.get_or_init(|| opened))
    }

    /// Whether peers may have a did:web.
    pub(crate) const fn asks_the_web(&self) -> bool {
        self.did_web
    }

    /// Looks up the issuers that the judges trust, for as long as a look-up may take, and watches them from
    /// now on. Gets the first proofs of own DIDs, and refreshes them. Without a proof, peers ask the registry
    /// themselves.
    pub(crate) async fn start(&self, judges: Option<Judges>) {
        let Some(opened) = self.opened.get() else { return };
        judges.iter().for_each(Judges::watch_registry);
        if let Some(verifier) = judges.and_then(|judges| judges.credentials)
            && !opened.sources.methods.is_empty()
        {
            // A client ends before a look-up beside its handshake would.
            let first = opened.sources.look_ups.look_up_issuers(&verifier);
            if tokio::time::timeout(LOOK_UP_TIME, first).await.is_err() {
                warn(
                    "no answer about the issuers in --vc-issuers: their documents from --did-documents stay in use, and those without one are asked for again",
                );
            }
            let look_ups = opened.sources.look_ups.clone();
            let verifier = Arc::downgrade(&verifier);
            tokio::spawn(async move {
                sleep(WATCH_TIME).await;
                look_ups.watch_issuers(verifier).await;
            });
        }
        if let Some(file) = opened.file.clone() {
            tokio::spawn(async move {
                loop {
                    sleep(SYNC_TIME).await;
                    let file = file.clone();
                    // It fails only if the runtime ends.
                    let _ = spawn_blocking(move || file.sync()).await;
                }
            });
        }
        let staplers = opened.staplers.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for stapler in &staplers {
            if let Err(error) = stapler.refresh().await {
                tell(&Notice::NoProof(stapler.did().clone(), error));
            }
        }
        opened.refresh(staplers);
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use dunlin_identity::key::PublicKey;
    use dunlin_identity::transparency::{NoteKey, NoteKeyKind};
    use dunlin_pki::{KeyPair, KeyType, Tree, TreeSpec, certificates_to_pem};

    use super::*;

    #[derive(Parser)]
    struct Parsed {
        #[command(flatten)]
        options: RegistryOptions,
    }

    /// As parsed, and as the verifiers of a client or server get it.
    #[test]
    fn verifiers_take_older_proofs_of_the_age_of_the_option() {
        let provider = lists::provider();
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name).display().to_string();
        let key = |kind| {
            let pair = KeyPair::generate(KeyType::Ed25519).unwrap();
            let key = PublicKey::from_spki(pair.public_key()).unwrap();
            NoteKey::new(&provider, "registry.example/1", kind, &key).unwrap()
        };
        let keys = [NoteKeyKind::Note, NoteKeyKind::Cosignature].map(|kind| format!("{}\n", key(kind)));
        std::fs::write(path("registry.pub"), keys.concat()).unwrap();
        let tree = Tree::generate(&TreeSpec::new(KeyType::P256, 10).unwrap()).unwrap();
        let root = certificates_to_pem(&[tree.root.certificate().clone()]).unwrap();
        std::fs::write(path("root.pem"), root).unwrap();
        for (given, age) in [(None, 3600), (Some("0s"), 0), (Some("15m"), 900)] {
            let keys = path("registry.pub");
            let root = path("root.pem");
            let access =
                ["--registry", "https://localhost:1", "--registry-key", &keys, "--registry-ca", &root];
            let option = given.map(|age| ["--registry-outage-age", age]);
            let all = ["dunlin"].into_iter().chain(access).chain(option.into_iter().flatten());
            let Parsed { options } = Parsed::try_parse_from(all).unwrap();
            let opened = options.opened().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(opened.sources.registry.as_ref().unwrap().documents().outage_age(), age, "{given:?}");
        }
    }

    #[test]
    fn an_age_has_a_unit() {
        for (text, seconds) in [("0s", 0), ("90s", 90), ("15m", 900), ("1h", 3600), ("30d", 30 * 24 * 3600)] {
            assert_eq!(outage_age(text), Ok(seconds), "{text}");
        }
        for text in ["", "1", "h", "-1h", "1.5h", "1w", "1 h", "4294967296s", "1\u{e9}"] {
            assert!(outage_age(text).is_err_and(|why| why.contains("as in 1h")), "{text}");
        }
    }
}
