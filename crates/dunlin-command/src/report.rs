//! The result of a handshake, for people and for scripts.

use std::io::{self, Write};

use dunlin::auth::PskIdentity;
use dunlin::cache::{CacheOutcome, Known};
use dunlin::early::NoEarlyData;
use dunlin::wire::ProtocolVersion;
use dunlin::{EarlyDataOutcome, MessageSize, Negotiated, NoPort, PeerIdentity, Side};
use dunlin_identity::Did;
use dunlin_identity::handshake::{CredentialIdentity, IdentifierIdentity};
use dunlin_pki::CertificateInfo;
use dunlin_store::psk::{ImportedIdentity, text_of};
use dunlin_tokio::HandshakeBytes;
use pki_types::CertificateDer;
use serde_json::Value;

use crate::error::printable;
use crate::events::{CacheCode, Handshake, Message};
use crate::session::Session;

/// The maximum number of shown characters of an identity, because a peer may send 65535 bytes.
const MAX_SHOWN: usize = 64;

/// The result of a handshake.
pub struct Report<'a> {
    side: Side,
    negotiated: &'a Negotiated,
    messages: Vec<MessageSize>,
    bytes: HandshakeBytes,
    request_bytes: HandshakeBytes,
    /// The connection IDs that this side receives and sends, in hexadecimal.
    connection_ids: [Option<String>; 2],
    /// The association's own port at the server, or why it has none although it was to have one.
    port: Result<Option<u16>, NoPort>,
}

impl<'a> Report<'a> {
    /// Of a connection, directly after its handshake.
    pub fn new(stream: &'a dyn Session) -> Self {
        Self {
            side: stream.side(),
            negotiated: stream.negotiated(),
            messages: stream.messages(),
            bytes: stream.handshake_bytes(),
            request_bytes: stream.request_bytes(),
            connection_ids: stream
                .connection_ids()
                .map(|id| Some(base16ct::lower::encode_string(&id)).filter(|id| !id.is_empty())),
            port: stream.port(),
        }
    }

