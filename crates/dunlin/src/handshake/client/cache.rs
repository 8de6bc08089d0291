//! The client's side of the handshake cache (docs/handshake-cache.md): what the client offers, what the
//! server accepts, and what the client keeps.
//!
//! The handshake reaches it through a trait object of the configuration, so programs without a cache do not
//! link it.

use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::address::ServerAddress;
use crate::auth::Belief;
use crate::cache::{
    CacheKey, CacheMode, CachedPeer, CachedServer, ClientCache, ClientHandshakeCache, Fingerprint, Known,
    MAX_CERTIFICATE_REQUEST, Ticket, Vouched,
};
use crate::error::{Error, PeerMisbehaved};
use crate::extension::handshake_cache::{Answer, MAX_TICKETS, NAME_LEN, Name, Offer};
use crate::extension::{Extensions, ExtensionsWriter, cached_info};
use crate::handshake::Cx;
use crate::handshake::cached::client::{Agreed, Caching, HasFinished, Offered};
use crate::handshake::cached::{Form, Use};
use crate::handshake::setup::ClientConfig;
use crate::message::{HEADER_LEN, Message};
use crate::schedule::TICKET_LABEL;
use crate::settings::ProfileSettings;
use crate::wire::{CertificateType, Field, HandshakeType};

/// The cache entry of a server.
struct Entry {
    store: Arc<dyn ClientCache>,
    key: CacheKey,
}

impl Entry {
    /// Changes the entry if the store still has it.
    fn update(&self, mut change: impl FnMut(&mut CachedServer)) {
        self.store.update(&self.key, &mut |entry| {
            if entry.server.is_some() {
                change(entry);
            }
        });
    }

    /// Makes the next handshake with this server a full one (docs/handshake-cache.md §5, rule 5).
    fn suspend(&self) {
        self.update(|entry| entry.suspended = true);
    }
}

/// Tickets of an entry, reserved for this connection. If the connection fails before the client knows whether
/// they were used, they return to the entry. A returned ticket can link this failed connection to a later
/// one, but never two completed ones.
struct Tickets {
    tickets: Vec<(Ticket, Fingerprint)>,
    entry: Arc<Entry>,
    /// How many, counted from the first, do not return.
    spent: AtomicUsize,
}

impl Drop for Tickets {
    fn drop(&mut self) {
        let rest = self.tickets.get(*self.spent.get_mut()..).unwrap_or_default();
        if !rest.is_empty() {
            self.entry.update(|entry| {
                entry.tickets.extend_from_slice(rest);
                entry.tickets.truncate(MAX_TICKETS);
            });
        }
    }
}

/// This client's offer.
#[derive(Clone)]
struct CacheOffer {
    mode: CacheMode,
    /// The fingerprint of the Certificate of each of this client's credentials.
    own: Arc<[Option<Fingerprint>]>,
    entry: Arc<Entry>,
    /// The cached server, if the entry can be used.
    server: Option<Box<CachedPeer>>,
    request: Option<CachedRequest>,
    /// How many tickets the client shows, counted from the first.
    shown: usize,
    /// `None` if the entry has none.
    tickets: Option<Arc<Tickets>>,
}

/// Tickets, each with the fingerprint of the Certificate that it names.
type NamedTickets = [(Ticket, Fingerprint)];

impl CacheOffer {
    /// The reserved tickets: those that the client shows, and those that it does not.
    fn tickets(&self) -> (&NamedTickets, &NamedTickets) {
        let all = self.tickets.as_deref().map(|reserved| &*reserved.tickets).unwrap_or_default();
        all.split_at_checked(self.shown).unwrap_or_default()
    }

    /// Discards the first tickets, which must not be shown again. The others return to the entry.
    fn spend(&self, first: usize) {
        if let Some(reserved) = &self.tickets {
            reserved.spent.store(first, Ordering::Relaxed);
        }
    }
}

