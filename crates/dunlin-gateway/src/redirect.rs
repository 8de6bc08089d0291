//! Redirection, the paper's second way to learn who is calling: a listener for plain HTTP takes the client's
//! identity from the URL, and sends the client to the listener for HTTPS. A one-time name or a port joins the
//! request and the connection. Anyone can send such a request, so the identity is a hint: the profile that it
//! leads to demands the client's certificate.
//!
//! The paper also takes the identity from the client's address. That is a hint of the connection itself
//! ([`crate::policy::AddressTable`]), which a redirection would only make worse: other clients behind the
//! address would be asked for that client's certificate.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::fmt::Write;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};

use dunlin::places::Host;
use hashlink::LinkedHashMap;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, LOCATION};
use hyper::{Request, Response, StatusCode};

use crate::clock::now_s;
use crate::config::{AcmeChallenge, Join, RedirectConfig};
use crate::life::Phase;
use crate::listener::Live;
use crate::plain::Answers;
use crate::policed::Policed;
use crate::policy::{Attribute, Client, email};
use crate::route::NamePattern;
use crate::service::{Serve, Shared};
use crate::target::{self, Refusal};

/// How many connections one host may have, so that a few hosts cannot take all. `connections_per_host` may
/// lower it.
const MAX_PER_HOST: usize = 128;

/// How many redirected clients have not come yet, for each policy.
const MAX_PENDING: usize = 16_384;

/// How many of these may have come from one host, so that a few hosts cannot take all names or ports.
const MAX_PENDING_PER_HOST: usize = 4;

/// How many attributes of one request count, and how long their values are, in bytes.
const MAX_ATTRIBUTES: usize = 8;
const MAX_VALUE: usize = 512;

/// The random bytes of a one-time name.
const NAME_BYTES: usize = 16;

/// The clients that were redirected and have not come yet.
#[derive(Default)]
pub(crate) struct Redirects {
    /// By their one-time names.
    names: Mutex<Waiting<String>>,
    /// By listener and port.
    ports: Mutex<Waiting<(String, u16)>>,
}

struct Pending {
    client: Client,
    /// The address of the request.
    from: IpAddr,
    until_s: u64,
}

/// Clients that wait for a connection. The oldest makes room; a host with [`MAX_PENDING_PER_HOST`] loses its
/// own oldest one.
struct Waiting<K> {
    clients: LinkedHashMap<K, Pending>,
    /// The keys of each host, the oldest first.
    of_hosts: HashMap<Host, VecDeque<K>>,
}

