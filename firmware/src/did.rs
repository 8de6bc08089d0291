//! Devices with a decentralised identifier (docs/identity.md): each side shows its bare DID in a message of
//! its own. The keys are Ed25519.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use dunlin::auth::{
    Claim, DidProofs, Identifier, KnownRegistry, OtherIdentity, PrivateKey, Validity, Verdict, Verified,
    Verifier, Verifiers,
};
use dunlin::crypto::{CryptoProvider, SecureRandom};
use dunlin::error::{AuthenticationFailure, Misuse};
use dunlin::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use dunlin::wire::{AlertDescription, CertificateType, DidMethod, SignatureScheme};
use dunlin::{ClientConfig, Credential, Error, PeerIdentity, Profile, SsiMessages};
use dunlin_identity::key::PublicKey;
use dunlin_identity::method::Key;
use dunlin_identity::transparency::{NoteKey, RegistryTrust, SignedCheckpoint, Staple};
use dunlin_identity::{Did, Relationship};
use dunlin_rustcrypto::{ED25519_KEY_LOADER, ED25519_SIGNATURES, SHA256, TLS13_AES_128_CCM_SHA256, X25519};

use crate::parameters::Parameters;

/// The provider of both programs.
pub fn provider(random: Arc<dyn SecureRandom>) -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        name: dunlin_rustcrypto::NAME,
        cipher_suites: vec![&TLS13_AES_128_CCM_SHA256],
        groups: vec![X25519],
        sha256: SHA256,
        signatures: ED25519_SIGNATURES,
        random,
        key_loader: ED25519_KEY_LOADER,
    })
}

/// The device shows `own`, and verifies the server with `verifier`. The next parameter is the device's
/// private key (PKCS#8).
///
/// # Errors
/// The key does not parse.
pub fn configure(
    parameters: &mut Parameters,
    provider: Arc<CryptoProvider>,
    own: Identifier,
    verifier: Arc<dyn Verifier>,
) -> Result<ClientConfig, Error> {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(parameters.bytes()));
    let key = provider.key_loader.load(&key).map_err(|_| Misuse::Config("the key".into()))?;
    let scheme = SignatureScheme::ED25519;
    let profile = Profile::lean(provider, &TLS13_AES_128_CCM_SHA256, X25519, scheme)
        .ssi_messages(SsiMessages::Alone)
        .credentials(vec![Credential::Identifier { identifier: own, key: PrivateKey::Here(key) }])
        .trust(Verifiers::default().with(verifier))
        .build()?;
    Ok(ClientConfig::new(profile))
}

/// The next parameter as text.
///
/// # Errors
/// It is not UTF-8.
pub fn text(parameters: &mut Parameters) -> Result<String, Error> {
    String::from_utf8(parameters.bytes()).map_err(|_| Misuse::Config("a text".into()).into())
}

/// The next parameter as a DID.
///
/// # Errors
/// It is none.
pub fn did(parameters: &mut Parameters) -> Result<Did, Error> {
    text(parameters)?.parse().map_err(|_| Misuse::Config("a DID".into()).into())
}

/// The one server that the device talks to, by a `did:key`, which is its key.
#[derive(Debug)]
pub struct KnownServer(pub Did);

/// Whether the peer's message has this DID.
fn is(claim: &Claim<'_>, did: &Did) -> Result<(), AuthenticationFailure> {
    match claim.entries {
        [shown] if **shown == *did.as_str().as_bytes() => Ok(()),
        _ => Err(refused(AlertDescription::UNKNOWN_CA, "another DID")),
    }
}

fn refused(alert: AlertDescription, why: &str) -> AuthenticationFailure {
    AuthenticationFailure::RejectedWith(alert, why.into())
}

/// The peer has this DID, if it has this key.
fn verified(did: &Did, key: &PublicKey, validity: Validity) -> Result<Verdict, AuthenticationFailure> {
    let typ = CertificateType::DECENTRALISED_IDENTIFIER;
    let identity =
        OtherIdentity::new(typ, did.as_str(), "").map_err(|_| AuthenticationFailure::BadEncoding)?;
    Ok(Verdict::Accepted(Verified::new(key.spki().clone(), PeerIdentity::Other(identity), validity)))
}

impl Verifier for KnownServer {
    fn certificate_type(&self) -> CertificateType {
        CertificateType::DECENTRALISED_IDENTIFIER
    }

