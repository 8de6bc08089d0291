//! Security levels of cipher suites and keys, after Table 1 of the paper CAN-SEAT, and ranks that contradict
//! them.

use std::fmt;

use const_oid::ObjectIdentifier;
use const_oid::db::{fips204, rfc5912, rfc8410};
use der::asn1::{AnyRef, UintRef};
use der::{Decode, Sequence};
use dunlin::wire::CipherSuite;
use dunlin_pki::Certificate;
use x509_cert::spki::SubjectPublicKeyInfoRef;

use super::Policy;
use super::profile::PolicyProfile;
use crate::document::Fault;

/// How long a suite or a key protects. The paper CAN-SEAT (Energies 2020, 13, 5777, Table 1) gives the least
/// key length for each level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SecurityLevel {
    /// Below the table.
    Insufficient,
    /// Not for new systems: 80 bits, RSA with 1024 bits, curves and hashes with 160 bits.
    Legacy,
    /// At least ten years: 128 bits, RSA with 3072 bits, curves with 256 bits.
    NearTerm,
    /// Thirty to fifty years: 256 bits, RSA with 15360 bits, curves with 512 bits.
    LongTerm,
}

impl fmt::Display for SecurityLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Insufficient => "insufficient",
            Self::Legacy => "legacy",
            Self::NearTerm => "near-term",
            Self::LongTerm => "long-term",
        })
    }
}

impl SecurityLevel {
    /// The level of the key length `bits` in a column of the table, whose rows begin with these lengths.
    fn of_bits(bits: usize, [legacy, near, long]: [usize; 3]) -> Self {
        match bits {
            _ if bits >= long => Self::LongTerm,
            _ if bits >= near => Self::NearTerm,
            _ if bits >= legacy => Self::Legacy,
            _ => Self::Insufficient,
        }
    }

    fn of_symmetric(bits: usize) -> Self {
        Self::of_bits(bits, [80, 128, 256])
    }

    fn of_modulus(bits: usize) -> Self {
        Self::of_bits(bits, [1024, 3072, 15360])
    }

    fn of_curve(bits: usize) -> Self {
        Self::of_bits(bits, [160, 256, 512])
    }

    /// The level of a suite, by the key length of its cipher. A MAC of SHA-1, a hash with 160 bits, is
    /// legacy. The hash of other suites only derives keys.
    pub fn of_suite(suite: CipherSuite) -> Self {
        let name = suite.name().unwrap_or_default();
        let cipher = match name {
            name if name.contains("_CHACHA20_") || name.contains("_256_") => Self::of_symmetric(256),
            name if name.contains("_128_") => Self::of_symmetric(128),
            _ => Self::Insufficient,
        };
        if name.ends_with("_SHA") { cipher.min(Self::Legacy) } else { cipher }
    }

    /// The level of a public key, a SubjectPublicKeyInfo in DER; `None` for a key of an unknown kind. The
    /// level of ML-DSA is the level of the symmetric cipher to which FIPS 204 compares it.
    pub fn of_key(spki: &[u8]) -> Option<Self> {
        let spki = SubjectPublicKeyInfoRef::from_der(spki).ok()?;
        let curve = || spki.algorithm.parameters.and_then(|curve| curve.decode_as::<ObjectIdentifier>().ok());
        Some(match spki.algorithm.oid {
            rfc5912::RSA_ENCRYPTION | rfc5912::ID_RSASSA_PSS => {
                let key = RsaKey::from_der(spki.subject_public_key.as_bytes()?).ok()?;
                let modulus = key.modulus.as_bytes();
                let zeros = modulus.first()?.leading_zeros();
                Self::of_modulus((8 * modulus.len()).saturating_sub(usize::try_from(zeros).ok()?))
            }
            rfc5912::ID_EC_PUBLIC_KEY => Self::of_curve(match curve()? {
                rfc5912::SECP_256_R_1 => 256,
                rfc5912::SECP_384_R_1 => 384,
                rfc5912::SECP_521_R_1 => 521,
                _ => return None,
            }),
            rfc8410::ID_ED_25519 => Self::of_curve(256),
            rfc8410::ID_ED_448 => Self::of_curve(448),
            fips204::ID_ML_DSA_44 => Self::of_symmetric(128),
            fips204::ID_ML_DSA_65 => Self::of_symmetric(192),
            fips204::ID_ML_DSA_87 => Self::of_symmetric(256),
            _ => return None,
        })
    }

