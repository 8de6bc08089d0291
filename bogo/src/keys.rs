//! Loads credentials from files, and remembers which of them was used.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use dunlin::auth::{ExternalPsk, PeerIdentity, PrivateKey, Psk};
use dunlin::crypto::{CryptoError, CryptoProvider, HashAlgorithm, RsaDecryption, SecureRandom, SigningKey};
use dunlin::wire::{CipherSuite, SignatureScheme};
use dunlin::{Answer, ClientHelloInfo, Credential, Negotiated, TransportKind};
use pki_types::pem::PemObject;
use pki_types::{CertificateDer, PrivateKeyDer, SubjectPublicKeyInfoDer};
use zeroize::Zeroizing;

use crate::Failure;
use crate::options::{CredentialKind, CredentialOptions, Options};

/// The number for "no credential from an option".
const NONE: i32 = -1;

/// The credentials of one connection, in order of preference.
#[derive(Default)]
pub(crate) struct Credentials {
    list: Vec<Credential>,
    /// External keys, in their imported form.
    pub(crate) psks: Vec<Arc<Psk>>,
    psk_numbers: HashMap<Vec<u8>, i32>,
    /// OCSP responses, each with the index of its credential.
    pub(crate) ocsp_responses: Vec<(usize, Vec<u8>)>,
    /// The indexes of credentials that are only for peers that name their issuer.
    pub(crate) reserved: Vec<usize>,
    keys: Vec<Arc<Key>>,
    used: Arc<AtomicI32>,
}

impl Credentials {
    /// Reads the files. Credentials from options are numbered from 0; the default credential comes last.
    pub(crate) fn load(options: &Options, provider: &CryptoProvider) -> Result<Self, Failure> {
        let mut credentials = Self { used: Arc::new(AtomicI32::new(NONE)), ..Self::default() };
        for (number, credential) in (0..).zip(&options.credentials) {
            match credential.kind {
                CredentialKind::Psk => credentials.import(number, credential, provider, options.dtls)?,
                CredentialKind::X509 | CredentialKind::RawKey => {
                    credentials.add(number, credential, options.is_async, provider)?;
                }
            }
        }
        let default = &options.default_credential;
        if default.key_file.is_some() && default.certificate_file.is_some() {
            credentials.add(NONE, default, options.is_async, provider)?;
        }
        if !options.psk.is_empty() {
            let psk = Psk::new_allow_short(options.psk_identity.as_str(), options.psk.as_bytes())?;
            credentials.psks.push(Arc::new(psk));
        }
        Ok(credentials)
    }

    fn import(
        &mut self,
        number: i32,
        options: &CredentialOptions,
        provider: &CryptoProvider,
        dtls: bool,
    ) -> Result<(), Failure> {
        let transport = if dtls { TransportKind::Datagram } else { TransportKind::Stream };
        let external = ExternalPsk {
            identity: &options.psk_identity,
            key: &options.psk_key,
            hash: options.psk_hash.unwrap_or(HashAlgorithm::Sha256),
            context: &options.psk_context,
        };
        for psk in Psk::import(provider, &external, transport)? {
            self.psk_numbers.insert(psk.identity().to_vec(), number);
            self.psks.push(Arc::new(psk));
        }
        Ok(())
    }

    fn add(
        &mut self,
        number: i32,
        options: &CredentialOptions,
        is_async: bool,
        provider: &CryptoProvider,
    ) -> Result<(), Failure> {
        let file = options.key_file.as_deref().unwrap_or_default();
        let der = PrivateKeyDer::from_pem_file(file).map_err(|e| unreadable(file, &e))?;
        let loaded = provider.key_loader.load(&der);
        let inner = loaded.map_err(|_| Failure::Unimplemented(format!("the kind of key in {file}")))?;
        let schemes = schemes(&*inner, &options.signing_schemes);
        let public_key = inner.public_key().clone();
        let key = Arc::new(Key { inner, schemes, number, used: Arc::clone(&self.used) });
        let private_key = if is_async {
            // The label is the index of the key.
            PrivateKey::Elsewhere { schemes: key.schemes.clone(), label: self.keys.len().to_string() }
        } else {
            PrivateKey::Here(Arc::clone(&key) as Arc<dyn SigningKey>)
        };
        self.ocsp_responses.extend(options.ocsp_response.clone().map(|r| (self.keys.len(), r)));
        self.reserved.extend(options.must_match_issuer.then_some(self.keys.len()));
        self.keys.push(key);
        self.list.push(match options.kind {
            CredentialKind::RawKey => Credential::RawKey { public_key, key: private_key },
            CredentialKind::X509 | CredentialKind::Psk => {
                let file = options.certificate_file.as_deref().unwrap_or_default();
                Credential::X509 { chain: chain(file)?, key: private_key }
            }
        });
        Ok(())
    }

