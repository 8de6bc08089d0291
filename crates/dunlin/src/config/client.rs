//! Building the configuration of a client.

use crate::sync::{Arc, share};
use alloc::vec::Vec;
use core::time::Duration;

use super::{Profile, session_digest, trust_digest, with_trust};
use crate::auth::{Credential, Psk, Verifiers};
use crate::cache::{CacheMode, ClientCache, ClientHandshakeCache, Fingerprint};
use crate::early::EarlyDataProtocols;
use crate::error::{Error, Misuse};
use crate::handshake::ClientParts;
use crate::handshake::cached::client::Caching;
use crate::handshake::client::{CERTIFICATES, EARLY_DATA};
use crate::handshake::negotiate::early_data::EarlyDataClient;
use crate::handshake::setup::ClientConfig;
use crate::resume::{ClientSessions, SettingsDigest};
use crate::settings::{ConnectionIds, DatagramSettings, Linking, Multihoming, PskChoice};
use crate::wire::NamedGroup;

/// Whether connection IDs differ, if they are not empty. Short random ones may be equal by chance.
fn has_variety(ids: &dyn ConnectionIds) -> Result<bool, Error> {
    const ATTEMPTS: usize = 4;
    let first = ids.issue()?;
    for _ in 1..ATTEMPTS {
        if first.is_empty() || ids.issue()? != first {
            return Ok(true);
        }
    }
    Ok(false)
}

impl ClientConfig {
    /// A client with this profile. It sends a key share of the profile's first group and the server's name.
    /// It has no PSK and does not resume sessions.
    pub fn new(profile: Profile) -> Self {
        let mut client = Self::without_certificates(profile);
        client.parts.certificates = Some(&CERTIFICATES);
        client
    }

    /// A client that authenticates servers only by these pre-shared keys, in order of preference. A program
    /// with no other client does not link the code for certificates.
    ///
    /// # Errors
    /// The list is empty, or the profile has trust or credentials, which this client could not use.
    pub fn psk_only(profile: Profile, psks: Vec<Arc<Psk>>) -> Result<Self, Error> {
        if psks.is_empty() || !profile.settings.trust.is_empty() || !profile.settings.credentials.is_empty() {
            let why =
                "a client with pre-shared keys alone needs one, and has no use for trust or credentials";
            return Err(Misuse::Config(why.into()).into());
        }
        Ok(Self { psks, ..Self::without_certificates(profile) })
    }

    fn without_certificates(profile: Profile) -> Self {
        let Profile { settings: profile, tls12, ssi } = profile;
        let settings = trust_digest(&profile, b"client", 0);
        let session_settings = session_digest(&profile, b"client");
        let key_shares = profile.groups.first().map(|g| g.name()).into_iter().collect();
        Self {
            profile,
            parts: ClientParts { tls12, ssi, ..ClientParts::default() },
            psks: Vec::new(),
            psk_choice: PskChoice::First,
            sessions: None,
            key_shares,
            send_server_name: true,
            credential_required: false,
            reverify: false,
            fallback: false,
            datagram: DatagramSettings::default(),
            connection_ids: None,
            settings,
            session_settings,
        }
    }

    /// Sets the external PSKs that the client offers, in order of preference.
    #[must_use]
    pub fn with_psks(mut self, psks: Vec<Arc<Psk>>) -> Self {
        self.psks = psks;
        self
    }

    /// Sets how the client chooses a key for a TLS 1.2 server by the server's hint. A session that stems from
    /// a key resumes only while that key is among the keys of [`Self::with_psks`].
    #[must_use]
    pub fn with_psk_choice(mut self, choice: PskChoice) -> Self {
        self.psk_choice = choice;
        self
    }

    /// Sets the store that keeps tickets between connections. Without a store the client resumes no session.
    #[must_use]
    pub fn with_sessions(mut self, sessions: Arc<dyn ClientSessions>) -> Self {
        self.sessions = Some(sessions);
        self
    }

    /// Sets the groups for which the first ClientHello has a key share. With none, every server answers with
    /// a HelloRetryRequest. If a hybrid is the only group, the client also sends a share of its curve.
    ///
    /// # Errors
    /// A group is not in the profile, or appears twice (RFC 8446 §4.2.8).
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

    /// Sets whether the client sends the server's name (RFC 6066 §3). The client always checks the
    /// certificate against the name.
    #[must_use]
    pub const fn with_server_name_sent(mut self, on: bool) -> Self {
        self.send_server_name = on;
        self
    }

