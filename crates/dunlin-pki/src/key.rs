//! Key pairs for certificates and handshakes.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::error::KeyRejected;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA384_ASN1, ECDSA_P256_SHA512_ASN1,
    ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ECDSA_P384_SHA384_ASN1_SIGNING, ECDSA_P384_SHA512_ASN1,
    ECDSA_P521_SHA256_ASN1, ECDSA_P521_SHA384_ASN1, ECDSA_P521_SHA512_ASN1, ECDSA_P521_SHA512_ASN1_SIGNING,
    ED25519, EcdsaKeyPair, EcdsaSigningAlgorithm, Ed25519KeyPair, KeyPair as _, ML_DSA_44, ML_DSA_44_SIGNING,
    ML_DSA_65, ML_DSA_65_SIGNING, PqdsaKeyPair, PqdsaSigningAlgorithm, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA384, RSA_PKCS1_2048_8192_SHA512, RSA_PKCS1_SHA256, RSA_PSS_2048_8192_SHA256,
    RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512, RSA_PSS_SHA256, RSA_PSS_SHA384, RSA_PSS_SHA512,
    RsaEncoding, UnparsedPublicKey, VerificationAlgorithm,
};
use const_oid::db::{fips204, rfc5912, rfc8410};
use der::asn1::{Any, BitString, SequenceRef};
use der::referenced::OwnedToRef;
use der::{Decode, Encode, Tag, pem};
use dunlin::crypto::rsa_pss;
use dunlin::wire::SignatureScheme;
use pkcs8::PrivateKeyInfoRef;
use pki_types::{AlgorithmIdentifier, PrivateKeyDer, SubjectPublicKeyInfoDer, alg_id};
use x509_cert::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned, SubjectPublicKeyInfoRef};
use zeroize::Zeroizing;

use crate::error::encoding;
use crate::{Error, KeyType, other_key};

impl FromStr for KeyType {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        let found = Self::ALL.into_iter().find(|typ| typ.name() == name);
        found.ok_or_else(|| Error::UnknownKeyType(name.to_owned()))
    }
}

/// A private key and its public key. AWS-LC wipes the private key on drop.
pub struct KeyPair {
    typ: KeyType,
    pair: Pair,
    /// The AlgorithmIdentifier of an RSA-PSS key; `None` for other keys, which AWS-LC encodes.
    pss: Option<AlgorithmIdentifierOwned>,
    public: SubjectPublicKeyInfoDer<'static>,
}

enum Pair {
    Rsa(rsa::KeyPair),
    Ecdsa(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
    MlDsa(PqdsaKeyPair),
}

/// The ECDSA curves, each with the hash that TLS 1.3 binds to it (RFC 8446 §4.2.3).
const CURVES: [(KeyType, &EcdsaSigningAlgorithm); 3] = [
    (KeyType::P256, &ECDSA_P256_SHA256_ASN1_SIGNING),
    (KeyType::P384, &ECDSA_P384_SHA384_ASN1_SIGNING),
    (KeyType::P521, &ECDSA_P521_SHA512_ASN1_SIGNING),
];

/// The supported parameter sets of ML-DSA.
const LEVELS: [(KeyType, &PqdsaSigningAlgorithm); 2] =
    [(KeyType::MlDsa44, &ML_DSA_44_SIGNING), (KeyType::MlDsa65, &ML_DSA_65_SIGNING)];

impl KeyPair {
    /// Generates a key from the system's random source.
    ///
    /// # Errors
    /// [`Error::Crypto`].
    pub fn generate(typ: KeyType) -> Result<Self, Error> {
        let rsa = |size| rsa::KeyPair::generate(size).map(Pair::Rsa);
        let pss = |size| {
            let pair = rsa::KeyPair::generate(size).map_err(|_| Error::Crypto)?;
            Self::rsa_pss(typ, pair, identifier(rsa_pss::ANY_HASH)?)
        };
        let ecdsa = |curve| EcdsaKeyPair::generate(curve).map(Pair::Ecdsa);
        let pair = match typ {
            KeyType::Rsa2048 => rsa(rsa::KeySize::Rsa2048),
            KeyType::Rsa3072 => rsa(rsa::KeySize::Rsa3072),
            KeyType::Rsa4096 => rsa(rsa::KeySize::Rsa4096),
            KeyType::RsaPss2048 => return pss(rsa::KeySize::Rsa2048),
            KeyType::RsaPss3072 => return pss(rsa::KeySize::Rsa3072),
            KeyType::RsaPss4096 => return pss(rsa::KeySize::Rsa4096),
            KeyType::P256 => ecdsa(&ECDSA_P256_SHA256_ASN1_SIGNING),
            KeyType::P384 => ecdsa(&ECDSA_P384_SHA384_ASN1_SIGNING),
            KeyType::P521 => ecdsa(&ECDSA_P521_SHA512_ASN1_SIGNING),
            KeyType::Ed25519 => Ed25519KeyPair::generate().map(Pair::Ed25519),
            KeyType::MlDsa44 => PqdsaKeyPair::generate(&ML_DSA_44_SIGNING).map(Pair::MlDsa),
            KeyType::MlDsa65 => PqdsaKeyPair::generate(&ML_DSA_65_SIGNING).map(Pair::MlDsa),
        };
        Self::new(typ, pair.map_err(|_| Error::Crypto)?)
    }

