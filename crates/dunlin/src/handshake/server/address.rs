//! The proof that a client receives at its address, which a server over datagrams demands before anything
//! else: before the client has returned a cookie, only the bytes of its ClientHello decide, and the server
//! keeps nothing (RFC 9147 §5.1, RFC 6347 §4.2.1).

use crate::sync::Arc;

use super::arrival::SentRetry;
use super::hello_retry::{self, Request};
use crate::crypto::{KeyExchangeGroup, Tls13CipherSuite};
use crate::error::{Error, PeerIncompatible};
use crate::handshake::Cx;
use crate::handshake::hints::RetryChoice;
use crate::handshake::negotiate::key_share::{self, ShareChoice};
use crate::handshake::negotiate::supported_versions::{no_common_version, offers_tls12, offers_tls13};
use crate::handshake::negotiate::{self, cookie, psk};
use crate::handshake::retry::{self, Retry};
use crate::handshake::setup::ServerConfig;
use crate::message::{ClientHello, hello_verify_request};

/// How far the proof is.
pub(super) enum Proof {
    /// The client has returned a cookie, perhaps from a HelloRetryRequest, or needs none.
    Returned(Option<SentRetry>),
    /// The server has demanded a cookie, perhaps by this HelloRetryRequest.
    Demanded(Option<SentRetry>),
}

/// Checks the cookie of a first ClientHello over datagrams, or demands one.
pub(super) fn check(
    cx: &mut Cx<'_>,
    config: &Arc<ServerConfig>,
    hello: &ClientHello,
) -> Result<Proof, Error> {
    let peer = cx.emitter.peer_address();
    if peer.is_none() || !config.demands_cookie(cx.protocol()) {
        return Ok(Proof::Returned(None));
    }
    if config.profile.has_tls13() && offers_tls13(hello, cx.protocol())? {
        return match cookie::of(hello)? {
            Some(cookie) => {
                // A cookie is for one ClientHello. With another one it proves nothing.
                let retry = Retry::from_cookie(config, cx.now, peer, &cookie, hello)?;
                cx.emitter.prove_address();
                let cookie = Some(cookie);
                let spent = None;
                Ok(Proof::Returned(Some(SentRetry { retry, cookie, spent, has_profile: false })))
            }
            None => demand_by_retry(cx, config, hello),
        };
    }
    if all(config).all(|config| config.parts.tls12.is_none()) || !offers_tls12(hello, cx.protocol())? {
        // The alert is shorter than the ClientHello.
        return Err(no_common_version(hello, cx.protocol()));
    }
    if retry::is_verified(config, cx.now, peer, hello) {
        cx.emitter.prove_address();
        return Ok(Proof::Returned(None));
    }
    // RFC 6347 §4.2.1: a server treats a wrong cookie as none.
    cx.send(hello_verify_request::write(&retry::verify_cookie(config, cx.now, peer, hello))?)?;
    cx.emitter.end_of_flight()?;
    cx.emitter.answer_once();
    Ok(Proof::Demanded(None))
}

/// All configurations of the server, the preferred ones first.
fn all(config: &Arc<ServerConfig>) -> impl Iterator<Item = &Arc<ServerConfig>> {
    core::iter::once(config).chain(&config.others)
}

/// Demands a cookie by a HelloRetryRequest, which also fixes the suite and perhaps the group, before the
/// server knows which profile and which PSK it will choose.
fn demand_by_retry(cx: &mut Cx<'_>, config: &Arc<ServerConfig>, hello: &ClientHello) -> Result<Proof, Error> {
    let (suite, group) = match chosen(config, hello)? {
        Some(chosen) => chosen,
        None => first_common(config, hello)?,
    };
    let request = Request { suite, group, spent: None, has_profile: false };
    let sent = hello_retry::send(cx, config, hello, request)?;
    cx.emitter.answer_once();
    Ok(Proof::Demanded(Some(sent)))
}

/// The suite and the group of a HelloRetryRequest.
type Named = (&'static Tls13CipherSuite, Option<&'static dyn KeyExchangeGroup>);

/// The caller's choice, if there is one that a profile and the client support.
fn chosen(config: &Arc<ServerConfig>, hello: &ClientHello) -> Result<Option<Named>, Error> {
    let Some(choice) = &config.retry_choice else { return Ok(None) };
    let Some(RetryChoice { suite, group }) = choice.choose(&negotiate::hints(hello)?) else {
        return Ok(None);
    };
    let named = all(config).filter(|_| hello.cipher_suites.contains(&suite)).find_map(|config| {
        let group = group.map(|group| config.profile.group(group));
        Some((config.profile.suite(suite)?, group.map_or(Some(None), |group| group.map(Some))?))
    });
    Ok(named)
}

/// The first common suite in the order of [`all`], with the hash of the client's first PSK if any profile has
/// one.
fn first_common(config: &Arc<ServerConfig>, hello: &ClientHello) -> Result<Named, Error> {
    let of_hash = |hash| {
        all(config)
            .find_map(|config| Some((config, config.profile.common_suite(&hello.cipher_suites, hash)?)))
    };
    let hash = psk::first_binder_hash(hello)?;
    let found = hash.and_then(|hash| of_hash(Some(hash))).or_else(|| of_hash(None));
    let (config, suite) = found.ok_or(PeerIncompatible::CipherSuite)?;
    // A client without shares may use psk_ke, which needs none.
    let group = match key_share::choose(config, hello, None) {
        Ok(ShareChoice::Request(group)) => Some(group),
        Ok(ShareChoice::Use(_)) | Err(_) => None,
    };
    Ok((suite, group))
}
