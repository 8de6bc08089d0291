//! The traits that a cryptographic library implements for the engine, and the consistency check of a
//! provider.
//!
//! A provider is a plain struct of references to parts. Every part is a `static` of the provider crate. A
//! program whose own [`CryptoProvider`] names only some parts links only those.
//!
//! All operations are synchronous and take their randomness from the caller. A handshake with given
//! randomness is therefore reproducible wherever the algorithm allows it.

use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;

use pki_types::{PrivateKeyDer, SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::wire::{CipherSuite, NamedGroup, SignatureScheme};

mod check;
mod hybrid;
pub mod rsa_pss;
mod tls12;

pub use check::ProviderFault;
pub use hybrid::{HybridGroup, HybridOrder};
pub use tls12::{Tls12Authentication, Tls12CipherSuite, Tls12KeyExchange};

/// The largest hash output that a handshake uses, in bytes (SHA-384 needs 48; 64 leaves room for SHA-512).
pub const MAX_HASH_LEN: usize = 64;
/// The largest AEAD key, in bytes.
pub const MAX_KEY_LEN: usize = 32;
/// The nonce of every AEAD in TLS 1.3 and in the supported TLS 1.2 suites, in bytes.
pub const NONCE_LEN: usize = 12;
/// The largest AEAD tag, in bytes.
pub const MAX_TAG_LEN: usize = 16;

/// A cryptographic library as the engine sees it. Use struct-update syntax to replace parts.
#[derive(Clone)]
pub struct CryptoProvider {
    /// The library's name, for messages and reports.
    pub name: &'static str,
    /// TLS 1.3 cipher suites, in order of preference.
    pub cipher_suites: Vec<&'static Tls13CipherSuite>,
    /// Groups for key exchange, in order of preference.
    pub groups: Vec<&'static dyn KeyExchangeGroup>,
    /// SHA-256 for fingerprints and digests, independent of the cipher suites.
    pub sha256: &'static dyn Hash,
    /// The signature algorithms that the library can verify.
    pub signatures: SignatureAlgorithms,
    /// The source of randomness.
    pub random: Arc<dyn SecureRandom>,
    /// Turns private keys in DER into signing keys.
    pub key_loader: &'static dyn KeyLoader,
}

impl CryptoProvider {
    /// The suite with this number; `None` if the provider does not have it.
    pub fn suite(&self, id: CipherSuite) -> Option<&'static Tls13CipherSuite> {
        self.cipher_suites.iter().copied().find(|s| s.id == id)
    }

    /// The group with this number; `None` if the provider does not have it.
    pub fn group(&self, name: NamedGroup) -> Option<&'static dyn KeyExchangeGroup> {
        self.groups.iter().copied().find(|g| g.name() == name)
    }

    /// Checks that the parts are consistent and work: unique numbers, correct lengths, and a known answer or
    /// a round trip for every hash, AEAD and group. The engine runs it once, when a configuration is built.
    ///
    /// # Errors
    /// The first part that is missing, duplicated or wrong.
    pub fn check(&self) -> Result<(), ProviderFault> {
        check::check(self)
    }

    /// Checks the suites and groups that a profile adds to the provider's.
    pub(crate) fn check_others(
        &self,
        suites: &[&'static Tls13CipherSuite],
        groups: &[&'static dyn KeyExchangeGroup],
    ) -> Result<(), ProviderFault> {
        let mut others = suites.iter().filter(|suite| self.suite(suite.id).is_none());
        others.try_for_each(|suite| check::works(suite.hash, suite.aead))?;
        let mut others = groups.iter().filter(|group| self.group(group.name()).is_none());
        others.try_for_each(|group| check::agrees(self, *group))
    }
}

impl CryptoProvider {
    /// Checks a TLS 1.2 suite; providers have no list of those.
    pub(crate) fn check_tls12(suite: &Tls12CipherSuite) -> Result<(), ProviderFault> {
        check::works(suite.hash, suite.aead)
    }
}

impl fmt::Debug for CryptoProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CryptoProvider").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A cryptographic operation failed. The error carries no detail because the reason may be secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CryptoError;

impl core::error::Error for CryptoError {}

/// A cryptographically secure source of randomness. A provider can recognise its own source by the type.
pub trait SecureRandom: Any + Send + Sync + fmt::Debug {
    /// Fills `buf` entirely.
    ///
    /// # Errors
    /// The source has failed; the caller must not use the content of `buf`.
    fn fill(&self, buf: &mut [u8]) -> Result<(), CryptoError>;
}

/// A cipher suite of TLS 1.3 (RFC 8446 §B.4): an AEAD and a hash.
#[derive(Debug)]
pub struct Tls13CipherSuite {
    /// Its number.
    pub id: CipherSuite,
    /// The hash of the key schedule and the transcript.
    pub hash: &'static dyn Hash,
    /// The record protection.
    pub aead: &'static dyn Aead,
}

/// A hash function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HashAlgorithm {
    /// SHA-256
    Sha256,
    /// SHA-384
    Sha384,
}

