//! When the certificate of a task is due, and when the task may order one.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dunlin::{Instant, Now};
use dunlin_pki::CertificateInfo;

/// The pause after a failure, which doubles with each further one. Let's Encrypt allows five failures an
/// hour.
const FIRST_RETRY: Duration = Duration::from_secs(60);

/// The longest pause after failures.
const MAX_RETRY: Duration = Duration::from_secs(6 * 3600);

/// How long an answer about the time of renewal holds: at least, and at most.
const RENEWAL_INFO: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(24 * 3600)];

/// When the gateway asks again an authority that does not tell the time of renewal.
const NO_RENEWAL_INFO: Duration = Duration::from_secs(6 * 3600);

/// A certificate, as far as its renewal depends on it.
pub(super) struct Validity {
    sha256: String,
    not_before: SystemTime,
    not_after: SystemTime,
}

impl Validity {
    pub(super) fn of(info: &CertificateInfo) -> Self {
        Self { sha256: info.sha256.clone(), not_before: info.not_before, not_after: info.not_after }
    }

    pub(super) fn lifetime(&self) -> Duration {
        self.not_after.duration_since(self.not_before).unwrap_or_default()
    }

    /// When two thirds of its lifetime have passed.
    pub(super) fn two_thirds(&self) -> SystemTime {
        self.not_before + self.lifetime() * 2 / 3
    }
}

/// When an authority wants a certificate to be renewed.
struct Window {
    /// The certificate.
    sha256: String,
    /// A moment in the authority's window; `None` if it does not say.
    at: Option<SystemTime>,
    /// When to ask again.
    again: Instant,
}

/// The renewals of a certificate.
#[derive(Default)]
pub(super) struct Schedule {
    /// Failures since the last success.
    failures: u32,
    /// No order before this.
    retry: Instant,
    window: Option<Window>,
}

impl Schedule {
    /// Counts a failure. Returns the pause after it.
    pub(super) fn failed(&mut self, now: Now) -> Duration {
        let pause = FIRST_RETRY.saturating_mul(1 << self.failures.min(16)).min(MAX_RETRY);
        self.failures = self.failures.saturating_add(1);
        self.retry = now.monotonic + pause;
        pause
    }

    /// Notes a new certificate with this lifetime. An authority that wants each new certificate to be renewed
    /// at once gets no order at once.
    pub(super) fn succeeded(&mut self, lifetime: Duration, now: Now) {
        self.failures = 0;
        self.retry = now.monotonic + FIRST_RETRY.min(lifetime / 6);
    }

    /// How long the task must not order yet.
    pub(super) fn retries_in(&self, now: Now) -> Duration {
        self.retry.since(now.monotonic)
    }

    /// Whether to ask the authority for the time of renewal.
    pub(super) fn asks(&self, certificate: &Validity, now: Now) -> bool {
        let window = self.window.as_ref();
        window.is_none_or(|window| window.sha256 != certificate.sha256 || window.again <= now.monotonic)
    }

    /// Notes the authority's answer: a window, and when to ask again. `share` is random, for a moment in the
    /// window (RFC 9773 §4.2).
    pub(super) fn answered(
        &mut self,
        certificate: &Validity,
        said: Option<([SystemTime; 2], Duration)>,
        share: u8,
        now: Now,
    ) {
        let [least, most] = RENEWAL_INFO;
        let at = said.map(|([start, end], _)| {
            start + end.duration_since(start).unwrap_or_default() * share.into() / 256
        });
        let again = said.map_or(NO_RENEWAL_INFO, |(_, again)| again.clamp(least, most));
        let sha256 = certificate.sha256.clone();
        self.window = Some(Window { sha256, at, again: now.monotonic + again });
    }

    /// How long it takes until the certificate is due: when its authority says, or after two thirds of its
    /// lifetime.
    pub(super) fn due_in(&self, certificate: &Validity, now: Now) -> Duration {
        let two_thirds = certificate.two_thirds();
        // An authority that postpones the renewal to the last moment leaves no time for a failure.
        let latest = two_thirds + certificate.not_after.duration_since(two_thirds).unwrap_or_default() / 2;
        let due = self.window.as_ref().and_then(|window| window.at).unwrap_or(two_thirds).min(latest);
        due.duration_since(UNIX_EPOCH + Duration::from_millis(now.unix_ms)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn at(now: Now) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(now.unix_ms)
    }

    fn of_90_days(number: u32, now: Now) -> Validity {
        Validity { sha256: number.to_string(), not_before: at(now), not_after: at(now) + 90 * DAY }
    }

    /// Ten years of a gateway in virtual time. Its authority tells the time of renewal of every second
    /// certificate, and fails for the first 20 days of each half year.
    #[test]
    fn ten_years_of_renewals_leave_no_gap() {
        let begin = Duration::from_secs(1_800_000_000);
        let mut passed = Duration::ZERO;
        let mut orders = 0;
        let mut failures: Vec<Duration> = vec![];
        let mut schedule = Schedule::default();
        let now = |passed: Duration| Now::from_unix_ms((begin + passed).as_millis() as u64);
        let mut certificate = of_90_days(0, now(passed));
        while passed < 3650 * DAY {
            let now = now(passed);
            assert!(at(now) < certificate.not_after, "a gap after {passed:?}");
            if schedule.asks(&certificate, now) {
                let window = [certificate.not_before + 40 * DAY, certificate.not_before + 50 * DAY];
                let said = (orders % 2 == 1).then_some((window, DAY));
                schedule.answered(&certificate, said, 128, now);
            }
            let is_down = passed.as_secs() / DAY.as_secs() % 180 < 20;
            let waits = schedule.due_in(&certificate, now).max(schedule.retries_in(now));
            if waits > Duration::ZERO {
                // The task asks the authority again in the meantime.
                passed += waits.min(NO_RENEWAL_INFO);
            } else if is_down {
                failures.push(passed);
                schedule.failed(now);
            } else {
                orders += 1;
                certificate = of_90_days(orders, now);
                schedule.succeeded(certificate.lifetime(), now);
            }
        }
        // One lasts 60 days, and the next one 45, or as long as the authority is down.
        assert!((3650 / 65..=3650 / 45).contains(&orders), "{orders}");
        let hour = Duration::from_secs(3600);
        let of_hour =
            |from: &Duration| failures.iter().filter(|at| (*from..*from + hour).contains(*at)).count();
        assert!(!failures.is_empty() && failures.iter().all(|from| of_hour(from) <= 6), "{failures:?}");
    }
}
