//! Errors of reading and making keys, certificates and CRLs.

use std::io::ErrorKind;

use crate::{KeyType, RevocationReason};

/// Why a key, certificate or CRL could not be made or read. The text says what is wrong; [`Error::advice`]
/// says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The cryptographic library failed, which happens on a broken system only.
    #[error("the cryptographic library failed")]
    Crypto,
    /// The name of the key type is not one of [`KeyType::ALL`].
    #[error("unknown key type {0:?}")]
    UnknownKeyType(String),
    /// The private key does not parse, or its type or size is not supported.
    #[error("not a private key of a supported type")]
    UnusableKey,
    /// The type, the curve or the size of the private key is not supported; what it is.
    #[error("{0}, which is not supported")]
    OtherKey(String),
    /// The private key has the parameters of its curve instead of its name.
    #[error("an EC key with explicit parameters instead of a named curve")]
    ExplicitCurve,
    /// The RSA key has fewer than 2048 bits.
    #[error("the RSA key is too short: at least 2048 bits are required")]
    ShortKey,
    /// The private key is protected by a password.
    #[error("the private key is encrypted")]
    EncryptedKey,
    /// The private key does not belong to the certificate.
    #[error("the private key does not belong to the certificate")]
    KeyMismatch,
    /// The file has several private keys, and the first does not belong to the certificate; their number.
    #[error("the first of {0} private keys in it does not belong to the certificate")]
    FirstKeyMismatch(usize),
    /// The certificate's basicConstraints do not assert `cA` (RFC 5280 §4.2.1.9).
    #[error("the certificate does not belong to a certificate authority")]
    NotAnAuthority,
    /// The path would hold more authorities than a pathLenConstraint in it allows (RFC 5280 §4.2.1.9).
    #[error("the path has more authorities than one of its certificates allows")]
    PathTooLong,
    /// The certificate does not parse.
    #[error("malformed certificate ({0})")]
    MalformedCertificate(String),
    /// The public key does not parse.
    #[error("malformed public key ({0})")]
    MalformedPublicKey(String),
    /// The CRL does not parse.
    #[error("malformed CRL ({0})")]
    MalformedList(String),
    /// Another authority issued the certificate to be revoked.
    #[error("another authority issued the certificate")]
    NotIssued,
    /// Another authority issued the CRL.
    #[error("another authority issued the CRL")]
    OtherIssuer,
    /// Another key than the authority's has signed the CRL, or it has changed since.
    #[error("the authority's key has not signed the CRL")]
    OtherSigner,
    /// A CRL that no complete CRL of one authority continues; what it is.
    #[error("{0}, which a complete CRL cannot continue")]
    UnlikeList(String),
    /// The name is not a reason for a revocation.
    #[error("unknown revocation reason {0:?}")]
    UnknownReason(String),
    /// The PEM does not parse.
    #[error("malformed PEM ({0})")]
    MalformedPem(String),
    /// A PEM section, or what looks like a part of one, could hold a certificate, a key or a CRL, but nothing
    /// reads it in this form.
    #[error("line {line}: {}", why.text(label))]
    Unread {
        /// The number of its first line, from 1 on.
        line: usize,
        /// Its label.
        label: String,
        /// Why nothing reads it.
        why: Unread,
    },
    /// A PEM file holds no certificate, key or CRL; the labels of its sections.
    #[error("no certificate, key or CRL in it{}", found(labels))]
    Empty {
        /// The labels of the sections that it has.
        labels: Vec<String>,
    },
    /// The text has two bytes for each character.
    #[error("the text is in UTF-16")]
    Utf16,
    /// The file is a container of keys and certificates (RFC 7292).
    #[error("a PKCS #12 file")]
    Pkcs12,
    /// The file is an envelope of certificates in DER (RFC 2315).
    #[error("a PKCS #7 file")]
    Pkcs7,
    /// The file cannot be read; the kind of the error.
    #[error("{}", unreadable(*.0))]
    Unreadable(ErrorKind),
    /// The file is neither PEM nor DER of a known kind.
    #[error("neither PEM nor DER of a certificate, key or CRL")]
    UnknownFormat,
    /// The file holds no item of the wanted kind.
    #[error("no {wanted} in it{}", found(labels))]
    Missing {
        /// The wanted kind.
        wanted: &'static str,
        /// The labels of the PEM sections that it has.
        labels: Vec<String>,
    },
    /// A CRL stands beside the certificates of trusted authorities, and nothing reads it there.
    #[error("a CRL in a file of trusted authorities, where nothing reads it")]
    ListBesideAnchors,
    /// The subject does not parse, or a part of it is too long.
    #[error("bad subject {0:?}")]
    BadSubject(String),
    /// The subject alternative name is no DNS name, IP address or URI.
    #[error("{0:?} is neither a DNS name, an IP address nor a URI")]
    BadAltName(String),
    /// The validity would end after the year 9999; the number of days asked for.
    #[error("a validity of {0} days ends after the year 9999")]
    TooManyDays(u32),
    /// The leaf has neither a subject nor a subject alternative name.
    #[error("the certificate has neither a subject nor a subject alternative name")]
    Nameless,
    /// The server's leaf has no name that a client could check.
    #[error("a server's certificate needs a subject alternative name")]
    ServerWithoutName,
    /// The time does not parse or lies outside the years 1970 to 9999.
    #[error("bad time {0:?}")]
    BadTime(String),
    /// The validity ends before it begins.
    #[error("the validity ends before it begins")]
    EmptyValidity,
}

