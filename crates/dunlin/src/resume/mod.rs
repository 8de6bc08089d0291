//! Resumption: sessions, their bindings and their stores (RFC 8446 §2.2, §4.6.1; RFC 5246 §7.3 and RFC 5077
//! for TLS 1.2). The cipher suite of a session tells its version, because no suite belongs to both versions.

use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use pki_types::CertificateDer;
use zeroize::Zeroizing;

use crate::auth::codec::{self, Head};
use crate::auth::{PeerIdentity, Psk, PskIdentity, Validity};
use crate::crypto::{Hash, OwnSecret};
use crate::error::{Error, Malformed};
use crate::protocol::TransportKind;
use crate::time::Now;
use crate::wire::{CipherSuite, Field, Reader, Writer};

mod once;

pub(crate) use once::EarlyTerms;
pub use once::{SingleUse, UseOnce};

/// The longest lifetime of a ticket, seven days (RFC 8446 §4.6.1). A resumed session counts from the time
/// when the peer last proved its identity, so a renewal does not extend it.
pub const MAX_LIFETIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The default lifetime of a ticket.
pub const DEFAULT_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// The length of the name of a stored session, in bytes. It is long enough that a client cannot guess a name.
pub(crate) const SESSION_NAME_LEN: usize = 16;

/// A digest of the settings under which this side authenticated a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SettingsDigest([u8; 32]);

impl SettingsDigest {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let mut digest = [0; 32];
        for (to, from) in digest.iter_mut().zip(bytes) {
            *to = *from;
        }
        Self(digest)
    }

    /// The bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first bytes, which tell the caller's own profiles apart.
    pub(crate) const fn short(&self) -> [u8; 8] {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        [a, b, c, d, e, f, g, h]
    }
}

/// The state of a connection that a side keeps for its resumption.
#[derive(Clone)]
pub struct Session {
    /// The transport. TLS and DTLS have different key schedules, so neither can resume the other's session.
    pub(crate) transport: TransportKind,
    pub(crate) cipher_suite: CipherSuite,
    /// The PSK of TLS 1.3, or the master secret of TLS 1.2.
    pub(crate) psk: OwnSecret,
    /// When the server issued or the client received the ticket, in milliseconds since 1970.
    pub(crate) issued_ms: u64,
    /// When the peer last proved its identity other than by resumption, in milliseconds since 1970.
    pub(crate) authenticated_ms: u64,
    pub(crate) lifetime_s: u32,
    pub(crate) age_add: u32,
    pub(crate) peer: Option<PeerIdentity>,
    pub(crate) settings: SettingsDigest,
    /// The rank of the profile of its latest handshake. That is the lowest rank of all handshakes in its
    /// line: each of them resumed a session that serves its profile ([`Session::serves`]).
    pub(crate) rank: i32,
    /// The last second, since 1970, in which this side's verdict on the peer's certificate holds.
    pub(crate) good_until_s: u64,
    pub(crate) server_name: Option<String>,
    pub(crate) early: Option<EarlyTerms>,
    /// The external PSK that went into the keys beside certificates (RFC 8773), in the first handshake of its
    /// line.
    pub(crate) beside: Option<Box<PskIdentity>>,
}

/// A flag beside the transport: terms for early data follow. Other sessions carry no byte for them.
const WITH_EARLY_TERMS: u8 = 0x80;

/// A flag beside the transport: the rank follows. Sessions of rank 0 carry no byte for it.
const WITH_RANK: u8 = 0x10;

/// A flag beside the transport: an external PSK beside certificates follows. Other sessions carry no byte for
/// it.
const WITH_PSK: u8 = 0x08;

/// The version of the format, beside the transport. Earlier versions had 0x00, 0x20 or 0x40 here, so they are
/// unknown.
const VERSION: u8 = 0x60;
/// [`VERSION`] with the transport DTLS.
const VERSION_DATAGRAM: u8 = VERSION | TransportKind::Datagram as u8;