impl<K> Default for Waiting<K> {
    fn default() -> Self {
        Self { clients: LinkedHashMap::new(), of_hosts: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash> Waiting<K> {
    /// Makes room for another client of the host with this address.
    fn make_room(&mut self, from: IpAddr) {
        while let Some(keys) =
            self.of_hosts.get(&Host::of(from)).filter(|keys| keys.len() >= MAX_PENDING_PER_HOST)
        {
            let Some(oldest) = keys.front().cloned() else { return };
            self.remove(&oldest);
        }
        while self.clients.len() >= MAX_PENDING {
            let Some(oldest) = self.clients.front().map(|(key, _)| key.clone()) else { return };
            self.remove(&oldest);
        }
    }

    fn insert(&mut self, key: K, client: Pending) {
        self.remove(&key);
        self.make_room(client.from);
        self.of_hosts.entry(Host::of(client.from)).or_default().push_back(key.clone());
        self.clients.insert(key, client);
    }

    fn remove(&mut self, key: &K) -> Option<Pending> {
        let client = self.clients.remove(key)?;
        if let Entry::Occupied(mut keys) = self.of_hosts.entry(Host::of(client.from)) {
            keys.get_mut().retain(|other| other != key);
            if keys.get().is_empty() {
                keys.remove();
            }
        }
        Some(client)
    }
}

impl Redirects {
    /// Expects this client under `name`.
    fn expect(&self, name: String, client: Pending) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).insert(name, client);
    }

    /// The client that was redirected to this name. A name works once.
    fn take(&self, name: &String, now_s: u64) -> Option<Client> {
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
        pending.make_room(client.from);
        let key = |port| (listener.to_owned(), port);
        let is_free =
            |port: &u16| pending.clients.get(&key(*port)).is_none_or(|other| other.until_s <= now_s);
        let port = ports.find(is_free)?;
        pending.insert(key(port), client);
        Some(port)
    }

    /// The client that was redirected to this port and comes from the same address. It counts once.
    fn take_at(&self, listener: &str, port: u16, from: IpAddr, now_s: u64) -> Option<Client> {
        let mut pending = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (listener.to_owned(), port);
        // The pool's socket may be for IPv4, and the request's socket for both.
        if pending.clients.get(&key)?.from.to_canonical() != from.to_canonical() {
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

/// The listener for plain HTTP, with the settings in force when its client came.
pub(crate) struct Redirecting {
    pub(crate) shared: Arc<Shared>,
    pub(crate) live: Arc<Live>,
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
        self.live.refuses(&self.shared, from)
    }

    async fn answer(&self, request: Request<Incoming>, from: SocketAddr) -> Response<Full<Bytes>> {
        // Nothing secret is in the answer to an authority, and only an order lets it exist.
        if let Some(authorization) = self.shared.challenges.by_http(request.uri().path()).await {
            self.shared.metrics.acme_challenged(&self.live.config.name, AcmeChallenge::Http01);
            return Response::new(Full::from(authorization));
        }
        redirect(&self.shared, &self.live, &request, from.ip())
    }
}

fn redirect(
    shared: &Shared,
    live: &Live,
    request: &Request<Incoming>,
    from: IpAddr,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let location = live.config.redirect.as_ref().zip(live.tls.policed()).ok_or(NOT_NOW);
    let location = location.and_then(|(config, policed)| {
        let port = config.port.or_else(|| shared.port_of(&live.config.name)).ok_or(NOT_NOW)?;
        let location = Going { config, policed, listener: &live.config.name, from, port }.to(request)?;
        HeaderValue::try_from(location).map_err(|_| NO_HOST)
    });
    match location {
        Ok(location) => {
            // The method and the content stay (RFC 9110 §15.4.8).
            *response.status_mut() = StatusCode::TEMPORARY_REDIRECT;
            response.headers_mut().insert(LOCATION, location);
            shared.metrics.redirected(&live.config.name);
        }
        Err((status, text)) => {
            *response.status_mut() = status;
            *response.body_mut() = Full::from(text);
            let kind = HeaderValue::from_static("text/plain; charset=utf-8");
            response.headers_mut().insert(CONTENT_TYPE, kind);
        }
    }
    response
}

const NOT_NOW: Refusal = (StatusCode::SERVICE_UNAVAILABLE, "the gateway cannot redirect at present\n");
const NO_HOST: Refusal =
    (StatusCode::BAD_REQUEST, "Host must be a name or an address to which a URL can lead\n");

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
    /// The URL at which the client of this request goes on.
    ///
    /// # Errors
    /// The random source has failed, or the request has no valid target.
    fn to(&self, request: &Request<Incoming>) -> Result<String, Refusal> {
        let Self { config, policed, listener, from, port } = *self;
        let asked = target::host_of(request)?;
        let uri = request.uri();
        let (client, query) = identity(&config.attributes, uri.query().unwrap_or_default());
        let memory = policed.memory();
        let until_s = now_s().saturating_add(config.lifetime.as_secs().max(1));
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
                let lease = |pending| memory.redirects.expect_at(listener, ports.clone(), pending, now_s());
                (host, pending.and_then(lease).unwrap_or(port))
            }
        };
        let mut location = format!("https://{host}");
        if port != 443 {
            let _ = write!(location, ":{port}");
        }
        location.push_str(target::uri_path(uri));
        if !query.is_empty() {
            let _ = write!(location, "?{query}");
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
    use std::net::Ipv4Addr;

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

    #[test]
    fn a_name_works_once_and_for_a_while() {
        let redirects = Redirects::default();
        let (client, from) = (|| Client::of_kind("x509"), IpAddr::from([192, 0, 2, 1]));
        let pending = || Pending { client: client(), from, until_s: 100 };
        let take = |name: &str, now_s| redirects.take(&name.to_owned(), now_s);
        redirects.expect("a".into(), pending());
        redirects.expect("b".into(), pending());
        assert_eq!([take("a", 99), take("a", 99), take("b", 100)], [Some(client()), None, None]);
        for i in 0..=MAX_PENDING {
            let from = Ipv4Addr::from_bits(u32::try_from(i).unwrap()).into();
            redirects.expect(i.to_string(), Pending { from, ..pending() });
        }
        assert_eq!([take("0", 0), take("1", 0)], [None, Some(client())]);
    }

    #[test]
    fn a_host_replaces_only_what_it_waits_for_itself() {
        let redirects = Redirects::default();
        let client = || Client::of_kind("x509");
        let pending = |from: &str| Pending { client: client(), from: from.parse().unwrap(), until_s: 100 };
        redirects.expect("other".into(), pending("2001:db8:0:1::1"));
        for i in 0..=MAX_PENDING_PER_HOST {
            redirects.expect(i.to_string(), pending(&format!("2001:db8::{i}")));
        }
        let take = |name: &str| redirects.take(&name.to_owned(), 0).is_some();
        assert_eq!([take("0"), take("1"), take("4"), take("other")], [false, true, true, true]);

        let lease = |from: &str| redirects.expect_at("web", 9000..=9031, pending(from), 0);
        assert_eq!(lease("192.0.2.2"), Some(9000));
        for _ in 0..32 {
            assert!(lease("192.0.2.1").is_some());
        }
        let take = |port, from: &str| redirects.take_at("web", port, from.parse().unwrap(), 0).is_some();
        assert_eq!(lease("192.0.2.3"), Some(9005));
        assert!(take(9000, "192.0.2.2"));
        let left = (9001..=9031).filter(|port| take(*port, "192.0.2.1")).count();
        assert_eq!(left, MAX_PENDING_PER_HOST);
        assert!(redirects.ports.lock().unwrap().of_hosts.len() == 1);
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
        // The same host at a socket for IPv4 and IPv6.
        assert_eq!(lease(1), Some(9000));
        let mapped = "::ffff:192.0.2.1".parse().unwrap();
        assert_eq!(redirects.take_at("web", 9000, mapped, 1), Some(client()));
        // A port is free again when its client has come, or not come in time.
        assert_eq!([lease(1), lease(1)], [Some(9000), None]);
        assert_eq!(redirects.take_at("web", 9001, from, 10), None);
        assert_eq!([lease(11), lease(11), lease(11)], [Some(9000), Some(9001), None]);
    }
}
