//! The identity of a client: the attributes that its authentication proves, with their values.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::time::SystemTime;

use aws_lc_rs::digest::{SHA256, digest};
use const_oid::db::{rfc3280, rfc4519};
use dunlin::PeerIdentity;
use dunlin::auth::{SubjectName, Validity, X509Identity};
use dunlin::pki_types::CertificateDer;
use dunlin::wire::CertificateType;
use dunlin_identity::handshake::CredentialIdentity;
use dunlin_pki::{AlternativeName, Certificate, DistinguishedName};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An attribute of an authenticated client. The set is open: a new kind of identity adds attributes or
/// claims.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Attribute {
    /// How the client authenticated: `x509`, `raw_key`, `psk`, `vc`, `did` or `other`.
    Kind,
    /// The common name of its certificate, where it is an identity ([`X509Identity::common_name`]); the
    /// paper's n. Another common name is in doubt.
    Name,
    /// An e-mail address in its certificate; the paper's e. It stands in an alternative name or, in old
    /// certificates, in the subject.
    Email,
    /// The whole subject, in the notation of RFC 4514.
    Subject,
    /// The issuer of its certificate, in the same notation; the paper's s. Or the DID of the issuer of its
    /// verifiable credential.
    Issuer,
    /// SHA-256 of the public key of the authority that issued its certificate (SubjectPublicKeyInfo, in
    /// hexadecimal), on the path that this side has verified. Unlike a text, another authority cannot have
    /// it.
    IssuerKey,
    /// A DNS name among its alternative names, in lower case.
    Dns,
    /// A URI among its alternative names.
    Uri,
    /// SHA-256 of its certificate, in hexadecimal.
    Fingerprint,
    /// SHA-256 of its public key (SubjectPublicKeyInfo), in hexadecimal.
    Key,
    /// The identity of its pre-shared key: text, or `#` and hexadecimal digits.
    Psk,
    /// The device to which its pre-shared key belongs.
    Device,
    /// Its DID, or the identity in a certificate of another type: text, or `#` and hexadecimal digits.
    Id,
    /// A claim that its credential proves, by name.
    Claim(String),
}

/// The attributes with fixed names. Claims come on top.
pub(super) const ATTRIBUTES: &[(&str, Attribute)] = &[
    ("kind", Attribute::Kind),
    ("name", Attribute::Name),
    ("email", Attribute::Email),
    ("subject", Attribute::Subject),
    ("issuer", Attribute::Issuer),
    ("issuer_key", Attribute::IssuerKey),
    ("dns", Attribute::Dns),
    ("uri", Attribute::Uri),
    ("fingerprint", Attribute::Fingerprint),
    ("key", Attribute::Key),
    ("psk", Attribute::Psk),
    ("device", Attribute::Device),
    ("id", Attribute::Id),
];

/// The prefix of the keys of conditions about claims. The name of the claim follows it.
const CLAIM: &str = "claim.";

impl Attribute {
    /// The attribute with this key in a policy; `None` for an unknown key.
    pub fn from_key(key: &str) -> Option<Self> {
        let named = ATTRIBUTES.iter().find(|(name, _)| *name == key).map(|(_, attribute)| attribute.clone());
        let claim = || Some(Self::Claim(key.strip_prefix(CLAIM).filter(|name| !name.is_empty())?.to_owned()));
        named.or_else(claim)
    }

    /// Its key in a policy.
    pub fn key(&self) -> Cow<'_, str> {
        match self {
            Self::Claim(name) => Cow::Owned(format!("{CLAIM}{name}")),
            other => {
                let named = ATTRIBUTES.iter().find(|(_, attribute)| attribute == other);
                Cow::Borrowed(named.map_or("", |(name, _)| name))
            }
        }
    }

    /// The character that `*` in a pattern does not match: it separates the parts of a value.
    pub(super) const fn separator(&self) -> Option<char> {
        match self {
            Self::Dns => Some('.'),
            Self::Email => Some('@'),
            Self::Subject | Self::Issuer => Some(','),
            Self::Uri => Some('/'),
            _ => None,
        }
    }
}

/// As its key.
impl Serialize for Attribute {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.key())
    }
}

impl<'de> Deserialize<'de> for Attribute {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let key = String::deserialize(deserializer)?;
        Self::from_key(&key).ok_or_else(|| serde::de::Error::custom(format!("unknown attribute {key:?}")))
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key())
    }
}