impl HashAlgorithm {
    /// The hash of the empty string (FIPS 180-4). The TLS 1.3 key schedule needs it several times in each
    /// handshake.
    pub const fn of_nothing(self) -> &'static [u8] {
        match self {
            Self::Sha256 => {
                b"\xe3\xb0\xc4\x42\x98\xfc\x1c\x14\x9a\xfb\xf4\xc8\x99\x6f\xb9\x24\
                  \x27\xae\x41\xe4\x64\x9b\x93\x4c\xa4\x95\x99\x1b\x78\x52\xb8\x55"
            }
            Self::Sha384 => {
                b"\x38\xb0\x60\xa7\x51\xac\x96\x38\x4c\xd9\x32\x7e\xb1\xb1\xe3\x6a\
                  \x21\xfd\xb7\x11\x14\xbe\x07\x43\x4c\x0c\xc7\xbf\x63\xf6\xe1\xda\
                  \x27\x4e\xde\xbf\xe7\x6f\x65\xfb\xd5\x1a\xd2\xf1\x48\x98\xb9\x5b"
            }
        }
    }

    /// The length of its output, in bytes.
    pub const fn output_len(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
        }
    }
}

/// A hash function and the HMAC over it (RFC 2104).
pub trait Hash: Send + Sync + fmt::Debug {
    /// Which function it is.
    fn algorithm(&self) -> HashAlgorithm;
    /// Begins a hash whose input comes in pieces.
    fn start(&self) -> Box<dyn HashContext>;
    /// The hash of the concatenation of `parts`.
    fn hash(&self, parts: &[&[u8]]) -> HashOutput;
    /// Prepares HMAC with `key`, of any length.
    fn hmac(&self, key: &[u8]) -> Box<dyn HmacKey>;
}

/// A hash being computed.
pub trait HashContext: Send + Sync {
    /// Adds `data` to the input.
    fn update(&mut self, data: &[u8]);
    /// The hash of the input so far; the computation goes on.
    fn current(&self) -> HashOutput;
    /// An independent copy of the computation.
    fn fork(&self) -> Box<dyn HashContext>;
}

/// A key for HMAC. Implementations wipe it on drop.
pub trait HmacKey: Send + Sync {
    /// HMAC of the concatenation of `parts`.
    fn sign(&self, parts: &[&[u8]]) -> HashOutput;
}

/// The output of a hash or of HMAC, which may be secret: it wipes itself and has no `Debug`.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct HashOutput {
    bytes: [u8; MAX_HASH_LEN],
    len: usize,
}

impl HashOutput {
    /// Copies the first [`MAX_HASH_LEN`] bytes of `bytes`, or all if there are fewer.
    pub fn new(bytes: &[u8]) -> Self {
        let mut out = Self { bytes: [0; MAX_HASH_LEN], len: bytes.len().min(MAX_HASH_LEN) };
        for (to, from) in out.bytes.iter_mut().zip(bytes) {
            *to = *from;
        }
        out
    }
}

