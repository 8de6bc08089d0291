//! The files of a configuration, which are read at the start and again when they change.
//!
//! This applies to certificates, keys, trust anchors and CRLs. New content is validated first, by building a
//! whole configuration, and only then replaces the previous content.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use dunlin::auth::Verifiers;
use dunlin::{ClientConfig, Credential, Trust};
use dunlin_command::error::{Error, misuse};
use dunlin_command::files;
use dunlin_setup::credentials::Judges;
use dunlin_store::psk::file::{RETRY, Stamp};

/// The parts of a configuration that come from files.
#[derive(Clone, Default)]
pub(crate) struct Parts {
    pub(crate) credentials: Vec<Credential>,
    pub(crate) trust: Trust,
    /// For verifiable credentials or bare DIDs.
    pub(crate) judges: Option<Judges>,
}

impl Parts {
    /// Everything that judges peers by certificates, keys or credentials.
    pub(super) fn verifiers(&self) -> Verifiers {
        let judges = self.judges.iter().flat_map(Judges::verifiers);
        judges.fold(Verifiers::from(self.trust.clone()), Verifiers::with)
    }

    /// Whether anything does.
    pub(super) fn has_trust(&self) -> bool {
        self.trust.x509.is_some() || self.trust.raw_key.is_some() || self.judges.is_some()
    }
}

/// Reads files into the parts.
type Read = Box<dyn FnMut(&mut Parts) -> Result<(), Error> + Send>;

/// Builds a configuration from the parts.
type Make<C> = Box<dyn Fn(&Parts) -> Result<C, Error> + Send>;

/// The state of a file when it was last read.
struct Watched {
    path: PathBuf,
    /// `None` if it was missing, or is a pipe, which can be read only once.
    stamp: Option<Stamp>,
    /// SHA-256 of its content; `None` if it could not be read.
    digest: Option<Vec<u8>>,
}

impl Watched {
    fn stamp_now(&self) -> Option<Stamp> {
        Some(&self.path).filter(|path| path.is_file()).and_then(|path| Stamp::of(path))
    }

    /// Notes the state of the file. Returns whether its content has changed.
    fn note(&mut self) -> bool {
        // The stamp precedes the content, so that a change in between shows the next time.
        self.stamp = self.stamp_now();
        let content = self.stamp.and_then(|_| files::read(&self.path).ok());
        let digest = content.map(|content| dunlin_awslc::SHA256.hash(&[&content]).as_ref().to_vec());
        std::mem::replace(&mut self.digest, digest) != self.digest
    }
}

/// Files whose content is valid or invalid as a whole.
pub(crate) struct Group {
    /// Their contents, in words.
    name: &'static str,
    files: Vec<Watched>,
    read: Read,
    /// When to read them again even if none has changed, because the last attempt failed.
    again: Option<Instant>,
    /// The last reported error, until the files are valid again.
    fault: Option<String>,
}

impl Group {
    /// The files at `paths`, described by `name`. `read` reads them into its part.
    pub(super) fn new(
        name: &'static str,
        paths: Vec<PathBuf>,
        read: impl FnMut(&mut Parts) -> Result<(), Error> + Send + 'static,
    ) -> Self {
        let files = paths.into_iter().map(|path| Watched { path, stamp: None, digest: None }).collect();
        Self { name, files, read: Box::new(read), again: None, fault: None }
    }

    /// Reads the files for the first time.
    pub(super) fn read(&mut self, parts: &mut Parts) -> Result<(), Error> {
        self.note();
        (self.read)(parts)
    }

    /// Notes the state of the files. Returns those whose content has changed.
    fn note(&mut self) -> Vec<PathBuf> {
        let changed = self.files.iter_mut().filter_map(|file| file.note().then(|| file.path.clone()));
        changed.collect()
    }

    /// Returns whether a file may have changed since it was read. A file that changed a moment ago is read
    /// again, because the time stamps of file systems are coarse.
    fn is_due(&self) -> bool {
        let may_differ = |file: &Watched| {
            file.stamp != file.stamp_now() || file.stamp.is_some_and(|stamp| !stamp.is_settled())
        };
        self.again.is_some_and(|again| again <= Instant::now()) || self.files.iter().any(may_differ)
    }

    /// Reads the files into `parts` if they have changed or `force` is set. Returns the new parts and
    /// configuration, and the outcome to report.
    fn refresh<C>(
        &mut self,
        parts: &Parts,
        make: &Make<C>,
        force: bool,
    ) -> (Option<(Parts, C)>, Option<Outcome>) {
        if !force && !self.is_due() {
            return (None, None);
        }
        let changed = self.note();
        if !force && changed.is_empty() && self.fault.is_none() {
            return (None, None);
        }
        let mut candidate = parts.clone();
        match (self.read)(&mut candidate).and_then(|()| make(&candidate)) {
            Ok(config) => {
                let had_fault = self.fault.take().is_some();
                self.again = None;
                let is_news = had_fault || !changed.is_empty();
                let files =
                    self.files.iter().map(|file| &file.path).filter(|p| had_fault || changed.contains(p));
                let outcome = is_news.then(|| Outcome::Reloaded(files.cloned().collect()));
                (Some((candidate, config)), outcome)
            }
            Err(error) => {
                self.again = Some(Instant::now() + RETRY);
                let fault = format!("{error}; the previous {} stay in force", self.name);
                let is_news = force || self.fault.as_ref() != Some(&fault);
                self.fault = Some(fault.clone());
                (None, is_news.then_some(Outcome::Refused(fault)))
            }
        }
    }
}

