//! Public keys in the forms that DID documents use: Multikey, JSON Web Key, SubjectPublicKeyInfo; and raw
//! signatures.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use base64ct::{Base64UrlUnpadded, Encoding};
use der::asn1::{AnyRef, BitStringRef, ObjectIdentifier, UintRef};
use der::{Decode, Encode, Sequence};
use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin::wire::SignatureScheme;
use p256::elliptic_curve::sec1::ToSec1Point;
use pkcs8::spki::{AlgorithmIdentifier, SubjectPublicKeyInfoRef};
use pki_types::SubjectPublicKeyInfoDer;
use serde_json::{Map, Value, json};

/// The longest text of a key or signature in base58btc, in bytes. A Multikey of RSA with 8192 bits has 1425.
pub const MAX_MULTIBASE: usize = 1500;

/// The longest text of a key or signature in base64url, in bytes. A signature with ML-DSA-44 has 3228.
pub const MAX_BASE64URL: usize = 4096;

/// The length of a public key of ML-DSA-44 (FIPS 204 §4, Table 2).
const ML_DSA_44_KEY: usize = 1312;

/// RSA keys have at least this many bits, as everywhere in Dunlin.
pub const MIN_RSA_BITS: usize = 2048;

/// RSA keys have at most this many bits, as everywhere in Dunlin.
pub const MAX_RSA_BITS: usize = 8192;

const ID_ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
const ID_EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const ID_P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const ID_P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
const ID_RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
/// RFC 9881 §2.
const ID_ML_DSA_44: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.3.17");

/// The members of a JWK that only a private or a symmetric key has (RFC 7518 §6.2.2, §6.3.2, §6.4;
/// draft-ietf-cose-dilithium §3).
const PRIVATE_MEMBERS: [&str; 9] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k", "priv"];