impl AsRef<[u8]> for HashOutput {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&self.bytes)
    }
}

/// A secret in an allocation of its own, which wipes itself. States are moved from one allocation to the
/// next, which leaves a copy of whatever is inside them in freed memory. So only pointers to secrets are
/// inside.
#[derive(Clone)]
pub(crate) struct OwnSecret(Zeroizing<Box<[u8]>>);

impl OwnSecret {
    /// Copies the secret.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(Zeroizing::new(bytes.into()))
    }
}

impl AsRef<[u8]> for OwnSecret {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// An algorithm for authenticated encryption with a 12-byte nonce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AeadAlgorithm {
    /// AES-128-GCM
    Aes128Gcm,
    /// AES-256-GCM
    Aes256Gcm,
    /// ChaCha20-Poly1305
    ChaCha20Poly1305,
    /// AES-128-CCM with a 16-byte tag
    Aes128Ccm,
    /// AES-128-CCM with an 8-byte tag
    Aes128Ccm8,
}

impl AeadAlgorithm {
    /// The length of the key, in bytes.
    pub const fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm | Self::Aes128Ccm | Self::Aes128Ccm8 => 16,
            Self::Aes256Gcm | Self::ChaCha20Poly1305 => 32,
        }
    }

    /// The length of the tag, in bytes.
    pub const fn tag_len(self) -> usize {
        match self {
            Self::Aes128Ccm8 => 8,
            _ => 16,
        }
    }
}

/// Authenticated encryption.
pub trait Aead: Send + Sync + fmt::Debug {
    /// Which algorithm it is.
    fn algorithm(&self) -> AeadAlgorithm;
    /// Prepares `key`, which has [`AeadAlgorithm::key_len`] bytes.
    ///
    /// # Errors
    /// The length is wrong.
    fn key(&self, key: &[u8]) -> Result<Box<dyn AeadKey>, CryptoError>;
    /// Prepares a key for the encryption of record numbers (RFC 9147 §4.2.3), same length.
    ///
    /// # Errors
    /// The length is wrong.
    fn record_number_key(&self, key: &[u8]) -> Result<Box<dyn RecordNumberKey>, CryptoError>;
}

/// A key for an AEAD. Implementations wipe it on drop.
pub trait AeadKey: Send + Sync {
    /// Encrypts `data` in place and writes the tag to `tag`, which has [`AeadAlgorithm::tag_len`] bytes.
    ///
    /// # Errors
    /// A length is wrong; the caller must not send `data`.
    fn seal(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        data: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), CryptoError>;
    /// Decrypts `data` in place.
    ///
    /// # Errors
    /// The tag does not verify; the caller must not use the content of `data`.
    fn open(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        data: &mut [u8],
        tag: &[u8],
    ) -> Result<(), CryptoError>;
}

/// A key that masks the record numbers of DTLS 1.3. Implementations wipe it on drop.
pub trait RecordNumberKey: Send + Sync {
    /// The first bytes of the mask for a record whose ciphertext begins with `sample` (RFC 9147 §4.2.3). With
    /// AES it is AES-ECB(sample). With ChaCha20 it is the key stream; `sample` has the counter in four bytes,
    /// then the nonce.
    fn mask(&self, sample: &[u8; 16]) -> [u8; 2];
}

