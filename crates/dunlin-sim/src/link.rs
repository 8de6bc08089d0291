//! Links: they delay, lose, reorder and duplicate packets.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// One direction of a path.
pub trait Link {
    /// Carries a packet that is sent at the time `at` since the beginning. Returns the packets that arrive,
    /// each with its delay. A link may lose, change or duplicate the packet.
    fn carry(&mut self, at: Duration, packet: Vec<u8>) -> Vec<(Duration, Vec<u8>)>;
}

/// A link that delivers every packet after this delay.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delay(pub Duration);

impl Link for Delay {
    fn carry(&mut self, _: Duration, packet: Vec<u8>) -> Vec<(Duration, Vec<u8>)> {
        vec![(self.0, packet)]
    }
}

/// A function can serve as a link.
impl<F: FnMut(Duration, Vec<u8>) -> Vec<(Duration, Vec<u8>)>> Link for F {
    fn carry(&mut self, at: Duration, packet: Vec<u8>) -> Vec<(Duration, Vec<u8>)> {
        self(at, packet)
    }
}

/// A link that several paths share. Packets of one path delay the packets of the others.
impl<L: Link> Link for Arc<Mutex<L>> {
    fn carry(&mut self, at: Duration, packet: Vec<u8>) -> Vec<(Duration, Vec<u8>)> {
        self.lock().unwrap_or_else(PoisonError::into_inner).carry(at, packet)
    }
}

/// The properties of a link in one direction. The default is a perfect link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Conditions {
    /// The delay of every packet.
    pub delay: Duration,
    /// The largest additional delay, evenly distributed. Packets keep their order.
    pub jitter: Duration,
    /// The rate in bits per second; `None`: unlimited.
    pub rate: Option<u64>,
    /// How many bytes may wait for a link with a rate, besides the packet in transmission; `None`: unlimited.
    /// Packets that do not fit are lost.
    pub queue: Option<usize>,
    /// The largest packet in bytes; `None`: unlimited. Larger packets are lost.
    pub mtu: Option<usize>,
    /// The probability, 0 to 1, that a packet is lost.
    pub loss: f64,
    /// The probability that later packets overtake a packet: it takes twice the delay and jitter.
    pub reorder: f64,
    /// The probability that a packet arrives twice.
    pub duplicate: f64,
}

/// A link with [`Conditions`]. Losses and other random events are reproducible from a seed.
#[derive(Clone, Debug)]
pub struct Impaired {
    conditions: Conditions,
    random: fastrand::Rng,
    /// When the link has sent all packets so far.
    idle_at: Duration,
    /// When the last packet that was not reordered arrives.
    last: Duration,
}

impl Impaired {
    /// A link with these conditions and this seed.
    pub fn new(conditions: Conditions, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self { conditions, random, idle_at: Duration::ZERO, last: Duration::ZERO }
    }

    /// When the link has sent a packet that it gets at the time `at`; `None` if the queue is full.
    fn leaves(&mut self, at: Duration, bytes: usize) -> Option<Duration> {
        let Some(rate) = self.conditions.rate else { return Some(at) };
        let begins = self.idle_at.max(at);
        let per_byte = 8.0 / rate.max(1) as f64;
        let waiting = (begins - at).as_secs_f64() / per_byte;
        if self.conditions.queue.is_some_and(|queue| waiting + bytes as f64 > (queue + bytes) as f64) {
            return None;
        }
        self.idle_at = begins + Duration::from_secs_f64(bytes as f64 * per_byte);
        Some(self.idle_at)
    }
}

impl Link for Impaired {
    fn carry(&mut self, at: Duration, packet: Vec<u8>) -> Vec<(Duration, Vec<u8>)> {
        let Conditions { delay, jitter, mtu, loss, reorder, duplicate, .. } = self.conditions;
        if mtu.is_some_and(|mtu| packet.len() > mtu) {
            return vec![];
        }
        let Some(left) = self.leaves(at, packet.len()) else { return vec![] };
        // Every packet draws the same number of random values. So changing one probability does not change
        // the random events of the others.
        let [lost, reordered, doubled] = [loss, reorder, duplicate].map(|p| self.random.f64() < p);
        let late = jitter.mul_f64(self.random.f64());
        if lost {
            return vec![];
        }
        let arrives = if reordered {
            left + (delay + jitter) * 2
        } else {
            self.last = self.last.max(left + delay + late);
            self.last
        };
        let mut arrivals = vec![(arrives - at, packet.clone())];
        if doubled {
            arrivals.push((arrives - at, packet));
        }
        arrivals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn arrivals(conditions: Conditions, count: usize, every: Duration) -> Vec<(usize, Duration)> {
        let mut link = Impaired::new(conditions, 7);
        let mut all = vec![];
        for i in 0..count {
            let at = every * u32::try_from(i).unwrap();
            for (after, packet) in link.carry(at, vec![u8::try_from(i % 256).unwrap(); 100]) {
                assert_eq!(packet, vec![u8::try_from(i % 256).unwrap(); 100]);
                all.push((i, at + after));
            }
        }
        all
    }

    #[test]
    fn a_perfect_link_changes_nothing() {
        let all = arrivals(Conditions::default(), 3, MS);
        assert_eq!(all, [(0, Duration::ZERO), (1, MS), (2, 2 * MS)]);
    }

    #[test]
    fn jitter_keeps_packets_in_order() {
        let all = arrivals(Conditions { delay: 5 * MS, jitter: 20 * MS, ..Conditions::default() }, 500, MS);
        assert!(all.is_sorted_by_key(|(_, at)| *at));
        let extra = |(i, at): &(usize, Duration)| *at - MS * u32::try_from(*i).unwrap();
        assert!(all.iter().map(extra).all(|d| d >= 5 * MS && d <= 25 * MS));
        assert!(all.iter().map(extra).any(|d| d > 20 * MS));
    }

    #[test]
    fn a_rate_delays_packets_and_a_full_queue_loses_them() {
        // 100 bytes take a millisecond at 800 kbit/s; two more packets may wait.
        let slow = Conditions { rate: Some(800_000), queue: Some(200), ..Conditions::default() };
        assert_eq!(arrivals(slow, 5, Duration::ZERO), [(0, MS), (1, 2 * MS), (2, 3 * MS)]);
        assert_eq!(arrivals(slow, 3, 10 * MS), [(0, MS), (1, 11 * MS), (2, 21 * MS)]);
    }

    #[test]
    fn random_events_have_the_configured_probabilities() {
        let count = |conditions| arrivals(conditions, 10_000, MS).len();
        let near = |n: usize, expected: usize| n.abs_diff(expected) < 200;
        assert!(near(count(Conditions { loss: 0.1, ..Conditions::default() }), 9000));
        assert!(near(count(Conditions { duplicate: 0.1, ..Conditions::default() }), 11_000));
        let all = arrivals(Conditions { delay: MS, reorder: 0.1, ..Conditions::default() }, 10_000, MS / 2);
        let overtaken = all.iter().filter(|(i, at)| *at - MS / 2 * u32::try_from(*i).unwrap() == 2 * MS);
        assert!(near(overtaken.count(), 1000));
        assert_eq!(count(Conditions { mtu: Some(99), ..Conditions::default() }), 0);
    }

    #[test]
    fn the_same_seed_gives_the_same_arrivals() {
        let conditions = Conditions { loss: 0.3, jitter: MS, duplicate: 0.2, ..Conditions::default() };
        assert_eq!(arrivals(conditions, 100, MS), arrivals(conditions, 100, MS));
    }
}
