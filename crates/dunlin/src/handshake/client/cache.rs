//! The client's side of the handshake cache (docs/handshake-cache.md): what it offers, what the server has taken of that, and
//! what it keeps.
//!
//! The handshake reaches it through objects that a configuration with a cache makes: others do not link it.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use crate::address::ServerAddress;
use crate::cache::{
    CacheKey, CacheMode, CachedPeer, CachedServer, ClientCache, ClientHandshakeCache, Fingerprint,
    MAX_CERTIFICATE_REQUEST, TICKET_LABEL, Ticket,
};
use crate::config::ClientConfig;
use crate::error::{Error, PeerMisbehaved};
use crate::extension::handshake_cache::{Answer, NAME_LEN, Name, Offer};
use crate::extension::{Extensions, ExtensionsWriter, cached_info};
use crate::handshake::Cx;
use crate::handshake::cached::{Form, Use};
use crate::message::{HEADER_LEN, Message};
use crate::profile::Profile;
use crate::role::TransportKind;
use crate::time::Now;
use crate::wire::{CertificateType, HandshakeType};

/// What a client that has a cache does before a handshake.
pub(crate) trait Caching: Send + Sync + fmt::Debug {
    /// What there is for this server; `None` where no certificate can prove a server. With `resumes` a session or another PSK is
    /// offered beside it.
    fn offer(
        &self,
        config: &ClientConfig,
        server: &ServerAddress,
        transport: TransportKind,
        now: Now,
        resumes: bool,
    ) -> Option<Box<dyn Offered>>;
}

/// What a client has said of its cache, until the server answers.
pub(crate) trait Offered: Send + Sync {
    /// Adds to a ClientHello what it says of the cache.
    fn extensions(&self, w: &mut ExtensionsWriter);

