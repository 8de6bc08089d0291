//! What the gateway counts, in the form of Prometheus (OpenMetrics). docs/gateway.md lists the metrics.

use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dunlin::{HandshakeKind, Negotiated};
use dunlin_tokio::HandshakeError;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use crate::identity;

/// Names and values of labels. The values come from the configuration or from fixed lists, never from clients, so that clients cannot
/// fill the memory with them.
type Labels = Vec<(&'static str, String)>;
type Counters = Family<Labels, Counter>;

/// Upper bounds of the buckets of handshake times, in seconds: from a resumption on loopback to slow links.
const HANDSHAKE_BUCKETS: [f64; 11] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.0, 10.0];

/// A limit of the configuration that a client has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Connections,
    ConnectionsPerHost,
    Handshakes,
    HandshakesPerHost,
    HandshakeTime,
    IdleTime,
    HeaderBytes,
}

impl Limit {
    /// The name of the limit in the configuration.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::ConnectionsPerHost => "connections_per_host",
            Self::Handshakes => "handshakes",
            Self::HandshakesPerHost => "handshakes_per_host",
            Self::HandshakeTime => "handshake_time",
            Self::IdleTime => "idle_time",
            Self::HeaderBytes => "header_bytes",
        }
    }
}

/// All metrics of a gateway.
pub(crate) struct Metrics {
    registry: Registry,
    accepted: Counters,
    open: Family<Labels, Gauge>,
    limits: Counters,
    handshakes: Counters,
    completed: Counters,
    handshake_time: Family<Labels, Histogram>,
    saved: Counters,
    backends: Counters,
    bytes: Counters,
    dropped: Counters,
    reloads: Counters,
    reload_succeeded: Gauge,
    reload_time: Gauge<f64, AtomicU64>,
}

