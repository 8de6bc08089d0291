//! Routes: which backend a client gets, by the server name and the application protocols of its ClientHello.

use std::fmt;
use std::net::IpAddr;

use dunlin::error::PeerIncompatible;
use dunlin::{ClientHelloInfo, Negotiated};
use serde::Serialize;

use crate::config::{ListenerConfig, NamePattern, RouteConfig, RouteProtocol};
use crate::policy::{Client, EntryReport};

impl RouteConfig {
    /// Whether clients learn the names of the authorities that their certificates may have. A browser offers
    /// its user only certificates of these authorities, and sends intermediate certificates only if it finds
    /// a chain to one of them.
    pub(crate) const fn names_authorities(&self) -> bool {
        matches!(self.protocol, RouteProtocol::Http)
    }

    /// Whether a client that requests this server name may take the route.
    fn covers(&self, name: Option<&str>) -> bool {
        // RFC 6066 §3 has no trailing dot; a client that sends one gets the certificate of the name without it.
        let name = name.map(|name| name.strip_suffix('.').unwrap_or(name));
        self.sni.is_empty() || name.is_some_and(|name| self.sni.iter().any(|sni| sni.covers(name)))
    }

    /// Whether a client that offers these application protocols may take the route.
    fn speaks(&self, offered: &[Vec<u8>]) -> bool {
        self.alpn.is_empty() || self.alpn.iter().any(|alpn| offered.contains(alpn))
    }

    /// Whether clients of the route may speak HTTP: RFC 7301 §6 and RFC 9113 §3.2 name its protocols.
    fn may_speak_http(&self) -> bool {
        let is_http = |alpn: &Vec<u8>| alpn == b"h2" || alpn.starts_with(b"http/");
        matches!(self.protocol, RouteProtocol::Http) || self.alpn.is_empty() || self.alpn.iter().any(is_http)
    }
}

/// The longest server name in the log, in characters: a client chooses it.
const MAX_SHOWN: usize = 256;

/// Why no certificate names this server (RFC 6066 §3, RFC 1035 §2.3.4); `None` if one may.
pub(crate) fn oddity(name: &str) -> Option<&'static str> {
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    if address.parse::<IpAddr>().is_ok() {
        return Some("an IP address");
    }
    if name.len() > 253 {
        return Some("longer than 253 bytes");
    }
    if name.ends_with('.') {
        return Some("ends with a period");
    }
    NamePattern::parse(name).filter(|name| !name.is_wildcard()).is_none().then_some("not a DNS name")
}

/// The server name of a ClientHello for the log, and a note if the name is unusual.
pub(crate) fn shown(name: &str) -> String {
    let escaped: String = name.escape_debug().take(MAX_SHOWN).collect();
    oddity(name).map_or_else(|| escaped.clone(), |why| format!("{escaped} ({why})"))
}

/// The index of the route that a client with these negotiated parameters took. It equals [`find`] for its
/// ClientHello if the routes have not changed: a route with protocols always selects one of them, and one
/// without selects none.
pub(crate) fn of(routes: &[RouteConfig], negotiated: &Negotiated) -> Option<usize> {
    let alpn = negotiated.alpn.as_ref();
    routes.iter().position(|route| {
        let by_protocol = alpn.map_or(route.alpn.is_empty(), |alpn| route.alpn.contains(alpn));
        route.covers(negotiated.server_name.as_deref()) && by_protocol
    })
}

/// The index of the first route that takes a client with this ClientHello.
///
/// # Errors
/// No route has its server name (RFC 6066 §3) or takes clients without one (RFC 8446 §9.2), or none of those
/// has one of its application protocols (RFC 7301 §3.2).
pub(crate) fn find(routes: &[RouteConfig], hello: &ClientHelloInfo) -> Result<usize, PeerIncompatible> {
    let name = hello.server_name.as_deref();
    let mut covering =
        routes.iter().enumerate().filter(|(_, route)| route.covers(name)).map(|(at, _)| at).peekable();
    let unserved = || name.map_or(PeerIncompatible::NoServerName, |_| PeerIncompatible::ServerName);
    covering.peek().ok_or_else(unserved)?;
    covering
        .find(|at| routes.get(*at).is_some_and(|route| route.speaks(&hello.alpn)))
        .ok_or(PeerIncompatible::ApplicationProtocol)
}

