//! The transport and the versions of a listener.

use toml::de::DeValue;

use super::{Kind, Section};

const VERSION: Kind =
    Kind { name: "an enabled version", allowed: "write \"1.2\" or \"1.3\", or both in an array" };

/// Whether clients come over TCP or UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportKind {
    /// TLS over TCP.
    Tls,
    /// DTLS over UDP.
    Dtls,
}

/// The enabled versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// TLS 1.2.
    pub tls12: bool,
    /// TLS 1.3.
    pub tls13: bool,
}

/// Reads the enabled versions: by default both.
pub(crate) fn versions(section: &mut Section<'_>, has_policy: bool) -> Versions {
    let parse = |value: &DeValue<'_>| match value.as_str()? {
        "1.2" => Some(false),
        "1.3" => Some(true),
        _ => None,
    };
    match section.list("versions", VERSION, parse) {
        Some(list) if has_policy => {
            if let Some(first) = list.first() {
                let what = "the profiles of the policy say which versions are enabled";
                section.fault(first.place.fault(what, "leave versions out, or the key policy"));
            }
            Versions { tls12: true, tls13: true }
        }
        None => Versions { tls12: true, tls13: true },
        Some(list) => Versions {
            tls12: list.iter().any(|version| !version.value),
            tls13: list.is_empty() || list.iter().any(|version| version.value),
        },
    }
}
