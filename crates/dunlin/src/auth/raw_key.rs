//! Authentication by raw public key (RFC 7250). The key itself is the identity.

use alloc::boxed::Box;
use alloc::vec::Vec;

use pki_types::SubjectPublicKeyInfoDer;
use webpki::RawPublicKeyEntity;

use super::PeerIdentity;
use super::verifier::{Claim, Validity, Verdict, Verified, Verifier};
use crate::error::AuthenticationFailure;
use crate::wire::CertificateType;

/// The raw public keys that this side trusts. A raw key has no name, no dates and no purpose (RFC 7250 §6). A
/// client with several keys here accepts each of them from every server, whatever name it connects to. Give
/// each server its own configuration with its own key, or answer [`crate::Question::Verify`]
/// ([`RawKeyTrust::Ask`]), which shows the name.
#[derive(Clone, Debug)]
pub enum RawKeyTrust {
    /// Trust these keys.
    Keys(Vec<SubjectPublicKeyInfoDer<'static>>),
    /// Let the caller decide by its answer to [`crate::Question::Verify`].
    Ask,
    /// Trust any key. The peer proves that it has the private key; the application must decide whether to
    /// accept it.
    DangerAnyone,
}

impl Verifier for RawKeyTrust {
    fn certificate_type(&self) -> CertificateType {
        CertificateType::RAW_PUBLIC_KEY
    }

    fn settings(&self, add: &mut dyn FnMut(&[u8])) {
        match self {
            Self::Ask => add(b"raw key asked"),
            Self::DangerAnyone => add(b"raw key of anyone"),
            Self::Keys(keys) => {
                add(b"raw keys");
                keys.iter().for_each(|key| add(key));
            }
        }
    }

    /// Keys are public, so the comparison need not take constant time. They have no name and no expiry to
    /// check.
    fn verify(&self, claim: &Claim<'_>) -> Result<Verdict, AuthenticationFailure> {
        let peer = self.read(claim)?;
        let key = &peer.public_key;
        match self {
            Self::Keys(keys) if !keys.contains(key) => Err(AuthenticationFailure::UnknownRawKey),
            Self::Ask if !is_readable(key) => Err(AuthenticationFailure::BadRawKey),
            Self::Ask => Ok(Verdict::Ask),
            Self::Keys(_) | Self::DangerAnyone => Ok(Verdict::Accepted(peer)),
        }
    }

    fn read(&self, claim: &Claim<'_>) -> Result<Box<Verified>, AuthenticationFailure> {
        let key = claim.entries.first().ok_or(AuthenticationFailure::NoCertificate)?;
        let key = SubjectPublicKeyInfoDer::from(key.to_vec());
        Ok(Verified::new(key.clone(), PeerIdentity::RawKey(key), Validity::ALWAYS))
    }
}

/// Whether the caller can be asked about this key. An unparsable key is rejected without asking.
fn is_readable(key: &SubjectPublicKeyInfoDer<'_>) -> bool {
    RawPublicKeyEntity::try_from(key).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_an_unparsable_key_without_asking() {
        // Ed25519 (RFC 8410 §4).
        let mut key = [0x30, 42, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 33, 0].to_vec();
        key.resize(44, 7);
        let is_readable = |key: &[u8]| is_readable(&SubjectPublicKeyInfoDer::from(key));
        assert!(is_readable(&key));
        key.push(0);
        assert_eq!([is_readable(&key), is_readable(&key[..43]), is_readable(b"")], [false; 3]);
    }
}
