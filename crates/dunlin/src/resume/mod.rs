//! Resumption: sessions, what they are bound to, and where they are kept (RFC 8446 §2.2, §4.6.1; RFC 5246 §7.3 and RFC 5077
//! for TLS 1.2). Which version a session is of says its suite: no suite is of both.

use crate::sync::Arc;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use pki_types::{CertificateDer, SubjectPublicKeyInfoDer};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::auth::{PeerIdentity, Psk, PskIdentity, SubjectName, X509Identity};
use crate::crypto::{Hash, HashOutput};
use crate::error::{Error, Malformed};
use crate::protocol::TransportKind;
use crate::time::Now;
use crate::wire::{CipherSuite, Reader, What, Writer};

mod once;

pub(crate) use once::EarlyTerms;
pub use once::UseOnce;

/// RFC 8446 §4.6.1: no ticket lives longer than seven days. A session made by resumption counts from the day the
/// peer last proved its identity, so renewal does not extend it.
pub const MAX_LIFETIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The default lifetime of a ticket.
pub const DEFAULT_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

/// A digest of the settings under which a peer was authenticated.
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
}

/// What both sides keep of a connection in order to resume it.
#[derive(Clone)]
pub struct Session {
    /// TLS and DTLS have key schedules of their own: what one made is nothing to the other.
    pub(crate) transport: TransportKind,
    pub(crate) cipher_suite: CipherSuite,
    /// Of TLS 1.2 the master secret.
    pub(crate) psk: HashOutput,
    /// When the ticket was issued (server) or received (client), in milliseconds since 1970.
    pub(crate) issued_ms: u64,
    /// When the peer last proved who it is other than by resumption.
    pub(crate) authenticated_ms: u64,
    pub(crate) lifetime_s: u32,
    pub(crate) age_add: u32,
    pub(crate) peer: Option<PeerIdentity>,
    pub(crate) settings: SettingsDigest,
    pub(crate) server_name: Option<String>,
    pub(crate) early: Option<EarlyTerms>,
}

/// The bit beside the kind of transport that says that terms for early data follow: others carry no byte for them.
const WITH_EARLY_TERMS: u8 = 0x80;

/// The bit beside it that is in every session: names have their kind. Sessions of a version that did not know whether a name is a
/// DNS name or a URI are not read.
const TYPED_NAMES: u8 = 0x40;
/// The same over datagrams.
const TYPED_NAMES_DATAGRAM: u8 = TYPED_NAMES | TransportKind::Datagram as u8;

impl Session {
    /// Whether it can still be used: neither the ticket nor the identity in it is too old. A clock that went
    /// backwards makes it unusable, not eternal.
    pub fn is_fresh(&self, now: Now) -> bool {
        let age = |since: u64| now.unix_ms.checked_sub(since).map(Duration::from_millis);
        // Whom a full handshake would refuse today for the date, no ticket brings in.
        let valid = match &self.peer {
            Some(PeerIdentity::X509(id)) => now.unix_ms / 1000 <= id.not_after_s,
            _ => true,
        };
        valid
            && age(self.issued_ms).is_some_and(|a| a < Duration::from_secs(self.lifetime_s.into()))
            && age(self.authenticated_ms).is_some_and(|a| a < MAX_LIFETIME)
    }

    /// When its lifetime is over, in milliseconds since 1970.
    pub(crate) fn expires_ms(&self) -> u64 {
        self.issued_ms.saturating_add(1000 * u64::from(self.lifetime_s))
    }

    /// How much early data it allows, in bytes; zero says none.
    pub fn max_early_data(&self) -> u32 {
        self.early.as_ref().map_or(0, |terms| terms.max_size)
    }

    /// The identity of the external key that the peer proved itself by, if it was one.
    pub(crate) fn origin(&self) -> Option<&[u8]> {
        match &self.peer {
            Some(PeerIdentity::Psk(psk)) => Some(&psk.identity),
            _ => None,
        }
    }

    /// Whether this is that very key, and not another one that got its identity. If so, the peer has the name that the
    /// key has today.
    pub(crate) fn stems_from(&mut self, key: &Psk, hash: &dyn Hash) -> bool {
        let Some(PeerIdentity::Psk(psk)) = &mut self.peer else { return false };
        let today = PskIdentity::new(psk.identity.clone(), key, hash);
        let same = key.identity() == psk.identity && bool::from(today.digest.ct_eq(&psk.digest));
        if same {
            *psk = today;
        }
        same
    }

