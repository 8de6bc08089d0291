//! Cryptography and verifiers that record what they do, for experiments that measure the parts of a
//! handshake. The engine needs no change.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use dunlin::auth::{Belief, Claim, KnownRegistry, Verdict, Verified, Verifier};
use dunlin::crypto::{
    ActiveKeyExchange, CryptoError, CryptoProvider, FiniteField, KeyExchangeGroup, KeyLoader, RsaDecryption,
    SecureRandom, SharedSecret, SignatureAlgorithms, SigningKey,
};
use dunlin::error::AuthenticationFailure;
use dunlin::wire::{CertificateType, DidMethod, NamedGroup, SignatureScheme};
use dunlin::{Now, PeerIdentity};
use pki_types::{
    AlgorithmIdentifier, CertificateDer, InvalidSignature, PrivateKeyDer, SignatureVerificationAlgorithm,
    SubjectPublicKeyInfoDer,
};
use zeroize::Zeroizing;

use crate::link::in_real_time;
use crate::net::on_own_thread;

thread_local! {
    /// The operations of this thread since the last call of [`timed`].
    static SPENT: Cell<Operations> = Cell::default();
}

/// Time and sizes by operation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Operations {
    /// Key shares and their secrets; encryption and decryption of secrets.
    pub(super) key: Duration,
    /// Signing and verifying, in the handshake and in certificates.
    pub(super) signature: Duration,
    /// The number of made signatures.
    pub(super) signed: u32,
    /// Verifying alone.
    pub(super) verifying: Duration,
    /// The number of verified signatures.
    pub(super) verified: u32,
    /// The bytes of these signatures.
    pub(super) signature_bytes: usize,
    /// The bytes of the keys that verified them.
    pub(super) public_key_bytes: usize,
    /// Judging the peer's identity: all that a [`WatchedVerifier`] does.
    pub(super) identity: Duration,
}

impl Operations {
    /// These and further ones.
    pub(super) fn and(self, further: Self) -> Self {
        Self {
            key: self.key + further.key,
            signature: self.signature + further.signature,
            signed: self.signed + further.signed,
            verifying: self.verifying + further.verifying,
            verified: self.verified + further.verified,
            signature_bytes: self.signature_bytes + further.signature_bytes,
            public_key_bytes: self.public_key_bytes + further.public_key_bytes,
            identity: self.identity + further.identity,
        }
    }
}

/// Runs `work`, and adds to what this thread has done.
fn recorded<T>(work: impl FnOnce() -> T, add: impl FnOnce(&mut Operations, Duration)) -> T {
    let start = Instant::now();
    let result = work();
    let time = start.elapsed();
    SPENT.with(|spent| {
        let mut so_far = spent.get();
        add(&mut so_far, time);
        spent.set(so_far);
    });
    result
}

/// Runs `work`, which is about a key exchange.
pub(super) fn for_keys<T>(work: impl FnOnce() -> T) -> T {
    recorded(work, |spent, time| spent.key += time)
}

/// Runs `work`, which judges the identity of a peer.
pub(super) fn for_identity<T>(work: impl FnOnce() -> T) -> T {
    recorded(work, |spent, time| spent.identity += time)
}

/// Runs `work` on a thread that, if permitted, no other program interrupts. Processes that it starts inherit
/// this.
pub(super) fn undisturbed<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    on_own_thread(|| {
        in_real_time();
        work()
    })
}

/// Runs `work`. Returns its duration, and what it did.
pub(super) fn timed<T>(work: impl FnOnce() -> T) -> (T, (Duration, Operations)) {
    SPENT.take();
    let start = Instant::now();
    let result = work();
    let time = start.elapsed();
    (result, (time, SPENT.get()))
}

/// Returns what this thread has done since the last call, or since that of [`timed`].
pub(super) fn spent() -> Operations {
    SPENT.take()
}

/// Wraps a provider and the keys that it loads. Parts of a provider are static, so the wrapped parts stay
/// until the process ends; an experiment makes them once.
pub(super) fn provider(all: &CryptoProvider) -> CryptoProvider {
    let group = |group: &&'static dyn KeyExchangeGroup| {
        let group: &'static dyn KeyExchangeGroup = Box::leak(Box::new(Group(*group)));
        group
    };
    let signatures = |algorithms: &[&'static dyn SignatureVerificationAlgorithm]| {
        let watched = algorithms.iter().map(|algorithm| {
            let verifier: &'static dyn SignatureVerificationAlgorithm =
                Box::leak(Box::new(Signatures(*algorithm)));
            verifier
        });
        &*watched.collect::<Vec<_>>().leak()
    };
    let schemes = all.signatures.schemes.iter().map(|(scheme, of)| (*scheme, signatures(of)));
    CryptoProvider {
        groups: all.groups.iter().map(group).collect(),
        signatures: SignatureAlgorithms {
            all: signatures(all.signatures.all),
            schemes: schemes.collect::<Vec<_>>().leak(),
        },
        key_loader: Box::leak(Box::new(Loader(all.key_loader))),
        ..all.clone()
    }
}

