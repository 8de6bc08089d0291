//! A policy that follows its file or database while the gateway runs.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use aws_lc_rs::digest::{SHA256, digest};
use dunlin_store::psk::file::{Format, Stamp};
use dunlin_store::text;
use rusqlite::Connection;

use super::load::{self, MAX_FILE};
use super::{Policy, sqlite};
use crate::clock::now_s;
use crate::document::{Fault, Faults};

/// The policy in force. Handshakes read it without waiting; [`Self::poll`] replaces it when its file or
/// database has changed.
///
/// Several gateways can share the file or database: each one polls it.
pub struct LivePolicy {
    path: PathBuf,
    policy: ArcSwap<Policy>,
    outcome: ArcSwap<Outcome>,
    /// How the source looked at the last poll. Also the lock of a poll.
    source: Mutex<Source>,
}

/// The version of a policy's content in its file or database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version {
    /// Since when the gateway has it in force, in seconds since 1970.
    pub since_s: u64,
    /// SHA-256 of a TOML file, as `sha256sum` shows it. Gateways that share a file can be compared by it.
    /// `None` for a database.
    pub sha256: Option<[u8; 32]>,
}

/// The result of the last poll.
struct Outcome {
    in_force: Version,
    /// Why the content is not in force.
    faults: Option<Faults>,
}

/// The source of the policy, and the state of its content at the last poll.
enum Source {
    Toml {
        /// The stamp of the file; `None` if it may change again without a change of the stamp.
        stamp: Option<Stamp>,
        /// SHA-256 of the content.
        content: Option<[u8; 32]>,
    },
    Sqlite(Option<Database>),
}

/// A database that is open.
struct Database {
    connection: Connection,
    version: Option<i64>,
    /// Another file may take the place of this one.
    file: Option<(u64, u64)>,
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
    /// Reads a policy for the first time. A file with SQLite's magic bytes, or with the extension `.db`,
    /// `.sqlite` or `.sqlite3`, is a database; any other file is TOML.
    ///
    /// # Errors
    /// The file cannot be read, or all its faults.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, Faults> {
        let path = path.into();
        let mut source = match Format::of(&path) {
            Format::Sqlite => Source::Sqlite(None),
            _ => Source::Toml { stamp: None, content: None },
        };
        let policy = source
            .changed(&path)
            .unwrap_or_else(|| Err(Faults::one(Fault::of_file(&path, "empty", "write a policy"))))?;
        let outcome = Outcome { in_force: source.version(), faults: None };
        let policy = ArcSwap::from_pointee(policy);
        let outcome = ArcSwap::from_pointee(outcome);
        Ok(Self { path, policy, outcome, source: Mutex::new(source) })
    }

    /// The policy in force. A connection asks for it at each decision.
    pub fn current(&self) -> Arc<Policy> {
        self.policy.load_full()
    }

    /// The version in force.
    pub fn version(&self) -> Version {
        self.outcome.load().in_force
    }

    /// Why the content of the file is not in force; `None` if it is.
    pub fn faults(&self) -> Option<Faults> {
        self.outcome.load().faults.clone()
    }

    /// Reads the file or database again if it has changed, and puts the new policy in force if it has no
    /// fault. It blocks, so a server calls it from a thread of its own, for example every second.
    pub fn poll(&self) -> Reload {
        self.poll_with(|_| Ok(()))
    }

    /// Does the same, but asks `accept` first. If that finds a fault, such as a certificate that the gateway
    /// does not have, the previous policy stays in force.
    pub fn poll_with(&self, accept: impl FnOnce(&Arc<Policy>) -> Result<(), Faults>) -> Reload {
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(changed) = source.changed(&self.path) else { return Reload::Unchanged };
        let accepted = changed.map(Arc::new).and_then(|policy| accept(&policy).map(|()| policy));
        let previous = self.outcome.load();
        match accepted {
            Ok(policy) => {
                self.policy.store(Arc::clone(&policy));
                self.outcome.store(Arc::new(Outcome { in_force: source.version(), faults: None }));
                Reload::Replaced(policy)
            }
            // A fault is reported once.
            Err(faults) if previous.faults.as_ref() == Some(&faults) => Reload::Unchanged,
            Err(faults) => {
                let outcome = Outcome { in_force: previous.in_force, faults: Some(faults.clone()) };
                self.outcome.store(Arc::new(outcome));
                Reload::Kept(faults)
            }
        }
    }
}

impl Source {
    /// The version of the content that was read last.
    fn version(&self) -> Version {
        let sha256 = match self {
            Self::Toml { content, .. } => *content,
            Self::Sqlite(_) => None,
        };
        Version { since_s: now_s(), sha256 }
    }

    /// The policy, or its faults, if the content has changed.
    fn changed(&mut self, path: &Path) -> Option<Result<Policy, Faults>> {
        match self {
            Self::Toml { stamp, content } => {
                // Read the stamp before the content: a change in between is seen next time.
                let now = Stamp::of(path).filter(Stamp::is_settled);
                if now.is_some() && now == *stamp {
                    return None;
                }
                *stamp = now;
                let text = match text(path) {
                    Ok(text) => text,
                    Err(faults) => {
                        // Try again although the file has not changed: this program may have been short of
                        // file descriptors.
                        (*stamp, *content) = (None, None);
                        return Some(Err(faults));
                    }
                };
                let sum = Some(sha256(&text));
                if sum == *content {
                    return None;
                }
                *content = sum;
                Some(load::parse(path, &text))
            }
            Self::Sqlite(held) => {
                let file = fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
                let is_same = held.as_ref().is_some_and(|database| {
                    let version = sqlite::data_version(&database.connection);
                    version.is_some() && version == database.version && file == database.file
                });
                if is_same {
                    return None;
                }
                *held = None;
                let connection = match sqlite::open(path) {
                    Ok(connection) => connection,
                    Err(faults) => return Some(Err(faults)),
                };
                // Read the version before the tables, likewise.
                let version = sqlite::data_version(&connection);
                let policy = sqlite::read(&connection, path);
                // Another program may have held the database while this one read it: try again.
                *held = policy.is_ok().then_some(Database { connection, version, file });
                Some(policy)
            }
        }
    }
}

fn text(path: &Path) -> Result<String, Faults> {
    let unreadable = |error: std::io::Error| {
        let advice = "give a file of TOML or a database that can be read";
        let (why, advice) = text::unreadable(&error, advice);
        Faults::one(Fault::of_file(path, why, advice))
    };
    let mut content = vec![];
    let file = File::open(path).map_err(unreadable)?;
    file.take(MAX_FILE as u64 + 1).read_to_end(&mut content).map_err(unreadable)?;
    let text = text::text(&content).map_err(|why| Faults::one(Fault::of_file(path, why, why.advice())));
    text.map(|text| text.to_string())
}

fn sha256(text: &str) -> [u8; 32] {
    let mut sum = [0; 32];
    sum.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
    sum
}
