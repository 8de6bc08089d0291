//! The administrative listener: `/metrics` for Prometheus, `/status` for health checks and programs, `/` for
//! people.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use dunlin_tokio::http::response;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_SECURITY_POLICY, HOST, HeaderValue, REFERRER_POLICY};
use hyper::http::uri::Authority;
use hyper::{Method, Request, Response, StatusCode, Version};

use crate::clock::now_s;
use crate::context::Context;
use crate::dashboard;
use crate::http::Answers;
use crate::life::Phase;
use crate::metrics::Role;
use crate::status;

/// How many connections one host may have. Load balancers and Prometheus need one each, a browser six.
const MAX_PER_HOST: usize = 8;

/// The administrative listener.
pub(crate) struct Admin(pub(crate) Arc<Context>);

impl Answers for Admin {
    // So that a broken client cannot take all file descriptors.
    const MAX_CONNECTIONS: usize = 64;
    // Status stays available while the gateway drains.
    const UNTIL: Phase = Phase::Ending;
    // A dashboard asks every second.
    const KEEPS_ALIVE: bool = true;

    fn name(&self) -> &str {
        "[admin]"
    }

    /// Programs on this machine share one address, and can be trusted not to lock each other out.
    fn max_per_host(&self, from: IpAddr) -> usize {
        if from.to_canonical().is_loopback() { usize::MAX } else { MAX_PER_HOST }
    }

    fn refuses(&self, _: SocketAddr) -> bool {
        false
    }

    async fn answer(&self, request: Request<Incoming>, _: SocketAddr) -> Response<Full<Bytes>> {
        answer(&self.0, &request)
    }
}

fn answer(context: &Context, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    if !is_own_host(context, request) {
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
            with_type(StatusCode::OK, form, context.metrics.text())
        }
        "/status" => status(context),
        // The dashboard shows the metrics of gateways.
        "/" if context.metrics.role == Role::Gateway => page(),
        _ => plain(
            StatusCode::NOT_FOUND,
            match context.metrics.role {
                Role::Gateway => "there are /, /metrics and /status\n",
                Role::Tunnel => "there are /metrics and /status\n",
            },
        ),
    }
}

/// Whether the request is for this machine. A web page of another site can make a browser ask here under a
/// name of its own (DNS rebinding); it cannot do so under an IP address or `localhost`. HTTP/1.0 allows
/// requests without `Host`, which no browser sends.
fn is_own_host(context: &Context, request: &Request<Incoming>) -> bool {
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
    host == "localhost" || address.parse::<IpAddr>().is_ok() || context.admin_hosts.load().contains(&host)
}

fn status(context: &Context) -> Response<Full<Bytes>> {
    // A gateway that drains takes no clients, so a load balancer must not send it any.
    let is_running = context.life.phase() == Phase::Running;
    let code = if is_running { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    match status::json(context, now_s()) {
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
    response(code, form, "no-store", Full::new(text.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn only_hosts_of_the_network_have_a_limit_of_their_own() {
        let admin = Admin(Arc::new(Context::new(Metrics::new(Role::Gateway))));
        let of = |address: &str| admin.max_per_host(address.parse().unwrap());
        assert_eq!([of("127.0.0.9"), of("::1"), of("::ffff:127.0.0.1")], [usize::MAX; 3]);
        assert_eq!([of("192.0.2.1"), of("2001:db8::1"), of("::ffff:192.0.2.1")], [8; 3]);
    }
}