/// Why a key or a signature is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The text is longer than [`MAX_MULTIBASE`], or than [`MAX_BASE64URL`] in base64url.
    #[error(
        "the text of a key or signature is longer than {MAX_MULTIBASE} bytes, or {MAX_BASE64URL} in base64url"
    )]
    TooLong,
    /// The text is neither base58btc (`z`) nor base64url without padding (`u`).
    #[error("malformed multibase: use base58btc, which begins with z, or base64url, which begins with u")]
    Multibase,
    /// The Multikey's prefix stands for no supported type of keys.
    #[error("unsupported type of key: use Ed25519, P-256, P-384, RSA or ML-DSA-44")]
    UnknownType,
    /// The key does not have the form or length of its type, or its point is not on the curve or has a small
    /// order.
    #[error("malformed {0} key")]
    Malformed(KeyType),
    /// The RSA modulus is too short or too long.
    #[error("the RSA key has {0} bits: use {MIN_RSA_BITS} to {MAX_RSA_BITS}")]
    RsaSize(usize),
    /// A member of the JWK is missing, or is not base64url of the right length (RFC 7518 §6, RFC 8037 §2).
    #[error("missing or malformed member {0:?} of the JWK")]
    JwkMember(&'static str),
    /// The JWK contains the private key.
    #[error("the JWK contains a private key, in its member {0:?}")]
    PrivateKey(&'static str),
    /// The JWK is not for verifying signatures of its type (`use`, `key_ops`, `alg`).
    #[error("the JWK is not for verifying such signatures: its use, key_ops or alg says so")]
    Use,
    /// The SubjectPublicKeyInfo is not DER.
    #[error("malformed SubjectPublicKeyInfo")]
    Spki,
    /// The key cannot make or verify signatures of this scheme.
    #[error("a {0} key does not sign with {1}")]
    Scheme(KeyType, SignatureScheme),
    /// The crypto provider does not have the scheme or hash.
    #[error("the crypto provider lacks {0}")]
    Provider(&'static str),
    /// The signature does not verify.
    #[error("the signature is wrong")]
    Signature,
    /// The signing key failed.
    #[error("the signing key failed")]
    Signing,
}

/// The types of keys in DID documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyType {
    /// Ed25519 (RFC 8032).
    Ed25519,
    /// ECDSA on secp256r1.
    P256,
    /// ECDSA on secp384r1.
    P384,
    /// RSA.
    Rsa,
    /// ML-DSA-44 (FIPS 204), a post-quantum signature.
    MlDsa44,
}

impl KeyType {
    /// All types.
    pub const ALL: [Self; 5] = [Self::Ed25519, Self::P256, Self::P384, Self::Rsa, Self::MlDsa44];

    /// The multicodec prefix: the codes 0xed, 0x1200, 0x1201, 0x1205 and 0x1210 as varints.
    const fn prefix(self) -> [u8; 2] {
        match self {
            Self::Ed25519 => [0xed, 0x01],
            Self::P256 => [0x80, 0x24],
            Self::P384 => [0x81, 0x24],
            Self::Rsa => [0x85, 0x24],
            Self::MlDsa44 => [0x90, 0x24],
        }
    }

    /// The length of a coordinate or of half a signature, in bytes; 0 for RSA and ML-DSA.
    const fn scalar_len(self) -> usize {
        match self {
            Self::Ed25519 | Self::P256 => 32,
            Self::P384 => 48,
            Self::Rsa | Self::MlDsa44 => 0,
        }
    }

    /// Whether signatures are two numbers.
    const fn is_ecdsa(self) -> bool {
        matches!(self, Self::P256 | Self::P384)
    }

    /// The names of its schemes in JOSE (RFC 7518 §3.1, RFC 8037 §3.1, RFC 9864 §2.2,
    /// draft-ietf-cose-dilithium §7).
    const fn algorithms(self) -> &'static [&'static str] {
        match self {
            Self::Ed25519 => &["EdDSA", "Ed25519"],
            Self::P256 => &["ES256"],
            Self::P384 => &["ES384"],
            Self::Rsa => &["PS256", "PS384", "PS512"],
            Self::MlDsa44 => &["ML-DSA-44"],
        }
    }

    /// The scheme of signatures for which nothing chooses another.
    pub const fn default_scheme(self) -> SignatureScheme {
        match self {
            Self::Ed25519 => SignatureScheme::ED25519,
            Self::P256 => SignatureScheme::ECDSA_SECP256R1_SHA256,
            Self::P384 => SignatureScheme::ECDSA_SECP384R1_SHA384,
            Self::Rsa => SignatureScheme::RSA_PSS_RSAE_SHA256,
            Self::MlDsa44 => SignatureScheme::MLDSA44,
        }
    }

    /// The schemes that the key can have, the default first.
    pub const fn schemes(self) -> &'static [SignatureScheme] {
        match self {
            Self::Ed25519 => &[SignatureScheme::ED25519],
            Self::P256 => &[SignatureScheme::ECDSA_SECP256R1_SHA256],
            Self::P384 => &[SignatureScheme::ECDSA_SECP384R1_SHA384],
            Self::Rsa => &[
                SignatureScheme::RSA_PSS_RSAE_SHA256,
                SignatureScheme::RSA_PSS_RSAE_SHA384,
                SignatureScheme::RSA_PSS_RSAE_SHA512,
            ],
            Self::MlDsa44 => &[SignatureScheme::MLDSA44],
        }
    }
}

impl core::fmt::Display for KeyType {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Ed25519 => "Ed25519",
            Self::P256 => "P-256",
            Self::P384 => "P-384",
            Self::Rsa => "RSA",
            Self::MlDsa44 => "ML-DSA-44",
        })
    }
}

/// A public key. Two keys are equal if they are the same key, in whatever form they came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey {
    typ: KeyType,
    /// The content of the SubjectPublicKeyInfo's bit string: 32 bytes, an uncompressed point, an RSAPublicKey
    /// in DER, or 1312 bytes.
    raw: Vec<u8>,
    spki: SubjectPublicKeyInfoDer<'static>,
}

#[derive(Sequence)]
struct RsaPublicKey<'a> {
    modulus: UintRef<'a>,
    exponent: UintRef<'a>,
}

#[derive(Sequence)]
struct EcdsaSignature<'a> {
    r: UintRef<'a>,
    s: UintRef<'a>,
}

