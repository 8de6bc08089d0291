//! Specifications of the certificates to be made.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use const_oid::db::rfc4519;
use der::asn1::{Any, Ia5String, OctetString, SetOfVec, Utf8StringRef};
use der::{Decode, Encode};
use pki_types::DnsName;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::{Name, RdnSequence, RelativeDistinguishedName};

use crate::error::encoding;
use crate::{Error, Validity};

/// How much a certificate contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Form {
    /// Everything that RFC 5280 asks for: key identifiers, key usage, purposes, and a serial number with 70
    /// random bits (draft-ietf-uta-tls13-iot-profile).
    #[default]
    Full,
    /// The smallest certificate that webpki, OpenSSL and GnuTLS accept. It leaves out
    /// * the key identifiers (RFC 5280 §4.2.1.1, §4.2.1.2), which help to choose among authorities with the
    ///   same name;
    /// * a leaf's key usage, and its purposes unless there is exactly one: without them its use is
    ///   unrestricted;
    /// * 24 of the 70 random bits of the serial number. Among n certificates of one authority, two share a
    ///   number with a probability of about n²/2^47: 0.7 % for a million. Serial numbers matter for
    ///   revocation only.
    Lean,
}

/// The purpose of a leaf: an extended key usage (RFC 5280 §4.2.1.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Purpose {
    /// TLS server authentication.
    Server,
    /// TLS client authentication.
    Client,
}

/// The content of an authority's certificate to be made.
#[derive(Clone, Debug)]
pub struct CaSpec {
    /// The authority's name. It must not be empty: it is the issuer's name in other certificates (RFC 5280
    /// §4.1.2.4).
    pub subject: Subject,
    /// The first and last moment of its validity.
    pub validity: Validity,
    /// How many further authorities may stand between it and a leaf; `None`: any number.
    pub path_len: Option<u8>,
    /// How much the certificate contains.
    pub form: Form,
}

impl CaSpec {
    /// A certificate in full form, without a path limit.
    pub fn new(subject: Subject, validity: Validity) -> Self {
        Self { subject, validity, path_len: None, form: Form::Full }
    }
}

/// The content of a server's or client's certificate to be made.
#[derive(Clone, Debug)]
pub struct LeafSpec {
    /// The holder's name for people; empty where `names` suffice. Host names belong into `names` only (RFC
    /// 9525 §2).
    pub subject: Subject,
    /// The holder's names for machines: a server's host names and addresses, a client's identifiers.
    pub names: Vec<AltName>,
    /// The purposes; empty: unrestricted.
    pub purposes: BTreeSet<Purpose>,
    /// The first and last moment of its validity.
    pub validity: Validity,
    /// How much the certificate contains.
    pub form: Form,
}

impl LeafSpec {
    /// A server's certificate, in full form, without a subject.
    pub fn server(names: impl IntoIterator<Item = AltName>, validity: Validity) -> Self {
        Self {
            subject: Subject::default(),
            names: names.into_iter().collect(),
            purposes: [Purpose::Server].into(),
            validity,
            form: Form::Full,
        }
    }

    /// A client's certificate, in full form.
    pub fn client(subject: Subject, validity: Validity) -> Self {
        Self { subject, names: vec![], purposes: [Purpose::Client].into(), validity, form: Form::Full }
    }
}

/// A distinguished name (RFC 5280 §4.1.2.6).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject(Name);

impl Subject {
    /// The longest common name, in characters (ub-common-name, RFC 5280 §A.1).
    pub const MAX_COMMON_NAME: usize = 64;

    /// A subject that consists of one common name.
    ///
    /// # Errors
    /// [`Error::BadSubject`] if `name` is empty or longer than [`Subject::MAX_COMMON_NAME`].
    pub fn common_name(name: &str) -> Result<Self, Error> {
        let bad = || Error::BadSubject(name.to_owned());
        let value = Utf8StringRef::new(name).map_err(|_| bad())?;
        let attribute = AttributeTypeAndValue { oid: rfc4519::CN, value: Any::from(value) };
        let rdn = SetOfVec::try_from(vec![attribute]).map_err(encoding)?;
        let mut sequence = RdnSequence::default();
        sequence.push(RelativeDistinguishedName::from(rdn));
        Self::checked(sequence).ok_or_else(bad)
    }

    /// Whether the subject is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn name(&self) -> &Name {
        &self.0
    }

    fn checked(sequence: RdnSequence) -> Option<Self> {
        let common_names =
            sequence.iter().flat_map(RelativeDistinguishedName::iter).filter(|a| a.oid == rfc4519::CN);
        for attribute in common_names {
            let length = std::str::from_utf8(attribute.value.value()).ok()?.chars().count();
            if !(1..=Self::MAX_COMMON_NAME).contains(&length) {
                return None;
            }
        }
        // x509-cert converts a sequence to a name only through its DER.
        Name::from_der(&sequence.to_der().ok()?).ok().map(Self)
    }
}