impl Session {
    /// Whether the session is still usable: neither the ticket nor the peer's authentication is too old. If
    /// the clock went backwards, the session is unusable, not eternal.
    pub fn is_fresh(&self, now: Now) -> bool {
        let age = |since: u64| now.unix_ms.checked_sub(since).map(Duration::from_millis);
        // A ticket does not outlive the certificate behind it, or the verdict on that.
        now.unix_s() <= self.good_until_s
            && age(self.issued_ms).is_some_and(|a| a < Duration::from_secs(self.lifetime_s.into()))
            && age(self.authenticated_ms).is_some_and(|a| a < MAX_LIFETIME)
    }

    /// Whether it may be resumed under a profile of this rank. A session is as weak as the weakest key
    /// exchange in its line, so it serves no profile of a higher rank. Sessions of TLS 1.2 keep their rank,
    /// because their resumption exchanges no keys.
    pub(crate) const fn serves(&self, rank: i32) -> bool {
        self.rank >= rank
    }

    /// The time span in which this side's verdict on the peer holds; `None` without a limit.
    pub(crate) const fn validity(&self) -> Option<Validity> {
        match self.good_until_s {
            u64::MAX => None,
            until_s => Some(Validity::new(0, until_s)),
        }
    }

    /// When its lifetime ends, in milliseconds since 1970.
    pub(crate) fn expires_ms(&self) -> u64 {
        self.issued_ms.saturating_add(1000 * u64::from(self.lifetime_s))
    }

    /// The early data that the session allows, in bytes; zero if it allows none.
    pub fn max_early_data(&self) -> u32 {
        self.early.as_ref().map_or(0, |terms| terms.max_size)
    }

    /// The identity of the external PSK by which the peer proved its identity, or which went into the keys;
    /// `None` without one.
    pub(crate) fn origin(&self) -> Option<&[u8]> {
        match &self.peer {
            Some(PeerIdentity::Psk(psk)) => Some(&psk.identity),
            _ => self.beside.as_ref().map(|psk| &*psk.identity),
        }
    }

    /// Whether the session stems from exactly this key, not from another one with the same identity. If so,
    /// the peer gets the key's current name.
    pub(crate) fn stems_from(&mut self, key: &Psk, hash: &dyn Hash) -> bool {
        let Some(PeerIdentity::Psk(psk)) = &mut self.peer else {
            return self.beside.as_ref().is_some_and(|psk| psk.is_proved_by(key, hash));
        };
        psk.take_name(key, hash)
    }

    /// The obfuscated age that the client sends to the server (RFC 8446 §4.2.11.1).
    pub(crate) const fn obfuscated_age(&self, now: Now) -> u32 {
        (now.unix_ms.saturating_sub(self.issued_ms) as u32).wrapping_add(self.age_add)
    }

    /// Encodes the session for a store. The bytes contain the secret: seal them.
    ///
    /// # Errors
    /// A field is too long for the format.
    pub fn to_bytes(&self) -> Result<Zeroizing<Vec<u8>>, Error> {
        let mut w = Writer::new();
        w.put(&self.settings.0);
        let chain = self.peer.as_ref().map_or(&[][..], PeerIdentity::entries);
        w.vec24(|w| chain.iter().for_each(|c| w.vec24(|w| w.put(c))));
        self.write(&mut w)?;
        Ok(w.finish().map(Zeroizing::new)?)
    }

