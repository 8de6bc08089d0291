//! The blacklist in the kernel: sets of nftables, so that packets of blocked networks do not reach the
//! gateway.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use super::blacklist::Blocked;
use super::pattern::Network;

/// How long `nft` may take. It usually takes some milliseconds.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// How many networks are changed in one transaction.
const MAX_CHANGED: usize = 1000;

/// The longest message of `nft` that is read, in bytes.
const MAX_MESSAGE: u64 = 4096;

/// The longest name of a table or set, in characters. The kernel takes longer ones.
const MAX_NAME: usize = 64;

/// Sets of nftables with the networks that a gateway has blocked. The administrator makes the sets and the
/// rules that use them:
///
/// ```text
/// table inet dunlin {
///     set blocked4 { type ipv4_addr; flags interval, timeout; size 65536; }
///     set blocked6 { type ipv6_addr; flags interval, timeout; size 65536; }
///     chain input {
///         type filter hook input priority filter; policy accept;
///         ip saddr @blocked4 drop
///         ip6 saddr @blocked6 drop
///     }
/// }
/// ```
///
/// The kernel removes each network when its time is over. The gateway needs the capability CAP_NET_ADMIN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NftSets {
    program: PathBuf,
    time_limit: Duration,
    table: String,
    v4: String,
    v6: String,
}

/// Why a set could not be changed, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nftables: {0}")]
pub struct NftError(String);

/// A mirror of the blacklist in the kernel. Updates run one after the other, and each reads the blacklist
/// when its turn comes. So the kernel ends with the networks that the gateway blocks, in whatever order the
/// updates were requested.
#[derive(Default)]
pub struct NftMirror(Mutex<Told>);

#[derive(Default)]
struct Told {
    sets: Option<NftSets>,
    /// The networks in the sets, and when they leave them.
    networks: HashMap<Network, Blocked>,
}

impl NftMirror {
    /// Brings the kernel to the state that `present` returns: the sets, and the networks that they should
    /// have. It blocks until `nft` has ended, which runs for some 1000 networks at once. Networks that could
    /// not be changed are tried again by the next call. Networks that remain in former sets stay there until
    /// their time is over.
    ///
    /// # Errors
    /// `nft` cannot be started or does not end in time, or its first message. If removals and additions fail,
    /// both.
    pub fn update(
        &self,
        present: impl FnOnce() -> (Option<NftSets>, Vec<Blocked>),
        now_s: u64,
    ) -> Result<(), NftError> {
        // After a panic under this lock, the worst case is a network that is sent twice.
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (sets, blocked) = present();
        let Told { sets: current, networks } = &mut *told;
        networks.retain(|_, told| told.until_s > now_s);
        let is_other = *current != sets;
        let now: HashMap<_, _> = blocked.iter().map(|blocked| (blocked.network, blocked.until_s)).collect();
        let stays = |told: &Blocked| !is_other && now.contains_key(&told.network);
        let gone: Vec<_> = networks.values().filter(|told| !stays(told)).copied().collect();
        let removed = current.as_ref().map_or(Ok(()), |sets| {
            sets.apply(&gone, &|gone| sets.removal(&gone.network), &mut |gone| {
                networks.remove(&gone.network);
            })
        });
        if is_other {
            networks.clear();
            current.clone_from(&sets);
        }
        let is_new = |blocked: &Blocked| {
            blocked.until_s > now_s
                && networks.get(&blocked.network).is_none_or(|told| told.until_s != blocked.until_s)
        };
        let new: Vec<_> = blocked.into_iter().filter(is_new).collect();
        let added = current.as_ref().map_or(Ok(()), |sets| {
            let addition = |new: &Blocked| sets.addition(&new.network, new.until_s.saturating_sub(now_s));
            sets.apply(&new, &addition, &mut |new| {
                networks.insert(new.network, *new);
            })
        });
        match (removed, added) {
            (Err(NftError(one)), Err(NftError(other))) if one != other => {
                Err(NftError(format!("{one}; {other}")))
            }
            (removed, added) => removed.and(added),
        }
    }
}

