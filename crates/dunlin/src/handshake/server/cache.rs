//! The server's side of the handshake cache (docs/handshake-cache.md): what it takes of what a client offers, and what it keeps.
//!
//! The handshake reaches it through objects that a configuration with a cache makes: others do not link it.

use crate::sync::Arc;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use crate::cache::{CachedPeer, Fingerprint, ServerCache, ServerHandshakeCache, Ticket};
use crate::error::Error;
use crate::extension::handshake_cache::{Answer, Name, Offer};
use crate::extension::{ExtensionsWriter, cached_info};
use crate::handshake::Cx;
use crate::handshake::cached::{Form, Use};
use crate::handshake::setup::ServerConfig;
use crate::message::ClientHello;
use crate::schedule::TICKET_LABEL;
use crate::wire::CertificateType;

/// What a server that has a cache does with a ClientHello.
pub(crate) trait Caching: Send + Sync + fmt::Debug {
    /// What of the client's offer is used; `None` if it has no cache. A question to the store changes nothing in it: nobody has
    /// proven anything.
    fn agree(
        &self,
        cx: &mut Cx<'_>,
        config: &ServerConfig,
        hello: &ClientHello,
        sends: &Sends<'_>,
        usage: Use,
    ) -> Result<Option<Box<dyn Agreed>>, Error>;
}

/// What is used of the cache with the client of this ClientHello; `None` if either side has none.
pub(super) fn agree(
    cx: &mut Cx<'_>,
    config: &ServerConfig,
    hello: &ClientHello,
    sends: &Sends<'_>,
    usage: Use,
) -> Result<Option<Box<dyn Agreed>>, Error> {
    match &config.handshake_cache {
        Some(cache) => cache.agree(cx, config, hello, sends, usage),
        None => Ok(None),
    }
}

/// What both sides use of the cache.
pub(crate) trait Agreed: Send + Sync {
    /// The answer, in EncryptedExtensions or in the ServerHello of TLS 1.2.
    fn extensions(&self, w: &mut ExtensionsWriter);

    /// Our Certificate, if the client has it, and how it is abbreviated in TLS 1.2.
    fn own(&self) -> Option<(Fingerprint, Form)>;

    /// Our CertificateRequest of TLS 1.2, if the client has it, and how it is abbreviated.
    fn request(&self) -> Option<(Fingerprint, Form)>;

    /// Gives the client, whose Certificate may be abbreviated.
    fn take_client(&mut self) -> Option<Box<CachedPeer>>;

    /// The client has proven itself: as the one in the cache, or by certificates in full.
    fn client_proven(&mut self, cached: Option<Box<CachedPeer>>);

    /// The client's Finished was verified, and who it is is known: what is kept of it, and under which ticket.
    fn keep(self: Box<Self>, cx: &Cx<'_>, config: &ServerConfig) -> Result<(), Error>;
}

/// What is used of this server's cache.
struct InUse {
    store: Arc<dyn ServerCache>,
    /// Whether the client supports handshake_cache.
    answers: bool,
    /// Whether both sides derive a ticket.
    has_tickets: bool,
    /// How messages of TLS 1.2 are abbreviated.
    form: Form,
    /// Of our Certificate, which the client has.
    own: Option<Fingerprint>,
    /// Of our CertificateRequest, which the client has.
    request: Option<Fingerprint>,
    /// The ticket by which the client is known, and its index.
    ticket: Option<(Ticket, u8)>,
    /// The client that it stands for.
    client: Option<Box<CachedPeer>>,
    /// By what the client was believed once it has proven itself, if its Certificate was abbreviated.
    believed: Option<Box<CachedPeer>>,
}

/// What this server will send and ask for.
pub(crate) struct Sends<'a> {
    /// Its credential, by its place among all.
    pub(in crate::handshake) credential: Option<usize>,
    /// The CertificateRequest of TLS 1.2.
    pub(in crate::handshake) request: Option<&'a [u8]>,
    /// What the client shall send; `None` if nothing.
    pub(in crate::handshake) client_type: Option<CertificateType>,
}

