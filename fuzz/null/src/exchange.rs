//! Key exchange with a known result.

use dunlin::crypto::{
    ActiveKeyExchange, CryptoError, FiniteField, KeyExchangeGroup, SecureRandom, SharedSecret,
};
use dunlin::wire::NamedGroup;

/// Every share, cut to the length for the group. It has the form of an uncompressed point.
pub const SHARE: [u8; 97] = [4; 97];

pub(crate) static GROUPS: [NullGroup; 3] = [
    NullGroup { name: NamedGroup::X25519, share_len: 32, secret_len: 32, field: None },
    NullGroup { name: NamedGroup::SECP256R1, share_len: 65, secret_len: 32, field: None },
    NullGroup { name: NamedGroup::SECP384R1, share_len: 97, secret_len: 48, field: None },
];

/// A finite field with the name of ffdhe2048, for the DHE suites of TLS 1.2. Its numbers are too short, and
/// its modulus is not prime.
pub static FFDHE2048: &dyn KeyExchangeGroup = &NullGroup {
    name: NamedGroup::FFDHE2048,
    share_len: 32,
    secret_len: 32,
    field: Some(FiniteField { prime: &[0xfb; 32], generator: &[2] }),
};

#[derive(Clone, Copy, Debug)]
pub(crate) struct NullGroup {
    name: NamedGroup,
    share_len: usize,
    secret_len: usize,
    field: Option<FiniteField>,
}

impl KeyExchangeGroup for NullGroup {
    fn name(&self) -> NamedGroup {
        self.name
    }

    fn start(&self, _: &dyn SecureRandom) -> Result<Box<dyn ActiveKeyExchange>, CryptoError> {
        Ok(Box::new(NullExchange(*self)))
    }

    fn finite_field(&self) -> Option<FiniteField> {
        self.field
    }
}

struct NullExchange(NullGroup);

impl ActiveKeyExchange for NullExchange {
    fn share(&self) -> &[u8] {
        SHARE.get(..self.0.share_len).unwrap_or(&SHARE)
    }

    fn complete(&self, peer: &[u8]) -> Result<SharedSecret, CryptoError> {
        if peer.len() != self.0.share_len {
            return Err(CryptoError);
        }
        Ok(SharedSecret::new(vec![0x53; self.0.secret_len]))
    }
}