    /// Decodes the output of [`Session::to_bytes`].
    ///
    /// # Errors
    /// The bytes do not parse.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        Reader::all(bytes, Field::Session, |r| {
            let settings = SettingsDigest(r.array()?);
            let chain = Reader::items(r.vec24(0)?, Field::Session, |r| {
                r.vec24(1).map(|c| CertificateDer::from(c.to_vec()))
            })?;
            let mut session = Self::read(r, settings)?;
            if let Some(peer) = &mut session.peer {
                peer.set_entries(chain);
            }
            Ok(session)
        })
    }

    /// Encodes the session for a stateless ticket, without the peer's chain and without the settings, to
    /// which the ticket is bound. `None` if the peer's names make it too large: a peer resumes with all its
    /// names or not at all.
    pub(crate) fn to_ticket(&self) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
        let max_names = match &self.peer {
            Some(PeerIdentity::Psk(_)) => MAX_TICKET_PSK,
            _ => MAX_TICKET_NAMES,
        };
        if self.peer.as_ref().is_some_and(|peer| codec::names_len(peer) > max_names)
            || self.beside.as_ref().is_some_and(|psk| psk.identity.len() > MAX_TICKET_PSK)
        {
            return Ok(None);
        }
        let mut w = Writer::new();
        self.write(&mut w)?;
        Ok(Some(Zeroizing::new(w.finish()?)))
    }

    pub(crate) fn from_ticket(bytes: &[u8], settings: SettingsDigest) -> Result<Self, Error> {
        Reader::all(bytes, Field::Ticket, |r| Self::read(r, settings))
    }

    fn write(&self, w: &mut Writer) -> Result<(), Error> {
        let flag = |on, flag| if on { flag } else { 0 };
        let flags = flag(self.early.is_some(), WITH_EARLY_TERMS) | flag(self.rank != 0, WITH_RANK);
        w.u8(self.transport as u8 | VERSION | flags | flag(self.beside.is_some(), WITH_PSK));
        if self.rank != 0 {
            w.u32(self.rank.cast_unsigned());
        }
        w.u16(self.cipher_suite.0);
        w.u64(self.issued_ms);
        // The age of the authentication, in seconds, takes half the room of a second date. It is rounded up,
        // so that repeated renewals may make it older but never younger.
        let age_ms = self.issued_ms.saturating_sub(self.authenticated_ms);
        w.u32(u32::try_from(age_ms.div_ceil(1000)).unwrap_or(u32::MAX));
        w.u32(self.lifetime_s);
        w.u32(self.age_add);
        write_peer(w, self.peer.as_ref(), self.good_until_s)?;
        w.vec8(|w| w.put(self.server_name.as_deref().unwrap_or_default().as_bytes()));
        if let Some(terms) = &self.early {
            terms.write(w);
        }
        if let Some(psk) = &self.beside {
            write_psk(w, psk);
        }
        // The secret comes last, after the room for it is reserved: a later reallocation would leave an
        // unwiped copy.
        w.reserve(1 + self.psk.as_ref().len());
        w.vec8(|w| w.put(self.psk.as_ref()));
        Ok(())
    }

    fn read(r: &mut Reader<'_>, settings: SettingsDigest) -> Result<Self, Error> {
        let kind = r.u8()?;
        let transport = match kind & !(WITH_EARLY_TERMS | WITH_RANK | WITH_PSK) {
            VERSION => TransportKind::Stream,
            VERSION_DATAGRAM => TransportKind::Datagram,
            _ => return Err(Malformed::Value(Field::Session).into()),
        };
        let rank = if kind & WITH_RANK == 0 { 0 } else { r.u32()?.cast_signed() };
        let cipher_suite = CipherSuite(r.u16()?);
        let issued_ms = r.u64()?;
        let authenticated_ms = issued_ms.saturating_sub(u64::from(r.u32()?) * 1000);
        let lifetime_s = r.u32()?;
        let age_add = r.u32()?;
        let (peer, good_until_s) = read_peer(r)?;
        let name = text(r.vec8(0)?)?;
        let server_name = if name.is_empty() { None } else { Some(name) };
        let early = if kind & WITH_EARLY_TERMS == 0 { None } else { Some(EarlyTerms::read(r)?) };
        let beside = match kind & WITH_PSK {
            0 => None,
            _ => Some(Box::new(read_psk(r)?)),
        };
        let psk = OwnSecret::new(r.vec8(32)?);
        Ok(Self {
            transport,
            cipher_suite,
            psk,
            issued_ms,
            authenticated_ms,
            lifetime_s,
            age_add,
            peer,
            settings,
            rank,
            good_until_s,
            server_name,
            early,
            beside,
        })
    }
}

