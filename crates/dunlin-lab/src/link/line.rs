//! The effects of the line on packets, as numbers, without clock and devices.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use fastrand::Rng;

use crate::Error;

/// Properties of a line, the same in both directions. The default does nothing to packets.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The delay of a packet in one direction.
    pub delay: Duration,
    /// Each packet's delay is uniformly random within `delay` ± `jitter`. Packets can overtake each other.
    pub jitter: Duration,
    /// The percentage of packets lost, each independently.
    pub loss_percent: f64,
    /// The rate of IP packets in kilobits a second, in each direction.
    pub rate_kbit_per_s: Option<u64>,
    /// The number of packets that can wait at that rate; further ones are dropped.
    pub queue: usize,
    /// The periodic cuts.
    pub cut: Option<Cut>,
}

/// A line that is cut periodically. Packets sent during a cut, in either direction, are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The time between two cuts.
    pub up: Duration,
    /// The duration of a cut.
    pub down: Duration,
    /// The time of the first cut.
    pub phase: Duration,
}

impl Default for Line {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss_percent: 0.0,
            rate_kbit_per_s: None,
            queue: 1000,
            cut: None,
        }
    }
}

impl Line {
    /// # Errors
    /// The numbers are impossible for a line.
    pub(super) fn check(&self) -> Result<(), Error> {
        let wrong = |why| Err(Error::new("link", why, "correct the number"));
        if !(0.0..=100.0).contains(&self.loss_percent) {
            return wrong("a loss is between 0 and 100 percent");
        }
        if self.rate_kbit_per_s == Some(0) {
            return wrong("at a rate of 0 nothing arrives; a loss of 100 percent is spelled as such");
        }
        if self.jitter > self.delay {
            return wrong(
                "the jitter is larger than the delay, and packets cannot arrive before they are sent",
            );
        }
        if self.cut.is_some_and(|cut| cut.up.is_zero() || cut.down.is_zero()) {
            return wrong("a line that is cut periodically is up for a time and down for a time");
        }
        Ok(())
    }
}

impl Cut {
    fn is_down(&self, at: Duration) -> bool {
        let Some(since) = at.checked_sub(self.phase) else { return false };
        since.as_nanos() % (self.up + self.down).as_nanos() < self.down.as_nanos()
    }
}

/// The counts of packets by their fate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets delivered at the other end.
    pub forwarded: u64,
    /// The bytes of the delivered packets, including IP headers.
    pub forwarded_bytes: u64,
    /// Packets lost by chance.
    pub lost: u64,
    /// Packets that found the queue full.
    pub overflowed: u64,
    /// Packets sent while the line was cut.
    pub cut: u64,
    /// Packets that the device at the other end refused because it was down.
    pub refused: u64,
    /// The sum of all delays beyond the due time.
    pub late: Duration,
    /// The longest delay beyond the due time.
    pub latest: Duration,
}

impl Counts {
    /// The mean delay beyond the due time.
    pub fn mean_lateness(&self) -> Duration {
        self.late.div_f64(self.forwarded.max(1) as f64)
    }
}

/// The two directions of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Direction {
    AToB,
    BToA,
}

/// A packet in flight.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Packet {
    /// The time of its arrival.
    pub(super) due: Duration,
    /// Packets due at the same time arrive in the order of sending.
    number: u64,
    pub(super) direction: Direction,
    pub(super) bytes: Vec<u8>,
}

/// The packets in flight and the state of the line. Times count from the start of the line.
#[derive(Debug)]
pub(super) struct State {
    line: Line,
    rng: Rng,
    under_way: BinaryHeap<Reverse<Packet>>,
    /// For each direction, the times at which the waiting packets and the current one are sent completely.
    /// The direction is free after the last.
    sending: [VecDeque<Duration>; 2],
    sent: u64,
}

impl State {
    pub(super) fn new(line: Line, seed: u64) -> Self {
        let rng = Rng::with_seed(seed);
        Self { line, rng, under_way: BinaryHeap::new(), sending: Default::default(), sent: 0 }
    }

    /// Adds a packet at time `now`.
    pub(super) fn send(&mut self, direction: Direction, now: Duration, bytes: &[u8], counts: &mut Counts) {
        if self.line.cut.is_some_and(|cut| cut.is_down(now)) {
            counts.cut += 1;
        } else if self.rng.f64() * 100.0 < self.line.loss_percent {
            counts.lost += 1;
        } else if let Some(through) = self.through(direction, now, bytes.len()) {
            let due = through + self.delay();
            self.sent += 1;
            self.under_way.push(Reverse(Packet { due, number: self.sent, direction, bytes: bytes.to_vec() }));
        } else {
            counts.overflowed += 1;
        }
    }

    /// Returns when the last bit of a packet of `len` bytes leaves the sender; `None` if the queue is full.
    fn through(&mut self, direction: Direction, now: Duration, len: usize) -> Option<Duration> {
        let Some(rate) = self.line.rate_kbit_per_s else { return Some(now) };
        let queue = &mut self.sending[direction as usize];
        while queue.front().is_some_and(|through| *through <= now) {
            queue.pop_front();
        }
        // The first packet is being sent; the others wait.
        if queue.len() > self.line.queue {
            return None;
        }
        // Bits divided by kilobits a second are milliseconds.
        let time = Duration::from_nanos(len as u64 * 8 * 1_000_000 / rate);
        let through = queue.back().copied().unwrap_or(now) + time;
        queue.push_back(through);
        Some(through)
    }

