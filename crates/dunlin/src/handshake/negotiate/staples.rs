//! `did_proof` and `credential_status` (docs/identity.md): what a side accepts beside the peer's
//! decentralised identity.

use alloc::vec::Vec;

use super::{Demands, HelloDraft, Offer, Request};
use crate::auth::AcceptedStaples;
use crate::error::Error;
use crate::extension::did_proof::Registries;
use crate::extension::{Extensions, ExtensionsWriter, credential_status};
use crate::handshake::Cx;
use crate::settings::ProfileSettings;

pub(super) fn put(accepted: &AcceptedStaples, w: &mut ExtensionsWriter) {
    if !accepted.registries.is_empty() {
        w.put(&Registries(accepted.registries.clone()));
    }
    w.put_some(accepted.status.then_some(credential_status::Accepted).as_ref());
}

pub(super) fn offer(_: &Cx<'_>, offer: &Offer, hello: &mut HelloDraft) {
    if offer.offers_tls13() {
        put(&offer.terms.asks.staples, &mut hello.extensions);
    }
}

pub(super) fn request(_: &ProfileSettings, request: &Request, w: &mut ExtensionsWriter) {
    put(&request.staples, w);
}

pub(super) fn demand(extensions: &Extensions<'_>, demands: &mut Demands) -> Result<(), Error> {
    demands.reads.staples = AcceptedStaples {
        registries: extensions.get::<Registries>()?.map_or_else(Vec::new, |list| list.0),
        status: extensions.get::<credential_status::Accepted>()?.is_some(),
    };
    Ok(())
}
