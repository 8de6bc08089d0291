//! Redirection, the paper's second way to learn who is calling: a listener for plain HTTP takes the client's
//! identity from the URL, and sends the client to the listener for HTTPS. A one-time name or a port joins the
//! request and the connection. Anyone can send such a request, so the identity is a hint: the profile that it
//! leads to demands the client's certificate.
//!
//! The paper also takes the identity from the client's address. That is a hint of the connection itself
//! ([`crate::policy::AddressTable`]), which a redirection would only make worse: other clients behind the
//! address would be asked for that client's certificate.

use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use dunlin_tokio::http::response;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CACHE_CONTROL, HeaderValue, LOCATION};
use hyper::{Request, Response, StatusCode};

use crate::clock::{now, now_s};
use crate::config::NamePattern;
use crate::config::{AcmeChallenge, Join, RedirectConfig};
use crate::context::Context;
use crate::http::Answers;
use crate::life::Phase;
use crate::listener::ListenerState;
use crate::policy::{Attribute, Client, email};
use crate::policy_configs::PolicyConfigs;
use crate::proxy::http::check_fields;
use crate::redirected::Pending;
use crate::service::Serve;
use crate::target::{self, Refusal};

/// How many connections one host may have, so that a few hosts cannot take all. `connections_per_host` may
/// lower it.
const MAX_PER_HOST: usize = 128;

/// How many attributes of one request count, and how long their values are, in bytes.
const MAX_ATTRIBUTES: usize = 8;
const MAX_VALUE: usize = 512;

/// The random bytes of a one-time name.
const NAME_BYTES: usize = 16;

/// The listener for plain HTTP, with the settings in force when its client came.
pub(crate) struct Redirecting {
    pub(crate) context: Arc<Context>,
    pub(crate) live: Arc<ListenerState>,
}

impl Answers for Redirecting {
    const MAX_CONNECTIONS: usize = 1024;
    const UNTIL: Phase = Phase::Draining;
    const KEEPS_ALIVE: bool = false;

    fn name(&self) -> &str {
        &self.live.config.name
    }

    fn max_per_host(&self, _: IpAddr) -> usize {
        self.live.config.limits.connections_per_host.min(MAX_PER_HOST)
    }

    fn refuses(&self, from: SocketAddr) -> bool {
        self.live.refuses(&self.context, from, now())
    }

    async fn answer(&self, request: Request<Incoming>, from: SocketAddr) -> Response<Full<Bytes>> {
        // Nothing secret is in the answer to an authority, and only an order lets it exist.
        if let Some(authorization) = self.context.challenges.by_http(request.uri().path()).await {
            self.context.metrics.acme_challenged(&self.live.config.name, AcmeChallenge::Http01);
            return Response::new(Full::from(authorization));
        }
        redirect(&self.context, &self.live, &request, from.ip(), now_s())
    }
}

fn redirect(
    context: &Context,
    live: &ListenerState,
    request: &Request<Incoming>,
    from: IpAddr,
    now_s: u64,
) -> Response<Full<Bytes>> {
    let location = live.config.redirect.as_ref().zip(live.tls.policed()).ok_or(NOT_NOW);
    let location = location.and_then(|(config, policed)| {
        let port = config.port.or_else(|| context.port_of(&live.config.name)).ok_or(NOT_NOW)?;
        let location =
            Going { config, policed, listener: &live.config.name, from, port }.to(request, now_s)?;
        HeaderValue::try_from(location).map_err(|_| NO_HOST)
    });
    match location {
        Ok(location) => {
            context.metrics.redirected(&live.config.name);
            let mut response = Response::new(Full::default());
            // The method and the content stay (RFC 9110 §15.4.8).
            *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
            response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
            response.headers_mut().insert(LOCATION, location);
            response
        }
        Err((status, text)) => response(status, "text/plain; charset=utf-8", "no-store", Full::from(text)),
    }
}

const NOT_NOW: Refusal = (StatusCode::SERVICE_UNAVAILABLE, "the gateway cannot redirect at present\n");
const NO_HOST: Refusal =
    (StatusCode::BAD_REQUEST, "Host must be a name or an address to which a URL can lead\n");

/// A client that is redirected.
struct Going<'a> {
    config: &'a RedirectConfig,
    policed: &'a PolicyConfigs,
    listener: &'a str,
    from: IpAddr,
    /// The port for HTTPS, unless one of the pool is used.
    port: u16,
}