    /// Sets whether the handshake fails if the server requests a certificate and none of the client's
    /// credentials suits. The client's error then has the reason; the server's alert would only be
    /// certificate_required. Otherwise, or without any credential, the client sends an empty Certificate and
    /// continues (RFC 8446 §4.4.2.3).
    #[must_use]
    pub const fn with_credential_required(mut self, on: bool) -> Self {
        self.credential_required = on;
        self
    }

    /// Sets whether the client verifies the server's chain or key in the session again when it resumes the
    /// session. The client then notices certificates that were revoked or distrusted in the meantime, without
    /// a full handshake.
    #[must_use]
    pub const fn with_reverification(mut self, on: bool) -> Self {
        self.reverify = on;
        self
    }

    /// Sets whether this is a fallback: a second attempt with an older version, after an attempt with a newer
    /// one failed. A server that supports the newer version then rejects the connection, since an attacker
    /// may have caused the failure (RFC 7507 §4). Fallbacks are necessary only for servers that cannot
    /// negotiate versions.
    #[must_use]
    pub const fn with_fallback(mut self, on: bool) -> Self {
        self.fallback = on;
        self
    }

    /// Enables the handshake cache ([`crate::cache`]). The store keeps certificates of servers, so that they
    /// need not send them again, and tickets by which servers recognize this client's certificates. Servers
    /// need a handshake cache, too. The client uses an entry until `max_age` after it verified the server's
    /// certificates.
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
        self.parts.cache =
            Some(share!(ClientHandshakeCache { mode, store, max_age, fingerprints } => dyn Caching));
        self
    }

    /// Enables early data for these application protocols, if a session allows it ([`crate::TlsConnection`]
    /// only). Early data can reach the server twice, so name only protocols that tolerate replays (RFC 8446
    /// §8, appendix E.5).
    #[must_use]
    pub fn with_early_data(mut self, protocols: EarlyDataProtocols) -> Self {
        self.parts.early_data = Some(EarlyDataClient { protocols, steps: &EARLY_DATA });
        self
    }

    /// Uses several local interfaces over datagrams ([`crate::DtlsConnection::set_interfaces`]). Set the
    /// connection IDs first.
    ///
    /// # Errors
    /// With [`Multihoming::unlinkable`]: the profile has TLS 1.2, whose connections have a single connection
    /// ID; there are no connection IDs, or always the same one. Each would give two interfaces one ID.
    pub fn with_multihoming(mut self, multihoming: Multihoming) -> Result<Self, Error> {
        self.datagram.multihoming = Some(multihoming);
        self.check_multihoming()?;
        Ok(self)
    }

    /// Checks that each interface can have a connection ID of its own if it must.
    pub(crate) fn check_multihoming(&self) -> Result<(), Error> {
        if self.datagram.multihoming.is_none_or(|multihoming| multihoming.linking != Linking::Unlinkable) {
            return Ok(());
        }
        let why = if self.profile.tls12.is_some() {
            "a connection of DTLS 1.2 has a single connection ID: use a profile without TLS 1.2"
        } else if let Some(ids) = &self.connection_ids {
            if has_variety(&**ids)? {
                return Ok(());
            } else {
                "this client issues the same connection ID again and again: issue random ones"
            }
        } else {
            "there are no connection IDs: call with_connection_ids first"
        };
        Err(Misuse::Config(alloc::format!(
            "unlinkable interfaces need a connection ID each, but {why}, or use Multihoming::linkable"
        ))
        .into())
    }

    /// The same client with another trust, for example with new CRLs. Sessions and cached certificates are
    /// bound to the trust that verified them: the previous ones stay in the stores, but the client does not
    /// use them.
    ///
    /// # Errors
    /// The profile with the new trust breaks a rule.
    pub fn with_trust(mut self, trust: impl Into<Verifiers>) -> Result<Self, Error> {
        self.profile = with_trust(&self.profile, trust.into())?;
        self.settings = trust_digest(&self.profile, b"client", 0);
        self.session_settings = session_digest(&self.profile, b"client");
        Ok(self)
    }

    /// Its profile.
    pub fn profile(&self) -> Profile {
        Profile { settings: Arc::clone(&self.profile), tls12: self.parts.tls12, ssi: self.parts.ssi }
    }

    /// The digest to which sessions are bound. It covers the settings that authenticate servers and the
    /// client's own credentials.
    pub const fn session_settings(&self) -> &SettingsDigest {
        &self.session_settings
    }
}
