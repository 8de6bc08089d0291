//! Describes certificates, public keys and CRLs for people and reports.

use std::time::SystemTime;

use const_oid::db::{DB, fips204, rfc5912, rfc8410};
use const_oid::{AssociatedOid, ObjectIdentifier};
use der::asn1::UintRef;
use der::{Decode, Encode, Sequence};
use pki_types::SubjectPublicKeyInfoDer;
use serde::{Serialize, Serializer};
use x509_cert::ext::pkix::{BasicConstraints, CrlReason, ExtendedKeyUsage, KeyUsage};
use x509_cert::spki::{SubjectPublicKeyInfoOwned, SubjectPublicKeyInfoRef};

use crate::certificate::Fields;
use crate::{Certificate, CertificateList, DistinguishedName, Error, RevokedCert, format_time};

/// The content of a certificate. Nothing is validated, not even the signature.
#[derive(Clone, Debug, Serialize)]
pub struct CertificateInfo {
    /// The subject in the notation of RFC 4514; may be empty.
    pub subject: String,
    /// The issuer in the same notation.
    pub issuer: String,
    /// The serial number in hexadecimal.
    pub serial: String,
    /// The first moment of its validity.
    #[serde(serialize_with = "time")]
    pub not_before: SystemTime,
    /// The last moment of its validity.
    #[serde(serialize_with = "time")]
    pub not_after: SystemTime,
    /// The subject alternative names, each with its kind: `DNS:localhost`.
    pub names: Vec<String>,
    /// Whether it belongs to an authority, which may issue certificates.
    pub ca: bool,
    /// How many further authorities may stand between it and a leaf; `None`: any number.
    pub path_len: Option<u8>,
    /// The key usages by their names in RFC 5280 §4.2.1.3; empty: unrestricted.
    pub key_usages: Vec<String>,
    /// The extended key usages; empty: unrestricted.
    pub purposes: Vec<String>,
    /// The public key.
    pub public_key: PublicKeyInfo,
    /// The algorithm of the issuer's signature.
    pub signature_algorithm: String,
    /// SHA-256 of the whole certificate, in hexadecimal.
    pub sha256: String,
    /// Its size in bytes.
    pub bytes: usize,
    /// The size of each part; the sizes add up to [`CertificateInfo::bytes`].
    pub parts: Vec<Part>,
}

/// The description of a public key.
#[derive(Clone, Debug, Serialize)]
pub struct PublicKeyInfo {
    /// Its algorithm and size: `RSA 2048`, `RSA-PSS 2048`, `P-256`, `Ed25519`; for others the name or OID of
    /// the algorithm.
    pub algorithm: String,
    /// SHA-256 of the SubjectPublicKeyInfo, in hexadecimal.
    pub sha256: String,
    /// The size of the SubjectPublicKeyInfo in bytes.
    pub bytes: usize,
}

/// A part of a certificate and its size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// The field's name in RFC 5280, or the extension's name.
    pub name: String,
    /// Its size in bytes, including tag and length.
    pub bytes: usize,
}

/// The content of a CRL. Nothing is validated, not even the signature.
#[derive(Clone, Debug, Serialize)]
pub struct RevocationListInfo {
    /// The issuer in the notation of RFC 4514.
    pub issuer: String,
    /// The CRL number; `None` if it has none.
    pub number: Option<u64>,
    /// When the issuer made it.
    #[serde(serialize_with = "time")]
    pub this_update: SystemTime,
    /// When the issuer publishes the next one at the latest; `None` if the CRL does not say.
    #[serde(serialize_with = "optional_time")]
    pub next_update: Option<SystemTime>,
    /// The revoked certificates.
    pub revoked: Vec<RevokedInfo>,
    /// The algorithm of the issuer's signature.
    pub signature_algorithm: String,
    /// SHA-256 of the whole CRL, in hexadecimal.
    pub sha256: String,
    /// Its size in bytes.
    pub bytes: usize,
}

/// A revoked certificate.
#[derive(Clone, Debug, Serialize)]
pub struct RevokedInfo {
    /// Its serial number in hexadecimal.
    pub serial: String,
    /// When it was revoked.
    #[serde(serialize_with = "time")]
    pub since: SystemTime,
    /// The reason, by its name in RFC 5280 §5.3.1; `None` if the CRL gives none.
    pub reason: Option<String>,
}

