//! `cookie` (RFC 8446 §4.2.2), which the client returns after a HelloRetryRequest.

use super::{HelloDraft, Offer};
use crate::crypto::Tls13CipherSuite;
use crate::error::{Error, PeerMisbehaved};
use crate::extension::cookie::Cookie;
use crate::extension::{Extensions, ExtensionsWriter};
use crate::handshake::Cx;
use crate::handshake::retry::Retry;
use crate::handshake::setup::ServerConfig;
use crate::message::ClientHello;
use crate::protocol::Protocol;
use crate::wire::{ExtensionType, Field};
use alloc::vec::Vec;

pub(super) fn offer(_: &Cx<'_>, offer: &Offer, hello: &mut HelloDraft) {
    hello.extensions.put_some(offer.cookie.as_ref());
}

pub(super) fn accept_retry(
    _: &mut Cx<'_>,
    offer: &mut Offer,
    request: &Extensions<'_>,
    _: &'static Tls13CipherSuite,
) -> Result<(), Error> {
    offer.cookie = request.get()?;
    Ok(())
}

/// A HelloRetryRequest has the cookie, if the server uses cookies.
pub(super) fn retry(_: Protocol, _: &Retry, cookie: Option<&[u8]>, w: &mut ExtensionsWriter) {
    w.put_some(cookie.map(|cookie| Cookie(cookie.to_vec())).as_ref());
}

/// The cookie in a ClientHello.
pub(crate) fn of(hello: &ClientHello) -> Result<Option<Vec<u8>>, Error> {
    Ok(hello.extensions().get::<Cookie>()?.map(|cookie| cookie.0))
}

/// Checks the client's cookie. `sent` is the HelloRetryRequest that this connection has sent, if any, and its
/// cookie. Returns the HelloRetryRequest that the ClientHello answers, if any.
pub(crate) fn check(
    cx: &Cx<'_>,
    config: &ServerConfig,
    hello: &ClientHello,
    sent: Option<(Retry, Option<Vec<u8>>)>,
) -> Result<Option<Retry>, Error> {
    let unexpected = || PeerMisbehaved::IllegalParameter(Field::Extension(ExtensionType::COOKIE)).into();
    match (sent, of(hello)?) {
        (None, None) => Ok(None),
        // The cookie is from an earlier connection. The server keeps no state of it: the cookie contains the
        // request.
        (None, Some(cookie)) if config.demands_cookie(cx.protocol()) => {
            Retry::from_cookie(config, cx.now, cx.emitter.peer_address(), &cookie, hello).map(Some)
        }
        // RFC 8446 §4.2.2: only the second ClientHello may contain a cookie.
        (None, Some(_)) => Err(unexpected()),
        (Some((retry, cookie)), returned) if cookie == returned => Ok(Some(retry)),
        (Some(_), _) => Err(unexpected()),
    }
}
