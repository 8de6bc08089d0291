//! The profiles of a server that chooses one by each client's identity, and the rules that they obey
//! together.

use crate::sync::Arc;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use super::{rules, server};
use crate::auth::{FindPsk, PeerIdentity, Psk, PskIdentity};
use crate::error::Error;
use crate::handshake::hints::{ChooseRetry, ClientHelloInfo};
use crate::handshake::server::start::MAX_IDENTITIES;
use crate::handshake::setup::ServerConfig;
use crate::resume::{Session, SettingsDigest, TicketKind};
use crate::settings::{ClientAuth, PskSource, Ranks};
use crate::time::Now;

/// The configurations of a server that chooses one by each client's identity.
///
/// The server asks twice. [`crate::Question::ChooseProfile`] comes with the ClientHello, in which nothing is
/// authenticated: tickets, names and addresses are hints. [`crate::Question::ProfileOf`] comes with the
/// identity that the client has proven. The profile in use must then have at least the rank of the profile in
/// the answer. A client that proves no identity needs at least the rank of the default. Otherwise the
/// handshake fails with access_denied, so a wrong or forged hint weakens no connection.
///
/// In TLS 1.2, the server then renegotiates, up or down, to the profile in the answer, and demands the same
/// certificate (or pre-shared key) again. It does so once, after a full handshake, and not with HTTP/2 (RFC
/// 9113 §9.2.1). It also needs RFC 5746 and the extended master secret (RFC 7627). Below the client's profile
/// the connection begins only when the renegotiation is complete: the server neither sends nor accepts data
/// before. A client that refuses keeps a profile that is strong enough; otherwise the connection ends with
/// access_denied. [`ServerConfig::with_certificate_change`] says which certificate the server shows.
///
/// The caller must answer both questions: without an answer to the second one, no authenticated client gets
/// through. Drivers have a hook for each, such as `with_client_profiles` of `dunlin_tokio::TlsAcceptor`.
///
/// To change the profiles, build new ones and serve new connections with them. Handshakes that have begun
/// under the previous profiles accept answers from the new ones.
///
/// # Examples
/// ```
/// use std::sync::Arc;
///
/// use dunlin::{ClientAuth, Credential, Profile, ServerConfig, ServerProfiles, Trust};
///
/// # fn profiles(credential: Credential, trust: Trust) -> Result<ServerProfiles, dunlin::Error> {
/// let server = |name: &str, rank| {
///     let profile = Profile::builder(Arc::new(dunlin_awslc::provider())).name(name).rank(rank);
///     let profile = profile.credentials(vec![credential.clone()]).trust(trust.clone());
///     ServerConfig::new(profile.build()?)?.with_client_auth(ClientAuth::Required)
/// };
/// // Strangers get "strong". Only clients that have proven a certificate get "weak", if the caller says so.
/// let profiles = ServerProfiles::new(server("strong", 3)?, vec![server("weak", 1)?], 1)?;
/// assert_eq!(profiles.get("weak").map(|config| config.profile().rank()), Some(1));
/// # Ok(profiles)
/// # }
/// ```
#[derive(Clone)]
pub struct ServerProfiles {
    default: Arc<ServerConfig>,
    others: Vec<Arc<ServerConfig>>,
    /// The different digests of trust.
    trusts: Vec<SettingsDigest>,
    /// The different sources of pre-shared keys that this side has itself.
    keys: Vec<Arc<dyn FindPsk>>,
}

