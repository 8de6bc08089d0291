//! The client's side of the handshake cache (docs/handshake-cache.md): what it offers, what the server has taken of that, and
//! what it keeps.
//!
//! The handshake reaches it through objects that a configuration with a cache makes: others do not link it.

use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use crate::address::ServerAddress;
use crate::cache::{
    CacheKey, CacheMode, CachedPeer, CachedServer, ClientCache, ClientHandshakeCache, Fingerprint, Known,
    MAX_CERTIFICATE_REQUEST, Ticket,
};
use crate::error::{Error, PeerMisbehaved};
use crate::extension::handshake_cache::{Answer, MAX_TICKETS, NAME_LEN, Name, Offer};
use crate::extension::{Extensions, ExtensionsWriter, cached_info};
use crate::handshake::Cx;
use crate::handshake::cached::{Form, Use};
use crate::handshake::setup::ClientConfig;
use crate::message::{HEADER_LEN, Message};
use crate::schedule::TICKET_LABEL;
use crate::settings::ProfileSettings;
use crate::wire::{CertificateType, HandshakeType, What};

/// What a client that has a cache does before a handshake.
pub(crate) trait Caching: Send + Sync + fmt::Debug {
    /// What there is for this server; `None` where no certificate can prove a server. With `resumes` a session or another PSK is
    /// offered beside it. If anything is, a handshake that fails makes the next one a full one: the names are short, and may be
    /// those of somebody else.
    fn offer(
        &self,
        cx: &mut Cx<'_>,
        config: &ClientConfig,
        server: &ServerAddress,
        resumes: bool,
    ) -> Option<Box<dyn Offered>>;
}

/// What a client has said of its cache, until the server answers.
pub(crate) trait Offered: Send + Sync {
    /// Adds to a ClientHello what it says of the cache.
    fn extensions(&self, w: &mut ExtensionsWriter);

    /// What the server has taken; `None` where nothing is used, and nothing will be kept.
    fn answered(
        self: Box<Self>,
        extensions: &Extensions<'_>,
        usage: Use,
    ) -> Result<Option<Box<dyn Agreed>>, Error>;
}

/// What both sides use of the cache.
pub(crate) trait Agreed: Send + Sync {
    /// Whether the server knows this client by a ticket.
    fn uses_ticket(&self) -> bool;

    /// The server, if its Certificate of this type may be abbreviated.
    fn server(&self, typ: CertificateType) -> Option<&CachedPeer>;

    /// The server, if this Certificate of TLS 1.2 is abbreviated, and how it is.
    fn certificate(&self, body: &[u8], typ: CertificateType) -> Option<(Box<CachedPeer>, Form)>;

    /// The CertificateRequest that was received before, if `message` is abbreviated, with its fingerprint and how it is. One
    /// in full is noted.
    fn certificate_request(&mut self, message: &Message) -> Option<(Message, Fingerprint, Form)>;

    /// The server has proven itself: as the one in the cache, or by certificates in full.
    fn server_proven(&mut self, cached: Option<Box<CachedPeer>>);

    /// This client proves itself by the credential at this place, or by none; the fingerprint of its Certificate, if the server
    /// has it.
    fn proves_by(&mut self, credential: Option<usize>) -> Option<Fingerprint>;

    /// The handshake is complete, and the server known; `finished` is whether it has this client's Finished.
    fn keep(
        self: Box<Self>,
        cx: &mut Cx<'_>,
        config: &ClientConfig,
        finished: HasFinished,
    ) -> Result<(), Error>;
}

/// The entry of a server.
struct Entry {
    store: Arc<dyn ClientCache>,
    key: CacheKey,
}

impl Entry {
    /// Changes it if it is still there.
    fn update(&self, mut change: impl FnMut(&mut CachedServer)) {
        self.store.update(&self.key, &mut |entry| {
            if entry.server.is_some() {
                change(entry);
            }
        });
    }

    /// The next handshake is full (docs/handshake-cache.md §5.5).
    fn suspend(&self) {
        self.update(|entry| entry.suspended = true);
    }
}