    /// Reads a private key from PKCS#8, PKCS#1 or SEC 1.
    ///
    /// # Errors
    /// [`Error::ShortKey`] if it is RSA with fewer than 2048 bits; [`Error::OtherKey`] or
    /// [`Error::ExplicitCurve`] if its type, curve or size is not supported; [`Error::UnusableKey`] if it
    /// does not parse.
    pub fn from_der(key: &PrivateKeyDer<'_>) -> Result<Self, Error> {
        let der = key.secret_der();
        // AWS-LC ignores trailing bytes, so `der` checks first that there are none.
        <&SequenceRef>::from_der(der).map_err(|_| Error::UnusableKey)?;
        for (typ, curve) in CURVES {
            if let Ok(pair) = EcdsaKeyPair::from_private_key_der(curve, der) {
                return Self::new(typ, Pair::Ecdsa(pair));
            }
        }
        if let Ok(pair) = Ed25519KeyPair::from_pkcs8(der) {
            return Self::new(KeyType::Ed25519, Pair::Ed25519(pair));
        }
        for (typ, level) in LEVELS {
            if let Ok(pair) = PqdsaKeyPair::from_pkcs8(level, der) {
                return Self::new(typ, Pair::MlDsa(pair));
            }
        }
        if let Ok(info) = PrivateKeyInfoRef::from_der(der)
            && info.algorithm.oid == rfc5912::ID_RSASSA_PSS
        {
            return Self::from_pss(&info);
        }
        let pair = match rsa::KeyPair::from_pkcs8(der).map_err(reason) {
            Err(Error::UnusableKey) => rsa::KeyPair::from_der(der).map_err(reason),
            pair => pair,
        };
        let pair = match pair {
            Err(Error::UnusableKey) => return Err(other_key::reason(der)),
            pair => pair?,
        };
        let typ = match pair.public_modulus_len() {
            256 => KeyType::Rsa2048,
            384 => KeyType::Rsa3072,
            512 => KeyType::Rsa4096,
            length => return Err(other_size(length)),
        };
        Self::new(typ, Pair::Rsa(pair))
    }

