//! The copies that a server sends to a client that sends its own records over several interfaces
//! ([`crate::Multihoming::duplicated`]).
//!
//! Nothing negotiates them: second copies of several records, from another address than the first, show that
//! the client sends over both.
//!
//! * After [`COPIES`] of them the server challenges the other address (RFC 9853 §5.1). It gets at most
//!   [`MAX_AMPLIFICATION`] times the bytes of the records that came from it, and no copy before its answer.
//! * From then on, everything that the server sends over the present path leaves over the other one, too. The
//!   present path stays what it is: only a path check changes it.
//! * A path is stale, and gets nothing more, once none of the client's latest [`RECENT`] records has come
//!   over it, or nothing for [`STALE_AFTER`]. Each record counts once for each path, so repetitions of a
//!   record cannot keep a path alive.

use alloc::vec::Vec;
use core::time::Duration;

use super::receive::ReceivedRecord;
use super::routability::{CHALLENGES, Cookie};
use super::seldom::Seldom;
use super::{Datagram, MAX_AMPLIFICATION};
use crate::address::Path;
use crate::error::Error;
use crate::flight::RecordNumber;
use crate::settings::MAX_INTERFACES;
use crate::time::Instant;

/// The most addresses of a client that a server challenges or sends copies to, besides the present one.
const MAX_OTHERS: usize = MAX_INTERFACES - 1;

/// How many of the client's latest records count as copies, and keep a path from being stale.
const RECENT: u64 = 32;

/// The records of which a copy must have come over a path before the server challenges it. A single one is
/// more likely to be an attacker's or the network's.
const COPIES: usize = 3;

/// The time without a record after which a path is stale. RFC 4787 §4.3: a NAT may give its address to
/// another host after two minutes.
const STALE_AFTER: Duration = Duration::from_secs(120);

/// Another path to the client.
struct Other {
    path: Path,
    /// The highest number of a record that came over it.
    newest: RecordNumber,
    heard_at: Instant,
    /// The records of which a second copy came, and the highest number of one.
    copies: usize,
    copied: RecordNumber,
    /// The bytes of authentic records that came over it while no check counted them, and of what was sent
    /// before it was valid.
    received: usize,
    sent: usize,
    /// The cookies of the challenges so far, and when the latest one was sent.
    cookies: Vec<Cookie>,
    asked_at: Instant,
    /// Whether the client has answered a challenge over it.
    is_valid: bool,
}

/// The other paths to a client.
#[derive(Default)]
pub(super) struct Others {
    list: Seldom<Other>,
    /// The time of the latest authentic record, and the highest number of one.
    now: Instant,
    newest: RecordNumber,
}

impl Other {
    /// The bytes that it may still get before it is valid.
    const fn budget(&self) -> usize {
        self.received.saturating_mul(MAX_AMPLIFICATION).saturating_sub(self.sent)
    }
}

impl Others {
    /// The highest number of an authentic record.
    pub(super) const fn newest(&self) -> RecordNumber {
        self.newest
    }

    /// Whether this record is one of the client's latest.
    pub(super) const fn is_recent(&self, number: RecordNumber) -> bool {
        number.epoch == self.newest.epoch && number.sequence + RECENT > self.newest.sequence
    }

    /// The paths over which copies leave.
    pub(super) fn fresh(&self, now: Instant) -> impl Iterator<Item = Path> {
        let valid = self.list.iter().filter(|other| other.is_valid);
        valid.filter(move |other| now.since(other.heard_at) < STALE_AFTER).map(|other| other.path)
    }

    fn other(&mut self, path: Path) -> Option<&mut Other> {
        self.list.iter_mut().find(|other| other.path.peer == path.peer)
    }

    /// Whether copies leave over this path.
    pub(super) fn are_sent_over(&self, path: Path) -> bool {
        self.list.iter().any(|other| other.path.peer == path.peer && other.is_valid)
    }

    /// Forgets a path.
    pub(super) fn remove(&mut self, path: Path) {
        self.list.retain(|other| other.path.peer != path.peer);
    }