    /// Writes everything, with a table of the messages. `peer_note` follows the peer's identity.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn write_full(&self, out: &mut dyn Write, peer_note: &str) -> io::Result<()> {
        let n = self.negotiated;
        let peer = match self.side {
            Side::Client => "Server",
            Side::Server => "Client",
        };
        writeln!(out, "---")?;
        writeln!(out, "Version            {}", text(n.version))?;
        writeln!(out, "Cipher suite       {}", text(n.cipher_suite))?;
        writeln!(out, "Group              {}", text(n.group))?;
        writeln!(out, "{peer}             {}{peer_note}", self.peer())?;
        if let Some(credential) = self.credential() {
            writeln!(out, "Issuer             {}", credential.issuer)?;
            writeln!(out, "Claims             {}", claims(&credential))?;
        }
        writeln!(out, "Peer signature     {}", text(n.peer_signature))?;
        writeln!(out, "Own signature      {}", text(n.own_signature))?;
        writeln!(out, "ALPN               {}", self.alpn().unwrap_or_else(|| "-".into()))?;
        if self.side == Side::Client {
            let accepted = if self.is_accepted() {
                "yes"
            } else {
                "not known yet: the server may still refuse this client; its first data or ticket means yes"
            };
            writeln!(out, "Accepted           {accepted}")?;
        }
        writeln!(out, "Resumed            {}", yes(n.is_resumed()))?;
        if let Some((_, cached)) = self.cached() {
            writeln!(out, "Cached             {cached}")?;
        }
        if n.saved_bytes > 0 {
            writeln!(out, "Saved              {} bytes of this side's certificates", n.saved_bytes)?;
        }
        if !is_tls12(n.version) {
            writeln!(out, "HelloRetryRequest  {}", yes(n.retried))?;
        }
        if let Some(ids) = self.connection_ids() {
            writeln!(out, "Connection ID      {ids}")?;
        }
        if let Some(port) = self.port() {
            writeln!(out, "Port               {port}")?;
        }
        if let Some(early_data) = self.early_data() {
            writeln!(out, "Early data         {early_data}")?;
        }
        writeln!(out, "---")?;
        writeln!(
            out,
            "SSL handshake has read {} bytes and written {} bytes",
            self.bytes.read, self.bytes.written
        )?;
        let HandshakeBytes { read, written } = self.request_bytes;
        if written > 0 {
            writeln!(
                out,
                "Of these, {read} and {written} bytes are before the client returned the server's cookie, and the server does not count them"
            )?;
        }
        writeln!(out, "---")?;
        for message in &self.messages {
            writeln!(out, "{}", message_line(message))?;
        }
        writeln!(out, "---")
    }

    /// Returns everything in one line.
    pub fn line(&self) -> String {
        let HandshakeBytes { read, written } = self.bytes;
        format!("{}; handshake read {read} bytes, wrote {written}", self.parameters())
    }

    /// Returns everything in one line for a log, with the serial number of the peer's certificate.
    pub fn log_line(&self) -> String {
        let HandshakeBytes { read, written } = self.bytes;
        let serial = self.certificate_marks().map(|[serial, _]| format!("; certificate serial {serial}"));
        let parameters = self.parameters();
        let serial = serial.unwrap_or_default();
        format!("{parameters}{serial}; handshake read {read} bytes, wrote {written}")
    }

    /// Returns the negotiated parameters in one line.
    pub fn parameters(&self) -> String {
        let n = self.negotiated;
        let mut words = vec![text(n.version), text(n.cipher_suite), text(n.group), self.peer()];
        words.extend(self.credential().map(|credential| format!("issued by {}", credential.issuer)));
        words.extend(self.alpn().map(|alpn| format!("ALPN {alpn}")));
        if n.is_resumed() {
            words.push("resumed".into());
        }
        words.extend(self.cached().map(|(_, cached)| format!("cached {cached}")));
        words.extend((n.saved_bytes > 0).then(|| format!("saved {} bytes", n.saved_bytes)));
        if n.retried {
            words.push("after a HelloRetryRequest".into());
        }
        words.extend(self.connection_ids().map(|ids| format!("connection ID {ids}")));
        words.extend(self.port().map(|port| format!("port {port}")));
        words.extend(self.early_data().map(|outcome| format!("early data {outcome}")));
        words.join(", ")
    }

    /// Returns the connection IDs in words, if there are any.
    fn connection_ids(&self) -> Option<String> {
        let [own, peer] = &self.connection_ids;
        let own = own.as_ref().map(|id| format!("received {id}"));
        let both: Vec<_> = own.into_iter().chain(peer.as_ref().map(|id| format!("sent {id}"))).collect();
        (!both.is_empty()).then(|| both.join(" and "))
    }

    /// Returns the association's own port at the server, or why there is none, if the association was to have
    /// one.
    fn port(&self) -> Option<String> {
        match self.port {
            Ok(port) => port.map(|port| port.to_string()),
            Err(NoPort::Empty) => Some("of all clients, since the pool is empty".to_owned()),
            Err(NoPort::HostLimit) => Some("of all clients, since this host has enough others".to_owned()),
            Err(_) => Some("of all clients".to_owned()),
        }
    }

    /// Returns the serial number of the peer's certificate and its SHA-256 digest, in hexadecimal.
    fn certificate_marks(&self) -> Option<[String; 2]> {
        let Negotiated { peer, peer_certified, .. } = self.negotiated;
        let leaf = peer.iter().chain(peer_certified.as_deref()).find_map(|peer| match peer {
            PeerIdentity::X509(x509) => x509.chain.first(),
            _ => None,
        })?;
        let digest = dunlin_awslc::SHA256.hash(&[leaf]);
        Some([CertificateInfo::from_der(leaf).ok()?.serial, base16ct::lower::encode_string(digest.as_ref())])
    }

    /// Returns the peer's credential, also after a resumption.
    fn credential(&self) -> Option<CredentialIdentity> {
        let Negotiated { peer, peer_certified, .. } = self.negotiated;
        peer.iter().chain(peer_certified.as_deref()).find_map(CredentialIdentity::of)
    }

    /// Returns the peer's DID, with or without a credential.
    fn did(&self) -> Option<Did> {
        let bare =
            self.negotiated.peer.as_ref().and_then(IdentifierIdentity::of).map(|identity| identity.did);
        self.credential().map(|credential| credential.did).or(bare)
    }

    /// Returns the result for scripts (docs/json.md).
    pub fn handshake(&self) -> Handshake {
        let n = self.negotiated;
        let name = |value: &dyn ToString| value.to_string();
        let [server_certificate_cached, client_certificate_cached] = self.certificates_cached();
        let (cache_code, cache) = self.cached().unzip();
        let credential = self.credential();
        let (peer_serial, peer_sha256) = self.certificate_marks().map(<(String, String)>::from).unzip();
        Handshake {
            version: n.version.map(|v| name(&v)),
            cipher_suite: n.cipher_suite.map(|s| name(&s)),
            group: n.group.map(|g| name(&g)),
            alpn: n.alpn.as_deref().map(|alpn| String::from_utf8_lossy(alpn).into_owned()),
            server_name: n.server_name.clone(),
            peer: n.peer.as_ref().map(|_| self.peer()),
            peer_serial,
            peer_sha256,
            peer_did: self.did().map(|did| did.to_string()),
            peer_issuer: credential.as_ref().map(|credential| credential.issuer.to_string()),
            peer_claims: credential.and_then(|credential| credential.claims),
            peer_signature: n.peer_signature.map(|s| name(&s)),
            own_signature: n.own_signature.map(|s| name(&s)),
            kind: n.kind.into(),
            resumed: n.is_resumed(),
            server_certificate_cached,
            client_certificate_cached,
            cache,
            cache_code,
            saved_bytes: n.saved_bytes,
            hello_retry_request: n.retried,
            connection_id: self.connection_ids[0].clone(),
            peer_connection_id: self.connection_ids[1].clone(),
            association_port: self.port.unwrap_or(None),
            early_data: self.early_data(),
            early_data_code: self.early_data_code(),
            accepted: self.is_accepted(),
            handshake_bytes_read: self.bytes.read,
            handshake_bytes_written: self.bytes.written,
            request_bytes_read: self.request_bytes.read,
            request_bytes_written: self.request_bytes.written,
            messages: self.messages.iter().map(Message::new).collect(),
        }
    }

    /// Returns whether the peer is known to have accepted this side. The side that sends the last Finished
    /// does not know: the peer may still refuse it or the certificate (RFC 8446 §4.4.2.4, RFC 5246 §7.4.9).
    pub fn is_accepted(&self) -> bool {
        let n = self.negotiated;
        let is_last = match n.version {
            version if is_tls12(version) => n.is_resumed() == (self.side == Side::Client),
            _ => self.side == Side::Client,
        };
        !is_last
    }

    /// Returns whether the server's and the client's certificates were cached by the other side.
    const fn certificates_cached(&self) -> [bool; 2] {
        let own = self.negotiated.is_own_cached();
        let peer = self.negotiated.is_peer_cached();
        match self.side {
            Side::Client => [peer, own],
            Side::Server => [own, peer],
        }
    }

    /// Returns which certificates were omitted, or why none were, as a code and in words; `None` without a
    /// cache.
    fn cached(&self) -> Option<(CacheCode, String)> {
        let n = self.negotiated;
        if n.cache == CacheOutcome::Disabled {
            return None;
        }
        let by_client = if self.side == Side::Client { n.own_signature } else { n.peer_signature };
        Some(match self.certificates_cached() {
            [true, true] => (CacheCode::Complete, "certificates of both sides".to_owned()),
            [true, false] if by_client.is_some() => {
                let (code, why) = self.why_client_is_not_cached();
                (code, format!("certificate of the server; the client's was sent: {why}"))
            }
            [true, false] => (CacheCode::Complete, "certificate of the server".to_owned()),
            [false, true] => {
                let text = "certificate of the client; the server's was sent";
                (CacheCode::ServerNotCached, text.to_owned())
            }
            [false, false] => {
                let (code, why) = self.why_nothing_is_cached();
                (code, format!("nothing: {why}"))
            }
        })
    }

    const fn why_client_is_not_cached(&self) -> (CacheCode, &'static str) {
        match (self.side, self.negotiated.ticket_shown) {
            (Side::Client, false) => {
                (CacheCode::NoTicket, "this client has no free ticket for it or the mode has no tickets")
            }
            (Side::Client, true) => {
                (CacheCode::TicketNotUsed, "the server does not know its ticket or has an outdated entry")
            }
            (Side::Server, false) => (CacheCode::NoTicket, "the client sent no ticket for it"),
            (Side::Server, true) => {
                (CacheCode::TicketNotUsed, "this server does not know its ticket or has an outdated entry")
            }
        }
    }

    const fn why_nothing_is_cached(&self) -> (CacheCode, &'static str) {
        let n = self.negotiated;
        match (n.cache, self.side) {
            (CacheOutcome::NotUsable, _) if n.is_resumed() => (CacheCode::Resumed, "a session was resumed"),
            (CacheOutcome::NotUsable, _) if matches!(n.peer, Some(PeerIdentity::Psk(_))) => {
                (CacheCode::Psk, "a PSK authenticates this connection")
            }
            (CacheOutcome::NotUsable, _) => (
                CacheCode::NotUsable,
                "a renegotiation or TLS 1.2 without extended master secret or no certificate that signs",
            ),
            (CacheOutcome::NotAnswered, Side::Client) => {
                (CacheCode::NotAnswered, "the server has no cache or one of another mode")
            }
            (CacheOutcome::NotAnswered, Side::Server) => (
                CacheCode::NotAnswered,
                "the client has no cache or one of another mode or no entry for this server",
            ),
            (_, Side::Server) => (
                CacheCode::Unknown,
                "this server has no current entry that the client named; perhaps its first connection",
            ),
            (_, Side::Client) => match n.known_server {
                Known::Suspended => (CacheCode::Suspended, "the last handshake with this server failed"),
                Known::OutOfDate => (CacheCode::OutOfDate, "the entry is out of date"),
                Known::Usable => (
                    CacheCode::NotConfirmed,
                    "the server has no cache or one of another mode or another certificate",
                ),
                _ => (CacheCode::Unknown, "first connection with this server under these settings"),
            },
        }
    }

    /// Returns the outcome of early data, if this side wanted any.
    fn early_data(&self) -> Option<String> {
        match self.negotiated.early_data {
            EarlyDataOutcome::Accepted => Some("accepted".into()),
            EarlyDataOutcome::Rejected(why) => Some(format!("refused: {why}")),
            EarlyDataOutcome::NotOffered(NoEarlyData::Disabled) => None,
            EarlyDataOutcome::NotOffered(_) if self.side == Side::Server => None,
            EarlyDataOutcome::NotOffered(why) => Some(format!("not sent: {why}")),
        }
    }

    /// Returns the outcome of early data as a code.
    const fn early_data_code(&self) -> Option<&'static str> {
        use NoEarlyData as N;
        let why = match self.negotiated.early_data {
            EarlyDataOutcome::Accepted => return Some("accepted"),
            EarlyDataOutcome::NotOffered(N::Disabled) => return None,
            EarlyDataOutcome::NotOffered(_) if matches!(self.side, Side::Server) => return None,
            EarlyDataOutcome::Rejected(why) | EarlyDataOutcome::NotOffered(why) => why,
        };
        Some(match why {
            N::Disabled => "disabled",
            N::NoSession => "no_session",
            N::NotResumed => "not_resumed",
            N::NotForSession => "not_for_session",
            N::ApplicationProtocol => "application_protocol",
            N::CipherSuite => "cipher_suite",
            N::Profile => "profile",
            N::Retry => "hello_retry_request",
            N::NotFirst => "not_first",
            N::TicketAge => "ticket_age",
            N::NotSingleUse => "not_single_use",
            _ => "declined",
        })
    }

    /// Returns the peer's identity; with RSA_PSK both its PSK and its certificate.
    fn peer(&self) -> String {
        let Negotiated { peer, peer_certified, .. } = self.negotiated;
        let names: Vec<_> =
            peer.iter().chain(peer_certified.as_deref()).map(|p| printable(&identity(p))).collect();
        if names.is_empty() { "anonymous".into() } else { names.join(" and ") }
    }

    fn alpn(&self) -> Option<String> {
        self.negotiated.alpn.as_deref().map(|alpn| printable(&String::from_utf8_lossy(alpn)))
    }
}

