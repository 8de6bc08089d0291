//! Reports of the gateway and the tunnel about the connections of devices, taken from their logs.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

use super::setup::GUEST;

/// The crate whose log counts.
const LOG: &str = "dunlin_gateway";
/// How long a device waits for the line about its failed handshake.
const PATIENCE: Duration = Duration::from_secs(2);

/// The reports of the gateway, and of a tunnel if there is one, about a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// The profile that the policy has chosen, and the rule.
    pub(super) profile: Option<String>,
    pub(super) rule: Option<String>,
    /// Whether the profile was changed by renegotiation.
    pub(super) renegotiated: bool,
    /// Why the handshake failed.
    pub(super) failure: Option<String>,
    /// The result of a tunnel's handshake: the version, the server's identity, and the bytes read and
    /// written.
    pub(super) version: Option<String>,
    pub(super) identity: Option<String>,
    pub(super) bytes: [u64; 2],
    /// `Full`, `Cached …` or `Resumed`.
    pub(super) kind: Option<String>,
}

/// The lines about connections that devices expect, by the device's address or by its identity.
#[derive(Clone, Default)]
pub(super) struct Witness(Arc<Shared>);

#[derive(Default)]
struct Shared {
    connections: Mutex<HashMap<String, Seen>>,
    changed: Notify,
    /// Gets the identities of clients that connect by hand.
    guests: Mutex<Option<mpsc::Sender<String>>>,
}

impl Witness {
    /// A witness that sends the identities of clients that connect by hand to `guests`.
    pub(super) fn new(guests: mpsc::Sender<String>) -> Self {
        let witness = Self::default();
        *witness.0.guests.lock().unwrap_or_else(PoisonError::into_inner) = Some(guests);
        witness
    }

    /// Collects the lines about the client at `address`. Must be called before it connects.
    pub(super) fn expect(&self, address: SocketAddr) -> Expected<'_> {
        self.expect_key(address.to_string())
    }

    /// Collects the lines about the client with this identity, for which a tunnel connects.
    pub(super) fn expect_identity(&self, identity: &str) -> Expected<'_> {
        self.expect_key(identity.to_owned())
    }

    fn expect_key(&self, key: String) -> Expected<'_> {
        self.lock().insert(key.clone(), Seen::default());
        Expected { witness: self, key }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Seen>> {
        // No code under the lock leaves the map inconsistent.
        self.0.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, mut line: Line) {
        let message = line.text("message").unwrap_or_default();
        let identity = line.text("identity");
        let mut connections = self.lock();
        let keys = [line.text("client"), identity.clone()];
        let key = keys.into_iter().flatten().find(|key| connections.contains_key(key));
        let Some(seen) = key.and_then(|key| connections.get_mut(&key)) else {
            drop(connections);
            let is_guest = |identity: &String| identity.split(' ').nth(1) == Some(GUEST);
            if let (Some(identity), "connected") = (identity.filter(is_guest), &*message) {
                let guests = self.0.guests.lock().unwrap_or_else(PoisonError::into_inner);
                // The table need not count every one of a flood.
                let _ = guests.as_ref().map(|guests| guests.try_send(identity));
            }
            return;
        };
        match &*message {
            "connected" => {
                (seen.profile, seen.rule, seen.kind) =
                    (line.text("profile"), line.text("rule"), line.text("kind"));
                (seen.version, seen.identity, seen.bytes) = (line.text("version"), identity, line.bytes);
            }
            "renegotiated" => (seen.profile, seen.renegotiated) = (line.text("profile"), true),
            "handshake failed" | "no connection to the server" => seen.failure = line.text("error"),
            _ => return,
        }
        drop(connections);
        self.0.changed.notify_waiters();
    }
}

/// A connection whose lines are collected until this value is dropped.
pub(super) struct Expected<'a> {
    witness: &'a Witness,
    key: String,
}

impl Expected<'_> {
    /// Returns the reports so far.
    pub(super) fn seen(&self) -> Seen {
        self.witness.lock().get(&self.key).cloned().unwrap_or_default()
    }

    /// Waits until `is_there` is true for the gateway's reports. Returns the reports so far, also if the line
    /// does not come.
    pub(super) async fn wait(&self, is_there: fn(&Seen) -> bool) -> Seen {
        let wait = async {
            loop {
                let changed = self.witness.0.changed.notified();
                if is_there(&self.seen()) {
                    return;
                }
                changed.await;
            }
        };
        let _ = timeout(PATIENCE, wait).await;
        self.seen()
    }
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.witness.lock().remove(&self.key);
    }
}

impl<S: Subscriber> Layer<S> for Witness {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        if metadata.target().starts_with(LOG) && *metadata.level() <= Level::INFO {
            let mut line = Line::default();
            event.record(&mut line);
            self.note(line);
        }
    }
}

/// The fields of a line of the log.
#[derive(Default)]
struct Line {
    texts: HashMap<&'static str, String>,
    bytes: [u64; 2],
}

impl Line {
    /// Takes the text of a field.
    fn text(&mut self, name: &str) -> Option<String> {
        self.texts.remove(name)
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.texts.insert(field.name(), value.to_owned());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        let [read, written] = &mut self.bytes;
        match field.name() {
            "handshake_read" => *read = value,
            "handshake_written" => *written = value,
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.texts.insert(field.name(), format!("{value:?}"));
    }
}
