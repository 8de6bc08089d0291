//! Reads and writes files with keys, certificates and CRLs: PEM (RFC 7468) or plain DER.

use der::asn1::OctetStringRef;
use der::{Decode, Sequence, pem};
use pki_types::pem::{self as pem_reader, PemObject, SectionKind};
use pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer,
    PrivateSec1KeyDer, SubjectPublicKeyInfoDer,
};
use x509_cert::spki::{AlgorithmIdentifierRef, SubjectPublicKeyInfoRef};
use zeroize::{Zeroize, Zeroizing};

use crate::error::Unread;
use crate::{Certificate, CertificateList, Error, KeyPair};

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

/// Reads the items of `file`, in order. It skips text around PEM sections, and parameters and requests. A byte
/// order mark before a section, and blanks after its lines (RFC 7468 §3), change nothing.
///
/// # Errors
/// [`Error::Empty`] if there is nothing in it; [`Error::UnknownFormat`] if it is neither PEM nor the DER of
/// one item; [`Error::Utf16`]; [`Error::Pkcs12`]; [`Error::Pkcs7`]; [`Error::Empty`] if a PEM file has no item of these kinds;
/// [`Error::Unread`] if a section, or what looks like a part of one, could hold one, but is of another form;
/// [`Error::MalformedPem`];
/// [`Error::EncryptedKey`]; [`Error::UnusableKey`].
pub fn parse(file: &[u8]) -> Result<Vec<Item>, Error> {
    labelled(file).map(|(items, _labels)| items)
}

/// Reads the items of `file` that `choose` takes, in order, and at least one.
///
/// # Errors
/// Those of [`parse`]; [`Error::Missing`] of the `wanted` kind.
pub fn parse_for<T>(
    file: &[u8],
    wanted: &'static str,
    choose: impl FnMut(Item) -> Option<T>,
) -> Result<Vec<T>, Error> {
    let (items, labels) = labelled(file)?;
    let chosen: Vec<T> = items.into_iter().filter_map(choose).collect();
    if chosen.is_empty() { Err(Error::Missing { wanted, labels }) } else { Ok(chosen) }
}

/// Reads the certificates of trusted authorities in `file`, at least one. `lists_count` says whether the caller
/// also reads the CRLs in it.
///
/// # Errors
/// Those of [`parse`]; [`Error::Missing`]; [`Error::ListBesideAnchors`] if there is a CRL that does not count.
pub fn parse_anchors(file: &[u8], lists_count: bool) -> Result<Vec<CertificateDer<'static>>, Error> {
    let mut has_lists = false;
    let certificates = parse_for(file, "certificate", |item| match item {
        Item::Certificate(der) => Some(der),
        Item::RevocationList(_) => {
            has_lists = true;
            None
        }
        _ => None,
    });
    if certificates.is_ok() && has_lists && !lists_count {
        Err(Error::ListBesideAnchors)
    } else {
        certificates
    }
}

/// The items of a file, and the labels of its PEM sections.
fn labelled(file: &[u8]) -> Result<(Vec<Item>, Vec<String>), Error> {
    if is_utf16(file) {
        return Err(Error::Utf16);
    }
    if file.trim_ascii().is_empty() {
        return Err(Error::Empty { labels: vec![] });
    }
    // A label in lower case is named in the error.
    if file.windows(BEGIN.len()).any(|window| window.eq_ignore_ascii_case(BEGIN)) {
        parse_pem(file)
    } else {
        parse_der(file).map(|item| (vec![item], vec![]))
    }
}

/// Whether it has a byte order mark of UTF-16, from either end, or a line -----BEGIN in characters of two
/// bytes.
fn is_utf16(file: &[u8]) -> bool {
    let wide: Vec<u8> = BEGIN.iter().flat_map(|byte| [*byte, 0]).collect();
    file.starts_with(&[0xff, 0xfe]) || file.starts_with(&[0xfe, 0xff]) || contains(file, &wide)
}

