//! A client of a registry over HTTPS: submits operations, and resolves DIDs with proofs that it verifies.
//!
//! The web server is not believed anything: every answer is checked against the registry's key, so a false node can at most withhold answers.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use base64ct::{Base64, Encoding};
use dunlin::crypto::CryptoProvider;
use dunlin_identity::credential::Seconds;
use dunlin_identity::did::Did;
use dunlin_identity::handshake::RegistryDocuments;
use dunlin_identity::json::{self, Value};
use dunlin_identity::merkle::{Hasher, MAX_PROOF_HASHES, MerkleError, NodeHash};
use dunlin_identity::method::dunlin::Operation;
use dunlin_identity::registry::checkpoint::{CheckpointError, FreshCheckpoint, SignedCheckpoint};
use dunlin_identity::registry::map::{MapError, MapProof, map_key};
use dunlin_identity::registry::staple::{Resolved, Staple, StapleError};
use dunlin_tokio::https::{self, HttpsClient, HttpsError};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use tokio::time::timeout;

/// The longest answer of a registry, in bytes: a document of 16 KiB as JSON in JSON, a checkpoint and a proof.
const MAX_ANSWER: usize = 64 * 1024;

/// The longest reason that an error repeats, in characters.
const MAX_REASON: usize = 256;

/// How often a resolution is tried again because another one has shown a larger log meanwhile.
const ATTEMPTS: usize = 3;

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
        /// What was asked.
        url: String,
        /// The status of HTTP.
        status: u16,
        /// The registry's reason.
        why: String,
    },
    /// The answer is not one of a registry.
    #[error("{url}: the answer is not one of a registry of did:dunlin: {what}")]
    Malformed {
        /// What was asked.
        url: String,
        /// What is wrong.
        what: &'static str,
    },
    /// The proof is wrong, or the checkpoint is not one that this side believes.
    #[error("{url}: {error}")]
    Proof {
        /// What was asked.
        url: String,
        /// The check that failed.
        error: StapleError,
    },
    /// The registry does not prove that its log begins with what it has shown before. It may show others another history.
    #[error(
        "{url}: no proof that the log of {new} entries begins with the {old} entries that the registry has shown before ({error}): \
             it may show others another history; keep both checkpoints and report them"
    )]
    Inconsistent {
        /// What was asked.
        url: String,
        /// The size of the log before.
        old: u64,
        /// The size of the log now.
        new: u64,
        /// Why the proof is wrong.
        error: MerkleError,
    },
    /// The registry acknowledges an operation without a proof that its log has it.
    #[error("{url}: no proof that the log has the operation: {error}")]
    NotIncluded {
        /// What was asked.
        url: String,
        /// Why the proof is wrong.
        error: MerkleError,
    },
    /// The registry proves that it does not have the DID.
    #[error("{url}: the registry does not have {did}")]
    Absent {
        /// The registry.
        url: String,
        /// The DID.
        did: Did,
    },
}

/// An operation that the log has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// Its number in the log.
    pub number: u64,
    /// The checkpoint that covers it.
    pub checkpoint: SignedCheckpoint,
}

/// A client of one registry. It believes what [`RegistryDocuments`] believes, and adds to it what it learns.
#[derive(Clone)]
pub struct RegistryClient {
    provider: Arc<CryptoProvider>,
    https: HttpsClient,
    url: String,
    documents: Arc<RegistryDocuments>,
    clock: Arc<dyn Fn() -> Seconds + Send + Sync>,
}

impl RegistryClient {
    /// A client of the registry whose paths are below `url`, for example `https://registry.example`. The deadline of `https` is that of
    /// each operation of this client, with all its requests.
    ///
    /// # Errors
    /// [`HttpsError::Url`]: also plain HTTP is refused.
    pub fn new(
        provider: Arc<CryptoProvider>,
        url: &str,
        https: HttpsClient,
        documents: Arc<RegistryDocuments>,
    ) -> Result<Self, HttpsError> {
        let read = https::url(url)?;
        if read.query().is_some() {
            return Err(HttpsError::Url(url.to_owned()));
        }
        let now = || Seconds::try_from(SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs());
        Ok(Self {
            provider,
            https: https.with_max_content(MAX_ANSWER),
            url: url.trim_end_matches('/').to_owned(),
            documents,
            clock: Arc::new(move || now().unwrap_or(Seconds::MAX)),
        })
    }