/// The most names in a ticket, in bytes, because the client must fit the ticket into its ClientHello.
const MAX_TICKET_NAMES: usize = 512;

/// The longest PSK identity in a ticket, in bytes. Its client has already sent it in a ClientHello.
const MAX_TICKET_PSK: usize = 16 * 1024;

fn text(bytes: &[u8]) -> Result<String, Error> {
    Ok(core::str::from_utf8(bytes).map_err(|_| Malformed::Value(Field::Session))?.to_string())
}

/// Writes the head of a peer's identity, the end of its validity for all but PSKs, the key for a raw key, and
/// the identity.
pub(crate) fn write_peer(
    w: &mut Writer,
    peer: Option<&PeerIdentity>,
    good_until_s: u64,
) -> Result<(), Error> {
    let key = match peer {
        Some(PeerIdentity::RawKey(key)) => Some(&**key),
        _ => None,
    };
    w.u8(Head::new(peer, key).byte());
    let Some(peer) = peer else { return Ok(()) };
    if peer.certificate_type().is_some() {
        codec::write_time(w, good_until_s);
    }
    key.map_or(Ok(()), |key| codec::write_key(w, key))?;
    codec::write(w, peer)
}

/// Writes an external PSK beside certificates, for a session or an association that continues elsewhere.
pub(crate) fn write_psk(w: &mut Writer, psk: &PskIdentity) {
    w.vec16(|w| w.put(&psk.identity));
    w.put(&psk.digest);
}

/// Reads the output of [`write_psk`].
pub(crate) fn read_psk(r: &mut Reader<'_>) -> Result<PskIdentity, Error> {
    Ok(PskIdentity::decoded(r.vec16(0)?.to_vec(), r.array()?))
}

/// Reads the output of [`write_peer`], and the end of the peer's validity.
pub(crate) fn read_peer(r: &mut Reader<'_>) -> Result<(Option<PeerIdentity>, u64), Error> {
    let head = Head::read(r)?;
    let good_until_s = if head.is_certified() { codec::read_time(r)? } else { u64::MAX };
    let key = if head.is_raw_key() { Some(codec::read_key(r, head)?) } else { None };
    Ok((codec::read(r, head, key.as_ref(), good_until_s)?, good_until_s))
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("cipher_suite", &self.cipher_suite)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

/// A ticket as the client keeps it.
#[derive(Clone, Debug)]
pub struct ClientSession {
    /// Shared with its connection, which makes the store forget it after a fatal alert.
    pub(crate) ticket: Arc<[u8]>,
    /// Whether the ticket is a TLS 1.2 session ID (RFC 5246 §7.4.1.3).
    pub(crate) is_id: bool,
    pub(crate) session: Session,
}

impl ClientSession {
    /// Whether the session is still usable.
    pub fn is_fresh(&self, now: Now) -> bool {
        self.session.is_fresh(now)
    }

    /// The early data that the session allows, in bytes; zero if it allows none.
    pub fn max_early_data(&self) -> u32 {
        self.session.max_early_data()
    }

    /// The ticket as the server sent it, or the TLS 1.2 session ID.
    pub fn ticket(&self) -> &[u8] {
        &self.ticket
    }

    /// Encodes the ticket and its session for a store. The bytes contain the secret: seal them.
    ///
    /// # Errors
    /// A field is too long for the format.
    pub fn to_bytes(&self) -> Result<Zeroizing<Vec<u8>>, Error> {
        let mut w = Writer::new();
        w.u8(self.is_id.into());
        w.vec16(|w| w.put(&self.ticket));
        let session = self.session.to_bytes()?;
        w.reserve(session.len());
        w.put(&session);
        Ok(w.finish().map(Zeroizing::new)?)
    }

    /// Decodes the output of [`ClientSession::to_bytes`].
    ///
    /// # Errors
    /// The bytes do not parse.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        Reader::all(bytes, Field::Session, |r| {
            let is_id = match r.u8()? {
                0 => false,
                1 => true,
                _ => return Err(Malformed::Value(Field::Session).into()),
            };
            let ticket = r.vec16(1)?.into();
            Ok(Self { ticket, is_id, session: Session::from_bytes(r.rest())? })
        })
    }
}

