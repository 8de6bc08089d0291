//! The result of a handshake. The states fill in a draft, which comes into force when the handshake is
//! complete.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::auth::{PeerIdentity, PskIdentity, Validity};
use crate::cache::{CacheOutcome, Known};
use crate::early::EarlyDataOutcome;
use crate::error::Error;
use crate::resume;
use crate::wire::{
    CertificateCompressionAlgorithm, CipherSuite, NamedGroup, ProtocolVersion, Reader, SignatureScheme,
    Writer,
};

/// How the two sides of a handshake proved their identities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandshakeKind {
    /// By certificates or raw public keys in full, with signatures, or by an external PSK.
    #[default]
    Full,
    /// By signatures as in a full handshake. At least one side did not send its certificates, because the
    /// other side has them in its handshake cache (docs/handshake-cache.md).
    Cached {
        /// The peer's cache had this side's certificates.
        own: bool,
        /// This side's cache had the peer's certificates.
        peer: bool,
    },
    /// By resuming an earlier session. Neither side signed.
    Resumed,
}

/// The parameters that the client and the server have negotiated.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Negotiated {
    /// The protocol version.
    pub version: Option<ProtocolVersion>,
    /// The cipher suite.
    pub cipher_suite: Option<CipherSuite>,
    /// The group of the key exchange. `None` if no ephemeral keys were exchanged, as with psk_ke.
    pub group: Option<NamedGroup>,
    /// The application protocol (ALPN).
    pub alpn: Option<Vec<u8>>,
    /// The server name that the client requested.
    pub server_name: Option<String>,
    /// The peer's identity. `None` if the peer did not authenticate.
    pub peer: Option<PeerIdentity>,
    /// The time span in which this side's verdict on the peer's certificate holds. Cache entries and sessions
    /// end with it; an application may end its connections, too. `None` without a limit. After a resumption
    /// or a cached handshake, the reason for the limit is not known any more.
    pub peer_validity: Option<Validity>,
    /// The server's identity by its certificate, with RSA_PSK only (RFC 4279 §4): there the pre-shared key is
    /// the peer's identity. Boxed, since few connections have it.
    pub peer_certified: Option<Box<PeerIdentity>>,
    /// Whether an external PSK went into the keys of a handshake that certificates authenticate
    /// ([`crate::ProfileBuilder::tls_cert_with_extern_psk`]).
    pub external_psk_added: bool,
    /// Whether the handshake was full, cached or resumed.
    pub kind: HandshakeKind,
    /// The bytes that this side saved because the peer has its certificates in its cache. This is the length
    /// of the omitted Certificate message, uncompressed, less what this side sent instead. Bytes that the
    /// peer saved are not counted, because this side does not know them: a cache entry holds neither the
    /// length of the peer's message nor its chain.
    pub saved_bytes: usize,
    /// The outcome of early data.
    pub early_data: EarlyDataOutcome,
    /// The ticket's age by the client's clock minus its age by the server's clock, in milliseconds. Wrong
    /// clocks or a delayed first flight cause a difference. Only a server that resumed a session knows it.
    pub ticket_age_skew_ms: Option<i64>,
    /// Whether the server sent a HelloRetryRequest.
    pub retried: bool,
    /// The signature scheme that the peer used.
    pub peer_signature: Option<SignatureScheme>,
    /// The signature scheme that this side used.
    pub own_signature: Option<SignatureScheme>,
    /// The algorithm that compressed the peer's Certificate message, if any.
    pub peer_certificate_compression: Option<CertificateCompressionAlgorithm>,
    /// The outcome of this side's handshake cache. [`Self::kind`] says which certificates were omitted.
    pub cache: CacheOutcome,
    /// The state of the server's entry in a client's cache before the handshake.
    pub known_server: Known,
    /// Whether the client offered a ticket for its own certificate. If it still had to send that certificate,
    /// the server does not know the ticket or can no longer use its entry.
    pub ticket_shown: bool,
    /// The algorithm that compressed this side's Certificate message, if any.
    pub own_certificate_compression: Option<CertificateCompressionAlgorithm>,
    /// The name of the profile.
    pub profile: String,
    /// The external PSK that went into the keys beside certificates, in this handshake or in the first one of
    /// its line.
    pub(crate) beside: Option<Box<PskIdentity>>,
}

impl Negotiated {
    /// The last second in which a session of this connection may resume, as far as the peer is concerned.
    pub(crate) fn good_until_s(&self) -> u64 {
        self.peer_validity.map_or(u64::MAX, |validity| validity.until_s())
    }

