//! The cookies of HelloRetryRequest (RFC 8446 §4.1.4, §4.2.2) and HelloVerifyRequest (RFC 6347 §4.2.1), which let a server keep no
//! state, and the check that a second ClientHello repeats the first (RFC 8446 §4.1.2).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use subtle::ConstantTimeEq;

use crate::crypto::{CryptoProvider, HashContext, HashOutput};
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

    /// Writes the cookie for a client at `peer`, authenticated by an HMAC. Its content needs no encryption, since none of it is
    /// secret.
    pub(crate) fn to_cookie(
        &self,
        config: &ServerConfig,
        now: Now,
        peer: Option<SocketAddr>,
    ) -> Result<Vec<u8>, Error> {
        let mut w = Writer::new();
        w.u32(seconds(now));
        w.u16(self.cipher_suite.0);
        w.u16(self.group.map_or(0, |g| g.0));
        w.put(&self.unchanged);
        w.put(self.hello_hash.as_ref());
        let mut cookie = w.finish()?;
        let tag = tag(config, config.cookie_keys.current(), RETRY, peer, &cookie);
        cookie.extend_from_slice(&tag);
        Ok(cookie)
    }

    /// Reads a cookie. Rejects a cookie that this server did not write for this address, or that is too old.
    pub(crate) fn from_cookie(
        config: &ServerConfig,
        now: Now,
        peer: Option<SocketAddr>,
        cookie: &[u8],
    ) -> Result<Self, Error> {
        let bad = || Error::from(PeerMisbehaved::IllegalParameter(What::Extension(ExtensionType::COOKIE)));
        let (body, received) =
            cookie.len().checked_sub(TRUNCATED).and_then(|n| cookie.split_at_checked(n)).ok_or_else(bad)?;
        if !is_authentic(config, RETRY, peer, body, received) {
            return Err(bad());
        }
        let mut r = Reader::new(body, What::Extension(ExtensionType::COOKIE));
        if !is_recent(now, r.u32()?) {
            return Err(bad());
        }
        let cipher_suite = CipherSuite(r.u16()?);
        let group = Some(NamedGroup(r.u16()?)).filter(|g| g.0 != 0);
        Ok(Self { cipher_suite, group, unchanged: r.array()?, hello_hash: HashOutput::new(r.rest()) })
    }
}

/// The kinds of cookies. No cookie of one message is one of the other.
const RETRY: u8 = 0;
const VERIFY: u8 = 1;

/// The cookie of a HelloVerifyRequest for a client at `peer`: the time, and an HMAC over it, the address, and the parts that the
/// second ClientHello repeats.
pub(crate) fn verify_cookie(
    config: &ServerConfig,
    now: Now,
    peer: Option<SocketAddr>,
    hello: &ClientHello,
) -> Vec<u8> {
    let time = seconds(now).to_be_bytes();
    let content = [&time[..], &repeated(&config.profile.provider, hello)].concat();
    let tag = tag(config, config.cookie_keys.current(), VERIFY, peer, &content);
    [&time[..], &tag].concat()
}

/// Whether a ClientHello has a cookie that this server wrote for this client and this address a short time ago.
pub(crate) fn is_verified(
    config: &ServerConfig,
    now: Now,
    peer: Option<SocketAddr>,
    hello: &ClientHello,
) -> bool {
    let Some((time, received)) = hello.legacy_cookie().split_first_chunk() else { return false };
    let content = [&time[..], &repeated(&config.profile.provider, hello)].concat();
    is_authentic(config, VERIFY, peer, &content, received) && is_recent(now, u32::from_be_bytes(*time))
}

fn seconds(now: Now) -> u32 {
    (now.unix_ms / 1000) as u32
}

fn is_recent(now: Now, written: u32) -> bool {
    let age = seconds(now).wrapping_sub(written) as i32;
    (-CLOCK_SKEW..=COOKIE_LIFETIME).contains(&age)
}

/// Whether one of the server's keys made the tag.
fn is_authentic(
    config: &ServerConfig,
    kind: u8,
    peer: Option<SocketAddr>,
    content: &[u8],
    received: &[u8],
) -> bool {
    config.cookie_keys.iter().any(|key| bool::from(tag(config, key, kind, peer, content).ct_eq(received)))
}

fn tag(
    config: &ServerConfig,
    key: &[u8],
    kind: u8,
    peer: Option<SocketAddr>,
    content: &[u8],
) -> [u8; TRUNCATED] {
    let (ip, port) = peer.map_or(([0; 16], 0), |peer| {
        let ip = match peer.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        (ip.octets(), peer.port())
    });
    let key = config.profile.provider.sha256.hmac(key);
    // The address and the settings have fixed lengths.
    let (settings, profile) = (config.settings.as_bytes(), config.profile_settings.as_bytes());
    truncated(&key.sign(&[&[kind], &ip, &port.to_be_bytes(), settings, profile, content]))
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
    let mut hash = fields(provider, hello);
    for (typ, body) in hello.extensions().iter().filter(|(t, _)| !CHANGING.contains(t)) {
        hash.update(&typ.0.to_be_bytes());
        hash.update(&(body.len() as u16).to_be_bytes());
        hash.update(body);
    }
    truncated(&hash.current())
}

/// The digest of the parts that a ClientHello repeats after a HelloVerifyRequest: "version, random, session_id, cipher_suites,
/// compression_method" (RFC 6347 §4.2.1).
fn repeated(provider: &CryptoProvider, hello: &ClientHello) -> [u8; TRUNCATED] {
    let mut hash = fields(provider, hello);
    hash.update(hello.compression_methods());
    truncated(&hash.current())
}

fn fields(provider: &CryptoProvider, hello: &ClientHello) -> Box<dyn HashContext> {
    let mut hash = provider.sha256.start();
    hash.update(&hello.legacy_version.0.to_be_bytes());
    hash.update(&hello.random);
    hash.update(&[hello.session_id().len() as u8]);
    hash.update(hello.session_id());
    hash.update(&(hello.cipher_suites.len() as u16).to_be_bytes());
    for suite in &hello.cipher_suites {
        hash.update(&suite.0.to_be_bytes());
    }
    hash
}
