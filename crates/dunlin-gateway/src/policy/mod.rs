//! Which profile a client gets, and why: rules over the identity that its handshake proves, and over hints
//! (docs/policy.md).
//!
//! A [`Policy`] decides twice. [`Policy::before`] chooses a profile from the unproven hints of the
//! ClientHello. [`Policy::after`] checks the profile against the identity that the finished handshake has
//! proven. Both are pure functions: the caller supplies the time, and holds all state.
//!
//! ```
//! use dunlin_gateway::policy::{self, Claim, Client, Hints, Source, Verdict};
//!
//! # fn main() -> Result<(), policy::Faults> {
//! let policy = policy::parse(
//!     "policy.toml",
//!     r#"
//!     [profile.strong]
//!     rank = 100
//!
//!     [profile.sensor]
//!     rank = 20
//!     client = "psk"
//!
//!     [[rule]]
//!     name = "sensors"
//!     when.psk = "sensor-*"
//!     profile = "sensor"
//!     "#,
//! )?;
//! // A PSK identity in the ClientHello names a sensor. The sensor's profile makes it prove the key.
//! let client = Client::with_psk(b"sensor-7", None);
//! let claims = vec![Claim { source: Source::Psk, client }];
//! let decision = policy.before(&Hints { claims, ..Hints::default() }, 0);
//! assert_eq!(decision.profile.name, "sensor");
//! assert_eq!(
//!     decision.to_string(),
//!     "profile sensor (rank 20) by rule sensors (policy.toml:9): psk = \"sensor-*\", claimed by PSK identity; \
//!      downgrade from strong (rank 100)"
//! );
//! // Without the hint, the client gets the strongest profile.
//! assert_eq!(policy.before(&Hints::default(), 0).profile.name, "strong");
//! assert_eq!(policy.before(&Hints::default(), 0).verdict, Verdict::Serve);
//! # Ok(())
//! # }
//! ```

mod access;
mod blacklist;
mod cache;
mod changes;
mod check;
mod client;
mod condition;
mod decide;
mod explain;
mod hints;
mod input;
mod level;
mod load;
mod nft;
mod pattern;
mod profile;
mod retry;
mod server;
mod source;
pub mod sqlite;
mod tables;

use std::collections::HashMap;
use std::sync::Arc;

use dunlin::{ServerConfig, ServerProfiles};

pub use crate::document::{Fault, Faults, Field, Place};
pub use access::{Access, EntryReport};
pub use blacklist::{Blacklist, BlacklistLimits, Blocked, Offence};
pub use check::{MAX_PROFILES, MAX_RULES};
pub(crate) use client::email;
pub use client::{Attribute, Client};
pub use condition::{Basis, Condition, ConditionReport, Truth};
pub use decide::{Decision, Downgrade, Finished, Stage, Verdict};
pub use explain::{DecisionReport, Explanation, RetryReport, RuleReport};
pub use hints::{Cipher, Claim, Cookie, Hello, Hints, OfferedPsk, Source, Turn};
pub use input::{InputError, client_from_pem, client_hello};
pub use level::SecurityLevel;
pub use load::{MAX_FILE, parse};
pub use nft::{NftError, NftMirror, NftSets};
pub use pattern::Network;
pub use profile::{Demand, PolicyProfile};
pub(crate) use retry::RetryPolicy;
pub use server::{Answered, PolicyServer};
pub use source::{LivePolicy, Reload, Version};
pub use tables::{AddressChange, AddressTable, HandshakeTable, Handshakes};

/// The profiles of a gateway and the rules that give them to its clients.
#[derive(Clone, Debug)]
pub struct Policy {
    floor: i32,
    /// The profile of clients that no rule matches.
    default: usize,
    renegotiation: Renegotiation,
    blacklist: Option<BlacklistSettings>,
    profiles: Vec<Arc<PolicyProfile>>,
    /// The places of the profiles, by their names.
    places: HashMap<String, ProfilePlaces>,
    /// The entries of the client table, then the rules.
    rules: Vec<Rule>,
    /// How many of `rules` are entries of the client table.
    clients: usize,
    index: ClientIndex,
}

