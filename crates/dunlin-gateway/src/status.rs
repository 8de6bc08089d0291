//! The content of `/status`, as docs/gateway.md describes it.

use std::net::SocketAddr;

use serde::Serialize;

use crate::config::{Faults, TransportKind};
use crate::context::Context;
use crate::identity;
use crate::metrics::{self, MAX_FAULTS, Reloaded};
use crate::policy::{Handshakes, Offence, Version};
use crate::policy_file::PolicyFile;

/// The most entries of a table that `/status` shows: a dashboard asks every second.
const MAX_SHOWN: usize = 100;

#[derive(Serialize)]
struct Status<'a> {
    /// `running`, `draining` or `ending`.
    phase: &'static str,
    version: &'static str,
    /// When the gateway began, in seconds since 1970.
    started: u64,
    uptime_seconds: u64,
    /// The open connections and associations of all listeners, and the sum of their limits.
    connections: u64,
    max_connections: usize,
    /// The DTLS associations, also those whose client is not counted yet.
    dtls_associations: usize,
    listeners: Vec<Listener<'a>>,
    policies: Vec<Policy>,
    /// The latest reload; `null` before the first.
    reload: Option<Reloaded>,
}

#[derive(Serialize)]
struct Listener<'a> {
    name: &'a str,
    /// `tls` or `dtls`.
    transport: &'static str,
    address: SocketAddr,
    /// The open connections or associations, also those in a handshake, and the limit without those.
    connections: u64,
    max_connections: usize,
    /// All clients since the start.
    accepted: u64,
    /// The file of its policy.
    policy: Option<String>,
}

#[derive(Serialize)]
struct Policy {
    file: String,
    /// SHA-256 of the content in force, in hexadecimal; `null` for a database.
    sha256: Option<String>,
    /// Since when it is in force, in seconds since 1970.
    since: u64,
    summary: String,
    /// Why the present content of the file is not in force: the first [`MAX_FAULTS`] faults.
    faults: Vec<String>,
    /// How many networks are blocked; `null` without a blacklist.
    blocked: Option<usize>,
    /// The first of them to be free again, at most [`MAX_SHOWN`].
    blacklist: Vec<Blocked>,
    /// How many connections the handshake information table has, and how many addresses of clients the
    /// gateway remembers.
    handshakes: usize,
    addresses: usize,
    /// The connections of the table that changed last, at most [`MAX_SHOWN`].
    latest_handshakes: Vec<Handshake>,
}

#[derive(Serialize)]
struct Handshake {
    client: SocketAddr,
    begun: u32,
    is_served: bool,
    identity: Option<String>,
    profile: Option<String>,
    rule: Option<String>,
    /// When the entry expires, in seconds since 1970.
    until: u64,
}

#[derive(Serialize)]
struct Blocked {
    network: String,
    /// `failed` or `foreign`.
    offence: &'static str,
    /// When it is free again, in seconds since 1970.
    until: u64,
}

/// The status of the gateway as JSON.
pub(crate) fn json(context: &Context, now_s: u64) -> Result<String, serde_json::Error> {
    let listening = context.listening.load();
    let started = metrics::since_1970(context.metrics.started()).as_secs();
    let mut policies: Vec<Policy> = vec![];
    let listeners = listening.iter().map(|listener| {
        let (accepted, connections) = context.metrics.clients(&listener.name);
        let transport = match listener.transport {
            TransportKind::Tls => "tls",
            TransportKind::Dtls => "dtls",
        };
        let policy = listener.policy.as_ref().map(|policy| {
            let file = policy.path().display().to_string();
            if policies.iter().all(|other| other.file != file) {
                policies.push(Policy::of(policy, &file, now_s));
            }
            file
        });
        let max_connections = listener.max_connections;
        let name = &*listener.name;
        let address = listener.address;
        Listener { name, transport, address, connections, max_connections, accepted, policy }
    });
    let listeners: Vec<_> = listeners.collect();
    serde_json::to_string_pretty(&Status {
        phase: context.life.phase().name(),
        version: metrics::VERSION,
        started,
        uptime_seconds: now_s.saturating_sub(started),
        connections: listeners.iter().map(|listener: &Listener<'_>| listener.connections).sum(),
        max_connections: listeners
            .iter()
            .map(|listener| listener.max_connections)
            .fold(0, usize::saturating_add),
        dtls_associations: context.metrics.associations(),
        listeners,
        policies,
        reload: context.metrics.latest_reload(),
    })
}

impl Policy {
    fn of(policy: &PolicyFile, file: &str, now_s: u64) -> Self {
        let Version { since_s, sha256 } = policy.live().version();
        let faults = policy.live().faults();
        let faults = faults.iter().flat_map(Faults::iter).take(MAX_FAULTS).map(ToString::to_string);
        let blocked = policy.memory().blacklist().map(|blacklist| blacklist.first(MAX_SHOWN, now_s));
        let networks = blocked.iter().flat_map(|(_, first)| first).map(|blocked| Blocked {
            network: blocked.network.to_string(),
            offence: match blocked.offence {
                Offence::Failed => "failed",
                Offence::Foreign => "foreign",
            },
            until: blocked.until_s,
        });
        let (handshakes, latest) = policy.memory().handshakes.latest(MAX_SHOWN, now_s);
        let handshake = |(client, of): (SocketAddr, Handshakes)| {
            let Handshakes { begun, is_served, client: identity, profile, rule, until_s: until } = of;
            Handshake { client, begun, is_served, identity, profile, rule, until }
        };
        Self {
            file: file.to_owned(),
            sha256: sha256.map(|sum| identity::hex(&sum)),
            since: since_s,
            summary: policy.live().current().summary(),
            faults: faults.collect(),
            blocked: blocked.as_ref().map(|(count, _)| *count),
            blacklist: networks.collect(),
            handshakes,
            addresses: policy.memory().addresses.len(),
            latest_handshakes: latest.into_iter().map(handshake).collect(),
        }
    }
}
