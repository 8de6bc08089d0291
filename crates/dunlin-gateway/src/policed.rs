//! Listeners with a policy: the engine's configurations for each profile, the memory of clients, and the poll
//! of policy files.

use std::collections::HashSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use dunlin::crypto::SecureRandom;
use dunlin::resume::Tickets;
use dunlin::wire::PskKeyExchangeMode;
use dunlin::{CryptoProvider, Negotiated, PskSource, ServerConfig};
use tokio::sync::watch;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval};

use crate::clock::now_s;
use crate::config::{Fault, Faults, FileField, ListenerConfig, OwnFiles, RouteConfig, TransportKind};
use crate::life::{Phase, reached};
use crate::own::Own;
use crate::policy::{
    AddressTable, Blacklist, Blocked, Client, Demand, Finished, HandshakeTable, Hints, LivePolicy, NftMirror,
    Offence, Policy, PolicyProfile, PolicyServer, Reload, RetryPolicy, SecurityLevel, Turn, Verdict,
};
use crate::redirect::Redirects;
use crate::service::{self, Shared};
use crate::tls::{Cache, Files, Stores, reason};

/// How often the gateway looks whether a policy has changed.
const POLL: Duration = Duration::from_secs(1);

/// The number of addresses that are remembered for each policy, some 500 bytes each.
const MAX_ADDRESSES: usize = 65_536;

/// The number of connections whose handshakes are remembered for each policy.
const MAX_HANDSHAKES: usize = 65_536;

/// How long the handshakes of a connection are remembered, in seconds. They are forgotten earlier when the
/// connection ends.
const HANDSHAKES_LIFETIME_S: u64 = 24 * 3600;

/// A gateway's memory of the clients of a policy. It outlives reloads.
pub(crate) struct Memory {
    pub(crate) addresses: AddressTable,
    pub(crate) handshakes: HandshakeTable,
    pub(crate) redirects: Redirects,
    blacklist: ArcSwapOption<Blacklist>,
    /// The blacklist in nftables.
    kernel: NftMirror,
    /// Whether a task will bring it to the present blacklist.
    is_kernel_due: AtomicBool,
    /// The policy in force. Also the lock of a change.
    policy: Mutex<Option<Arc<Policy>>>,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            addresses: AddressTable::new(MAX_ADDRESSES),
            handshakes: HandshakeTable::new(MAX_HANDSHAKES, HANDSHAKES_LIFETIME_S),
            redirects: Redirects::default(),
            blacklist: ArcSwapOption::empty(),
            kernel: NftMirror::default(),
            is_kernel_due: AtomicBool::new(false),
            policy: Mutex::default(),
        }
    }
}

impl Memory {
    /// The longest time for which a profile of the policy remembers an address.
    pub(crate) fn max_address_lifetime_s(&self) -> u64 {
        let policy = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        let profiles = policy.iter().flat_map(|policy| policy.profiles());
        profiles.map(|profile| profile.address_lifetime_s.into()).max().unwrap_or(0)
    }

    /// Replaces the blacklist if its limits change.
    fn replace_blacklist(&self, policy: &Policy) {
        let limits = policy.blacklist().map(|settings| &settings.limits);
        let next = match (self.blacklist.load_full(), limits) {
            (Some(current), Some(limits)) if current.limits() == limits => return,
            (Some(current), Some(limits)) => Some(Arc::new(current.with_limits(limits.clone()))),
            (None, limits) => limits.map(|limits| Arc::new(Blacklist::new(limits.clone()))),
            (Some(_), None) => None,
        };
        self.blacklist.store(next);
    }

