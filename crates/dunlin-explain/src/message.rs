//! Dissects handshake messages field by field. Every byte of a message belongs to exactly one field.
//!
//! Only lengths are checked, so that messages show which a TLS stack would refuse. The engine's codec does
//! not serve here, because it refuses them.

use dunlin::wire::{
    CertificateCompressionAlgorithm, CertificateType, CipherSuite, DidMethod, ExtensionType, HandshakeType,
    KeyUpdateRequest, NamedGroup, ProtocolVersion, PskKeyExchangeMode, SignatureScheme,
};
use serde::Serialize;

use crate::names;

/// A field of a message. A list's length is the length of its items plus its length prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Field {
    /// The name in the RFC; for an extension, the name in IANA's registry.
    pub name: String,
    /// The size in bytes, including the field's own length prefix and an extension's type.
    pub bytes: usize,
    /// The value in words, if a short one exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The fields inside this one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<Self>,
}

impl Field {
    fn new(name: impl Into<String>, bytes: usize) -> Self {
        Self { name: name.into(), bytes, value: None, fields: Vec::new() }
    }
}

/// A field without fields inside.
pub(crate) fn field(name: &str, bytes: usize, value: Option<String>) -> Field {
    Field { value, ..Field::new(name, bytes) }
}

/// SHA-256 of "HelloRetryRequest", in the place of a ServerHello's random (RFC 8446 §4.1.3).
const RETRY_RANDOM: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

/// The value shown for a message that the handshake cache abbreviates.
const IN_CACHE: &str = "in the receiver's cache";

/// The most fields of a list, more than any honest message has. The rest of a longer list is not dissected.
const MAX_FIELDS: usize = 512;

/// The protocol variant, which decides the layout of messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Dialect {
    /// DTLS, where a ClientHello has a cookie.
    pub(crate) is_datagram: bool,
    /// TLS 1.3 or DTLS 1.3.
    pub(crate) is_13: bool,
}

/// The contents of a ServerHello that matter to the rest of the connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerHello {
    pub(crate) is_retry: bool,
    pub(crate) random: [u8; 32],
    pub(crate) version: ProtocolVersion,
    pub(crate) suite: CipherSuite,
}

impl ServerHello {
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        let mut w = Walk::new(body);
        let legacy = ProtocolVersion(w.number(2)? as u16);
        let random: [u8; 32] = w.take(32)?.try_into().ok()?;
        w.prefixed(1)?;
        let suite = CipherSuite(w.number(2)? as u16);
        w.take(1)?;
        let mut version = legacy;
        let mut extensions = Walk::new(w.prefixed(2).unwrap_or_default());
        while let (Some(typ), Some(body)) = (extensions.number(2), extensions.prefixed(2)) {
            if let (ExtensionType::SUPPORTED_VERSIONS, [a, b]) = (ExtensionType(typ as u16), body) {
                version = ProtocolVersion(u16::from_be_bytes([*a, *b]));
            }
        }
        Some(Self { is_retry: random == RETRY_RANDOM, random, version, suite })
    }
}

/// The random of a ClientHello, which identifies the connection in a key log.
pub(crate) fn client_random(body: &[u8]) -> Option<[u8; 32]> {
    body.get(2..34)?.try_into().ok()
}

/// The length of the connection ID in a ClientHello or ServerHello, in bytes: of the ID that the peer of the
/// sender puts into its records (RFC 9146 §3). `None` without the extension.
pub(crate) fn connection_id(typ: HandshakeType, body: &[u8], is_datagram: bool) -> Option<usize> {
    let mut w = Walk::new(body);
    w.take(34)?;
    w.prefixed(1)?;
    if typ == HandshakeType::SERVER_HELLO {
        w.take(3)?;
    } else {
        if is_datagram {
            w.prefixed(1)?;
        }
        w.prefixed(2)?;
        w.prefixed(1)?;
    }
    let mut extensions = Walk::new(w.prefixed(2)?);
    while let (Some(typ), Some(body)) = (extensions.number(2), extensions.prefixed(2)) {
        if ExtensionType(typ as u16) == ExtensionType::CONNECTION_ID {
            return Walk::new(body).prefixed(1).map(<[u8]>::len);
        }
    }
    None
}