/// The places of a profile in its file, for faults against its listeners.
#[derive(Clone, Debug)]
pub(crate) struct ProfilePlaces {
    pub(crate) table: Place,
    pub(crate) certificates: Place,
    pub(crate) client: Place,
}

/// The entries of the client table, by their numbers in [`Policy::rules`].
#[derive(Clone, Debug, Default)]
struct ClientIndex {
    /// Each entry by one of its values.
    entries: HashMap<(Attribute, String), Vec<usize>>,
    /// The strongest of the entries that `entries` has under an attribute.
    strongest: HashMap<Attribute, usize>,
    /// The profiles of the entries that `entries` has under a device.
    by_device: Vec<usize>,
}

/// A rule, or an entry of the client table.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its name, or its key if it has none.
    pub name: String,
    /// Its place.
    pub place: Place,
    /// All of these must hold.
    pub conditions: Vec<Condition>,
    /// Whether it is an entry of the client table.
    pub is_client: bool,
    /// Whether its clients may be asked to renegotiate. Some clients end the connection then.
    pub renegotiates: bool,
    action: Action,
}

/// The action of a rule on its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// They get this profile.
    Use(usize),
    /// They are refused.
    Refuse,
}

/// The directions in which a TLS 1.2 connection may renegotiate once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Renegotiation {
    /// To a stronger profile.
    pub up: bool,
    /// To a weaker one, as the paper does.
    pub down: bool,
}

/// Whether and how the gateway keeps a blacklist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlacklistSettings {
    /// The limits of the list in the gateway.
    pub limits: BlacklistLimits,
    /// The sets of nftables that also get each blocked network.
    pub kernel: Option<NftSets>,
}

impl Policy {
    /// The rank below which no profile is used. Without a floor in the policy it is the lowest integer.
    pub const fn floor(&self) -> i32 {
        self.floor
    }

    /// All profiles, in alphabetical order of their names.
    pub fn profiles(&self) -> &[Arc<PolicyProfile>] {
        &self.profiles
    }

    /// The profile with this name.
    pub fn profile(&self, name: &str) -> Option<&Arc<PolicyProfile>> {
        self.profiles.iter().find(|profile| profile.name == name)
    }

    /// The places of the profile with this name.
    pub(crate) fn places(&self, name: &str) -> Option<&ProfilePlaces> {
        self.places.get(name)
    }

    /// The profile of clients that no rule matches.
    #[expect(
        clippy::indexing_slicing,
        reason = "the index comes from `check::build`, and a policy does not change"
    )]
    pub fn default_profile(&self) -> &Arc<PolicyProfile> {
        &self.profiles[self.default]
    }

    /// The entries of the client table, then the rules, in their order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The directions in which a connection may renegotiate.
    pub const fn renegotiation(&self) -> Renegotiation {
        self.renegotiation
    }

    /// The engine's configurations for these profiles. `build` makes the configuration of one
    /// ([`PolicyProfile::build`]); the default's has the tickets, keys and cache in which the engine looks
    /// clients up.
    ///
    /// # Errors
    /// The errors of `build`, or the rule of [`ServerProfiles::new`] that a configuration breaks.
    pub fn server_profiles<E: From<dunlin::Error>>(
        &self,
        mut build: impl FnMut(&PolicyProfile) -> Result<ServerConfig, E>,
    ) -> Result<ServerProfiles, E> {
        let default = build(self.default_profile())?;
        let others = (0..).zip(&self.profiles).filter(|(i, _)| *i != self.default);
        let others = others.map(|(_, profile)| build(profile)).collect::<Result<_, _>>()?;
        Ok(ServerProfiles::new(default, others, self.floor)?)
    }

    /// The blacklist's settings; `None` if the gateway keeps none.
    pub const fn blacklist(&self) -> Option<&BlacklistSettings> {
        self.blacklist.as_ref()
    }

    /// Whether a rule looks at this attribute. Sessions and caches need not keep other attributes.
    pub fn needs(&self, attribute: &Attribute) -> bool {
        let conditions = self.rules.iter().flat_map(|rule| &rule.conditions);
        conditions
            .into_iter()
            .any(|condition| matches!(&condition.test, condition::Test::Attribute(a, _) if a == attribute))
    }
}