impl RevocationListInfo {
    /// Reads the description from DER.
    ///
    /// # Errors
    /// [`Error::MalformedList`].
    pub fn from_der(der: &[u8]) -> Result<Self, Error> {
        Self::read(der).map_err(|error| Error::MalformedList(error.to_string()))
    }

    fn read(der: &[u8]) -> der::Result<Self> {
        let list = CertificateList::from_der(der)?;
        let tbs = &list.tbs_cert_list;
        Ok(Self {
            issuer: DistinguishedName::from_der(&tbs.issuer.to_der()?)
                .map_or_else(|| tbs.issuer.to_string(), |issuer| issuer.to_string()),
            number: crate::crl::number(tbs)?,
            this_update: tbs.this_update.to_system_time(),
            next_update: tbs.next_update.map(|time| time.to_system_time()),
            revoked: tbs.revoked_certificates.iter().flatten().map(revoked).collect::<der::Result<_>>()?,
            signature_algorithm: oid_name(&list.signature_algorithm.oid),
            sha256: sha256(der),
            bytes: der.len(),
        })
    }
}

fn revoked(entry: &RevokedCert) -> der::Result<RevokedInfo> {
    let mut extensions = entry.crl_entry_extensions.iter().flatten();
    let reason = extensions.find(|extension| extension.extn_id == CrlReason::OID);
    let reason = reason.map(|reason| CrlReason::from_der(reason.extn_value.as_bytes())).transpose()?;
    Ok(RevokedInfo {
        serial: hex(entry.serial_number.as_bytes()),
        since: entry.revocation_date.to_system_time(),
        reason: reason.map(|reason| lower_first(&format!("{reason:?}"))),
    })
}

impl CertificateInfo {
    /// Reads the description from DER.
    ///
    /// # Errors
    /// [`Error::MalformedCertificate`].
    pub fn from_der(der: &[u8]) -> Result<Self, Error> {
        Self::read(der).map_err(|error| Error::MalformedCertificate(error.to_string()))
    }

    fn read(der: &[u8]) -> der::Result<Self> {
        let certificate = Certificate::read(der)?;
        let tbs = &certificate.fields.tbs;
        let constraints = certificate.extension::<BasicConstraints>()?;
        let usages = certificate.extension::<KeyUsage>()?.map(|usage| usage.0).unwrap_or_default();
        let purposes = certificate.extension::<ExtendedKeyUsage>()?.map(|usage| usage.0).unwrap_or_default();
        Ok(Self {
            subject: certificate.subject().to_string(),
            issuer: certificate.issuer().to_string(),
            serial: hex(tbs.serial_number.as_bytes()),
            not_before: tbs.validity.not_before.to_system_time(),
            not_after: certificate.not_after(),
            names: certificate.read_names()?.iter().map(ToString::to_string).collect(),
            ca: constraints.as_ref().is_some_and(|constraints| constraints.ca),
            path_len: constraints.and_then(|constraints| constraints.path_len_constraint),
            key_usages: usages.into_iter().map(|usage| lower_first(&format!("{usage:?}"))).collect(),
            purposes: purposes.iter().map(purpose).collect(),
            public_key: PublicKeyInfo::of(&tbs.subject_public_key_info)?,
            signature_algorithm: oid_name(&certificate.fields.signature_algorithm.oid),
            sha256: sha256(der),
            bytes: der.len(),
            parts: parts(&certificate.fields, der.len())?,
        })
    }
}

impl PublicKeyInfo {
    /// Reads the description from the DER of a SubjectPublicKeyInfo.
    ///
    /// # Errors
    /// [`Error::MalformedPublicKey`].
    pub fn from_der(key: &SubjectPublicKeyInfoDer<'_>) -> Result<Self, Error> {
        SubjectPublicKeyInfoOwned::from_der(key)
            .and_then(|spki| Self::of(&spki))
            .map_err(|error| Error::MalformedPublicKey(error.to_string()))
    }

    fn of(spki: &SubjectPublicKeyInfoOwned) -> der::Result<Self> {
        let der = spki.to_der()?;
        Ok(Self { algorithm: algorithm(&der)?, sha256: sha256(&der), bytes: der.len() })
    }
}

