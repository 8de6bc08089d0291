//! A server of HTTP/1.1, over TCP or over TLS, for the few requests that programs answer beside their own
//! protocol. The caller accepts its clients, and limits them ([`crate::places`]).

use std::convert::Infallible;
use std::error::Error;
use std::pin::pin;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::timeout;

/// The longest header of a request, in bytes. hyper's buffer holds 8 KiB at least.
const MAX_HEADER: usize = 8192;

/// The most fields in the header of a request.
const MAX_FIELDS: usize = 256;

/// How a server treats a client.
#[derive(Clone, Copy, Debug)]
pub struct HttpRules {
    /// The longest time before the first request, and between two requests. Clients that stay silent leave
    /// their places, and a response that its client does not read ends, too.
    pub idle_time: Duration,
    /// Whether a client may send several requests over a connection.
    pub keeps_alive: bool,
}

/// Serves a client until it is done or stays silent. Once `stop` is ready, the server only completes the
/// request in progress.
pub async fn serve<A, B>(
    client: impl AsyncRead + AsyncWrite + Unpin,
    rules: HttpRules,
    answer: impl Fn(Request<Incoming>) -> A,
    stop: impl Future<Output = ()>,
) where
    A: Future<Output = Response<B>>,
    B: Body<Error: Into<Box<dyn Error + Send + Sync>>> + 'static,
{
    let requested = Notify::new();
    let service = service_fn(|request| {
        requested.notify_one();
        let answer = answer(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let mut http = http1::Builder::new();
    let http = http.timer(TokioTimer::new()).header_read_timeout(rules.idle_time);
    let http = http.max_buf_size(MAX_HEADER).max_headers(MAX_FIELDS).keep_alive(rules.keeps_alive);
    let mut served = pin!(http.serve_connection(TokioIo::new(client), service));
    let mut stop = pin!(stop);
    let mut is_stopping = false;
    loop {
        tokio::select! {
            // A client that breaks the protocol gets hyper's answer; nothing else is to do.
            _ = &mut served => return,
            () = &mut stop, if !is_stopping => {
                is_stopping = true;
                served.as_mut().graceful_shutdown();
            }
            request = timeout(rules.idle_time, requested.notified()) => if request.is_err() { return },
        }
    }
}

/// A response with content of the type `form`, for which browsers take it. `cache` says who may keep it
/// (RFC 9111 §5.2).
pub fn response<B>(status: StatusCode, form: &'static str, cache: &'static str, content: B) -> Response<B> {
    let mut response = Response::new(content);
    *response.status_mut() = status;
    for (name, value) in [(CONTENT_TYPE, form), (CACHE_CONTROL, cache), (X_CONTENT_TYPE_OPTIONS, "nosniff")] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
