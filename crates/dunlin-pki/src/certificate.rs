//! Certificates, parsed (RFC 5280 §4.1).
//!
//! x509-cert's own type fails at names with a UniversalString, which RFC 5280 §4.1.2.4 allows, and other
//! strings that the crate `der` does not know. This one leaves names to [`DistinguishedName`].

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::SystemTime;

use const_oid::AssociatedOid;
use der::asn1::{Any, BitString};
use der::{Decode, Encode, ErrorKind, Sequence, Tag, Tagged};
use pki_types::SubjectPublicKeyInfoDer;
use x509_cert::certificate::{Raw, Version};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};
use x509_cert::time::Validity;

use crate::{DistinguishedName, Error};

/// A certificate. Nothing is validated, not even the signature. Its serial number may have any length: some
/// authorities issue longer ones than the 20 bytes of RFC 5280 §4.1.2.2.
#[derive(Clone, Debug)]
pub struct Certificate {
    pub(crate) fields: Fields,
    issuer: DistinguishedName,
    subject: DistinguishedName,
    public_key: SubjectPublicKeyInfoDer<'static>,
}

#[derive(Clone, Debug, Sequence)]
pub(crate) struct Fields {
    pub(crate) tbs: Tbs,
    pub(crate) signature_algorithm: AlgorithmIdentifierOwned,
    pub(crate) signature: BitString,
}

#[derive(Clone, Debug, Sequence)]
pub(crate) struct Tbs {
    #[asn1(context_specific = "0", default = "Default::default")]
    pub(crate) version: Version,
    pub(crate) serial_number: SerialNumber<Raw>,
    pub(crate) signature: AlgorithmIdentifierOwned,
    pub(crate) issuer: Any,
    pub(crate) validity: Validity<Raw>,
    pub(crate) subject: Any,
    pub(crate) subject_public_key_info: SubjectPublicKeyInfoOwned,
    #[asn1(context_specific = "1", tag_mode = "IMPLICIT", optional = "true")]
    issuer_unique_id: Option<BitString>,
    #[asn1(context_specific = "2", tag_mode = "IMPLICIT", optional = "true")]
    subject_unique_id: Option<BitString>,
    #[asn1(context_specific = "3", tag_mode = "EXPLICIT", optional = "true")]
    pub(crate) extensions: Option<Vec<Extension>>,
}

impl Certificate {
    /// Reads a certificate from DER.
    ///
    /// # Errors
    /// [`Error::MalformedCertificate`].
    pub fn from_der(der: &[u8]) -> Result<Self, Error> {
        Self::read(der).map_err(|error| Error::MalformedCertificate(error.to_string()))
    }

    pub(crate) fn read(der: &[u8]) -> der::Result<Self> {
        let fields = Fields::from_der(der)?;
        let name = |name: &Any| {
            DistinguishedName::from_der(&name.to_der()?).ok_or_else(|| der::Error::from(ErrorKind::Failed))
        };
        let issuer = name(&fields.tbs.issuer)?;
        let subject = name(&fields.tbs.subject)?;
        let public_key = fields.tbs.subject_public_key_info.to_der()?.into();
        Ok(Self { fields, issuer, subject, public_key })
    }

    /// The issuer's name.
    pub const fn issuer(&self) -> &DistinguishedName {
        &self.issuer
    }

    /// The subject's name; may be empty.
    pub const fn subject(&self) -> &DistinguishedName {
        &self.subject
    }

    /// The SubjectPublicKeyInfo.
    pub const fn public_key(&self) -> &SubjectPublicKeyInfoDer<'static> {
        &self.public_key
    }

    /// The last moment of its validity.
    pub fn not_after(&self) -> SystemTime {
        self.fields.tbs.validity.not_after.to_system_time()
    }

    /// The subject alternative names.
    ///
    /// # Errors
    /// [`Error::MalformedCertificate`] if one does not parse.
    pub fn alternative_names(&self) -> Result<Vec<AlternativeName>, Error> {
        self.read_names().map_err(|error| Error::MalformedCertificate(error.to_string()))
    }

    pub(crate) fn read_names(&self) -> der::Result<Vec<AlternativeName>> {
        let names = self.extension_value::<SubjectAltName>()?.map(Vec::<Any>::from_der).transpose()?;
        names.iter().flatten().map(AlternativeName::read).collect()
    }

    /// An extension, decoded.
    pub(crate) fn extension<'a, T: Decode<'a, Error = der::Error> + AssociatedOid>(
        &'a self,
    ) -> der::Result<Option<T>> {
        self.extension_value::<T>()?.map(T::from_der).transpose()
    }

    /// The value of an extension. RFC 5280 §4.2: a certificate "MUST NOT include more than one instance".
    fn extension_value<T: AssociatedOid>(&self) -> der::Result<Option<&[u8]>> {
        let mut all = self.fields.tbs.extensions.iter().flatten().filter(|e| e.extn_id == T::OID);
        match (all.next(), all.next()) {
            (first, None) => Ok(first.map(|extension| extension.extn_value.as_bytes())),
            _ => Err(ErrorKind::Failed.into()),
        }
    }

    pub(crate) fn is_self_issued(&self) -> bool {
        self.subject == self.issuer
    }
}

/// A subject alternative name (RFC 5280 §4.2.1.6).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AlternativeName {
    /// A DNS name.
    Dns(String),
    /// An e-mail address.
    Email(String),
    /// A URI.
    Uri(String),
    /// A distinguished name.
    Directory(DistinguishedName),
    /// Another kind of name, as text.
    Other(String),
}

impl AlternativeName {
    fn read(name: &Any) -> der::Result<Self> {
        // directoryName [4]. The tag is explicit, because a name is a choice.
        if matches!(name.tag(), Tag::ContextSpecific { number, .. } if number.value() == 4) {
            let name = DistinguishedName::from_der(name.value());
            return name.map(Self::Directory).ok_or_else(|| ErrorKind::Failed.into());
        }
        Ok(match GeneralName::from_der(&name.to_der()?)? {
            GeneralName::DnsName(name) => Self::Dns(name.to_string()),
            GeneralName::Rfc822Name(address) => Self::Email(address.to_string()),
            GeneralName::UniformResourceIdentifier(uri) => Self::Uri(uri.to_string()),
            GeneralName::DirectoryName(name) => Self::Other(format!("dirName:{name}")),
            GeneralName::RegisteredId(oid) => Self::Other(format!("RID:{oid}")),
            GeneralName::IpAddress(bytes) => Self::Other(address(bytes.as_bytes())),
            GeneralName::OtherName(other) => Self::Other(format!("otherName:{}", other.type_id)),
            GeneralName::EdiPartyName(_) => Self::Other("ediPartyName".into()),
        })
    }
}

fn address(bytes: &[u8]) -> String {
    if let Ok(octets) = <[u8; 4]>::try_from(bytes) {
        format!("IP:{}", Ipv4Addr::from(octets))
    } else if let Ok(octets) = <[u8; 16]>::try_from(bytes) {
        format!("IP:{}", Ipv6Addr::from(octets))
    } else {
        bytes.iter().fold("IP:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
    }
}

/// The name with its kind: `DNS:localhost`.
impl fmt::Display for AlternativeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(name) => write!(f, "DNS:{name}"),
            Self::Email(address) => write!(f, "email:{address}"),
            Self::Uri(uri) => write!(f, "URI:{uri}"),
            Self::Directory(name) => write!(f, "dirName:{name}"),
            Self::Other(text) => f.write_str(text),
        }
    }
}
