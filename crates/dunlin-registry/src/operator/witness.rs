//! Asks witnesses to cosign the registry's checkpoints (C2SP tlog-witness, `add-checkpoint`).
//!
//! A witness checks that each log that it sees begins with the one that it has seen before. A verifier that
//! demands the signatures of witnesses thus notices if the registry shows others another history.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dunlin_tokio::TlsConnector;
use dunlin_tokio::https::{self, HttpsClient, HttpsError};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode, Uri};
use tokio::time::{sleep, timeout};

use crate::operator::error::RegistryError;
use crate::operator::reader::Snapshot;
use crate::operator::registry::Registry;

/// How long a witness may take to answer.
const ANSWER_TIME: Duration = Duration::from_secs(10);

/// The longest answer of a witness, in bytes: more than all signatures of a checkpoint take.
const MAX_ANSWER: usize = 16 * 1024;

/// Why a witness has not cosigned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WitnessError {
    /// The URL is not `https://` with a host.
    #[error("{0}: write the URL of a witness as https://HOST[:PORT][/PATH]")]
    Url(String),
    /// The witness cannot be reached, or does not speak HTTP.
    #[error("{0}")]
    Connection(#[from] HttpsError),
    /// The witness has not answered in time.
    #[error("no answer within {} s", ANSWER_TIME.as_secs())]
    Silent,
    /// The witness refuses the checkpoint; the status.
    #[error("the witness refuses the checkpoint with status {0}")]
    Refused(u16),
    /// The witness says that it has seen a log of this size, and the registry's is smaller.
    #[error(
        "the witness has seen {0} entries, more than the log has: find out whether another registry has the same key"
    )]
    Ahead(u64),
    /// The answer is not as C2SP tlog-witness says.
    #[error("the answer is malformed")]
    Malformed,
    /// The registry has no proof for the witness.
    #[error("{0}")]
    Registry(#[from] RegistryError),
}

/// A witness, and the newest log that it has seen.
pub struct Witness {
    https: HttpsClient,
    url: Uri,
    /// The size of the newest log that it has cosigned, as far as this side knows.
    seen: u64,
}

impl Witness {
    /// The witness whose submission prefix is `url`. The connector decides whom to trust as its TLS server.
    ///
    /// # Errors
    /// [`WitnessError::Url`].
    pub fn new(url: &str, connector: TlsConnector) -> Result<Self, WitnessError> {
        let added = format!("{}/add-checkpoint", url.trim_end_matches('/'));
        // A query has no place before the path.
        let added = https::url(&added).ok().filter(|added| added.query().is_none());
        let url = added.ok_or_else(|| WitnessError::Url(url.to_owned()))?;
        let https = HttpsClient::new(connector).with_deadline(ANSWER_TIME).with_max_content(MAX_ANSWER);
        Ok(Self { https, url, seen: 0 })
    }

    /// Asks the witness to cosign a state. The answer has its signature lines, for [`Registry::witnessed`].
    ///
    /// # Errors
    /// [`WitnessError`].
    pub async fn ask(&mut self, registry: &Registry, snapshot: &Snapshot) -> Result<String, WitnessError> {
        let asked = async {
            // The witness may have seen another state than this side remembers: it says so once.
            let (status, body) = self.post(registry.witness_request(snapshot, self.seen)?).await?;
            if status != StatusCode::CONFLICT {
                return Ok((status, body));
            }
            let size = body.strip_suffix('\n').and_then(|size| size.parse().ok());
            let size = size.ok_or(WitnessError::Malformed)?;
            // A larger log than the registry's: it is another history, or the witness errs. There is no
            // proof, and nothing to remember.
            if size > snapshot.size() {
                return Err(WitnessError::Ahead(size));
            }
            self.seen = size;
            self.post(registry.witness_request(snapshot, self.seen)?).await
        };
        let (status, body) = timeout(ANSWER_TIME, asked).await.map_err(|_| WitnessError::Silent)??;
        if status != StatusCode::OK {
            return Err(WitnessError::Refused(status.as_u16()));
        }
        self.seen = snapshot.size();
        Ok(body)
    }

    async fn post(&self, body: String) -> Result<(StatusCode, String), WitnessError> {
        let mut request = Request::new(Full::<Bytes>::from(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.url.clone();
        let (parts, body) = self.https.send(request).await?.into_parts();
        let body = String::from_utf8(body.into()).map_err(|_| WitnessError::Malformed)?;
        Ok((parts.status, body))
    }
}

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Witness").field("url", &self.url).field("seen", &self.seen).finish_non_exhaustive()
    }
}

/// Asks all witnesses about the newest state, one after the other, and shows the state if enough have
/// cosigned it. Returns whether the registry shows it now.
///
/// # Errors
/// As [`Registry::witnessed`]. Witnesses that fail are logged.
pub async fn ask_all(registry: &Registry, witnesses: &mut [Witness]) -> Result<bool, RegistryError> {
    let snapshot = registry.snapshot();
    let mut answers = Vec::new();
    for witness in witnesses {
        match witness.ask(registry, &snapshot).await {
            Ok(answer) => answers.push(answer),
            Err(error) => tracing::warn!(witness = %witness.url, %error, "a witness has not cosigned"),
        }
    }
    registry.witnessed(&snapshot, answers.iter().map(String::as_str))
}

/// Asks all witnesses whenever there is a new checkpoint, but not more often than each `period`. It never
/// ends: drop it when the server stops.
///
/// # Errors
/// As [`Registry::witnessed`].
pub async fn follow(
    registry: Arc<Registry>,
    mut witnesses: Vec<Witness>,
    period: Duration,
) -> Result<std::convert::Infallible, RegistryError> {
    let mut latest: Option<Arc<Snapshot>> = None;
    loop {
        let newest = registry.snapshot();
        if latest.as_ref().is_none_or(|latest| latest.text() != newest.text())
            && ask_all(&registry, &mut witnesses).await?
        {
            latest = Some(newest);
        }
        sleep(period).await;
    }
}
