//! A provider that records every value of the key schedule. It replaces messages of the engine by the trace's
//! in the transcript, and in a copy of the sealed records.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex};

use dunlin::crypto::{
    Aead, AeadAlgorithm, AeadKey, CryptoError, CryptoProvider, Hash, HashAlgorithm, HashContext, HashOutput,
    HmacKey, NONCE_LEN, RecordNumberKey, SecureRandom, SignatureAlgorithms, Tls13CipherSuite,
};
use dunlin::pki_types::{AlgorithmIdentifier, InvalidSignature, SignatureVerificationAlgorithm, alg_id};
use dunlin::wire::{CipherSuite, ContentType, HandshakeType, SignatureScheme};
use rsa::pkcs1::DecodeRsaPublicKey;
use rsa::traits::SignatureScheme as _;
use sha2::{Digest, Sha256};

/// A tap on a cipher suite.
pub(crate) struct Tap {
    suite: &'static Tls13CipherSuite,
    seen: Mutex<HashSet<Vec<u8>>>,
    /// The trace's messages that replace messages of the same type, in the order of hashing.
    replay: Mutex<VecDeque<Vec<u8>>>,
    /// The messages, with any others, for the copies of sealed records.
    wording: Vec<Vec<u8>>,
    /// The copies: whole records.
    sealed: Mutex<HashSet<Vec<u8>>>,
}

impl Tap {
    /// Returns `provider` with only TLS_AES_128_GCM_SHA256, tapped. `random` lists its random values, one for
    /// each draw. Messages in `replay` replace the engine's in hashes and sealed records, those in `wording`
    /// only in sealed records.
    pub(crate) fn new(
        provider: &CryptoProvider,
        replay: &[&[u8]],
        wording: &[&[u8]],
        random: &[&[u8]],
    ) -> (Arc<CryptoProvider>, &'static Self) {
        let suite = provider.suite(CipherSuite::TLS_AES_128_GCM_SHA256).expect("suite");
        let tap: &'static Self = Box::leak(Box::new(Self {
            suite,
            seen: Mutex::default(),
            replay: Mutex::new(replay.iter().map(|m| m.to_vec()).collect()),
            wording: replay.iter().chain(wording).map(|m| m.to_vec()).collect(),
            sealed: Mutex::default(),
        }));
        let part: &'static &'static Self = Box::leak(Box::new(tap));
        let suite = Box::leak(Box::new(Tls13CipherSuite { id: suite.id, hash: part, aead: part }));
        let script = random.iter().map(|r| r.to_vec()).collect();
        let provider = CryptoProvider {
            cipher_suites: vec![suite],
            signatures: signatures(provider.signatures),
            random: Arc::new(Script(Mutex::new(script))),
            ..provider.clone()
        };
        (Arc::new(provider), tap)
    }

    /// Returns whether the connection has computed this value.
    pub(crate) fn has_seen(&self, value: &[u8]) -> bool {
        self.seen.lock().unwrap().contains(value)
    }

    /// Returns whether the connection would have sent this record with the trace's messages.
    pub(crate) fn has_sealed(&self, record: &[u8]) -> bool {
        self.sealed.lock().unwrap().contains(record)
    }

    /// Returns the number of trace messages that the connection did not use.
    pub(crate) fn left(&self) -> usize {
        self.replay.lock().unwrap().len()
    }

    fn note(&self, output: HashOutput) -> HashOutput {
        self.seen.lock().unwrap().insert(output.as_ref().to_vec());
        output
    }

    /// Returns the next message of the trace if it has the type of `ours`, otherwise `ours`.
    fn whole(&self, ours: &[u8]) -> Vec<u8> {
        let mut replay = self.replay.lock().unwrap();
        let fits = |theirs: &Vec<u8>| is_whole(ours) && theirs[0] == ours[0];
        if replay.front().is_some_and(fits) { replay.pop_front().unwrap() } else { ours.to_vec() }
    }

    /// Replaces the messages of a record's content; the last byte is the content type.
    fn reworded(&self, ours: &[u8]) -> Vec<u8> {
        let (content, typ) = ours.split_at(ours.len() - 1);
        if typ != [ContentType::HANDSHAKE.0] {
            return ours.to_vec();
        }
        let mut rest = content;
        let mut words = Vec::new();
        while !rest.is_empty() {
            let (message, others) = rest.split_at(announced(rest));
            words.extend_from_slice(self.wording.iter().find(|w| w[0] == message[0]).map_or(message, |w| w));
            rest = others;
        }
        words.extend_from_slice(typ);
        words
    }

    /// As [`Tap::whole`], for a ClientHello that is truncated before its binders.
    fn truncated(&self, ours: &[u8]) -> Vec<u8> {
        let replay = self.replay.lock().unwrap();
        let is_hello = ours.first() == Some(&HandshakeType::CLIENT_HELLO.0) && !is_whole(ours);
        match replay.front() {
            Some(theirs) if is_hello && theirs[0] == ours[0] => {
                theirs[..theirs.len() - (announced(ours) - ours.len())].to_vec()
            }
            _ => ours.to_vec(),
        }
    }
}