impl NftSets {
    /// The sets `v4` and `v6` of the table `table`, of the family inet.
    ///
    /// # Errors
    /// A name is empty or longer than 64 characters, or has a character that no name of nftables has.
    pub fn new(table: &str, v4: &str, v6: &str) -> Result<Self, NftError> {
        for name in [table, v4, v6] {
            let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
            let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            if name.len() > MAX_NAME || !begins || !name.chars().all(is_word) {
                let what =
                    format!("wrong name {name:?}; use letters, digits, '_', '-' and '.', and a letter first");
                return Err(NftError(what));
            }
        }
        let program = "nft".into();
        let time_limit = TIME_LIMIT;
        Ok(Self { program, time_limit, table: table.into(), v4: v4.into(), v6: v6.into() })
    }

    /// Uses another program than the `nft` of the search path.
    #[must_use]
    pub fn with_program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = program.into();
        self
    }

    /// Ends `nft` after this time, instead of 5 s.
    #[must_use]
    pub const fn with_time_limit(mut self, time_limit: Duration) -> Self {
        self.time_limit = time_limit;
        self
    }

    fn set(&self, network: &Network) -> &str {
        if network.address().is_ipv4() { &self.v4 } else { &self.v6 }
    }

    /// Deleting an element that is gone would be an error, so it is added first.
    fn removal(&self, network: &Network) -> String {
        let element = format!("element inet {} {} {{ {network} }}\n", self.table, self.set(network));
        format!("add {element}delete {element}")
    }

    /// Adding an element that exists would keep its old time, so it is removed first.
    fn addition(&self, network: &Network, left_s: u64) -> String {
        let table = &self.table;
        let set = self.set(network);
        let removal = self.removal(network);
        format!("{removal}add element inet {table} {set} {{ {network} timeout {left_s}s }}\n")
    }

    /// Runs `script` for all of these, in transactions of at most 1000 networks, and calls `done` for each
    /// that has happened. After a failed transaction its halves are tried: a set that is full takes what it
    /// can. It ends at the first network that fails by itself.
    fn apply(
        &self,
        all: &[Blocked],
        script: &impl Fn(&Blocked) -> String,
        done: &mut impl FnMut(&Blocked),
    ) -> Result<(), NftError> {
        for some in all.chunks(MAX_CHANGED) {
            match self.run(&some.iter().map(script).collect::<String>()) {
                Ok(()) => some.iter().for_each(&mut *done),
                Err(error) if some.len() == 1 => return Err(error),
                Err(_) => {
                    let (one, other) = some.split_at(some.len() / 2);
                    self.apply(one, script, done)?;
                    self.apply(other, script, done)?;
                }
            }
        }
        Ok(())
    }

    /// Runs a script of `nft` as one transaction.
    fn run(&self, script: &str) -> Result<(), NftError> {
        let failed = |error: std::io::Error| NftError(format!("{}: {error}", self.program.display()));
        let mut command = Command::new(&self.program);
        command.args(["-f", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that ends early reports why.
            let _ = stdin.write_all(script.as_bytes());
        }
        let (ended, message) = mpsc::channel();
        if let Some(stderr) = child.stderr.take() {
            // The pipe closes when the program ends.
            thread::spawn(move || {
                let mut message = Vec::new();
                let _ = stderr.take(MAX_MESSAGE).read_to_end(&mut message);
                let _ = ended.send(message);
            });
        }
        let message = message.recv_timeout(self.time_limit);
        if message.is_err() {
            // It may just have ended.
            let _ = child.kill();
        }
        let status = child.wait().map_err(failed)?;
        let Ok(message) = message else {
            return Err(NftError(format!(
                "{} did not end in time; check the kernel",
                self.program.display()
            )));
        };
        if status.success() {
            return Ok(());
        }
        let message = String::from_utf8_lossy(&message);
        let first =
            message.lines().find(|line| !line.trim().is_empty()).unwrap_or("it failed without a message");
        // The kernel's ENFILE, which nft translates as if it were about files.
        let hint = if first.ends_with("Too many open files in system") {
            "; the set is full: give it a larger size"
        } else {
            ""
        };
        Err(NftError(format!("{}{hint}", first.escape_debug())))
    }
}