/// The server of a client's ticket. The client never offers the ticket to another server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    /// TLS or DTLS.
    pub transport: TransportKind,
    /// The server's name or address.
    pub name: String,
    /// The server's port; 0 if there is none.
    pub port: u16,
    /// The digest of the client's settings.
    pub settings: [u8; 32],
}

/// A client's store of tickets.
pub trait ClientSessions: Send + Sync + fmt::Debug {
    /// Stores `session`. A store is bounded and may forget sessions.
    fn put(&self, key: SessionKey, session: ClientSession);
    /// Removes and returns the newest fresh ticket. The client uses each ticket once, so that an observer
    /// cannot link its connections (RFC 8446 §C.4).
    fn take(&self, key: &SessionKey, now: Now) -> Option<ClientSession>;
    /// Removes the session with this ticket or session ID under `key`, if the store still has it. The client
    /// calls it after a fatal alert, because it must not resume that session (RFC 5246 §7.2.2).
    fn forget(&self, key: &SessionKey, ticket: &[u8]);
}

/// Seals stateless tickets, which carry the session themselves. Implementations rotate their keys.
pub trait SealTickets: Send + Sync + fmt::Debug {
    /// Seals `plaintext`, bound to `aad`; `None` on failure.
    fn seal(&self, now: Now, aad: &[u8], plaintext: &[u8]) -> Option<Vec<u8>>;
    /// Opens `ticket`; `None` if it has another key, is too old, or is bound to another `aad`.
    fn open(&self, now: Now, aad: &[u8], ticket: &[u8]) -> Option<Zeroizing<Vec<u8>>>;
    /// Opens `ticket`, whatever it is bound to, and returns its `aad`, too. Keys with a register find every
    /// `aad` under which they still open tickets: a server marks a ticket that another configuration with
    /// these keys would accept.
    fn open_any(&self, now: Now, ticket: &[u8]) -> Option<(Vec<u8>, Zeroizing<Vec<u8>>)> {
        let _ = (now, ticket);
        None
    }
    /// The register of the tickets that came with early data. Without one, servers with these keys issue no
    /// tickets for early data and accept none. All copies of the keys need the same register.
    fn single_use(&self) -> Option<&SingleUse> {
        None
    }
}

/// A server's store of sessions under random names.
pub trait ServerSessions: Send + Sync + fmt::Debug {
    /// Stores `session` under `id`. A store is bounded and may forget sessions.
    fn put(&self, id: &[u8], session: Session);
    /// The session under `id`, which came from an unauthenticated peer.
    fn find(&self, id: &[u8]) -> Option<Session>;
    /// Removes the session under `id`, and returns whether it was still there. If several connections have
    /// found it, exactly one may get `true`, so that each TLS 1.3 session resumes once. The server calls it
    /// when a client has proved the secret of a TLS 1.3 session. A TLS 1.2 resumption gives no new name, so
    /// that session stays until it expires.
    ///
    /// The server also calls it when a fatal alert ends a connection of the session (RFC 5246 §7.2.2, RFC
    /// 8446 §6).
    fn remove(&self, id: &[u8]) -> bool;
}