/// A CertificateRequest that the server sent in an earlier handshake.
#[derive(Clone)]
struct CachedRequest {
    message: Vec<u8>,
    fingerprint: Fingerprint,
}

impl CachedRequest {
    /// `None` if offering and abbreviating the message would cost more bytes than the message itself.
    fn new(mode: CacheMode, profile: &ProfileSettings, message: Vec<u8>) -> Option<Self> {
        // The cost in bytes. With handshake_cache: a name. With cached_info: a fingerprint with type and
        // length, a type in the answer, and the fingerprint with its length as the body.
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
        let CachedServer { server, certificate_request, mut tickets, suspended: _ } = entry;
        let entry = Arc::new(Entry { store: Arc::clone(&self.store), key });
        let is_usable = |server: &CachedPeer| {
            let belief = || profile.trust.still_believe(Some(&server.identity), cx.now);
            known == Known::Usable && belief() == Belief::Holds
        };
        let server = server.filter(is_usable).map(Box::new);
        // Only TLS 1.2 can abbreviate a CertificateRequest.
        let request = if server.is_some() && profile.tls12.is_some() { certificate_request } else { None };
        let request = request.and_then(|message| CachedRequest::new(self.mode, profile, message));
        // Send no ticket to a server that must be verified in full: it would identify the client. With a PSK
        // the two sides derive no new ticket, so an observer would see the old one twice. Tickets of
        // credentials that the client no longer has are not shown.
        let shows = server.is_some() && self.mode.has_tickets() && !resumes;
        let is_ours = |(_, own): &(Ticket, Fingerprint)| self.fingerprints.contains(&Some(*own));
        let (ours, others): (Vec<_>, Vec<_>) = tickets.drain(..).partition(is_ours);
        let shown = if shows { ours.len() } else { 0 };
        let tickets = [ours, others].concat();
        let tickets = (!tickets.is_empty())
            .then(|| Arc::new(Tickets { tickets, entry: Arc::clone(&entry), spent: AtomicUsize::new(0) }));
        cx.draft.ticket_shown = shown > 0;
        if server.is_some() {
            let entry = Arc::clone(&entry);
            cx.commit.on_failure = Some(Box::new(move || entry.suspend()));
        }
        let mode = self.mode;
        let own = Arc::clone(&self.fingerprints);
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
            // RFC 7924 §4: cached_info lists at least one object.
            w.put_some((!objects.is_empty()).then_some(cached_info::Offer(objects)).as_ref());
        }
        if self.mode.has_tickets() {
            let name = |fingerprint: Option<Fingerprint>| fingerprint.filter(|_| !in_info).map(|f| f.name());
            w.put(&Offer {
                certificate: name(certificate),
                certificate_request: name(request),
                tickets: self.tickets().0.iter().map(|(ticket, _)| *ticket).collect(),
            });
        }
    }

    #[cfg(feature = "association-ports")]
    fn again(&self) -> Box<dyn Offered> {
        Box::new(self.clone())
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
            self.spend(self.shown);
            // docs/handshake-cache.md §5, rule 7: the server must not use the cache in this handshake. A
            // server that does not answer handshake_cache may still support RFC 7924.
            return if is_used { illegal(Field::CacheUnused) } else { Ok(None) };
        }
        let is_confirmed = |typ| confirmed.contains(&typ);
        let (certificate, request, others) = if self.mode.has_cached_info() {
            let is_other = |typ: &u8| ![cached_info::CERT, cached_info::CERT_REQ].contains(typ);
            let others = certificate || certificate_request || confirmed.iter().any(is_other);
            (is_confirmed(cached_info::CERT), is_confirmed(cached_info::CERT_REQ), others)
        } else {
            (certificate, certificate_request, false)
        };
        let offered_request = self.request.is_some() && usage == Use::Tls12;
        if others || certificate && self.server.is_none() || request && !offered_request {
            return illegal(Field::CacheNotOffered);
        }
        let used = match ticket {
            None => None,
            Some(index) => match self.tickets().0.get(usize::from(index)) {
                Some(used) => Some(*used),
                None => return illegal(Field::CacheTicketNotOffered),
            },
        };
        let server = if certificate { self.server.clone() } else { None };
        let request = if request { self.request.clone() } else { None };
        let form = if self.mode.has_cached_info() { Form::Fingerprint } else { Form::Empty };
        let has_tickets = answer.is_some();
        Ok(Some(Box::new(InUse {
            offer: *self,
            form,
            is_used,
            server,
            vouched: None,
            request,
            used,
            has_tickets,
            received: None,
            proven: None,
        })))
    }
}

