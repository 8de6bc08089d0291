//! The hints of a ClientHello, by which a caller chooses a profile, or the terms of a HelloRetryRequest.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::cache::Ticket;
use crate::crypto::HashAlgorithm;
use crate::wire::{CertificateType, CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};

/// The content of a ClientHello. It only gives hints about the client, which is not authenticated yet.
#[derive(Clone, Debug, Default)]
pub struct ClientHelloInfo {
    /// The host name in server_name.
    pub server_name: Option<String>,
    /// ALPN protocols, in order of preference.
    pub alpn: Vec<Vec<u8>>,
    /// Versions offered.
    pub versions: Vec<ProtocolVersion>,
    /// Cipher suites offered, in order of preference.
    pub cipher_suites: Vec<CipherSuite>,
    /// Groups offered, in order of preference.
    pub groups: Vec<NamedGroup>,
    /// Groups for which the client sends a share in TLS 1.3. After a HelloRetryRequest that has selected no
    /// group, the client keeps its shares (RFC 8446 §4.1.2), and the configuration must support one of them.
    pub shares: Box<[NamedGroup]>,
    /// Signature schemes that the client verifies, in order of preference.
    pub signature_schemes: Vec<SignatureScheme>,
    /// Types of certificate that the client can send.
    pub client_certificate_types: Vec<CertificateType>,
    /// Identities of PSKs and tickets offered in TLS 1.3.
    pub psk_identities: Vec<Vec<u8>>,
    /// The hash of the first of them, which the length of its binder shows.
    pub psk_hash: Option<HashAlgorithm>,
    /// The index of the first of them that seems to be an external PSK: its age is zero (RFC 8446 §4.2.11).
    pub external_psk: Option<usize>,
    /// The session ID: the name of a session of TLS 1.2, or random bytes in the compatibility mode of TLS
    /// 1.3.
    pub session_id: Vec<u8>,
    /// The ticket of TLS 1.2 (RFC 5077). It is empty if the client only asks for one; `None` if the client
    /// wants none.
    pub session_ticket: Option<Vec<u8>>,
    /// The names of the handshake cache ([`crate::cache`]). `None` if the client does not use it.
    pub cache: Option<Box<CacheNames>>,
    /// Whether the client offers the extended master secret of TLS 1.2 (RFC 7627).
    pub extended_master_secret: bool,
    /// Whether the client supports the secure renegotiation of TLS 1.2 (RFC 5746).
    pub secure_renegotiation: bool,
    /// The cipher suite that a HelloRetryRequest has selected, if this ClientHello answers one. The
    /// configuration must support it.
    pub retried_suite: Option<CipherSuite>,
    /// The group that a HelloRetryRequest has selected, if it has selected one. The configuration must
    /// support it.
    pub retried_group: Option<NamedGroup>,
}

/// The suite and the group of a HelloRetryRequest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryChoice {
    /// The cipher suite, to which the handshake keeps (RFC 8446 §4.1.4).
    pub suite: CipherSuite,
    /// The group for which the client shall send a share. `None` if it keeps its shares.
    pub group: Option<NamedGroup>,
}

/// Chooses the suite and the group of the HelloRetryRequest that a server of several profiles sends over
/// datagrams before it asks for a profile ([`crate::ServerProfiles::with_retry_choice`]).
pub trait ChooseRetry: Send + Sync + fmt::Debug {
    /// The choice for this ClientHello, whose sender's address may be forged: it costs little, and reads no
    /// store. One of the profiles has to support it. `None` leaves the choice to the engine.
    fn choose(&self, hello: &ClientHelloInfo) -> Option<RetryChoice>;
}

/// The names of the handshake cache in a ClientHello.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheNames {
    /// The names of the client's Certificate in this server's cache, the newest first.
    pub tickets: Vec<Ticket>,
    /// The server's Certificates in the client's cache: whole fingerprints, or their first eight bytes.
    pub certificates: Vec<Vec<u8>>,
}
