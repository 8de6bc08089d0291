//! The certificate's ASN.1, built from x509-cert's parts.
//!
//! x509-cert's own builder adds what a profile asks for and turns a certificate without extensions into version 1,
//! which TLS does not take (RFC 8446 §4.4.2.2); the lean form needs both otherwise.

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

/// RFC 5280 §4.1, without the unique identifiers that nobody may write (§4.1.2.8).
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

/// Who signs: a name, a key, and how its certificate identifies that key, if it does.
pub(crate) struct Signer<'a> {
    pub(crate) name: &'a Name,
    pub(crate) key: &'a KeyPair,
    pub(crate) key_id: Option<&'a OctetString>,
}

/// A certificate for `subject` and `public_key`, signed by `signer`.
pub(crate) fn certificate(
    signer: &Signer<'_>,
    subject: &Name,
    public_key: &SubjectPublicKeyInfoDer<'_>,
    validity: &crate::Validity,
    form: Form,
    extensions: Vec<Extension>,
) -> Result<CertificateDer<'static>, Error> {
    let algorithm = signer.key.key_type().signature_algorithm();
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

/// A random number of fixed length whose first two bits are 01: positive, and no leading zeros to cut off
/// (RFC 5280 §4.1.2.2).
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

/// The extensions of an authority's certificate; `id` identifies its key.
pub(crate) fn ca_extensions(
    spec: &CaSpec,
    signer_key_id: Option<&OctetString>,
    id: OctetString,
) -> Result<Vec<Extension>, Error> {
    // Both are a MUST for an authority (RFC 5280 §4.2.1.3, §4.2.1.9).
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

/// The extensions of a leaf's certificate, whose key is of type `key_type`.
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
        if key_type.is_rsa() {
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
        // Its own key identifier would help nobody (draft-ietf-uta-tls13-iot-profile, end entity certificates).
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
