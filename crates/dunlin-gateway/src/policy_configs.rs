//! Listeners with a policy: the engine's configurations for each profile, and the poll of policy files.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use dunlin::crypto::SecureRandom;
use dunlin::resume::Tickets;
use dunlin::wire::PskKeyExchangeMode;
use dunlin::{CryptoProvider, Negotiated, PskSource, ServerConfig};
use dunlin_setup::files::reason;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval};

use crate::builder::{Cache, ConfigBuilder};
use crate::clock;
use crate::config::{Fault, Faults, ListenerConfig, OwnFiles, RouteConfig, TransportKind};
use crate::context::{self, Context};
use crate::life::Phase;
use crate::memory::Memory;
use crate::own::OwnIdentity;
use crate::policy::{
    Client, Demand, Finished, Hints, Offence, Policy, PolicyProfile, PolicyServer, Reload, RetryPolicy,
    SecurityLevel, Turn, Verdict,
};
use crate::policy_file::PolicyFile;

/// How often the gateway looks whether a policy has changed.
const POLL: Duration = Duration::from_secs(1);

/// The engine's refusal of a profile, and the name of the profile if it is known.
struct Broken(Option<String>, dunlin::Error);

impl From<dunlin::Error> for Broken {
    fn from(error: dunlin::Error) -> Self {
        Self(None, error)
    }
}

impl ConfigBuilder {
    /// The configurations for this policy: for each route, one for each profile.
    ///
    /// # Errors
    /// Requirements of the profiles that the listener does not meet.
    fn servers(&self, policy: &Arc<Policy>, own: &[OwnIdentity]) -> Result<Vec<PolicyServer>, Vec<Fault>> {
        let mut faults = mismatches(&self.listener, policy);
        if !faults.is_empty() {
            // The missing parts would cause further faults.
            return Err(faults);
        }
        let mut servers = vec![];
        for route in &self.listener.routes {
            let default = &policy.default_profile().name;
            let broken = |profile: &PolicyProfile| {
                let name = profile.name.clone();
                |error| Broken(Some(name), error)
            };
            let made = PolicyServer::new(policy.clone(), clock::now_s, |profile| {
                let config = self.config(profile, route, own, profile.name == *default);
                config.map_err(broken(profile))
            });
            let made = match &self.listener.redirect {
                Some(redirect) if redirect.danger_unauthenticated => made.and_then(|server| {
                    server.danger_unauthenticated_redirection(|profile| {
                        self.unauthenticated(profile, route, own).map_err(broken(profile))
                    })
                }),
                _ => made,
            };
            match made {
                Ok(server) => servers.push(server),
                Err(Broken(profile, error)) => {
                    let places = profile.and_then(|name| policy.places(&name)).map(|places| &places.table);
                    let of_listener = self.listener.policy.as_ref().map(|file| &file.place);
                    let place = places.or(of_listener).unwrap_or(&self.listener.place);
                    let advice = format!("change the profile, or listener {}", self.listener.name);
                    faults.push(place.fault(reason(&error), advice));
                    // Routes differ in their protocols only, so the others have the same faults.
                    break;
                }
            }
        }
        if faults.is_empty() { Ok(servers) } else { Err(faults) }
    }

    fn config(
        &self,
        profile: &PolicyProfile,
        route: &RouteConfig,
        own: &[OwnIdentity],
        is_default: bool,
    ) -> Result<ServerConfig, dunlin::Error> {
        let provider = &self.stores.provider;
        let credentials = match profile.client {
            // With keys alone, a pre-shared key authenticates every client.
            Demand::Psk => vec![],
            _ => OwnIdentity::credentials(
                self.listener.raw_public_key,
                certificates(profile, own).iter().copied(),
            ),
        };
        let has_credentials = !credentials.is_empty();
        let psks = self.files.psks.clone().filter(|_| profile.accepts_psk());
        let mut builder = profile.builder(provider, credentials, self.files.trust.clone());
        if self.listener.clients.psk_without_dhe && psks.is_some() {
            builder = builder.psk_modes(vec![PskKeyExchangeMode::PSK_DHE_KE, PskKeyExchangeMode::PSK_KE]);
        }
        let keeps_details = profile.keeps_details || self.listener.needs_details();
        let builder = builder.x509_details(keeps_details);
        let builder = builder.ssi_messages(self.listener.messages());
        let built = builder.alpn(route.alpn.clone()).send_authorities(route.names_authorities()).build()?;
        let config = match psks.map(PskSource::Here) {
            Some(source) if !has_credentials => ServerConfig::psk_only(built, source)?,
            Some(source) => {
                ServerConfig::new(built)?.with_psks(source).with_client_auth(profile.client_auth())?
            }
            None => ServerConfig::new(built)?.with_client_auth(profile.client_auth())?,
        };
        let config = config
            .with_tickets(self.tickets(profile, is_default))
            .with_certificate_change(profile.changes_certificate);
        let config = self.stores.over_datagrams(config)?;
        match &self.cache {
            Some(Cache { mode, store, max_age }) => {
                let own = profile.cache_lifetime_s.map(|seconds| Duration::from_secs(seconds.into()));
                config.with_handshake_cache(*mode, store.clone(), own.unwrap_or(*max_age))
            }
            None => Ok(config),
        }
    }

