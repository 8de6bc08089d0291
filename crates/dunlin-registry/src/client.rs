//! A client of a registry over HTTPS: submits operations, and resolves DIDs with proofs that it verifies.
//!
//! The web server is not believed anything: every answer is checked against the registry's key or the
//! validators of its chain, so a false node can at most withhold answers, or give old ones. A client of
//! several nodes first learns the newest checkpoint that any of them proves; then it asks one after the other
//! for an answer that is at least as new.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use base64ct::{Base64, Encoding};
use dunlin::crypto::CryptoProvider;
use dunlin_identity::Did;
use dunlin_identity::credential::Seconds;
use dunlin_identity::encoding::json::{self, Value};
use dunlin_identity::handshake::{RegistryDocuments, ResolveError};
use dunlin_identity::method::dunlin::Operation;
use dunlin_identity::transparency::{
    CheckpointError, FreshCheckpoint, Hasher, MAX_PROOF_HASHES, MapError, MerkleError, NodeHash, Resolved,
    SignedCheckpoint, Staple, StapleError, StateProof, map_key,
};
use dunlin_tokio::https::{self, HttpsClient, HttpsError};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

/// The longest answer of a registry, in bytes: a document of 16 KiB as JSON in JSON, a checkpoint and a
/// proof.
const MAX_ANSWER: usize = 64 * 1024;

/// The longest reason that an error repeats, in characters.
const MAX_REASON: usize = 256;

/// How long each node of a replicated registry may take with a new operation, which all agree on first: a
/// little more than a replica gives it (10 s).
pub const SUBMIT_TIME: Duration = Duration::from_secs(15);

/// How often a resolution is tried again because another one has shown a larger log meanwhile.
const ATTEMPTS: usize = 3;

/// For how long a client of several nodes does not ask them again which of them has the newest checkpoint:
/// the longest that one node can hide a change from it.
pub const SURVEY_AGE: Duration = Duration::from_secs(30);

/// Which part of an operation's time it takes at most to ask all nodes for their checkpoints, with the time
/// to wait for another task that does: half.
const SURVEY_SHARE: u32 = 2;

/// Why a registry's answer is missing or refused. Every text names the registry's address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The registry cannot be reached over HTTPS.
    #[error("{0}")]
    Https(#[from] HttpsError),
    /// The answers have not come in time, all together.
    #[error("{url}: no answer within {seconds} s")]
    Late {
        /// The registry.
        url: String,
        /// The deadline.
        seconds: u64,
    },
    /// The registry refuses the request.
    #[error("{url}: status {status}: {why}")]
    Refused {
        /// The URL of the request.
        url: String,
        /// The status of HTTP.
        status: u16,
        /// The registry's reason.
        why: String,
    },
    /// The answer is not one of a registry.
    #[error("{url}: the answer is not one of a registry of did:dunlin: {what}")]
    Malformed {
        /// The URL of the request.
        url: String,
        /// The fault in the answer.
        what: &'static str,
    },
    /// The proof is wrong, or the checkpoint is not one that this side believes.
    #[error("{url}: {error}")]
    Proof {
        /// The URL of the request.
        url: String,
        /// The check that failed.
        error: StapleError,
    },
    /// The registry does not prove that its log begins with what it has shown before. It may show others
    /// another history.
    #[error(
        "{url}: no proof that the log of {new} entries begins with the {old} entries that the registry has shown before ({error}): \
             it may show others another history; keep both checkpoints and report them"
    )]
    Inconsistent {
        /// The URL of the request.
        url: String,
        /// The size of the log before.
        old: u64,
        /// The size of the log now.
        new: u64,
        /// Why the proof is wrong.
        error: MerkleError,
    },
    /// A node of a replicated registry does not prove that the log begins with what is known. The others may.
    #[error(
        "{url}: no proof that the log of {new} entries begins with the {old} entries that are known: {error}"
    )]
    NotContinued {
        /// The URL of the request.
        url: String,
        /// The size of the known log.
        old: u64,
        /// The size of the log now.
        new: u64,
        /// Why the proof is wrong.
        error: MerkleError,
    },
    /// The registry acknowledges an operation without a proof that its log has it.
    #[error("{url}: no proof that the log has the operation: {error}")]
    NotIncluded {
        /// The URL of the request.
        url: String,
        /// Why the proof is wrong.
        error: MerkleError,
    },
    /// The document contradicts what this side has learnt before.
    #[error("{url}: {error}")]
    Document {
        /// The URL of the request.
        url: String,
        /// The contradiction.
        error: Box<ResolveError>,
    },
    /// Several nodes were asked, and none has given a proven answer; why not, of each.
    #[error("no node of the registry has given a proven answer: {}", reasons(.0))]
    Nodes(Vec<ClientError>),
    /// The registry proves that it does not have the DID.
    #[error("{url}: the registry does not have {did}")]
    Absent {
        /// The registry.
        url: String,
        /// The DID.
        did: Did,
    },
}

