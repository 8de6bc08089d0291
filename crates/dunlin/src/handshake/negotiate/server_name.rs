//! `server_name` (RFC 6066 §3): the client names the host that it wants to reach.

use super::{Choices, Demands, HelloDraft, Offer};
use crate::error::{Error, PeerMisbehaved};
use crate::extension::server_name::{Acknowledged, HostName};
use crate::extension::{Extensions, ExtensionsWriter};
use crate::handshake::Cx;
use crate::handshake::hints::ClientHelloInfo;
use crate::handshake::negotiated::Negotiated;
use crate::message::ClientHello;
use crate::wire::{ExtensionType, Field};
use alloc::string::String;

pub(super) fn offer(_: &Cx<'_>, offer: &Offer, hello: &mut HelloDraft) {
    let terms = &offer.terms;
    if terms.config.send_server_name && matches!(terms.server.name, pki_types::ServerName::DnsName(_)) {
        hello.extensions.put(&HostName(terms.server.host()));
    }
}

/// The name in a ClientHello.
pub(crate) fn of(hello: &ClientHello) -> Result<Option<String>, Error> {
    Ok(hello.extensions().get::<HostName>()?.map(|name| name.0))
}

pub(super) fn hint(hello: &ClientHello, info: &mut ClientHelloInfo) -> Result<(), Error> {
    info.server_name = of(hello)?;
    Ok(())
}

/// RFC 8446 §4.4.2.2: the name guides the server's choice of a certificate.
pub(super) fn demand(extensions: &Extensions<'_>, demands: &mut Demands) -> Result<(), Error> {
    demands.server_name = extensions.get::<HostName>()?.map(|name| name.0);
    Ok(())
}

/// RFC 6066 §3: the server acknowledges a name that it used, to choose a profile or among several
/// credentials. A resumption has no acknowledgement, because the session contains the name.
pub(super) fn answer(_: &mut Cx<'_>, chosen: &Choices<'_>, w: &mut ExtensionsWriter) -> Result<(), Error> {
    let chooses = chosen.config.choose_profile || chosen.config.profile.credentials.len() > 1;
    if chooses && !chosen.resumes && chosen.offers(ExtensionType::SERVER_NAME) {
        w.put(&Acknowledged);
    }
    Ok(())
}

/// RFC 6066 §3: a session is for one name, so a renegotiation keeps it.
pub(super) fn keep(_: &Cx<'_>, previous: &Negotiated, hello: &ClientHello) -> Result<(), Error> {
    if of(hello)? == previous.server_name {
        Ok(())
    } else {
        Err(PeerMisbehaved::IllegalParameter(Field::OtherServerName).into())
    }
}
