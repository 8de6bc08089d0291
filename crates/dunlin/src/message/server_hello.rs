//! `ServerHello` and `HelloRetryRequest`, which share a format and differ in the random (RFC 8446 §4.1.3,
//! §4.1.4).

use alloc::vec::Vec;

use super::{decode, encode};
use crate::error::{Error, PeerMisbehaved};
use crate::extension::{Context, Extensions, ExtensionsWriter, rules};
use crate::protocol::Protocol;
use crate::wire::{CipherSuite, ExtensionType, Field, HandshakeType, ProtocolVersion};

/// SHA-256 of "HelloRetryRequest" (RFC 8446 §4.1.3).
pub(crate) const RETRY_RANDOM: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

pub(crate) struct ServerHello<'a> {
    pub(crate) legacy_version: ProtocolVersion,
    pub(crate) random: [u8; 32],
    pub(crate) session_id: &'a [u8],
    pub(crate) cipher_suite: CipherSuite,
    pub(crate) extensions: Extensions<'a>,
}

impl<'a> ServerHello<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Error> {
        decode(body, HandshakeType::SERVER_HELLO, |r| {
            let legacy_version = ProtocolVersion(r.u16()?);
            let random: [u8; 32] = r.array()?;
            let session_id = r.vec8(0)?;
            if session_id.len() > 32 {
                return Err(r.bad_length().into());
            }
            let cipher_suite = CipherSuite(r.u16()?);
            // RFC 8446 §4.1.3: legacy_compression_method "MUST have the value 0".
            if r.u8()? != 0 {
                return Err(PeerMisbehaved::IllegalParameter(Field::LegacyCompressionMethod).into());
            }
            // RFC 5246 §7.4.1.3: a TLS 1.2 ServerHello may have no extensions at all.
            let extensions = if r.is_empty() { &[] } else { r.vec16(0)? };
            // RFC 8446 §4.2.1: supported_versions marks a ServerHello of TLS 1.3.
            let is_13 = Extensions::contains(extensions, ExtensionType::SUPPORTED_VERSIONS);
            let is_retry = random == RETRY_RANDOM;
            let rules = match is_retry {
                true => const { &rules(Context::HelloRetryRequest) },
                false if is_13 => const { &rules(Context::ServerHello) },
                false => const { &rules(Context::Tls12ServerHello) },
            };
            let extensions = Extensions::parse(extensions, rules).map_err(|e| match e {
                // RFC 5246 §7.4.1.4: a TLS 1.2 server must not answer what the client did not offer for TLS
                // 1.2 (unsupported_extension). An offer of this extension was for TLS 1.3 only.
                Error::PeerMisbehaved(PeerMisbehaved::MisplacedExtension(typ)) if !is_13 && !is_retry => {
                    PeerMisbehaved::UnsolicitedExtension(typ).into()
                }
                e => e,
            })?;
            Ok(Self { legacy_version, random, session_id, cipher_suite, extensions })
        })
    }

    pub(crate) fn is_retry(&self) -> bool {
        self.random == RETRY_RANDOM
    }

    pub(crate) fn write(
        protocol: Protocol,
        random: &[u8; 32],
        session_id: &[u8],
        cipher_suite: CipherSuite,
        extensions: &ExtensionsWriter,
    ) -> Result<Vec<u8>, Error> {
        encode(HandshakeType::SERVER_HELLO, |w| {
            w.u16(protocol.legacy_version().0);
            w.put(random);
            w.vec8(|w| w.put(session_id));
            w.u16(cipher_suite.0);
            w.u8(0);
            extensions.write(w);
        })
    }
}