/// Whether a client of the route `at` may ask for this host over HTTP: unless a client that requests this
/// server name takes another route, whose server or whose `allow` may differ (RFC 9110 §7.4).
///
/// A client chooses its application protocols freely. So an earlier route of the host for some of them alone
/// leaves the others to the route `at` only if it has the same `allow`.
pub(crate) fn serves(routes: &[RouteConfig], at: usize, host: &str) -> bool {
    // A client that connects to an address requests no server name (RFC 6066 §3).
    let name = Some(host).filter(|host| host.parse::<IpAddr>().is_err());
    let access = routes.get(at).map(|route| &route.access);
    let of_host = |(other, route): &(usize, &RouteConfig)| {
        (*other == at || route.may_speak_http()) && route.covers(name)
    };
    let mut is_elsewhere = false;
    for (other, route) in routes.iter().enumerate().filter(of_host) {
        if other == at {
            return true;
        }
        is_elsewhere = true;
        if route.alpn.is_empty() || !access.is_some_and(|access| access.is_same(&route.access)) {
            return false;
        }
    }
    !is_elsewhere
}

/// The route of a listener that a client takes, and whether the client may use it. Scripts rely on its JSON.
#[derive(Clone, Debug, Serialize)]
pub struct RouteReport {
    /// The name of the listener.
    pub listener: String,
    /// The name of the route; `None` if no route matches the ClientHello.
    pub route: Option<String>,
    /// The file and the line of the route, or of the listener without one.
    pub place: String,
    /// Whether the client may use the route.
    pub is_admitted: bool,
    /// The entries of the key `allow`. Without one, every client may use the route.
    pub allow: Vec<EntryReport>,
}

impl RouteReport {
    /// The report about a client with this ClientHello, whose handshake proves `client`. `now_s` is the time
    /// in seconds since 1970.
    pub fn of(
        listener: &ListenerConfig,
        hello: &ClientHelloInfo,
        client: Option<&Client>,
        address: Option<IpAddr>,
        now_s: u64,
    ) -> Self {
        let route = find(&listener.routes, hello).ok().and_then(|route| listener.routes.get(route));
        Self {
            listener: listener.name.clone(),
            route: route.map(|route| route.name.clone()),
            place: route.map_or(&listener.place, |route| &route.place).line().to_string(),
            is_admitted: route.is_some_and(|route| route.access.admits(client, address, now_s)),
            allow: route.map_or_else(Vec::new, |route| route.access.explain(client, address, now_s)),
        }
    }
}

/// The report for people.
impl fmt::Display for RouteReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { listener, route, place, is_admitted, allow } = self;
        let Some(route) = route else {
            return writeln!(f, "listener {listener}: no route takes this ClientHello ({place})");
        };
        writeln!(f, "listener {listener}: route {route} ({place})")?;
        allow.iter().try_for_each(|entry| write!(f, "{entry}"))?;
        f.write_str(match (is_admitted, allow.is_empty()) {
            (_, true) => "access: admitted, since the route has no key allow\n",
            (true, false) => "access: admitted\n",
            (false, false) => "access: denied, since no entry of allow holds\n",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trailing_dot_changes_no_route() {
        let text = "[[listener]]\nlisten = \"[::]:1\"\n[[listener.certificate]]\nchain = \"c\"\nkey = \"k\"\n\
                    [[listener.route]]\nsni = [\"a.example\"]\nto = \"[::1]:1\"\n";
        let config = crate::config::Config::parse(std::path::Path::new("g.toml"), text).unwrap();
        let [route] = &config.listeners[0].routes[..] else { panic!("several routes") };
        for (name, is_covered) in [("a.example", true), ("A.example.", true), ("a.example..", false)] {
            assert_eq!(route.covers(Some(name)), is_covered, "{name}");
        }
    }

    #[test]
    fn shows_what_is_odd_about_a_server_name() {
        let long = "a.".repeat(127) + "a";
        for (name, expected) in [
            ("a.example.org", "a.example.org"),
            ("a_b.example", "a_b.example"),
            ("localhost", "localhost"),
            ("localhost.", "localhost. (ends with a period)"),
            ("192.0.2.1", "192.0.2.1 (an IP address)"),
            ("2001:db8::1", "2001:db8::1 (an IP address)"),
            ("[2001:db8::1]", "[2001:db8::1] (an IP address)"),
            ("https://a.example", "https://a.example (not a DNS name)"),
            ("a.example:443", "a.example:443 (not a DNS name)"),
            ("*.a.example", "*.a.example (not a DNS name)"),
            ("a..example", "a..example (not a DNS name)"),
            ("a\"b\u{1b}[1m", "a\\\"b\\u{1b}[1m (not a DNS name)"),
            (&long, &format!("{long} (longer than 253 bytes)")),
        ] {
            assert_eq!(shown(name), expected);
        }
        assert_eq!(shown(&"\"".repeat(255)).chars().filter(|c| *c == '"').count(), MAX_SHOWN / 2);
    }
}
