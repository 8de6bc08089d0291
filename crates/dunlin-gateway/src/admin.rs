//! The administrative listener: `/metrics` for Prometheus, `/status` for people and health checks.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};

use crate::gateway::Shared;
use crate::listener::{ACCEPT_PAUSE, Phase, reached};

/// The simultaneous connections, so that a broken client cannot take all file descriptors.
const MAX_CONNECTIONS: usize = 64;
/// How long a client may take for the header of a request.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// How long a connection may last.
const CONNECTION_TIME: Duration = Duration::from_secs(600);

/// Answers clients until the gateway ends or `removed` becomes true. Status stays available while the gateway drains.
pub(crate) async fn run(shared: Arc<Shared>, socket: TcpListener, mut removed: watch::Receiver<bool>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let phases = shared.phase.subscribe();
    loop {
        let accept = async {
            // The semaphore is never closed.
            let place = places.clone().acquire_owned().await;
            (place, socket.accept().await)
        };
        let (place, accepted) = tokio::select! {
            accepted = accept => accepted,
            () = reached(&phases, Phase::Ending) => return,
            _ = removed.wait_for(|removed| *removed) => return,
        };
        let Ok((tcp, _)) = accepted else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let shared = shared.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let response = answer(&shared, &request);
                async { Ok::<_, Infallible>(response) }
            });
            let mut http = http1::Builder::new();
            let http = http.timer(TokioTimer::new()).header_read_timeout(HEADER_TIME);
            // A client that breaks the protocol gets hyper's answer; nothing else is to do.
            let _ = timeout(CONNECTION_TIME, http.serve_connection(TokioIo::new(tcp), service)).await;
            drop(place);
        });
    }
}

/// The content of `/status`.
#[derive(Serialize)]
struct Status<'a> {
    /// `running`, `draining` or `ending`.
    phase: &'static str,
    version: &'static str,
    /// The open connections of all listeners.
    connections: usize,
    listeners: Vec<ListenerStatus<'a>>,
    reload_succeeded: bool,
}

#[derive(Serialize)]
struct ListenerStatus<'a> {
    name: &'a str,
    address: SocketAddr,
}

fn answer(shared: &Shared, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match request.uri().path() {
        "/metrics" => {
            let form = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            with_type(StatusCode::OK, form, shared.metrics.text())
        }
        "/status" => status(shared),
        _ => plain(StatusCode::NOT_FOUND, "there are /metrics and /status\n"),
    }
}

fn status(shared: &Shared) -> Response<Full<Bytes>> {
    let phase = *shared.phase.borrow();
    let addresses = shared.addresses.load();
    let status = Status {
        phase: phase.name(),
        version: env!("CARGO_PKG_VERSION"),
        connections: shared.open_connections(),
        listeners: addresses
            .iter()
            .map(|(name, address)| ListenerStatus { name, address: *address })
            .collect(),
        reload_succeeded: shared.metrics.has_reloaded(),
    };
    // A gateway that drains takes no clients, so a load balancer must not send it any.
    let code = if phase == Phase::Running { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    match serde_json::to_string_pretty(&status) {
        Ok(text) => with_type(code, "application/json", text + "\n"),
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

fn plain(code: StatusCode, text: &str) -> Response<Full<Bytes>> {
    with_type(code, "text/plain; charset=utf-8", text.to_owned())
}

fn with_type(code: StatusCode, form: &'static str, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(form));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