/// Tickets of an entry that are shown in this connection and in no other. If it breaks off before it is clear what becomes of
/// them, they go back: nobody was told by them that it was of the same client as another one that was completed.
struct Tickets {
    tickets: Vec<(Ticket, Fingerprint)>,
    back_to: Option<Arc<Entry>>,
}

impl Tickets {
    /// The first so many, which were shown, are not shown again. The others go back.
    fn spend(mut self, shown: usize) {
        self.tickets.drain(..shown);
    }
}

impl Drop for Tickets {
    fn drop(&mut self) {
        if let Some(entry) = &self.back_to {
            entry.update(|entry| {
                entry.tickets.extend_from_slice(&self.tickets);
                entry.tickets.truncate(MAX_TICKETS);
            });
        }
    }
}

/// What this client says of its cache.
struct CacheOffer {
    mode: CacheMode,
    /// Of the Certificate of each credential of this client.
    own: Arc<[Option<Fingerprint>]>,
    entry: Arc<Entry>,
    /// What of it can be used.
    server: Option<Box<CachedPeer>>,
    request: Option<CachedRequest>,
    /// How many tickets are shown, of those that come first.
    shown: usize,
    tickets: Tickets,
}

impl CacheOffer {
    fn shown(&self) -> &[(Ticket, Fingerprint)] {
        self.tickets.tickets.get(..self.shown).unwrap_or_default()
    }
}

/// A CertificateRequest that the server has sent before.
#[derive(Clone)]
struct CachedRequest {
    message: Vec<u8>,
    fingerprint: Fingerprint,
}

impl CachedRequest {
    /// Of a message that is longer than what it costs to say that it is known.
    fn new(mode: CacheMode, profile: &ProfileSettings, message: Vec<u8>) -> Option<Self> {
        // A name; or a fingerprint with type and length, a type in the answer, and the fingerprint as the body.
        let cost = if mode.has_cached_info() { (2 + 32) + 1 + (1 + 32) } else { NAME_LEN };
        let fingerprint = Fingerprint::of_message(profile.provider.sha256, &message);
        (message.len() > HEADER_LEN + cost).then_some(Self { message, fingerprint })
    }
}

impl Caching for ClientHandshakeCache {
    fn offer(
        &self,
        cx: &mut Cx<'_>,
        config: &ClientConfig,
        server: &ServerAddress,
        resumes: bool,
    ) -> Option<Box<dyn Offered>> {
        let profile = &config.profile;
        if profile.trust.is_empty() {
            return None;
        }
        let key = CacheKey { name: server.host(), port: server.port, settings: *config.settings.as_bytes() };
        let entry = self.store.take(&key).unwrap_or_default();
        let known = entry.known(cx.now, &config.settings, self.max_age);
        cx.draft.known_server = known;
        let CachedServer { server, certificate_request, tickets, suspended: _ } = entry;
        let entry = Arc::new(Entry { store: Arc::clone(&self.store), key });
        let mut tickets = Tickets { tickets, back_to: Some(Arc::clone(&entry)) };
        let server = server.filter(|_| known == Known::Usable).map(Box::new);
        // TLS 1.3 has none to leave out.
        let request =
            certificate_request.filter(|_| server.is_some() && profile.tls12(cx.protocol()).is_some());
        let request = request.and_then(|message| CachedRequest::new(self.mode, profile, message));
        // Whom this client would have to verify in full it tells nothing that names itself. Where a PSK is taken no new ticket is
        // derived, and the old one would be seen again; nor does a ticket name who has not its credential any more.
        let shows = server.is_some() && self.mode.has_tickets() && !resumes;
        let is_ours = |(_, own): &(Ticket, Fingerprint)| self.fingerprints.contains(&Some(*own));
        tickets.tickets.sort_by_key(|ticket| !is_ours(ticket));
        let shown = tickets.tickets.iter().filter(|ticket| shows && is_ours(ticket)).count();
        cx.draft.ticket_shown = shown > 0;
        if server.is_some() {
            let entry = Arc::clone(&entry);
            cx.commit.on_failure = Some(Box::new(move || entry.suspend()));
        }
        let (mode, own) = (self.mode, Arc::clone(&self.fingerprints));
        Some(Box::new(CacheOffer { mode, own, entry, server, request, shown, tickets }))
    }
}

