//! The timers of a connection: a table of deadlines, and the timeout of retransmissions.

use alloc::boxed::Box;
use core::time::Duration;

use crate::settings::Retransmission;
use crate::time::Instant;

/// The action of a connection at a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// It gives up. This timer comes first, because nothing is sent when it expires together with another.
    GiveUp,
    /// It retransmits the messages that the peer has not acknowledged (RFC 9147 §5.8).
    Retransmit,
    /// It acknowledges a partly received flight (RFC 9147 §7.1).
    Acknowledge,
    /// It sends the next challenge to an address of the peer, or ends the check (RFC 9853 §5.5).
    CheckPath,
    /// It sends the next probe of its own interfaces, or leaves one of them.
    Probe,
    /// It announces the association's port again, or speaks to it again.
    MovePort,
    /// It drops the parts of messages whose rest has not come since the handshake.
    DropParts,
}

impl Timer {
    const ALL: [Self; 7] = [
        Self::GiveUp,
        Self::Retransmit,
        Self::Acknowledge,
        Self::CheckPath,
        Self::Probe,
        Self::MovePort,
        Self::DropParts,
    ];
}

/// The deadline of each running timer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers {
    /// Boxed, since an idle connection has none.
    deadlines: Option<Box<Deadlines>>,
}

type Deadlines = [Option<Instant>; Timer::ALL.len()];

impl Timers {
    /// Starts a timer unless it is already running.
    pub(crate) fn start(&mut self, timer: Timer, deadline: Instant) {
        if let Some(slot) = self.deadlines.get_or_insert_default().get_mut(timer as usize) {
            slot.get_or_insert(deadline);
        }
    }

    pub(crate) fn stop(&mut self, timer: Timer) {
        let Some(deadlines) = &mut self.deadlines else { return };
        if let Some(slot) = deadlines.get_mut(timer as usize) {
            *slot = None;
        }
        if deadlines.iter().all(Option::is_none) {
            self.deadlines = None;
        }
    }

    /// Moves the deadline of a running timer: it started with the timeout `before`, and now has `after`.
    pub(crate) fn shift(&mut self, timer: Timer, before: Duration, after: Duration) {
        let deadlines = self.deadlines.as_mut();
        if let Some(Some(deadline)) = deadlines.and_then(|deadlines| deadlines.get_mut(timer as usize)) {
            let started = deadline.since(Instant(0)).saturating_sub(before);
            *deadline = Instant(0) + started + after;
        }
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.deadlines.as_ref()?.iter().flatten().min().copied()
    }

    /// Stops a timer whose deadline has come, and returns it.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<Timer> {
        let deadlines = self.deadlines.as_ref()?;
        let is_due = |timer: &Timer| {
            let deadline = deadlines.get(*timer as usize).copied().flatten();
            deadline.is_some_and(|deadline| deadline <= now)
        };
        let timer = Timer::ALL.into_iter().find(is_due)?;
        self.stop(timer);
        Some(timer)
    }
}

/// The timeout of retransmissions. All times are in milliseconds, and at most a day: an idle connection keeps
/// them.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    first: u32,
    longest: u32,
    give_up: u32,
    timeout: u32,
    patient: bool,
    /// Whether the latest flight was sent again.
    has_repeated: bool,
}

fn ms(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

impl Backoff {
    pub(crate) fn new(Retransmission { first, longest, give_up, patient }: Retransmission) -> Self {
        let [first, longest, give_up] = [first, longest, give_up].map(ms);
        Self { first, longest, give_up, timeout: first, patient, has_repeated: false }
    }

    /// Another one with the same settings.
    pub(crate) const fn fresh(&self) -> Self {
        let Self { first, longest, give_up, patient, .. } = *self;
        Self { first, longest, give_up, timeout: first, patient, has_repeated: false }
    }

    pub(crate) const fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout as u64)
    }

    /// The timeout after this many doublings.
    #[cfg(feature = "association-ports")]
    pub(crate) fn timeout_after(&self, doublings: u32) -> Duration {
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        Duration::from_millis(self.timeout.saturating_mul(factor).min(self.longest).into())
    }

    pub(crate) const fn settings(&self) -> Retransmission {
        let Self { first, longest, give_up, patient, .. } = *self;
        let [first, longest, give_up] = [
            Duration::from_millis(first as u64),
            Duration::from_millis(longest as u64),
            Duration::from_millis(give_up as u64),
        ];
        Retransmission { first, longest, give_up, patient }
    }

    /// Whether answers that can wait do so.
    pub(crate) const fn is_patient(&self) -> bool {
        self.patient
    }

    /// The time without progress after which the connection gives up.
    pub(crate) const fn give_up(&self) -> Duration {
        Duration::from_millis(self.give_up as u64)
    }

    /// Doubles the timeout.
    pub(crate) fn double(&mut self) {
        self.has_repeated = true;
        self.timeout = self.timeout.saturating_mul(2).min(self.longest);
    }

    /// Changes the first timeout. The present timeout is as many times doubled as before.
    pub(crate) fn set_first(&mut self, first: Duration) {
        let first = ms(first);
        let mut timeout = first;
        let mut before = self.first;
        while before < self.timeout {
            before = before.saturating_mul(2);
            timeout = timeout.saturating_mul(2);
        }
        self.first = first;
        self.timeout = timeout.min(self.longest);
    }

    /// Handles an answer. RFC 6298 §5.7: the timeout returns to its first value only after a flight that was
    /// sent once.
    pub(crate) const fn progress(&mut self) {
        if !self.has_repeated {
            self.timeout = self.first;
        }
        self.has_repeated = false;
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
        let mut backoff = Backoff::new(Retransmission::default());
        let mut timeouts = [0; 9];
        for timeout in &mut timeouts {
            *timeout = backoff.timeout().as_secs();
            backoff.double();
        }
        assert_eq!(timeouts, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(Duration::from_secs(timeouts.iter().sum()), backoff.give_up());
        backoff.progress();
        assert_eq!(backoff.timeout().as_secs(), 60);
        backoff.progress();
        assert_eq!(backoff.timeout().as_secs(), 1);
    }
}