impl ServerProfiles {
    /// The configurations of a server. `default` serves clients of whom nothing is known, and has the tickets
    /// and the handshake cache in which [`Self::recognize`] looks clients up, beside the PSKs of all
    /// profiles. Its cookie keys serve all profiles over datagrams. No profile may have a rank below `floor`.
    ///
    /// # Errors
    /// The error names the profile and the rule that it breaks:
    /// * Two profiles have the same name.
    /// * A profile has a rank below `floor`.
    /// * A profile has a rank below the default, but does not authenticate every client: by required
    ///   certificates, or by PSKs alone.
    /// * A profile enables TLS 1.3 and another one does not. The choice of a profile must not select TLS 1.2
    ///   for a client that offers TLS 1.3.
    /// * A profile allows clients to renegotiate, or its configuration serves no client.
    pub fn new(default: ServerConfig, others: Vec<ServerConfig>, floor: i32) -> Result<Self, Error> {
        let ranks = Ranks { anonymous: default.profile.rank, floor };
        let has_tls13 = default.profile.has_tls13() || others.iter().any(|config| config.profile.has_tls13());
        let mut trusts = Vec::new();
        let mut keys = Vec::<Arc<dyn FindPsk>>::new();
        let mut names = Vec::new();
        let mut member = |config: ServerConfig| {
            if let Some(why) = fault(&config, ranks, has_tls13) {
                return Err(rules::broken(&config.profile, why));
            }
            if names.contains(&config.profile.name) {
                return Err(rules::broken(
                    &config.profile,
                    "another profile of this server has the same name".into(),
                ));
            }
            names.push(config.profile.name.clone());
            if !trusts.contains(&config.digests.trust) {
                trusts.push(config.digests.trust);
            }
            if let Some(PskSource::Here(own)) = &config.psks
                && !keys.iter().any(|other| core::ptr::addr_eq(Arc::as_ptr(other), Arc::as_ptr(own)))
            {
                keys.push(Arc::clone(own));
            }
            Ok(ServerConfig { ranks: Some(ranks), ..config })
        };
        let default = others.iter().fold(default, ServerConfig::with_marks_of);
        let default = member(default.with_profile_choice(true))?;
        let others = others.into_iter().map(|config| member(config).map(Arc::new));
        let others: Vec<_> = others.collect::<Result<_, _>>()?;
        let mut by_rank = others.clone();
        by_rank.sort_by_key(|config| core::cmp::Reverse(config.profile.rank));
        let default = Arc::new(ServerConfig { others: by_rank, ..default });
        Ok(Self { default, others, trusts, keys })
    }

    /// Lets the caller choose the suite and the group of the HelloRetryRequest with which a server over
    /// datagrams demands a cookie. The server asks for a profile only when the client has returned the
    /// cookie, and the profile must then support that suite and group. Without this, the suite comes from the
    /// first profile, the default before the others by their ranks, that has one with the hash of the
    /// client's first PSK; if none has, from the first one with any common suite.
    #[must_use]
    pub fn with_retry_choice(mut self, choice: Arc<dyn ChooseRetry>) -> Self {
        let default = ServerConfig::clone(&self.default);
        self.default = Arc::new(ServerConfig { retry_choice: Some(choice), ..default });
        self
    }

    /// The default configuration. The server accepts connections with it, and each ClientHello asks for the
    /// choice of a profile.
    pub const fn server(&self) -> &Arc<ServerConfig> {
        &self.default
    }

    /// The configuration whose profile has this name, for an answer.
    pub fn get(&self, name: &str) -> Option<&Arc<ServerConfig>> {
        self.iter().find(|config| config.profile.name == name)
    }

