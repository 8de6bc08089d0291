//! A client's requirements for its server's credential. The client asks its verifiers once, because a second
//! ClientHello repeats the first (RFC 8446 §4.1.2), although the verifiers' knowledge may change in between.

use alloc::vec::Vec;

use crate::auth::AcceptedStaples;
use crate::extension::ssi_parameters::SsiParameters;
use crate::handshake::setup::ClientConfig;
use crate::wire::{CertificateType, DidMethod};

/// A client's requirements for its server's credential, the same in every ClientHello of a handshake.
pub(crate) struct Asks {
    /// The names of the client's trust anchors.
    pub(crate) authorities: Vec<Vec<u8>>,
    /// The methods of identifiers that the client resolves for a verifiable credential in a Certificate.
    /// Empty if it accepts none there.
    pub(crate) did_methods: Vec<DidMethod>,
    /// The staples that the client accepts beside a decentralised identity. Empty if it accepts no such
    /// identity.
    pub(crate) staples: AcceptedStaples,
    /// The decentralised identity for which the client asks in messages of its own.
    pub(crate) ssi: Option<SsiParameters>,
}

impl Asks {
    pub(crate) fn of(config: &ClientConfig) -> Self {
        let profile = &config.profile;
        let trust = &profile.trust;
        let credential = CertificateType::VERIFIABLE_CREDENTIAL;
        let takes_certificate = profile.verifies(credential) && profile.has_certificates(credential, true);
        let ssi = config.parts.ssi.and_then(|ssi| (ssi.ask)(profile));
        let takes_messages = ssi.as_ref().is_some_and(|ssi| ssi.asks_for.is_self_sovereign());
        let takes_staples = (takes_certificate || takes_messages) && !profile.ssi.is_links();
        Self {
            authorities: profile.authorities(),
            did_methods: if takes_certificate { trust.did_methods(credential) } else { Vec::new() },
            staples: if takes_staples {
                let by_messages = ssi.as_ref().is_some_and(|ssi| ssi.asks_for == credential);
                trust.staples(takes_certificate || by_messages)
            } else {
                AcceptedStaples::default()
            },
            ssi,
        }
    }
}
