//! The sliding window that distinguishes new records from replayed ones (RFC 9147 §4.5.1, RFC 4303 §3.4.3).

/// Remembers which of the last 64 record numbers of an epoch were received.
#[derive(Default)]
pub(super) struct ReplayWindow {
    /// One more than the highest received number.
    next: u64,
    /// Bit n is set if the number `next - 1 - n` was received.
    seen: u64,
}

impl ReplayWindow {
    /// One more than the highest received number. The next number is expected to be close to it.
    pub(super) const fn expected(&self) -> u64 {
        self.next
    }

    /// Records the number of a received record. `false` if it is a replay, or too old to tell. Call it for authentic records
    /// only, because a forged number would move the window.
    pub(super) fn accept(&mut self, number: u64) -> bool {
        let Some(back) = self.next.checked_sub(number).and_then(|back| back.checked_sub(1)) else {
            let ahead = u32::try_from(number - self.next + 1).unwrap_or(u32::MAX);
            self.seen = self.seen.checked_shl(ahead).unwrap_or(0) | 1;
            self.next = number.saturating_add(1);
            return true;
        };
        let Some(bit) = u32::try_from(back).ok().and_then(|back| 1u64.checked_shl(back)) else {
            return false;
        };
        let is_new = self.seen & bit == 0;
        self.seen |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_each_number_once() {
        let mut window = ReplayWindow::default();
        for number in [0, 1, 5, 3, 70, 69, 7] {
            assert!(window.accept(number), "{number} is new");
            assert!(!window.accept(number), "{number} came before");
        }
        assert_eq!(window.expected(), 71);
        assert!(!window.accept(5), "5 came before");
        assert!(!window.accept(6), "6 is too old to tell");
        assert!(window.accept(1 << 40));
        assert!(!window.accept(70), "70 is too old to tell");
    }

    #[test]
    fn remembers_exactly_64_numbers() {
        let mut window = ReplayWindow::default();
        assert!(window.accept(63));
        assert!(window.accept(0), "the oldest that the window holds");
        assert!(!window.accept(0));
        assert!(window.accept(127));
        assert!(!window.accept(63) && window.accept(64));
        assert!(window.accept(u64::MAX - 1) && !window.accept(u64::MAX - 1));
    }
}
