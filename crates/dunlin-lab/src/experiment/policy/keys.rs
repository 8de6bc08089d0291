//! The keys of both sides, in files that other processes can read.

use std::ffi::OsStr;

use dunlin::Credential;
use dunlin::crypto::CryptoProvider;
use dunlin_pki::{Form, KeyPair, KeyType, certificates_to_pem};

use super::super::foreign::MemoryFile;
use super::super::keys::{CLIENT_NAME, Files, Issuer, SERVER_NAME, certificates_in, key_in};
use super::super::watch::signer;
use super::case::LowKey;
use crate::Error;
use crate::error::failed;

/// The certificates of a run: leaves directly below one root. The paper's short key has a root of its own,
/// since it comes from a file.
pub(super) struct Keys {
    /// The root that servers trust.
    pub(super) root: MemoryFile,
    /// All roots, which clients trust.
    pub(super) roots: MemoryFile,
    pub(super) client: Files,
    /// The server's RSA-4096 key, of the highest scheme.
    pub(super) high: Files,
    /// The server's RSA-2048 key, of the lowest scheme.
    low: Files,
    /// The server's RSA-1024 key, of the paper's lowest scheme.
    #[cfg(feature = "legacy-lab")]
    shortest: Files,
}

impl Keys {
    /// Makes new keys.
    pub(super) fn new() -> Result<Self, Error> {
        let issuer = Issuer::new(Form::Full, KeyType::Rsa2048, 2)?;
        let server = |key_type| Files::pem(&issuer.server(&[SERVER_NAME], KeyPair::generate(key_type)?)?);
        let root = certificates_to_pem(std::slice::from_ref(&issuer.root))?;
        #[cfg(feature = "legacy-lab")]
        let shortest = dunlin_legacy::lab::identity::RSA_1024;
        #[cfg(feature = "legacy-lab")]
        let roots = [&root, shortest.root_pem].concat();
        #[cfg(not(feature = "legacy-lab"))]
        let roots = &root;
        Ok(Self {
            root: MemoryFile::new(root.as_bytes())?,
            roots: MemoryFile::new(roots.as_bytes())?,
            client: Files::pem(&issuer.client(CLIENT_NAME, KeyPair::generate(KeyType::Rsa2048)?)?)?,
            high: server(KeyType::Rsa4096)?,
            low: server(KeyType::Rsa2048)?,
            #[cfg(feature = "legacy-lab")]
            shortest: Files::new(shortest.cert_pem.as_bytes(), shortest.key_pem.as_bytes())?,
        })
    }

    /// The server's key of the lowest scheme.
    pub(super) const fn low(&self, key: LowKey) -> &Files {
        match key {
            #[cfg(feature = "legacy-lab")]
            LowKey::Rsa1024 => &self.shortest,
            _ => &self.low,
        }
    }
}

/// Reads a certificate and its key. The key counts its signatures.
pub(super) fn credential(
    provider: &CryptoProvider,
    certificate: &OsStr,
    key: &OsStr,
) -> Result<Credential, Error> {
    let key = provider.key_loader.load(&key_in(key)?).map_err(failed)?;
    Ok(Credential::x509(certificates_in(certificate)?, signer(key)))
}
