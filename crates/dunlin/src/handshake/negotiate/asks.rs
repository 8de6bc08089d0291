//! What a client asks of its server's credential. It asks its verifiers once, because a second ClientHello repeats the first (RFC 8446
//! §4.1.2), although what they know may change in between.

use alloc::vec::Vec;

use crate::auth::KnownRegistry;
use crate::settings::ProfileSettings;
use crate::wire::{CertificateType, DidMethod};

/// What a client asks of its server's credential, in every ClientHello of a handshake.
pub(crate) struct Asks {
    /// The names of the client's trust anchors.
    pub(crate) authorities: Vec<Vec<u8>>,
    /// The methods of identifiers that the client resolves. Empty if it accepts no verifiable credential.
    pub(crate) did_methods: Vec<DidMethod>,
    /// The registries whose proofs the client accepts. Empty if it accepts no verifiable credential.
    pub(crate) registries: Vec<KnownRegistry>,
}

impl Asks {
    pub(crate) fn of(profile: &ProfileSettings) -> Self {
        let trust = &profile.trust;
        let (did_methods, registries) = match profile.verifies(CertificateType::VERIFIABLE_CREDENTIAL) {
            true => (trust.did_methods(CertificateType::VERIFIABLE_CREDENTIAL), trust.registries()),
            false => (Vec::new(), Vec::new()),
        };
        Self { authorities: profile.authorities(), did_methods, registries }
    }
}