    /// All configurations, the default first.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ServerConfig>> {
        core::iter::once(&self.default).chain(&self.others)
    }

    /// Looks up the client that a ClientHello seems to come from: by a session, an external PSK or a ticket
    /// of the handshake cache, in this order. It finds sessions and entries of all profiles. A sealed ticket
    /// takes one attempt for each different trust, not one for each profile. `None` for a stranger, and for
    /// keys or sessions that the caller keeps ([`crate::PskSource::Ask`], [`crate::resume::Tickets::ask`]).
    ///
    /// The result is a hint: anyone who has seen a ticket can show it. Over datagrams, call it only for a
    /// client that has returned a cookie, as [`crate::Question::ChooseProfile`] ensures.
    pub fn recognize(&self, now: Now, hello: &ClientHelloInfo) -> Option<KnownClient> {
        self.by_session(now, hello).or_else(|| self.by_psk(now, hello)).or_else(|| self.by_cache(now, hello))
    }

    fn by_session(&self, now: Now, hello: &ClientHelloInfo) -> Option<KnownClient> {
        let tickets = &self.default.tickets;
        let open = |ticket: &[u8]| match &tickets.kind {
            TicketKind::Stateless(seal) => self.trusts.iter().find_map(|trust| {
                let plain = seal.open(now, trust.as_bytes(), ticket)?;
                Session::from_ticket(&plain, *trust).ok()
            }),
            TicketKind::Stateful(store) => store.find(ticket),
            TicketKind::None | TicketKind::Ask => None,
        };
        let known = |mut session: Session| {
            // Without the key from which it stems, the session does not resume. If the caller keeps the keys,
            // the device is unknown.
            let is_good = session.origin().is_none() || self.keys.is_empty() || self.names(&mut session, now);
            let is_usable = is_good && session.is_fresh(now) && self.trusts.contains(&session.settings);
            let identity = session.peer.filter(|_| is_usable)?;
            let rank = Some(session.rank);
            Some(KnownClient { identity, by: KnownBy::Session, rank })
        };
        let tls13 = hello.psk_identities.iter().take(MAX_IDENTITIES);
        let ticket = hello.session_ticket.iter().filter(|ticket| !ticket.is_empty());
        let mut tickets_shown = tls13.chain(ticket);
        tickets_shown.find_map(|ticket| known(open(ticket)?)).or_else(|| {
            let id = Some(&hello.session_id).filter(|id| !id.is_empty())?;
            known(match &tickets.kind {
                TicketKind::Stateful(store) => store.find(id)?,
                _ => tickets.ids.as_ref()?.find(id)?,
            })
        })
    }

    fn by_psk(&self, now: Now, hello: &ClientHelloInfo) -> Option<KnownClient> {
        let sha256 = self.default.profile.provider.sha256;
        let mut offered = hello.psk_identities.iter().take(MAX_IDENTITIES);
        let (identity, psk) = offered.find_map(|identity| Some((identity, self.key(identity, now)?)))?;
        let identity = PeerIdentity::Psk(PskIdentity::new(identity.clone(), &psk, sha256));
        Some(KnownClient { identity, by: KnownBy::Psk, rank: None })
    }

    /// The pre-shared key with this identity, of whichever profile.
    fn key(&self, identity: &[u8], now: Now) -> Option<Arc<Psk>> {
        self.keys.iter().find_map(|keys| keys.find(identity, now))
    }

    /// Gives the client of a session the current name of the key from which the session stems. Returns
    /// whether this side has the key.
    fn names(&self, session: &mut Session, now: Now) -> bool {
        let key = session.origin().and_then(|identity| self.key(identity, now));
        key.is_some_and(|key| session.stems_from(&key, self.default.profile.provider.sha256))
    }

    fn by_cache(&self, now: Now, hello: &ClientHelloInfo) -> Option<KnownClient> {
        let cache = self.default.parts.cache.as_ref()?;
        let mut tickets = hello.cache.iter().flat_map(|names| &names.tickets);
        let identity = tickets.find_map(|ticket| cache.recognize(now, ticket, &self.trusts))?;
        Some(KnownClient { identity, by: KnownBy::Cache, rank: None })
    }
}

impl fmt::Debug for ServerProfiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|config| &config.profile.name)).finish()
    }
}

/// The rule that a configuration of such a server breaks, if it breaks one.
fn fault(config: &ServerConfig, ranks: Ranks, has_tls13: bool) -> Option<String> {
    let profile = &config.profile;
    // Without credentials, a PSK authenticates every client.
    let authenticates = config.client_auth == ClientAuth::Required || profile.credentials.is_empty();
    if !server::serves_clients(config) {
        return Some("it serves no client: add a credential or pre-shared keys".into());
    }
    if profile.rank < ranks.floor {
        return Some(format!("its rank {} is below the floor {}", profile.rank, ranks.floor));
    }
    if profile.rank < ranks.anonymous && !authenticates {
        return Some(format!(
            "its rank {} is below that of the default profile, {}: require the client's certificate, or raise the rank",
            profile.rank, ranks.anonymous
        ));
    }
    if has_tls13 && !profile.has_tls13() {
        return Some(
            "it lacks TLS 1.3, which another profile of this server enables: add TLS 1.3 suites, or remove them there"
                .into(),
        );
    }
    if profile.tls12.as_ref().is_some_and(|tls12| tls12.renegotiation) {
        Some("its clients may renegotiate: a server of several profiles begins renegotiations itself".into())
    } else {
        None
    }
}

/// A client that a server seems to know by its ClientHello, which proves nothing yet.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KnownClient {
    /// The identity that the client has proven earlier.
    pub identity: PeerIdentity,
    /// How the server knows it.
    pub by: KnownBy,
    /// The rank of the session, if it is known by one. It resumes under profiles of this rank or below.
    pub rank: Option<i32>,
}

/// How a server knows a client by its ClientHello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KnownBy {
    /// By a ticket or the name of a session.
    Session,
    /// By the identity of an external PSK, in TLS 1.3.
    Psk,
    /// By a ticket of the handshake cache.
    Cache,
}