    /// The configuration of a profile without client authentication and sessions.
    fn unauthenticated(
        &self,
        profile: &PolicyProfile,
        route: &RouteConfig,
        own: &[OwnIdentity],
    ) -> Result<ServerConfig, dunlin::Error> {
        let own = OwnIdentity::credentials(
            self.listener.raw_public_key,
            certificates(profile, own).iter().copied(),
        );
        let builder = profile.builder(&self.stores.provider, own, self.files.trust.clone());
        let builder = builder.ssi_messages(self.listener.messages());
        let config = ServerConfig::new(builder.alpn(route.alpn.clone()).build()?)?;
        self.stores.over_datagrams(config)
    }

    fn tickets(&self, profile: &PolicyProfile, is_default: bool) -> Tickets {
        let tickets = self.tickets.clone();
        match profile.session_lifetime_s {
            None => tickets,
            // The default profile recognizes the sessions of all profiles, and needs the store for that.
            Some(0) if is_default => tickets.count(0),
            Some(0) => Tickets::none(),
            Some(seconds) => tickets.lifetime(Duration::from_secs(seconds.into())),
        }
    }
}

/// Finds requirements of the policy's profiles that the listener does not meet. It opens no file.
pub(crate) fn mismatches(config: &ListenerConfig, policy: &Policy) -> Vec<Fault> {
    let mut faults = vec![];
    let listener = &config.name;
    let names = config.certificates.iter().filter_map(OwnFiles::name);
    let known: HashSet<_> = names.map(|name| &name.value).collect();
    for profile in policy.profiles() {
        let Some(places) = policy.places(&profile.name) else { continue };
        for wanted in profile.certificates.iter().filter(|wanted| !known.contains(wanted)) {
            let what = format!("listener {listener} has no certificate {wanted:?}");
            let advice = "give one of its [[listener.certificate]] this name";
            faults.push(places.certificates.fault(what, advice));
        }
        if profile.client == Demand::Psk && config.clients.psk.is_none() {
            let what = format!("listener {listener} has no pre-shared keys");
            let advice = "add psk to its [listener.clients], or change client";
            faults.push(places.client.fault(what, advice));
        }
    }
    let asks = |profile: &Arc<PolicyProfile>| !matches!(profile.client, Demand::Nothing | Demand::Psk);
    if config.clients.trusts() && !policy.profiles().iter().any(asks) {
        // Trust that nothing demands must not look like protection.
        let what = "no profile asks for the certificates or keys of clients that this listener trusts";
        faults.push(config.clients.place.fault(
            what,
            "write client = \"request\" or \"certificate\" in a profile, or remove ca, raw_keys and vc_issuers here",
        ));
    }
    faults
}

/// The certificates that the profile names, in its order, or all.
fn certificates<'a>(profile: &PolicyProfile, own: &'a [OwnIdentity]) -> Vec<&'a OwnIdentity> {
    let named = |name: &String| own.iter().find(|own| own.name.as_deref() == Some(name.as_str()));
    if profile.certificates.is_empty() {
        own.iter().collect()
    } else {
        profile.certificates.iter().filter_map(named).collect()
    }
}

/// Tells profiles apart that have the same name. Zero for listeners without a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ProfileDigest(pub(crate) [u8; 8]);

