//! A client and a server that exchange datagrams, and the path between them.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use dunlin::{Instant, Now, Side, Transmit};

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
    limited(simulation, Duration::MAX)
}

/// Processes all events until the time `end`, up to a limit.
pub(crate) fn limited(simulation: &mut impl Simulation, end: Duration) -> Result<(), Unsettled> {
    for _ in 0..MAX_EVENTS {
        if simulation.next().is_none_or(|at| at > end) {
            return Ok(());
        }
        simulation.step();
    }
    Err(Unsettled)
}

/// The two directions between a client and a server, and the packets on their way. Each packet has an origin.
pub(crate) struct Path<O> {
    /// The time since the beginning.
    pub(crate) clock: Duration,
    start: Now,
    to_client: Box<dyn Link>,
    to_server: Box<dyn Link>,
    /// Ordered by the time of arrival, then by the order of sending.
    in_flight: BTreeMap<(Duration, usize), (Side, O, Vec<u8>)>,
    carried: usize,
}

impl<O: Copy> Path<O> {
    pub(crate) fn new(start: Now, to_client: Box<dyn Link>, to_server: Box<dyn Link>) -> Self {
        let clock = Duration::ZERO;
        Self { clock, start, to_client, to_server, in_flight: BTreeMap::new(), carried: 0 }
    }

    /// The current time of the endpoints' clocks.
    pub(crate) fn now(&self) -> Now {
        let passed = self.clock.as_millis() as u64;
        Now { monotonic: self.start.monotonic + self.clock, unix_ms: self.start.unix_ms + passed }
    }

    /// The time from the beginning to a moment of the endpoints' monotonic clocks.
    fn since_start(&self, at: Instant) -> Duration {
        at.since(self.start.monotonic)
    }

    pub(crate) fn send(&mut self, by: Side, origin: O, packet: Vec<u8>) {
        let link = match by {
            Side::Client => &mut self.to_server,
            Side::Server => &mut self.to_client,
        };
        for (after, packet) in link.carry(self.clock, packet) {
            self.launch(by.peer(), origin, after, packet);
        }
    }

    pub(crate) fn launch(&mut self, to: Side, origin: O, after: Duration, packet: Vec<u8>) {
        self.in_flight.insert((self.clock + after, self.carried), (to, origin, packet));
        self.carried += 1;
    }

    /// When the next packet arrives.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.in_flight.keys().next().map(|(at, _)| *at)
    }

    /// Advances the clock to the next arrival. Returns the receiver of the packet, its origin and its
    /// content.
    pub(crate) fn arrival(&mut self) -> Option<(Side, O, Vec<u8>)> {
        let ((at, _), arrival) = self.in_flight.pop_first()?;
        self.clock = at;
        Some(arrival)
    }
}

/// The first address of the client of a [`Pair`].
pub const CLIENT_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 40_000);
/// The first address of the server of a [`Pair`].
pub const SERVER_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 4433);

/// A client and a server that exchange datagrams, joined by a link in each direction.
pub struct Pair<C, S> {
    /// The client.
    pub client: C,
    /// The server.
    pub server: S,
    /// The client's address, [`CLIENT_ADDRESS`] at first. A change of it simulates another network or NAT.
    /// Datagrams to its previous addresses are lost.
    pub client_address: SocketAddr,
    /// The server's address, [`SERVER_ADDRESS`] at first.
    pub server_address: SocketAddr,
    /// The current time of both endpoints.
    pub now: Now,
    /// All datagrams sent so far, in order.
    pub sent: Vec<Sent>,
    path: Path<SocketAddr>,
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
        Self {
            client,
            server,
            client_address: CLIENT_ADDRESS,
            server_address: SERVER_ADDRESS,
            now,
            sent: Vec::new(),
            path: Path::new(now, to_client, to_server),
        }
    }

    const fn address(&self, of: Side) -> SocketAddr {
        match of {
            Side::Client => self.client_address,
            Side::Server => self.server_address,
        }
    }

    /// Injects a datagram that neither endpoint sent, with the peer's address as its sender. It arrives
    /// without delay.
    pub fn inject(&mut self, to: Side, datagram: Vec<u8>) {
        self.path.launch(to, self.address(to.peer()), Duration::ZERO, datagram);
    }

    /// Carries datagrams and lets timers expire, until no datagram is on its way and no timer runs.
    ///
    /// # Errors
    /// [`Unsettled`] if the endpoints keep sending.
    pub fn run(&mut self) -> Result<(), Unsettled> {
        settle(self)
    }

    /// Does the same for this time, and advances the clock to its end.
    ///
    /// # Errors
    /// [`Unsettled`] if the endpoints send too much in this time.
    pub fn run_for(&mut self, time: Duration) -> Result<(), Unsettled> {
        let end = self.path.clock + time;
        limited(self, end)?;
        self.path.clock = end;
        self.now = self.path.now();
        Ok(())
    }

    /// Hands the datagrams of one side to its link. One to an address that the peer does not have is lost.
    fn transmit(&mut self, by: Side, transmit: Transmit) {
        self.sent.push(Sent { after: self.path.clock, by, packet: transmit.datagram.clone() });
        if transmit.to == self.address(by.peer()) {
            self.path.send(by, self.address(by), transmit.datagram);
        }
    }

    /// The time of the next timer since the beginning, and the side that it belongs to.
    fn timer(&self) -> Option<(Duration, Side)> {
        let of = |side, deadline: Option<Instant>| deadline.map(|at| (self.path.since_start(at), side));
        let timers =
            [of(Side::Client, self.client.poll_timeout()), of(Side::Server, self.server.poll_timeout())];
        timers.into_iter().flatten().min_by_key(|(at, _)| *at)
    }
}

impl<C: Endpoint, S: Endpoint> Simulation for Pair<C, S> {
    fn next(&mut self) -> Option<Duration> {
        while let Some(transmit) = self.client.poll_transmit(self.now) {
            self.transmit(Side::Client, transmit);
        }
        while let Some(transmit) = self.server.poll_transmit(self.now) {
            self.transmit(Side::Server, transmit);
        }
        let timer = self.timer().map(|(at, _)| at.max(self.path.clock));
        self.path.next().into_iter().chain(timer).min()
    }

    fn step(&mut self) {
        let arrival = self.path.next();
        match self.timer() {
            Some((at, side)) if arrival.is_none_or(|arrival| at < arrival) => {
                self.path.clock = at.max(self.path.clock);
                self.now = self.path.now();
                match side {
                    Side::Client => self.client.handle_timeout(self.now),
                    Side::Server => self.server.handle_timeout(self.now),
                }
            }
            _ => {
                let Some((to, from, datagram)) = self.path.arrival() else { return };
                self.now = self.path.now();
                match to {
                    Side::Client => self.client.receive(self.now, from, &datagram),
                    Side::Server => self.server.receive(self.now, from, &datagram),
                }
            }
        }
    }
}