/// The fields of a message, including its header of `header` bytes.
pub(crate) fn fields(typ: HandshakeType, header: usize, body: &[u8], dialect: Dialect) -> Vec<Field> {
    let mut w = Walk::new(body);
    w.fields.push(Field::new("header", header));
    let whole = w.message(typ, dialect);
    if whole.is_none() || !w.rest.is_empty() {
        let rest = w.rest.len();
        w.fields.push(Field::new("malformed", rest));
    }
    w.fields
}

/// A cursor that turns bytes into fields. Where too few bytes are left, every method returns `None` and takes
/// none.
struct Walk<'a> {
    rest: &'a [u8],
    fields: Vec<Field>,
}

impl<'a> Walk<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, fields: Vec::new() }
    }

    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(n)?;
        self.rest = tail;
        Some(head)
    }

    /// A number of `n` bytes.
    fn number(&mut self, n: usize) -> Option<usize> {
        Some(self.take(n)?.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)))
    }

    /// The bytes of a vector whose length prefix has `n` bytes.
    fn prefixed(&mut self, n: usize) -> Option<&'a [u8]> {
        let before = self.rest;
        let content = self.number(n).and_then(|len| self.take(len));
        if content.is_none() {
            self.rest = before;
        }
        content
    }

    /// A field of fixed length.
    fn fixed(&mut self, name: &str, n: usize) -> Option<(&'a [u8], &mut Field)> {
        let bytes = self.take(n)?;
        self.push(name, n).map(|field| (bytes, field))
    }

    /// A vector field whose length prefix has `n` bytes.
    fn vector(&mut self, name: &str, n: usize) -> Option<(&'a [u8], &mut Field)> {
        let bytes = self.prefixed(n)?;
        self.push(name, n + bytes.len()).map(|field| (bytes, field))
    }

    fn push(&mut self, name: impl Into<String>, bytes: usize) -> Option<&mut Field> {
        self.fields.push(Field::new(name, bytes));
        self.fields.last_mut()
    }

    /// A number field of one or two bytes; `of` gives its value in words.
    fn named(&mut self, name: &str, n: usize, of: impl Fn(u16) -> String) -> Option<()> {
        let (bytes, field) = self.fixed(name, n)?;
        field.value = Some(of(bytes.iter().fold(0, |number, byte| number << 8 | u16::from(*byte))));
        Some(())
    }

    fn message(&mut self, typ: HandshakeType, dialect: Dialect) -> Option<()> {
        match typ {
            HandshakeType::CLIENT_HELLO => self.client_hello(dialect),
            HandshakeType::SERVER_HELLO => self.server_hello(),
            // HelloVerifyRequest (RFC 6347 §4.2.1).
            HandshakeType(3) => {
                self.named("server_version", 2, version)?;
                self.vector("cookie", 1).map(drop)
            }
            HandshakeType::ENCRYPTED_EXTENSIONS => self.extensions(Carrier::Other),
            HandshakeType::NEW_SESSION_TICKET if dialect.is_13 => {
                let (bytes, field) = self.fixed("ticket_lifetime", 4)?;
                field.value = Some(format!("{} s", bytes.iter().fold(0, |n, b| n << 8 | u64::from(*b))));
                self.fixed("ticket_age_add", 4)?;
                self.vector("ticket_nonce", 1)?;
                self.vector("ticket", 2)?;
                self.extensions(Carrier::Other)
            }
            // RFC 5077 §3.3.
            HandshakeType::NEW_SESSION_TICKET => {
                self.fixed("ticket_lifetime_hint", 4)?;
                self.vector("ticket", 2).map(drop)
            }
            HandshakeType::CERTIFICATE if !dialect.is_13 && self.cached() => Some(()),
            HandshakeType::CERTIFICATE => self.certificate(dialect),
            // RFC 8879 §4.
            HandshakeType::COMPRESSED_CERTIFICATE => {
                self.named("algorithm", 2, |n| CertificateCompressionAlgorithm(n).to_string())?;
                self.fixed("uncompressed_length", 3)?;
                self.vector("compressed_certificate_message", 3).map(drop)
            }
            HandshakeType::CERTIFICATE_REQUEST | HandshakeType::SSI_REQUEST if dialect.is_13 => {
                self.vector("certificate_request_context", 1)?;
                self.extensions(Carrier::Other)
            }
            HandshakeType::CERTIFICATE_REQUEST if self.cached() => Some(()),
            // RFC 5246 §7.4.4.
            HandshakeType::CERTIFICATE_REQUEST => {
                self.vector("certificate_types", 1)?;
                let (list, field) = self.vector("supported_signature_algorithms", 2)?;
                field.value = Some(numbers(list, scheme));
                self.vector("certificate_authorities", 2).map(drop)
            }
            HandshakeType::CERTIFICATE_VERIFY | HandshakeType::DID_VERIFY => {
                self.named("algorithm", 2, scheme)?;
                self.vector("signature", 2).map(drop)
            }
            HandshakeType::VC => {
                self.vector("certificate_request_context", 1)?;
                self.vector("vc", 2).map(drop)
            }
            HandshakeType::DID => {
                self.vector("certificate_request_context", 1)?;
                self.named("did_method", 1, |n| DidMethod::from_byte(n as u8).to_string())?;
                let (did, field) = self.vector("did", 2)?;
                field.value = Some(text(did));
                Some(())
            }
            HandshakeType::FINISHED => {
                let n = self.rest.len();
                self.fixed("verify_data", n).map(drop)
            }
            // RFC 9147 §9.
            HandshakeType::NEW_CONNECTION_ID => {
                let (list, field) = self.vector("cids", 2)?;
                let mut inner = Walk::new(list);
                while !inner.rest.is_empty() && inner.fields.len() < MAX_FIELDS {
                    let Some((id, field)) = inner.vector("cid", 1) else { break };
                    field.value = Some(hex(id));
                }
                field.fields = inner.finish();
                self.named("usage", 1, |n| match n {
                    0 => "cid_immediate".to_owned(),
                    1 => "cid_spare".to_owned(),
                    n => n.to_string(),
                })
            }
            HandshakeType::REQUEST_CONNECTION_ID => self.named("num_cids", 1, |n| n.to_string()),
            HandshakeType::KEY_UPDATE => {
                self.named("request_update", 1, |n| KeyUpdateRequest(n as u8).to_string())
            }
            _ => {
                let n = self.rest.len();
                if n > 0 {
                    self.fixed("body", n)?;
                }
                Some(())
            }
        }
    }

    fn client_hello(&mut self, dialect: Dialect) -> Option<()> {
        self.named("legacy_version", 2, version)?;
        self.fixed("random", 32)?;
        self.vector("legacy_session_id", 1)?;
        if dialect.is_datagram {
            self.vector("legacy_cookie", 1)?;
        }
        let (list, field) = self.vector("cipher_suites", 2)?;
        field.value = Some(numbers(list, |n| names::cipher_suite(CipherSuite(n))));
        self.vector("legacy_compression_methods", 1)?;
        // A TLS 1.2 ClientHello may have no extensions (RFC 5246 §7.4.1.2).
        if self.rest.is_empty() { Some(()) } else { self.extensions(Carrier::ClientHello) }
    }

    fn server_hello(&mut self) -> Option<()> {
        self.named("legacy_version", 2, version)?;
        let (random, _) = self.fixed("random", 32)?;
        let place = if *random == RETRY_RANDOM { Carrier::HelloRetryRequest } else { Carrier::ServerHello };
        self.vector("legacy_session_id_echo", 1)?;
        self.named("cipher_suite", 2, |n| names::cipher_suite(CipherSuite(n)))?;
        self.fixed("legacy_compression_method", 1)?;
        if self.rest.is_empty() { Some(()) } else { self.extensions(place) }
    }

    /// Whether this TLS 1.2 message is abbreviated because the receiver has it in its cache. Then it is empty
    /// (docs/handshake-cache.md §3) or a hash (RFC 7924 §4).
    fn cached(&mut self) -> bool {
        match self.rest {
            // An empty field carries the explanation.
            [] => {
                let field = self.push("body", 0);
                field.map(|field| field.value = Some(IN_CACHE.to_owned())).is_some()
            }
            [32, hash @ ..] if hash.len() == 32 => self.vector("hash_value", 1).is_some(),
            _ => false,
        }
    }

    /// The entries have extensions in TLS 1.3 (RFC 8446 §4.4.2); before, they are certificates only.
    fn certificate(&mut self, dialect: Dialect) -> Option<()> {
        if dialect.is_13 {
            self.vector("certificate_request_context", 1)?;
        }
        let (list, field) = self.vector("certificate_list", 3)?;
        let mut inner = Walk::new(list);
        while !inner.rest.is_empty() && inner.fields.len() < MAX_FIELDS {
            let entry = inner.rest.len();
            let whole = inner.prefixed(3).and_then(|_| {
                let certificate = entry - inner.rest.len();
                let field = inner.push("certificate", certificate)?;
                // docs/handshake-cache.md §3.
                field.value = (certificate == 3).then(|| IN_CACHE.to_owned());
                if dialect.is_13 { inner.extensions(Carrier::Other) } else { Some(()) }
            });
            if whole.is_none() {
                break;
            }
        }
        field.fields = inner.finish();
        Some(())
    }

    /// `Extension extensions<0..2^16-1>`.
    fn extensions(&mut self, place: Carrier) -> Option<()> {
        let (list, field) = self.vector("extensions", 2)?;
        let mut inner = Walk::new(list);
        while !inner.rest.is_empty() && inner.fields.len() < MAX_FIELDS {
            let before = inner.rest;
            let (Some(typ), Some(body)) = (inner.number(2), inner.prefixed(2)) else {
                inner.rest = before;
                break;
            };
            let typ = ExtensionType(typ as u16);
            if let Some(field) = inner.push(names::extension(typ), 4 + body.len()) {
                field.value = extension(typ, place, body).filter(|value| !value.is_empty());
            }
        }
        field.fields = inner.finish();
        Some(())
    }

    /// The fields, and one more for bytes that are left over.
    fn finish(mut self) -> Vec<Field> {
        if !self.rest.is_empty() {
            self.fields.push(Field::new("malformed", self.rest.len()));
        }
        self.fields
    }
}

