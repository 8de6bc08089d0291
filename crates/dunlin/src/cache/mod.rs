//! The handshake cache: what a side keeps of a peer that it has verified in full, so that the peer need not send its
//! certificates again (RFC 7924 and its counterpart for clients; docs/handshake-cache.md).
//!
//! A repeated handshake is as fresh and as mutual as a full one: both sides sign, with new keys of (EC)DHE. What is left out is
//! what the other side has seen before, and both sides take its fingerprint into the transcript instead.

use crate::sync::Arc;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use pki_types::{CertificateDer, SubjectPublicKeyInfoDer};

use crate::auth::verifier::Verifiers;
use crate::auth::{PeerIdentity, X509Identity};
use crate::crypto::Hash;
use crate::error::{AuthenticationFailure, Error, OutOfDate};
use crate::extension::handshake_cache::{NAME_LEN, Name};
use crate::message;
use crate::resume::SettingsDigest;
use crate::time::Now;
use crate::wire::{CertificateType, HandshakeType};

mod codec;

pub use codec::SplitServer;

/// How long an entry is used after the peer's certificates were verified, if nothing else is said.
pub const DEFAULT_MAX_AGE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The longest CertificateRequest that a client keeps, in bytes: names of authorities are most of it.
pub const MAX_CERTIFICATE_REQUEST: usize = 16 * 1024;

/// What goes over the wire of a cache; two sides that differ use what they have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CacheMode {
    /// What RFC 7924 has, and nothing else: the server's messages, named by whole fingerprints.
    Rfc7924,
    /// RFC 7924 for the server's messages, and tickets for the client's Certificate.
    Bithac,
    /// Both sides' messages, named by eight bytes each: the recommended mode, in the fewest bytes (docs/cache-choice.md).
    #[default]
    Compact,
}

impl CacheMode {
    /// Whether the server's messages are named in cached_info.
    pub(crate) const fn has_cached_info(self) -> bool {
        matches!(self, Self::Rfc7924 | Self::Bithac)
    }

    /// Whether there is the extension handshake_cache, with tickets.
    pub(crate) const fn has_tickets(self) -> bool {
        matches!(self, Self::Bithac | Self::Compact)
    }
}

/// What a handshake made of this side's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheOutcome {
    /// This side has none.
    #[default]
    Disabled,
    /// Nobody was proven by a certificate that signs (docs/handshake-cache.md §5.4, §5.7): the connection is by a PSK, resumes a
    /// session or is another handshake within one; or it is of TLS 1.2 without extended master secret, or by a suite that no
    /// certificate signs.
    NotUsable,
    /// The peer says nothing of a cache: it has none, or one of another mode. A client of [`CacheMode::Rfc7924`] says nothing
    /// either of a server that it does not know.
    NotAnswered,
    /// Both sides have one, as far as a client of [`CacheMode::Rfc7924`] or [`CacheMode::Bithac`] can tell: a server of RFC 7924 does
    /// not say that it has nothing to confirm. Which certificates were left out is in
    /// [`crate::Negotiated::kind`].
    Agreed,
}

/// What is kept of the issuer of a peer's certificate, in bytes. It counts peers, and proves nothing.
pub const ISSUER_LEN: usize = 8;

/// The fingerprint of a message: SHA-256 over it with its header, of a Certificate in its form of TLS 1.2, so that it is the same
/// in every version and over every transport (RFC 7924 §5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Of the Certificate message with these entries.
    pub(crate) fn of<'e>(
        sha256: &dyn Hash,
        typ: CertificateType,
        entries: impl Iterator<Item = &'e [u8]>,
    ) -> Result<Self, Error> {
        Ok(Self::of_message(sha256, &message::Certificate::write_tls12(typ, entries)?))
    }

    /// Of a message with its header.
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

    /// What the wire has of it.
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

/// A peer that was verified in full, without its chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedPeer {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) certificate_type: CertificateType,
    pub(crate) public_key: SubjectPublicKeyInfoDer<'static>,
    /// Of whom the peer has its certificate: the beginning of a digest of the issuer's name. Zero for raw keys.
    pub(crate) issuer: [u8; ISSUER_LEN],
    /// Without the chain, as after a resumption by a stateless ticket.
    pub(crate) identity: PeerIdentity,
    /// From when on all certificates of the chain are valid, in seconds since 1970.
    pub(crate) not_before_s: u64,
    /// Until when they are, and the lists of revoked ones are good, in seconds since 1970.
    pub(crate) not_after_s: u64,
    /// When the chain was verified, in milliseconds since 1970.
    pub(crate) validated_ms: u64,
    pub(crate) settings: SettingsDigest,
}

