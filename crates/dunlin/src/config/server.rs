//! Building the configuration of a server.

use crate::sync::{Arc, share};
use alloc::vec::Vec;
use core::time::Duration;

use super::{Profile, profile_digest, rules, trust_digest, with_trust};
use crate::auth::{Credential, Verifiers};
use crate::cache::{CacheMode, Fingerprint, ServerCache, ServerHandshakeCache};
use crate::early::{EarlyDataProtocols, EarlyDataServer, MAX_EARLY_DATA};
use crate::error::{Error, Misuse};
use crate::handshake::ServerParts;
use crate::handshake::cached::server::Caching;
use crate::handshake::setup::{OthersTickets, ServerConfig, SettingsDigests};
use crate::resume::{SettingsDigest, Tickets};
use crate::settings::{ClientAuth, CookieKeys, DatagramSettings, ProfileSettings, PskSource};

impl ServerConfig {
    /// A server that authenticates itself by the credentials of this profile. It does not authenticate
    /// clients, and has no PSK, tickets or cookies. [`Self::psk_only`] makes a server without credentials.
    ///
    /// # Errors
    /// The profile has no credential, or the random source failed.
    pub fn new(profile: Profile) -> Result<Self, Error> {
        if !serves_without_psk(&profile.settings) {
            let why = "a server needs a credential: add one, or use ServerConfig::psk_only";
            return Err(rules::broken(&profile.settings, why.into()));
        }
        Self::of(profile)
    }

    /// A server that authenticates itself only by external PSKs, which `keys` finds. It has no tickets or
    /// cookies.
    ///
    /// # Errors
    /// The profile has a credential or [`crate::ProfileBuilder::tls_cert_with_extern_psk`], or the random
    /// source failed.
    pub fn psk_only(profile: Profile, keys: PskSource) -> Result<Self, Error> {
        if !profile.settings.credentials.is_empty() {
            let why = "a server with PSKs alone uses no credential: leave it out, or use ServerConfig::new and with_psks";
            return Err(rules::broken(&profile.settings, why.into()));
        }
        if profile.settings.psk.tls_cert_with_extern_psk {
            let why = "a PSK beside certificates needs a credential: add one, and use ServerConfig::new and with_psks";
            return Err(rules::broken(&profile.settings, why.into()));
        }
        Ok(Self { psks: Some(keys), ..Self::of(profile)? })
    }

    /// A server that raises [`crate::Question::ChooseProfile`] for each first ClientHello and serves the
    /// client by the configuration in the answer. Its own profile serves no client. If those configurations
    /// allow early data, give this one their tickets, too ([`Self::with_tickets`], [`Self::with_marks_of`]).
    ///
    /// # Errors
    /// The random source failed.
    pub fn choosing(profile: Profile) -> Result<Self, Error> {
        Ok(Self { choose_profile: true, ..Self::of(profile)? })
    }

    /// A server whose connections end with the handshake: it then sends close_notify, and takes no data. An
    /// authority validates a name in this way (RFC 8737 §3). Over streams, this configuration may also be the
    /// answer to [`crate::Question::ChooseProfile`] of a server with [`crate::ServerProfiles`], although it
    /// is none of them: no data passes that a rank protects.
    ///
    /// # Errors
    /// Those of [`Self::new`].
    pub fn handshake_only(profile: Profile) -> Result<Self, Error> {
        Ok(Self { handshake_only: true, ..Self::new(profile)? })
    }

    fn of(profile: Profile) -> Result<Self, Error> {
        let Profile { settings: profile, tls12, ssi } = profile;
        let mut cookie_key = zeroize::Zeroizing::new([0; 32]);
        profile.provider.random.fill(&mut *cookie_key)?;
        let digests = SettingsDigests {
            trust: trust_digest(&profile, b"server", ClientAuth::None as u8),
            profile: profile_digest(&profile),
        };
        Ok(Self {
            profile,
            parts: ServerParts { tls12, ssi, cache: None },
            client_auth: ClientAuth::None,
            psks: None,
            psk_identity_hint: Vec::new(),
            tickets: Tickets::none(),
            cookies: None,
            choose_profile: false,
            handshake_only: false,
            ranks: None,
            others: Vec::new(),
            retry_choice: None,
            changes_certificate: false,
            in_place_of: None,
            early_data: None,
            datagram: DatagramSettings::default(),
            connection_ids: None,
            cookie_keys: CookieKeys::new(&*cookie_key)?,
            digests,
            others_tickets: OthersTickets::default(),
        })
    }

