//! HelloRetryRequest: the check that the second ClientHello repeats the first, and the cookie that lets a server
//! keep no state between them (RFC 8446 §4.1.2, §4.1.4, §4.2.2).

use alloc::vec::Vec;

use subtle::ConstantTimeEq;

use crate::crypto::{CryptoProvider, HashOutput};
use crate::error::{Error, PeerMisbehaved};
use crate::handshake::setup::ServerConfig;
use crate::message::ClientHello;
use crate::time::Now;
use crate::wire::{CipherSuite, ExtensionType, NamedGroup, Reader, What, Writer};

/// The greatest age of a cookie, in seconds: one round trip over the slowest link, with retransmissions.
const COOKIE_LIFETIME: i32 = 120;
/// The greatest difference between the clocks of servers that share a cookie key, in seconds.
const CLOCK_SKEW: i32 = 5;
/// The length to which a cookie truncates digests and its tag, in bytes.
const TRUNCATED: usize = 16;

/// What a server remembers of the first ClientHello when the second arrives.
#[derive(Clone)]
pub(crate) struct Retry {
    pub(crate) cipher_suite: CipherSuite,
    /// The group for which the server requested a key share, if any.
    pub(crate) group: Option<NamedGroup>,
    /// The hash of the first ClientHello, for the transcript.
    pub(crate) hello_hash: HashOutput,
    /// The digest of the parts that the second ClientHello must repeat.
    pub(crate) unchanged: [u8; TRUNCATED],
}

impl Retry {
    /// Checks that the second ClientHello repeats the first, except where RFC 8446 §4.1.2 allows changes.
    pub(crate) fn check(&self, provider: &CryptoProvider, second: &ClientHello) -> Result<(), Error> {
        match unchanged(provider, second) == self.unchanged {
            true => Ok(()),
            false => Err(PeerMisbehaved::IllegalParameter(What::ClientHelloAfterRetry).into()),
        }
    }

    /// Writes the cookie, authenticated by an HMAC. Its content needs no encryption, since none of it is secret.
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

    /// Reads a cookie. Rejects a cookie that this server did not write, or that is too old.
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
    let key = config.profile.provider.sha256.hmac(&**config.cookie_key);
    let tag = key.sign(&[cookie, config.settings.as_bytes(), config.profile_settings.as_bytes()]);
    truncated(&tag)
}

fn truncated(hash: &HashOutput) -> [u8; TRUNCATED] {
    hash.as_ref().first_chunk().copied().unwrap_or_default()
}

/// The digest of the parts that a second ClientHello repeats: all but the extensions that RFC 8446 §4.1.2 lets change.
pub(crate) fn unchanged(provider: &CryptoProvider, hello: &ClientHello) -> [u8; TRUNCATED] {
    const CHANGING: [ExtensionType; 6] = [
        ExtensionType::KEY_SHARE,
        // It has no meaning without PSKs, of which the second ClientHello may have none.
        ExtensionType::TLS_CERT_WITH_EXTERN_PSK,
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