/// The part of this client's cache that the handshake uses.
struct InUse {
    offer: CacheOffer,
    form: Form,
    /// Whether the server accepted any part of the offer.
    is_used: bool,
    /// The cached server, if it may abbreviate its Certificate.
    server: Option<Box<CachedPeer>>,
    /// The evidence for the server, after it has authenticated.
    vouched: Option<Vouched>,
    /// The server's CertificateRequest, if it may abbreviate that.
    request: Option<CachedRequest>,
    /// The ticket that the server recognized, and the fingerprint of the client's Certificate in the server's
    /// cache.
    used: Option<(Ticket, Fingerprint)>,
    /// Whether both sides derive a ticket.
    has_tickets: bool,
    /// The CertificateRequest, if the server sent it in full.
    received: Option<Vec<u8>>,
    /// The fingerprint of the Certificate with which this client authenticated.
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

    fn server_proven(&mut self, vouched: Option<Vouched>) {
        self.vouched = vouched;
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
        let Self { offer, is_used, vouched, used, has_tickets, received, proven, .. } = *self;
        let is_proven_anew = !matches!(vouched, Some(Vouched::Entry(_)));
        let server = match (vouched, &cx.agreed().peer) {
            (Some(Vouched::Entry(entry)), _) => Some(*entry),
            (Some(Vouched::Verdict(proven)), Some(server)) => CachedPeer::new(
                &config.profile.trust,
                config.profile.provider.sha256,
                server,
                proven,
                config.settings,
                cx.now,
            )?,
            _ => None,
        };
        let mut new = Vec::new();
        if let (Some(own), Some(exporter)) = (proven.filter(|_| has_tickets), &cx.progress.exporter) {
            let mut ticket = Name::default();
            exporter.export(TICKET_LABEL, Some(own.as_bytes()), &mut ticket)?;
            // A server that did not receive this client's Finished knows only the older ticket.
            let older = used.filter(|used| used.1 == own && finished == HasFinished::Unknown);
            new = [Some((ticket, own)), older].into_iter().flatten().collect();
        }
        offer.spend(usize::MAX);
        let unshown = offer.tickets().1;
        let entry = &offer.entry;
        entry.store.update(&entry.key, &mut |kept| {
            // A handshake that used the entry does not extend its lifetime.
            if is_proven_anew || kept.server.is_none() {
                kept.server.clone_from(&server);
            }
            if received.is_some() {
                kept.certificate_request.clone_from(&received);
            }
            // The client never shows a ticket twice: an observer could link its connections.
            if new.is_empty() {
                kept.tickets.extend_from_slice(unshown);
            } else {
                kept.tickets.clone_from(&new);
            }
            kept.tickets.truncate(MAX_TICKETS);
            kept.suspended &= is_used;
        });
        if finished == HasFinished::Unknown {
            let entry = Arc::clone(entry);
            cx.commit.on_word = Some(Box::new(move |well| {
                if well {
                    // The older ticket is no longer needed, and showing it again would link two connections.
                    entry.update(|entry| entry.tickets.retain(|ticket| Some(*ticket) != used));
                } else {
                    entry.suspend();
                }
            }));
        }
        Ok(())
    }
}
