//! Hybrid key exchange (draft-ietf-tls-ecdhe-mlkem): a KEM and a curve together. The secret is safe as long as one of
//! the two is unbroken.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{ActiveKeyExchange, CryptoError, KeyExchangeGroup, SecureRandom, SharedSecret};
use crate::wire::NamedGroup;

/// A group that combines two groups. Each share and secret is the KEM's followed by the curve's, as in X25519MLKEM768.
#[derive(Debug)]
pub struct HybridGroup {
    /// Its number.
    pub name: NamedGroup,
    /// The KEM, which comes first.
    pub kem: &'static dyn KeyExchangeGroup,
    /// The length of the KEM's encapsulation key, the initiator's share, in bytes.
    pub encapsulation_key_len: usize,
    /// The length of the KEM's ciphertext, the responder's share, in bytes.
    pub ciphertext_len: usize,
    /// The curve.
    pub curve: &'static dyn KeyExchangeGroup,
}

impl KeyExchangeGroup for HybridGroup {
    fn name(&self) -> NamedGroup {
        self.name
    }

    fn start(&self, random: &dyn SecureRandom) -> Result<Box<dyn ActiveKeyExchange>, CryptoError> {
        let (kem, curve) = (self.kem.start(random)?, self.curve.start(random)?);
        let share = [kem.share(), curve.share()].concat();
        Ok(Box::new(Exchange {
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
        // Each part checks the length of its own share, so this only splits the two.
        let (kem, curve) = peer.split_at_checked(self.encapsulation_key_len).ok_or(CryptoError)?;
        let (kem_share, kem_secret) = self.kem.respond(random, kem)?;
        let (curve_share, curve_secret) = self.curve.respond(random, curve)?;
        Ok(([kem_share, curve_share].concat(), joined(&kem_secret, &curve_secret)))
    }
}

struct Exchange {
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

    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, CryptoError> {
        let (kem, curve) = peer.split_at_checked(self.ciphertext_len).ok_or(CryptoError)?;
        Ok(joined(&self.kem.complete(kem)?, &self.curve.complete(curve)?))
    }

    fn component(&self) -> Option<(NamedGroup, &[u8])> {
        Some((self.curve_name, self.curve.share()))
    }

    fn complete_component(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, CryptoError> {
        self.curve.complete(peer)
    }
}

fn joined(kem: &SharedSecret, curve: &SharedSecret) -> SharedSecret {
    SharedSecret::new([kem.as_bytes(), curve.as_bytes()].concat())
}
