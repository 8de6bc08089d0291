//! Redirection, the paper's second way to learn who is calling: a listener for plain HTTP takes the client's identity from the URL or from its
//! address, and sends the client to the listener for HTTPS. A one-time name or a port joins the request and the connection. Anyone can send
//! such a request, so the identity is a hint: the profile that it leads to demands the client's certificate.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt::Write;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hashlink::LinkedHashMap;
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CACHE_CONTROL, HOST, HeaderValue, LOCATION};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};

use crate::config::{Join, RedirectConfig};
use crate::listener::{ACCEPT_PAUSE, Live, Phase, Settings, reached};
use crate::policed::{Policed, now_s};
use crate::policy::{Attribute, Client};
use crate::route::NamePattern;
use crate::service::{Serve, Shared};

/// The simultaneous connections to a listener for plain HTTP.
const MAX_CONNECTIONS: usize = 1024;

/// How many redirected clients have not come yet, for each policy.
const MAX_PENDING: usize = 16_384;

/// How many attributes of one request count, and how long their values are, in bytes.
const MAX_ATTRIBUTES: usize = 8;
const MAX_VALUE: usize = 512;

/// How long a request may take.
const REQUEST_TIME: Duration = Duration::from_secs(10);

/// The largest header of a request, in bytes. hyper's buffer holds 8 KiB at least.
const MAX_HEADER: usize = 8192;

/// The random bytes of a one-time name.
const NAME_BYTES: usize = 16;

/// The clients that were redirected and have not come yet.
#[derive(Default)]
pub(crate) struct Redirects {
    /// By their one-time names. The oldest makes room.
    names: Mutex<LinkedHashMap<String, Pending>>,
    /// By listener and port.
    ports: Mutex<HashMap<(String, u16), Pending>>,
}

struct Pending {
    client: Client,
    /// The address of the request.
    from: IpAddr,
    until_s: u64,
}

impl Redirects {
    /// Expects this client under `name`, until `until_s`.
    fn expect(&self, name: String, client: Pending) {
        let mut pending = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        pending.insert(name, client);
        while pending.len() > MAX_PENDING {
            pending.pop_front();
        }
    }

    /// The client that was redirected to this name. A name works once.
    fn take(&self, name: &str, now_s: u64) -> Option<Client> {
        let mut pending = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        pending.remove(name).filter(|pending| pending.until_s > now_s).map(|pending| pending.client)
    }

    /// Expects this client at one of these ports, if one is free.
    fn expect_at(
        &self,
        listener: &str,
        mut ports: RangeInclusive<u16>,
        client: Pending,
        now_s: u64,
    ) -> Option<u16> {
        let mut pending = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        let key = |port| (listener.to_owned(), port);
        let is_free = |port: &u16| pending.get(&key(*port)).is_none_or(|other| other.until_s <= now_s);
        let port = ports.find(is_free)?;
        pending.insert(key(port), client);
        Some(port)
    }

    /// The client that was redirected to this port and comes from the same address. It counts once.
    fn take_at(&self, listener: &str, port: u16, from: IpAddr, now_s: u64) -> Option<Client> {
        let mut pending = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (listener.to_owned(), port);
        if pending.get(&key)?.from != from {
            return None;
        }
        pending.remove(&key).filter(|pending| pending.until_s > now_s).map(|pending| pending.client)
    }
}

/// The client that was redirected to this server name of a ClientHello, or to this port of the pool.
pub(crate) fn redirected(
    live: &Live,
    policed: &Policed,
    server_name: Option<&str>,
    port: Option<u16>,
    from: IpAddr,
) -> Option<Client> {
    let domain = match &live.config.redirect.as_ref()?.join {
        Join::Name(domain) => domain,
        Join::Port(_) => {
            return policed.memory().redirects.take_at(&live.config.name, port?, from, now_s());
        }
    };
    let (label, rest) = server_name?.split_once('.')?;
    let is_below = rest.eq_ignore_ascii_case(domain);
    policed.memory().redirects.take(&label.to_ascii_lowercase(), now_s()).filter(|_| is_below)
}

/// Answers requests until the gateway stops or `removed` becomes true.
pub(crate) async fn run(
    shared: Arc<Shared>,
    settings: Settings,
    socket: TcpListener,
    mut removed: watch::Receiver<bool>,
) {
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
            () = reached(&phases, Phase::Draining) => return,
            _ = removed.wait_for(|removed| *removed) => return,
        };
        let Ok((tcp, from)) = accepted else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let live = settings.load_full();
        if live.refuses(&shared, from) {
            continue;
        }
        let shared = shared.clone();
        tokio::spawn(async move {
            serve(&shared, &live, tcp, from).await;
            drop(place);
        });
    }
}

/// Answers the requests of one connection.
async fn serve(shared: &Shared, live: &Live, tcp: TcpStream, from: SocketAddr) {
    let service = service_fn(|request| {
        let response = answer(shared, live, &request, from.ip());
        async { Ok::<_, Infallible>(response) }
    });
    let mut http = http1::Builder::new();
    let http = http.timer(TokioTimer::new()).header_read_timeout(REQUEST_TIME);
    let http = http.max_buf_size(MAX_HEADER).keep_alive(false);
    // A client that breaks the protocol gets hyper's answer; nothing else is to do.
    let _ = timeout(REQUEST_TIME, http.serve_connection(TokioIo::new(tcp), service)).await;
}

