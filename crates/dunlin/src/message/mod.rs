//! The handshake messages, one file each. Readers borrow from the received message; writers make a whole
//! message.

use alloc::vec::Vec;

use crate::error::{Error, Malformed, PeerMisbehaved};
use crate::wire::{Field, HandshakeType, Reader, Unit, Writer};

pub(crate) mod certificate;
pub(crate) mod certificate_request;
pub(crate) mod certificate_status;
pub(crate) mod certificate_verify;
pub(crate) mod client_hello;
pub(crate) mod client_key_exchange;
pub(crate) mod compressed_certificate;
pub(crate) mod connection_ids;
pub(crate) mod did;
pub(crate) mod encrypted_extensions;
pub(crate) mod hello_request;
pub(crate) mod hello_verify_request;
pub(crate) mod key_update;
pub(crate) mod new_session_ticket;
pub(crate) mod server_hello;
pub(crate) mod server_hello_done;
pub(crate) mod server_key_exchange;
pub(crate) mod ssi_request;
pub(crate) mod ssi_staple;
pub(crate) mod vc;

pub(crate) use certificate::{Certificate, MAX_VERIFIABLE_CREDENTIAL, Staples};
pub(crate) use certificate_request::{CertificateRequest, Tls12CertificateRequest};
pub(crate) use certificate_verify::CertificateVerify;
pub(crate) use client_hello::ClientHello;
pub(crate) use client_key_exchange::ClientKeyExchange;
pub(crate) use compressed_certificate::CompressedCertificate;
pub(crate) use did::{Did, MAX_IDENTIFIER};
pub(crate) use new_session_ticket::{NewSessionTicket, Tls12NewSessionTicket};
pub(crate) use server_hello::ServerHello;
pub(crate) use server_key_exchange::{ServerKeyExchange, ServerParams};
pub(crate) use ssi_request::SsiRequest;

/// The header of a handshake message: type and length (RFC 8446 §4).
pub(crate) const HEADER_LEN: usize = 4;

/// The largest message about certificates (chain, status or request), in bytes without its header. A chain
/// with post-quantum keys fits.
pub(crate) const MAX_CERTIFICATE: usize = 64 * 1024;
/// The largest ClientHello, in bytes: 2^16 bytes of extensions, and room for some 450 cipher suites. OpenSSL
/// accepts 131,396 bytes, room for 32,767 suites. BoringSSL accepts 16,384, or 102,400 if it asks for a
/// client certificate.
pub(crate) const MAX_CLIENT_HELLO: usize = 65 * 1024;
/// The largest NewSessionTicket, in bytes: a ticket and a nonce of any length, and small extensions.
pub(crate) const MAX_NEW_SESSION_TICKET: usize = 64 * 1024 + 512;
/// The largest VC, in bytes: a credential of the greatest length, an empty context, and the lengths of both.
pub(crate) const MAX_VC: usize = 1 + 2 + MAX_VERIFIABLE_CREDENTIAL;
/// The largest message of any other type, in bytes.
pub(crate) const MAX_OTHER: usize = 16 * 1024;

/// The largest body of a message of this type, in bytes.
pub(crate) const fn limit(typ: HandshakeType) -> usize {
    match typ {
        HandshakeType::CERTIFICATE
        | HandshakeType::COMPRESSED_CERTIFICATE
        | HandshakeType::CERTIFICATE_STATUS
        | HandshakeType::CERTIFICATE_REQUEST => MAX_CERTIFICATE,
        HandshakeType::CLIENT_HELLO => MAX_CLIENT_HELLO,
        HandshakeType::NEW_SESSION_TICKET => MAX_NEW_SESSION_TICKET,
        HandshakeType::VC => MAX_VC,
        _ => MAX_OTHER,
    }
}

