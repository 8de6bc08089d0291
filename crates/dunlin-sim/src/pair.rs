//! Two endpoints and the path between them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use dunlin::{Now, Side};

use crate::{Delay, Endpoint, Link};

/// Datagrams in one [`Pair::run`] after which the two are taken to answer each other for ever.
const MAX_DATAGRAMS: usize = 10_000;

/// A datagram as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// When.
    pub at: Now,
    /// By whom.
    pub by: Side,
    /// What.
    pub datagram: Vec<u8>,
}

/// The endpoints go on sending: [`Pair::run`] gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsettled;

impl fmt::Display for Unsettled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the endpoints still send after {MAX_DATAGRAMS} datagrams")
    }
}

impl std::error::Error for Unsettled {}

/// A client and a server, joined by a link in each direction.
pub struct Pair<C, S> {
    /// The client.
    pub client: C,
    /// The server.
    pub server: S,
    /// The time that both are told.
    pub now: Now,
    /// All that was sent so far, in order.
    pub sent: Vec<Sent>,
    to_client: Box<dyn Link>,
    to_server: Box<dyn Link>,
    /// What is on its way, by time of arrival and, of the same time, in the order of sending.
    in_flight: BTreeMap<(u64, usize), (Side, Vec<u8>)>,
    carried: usize,
}

impl<C: Endpoint, S: Endpoint> Pair<C, S> {
    /// Joined by links that deliver everything after `delay`.
    pub fn new(client: C, server: S, now: Now, delay: Duration) -> Self {
        Self::with_links(client, server, now, Box::new(Delay(delay)), Box::new(Delay(delay)))
    }

    /// Joined by these links.
    pub fn with_links(
        client: C,
        server: S,
        now: Now,
        to_client: Box<dyn Link>,
        to_server: Box<dyn Link>,
    ) -> Self {
        let (sent, in_flight) = (Vec::new(), BTreeMap::new());
        Self { client, server, now, sent, to_client, to_server, in_flight, carried: 0 }
    }

    /// Puts a datagram on the way that nobody sent; it arrives at once.
    pub fn inject(&mut self, to: Side, datagram: Vec<u8>) {
        self.launch(to, Duration::ZERO, datagram);
    }

    /// Carries datagrams until none is on its way and nobody has another one.
    ///
    /// # Errors
    /// That never happens.
    pub fn run(&mut self) -> Result<(), Unsettled> {
        for _ in 0..MAX_DATAGRAMS {
            self.collect();
            let Some(((at, _), (to, datagram))) = self.in_flight.pop_first() else { return Ok(()) };
            self.advance(at);
            match to {
                Side::Client => self.client.receive(self.now, &datagram),
                Side::Server => self.server.receive(self.now, &datagram),
            }
        }
        Err(Unsettled)
    }

    /// Gives all that the endpoints have to send to the links.
    fn collect(&mut self) {
        let now = self.now;
        while let Some(datagram) = self.client.poll_transmit(now) {
            self.send(Side::Client, datagram);
        }
        while let Some(datagram) = self.server.poll_transmit(now) {
            self.send(Side::Server, datagram);
        }
    }

    fn send(&mut self, by: Side, datagram: Vec<u8>) {
        self.sent.push(Sent { at: self.now, by, datagram: datagram.clone() });
        let link = match by {
            Side::Client => &mut self.to_server,
            Side::Server => &mut self.to_client,
        };
        for (delay, datagram) in link.carry(self.now, datagram) {
            self.launch(by.peer(), delay, datagram);
        }
    }

    fn launch(&mut self, to: Side, delay: Duration, datagram: Vec<u8>) {
        let at = (self.now.monotonic + delay).0;
        self.in_flight.insert((at, self.carried), (to, datagram));
        self.carried += 1;
    }

    fn advance(&mut self, at: u64) {
        let passed = at.saturating_sub(self.now.monotonic.0);
        self.now.monotonic.0 += passed;
        self.now.unix_ms += passed;
    }
}
