//! The write keys that a client must not use again.
//!
//! A client that follows its server to another port may process several ServerHellos with one ClientHello
//! ([`crate::PortScheme::Ipc`]). Record numbers begin at 0 in each attempt. If two attempts derived the same
//! keys, two records would have the same nonce. The label of a ServerHello does not prevent that, because an
//! attacker chooses the first record of a datagram. So the sender compares the keys.

use alloc::vec::Vec;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::error::{Error, Internal};
use crate::schedule::keys::TrafficKeys;

/// The most keys that the attempts of a handshake make: two for each. The endpoint bounds the attempts.
pub(crate) const MAX_RETIRED_KEYS: usize = 64;

/// The write keys that all attempts of a handshake have made.
#[derive(Default)]
pub(super) struct RetiredKeys(Vec<Zeroizing<Vec<u8>>>);

impl RetiredKeys {
    /// Notes keys. Returns an error if an attempt has made them before, even with another algorithm.
    pub(super) fn retire(&mut self, keys: &TrafficKeys) -> Result<(), Error> {
        let key = keys.key();
        // RFC 9147 §4: two records with one key need two nonces. RFC 5116 §3.2.
        let is_retired = self.0.iter().any(|retired| bool::from(retired.as_slice().ct_eq(key)));
        if is_retired || self.0.len() >= MAX_RETIRED_KEYS {
            return Err(Internal::KeyExhausted.into());
        }
        self.0.push(Zeroizing::new(key.to_vec()));
        Ok(())
    }
}