impl Error {
    /// There is none of these items.
    pub const fn missing(wanted: &'static str) -> Self {
        Self::Missing { wanted, labels: vec![] }
    }

    /// Advice to the user, as an imperative clause.
    pub fn advice(&self) -> String {
        match self {
            Self::Crypto => "check the system's memory and random source".into(),
            Self::UnknownKeyType(_) => format!("choose one of {}", KeyType::names()),
            Self::UnusableKey => format!("give an unencrypted key of type {}", KeyType::names()),
            Self::OtherKey(_) => format!("give a key of type {}", KeyType::names()),
            Self::ExplicitCurve => {
                "name its curve: `openssl ec -in FILE -param_enc named_curve -out NEW`".into()
            }
            Self::ShortKey => format!("make a longer key, or one of another type: {}", KeyType::names()),
            Self::EncryptedKey => "decrypt it first, e.g. with `openssl pkey`".into(),
            Self::KeyMismatch => "give the private key of this certificate".into(),
            Self::FirstKeyMismatch(_) => "leave only the private key of this certificate in the file".into(),
            Self::NotAnAuthority => {
                "give a certificate made by `dunlin pki ca` or `dunlin pki intermediate`".into()
            }
            Self::PathTooLong => {
                "issue it from an authority higher up, or recreate the issuer with a larger --path-len".into()
            }
            Self::NotIssued => "give the certificate and key of its issuer".into(),
            Self::OtherIssuer | Self::OtherSigner => {
                "give this authority's CRL, or a path that does not exist to begin a new CRL".into()
            }
            Self::UnlikeList(_) => {
                "give this authority's complete CRL, or a path that does not exist to begin a new CRL".into()
            }
            Self::UnknownReason(_) => {
                format!("choose one of {}", RevocationReason::ALL.map(RevocationReason::name).join(", "))
            }
            Self::MalformedCertificate(_)
            | Self::MalformedList(_)
            | Self::MalformedPublicKey(_)
            | Self::MalformedPem(_)
            | Self::UnknownFormat => "give an undamaged PEM or DER file".into(),
            Self::Unread { label, why, .. } => why.advice(label),
            Self::Empty { .. } => "give a file that holds a certificate, a key or a CRL".into(),
            Self::Utf16 => "save it as ASCII or UTF-8".into(),
            Self::Pkcs12 => "make PEM of it: `openssl pkcs12 -in FILE -nodes -out NEW`".into(),
            Self::Pkcs7 => {
                "take its certificates out: `openssl pkcs7 -inform DER -in FILE -print_certs -out NEW`".into()
            }
            Self::Unreadable(ErrorKind::NotFound) => "check the path".into(),
            Self::Unreadable(_) => "give a file that can be read".into(),
            Self::Missing { wanted, .. } => format!("give a file that holds a {wanted}"),
            Self::ListBesideAnchors => {
                "give the file as CRLs, too (--CRL, or crl in a configuration), or remove the CRL".into()
            }
            Self::BadSubject(_) => {
                "write it in the notation of RFC 4514, e.g. \"CN=name,O=organisation\"".into()
            }
            Self::BadAltName(_) => "write DNS:name (without a port), IP:address or URI:uri".into(),
            Self::TooManyDays(_) => "give fewer days".into(),
            Self::Nameless => "give it a subject or a subject alternative name".into(),
            Self::ServerWithoutName => "name the host that clients connect to".into(),
            Self::BadTime(_) => "write YYYY-MM-DD or YYYY-MM-DDThh:mm:ssZ, from 1970 on".into(),
            Self::EmptyValidity => "give an end after the beginning".into(),
        }
    }
}

