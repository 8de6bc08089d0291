//! The target of an HTTP request. The proxy and the redirection read it by the same rules, so that a request
//! means the same to both.

use std::net::Ipv6Addr;

use hyper::header::HOST;
use hyper::http::uri::{Authority, Scheme};
use hyper::{Method, Request, StatusCode, Uri, Version};

/// The status and the text of the answer to a request that asks for nothing that can be given.
pub(crate) type Refusal = (StatusCode, &'static str);

const NO_HOST: Refusal = (StatusCode::BAD_REQUEST, "the request needs one valid Host\n");
const NO_TARGET: Refusal = (
    StatusCode::BAD_REQUEST,
    "the target of the request must be a path or an HTTP URI; OPTIONS may have *\n",
);
const NO_TUNNEL: Refusal = (StatusCode::METHOD_NOT_ALLOWED, "the gateway opens no tunnels\n");

/// The host for which a request asks, and its port; `None` if a request of HTTP/1.0 does not say.
///
/// # Errors
/// The method is CONNECT, the target has the form of none of RFC 9112 §3.2, or there are several hosts, an
/// invalid one, or none in HTTP/1.1.
pub(crate) fn host_of<B>(request: &Request<B>) -> Result<Option<Authority>, Refusal> {
    let uri = request.uri();
    if request.method() == Method::CONNECT {
        return Err(NO_TUNNEL);
    }
    // RFC 9112 §3.2.1, §3.2.2, §3.2.4: the authority form is for CONNECT, the asterisk form for OPTIONS.
    let has_form = match uri.scheme() {
        Some(scheme) => *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS,
        None if is_asterisk(uri) => request.method() == Method::OPTIONS,
        None => uri.authority().is_none() && uri.path().starts_with('/'),
    };
    if !has_form {
        return Err(NO_TARGET);
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(host), None) => Some(Authority::try_from(host.as_bytes()).map_err(|_| NO_HOST)?),
        (None, None) if request.version() < Version::HTTP_11 => None,
        // RFC 9112 §3.2
        _ => return Err(NO_HOST),
    };
    // RFC 9112 §3.2.2: the authority of the target comes before Host.
    let asked = uri.authority().cloned().or_else(|| host.clone());
    let all_valid = [&host, &asked].into_iter().flatten().all(is_valid);
    if all_valid { Ok(asked) } else { Err(NO_HOST) }
}

/// Whether this is a name or an address, with a port or without one, and no user (RFC 3986 §3.2).
fn is_valid(authority: &Authority) -> bool {
    let host = authority.host();
    let port = authority.as_str().strip_prefix(host);
    let has_port = port.is_some_and(|port| match port.strip_prefix(':') {
        Some(port) => port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit()),
        None => port.is_empty(),
    });
    let is_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_host = match address_of(host) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && host.bytes().all(is_byte),
    };
    has_port && is_host
}

/// The host as a server name (RFC 6066 §3) or an address. `None` if a label of the name is empty: no route
/// has such a host, but a backend may take `b.example..` for `b.example`.
pub(crate) fn name_of(host: &Authority) -> Option<&str> {
    let host = host.host();
    if let Some(address) = address_of(host) {
        return Some(address);
    }
    let name = host.strip_suffix('.').unwrap_or(host);
    (!name.split('.').any(str::is_empty)).then_some(name)
}

/// The host as a URI has it, if it is a name or an address.
pub(crate) fn uri_host(host: &Authority, is_name: impl Fn(&str) -> bool) -> Option<String> {
    let is_v6 = address_of(host.host()).is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
    let host = if is_v6 { host.host() } else { name_of(host).filter(|name| is_name(name))? };
    Some(host.to_ascii_lowercase())
}

/// The text between the brackets of an IPv6 address.
fn address_of(host: &str) -> Option<&str> {
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']'))
}

/// The target in the form for the server that answers it: path and query, or `*` (RFC 9112 §3.2.1, §3.2.4).
pub(crate) fn origin_form(uri: &Uri) -> Uri {
    uri.path_and_query().cloned().map(Uri::from).unwrap_or_default()
}

/// The path of a target in a URI: none for `*` (RFC 9112 §3.3).
pub(crate) fn uri_path(uri: &Uri) -> &str {
    if is_asterisk(uri) { "" } else { uri.path() }
}

/// Text for a URI: characters that RFC 3986 §2 does not allow there are percent-encoded.
pub(crate) fn uri_text(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | ..=b' ' | 0x7f.. => {
                encoded.push('%');
                encoded.push_str(&base16ct::upper::encode_string(&[byte]));
            }
            byte => encoded.push(char::from(byte)),
        }
    }
    encoded
}

fn is_asterisk(uri: &Uri) -> bool {
    uri.authority().is_none() && uri.path() == "*"
}
