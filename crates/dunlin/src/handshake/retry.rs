//! The cookies of HelloRetryRequest (RFC 8446 §4.1.4, §4.2.2) and HelloVerifyRequest (RFC 6347 §4.2.1), which
//! let a server keep no state, and the check that a second ClientHello repeats the first (RFC 8446 §4.1.2).

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use subtle::ConstantTimeEq;

use crate::crypto::{CryptoProvider, HashContext, HashOutput};
use crate::error::{Error, PeerMisbehaved};
use crate::handshake::setup::ServerConfig;
use crate::message::ClientHello;
use crate::time::Now;
use crate::wire::{CipherSuite, ExtensionType, Field, NamedGroup, Reader, Writer};

/// The greatest age of a cookie, in seconds: one round trip over the slowest link, with retransmissions.
const COOKIE_LIFETIME: u32 = 120;
/// The greatest difference between the clocks of servers that share a cookie key, in seconds.
const CLOCK_SKEW: u32 = 5;
/// The length to which a cookie truncates digests and its tag, in bytes.
const TRUNCATED: usize = 16;

/// The state after the first ClientHello, as the server has it when the second arrives.
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
        if unchanged(provider, second) == self.unchanged {
            Ok(())
        } else {
            Err(PeerMisbehaved::IllegalParameter(Field::ClientHelloAfterRetry).into())
        }
    }

    /// Writes the cookie for a client at `peer`, authenticated by an HMAC. The HMAC covers also what the
    /// server will find in the second ClientHello or knows itself. The content needs no encryption, since
    /// none of it is secret.
    pub(crate) fn to_cookie(
        &self,
        config: &ServerConfig,
        now: Now,
        peer: Option<SocketAddr>,
    ) -> Result<Vec<u8>, Error> {
        let mut w = Writer::new();
        w.reserve(5 + self.hello_hash.as_ref().len() + TRUNCATED);
        let time = seconds(now);
        w.u8(time as u8);
        w.u16(self.cipher_suite.0);
        w.u16(self.group.map_or(0, |g| g.0));
        w.put(self.hello_hash.as_ref());
        let mut cookie = w.finish()?;
        let content = [&time.to_be_bytes()[..], &self.unchanged, &cookie].concat();
        let tag = tag(config, config.cookie_keys.current(), RETRY, peer, &content);
        cookie.extend_from_slice(&tag);
        Ok(cookie)
    }

    /// Reads the cookie of the ClientHello `second`. Rejects a cookie that this server did not write for this
    /// client and this address, or that is too old.
    pub(crate) fn from_cookie(
        config: &ServerConfig,
        now: Now,
        peer: Option<SocketAddr>,
        cookie: &[u8],
        second: &ClientHello,
    ) -> Result<Self, Error> {
        let bad = || Error::from(PeerMisbehaved::IllegalParameter(Field::Extension(ExtensionType::COOKIE)));
        let (body, received) = parts(cookie).ok_or_else(bad)?;
        let mut r = Reader::new(body, Field::Extension(ExtensionType::COOKIE));
        let time = written(now, r.u8()?).ok_or_else(bad)?;
        let unchanged = unchanged(&config.profile.provider, second);
        let content = [&time.to_be_bytes()[..], &unchanged, body].concat();
        if !is_authentic(config, RETRY, peer, &content, received) {
            return Err(bad());
        }
        Self::read(&mut r, unchanged)
    }

    /// Reads a cookie without a check. Only the binder of a PSK can then prove that the client knows a
    /// secret.
    pub(crate) fn unverified(cookie: &[u8]) -> Option<Self> {
        let mut r = Reader::new(parts(cookie)?.0, Field::Extension(ExtensionType::COOKIE));
        r.u8().ok()?;
        Self::read(&mut r, [0; TRUNCATED]).ok()
    }

    /// Reads the request in a cookie, after its time.
    fn read(r: &mut Reader<'_>, unchanged: [u8; TRUNCATED]) -> Result<Self, Error> {
        let cipher_suite = CipherSuite(r.u16()?);
        let group = Some(NamedGroup(r.u16()?)).filter(|g| g.0 != 0);
        Ok(Self { cipher_suite, group, unchanged, hello_hash: HashOutput::new(r.rest()) })
    }
}

/// The content of a cookie, and its tag.
fn parts(cookie: &[u8]) -> Option<(&[u8], &[u8])> {
    cookie.split_at_checked(cookie.len().checked_sub(TRUNCATED)?)
}

/// The kinds of cookies. No cookie of one message is one of the other.
const RETRY: u8 = 0;
const VERIFY: u8 = 1;

/// The cookie of a HelloVerifyRequest for a client at `peer`: the low bits of the time, and an HMAC over the
/// time, the address, and the parts that the second ClientHello repeats.
pub(crate) fn verify_cookie(
    config: &ServerConfig,
    now: Now,
    peer: Option<SocketAddr>,
    hello: &ClientHello,
) -> Vec<u8> {
    let time = seconds(now).to_be_bytes();
    let content = [&time[..], &repeated(&config.profile.provider, hello)].concat();
    let tag = tag(config, config.cookie_keys.current(), VERIFY, peer, &content);
    [&[seconds(now) as u8][..], &tag].concat()
}

/// Whether a ClientHello has a cookie that this server wrote for this client and this address a short time
/// ago.
pub(crate) fn is_verified(
    config: &ServerConfig,
    now: Now,
    peer: Option<SocketAddr>,
    hello: &ClientHello,
) -> bool {
    let Some((low, received)) = hello.legacy_cookie().split_first() else { return false };
    let Some(time) = written(now, *low) else { return false };
    let content = [&time.to_be_bytes()[..], &repeated(&config.profile.provider, hello)].concat();
    is_authentic(config, VERIFY, peer, &content, received)
}