    /// Reads an RSA-PSS key without parameters, or with those that TLS allows (RFC 8446 §4.2.3).
    fn from_pss(info: &PrivateKeyInfoRef<'_>) -> Result<Self, Error> {
        let algorithm = AlgorithmIdentifierOwned::from(info.algorithm);
        schemes(&algorithm)?;
        let pkcs1 = info.private_key.as_bytes();
        <&SequenceRef>::from_der(pkcs1).map_err(|_| Error::UnusableKey)?;
        let pair = rsa::KeyPair::from_der(pkcs1).map_err(reason)?;
        let typ = match pair.public_modulus_len() {
            256 => KeyType::RsaPss2048,
            384 => KeyType::RsaPss3072,
            512 => KeyType::RsaPss4096,
            length => return Err(other_size(length)),
        };
        Self::rsa_pss(typ, pair, algorithm)
    }

    fn rsa_pss(typ: KeyType, pair: rsa::KeyPair, algorithm: AlgorithmIdentifierOwned) -> Result<Self, Error> {
        let key = BitString::from_bytes(pair.public_key().as_ref()).map_err(encoding)?;
        let public = SubjectPublicKeyInfoOwned { algorithm: algorithm.clone(), subject_public_key: key };
        let public = public.to_der().map_err(encoding)?.into();
        Ok(Self { typ, pair: Pair::Rsa(pair), pss: Some(algorithm), public })
    }

    fn new(typ: KeyType, pair: Pair) -> Result<Self, Error> {
        let public = match &pair {
            Pair::Rsa(pair) => spki(pair.public_key()),
            Pair::Ecdsa(pair) => spki(pair.public_key()),
            Pair::Ed25519(pair) => spki(pair.public_key()),
            Pair::MlDsa(pair) => spki(pair.public_key()),
        }?;
        Ok(Self { typ, pair, pss: None, public })
    }

    /// The type of the key.
    pub fn key_type(&self) -> KeyType {
        self.typ
    }

    /// The algorithm with which the key signs a certificate (RFC 5758 §3.2, RFC 8410 §3, RFC 9881 §2, RFC
    /// 4055 §5). Keys for RSA in general use PKCS#1 v1.5: every verifier supports it. PSS takes more bytes,
    /// since its parameters appear in the certificate twice.
    pub(crate) fn signature_algorithm(&self) -> Result<AlgorithmIdentifierOwned, Error> {
        let (oid, parameters) = match self.typ {
            KeyType::Rsa2048 | KeyType::Rsa3072 | KeyType::Rsa4096 => {
                (rfc5912::SHA_256_WITH_RSA_ENCRYPTION, Some(Any::null()))
            }
            KeyType::RsaPss2048 | KeyType::RsaPss3072 | KeyType::RsaPss4096 => {
                return match &self.pss {
                    // RFC 8446 §4.2.3: the signature has the parameters of the key.
                    Some(algorithm) if algorithm.parameters.is_some() => Ok(algorithm.clone()),
                    _ => identifier(alg_id::RSA_PSS_SHA256),
                };
            }
            KeyType::P256 => (rfc5912::ECDSA_WITH_SHA_256, None),
            KeyType::P384 => (rfc5912::ECDSA_WITH_SHA_384, None),
            KeyType::P521 => (rfc5912::ECDSA_WITH_SHA_512, None),
            KeyType::Ed25519 => (rfc8410::ID_ED_25519, None),
            KeyType::MlDsa44 => (fips204::ID_ML_DSA_44, None),
            KeyType::MlDsa65 => (fips204::ID_ML_DSA_65, None),
        };
        Ok(AlgorithmIdentifierOwned { oid, parameters })
    }

    /// The SubjectPublicKeyInfo, which is also the form of a raw public key (RFC 7250 §3).
    pub fn public_key(&self) -> &SubjectPublicKeyInfoDer<'static> {
        &self.public
    }

    /// The public key as PEM, labelled `PUBLIC KEY`.
    ///
    /// # Errors
    /// [`Error::Crypto`].
    pub fn public_key_pem(&self) -> Result<String, Error> {
        pem::encode_string("PUBLIC KEY", pem::LineEnding::LF, &self.public).map_err(|_| Error::Crypto)
    }

