//! The answers to requests.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64ct::{Base64, Encoding};
use dunlin_identity::Did;
use dunlin_identity::method::dunlin::{MAX_OPERATION, Operation, OperationError, OperationKind};
use dunlin_identity::transparency::{NodeHash, Staple};
use dunlin_tokio::http::response;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_SECURITY_POLICY, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::body::Content;
use super::hosts::Hosts;
use super::{BODY_TIME, Source, page};
use crate::operator::error::RegistryError;
use crate::operator::history::{self, Entry};
use crate::operator::reader::{Reader, Resolution, Snapshot};
use crate::operator::room::Room;
use crate::operator::tile::{Tile, TileKind};

/// The description of the interface.
const OPENAPI: &str = include_str!("openapi.json");

const JSON: &str = "application/json";
const BYTES: &str = "application/octet-stream";
pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// Answers that change.
pub(super) const FRESH: &str = "no-cache";

/// Tiles never change (C2SP tlog-tiles).
const IMMUTABLE: &str = "public, max-age=31536000, immutable";

/// How many bytes on the disk an operation takes at most for each byte of its own: the entry, the document,
/// rows and pages.
const DISK_SHARE: u64 = 3;

/// When a client may ask a full registry again.
const FULL_TIME: Duration = Duration::from_secs(3600);

type Answer = Response<Content>;

/// Answers a request of this host.
pub(super) async fn answer(
    registry: &Arc<impl Source>,
    hosts: &Arc<Hosts>,
    from: IpAddr,
    request: Request<Incoming>,
) -> Answer {
    let result = if request.uri().path() == "/operations" {
        match *request.method() {
            Method::POST => submit(registry, hosts, from, request).await,
            _ => Err(Refusal::method("POST")),
        }
    } else if matches!(*request.method(), Method::GET | Method::HEAD) {
        get(&**registry, request.uri().path(), request.uri().query().unwrap_or_default())
    } else {
        Err(Refusal::method("GET, HEAD"))
    };
    result.unwrap_or_else(Refusal::into_answer)
}

/// A refused request.
struct Refusal {
    status: StatusCode,
    why: String,
    header: Option<(hyper::header::HeaderName, HeaderValue)>,
}

impl Refusal {
    fn new(status: StatusCode, why: impl ToString) -> Self {
        Self { status, why: why.to_string(), header: None }
    }

    fn method(allowed: &'static str) -> Self {
        let header = Some((ALLOW, HeaderValue::from_static(allowed)));
        Self { header, ..Self::new(StatusCode::METHOD_NOT_ALLOWED, format!("use {allowed}")) }
    }

    /// The client may repeat the request after this time.
    fn later(status: StatusCode, why: impl ToString, wait: Duration) -> Self {
        let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
        Self { header: Some((RETRY_AFTER, seconds.into())), ..Self::new(status, why) }
    }

    fn not_found(why: impl ToString) -> Self {
        Self::new(StatusCode::NOT_FOUND, why)
    }

    fn into_answer(self) -> Answer {
        let mut answer = with(self.status, JSON, FRESH, json!({"error": self.why}).to_string());
        if let Some((name, value)) = self.header {
            answer.headers_mut().insert(name, value);
        }
        answer
    }
}

impl From<RegistryError> for Refusal {
    fn from(error: RegistryError) -> Self {
        match &error {
            // Another process has written first: this one has read the result, and goes on.
            RegistryError::Busy | RegistryError::InUse(_) | RegistryError::Node(_) => {
                Self::later(StatusCode::SERVICE_UNAVAILABLE, error, Duration::from_secs(1))
            }
            RegistryError::Full => Self::later(StatusCode::SERVICE_UNAVAILABLE, error, FULL_TIME),
            // Another operation came first, or the DID has ended.
            RegistryError::OtherSignature(_)
            | RegistryError::Operation(
                OperationError::Sequence { .. }
                | OperationError::Previous
                | OperationError::Creation
                | OperationError::Deactivated,
            ) => Self::new(StatusCode::CONFLICT, error),
            RegistryError::Operation(_) | RegistryError::Map(_) | RegistryError::Merkle(_) => {
                Self::new(StatusCode::BAD_REQUEST, error)
            }
            _ => {
                tracing::error!(%error, "the registry cannot answer");
                Self::new(StatusCode::INTERNAL_SERVER_ERROR, "the registry fails; its log says why")
            }
        }
    }
}

fn with(status: StatusCode, form: &'static str, cache: &'static str, body: impl Into<Bytes>) -> Answer {
    let body: Bytes = body.into();
    response(status, form, cache, body.into())
}

fn ok(form: &'static str, cache: &'static str, body: impl Into<Bytes>) -> Result<Answer, Refusal> {
    Ok(with(StatusCode::OK, form, cache, body))
}

