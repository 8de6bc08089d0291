//! The timers of a connection: a table of deadlines, and the timeout of retransmissions.

use core::time::Duration;

use crate::time::Instant;

/// The first timeout of a flight (RFC 9147 §5.8.1).
const INITIAL_TIMEOUT: Duration = Duration::from_secs(1);
/// The longest timeout of a flight (RFC 9147 §5.8.1, RFC 6298 §2.5).
const MAX_TIMEOUT: Duration = Duration::from_secs(60);
/// The most retransmissions of a flight without an answer. The last one leaves after 183 seconds, and the connection gives up
/// after 243.
const MAX_RETRANSMISSIONS: u32 = 8;

/// What a connection does at a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// It retransmits the messages that the peer has not acknowledged (RFC 9147 §5.8).
    Retransmit,
    /// It acknowledges a flight of which only a part arrived (RFC 9147 §7.1).
    Acknowledge,
}

impl Timer {
    const ALL: [Self; 2] = [Self::Retransmit, Self::Acknowledge];
}

/// The deadline of each running timer.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    deadlines: [Option<Instant>; Timer::ALL.len()],
}

impl Timers {
    /// Starts a timer unless it is already running.
    pub(crate) fn start(&mut self, timer: Timer, deadline: Instant) {
        if let Some(slot) = self.deadlines.get_mut(timer as usize) {
            slot.get_or_insert(deadline);
        }
    }

    pub(crate) fn stop(&mut self, timer: Timer) {
        if let Some(slot) = self.deadlines.get_mut(timer as usize) {
            *slot = None;
        }
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.deadlines.iter().flatten().min().copied()
    }

    /// Stops a timer whose deadline has come, and returns it.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<Timer> {
        let is_due = |timer: &Timer| {
            let deadline = self.deadlines.get(*timer as usize).copied().flatten();
            deadline.is_some_and(|deadline| deadline <= now)
        };
        let timer = Timer::ALL.into_iter().find(is_due)?;
        self.stop(timer);
        Some(timer)
    }
}

/// The timeout of retransmissions. It doubles with each of them.
#[derive(Debug)]
pub(crate) struct Backoff {
    timeout: Duration,
    retransmissions: u32,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { timeout: INITIAL_TIMEOUT, retransmissions: 0 }
    }
}

impl Backoff {
    pub(crate) const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Whether the peer has left too many retransmissions unanswered.
    pub(crate) const fn is_exhausted(&self) -> bool {
        self.retransmissions >= MAX_RETRANSMISSIONS
    }

    /// Counts a retransmission. `false` if the peer has left too many of them unanswered.
    pub(crate) fn retransmit(&mut self) -> bool {
        if self.is_exhausted() {
            return false;
        }
        self.retransmissions += 1;
        self.timeout = (self.timeout * 2).min(MAX_TIMEOUT);
        true
    }

    /// The peer has acknowledged something. RFC 9147 §5.8.1: the timeout stays long until the peer acknowledges a message that
    /// this side has sent only once.
    pub(crate) const fn progress(&mut self) {
        if self.retransmissions == 0 {
            self.timeout = INITIAL_TIMEOUT;
        }
        self.retransmissions = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expires_the_timers_that_are_due() {
        let mut timers = Timers::default();
        assert_eq!((timers.next(), timers.expire(Instant(99))), (None, None));
        timers.start(Timer::Retransmit, Instant(20));
        timers.start(Timer::Acknowledge, Instant(10));
        timers.start(Timer::Acknowledge, Instant(30));
        assert_eq!((timers.next(), timers.expire(Instant(9))), (Some(Instant(10)), None));
        assert_eq!(timers.expire(Instant(10)), Some(Timer::Acknowledge));
        assert_eq!((timers.next(), timers.expire(Instant(10))), (Some(Instant(20)), None));
        timers.start(Timer::Acknowledge, Instant(15));
        assert!(timers.expire(Instant(20)).is_some() && timers.expire(Instant(20)).is_some());
        timers.start(Timer::Retransmit, Instant(1));
        timers.stop(Timer::Retransmit);
        assert_eq!((timers.next(), timers.expire(Instant(99))), (None, None));
    }

    /// The values of RFC 9147 §5.8.1.
    #[test]
    fn doubles_the_timeout_up_to_a_minute() {
        let mut backoff = Backoff::default();
        let mut timeouts = [0; 9];
        for timeout in &mut timeouts {
            *timeout = backoff.timeout().as_secs();
            backoff.retransmit();
        }
        assert_eq!(timeouts, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert!(backoff.is_exhausted() && !backoff.retransmit());
        backoff.progress();
        assert_eq!((backoff.timeout(), backoff.retransmit()), (MAX_TIMEOUT, true));
        backoff.progress();
        backoff.progress();
        assert_eq!(backoff.timeout(), INITIAL_TIMEOUT);
    }
}
