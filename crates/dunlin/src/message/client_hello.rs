//! `ClientHello` (RFC 8446 §4.1.2, RFC 9147 §5.3).

use alloc::vec::Vec;
use core::ops::Range;

use super::{Message, decode, encode};
use crate::error::{Error, Malformed, PeerIncompatible};
use crate::extension::{Context, ExtensionTable, Extensions, ExtensionsWriter, rules};
use crate::protocol::Protocol;
use crate::wire::{CipherSuite, Field, HandshakeType, ProtocolVersion, Reader};

/// A parsed ClientHello. It owns the message and keeps the positions of its fields, so that the server parses
/// it once.
pub(crate) struct ClientHello {
    message: Message,
    pub(crate) legacy_version: ProtocolVersion,
    pub(crate) random: [u8; 32],
    pub(crate) cipher_suites: Vec<CipherSuite>,
    session_id: Range<usize>,
    legacy_cookie: Range<usize>,
    compression_methods: Range<usize>,
    extensions: Range<usize>,
    table: ExtensionTable,
}

impl ClientHello {
    pub(crate) fn read(message: Message, protocol: Protocol) -> Result<Self, Error> {
        let body = message.body();
        // The field that was just read ends where the unread rest begins.
        let last = |r: &Reader<'_>, len: usize| body.len() - r.len() - len..body.len() - r.len();
        let (legacy_version, random, fields, cipher_suites, table) =
            decode(body, HandshakeType::CLIENT_HELLO, |r| {
                let legacy_version = ProtocolVersion(r.u16()?);
                let random = r.array()?;
                let len = r.vec8(0)?.len();
                if len > 32 {
                    return Err(Malformed::Length(Field::LegacySessionId).into());
                }
                let session_id = last(r, len);
                let len = if protocol.has_legacy_cookie() { r.vec8(0)?.len() } else { 0 };
                let legacy_cookie = last(r, len);
                let suites = r.vec16(2)?;
                let cipher_suites = Reader::items(suites, Field::CipherSuites, |r| r.u16().map(CipherSuite))?;
                let len = r.vec8(1)?.len();
                let compression_methods = last(r, len);
                // RFC 5246 §7.4.1.2: a ClientHello of earlier versions may have no extensions at all.
                let extensions = if r.is_empty() { &[] } else { r.vec16(0)? };
                let table = ExtensionTable::read(extensions, const { &rules(Context::ClientHello) })?;
                let fields = [session_id, legacy_cookie, compression_methods, last(r, extensions.len())];
                Ok::<_, Error>((legacy_version, random, fields, cipher_suites, table))
            })?;
        // RFC 8446 §D.5: the server rejects a legacy_version of SSL 3.0 or older, whichever versions the
        // client offers.
        if protocol.descends_from_ssl() && legacy_version.0 <= 0x0300 {
            return Err(PeerIncompatible::Version(Some(legacy_version)).into());
        }
        let [session_id, legacy_cookie, compression_methods, extensions] = fields;
        Ok(Self {
            legacy_version,
            random,
            cipher_suites,
            session_id,
            legacy_cookie,
            compression_methods,
            extensions,
            table,
            message,
        })
    }

    /// The message as received.
    pub(crate) const fn message(&self) -> &Message {
        &self.message
    }

    pub(crate) fn session_id(&self) -> &[u8] {
        self.field(&self.session_id)
    }

    /// The session ID that the server echoes (RFC 8446 §4.1.3). Over datagrams it is empty (RFC 9147 §5.3).
    pub(crate) fn session_id_echo(&self, protocol: Protocol) -> &[u8] {
        if protocol.has_compatibility_mode() { self.session_id() } else { &[] }
    }

    pub(crate) fn legacy_cookie(&self) -> &[u8] {
        self.field(&self.legacy_cookie)
    }

    pub(crate) fn compression_methods(&self) -> &[u8] {
        self.field(&self.compression_methods)
    }

    pub(crate) fn extensions(&self) -> Extensions<'_> {
        self.table.of(self.field(&self.extensions))
    }

    fn field(&self, at: &Range<usize>) -> &[u8] {
        self.message.body().get(at.clone()).unwrap_or_default()
    }

    pub(crate) fn write(
        protocol: Protocol,
        random: &[u8; 32],
        session_id: &[u8],
        legacy_cookie: &[u8],
        cipher_suites: &[CipherSuite],
        extensions: &ExtensionsWriter,
    ) -> Result<Vec<u8>, Error> {
        encode(HandshakeType::CLIENT_HELLO, |w| {
            w.u16(protocol.legacy_version().0);
            w.put(random);
            w.vec8(|w| w.put(session_id));
            if protocol.has_legacy_cookie() {
                w.vec8(|w| w.put(legacy_cookie));
            }
            w.vec16(|w| cipher_suites.iter().for_each(|s| w.u16(s.0)));
            w.vec8(|w| w.u8(0));
            extensions.write(w);
        })
    }
}
