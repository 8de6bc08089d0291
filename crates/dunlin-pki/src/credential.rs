//! The credential of a client or server, read from PEM files and checked.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin::{Credential, Side};
use pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use x509_cert::certificate::Version;
use zeroize::Zeroizing;

use crate::{Certificate, CertificateInfo, Error, Item, KeyPair, format_time, parse_for};

/// The largest file that is read, in bytes: far more than a chain and its key.
const MAX_FILE: u64 = 1 << 20;

/// A certificate chain with its private key, read from PEM files and checked.
///
/// # Examples
/// ```no_run
/// use std::path::Path;
/// use std::time::SystemTime;
/// use dunlin::Side;
/// use dunlin_pki::LoadedCredential;
///
/// # fn load(provider: &dunlin::crypto::CryptoProvider) -> Result<(), dunlin_pki::LoadError> {
/// let (certificate, key) = (Path::new("server.pem"), Path::new("server.key"));
/// let loaded = LoadedCredential::load(certificate, Some(key), Side::Server, SystemTime::now(), provider)?;
/// if let Some(refusal) = &loaded.refusal {
///     eprintln!("server.pem: {refusal}: peers will refuse it");
/// }
/// let credentials = vec![loaded.credential]; // for ProfileBuilder::credentials
/// # drop(credentials);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct LoadedCredential {
    /// The chain and its key. The key belongs to the first certificate.
    pub credential: Credential,
    /// The same key by itself, for a raw public key ([`Credential::raw_key`]).
    pub key: Arc<dyn SigningKey>,
    /// Why peers will refuse the chain, if the chain alone shows it.
    pub refusal: Option<Refusal>,
}

impl LoadedCredential {
    /// Reads the chain from the file `certificate`, leaf first, and the private key from the file `key`, or
    /// from `certificate` if `key` is `None`. `side` is the side that uses the credential, and `now` is the
    /// current time.
    ///
    /// # Errors
    /// A file cannot be read, is malformed, or lacks the certificate or the key; the provider cannot use a
    /// key of this type; the key does not belong to the first certificate ([`Error::KeyMismatch`]).
    pub fn load(
        certificate: &Path,
        key: Option<&Path>,
        side: Side,
        now: SystemTime,
        provider: &CryptoProvider,
    ) -> Result<Self, LoadError> {
        let key = key.unwrap_or(certificate);
        let certificate_pem = read(certificate)?;
        let key_pem = if key == certificate { None } else { Some(read(key)?) };
        let key_pem = key_pem.as_ref().unwrap_or(&certificate_pem);
        Self::from_pem(&certificate_pem, key_pem, side, now, provider).map_err(|fault| match fault {
            CredentialFault::Certificate(error) => LoadError { file: certificate.to_owned(), error },
            CredentialFault::Key(error) => LoadError { file: key.to_owned(), error },
        })
    }

    /// As [`Self::load`], from the content of the two files. Both may be the same file.
    ///
    /// # Errors
    /// As for [`Self::load`].
    pub fn from_pem(
        certificate: &[u8],
        key: &[u8],
        side: Side,
        now: SystemTime,
        provider: &CryptoProvider,
    ) -> Result<Self, CredentialFault> {
        let in_key = |error| CredentialFault::Key(error);
        let private = |item| if let Item::PrivateKey(pair) = item { Some(pair) } else { None };
        let pairs = parse_for(key, "private key", private).map_err(in_key)?;
        let count = pairs.len();
        let pair = pairs.into_iter().next().ok_or(CredentialFault::Key(Error::missing("private key")))?;
        let signing_key = pair.signing_key(provider).map_err(in_key)?;

        let in_certificate = |error| CredentialFault::Certificate(error);
        let public = |item| if let Item::Certificate(der) = item { Some(der) } else { None };
        let chain = parse_for(certificate, "certificate", public).map_err(in_certificate)?;
        if !is_key_of(&pair, &chain).map_err(in_certificate)? {
            let mismatch = if count > 1 { Error::FirstKeyMismatch(count) } else { Error::KeyMismatch };
            return Err(CredentialFault::Key(mismatch));
        }
        let refusal = Refusal::of(&chain, side, now);
        Ok(Self { credential: Credential::x509(chain, signing_key.clone()), key: signing_key, refusal })
    }
}

impl KeyPair {
    /// The key for handshakes over `provider`.
    ///
    /// # Errors
    /// [`Error::UnusableKey`] if the provider cannot sign with it.
    pub fn signing_key(&self, provider: &CryptoProvider) -> Result<Arc<dyn SigningKey>, Error> {
        let der = self.to_pkcs8()?;
        let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(&der[..]));
        provider.key_loader.load(&der).map_err(|_| Error::UnusableKey)
    }
}

