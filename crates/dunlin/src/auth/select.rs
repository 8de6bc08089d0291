//! The choice of the credential for this peer: the first of ours that it can verify.

use alloc::vec::Vec;

use pki_types::CertificateDer;
use webpki::EndEntityCert;

use super::Credential;
use crate::error::PeerIncompatible;
use crate::handshake::signature::signs_handshakes;
use crate::wire::{CertificateType, SignatureScheme};

/// What the peer can verify.
pub(crate) struct Wanted<'a> {
    pub(crate) types: &'a [CertificateType],
    pub(crate) schemes: &'a [SignatureScheme],
    /// The names of its anchors, in DER; none says nothing.
    pub(crate) authorities: &'a [Vec<u8>],
}

/// The credential to use, and how to sign with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Its place among ours.
    pub(crate) index: usize,
    pub(crate) scheme: SignatureScheme,
}

/// The credential to use, and how to sign with it. If the peer named its anchors, a chain that leads to one goes
/// before one that does not. If none suits, the error is the reason for the last one.
pub(crate) fn select(credentials: &[Credential], wanted: &Wanted<'_>) -> Result<Choice, PeerIncompatible> {
    let mut reason = PeerIncompatible::NoCredential("there is none");
    let mut second_best = None;
    for (index, credential) in credentials.iter().enumerate() {
        if !wanted.types.contains(&credential.certificate_type()) {
            reason = PeerIncompatible::CertificateType;
            continue;
        }
        let scheme = (credential.key().schemes().iter().copied())
            .find(|s| signs_handshakes(*s) && wanted.schemes.contains(s));
        let Some(scheme) = scheme else {
            reason = PeerIncompatible::SignatureScheme;
            continue;
        };
        let choice = Choice { index, scheme };
        if leads_to(credential, wanted.authorities) {
            return Ok(choice);
        }
        second_best.get_or_insert(choice);
    }
    second_best.ok_or(reason)
}

fn leads_to(credential: &Credential, authorities: &[Vec<u8>]) -> bool {
    let Credential::X509 { chain, .. } = credential else { return true };
    let issued_by_one = |certificate: &CertificateDer<'_>| {
        EndEntityCert::try_from(certificate)
            .is_ok_and(|c| authorities.iter().any(|name| name.ends_with(c.issuer())))
    };
    authorities.is_empty() || chain.iter().any(issued_by_one)
}