/// Appends the operation in the body. The answer comes when the operation is on the disk.
async fn submit(
    registry: &Arc<impl Source>,
    hosts: &Arc<Hosts>,
    from: IpAddr,
    request: Request<Incoming>,
) -> Result<Answer, Refusal> {
    let too_many = |why: &str, wait| Refusal::later(StatusCode::TOO_MANY_REQUESTS, why, wait);
    let of_host = hosts.write(from, Instant::now());
    of_host.map_err(|wait| too_many("too many operations from this address", wait))?;
    let body = timeout(BODY_TIME, Limited::new(request.into_body(), MAX_OPERATION).collect()).await;
    let body =
        body.map_err(|_| Refusal::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"))?;
    let body = body.map_err(|error| {
        let too_long = error.is::<LengthLimitError>();
        let status = if too_long { StatusCode::PAYLOAD_TOO_LARGE } else { StatusCode::BAD_REQUEST };
        Refusal::new(status, format!("an operation has at most {MAX_OPERATION} bytes: {error}"))
    })?;
    let operation = Operation::read(&body.to_bytes()).map_err(RegistryError::from)?;
    let kind = operation.kind();
    if kind == OperationKind::Create && !hosts.limits().admission.admits(operation.did()) {
        let why = "the registry creates only DIDs on its operator's list: ask the operator to add this one";
        return Err(Refusal::new(StatusCode::FORBIDDEN, why));
    }
    // A log is for ever, so strangers could fill any disk. The space reserved for existing DIDs stays theirs.
    let reserved = registry.snapshot().room().saturating_mul(DISK_SHARE);
    let room = if registry.size_on_disk()?.saturating_add(reserved) >= hosts.limits().database {
        Room::Reserved
    } else {
        Room::Free
    };
    if kind == OperationKind::Create && room == Room::Reserved {
        return Err(RegistryError::Full.into());
    }
    let is_own = kind == OperationKind::Deactivate || registry.is_own(&operation, registry.now_s())?;
    let counts = !is_own;
    if counts {
        let of_all = hosts.append(Instant::now());
        of_all.map_err(|wait| too_many("too many operations from all addresses together", wait))?;
    }
    let (answer, answered) = oneshot::channel();
    // The client may have gone when the writer answers, so what its operation counts is settled there.
    let writer_hosts = Arc::clone(hosts);
    let answer = Box::new(move |result: Result<_, _>| {
        if counts && result.is_err() {
            writer_hosts.refused();
        }
        drop(answer.send(result));
    });
    let submitted = registry.submit_within(operation, room, answer);
    if counts && submitted.is_err() {
        hosts.refused();
    }
    submitted?;
    let receipt = answered.await.unwrap_or(Err(RegistryError::Closed))?;
    let body = json!({"number": receipt.number, "checkpoint": registry.snapshot().text()});
    ok(JSON, FRESH, body.to_string())
}

/// Answers from the database. The reads are short and never wait for the writer, so they need no thread of
/// their own.
fn get(registry: &impl Source, path: &str, query: &str) -> Result<Answer, Refusal> {
    match path {
        "/" => Ok(html(page::log(registry, optional_number(query, "before")?)?)),
        "/openapi.json" => ok(JSON, FRESH, OPENAPI),
        "/checkpoint" => {
            let shown = registry.shown();
            proven(&shown)?;
            ok(TEXT, FRESH, shown.text().to_owned())
        }
        "/consistency" => {
            let [old, new] = numbers(query, ["old", "new"])?;
            proof(&registry.consistency(old, new)?)
        }
        "/inclusion" => {
            let [number, size] = numbers(query, ["number", "size"])?;
            proof(&registry.inclusion(number, size)?)
        }
        _ => {
            if let Some(did) = path.strip_prefix("/dids/") {
                of_did(registry, did, query)
            } else if let Ok(tile) = path.strip_prefix("/").unwrap_or(path).parse::<Tile>() {
                let missing = || Refusal::not_found("the log is too small for this tile");
                let content = match tile.kind {
                    TileKind::Entries => registry.bundle(&tile)?.map(Content::Bundle),
                    TileKind::Hashes(_) => registry.tile(&tile)?.map(|tile| Bytes::from(tile).into()),
                };
                Ok(response(StatusCode::OK, BYTES, IMMUTABLE, content.ok_or_else(missing)?))
            } else {
                Err(Refusal::not_found("there is no such path: see /openapi.json"))
            }
        }
    }
}

/// Refuses to show a state without a signature: clients would refuse it.
fn proven(shown: &Snapshot) -> Result<(), Refusal> {
    let unproven = || RegistryError::Node("it has not proven the state yet".to_owned());
    if shown.is_signed() { Ok(()) } else { Err(unproven().into()) }
}

fn proof(hashes: &[NodeHash]) -> Result<Answer, Refusal> {
    let hashes: Vec<_> = hashes.iter().map(|hash| Base64::encode_string(hash)).collect();
    ok(JSON, FRESH, json!({"hashes": hashes}).to_string())
}

/// Reads two numbers from a query that has nothing else.
fn numbers(query: &str, names: [&str; 2]) -> Result<[u64; 2], Refusal> {
    let [first, second] = names;
    let wrong = || Refusal::new(StatusCode::BAD_REQUEST, format!("write ?{first}=NUMBER&{second}=NUMBER"));
    let parts: Vec<_> = query.split('&').filter_map(|part| part.split_once('=')).collect();
    if query.split('&').count() != names.len() {
        return Err(wrong());
    }
    let number = |name: &str| {
        let (_, value) = parts.iter().find(|(found, _)| *found == name).ok_or_else(wrong)?;
        value.parse().map_err(|_| wrong())
    };
    Ok([number(first)?, number(second)?])
}

/// Reads a number from a query that has nothing else; `None` without a query.
fn optional_number(query: &str, name: &str) -> Result<Option<u64>, Refusal> {
    let wrong = || Refusal::new(StatusCode::BAD_REQUEST, format!("write ?{name}=NUMBER"));
    let value = query.strip_prefix(name).and_then(|value| value.strip_prefix('='));
    if query.is_empty() { Ok(None) } else { value.ok_or_else(wrong)?.parse().map(Some).map_err(|_| wrong()) }
}

/// A page is text from strangers, escaped. It loads nothing and runs nothing.
fn html(page: String) -> Answer {
    let mut answer = with(StatusCode::OK, "text/html; charset=utf-8", FRESH, page);
    let policy = HeaderValue::from_static(
        "default-src 'none'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'",
    );
    answer.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    answer
}

/// `DID`, or with `/staple`, `/history` or `/page` after it. A DID has no slash.
fn of_did(registry: &Reader, path: &str, query: &str) -> Result<Answer, Refusal> {
    let (did, part) = path.split_once('/').map_or((path, None), |(did, part)| (did, Some(part)));
    // RFC 3986 §2.1: clients may escape the colons.
    let did = did.replace("%3A", ":").replace("%3a", ":");
    let did: Did = did.parse().map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error))?;
    let resolution = registry.resolve(&did)?;
    proven(&resolution.snapshot)?;
    let missing = || Refusal::not_found("the registry does not have the DID");
    match part {
        None => {
            let status = if resolution.state.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
            Ok(with(status, JSON, FRESH, resolution_text(&did, &resolution)))
        }
        Some("staple") => staple(&resolution.staple().ok_or_else(missing)?),
        Some("history") => {
            let first = optional_number(query, "from")?.unwrap_or_default();
            let (leaf, _) = resolution.state.ok_or_else(missing)?;
            ok(JSON, FRESH, history_text(&did, leaf.sequence, first, &registry.history(&did, first)?))
        }
        Some("page") => {
            let first = optional_number(query, "from")?.unwrap_or_default();
            page::did(registry, &did, &resolution, first)?.map(html).ok_or_else(missing)
        }
        Some(_) => Err(Refusal::not_found("there is no such path: see /openapi.json")),
    }
}