impl PublicKey {
    /// Checks the key and makes its points uncompressed. `raw` is as in a SubjectPublicKeyInfo.
    fn new(typ: KeyType, raw: &[u8]) -> Result<Self, KeyError> {
        let malformed = KeyError::Malformed(typ);
        let raw = match typ {
            KeyType::Ed25519 => {
                let bytes = raw.try_into().map_err(|_| malformed.clone())?;
                let key = ed25519_dalek::VerifyingKey::from_bytes(bytes).map_err(|_| malformed.clone())?;
                // RFC 8032 §5.1.7 accepts points of small order, under which anyone can make signatures.
                if key.is_weak() {
                    return Err(malformed);
                }
                raw.to_vec()
            }
            KeyType::P256 => {
                let key = p256::PublicKey::from_sec1_bytes(raw).map_err(|_| malformed.clone())?;
                key.to_sec1_point(false).as_bytes().to_vec()
            }
            KeyType::P384 => {
                let key = p384::PublicKey::from_sec1_bytes(raw).map_err(|_| malformed.clone())?;
                key.to_sec1_point(false).as_bytes().to_vec()
            }
            KeyType::Rsa => {
                let key = RsaPublicKey::from_der(raw).map_err(|_| malformed.clone())?;
                let bits = bits(key.modulus.as_bytes());
                if !(MIN_RSA_BITS..=MAX_RSA_BITS).contains(&bits) {
                    return Err(KeyError::RsaSize(bits));
                }
                raw.to_vec()
            }
            // FIPS 204 §7.2, algorithm 23: all bytes of this length are a key.
            KeyType::MlDsa44 if raw.len() == ML_DSA_44_KEY => raw.to_vec(),
            KeyType::MlDsa44 => return Err(malformed),
        };
        let curve = match typ {
            KeyType::P256 => Some(ID_P256),
            KeyType::P384 => Some(ID_P384),
            _ => None,
        };
        let algorithm = match typ {
            KeyType::Ed25519 => AlgorithmIdentifier { oid: ID_ED25519, parameters: None },
            KeyType::Rsa => AlgorithmIdentifier { oid: ID_RSA, parameters: Some(AnyRef::NULL) },
            KeyType::MlDsa44 => AlgorithmIdentifier { oid: ID_ML_DSA_44, parameters: None },
            _ => AlgorithmIdentifier { oid: ID_EC, parameters: curve.as_ref().map(AnyRef::from) },
        };
        let subject_public_key = BitStringRef::from_bytes(&raw).map_err(|_| KeyError::Spki)?;
        let spki = SubjectPublicKeyInfoRef { algorithm, subject_public_key };
        let spki = spki.to_der().map_err(|_| KeyError::Spki)?.into();
        Ok(Self { typ, raw, spki })
    }

    /// The Ed25519 key with these 32 bytes (RFC 8032 §5.1.5).
    ///
    /// # Errors
    /// [`KeyError::Malformed`].
    pub(crate) fn ed25519(raw: &[u8]) -> Result<Self, KeyError> {
        Self::new(KeyType::Ed25519, raw)
    }

    /// The content of the SubjectPublicKeyInfo's bit string.
    pub(crate) fn raw(&self) -> &[u8] {
        &self.raw
    }

    /// Reads a SubjectPublicKeyInfo in DER.
    ///
    /// # Errors
    /// [`KeyError::Spki`], [`KeyError::UnknownType`], [`KeyError::Malformed`] or [`KeyError::RsaSize`].
    pub fn from_spki(der: &[u8]) -> Result<Self, KeyError> {
        let spki = SubjectPublicKeyInfoRef::from_der(der).map_err(|_| KeyError::Spki)?;
        let curve = spki.algorithm.parameters_oid();
        let none = spki.algorithm.parameters.is_none();
        let typ = match spki.algorithm.oid {
            ID_ED25519 if none => KeyType::Ed25519,
            ID_ML_DSA_44 if none => KeyType::MlDsa44,
            ID_EC if curve == Ok(ID_P256) => KeyType::P256,
            ID_EC if curve == Ok(ID_P384) => KeyType::P384,
            ID_RSA if spki.algorithm.parameters == Some(AnyRef::NULL) => KeyType::Rsa,
            _ => return Err(KeyError::UnknownType),
        };
        Self::new(typ, spki.subject_public_key.as_bytes().ok_or(KeyError::Spki)?)
    }

