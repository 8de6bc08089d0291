//! Tasks that renew the certificates by ACME of listeners.
//!
//! Each certificate has a task. It puts the certificate in its file in force, and orders a new certificate
//! when the file is missing or due. The file is the only state: a task of another gateway may have written
//! it. A reload ends all tasks and starts new ones, which order at once if a certificate is due.

mod schedule;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dunlin::Side;
use dunlin::crypto::CryptoProvider;
use dunlin_pki::{CertificateInfo, LoadedCredential};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::sleep;

use crate::acme::{self, Failure, Managed, Places};
use crate::clock::{now, wall};
use crate::context::Context;
use crate::life::Phase;
use crate::listener::ListenerState;
use crate::own::OwnIdentity;
use schedule::{Schedule, Validity};

/// How often a task looks at its file, which another gateway may have written.
const LOOK: Duration = Duration::from_secs(60);

/// How often a task asks for the lock while another gateway orders.
const LOCK_PAUSE: Duration = Duration::from_secs(1);

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
                let schedule = Schedule::default();
                let mut keeper = Keeper { context: of_task, live, number, schedule };
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
        let loaded = LoadedCredential::from_pem(pem, pem, Side::Server, wall(), provider);
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
}

/// The task of a certificate.
struct Keeper {
    context: Arc<Context>,
    live: Arc<ListenerState>,
    /// The number of the certificate in [`ListenerState::acme`].
    number: usize,
    schedule: Schedule,
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
        let pause = self.schedule.failed(now());
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
        let left = self.schedule.retries_in(now());
        if !left.is_zero() {
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
        self.schedule.succeeded(lifetime, now());
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
        let validity = Validity::of(&stored.info);
        if validity.two_thirds() <= wall() {
            return Err(Failure::new("the authority's certificate", "it is due for renewal already"));
        }
        self.context.metrics.acme_ordered(listener, certificate, true);
        Ok(validity.lifetime())
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
        let certificate = Validity::of(&stored.info);
        if self.schedule.asks(&certificate, now()) {
            let said = match stored.own.leaf() {
                Some(leaf) => acme::renewal_window(&managed.home, &managed.http, leaf).await,
                None => None,
            };
            let mut share = [0];
            // Without randomness it is the beginning.
            let _ = self.live.tls.provider().random.fill(&mut share);
            self.schedule.answered(&certificate, said, share[0], now());
        }
        let left = self.schedule.due_in(&certificate, now());
        (!left.is_zero()).then(|| left.min(LOOK))
    }
}
