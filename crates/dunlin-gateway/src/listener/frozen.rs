//! Associations of a DTLS listener that survive a planned restart of the gateway.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use dunlin::error::Misuse;
use dunlin::{AssociationId, DtlsConnection, Now, ServerConfig};
use dunlin_store::frozen::FrozenError;
use dunlin_tokio::{DtlsAssociation, DtlsEndpoint};
use tokio::sync::watch;
use zeroize::Zeroizing;

use super::ListenerState;
use crate::clock::now;
use crate::frozen::{FrozenPlace, NotThawed};
use crate::metrics::Metrics;
use crate::policy_configs::ProfileDigest;
use crate::route;

/// How often the gateway tries to freeze associations for which a message is on its way, and the pause in
/// between: some round trips.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// Freezes the associations of a listener.
pub(super) struct Freezer {
    place: Arc<FrozenPlace>,
    /// The profiles of a policy with which the associations have begun. A profile of the same name may be
    /// another one since then.
    profiles: Mutex<HashMap<AssociationId, ProfileDigest>>,
    /// Whether the associations are frozen, or will not be.
    is_done: watch::Sender<bool>,
}

impl Freezer {
    pub(super) fn new(place: Arc<FrozenPlace>) -> Self {
        Self { place, profiles: Mutex::default(), is_done: watch::Sender::new(false) }
    }

    /// Remembers the profile of an association until the value is dropped.
    pub(super) fn remember<'a>(
        &'a self,
        dtls: &DtlsAssociation,
        profile: ProfileDigest,
    ) -> impl Drop + use<'a> {
        let id = dtls.id();
        self.profiles.lock().unwrap_or_else(PoisonError::into_inner).insert(id, profile);
        Remembered { of: self, id }
    }

    /// Waits until the associations are frozen, or will not be.
    pub(super) async fn done(&self) {
        // It fails only if the sender is gone, which is part of this.
        let _ = self.is_done.subscribe().wait_for(|is_done| *is_done).await;
    }

    /// The remaining associations end as on other listeners.
    pub(super) fn end(&self) {
        self.is_done.send_replace(true);
    }

    /// The connections of the file that this listener's routes and policy still have.
    pub(super) fn thaw(&self, live: &ListenerState, metrics: &Metrics) -> Vec<DtlsConnection> {
        let now = now();
        let mut refused = 0;
        let mut known = HashMap::new();
        let thawed = self.place.thaw(|bytes| {
            let (profile, association) = bytes.split_first_chunk().ok_or("not written by a gateway")?;
            let profile = ProfileDigest(*profile);
            let configs = known.entry(profile).or_insert_with(|| live.tls.thawing(profile));
            thaw_one(live, configs, association, now).inspect_err(|_| refused += 1)
        });
        let listener = &live.config.name;
        metrics.frozen(listener, "thawed", thawed.len());
        metrics.frozen(listener, "refused", refused);
        if !thawed.is_empty() {
            tracing::info!(listener, associations = thawed.len(), "thawed");
        }
        thawed
    }

    /// Freezes the associations of an endpoint. It may take some time.
    pub(super) fn freeze(&self, endpoint: &DtlsEndpoint, listener: &str, metrics: &Metrics) {
        match self.write(endpoint) {
            Ok((associations, left)) => {
                metrics.frozen(listener, "frozen", associations);
                metrics.frozen(listener, "left", left.len());
                tracing::info!(listener, associations, "frozen");
                if let Some((client, error)) = left.first() {
                    let left = left.len();
                    tracing::warn!(listener, left, %client, %error, "some associations cannot be frozen, the first one for this reason");
                }
            }
            Err(error) => {
                tracing::error!(listener, %error, advice = error.advice(), "the associations are lost");
            }
        }
    }

    fn write(&self, endpoint: &DtlsEndpoint) -> Result<(usize, Left), FrozenError> {
        let mut writer = self.place.create()?;
        let mut left = vec![];
        let mut failed = None;
        let mut attempt = 0;
        loop {
            let frozen = endpoint.freeze_each(|id, bytes| {
                let profiles = self.profiles.lock().unwrap_or_else(PoisonError::into_inner);
                let profile = profiles.get(&id).copied().unwrap_or_default();
                drop(profiles);
                let mut whole = Zeroizing::new(Vec::with_capacity(profile.0.len() + bytes.len()));
                whole.extend_from_slice(&profile.0);
                whole.extend_from_slice(bytes);
                writer.push(&whole).map_err(|error| {
                    failed = Some(error);
                    io::ErrorKind::Other.into()
                })
            });
            match (frozen, failed.take()) {
                (_, Some(error)) => return Err(error),
                (Ok(frozen), None) => left = frozen.left,
                (Err(_), None) => {}
            }
            attempt += 1;
            let waits =
                |(_, error): &(_, dunlin::Error)| matches!(error, dunlin::Error::Misuse(Misuse::FlightWaits));
            if attempt == ATTEMPTS || !left.iter().any(waits) {
                break;
            }
            sleep(PAUSE);
        }
        let associations = usize::try_from(writer.associations()).unwrap_or(usize::MAX);
        if associations > 0 {
            writer.finish()?;
        }
        Ok((associations, left))
    }
}

/// Associations that could not be frozen: the clients' addresses, and why.
type Left = Vec<(std::net::SocketAddr, dunlin::Error)>;

/// The profile of an association is remembered until the value is dropped.
struct Remembered<'a> {
    of: &'a Freezer,
    id: AssociationId,
}

impl Drop for Remembered<'_> {
    fn drop(&mut self) {
        self.of.profiles.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

/// Thaws a connection with the configuration of its route. Each configuration has the profile with which the
/// connection has begun.
fn thaw_one(
    live: &ListenerState,
    configs: &[(usize, Arc<ServerConfig>)],
    association: &[u8],
    now: Now,
) -> Result<DtlsConnection, NotThawed> {
    let mut why = NotThawed::from("the policy does not have its profile any more, or as it was");
    for (route, config) in configs {
        match DtlsConnection::thaw_server(config, association, now) {
            Ok(connection) => {
                let found = connection.negotiated().and_then(|it| route::of(&live.config.routes, it));
                if found == Some(*route) {
                    return Ok(connection);
                }
                why = "no route has its server name and protocol".into();
            }
            Err(error) => {
                why = error.into();
                if why.is_fault {
                    break;
                }
            }
        }
    }
    Err(why)
}
