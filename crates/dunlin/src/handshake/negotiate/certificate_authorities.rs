//! `certificate_authorities` (RFC 8446 §4.2.4): the names of the CAs that a side trusts.

use super::{Demands, HelloDraft, Offer, Request};
use crate::error::Error;
use crate::extension::certificate_authorities::CertificateAuthorities;
use crate::extension::{Extensions, ExtensionsWriter};
use crate::handshake::Cx;
use crate::settings::ProfileSettings;
use alloc::vec::Vec;

/// TLS 1.2 has it only in the server's CertificateRequest.
pub(super) fn offer(_: &Cx<'_>, offer: &Offer, hello: &mut HelloDraft) {
    if offer.offers_tls13() {
        put(offer.terms.asks.authorities.clone(), &mut hello.extensions);
    }
}

fn put(authorities: Vec<Vec<u8>>, w: &mut ExtensionsWriter) {
    if !authorities.is_empty() {
        w.put(&CertificateAuthorities(authorities));
    }
}

pub(super) fn request(profile: &ProfileSettings, _: &Request, w: &mut ExtensionsWriter) {
    put(profile.authorities(), w);
}

pub(super) fn demand(extensions: &Extensions<'_>, demands: &mut Demands) -> Result<(), Error> {
    demands.authorities = extensions.get::<CertificateAuthorities>()?.map_or_else(Vec::new, |names| names.0);
    Ok(())
}
