//! Builds what a client does.

use crate::sync::{Arc, share};
use alloc::vec::Vec;
use core::time::Duration;

use super::{Profile, check_mtu, session_settings_digest, settings_digest, with_trust};
use crate::auth::{Credential, Psk, Trust};
use crate::cache::{CacheMode, ClientCache, ClientHandshakeCache, Fingerprint};
use crate::early::EarlyDataProtocols;
use crate::error::{Error, Misuse};
use crate::handshake::client::{CERTIFICATES, Caching, EARLY_DATA};
use crate::handshake::setup::{ClientConfig, EarlyDataClient};
use crate::record::datagram::DEFAULT_MTU;
use crate::resume::{ClientSessions, SettingsDigest};
use crate::settings::PskChoice;
use crate::wire::NamedGroup;

impl ClientConfig {
    /// A client with this profile: a key share of its first group, the server's name sent, no PSK, no resumption.
    pub fn new(profile: Profile) -> Self {
        Self { certificates: Some(&CERTIFICATES), ..Self::without_certificates(profile) }
    }

    /// A client that knows its servers by these pre-shared keys alone, in order of preference: what handles certificates is
    /// not linked into a program that makes no other client.
    ///
    /// # Errors
    /// There is no key, or the profile has trust or credentials, which could not be used.
    pub fn psk_only(profile: Profile, psks: Vec<Arc<Psk>>) -> Result<Self, Error> {
        if psks.is_empty() || !profile.settings.trust.is_empty() || !profile.settings.credentials.is_empty() {
            let why =
                "a client with pre-shared keys alone needs one, and has no use for trust or credentials";
            return Err(Misuse::Config(why.into()).into());
        }
        Ok(Self { psks, ..Self::without_certificates(profile) })
    }

    fn without_certificates(profile: Profile) -> Self {
        let Profile { settings: profile, tls12 } = profile;
        let settings = settings_digest(&profile, b"client", 0);
        let session_settings = session_settings_digest(&profile, b"client");
        let key_shares = profile.groups.first().map(|g| g.name()).into_iter().collect();
        Self {
            profile,
            tls12,
            psks: Vec::new(),
            psk_choice: PskChoice::First,
            sessions: None,
            key_shares,
            send_server_name: true,
            credential_required: false,
            reverify: false,
            fallback: false,
            early_data: None,
            handshake_cache: None,
            mtu: DEFAULT_MTU,
            settings,
            session_settings,
            certificates: None,
        }
    }

    /// External PSKs to offer, in order of preference.
    #[must_use]
    pub fn with_psks(mut self, psks: Vec<Arc<Psk>>) -> Self {
        self.psks = psks;
        self
    }

    /// Which key is for which server of TLS 1.2, by the hint that it gives. Sessions that stem from a key resume while it is
    /// among those of [`Self::with_psks`].
    #[must_use]
    pub fn with_psk_choice(mut self, choice: PskChoice) -> Self {
        self.psk_choice = choice;
        self
    }

    /// Where tickets are kept between connections. Without it, none is used.
    #[must_use]
    pub fn with_sessions(mut self, sessions: Arc<dyn ClientSessions>) -> Self {
        self.sessions = Some(sessions);
        self
    }

    /// The groups for which the first ClientHello carries a share; with none, every server answers with a
    /// HelloRetryRequest. The share of a hybrid, where it is the only one, brings that of its curve along.
    ///
    /// # Errors
    /// A group is not in the profile, or stands twice (RFC 8446 §4.2.8).
    pub fn with_key_shares(mut self, groups: Vec<NamedGroup>) -> Result<Self, Error> {
        if let Some((_, group)) =
            groups.iter().enumerate().find(|(i, g)| groups.iter().take(*i).any(|o| o == *g))
        {
            return Err(Misuse::Config(alloc::format!("two key shares for {group}")).into());
        }
        if let Some(group) = groups.iter().find(|g| self.profile.group(**g).is_none()) {
            let why = alloc::format!("a key share for {group}, which the profile does not have");
            return Err(Misuse::Config(why).into());
        }
        self.key_shares = groups;
        Ok(self)
    }

    /// Whether the server's name is sent (RFC 6066 §3). It is checked all the same.
    #[must_use]
    pub const fn with_server_name_sent(mut self, on: bool) -> Self {
        self.send_server_name = on;
        self
    }

    /// Whether the handshake ends when the server asks who this client is and none of its credentials suits: the reason
    /// is known here, and the server would only say certificate_required. Without it, or with no credential at all, the
    /// client goes on and says nothing about itself (RFC 8446 §4.4.2.3).
    #[must_use]
    pub const fn with_credential_required(mut self, on: bool) -> Self {
        self.credential_required = on;
        self
    }

    /// Whether the server's chain or key, as the session has it, is verified again when a session is resumed: what has
    /// been revoked or distrusted since then is found without a full handshake.
    #[must_use]
    pub const fn with_reverification(mut self, on: bool) -> Self {
        self.reverify = on;
        self
    }

    /// Whether this is another attempt, without a version that this client has, after one with it failed: a server that has
    /// it, too, then refuses, as somebody in between may have made it fail (RFC 7507 §4). Servers that can negotiate make no
    /// such attempt necessary.
    #[must_use]
    pub const fn with_fallback(mut self, on: bool) -> Self {
        self.fallback = on;
        self
    }

    /// Where this client keeps the certificates of servers, so that they need not be sent again, and by which tickets servers
    /// know its own; used with servers that have a cache, too ([`crate::cache`]). An entry is used until `max_age` after the
    /// server's certificates were verified.
    #[must_use]
    pub fn with_handshake_cache(
        mut self,
        mode: CacheMode,
        store: Arc<dyn ClientCache>,
        max_age: Duration,
    ) -> Self {
        let sha256 = self.profile.provider.sha256;
        let of = |c: &Credential| Fingerprint::of(sha256, c.certificate_type(), c.entries()).ok();
        let fingerprints = self.profile.credentials.iter().map(of).collect();
        self.handshake_cache =
            Some(share!(ClientHandshakeCache { mode, store, max_age, fingerprints } => dyn Caching));
        self
    }

    /// For which application protocols early data is offered where a session allows it ([`crate::TlsConnection`] only).
    /// Early data can reach the server twice: say so only for protocols that bear it (RFC 8446 §8, appendix E.5).
    #[must_use]
    pub fn with_early_data(mut self, protocols: EarlyDataProtocols) -> Self {
        self.early_data = Some(EarlyDataClient { protocols, steps: &EARLY_DATA });
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

    /// The same client with another trust, e.g. after new lists of revoked certificates. What it keeps of servers, sessions and
    /// their certificates, is of the trust that has verified them: it stays in the stores, and is not used.
    ///
    /// # Errors
    /// The trust does not go with the rest of the profile.
    pub fn with_trust(mut self, trust: Trust) -> Result<Self, Error> {
        self.profile = with_trust(&self.profile, trust)?;
        self.settings = settings_digest(&self.profile, b"client", 0);
        self.session_settings = session_settings_digest(&self.profile, b"client");
        Ok(self)
    }

    /// Its profile.
    pub fn profile(&self) -> Profile {
        Profile { settings: Arc::clone(&self.profile), tls12: self.tls12 }
    }

    /// The digest under which sessions are kept: of what authenticates a server under this configuration, and of the
    /// credentials by which this client proves who it is.
    pub const fn session_settings(&self) -> &SettingsDigest {
        &self.session_settings
    }
}
