//! The handshake cache (RFC 7924 and its counterpart for clients; docs/handshake-cache.md). A side remembers
//! a peer that it has verified in full. In later handshakes the peer need not send its certificates again.
//!
//! A cached handshake is as fresh and as mutual as a full one: both sides sign and use new (EC)DHE keys. A
//! side omits a message that the other side has cached, and both sides put its fingerprint into the
//! transcript instead.

use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use pki_types::{CertificateDer, SubjectPublicKeyInfoDer};

use crate::auth::{PeerIdentity, Validity, Verifiers, X509Identity};
use crate::crypto::Hash;
use crate::error::{AuthenticationFailure, Error};
use crate::extension::handshake_cache::{NAME_LEN, Name};
use crate::message;
use crate::resume::SettingsDigest;
use crate::time::Now;
use crate::wire::{CertificateType, HandshakeType};

mod codec;

pub use codec::SplitServer;

/// The default time for which an entry is usable after this side has verified the peer's certificates.
pub const DEFAULT_MAX_AGE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The longest CertificateRequest that a client caches, in bytes. The names of CAs are most of it.
pub const MAX_CERTIFICATE_REQUEST: usize = 16 * 1024;

/// The wire format of the cache. Two sides with different modes use what both have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CacheMode {
    /// RFC 7924 alone: the server's messages, named by whole fingerprints.
    Rfc7924,
    /// RFC 7924 for the server's messages, and tickets for the client's Certificate.
    Bithac,
    /// Both sides' messages, named by eight bytes each. The recommended mode, with the fewest bytes
    /// (docs/cache-choice.md).
    #[default]
    Compact,
}

impl CacheMode {
    /// Whether cached_info names the server's messages.
    pub(crate) const fn has_cached_info(self) -> bool {
        matches!(self, Self::Rfc7924 | Self::Bithac)
    }

    /// Whether the mode uses the extension handshake_cache, with tickets.
    pub(crate) const fn has_tickets(self) -> bool {
        matches!(self, Self::Bithac | Self::Compact)
    }
}

/// How a handshake used this side's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheOutcome {
    /// This side has no cache.
    #[default]
    Disabled,
    /// This handshake cannot use a cache, because no certificate signs in it (docs/handshake-cache.md §5,
    /// rules 4 and 7). It uses a PSK, resumes a session, renegotiates, or its cipher suite has no signature.
    /// It may also be TLS 1.2 without extended master secret, or show identities in messages of their own
    /// (docs/identity.md).
    NotUsable,
    /// The peer has no cache, or one with another mode. A client with [`CacheMode::Rfc7924`] also sends
    /// nothing to a server that it has not cached.
    NotAnswered,
    /// Both sides have a cache. A client with [`CacheMode::Rfc7924`] or [`CacheMode::Bithac`] cannot be sure
    /// of it: a server with RFC 7924 alone is silent if it confirms nothing. [`crate::Negotiated::kind`]
    /// tells which certificates were omitted.
    Agreed,
}

/// The length of an issuer's digest, in bytes. Stores count peers by it; it proves nothing.
pub const ISSUER_LEN: usize = 8;

/// The fingerprint of a message: SHA-256 over the message with its header (RFC 7924 §5). A Certificate is
/// hashed in its TLS 1.2 form, so that its fingerprint is the same in every version and over every transport.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of the Certificate message with these entries.
    pub(crate) fn of<'e>(
        sha256: &dyn Hash,
        typ: CertificateType,
        entries: impl Iterator<Item = &'e [u8]>,
    ) -> Result<Self, Error> {
        Ok(Self::of_message(sha256, &message::Certificate::write_tls12(typ, entries)?))
    }

    /// The fingerprint of a message, given with its header.
    pub(crate) fn of_message(sha256: &dyn Hash, message: &[u8]) -> Self {
        let mut fingerprint = [0; 32];
        for (to, from) in fingerprint.iter_mut().zip(sha256.hash(&[message]).as_ref()) {
            *to = *from;
        }
        Self(fingerprint)
    }

    /// The bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first bytes, which the wire carries.
    pub(crate) fn name(&self) -> Name {
        let mut name = [0; NAME_LEN];
        for (to, from) in name.iter_mut().zip(self.0) {
            *to = from;
        }
        name
    }

    /// The synthetic message that follows an abbreviated one in the transcript (docs/handshake-cache.md §4).
    pub(crate) fn cached_object(&self) -> Vec<u8> {
        [&[HandshakeType::CACHED_OBJECT.0, 0, 0, 32], &self.0[..]].concat()
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// The evidence for a peer that has authenticated by a certificate.
pub(crate) enum Vouched {
    /// Its cache entry.
    Entry(Box<CachedPeer>),
    /// The verdict on what it sent in this handshake.
    Verdict(Proven),
}

/// The content of a new entry beside the peer's identity.
pub(crate) struct Proven {
    /// The peer's key. `None` if the identity contains it: a second copy costs memory for the rest of the
    /// handshake.
    pub(crate) public_key: Option<SubjectPublicKeyInfoDer<'static>>,
    /// The time span in which the verdict holds. `None` if it holds for this handshake alone.
    pub(crate) validity: Option<Validity>,
}

/// A peer that this side has verified in full, without its chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedPeer {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) certificate_type: CertificateType,
    pub(crate) public_key: SubjectPublicKeyInfoDer<'static>,
    /// The first bytes of a digest of the issuer's name. Zero for raw keys.
    pub(crate) issuer: [u8; ISSUER_LEN],
    /// The peer's identity without its chain, as after a resumption by a stateless ticket.
    pub(crate) identity: PeerIdentity,
    /// The latest notBefore of the chain, in seconds since 1970.
    pub(crate) not_before_s: u64,
    /// The earliest notAfter of the chain and end of its CRLs, in seconds since 1970.
    pub(crate) not_after_s: u64,
    /// When this side verified the chain, in milliseconds since 1970.
    pub(crate) validated_ms: u64,
    pub(crate) settings: SettingsDigest,
}