/// RFC 8017 §A.1.1
#[derive(Sequence)]
struct RsaPublicKey<'a> {
    modulus: UintRef<'a>,
    public_exponent: UintRef<'a>,
}

fn algorithm(spki: &[u8]) -> der::Result<String> {
    let spki = SubjectPublicKeyInfoRef::from_der(spki)?;
    let oid = spki.algorithm.oid;
    let is_pss = oid == rfc5912::ID_RSASSA_PSS;
    if is_pss || oid == rfc5912::RSA_ENCRYPTION {
        let key = RsaPublicKey::from_der(spki.subject_public_key.raw_bytes())?;
        let bits = key.modulus.as_bytes().first().map_or(0, |first| {
            u32::try_from(key.modulus.as_bytes().len()).map_or(u32::MAX, |len| len * 8)
                - first.leading_zeros()
        });
        return Ok(format!("{} {bits}", if is_pss { "RSA-PSS" } else { "RSA" }));
    }
    if oid == rfc5912::ID_EC_PUBLIC_KEY {
        return Ok(match spki.algorithm.parameters_oid() {
            Ok(rfc5912::SECP_256_R_1) => "P-256".into(),
            Ok(rfc5912::SECP_384_R_1) => "P-384".into(),
            Ok(rfc5912::SECP_521_R_1) => "P-521".into(),
            Ok(other) => oid_name(&other),
            // Certificates must not have explicit curve parameters (RFC 5480 §2.1.1).
            Err(_) => "EC without a named curve".into(),
        });
    }
    Ok(match oid {
        rfc8410::ID_ED_25519 => "Ed25519".into(),
        fips204::ID_ML_DSA_44 => "ML-DSA-44".into(),
        fips204::ID_ML_DSA_65 => "ML-DSA-65".into(),
        other => oid_name(&other),
    })
}

/// The size of each part. The remainder is called framing: tags and lengths of the structures around the
/// parts.
fn parts(certificate: &Fields, total: usize) -> der::Result<Vec<Part>> {
    let tbs = &certificate.tbs;
    let mut parts = vec![];
    let mut add = |name: &str, size: der::Length| -> der::Result<()> {
        parts.push(Part { name: name.to_owned(), bytes: usize::try_from(size)? });
        Ok(())
    };
    add("serialNumber", tbs.serial_number.encoded_len()?)?;
    add("signature", tbs.signature.encoded_len()?)?;
    add("issuer", tbs.issuer.encoded_len()?)?;
    add("validity", tbs.validity.encoded_len()?)?;
    add("subject", tbs.subject.encoded_len()?)?;
    add("subjectPublicKeyInfo", tbs.subject_public_key_info.encoded_len()?)?;
    for extension in tbs.extensions.iter().flatten() {
        add(&oid_name(&extension.extn_id), extension.encoded_len()?)?;
    }
    add("signatureAlgorithm", certificate.signature_algorithm.encoded_len()?)?;
    add("signatureValue", certificate.signature.encoded_len()?)?;
    let named: usize = parts.iter().map(|part| part.bytes).sum();
    parts.push(Part { name: "framing".into(), bytes: total.saturating_sub(named) });
    Ok(parts)
}

fn purpose(oid: &ObjectIdentifier) -> String {
    let name = oid_name(oid);
    name.strip_prefix("id-kp-").map(str::to_owned).unwrap_or(name)
}

fn oid_name(oid: &ObjectIdentifier) -> String {
    let name = DB.by_oid(oid).map_or_else(|| oid.to_string(), str::to_owned);
    name.strip_prefix("id-ce-").map(str::to_owned).unwrap_or(name)
}

fn lower_first(name: &str) -> String {
    // The same rule gives `cRLSign`, as RFC 5280 §4.2.1.3 spells it.
    let mut chars = name.chars();
    chars.next().map(|first| first.to_ascii_lowercase()).into_iter().chain(chars).collect()
}

fn sha256(bytes: &[u8]) -> String {
    hex(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn optional_time<S: Serializer>(moment: &Option<SystemTime>, serializer: S) -> Result<S::Ok, S::Error> {
    match moment {
        Some(moment) => time(moment, serializer),
        None => serializer.serialize_none(),
    }
}

fn time<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format_time(*time))
}