/// A client as a policy sees it: the paper's C = {name, e-mail, issuer, validity}, and whatever else its
/// authentication proves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    facts: Vec<(Attribute, String)>,
    /// Attributes that its certificate states but does not prove. A rule that these would match may hold.
    #[serde(default)]
    doubtful: Vec<(Attribute, String)>,
    /// The attributes that its credential may have, but that this side has not kept.
    unknown: Vec<Attribute>,
    /// When its credential expires, in seconds since 1970; `None` if it does not.
    not_after_s: Option<u64>,
    /// Whether this side does not know when its credential expires.
    has_unknown_end: bool,
    /// Whether its credential may have claims that this side has not kept.
    #[serde(default)]
    has_unknown_claims: bool,
}

impl Client {
    /// The client that has proved this identity. `validity` is the time span in which the engine's verdict on
    /// it holds, if it has a limit.
    pub fn proven(identity: &PeerIdentity, validity: Option<Validity>) -> Self {
        let mut client = Self::of(identity);
        // Only the engine knows the end of a certificate of another type.
        if let Some(validity) = validity.filter(|_| client.has_unknown_end()) {
            client.set_not_after_s(validity.until_s());
        }
        client
    }

    /// A client that has proved this identity, or claims it. An attribute that the identity has lost since
    /// the full handshake (a session ticket carries no certificate) is unknown, which differs from absent.
    pub fn of(identity: &PeerIdentity) -> Self {
        match identity {
            PeerIdentity::X509(id) => {
                let name = id.common_name.as_deref();
                let leaf = id.chain.first().and_then(|leaf| Self::from_leaf(leaf, name));
                let mut client = leaf.unwrap_or_else(|| Self::without_certificate(id));
                client.add(Attribute::Fingerprint, hex(&id.fingerprint));
                if let Some(key) = id.details.as_ref().and_then(|details| details.issuer_key()) {
                    client.know_issuer_key(hex(key));
                }
                // The verdict on a chain may end before its leaf expires.
                client.not_after_s = Some(id.not_after_s);
                client
            }
            PeerIdentity::RawKey(key) => Self::with_raw_key(key),
            PeerIdentity::Psk(id) => {
                let mut client = Self::with_psk(&id.identity, id.name.as_deref());
                if !id.is_name_known {
                    client.set_unknown(Attribute::Device);
                }
                client
            }
            PeerIdentity::Other(id) => {
                if let Some(credential) = CredentialIdentity::of(identity) {
                    return Self::of_credential(&credential, id.key_fingerprint());
                }
                let is_did = id.certificate_type() == CertificateType::DECENTRALISED_IDENTIFIER;
                let mut client = Self::of_kind(if is_did { "did" } else { "other" });
                client.add(Attribute::Id, text_of(id.id()));
                client.add(Attribute::Key, hex(id.key_fingerprint()));
                // A DID has no end of its own.
                client.has_unknown_end = !is_did;
                client
            }
            // A later kind of identity has no attributes until this function names them.
            _ => Self::of_kind("other"),
        }
    }

    /// The client with a verifiable credential, and a key with this fingerprint. A claim that is a list has
    /// several values; numbers, truth values and objects are written as JSON.
    fn of_credential(credential: &CredentialIdentity, key: &[u8]) -> Self {
        let mut client = Self::of_kind("vc");
        client.add(Attribute::Id, credential.did.to_string());
        client.add(Attribute::Issuer, credential.issuer.to_string());
        client.add(Attribute::Key, hex(key));
        client.not_after_s = credential.valid_until.map(|until| u64::try_from(until).unwrap_or(0));
        client.has_unknown_claims = credential.claims.is_none();
        for (name, value) in credential.claims.iter().flatten() {
            let values = value.as_array().map_or_else(|| std::slice::from_ref(value), Vec::as_slice);
            for value in values {
                let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
                client.add(Attribute::Claim(name.clone()), text);
            }
        }
        client
    }

    /// The client of an X.509 certificate in DER. `None` if it cannot be parsed. The caller verifies the
    /// certificate. Its issuer's key is unknown: only a verified path tells it.
    pub fn from_certificate(der: &[u8]) -> Option<Self> {
        let id = X509Identity::of_leaf(&CertificateDer::from(der));
        Self::from_leaf(der, id.and_then(|id| id.common_name).as_deref())
    }