    /// The credentials for this client. Static RSA decrypts with the key, so the engine must have the key
    /// itself.
    pub(crate) fn for_client(&self, client: Option<&ClientHelloInfo>) -> Vec<Credential> {
        let static_rsa =
            |suite: &CipherSuite| suite.name().is_some_and(|name| name.starts_with("TLS_RSA_WITH_"));
        let is_signed = |suite: &CipherSuite| {
            suite.name().is_some_and(|name| name.contains("_WITH_")) && !static_rsa(suite)
        };
        let decrypts = client.is_some_and(|client| {
            client.cipher_suites.iter().any(static_rsa) && !client.cipher_suites.iter().any(is_signed)
        });
        let at_hand = |(credential, key): (&Credential, &Arc<Key>)| match credential {
            Credential::X509 { chain, .. } if decrypts => {
                Credential::x509(chain.clone(), Arc::clone(key) as Arc<dyn SigningKey>)
            }
            credential => credential.clone(),
        };
        self.list.iter().zip(&self.keys).map(at_hand).collect()
    }

    /// The answer to [`dunlin::Question::Sign`].
    pub(crate) fn sign(
        &self,
        label: &str,
        scheme: SignatureScheme,
        message: &[u8],
        random: &dyn SecureRandom,
    ) -> Answer {
        let key = label.parse().ok().and_then(|at: usize| self.keys.get(at));
        match key.and_then(|key| key.sign(scheme, message, random).ok()) {
            Some(signature) => Answer::Signature(signature),
            None => Answer::Failed,
        }
    }

    /// The number of the credential that was used; -1 if it did not come from an option.
    pub(crate) fn used(&self, negotiated: &Negotiated) -> i32 {
        match &negotiated.peer {
            Some(PeerIdentity::Psk(psk)) if !negotiated.is_resumed() => {
                self.psk_numbers.get(&psk.identity).copied().unwrap_or(NONE)
            }
            _ => self.used.load(Ordering::Relaxed),
        }
    }
}

/// The certificates in a PEM file.
pub(crate) fn chain(file: &str) -> Result<Vec<CertificateDer<'static>>, Failure> {
    let certificates = CertificateDer::pem_file_iter(file).map_err(|e| unreadable(file, &e))?;
    certificates.collect::<Result<_, _>>().map_err(|e| unreadable(file, &e))
}

fn unreadable(file: &str, why: &impl fmt::Display) -> Failure {
    Failure::Unexpected(format!("{file:?} cannot be read: {why}"))
}

/// The schemes with which the key signs: all of its own, or those among `wanted`.
fn schemes(key: &dyn SigningKey, wanted: &[SignatureScheme]) -> Vec<SignatureScheme> {
    if wanted.is_empty() {
        return key.schemes().to_vec();
    }
    let possible: Vec<_> = wanted.iter().copied().filter(|s| key.schemes().contains(&of_key(*s))).collect();
    if possible.is_empty() {
        // A credential needs a scheme, so give it one for private use, which no peer supports.
        return vec![SignatureScheme(0xfe00)];
    }
    possible
}

/// The key's own name of a scheme. The legacy code point for TLS 1.3 clients has the same signature.
fn of_key(scheme: SignatureScheme) -> SignatureScheme {
    match scheme {
        SignatureScheme::RSA_PKCS1_SHA256_LEGACY => SignatureScheme::RSA_PKCS1_SHA256,
        _ => scheme,
    }
}

/// A key that records its use.
struct Key {
    inner: Arc<dyn SigningKey>,
    schemes: Vec<SignatureScheme>,
    number: i32,
    used: Arc<AtomicI32>,
}

impl SigningKey for Key {
    fn schemes(&self) -> &[SignatureScheme] {
        &self.schemes
    }

    fn public_key(&self) -> &SubjectPublicKeyInfoDer<'static> {
        self.inner.public_key()
    }

    fn sign(
        &self,
        scheme: SignatureScheme,
        message: &[u8],
        random: &dyn SecureRandom,
    ) -> Result<Vec<u8>, CryptoError> {
        self.used.store(self.number, Ordering::Relaxed);
        self.inner.sign(of_key(scheme), message, random)
    }

    fn decryption(&self) -> Option<&dyn RsaDecryption> {
        self.inner.decryption().map(|_| self as &dyn RsaDecryption)
    }
}

impl RsaDecryption for Key {
    fn modulus_len(&self) -> usize {
        self.inner.decryption().map_or(0, RsaDecryption::modulus_len)
    }

    fn decrypt(&self, ciphertext: &[u8]) -> Result<Zeroizing<Vec<u8>>, CryptoError> {
        self.used.store(self.number, Ordering::Relaxed);
        self.inner.decryption().ok_or(CryptoError)?.decrypt(ciphertext)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("number", &self.number).finish_non_exhaustive()
    }
}
