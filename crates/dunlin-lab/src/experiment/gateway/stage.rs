//! The phases of a run with clients that stay, and the round trips of their messages.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::Error;

/// How often a client over DTLS sends a message.
pub(super) const DTLS_PERIOD: Duration = Duration::from_secs(60);

/// The state of a run that all its threads see.
#[derive(Default)]
pub(super) struct Stage {
    /// The number of the phase. The attacks take turns.
    pub(super) phase: AtomicUsize,
    /// Whether the times of messages count that are sent now.
    pub(super) counts: AtomicBool,
    pub(super) has_ended: AtomicBool,
}

/// When a message was sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    phase: usize,
    counts: bool,
}

impl Stage {
    pub(super) fn phase(&self) -> usize {
        self.phase.load(Ordering::Relaxed)
    }

    pub(super) fn moment(&self) -> Moment {
        Moment { phase: self.phase(), counts: self.counts.load(Ordering::Relaxed) }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }
}

/// The round trips of a kind of clients.
#[derive(Debug, Default)]
pub(super) struct Trips {
    /// The times, with the number of the phase in which the message was sent.
    pub(super) times: Vec<(usize, Duration)>,
    /// The phases of messages without an echo.
    pub(super) lost: Vec<usize>,
}

impl Trips {
    /// Notes a message. One without an echo counts in any case.
    pub(super) fn note(&mut self, sent: Moment, time: Option<Duration>) {
        match time {
            Some(time) if sent.counts => self.times.push((sent.phase, time)),
            Some(_) => {}
            None => self.lost.push(sent.phase),
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.times.extend(other.times);
        self.lost.extend(other.lost);
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.times.is_empty() && self.lost.is_empty()
    }

    /// The times of a phase.
    pub(super) fn times(&self, phase: usize) -> Vec<Duration> {
        self.times.iter().filter(|(at, _)| *at == phase).map(|(_, time)| *time).collect()
    }
}

pub(super) fn failed(why: impl Display) -> Error {
    Error::new("clients of the gateway", why, "take fewer clients (--tls, --dtls), or free memory and files")
}