fn reasons(errors: &[ClientError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl ClientError {
    /// Whether a node has proven this, so that others would say the same.
    const fn is_proven(&self) -> bool {
        matches!(self, Self::Absent { .. } | Self::Proof { error: StapleError::Deactivated(_), .. })
    }
}

/// Writes two checkpoints that contradict each other to the log, for [`RegistryDocuments::with_report`].
/// Together they are evidence, if the registry cannot explain them.
pub fn log_contradiction(accepted: &SignedCheckpoint, other: &SignedCheckpoint) {
    tracing::error!(
        %accepted,
        %other,
        "a registry shows different histories: keep both checkpoints and report them"
    );
}

/// An operation that the log has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// Its number in the log.
    pub number: u64,
    /// The checkpoint that covers it.
    pub checkpoint: SignedCheckpoint,
}

/// A client's view of its nodes.
#[derive(Default)]
struct Seen {
    /// The number of the node that has answered last.
    answering: AtomicUsize,
    /// When all were asked for their checkpoints.
    surveyed: Mutex<Option<Instant>>,
}

/// A client of one registry, which has one node or several. It believes what [`RegistryDocuments`] believes,
/// and adds to it what it learns.
#[derive(Clone)]
pub struct RegistryClient {
    provider: Arc<CryptoProvider>,
    https: HttpsClient,
    /// How long a resolution may take, with all requests to all nodes.
    deadline: Duration,
    /// The first node, and the others, without a slash at the end.
    url: String,
    others: Vec<String>,
    seen: Arc<Seen>,
    documents: Arc<RegistryDocuments>,
    clock: Arc<dyn Fn() -> Seconds + Send + Sync>,
}

impl RegistryClient {
    /// A client of the registry whose paths are below `url`, for example `https://registry.example`. The
    /// deadline of `https` applies to each operation of this client, with all its requests to all nodes. Only
    /// a new operation of a replicated registry has more time, [`SUBMIT_TIME`] for each node.
    ///
    /// # Errors
    /// [`HttpsError::Url`]: also plain HTTP is refused.
    pub fn new(
        provider: Arc<CryptoProvider>,
        url: &str,
        https: HttpsClient,
        documents: Arc<RegistryDocuments>,
    ) -> Result<Self, HttpsError> {
        let deadline = https.deadline();
        // The time of each request is within the operation's time.
        let https = https.with_deadline(deadline.max(SUBMIT_TIME)).with_max_content(MAX_ANSWER);
        let now = || Seconds::try_from(SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs());
        Ok(Self {
            provider,
            https,
            deadline,
            url: node(url)?,
            others: Vec::new(),
            seen: Arc::default(),
            documents,
            clock: Arc::new(move || now().unwrap_or(Seconds::MAX)),
        })
    }

    /// Adds another node of the same registry. It is asked if those before it give no proven answer, and
    /// first after it was the one to answer; the time for an operation is divided among the nodes that are
    /// left. An answer must be as new as the newest checkpoint that any node has proven within
    /// [`SURVEY_AGE`].
    ///
    /// # Errors
    /// [`HttpsError::Url`].
    pub fn with_node(mut self, url: &str) -> Result<Self, HttpsError> {
        self.others.push(node(url)?);
        self.seen = Arc::default();
        Ok(self)
    }

    /// Takes the time, in seconds since 1970, from here instead of the machine's clock.
    #[must_use]
    pub fn with_clock(self, clock: impl Fn() -> Seconds + Send + Sync + 'static) -> Self {
        Self { clock: Arc::new(clock), ..self }
    }

    /// The trust in the registry, and the documents that the client has learnt.
    pub fn documents(&self) -> &Arc<RegistryDocuments> {
        &self.documents
    }

    /// The URL of the registry's first node, without a slash at the end.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The time, in seconds since 1970.
    pub fn now(&self) -> Seconds {
        (self.clock)()
    }

    /// Appends an operation to the registry's log, and verifies that the log has it. An operation may be
    /// submitted again if its answer was lost. A registry with witnesses shows the operation in resolutions
    /// only when they have signed.
    ///
    /// # Errors
    /// [`ClientError`]. Status 409 in [`ClientError::Refused`] means that another operation came first, or
    /// that the DID is deactivated.
    pub async fn submit(&self, operation: &Operation) -> Result<Submitted, ClientError> {
        let time = match self.documents.trust().log() {
            Some(_) => self.deadline,
            None => self.deadline.max(SUBMIT_TIME.saturating_mul(self.nodes())),
        };
        self.ask(time, |node| self.submit_to(node, operation)).await
    }

    async fn submit_to(&self, node: &str, operation: &Operation) -> Result<Submitted, ClientError> {
        let url = format!("{node}/operations");
        let malformed = |what| ClientError::Malformed { url: url.clone(), what };
        let entry = operation.canonical().map_err(|_| malformed("the operation has no canonical form"))?;
        let (status, body) = self.send(Method::POST, &url, entry.clone()).await?;
        let answer = json_of(status, &body, &url)?;
        let number = answer.get("number").and_then(Value::as_u64).ok_or_else(|| malformed("number"))?;
        let note = answer.get("checkpoint").and_then(Value::as_str);
        let note = note.ok_or_else(|| malformed("checkpoint"))?.as_bytes();
        let checkpoint = loop {
            let newest = self.documents.newest();
            let checkpoint = self.documents.acknowledgement(note, newest.as_ref(), self.now());
            let checkpoint = checkpoint.map_err(|error| of_checkpoint(&url, error))?;
            self.follow(node, newest.as_ref(), &checkpoint).await?;
            let is_settled = match self.documents.trust().log() {
                // Witnesses sign it later.
                Some(_) => self.documents.is_newest(newest.as_ref()),
                // From now on, no node can show the state before.
                None => self.documents.accept(&checkpoint, newest.as_ref()),
            };
            if is_settled {
                break checkpoint;
            }
        };

        let size = checkpoint.checkpoint().size;
        let root = checkpoint.checkpoint().root;
        let url = format!("{node}/inclusion?number={number}&size={size}");
        let proof = self.hashes(&url).await?;
        let hasher = Hasher(self.provider.sha256);
        let included = hasher.verify_inclusion(hasher.leaf(entry.as_bytes()), number, size, &root, &proof);
        included.map_err(|error| ClientError::NotIncluded { url, error })?;
        Ok(Submitted { number, checkpoint })
    }

    /// The latest document of a DID, with the staple that proves it. Keeps the result in [`Self::documents`],
    /// also that the DID is deactivated.
    ///
    /// # Errors
    /// [`ClientError`]; [`StapleError::Deactivated`] in [`ClientError::Proof`] if the DID has ended.
    pub async fn resolve(&self, did: &Did) -> Result<(Staple, Resolved), ClientError> {
        let time = self.survey(self.deadline).await;
        self.ask(time, |node| self.resolve_at(node, did)).await
    }

    async fn resolve_at(&self, node: &str, did: &Did) -> Result<(Staple, Resolved), ClientError> {
        for _ in 1..ATTEMPTS {
            match self.resolve_once(node, did).await {
                // Another task has seen a larger log since this one asked.
                Err(ClientError::Proof {
                    error: StapleError::Checkpoint(CheckpointError::Rollback { .. }),
                    ..
                }) => {}
                resolved => return resolved,
            }
        }
        self.resolve_once(node, did).await
    }

    async fn resolve_once(&self, node: &str, did: &Did) -> Result<(Staple, Resolved), ClientError> {
        let url = format!("{node}/dids/{did}/staple");
        let (status, body) = self.send(Method::GET, &url, String::new()).await?;
        if status == StatusCode::NOT_FOUND {
            return Err(self.absence(node, did).await?);
        }
        if status != StatusCode::OK {
            return Err(refused(status, &body, &url));
        }
        let proof = |error| ClientError::Proof { url: url.clone(), error };
        let staple = Staple::read(&body).map_err(proof)?;
        let now = self.now();
        loop {
            let newest = self.documents.newest();
            let resolved = self.documents.verify(did, &staple, newest.as_ref(), now).map_err(|error| {
                if let StapleError::Deactivated(did) = &error {
                    self.documents.deactivate(did.clone());
                }
                proof(error)
            })?;
            self.follow(node, newest.as_ref(), &resolved.checkpoint.checkpoint).await?;
            let kept = self.documents.keep(&resolved, newest.as_ref(), now).map_err(|error| match error {
                ResolveError::Deactivated(did) => proof(StapleError::Deactivated(did)),
                error => ClientError::Document { url: url.clone(), error: Box::new(error) },
            })?;
            if kept {
                return Ok((staple, resolved));
            }
        }
    }

    /// Why the registry has no staple: it must prove that it does not have the DID.
    async fn absence(&self, node: &str, did: &Did) -> Result<ClientError, ClientError> {
        let url = format!("{node}/dids/{did}");
        let (_, body) = self.send(Method::GET, &url, String::new()).await?;
        let malformed = |what| ClientError::Malformed { url: url.clone(), what };
        let answer = json::read_bounded(&body, MAX_ANSWER).map_err(|_| malformed("no JSON"))?;
        let text = |name| answer.get(name).and_then(Value::as_str).ok_or_else(|| malformed(name));
        let proof = Base64::decode_vec(text("proof")?).map_err(|_| malformed("proof"))?;
        let checkpoint = self.verified(node, text("checkpoint")?.as_bytes(), &url).await?;
        let refused = |error: MapError| ClientError::Proof { url: url.clone(), error: error.into() };
        let proof = StateProof::read(&proof).map_err(refused)?;
        let key = map_key(&self.provider, did)
            .map_err(|error| ClientError::Proof { url: url.clone(), error: error.into() })?;
        let stated = checkpoint.checkpoint.checkpoint();
        proof.verify_absence(Hasher(self.provider.sha256), &key, stated).map_err(refused)?;
        self.documents.set_absent(did.clone(), self.now());
        Ok(ClientError::Absent { url: node.to_owned(), did: did.clone() })
    }

    /// The newest checkpoint, which continues the one that this side has accepted before.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn checkpoint(&self) -> Result<FreshCheckpoint, ClientError> {
        let time = self.survey(self.deadline).await;
        self.ask(time, |node| self.checkpoint_of(node)).await
    }

    /// Asks the nodes in turn until one has an answer for a watch ([`RegistryDocuments::check_answer`]).
    /// Changes nothing that this side knows.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn answers(&self) -> Result<(), ClientError> {
        let answered = async |node: &str| {
            let (url, body) = self.note_of(node).await?;
            let checked = self.documents.check_answer(&body, self.now());
            checked.map_err(|error| of_checkpoint(&url, error))
        };
        self.ask(self.deadline, answered).await
    }

    /// Asks all nodes for their checkpoints, so that the newest one counts and no single node can show a
    /// state before it, or prove with such a state that a DID is absent. Returns how much of the time is
    /// left.
    async fn survey(&self, time: Duration) -> Duration {
        if self.others.is_empty() {
            return time;
        }
        let begin = Instant::now();
        let end = begin + time / SURVEY_SHARE;
        if let Ok(mut surveyed) = timeout_at(end, self.seen.surveyed.lock()).await
            && surveyed.is_none_or(|at| at.elapsed() >= SURVEY_AGE)
        {
            let mut asked = JoinSet::new();
            for node in self.urls() {
                let client = self.clone();
                let node = node.clone();
                asked.spawn(async move { timeout_at(end, client.checkpoint_of(&node)).await });
            }
            while let Some(answer) = asked.join_next().await {
                if let Ok(Ok(Ok(_))) = answer {
                    *surveyed = Some(Instant::now());
                }
            }
        }
        time.saturating_sub(begin.elapsed())
    }

    async fn checkpoint_of(&self, node: &str) -> Result<FreshCheckpoint, ClientError> {
        let (url, body) = self.note_of(node).await?;
        self.verified(node, &body, &url).await
    }

    /// The checkpoint that a node has, and where.
    async fn note_of(&self, node: &str) -> Result<(String, Bytes), ClientError> {
        let url = format!("{node}/checkpoint");
        let (status, body) = self.send(Method::GET, &url, String::new()).await?;
        match status {
            StatusCode::OK => Ok((url, body)),
            _ => Err(refused(status, &body, &url)),
        }
    }

    /// Verifies a checkpoint, and keeps it.
    async fn verified(&self, node: &str, note: &[u8], url: &str) -> Result<FreshCheckpoint, ClientError> {
        loop {
            let newest = self.documents.newest();
            let checkpoint = self.documents.checkpoint(note, newest.as_ref(), self.now());
            let checkpoint = checkpoint.map_err(|error| of_checkpoint(url, error))?;
            self.follow(node, newest.as_ref(), &checkpoint.checkpoint).await?;
            if self.documents.accept(&checkpoint.checkpoint, newest.as_ref()) {
                return Ok(checkpoint);
            }
        }
    }

    /// Verifies that the log of a checkpoint begins with the log of the largest one that this side has
    /// accepted.
    async fn follow(
        &self,
        node: &str,
        newest: Option<&SignedCheckpoint>,
        checkpoint: &SignedCheckpoint,
    ) -> Result<(), ClientError> {
        let Some(newest) = newest else { return Ok(()) };
        let old = newest.checkpoint();
        let new = checkpoint.checkpoint();
        // Equal logs have been compared, and an empty one begins every other.
        if old.size == 0 || old.size >= new.size {
            return Ok(());
        }
        let url = format!("{node}/consistency?old={}&new={}", old.size, new.size);
        let proof = self.hashes(&url).await?;
        let hasher = Hasher(self.provider.sha256);
        let follows = hasher.verify_consistency((old.size, &old.root), (new.size, &new.root), &proof);
        let old = old.size;
        let new = new.size;
        follows.map_err(|error| match self.documents.trust().log() {
            Some(_) => {
                self.documents.report(newest, checkpoint);
                ClientError::Inconsistent { url, old, new, error }
            }
            // The validators have signed both, whatever this node says.
            None => ClientError::NotContinued { url, old, new, error },
        })
    }

    /// The hashes of a proof.
    async fn hashes(&self, url: &str) -> Result<Vec<NodeHash>, ClientError> {
        let (status, body) = self.send(Method::GET, url, String::new()).await?;
        let answer = json_of(status, &body, url)?;
        let malformed = || ClientError::Malformed { url: url.to_owned(), what: "hashes" };
        let hashes = answer.get("hashes").and_then(Value::as_array).ok_or_else(malformed)?;
        if hashes.len() > MAX_PROOF_HASHES {
            return Err(malformed());
        }
        let hash = |hash: &Value| NodeHash::try_from(Base64::decode_vec(hash.as_str()?).ok()?).ok();
        hashes.iter().map(|value| hash(value).ok_or_else(malformed)).collect()
    }

    async fn send(
        &self,
        method: Method,
        url: &str,
        body: String,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let mut request = Request::new(Full::<Bytes>::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = https::url(url)?;
        let answer = self.https.send(request).await?;
        Ok((answer.status(), answer.into_body()))
    }

    /// All nodes.
    fn urls(&self) -> impl Iterator<Item = &String> + Clone {
        std::iter::once(&self.url).chain(&self.others)
    }

    fn nodes(&self) -> u32 {
        u32::try_from(self.others.len()).unwrap_or(u32::MAX).saturating_add(1)
    }

    /// Asks the nodes in turn, beginning with the one that has answered last, until one has a proven answer.
    /// Each has its share of the time that is left.
    async fn ask<'a, T, F>(&'a self, time: Duration, ask: impl Fn(&'a str) -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let mut time = time;
        let mut failed = Vec::new();
        let first = self.seen.answering.load(Ordering::Relaxed);
        let nodes = self.urls().enumerate().cycle().skip(first);
        for (left, (number, node)) in (1..=self.nodes()).rev().zip(nodes) {
            let begin = Instant::now();
            let share = time / left;
            let late = |_| Err(ClientError::Late { url: node.clone(), seconds: share.as_secs() });
            match timeout(share, ask(node)).await.unwrap_or_else(late) {
                Err(error) if !error.is_proven() => failed.push(error),
                answered => {
                    self.seen.answering.store(number, Ordering::Relaxed);
                    return answered;
                }
            }
            time = time.saturating_sub(begin.elapsed());
        }
        match (failed.pop(), failed.is_empty()) {
            (Some(only), true) => Err(only),
            (last, _) => {
                failed.extend(last);
                Err(ClientError::Nodes(failed))
            }
        }
    }
}

