//! Authentication by raw public key (RFC 7250). The key itself is the identity.

use alloc::vec::Vec;

use pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use webpki::RawPublicKeyEntity;

use super::PeerIdentity;
use super::cached;
use super::verifier::{Algorithms, Verifier};
use crate::crypto::CryptoProvider;
use crate::error::{AuthenticationFailure, Error};
use crate::proof::SignatureValid;
use crate::protocol::Side;
use crate::wire::CertificateType;

/// The raw public keys that this side trusts. A raw key has no name, no dates and no purpose (RFC 7250 §6). A client with
/// several keys here accepts each of them from every server, whatever name it connects to. Give each server its own
/// configuration with its own key, or answer [`crate::Question::Verify`] ([`RawKeyTrust::Ask`]), which shows the name.
#[derive(Clone, Debug)]
pub enum RawKeyTrust {
    /// Trust these keys.
    Keys(Vec<SubjectPublicKeyInfoDer<'static>>),
    /// Let the caller decide by its answer to [`crate::Question::Verify`].
    Ask,
    /// Trust any key. The peer proves that it has the private key; the application must decide whether to accept it.
    DangerAnyone,
}

impl Verifier for RawKeyTrust {
    fn certificate_type(&self) -> CertificateType {
        CertificateType::RAW_PUBLIC_KEY
    }

    fn asks(&self) -> bool {
        matches!(self, Self::Ask)
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

    /// Keys are public, so the comparison need not take constant time. They have no name and no expiry to check.
    fn believes(
        &self,
        _: Algorithms<'_>,
        chain: &[CertificateDer<'_>],
        _: Side,
        _: Option<&ServerName<'_>>,
        _: UnixTime,
    ) -> Option<Result<(), AuthenticationFailure>> {
        match self {
            Self::Keys(keys) if chain.first().is_some_and(|key| keys.iter().any(|k| **k == **key)) => {
                Some(Ok(()))
            }
            Self::Keys(_) => Some(Err(AuthenticationFailure::UnknownRawKey)),
            Self::Ask => {
                let key = chain.first().map(|leaf| SubjectPublicKeyInfoDer::from(&**leaf));
                let readable = key.is_some_and(|key| RawPublicKeyEntity::try_from(&key).is_ok());
                (!readable).then_some(Err(AuthenticationFailure::BadRawKey))
            }
            Self::DangerAnyone => Some(Ok(())),
        }
    }

    fn public_key(
        &self,
        leaf: &CertificateDer<'_>,
    ) -> Result<SubjectPublicKeyInfoDer<'static>, AuthenticationFailure> {
        Ok(SubjectPublicKeyInfoDer::from(leaf.to_vec()))
    }

    fn verify_signature(
        &self,
        algorithms: Algorithms<'_>,
        leaf: &CertificateDer<'_>,
        content: &[u8],
        signature: &[u8],
    ) -> Result<SignatureValid, Error> {
        cached::verify_signature(algorithms, &SubjectPublicKeyInfoDer::from(&**leaf), content, signature)
    }

    fn identity(
        &self,
        _: &CryptoProvider,
        chain: Vec<CertificateDer<'static>>,
    ) -> Result<PeerIdentity, AuthenticationFailure> {
        let key = chain.first().ok_or(AuthenticationFailure::NoCertificate)?;
        self.public_key(key).map(PeerIdentity::RawKey)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_an_unparsable_key_without_asking() {
        let ask = |spki: &[u8]| {
            let chain = [CertificateDer::from(spki)];
            let now = UnixTime::since_unix_epoch(core::time::Duration::ZERO);
            RawKeyTrust::Ask.believes(&[], &chain, Side::Client, None, now)
        };
        // Ed25519 (RFC 8410 §4).
        let mut key = [0x30, 42, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 33, 0].to_vec();
        key.resize(44, 7);
        assert_eq!(ask(&key), None);
        let refused = Some(Err(AuthenticationFailure::BadRawKey));
        key.push(0);
        assert_eq!([ask(&key), ask(&key[..43]), ask(b"")], [refused.clone(), refused.clone(), refused]);
    }
}