    /// Takes `len` bytes from the budget of a path. `None` if it is not one of them.
    pub(super) fn spend(&mut self, path: Path, len: usize) -> Option<bool> {
        let other = self.other(path)?;
        let fits = other.is_valid || len <= other.budget();
        if fits && !other.is_valid {
            other.sent = other.sent.saturating_add(len);
        }
        Some(fits)
    }

    /// Takes note of an authentic record, or a copy of one. `is_counted`: a check counts its bytes.
    pub(super) fn heard(
        &mut self,
        now: Instant,
        newest: RecordNumber,
        heard: &ReceivedRecord,
        is_counted: bool,
        wait: Duration,
    ) {
        (self.now, self.newest) = (now, newest);
        let is_stale = |other: &Other| {
            let lag = if other.newest.epoch == newest.epoch { other.newest.sequence } else { 0 };
            let is_behind = newest.sequence.saturating_sub(lag) >= RECENT;
            let is_silent = now.since(other.heard_at) >= STALE_AFTER;
            let is_asked = !other.is_valid && !other.cookies.is_empty();
            let is_unproven = is_asked && now.since(other.asked_at) >= wait;
            is_behind || is_silent || is_unproven
        };
        self.list.retain(|other| !is_stale(other));
        if let Some(other) = self.other(heard.path).filter(|other| heard.number > other.newest) {
            (other.path, other.newest, other.heard_at) = (heard.path, heard.number, now);
            other.received = other.received.saturating_add(if is_counted { 0 } else { heard.len });
        }
    }

    /// Counts a copy. A new path takes the place of one that was not challenged yet, if there is no other.
    pub(super) fn add(&mut self, path: Path, number: RecordNumber, received: usize) {
        if let Some(other) = self.other(path) {
            if number > other.copied {
                other.copied = number;
                other.copies = other.copies.saturating_add(1);
            }
            return;
        }
        if self.list.len() >= MAX_OTHERS {
            match self.list.iter().position(|other| other.cookies.is_empty()) {
                Some(at) => drop(self.list.remove(at)),
                None => return,
            }
        }
        let heard_at = self.now;
        let asked_at = self.now;
        self.list.push(Other {
            path,
            newest: number,
            heard_at,
            copies: 1,
            copied: number,
            received,
            sent: 0,
            cookies: Vec::new(),
            asked_at,
            is_valid: false,
        });
    }

    /// Whether a challenge of `len` bytes over this path is due. `budget` is the budget of a check of the
    /// path.
    pub(super) fn is_due(&mut self, path: Path, len: usize, budget: Option<usize>, pause: Duration) -> bool {
        let now = self.now;
        self.other(path).is_some_and(|other| {
            let has_waited = other.cookies.is_empty() || now.since(other.asked_at) >= pause;
            let is_open =
                !other.is_valid && other.cookies.len() < CHALLENGES as usize && other.copies >= COPIES;
            is_open && has_waited && len <= budget.unwrap_or_else(|| other.budget())
        })
    }

    /// Takes note of a challenge over this path.
    pub(super) fn challenged(&mut self, path: Path, cookie: Cookie) {
        let now = self.now;
        if let Some(other) = self.other(path) {
            other.cookies.push(cookie);
            other.asked_at = now;
        }
    }

    /// Handles the answer to a challenge. `false` if it is not one.
    pub(super) fn answered(&mut self, path: Path, cookie: Cookie) -> bool {
        match self.other(path).filter(|other| other.cookies.contains(&cookie)) {
            Some(other) => {
                other.is_valid = true;
                true
            }
            None => false,
        }
    }
}

impl Datagram {
    /// Takes note of a further copy of a record.
    pub(super) fn heard_copy(&mut self, heard: &ReceivedRecord) -> Result<(), Error> {
        self.heard_over(heard);
        if !self.complete || !self.paths.are_checked() || !self.sender.has_room_for_answers() {
            return Ok(());
        }
        let len = self.sender.path_message_len();
        let challenge = self.paths.copied(heard, len)?;
        self.after_step((false, None))?;
        match challenge {
            Some((path, message)) if self.paths.spend(path, len, 0) => {
                self.sender.path_message(path, message, None)
            }
            _ => Ok(()),
        }
    }
}
