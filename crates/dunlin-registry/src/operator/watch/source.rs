//! A watch's reads from its registry over HTTPS. The watch believes no answer before it has compared it with
//! a checkpoint.

use std::fmt;
use std::time::Duration;

use base64ct::{Base64, Encoding};
use dunlin_identity::Did;
use dunlin_identity::encoding::json::{self, Value};
use dunlin_identity::transparency::StateProof;
use dunlin_tokio::TlsConnector;
use dunlin_tokio::https::{self, HttpsClient, HttpsError};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::{Request, StatusCode};

use super::WatchError;
use crate::operator::tile::{TILE_WIDTH, Tile, TileKind};

/// How long an answer may take: a full entry bundle can have 5 MB, and a false one three times as much.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// The longest answer, in bytes: a full bundle of the longest entries that bundles can have. Honest ones have
/// 20 KiB at most, and a watch must name those that are not.
const MAX_ANSWER: usize = TILE_WIDTH as usize * (2 + u16::MAX as usize);

/// The longest answer about a DID, in bytes: a document of 16 KiB as JSON in JSON, a checkpoint and a proof.
const MAX_STATE: usize = 64 * 1024;

/// A registry's web server.
pub struct Source {
    https: HttpsClient,
    url: String,
}

impl Source {
    /// The registry whose paths are below `url`. The connector decides whom to trust as its TLS server.
    ///
    /// # Errors
    /// [`HttpsError::Url`]: also plain HTTP is refused.
    pub fn new(url: &str, connector: TlsConnector) -> Result<Self, HttpsError> {
        if https::url(url)?.query().is_some() {
            return Err(HttpsError::Url(url.to_owned()));
        }
        let https = HttpsClient::new(connector).with_deadline(ANSWER_TIME).with_max_content(MAX_ANSWER);
        Ok(Self { https, url: url.trim_end_matches('/').to_owned() })
    }

    async fn get(&self, path: &str) -> Result<Bytes, WatchError> {
        let url = format!("{}/{path}", self.url);
        let mut request = Request::new(Full::<Bytes>::default());
        *request.uri_mut() = https::url(&url)?;
        let answer = self.https.send(request).await?;
        match answer.status() {
            StatusCode::OK => Ok(answer.into_body()),
            status => Err(WatchError::Refused { url, status: status.as_u16() }),
        }
    }

    /// The newest checkpoint.
    pub(super) async fn checkpoint(&self) -> Result<Bytes, WatchError> {
        self.get("checkpoint").await
    }

    /// The entries of the bundle that has this entry, in a log of this size.
    pub(super) async fn bundle_at(&self, entry: u64, size: u64) -> Result<Vec<Vec<u8>>, WatchError> {
        let width = u64::from(TILE_WIDTH);
        let number = entry / width;
        let count = u16::try_from((size - number * width).min(width)).unwrap_or(TILE_WIDTH);
        self.bundle(number, count).await
    }

    /// The entries of a bundle (C2SP tlog-tiles).
    async fn bundle(&self, number: u64, width: u16) -> Result<Vec<Vec<u8>>, WatchError> {
        let malformed = || WatchError::Malformed { url: format!("{}: entries", self.url) };
        let tile = Tile::new(TileKind::Entries, number, width).ok_or_else(malformed)?;
        let bundle = self.get(&tile.to_string()).await?;
        let mut rest = bundle.as_ref();
        let mut entries = Vec::new();
        while let Some((length, after)) = rest.split_first_chunk() {
            // Empty entries take more memory than their bytes.
            if entries.len() == usize::from(width) {
                return Err(malformed());
            }
            let length = u16::from_be_bytes(*length).into();
            let (entry, after) = after.split_at_checked(length).ok_or_else(malformed)?;
            entries.push(entry.to_vec());
            rest = after;
        }
        let is_whole = rest.is_empty() && entries.len() == usize::from(width);
        if is_whole { Ok(entries) } else { Err(malformed()) }
    }

    /// The registry's answer about a DID, which the caller verifies: the checkpoint, the document in
    /// canonical form, and the proof.
    pub(super) async fn state(&self, did: &Did) -> Option<(Vec<u8>, String, StateProof)> {
        let answer = self.get(&format!("dids/{did}")).await.ok()?;
        let answer = json::read_bounded(&answer, MAX_STATE).ok()?;
        let text = |name: &str| answer.get(name).and_then(Value::as_str);
        let proof = StateProof::read(&Base64::decode_vec(text("proof")?).ok()?).ok()?;
        let document = json::canonical(answer.get("document")?).ok()?;
        Some((text("checkpoint")?.as_bytes().to_vec(), document, proof))
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").field("url", &self.url).finish_non_exhaustive()
    }
}
