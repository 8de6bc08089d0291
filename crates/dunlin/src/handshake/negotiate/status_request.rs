//! `status_request` (RFC 6066 §8, RFC 8446 §4.4.2.1): the client requests an OCSP response for the server's
//! certificate.

use super::{Answers, Choices, Demands, HelloDraft, Offer, Terms};
use crate::error::Error;
use crate::extension::status_request::{Acknowledged, StatusRequest};
use crate::extension::{Extensions, ExtensionsWriter};
use crate::handshake::Cx;
use crate::wire::{CertificateType, ExtensionType};

pub(super) fn offer(_: &Cx<'_>, offer: &Offer, hello: &mut HelloDraft) {
    let profile = &offer.terms.config.profile;
    if profile.certificates.request_ocsp && profile.trust.of(CertificateType::X509).is_ok() {
        hello.extensions.put(&StatusRequest);
    }
}

/// A TLS 1.2 server acknowledges the request, and may then send CertificateStatus. In TLS 1.3 the response
/// comes with the certificate, without an acknowledgement.
pub(super) fn accept(_: &mut Cx<'_>, terms: &mut Terms, answers: &Answers<'_>) -> Result<(), Error> {
    let typ = ExtensionType::STATUS_REQUEST;
    terms.ocsp =
        if answers.version.is_1_2() { answers.extensions.has(typ) } else { terms.offered.contains(&typ) };
    Ok(())
}

/// Clients send no OCSP responses, so only a ClientHello demands one.
pub(super) fn demand(extensions: &Extensions<'_>, demands: &mut Demands) -> Result<(), Error> {
    demands.reads.ocsp = extensions.has(ExtensionType::STATUS_REQUEST);
    Ok(())
}

/// The acknowledgement of TLS 1.2.
pub(super) fn answer(_: &mut Cx<'_>, chosen: &Choices<'_>, w: &mut ExtensionsWriter) -> Result<(), Error> {
    w.put_some(chosen.staples.then_some(Acknowledged).as_ref());
    Ok(())
}
