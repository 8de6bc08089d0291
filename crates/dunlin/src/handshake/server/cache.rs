//! The server's side of the handshake cache (docs/handshake-cache.md): what it takes of what a client offers, and what it keeps.

use alloc::boxed::Box;

use crate::auth::PeerIdentity;
use crate::auth::select;
use crate::cache::{CachedPeer, Fingerprint, TICKET_LABEL, Ticket};
use crate::config::ServerConfig;
use crate::error::Error;
use crate::extension::handshake_cache::{Answer, Name, Offer};
use crate::handshake::Cx;
use crate::message::ClientHello;
use crate::wire::CertificateType;

/// What both sides use of the cache.
#[derive(Default)]
pub(super) struct Agreed {
    /// Of our Certificate, which the client has.
    pub(super) own: Option<Fingerprint>,
    /// The ticket, its index, and the client that it stands for.
    client: Option<(Ticket, u8, Box<CachedPeer>)>,
    /// By what the client was believed once it has proven itself, if its Certificate was abbreviated.
    pub(super) believed: Option<Box<CachedPeer>>,
}

impl Agreed {
    /// What of the client's offer is used; `None` if it has no cache, or this server has none. `own` is our credential, and
    /// `client_type` what the client shall send. A question to the store changes nothing in it: nobody has proven anything.
    pub(super) fn new(
        cx: &Cx<'_>,
        config: &ServerConfig,
        hello: &ClientHello<'_>,
        own: Option<select::Choice>,
        client_type: Option<CertificateType>,
    ) -> Result<Option<Self>, Error> {
        let (Some(cache), Some(offer)) = (&config.handshake_cache, hello.extensions.get::<Offer>()?) else {
            return Ok(None);
        };
        let own = own.and_then(|choice| cache.fingerprints.get(choice.index)).copied();
        let own = own.filter(|own| offer.certificate == Some(own.name()));
        let usable = |peer: &CachedPeer| {
            Some(peer.certificate_type) == client_type
                && peer.is_usable(cx.now, &config.settings, cache.max_age)
        };
        let find = |ticket: &Ticket| cache.store.find(ticket).filter(usable);
        let mut tickets = offer.tickets.iter().zip(0..).filter(|_| client_type.is_some());
        let found = tickets.find_map(|(ticket, index)| Some((*ticket, index, find(ticket)?)));
        let client = found.map(|(ticket, index, peer)| (ticket, index, Box::new(peer)));
        Ok(Some(Self { own, client, believed: None }))
    }

    /// The client, whose Certificate may be abbreviated.
    pub(super) fn client(&self) -> Option<Box<CachedPeer>> {
        self.client.as_ref().map(|(_, _, peer)| peer.clone())
    }

    pub(super) fn extension(&self) -> Answer {
        let ticket = self.client.as_ref().map(|(_, index, _)| *index);
        Answer { certificate: self.own.is_some(), certificate_request: false, ticket }
    }

    /// The client's Finished was verified: what is kept of it, and under which ticket.
    pub(super) fn keep(
        self,
        cx: &Cx<'_>,
        config: &ServerConfig,
        client: Option<&PeerIdentity>,
    ) -> Result<(), Error> {
        let (Some(cache), Some(exporter)) = (&config.handshake_cache, &cx.output.exporter) else {
            return Ok(());
        };
        // A handshake that used it makes it no younger.
        let proven = self.believed.as_ref().and(self.client).map(|(ticket, _, _)| ticket);
        let peer = match (self.believed, client) {
            (Some(cached), _) => Some(*cached),
            (None, Some(client)) => CachedPeer::new(&config.profile, client, config.settings, cx.now)?,
            (None, None) => None,
        };
        if let Some(peer) = peer {
            let mut ticket = Name::default();
            exporter.export(TICKET_LABEL, Some(peer.fingerprint.as_bytes()), &mut ticket)?;
            cache.store.put(ticket, peer, proven);
        }
        Ok(())
    }
}