impl ProfileDigest {
    pub(crate) fn of(profile: &PolicyProfile, provider: &CryptoProvider) -> Self {
        let hash = provider.sha256.hash(&[format!("{profile:?}").as_bytes()]);
        Self(hash.as_ref().first_chunk().copied().unwrap_or_default())
    }
}

/// The policy's terms for a client that is served. By default, there is no policy.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    /// The label of the rule that decided.
    pub(crate) rule: String,
    pub(crate) profile: ProfileDigest,
}

/// A listener with a policy.
pub(crate) struct PolicyConfigs {
    file: Arc<PolicyFile>,
    builder: ConfigBuilder,
    /// One for each route.
    servers: ArcSwap<Vec<PolicyServer>>,
}

impl PolicyConfigs {
    /// # Errors
    /// Requirements of the policy's profiles that the listener does not meet.
    pub(crate) fn new(file: Arc<PolicyFile>, builder: ConfigBuilder) -> Result<Self, Vec<Fault>> {
        let servers = builder.servers(&file.current(), &builder.files.own.load())?;
        Ok(Self { file, builder, servers: ArcSwap::from_pointee(servers) })
    }

    pub(crate) const fn builder(&self) -> &ConfigBuilder {
        &self.builder
    }

    /// Warnings about the policy in force at this listener: ranks that contradict the levels of suites and
    /// keys, and profiles that DTLS 1.3 cannot reach.
    pub(crate) fn warnings(&self) -> Vec<Fault> {
        let policy = self.file.current();
        let own = self.builder.files.own.load();
        let level = |own: &OwnIdentity| {
            let level = SecurityLevel::of_certificate(own.leaf().filter(|_| !own.is_pending)?)?;
            Some((level, own.name.clone().unwrap_or_else(|| "without a name".to_owned())))
        };
        let mut warnings = policy.contradictions(|profile| match profile.client {
            Demand::Psk => None,
            _ => certificates(profile, &own).into_iter().filter_map(level).min(),
        });
        if self.builder.listener.transport == TransportKind::Dtls {
            warnings.extend(RetryPolicy::new(policy).unreachable());
        }
        warnings
    }

    /// Whether the listener waits for a certificate by ACME, without which it serves no client.
    pub(crate) fn is_pending(&self) -> bool {
        self.builder.files.own.load().iter().any(|own| own.is_pending)
    }

    /// Makes the configurations anew, for these certificates. The caller has the lock of a change.
    ///
    /// # Errors
    /// Requirements of the policy's profiles that the certificates do not meet.
    pub(crate) fn remake(&self, own: &[OwnIdentity]) -> Result<(), Vec<Fault>> {
        let servers = self.builder.servers(&self.file.current(), own)?;
        self.servers.store(Arc::new(servers));
        Ok(())
    }

    /// The policy with its configurations, for each route.
    pub(crate) fn servers(&self) -> Arc<Vec<PolicyServer>> {
        self.servers.load_full()
    }

    /// The configuration with which connections begin: the default profile's. A listener has a route.
    pub(crate) fn choosing(&self) -> Option<Arc<ServerConfig>> {
        self.servers.load().first().map(|server| server.profiles().server().clone())
    }

    /// Tells a profile apart from others of its name.
    pub(crate) fn digest(&self, profile: &PolicyProfile) -> ProfileDigest {
        ProfileDigest::of(profile, &self.builder.stores.provider)
    }

    /// The configurations of the profile with this digest, each with its route. None if the policy no longer
    /// has the profile as it was.
    pub(crate) fn thawing(&self, digest: ProfileDigest) -> Vec<(usize, Arc<ServerConfig>)> {
        let servers = self.servers();
        let config = |server: &PolicyServer| {
            let profiles = server.policy().profiles().iter();
            let same = profiles.filter(|profile| self.digest(profile) == digest);
            same.filter_map(|profile| server.profiles().get(&profile.name).cloned()).next()
        };
        servers.iter().enumerate().filter_map(|(route, server)| Some((route, config(server)?))).collect()
    }