    /// The client of a certificate in DER whose common name, as an identity, is `name`.
    fn from_leaf(der: &[u8], name: Option<&str>) -> Option<Self> {
        let certificate = Certificate::from_der(der).ok()?;
        let mut client = Self::of_kind("x509");
        client.set_unknown(Attribute::IssuerKey);
        client.add(Attribute::Fingerprint, sha256(der));
        client.add(Attribute::Key, sha256(certificate.public_key()));
        client.add_names(certificate.subject(), certificate.issuer(), name);
        for name in certificate.alternative_names().ok()? {
            match name {
                AlternativeName::Dns(name) => client.add(Attribute::Dns, name.to_ascii_lowercase()),
                AlternativeName::Uri(uri) => client.add(Attribute::Uri, uri),
                AlternativeName::Email(address) => client.add(Attribute::Email, email(&address)),
                _ => {}
            }
        }
        let not_after = certificate.not_after().duration_since(SystemTime::UNIX_EPOCH);
        client.not_after_s = Some(not_after.map_or(0, |not_after| not_after.as_secs()));
        Some(client)
    }

    /// Adds the key of the certificate's issuer, if exactly one key among the certificates has its name.
    pub(super) fn issued_by_one_of(
        mut self,
        leaf: &[u8],
        certificates: impl Iterator<Item = CertificateDer<'static>>,
    ) -> Self {
        let Ok(leaf) = Certificate::from_der(leaf) else { return self };
        let key = |certificate: CertificateDer<'_>| {
            let certificate = Certificate::from_der(&certificate).ok()?;
            (certificate.subject() == leaf.issuer()).then(|| sha256(certificate.public_key()))
        };
        let keys: BTreeSet<String> = certificates.filter_map(key).collect();
        let mut keys = keys.into_iter();
        if let (Some(key), None) = (keys.next(), keys.next()) {
            self.know_issuer_key(key);
        }
        self
    }

    /// The client of an X.509 identity from a session ticket or cache entry, which keep no certificate.
    fn without_certificate(id: &X509Identity) -> Self {
        let mut client = Self::of_kind("x509");
        for name in &id.names {
            match name {
                SubjectName::Dns(name) => client.add(Attribute::Dns, name.to_ascii_lowercase()),
                SubjectName::Uri(uri) => client.add(Attribute::Uri, uri.clone()),
                _ => {}
            }
        }
        client.unknown = vec![Attribute::Key, Attribute::IssuerKey];
        let kept = id.details.as_ref().and_then(|details| {
            let name = DistinguishedName::from_der;
            Some((name(details.subject())?, name(details.issuer())?, details))
        });
        match (kept, &id.common_name) {
            (Some((subject, issuer, details)), _) => {
                client.add_names(&subject, &issuer, id.common_name.as_deref());
                details.emails().for_each(|address| client.add(Attribute::Email, email(address)));
                return client;
            }
            (None, Some(name)) => client.add(Attribute::Name, name.clone()),
            (None, None) => {}
        }
        // The engine keeps at most one common name, and only of certificates without other names.
        client.unknown.extend([Attribute::Name, Attribute::Email, Attribute::Subject, Attribute::Issuer]);
        client
    }

    /// The client as a session or an entry of the handshake cache names it: its certificate is gone.
    /// `keeps_details` says whether these keep subject, issuer and e-mail addresses.
    #[must_use]
    pub fn without_its_certificate(&self, keeps_details: bool) -> Self {
        use Attribute::{Email, Issuer, IssuerKey, Name, Subject};
        let mut client = self.clone();
        if !client.values(&Attribute::Kind).any(|kind| kind == "x509") {
            return client;
        }
        let details = [Email, Issuer, IssuerKey, Name, Subject];
        let lost = details.into_iter().filter(|_| !keeps_details).chain([Attribute::Key]);
        lost.for_each(|attribute| {
            client.facts.retain(|(known, _)| *known != attribute);
            client.doubtful.retain(|(known, _)| *known != attribute);
            client.set_unknown(attribute);
        });
        client
    }

    /// Adds subject and issuer of a certificate. `name` is its common name, if this is an identity: a backend
    /// that receives another name must not serve a client that the policy knows by this one.
    fn add_names(&mut self, subject: &DistinguishedName, issuer: &DistinguishedName, name: Option<&str>) {
        self.add(Attribute::Subject, subject.to_string());
        self.add(Attribute::Issuer, issuer.to_string());
        for address in subject.texts(rfc3280::EMAIL_ADDRESS) {
            match address {
                Some(address) => self.add(Attribute::Email, email(address)),
                // A rule may look at a part that this function cannot read.
                None => self.set_unknown(Attribute::Email),
            }
        }
        let mut names = subject.texts(rfc4519::COMMON_NAME);
        match (name, names.next(), names.next()) {
            (Some(name), ..) => self.add(Attribute::Name, name.to_owned()),
            (None, None, _) => {}
            (None, Some(Some(name)), None) => self.doubtful.push((Attribute::Name, name.to_owned())),
            (None, ..) => self.set_unknown(Attribute::Name),
        }
    }

    /// Adds SHA-256 of the key of its certificate's issuer, in hexadecimal.
    pub(super) fn know_issuer_key(&mut self, digest: String) {
        self.unknown.retain(|attribute| *attribute != Attribute::IssuerKey);
        self.add(Attribute::IssuerKey, digest);
    }

    /// The client with this raw public key, a SubjectPublicKeyInfo in DER.
    pub fn with_raw_key(key: &[u8]) -> Self {
        let mut client = Self::of_kind("raw_key");
        client.add(Attribute::Key, sha256(key));
        client
    }

    /// The client with the pre-shared key of this identity, which may belong to a device.
    pub fn with_psk(identity: &[u8], device: Option<&str>) -> Self {
        let mut client = Self::of_kind("psk");
        client.add(Attribute::Psk, text_of(identity));
        if let Some(device) = device {
            client.add(Attribute::Device, device.to_owned());
        }
        client
    }

    /// A client about which only its kind is known.
    pub fn of_kind(kind: &str) -> Self {
        Self { facts: vec![(Attribute::Kind, kind.to_owned())], ..Self::default() }
    }

    /// Adds a value that its authentication proves. An attribute may have several values.
    pub fn add(&mut self, attribute: Attribute, value: String) {
        let fact = (attribute, value);
        if !self.facts.contains(&fact) {
            self.facts.push(fact);
        }
    }

    /// Marks an attribute as one that the client may have, but that this side has not kept.
    pub fn set_unknown(&mut self, attribute: Attribute) {
        if !self.unknown.contains(&attribute) {
            self.unknown.push(attribute);
        }
    }

    /// Sets when its credential expires, in seconds since 1970; the paper's v.
    pub const fn set_not_after_s(&mut self, not_after_s: u64) {
        self.not_after_s = Some(not_after_s);
        self.has_unknown_end = false;
    }

    /// Marks the expiry of its credential as unknown.
    pub const fn set_unknown_end(&mut self) {
        self.has_unknown_end = true;
    }

    /// Whether this side does not know when its credential expires.
    pub const fn has_unknown_end(&self) -> bool {
        self.has_unknown_end
    }

    /// Everything known about it, in no particular order.
    pub fn facts(&self) -> &[(Attribute, String)] {
        &self.facts
    }

    /// Attributes that its certificate states but does not prove: a common name that is no identity.
    pub fn doubtful(&self) -> &[(Attribute, String)] {
        &self.doubtful
    }

    /// The values of an attribute.
    pub fn values<'a>(&'a self, attribute: &'a Attribute) -> impl Iterator<Item = &'a str> {
        let of = self.facts.iter().filter(move |(name, _)| name == attribute);
        of.map(|(_, value)| value.as_str())
    }

    /// Whether it may have values of this attribute that this side has not kept.
    pub fn is_unknown(&self, attribute: &Attribute) -> bool {
        let is_claim = matches!(attribute, Attribute::Claim(_));
        self.unknown.contains(attribute) || (is_claim && self.has_unknown_claims)
    }

    /// When its credential expires, in seconds since 1970. `None` if it does not, or if that is not known.
    pub const fn not_after_s(&self) -> Option<u64> {
        self.not_after_s
    }
}

