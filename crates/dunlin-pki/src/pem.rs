//! Files with keys, certificates and revocation lists: PEM (RFC 7468) or plain DER.

use der::{Decode, pem};
use pki_types::pem::{self as pem_reader, PemObject, SectionKind};
use pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer,
    PrivateSec1KeyDer, SubjectPublicKeyInfoDer,
};
use x509_cert::Certificate;
use x509_cert::certificate::Rfc5280;
use x509_cert::crl::CertificateList;
use x509_cert::spki::SubjectPublicKeyInfoRef;
use zeroize::Zeroize;

use crate::{Error, KeyPair};

/// One thing in a file.
#[derive(Debug)]
pub enum Item {
    /// A certificate; not yet known to parse if it came as PEM.
    Certificate(CertificateDer<'static>),
    /// A private key with its public key.
    PrivateKey(KeyPair),
    /// A public key; not yet known to parse if it came as PEM.
    PublicKey(SubjectPublicKeyInfoDer<'static>),
    /// A revocation list; not yet known to parse if it came as PEM.
    RevocationList(CertificateRevocationListDer<'static>),
}

/// Everything in `file`, in order. PEM sections of other kinds, and text around the sections, are passed over.
///
/// # Errors
/// [`Error::UnknownFormat`] if it is neither PEM nor the DER of one item; [`Error::MalformedPem`];
/// [`Error::EncryptedKey`]; [`Error::UnusableKey`].
pub fn parse(file: &[u8]) -> Result<Vec<Item>, Error> {
    if contains(file, b"-----BEGIN ") { parse_pem(file) } else { parse_der(file).map(|item| vec![item]) }
}

fn parse_pem(file: &[u8]) -> Result<Vec<Item>, Error> {
    // PKCS#8 says so in the label, the older forms in a header line (RFC 1421 §4.6.1.1).
    if contains(file, b"ENCRYPTED") {
        return Err(Error::EncryptedKey);
    }
    let mut items = vec![];
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(file) {
        let (kind, der) = section.map_err(|error| malformed(&error))?;
        items.push(match kind {
            SectionKind::Certificate => Item::Certificate(der.into()),
            SectionKind::PublicKey => Item::PublicKey(der.into()),
            SectionKind::Crl => Item::RevocationList(der.into()),
            SectionKind::PrivateKey => private_key(PrivatePkcs8KeyDer::from(der).into())?,
            SectionKind::RsaPrivateKey => private_key(PrivatePkcs1KeyDer::from(der).into())?,
            SectionKind::EcPrivateKey => private_key(PrivateSec1KeyDer::from(der).into())?,
            _ => continue,
        });
    }
    if items.is_empty() { Err(Error::Missing("certificate, key or revocation list")) } else { Ok(items) }
}

fn parse_der(file: &[u8]) -> Result<Item, Error> {
    if Certificate::from_der(file).is_ok() {
        return Ok(Item::Certificate(file.to_vec().into()));
    }
    if SubjectPublicKeyInfoRef::from_der(file).is_ok() {
        return Ok(Item::PublicKey(file.to_vec().into()));
    }
    if CertificateList::<Rfc5280>::from_der(file).is_ok() {
        return Ok(Item::RevocationList(file.to_vec().into()));
    }
    let key = PrivateKeyDer::try_from(file).map_err(|_| Error::UnknownFormat)?;
    KeyPair::from_der(&key).map(Item::PrivateKey)
}

fn private_key(mut der: PrivateKeyDer<'static>) -> Result<Item, Error> {
    let key = KeyPair::from_der(&der).map(Item::PrivateKey);
    der.zeroize();
    key
}

/// What is wrong with PEM, in words.
fn malformed(error: &pem_reader::Error) -> Error {
    Error::MalformedPem(match error {
        pem_reader::Error::MissingSectionEnd { end_marker } => {
            format!("the line -----END {}----- is missing", String::from_utf8_lossy(end_marker))
        }
        pem_reader::Error::IllegalSectionStart { .. } => "a line with -----BEGIN is not whole".into(),
        pem_reader::Error::Base64Decode(_) => "what stands between its lines is not base64".into(),
        pem_reader::Error::SectionTooLarge => "a section is too large".into(),
        _ => "nothing in it".into(),
    })
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

/// `list` as PEM, labelled `X509 CRL` (RFC 7468 §6).
///
/// # Errors
/// [`Error::Crypto`] if there is no memory for it.
pub fn revocation_list_to_pem(list: &CertificateRevocationListDer<'_>) -> Result<String, Error> {
    encode("X509 CRL", list)
}

/// `certificates` as PEM, one after the other.
///
/// # Errors
/// [`Error::Crypto`] if there is no memory for it.
pub fn certificates_to_pem(certificates: &[CertificateDer<'_>]) -> Result<String, Error> {
    certificates.iter().map(|certificate| encode("CERTIFICATE", certificate)).collect()
}

/// `der` as PEM under `label`, in lines of 64 characters.
pub(crate) fn encode(label: &str, der: &[u8]) -> Result<String, Error> {
    pem::encode_string(label, pem::LineEnding::LF, der).map_err(|_| Error::Crypto)
}
