//! The administrative listener: `/metrics` for Prometheus, `/status` for health checks and programs, `/` for people.

use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::uri::Authority;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{sleep, timeout};

use crate::dashboard;
use crate::listener::{ACCEPT_PAUSE, Phase, reached};
use crate::metrics::Role;
use crate::service::Shared;
use crate::status;

/// The simultaneous connections, so that a broken client cannot take all file descriptors.
const MAX_CONNECTIONS: usize = 64;
/// How long a connection may last after it was accepted, or after its latest request. Clients that stay silent leave their places soon,
/// and a response that its client does not read ends, too.
const IDLE_TIME: Duration = Duration::from_secs(5);

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
            serve(&shared, tcp).await;
            drop(place);
        });
    }
}

/// Serves a client until it is done or stays silent.
async fn serve(shared: &Shared, tcp: TcpStream) {
    let requested = Notify::new();
    let service = service_fn(|request| {
        requested.notify_one();
        let response = answer(shared, &request);
        async { Ok::<_, Infallible>(response) }
    });
    let mut http = http1::Builder::new();
    let http = http.timer(TokioTimer::new()).header_read_timeout(IDLE_TIME);
    let mut served = pin!(http.serve_connection(TokioIo::new(tcp), service));
    loop {
        tokio::select! {
            // A client that breaks the protocol gets hyper's answer; nothing else is to do.
            _ = &mut served => return,
            request = timeout(IDLE_TIME, requested.notified()) => if request.is_err() { return },
        }
    }
}

fn answer(shared: &Shared, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if !is_own_host(shared, request) {
        return plain(
            StatusCode::MISDIRECTED_REQUEST,
            "Host names another machine; ask for localhost or an IP address, or add the name to hosts in [admin]\n",
        );
    }
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
        // The dashboard shows the metrics of gateways.
        "/" if shared.metrics.role == Role::Gateway => page(),
        _ => plain(
            StatusCode::NOT_FOUND,
            match shared.metrics.role {
                Role::Gateway => "there are /, /metrics and /status\n",
                Role::Tunnel => "there are /metrics and /status\n",
            },
        ),
    }
}

/// Whether the request is for this machine. A web page of another site can make a browser ask here under a name of its own
/// (DNS rebinding); it cannot do so under an IP address or `localhost`. HTTP/1.0 allows requests without `Host`, which no browser sends.
fn is_own_host(shared: &Shared, request: &Request<Incoming>) -> bool {
    // RFC 9112 §3.2.2: the authority of an absolute target replaces Host.
    let authority = match (request.uri().authority(), request.headers().get(HOST)) {
        (Some(authority), _) => Some(authority.clone()),
        (None, Some(host)) => match Authority::try_from(host.as_bytes()) {
            Ok(authority) => Some(authority),
            Err(_) => return false,
        },
        (None, None) => None,
    };
    let Some(authority) = authority else { return request.version() == Version::HTTP_10 };
    let host = authority.host().to_ascii_lowercase();
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(&host);
    host == "localhost" || address.parse::<IpAddr>().is_ok() || shared.admin_hosts.load().contains(&host)
}

fn status(shared: &Shared) -> Response<Full<Bytes>> {
    // A gateway that drains takes no clients, so a load balancer must not send it any.
    let is_running = *shared.phase.borrow() == Phase::Running;
    let code = if is_running { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    match status::json(shared) {
        Ok(text) => with_type(code, "application/json", text + "\n"),
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// The dashboard.
fn page() -> Response<Full<Bytes>> {
    let Ok(policy) = HeaderValue::from_str(&dashboard::POLICY) else {
        // Without its policy, the page stays away.
        return plain(StatusCode::INTERNAL_SERVER_ERROR, "no Content-Security-Policy\n");
    };
    let mut response =
        with_type(StatusCode::OK, "text/html; charset=utf-8", Bytes::from_static(dashboard::PAGE.as_bytes()));
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    response.headers_mut().insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

fn plain(code: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    with_type(code, "text/plain; charset=utf-8", text)
}

fn with_type(code: StatusCode, form: &'static str, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = code;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(form));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