    /// Whether the policy serves a client whose association goes on after a restart under the same profile:
    /// its rank suffices, as for a resumed session. Returns the terms, or why the association ends.
    pub(crate) fn goes_on(&self, route: usize, negotiated: &Negotiated, now_s: u64) -> Result<Terms, String> {
        let servers = self.servers();
        let server = servers.get(route).ok_or("its route is gone")?;
        let used = server.policy().profiles().iter().find(|profile| profile.name == negotiated.profile);
        let used = used.ok_or("the policy no longer has its profile")?;
        let client = negotiated.peer.as_ref().map(|peer| Client::proven(peer, negotiated.peer_validity));
        let hints = Hints::default();
        let turn = Turn::Impossible;
        let finished = Finished { used, client: client.as_ref(), hints: &hints, is_resumed: true, turn };
        let decision = server.policy().after(&finished, now_s);
        match decision.verdict {
            Verdict::Refuse => Err(decision.to_string()),
            _ => Ok(Terms { rule: decision.label().to_owned(), profile: self.digest(used) }),
        }
    }

    pub(crate) fn random(&self) -> &dyn SecureRandom {
        self.builder.stores.provider.random.as_ref()
    }

    /// The file of the policy.
    pub(crate) const fn file(&self) -> &Arc<PolicyFile> {
        &self.file
    }

    pub(crate) fn memory(&self) -> &Memory {
        self.file.memory()
    }

    /// Counts an offence of a client, and blocks its network if there were too many.
    pub(crate) fn report(&self, context: &Context, address: IpAddr, offence: Offence, now_s: u64) {
        let Some(blocked) = self.file.report(address, offence, now_s) else { return };
        let listener = &self.builder.listener.name;
        context.metrics.network_blocked(listener, offence);
        let seconds = blocked.until_s.saturating_sub(now_s);
        tracing::warn!(listener, client = %address, seconds, "{blocked}");
    }
}

/// Follows the policies of these listeners. Another program may change each of them.
pub(crate) fn follow(context: &Arc<Context>, listeners: Vec<Arc<PolicyConfigs>>) -> Vec<JoinHandle<()>> {
    let mut files: Vec<Vec<Arc<PolicyConfigs>>> = vec![];
    for listener in listeners {
        let same = |of: &&mut Vec<Arc<PolicyConfigs>>| {
            of.first().is_some_and(|other| Arc::ptr_eq(&other.file, &listener.file))
        };
        match files.iter_mut().find(same) {
            Some(of) => of.push(listener),
            None => files.push(vec![listener]),
        }
    }
    files.into_iter().map(|of| tokio::spawn(follow_file(context.clone(), of.into()))).collect()
}

async fn follow_file(context: Arc<Context>, listeners: Arc<[Arc<PolicyConfigs>]>) {
    let mut ticks = interval(POLL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = context.life.reached(Phase::Draining) => return,
        }
        let polled = listeners.clone();
        let context = context.clone();
        // It fails only if the runtime ends.
        let _ = spawn_blocking(move || poll(&context, &polled)).await;
    }
}

/// The warnings of all these listeners, each once.
pub(crate) fn warnings_of(listeners: &[Arc<PolicyConfigs>]) -> Vec<Fault> {
    let mut all: Vec<Fault> = vec![];
    for warning in listeners.iter().flat_map(|listener| listener.warnings()) {
        if !all.contains(&warning) {
            all.push(warning);
        }
    }
    all
}

/// Looks whether the policy that these listeners share has changed, and puts it in force for all of them or
/// for none.
fn poll(context: &Context, listeners: &[Arc<PolicyConfigs>]) {
    let Some(file) = listeners.first().map(|listener| &listener.file) else { return };
    let _changes: Vec<_> = listeners.iter().map(|listener| listener.builder.change()).collect();
    let mut made = vec![];
    let reload = file.live().poll_with(|policy| {
        let mut faults = vec![];
        for listener in listeners {
            match listener.builder.servers(policy, &listener.builder.files.own.load()) {
                Ok(servers) => made.push(Arc::new(servers)),
                Err(found) => faults.extend(found),
            }
        }
        Faults::none_in(faults)
    });
    match reload {
        Reload::Unchanged => {}
        Reload::Replaced(policy) => {
            for (listener, servers) in listeners.iter().zip(made) {
                listener.servers.store(servers);
            }
            file.adopt(&policy, clock::now_s());
            context::warn_of(&warnings_of(listeners));
            context.changed.send_replace(());
            context.metrics.policy_reloaded(true);
        }
        Reload::Kept(faults) => {
            for fault in faults.iter() {
                tracing::error!("{fault}");
            }
            let file = file.path().display().to_string();
            tracing::error!(file, "policy: not reloaded; the previous one stays in force");
            context.metrics.policy_reloaded(false);
        }
    }
}