    /// What the server has taken; `None` where nothing is used, and nothing will be kept. From here on a handshake that fails
    /// makes the next one a full one: the names are short, and may be those of somebody else.
    fn answered(
        self: Box<Self>,
        cx: &mut Cx<'_>,
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

/// What this client says of its cache.
struct CacheOffer {
    store: Arc<dyn ClientCache>,
    mode: CacheMode,
    /// Of the Certificate of each credential of this client.
    own: Arc<[Option<Fingerprint>]>,
    key: CacheKey,
    known: CachedServer,
    /// What of it can be used.
    server: Option<Box<CachedPeer>>,
    request: Option<CachedRequest>,
    tickets: Vec<(Ticket, Fingerprint)>,
}

/// A CertificateRequest that the server has sent before.
#[derive(Clone)]
struct CachedRequest {
    message: Vec<u8>,
    fingerprint: Fingerprint,
}

impl CachedRequest {
    /// Of a message that is longer than what it costs to say that it is known.
    fn new(mode: CacheMode, profile: &Profile, message: &[u8]) -> Option<Self> {
        // A name; or a fingerprint with type and length, a type in the answer, and the fingerprint as the body.
        let cost = if mode.has_cached_info() { (2 + 32) + 1 + (1 + 32) } else { NAME_LEN };
        let fingerprint = Fingerprint::of_message(profile.provider.sha256, message);
        (message.len() > HEADER_LEN + cost).then(|| Self { message: message.to_vec(), fingerprint })
    }
}

impl Caching for ClientHandshakeCache {
    fn offer(
        &self,
        config: &ClientConfig,
        server: &ServerAddress,
        transport: TransportKind,
        now: Now,
        resumes: bool,
    ) -> Option<Box<dyn Offered>> {
        let profile = &config.profile;
        if profile.trust.is_empty() {
            return None;
        }
        let key = CacheKey { name: server.host(), port: server.port, settings: *config.settings.as_bytes() };
        let known = self.store.get(&key).unwrap_or_default();
        let usable =
            |peer: &&CachedPeer| !known.suspended && peer.is_usable(now, &config.settings, self.max_age);
        let server = known.server.as_ref().filter(usable).cloned().map(Box::new);
        // TLS 1.3 has none to leave out.
        let request = known.certificate_request.as_ref();
        let request = request.filter(|_| server.is_some() && profile.tls12(transport).is_some());
        let request = request.and_then(|message| CachedRequest::new(self.mode, profile, message));
        // Whom this client would have to verify in full it tells nothing that names itself. Where a PSK is taken no new ticket is
        // derived, and the old one would be seen again; nor does a ticket name who has not its credential any more.
        let shows = server.is_some() && self.mode.has_tickets() && !resumes;
        let is_ours = |(_, own): &&(Ticket, Fingerprint)| self.fingerprints.contains(&Some(*own));
        let tickets = known.tickets.iter().filter(|_| shows).filter(is_ours).copied().collect();
        let (store, mode, own) = (Arc::clone(&self.store), self.mode, Arc::clone(&self.fingerprints));
        Some(Box::new(CacheOffer { store, mode, own, key, known, server, request, tickets }))
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
                tickets: self.tickets.iter().map(|(ticket, _)| *ticket).collect(),
            });
        }
    }

    fn answered(
        self: Box<Self>,
        cx: &mut Cx<'_>,
        extensions: &Extensions<'_>,
        usage: Use,
    ) -> Result<Option<Box<dyn Agreed>>, Error> {
        let illegal = |what| Err(PeerMisbehaved::IllegalParameter(what).into());
        let answer = extensions.get::<Answer>()?;
        let confirmed = extensions.get::<cached_info::Confirmed>()?.map_or_else(Vec::new, |c| c.0);
        let Answer { certificate, certificate_request, ticket } = answer.unwrap_or_default();
        let is_used = certificate || certificate_request || ticket.is_some() || !confirmed.is_empty();
        if is_used {
            let (store, key) = (Arc::clone(&self.store), self.key.clone());
            cx.output.on_failure = Some(Box::new(move || heard(&*store, key, false)));
        }
        if usage == Use::Nothing {
            // docs/handshake-cache.md §5.7.
            return if is_used { illegal("cache: in a handshake that uses none") } else { Ok(None) };
        }
        // Without an answer a server knows nothing of handshake_cache; of RFC 7924 it may all the same.
        if answer.is_none() && !self.mode.has_cached_info() {
            return Ok(None);
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
            return illegal("cache: what was not offered");
        }
        let used = match ticket {
            None => None,
            Some(index) => match self.tickets.get(usize::from(index)) {
                Some(used) => Some(*used),
                None => return illegal("handshake_cache: a ticket that was not offered"),
            },
        };
        let server = self.server.clone().filter(|_| certificate);
        let request = self.request.clone().filter(|_| request);
        let form = if self.mode.has_cached_info() { Form::Fingerprint } else { Form::Empty };
        let has_tickets = answer.is_some();
        Ok(Some(Box::new(InUse {
            offer: *self,
            form,
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
        let server = match (self.server, &cx.output.negotiated.peer) {
            // A handshake that used it makes it no younger.
            (Some(cached), _) => Some(*cached),
            (None, Some(server)) => CachedPeer::new(&config.profile, server, config.settings, cx.now)?,
            (None, None) => None,
        };
        // The one that was shown is not shown again: nobody shall see by it that two connections are of one client.
        let tickets = match (self.proven.filter(|_| self.has_tickets), &cx.output.exporter) {
            (Some(own), Some(exporter)) => {
                let mut ticket = Name::default();
                exporter.export(TICKET_LABEL, Some(own.as_bytes()), &mut ticket)?;
                // A server without the Finished knows no newer one than that.
                let older = self.used.filter(|used| used.1 == own && finished == HasFinished::Unknown);
                [Some((ticket, own)), older].into_iter().flatten().collect()
            }
            _ => {
                let mut tickets = self.offer.known.tickets;
                tickets.retain(|ticket| !self.offer.tickets.contains(ticket));
                tickets
            }
        };
        let (store, key) = (self.offer.store, self.offer.key);
        if finished == HasFinished::Unknown {
            let (store, key) = (Arc::clone(&store), key.clone());
            cx.output.on_word = Some(Box::new(move |well| heard(&*store, key, well)));
        }
        let certificate_request = self.received.or(self.offer.known.certificate_request);
        let entry = CachedServer { server, certificate_request, tickets, suspended: false };
        store.put(key, entry);
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

/// All is well, and an older ticket would only show that two connections are of one client; or this handshake has failed, and the
/// next one is full (docs/handshake-cache.md §5.5).
fn heard(store: &dyn ClientCache, key: CacheKey, well: bool) {
    let Some(mut entry) = store.get(&key) else { return };
    match well {
        true => entry.tickets.truncate(1),
        false => entry.suspended = true,
    }
    store.put(key, entry);
}