/// The outcome of reading files again.
pub(crate) enum Outcome {
    /// The new content of these files is in force.
    Reloaded(Vec<PathBuf>),
    /// The previous content stays in force, for this reason.
    Refused(String),
}

/// A configuration that follows its files.
pub(crate) struct Followed<C>(Mutex<State<C>>);

struct State<C> {
    config: C,
    parts: Parts,
    make: Make<C>,
    groups: Vec<Group>,
}

impl<C: Clone> Followed<C> {
    /// The verifiers of peers' DIDs in the latest configuration.
    pub(crate) fn judges(&self) -> Option<Judges> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).parts.judges.clone()
    }

    /// A configuration that `make` builds from `parts`, into which `groups` have been read.
    pub(super) fn new(
        parts: Parts,
        groups: Vec<Group>,
        make: impl Fn(&Parts) -> Result<C, Error> + Send + 'static,
    ) -> Result<Self, Error> {
        let config = make(&parts)?;
        Ok(Self(Mutex::new(State { config, parts, make: Box::new(make), groups })))
    }

    /// Returns the configuration for the next connection, from the present files. `tell` receives the outcome
    /// of each group of files that was read again with another result.
    pub(crate) fn current(&self, tell: impl FnMut(Outcome)) -> C {
        self.refresh(false, tell)
    }

    fn refresh(&self, force: bool, mut tell: impl FnMut(Outcome)) -> C {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let State { config, parts, make, groups } = &mut *state;
        // Each group is separate: an invalid certificate must not keep a new CRL out.
        for group in groups {
            let (made, outcome) = group.refresh(parts, make, force);
            if let Some(made) = made {
                (*parts, *config) = made;
            }
            outcome.into_iter().for_each(&mut tell);
        }
        config.clone()
    }
}

impl<C: Clone + Send + 'static> Followed<C> {
    /// As [`Self::current`], on a thread that may wait for files and for the work of a configuration.
    pub(crate) async fn current_off_thread(
        self: &Arc<Self>,
        tell: impl FnMut(Outcome) + Send + 'static,
    ) -> C {
        self.refresh_off_thread(false, tell).await
    }

    /// Reads all files again on such a thread, changed or not; `tell` receives all faults, even known ones.
    pub(crate) async fn reload_off_thread(self: &Arc<Self>, tell: impl FnMut(Outcome) + Send + 'static) {
        self.refresh_off_thread(true, tell).await;
    }

    async fn refresh_off_thread(
        self: &Arc<Self>,
        force: bool,
        tell: impl FnMut(Outcome) + Send + 'static,
    ) -> C {
        let followed = self.clone();
        match tokio::task::spawn_blocking(move || followed.refresh(force, tell)).await {
            Ok(config) => config,
            // The runtime ends, or the reading has panicked: the previous content stays in force.
            Err(_) => self.0.lock().unwrap_or_else(PoisonError::into_inner).config.clone(),
        }
    }
}

impl Followed<ClientConfig> {
    /// A client that only follows the files by which it judges servers, which have been read into `parts`.
    pub(crate) fn client(config: ClientConfig, parts: Parts, groups: Vec<Group>) -> Self {
        let first = config.clone();
        let make = move |parts: &Parts| config.clone().with_trust(parts.verifiers()).map_err(|e| misuse(&e));
        Self(Mutex::new(State { config: first, parts, make: Box::new(make), groups }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// The only worker of this runtime must stay free: it is the one that lets the reading of the files end.
    #[tokio::test]
    async fn files_are_read_on_a_thread_of_their_own() {
        let (go, may_go) = mpsc::channel();
        let read = move |_: &mut Parts| {
            let waited = may_go.recv_timeout(Duration::from_secs(60));
            waited.map_err(|_| Error::failed("the test", "the worker is not free", "read elsewhere"))
        };
        let groups = vec![Group::new("test files", vec![], read)];
        let followed = Arc::new(Followed::new(Parts::default(), groups, |_| Ok(())).unwrap());
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let reload = followed.reload_off_thread(move |outcome| {
            if let Outcome::Refused(why) = outcome {
                tell.send(why).unwrap();
            }
        });
        tokio::join!(reload, async { go.send(()).unwrap() });
        assert_eq!(told.recv().await, None);
    }
}