    /// Sets whether the server requests a certificate or raw public key from clients.
    ///
    /// # Errors
    /// The server would request one, but the profile trusts no kind of credential.
    pub fn with_client_auth(mut self, client_auth: ClientAuth) -> Result<Self, Error> {
        if client_auth != ClientAuth::None && self.profile.trust.is_empty() {
            return Err(
                Misuse::Config("clients shall prove who they are, but nothing is trusted".into()).into()
            );
        }
        self.client_auth = client_auth;
        self.digests.trust = trust_digest(&self.profile, b"server", client_auth as u8);
        Ok(self)
    }

    /// Sets the source of external PSKs, for a server that also has credentials ([`Self::psk_only`] is for
    /// servers without).
    #[must_use]
    pub fn with_psks(mut self, psks: PskSource) -> Self {
        self.psks = Some(psks);
        self
    }

    /// Sets the hint that a TLS 1.2 server sends, unencrypted, to help clients choose their key (RFC 4279
    /// §5.2). The issuer of the keys defines its meaning, and other clients ignore it. If it is empty, the
    /// default, the server sends none. Some clients do not accept more than 128 bytes.
    ///
    /// # Errors
    /// It is longer than 65535 bytes.
    pub fn with_psk_identity_hint(mut self, hint: impl Into<Vec<u8>>) -> Result<Self, Error> {
        self.psk_identity_hint = hint.into();
        if self.psk_identity_hint.len() > usize::from(u16::MAX) {
            Err(Misuse::Config("a PSK identity hint has at most 65535 bytes".into()).into())
        } else {
            Ok(self)
        }
    }

    /// Sets which tickets clients get, and where the server keeps their sessions.
    #[must_use]
    pub fn with_tickets(mut self, tickets: Tickets) -> Self {
        self.tickets = tickets;
        self
    }

    /// Enables early data for these application protocols, with at most `max_size` bytes for each ticket. The
    /// tickets of the server must tell whether one is used for the first time: [`Tickets::stateful`],
    /// [`Tickets::ask`], or keys with a register ([`crate::resume::SealTickets::single_use`]). With other
    /// tickets the server refuses early data. Tickets that were issued without early data do not gain it.
    ///
    /// # Errors
    /// `max_size` is zero or more than [`MAX_EARLY_DATA`].
    pub fn with_early_data(mut self, protocols: EarlyDataProtocols, max_size: u32) -> Result<Self, Error> {
        if max_size == 0 || max_size > MAX_EARLY_DATA {
            let why = alloc::format!("early data is 1 to {MAX_EARLY_DATA} bytes, not {max_size}");
            return Err(Misuse::Config(why).into());
        }
        self.early_data = Some(EarlyDataServer { protocols, max_size });
        Ok(self)
    }

    /// Marks the tickets of `other` as used, too, if they come with early data. A server that rejects early
    /// data marks its ticket, so that no server accepts a copy (RFC 8446 §8.2). For this it must know the
    /// keys or the store of the ticket.
    ///
    /// This is necessary if `other` has tickets of its own: if it answers this server's
    /// [`crate::Question::ChooseProfile`], or if this configuration replaces it. The server accepts early
    /// data only with a ticket that it has marked before it asks that question. [`crate::ServerProfiles`]
    /// does this for its configurations. It is also necessary if the provider of `other` has cipher suites
    /// that this one lacks.
    #[must_use]
    pub fn with_marks_of(mut self, other: &Self) -> Self {
        for suite in other.profile.provider.cipher_suites.iter().chain(&other.others_tickets.suites) {
            if self.suite_of_marks(suite.id).is_none() {
                self.others_tickets.suites.push(*suite);
            }
        }
        if !self.marks().any(|known| known.is_same(&other.tickets.kind)) {
            self.others_tickets.kinds.push(other.tickets.kind.clone());
        }
        self
    }

