//! Authentication by raw public key (RFC 7250): the key is the identity.

use alloc::vec::Vec;

use pki_types::SubjectPublicKeyInfoDer;

use crate::error::AuthenticationFailure;

/// Which raw public keys are believed.
#[derive(Clone, Debug)]
pub enum RawKeyTrust {
    /// These.
    Keys(Vec<SubjectPublicKeyInfoDer<'static>>),
    /// Whatever the answer to [`crate::Question::Verify`] says.
    Ask,
    /// Any: the peer proves that it has the key, and the application must decide what that is worth.
    DangerAnyone,
}

impl RawKeyTrust {
    /// Whether `key` is believed; `None` if that must be asked. The keys are public, so nothing is gained by a
    /// comparison in constant time.
    pub(crate) fn verify(&self, key: &[u8]) -> Option<Result<(), AuthenticationFailure>> {
        match self {
            Self::Keys(keys) if keys.iter().any(|k| &**k == key) => Some(Ok(())),
            Self::Keys(_) => Some(Err(AuthenticationFailure::UnknownRawKey)),
            Self::Ask => None,
            Self::DangerAnyone => Some(Ok(())),
        }
    }
}
