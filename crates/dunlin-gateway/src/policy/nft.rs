//! The blacklist in the kernel: sets of nftables, so that packets of blocked networks do not reach the gateway.

use std::collections::HashSet;
use std::fmt;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::blacklist::Blocked;
use super::pattern::Network;

/// How long `nft` may take. It usually takes some milliseconds.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// How many networks are removed in one transaction.
const MAX_REMOVED: usize = 1000;

/// The longest message of `nft` that is read, in bytes.
const MAX_MESSAGE: u64 = 4096;

/// The longest name of a table or set, in characters. The kernel takes longer ones.
const MAX_NAME: usize = 64;

/// Sets of nftables with the networks that a gateway has blocked. The administrator makes the sets and the rules that use them:
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
        let (program, time_limit) = ("nft".into(), TIME_LIMIT);
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

    /// Adds a network until its time is over. It blocks until `nft` has ended.
    ///
    /// # Errors
    /// `nft` cannot be started or does not end in time, or its first message.
    pub fn add(&self, blocked: &Blocked, now_s: u64) -> Result<(), NftError> {
        match blocked.until_s.saturating_sub(now_s) {
            0 => Ok(()),
            left_s => self.run(&self.additions(&blocked.network, left_s)),
        }
    }

    /// Removes networks before their time, if they are still there. It blocks until `nft` has ended, which runs once for each 1000 of them.
    ///
    /// # Errors
    /// `nft` cannot be started or does not end in time, or its first message.
    pub fn remove(&self, networks: &[Network]) -> Result<(), NftError> {
        // Deleting an element that is gone would be an error.
        let removal = |network: &Network| {
            let element = format!("element inet {} {} {{ {network} }}\n", self.table, self.set(network));
            format!("add {element}delete {element}")
        };
        networks
            .chunks(MAX_REMOVED)
            .try_for_each(|some| self.run(&some.iter().map(removal).collect::<String>()))
    }

    /// Brings the kernel's sets to the present blacklist, after one with other limits or sets. It blocks until `nft` has ended.
    ///
    /// # Errors
    /// Those of [`Self::remove`] and [`Self::add`].
    pub fn replace(
        (previous, before): (Option<&Self>, &[Blocked]),
        (present, now): (Option<&Self>, &[Blocked]),
        now_s: u64,
    ) -> Result<(), NftError> {
        let is_same = previous == present;
        let stays: HashSet<_> = now.iter().filter(|_| is_same).map(|blocked| blocked.network).collect();
        let left = before.iter().map(|blocked| blocked.network).filter(|network| !stays.contains(network));
        let left: Vec<_> = left.collect();
        previous.map_or(Ok(()), |sets| sets.remove(&left))?;
        match present.filter(|_| !is_same) {
            Some(sets) => now.iter().try_for_each(|blocked| sets.add(blocked, now_s)),
            None => Ok(()),
        }
    }

    fn set(&self, network: &Network) -> &str {
        if network.address().is_ipv4() { &self.v4 } else { &self.v6 }
    }

    /// Adding an element that exists would keep its old time, so it is added, deleted and added again, in one transaction.
    fn additions(&self, network: &Network, left_s: u64) -> String {
        let (table, set) = (&self.table, self.set(network));
        let element =
            |timeout: fmt::Arguments<'_>| format!("element inet {table} {set} {{ {network}{timeout} }}\n");
        let plain = element(format_args!(""));
        let timed = element(format_args!(" timeout {left_s}s"));
        format!("add {plain}delete {plain}add {timed}")
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
        Err(NftError(first.escape_debug().to_string()))
    }
}