/// Returns the identity of `peer` in one line: a certificate without other names by its subject, a raw key by
/// its SHA-256 digest, as `dunlin pki show` does.
pub fn identity(peer: &PeerIdentity) -> String {
    let subject = |leaf: &CertificateDer<'_>| CertificateInfo::from_der(leaf).ok().map(|c| c.subject);
    let text = match peer {
        PeerIdentity::X509(x509) if x509.names.is_empty() => {
            let subject = x509.chain.first().and_then(subject).filter(|s| !s.is_empty());
            subject.map(|s| format!("X.509 {s}"))
        }
        PeerIdentity::RawKey(key) => {
            let digest = dunlin_awslc::SHA256.hash(&[key]);
            Some(format!("raw key sha256:{}", base16ct::lower::encode_string(digest.as_ref())))
        }
        PeerIdentity::Psk(PskIdentity { identity, name, .. }) => Some(match name {
            Some(name) if name.as_bytes() == identity => format!("PSK {name}"),
            Some(name) => format!("PSK {name}, identity {}", psk_name(identity)),
            None => format!("PSK {}", psk_name(identity)),
        }),
        _ => None,
    };
    text.unwrap_or_else(|| peer.to_string())
}

/// Shows an identity to people: the original identity of an imported key.
pub fn psk_name(wire: &[u8]) -> String {
    match ImportedIdentity::read(wire) {
        Some(ImportedIdentity { identity, context: [], .. }) => format!("{} (imported)", cut(identity)),
        Some(imported) => format!("{} (imported for {})", cut(imported.identity), cut(imported.context)),
        None => cut(wire),
    }
}

