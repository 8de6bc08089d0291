//! HelloRetryRequest (RFC 8446 §4.1.4): the server sends it, and later continues its transcript.

use alloc::vec::Vec;

use super::arrival::{SentRetry, Spent};
use crate::crypto::{KeyExchangeGroup, Tls13CipherSuite};
use crate::early::{EarlyDataOutcome, NoEarlyData};
use crate::error::Error;
use crate::handshake::Cx;
use crate::handshake::negotiate::{self, cookie, early_data};
use crate::handshake::retry::{self, Retry};
use crate::handshake::setup::ServerConfig;
use crate::message::server_hello::RETRY_RANDOM;
use crate::message::{ClientHello, ServerHello};
use crate::protocol::Protocol;
use crate::schedule::Transcript;

/// The content of a HelloRetryRequest, and the ticket that was marked as used.
pub(super) struct Request {
    pub(super) suite: &'static Tls13CipherSuite,
    pub(super) group: Option<&'static dyn KeyExchangeGroup>,
    pub(super) spent: Option<Spent>,
    pub(super) has_profile: bool,
}

/// Sends a HelloRetryRequest for another group, or only for a cookie.
pub(super) fn send(
    cx: &mut Cx<'_>,
    config: &ServerConfig,
    hello: &ClientHello,
    Request { suite, group, spent, has_profile }: Request,
) -> Result<SentRetry, Error> {
    // RFC 8446 §2.1: the second ClientHello answers this request, so none of it can have arrived.
    cx.emitter.peer_waits()?;
    let retry = Retry {
        cipher_suite: suite.id,
        group: group.map(|g| g.name()),
        hello_hash: suite.hash.hash(&[hello.message().bytes()]),
        unchanged: retry::unchanged(&config.profile.provider, hello),
    };
    let cookie = if config.demands_cookie(cx.protocol()) {
        Some(retry.to_cookie(config, cx.now, cx.emitter.peer_address())?)
    } else {
        None
    };
    let request = retry_request(cx.protocol(), hello, &retry, cookie.as_deref())?;
    cx.send(request)?;
    if !hello.session_id().is_empty() && cx.protocol().has_compatibility_mode() {
        cx.emitter.change_cipher_spec()?;
    }
    cx.emitter.end_of_flight()?;
    if early_data::is_offered(hello) {
        cx.emitter.skip_early_data();
        let why = if config.early_data.is_some() { NoEarlyData::Retry } else { NoEarlyData::Disabled };
        cx.early_data(EarlyDataOutcome::Rejected(why));
    }
    Ok(SentRetry { retry, cookie, spent, has_profile })
}

fn retry_request(
    protocol: Protocol,
    hello: &ClientHello,
    retry: &Retry,
    cookie: Option<&[u8]>,
) -> Result<Vec<u8>, Error> {
    let extensions = negotiate::retry(protocol, retry, cookie);
    ServerHello::write(
        protocol,
        &RETRY_RANDOM,
        hello.session_id_echo(protocol),
        retry.cipher_suite,
        &extensions,
    )
}

/// Reconstructs the transcript up to the HelloRetryRequest from the retry state or the cookie.
pub(super) fn rebuild(
    cx: &Cx<'_>,
    hello: &ClientHello,
    suite: &'static Tls13CipherSuite,
    retry: &Retry,
) -> Result<Transcript, Error> {
    let mut transcript = Transcript::from_hello_hash(suite.hash, retry.hello_hash.as_ref());
    let cookie = cookie::of(hello)?;
    transcript.add(&retry_request(cx.protocol(), hello, retry, cookie.as_deref())?);
    Ok(transcript)
}