impl Caching for ServerHandshakeCache {
    fn agree(
        &self,
        cx: &mut Cx<'_>,
        config: &ServerConfig,
        hello: &ClientHello,
        sends: &Sends<'_>,
        usage: Use,
    ) -> Result<Option<Box<dyn Agreed>>, Error> {
        let offer = hello.extensions().get::<Offer>()?.filter(|_| self.mode.has_tickets());
        let info = hello.extensions().get::<cached_info::Offer>()?.filter(|_| self.mode.has_cached_info());
        if offer.is_none() && info.is_none() {
            return Ok(None);
        }
        let form = if self.mode.has_cached_info() { Form::Fingerprint } else { Form::Empty };
        let mut agreed = InUse {
            store: Arc::clone(&self.store),
            answers: offer.is_some(),
            has_tickets: offer.is_some() && usage != Use::Nothing,
            form,
            own: None,
            request: None,
            ticket: None,
            client: None,
            believed: None,
        };
        if usage == Use::Nothing {
            return Ok(Some(Box::new(agreed)));
        }
        let has_in_info = |typ: u8, fingerprint: &Fingerprint| {
            let objects: Vec<_> = info.iter().flat_map(|info| info.of_type(typ)).collect();
            // In TLS 1.3 the message does not say which of several it is.
            (usage == Use::Tls12 || objects.len() == 1) && objects.contains(&&fingerprint.as_bytes()[..])
        };
        let has = |typ, name: Option<Name>, fingerprint: &Fingerprint| match form {
            Form::Empty => name == Some(fingerprint.name()),
            Form::Fingerprint => has_in_info(typ, fingerprint),
        };
        let offer = offer.unwrap_or_default();
        cx.draft.ticket_shown = !offer.tickets.is_empty();
        let own = sends.credential.and_then(|index| self.fingerprints.get(index)).copied();
        agreed.own = own.filter(|own| has(cached_info::CERT, offer.certificate, own));
        let sha256 = config.profile.provider.sha256;
        let request = sends.request.map(|request| Fingerprint::of_message(sha256, request));
        agreed.request = request.filter(|r| has(cached_info::CERT_REQ, offer.certificate_request, r));
        let usable = |peer: &CachedPeer| {
            Some(peer.certificate_type) == sends.client_type
                && peer.is_usable(cx.now, &config.settings, self.max_age)
        };
        let find = |ticket: &Ticket| self.store.find(ticket).filter(usable);
        let mut tickets = offer.tickets.iter().zip(0..).filter(|_| sends.client_type.is_some());
        let found = tickets.find_map(|(ticket, index)| Some(((*ticket, index), Box::new(find(ticket)?))));
        (agreed.ticket, agreed.client) = found.unzip();
        Ok(Some(Box::new(agreed)))
    }
}

impl Agreed for InUse {
    fn own(&self) -> Option<(Fingerprint, Form)> {
        self.own.map(|own| (own, self.form))
    }

    fn request(&self) -> Option<(Fingerprint, Form)> {
        self.request.map(|request| (request, self.form))
    }

    fn take_client(&mut self) -> Option<Box<CachedPeer>> {
        self.client.take()
    }

    fn client_proven(&mut self, cached: Option<Box<CachedPeer>>) {
        self.believed = cached;
    }

    fn extensions(&self, w: &mut ExtensionsWriter) {
        let named = |fingerprint: &Option<Fingerprint>| fingerprint.is_some() && self.form == Form::Empty;
        if self.answers {
            let ticket = self.ticket.map(|(_, index)| index);
            let (certificate, certificate_request) = (named(&self.own), named(&self.request));
            w.put(&Answer { certificate, certificate_request, ticket });
        }
        if self.form == Form::Fingerprint {
            let certificate = self.own.map(|_| cached_info::CERT);
            let types: Vec<_> =
                certificate.into_iter().chain(self.request.map(|_| cached_info::CERT_REQ)).collect();
            w.put_some((!types.is_empty()).then_some(cached_info::Confirmed(types)).as_ref());
        }
    }

    fn keep(self: Box<Self>, cx: &Cx<'_>, config: &ServerConfig) -> Result<(), Error> {
        let Some(exporter) = cx.progress.exporter.as_ref().filter(|_| self.has_tickets) else {
            return Ok(());
        };
        // A handshake that used it makes it no younger.
        let proven = self.believed.as_ref().and(self.ticket).map(|(ticket, _)| ticket);
        let peer = match (self.believed, &cx.agreed().peer) {
            (Some(cached), _) => Some(*cached),
            (None, Some(client)) => CachedPeer::new(
                &config.profile.trust,
                config.profile.provider.sha256,
                client,
                config.settings,
                cx.now,
            )?,
            (None, None) => None,
        };
        if let Some(peer) = peer {
            let mut ticket = Name::default();
            exporter.export(TICKET_LABEL, Some(peer.fingerprint.as_bytes()), &mut ticket)?;
            self.store.put(ticket, peer, proven);
        }
        Ok(())
    }
}
