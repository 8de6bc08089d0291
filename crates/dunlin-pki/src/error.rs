//! What can be wrong with a key, a certificate or a wish for one.

use crate::{KeyType, RevocationReason};

/// Why a key or certificate could not be made or read. The text says what is wrong; [`Error::advice`] what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The cryptographic library failed; only a broken system does that.
    #[error("the cryptographic library failed")]
    Crypto,
    /// Not a key type of ours.
    #[error("unknown key type {0:?}")]
    UnknownKeyType(String),
    /// A private key that does not parse, or of a type or size that is not supported.
    #[error("not a private key of a supported type")]
    UnusableKey,
    /// A private key protected by a password.
    #[error("the private key is encrypted")]
    EncryptedKey,
    /// A private key that does not belong to the certificate.
    #[error("the private key does not belong to the certificate")]
    KeyMismatch,
    /// A certificate without `cA` in its basicConstraints (RFC 5280 §4.2.1.9).
    #[error("the certificate is not that of a certificate authority")]
    NotAnAuthority,
    /// An authority above does not allow another one, or this one, in the path (RFC 5280 §4.2.1.9).
    #[error("more authorities in the path than one of them allows")]
    PathTooLong,
    /// A certificate that does not parse.
    #[error("malformed certificate ({0})")]
    MalformedCertificate(String),
    /// A public key that does not parse.
    #[error("malformed public key ({0})")]
    MalformedPublicKey(String),
    /// A revocation list that does not parse.
    #[error("malformed revocation list ({0})")]
    MalformedList(String),
    /// A certificate to revoke that another authority has issued.
    #[error("the certificate was issued by another authority")]
    NotIssued,
    /// A revocation list of another authority.
    #[error("the revocation list is that of another authority")]
    OtherIssuer,
    /// Not a reason for a revocation.
    #[error("unknown reason {0:?}")]
    UnknownReason(String),
    /// PEM that does not parse.
    #[error("malformed PEM ({0})")]
    MalformedPem(String),
    /// Neither PEM nor DER of anything known.
    #[error("neither PEM nor DER of a certificate, key or revocation list")]
    UnknownFormat,
    /// No item of the kind that was asked for; its name.
    #[error("no {0} in it")]
    Missing(&'static str),
    /// A subject that does not parse, or has a part that is too long.
    #[error("bad subject {0:?}")]
    BadSubject(String),
    /// A subject alternative name that is no DNS name, address or URI.
    #[error("{0:?} is neither a DNS name, an IP address nor a URI")]
    BadAltName(String),
    /// A validity that ends too late; the days asked for.
    #[error("{0} days from then on the year 9999 is over")]
    TooManyDays(u32),
    /// A leaf that nothing could call by any name.
    #[error("neither a subject nor a subject alternative name")]
    Nameless,
    /// A server's leaf without a name to check.
    #[error("a server's certificate without a subject alternative name")]
    ServerWithoutName,
    /// A time that does not parse or lies outside the years 1970 to 9999.
    #[error("bad time {0:?}")]
    BadTime(String),
    /// A validity that ends before it begins.
    #[error("the validity ends before it begins")]
    EmptyValidity,
}

impl Error {
    /// What the user can do about it.
    pub fn advice(&self) -> String {
        match self {
            Self::Crypto => "check the system's memory and random source".into(),
            Self::UnknownKeyType(_) => format!("choose one of {}", KeyType::names()),
            Self::UnusableKey => format!("give an unencrypted key of type {}", KeyType::names()),
            Self::EncryptedKey => "decrypt it first, e.g. with `openssl pkey`".into(),
            Self::KeyMismatch => "give the key that was made with this certificate".into(),
            Self::NotAnAuthority => {
                "give a certificate made by `dunlin pki ca` or `dunlin pki intermediate`".into()
            }
            Self::PathTooLong => {
                "issue it higher up, or make the issuer anew with a larger --path-len".into()
            }
            Self::NotIssued => "give the certificate and key of the authority that issued it".into(),
            Self::OtherIssuer => "give the list of this authority, or another file for a new one".into(),
            Self::UnknownReason(_) => {
                format!("choose one of {}", RevocationReason::ALL.map(RevocationReason::name).join(", "))
            }
            Self::MalformedCertificate(_)
            | Self::MalformedList(_)
            | Self::MalformedPublicKey(_)
            | Self::MalformedPem(_)
            | Self::UnknownFormat => "give an undamaged PEM or DER file".into(),
            Self::Missing(what) => format!("give a file that holds a {what}"),
            Self::BadSubject(_) => "write it as RFC 4514 does, e.g. \"CN=name,O=organisation\"".into(),
            Self::BadAltName(_) => "write DNS:name without a port, IP:address or URI:uri".into(),
            Self::TooManyDays(_) => "give fewer days".into(),
            Self::Nameless => "give a name".into(),
            Self::ServerWithoutName => "name the host that clients will connect to".into(),
            Self::BadTime(_) => "write YYYY-MM-DD or YYYY-MM-DDThh:mm:ssZ, from 1970 on".into(),
            Self::EmptyValidity => "let it end after it begins".into(),
        }
    }
}

/// Encoding what this crate built itself cannot fail but by a limit of the encoder, e.g. a name of megabytes.
pub(crate) fn encoding(_: der::Error) -> Error {
    Error::Crypto
}
