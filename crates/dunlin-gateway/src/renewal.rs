//! Tasks that renew the certificates by ACME of listeners.
//!
//! Each certificate has a task. It puts the certificate in its file in force, and orders a new certificate
//! when the file is missing or due. The file is the only state: a task of another gateway may have written
//! it. A reload ends all tasks and starts new ones, which order at once if a certificate is due.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use dunlin::Side;
use dunlin::crypto::CryptoProvider;
use dunlin_pki::{CertificateInfo, LoadedCredential};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep;

use crate::acme::{self, Failure, Managed, Places};
use crate::context::Context;
use crate::life::Phase;
use crate::listener::ListenerState;
use crate::own::OwnIdentity;

/// How often a task looks at its file, which another gateway may have written.
const LOOK: Duration = Duration::from_secs(60);

/// How often a task asks for the lock while another gateway orders.
const LOCK_PAUSE: Duration = Duration::from_secs(1);

/// The pause after a failure, which doubles with each further one. Let's Encrypt allows five failures an
/// hour.
const FIRST_RETRY: Duration = Duration::from_secs(60);

/// The longest pause after failures.
const MAX_RETRY: Duration = Duration::from_secs(6 * 3600);

/// How long an answer about the time of renewal holds: at least, and at most.
const RENEWAL_INFO: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(24 * 3600)];

/// When the gateway asks again an authority that does not tell the time of renewal.
const NO_RENEWAL_INFO: Duration = Duration::from_secs(6 * 3600);

/// Starts the tasks of these listeners, and lets the gateway answer the challenges of their authorities.
pub(crate) fn follow(context: &Arc<Context>, listeners: &[Arc<ListenerState>]) -> Vec<JoinHandle<()>> {
    let mut places = Places::default();
    for managed in listeners.iter().flat_map(|live| &live.acme) {
        if !places.homes.contains(&managed.home) {
            places.homes.push(managed.home.clone());
        }
        places.names.extend(managed.config.names.iter().map(|name| name.to_ascii_lowercase()));
    }
    context.challenges.replace(places);
    let tasks = listeners.iter().flat_map(|live| (0..live.acme.len()).map(|number| (live.clone(), number)));
    tasks
        .map(|(live, number)| {
            let context = context.clone();
            tokio::spawn(async move {
                let of_task = context.clone();
                let mut keeper =
                    Keeper { context: of_task, live, number, failures: 0, retry: None, window: None };
                tokio::select! {
                    () = keeper.run() => {}
                    () = context.life.reached(Phase::Draining) => {}
                }
            })
        })
        .collect()
}

/// The certificate in a file.
struct Stored {
    own: OwnIdentity,
    info: CertificateInfo,
}

impl Stored {
    /// Reads the certificate and its key.
    fn read(path: &Path, name: Option<String>, provider: &CryptoProvider) -> Result<Option<Self>, Failure> {
        let failed = || path.display().to_string();
        let Some(content) = acme::read(path).map_err(|error| Failure::new(failed(), error))? else {
            return Ok(None);
        };
        Self::parse(&content, name, provider).map(Some).map_err(|error| Failure::new(failed(), error))
    }

    fn parse(pem: &[u8], name: Option<String>, provider: &CryptoProvider) -> Result<Self, String> {
        let loaded = LoadedCredential::from_pem(pem, pem, Side::Server, SystemTime::now(), provider);
        let loaded = loaded.map_err(|fault| fault.error().to_string())?;
        let own = OwnIdentity::new(name, loaded);
        let leaf = own.leaf().ok_or("no certificate in it")?;
        let info = CertificateInfo::from_der(leaf).map_err(|error| error.to_string())?;
        Ok(Self { own, info })
    }

    /// Whether it is for these names and no others.
    fn is_for(&self, names: &[String]) -> bool {
        let own: Vec<_> = self.info.names.iter().filter_map(|name| name.strip_prefix("DNS:")).collect();
        own.len() == names.len()
            && names.iter().all(|name| own.iter().any(|own| own.eq_ignore_ascii_case(name)))
    }

    fn lifetime(&self) -> Duration {
        self.info.not_after.duration_since(self.info.not_before).unwrap_or_default()
    }

