//! The keys of experiments: certificates, pre-shared keys, and files with keys for other programs.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use dunlin::auth::{Psk, PskTable, X509Trust};
use dunlin::crypto::CryptoProvider;
use dunlin::wire::SignatureScheme;
use dunlin::{Credential, PskSource, Trust};
use dunlin_pki::{
    Authority, CaSpec, Form, Identity, KeyPair, KeyType, LeafSpec, Subject, Validity, certificates_to_pem,
};
use pki_types::pem::PemObject;
use pki_types::{CertificateDer, PrivateKeyDer};

use super::foreign::MemoryFile;
use crate::Error;
use crate::error::failed;

/// The name in servers' certificates. Clients check it, but do not send it.
pub(super) const SERVER_NAME: &str = "localhost";
/// The name in clients' certificates.
pub(super) const CLIENT_NAME: &str = "device-1";
/// Root, intermediate and leaf; the root is not sent.
pub(super) const CHAIN_LENGTH: usize = 3;
/// The validity of certificates, in days.
const DAYS: u32 = 30;

/// Authorities below each other, of which the last one issues the leaves.
pub(super) struct Issuer {
    pub(super) root: CertificateDer<'static>,
    last: Authority,
    form: Form,
    validity: Validity,
    /// The root's name, if chains have one certificate: a leaf that signs itself.
    alone: Option<Subject>,
}

impl Issuer {
    /// Authorities with keys of this type, for chains of `chain_length` certificates, including the root.
    pub(super) fn new(form: Form, key_type: KeyType, chain_length: usize) -> Result<Self, Error> {
        let validity = Validity::from_now_days(DAYS)?;
        // The names of `dunlin pki`.
        let [root, between] = match form {
            Form::Full => ["Dunlin root", "Dunlin intermediate"],
            Form::Lean => ["R", "I"],
        };
        let spec = |subject| CaSpec { form, ..CaSpec::new(subject, validity) };
        let subject = Subject::common_name(root)?;
        let mut last = Authority::root(&spec(subject.clone()), KeyPair::generate(key_type)?)?;
        let root = last.certificate().clone();
        for number in 2..chain_length {
            // Two certificates of one name would be self-issued, which no peer sends.
            let name = if number == 2 { between.to_owned() } else { format!("{between} {number}") };
            let key = KeyPair::generate(key_type)?;
            last = last.intermediate(&spec(Subject::common_name(&name)?), key)?;
        }
        Ok(Self { root, last, form, validity, alone: (chain_length == 1).then_some(subject) })
    }

    /// The identity of a server with these names.
    pub(super) fn server(&self, names: &[&str], key: KeyPair) -> Result<Identity, Error> {
        let names = names.iter().map(|name| name.parse()).collect::<Result<Vec<_>, dunlin_pki::Error>>()?;
        self.issue(LeafSpec::server(names, self.validity), key)
    }

    /// The identity of a client with this name.
    pub(super) fn client(&self, name: &str, key: KeyPair) -> Result<Identity, Error> {
        self.issue(LeafSpec::client(Subject::common_name(name)?, self.validity), key)
    }

    fn issue(&self, mut leaf: LeafSpec, mut key: KeyPair) -> Result<Identity, Error> {
        leaf.form = self.form;
        if self.form == Form::Lean {
            // Without a purpose, a certificate serves for both sides.
            leaf.purposes.clear();
        }
        if let Some(subject) = &self.alone {
            leaf.subject = subject.clone();
            key = KeyPair::from_der(&PrivateKeyDer::Pkcs8(self.last.key().to_pkcs8()?.as_slice().into()))?;
        }
        Ok(self.last.issue(&leaf, key)?)
    }

    /// The trust anchor that verifies an identity of this issuer.
    pub(super) fn anchor_of(&self, identity: &Identity) -> CertificateDer<'static> {
        match (identity.chain.first(), &self.alone) {
            (Some(itself), Some(_)) => itself.clone(),
            _ => self.root.clone(),
        }
    }
}