/// Returns the length of a message according to its header.
fn announced(message: &[u8]) -> usize {
    4 + usize::from(message[1]) * 0x10000 + usize::from(message[2]) * 0x100 + usize::from(message[3])
}

fn is_whole(message: &[u8]) -> bool {
    message.len() >= 4 && announced(message) == message.len()
}

impl fmt::Debug for Tap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tap")
    }
}

impl Hash for &'static Tap {
    fn algorithm(&self) -> HashAlgorithm {
        self.suite.hash.algorithm()
    }

    fn start(&self) -> Box<dyn HashContext> {
        Box::new(Context { tap: self, inner: self.suite.hash.start() })
    }

    fn hash(&self, parts: &[&[u8]]) -> HashOutput {
        self.note(match parts {
            [message] => self.suite.hash.hash(&[&self.truncated(message)]),
            _ => self.suite.hash.hash(parts),
        })
    }

    fn hmac(&self, key: &[u8]) -> Box<dyn HmacKey> {
        self.note(HashOutput::new(key));
        Box::new(Key { tap: self, inner: self.suite.hash.hmac(key) })
    }
}

struct Context {
    tap: &'static Tap,
    inner: Box<dyn HashContext>,
}

impl HashContext for Context {
    fn update(&mut self, data: &[u8]) {
        self.inner.update(&self.tap.whole(data));
    }

    fn current(&self) -> HashOutput {
        self.tap.note(self.inner.current())
    }

    fn fork(&self) -> Box<dyn HashContext> {
        Box::new(Self { tap: self.tap, inner: self.inner.fork() })
    }
}

struct Key {
    tap: &'static Tap,
    inner: Box<dyn HmacKey>,
}

impl HmacKey for Key {
    fn sign(&self, parts: &[&[u8]]) -> HashOutput {
        self.tap.note(self.inner.sign(parts))
    }
}

impl Aead for &'static Tap {
    fn algorithm(&self) -> AeadAlgorithm {
        self.suite.aead.algorithm()
    }

    fn key(&self, key: &[u8]) -> Result<Box<dyn AeadKey>, CryptoError> {
        Ok(Box::new(SealingKey { tap: self, inner: self.suite.aead.key(key)? }))
    }

    fn record_number_key(&self, key: &[u8]) -> Result<Box<dyn RecordNumberKey>, CryptoError> {
        self.suite.aead.record_number_key(key)
    }
}

struct SealingKey {
    tap: &'static Tap,
    inner: Box<dyn AeadKey>,
}

impl AeadKey for SealingKey {
    fn seal(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        data: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), CryptoError> {
        // The record header is the additional data; it ends with the length.
        let mut content = self.tap.reworded(data);
        let len = ((content.len() + tag.len()) as u16).to_be_bytes();
        let header = [&aad[..3], &len].concat();
        self.inner.seal(nonce, &header, &mut content, tag)?;
        self.tap.sealed.lock().unwrap().insert([&header, &content, &*tag].concat());
        self.inner.seal(nonce, aad, data, tag)
    }

    fn open(
        &self,
        nonce: &[u8; NONCE_LEN],
        aad: &[u8],
        data: &mut [u8],
        tag: &[u8],
    ) -> Result<(), CryptoError> {
        self.inner.open(nonce, aad, data, tag)
    }
}

/// Random values that the test has prepared.
#[derive(Debug)]
struct Script(Mutex<VecDeque<Vec<u8>>>);

impl SecureRandom for Script {
    fn fill(&self, buf: &mut [u8]) -> Result<(), CryptoError> {
        let next = self.0.lock().unwrap().pop_front().ok_or(CryptoError)?;
        if next.len() != buf.len() {
            return Err(CryptoError);
        }
        buf.copy_from_slice(&next);
        Ok(())
    }
}

/// The provider's algorithms, with RSA-PSS of 1024 bits for the traces, which no provider accepts.
fn signatures(own: SignatureAlgorithms) -> SignatureAlgorithms {
    let weak = (SignatureScheme::RSA_PSS_RSAE_SHA256, &[&Rsa1024 as &dyn SignatureVerificationAlgorithm][..]);
    let others = own.schemes.iter().copied().filter(|(scheme, _)| *scheme != weak.0);
    SignatureAlgorithms { schemes: others.chain([weak]).collect::<Vec<_>>().leak(), ..own }
}

#[derive(Debug)]
struct Rsa1024;

impl SignatureVerificationAlgorithm for Rsa1024 {
    fn verify_signature(&self, key: &[u8], message: &[u8], signature: &[u8]) -> Result<(), InvalidSignature> {
        let key = rsa::PublicKey::from_pkcs1_der(key).map_err(|_| InvalidSignature)?;
        let digest = Sha256::digest(message);
        rsa::pss::Pss::<Sha256>::new().verify(&key, &digest, signature).map_err(|_| InvalidSignature)
    }

    fn public_key_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::RSA_ENCRYPTION
    }

    fn signature_alg_id(&self) -> AlgorithmIdentifier {
        alg_id::RSA_PSS_SHA256
    }
}
