//! HelloRetryRequest: what must stay the same between the two ClientHellos, and the cookie that lets a server
//! forget the first (RFC 8446 §4.1.2, §4.1.4, §4.2.2).

use alloc::vec::Vec;

use subtle::ConstantTimeEq;

use crate::crypto::{CryptoProvider, HashOutput};
use crate::error::{Error, PeerMisbehaved};
use crate::handshake::setup::ServerConfig;
use crate::message::ClientHello;
use crate::time::Now;
use crate::wire::{CipherSuite, ExtensionType, NamedGroup, Reader, What, Writer};

/// A cookie older than this is not taken, in seconds: a round trip over the slowest link, with retransmissions.
const COOKIE_LIFETIME: i32 = 120;
/// Clocks of servers that share a key may differ by so much, in seconds.
const CLOCK_SKEW: i32 = 5;
/// The part of digests that a cookie carries, in bytes.
const TRUNCATED: usize = 16;

/// What a server knows of the first ClientHello when the second comes.
#[derive(Clone)]
pub(crate) struct Retry {
    pub(crate) cipher_suite: CipherSuite,
    /// The group for which a share was asked, if one was.
    pub(crate) group: Option<NamedGroup>,
    /// The hash of the first ClientHello, for the transcript.
    pub(crate) hello_hash: HashOutput,
    /// The digest of what must not change.
    pub(crate) unchanged: [u8; TRUNCATED],
}

impl Retry {
    /// RFC 8446 §4.1.2: the second ClientHello is the first, but for these.
    pub(crate) fn check(&self, provider: &CryptoProvider, second: &ClientHello) -> Result<(), Error> {
        match unchanged(provider, second) == self.unchanged {
            true => Ok(()),
            false => Err(PeerMisbehaved::IllegalParameter(What::ClientHelloAfterRetry).into()),
        }
    }

    /// Sealed with an HMAC: nothing in it is secret, all of it must be ours.
    pub(crate) fn to_cookie(&self, config: &ServerConfig, now: Now) -> Result<Vec<u8>, Error> {
        let mut w = Writer::new();
        w.u32((now.unix_ms / 1000) as u32);
        w.u16(self.cipher_suite.0);
        w.u16(self.group.map_or(0, |g| g.0));
        w.put(&self.unchanged);
        w.put(self.hello_hash.as_ref());
        let mut cookie = w.finish()?;
        let tag = tag(config, &cookie);
        cookie.extend_from_slice(&tag);
        Ok(cookie)
    }

    /// From a cookie of ours that is not too old.
    pub(crate) fn from_cookie(config: &ServerConfig, now: Now, cookie: &[u8]) -> Result<Self, Error> {
        let bad = || Error::from(PeerMisbehaved::IllegalParameter(What::Extension(ExtensionType::COOKIE)));
        let (body, received) =
            cookie.len().checked_sub(TRUNCATED).and_then(|n| cookie.split_at_checked(n)).ok_or_else(bad)?;
        if !bool::from(tag(config, body).ct_eq(received)) {
            return Err(bad());
        }
        let mut r = Reader::new(body, What::Extension(ExtensionType::COOKIE));
        let age = ((now.unix_ms / 1000) as u32).wrapping_sub(r.u32()?) as i32;
        if !(-CLOCK_SKEW..=COOKIE_LIFETIME).contains(&age) {
            return Err(bad());
        }
        let cipher_suite = CipherSuite(r.u16()?);
        let group = Some(NamedGroup(r.u16()?)).filter(|g| g.0 != 0);
        Ok(Self { cipher_suite, group, unchanged: r.array()?, hello_hash: HashOutput::new(r.rest()) })
    }
}

fn tag(config: &ServerConfig, cookie: &[u8]) -> [u8; TRUNCATED] {
    let tag =
        config.profile.provider.sha256.hmac(&**config.cookie_key).sign(&[cookie, config.settings.as_bytes()]);
    truncated(&tag)
}

fn truncated(hash: &HashOutput) -> [u8; TRUNCATED] {
    hash.as_ref().first_chunk().copied().unwrap_or_default()
}

/// The digest of what a second ClientHello repeats: all but the extensions that RFC 8446 §4.1.2 lets change.
pub(crate) fn unchanged(provider: &CryptoProvider, hello: &ClientHello) -> [u8; TRUNCATED] {
    const CHANGING: [ExtensionType; 5] = [
        ExtensionType::KEY_SHARE,
        ExtensionType::EARLY_DATA,
        ExtensionType::COOKIE,
        ExtensionType::PRE_SHARED_KEY,
        ExtensionType::PADDING,
    ];
    let mut hash = provider.sha256.start();
    hash.update(&hello.legacy_version.0.to_be_bytes());
    hash.update(&hello.random);
    hash.update(&[hello.session_id().len() as u8]);
    hash.update(hello.session_id());
    hash.update(&(hello.cipher_suites.len() as u16).to_be_bytes());
    for suite in &hello.cipher_suites {
        hash.update(&suite.0.to_be_bytes());
    }
    for (typ, body) in hello.extensions().iter().filter(|(t, _)| !CHANGING.contains(t)) {
        hash.update(&typ.0.to_be_bytes());
        hash.update(&(body.len() as u16).to_be_bytes());
        hash.update(body);
    }
    truncated(&hash.current())
}
