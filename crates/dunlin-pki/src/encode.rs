//! The ASN.1 of certificates, built from x509-cert's parts.
//!
//! x509-cert's own builder does not suit the lean form. It always adds its profile's extensions. It also
//! writes version 1 where there are no extensions, but TLS requires version 3 (RFC 8446 §4.4.2.2).

use const_oid::AssociatedOid;
use const_oid::db::rfc5280;
use der::asn1::{Any, BitString, OctetString};
use der::flagset::FlagSet;
use der::{Decode, Encode, Sequence};
use pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use x509_cert::certificate::Version;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::{
    AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage, KeyUsages, SubjectAltName,
    SubjectKeyIdentifier,
};
use x509_cert::name::Name;
use x509_cert::serial_number::SerialNumber;
use x509_cert::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoRef};
use x509_cert::time::Validity;

use crate::error::encoding;
use crate::{CaSpec, Error, Form, KeyPair, KeyType, LeafSpec, Purpose};

/// RFC 5280 §4.1
#[derive(Sequence)]
struct Certificate {
    tbs_certificate: TbsCertificate,
    signature_algorithm: AlgorithmIdentifierOwned,
    signature: BitString,
}

/// RFC 5280 §4.1, without the unique identifiers, which authorities must not generate (§4.1.2.8).
#[derive(Sequence)]
struct TbsCertificate {
    #[asn1(context_specific = "0")]
    version: Version,
    serial_number: SerialNumber,
    signature: AlgorithmIdentifierOwned,
    issuer: Name,
    validity: Validity,
    subject: Name,
    subject_public_key_info: Any,
    #[asn1(context_specific = "3", optional = "true")]
    extensions: Option<Vec<Extension>>,
}

/// The issuer's name, its key, and that key's identifier if the issuer's certificate has one.
pub(crate) struct Signer<'a> {
    pub(crate) name: &'a Name,
    pub(crate) key: &'a KeyPair,
    pub(crate) key_id: Option<&'a OctetString>,
}

/// Makes a certificate for `subject` and `public_key`, signed by `signer`.
pub(crate) fn certificate(
    signer: &Signer<'_>,
    subject: &Name,
    public_key: &SubjectPublicKeyInfoDer<'_>,
    validity: &crate::Validity,
    form: Form,
    extensions: Vec<Extension>,
) -> Result<CertificateDer<'static>, Error> {
    let algorithm = signer.key.signature_algorithm()?;
    let tbs_certificate = TbsCertificate {
        version: Version::V3,
        serial_number: serial_number(form)?,
        signature: algorithm.clone(),
        issuer: signer.name.clone(),
        validity: validity.encoded()?,
        subject: subject.clone(),
        subject_public_key_info: Any::from_der(public_key).map_err(encoding)?,
        extensions: (!extensions.is_empty()).then_some(extensions),
    };
    let signature = signer.key.sign(&tbs_certificate.to_der().map_err(encoding)?)?;
    let signature = BitString::from_bytes(&signature).map_err(encoding)?;
    let certificate = Certificate { tbs_certificate, signature_algorithm: algorithm, signature };
    Ok(certificate.to_der().map_err(encoding)?.into())
}

/// A random serial number of fixed length. Its first two bits are 01, so it is positive and DER drops no
/// leading zeros (RFC 5280 §4.1.2.2).
fn serial_number(form: Form) -> Result<SerialNumber, Error> {
    let mut bytes = [0; 9];
    aws_lc_rs::rand::fill(&mut bytes).map_err(|_| Error::Crypto)?;
    bytes[0] = bytes[0] & 0x3f | 0x40;
    let length = match form {
        Form::Full => 9,
        Form::Lean => 6,
    };
    SerialNumber::new(&bytes[..length]).map_err(encoding)
}

/// The extensions of an authority's certificate; `id` is its subject key identifier.
pub(crate) fn ca_extensions(
    spec: &CaSpec,
    signer_key_id: Option<&OctetString>,
    id: OctetString,
) -> Result<Vec<Extension>, Error> {
    // An authority's certificate must have both (RFC 5280 §4.2.1.3, §4.2.1.9).
    let mut extensions = vec![
        extension(true, &BasicConstraints { ca: true, path_len_constraint: spec.path_len })?,
        extension(true, &KeyUsage(KeyUsages::KeyCertSign | KeyUsages::CRLSign))?,
    ];
    if spec.form == Form::Full {
        extensions.push(extension(false, &SubjectKeyIdentifier(id))?);
        extensions.extend(authority_key_identifier(signer_key_id)?);
    }
    Ok(extensions)
}

/// The extensions of a leaf certificate for a key of type `key_type`.
pub(crate) fn leaf_extensions(
    spec: &LeafSpec,
    key_type: KeyType,
    signer_key_id: Option<&OctetString>,
) -> Result<Vec<Extension>, Error> {
    let mut extensions = vec![];
    if !spec.names.is_empty() {
        let names = spec.names.iter().map(crate::AltName::encoded).collect::<Result<_, _>>()?;
        // Critical if and only if the subject is empty (RFC 5280 §4.2.1.6).
        extensions.push(extension(spec.subject.is_empty(), &SubjectAltName(names))?);
    }
    if spec.form == Form::Full {
        let mut usage = FlagSet::from(KeyUsages::DigitalSignature);
        if key_type.encrypts() {
            // For the RSA key exchange of TLS 1.2 (RFC 5246 §7.4.2).
            usage |= KeyUsages::KeyEncipherment;
        }
        extensions.push(extension(true, &KeyUsage(usage))?);
    }
    let restricted = spec.purposes.len() == 1;
    if !spec.purposes.is_empty() && (restricted || spec.form == Form::Full) {
        let oids = spec.purposes.iter().map(|purpose| match purpose {
            Purpose::Server => rfc5280::ID_KP_SERVER_AUTH,
            Purpose::Client => rfc5280::ID_KP_CLIENT_AUTH,
        });
        extensions.push(extension(false, &ExtendedKeyUsage(oids.collect()))?);
    }
    if spec.form == Form::Full {
        // A leaf issues nothing, so no verifier needs its subject key identifier
        // (draft-ietf-uta-tls13-iot-profile).
        extensions.extend(authority_key_identifier(signer_key_id)?);
    }
    Ok(extensions)
}

pub(crate) fn authority_key_identifier(signer: Option<&OctetString>) -> Result<Option<Extension>, Error> {
    let identifier = signer.map(|id| {
        let key_identifier = Some(id.clone());
        extension(false, &AuthorityKeyIdentifier { key_identifier, ..Default::default() })
    });
    identifier.transpose()
}

pub(crate) fn extension<T: AssociatedOid + Encode>(critical: bool, value: &T) -> Result<Extension, Error> {
    let extn_value = OctetString::new(value.to_der().map_err(encoding)?).map_err(encoding)?;
    Ok(Extension { extn_id: T::OID, critical, extn_value })
}

/// The leftmost 160 bits of the SHA-256 hash of the public key (RFC 7093 §2, method 1).
pub(crate) fn key_identifier(public_key: &SubjectPublicKeyInfoDer<'_>) -> Result<OctetString, Error> {
    let spki = SubjectPublicKeyInfoRef::from_der(public_key).map_err(|_| Error::Crypto)?;
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, spki.subject_public_key.raw_bytes());
    OctetString::new(&hash.as_ref()[..20]).map_err(encoding)
}
