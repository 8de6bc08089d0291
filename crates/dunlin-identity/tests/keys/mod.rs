//! Keys for tests, and the provider.

#![allow(dead_code, reason = "not every test uses every key")]

use std::sync::Arc;

use der::Encode;
use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin_identity::key::PublicKey;
use pki_types::{PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};
use serde_json::Value;

pub(crate) fn provider() -> CryptoProvider {
    dunlin_rustcrypto::provider(Arc::new(dunlin_rustcrypto::OsRandom))
}

pub(crate) fn public(key: &dyn SigningKey) -> PublicKey {
    PublicKey::from_spki(key.public_key()).unwrap()
}

/// The Ed25519 key of a seed of 32 bytes (RFC 8410 §7).
pub(crate) fn ed25519_of(seed: &[u8]) -> Arc<dyn SigningKey> {
    let der = [b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20", seed].concat();
    provider().key_loader.load(&PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der))).unwrap()
}

/// The key of a seed of 32 such bytes (RFC 9881 §6).
pub(crate) fn ml_dsa44(number: u8) -> Arc<dyn SigningKey> {
    let head = b"\x30\x34\x02\x01\x00\x30\x0b\x06\x09\x60\x86\x48\x01\x65\x03\x04\x03\x11\x04\x22\x80\x20";
    let der = [head.as_slice(), &[number; 32]].concat();
    provider().key_loader.load(&PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der))).unwrap()
}

pub(crate) fn ed25519(number: u8) -> Arc<dyn SigningKey> {
    ed25519_of(&[number; 32])
}

/// The ECDSA key of a scalar (RFC 5915), with the curve's OID in DER.
pub(crate) fn ecdsa_of(scalar: &[u8], curve: &[u8]) -> Arc<dyn SigningKey> {
    let length = |bytes: &[u8]| u8::try_from(bytes.len()).unwrap();
    let content = [&[2, 1, 1, 4, length(scalar)], scalar, &[0xa0, length(curve)], curve].concat();
    let der = [&[0x30, length(&content)], content.as_slice()].concat();
    provider().key_loader.load(&PrivateKeyDer::Sec1(PrivateSec1KeyDer::from(der))).unwrap()
}

pub(crate) const P256: &[u8] = b"\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07";
pub(crate) const P384: &[u8] = b"\x06\x05\x2b\x81\x04\x00\x22";

pub(crate) fn p256(number: u8) -> Arc<dyn SigningKey> {
    ecdsa_of(&[number; 32], P256)
}

pub(crate) fn p384(number: u8) -> Arc<dyn SigningKey> {
    ecdsa_of(&[number; 48], P384)
}

/// The first RSA key of the vectors of `did:key`, as an RSAPrivateKey (RFC 8017 §A.1.2).
pub(crate) fn rsa() -> Arc<dyn SigningKey> {
    use base64ct::{Base64UrlUnpadded, Encoding};
    let vectors: Value = serde_json::from_str(include_str!("../data/did-key/rsa.json")).unwrap();
    let jwk = &vectors.as_object().unwrap().values().next().unwrap()["privateKeyJwk"];
    let mut content = vec![2, 1, 0];
    for name in ["n", "e", "d", "p", "q", "dp", "dq", "qi"] {
        let number = Base64UrlUnpadded::decode_vec(jwk[name].as_str().unwrap()).unwrap();
        let number = &number[number.iter().position(|byte| *byte != 0).unwrap()..];
        der::asn1::UintRef::new(number).unwrap().encode_to_vec(&mut content).unwrap();
    }
    let der =
        [&[0x30, 0x82], u16::try_from(content.len()).unwrap().to_be_bytes().as_slice(), &content].concat();
    provider().key_loader.load(&PrivateKeyDer::Pkcs1(PrivatePkcs1KeyDer::from(der))).unwrap()
}