/// The messages that give some extensions a different form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carrier {
    ClientHello,
    ServerHello,
    HelloRetryRequest,
    Other,
}

/// The value of an extension in words, if a short one exists.
fn extension(typ: ExtensionType, place: Carrier, body: &[u8]) -> Option<String> {
    use ExtensionType as E;
    let mut w = Walk::new(body);
    let one = |of: fn(u16) -> String| match body {
        [a] => Some(of((*a).into())),
        [a, b] => Some(of(u16::from_be_bytes([*a, *b]))),
        _ => None,
    };
    let certificate_type = |n: u16| CertificateType(n as u8).to_string();
    match (typ, place) {
        (E::SUPPORTED_VERSIONS, Carrier::ClientHello) => Some(numbers(w.prefixed(1)?, version)),
        (E::SUPPORTED_VERSIONS, _) => one(version),
        (E::SUPPORTED_GROUPS, _) => Some(numbers(w.prefixed(2)?, group)),
        (E::SIGNATURE_ALGORITHMS | E::SIGNATURE_ALGORITHMS_CERT, _) => Some(numbers(w.prefixed(2)?, scheme)),
        (E::KEY_SHARE, Carrier::ClientHello) => {
            let mut shares = Walk::new(w.prefixed(2)?);
            let mut all = Vec::new();
            while let (Some(number), Some(share)) = (shares.number(2), shares.prefixed(2)) {
                all.push(format!("{} ({} bytes)", group(number as u16), share.len()));
            }
            Some(all.join(", "))
        }
        (E::KEY_SHARE, Carrier::HelloRetryRequest) => one(group),
        (E::KEY_SHARE, _) => {
            let number = w.number(2)?;
            Some(format!("{} ({} bytes)", group(number as u16), w.prefixed(2)?.len()))
        }
        (E::SERVER_NAME, Carrier::ClientHello) => {
            let mut names = Walk::new(w.prefixed(2)?);
            names.take(1)?;
            Some(text(names.prefixed(2)?))
        }
        (E::APPLICATION_LAYER_PROTOCOL_NEGOTIATION, _) => {
            let mut protocols = Walk::new(w.prefixed(2)?);
            let mut all = Vec::new();
            while let Some(protocol) = protocols.prefixed(1) {
                all.push(text(protocol));
            }
            Some(all.join(", "))
        }
        (E::PSK_KEY_EXCHANGE_MODES, _) => {
            Some(list(w.prefixed(1)?, 1, |n| PskKeyExchangeMode(n as u8).to_string()))
        }
        (E::PRE_SHARED_KEY, Carrier::ClientHello) => {
            let mut identities = Walk::new(w.prefixed(2)?);
            let mut all = Vec::new();
            while let (Some(identity), Some(_age)) = (identities.prefixed(2), identities.take(4)) {
                all.push(format!("identity of {} bytes", identity.len()));
            }
            Some(all.join(", "))
        }
        (E::PRE_SHARED_KEY, _) => one(|n| format!("identity {n}")),
        (E::COMPRESS_CERTIFICATE, _) => {
            Some(numbers(w.prefixed(1)?, |n| CertificateCompressionAlgorithm(n).to_string()))
        }
        (E::RECORD_SIZE_LIMIT, _) => one(|n| n.to_string()),
        (E::CLIENT_CERTIFICATE_TYPE | E::SERVER_CERTIFICATE_TYPE, Carrier::ClientHello) => {
            Some(list(w.prefixed(1)?, 1, certificate_type))
        }
        (E::CLIENT_CERTIFICATE_TYPE | E::SERVER_CERTIFICATE_TYPE, _) => {
            one(|n| CertificateType(n as u8).to_string())
        }
        (E::CONNECTION_ID, _) => match w.prefixed(1)? {
            [] => Some("none to be received".to_owned()),
            id => Some(hex(id)),
        },
        (E::CACHED_INFO, Carrier::ClientHello) => cached_objects(w.prefixed(2)?),
        (E::CACHED_INFO, _) => Some(list(w.prefixed(2)?, 1, cached_type)),
        (E::HANDSHAKE_CACHE, Carrier::ClientHello) => cache_offer(&mut w),
        (E::HANDSHAKE_CACHE, _) => cache_answer(body),
        (E::ASSOCIATION_PORT, Carrier::ClientHello) => one(port_modes),
        (E::ASSOCIATION_PORT, _) => port_answer(body),
        (E::DID_METHODS, _) => Some(numbers(w.prefixed(2)?, |n| DidMethod(n).to_string())),
        (E::SSI_PARAMETERS, _) => ssi_parameters(&mut w),
        _ => None,
    }
}