/// The client in one line: the attributes that tell it apart, with control characters escaped.
impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let telling = [
            Attribute::Name,
            Attribute::Email,
            Attribute::Dns,
            Attribute::Uri,
            Attribute::Device,
            Attribute::Psk,
            Attribute::Id,
            Attribute::Fingerprint,
            Attribute::Key,
        ];
        f.write_str(self.values(&Attribute::Kind).next().unwrap_or("unknown"))?;
        let first = telling.iter().find_map(|attribute| Some((attribute, self.values(attribute).next()?)));
        match first {
            Some((attribute, value)) => write!(f, " {attribute}={}", value.escape_debug()),
            None => Ok(()),
        }
    }
}

/// An e-mail address with its domain in lower case: domains have no case (RFC 5280 §4.2.1.6).
pub(crate) fn email(address: &str) -> String {
    match address.rsplit_once('@') {
        Some((user, domain)) => format!("{user}@{}", domain.to_ascii_lowercase()),
        None => address.to_owned(),
    }
}

/// Bytes as text: plain if they are printable, else hexadecimal digits after a `#`.
fn text_of(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.starts_with('#') && !text.contains(char::is_control) => text.to_owned(),
        _ => format!("#{}", hex(bytes)),
    }
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    base16ct::lower::encode_string(bytes)
}
