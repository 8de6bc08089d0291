//! `server_certificate_type` and `client_certificate_type` (RFC 7250): X.509 certificates, raw public keys,
//! verifiable credentials, or an application's own type.

use super::{Answers, Choices, Demands, HelloDraft, Offer, Request, Terms, did_methods};
use crate::error::{Error, PeerIncompatible, PeerMisbehaved};
use crate::extension::certificate_type::{ClientType, ClientTypes, ServerType, ServerTypes};
use crate::extension::{Extensions, ExtensionsWriter};
use crate::handshake::Cx;
use crate::handshake::hints::ClientHelloInfo;
use crate::handshake::setup::ServerConfig;
use crate::message::ClientHello;
use crate::settings::ClientAuth;
use crate::wire::{CertificateType, ExtensionType, Field, ProtocolVersion};
use alloc::vec::Vec;

/// The certificate types of the server and of the client (RFC 7250 §4.2). Without an answer they are X.509.
#[derive(Clone, Copy)]
pub(crate) struct CertificateTypes {
    pub(crate) server: CertificateType,
    pub(crate) client: CertificateType,
}

impl Default for CertificateTypes {
    fn default() -> Self {
        Self { server: CertificateType::X509, client: CertificateType::X509 }
    }
}

/// RFC 7250 §4.1: the client omits an extension if X.509 is the only type.
pub(super) fn offer(_: &Cx<'_>, offer: &Offer, hello: &mut HelloDraft) {
    let profile = &offer.terms.config.profile;
    let exists = |typ: &CertificateType| profile.has_certificates(*typ, offer.offers_tls13());
    let mut verified = profile.peer_types();
    verified.retain(exists);
    if verified.iter().any(|t| *t != CertificateType::X509) {
        hello.extensions.put(&ServerTypes(verified));
    }
    let mut own = profile.own_types();
    own.retain(exists);
    if own.iter().any(|t| *t != CertificateType::X509) {
        hello.extensions.put(&ClientTypes(own));
    }
}

pub(super) fn accept(_: &mut Cx<'_>, terms: &mut Terms, answers: &Answers<'_>) -> Result<(), Error> {
    let profile = &terms.config.profile;
    let exists = |typ| profile.has_certificates(typ, !answers.version.is_1_2());
    if let Some(ServerType(typ)) = answers.extensions.get()? {
        if !profile.peer_types().contains(&typ) || !exists(typ) {
            return Err(PeerMisbehaved::NotOffered(Field::ServerCertificateType).into());
        }
        terms.types.server = typ;
    }
    if let Some(ClientType(typ)) = answers.extensions.get()? {
        if !profile.own_types().contains(&typ) || !exists(typ) {
            return Err(PeerMisbehaved::NotOffered(Field::ClientCertificateType).into());
        }
        terms.types.client = typ;
    }
    Ok(())
}

pub(super) fn hint(hello: &ClientHello, info: &mut ClientHelloInfo) -> Result<(), Error> {
    info.client_certificate_types =
        hello.extensions().get::<ClientTypes>()?.map_or_else(Vec::new, |types| types.0);
    Ok(())
}

/// The types of the server's certificate that the client accepts.
pub(super) fn demand(extensions: &Extensions<'_>, demands: &mut Demands) -> Result<(), Error> {
    let types = extensions.get::<ServerTypes>()?;
    demands.types = types.map_or_else(|| [CertificateType::X509].to_vec(), |types| types.0);
    Ok(())
}

/// The server's request for the client's credential. `None` if it requests none.
pub(crate) fn request(
    config: &ServerConfig,
    hello: &ClientHello,
    version: ProtocolVersion,
    by_psk: bool,
) -> Result<Option<Request>, Error> {
    if by_psk || config.client_auth == ClientAuth::None {
        return Ok(None);
    }
    if let Some(ssi) = config.parts.ssi.filter(|_| !version.is_1_2())
        && let Some(request) = (ssi.request)(&config.profile, hello)?
    {
        return Ok(Some(request));
    }
    let theirs = hello.extensions().get::<ClientTypes>()?;
    let asked = theirs.is_some();
    let theirs = theirs.map_or_else(|| [CertificateType::X509].to_vec(), |t| t.0);
    let mut ours = config.profile.peer_types();
    // The client's credential needs a method of decentralised identifiers that both sides resolve.
    let did_methods = did_methods::common(&config.profile, hello)?;
    ours.retain(|typ| {
        let is_common = *typ != CertificateType::VERIFIABLE_CREDENTIAL || !did_methods.is_empty();
        is_common && config.profile.has_certificates(*typ, !version.is_1_2())
    });
    match ours.iter().find(|t| theirs.contains(t)) {
        Some(typ @ &CertificateType::VERIFIABLE_CREDENTIAL) => {
            let staples = config.profile.trust.staples(true);
            Ok(Some(Request { typ: *typ, by_messages: false, did_methods, staples }))
        }
        Some(typ) => Ok(Some(Request::certificate(*typ))),
        // A client without this extension offered no type, so an optional request is simply omitted.
        None if !asked && config.client_auth == ClientAuth::Optional => Ok(None),
        // RFC 7250 §4.2: without a common type the server sends unsupported_certificate.
        None if ours.is_empty() => {
            Err(PeerIncompatible::CertificateType { ours: config.profile.peer_types(), theirs }.into())
        }
        None => Err(PeerIncompatible::CertificateType { ours, theirs }.into()),
    }
}

/// RFC 7250 §4.2: the server answers each type that the client offered and the handshake uses.
pub(super) fn answer(_: &mut Cx<'_>, chosen: &Choices<'_>, w: &mut ExtensionsWriter) -> Result<(), Error> {
    if chosen.offers(ExtensionType::SERVER_CERTIFICATE_TYPE) {
        w.put_some(chosen.server_type.map(ServerType).as_ref());
    }
    if chosen.offers(ExtensionType::CLIENT_CERTIFICATE_TYPE) {
        w.put_some(chosen.client_type.map(ClientType).as_ref());
    }
    Ok(())
}