/// The identity for which the sender of ssi_parameters asks, and the methods that it resolves
/// (docs/identity.md).
fn ssi_parameters(w: &mut Walk<'_>) -> Option<String> {
    let asks_for = match w.number(1)? {
        0 => "X.509".to_owned(),
        1 => "DID".to_owned(),
        2 => "VC".to_owned(),
        n => format!("unknown mode {n}"),
    };
    let methods = list(w.prefixed(1)?, 1, |n| DidMethod::from_byte(n as u8).to_string());
    Some(if methods.is_empty() { asks_for } else { format!("{asks_for}: {methods}") })
}

/// The ways to another port that the bits of association_port stand for (docs/association-ports.md).
fn port_modes(bits: u16) -> String {
    let modes = [(1, "IPC"), (2, "TCS")].into_iter().filter(|(bit, _)| bits & bit != 0);
    let modes: Vec<_> = modes.map(|(_, mode)| mode).collect();
    if modes.is_empty() { format!("unknown modes {bits:#04x}") } else { modes.join(", ") }
}

/// The answer to an offer of association_port.
fn port_answer(body: &[u8]) -> Option<String> {
    match *body {
        [1, 0, 0] => Some("IPC".to_owned()),
        [2, a, b] => Some(format!("TCS, port {}", u16::from_be_bytes([a, b]))),
        _ => None,
    }
}