    /// When two thirds of its lifetime have passed.
    fn two_thirds(&self) -> SystemTime {
        self.info.not_before + self.lifetime() * 2 / 3
    }
}

/// When an authority wants a certificate to be renewed.
struct Window {
    /// The certificate.
    sha256: String,
    /// A moment in the authority's window; `None` if it does not say.
    at: Option<SystemTime>,
    /// When to ask again.
    again: Instant,
}

/// The task of a certificate.
struct Keeper {
    context: Arc<Context>,
    live: Arc<ListenerState>,
    /// The number of the certificate in [`ListenerState::acme`].
    number: usize,
    /// Failures since the last success.
    failures: u32,
    /// No order before this.
    retry: Option<Instant>,
    window: Option<Window>,
}

impl Keeper {
    async fn run(&mut self) {
        while let Some(managed) = self.live.clone().acme.get(self.number) {
            let pause = match self.step(managed).await {
                Ok(pause) => pause,
                Err(failure) => self.failed(managed, &failure),
            };
            sleep(pause).await;
        }
    }

    /// Counts and logs a failure. Returns the pause after it.
    fn failed(&mut self, managed: &Managed, failure: &Failure) -> Duration {
        let pause = FIRST_RETRY.saturating_mul(1 << self.failures.min(16)).min(MAX_RETRY);
        self.failures = self.failures.saturating_add(1);
        self.retry = Some(Instant::now() + pause);
        let listener = &self.live.config.name;
        let certificate = managed.name();
        self.context.metrics.acme_ordered(listener, certificate, false);
        let directory = &managed.config.directory;
        let retry_s = pause.as_secs();
        tracing::error!(listener, certificate, directory, retry_s, "no new certificate by ACME: {failure}");
        pause.min(LOOK)
    }

    /// Takes the next step that is due. Returns the pause after it.
    async fn step(&mut self, managed: &Managed) -> Result<Duration, Failure> {
        let stored = self.look(managed).await?;
        if let Some(pause) = self.pause(managed, stored.as_ref()).await {
            return Ok(pause);
        }
        if let Some(left) = self.retry.and_then(|retry| retry.checked_duration_since(Instant::now())) {
            return Ok(left.min(LOOK));
        }
        let home = managed.home.clone();
        let locked = spawn_blocking(move || home.create().and_then(|()| home.lock())).await;
        let locked = locked.map_err(Failure::of("the store cannot be used"))?;
        let store = managed.config.store.value.display().to_string();
        let Some(lock) = locked.map_err(Failure::of(&store))? else { return Ok(LOCK_PAUSE) };
        // Another gateway may have ordered in the meantime.
        let stored = self.look(managed).await?;
        if let Some(pause) = self.pause(managed, stored.as_ref()).await {
            return Ok(pause);
        }
        let lifetime = self.order(managed).await?;
        drop(lock);
        // An authority that wants each new certificate to be renewed at once gets no order at once.
        (self.failures, self.retry) = (0, Some(Instant::now() + FIRST_RETRY.min(lifetime / 6)));
        Ok(Duration::ZERO)
    }

    /// Orders a certificate, writes it to its file, and puts it in force. Returns its lifetime.
    async fn order(&self, managed: &Managed) -> Result<Duration, Failure> {
        let listener = &self.live.config.name;
        let certificate = managed.name();
        tracing::info!(listener, certificate, directory = managed.config.directory, "ordering a certificate");
        let pem = acme::order(&managed.config, &managed.home, &managed.http).await?;
        let path = managed.config.file();
        let name = self.policy_name(managed);
        let provider = self.live.tls.provider();
        let names = managed.config.names.clone();
        let written = spawn_blocking(move || {
            let bad = |why: String| Failure::new("the authority's certificate cannot be used", why);
            let stored = Stored::parse(pem.as_bytes(), name, &provider).map_err(bad)?;
            // The certificate in the file is better than a wrong one.
            if !stored.is_for(&names) {
                return Err(bad("it is not for the names of the order".to_owned()));
            }
            let failed = Failure::of("the certificate cannot be written");
            acme::write(&path, pem.as_bytes()).map_err(failed)?;
            Ok(stored)
        });
        let stored = written.await.unwrap_or_else(|error| Err(Failure::new("writing", error)))?;
        self.put_in_force(managed, &stored).await?;
        if stored.two_thirds() <= SystemTime::now() {
            return Err(Failure::new("the authority's certificate", "it is due for renewal already"));
        }
        self.context.metrics.acme_ordered(listener, certificate, true);
        Ok(stored.lifetime())
    }