    /// Brings the sets of nftables to the present blacklist, in the background.
    fn tell_kernel(self: &Arc<Self>) {
        // The task that waits for its turn will see this change.
        if self.is_kernel_due.swap(true, Ordering::AcqRel) {
            return;
        }
        let memory = self.clone();
        spawn_blocking(move || {
            let now_s = now_s();
            let present = || {
                memory.is_kernel_due.swap(false, Ordering::AcqRel);
                let policy = memory.policy.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let settings = policy.as_ref().and_then(|policy| policy.blacklist());
                let sets = settings.and_then(|settings| settings.kernel.clone());
                let list = memory.blacklist.load_full().filter(|_| sets.is_some());
                (sets, list.map_or(vec![], |list| list.first(usize::MAX, now_s).1))
            };
            if let Err(error) = memory.kernel.update(present, now_s) {
                tracing::error!(%error, "the kernel does not block what the blacklist blocks; correct its sets, or remove other networks with nft");
            }
        });
    }

    /// Puts a policy in force. The blacklist keeps the networks that its limits still block.
    fn adopt(self: &Arc<Self>, file: &PolicyFile, policy: &Arc<Policy>) {
        let mut in_force = self.policy.lock().unwrap_or_else(PoisonError::into_inner);
        if file.is_retired.load(Ordering::Relaxed) {
            return;
        }
        self.replace_blacklist(policy);
        let file = file.path.display().to_string();
        let previous = in_force.replace(policy.clone());
        let has_sets = |policy: &Policy| policy.blacklist().is_some_and(|settings| settings.kernel.is_some());
        if has_sets(policy) || previous.as_deref().is_some_and(has_sets) {
            self.tell_kernel();
        }
        match previous {
            Some(previous) => {
                for change in policy.changes_since(&previous) {
                    tracing::info!(file, "policy: {change}");
                }
            }
            None => tracing::info!(file, "policy: {}", policy.summary()),
        }
    }
}

/// The file or database of a policy. Listeners with the same policy share it.
pub(crate) struct PolicyFile {
    path: PathBuf,
    live: LivePolicy,
    memory: Arc<Memory>,
    /// Whether a reload has opened the file again.
    is_retired: AtomicBool,
}

impl PolicyFile {
    /// Reads the policy that this key of a listener names.
    ///
    /// # Errors
    /// All faults of the policy.
    pub(crate) fn open(file: &FileField, stores: &Stores) -> Result<Self, Vec<Fault>> {
        let path = &file.value;
        if let Err(error) = std::fs::metadata(path) {
            let what = format!("{}: {error}", path.display());
            return Err(vec![file.place.fault(what, "name a policy, as docs/policy.md describes it")]);
        }
        let live = LivePolicy::open(path).map_err(|faults| faults.iter().cloned().collect::<Vec<_>>())?;
        Ok(Self { path: path.clone(), live, memory: stores.memory(path), is_retired: AtomicBool::new(false) })
    }

    /// The policy in force.
    pub(crate) fn current(&self) -> Arc<Policy> {
        self.live.current()
    }
}

/// Builds the configurations of a listener.
pub(crate) struct Maker {
    pub(crate) listener: ListenerConfig,
    pub(crate) files: Files,
    pub(crate) tickets: Tickets,
    pub(crate) cache: Option<Cache>,
    pub(crate) stores: Arc<Stores>,
    pub(crate) change: Mutex<()>,
}

/// The engine's refusal of a profile, and the name of the profile if it is known.
struct Broken(Option<String>, dunlin::Error);

impl From<dunlin::Error> for Broken {
    fn from(error: dunlin::Error) -> Self {
        Self(None, error)
    }
}