/// Reads `CN=name` or any other name in the notation of RFC 4514. Text without `=` is a common name.
impl FromStr for Subject {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if !text.contains('=') {
            return Self::common_name(text);
        }
        let sequence = RdnSequence::from_str(text).ok().and_then(Self::checked);
        sequence.ok_or_else(|| Error::BadSubject(text.to_owned()))
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A subject alternative name (RFC 5280 §4.2.1.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AltName {
    /// A host name, which may have `*` as its first label.
    Dns(String),
    /// An IP address.
    Ip(IpAddr),
    /// A URI, such as a DID or a device's URN.
    Uri(String),
}

impl AltName {
    fn dns(name: &str) -> Option<Self> {
        DnsName::try_from(name.strip_prefix("*.").unwrap_or(name)).ok()?;
        Some(Self::Dns(name.to_owned()))
    }

    /// Takes a scheme, a colon and printable ASCII, which an IA5String can hold (RFC 3986 §3.1, RFC 5280
    /// §4.2.1.6).
    fn uri(uri: &str) -> Option<Self> {
        let (scheme, rest) = uri.split_once(':')?;
        let scheme_ok = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+-.".contains(&b));
        let rest_ok = !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_graphic());
        (scheme_ok && rest_ok).then(|| Self::Uri(uri.to_owned()))
    }

    pub(crate) fn encoded(&self) -> Result<GeneralName, Error> {
        let ia5 = |text: &str| Ia5String::new(text).map_err(encoding);
        Ok(match self {
            Self::Dns(name) => GeneralName::DnsName(ia5(name)?),
            Self::Uri(uri) => GeneralName::UniformResourceIdentifier(ia5(uri)?),
            Self::Ip(IpAddr::V4(a)) => {
                GeneralName::IpAddress(OctetString::new(a.octets()).map_err(encoding)?)
            }
            Self::Ip(IpAddr::V6(a)) => {
                GeneralName::IpAddress(OctetString::new(a.octets()).map_err(encoding)?)
            }
        })
    }
}

/// Reads `DNS:name`, `IP:address` or `URI:uri`, as OpenSSL writes them. Without a prefix, the form of the
/// text decides. Text with a colon is rejected unless it is clearly an IP address or a URI: it may be
/// `host:port` or a misspelt prefix.
impl FromStr for AltName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let ip = |text: &str| text.parse().ok().map(Self::Ip);
        let found = match text.split_once(':') {
            Some((kind, name)) if kind.eq_ignore_ascii_case("dns") => Self::dns(name),
            Some((kind, address)) if kind.eq_ignore_ascii_case("ip") => ip(address),
            Some((kind, uri)) if kind.eq_ignore_ascii_case("uri") => Self::uri(uri),
            Some((scheme, _)) if text.contains("://") || ["did", "urn"].contains(&scheme) => Self::uri(text),
            _ => ip(text).or_else(|| Self::dns(text)),
        };
        found.ok_or_else(|| Error::BadAltName(text.to_owned()))
    }
}

impl fmt::Display for AltName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(name) => write!(f, "DNS:{name}"),
            Self::Ip(address) => write!(f, "IP:{address}"),
            Self::Uri(uri) => write!(f, "URI:{uri}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_dns_names_addresses_and_uris_and_rejects_other_text() {
        for (text, want) in [
            ("localhost", "DNS:localhost"),
            ("*.example.com", "DNS:*.example.com"),
            ("127.0.0.1", "IP:127.0.0.1"),
            ("::1", "IP:::1"),
            ("ip:::1", "IP:::1"),
            ("dns:a.example", "DNS:a.example"),
            ("did:key:z6Mk", "URI:did:key:z6Mk"),
            ("uri:dns:a.example", "URI:dns:a.example"),
            ("https://a.example/x", "URI:https://a.example/x"),
            ("uri:localhost:4433", "URI:localhost:4433"),
            ("urn:dev:mac:0024befffe804ff1", "URI:urn:dev:mac:0024befffe804ff1"),
        ] {
            assert_eq!(text.parse::<AltName>().unwrap().to_string(), want, "{text}");
        }
        for text in [
            "",
            "dns:",
            "dns:*",
            "*.",
            "a b",
            "ip:localhost",
            "uri:localhost",
            "localhost:4433",
            "127.0.0.1:4433",
            "DSN:gw",
            "uri:x:",
            "x:ü",
            "1.2.3.4.5.",
            "dns:a..b",
        ] {
            assert_eq!(text.parse::<AltName>(), Err(Error::BadAltName(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn reads_subjects_and_rejects_empty_or_too_long_common_names() {
        for (text, want) in [
            ("device 7", "CN=device 7"),
            ("CN=a,O=b", "CN=a,O=b"),
            ("O=Example\\, Inc.,C=DE", "O=Example\\, Inc.,C=DE"),
            ("Küche", "CN=Küche"),
        ] {
            assert_eq!(text.parse::<Subject>().unwrap().to_string(), want);
        }
        let long = "x".repeat(65);
        for text in ["", "CN=", "nonsense=1", &long, &format!("O=b,CN={long}")] {
            assert_eq!(text.parse::<Subject>(), Err(Error::BadSubject(text.to_owned())), "{text}");
        }
        assert!("x".repeat(64).parse::<Subject>().is_ok());
    }
}