    /// The age to show to the server (RFC 8446 §4.2.11.1).
    pub(crate) const fn obfuscated_age(&self, now: Now) -> u32 {
        (now.unix_ms.saturating_sub(self.issued_ms) as u32).wrapping_add(self.age_add)
    }

    /// In bytes, for a store. They contain the secret: seal them.
    ///
    /// # Errors
    /// A field is too long to be kept.
    pub fn to_bytes(&self) -> Result<Zeroizing<Vec<u8>>, Error> {
        let mut w = Writer::new();
        w.put(&self.settings.0);
        let chain = match &self.peer {
            Some(PeerIdentity::X509(id)) => &*id.chain,
            _ => &[],
        };
        w.vec24(|w| chain.iter().for_each(|c| w.vec24(|w| w.put(c))));
        self.write(&mut w);
        Ok(w.finish().map(Zeroizing::new)?)
    }

    /// From what [`Session::to_bytes`] made.
    ///
    /// # Errors
    /// The bytes are something else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        Reader::all(bytes, What::Session, |r| {
            let settings = SettingsDigest(r.array()?);
            let chain = Reader::items(r.vec24(0)?, What::Session, |r| {
                r.vec24(1).map(|c| CertificateDer::from(c.to_vec()))
            })?;
            let mut session = Self::read(r, settings)?;
            if let Some(PeerIdentity::X509(id)) = &mut session.peer {
                id.chain = chain;
            }
            Ok(session)
        })
    }

    /// For a ticket that is bound to the settings: without them, and without the peer's chain. `None` where the
    /// peer's names would make it too large: a peer has all its names or does not resume.
    pub(crate) fn to_ticket(&self) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
        if let Some(PeerIdentity::X509(id)) = &self.peer
            && id
                .names
                .iter()
                .map(|name| name.text())
                .chain(id.common_name.as_deref())
                .map(str::len)
                .sum::<usize>()
                > MAX_TICKET_NAMES
        {
            return Ok(None);
        }
        let mut w = Writer::new();
        self.write(&mut w);
        Ok(Some(Zeroizing::new(w.finish()?)))
    }

    pub(crate) fn from_ticket(bytes: &[u8], settings: SettingsDigest) -> Result<Self, Error> {
        Reader::all(bytes, What::Ticket, |r| Self::read(r, settings))
    }

    fn write(&self, w: &mut Writer) {
        w.u8(self.transport as u8 | TYPED_NAMES | if self.early.is_some() { WITH_EARLY_TERMS } else { 0 });
        w.u16(self.cipher_suite.0);
        w.u64(self.issued_ms);
        // The age of the identity at issue, in seconds, takes half the room of a second date. Rounded up: many renewals
        // may make it older than it is, none younger.
        let age_ms = self.issued_ms.saturating_sub(self.authenticated_ms);
        w.u32(u32::try_from(age_ms.div_ceil(1000)).unwrap_or(u32::MAX));
        w.u32(self.lifetime_s);
        w.u32(self.age_add);
        match &self.peer {
            None => w.u8(0),
            Some(PeerIdentity::X509(id)) => {
                w.u8(1);
                w.put(&id.fingerprint);
                w.u64(id.not_after_s);
                w.vec16(|w| id.names.iter().for_each(|n| w.vec16(|w| w.put(n.encode().as_bytes()))));
                w.vec16(|w| w.put(id.common_name.as_deref().unwrap_or_default().as_bytes()));
            }
            Some(PeerIdentity::RawKey(key)) => {
                w.u8(2);
                w.vec16(|w| w.put(key));
            }
            Some(PeerIdentity::Psk(psk)) => {
                w.u8(3);
                w.put(&psk.digest);
                w.vec16(|w| w.put(&psk.identity));
            }
        }
        w.vec8(|w| w.put(self.server_name.as_deref().unwrap_or_default().as_bytes()));
        if let Some(terms) = &self.early {
            terms.write(w);
        }
        // Last, and in room that is there: bytes that grow are copied, and the old ones are not wiped.
        w.reserve(1 + self.psk.as_ref().len());
        w.vec8(|w| w.put(self.psk.as_ref()));
    }

    fn read(r: &mut Reader<'_>, settings: SettingsDigest) -> Result<Self, Error> {
        let kind = r.u8()?;
        let transport = match kind & !WITH_EARLY_TERMS {
            TYPED_NAMES => TransportKind::Stream,
            TYPED_NAMES_DATAGRAM => TransportKind::Datagram,
            _ => return Err(Malformed::Value(What::Session).into()),
        };
        let cipher_suite = CipherSuite(r.u16()?);
        let issued_ms = r.u64()?;
        let authenticated_ms = issued_ms.saturating_sub(u64::from(r.u32()?) * 1000);
        let lifetime_s = r.u32()?;
        let age_add = r.u32()?;
        let peer = read_peer(r)?;
        let name = text(r.vec8(0)?)?;
        let server_name = if name.is_empty() { None } else { Some(name) };
        let early = if kind & WITH_EARLY_TERMS == 0 { None } else { Some(EarlyTerms::read(r)?) };
        let psk = HashOutput::new(r.vec8(32)?);
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
            server_name,
            early,
        })
    }
}