    fn settings(&self, add: &mut dyn FnMut(&[u8])) {
        add(self.0.as_str().as_bytes());
    }

    fn verify(&self, claim: &Claim<'_>) -> Result<Verdict, AuthenticationFailure> {
        is(claim, &self.0)?;
        let key = Key::public_key(&self.0).map_err(|_| AuthenticationFailure::BadEncoding)?;
        verified(&self.0, &key, Validity::ALWAYS)
    }

    fn did_methods(&self) -> Vec<DidMethod> {
        vec![DidMethod::KEY]
    }
}

/// The one server that the device talks to, by a `did:dunlin`, whose latest document the server proves.
#[derive(Debug)]
pub struct ProvenServer {
    did: Did,
    provider: Arc<CryptoProvider>,
    registry: RegistryTrust,
    /// The largest checkpoint that the device has accepted, so that the registry cannot go back. A real
    /// device keeps it in its flash.
    newest: Option<SignedCheckpoint>,
}

impl ProvenServer {
    /// The next parameters are the server's DID, the registry's key as log and as witness, and the newest
    /// checkpoint, which is empty at the first boot.
    ///
    /// # Errors
    /// One of them does not parse.
    pub fn read(parameters: &mut Parameters, provider: Arc<CryptoProvider>) -> Result<Self, Error> {
        let did = did(parameters)?;
        let mut key = || {
            let key = NoteKey::read(&provider, &text(parameters)?);
            key.map_err(|_| Error::from(Misuse::Config("a registry's key".into())))
        };
        let log = key()?;
        let witness = key()?;
        let registry = RegistryTrust::new(log, vec![witness]);
        let registry = registry.map_err(|_| Misuse::Config("the registry's keys".into()))?;
        let newest = parameters.bytes();
        let newest = (!newest.is_empty()).then(|| SignedCheckpoint::read(&newest)).transpose();
        let newest = newest.map_err(|_| Misuse::Config("the checkpoint".into()))?;
        Ok(Self { did, provider, registry, newest })
    }

    /// The registry, as handshakes name it.
    pub fn known(&self) -> Vec<KnownRegistry> {
        self.registry.known(self.newest.as_ref())
    }
}

impl Verifier for ProvenServer {
    fn certificate_type(&self) -> CertificateType {
        CertificateType::DECENTRALISED_IDENTIFIER
    }

    fn settings(&self, add: &mut dyn FnMut(&[u8])) {
        add(self.did.as_str().as_bytes());
        add(self.registry.origin().as_bytes());
    }

    fn verify(&self, claim: &Claim<'_>) -> Result<Verdict, AuthenticationFailure> {
        is(claim, &self.did)?;
        let bad = || refused(AlertDescription::BAD_CERTIFICATE, "the proof of its document");
        let old = || refused(AlertDescription::CERTIFICATE_EXPIRED, "an old proof of its document");
        let staple = Staple::read(claim.did_proof.ok_or_else(bad)?).map_err(|_| bad())?;
        let newest = self.newest.as_ref();
        let now_s = claim.now.unix_ms / 1000;
        let found = staple.verify(&self.provider, &self.did, &self.registry, newest, now_s);
        let found = found.map_err(|error| if error.is_old() { old() } else { bad() })?;
        let (_, key) = found.document.keys(Relationship::Authentication).next().ok_or_else(bad)?;
        verified(&self.did, key, Validity::new(0, found.checkpoint.fresh_until_s))
    }

    fn did_methods(&self) -> Vec<DidMethod> {
        vec![DidMethod::DUNLIN]
    }

    fn registries(&self) -> Vec<KnownRegistry> {
        self.known()
    }
}

/// The staple of the device's own DID, which it gets from its registry while it has a connection.
#[derive(Debug)]
pub struct StoredProof {
    /// The staple.
    pub staple: Vec<u8>,
    /// The names of its registry in handshakes.
    pub registry: Vec<KnownRegistry>,
}

impl DidProofs for StoredProof {
    fn latest(&self, accepted: &[KnownRegistry]) -> Option<Vec<u8>> {
        let is_own = |known: &KnownRegistry| self.registry.iter().any(|own| own.key_id == known.key_id);
        accepted.iter().any(is_own).then(|| self.staple.clone())
    }
}