    /// Takes the time, in seconds since 1970, from here instead of the machine's clock.
    #[must_use]
    pub fn with_clock(self, clock: impl Fn() -> Seconds + Send + Sync + 'static) -> Self {
        Self { clock: Arc::new(clock), ..self }
    }

    /// What it believes and has learnt.
    pub fn documents(&self) -> &Arc<RegistryDocuments> {
        &self.documents
    }

    /// The registry's URL, without a slash at the end.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The time, in seconds since 1970.
    pub fn now(&self) -> Seconds {
        (self.clock)()
    }

    /// Appends an operation to the registry's log, and verifies that the log has it. An operation may be submitted again if its answer was
    /// lost. A registry with witnesses shows the operation in resolutions only when they have signed.
    ///
    /// # Errors
    /// [`ClientError`]. Status 409 in [`ClientError::Refused`] means that another operation came first, or that the DID is deactivated.
    pub async fn submit(&self, operation: &Operation) -> Result<Submitted, ClientError> {
        self.in_time(async {
            let url = self.at("/operations");
            let malformed = |what| ClientError::Malformed { url: url.clone(), what };
            let entry =
                operation.canonical().map_err(|_| malformed("the operation has no canonical form"))?;
            let (status, body) = self.send(Method::POST, &url, entry.clone()).await?;
            let answer = json_of(status, &body, &url)?;
            let number = answer.get("number").and_then(Value::as_u64).ok_or_else(|| malformed("number"))?;
            let note = answer.get("checkpoint").and_then(Value::as_str);
            let note = note.ok_or_else(|| malformed("checkpoint"))?.as_bytes();
            let (newest, now) = (self.documents.newest(), u64::try_from(self.now()).unwrap_or(0));
            let checkpoint = self.documents.trust().signed(&self.provider, note, newest.as_ref(), now);
            let checkpoint = checkpoint.map_err(|error| of_checkpoint(&url, error))?;
            self.follow(&checkpoint).await?;

            let (size, root) = (checkpoint.checkpoint().size, checkpoint.checkpoint().root);
            let url = self.at(&format!("/inclusion?number={number}&size={size}"));
            let (proof, hasher) = (self.hashes(&url).await?, Hasher(self.provider.sha256));
            let included =
                hasher.verify_inclusion(hasher.leaf(entry.as_bytes()), number, size, &root, &proof);
            included.map_err(|error| ClientError::NotIncluded { url, error })?;
            Ok(Submitted { number, checkpoint })
        })
        .await
    }

    /// The latest document of a DID, with the staple that proves it. What it learns, also that the DID is deactivated, it keeps for
    /// [`Self::documents`].
    ///
    /// # Errors
    /// [`ClientError`]; [`StapleError::Deactivated`] in [`ClientError::Proof`] if the DID has ended.
    pub async fn resolve(&self, did: &Did) -> Result<(Staple, Resolved), ClientError> {
        self.in_time(async {
            for _ in 1..ATTEMPTS {
                match self.resolve_once(did).await {
                    // Another task has seen a larger log since this one asked.
                    Err(ClientError::Proof {
                        error: StapleError::Checkpoint(CheckpointError::Rollback { .. }),
                        ..
                    }) => {}
                    resolved => return resolved,
                }
            }
            self.resolve_once(did).await
        })
        .await
    }

    async fn resolve_once(&self, did: &Did) -> Result<(Staple, Resolved), ClientError> {
        let url = self.at(&format!("/dids/{did}/staple"));
        let (status, body) = self.send(Method::GET, &url, String::new()).await?;
        if status == StatusCode::NOT_FOUND {
            return Err(self.absence(did).await?);
        }
        if status != StatusCode::OK {
            return Err(refused(status, &body, &url));
        }
        let proof = |error| ClientError::Proof { url: url.clone(), error };
        let staple = Staple::read(&body).map_err(proof)?;
        let now = self.now();
        let resolved = self.documents.verify(did, &staple, now).map_err(|error| {
            if let StapleError::Deactivated(did) = &error {
                self.documents.deactivate(did.clone());
            }
            proof(error)
        })?;
        self.follow(&resolved.checkpoint.checkpoint).await?;
        self.documents.keep(&resolved, now).map_err(|_| proof(StapleError::Deactivated(did.clone())))?;
        Ok((staple, resolved))
    }