    fn policy_name(&self, managed: &Managed) -> Option<String> {
        let files = self.live.config.certificates.get(managed.at)?;
        files.name().map(|name| name.value.clone())
    }

    /// Reads the certificate's file, and puts its content in force.
    async fn look(&self, managed: &Managed) -> Result<Option<Stored>, Failure> {
        let path = managed.config.file();
        let name = self.policy_name(managed);
        let provider = self.live.tls.provider();
        let read = spawn_blocking(move || Stored::read(&path, name, &provider)).await;
        let stored = read.unwrap_or_else(|error| Err(Failure::new("reading", error)))?;
        if let Some(stored) = &stored {
            self.put_in_force(managed, stored).await?;
        }
        Ok(stored)
    }

    /// Uses this certificate for new connections, unless they have it already.
    async fn put_in_force(&self, managed: &Managed, stored: &Stored) -> Result<(), Failure> {
        let listener = &self.live.config.name;
        let certificate = managed.name();
        let metrics = &self.context.metrics;
        if self.live.tls.is_in_force(managed.at, &stored.own) {
            metrics.acme_expiry(listener, certificate, stored.info.not_after);
            return Ok(());
        }
        let live = self.live.clone();
        let at = managed.at;
        let own = stored.own.clone();
        let made = spawn_blocking(move || live.tls.renew(at, own)).await;
        let made = made.map_err(Failure::of("the listener cannot use the certificate"))?;
        made.map_err(Failure::of("the listener cannot use the certificate"))?;
        self.context.changed.send_replace(());
        metrics.acme_expiry(listener, certificate, stored.info.not_after);
        let not_after = dunlin_pki::format_time(stored.info.not_after);
        tracing::info!(listener, certificate, not_after, "certificate in force");
        Ok(())
    }

    /// The pause until the certificate is due, at most [`LOOK`]. `None` if it is.
    async fn pause(&mut self, managed: &Managed, stored: Option<&Stored>) -> Option<Duration> {
        let stored = stored.filter(|stored| stored.is_for(&managed.config.names))?;
        let left = self.due(managed, stored).await.duration_since(SystemTime::now()).ok()?;
        (!left.is_zero()).then(|| left.min(LOOK))
    }

    /// When this certificate is due: when its authority says, or after two thirds of its lifetime.
    async fn due(&mut self, managed: &Managed, stored: &Stored) -> SystemTime {
        let is_known = |window: &Window| window.sha256 == stored.info.sha256 && window.again > Instant::now();
        if !self.window.as_ref().is_some_and(is_known) {
            let said = match stored.own.leaf() {
                Some(leaf) => acme::renewal_window(&managed.home, &managed.http, leaf).await,
                None => None,
            };
            let (at, again) = match said {
                // RFC 9773 §4.2: a moment in the window, at random.
                Some(([start, end], again)) => {
                    let [least, most] = RENEWAL_INFO;
                    let mut share = [0];
                    // Without randomness it is the beginning.
                    let _ = self.live.tls.provider().random.fill(&mut share);
                    let at = start + end.duration_since(start).unwrap_or_default() * share[0].into() / 256;
                    (Some(at), again.clamp(least, most))
                }
                None => (None, NO_RENEWAL_INFO),
            };
            let sha256 = stored.info.sha256.clone();
            self.window = Some(Window { sha256, at, again: Instant::now() + again });
        }
        let two_thirds = stored.two_thirds();
        // An authority that postpones the renewal to the last moment leaves no time for a failure.
        let latest = two_thirds + stored.info.not_after.duration_since(two_thirds).unwrap_or_default() / 2;
        self.window.as_ref().and_then(|window| window.at).unwrap_or(two_thirds).min(latest)
    }
}