fn parse_pem(file: &[u8]) -> Result<(Vec<Item>, Vec<String>), Error> {
    let (sections, labels) = sections(file)?;
    let mut items = vec![];
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(&sections) {
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
    if items.is_empty() { Err(Error::Empty { labels }) } else { Ok((items, labels)) }
}

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";
/// The longest label, in bytes; those that are known have up to 23.
const MAX_LABEL: usize = 64;

/// The parser's treatment of a section with this label.
enum Section {
    /// It is read under the label of RFC 7468.
    Read(&'static str),
    /// It is known to hold no certificate, key or CRL.
    Skipped,
    /// It could hold one, and the user must not believe that Dunlin reads it.
    Refused(Unread),
}

fn section(label: &str) -> Section {
    match label {
        "CERTIFICATE" | "X509 CERTIFICATE" => Section::Read("CERTIFICATE"),
        "X509 CRL" => Section::Read("X509 CRL"),
        "PUBLIC KEY" => Section::Read("PUBLIC KEY"),
        "PRIVATE KEY" => Section::Read("PRIVATE KEY"),
        "RSA PRIVATE KEY" => Section::Read("RSA PRIVATE KEY"),
        "EC PRIVATE KEY" => Section::Read("EC PRIVATE KEY"),
        "EC PARAMETERS" | "DH PARAMETERS" | "X9.42 DH PARAMETERS" | "DSA PARAMETERS" => Section::Skipped,
        "CERTIFICATE REQUEST" | "NEW CERTIFICATE REQUEST" | "SSL SESSION PARAMETERS" => Section::Skipped,
        "TRUSTED CERTIFICATE" => Section::Refused(Unread::Trusted),
        "CERT" | "X509" | "X509 CERT" | "X.509 CERTIFICATE" => Section::Refused(Unread::Label("CERTIFICATE")),
        "CRL" | "X509 REVOCATION LIST" | "CERTIFICATE REVOCATION LIST" => {
            Section::Refused(Unread::Label("X509 CRL"))
        }
        "PRIVATE" => Section::Refused(Unread::Label("PRIVATE KEY")),
        "PKCS7" | "PKCS #7" | "CMS" | "PKCS #7 SIGNED DATA" => Section::Refused(Unread::Envelope),
        "PKCS12" | "PKCS #12" | "PFX" => Section::Refused(Unread::Pkcs12),
        other => {
            let plain = other.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
            let right = if plain == other { Section::Refused(Unread::Kind) } else { section(&plain) };
            Section::Refused(if let Section::Read(right) = right {
                Unread::Label(right)
            } else {
                Unread::Kind
            })
        }
    }
}

/// The sections that this crate reads, under the labels of RFC 7468 and without what editors and mail
/// programs add, and the labels of all sections.
fn sections(file: &[u8]) -> Result<(Zeroizing<Vec<u8>>, Vec<String>), Error> {
    // No section becomes longer: a growing vector would leave unwiped copies of keys behind.
    let mut sections = Zeroizing::new(Vec::with_capacity(file.len() + 1));
    let mut labels: Vec<String> = vec![];
    // The label of the section around the line, and the one under which it is read, if it is.
    let mut open: Option<(String, Option<&str>)> = None;
    // The first line of base64 since the last section.
    let mut loose = None;
    // Some old editors end lines with CR alone.
    let line_end = if file.contains(&b'\n') { b'\n' } else { b'\r' };
    let unended = |label: &str| Error::MalformedPem(format!("the line -----END {label}----- is missing"));
    for (number, line) in (1..).zip(file.split(|byte| *byte == line_end)) {
        let line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line).trim_ascii_end();
        if contains(line, BEGIN) {
            check_loose(loose)?;
            let (before, label) = label_in(line, BEGIN).ok_or_else(|| misspelt(number, line, "BEGIN"))?;
            let refused = |why| Error::Unread { line: number, label: label.clone(), why };
            if !before.is_empty() {
                return Err(refused(Unread::NotAtStart));
            }
            if let Some((label, _)) = open {
                return Err(unended(&label));
            }
            let canonical = match section(&label) {
                // PKCS#8 has the word in its label.
                _ if label.contains("ENCRYPTED") => return Err(Error::EncryptedKey),
                Section::Refused(why) => return Err(refused(why)),
                Section::Read(canonical) => Some(canonical),
                Section::Skipped => None,
            };
            canonical.iter().for_each(|label| put(&mut sections, BEGIN, label));
            labels.push(label.clone());
            open = Some((label, canonical));
        } else if let Some((label, canonical)) = &open {
            let ends = line.strip_prefix(END).map(|rest| rest.strip_suffix(DASHES));
            if ends == Some(Some(label.as_bytes())) {
                canonical.iter().for_each(|label| put(&mut sections, END, label));
                open = None;
            } else if ends.is_some() {
                return Err(unended(label));
            } else if canonical.is_some() {
                match proc_type(line) {
                    Some(value) if contains(value, b"ENCRYPTED") => return Err(Error::EncryptedKey),
                    Some(_) => {}
                    None => {
                        sections.extend_from_slice(line);
                        sections.push(b'\n');
                    }
                }
            }
        } else {
            check_outside(number, line, &mut loose)?;
        }
    }
    check_loose(loose)?;
    match open {
        Some((label, _)) => Err(unended(&label)),
        None => Ok((sections, labels)),
    }
}

/// The value of the header by which older forms say that a key is encrypted (RFC 1421 §4.6.1.1). Headers have
/// no case.
fn proc_type(line: &[u8]) -> Option<&[u8]> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let (name, value) = line.split_at_checked(colon)?;
    name.trim_ascii().eq_ignore_ascii_case(b"Proc-Type").then_some(value)
}