impl Maker {
    /// Waits for other changes of the configurations: by the policy, or by a new certificate.
    pub(crate) fn change(&self) -> MutexGuard<'_, ()> {
        self.change.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The configurations for this policy: for each route, one for each profile.
    ///
    /// # Errors
    /// Requirements of the profiles that the listener does not meet.
    fn servers(&self, policy: &Arc<Policy>, own: &[Own]) -> Result<Vec<PolicyServer>, Vec<Fault>> {
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
            let made = PolicyServer::new(policy.clone(), |profile| {
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
        own: &[Own],
        is_default: bool,
    ) -> Result<ServerConfig, dunlin::Error> {
        let provider = &self.stores.provider;
        let credentials = match profile.client {
            // With keys alone, a pre-shared key authenticates every client.
            Demand::Psk => vec![],
            _ => Own::credentials(self.listener.raw_public_key, certificates(profile, own).iter().copied()),
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
        own: &[Own],
    ) -> Result<ServerConfig, dunlin::Error> {
        let own = Own::credentials(self.listener.raw_public_key, certificates(profile, own).iter().copied());
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
    let (mut faults, listener) = (vec![], &config.name);
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
fn certificates<'a>(profile: &PolicyProfile, own: &'a [Own]) -> Vec<&'a Own> {
    let named = |name: &String| own.iter().find(|own| own.name.as_deref() == Some(name.as_str()));
    match profile.certificates.is_empty() {
        true => own.iter().collect(),
        false => profile.certificates.iter().filter_map(named).collect(),
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
pub(crate) struct Policed {
    file: Arc<PolicyFile>,
    maker: Maker,
    /// One for each route.
    servers: ArcSwap<Vec<PolicyServer>>,
}

impl Policed {
    /// # Errors
    /// Requirements of the policy's profiles that the listener does not meet.
    pub(crate) fn new(file: Arc<PolicyFile>, maker: Maker) -> Result<Self, Vec<Fault>> {
        let servers = maker.servers(&file.live.current(), &maker.files.own.load())?;
        Ok(Self { file, maker, servers: ArcSwap::from_pointee(servers) })
    }

    pub(crate) const fn maker(&self) -> &Maker {
        &self.maker
    }

    /// Warnings about the policy in force at this listener: ranks that contradict the levels of suites and
    /// keys, and profiles that DTLS 1.3 cannot reach.
    pub(crate) fn warnings(&self) -> Vec<Fault> {
        let (policy, own) = (self.file.current(), self.maker.files.own.load());
        let level = |own: &Own| {
            let level = SecurityLevel::of_certificate(own.leaf().filter(|_| !own.is_pending)?)?;
            Some((level, own.name.clone().unwrap_or_else(|| "without a name".to_owned())))
        };
        let mut warnings = policy.contradictions(|profile| match profile.client {
            Demand::Psk => None,
            _ => certificates(profile, &own).into_iter().filter_map(level).min(),
        });
        if self.maker.listener.transport == TransportKind::Dtls {
            warnings.extend(RetryPolicy::new(policy).unreachable());
        }
        warnings
    }

    /// Whether the listener waits for a certificate by ACME, without which it serves no client.
    pub(crate) fn is_pending(&self) -> bool {
        self.maker.files.own.load().iter().any(|own| own.is_pending)
    }

    /// Makes the configurations anew, for these certificates. The caller has the lock of a change.
    ///
    /// # Errors
    /// Requirements of the policy's profiles that the certificates do not meet.
    pub(crate) fn remake(&self, own: &[Own]) -> Result<(), Vec<Fault>> {
        let servers = self.maker.servers(&self.file.live.current(), own)?;
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
        ProfileDigest::of(profile, &self.maker.stores.provider)
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
    pub(crate) fn goes_on(&self, route: usize, negotiated: &Negotiated) -> Result<Terms, String> {
        let servers = self.servers();
        let server = servers.get(route).ok_or("its route is gone")?;
        let used = server.policy().profiles().iter().find(|profile| profile.name == negotiated.profile);
        let used = used.ok_or("the policy no longer has its profile")?;
        let client = negotiated.peer.as_ref().map(|peer| Client::proven(peer, negotiated.peer_validity));
        let hints = Hints::default();
        let turn = Turn::Impossible;
        let finished = Finished { used, client: client.as_ref(), hints: &hints, is_resumed: true, turn };
        let decision = server.policy().after(&finished, now_s());
        match decision.verdict {
            Verdict::Refuse => Err(decision.to_string()),
            _ => Ok(Terms { rule: decision.label().to_owned(), profile: self.digest(used) }),
        }
    }

    pub(crate) fn random(&self) -> &dyn SecureRandom {
        self.maker.stores.provider.random.as_ref()
    }

    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.file.memory
    }

    /// The path of the policy. Listeners with equal paths share the memory of clients.
    pub(crate) fn path(&self) -> &Path {
        &self.file.path
    }

    pub(crate) fn live(&self) -> &LivePolicy {
        &self.file.live
    }

    pub(crate) fn blacklist(&self) -> Option<Arc<Blacklist>> {
        self.file.memory.blacklist.load_full()
    }

    /// Puts the policy of a configuration in force.
    pub(crate) fn adopt(&self) {
        self.file.memory.adopt(&self.file, &self.file.live.current());
    }

    /// Says that a reload has replaced this listener's configuration.
    pub(crate) fn retire(&self) {
        self.file.is_retired.store(true, Ordering::Relaxed);
    }

    /// The network of this address, if it is on the blacklist.
    pub(crate) fn blocked(&self, address: IpAddr) -> Option<Blocked> {
        self.file.memory.blacklist.load().as_ref()?.blocked(address, now_s())
    }

    /// Counts an offence of a client, and blocks its network if there were too many.
    pub(crate) fn report(&self, shared: &Shared, address: IpAddr, offence: Offence) {
        let now_s = now_s();
        let blacklist = self.file.memory.blacklist.load();
        let Some(blocked) = blacklist.as_ref().and_then(|list| list.report(address, offence, now_s)) else {
            return;
        };
        let listener = &self.maker.listener.name;
        shared.metrics.network_blocked(listener, offence);
        let seconds = blocked.until_s.saturating_sub(now_s);
        tracing::warn!(listener, client = %address, seconds, "{blocked}");
        if self.file.live.current().blacklist().is_some_and(|settings| settings.kernel.is_some()) {
            self.file.memory.tell_kernel();
        }
    }
}

/// Follows the policies of these listeners. Another program may change each of them.
pub(crate) fn follow(shared: &Arc<Shared>, listeners: Vec<Arc<Policed>>) -> Vec<JoinHandle<()>> {
    let mut files: Vec<Vec<Arc<Policed>>> = vec![];
    for listener in listeners {
        let same = |of: &&mut Vec<Arc<Policed>>| {
            of.first().is_some_and(|other| Arc::ptr_eq(&other.file, &listener.file))
        };
        match files.iter_mut().find(same) {
            Some(of) => of.push(listener),
            None => files.push(vec![listener]),
        }
    }
    files.into_iter().map(|of| tokio::spawn(follow_file(shared.clone(), of.into()))).collect()
}

async fn follow_file(shared: Arc<Shared>, listeners: Arc<[Arc<Policed>]>) {
    let phases: watch::Receiver<Phase> = shared.phase.subscribe();
    let mut ticks = interval(POLL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = reached(&phases, Phase::Draining) => return,
        }
        let (polled, shared) = (listeners.clone(), shared.clone());
        // It fails only if the runtime ends.
        let _ = spawn_blocking(move || poll(&shared, &polled)).await;
    }
}

/// The warnings of all these listeners, each once.
pub(crate) fn warnings_of(listeners: &[Arc<Policed>]) -> Vec<Fault> {
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
fn poll(shared: &Shared, listeners: &[Arc<Policed>]) {
    let Some(file) = listeners.first().map(|listener| &listener.file) else { return };
    let _changes: Vec<_> = listeners.iter().map(|listener| listener.maker.change()).collect();
    let mut made = vec![];
    let reload = file.live.poll_with(|policy| {
        let mut faults = vec![];
        for listener in listeners {
            match listener.maker.servers(policy, &listener.maker.files.own.load()) {
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
            file.memory.adopt(file, &policy);
            service::warn_of(&warnings_of(listeners));
            shared.changed.send_replace(());
            shared.metrics.policy_reloaded(true);
        }
        Reload::Kept(faults) => {
            for fault in faults.iter() {
                tracing::error!("{fault}");
            }
            let file = file.path.display().to_string();
            tracing::error!(file, "policy: not reloaded; the previous one stays in force");
            shared.metrics.policy_reloaded(false);
        }
    }
}