/// How a server remembers sessions.
#[derive(Clone, Debug)]
pub(crate) enum TicketKind {
    None,
    Stateless(Arc<dyn SealTickets>),
    Stateful(Arc<dyn ServerSessions>),
    Ask,
}

impl TicketKind {
    /// Whether both are the same keys or the same store.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Stateless(a), Self::Stateless(b)) => core::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b)),
            (Self::Stateful(a), Self::Stateful(b)) => core::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b)),
            (Self::None, Self::None) | (Self::Ask, Self::Ask) => true,
            _ => false,
        }
    }
}

/// A stored session of a connection. The store forgets it if a fatal alert ends the connection.
pub(crate) enum Kept {
    /// A client's session, with its ticket or session ID.
    Client(Arc<dyn ClientSessions>, SessionKey, Arc<[u8]>),
    /// A server's session, stored under this name.
    Server(Arc<dyn ServerSessions>, Vec<u8>),
    /// A server's session, which the caller keeps under this name.
    Asked(Vec<u8>),
}

/// The kind of tickets that a server issues.
#[derive(Clone, Debug)]
pub struct Tickets {
    pub(crate) kind: TicketKind,
    /// The store for TLS 1.2 clients that do not support tickets.
    pub(crate) ids: Option<Arc<dyn ServerSessions>>,
    pub(crate) count: u8,
    pub(crate) lifetime: Duration,
}

impl Tickets {
    const fn new(kind: TicketKind) -> Self {
        Self { kind, ids: None, count: 1, lifetime: DEFAULT_LIFETIME }
    }

    /// No tickets: the server issues and accepts none.
    pub const fn none() -> Self {
        Self { kind: TicketKind::None, ids: None, count: 0, lifetime: DEFAULT_LIFETIME }
    }

    /// Tickets that carry the sealed session; the server stores nothing. They allow early data if their keys
    /// have a register ([`SealTickets::single_use`]).
    pub const fn stateless(seal: Arc<dyn SealTickets>) -> Self {
        Self::new(TicketKind::Stateless(seal))
    }

    /// Short tickets that name a session in a store; each works once. In TLS 1.2 the name is a session ID,
    /// which works until the session expires or the store forgets it (RFC 5246 §F.1.4).
    pub const fn stateful(store: Arc<dyn ServerSessions>) -> Self {
        Self::new(TicketKind::Stateful(store))
    }

    /// Tickets that name a session which the caller keeps. [`crate::Event::NewSession`] gives the session to
    /// the caller, and [`crate::Question::FindSession`] asks for it. If the session comes with early data,
    /// [`crate::Question::FirstUse`] asks whether this is the first time.
    pub const fn ask() -> Self {
        Self::new(TicketKind::Ask)
    }

    /// Adds session IDs to stateless tickets, for TLS 1.2 clients that do not ask for a ticket (RFC 5246
    /// §7.4.1.2). `store` keeps their sessions. Other kinds of tickets are session IDs in TLS 1.2 anyway.
    #[must_use]
    pub fn or_session_ids(mut self, store: Arc<dyn ServerSessions>) -> Self {
        self.ids = Some(store);
        self
    }

    /// The place of the session that a store has under `name`.
    pub(crate) fn kept(&self, name: &[u8]) -> Option<Kept> {
        let in_store = |store: &Arc<dyn ServerSessions>| Kept::Server(Arc::clone(store), name.to_vec());
        match &self.kind {
            TicketKind::None => None,
            TicketKind::Stateless(_) => self.ids.as_ref().map(in_store),
            TicketKind::Stateful(store) => Some(in_store(store)),
            TicketKind::Ask => Some(Kept::Asked(name.to_vec())),
        }
    }

    /// Sets the number of tickets after each full handshake. After a resumption the server issues one, unless
    /// this is zero.
    #[must_use]
    pub const fn count(mut self, count: u8) -> Self {
        self.count = count;
        self
    }

