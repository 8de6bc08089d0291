//! `did_methods` (draft-vesco-vcauthtls): the methods of decentralised identifiers that a side resolves. They
//! restrict which verifiable credential the other side sends.

use alloc::vec::Vec;

use super::{Demands, HelloDraft, Offer, Request};
use crate::error::{Error, PeerMisbehaved};
use crate::extension::did_methods::DidMethods;
use crate::extension::{Extensions, ExtensionsWriter};
use crate::handshake::Cx;
use crate::message::ClientHello;
use crate::settings::ProfileSettings;
use crate::wire::{CertificateType, DidMethod, ExtensionType};

fn put(methods: &[DidMethod], w: &mut ExtensionsWriter) {
    if !methods.is_empty() {
        w.put(&DidMethods(methods.to_vec()));
    }
}

/// A client sends it only with the certificate type that needs it, which exists only in TLS 1.3.
pub(super) fn offer(_: &Cx<'_>, offer: &Offer, hello: &mut HelloDraft) {
    if offer.offers_tls13() {
        put(&offer.terms.asks.did_methods, &mut hello.extensions);
    }
}

/// The methods in a request for the client's credential: those that this side resolves, and of them only the
/// client's if it has listed any.
pub(super) fn common(profile: &ProfileSettings, hello: &ClientHello) -> Result<Vec<DidMethod>, Error> {
    let theirs = hello.extensions().get::<DidMethods>()?;
    let mut ours = profile.trust.did_methods(CertificateType::VERIFIABLE_CREDENTIAL);
    ours.retain(|method| theirs.as_ref().is_none_or(|theirs| theirs.0.contains(method)));
    Ok(ours)
}

pub(super) fn request(_: &ProfileSettings, request: &Request, w: &mut ExtensionsWriter) {
    put(&request.did_methods, w);
}

pub(super) fn demand(extensions: &Extensions<'_>, demands: &mut Demands) -> Result<(), Error> {
    demands.did_methods = extensions.get::<DidMethods>()?.map(|methods| methods.0);
    Ok(())
}

/// The draft demands the list wherever a verifiable credential is to be sent.
pub(super) fn require(demands: &Demands) -> Result<(), Error> {
    match &demands.did_methods {
        Some(_) => Ok(()),
        None => Err(PeerMisbehaved::MissingExtension(ExtensionType::DID_METHODS).into()),
    }
}