impl Offered for CacheOffer {
    fn extensions(&self, w: &mut ExtensionsWriter) {
        let certificate = self.server.as_ref().map(|server| server.fingerprint);
        let request = self.request.as_ref().map(|request| request.fingerprint);
        let in_info = self.mode.has_cached_info();
        if in_info {
            let object = |typ, fingerprint: Fingerprint| (typ, fingerprint.as_bytes().to_vec());
            let certificate = certificate.map(|f| object(cached_info::CERT, f));
            let request = request.map(|f| object(cached_info::CERT_REQ, f));
            let objects: Vec<_> = certificate.into_iter().chain(request).collect();
            // RFC 7924 §4: at least one.
            w.put_some((!objects.is_empty()).then_some(cached_info::Offer(objects)).as_ref());
        }
        if self.mode.has_tickets() {
            let name = |fingerprint: Option<Fingerprint>| fingerprint.filter(|_| !in_info).map(|f| f.name());
            w.put(&Offer {
                certificate: name(certificate),
                certificate_request: name(request),
                tickets: self.shown().iter().map(|(ticket, _)| *ticket).collect(),
            });
        }
    }

    fn answered(
        self: Box<Self>,
        extensions: &Extensions<'_>,
        usage: Use,
    ) -> Result<Option<Box<dyn Agreed>>, Error> {
        let illegal = |what| Err(PeerMisbehaved::IllegalParameter(what).into());
        let answer = extensions.get::<Answer>()?;
        let confirmed = extensions.get::<cached_info::Confirmed>()?.map_or_else(Vec::new, |c| c.0);
        let Answer { certificate, certificate_request, ticket } = answer.unwrap_or_default();
        let is_used = certificate || certificate_request || ticket.is_some() || !confirmed.is_empty();
        let keeps = usage != Use::Nothing && (answer.is_some() || self.mode.has_cached_info());
        if !keeps {
            self.tickets.spend(self.shown);
            // docs/handshake-cache.md §5.7. Without an answer a server knows nothing of handshake_cache; of RFC 7924 it may all
            // the same.
            return if is_used { illegal(What::CacheUnused) } else { Ok(None) };
        }
        let is_confirmed = |typ| confirmed.contains(&typ);
        let (certificate, request, others) = match self.mode.has_cached_info() {
            false => (certificate, certificate_request, false),
            true => {
                let is_other = |typ: &u8| ![cached_info::CERT, cached_info::CERT_REQ].contains(typ);
                let others = certificate || certificate_request || confirmed.iter().any(is_other);
                (is_confirmed(cached_info::CERT), is_confirmed(cached_info::CERT_REQ), others)
            }
        };
        let offered_request = self.request.is_some() && usage == Use::Tls12;
        if others || certificate && self.server.is_none() || request && !offered_request {
            return illegal(What::CacheNotOffered);
        }
        let used = match ticket {
            None => None,
            Some(index) => match self.shown().get(usize::from(index)) {
                Some(used) => Some(*used),
                None => return illegal(What::CacheTicketNotOffered),
            },
        };
        let server = self.server.clone().filter(|_| certificate);
        let request = self.request.clone().filter(|_| request);
        let form = if self.mode.has_cached_info() { Form::Fingerprint } else { Form::Empty };
        let has_tickets = answer.is_some();
        Ok(Some(Box::new(InUse {
            offer: *self,
            form,
            is_used,
            server,
            request,
            used,
            has_tickets,
            received: None,
            proven: None,
        })))
    }
}

/// What is used of this client's cache.
struct InUse {
    offer: CacheOffer,
    form: Form,
    /// Whether the server has taken anything of it.
    is_used: bool,
    /// The server, if its Certificate may be abbreviated; once it has proven itself, if it was.
    server: Option<Box<CachedPeer>>,
    /// Its CertificateRequest, if that may be abbreviated.
    request: Option<CachedRequest>,
    /// The ticket by which the server knows this client, and the fingerprint of the Certificate that it has.
    used: Option<(Ticket, Fingerprint)>,
    /// Whether both sides derive a ticket.
    has_tickets: bool,
    /// The CertificateRequest that came in full.
    received: Option<Vec<u8>>,
    /// Of the Certificate by which this client has proven itself.
    proven: Option<Fingerprint>,
}

