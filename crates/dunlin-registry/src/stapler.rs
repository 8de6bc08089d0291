//! Keeps the proof of an own DID fresh, which this side sends along in handshakes (`did_proof`), so that its
//! peers need not ask the registry.

use std::convert::Infallible;
use std::fmt;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use dunlin::auth::{DidProofs, KnownRegistry};
use dunlin::crypto::CryptoProvider;
use dunlin_identity::credential::unsigned;
use dunlin_identity::key::PublicKey;
use dunlin_identity::transparency::{Staple, StapleError};
use dunlin_identity::{Did, Relationship};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::client::{ClientError, RegistryClient};

/// The longest time between two refreshes. A verifier that accepts checkpoints of this age or less needs the
/// network.
pub const REFRESH_TIME: Duration = Duration::from_secs(3600);

/// The shortest time between two refreshes, however often peers demand a newer proof.
const MIN_PAUSE: Duration = Duration::from_secs(5);

/// The longest time between two attempts after a failure. The first is [`MIN_PAUSE`], and each further one
/// twice the time before.
const MAX_RETRY: Duration = Duration::from_secs(320);

/// Why there is no new proof.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StaplerError {
    /// The registry has no right answer.
    #[error("{0}")]
    Client(#[from] ClientError),
    /// The proof is longer than handshakes carry.
    #[error("{0}")]
    Staple(#[from] StapleError),
    /// The registry has another key for the DID than this program.
    #[error("{url}: the latest document of {did} does not begin with the key of this program")]
    OtherKey {
        /// The registry.
        url: String,
        /// The DID.
        did: Did,
    },
}

/// A proof, as it is sent.
#[derive(Clone)]
struct Held {
    bytes: Vec<u8>,
    size: u64,
    fresh_until_s: u64,
}

/// The proof that a stapler has, and the key that it is for.
struct State {
    key: PublicKey,
    held: Option<Held>,
}

/// The proof of one DID, from its registry.
pub struct Stapler {
    client: RegistryClient,
    did: Did,
    membership: Vec<u8>,
    state: RwLock<State>,
    demanded: Notify,
}

impl Stapler {
    /// For this DID, which this side proves by `key`. There is no proof before [`Self::refresh`].
    pub fn new(client: RegistryClient, did: Did, key: PublicKey) -> Self {
        let state = RwLock::new(State { key, held: None });
        Self { client, did, membership: Vec::new(), state, demanded: Notify::new() }
    }

    /// Sends this proof of membership along, for peers that know only the root over their members
    /// ([`dunlin_identity::Members::proof`]).
    #[must_use]
    pub fn with_membership(self, membership: Vec<u8>) -> Self {
        Self { membership, ..self }
    }

    /// Starts with the proof that `other` has, if it is newer and for the same DID, key, registry and
    /// membership: the program has read its configuration again.
    #[must_use]
    pub fn continuing(self, other: &Self) -> Self {
        let registry = |stapler: &Self| stapler.client.documents().trust().origin().to_owned();
        let is_same = self.did == other.did && self.membership == other.membership;
        let theirs = other.state.read().unwrap_or_else(PoisonError::into_inner);
        let mut own = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let until = |state: &State| state.held.as_ref().map(|held| held.fresh_until_s);
        if is_same
            && own.key == theirs.key
            && registry(&self) == registry(other)
            && until(&own) < until(&theirs)
        {
            own.held.clone_from(&theirs.held);
        }
        drop(own);
        self
    }

    /// The DID.
    pub fn did(&self) -> &Did {
        &self.did
    }

    /// Sets the key by which this side proves the DID from now on, for example after a rotation. A proof with
    /// another key is not sent.
    pub fn set_key(&self, key: PublicKey) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if state.key != key {
            *state = State { key, held: None };
            self.demanded.notify_one();
        }
    }

    /// Gets a new proof. After a failure, the previous one serves as long as peers accept it.
    ///
    /// # Errors
    /// [`StaplerError`]. After [`StaplerError::OtherKey`] and for a deactivated DID there is no proof.
    pub async fn refresh(&self) -> Result<(), StaplerError> {
        let resolved = self.client.resolve(&self.did).await;
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let (staple, resolved) = resolved.inspect_err(|error| {
            if matches!(error, ClientError::Proof { error: StapleError::Deactivated(_), .. }) {
                state.held = None;
            }
        })?;
        let mut keys = resolved.document.keys(Relationship::Authentication);
        if keys.next().is_none_or(|(_, first)| *first != state.key) {
            state.held = None;
            let url = self.client.url().to_owned();
            return Err(StaplerError::OtherKey { url, did: self.did.clone() });
        }
        let size = resolved.checkpoint.checkpoint.checkpoint().size;
        let fresh_until_s = resolved.checkpoint.fresh_until_s;
        let staple = Staple { membership: self.membership.clone(), ..staple };
        state.held = Some(Held { bytes: staple.write()?, size, fresh_until_s });
        Ok(())
    }

    /// Refreshes the proof before it grows stale, and when a peer demands a newer one. `report` receives each
    /// failure that differs from the previous one. It never ends: drop it when the program stops.
    pub async fn keep_fresh(
        &self,
        provider: &CryptoProvider,
        report: impl Fn(&StaplerError) + Send,
    ) -> Infallible {
        let mut retry = MIN_PAUSE;
        let mut reported = None;
        if let Some(pause) = self.pause() {
            self.wait(jittered(pause, provider)).await;
        }
        loop {
            match self.refresh().await {
                Ok(()) => {
                    (retry, reported) = (MIN_PAUSE, None);
                    self.wait(jittered(self.pause().unwrap_or(REFRESH_TIME), provider)).await;
                }
                Err(error) => {
                    if reported.as_ref() != Some(&error) {
                        report(&error);
                        reported = Some(error);
                    }
                    sleep(jittered(retry, provider)).await;
                    retry = (retry * 2).min(MAX_RETRY);
                }
            }
        }
    }

    /// Waits, but not longer than until a peer demands a newer proof.
    async fn wait(&self, pause: Duration) {
        let demanded = async {
            sleep(MIN_PAUSE).await;
            self.demanded.notified().await;
        };
        tokio::select! {
            () = sleep(pause) => {}
            () = demanded => {}
        }
    }

    /// How long the present proof serves without a refresh: half of the time for which it is fresh. `None`
    /// without a proof.
    fn pause(&self) -> Option<Duration> {
        let now = unsigned(self.client.now());
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let fresh = state.held.as_ref()?.fresh_until_s.saturating_sub(now);
        Some((Duration::from_secs(fresh) / 2).clamp(MIN_PAUSE, REFRESH_TIME))
    }
}

