//! `compress_certificate` (RFC 8879): the algorithms that a side can decompress.

use super::{Demands, HelloDraft, Offer, Request};
use crate::error::Error;
use crate::extension::compress_certificate::CompressCertificate;
use crate::extension::{Extensions, ExtensionsWriter};
use crate::handshake::Cx;
use crate::settings::ProfileSettings;
use alloc::vec::Vec;

/// RFC 8879 §3: only TLS 1.3 compresses certificates.
pub(super) fn offer(_: &Cx<'_>, offer: &Offer, hello: &mut HelloDraft) {
    if offer.offers_tls13() {
        put(&offer.terms.config.profile, &mut hello.extensions);
    }
}

fn put(profile: &ProfileSettings, w: &mut ExtensionsWriter) {
    if !profile.certificates.decompressors.is_empty() {
        w.put(&CompressCertificate(profile.decompression_algorithms()));
    }
}

pub(super) fn request(profile: &ProfileSettings, _: &Request, w: &mut ExtensionsWriter) {
    put(profile, w);
}

pub(super) fn demand(extensions: &Extensions<'_>, demands: &mut Demands) -> Result<(), Error> {
    demands.reads.compressions =
        extensions.get::<CompressCertificate>()?.map_or_else(Vec::new, |algorithms| algorithms.0);
    Ok(())
}
