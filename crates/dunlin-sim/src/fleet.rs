//! Many simulations in one virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Something that happens in virtual time, event by event.
pub trait Simulation {
    /// When the next event is, from the beginning; `None` when nothing will happen any more.
    fn next(&mut self) -> Option<Duration>;

    /// Lets the next event happen.
    fn step(&mut self);
}

/// Many clients, each with its part of the server, in one virtual time. Links that they share
/// (`Arc<Mutex<impl Link>>`) make them wait for each other, as a cell or an uplink does.
#[derive(Debug, Default)]
pub struct Fleet<T> {
    /// The members.
    pub members: Vec<T>,
}

impl<T: Simulation> Fleet<T> {
    /// These members.
    pub const fn new(members: Vec<T>) -> Self {
        Self { members }
    }

    /// Lets everything happen in its order, until nothing does or `until` has come; the time of the last event.
    pub fn run(&mut self, until: Duration) -> Duration {
        let mut last = Duration::ZERO;
        // An event of one member changes no time of another, so each has one entry. Of the same time, the first member
        // comes first, and runs are alike.
        let next = |(i, member): (usize, &mut T)| member.next().map(|at| Reverse((at, i)));
        let mut events: BinaryHeap<_> = self.members.iter_mut().enumerate().filter_map(next).collect();
        while let Some(Reverse((at, i))) = events.pop() {
            let Some(member) = self.members.get_mut(i).filter(|_| at <= until) else { break };
            member.step();
            last = at;
            events.extend(member.next().map(|at| Reverse((at, i))));
        }
        last
    }
}