/// A group for key exchange: (EC)DHE or a KEM.
pub trait KeyExchangeGroup: Send + Sync + fmt::Debug {
    /// Its number.
    fn name(&self) -> NamedGroup;
    /// Makes an ephemeral key for the initiator.
    ///
    /// # Errors
    /// The random source failed.
    fn start(&self, random: &dyn SecureRandom) -> Result<Box<dyn ActiveKeyExchange>, CryptoError>;
    /// The prime and generator of a finite field (RFC 7919 §A), which a TLS 1.2 server sends in full; `None`
    /// for other groups. Shares and secrets are as long as the prime.
    fn finite_field(&self) -> Option<FiniteField> {
        None
    }
    /// Answers the initiator's share `peer` in one step: gives the responder's share and the secret.
    ///
    /// # Errors
    /// `peer` is not a valid share, or the random source failed.
    fn respond(
        &self,
        random: &dyn SecureRandom,
        peer: &[u8],
    ) -> Result<(Vec<u8>, SharedSecret), CryptoError> {
        let active = self.start(random)?;
        let share = active.share().to_vec();
        Ok((share, active.complete(peer)?))
    }
}

/// The parameters of a finite-field group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FiniteField {
    /// The prime, most significant byte first.
    pub prime: &'static [u8],
    /// The generator.
    pub generator: &'static [u8],
}

/// An ephemeral private key that waits for the peer's share.
pub trait ActiveKeyExchange: Send + Sync {
    /// The share to send.
    fn share(&self) -> &[u8];
    /// The secret agreed with the share `peer`. Implementations check that the point is on the curve, and
    /// reject an all-zero X25519 result (RFC 8446 §4.2.8.2, §7.4.2). The engine calls it once, except for a
    /// client that follows its server to another port ([`crate::PortScheme::Ipc`]): there once for each
    /// ServerHello that it tries, at most four times.
    ///
    /// # Errors
    /// `peer` is not a valid share.
    fn complete(&self, peer: &[u8]) -> Result<SharedSecret, CryptoError>;
    /// The component of a hybrid that is also a group of its own, with that component's share; `None` if
    /// there is none. A client can so offer both groups with one key (draft-ietf-tls-hybrid-design §3.2).
    fn component(&self) -> Option<(NamedGroup, &[u8])> {
        None
    }
    /// The secret of the component alone, agreed with the share `peer`, if the peer chose the component's
    /// group.
    ///
    /// # Errors
    /// There is no component, or `peer` is not a valid share of it.
    fn complete_component(&self, _peer: &[u8]) -> Result<SharedSecret, CryptoError> {
        Err(CryptoError)
    }
}

/// A secret agreed by key exchange. It wipes itself and has no `Debug`.
pub struct SharedSecret(Zeroizing<Vec<u8>>);

