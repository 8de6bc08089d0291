//! `ec_point_formats` (RFC 8422 §5.1.2). TLS 1.2 has one format, but some peers require the extension.

use super::{Choices, HelloDraft, Offer};
use crate::crypto::Tls12KeyExchange;
use crate::error::Error;
use crate::extension::ExtensionsWriter;
use crate::extension::ec_point_formats::EcPointFormats;
use crate::handshake::Cx;
use crate::wire::ExtensionType;

/// RFC 8422 §5.1: a client that offers curves should send it together with supported_groups.
pub(super) fn offer(_: &Cx<'_>, offer: &Offer, hello: &mut HelloDraft) {
    if offer.tls12_suites.iter().any(|s| s.key_exchange == Tls12KeyExchange::Ecdhe) {
        hello.extensions.put(&EcPointFormats);
    }
}

pub(super) fn answer(_: &mut Cx<'_>, chosen: &Choices<'_>, w: &mut ExtensionsWriter) -> Result<(), Error> {
    if chosen.uses_curve && chosen.offers(ExtensionType::EC_POINT_FORMATS) {
        w.put(&EcPointFormats);
    }
    Ok(())
}