fn staple(staple: &Staple) -> Result<Answer, Refusal> {
    // A checkpoint with many cosignatures can be too long beside a document. Status 404 would say that there
    // is no DID.
    let staple = staple.write();
    let staple = staple.map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error))?;
    ok(BYTES, FRESH, staple)
}

/// The operations go in as the texts that were hashed.
fn history_text(did: &Did, sequence: u64, first: u64, entries: &[Entry]) -> String {
    let entry =
        |Entry { number, operation }: &Entry| format!(r#"{{"number":{number},"operation":{operation}}}"#);
    let operations = entries.iter().map(entry).collect::<Vec<_>>().join(",");
    let did = json!(did.as_str());
    let next = json!(history::after(first, entries, sequence));
    format!(r#"{{"did":{did},"operations":[{operations}],"next":{next}}}"#)
}

/// The document goes in as the text that was hashed.
fn resolution_text(did: &Did, resolution: &Resolution) -> String {
    let (state, document) = match &resolution.state {
        Some((leaf, document)) => {
            (json!({"sequence": leaf.sequence, "active": leaf.active}), document.as_str())
        }
        None => (json!(null), "null"),
    };
    let [did, checkpoint, proof] =
        [did.as_str(), resolution.snapshot.text(), &Base64::encode_string(&resolution.proof.write())]
            .map(|text| json!(text));
    format!(
        r#"{{"did":{did},"state":{state},"document":{document},"checkpoint":{checkpoint},"proof":{proof}}}"#
    )
}

#[cfg(test)]
mod tests {
    use dunlin_identity::transparency::Chain;

    use super::*;
    use crate::operator::replica::Replica;

    #[test]
    fn a_replica_shows_no_state_without_its_proof() {
        let place = tempfile::tempdir().unwrap();
        let provider = Arc::new(dunlin_awslc::provider());
        let path = place.path().join("registry");
        let chain = Chain::new(&provider, "registry.example/1", "a");
        let chain = chain.unwrap();
        Replica::create(&path, &provider, &chain).unwrap();
        let replica = Replica::open(&path, provider, chain).unwrap();
        for path in ["/checkpoint", "/dids/did:dunlin:a", "/dids/did:dunlin:a/staple"] {
            let refused = get(&replica, path, "").err().unwrap();
            assert_eq!((refused.status, refused.header.is_some()), (StatusCode::SERVICE_UNAVAILABLE, true));
        }
    }
}