    /// The private key as PKCS#8 version 1 (RFC 5208 §5), which `openssl genpkey` writes too.
    ///
    /// # Errors
    /// [`Error::Crypto`].
    pub fn to_pkcs8(&self) -> Result<Zeroizing<Vec<u8>>, Error> {
        let copy = |der: &[u8]| Zeroizing::new(der.to_vec());
        if let (Pair::Rsa(pair), Some(algorithm)) = (&self.pair, &self.pss) {
            let general = AsDer::<Pkcs8V1Der<'_>>::as_der(pair).map_err(|_| Error::Crypto)?;
            let general = PrivateKeyInfoRef::from_der(general.as_ref()).map_err(|_| Error::Crypto)?;
            let own = PrivateKeyInfoRef::new(algorithm.owned_to_ref(), general.private_key);
            return own.to_der().map(Zeroizing::new).map_err(|_| Error::Crypto);
        }
        match &self.pair {
            Pair::Rsa(pair) => AsDer::<Pkcs8V1Der<'_>>::as_der(pair).map(|der| copy(der.as_ref())),
            Pair::Ecdsa(pair) => pair.to_pkcs8v1().map(|der| copy(der.as_ref())),
            Pair::Ed25519(pair) => AsDer::<Pkcs8V1Der<'_>>::as_der(pair).map(|der| copy(der.as_ref())),
            Pair::MlDsa(pair) => pair.to_pkcs8v1().map(|der| copy(der.as_ref())),
        }
        .map_err(|_| Error::Crypto)
    }

    /// The private key as PEM, labelled `PRIVATE KEY`.
    ///
    /// # Errors
    /// [`Error::Crypto`].
    pub fn to_pem(&self) -> Result<Zeroizing<String>, Error> {
        let pkcs8 = self.to_pkcs8()?;
        pem::encode_string("PRIVATE KEY", pem::LineEnding::LF, &pkcs8)
            .map(Zeroizing::new)
            .map_err(|_| Error::Crypto)
    }

