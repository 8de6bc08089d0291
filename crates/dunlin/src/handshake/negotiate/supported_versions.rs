//! `supported_versions` (RFC 8446 §4.2.1): the protocol version.

use super::{Choices, HelloDraft, Offer};
use crate::error::{Error, PeerIncompatible, PeerMisbehaved};
use crate::extension::ExtensionsWriter;
use crate::extension::supported_versions::{Offer as Versions, Selected};
use crate::handshake::Cx;
use crate::handshake::hints::ClientHelloInfo;
use crate::handshake::negotiated::Negotiated;
use crate::handshake::retry::Retry;
use crate::message::{ClientHello, ServerHello};
use crate::protocol::Protocol;
use crate::wire::Field;

pub(super) fn offer(cx: &Cx<'_>, offer: &Offer, hello: &mut HelloDraft) {
    if offer.offers_tls13() {
        let tls12 = (!offer.tls12_suites.is_empty()).then(|| cx.protocol().oldest().version());
        let versions = [cx.protocol().version()].into_iter().chain(tls12).collect();
        hello.extensions.put(&Versions(versions));
    }
}

/// Checks that a ServerHello or HelloRetryRequest selects TLS 1.3, and that the client offered it.
pub(crate) fn accept(cx: &mut Cx<'_>, offer: &Offer, hello: &ServerHello<'_>) -> Result<(), Error> {
    match hello.extensions.get::<Selected>()? {
        Some(selected) if selected.0 == cx.protocol().version() && offer.offers_tls13() => {
            cx.progress.oldest = cx.protocol();
            Ok(())
        }
        // RFC 8446 §4.2.1: a version that the client did not offer here, or one before 1.3, is
        // illegal_parameter.
        Some(_) => Err(PeerMisbehaved::NotOffered(Field::Version).into()),
        None => {
            let version = hello.legacy_version;
            Err(if is_downgrade(&hello.random) && version != cx.protocol().version() {
                PeerMisbehaved::Downgrade.into()
            } else {
                PeerIncompatible::Version(Some(version)).into()
            })
        }
    }
}

/// Whether the server's random ends with the downgrade sentinel: the server supports a newer version (RFC
/// 8446 §4.1.3).
pub(crate) fn is_downgrade(random: &[u8; 32]) -> bool {
    random.ends_with(b"DOWNGRD\x01") || random.ends_with(b"DOWNGRD\x00")
}

/// Whether the client offers TLS 1.3, or DTLS 1.3 over datagrams.
pub(crate) fn offers_tls13(hello: &ClientHello, protocol: Protocol) -> Result<bool, Error> {
    let versions = hello.extensions().get::<Versions>()?;
    Ok(versions.is_some_and(|v| v.0.contains(&protocol.version())))
}

/// Whether the client offers TLS 1.2, or DTLS 1.2 over datagrams. RFC 8446 §4.2.1: if supported_versions is
/// present, only that counts. Otherwise the client offers at most version 1.2, even if legacy_version is
/// higher.
pub(crate) fn offers_tls12(hello: &ClientHello, protocol: Protocol) -> Result<bool, Error> {
    let versions = hello.extensions().get::<Versions>()?;
    Ok(match versions {
        Some(versions) => versions.0.contains(&protocol.oldest().version()),
        None => protocol.offers_oldest(hello.legacy_version),
    })
}

/// The error for a client without a common version: protocol_version (RFC 8446 §4.2.1). It names the client's
/// first known version.
pub(crate) fn no_common_version(hello: &ClientHello, protocol: Protocol) -> Error {
    let versions = hello.extensions().get::<Versions>().ok().flatten();
    let newest = match versions {
        Some(v) => v.0.iter().find(|v| v.is_real()).or(v.0.first()).copied(),
        None if protocol.descends_from_ssl() => Some(hello.legacy_version.min(protocol.legacy_version())),
        None => Some(hello.legacy_version),
    };
    PeerIncompatible::Version(newest).into()
}

pub(super) fn hint(hello: &ClientHello, info: &mut ClientHelloInfo) -> Result<(), Error> {
    let versions = hello.extensions().get::<Versions>()?;
    info.versions = versions.map_or_else(|| [hello.legacy_version].into(), |v| v.0);
    Ok(())
}

pub(super) fn answer(_: &mut Cx<'_>, chosen: &Choices<'_>, w: &mut ExtensionsWriter) -> Result<(), Error> {
    w.put(&Selected(chosen.version));
    Ok(())
}

/// A HelloRetryRequest selects the version, too (RFC 8446 §4.1.4).
pub(super) fn retry(protocol: Protocol, _: &Retry, _: Option<&[u8]>, w: &mut ExtensionsWriter) {
    w.put(&Selected(protocol.version()));
}

/// RFC 8446 §4.1.2: a renegotiation keeps the version.
pub(super) fn keep(cx: &Cx<'_>, _: &Negotiated, hello: &ClientHello) -> Result<(), Error> {
    if offers_tls12(hello, cx.protocol())? { Ok(()) } else { Err(no_common_version(hello, cx.protocol())) }
}