    /// Sets the lifetime of tickets, at most [`MAX_LIFETIME`], in whole seconds.
    #[must_use]
    pub fn lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime = lifetime.min(MAX_LIFETIME);
        self
    }

    pub(crate) const fn is_none(&self) -> bool {
        matches!(self.kind, TicketKind::None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::{PskIdentity, SubjectName, X509Identity};

    fn session(names: &[String]) -> Session {
        let peer = X509Identity {
            chain: alloc::vec![CertificateDer::from(alloc::vec![1, 2, 3])],
            names: names
                .iter()
                .cloned()
                .map(SubjectName::Dns)
                .chain([SubjectName::Uri("a:b".into())])
                .collect(),
            common_name: Some("device-1".into()),
            fingerprint: [7; 32],
            not_after_s: 9,
            details: None,
        };
        Session {
            transport: TransportKind::Datagram,
            cipher_suite: CipherSuite(0x1301),
            psk: OwnSecret::new(&[5; 32]),
            issued_ms: 20_000,
            authenticated_ms: 10_000,
            lifetime_s: 30,
            age_add: 40,
            peer: Some(PeerIdentity::X509(peer)),
            settings: SettingsDigest([8; 32]),
            rank: 0,
            good_until_s: 9,
            server_name: Some("a".into()),
            early: None,
            beside: None,
        }
    }

    /// RFC 8446 §4.6.1: a renewed ticket does not extend the age of the authentication.
    #[test]
    fn renewals_do_not_move_the_time_of_authentication() {
        let mut session = session(&[]);
        for _ in 0..100 {
            session.issued_ms += 900;
            let ticket = session.to_ticket().unwrap().unwrap();
            session = Session::from_ticket(&ticket, session.settings).unwrap();
        }
        assert!(session.authenticated_ms <= 10_000, "{}", session.authenticated_ms);
    }

    /// A session without early data carries no byte for it.
    #[test]
    fn encodes_terms_for_early_data_only_if_there_are_any() {
        let without = session(&[]);
        let terms = |alpn: Option<&[u8]>| EarlyTerms {
            max_size: 70_000,
            alpn: alpn.map(<[u8]>::to_vec),
            profile: None,
        };
        for early in [terms(None), terms(Some(b"mqtt"))] {
            let with = Session { early: Some(early.clone()), ..session(&[]) };
            let ticket = with.to_ticket().unwrap().unwrap();
            let len = without.to_ticket().unwrap().unwrap().len();
            assert_eq!(ticket.len(), len + 6 + early.alpn.as_ref().map_or(0, Vec::len));
            assert_eq!(Session::from_ticket(&ticket, with.settings).unwrap().early, Some(early.clone()));
            assert_eq!(Session::from_bytes(&with.to_bytes().unwrap()).unwrap().early, Some(early));
        }
        let back = Session::from_bytes(&without.to_bytes().unwrap()).unwrap();
        assert_eq!((back.early, back.transport), (None, TransportKind::Datagram));
    }

    /// Earlier formats encoded identities in another way.
    #[test]
    fn rejects_a_session_of_an_earlier_format() {
        let session = session(&[]);
        let mut ticket = session.to_ticket().unwrap().unwrap();
        Session::from_ticket(&ticket, session.settings).unwrap();
        for version in [0x00, 0x20, 0x40] {
            ticket[0] = version | TransportKind::Datagram as u8;
            Session::from_ticket(&ticket, session.settings).unwrap_err();
        }
    }

    /// A session without an external PSK beside certificates carries no byte for it.
    #[test]
    fn encodes_the_psk_beside_certificates() {
        let len = session(&[]).to_ticket().unwrap().unwrap().len();
        let beside = PskIdentity::decoded(b"device".to_vec(), [3; 8]);
        let with = Session { beside: Some(Box::new(beside)), ..session(&[]) };
        assert_eq!(with.origin(), Some(&b"device"[..]));
        let ticket = with.to_ticket().unwrap().unwrap();
        assert_eq!(ticket.len(), len + 2 + 6 + 8);
        assert!(Session::from_ticket(&ticket, with.settings).unwrap().beside == with.beside);
        assert!(Session::from_bytes(&with.to_bytes().unwrap()).unwrap().beside == with.beside);
        let long = PskIdentity::decoded(alloc::vec![1; MAX_TICKET_PSK + 1], [3; 8]);
        assert!(Session { beside: Some(Box::new(long)), ..with }.to_ticket().unwrap().is_none());
    }

    /// A session without a rank of its own carries no byte for it.
    #[test]
    fn encodes_the_rank() {
        let len = session(&[]).to_ticket().unwrap().unwrap().len();
        for rank in [0, 1, -1, i32::MAX, i32::MIN] {
            let ticket = Session { rank, ..session(&[]) }.to_ticket().unwrap().unwrap();
            assert_eq!(Session::from_ticket(&ticket, SettingsDigest([8; 32])).unwrap().rank, rank);
            assert_eq!(ticket.len(), len + if rank == 0 { 0 } else { 4 });
        }
    }

    #[test]
    fn decodes_every_kind_of_peer_as_encoded() {
        let raw_key = |len| PeerIdentity::RawKey(alloc::vec![0x30; len].into());
        let psk = |identity: &[u8]| PeerIdentity::Psk(PskIdentity::decoded(identity.to_vec(), [3; 8]));
        // RFC 8410 §4: a key of constant form, which is stored without its constant part.
        let ed25519 = [&[0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0], &[9; 32][..]].concat();
        let ed25519 = PeerIdentity::RawKey(ed25519.into());
        for peer in [None, Some(raw_key(50)), Some(ed25519), Some(psk(b"device")), Some(psk(&[1; 300]))] {
            let session = Session { peer: peer.clone(), ..session(&[]) };
            let ticket = session.to_ticket().unwrap().unwrap();
            assert_eq!(Session::from_ticket(&ticket, session.settings).unwrap().peer, peer);
            let bytes = session.to_bytes().unwrap();
            assert_eq!(Session::from_bytes(&bytes).unwrap().peer, peer);
            for len in 0..bytes.len() {
                Session::from_bytes(&bytes[..len]).unwrap_err();
            }
        }
        let long = Session { peer: Some(psk(&[1; MAX_TICKET_PSK + 1])), ..session(&[]) };
        assert!(long.to_ticket().unwrap().is_none());
    }

    #[test]
    fn makes_no_ticket_for_a_peer_with_too_many_names() {
        let few: Vec<String> = (0..50).map(|i| alloc::format!("name-{i:04}")).collect();
        let many: Vec<String> = (0..60).map(|i| alloc::format!("name-{i:04}")).collect();
        let ticket = session(&few).to_ticket().unwrap().unwrap();
        let back = Session::from_ticket(&ticket, SettingsDigest([8; 32])).unwrap();
        assert!(matches!(&back.peer, Some(PeerIdentity::X509(id)) if id.chain.is_empty()));
        let names = |session: &Session| match &session.peer {
            Some(PeerIdentity::X509(id)) => id.names.clone(),
            _ => Vec::new(),
        };
        assert_eq!(names(&back), names(&session(&few)));
        assert_eq!(names(&back).last(), Some(&SubjectName::Uri("a:b".into())));
        assert!(
            matches!(back.peer, Some(PeerIdentity::X509(id)) if id.common_name.as_deref() == Some("device-1"))
        );
        assert!(session(&many).to_ticket().unwrap().is_none());
        let back = Session::from_bytes(&session(&many).to_bytes().unwrap()).unwrap();
        assert_eq!((back.psk.as_ref(), back.authenticated_ms), (&[5; 32][..], 10_000));
        assert_eq!(back.peer, session(&many).peer);
    }
}