    /// Narrows [`Self::peer_validity`].
    pub(crate) fn limit_validity(&mut self, limit: Validity) {
        self.peer_validity = Some(self.peer_validity.map_or(limit, |known| known.within(limit)));
    }

    /// Whether the handshake resumed an earlier session.
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

    /// Records that this side omits its certificates, because the peer's cache has them, and how many bytes
    /// that saves.
    pub(crate) const fn leave_own_out(&mut self, saved_bytes: usize) {
        self.kind = HandshakeKind::Cached { own: true, peer: self.is_peer_cached() };
        self.saved_bytes = saved_bytes;
    }

    /// Records that this side takes the peer's certificates from its cache.
    pub(crate) const fn take_peer_from_cache(&mut self) {
        self.kind = HandshakeKind::Cached { own: self.is_own_cached(), peer: true };
    }

    /// The length of the names and PSK identities that [`Self::freeze`] writes, without those in the peer's
    /// certificate.
    pub(crate) fn names_len(&self) -> usize {
        let alpn = self.alpn.as_ref();
        let server = self.server_name.as_ref();
        let device = match &self.peer {
            Some(PeerIdentity::Psk(psk)) => psk.name.as_ref(),
            _ => None,
        };
        let texts = [server, device, Some(&self.profile)];
        let beside = self.beside.as_ref().map_or(0, |psk| psk.identity.len());
        beside + alpn.map_or(0, Vec::len) + texts.into_iter().flatten().map(String::len).sum::<usize>()
    }

    /// Writes what an application can ask about a connection that continues elsewhere, without how its
    /// handshake went.
    pub(crate) fn freeze(&self, w: &mut Writer) -> Result<(), Error> {
        w.u16(self.group.map_or(0, |group| group.0));
        w.vec8(|w| w.put(self.alpn.as_deref().unwrap_or_default()));
        w.vec8(|w| w.put(self.server_name.as_deref().unwrap_or_default().as_bytes()));
        w.vec8(|w| w.put(self.profile.as_bytes()));
        w.u8(match self.kind {
            HandshakeKind::Full => 0,
            HandshakeKind::Resumed => 1,
            HandshakeKind::Cached { own, peer } => 4 | u8::from(own) | u8::from(peer) << 1,
        });
        w.u8(self.external_psk_added.into());
        resume::write_peer(w, self.peer.as_ref(), self.good_until_s())?;
        if let Some(PeerIdentity::Psk(psk)) = &self.peer {
            psk.freeze_name(w);
        }
        resume::write_peer(w, self.peer_certified.as_deref(), u64::MAX)?;
        w.u8(self.beside.is_some().into());
        if let Some(psk) = &self.beside {
            resume::write_psk(w, psk);
        }
        Ok(())
    }

    /// Reads the output of [`Self::freeze`].
    pub(crate) fn thaw(r: &mut Reader<'_>) -> Result<Self, Error> {
        let group = Some(NamedGroup(r.u16()?)).filter(|group| group.0 != 0);
        let alpn = Some(r.vec8(0)?.to_vec()).filter(|alpn| !alpn.is_empty());
        let server_name = Some(text(r)?).filter(|name| !name.is_empty());
        let profile = text(r)?;
        let kind = match r.u8()? {
            0 => HandshakeKind::Full,
            1 => HandshakeKind::Resumed,
            cached @ 4..=7 => HandshakeKind::Cached { own: cached & 1 != 0, peer: cached & 2 != 0 },
            _ => return Err(r.bad_value().into()),
        };
        let external_psk_added = r.u8()? == 1;
        let (mut peer, until_s) = resume::read_peer(r)?;
        if let Some(PeerIdentity::Psk(psk)) = &mut peer {
            psk.thaw_name(r)?;
        }
        let (certified, _) = resume::read_peer(r)?;
        let beside = if r.u8()? == 1 { Some(Box::new(resume::read_psk(r)?)) } else { None };
        Ok(Self {
            group,
            alpn,
            server_name,
            profile,
            kind,
            external_psk_added,
            peer,
            peer_validity: (until_s != u64::MAX).then(|| Validity::new(0, until_s)),
            peer_certified: certified.map(Box::new),
            beside,
            ..Self::default()
        })
    }
}

fn text(r: &mut Reader<'_>) -> Result<String, Error> {
    let bytes = r.vec8(0)?;
    Ok(core::str::from_utf8(bytes).map_err(|_| r.bad_value())?.into())
}