    /// Enables the handshake cache ([`crate::cache`]). The store keeps certificates of clients, so that they
    /// need not send them again. To clients that have this server's certificates, the server abbreviates its
    /// own. It uses an entry until `max_age` after it verified the client's certificates. With
    /// [`CacheMode::Rfc7924`] the server keeps no certificates of clients.
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
        self.parts.cache =
            Some(share!(ServerHandshakeCache { mode, store, max_age, fingerprints } => dyn Caching));
        Ok(self)
    }

    /// Replaces the store of the handshake cache with what `wrap` makes of it. The new store can hide a
    /// client that must present its certificates again: its `find` returns `None`. Without a handshake cache
    /// this changes nothing.
    #[must_use]
    pub fn map_handshake_cache(
        mut self,
        wrap: impl FnOnce(Arc<dyn ServerCache>) -> Arc<dyn ServerCache>,
    ) -> Self {
        self.parts.cache = self.parts.cache.map(|cache| cache.with_store(wrap(cache.store())));
        self
    }

    /// Sets whether every client must first return a cookie (RFC 8446 §4.2.2, RFC 6347 §4.2.1), which costs a
    /// round trip. By default this is so over datagrams, and not over streams.
    ///
    /// Over datagrams the cookie contains the client's address. Before a client has returned it, the server
    /// looks nothing up, asks nothing, signs nothing, and sends no more than three times what it has
    /// received. Without cookies, a server sends its whole flight to any address, forged or not. Switch them
    /// off only in a network to which no stranger can send.
    ///
    /// Over streams, clients without TLS 1.3 cannot return a cookie, and the server requests none from them.
    #[must_use]
    pub const fn with_cookies(mut self, on: bool) -> Self {
        self.cookies = Some(on);
        self
    }

    /// Sets the keys of cookies. Without them, each configuration has a random key of its own.
    #[must_use]
    pub fn with_cookie_keys(mut self, keys: CookieKeys) -> Self {
        self.cookie_keys = keys;
        self
    }

    /// Sets whether each first ClientHello raises [`crate::Question::ChooseProfile`] before the server makes
    /// other choices. A server that only chooses ([`Self::choosing`]) always raises it.
    #[must_use]
    pub fn with_profile_choice(mut self, on: bool) -> Self {
        self.choose_profile = on || !serves_clients(&self);
        self
    }

    /// Sets whether a renegotiation to this profile ([`crate::ServerProfiles`]) shows its own certificate. By
    /// default it shows the certificate of the first handshake again, because BoringSSL's clients and this
    /// engine's end a connection whose server changes its certificate. OpenSSL's clients accept another one,
    /// and so do Java's with extended master secret.
    #[must_use]
    pub const fn with_certificate_change(mut self, on: bool) -> Self {
        self.changes_certificate = on;
        self
    }

    /// The same server with another trust, for example with new CRLs. Sessions and cached certificates are
    /// bound to the trust that verified them, so each client makes a full handshake first.
    ///
    /// # Errors
    /// The profile with the new trust breaks a rule, or the server requests certificates but the new trust
    /// accepts none.
    pub fn with_trust(mut self, trust: impl Into<Verifiers>) -> Result<Self, Error> {
        self.profile = with_trust(&self.profile, trust.into())?;
        let client_auth = self.client_auth;
        self.with_client_auth(client_auth)
    }

    /// The digest to which sessions and frozen associations are bound. It covers the settings that
    /// authenticate clients.
    pub const fn session_settings(&self) -> &SettingsDigest {
        &self.digests.trust
    }

    /// Its profile.
    pub fn profile(&self) -> Profile {
        Profile { settings: Arc::clone(&self.profile), tls12: self.parts.tls12, ssi: self.parts.ssi }
    }
}

/// Whether a server with this configuration can serve clients.
pub(super) fn serves_clients(config: &ServerConfig) -> bool {
    config.psks.is_some() || serves_without_psk(&config.profile)
}

/// Whether a server with this profile can serve clients without a PSK.
fn serves_without_psk(profile: &ProfileSettings) -> bool {
    // Anonymous suites, of the laboratory alone, need no credential.
    let mut suites = profile.tls12.iter().flat_map(|tls12| &tls12.suites);
    !profile.credentials.is_empty() || suites.any(|suite| suite.is_anonymous())
}
