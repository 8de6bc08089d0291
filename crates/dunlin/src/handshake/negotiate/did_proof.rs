//! `did_proof` (docs/identity.md): the registries whose proofs a side accepts beside a verifiable credential.

use alloc::vec::Vec;

use super::{Demands, HelloDraft, Request};
use crate::error::Error;
use crate::extension::did_proof::Registries;
use crate::extension::{Extensions, ExtensionsWriter};
use crate::handshake::Cx;
use crate::handshake::client::start::Offer;
use crate::settings::ProfileSettings;
use crate::wire::CertificateType;

/// The registries change while a profile is in use: the sizes of their logs grow.
fn put(profile: &ProfileSettings, w: &mut ExtensionsWriter) {
    let registries = profile.trust.registries();
    if !registries.is_empty() {
        w.put(&Registries(registries));
    }
}

pub(super) fn offer(_: &Cx<'_>, offer: &Offer, hello: &mut HelloDraft) {
    let profile = &offer.terms.config.profile;
    if offer.offers_tls13() && profile.verifies_credentials() {
        put(profile, &mut hello.extensions);
    }
}

pub(super) fn request(request: &Request<'_>, w: &mut ExtensionsWriter) -> Result<(), Error> {
    if request.client_type == CertificateType::VERIFIABLE_CREDENTIAL {
        put(request.profile, w);
    }
    Ok(())
}

pub(super) fn demand(extensions: &Extensions<'_>, demands: &mut Demands) -> Result<(), Error> {
    demands.reads.registries = extensions.get::<Registries>()?.map_or_else(Vec::new, |list| list.0);
    Ok(())
}
