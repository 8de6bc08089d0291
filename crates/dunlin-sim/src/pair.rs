//! A client and a server that exchange datagrams, and the path between them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use dunlin::{Now, Side};

use crate::{Delay, Endpoint, Link, Simulation};

/// The most events of one [`Pair::run`]. Beyond, the endpoints are assumed to answer each other forever.
const MAX_EVENTS: usize = 100_000;

/// A packet that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The time since the beginning.
    pub after: Duration,
    /// The side that sent it.
    pub by: Side,
    /// The datagram of a [`Pair`], or the IP packet of a [`crate::TcpPair`].
    pub packet: Vec<u8>,
}

/// [`Pair::run`] gave up, because the endpoints kept sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsettled;

impl fmt::Display for Unsettled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the endpoints are still sending after {MAX_EVENTS} events")
    }
}

impl std::error::Error for Unsettled {}

/// Processes all events, up to a limit.
pub(crate) fn settle(simulation: &mut impl Simulation) -> Result<(), Unsettled> {
    for _ in 0..MAX_EVENTS {
        if simulation.next().is_none() {
            return Ok(());
        }
        simulation.step();
    }
    Err(Unsettled)
}

/// The two directions between a client and a server, and the packets on their way.
pub(crate) struct Path {
    /// The time since the beginning.
    pub(crate) clock: Duration,
    start: Now,
    to_client: Box<dyn Link>,
    to_server: Box<dyn Link>,
    /// Ordered by the time of arrival, then by the order of sending.
    in_flight: BTreeMap<(Duration, usize), (Side, Vec<u8>)>,
    carried: usize,
}

impl Path {
    pub(crate) fn new(start: Now, to_client: Box<dyn Link>, to_server: Box<dyn Link>) -> Self {
        let clock = Duration::ZERO;
        Self { clock, start, to_client, to_server, in_flight: BTreeMap::new(), carried: 0 }
    }

    /// The current time of the endpoints' clocks.
    pub(crate) fn now(&self) -> Now {
        let passed = self.clock.as_millis() as u64;
        Now { monotonic: self.start.monotonic + self.clock, unix_ms: self.start.unix_ms + passed }
    }

    pub(crate) fn send(&mut self, by: Side, packet: Vec<u8>) {
        let link = match by {
            Side::Client => &mut self.to_server,
            Side::Server => &mut self.to_client,
        };
        for (after, packet) in link.carry(self.clock, packet) {
            self.launch(by.peer(), after, packet);
        }
    }

    pub(crate) fn launch(&mut self, to: Side, after: Duration, packet: Vec<u8>) {
        self.in_flight.insert((self.clock + after, self.carried), (to, packet));
        self.carried += 1;
    }

    /// When the next packet arrives.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.in_flight.keys().next().map(|(at, _)| *at)
    }

    /// Advances the clock to the next arrival. Returns the packet and its receiver.
    pub(crate) fn arrival(&mut self) -> Option<(Side, Vec<u8>)> {
        let ((at, _), arrival) = self.in_flight.pop_first()?;
        self.clock = at;
        Some(arrival)
    }
}

/// A client and a server that exchange datagrams, joined by a link in each direction.
pub struct Pair<C, S> {
    /// The client.
    pub client: C,
    /// The server.
    pub server: S,
    /// The current time of both endpoints.
    pub now: Now,
    /// All datagrams sent so far, in order.
    pub sent: Vec<Sent>,
    path: Path,
}

impl<C: Endpoint, S: Endpoint> Pair<C, S> {
    /// Joins the endpoints by links that deliver every datagram after `delay`.
    pub fn new(client: C, server: S, now: Now, delay: Duration) -> Self {
        Self::with_links(client, server, now, Box::new(Delay(delay)), Box::new(Delay(delay)))
    }

    /// Joins the endpoints by these links.
    pub fn with_links(
        client: C,
        server: S,
        now: Now,
        to_client: Box<dyn Link>,
        to_server: Box<dyn Link>,
    ) -> Self {
        Self { client, server, now, sent: Vec::new(), path: Path::new(now, to_client, to_server) }
    }

    /// Injects a datagram that neither endpoint sent. It arrives without delay.
    pub fn inject(&mut self, to: Side, datagram: Vec<u8>) {
        self.path.launch(to, Duration::ZERO, datagram);
    }

    /// Carries datagrams until none is on its way and neither endpoint has another one.
    ///
    /// # Errors
    /// [`Unsettled`] if the endpoints keep sending.
    pub fn run(&mut self) -> Result<(), Unsettled> {
        settle(self)
    }

    fn transmit(&mut self, by: Side, datagram: Vec<u8>) {
        self.sent.push(Sent { after: self.path.clock, by, packet: datagram.clone() });
        self.path.send(by, datagram);
    }
}

impl<C: Endpoint, S: Endpoint> Simulation for Pair<C, S> {
    fn next(&mut self) -> Option<Duration> {
        while let Some(datagram) = self.client.poll_transmit(self.now) {
            self.transmit(Side::Client, datagram);
        }
        while let Some(datagram) = self.server.poll_transmit(self.now) {
            self.transmit(Side::Server, datagram);
        }
        self.path.next()
    }

    fn step(&mut self) {
        let Some((to, datagram)) = self.path.arrival() else { return };
        self.now = self.path.now();
        match to {
            Side::Client => self.client.receive(self.now, &datagram),
            Side::Server => self.server.receive(self.now, &datagram),
        }
    }
}