fn answer(shared: &Shared, live: &Live, request: &Request<Incoming>, from: IpAddr) -> Response<Empty<Bytes>> {
    let mut response = Response::new(Empty::new());
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let target = live.config.redirect.as_ref().zip(live.tls.policed()).and_then(|(config, policed)| {
        let port = config.port.or_else(|| shared.port_of(&live.config.name))?;
        let location = Going { config, policed, listener: &live.config.name, from, port }.to(request)?;
        HeaderValue::try_from(location).ok()
    });
    match target {
        Some(location) => {
            // The method and the content stay (RFC 9110 §15.4.8).
            *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
            response.headers_mut().insert(LOCATION, location);
            shared.metrics.redirected(&live.config.name);
        }
        None => *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE,
    }
    response
}

/// A client that is redirected.
struct Going<'a> {
    config: &'a RedirectConfig,
    policed: &'a Policed,
    listener: &'a str,
    from: IpAddr,
    /// The port for HTTPS, unless one of the pool is used.
    port: u16,
}

impl Going<'_> {
    /// Where the client of this request goes on. `None` if the random source has failed, or if the request does not name a host.
    fn to(&self, request: &Request<Incoming>) -> Option<String> {
        let Self { config, policed, listener, from, port } = *self;
        let uri = request.uri();
        let (client, query) = identity(&config.attributes, uri.query().unwrap_or_default());
        let memory = policed.memory();
        let client = client.or_else(|| Some(memory.addresses.claim(from, now_s())?.client));
        let until_s = now_s().saturating_add(config.lifetime.as_secs().max(1));
        let pending = client.map(|client| Pending { client, from, until_s });
        let (host, port) = match &config.join {
            Join::Name(domain) => {
                let mut bytes = [0; NAME_BYTES];
                policed.random().fill(&mut bytes).ok()?;
                let name = base16ct::lower::encode_string(&bytes);
                let host = format!("{name}.{domain}");
                if let Some(pending) = pending {
                    memory.redirects.expect(name, pending);
                }
                (host, port)
            }
            Join::Port(ports) => {
                let lease = |pending| memory.redirects.expect_at(listener, ports.clone(), pending, now_s());
                (host(request)?, pending.and_then(lease).unwrap_or(port))
            }
        };
        let mut location = format!("https://{host}");
        if port != 443 {
            let _ = write!(location, ":{port}");
        }
        location.push_str(uri.path());
        if !query.is_empty() {
            let _ = write!(location, "?{query}");
        }
        Some(location)
    }
}

/// The host that a request names, without its port: a name or an address.
fn host(request: &Request<Incoming>) -> Option<String> {
    let authority = request.headers().get(HOST)?.to_str().ok()?;
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    let is_v6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_v6 = is_v6.is_some_and(|host| host.parse::<Ipv6Addr>().is_ok());
    let is_name = !host.starts_with('*') && NamePattern::parse(host).is_some();
    (is_v6 || is_name).then(|| host.to_ascii_lowercase())
}

/// The client whom the parameters of a query name, and the query without them. `None` if it names no client.
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
                client.get_or_insert_with(|| Client::of_kind("x509")).add(attribute.clone(), value);
            }
            _ => rest.push(parameter),
        }
    }
    (client, rest.join("&"))
}

/// The text of a value in a query: `%` and two hexadecimal digits stand for a byte, `+` for a space. `None` if it is no text.
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
        let issuer = (Attribute::Issuer, "CN=A B".to_owned());
        assert_eq!(of("issuer=CN%3DA+B&email=alice@example.com"), (Some(vec![issuer, alice]), String::new()));
        // Nothing that is no text, and no attribute that the configuration does not name.
        for query in ["email=%ff", "email=%0a", "email=%4", "email=", "name=x", "email=%+1"] {
            assert_eq!(of(query), (None, query.to_owned()), "{query}");
        }
    }

    #[test]
    fn a_name_works_once_and_for_a_while() {
        let redirects = Redirects::default();
        let (client, from) = (|| Client::of_kind("x509"), IpAddr::from([192, 0, 2, 1]));
        let pending = || Pending { client: client(), from, until_s: 100 };
        redirects.expect("a".into(), pending());
        redirects.expect("b".into(), pending());
        assert_eq!(redirects.take("a", 99), Some(client()));
        assert_eq!(redirects.take("a", 99), None);
        assert_eq!(redirects.take("b", 100), None);
        for i in 0..=MAX_PENDING {
            redirects.expect(i.to_string(), pending());
        }
        assert_eq!(redirects.take("0", 0), None);
        assert_eq!(redirects.take("1", 0), Some(client()));
    }

    #[test]
    fn a_port_waits_for_the_address_of_the_request() {
        let redirects = Redirects::default();
        let [from, other] = [1, 2].map(|last| IpAddr::from([192, 0, 2, last]));
        let client = || Client::of_kind("x509");
        let lease = |now_s| {
            let pending = Pending { client: client(), from, until_s: now_s + 10 };
            redirects.expect_at("web", 9000..=9001, pending, now_s)
        };
        assert_eq!([lease(0), lease(0), lease(0)], [Some(9000), Some(9001), None]);
        assert_eq!(redirects.take_at("web", 9000, other, 1), None);
        assert_eq!(redirects.take_at("other", 9000, from, 1), None);
        assert_eq!(redirects.take_at("web", 9000, from, 1), Some(client()));
        assert_eq!(redirects.take_at("web", 9000, from, 1), None);
        // A port is free again when its client has come, or not come in time.
        assert_eq!([lease(1), lease(1)], [Some(9000), None]);
        assert_eq!(redirects.take_at("web", 9001, from, 10), None);
        assert_eq!([lease(11), lease(11), lease(11)], [Some(9000), Some(9001), None]);
    }
}