    /// Signs `message` with [`Self::signature_algorithm`].
    pub(crate) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        // aws-lc-rs takes a random source only to match ring's interface; it always uses AWS-LC's own.
        let random = SystemRandom::new();
        match &self.pair {
            Pair::Rsa(pair) => {
                let encoding: &'static dyn RsaEncoding = match self.pss.as_ref().map(schemes).transpose()? {
                    None => &RSA_PKCS1_SHA256,
                    Some([SignatureScheme::RSA_PSS_PSS_SHA384]) => &RSA_PSS_SHA384,
                    Some([SignatureScheme::RSA_PSS_PSS_SHA512]) => &RSA_PSS_SHA512,
                    Some(_) => &RSA_PSS_SHA256,
                };
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(encoding, &random, message, &mut signature).map(|()| signature)
            }
            Pair::Ecdsa(pair) => pair.sign(&random, message).map(|signature| signature.as_ref().to_vec()),
            Pair::Ed25519(pair) => pair.try_sign(message).map(|signature| signature.as_ref().to_vec()),
            Pair::MlDsa(pair) => {
                let mut signature = vec![0; pair.algorithm().signature_len()];
                pair.sign(message, &mut signature).map(|_| signature)
            }
        }
        .map_err(|_| Error::Crypto)
    }

    /// Whether this key has signed `message` by this algorithm, which other programs may have chosen.
    pub(crate) fn has_signed(
        &self,
        algorithm: &AlgorithmIdentifierOwned,
        message: &[u8],
        signature: &[u8],
    ) -> Result<bool, Error> {
        let verification: &'static dyn VerificationAlgorithm = match (self.typ, algorithm.oid) {
            (_, rfc5912::SHA_256_WITH_RSA_ENCRYPTION) => &RSA_PKCS1_2048_8192_SHA256,
            (_, rfc5912::SHA_384_WITH_RSA_ENCRYPTION) => &RSA_PKCS1_2048_8192_SHA384,
            (_, rfc5912::SHA_512_WITH_RSA_ENCRYPTION) => &RSA_PKCS1_2048_8192_SHA512,
            (_, rfc5912::ID_RSASSA_PSS) => match schemes(algorithm).unwrap_or_default() {
                [SignatureScheme::RSA_PSS_PSS_SHA256] => &RSA_PSS_2048_8192_SHA256,
                [SignatureScheme::RSA_PSS_PSS_SHA384] => &RSA_PSS_2048_8192_SHA384,
                [SignatureScheme::RSA_PSS_PSS_SHA512] => &RSA_PSS_2048_8192_SHA512,
                _ => return Ok(false),
            },
            (KeyType::P256, rfc5912::ECDSA_WITH_SHA_256) => &ECDSA_P256_SHA256_ASN1,
            (KeyType::P256, rfc5912::ECDSA_WITH_SHA_384) => &ECDSA_P256_SHA384_ASN1,
            (KeyType::P256, rfc5912::ECDSA_WITH_SHA_512) => &ECDSA_P256_SHA512_ASN1,
            (KeyType::P384, rfc5912::ECDSA_WITH_SHA_256) => &ECDSA_P384_SHA256_ASN1,
            (KeyType::P384, rfc5912::ECDSA_WITH_SHA_384) => &ECDSA_P384_SHA384_ASN1,
            (KeyType::P384, rfc5912::ECDSA_WITH_SHA_512) => &ECDSA_P384_SHA512_ASN1,
            (KeyType::P521, rfc5912::ECDSA_WITH_SHA_256) => &ECDSA_P521_SHA256_ASN1,
            (KeyType::P521, rfc5912::ECDSA_WITH_SHA_384) => &ECDSA_P521_SHA384_ASN1,
            (KeyType::P521, rfc5912::ECDSA_WITH_SHA_512) => &ECDSA_P521_SHA512_ASN1,
            (_, rfc8410::ID_ED_25519) => &ED25519,
            (_, fips204::ID_ML_DSA_44) => &ML_DSA_44,
            (_, fips204::ID_ML_DSA_65) => &ML_DSA_65,
            _ => return Ok(false),
        };
        let key = SubjectPublicKeyInfoRef::from_der(&self.public).map_err(encoding)?;
        let key = UnparsedPublicKey::new(verification, key.subject_public_key.raw_bytes());
        Ok(key.verify(message, signature).is_ok())
    }
}

/// Why AWS-LC rejects an RSA key. Only the text of its error tells the reasons apart.
fn reason(error: KeyRejected) -> Error {
    if error.to_string() == "TooSmall" { Error::ShortKey } else { Error::UnusableKey }
}

/// An RSA key with a modulus of this many bytes.
fn other_size(bytes: usize) -> Error {
    Error::OtherKey(format!("an RSA key of {} bits", 8 * bytes))
}

/// The AlgorithmIdentifier with this content.
fn identifier(content: AlgorithmIdentifier) -> Result<AlgorithmIdentifierOwned, Error> {
    let any = Any::new(Tag::Sequence, content.as_ref()).map_err(encoding)?;
    any.decode_as().map_err(encoding)
}

/// The schemes of an RSA-PSS key.
fn schemes(algorithm: &AlgorithmIdentifierOwned) -> Result<&'static [SignatureScheme], Error> {
    let any = Any::encode_from(algorithm).map_err(encoding)?;
    rsa_pss::schemes(any.value()).ok_or(Error::UnusableKey)
}

/// Shows the type of the key, never the key itself.
impl fmt::Debug for KeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyPair").field("type", &self.typ).finish_non_exhaustive()
    }
}

fn spki(key: &impl AsDer<PublicKeyX509Der<'static>>) -> Result<SubjectPublicKeyInfoDer<'static>, Error> {
    let der = key.as_der().map_err(|_| Error::Crypto)?;
    Ok(SubjectPublicKeyInfoDer::from(der.as_ref()).into_owned())
}
