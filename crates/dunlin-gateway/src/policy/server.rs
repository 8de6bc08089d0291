//! A policy with the engine's configurations: it answers the engine's questions for profiles.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use dunlin::cache::ServerCache;
use dunlin::{ClientHelloInfo, Error, IdentifiedClient, Now, ServerConfig, ServerProfiles};

use super::cache::JudgedCache;
use super::client::Client;
use super::decide::{Decision, Finished, Verdict};
use super::hints::{Claim, Hints, Source, Turn};
use super::profile::PolicyProfile;
use super::retry::RetryPolicy;
use super::{AddressTable, Policy};

/// A policy, and a configuration of the engine for each of its profiles.
///
/// A server accepts connections with [`ServerProfiles::server`], and answers
/// [`dunlin::Question::ChooseProfile`] by [`Self::choose`] and [`dunlin::Question::ProfileOf`] by
/// [`Self::profile_of`]. A connection keeps the hints of the first answer for the second one.
#[derive(Clone)]
pub struct PolicyServer {
    policy: Arc<Policy>,
    profiles: ServerProfiles,
    /// For redirected clients that prove nothing.
    unauthenticated: Option<ServerProfiles>,
}

impl fmt::Debug for PolicyServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyServer").field("policy", &self.policy).finish_non_exhaustive()
    }
}

/// A decision, and the answer to the engine's question: `None` refuses the client.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The decision, for logs and counters.
    pub decision: Decision,
    /// The configuration.
    pub config: Option<Arc<ServerConfig>>,
    /// Whether the client gets a profile below the default without a proof of who it is
    /// ([`PolicyServer::danger_unauthenticated_redirection`]).
    pub is_unauthenticated: bool,
}

impl PolicyServer {
    /// The configurations of this policy. `build` makes one ([`PolicyProfile::build`]); the default profile's
    /// configuration has the tickets, keys and cache in which the engine looks clients up. A client whose
    /// certificate a rule needs is not taken from the handshake cache, which asks `clock` for the seconds since
    /// 1970.
    ///
    /// # Errors
    /// The errors of `build`, or the rule of [`ServerProfiles::new`] that a configuration breaks.
    pub fn new<E: From<Error>>(
        policy: Arc<Policy>,
        clock: fn() -> u64,
        mut build: impl FnMut(&PolicyProfile) -> Result<ServerConfig, E>,
    ) -> Result<Self, E> {
        let profiles = policy.server_profiles(|profile| {
            let judged = |store| -> Arc<dyn ServerCache> {
                Arc::new(JudgedCache { store, policy: Arc::clone(&policy), rank: profile.rank, clock })
            };
            Ok::<_, E>(build(profile)?.map_handshake_cache(judged))
        })?;
        let profiles = profiles.with_retry_choice(Arc::new(RetryPolicy::new(policy.clone())));
        Ok(Self { policy, profiles, unauthenticated: None })
    }

    /// Gives redirected clients the profile of the client that they name without a proof, as the paper
    /// CAN-SEAT does. Anyone can name any client, so this is for measurements only. `build` makes a
    /// configuration that requests no certificate and has no sessions.
    ///
    /// # Errors
    /// As for [`Self::new`].
    pub fn danger_unauthenticated_redirection<E: From<Error>>(
        mut self,
        build: impl FnMut(&PolicyProfile) -> Result<ServerConfig, E>,
    ) -> Result<Self, E> {
        let mut profiles: Vec<_> = self.policy.profiles().iter().map(|profile| &**profile).collect();
        // A client without identity needs the lowest profile.
        profiles.sort_by_key(|profile| profile.rank);
        let mut configs = profiles.into_iter().map(build).collect::<Result<Vec<_>, E>>()?.into_iter();
        if let Some(lowest) = configs.next() {
            self.unauthenticated = Some(ServerProfiles::new(lowest, configs.collect(), self.policy.floor())?);
        }
        Ok(self)
    }

    /// The policy.
    pub const fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// The configurations.
    pub const fn profiles(&self) -> &ServerProfiles {
        &self.profiles
    }

    /// The configuration for a ClientHello that came from `address`, and the hints that the connection keeps.
    /// `addresses` are the remembered ones, and `redirected` is the client that the server has redirected to
    /// the name in this ClientHello. The rank of a session that the client names does not matter here: the
    /// engine checks it when it resumes.
    pub fn choose(
        &self,
        info: &ClientHelloInfo,
        address: IpAddr,
        redirected: Option<Client>,
        addresses: Option<&AddressTable>,
        now: Now,
    ) -> (Answered, Hints) {
        let now_s = now.unix_s();
        let known = self.profiles.recognize(now, info);
        let remembered = addresses.and_then(|addresses| addresses.claim(address, now_s));
        let known = known.as_ref().map(Claim::from);
        let redirected = redirected.map(|client| Claim { source: Source::Redirect, client });
        let claims = known.into_iter().chain(redirected).chain(remembered).collect();
        let hints = Hints::of(info, address, claims);
        let decision = self.policy.before(&hints, now_s);
        let by = hints.claims.iter().min_by_key(|claim| claim.source).map(|claim| claim.source);
        let is_redirected = by == Some(Source::Redirect) && decision.downgrade.is_some();
        let unauthenticated = self.unauthenticated.as_ref().filter(|_| is_redirected);
        let config = match unauthenticated {
            Some(profiles) => profiles.get(&decision.profile.name).cloned(),
            None => self.config(&decision),
        };
        let config = config.filter(|_| decision.verdict != Verdict::Refuse);
        (Answered { decision, config, is_unauthenticated: unauthenticated.is_some() }, hints)
    }

    /// The configuration that belongs to an authenticated client. The engine compares its rank with the rank
    /// of the profile in use, and renegotiates if the decision says so and the connection can. `used` is the
    /// profile in use as [`Self::choose`] has answered it: a profile of the same name may be another one
    /// since then. Before a resumption ([`IdentifiedClient::is_proven`] is false), a refusal only means that
    /// the session is not resumed: a full handshake follows, with a decision of its own.
    pub fn profile_of(
        &self,
        client: &IdentifiedClient,
        used: &PolicyProfile,
        hints: &Hints,
        now: Now,
    ) -> Answered {
        let described = Client::proven(&client.identity, client.validity);
        // Before a resumption, the identity comes from the session.
        let is_resumed = !client.is_proven;
        let turn = if is_resumed { Turn::Impossible } else { hints.turn };
        let finished = Finished { used, client: Some(&described), hints, is_resumed, turn };
        let decision = self.policy.after(&finished, now.unix_s());
        let config = match decision.verdict {
            // A session of too low a rank is not resumed, and a full handshake follows: the profile that it
            // needs says so.
            Verdict::Refuse if client.is_proven || decision.profile.rank <= used.rank => None,
            _ => self.config(&decision),
        };
        Answered { decision, config, is_unauthenticated: false }
    }

    fn config(&self, decision: &Decision) -> Option<Arc<ServerConfig>> {
        self.profiles.get(&decision.profile.name).cloned()
    }
}