/// The names that a ticket carries, in bytes: a client that shows it must fit them into its ClientHello.
const MAX_TICKET_NAMES: usize = 512;

fn text(bytes: &[u8]) -> Result<String, Error> {
    Ok(core::str::from_utf8(bytes).map_err(|_| Malformed::Value(What::Session))?.to_string())
}

fn read_peer(r: &mut Reader<'_>) -> Result<Option<PeerIdentity>, Error> {
    Ok(match r.u8()? {
        0 => None,
        1 => {
            let fingerprint = r.array()?;
            let not_after_s = r.u64()?;
            let name = |r: &mut Reader<'_>| text(r.vec16(0)?).map(|name| SubjectName::decode(&name));
            let names = Reader::items(r.vec16(0)?, What::Session, name)?;
            let common_name = Some(text(r.vec16(0)?)?).filter(|name| !name.is_empty());
            let chain = Vec::new();
            Some(PeerIdentity::X509(X509Identity { chain, names, common_name, fingerprint, not_after_s }))
        }
        2 => Some(PeerIdentity::RawKey(SubjectPublicKeyInfoDer::from(r.vec16(1)?.to_vec()))),
        3 => {
            let digest = r.array()?;
            Some(PeerIdentity::Psk(PskIdentity { identity: r.vec16(1)?.to_vec(), name: None, digest }))
        }
        _ => return Err(Malformed::Value(What::Session).into()),
    })
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
    /// Its connection has it as long as it may have to be forgotten.
    pub(crate) ticket: Arc<[u8]>,
    /// Whether the ticket is a session ID of TLS 1.2 (RFC 5246 §7.4.1.3).
    pub(crate) is_id: bool,
    pub(crate) session: Session,
}

impl ClientSession {
    /// Whether it can still be used.
    pub fn is_fresh(&self, now: Now) -> bool {
        self.session.is_fresh(now)
    }

    /// How much early data it allows, in bytes; zero says none.
    pub fn max_early_data(&self) -> u32 {
        self.session.max_early_data()
    }

    /// The ticket, as the server sent it, or in TLS 1.2 the session ID.
    pub fn ticket(&self) -> &[u8] {
        &self.ticket
    }

    /// In bytes, for a store. They contain the secret: seal them.
    ///
    /// # Errors
    /// A field is too long to be kept.
    pub fn to_bytes(&self) -> Result<Zeroizing<Vec<u8>>, Error> {
        let mut w = Writer::new();
        w.u8(self.is_id.into());
        w.vec16(|w| w.put(&self.ticket));
        let session = self.session.to_bytes()?;
        w.reserve(session.len());
        w.put(&session);
        Ok(w.finish().map(Zeroizing::new)?)
    }

    /// From what [`ClientSession::to_bytes`] made.
    ///
    /// # Errors
    /// The bytes are something else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        Reader::all(bytes, What::Session, |r| {
            let is_id = match r.u8()? {
                0 => false,
                1 => true,
                _ => return Err(Malformed::Value(What::Session).into()),
            };
            let ticket = r.vec16(1)?.into();
            Ok(Self { ticket, is_id, session: Session::from_bytes(r.rest())? })
        })
    }
}

