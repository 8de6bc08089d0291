//! The witness interface of a watch (C2SP tlog-witness).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64ct::{Base64, Encoding};
use dunlin_identity::transparency::{MAX_NOTE, MAX_PROOF_HASHES, NodeHash};
use dunlin_tokio::http::response;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::RETRY_AFTER;
use hyper::{Method, Request, Response, StatusCode};
use tokio::time::timeout;

use super::api::{FRESH, TEXT};
use super::body::Content;
use super::hosts::Hosts;
use super::{BODY_TIME, Service};
use crate::operator::watch::{Reply, Watch};

/// The longest request, in bytes: a note, a size, and the hashes of a proof.
const MAX_REQUEST: usize = MAX_NOTE + 48 * MAX_PROOF_HASHES + 32;

/// When the registry may ask again.
const LATER: Duration = Duration::from_secs(1);

/// The content type of the size of a log (C2SP tlog-witness).
const SIZE: &str = "text/x.tlog.size";

/// The answers of a watch.
pub(super) struct Interface(pub(super) Arc<Watch>);

impl Service for Interface {
    async fn answer(
        &self,
        hosts: &Arc<Hosts>,
        from: IpAddr,
        request: Request<Incoming>,
    ) -> Response<Content> {
        if request.uri().path() != "/add-checkpoint" {
            return answer(StatusCode::NOT_FOUND, TEXT, "ask for /add-checkpoint\n");
        }
        if *request.method() != Method::POST {
            return answer(StatusCode::METHOD_NOT_ALLOWED, TEXT, "use POST\n");
        }
        if let Err(wait) = hosts.write(from, Instant::now()) {
            return later(StatusCode::TOO_MANY_REQUESTS, "too many requests from this address\n", wait);
        }
        let body = timeout(BODY_TIME, Limited::new(request.into_body(), MAX_REQUEST).collect()).await;
        let Ok(Ok(body)) = body else {
            return answer(
                StatusCode::BAD_REQUEST,
                TEXT,
                "the body is too long, or did not arrive in time\n",
            );
        };
        let body = body.to_bytes();
        let Some((old, proof, note)) = str::from_utf8(&body).ok().and_then(read) else {
            return answer(
                StatusCode::BAD_REQUEST,
                TEXT,
                "write \"old SIZE\", a proof, an empty line, a checkpoint\n",
            );
        };
        let signed = match self.0.signed(note.as_bytes()) {
            Ok(signed) => signed,
            Err(error) => return answer(StatusCode::FORBIDDEN, TEXT, &format!("{error}\n")),
        };
        if old > signed.checkpoint().size {
            return answer(
                StatusCode::BAD_REQUEST,
                TEXT,
                "the old log is larger than that of the checkpoint\n",
            );
        }
        match self.0.cosign(old, proof, signed).await {
            Reply::Cosigned(line) => answer(StatusCode::OK, TEXT, &line),
            Reply::Verified(size) => answer(StatusCode::CONFLICT, SIZE, &format!("{size}\n")),
            Reply::Unproven => answer(StatusCode::UNPROCESSABLE_ENTITY, TEXT, "the proof is wrong\n"),
            Reply::False(error) => answer(StatusCode::UNPROCESSABLE_ENTITY, TEXT, &format!("{error}\n")),
            Reply::Later => later(StatusCode::SERVICE_UNAVAILABLE, "the log is being verified\n", LATER),
        }
    }

    fn ended(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }
}

/// The size of the log that the sender takes as known, the proof, and the note.
fn read(body: &str) -> Option<(u64, Vec<NodeHash>, &str)> {
    let (head, note) = body.split_once("\n\n")?;
    let mut lines = head.lines();
    let old = lines.next()?.strip_prefix("old ")?.parse().ok()?;
    let hash = |line: &str| NodeHash::try_from(Base64::decode_vec(line).ok()?).ok();
    let proof: Vec<_> = lines.map(hash).collect::<Option<_>>()?;
    (proof.len() <= MAX_PROOF_HASHES).then_some((old, proof, note))
}

fn answer(status: StatusCode, form: &'static str, text: &str) -> Response<Content> {
    response(status, form, FRESH, Content::from(Bytes::from(text.to_owned())))
}

fn later(status: StatusCode, text: &str, wait: Duration) -> Response<Content> {
    let mut answer = answer(status, TEXT, text);
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    answer.headers_mut().insert(RETRY_AFTER, seconds.into());
    answer
}
