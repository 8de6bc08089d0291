//! The gateway's metrics, in the form of Prometheus (OpenMetrics). docs/gateway.md lists them.

mod endpoints;
mod failure;

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dunlin::places::{GivesWay, HandshakeLimit, PlaceLimit};
use dunlin::{HandshakeKind, Negotiated, PeerIdentity};
use dunlin_tokio::DtlsEndpoint;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use serde::Serialize;

use crate::clock::wall;
use crate::config::{AcmeChallenge, Faults};
use crate::identity;
use crate::policy::{Decision, Offence, Stage, Verdict};
use endpoints::{Endpoints, Watched};
pub(crate) use failure::{Failure, reason};

/// The version of the gateway.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The most faults of a refused reload or policy that `/status` shows. The log has all of them.
pub(crate) const MAX_FAULTS: usize = 20;

/// Names and values of labels. The values come from the configuration or from fixed lists, never from
/// clients, so that clients cannot fill the memory with them.
type Labels = Vec<(&'static str, String)>;
type Counters = Family<Labels, Counter>;

/// Upper bounds of the buckets of handshake times, in seconds: from a resumption on loopback to slow links.
const HANDSHAKE_BUCKETS: [f64; 11] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.0, 10.0];

/// A limit of the configuration that a client has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Connections,
    ConnectionsPerHost,
    ConnectionsPerNetwork,
    Handshakes,
    HandshakesPerHost,
    HandshakeTime,
    IdleTime,
    ForgetTime,
    HeaderBytes,
    OpenFiles,
}

impl Limit {
    /// The limit of the configuration behind a limit on places.
    pub(crate) const fn of(limit: PlaceLimit) -> Self {
        match limit {
            PlaceLimit::All => Self::Connections,
            PlaceLimit::PerHost => Self::ConnectionsPerHost,
            PlaceLimit::PerNetwork => Self::ConnectionsPerNetwork,
        }
    }

    /// The limit of the configuration behind a limit on handshakes.
    pub(crate) const fn of_handshakes(limit: HandshakeLimit) -> Self {
        match limit {
            HandshakeLimit::All => Self::Handshakes,
            HandshakeLimit::PerHost => Self::HandshakesPerHost,
        }
    }

    /// The name of the limit in the configuration, or `open_files`, which the system has.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::ConnectionsPerHost => "connections_per_host",
            Self::ConnectionsPerNetwork => "connections_per_network",
            Self::Handshakes => "handshakes",
            Self::HandshakesPerHost => "handshakes_per_host",
            Self::HandshakeTime => "handshake_time",
            Self::IdleTime => "idle_time",
            Self::ForgetTime => "forget_time",
            Self::HeaderBytes => "header_bytes",
            Self::OpenFiles => "open_files",
        }
    }
}

/// The fate of a datagram between gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// It was sent to the gateway that has the association.
    Forwarded,
    /// It was sent to the gateway that receives the client's datagrams.
    Returned,
    /// Another gateway has sent it for an association here.
    Delivered,
    /// Another gateway has sent it for a client, who got it.
    Sent,
    /// The other gateway is down, or the system does not take it.
    Lost,
    /// Another gateway has sent it, but its association or listener is not here.
    Unknown,
    /// It has come before, or may have.
    Replayed,
    /// It does not have the MAC of the shared key, or is not for this gateway.
    Forged,
}

impl Passed {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Forwarded => "forwarded",
            Self::Returned => "returned",
            Self::Delivered => "delivered",
            Self::Sent => "sent",
            Self::Lost => "lost",
            Self::Unknown => "unknown",
            Self::Replayed => "replayed",
            Self::Forged => "forged",
        }
    }
}

/// The latest reload.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Reloaded {
    /// When it ended, in seconds since 1970.
    pub(crate) time: u64,
    pub(crate) succeeded: bool,
    /// Why it was refused: the first [`MAX_FAULTS`] faults.
    pub(crate) faults: Vec<String>,
}

/// A client that has completed its handshake. It counts as connected until the value is dropped.
#[must_use]
pub(crate) struct Established {
    family: Family<Labels, Gauge>,
    labels: Labels,
}

