//! Groups for (EC)DHE.

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

/// ECDHE on P-521 (NIST SP 800-186 §3.2.1.5). To be asked for by name.
pub static SECP521R1: &dyn KeyExchangeGroup = &Group {
    name: NamedGroup::SECP521R1,
    algorithm: &agreement::ECDH_P521,
    private_len: 66,
    first_bits: 0x01,
    form: ShareForm { len: 133, first: Some(UNCOMPRESSED) },
};

/// The longest private key of the groups above, in bytes.
const MAX_PRIVATE_LEN: usize = 66;

/// How often a private key is drawn anew because it is not below the order of its group. For P-256, where that is
/// likeliest, one draw fails with probability 2^-32: a source that fails this often does not work.
const MAX_DRAWS: usize = 4;

#[derive(Debug)]
struct Group {
    name: NamedGroup,
    algorithm: &'static agreement::Algorithm,
    private_len: usize,
    /// The bits of the first byte that a private key has: the order of P-521 does not fill its bytes.
    first_bits: u8,
    form: ShareForm,
}

/// The one form that a share of a group has (RFC 8446 §4.2.8.2). AWS-LC alone would take compressed points and whole
/// SubjectPublicKeyInfos too.
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
        // AWS-LC multiplies once for a key of its own making, and once more to check one that it is given. Where the
        // randomness would come from AWS-LC all the same, it makes the key.
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
            // Zero and whatever is not below the order are refused; X25519 takes every value.
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

    fn complete(self: Box<Self>, peer: &[u8]) -> Result<SharedSecret, CryptoError> {
        if !self.form.fits(peer) {
            return Err(CryptoError);
        }
        // AWS-LC checks that the point is on the curve and refuses an all-zero X25519 result (RFC 8446 §7.4.2).
        let peer = UnparsedPublicKey::new(self.private.algorithm(), peer);
        agreement::agree(&self.private, peer, CryptoError, |secret| Ok(SharedSecret::new(secret.to_vec())))
    }
}