    /// Reads a Multikey (W3C Controlled Identifiers §2.2.2), in base58btc or base64url.
    ///
    /// # Errors
    /// [`KeyError::TooLong`], [`KeyError::Multibase`], [`KeyError::UnknownType`], [`KeyError::Malformed`] or
    /// [`KeyError::RsaSize`].
    pub fn from_multikey(text: &str) -> Result<Self, KeyError> {
        let bytes = multibase_decode(text)?;
        let known = KeyType::ALL.into_iter().find_map(|typ| Some((typ, bytes.strip_prefix(&typ.prefix())?)));
        let (typ, key) = known.ok_or(KeyError::UnknownType)?;
        // Points are compressed there.
        let compressed = matches!(key.first(), Some(2 | 3)) && key.len() == typ.scalar_len() + 1;
        if typ.is_ecdsa() && !compressed {
            return Err(KeyError::Malformed(typ));
        }
        Self::new(typ, key)
    }

    /// Reads a JWK (RFC 7517). Members that say nothing about the key are ignored.
    ///
    /// # Errors
    /// Every [`KeyError`] of a key.
    pub fn from_jwk(jwk: &Map<String, Value>) -> Result<Self, KeyError> {
        if let Some(name) = PRIVATE_MEMBERS.into_iter().find(|name| jwk.contains_key(*name)) {
            return Err(KeyError::PrivateKey(name));
        }
        // RFC 7517 §4.2, §4.3.
        let verifies = |operations: &Value| {
            operations.as_array().is_some_and(|list| list.iter().any(|operation| operation == "verify"))
        };
        if jwk.get("use").is_some_and(|value| value != "sig")
            || jwk.get("key_ops").is_some_and(|operations| !verifies(operations))
        {
            return Err(KeyError::Use);
        }
        let key = Self::from_members(jwk)?;
        // RFC 7517 §4.4: the key is for this algorithm alone.
        match jwk.get("alg") {
            Some(alg) if !key.typ.algorithms().iter().any(|name| alg == name) => Err(KeyError::Use),
            _ => Ok(key),
        }
    }

    /// Reads the members of a JWK that are the key.
    fn from_members(jwk: &Map<String, Value>) -> Result<Self, KeyError> {
        let text = |name| jwk.get(name).and_then(Value::as_str);
        let bytes = |name| {
            let text = text(name).ok_or(KeyError::JwkMember(name))?;
            let text = if text.len() > MAX_BASE64URL { return Err(KeyError::TooLong) } else { text };
            Base64UrlUnpadded::decode_vec(text).map_err(|_| KeyError::JwkMember(name))
        };
        let coordinate = |name, typ: KeyType| {
            let bytes = bytes(name)?;
            // RFC 7518 §6.2.1.2: a coordinate has the full length of the field.
            if bytes.len() == typ.scalar_len() { Ok(bytes) } else { Err(KeyError::JwkMember(name)) }
        };
        match (text("kty").ok_or(KeyError::JwkMember("kty"))?, text("crv")) {
            ("OKP", Some("Ed25519")) => Self::new(KeyType::Ed25519, &coordinate("x", KeyType::Ed25519)?),
            ("EC", Some(curve @ ("P-256" | "P-384"))) => {
                let typ = if curve == "P-256" { KeyType::P256 } else { KeyType::P384 };
                let x = coordinate("x", typ)?;
                let y = coordinate("y", typ)?;
                Self::new(typ, &[&[4], x.as_slice(), y.as_slice()].concat())
            }
            ("RSA", _) => {
                let number = |name| {
                    let bytes = bytes(name)?;
                    // RFC 7518 §6.3.1: no leading zero octets.
                    if bytes.first().is_none_or(|first| *first == 0) {
                        Err(KeyError::JwkMember(name))
                    } else {
                        Ok(bytes)
                    }
                };
                let n = number("n")?;
                let e = number("e")?;
                let modulus = UintRef::new(&n).map_err(|_| KeyError::JwkMember("n"))?;
                let exponent = UintRef::new(&e).map_err(|_| KeyError::JwkMember("e"))?;
                let key = RsaPublicKey { modulus, exponent }.to_der();
                Self::new(KeyType::Rsa, &key.map_err(|_| KeyError::Malformed(KeyType::Rsa))?)
            }
            // draft-ietf-cose-dilithium §3: the algorithm is a part of the key.
            ("AKP", _) if text("alg") == Some("ML-DSA-44") => Self::new(KeyType::MlDsa44, &bytes("pub")?),
            _ => Err(KeyError::UnknownType),
        }
    }