fn seconds(now: Now) -> u32 {
    now.unix_s() as u32
}

/// The time at which a server wrote a cookie. The cookie has the low 8 bits of it; `None` if the cookie is
/// too old. The HMAC covers all bits, so a cookie does not become valid again.
fn written(now: Now, low: u8) -> Option<u32> {
    const { assert!(COOKIE_LIFETIME + CLOCK_SKEW < 1 << 8) };
    let latest = seconds(now).wrapping_add(CLOCK_SKEW);
    let age = (latest as u8).wrapping_sub(low).into();
    (age <= COOKIE_LIFETIME + CLOCK_SKEW).then_some(latest.wrapping_sub(age))
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
    let settings = config.digests.trust.as_bytes();
    let profile = config.digests.profile.as_bytes();
    truncated(&key.sign(&[&[kind], &ip, &port.to_be_bytes(), settings, profile, content]))
}

fn truncated(hash: &HashOutput) -> [u8; TRUNCATED] {
    hash.as_ref().first_chunk().copied().unwrap_or_default()
}

/// The digest of the parts that a second ClientHello repeats: all but the extensions that RFC 8446 §4.1.2
/// lets change.
pub(crate) fn unchanged(provider: &CryptoProvider, hello: &ClientHello) -> [u8; TRUNCATED] {
    let mut hash = fields(provider, hello);
    for (typ, body) in repeated_extensions(hello) {
        hash.update(&typ.0.to_be_bytes());
        hash.update(&(body.len() as u16).to_be_bytes());
        hash.update(body);
    }
    truncated(&hash.current())
}

/// The extensions that a second ClientHello repeats, by number: wolfSSL's client changes their order, which
/// has no meaning (RFC 8446 §4.2).
fn repeated_extensions(hello: &ClientHello) -> Vec<(ExtensionType, &[u8])> {
    const CHANGING: [ExtensionType; 6] = [
        ExtensionType::KEY_SHARE,
        // It has no meaning without PSKs, of which the second ClientHello may have none.
        ExtensionType::TLS_CERT_WITH_EXTERN_PSK,
        ExtensionType::EARLY_DATA,
        ExtensionType::COOKIE,
        ExtensionType::PRE_SHARED_KEY,
        ExtensionType::PADDING,
    ];
    let mut repeated: Vec<_> = hello.extensions().iter().filter(|(t, _)| !CHANGING.contains(t)).collect();
    repeated.sort_unstable_by_key(|(typ, _)| typ.0);
    repeated
}

/// The digest of the parts that a ClientHello repeats after a HelloVerifyRequest: "version, random,
/// session_id, cipher_suites, compression_method" (RFC 6347 §4.2.1).
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;
    use crate::protocol::Protocol;
    use crate::wire::HandshakeType;

    fn hello(hex: &str) -> ClientHello {
        let digits: Vec<u8> = hex.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
        let bytes = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        ClientHello::read(Message::new(HandshakeType::CLIENT_HELLO, bytes), Protocol::Dtls13).unwrap()
    }

    /// The two ClientHellos of a DTLS 1.3 client of wolfSSL 5.9.4, which puts supported_versions elsewhere in
    /// the second one.
    #[test]
    fn the_extensions_of_a_second_hello_may_have_another_order() {
        let first = hello(
            "010000fcfefd1ea769f558ab9e674b837e569eaba7e7ab7f62ec7dd41194048adb1b07982cff000000021301010000d0002d \
         000302000100330047004500170041040f3f543909db0b558a5f41d566c618c57907675ce2a26e1131409e1181bb3f9d8284 \
         cca1c831e8d38f0497844e05c2f07b7634534c86440c7e4f8ed51c55d1aa002b000302fefc000d001a001806030503040308 \
         06080b0805080a08040809060105010401000a000c000a001900180017001d00150000000e000c0000096c6f63616c686f73 \
         7400290033000e00086465766963652d3100000000002120fe1ea4fa363a82e78d7a8a33ffa291a0e51343f29a3a75160749 \
         8c5ac3f11e48",
        );
        let second = hello(
            "0100014afefd1ea769f558ab9e674b837e569eaba7e7ab7f62ec7dd41194048adb1b07982cff0000000213010100011e002b \
         000302fefc002c004a00486b033ea7130100008d0102c7abe6b8b7e9bf283a5cd64b28ea4f6061744f83a2af96e9e6dbdfbb \
         57108c10f5f13d2e26517632727ceb34620d87502793b9ed7d4358a2fb2b363ddc002d000302000100330047004500170041 \
         040f3f543909db0b558a5f41d566c618c57907675ce2a26e1131409e1181bb3f9d8284cca1c831e8d38f0497844e05c2f07b \
         7634534c86440c7e4f8ed51c55d1aa000d001a00180603050304030806080b0805080a08040809060105010401000a000c00 \
         0a001900180017001d00150000000e000c0000096c6f63616c686f737400290033000e00086465766963652d310000000000 \
         21201d4a3b1e6dbac7491946ade144010dff293dd982e0b443c19db7dd309767d082",
        );
        assert_ne!(first.extensions().types().next(), second.extensions().types().next());
        let repeated = repeated_extensions(&first);
        assert_eq!(repeated.len(), 5);
        assert_eq!(repeated, repeated_extensions(&second));
    }
}
