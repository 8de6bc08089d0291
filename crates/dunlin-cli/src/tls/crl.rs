//! Revocation lists in files: read at the start, and again whenever they have changed.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use dunlin::Trust;
use dunlin::auth::Revocation;
use dunlin_store::psk::file::{RETRY, Stamp};
use pki_types::CertificateRevocationListDer;

use crate::error::{Error, reason, warn};
use crate::files;

/// A trust in authorities whose lists of revoked certificates are followed.
pub(crate) struct RevocationLists {
    paths: Vec<PathBuf>,
    /// Not only of the peer's own certificate.
    of_whole_chain: bool,
    /// Whom to believe but for the lists.
    trust: Trust,
    /// Of the files when they were read last.
    stamps: Vec<Option<Stamp>>,
    /// When they are to be read again though none has changed: one could not be read.
    again: Option<Instant>,
    /// What came from pipes, which can be read once.
    from_pipes: HashMap<PathBuf, Vec<CertificateRevocationListDer<'static>>>,
    /// What was said last of files that cannot be used.
    fault: Option<String>,
}

impl RevocationLists {
    /// Those in these files, which are checked for the peer's certificate or for its whole chain; not read yet.
    pub(super) fn new(paths: Vec<PathBuf>, of_whole_chain: bool, trust: Trust) -> Self {
        Self {
            paths,
            of_whole_chain,
            trust,
            stamps: vec![],
            again: None,
            from_pipes: HashMap::new(),
            fault: None,
        }
    }

    /// The trust with the lists as they are now.
    pub(super) fn read(&mut self) -> Result<Trust, Error> {
        // Before they are read: what changes meanwhile shows the next time.
        self.stamps = self.stamps_now();
        self.again = Some(Instant::now() + RETRY);
        let mut lists = vec![];
        for path in &self.paths {
            let is_pipe = path.metadata().is_ok_and(|found| !found.is_file());
            if let Some(kept) = self.from_pipes.get(path).filter(|_| is_pipe) {
                lists.extend_from_slice(kept);
                continue;
            }
            let of_file = files::revocation_lists(path)?;
            // Each file by itself first, so that an error names it.
            let advice = "make it with `dunlin pki crl`";
            Revocation::new(of_file.clone())
                .map_err(|_| Error::failed(path.display(), "damaged, or not a list of version 2", advice))?;
            if is_pipe {
                self.from_pipes.insert(path.clone(), of_file.clone());
            }
            lists.extend(of_file);
        }
        let revocation = Revocation::new(lists).map(Revocation::refuse_overdue);
        let revocation = revocation.map(|r| if self.of_whole_chain { r } else { r.leaf_only() });
        let x509 = self.trust.x509.clone().map(|x509| x509.with_revocation(revocation?)).transpose();
        let x509 = x509.map_err(|e| Error::usage("--CRL", reason(&e), "report it"))?;
        self.again = None;
        Ok(Trust { x509, raw_key: self.trust.raw_key.clone() })
    }

    /// The same, where a file has changed and all can be used, and whether that is news: a file that has changed a moment ago is
    /// read again to be sure. Otherwise the lists of before stay, and why is said once.
    fn changed(&mut self) -> Option<(Trust, bool)> {
        let is_settled = |stamp: &Option<Stamp>| stamp.is_none_or(|stamp| stamp.is_settled());
        let have_changed = self.stamps != self.stamps_now();
        let is_due = self.again.is_some_and(|again| again <= Instant::now());
        if !have_changed && !is_due && self.stamps.iter().all(is_settled) {
            return None;
        }
        match self.read() {
            Ok(trust) => {
                let had_fault = self.fault.take().is_some();
                Some((trust, have_changed || had_fault))
            }
            Err(fault) => {
                let fault = fault.to_string();
                if self.fault.as_ref() != Some(&fault) {
                    warn(&format!("{fault}; the revocation lists of before stay"));
                    self.fault = Some(fault);
                }
                None
            }
        }
    }

    /// A pipe has none.
    fn stamps_now(&self) -> Vec<Option<Stamp>> {
        let of = |path: &PathBuf| Some(path).filter(|path| path.is_file()).and_then(|path| Stamp::of(path));
        self.paths.iter().map(of).collect()
    }
}

/// A configuration that has the lists as they are when it is asked for.
pub(crate) struct Followed<C>(Mutex<(C, Option<RevocationLists>)>);

impl<C: Clone> Followed<C> {
    /// A configuration that has the trust of `lists`, as they were read.
    pub(crate) const fn new(config: C, lists: Option<RevocationLists>) -> Self {
        Self(Mutex::new((config, lists)))
    }

    /// The configuration for the next connection; `with_trust` gives it another trust, and `tell` says that lists have changed.
    pub(crate) fn current(
        &self,
        with_trust: fn(C, Trust) -> Result<C, dunlin::Error>,
        tell: impl FnOnce(),
    ) -> C {
        let mut followed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (config, lists) = &mut *followed;
        if let Some((trust, is_news)) = lists.as_mut().and_then(RevocationLists::changed) {
            match with_trust(config.clone(), trust) {
                Ok(changed) => {
                    *config = changed;
                    if is_news {
                        tell();
                    }
                }
                Err(e) => warn(&format!("--CRL: {}; the revocation lists of before stay", reason(&e))),
            }
        }
        config.clone()
    }
}