    fn delay(&mut self) -> Duration {
        let delay = self.line.delay;
        let jitter = self.line.jitter;
        if jitter.is_zero() { delay } else { delay - jitter + (jitter * 2).mul_f64(self.rng.f64()) }
    }

    /// Returns when the next packet arrives.
    pub(super) fn due(&self) -> Option<Duration> {
        self.under_way.peek().map(|Reverse(packet)| packet.due)
    }

    /// Returns the next packet that has arrived by `now`.
    pub(super) fn arrived(&mut self, now: Duration) -> Option<Packet> {
        if self.due()? > now {
            return None;
        }
        self.under_way.pop().map(|Reverse(packet)| packet)
    }
}

#[cfg(test)]
mod tests {
    use super::Direction::{AToB, BToA};
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn line() -> Line {
        Line { delay: ms(10), ..Line::default() }
    }

    /// Returns the arrival times of packets, in order.
    fn arrivals(state: &mut State) -> Vec<(Duration, Direction, usize)> {
        let all = std::iter::from_fn(|| state.arrived(Duration::MAX));
        all.map(|packet| (packet.due, packet.direction, packet.bytes.len())).collect()
    }

    #[test]
    fn packet_arrives_exactly_after_the_delay() {
        let mut state = State::new(line(), 0);
        state.send(AToB, ms(5), &[1, 2, 3], &mut Counts::default());
        assert_eq!(state.due(), Some(ms(15)));
        assert!(state.arrived(ms(15) - Duration::from_nanos(1)).is_none());
        let packet = state.arrived(ms(15)).unwrap();
        assert_eq!((packet.direction, packet.bytes), (AToB, vec![1, 2, 3]));
        assert_eq!(state.due(), None);
    }

    #[test]
    fn rate_limits_each_direction_separately() {
        // 100 bytes are 800 bits, which take 80 ms at 10 kbit/s.
        let mut state = State::new(Line { rate_kbit_per_s: Some(10), ..line() }, 0);
        let mut counts = Counts::default();
        for direction in [AToB, AToB, BToA] {
            state.send(direction, ms(0), &[0; 100], &mut counts);
        }
        // Once the line is idle, nothing waits.
        state.send(AToB, ms(500), &[0; 50], &mut counts);
        let expected = [(ms(90), AToB, 100), (ms(90), BToA, 100), (ms(170), AToB, 100), (ms(550), AToB, 50)];
        assert_eq!(arrivals(&mut state), expected);
    }

    #[test]
    fn full_queue_drops_packets() {
        let mut state = State::new(Line { rate_kbit_per_s: Some(10), queue: 2, ..line() }, 0);
        let mut counts = Counts::default();
        // One packet is being sent, two wait, and one is too many; after 80 ms there is room again.
        for now in [0, 0, 0, 0, 80] {
            state.send(AToB, ms(now), &[0; 100], &mut counts);
        }
        assert_eq!(counts, Counts { overflowed: 1, ..Counts::default() });
        let expected = [90, 170, 250, 330].map(|due| (ms(due), AToB, 100));
        assert_eq!(arrivals(&mut state), expected);
    }

    #[test]
    fn loss_of_0_and_100_percent_is_exact() {
        for (loss_percent, lost) in [(0.0, 0), (100.0, 1000)] {
            let mut state = State::new(Line { loss_percent, ..line() }, 7);
            let mut counts = Counts::default();
            for _ in 0..1000 {
                state.send(AToB, ms(0), &[0], &mut counts);
            }
            assert_eq!((counts.lost, arrivals(&mut state).len()), (lost, 1000 - lost as usize));
        }
    }

    #[test]
    fn seed_determines_the_losses() {
        let lost = |seed| {
            let mut state = State::new(Line { loss_percent: 30.0, ..line() }, seed);
            (0..64).for_each(|now| state.send(AToB, ms(now), &[0], &mut Counts::default()));
            arrivals(&mut state)
        };
        assert_eq!(lost(1), lost(1));
        assert_ne!(lost(1), lost(2));
    }

    #[test]
    fn jitter_stays_within_its_bounds() {
        let mut state = State::new(Line { jitter: ms(4), ..line() }, 3);
        for _ in 0..1000 {
            state.send(AToB, ms(0), &[0], &mut Counts::default());
        }
        let all = arrivals(&mut state);
        assert!(all.iter().all(|(due, ..)| (ms(6)..=ms(14)).contains(due)));
        assert!(all[0].0 < ms(7) && all[999].0 > ms(13), "it uses its bounds");
    }

    #[test]
    fn packets_sent_during_a_cut_are_lost() {
        let cut = Cut { up: ms(100), down: ms(20), phase: ms(50) };
        let mut state = State::new(Line { cut: Some(cut), ..line() }, 0);
        let mut counts = Counts::default();
        let sent = [0, 49, 50, 69, 70, 169, 170, 189, 190];
        for now in sent {
            state.send(BToA, ms(now), &[0], &mut counts);
        }
        assert_eq!(counts.cut, 4);
        let expected = [0, 49, 70, 169, 190].map(|now| (ms(now + 10), BToA, 1));
        assert_eq!(arrivals(&mut state), expected);
    }

    #[test]
    fn impossible_lines_are_refused() {
        let cut = Some(Cut { up: ms(0), down: ms(1), phase: ms(0) });
        let impossible = [
            Line { loss_percent: 100.1, ..line() },
            Line { loss_percent: f64::NAN, ..line() },
            Line { rate_kbit_per_s: Some(0), ..line() },
            Line { jitter: ms(11), ..line() },
            Line { cut, ..line() },
        ];
        for line in impossible {
            line.check().unwrap_err();
        }
        line().check().unwrap();
    }
}
