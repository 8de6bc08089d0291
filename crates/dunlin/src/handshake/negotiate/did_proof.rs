//! `did_proof` (docs/identity.md): the registries whose proofs a side accepts beside a verifiable credential.

use alloc::vec::Vec;

use super::{Demands, HelloDraft, Request};
use crate::auth::KnownRegistry;
use crate::error::Error;
use crate::extension::did_proof::Registries;
use crate::extension::{Extensions, ExtensionsWriter};
use crate::handshake::Cx;
use crate::handshake::client::start::Offer;
use crate::settings::ProfileSettings;

fn put(registries: &[KnownRegistry], w: &mut ExtensionsWriter) {
    if !registries.is_empty() {
        w.put(&Registries(registries.to_vec()));
    }
}

pub(super) fn offer(_: &Cx<'_>, offer: &Offer, hello: &mut HelloDraft) {
    if offer.offers_tls13() {
        put(&offer.terms.asks.registries, &mut hello.extensions);
    }
}

pub(super) fn request(_: &ProfileSettings, request: &Request, w: &mut ExtensionsWriter) {
    put(&request.registries, w);
}

pub(super) fn demand(extensions: &Extensions<'_>, demands: &mut Demands) -> Result<(), Error> {
    demands.reads.registries = extensions.get::<Registries>()?.map_or_else(Vec::new, |list| list.0);
    Ok(())
}