impl Established {
    fn new(family: &Family<Labels, Gauge>, labels: Labels) -> Self {
        family.get_or_create(&labels).inc();
        Self { family: family.clone(), labels }
    }

    /// Counts the client under the profile of a renegotiation.
    pub(crate) fn set_profile(&mut self, profile: &str) {
        let mut labels = self.labels.clone();
        labels
            .iter_mut()
            .filter(|(name, _)| *name == "profile")
            .for_each(|(_, value)| profile.clone_into(value));
        *self = Self::new(&self.family, labels);
    }
}

impl Drop for Established {
    fn drop(&mut self) {
        self.family.get_or_create(&self.labels).dec();
    }
}

/// The program that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// It serves TLS clients.
    Gateway,
    /// It is itself a TLS client.
    Tunnel,
}

impl Role {
    /// The prefix of the metrics' names.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Gateway => "dunlin_gateway",
            Self::Tunnel => "dunlin_tunnel",
        }
    }

    /// The owners of certificates: this program, and its peers.
    const fn sides(self) -> [&'static str; 2] {
        match self {
            Self::Gateway => ["gateway", "client"],
            Self::Tunnel => ["tunnel", "server"],
        }
    }

    /// The counter of connections to the servers behind the program.
    const fn connects(self) -> &'static str {
        match self {
            Self::Gateway => "backend_connects",
            Self::Tunnel => "server_connects",
        }
    }

    /// The label with the peer's way of authentication.
    const fn peer(self) -> &'static str {
        match self {
            Self::Gateway => "client",
            Self::Tunnel => "server",
        }
    }
}

/// All metrics of a gateway or tunnel.
pub(crate) struct Metrics {
    pub(crate) role: Role,
    registry: Registry,
    started: SystemTime,
    endpoints: Endpoints,
    established: Family<Labels, Gauge>,
    latest_reload: Mutex<Option<Reloaded>>,
    accepted: Counters,
    open: Family<Labels, Gauge>,
    limits: Counters,
    gave_way: Counters,
    handshakes: Counters,
    completed: Counters,
    handshake_time: Family<Labels, Histogram>,
    saved: Counters,
    backends: Counters,
    bytes: Counters,
    dropped: Counters,
    passed_on: Counters,
    frozen: Counters,
    decisions: Counters,
    renegotiations: Counters,
    blocked: Counters,
    blacklisted: Counters,
    redirected: Counters,
    shared_refreshes: Counters,
    /// Shared with the verifiers.
    pub(crate) outage_proofs: Counter,
    denied: Counters,
    acme_orders: Counters,
    acme_challenges: Counters,
    acme_expiry: Family<Labels, Gauge>,
    policy_reloads: Counters,
    reloads: Counters,
    reload_succeeded: Gauge,
    reload_time: Gauge<f64, AtomicU64>,
}