impl Agreed for InUse {
    fn uses_ticket(&self) -> bool {
        self.used.is_some()
    }

    fn server(&self, typ: CertificateType) -> Option<&CachedPeer> {
        self.server.as_deref().filter(|peer| peer.certificate_type == typ)
    }

    fn certificate(&self, body: &[u8], typ: CertificateType) -> Option<(Box<CachedPeer>, Form)> {
        let peer = self.server(typ)?;
        self.form.is(body, &peer.fingerprint).then(|| (Box::new(peer.clone()), self.form))
    }

    fn certificate_request(&mut self, message: &Message) -> Option<(Message, Fingerprint, Form)> {
        match &self.request {
            Some(request) if self.form.is(message.body(), &request.fingerprint) => {
                let whole = Message::new(HandshakeType::CERTIFICATE_REQUEST, request.message.clone());
                Some((whole, request.fingerprint, self.form))
            }
            _ => {
                let bytes = message.bytes();
                self.received = (bytes.len() <= MAX_CERTIFICATE_REQUEST).then(|| bytes.to_vec());
                None
            }
        }
    }

    fn server_proven(&mut self, cached: Option<Box<CachedPeer>>) {
        self.server = cached;
    }

    fn proves_by(&mut self, credential: Option<usize>) -> Option<Fingerprint> {
        self.proven = credential.and_then(|index| *self.offer.own.get(index)?);
        self.used.map(|(_, own)| own).filter(|own| self.proven == Some(*own))
    }

    fn keep(
        self: Box<Self>,
        cx: &mut Cx<'_>,
        config: &ClientConfig,
        finished: HasFinished,
    ) -> Result<(), Error> {
        let Self { offer, is_used, server: cached, used, has_tickets, received, proven, .. } = *self;
        let is_proven_anew = cached.is_none();
        let server = match (cached, &cx.agreed().peer) {
            (Some(cached), _) => Some(*cached),
            (None, Some(server)) => CachedPeer::new(
                &config.profile.trust,
                config.profile.provider.sha256,
                server,
                config.settings,
                cx.now,
            )?,
            (None, None) => None,
        };
        let mut new = Vec::new();
        if let (Some(own), Some(exporter)) = (proven.filter(|_| has_tickets), &cx.progress.exporter) {
            let mut ticket = Name::default();
            exporter.export(TICKET_LABEL, Some(own.as_bytes()), &mut ticket)?;
            // A server without the Finished knows no newer one than that.
            let older = used.filter(|used| used.1 == own && finished == HasFinished::Unknown);
            new = [Some((ticket, own)), older].into_iter().flatten().collect();
        }
        let CacheOffer { entry, mut tickets, shown, .. } = offer;
        tickets.back_to = None;
        entry.store.update(&entry.key, &mut |kept| {
            // A handshake that used it makes it no younger.
            if is_proven_anew || kept.server.is_none() {
                kept.server.clone_from(&server);
            }
            if received.is_some() {
                kept.certificate_request.clone_from(&received);
            }
            // Those that were shown are not shown again: nobody shall see by them that two connections are of one client.
            match new.is_empty() {
                true => kept.tickets.extend(tickets.tickets.iter().skip(shown)),
                false => kept.tickets.clone_from(&new),
            }
            kept.tickets.truncate(MAX_TICKETS);
            kept.suspended &= is_used;
        });
        if finished == HasFinished::Unknown {
            cx.commit.on_word = Some(Box::new(move |well| match well {
                // An older ticket would only show that two connections are of one client.
                true => entry.update(|entry| entry.tickets.retain(|ticket| Some(*ticket) != used)),
                false => entry.suspend(),
            }));
        }
        Ok(())
    }
}

/// Whether the server is known to have this client's Finished, without which it keeps no ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HasFinished {
    Yes,
    /// It was the last message, and no answer has come.
    Unknown,
}