#[derive(Debug)]
struct Group(&'static dyn KeyExchangeGroup);

impl KeyExchangeGroup for Group {
    fn name(&self) -> NamedGroup {
        self.0.name()
    }

    fn start(&self, random: &dyn SecureRandom) -> Result<Box<dyn ActiveKeyExchange>, CryptoError> {
        let active = for_keys(|| self.0.start(random))?;
        Ok(Box::new(Active(active)))
    }

    fn finite_field(&self) -> Option<FiniteField> {
        self.0.finite_field()
    }

    fn respond(
        &self,
        random: &dyn SecureRandom,
        peer: &[u8],
    ) -> Result<(Vec<u8>, SharedSecret), CryptoError> {
        for_keys(|| self.0.respond(random, peer))
    }
}

struct Active(Box<dyn ActiveKeyExchange>);

impl ActiveKeyExchange for Active {
    fn share(&self) -> &[u8] {
        self.0.share()
    }

    fn complete(&self, peer: &[u8]) -> Result<SharedSecret, CryptoError> {
        for_keys(|| self.0.complete(peer))
    }
}

#[derive(Debug)]
struct Signatures(&'static dyn SignatureVerificationAlgorithm);

impl SignatureVerificationAlgorithm for Signatures {
    fn verify_signature(
        &self,
        public_key: &[u8],
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), InvalidSignature> {
        let verify = || self.0.verify_signature(public_key, message, signature);
        recorded(verify, |spent, time| {
            spent.signature += time;
            spent.verifying += time;
            spent.verified += 1;
            spent.signature_bytes += signature.len();
            spent.public_key_bytes += public_key.len();
        })
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        self.0.public_key_alg_id()
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        self.0.signature_alg_id()
    }
}

#[derive(Debug)]
struct Loader(&'static dyn KeyLoader);

impl KeyLoader for Loader {
    fn load(&self, der: &PrivateKeyDer<'_>) -> Result<Arc<dyn SigningKey>, CryptoError> {
        self.0.load(der).map(signer)
    }
}

/// Wraps a key.
pub(super) fn signer(key: Arc<dyn SigningKey>) -> Arc<dyn SigningKey> {
    Arc::new(Signer { decrypts: Decrypter(key.clone()), key })
}

#[derive(Debug)]
struct Signer {
    key: Arc<dyn SigningKey>,
    decrypts: Decrypter,
}

impl SigningKey for Signer {
    fn schemes(&self) -> &[SignatureScheme] {
        self.key.schemes()
    }

    fn public_key(&self) -> &SubjectPublicKeyInfoDer<'static> {
        self.key.public_key()
    }

    fn sign(
        &self,
        scheme: SignatureScheme,
        message: &[u8],
        random: &dyn SecureRandom,
    ) -> Result<Vec<u8>, CryptoError> {
        recorded(
            || self.key.sign(scheme, message, random),
            |spent, time| {
                spent.signature += time;
                spent.signed += 1;
            },
        )
    }

    fn decryption(&self) -> Option<&dyn RsaDecryption> {
        self.key.decryption().map(|_| &self.decrypts as &dyn RsaDecryption)
    }
}

/// The interface of a key that can decrypt.
#[derive(Debug)]
struct Decrypter(Arc<dyn SigningKey>);

impl RsaDecryption for Decrypter {
    fn modulus_len(&self) -> usize {
        self.0.decryption().map_or(0, RsaDecryption::modulus_len)
    }

    fn decrypt(&self, ciphertext: &[u8]) -> Result<Zeroizing<Vec<u8>>, CryptoError> {
        for_keys(|| self.0.decryption().ok_or(CryptoError)?.decrypt(ciphertext))
    }
}

/// A verifier of identities that records its time.
#[derive(Debug)]
pub(super) struct WatchedVerifier(pub(super) Arc<dyn Verifier>);

impl Verifier for WatchedVerifier {
    fn certificate_type(&self) -> CertificateType {
        self.0.certificate_type()
    }

    fn settings(&self, add: &mut dyn FnMut(&[u8])) {
        self.0.settings(add);
    }

    fn verify(&self, claim: &Claim<'_>) -> Result<Verdict, AuthenticationFailure> {
        for_identity(|| self.0.verify(claim))
    }

    fn read(&self, claim: &Claim<'_>) -> Result<Box<Verified>, AuthenticationFailure> {
        self.0.read(claim)
    }

    fn check(&self) -> Result<(), &'static str> {
        self.0.check()
    }

    fn authorities(&self) -> Vec<Vec<u8>> {
        self.0.authorities()
    }

    fn did_methods(&self) -> Vec<DidMethod> {
        self.0.did_methods()
    }

    fn registries(&self) -> Vec<KnownRegistry> {
        self.0.registries()
    }

    fn accepts_status(&self) -> bool {
        self.0.accepts_status()
    }

    fn still_believes(&self, identity: &PeerIdentity, now: Now) -> Belief {
        self.0.still_believes(identity, now)
    }

    fn issuer<'c>(&self, entries: &'c [CertificateDer<'_>]) -> Option<&'c [u8]> {
        self.0.issuer(entries)
    }
}
