//! Server names in a configuration.

use std::fmt;

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

    /// Whether the pattern covers this name. A wildcard covers exactly one label, as in certificates (RFC
    /// 9525 §6.3).
    pub fn covers(&self, name: &str) -> bool {
        let name = if self.is_wildcard { name.split_once('.').map(|(_, domain)| domain) } else { Some(name) };
        name.is_some_and(|name| name.eq_ignore_ascii_case(&self.name))
    }

    /// Whether it covers every name that the other one covers.
    pub(crate) fn includes(&self, other: &Self) -> bool {
        self == other || (!other.is_wildcard && self.covers(&other.name))
    }

    /// Whether it stands for all names with one more label.
    pub(crate) const fn is_wildcard(&self) -> bool {
        self.is_wildcard
    }

    /// Whether a certificate with this dNSName suits every server that the pattern covers.
    pub(crate) fn is_named_by(&self, dns_name: &str) -> bool {
        Self::parse(dns_name).is_some_and(|of_certificate| of_certificate.includes(self))
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.is_wildcard { "*." } else { "" }, self.name)
    }
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