/// For which server a client's ticket is: it is shown to no other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    /// TLS or DTLS.
    pub transport: TransportKind,
    /// The server's name or address.
    pub name: String,
    /// Its port; 0 where there is none.
    pub port: u16,
    /// The digest of the client's settings.
    pub settings: [u8; 32],
}

/// Where a client keeps tickets.
pub trait ClientSessions: Send + Sync + fmt::Debug {
    /// Keeps `session`. A store is bounded and may forget.
    fn put(&self, key: SessionKey, session: ClientSession);
    /// Takes the newest fresh ticket out: each is used once, so that connections cannot be linked by it
    /// (RFC 8446 §C.4).
    fn take(&self, key: &SessionKey, now: Now) -> Option<ClientSession>;
    /// Forgets the session with this ticket, or ID, that was put here under `key`, if it is still here: a fatal alert has ended
    /// its connection, and it must not be resumed (RFC 5246 §7.2.2).
    fn forget(&self, key: &SessionKey, ticket: &[u8]);
}

/// Seals tickets that carry the session themselves. Implementations rotate their keys.
pub trait SealTickets: Send + Sync + fmt::Debug {
    /// Seals `plaintext`, bound to `aad`; `None` if that failed.
    fn seal(&self, now: Now, aad: &[u8], plaintext: &[u8]) -> Option<Vec<u8>>;
    /// Opens `ticket`; `None` for one that is not ours, is too old, or is bound to something else.
    fn open(&self, now: Now, aad: &[u8], ticket: &[u8]) -> Option<Zeroizing<Vec<u8>>>;
}

/// Where a server keeps sessions under random names.
pub trait ServerSessions: Send + Sync + fmt::Debug {
    /// Keeps `session` under `id`. A store is bounded and may forget.
    fn put(&self, id: &[u8], session: Session);
    /// The session under `id`, which came from an unauthenticated peer.
    fn find(&self, id: &[u8]) -> Option<Session>;
    /// The session is resumed by a client that proved to have its secret: forgets it, and tells whether it was still
    /// there. Of several connections that found it, exactly one may be told so: each session of TLS 1.3 resumes once. Those of
    /// TLS 1.2, which gives out no new name with a resumption, are not removed by it: they resume until they expire.
    ///
    /// It is also called when a fatal alert ends a connection whose session it is (RFC 5246 §7.2.2, RFC 8446 §6).
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

/// A session of a connection, where it waits to be resumed: it is forgotten there if a fatal alert ends the connection.
pub(crate) enum Kept {
    /// A client's, with its ticket or ID.
    Client(Arc<dyn ClientSessions>, SessionKey, Arc<[u8]>),
    /// A server's, under this name.
    Server(Arc<dyn ServerSessions>, Vec<u8>),
    /// A server's, under this name, which its caller keeps.
    Asked(Vec<u8>),
}

/// Which tickets a server gives out.
#[derive(Clone, Debug)]
pub struct Tickets {
    pub(crate) kind: TicketKind,
    /// For clients of TLS 1.2 to whom a ticket says nothing.
    pub(crate) ids: Option<Arc<dyn ServerSessions>>,
    pub(crate) count: u8,
    pub(crate) lifetime: Duration,
}

impl Tickets {
    const fn new(kind: TicketKind) -> Self {
        Self { kind, ids: None, count: 1, lifetime: DEFAULT_LIFETIME }
    }

    /// None, and none is accepted.
    pub const fn none() -> Self {
        Self { kind: TicketKind::None, ids: None, count: 0, lifetime: DEFAULT_LIFETIME }
    }

    /// Tickets that carry the session, sealed; the server keeps nothing. If several servers share the keys and one of them takes
    /// early data, all of them need its register ([`crate::ServerConfig::with_single_use`]).
    pub const fn stateless(seal: Arc<dyn SealTickets>) -> Self {
        Self::new(TicketKind::Stateless(seal))
    }