/// The server's messages that the flags of handshake_cache stand for (docs/handshake-cache.md §3).
fn cached_messages(flags: u8) -> Vec<&'static str> {
    let messages = [(1, "server's Certificate"), (2, "CertificateRequest")].into_iter();
    messages.filter(|(flag, _)| flags & flag != 0).map(|(_, message)| message).collect()
}

/// The server's message that a type of cached_info stands for (RFC 7924 §3).
fn cached_type(typ: u16) -> String {
    match typ {
        1 => "server's Certificate".to_owned(),
        2 => "CertificateRequest".to_owned(),
        typ => format!("type {typ}"),
    }
}

/// The objects in the client's cache, each with the first bytes of its hash (RFC 7924 §3).
fn cached_objects(objects: &[u8]) -> Option<String> {
    let mut objects = Walk::new(objects);
    let mut all = Vec::new();
    while !objects.rest.is_empty() && all.len() < MAX_FIELDS {
        let typ = objects.number(1)?;
        let hash = objects.prefixed(1)?;
        let more = if hash.len() > 8 { "…" } else { "" };
        all.push(format!("{} {}{more}", cached_type(typ as u16), hex(hash.get(..8).unwrap_or(hash))));
    }
    Some(all.join(", "))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The client's offer: messages in its cache, and tickets.
fn cache_offer(w: &mut Walk<'_>) -> Option<String> {
    let Some(flags) = w.number(1) else { return Some("supported".into()) };
    let mut all: Vec<_> = cached_messages(flags as u8).into_iter().map(str::to_owned).collect();
    w.take(8 * all.len())?;
    let tickets = w.rest.chunks_exact(8);
    all.extend(tickets.map(|ticket| format!("ticket {}", hex(ticket))));
    Some(all.join(", "))
}

/// The server's answer: the part of the offer that it uses.
fn cache_answer(body: &[u8]) -> Option<String> {
    let [flags, index] = body else { return body.is_empty().then(|| "supported".into()) };
    let mut all: Vec<_> = cached_messages(*flags).into_iter().map(str::to_owned).collect();
    if *index != 0xff {
        all.push(format!("ticket {index}"));
    }
    Some(all.join(", "))
}

fn version(number: u16) -> String {
    match number {
        0x0300 => "SSLv3".into(),
        _ => ProtocolVersion(number).to_string(),
    }
}

fn group(number: u16) -> String {
    names::group(NamedGroup(number))
}

fn scheme(number: u16) -> String {
    names::signature_scheme(SignatureScheme(number))
}

fn numbers(bytes: &[u8], of: impl Fn(u16) -> String) -> String {
    list(bytes, 2, of)
}

/// The names of numbers of `n` bytes each.
fn list(bytes: &[u8], n: usize, of: impl Fn(u16) -> String) -> String {
    // More than any stack offers, or a person reads.
    const SHOWN: usize = 128;
    let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u16::from(*byte));
    let mut all: Vec<_> = bytes.chunks_exact(n).take(SHOWN).map(|bytes| of(number(bytes))).collect();
    let more = (bytes.len() / n).saturating_sub(SHOWN);
    if more > 0 {
        all.push(format!("and {more} more"));
    }
    all.join(", ")
}

