//! The keys of both sides, in files that other processes can read.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::fs;
use std::sync::Arc;

use dunlin::Credential;
use dunlin::crypto::CryptoProvider;
use dunlin_pki::{Authority, CaSpec, Identity, Item, KeyPair, KeyType, LeafSpec, Subject, Validity};
use dunlin_pki::{certificates_to_pem, parse};
use pki_types::pem::PemObject;
use pki_types::{CertificateDer, PrivateKeyDer};

use super::super::foreign::MemoryFile;
use super::case::LowKey;
use super::count::Counted;
use crate::Error;

/// The name in the server's certificates. It is checked, but not sent.
pub(super) const SERVER_NAME: &str = "localhost";
/// The validity of certificates, in days.
const DAYS: u32 = 30;

/// The certificates of a run: leaves directly below one root. The paper's short key has a root of its own,
/// since it comes from a file.
pub(super) struct Keys {
    /// The root that servers trust.
    pub(super) root: MemoryFile,
    /// All roots, which clients trust.
    pub(super) roots: MemoryFile,
    pub(super) client: Pair,
    /// The server's RSA-4096 key, of the highest scheme.
    pub(super) high: Pair,
    /// The server's RSA-2048 key, of the lowest scheme.
    low: Pair,
    /// The server's RSA-1024 key, of the paper's lowest scheme.
    #[cfg(feature = "legacy-lab")]
    shortest: Pair,
}

/// A certificate and its key in PEM.
pub(super) struct Pair {
    pub(super) certificate: MemoryFile,
    pub(super) key: MemoryFile,
}

impl Keys {
    /// Makes new keys.
    pub(super) fn new() -> Result<Self, Error> {
        let failed = |error: dunlin_pki::Error| Error::new("certificates", &error, error.advice());
        let issued = || {
            let validity = Validity::from_now_days(DAYS)?;
            let root = CaSpec::new(Subject::common_name("Dunlin root")?, validity);
            let root = Authority::root(&root, KeyPair::generate(KeyType::Rsa2048)?)?;
            let server = |key| {
                root.issue(&LeafSpec::server([SERVER_NAME.parse()?], validity), KeyPair::generate(key)?)
            };
            let client = LeafSpec::client(Subject::common_name("device-1")?, validity);
            let client = root.issue(&client, KeyPair::generate(KeyType::Rsa2048)?)?;
            let high = server(KeyType::Rsa4096)?;
            let low = server(KeyType::Rsa2048)?;
            let pem = certificates_to_pem(std::slice::from_ref(root.certificate()))?;
            Ok((pem, client, high, low))
        };
        let (root, client, high, low) = issued().map_err(failed)?;
        let pair = |identity: &Identity| {
            let certificate = certificates_to_pem(&identity.chain).map_err(failed)?;
            let key = identity.key.to_pem().map_err(failed)?;
            let [certificate, key] = [certificate.as_str(), &key].map(|pem| MemoryFile::new(pem.as_bytes()));
            Ok::<_, Error>(Pair { certificate: certificate?, key: key? })
        };
        #[cfg(feature = "legacy-lab")]
        let shortest = dunlin_legacy::lab::identity::RSA_1024;
        #[cfg(feature = "legacy-lab")]
        let roots = [&root, shortest.root_pem].concat();
        #[cfg(not(feature = "legacy-lab"))]
        let roots = &root;
        Ok(Self {
            root: MemoryFile::new(root.as_bytes())?,
            roots: MemoryFile::new(roots.as_bytes())?,
            client: pair(&client)?,
            high: pair(&high)?,
            low: pair(&low)?,
            #[cfg(feature = "legacy-lab")]
            shortest: Pair {
                certificate: MemoryFile::new(shortest.cert_pem.as_bytes())?,
                key: MemoryFile::new(shortest.key_pem.as_bytes())?,
            },
        })
    }

    /// The server's key of the lowest scheme.
    pub(super) const fn low(&self, key: LowKey) -> &Pair {
        match key {
            #[cfg(feature = "legacy-lab")]
            LowKey::Rsa1024 => &self.shortest,
            _ => &self.low,
        }
    }
}

impl Pair {
    /// The paths of the certificate and of the key.
    pub(super) fn paths(&self) -> [OsString; 2] {
        [self.certificate.path().into(), self.key.path().into()]
    }
}

/// Reads the certificates of a file.
pub(super) fn certificates(path: &OsStr) -> Result<Vec<CertificateDer<'static>>, Error> {
    let certificate = |item| match item {
        Item::Certificate(certificate) => Some(certificate),
        _ => None,
    };
    Ok(read(path)?.into_iter().filter_map(certificate).collect())
}

/// Reads a certificate and its key. The key counts its signatures.
pub(super) fn credential(
    provider: &CryptoProvider,
    certificate: &OsStr,
    key: &OsStr,
) -> Result<Credential, Error> {
    let der = PrivateKeyDer::from_pem_slice(&fs::read(key).map_err(failed)?).map_err(failed)?;
    let key = provider.key_loader.load(&der).map_err(failed)?;
    Ok(Credential::x509(certificates(certificate)?, Arc::new(Counted::of(key))))
}

fn read(path: &OsStr) -> Result<Vec<Item>, Error> {
    parse(&fs::read(path).map_err(failed)?).map_err(failed)
}

fn failed(why: impl Display) -> Error {
    Error::new("keys of the lab", why, "this is for the lab itself")
}