/// The URL of a node, without a slash at the end.
fn node(url: &str) -> Result<String, HttpsError> {
    match https::url(url)?.query() {
        None => Ok(url.trim_end_matches('/').to_owned()),
        Some(_) => Err(HttpsError::Url(url.to_owned())),
    }
}

/// The JSON of an answer with status 200.
fn json_of(status: StatusCode, body: &[u8], url: &str) -> Result<Value, ClientError> {
    if status != StatusCode::OK {
        return Err(refused(status, body, url));
    }
    let malformed = |_| ClientError::Malformed { url: url.to_owned(), what: "no JSON" };
    json::read_bounded(body, MAX_ANSWER).map_err(malformed)
}

/// The reason that a registry gives. It becomes a part of one line, so it must not have control characters.
fn refused(status: StatusCode, body: &[u8], url: &str) -> ClientError {
    let reason = json::read_bounded(body, MAX_ANSWER).ok();
    let reason = reason.as_ref().and_then(|answer| answer.get("error")).and_then(Value::as_str);
    let why = reason.unwrap_or_else(|| status.canonical_reason().unwrap_or("no reason given"));
    let why = why.chars().filter(|c| !c.is_control()).take(MAX_REASON).collect();
    ClientError::Refused { url: url.to_owned(), status: status.as_u16(), why }
}

fn of_checkpoint(url: &str, error: CheckpointError) -> ClientError {
    ClientError::Proof { url: url.to_owned(), error: error.into() }
}

impl fmt::Debug for RegistryClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryClient").field("url", &self.url).finish_non_exhaustive()
    }
}