fn labels<const N: usize>(pairs: [(&'static str, &str); N]) -> Labels {
    pairs.map(|(name, value)| (name, value.to_owned())).to_vec()
}

impl Metrics {
    pub(crate) fn new() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("dunlin_gateway"),
            accepted: Family::default(),
            open: Family::default(),
            limits: Family::default(),
            handshakes: Family::default(),
            completed: Family::default(),
            handshake_time: Family::new_with_constructor(|| Histogram::new(HANDSHAKE_BUCKETS)),
            saved: Family::default(),
            backends: Family::default(),
            bytes: Family::default(),
            dropped: Family::default(),
            reloads: Family::default(),
            reload_succeeded: Gauge::default(),
            reload_time: Gauge::default(),
        };
        let m = &metrics;
        let counters = [
            ("connections_accepted", "Connections that clients have opened", &m.accepted),
            ("limits_reached", "Clients that reached a limit of the configuration", &m.limits),
            ("handshakes", "Ended handshakes by outcome", &m.handshakes),
            ("handshakes_completed", "Completed handshakes by what they negotiated", &m.completed),
            ("backend_connects", "Connections to backends by outcome", &m.backends),
            ("datagrams_dropped", "Datagrams lost between the gateway and a backend", &m.dropped),
            ("reloads", "Reloads of the configuration by outcome", &m.reloads),
        ];
        let counters = counters.map(|(name, help, family)| (name, help, family.clone()));
        let (saved, bytes) = (m.saved.clone(), m.bytes.clone());
        let (open, time) = (m.open.clone(), m.handshake_time.clone());
        let (succeeded, at) = (m.reload_succeeded.clone(), m.reload_time.clone());
        let registry = &mut metrics.registry;
        for (name, help, family) in counters {
            registry.register(name, help, family);
        }
        let help = "Bytes of certificates that handshakes omitted because the client's cache has them";
        registry.register_with_unit("handshake_saved", help, Unit::Bytes, saved);
        registry.register_with_unit("transferred", "Application data by direction", Unit::Bytes, bytes);
        registry.register("connections", "Open connections, also those in a handshake", open);
        registry.register_with_unit("handshake", "Time of completed handshakes", Unit::Seconds, time);
        let help = "Whether the latest reload succeeded; 1 before the first";
        registry.register("reload_succeeded", help, succeeded);
        registry.register_with_unit(
            "reload_time",
            "When the latest reload ended, since 1970",
            Unit::Seconds,
            at,
        );
        metrics.reload_succeeded.set(1);
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

    pub(crate) fn handshake_failed(&self, listener: &str, reason: &'static str) {
        let labels = labels([("listener", listener), ("outcome", "failed"), ("reason", reason)]);
        self.handshakes.get_or_create(&labels).inc();
    }

    pub(crate) fn handshake_completed(&self, listener: &str, negotiated: &Negotiated, took: Duration) {
        let outcome = labels([("listener", listener), ("outcome", "completed"), ("reason", "")]);
        self.handshakes.get_or_create(&outcome).inc();
        let version = negotiated.version.map(|version| version.to_string()).unwrap_or_default();
        let kind = match negotiated.kind {
            HandshakeKind::Full => "full",
            HandshakeKind::Cached { .. } => "cached",
            HandshakeKind::Resumed => "resumed",
            _ => "other",
        };
        let client = identity::way(negotiated.peer.as_ref());
        let what = [("listener", listener), ("version", &*version), ("client", client), ("kind", kind)];
        self.completed.get_or_create(&labels(what)).inc();
        self.handshake_time
            .get_or_create(&labels([("listener", listener), ("kind", kind)]))
            .observe(took.as_secs_f64());
        if negotiated.saved_bytes > 0 {
            let saved = u64::try_from(negotiated.saved_bytes).unwrap_or(u64::MAX);
            self.saved.get_or_create(&labels([("listener", listener)])).inc_by(saved);
        }
    }

    /// Counts a connection to a backend. `outcome` is `connected`, `refused`, `timeout` or `failed`.
    pub(crate) fn backend(&self, listener: &str, route: &str, outcome: &'static str) {
        let labels = labels([("listener", listener), ("route", route), ("outcome", outcome)]);
        self.backends.get_or_create(&labels).inc();
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

    /// Whether the latest reload succeeded.
    pub(crate) fn has_reloaded(&self) -> bool {
        self.reload_succeeded.get() == 1
    }

    pub(crate) fn reloaded(&self, succeeded: bool) {
        let outcome = if succeeded { "succeeded" } else { "refused" };
        self.reloads.get_or_create(&labels([("outcome", outcome)])).inc();
        self.reload_succeeded.set(succeeded.into());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.reload_time.set(now.as_secs_f64());
    }
}

/// The class of a failed handshake, as a label. The lists are those of the engine's errors.
pub(crate) fn reason(error: &HandshakeError) -> &'static str {
    use dunlin::Error as E;
    use dunlin::error::AuthenticationFailure as A;
    match error {
        HandshakeError::Io(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => "closed_by_client",
        HandshakeError::Io(_) => "transport",
        HandshakeError::Timeout(_) => "timeout",
        HandshakeError::Stopped => "stopped",
        HandshakeError::Tls(error) => match error {
            E::Malformed(_) => "malformed",
            E::PeerMisbehaved(_) => "protocol",
            E::PeerIncompatible(_) => "incompatible",
            E::Authentication(A::NoCertificate) => "no_certificate",
            E::Authentication(A::Expired(_)) => "certificate_expired",
            E::Authentication(A::NotValidYet(_)) => "certificate_not_valid_yet",
            E::Authentication(A::UnknownIssuer) => "unknown_issuer",
            E::Authentication(A::BadChainSignature) => "bad_chain_signature",
            E::Authentication(A::Revoked) => "certificate_revoked",
            E::Authentication(_) => "authentication",
            E::AlertReceived(_) => "alert_received",
            E::Truncated => "closed_by_client",
            E::TimedOut => "timeout",
            _ => "internal",
        },
        _ => "other",
    }
}