fn labels<const N: usize>(pairs: [(&'static str, &str); N]) -> Labels {
    pairs.map(|(name, value)| (name, value.to_owned())).to_vec()
}

impl Metrics {
    pub(crate) fn new(role: Role) -> Self {
        let mut metrics = Self {
            role,
            registry: Registry::with_prefix(role.prefix()),
            started: wall(),
            endpoints: Endpoints::default(),
            established: Family::default(),
            latest_reload: Mutex::default(),
            accepted: Family::default(),
            open: Family::default(),
            limits: Family::default(),
            gave_way: Family::default(),
            handshakes: Family::default(),
            completed: Family::default(),
            handshake_time: Family::new_with_constructor(|| Histogram::new(HANDSHAKE_BUCKETS)),
            saved: Family::default(),
            backends: Family::default(),
            bytes: Family::default(),
            dropped: Family::default(),
            passed_on: Family::default(),
            frozen: Family::default(),
            decisions: Family::default(),
            renegotiations: Family::default(),
            blocked: Family::default(),
            blacklisted: Family::default(),
            redirected: Family::default(),
            shared_refreshes: Family::default(),
            outage_proofs: Counter::default(),
            denied: Family::default(),
            acme_orders: Family::default(),
            acme_challenges: Family::default(),
            acme_expiry: Family::default(),
            policy_reloads: Family::default(),
            reloads: Family::default(),
            reload_succeeded: Gauge::default(),
            reload_time: Gauge::default(),
        };
        let m = &metrics;
        let counters = [
            ("connections_accepted", "Connections that clients have opened", &m.accepted),
            ("limits_reached", "Clients that reached a limit of the configuration", &m.limits),
            ("gave_way", "Clients that gave way to another one at a limit, by reason", &m.gave_way),
            ("handshakes", "Ended handshakes by outcome", &m.handshakes),
            ("handshakes_completed", "Completed handshakes by what they negotiated", &m.completed),
            (role.connects(), "Connections to servers behind it by outcome", &m.backends),
            ("datagrams_dropped", "Datagrams that did not get to the other side", &m.dropped),
            ("frozen_associations", "Associations at the end or start of the gateway by outcome", &m.frozen),
            ("node_datagrams", "Datagrams between gateways by what became of them", &m.passed_on),
            ("policy_decisions", "Decisions of policies by rule", &m.decisions),
            ("renegotiations", "Renegotiations that a policy demanded, by outcome", &m.renegotiations),
            ("policy_reloads", "Changed policies by whether they came into force", &m.policy_reloads),
            ("networks_blocked", "Networks that came onto the blacklist, by offence", &m.blocked),
            ("blacklisted", "Clients refused since the blacklist has their network", &m.blacklisted),
            ("redirected", "Requests over plain HTTP that were sent on to HTTPS", &m.redirected),
            ("access_denied", "Clients that the key allow of their route does not admit", &m.denied),
            ("acme_orders", "Certificates that the gateway has ordered, by outcome", &m.acme_orders),
            ("acme_challenges", "Names that authorities have validated here", &m.acme_challenges),
            ("shared_refreshes", "Questions to Redis for what gateways share", &m.shared_refreshes),
            ("reloads", "Reloads of the configuration by outcome", &m.reloads),
        ];
        let counters = counters.map(|(name, help, family)| (name, help, family.clone()));
        let saved = m.saved.clone();
        let bytes = m.bytes.clone();
        let open = m.open.clone();
        let time = m.handshake_time.clone();
        let expiry = m.acme_expiry.clone();
        let outage_proofs = m.outage_proofs.clone();
        let established = m.established.clone();
        let endpoints = m.endpoints.clone();
        let begin: Gauge<f64, AtomicU64> = Gauge::default();
        begin.set(since_1970(m.started).as_secs_f64());
        m.reload_succeeded.set(1);
        let succeeded = m.reload_succeeded.clone();
        let at = m.reload_time.clone();
        let registry = &mut metrics.registry;
        for (name, help, family) in counters {
            registry.register(name, help, family);
        }
        let help = "Bytes of certificates that cached and resumed handshakes omitted, as far as the gateway knows them";
        registry.register_with_unit("handshake_saved", help, Unit::Bytes, saved);
        registry.register_with_unit("transferred", "Application data by direction", Unit::Bytes, bytes);
        registry.register("connections", "Open connections, also those in a handshake", open);
        let help = "Clients that have completed their handshakes, and are connected";
        registry.register("established", help, established);
        let help = "Older proofs of DIDs that have counted, because their registry did not answer";
        registry.register("outage_proofs", help, outage_proofs);
        let help = "When certificates by ACME expire, since 1970";
        registry.register_with_unit("acme_expiry", help, Unit::Seconds, expiry);
        let help = "Time of completed handshakes, from the client's first byte to its Finished";
        registry.register_with_unit("handshake", help, Unit::Seconds, time);
        registry.register_collector(Box::new(endpoints));
        registry.register("build", "The gateway itself", Info::new([("version", VERSION)]));
        registry.register_with_unit("start_time", "When the gateway began, since 1970", Unit::Seconds, begin);
        registry.register(
            "reload_succeeded",
            "Whether the latest reload succeeded; 1 before the first",
            succeeded,
        );
        let help = "When the latest reload ended, since 1970";
        registry.register_with_unit("reload_time", help, Unit::Seconds, at);
        metrics
    }

    /// The metrics in the text format of OpenMetrics.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a text does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    pub(crate) fn accepted(&self, listener: &str) {
        self.accepted.get_or_create(&labels([("listener", listener)])).inc();
        self.open.get_or_create(&labels([("listener", listener)])).inc();
    }

    pub(crate) fn closed(&self, listener: &str) {
        self.open.get_or_create(&labels([("listener", listener)])).dec();
    }

    pub(crate) fn limit_reached(&self, listener: &str, limit: Limit) {
        self.limits.get_or_create(&labels([("listener", listener), ("limit", limit.name())])).inc();
    }

    /// Counts a client that gave way to another one.
    pub(crate) fn gave_way(&self, listener: &str, why: GivesWay) {
        self.gave_way.get_or_create(&labels([("listener", listener), ("reason", why.name())])).inc();
    }

    pub(crate) fn handshake_failed(&self, listener: &str, Failure { reason, result }: Failure) {
        let reason = match (self.role, reason) {
            (Role::Tunnel, "closed_by_client") => "closed_by_server",
            (_, reason) => reason,
        };
        let what = [("listener", listener), ("outcome", "failed"), ("reason", reason), ("result", result)];
        self.handshakes.get_or_create(&labels(what)).inc();
    }

    /// Counts a completed handshake. `rule` is the rule that has chosen the profile; empty without a policy.
    /// `took` is the time since the client's first byte. The client counts as connected until the caller
    /// drops the answer.
    pub(crate) fn handshake_completed(
        &self,
        listener: &str,
        negotiated: &Negotiated,
        rule: &str,
        took: Duration,
    ) -> Established {
        let outcome =
            [("listener", listener), ("outcome", "completed"), ("reason", ""), ("result", failure::SUCCESS)];
        self.handshakes.get_or_create(&labels(outcome)).inc();
        let version = negotiated.version.map(|version| version.to_string()).unwrap_or_default();
        let kind = kind(negotiated);
        let peer = (self.role.peer(), identity::way(negotiated.peer.as_ref()));
        let issuer = identity::issuer(negotiated.peer.as_ref()).unwrap_or_default();
        let profile = &*negotiated.profile;
        let what = [
            ("listener", listener),
            ("version", &*version),
            peer,
            ("issuer", &*issuer),
            ("kind", kind),
            ("profile", profile),
            ("rule", rule),
        ];
        self.completed.get_or_create(&self.without_policy(what)).inc();
        self.handshake_time
            .get_or_create(&labels([("listener", listener), ("kind", kind)]))
            .observe(took.as_secs_f64());
        let of_client = omitted_chain(negotiated);
        let [own, others] = self.role.sides();
        for (certificates, saved) in [(own, negotiated.saved_bytes), (others, of_client)] {
            if saved > 0 {
                let labels = labels([("listener", listener), ("kind", kind), ("certificates", certificates)]);
                self.saved.get_or_create(&labels).inc_by(u64::try_from(saved).unwrap_or(u64::MAX));
            }
        }
        self.established(listener, negotiated)
    }

    /// Counts a client as connected until the caller drops the answer.
    pub(crate) fn established(&self, listener: &str, negotiated: &Negotiated) -> Established {
        let peer = (self.role.peer(), identity::way(negotiated.peer.as_ref()));
        let profile = &*negotiated.profile;
        let kind = kind(negotiated);
        let connected =
            self.without_policy([("listener", listener), ("profile", profile), peer, ("kind", kind)]);
        Established::new(&self.established, connected)
    }

    /// Counts associations that were frozen, left, thawed, or refused at the thaw.
    pub(crate) fn frozen(&self, listener: &str, outcome: &'static str, associations: usize) {
        if associations > 0 {
            let labels = labels([("listener", listener), ("outcome", outcome)]);
            self.frozen.get_or_create(&labels).inc_by(associations as u64);
        }
    }

    /// These labels; for a tunnel, which has no policy, without the labels of policies.
    fn without_policy<const N: usize>(&self, pairs: [(&'static str, &str); N]) -> Labels {
        let has = |name: &str| self.role == Role::Gateway || !["profile", "rule"].contains(&name);
        labels(pairs).into_iter().filter(|(name, _)| has(name)).collect()
    }

    /// Shows the associations and discarded datagrams of a listener's endpoint until the caller drops the
    /// answer. `listener` returns the name of the listener, which a reload may change.
    pub(crate) fn watch(
        &self,
        listener: impl Fn() -> String + Send + Sync + 'static,
        endpoint: &DtlsEndpoint,
    ) -> Watched {
        self.endpoints.watch(Box::new(listener), endpoint)
    }

    /// The DTLS associations of all listeners, also those in a handshake.
    pub(crate) fn associations(&self) -> usize {
        self.endpoints.associations()
    }

    /// The number of clients that have connected to this listener, and of clients that are still connected.
    pub(crate) fn clients(&self, listener: &str) -> (u64, u64) {
        let labels = labels([("listener", listener)]);
        let accepted = self.accepted.get(&labels).map_or(0, |count| count.get());
        (accepted, self.open.get(&labels).map_or(0, |open| u64::try_from(open.get()).unwrap_or(0)))
    }

    /// Counts a connection to a backend. `outcome` is `connected`, `refused`, `timeout` or `failed`.
    pub(crate) fn backend(&self, listener: &str, route: &str, outcome: &'static str) {
        let labels = labels([("listener", listener), ("route", route), ("outcome", outcome)]);
        self.backends.get_or_create(&labels).inc();
    }

    /// Counts an attempt of a tunnel to connect to its server, as [`Self::backend`].
    pub(crate) fn server(&self, listener: &str, outcome: &'static str) {
        self.backends.get_or_create(&labels([("listener", listener), ("outcome", outcome)])).inc();
    }

    /// Counts application data.
    pub(crate) fn transferred(&self, listener: &str, from_client: u64, to_client: u64) {
        for (direction, bytes) in [("from_client", from_client), ("to_client", to_client)] {
            let labels = labels([("listener", listener), ("direction", direction)]);
            self.bytes.get_or_create(&labels).inc_by(bytes);
        }
    }

    /// Counts datagrams that did not reach the other side.
    pub(crate) fn dropped(&self, listener: &str, datagrams: u64) {
        if datagrams > 0 {
            self.dropped.get_or_create(&labels([("listener", listener)])).inc_by(datagrams);
        }
    }

    /// A counter of datagrams from and for the gateway with this number.
    pub(crate) fn of_node(&self, node: u16) -> Box<dyn Fn(Passed) + Send + Sync> {
        self.of_node_named(node.to_string())
    }

    /// A counter of datagrams that no gateway has sent.
    pub(crate) fn of_no_node(&self) -> Box<dyn Fn(Passed) + Send + Sync> {
        self.of_node_named(String::new())
    }

    fn of_node_named(&self, node: String) -> Box<dyn Fn(Passed) + Send + Sync> {
        let family = self.passed_on.clone();
        Box::new(move |passed| {
            family.get_or_create(&labels([("node", &*node), ("outcome", passed.name())])).inc();
        })
    }

    /// Counts a request over plain HTTP that was sent on to HTTPS.
    pub(crate) fn redirected(&self, listener: &str) {
        self.redirected.get_or_create(&labels([("listener", listener)])).inc();
    }

    pub(crate) fn access_denied(&self, listener: &str, route: &str) {
        self.denied.get_or_create(&labels([("listener", listener), ("route", route)])).inc();
    }

    /// Counts a question to Redis for `what` the gateways share.
    pub(crate) fn shared_refreshed(&self, listener: &str, what: &str, is_answered: bool) {
        let outcome = if is_answered { "succeeded" } else { "failed" };
        let labels = labels([("listener", listener), ("what", what), ("outcome", outcome)]);
        self.shared_refreshes.get_or_create(&labels).inc();
    }

    /// Counts an order of a certificate.
    pub(crate) fn acme_ordered(&self, listener: &str, certificate: &str, is_issued: bool) {
        let outcome = if is_issued { "issued" } else { "failed" };
        let labels = labels([("listener", listener), ("certificate", certificate), ("outcome", outcome)]);
        self.acme_orders.get_or_create(&labels).inc();
    }

    /// Sets when a certificate by ACME expires.
    pub(crate) fn acme_expiry(&self, listener: &str, certificate: &str, not_after: SystemTime) {
        let labels = labels([("listener", listener), ("certificate", certificate)]);
        let seconds = i64::try_from(since_1970(not_after).as_secs()).unwrap_or(i64::MAX);
        self.acme_expiry.get_or_create(&labels).set(seconds);
    }

    /// Counts an authority that has looked at the answer to its challenge.
    pub(crate) fn acme_challenged(&self, listener: &str, challenge: AcmeChallenge) {
        let labels = labels([("listener", listener), ("challenge", challenge.name())]);
        self.acme_challenges.get_or_create(&labels).inc();
    }

    /// The latest reload, if there was one.
    pub(crate) fn latest_reload(&self) -> Option<Reloaded> {
        self.latest_reload.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts a decision of the listener's policy, under the rule that made it.
    pub(crate) fn decided(&self, listener: &str, decision: &Decision) {
        let stage = match decision.stage {
            Stage::Hello => "hello",
            Stage::Finished => "finished",
        };
        let verdict = match decision.verdict {
            Verdict::Serve => "serve",
            Verdict::Renegotiate => "renegotiate",
            Verdict::Refuse => "refuse",
        };
        let labels = labels([
            ("listener", listener),
            ("stage", stage),
            ("rule", decision.label()),
            ("verdict", verdict),
            ("profile", &decision.profile.name),
            ("downgrade", if decision.downgrade.is_some() { "yes" } else { "no" }),
        ]);
        self.decisions.get_or_create(&labels).inc();
    }

    /// Counts a renegotiation that the gateway has begun. Otherwise the client has refused it.
    pub(crate) fn renegotiated(&self, listener: &str, is_complete: bool) {
        let outcome = if is_complete { "completed" } else { "refused" };
        self.renegotiations.get_or_create(&labels([("listener", listener), ("outcome", outcome)])).inc();
    }

    /// Counts a policy whose file or database has changed.
    pub(crate) fn policy_reloaded(&self, is_in_force: bool) {
        let outcome = if is_in_force { "succeeded" } else { "refused" };
        self.policy_reloads.get_or_create(&labels([("outcome", outcome)])).inc();
    }

    /// Counts a network that came onto the blacklist.
    pub(crate) fn network_blocked(&self, listener: &str, offence: Offence) {
        let offence = match offence {
            Offence::Failed => "failed",
            Offence::Foreign => "foreign",
        };
        self.blocked.get_or_create(&labels([("listener", listener), ("offence", offence)])).inc();
    }

    /// Counts a client that is refused since the blacklist has its network.
    pub(crate) fn blacklisted(&self, listener: &str) {
        self.blacklisted.get_or_create(&labels([("listener", listener)])).inc();
    }

    /// When the gateway began.
    pub(crate) const fn started(&self) -> SystemTime {
        self.started
    }

    /// Counts a reload, and keeps its result. `refused` says why it changed nothing.
    pub(crate) fn reloaded(&self, refused: Option<&Faults>) {
        let outcome = if refused.is_none() { "succeeded" } else { "refused" };
        self.reloads.get_or_create(&labels([("outcome", outcome)])).inc();
        self.reload_succeeded.set(refused.is_none().into());
        let now = since_1970(wall());
        self.reload_time.set(now.as_secs_f64());
        let faults = refused.into_iter().flat_map(Faults::iter).take(MAX_FAULTS).map(ToString::to_string);
        let latest = Reloaded { time: now.as_secs(), succeeded: refused.is_none(), faults: faults.collect() };
        *self.latest_reload.lock().unwrap_or_else(PoisonError::into_inner) = Some(latest);
    }
}

/// The kind of a handshake.
const fn kind(negotiated: &Negotiated) -> &'static str {
    match negotiated.kind {
        HandshakeKind::Full => "full",
        HandshakeKind::Cached { .. } => "cached",
        HandshakeKind::Resumed => "resumed",
        _ => "other",
    }
}

/// The time since 1970.
pub(crate) fn since_1970(time: SystemTime) -> Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The length of the client's certificates that this handshake did not transfer, in bytes of DER. Zero if it
/// is not known: only sessions in memory keep the certificates.
fn omitted_chain(negotiated: &Negotiated) -> usize {
    match &negotiated.peer {
        Some(PeerIdentity::X509(id)) if negotiated.is_resumed() || negotiated.is_peer_cached() => {
            id.chain.iter().map(|certificate| certificate.len()).sum()
        }
        _ => 0,
    }
}
