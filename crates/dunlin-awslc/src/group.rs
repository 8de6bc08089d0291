//! Groups for ECDHE.

use std::any::TypeId;

use aws_lc_rs::agreement::{self, PrivateKey, PublicKey, UnparsedPublicKey};
use dunlin::crypto::{ActiveKeyExchange, CryptoError, KeyExchangeGroup, SecureRandom, SharedSecret};
use dunlin::wire::NamedGroup;
use zeroize::Zeroizing;

use crate::SystemRandom;

/// X25519 (RFC 7748).
pub static X25519: &dyn KeyExchangeGroup = &Group {
    name: NamedGroup::X25519,
    algorithm: &agreement::X25519,
    private_len: 32,
    first_bits: 0xff,
    form: ShareForm { len: 32, first: None },
};

/// ECDHE on P-256 (NIST SP 800-186 §3.2.1.3).
pub static SECP256R1: &dyn KeyExchangeGroup = &Group {
    name: NamedGroup::SECP256R1,
    algorithm: &agreement::ECDH_P256,
    private_len: 32,
    first_bits: 0xff,
    form: ShareForm { len: 65, first: Some(UNCOMPRESSED) },
};

/// ECDHE on P-384 (NIST SP 800-186 §3.2.1.4).
pub static SECP384R1: &dyn KeyExchangeGroup = &Group {
    name: NamedGroup::SECP384R1,
    algorithm: &agreement::ECDH_P384,
    private_len: 48,
    first_bits: 0xff,
    form: ShareForm { len: 97, first: Some(UNCOMPRESSED) },
};

/// ECDHE on P-521 (NIST SP 800-186 §3.2.1.5). [`crate::provider`] leaves it out; add it by name.
pub static SECP521R1: &dyn KeyExchangeGroup = &Group {
    name: NamedGroup::SECP521R1,
    algorithm: &agreement::ECDH_P521,
    private_len: 66,
    first_bits: 0x01,
    form: ShareForm { len: 133, first: Some(UNCOMPRESSED) },
};

/// The longest private key of the groups above, in bytes.
const MAX_PRIVATE_LEN: usize = 66;

/// How often to draw a private key until it is below the order of its group. A draw fails with probability
/// 2^-32 at most (P-256), so a random source that fails this often is broken.
const MAX_DRAWS: usize = 4;

#[derive(Debug)]
struct Group {
    name: NamedGroup,
    algorithm: &'static agreement::Algorithm,
    private_len: usize,
    /// The mask for the first byte of a private key. The order of P-521 does not fill whole bytes.
    first_bits: u8,
    form: ShareForm,
}

/// The only valid form of a group's shares (RFC 8446 §4.2.8.2). AWS-LC itself would also accept compressed
/// points and SubjectPublicKeyInfos.
#[derive(Clone, Copy, Debug)]
struct ShareForm {
    len: usize,
    first: Option<u8>,
}

/// `legacy_form` of an `UncompressedPointRepresentation` (RFC 8446 §4.2.8.2).
const UNCOMPRESSED: u8 = 4;

impl ShareForm {
    fn fits(self, share: &[u8]) -> bool {
        share.len() == self.len && self.first.is_none_or(|first| share.first() == Some(&first))
    }
}

impl Group {
    fn exchange(&self, private: PrivateKey) -> Result<Box<dyn ActiveKeyExchange>, CryptoError> {
        let share = private.compute_public_key().map_err(|_| CryptoError)?;
        Ok(Box::new(Exchange { private, share, form: self.form }))
    }
}

impl KeyExchangeGroup for Group {
    fn name(&self) -> NamedGroup {
        self.name
    }

    fn start(&self, random: &dyn SecureRandom) -> Result<Box<dyn ActiveKeyExchange>, CryptoError> {
        // AWS-LC needs one scalar multiplication to generate a key, but two to import and check one. If the
        // random source is AWS-LC's own, let it generate the key.
        if random.type_id() == TypeId::of::<SystemRandom>() {
            return self.exchange(PrivateKey::generate(self.algorithm).map_err(|_| CryptoError)?);
        }
        let mut bytes = Zeroizing::new([0; MAX_PRIVATE_LEN]);
        let bytes = bytes.get_mut(..self.private_len).ok_or(CryptoError)?;
        for _ in 0..MAX_DRAWS {
            random.fill(bytes)?;
            if let Some(first) = bytes.first_mut() {
                *first &= self.first_bits;
            }
            // AWS-LC rejects zero and values not below the order. X25519 takes every value.
            if let Ok(private) = PrivateKey::from_private_key(self.algorithm, bytes) {
                return self.exchange(private);
            }
        }
        Err(CryptoError)
    }
}

struct Exchange {
    private: PrivateKey,
    share: PublicKey,
    form: ShareForm,
}

impl ActiveKeyExchange for Exchange {
    fn share(&self) -> &[u8] {
        self.share.as_ref()
    }

    fn complete(&self, peer: &[u8]) -> Result<SharedSecret, CryptoError> {
        if !self.form.fits(peer) {
            return Err(CryptoError);
        }
        // AWS-LC checks that the point is on the curve, and rejects an all-zero X25519 result (RFC 8446
        // §7.4.2).
        let peer = UnparsedPublicKey::new(self.private.algorithm(), peer);
        agreement::agree(&self.private, peer, CryptoError, |secret| Ok(SharedSecret::new(secret.to_vec())))
    }
}
