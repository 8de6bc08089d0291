//! Builds what a server does.

use crate::sync::{Arc, share};
use alloc::vec::Vec;
use core::time::Duration;

use super::{Profile, check_mtu, settings_digest, with_trust};
use crate::auth::{Credential, Trust};
use crate::cache::{CacheMode, Fingerprint, ServerCache, ServerHandshakeCache};
use crate::early::{EarlyDataProtocols, EarlyDataServer, MAX_EARLY_DATA, SingleUse};
use crate::error::{Error, Misuse};
use crate::handshake::server::Caching;
use crate::handshake::setup::ServerConfig;
use crate::record::datagram::DEFAULT_MTU;
use crate::resume::Tickets;
use crate::settings::{ClientAuth, PskSource};

impl ServerConfig {
    /// A server with this profile: clients are not asked who they are, no PSK, no tickets, no cookies.
    ///
    /// # Errors
    /// The random source failed.
    pub fn new(profile: Profile) -> Result<Self, Error> {
        let Profile { settings: profile, tls12 } = profile;
        let mut cookie_key = zeroize::Zeroizing::new([0; 32]);
        profile.provider.random.fill(&mut *cookie_key)?;
        let settings = settings_digest(&profile, b"server", ClientAuth::None as u8);
        Ok(Self {
            profile,
            tls12,
            client_auth: ClientAuth::None,
            psks: PskSource::None,
            psk_identity_hint: Vec::new(),
            tickets: Tickets::none(),
            cookies: false,
            choose_profile: false,
            early_data: None,
            single_use: None,
            handshake_cache: None,
            mtu: DEFAULT_MTU,
            cookie_key: Arc::new(cookie_key),
            settings,
        })
    }

    /// Whether clients are asked for a certificate or raw key.
    ///
    /// # Errors
    /// They would be, but the profile trusts no kind of credential.
    pub fn with_client_auth(mut self, client_auth: ClientAuth) -> Result<Self, Error> {
        if client_auth != ClientAuth::None && self.profile.trust.is_empty() {
            return Err(
                Misuse::Config("clients shall prove who they are, but nothing is trusted".into()).into()
            );
        }
        self.client_auth = client_auth;
        self.settings = settings_digest(&self.profile, b"server", client_auth as u8);
        Ok(self)
    }

    /// Where external PSKs are found.
    #[must_use]
    pub fn with_psks(mut self, psks: PskSource) -> Self {
        self.psks = psks;
        self
    }

    /// What a server of TLS 1.2 says, in the clear, to help clients choose their key (RFC 4279 §5.2): what it means is for
    /// those to say who give keys out, and clients that were told nothing ignore it. None is said if it is empty, as by
    /// default. Not every client takes more than 128 bytes.
    ///
    /// # Errors
    /// It is longer than 65535 bytes.
    pub fn with_psk_identity_hint(mut self, hint: impl Into<Vec<u8>>) -> Result<Self, Error> {
        self.psk_identity_hint = hint.into();
        match self.psk_identity_hint.len() > usize::from(u16::MAX) {
            true => Err(Misuse::Config("a PSK identity hint has at most 65535 bytes".into()).into()),
            false => Ok(self),
        }
    }

    /// Which tickets clients get, and where they are found again.
    #[must_use]
    pub fn with_tickets(mut self, tickets: Tickets) -> Self {
        self.tickets = tickets;
        self
    }

    /// For which application protocols early data is taken, how much at most with each ticket, in bytes, and who says
    /// that a ticket comes for the first time. Tickets that were given out without early data stay without.
    ///
    /// # Errors
    /// The size is zero or more than [`MAX_EARLY_DATA`].
    pub fn with_early_data(
        mut self,
        protocols: EarlyDataProtocols,
        max_size: u32,
        single_use: SingleUse,
    ) -> Result<Self, Error> {
        if max_size == 0 || max_size > MAX_EARLY_DATA {
            let why = alloc::format!("early data is 1 to {MAX_EARLY_DATA} bytes, not {max_size}");
            return Err(Misuse::Config(why).into());
        }
        self.early_data = Some(EarlyDataServer { protocols, max_size });
        Ok(self.with_single_use(single_use))
    }

    /// What says that a ticket comes for the first time, on a server that takes no early data itself. It is needed where
    /// another server takes early data with the same tickets: this server refuses the early data of a first flight, and the
    /// register keeps the other one from accepting a copy of that flight (RFC 8446 §8.2).
    /// [`ServerConfig::with_early_data`] sets it, too. A shared store ([`Tickets::stateful`]) needs none.
    #[must_use]
    pub fn with_single_use(mut self, single_use: SingleUse) -> Self {
        self.single_use = Some(single_use);
        self
    }

    /// Where this server keeps the certificates of clients, so that they need not be sent again; clients that have this server's
    /// get it abbreviated ([`crate::cache`]). An entry is used until `max_age` after the client's certificates were verified.
    /// [`CacheMode::Rfc7924`] keeps nothing of clients, whatever the store.
    ///
    /// # Errors
    /// A certificate of this server is too long for a message.
    pub fn with_handshake_cache(
        mut self,
        mode: CacheMode,
        store: Arc<dyn ServerCache>,
        max_age: Duration,
    ) -> Result<Self, Error> {
        let sha256 = self.profile.provider.sha256;
        let of = |c: &Credential| Fingerprint::of(sha256, c.certificate_type(), c.entries());
        let fingerprints = self.profile.credentials.iter().map(of).collect::<Result<_, _>>()?;
        self.handshake_cache =
            Some(share!(ServerHandshakeCache { mode, store, max_age, fingerprints } => dyn Caching));
        Ok(self)
    }

    /// Whether every client must return a cookie first (RFC 8446 §4.2.2): a round trip before anything is signed. The
    /// cookie does not name the client's address, so over datagrams it does not prove one yet. A client without TLS 1.3 has no
    /// cookie to return and is not asked for one.
    #[must_use]
    pub const fn with_cookies(mut self, on: bool) -> Self {
        self.cookies = on;
        self
    }

    /// Whether each ClientHello raises [`crate::Question::ChooseProfile`] before anything is decided.
    #[must_use]
    pub const fn with_profile_choice(mut self, on: bool) -> Self {
        self.choose_profile = on;
        self
    }

    /// The largest datagram to send, in bytes of UDP payload: 64 to 65507, and 1200 if nothing is said.
    ///
    /// # Errors
    /// It is outside of this range.
    pub fn with_mtu(mut self, mtu: usize) -> Result<Self, Error> {
        self.mtu = check_mtu(mtu)?;
        Ok(self)
    }

    /// The same server with another trust, e.g. after new lists of revoked certificates. Sessions and cached clients are of the
    /// trust that has verified them: each of them makes a full handshake first.
    ///
    /// # Errors
    /// The trust does not go with the rest of the profile, or trusts nobody where clients shall prove who they are.
    pub fn with_trust(mut self, trust: Trust) -> Result<Self, Error> {
        self.profile = with_trust(&self.profile, trust)?;
        let client_auth = self.client_auth;
        self.with_client_auth(client_auth)
    }

    /// Its profile.
    pub fn profile(&self) -> Profile {
        Profile { settings: Arc::clone(&self.profile), tls12: self.tls12 }
    }
}