impl CachedPeer {
    /// The entry for a peer that this side has just verified in full; `None` if the cache cannot hold the
    /// peer.
    pub(crate) fn new(
        trust: &Verifiers,
        sha256: &dyn Hash,
        identity: &PeerIdentity,
        proven: Proven,
        settings: SettingsDigest,
        now: Now,
    ) -> Result<Option<Self>, Error> {
        // Without a validity the caller's verdict may change, so the cache cannot predict the result of a
        // full handshake.
        let (Some(certificate_type), Some(validity)) = (identity.certificate_type(), proven.validity) else {
            return Ok(None);
        };
        let raw_key = match identity {
            PeerIdentity::RawKey(key) => Some(CertificateDer::from(key.to_vec())),
            _ => None,
        };
        let entries = raw_key.as_ref().map_or_else(|| identity.entries(), core::slice::from_ref);
        if entries.is_empty() {
            return Ok(None);
        }
        let of_identity = || Some(identity.public_key()?.to_vec().into());
        let Some(public_key) = proven.public_key.or_else(of_identity) else { return Ok(None) };
        let mut issuer = [0; ISSUER_LEN];
        if let Some(name) = trust.of(certificate_type)?.issuer(entries) {
            issuer.iter_mut().zip(sha256.hash(&[name]).as_ref()).for_each(|(to, from)| *to = *from);
        }
        Ok(Some(Self {
            fingerprint: Fingerprint::of(sha256, certificate_type, entries.iter().map(|c| &**c))?,
            certificate_type,
            public_key,
            issuer,
            identity: without_chain(identity),
            not_before_s: validity.from_s(),
            not_after_s: validity.until_s(),
            validated_ms: now.unix_ms,
            settings,
        }))
    }

    /// Whether a full handshake under these settings would accept the peer now. The settings, CRLs included,
    /// must be those under which this side verified the peer, and all certificates must be in date. If the
    /// clock went backwards, the entry is unusable, not eternal.
    pub fn is_usable(&self, now: Now, settings: &SettingsDigest, max_age: Duration) -> bool {
        let age = now.unix_ms.checked_sub(self.validated_ms).map(Duration::from_millis);
        self.settings == *settings && self.check_dates(now).is_ok() && age.is_some_and(|age| age < max_age)
    }

    /// Checks that all its certificates are in date.
    pub(crate) fn check_dates(&self, now: Now) -> Result<(), AuthenticationFailure> {
        Validity::new(self.not_before_s, self.not_after_s).check(now)
    }

    /// The peer's identity, without its chain.
    pub fn identity(&self) -> &PeerIdentity {
        &self.identity
    }

    /// The digest of the settings under which this side verified the peer.
    pub const fn settings(&self) -> &SettingsDigest {
        &self.settings
    }

    /// The first bytes of a digest of the issuer's name; zero for raw keys. A store uses it to ensure that
    /// the peers of one issuer do not evict the peers of another.
    pub const fn issuer(&self) -> &[u8; ISSUER_LEN] {
        &self.issuer
    }

    /// The fingerprint of the peer's Certificate message.
    pub const fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }
}

fn without_chain(identity: &PeerIdentity) -> PeerIdentity {
    match identity {
        PeerIdentity::X509(id) => {
            let X509Identity { chain: _, names, common_name, fingerprint, not_after_s, details } = id;
            PeerIdentity::X509(X509Identity {
                chain: Vec::new(),
                names: names.clone(),
                common_name: common_name.clone(),
                fingerprint: *fingerprint,
                not_after_s: *not_after_s,
                details: details.clone(),
            })
        }
        PeerIdentity::RawKey(_) | PeerIdentity::Psk(_) => identity.clone(),
        PeerIdentity::Other(_) => {
            let mut identity = identity.clone();
            identity.set_entries(Vec::new());
            identity
        }
    }
}

/// A name for a client's certificate that only this client and the server know. Both derive it in a
/// handshake.
pub type Ticket = Name;