impl SharedSecret {
    /// Takes over `bytes`.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes, for the key schedule.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A private key that signs.
pub trait SigningKey: Send + Sync + fmt::Debug {
    /// The schemes it can sign with, in order of preference.
    fn schemes(&self) -> &[SignatureScheme];
    /// The public key.
    fn public_key(&self) -> &SubjectPublicKeyInfoDer<'static>;
    /// Hashes and signs `message` with `scheme`. ECDSA signatures are in DER.
    ///
    /// # Errors
    /// The key does not have `scheme`, or the operation failed.
    fn sign(
        &self,
        scheme: SignatureScheme,
        message: &[u8],
        random: &dyn SecureRandom,
    ) -> Result<Vec<u8>, CryptoError>;
    /// The key's RSA decryption, for TLS 1.2 suites with RSA key exchange; `None` if the key does not
    /// decrypt.
    fn decryption(&self) -> Option<&dyn RsaDecryption> {
        None
    }
}

/// A private RSA key that decrypts. The result still has its padding: the engine removes it in constant time
/// and never reveals whether it was valid (RFC 5246 §7.4.7.1).
pub trait RsaDecryption: Send + Sync {
    /// The length of the modulus, in bytes.
    fn modulus_len(&self) -> usize;
    /// `ciphertext` to the power of the private exponent, with leading zeros up to the length of the modulus.
    /// The time that the operation takes must not depend on the result.
    ///
    /// # Errors
    /// `ciphertext` is not as long as the modulus or not smaller than it, or the library failed.
    fn decrypt(&self, ciphertext: &[u8]) -> Result<Zeroizing<Vec<u8>>, CryptoError>;
}

/// Reads RSA public keys, for encryption.
pub trait RsaEncryption: Send + Sync + fmt::Debug {
    /// The RSA key in `spki`.
    ///
    /// # Errors
    /// The key is damaged, of another algorithm, or of a length that this library does not handle.
    fn public_key(&self, spki: &SubjectPublicKeyInfoDer<'_>) -> Result<Box<dyn RsaPublicKey>, CryptoError>;
    /// Whether it accepts keys that are too short to protect anything. Only a profile for the laboratory may
    /// use it.
    fn is_legacy(&self) -> bool {
        false
    }
}

/// A public RSA key that encrypts a block that the engine has padded.
pub trait RsaPublicKey: Send + Sync {
    /// The length of the modulus, in bytes.
    fn modulus_len(&self) -> usize;
    /// `block` to the power of the public exponent, with leading zeros up to the length of the modulus.
    ///
    /// # Errors
    /// `block` is not as long as the modulus or not smaller than it, or the library failed.
    fn encrypt(&self, block: &[u8]) -> Result<Vec<u8>, CryptoError>;
}

/// Makes signing keys.
pub trait KeyLoader: Send + Sync + fmt::Debug {
    /// The signing key in `der`: PKCS#8, PKCS#1 (RSA) or SEC 1 (P-256, P-384).
    ///
    /// # Errors
    /// The key is damaged or of a kind that this library does not handle.
    fn load(&self, der: &PrivateKeyDer<'_>) -> Result<Arc<dyn SigningKey>, CryptoError>;
}

/// The algorithms that may verify a signature.
pub(crate) type Algorithms<'a> = &'a [&'static dyn SignatureVerificationAlgorithm];

/// The signature algorithms that a library can verify.
#[derive(Clone, Copy, Debug)]
pub struct SignatureAlgorithms {
    /// Every algorithm that a certificate chain may use.
    pub all: &'static [&'static dyn SignatureVerificationAlgorithm],
    /// The schemes with their algorithms, in order of preference. A scheme has several algorithms where it
    /// leaves the curve open, as in TLS 1.2. The list includes schemes that are for chains only, such as RSA
    /// PKCS#1.
    pub schemes: &'static [(SignatureScheme, &'static [&'static dyn SignatureVerificationAlgorithm])],
}

impl SignatureAlgorithms {
    /// The algorithms that verify `scheme`; empty if the library does not support it.
    pub(crate) fn for_scheme(
        &self,
        scheme: SignatureScheme,
    ) -> &'static [&'static dyn SignatureVerificationAlgorithm] {
        self.schemes.iter().find(|(s, _)| *s == scheme).map_or(&[], |(_, algorithms)| algorithms)
    }

    /// The algorithms that `schemes` allow in a chain. A certificate's ECDSA signature names its hash but not
    /// its issuer's curve (RFC 5758 §3.2), so ecdsa_secp256r1_sha256 allows SHA-256 with every curve, as in
    /// TLS 1.2. Other schemes also bind the type of the key: rsa_pss_rsae_sha256 and rsa_pss_pss_sha256 make
    /// equal signatures (RFC 8446 §4.2.3).
    pub(crate) fn for_chains(
        &self,
        schemes: &[SignatureScheme],
    ) -> Vec<&'static dyn SignatureVerificationAlgorithm> {
        let is_allowed = |a: &&'static dyn SignatureVerificationAlgorithm| {
            let mut ours = self.schemes.iter().filter(|(scheme, _)| schemes.contains(scheme));
            ours.any(|(scheme, algorithms)| {
                algorithms.iter().any(|of_scheme| {
                    a.signature_alg_id() == of_scheme.signature_alg_id()
                        && (scheme.curve().is_some()
                            || a.public_key_alg_id() == of_scheme.public_key_alg_id())
                })
            })
        };
        self.all.iter().copied().filter(is_allowed).collect()
    }
}
