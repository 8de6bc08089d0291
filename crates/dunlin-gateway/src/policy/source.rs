//! A policy that follows its file while the gateway runs.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use aws_lc_rs::digest::{SHA256, digest};
use dunlin_store::psk::file::Stamp;

use super::Policy;
use super::faults::Faults;
use super::load::{self, MAX_FILE};

/// The policy in force. Handshakes read it without waiting; [`Self::poll`] replaces it when its file has changed.
///
/// Several gateways can share the file: each one polls it.
pub struct LivePolicy {
    path: PathBuf,
    policy: ArcSwap<Policy>,
    seen: Mutex<Seen>,
}

/// What the last poll saw.
struct Seen {
    /// The stamp of the file; `None` if it may change again without a change of the stamp.
    stamp: Option<Stamp>,
    /// SHA-256 of the content.
    content: Option<[u8; 32]>,
    /// Why the content is not in force.
    faults: Option<Faults>,
}

/// The outcome of a poll.
#[derive(Clone, Debug)]
pub enum Reload {
    /// Nothing has changed.
    Unchanged,
    /// The new policy is in force for new connections.
    Replaced(Arc<Policy>),
    /// The new content has faults. The previous policy stays in force.
    Kept(Faults),
}

impl LivePolicy {
    /// Reads a policy for the first time.
    ///
    /// # Errors
    /// The file cannot be read, or all its faults.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, Faults> {
        let path = path.into();
        let stamp = stamp(&path);
        let text = read(&path)?;
        let policy = load::parse(&path.to_string_lossy(), &text)?;
        let seen = Seen { stamp, content: Some(sha256(&text)), faults: None };
        Ok(Self { path, policy: ArcSwap::from_pointee(policy), seen: Mutex::new(seen) })
    }

    /// The policy in force. A connection asks for it at each decision.
    pub fn current(&self) -> Arc<Policy> {
        self.policy.load_full()
    }

    /// Why the content of the file is not in force; `None` if it is.
    pub fn faults(&self) -> Option<Faults> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).faults.clone()
    }

    /// Reads the file again if it has changed, and puts the new policy in force if it has no fault. It blocks on the file, so a server
    /// calls it from a thread of its own, for example every second.
    pub fn poll(&self) -> Reload {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let now = stamp(&self.path);
        if now.is_some() && now == seen.stamp {
            return Reload::Unchanged;
        }
        // Read the stamp before the content: a change in between is seen next time.
        let loaded = match read(&self.path) {
            Ok(text) => {
                let content = Some(sha256(&text));
                if content == seen.content {
                    seen.stamp = now;
                    return Reload::Unchanged;
                }
                seen.content = content;
                load::parse(&self.path.to_string_lossy(), &text)
            }
            Err(faults) => {
                seen.content = None;
                Err(faults)
            }
        };
        seen.stamp = now;
        match loaded {
            Ok(policy) => {
                let policy = Arc::new(policy);
                self.policy.store(Arc::clone(&policy));
                seen.faults = None;
                Reload::Replaced(policy)
            }
            // A fault is reported once.
            Err(faults) if seen.faults.as_ref() == Some(&faults) => Reload::Unchanged,
            Err(faults) => {
                seen.faults = Some(faults.clone());
                Reload::Kept(faults)
            }
        }
    }
}

/// The stamp of the file, if any later change would change it.
fn stamp(path: &Path) -> Option<Stamp> {
    Stamp::of(path).filter(Stamp::is_settled)
}

fn read(path: &Path) -> Result<String, Faults> {
    let name = path.to_string_lossy();
    let unreadable = |error: std::io::Error| Faults::of_file(&name, error);
    let mut text = String::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(MAX_FILE as u64 + 1).read_to_string(&mut text).map_err(unreadable)?;
    Ok(text)
}

fn sha256(text: &str) -> [u8; 32] {
    let mut sum = [0; 32];
    sum.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    sum
}
