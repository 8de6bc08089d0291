//! Reads and writes files with keys, certificates and CRLs: PEM (RFC 7468) or plain DER.

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

/// One item of a file.
#[derive(Debug)]
pub enum Item {
    /// A certificate. If it came as PEM, its DER has not been parsed yet.
    Certificate(CertificateDer<'static>),
    /// A private key with its public key.
    PrivateKey(KeyPair),
    /// A public key. If it came as PEM, its DER has not been parsed yet.
    PublicKey(SubjectPublicKeyInfoDer<'static>),
    /// A CRL. If it came as PEM, its DER has not been parsed yet.
    RevocationList(CertificateRevocationListDer<'static>),
}

/// Reads the items of `file`, in order. It skips PEM sections of other kinds and text around the sections.
///
/// # Errors
/// [`Error::UnknownFormat`] if it is neither PEM nor the DER of one item; [`Error::Missing`] if a PEM file has no item of
/// these kinds; [`Error::MalformedPem`]; [`Error::EncryptedKey`]; [`Error::UnusableKey`].
pub fn parse(file: &[u8]) -> Result<Vec<Item>, Error> {
    if contains(file, b"-----BEGIN ") { parse_pem(file) } else { parse_der(file).map(|item| vec![item]) }
}

fn parse_pem(file: &[u8]) -> Result<Vec<Item>, Error> {
    // PKCS#8 has the word in its label, older forms have it in a header line (RFC 1421 §4.6.1.1).
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
    if items.is_empty() { Err(Error::Missing("certificate, key or CRL")) } else { Ok(items) }
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

/// Puts a PEM error into words.
fn malformed(error: &pem_reader::Error) -> Error {
    Error::MalformedPem(match error {
        pem_reader::Error::MissingSectionEnd { end_marker } => {
            format!("the line -----END {}----- is missing", String::from_utf8_lossy(end_marker))
        }
        pem_reader::Error::IllegalSectionStart { .. } => "a -----BEGIN line is incomplete".into(),
        pem_reader::Error::Base64Decode(_) => "the text between its BEGIN and END lines is not base64".into(),
        pem_reader::Error::SectionTooLarge => "a section is too large".into(),
        _ => "it holds no section".into(),
    })
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

/// Writes a CRL as PEM, labelled `X509 CRL` (RFC 7468 §6).
///
/// # Errors
/// [`Error::Crypto`] if there is not enough memory.
pub fn revocation_list_to_pem(list: &CertificateRevocationListDer<'_>) -> Result<String, Error> {
    encode("X509 CRL", list)
}

/// Writes `certificates` as PEM, one after the other.
///
/// # Errors
/// [`Error::Crypto`] if there is not enough memory.
pub fn certificates_to_pem(certificates: &[CertificateDer<'_>]) -> Result<String, Error> {
    certificates.iter().map(|certificate| encode("CERTIFICATE", certificate)).collect()
}

/// Writes `der` as PEM with this `label`, in lines of 64 characters.
pub(crate) fn encode(label: &str, der: &[u8]) -> Result<String, Error> {
    pem::encode_string(label, pem::LineEnding::LF, der).map_err(|_| Error::Crypto)
}
