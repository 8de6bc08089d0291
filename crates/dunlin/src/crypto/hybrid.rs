//! Hybrid key exchange (draft-ietf-tls-ecdhe-mlkem): a KEM and a curve together. The secret is safe as long
//! as one of the two is unbroken.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{ActiveKeyExchange, CryptoError, KeyExchangeGroup, SecureRandom, SharedSecret};
use crate::wire::NamedGroup;

/// A group that combines a KEM and a curve. Each share and secret consists of the KEM's part and the curve's
/// part.
#[derive(Debug)]
pub struct HybridGroup {
    /// Its number.
    pub name: NamedGroup,
    /// Which part comes first in shares and secrets.
    pub order: HybridOrder,
    /// The KEM.
    pub kem: &'static dyn KeyExchangeGroup,
    /// The length of the KEM's encapsulation key, the initiator's share, in bytes.
    pub encapsulation_key_len: usize,
    /// The length of the KEM's ciphertext, the responder's share, in bytes.
    pub ciphertext_len: usize,
    /// The curve.
    pub curve: &'static dyn KeyExchangeGroup,
}

/// The order of the two parts of a hybrid group. It follows a rule of FIPS: the first part of a secret comes
/// from an approved algorithm (draft-ietf-tls-ecdhe-mlkem §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HybridOrder {
    /// As in X25519MLKEM768.
    KemFirst,
    /// As in SecP256r1MLKEM768.
    CurveFirst,
}

impl HybridOrder {
    fn join(self, kem: &[u8], curve: &[u8]) -> Vec<u8> {
        match self {
            Self::KemFirst => [kem, curve].concat(),
            Self::CurveFirst => [curve, kem].concat(),
        }
    }

    /// The parts of the KEM, which has `kem_len` bytes, and of the curve. Each part checks the length of its
    /// own share, so this only splits the two.
    fn split(self, share: &[u8], kem_len: usize) -> Result<(&[u8], &[u8]), CryptoError> {
        let parts = match self {
            Self::KemFirst => share.split_at_checked(kem_len),
            Self::CurveFirst => {
                let curve_len = share.len().checked_sub(kem_len).ok_or(CryptoError)?;
                share.split_at_checked(curve_len).map(|(curve, kem)| (kem, curve))
            }
        };
        parts.ok_or(CryptoError)
    }

    fn join_secrets(self, kem: &SharedSecret, curve: &SharedSecret) -> SharedSecret {
        SharedSecret::new(self.join(kem.as_bytes(), curve.as_bytes()))
    }
}

impl KeyExchangeGroup for HybridGroup {
    fn name(&self) -> NamedGroup {
        self.name
    }

    fn start(&self, random: &dyn SecureRandom) -> Result<Box<dyn ActiveKeyExchange>, CryptoError> {
        let kem = self.kem.start(random)?;
        let curve = self.curve.start(random)?;
        let share = self.order.join(kem.share(), curve.share());
        Ok(Box::new(Exchange {
            order: self.order,
            kem,
            curve,
            share,
            curve_name: self.curve.name(),
            ciphertext_len: self.ciphertext_len,
        }))
    }

    fn respond(
        &self,
        random: &dyn SecureRandom,
        peer: &[u8],
    ) -> Result<(Vec<u8>, SharedSecret), CryptoError> {
        let (kem, curve) = self.order.split(peer, self.encapsulation_key_len)?;
        let (kem_share, kem_secret) = self.kem.respond(random, kem)?;
        let (curve_share, curve_secret) = self.curve.respond(random, curve)?;
        let share = self.order.join(&kem_share, &curve_share);
        Ok((share, self.order.join_secrets(&kem_secret, &curve_secret)))
    }
}

struct Exchange {
    order: HybridOrder,
    kem: Box<dyn ActiveKeyExchange>,
    curve: Box<dyn ActiveKeyExchange>,
    share: Vec<u8>,
    curve_name: NamedGroup,
    ciphertext_len: usize,
}

impl ActiveKeyExchange for Exchange {
    fn share(&self) -> &[u8] {
        &self.share
    }

    fn complete(&self, peer: &[u8]) -> Result<SharedSecret, CryptoError> {
        let (kem, curve) = self.order.split(peer, self.ciphertext_len)?;
        Ok(self.order.join_secrets(&self.kem.complete(kem)?, &self.curve.complete(curve)?))
    }

    fn component(&self) -> Option<(NamedGroup, &[u8])> {
        Some((self.curve_name, self.curve.share()))
    }

    fn complete_component(&self, peer: &[u8]) -> Result<SharedSecret, CryptoError> {
        self.curve.complete(peer)
    }
}