/// Shows a part of an identity to people, cut if it is long.
pub fn cut(bytes: &[u8]) -> String {
    let text = text_of(bytes);
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

/// The issuer's claims about the peer, in JSON.
fn claims(credential: &CredentialIdentity) -> String {
    match &credential.claims {
        Some(claims) => printable(&Value::from(claims.clone()).to_string()),
        None => "too long to be kept".to_owned(),
    }
}

/// One line of a table: the direction of a message, its name, and its length with header.
pub fn message_line(message: &MessageSize) -> String {
    let direction = if message.sent { "sent" } else { "received" };
    format!("{direction:<8}  {:<20} {:>6}", message_name(message), message.len)
}

/// The name of the message's structure in RFC 8446 §4.
fn message_name(message: &MessageSize) -> String {
    dunlin_explain::names::message(message.typ, message.is_retry)
}

/// Whether this is TLS 1.2 or DTLS 1.2.
pub fn is_tls12(version: Option<ProtocolVersion>) -> bool {
    version.is_some_and(|version| [ProtocolVersion::TLS1_2, ProtocolVersion::DTLS1_2].contains(&version))
}

fn text(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".into(), |value| value.to_string())
}

const fn yes(it_is: bool) -> &'static str {
    if it_is { "yes" } else { "no" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_identities_as_given() {
        assert_eq!(psk_name(b"sensor-7"), "sensor-7");
        assert_eq!(psk_name(b"\x00\xff"), "#00ff");
        assert_eq!(psk_name(b"\x00\x04pump\x00\x05plant\x03\x04\x00\x01"), "pump (imported for plant)");
        assert_eq!(psk_name(b"\x00\x04pump\x00\x00\x03\x04\x00\x02"), "pump (imported)");
        assert_eq!(psk_name(&[b'x'; 65]), "x".repeat(64) + "…");
    }
}