    /// Why the registry has no staple: it must prove that it does not have the DID.
    async fn absence(&self, did: &Did) -> Result<ClientError, ClientError> {
        let url = self.at(&format!("/dids/{did}"));
        let (_, body) = self.send(Method::GET, &url, String::new()).await?;
        let malformed = |what| ClientError::Malformed { url: url.clone(), what };
        let answer = json::read_bounded(&body, MAX_ANSWER).map_err(|_| malformed("no JSON"))?;
        let text = |name| answer.get(name).and_then(Value::as_str).ok_or_else(|| malformed(name));
        let proof = Base64::decode_vec(text("proof")?).map_err(|_| malformed("proof"))?;
        let checkpoint = self.verified(text("checkpoint")?.as_bytes(), &url).await?;
        let refused = |error: MapError| ClientError::Proof { url: url.clone(), error: error.into() };
        let proof = MapProof::read(&proof).map_err(refused)?;
        let key = map_key(&self.provider, did)
            .map_err(|error| ClientError::Proof { url: url.clone(), error: error.into() })?;
        let root = checkpoint.checkpoint.checkpoint().map;
        proof.verify_absence(Hasher(self.provider.sha256), &key, &root).map_err(refused)?;
        Ok(ClientError::Absent { url: self.url.clone(), did: did.clone() })
    }

    /// The newest checkpoint, which continues the one that this side has accepted before.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn checkpoint(&self) -> Result<FreshCheckpoint, ClientError> {
        self.in_time(async {
            let url = self.at("/checkpoint");
            let (status, body) = self.send(Method::GET, &url, String::new()).await?;
            if status != StatusCode::OK {
                return Err(refused(status, &body, &url));
            }
            self.verified(&body, &url).await
        })
        .await
    }

    /// Verifies a checkpoint, and keeps it.
    async fn verified(&self, note: &[u8], url: &str) -> Result<FreshCheckpoint, ClientError> {
        let (newest, now) = (self.documents.newest(), u64::try_from(self.now()).unwrap_or(0));
        let checkpoint = self.documents.trust().verify(&self.provider, note, newest.as_ref(), now);
        let checkpoint = checkpoint.map_err(|error| of_checkpoint(url, error))?;
        self.follow(&checkpoint.checkpoint).await?;
        self.documents.accept(checkpoint.checkpoint.clone());
        Ok(checkpoint)
    }

    /// Verifies that the log of a checkpoint begins with that of the largest one that this side has accepted.
    async fn follow(&self, checkpoint: &SignedCheckpoint) -> Result<(), ClientError> {
        let Some(newest) = self.documents.newest() else { return Ok(()) };
        let (old, new) = (newest.checkpoint(), checkpoint.checkpoint());
        // Equal logs have been compared, and an empty one begins every other.
        if old.size == 0 || old.size >= new.size {
            return Ok(());
        }
        let url = self.at(&format!("/consistency?old={}&new={}", old.size, new.size));
        let (proof, hasher) = (self.hashes(&url).await?, Hasher(self.provider.sha256));
        let follows = hasher.verify_consistency((old.size, &old.root), (new.size, &new.root), &proof);
        follows.map_err(|error| {
            // Both together are evidence, if the registry cannot explain them.
            tracing::error!(old = %newest, new = %checkpoint, "no proof that a registry's log continues");
            ClientError::Inconsistent { url, old: old.size, new: new.size, error }
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

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
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

    /// Waits for several requests as long as for one.
    async fn in_time<T>(
        &self,
        answered: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        let deadline = self.https.deadline();
        let late = |_| Err(ClientError::Late { url: self.url.clone(), seconds: deadline.as_secs() });
        timeout(deadline, answered).await.unwrap_or_else(late)
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
