//! The configuration of a client and of a server: a profile, and what only that role has.

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::auth::{ChoosePsk, Credential, FindPsk, Psk, Trust};
use crate::cache::{
    CacheMode, ClientCache, ClientHandshakeCache, Fingerprint, ServerCache, ServerHandshakeCache,
};
use crate::early::{EarlyDataClient, EarlyDataProtocols, EarlyDataServer, MAX_EARLY_DATA, SingleUse};
use crate::error::{Error, Misuse};
use crate::handshake::client::{self, CERTIFICATES, Certificates, EARLY_DATA};
use crate::handshake::server;
use crate::profile::Profile;
use crate::record::datagram::{DEFAULT_MTU, MTU_RANGE};
use crate::resume::{ClientSessions, SettingsDigest, Tickets};
use crate::wire::{NamedGroup, PskKeyExchangeMode};

/// What a client does. Make it once, share it in an `Arc` by many connections.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    pub(crate) profile: Arc<Profile>,
    pub(crate) psks: Vec<Arc<Psk>>,
    pub(crate) psk_choice: PskChoice,
    pub(crate) sessions: Option<Arc<dyn ClientSessions>>,
    pub(crate) key_shares: Vec<NamedGroup>,
    pub(crate) send_server_name: bool,
    pub(crate) credential_required: bool,
    pub(crate) reverify: bool,
    pub(crate) fallback: bool,
    pub(crate) early_data: Option<EarlyDataClient>,
    pub(crate) handshake_cache: Option<Arc<dyn client::Caching>>,
    pub(crate) mtu: usize,
    /// Of what verifies servers.
    pub(crate) settings: SettingsDigest,
    /// The same with this client's own credentials: what its sessions depend on.
    pub(crate) session_settings: SettingsDigest,
    /// `None` with pre-shared keys alone.
    pub(crate) certificates: Option<&'static Certificates>,
}

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
        if psks.is_empty() || !profile.trust.is_empty() || !profile.credentials.is_empty() {
            let why =
                "a client with pre-shared keys alone needs one, and has no use for trust or credentials";
            return Err(Misuse::Config(why.into()).into());
        }
        Ok(Self { psks, ..Self::without_certificates(profile) })
    }

    fn without_certificates(profile: Profile) -> Self {
        let settings = settings_digest(&profile, b"client", 0);
        let session_settings = session_settings_digest(&profile, b"client");
        let key_shares = profile.groups.first().map(|g| g.name()).into_iter().collect();
        Self {
            profile: Arc::new(profile),
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
        self.handshake_cache = Some(Arc::new(ClientHandshakeCache { mode, store, max_age, fingerprints }));
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
        let profile = self.profile.with_trust(trust)?;
        self.settings = settings_digest(&profile, b"client", 0);
        self.session_settings = session_settings_digest(&profile, b"client");
        self.profile = Arc::new(profile);
        Ok(self)
    }

    /// Its profile.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The digest under which sessions are kept: of what authenticates a server under this configuration, and of the
    /// credentials by which this client proves who it is.
    pub const fn session_settings(&self) -> &SettingsDigest {
        &self.session_settings
    }
}

/// Whether a server asks clients for a certificate or raw key. A PSK, which proves the client already, replaces it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ClientAuth {
    /// It does not ask.
    #[default]
    None,
    /// It asks, and goes on without.
    Optional,
    /// It asks, and refuses clients without.
    Required,
}

/// How a client of TLS 1.2 chooses its pre-shared key.
#[derive(Clone, Default)]
pub enum PskChoice {
    /// The first that it has, whatever the server's hint says (RFC 4279 §5.2).
    #[default]
    First,
    /// At hand.
    Here(Arc<dyn ChoosePsk>),
    /// Elsewhere: the connection asks [`crate::Question::ChoosePsk`].
    Ask,
}

impl fmt::Debug for PskChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::First => "First",
            Self::Here(_) => "Here",
            Self::Ask => "Ask",
        })
    }
}

/// Where a server finds external PSKs.
#[derive(Clone, Default)]
pub enum PskSource {
    /// It has none.
    #[default]
    None,
    /// At hand.
    Here(Arc<dyn FindPsk>),
    /// Elsewhere: the connection asks [`crate::Question::FindPsk`].
    Ask,
}

