//! `extended_master_secret` (RFC 7627), which binds the master secret of TLS 1.2 to the whole handshake.

use super::renegotiation_info::Previous;
use super::{Answers, Choices, HelloDraft, Offer, Terms};
use crate::error::{Error, PeerIncompatible};
use crate::extension::extended_master_secret::ExtendedMasterSecret;
use crate::extension::{Extensions, ExtensionsWriter};
use crate::handshake::Cx;
use crate::handshake::hints::ClientHelloInfo;
use crate::handshake::setup::ServerConfig;
use crate::message::ClientHello;
use crate::settings::ProfileSettings;
use crate::wire::ExtensionType;

pub(super) fn offer(_: &Cx<'_>, _: &Offer, hello: &mut HelloDraft) {
    hello.extensions.put(&ExtendedMasterSecret);
}

/// RFC 7627 §5.2: both sides must use it if the profile requires it, or if the connection that they
/// renegotiate began with it.
fn is_required(profile: &ProfileSettings, previous: Option<&Previous>) -> bool {
    profile.tls12.as_ref().is_some_and(|t| t.extended_master_secret_required)
        || previous.is_some_and(|previous| previous.extended)
}

/// RFC 7627 §5.3: a resumption needs it, too, since the client keeps no session without it.
pub(super) fn accept(_: &mut Cx<'_>, terms: &mut Terms, answers: &Answers<'_>) -> Result<(), Error> {
    let is_required = is_required(&terms.config.profile, terms.previous.as_ref()) || answers.resumes;
    terms.extended = is_in(answers.extensions);
    if terms.extended || !is_required { Ok(()) } else { Err(PeerIncompatible::ExtendedMasterSecret.into()) }
}

/// Whether the other side's message has the extension.
pub(crate) fn is_in(extensions: &Extensions<'_>) -> bool {
    extensions.has(ExtensionType::EXTENDED_MASTER_SECRET)
}

/// Whether the client offers it.
pub(crate) fn is_offered(hello: &ClientHello) -> bool {
    is_in(&hello.extensions())
}

pub(super) fn hint(hello: &ClientHello, info: &mut ClientHelloInfo) -> Result<(), Error> {
    info.extended_master_secret = is_offered(hello);
    Ok(())
}

pub(super) fn check(
    config: &ServerConfig,
    hello: &ClientHello,
    previous: Option<&Previous>,
) -> Result<(), Error> {
    if is_offered(hello) || !is_required(&config.profile, previous) {
        Ok(())
    } else {
        Err(PeerIncompatible::ExtendedMasterSecret.into())
    }
}

pub(super) fn answer(_: &mut Cx<'_>, chosen: &Choices<'_>, w: &mut ExtensionsWriter) -> Result<(), Error> {
    if is_offered(chosen.hello) {
        w.put(&ExtendedMasterSecret);
    }
    Ok(())
}