/// Reads the type and the whole length, header included, from the first bytes of a message. `None` if the
/// header is incomplete.
pub(crate) fn announced(bytes: &[u8]) -> Result<Option<(HandshakeType, usize)>, Error> {
    let Some([typ, a, b, c]) = bytes.first_chunk::<HEADER_LEN>() else { return Ok(None) };
    let typ = HandshakeType(*typ);
    let len = u32::from_be_bytes([0, *a, *b, *c]) as usize;
    if len > limit(typ) { Err(too_long(typ).into()) } else { Ok(Some((typ, HEADER_LEN + len))) }
}

/// The error for a message above the limit for its type.
pub(crate) fn too_long(typ: HandshakeType) -> Malformed {
    above(typ, limit(typ))
}

/// The error for a message of this type with a body of more than `max` bytes.
pub(crate) fn above(typ: HandshakeType, max: usize) -> Malformed {
    Malformed::AboveLimit { what: Field::Message(typ), max, unit: Unit::Bytes }
}

/// The part that a state reads of the messages of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// It refuses them.
    Nothing,
    /// It answers them whatever their body says.
    Header,
    /// It reads bodies of up to this many bytes.
    Body(usize),
}

/// The error for a message that an established connection does not read.
pub(crate) fn unexpected_after_handshake(typ: HandshakeType) -> Error {
    PeerMisbehaved::UnexpectedMessage { got: typ, expected: Field::ApplicationData }.into()
}

/// A received message, whole: type, length and body.
#[derive(Clone)]
pub(crate) struct Message {
    pub(crate) typ: HandshakeType,
    /// Its number over datagrams (message_seq, RFC 9147 §5.2); 0 over a stream.
    pub(crate) number: u16,
    bytes: Vec<u8>,
}

impl Message {
    /// Takes over `bytes`, which [`announced`] has found to be one whole message of type `typ`.
    pub(crate) const fn new(typ: HandshakeType, bytes: Vec<u8>) -> Self {
        Self { typ, number: 0, bytes }
    }

    /// The same message with its number.
    pub(crate) fn with_number(self, number: u16) -> Self {
        Self { number, ..self }
    }

    /// The whole message with its header, as it enters the transcript of version 1.3 (RFC 9147 §5.2).
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn body(&self) -> &[u8] {
        self.bytes.get(HEADER_LEN..).unwrap_or_default()
    }

    /// The body, or an error if the message is not of the type that the state expects.
    pub(crate) fn expect(&self, typ: HandshakeType) -> Result<&[u8], Error> {
        if self.typ == typ { Ok(self.body()) } else { Err(self.unexpected(Field::Message(typ))) }
    }

    pub(crate) fn unexpected(&self, expected: Field) -> Error {
        PeerMisbehaved::UnexpectedMessage { got: self.typ, expected }.into()
    }
}

/// Writes a whole message.
pub(crate) fn encode(typ: HandshakeType, body: impl FnOnce(&mut Writer)) -> Result<Vec<u8>, Error> {
    /// Many messages are shorter.
    const ROOM: usize = 128;
    let mut w = Writer::new();
    w.reserve(ROOM);
    w.u8(typ.0);
    w.vec24(body);
    Ok(w.finish()?)
}

/// Writes `Finished` (RFC 8446 §4.4.4), which contains only verify_data.
pub(crate) fn finished(verify_data: &[u8]) -> Result<Vec<u8>, Error> {
    encode(HandshakeType::FINISHED, |w| w.put(verify_data))
}

/// Reads `opaque context<0..2^8-1>`, which is empty during the handshake (RFC 8446 §4.3.2).
pub(crate) fn empty_context(r: &mut Reader<'_>) -> Result<(), Error> {
    match r.vec8(0)? {
        [] => Ok(()),
        _ => Err(PeerMisbehaved::IllegalParameter(Field::CertificateRequestContext).into()),
    }
}

/// Reads a whole body and rejects trailing bytes.
pub(crate) fn decode<'a, T>(
    body: &'a [u8],
    typ: HandshakeType,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, Error>,
) -> Result<T, Error> {
    Reader::all(body, Field::Message(typ), read)
}