/// The bytes before `-----BEGIN ` or `-----END `, and the label after it. `None` unless the line ends there
/// and the label is valid: a line of a key file that has lost its newlines contains the key, which no message
/// may show.
fn label_in<'a>(line: &'a [u8], edge: &[u8]) -> Option<(&'a [u8], String)> {
    let at = line.windows(edge.len()).position(|window| window == edge)?;
    let (before, rest) = line.split_at_checked(at)?;
    let label = rest.get(edge.len()..)?.strip_suffix(DASHES)?;
    // RFC 7468 §3 allows more, but no label that could count has it.
    let is_label = |byte: &u8| matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b'#' | b'.' | b' ');
    let is_one = (1..=MAX_LABEL).contains(&label.len()) && label.iter().all(is_label);
    is_one.then(|| (before, String::from_utf8_lossy(label).into_owned()))
}

/// Checks a line outside of sections: text may stand there, but nothing that could be a part of a section.
/// `loose` is the first line of base64 since the last section.
fn check_outside(number: usize, line: &[u8], loose: &mut Option<usize>) -> Result<(), Error> {
    if contains(line, END) {
        return Err(match label_in(line, END) {
            Some((_, label)) => Error::Unread { line: loose.unwrap_or(number), label, why: Unread::NoBegin },
            None => misspelt(number, line, "END"),
        });
    }
    for edge in ["BEGIN", "END"] {
        if label_meant(line, edge).is_some_and(|label| STARTS.iter().any(|start| label.starts_with(start))) {
            return Err(misspelt(number, line, edge));
        }
    }
    if loose.is_none() && has_base64(line) {
        *loose = Some(number);
    }
    Ok(())
}

/// The beginnings of labels, without blanks.
const STARTS: [&str; 20] = [
    "ANYPRIVATE",
    "ATTRIBUTECERT",
    "CERT",
    "CMS",
    "CRL",
    "DSAPRIVATE",
    "ECPRIVATE",
    "ENCRYPTED",
    "KEY",
    "OPENSSHPRIVATE",
    "OPENSSLTRUSTED",
    "PFX",
    "PKCS",
    "PRIVATE",
    "PUBLIC",
    "REVOCATION",
    "RSAP",
    "SSH",
    "TRUSTED",
    "X509",
];

/// The label, in capitals and without blanks, of a line that may be meant as the first (`BEGIN`) or last
/// (`END`) line of a section: after two or more dashes, also those of text processors, with blanks in any
/// place.
fn label_meant(line: &[u8], edge: &str) -> Option<Zeroizing<String>> {
    // No line becomes longer than this, and a growing string would leave unwiped copies of a key behind.
    let mut letters = Zeroizing::new(String::with_capacity(2 * line.len()));
    for chunk in line.utf8_chunks() {
        for char in chunk.valid().chars() {
            match char {
                '-' => letters.push('-'),
                char if char.is_ascii_alphanumeric() => letters.push(char.to_ascii_uppercase()),
                char if char.is_ascii() || char.is_alphanumeric() => {}
                _ => letters.push_str("--"),
            }
        }
        // Dashes in an older encoding.
        chunk.invalid().iter().for_each(|_| letters.push_str("--"));
    }
    let (_, rest) = letters.split_once(&format!("--{edge}"))?;
    rest.split('-').next().map(|label| Zeroizing::new(label.to_owned()))
}

/// The error of a line that is almost the first or last line of a section.
fn misspelt(number: usize, line: &[u8], edge: &'static str) -> Error {
    let known = ["CERTIFICATE", "X509 CRL", "PUBLIC KEY", "PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"];
    let meant = label_meant(line, edge);
    let is_meant = |label: &&str| meant.as_ref().is_some_and(|meant| **meant == label.replace(' ', ""));
    let label = known.into_iter().find(is_meant).unwrap_or_default().to_owned();
    Error::Unread { line: number, label, why: Unread::Spelling(edge) }
}