/// Why nothing reads a PEM section that could hold a certificate, a key or a CRL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// Blanks or other text stand before -----BEGIN (RFC 7468 §3 allows none).
    NotAtStart,
    /// A certificate with OpenSSL's own settings of trust.
    Trusted,
    /// RFC 7468 has another label for it, which is named.
    Label(&'static str),
    /// Certificates in the envelope of PKCS #7.
    Envelope,
    /// A container of keys and certificates (RFC 7292).
    Pkcs12,
    /// A kind of certificate, key or CRL that no handshake uses.
    Kind,
    /// The line is almost the first or last line of a section: `BEGIN` or `END`.
    Spelling(&'static str),
    /// The last line of a section has no first line before it.
    NoBegin,
    /// Base64 stands outside of sections.
    Base64,
}

impl Unread {
    fn text(self, label: &str) -> String {
        match self {
            Self::NotAtStart => format!("-----BEGIN {label}----- does not stand at the start of its line"),
            Self::Trusted => format!("{label}: a certificate in OpenSSL's own form"),
            Self::Label(_) => format!("{label} is not the label of RFC 7468"),
            Self::Envelope => format!("{label}: certificates in an envelope"),
            Self::Pkcs12 => format!("{label}: a container of keys and certificates"),
            Self::Kind => format!("nothing reads the section {label}"),
            Self::Spelling(edge) => format!("this is no whole -----{edge} line"),
            Self::NoBegin => format!("the line -----BEGIN {label}----- is missing"),
            Self::Base64 => "base64 outside of a section".into(),
        }
    }

    fn advice(self, label: &str) -> String {
        match self {
            Self::NotAtStart => "let each line of the section begin at the start of a line".into(),
            Self::Trusted => "write it with `openssl x509 -in FILE -out NEW`".into(),
            Self::Label(right) => format!("write -----BEGIN {right}----- and -----END {right}-----"),
            Self::Envelope => "take them out: `openssl pkcs7 -in FILE -print_certs -out NEW`".into(),
            Self::Pkcs12 => {
                "decode its base64, and make PEM of it: `openssl pkcs12 -in FILE -nodes -out NEW`".into()
            }
            Self::Kind => format!("remove the section {label}, or convert it to a certificate, key or CRL"),
            Self::Spelling(edge) => {
                let label = if label.is_empty() { "LABEL" } else { label };
                format!("write -----{edge} {label}----- with five hyphens on each side, on a line of its own")
            }
            Self::NoBegin => format!("write -----BEGIN {label}----- before it, or remove its last line"),
            Self::Base64 => {
                "write the first and last line of its section, e.g. -----BEGIN CERTIFICATE-----, or remove it"
                    .into()
            }
        }
    }
}

/// The labels of PEM sections, as a part of a sentence.
fn found(labels: &[String]) -> String {
    let mut different: Vec<&str> = vec![];
    for label in labels {
        if !different.contains(&label.as_str()) {
            different.push(label);
        }
    }
    if different.is_empty() { String::new() } else { format!(", only {}", different.join(", ")) }
}

/// This crate built the value itself, so encoding fails only at a limit of the encoder, e.g. for a name of
/// megabytes.
pub(crate) fn encoding(_: der::Error) -> Error {
    Error::Crypto
}

/// Why a file cannot be read, in the words of all commands.
fn unreadable(kind: ErrorKind) -> String {
    match kind {
        ErrorKind::NotFound => "no such file".to_owned(),
        kind => format!("it cannot be read: {kind}"),
    }
}