    /// The type of the key.
    pub fn key_type(&self) -> KeyType {
        self.typ
    }

    /// The SubjectPublicKeyInfo, as the engine and raw public keys have it. Points are uncompressed.
    pub fn spki(&self) -> &SubjectPublicKeyInfoDer<'static> {
        &self.spki
    }

    /// The key as a Multikey: with RSA and ML-DSA in base64url, otherwise in base58btc.
    pub fn to_multikey(&self) -> String {
        multibase(self.typ, &self.multikey())
    }

    /// The key as a Multikey in base58btc, which the methods `key` and `peer` demand. `None` for ML-DSA,
    /// whose keys are too long for it.
    pub fn to_multikey_base58(&self) -> Option<String> {
        (self.typ != KeyType::MlDsa44).then(|| base58btc(&self.multikey()))
    }

    /// The bytes of the key as a Multikey.
    fn multikey(&self) -> Vec<u8> {
        let key = match self.typ {
            KeyType::P256 | KeyType::P384 => {
                // The last bit of y is the sign: 2 for even, 3 for odd.
                let sign = 2 | self.raw.last().copied().unwrap_or_default() & 1;
                let x = self.raw.get(1..=self.typ.scalar_len()).unwrap_or_default();
                [&[sign], x].concat()
            }
            KeyType::Ed25519 | KeyType::Rsa | KeyType::MlDsa44 => self.raw.clone(),
        };
        [self.typ.prefix().as_slice(), &key].concat()
    }

    /// The key as a JWK with no other members than the key's.
    pub fn to_jwk(&self) -> Value {
        let half = self.typ.scalar_len();
        let part = |from: usize| encode(self.raw.get(from..from + half).unwrap_or_default());
        match self.typ {
            KeyType::Ed25519 => json!({"kty": "OKP", "crv": "Ed25519", "x": part(0)}),
            KeyType::P256 | KeyType::P384 => {
                json!({"kty": "EC", "crv": self.typ.to_string(), "x": part(1), "y": part(1 + half)})
            }
            KeyType::Rsa => {
                let key = RsaPublicKey::from_der(&self.raw);
                let (n, e) = key
                    .map(|key| (encode(key.modulus.as_bytes()), encode(key.exponent.as_bytes())))
                    .unwrap_or_default();
                json!({"kty": "RSA", "n": n, "e": e})
            }
            KeyType::MlDsa44 => json!({"kty": "AKP", "alg": "ML-DSA-44", "pub": encode(&self.raw)}),
        }
    }

    /// Verifies a signature in raw form: ECDSA as r and s of full length, as Data Integrity and JOSE have it.
    ///
    /// # Errors
    /// [`KeyError::Scheme`] if the key does not have the scheme, [`KeyError::Provider`] if the provider lacks
    /// it, [`KeyError::Signature`].
    pub fn verify(
        &self,
        provider: &CryptoProvider,
        scheme: SignatureScheme,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), KeyError> {
        let der;
        let signature = match self.typ {
            KeyType::P256 | KeyType::P384 => {
                if signature.len() != 2 * self.typ.scalar_len() {
                    return Err(KeyError::Signature);
                }
                let (r, s) = signature.split_at(self.typ.scalar_len());
                let number = |bytes| UintRef::new(bytes).map_err(|_| KeyError::Signature);
                der = EcdsaSignature { r: number(r)?, s: number(s)? }
                    .to_der()
                    .map_err(|_| KeyError::Signature)?;
                der.as_slice()
            }
            KeyType::Ed25519 | KeyType::Rsa | KeyType::MlDsa44 => signature,
        };
        self.verify_der(provider, scheme, message, signature)
    }

    /// As [`Self::verify`], with ECDSA in DER, as TLS and X.509 have it.
    ///
    /// # Errors
    /// As [`Self::verify`].
    pub fn verify_der(
        &self,
        provider: &CryptoProvider,
        scheme: SignatureScheme,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), KeyError> {
        if !self.typ.schemes().contains(&scheme) {
            return Err(KeyError::Scheme(self.typ, scheme));
        }
        let found = provider.signatures.schemes.iter().find(|(candidate, _)| *candidate == scheme);
        let (_, algorithms) = found.ok_or(KeyError::Provider("the signature scheme"))?;
        let verified = algorithms
            .iter()
            .any(|algorithm| algorithm.verify_signature(&self.raw, message, signature).is_ok());
        if verified { Ok(()) } else { Err(KeyError::Signature) }
    }
}