/// Whether the key belongs to the first certificate.
fn is_key_of(pair: &KeyPair, chain: &[CertificateDer<'_>]) -> Result<bool, Error> {
    let leaf = Certificate::from_der(chain.first().ok_or(Error::missing("certificate"))?)?;
    // RFC 8446 §4.4.2.2: peers accept only version 3.
    if leaf.fields.tbs.version != Version::V3 {
        return Err(Error::MalformedCertificate("not of version 3".to_owned()));
    }
    Ok(leaf.public_key() == pair.public_key())
}

/// Why every peer with a correct clock will refuse a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// A certificate has expired.
    Expired {
        /// The subject of a certificate above the leaf; `None` for the leaf.
        issuer: Option<String>,
        /// The last moment of its validity.
        at: SystemTime,
    },
    /// A certificate is not valid yet.
    NotYetValid {
        /// The subject of a certificate above the leaf; `None` for the leaf.
        issuer: Option<String>,
        /// The first moment of its validity.
        before: SystemTime,
    },
    /// The leaf is the certificate of an authority.
    Authority,
    /// The leaf is not for this side (RFC 5280 §4.2.1.12).
    Purpose(Side),
}

impl Refusal {
    fn of(chain: &[CertificateDer<'_>], side: Side, now: SystemTime) -> Option<Self> {
        chain.iter().enumerate().find_map(|(index, der)| {
            let certificate = CertificateInfo::from_der(der).ok()?;
            let issuer = (index > 0).then(|| certificate.subject.clone());
            if certificate.not_after < now {
                Some(Self::Expired { issuer, at: certificate.not_after })
            } else if certificate.not_before > now {
                Some(Self::NotYetValid { issuer, before: certificate.not_before })
            } else if index > 0 {
                None
            } else if certificate.ca {
                Some(Self::Authority)
            } else {
                is_for_others(&certificate, side).then_some(Self::Purpose(side))
            }
        })
    }
}

/// RFC 5280 §4.2.1.12: a certificate without a list of purposes, or with anyExtendedKeyUsage in it, serves
/// both sides.
fn is_for_others(certificate: &CertificateInfo, side: Side) -> bool {
    let purposes = &certificate.purposes;
    let wanted = purpose(side);
    !purposes.is_empty()
        && !purposes.iter().any(|purpose| purpose == wanted || purpose == "anyExtendedKeyUsage")
}

const fn purpose(side: Side) -> &'static str {
    match side {
        Side::Client => "clientAuth",
        Side::Server => "serverAuth",
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |issuer: &Option<String>| {
            issuer.as_ref().map_or_else(String::new, |issuer| format!(", that of {issuer},"))
        };
        match self {
            Self::Expired { issuer, at } => {
                write!(f, "a certificate{} expired at {}", of(issuer), format_time(*at))
            }
            Self::NotYetValid { issuer, before } => {
                write!(f, "a certificate{} is not valid before {}", of(issuer), format_time(*before))
            }
            Self::Authority => f.write_str("the certificate is an authority's and cannot serve as a leaf"),
            Self::Purpose(side) => {
                let role = if *side == Side::Client { "client" } else { "server" };
                write!(f, "the certificate is not for a {role}: its purposes lack {}", purpose(*side))
            }
        }
    }
}

/// Why the content of the two files makes no credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialFault {
    /// The fault is in the file with the chain.
    Certificate(Error),
    /// The fault is in the file with the key.
    Key(Error),
}

impl CredentialFault {
    /// The underlying error.
    pub const fn error(&self) -> &Error {
        match self {
            Self::Certificate(error) | Self::Key(error) => error,
        }
    }
}

impl fmt::Display for CredentialFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error().fmt(f)
    }
}

impl std::error::Error for CredentialFault {}

/// Why a credential cannot be loaded, and from which file. The text is one line: what, where, what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// The file.
    pub file: PathBuf,
    /// The error in the file.
    pub error: Error,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.file.display(), self.error, self.error.advice())
    }
}

impl std::error::Error for LoadError {}

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, LoadError> {
    let failed =
        |error: io::Error| LoadError { file: path.to_owned(), error: Error::Unreadable(error.kind()) };
    let file = File::open(path).map_err(failed)?;
    // Room for all of it, because a vector that grows leaves unwiped copies behind.
    let mut content = Zeroizing::new(Vec::with_capacity(MAX_FILE as usize + 1));
    file.take(MAX_FILE + 1).read_to_end(&mut content).map_err(failed)?;
    if content.len() as u64 > MAX_FILE {
        Err(failed(io::ErrorKind::FileTooLarge.into()))
    } else {
        Ok(content)
    }
}
