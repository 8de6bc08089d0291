//! The sliding window that distinguishes new records from replayed ones (RFC 9147 §4.5.1, RFC 4303 §3.4.3).

use crate::error::Error;
use crate::wire::{Reader, Writer};

/// Remembers which of the last 256 record numbers of an epoch were received. RFC 9147 §4.5.1 asks for at
/// least 64. A larger window keeps more of the records that a fast network delivers late.
#[derive(Default)]
pub(super) struct ReplayWindow {
    /// One more than the highest received number.
    next: u64,
    /// Bit n is set if the number `next - 1 - n` was received: the lower 128 bits, then the upper ones.
    seen: [u128; 2],
}

impl ReplayWindow {
    /// One more than the highest received number. The next number is expected to be close to it.
    pub(super) const fn expected(&self) -> u64 {
        self.next
    }

    /// Writes it for an association that continues elsewhere.
    pub(super) fn freeze(&self, w: &mut Writer) {
        w.u64(self.next);
        self.seen.iter().for_each(|half| w.put(&half.to_be_bytes()));
    }

    pub(super) fn thaw(r: &mut Reader<'_>) -> Result<Self, Error> {
        let next = r.u64()?;
        Ok(Self { next, seen: [u128::from_be_bytes(r.array()?), u128::from_be_bytes(r.array()?)] })
    }

    /// Records the number of a received record. `false` if it is a replay, or too old to tell. Call it for
    /// authentic records only, because a forged number would move the window.
    pub(super) fn accept(&mut self, number: u64) -> bool {
        let [low, high] = self.seen;
        let Some(back) = self.next.checked_sub(number).and_then(|back| back.checked_sub(1)) else {
            let [low, high] = match number - self.next + 1 {
                ahead @ 1..128 => [low << ahead, high << ahead | low >> (128 - ahead)],
                ahead @ 128..256 => [0, low << (ahead - 128)],
                _ => [0, 0],
            };
            self.seen = [low | 1, high];
            self.next = number.saturating_add(1);
            return true;
        };
        let bit = match back {
            0..128 => [1 << back, 0],
            128..256 => [0, 1 << (back - 128)],
            _ => return false,
        };
        let [in_low, in_high] = bit;
        self.seen = [low | in_low, high | in_high];
        self.seen != [low, high]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_each_number_once() {
        let mut window = ReplayWindow::default();
        for number in [0, 1, 5, 3, 70, 69, 7, 263, 262, 140] {
            assert!(window.accept(number), "{number} is new");
            assert!(!window.accept(number), "{number} came before");
        }
        assert_eq!(window.expected(), 264);
        assert!(!window.accept(70) && !window.accept(140), "came before");
        assert!(!window.accept(6), "6 is too old to tell");
        assert!(window.accept(1 << 40));
        assert!(!window.accept(70), "70 is too old to tell");
    }

    #[test]
    fn remembers_exactly_256_numbers() {
        for ahead in [1, 2, 64, 127, 128, 129, 200, 255] {
            let mut window = ReplayWindow::default();
            assert!(window.accept(255));
            assert!(window.accept(0), "the oldest that the window holds");
            assert!(!window.accept(0));
            assert!(window.accept(255 + ahead));
            assert!(!window.accept(ahead - 1), "too old to tell");
            assert!(!window.accept(255), "{ahead} numbers later");
            assert_eq!(window.accept(254), ahead < 255);
            assert!(!window.accept(254));
            assert_eq!(window.accept(ahead), ahead < 254, "the oldest now");
        }
        let mut window = ReplayWindow::default();
        assert!(window.accept(255) && window.accept(511) && !window.accept(255) && window.accept(256));
        assert!(window.accept(u64::MAX - 1) && !window.accept(u64::MAX - 1));
    }

    #[test]
    fn accepts_numbers_in_any_order_within_the_window() {
        for step in [1, 3, 77, 129, 255] {
            let mut window = ReplayWindow::default();
            for i in 0..1024_u64 {
                let number = (i & !255) | ((i * step) & 255);
                assert!(window.accept(number), "{number}");
            }
            assert!((768..1024).all(|number| !window.accept(number)));
        }
    }
}