/// Signs with one of the key's schemes; the signature is in raw form, as [`PublicKey::verify`] takes it.
///
/// # Errors
/// [`KeyError::Scheme`], [`KeyError::Signing`], and what [`PublicKey::from_spki`] says of the key.
pub fn sign(
    key: &dyn SigningKey,
    provider: &CryptoProvider,
    scheme: SignatureScheme,
    message: &[u8],
) -> Result<Vec<u8>, KeyError> {
    let typ = PublicKey::from_spki(key.public_key())?.typ;
    if !typ.schemes().contains(&scheme) || !key.schemes().contains(&scheme) {
        return Err(KeyError::Scheme(typ, scheme));
    }
    let signature = key.sign(scheme, message, &*provider.random).map_err(|_| KeyError::Signing)?;
    if !typ.is_ecdsa() {
        return Ok(signature);
    }
    let parts = EcdsaSignature::from_der(&signature).map_err(|_| KeyError::Signing)?;
    let mut raw = Vec::new();
    for part in [parts.r.as_bytes(), parts.s.as_bytes()] {
        let zeros = typ.scalar_len().checked_sub(part.len()).ok_or(KeyError::Signing)?;
        raw.resize(raw.len() + zeros, 0);
        raw.extend_from_slice(part);
    }
    Ok(raw)
}

/// Encodes a key or signature of this type as multibase. Decoding base58 takes quadratic time, so the long
/// ones are in base64url: ML-DSA (W3C Quantum-Safe Cryptosuites §2.1, §3) and, of our own, RSA.
pub fn multibase(typ: KeyType, bytes: &[u8]) -> String {
    match typ {
        KeyType::Rsa | KeyType::MlDsa44 => format!("u{}", encode(bytes)),
        _ => base58btc(bytes),
    }
}

/// Encodes bytes as multibase in base58btc.
pub fn base58btc(bytes: &[u8]) -> String {
    format!("z{}", bs58::encode(bytes).into_string())
}

/// Decodes multibase in base58btc or in base64url without padding.
///
/// # Errors
/// [`KeyError::TooLong`], [`KeyError::Multibase`].
pub fn multibase_decode(text: &str) -> Result<Vec<u8>, KeyError> {
    // Decoding base58 takes quadratic time.
    let longest = if text.starts_with('u') { MAX_BASE64URL } else { MAX_MULTIBASE };
    if text.len() > longest {
        return Err(KeyError::TooLong);
    }
    if let Some(rest) = text.strip_prefix('z') {
        bs58::decode(rest).into_vec().map_err(|_| KeyError::Multibase)
    } else if let Some(rest) = text.strip_prefix('u') {
        Base64UrlUnpadded::decode_vec(rest).map_err(|_| KeyError::Multibase)
    } else {
        Err(KeyError::Multibase)
    }
}

fn encode(bytes: &[u8]) -> String {
    Base64UrlUnpadded::encode_string(bytes)
}

fn bits(number: &[u8]) -> usize {
    let leading = number.first().map_or(0, |first| first.leading_zeros() as usize);
    number.len() * 8 - leading
}
