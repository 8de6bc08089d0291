//! A virtual network: endpoints that exchange datagrams over links, in virtual time.
//!
//! Nothing here waits or looks at a clock: time passes only from one arrival to the next, so a simulated minute
//! takes no longer than the work that is done in it. With endpoints that take their randomness from
//! [`SeededRandom`], everything that happens follows from the seed.
#![forbid(unsafe_code)]

mod link;
mod pair;
mod random;

use dunlin::{DtlsConnection, Now};

pub use link::{Delay, Link};
pub use pair::{Pair, Sent, Unsettled};
pub use random::SeededRandom;

/// One end of a path: it takes datagrams and has others to send.
pub trait Endpoint {
    /// Takes a datagram. What goes wrong is for the endpoint to keep, and for its owner to ask.
    fn receive(&mut self, now: Now, datagram: &[u8]);

    /// The next datagram to send.
    fn poll_transmit(&mut self, now: Now) -> Option<Vec<u8>>;
}

/// Its error is in [`DtlsConnection::error`].
impl Endpoint for DtlsConnection {
    fn receive(&mut self, now: Now, datagram: &[u8]) {
        let _ = Self::receive(self, now, datagram);
    }

    fn poll_transmit(&mut self, _: Now) -> Option<Vec<u8>> {
        Self::poll_transmit(self)
    }
}
