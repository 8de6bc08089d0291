//! `renegotiation_info` (RFC 5746), which binds a renegotiation of TLS 1.2 to the previous handshake.

use super::{Answers, Choices, HelloDraft, Offer, Terms};
use crate::error::{Error, PeerIncompatible};
use crate::extension::ExtensionsWriter;
use crate::extension::renegotiation_info::RenegotiationInfo;
use crate::handshake::Cx;
use crate::handshake::hints::ClientHelloInfo;
use crate::handshake::setup::ServerConfig;
use crate::message::ClientHello;
use crate::schedule::tls12::VerifyData;
use crate::wire::{CipherSuite, ExtensionType};
use alloc::vec::Vec;

/// The verify_data of both Finished messages. A renegotiation sends them again (RFC 5746 §3.1).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Finisheds {
    pub(crate) client: VerifyData,
    pub(crate) server: VerifyData,
}

impl Finisheds {
    /// Both values in the order in which the server sends them (RFC 5746 §3.2).
    fn both(&self) -> Vec<u8> {
        [self.client, self.server].concat()
    }
}

/// The state of the previous handshake that a renegotiation needs.
#[derive(Clone, Copy)]
pub(crate) struct Previous {
    pub(crate) finisheds: Finisheds,
    /// Whether it used the extended master secret (RFC 7627). Then a renegotiation must use it, too.
    pub(crate) extended: bool,
}

pub(super) fn offer(_: &Cx<'_>, offer: &Offer, hello: &mut HelloDraft) {
    match &offer.terms.previous {
        // RFC 5746 §3.5: a renegotiation sends the verify_data of the client's previous Finished.
        Some(previous) => hello.extensions.put(&RenegotiationInfo(previous.finisheds.client.to_vec())),
        // RFC 5746 §3.4: the first handshake sends this signal instead of an empty extension. The server
        // answers with the extension.
        None => {
            hello.suites.push(CipherSuite::TLS_EMPTY_RENEGOTIATION_INFO_SCSV);
            hello.extensions.offer(ExtensionType::RENEGOTIATION_INFO);
        }
    }
}

/// The value of the server's extension: empty in the first handshake (RFC 5746 §3.4, §3.6). In a
/// renegotiation it is the verify_data of both previous Finished messages (§3.5, §3.7).
fn of_server(previous: Option<&Previous>) -> Vec<u8> {
    previous.map_or_else(Vec::new, |previous| previous.finisheds.both())
}

pub(super) fn accept(_: &mut Cx<'_>, terms: &mut Terms, answers: &Answers<'_>) -> Result<(), Error> {
    match answers.extensions.get::<RenegotiationInfo>()? {
        Some(info) if info.0 == of_server(terms.previous.as_ref()) => Ok(()),
        // RFC 9325 §3.5: the client aborts if the server does not answer.
        _ => Err(PeerIncompatible::SecureRenegotiation.into()),
    }
}

/// Whether the client supports secure renegotiation, by the extension or by the SCSV (RFC 5746 §3.6).
pub(crate) fn is_supported(hello: &ClientHello) -> bool {
    hello.extensions().has(ExtensionType::RENEGOTIATION_INFO)
        || hello.cipher_suites.contains(&CipherSuite::TLS_EMPTY_RENEGOTIATION_INFO_SCSV)
}

pub(super) fn hint(hello: &ClientHello, info: &mut ClientHelloInfo) -> Result<(), Error> {
    info.secure_renegotiation = is_supported(hello);
    Ok(())
}

/// RFC 5746 §3.6: in the first handshake renegotiation_info is empty. §3.7: in a renegotiation it is the
/// verify_data of the client's previous Finished, and the SCSV is forbidden.
pub(super) fn check(_: &ServerConfig, hello: &ClientHello, previous: Option<&Previous>) -> Result<(), Error> {
    let info = hello.extensions().get::<RenegotiationInfo>()?.map(|info| info.0);
    let signal = hello.cipher_suites.contains(&CipherSuite::TLS_EMPTY_RENEGOTIATION_INFO_SCSV);
    let is_right = match previous {
        Some(previous) => info.as_deref() == Some(&previous.finisheds.client[..]) && !signal,
        None => info.is_none_or(|info| info.is_empty()),
    };
    if is_right { Ok(()) } else { Err(PeerIncompatible::SecureRenegotiation.into()) }
}

pub(super) fn answer(_: &mut Cx<'_>, chosen: &Choices<'_>, w: &mut ExtensionsWriter) -> Result<(), Error> {
    if is_supported(chosen.hello) {
        w.put(&RenegotiationInfo(of_server(chosen.previous)));
    }
    Ok(())
}
