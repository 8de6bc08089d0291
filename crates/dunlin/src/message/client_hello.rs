//! `ClientHello` (RFC 8446 §4.1.2, RFC 9147 §5.3).

use alloc::vec::Vec;

use super::{decode, encode};
use crate::error::{Error, Malformed};
use crate::extension::{Context, Extensions, ExtensionsWriter, rules};
use crate::protocol::Protocol;
use crate::wire::{CipherSuite, HandshakeType, ProtocolVersion, Reader};

pub(crate) struct ClientHello<'a> {
    pub(crate) legacy_version: ProtocolVersion,
    pub(crate) random: [u8; 32],
    pub(crate) session_id: &'a [u8],
    pub(crate) legacy_cookie: &'a [u8],
    pub(crate) cipher_suites: Vec<CipherSuite>,
    pub(crate) compression_methods: &'a [u8],
    pub(crate) extensions: Extensions<'a>,
}

impl<'a> ClientHello<'a> {
    pub(crate) fn read(body: &'a [u8], protocol: Protocol) -> Result<Self, Error> {
        decode(body, "ClientHello", |r| {
            let legacy_version = ProtocolVersion(r.u16()?);
            let random = r.array()?;
            let session_id = r.vec8(0)?;
            if session_id.len() > 32 {
                return Err(Malformed::Length("legacy_session_id").into());
            }
            let legacy_cookie = if protocol.has_legacy_cookie() { r.vec8(0)? } else { &[] };
            let suites = r.vec16(2)?;
            let cipher_suites = Reader::items(suites, "cipher_suites", |r| r.u16().map(CipherSuite))?;
            let compression_methods = r.vec8(1)?;
            // Before TLS 1.3 a hello could end here.
            let extensions = match r.is_empty() {
                true => Extensions::default(),
                false => Extensions::read(r, const { &rules(Context::ClientHello) })?,
            };
            Ok(Self {
                legacy_version,
                random,
                session_id,
                legacy_cookie,
                cipher_suites,
                compression_methods,
                extensions,
            })
        })
    }

    pub(crate) fn write(
        protocol: Protocol,
        random: &[u8; 32],
        session_id: &[u8],
        cipher_suites: &[CipherSuite],
        extensions: &ExtensionsWriter,
    ) -> Result<Vec<u8>, Error> {
        encode(HandshakeType::CLIENT_HELLO, |w| {
            w.u16(protocol.legacy_version().0);
            w.put(random);
            w.vec8(|w| w.put(session_id));
            if protocol.has_legacy_cookie() {
                w.u8(0);
            }
            w.vec16(|w| cipher_suites.iter().for_each(|s| w.u16(s.0)));
            w.vec8(|w| w.u8(0));
            extensions.write(w);
        })
    }
}