impl fmt::Debug for PskSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Here(_) => "Here",
            Self::Ask => "Ask",
        })
    }
}

/// What a server does. Make it once, share it in an `Arc` by many connections.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    pub(crate) profile: Arc<Profile>,
    pub(crate) client_auth: ClientAuth,
    pub(crate) psks: PskSource,
    pub(crate) psk_identity_hint: Vec<u8>,
    pub(crate) tickets: Tickets,
    pub(crate) cookies: bool,
    pub(crate) choose_profile: bool,
    pub(crate) early_data: Option<EarlyDataServer>,
    pub(crate) single_use: Option<SingleUse>,
    pub(crate) handshake_cache: Option<Arc<dyn server::Caching>>,
    pub(crate) mtu: usize,
    pub(crate) cookie_key: Arc<zeroize::Zeroizing<[u8; 32]>>,
    pub(crate) settings: SettingsDigest,
}

impl ServerConfig {
    /// A server with this profile: clients are not asked who they are, no PSK, no tickets, no cookies.
    ///
    /// # Errors
    /// The random source failed.
    pub fn new(profile: Profile) -> Result<Self, Error> {
        let mut cookie_key = zeroize::Zeroizing::new([0; 32]);
        profile.provider.random.fill(&mut *cookie_key)?;
        let settings = settings_digest(&profile, b"server", ClientAuth::None as u8);
        Ok(Self {
            profile: Arc::new(profile),
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
        self.handshake_cache = Some(Arc::new(ServerHandshakeCache { mode, store, max_age, fingerprints }));
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
        self.profile = Arc::new(self.profile.with_trust(trust)?);
        let client_auth = self.client_auth;
        self.with_client_auth(client_auth)
    }

    /// Its profile.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Whether a PSK of any kind can be found.
    pub(crate) const fn finds_psks(&self) -> bool {
        !matches!(self.psks, PskSource::None) || !self.tickets.is_none()
    }

    pub(crate) fn allows_psk(&self) -> bool {
        self.finds_psks()
            && (self.profile.allows_mode(PskKeyExchangeMode::PSK_DHE_KE)
                || self.profile.allows_mode(PskKeyExchangeMode::PSK_KE))
    }
}

fn check_mtu(mtu: usize) -> Result<usize, Error> {
    match MTU_RANGE.contains(&mtu) {
        true => Ok(mtu),
        false => Err(Misuse::Config(alloc::format!("an MTU is 64 to 65507 bytes, not {mtu}")).into()),
    }
}

/// The digest of what authenticates the peer under this configuration. A session resumes only under the digest
/// under which it was made: nobody keeps an identity that today's settings would not accept.
fn settings_digest(profile: &Profile, role: &[u8], client_auth: u8) -> SettingsDigest {
    digest(profile, |add| settings(profile, role, client_auth, add))
}

/// The same with what a client proves itself by: who has another credential, or none, is not who made the session.
fn session_settings_digest(profile: &Profile, role: &[u8]) -> SettingsDigest {
    digest(profile, |add| {
        settings(profile, role, 0, add);
        for credential in &profile.credentials {
            add(b"credential");
            add(&[credential.certificate_type().0]);
            credential.entries().for_each(&mut *add);
        }
    })
}

/// The digest of what `fill` adds, each with its length.
fn digest(profile: &Profile, fill: impl FnOnce(&mut dyn FnMut(&[u8]))) -> SettingsDigest {
    let mut hash = profile.provider.sha256.start();
    fill(&mut |bytes: &[u8]| {
        hash.update(&(bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    });
    SettingsDigest::new(hash.current().as_ref())
}

fn settings(profile: &Profile, role: &[u8], client_auth: u8, add: &mut dyn FnMut(&[u8])) {
    add(b"dunlin settings 1");
    add(role);
    add(profile.name.as_bytes());
    add(profile.rank.to_string().as_bytes());
    add(&[client_auth]);
    for scheme in &profile.signature_schemes {
        add(&scheme.0.to_be_bytes());
    }
    add(b"in chains");
    for scheme in profile.chain_schemes() {
        add(&scheme.0.to_be_bytes());
    }
    for verifier in profile.trust.iter() {
        verifier.settings(add);
    }
}