fn check_loose(loose: Option<usize>) -> Result<(), Error> {
    let base64 = |line| Error::Unread { line, label: String::new(), why: Unread::Base64 };
    loose.map_or(Ok(()), |line| Err(base64(line)))
}

/// Whether the line has base64 as a section has it: as a whole, or in a long run after a quotation mark or
/// other text. Digests in hexadecimal are none, nor are words, nor lines that divide.
fn has_base64(line: &[u8]) -> bool {
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let whole = line.trim_ascii();
    let padding = whole.iter().rev().take_while(|byte| **byte == b'=').count();
    let whole = whole.get(..whole.len().saturating_sub(padding));
    line.split(|byte| !is_base64(byte)).any(|run| {
        // The lines of a section have 64 characters, or 60 or 76 in older forms.
        let least = if Some(run) == whole { 32 } else { 60 };
        run.len() >= least
            && run.iter().any(u8::is_ascii_uppercase)
            && run.iter().any(u8::is_ascii_lowercase)
            && run.iter().any(|byte| !byte.is_ascii_alphabetic())
            && !run.iter().all(u8::is_ascii_hexdigit)
    })
}

/// Writes the first or last line of a section that is read.
fn put(sections: &mut Vec<u8>, begin: &[u8], label: &str) {
    [begin, label.as_bytes(), DASHES, b"\n"].iter().for_each(|part| sections.extend_from_slice(part));
}

fn parse_der(file: &[u8]) -> Result<Item, Error> {
    if Certificate::from_der(file).is_ok() {
        return Ok(Item::Certificate(file.to_vec().into()));
    }
    if SubjectPublicKeyInfoRef::from_der(file).is_ok() {
        return Ok(Item::PublicKey(file.to_vec().into()));
    }
    if CertificateList::from_der(file).is_ok() {
        return Ok(Item::RevocationList(file.to_vec().into()));
    }
    if EncryptedKeyInfo::from_der(file).is_ok() {
        return Err(Error::EncryptedKey);
    }
    if begins_as(file, PFX) {
        return Err(Error::Pkcs12);
    }
    if begins_as(file, SIGNED_DATA) {
        return Err(Error::Pkcs7);
    }
    if file.is_ascii() && has_base64(file.trim_ascii().split(|byte| *byte == b'\n').next().unwrap_or(file)) {
        return Err(bare_base64(file));
    }
    let key = PrivateKeyDer::try_from(file).map_err(|_| match sections(file) {
        // No line is the first of a section, but one may be meant.
        Err(error @ Error::Unread { .. }) => error,
        _ => Error::UnknownFormat,
    })?;
    KeyPair::from_der(&key).map(Item::PrivateKey)
}

/// EncryptedPrivateKeyInfo (RFC 5958 §3).
#[derive(Sequence)]
struct EncryptedKeyInfo<'a> {
    algorithm: AlgorithmIdentifierRef<'a>,
    data: &'a OctetStringRef,
}

/// The beginning of the content of a PFX: the version 3 and a sequence (RFC 7292 §4).
const PFX: &[u8] = &[0x02, 0x01, 0x03, 0x30];
/// The beginning of the content of a ContentInfo with signedData, 1.2.840.113549.1.7.2 (RFC 2315 §14).
const SIGNED_DATA: &[u8] = &[0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x07, 0x02];

/// Whether the content of a sequence begins so.
fn begins_as(file: &[u8], start: &[u8]) -> bool {
    let content = match file {
        // A length of one byte, of one byte after its own length, and so on; BER may leave it open (0x80).
        [0x30, length, rest @ ..] => rest.get(usize::from(length & 0x7f) * usize::from(length >> 7)..),
        _ => None,
    };
    content.is_some_and(|content| content.starts_with(start))
}

/// The error of base64 without the first and last line of a section.
fn bare_base64(file: &[u8]) -> Error {
    let mut section = Zeroizing::new(Vec::with_capacity(file.len() + MAX_LABEL));
    put(&mut section, BEGIN, "CERTIFICATE");
    section.extend_from_slice(file.trim_ascii());
    section.push(b'\n');
    put(&mut section, END, "CERTIFICATE");
    let decoded = <(SectionKind, Vec<u8>)>::pem_slice_iter(&section).next().and_then(Result::ok);
    let decoded = Zeroizing::new(decoded.map(|(_, der)| der).unwrap_or_default());
    let (label, why) = if begins_as(&decoded, PFX) {
        ("base64".to_owned(), Unread::Pkcs12)
    } else {
        (String::new(), Unread::Base64)
    };
    Error::Unread { line: 1, label, why }
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
