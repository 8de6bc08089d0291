//! A policy with the engine's configurations: it answers the engine's questions for profiles.

use std::net::IpAddr;
use std::sync::Arc;

use dunlin::{ClientHelloInfo, Error, IdentifiedClient, Now, ServerConfig, ServerProfiles};

use super::client::Client;
use super::decide::{Decision, Finished, Verdict};
use super::hints::{Claim, Hints, Turn};
use super::profile::PolicyProfile;
use super::{AddressTable, Policy};

/// A policy, and a configuration of the engine for each of its profiles.
///
/// A server accepts connections with [`ServerProfiles::server`], and answers [`dunlin::Question::ChooseProfile`] by [`Self::choose`] and
/// [`dunlin::Question::ProfileOf`] by [`Self::profile_of`]. A connection keeps the hints of the first answer for the second one.
#[derive(Clone, Debug)]
pub struct PolicyServer {
    policy: Arc<Policy>,
    profiles: ServerProfiles,
}

/// A decision, and the answer to the engine's question: `None` refuses the client.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The decision, for logs and counters.
    pub decision: Decision,
    /// The configuration.
    pub config: Option<Arc<ServerConfig>>,
}

impl PolicyServer {
    /// The configurations of this policy. `build` makes one ([`PolicyProfile::build`]); that of the default profile has the tickets, keys
    /// and cache in which the engine looks clients up.
    ///
    /// # Errors
    /// Those of `build`, or the rule of [`ServerProfiles::new`] that a configuration breaks.
    pub fn new<E: From<Error>>(
        policy: Arc<Policy>,
        build: impl FnMut(&PolicyProfile) -> Result<ServerConfig, E>,
    ) -> Result<Self, E> {
        let profiles = policy.server_profiles(build)?;
        Ok(Self { policy, profiles })
    }

    /// The policy.
    pub const fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// The configurations.
    pub const fn profiles(&self) -> &ServerProfiles {
        &self.profiles
    }

    /// The configuration for a ClientHello that came from `address`, and the hints that the connection keeps. `addresses` are the
    /// remembered ones. The rank of a session that the client names does not matter here: the engine checks it when it resumes.
    pub fn choose(
        &self,
        info: &ClientHelloInfo,
        address: IpAddr,
        addresses: Option<&AddressTable>,
        now: Now,
    ) -> (Answered, Hints) {
        let now_s = now.unix_ms / 1000;
        let known = self.profiles.recognize(now, info);
        let remembered = addresses.and_then(|addresses| addresses.claim(address, now_s));
        let claims = known.as_ref().map(Claim::from).into_iter().chain(remembered).collect();
        let hints = Hints::of(info, address, claims);
        let decision = self.policy.before(&hints, now_s);
        let config = self.config(&decision).filter(|_| decision.verdict != Verdict::Refuse);
        (Answered { decision, config }, hints)
    }

    /// The configuration that belongs to an authenticated client. The engine compares its rank with that of the profile in use, and
    /// renegotiates if the decision says so and the connection can.
    pub fn profile_of(&self, client: &IdentifiedClient, hints: &Hints, now: Now) -> Answered {
        let used = self.policy.profile(&client.profile).unwrap_or_else(|| self.policy.default_profile());
        let described = Client::of(&client.identity);
        // Before a resumption, the identity is that of the session.
        let is_resumed = !client.is_proven;
        let turn = if is_resumed { Turn::Impossible } else { hints.turn };
        let finished = Finished { used, client: Some(&described), hints, is_resumed, turn };
        let decision = self.policy.after(&finished, now.unix_ms / 1000);
        let config = match decision.verdict {
            // A session of too low a rank is not resumed, and a full handshake follows: the profile that it needs says so.
            Verdict::Refuse if client.is_proven || decision.profile.rank <= used.rank => None,
            _ => self.config(&decision),
        };
        Answered { decision, config }
    }

    fn config(&self, decision: &Decision) -> Option<Arc<ServerConfig>> {
        self.profiles.get(&decision.profile.name).cloned()
    }
}
