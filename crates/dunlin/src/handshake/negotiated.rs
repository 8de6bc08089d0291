//! What a handshake has agreed on. The states draft it, and it is in force when the handshake is complete.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::auth::PeerIdentity;
use crate::cache::{CacheOutcome, Known};
use crate::early::EarlyDataOutcome;
use crate::wire::{
    CertificateCompressionAlgorithm, CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme,
};

/// What a handshake sent to prove who the two sides are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandshakeKind {
    /// Everything: certificates or raw public keys with signatures, or an external PSK.
    #[default]
    Full,
    /// Signatures as in a full handshake, but at least one side's certificates were in the other side's handshake cache and were
    /// not sent (docs/handshake-cache.md).
    Cached {
        /// The peer's cache had this side's certificates.
        own: bool,
        /// This side's cache had the peer's certificates.
        peer: bool,
    },
    /// An earlier session was resumed: neither side signed.
    Resumed,
}

/// What was agreed.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Negotiated {
    /// The version.
    pub version: Option<ProtocolVersion>,
    /// The cipher suite.
    pub cipher_suite: Option<CipherSuite>,
    /// The group; `None` with psk_ke.
    pub group: Option<NamedGroup>,
    /// The application protocol.
    pub alpn: Option<Vec<u8>>,
    /// The name that the client asked for.
    pub server_name: Option<String>,
    /// Who the peer is; `None` if it did not say.
    pub peer: Option<PeerIdentity>,
    /// With RSA_PSK (RFC 4279 §4), where a client takes its key for the peer: who the server is by its certificate. In a box, since
    /// few connections have it.
    pub peer_certified: Option<Box<PeerIdentity>>,
    /// Whether the handshake was full, cached or a resumption.
    pub kind: HandshakeKind,
    /// The bytes that this side saved because the peer has its certificates in its cache: the length of the Certificate message
    /// that it left out, uncompressed, less what it sent instead. What the peer left out only the peer knows.
    pub saved_bytes: usize,
    /// What became of early data.
    pub early_data: EarlyDataOutcome,
    /// By how much the client's ticket is older than the server knows it to be (younger, if negative), in milliseconds:
    /// a clock that runs wrong, or a first flight that was held back. Known to a server that resumed a session.
    pub ticket_age_skew_ms: Option<i64>,
    /// Whether a HelloRetryRequest was needed.
    pub retried: bool,
    /// The scheme of the peer's signature.
    pub peer_signature: Option<SignatureScheme>,
    /// The scheme of our signature.
    pub own_signature: Option<SignatureScheme>,
    /// How the peer's Certificate message was compressed, if it was.
    pub peer_certificate_compression: Option<CertificateCompressionAlgorithm>,
    /// What became of this side's cache; [`Self::kind`] says which certificates were left out.
    pub cache: CacheOutcome,
    /// What a client's cache had of the server before the handshake.
    pub known_server: Known,
    /// Whether the client has shown a ticket for its own certificate. If the server has not left that out all the same, it does
    /// not know the ticket, or may not use any more what it has kept.
    pub ticket_shown: bool,
    /// How ours was compressed, if it was.
    pub own_certificate_compression: Option<CertificateCompressionAlgorithm>,
    /// The name of the profile.
    pub profile: String,
}

impl Negotiated {
    /// Whether an earlier session was resumed.
    pub const fn is_resumed(&self) -> bool {
        matches!(self.kind, HandshakeKind::Resumed)
    }

    /// Whether this side did not send its certificates because the peer has them in its cache.
    pub const fn is_own_cached(&self) -> bool {
        matches!(self.kind, HandshakeKind::Cached { own: true, .. })
    }

    /// Whether the peer did not send its certificates because this side has them in its cache.
    pub const fn is_peer_cached(&self) -> bool {
        matches!(self.kind, HandshakeKind::Cached { peer: true, .. })
    }

    /// The peer's cache has this side's certificates, and that saved so many bytes.
    pub(crate) const fn leave_own_out(&mut self, saved_bytes: usize) {
        self.kind = HandshakeKind::Cached { own: true, peer: self.is_peer_cached() };
        self.saved_bytes = saved_bytes;
    }

    /// This side's cache had the peer's certificates.
    pub(crate) const fn take_peer_from_cache(&mut self) {
        self.kind = HandshakeKind::Cached { own: self.is_own_cached(), peer: true };
    }
}
