//! The table `[listener.certificate.acme]`: a certificate that the gateway orders and renews by itself (RFC
//! 8555).

use std::net::IpAddr;
use std::path::PathBuf;

use dunlin_pki::KeyType;
use hyper::Uri;
use toml::de::DeValue;

use super::{Field, FileField, Kind, NamePattern, Place, Section};

const DIRECTORY: Kind = Kind {
    name: "the URL of an ACME directory",
    allowed: "write it as in \"https://acme-v02.api.letsencrypt.org/directory\"",
};
const CONTACT: Kind =
    Kind { name: "a contact of at most 254 bytes", allowed: "write it as in \"mailto:admin@example.org\"" };
const NAME: Kind = Kind {
    name: "a host name",
    allowed: "write it as in \"www.example.org\"; wildcards and addresses need files of another program",
};

/// The most names of one certificate, as Let's Encrypt allows.
const MAX_NAMES: usize = 100;

/// The key types that public authorities certify.
const KEY_TYPES: [(&str, KeyType); 5] = [
    ("p256", KeyType::P256),
    ("p384", KeyType::P384),
    ("rsa2048", KeyType::Rsa2048),
    ("rsa3072", KeyType::Rsa3072),
    ("rsa4096", KeyType::Rsa4096),
];

/// How the gateway proves that it controls a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcmeChallenge {
    /// By a TLS handshake (RFC 8737), on any TLS listener of the gateway.
    TlsAlpn01,
    /// By plain HTTP (RFC 8555 §8.3), on the listeners for redirection.
    Http01,
}

impl AcmeChallenge {
    /// Its name in ACME.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TlsAlpn01 => "tls-alpn-01",
            Self::Http01 => "http-01",
        }
    }
}

/// A certificate that the gateway orders and renews.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeConfig {
    /// The URL of the authority's directory.
    pub directory: String,
    /// URLs under which the authority reaches the operator.
    pub contact: Vec<String>,
    /// The names of the certificate, in lower case; at least one.
    pub names: Vec<String>,
    /// The directory for the account, the certificate and its key. Gateways that share it order together.
    pub store: FileField,
    /// Files with the certificates that the directory's own TLS may lead to; empty: the system's
    /// certificates.
    pub ca: Vec<FileField>,
    /// The type of the certificate's key.
    pub key_type: KeyType,
    /// How the gateway proves that it controls the names.
    pub challenge: AcmeChallenge,
    /// The place of the table.
    pub place: Place,
}

/// A directory's URL, if it is one of HTTPS without a user name.
fn directory(text: &str) -> Option<String> {
    let uri: Uri = text.parse().ok()?;
    let is_https = uri.scheme_str() == Some("https") && uri.host().is_some_and(|host| !host.is_empty());
    (is_https && !uri.authority()?.as_str().contains('@')).then(|| text.to_owned())
}

fn contact(value: &DeValue<'_>) -> Option<String> {
    let text = value.as_str()?;
    let (scheme, rest) = text.split_once(':')?;
    let is_url = scheme == "mailto" && !rest.is_empty() && text.len() <= 254;
    (is_url && text.bytes().all(|byte| byte.is_ascii_graphic())).then(|| text.to_owned())
}

fn name(value: &DeValue<'_>) -> Option<String> {
    let text = value.as_str()?;
    let is_name = NamePattern::parse(text).is_some() && !text.starts_with('*');
    (is_name && text.parse::<IpAddr>().is_err()).then(|| text.to_ascii_lowercase())
}

impl AcmeConfig {
    /// Reads the table. `None` if a fault leaves it unusable.
    pub(super) fn read(mut section: Section<'_>) -> Option<Self> {
        let place = section.place().clone();
        let url = section.read("directory", DIRECTORY, |value| directory(value.as_str()?));
        let contact = section.list("contact", CONTACT, contact).unwrap_or_default();
        let names = section.list("names", NAME, name);
        let store = section.file("store");
        let ca = section.files("ca");
        let key_type = section.one_of("key_type", &KEY_TYPES).unwrap_or(KeyType::P256);
        let challenges =
            [AcmeChallenge::TlsAlpn01, AcmeChallenge::Http01].map(|challenge| (challenge.name(), challenge));
        let challenge = section.one_of("challenge", &challenges).unwrap_or(AcmeChallenge::TlsAlpn01);
        let has_agreed = section.switch("terms_agreed");
        for (key, advice) in [
            ("directory", DIRECTORY.allowed),
            ("names", "write the host names of the certificate, as in [\"www.example.org\"]"),
            ("store", "name a directory for the account, the certificate and its key"),
        ] {
            if !section.has(key) {
                section.missing(key, advice);
            }
        }
        if has_agreed != Some(true) && !(section.has("terms_agreed") && has_agreed.is_none()) {
            let what = "an authority issues certificates only to those who agree to its terms of service";
            section.fault(place.fault(what, "read them, and write terms_agreed = true"));
        }
        let mut distinct: Vec<String> = vec![];
        // The faults of single names are known.
        let given = section.length("names");
        let is_complete = (1..=MAX_NAMES).contains(&given);
        for Field { value, place } in names.into_iter().flatten() {
            if distinct.contains(&value) {
                section.fault(place.fault(format!("{value} twice"), "remove one of the two"));
            }
            distinct.push(value);
        }
        if section.has("names") && !is_complete {
            let what = format!("{given} names in names");
            section.fault(place.fault(what, format!("write 1 to {MAX_NAMES} host names")));
        }
        section.end();
        let contact = contact.into_iter().map(|field| field.value).collect();
        let directory = url?.value;
        let names = Some(distinct).filter(|names| is_complete && !names.is_empty())?;
        Some(Self { directory, contact, names, store: store?, ca, key_type, challenge, place })
    }

    /// The directory of this authority in the store: its URL as a file name.
    pub(crate) fn home(&self) -> PathBuf {
        let name = self.directory.trim_start_matches("https://");
        let is_kept = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
        let name: String = name.chars().map(|c| if is_kept(c) { c } else { '_' }).collect();
        // No name begins with a point, and a URL may be longer than a file name.
        let name: String = name.trim_start_matches('.').chars().take(200).collect();
        self.store.value.join(name)
    }

    /// The file with the chain and its key.
    pub(crate) fn file(&self) -> PathBuf {
        let first = self.names.first().map_or("", |name| &**name);
        // A name has at most 253 bytes, and a file name 255.
        let first: String = first.chars().take(200).collect();
        self.home().join(format!("{first}.{}.pem", self.key_type))
    }
}
