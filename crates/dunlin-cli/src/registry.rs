//! Registries of did:dunlin and web servers of did:web, which commands ask over HTTPS.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use clap::Args;
use dunlin::crypto::CryptoProvider;
use dunlin::wire::DidMethod;
use dunlin_command::error::{Error, warn};
use dunlin_command::files;
use dunlin_gateway::known::KnownFile;
use dunlin_identity::credential::Seconds;
use dunlin_identity::handshake::{
    CredentialVerifier, Judge, Known, ListedIssuer, RegistryDocuments, ResolveError,
};
use dunlin_identity::key::PublicKey;
use dunlin_identity::knowledge::Knowledge;
use dunlin_identity::transparency::{
    ChainError, CheckpointError, RegistryTrust, SignedCheckpoint, StapleError,
};
use dunlin_identity::{DidDocument, Sha256Hash};
use dunlin_registry::client::{ClientError, RegistryClient};
use dunlin_registry::lookup::{LOOK_UP_TIME, LookUpAnswers, LookUpError, LookUps, WATCH_TIME, WebDocuments};
use dunlin_registry::stapler::{Stapler, StaplerError};
use dunlin_setup::https::connector_by;
use dunlin_setup::place::{Place, options};
use dunlin_tokio::https::{self, HttpsClient, HttpsError};
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::did::{Own, now_s};
use crate::tls::credentials::PeerJudge;
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
    #[arg(long, value_name = "URL", requires = "registry", help_heading = "Registry")]
    registry_node: Vec<String>,
    /// The authorities of the HTTPS servers of --registry and did:web [default: those of this machine].
    #[arg(long = "https-CAfile", value_name = "FILE", help_heading = "Registry")]
    https_ca_file: Option<PathBuf>,
}

impl AccessOptions {
    /// The registry at this URL, and at its other nodes.
    pub(crate) fn client(&self, url: &str) -> Result<RegistryClient, Error> {
        self.client_that(url, (Arc::new(Known::new(Knowledge::default())), 0))
    }

    /// As [`Self::client`], with shared permanent knowledge.
    fn client_that(
        &self,
        url: &str,
        (known, outage_age): (Arc<Known>, Seconds),
    ) -> Result<RegistryClient, Error> {
        let provider = Arc::new(lists::provider());
        for url in std::iter::once(url).chain(self.registry_node.iter().map(String::as_str)) {
            https::url(url).map_err(|error| not_https(&error))?;
        }
        let Some(path) = &self.registry_key else {
            let why = "without the registry's key, nothing vouches for its answers";
            return Err(Error::usage("--registry", why, "give the key with --registry-key"));
        };
        let documents = RegistryDocuments::new(provider.clone(), trust(path, &provider)?);
        let documents = documents.with_known(known).with_outage(outage_age, |did| {
            warn(&format!("{did}: an older proof counts, because the registry does not answer"));
        });
        let documents = Arc::new(documents.with_report(contradicts));
        let https = self.https(&provider)?;
        let first = RegistryClient::new(provider, url, https, documents);
        let mut nodes = self.registry_node.iter();
        let client =
            nodes.try_fold(first.map_err(|error| not_https(&error))?, |client, url| client.with_node(url));
        client.map_err(|error| not_https(&error))
    }

    /// The registry at this URL, if there is one, and look-ups there; with `did_web`, also on web servers.
    pub(crate) fn look_ups(
        &self,
        registry: Option<&str>,
        did_web: bool,
    ) -> Result<(Option<RegistryClient>, LookUps), Error> {
        let known = Arc::new(Known::new(Knowledge::default()));
        self.look_ups_that(registry, did_web, (known, 0))
    }

    /// As [`Self::look_ups`], with shared permanent knowledge.
    fn look_ups_that(
        &self,
        registry: Option<&str>,
        did_web: bool,
        known: (Arc<Known>, Seconds),
    ) -> Result<(Option<RegistryClient>, LookUps), Error> {
        let registry = registry.map(|url| self.client_that(url, known)).transpose()?;
        let provider = Arc::new(lists::provider());
        let web =
            if did_web { Some(WebDocuments::new(provider.clone(), self.https(&provider)?)) } else { None };
        let look_ups = LookUps::new(registry.iter().cloned().collect(), web);
        Ok((registry, look_ups))
    }

    /// A client of HTTPS that trusts the given authorities.
    pub(crate) fn https(&self, provider: &Arc<CryptoProvider>) -> Result<HttpsClient, Error> {
        let ca: Vec<_> = options("registry.ca", &self.https_ca_file).collect();
        let connector = connector_by(provider, &ca, &Place::option("registry"), "registry.ca")?;
        Ok(HttpsClient::new(connector).with_deadline(LOOK_UP_TIME))
    }
}