impl CachedPeer {
    /// What is kept of a peer that has just been verified in full; `None` where there is nothing to keep.
    pub(crate) fn new(
        trust: &Verifiers,
        sha256: &dyn Hash,
        identity: &PeerIdentity,
        settings: SettingsDigest,
        now: Now,
    ) -> Result<Option<Self>, Error> {
        let raw_key;
        let (certificate_type, chain, not_after_s) = match identity {
            PeerIdentity::X509(id) => (CertificateType::X509, &id.chain[..], id.not_after_s),
            PeerIdentity::RawKey(key) => {
                raw_key = [CertificateDer::from(&**key)];
                (CertificateType::RAW_PUBLIC_KEY, &raw_key[..], u64::MAX)
            }
            PeerIdentity::Psk(_) => return Ok(None),
        };
        let Some(leaf) = chain.first() else { return Ok(None) };
        let verifier = trust.of(certificate_type)?;
        // What a full handshake would say must be known without one.
        if verifier.asks() {
            return Ok(None);
        }
        let entries = chain.iter().map(|c| &**c);
        let mut issuer = [0; ISSUER_LEN];
        if let Some(name) = verifier.issuer(leaf) {
            issuer.iter_mut().zip(sha256.hash(&[name]).as_ref()).for_each(|(to, from)| *to = *from);
        }
        Ok(Some(Self {
            fingerprint: Fingerprint::of(sha256, certificate_type, entries)?,
            certificate_type,
            public_key: verifier.public_key(leaf)?,
            issuer,
            identity: without_chain(identity),
            not_before_s: verifier.not_before_s(chain),
            not_after_s,
            validated_ms: now.unix_ms,
            settings,
        }))
    }

    /// Whether a full handshake under these settings would accept the peer now: the settings, with the lists of revoked
    /// certificates in them, are those under which it was accepted, and no certificate is out of date. A clock that went
    /// backwards makes an entry unusable, not eternal.
    pub fn is_usable(&self, now: Now, settings: &SettingsDigest, max_age: Duration) -> bool {
        let age = now.unix_ms.checked_sub(self.validated_ms).map(Duration::from_millis);
        self.settings == *settings && self.check_dates(now).is_ok() && age.is_some_and(|age| age < max_age)
    }

    /// Whether all its certificates are valid now.
    pub(crate) fn check_dates(&self, now: Now) -> Result<(), AuthenticationFailure> {
        // Which one it is was in the chain.
        let out_of_date = |limit_s| OutOfDate { index: None, common_name: None, limit_s };
        match now.unix_ms / 1000 {
            now_s if now_s < self.not_before_s => {
                Err(AuthenticationFailure::NotValidYet(out_of_date(self.not_before_s)))
            }
            now_s if now_s > self.not_after_s => {
                Err(AuthenticationFailure::Expired(out_of_date(self.not_after_s)))
            }
            _ => Ok(()),
        }
    }

    /// Who it is.
    pub fn identity(&self) -> &PeerIdentity {
        &self.identity
    }

    /// The digest of the settings that verified it.
    pub const fn settings(&self) -> &SettingsDigest {
        &self.settings
    }

    /// Of whom it has its certificate: the beginning of a digest of the issuer's name, by which a store sees to it that the peers
    /// of one issuer do not push out those of the others. Zero for raw keys.
    pub const fn issuer(&self) -> &[u8; ISSUER_LEN] {
        &self.issuer
    }

    /// The fingerprint of its Certificate message.
    pub const fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }
}

fn without_chain(identity: &PeerIdentity) -> PeerIdentity {
    match identity {
        PeerIdentity::X509(id) => {
            let X509Identity { chain: _, names, common_name, fingerprint, not_after_s } = id;
            PeerIdentity::X509(X509Identity {
                chain: Vec::new(),
                names: names.clone(),
                common_name: common_name.clone(),
                fingerprint: *fingerprint,
                not_after_s: *not_after_s,
            })
        }
        PeerIdentity::RawKey(_) | PeerIdentity::Psk(_) => identity.clone(),
    }
}