/// Escapes text from the network, so that it can neither break a line nor command a terminal.
fn text(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum of the fields' bytes. Also checks that no field is smaller than the fields inside it.
    fn sum(fields: &[Field]) -> usize {
        for field in fields {
            assert!(sum(&field.fields) <= field.bytes, "{field:?}");
        }
        fields.iter().map(|field| field.bytes).sum()
    }

    /// Dissects arbitrary bytes as every type of message.
    #[test]
    fn every_byte_belongs_to_exactly_one_field() {
        let mut body = Vec::new();
        for round in 0..200_u32 {
            body.push((round.wrapping_mul(round) >> 3) as u8 & if round % 3 == 0 { 0xff } else { 0x01 });
            for typ in (0..=26).chain(30..=34) {
                for (is_datagram, is_13) in [(false, false), (false, true), (true, false), (true, true)] {
                    let dialect = Dialect { is_datagram, is_13 };
                    let fields = fields(HandshakeType(typ), 4, &body, dialect);
                    assert_eq!(sum(&fields), 4 + body.len(), "{typ} {body:02x?}: {fields:?}");
                }
            }
        }
    }

    #[test]
    fn dissects_a_certificate_entry_and_its_extensions() {
        let body = [0, 0, 0, 11, 0, 0, 2, 0x30, 0, 0, 4, 0, 5, 0, 0];
        let fields =
            fields(HandshakeType::CERTIFICATE, 4, &body, Dialect { is_13: true, is_datagram: false });
        let list = &fields[2];
        assert_eq!((list.name.as_str(), list.bytes), ("certificate_list", 14));
        assert_eq!(list.fields[0], Field::new("certificate", 5));
        assert_eq!(list.fields[1].fields[0], Field::new("status_request", 4));
    }

    #[test]
    fn shows_abbreviated_messages_and_cache_extensions() {
        let read = |typ, body: &[u8], is_13| fields(typ, 4, body, Dialect { is_13, is_datagram: false });
        let abbreviated = &read(HandshakeType::CERTIFICATE, &[0, 0, 0, 5, 0, 0, 0, 0, 0], true)[2].fields[0];
        assert_eq!(abbreviated.value.as_deref(), Some("in the receiver's cache"));
        for typ in [HandshakeType::CERTIFICATE, HandshakeType::CERTIFICATE_REQUEST] {
            assert_eq!(read(typ, &[], false)[1].value.as_deref(), Some("in the receiver's cache"));
            assert_eq!(read(typ, &[32; 33], false)[1], Field::new("hash_value", 33));
        }
        let value = |place, body: &[u8]| extension(ExtensionType::HANDSHAKE_CACHE, place, body).unwrap();
        let offer = [&[1_u8][..], &[0xaa; 8], &[0xbb; 8]].concat();
        assert_eq!(value(Carrier::ClientHello, &offer), "server's Certificate, ticket bbbbbbbbbbbbbbbb");
        assert_eq!(value(Carrier::ClientHello, &[]), "supported");
        assert_eq!(value(Carrier::Other, &[3, 0]), "server's Certificate, CertificateRequest, ticket 0");
        assert_eq!(value(Carrier::ServerHello, &[1, 0xff]), "server's Certificate");
        let value = |place, body: &[u8]| extension(ExtensionType::ASSOCIATION_PORT, place, body);
        assert_eq!(value(Carrier::ClientHello, &[3]).as_deref(), Some("IPC, TCS"));
        assert_eq!(value(Carrier::ClientHello, &[8]).as_deref(), Some("unknown modes 0x08"));
        assert_eq!(value(Carrier::Other, &[1, 0, 0]).as_deref(), Some("IPC"));
        assert_eq!(value(Carrier::ServerHello, &[2, 0x16, 0x35]).as_deref(), Some("TCS, port 5685"));
        assert_eq!(value(Carrier::ServerHello, &[2, 0x16]), None);
        let value = |body: &[u8]| extension(ExtensionType::SSI_PARAMETERS, Carrier::Other, body);
        assert_eq!(value(&[2, 2, 0xe0, 1]).as_deref(), Some("VC: did:dunlin, did:ott"));
        assert_eq!(value(&[0, 0]).as_deref(), Some("X.509"));
        assert_eq!(value(&[7, 0]).as_deref(), Some("unknown mode 7"));
        let value = |place, body: &[u8]| extension(ExtensionType::CACHED_INFO, place, body);
        let offer = [&[0, 71, 1, 32][..], &[0xab; 32], &[2, 32], &[0xcd; 32], &[9, 1, 0xef]].concat();
        let words = "server's Certificate abababababababab…, CertificateRequest cdcdcdcdcdcdcdcd…, type 9 ef";
        assert_eq!(value(Carrier::ClientHello, &offer).as_deref(), Some(words));
        assert_eq!(value(Carrier::ClientHello, &offer[..offer.len() - 1]), None);
        let confirmed = value(Carrier::ServerHello, &[0, 2, 1, 2]);
        assert_eq!(confirmed.as_deref(), Some("server's Certificate, CertificateRequest"));
        assert_eq!(value(Carrier::Other, &[0, 1, 1]).as_deref(), Some("server's Certificate"));
    }
}
