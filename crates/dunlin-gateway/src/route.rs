//! Routes: which backend a client gets, by the server name and the application protocols of its ClientHello.

use dunlin::ClientHelloInfo;

use crate::config::RouteConfig;

/// A server name, or all names below a domain with one more label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern {
    /// In lower case, without `*.`.
    name: String,
    /// Whether it began with `*.`.
    is_wildcard: bool,
}

impl NamePattern {
    /// Reads a name as in `mqtt.example.org` or `*.example.org`. `None` if it is no host name.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, is_wildcard) = match text.strip_prefix("*.") {
            Some(domain) => (domain, true),
            None => (text, false),
        };
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        let is_name = name.len() <= 253 && name.split('.').all(is_label);
        is_name.then(|| Self { name: name.to_ascii_lowercase(), is_wildcard })
    }

    /// Whether the pattern covers this name. A wildcard covers exactly one label, as in certificates (RFC 9525 §6.3).
    pub fn covers(&self, name: &str) -> bool {
        let name = match self.is_wildcard {
            true => name.split_once('.').map(|(_, domain)| domain),
            false => Some(name),
        };
        name.is_some_and(|name| name.eq_ignore_ascii_case(&self.name))
    }
}

impl RouteConfig {
    /// Whether a client with this ClientHello takes the route.
    fn takes(&self, hello: &ClientHelloInfo) -> bool {
        let by_name = self.sni.is_empty()
            || hello.server_name.as_ref().is_some_and(|name| self.sni.iter().any(|sni| sni.covers(name)));
        by_name && (self.alpn.is_empty() || self.alpn.iter().any(|alpn| hello.alpn.contains(alpn)))
    }
}

/// The index of the first route that takes a client with this ClientHello.
pub(crate) fn find(routes: &[RouteConfig], hello: &ClientHelloInfo) -> Option<usize> {
    routes.iter().position(|route| route.takes(hello))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_covers_one_label() {
        let pattern = |text| NamePattern::parse(text).unwrap();
        let wildcard = pattern("*.Example.org");
        for (name, is_covered) in [
            ("a.example.org", true),
            ("A.EXAMPLE.ORG", true),
            ("a.b.example.org", false),
            ("example.org", false),
            ("aexample.org", false),
        ] {
            assert_eq!(wildcard.covers(name), is_covered, "{name}");
        }
        assert!(pattern("mqtt").covers("MQTT") && !pattern("mqtt").covers("a.mqtt"));
        for text in ["", "*", "*.", "a..b", "a b", "*.*.a", "a*.b", "a/b"] {
            assert_eq!(NamePattern::parse(text), None, "{text}");
        }
    }
}