fn not_https(error: &HttpsError) -> Error {
    Error::usage("--registry", error, "nobody vouches for the answers of plain HTTP")
}

/// Shows two checkpoints that contradict each other.
fn contradicts(accepted: &SignedCheckpoint, other: &SignedCheckpoint) {
    warn(&format!(
        "the registry shows different histories: keep these checkpoints and report them: {accepted} and {other}"
    ));
}

/// Reads the trust in a registry.
pub(crate) fn trust(path: &Path, provider: &CryptoProvider) -> Result<RegistryTrust, Error> {
    let advice = "give the file registry.pub that `dunlin registry init` has made, or the genesis file of a replicated registry";
    let now_s = u64::try_from(now_s()).unwrap_or(0);
    let trust = RegistryTrust::read_file(provider, files::text(path)?.as_bytes(), now_s);
    let trust = trust.map_err(|error| Error::failed(path.display(), error, advice))?;
    if let Some(warning) = trust.warning() {
        warn(&format!("{}: {warning}", path.display()));
    }
    Ok(trust)
}

/// Explains why a registry has no right answer.
pub(crate) fn failed(error: &ClientError) -> Error {
    use CheckpointError as C;
    let advice = match error {
        ClientError::Https(HttpsError::Tls { .. }) => {
            "give the authority of its HTTPS server with --https-CAfile"
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

/// The methods whose documents a registry has, or web servers have.
pub(crate) fn methods(registry: Option<&str>, did_web: bool) -> Vec<DidMethod> {
    let web = did_web.then_some(DidMethod::WEB);
    registry.map(|_| DidMethod::DUNLIN).into_iter().chain(web).collect()
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
    let advice = "leave its hash and --document out if the latest document counts";
    checked.map(|()| document).map_err(|error| Error::failed("--trust", error, advice))
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
    #[arg(long, value_name = "TIME", default_value = "1h", requires = "registry", value_parser = outage_age, help_heading = "Registry")]
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
    #[arg(skip)]
    opened_known: Arc<OnceLock<OpenedKnown>>,
}

/// The permanent knowledge, and its file.
struct OpenedKnown {
    known: Arc<Known>,
    file: Option<Arc<KnownFile>>,
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

/// The clients that the options name, and the source of own proofs.
struct Opened {
    registry: Option<RegistryClient>,
    look_ups: LookUps,
    stapler: OnceLock<Arc<Stapler>>,
}

impl RegistryOptions {
    fn opened(&self) -> Result<&Opened, Error> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let (registry, look_ups) = self.access.look_ups_that(
            self.registry.as_deref(),
            self.did_web,
            (self.known()?, self.outage_age),
        )?;
        Ok(self.opened.get_or_init(|| Opened { registry, look_ups, stapler: OnceLock::new() }))
    }

    /// The permanent knowledge, from the file of --known if the option is given.
    pub(crate) fn known(&self) -> Result<Arc<Known>, Error> {
        if let Some(opened) = self.opened_known.get() {
            return Ok(opened.known.clone());
        }
        let advice = "name a file for this process alone, in a directory that it can write";
        let failed = |fault| Error::failed("--known", fault, advice);
        let opened = self.known.as_ref().map(|path| KnownFile::open(path).map_err(failed)).transpose()?;
        let (file, knowledge) = opened.unzip();
        let known = Known::new(knowledge.unwrap_or_default());
        let known = Arc::new(match &file {
            Some(file) => known.with_store(file.clone()),
            None => known,
        });
        Ok(self.opened_known.get_or_init(|| OpenedKnown { known, file }).known.clone())
    }

    /// Makes a verifier use the known documents of the registry and of web servers, and ask them for others.
    pub(crate) fn extend<J: Judge>(&self, verifier: J) -> Result<J, Error> {
        let resolvers = self.opened()?.look_ups.resolvers();
        if resolvers.is_empty() { Ok(verifier) } else { Ok(verifier.asking_with(resolvers)) }
    }

    /// The answers to the questions of this judge; `None` if it has none.
    pub(crate) fn answers(&self, judge: Option<PeerJudge>) -> Option<LookUpAnswers> {
        let look_ups = &self.opened.get()?.look_ups;
        Some(look_ups.answers(vec![judge?.judge()]))
    }

    /// The methods whose documents the registry or web servers have.
    pub(crate) fn methods(&self) -> Vec<DidMethod> {
        methods(self.registry.as_deref(), self.did_web)
    }

    /// Whether peers may have a did:web.
    pub(crate) const fn asks_the_web(&self) -> bool {
        self.did_web
    }

    /// Whether proofs of a registry count.
    pub(crate) fn has_registry(&self) -> bool {
        self.registry.is_some()
    }

    /// The source of proofs of an own DID, with its proof of membership; `None` without a registry, or for
    /// another method.
    pub(crate) fn stapler(&self, own: &Own, membership: Vec<u8>) -> Result<Option<Arc<Stapler>>, Error> {
        let opened = self.opened()?;
        let Some(registry) = opened.registry.as_ref().filter(|_| own.did().method() == "dunlin") else {
            return Ok(None);
        };
        let key = PublicKey::from_spki(own.key.public_key());
        let key = key.map_err(|error| Error::failed(own.file.display(), error, "give another key"))?;
        let new = || {
            let stapler = Stapler::new(registry.clone(), own.did().clone(), key.clone());
            Arc::new(stapler.with_membership(membership))
        };
        let stapler = opened.stapler.get_or_init(new);
        stapler.set_key(key);
        Ok(Some(stapler.clone()))
    }

    /// Looks up the issuers of did:dunlin that the verifier trusts, now and again, as long as the verifier
    /// exists: it learns when one has another document or has ended its DID. Before the program has begun,
    /// [`Self::start`] does so.
    pub(crate) fn watch_issuers(&self, verifier: &Arc<CredentialVerifier>) {
        let (Some(opened), Ok(runtime)) = (self.opened.get(), Handle::try_current()) else { return };
        if !self.methods().is_empty() {
            let look_ups = opened.look_ups.clone();
            let verifier = Arc::downgrade(verifier);
            runtime.spawn(async move { look_ups.watch_issuers(verifier).await });
        }
    }

    /// Writes the permanent knowledge to the disk every second.
    fn keep_known(&self) {
        let Some(file) = self.opened_known.get().and_then(|opened| opened.file.clone()) else { return };
        tokio::spawn(async move {
            loop {
                sleep(SYNC_TIME).await;
                let file = file.clone();
                // It fails only if the runtime ends.
                let _ = spawn_blocking(move || file.sync()).await;
            }
        });
    }

    /// Learns whether the registry answers, as long as the judge exists.
    pub(crate) fn watch_registry(&self, judge: &PeerJudge) {
        let (Some(opened), Ok(runtime)) = (self.opened.get(), Handle::try_current()) else { return };
        if self.has_registry() {
            let look_ups = opened.look_ups.clone();
            let judge = Arc::downgrade(&judge.judge());
            runtime.spawn(async move { look_ups.watch_registries(judge).await });
        }
    }

    /// Looks up the issuers that the judge trusts, for as long as a look-up may take, and watches them from
    /// now on. Gets the first proof of the own DID, and refreshes it. Without a proof, peers ask the registry
    /// themselves.
    pub(crate) async fn start(&self, judge: Option<PeerJudge>) {
        judge.iter().for_each(|judge| self.watch_registry(judge));
        if let (Some(PeerJudge::Credentials(verifier)), Some(opened)) = (judge, self.opened.get())
            && !self.methods().is_empty()
        {
            // A client ends before a look-up beside its handshake would.
            let first = opened.look_ups.look_up_issuers(&verifier);
            if tokio::time::timeout(LOOK_UP_TIME, first).await.is_err() {
                warn(
                    "no answer about the issuers in --trust: their documents from --document stay in use, and those without one are asked for again",
                );
            }
            let look_ups = opened.look_ups.clone();
            let verifier = Arc::downgrade(&verifier);
            tokio::spawn(async move {
                sleep(WATCH_TIME).await;
                look_ups.watch_issuers(verifier).await;
            });
        }
        self.keep_known();
        let Some(stapler) = self.opened.get().and_then(|opened| opened.stapler.get()) else { return };
        if let Err(error) = stapler.refresh().await {
            no_proof(&error);
        }
        let stapler = stapler.clone();
        tokio::spawn(async move { stapler.keep_fresh(&lists::provider(), no_proof).await });
    }
}

/// The interval at which the permanent knowledge is written to the disk.
const SYNC_TIME: Duration = Duration::from_secs(1);

fn no_proof(error: &StaplerError) {
    warn(&format!(
        "--registry: no new proof of the own DID: {error}; peers must ask the registry themselves"
    ));
}

#[cfg(test)]
mod tests {
    use clap::Parser;
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
                ["--registry", "https://localhost:1", "--registry-key", &keys, "--https-CAfile", &root];
            let option = given.map(|age| ["--outage-age", age]);
            let all = ["dunlin"].into_iter().chain(access).chain(option.into_iter().flatten());
            let Parsed { options } = Parsed::try_parse_from(all).unwrap();
            let opened = options.opened().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(opened.registry.as_ref().unwrap().documents().outage_age(), age, "{given:?}");
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
