//! The client's side of the handshake cache (docs/handshake-cache.md): what it offers, what the server has taken of that, and
//! what it keeps.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::address::ServerAddress;
use crate::auth::{Credential, PeerIdentity};
use crate::cache::{CacheKey, CachedPeer, CachedServer, ClientCache, Fingerprint, TICKET_LABEL};
use crate::config::ClientConfig;
use crate::error::{Error, PeerMisbehaved};
use crate::extension::handshake_cache::{Answer, Name, Offer};
use crate::handshake::Cx;
use crate::profile::Profile;
use crate::time::Now;

/// What this client says of its cache.
pub(super) struct CacheOffer {
    store: Arc<dyn ClientCache>,
    key: CacheKey,
    known: CachedServer,
    /// What of it can be used.
    server: Option<Box<CachedPeer>>,
    tickets: Vec<(Name, Fingerprint)>,
}

impl CacheOffer {
    /// What there is for this server; `None` without a cache.
    pub(super) fn new(config: &ClientConfig, server: &ServerAddress, now: Now) -> Option<Self> {
        let cache = config.handshake_cache.as_ref()?;
        let key = CacheKey { name: server.host(), port: server.port, settings: *config.settings.as_bytes() };
        let known = cache.store.get(&key).unwrap_or_default();
        let usable =
            |peer: &&CachedPeer| !known.suspended && peer.is_usable(now, &config.settings, cache.max_age);
        let server = known.server.as_ref().filter(usable).cloned().map(Box::new);
        // Whom this client would have to verify in full it tells nothing that names itself.
        let tickets = if server.is_some() { known.tickets.clone() } else { Vec::new() };
        Some(Self { store: Arc::clone(&cache.store), key, known, server, tickets })
    }

    pub(super) fn extension(&self) -> Offer {
        Offer {
            certificate: self.server.as_ref().map(|server| server.fingerprint.name()),
            certificate_request: None,
            tickets: self.tickets.iter().map(|(ticket, _)| *ticket).collect(),
        }
    }

    /// What the server has taken. From here on a handshake that fails makes the next one a full one: the names are short, and
    /// may be those of somebody else.
    pub(super) fn answered(self, cx: &mut Cx<'_>, answer: Answer) -> Result<Agreed, Error> {
        let illegal = |what| Err(PeerMisbehaved::IllegalParameter(what).into());
        if answer.certificate && self.server.is_none() || answer.certificate_request {
            return illegal("handshake_cache: what was not offered");
        }
        let own = match answer.ticket {
            None => None,
            Some(index) => match self.tickets.get(usize::from(index)) {
                Some((_, fingerprint)) => Some(*fingerprint),
                None => return illegal("handshake_cache: a ticket that was not offered"),
            },
        };
        if answer != Answer::default() {
            let (store, key) = (Arc::clone(&self.store), self.key.clone());
            let suspended = CachedServer { suspended: true, ..self.known.clone() };
            cx.output.on_failure = Some(Box::new(move || store.put(key, suspended)));
        }
        let server = self.server.clone().filter(|_| answer.certificate);
        Ok(Agreed { offer: self, server, own, proven: None })
    }
}

/// What both sides use of the cache.
pub(super) struct Agreed {
    offer: CacheOffer,
    /// The server, if its Certificate may be abbreviated; once it has proven itself, if it was.
    pub(super) server: Option<Box<CachedPeer>>,
    /// Of the Certificate of this client that the server has.
    pub(super) own: Option<Fingerprint>,
    /// Of the Certificate by which this client has proven itself.
    proven: Option<Fingerprint>,
}

impl Agreed {
    /// This client proves itself by `credential`; the fingerprint of its Certificate, if the server has it.
    pub(super) fn proves_by(
        &mut self,
        profile: &Profile,
        credential: Option<&Credential>,
    ) -> Result<Option<Fingerprint>, Error> {
        let sha256 = profile.provider.sha256;
        let of = |c: &Credential| Fingerprint::of(sha256, c.certificate_type(), c.entries());
        self.proven = credential.map(of).transpose()?;
        Ok(self.own.filter(|own| self.proven == Some(*own)))
    }

    /// The handshake is complete; `server` is who the server has proven to be.
    pub(super) fn keep(
        self,
        cx: &mut Cx<'_>,
        config: &ClientConfig,
        server: Option<&PeerIdentity>,
    ) -> Result<(), Error> {
        let server = match (self.server, server) {
            // A handshake that used it makes it no younger.
            (Some(cached), _) => Some(*cached),
            (None, Some(server)) => CachedPeer::new(&config.profile, server, config.settings, cx.now)?,
            (None, None) => None,
        };
        // The one that was shown is not shown again: nobody shall see by it that two connections are of one client.
        let tickets = match (self.proven, &cx.output.exporter) {
            (Some(own), Some(exporter)) => {
                let mut ticket = Name::default();
                exporter.export(TICKET_LABEL, Some(own.as_bytes()), &mut ticket)?;
                [(ticket, own)].to_vec()
            }
            _ => self.offer.known.tickets,
        };
        self.offer.store.put(self.offer.key, CachedServer { server, tickets, suspended: false });
        Ok(())
    }
}