/// The identities of both sides below one root.
pub(super) struct Keys {
    pub(super) root: CertificateDer<'static>,
    pub(super) client: Identity,
    pub(super) server: Identity,
}

impl Keys {
    /// Makes new keys of this type.
    pub(super) fn new(key_type: KeyType, chain_length: usize) -> Result<Self, Error> {
        let issuer = Issuer::new(Form::Full, key_type, chain_length)?;
        let client = issuer.client(CLIENT_NAME, KeyPair::generate(key_type)?)?;
        let server = issuer.server(&[SERVER_NAME], KeyPair::generate(key_type)?)?;
        Ok(Self { root: issuer.root, client, server })
    }
}

/// Trust in certificates below these anchors alone.
pub(super) fn trust(anchors: impl IntoIterator<Item = CertificateDer<'static>>) -> Result<Trust, Error> {
    let x509 = X509Trust::anchors(anchors).map_err(failed)?;
    Ok(Trust { x509: Some(x509), raw_key: None })
}

/// The certificates of an identity, to show them.
pub(super) fn credential(provider: &CryptoProvider, own: &Identity) -> Result<Credential, Error> {
    Ok(Credential::x509(own.chain.clone(), own.key.signing_key(provider)?))
}

/// The schemes of signatures by these keys in TLS 1.3, in handshakes and in certificates.
pub(super) fn schemes(key_type: KeyType) -> Vec<SignatureScheme> {
    match key_type {
        KeyType::P256 => vec![SignatureScheme::ECDSA_SECP256R1_SHA256],
        KeyType::Ed25519 => vec![SignatureScheme::ED25519],
        KeyType::MlDsa44 => vec![SignatureScheme::MLDSA44],
        // RFC 8446 §4.2.3: RSASSA-PKCS1-v1_5 signs certificates, but not handshakes.
        _ => vec![SignatureScheme::RSA_PSS_RSAE_SHA256, SignatureScheme::RSA_PKCS1_SHA256],
    }
}

/// A pre-shared key as a client has it, and as a server finds it.
pub(super) fn psk(identity: &str, key: &[u8]) -> Result<(Arc<Psk>, PskSource), Error> {
    let psk = || Psk::new(identity, key).map_err(failed);
    Ok((Arc::new(psk()?), PskSource::Here(Arc::new(PskTable::from_iter([psk()?])))))
}

/// A chain and its key in files, for other processes.
pub(super) struct Files {
    chain: MemoryFile,
    key: MemoryFile,
}

impl Files {
    pub(super) fn new(chain: &[u8], key: &[u8]) -> Result<Self, Error> {
        Ok(Self { chain: MemoryFile::new(chain)?, key: MemoryFile::new(key)? })
    }

    /// Files in PEM.
    pub(super) fn pem(own: &Identity) -> Result<Self, Error> {
        Self::new(certificates_to_pem(&own.chain)?.as_bytes(), own.key.to_pem()?.as_bytes())
    }

    /// The paths of the chain and of the key.
    pub(super) fn paths(&self) -> [OsString; 2] {
        [&self.chain, &self.key].map(|file| file.path().into())
    }
}

/// A certificate in a file in PEM.
pub(super) fn pem_file(certificate: &CertificateDer<'static>) -> Result<MemoryFile, Error> {
    MemoryFile::new(certificates_to_pem(std::slice::from_ref(certificate))?.as_bytes())
}

/// Reads the certificates of a file in PEM.
pub(super) fn certificates_in(file: &OsStr) -> Result<Vec<CertificateDer<'static>>, Error> {
    CertificateDer::pem_file_iter(file).and_then(Iterator::collect).map_err(unreadable)
}

/// Reads the private key of a file in PEM.
pub(super) fn key_in(file: &OsStr) -> Result<PrivateKeyDer<'static>, Error> {
    PrivateKeyDer::from_pem_file(file).map_err(unreadable)
}

fn unreadable(why: pki_types::pem::Error) -> Error {
    Error::new("keys of the lab", why, "this is for the lab itself")
}