    /// The level of the key of a certificate in DER; `None` for a key of an unknown kind.
    pub fn of_certificate(der: &[u8]) -> Option<Self> {
        Self::of_key(Certificate::from_der(der).ok()?.public_key())
    }
}

/// An RSAPublicKey (RFC 8017 §A.1.1).
#[derive(Sequence)]
struct RsaKey<'a> {
    modulus: UintRef<'a>,
    public_exponent: AnyRef<'a>,
}

impl PolicyProfile {
    /// The weakest of its suites, and its level.
    fn weakest_suite(&self) -> Option<(SecurityLevel, String)> {
        let suites = self.all_suites().into_iter();
        suites.map(|suite| (SecurityLevel::of_suite(suite), suite.to_string())).min()
    }
}

impl Policy {
    /// Ranks that contradict the levels of suites or keys: of two profiles the one with the higher rank has
    /// the lower level. `weakest_key` names the weakest key that a profile shows, and its level.
    pub(crate) fn contradictions(
        &self,
        weakest_key: impl Fn(&PolicyProfile) -> Option<(SecurityLevel, String)>,
    ) -> Vec<Fault> {
        let of_suites = self.contradictions_of("the suite", PolicyProfile::weakest_suite);
        of_suites.into_iter().chain(self.contradictions_of("the certificate", weakest_key)).collect()
    }

    fn contradictions_of(
        &self,
        what: &str,
        weakest: impl Fn(&PolicyProfile) -> Option<(SecurityLevel, String)>,
    ) -> Vec<Fault> {
        let levels: Vec<_> =
            self.profiles.iter().filter_map(|profile| Some((profile, weakest(profile)?))).collect();
        let mut found = vec![];
        for (profile, (level, own)) in &levels {
            let below = levels.iter().filter(|(other, _)| other.rank < profile.rank);
            let strongest = below.max_by_key(|(_, (level, _))| *level);
            let (Some((other, (stronger, _))), Some(places)) = (strongest, self.places(&profile.name)) else {
                continue;
            };
            if stronger > level {
                let what = format!(
                    "{what} {own} gives {level} protection, and profile {other}, of a lower rank, {stronger} protection"
                );
                found.push(
                    places.table.fault(what, "leave it out, or give the weaker profile the lower rank"),
                );
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use dunlin_pki::{KeyPair, KeyType};

    use super::*;

    #[test]
    fn levels_of_suites_and_keys_follow_the_table() {
        use SecurityLevel::{Legacy, LongTerm, NearTerm};
        for (suite, level) in [
            (CipherSuite::TLS_AES_128_GCM_SHA256, NearTerm),
            (CipherSuite::TLS_AES_128_CCM_8_SHA256, NearTerm),
            (CipherSuite::TLS_AES_256_GCM_SHA384, LongTerm),
            (CipherSuite::TLS_CHACHA20_POLY1305_SHA256, LongTerm),
            (CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, NearTerm),
        ] {
            assert_eq!(SecurityLevel::of_suite(suite), level, "{suite}");
        }
        for (typ, level) in [
            (KeyType::Rsa2048, Legacy),
            (KeyType::Rsa3072, NearTerm),
            (KeyType::Rsa4096, NearTerm),
            (KeyType::P256, NearTerm),
            (KeyType::P384, NearTerm),
            (KeyType::P521, LongTerm),
            (KeyType::Ed25519, NearTerm),
            (KeyType::MlDsa44, NearTerm),
        ] {
            let pair = KeyPair::generate(typ).unwrap();
            assert_eq!(SecurityLevel::of_key(pair.public_key()), Some(level), "{typ:?}");
        }
        assert_eq!(SecurityLevel::of_modulus(1023), SecurityLevel::Insufficient);
        assert_eq!(SecurityLevel::of_modulus(15360), LongTerm);
        assert_eq!(SecurityLevel::of_curve(160), Legacy);
    }
}