impl Going<'_> {
    /// The URL at which the client of this request goes on.
    ///
    /// # Errors
    /// The random source has failed, or the request has no valid target.
    fn to(&self, request: &Request<Incoming>, now_s: u64) -> Result<String, Refusal> {
        let Self { config, policed, listener, from, port } = *self;
        let asked = target::host_of(request)?;
        check_fields(request.headers())?;
        let uri = request.uri();
        let (client, query) = identity(&config.attributes, uri.query().unwrap_or_default());
        let memory = policed.memory();
        let until_s = now_s.saturating_add(config.lifetime.as_secs().max(1));
        let pending = client.map(|client| Pending { client, from, until_s });
        let (host, port) = match &config.join {
            Join::Name(domain) => {
                let mut bytes = [0; NAME_BYTES];
                policed.random().fill(&mut bytes).map_err(|_| NOT_NOW)?;
                let name = base16ct::lower::encode_string(&bytes);
                let host = format!("{name}.{domain}");
                if let Some(pending) = pending {
                    memory.redirects.expect(name, pending);
                }
                (host, port)
            }
            Join::Port(ports) => {
                let is_name = |name: &str| !name.starts_with('*') && NamePattern::parse(name).is_some();
                let host = asked.and_then(|asked| target::uri_host(&asked, is_name)).ok_or(NO_HOST)?;
                let lease = |pending| memory.redirects.expect_at(listener, ports.clone(), pending, now_s);
                (host, pending.and_then(lease).unwrap_or(port))
            }
        };
        let mut location = format!("https://{host}");
        if port != 443 {
            let _ = write!(location, ":{port}");
        }
        location.push_str(&target::uri_text(target::uri_path(uri)));
        if !query.is_empty() {
            let _ = write!(location, "?{}", target::uri_text(&query));
        }
        Ok(location)
    }
}

/// The client that the parameters of a query name, and the query without them. `None` if it names no client.
fn identity(attributes: &[Attribute], query: &str) -> (Option<Client>, String) {
    let mut client: Option<Client> = None;
    let mut rest: Vec<&str> = vec![];
    let mut known = 0;
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let attribute = attributes.iter().find(|attribute| attribute.key() == key);
        match attribute.zip(decoded(value)) {
            Some((attribute, value)) if known < MAX_ATTRIBUTES => {
                known += 1;
                let value = if *attribute == Attribute::Email { email(&value) } else { value };
                client.get_or_insert_with(|| Client::of_kind("x509")).add(attribute.clone(), value);
            }
            _ => rest.push(parameter),
        }
    }
    (client, rest.join("&"))
}

/// The text of a value in a query: `%` and two hexadecimal digits stand for a byte, `+` for a space. `None`
/// if it is no text.
fn decoded(value: &str) -> Option<String> {
    let mut bytes = vec![];
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                let mut byte = [0];
                base16ct::mixed::decode(digits, &mut byte).ok()?;
                byte[0]
            }
            byte => byte,
        });
    }
    let is_short = (1..=MAX_VALUE).contains(&bytes.len());
    String::from_utf8(bytes).ok().filter(|text| is_short && !text.contains(char::is_control))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_identity_out_of_the_query() {
        let of = |query: &str| {
            let (client, rest) = identity(&[Attribute::Email, Attribute::Issuer], query);
            (client.map(|client| client.facts()[1..].to_vec()), rest)
        };
        let alice = (Attribute::Email, "alice@example.com".to_owned());
        assert_eq!(of("a=1&email=alice%40example.com&b"), (Some(vec![alice.clone()]), "a=1&b".to_owned()));
        // As in certificates: the domain has no case.
        assert_eq!(of("email=alice@Example.COM").0, Some(vec![alice.clone()]));
        let issuer = (Attribute::Issuer, "CN=A B".to_owned());
        assert_eq!(of("issuer=CN%3DA+B&email=alice@example.com"), (Some(vec![issuer, alice]), String::new()));
        // Nothing that is no text, and no attribute that the configuration does not name.
        for query in ["email=%ff", "email=%0a", "email=%4", "email=", "name=x", "email=%+1"] {
            assert_eq!(of(query), (None, query.to_owned()), "{query}");
        }
    }
}