    /// Tickets that name a session in a store: short, and each good for one use. In TLS 1.2 the name is a session ID, which is
    /// good until the session expires or is forgotten (RFC 5246 §F.1.4).
    pub const fn stateful(store: Arc<dyn ServerSessions>) -> Self {
        Self::new(TicketKind::Stateful(store))
    }

    /// Tickets that name a session in a store that answers later: [`crate::Event::NewSession`] tells what to
    /// keep, [`crate::Question::FindSession`] asks for it.
    pub const fn ask() -> Self {
        Self::new(TicketKind::Ask)
    }

    /// Beside stateless tickets, session IDs for clients of TLS 1.2 that do not ask for a ticket: the store keeps their sessions
    /// (RFC 5246 §7.4.1.2). Other kinds of tickets are session IDs there already.
    #[must_use]
    pub fn or_session_ids(mut self, store: Arc<dyn ServerSessions>) -> Self {
        self.ids = Some(store);
        self
    }

    /// The session that a store has under `name`.
    pub(crate) fn kept(&self, name: &[u8]) -> Option<Kept> {
        let in_store = |store: &Arc<dyn ServerSessions>| Kept::Server(Arc::clone(store), name.to_vec());
        match &self.kind {
            TicketKind::None => None,
            TicketKind::Stateless(_) => self.ids.as_ref().map(in_store),
            TicketKind::Stateful(store) => Some(in_store(store)),
            TicketKind::Ask => Some(Kept::Asked(name.to_vec())),
        }
    }

    /// How many follow each full handshake; a resumption is followed by one, unless this is zero.
    #[must_use]
    pub const fn count(mut self, count: u8) -> Self {
        self.count = count;
        self
    }

    /// How long they live, at most [`MAX_LIFETIME`], to the second.
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
        };
        Session {
            transport: TransportKind::Datagram,
            cipher_suite: CipherSuite(0x1301),
            psk: HashOutput::new(&[5; 32]),
            issued_ms: 20_000,
            authenticated_ms: 10_000,
            lifetime_s: 30,
            age_add: 40,
            peer: Some(PeerIdentity::X509(peer)),
            settings: SettingsDigest([8; 32]),
            server_name: Some("a".into()),
            early: None,
        }
    }

    /// RFC 8446 §4.6.1: whoever resumes in time does not become younger.
    #[test]
    fn renewals_do_not_move_the_day_of_authentication() {
        let mut session = session(&[]);
        for _ in 0..100 {
            session.issued_ms += 900;
            let ticket = session.to_ticket().unwrap().unwrap();
            session = Session::from_ticket(&ticket, session.settings).unwrap();
        }
        assert!(session.authenticated_ms <= 10_000, "{}", session.authenticated_ms);
    }

    /// Who has no use for early data carries nothing of it.
    #[test]
    fn terms_for_early_data_are_kept_where_there_are_any() {
        let without = session(&[]);
        let terms = |alpn: Option<&[u8]>| EarlyTerms { max_size: 70_000, alpn: alpn.map(<[u8]>::to_vec) };
        for early in [terms(None), terms(Some(b"mqtt"))] {
            let with = Session { early: Some(early.clone()), ..session(&[]) };
            let ticket = with.to_ticket().unwrap().unwrap();
            let len = without.to_ticket().unwrap().unwrap().len();
            assert_eq!(ticket.len(), len + 5 + early.alpn.as_ref().map_or(0, Vec::len));
            assert_eq!(Session::from_ticket(&ticket, with.settings).unwrap().early, Some(early.clone()));
            assert_eq!(Session::from_bytes(&with.to_bytes().unwrap()).unwrap().early, Some(early));
        }
        let back = Session::from_bytes(&without.to_bytes().unwrap()).unwrap();
        assert_eq!((back.early, back.transport), (None, TransportKind::Datagram));
    }

    /// It did not say which names are URIs.
    #[test]
    fn rejects_a_session_of_the_format_without_kinds_of_names() {
        let session = session(&[]);
        let mut ticket = session.to_ticket().unwrap().unwrap();
        Session::from_ticket(&ticket, session.settings).unwrap();
        ticket[0] &= !TYPED_NAMES;
        Session::from_ticket(&ticket, session.settings).unwrap_err();
    }

    #[test]
    fn a_peer_has_all_its_names_or_no_ticket() {
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
