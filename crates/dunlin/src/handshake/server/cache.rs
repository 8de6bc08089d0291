//! The server's side of the handshake cache (docs/handshake-cache.md): what it accepts of a client's offer,
//! and what it keeps.
//!
//! The handshake reaches it through a trait object of the configuration, so programs without a cache do not
//! link it.

use crate::sync::{Arc, share};
use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::auth::{Belief, PeerIdentity};
use crate::cache::{CachedPeer, Fingerprint, ServerCache, ServerHandshakeCache, Ticket, Vouched};
use crate::error::Error;
use crate::extension::handshake_cache::{Answer, Name, Offer};
use crate::extension::{ExtensionsWriter, cached_info};
use crate::handshake::Cx;
use crate::handshake::cached::server::{Agreed, Caching, Sends};
use crate::handshake::cached::{Form, Use};
use crate::handshake::setup::ServerConfig;
use crate::message::ClientHello;
use crate::resume::SettingsDigest;
use crate::schedule::TICKET_LABEL;
use crate::time::Now;

/// The part of the offer in this ClientHello that the server accepts. `None` if either side has no cache.
pub(super) fn agree(
    cx: &mut Cx<'_>,
    config: &ServerConfig,
    hello: &ClientHello,
    sends: &Sends<'_>,
    usage: Use,
) -> Result<Option<Box<dyn Agreed>>, Error> {
    match &config.parts.cache {
        Some(cache) => cache.agree(cx, config, hello, sends, usage),
        None => Ok(None),
    }
}

/// The part of this server's cache that the handshake uses.
struct InUse {
    store: Arc<dyn ServerCache>,
    /// Whether the client supports handshake_cache.
    answers: bool,
    /// Whether both sides derive a ticket.
    has_tickets: bool,
    /// The form of abbreviated TLS 1.2 messages.
    form: Form,
    /// The fingerprint of the server's Certificate, if the client has it.
    own: Option<Fingerprint>,
    /// The fingerprint of the server's CertificateRequest, if the client has it.
    request: Option<Fingerprint>,
    /// The ticket by which the server recognized the client, and its index in the offer.
    ticket: Option<(Ticket, u8)>,
    /// The cached client to which the ticket belongs.
    client: Option<Box<CachedPeer>>,
    /// The evidence for the client, once it has authenticated.
    vouched: Option<Vouched>,
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
            vouched: None,
        };
        if usage == Use::Nothing {
            return Ok(Some(Box::new(agreed)));
        }
        let has_in_info = |typ: u8, fingerprint: &Fingerprint| {
            let objects: Vec<_> = info.iter().flat_map(|info| info.of_type(typ)).collect();
            // The abbreviated message in TLS 1.3 does not say to which of several objects it refers.
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
                && peer.is_usable(cx.now, &config.digests.trust, self.max_age)
                && config.profile.trust.still_believe(Some(&peer.identity), cx.now) == Belief::Holds
        };
        let find = |ticket: &Ticket| self.store.find(ticket).filter(usable);
        let mut tickets = offer.tickets.iter().zip(0..).filter(|_| sends.client_type.is_some());
        let found = tickets.find_map(|(ticket, index)| Some(((*ticket, index), Box::new(find(ticket)?))));
        (agreed.ticket, agreed.client) = found.unzip();
        Ok(Some(Box::new(agreed)))
    }

    fn recognize(&self, now: Now, ticket: &Ticket, trusts: &[SettingsDigest]) -> Option<PeerIdentity> {
        let peer = self.store.find(ticket)?;
        let is_usable = trusts.iter().any(|trust| peer.is_usable(now, trust, self.max_age));
        is_usable.then_some(peer.identity)
    }

    fn store(&self) -> Arc<dyn ServerCache> {
        Arc::clone(&self.store)
    }

    fn with_store(&self, store: Arc<dyn ServerCache>) -> Arc<dyn Caching> {
        let Self { mode, store: _, max_age, fingerprints } = self.clone();
        share!(ServerHandshakeCache { mode, store, max_age, fingerprints } => dyn Caching)
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

    fn client_proven(&mut self, vouched: Option<Vouched>) {
        self.vouched = vouched;
    }

    fn extensions(&self, w: &mut ExtensionsWriter) {
        let named = |fingerprint: &Option<Fingerprint>| fingerprint.is_some() && self.form == Form::Empty;
        if self.answers {
            let ticket = self.ticket.map(|(_, index)| index);
            let certificate = named(&self.own);
            let certificate_request = named(&self.request);
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
        // A handshake that used the entry does not extend its lifetime.
        let is_believed = matches!(self.vouched, Some(Vouched::Entry(_)));
        let proven = self.ticket.filter(|_| is_believed).map(|(ticket, _)| ticket);
        let peer = match (self.vouched, &cx.agreed().peer) {
            (Some(Vouched::Entry(entry)), _) => Some(*entry),
            (Some(Vouched::Verdict(proven)), Some(client)) => CachedPeer::new(
                &config.profile.trust,
                config.profile.provider.sha256,
                client,
                proven,
                config.digests.trust,
                cx.now,
            )?,
            _ => None,
        };
        if let Some(peer) = peer {
            let mut ticket = Name::default();
            exporter.export(TICKET_LABEL, Some(peer.fingerprint.as_bytes()), &mut ticket)?;
            self.store.put(ticket, peer, proven);
        }
        Ok(())
    }
}
