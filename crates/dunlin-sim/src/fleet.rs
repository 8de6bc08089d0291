//! Runs many simulations in one virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// A simulation, which advances from event to event.
pub trait Simulation {
    /// The time of the next event since the beginning; `None` if there are no more events.
    fn next(&mut self) -> Option<Duration>;

    /// Processes the next event.
    fn step(&mut self);
}

/// Many simulations that run in one virtual time, for example clients, each with its server connection. If
/// they share a link (`Arc<Mutex<impl Link>>`), they wait for each other, as in a radio cell or on an uplink.
#[derive(Debug, Default)]
pub struct Fleet<T> {
    /// The members.
    pub members: Vec<T>,
}

impl<T: Simulation> Fleet<T> {
    /// A fleet with these members.
    pub const fn new(members: Vec<T>) -> Self {
        Self { members }
    }

    /// Processes all events in order, up to the time `until`. Returns the time of the last event.
    pub fn run(&mut self, until: Duration) -> Duration {
        let mut last = Duration::ZERO;
        // An event of one member never changes the next event of another, so each has one entry. The index
        // breaks ties, so that runs are reproducible.
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