impl DidProofs for Stapler {
    fn latest(&self, accepted: &[KnownRegistry]) -> Option<Vec<u8>> {
        // A registry that is about to replace its key has two, and signs with both.
        let own = self.client.documents().trust().known(None);
        let is_own = |registry: &&KnownRegistry| own.iter().any(|own| own.key_id == registry.key_id);
        let wanted = accepted.iter().find(is_own)?;
        let now = unsigned(self.client.now());
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let held = state.held.as_ref();
        let held = held.filter(|held| now <= held.fresh_until_s);
        let is_new = |held: &Held| held.size >= wanted.oldest_size;
        if !held.is_some_and(is_new) {
            // The peer resolves the DID itself this time. It may need the proof of membership before.
            self.demanded.notify_one();
        }
        held.filter(|held| is_new(held) || !self.membership.is_empty()).map(|held| held.bytes.clone())
    }
}

impl fmt::Debug for Stapler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stapler").field("did", &self.did).finish_non_exhaustive()
    }
}

/// Up to a tenth less, at random, so that a fleet that starts together does not ask together.
fn jittered(pause: Duration, provider: &CryptoProvider) -> Duration {
    let mut random = [0];
    // Without randomness there is no handshake either.
    let _ = provider.random.fill(&mut random);
    let [random] = random;
    pause - pause / 10 * u32::from(random) / 255
}