/// By what a server knows a client's certificate, and nobody else.
pub type Ticket = Name;

/// What a client keeps for one server.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CachedServer {
    /// The server, if it has proven itself by a certificate.
    pub(crate) server: Option<CachedPeer>,
    /// The whole CertificateRequest of TLS 1.2 that it sent last, of at most [`MAX_CERTIFICATE_REQUEST`] bytes.
    pub(crate) certificate_request: Option<Vec<u8>>,
    /// Tickets, newest first, each with the fingerprint of this client's Certificate that it stands for.
    pub(crate) tickets: Vec<(Ticket, Fingerprint)>,
    /// A handshake with it has failed: the next one is full.
    pub(crate) suspended: bool,
}

impl CachedServer {
    /// The server, if it has proven itself by a certificate.
    pub const fn server(&self) -> Option<&CachedPeer> {
        self.server.as_ref()
    }

    /// Without its tickets, as it is for a connection that begins while another one has them.
    pub fn clear_tickets(&mut self) {
        self.tickets.clear();
    }

    /// What can be done with it now.
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
    /// Without tickets: who knows one before it was shown could tell whose connection it comes in.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedServer")
            .field("server", &self.server)
            .field("suspended", &self.suspended)
            .finish_non_exhaustive()
    }
}

/// What a client could do with what it had of a server before a handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Known {
    /// It had nothing.
    #[default]
    Nothing,
    /// The last handshake with it has failed: the next one is full (docs/handshake-cache.md §5.5).
    Suspended,
    /// It is too old, or a certificate is out of date.
    OutOfDate,
    /// The server need not send its certificates.
    Usable,
}

/// For which server a client's entry is: it is shown to no other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheKey {
    /// The server's name or address.
    pub name: String,
    /// Its port; 0 where there is none.
    pub port: u16,
    /// The digest of the client's settings.
    pub settings: [u8; 32],
}

/// Where a client keeps what it knows of servers.
pub trait ClientCache: Send + Sync + fmt::Debug {
    /// Has what is kept for this server changed, with nobody else in between. Where nothing is kept `change` gets an empty entry,
    /// and one that is as it was need not be written. A store is bounded and may forget.
    fn update(&self, key: &CacheKey, change: &mut dyn FnMut(&mut CachedServer));

    /// What is kept for this server. Its tickets are taken out: whoever has them shows them, and no other connection that
    /// begins at the same time. By [`ClientCache::update`] they come back, or are gone for good; until then they need not be gone
    /// from what outlives the process.
    fn take(&self, key: &CacheKey) -> Option<CachedServer> {
        let mut taken = CachedServer::default();
        self.update(key, &mut |entry| {
            taken.clone_from(entry);
            entry.tickets.clear();
        });
        (taken != CachedServer::default()).then_some(taken)
    }
}

/// Where a server keeps what it knows of clients.
pub trait ServerCache: Send + Sync + fmt::Debug {
    /// The client with this ticket, which came from an unauthenticated peer: nothing changes by the question.
    fn find(&self, ticket: &Ticket) -> Option<CachedPeer>;
    /// Keeps `client`, which has just proven its key, under a new ticket, which takes the place of the one in `proven`, by which
    /// it was known; and under some of the others, the newest, as servers with several names may share a store. A client that has
    /// the same key and another Certificate is the same one, and takes none of its older tickets along. A store is bounded and may
    /// forget.
    fn put(&self, ticket: Ticket, client: CachedPeer, proven: Option<Ticket>);
}

/// A client's use of the cache.
#[derive(Clone, Debug)]
pub(crate) struct ClientHandshakeCache {
    pub(crate) mode: CacheMode,
    pub(crate) store: Arc<dyn ClientCache>,
    pub(crate) max_age: Duration,
    /// Of the Certificate of each credential; `None` for one that is too long for a message.
    pub(crate) fingerprints: Arc<[Option<Fingerprint>]>,
}

/// A server's use of the cache.
#[derive(Clone, Debug)]
pub(crate) struct ServerHandshakeCache {
    pub(crate) mode: CacheMode,
    pub(crate) store: Arc<dyn ServerCache>,
    pub(crate) max_age: Duration,
    /// Of the Certificate of each credential.
    pub(crate) fingerprints: Vec<Fingerprint>,
}