/// A client's entry for one server.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CachedServer {
    /// The server, if it has proved its identity by a certificate.
    pub(crate) server: Option<CachedPeer>,
    /// The server's latest TLS 1.2 CertificateRequest, of at most [`MAX_CERTIFICATE_REQUEST`] bytes.
    pub(crate) certificate_request: Option<Vec<u8>>,
    /// The tickets, newest first. Each has the fingerprint of the Certificate of this client that it names.
    pub(crate) tickets: Vec<(Ticket, Fingerprint)>,
    /// A handshake with the server has failed, so the next one is full.
    pub(crate) suspended: bool,
}

impl CachedServer {
    /// The server, if it has proved its identity by a certificate.
    pub const fn server(&self) -> Option<&CachedPeer> {
        self.server.as_ref()
    }

    /// Removes the tickets, for a connection that begins while another one uses them.
    pub fn clear_tickets(&mut self) {
        self.tickets.clear();
    }

    /// Whether a handshake can use the entry now.
    pub(crate) fn known(&self, now: Now, settings: &SettingsDigest, max_age: Duration) -> Known {
        match &self.server {
            None => Known::Nothing,
            Some(_) if self.suspended => Known::Suspended,
            Some(peer) if peer.is_usable(now, settings, max_age) => Known::Usable,
            Some(_) => Known::OutOfDate,
        }
    }
}

impl fmt::Debug for CachedServer {
    /// Omits the tickets: an observer who knows an unused ticket could recognise the client's next
    /// connection.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedServer")
            .field("server", &self.server)
            .field("suspended", &self.suspended)
            .finish_non_exhaustive()
    }
}

/// The state of a client's entry for a server before a handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Known {
    /// The client had no entry with a certificate of the server.
    #[default]
    Nothing,
    /// The previous handshake with the server failed, so this one is full (docs/handshake-cache.md §5, rule
    /// 5).
    Suspended,
    /// The entry is too old, a certificate is out of date, or the client's settings have changed.
    OutOfDate,
    /// The entry is usable: the server need not send its certificates.
    Usable,
}

/// The server of a client's entry. The client never uses the entry with another server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheKey {
    /// The server's name or address.
    pub name: String,
    /// The server's port; 0 if there is none.
    pub port: u16,
    /// The digest of the client's settings.
    pub settings: [u8; 32],
}

/// A client's store of entries for servers.
pub trait ClientCache: Send + Sync + fmt::Debug {
    /// Atomically updates the entry for this server with `change`. Without an entry, `change` gets an empty
    /// one. The store need not write an unchanged entry. A store is bounded and may forget entries.
    fn update(&self, key: &CacheKey, change: &mut dyn FnMut(&mut CachedServer));

    /// The entry for this server. The store removes its tickets, so that no other connection that begins at
    /// the same time offers them. The connection later puts them back, or drops them for good, by
    /// [`ClientCache::update`]. Until then, a store may keep them in its persistent copy.
    fn take(&self, key: &CacheKey) -> Option<CachedServer> {
        let mut taken = CachedServer::default();
        self.update(key, &mut |entry| {
            taken.clone_from(entry);
            entry.tickets.clear();
        });
        (taken != CachedServer::default()).then_some(taken)
    }
}

/// A server's store of entries for clients.
pub trait ServerCache: Send + Sync + fmt::Debug {
    /// The client with this ticket, which came from an unauthenticated peer. The call must not change the
    /// store.
    fn find(&self, ticket: &Ticket) -> Option<CachedPeer>;
    /// Stores `client`, which has just proved its key, under a new ticket. The new ticket replaces `proven`,
    /// by which the server knew the client. The client keeps its newest other tickets, because servers with
    /// several names may share a store. A client with the same key but another Certificate is the same
    /// client, but loses its older tickets. A store is bounded and may forget clients.
    fn put(&self, ticket: Ticket, client: CachedPeer, proven: Option<Ticket>);
}

/// A client's settings for the cache.
#[derive(Clone)]
pub(crate) struct ClientHandshakeCache {
    pub(crate) mode: CacheMode,
    pub(crate) store: Arc<dyn ClientCache>,
    pub(crate) max_age: Duration,
    /// The fingerprint of each credential's Certificate; `None` if the chain is too long for a message.
    pub(crate) fingerprints: Arc<[Option<Fingerprint>]>,
}

impl fmt::Debug for ClientHandshakeCache {
    /// Omits the maximum age, so that devices do not link the code that formats durations.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientHandshakeCache")
            .field("mode", &self.mode)
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

/// A server's settings for the cache.
#[derive(Clone, Debug)]
pub(crate) struct ServerHandshakeCache {
    pub(crate) mode: CacheMode,
    pub(crate) store: Arc<dyn ServerCache>,
    pub(crate) max_age: Duration,
    /// The fingerprint of each credential's Certificate.
    pub(crate) fingerprints: Vec<Fingerprint>,
}
